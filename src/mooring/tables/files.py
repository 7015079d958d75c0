"""Opening of tables: reads the header of a file, or the columns of a data frame, and says why a table cannot be read.

The messages of the parsers quote the file, so none of them is passed on, and neither is the name of the file.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from mooring.errors import InputError, StorageError
from mooring.tables.cells import as_text, is_utf8
from mooring.tables.mapping import MappedTable, TableMapping
from mooring.tables.schema import find_repeated
from mooring.tables.text_encodings import USUAL, decode_text
from mooring.typing import TableSource

TEXT_SUFFIXES = (".csv", ".tsv", ".data", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
CHECK_PLACE = "Check the spelling and the folder you are in."
_LONGEST_HEADER = 2**22
_NOT_IN_ARROW = (pa.ArrowException, ArithmeticError, NotImplementedError, TypeError, ValueError)  # messages quote cells
# A Parquet file may have `_ROWS` rows or, if that is more, `_ROWS_A_BYTE` rows for each of its bytes. A row group may have
# `_GROUP_BYTES` bytes or, if that is more, `_GROWTH` times the bytes of the file.
_ROWS, _ROWS_A_BYTE = 2**20, 32
_GROUP_BYTES, _GROWTH = 2**28, 1000


@dataclass(frozen=True)
class OpenTable:
    """A data frame, or a file of which only the header has been read."""

    path: Path | None
    """None for a data frame."""
    names: tuple[str, ...]
    """Names of the columns. They are all different, except in a text file that was opened with `agreed=False`."""
    separator: str = ""
    """Separator of a text file; empty for other tables."""
    schema: Any = None
    """The pyarrow schema of Parquet and data frames; None for text files, which have no types."""
    columns: Any = None
    """The pyarrow table of a data frame; None for files."""
    longest_line: int = 0
    """Length of the header in bytes, which indicates how long the rows may be."""
    encoding: str = "utf-8"
    """Encoding of a text file."""
    n_skipped: int = 1
    """Number of lines of a text file before its first row."""
    unmapped: OpenTable | None = None
    """The table without its mapping, if it is read by one."""
    mapping: TableMapping | None = None


def open_table(data: TableSource, *, agreed: bool = True, separator: str = "", encoding: str = "") -> OpenTable:
    """Read only the header of a file, or take the columns of a data frame.

    Parameters
    ----------
    data : path or data frame
        Text (.csv, .tsv, .data, .txt, each also with .gz) whose first line names the columns, separated by commas,
        semicolons or tabs; or Parquet (.parquet, .pq). The index of a data frame is ignored. A `MappedTable` is such a
        table with the mapping by which it is read.
    agreed : bool
        Whether the form of the file is agreed on, so that text must be UTF-8, unless an encoding is given, and names must
        be different. Otherwise text may be Windows-1252, and the first line may be a row.
    separator : str
        Separator of a text file; empty for the one that its first line suggests.
    encoding : str
        Encoding of a text file, one of `mooring.tables.text_encodings.ENCODINGS`. Empty for UTF-8 or, if `agreed` is false,
        for UTF-8 or Windows-1252 as the first line suggests.
    """
    if isinstance(data, MappedTable):
        marks = {"separator": data.mapping.separator, "encoding": data.mapping.encoding}
        return _map_names(open_table(data.data, agreed=agreed, **marks), data.mapping)
    if not isinstance(data, str | Path):
        return _open_frame(data)
    path = Path(data)
    require_file(path)
    if is_parquet(path):
        with explain_read_errors(), pa.parquet.ParquetFile(path) as file:
            _require_plausible_sizes(file.metadata, path.stat().st_size)
            table = OpenTable(path, tuple(file.schema_arrow.names), schema=file.schema_arrow)
    elif is_table_file(path):
        table = _text_header(path, agreed, separator, encoding)
    else:
        raise not_a_table(f"a file whose name ends in {path.suffix!r}")
    if agreed or table.schema is not None:
        require_different(table.names)
    return table


def _map_names(table: OpenTable, mapping: TableMapping) -> OpenTable:
    """Return a table with the names that its columns have in the study; `table_batches` converts their cells."""
    names = mapping.rename(table.names)
    schema = table.schema
    if schema is not None:
        text = pa.dictionary(pa.int32(), pa.string())
        types = {new: text if mapping.changes(new) else schema.field(name).type for name, new in names.items()}
        schema = pa.schema(list(types.items()))
    return replace(table, names=tuple(names.values()), schema=schema, unmapped=table, mapping=mapping)


def _open_frame(frame: Any) -> OpenTable:
    import narwhals as nw

    try:
        known = nw.from_native(frame, eager_only=True)
    except nw.exceptions.DuplicateError:
        known = frame
    except TypeError:
        is_lazy = isinstance(nw.from_native(frame, pass_through=True), nw.LazyFrame)
        raise InputError(
            "data",
            expected="the path of a table, or a data frame in memory",
            got=f"a {'lazy frame' if is_lazy else type(frame).__name__}",
            cure="Call its collect() first." if is_lazy else "Convert it to a data frame of pandas or polars.",
        ) from None
    names = list(known.column_names if isinstance(known, pa.Table) else known.columns)
    if not all(isinstance(name, str) for name in names):
        is_nested = any(isinstance(name, tuple) for name in names)
        flat = '["_".join(map(str, name)) for name in frame.columns]' if is_nested else "frame.columns.map(str)"
        got = "names of several levels" if is_nested else "names that are not text"
        cure = f"Name them: frame.columns = {flat}."
        raise InputError("data", expected="a data frame whose columns are named by text", got=got, cure=cure)
    require_different(names)
    columns = pa.table({name: _read_series(known[name]) for name in names})
    return OpenTable(None, tuple(names), schema=columns.schema, columns=columns)


def _read_series(series: Any) -> Any:
    """Convert a column of a data frame to Arrow; cells of several types become the text that a CSV file would hold."""
    with suppress(*_NOT_IN_ARROW):
        column = series.to_arrow()
        if not (pa.types.is_temporal(column.type) and _mixes_times(series)):
            return column
    cells = [None if gone else cell for cell, gone in zip(series.to_list(), series.is_null().to_list(), strict=True)]
    if all(cell is None or isinstance(cell, str | Real | np.bool_ | Decimal | date) for cell in cells):
        with suppress(*_NOT_IN_ARROW):
            return pa.array([as_text(cell) for cell in cells], pa.string())
    kind = pa.opaque(pa.null(), str(series.to_native().dtype), "data frame")  # no error yet: it may be unused
    return pa.ExtensionArray.from_storage(kind, pa.nulls(len(cells)))


def _mixes_times(series: Any) -> bool:
    """Whether a column mixes time zones, or times and days. Arrow would unify all cells, and could change the day."""
    if str(series.dtype) != "Object":
        return False
    return len({str(getattr(cell, "tzinfo", "day")) for cell in series.drop_nulls().to_list()}) > 1


def require_file(path: Path) -> None:
    """Refuse a path that is not a file."""
    if not path.is_file():
        reason = "there is only a folder of that name" if path.is_dir() else "it is not there"
        raise StorageError("the data file", reason=reason, cure=CHECK_PLACE)


def is_table_file(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    return path.name.lower().removesuffix(".gz").endswith(TEXT_SUFFIXES) or is_parquet(path)


def is_parquet(path: Path) -> bool:
    """Whether the name of a file is that of a Parquet file."""
    return path.suffix.lower() in PARQUET_SUFFIXES


def is_gzip(path: Path) -> bool:
    """Whether the name of a file is that of a file compressed with gzip."""
    return path.suffix.lower() == ".gz"


def _require_plausible_sizes(metadata: Any, n_bytes: int) -> None:
    """Refuse a Parquet file that would grow to far more rows or bytes than a real table of its size."""
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    if metadata.num_rows > max(_ROWS, _ROWS_A_BYTE * n_bytes) or metadata.num_rows != sum(g.num_rows for g in groups):
        raise not_a_table("a Parquet file that states more rows than it can hold, or not as many as its parts")
    # Only sizes of whole groups are read: pyarrow ends the process when it is asked for an encrypted part of a column.
    if any(group.total_byte_size > max(_GROUP_BYTES, _GROWTH * n_bytes) for group in groups):
        raise not_a_table("a Parquet file that grows too much when it is read")


def _text_header(path: Path, agreed: bool, separator: str, encoding: str) -> OpenTable:
    try:
        with open_text(path) as file:
            line = file.readline(_LONGEST_HEADER)
    except (OSError, EOFError, zlib.error):
        raise not_a_table("a file that is damaged or cannot be read") from None
    line = line.removeprefix(b"\xef\xbb\xbf").split(b"\r")[0].rstrip(b"\n")
    if b"\0" in line:
        raise not_a_table("a file that is not text")
    if not line.strip():
        raise InputError(
            "data file",
            expected="a table whose first line names the columns",
            got="an empty first line" if path.stat().st_size else "an empty file",
            cure="Write the table again, with a header.",
        )
    if not encoding:
        encoding = "utf-8" if is_utf8(line) else USUAL
        if agreed and encoding != "utf-8":
            further = "In a study, 'mooring match' finds its encoding and keeps it in a mapping."
            raise not_a_table("a first line that is not text in UTF-8", further)
    text = decode_text(line, encoding)
    try:
        marks = (mark for mark in ",;\t" if len(next(csv.reader([text], delimiter=mark))) > 1)
        separator = separator or next(marks, ",")
        names = next(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error:
        raise not_a_table("a first line with stray quotes") from None
    return OpenTable(path, tuple(name.strip() for name in names), separator, longest_line=len(line), encoding=encoding)


def open_text(path: Path) -> Any:
    """Open a text file for reading bytes, compressed or not."""
    return gzip.open(path) if is_gzip(path) else path.open("rb")


def require_different(names: Sequence[str]) -> None:
    """Refuse names of columns that are not all different."""
    twice = find_repeated(names)
    if twice is not None:
        raise InputError(
            "data file",
            expected="a table whose columns have different names",
            got=f"the same name for columns {' and '.join(str(k + 1) for k, name in enumerate(names) if name == twice)}",
            cure="Rename all but one of them.",
        )


@contextmanager
def explain_read_errors(let_through: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    """Replace errors of the parsers with an error that does not quote the file."""
    # Errors in the parser's callbacks contain bytes of the file, and Python would print them.
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    except let_through:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, zlib.error):  # their messages quote the file
        raise not_a_table("a file that is damaged, or whose content does not match its name") from None
    finally:
        sys.unraisablehook = before


def no_rows() -> InputError:
    """Return the error for a table without rows."""
    return InputError(
        "data file", expected="a table with rows", got="a header and no rows", cure="Give a table with rows."
    )


def not_a_table(got: str, further: str = "") -> InputError:
    """Return the error for a file that cannot be read as a table."""
    return InputError(
        "data file",
        expected=f"a table ({', '.join(TEXT_SUFFIXES)}, also with .gz, in UTF-8; or .parquet)",
        got=got,
        cure=f"Save the table again as comma-separated text or Parquet. {further}".strip(),
    )
