"""Utility against leakage: the paper's trade-off, the one as deployed, and that of both noises together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.figures import chart, fits, frontier, readings, terms

_PAPER: tuple[tuple[str, str, str, Any, str], ...] = (
    (terms.DATA_NOISE, "known-secret", terms.BLUE, "-", "private-data noise, known secret (paper)"),
    (terms.ANCHOR_NOISE, "procrustes", terms.VERMILION, "--", "anchor noise, Procrustes (paper)"),
)
_STRONGEST: dict[str, tuple[Any, str]] = {
    terms.DATA_NOISE: ((0, (5, 1.5)), "private-data noise"),
    terms.ANCHOR_NOISE: ("-", "anchor noise"),
}
_NOISY = tuple(terms.NOISY)
_MEASURES: dict[Kind, str] = {"match": "matched directly", "linkage": "linked by the auditor"}
_NAMED = (*terms.NAMED, "I-GDP")
_FEWEST, _SMOOTHING, _CELLS, _NEAR = 8, 0.05, 50, 0.35  # near: as a share of either range


def draw_tradeoff(material: fits.Material) -> list[chart.Drawing]:
    """The paper's trade-off under its strongest attacks, and under the strongest attack known."""
    title = material.title("utility against leakage, scored as in the paper")
    canvas, axes = chart.make_axes(title, height=6.0)
    panel, paper, on_linkage = axes[0][0], material.paper, material.study == "mnist"
    panel.set(xlabel=terms.linkage_axis(material.study), ylabel=terms.UTILITY_AXIS)
    for method, attack, colour, style, words in _PAPER:
        rows = paper.where(method=method)
        x, y = rows.percent(f"linkage:{attack}"), rows.percent("balanced_accuracy")
        filled = rows.converged if method == terms.ANCHOR_NOISE else None
        chart.draw_points(panel, x, y, colour=colour, filled=filled, alpha=0.3)
        if on_linkage:
            line = fits.fit_utility_on_linkage(material, paper, method, attack)
            chart.draw_ribbon(panel, line, colour=colour, style=style, label=words)
        else:
            track = fits.fit_attack_track(material, paper, method, attack)
            chart.draw_track(panel, track, colour, style, words)
    for method, (style, words) in _STRONGEST.items():
        rows = paper.where(method=method)
        x, y = rows.leakage("linkage"), rows.percent("balanced_accuracy")
        chart.draw_points(panel, x, y, colour=terms.BLACK, marker="D", alpha=0.35, markersize=3.0)
        track = fits.fit_strongest_track(material, paper, method)
        chart.draw_track(panel, track, terms.BLACK, style, f"{words}, {terms.STRONGEST}", width=2.6)
    leak, worth = (
        readings.mean_of(paper, terms.COMMON, "linkage:known-secret"),
        readings.accuracy_of(paper, terms.COMMON),
    )
    if leak is not None and worth is not None:
        star: dict[str, Any] = {"markersize": 13, "linestyle": "none", "label": "C-GDP, no noise", "zorder": 7}
        panel.plot([leak], [worth], "*", color=terms.INK, **star)
    _decorate(panel, material)
    chart.write_legend(canvas, chart.list_entries(panel, without=_NAMED), n_columns=2)
    return [chart.describe(canvas, "tradeoff", "tradeoff")]


def draw_tradeoff_as_deployed(material: fits.Material) -> list[chart.Drawing]:
    """Clean local scoring against the strongest attack, by direct matching and by the paper's measure, every method."""
    title = material.title("what joining costs and gives, as deployed")
    canvas, axes = chart.make_axes(title, 1, 2, height=5.6)
    panels: tuple[tuple[Kind, str, str], ...] = (
        ("match", "(a) Matched directly", terms.MATCH_AXIS),
        ("linkage", "(b) By the paper's measure", terms.linkage_axis(material.study)),
    )
    legend: dict[str, Any] = {}
    for panel, (kind, heading, across) in zip(axes[0], panels, strict=True):
        panel.set(title=heading, xlabel=across, ylabel=terms.CLEAN_AXIS)
        x, y = frontier.draw_deployed(panel, material.paper, kind)
        quiet = frontier.find_noiseless_points(material.paper, kind)
        frontier.mark_noiseless(panel, quiet)
        frontier.draw_frontier(panel, x, y, quiet, kind, width=2.6)
        placed = any(point.words.startswith("I-GDP") for point in quiet)
        _decorate(panel, material, shaded=True, with_independent=not placed)
        legend |= chart.list_entries(panel, without=_NAMED)
    chart.write_legend(canvas, legend, n_columns=3)
    return [chart.describe(canvas, "tradeoff-as-deployed", "tradeoff_as_deployed")]


def _decorate(
    axes: chart.Axes, material: fits.Material, *, shaded: bool = False, with_independent: bool = True
) -> None:
    """Axes that fit what is drawn, and the levels that utilities and leakage compare with."""
    paper, chance = material.paper, terms.guessing_level(material.study)
    drawn = [np.asarray(line.get_xydata(), dtype=float) for line in axes.get_lines()]
    chart.set_percent_axis(axes, low=chart.find_floor(chance, *(line[:, 1] for line in drawn)))
    chart.set_percent_axis(axes, across=True, high=chart.round_up(*(line[:, 0] for line in drawn)))
    chart.draw_chance_across(axes, level=1.5)
    if shaded:
        chart.shade_below(axes, readings.accuracy_of(paper, terms.LOCAL_ONLY))
    independent = readings.accuracy_of(paper, terms.INDEPENDENT) if with_independent else None
    references = readings.references(paper)
    chart.write_end_labels(axes, chart.draw_comparisons(axes, **references, independent=independent, chance=chance))


def draw_both_noises(material: fits.Material) -> list[chart.Drawing]:
    """Utility and leakage over both scales, and the frontier; nothing where both noises were not drawn together."""
    paper = material.paper
    both = paper.where(method=terms.BOTH_NOISES)
    if not len(both):
        return []
    canvas = chart.make_canvas(material.title("both noises together, utility and leakage"), height=8.8)
    halves: Any = canvas.subfigures(2, 1, height_ratios=[1.0, 1.15])
    above, below = halves
    measured = [kind for kind in _MEASURES if paper.where(method=list(_NOISY)).attacks(kind)] or ["match"]
    surfaces = above.subplots(1, 1 + len(measured), squeeze=False)[0]
    fronts = below.subplots(1, len(measured), squeeze=False, sharey=True)[0]
    draws = _select_draws(paper, both, lambda rows: rows.percent("balanced_accuracy_clean"))
    _draw_surface(above, surfaces[0], draws, "Accuracy as deployed, %", "GnBu")
    for leaky, front, kind in zip(surfaces[1:], fronts, measured, strict=True):
        draws = _select_draws(paper, both, lambda rows, kind=kind: rows.leakage(kind))  # type: ignore[misc]
        _draw_surface(above, leaky, draws, f"{_MEASURES[kind].capitalize()}, %", "OrRd")
        _draw_front(front, material, kind)
    chart.write_legend(below, chart.list_entries(fronts[0], without=_NAMED), n_columns=4)
    return [chart.describe(canvas, "both-noises", "both_noises")]


def _draw_front(axes: chart.Axes, material: fits.Material, kind: Kind) -> None:
    """Utility against leakage with the frontier."""
    paper, what = material.paper, _MEASURES[kind]
    axes.set(title=f"The frontier: {what}", xlabel=f"{what} by the strongest attack, %", ylabel=terms.CLEAN_AXIS)
    x, y = frontier.draw_deployed(axes, paper, kind, alpha=0.5)
    quiet = frontier.find_noiseless_points(paper, kind)
    frontier.draw_frontier(axes, x, y, quiet, kind)
    frontier.mark_noiseless(axes, quiet)
    chance = terms.guessing_level(material.study)
    chart.set_percent_axis(axes, low=chart.find_floor(chance, y, np.array([point.utility for point in quiet])))
    chart.set_percent_axis(axes, across=True)
    chart.draw_chance_across(axes)
    chart.write_end_labels(axes, chart.draw_comparisons(axes, **readings.references(paper), chance=chance))


def _select_draws(paper: Results, both: Results, measure: Callable[[Results], Vector]) -> tuple[Vector, Vector, Vector]:
    """Draws of both noises, and those of one noise within the same ranges: the surface's edges."""
    parts = []
    top_sigma, top_v = np.nanmax(both.numbers("data_noise_scale")), np.nanmax(both.numbers("anchor_noise_scale"))
    for method in _NOISY:
        rows = paper.where(method=method)
        sigma, v, z = rows.numbers("data_noise_scale"), rows.numbers("anchor_noise_scale"), measure(rows)
        inside = np.isfinite(z) & (np.nan_to_num(sigma) <= top_sigma) & (np.nan_to_num(v) <= top_v)
        parts.append((np.nan_to_num(sigma[inside]), np.nan_to_num(v[inside]), z[inside]))
    sigma, v, z = (np.concatenate(each) for each in zip(*parts, strict=True))
    return sigma, v, z


def _draw_surface(
    canvas: Any, axes: chart.Axes, draws: tuple[Vector, Vector, Vector], heading: str, colours: str
) -> None:
    """A measure over both scales: draws as dots, and a smooth surface through them."""
    sigma, v, z = draws
    axes.set(title=heading, xlabel="private-data noise, σ", ylabel="anchor noise, v")
    axes.grid(False)
    if len(z) == 0:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color=terms.GREY)
        return
    low = min(90.0, max(0.0, 10 * np.floor(z.min() / 10)))
    high = min(100.0, max(low + 10, 10 * np.ceil(z.max() / 10)))
    shades = {"cmap": colours, "vmin": low, "vmax": high}
    smooth = smooth_surface(sigma, v, z)
    if smooth is not None:
        _draw_bands(axes, smooth, np.arange(low, high + 2.5, 5), colours)
    drawn = axes.scatter(sigma, v, c=z, s=13, edgecolors=terms.GREY, linewidths=0.6, **shades)
    across, up = (
        float(scale.max()) or 1.0 for scale in (sigma, v)
    )  # one noise only: its axis needs a length all the same
    axes.set_xlim(-0.02 * across, 1.02 * across)
    axes.set_ylim(-0.02 * up, 1.02 * up)
    bar = canvas.colorbar(drawn, ax=axes, aspect=28, pad=0.02)
    bar.outline.set_visible(False)


def _draw_bands(axes: chart.Axes, smooth: Any, levels: Vector, colours: str) -> None:
    """The surface in steps, with upright numbers on its lines.

    A step has the colour of the surface's own mean within it, not of its middle: where all is 100 %, the surface is as dark
    as the draws.
    """
    from matplotlib import colormaps

    x, y, z = smooth
    low, high = levels[0], levels[-1]
    inside = np.clip(z, low, high)
    known = inside.compressed()
    which = np.clip(np.searchsorted(levels, known, side="left") - 1, 0, len(levels) - 2)
    counts = np.bincount(which, minlength=len(levels) - 1)
    middles = (levels[:-1] + levels[1:]) / 2
    means = np.where(counts > 0, np.bincount(which, known, len(middles)) / np.maximum(counts, 1), middles)
    shades = colormaps[colours]((means - low) / (high - low))
    axes.contourf(x, y, inside, levels=levels, colors=shades)
    lines = axes.contour(x, y, z, levels=levels[:-1:2], colors=terms.INK, linewidths=0.7, alpha=0.6)
    for number in axes.clabel(lines, fmt="%.0f", fontsize=8, inline_spacing=2):
        number.set(rotation=0, transform_rotates_text=False, alpha=1.0)


def smooth_surface(sigma: Vector, v: Vector, z: Vector) -> Any:
    """A smooth surface through the draws as (x, y, z) grids, hidden where no draw is near; None where draws are too few."""
    from scipy.interpolate import RBFInterpolator

    across, up = float(np.ptp(sigma)), float(np.ptp(v))
    if len(z) < _FEWEST or across == 0 or up == 0:
        return None
    points, first = np.unique(np.stack([sigma / across, v / up], axis=1), axis=0, return_index=True)
    if len(points) < _FEWEST or np.linalg.svd(points - points.mean(axis=0), compute_uv=False)[1] < 1e-6:
        return None
    surface = RBFInterpolator(points, z[first], kernel="thin_plate_spline", smoothing=_SMOOTHING)
    x, y = np.meshgrid(np.linspace(0, sigma.max(), _CELLS), np.linspace(0, v.max(), _CELLS))
    wanted = np.stack([x.ravel() / across, y.ravel() / up], axis=1)
    nearest = np.sqrt(((wanted[:, None, :] - points[None]) ** 2).sum(axis=-1)).min(axis=1)
    # Smoothing overshoots where draws are at an end of the scale; a share cannot.
    values = np.where(nearest < _NEAR, np.clip(surface(wanted), 0, 100), np.nan).reshape(x.shape)
    return x, y, np.ma.masked_invalid(values)
