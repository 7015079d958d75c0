"""How good predictions are, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

_RESAMPLES = 1000
_LEVEL = 0.95


@dataclass(frozen=True)
class Score:
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

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        numbers = {name: getattr(self, name) for name in ("value", "low", "high")}
        return {"metric": self.metric, **{k: None if math.isnan(v) else v for k, v in numbers.items()}, "n": self.n}

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> Score:
        """Read back what `as_dict` gave."""
        numbers = {k: math.nan if plain[k] is None else float(plain[k]) for k in ("value", "low", "high")}
        return cls(plain["metric"], **numbers, n=int(plain["n"]))


def score(
    truth: npt.NDArray[Any],
    predicted: npt.NDArray[Any],
    *,
    kind: Literal["classes", "number"],
    rng: np.random.Generator,
) -> Score:
    """Score predictions: balanced accuracy for classes, R² for numbers.

    Examples
    --------
    >>> truth = np.array([0, 0, 0, 1])
    >>> score(truth, np.array([0, 0, 0, 0]), kind="classes", rng=np.random.default_rng(0)).value
    0.5
    """
    if kind == "classes":
        classes, codes = np.unique(truth, return_inverse=True)
        counts = np.bincount(codes)
        recalls = np.bincount(codes, weights=predicted == truth) / counts
        smoothed = (recalls * counts + 0.5) / (counts + 1)  # so that a perfect score does not get a width of zero
        draws = rng.binomial(counts, smoothed, size=(_RESAMPLES, classes.size)) / counts
        value, resampled = float(recalls.mean()), draws.mean(axis=1)
        name = "balanced accuracy"
    else:
        squares, around = (truth - predicted) ** 2, (truth - truth.mean()) ** 2
        weights = rng.multinomial(truth.size, np.full(truth.size, 1 / truth.size), size=_RESAMPLES).astype(np.float64)
        total = around.sum()
        value = float(1 - squares.sum() / total) if total > 0 else math.nan
        spread = weights @ around
        with np.errstate(divide="ignore", invalid="ignore"):
            resampled = 1 - (weights @ squares) / spread
        resampled = resampled[np.isfinite(resampled)]
        name = "R²"
    if resampled.size == 0:
        return Score(name, value, math.nan, math.nan, int(truth.size))
    low, high = np.quantile(resampled, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Score(name, value, float(min(low, value)), float(max(high, value)), int(truth.size))
