"""Figures and scores as people write them, as plain values that templates lay out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mooring.learners import Gain, Score
from mooring.learners.evaluation import Evaluation
from mooring.report.frame import render_sentence


def describe_score(score: Score | Gain | None) -> dict[str, Any] | None:
    """A score, or a gain over training alone, and its interval as text; the interval is None where it is not known."""
    if score is None:
        return None
    interval = None if math.isnan(score.low) else [score.written(score.low), score.written(score.high)]
    return {"value": score.written(score.value), "interval": interval, "metric": score.metric}


def score_from(plain: Mapping[str, Any] | None) -> Score | None:
    """A score of a record; None where there is none or it is undefined."""
    if plain is None or plain.get("value") is None:
        return None
    return Score.from_dict({"low": None, "high": None, "n": 0, "metric": "score"} | dict(plain))


def describe_evaluation(record: Mapping[str, Any]) -> dict[str, Any] | None:
    """What `mooring predict` measured on labelled rows beside the score, as text; None where it measured nothing."""
    plain, shuffled = record.get("evaluation"), record.get("importance") or {}
    fitted = record.get("adjustment")  # to rows of the participant's own
    adjusted = render_sentence("verdict.txt.jinja", "adjustment", fitted) if fitted else ""
    if not plain and not shuffled and not adjusted:
        return None
    importance = [
        {"name": one["name"], "drop": f"{one['drop']:+z.3f}", "deviation": f"{one['deviation']:.3f}"}
        for one in shuffled.get("columns") or ()
    ]
    found: dict[str, Any] = {"measures": [], "classes": [], "confusion": {}, "adjusted": adjusted}
    found |= {"importance": importance, "importance_metric": shuffled.get("metric")}
    return found if not plain else found | _describe_models(Evaluation.from_dict(plain))


def _describe_models(one: Evaluation) -> dict[str, Any]:
    models, second = (one.joint, one.alone), one.classes[-1]
    keys = ("name", "joint", "alone", "gain")
    measures = [dict(zip(keys, row, strict=True)) for row in one.list_measures()[1:]]
    return {
        "measures": measures,
        "classes": list(one.classes),
        "of": second if len(one.classes) == 2 else None,
        "confusion": {
            name: [list(row) for row in model.confusion]
            for name, model in zip(("joint", "alone"), models, strict=True)
            if model
        },
        "calibration": [part.as_dict() for part in one.joint.calibration],
    }


def significant(value: float | None) -> str:
    """A number with three digits that count.

    Examples
    --------
    >>> significant(0.000123456)
    '0.000123'
    >>> significant(None)
    'not known'
    """
    return "not known" if value is None else f"{value:.3g}"
