"""The report's own charts: how well each participant fits, and what each score is read against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from mooring.learners import Score
from mooring.report.envelope import styled
from mooring.report.frame import ALARM, BLUE, CALM, QUIET, SAND, in_chart
from mooring.report.numbers import score_from

_MOST_BARS = 60
_LABEL = 18
_COLOURS = {"joint": BLUE, "joint by participant": BLUE, "alone": SAND, "local only": "#d1615d", "pooled raw": QUIET}


def fits(participants: Sequence[Mapping[str, Any]]) -> Any:
    """A bar a participant: how well its anchor fits the others'; None if nobody's fit is known."""
    known = [one for one in participants if one["fit"] is not None][:_MOST_BARS]
    if not known:
        return None
    figure = go.Figure()
    for name, colour, flagged in (("fits", CALM, False), ("flagged", ALARM, True)):
        own = [(k, one) for k, one in enumerate(known) if one["flagged"] is flagged]
        if own:
            figure.add_bar(
                x=[one["fit"] for _, one in own],
                y=[k for k, _ in own],
                orientation="h",
                name=name,
                marker_color=colour,
                text=[f"{one['fit']:.2f}" for _, one in own],
                textposition="auto",
                hovertemplate="%{x:.3f}<extra></extra>",
            )
    _categories(figure, [one["name"] for one in known])
    lowest = min(0.0, *(one["fit"] for one in known))
    figure.update_xaxes(title="fit with the others (1 is perfect)", range=[lowest, 1.02])
    return styled(figure, height=130 + 30 * len(known)).update_layout(showlegend=any(one["flagged"] for one in known))


def scores(entries: Sequence[Mapping[str, Any]]) -> Any:
    """A bar a score: joint, local only, pooled raw; those not known say so. None if none is known."""
    shown = [entry for entry in entries if entry["group"] in ("joint", "local only", "pooled raw")]
    means = _mean(entries, "alone")
    if means is not None:
        shown.insert(1, {"group": "alone", "name": "one upload alone, mean", "score": means})
    read = [(entry, score_from(entry["score"])) for entry in shown]
    known = [score for _, score in read if score is not None]
    if not known:
        return None
    figure = go.Figure()
    for k, (entry, score) in enumerate(read):
        if score is not None and score.metric == known[0].metric:
            _bar(figure, k, score, colour=_COLOURS[entry["group"]])
        else:
            words = "not known to this role" if score is None else "measured otherwise: see the table"
            figure.add_annotation(x=0, y=k, text=words, showarrow=False, xanchor="left", font={"color": QUIET})
    _categories(figure, [entry["name"] for entry, _ in read], most=26)
    _score_axis(figure, known)
    return styled(figure, height=130 + 40 * len(read)).update_layout(showlegend=False)


def by_participant(entries: Sequence[Mapping[str, Any]]) -> Any:
    """The joint model's score at each participant beside that of its own upload alone; None if neither is known."""
    groups = {
        name: {
            entry["name"]: score
            for entry in entries
            if entry["group"] == name and (score := score_from(entry["score"]))
        }
        for name in ("joint by participant", "alone")
    }
    names = list(dict.fromkeys([*groups["joint by participant"], *groups["alone"]]))[:_MOST_BARS]
    if not names:
        return None
    figure = go.Figure()
    titles = {"joint by participant": "joint model", "alone": "its upload alone"}
    marks = {"joint by participant": "circle", "alone": "diamond"}
    for shift, (group, own) in zip((-0.14, 0.14), groups.items(), strict=True):
        chosen = [(k, own[name]) for k, name in enumerate(names) if name in own]
        if chosen:
            figure.add_scatter(
                x=[score.value for _, score in chosen],
                y=[k + shift for k, _ in chosen],
                error_x=_interval([score for _, score in chosen]),
                mode="markers",
                name=titles[group],
                marker={"size": 10, "color": _COLOURS[group], "symbol": marks[group]},
                text=[in_chart(names[k]) for k, _ in chosen],
                hovertemplate="%{text}: %{x:.3f}<extra></extra>",
            )
    _categories(figure, names)
    _score_axis(figure, [score for own in groups.values() for score in own.values()], from_zero=False)
    return styled(figure, height=150 + 32 * len(names))


def _bar(figure: Any, k: int, score: Score, *, colour: str) -> None:
    figure.add_bar(
        x=[score.value],
        y=[k],
        orientation="h",
        marker_color=colour,
        error_x=_interval([score]),
        text=[str(score)],
        textposition="inside",
        insidetextanchor="start",
        hovertemplate=f"{score.with_interval()}<extra></extra>",
    )


def _mean(entries: Sequence[Mapping[str, Any]], group: str) -> dict[str, Any] | None:
    own = [score for entry in entries if entry["group"] == group and (score := score_from(entry["score"]))]
    if not own:
        return None
    value = sum(score.value for score in own) / len(own)
    return {"metric": own[0].metric, "value": value, "low": None, "high": None, "n": len(own)}


def _interval(found: Sequence[Score]) -> dict[str, Any]:
    """Error bars; none where an interval is not known."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [score.high - score.value if score.high == score.high else 0 for score in found],
        "arrayminus": [score.value - score.low if score.low == score.low else 0 for score in found],
        "thickness": 1.5,
        "visible": any(score.low == score.low for score in found),
    }


def _categories(figure: Any, names: Sequence[str], *, most: int = _LABEL) -> None:
    """Names along the side, by number underneath: two long names that are cut alike stay two lines."""
    figure.update_yaxes(
        tickmode="array",
        tickvals=list(range(len(names))),
        ticktext=[in_chart(name, most) for name in names],
        range=[len(names) - 0.4, -0.6],
        automargin=True,
        zeroline=False,
        showgrid=False,
    )


def _score_axis(figure: Any, known: Sequence[Score], *, from_zero: bool = True) -> None:
    percent = known[0].metric != "R²"
    lows = [score.low if score.low == score.low else score.value for score in known]
    low = min(0.0, *lows) if from_zero or not percent else max(0.0, min(lows) - 0.05)
    figure.update_xaxes(
        title=in_chart(known[0].metric),
        tickformat=".0%" if percent else ".2f",
        range=[max(low, -1.0), 1.02],
        nticks=5,
        tickangle=0,
    )
