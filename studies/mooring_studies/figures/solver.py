"""How the paper's power method fares as anchor noise grows."""

from __future__ import annotations

import numpy as np

from mooring_studies.figures.figure_file import Drawing
from mooring_studies.figures.labels import ANCHOR_AXIS, ANCHOR_NOISE, INK, METHOD_COLOURS, title_of
from mooring_studies.figures.series import Material, column, converged
from mooring_studies.figures.style import mark_transition, new_canvas, observations

_PANELS = (
    ("iterations", "Iterations", "iterations"),
    ("residual", "Fixed-point residual", "residual, log scale"),
    ("solver_seconds", "Time of one alignment", "seconds, log scale"),
)


def draw_solver(material: Material) -> list[Drawing]:
    """Iterations, residual and time against anchor noise; nothing where the solver left no record."""
    own = material.paper.where(method=ANCHOR_NOISE)
    if not np.isfinite(column(own, "iterations")).any():
        return []
    title = f"{title_of(material.study)}: how the paper's solver fares as anchor noise grows"
    canvas, axes = new_canvas(1, 3, height=4.0, title=title)
    x, shut, colour = column(own, "anchor_noise_scale"), converged(own), METHOD_COLOURS[ANCHOR_NOISE]
    for one, (name, heading, words) in zip(axes[0], _PANELS, strict=True):
        one.set(title=heading, xlabel=ANCHOR_AXIS, ylabel=words)
        y = column(own, name)
        if name == "iterations":
            one.set_ylim(0, 1.05 * float(np.nanmax(y)))
        elif (y > 0).any():
            one.set_yscale("log")
            y = np.where(y > 0, y, np.nan)
        observations(one, x, y, colour=colour, filled=shut, strength=0.75, size=4.4)
        mark_transition(one, material.only_transition())
    _legend(canvas, colour)
    n_shut = int(shut.sum())
    caption = (
        f"The paper's power method on {len(own)} draws of anchor noise: {n_shut} met its stopping rule (filled), "
        f"{len(own) - n_shut} returned the last iterate at the limit of iterations (open). v_PT is the noise near which "
        "the method is expected to stop finding global solutions. Every iterate is used, converged or not."
    )
    return [Drawing("solver", title, caption, canvas)]


def _legend(canvas: object, colour: str) -> None:
    """Filled and open, once for all panels."""
    from matplotlib.figure import Figure as Canvas
    from matplotlib.lines import Line2D

    assert isinstance(canvas, Canvas)
    common = {"linestyle": "none", "marker": "o", "color": colour, "markersize": 5}
    handles = [
        Line2D([], [], label="met the stopping rule", **common),  # type: ignore[arg-type]
        Line2D([], [], label="reached the limit of iterations", markerfacecolor="none", **common),  # type: ignore[arg-type]
    ]
    canvas.legend(handles=handles, loc="outside lower center", ncols=2, labelcolor=INK)
