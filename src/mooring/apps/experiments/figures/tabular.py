"""Hospitals and census: utility against noise, and utility against leakage, over several deployments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring.apps.experiments.figures.drawing import Drawing
from mooring.apps.experiments.figures.material import (
    Material,
    accuracy_of,
    column,
    local_only,
    mean,
    percent,
    pooled_raw,
    values,
)
from mooring.apps.experiments.figures.pareto import frontier
from mooring.apps.experiments.figures.style import (
    EndLabel,
    comparison_levels,
    end_labels,
    new_canvas,
    noiseless_level,
    not_run,
    observations,
    percent_axis,
    shade_below,
    utility_floor,
)
from mooring.apps.experiments.figures.wording import (
    ALIGNED,
    ALIGNED_DATA_NOISE,
    ANCHOR_AXIS,
    ANCHOR_NOISE,
    BLACK,
    BOTH_NOISES,
    CLEAN_AXIS,
    COMMON,
    DATA_AXIS,
    DATA_NOISE,
    GREY,
    INDEPENDENT,
    INK,
    LINKAGE_CHANCE,
    METHOD_COLOURS,
    METHOD_WORDS,
    PURPLE,
    STRONGEST,
    guessing_level,
    title_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring.apps.experiments.comparison.results import Kind, Results

Array = NDArray[np.float64]
_OTHER_SIZE = 1.5  # as many times more rows make another group; splits of one study differ by a row or two
_COLOURS = {
    "private-data noise": METHOD_COLOURS[DATA_NOISE],
    "anchor noise": METHOD_COLOURS[ANCHOR_NOISE],
    "both noises": METHOD_COLOURS[BOTH_NOISES],
}
_MARKERS = {"private-data noise": "o", "anchor noise": "s", "both noises": "^"}


def noisy_methods(rows: Results) -> dict[str, str]:
    """Words for the noisy methods of a table; private-data noise is one, whichever of its two coupled forms was run."""
    data = DATA_NOISE if len(rows.where(method=DATA_NOISE)) else ALIGNED_DATA_NOISE
    return {data: "private-data noise", ANCHOR_NOISE: "anchor noise", BOTH_NOISES: "both noises"}


def draw_tables(material: Material) -> list[Drawing]:
    """Both figures of a study of tables."""
    groups = list(_by_rows(material.results))
    return [_utility(material, groups), _tradeoff(material, groups)]


def _utility(material: Material, groups: list[tuple[str, Results]]) -> Drawing:
    title = f"{title_of(material.study)}: what joining is worth as noise grows"
    canvas, axes = new_canvas(len(groups), 2, height=0.7 + 4.0 * len(groups), title=title)
    for line, (words, rows) in zip(axes, groups, strict=True):
        _by_noise(line[0], material, rows, "private-data noise", "data_noise_scale", DATA_AXIS)
        _by_noise(line[1], material, rows, "anchor noise", "anchor_noise_scale", ANCHOR_AXIS)
        line[0].set_title(f"Private-data noise{words}")
        line[1].set_title(f"Anchor noise{words}")
    caption = (
        f"Balanced accuracy over everybody's test rows, {_deployments(material)}. Points: single runs, scored without noise "
        "on test rows, as deployed. Solid curves: their mean at each noise; shaded: the range between deployments. Dashed: "
        "the same models on test rows with noise, as the paper scores. 'Local only' is the mean of the participants' own "
        "models: below it, joining costs accuracy."
    )
    return Drawing("utility", title, caption, canvas)


def _tradeoff(material: Material, groups: list[tuple[str, Results]]) -> Drawing:
    title = f"{title_of(material.study)}: what joining costs and gives, as deployed"
    canvas, axes = new_canvas(len(groups), 2, height=1.1 + 4.4 * len(groups), title=title)
    for line, (words, rows) in zip(axes, groups, strict=True):
        _points(line[0], material, rows, "match")
        _points(line[1], material, rows, "error")
        line[0].set(title=f"By matching{words}", xlabel=f"matched by the {STRONGEST}, %")
        line[1].set(title=f"By error{words}", xlabel="relative error of that attack (safer to the left)")
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    named = {"pooled raw", "local only", "random guessing", "worse than training alone"}
    shown = {label: handle for label, handle in handles.items() if label not in named}
    canvas.legend(list(shown.values()), list(shown), loc="outside lower center", ncols=4)
    caption = (
        f"Upper left is better, {_deployments(material)}. Left: the share of records that the strongest attack we know "
        "matches to their source among ten of the same class. Right: its relative error; the axis runs backwards, so that "
        "safer is left there too. Dotted: a guess among ten, and a guess of the mean record. Small points: single runs; "
        "large ones: the mean at each noise; the black steps join the means that no other beats. In the shaded region a "
        "participant does better alone. Leakage is a lower bound."
    )
    return Drawing("tradeoff", title, caption, canvas)


def _by_noise(axes: Axes, material: Material, rows: Results, words: str, scale: str, across: str) -> None:
    axes.set(xlabel=across, ylabel=CLEAN_AXIS)
    percent_axis(axes, low=_floor(material))
    labels: list[EndLabel | None] = [
        noiseless_level(axes, accuracy_of(rows, ALIGNED) or accuracy_of(rows, COMMON), "no noise"),
        *comparison_levels(
            axes,
            local=local_only(rows),
            pooled=pooled_raw(rows),
            independent=accuracy_of(rows, INDEPENDENT),
            chance=guessing_level(material.study),
        ),
    ]
    method = next(method for method, name in noisy_methods(rows).items() if name == words)
    own, colour = rows.where(method=method), _COLOURS[words]
    x, clean = levels(own, scale, "balanced_accuracy_clean")
    if len(x):
        observations(axes, column(own, scale), percent(own, "balanced_accuracy_clean"), colour=colour)
        axes.fill_between(x, clean.min(axis=0), clean.max(axis=0), color=colour, alpha=0.15, linewidth=0)
        axes.plot(x, clean.mean(axis=0), color=colour, linewidth=2.2, label=words, zorder=5)
        labels.append(EndLabel(float(clean.mean(axis=0)[-1]), f"{words}, as deployed", colour))
        x, noisy = levels(own, scale, "balanced_accuracy")
        if len(x) and abs(noisy.mean(axis=0) - clean.mean(axis=0)).max() > 0.05:
            axes.plot(x, noisy.mean(axis=0), color=colour, linewidth=1.4, linestyle="--", label=f"{words}, noisy rows")
            labels.append(EndLabel(float(noisy.mean(axis=0)[-1]), f"{words}, noisy rows", colour))
    else:
        not_run(axes)
    end_labels(axes, labels, size=8.8)


def levels(rows: Results, scale: str, name: str) -> tuple[Array, Array]:
    """Noise levels, and a percentage at each: one row a deployment, draws averaged.

    The k-th level of every deployment is one level: σ is a multiple of the rows' size, which differs a little between
    deployments. Deployments with fewer levels than others, unfinished ones, are left out.
    """
    across, up = [], []
    for deployment in values(rows, "deployment"):
        own = rows.where(deployment=deployment)
        x, y = column(own, scale), percent(own, name)
        good = np.isfinite(x) & np.isfinite(y)
        places, which = np.unique(np.round(x[good], 9), return_inverse=True)
        if len(places):
            across.append(places)
            up.append(np.bincount(which, weights=y[good]) / np.bincount(which))
    if not across:
        return np.empty(0), np.empty((0, 0))
    most = max(len(places) for places in across)
    kept = [k for k, places in enumerate(across) if len(places) == most]
    return np.mean([across[k] for k in kept], axis=0), np.stack([up[k] for k in kept])


def means_by_setting(rows: Results, *series: Array) -> list[Array]:
    """Every series averaged over the runs of one setting of the noise, whatever their deployment and draw.

    A setting is v and the place of σ among a deployment's: σ is a multiple of the rows' size, which differs a little.
    """
    v, sigma = (np.round(np.nan_to_num(column(rows, f"{name}_noise_scale")), 9) for name in ("anchor", "data"))
    deployment, place = column(rows, "deployment"), np.zeros(len(rows))
    for one in np.unique(deployment):
        own = deployment == one
        place[own] = np.unique(sigma[own], return_inverse=True)[1]
    good = np.isfinite(np.stack(series)).all(axis=0)
    if not good.any():
        return [np.empty(0) for _ in series]
    which = np.unique(np.stack([v, place])[:, good], axis=1, return_inverse=True)[1].ravel()
    return [np.bincount(which, weights=each[good]) / np.bincount(which) for each in series]


def _points(axes: Axes, material: Material, rows: Results, kind: Kind) -> None:
    axes.set_ylabel(CLEAN_AXIS)
    percent_axis(axes, low=_floor(material))
    unit = 1 if kind == "error" else 100
    every_x, every_y = [np.empty(0)], [np.empty(0)]
    for method, words in noisy_methods(rows).items():
        own = rows.where(method=method)
        # Every attack was tried on every run here: one without a value did not apply.
        x, y = unit * own.envelope(kind), percent(own, "balanced_accuracy_clean")
        if mean(x) is None:
            continue
        look: dict[str, Any] = {"colour": _COLOURS[words], "marker": _MARKERS[words]}
        observations(axes, x, y, strength=0.2, size=3.2, **look)
        x, y = means_by_setting(own, x, y)
        observations(axes, x, y, strength=0.95, size=6.5, label=words, **look)
        every_x.append(x)
        every_y.append(y)
    x, y = np.concatenate(every_x), np.concatenate(every_y)
    best = frontier(-x if kind == "error" else x, y)
    if len(best):
        axes.plot(x[best], y[best], color=BLACK, linewidth=2.2, drawstyle="steps-post", label="frontier", zorder=1.8)
    plain = COMMON if len(rows.where(method=COMMON)) else ALIGNED
    for method, marker, colour in ((INDEPENDENT, "P", PURPLE), (plain, "*", INK)):
        leak = mean(unit * rows.where(method=method).envelope(kind))
        worth = accuracy_of(rows, method)
        if leak is not None and worth is not None:
            words = "I-GDP" if method == INDEPENDENT else f"{METHOD_WORDS[method]}, no noise"
            axes.plot([leak], [worth], marker, color=colour, markersize=11, linestyle="none", label=words, zorder=6)
            x = np.append(x, leak)
    _leakage_axis(axes, rows, kind, x)
    alone = local_only(rows)
    shade_below(axes, alone)
    end_labels(
        axes,
        comparison_levels(
            axes,
            local=alone,
            pooled=pooled_raw(rows),
            chance=guessing_level(material.study),
        ),
    )


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


def _by_rows(results: Results) -> Iterator[tuple[str, Results]]:
    """Parts of the table by rows a participant, where a study has several, in words."""
    sizes = values(results, "rows_each")
    starts = [size for k, size in enumerate(sizes) if k == 0 or size > _OTHER_SIZE * sizes[k - 1]]
    if len(starts) < 2:
        yield "", results
        return
    rows_each = column(results, "rows_each")
    for start, end in zip(starts, [*starts[1:], np.inf], strict=True):
        inside = (rows_each >= start) & (rows_each < end)
        yield f", {int(start)} rows each", results.only(inside)


def _floor(material: Material) -> float:
    return utility_floor(guessing_level(material.study), percent(material.results, "balanced_accuracy"))


def _deployments(material: Material) -> str:
    n = len(values(material.results, "deployment"))
    return f"{n} deployments" if n > 1 else "one deployment"
