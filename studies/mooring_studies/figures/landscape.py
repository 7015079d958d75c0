"""Where joining pays: rows of a participant against the number of participants, one heat map a noise.

Legend: v the scale of anchor noise, σ that of private-data noise, s the projected rows' standard deviation, columns centred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.comparison.findings_reading import RESOLVED_GAIN
from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.labels import (
    ALIGNED,
    ALIGNED_DATA_NOISE,
    ANCHOR_NOISE,
    BLACK,
    BOTH_NOISES,
    DATA_NOISE,
    GREY,
    INK,
    LOCAL_ONLY,
    POOLED_RAW,
    STRONGEST,
    title_of,
)
from mooring_studies.figures.series import Material, column, luck, mean, percent, strongest, values
from mooring_studies.figures.style import new_canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Results

Array = NDArray[np.float64]
_METHODS = {
    ANCHOR_NOISE: "anchor noise v = {v:g}",
    DATA_NOISE: "private-data noise σ = {sigma:g} s",
    ALIGNED_DATA_NOISE: "private-data noise σ = {sigma:g} s",
    BOTH_NOISES: "v = {v:g} and σ = {sigma:g} s",
}
_NO_PROTECTION = "pooled raw, no protection"
_CELL = ("deployment", "n_participants", "rows_each")
_MOST_COLUMNS = 4


@dataclass(frozen=True)
class _Map:
    """One figure of heat maps: what a cell holds, and how it is shown."""

    name: str
    words: str
    caption: str
    bar: str
    measure: Callable[[Results], Array]
    colours: str
    number: str
    low: float = 0.0
    high: float = 1.0


def draw_landscape(material: Material) -> list[Drawing]:
    """The gain over training alone, and the leakage in two ways; nothing where no cell was run."""
    panels = list(_panels(material))
    if not panels:
        return []
    worth = panels + _pooled(material)
    found = [gains(material.results, rows) for _, rows in worth]
    limit = max(5.0, 5.0 * np.ceil(max(np.nanmax(np.abs(one), initial=0.0) for one in found) / 5))
    leakage = (
        "The share of one participant's records that the strongest attack we know matches to their source among ten of the "
        f"same class, in percent; 10 is guessing.{luck(material, 'match', _METHODS, everywhere=True)} A lower bound: a "
        f"better attack may exist. Where nearly all are matched, the map of errors tells more. {_noise_words(material)} "
        "Read each cell beside the same cell of the map of gains."
    )
    error = (
        "How far the records that the strongest attack we know rebuilds are from the true ones, as a share of how far a "
        "guess of the mean record is: 0 is a perfect copy, 1 is no better than guessing. A better attack may "
        f"exist, and come closer. {_noise_words(material)} Read each cell beside the same cell of the map of gains."
    )
    return [
        _heat_maps(material, worth if one.name == "gain" else panels, one)
        for one in (
            _Map(
                "gain", "where joining pays", _gain_caption(material, panels), "gain over local only, percentage points",
                lambda rows: gains(material.results, rows), "RdBu", "+.0f", -limit, limit,
            ),
            _Map(
                "leakage", f"what the {STRONGEST} matches", leakage, "matched, %",
                lambda rows: strongest(rows, "match"), "OrRd", ".0f", 0, 100,
            ),
            _Map(
                "leakage-error", f"how closely the {STRONGEST} rebuilds records", error,
                "error as a share of guessing's", error_share, "OrRd_r", ".2f",
            ),
        )
    ]  # fmt: skip


def _heat_maps(material: Material, panels: list[tuple[str, Results]], shown: _Map) -> Drawing:
    title = f"{title_of(material.study)}: {shown.words}"
    n_columns = min(_MOST_COLUMNS, len(panels))
    n_rows = -(-len(panels) // n_columns)
    canvas, axes = new_canvas(n_rows, n_columns, height=1.0 + 3.5 * n_rows, title=title, sharex=True, sharey=True)
    sizes = values(material.results, "rows_each")
    counts = values(material.results, "n_participants")
    scale = {"cmap": shown.colours, "vmin": shown.low, "vmax": shown.high}
    drawn: Any = None
    for k, one in enumerate(axes.flat):
        if k >= len(panels):
            one.set_axis_off()
            continue
        cells = _cells(panels[k][1], shown.measure(panels[k][1]), sizes, counts)
        drawn = one.pcolormesh(np.ma.masked_invalid(cells), edgecolors="white", linewidth=0.5, **scale)
        one.grid(False)
        one.set_title(panels[k][0])
        one.set_xticks(np.arange(len(counts)) + 0.5, [str(int(p)) for p in counts])
        one.set_yticks(np.arange(len(sizes)) + 0.5, [f"{int(size):,}" for size in sizes])
        one.tick_params(length=0)
        _numbers(one, cells, shown)
        if shown.name == "gain":
            _border(one, cells > 0, np.isfinite(cells))
    unit = f"\nσ in units of s, {_unit(material)}" if any("σ" in words for words, _ in panels) else ""
    canvas.supxlabel(f"participants{unit}", fontsize=10.5, color=INK)
    canvas.supylabel("rows of a participant", fontsize=10.5, color=INK)
    bar = canvas.colorbar(drawn, ax=list(axes.flat), location="right", aspect=30, pad=0.01, label=shown.bar)
    bar.outline.set_visible(False)
    return Drawing(shown.name, title, shown.caption, canvas)


def _gain_caption(material: Material, panels: list[tuple[str, Results]]) -> str:
    return (
        "Percentage points of balanced accuracy, as deployed, that joining gives over the mean of the participants' own "
        "models. Blue: joining pays; red: a participant does better alone; the black line runs between the two. Gains below "
        f"about {RESOLVED_GAIN:g} points, either way, are not resolved and are written in grey"
        f"{_repeated(material, panels)}. {_noise_words(material)}{_pooled_words(material)} Empty cells were not run."
    )


def _noise_words(material: Material) -> str:
    """What v and σ stand for in the panels' titles."""
    sigma = "σ on the private rows, not absolute as in other figures but as a multiple of s"
    return f"One panel a noise: v on the anchor; {sigma}, {_unit(material)}."


def _unit(material: Material) -> str:
    """What s is; how large, where the run noted it."""
    known = [cell["standard_deviation"] for cell in material.facts.get("cells", [])]
    size = f" ({min(known):.2f} to {max(known):.2f} here)" if known else ""
    return f"the standard deviation of the projected rows, columns centred{size}"


def _pooled(material: Material) -> list[tuple[str, Results]]:
    """The panel of everybody's rows without protection; none where that was not run."""
    rows = material.results.where(method=POOLED_RAW)
    return [(_NO_PROTECTION, rows)] if len(rows) else []


def _pooled_words(material: Material) -> str:
    """What the panel of pooled raw shows, and how far joining without noise is from it."""
    if not _pooled(material):
        return ""
    apart = np.abs(kept_without_noise(material.results))
    near = f"{np.mean(apart):.1f} points from it on average and {apart.max():.1f} at most" if len(apart) else ""
    return (
        " Last panel: pooled raw, one model trained in the same way on everybody's rows without any protection, over the "
        "same local only: what there is to gain."
        + (f" Joining without noise, which turns these rows and no more, is {near}, either way." if near else "")
    )


def kept_without_noise(results: Results) -> list[float]:
    """Percentage points, of every cell in every deployment, by which joining without noise is above pooled raw."""
    pooled, joint = (results.where(method=method) for method in (POOLED_RAW, ALIGNED))
    known = dict(zip(_places(pooled), percent(pooled, "balanced_accuracy_clean"), strict=True))
    pairs = zip(_places(joint), percent(joint, "balanced_accuracy_clean"), strict=True)
    return [float(score - known[place]) for place, score in pairs if place in known]


def _places(rows: Results) -> list[tuple[float, ...]]:
    """The cell and deployment of every row."""
    return list(zip(*(column(rows, name) for name in _CELL), strict=True))


def _panels(material: Material) -> Iterator[tuple[str, Results]]:
    """One part of the table for every noise: the anchor's first, then the rows', then both."""
    results, sigma = material.results, noise_levels(material)
    v = np.round(column(results, "anchor_noise_scale"), 6)
    methods = results["method"]
    for method, words in _METHODS.items():
        own = np.array([one == method for one in methods], dtype=bool)
        for pair in np.unique(np.stack([v[own], sigma[own]], axis=1), axis=0):
            chosen = own & (v == pair[0]) & (sigma == pair[1])
            yield words.format(v=pair[0], sigma=pair[1]), results.only(chosen)


def noise_levels(material: Material) -> Array:
    """σ of every row as a multiple of s, as the study's settings give it.

    Where the run noted a standard deviation for every cell, scales are absolute and are divided by it; otherwise they are
    taken to be in these units already.
    """
    results = material.results
    sigma = np.nan_to_num(column(results, "data_noise_scale"))
    known = {
        tuple(cell[name] for name in _CELL): cell["standard_deviation"] for cell in material.facts.get("cells", [])
    }
    size = np.array([known.get(place, 1.0) for place in _places(results)], dtype=float)
    return np.asarray(np.round(sigma / size, 3), dtype=float)


def gains(results: Results, rows: Results) -> Array:
    """Percentage points over the mean of the participants' own models in the same cell of the same deployment."""
    worth, alone = percent(rows, "balanced_accuracy_clean"), percent(rows, "local_only")
    if np.isfinite(alone).any():
        return worth - alone
    own = results.where(method=LOCAL_ONLY)
    places = np.stack([column(own, name) for name in _CELL], axis=1)
    score = percent(own, "balanced_accuracy_clean")
    for k, place in enumerate(_places(rows)):
        found = mean(score[(places == place).all(axis=1)])
        alone[k] = np.nan if found is None else found
    return worth - alone


def error_share(rows: Results) -> Array:
    """The strongest attack's error as a share of what guessing the mean record gives; NaN where either is missing."""
    return np.asarray(strongest(rows, "error") / column(rows, "error:guessing"), dtype=float)


def _repeated(material: Material, panels: list[tuple[str, Results]]) -> str:
    """How much gains of one cell differ between deployments, in words; nothing where no cell was repeated."""
    apart = np.concatenate([differences(rows, gains(material.results, rows)) for _, rows in panels])
    if not len(apart):
        return ""
    return (
        f": between two deployments a cell's gain differs by {np.mean(apart):.1f} points on average, and by more than "
        f"{np.percentile(apart, 95):.0f} in one cell of twenty"
    )


def differences(rows: Results, measured: Array) -> Array:
    """How far a measure of one cell is apart in two deployments, of every cell that the first two have."""
    sizes, counts, deployment = values(rows, "rows_each"), values(rows, "n_participants"), column(rows, "deployment")
    each = [
        _cells(rows.only(deployment == one), measured[deployment == one], sizes, counts)
        for one in values(rows, "deployment")[:2]
    ]
    apart = np.abs(each[0] - each[1]) if len(each) == 2 else np.empty(0)
    return np.asarray(apart[np.isfinite(apart)])


def _cells(rows: Results, measured: Array, sizes: list[float], counts: list[float]) -> Array:
    """Means over deployments and draws, rows of a participant by participants; NaN where a cell was not run."""
    cells = np.full((len(sizes), len(counts)), np.nan)
    across, up = column(rows, "n_participants"), column(rows, "rows_each")
    for i, size in enumerate(sizes):
        for j, count in enumerate(counts):
            found = mean(measured[(up == size) & (across == count)])
            cells[i, j] = np.nan if found is None else found
    return cells


def _numbers(axes: Axes, cells: Array, shown: _Map) -> None:
    """Every cell's number: white on dark colours, grey where a gain is not resolved."""
    for (i, j), value in np.ndenumerate(cells):
        if np.isfinite(value):
            text = f"{value:{shown.number}}"
            colour = "white" if _is_dark(value, shown) else INK
            if shown.name == "gain" and abs(value) < RESOLVED_GAIN:
                colour = GREY
            axes.text(
                j + 0.5, i + 0.5, "0" if text in ("+0", "-0") else text, ha="center", va="center", fontsize=7.5, color=colour
            )  # fmt: skip
        else:
            axes.plot(j + 0.5, i + 0.5, ".", color=GREY, markersize=1.5, label="_not run")


def _is_dark(value: float, shown: _Map) -> bool:
    place = (value - shown.low) / (shown.high - shown.low)
    if shown.name == "gain":
        return abs(2 * place - 1) > 0.6
    return place < 0.4 if shown.colours.endswith("_r") else place > 0.6


def _border(axes: Axes, pays: NDArray[np.bool_], known: NDArray[np.bool_]) -> None:
    """Black edges between cells where joining pays and cells where it does not."""
    beside = known[:, 1:] & known[:, :-1] & (pays[:, 1:] != pays[:, :-1])
    above = known[1:] & known[:-1] & (pays[1:] != pays[:-1])
    edges = [([j + 1, j + 1], [i, i + 1]) for i, j in np.argwhere(beside)]
    edges += [([j, j + 1], [i + 1, i + 1]) for i, j in np.argwhere(above)]
    for x, y in edges:
        axes.plot(x, y, color=BLACK, linewidth=2.2, solid_capstyle="round", label="joining pays", zorder=4)
