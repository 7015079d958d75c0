"""Where joining pays: rows of a participant against the number of participants, one heat map a noise.

Legend: v the scale of anchor noise, σ that of private-data noise, s the projected rows' standard deviation, columns centred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooring.typing import Vector
from mooring_studies.comparison.reading import RESOLVED_GAIN
from mooring_studies.comparison.results import Results
from mooring_studies.figures import chart, fits, readings, terms

_METHODS = {
    terms.ANCHOR_NOISE: "anchor noise v = {v:g}",
    terms.DATA_NOISE: "private-data noise σ = {sigma:g} s",
    terms.ALIGNED_DATA_NOISE: "private-data noise σ = {sigma:g} s",
    terms.BOTH_NOISES: "v = {v:g} and σ = {sigma:g} s",
}
_NO_PROTECTION = "pooled raw, no protection"
_SCORE = "balanced_accuracy_clean"
_CELL = ("deployment", "n_participants", "rows_each")
_MOST_COLUMNS = 4
_ALONE = ((terms.LOCAL_ONLY, ""), (terms.ALONE_ON_FEATURES, ""), (terms.ALONE_ON_FEATURES, ":svm"))  # and a learner


@dataclass(frozen=True)
class _Map:
    """One figure of heat maps: what a cell holds, and how it is shown."""

    name: str
    words: str
    bar: str
    measure: Callable[[Results], Vector]
    colours: str
    number: str
    low: float = 0.0
    high: float = 1.0


def draw_landscape(material: fits.Material) -> list[chart.Drawing]:
    """The gain over training alone, and the leakage by two measures; nothing where no cell was run."""
    results, panels = material.results, list(_panels(material))
    if not panels:
        return []
    pooled = results.where(method=terms.POOLED_RAW)
    summed = results.where(method=terms.SECURE_SUM)
    epsilons = [None, *summed.values("epsilon")[::-1]] if len(summed) else []
    sums = [(terms.name_sums(epsilon), summed.where(epsilon=epsilon)) for epsilon in epsilons]
    worth = panels + ([(_NO_PROTECTION, pooled)] if len(pooled) else [])
    grids = [gains(results, rows) for _, rows in worth]
    limit = max(5.0, 5.0 * np.ceil(max(np.nanmax(np.abs(grid), initial=0.0) for grid in grids) / 5))
    gain = _Map(
        "gain", "where joining pays", "gain over local only, percentage points", lambda rows: gains(results, rows),
        "RdBu", "+.0f", -limit, limit,
    )  # fmt: skip
    matched = _Map(
        "leakage", f"what the {terms.STRONGEST} matches", "matched, %", lambda rows: rows.leakage("match"),
        "OrRd", ".0f", 0, 100,
    )  # fmt: skip
    error = _Map(
        "leakage-error", f"how closely the {terms.STRONGEST} rebuilds records", "error as a share of guessing's",
        error_share, "OrRd_r", ".2f",
    )  # fmt: skip
    max_of_k = material.describe_max_of_k("match", _METHODS, everywhere=True)
    repeated = np.concatenate([compare_deployments(rows, gains(results, rows)) for _, rows in panels])
    values: dict[str, Any] = {
        "resolved": f"{RESOLVED_GAIN:g}",
        "repeated": np.mean(repeated) if len(repeated) else None,
        "sums": len(sums),
    }
    recognised = _Map(
        "membership", "members that are recognised in secure sums", "members recognised, %",
        lambda rows: rows.percent("membership_tpr"), "OrRd", ".0f", 0, 100,
    )  # fmt: skip
    allowed = summed.where(epsilon=1.0).percent("membership_limit") if sums else np.empty(0)
    permitted = f"{allowed.mean():.2f}" if len(allowed) else "–"
    return [
        chart.describe(_draw_maps(material, worth + sums, gain), "gain", "gain", **values),
        *(
            [chart.describe(_draw_maps(material, sums, recognised), "membership", "membership", limit=permitted)]
            if sums
            else []
        ),
        chart.describe(_draw_maps(material, panels, matched), "leakage", "leakage", max_of_k=max_of_k),
        chart.describe(_draw_maps(material, panels, error), "leakage-error", "leakage_error"),
    ]


def _draw_maps(material: fits.Material, panels: list[tuple[str, Results]], shown: _Map) -> Any:
    n_columns = min(_MOST_COLUMNS, len(panels))
    n_rows = -(-len(panels) // n_columns)
    title, height = material.title(shown.words), 1.0 + 3.5 * n_rows
    canvas, axes = chart.make_axes(title, n_rows, n_columns, height=height, sharex=True, sharey=True)
    sizes = material.results.values("rows_each")
    counts = material.results.values("n_participants")
    scale = {"cmap": shown.colours, "vmin": shown.low, "vmax": shown.high}
    drawn: Any = None
    for k, panel in enumerate(axes.flat):
        if k >= len(panels):
            panel.set_axis_off()
            continue
        cells = _cells(panels[k][1], shown.measure(panels[k][1]), sizes, counts)
        drawn = panel.pcolormesh(np.ma.masked_invalid(cells), edgecolors="white", linewidth=0.5, **scale)
        panel.grid(False)
        panel.set_title(panels[k][0])
        panel.set_xticks(np.arange(len(counts)) + 0.5, [str(int(p)) for p in counts])
        panel.set_yticks(np.arange(len(sizes)) + 0.5, [f"{int(size):,}" for size in sizes])
        panel.tick_params(length=0)
        _numbers(panel, cells, shown)
        if shown.name == "gain":
            _border(panel, cells > 0, np.isfinite(cells))
    unit = f"\nσ in units of s, {_describe_unit(material)}" if any("σ" in words for words, _ in panels) else ""
    canvas.supxlabel(f"participants{unit}", fontsize=10.5, color=terms.INK)
    canvas.supylabel("rows of a participant", fontsize=10.5, color=terms.INK)
    bar = canvas.colorbar(drawn, ax=list(axes.flat), location="right", aspect=30, pad=0.01, label=shown.bar)
    bar.outline.set_visible(False)
    return canvas


def _describe_unit(material: fits.Material) -> str:
    """What s is; how large, where the run noted it."""
    known = [cell["standard_deviation"] for cell in material.facts.get("cells", [])]
    size = f" ({min(known):.2f} to {max(known):.2f} here)" if known else ""
    return f"the standard deviation of the projected rows, columns centred{size}"


def _places(rows: Results) -> list[tuple[float, ...]]:
    """The cell and deployment of every row."""
    return list(zip(*(rows.numbers(name) for name in _CELL), strict=True))


def _panels(material: fits.Material) -> Iterator[tuple[str, Results]]:
    """One part of the table for every noise: the anchor's first, then the rows', then both."""
    results, sigma = material.results, noise_levels(material)
    v = np.round(results.numbers("anchor_noise_scale"), 6)
    methods = results["method"]
    for method, words in _METHODS.items():
        of_method = np.array([name == method for name in methods], dtype=bool)
        for pair in np.unique(np.stack([v[of_method], sigma[of_method]], axis=1), axis=0):
            chosen = of_method & (v == pair[0]) & (sigma == pair[1])
            yield words.format(v=pair[0], sigma=pair[1]), results.only(chosen)


def noise_levels(material: fits.Material) -> Vector:
    """σ of every row as a multiple of s, as the study's settings give it.

    Where the run noted a standard deviation for every cell, scales are absolute and are divided by it; otherwise they are
    taken to be in these units already.
    """
    results = material.results
    sigma = np.nan_to_num(results.numbers("data_noise_scale"))
    known = {
        tuple(cell[name] for name in _CELL): cell["standard_deviation"] for cell in material.facts.get("cells", [])
    }
    size = np.array([known.get(place, 1.0) for place in _places(results)], dtype=float)
    return np.asarray(np.round(sigma / size, 3), dtype=float)


def gains(results: Results, rows: Results) -> Vector:
    """Percentage points over the mean of the participants' own models in the same cell of the same deployment.

    Secure sums have other features than the rest: they are held against the better of such models, on these features too.
    """
    is_sum = bool(len(rows)) and rows["method"][0] == terms.SECURE_SUM
    alone: Vector = np.full(len(rows), np.nan)
    for method, learner in _ALONE if is_sum else _ALONE[:1]:
        models = results.where(method=method)
        places = np.stack([models.numbers(name) for name in _CELL], axis=1)
        score = models.percent(f"{_SCORE}{learner}")
        for k, place in enumerate(_places(rows)):
            average = readings.mean(score[(places == place).all(axis=1)])
            alone[k] = np.fmax(alone[k], np.nan if average is None else average)
    return rows.percent(_SCORE) - alone


def error_share(rows: Results) -> Vector:
    """The strongest attack's error as a share of what guessing the mean record gives; NaN where either is missing."""
    return np.asarray(rows.leakage("error") / rows.numbers("error:guessing"), dtype=float)


def compare_deployments(rows: Results, measured: Vector) -> Vector:
    """How far a measure of one cell is apart in two deployments, of every cell that the first two have."""
    sizes, counts, deployment = rows.values("rows_each"), rows.values("n_participants"), rows.numbers("deployment")
    each = [
        _cells(rows.only(deployment == number), measured[deployment == number], sizes, counts)
        for number in rows.values("deployment")[:2]
    ]
    apart = np.abs(each[0] - each[1]) if len(each) == 2 else np.empty(0)
    return np.asarray(apart[np.isfinite(apart)])


def _cells(rows: Results, measured: Vector, sizes: list[float], counts: list[float]) -> Vector:
    """Means over deployments and draws, rows of a participant by participants; NaN where a cell was not run."""
    cells = np.full((len(sizes), len(counts)), np.nan)
    across, up = rows.numbers("n_participants"), rows.numbers("rows_each")
    for i, size in enumerate(sizes):
        for j, count in enumerate(counts):
            average = readings.mean(measured[(up == size) & (across == count)])
            cells[i, j] = np.nan if average is None else average
    return cells


def _numbers(axes: chart.Axes, cells: Vector, shown: _Map) -> None:
    """Every cell's number: white on dark colours, grey where a gain is not resolved."""
    for (i, j), value in np.ndenumerate(cells):
        if np.isfinite(value):
            text = f"{value:{shown.number}}"
            colour = "white" if _is_dark(value, shown) else terms.INK
            if shown.name == "gain" and abs(value) < RESOLVED_GAIN:
                colour = terms.GREY
            axes.text(
                j + 0.5, i + 0.5, "0" if text in ("+0", "-0") else text, ha="center", va="center", fontsize=7.5, color=colour
            )  # fmt: skip
        else:
            axes.plot(j + 0.5, i + 0.5, ".", color=terms.GREY, markersize=1.5, label="_not run")


def _is_dark(value: float, shown: _Map) -> bool:
    place = (value - shown.low) / (shown.high - shown.low)
    if shown.name == "gain":
        return abs(2 * place - 1) > 0.6
    return place < 0.4 if shown.colours.endswith("_r") else place > 0.6


def _border(axes: chart.Axes, pays: NDArray[np.bool_], known: NDArray[np.bool_]) -> None:
    """Black edges between cells where joining pays and cells where it does not."""
    beside = known[:, 1:] & known[:, :-1] & (pays[:, 1:] != pays[:, :-1])
    above = known[1:] & known[:-1] & (pays[1:] != pays[:-1])
    edges = [([j + 1, j + 1], [i, i + 1]) for i, j in np.argwhere(beside)]
    edges += [([j, j + 1], [i + 1, i + 1]) for i, j in np.argwhere(above)]
    for x, y in edges:
        axes.plot(x, y, color=terms.BLACK, linewidth=2.2, solid_capstyle="round", label="joining pays", zorder=4)
