"""Membership risk of the delivered model, which every participant gets.

Membership by shadow models, on the rows of the audit: models are trained as the delivered one is, each on half of the
rows as they were uploaded; the attacker asks each about rows as their owners have them. The figures are of models of half
the rows, and a lower bound. A model from secure sums is a function of the total: whatever holds for the total holds for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

from mooring.attacks.shadow_models import Mask, confidence_in, draw_halves, score_members
from mooring.audit.simulation import Simulation
from mooring.audit.utility import find_label_kind
from mooring.geometry.backend import to_numpy
from mooring.learners import Fitted, Kind, train_learner
from mooring.metrics import Figure, Interval, Membership, clopper_pearson
from mooring.serialization import Serializable
from mooring.tables import Partition
from mooring.typing import Indices, Matrix

N_MODELS, MOST_ROWS = 16, 2000
RATE = "membership_at_1_percent"
_OUTLYING = 0.1
_FEWEST_ROWS, _FEWEST_OF_A_CLASS, _SOME_OF_A_CLASS = 20, 4, 8
Labels = npt.NDArray[Any]


@dataclass(frozen=True)
class ReleaseRisk(Serializable):
    """Membership that models of this kind give away.

    Attributes
    ----------
    figures : dict of Figure
        Over all rows; the control holds the same scores against the rows of other models.
    outlying : dict of Figure
        Over the tenth of the rows that lies furthest from the mean of its class.
    n_models, n_rows : int
    """

    figures: dict[str, Figure]
    outlying: dict[str, Figure]
    n_models: int
    n_rows: int

    def __str__(self) -> str:
        rate, outlying = self.figures[RATE], self.outlying[RATE]
        chance = f"{100 * (outlying.chance or 0):.2g} %"
        return (
            f"Whoever has the model tells of {rate.value:.1%}{rate.interval.written('.1%')} of the rows that it was trained "
            f"on them, at 1 % false alarms, and of {outlying.value:.0%} of the most outlying tenth (chance {chance}; "
            f"{self.n_models} models of half of {self.n_rows} rows). A lower bound."
        )


def measure_release(
    confidences: Callable[[Indices], Matrix],
    distances: Matrix,
    *,
    rng: np.random.Generator,
    n_models: int = N_MODELS,
    on_model: Callable[[], None] | None = None,
) -> ReleaseRisk:
    """Attack models that are trained on random halves of the rows.

    Parameters
    ----------
    confidences : callable
        Trains a model on the rows with these indices, and returns its confidence in the label of every row.
    distances : array of shape (n_rows,)
        How far each row lies out.
    rng : numpy.random.Generator
    n_models : int, default 16
    on_model : callable, optional
        Called after each model.
    """
    included = draw_halves(n_models, distances.size, rng=rng)
    found = []
    for mask in included:
        found.append(confidences(np.flatnonzero(mask)))
        if on_model is not None:
            on_model()
    scores = score_members(np.stack(found), included)
    outlying = distances >= np.quantile(distances, 1 - _OUTLYING)
    return ReleaseRisk(
        _figures(scores, included),
        _figures(scores[:, outlying], included[:, outlying]),
        n_models,
        int(distances.size),
    )


def measure_trained_release(
    learner: str,
    rows: Matrix,
    labels: Labels,
    *,
    kind: Kind,
    seed: int,
    queries: Matrix | None = None,
    on_model: Callable[[], None] | None = None,
) -> ReleaseRisk | None:
    """Attack a learner's models; of many rows, 2,000 are drawn.

    None where fewer than 20 rows, or fewer than two classes of four rows, are left. Rows of rarer classes take no part.

    Parameters
    ----------
    learner : str
        A name in `mooring.learners.LEARNERS`.
    rows : array of shape (n, h)
        As they were uploaded and aligned.
    labels : array of shape (n,)
    kind : {"classes", "number"}
    seed : int
    queries : array of shape (n, h), optional
        The same rows as their owners would have them predicted, without noise.
    on_model : callable, optional
    """
    rng = np.random.default_rng([seed, 16])
    chosen = _draw_rows(labels if kind == "classes" else np.zeros(len(labels), dtype=np.intp), rng)
    queries = (rows if queries is None else queries)[chosen]
    rows, labels = rows[chosen], labels[chosen]
    classes, codes = np.unique(labels, return_inverse=True)
    if len(rows) < _FEWEST_ROWS or (kind == "classes" and classes.size < 2):
        return None

    def confidences(half: Indices) -> Matrix:
        fitted = train_learner(learner, rows[half], labels[half], kind=kind, seed=seed)
        return _confidence(fitted, queries, labels, codes, classes)

    groups = codes if kind == "classes" else np.zeros_like(codes)
    means = np.stack([rows[groups == k].mean(axis=0) for k in range(int(groups.max()) + 1)])
    distances = np.linalg.norm(rows - means[groups], axis=1)
    return measure_release(confidences, distances, rng=rng, on_model=on_model)


def measure_point_release(
    simulation: Simulation, partition: Partition, *, learner: str | None, seed: int
) -> ReleaseRisk | None:
    """Attack the joint models of a simulation; None where there is nothing to learn.

    Parameters
    ----------
    simulation : Simulation
    partition : Partition
    learner : str or None
        What the joint model is.
    seed : int
    """
    kind = find_label_kind(partition)
    if kind is None or learner is None:
        return None
    mapped = [simulation.map_new_rows(i, part, data_noise_scale=0.0) for i, part in enumerate(partition.train)]
    return measure_trained_release(
        learner,
        to_numpy(simulation.collaboration_matrix),
        np.concatenate(cast("tuple[Any, ...]", partition.train_labels)),
        kind=kind,
        seed=seed,
        queries=np.concatenate([to_numpy(part) for part in mapped]),
    )


def _draw_rows(classes: Labels, rng: np.random.Generator) -> Indices:
    """Rows to attack: some of every class, then any; none of a class that half of the models would hardly have."""
    order = rng.permutation(classes.size)
    _, codes, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(codes, kind="stable")
    rank = np.empty(codes.size, dtype=np.intp)
    rank[by_class] = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.argsort(rank >= _SOME_OF_A_CLASS, kind="stable")
    kept = first[counts[codes[first]] >= _FEWEST_OF_A_CLASS]
    return np.sort(order[kept[:MOST_ROWS]])


def _confidence(fitted: Fitted, queries: Matrix, labels: Labels, codes: Indices, classes: Labels) -> Matrix:
    """Log-odds of the true class, whether it is predicted where there are no probabilities, or what a number lacks."""
    if fitted.kind == "number":
        return np.asarray(labels - fitted.predict(queries), dtype=np.float64)
    found = fitted.probabilities(queries, int(classes.max()) + 1)
    if found is None:
        return np.asarray(fitted.predict(queries) == labels, dtype=np.float64)
    return confidence_in(found[:, classes], codes)


def _figures(scores: Matrix, included: Mask) -> dict[str, Figure]:
    """Rates over all models, with intervals of as many rows as there are; the area's is over pairs of models."""
    n_rows = scores.shape[1]
    elsewhere = np.roll(included, 2, axis=0)
    found = Membership(scores[included], scores[~included]).figures(Membership(scores[elsewhere], scores[~elsewhere]))
    pairs = scores.reshape(-1, 2 * n_rows), included.reshape(-1, 2 * n_rows)
    areas = np.array([Membership(one[mask], one[~mask]).auc for one, mask in zip(*pairs, strict=True)])
    half = float(stdtrit(areas.size - 1, 0.975)) * float(areas.std(ddof=1)) / math.sqrt(areas.size)
    area = found["membership_auc"]
    intervals = {"membership_auc": Interval(max(0.0, area.value - half), min(1.0, area.value + half), 0.95)}
    return {
        name: replace(
            figure,
            interval=intervals.get(name) or clopper_pearson(round(figure.value * n_rows), n_rows),
            n=n_rows,
        )
        for name, figure in found.items()
    }
