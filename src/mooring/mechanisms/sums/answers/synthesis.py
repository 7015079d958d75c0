"""Synthetic rows in which each pair of columns has about the same distribution as in the rows of a total.

Synthetic rows are drawn from a mixture that is fitted to the total. The guarantee of the total covers them, whatever is done
with them. No synthetic row is a copy of a real row, except by chance, and relations of three or more columns are not
preserved. Estimates should be computed from the total instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import Source, make_frame, require_rows
from mooring.mechanisms.sums.answers.mixture import fit_mixture
from mooring.mechanisms.sums.general.impossible import Combination, find_combination
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Workload
from mooring.serialization import Record
from mooring.typing import Indices, Matrix, Vector

MOST_ROWS = 10_000_000
_MOST_REDRAWS = 20
_REMARK = (
    "Synthetic rows, drawn from a model that was fitted to noisy sums of pairs of columns. No row is a person. Estimates "
    "and intervals belong to the total, not to these rows."
)


@dataclass(frozen=True)
class SyntheticHeader(Record):
    """The header of a file of synthetic rows."""

    synthetic: bool
    remark: str
    source: Source
    seed: int


@dataclass(frozen=True, eq=False)
class SyntheticRows:
    """Synthetic rows as a pyarrow table, with the header that their file gets."""

    header: SyntheticHeader
    table: Any

    def to_frame(self) -> Any:
        """Return the rows as a pandas DataFrame."""
        return make_frame(self.table)

    def write(self, path: Path) -> None:
        """Write a Parquet file with the header in its metadata, under the key "mooring"."""
        import pyarrow.parquet as pq

        pq.write_table(self.table.replace_schema_metadata({"mooring": self.header.to_json()}), path)


def synthesize(
    total: PairwiseTotal,
    n_rows: int | None = None,
    *,
    seed: int = 0,
    impossible: Sequence[Mapping[str, str]] = (),
) -> SyntheticRows:
    """Return synthetic rows.

    Parameters
    ----------
    total : PairwiseTotal
        The opened total, from `Analyst.open_total`.
    n_rows : int, optional
        By default, the number of rows of the total. Fewer are returned if impossible rows are left out.
    seed : int, default 0
        The same seed gives the same rows.
    impossible : sequence of mapping, optional
        Combinations of levels, by column, that cannot occur, such as {"sex": "m", "pregnant": "yes"}, besides those that the
        study declares. A row with such a combination is drawn again, and left out if 20 draws do not help.

    Returns
    -------
    SyntheticRows

    Raises
    ------
    InputError
        If `n_rows` is out of range, if the noise leaves nothing to fit, if a combination names what is not declared, or if
        all rows have an impossible combination.
    """
    source = require_rows(total)
    n = round(source.rows) if n_rows is None else n_rows
    if not 1 <= n <= MOST_ROWS:
        raise InputError("rows", expected=f"1 to {MOST_ROWS:,}", got=str(n), cure="Ask for fewer or more rows.")
    workload = total.workload
    combinations = (*workload.impossible, *(find_combination(workload.columns, words) for words in impossible))
    mixture, rng = fit_mixture(total), np.random.default_rng(seed)
    places = mixture.draw_places(n, rng)
    for _ in range(_MOST_REDRAWS):
        bad = _are_impossible(places, combinations)
        if not bad.any():
            break
        places[bad] = mixture.draw_places(int(bad.sum()), rng)
    places = places[~_are_impossible(places, combinations)]
    if not len(places):
        problem = "The impossible combinations leave hardly any rows possible."
        raise InputError("impossible", problem=problem, cure="Check which words they name.")
    return SyntheticRows(SyntheticHeader(True, _REMARK, source, seed), _make_table(total.workload, places, rng))


def _are_impossible(places: Matrix, combinations: Sequence[Combination]) -> Any:
    bad = np.zeros(len(places), dtype=np.bool_)
    for combination in combinations:
        bad |= np.logical_and.reduce([places[:, column] == level for column, level in combination.items()])
    return bad


def _make_table(workload: Workload, places: Matrix, rng: np.random.Generator) -> Any:
    """Return rows as a pyarrow table in the units of the columns."""
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for column, here in zip(workload.columns, places.T, strict=True):
        levels = here.astype(np.int64)
        absent = (here == column.n_levels - 1) if column.has_missing else None
        if column.kind == "survival":
            columns |= _draw_times(workload, levels, absent, rng)
        elif column.nodes:
            values = _find_values(column, here)
            columns[column.name] = pa.array(values.astype(np.int64) if column.is_whole else values, mask=absent)
        else:
            columns[column.name] = pa.array(np.array(column.names, dtype=object)[levels], pa.string(), mask=absent)
    return pa.table(columns)


def _find_values(column: Levels, places: Vector) -> Vector:
    """Return the numbers at places among the nodes; whole numbers are rounded."""
    on_scale = np.interp(places, np.arange(len(column.nodes)), column.nodes)
    values = np.clip(np.asarray(column.from_scale(on_scale), dtype=np.float64), column.low, column.high)
    return np.rint(values) if column.is_whole else values


def _draw_times(workload: Workload, levels: Indices, absent: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Return the columns of times, uniform within their intervals, and of events."""
    import pyarrow as pa

    survival, (time, event) = workload.survival, workload.survival_sources
    assert survival is not None
    other = next(word for word in event.names if word != survival.occurred)
    edges = np.append(survival.edges, time.high)
    interval = np.minimum(levels // 2, survival.n_intervals)
    times = edges[interval] + rng.random(len(levels)) * (edges[interval + 1] - edges[interval])
    if time.is_whole:  # an interval includes its end; an interval without a whole number yields the number before it
        times = np.minimum(np.ceil(times), np.floor(edges[interval + 1]))
    occurred = (levels % 2 == 0) & (levels < 2 * survival.n_intervals)
    words = np.where(occurred, survival.occurred, other).astype(object)
    kind = pa.int64() if time.is_whole else pa.float64()
    return {
        survival.time: pa.array(times.astype(np.int64) if time.is_whole else times, kind, mask=absent),
        survival.event: pa.array(words, pa.string(), mask=absent),
    }
