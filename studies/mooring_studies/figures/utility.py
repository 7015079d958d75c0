"""What the joint model is worth against the noise, beside training alone and pooling raw records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.labels import (
    ALIGNED,
    ALIGNED_DATA_NOISE,
    ANCHOR_AXIS,
    ANCHOR_NOISE,
    COMMON,
    DATA_AXIS,
    DATA_NOISE,
    INDEPENDENT,
    METHOD_COLOURS,
    METHOD_WORDS,
    UTILITY_AXIS,
    guessing_level,
    title_of,
)
from mooring_studies.figures.operating_points import NOTICEABLE
from mooring_studies.figures.series import (
    Material,
    accuracy_of,
    column,
    converged,
    local_only,
    mean,
    percent,
    pooled_raw,
)
from mooring_studies.figures.style import (
    EndLabel,
    comparison_levels,
    end_labels,
    fitted,
    mark_transition,
    new_canvas,
    noiseless_level,
    not_run,
    observations,
    percent_axis,
    utility_floor,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_utility(material: Material) -> list[Drawing]:
    """Utility under either noise."""
    title = f"{title_of(material.study)}: what the joint model is worth as noise grows"
    canvas, axes = new_canvas(1, 2, height=4.8, title=title)
    left, right = axes[0]
    _data_noise_panel(left, material)
    _anchor_noise_panel(right, material)
    paper = material.paper
    n_data, n_anchor = len(paper.where(method=DATA_NOISE)), len(paper.where(method=ANCHOR_NOISE))
    caption = (
        f"(a) Private-data noise, {n_data} draws a method: solid curves score test rows that carry the noise too, as the "
        "paper does; the dashed curve scores the same networks on test rows without it, as a participant would. "
        f"(b) Anchor noise, {n_anchor} draws: filled points converged, open points reached the limit of iterations; v_PT "
        "marks where the solver is expected to stop converging. Bands are 95 % over noise draws of one deployment. "
        "'Local only' is the mean of the participants' own models: below it, joining costs accuracy. 'Pooled raw' is the "
        "ceiling with no protection."
    )
    return [Drawing("utility", title, caption, canvas)]


def _data_noise_panel(axes: Axes, material: Material) -> None:
    axes.set(title="(a) Private-data noise", xlabel=DATA_AXIS, ylabel=UTILITY_AXIS)
    percent_axis(axes, low=_floor(material))
    labels = _levels(axes, material)
    own = material.paper.where(method=DATA_NOISE)
    if not len(own):
        not_run(axes)
    shapes = {DATA_NOISE: ("o", "-"), ALIGNED_DATA_NOISE: ("x", (0, (1, 1)))}
    for method, (marker, style) in shapes.items():
        rows = material.paper.where(method=method)
        x, y = column(rows, "data_noise_scale"), percent(rows, "balanced_accuracy")
        if mean(y) is None:
            continue
        colour = METHOD_COLOURS[method]
        observations(axes, x, y, colour=colour, marker=marker)
        words = METHOD_WORDS[method].partition(",")[0]
        labels.append(fitted(axes, material.fits.line(x, y), colour=colour, style=style, label=f"{words}, noisy rows"))
    clean = material.fits.line(column(own, "data_noise_scale"), percent(own, "balanced_accuracy_clean"))
    labels.append(
        fitted(axes, clean, colour=METHOD_COLOURS[DATA_NOISE], style="--", width=1.5, label="C-GDP, as deployed")
    )
    end_labels(axes, labels)


def _anchor_noise_panel(axes: Axes, material: Material) -> None:
    axes.set(title="(b) Anchor noise", xlabel=ANCHOR_AXIS, ylabel=UTILITY_AXIS)
    percent_axis(axes, low=_floor(material))
    labels = _levels(axes, material)
    own = material.paper.where(method=ANCHOR_NOISE)
    if len(own):
        colour = METHOD_COLOURS[ANCHOR_NOISE]
        x, y = column(own, "anchor_noise_scale"), percent(own, "balanced_accuracy")
        observations(axes, x, y, colour=colour, filled=converged(own))
        labels.append(fitted(axes, material.fits.line(x, y), colour=colour, label="AA-I-GDP, anchor noise"))
        mark_transition(axes, material.only_transition())
    else:
        not_run(axes)
    end_labels(axes, labels)


def _levels(axes: Axes, material: Material) -> list[EndLabel | None]:
    paper = material.paper
    return [
        *_noiseless(axes, accuracy_of(paper, COMMON), accuracy_of(paper, ALIGNED)),
        *comparison_levels(
            axes,
            local=local_only(paper),
            pooled=pooled_raw(paper),
            independent=accuracy_of(paper, INDEPENDENT),
            chance=guessing_level(material.study),
        ),
    ]


def _noiseless(axes: Axes, common: float | None, aligned: float | None) -> list[EndLabel | None]:
    """C-GDP and AA-I-GDP without noise: one line where a reader could not tell them apart, else one each."""
    if common is not None and aligned is not None and abs(common - aligned) < NOTICEABLE:
        return [noiseless_level(axes, (common + aligned) / 2, "C-GDP and AA-I-GDP, no noise")]
    return [
        noiseless_level(axes, common, "C-GDP, no noise"),
        noiseless_level(axes, aligned, "AA-I-GDP, no noise", colour=METHOD_COLOURS[ANCHOR_NOISE]),
    ]


def _floor(material: Material) -> float:
    noisy = material.paper.where(method=[DATA_NOISE, ALIGNED_DATA_NOISE, ANCHOR_NOISE])
    return utility_floor(guessing_level(material.study), percent(noisy, "balanced_accuracy"))
