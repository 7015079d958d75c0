"""Readings: sums over rows that follow from a total, with the covariance of their noise, and intervals of their ratios.

Legend: σ² the variance of the total's noise; (u, v) the two coordinate vectors of a product of two functions of columns,
whose sum over rows is uᵀSv; z the normal quantile of 95 % intervals.

The noise of two such sums, with (u, v) and (u′, v′), has the covariance ½σ² [(u·u′)(v·v′) + (u·v′)(v·u′)]. Intervals of
ratios are those of Fieller; without noise, intervals of shares are those of Wilson. θ belongs to the interval of x/y if

    (x − θy)² ≤ z² [Var noise(x − θy) + sampling variance at θ],

which is quadratic in θ. Such intervals keep their level for small counts and large noise, where x/y ± z · s.e. does not.
They are unbounded where y cannot be distinguished from zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc, ndtri, stdtr

from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Functional
from mooring.metrics.intervals import LEVEL
from mooring.typing import Matrix, Vector

Z = float(ndtri((1 + LEVEL) / 2))
"""The normal quantile of intervals."""
_ROUNDING = 1e-12
HATS_TO_FOURTH = 2.4
"""The factor 2.4: hat functions that add δ to the mean of squares add 6vδ + 2.4δ² to that of fourth powers, where v is the
variance."""
LEAST_SIGNAL = 4.0
"""Minimum of a count in standard errors of its noise, for answers that divide by it."""


@dataclass(frozen=True, eq=False)
class Readings:
    """An array of sums over rows, and the covariance of their noise, in the order of `values.ravel()`."""

    values: Matrix
    noise: Matrix

    @property
    def errors(self) -> Matrix:
        """Standard errors of the sums by noise, in the shape of `values`."""
        return np.asarray(np.sqrt(np.diag(self.noise)).reshape(self.values.shape))

    def combine(self, weights: Matrix) -> Readings:
        """Return linear combinations, one per row of `weights`, which has one column per reading."""
        return Readings(weights @ self.values.ravel(), weights @ self.noise @ weights.T)


def read_products(total: PairwiseTotal, pairs: Sequence[tuple[Functional, Functional]]) -> Readings:
    """Return, for each pair of functions, the sum over rows of their product."""
    factors = [total.workload.factors(*pair) for pair in pairs]
    left, right = (np.array(side) for side in zip(*factors, strict=True))
    values, noise = total.read(left, right)
    return Readings(values, noise)


def read_table(total: PairwiseTotal, rows: Sequence[Functional], columns: Sequence[Functional]) -> Readings:
    """Return a table of sums of products: each function of `rows` is multiplied by each function of `columns`."""
    readings = read_products(total, [(first, second) for first in rows for second in columns])
    return Readings(readings.values.reshape(len(rows), len(columns)), readings.noise)


def list_levels(total: PairwiseTotal, column: str, *, with_missing: bool = False) -> list[Functional]:
    """Return the indicators of a column's levels; the level of missing values is included only `with_missing`."""
    levels = total.workload.column(column)
    names = levels.names if with_missing else levels.names[: levels.n_levels - levels.has_missing]
    return [total.workload.indicator(column, name) for name in names]


def find_ratio_interval(
    ratio: Readings, sampling: tuple[float, float, float], within: tuple[float, float] = (-np.inf, np.inf)
) -> tuple[float, float]:
    """Return the interval of x/y for the readings (x, y); its ends are NaN if y cannot be distinguished from zero.

    The sampling variance of x − θy is a + bθ + cθ² for `sampling` = (a, b, c). The interval is cut to the range `within`. If
    it lies outside of this range, the interval for the nearest x with x/y in the range is returned, if there is one, and
    otherwise the whole range.
    """
    (x, y), ((xx, xy), (_, yy)) = ratio.values, ratio.noise
    a, b, c = sampling
    square = y**2 - Z**2 * (yy + c)
    if not (y > 0 and square > 0):
        return np.nan, np.nan
    for numerator in (x, float(np.clip(x, *sorted(np.multiply(within, y))))):
        half = numerator * y - Z**2 * (xy - b / 2)
        rest = numerator**2 - Z**2 * (xx + a)
        root = half**2 - square * rest
        if root >= -_ROUNDING * half**2:  # without noise it is zero
            length = np.sqrt(max(root, 0.0))
            ends = np.array([half - length, half + length]) / square
            if ends[0] <= within[1] and ends[1] >= within[0]:
                low, high = np.clip(ends, *within)
                return float(low), float(high)
    return float(within[0]), float(within[1])


def find_share_interval(share: Readings) -> tuple[float, float]:
    """Return the interval of a share x/y of rows, over other rows and other noise."""
    y = float(share.values[1])
    return find_ratio_interval(share, (0.0, y, -y), (0.0, 1.0))


def find_p_value(estimate: float, standard_error: float, degrees_of_freedom: float) -> float:
    """Return the two-sided p-value of an estimate by Student's t distribution around 0; NaN if its standard error is 0."""
    return float(2 * stdtr(degrees_of_freedom, -abs(estimate) / standard_error)) if standard_error > 0 else np.nan


def find_chi_square(deviation: Vector, covariance: Matrix) -> tuple[float, int, float]:
    """Return χ², its degrees of freedom and its p-value, for deviations with mean zero and a covariance of full rank."""
    statistic = float(deviation @ np.linalg.solve(covariance, deviation))
    return statistic, len(deviation), float(chdtrc(len(deviation), statistic))
