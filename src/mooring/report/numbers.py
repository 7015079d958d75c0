"""Figures and scores as people write them, as plain values that templates lay out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from mooring.learners import Gain, Score
from mooring.metrics import Figure


def describe_figure(figure: Figure) -> dict[str, Any]:
    """A figure of leakage: value, interval, and the levels that it is read against, as text; None where not known."""

    def written(value: float | None) -> str | None:
        """A share as a percentage, decibels with one digit, the rest with two."""
        if value is None or math.isnan(value):
            return None
        digits = (
            ".0%"
            if "linkage" in figure.name
            else ".2%"
            if figure.name.startswith(("carriers of", "membership_at", "outlying_"))
            else ".1f"
            if figure.name == "psnr"
            else ".2f"
        )
        return f"{value:{digits}}"

    interval = [written(figure.interval.low), written(figure.interval.high)] if figure.interval.known else None
    levels = {name: written(getattr(figure, name)) for name in ("chance", "control", "floor")}
    return {"value": written(figure.value) or "–", "interval": interval, **levels}


def describe_score(score: Score | None) -> dict[str, Any] | None:
    """A score and its interval as text; the interval is None where it is not known."""
    if score is None:
        return None
    interval = None if math.isnan(score.low) else [score.written(score.low), score.written(score.high)]
    return {"value": str(score), "interval": interval, "metric": score.metric}


def describe_gain(gain: Gain | None) -> dict[str, Any] | None:
    """A gain over training alone and its interval as text; the interval is None where it is not known."""
    if gain is None:
        return None
    interval = None if math.isnan(gain.low) else [gain.written(gain.low), gain.written(gain.high)]
    return {"value": gain.written(gain.value), "interval": interval, "metric": gain.metric}


def score_from(plain: Mapping[str, Any] | None) -> Score | None:
    """A score of a record; None where there is none or it is undefined."""
    if plain is None or plain.get("value") is None:
        return None
    return Score.from_dict({"low": None, "high": None, "n": 0, "metric": "score"} | dict(plain))


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
