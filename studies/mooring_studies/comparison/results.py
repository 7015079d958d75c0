"""The table of results: one row a draw, on disk as Parquet and in memory as NumPy columns.

Every study writes the same first columns, in the same order and of the same types; what a study did not measure is null
on disk and NaN in memory. After them come three columns for every attack that was run, "linkage:", "match:" and
"error:" before the attack's name, and then whatever a study has of its own. `strongest_attacks` says on which draws the
costly attacks ran as well.
"""

from __future__ import annotations

import contextlib
import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mooring.errors import InputError, StorageError

Kind = Literal["linkage", "match", "error"]
Column = NDArray[Any]

KINDS: tuple[Kind, ...] = ("linkage", "match", "error")
BASELINES = ("guessing",)  # measured beside the attacks, and no attack
COLUMNS: Mapping[str, type] = {
    "deployment": int,
    "n_participants": int,
    "identities_each": int,
    "method": str,
    "draw": int,
    "anchor_noise_scale": float,
    "data_noise_scale": float,
    "strongest_attacks": bool,
    "balanced_accuracy": float,
    "balanced_accuracy_clean": float,
    "accuracy": float,
    "validation_balanced_accuracy": float,
    "best_epoch": int,
    "iterations": int,
    "converged": bool,
    "residual": float,
    "step": float,
    "solver_seconds": float,
    "discrepancy": float,
}
_ARROW = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}


@dataclass(frozen=True, eq=False)
class Results:
    """Rows of results, column by column.

    Attributes
    ----------
    columns : mapping of str to array
        Numbers and yes/no as float64 with NaN for null; text as objects with None for null. All of one length.

    Examples
    --------
    >>> rows = [{"method": "c-gdp", "draw": 0, "balanced_accuracy": 0.9}, {"method": "i-gdp", "draw": 0}]
    >>> results = Results.from_rows(rows)
    >>> len(results), results.where(method="c-gdp")["balanced_accuracy"].tolist()
    (2, [0.9])
    """

    columns: Mapping[str, Column]

    def __post_init__(self) -> None:
        lengths = {name: len(values) for name, values in self.columns.items()}
        if len(set(lengths.values())) > 1:
            raise InputError(
                "columns",
                expected="of one length",
                got=f"lengths from {min(lengths.values())} to {max(lengths.values())}",
                cure="Give every column one entry a row, NaN where there is nothing.",
            )

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Results:
        """The table of these rows; a name that a row lacks is null there."""
        return _in_memory(_as_arrow(list(rows)))

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()))) if self.columns else 0

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def __getitem__(self, name: str) -> Column:
        """One column; one that every study may have and this one lacks is all NaN."""
        if name in self.columns:
            return self.columns[name]
        if name in COLUMNS or _kind_of(name) is not None:
            return np.full(len(self), None if COLUMNS.get(name) is str else np.nan, _memory_type(COLUMNS.get(name)))
        near = difflib.get_close_matches(name, [*self.columns, *COLUMNS], n=3)
        raise InputError(
            "the column",
            expected="one of the table's",
            got=repr(name),
            cure=f"Did you mean {' or '.join(near)}?" if near else "`columns` has their names.",
        )

    def where(self, **wanted: object) -> Results:
        """The rows whose columns have these values: one value, several (list, tuple or set), or None for null."""
        chosen = np.ones(len(self), bool)
        for name, value in wanted.items():
            values = value if isinstance(value, list | tuple | set | frozenset) else [value]
            chosen &= np.logical_or.reduce([_equal(self[name], one) for one in values] or [np.zeros(len(self), bool)])
        return self.only(chosen)

    def only(self, chosen: Column) -> Results:
        """The rows that a mask or an array of positions chooses, in its order."""
        return Results({name: values[chosen] for name, values in self.columns.items()})

    def values(self, name: str) -> list[Any]:
        """What a column holds, without null and without repetition, sorted."""
        column = self[name]
        if column.dtype == object:
            return sorted({value for value in column if value is not None})
        return [
            int(value) if COLUMNS.get(name) is int else float(value) for value in np.unique(column[~np.isnan(column)])
        ]

    def attacks(self, kind: Kind = "linkage") -> list[str]:
        """The attacks that were measured in this way on one of the rows at least."""
        names = [name.removeprefix(f"{kind}:") for name in self.columns if _kind_of(name) == kind]
        return [name for name in names if name not in BASELINES and np.isfinite(self[f"{kind}:{name}"]).any()]

    def envelope(self, kind: Kind = "linkage") -> NDArray[np.float64]:
        """The strongest attack on each row: the highest share linked or matched, the lowest error; NaN where none ran."""
        measured = [self[f"{kind}:{name}"] for name in self.attacks(kind)]
        strongest = np.fmin if kind == "error" else np.fmax  # unlike nanmin, silent where no attack ran
        return np.asarray(strongest.reduce([np.full(len(self), np.nan), *measured]), dtype=np.float64)

    def strongest(self, kind: Kind = "linkage") -> NDArray[np.float64]:
        """The envelope on the draws on which every attack was run, NaN on the others; shares, not percent.

        The costly attacks run on some of the draws only, and the strongest of fewer attacks would make the others look
        safer than they are. Where `strongest_attacks` is null throughout, every attack was tried on every draw.
        """
        marked = self["strongest_attacks"]
        return np.where((marked == 1) | np.isnan(marked).all(), self.envelope(kind), np.nan)


def merged(parts: Sequence[Results]) -> Results:
    """All rows of several tables, one after the other; what a table lacks is null in its rows."""
    names = dict.fromkeys(name for part in parts for name in part.columns)
    return Results({name: np.concatenate([_column_or_null(part, name, parts) for part in parts]) for name in names})


def write_results(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as Parquet (zstd), beside its place and then moved there, so that no half file is ever read.

    The order of columns does not depend on the rows' order of keys: first `COLUMNS`, then the attacks' by kind and
    name, then a study's own by name. NaN is written as null.
    """
    table = _as_arrow(list(rows))
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, beside, compression="zstd")
        beside.replace(path)
    except OSError as problem:
        with contextlib.suppress(OSError):
            beside.unlink(missing_ok=True)
        raise StorageError(
            f"The results {path.name} cannot be written",
            reason=str(problem.strerror or problem),
            cure="Make room or choose another folder, and run the same command again.",
        ) from None


def read_results(path: Path) -> Results:
    """Read a table that `write_results` wrote."""
    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise StorageError(
            f"The results {path.name} are not there",
            reason=f"no such file in {path.parent}",
            cure="Run the study first.",
        ) from None
    except (OSError, pa.ArrowException) as problem:
        raise StorageError(
            f"The results {path.name} cannot be read",
            reason=str(problem).splitlines()[0],
            cure="The file may be cut short. Run the study again, or fetch the file again.",
        ) from None
    return _in_memory(table)


def _kind_of(name: str) -> Kind | None:
    """Which measure of an attack a column holds."""
    return next((kind for kind in KINDS if name.startswith(f"{kind}:")), None)


def _place_of(name: str) -> tuple[int, int, str]:
    """Where a column stands in the file."""
    if name in COLUMNS:
        return 0, list(COLUMNS).index(name), name
    kind = _kind_of(name)
    return (2, 0, name) if kind is None else (1, KINDS.index(kind), name)


def _as_arrow(rows: list[Mapping[str, Any]]) -> pa.Table:
    names = sorted({*COLUMNS, *(name for row in rows for name in row)}, key=_place_of)
    columns = {}
    for name in names:
        values = [_plain(row.get(name)) for row in rows]
        wanted = COLUMNS.get(name, float if _kind_of(name) else _common_type(values))
        try:
            columns[name] = pa.array(values, _ARROW[wanted])
        except (pa.ArrowException, TypeError):
            raise InputError(
                f"column {name}",
                expected=f"of type {wanted.__name__}",
                got="another",
                cure="See COLUMNS for the types.",
            ) from None
    return pa.table(columns)


def _plain(value: Any) -> Any:
    """A value as Arrow takes it: NumPy's numbers as Python's, NaN as null."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and np.isnan(value) else value


def _common_type(values: list[Any]) -> type:
    """The type of a study's own column: text if there is any, then numbers with a fraction, whole numbers, yes/no."""
    found = {type(value) for value in values if value is not None}
    return next((each for each in (str, float, int, bool) if each in found), float)


def _memory_type(kind: type | None) -> type:
    return object if kind is str else np.float64


def _in_memory(table: pa.Table) -> Results:
    columns: dict[str, Column] = {}
    for name in table.column_names:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            columns[name] = np.array(column.to_pylist(), dtype=object)
        else:
            columns[name] = column.cast(pa.float64()).to_numpy().copy()  # Arrow's own memory is read-only
    return Results(columns)


def _equal(column: Column, value: object) -> NDArray[np.bool_]:
    if column.dtype == object:
        return np.array([one == value for one in column], dtype=bool)
    if value is None:
        return np.isnan(column)
    return np.asarray(column == value, dtype=bool)


def _column_or_null(part: Results, name: str, parts: Sequence[Results]) -> Column:
    """A part's column, or as many nulls as it has rows, of the type that the other parts have."""
    if name in part.columns:
        return part.columns[name]
    is_text = any(other.columns[name].dtype == object for other in parts if name in other.columns)
    return np.full(len(part), None if is_text else np.nan, object if is_text else np.float64)
