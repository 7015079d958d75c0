"""Tables on disk, streamed in bounded memory: text with separators, or Parquet.

The parser's own messages quote the file, so none of them is passed on, and neither is the file's name.
"""

from __future__ import annotations

import csv
import gzip
import sys
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mooring.errors import InputError, StorageError
from mooring.typing import Progress

TEXT_SUFFIXES = (".csv", ".tsv", ".data", ".txt")
PARQUET_SUFFIXES = (".parquet", ".pq")
Item = TypeVar("Item")
_LONGEST_HEADER = 2**22
_BLOCK_BYTES = 2**20
_PAGE_BUFFER = 2**14  # a column; without one, Parquet would hold whole row groups
_MOST_NUMBERS = 2**20  # at once: wide tables come in shorter batches, for the sake of memory


@dataclass(frozen=True)
class TableFile:
    """A table of which only the header has been read.

    Attributes
    ----------
    path : Path
    names : tuple of str
        Of its columns, all different.
    separator : str
        Empty for Parquet.
    schema : pyarrow.Schema or None
        Of Parquet.
    longest_line : int
        Length of the header in bytes, as a hint at that of the rows.
    encoding : str
        Of text.
    n_skipped : int
        Lines before the first row: 1, or 0 where the first line of a text file is a row.
    """

    path: Path
    names: tuple[str, ...]
    separator: str = ""
    schema: Any = None
    longest_line: int = 0
    encoding: str = "utf-8"
    n_skipped: int = 1


def open_table(path: str | Path, *, agreed: bool = True) -> TableFile:
    """Read the header of a table, and nothing else of it.

    Parameters
    ----------
    path : path
        Text (.csv, .tsv, .data, .txt, each also with .gz) whose first line names the columns, separated by commas,
        semicolons or tabs; or Parquet (.parquet, .pq).
    agreed : bool
        Whether the form of the file is agreed on: text is in UTF-8, and names are all different. Otherwise text may be
        in Latin-1, and the first line may be a row: what it holds are names if `require_different` says so.
    """
    path = Path(path)
    require_file(path)
    if is_parquet(path):
        with _read_safely():
            file = pa.parquet.ParquetFile(path)
            table = TableFile(path, tuple(file.schema_arrow.names), schema=file.schema_arrow)
            file.close()
    elif is_table_file(path):
        table = _text_header(path, agreed)
    else:
        raise _not_a_table("a file of another kind")
    if agreed:
        require_different(table.names)
    return table


def require_file(path: Path) -> None:
    """Refuse a path where there is no file."""
    if not path.is_file():
        raise StorageError(
            "the data file",
            reason="there is only a folder of that name" if path.is_dir() else "it is not there",
            cure="Check the spelling and the folder you are in.",
        )


def is_table_file(path: Path) -> bool:
    """Whether the name of a file is that of a table."""
    return path.name.lower().removesuffix(".gz").endswith(TEXT_SUFFIXES) or is_parquet(path)


def is_parquet(path: Path) -> bool:
    """Whether the name of a file is that of a Parquet file."""
    return path.suffix.lower() in PARQUET_SUFFIXES


def is_gzip(path: Path) -> bool:
    """Whether the name of a file says that it is compressed."""
    return path.suffix.lower() == ".gz"


def table_batches(
    table: TableFile,
    *,
    numbers: Sequence[str] = (),
    words: Sequence[str] = (),
    missing_words: Sequence[str] = (),
    rows_at_once: int = 65_536,
    progress: Progress | None = None,
) -> Iterator[list[Any]]:
    """Stream some columns of a table.

    Parameters
    ----------
    table : TableFile
    numbers, words : sequence of str
        Columns to read. Of a text file, they come as numbers and as dictionaries of words where all is well; where
        something in a block is no number or not UTF-8, that block and all after it come as bytes, so that the caller
        can say which row and column is wrong. Parquet comes in the types that it has.
    missing_words : sequence of str
        Null among numbers.
    rows_at_once : int
        At most.
    progress : callable, optional
        Is called with bytes read and bytes in all.

    Yields
    ------
    list of pyarrow.RecordBatch
        Of `rows_at_once` rows together, fewer if the table is wide, the last excepted. Rows before a line that
        is refused come before the refusal.
    """
    if rows_at_once < 1:
        raise InputError("rows_at_once", expected="1 or more", got=str(rows_at_once), cure="65536 is the default.")
    size = float(table.path.stat().st_size)
    rows_at_once = min(rows_at_once, max(1, _MOST_NUMBERS // max(1, len(numbers) + len(words))))

    def told(share: float) -> None:
        if progress is not None:
            progress(min(share, 1.0) * size, size)

    if table.schema is None:
        types = dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(words, pa.dictionary(pa.int32(), pa.string()))
        source = _text_batches(table, types, missing_words, told)
    else:
        source = _parquet_batches(table, [*numbers, *words], rows_at_once, told)
    yield from _regrouped(source, rows_at_once)
    told(1.0)


def read_columns(table: TableFile) -> tuple[TableFile, Any]:
    """Read all columns of a table into memory.

    Returns
    -------
    table : TableFile
        As given, or in Latin-1 where the text is not UTF-8.
    columns : pyarrow.Table
        Text as dictionaries of words, Parquet in the types that it has.
    """
    batches = [part for parts in table_batches(table, words=table.names) for part in parts]
    if not batches:
        raise no_rows()
    if table.schema is not None:
        return table, pa.Table.from_batches(batches)
    try:  # bytes come where a value holds a line break, or is not UTF-8
        as_words = pa.schema([(name, pa.dictionary(pa.int32(), pa.string())) for name in table.names])
        parts = [pa.Table.from_batches([part]).cast(as_words) for part in batches]
        return table, pa.concat_tables(parts).unify_dictionaries().combine_chunks()
    except pa.ArrowInvalid:
        return read_columns(replace(table, encoding="latin-1"))


def read_ahead(items: Iterable[Item], *, at_most: int = 2) -> Iterator[Item]:
    """The same items in the same order, made by another thread, at most so many ahead.

    Parsing and linear algebra release Python's lock: the next batch is read while the last one is worked on. An error of
    the other thread is raised here, in its place among the items; leaving early stops the other thread.

    Examples
    --------
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    source, end = iter(items), object()
    pool = ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, source, end) for _ in range(at_most))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, source, end))
            yield item  # type: ignore[misc]
    finally:
        pool.shutdown(cancel_futures=True)


def _regrouped(source: Iterator[Any], rows_at_once: int) -> Iterator[list[Any]]:
    waiting: list[Any] = []
    n_waiting = 0
    trouble = None
    while True:
        try:
            batch = next(source, None)
        except InputError as problem:  # what is wrong further up in the file is told first
            batch, trouble = None, problem
        if batch is None:
            break
        while batch.num_rows + n_waiting >= rows_at_once:
            first = batch.slice(0, rows_at_once - n_waiting)
            batch = batch.slice(first.num_rows)
            yield [*waiting, first]
            waiting, n_waiting = [], 0
        if batch.num_rows:
            waiting.append(batch)
            n_waiting += batch.num_rows
    if waiting:
        yield waiting
    if trouble is not None:
        raise trouble


def _parquet_batches(
    table: TableFile, wanted: list[str], rows_at_once: int, told: Callable[[float], None]
) -> Iterator[Any]:
    with _read_safely():
        file = pa.parquet.ParquetFile(table.path, pre_buffer=False, buffer_size=_PAGE_BUFFER)
    n_rows, n_read = max(1, file.metadata.num_rows), 0
    with file:
        batches = file.iter_batches(batch_size=rows_at_once, columns=wanted, use_threads=False)
        while True:
            with _read_safely():
                batch = next(batches, None)
            if batch is None:
                return
            n_read += batch.num_rows
            told(n_read / n_rows)
            yield batch.select(wanted)


def _text_batches(
    table: TableFile, types: dict[str, Any], missing_words: Sequence[str], told: Callable[[float], None]
) -> Iterator[Any]:
    """Batches in these types; from the first block with something else on, as bytes."""
    n_read = 0
    batches = _parsed(table, types, missing_words, None, told)
    while True:
        try:
            with _read_safely(let_through=pa.ArrowInvalid):
                batch = next(batches, None)
        except pa.ArrowInvalid:  # what it says quotes the row
            break
        if batch is None:
            return
        n_read += batch.num_rows
        yield batch
    ragged: list[Any] = []
    n_passed = 0
    batches = _parsed(table, dict.fromkeys(types, pa.binary()), (), ragged, told)
    while True:
        with _read_safely():
            batch = next(batches, None)
        end = ragged[0].number - 1 - table.n_skipped if ragged else None
        if batch is not None:
            keep = batch.num_rows if end is None else min(batch.num_rows, end - n_passed)
            again = min(keep, max(0, n_read - n_passed))
            if keep > again:
                yield batch.slice(again, keep - again)
            n_passed += batch.num_rows
        if end is not None and (batch is None or n_passed > end or keep < batch.num_rows):
            row = ragged[0]
            raise InputError(
                f"row {row.number - table.n_skipped}",
                expected=f"of {row.expected_columns} columns, as the first line is",
                got=f"{row.actual_columns}",
                cure="Check that row for stray separators and quotes.",
            )
        if batch is None:
            return


def _parsed(
    table: TableFile,
    types: dict[str, Any],
    missing_words: Sequence[str],
    ragged: list[Any] | None,
    told: Callable[[float], None],
) -> Iterator[Any]:
    """Batches of a text file; with `ragged`, lines of another length are put there, and anything goes into bytes."""
    position = {name: f"c{k}" for k, name in enumerate(table.names)}  # names may need trimming or be odd

    def remember(row: Any) -> str:
        if ragged is None:
            return "error"
        ragged.append(row)
        return "skip"

    careful = ragged is not None
    size = max(1, table.path.stat().st_size)
    with pa.OSFile(str(table.path)) as raw:
        stream = pa.CompressedInputStream(raw, "gzip") if is_gzip(table.path) else raw
        try:
            reader = pa.csv.open_csv(
                stream,
                pa.csv.ReadOptions(
                    use_threads=not careful,
                    block_size=max(_BLOCK_BYTES, 64 * table.longest_line),
                    column_names=list(position.values()),
                    skip_rows=table.n_skipped,
                    encoding=table.encoding,
                ),
                pa.csv.ParseOptions(
                    delimiter=table.separator,
                    newlines_in_values=careful,
                    invalid_row_handler=remember if careful else None,
                ),
                pa.csv.ConvertOptions(
                    column_types={position[name]: kind for name, kind in types.items()},
                    include_columns=[position[name] for name in types],
                    null_values=[form for word in missing_words for form in (word, f" {word}", f"{word} ")],
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as problem:
            if "skip initial" in str(problem):  # a header that no line follows
                return
            raise
        with reader:
            for batch in reader:
                told(raw.tell() / size)
                yield batch.rename_columns(list(types))


def _text_header(path: Path, agreed: bool) -> TableFile:
    try:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            line = file.readline(_LONGEST_HEADER)
    except (OSError, EOFError, zlib.error):
        raise _not_a_table("a file that is damaged or cannot be read") from None
    line = line.removeprefix(b"\xef\xbb\xbf").split(b"\r")[0].rstrip(b"\n")
    if b"\0" in line:
        raise _not_a_table("a file that is not text")
    if not line.strip():
        raise InputError(
            "data file",
            expected="a table whose first line names the columns",
            got="an empty first line" if path.stat().st_size else "an empty file",
            cure="Write the table again, with a header.",
        )
    encoding = "utf-8" if _is_utf8(line) else "latin-1"
    if agreed and encoding != "utf-8":
        raise _not_a_table("a first line that is not text in UTF-8")
    text = line.decode(encoding)
    try:
        separator = next((mark for mark in ",;\t" if len(next(csv.reader([text], delimiter=mark))) > 1), ",")
        names = next(csv.reader([text], delimiter=separator, strict=True))
    except csv.Error:
        raise _not_a_table("a first line with stray quotes") from None
    return TableFile(path, tuple(name.strip() for name in names), separator, longest_line=len(line), encoding=encoding)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True


def require_different(names: Sequence[str]) -> None:
    """Refuse names of columns of which two are the same."""
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            "data file",
            expected="a table whose columns have different names",
            got=f"one name for columns {' and '.join(str(k + 1) for k, name in enumerate(names) if name == twice)}",
            cure="Write the names of the columns into the first line, each once.",
        )


@contextmanager
def _read_safely(let_through: type[Exception] | tuple[()] = ()) -> Iterator[None]:
    # The parser's callbacks fail with bytes of the file, which Python would print.
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    except let_through:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError, zlib.error):  # their messages quote the file
        raise _not_a_table("a file that is damaged or of another kind") from None
    finally:
        sys.unraisablehook = before


def no_rows() -> InputError:
    """The error for a table without rows."""
    return InputError(
        "data file", expected="a table with rows", got="a header and no rows", cure="Write the rows beneath it."
    )


def _not_a_table(got: str) -> InputError:
    return InputError(
        "data file",
        expected=f"a table ({', '.join(TEXT_SUFFIXES)}, also with .gz, in UTF-8; or .parquet)",
        got=got,
        cure="Save the table again as comma-separated text or Parquet.",
    )
