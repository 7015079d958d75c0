"""What an audit needs of a simulation, whichever mechanism is simulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from mooring.learners import LearnerLike
from mooring.learners.models import Predicted
from mooring.typing import Labels, Matrix


@dataclass(frozen=True, eq=False)
class JointModel:
    """The model that participants get, and what it is compared with."""

    learner: str
    """Name of the learner that was trained."""
    classes: Labels | None
    """The classes in the order of their scores; None if a number is predicted."""
    answer: Callable[[Sequence[Matrix]], Predicted]
    """Takes new rows of every participant, in order. Returns the predictions for all of them, one after the other, and a
    score for each class, of shape (n, n_classes), or None for a number."""
    answer_noisy: Callable[[Sequence[Matrix]], Predicted] | None = None
    """The same as `answer`, with private-data noise on the new rows too, as the paper measures; None without such noise."""
    answer_alone: Callable[[Sequence[Matrix]], list[Predicted]] | None = None
    """The same as `answer` for models that some of the participants train alone on the mechanism's features, with one entry
    per model; None if the mechanism trains on rows."""

    def predict(self, new: Sequence[Matrix]) -> Labels:
        """Return the predictions for new rows of every participant, in order, one participant after the other."""
        return self.answer(new)[0]


class Simulation(Protocol):
    """A collaboration with all its secrets, as an audit needs it."""

    def train(self, learner: LearnerLike, *, seed: int) -> JointModel:
        """Train the joint model on what the analyst has."""
