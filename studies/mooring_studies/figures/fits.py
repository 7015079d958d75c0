"""Curves and bands of percentages for figures, each computed once however many figures show it.

A curve is drawn within the range of its draws; where draws are few, a figure may leave out the stretches without any: see
`held`. Its band begins and ends where enough draws are near: at ends with few, a bootstrap has nothing to resample and its
band says nothing. Neither leaves 0 … 100.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mooring_studies.comparison import curves

Array = NDArray[np.float64]
_POINTS = 120
_FEWEST = 5
_NEAR = 0.1  # of the range of the draws, either side of a point
BAND_RULE = "no band at ends where fewer than five draws lie within a tenth of the range"
GAP_RULE = f"no curve between two draws further apart than {100 * curves.WIDEST_GAP:.0f} % of the range"


@dataclass(frozen=True)
class Line:
    """A fitted curve on a grid and its pointwise 95 % band: NaN at ends where too few draws are near for one."""

    x: Array
    y: Array
    lower: Array
    upper: Array

    def capped(self, top: float | None) -> Line:
        """The same, curve and band, nowhere above a value; unchanged where there is none."""
        if top is None:
            return self
        y, lower, upper = (np.minimum(edge, top) for edge in (self.y, self.lower, self.upper))
        return Line(self.x, y, lower, upper)

    def on(self, grid: Array) -> Line:
        """The same on another grid; NaN outside its range."""
        y, lower, upper = (
            np.interp(grid, self.x, edge, left=np.nan, right=np.nan) for edge in (self.y, self.lower, self.upper)
        )
        return Line(grid, y, lower, upper)

    def only(self, there: NDArray[np.bool_]) -> Line:
        """The same where `there` says so, NaN elsewhere."""
        y, lower, upper = (np.where(there, edge, np.nan) for edge in (self.y, self.lower, self.upper))
        return Line(self.x, y, lower, upper)


@dataclass(frozen=True)
class Track:
    """Two quantities that follow one noise scale, drawn against each other: `across` and `up`."""

    noise: Array
    across: Line
    up: Line


class Fits:
    """Fitted curves, kept once they are computed.

    Parameters
    ----------
    n_resamples : int
        How many bootstrap resamples a band takes.
    """

    def __init__(self, n_resamples: int) -> None:
        self.n_resamples = n_resamples
        self._kept: dict[tuple[bytes, ...], object] = {}

    def line(self, x: Array, y: Array) -> Line | None:
        """Curve and band through the finite observations; None where there are too few for one."""
        good = np.isfinite(x) & np.isfinite(y)
        x, y = x[good], y[good]
        if not _enough(x):
            return None
        key = (x.tobytes(), y.tobytes())
        if key not in self._kept:
            self._kept[key] = self._lines(x, y)[0]
        found = self._kept[key]
        assert isinstance(found, Line)
        return found

    def track(self, noise: Array, across: Array, up: Array) -> Track | None:
        """Two curves on the noise, paired by noise level, their bands from the same resamples."""
        good = np.isfinite(noise) & np.isfinite(across) & np.isfinite(up)
        noise, across, up = noise[good], across[good], up[good]
        if not _enough(noise):
            return None
        key = (noise.tobytes(), across.tobytes(), up.tobytes())
        if key not in self._kept:
            first, second = self._lines(noise, across, up)
            self._kept[key] = Track(first.x, first, second)
        found = self._kept[key]
        assert isinstance(found, Track)
        return found

    def _lines(self, x: Array, *series: Array) -> list[Line]:
        """One line a series, their bands from the same resamples; `curves` fixes the seed, so redrawing repeats them."""
        grid = np.linspace(x.min(), x.max(), _POINTS)
        found = curves.fit_together(x, *series)
        bands = curves.shared_bands(found, grid, n_resamples=self.n_resamples)
        near = supported(x, grid)
        return [
            Line(
                grid, np.clip(curve.at(grid), 0, 100), *(np.where(near, np.clip(edge, 0, 100), np.nan) for edge in band)
            )
            for curve, band in zip(found, bands, strict=True)
        ]


def supported(x: Array, grid: Array) -> NDArray[np.bool_]:
    """Where on an ascending grid a band is drawn: from the first point with enough draws near to the last.

    In between, draws on both sides hold a curve, even where they are few.

    Examples
    --------
    >>> supported(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 9.0, 10.0]), np.array([0.0, 1.0, 9.5])).tolist()
    [True, True, False]
    """
    reach = _NEAR * float(np.ptp(x))
    enough = (np.abs(grid[:, None] - x[None]) <= reach).sum(axis=1) >= _FEWEST
    return np.asarray(np.logical_or.accumulate(enough) & np.logical_or.accumulate(enough[::-1])[::-1], dtype=bool)


def held(x: Array, grid: Array) -> NDArray[np.bool_]:
    """Where on a grid a curve rests on draws: not between two neighbours that are too far apart.

    Examples
    --------
    >>> held(np.array([0.0, 1.0, 2.0, 6.0, 7.0]), np.array([0.5, 2.0, 4.0, 6.5])).tolist()
    [True, True, False, True]
    """
    places = np.unique(x[np.isfinite(x)])
    after = np.clip(np.searchsorted(places, grid, side="left"), 1, len(places) - 1)
    wide = places[after] - places[after - 1] > curves.WIDEST_GAP * float(np.ptp(places))
    return np.asarray(~wide | np.isin(grid, places), dtype=bool)


def _enough(x: Array) -> bool:
    return len(x) >= _FEWEST and float(np.ptp(x)) > 0
