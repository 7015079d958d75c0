"""The correlation of two columns whose sums carry noise, and the interval of the correlation.

Legend: u = (c, v, w) the covariance and the variances of two columns, û = (ĉ, v̂, ŵ) their estimates from the total, Σ the
covariance of the noise of û; r = c/√(vw); n the number of rows; a, b the columns, scaled to mean zero and variance one; z
the normal quantile of 95 % intervals.

Over samples of rows, r has the variance κ(1 − r²)²/n with κ(1 − r²)² = E[ab − r(a² + b²)/2]²; κ is 1 for a normal pair, and
for columns that are independent. κ is estimated from the total, too. The interval consists of every r that is compatible
with û for some variances v and w. The misfit is therefore minimised over v and w:

    min over v, w > 0 of  (û − u)ᵀ [Σ + diag(s, 0, 0)]⁻¹ (û − u) ≤ z²  with  u = (r√(vw), v, w),  s = κ(1 − r²)² v̂ŵ/(n − 3).

Where noise is small, this is the delta method. If a column hardly varies on its declared range, its variance may be only a
few standard errors of the noise. The root of this variance is then not linear in the noise, and the interval widens to the
side of ±1.

A correlation is shown only if the estimate of each variance is above three standard errors of its noise. Below two standard
errors, variances near zero are compatible with û, and the interval ends at ±1. If only narrow intervals were shown there,
they would belong to covariances that the noise has made large.

The limit of three standard errors also selects variances that the noise has made large. If the estimate of a variance is
below six standard errors, its error is therefore multiplied by 4/3. For example, the estimate of a true variance of two
standard errors passes the limit in Φ(−1) = 16 % of draws. In Φ(−4/3 · 1.96)/Φ(−1) = 3 % of these draws, the true variance
lies below its interval. Without the factor, this would be so in Φ(−1.96)/Φ(−1) = 16 % of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mooring.mechanisms.sums.answers.readings import HATS_TO_FOURTH, Readings, Z, read_products
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Functional
from mooring.typing import Matrix, Vector

_LEAST_KURTOSIS, _MOST_KURTOSIS = 1 / 3, 10.0  # bounds of κ, which noise makes uncertain
_MOST_HATS = 1.0  # κ is estimated unless hat functions add more than this to a variance, in units of the variance
_MOST_UNCERTAINTY = 0.25  # largest uncertainty of κ
_LEAST_VARIANCE = 1e-12  # least variance without noise, in units in which half the declared range is 1
_LEAST_SIGNAL = 3.0  # least estimate of a variance, in standard errors of its noise
_CLEAR_SIGNAL = 6.0  # estimate of a variance, in standard errors, above which the limit hardly selects
_SELECTED_ERROR = 4 / 3  # factor on the error of a variance whose estimate is below _CLEAR_SIGNAL
_EDGE = 0.999999
_STEPS = np.array([0.0, 0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 10, 30])  # in half widths of the delta method
_SIDES = np.array([-1.0, 1.0])
_N_BETWEEN, _N_REFINEMENTS = 17, 2
_ITERATIONS = 8
_LONGEST_STEP = 1.5


@dataclass(frozen=True, eq=False)
class Moments:
    """The estimated covariance and variances of two columns."""

    readings: Readings
    """(c, v, w) and the covariance of their noise."""
    n_rows: float
    """Number of rows in which both values are known."""
    kurtosis: float
    """κ."""

    @property
    def correlation(self) -> float:
        """The estimated correlation; noise can take it beyond ±1."""
        c, v, w = self.readings.values
        return float(c / math.sqrt(v * w))


def read_moments(total: PairwiseTotal, first: Levels, second: Levels) -> Moments | str:
    """Return the moments of two columns, or a clause that says why their correlation is not known."""
    x, y = _as_number(total, first), _as_number(total, second)
    known_x, known_y, constant = (
        total.workload.present(first.name),
        total.workload.present(second.name),
        total.workload.constant,
    )
    across = [(x, y), (x, known_y), (known_x, y), (known_x, known_y)]
    of_each = [(z, other) for z, known in ((x, known_x), (y, known_y)) for other in (z, constant)]
    sums = read_products(total, [*across, *of_each, (known_x, constant), (known_y, constant)])
    xy, sum_x, sum_y, n, xx, all_x, yy, all_y, n_x, n_y = (float(value) for value in sums.values)
    if min(n, n_x, n_y) <= 3:
        return "too few rows have both values"
    mean_x, mean_y = all_x / n_x, all_y / n_y
    c, v, w = xy / n - sum_x * sum_y / n**2, xx / n_x - mean_x**2, yy / n_y - mean_y**2
    weights = np.zeros((3, 10))
    weights[0, :4] = np.array([1, -sum_y / n, -sum_x / n, 2 * sum_x * sum_y / n**2 - xy / n]) / n
    weights[1, [4, 5, 8]] = np.array([1, -2 * mean_x, 2 * mean_x**2 - xx / n_x]) / n_x
    weights[2, [6, 7, 9]] = np.array([1, -2 * mean_y, 2 * mean_y**2 - yy / n_y]) / n_y
    readings = Readings(np.array([c, v, w]), weights @ sums.noise @ weights.T)
    for levels, variance, error in zip((first, second), readings.values[1:], readings.errors[1:], strict=True):
        if not variance > _LEAST_SIGNAL * error and error > 0:
            return f"the noise hides how much {levels.name} varies"
        if not variance > _LEAST_VARIANCE:
            return f"all values of {levels.name} are the same"
    a, b = (
        _Standard(total, z, known, mean, math.sqrt(variance), count)
        for z, known, mean, variance, count in ((x, known_x, mean_x, v, n_x), (y, known_y, mean_y, w, n_y))
    )
    return Moments(readings, n, _read_kurtosis(total, a, b, c / math.sqrt(v * w), n))


def _as_number(total: PairwiseTotal, levels: Levels) -> Functional:
    """Return the function that is a number on [−1, 1], or the indicator of the second of two levels; 0 where missing."""
    if not levels.nodes:
        return total.workload.indicator(levels.name, levels.names[1])
    nodes = np.array(levels.nodes)
    values = (2 * nodes - nodes[0] - nodes[-1]) / (nodes[-1] - nodes[0])
    return total.workload.functional(levels.name, np.append(values, [0.0] * levels.has_missing))


class _Standard:
    """Powers of a column with mean zero and variance one, minus what hat functions add to them on average.

    A value at the place t between two nodes of distance h counts as a random value: the node th below it or the node
    (1 − t)h above it, with the right mean. This adds δ = h²/6 to the mean of squares, and 6δ + 2.4δ² to that of fourth
    powers.
    """

    def __init__(
        self, total: PairwiseTotal, x: Functional, known: Functional, mean: float, deviation: float, n_rows: float
    ) -> None:
        a = known.values * (x.values - mean) / deviation
        squares = total.workload.functional(x.column, a**2)
        self.n_rows = n_rows
        self.added = float(read_products(total, [(squares, total.workload.constant)]).values[0]) / n_rows - 1
        hats = max(self.added, 0.0)
        powers = (a, a**2 - hats * known.values, a**3 - 3 * hats * a, a**4 - 6 * hats * a**2)
        self.powers = [total.workload.functional(x.column, power) for power in powers]
        self.fourth_added = (HATS_TO_FOURTH - 6) * hats**2


def _read_kurtosis(total: PairwiseTotal, a: _Standard, b: _Standard, r: float, n: float) -> float:
    """Return κ; 1 where hat functions are too wide compared with the columns' spread or with the difference of the columns.

    Let hat functions add δ and δ′ to the mean squares of a and b. Besides terms that can be computed, they then add between
    δδ′ and 1.2 δδ′ to the mean of a²b². They add most if both columns always lie at the same place between two nodes.
    """
    uncertainty = 0.3 * max(a.added, 0.0) * max(b.added, 0.0) / max(1 - r**2, 1e-3) ** 2
    if max(a.added, b.added) > _MOST_HATS or uncertainty > _MOST_UNCERTAINTY:
        return 1.0
    constant = total.workload.constant
    (a1, a2, a3, a4), (b1, b2, b3, b4) = a.powers, b.powers
    e22, e31, e13, e40, e04 = read_products(
        total, [(a2, b2), (a3, b1), (a1, b3), (a4, constant), (b4, constant)]
    ).values / np.array([n, n, n, a.n_rows, b.n_rows])
    fourths = e40 - a.fourth_added + e04 - b.fourth_added
    variance = (1 + r**2 / 2) * e22 - r * (e31 + e13) + r**2 / 4 * fourths
    return float(np.clip(variance / max(1 - r**2, 1e-3) ** 2, _LEAST_KURTOSIS, _MOST_KURTOSIS))


def find_correlation_interval(moments: Moments) -> tuple[float, float]:
    """Return the 95 % interval of a correlation; NaN if no correlation is compatible with the sums."""
    _, v, w = moments.readings.values
    scale = np.array([math.sqrt(v * w), v, w])
    read, noise = moments.readings.values / scale, moments.readings.noise / np.outer(scale, scale)
    errors = np.where(read[1:] < _CLEAR_SIGNAL * np.sqrt(np.diag(noise))[1:], _SELECTED_ERROR, 1.0)
    noise = noise * np.outer([1.0, *errors], [1.0, *errors])
    sampling = moments.kurtosis / (moments.n_rows - 3)
    r = float(np.clip(read[0], -1, 1))
    slope = np.array([1, -r / 2, -r / 2])
    half = Z * math.sqrt(sampling + float(slope @ noise @ slope) / max(1 - r**2, 1e-3) ** 2)
    middle = math.atanh(min(max(r, -_EDGE), _EDGE))
    places = np.hstack([np.tanh(middle + half * np.outer(_SIDES, _STEPS)), _SIDES[:, None]])
    places[:, 0] = r
    excess = _measure_excess(places, read, noise, sampling)
    if excess[0, 0] > 0:
        return np.nan, np.nan
    for _ in range(_N_REFINEMENTS):
        firsts = [_find_first_outside(side) for side in excess]
        inner, outer = (places[[0, 1], np.subtract(firsts, before)][:, None] for before in (1, 0))
        places = inner + (outer - inner) * np.linspace(0, 1, _N_BETWEEN)
        excess = _measure_excess(places, read, noise, sampling)
    low, high = (_find_crossing(*side) for side in zip(places, excess, strict=True))
    return low, high


def _measure_excess(places: Matrix, read: Vector, noise: Matrix, sampling: float) -> Matrix:
    """Return, for each correlation in `places`, its misfit minus z², the largest misfit within the interval."""
    return _measure_misfit(places.ravel(), read, noise, sampling).reshape(places.shape) - Z**2


def _find_first_outside(excess: Vector) -> int:
    """Return the index, from 1 on, of the first positive excess, or the last index if no excess is positive."""
    outside = np.flatnonzero(excess[1:] > 0)
    return int(outside[0]) + 1 if len(outside) else len(excess) - 1


def _find_crossing(places: Vector, excess: Vector) -> float:
    """Return the place where the excess becomes positive, or the last place if it does not become positive."""
    first = _find_first_outside(excess)
    before, after = excess[first - 1], excess[first]
    share = -before / (after - before) if after > 0 else 1.0
    return float(places[first - 1] + (places[first] - places[first - 1]) * np.clip(share, 0, 1))


def _measure_misfit(correlations: Vector, read: Vector, noise: Matrix, sampling: float) -> Vector:
    """Return the least (û − u)ᵀ [Σ + diag(s, 0, 0)]⁻¹ (û − u) over v and w, by Levenberg's method on their logarithms.

    `read` is û in units in which v̂ and ŵ are 1.
    """
    covariance = np.broadcast_to(noise, (len(correlations), 3, 3)).copy()
    covariance[:, 0, 0] += sampling * (1 - correlations**2) ** 2
    covariance += 1e-12 * np.eye(3)
    inverse: Matrix = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    logs, damping = np.zeros((len(correlations), 2)), np.full(len(correlations), 1e-3)
    misfit, gradient, curvature = _expand(logs, correlations, read, inverse)
    for _ in range(_ITERATIONS):
        diagonal = np.diagonal(curvature, axis1=1, axis2=2) * damping[:, None] + 1e-12
        step = np.linalg.solve(curvature + diagonal[:, :, None] * np.eye(2), gradient[:, :, None])[:, :, 0]
        tried = logs + np.clip(step, -_LONGEST_STEP, _LONGEST_STEP)
        expanded = _expand(tried, correlations, read, inverse)
        is_better = expanded[0] < misfit
        logs = np.where(is_better[:, None], tried, logs)
        misfit = np.where(is_better, expanded[0], misfit)
        gradient = np.where(is_better[:, None], expanded[1], gradient)
        curvature = np.where(is_better[:, None, None], expanded[2], curvature)
        damping = np.where(is_better, damping / 3, damping * 8)
    return misfit


def _expand(logs: Matrix, correlations: Vector, read: Vector, inverse: Matrix) -> tuple[Vector, Matrix, Matrix]:
    """Return the misfit at given logarithms of variances, minus half of its gradient, and half of its curvature."""
    variances = np.exp(logs)
    covariances = correlations * np.sqrt(variances.prod(axis=1))
    left = read - np.column_stack([covariances, variances])
    derivative = np.zeros((len(logs), 3, 2))
    derivative[:, 0] = covariances[:, None] / 2
    derivative[:, [1, 2], [0, 1]] = variances
    weighed = np.matmul(inverse, left[:, :, None])
    turned = derivative.transpose(0, 2, 1)
    misfit = (left[:, None] @ weighed)[:, 0, 0]
    return misfit, (turned @ weighed)[:, :, 0], turned @ inverse @ derivative
