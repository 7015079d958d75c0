"""Curves with their bands where one measured quantity is drawn against another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.fits import Line, Track
from mooring_studies.figures.labels import BLACK, INK
from mooring_studies.figures.style import spread_out

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.path import Path as Outline

Array = NDArray[np.float64]
RIBBON_RULE = "shaded: all that the 95 % bands of both quantities span together, from noise to noise"
_STATIONS = 20
_CORE = "_core "
_NAME_HEIGHT, _BESIDE = 0.036, 3.0  # of the upward axis, and percentage points


def ribbon(axes: Axes, line: Line | None, *, colour: str, style: Any, label: str, width: float = 2.0) -> None:
    """A curve of one quantity on the other, with its band."""
    if line is not None:
        axes.fill_between(line.x, line.lower, line.upper, color=colour, alpha=0.15, linewidth=0, zorder=2.5)
        axes.plot(line.x, line.y, color=colour, linestyle=style, linewidth=width, label=label, zorder=4)


def track_ribbon(axes: Axes, track: Track | None, colour: str, style: Any, label: str, *, width: float = 2.0) -> None:
    """Two curves on the noise drawn against each other, with all that their bands span together."""
    from matplotlib.patches import PathPatch

    if track is None:
        return
    outline = spanned(track)
    if outline is not None:
        axes.add_patch(PathPatch(outline, color=colour, alpha=0.12, linewidth=0, zorder=2.5, label="_ribbon"))
    axes.plot(track.across.y, track.up.y, color=colour, linestyle=style, linewidth=width, label=label, zorder=5)


def cored_track(axes: Axes, track: Track | None, colour: str, label: str, name: str) -> None:
    """A black track with a colour inside all along, and a diamond where noise is strongest: several can be told apart."""
    if track is None:
        return
    x, y = track.across.y, track.up.y
    track_ribbon(axes, track, BLACK, "-", label, width=3.6)
    axes.plot(x, y, color=colour, linewidth=1.5, label=f"{_CORE}{name}", zorder=5.5)
    axes.plot(x[-1:], y[-1:], "D", color=colour, markeredgecolor=BLACK, markersize=6, label="_end", zorder=8)


def label_starts(axes: Axes) -> None:
    """Name every track of `cored_track` where noise is weakest, beside it on the right, moved apart where names overlap."""
    cores = [line for line in axes.get_lines() if str(line.get_label()).startswith(_CORE)]
    starts = [np.asarray(line.get_xydata(), dtype=float)[0] for line in cores]
    low, high = axes.get_ylim()
    order = sorted(range(len(cores)), key=lambda k: float(starts[k][1]))
    height = _NAME_HEIGHT * (high - low)
    places = spread_out([float(starts[k][1]) for k in order], [height] * len(order))
    right = max((float(start[0]) for start in starts), default=0.0) + _BESIDE
    for k, place in zip(order, places, strict=True):
        axes.annotate(
            str(cores[k].get_label()).removeprefix(_CORE), xy=(starts[k][0], starts[k][1]), xytext=(right, place),
            color=INK, fontsize=8, va="center", annotation_clip=False, zorder=9,
            arrowprops={"arrowstyle": "-", "color": BLACK, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0, "relpos": (0, 0.5)},
        )  # fmt: skip


def spanned(track: Track) -> Outline | None:
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


def _same_way_round(pieces: Array) -> Array:
    """Four-cornered pieces of shape (n, 4, 2), turned to run anticlockwise; those without any area are left out."""
    x, y = pieces[..., 0], pieces[..., 1]
    area = (x * np.roll(y, -1, axis=1) - np.roll(x, -1, axis=1) * y).sum(axis=1)
    turned = np.where(area[:, None, None] < 0, pieces[:, ::-1], pieces)
    kept = turned[area != 0]
    return kept if len(kept) else turned[:1]
