"""Both noises together: one mechanism with two scales, the paper's two methods its edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.labels import (
    ANCHOR_NOISE,
    BOTH_NOISES,
    CLEAN_AXIS,
    DATA_NOISE,
    GREY,
    INK,
    LINKAGE_CHANCE,
    METHOD_WORDS,
    guessing_level,
    title_of,
)
from mooring_studies.figures.operating_points import draw_frontier, mark_noiseless, noiseless_points
from mooring_studies.figures.series import Material, column, local_only, luck, percent, pooled_raw, strongest
from mooring_studies.figures.style import (
    comparison_levels,
    empty_canvas,
    end_labels,
    percent_axis,
    utility_floor,
)
from mooring_studies.figures.tradeoff import deployed_points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Kind, Results

Array = NDArray[np.float64]
_METHODS = (DATA_NOISE, ANCHOR_NOISE, BOTH_NOISES)
_MEASURES: tuple[Kind, ...] = ("match", "linkage")
_WORDS = {"match": "matched directly", "linkage": "linked by the auditor"}
_FEWEST, _SMOOTHING, _CELLS, _NEAR = 8, 0.05, 50, 0.35  # near: as a share of either range


def draw_both_noises(material: Material) -> list[Drawing]:
    """Utility and leakage over both scales, and the frontier; nothing where both noises were not drawn together."""
    paper = material.paper
    own = paper.where(method=BOTH_NOISES)
    if not len(own):
        return []
    title = f"{title_of(material.study)}: both noises together, utility and leakage"
    canvas = empty_canvas(height=8.8, title=title)
    halves: Any = canvas.subfigures(2, 1, height_ratios=[1.0, 1.15])
    above, below = halves
    measured = [kind for kind in _MEASURES if paper.where(method=list(_METHODS)).attacks(kind)] or [_MEASURES[0]]
    surfaces = above.subplots(1, 1 + len(measured), squeeze=False)[0]
    fronts = below.subplots(1, len(measured), squeeze=False, sharey=True)[0]
    sigma, v, utility = _within(paper, own, lambda rows: percent(rows, "balanced_accuracy_clean"))
    _surface(above, surfaces[0], sigma, v, utility, "Accuracy as deployed, %", "GnBu")
    shares = []
    for leaky, front, kind in zip(surfaces[1:], fronts, measured, strict=True):
        sigma, v, leakage = _within(paper, own, lambda rows, kind=kind: strongest(rows, kind))
        _surface(above, leaky, sigma, v, leakage, f"{_WORDS[kind].capitalize()}, %", "OrRd")
        counts = _frontier(front, material, paper, kind)
        shares += [
            f"{_WORDS[kind]}, " + ", ".join(f"{words.replace(', no', ' without')} {n}" for words, n in counts.items())
        ]
    _legend(below, fronts[0])
    luckily = " ".join(luck(material, kind, _METHODS).strip() for kind in measured).strip()
    caption = (
        "Above: balanced accuracy as deployed, and the share of records that the strongest attack we know gives away "
        "(ten-way; a lower bound), over the scales of both noises: matched to their source directly, and linked by the "
        "paper's auditor. Dots are draws, coloured by what was measured; the surface smooths them; the edges are draws with "
        "one noise only. Below: the same draws, utility against leakage; the black steps join the points that no other "
        "beats, those without noise among them, and run on level to the greatest leakage. On that frontier: "
        f"{'; '.join(shares)}. Dotted: guessing. {luckily}"
    ).strip()
    return [Drawing("both-noises", title, caption, canvas)]


def _within(paper: Results, own: Results, measure: Any) -> tuple[Array, Array, Array]:
    """Draws of both noises, and those of one noise within the same ranges: the surface's edges."""
    parts = []
    top_sigma, top_v = np.nanmax(column(own, "data_noise_scale")), np.nanmax(column(own, "anchor_noise_scale"))
    for method in _METHODS:
        rows = paper.where(method=method)
        sigma, v, z = column(rows, "data_noise_scale"), column(rows, "anchor_noise_scale"), measure(rows)
        inside = np.isfinite(z) & (np.nan_to_num(sigma) <= top_sigma) & (np.nan_to_num(v) <= top_v)
        parts.append((np.nan_to_num(sigma[inside]), np.nan_to_num(v[inside]), z[inside]))
    sigma, v, z = (np.concatenate(each) for each in zip(*parts, strict=True))
    return sigma, v, z


def _surface(canvas: Any, axes: Axes, sigma: Array, v: Array, z: Array, heading: str, colours: str) -> None:
    axes.set(title=heading, xlabel="private-data noise, σ", ylabel="anchor noise, v")
    axes.grid(False)
    if len(z) == 0:
        axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color=GREY)
        return
    low = min(90.0, max(0.0, 10 * np.floor(z.min() / 10)))
    high = min(100.0, max(low + 10, 10 * np.ceil(z.max() / 10)))
    scale = {"cmap": colours, "vmin": low, "vmax": high}
    smooth = _smooth(sigma, v, z)
    if smooth is not None:
        _bands(axes, smooth, np.arange(low, high + 2.5, 5), colours)
    drawn = axes.scatter(sigma, v, c=z, s=13, edgecolors=GREY, linewidths=0.6, **scale)
    across, up = (
        float(sigma.max()) or 1.0,
        float(v.max()) or 1.0,
    )  # one noise only: its axis needs a length all the same
    axes.set_xlim(-0.02 * across, 1.02 * across)
    axes.set_ylim(-0.02 * up, 1.02 * up)
    bar = canvas.colorbar(drawn, ax=axes, aspect=28, pad=0.02)
    bar.outline.set_visible(False)


def _bands(axes: Axes, smooth: Any, levels: Array, colours: str) -> None:
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
    lines = axes.contour(x, y, z, levels=levels[:-1:2], colors=INK, linewidths=0.7, alpha=0.6)
    for number in axes.clabel(lines, fmt="%.0f", fontsize=8, inline_spacing=2):
        number.set(rotation=0, transform_rotates_text=False, alpha=1.0)


def _smooth(sigma: Array, v: Array, z: Array) -> Any:
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
    found = np.where(nearest < _NEAR, np.clip(surface(wanted), 0, 100), np.nan).reshape(x.shape)
    return x, y, np.ma.masked_invalid(found)


def _frontier(axes: Axes, material: Material, paper: Results, kind: Kind) -> dict[str, int]:
    axes.set(
        title=f"The frontier: {_WORDS[kind]}", xlabel=f"{_WORDS[kind]} by the strongest attack, %", ylabel=CLEAN_AXIS
    )
    x, y = deployed_points(axes, paper, kind, strength=0.5)
    quiet = noiseless_points(paper, kind)
    best = draw_frontier(axes, x, y, quiet, kind)
    mark_noiseless(axes, quiet)
    chance = guessing_level(material.study)
    percent_axis(axes, low=utility_floor(chance, y, np.array([one.utility for one in quiet])))
    percent_axis(axes, across=True)
    axes.axvline(LINKAGE_CHANCE, color=GREY, linestyle=":", linewidth=1.2, label="_chance")
    labels = comparison_levels(axes, local=local_only(paper), pooled=pooled_raw(paper), chance=chance)
    end_labels(axes, labels)
    names = [METHOD_WORDS[method].removeprefix("C-GDP, ") for method in _METHODS]
    noisy = np.repeat(names, [len(paper.where(method=method)) for method in _METHODS])
    held = np.append(noisy, [one.words for one in quiet])[best]
    return {name: int((held == name).sum()) for name in [*names, *(one.words for one in quiet)]}


def _legend(below: Any, axes: Axes) -> None:
    named = {"pooled raw", "local only", "random guessing"}
    handles, words = axes.get_legend_handles_labels()
    shown = [(handle, word) for handle, word in zip(handles, words, strict=True) if word not in named]
    below.legend([handle for handle, _ in shown], [word for _, word in shown], loc="outside lower center", ncols=4)
