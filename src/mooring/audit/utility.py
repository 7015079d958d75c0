"""Utility: what the joint model scores, beside what participants reach alone, row by row, and what pooling would give."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from mooring.audit.simulation import Simulation
from mooring.geometry.backend import to_numpy
from mooring.learners import Kind, LearnerLike, Score, compare, score, train_learner
from mooring.learners.fitting import MOST_ALONE, decide_learner
from mooring.serialization import Record
from mooring.tables import Partition
from mooring.typing import Indices


@dataclass(frozen=True)
class References(Record):
    """The two scores that every other is read against."""

    local_only: Score | None
    """Each participant's own model, on its rows as they are, tested on everybody's test rows; the mean over
    participants."""
    pooled_raw: Score | None
    """One model on everybody's rows as they are: no protection at all."""
    n_alone: int
    """How many participants' own models were trained: all, or a sample."""
    learner: str | None = None
    """What both trained; None where there was nothing to learn."""


def measure_references(
    partition: Partition, *, learner: LearnerLike, seed: int
) -> tuple[References, npt.NDArray[Any] | None]:
    """Measure local only and pooled raw; none of both where there are no labels to learn or no test rows.

    Both train the same learner: with "auto", the one chosen across participants on the pooled rows. Beside the scores comes
    what each participant's own model predicts of everybody's test rows, of shape (n_alone, n_test_rows).

    Parameters
    ----------
    partition : Partition
        Training and test rows of every participant.
    learner : str or Learner
        A name in `mooring.learners.LEARNERS`, "auto", or a learner of one's own.
    seed : int
        For the learner, and for who is drawn where there are more than `MOST_ALONE`.
    """
    kind = find_label_kind(partition)
    if kind is None:
        return References(None, None, 0), None
    rng = np.random.default_rng([seed, 1])
    test, truth = np.concatenate(partition.test), np.concatenate(cast("tuple[Any, ...]", partition.test_labels))
    labels = cast("tuple[npt.NDArray[Any], ...]", partition.train_labels)
    chosen = np.arange(partition.n_participants)
    if chosen.size > MOST_ALONE:
        chosen = np.sort(rng.choice(chosen, MOST_ALONE, replace=False))
    rows, outcomes = np.concatenate(partition.train), np.concatenate(labels)
    decided = decide_learner(learner, rows, outcomes, kind=kind, seed=seed, owners=_owners(partition))
    pooled = decided.fit(rows, outcomes, kind=kind, seed=seed)
    alone = [decided.fit(partition.train[i], labels[i], kind=kind, seed=seed) for i in chosen]
    predicted = [fitted.predict(test) for fitted in (*alone, pooled)]
    scores = [score(truth, guesses, kind=kind, rng=rng) for guesses in predicted]
    references = References(mean_score(scores[:-1]), scores[-1], int(chosen.size), decided.name)
    return references, np.stack(predicted[:-1])


def measure_utility(
    simulation: Simulation,
    partition: Partition,
    *,
    learner: LearnerLike,
    seed: int,
    alone: npt.NDArray[Any] | None = None,
    groups: npt.NDArray[Any] | None = None,
) -> dict[str, Any]:
    """Train the joint model as `mooring train` does on the same rows, score it, and compare it with training alone.

    Returns what `PointResult` says of it, by field; nothing where there is nothing to learn.

    Parameters
    ----------
    learner : str or Learner
        A name in `mooring.learners.LEARNERS`, "auto", or a learner of one's own.
    alone : array of shape (n_alone, n_test_rows), optional
        What participants' own models predict, from `measure_references`; without it nothing is compared.
    groups : array of int, optional
        Whose row each record is (one value a record), as in `EvaluationSpec`: the comparison is then over persons.
    """
    kind = find_label_kind(partition)
    if kind is None:
        return {}
    rng = np.random.default_rng([seed, 2])
    labels = np.concatenate(cast("tuple[Any, ...]", partition.train_labels))
    truth = np.concatenate(cast("tuple[Any, ...]", partition.test_labels))
    rows = to_numpy(simulation.collaboration_matrix)
    fitted = train_learner(learner, rows, labels, kind=kind, seed=seed, owners=_owners(partition))

    def predicted(noise: float) -> npt.NDArray[Any]:
        rows = [
            to_numpy(simulation.map_new_rows(i, part, data_noise_scale=noise))
            for i, part in enumerate(partition.test)
            if part.shape[0]
        ]
        return fitted.predict(np.concatenate(rows))

    noise, deployed = simulation.data_noise_scale, predicted(0.0)
    owners = None if groups is None else groups[np.concatenate(partition.test_indices)]
    return {
        "learner": fitted.learner,
        "deployed": score(truth, deployed, kind=kind, rng=rng),
        "noisy_test": score(truth, predicted(noise), kind=kind, rng=rng) if noise > 0 else None,
        "gain": None if alone is None else compare(truth, deployed, alone, kind=kind, groups=owners),
    }


def _owners(partition: Partition) -> Indices:
    """Whose each training row is."""
    return np.repeat(np.arange(partition.n_participants), [part.shape[0] for part in partition.train])


def find_label_kind(partition: Partition) -> Kind | None:
    """What there is to learn: classes, a number, or nothing."""
    if partition.train_labels is None or partition.test_labels is None or partition.label_kind == "none":
        return None
    if partition.label_kind == "classes" and np.unique(np.concatenate(partition.train_labels)).size < 2:
        return None  # one class only: there is nothing to tell apart
    return partition.label_kind if sum(part.shape[0] for part in partition.test) else None


def mean_score(scores: list[Score]) -> Score:
    """The mean of several models' scores; its interval is over participants, where there are enough of them."""
    values = np.array([one.value for one in scores])
    if values.size < 3:
        return replace(
            scores[0],
            value=float(values.mean()),
            low=float(np.mean([one.low for one in scores])),
            high=float(np.mean([one.high for one in scores])),
        )
    half = 1.96 * float(values.std(ddof=1)) / np.sqrt(values.size)
    mean = float(values.mean())
    return replace(
        scores[0],
        value=mean,
        low=float(max(mean - half, 0 if scores[0].metric != "R²" else -np.inf)),
        high=float(min(mean + half, 1.0)),
    )
