"""The study of secure sums as a table: what one model from sums reaches at each ε, what was aimed at, who is recognised.

A line is a case with its size, or one hospital of a case that is scored by hospitals. Scores are percent: the area under
the curve for two classes, else accuracy; means over deployments, with their standard deviation.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.results import Results

EPSILONS: tuple[float | None, ...] = (None, 8.0, 2.0, 1.0)
_NAMES = ("no noise", "ε = 8", "ε = 2", "ε = 1")
HOSPITALS = ("Cleveland", "Hungary", "Switzerland", "VA")
_LEARNERS = ("", ":svm")
_REACH: Mapping[tuple[str, int], Mapping[float | None, float]] = {
    ("digits", 40): {None: 98.5, 8.0: 95.5, 2.0: 92.0, 1.0: 87.0},
    ("Adult", 50): {8.0: 89.3, 2.0: 88.8, 1.0: 88.3},
    ("credit default", 50): {1.0: 72.0},
    ("credit default", 400): {1.0: 75.5},
    ("readmitted", 100): {1.0: 63.0},
    ("readmitted within 30 days", 600): {1.0: 66.0},
}
"""What was aimed at when the mechanism was designed, in percent."""
_OVER_ALONE = {0: -2.0, 1: -2.0, 3: 4.0}  # of a hospital at ε = 1, in points
_PROTOTYPES: Mapping[tuple[str, int], tuple[float, ...]] = {
    ("digits", 40): (98.8, 96.0, 92.7, 87.7),
    ("Adult", 50): (90.0, 89.4, 89.1, 88.8),
    ("credit default", 50): (math.nan, 76.0, 73.7, 71.7),
    ("credit default", 400): (math.nan, 76.6, 76.1, 75.8),
    ("readmitted", 100): (67.4, 66.5, 64.9, 63.3),
    ("readmitted within 30 days", 600): (68.5, 68.3, 67.6, 66.4),
    ("heart disease", 0): (89.7, 90.1, 89.3, 88.3),
    ("heart disease", 1): (90.8, 90.8, 89.3, 88.6),
    ("heart disease", 3): (71.9, 73.8, 74.2, 75.2),
}
"""What prototypes with Gaussian noise and units of rows reached at each ε; by hospital for heart disease."""


def tabulate_sums(results: Results) -> list[dict[str, Any]]:
    """The lines of the table, in the order of the rows."""
    lines = []
    names = dict.fromkeys(zip(results["case"].tolist(), results.numbers("rows_each").tolist(), strict=True))
    for case, rows_each in names:
        rows = results.where(case=case, rows_each=rows_each)
        hospitals = range(len(HOSPITALS)) if rows_each == 0 else (None,)
        lines += [_line(rows, case, int(rows_each), k) for k in hospitals]
    return lines


def describe_spread(values: Vector) -> str:
    """Mean and standard deviation of shares, in percent.

    Examples
    --------
    >>> describe_spread(np.array([0.5, 0.52])), describe_spread(np.array([0.5])), describe_spread(np.array([]))
    ('51.0 ± 1.4', '50.0', '–')
    """
    known = 100 * values[np.isfinite(values)]
    if not known.size:
        return "–"
    return f"{known.mean():.1f}" + (f" ± {known.std(ddof=1):.1f}" if known.size > 1 else "")


def _line(rows: Results, case: str, rows_each: int, hospital: int | None) -> dict[str, Any]:
    ranked = rows.where(method="secure-sum").numbers("auc_clean")
    column = f"auc_own:{hospital}" if hospital is not None else "auc_clean" if np.isfinite(ranked).any() else "accuracy"
    sums = [rows.where(method="secure-sum", epsilon=one) for one in EPSILONS]
    reached = [100 * _mean(own.numbers(column)) for own in sums]
    alone = _alone(rows, column, by_hospital=hospital is not None)
    key = case, rows_each if hospital is None else hospital
    reach = [_REACH.get(key, {}).get(one) for one in EPSILONS]
    if hospital in _OVER_ALONE:
        reach[-1] = max(alone.values()) + _OVER_ALONE[hospital]
    line: dict[str, Any] = {
        "case": case if hospital is None else f"{case}, {HOSPITALS[hospital]}",
        "participants": int(rows.numbers("n_participants")[0]),
        "rows_each": rows_each,
        "measure": "accuracy" if column == "accuracy" else "AUC",
        "n_features": int(sums[0].numbers("n_features")[0]),
        "deals": len(sums[0]),
        "alone": {name: f"{value:.1f}" for name, value in alone.items()},
        "pooled": describe_spread(rows.where(method="pooled-raw").numbers(column)),
        "rotation": describe_spread(rows.where(method="aa-i-gdp").numbers(column)),
        "scores": [describe_spread(own.numbers(column)) for own in sums],
        "reach": reach,
        "prototype": [None if math.isnan(one) else one for one in _PROTOTYPES.get(key, (math.nan,) * 4)],
        "missed": [value is not None and mean < value - 0.05 for mean, value in zip(reached, reach, strict=True)],
        "beats_alone": [mean > max(alone.values()) for mean in reached],
        "membership_auc": [describe_spread(own.numbers("membership_auc")) for own in sums],
        "control": describe_spread(sums[-1].numbers("membership_auc_control")),
        "membership_tpr": [describe_spread(own.numbers("membership_tpr")) for own in sums],
        "limit": [100 * _mean(own.numbers("membership_limit")) for own in sums],
        "above_limit": [
            int((own.numbers("membership_tpr_low") > own.numbers("membership_limit")).sum()) for own in sums
        ],
        "by_hospital": hospital is not None,
    }
    has_aim = any(one is not None for one in (*reach, *line["prototype"]))
    return line | {"has_aim": has_aim, "cells": _cells(line, case, is_first=not hospital)}


def _cells(line: Mapping[str, Any], case: str, *, is_first: bool) -> dict[str, list[Any]]:
    """The cells of a page's three tables: scores, aims with misses in bold, and membership, once a case."""
    size = f"{line['participants']} × {line['rows_each'] or 'their own'}"
    means = [
        f"**{mean}**" if missed else mean for missed, mean in zip(line["missed"], _means(line["scores"]), strict=True)
    ]
    wins = [name for name, beats in zip(_NAMES, line["beats_alone"], strict=True) if beats]
    told = ["–" if one is None else f"{one:.1f}" for one in (*line["reach"], *line["prototype"])]
    joined = [" / ".join(part) for part in (means, told[: len(_NAMES)], told[len(_NAMES) :])]
    alone = [line["alone"]["columns"], line["alone"]["features"], line["pooled"], line["rotation"]]
    above = f"{line['above_limit'][2]} and {line['above_limit'][3]} of {line['deals']}"
    found = [*line["membership_auc"], line["control"], *line["membership_tpr"], above]
    return {
        "utility": [line["case"], size, line["n_features"], line["deals"], *alone, *line["scores"]],
        "aims": [line["case"], size, *joined, ", ".join(wins) or "no ε"],
        "membership": [case, size, *found] if is_first else [],
    }


def _means(spreads: Sequence[str]) -> list[str]:
    return [one.partition(" ")[0] for one in spreads]


def _alone(rows: Results, column: str, *, by_hospital: bool) -> dict[str, float]:
    """Training alone on columns and on features: the learner that is better in the mean, in percent."""
    method = "local-own" if by_hospital else "local-only"
    found = {}
    for words, suffix in (("columns", ""), ("features", "-features")):
        own = rows.where(method=f"{method}{suffix}")
        found[words] = 100 * max(_mean(own.numbers(f"{column}{learner}")) for learner in _LEARNERS)
    return found


def _mean(values: Vector) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan
