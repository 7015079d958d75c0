"""Does joining beat training alone for each participant: the joint model on its own new rows, beside its own model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.labels import (
    ALIGNED,
    ANCHOR_NOISE,
    AUC_AXIS,
    CLEAN_AXIS,
    COMMON,
    DATA_NOISE,
    GREY,
    INK,
    LOCAL_OWN,
    METHOD_COLOURS,
    POOLED_RAW,
    title_of,
)
from mooring_studies.figures.series import Material, control, mean, percent, values
from mooring_studies.figures.style import new_canvas
from mooring_studies.figures.table_readings import levels, noisy_methods
from mooring_studies.figures.tabular import ALONE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mooring_studies.comparison.results import Results

Array = NDArray[np.float64]
_HALF = 0.42  # of the width between two participants that one takes, either side of its place
_NOISES = (
    ("private-data noise", "data_noise_scale", METHOD_COLOURS[DATA_NOISE], (-_HALF + 0.12, -0.02)),
    ("anchor noise", "anchor_noise_scale", METHOD_COLOURS[ANCHOR_NOISE], (0.08, _HALF - 0.04)),
)


def draw_each_participant(material: Material) -> list[Drawing]:
    """Every participant's own scores; nothing where there are none, as with many participants."""
    results = material.results
    own = results.where(method=LOCAL_OWN)
    known = [
        k for k in range(len(results.columns)) if f"own:{k}" in results and mean(percent(own, f"own:{k}")) is not None
    ]
    if not known:
        return []
    title = f"{title_of(material.study)}: does joining beat training alone, for each participant?"
    canvas, axes = new_canvas(2, 1, height=8.2, title=title, sharex=True)
    for one, prefix, up in ((axes[0][0], "own", CLEAN_AXIS), (axes[1][0], "auc_own", AUC_AXIS)):
        for place, k in enumerate(known):
            _one(one, results, f"{prefix}:{k}", place)
        one.set_ylabel(up)
        one.grid(axis="x", visible=False)
        one.axhline(50, color=GREY, linestyle=":", linewidth=1.2, label="_guessing")
    axes[0][0].set_title("Balanced accuracy on own new rows")
    axes[1][0].set_title("How well own new rows are ranked")
    axes[1][0].set_xticks(range(len(known)), [_name(material, k) for k in known])
    axes[1][0].set_xlim(-0.55, len(known) - 0.45)
    handles = dict(zip(*reversed(axes[0][0].get_legend_handles_labels()), strict=True))
    canvas.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=5)
    n = len(values(results, "deployment"))
    caption = (
        f"Every participant's own new rows, means over {n} deployments and their draws. Dashed line: its own model, trained "
        "alone on its own rows, which is what joining has to beat; shaded: its range between deployments. Star: the joint "
        "model without noise. Points: the joint model with noise, from the weakest on the left to the strongest on the "
        "right, with lines for the range between deployments. Square: everybody's unprotected rows pooled. Dotted: "
        "guessing. Balanced accuracy depends on where a model sets its threshold, the area under the ROC curve does not: a "
        "gain in the first alone is one of thresholds. Where a participant has few rows of one class, a few rows move both."
    )
    return [Drawing("each-participant", title, caption, canvas)]


def _one(axes: Axes, results: Results, name: str, place: float) -> None:
    """One participant: its own model as a level, and the joint models around its place."""
    alone = percent(results.where(method=LOCAL_OWN), name)
    alone = alone[np.isfinite(alone)]
    if len(alone):
        ends = np.array([place - _HALF, place + _HALF])
        axes.fill_between(ends, alone.min(), alone.max(), color=GREY, alpha=0.12, linewidth=0, label="_range")
        axes.plot(ends, [alone.mean()] * 2, color=INK, linestyle="--", linewidth=2.0, label=ALONE, zorder=3)
    plain = ALIGNED if len(results.where(method=ALIGNED)) else COMMON
    marks: tuple[tuple[str, str, Any, str], ...] = (
        (plain, "joined, no noise", "*", INK),
        (POOLED_RAW, "pooled raw", "s", GREY),
    )
    for shift, (method, words, marker, colour) in zip((0.06, 0.0), marks, strict=True):
        found = control(results, method, name)
        if found is not None:
            size = 12 if marker == "*" else 5
            look: dict[str, Any] = {"markersize": size, "linestyle": "none", "color": colour, "zorder": 6}
            axes.plot([place - _HALF + shift], [found], marker, label=words, **look)
    for words, scale, colour, (left, right) in _NOISES:
        method = next(method for method, noise in noisy_methods(results).items() if noise == words)
        x, y = levels(results.where(method=method), scale, name)
        if len(x):
            across = place + np.linspace(left, right, len(x))
            axes.vlines(across, y.min(axis=0), y.max(axis=0), color=colour, linewidth=1.0, alpha=0.45, label="_range")
            axes.plot(across, y.mean(axis=0), "o-", color=colour, markersize=5, linewidth=1.4, label=words, zorder=5)


def _name(material: Material, k: int) -> str:
    """A participant's name where the run noted names, else its number."""
    names = material.facts.get("participants")
    return str(names[k]) if isinstance(names, list) and k < len(names) else f"participant {k + 1}"
