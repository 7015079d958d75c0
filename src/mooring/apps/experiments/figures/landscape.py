"""Where joining pays: rows of a participant against the number of participants, one heat map a noise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring.apps.experiments.figures.drawing import Drawing
from mooring.apps.experiments.figures.material import Material, column, mean, percent, values
from mooring.apps.experiments.figures.style import new_canvas
from mooring.apps.experiments.figures.wording import (
    ALIGNED_DATA_NOISE,
    ANCHOR_NOISE,
    BLACK,
    BOTH_NOISES,
    DATA_NOISE,
    GREY,
    INK,
    LOCAL_ONLY,
    STRONGEST,
    title_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring.apps.experiments.comparison.results import Results

Array = NDArray[np.float64]
_MOST_COLUMNS = 4


def draw_landscape(material: Material) -> list[Drawing]:
    """The gain over training alone, and the leakage; nothing where no cell was run."""
    panels = list(_panels(material))
    if not panels:
        return []
    gain = (
        "Percentage points of balanced accuracy, as deployed, that joining gives over the mean of the participants' own "
        "models. Blue: joining pays; red: a participant does better alone; the black line runs between the two. One panel a "
        "noise: v on the anchor, σ on the private rows, in units of their size. Empty cells were not run."
    )
    leakage = (
        "The share of one participant's records that the strongest attack we know matches to their source among ten of the "
        "same class, in percent; 10 is guessing. A lower bound: a better attack may exist. Read each cell beside the same "
        "cell of the map of gains."
    )
    return [
        _heat_maps(material, panels, "gain", "where joining pays", gain),
        _heat_maps(material, panels, "leakage", f"what the {STRONGEST} matches", leakage),
    ]


def _heat_maps(material: Material, panels: list[tuple[str, Results]], name: str, words: str, caption: str) -> Drawing:
    title = f"{title_of(material.study)}: {words}"
    n_columns = min(_MOST_COLUMNS, len(panels))
    n_rows = -(-len(panels) // n_columns)
    canvas, axes = new_canvas(n_rows, n_columns, height=1.0 + 3.5 * n_rows, title=title, sharex=True, sharey=True)
    sizes = values(material.results, "rows_each")
    counts = values(material.results, "n_participants")
    grids = [_cells(material, rows, sizes, counts, name) for _, rows in panels]
    limit = max(5.0, 5.0 * np.ceil(max(np.nanmax(np.abs(grid), initial=0.0) for grid in grids) / 5))
    scale = (
        {"cmap": "RdBu", "vmin": -limit, "vmax": limit} if name == "gain" else {"cmap": "OrRd", "vmin": 0, "vmax": 100}
    )
    drawn: Any = None
    for k, one in enumerate(axes.flat):
        if k >= len(panels):
            one.set_axis_off()
            continue
        drawn = one.pcolormesh(np.ma.masked_invalid(grids[k]), edgecolors="white", linewidth=0.5, **scale)
        one.grid(False)
        one.set_title(panels[k][0])
        one.set_xticks(np.arange(len(counts)) + 0.5, [str(int(p)) for p in counts])
        one.set_yticks(np.arange(len(sizes)) + 0.5, [f"{int(size):,}" for size in sizes])
        one.tick_params(length=0)
        _numbers(one, grids[k], signed=name == "gain", limit=limit)
        if name == "gain":
            _border(one, grids[k] > 0, np.isfinite(grids[k]))
    canvas.supxlabel("participants", fontsize=10.5, color=INK)
    canvas.supylabel("rows of a participant", fontsize=10.5, color=INK)
    bar_words = "gain over local only, percentage points" if name == "gain" else "matched, %"
    bar = canvas.colorbar(drawn, ax=list(axes.flat), location="right", aspect=30, pad=0.01, label=bar_words)
    bar.outline.set_visible(False)
    return Drawing(name, title, caption, canvas)


def _panels(material: Material) -> Iterator[tuple[str, Results]]:
    """One part of the table for every noise: the anchor's first, then the rows', then both."""
    results, sigma = material.results, noise_levels(material)
    v = np.round(column(results, "anchor_noise_scale"), 6)
    methods = results["method"]
    for method, words in (
        (ANCHOR_NOISE, "anchor noise v = {v:g}"),
        (DATA_NOISE, "private-data noise σ = {sigma:g}"),
        (ALIGNED_DATA_NOISE, "private-data noise σ = {sigma:g}"),
        (BOTH_NOISES, "v = {v:g} and σ = {sigma:g}"),
    ):
        own = np.array([one == method for one in methods], dtype=bool)
        for pair in np.unique(np.stack([v[own], sigma[own]], axis=1), axis=0):
            chosen = own & (v == pair[0]) & (sigma == pair[1])
            yield words.format(v=pair[0], sigma=pair[1]), results.only(chosen)


def noise_levels(material: Material) -> Array:
    """σ of every row in units of the rows' size, as the study's settings give it.

    Where the run noted a standard deviation for every cell, scales are absolute and are divided by it; otherwise they are
    taken to be in these units already.
    """
    results = material.results
    sigma = np.nan_to_num(column(results, "data_noise_scale"))
    names = ("deployment", "n_participants", "rows_each")
    known = {
        tuple(cell[name] for name in names): cell["standard_deviation"] for cell in material.facts.get("cells", [])
    }
    places = zip(*(column(results, name) for name in names), strict=True)
    size = np.array([known.get(place, 1.0) for place in places], dtype=float)
    return np.asarray(np.round(sigma / size, 3), dtype=float)


def gains(results: Results, rows: Results) -> Array:
    """Percentage points over the mean of the participants' own models in the same cell of the same deployment."""
    worth, alone = percent(rows, "balanced_accuracy_clean"), percent(rows, "local_only")
    if np.isfinite(alone).any():
        return worth - alone
    names = ("deployment", "n_participants", "rows_each")
    own = results.where(method=LOCAL_ONLY)
    places = np.stack([column(own, name) for name in names], axis=1)
    score = percent(own, "balanced_accuracy_clean")
    for k, place in enumerate(zip(*(column(rows, name) for name in names), strict=True)):
        found = mean(score[(places == place).all(axis=1)])
        alone[k] = np.nan if found is None else found
    return worth - alone


def _cells(material: Material, rows: Results, sizes: list[float], counts: list[float], name: str) -> Array:
    """Means over deployments and draws, rows of a participant by participants; NaN where a cell was not run."""
    cells = np.full((len(sizes), len(counts)), np.nan)
    measured = gains(material.results, rows) if name == "gain" else 100 * rows.envelope("match")
    across, up = column(rows, "n_participants"), column(rows, "rows_each")
    for i, size in enumerate(sizes):
        for j, count in enumerate(counts):
            found = mean(measured[(up == size) & (across == count)])
            cells[i, j] = np.nan if found is None else found
    return cells


def _numbers(axes: Axes, cells: Array, *, signed: bool, limit: float) -> None:
    for (i, j), value in np.ndenumerate(cells):
        if np.isfinite(value):
            dark = abs(value) > 0.6 * limit if signed else value > 60
            text = f"{value:+.0f}" if signed else f"{value:.0f}"
            text = "0" if text in ("+0", "-0") else text
            axes.text(
                j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=7.5, color="white" if dark else INK
            )  # fmt: skip
        else:
            axes.plot(j + 0.5, i + 0.5, ".", color=GREY, markersize=1.5, label="_not run")


def _border(axes: Axes, pays: NDArray[np.bool_], known: NDArray[np.bool_]) -> None:
    """Black edges between cells where joining pays and cells where it does not."""
    n_rows, n_columns = pays.shape
    edges = [
        ([j + 1, j + 1], [i, i + 1])
        for i in range(n_rows)
        for j in range(n_columns - 1)
        if known[i, j] and known[i, j + 1] and pays[i, j] != pays[i, j + 1]
    ] + [
        ([j, j + 1], [i + 1, i + 1])
        for i in range(n_rows - 1)
        for j in range(n_columns)
        if known[i, j] and known[i + 1, j] and pays[i, j] != pays[i + 1, j]
    ]
    for x, y in edges:
        axes.plot(x, y, color=BLACK, linewidth=2.2, solid_capstyle="round", label="joining pays", zorder=4)
