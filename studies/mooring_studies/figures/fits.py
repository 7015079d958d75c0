"""Curves and bands of percentages for figures, each computed once however many figures show it.

Curves of attacks are kept to what attacks can do. A spline is free to rise at its ends above all its draws. An attack is
not: noise does not help it. So no curve of an attack is drawn above what the same attack finds without noise, with the same
decoder; draws that chance put above it stay where they are, as points. And the strongest of several attacks is nowhere
weaker than one of them: its curve is fitted to fewer draws than theirs, and where theirs is higher it follows them.

A curve is drawn within the range of its draws; where draws are few, a figure may leave out the stretches without any: see
`rests_on_draws`. Its band begins and ends where enough draws are near: at ends with few, a bootstrap has nothing to
resample and its band says nothing. Neither leaves 0 … 100.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring.typing import Vector
from mooring_studies.comparison import curves
from mooring_studies.comparison.max_of_k_baseline import describe_max_of_k
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.figures import readings, terms

if TYPE_CHECKING:
    from matplotlib.path import Path as Outline

_POINTS = 120
_FEWEST = 5
_NEAR = 0.1  # of the range of the draws, either side of a point
SCALES = {
    terms.DATA_NOISE: "data_noise_scale",
    terms.ALIGNED_DATA_NOISE: "data_noise_scale",
    terms.ANCHOR_NOISE: "anchor_noise_scale",
}
PAPER_ATTACKS = {
    terms.DATA_NOISE: ("known-secret",),
    terms.ALIGNED_DATA_NOISE: ("known-anchor",),
    terms.ANCHOR_NOISE: ("pseudoinverse", "alignment-map", "procrustes"),
}
_WITHOUT_NOISE = {
    terms.DATA_NOISE: (terms.COMMON, "known-secret"),
    terms.ALIGNED_DATA_NOISE: (terms.ALIGNED, "known-anchor"),
    terms.ANCHOR_NOISE: (terms.ALIGNED, "known-anchor"),
}
_LEARNED = "+learned"
_STATIONS = 20  # at which a track's bands make a box


@dataclass(frozen=True)
class Line:
    """A fitted curve on a grid and its pointwise 95 % band: NaN at ends where too few draws are near for one."""

    x: Vector
    y: Vector
    lower: Vector
    upper: Vector

    def capped(self, top: float | None) -> Line:
        """The same, curve and band, nowhere above a value; unchanged where there is none."""
        return self if top is None else self._with(self.x, lambda edge: np.minimum(edge, top))

    def on(self, grid: Vector) -> Line:
        """The same on another grid; NaN outside its range."""
        return self._with(grid, lambda edge: np.interp(grid, self.x, edge, left=np.nan, right=np.nan))

    def only(self, there: NDArray[np.bool_]) -> Line:
        """The same where `there` says so, NaN elsewhere."""
        return self._with(self.x, lambda edge: np.where(there, edge, np.nan))

    def _with(self, x: Vector, change: Callable[[Vector], Vector]) -> Line:
        return Line(x, change(self.y), change(self.lower), change(self.upper))


@dataclass(frozen=True)
class Track:
    """Two quantities that follow one noise scale, drawn against each other: `across` and `up`."""

    noise: Vector
    across: Line
    up: Line


class Fits:
    """Fitted curves, kept once they are computed."""

    def __init__(self, n_resamples: int) -> None:
        self.n_resamples = n_resamples
        self._kept: dict[tuple[bytes, ...], list[Line]] = {}

    def line(self, x: Vector, y: Vector) -> Line | None:
        """Curve and band through the finite observations; None where there are too few for one."""
        lines = self._lines(x, y)
        return lines[0] if lines else None

    def track(self, noise: Vector, across: Vector, up: Vector) -> Track | None:
        """Two curves on the noise, paired by noise level, their bands from the same resamples; None as in `line`."""
        lines = self._lines(noise, across, up)
        return Track(lines[0].x, *lines) if lines else None

    def _lines(self, x: Vector, *others: Vector) -> list[Line]:
        """One line a series, their bands from the same resamples; `curves` fixes the seed, so redrawing repeats them."""
        good = np.isfinite(np.stack([x, *others])).all(axis=0)
        x, *series = (each[good] for each in (x, *others))
        if len(x) < _FEWEST or np.ptp(x) == 0:
            return []
        key = tuple(each.tobytes() for each in (x, *series))
        if key not in self._kept:
            grid = np.linspace(x.min(), x.max(), _POINTS)
            fitted, near = curves.fit_together(x, *series), has_band(x, grid)
            bands = curves.shared_bands(fitted, grid, n_resamples=self.n_resamples)
            self._kept[key] = [
                Line(
                    grid,
                    np.clip(curve.at(grid), 0, 100),
                    *(np.where(near, np.clip(edge, 0, 100), np.nan) for edge in band),
                )
                for curve, band in zip(fitted, bands, strict=True)
            ]
        return self._kept[key]


@dataclass(frozen=True)
class Material:
    """A study's results, what is known about the run, and the curves fitted so far."""

    study: str
    results: Results
    facts: Mapping[str, Any]
    fits: Fits

    @property
    def paper(self) -> Results:
        """The deployment that stands for the paper's: the first."""
        return self.results.where(deployment=0)

    def title(self, words: str) -> str:
        """A figure's title: the study, and what the figure shows."""
        return f"{terms.TITLES.get(self.study, self.study)}: {words}"

    def transition(self, n_participants: float) -> float | None:
        """v_PT for so many participants, if the run noted it: of the whole, or of each number of participants apart."""
        parts = self.facts.get("deployments")
        for part in (self.facts, *(parts.values() if isinstance(parts, Mapping) else ())):
            value = (part.get("phase_transition") or {}).get(str(int(n_participants)))
            if value is not None:
                return float(value)
        return None

    def only_transition(self) -> float | None:
        """v_PT of a study with one number of participants."""
        counts = self.paper.where(method=terms.ANCHOR_NOISE).values("n_participants")
        return self.transition(counts[0]) if counts else None

    def describe_max_of_k(self, kind: Kind, methods: Iterable[str], *, everywhere: bool = False) -> str:
        """What the strongest attack on each method reaches by chance alone, for a caption: see `describe_max_of_k`.

        In the first deployment, or in all of them.
        """
        results = self.results if everywhere else self.paper
        return describe_max_of_k((results.where(method=method) for method in methods), self.facts, kind)


def has_band(x: Vector, grid: Vector) -> NDArray[np.bool_]:
    """Where on an ascending grid a band is drawn: from the first point with enough draws near to the last.

    In between, draws on both sides hold a curve, even where they are few.

    Examples
    --------
    >>> has_band(np.array([0.0, 0.1, 0.2, 0.3, 0.4, 9.0, 10.0]), np.array([0.0, 1.0, 9.5])).tolist()
    [True, True, False]
    """
    reach = _NEAR * float(np.ptp(x))
    enough = (np.abs(grid[:, None] - x[None]) <= reach).sum(axis=1) >= _FEWEST
    return np.asarray(np.logical_or.accumulate(enough) & np.logical_or.accumulate(enough[::-1])[::-1], dtype=bool)


def rests_on_draws(x: Vector, grid: Vector) -> NDArray[np.bool_]:
    """Return at which points of a grid a curve is supported by draws: not between two neighbours that are too far apart.

    Examples
    --------
    >>> rests_on_draws(np.array([0.0, 1.0, 2.0, 6.0, 7.0]), np.array([0.5, 2.0, 4.0, 6.5])).tolist()
    [True, True, False, True]
    """
    places = np.unique(x[np.isfinite(x)])
    after = np.clip(np.searchsorted(places, grid, side="left"), 1, len(places) - 1)
    wide = places[after] - places[after - 1] > curves.WIDEST_GAP * float(np.ptp(places))
    return np.asarray(~wide | np.isin(grid, places), dtype=bool)


def noiseless_linkage(results: Results, method: str) -> float | None:
    """What the paper's attack and decoder link where the method adds no noise, in percent."""
    plain, attack = _WITHOUT_NOISE[method]
    return readings.mean_of(results, plain, f"linkage:{attack}")


def has_learned_decoder(results: Results, method: str) -> bool:
    """Whether attacks on a method were also judged by a decoder that the paper does not have."""
    return any(name.endswith(_LEARNED) for name in results.where(method=method).attacks("linkage"))


def fit_attack(material: Material, results: Results, method: str, attack: str) -> Line | None:
    """The curve of one of the paper's attacks on the noise, not above the same without noise."""
    rows = results.where(method=method)
    line = material.fits.line(rows.numbers(SCALES[method]), rows.percent(f"linkage:{attack}"))
    return None if line is None else line.capped(noiseless_linkage(results, method))


def fit_attack_track(material: Material, results: Results, method: str, attack: str) -> Track | None:
    """Linkage by one of the paper's attacks and utility, paired by noise; linkage not above the same without noise."""
    rows = results.where(method=method)
    noise, linkage = rows.numbers(SCALES[method]), rows.percent(f"linkage:{attack}")
    track = material.fits.track(noise, linkage, rows.percent("balanced_accuracy"))
    return None if track is None else replace(track, across=track.across.capped(noiseless_linkage(results, method)))


def fit_utility_on_linkage(material: Material, results: Results, method: str, attack: str) -> Line | None:
    """Utility on linkage by one of the paper's attacks, as far as the linkage that it reaches without noise."""
    rows, top = results.where(method=method), noiseless_linkage(results, method)
    line = material.fits.line(rows.percent(f"linkage:{attack}"), rows.percent("balanced_accuracy"))
    return line if line is None or top is None else line.only(line.x <= top)


def fit_strongest(material: Material, results: Results, method: str) -> Line | None:
    """The curve of the strongest attack by the auditor: see this module's words."""
    rows = results.where(method=method)
    line = material.fits.line(rows.numbers(SCALES[method]), rows.leakage("linkage"))
    return None if line is None else _envelope(line, material, results, method)


def fit_strongest_track(material: Material, results: Results, method: str) -> Track | None:
    """Linkage by the strongest attack and utility, paired by noise.

    Linkage is fitted to the few draws on which every attack was run, and utility to all draws.
    """
    rows = results.where(method=method)
    across = fit_strongest(material, results, method)
    up = material.fits.line(rows.numbers(SCALES[method]), rows.percent("balanced_accuracy"))
    return None if across is None or up is None else Track(across.x, across, up.on(across.x))


def raise_to(line: Line, others: Iterable[Line | None]) -> Line:
    """A curve raised to those of others wherever one of them is higher, band and all, within its own range."""
    edges = [line.y, line.lower, line.upper]
    for other in others:
        if other is not None:
            moved = other.on(line.x)
            there = (moved.y, moved.lower, moved.upper)
            # Where a curve has no band of its own, none is borrowed.
            edges = [
                np.where(np.isnan(values), np.nan, np.fmax(values, edge))
                for values, edge in zip(edges, there, strict=True)
            ]
    y, lower, upper = edges
    return Line(line.x, y, lower, np.maximum(upper, y))


def _envelope(line: Line, material: Material, results: Results, method: str) -> Line:
    shown = (fit_attack(material, results, method, attack) for attack in PAPER_ATTACKS[method])
    return raise_to(line.capped(_noiseless_strongest(results, method, "linkage")), shown)


def _noiseless_strongest(results: Results, method: str, kind: Kind) -> float | None:
    """What the strongest attack finds without noise; None where a decoder of the noisy draws was not tried there."""
    plain = _WITHOUT_NOISE[method][0]
    noisy, quiet = (
        {name.endswith(_LEARNED) for name in results.where(method=name).attacks(kind)} for name in (method, plain)
    )
    return readings.leakage_of(results, plain, kind) if noisy <= quiet else None


def outline_track(track: Track) -> Outline | None:
    """The region that a box of both bands sweeps as noise grows: one outline of many pieces, None without a band.

    At every noise the two bands make a box. Between two of them each side of the box sweeps a trapezoid. All pieces turn
    the same way round, so that they fill as one region however the track bends, and nothing is shaded twice.
    """
    from matplotlib.path import Path as Outline

    edges = np.stack([track.across.lower, track.across.upper, track.up.lower, track.up.upper])
    known = np.flatnonzero(np.isfinite(edges).all(axis=0))
    if len(known) == 0:
        return None
    stations = known[np.unique(np.linspace(0, len(known) - 1, _STATIONS).astype(int))]
    left, right, low, high = edges[:, stations]
    boxes = np.stack([np.stack([left, right, right, left], axis=1), np.stack([low, low, high, high], axis=1)], axis=2)
    after = np.roll(boxes, -1, axis=1)  # the other end of every side
    swept = np.stack([boxes[:-1], after[:-1], after[1:], boxes[1:]], axis=2).reshape(-1, 4, 2)
    pieces = _same_way_round(np.concatenate([boxes, swept]))
    closed = np.concatenate([pieces, pieces[:, :1]], axis=1).reshape(-1, 2)
    steps = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
    return Outline(closed, np.tile(steps, len(pieces)))


def _same_way_round(pieces: Vector) -> Vector:
    """Four-cornered pieces of shape (n, 4, 2), turned to run anticlockwise; those without any area are left out."""
    x, y = pieces[..., 0], pieces[..., 1]
    area = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1)
    turned = np.where(area[:, None, None] < 0, pieces[:, ::-1], pieces)
    kept = turned[area != 0]
    return kept if len(kept) else turned[:1]
