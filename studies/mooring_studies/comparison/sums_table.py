"""The study of secure sums as a table: what one model from sums reaches at each ε, what was aimed at, who is recognised.

A line is a case with its size, or one hospital of a case that is scored by hospitals. Scores are percent: the area under
the curve for two classes, else accuracy; means over deployments, with their standard deviation.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.results import Results

EPSILONS: tuple[float | None, ...] = (None, 8.0, 2.0, 1.0)
RAW_TIMES = "from the curve of raw times, points"
_FIGURES = (
    ("half the width of a share's interval, points", "half_width", 100.0),
    ("width of intervals, times that without noise", "interval_ratio", 1.0),
    ("largest distance from the curve without noise, points", "deviation", 100.0),
    (RAW_TIMES, "deviation_of_raw", 100.0),
)
HOSPITALS = ("Cleveland", "Hungary", "Switzerland", "VA")
_LEARNERS = ("", ":svm")


def tabulate_sums(results: Results) -> list[dict[str, Any]]:
    """The lines of the table, in the order of the rows."""
    lines = []
    modelled = results.where(method="secure-sum")
    names = dict.fromkeys(zip(modelled["case"].tolist(), modelled.numbers("rows_each").tolist(), strict=True))
    for case, rows_each in names:
        rows = results.where(case=case, rows_each=rows_each)
        hospitals = range(len(HOSPITALS)) if rows_each == 0 else (None,)
        lines += [_line(rows, case, int(rows_each), k) for k in hospitals]
    return lines


def tabulate_answers(results: Results) -> list[dict[str, Any]]:
    """The answers of the general total, a line for each case and number of rows: figures at each ε, and coverage.

    The figure of a Table 1 is half the width of shares' intervals in points, that of a regression how many times as wide
    its intervals are as those of the same rows without noise, and that of survival the largest distance from the curve of
    the same rows without noise, in points; means over deployments, and the largest.
    """
    rows = results.where(method="answer")
    lines = []
    for case, n_rows in dict.fromkeys(zip(rows["case"].tolist(), rows.numbers("n_rows").tolist(), strict=True)):
        each = [rows.where(case=case, n_rows=n_rows, epsilon=epsilon) for epsilon in EPSILONS[1:]]
        for words, column, factor in _FIGURES:
            values = [factor * _mean(part.numbers(column)) for part in each]
            if not np.isfinite(values).all():
                continue
            lines.append(
                {
                    "case": case,
                    "n_rows": int(n_rows),
                    "figure": words,
                    "values": [f"{value:.2f}" for value in values],
                    "most": [f"{factor * float(np.nanmax(part.numbers(column))):.2f}" for part in each],
                    "coverage": [f"{100 * _mean(part.numbers('coverage')):.0f}" for part in each],
                    "n_deployments": len(each[0]),
                }
            )
    return lines


def tabulate_pictures(results: Results) -> list[dict[str, Any]]:
    """The lines of the table of pictures: a case at one ε, with the total of the public rule and with one total."""
    ruled, lines = results.where(method="picture-sums"), []
    names = dict.fromkeys(
        zip(*(ruled[name].tolist() for name in ("case", "n_participants", "rows_each", "epsilon")), strict=True)
    )
    for case, p, rows_each, epsilon in names:
        part, pooled = (
            rows.where(case=case, n_participants=p, rows_each=rows_each, epsilon=epsilon)
            for rows in (ruled, results.where(method="picture-sums-pooled"))
        )
        is_by_class = bool(part.numbers("is_by_class").max())
        lines.append(
            {
                "case": case,
                "size": f"{int(p)} × {round(float(part.numbers('n_rows').mean()) / p):,}",
                "epsilon": f"{epsilon:g}",
                "features_by_class": f"{int(part.numbers('n_features')[0]) - 1}" if is_by_class else "one total",
                "ruled": describe_spread(part.numbers("accuracy")),
                "pooled": describe_spread(pooled.numbers("accuracy")),
                "recognised_mean": round(100 * _mean(part.numbers("membership_tpr")), 1),
                "n_deployments": len(part),
            }
        )
    return lines


def describe_sums(rows: Results) -> dict[str, str] | None:
    """Secure sums on the rows of another study, and training alone on the features of sums; None without such rows.

    Scores are those on participants' own rows, by the area under the curve, where each trained on its own; else balanced
    accuracy on everybody's.
    """
    summed = rows.where(method="secure-sum")
    if not len(summed):
        return None
    by_rank = len(rows.where(method="local-own")) > 0
    column = "auc_own_clean" if by_rank else "balanced_accuracy_clean"
    return {
        "alone": f"{score_alone(rows, column, own_rows=by_rank)['features']:.1f}",
        "without": f"{100 * _mean(summed.where(epsilon=None).numbers(column)):.1f}",
        "private": describe_spread(summed.where(epsilon=1.0).numbers(column)),
    }


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
    sums = [rows.where(method="secure-sum", epsilon=epsilon) for epsilon in EPSILONS]
    alone = score_alone(rows, column, own_rows=hospital is not None)
    above = sums[-1].numbers("membership_tpr_low") > sums[-1].numbers("membership_limit")
    return {
        "case": case if hospital is None else f"{case}, {HOSPITALS[hospital]}",
        "participants": int(rows.numbers("n_participants")[0]),
        "rows_each": rows_each,
        "measure": "accuracy" if column == "accuracy" else "AUC",
        "n_features": int(sums[0].numbers("n_features")[0]),
        "n_deployments": len(sums[0]),
        "alone": {name: f"{value:.1f}" for name, value in alone.items()},
        "best_alone": f"{max((value for value in alone.values() if not math.isnan(value)), default=math.nan):.1f}",
        "pooled": describe_spread(rows.where(method="pooled-raw").numbers(column)),
        "rotation": describe_spread(rows.where(method="aa-i-gdp").numbers(column)),
        "scores": [describe_spread(part.numbers(column)) for part in sums],
        "general": [
            describe_spread(rows.where(method="general-total", epsilon=epsilon).numbers(column)) for epsilon in EPSILONS
        ],
        "rival": [
            describe_spread(rows.where(method="dp-ebm", epsilon=epsilon).numbers(column)) for epsilon in EPSILONS[1:]
        ],
        "n_rival": len(rows.where(method="dp-ebm", epsilon=EPSILONS[-1])),
        "general_loss": [_compare(rows, column, "general-total", epsilon) for epsilon in EPSILONS[1:]],
        "rival_lead": [-_compare(rows, column, "dp-ebm", epsilon) for epsilon in EPSILONS[1:]],
        "membership_auc": [describe_spread(part.numbers("membership_auc")) for part in sums],
        "control": describe_spread(sums[-1].numbers("membership_auc_control")),
        "membership_tpr": [describe_spread(part.numbers("membership_tpr")) for part in sums],
        "limit": [100 * _mean(part.numbers("membership_limit")) for part in sums],
        "n_above": int(above.sum()),
        "size": f"{int(rows.numbers('n_participants')[0])} × {rows_each or 'their own'}",
        "is_first": not hospital,
    }


def _compare(rows: Results, column: str, method: str, epsilon: float | None) -> float:
    """Points by which secure sums are ahead of another method, on the deployments that it was run on; NaN without any."""
    other = rows.where(method=method, epsilon=epsilon)
    sums = rows.where(method="secure-sum", epsilon=epsilon)
    same = sums.only(np.isin(sums.numbers("deployment"), other.numbers("deployment")))
    return 100 * (_mean(same.numbers(column)) - _mean(other.numbers(column)))


def score_alone(rows: Results, column: str, *, own_rows: bool) -> dict[str, float]:
    """Training alone on columns and on features: the learner that is better in the mean, in percent."""
    method = "local-own" if own_rows else "local-only"
    scores = {}
    for words, suffix in (("columns", ""), ("features", "-features")):
        part = rows.where(method=f"{method}{suffix}")
        scores[words] = 100 * max(_mean(part.numbers(f"{column}{learner}")) for learner in _LEARNERS)
    return scores


def _mean(values: Vector) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan
