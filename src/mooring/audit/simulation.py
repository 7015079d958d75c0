"""What an audit needs of a simulation, whichever mechanism is simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mooring.learners import LearnerLike
from mooring.typing import Labels, Matrix


@dataclass(frozen=True, eq=False)
class JointModel:
    """The model that participants get, and what it is compared with."""

    learner: str
    """Name of the learner that was trained."""
    predict: Callable[[Sequence[Matrix]], Labels]
    """Takes new rows of every participant, in order, and returns the predictions for all of them, one after the other."""
    predict_noisy: Callable[[Sequence[Matrix]], Labels] | None = None
    """The same with private-data noise on the new rows too, as the paper measures; None without such noise."""
    predict_alone: Callable[[Sequence[Matrix]], Labels] | None = None
    """Predictions of some participants' own models on the mechanism's features, of shape (n_alone, n). None if the
    mechanism trains on rows."""


class Simulation(Protocol):
    """A collaboration with all its secrets, as an audit needs it."""

    def train(self, learner: LearnerLike, *, seed: int) -> JointModel:
        """Train the joint model on what the analyst has."""
