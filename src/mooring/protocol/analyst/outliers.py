"""Who does not fit the others: uploads whose anchor representation is no better than garbage (threat 11).

Legend: C_i the aligned, centred anchor representation of participant i; T_i the mean of all the others'. The fit of i is
‖C_iᵀ T_i‖_* / (‖C_i‖ ‖T_i‖), the correlation with T_i after the best turn: 1 for the same anchor without noise.

Garbage fits too, a little: the best turn finds something. How much is measured, by a few draws of garbage pushed through the
same fit. A participant is flagged if it lies near garbage where most others do not; where most lie near garbage themselves
(noise near the transition, or few components), nobody can be told from garbage, and nobody is flagged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.typing import Matrix

_DRAWS = 32
_NEAR_GARBAGE = 0.4  # of the way from garbage to the median participant
_STREAM = 0x6D697366
_CLEAR = 4.0  # spreads of garbage that the median participant must be above it


@dataclass(frozen=True, eq=False)
class Fits:
    """How well each participant fits the others, and what garbage would reach.

    Attributes
    ----------
    values : array of shape (p,)
        One fit a participant, 0 to 1.
    garbage, spread : float
        Mean and standard deviation of garbage's fit.
    """

    values: npt.NDArray[np.float64]
    garbage: float
    spread: float

    @property
    def can_tell(self) -> bool:
        """Whether most participants fit clearly better than garbage would."""
        return bool(np.median(self.values) - self.garbage > _CLEAR * self.spread)

    @property
    def near_random(self) -> npt.NDArray[np.bool_]:
        """Who fits no better than garbage, where that can be told."""
        return np.array([self.is_near_garbage(float(value)) for value in self.values])

    def is_near_garbage(self, value: float) -> bool:
        """Whether a fit, among these or not, is near garbage."""
        cut = self.garbage + _NEAR_GARBAGE * (float(np.median(self.values)) - self.garbage)
        return bool(value < cut and self.can_tell)


def measure_fit(template: Matrix, centred: Matrix) -> float:
    """The correlation of a centred anchor representation with a template, after the best turn."""
    size = float(np.linalg.norm(centred) * np.linalg.norm(template))
    if size == 0:
        return 0.0
    return min(1.0, float(np.linalg.svd(centred.T @ template, compute_uv=False).sum()) / size)


def measure_fits(aligned: Sequence[Matrix], *, seed: int = 0) -> Fits:
    """Fit each of two or more aligned, centred anchor representations to the mean of the others."""
    total = np.sum(aligned, axis=0)
    values = np.array([measure_fit(total - own, own) for own in aligned])
    return Fits(values, *measure_random_fit(total, seed=seed))


def measure_random_fit(total: Matrix, *, seed: int = 0) -> tuple[float, float]:
    """How well garbage fits a sum of aligned anchor representations: mean and standard deviation of a few draws."""
    rng = np.random.default_rng([_STREAM, seed])  # no stream that made an anchor in an experiment
    drawn = [measure_fit(total, _draw_garbage(total.shape, rng)) for _ in range(_DRAWS)]
    return float(np.mean(drawn)), float(np.std(drawn))


def _draw_garbage(shape: tuple[int, ...], rng: np.random.Generator) -> Matrix:
    drawn = rng.standard_normal(shape)
    return np.asarray(drawn - drawn.mean(axis=0))
