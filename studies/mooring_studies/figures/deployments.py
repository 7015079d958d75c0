"""Spread between deployments (other splits, maps, anchors and seeds) beside the spread of noise within one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.fits import BAND_RULE, GAP_RULE, Line, held
from mooring_studies.figures.labels import (
    ANCHOR_AXIS,
    ANCHOR_NOISE,
    BLACK,
    BLUE,
    CLEAN_AXIS,
    DATA_AXIS,
    DATA_NOISE,
    GREY,
    GUESSING,
    LINKAGE_CHANCE,
    ORANGE,
    guessing_level,
    title_of,
)
from mooring_studies.figures.series import (
    Material,
    column,
    local_only,
    luck,
    mean,
    percent,
    pooled_raw,
    strongest,
    values,
)
from mooring_studies.figures.style import (
    EndLabel,
    comparison_levels,
    end_labels,
    level,
    new_canvas,
    percent_axis,
    utility_floor,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Results

Array = NDArray[np.float64]
Measure = Callable[["Results"], Array]


def draw_deployments(material: Material) -> list[Drawing]:
    """One thin curve a deployment, their mean, and both spreads; nothing where there is one deployment only."""
    known = values(material.results, "deployment")
    if len(known) < 2:
        return []
    title = f"{title_of(material.study)}: other deployments, other noise"
    canvas, axes = new_canvas(2, 2, height=7.6, title=title)
    measures: list[tuple[str, Measure]] = [
        (CLEAN_AXIS, lambda rows: percent(rows, "balanced_accuracy_clean")),
        ("matched by the strongest attack, %", lambda rows: strongest(rows, "match")),
    ]
    methods = ((DATA_NOISE, "data_noise_scale", DATA_AXIS), (ANCHOR_NOISE, "anchor_noise_scale", ANCHOR_AXIS))
    notes = []
    noisy = material.results.where(method=[DATA_NOISE, ANCHOR_NOISE])
    floor = utility_floor(guessing_level(material.study), percent(noisy, "balanced_accuracy_clean"))
    for row, (up, measure) in enumerate(measures):
        for place, (method, scale, across) in enumerate(methods):
            one = axes[row][place]
            heading = "Private-data noise" if method == DATA_NOISE else "Anchor noise"
            one.set(title=heading, xlabel=across, ylabel=up)
            percent_axis(one, low=floor if row == 0 else 0.0)
            labels: list[EndLabel | None] = []
            if row == 0:
                labels += comparison_levels(
                    one,
                    local=local_only(material.results),
                    pooled=pooled_raw(material.results),
                    chance=guessing_level(material.study),
                )
            else:
                labels.append(level(one, LINKAGE_CHANCE, GUESSING, colour=GREY, style=":"))
            spread, within = _panel(one, material, known, method, scale, measure)
            end_labels(one, labels)
            if within is not None:
                what = "accuracy" if row == 0 else "leakage"
                between = "too few draws to tell" if spread is None else f"{spread:.1f}"
                notes.append(f"{heading.lower()}, {what}: {between} between, {within:.1f} within")
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))  # one entry a name
    kept = ["one deployment", "mean of deployments", "between", "within the first"]
    words = [
        "one deployment (gap: no draws)",
        "their mean",
        "range between them, where all have enough draws",
        "noise within the first (95 %)",
    ]
    shown = [(handles[name], text) for name, text in zip(kept, words, strict=True) if name in handles]
    canvas.legend([one for one, _ in shown], [text for _, text in shown], loc="outside lower center", ncols=4)
    projections = "projections, " if material.study == "mnist" else ""  # that of faces is public, and one
    caption = (
        f"{len(known)} deployments: other splits, {projections}maps, anchors and seeds. Thin curves: one each; thick: their "
        "mean. The orange band is the range of the deployments' curves; the blue band is the 95 % band of the first "
        f"deployment over its noise draws, which is what the paper's bands show. There is {BAND_RULE}, and the orange range "
        f"ends where that holds for one of the deployments: it has too few draws there to be compared. There is {GAP_RULE}, "
        "and no mean where one of the curves is missing. "
        f"Widths in percentage points, averaged over the noise: {'; '.join(notes) or 'too few draws'}."
        f"{luck(material, 'match', (DATA_NOISE, ANCHOR_NOISE), everywhere=True)}"
    )
    return [Drawing("deployments", title, caption, canvas)]


def _panel(
    axes: Axes, material: Material, known: list[float], method: str, scale: str, measure: Measure
) -> tuple[float | None, float | None]:
    """Draw one panel; answers with the mean width of the range between deployments and of the band within the first."""
    lines: list[Line] = []
    first: Line | None = None
    for deployment in known:
        rows = material.results.where(method=method, deployment=deployment)
        noise, found = column(rows, scale), measure(rows)
        line = material.fits.line(noise, found)
        if line is None:
            continue
        line = line.only(held(noise[np.isfinite(found)], line.x))
        lines.append(line)
        first = line if deployment == 0 else first
        axes.plot(line.x, line.y, color=GREY, linewidth=0.8, alpha=0.9, label="one deployment", zorder=3)
    if not lines:
        axes.text(0.5, 0.5, "too few draws", transform=axes.transAxes, ha="center", color=GREY)
        return None, None
    low, high = max(line.x[0] for line in lines), min(line.x[-1] for line in lines)
    grid = np.linspace(low, high, 120)
    each = np.stack([np.interp(grid, line.x, line.y) for line in lines])
    # Where a curve has no band, it is not known well enough to compare it with others.
    known_there = np.all([np.isfinite(np.interp(grid, line.x, line.lower)) for line in lines], axis=0)
    lowest, highest = (np.where(known_there, edge(each, axis=0), np.nan) for edge in (np.min, np.max))
    axes.fill_between(grid, lowest, highest, color=ORANGE, alpha=0.3, linewidth=0, label="between")
    if first is not None:
        axes.fill_between(
            first.x, first.lower, first.upper, color=BLUE, alpha=0.3, linewidth=0, label="within the first"
        )
    axes.plot(grid, each.mean(axis=0), color=BLACK, linewidth=2.6, label="mean of deployments", zorder=5)
    return mean(highest - lowest), None if first is None else mean(first.upper - first.lower)
