"""Rows of tables: files (text with separators, Parquet) are streamed in bounded memory, data frames come in batches."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from mooring.errors import InputError
from mooring.tables.cells import holds_words, is_utf8
from mooring.tables.files import OpenTable, explain_read_errors, is_gzip, no_rows, not_a_table
from mooring.tables.mapping import TableMapping
from mooring.tables.problems import RaggedLines
from mooring.tables.schema import MISSING_WORDS
from mooring.tables.text_encodings import USUAL, Recoded, restore_bytes
from mooring.typing import Progress

Item = TypeVar("Item")
THREADS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""Number of threads that work on a table: the cores that a container or taskset allows, at most 8 to limit memory."""
_BLOCK_BYTES = 2**20
_BATCH_BYTES = 2**27  # a batch of long words ends early
_BATCH_NUMBERS = 2**20  # a batch of a wide table ends early
_ORIGINAL = "\0original"  # no column of a study has a name with this ending
_PAGE_BUFFER = 2**14  # bytes per column; without a buffer, Parquet would hold whole row groups
_SMALL_FILE = 2**26  # up to this size, no buffer: with one, Parquet allocates what a page claims to need, up to 2 GB
_PREFIXES, _DICTIONARIES = "DELTA_BYTE_ARRAY", {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
_MISSING_NUMBERS = [padded for word in MISSING_WORDS for padded in (word, f" {word}", f"{word} ")]


def table_batches(
    table: OpenTable,
    columns: Sequence[str],
    *,
    numbers: Sequence[str] = (),
    keep_bytes: bool = False,
    with_originals: bool = False,
    rows_at_once: int = 65_536,
    ragged: RaggedLines | None = None,
    progress: Progress | None = None,
) -> Iterator[Any]:
    """Yield some columns of a table as pyarrow tables of at most `rows_at_once` rows.

    Columns of a text file come as text. Columns of Parquet and data frames keep their types, except that text comes as
    dictionaries of words. The parser of a text file converts the columns in `numbers` to numbers. If a cell of these columns
    is not a number, if a cell is not UTF-8 or contains a line break, or if a line has a wrong number of fields, then all
    columns come as bytes from the block concerned on, so that the caller can find the place. With `keep_bytes`, bytes in
    Parquet or data frames stay bytes, as images must, instead of becoming text. `ragged` collects lines with a wrong number
    of fields, which are then skipped; without it, the first such line raises an error, once the rows before the line have
    been yielded. With `with_originals`, batches of a mapped table have a further column (see `original_name`), with the
    table's own words, for each column whose cells the mapping may change.
    """
    if table.unmapped is not None and table.mapping is not None:
        yield from _mapped_batches(
            table.unmapped,
            table.mapping,
            columns,
            numbers=numbers,
            with_originals=with_originals,
            keep_bytes=keep_bytes,
            rows_at_once=rows_at_once,
            ragged=ragged,
            progress=progress,
        )
        return
    if rows_at_once < 1:
        raise InputError("rows_at_once", expected="1 or more", got=str(rows_at_once), cure="65536 is the default.")
    size = float(table.columns.num_rows if table.path is None else table.path.stat().st_size)
    rows_at_once = min(rows_at_once, max(1, _BATCH_NUMBERS // max(1, len(columns))))

    def report(share: float) -> None:
        if progress is not None:
            progress(min(share, 1.0) * size, size)

    if table.schema is None:
        types = dict.fromkeys(columns, pa.string()) | dict.fromkeys(numbers, pa.float64())
        source = _text_batches(table, types, ragged, report)
    else:
        batches = _frame_batches if table.path is None else _parquet_batches
        source = batches(table, list(columns), keep_bytes, rows_at_once, report)
    yield from _regroup(source, rows_at_once)
    report(1.0)


def _mapped_batches(
    table: OpenTable,
    mapping: TableMapping,
    columns: Sequence[str],
    *,
    numbers: Sequence[str],
    with_originals: bool,
    **options: Any,
) -> Iterator[Any]:
    """Yield the columns that a study asks for, from a table that a mapping renames and converts."""
    changed = [name for name in columns if mapping.changes(name)]
    sources = mapping.sources
    source_of = {name: sources.get(name, name) for name in columns}
    as_numbers = [source_of[name] for name in numbers if name not in changed]
    for batch in table_batches(table, list(source_of.values()), numbers=as_numbers, **options):
        batch = batch.rename_columns(list(source_of))
        for name in changed:
            cells = batch.column(name)
            batch = batch.set_column(batch.column_names.index(name), name, mapping.convert(name, cells))
            if with_originals:
                batch = batch.append_column(original_name(name), mapping.convert(name, cells, translate=False))
        yield batch


def original_name(name: str) -> str:
    """Return the name of the further column that holds the table's own words for a mapped column."""
    return f"{name}{_ORIGINAL}"


def read_columns(table: OpenTable, *, keep_bytes: bool = False) -> Any:
    """Return all columns of a table in memory, as a pyarrow table with the types that `table_batches` yields.

    A text file has columns of text. If it is not UTF-8, the whole file is read as Windows-1252.
    """
    batches = list(table_batches(table, table.names, keep_bytes=keep_bytes))
    if not batches:
        raise no_rows()
    if table.schema is not None:
        return pa.concat_tables(batches).unify_dictionaries()
    text = pa.schema([(name, pa.string()) for name in table.names])
    try:
        return pa.concat_tables([batch.cast(text) for batch in batches])
    except pa.ArrowInvalid:  # its message quotes the cell
        unmapped = None if table.unmapped is None else replace(table.unmapped, encoding=USUAL)
        return read_columns(replace(table, encoding=USUAL, unmapped=unmapped))


def read_ahead(items: Iterable[Item], *, at_most: int = 2) -> Iterator[Item]:
    """Yield the items in order, while another thread makes up to `at_most` further items in advance.

    Parsing and linear algebra release Python's lock, so the next batch is read while the last one is worked on. An error
    of the other thread is raised here, in its place among the items. The other thread stops if the caller stops iterating.

    Examples
    --------
    >>> list(read_ahead(range(3)))
    [0, 1, 2]
    """
    source, end, pool = iter(items), object(), ThreadPoolExecutor(1)
    try:
        waiting = deque(pool.submit(next, source, end) for _ in range(at_most))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(next, source, end))
            yield item  # type: ignore[misc]
    finally:
        pool.shutdown(cancel_futures=True)


def _regroup(source: Iterator[Any], rows_at_once: int) -> Iterator[Any]:
    """Yield tables of `rows_at_once` rows, or of fewer before a change of types, if text is long, and at the end."""
    waiting, n_waiting, n_bytes, error = list[Any](), 0, 0, None
    while True:
        try:
            batch = next(source, None)
        except InputError as problem:  # what is wrong in earlier rows is reported first
            batch, error = None, problem
        if batch is None:
            break
        if waiting and (n_bytes > _BATCH_BYTES or batch.schema != waiting[0].schema):
            yield pa.Table.from_batches(waiting)
            waiting, n_waiting, n_bytes = [], 0, 0
        while batch.num_rows + n_waiting >= rows_at_once:
            first = batch.slice(0, rows_at_once - n_waiting)
            batch = batch.slice(first.num_rows)
            yield pa.Table.from_batches([*waiting, first])
            waiting, n_waiting, n_bytes = [], 0, 0
        if batch.num_rows:
            waiting.append(batch)
            n_waiting += batch.num_rows
            n_bytes += batch.nbytes
    if waiting:
        yield pa.Table.from_batches(waiting)
    if error is not None:
        raise error


def _frame_batches(
    table: OpenTable, columns: list[str], keep_bytes: bool, rows_at_once: int, report: Callable[[float], None]
) -> Iterator[Any]:
    text, n_read = _text_columns(table, columns, keep_bytes), 0
    for batch in table.columns.select(columns).to_batches(max_chunksize=rows_at_once):
        yield _decode_text(batch, text, n_read)
        n_read += batch.num_rows
        report(n_read / table.columns.num_rows)


def _parquet_batches(
    table: OpenTable, columns: list[str], keep_bytes: bool, rows_at_once: int, report: Callable[[float], None]
) -> Iterator[Any]:
    """Yield batches with text as dictionaries, so that a word that every row repeats is stored once."""
    assert table.path is not None
    text = _text_columns(table, columns, keep_bytes)
    with explain_read_errors():
        coded = _dictionary_columns(table.path, text)
        buffer = _PAGE_BUFFER if table.path.stat().st_size > _SMALL_FILE else 0
        file = pa.parquet.ParquetFile(table.path, pre_buffer=False, buffer_size=buffer, read_dictionary=coded)
    n_rows, n_read = max(1, file.metadata.num_rows), 0
    with file:
        batches = file.iter_batches(batch_size=rows_at_once, columns=columns, use_threads=False)
        while True:
            with explain_read_errors():
                batch = next(batches, None)
            if batch is None and n_read != file.metadata.num_rows:  # the columns end at different rows
                raise not_a_table("a Parquet file that lacks a part of a column")
            if batch is None:
                return
            decoded = _decode_text(batch, text, n_read)
            n_read += batch.num_rows
            report(n_read / n_rows)
            yield decoded


def _dictionary_columns(path: Path, text: Sequence[str]) -> list[str]:
    """Return the columns of text that can be read as dictionaries."""
    if not text:
        return []
    _require_chunk_metadata(path, text)
    metadata = pa.parquet.read_metadata(path)
    places = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    encodings = {
        name: {encoding for group in groups for encoding in group.column(places[name]).encodings} for name in text
    }
    if any(_PREFIXES in used for used in encodings.values()):  # a few bytes in it can stand for any amount of text
        raise not_a_table(f"text in Parquet's encoding {_PREFIXES}")
    return [name for name in text if encodings[name] <= _DICTIONARIES]


class _FooterOnly(io.FileIO):
    """A file that raises an error if it is read after it was opened as Parquet, since only pages are read then."""

    opened = False

    def read(self, size: int | None = -1, /) -> bytes:
        if self.opened:
            raise _PagesWantedError
        return super().read(size)


class _PagesWantedError(Exception):
    """Raised when pages are asked for."""


def _require_chunk_metadata(path: Path, columns: Sequence[str]) -> None:
    """Refuse a file in which some part of these columns has no metadata, or encrypted metadata.

    pyarrow ends the process when a program asks for such metadata. The reader of rows raises an error instead: it looks up
    where all parts of the columns lie before it reads the first page, at which `_FooterOnly` stops the reader.
    """
    with _FooterOnly(path) as raw, pa.parquet.ParquetFile(raw, pre_buffer=True) as file:
        raw.opened = True
        with suppress(_PagesWantedError):
            next(file.iter_batches(1, columns=list(columns), use_threads=False), None)


def _text_columns(table: OpenTable, columns: Sequence[str], keep_bytes: bool) -> list[str]:
    """Return the columns of Parquet or a data frame that hold text, or bytes that are to be read as text."""
    types = {name: table.schema.field(name).type for name in columns}
    values = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in types.items()}
    as_text = () if keep_bytes else (pa.binary(), pa.large_binary())
    return [name for name, kind in values.items() if holds_words(kind) or kind in as_text]


def _decode_text(batch: Any, text: Sequence[str], n_before: int) -> Any:
    """Return a batch with its columns of text as dictionaries."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {name: _decode_words(name, columns[name], n_before) for name in text}
    return pa.RecordBatch.from_pydict(columns)


def _decode_words(name: str, column: Any, n_before: int) -> Any:
    """Convert a dictionary of bytes or unchecked text to a dictionary of text; refuse the first row that is not UTF-8."""
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if len(column.dictionary) > len(column):  # the dictionary is that of a whole row group
        used, places = np.unique(column.indices.fill_null(0).to_numpy(zero_copy_only=False), return_inverse=True)
        indices = pa.array(places.astype(np.int32), mask=column.indices.is_null().to_numpy(zero_copy_only=False))
        column = pa.DictionaryArray.from_arrays(indices, column.dictionary.take(pa.array(used)))
    words = column.dictionary
    with explain_read_errors(let_through=pa.ArrowInvalid):
        try:
            if words.type == pa.string():
                words.validate(full=True)
                return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), words)
            text = words.cast(pa.large_binary()).cast(pa.large_string()).cast(pa.string())
            return pa.DictionaryArray.from_arrays(column.indices.cast(pa.int32()), text)
        except pa.ArrowInvalid:  # its message quotes the cell
            broken = [value is not None and not is_utf8(value) for value in words.cast(pa.large_binary()).to_pylist()]
    rows = pc.is_in(column.indices, pa.array([k for k, bad in enumerate(broken) if bad], column.indices.type))
    raise InputError(
        f"row {n_before + rows.index(True).as_py() + 1}, column {name!r}",
        expected="text in UTF-8",
        got="bytes that are not valid UTF-8",
        cure="Save the table again, in UTF-8.",
    )


def _text_batches(
    table: OpenTable, types: dict[str, Any], ragged: RaggedLines | None, report: Callable[[float], None]
) -> Iterator[Any]:
    """Yield batches in these types; once a block does not fit the types, yield batches of bytes, in a slower pass."""
    n_read = 0
    batches = _parse(table, types, None, report)
    while True:
        try:
            with explain_read_errors(let_through=pa.ArrowInvalid):
                batch = next(batches, None)
        except pa.ArrowInvalid:  # its message quotes the row
            break
        if batch is None:
            return
        n_read += batch.num_rows
        yield batch
    refuse, ragged = ragged is None, RaggedLines() if ragged is None else ragged
    n_passed = 0
    batches = _parse(table, dict.fromkeys(types, pa.binary()), ragged, report)
    while True:
        with explain_read_errors():
            batch = next(batches, None)
        end = ragged.numbers[0] - 1 if ragged.numbers and refuse else None
        if batch is not None:
            keep = batch.num_rows if end is None else min(batch.num_rows, end - n_passed)
            again = min(keep, max(0, n_read - n_passed))
            if keep > again:
                yield batch.slice(again, keep - again)
            n_passed += batch.num_rows
        if end is not None and (batch is None or n_passed > end or keep < batch.num_rows):
            raise ragged.problem.error()
        if batch is None or ragged.are_too_many:
            return


def _parse(
    table: OpenTable, types: dict[str, Any], ragged: RaggedLines | None, report: Callable[[float], None]
) -> Iterator[Any]:
    """Yield batches of a text file. With `ragged`, which collects lines of a wrong length, cells may hold line breaks."""
    position = {name: f"c{k}" for k, name in enumerate(table.names)}  # names may be padded or repeated

    def remember(row: Any) -> str:
        if ragged is None:
            return "error"
        ragged.add(row.number - table.n_skipped, row.actual_columns, row.expected_columns)
        return "skip"

    assert table.path is not None
    careful = ragged is not None
    size = max(1, table.path.stat().st_size)
    with pa.OSFile(str(table.path)) as raw:
        stream = pa.CompressedInputStream(raw, "gzip") if is_gzip(table.path) else raw
        if careful or table.encoding != "utf-8":  # the parser cannot report a line of a wrong length that is not UTF-8
            stream = pa.PythonFile(io.BufferedReader(Recoded(stream, table.encoding), _BLOCK_BYTES), "r")
        try:
            reader = pa.csv.open_csv(
                stream,
                pa.csv.ReadOptions(
                    use_threads=not careful,
                    block_size=max(_BLOCK_BYTES, 64 * table.longest_line),
                    column_names=list(position.values()),
                    skip_rows=table.n_skipped,
                ),
                pa.csv.ParseOptions(
                    delimiter=table.separator,
                    newlines_in_values=careful,
                    invalid_row_handler=remember if careful else None,
                ),
                pa.csv.ConvertOptions(
                    column_types={position[name]: kind for name, kind in types.items()},
                    include_columns=[position[name] for name in types],
                    null_values=_MISSING_NUMBERS,
                    strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as problem:
            if "skip initial" in str(problem):  # a header that no line follows
                return
            raise
        with reader:
            for batch in reader:
                report(raw.tell() / size)
                if careful:
                    batch = pa.RecordBatch.from_arrays(list(map(restore_bytes, batch.columns)), schema=batch.schema)
                yield batch.rename_columns(list(types))
