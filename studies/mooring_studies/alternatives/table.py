"""The study of what people share instead, as a table: what each way scores, and what the strongest attack on it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mooring.typing import Vector
from mooring_studies.comparison.reading import mean_of
from mooring_studies.comparison.results import Results
from mooring_studies.comparison.sums_table import describe_spread

RECOGNISED = "membership_at_1_percent"
_WORDS: dict[str, Callable[[Results], str]] = {
    "local-only": lambda rows: "training alone",
    "pooled-raw": lambda rows: "pooled raw rows",
    "aa-i-gdp": lambda rows: "rotation, no noise",
    "aa-i-gdp-data-noise": lambda rows: f"rotation, σ = {rows.numbers('noise_level')[0]:g} s",
    "secure-sum": lambda rows: (
        "secure sums, no noise" if np.isnan(rows.numbers("epsilon")[0]) else f"secure sums, ε = {rows['epsilon'][0]:g}"
    ),
    "gradient": lambda rows: f"one gradient of {rows['batch_size'][0]:g} rows",
    "fedavg": lambda rows: f"FedAvg, {_rounds(rows)}",
    "fedavg-aggregate": lambda rows: f"FedAvg, {_rounds(rows)}, secure aggregation",
    "synthetic": lambda rows: "synthetic rows (Gaussian copula)",
    "statistics": lambda rows: "statistics by class",
}
"""What a way is called, by its method, in the order of the table."""
ALTERNATIVE_COLUMNS = (
    *("", "mechanism", "score", "error (guessing)", "linked among ten", "tenth's error (chance)", "membership AUC"),
    *("TPR @ 1 % FPR", "TPR @ 0.1 % FPR", "outlying tenth, 1 %"),
)
_SHARES = ("linkage", "membership_auc", RECOGNISED, "membership_at_0.1_percent", f"outlying_{RECOGNISED}")


def describe_alternatives(results: Results, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the page on alternatives; `settings` are those of the network."""
    lines = tabulate_alternatives(results)
    cases = list(dict.fromkeys(line["case"] for line in lines))
    places = dict.fromkeys((line["method"], line["draw"]) for line in lines)
    by_mechanism = [[line for line in lines if (line["method"], line["draw"]) == place] for place in places]
    return {
        "cases": cases,
        "mechanisms": [
            {"name": _name_together(group), "cells": [line["brief"][k] for k in range(3) for line in group]}
            for group in by_mechanism
        ],
        "spreads": np.fmax.reduce([line["spreads"] for line in lines]).tolist(),
        "most_control": np.fmax.reduce([line["control"] for line in lines]),
        "network": settings,
        "deployments": lines[0]["deployments"],
    }


def _name_together(lines: Sequence[Mapping[str, Any]]) -> str:
    """One name for the lines of a mechanism in all cases: what differs is in brackets with its case."""
    first, *others = lines
    differing = [line for line in others if line["way"] != first["way"]]
    words = "; ".join(f"{line['case'].partition(',')[0]}: {line['way'].rpartition(' of ')[2]}" for line in differing)
    return f"{first['way']} ({words})" if words else str(first["way"])


def tabulate_alternatives(results: Results) -> list[dict[str, Any]]:
    """A line for each way and case: means over deployments, with their standard deviation, beside control or chance."""
    lines = []
    for case in dict.fromkeys(results["case"].tolist()):
        of_case = results.where(case=case)
        column = "auc_clean" if np.isfinite(of_case.numbers("auc_clean")).any() else "accuracy"
        for method in _WORDS:
            rows = of_case.where(method=method)
            draws = rows.values("draw") if method != "local-only" else [rows.values("draw")]
            lines += [_line(rows.where(draw=draw), case, method, column) for draw in draws]
    return lines


def _line(rows: Results, case: str, method: str, column: str) -> dict[str, Any]:
    score = max(
        (rows.numbers(f"{column}{learner}") for learner in ("", ":svm")),
        key=lambda scores: np.nan_to_num(scores).mean(),
    )
    line: dict[str, Any] = {
        "case": f"{case}, {rows['n_participants'][0]:g} × {rows['rows_each'][0]:g}",
        "method": method,
        "draw": int(rows["draw"][0]),
        "way": _WORDS[method](rows),
        "measure": "AUC" if column == "auc_clean" else "accuracy",
        "deployments": len(rows.values("deployment")),
        "score": mean_of(score),
        "recognised": mean_of(rows.numbers(RECOGNISED)),
    }
    error, guess = rows.numbers("centred_error"), mean_of(rows.numbers("centred_error_control"))
    tenth, chance = rows.numbers("exposed_tenth"), mean_of(rows.numbers("exposed_tenth_chance"))
    shares = [_beside(rows, name) for name in _SHARES]
    errors = [_error(error, guess), _error(tenth, chance)]
    control = mean_of(rows.numbers(f"{RECOGNISED}_control"))
    brief = [f"{100 * mean_of(score):.1f}", f"{mean_of(tenth):.2f} ({chance:.2f})", f"{100 * line['recognised']:.1f}"]
    return line | {
        "brief": ["–" if "nan" in cell else cell for cell in brief],
        "control": 100 * control,
        "spreads": [100 * _deviation(score), _deviation(tenth), 100 * _deviation(rows.numbers(RECOGNISED))],
        "cells": [line["case"], line["way"], describe_spread(score), errors[0], shares[0], errors[1], *shares[1:]],
    }


def _beside(rows: Results, measure: str) -> str:
    """A share in percent, and its control."""
    spread, control = describe_spread(rows.numbers(measure)), mean_of(rows.numbers(f"{measure}_control"))
    return spread if np.isnan(control) else f"{spread} ({100 * control:.1f})"


def _deviation(values: Vector) -> float:
    known = values[np.isfinite(values)]
    return float(known.std(ddof=1)) if known.size > 1 else np.nan


def _error(values: Vector, beside: float) -> str:
    known = values[np.isfinite(values)]
    return f"{known.mean():.2f} ± {known.std(ddof=min(1, known.size - 1)):.2f} ({beside:.2f})" if known.size else "–"


def _rounds(rows: Results) -> str:
    n = int(rows["n_rounds"][0])
    return f"{n} round{'s' if n > 1 else ''}"
