"""Scores of predictions with intervals, and paired comparisons of two models on the same rows.

Models that give a score to each class are compared by the area under the ROC curve, which does not depend on a threshold and
so is fair to rare classes. Its interval is DeLong's, computed from the influence of each row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from mooring.errors import InputError
from mooring.metrics.intervals import LEVEL, Interval, Written, mean_ratio, student_interval
from mooring.metrics.membership import Membership
from mooring.randomness import require_generator
from mooring.serialization import FloatOrNaN, Record
from mooring.typing import Labels, Matrix

METRICS = {"classes": "balanced accuracy", "number": "R²"}
AUC = "AUC"
_RESAMPLES = 1000
_POWER = 0.8
_DECIMALS = 3  # of differences: a tenth of a percentage point
Answer = Literal["pays", "does not pay", "cannot tell"]


@dataclass(frozen=True)
class Score(Record):
    """A learner's score on test rows."""

    metric: str
    """"AUC" (the area under the ROC curve; for more than two classes, the mean of each class against the others), "balanced
    accuracy" (the mean over classes of the share recognised) or "R²"."""
    value: FloatOrNaN
    low: FloatOrNaN
    high: FloatOrNaN
    """The score and its 95 % interval over test rows."""
    n: int
    """The number of test rows."""
    balanced_accuracy: float | None = field(default=None, kw_only=True)
    """Balanced accuracy of the predicted classes, which is shown beside the AUC; None for other metrics."""

    def __str__(self) -> str:
        return self.written(self.value)

    def written(self, value: float) -> str:
        """Return a value of this metric as text: balanced accuracy as a percentage, any other metric as a number."""
        if math.isnan(value):
            return "undefined"
        return f"{value:.1%}" if self.is_percent else f"{value:.{2 if self.metric == 'R²' else 3}f}"

    @property
    def article(self) -> str:
        """The indefinite article of the metric."""
        return "a" if self.is_percent else "an"

    @property
    def is_percent(self) -> bool:
        """Whether values are written as percentages."""
        return self.metric == METRICS["classes"]

    def describe(self) -> Written:
        """Return the score and its interval as text; the interval is None if it is not known."""
        interval = None if math.isnan(self.low) else (self.written(self.low), self.written(self.high))
        return Written(self.written(self.value), interval)

    def with_interval(self) -> str:
        """Return the score as text, with its interval if it is known."""
        known = f"[{self.written(self.low)}, {self.written(self.high)}]"
        beside = "" if self.balanced_accuracy is None else f" (balanced accuracy {self.balanced_accuracy:.1%})"
        return f"{self} {'(no interval)' if math.isnan(self.low) else known}{beside}"


@dataclass(frozen=True)
class Gain(Score):
    """The difference in score between the joint model and training alone, from paired differences on the same rows.

    The value is the joint model's score minus the mean score of the models trained alone; `n` is the number of rows that all
    models predicted.
    """

    n_needed: int | None = None
    """Approximate number of such rows with which a difference of this size would be shown with a probability of 80 %. None
    if there is no difference, or if its variance is not known."""

    @property
    def answer(self) -> Answer:
        """Whether joining pays. The answer is known if the interval, rounded as it is shown, lies on one side of zero."""
        ends = self._shown
        return "pays" if ends.low > 0 else "does not pay" if ends.high <= 0 else "cannot tell"

    @property
    def _shown(self) -> Interval:
        return Interval(self.low, self.high).round_outwards(_DECIMALS)

    def __str__(self) -> str:
        value, low, high = (self.written(number) for number in (self.value, self._shown.low, self._shown.high))
        return f"{value}{' points' if self.is_percent else f' {self.metric}'} [{low}, {high}]"

    def sentence(self) -> str:
        """Return a sentence with the answer and the figures behind it."""
        if self.answer != "cannot tell":
            return f"Joining {self.answer}: {self} on the same {self.n:,} rows."
        words = f"Cannot tell with these {self.n:,} rows whether joining pays: {self} on the same rows"
        if (
            self.n_needed is None or self.n_needed <= self.n
        ):  # possible with very few rows, for which Student's interval is wider
            return f"{words}."
        about = round(self.n_needed, 2 - len(str(self.n_needed)))
        return f"{words}; about {about:,} would be needed to show such a difference ({_POWER:.0%} power)."

    def written(self, value: float) -> str:
        """Return a difference of this metric as text: in percentage points for balanced accuracy, else as a number."""
        if math.isnan(value):
            return "unknown"
        return (f"{100 * value:+z.1f}" if self.is_percent else f"{value:+z.3f}").replace("-", "−")


def compare(
    truth: Labels,
    joint: Labels,
    alone: Labels,
    *,
    kind: Literal["classes", "number"],
    groups: Labels | None = None,
    shares: tuple[Matrix, Matrix] | None = None,
) -> Gain | None:
    """Return how much better the joint model is than models trained alone, or None if the score is undefined.

    Parameters
    ----------
    truth, joint : arrays of shape (n,)
        The labels, and the predictions of the joint model.
    alone : array of shape (n_models, n)
        The predictions of each model trained alone; the result of a row is the mean over models.
    groups : array of shape (n,), optional
        The person of each row, if persons have several rows. The interval is then over persons.
    shares : tuple of arrays of shape (n, n_classes) and (n_models, n, n_classes), optional
        Scores of each class by the joint model and by each model trained alone. With them, and with class codes from 0 as
        labels, models are compared by their AUC.

    Notes
    -----
    The interval is over rows, for these models and participants. It does not cover what other participants would gain.

    Examples
    --------
    >>> truth = np.arange(40) % 2
    >>> gain = compare(truth, truth, np.zeros((1, 40)), kind="classes")
    >>> gain.answer, str(gain)
    ('pays', '+50.0 points [+44.9, +55.1]')
    """
    if kind == "classes" and shares is not None:
        return _compare_areas(truth, *shares, groups)
    if kind == "classes":
        members = np.eye(np.unique(truth).size)[np.unique(truth, return_inverse=True)[1]]
        gained = (joint == truth).astype(np.float64) - (alone == truth).mean(axis=0)
        columns = gained[:, None] * members, members
    else:
        gained = ((alone - truth) ** 2).mean(axis=0) - (joint - truth) ** 2
        columns = gained[:, None], ((truth - truth.mean()) ** 2)[:, None]
    value, error, n = mean_ratio(*columns, clusters=groups, pseudo_rows=float(kind == "classes"))
    if math.isnan(value):
        return None
    return _make_gain(METRICS[kind], value, error, n=n, n_rows=truth.size)


def _make_gain(metric: str, value: float, error: float, *, n: int, n_rows: int) -> Gain:
    interval = student_interval(value, error, n=n)
    quantiles = float(ndtri((1 + LEVEL) / 2) + ndtri(_POWER))
    needed = None if value == 0 or math.isnan(error) else math.ceil(n_rows * (quantiles * error / value) ** 2)
    return Gain(metric, value, interval.low, interval.high, int(n_rows), n_needed=needed)


def _compare_areas(truth: Labels, joint: Matrix, alone: Matrix, groups: Labels | None) -> Gain | None:
    """Return the difference of areas with DeLong's paired interval, or None if an area is undefined.

    With `groups`, the interval is over persons. As for balanced accuracy, one discordant row is added to the variance, so
    that models which rank all rows alike have a positive error.
    """
    first, others = measure_area(truth, joint), [measure_area(truth, part) for part in alone]
    known = [area for area in others if area is not None]
    if first is None or len(known) < len(others) or not known:
        return None
    value = first[0] - float(np.mean([area for area, _ in known]))
    influence = first[1] - np.mean([part for _, part in known], axis=0)
    codes = np.arange(truth.size) if groups is None else np.unique(groups, return_inverse=True)[1]
    totals = np.bincount(codes, weights=influence / truth.size)
    n = totals.size
    error = math.sqrt(float(totals @ totals) * n / (n - 1) + _discordant_row(truth)) if n > 1 else math.nan
    return _make_gain(AUC, value, error, n=n, n_rows=truth.size)


def _discordant_row(truth: Labels) -> float:
    """Return the variance of a mean over classes that one wrongly ranked row causes."""
    counts = np.unique(truth, return_counts=True)[1]
    return float((1 / counts**2).mean()) / counts.size**2


def measure_area(truth: Labels, shares: Matrix) -> tuple[float, Matrix] | None:
    """Return the area under the ROC curve and the influence of every row on it, or None if all rows have the same class.

    `truth` holds class codes from 0, and `shares` a score for each class, of shape (n, n_classes). With more than two
    classes, it is the mean over the areas of each class against the others (DeLong et al. 1988).
    """
    n, K = shares.shape
    values, influences = [], []
    for k in (1,) if K == 2 else range(K):
        inside, scores = truth == k, shares[:, k]
        m = int(inside.sum())
        if m in (0, n):
            continue
        above = np.empty(n)
        above[inside], above[~inside] = Membership(scores[inside], scores[~inside]).wins()
        value = float(above[inside].mean())
        values.append(value)
        influences.append((above - value) * n / np.where(inside, m, n - m))
    return (float(np.mean(values)), np.mean(influences, axis=0)) if values else None


def score(
    truth: Labels,
    predicted: Labels,
    *,
    kind: Literal["classes", "number"],
    rng: np.random.Generator,
    shares: Matrix | None = None,
) -> Score:
    """Return the score of predictions with an interval over rows: AUC or balanced accuracy for classes, R² for numbers.

    Parameters
    ----------
    truth, predicted : arrays of shape (n,)
    shares : array of shape (n, n_classes), optional
        Scores of each class. With them, and with class codes from 0 as labels, the score is the AUC if it is defined.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 1])
    >>> score(truth, np.array([0, 0, 0, 0]), kind="classes", rng=np.random.default_rng(0)).value
    0.5
    """
    require_generator(rng)
    value = score_value(truth, predicted, kind=kind)
    area = measure_area(truth, shares) if kind == "classes" and shares is not None else None
    if area is not None:
        n, (auc, influence) = truth.size, area
        error = math.sqrt(float(influence @ influence) / (n * (n - 1)) + _discordant_row(truth)) if n > 1 else math.nan
        ends = student_interval(auc, error, n=n)
        low, high = np.clip([ends.low, ends.high], 0.0, 1.0).tolist()  # NaN stays NaN
        return Score(AUC, auc, low, high, int(n), balanced_accuracy=value)
    if kind == "classes":
        (recalls,), counts = _recalls(predicted[None], truth)
        smoothed = (recalls * counts + 0.5) / (
            counts + 1
        )  # so that the interval of a perfect score does not have a width of zero
        resampled = (rng.binomial(counts, smoothed, size=(_RESAMPLES, counts.size)) / counts).mean(axis=1)
    else:
        squares, around = (truth - predicted) ** 2, (truth - truth.mean()) ** 2
        weights = rng.multinomial(truth.size, np.full(truth.size, 1 / truth.size), size=_RESAMPLES).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            resampled = 1 - (weights @ squares) / (weights @ around)
        resampled = resampled[np.isfinite(resampled)]
    name = METRICS[kind]
    if resampled.size == 0:
        return Score(name, value, math.nan, math.nan, int(truth.size))
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Score(name, value, float(min(low, value)), float(max(high, value)), int(truth.size))


def score_value(
    truth: Labels, predicted: Labels, *, kind: Literal["classes", "number"], shares: Matrix | None = None
) -> float:
    """Return balanced accuracy of classes or R² of numbers, without an interval; R² is NaN if all numbers are equal.

    With `shares`, scores of each class, of shape (n, n_classes), it returns the AUC of classes if it is defined.
    """
    area = measure_area(truth, shares) if kind == "classes" and shares is not None else None
    if area is not None:
        return area[0]
    if kind == "classes":
        return float(balanced_accuracy(predicted[None], truth)[0])
    total = ((truth - truth.mean()) ** 2).sum()
    return float(1 - ((truth - predicted) ** 2).sum() / total) if total > 0 else math.nan


def balanced_accuracy(predictions: Labels, labels: Labels) -> npt.NDArray[np.float64]:
    """Return the mean over classes of the share recognised, of shape (E,), for predictions of shape (E, m).

    Labels have the shape (m,), or (E, m) if each of the E members of an ensemble has its own.

    Examples
    --------
    >>> balanced_accuracy(np.array([[0, 0, 0, 0], [0, 0, 1, 1]]), np.array([0, 0, 0, 1])).tolist()
    [0.5, 0.8333333333333333]
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 2 or labels.shape not in (predictions.shape, predictions.shape[1:]) or labels.size == 0:
        raise InputError(
            "predictions",
            expected="an array of shape (members, rows), with one label per row and at least one row",
            got=f"shape {predictions.shape} with labels of shape {labels.shape}",
            cure="For one member, pass predictions[None].",
        )
    if labels.ndim == 2:
        return np.array(
            [balanced_accuracy(predicted[None], truth)[0] for predicted, truth in zip(predictions, labels, strict=True)]
        )
    return np.asarray(_recalls(predictions, labels)[0].mean(axis=1))


def _recalls(predictions: Labels, labels: Labels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return the share of each class that each member recognises, of shape (E, classes), and the class sizes."""
    classes, codes = np.unique(labels, return_inverse=True)
    members = np.eye(classes.size)[codes]
    counts = np.bincount(codes)
    return ((predictions == labels).astype(np.float64) @ members) / counts, counts
