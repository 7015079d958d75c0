"""Answers of the general total on known tables: how far they are from the same answers without noise, and how often right.

Rows are drawn from a table with replacement, which is the population, and split among participants. Their total is
simulated as a study would open it. An interval covers if it has the answer for the whole table. Deviations and ratios are
against the answer from the same rows without noise.

A row of the result with the method "answer" is one ε in one deployment of one case; its draw is the place of ε.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mooring.audit import simulate_general_total
from mooring.mechanisms.sums import (
    LevelFeatures,
    PairwiseTotal,
    SumPrivacy,
    SumSettings,
    make_general_workload,
    sum_exactly,
)
from mooring.mechanisms.sums.answers import describe, estimate_survival, regress
from mooring.randomness import Streams
from mooring.serialization import Record
from mooring.tables import Column, Schema, encode_table
from mooring.typing import Matrix
from mooring_studies.comparison.results import Row
from mooring_studies.data.survival import load_survival
from mooring_studies.data.tables import load_tables
from mooring_studies.settings.sections import AtLeastOne, AtLeastTwo
from mooring_studies.tabular.jobs import Job
from mooring_studies.tabular.sum_line import DeclaredColumns, declared_columns

METHOD = "answer"
Estimate: TypeAlias = tuple[float, float, float]
"""An estimate and the ends of its interval."""
_TIME, _EVENT = "time", "event"


@dataclass(frozen=True)
class AnswerCase(Record):
    """A question about a table."""

    name: str
    question: Literal["table", "regression", "survival"]
    source: str
    """A table of `mooring_studies.data.tables` or, of survival, of SurvSet."""
    n_rows: AtLeastOne
    columns: tuple[str, ...]
    numbers: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Ranges of those columns that are numbers; by default those that the study declares for the source."""
    formula: str = ""
    edges: tuple[float, ...] = ()
    """Ends of the intervals of survival."""
    n_participants: AtLeastTwo = 10
    deals: AtLeastOne = 20


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """The rows of a case, encoded, with the study that declares them and the raw times of survival."""

    case: AnswerCase
    settings: SumSettings
    schema: Schema
    rows: Matrix = field(repr=False)
    times: Matrix | None = field(repr=False, default=None)
    checksums: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def features(self) -> LevelFeatures:
        """What is summed."""
        return LevelFeatures(make_general_workload(self.settings, self.schema), self.schema)

    @cached_property
    def truth(self) -> Mapping[str, Estimate]:
        """The answer for the whole table, which is the population."""
        return self.ask(sum_exactly(self.features.workload, self.rows))

    def ask(self, total: PairwiseTotal) -> Mapping[str, Estimate]:
        """Return the estimates of the case's answer, with their intervals."""
        match self.case.question:
            case "table":
                return describe(total).list_estimates()
            case "regression":
                return regress(total, self.case.formula).list_estimates()
        return estimate_survival(total).list_estimates()


def load_answers(case: AnswerCase, data_dir: Path | None) -> AnswerRows:
    """Read the table of a case, and declare its columns."""
    checksums: Mapping[str, str] = {}
    if case.question == "survival":
        table, declared = load_survival(case.source), DeclaredColumns(numbers=case.numbers)
    else:
        tables = load_tables(case.source, data_dir)
        labels = pa.array(np.where(np.asarray(tables.records.labels) == 1, "yes", "no").tolist())
        table, declared = tables.columns.append_column("label", labels), declared_columns(case.source)
        checksums = tables.checksums
    schema = Schema(tuple(_declare(name, table.column(name), declared) for name in case.columns))
    values = {name: _clean(table.column(name), schema.columns[k]) for k, name in enumerate(case.columns)}
    log_scaled = tuple(name for name in declared.log_scaled if name in case.columns)
    if case.question != "survival":
        settings = SumSettings(questions=("tables", "regression"), log_scaled=log_scaled)
        return AnswerRows(case, settings, schema, encode_table(schema, pa.table(values)), None, checksums)
    settings = SumSettings(
        questions=("tables", "survival"),
        survival_time=_TIME,
        survival_event=_EVENT,
        survival_occurred="yes",
        survival_edges=case.edges,
    )
    times = np.column_stack([values[_TIME].to_numpy(), np.array(values[_EVENT].to_pylist()) == "yes"]).astype(float)
    return AnswerRows(case, settings, schema, encode_table(schema, pa.table(values)), times)


def _declare(name: str, values: Any, declared: DeclaredColumns) -> Column:
    if name in declared.numbers:
        low, high = declared.numbers[name]
        known = values.drop_null().to_numpy()
        kind: Literal["integer", "number"] = "integer" if (known == np.rint(known)).all() else "number"
        return Column(name, kind, low, high, missing="indicate" if values.null_count else "refuse", outside="clip")
    levels = sorted(word for word in pc.unique(values.cast(pa.string())).to_pylist() if word is not None)
    return Column(name, "category", categories=tuple(levels), missing="indicate" if values.null_count else "refuse")


def _clean(values: Any, column: Column) -> Any:
    """Return values as their column is declared: words, or numbers within the range."""
    if column.kind == "category":
        return values.cast(pa.string()).combine_chunks()
    return pc.max_element_wise(
        pc.min_element_wise(values.cast(pa.float64()), column.high, skip_nulls=False), column.low, skip_nulls=False
    )


def answer_jobs(given: AnswerRows, epsilons: Sequence[float | str], delta: float, streams: Streams) -> list[Job]:
    """What is measured in one deployment: the answer at each ε, of the same rows."""
    chosen = streams.named(f"rows/{given.case.name}").integers(len(given.rows), size=given.case.n_rows)
    return [
        ({"method": METHOD, "draw": k}, partial(measure_answer, given, chosen, float(epsilon), delta, streams))
        for k, epsilon in enumerate(epsilons)
        if epsilon != "none"
    ]


def measure_answer(given: AnswerRows, chosen: Any, epsilon: float, delta: float, streams: Streams) -> Row:
    """Ask a question of the rows `chosen`, with noise and without, and of the whole table."""
    case = given.case
    privacy = SumPrivacy(epsilon, delta, case.n_participants, 1)
    words = Streams(int(streams.named(f"answer/{case.name}/{epsilon}").integers(2**62)))
    parts = np.array_split(given.rows[chosen], case.n_participants)
    figures = given.ask(simulate_general_total(parts, None, features=given.features, privacy=privacy, rng=words).total)
    plain, truth = given.ask(sum_exactly(given.features.workload, given.rows[chosen])), given.truth
    shown = [name for name, (value, _, _) in figures.items() if np.isfinite(value) and name in plain and name in truth]
    covers = [figures[name][1] <= truth[name][0] <= figures[name][2] for name in shown]
    columns: Row = {"epsilon": epsilon, "n_rows": case.n_rows, "n_shown": len(shown), "n_asked": len(plain)}
    columns |= {"coverage": float(np.mean(covers)) if covers else float("nan")}
    halves = {name: (high - low) / 2 for name, (_, low, high) in figures.items()}
    if case.question == "table":
        columns["half_width"] = float(np.median([halves[name] for name in shown if name.startswith("share of")]))
    elif case.question == "regression":
        ratios = [2 * halves[name] / (plain[name][2] - plain[name][1]) for name in shown if name != "Intercept"]
        columns["interval_ratio"] = float(np.median(ratios))
    else:
        columns["deviation"] = max(abs(figures[name][0] - plain[name][0]) for name in shown)
        assert given.times is not None
        raw = kaplan_meier(given.times[chosen], case.edges[1:])
        columns["deviation_of_raw"] = max(
            abs(figures[name][0] - raw[k]) for k, name in enumerate(plain) if name in shown
        )
    return columns


def kaplan_meier(times: Matrix, ends: Sequence[float]) -> list[float]:
    """Return the Kaplan–Meier estimate at these times, from rows of a time and whether the event happened then.

    Examples
    --------
    >>> kaplan_meier(np.array([[1.0, 1], [2.0, 0], [3.0, 1], [4.0, 0]]), [1.5, 3.5])
    [0.75, 0.375]
    """
    when, counts = np.unique(times[times[:, 1] > 0, 0], return_counts=True)
    at_risk = len(times) - np.searchsorted(np.sort(times[:, 0]), when)
    alive = np.concatenate([[1.0], np.cumprod(1 - counts / at_risk)])
    return [float(alive[np.searchsorted(when, end, side="right")]) for end in ends]
