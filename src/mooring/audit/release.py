"""Membership risk of the delivered model, which every participant gets.

Models are trained like the delivered one, each on half of the uploaded rows, and the attacker has candidates without noise.
The attacker compares a model's predictions with the predictions of other models, or finds the members among all candidates
by solving the equations that training has solved. A colluding participant, who has the model and its own map, inverts the
model. The figures describe models of half the rows, and are lower bounds. A model of secure sums is a function of the total,
so that it discloses no more than the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np

from mooring.attacks.model_register import ModelRegister
from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.shadow_models import Mask, draw_halves, find_confidence, follow_gradients, score_members
from mooring.learners import Fitted, Kind, LearnerLike, train_learner
from mooring.metrics import Figure, Interval, Membership, clopper_pearson
from mooring.metrics.intervals import student_interval
from mooring.serialization import Record
from mooring.typing import Indices, Labels, Matrix

N_MODELS, MOST_ROWS = 16, 2000
RATE = "membership_at_1_percent"
REGISTER = "register"
_OUTLYING = 0.1
_LEAST_PROBABILITY = 1e-12
_FEWEST_ROWS, _FEWEST_OF_A_CLASS, _SOME_OF_A_CLASS = 20, 4, 8


@dataclass(frozen=True)
class ReleaseRisk(Record):
    """What models like the delivered one disclose."""

    figures: dict[str, Figure]
    """Membership over all rows; the control applies the same scores to the rows of other models."""
    outlying: dict[str, Figure]
    """Membership over the tenth of the rows that lies farthest from the mean of its class."""
    n_models: int
    n_rows: int
    attack: str = "predictions"
    """The attack behind `figures`: 'predictions', 'gradients' or 'register', whichever recognises the most rows at 1 % false
    positives on one half of the models. The figures come from the other half."""
    outlying_attack: str = "predictions"
    """The attack behind `outlying`, chosen in the same way."""
    area_attack: str = field(default="predictions", kw_only=True)
    """The attack with the largest area under the ROC curve, chosen in the same way. Its area is in `figures`."""
    inversion: Figure | None = None
    """Share of the cells of training rows that are inferred from the other columns, the label and the model. The control is
    the share for other rows; chance is that of guessing the most frequent value among rows with this label. None if
    no columns were inverted."""
    n_columns: int = 0
    """Number of columns that were inverted."""

    def __str__(self) -> str:
        rate, outlying = self.figures[RATE], self.outlying[RATE]
        words = (
            f"An attacker who has the model and accepts 1 false alarm in 100 recognises {rate.with_interval()} of its "
            f"training rows (by {_describe(self.attack)}; {rate.describe().chance} by chance), and "
            f"{outlying.with_interval()} of the most outlying tenth (by {_describe(self.outlying_attack)}; "
            f"{outlying.describe().chance} by chance; {self.n_models} models, each of half of {self.n_rows} rows)."
        )
        if self.inversion is not None:
            text = self.inversion.describe()
            words += (
                f" From the model, the label and a record's other columns, an attacker infers "
                f"{self.inversion.with_interval()} of the cells of training rows ({self.n_columns} columns were tried), "
                f"and {text.control} of the cells of other rows ({text.chance} by guessing from the label)."
            )
        return f"{words} These figures are lower bounds."


def _describe(attack: str) -> str:
    return "register, from a list of all candidates" if attack == REGISTER else attack


def measure_release(scores: dict[str, Matrix], included: Mask, distances: Matrix) -> ReleaseRisk:
    """Return how well the strongest attack recognises the rows of a model.

    `scores` holds the scores of each attack and `included` the rows of each model, both of shape (n_models, n_rows).
    `distances` says how far each row lies from its class. The strongest attack is chosen on half of the pairs of models,
    and measured on the other half.
    """
    outlying = distances >= np.quantile(distances, 1 - _OUTLYING)
    attack, area_attack, figures = _strongest(scores, included)
    rare = {name: values[:, outlying] for name, values in scores.items()}
    outlying_attack, _, outlying_figures = _strongest(rare, included[:, outlying])
    n_models, n_rows = included.shape
    return ReleaseRisk(figures, outlying_figures, n_models, n_rows, attack, outlying_attack, area_attack=area_attack)


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
    """Return the risk of models that a learner trains on up to 2,000 uploaded and aligned rows.

    `queries` are the same rows without noise, as their owners would map them for a prediction. `on_model` is called after
    each model. Rows of classes with fewer than four rows are left out. The result is None if fewer than 20 rows remain or,
    for labels that are classes, fewer than two classes.
    """
    rng = np.random.default_rng([seed, 16])
    chosen = _draw_rows(labels if kind == "classes" else np.zeros(len(labels), dtype=np.intp), rng)
    queries = (rows if queries is None else queries)[chosen]
    rows, labels = rows[chosen], labels[chosen]
    classes, codes = np.unique(labels, return_inverse=True)
    if len(rows) < _FEWEST_ROWS or (kind == "classes" and classes.size < 2):
        return None
    outcomes = codes if kind == "classes" else labels
    included, answers, estimates = draw_halves(N_MODELS, len(rows), rng=rng), [], []
    register = _start_register(learner, queries, outcomes)
    for half in included:
        fitted = train_learner(learner, rows[half], outcomes[half], kind=kind, seed=seed)
        answers.append(answer_queries(fitted, queries, classes.size))
        if register is not None:
            try:
                estimates.append(register.score(fitted, int(half.sum())))
            except DoesNotApply:
                register = None
        if on_model is not None:
            on_model()
    groups = codes if kind == "classes" else np.zeros_like(codes)
    means = np.stack([rows[groups == k].mean(axis=0) for k in range(int(groups.max()) + 1)])
    distances = np.linalg.norm(rows - means[groups], axis=1)
    scores = _score(np.stack(answers), outcomes, included)
    if register is not None:
        scores[REGISTER] = np.stack(estimates)
    return measure_release(scores, included, distances)


def _start_register(learner: LearnerLike, candidates: Matrix, outcomes: Labels) -> ModelRegister | None:
    """Return the attack that solves for all candidates, or None if it does not apply to the learner."""
    try:
        return ModelRegister(learner, candidates, outcomes)
    except DoesNotApply:
        return None


def _draw_rows(classes: Labels, rng: np.random.Generator) -> Indices:
    """Return indices of the rows to attack: some of every class first, and none of a class with very few rows."""
    order = rng.permutation(classes.size)
    _, codes, counts = np.unique(classes[order], return_inverse=True, return_counts=True)
    by_class = np.argsort(codes, kind="stable")
    rank = np.empty(codes.size, dtype=np.intp)
    rank[by_class] = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)
    first = np.argsort(rank >= _SOME_OF_A_CLASS, kind="stable")
    kept = first[counts[codes[first]] >= _FEWEST_OF_A_CLASS]
    return np.sort(order[kept[:MOST_ROWS]])


def answer_queries(fitted: Fitted, queries: Matrix, n_classes: int) -> Matrix:
    """Return predicted numbers, or the logarithms of class probabilities; probabilities below 1e-12 count as 1e-12.

    If a learner has no probabilities, the predicted class counts as having probability 1.
    """
    predicted = fitted.predict(queries)
    if fitted.kind == "number":
        return np.asarray(predicted, dtype=np.float64)
    probabilities = fitted.probabilities(queries, n_classes)
    probabilities = predicted[:, None] == np.arange(n_classes) if probabilities is None else probabilities
    return np.log(np.maximum(probabilities, _LEAST_PROBABILITY))


def _score(answers: Matrix, labels: Labels, included: Mask) -> dict[str, Matrix]:
    """Return scores by predictions and by gradients, from the answers to every row."""
    confidences = (
        labels - answers if answers.ndim == 2 else np.stack([find_confidence(answer, labels) for answer in answers])
    )
    statistics = {"predictions": confidences, "gradients": follow_gradients(answers, labels)}
    return {name: score_members(statistic, included) for name, statistic in statistics.items()}


def _strongest(scores: dict[str, Matrix], included: Mask) -> tuple[str, str, dict[str, Figure]]:
    """Return the attack with the highest true positive rate, the attack with the largest area, and their figures.

    Both attacks are chosen on the first half of the pairs of models, and the figures come from the other half.
    """
    if len(scores) == 1:
        return next((name, name, _figures(values, included)) for name, values in scores.items())
    half = len(included) // 4 * 2
    memberships = {
        name: Membership(values[:half][included[:half]], values[:half][~included[:half]])
        for name, values in scores.items()
    }
    areas = {name: membership.auc for name, membership in memberships.items()}
    rates = {name: (membership.true_positive_rate(0.01)[0], areas[name]) for name, membership in memberships.items()}
    attack, area_attack = max(rates, key=rates.__getitem__), max(areas, key=areas.__getitem__)
    figures, others = (_figures(scores[name][half:], included[half:]) for name in (attack, area_attack))
    return attack, area_attack, {**figures, "membership_auc": others["membership_auc"]}


def _figures(scores: Matrix, included: Mask) -> dict[str, Figure]:
    """Return rates over all models, with intervals over rows; the interval of the area is over pairs of models."""
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
