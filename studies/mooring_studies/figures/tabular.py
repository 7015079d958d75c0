"""Hospitals and census: utility against noise, utility against leakage, and each participant's own gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.results import Kind, Results
from mooring_studies.figures import chart, fits, frontier, readings, terms
from mooring_studies.figures.readings import ACCURACY, RANKING, Worth

Groups = list[tuple[str, Results]]
ALONE = "training alone, own rows"
_EVERYBODY = "local only, everybody's rows"
_CLEAN = "balanced_accuracy_clean"
_LOOKS: dict[str, dict[str, Any]] = {
    words: {"colour": terms.METHOD_COLOURS[method], "marker": marker} for method, (words, marker) in terms.NOISY.items()
}
_NOISES = [(terms.NOISY[method][0], scale, axis) for method, scale, axis in terms.NOISES]
_NAMED = (*terms.NAMED, _EVERYBODY, ALONE)
_HALF = 0.42  # of the width between two participants that one takes, either side of its place
_PLACES = ((-_HALF + 0.12, -0.02), (0.08, _HALF - 0.04))  # of the points of either noise within that width


def draw_tables(material: fits.Material) -> list[chart.Drawing]:
    """The figures of a study of tables that are alike for all its participants."""
    groups = list(readings.split_by_rows(material.results))
    drawings = [_draw_utility(material, groups, ACCURACY)]
    if readings.mean(material.results.numbers(RANKING.clean)) is not None:
        drawings.append(_draw_utility(material, groups, RANKING))
    return [*drawings, _draw_tradeoff(material, groups)]


def _draw_utility(material: fits.Material, groups: Groups, worth: Worth) -> chart.Drawing:
    by_rank = worth is RANKING
    title = material.title("does joining rank new rows better?" if by_rank else "does joining beat training alone?")
    canvas, axes = chart.make_axes(title, len(groups), 2, height=0.7 + 4.4 * len(groups))
    for line, (heading, rows) in zip(axes, groups, strict=True):
        for panel, (words, scale, across) in zip(line, _NOISES, strict=True):
            panel.set(xlabel=across, ylabel=worth.axis)
            _draw_by_noise(panel, rows, words, scale, worth)
            panel.set_title(f"{words.capitalize()}{heading}")
    name, deployments = "utility-auc" if by_rank else "utility", _count_deployments(material)
    return chart.describe(canvas, name, "tables_utility", by_rank=by_rank, deployments=deployments)


def _draw_tradeoff(material: fits.Material, groups: Groups) -> chart.Drawing:
    title = material.title("what joining costs and gives, as deployed")
    canvas, axes = chart.make_axes(title, len(groups), 2, height=1.1 + 4.4 * len(groups))
    for line, (heading, rows) in zip(axes, groups, strict=True):
        _draw_operating_points(line[0], rows, "match")
        _draw_operating_points(line[1], rows, "error")
        line[0].set(title=f"By matching{heading}", xlabel=f"matched by the {terms.STRONGEST}, %")
        line[1].set(title=f"By error{heading}", xlabel="relative error of that attack (safer to the left)")
    chart.write_legend(canvas, chart.list_entries(axes[0][0], without=_NAMED), n_columns=4)
    max_of_k = material.describe_max_of_k("match", readings.name_noisy_methods(material.results), everywhere=True)
    return chart.describe(canvas, "tradeoff", "tables_tradeoff", max_of_k=max_of_k)


def _draw_by_noise(axes: chart.Axes, rows: Results, words: str, scale: str, worth: Worth) -> None:
    """Utility against one noise: runs, their mean and range over deployments, and what it compares with."""
    low, high = _find_ends(rows, worth)
    chart.set_percent_axis(axes, low=low, high=high)
    quiet, pooled, independent = (
        readings.mean_of(rows, method, worth.clean)
        for method in (readings.noiseless_method(rows), terms.POOLED_RAW, terms.INDEPENDENT)
    )
    chance = 50.0 if low <= 50 else None
    labels = [
        chart.draw_noiseless_level(axes, quiet, "no noise"),
        *chart.draw_comparisons(
            axes, pooled=pooled, independent=independent, chance=chance, sums=readings.sums_of(rows, worth.clean)
        ),
        *_draw_alone(axes, rows, worth.clean),
    ]
    runs, colour = rows.where(method=_method_of(rows, words)), _LOOKS[words]["colour"]
    x, clean = readings.match_levels(runs, scale, worth.clean)
    if not len(x):
        chart.mark_not_run(axes)
    else:
        middle = clean.mean(axis=0)
        chart.draw_points(axes, runs.numbers(scale), runs.percent(worth.clean), colour=colour)
        axes.fill_between(x, clean.min(axis=0), clean.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, middle, color=colour, linewidth=2.2, label=words, zorder=5)
        labels.append(chart.EndLabel(float(middle[-1]), f"{words}, as deployed", colour))
        x, noisy = readings.match_levels(runs, scale, worth.noisy) if worth.noisy else (np.empty(0), clean)
        if len(x) and abs(noisy.mean(axis=0) - middle).max() > 0.05:
            label = f"{words}, noisy rows"
            axes.plot(x, noisy.mean(axis=0), color=colour, linewidth=1.4, linestyle="--", label=label)
            labels.append(chart.EndLabel(float(noisy.mean(axis=0)[-1]), label, colour))
    chart.write_end_labels(axes, labels, size=8.8)


def _method_of(rows: Results, words: str) -> str:
    """The method with this noise that a table has."""
    return next(method for method, name in readings.name_noisy_methods(rows).items() if name == words)


def _draw_alone(axes: chart.Axes, rows: Results, name: str) -> list[chart.EndLabel | None]:
    """Training alone: on a participant's own new rows where that was measured, and, lighter, on everybody's."""
    everybody, on_own_rows = (readings.mean_of(rows, method, name) for method in (terms.LOCAL_ONLY, terms.LOCAL_OWN))
    if on_own_rows is None:
        return [chart.draw_level(axes, everybody, "local only", colour=terms.GREY, style="--", width=1.6)]
    return [
        chart.draw_level(axes, on_own_rows, ALONE, colour=terms.INK, style="--", width=2.2),
        chart.draw_level(axes, everybody, _EVERYBODY, colour=terms.FAINT, style="--", width=1.1),
    ]


def _find_ends(rows: Results, worth: Worth) -> tuple[float, float]:
    """Round ends of the upward axis: differences of a point or two are what matters here."""
    shown = np.concatenate([rows.percent(name) for name in (worth.clean, worth.noisy) if name])
    low, high = float(np.nanmin(shown, initial=100.0)), float(np.nanmax(shown, initial=50.0))
    return max(0.0, 5 * np.floor(low / 5)), min(100.0, 5 * np.ceil(high / 5))


def _draw_operating_points(axes: chart.Axes, rows: Results, kind: Kind) -> None:
    """Utility against leakage: single runs, their means, and the frontier of the means."""
    axes.set_ylabel(terms.CLEAN_AXIS)
    low, high = _find_ends(rows, Worth(_CLEAN, None, terms.CLEAN_AXIS))
    chart.set_percent_axis(axes, low=low, high=high)
    every_x, every_y = [np.empty(0)], [np.empty(0)]
    for method, words in readings.name_noisy_methods(rows).items():
        part = rows.where(method=method)
        x, y = part.leakage(kind), part.percent(_CLEAN)
        if readings.mean(x) is None:
            continue
        look = _LOOKS[words]
        chart.draw_points(axes, x, y, alpha=0.2, markersize=3.2, **look)
        x, y = readings.average_by_setting(part, x, y)
        chart.draw_points(axes, x, y, alpha=0.95, markersize=6.5, label=words, **look)
        every_x.append(x)
        every_y.append(y)
    x, y = np.concatenate(every_x), np.concatenate(every_y)
    quiet = frontier.find_noiseless_points(rows, kind)
    frontier.draw_frontier(axes, x, y, quiet, kind, width=2.2, level=1.8)
    frontier.mark_noiseless(axes, quiet)
    _set_leakage_axis(axes, rows, kind, np.append(x, [point.leakage for point in quiet]))
    alone = readings.accuracy_of(rows, terms.LOCAL_OWN)
    chart.shade_below(axes, readings.accuracy_of(rows, terms.LOCAL_ONLY) if alone is None else alone)
    chance = 50.0 if low < 50 else None
    pooled, sums = readings.accuracy_of(rows, terms.POOLED_RAW), readings.sums_of(rows, _CLEAN)
    labels = chart.draw_comparisons(axes, pooled=pooled, chance=chance, sums=sums)
    chart.write_end_labels(axes, [*labels, *_draw_alone(axes, rows, _CLEAN)])


def _set_leakage_axis(axes: chart.Axes, rows: Results, kind: Kind, x: Vector) -> None:
    """Percent, or errors that run backwards; with what guessing gives."""
    if kind == "match":
        chart.set_percent_axis(axes, across=True)
        chart.draw_chance_across(axes)
        return
    guess = readings.mean(rows.numbers("error:guessing"))
    top = float(np.nanmax(np.append(x, guess or 1.0), initial=1.0))
    axes.set_xlim(1.08 * top, -0.04 * top)
    if guess is not None:
        chart.draw_chance_across(axes, x=guess)


def _count_deployments(material: fits.Material) -> str:
    n = len(material.results.values("deployment"))
    return f"{n} deployments" if n > 1 else "one deployment"


def draw_each_participant(material: fits.Material) -> list[chart.Drawing]:
    """Every participant's own scores; nothing where there are none, as with many participants."""
    results = material.results
    alone = results.where(method=terms.LOCAL_OWN)
    known = [k for k in range(len(results.columns)) if readings.mean(alone.percent(f"own:{k}")) is not None]
    if not known:
        return []
    title = material.title("does joining beat training alone, for each participant?")
    canvas, axes = chart.make_axes(title, 2, 1, height=8.2, sharex=True)
    panels = (
        ("own", terms.CLEAN_AXIS, "Balanced accuracy on own new rows"),
        ("auc_own", terms.AUC_AXIS, "How well own new rows are ranked"),
    )
    for panel, (prefix, up, heading) in zip(axes.flat, panels, strict=True):
        for place, k in enumerate(known):
            _draw_participant(panel, results, f"{prefix}:{k}", place)
        panel.set(title=heading, ylabel=up)
        panel.grid(axis="x", visible=False)
        panel.axhline(50, color=terms.GREY, linestyle=":", linewidth=1.2, label="_guessing")
    names = material.facts.get("participants")
    names = names if isinstance(names, list) else []
    words = [str(names[k]) if k < len(names) else f"participant {k + 1}" for k in known]
    axes[1][0].set_xticks(range(len(known)), words)
    axes[1][0].set_xlim(-0.55, len(known) - 0.45)
    chart.write_legend(canvas, chart.list_entries(axes[0][0]), n_columns=5)
    return [chart.describe(canvas, "each-participant", "each_participant")]


def _draw_participant(axes: chart.Axes, results: Results, name: str, place: float) -> None:
    """One participant: its own model as a level, and the joint models around its place."""
    alone = results.where(method=terms.LOCAL_OWN).percent(name)
    alone = alone[np.isfinite(alone)]
    if len(alone):
        ends = np.array([place - _HALF, place + _HALF])
        axes.fill_between(ends, alone.min(), alone.max(), color=terms.GREY, alpha=0.12, linewidth=0, label="_range")
        axes.plot(ends, [alone.mean()] * 2, color=terms.INK, linestyle="--", linewidth=2.0, label=ALONE, zorder=3)
    sums = readings.sums_of(results, name)
    quiet, pooled = (
        readings.mean_of(results, method, name) for method in (readings.noiseless_method(results), terms.POOLED_RAW)
    )
    marks: tuple[tuple[float | None, str, Any, str, int, float], ...] = (
        (quiet, "joined, no noise", "*", terms.INK, 12, 0.06),
        (pooled, "pooled raw", "s", terms.GREY, 5, 0.0),
        *((y, words, "P", terms.WINE, 8, 2 * _HALF) for words, y in sums.items() if terms.SUMS[words]),
    )
    for values, words, marker, colour, size, shift in marks:
        if values is not None:
            look: dict[str, Any] = {"markersize": size, "linestyle": "none", "color": colour, "zorder": 6}
            axes.plot([place - _HALF + shift], [values], marker, label=words, **look)
    for (words, scale, _), (left, right) in zip(_NOISES, _PLACES, strict=True):
        x, y = readings.match_levels(results.where(method=_method_of(results, words)), scale, name)
        if len(x):
            across, colour = place + np.linspace(left, right, len(x)), _LOOKS[words]["colour"]
            axes.vlines(across, y.min(axis=0), y.max(axis=0), color=colour, linewidth=1.0, alpha=0.45, label="_range")
            axes.plot(across, y.mean(axis=0), "o-", color=colour, markersize=5, linewidth=1.4, label=words, zorder=5)
