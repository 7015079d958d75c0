"""Figures of an audit: the frontier, leakage against noise, utility, rows and images side by side."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from mooring.audit.outcomes import HEADLINE
from mooring.mechanisms.methods import METHODS

AuditResult: TypeAlias = Any  # results draw themselves with this file, so it cannot import their types
PointResult: TypeAlias = Any

_INK, _QUIET, _ALARM, _CALM = "#1f2933", "#7b8794", "#b03a2e", "#2f7d4f"
_COLOURS = (
    "#4878a8",
    "#e49444",
    "#d1615d",
    "#85b6b2",
    "#6a9f58",
    "#e7ca60",
    "#a87c9f",
    "#967662",
    "#1f2933",
    "#b8b0ac",
)
_MARKS = {"none": "square", "reference": "circle", "procrustes": "diamond"}


def draw(result: AuditResult) -> dict[str, Any]:
    """Plotly figures by name; those that have nothing to show are left out."""
    made = {
        "frontier": frontier(result),
        "leakage": leakage(result),
        "examples": examples(result),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def frontier(result: AuditResult, *, recommended: PointResult | None = None, floor: float | None = None) -> Any:
    """Utility as deployed against what the strongest attack leaves unrecovered, a mark a point."""
    import plotly.graph_objects as go

    shown = [one for one in result.points if one.deployed is not None and one.worst() is not None]
    if not shown:
        return None
    figure = go.Figure()
    for colour, name in zip(_COLOURS, dict.fromkeys(one.point.method for one in shown), strict=False):
        own = sorted((one for one in shown if one.point.method == name), key=lambda one: _leak(one)[1].value)
        figure.add_scatter(
            x=[_leak(one)[1].value for one in own],
            y=[one.deployed.value for one in own if one.deployed],
            error_x=_bars([_leak(one)[1] for one in own]),
            error_y=_score_bars([one.deployed for one in own]),
            mode="markers",
            name=METHODS[name].title,
            marker={"size": 10, "color": colour, "symbol": _MARKS[METHODS[name].alignment]},
            text=[f"{one.point.title}<br>h = {one.point.n_components}; strongest: {_leak(one)[0]}" for one in own],
            hovertemplate="%{text}<br>error %{x:.2f}, score %{y:.1%}<extra></extra>",
        )
    if recommended is not None and recommended.deployed is not None:
        figure.add_scatter(
            x=[_leak(recommended)[1].value],
            y=[recommended.deployed.value],
            mode="markers",
            name="recommended",
            marker={"size": 22, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": _CALM}},
            hoverinfo="skip",
        )
    _truth_lines(figure, result)
    if floor is not None:
        figure.add_vline(x=floor, line={"color": _CALM, "dash": "dash", "width": 1.5}, annotation_text="target")
    figure.update_xaxes(title="strongest attack's error (right is safer)", rangemode="tozero")
    figure.update_yaxes(
        title=f"{shown[0].deployed.metric if shown[0].deployed else 'score'}, as deployed", tickformat=".0%"
    )
    return _styled(figure, height=480)


def leakage(result: AuditResult) -> Any:
    """Every attack's error at every point, the strongest outlined."""
    import plotly.graph_objects as go

    shown = [one for one in result.points if one.worst() is not None]
    if not shown:
        return None
    names = list(
        dict.fromkeys(outcome.attack for one in shown for outcome in one.outcomes if HEADLINE in outcome.figures)
    )
    titles = [one.point.title for one in shown]
    rows = [
        title if titles.count(title) == 1 else f"{title}, h = {one.point.n_components}, r = {one.point.n_anchor_rows}"
        for title, one in zip(titles, shown, strict=True)
    ]
    z = [
        [
            next((o.figures[HEADLINE].value for o in one.outcomes if o.attack == name and o.applies), None)
            for name in names
        ]
        for one in shown
    ]
    text = [["" if value is None else f"{value:.2f}" for value in row] for row in z]
    figure = go.Figure(
        go.Heatmap(
            x=names,
            y=rows,
            z=z,
            text=text,
            texttemplate="%{text}",
            zmin=0,
            zmax=1,
            colorscale=[[0, "#d9695f"], [0.5, "#f4e4c1"], [1, "#dfe9e2"]],
            colorbar={"title": "error"},
            hovertemplate="%{y}<br>%{x}: error %{z:.3f}<extra></extra>",
        )
    )
    for k, one in enumerate(shown):
        column = names.index(_leak(one)[0])
        box = {"x0": column - 0.5, "x1": column + 0.5, "y0": k - 0.5, "y1": k + 0.5}
        figure.add_shape(type="rect", line={"color": _INK, "width": 2}, **box)
    figure.update_yaxes(autorange="reversed", automargin=True).update_xaxes(tickangle=-40, automargin=True)
    return _styled(figure, height=220 + 26 * len(rows))


def examples(result: AuditResult) -> Any:
    """Images side by side, at up to four points from the least to the best protected; None for tables."""
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    having = [one for one in result.points if one.examples is not None and one.examples["image_shape"]]
    if not having:
        return None
    having = sorted(having, key=lambda one: _leak(one)[1].value)
    chosen = [having[k] for k in sorted({round(x) for x in np.linspace(0, len(having) - 1, min(4, len(having)))})]
    first = chosen[0].examples
    assert first is not None
    shape = first["image_shape"]
    strips = [("original", first["rows"]["original"]), ("projection only", first["rows"]["projection only"])]
    strips += [
        (f"{one.point.title}: {_leak(one)[0]}", one.examples["rows"]["rebuilt"]) for one in chosen if one.examples
    ]
    if "guessed without the upload" in first["rows"]:
        strips.append(("guessed without the upload", first["rows"]["guessed without the upload"]))
    figure = make_subplots(rows=len(strips), cols=1, subplot_titles=[name for name, _ in strips], vertical_spacing=0.05)
    for k, (_, rows) in enumerate(strips, start=1):
        strip = np.concatenate([np.asarray(row).reshape(shape) for row in rows], axis=1)
        if strip.ndim == 2:
            image: Any = go.Heatmap(
                z=strip[::-1], colorscale="Greys", reversescale=True, showscale=False, zmin=0, zmax=1
            )
        else:
            pixels = (255 * strip[..., :3] if strip.shape[2] >= 3 else 255 * strip.repeat(3, axis=2)).astype(np.uint8)
            image = go.Image(z=pixels)
        figure.add_trace(image, row=k, col=1)
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    for k in range(1, len(strips) + 1):
        figure.update_yaxes(scaleanchor=f"x{k if k > 1 else ''}", row=k, col=1)
    return _styled(figure, height=130 * len(strips))


def _leak(one: PointResult) -> tuple[str, Any]:
    attack, figure = one.worst()
    return attack, figure


def _bars(figures: list[Any]) -> dict[str, Any]:
    known = [f.interval.known for f in figures]
    return {
        "type": "data",
        "symmetric": False,
        "array": [f.interval.high - f.value if k else 0 for f, k in zip(figures, known, strict=True)],
        "arrayminus": [f.value - f.interval.low if k else 0 for f, k in zip(figures, known, strict=True)],
        "thickness": 1,
    }


def _score_bars(scores: list[Any]) -> dict[str, Any]:
    return {
        "type": "data",
        "symmetric": False,
        "array": [s.high - s.value for s in scores],
        "arrayminus": [s.value - s.low for s in scores],
        "thickness": 1,
    }


def _truth_lines(figure: Any, result: AuditResult) -> None:
    lines = (("local only", result.references.local_only, _ALARM), ("pooled raw", result.references.pooled_raw, _QUIET))
    for name, score, colour in lines:
        if score is not None:
            figure.add_hline(
                y=score.value,
                line={"color": colour, "dash": "dot", "width": 2},
                annotation_text=f"{name} {score.value:.1%}",
                annotation_font_color=colour,
                annotation_position="top left" if name == "pooled raw" else "bottom left",
            )


def _styled(figure: Any, *, height: int) -> Any:
    figure.update_layout(
        height=height,
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "color": _INK, "size": 13},
        margin={"l": 60, "r": 20, "t": 40, "b": 60},
        legend={"orientation": "h", "y": -0.2},
    )
    return figure
