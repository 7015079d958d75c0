"""Charts of an audit: frontier, envelope, errors by attack, membership, images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from mooring import METHODS, AuditResult, Plan
from mooring.audit import PointResult
from mooring.audit.result import find_strongest
from mooring.learners import Score
from mooring.metrics import Figure
from mooring.report.frame import ALARM, BLUE, CALM, INK, QUIET, SAND, in_chart, shorten

_ERROR = "centred_error"
_MOST_ATTACKS, _LONG_LABEL = 14, 26
_PALE = "#b8c2cc"
_METHOD_COLOURS = (BLUE, SAND, "#d1615d", "#85b6b2", "#6a9f58", "#e7ca60", "#a87c9f", "#967662", INK, "#b8b0ac")
_METHOD_MARKS = {"none": "square", "reference": "circle", "procrustes": "diamond"}


def draw_audit(audit: AuditResult | Plan) -> dict[str, Any]:
    """Plotly figures by name; those that have nothing to show are left out.

    `frontier` (of a plan, with its best point and the limit marked), `envelope`, `leakage`, `membership` and `examples`.
    """
    ringed, floor, measure = None, None, _ERROR
    if isinstance(audit, Plan):
        ringed = ("recommended" if audit.answer in ("pays", None) else "best within the limit", audit.recommended)
        if audit.limit.at_least:
            floor, measure = audit.limit.bound, audit.limit.measure
    result = _without_markup(audit.audit if isinstance(audit, Plan) else audit)
    envelope = _envelope_at_one_point(result.points[0]) if len(result.points) == 1 else _envelope(result)
    made = {
        "frontier": _frontier(result, ringed, floor, measure),
        "envelope": envelope,
        "leakage": _errors_by_attack(result),
        "membership": _membership(result),
        "examples": _images(result),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def order_points(result: AuditResult) -> list[PointResult]:
    """Operating points as tables and charts number them: where the strongest attack recovers most, first."""
    return sorted(result.points, key=lambda one: -1.0 if (worst := one.worst()) is None else worst[1].value)


def _without_markup(result: AuditResult) -> AuditResult:
    """The same result with names of attacks and metrics, which a file may forge, fit for a chart."""

    def cleaned(one: PointResult) -> PointResult:
        outcomes = tuple(replace(outcome, attack=in_chart(outcome.attack)) for outcome in one.outcomes)
        deployed = None if one.deployed is None else replace(one.deployed, metric=in_chart(one.deployed.metric))
        return replace(one, outcomes=outcomes, deployed=deployed)

    return replace(result, points=tuple(cleaned(one) for one in result.points))


def _frontier(
    result: AuditResult, ringed: tuple[str, PointResult | None] | None, floor: float | None, measure: str
) -> Any:
    """Utility as deployed against what the strongest attack leaves unrecovered, a mark a point."""
    shown = [
        (one, one.deployed, *worst)
        for one in result.points
        if one.deployed is not None and (worst := one.worst(measure)) is not None
    ]
    if not shown:
        return None
    figure = go.Figure()
    for colour, name in zip(_METHOD_COLOURS, dict.fromkeys(entry[0].point.method for entry in shown), strict=False):
        own = sorted((entry for entry in shown if entry[0].point.method == name), key=lambda entry: entry[3].value)
        figure.add_scatter(
            x=[error.value for *_, error in own],
            y=[score.value for _, score, *_ in own],
            error_x=error_bars([error for *_, error in own], thickness=1),
            error_y=error_bars([score for _, score, *_ in own], thickness=1),
            mode="markers",
            name=METHODS[name].title,
            marker={"size": 10, "color": colour, "symbol": _METHOD_MARKS[METHODS[name].alignment]},
            text=[f"{p.title}<br>h = {p.point.n_components}; strongest: {attack}" for p, _, attack, _ in own],
            hovertemplate="%{text}<br>error %{x:.2f}, score %{y:.1%}<extra></extra>",
        )
    label, chosen = ringed or ("", None)
    if chosen is not None and chosen.deployed is not None and (worst := chosen.worst(measure)) is not None:
        ring = {"size": 22, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": CALM}}
        place = {"x": [worst[1].value], "y": [chosen.deployed.value], "marker": ring}
        figure.add_scatter(mode="markers", name=label, hoverinfo="skip", **place)
    _add_references(figure, result)
    if floor is not None:
        figure.add_vline(x=floor, line={"color": CALM, "dash": "dash", "width": 1.5}, annotation_text="limit")
    known = [(error.value, score.value) for _, score, _, error in shown if not math.isnan(score.value)]
    best = sorted((x, y) for x, y in set(known) if not any(a >= x and b >= y and (a, b) != (x, y) for a, b in known))
    if len(best) > 1:  # the points that no other beats in score and in protection
        line = {"color": INK, "width": 1.5, "dash": "dash", "shape": "vh"}
        x, y = zip(*best, strict=True)
        figure.add_scatter(x=x, y=y, mode="lines", name="frontier", line=line, hoverinfo="skip")
    whose = "error of the most exposed tenth of rows" if measure == "exposed_tenth" else "error"
    figure.update_xaxes(title=f"strongest attack's {whose} (0 is exact recovery)", rangemode="tozero")
    figure.update_yaxes(title=f"{shown[0][1].metric}, as deployed", tickformat=".0%")
    below = {"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0, "xanchor": "left"}
    return style_chart(figure, height=480, top=20).update_layout(legend=below)


def _add_references(figure: Any, result: AuditResult) -> None:
    lines = (
        ("local only", result.references.local_only, ALARM, "bottom left"),
        ("pooled raw", result.references.pooled_raw, QUIET, "top left"),
    )
    for name, score, colour, position in lines:
        if score is not None:
            figure.add_hline(
                y=score.value,
                line={"color": colour, "dash": "dot", "width": 2},
                annotation_text=f"{name} {score.value:.1%}",
                annotation_font_color=colour,
                annotation_position=position,
            )


def _errors(one: PointResult) -> list[tuple[float, str]]:
    """Every attack's error at a point, with its name."""
    found = ((outcome.figures.get(_ERROR), outcome.attack) for outcome in one.outcomes)
    return [(figure.value, attack) for figure, attack in found if figure is not None and not math.isnan(figure.value)]


def _envelope(result: AuditResult) -> Any:
    """The strongest attack at each point as a line, every other attack as a mark above it."""
    numbered = list(enumerate(order_points(result), start=1))
    worst = [(k, *found) for k, one in numbered if (found := one.worst()) is not None]
    others = [(k, value, attack) for k, one in numbered if one.worst() is not None for value, attack in _errors(one)]
    if not worst:
        return None
    figure = go.Figure()
    figure.add_scatter(
        x=[k for k, _, _ in others],
        y=[value for _, value, _ in others],
        text=[attack for *_, attack in others],
        mode="markers",
        name="each attack",
        marker={"size": 7, "color": _PALE},
        hovertemplate="%{text}: %{y:.2f}<extra></extra>",
    )
    for name, level, dash, colour in (
        ("chance", "chance", "dot", QUIET),
        ("without the upload", "control", "dash", CALM),
    ):
        known = [(k, value) for k, _, one in worst if (value := getattr(one, level)) is not None]
        if known:
            x, y = zip(*known, strict=True)
            hover = f"{name}: %{{y:.2f}}<extra></extra>"
            line = {"dash": dash, "color": colour}
            figure.add_scatter(x=x, y=y, mode="lines", name=name, line=line, hovertemplate=hover)
    figure.add_scatter(
        x=[k for k, _, _ in worst],
        y=[one.value for _, _, one in worst],
        text=[name for _, name, _ in worst],
        error_y=error_bars([one for _, _, one in worst]),
        mode="lines+markers",
        name="envelope: the strongest attack",
        line={"color": ALARM, "width": 3},
        hovertemplate="strongest: %{text}, %{y:.2f}<extra></extra>",
    )
    most = max(1.1, *(min(value, 1.6) for _, value, _ in others))
    figure.update_yaxes(title="error of the rebuilt rows", range=[-0.03, most])
    figure.update_xaxes(title="operating point, by its number", tickmode="linear", dtick=1 + len(worst) // 15)
    return style_chart(figure, height=440)


def _envelope_at_one_point(one: PointResult) -> Any:
    """A bar an attack, the strongest in red, beside chance and what is guessed without the upload."""
    worst = one.worst()
    if worst is None:
        return None
    known = sorted(_errors(one))[:_MOST_ATTACKS]
    figure = go.Figure()
    colours = [ALARM if name == worst[0] else _PALE for _, name in known]
    add_bars(figure, [(k, value) for k, (value, _) in enumerate(known)], colours, [f"{x:.2f}" for x, _ in known])
    figure.update_traces(hovertemplate="%{x:.3f}<extra></extra>", showlegend=False)
    levels = (("chance", worst[1].chance, "dot", QUIET), ("without the upload", worst[1].control, "dash", CALM))
    for name, value, dash, colour in levels:
        if value is not None:
            line = {"dash": dash, "color": colour}
            figure.add_scatter(x=[value, value], y=[-0.5, len(known) - 0.5], mode="lines", name=name, line=line)
    name_bars(figure, [shorten(attack, _LONG_LABEL) for _, attack in known])
    figure.update_xaxes(title="error", range=[0, 1.6], nticks=5, tickangle=0)
    return style_chart(figure, height=150 + 30 * len(known))


def _errors_by_attack(result: AuditResult) -> Any:
    """Every attack's error at every point, the strongest outlined; points by their number, which a phone has room for."""
    shown = [(one, worst) for one in result.points if (worst := one.worst()) is not None]
    if not shown:
        return None
    names = list(
        dict.fromkeys(outcome.attack for one, _ in shown for outcome in one.outcomes if _ERROR in outcome.figures)
    )
    number = {id(one): k for k, one in enumerate(order_points(result), start=1)}
    z = [
        [
            next((o.figures[_ERROR].value for o in one.outcomes if o.attack == name and o.applies), None)
            for name in names
        ]
        for one, _ in shown
    ]
    figure = go.Figure(
        go.Heatmap(
            x=names,
            y=_distinct_titles([one for one, _ in shown]),
            z=z,
            text=[["" if value is None else f"{value:.2f}" for value in row] for row in z],
            texttemplate="%{text}",
            textfont={"size": 14},
            zmin=0,
            zmax=1,
            colorscale=[[0, "#d9695f"], [0.5, "#f4e4c1"], [1, "#dfe9e2"]],
            colorbar={"title": "error"},
            hovertemplate="%{y}<br>%{x}: error %{z:.3f}<extra></extra>",
        )
    )
    for k, (_, worst) in enumerate(shown):
        column = names.index(worst[0])
        box = {"x0": column - 0.5, "x1": column + 0.5, "y0": k - 0.5, "y1": k + 0.5}
        figure.add_shape(type="rect", line={"color": INK, "width": 2}, **box)
    ticks = {"tickvals": list(range(len(shown))), "ticktext": [f"#{number[id(one)]}" for one, _ in shown]}
    figure.update_yaxes(autorange="reversed", automargin=True, tickmode="array", **ticks)
    figure.update_xaxes(tickangle=-40, automargin=True)
    return style_chart(figure, height=220 + 26 * len(shown), top=40)


def _membership(result: AuditResult) -> Any:
    """The ROC of the strongest attack on membership at up to four points, both rates on a log scale."""
    having = []
    for one in order_points(result):
        told = find_strongest(one.outcomes, "membership_at_1_percent")
        if told is not None and told.curve:
            having.append((one.title, told))
    if not having:
        return None
    figure = go.Figure()
    chosen = sorted({round(x) for x in np.linspace(0, len(having) - 1, min(4, len(having)))})
    for colour, k in zip(_METHOD_COLOURS, chosen, strict=False):
        title, told = having[k]
        x, y = zip(*told.curve, strict=True)
        hover = "%{y:.1%} at %{x:.2%} false alarms<extra></extra>"
        name = f"{title}: {told.attack}" if len(chosen) > 1 else told.attack
        figure.add_scatter(x=x, y=y, mode="lines", line={"color": colour}, name=name, hovertemplate=hover)
    least = min(told.curve[0][0] for _, told in having)
    line = {"dash": "dot", "color": QUIET}
    figure.add_scatter(x=[least, 1], y=[least, 1], mode="lines", name="chance", line=line, hoverinfo="skip")
    ticks = {"type": "log", "tickvals": [0.0001, 0.001, 0.01, 0.1, 1.0], "tickformat": "~%"}
    figure.update_xaxes(title="false alarms", range=[math.log10(least), 0], **ticks)
    figure.update_yaxes(title="members told", range=[math.log10(least), 0.02], **ticks)
    below = {"orientation": "h", "yanchor": "top", "y": -0.2, "x": 0, "xanchor": "left"}
    return style_chart(figure, height=440, top=20).update_layout(legend=below)


def _distinct_titles(points: Sequence[PointResult]) -> list[str]:
    titles = [one.title for one in points]
    return [
        title if titles.count(title) == 1 else f"{title}, h = {one.point.n_components}, r = {one.point.n_anchor_rows}"
        for title, one in zip(titles, points, strict=True)
    ]


def _images(result: AuditResult) -> Any:
    """Images side by side, at up to four points from the least to the best protected; None for tables."""
    having = [
        (worst[1].value, worst[0], one.title, one.examples)
        for one in result.points
        if one.examples is not None and one.examples["image_shape"] and (worst := one.worst()) is not None
    ]
    if not having:
        return None
    having.sort(key=lambda entry: entry[0])
    chosen = [having[k] for k in sorted({round(x) for x in np.linspace(0, len(having) - 1, min(4, len(having)))})]
    first = chosen[0][3]
    strips = [(name, first["rows"][name]) for name in ("original", "projection only")]
    strips += [(f"{title}: {attack}", examples["rows"]["rebuilt"]) for _, attack, title, examples in chosen]
    strips += [(name, first["rows"][name]) for name in ("guessed without the upload",) if name in first["rows"]]
    figure = make_subplots(rows=len(strips), cols=1, subplot_titles=[name for name, _ in strips], vertical_spacing=0.05)
    for k, (_, rows) in enumerate(strips, start=1):
        strip = np.concatenate([np.asarray(row).reshape(first["image_shape"]) for row in rows], axis=1)
        if strip.ndim == 2:
            grey = {"colorscale": "Greys", "reversescale": True, "showscale": False, "zmin": 0, "zmax": 1}
            image: Any = go.Heatmap(z=strip[::-1], **grey)
        else:
            coloured = strip[..., :3] if strip.shape[2] >= 3 else strip.repeat(3, axis=2)
            image = go.Image(z=(255 * coloured).astype(np.uint8))
        figure.add_trace(image, row=k, col=1)
    figure.update_xaxes(visible=False).update_yaxes(visible=False)
    for k in range(1, len(strips) + 1):
        figure.update_yaxes(scaleanchor=f"x{k if k > 1 else ''}", row=k, col=1)
    return style_chart(figure, height=130 * len(strips), top=40)


def add_bars(
    figure: Any, values: Sequence[tuple[int, float]], colour: Any, text: Sequence[str], **options: Any
) -> None:
    """Horizontal bars at some lines, each with a text inside."""
    x, y = [value for _, value in values], [k for k, _ in values]
    look = {"textposition": "inside", "insidetextanchor": "start", "marker_color": colour} | options
    figure.add_bar(x=x, y=y, orientation="h", text=text, **look)


def error_bars(found: Sequence[Figure | Score], *, thickness: float = 1.5) -> dict[str, Any]:
    """Bars over intervals; none where one is not known."""
    intervals = [one.interval if isinstance(one, Figure) else one for one in found]
    known = [not math.isnan(ends.low) for ends in intervals]
    bars = list(zip(found, intervals, known, strict=True))
    return {
        "type": "data",
        "symmetric": False,
        "array": [ends.high - one.value if is_known else 0 for one, ends, is_known in bars],
        "arrayminus": [one.value - ends.low if is_known else 0 for one, ends, is_known in bars],
        "thickness": thickness,
        "visible": any(known),
    }


def name_bars(figure: Any, names: Sequence[str]) -> None:
    """Names along the side, by number underneath: two long names that are cut alike stay two lines."""
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(names))),
        ticktext=names,
        range=[len(names) - 0.4, -0.6],
        automargin=True,
        zeroline=False,
        showgrid=False,
    )


def style_chart(figure: Any, *, height: int, top: int = 30) -> Any:
    """The look that all charts share; the legend stands above, where nothing else is."""
    return figure.update_layout(
        height=height,
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "color": INK, "size": 14},
        margin={"l": 60, "r": 20, "t": top, "b": 60},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
    )
