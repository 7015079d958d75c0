"""How often the 95 % intervals of answers cover, and how wide they are: docs/statistics.md's table.

Rows are drawn from the invented population of `mooring.testing.check_answer`, and noise of ε and δ = 10⁻⁵ is added.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import machine
from mooring.mechanisms.sums.answers import (
    Answer,
    associate,
    describe,
    estimate_odds_ratios,
    estimate_survival,
    regress,
)
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.testing.answers import measure_coverage, measure_false_alarms

RESULTS = Path(__file__).parent / "results" / "answers.json"
SETTINGS = ((1.0, 2_000), (1.0, 6_000), (1.0, 30_000), (8.0, 2_000))
ASKED: dict[str, tuple[Callable[[PairwiseTotal], Answer], int]] = {
    "Table 1": (describe, 1),
    "Table 1 by group": (lambda total: describe(total, by="ward"), 1),
    "regression, 2 columns": (lambda total: regress(total, "bmi ~ age + sex"), 1),
    "regression, 4 columns": (lambda total: regress(total, "bmi ~ age + log(crp) + sex + ward"), 1),
    "survival": (estimate_survival, 1),
    "survival by group": (lambda total: estimate_survival(total, by="ward"), 1),
    "correlations": (lambda total: associate(total, ["age", "bmi", "crp", "sex"]), 1),
    "odds ratios, 3 columns": (lambda total: estimate_odds_ratios(total, "ill ~ age + log(crp) + sex"), 5),
}
"""For each answer, how it is asked, and by how much fewer draws it is measured because it takes long."""
LOG_RANK = "log-rank test"
LEAST_SHOWN = 0.2
"""Minimum share of the draws in which an estimate must be shown for its coverage to be stated."""


def measure(n_draws: int, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return how often each estimate was shown, its coverage and the median of half its interval's width, by setting."""
    rows: list[dict[str, Any]] = []
    for epsilon, n_rows in SETTINGS:
        for name in names:
            ask, fewer = ASKED[name]
            draws = n_draws // fewer
            coverage = measure_coverage(ask, n_draws=draws, epsilon=epsilon, n_rows=n_rows)
            shares = [entry.share for entry in coverage.values() if entry.n_shown >= LEAST_SHOWN * draws]
            rows.append(
                {
                    "answer": name,
                    "epsilon": epsilon,
                    "rows": n_rows,
                    "draws": draws,
                    "date": _today(),
                    "shown": {key: entry.n_shown / draws for key, entry in coverage.items()},
                    "least_coverage": min(shares, default=None),
                    "mean_coverage": sum(shares) / len(shares) if shares else None,
                    "most_coverage": max(shares, default=None),
                    "half_widths": {key: entry.half_width for key, entry in coverage.items()},
                }
            )
            print({key: value for key, value in rows[-1].items() if key != "half_widths"}, flush=True)
    return rows


def measure_alarms(n_draws: int) -> list[dict[str, Any]]:
    """Return how often the log-rank test rejects at 5 % although groups have the same survival, for each setting."""
    rows: list[dict[str, Any]] = []
    for epsilon, n_rows in SETTINGS:
        share = measure_false_alarms(n_draws=n_draws, epsilon=epsilon, n_rows=n_rows)
        rows.append({"epsilon": epsilon, "rows": n_rows, "draws": n_draws, "date": _today(), "rejected": share})
        print(rows[-1], flush=True)
    return rows


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def main() -> None:
    """Measure, and write the results."""
    names = [*ASKED, LOG_RANK]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2000, help="draws of rows and noise per setting")
    parser.add_argument(
        "--only", action="append", choices=names, help="measure this alone, and keep the results of others"
    )
    chosen = parser.parse_args()
    asked = chosen.only or names
    alarms = measure_alarms(chosen.draws) if LOG_RANK in asked else []
    rows = measure(chosen.draws, [name for name in ASKED if name in asked])
    kept = json.loads(RESULTS.read_text(encoding="utf-8")) if chosen.only else {"log_rank": [], "rows": []}
    rows += [row for row in kept["rows"] if row["answer"] not in asked]
    rows.sort(key=lambda row: (SETTINGS.index((row["epsilon"], row["rows"])), names.index(row["answer"])))
    content = {
        "machine": machine.described(),
        "log_rank": alarms or kept["log_rank"],
        "rows": rows,
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
