"""How good predictions are, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.serialization import Serializable

Labels = npt.NDArray[Any]
_RESAMPLES = 1000
_LEVEL = 0.95


@dataclass(frozen=True)
class Score(Serializable):
    """A learner's score on test rows.

    Attributes
    ----------
    metric : str
        "balanced accuracy" (the mean over classes of the share recognised) or "R²".
    value, low, high : float
        The score and its 95 % interval over test rows.
    n : int
        Test rows.
    """

    metric: str
    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return self.written(self.value)

    def written(self, value: float) -> str:
        """A value of this metric as people write it: a share as a percentage, R² as a number."""
        return "undefined" if math.isnan(value) else f"{value:.2f}" if self.metric == "R²" else f"{value:.1%}"

    def with_interval(self) -> str:
        """The score and its interval."""
        return f"{self} [{self.written(self.low)}, {self.written(self.high)}]"


def score(truth: Labels, predicted: Labels, *, kind: Literal["classes", "number"], rng: np.random.Generator) -> Score:
    """Score predictions, with an interval over the rows: balanced accuracy for classes, R² for numbers.

    Parameters
    ----------
    truth, predicted : arrays of shape (n,)
    kind : {"classes", "number"}
    rng : Generator
        Resamples the rows.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 1])
    >>> score(truth, np.array([0, 0, 0, 0]), kind="classes", rng=np.random.default_rng(0)).value
    0.5
    """
    value = score_value(truth, predicted, kind=kind)
    if kind == "classes":
        (recalls,), counts = _recalls(predicted[None], truth)
        smoothed = (recalls * counts + 0.5) / (counts + 1)  # so that a perfect score does not get a width of zero
        resampled = (rng.binomial(counts, smoothed, size=(_RESAMPLES, counts.size)) / counts).mean(axis=1)
    else:
        squares, around = (truth - predicted) ** 2, (truth - truth.mean()) ** 2
        weights = rng.multinomial(truth.size, np.full(truth.size, 1 / truth.size), size=_RESAMPLES).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            resampled = 1 - (weights @ squares) / (weights @ around)
        resampled = resampled[np.isfinite(resampled)]
    name = "balanced accuracy" if kind == "classes" else "R²"
    if resampled.size == 0:
        return Score(name, value, math.nan, math.nan, int(truth.size))
    low, high = np.quantile(resampled, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Score(name, value, float(min(low, value)), float(max(high, value)), int(truth.size))


def score_value(truth: Labels, predicted: Labels, *, kind: Literal["classes", "number"]) -> float:
    """The score alone; R² is undefined (nan) where all numbers are the same."""
    if kind == "classes":
        return float(balanced_accuracy(predicted[None], truth)[0])
    total = ((truth - truth.mean()) ** 2).sum()
    return float(1 - ((truth - predicted) ** 2).sum() / total) if total > 0 else math.nan


def balanced_accuracy(predictions: Labels, labels: Labels) -> npt.NDArray[np.float64]:
    """The mean over the classes in `labels` of the share recognised: predictions (E, m) and labels (m,) give (E,).

    Labels of shape (E, m) are each member's own.

    Examples
    --------
    >>> balanced_accuracy(np.array([[0, 0, 0, 0], [0, 0, 1, 1]]), np.array([0, 0, 0, 1])).tolist()
    [0.5, 0.8333333333333333]
    """
    predictions, labels = np.asarray(predictions), np.asarray(labels)
    if predictions.ndim != 2 or labels.shape not in (predictions.shape, predictions.shape[1:]) or labels.size == 0:
        raise InputError(
            "predictions",
            expected="of shape (members, rows), with one label a row and at least one row",
            got=f"shape {predictions.shape} with labels of shape {labels.shape}",
            cure="For one member, pass predictions[None].",
        )
    if labels.ndim == 2:
        return np.array([balanced_accuracy(one[None], own)[0] for one, own in zip(predictions, labels, strict=True)])
    return np.asarray(_recalls(predictions, labels)[0].mean(axis=1))


def _recalls(predictions: Labels, labels: Labels) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """The share of each class that each member recognises, of shape (E, classes), and the rows of each class."""
    classes, codes = np.unique(labels, return_inverse=True)
    members = np.eye(classes.size)[codes]
    counts = np.bincount(codes)
    return ((predictions == labels).astype(np.float64) @ members) / counts, counts
