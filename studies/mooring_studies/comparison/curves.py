"""Smooth curves through the draws, with bands: the paper's regression splines and bootstrap.

A curve is a cubic truncated-power spline of y on x. First x is scaled so that the range of the observed x
becomes [0, 1]. The basis is 1, u, u², u³ and (u − k/6)³₊ for k = 1 … 5: five interior
knots at 1/6 … 5/6 of the range. A ridge of 1e-8, in these scaled coordinates and beside sums (not means) over the draws,
is on all coefficients but the intercept. Bands are pointwise percentiles (2.5 and 97.5 %) over 10,000 multinomial
re-weightings of the draws: each resample gives draw j the number of times that it was drawn, and is fitted with these
weights on the same knots.

Few draws cannot carry nine coefficients: at the ends of a resample that lacks them, the band says nothing. So each knot
needs eight distinct x beyond the first four: five knots from 44 on, two at 24, none below 12, evenly spaced in the same
way. With fewer than four distinct x the degree falls as well; with one, the curve is their mean. No draw at all gives NaN
everywhere. A draw with a NaN is left out.

Legend: u the scaled x; B the basis at the draws; W the weights of a resample; β the coefficients, which solve
(Bᵀ W B + ridge) β = Bᵀ W y.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from mooring import InputError
from mooring.typing import Matrix

Band = tuple[Matrix, Matrix]

N_KNOTS = 5
N_RESAMPLES = 10_000
LEVEL = 0.95
WIDEST_GAP = 0.15
"""Between two draws, as a share of their range: in a wider one a spline says nothing. 200 draws leave none, 24 may."""

RIDGE = 1e-8
_DEGREE = 3
_DRAWS_A_KNOT = 8  # distinct x that each knot needs, beyond those of the cubic
_CHUNK = 2_000  # resamples held as weights at once
_SEED = 0  # of bands whose caller gives no generator: a figure that is redrawn stays the same figure
_STEPS = 4_000  # of the grid on which a crossing is looked for, before it is narrowed down


@dataclass(frozen=True, eq=False)
class Curve:
    """A fitted spline; made by `fit`."""

    x: Matrix = field(repr=False)
    y: Matrix = field(repr=False)
    """The draws behind it."""
    low: float
    high: float
    """The range of x that became [0, 1]."""
    degree: int
    knots: Matrix
    """The interior knots, in units of x."""
    coefficients: Matrix

    def __len__(self) -> int:
        return len(self.x)

    def at(self, x: ArrayLike) -> Matrix:
        """The curve at x, an array of the same shape; beyond the range the outermost cubics go on."""
        points = np.asarray(x, dtype=np.float64)
        return np.asarray(self.basis(points.ravel()) @ self.coefficients).reshape(points.shape)

    def grid(self, n_points: int = 200) -> Matrix:
        """Evenly spaced x over the range."""
        return np.linspace(self.low, self.high, n_points)

    def widest_gap(self, low: float, high: float) -> float:
        """The widest stretch without a draw that reaches into [low, high], as a share of the range."""
        xs = np.sort(self.x)
        reaches_in = (xs[:-1] < high) & (low < xs[1:])
        return float(np.diff(self._scaled(xs))[reaches_in].max(initial=0.0))

    def basis(self, x: Matrix) -> Matrix:
        """The basis functions at x, one column each."""
        u, knots = self._scaled(x)[:, None], self._scaled(self.knots)
        powers = u ** np.arange(self.degree + 1)
        return np.concatenate([powers, np.maximum(u - knots, 0.0) ** _DEGREE], axis=1)

    def band(self, grid: ArrayLike, *, rng: np.random.Generator | None = None, n_resamples: int = N_RESAMPLES) -> Band:
        """The pointwise bootstrap band, lower and upper, on a grid; without `rng` from a fixed seed."""
        return shared_bands([self], grid, rng=rng, n_resamples=n_resamples)[0]

    def _scaled(self, x: Matrix) -> Matrix:
        width = self.high - self.low
        return (x - self.low) / (width if width > 0 else 1.0)


def fit(x: ArrayLike, y: ArrayLike) -> Curve:
    """The spline of y on x, two arrays of shape (n,); draws with a NaN are left out.

    Examples
    --------
    >>> x = np.linspace(0.0, 2.0, 50)
    >>> round(float(fit(x, x**3).at(1.5)), 5)
    3.375
    """
    xs, ys = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if xs.ndim != 1 or xs.shape != ys.shape:
        raise InputError(
            "x and y",
            expected="two vectors of one length",
            got=f"shapes {xs.shape} and {ys.shape}",
            cure="Pass one x and one y a draw.",
        )
    finite = np.isfinite(xs) & np.isfinite(ys)
    xs, ys = xs[finite], ys[finite]
    low, high = (float(xs.min()), float(xs.max())) if len(xs) else (0.0, 1.0)
    n_distinct = len(np.unique(xs))
    n_knots = min(N_KNOTS, max(0, n_distinct - _DEGREE - 1) // _DRAWS_A_KNOT)
    knots = low + (high - low) * np.arange(1, n_knots + 1) / (n_knots + 1)
    empty = Curve(xs, ys, low, high, min(_DEGREE, max(0, n_distinct - 1)), knots, np.zeros(0))
    basis = empty.basis(xs)
    if not len(xs):
        coefficients = np.full(basis.shape[1], np.nan)
    else:  # least squares with the ridge as more rows: twice the digits of the normal equations
        rows = np.concatenate([basis, np.sqrt(_ridge(basis.shape[1]))])
        coefficients = np.linalg.lstsq(rows, np.concatenate([ys, np.zeros(basis.shape[1])]), rcond=None)[0]
    return Curve(xs, ys, low, high, empty.degree, knots, coefficients)


def resample_weights(n_draws: int, n_resamples: int, rng: np.random.Generator) -> Matrix:
    """How often each draw is in each resample, as floats of shape (n_resamples, n_draws); every row sums to n_draws."""
    return rng.multinomial(n_draws, np.full(n_draws, 1.0 / n_draws), size=n_resamples).astype(np.float64)


def weighted_coefficients(curve: Curve, weights: Matrix) -> Matrix:
    """The coefficients of the curve fitted to its draws with each row of weights, on the same knots."""
    B = curve.basis(curve.x)
    size = B.shape[1]
    products = (B[:, :, None] * B[:, None, :]).reshape(len(B), -1)
    gram = (weights @ products).reshape(-1, size, size) + _ridge(size)
    right = weights @ (B * curve.y[:, None])
    return np.asarray(np.linalg.solve(gram, right[..., None])[..., 0])


def shared_bands(
    curves: Sequence[Curve], grid: ArrayLike, *, rng: np.random.Generator | None = None, n_resamples: int = N_RESAMPLES
) -> list[Band]:
    """The bands of several curves on one grid, fitted to the same resamples of their draws.

    For curves whose draws belong together one by one, as leakage and utility of the same draw, or the same draw with
    more participants. All must have the same number of draws.
    """
    sizes = {len(curve) for curve in curves}
    if len(sizes) > 1:
        raise InputError(
            "curves",
            expected="of the same number of draws",
            got=f"{sorted(sizes)}",
            cure="Fit them with fit_together, which leaves out a draw from all or from none.",
        )
    points = np.asarray(grid, dtype=np.float64)
    if not curves or not all(len(curve) for curve in curves):
        return [(np.full(points.shape, np.nan), np.full(points.shape, np.nan)) for _ in curves]
    rng = np.random.default_rng(_SEED) if rng is None else rng
    on_grid = [curve.basis(points.ravel()) for curve in curves]
    fitted = [np.empty((points.size, n_resamples)) for _ in curves]
    for start in range(0, n_resamples, _CHUNK):
        chunk = slice(start, min(start + _CHUNK, n_resamples))
        weights = resample_weights(len(curves[0]), chunk.stop - start, rng)
        for curve, basis, values in zip(curves, on_grid, fitted, strict=True):
            values[:, chunk] = basis @ weighted_coefficients(curve, weights).T
    ends = [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0]
    bands = [np.quantile(values, ends, axis=1) for values in fitted]
    return [(band[0].reshape(points.shape), band[1].reshape(points.shape)) for band in bands]


def fit_together(x: ArrayLike, *series: ArrayLike) -> list[Curve]:
    """One curve a series on the same draws: a draw that lacks one of them is left out of all."""
    columns = [np.asarray(values, dtype=np.float64) for values in (x, *series)]
    whole = np.isfinite(columns).all(axis=0)
    return [fit(columns[0][whole], values[whole]) for values in columns[1:]]


def crossing(curve: Curve, level: float) -> float | None:
    """The first x of the range at which the curve crosses a level, in either direction."""
    return next(iter(crossings(curve, level)), None)


def crossings(curve: Curve, level: float) -> list[float]:
    """Every x of the range at which the curve crosses a level, in order; empty where it never does."""
    xs = np.linspace(curve.low, curve.high, _STEPS + 1)
    above = curve.at(xs) - level
    if not len(curve) or np.isnan(above).any() or np.isnan(level):
        return []
    places = [float(xs[0])] if above[0] == 0 else []
    for i in np.flatnonzero((above[:-1] * above[1:] < 0) | ((above[1:] == 0) & (above[:-1] != 0))):
        left, right = float(xs[i]), float(xs[i + 1])
        for _ in range(60):  # halving: the curve is continuous and changes sign between the two
            middle = (left + right) / 2
            same_side = (float(curve.at(middle)) - level) * above[i] > 0
            left, right = (middle, right) if same_side else (left, middle)
        places.append(right)
    return places


def _ridge(size: int) -> Matrix:
    return np.diag(np.where(np.arange(size) == 0, 0.0, RIDGE))
