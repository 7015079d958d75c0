"""What attackers link, what the joint model is worth and how the solver fares, each against the scale of the noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.results import Results
from mooring_studies.figures import chart, fits, readings, terms
from mooring_studies.figures.frontier import NOTICEABLE

_PAPER = (terms.DATA_NOISE, terms.ANCHOR_NOISE)
_SOLVER = (
    ("iterations", "Iterations", "iterations"),
    ("residual", "Fixed-point residual", "residual, log scale"),
    ("solver_seconds", "Time of one alignment", "seconds, log scale"),
)


def draw_linkage(material: fits.Material) -> list[chart.Drawing]:
    """The paper's attacks under either noise, and the strongest attack by the same auditor."""
    title = material.title("what an attacker links as noise grows")
    canvas, axes = chart.make_axes(title, 1, 2, height=4.6)
    paper = material.paper
    noisy = paper.where(method=[*_PAPER, terms.ALIGNED_DATA_NOISE, terms.COMMON, terms.ALIGNED])
    top = chart.round_up(*(noisy.percent(f"linkage:{name}") for name in noisy.attacks("linkage")))
    headings = ("(a) Private-data noise: what an attacker links", "(b) Anchor noise: what an attacker links")
    for panel, (method, _, across), heading in zip(axes[0], terms.NOISES, headings, strict=True):
        panel.set(title=heading, xlabel=across, ylabel=terms.linkage_axis(material.study))
        chart.set_percent_axis(panel, high=top)
        _draw_attacks(panel, material, method)
    complete = np.isfinite(paper.where(method=terms.ANCHOR_NOISE).leakage("linkage"))
    max_of_k = material.describe_max_of_k("linkage", _PAPER)
    n_complete = int(complete.sum())
    return [chart.describe(canvas, "linkage", "linkage", **_n_draws(paper), n_complete=n_complete, max_of_k=max_of_k)]


def _draw_attacks(axes: chart.Axes, material: fits.Material, method: str) -> None:
    """One panel of `draw_linkage`: every attack of the paper's on a method, and the strongest of all."""
    paper = material.paper
    noisy = paper.where(method=method)
    if not len(noisy):
        chart.mark_not_run(axes)
        return
    anchor = method == terms.ANCHOR_NOISE
    labels: list[chart.EndLabel | None] = []
    for name, attack, words in _anchor_attacks(noisy) if anchor else _data_attacks(paper):
        rows, (_, colour, marker) = paper.where(method=name), terms.ATTACKS[attack]
        x, y = rows.numbers(fits.SCALES[name]), rows.percent(f"linkage:{attack}")
        look: dict[str, Any] = {"filled": rows.converged, "alpha": 0.28} if anchor else {}
        chart.draw_points(axes, x, y, colour=colour, marker=marker, **look)
        line = fits.fit_attack(material, paper, name, attack)
        labels.append(chart.draw_curve(axes, line, colour=colour, label=words))
    x, y = noisy.numbers(fits.SCALES[method]), noisy.leakage("linkage")
    chart.draw_points(axes, x, y, colour=terms.BLACK, marker="D", alpha=0.3, markersize=3.0)
    # The label says whose decoder where others were tried too.
    quiet = "no noise, paper's decoder" if fits.has_learned_decoder(paper, method) else "no noise"
    labels += [
        chart.draw_strongest(axes, fits.fit_strongest(material, paper, method), label=terms.STRONGEST),
        chart.draw_noiseless_level(axes, fits.noiseless_linkage(paper, method), quiet),
        chart.draw_chance(axes),
    ]
    chart.write_end_labels(axes, labels)


def _anchor_attacks(rows: Results) -> list[tuple[str, str, str]]:
    """Method, attack and words of what was measured under anchor noise."""
    measured = [
        attack
        for attack in fits.PAPER_ATTACKS[terms.ANCHOR_NOISE]
        if readings.mean(rows.percent(f"linkage:{attack}")) is not None
    ]
    return [(terms.ANCHOR_NOISE, attack, terms.attack_words(attack)) for attack in measured]


def _data_attacks(paper: Results) -> list[tuple[str, str, str]]:
    """The same under private-data noise: one series where the coupled attacks found the same in every draw."""
    first, second = (
        paper.where(method=method).percent(f"linkage:{attack}")
        for method, attack in ((terms.DATA_NOISE, "known-secret"), (terms.ALIGNED_DATA_NOISE, "known-anchor"))
    )
    if len(second) and first.shape == second.shape and bool((abs(first - second) < 1e-9).all()):
        return [(terms.DATA_NOISE, "known-secret", "C-GDP and AA-I-GDP")]
    both = [(terms.DATA_NOISE, "known-secret", "C-GDP, known secret")]
    return both + [(terms.ALIGNED_DATA_NOISE, "known-anchor", "AA-I-GDP, known anchor")] * bool(len(second))


def draw_linkage_strongest(material: fits.Material) -> list[chart.Drawing]:
    """The strongest attack by the paper's auditor and by direct matching, beside the paper's own strongest."""
    title = material.title("the strongest attack, by two ways of matching")
    canvas, axes = chart.make_axes(title, 1, 2, height=4.6)
    paper = material.paper
    panels = (("known-secret", "(a) Private-data noise"), ("procrustes", "(b) Anchor noise"))
    for panel, (method, scale, across), (attack, heading) in zip(axes[0], terms.NOISES, panels, strict=True):
        panel.set(title=heading, xlabel=across, ylabel="matched to the true source, %")
        chart.set_percent_axis(panel)
        rows = paper.where(method=method)
        if not len(rows):
            chart.mark_not_run(panel)
            continue
        x, by_matching = rows.numbers(scale), rows.leakage("match")
        for y, marker in ((by_matching, "D"), (rows.leakage("linkage"), "o")):
            chart.draw_points(panel, x, y, colour=terms.BLACK, marker=marker, alpha=0.3, markersize=3.2)
        line, words = fits.fit_attack(material, paper, method, attack), f"the paper's: {terms.attack_words(attack)}"
        by_auditor = fits.fit_strongest(material, paper, method)
        labels = [
            chart.draw_curve(panel, line, colour=terms.ATTACKS[attack][1], label=words),
            chart.draw_strongest(panel, by_auditor, label="strongest, by the auditor", style=(0, (4, 1.5))),
            chart.draw_strongest(panel, material.fits.line(x, by_matching), label="strongest, matched directly"),
            chart.draw_chance(panel),
        ]
        chart.write_end_labels(panel, labels)
    return [chart.describe(canvas, "linkage-strongest", "linkage_strongest")]


def draw_utility(material: fits.Material) -> list[chart.Drawing]:
    """Utility under either noise."""
    title = material.title("what the joint model is worth as noise grows")
    canvas, axes = chart.make_axes(title, 1, 2, height=4.8)
    paper, chance = material.paper, terms.guessing_level(material.study)
    noisy = paper.where(method=[*_PAPER, terms.ALIGNED_DATA_NOISE])
    floor = chart.find_floor(chance, noisy.percent("balanced_accuracy"))
    panels = (("(a) Private-data noise", _draw_data_noise), ("(b) Anchor noise", _draw_anchor_noise))
    for panel, (method, _, across), (heading, draw) in zip(axes[0], terms.NOISES, panels, strict=True):
        panel.set(title=heading, xlabel=across, ylabel=terms.UTILITY_AXIS)
        chart.set_percent_axis(panel, low=floor)
        labels = [
            *_draw_noiseless(panel, *(readings.accuracy_of(paper, name) for name in (terms.COMMON, terms.ALIGNED))),
            *chart.draw_comparisons(
                panel,
                **readings.references(paper),
                independent=readings.accuracy_of(paper, terms.INDEPENDENT),
                chance=chance,
            ),
        ]
        if not len(paper.where(method=method)):
            chart.mark_not_run(panel)
        chart.write_end_labels(panel, labels + draw(panel, material))
    return [chart.describe(canvas, "utility", "utility", **_n_draws(paper))]


def _draw_data_noise(axes: chart.Axes, material: fits.Material) -> list[chart.EndLabel | None]:
    labels: list[chart.EndLabel | None] = []
    for method, marker, style in ((terms.DATA_NOISE, "o", "-"), (terms.ALIGNED_DATA_NOISE, "x", (0, (1, 1)))):
        rows, colour = material.paper.where(method=method), terms.METHOD_COLOURS[method]
        x, y = rows.numbers("data_noise_scale"), rows.percent("balanced_accuracy")
        if readings.mean(y) is not None:
            chart.draw_points(axes, x, y, colour=colour, marker=marker)
            words = f"{terms.METHOD_WORDS[method].partition(',')[0]}, noisy rows"
            labels.append(chart.draw_curve(axes, material.fits.line(x, y), colour=colour, style=style, label=words))
    rows, colour = material.paper.where(method=terms.DATA_NOISE), terms.METHOD_COLOURS[terms.DATA_NOISE]
    clean = material.fits.line(rows.numbers("data_noise_scale"), rows.percent("balanced_accuracy_clean"))
    look: dict[str, Any] = {"colour": colour, "style": "--", "width": 1.5, "label": "C-GDP, as deployed"}
    return [*labels, chart.draw_curve(axes, clean, **look)]


def _draw_anchor_noise(axes: chart.Axes, material: fits.Material) -> list[chart.EndLabel | None]:
    rows, colour = material.paper.where(method=terms.ANCHOR_NOISE), terms.METHOD_COLOURS[terms.ANCHOR_NOISE]
    if not len(rows):
        return []
    x, y = rows.numbers("anchor_noise_scale"), rows.percent("balanced_accuracy")
    chart.draw_points(axes, x, y, colour=colour, filled=rows.converged)
    curve = chart.draw_curve(axes, material.fits.line(x, y), colour=colour, label="AA-I-GDP, anchor noise")
    chart.mark_transition(axes, material.only_transition())
    return [curve]


def _draw_noiseless(axes: chart.Axes, common: float | None, aligned: float | None) -> list[chart.EndLabel | None]:
    """C-GDP and AA-I-GDP without noise: one line where a reader could not tell them apart, else one each."""
    if common is not None and aligned is not None and abs(common - aligned) < NOTICEABLE:
        return [chart.draw_noiseless_level(axes, (common + aligned) / 2, "C-GDP and AA-I-GDP, no noise")]
    colour = terms.METHOD_COLOURS[terms.ANCHOR_NOISE]
    return [
        chart.draw_noiseless_level(axes, common, "C-GDP, no noise"),
        chart.draw_noiseless_level(axes, aligned, "AA-I-GDP, no noise", colour=colour),
    ]


def _n_draws(paper: Results) -> dict[str, Any]:
    return {
        f"n_{name}": len(paper.where(method=method)) for name, method in zip(("data", "anchor"), _PAPER, strict=True)
    }


def draw_solver(material: fits.Material) -> list[chart.Drawing]:
    """Iterations, residual and time against anchor noise; nothing where the solver left no record."""
    rows = material.paper.where(method=terms.ANCHOR_NOISE)
    if not np.isfinite(rows.numbers("iterations")).any():
        return []
    title = material.title("how the paper's solver fares as anchor noise grows")
    canvas, axes = chart.make_axes(title, 1, 3, height=4.0)
    x, shut, colour = rows.numbers("anchor_noise_scale"), rows.converged, terms.METHOD_COLOURS[terms.ANCHOR_NOISE]
    for panel, (name, heading, words) in zip(axes[0], _SOLVER, strict=True):
        panel.set(title=heading, xlabel=terms.ANCHOR_AXIS, ylabel=words)
        y = rows.numbers(name)
        if name == "iterations":
            panel.set_ylim(0, 1.05 * float(np.nanmax(y)))
        elif (y > 0).any():
            panel.set_yscale("log")
            y = np.where(y > 0, y, np.nan)
        chart.draw_points(panel, x, y, colour=colour, filled=shut, alpha=0.75, markersize=4.4)
        chart.mark_transition(panel, material.only_transition())
    handles = chart.make_convergence_marks(colour, "reached the limit of iterations", markersize=5)
    canvas.legend(handles=handles, loc="outside lower center", ncols=2, labelcolor=terms.INK)
    return [chart.describe(canvas, "solver", "solver", n=len(rows), n_converged=int(shut.sum()))]


def draw_deployments(material: fits.Material) -> list[chart.Drawing]:
    """One thin curve a deployment, their mean, and both spreads; nothing where there is one deployment only."""
    results, known = material.results, material.results.values("deployment")
    if len(known) < 2:
        return []
    canvas, axes = chart.make_axes(material.title("other deployments, other noise"), 2, 2, height=7.6)
    chance = terms.guessing_level(material.study)
    floor = chart.find_floor(chance, results.where(method=list(_PAPER)).percent("balanced_accuracy_clean"))
    measures: tuple[tuple[str, Callable[[Results], Vector]], ...] = (
        (terms.CLEAN_AXIS, lambda rows: rows.percent("balanced_accuracy_clean")),
        ("matched by the strongest attack, %", lambda rows: rows.leakage("match")),
    )
    for row, (up, measure) in enumerate(measures):
        for panel, (method, scale, across) in zip(axes[row], terms.NOISES, strict=True):
            heading = "Private-data noise" if method == terms.DATA_NOISE else "Anchor noise"
            panel.set(title=heading, xlabel=across, ylabel=up)
            chart.set_percent_axis(panel, low=floor if row == 0 else 0.0)
            comparisons = [chart.draw_chance(panel)] if row else _compare_all(panel, results, chance)
            series = [(rows.numbers(scale), measure(rows)) for rows in _split(results.where(method=method), known)]
            _draw_spread(panel, material, series, known.index(0) if 0 in known else None)
            chart.write_end_labels(panel, comparisons)
    words = {
        "one deployment": "one deployment (gap: no draws)",
        "mean of deployments": "their mean",
        "between": "range between them, where all have enough draws",
        "within the first": "noise within the first (95 %)",
    }
    entries = chart.list_entries(axes[0][0])
    chart.write_legend(canvas, {text: entries[name] for name, text in words.items() if name in entries}, n_columns=4)
    return [chart.describe(canvas, "deployments", "deployments", n=len(known))]


def _compare_all(axes: chart.Axes, results: Results, chance: float) -> list[chart.EndLabel | None]:
    return chart.draw_comparisons(axes, **readings.references(results), chance=chance)


def _split(results: Results, deployments: list[float]) -> list[Results]:
    return [results.where(deployment=deployment) for deployment in deployments]


def _draw_spread(
    axes: chart.Axes, material: fits.Material, series: list[tuple[Vector, Vector]], first: int | None
) -> None:
    """Draw the curves of all deployments, given noise and measure of each, and the place of the paper's among them."""
    lines: dict[int, fits.Line] = {}
    for k, (noise, measured) in enumerate(series):
        line = material.fits.line(noise, measured)
        if line is not None:
            lines[k] = line.only(fits.rests_on_draws(noise[np.isfinite(measured)], line.x))
            axes.plot(line.x, lines[k].y, color=terms.GREY, linewidth=0.8, alpha=0.9, label="one deployment", zorder=3)
    if not lines:
        axes.text(0.5, 0.5, "too few draws", transform=axes.transAxes, ha="center", color=terms.GREY)
        return
    every, first_line = list(lines.values()), None if first is None else lines.get(first)
    grid = np.linspace(max(line.x[0] for line in every), min(line.x[-1] for line in every), 120)
    each = np.stack([np.interp(grid, line.x, line.y) for line in every])
    # Where a curve has no band, it is not known well enough to compare it with others.
    known_there = np.all([np.isfinite(np.interp(grid, line.x, line.lower)) for line in every], axis=0)
    lowest, highest = (np.where(known_there, edge(each, axis=0), np.nan) for edge in (np.min, np.max))
    axes.fill_between(grid, lowest, highest, color=terms.ORANGE, alpha=0.3, linewidth=0, label="between")
    if first_line is not None:
        band: dict[str, Any] = {"color": terms.BLUE, "alpha": 0.3, "linewidth": 0, "label": "within the first"}
        axes.fill_between(first_line.x, first_line.lower, first_line.upper, **band)
    axes.plot(grid, each.mean(axis=0), color=terms.BLACK, linewidth=2.6, label="mean of deployments", zorder=5)
