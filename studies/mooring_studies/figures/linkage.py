"""What an attacker links, against the noise: the paper's attacks, and the strongest attack known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring_studies.figures.attack_curves import (
    CURVE_RULE,
    PAPER_ATTACKS,
    SCALES,
    has_learned_decoder,
    noiseless_linkage,
    paper_line,
    strongest_line,
)
from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.fits import BAND_RULE
from mooring_studies.figures.labels import (
    ALIGNED,
    ALIGNED_DATA_NOISE,
    ANCHOR_AXIS,
    ANCHOR_NOISE,
    ATTACK_COLOURS,
    ATTACK_MARKERS,
    BLACK,
    COMMON,
    DATA_AXIS,
    DATA_NOISE,
    GREY,
    GUESSING,
    LINKAGE_CHANCE,
    STRONGEST,
    attack_words,
    linkage_axis,
    title_of,
)
from mooring_studies.figures.series import (
    Material,
    column,
    converged,
    luck,
    mean,
    percent,
    strongest,
)
from mooring_studies.figures.style import (
    EndLabel,
    darkest,
    end_labels,
    fitted,
    level,
    new_canvas,
    noiseless_level,
    not_run,
    observations,
    percent_axis,
    round_top,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Results


def draw_linkage(material: Material) -> list[Drawing]:
    """The paper's attacks under either noise, and the strongest attack by the same auditor."""
    title = f"{title_of(material.study)}: what an attacker links as noise grows"
    canvas, axes = new_canvas(1, 2, height=4.6, title=title)
    left, right = axes[0]
    paper = material.paper
    _data_noise_panel(left, material, paper)
    _anchor_noise_panel(right, material, paper)
    n_data, n_anchor = len(paper.where(method=DATA_NOISE)), len(paper.where(method=ANCHOR_NOISE))
    n_full = _n_complete(paper.where(method=ANCHOR_NOISE))
    caption = (
        f"(a) Private-data noise, {n_data} draws; (b) anchor noise, {n_anchor} draws. Each point is one draw; filled points "
        "in (b) are draws on which the solver converged, open ones those where it reached its limit of iterations. Curves "
        f"are the paper's splines with 95 % bootstrap bands, {BAND_RULE}. The black line is the "
        f"strongest attack of all that were run, judged by the same auditor; in (b) it rests on the {n_full} draws on "
        f"which every attack was run. {CURVE_RULE}. Dash-dotted: the paper's attack without noise, by the paper's decoder. "
        "Dotted: guessing."
        f"{luck(material, 'linkage', (DATA_NOISE, ANCHOR_NOISE))} "
        "Lower is safer, and every curve is a lower bound on leakage."
    )
    return [Drawing("linkage", title, caption, canvas)]


def draw_linkage_strongest(material: Material) -> list[Drawing]:
    """The strongest attack by the paper's auditor and by direct matching, beside the paper's own strongest."""
    title = f"{title_of(material.study)}: the strongest attack, by two ways of matching"
    canvas, axes = new_canvas(1, 2, height=4.6, title=title)
    panels = (
        (axes[0][0], DATA_NOISE, "data_noise_scale", DATA_AXIS, "known-secret", "(a) Private-data noise"),
        (axes[0][1], ANCHOR_NOISE, "anchor_noise_scale", ANCHOR_AXIS, "procrustes", "(b) Anchor noise"),
    )
    for one, method, scale, words, attack, heading in panels:
        _finish(one, heading, words, "matched to the true source, %")
        own = material.paper.where(method=method)
        if not len(own):
            not_run(one)
            continue
        x = column(own, scale)
        by_auditor, by_matching = strongest(own, "linkage"), strongest(own, "match")
        colour = ATTACK_COLOURS[attack]
        observations(one, x, by_matching, colour=BLACK, marker="D", strength=0.3, size=3.2)
        observations(one, x, by_auditor, colour=BLACK, marker="o", strength=0.3, size=3.2)
        paper = paper_line(material, material.paper, method, attack)
        by_same_auditor = strongest_line(material, material.paper, method)
        end_labels(
            one,
            [
                fitted(one, paper, colour=colour, label=f"the paper's: {attack_words(attack)}"),
                darkest(one, by_same_auditor, label="strongest, by the auditor", style=(0, (4, 1.5))),
                darkest(one, material.fits.line(x, by_matching), label="strongest, matched directly"),
                level(one, LINKAGE_CHANCE, GUESSING, colour=GREY, style=":"),
            ],
        )
    noisy = material.paper.where(method=ANCHOR_NOISE)
    found = dict.fromkeys([*noisy.attacks("match"), *noisy.attacks("linkage")])
    by_luck = (
        luck(material, "linkage", (DATA_NOISE, ANCHOR_NOISE), opening="By the auditor, the best"),
        luck(material, "match", (DATA_NOISE, ANCHOR_NOISE), opening="Matched directly, the best"),
    )
    caption = (
        "The coloured curve is the paper's strongest attack, judged by the paper's auditor. The dashed black curve is the "
        "strongest attack of all that were run, judged by that auditor; the solid black curve is the strongest attack when "
        "rebuilt records are matched straight in the projected space, with no network in between. Attacks on anchor noise: "
        f"{', '.join(attack_words(name) for name in found) or 'none'}. Black curves rest on the draws on which every attack "
        f"was run, with {BAND_RULE}. {CURVE_RULE}.{''.join(by_luck)} All are lower bounds: a better attack may exist."
    )
    return [Drawing("linkage-strongest", title, caption, canvas)]


def _data_noise_panel(axes: Axes, material: Material, paper: Results) -> None:
    _finish(
        axes, "(a) Private-data noise: what an attacker links", DATA_AXIS, linkage_axis(material.study), top=_top(paper)
    )
    own, aligned = paper.where(method=DATA_NOISE), paper.where(method=ALIGNED_DATA_NOISE)
    if not len(own):
        not_run(axes)
        return
    labels: list[EndLabel | None] = []
    series = [(own, DATA_NOISE, "known-secret", "C-GDP, known secret")]
    if len(aligned) and not _coincide(own, aligned):
        series.append((aligned, ALIGNED_DATA_NOISE, "known-anchor", "AA-I-GDP, known anchor"))
    elif len(aligned):
        series = [(own, DATA_NOISE, "known-secret", "C-GDP and AA-I-GDP")]
    for rows, method, attack, words in series:
        x, y = column(rows, "data_noise_scale"), percent(rows, f"linkage:{attack}")
        observations(axes, x, y, colour=ATTACK_COLOURS[attack], marker=ATTACK_MARKERS[attack])
        line = paper_line(material, paper, method, attack)
        labels.append(fitted(axes, line, colour=ATTACK_COLOURS[attack], label=words))
    labels += [_strongest_line(axes, material, paper, DATA_NOISE), _noiseless(axes, paper, DATA_NOISE)]
    labels.append(level(axes, LINKAGE_CHANCE, GUESSING, colour=GREY, style=":"))
    end_labels(axes, labels)


def _anchor_noise_panel(axes: Axes, material: Material, paper: Results) -> None:
    _finish(
        axes, "(b) Anchor noise: what an attacker links", ANCHOR_AXIS, linkage_axis(material.study), top=_top(paper)
    )
    own = paper.where(method=ANCHOR_NOISE)
    if not len(own):
        not_run(axes)
        return
    x, shut = column(own, "anchor_noise_scale"), converged(own)
    labels: list[EndLabel | None] = []
    for attack in PAPER_ATTACKS[ANCHOR_NOISE]:
        y = percent(own, f"linkage:{attack}")
        if mean(y) is None:
            continue
        colour = ATTACK_COLOURS[attack]
        observations(axes, x, y, colour=colour, marker=ATTACK_MARKERS[attack], filled=shut, strength=0.28)
        line = paper_line(material, paper, ANCHOR_NOISE, attack)
        labels.append(fitted(axes, line, colour=colour, label=attack_words(attack)))
    labels += [_strongest_line(axes, material, paper, ANCHOR_NOISE), _noiseless(axes, paper, ANCHOR_NOISE)]
    labels.append(level(axes, LINKAGE_CHANCE, GUESSING, colour=GREY, style=":"))
    end_labels(axes, labels)


def _strongest_line(axes: Axes, material: Material, paper: Results, method: str) -> EndLabel | None:
    rows = paper.where(method=method)
    x, y = column(rows, SCALES[method]), strongest(rows, "linkage")
    observations(axes, x, y, colour=BLACK, marker="D", strength=0.3, size=3.0)
    return darkest(axes, strongest_line(material, paper, method), label=STRONGEST)


def _noiseless(axes: Axes, paper: Results, method: str) -> EndLabel | None:
    """What the paper's attack links without noise; the label says whose decoder where others were tried too."""
    words = "no noise, paper's decoder" if has_learned_decoder(paper, method) else "no noise"
    return noiseless_level(axes, noiseless_linkage(paper, method), words)


def _finish(axes: Axes, heading: str, across: str, up: str, *, top: float = 100.0) -> None:
    axes.set(title=heading, xlabel=across, ylabel=up)
    percent_axis(axes, high=top)


def _top(paper: Results) -> float:
    """One height for both panels."""
    noisy = paper.where(method=[DATA_NOISE, ALIGNED_DATA_NOISE, ANCHOR_NOISE, COMMON, ALIGNED])
    return round_top(*(percent(noisy, f"linkage:{name}") for name in noisy.attacks("linkage")))


def _coincide(one: Results, other: Results) -> bool:
    """Whether the coupled attacks found the same in every draw, as they should."""
    first, second = percent(one, "linkage:known-secret"), percent(other, "linkage:known-anchor")
    return first.shape == second.shape and bool((abs(first - second) < 1e-9).all())


def _n_complete(rows: Results) -> int:
    found = strongest(rows, "linkage")
    return int((found == found).sum())
