"""Figures and scores as people write them, in HTML."""

from __future__ import annotations

import math
from typing import Any

from mooring.learners import Score
from mooring.metrics import Figure


def number(value: float | None, figure: Figure) -> str:
    """A value of a figure of leakage: a share as a percentage, decibels with one digit, the rest with two."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:.0%}" if "linkage" in figure.name else f"{value:.1f}" if figure.name == "psnr" else f"{value:.2f}"


def with_interval(figure: Figure) -> str:
    """A figure's value, and its interval where the data gave one."""
    text = number(figure.value, figure)
    if figure.interval.known:
        text += f" <small>[{number(figure.interval.low, figure)}, {number(figure.interval.high, figure)}]</small>"
    return text


def with_chance(figure: Figure) -> str:
    """A share beside what guessing would give."""
    beside = "" if figure.chance is None else f" <small>(chance {figure.chance:.0%})</small>"
    return f"{figure.value:.0%}{beside}"


def beside_levels(figure: Figure) -> str:
    """A figure in words: value, interval, and the levels that it must be read against; plain text."""
    text = number(figure.value, figure)
    if figure.interval.known:
        text += f" [{number(figure.interval.low, figure)}, {number(figure.interval.high, figure)}]"
    levels = {"chance": figure.chance, "without the upload": figure.control, "projection alone": figure.floor}
    known = ", ".join(f"{name} {number(value, figure)}" for name, value in levels.items() if value is not None)
    return f"{text} ({known})" if known else text


def scored(score: Score | None) -> str:
    """A score and its interval; nothing where there is none."""
    if score is None:
        return ""
    return f"{score} <small>[{score.written(score.low)}, {score.written(score.high)}]</small>"


def score_from(plain: dict[str, Any] | None) -> Score | None:
    """A score of a record; None where there is none or it is undefined."""
    if plain is None or plain.get("value") is None:
        return None
    return Score.from_dict({"low": None, "high": None, "n": 0, "metric": "score"} | plain)


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
