"""Axes, points, curves and labels: what every chart is made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.fits import Line
from mooring_studies.figures.labels import BLACK, BLUE, GREY, GUESSING, INK, PURPLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Array = NDArray[np.float64]
WIDTH = 11.0
"""Inches: about 1,060 pixels on a page."""
_LABEL_SIZE, _LABEL_WIDTH = 9.5, 18  # points, and letters on a line
_AXES_SHARE = 0.72  # of a figure's height, roughly, once titles and axis words are there


@dataclass(frozen=True)
class EndLabel:
    """Words at a line's right end."""

    y: float
    text: str
    colour: str
    bold: bool = False


def new_canvas(n_rows: int = 1, n_columns: int = 1, *, height: float, title: str, **options: Any) -> tuple[Canvas, Any]:
    """An empty figure with its title, and its axes as an array of `n_rows` by `n_columns`."""
    canvas = empty_canvas(height=height, title=title)
    return canvas, canvas.subplots(n_rows, n_columns, squeeze=False, **options)


def empty_canvas(*, height: float, title: str) -> Canvas:
    """A figure with nothing but its title."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
    canvas.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    return canvas


def percent_axis(axes: Axes, *, across: bool = False, low: float = 0.0, high: float = 100.0) -> None:
    """Percent, with room for a marker at either end."""
    room = 0.02 * (high - low)
    if across:
        axes.set_xlim(low - room, high + room)
    else:
        axes.set_ylim(low - room, high + room)


def round_top(*series: Array) -> float:
    """A round percentage above everything, 50 at least: what is never above 40 % needs no axis up to 100 %.

    What comes near the top gets all of it: curves may rise a little above their draws.
    """
    top = max((float(np.nanmax(one, initial=0.0)) for one in series), default=100.0)
    return 100.0 if top > 75 else float(max(50.0, 10.0 * np.ceil(top / 10 + 0.1)))


def utility_floor(chance: float, *series: Array) -> float:
    """Where an axis of balanced accuracy begins: 0; with two classes below guessing, where nothing else is to be seen."""
    lowest = min((float(np.nanmin(one, initial=100.0)) for one in series), default=0.0)
    return 40.0 if chance == 50.0 and lowest >= 40.0 else 0.0


def shade_below(axes: Axes, alone: float | None) -> None:
    """Shade the region in which a participant does better alone."""
    if alone is None:
        return
    words = "worse than training alone"
    axes.axhspan(axes.get_ylim()[0], alone, color=GREY, alpha=0.12, linewidth=0, label=words, zorder=0)
    axes.text(0.98, 0.03, words, transform=axes.transAxes, ha="right", color=GREY, fontsize=9.5, style="italic")


def observations(
    axes: Axes,
    x: Array,
    y: Array,
    *,
    colour: str,
    marker: str = "o",
    filled: NDArray[np.bool_] | None = None,
    label: str = "_draws",
    strength: float = 0.35,
    size: float = 3.6,
) -> None:
    """One faint marker a draw: filled, or open where `filled` says no."""
    shut = np.ones(len(x), dtype=bool) if filled is None else filled
    for chosen, inside in ((shut, colour), (~shut, "none")):
        if chosen.any():
            axes.plot(
                x[chosen],
                y[chosen],
                linestyle="none",
                marker=marker,
                markersize=size,
                markerfacecolor=inside,
                markeredgecolor=colour,
                markeredgewidth=0.7,
                alpha=strength,
                label=label if inside == colour else f"{label} (open)",
                zorder=2,
            )


def fitted(
    axes: Axes,
    line: Line | None,
    *,
    colour: str,
    label: str,
    style: Any = "-",
    width: float = 1.9,
    band: bool = True,
    level: int = 4,
) -> EndLabel | None:
    """A curve and its band; answers with the words for its right end."""
    if line is None:
        return None
    if band:
        axes.fill_between(line.x, line.lower, line.upper, color=colour, alpha=0.16, linewidth=0, zorder=level - 1)
    axes.plot(line.x, line.y, color=colour, linestyle=style, linewidth=width, label=label, zorder=level)
    return EndLabel(float(line.y[-1]), label, colour)


def level(axes: Axes, y: float | None, text: str, *, colour: str, style: Any, width: float = 1.2) -> EndLabel | None:
    """A horizontal line to compare with; answers with the words for its right end."""
    if y is None:
        return None
    axes.axhline(y, color=colour, linestyle=style, linewidth=width, label=text, zorder=1.5)
    return EndLabel(y, text, colour)


def comparison_levels(
    axes: Axes, *, local: float | None, pooled: float | None, independent: float | None = None, chance: float | None
) -> list[EndLabel | None]:
    """The lines that say what a utility is worth: alone, pooled, unaligned, guessing."""
    return [
        level(axes, pooled, "pooled raw", colour=INK, style=(0, (7, 2)), width=1.1),
        level(axes, local, "local only", colour=GREY, style="--", width=1.6),
        level(axes, independent, "I-GDP", colour=PURPLE, style="-."),
        level(axes, chance, GUESSING, colour=GREY, style=":"),
    ]


def noiseless_level(axes: Axes, y: float | None, text: str, *, colour: str = BLUE) -> EndLabel | None:
    """The same method without noise."""
    return level(axes, y, text, colour=colour, style="-.", width=1.2)


def end_labels(axes: Axes, labels: Sequence[EndLabel | None], *, size: float = _LABEL_SIZE) -> None:
    """Write labels right of the axes at their lines' ends, moved apart where they would overlap."""
    shown = sorted((label for label in labels if label is not None and np.isfinite(label.y)), key=lambda one: one.y)
    if not shown:
        return
    low, high = axes.get_ylim()
    canvas, place_in_grid = axes.get_figure(root=False), axes.get_subplotspec()
    assert canvas is not None
    assert place_in_grid is not None
    height = 72 * canvas.bbox.height / canvas.dpi / place_in_grid.get_gridspec().nrows
    one_line = 1.25 * size / (height * _AXES_SHARE)
    texts = [wrap(label.text, _LABEL_WIDTH, break_on_hyphens=False) for label in shown]
    heights = [one_line * (len(lines) + 0.15) for lines in texts]
    ends = [(label.y - low) / (high - low) for label in shown]
    for label, lines, end, place in zip(shown, texts, ends, spread_out(ends, heights), strict=True):
        axes.annotate(
            "\n".join(lines),
            xy=(1.0, end),
            xytext=(1.045, place),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=label.colour,
            fontsize=size,
            fontweight="bold" if label.bold else "normal",
            linespacing=1.05,
            va="center",
            ha="left",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": label.colour,
                "linewidth": 0.6,
                "shrinkA": 0,
                "shrinkB": 0,
                "relpos": (0.0, 0.5),
            },
        )


def spread_out(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Places in ascending order, moved as little as it takes for boxes of these heights around them not to overlap.

    Examples
    --------
    >>> [round(place, 2) for place in spread_out([0.1, 0.5, 0.5], [0.1, 0.1, 0.1])]
    [0.1, 0.45, 0.55]
    """
    # A box's offset from the first of its cluster; a cluster stands where its boxes' wanted first places have their mean.
    clusters: list[list[tuple[float, float]]] = []
    for place, height in zip(places, heights, strict=True):
        clusters.append([(place, height)])
        while len(clusters) > 1:
            before, last = _standing(clusters[-2]), _standing(clusters[-1])
            if last[0] - clusters[-1][0][1] / 2 >= before[-1] + clusters[-2][-1][1] / 2:
                break
            clusters[-2:] = [clusters[-2] + clusters[-1]]
    return [place for cluster in clusters for place in _standing(cluster)]


def _standing(cluster: list[tuple[float, float]]) -> list[float]:
    """Where the boxes of a cluster stand, one on the other."""
    heights = np.array([height for _, height in cluster])
    offsets = np.cumsum(heights) - heights / 2
    first = float(np.mean([place for place, _ in cluster] - offsets))
    return [float(first + offset) for offset in offsets]


def mark_transition(axes: Axes, value: float | None, *, words: str = "v_PT") -> None:
    """A thin vertical line where the power method is expected to stop converging."""
    if value is not None:
        axes.axvline(value, color=GREY, linestyle=(0, (1, 2)), linewidth=1.1, label=words, zorder=1.5)
        axes.annotate(
            words,
            xy=(value, 0.0),
            xycoords=axes.get_xaxis_transform(),
            xytext=(3, 3),
            textcoords="offset points",
            fontsize=8.5,
            color=GREY,
        )


def not_run(axes: Axes) -> None:
    """Say that a panel has nothing to show."""
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=12)


def darkest(axes: Axes, line: Line | None, *, label: str, style: Any = "-") -> EndLabel | None:
    """The strongest attack's curve: black, and thicker than all others."""
    found = fitted(axes, line, colour=BLACK, label=label, style=style, width=2.8, level=6)
    return None if found is None else EndLabel(found.y, found.text, found.colour, bold=True)
