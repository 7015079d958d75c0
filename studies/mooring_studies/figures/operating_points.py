"""Operating points without noise beside the noisy ones, and the frontier of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.labels import ALIGNED, BLACK, COMMON, INDEPENDENT, INK, METHOD_WORDS, PURPLE
from mooring_studies.figures.pareto import frontier
from mooring_studies.figures.series import accuracy_of, control, control_strongest

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Kind, Results

Array = NDArray[np.float64]
NOTICEABLE = 0.5
"""Percentage points by which two noiseless methods differ at least where a figure tells them apart: less rounds away."""
_NOTICEABLE_ERROR = 0.005
_LOOKS = {INDEPENDENT: ("P", PURPLE, PURPLE), COMMON: ("*", INK, INK), ALIGNED: ("*", INK, "white")}


@dataclass(frozen=True)
class Point:
    """A method without noise: what leaks to the strongest attack, and what it is worth as deployed."""

    words: str
    leakage: float
    utility: float
    marker: str
    colour: str
    inside: str


def noiseless_points(results: Results, kind: Kind) -> list[Point]:
    """I-GDP, and C-GDP and AA-I-GDP without noise: one point, the better, where no reader could tell those apart."""
    points = {method: point for method in _LOOKS if (point := _point(results, method, kind)) is not None}
    if COMMON in points and ALIGNED in points and _alike(points[COMMON], points[ALIGNED], kind):
        marker, colour, inside = _LOOKS[COMMON]
        better = max(points[COMMON], points.pop(ALIGNED), key=lambda one: one.utility)
        points[COMMON] = replace(
            better, words="C-GDP and AA-I-GDP, no noise", marker=marker, colour=colour, inside=inside
        )
    return list(points.values())


def mark_noiseless(axes: Axes, points: Sequence[Point]) -> None:
    """One large marker a method without noise."""
    for one in points:
        axes.plot(
            [one.leakage], [one.utility], one.marker, color=one.colour, markerfacecolor=one.inside, markersize=12,
            linestyle="none", label=one.words, zorder=7,
        )  # fmt: skip


def draw_frontier(
    axes: Axes, x: Array, y: Array, points: Sequence[Point], kind: Kind, *, width: float = 2.4, level: float = 5
) -> NDArray[np.intp]:
    """Steps along what no other point beats, noisy or not, and on from the last of them, level, to the greatest leakage.

    So a point that beats all others is seen to do so, too.

    Returns
    -------
    array of int
        The places of these points: among x first, then among `points`.
    """
    every_x = np.append(x, [one.leakage for one in points])
    every_y = np.append(y, [one.utility for one in points])
    leakier = -1.0 if kind == "error" else 1.0
    best = frontier(leakier * every_x, every_y)
    if len(best):
        known = every_x[np.isfinite(every_x) & np.isfinite(every_y)]
        steps_x = np.append(every_x[best], leakier * np.max(leakier * known))
        steps_y = np.append(every_y[best], every_y[best[-1]])
        axes.plot(
            steps_x, steps_y, color=BLACK, linewidth=width, drawstyle="steps-post", label="frontier",
            zorder=level,
        )  # fmt: skip
    return best


def _point(results: Results, method: str, kind: Kind) -> Point | None:
    leakage = control_strongest(results, method, kind)
    clean = control(results, method, "balanced_accuracy_clean")
    utility = accuracy_of(results, method) if clean is None else clean
    if leakage is None or utility is None:
        return None
    return Point(f"{METHOD_WORDS[method]}, no noise", leakage, utility, *_LOOKS[method])


def _alike(one: Point, other: Point, kind: Kind) -> bool:
    apart = _NOTICEABLE_ERROR if kind == "error" else NOTICEABLE
    return abs(one.leakage - other.leakage) < apart and abs(one.utility - other.utility) < NOTICEABLE
