"""The table of results: one row a draw, on disk as Parquet and in memory as NumPy columns.

Every study writes the same first columns, in the same order and of the same types; what a study did not measure is null
on disk and NaN in memory. After them come three columns for every attack that was run, "linkage:", "match:" and
"error:" before the attack's name, and then whatever a study has of its own. `strongest_attacks` says on which draws the
costly attacks ran as well.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from mooring import InputError, StorageError
from mooring.atomic_io import make_folder, write_atomically
from mooring.metrics import strongest_value
from mooring.typing import Vector
from mooring_studies.settings.sections import suggest_name

Kind = Literal["linkage", "match", "error"]
Column = NDArray[Any]
Row = dict[str, Any]
"""One row of a table of results."""

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

    Examples
    --------
    >>> rows = [{"method": "c-gdp", "draw": 0, "balanced_accuracy": 0.9}, {"method": "i-gdp", "draw": 0}]
    >>> results = Results.from_rows(rows)
    >>> len(results), results.where(method="c-gdp")["balanced_accuracy"].tolist()
    (2, [0.9])
    """

    columns: Mapping[str, Column]
    """Numbers and yes/no as float64 with NaN for null; text as objects with None for null. All of one length."""

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
        return _from_arrow(_to_arrow(list(rows)))

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
        cure = suggest_name(name, [*self.columns, *COLUMNS]) or "`columns` has their names."
        raise InputError("the column", expected="one of the table's", got=repr(name), cure=cure)

    def numbers(self, name: str) -> Vector:
        """One column of numbers; NaN throughout where the table does not have it."""
        known = name in self.columns or name in COLUMNS
        return np.asarray(self[name], dtype=float) if known else np.full(len(self), np.nan)

    def percent(self, name: str) -> Vector:
        """A column of shares, in percent."""
        return 100 * self.numbers(name)

    def where(self, **wanted: object) -> Results:
        """The rows whose columns have these values: one value, several (list, tuple or set), or None for null."""
        chosen = np.ones(len(self), bool)
        for name, value in wanted.items():
            values = value if isinstance(value, list | tuple | set | frozenset) else [value]
            chosen &= np.logical_or.reduce(
                [_equal(self[name], value) for value in values] or [np.zeros(len(self), bool)]
            )
        return self.only(chosen)

    def only(self, chosen: Column) -> Results:
        """The rows that a mask or an array of positions chooses, in its order."""
        return Results({name: values[chosen] for name, values in self.columns.items()})

    def values(self, name: str) -> list[Any]:
        """What a column holds, without null and without repetition, sorted; nothing where the table does not have it."""
        column = self[name] if name in self.columns else np.empty(0)
        if column.dtype == object:
            return sorted({value for value in column if value is not None})
        return [
            int(value) if COLUMNS.get(name) is int else float(value) for value in np.unique(column[~np.isnan(column)])
        ]

    def attacks(self, kind: Kind = "linkage") -> list[str]:
        """The attacks that were measured in this way on one of the rows at least."""
        names = [name.removeprefix(f"{kind}:") for name in self.columns if _kind_of(name) == kind]
        return [name for name in names if name not in BASELINES and np.isfinite(self[f"{kind}:{name}"]).any()]

    def envelope(self, kind: Kind = "linkage") -> Vector:
        """The strongest attack on each row: the highest share linked or matched, the lowest error; NaN where none ran."""
        measured = [self[f"{kind}:{name}"] for name in self.attacks(kind)]
        nothing = np.full(len(self), np.nan)
        return strongest_value([nothing, *measured], higher_is_worse=kind != "error")

    def strongest(self, kind: Kind = "linkage") -> Vector:
        """The envelope on the draws on which every attack was run, NaN on the others; shares, not percent.

        The costly attacks run on some of the draws only, and the strongest of fewer attacks would make the others look
        safer than they are. Where `strongest_attacks` is null throughout, every attack was tried on every draw.
        """
        marked = self["strongest_attacks"]
        return np.where((marked == 1) | np.isnan(marked).all(), self.envelope(kind), np.nan)

    def leakage(self, kind: Kind) -> Vector:
        """`strongest` as figures show it: in percent for linkage and match, as it is for error."""
        return self.strongest(kind) * (1 if kind == "error" else 100)

    @property
    def converged(self) -> NDArray[np.bool_]:
        """Which runs met the solver's stopping rule."""
        return np.asarray(self["converged"] == 1, dtype=bool)


def name_attack(attack: str, denoiser: str | None) -> str:
    """What columns call an attack: through the Gaussian denoiser 'denoised', as in the first tables, else by its name.

    Examples
    --------
    >>> name_attack("moments", None), name_attack("moments", "gaussian"), name_attack("moments", "grid")
    ('moments', 'moments+denoised', 'moments+grid')
    """
    return attack if denoiser is None else f"{attack}+{'denoised' if denoiser == 'gaussian' else denoiser}"


def write_results(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write rows as Parquet (see `encode_rows`), the whole file or nothing.

    The order of columns does not depend on the rows' order of keys: first `COLUMNS`, then the attacks' by kind and
    name, then a study's own by name. NaN is written as null.
    """
    content = encode_rows(rows)
    make_folder(path.parent, what="the folder of results")
    write_atomically(path, content, what="the results")


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
    return _from_arrow(table)


def encode_rows(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Rows, which need not have the same keys, as a Parquet file with checksums; what a row lacks is null there."""
    content = io.BytesIO()
    pq.write_table(_to_arrow(list(rows)), content, compression="zstd", write_page_checksum=True)
    return content.getvalue()


def decode_rows(content: bytes) -> list[dict[str, Any]]:
    """The rows of `encode_rows`, without their nulls; fails where the content is not such a file."""
    table = pq.read_table(pa.BufferReader(content), page_checksum_verification=True)
    return [{name: value for name, value in row.items() if value is not None} for row in table.to_pylist()]


def to_plain(value: Any) -> Any:
    """A value as JSON and Parquet know it: NumPy's numbers and arrays become Python's, NaN and infinities None.

    Examples
    --------
    >>> to_plain({"share": np.float64(0.5), "draws": np.arange(2), "seconds": float("nan")})
    {'share': 0.5, 'draws': [0, 1], 'seconds': None}
    """
    if isinstance(value, Mapping):
        return {str(name): to_plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _kind_of(name: str) -> Kind | None:
    """Which measure of an attack a column holds."""
    return next((kind for kind in KINDS if name.startswith(f"{kind}:")), None)


def _place_of(name: str) -> tuple[int, int, str]:
    """Where a column stands in the file."""
    if name in COLUMNS:
        return 0, list(COLUMNS).index(name), name
    kind = _kind_of(name)
    return (2, 0, name) if kind is None else (1, KINDS.index(kind), name)


def _to_arrow(rows: list[Mapping[str, Any]]) -> pa.Table:
    names = sorted({*COLUMNS, *(name for row in rows for name in row)}, key=_place_of)
    columns = {}
    for name in names:
        values = [to_plain(row.get(name)) for row in rows]
        wanted = COLUMNS.get(name, float if _kind_of(name) else _common_type(values))
        try:
            columns[name] = pa.array(values, _ARROW[wanted])
        except (pa.ArrowException, TypeError):
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise InputError(
                f"column {name!r}",
                expected=f"of type {wanted.__name__}",
                got=" and ".join(kinds),
                cure="Numbers or texts, not both; COLUMNS has the types.",
            ) from None
    return pa.table(columns)


def _common_type(values: list[Any]) -> type:
    """The type of a study's own column: text if there is any, then numbers with a fraction, whole numbers, yes/no."""
    kinds = {type(value) for value in values if value is not None}
    return next((each for each in (str, float, int, bool) if each in kinds), float)


def _memory_type(kind: type | None) -> type:
    return object if kind is str else np.float64


def _from_arrow(table: pa.Table) -> Results:
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
        return np.array([cell == value for cell in column], dtype=bool)
    if value is None:
        return np.isnan(column)
    return np.asarray(column == value, dtype=bool)
