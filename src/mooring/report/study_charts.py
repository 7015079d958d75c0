"""Charts of a study: how well participants fit each other, and what models score."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from mooring.learners import Score
from mooring.report.charts import add_bars, error_bars, name_bars, style_chart
from mooring.report.frame import ALARM, BLUE, CALM, QUIET, SAND, in_chart
from mooring.report.numbers import score_from

_MOST_BARS, _LABEL, _LONG_LABEL = 60, 18, 26
_SCORE_COLOURS = {"joint": BLUE, "local only": "#d1615d", "pooled raw": QUIET}


def draw_fits(participants: Sequence[Mapping[str, Any]]) -> Any:
    """A bar a participant: how well its anchor fits the others'; None if nobody's fit is known."""
    known = [one for one in participants if one["fit"] is not None][:_MOST_BARS]
    if not known:
        return None
    figure = go.Figure()
    for name, colour, flagged in (("fits", CALM, False), ("flagged", ALARM, True)):
        own = [(k, one["fit"]) for k, one in enumerate(known) if one["flagged"] is flagged]
        if own:
            add_bars(figure, own, colour, [f"{fit:.2f}" for _, fit in own], name=name, textposition="auto")
    figure.update_traces(hovertemplate="%{x:.3f}<extra></extra>")
    name_bars(figure, [in_chart(one["name"], _LABEL) for one in known])
    lowest = min(0.0, *(one["fit"] for one in known))
    figure.update_xaxes(title="fit with the others (1 is perfect)", range=[lowest, 1.02])
    return style_chart(figure, height=130 + 30 * len(known)).update_layout(
        showlegend=any(one["flagged"] for one in known)
    )


def draw_scores(entries: Sequence[Mapping[str, Any]]) -> Any:
    """A bar a score: joint, local only, pooled raw; those not known say so. None if none is known."""
    read = [
        (entry["group"], entry["name"], score_from(entry["score"]))
        for entry in entries
        if entry["group"] in ("joint", "local only", "pooled raw")
    ]
    known = [score for *_, score in read if score is not None]
    if not known:
        return None
    figure = go.Figure()
    for k, (group, _, score) in enumerate(read):
        if score is not None and score.metric == known[0].metric:
            more = {"error_x": error_bars([score]), "hovertemplate": f"{score.with_interval()}<extra></extra>"}
            add_bars(figure, [(k, score.value)], _SCORE_COLOURS[group], [str(score)], **more)
        else:
            words = "not known to this role" if score is None else "measured otherwise: see the table"
            figure.add_annotation(x=0, y=k, text=words, showarrow=False, xanchor="left", font={"color": QUIET})
    name_bars(figure, [in_chart(name, _LONG_LABEL) for _, name, _ in read])
    _scale_scores(figure, known)
    return style_chart(figure, height=130 + 40 * len(read)).update_layout(showlegend=False)


def draw_scores_by_participant(entries: Sequence[Mapping[str, Any]]) -> Any:
    """What models of the others score at each participant beside that of its own upload alone; None if neither is known."""
    known = [(entry["group"], entry["name"], score) for entry in entries if (score := score_from(entry["score"]))]
    groups = {
        group: {name: score for its_group, name, score in known if its_group == group}
        for group in ("joint by participant", "alone")
    }
    names = list(dict.fromkeys(name for own in groups.values() for name in own))[:_MOST_BARS]
    if not names:
        return None
    figure = go.Figure()
    looks = (("models of the others' uploads", BLUE, "circle", -0.14), ("its upload alone", SAND, "diamond", 0.14))
    for (title, colour, symbol, shift), own in zip(looks, groups.values(), strict=True):
        chosen = [(k, name, own[name]) for k, name in enumerate(names) if name in own]
        if chosen:
            figure.add_scatter(
                x=[score.value for *_, score in chosen],
                y=[k + shift for k, *_ in chosen],
                error_x=error_bars([score for *_, score in chosen]),
                mode="markers",
                name=title,
                marker={"size": 10, "color": colour, "symbol": symbol},
                text=[in_chart(name) for _, name, _ in chosen],
                hovertemplate="%{text}: %{x:.3f}<extra></extra>",
            )
    name_bars(figure, [in_chart(name, _LABEL) for name in names])
    _scale_scores(figure, [score for own in groups.values() for score in own.values()], from_zero=False)
    return style_chart(figure, height=150 + 32 * len(names))


def _scale_scores(figure: Any, known: Sequence[Score], *, from_zero: bool = True) -> None:
    percent = known[0].metric != "R²"
    lows = [score.value if math.isnan(score.low) else score.low for score in known]
    low = min(0.0, *lows) if from_zero or not percent else max(0.0, min(lows) - 0.05)
    span = {"tickformat": ".0%" if percent else ".2f", "range": [max(low, -1.0), 1.02]}
    figure.update_xaxes(title=in_chart(known[0].metric), nticks=5, tickangle=0, **span)
