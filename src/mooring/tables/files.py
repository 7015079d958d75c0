"""Files on disk as pyarrow tables: separators, first lines and damage.

The parser's own messages quote the file, so none of them is passed on.
"""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mooring.errors import InputError
from mooring.tables.inference import MISSING_WORDS

TEXT_SUFFIXES = (".csv", ".tsv", ".data", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
_FIRST_LINE_BYTES = 2**20


def require_file(path: Path) -> None:
    """Refuse a path where there is no file."""
    if not path.is_file():
        raise InputError(
            "path",
            expected="a file",
            got=f"{str(path)!r}, which is {'a folder' if path.is_dir() else 'not there'}",
            cure="Check the spelling and the folder you are in.",
        )


def is_table_file(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    name = path.name.lower().removesuffix(".gz")
    return name.endswith(TEXT_SUFFIXES) or path.suffix.lower() in PARQUET_SUFFIXES


def is_gzip(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix.lower() == ".gz"


def open_parquet(path: Path) -> Any:
    """Open a Parquet file, or refuse it."""
    try:
        return pa.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise not_a_table(path, "something that is no Parquet file") from None


def read_parquet(path: Path) -> Any:
    """Read a whole Parquet file as a pyarrow table, or refuse it."""
    try:
        table = open_parquet(path).read()
    except (pa.ArrowException, OSError):
        raise not_a_table(path, "a Parquet file that is damaged") from None
    _require_different_names(table.column_names)
    return table


def read_table_file(path: Path, *, missing: list[str]) -> tuple[Any, tuple[str, ...]]:
    """Read a table with rows and at least two columns of different names, as a pyarrow table, with notes."""
    table, notes = _read_file(path, missing)
    _check_table(path, table)
    return table, notes


def _read_file(path: Path, missing: list[str]) -> tuple[Any, tuple[str, ...]]:
    require_file(path)
    if not is_table_file(path):
        raise not_a_table(path, f"a file that ends in {path.suffix!r}")
    if path.suffix.lower() in PARQUET_SUFFIXES:
        return read_parquet(path), ()
    separator = _separator(path)
    table = _parse_text(path, separator, missing)
    if not _first_line_is_a_row(table):
        names = [name.strip() or f"column {k + 1}" for k, name in enumerate(table.column_names)]
        return table.rename_columns(names), ()
    table = _parse_text(path, separator, missing, names_in_first_line=False)
    names = [f"column {k + 1}" for k in range(table.num_columns)]
    return table.rename_columns(names), ("the first line holds numbers and is read as a row; columns go by position",)


def _first_line_is_a_row(table: Any) -> bool:
    """Whether the names look like values: some are numbers, and none is a word above a column of numbers."""
    is_missing = [name.strip() in MISSING_WORDS for name in table.column_names]
    is_number = [name.strip() not in MISSING_WORDS and _reads_as_number(name) for name in table.column_names]
    above_numbers = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in table.schema.types]
    is_word = [not (number or absent) for number, absent in zip(is_number, is_missing, strict=True)]
    return any(is_number) and not any(word and above for word, above in zip(is_word, above_numbers, strict=True))


def _reads_as_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _separator(path: Path) -> str:
    try:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            beginning = file.read(_FIRST_LINE_BYTES)
    except (OSError, EOFError, zlib.error):
        raise not_a_table(path, "a damaged or unreadable file") from None
    if b"\0" in beginning:
        raise not_a_table(path, "a file that is not text")
    lines = csv.reader(io.StringIO(beginning.decode("latin-1")).readlines()[:1], delimiter=",")
    first = next(lines, [])
    if len(first) > 1:
        return ","
    return next((mark for mark in (";", "\t") if mark in "".join(first)), ",")


def _parse_text(path: Path, separator: str, missing: list[str], *, names_in_first_line: bool = True) -> Any:
    ragged: list[Any] = []

    def remember(row: Any) -> str:
        ragged.append(row)
        return "error"

    def parse(encoding: str) -> Any:
        with pa.input_stream(str(path), compression="gzip" if is_gzip(path) else None) as stream:
            return pa.csv.read_csv(
                stream,
                pa.csv.ReadOptions(
                    use_threads=False, encoding=encoding, autogenerate_column_names=not names_in_first_line
                ),
                pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=remember),
                pa.csv.ConvertOptions(null_values=[*MISSING_WORDS, *missing], strings_can_be_null=True),
            )

    try:
        try:
            table = parse("utf8")
            table.column_names  # noqa: B018 - decodes the names
        except UnicodeDecodeError:
            return parse("latin-1")
        return parse("latin-1") if any(pa.types.is_binary(kind) for kind in table.schema.types) else table
    except (pa.ArrowException, OSError, ValueError):  # their messages quote the file: not to be passed on
        if ragged:
            row = ragged[0]
            got = f"{row.actual_columns} in line {row.number}" if row.number else f"{row.actual_columns} in some line"
            raise InputError(
                "path",
                expected=f"a table with {row.expected_columns} columns in every line, as in the first",
                got=got,
                cure="Check that line for stray separators and quotes.",
            ) from None
        raise not_a_table(path, "a file that holds nothing, or no rows and columns") from None


def _require_different_names(names: list[str]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            "path",
            expected="a table whose columns have different names",
            got=f"one name for columns {' and '.join(str(k + 1) for k, name in enumerate(names) if name == twice)}",
            cure="Write the names of the columns into the first line.",
        )


def _check_table(path: Path, table: Any) -> None:
    names = table.column_names
    _require_different_names(names)
    if len(names) < 2:
        raise InputError(
            "path",
            expected="a table with two columns or more",
            got=f"{len(names)} column",
            cure="The separator must be a comma, a semicolon or a tab.",
        )
    if table.num_rows == 0:
        raise InputError("path", expected="a table with rows", got="none", cure=f"Look into {path.name}.")


def not_a_table(path: Path, got: str) -> InputError:
    """The error for a file that is no table."""
    return InputError(
        "path",
        expected=f"a table ({', '.join(TEXT_SUFFIXES)}, also with .gz, or .parquet)",
        got=got,
        cure=f"Save {path.name} as comma-separated text or Parquet.",
    )


def listed(names: list[str]) -> str:
    """The first ten names, quoted, and how many more there are."""
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
