"""How the trade-off, the utility and the solver change with the number of participants, p."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mooring_studies.comparison.results import Results
from mooring_studies.figures import chart, fits, readings, terms
from mooring_studies.figures.terms import ANCHOR_NOISE, COMMON

_COLOURS = (terms.SKY, terms.BLUE, terms.GREEN, terms.ORANGE, terms.VERMILION, terms.PURPLE, terms.BLACK)
_REFERENCES = ("I-GDP", "local only", "pooled raw")
_CORE = "_core "
_NAME_HEIGHT, _BESIDE = 0.036, 3.0  # of the upward axis, and percentage points


def draw_participants(material: fits.Material) -> list[chart.Drawing]:
    """All figures of the study by participants."""
    noisy = material.paper.where(method=ANCHOR_NOISE)
    if not noisy.values("n_participants"):
        return []
    identities = [int(number) for number in noisy.values("identities_each")]
    return [
        _draw_tradeoff(material, identities, by_strongest=False),
        _draw_tradeoff(material, identities, by_strongest=True),
        _draw_utility(material, identities),
        *_draw_transition(material, identities),
    ]


def _draw_tradeoff(material: fits.Material, identities: list[int], *, by_strongest: bool) -> chart.Drawing:
    attack = f"the {terms.STRONGEST}" if by_strongest else "the paper's Procrustes attack"

    def draw(axes: chart.Axes, rows: Results, colour: str, label: str) -> None:
        noisy = rows.where(method=ANCHOR_NOISE)
        x = noisy.leakage("linkage") if by_strongest else noisy.percent("linkage:procrustes")
        look: dict[str, Any] = {"filled": noisy.converged, "alpha": 0.3, "markersize": 3.2}
        chart.draw_points(axes, x, noisy.percent("balanced_accuracy"), colour=colour, **look)
        black = fits.fit_strongest_track(material, rows, ANCHOR_NOISE)
        track = black if by_strongest else fits.fit_attack_track(material, rows, ANCHOR_NOISE, "procrustes")
        chart.draw_track(axes, track, colour, "-", label, width=2.2)
        leak = readings.leakage_of(rows, COMMON, "linkage")
        if not by_strongest:
            _draw_cored_track(axes, black, colour, f"{terms.STRONGEST}, colour of p inside", label)
            leak = readings.mean_of(rows, COMMON, "linkage:known-secret")
        worth = readings.accuracy_of(rows, COMMON)
        if leak is not None and worth is not None:
            star: dict[str, Any] = {"markersize": 12, "markeredgecolor": "white", "linestyle": "none", "zorder": 7}
            axes.plot([leak], [worth], "*", color=colour, label=f"_C-GDP, {label}", **star)

    title = material.title(f"utility against leakage, by {attack}")
    canvas = _draw_panels(material, title, terms.linkage_axis(material.study), draw)
    for panel in canvas.axes[::2]:
        chart.set_percent_axis(panel, across=True)
        _label_starts(panel)
        chart.draw_chance_across(panel)
    values: dict[str, Any] = {
        "by_strongest": by_strongest,
        "matched": _describe_matched(material),
        "identities": identities,
    }
    max_of_k = material.describe_max_of_k("linkage", (ANCHOR_NOISE,))
    name = "tradeoff-strongest" if by_strongest else "tradeoff"
    return chart.describe(canvas, name, "participants_tradeoff", max_of_k=max_of_k, **values)


def _describe_matched(material: fits.Material) -> str:
    """The share that direct matching in the projected space finds, in words; nothing where it was not run."""
    matched = material.paper.where(method=ANCHOR_NOISE).leakage("match")
    if not np.isfinite(matched).any():
        return ""
    low, high = f"{np.nanmin(matched):.0f}", f"{np.nanmax(matched):.0f}"
    return f"{low} %" if low == high else f"from {low} to {high} %"


def _draw_utility(material: fits.Material, identities: list[int]) -> chart.Drawing:
    def draw(axes: chart.Axes, rows: Results, colour: str, label: str) -> None:
        noisy = rows.where(method=ANCHOR_NOISE)
        x, y = noisy.numbers("anchor_noise_scale"), noisy.percent("balanced_accuracy")
        chart.draw_points(axes, x, y, colour=colour, filled=noisy.converged, alpha=0.3, markersize=3.2)
        line = material.fits.line(x, y)
        if line is not None:
            axes.fill_between(line.x, line.lower, line.upper, color=colour, alpha=0.14, linewidth=0)
            axes.plot(line.x, line.y, color=colour, linewidth=2.2, label=label, zorder=5)

    canvas = _draw_panels(material, material.title("when more participants help"), terms.ANCHOR_AXIS, draw)
    return chart.describe(canvas, "utility-by-noise", "participants_utility", identities=identities)


def _draw_panels(
    material: fits.Material, title: str, across: str, draw: Callable[[chart.Axes, Results, str, str], None]
) -> Any:
    """One panel a number of identities, each with a strip of what its utilities compare with."""
    from matplotlib.lines import Line2D

    groups = list(_by_identities(material.paper))
    ratios = {"width_ratios": [4.0, 1.5] * len(groups)}
    canvas, axes = chart.make_axes(title, 1, 2 * len(groups), height=5.4, sharey=True, gridspec_kw=ratios)
    legend: dict[str, Any] = {}
    chance = terms.guessing_level(material.study)
    for main, strip, (heading, rows) in zip(axes[0][::2], axes[0][1::2], groups, strict=True):
        main.set(title=heading, xlabel=across)
        for p in rows.where(method=ANCHOR_NOISE).values("n_participants"):
            colour, part = _colour_of(material, p), rows.where(n_participants=p)
            draw(main, part, colour, f"p = {p}")
            _draw_references(main, strip, part, colour, p)
        main.axhline(chance, color=terms.GREY, linestyle=":", linewidth=1.2, label=terms.GUESSING)
        strip.axhline(chance, color=terms.GREY, linestyle=":", linewidth=1.2, label="_guessing")
        strip.set_xticks(range(3), [words.replace(" ", "\n") for words in _REFERENCES], fontsize=8.5)
        strip.set_xlim(-0.6, 2.6)
        strip.tick_params(axis="y", length=0)
        strip.grid(axis="x", visible=False)
        legend |= chart.list_entries(main)
    axes[0][0].set_ylabel(terms.UTILITY_AXIS)
    noisy = material.paper.where(method=ANCHOR_NOISE)
    chart.set_percent_axis(axes[0][0], low=chart.find_floor(chance, noisy.percent("balanced_accuracy")))
    if across != terms.ANCHOR_AXIS:
        legend["C-GDP, no noise"] = Line2D([], [], marker="*", color=terms.INK, linestyle="none", markersize=11)
    legend["I-GDP"] = Line2D([], [], color=terms.INK, linestyle="--", linewidth=1.0)
    order = sorted(legend, key=lambda name: not name.startswith("p ="))  # participants first, then what all share
    chart.write_legend(canvas, {name: legend[name] for name in order}, n_columns=5)
    return canvas


def _draw_references(main: chart.Axes, strip: chart.Axes, rows: Results, colour: str, p: int) -> None:
    """What one number of participants compares with: I-GDP as a line in the panel, all three in the strip."""
    independent = readings.accuracy_of(rows, terms.INDEPENDENT)
    if independent is not None:
        main.axhline(independent, color=colour, linestyle="--", linewidth=1.0, alpha=0.8, label=f"_I-GDP {p}")
    levels = (independent, readings.accuracy_of(rows, terms.LOCAL_ONLY), readings.accuracy_of(rows, terms.POOLED_RAW))
    for place, (name, y) in enumerate(zip(_REFERENCES, levels, strict=True)):
        if y is not None:
            ends = [place - 0.38, place + 0.38]
            strip.plot(ends, [y, y], color=colour, linewidth=2.4, label=f"{name}, p = {p}")


def _draw_transition(material: fits.Material, identities: list[int]) -> list[chart.Drawing]:
    """Which draws converged, one row a number of participants, and v_PT; nothing where the solver left no record."""
    from matplotlib.lines import Line2D

    noisy = [(heading, rows.where(method=ANCHOR_NOISE)) for heading, rows in _by_identities(material.paper)]
    groups = [(heading, rows) for heading, rows in noisy if np.isfinite(rows["converged"]).any()]
    if not groups:
        return []
    canvas, axes = chart.make_axes(material.title("where the solver stops converging"), 1, len(groups), height=4.2)
    for panel, (heading, rows) in zip(axes[0], groups, strict=True):
        counts = rows.values("n_participants")
        right = panel.get_yaxis_transform()
        for place, p in enumerate(counts):
            part, limit = rows.where(n_participants=p), material.transition(p)
            # Open marks sit a little lower, so that the overlap of the two kinds can be seen.
            y, shut = place + np.where(part.converged, 0.14, -0.14), part.converged
            look: dict[str, Any] = {"colour": _colour_of(material, p), "filled": shut, "alpha": 0.8, "markersize": 4.6}
            chart.draw_points(panel, part.numbers("anchor_noise_scale"), y, **look)
            if limit is not None:
                bar = [place - 0.36, place + 0.36]
                panel.plot([limit, limit], bar, color=terms.INK, linewidth=2, label="v_PT", zorder=5)
            share = f"{int(shut.sum())} of {len(part)}"
            panel.text(1.02, place, share, transform=right, va="center", fontsize=9.5, color=terms.INK)
        panel.set(title=heading, xlabel=terms.ANCHOR_AXIS, ylim=(-0.6, len(counts) - 0.4))
        panel.set_yticks(range(len(counts)), [f"p = {p}" for p in counts])
        panel.text(1.02, len(counts) - 0.5, "converged", transform=right, fontsize=8.5, color=terms.GREY)
    handles = chart.make_convergence_marks(terms.INK, "reached the limit")
    if any(material.transition(p) is not None for p in material.paper.values("n_participants")):
        handles.append(Line2D([], [], color=terms.INK, linewidth=2, label="v_PT"))
    canvas.legend(handles=handles, loc="outside lower center", ncols=3)
    return [chart.describe(canvas, "transition", "participants_transition", identities=identities)]


def _colour_of(material: fits.Material, p: int) -> str:
    """One colour a number of participants, the same in all figures of a study."""
    counts = material.paper.where(method=ANCHOR_NOISE).values("n_participants")
    return _COLOURS[counts.index(p) % len(_COLOURS)]


def _by_identities(paper: Results) -> Iterator[tuple[str, Results]]:
    """Parts of the table with one number of identities a participant, in words."""
    known = paper.where(method=ANCHOR_NOISE).values("identities_each")
    if not known:
        yield "", paper
    for number in known:
        yield f"{number} identities each", paper.where(identities_each=number)


def _draw_cored_track(axes: chart.Axes, track: fits.Track | None, colour: str, label: str, name: str) -> None:
    """A black track with a colour inside, and a diamond where noise is strongest, so that several can be distinguished."""
    if track is None:
        return
    x, y = track.across.y, track.up.y
    chart.draw_track(axes, track, terms.BLACK, "-", label, width=3.6)
    axes.plot(x, y, color=colour, linewidth=1.5, label=f"{_CORE}{name}", zorder=5.5)
    axes.plot(x[-1:], y[-1:], "D", color=colour, markeredgecolor=terms.BLACK, markersize=6, label="_end", zorder=8)


def _label_starts(axes: chart.Axes) -> None:
    """Name every track of `_draw_cored_track` to the right of its weakest noise, moved apart where names overlap."""
    cores = [line for line in axes.get_lines() if str(line.get_label()).startswith(_CORE)]
    starts = [np.asarray(line.get_xydata(), dtype=float)[0] for line in cores]
    low, high = axes.get_ylim()
    order = sorted(range(len(cores)), key=lambda k: float(starts[k][1]))
    height = _NAME_HEIGHT * (high - low)
    places = chart.spread_out([float(starts[k][1]) for k in order], [height] * len(order))
    right = max((float(start[0]) for start in starts), default=0.0) + _BESIDE
    for k, place in zip(order, places, strict=True):
        axes.annotate(
            str(cores[k].get_label()).removeprefix(_CORE), xy=(starts[k][0], starts[k][1]), xytext=(right, place),
            color=terms.INK, fontsize=8, va="center", annotation_clip=False, zorder=9,
            arrowprops=chart.THIN_LINE | {"color": terms.BLACK},
        )  # fmt: skip
