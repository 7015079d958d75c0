"""Membership risk of the delivered model, which every participant gets.

Membership by shadow models, on the rows of the audit: models are trained as the delivered one is, each on half of the
rows as they were uploaded; the attacker asks each about rows as their owners have them, and reads its parameters. Inversion
by the colluding participant, which has the model and its own map. The figures are of models of half the rows, and a lower
bound. A model from secure sums is a function of the total: whatever holds for the total holds for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mooring.attacks.shadow_models import Mask, draw_halves, find_confidence, follow_gradients, score_members
from mooring.learners import Fitted, Kind, LearnerLike, train_learner
from mooring.metrics import Figure, Interval, Membership, clopper_pearson
from mooring.metrics.intervals import student_interval
from mooring.serialization import Record
from mooring.typing import Indices, Labels, Matrix

N_MODELS, MOST_ROWS = 16, 2000
RATE = "membership_at_1_percent"
_OUTLYING = 0.1
_LEAST_PROBABILITY = 1e-12
_FEWEST_ROWS, _FEWEST_OF_A_CLASS, _SOME_OF_A_CLASS = 20, 4, 8


@dataclass(frozen=True)
class ReleaseRisk(Record):
    """What models of this kind give away."""

    figures: dict[str, Figure]
    """Membership over all rows; the control holds the same scores against the rows of other models."""
    outlying: dict[str, Figure]
    """Over the tenth of the rows that lies furthest from the mean of its class."""
    n_models: int
    n_rows: int
    attack: str = "predictions"
    outlying_attack: str = "predictions"
    """'predictions' or 'gradients': what tells most at 1 % false alarms of half of the models. The figures are of the
    other half."""
    inversion: Figure | None = None
    """Cells found from the other columns, the label and the model, over rows that it was trained on. The control is
    over other rows; chance is the commonest value of the label."""
    n_columns: int = 0
    """How many were inverted."""

    def __str__(self) -> str:
        rate, outlying = self.figures[RATE], self.outlying[RATE]
        words = (
            f"Whoever has the model recognises {rate.value:.1%}{rate.interval.written('.1%')} of its training rows at 1 % "
            f"false positives (by {self.attack}; chance {100 * (rate.chance or 0):.2g} %), and "
            f"{outlying.value:.0%} of the most outlying tenth (by {self.outlying_attack}; chance "
            f"{100 * (outlying.chance or 0):.2g} %; {self.n_models} models, each of half of {self.n_rows} rows)."
        )
        if self.inversion is not None:
            inversion = self.inversion
            words += (
                f" From the model, the label and a record's other columns, an attacker infers {inversion.value:.0%}"
                f"{inversion.interval.written('.0%')} of the cells of training rows ({self.n_columns} columns were tried), "
                f"and {inversion.control or 0:.0%} of the cells of other rows (guessing from the label: "
                f"{inversion.chance or 0:.0%})."
            )
        return f"{words} These figures are lower bounds."


def measure_release(scores: dict[str, Matrix], included: Mask, distances: Matrix) -> ReleaseRisk:
    """How well scores tell the rows of a model from others, by the attack that tells most.

    Of several attacks one is chosen on half of the pairs of models, and measured on the others.

    Parameters
    ----------
    scores : dict of arrays of shape (n_models, n_rows)
        By attack.
    included : array of bool of shape (n_models, n_rows)
        Which rows each model was trained on.
    distances : array of shape (n_rows,)
        How far each row lies out.
    """
    outlying = distances >= np.quantile(distances, 1 - _OUTLYING)
    attack, figures = _strongest(scores, included)
    rare = {name: values[:, outlying] for name, values in scores.items()}
    outlying_attack, outlying_figures = _strongest(rare, included[:, outlying])
    n_models, n_rows = included.shape
    return ReleaseRisk(figures, outlying_figures, n_models, n_rows, attack, outlying_attack)


def measure_trained_release(
    learner: LearnerLike,
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
    learner : str or Learner
        A name in `mooring.learners.LEARNERS`, or a learner of one's own.
    rows : array of shape (n, h)
        As they were uploaded and aligned.
    labels : array of shape (n,)
    kind : {"classes", "number"}
    queries : array of shape (n, h), optional
        The same rows as their owners would have them predicted, without noise.
    on_model : callable, optional
        Called after each model.
    """
    rng = np.random.default_rng([seed, 16])
    chosen = _draw_rows(labels if kind == "classes" else np.zeros(len(labels), dtype=np.intp), rng)
    queries = (rows if queries is None else queries)[chosen]
    rows, labels = rows[chosen], labels[chosen]
    classes, codes = np.unique(labels, return_inverse=True)
    if len(rows) < _FEWEST_ROWS or (kind == "classes" and classes.size < 2):
        return None
    outcomes = codes if kind == "classes" else labels
    included, answers = draw_halves(N_MODELS, len(rows), rng=rng), []
    for half in included:
        fitted = train_learner(learner, rows[half], outcomes[half], kind=kind, seed=seed)
        answers.append(answer_queries(fitted, queries, classes.size))
        if on_model is not None:
            on_model()
    groups = codes if kind == "classes" else np.zeros_like(codes)
    means = np.stack([rows[groups == k].mean(axis=0) for k in range(int(groups.max()) + 1)])
    distances = np.linalg.norm(rows - means[groups], axis=1)
    return measure_release(_score(np.stack(answers), outcomes, included), included, distances)


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


def answer_queries(fitted: Fitted, queries: Matrix, n_classes: int) -> Matrix:
    """Numbers, or logarithms of the probabilities of classes; of a learner without these, of which one is predicted."""
    predicted = fitted.predict(queries)
    if fitted.kind == "number":
        return np.asarray(predicted, dtype=np.float64)
    probabilities = fitted.probabilities(queries, n_classes)
    probabilities = predicted[:, None] == np.arange(n_classes) if probabilities is None else probabilities
    return np.log(np.maximum(probabilities, _LEAST_PROBABILITY))


def _score(answers: Matrix, labels: Labels, included: Mask) -> dict[str, Matrix]:
    """Scores by predictions and by gradients, of answers to every row."""
    confidences = (
        labels - answers if answers.ndim == 2 else np.stack([find_confidence(answer, labels) for answer in answers])
    )
    statistics = {"predictions": confidences, "gradients": follow_gradients(answers, labels)}
    return {name: score_members(statistic, included) for name, statistic in statistics.items()}


def _strongest(scores: dict[str, Matrix], included: Mask) -> tuple[str, dict[str, Figure]]:
    """The attack that tells most in the first half of the pairs of models, and its figures in the others."""
    if len(scores) == 1:
        return next((name, _figures(values, included)) for name, values in scores.items())
    half = len(included) // 4 * 2
    memberships = {
        name: Membership(values[:half][included[:half]], values[:half][~included[:half]])
        for name, values in scores.items()
    }
    attack = max(memberships, key=lambda name: (memberships[name].true_positive_rate(0.01)[0], memberships[name].auc))
    return attack, _figures(scores[attack][half:], included[half:])


def _figures(scores: Matrix, included: Mask) -> dict[str, Figure]:
    """Rates over all models, with intervals of as many rows as there are; the area's is over pairs of models."""
    n_rows = scores.shape[1]
    elsewhere = np.roll(included, 2, axis=0)
    figures = Membership(scores[included], scores[~included]).figures(Membership(scores[elsewhere], scores[~elsewhere]))
    pairs = scores.reshape(-1, 2 * n_rows), included.reshape(-1, 2 * n_rows)
    areas = np.array([Membership(values[mask], values[~mask]).auc for values, mask in zip(*pairs, strict=True)])
    error = float(areas.std(ddof=1)) / math.sqrt(areas.size)
    around = student_interval(figures["membership_auc"].value, error, n=areas.size)
    intervals = {"membership_auc": Interval(max(0.0, around.low), min(1.0, around.high))}
    return {
        name: replace(
            figure, interval=intervals.get(name) or clopper_pearson(round(figure.value * n_rows), n_rows), n=n_rows
        )
        for name, figure in figures.items()
    }
