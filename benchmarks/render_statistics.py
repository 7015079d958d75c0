"""Write the measured figures into docs/statistics.md, between their marks; none of them is typed by hand."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mooring_studies.comparison.results import Results, read_results
from mooring_studies.comparison.sums_table import RAW_TIMES, tabulate_answers

from benchmarks.answers import LEAST_SHOWN, RESULTS, SETTINGS
from mooring.mechanisms.sums.answers.readings import Z

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "statistics.md"
KEPT = ROOT / "results" / "sums" / "results.parquet"
_EVERY_DRAW = 0.95  # share of the draws from which on an answer counts as always given


def _points(width: float) -> str:
    return f"{100 * width:.1f} points"


def _years(width: float) -> str:
    return f"{width:.1f} years"


def _ten_times(width: float) -> str:
    return f"{10 * width:.1f}"


def _bare(width: float) -> str:
    return f"{width:.2f}"


_LINES: tuple[tuple[str, str, str, Callable[[float], str]], ...] = (
    ("share of a third of the rows", "Table 1", "share of ward b (all)", _points),
    ("mean age (standard deviation 14 years)", "Table 1", "mean of age  (all)", _years),
    ("share in a group of 15 % of the rows", "Table 1 by group", "share of sex m (c)", _points),
    ("body-mass index against age and sex: per 10 years", "regression, 2 columns", "age", _ten_times),
    ("the same against four columns", "regression, 4 columns", "age", _ten_times),
    ("survival at 24 months", "survival", "all at 24", _points),
    ("the same in a group of 15 %", "survival by group", "c at 24", _points),
    ("correlation of age and body-mass index", "correlations", "age and bmi", _bare),
    (
        "odds ratio of sex, against three columns (half the width of its interval)",
        "odds ratios, 3 columns",
        "sex m",
        _bare,
    ),
)
"""What a line of the table says, the answer and the estimate that it is about, and how half a width is written."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(render_page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def render_page(text: str) -> str:
    """Return the page with its measured parts from the kept results."""
    measured, kept = json.loads(RESULTS.read_text(encoding="utf-8")), read_results(KEPT)
    parts = {
        "widths": _write_widths(measured["rows"]),
        "known tables": _write_known(kept),
        "log-rank": _write_alarms(measured["log_rank"]),
    }
    for name, part in parts.items():
        begin, end = f"<!-- {name}: written by make docs -->\n", f"<!-- end of {name} -->\n"
        before, found, rest = text.partition(begin)
        _, closed, after = rest.partition(end)
        if not (found and closed):
            raise ValueError(f"{PAGE} has no marks for {name}.")
        text = f"{before}{begin}\n{part}\n\n{end}{after}"
    return text


def _write_widths(rows: Sequence[dict[str, Any]]) -> str:
    each = {(row["answer"], row["epsilon"], row["rows"]): row for row in rows}
    most_draws = max(row["draws"] for row in rows)
    fewer = {row["answer"]: row["draws"] for row in rows if row["draws"] < most_draws}
    exceptions = "".join(f" ({answer}: {draws:,})" for answer, draws in fewer.items())
    errors = _find_points(most_draws) + "".join(
        f" ({answer}: {_find_points(draws)})" for answer, draws in fewer.items()
    )
    lines = [
        "Half the width of 95 % intervals, median over draws of rows and noise, for an invented population with seven",
        "columns and survival in eight intervals, at δ = 10⁻⁵ (`python -m benchmarks.answers`). *Covered*: the share of",
        f"{most_draws:,} draws{exceptions}, without refusals, in which the interval has the population's value, from the",
        f"least to the most over the four settings and all estimates that {100 * LEAST_SHOWN:.0f} % of the draws show",
        f"at least. By chance alone, one such share of all draws in twenty is more than {errors}",
        "points away from 95 %.\n",
        "| answer | "
        + " | ".join(f"ε = {epsilon:g}, {n_rows:,} rows" for epsilon, n_rows in SETTINGS)
        + " | covered |",
        "|---|" + "---|" * len(SETTINGS) + "---|",
    ]
    for words, answer, name, write in _LINES:
        settings = [each[answer, *setting] for setting in SETTINGS]
        cells = [*(_write_width(row, name, write) for row in settings), _write_coverage(settings)]
        lines.append(f"| {words} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _find_points(n_draws: int) -> str:
    """Return by how many points a share of 95 % is off with probability 5 %."""
    return f"{100 * Z * math.sqrt(0.95 * 0.05 / n_draws):.1f}"


def _write_width(row: dict[str, Any], name: str, write: Callable[[float], str]) -> str:
    shown = row["shown"].get(name, 0.0)
    if name not in row["half_widths"] or shown < LEAST_SHOWN:
        return "mostly refused"
    width = write(row["half_widths"][name])
    return width if shown > _EVERY_DRAW else f"{width}, refused in {round(10 * (1 - shown))} of 10 draws"


def _write_coverage(settings: Sequence[dict[str, Any]]) -> str:
    shown = [row for row in settings if row["least_coverage"] is not None]
    if not shown:
        return "–"
    least, most = min(row["least_coverage"] for row in shown), max(row["most_coverage"] for row in shown)
    return f"{100 * least:.0f} to {100 * most:.0f} %"


def _write_known(kept: Results) -> str:
    answers = tabulate_answers(kept)
    least, most = (pick(line["n_deployments"] for line in answers) for pick in (min, max))
    lines = [
        "On known tables, with rows drawn with replacement and split among ten participants (`mooring reproduce sums`):",
        f"means over {least} draws (survival: {most}), and how often, in percent, the intervals covered.\n",
        "| answer | figure | ε = 8 | ε = 1 | most at 1 | covered, ε = 8 | ε = 1 |",
        "|---|---|---|---|---|---|---|",
    ]
    fewest: dict[str, dict[str, Any]] = {}  # of each case the line with the fewest rows, where noise matters most
    for line in answers:
        if line["figure"] != RAW_TIMES and line["n_rows"] <= fewest.get(line["case"], line)["n_rows"]:
            fewest[line["case"]] = line
    for case, line in fewest.items():
        cells = (line["figure"], line["values"][0], line["values"][-1], line["most"][-1])
        answer = f"{case}, {line['n_rows']:,} rows"
        lines.append("| " + " | ".join([answer, *cells, line["coverage"][0], line["coverage"][-1]]) + " |")
    raw = [line["values"] for line in answers if line["figure"] == RAW_TIMES]
    eight, one = (sorted((values[at] for values in raw), key=float) for at in (0, -1))
    lines.append(
        f"\nThe largest distance from the curve of raw times is {eight[0]} to {eight[-1]} points on average at ε = 8, and "
        f"{one[0]} to {one[-1]} at ε = 1."
    )
    return "\n".join(lines)


def _write_alarms(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "Tests check that the log-rank test rejects groups of the same survival in at most 7 % of draws."
    shares = sorted(100 * row["rejected"] for row in rows)
    return (
        f"The log-rank test of groups with the same survival has p < 0.05 in {shares[0]:.1f} to {shares[-1]:.1f} % of "
        f"{rows[0]['draws']:,} draws, over the same four settings."
    )


if __name__ == "__main__":
    main()
