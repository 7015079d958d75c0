"""How the trade-off, the utility and the solver change with the number of participants, p."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.attack_curves import CURVE_RULE, paper_track, strongest_track
from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.fits import BAND_RULE
from mooring_studies.figures.labels import (
    ANCHOR_AXIS,
    ANCHOR_NOISE,
    BLACK,
    BLUE,
    COMMON,
    GREEN,
    GREY,
    INDEPENDENT,
    INK,
    LINKAGE_CHANCE,
    ORANGE,
    PURPLE,
    SKY,
    STRONGEST,
    UTILITY_AXIS,
    VERMILION,
    guessing_level,
    linkage_axis,
    title_of,
)
from mooring_studies.figures.ribbons import RIBBON_RULE, cored_track, label_starts, track_ribbon
from mooring_studies.figures.series import (
    Material,
    accuracy_of,
    column,
    control,
    control_strongest,
    converged,
    local_only,
    luck,
    percent,
    pooled_raw,
    strongest,
    values,
)
from mooring_studies.figures.style import new_canvas, observations, percent_axis, utility_floor

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Results

Array = NDArray[np.float64]
_COLOURS = (SKY, BLUE, GREEN, ORANGE, VERMILION, PURPLE, BLACK)
_REFERENCES = ("I-GDP", "local only", "pooled raw")


def draw_participants(material: Material) -> list[Drawing]:
    """All figures of the study by participants."""
    if not values(material.paper.where(method=ANCHOR_NOISE), "n_participants"):
        return []
    return [
        _tradeoff(material, "tradeoff"),
        _tradeoff(material, "tradeoff-strongest"),
        _utility_by_noise(material),
        *_transition(material),
    ]


def _tradeoff(material: Material, name: str) -> Drawing:
    by_strongest = name == "tradeoff-strongest"
    attack = f"the {STRONGEST}" if by_strongest else "the paper's Procrustes attack"
    title = f"{title_of(material.study)}: utility against leakage, by {attack}"

    def paired(axes: Axes, rows: Results, colour: str, label: str) -> None:
        own = rows.where(method=ANCHOR_NOISE)
        x = strongest(own, "linkage") if by_strongest else percent(own, "linkage:procrustes")
        y = percent(own, "balanced_accuracy")
        observations(axes, x, y, colour=colour, filled=converged(own), strength=0.3, size=3.2)
        black = strongest_track(material, rows, ANCHOR_NOISE)
        found = black if by_strongest else paper_track(material, rows, ANCHOR_NOISE, "procrustes")
        track_ribbon(axes, found, colour, "-", label, width=2.2)
        if not by_strongest:
            cored_track(axes, black, colour, f"{STRONGEST}, colour of p inside", label)
        leak = (
            control_strongest(rows, COMMON, "linkage")
            if by_strongest
            else control(rows, COMMON, "linkage:known-secret")
        )
        worth = accuracy_of(rows, COMMON)
        if leak is not None and worth is not None:
            axes.plot(
                [leak], [worth], "*", color=colour, markersize=12, markeredgecolor="white", linestyle="none",
                label=f"_C-GDP, {label}", zorder=7,
            )  # fmt: skip

    canvas = _panels(material, title, linkage_axis(material.study), paired)
    for one in canvas.axes[::2]:
        percent_axis(one, across=True)
        label_starts(one)
        one.axvline(LINKAGE_CHANCE, color=GREY, linestyle=":", linewidth=1.2, label="_chance")
    taken = (
        "leakage is identity linkage by the strongest attack we know, and rests on the draws on which every attack "
        f"was run{_matched(material)}"
        if by_strongest
        else "leakage is identity linkage: by the Procrustes attack, as in the paper, in colour, and by the strongest "
        "attack we know in black with its colour inside, named where noise is weakest and ending in a diamond where it is "
        "strongest"
    )
    caption = (
        f"Anchor noise with more and more participants; {taken}. Upper left is better. Curves pair two splines on the "
        f"noise; {RIBBON_RULE}, over draws, {BAND_RULE}. {CURVE_RULE}. "
        "Filled points converged, open ones reached the limit of iterations. Stars: C-GDP without noise. "
        "Dashed lines: I-GDP. Dotted: guessing."
        f"{luck(material, 'linkage', (ANCHOR_NOISE,))} {_strip_words()} {_identity_words(material)}"
    )
    return Drawing(name, title, caption, canvas)


def _matched(material: Material) -> str:
    """What the other measure would show, in words: matched straight in the projected space, faces are nearly all found."""
    found = strongest(material.paper.where(method=ANCHOR_NOISE), "match")
    if not np.isfinite(found).any():
        return ""
    low, high = f"{np.nanmin(found):.0f}", f"{np.nanmax(found):.0f}"
    share = f"{low} %" if low == high else f"from {low} to {high} %"
    return f" (matched straight in the projected space, it finds {share} of the records, over the draws it was run on)"


def _utility_by_noise(material: Material) -> Drawing:
    title = f"{title_of(material.study)}: when more participants help"

    def by_noise(axes: Axes, rows: Results, colour: str, label: str) -> None:
        own = rows.where(method=ANCHOR_NOISE)
        x, y = column(own, "anchor_noise_scale"), percent(own, "balanced_accuracy")
        observations(axes, x, y, colour=colour, filled=converged(own), strength=0.3, size=3.2)
        line = material.fits.line(x, y)
        if line is not None:
            axes.fill_between(line.x, line.lower, line.upper, color=colour, alpha=0.14, linewidth=0)
            axes.plot(line.x, line.y, color=colour, linewidth=2.2, label=label, zorder=5)

    canvas = _panels(material, title, ANCHOR_AXIS, by_noise)
    caption = (
        "Balanced accuracy against the scale of anchor noise, one colour a number of participants. Filled points converged, "
        f"open ones reached the limit of iterations. Dashed lines: I-GDP. {_strip_words()} {_identity_words(material)}"
    )
    return Drawing("utility-by-noise", title, caption, canvas)


def _panels(material: Material, title: str, across: str, fill: Callable[[Axes, Results, str, str], None]) -> Any:
    """One panel a number of identities, each with a strip of what its utilities compare with."""
    groups = list(_by_identities(material.paper))
    canvas, axes = new_canvas(
        1, 2 * len(groups), height=5.4, title=title, sharey=True, gridspec_kw={"width_ratios": [4.0, 1.5] * len(groups)}
    )
    legend: dict[str, Any] = {}
    for k, (heading, rows) in enumerate(groups):
        main, strip = axes[0][2 * k], axes[0][2 * k + 1]
        main.set(title=heading, xlabel=across)
        counts = values(rows.where(method=ANCHOR_NOISE), "n_participants")
        for p in counts:
            colour, own = colour_of(material, p), rows.where(n_participants=p)
            fill(main, own, colour, f"p = {int(p)}")
            references = (accuracy_of(own, INDEPENDENT), local_only(own), pooled_raw(own))
            if references[0] is not None:
                main.axhline(references[0], color=colour, linestyle="--", linewidth=1.0, alpha=0.8, label=f"_I-GDP {p}")
            for place, (name, y) in enumerate(zip(_REFERENCES, references, strict=True)):
                if y is not None:
                    strip.plot(
                        [place - 0.38, place + 0.38], [y, y], color=colour, linewidth=2.4, label=f"{name}, p = {int(p)}"
                    )  # fmt: skip
        chance = guessing_level(material.study)
        main.axhline(chance, color=GREY, linestyle=":", linewidth=1.2, label="random guessing")
        strip.axhline(chance, color=GREY, linestyle=":", linewidth=1.2, label="_guessing")
        strip.set_xticks(range(3), [words.replace(" ", "\n") for words in _REFERENCES], fontsize=8.5)
        strip.set_xlim(-0.6, 2.6)
        strip.tick_params(axis="y", length=0)
        strip.grid(axis="x", visible=False)
        handles, labels = main.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    axes[0][0].set_ylabel(UTILITY_AXIS)
    noisy = material.paper.where(method=ANCHOR_NOISE)
    percent_axis(axes[0][0], low=utility_floor(guessing_level(material.study), percent(noisy, "balanced_accuracy")))
    from matplotlib.lines import Line2D

    star = Line2D([], [], marker="*", color=INK, linestyle="none", markersize=11)
    if across != ANCHOR_AXIS:
        legend["C-GDP, no noise"] = star
    legend["I-GDP"] = Line2D([], [], color=INK, linestyle="--", linewidth=1.0)
    order = sorted(
        legend, key=lambda name: not name.startswith("p =")
    )  # participants first, then what is alike for all
    canvas.legend([legend[name] for name in order], order, loc="outside lower center", ncols=5)
    return canvas


def _transition(material: Material) -> list[Drawing]:
    """Which draws converged, one row a number of participants, and v_PT; nothing where the solver left no record."""
    groups = [
        (heading, rows)
        for heading, rows in _by_identities(material.paper)
        if np.isfinite(column(rows.where(method=ANCHOR_NOISE), "converged")).any()
    ]
    if not groups:
        return []
    from matplotlib.lines import Line2D

    title = f"{title_of(material.study)}: where the solver stops converging"
    canvas, axes = new_canvas(1, len(groups), height=4.2, title=title, sharey=False)
    for one, (heading, rows) in zip(axes[0], groups, strict=True):
        counts = values(rows.where(method=ANCHOR_NOISE), "n_participants")
        for place, p in enumerate(counts):
            own = rows.where(method=ANCHOR_NOISE, n_participants=p)
            shut = converged(own)
            # Open marks sit a little lower, so that the overlap of the two kinds can be seen.
            y = place + np.where(shut, 0.14, -0.14)
            observations(
                one, column(own, "anchor_noise_scale"), y, colour=colour_of(material, p), filled=shut, strength=0.8, size=4.6
            )  # fmt: skip
            limit = material.transition(p)
            if limit is not None:
                one.plot([limit, limit], [place - 0.36, place + 0.36], color=INK, linewidth=2, label="v_PT", zorder=5)
            share = f"{int(shut.sum())} of {len(own)}"
            one.text(1.02, place, share, transform=one.get_yaxis_transform(), va="center", fontsize=9.5, color=INK)
        one.set(title=heading, xlabel=ANCHOR_AXIS, ylim=(-0.6, len(counts) - 0.4))
        one.set_yticks(range(len(counts)), [f"p = {int(p)}" for p in counts])
        one.text(1.02, len(counts) - 0.5, "converged", transform=one.get_yaxis_transform(), fontsize=8.5, color=GREY)
    handles = [
        Line2D([], [], color=INK, marker="o", linestyle="none", label="met the stopping rule"),
        Line2D([], [], color=INK, marker="o", linestyle="none", markerfacecolor="none", label="reached the limit"),
    ]
    if any(material.transition(p) is not None for p in values(material.paper, "n_participants")):
        handles.append(Line2D([], [], color=INK, linewidth=2, label="v_PT"))
    canvas.legend(handles=handles, loc="outside lower center", ncols=3)
    caption = (
        "Every mark is a draw of anchor noise: filled and raised where the power method met its stopping rule, open and "
        "lowered where it reached the limit of iterations. The black bar is v_PT, the noise near which it is expected to "
        f"stop finding global solutions. {_identity_words(material)}"
    )
    return [Drawing("transition", title, caption, canvas)]


def colour_of(material: Material, p: float) -> str:
    """One colour a number of participants, the same in all figures of a study."""
    counts = values(material.paper.where(method=ANCHOR_NOISE), "n_participants")
    return _COLOURS[counts.index(p) % len(_COLOURS)]


def _by_identities(paper: Results) -> Iterator[tuple[str, Results]]:
    """Parts of the table with one number of identities a participant, in words."""
    known = values(paper.where(method=ANCHOR_NOISE), "identities_each")
    if not known:
        yield "", paper
    for number in known:
        yield f"{int(number)} identities each", paper.where(identities_each=number)


def _identity_words(material: Material) -> str:
    known = [int(number) for number in values(material.paper.where(method=ANCHOR_NOISE), "identities_each")]
    if not known:
        return ""
    return (
        f"Every participant has {' or '.join(map(str, known))} identities, as the panel says; the paper gives it 100."
    )


def _strip_words() -> str:
    return (
        "The strip on the right compares, in the same colours: I-GDP, a participant's own model ('local only', mean over "
        "participants), and pooled raw records."
    )
