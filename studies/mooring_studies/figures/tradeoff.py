"""Leakage against utility: the paper's trade-off, and the one a participant would live with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.attack_curves import CURVE_RULE, paper_curve, paper_track, strongest_track
from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.fits import BAND_RULE
from mooring_studies.figures.labels import (
    ANCHOR_NOISE,
    BLACK,
    BLUE,
    BOTH_NOISES,
    CLEAN_AXIS,
    COMMON,
    DATA_NOISE,
    GREY,
    INDEPENDENT,
    INK,
    LINKAGE_CHANCE,
    MATCH_AXIS,
    METHOD_COLOURS,
    STRONGEST,
    UTILITY_AXIS,
    VERMILION,
    guessing_level,
    linkage_axis,
    title_of,
)
from mooring_studies.figures.operating_points import draw_frontier, mark_noiseless, noiseless_points
from mooring_studies.figures.ribbons import RIBBON_RULE, ribbon, track_ribbon
from mooring_studies.figures.series import (
    Material,
    accuracy_of,
    control,
    converged,
    local_only,
    luck,
    percent,
    pooled_raw,
    strongest,
)
from mooring_studies.figures.style import (
    comparison_levels,
    end_labels,
    new_canvas,
    observations,
    percent_axis,
    round_top,
    shade_below,
    utility_floor,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Kind, Results

Array = NDArray[np.float64]
_PAPER: tuple[tuple[str, str, str, Any, str], ...] = (
    (DATA_NOISE, "known-secret", BLUE, "-", "private-data noise, known secret (paper)"),
    (ANCHOR_NOISE, "procrustes", VERMILION, "--", "anchor noise, Procrustes (paper)"),
)
_DARK: dict[str, tuple[Any, str]] = {
    DATA_NOISE: ((0, (5, 1.5)), "private-data noise"),
    ANCHOR_NOISE: ("-", "anchor noise"),
}


def draw_tradeoff(material: Material) -> list[Drawing]:
    """The paper's trade-off under its strongest attacks, and under the strongest attack known."""
    title = f"{title_of(material.study)}: utility against leakage, scored as in the paper"
    canvas, axes = new_canvas(height=6.0, title=title)
    one = axes[0][0]
    one.set(xlabel=linkage_axis(material.study), ylabel=UTILITY_AXIS)
    paper = material.paper
    for method, attack, colour, style, words in _PAPER:
        own = paper.where(method=method)
        x, y = percent(own, f"linkage:{attack}"), percent(own, "balanced_accuracy")
        observations(one, x, y, colour=colour, filled=converged(own) if method == ANCHOR_NOISE else None, strength=0.3)
        if material.study == "mnist":
            ribbon(one, paper_curve(material, paper, method, attack), colour=colour, style=style, label=words)
        else:
            track_ribbon(one, paper_track(material, paper, method, attack), colour, style, words)
    for method, (style, words) in _DARK.items():
        own = paper.where(method=method)
        x, y = strongest(own, "linkage"), percent(own, "balanced_accuracy")
        observations(one, x, y, colour=BLACK, marker="D", strength=0.35, size=3.0)
        found = strongest_track(material, paper, method)
        track_ribbon(one, found, BLACK, style, f"{words}, {STRONGEST}", width=2.6)
    _star(one, control(paper, COMMON, "linkage:known-secret"), accuracy_of(paper, COMMON), "C-GDP, no noise")
    _decorate(one, material, paper)
    canvas.legend(*_legend(one), loc="outside lower center", ncols=2)
    paired = (
        "Coloured curves are splines of accuracy on linkage with 95 % bands, black ones pair two splines on the noise"
        if material.study == "mnist"
        else "Curves pair two splines on the noise, by noise level"
    )
    caption = (
        f"Upper left is better. {paired}; {RIBBON_RULE}, over noise draws, {BAND_RULE}. Coloured curves take the paper's "
        "attacks; black curves take the strongest attack of all that were run, by the same auditor: its linkage on the "
        "draws on which every attack was run, accuracy on all. "
        f"{CURVE_RULE}. Filled anchor-noise points converged, open ones reached the limit of iterations. The star is C-GDP "
        "without noise. The paper gives I-GDP no leakage, so it is a line here. Below 'local only', a participant does "
        f"better alone. Dotted: guessing.{luck(material, 'linkage', _DARK)}"
    )
    return [Drawing("tradeoff", title, caption, canvas)]


def draw_tradeoff_as_deployed(material: Material) -> list[Drawing]:
    """Clean local scoring against the strongest attack, by direct matching and by the paper's measure, every method."""
    title = f"{title_of(material.study)}: what joining costs and gives, as deployed"
    canvas, axes = new_canvas(1, 2, height=5.6, title=title)
    panels: tuple[tuple[Kind, str, str], ...] = (
        ("match", "(a) Matched directly", MATCH_AXIS),
        ("linkage", "(b) By the paper's measure", linkage_axis(material.study)),
    )
    methods = (DATA_NOISE, ANCHOR_NOISE, BOTH_NOISES)
    legend: dict[str, Any] = {}
    for one, (kind, heading, across) in zip(axes[0], panels, strict=True):
        one.set(title=heading, xlabel=across, ylabel=CLEAN_AXIS)
        _deployed_panel(one, material, kind)
        legend |= dict(zip(*reversed(_legend(one)), strict=True))
    canvas.legend(list(legend.values()), list(legend), loc="outside lower center", ncols=3)
    caption = (
        "Upper left is better. Up: balanced accuracy when participants score their own new rows without noise. Across: what "
        "the strongest attack we know finds. (a) The share of records that it matches to their source, ten-way, straight "
        "in the projected space. (b) The share that the paper's auditor links from what it rebuilt. A record can be matched "
        "directly and yet not be recognised by the auditor: (a) is the stricter measure. One point a draw, for the draws on "
        "which every attack was run; the black line joins the points that no other beats, those without noise among them, "
        "and runs on level to the greatest leakage. "
        "In the shaded region a participant does better alone. Leakage is a lower bound. Dotted: guessing."
        f"{luck(material, 'match', methods, opening='In (a), the best')}"
        f"{luck(material, 'linkage', methods, opening='In (b), the best')}"
    )
    return [Drawing("tradeoff-as-deployed", title, caption, canvas)]


def _deployed_panel(axes: Axes, material: Material, kind: Kind) -> None:
    paper = material.paper
    x, y = deployed_points(axes, paper, kind)
    quiet = noiseless_points(paper, kind)
    mark_noiseless(axes, quiet)
    draw_frontier(axes, x, y, quiet, kind, width=2.6)
    placed = any(one.words.startswith("I-GDP") for one in quiet)
    _decorate(axes, material, paper, shaded=True, with_line=not placed)


def deployed_points(axes: Axes, results: Results, kind: Kind, *, strength: float = 0.65) -> tuple[Array, Array]:
    """Points of every noisy method by clean accuracy and what the strongest attack finds; answers with all of them."""
    words = {DATA_NOISE: "private-data noise", ANCHOR_NOISE: "anchor noise", BOTH_NOISES: "both noises"}
    shapes = {DATA_NOISE: "o", ANCHOR_NOISE: "s", BOTH_NOISES: "^"}
    every_x, every_y = [np.empty(0)], [np.empty(0)]
    for method, name in words.items():
        own = results.where(method=method)
        x, y = strongest(own, kind), percent(own, "balanced_accuracy_clean")
        good = np.isfinite(x) & np.isfinite(y)
        observations(
            axes,
            x[good],
            y[good],
            colour=METHOD_COLOURS[method],
            marker=shapes[method],
            strength=strength,
            size=4.8,
            label=f"{name} ({int(good.sum())} draws)",
        )
        every_x.append(x)
        every_y.append(y)
    return np.concatenate(every_x), np.concatenate(every_y)


def _star(axes: Axes, x: float | None, y: float | None, label: str) -> None:
    if x is not None and y is not None:
        axes.plot([x], [y], "*", color=INK, markersize=13, linestyle="none", label=label, zorder=7)


def _decorate(axes: Axes, material: Material, paper: Results, *, shaded: bool = False, with_line: bool = True) -> None:
    chance = guessing_level(material.study)
    drawn = [np.asarray(line.get_xydata(), dtype=float) for line in axes.get_lines()]
    percent_axis(axes, low=utility_floor(chance, *(line[:, 1] for line in drawn)))
    percent_axis(axes, across=True, high=round_top(*(line[:, 0] for line in drawn)))
    alone = local_only(paper)
    axes.axvline(LINKAGE_CHANCE, color=GREY, linestyle=":", linewidth=1.2, label="_chance", zorder=1.5)
    if shaded:
        shade_below(axes, alone)
    labels = comparison_levels(
        axes,
        local=alone,
        pooled=pooled_raw(paper),
        independent=accuracy_of(paper, INDEPENDENT) if with_line else None,
        chance=chance,
    )
    end_labels(axes, labels)


def _legend(axes: Axes) -> tuple[list[Any], list[str]]:
    """Entries that no label in the chart names already."""
    named = {"pooled raw", "local only", "I-GDP", "random guessing", "worse than training alone"}
    handles, labels = axes.get_legend_handles_labels()
    kept = [(handle, label) for handle, label in zip(handles, labels, strict=True) if label not in named]
    return [handle for handle, _ in kept], [label for _, label in kept]
