"""Scores of predictions with intervals, and paired comparisons of two models on the same rows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from mooring.errors import InputError
from mooring.metrics.intervals import LEVEL, Interval, Written, mean_ratio, student_interval
from mooring.randomness import require_generator
from mooring.serialization import FloatOrNaN, Record
from mooring.typing import Labels

METRICS = {"classes": "balanced accuracy", "number": "R²"}
_RESAMPLES = 1000
_POWER = 0.8
_DECIMALS = 3  # of differences: a tenth of a percentage point
Answer = Literal["pays", "does not pay", "cannot tell"]


@dataclass(frozen=True)
class Score(Record):
    """A learner's score on test rows."""

    metric: str
    """Either "balanced accuracy" (the mean over classes of the share recognised) or "R²"."""
    value: FloatOrNaN
    low: FloatOrNaN
    high: FloatOrNaN
    """The score and its 95 % interval over test rows."""
    n: int
    """The number of test rows."""

    def __str__(self) -> str:
        return self.written(self.value)

    def written(self, value: float) -> str:
        """Return a value of this metric as text: a share as a percentage, R² as a number."""
        return "undefined" if math.isnan(value) else f"{value:.2f}" if self.metric == "R²" else f"{value:.1%}"

    def describe(self) -> Written:
        """Return the score and its interval as text; the interval is None if it is not known."""
        interval = None if math.isnan(self.low) else (self.written(self.low), self.written(self.high))
        return Written(self.written(self.value), interval)

    def with_interval(self) -> str:
        """Return the score as text, with its interval if it is known."""
        known = f"[{self.written(self.low)}, {self.written(self.high)}]"
        return f"{self} {'(no interval)' if math.isnan(self.low) else known}"


@dataclass(frozen=True)
class Gain(Score):
    """The difference in score between the joint model and training alone, from paired differences on the same rows.

    The value is the joint model's score minus the mean score of the models trained alone; `n` is the number of rows that all
    of them predicted.
    """

    n_needed: int | None = None
    """Approximate number of such rows with which a difference of this size would be shown with a probability of 80 %. None
    if there is no difference, or if its variance is not known."""

    @property
    def answer(self) -> Answer:
        """Whether joining pays, which is known if the interval, as it is shown, lies on one side of zero."""
        ends = self._shown
        return "pays" if ends.low > 0 else "does not pay" if ends.high <= 0 else "cannot tell"

    @property
    def _shown(self) -> Interval:
        return Interval(self.low, self.high).round_outwards(_DECIMALS)

    def __str__(self) -> str:
        value, low, high = (self.written(number) for number in (self.value, self._shown.low, self._shown.high))
        return f"{value}{'' if self.metric == 'R²' else ' points'} [{low}, {high}]"

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
        """Return a difference of this metric as text: percentage points, or a difference of R²."""
        if math.isnan(value):
            return "unknown"
        return (f"{value:+z.3f}" if self.metric == "R²" else f"{100 * value:+z.1f}").replace("-", "−")


def compare(
    truth: Labels, joint: Labels, alone: Labels, *, kind: Literal["classes", "number"], groups: Labels | None = None
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
    interval = student_interval(value, error, n=n)
    quantiles = float(ndtri((1 + LEVEL) / 2) + ndtri(_POWER))
    needed = None if value == 0 or math.isnan(error) else math.ceil(truth.size * (quantiles * error / value) ** 2)
    return Gain(METRICS[kind], value, interval.low, interval.high, int(truth.size), needed)


def score(truth: Labels, predicted: Labels, *, kind: Literal["classes", "number"], rng: np.random.Generator) -> Score:
    """Return the score of predictions with an interval over rows: balanced accuracy for classes, R² for numbers.

    Parameters
    ----------
    truth, predicted : arrays of shape (n,)

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 1])
    >>> score(truth, np.array([0, 0, 0, 0]), kind="classes", rng=np.random.default_rng(0)).value
    0.5
    """
    require_generator(rng)
    value = score_value(truth, predicted, kind=kind)
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


def score_value(truth: Labels, predicted: Labels, *, kind: Literal["classes", "number"]) -> float:
    """Return the score without an interval; R² is undefined (NaN) if all numbers are equal.

    Parameters
    ----------
    truth, predicted : arrays of shape (n,)
    kind : {"classes", "number"}
        Balanced accuracy for "classes", R² for "number".
    """
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
