"""Charts of what attacks recovered: the envelope, the frontier, and errors by attack."""

from __future__ import annotations

import math
from typing import Any

import plotly.graph_objects as go

from mooring import AuditResult
from mooring.audit import PointResult
from mooring.report.frame import ALARM, CALM, INK, QUIET, in_chart
from mooring.report.leakage import in_order

_MOST_ATTACKS = 14


def envelope(result: AuditResult) -> Any:
    """The strongest attack at each point as a line, every other attack as a mark above it; None without figures."""
    if len(result.points) == 1:
        return _attacks(result.points[0])
    ordered = [(k, one) for k, one in enumerate(in_order(result), start=1) if one.worst() is not None]
    if not ordered:
        return None
    worst = [(k, *found) for k, one in ordered if (found := one.worst()) is not None]
    others = [
        (k, outcome.attack, outcome.figures["centred_error"].value)
        for k, one in ordered
        for outcome in one.outcomes
        if "centred_error" in outcome.figures and not math.isnan(outcome.figures["centred_error"].value)
    ]
    figure = go.Figure()
    figure.add_scatter(
        x=[k for k, _, _ in others],
        y=[value for _, _, value in others],
        text=[in_chart(name) for _, name, _ in others],
        mode="markers",
        name="each attack",
        marker={"size": 7, "color": "#b8c2cc"},
        hovertemplate="%{text}: %{y:.2f}<extra></extra>",
    )
    for name, level, dash in (("chance", "chance", "dot"), ("without the upload", "control", "dash")):
        known = [(k, value) for k, _, one in worst if (value := getattr(one, level)) is not None]
        if known:
            figure.add_scatter(
                x=[k for k, _ in known],
                y=[v for _, v in known],
                mode="lines",
                name=name,
                line={"dash": dash, "color": QUIET if level == "chance" else CALM},
                hovertemplate=f"{name}: %{{y:.2f}}<extra></extra>",
            )
    bars = [
        (one.interval.high - one.value, one.value - one.interval.low) if one.interval.known else (0.0, 0.0)
        for _, _, one in worst
    ]
    figure.add_scatter(
        x=[k for k, _, _ in worst],
        y=[one.value for _, _, one in worst],
        text=[in_chart(name) for _, name, _ in worst],
        error_y={"type": "data", "symmetric": False, "array": [b[0] for b in bars], "arrayminus": [b[1] for b in bars]},
        mode="lines+markers",
        name="envelope: the strongest attack",
        line={"color": ALARM, "width": 3},
        hovertemplate="strongest: %{text}, %{y:.2f}<extra></extra>",
    )
    most = max(1.1, *(min(value, 1.6) for _, _, value in others))
    figure.update_yaxes(title="error of the rebuilt rows", range=[-0.03, most])
    figure.update_xaxes(title="operating point, by its number", tickmode="linear", dtick=1 + len(worst) // 15)
    return styled(figure, height=440)


def _attacks(one: PointResult) -> Any:
    """At a single point: a bar an attack, the strongest in red, beside chance and what is guessed without the upload."""
    worst = one.worst()
    if worst is None:
        return None
    known = sorted(
        (figure.value, outcome.attack)
        for outcome in one.outcomes
        if (figure := outcome.figures.get("centred_error")) is not None and not math.isnan(figure.value)
    )[:_MOST_ATTACKS]
    figure = go.Figure()
    figure.add_bar(
        x=[value for value, _ in known],
        y=list(range(len(known))),
        orientation="h",
        marker_color=[ALARM if name == worst[0] else "#b8c2cc" for _, name in known],
        text=[f"{value:.2f}" for value, _ in known],
        textposition="inside",
        insidetextanchor="start",
        hovertemplate="%{x:.3f}<extra></extra>",
        showlegend=False,
    )
    for name, value, dash, colour in (
        ("chance", worst[1].chance, "dot", QUIET),
        ("without the upload", worst[1].control, "dash", CALM),
    ):
        if value is not None:
            line = {"dash": dash, "color": colour}
            figure.add_scatter(x=[value, value], y=[-0.5, len(known) - 0.5], mode="lines", name=name, line=line)
    names = [in_chart(name, 26) for _, name in known]
    figure.update_yaxes(
        tickvals=list(range(len(known))), ticktext=names, range=[len(known) - 0.4, -0.6], automargin=True
    )
    figure.update_xaxes(title="error", range=[0, 1.6], nticks=5, tickangle=0)
    return styled(figure, height=150 + 30 * len(known))


def with_numbers(figure: Any, result: AuditResult) -> Any:
    """The figure of errors by attack with points by their number: their titles leave a phone no room."""
    shown = [one for one in result.points if one.worst() is not None]
    place = {id(one): k for k, one in enumerate(in_order(result), start=1)}
    labels = [f"#{place[id(one)]}" for one in shown]
    figure.update_traces(textfont={"size": 14})
    return figure.update_yaxes(tickmode="array", tickvals=list(range(len(shown))), ticktext=labels)


def with_frontier(figure: Any, result: AuditResult) -> Any:
    """The figure of the frontier with the frontier drawn: the points that no other beats in score and in protection."""
    known = [
        (worst[1].value, one.deployed.value)
        for one in result.points
        if one.deployed is not None and (worst := one.worst()) is not None and not math.isnan(one.deployed.value)
    ]
    best = sorted((x, y) for x, y in set(known) if not any(a >= x and b >= y and (a, b) != (x, y) for a, b in known))
    if len(best) > 1:
        figure.add_scatter(
            x=[x for x, _ in best],
            y=[y for _, y in best],
            mode="lines",
            name="frontier",
            line={"color": INK, "width": 1.5, "dash": "dash", "shape": "vh"},
            hoverinfo="skip",
        )
    return figure


def styled(figure: Any, *, height: int) -> Any:
    """The look that all charts share; the legend stands above, where nothing else is."""
    return figure.update_layout(
        height=height,
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "color": INK, "size": 14},
        margin={"l": 60, "r": 20, "t": 30, "b": 60},
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0, "xanchor": "left"},
    )
