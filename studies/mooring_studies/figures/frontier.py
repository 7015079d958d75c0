"""Operating points by utility and leakage, with and without noise, and the frontier of all of them; other methods beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mooring.typing import Vector
from mooring_studies.alternatives.table import tabulate_alternatives
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.figures import chart, readings, terms
from mooring_studies.figures.fits import Material

NOTICEABLE = 0.5
"""Percentage points by which two noiseless methods differ at least where a figure tells them apart: less rounds away."""
_NOTICEABLE_ERROR = 0.005
_LEAST_SHOWN = 0.5  # percent
_ALTERNATIVES = {  # marker and colour of methods beside rotation and sums
    terms.ALIGNED: ("*", terms.BLUE),
    terms.ALIGNED_DATA_NOISE: ("o", terms.SKY),
    terms.SECURE_SUM: ("s", terms.WINE),
    "fedavg": ("^", terms.VERMILION),
    "fedavg-aggregate": ("v", terms.ORANGE),
    "synthetic": ("D", terms.GREEN),
    "statistics": ("P", terms.PURPLE),
}
_LOOKS = {
    terms.INDEPENDENT: ("P", terms.PURPLE, terms.PURPLE),
    terms.COMMON: ("*", terms.INK, terms.INK),
    terms.ALIGNED: ("*", terms.INK, "white"),
}


def find_frontier(leakage: Vector, utility: Vector) -> NDArray[np.intp]:
    """The points that no other beats: from the least leakage to the most, each more useful than those before.

    Points that are not finite are left out.

    Examples
    --------
    >>> find_frontier(np.array([10.0, 20.0, 30.0]), np.array([60.0, 50.0, 90.0])).tolist()
    [0, 2]
    """
    known = np.flatnonzero(np.isfinite(leakage) & np.isfinite(utility))
    order = known[np.lexsort((-utility[known], leakage[known]))]
    best = np.maximum.accumulate(utility[order]) if len(order) else utility[order]
    before = np.concatenate([[-np.inf], best[:-1]]) if len(order) else best
    return order[utility[order] > before]


@dataclass(frozen=True)
class Point:
    """A method without noise: what leaks to the strongest attack, and what it is worth as deployed."""

    words: str
    leakage: float
    utility: float
    marker: str
    colour: str
    inside: str


def find_noiseless_points(results: Results, kind: Kind) -> list[Point]:
    """I-GDP, and C-GDP and AA-I-GDP without noise: of these two only the better where they look the same."""
    points = {method: point for method in _LOOKS if (point := _point(results, method, kind)) is not None}
    if terms.COMMON in points and terms.ALIGNED in points and _alike(points[terms.COMMON], points[terms.ALIGNED], kind):
        marker, colour, inside = _LOOKS[terms.COMMON]
        better = max(points[terms.COMMON], points.pop(terms.ALIGNED), key=lambda point: point.utility)
        points[terms.COMMON] = replace(
            better, words="C-GDP and AA-I-GDP, no noise", marker=marker, colour=colour, inside=inside
        )
    return list(points.values())


def draw_deployed(axes: chart.Axes, results: Results, kind: Kind, *, alpha: float = 0.65) -> tuple[Vector, Vector]:
    """Points of every noisy method by clean accuracy and what the strongest attack finds; returns all of them."""
    every_x, every_y = [np.empty(0)], [np.empty(0)]
    for method, (words, marker) in terms.NOISY.items():
        rows = results.where(method=method)
        x, y = rows.leakage(kind), rows.percent("balanced_accuracy_clean")
        good = np.isfinite(x) & np.isfinite(y)
        label, colour = f"{words} ({int(good.sum())} draws)", terms.METHOD_COLOURS[method]
        chart.draw_points(
            axes, x[good], y[good], colour=colour, marker=marker, alpha=alpha, markersize=4.8, label=label
        )
        every_x.append(x)
        every_y.append(y)
    return np.concatenate(every_x), np.concatenate(every_y)


def mark_noiseless(axes: chart.Axes, points: Sequence[Point]) -> None:
    """One large marker a method without noise."""
    for point in points:
        axes.plot(
            [point.leakage], [point.utility], point.marker, color=point.colour, markerfacecolor=point.inside, markersize=12,
            linestyle="none", label=point.words, zorder=7,
        )  # fmt: skip


def draw_frontier(
    axes: chart.Axes, x: Vector, y: Vector, points: Sequence[Point], kind: Kind, *, width: float = 2.4, level: float = 5
) -> NDArray[np.intp]:
    """Steps along what no other point beats, noisy or not, and on from the last of them, level, to the greatest leakage.

    So a point that beats all others is seen to do so, too. The places of these points are returned: among x first, then
    among `points`.
    """
    every_x = np.append(x, [point.leakage for point in points])
    every_y = np.append(y, [point.utility for point in points])
    leakier = -1.0 if kind == "error" else 1.0
    best = find_frontier(leakier * every_x, every_y)
    if len(best):
        known = every_x[np.isfinite(every_x) & np.isfinite(every_y)]
        steps_x = np.append(every_x[best], leakier * np.max(leakier * known))
        steps_y = np.append(every_y[best], every_y[best[-1]])
        axes.plot(
            steps_x, steps_y, color=terms.BLACK, linewidth=width, drawstyle="steps-post", label="frontier",
            zorder=level,
        )  # fmt: skip
    return best


def draw_alternatives(material: Material) -> list[chart.Drawing]:
    """Each method's score against how many members are recognised, a panel a case; those without a score are left out."""
    lines = tabulate_alternatives(material.results)
    cases = list(dict.fromkeys(line["case"] for line in lines))
    title = "What alternatives disclose: score against members recognised"
    canvas, panels = chart.make_axes(title, 1, len(cases), height=6.2)
    for axes, case in zip(panels[0], cases, strict=True):
        shown = [line for line in lines if line["case"] == case and np.isfinite(line["score"])]
        for line in shown:
            x, y, method = 100 * line["recognised"], 100 * line["score"], line["method"]
            if method in (terms.LOCAL_ONLY, terms.POOLED_RAW):
                chart.draw_level(
                    axes, y, line["way"], colour=terms.GREY, style="--" if method == terms.LOCAL_ONLY else ":"
                )
                continue
            marker, colour = _ALTERNATIVES[method]
            inside = colour if line["draw"] == 0 else "none" if line["draw"] == 1 else terms.PALE
            look = {"marker": marker, "color": colour, "markerfacecolor": inside, "markersize": 9, "linestyle": "none"}
            above = {"zorder": 6, "markersize": 12} if method == terms.ALIGNED else {"zorder": 5}
            axes.plot([max(x, _LEAST_SHOWN)], [y], label=line["way"], **(look | above))
        axes.set_xscale("log")
        axes.set_xlim(0.8 * _LEAST_SHOWN, 130)
        axes.set_xticks([1, 10, 100], labels=["1", "10", "100"])
        chart.draw_chance_across(axes, x=1.0)
        axes.set(
            title=case,
            xlabel="members recognised at 1 % false alarms, %",
            ylabel=f"{shown[0]['measure']} on test rows, %",
        )
    chart.write_legend(canvas, chart.list_entries(panels[0][0]), n_columns=3)
    return [chart.describe(canvas, "alternatives", "alternatives")]


def _point(results: Results, method: str, kind: Kind) -> Point | None:
    leakage = readings.leakage_of(results, method, kind)
    clean = readings.mean_of(results, method, "balanced_accuracy_clean")
    utility = readings.accuracy_of(results, method) if clean is None else clean
    if leakage is None or utility is None:
        return None
    return Point(f"{terms.METHOD_WORDS[method]}, no noise", leakage, utility, *_LOOKS[method])


def _alike(point: Point, other: Point, kind: Kind) -> bool:
    apart = _NOTICEABLE_ERROR if kind == "error" else NOTICEABLE
    return abs(point.leakage - other.leakage) < apart and abs(point.utility - other.utility) < NOTICEABLE
