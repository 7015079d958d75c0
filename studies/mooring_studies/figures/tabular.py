"""Hospitals and census: utility against noise, and utility against leakage, over several deployments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.labels import (
    ALIGNED,
    ANCHOR_AXIS,
    ANCHOR_NOISE,
    BOTH_NOISES,
    CLEAN_AXIS,
    COMMON,
    DATA_AXIS,
    DATA_NOISE,
    FAINT,
    GREY,
    GUESSING,
    INDEPENDENT,
    INK,
    LINKAGE_CHANCE,
    LOCAL_ONLY,
    LOCAL_OWN,
    METHOD_COLOURS,
    POOLED_RAW,
    STRONGEST,
    title_of,
)
from mooring_studies.figures.operating_points import draw_frontier, mark_noiseless, noiseless_points
from mooring_studies.figures.series import (
    Material,
    accuracy_of,
    column,
    control,
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
    noiseless_level,
    not_run,
    observations,
    percent_axis,
    shade_below,
)
from mooring_studies.figures.table_readings import (
    ACCURACY,
    RANKING,
    Worth,
    by_rows,
    levels,
    means_by_setting,
    noisy_methods,
    paired_gains,
    strongest_noise,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Kind, Results

Array = NDArray[np.float64]
_COLOURS = {
    "private-data noise": METHOD_COLOURS[DATA_NOISE],
    "anchor noise": METHOD_COLOURS[ANCHOR_NOISE],
    "both noises": METHOD_COLOURS[BOTH_NOISES],
}
ALONE = "training alone, own rows"
ALONE_WORDS = (
    "'Training alone, own rows': each participant's own model on its own new rows, which is what joining has to beat. "
    "'Local only, everybody's rows' is the mean of these models on all participants' new rows: a model fails there also "
    "because it never met others' populations, which flatters joining."
)
_MARKERS = {"private-data noise": "o", "anchor noise": "s", "both noises": "^"}


def draw_tables(material: Material) -> list[Drawing]:
    """The figures of a study of tables that are alike for all its participants."""
    groups = list(by_rows(material.results))
    drawings = [_utility(material, groups, ACCURACY)]
    if mean(column(material.results, RANKING.clean)) is not None:
        drawings.append(_utility(material, groups, RANKING))
    return [*drawings, _tradeoff(material, groups)]


def _utility(material: Material, groups: list[tuple[str, Results]], worth: Worth) -> Drawing:
    by_rank = worth is RANKING
    question = "does joining rank new rows better?" if by_rank else "does joining beat training alone?"
    title = f"{title_of(material.study)}: {question}"
    canvas, axes = new_canvas(len(groups), 2, height=0.7 + 4.4 * len(groups), title=title)
    for line, (words, rows) in zip(axes, groups, strict=True):
        _by_noise(line[0], rows, "private-data noise", "data_noise_scale", DATA_AXIS, worth)
        _by_noise(line[1], rows, "anchor noise", "anchor_noise_scale", ANCHOR_AXIS, worth)
        line[0].set_title(f"Private-data noise{words}")
        line[1].set_title(f"Anchor noise{words}")
    measured = (
        "Area under the ROC curve on each participant's own new rows, mean over participants: how well a model ranks rows, "
        "whatever its threshold; 50 is guessing. A gain in balanced accuracy that is not to be seen here is one of "
        "thresholds. "
        if by_rank
        else "Balanced accuracy of the joint model on the participants' own new rows, all scored together; guessing gives "
        "50. Dashed curves: the same models where new rows carry noise too, as the paper scores. "
    )
    caption = (
        f"{measured}{_deployments(material)[0].upper()}{_deployments(material)[1:]}. Points: single runs, scored without "
        "noise, as deployed. Solid curves: their mean at each noise; shaded: the range between deployments. "
        f"{ALONE_WORDS} {_paired(groups, worth)}'Pooled raw': one model of everybody's unprotected rows. The upward axis "
        "does not begin at 0."
    )
    return Drawing("utility-auc" if by_rank else "utility", title, caption, canvas)


def _tradeoff(material: Material, groups: list[tuple[str, Results]]) -> Drawing:
    title = f"{title_of(material.study)}: what joining costs and gives, as deployed"
    canvas, axes = new_canvas(len(groups), 2, height=1.1 + 4.4 * len(groups), title=title)
    for line, (words, rows) in zip(axes, groups, strict=True):
        _points(line[0], rows, "match")
        _points(line[1], rows, "error")
        line[0].set(title=f"By matching{words}", xlabel=f"matched by the {STRONGEST}, %")
        line[1].set(title=f"By error{words}", xlabel="relative error of that attack (safer to the left)")
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    named = {"pooled raw", "local only", "local only, everybody's rows", ALONE, GUESSING, "worse than training alone"}
    shown = {label: handle for label, handle in handles.items() if label not in named}
    canvas.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4)
    caption = (
        f"Upper left is better, {_deployments(material)}. Left: the share of records that the strongest attack we know "
        "matches to their source among ten of the same class. Right: its relative error; the axis runs backwards, so that "
        "safer is left there too. Dotted: a guess among ten, and a guess of the mean record. Small points: single runs; "
        "large ones: the mean at each noise; the black steps join the means that no other beats, those without noise "
        "among them, and run on level to the greatest leakage. "
        f"In the shaded region a participant does better alone. {ALONE_WORDS} Leakage is a lower bound."
        f"{luck(material, 'match', noisy_methods(material.results), everywhere=True)}"
    )
    return Drawing("tradeoff", title, caption, canvas)


def _by_noise(axes: Axes, rows: Results, words: str, scale: str, across: str, worth: Worth) -> None:
    axes.set(xlabel=across, ylabel=worth.axis)
    low, high = _ends(rows, worth)
    percent_axis(axes, low=low, high=high)
    plain = ALIGNED if len(rows.where(method=ALIGNED)) else COMMON
    labels: list[EndLabel | None] = [
        noiseless_level(axes, control(rows, plain, worth.clean), "no noise"),
        *comparison_levels(
            axes,
            local=None,
            pooled=control(rows, POOLED_RAW, worth.clean),
            independent=control(rows, INDEPENDENT, worth.clean),
            chance=50.0 if low <= 50 else None,
        ),
        *alone_levels(axes, rows, worth.clean),
    ]
    method = next(method for method, name in noisy_methods(rows).items() if name == words)
    own, colour = rows.where(method=method), _COLOURS[words]
    x, clean = levels(own, scale, worth.clean)
    if len(x):
        observations(axes, column(own, scale), percent(own, worth.clean), colour=colour)
        axes.fill_between(x, clean.min(axis=0), clean.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, clean.mean(axis=0), color=colour, linewidth=2.2, label=words, zorder=5)
        labels.append(EndLabel(float(clean.mean(axis=0)[-1]), f"{words}, as deployed", colour))
        x, noisy = levels(own, scale, worth.noisy) if worth.noisy else (np.empty(0), clean)
        if len(x) and abs(noisy.mean(axis=0) - clean.mean(axis=0)).max() > 0.05:
            axes.plot(x, noisy.mean(axis=0), color=colour, linewidth=1.4, linestyle="--", label=f"{words}, noisy rows")
            labels.append(EndLabel(float(noisy.mean(axis=0)[-1]), f"{words}, noisy rows", colour))
    else:
        not_run(axes)
    end_labels(axes, labels, size=8.8)


def _range_in_words(low: str, high: str) -> str:
    """From where to where, where that is not the same."""
    return f" ({low} to {high})" if low != high else ""


def _paired(groups: list[tuple[str, Results]], worth: Worth) -> str:
    """Gains over training alone in words: without noise, and at the strongest noise of either kind."""
    parts = []
    for heading, rows in groups:
        plain = ALIGNED if len(rows.where(method=ALIGNED)) else COMMON
        joints = [("no noise", rows.where(method=plain))]
        for method, words in list(noisy_methods(rows).items())[:2]:
            joints.append((f"strongest {words}", strongest_noise(rows.where(method=method))))
        told = [(words, paired_gains(rows, joint, worth.clean)) for words, joint in joints]
        parts += [
            f"{words}{heading} {_signed(gain.mean())}{_range_in_words(_signed(gain.min()), _signed(gain.max()))}"
            for words, gain in told
            if len(gain)
        ]
    if not parts:
        return ""
    return f"Joint less training alone, points, mean and range over deployments: {'; '.join(parts)}. "


def _signed(points: float) -> str:
    return f"{points:+.1f}".replace("-", "−")


def alone_levels(axes: Axes, rows: Results, name: str) -> list[EndLabel | None]:
    """Training alone: on a participant's own new rows where that was measured, and, lighter, on everybody's."""
    everybody, own = control(rows, LOCAL_ONLY, name), control(rows, LOCAL_OWN, name)
    if own is None:
        return [level(axes, everybody, "local only", colour=GREY, style="--", width=1.6)]
    return [
        level(axes, own, ALONE, colour=INK, style="--", width=2.2),
        level(axes, everybody, "local only, everybody's rows", colour=FAINT, style="--", width=1.1),
    ]


def _ends(rows: Results, worth: Worth) -> tuple[float, float]:
    """Round ends of the upward axis: differences of a point or two are what matters here."""
    shown = percent(rows, worth.clean)
    if worth.noisy:
        shown = np.concatenate([shown, percent(rows, worth.noisy)])
    low, high = float(np.nanmin(shown, initial=100.0)), float(np.nanmax(shown, initial=50.0))
    return max(0.0, 5 * np.floor(low / 5)), min(100.0, 5 * np.ceil(high / 5))


def _points(axes: Axes, rows: Results, kind: Kind) -> None:
    axes.set_ylabel(CLEAN_AXIS)
    low, high = _ends(rows, Worth("balanced_accuracy_clean", None, CLEAN_AXIS))
    percent_axis(axes, low=low, high=high)
    every_x, every_y = [np.empty(0)], [np.empty(0)]
    for method, words in noisy_methods(rows).items():
        own = rows.where(method=method)
        x, y = strongest(own, kind), percent(own, "balanced_accuracy_clean")
        if mean(x) is None:
            continue
        look: dict[str, Any] = {"colour": _COLOURS[words], "marker": _MARKERS[words]}
        observations(axes, x, y, strength=0.2, size=3.2, **look)
        x, y = means_by_setting(own, x, y)
        observations(axes, x, y, strength=0.95, size=6.5, label=words, **look)
        every_x.append(x)
        every_y.append(y)
    x, y = np.concatenate(every_x), np.concatenate(every_y)
    quiet = noiseless_points(rows, kind)
    draw_frontier(axes, x, y, quiet, kind, width=2.2, level=1.8)
    mark_noiseless(axes, quiet)
    _leakage_axis(axes, rows, kind, np.append(x, [one.leakage for one in quiet]))
    alone = accuracy_of(rows, LOCAL_OWN)
    shade_below(axes, local_only(rows) if alone is None else alone)
    labels = comparison_levels(axes, local=None, pooled=pooled_raw(rows), chance=50.0 if low < 50 else None)
    end_labels(axes, [*labels, *alone_levels(axes, rows, "balanced_accuracy_clean")])


def _leakage_axis(axes: Axes, rows: Results, kind: Kind, x: Array) -> None:
    if kind == "match":
        percent_axis(axes, across=True)
        axes.axvline(LINKAGE_CHANCE, color=GREY, linestyle=":", linewidth=1.2, label="_chance")
        return
    guess = mean(column(rows, "error:guessing"))
    top = float(np.nanmax(np.append(x, guess or 1.0), initial=1.0))
    axes.set_xlim(1.08 * top, -0.04 * top)
    if guess is not None:
        axes.axvline(guess, color=GREY, linestyle=":", linewidth=1.2, label="_guessing the mean record")


def _deployments(material: Material) -> str:
    n = len(values(material.results, "deployment"))
    return f"{n} deployments" if n > 1 else "one deployment"
