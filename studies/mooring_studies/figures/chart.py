"""Axes, points, curves, tracks and labels: what every chart is made of; and a drawing with its caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring.report.frame import render_sentence
from mooring.typing import Vector
from mooring_studies.figures.fits import Line, Track, outline_track
from mooring_studies.figures.terms import BLACK, BLUE, GREY, GUESSING, INK, LINKAGE_CHANCE, PURPLE, WINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Canvas

WIDTH = 11.0
"""Inches: about 1,060 pixels on a page."""
_LABEL_SIZE, _LABEL_WIDTH = 9.5, 18  # points, and letters on a line
THIN_LINE: dict[str, Any] = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0.0, 0.5)}
_AXES_SHARE = 0.72  # of a figure's height, roughly, once titles and axis words are there


@dataclass(frozen=True)
class EndLabel:
    """Words at a line's right end."""

    y: float
    text: str
    colour: str
    bold: bool = False


@dataclass(frozen=True)
class Drawing:
    """A figure that is not written yet."""

    name: str
    """The file's name without its ending."""
    title: str
    caption: str
    """In plain words, for a page."""
    canvas: Canvas
    ending: str = "svg"
    """"svg" for charts, "png" for pictures."""


def describe(canvas: Canvas, name: str, macro: str, *, ending: str = "svg", **values: Any) -> Drawing:
    """A canvas with its caption: a macro of templates/captions.txt.jinja, filled with these values."""
    caption = render_sentence("captions.txt.jinja", macro, values, package="mooring_studies")
    return Drawing(name, canvas.get_suptitle(), caption, canvas, ending)


def make_canvas(title: str, *, height: float) -> Canvas:
    """A figure with nothing but its title."""
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(WIDTH, height), layout="constrained")
    canvas.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold", color=INK)
    return canvas


def make_axes(title: str, n_rows: int = 1, n_columns: int = 1, *, height: float, **options: Any) -> tuple[Canvas, Any]:
    """A figure with its title, and its axes as an array of `n_rows` by `n_columns`."""
    canvas = make_canvas(title, height=height)
    return canvas, canvas.subplots(n_rows, n_columns, squeeze=False, **options)


def list_entries(axes: Axes, *, without: Sequence[str] = ()) -> dict[str, Any]:
    """What a legend shows by its label, each once, but for labels that the chart names already."""
    handles, labels = axes.get_legend_handles_labels()
    return {label: handle for label, handle in zip(labels, handles, strict=True) if label not in without}


def write_legend(canvas: Any, entries: dict[str, Any], *, n_columns: int) -> None:
    """One legend below all panels."""
    canvas.legend(list(entries.values()), list(entries), loc="outside lower center", ncols=n_columns)


def set_percent_axis(axes: Axes, *, across: bool = False, low: float = 0.0, high: float = 100.0) -> None:
    """Percent, with room for a marker at either end."""
    room = 0.02 * (high - low)
    if across:
        axes.set_xlim(low - room, high + room)
    else:
        axes.set_ylim(low - room, high + room)


def round_up(*series: Vector) -> float:
    """A round percentage above everything, 50 at least: what is never above 40 % needs no axis up to 100 %.

    What comes near the top gets all of it: curves may rise a little above their draws.
    """
    top = max((float(np.nanmax(values, initial=0.0)) for values in series), default=100.0)
    return 100.0 if top > 75 else float(max(50.0, 10.0 * np.ceil(top / 10 + 0.1)))


def find_floor(chance: float, *series: Vector) -> float:
    """Where an axis of balanced accuracy begins: 0; with two classes below guessing, where nothing else is to be seen."""
    lowest = min((float(np.nanmin(values, initial=100.0)) for values in series), default=0.0)
    return 40.0 if chance == 50.0 and lowest >= 40.0 else 0.0


def shade_below(axes: Axes, alone: float | None) -> None:
    """Shade the region in which a participant does better alone."""
    if alone is None:
        return
    words = "worse than training alone"
    axes.axhspan(axes.get_ylim()[0], alone, color=GREY, alpha=0.12, linewidth=0, label=words, zorder=0)
    axes.text(0.98, 0.03, words, transform=axes.transAxes, ha="right", color=GREY, fontsize=9.5, style="italic")


def draw_points(
    axes: Axes,
    x: Vector,
    y: Vector,
    *,
    colour: str,
    filled: NDArray[np.bool_] | None = None,
    label: str = "_draws",
    **look: Any,
) -> None:
    """One faint marker a draw: filled, or open where `filled` says no; `look` has other settings of a marker."""
    shut = np.ones(len(x), dtype=bool) if filled is None else filled
    looks: dict[str, Any] = {
        "marker": "o",
        "markersize": 3.6,
        "alpha": 0.35,
        "markeredgewidth": 0.7,
        "zorder": 2,
    } | look
    for chosen, inside, words in ((shut, colour, label), (~shut, "none", f"{label} (open)")):
        if chosen.any():
            looks |= {"markerfacecolor": inside, "markeredgecolor": colour, "label": words}
            axes.plot(x[chosen], y[chosen], linestyle="none", **looks)


def draw_curve(
    axes: Axes, line: Line | None, *, colour: str, label: str, style: Any = "-", width: float = 1.9, level: int = 4
) -> EndLabel | None:
    """A curve and its band; answers with the words for its right end."""
    if line is None:
        return None
    axes.fill_between(line.x, line.lower, line.upper, color=colour, alpha=0.16, linewidth=0, zorder=level - 1)
    axes.plot(line.x, line.y, color=colour, linestyle=style, linewidth=width, label=label, zorder=level)
    return EndLabel(float(line.y[-1]), label, colour)


def draw_level(
    axes: Axes, y: float | None, text: str, *, colour: str, style: Any, width: float = 1.2
) -> EndLabel | None:
    """A horizontal line to compare with; answers with the words for its right end."""
    if y is None:
        return None
    axes.axhline(y, color=colour, linestyle=style, linewidth=width, label=text, zorder=1.5)
    return EndLabel(y, text, colour)


def draw_comparisons(
    axes: Axes,
    *,
    pooled: float | None,
    chance: float | None,
    local: float | None = None,
    independent: float | None = None,
    sums: Mapping[str, float | None] | None = None,
) -> list[EndLabel | None]:
    """The lines that say what a utility is worth: secure sums, pooled, alone, unaligned, guessing."""
    return [
        *(draw_level(axes, y, text, colour=WINE, style="-", width=1.3) for text, y in (sums or {}).items()),
        draw_level(axes, pooled, "pooled raw", colour=INK, style=(0, (7, 2)), width=1.1),
        draw_level(axes, local, "local only", colour=GREY, style="--", width=1.6),
        draw_level(axes, independent, "I-GDP", colour=PURPLE, style="-."),
        draw_level(axes, chance, GUESSING, colour=GREY, style=":"),
    ]


def draw_chance(axes: Axes) -> EndLabel | None:
    """The level of linkage by guessing."""
    return draw_level(axes, LINKAGE_CHANCE, GUESSING, colour=GREY, style=":")


def draw_chance_across(axes: Axes, *, x: float = LINKAGE_CHANCE, level: float = 2) -> None:
    """An upright line at leakage by guessing."""
    axes.axvline(x, color=GREY, linestyle=":", linewidth=1.2, label="_chance", zorder=level)


def draw_noiseless_level(axes: Axes, y: float | None, text: str, *, colour: str = BLUE) -> EndLabel | None:
    """The same method without noise."""
    return draw_level(axes, y, text, colour=colour, style="-.", width=1.2)


def write_end_labels(axes: Axes, labels: Sequence[EndLabel | None], *, size: float = _LABEL_SIZE) -> None:
    """Write labels right of the axes at their lines' ends, moved apart where they would overlap."""
    shown = sorted((label for label in labels if label is not None and np.isfinite(label.y)), key=lambda label: label.y)
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
            arrowprops=THIN_LINE | {"color": label.colour},
        )


def spread_out(places: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Places in ascending order, moved as little as it takes for boxes of these heights around them not to overlap.

    Examples
    --------
    >>> [round(place, 2) for place in spread_out([0.1, 0.5, 0.5], [0.1, 0.1, 0.1])]
    [0.1, 0.45, 0.55]
    """
    from scipy.optimize import isotonic_regression

    # Less the heights below each box, places need only ascend: the nearest such ones are their isotonic regression.
    below = np.cumsum(heights) - np.array(heights) / 2
    return [float(place) for place in isotonic_regression(np.array(places) - below).x + below] if len(below) else []


def mark_transition(axes: Axes, value: float | None) -> None:
    """A thin vertical line at v_PT, where the power method is expected to stop converging."""
    if value is not None:
        axes.axvline(value, color=GREY, linestyle=(0, (1, 2)), linewidth=1.1, label="v_PT", zorder=1.5)
        place: dict[str, Any] = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
        axes.annotate("v_PT", xy=(value, 0.0), xytext=(3, 3), fontsize=8.5, color=GREY, **place)


def mark_not_run(axes: Axes) -> None:
    """Say that a panel has nothing to show."""
    axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", va="center", color=GREY, fontsize=12)


def draw_strongest(axes: Axes, line: Line | None, *, label: str, style: Any = "-") -> EndLabel | None:
    """The strongest attack's curve: black, and thicker than all others."""
    ending = draw_curve(axes, line, colour=BLACK, label=label, style=style, width=2.8, level=6)
    return None if ending is None else EndLabel(ending.y, ending.text, ending.colour, bold=True)


def draw_ribbon(axes: Axes, line: Line | None, *, colour: str, style: Any, label: str, width: float = 2.0) -> None:
    """A curve of one quantity on the other, with its band."""
    if line is not None:
        axes.fill_between(line.x, line.lower, line.upper, color=colour, alpha=0.15, linewidth=0, zorder=2.5)
        axes.plot(line.x, line.y, color=colour, linestyle=style, linewidth=width, label=label, zorder=4)


def draw_track(axes: Axes, track: Track | None, colour: str, style: Any, label: str, *, width: float = 2.0) -> None:
    """Two curves on the noise drawn against each other, with all that their bands span together."""
    from matplotlib.patches import PathPatch

    if track is None:
        return
    outline = outline_track(track)
    if outline is not None:
        axes.add_patch(PathPatch(outline, color=colour, alpha=0.12, linewidth=0, zorder=2.5, label="_ribbon"))
    axes.plot(track.across.y, track.up.y, color=colour, linestyle=style, linewidth=width, label=label, zorder=5)


def make_convergence_marks(colour: str, limit: str, **look: Any) -> list[Any]:
    """A legend's entries for filled and open markers; `limit` says what the open ones mean."""
    from matplotlib.lines import Line2D

    look |= {"linestyle": "none", "marker": "o", "color": colour}
    shut, cut = Line2D([], [], label="met the stopping rule", **look), Line2D([], [], label=limit, **look)
    cut.set_markerfacecolor("none")
    return [shut, cut]
