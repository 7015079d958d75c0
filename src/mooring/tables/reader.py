"""Rows of tables: of files (text with separators, Parquet) streamed in bounded memory; of data frames in batches."""

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
from mooring.tables.cells import holds_words
from mooring.tables.files import OpenTable, explain_read_errors, is_gzip, is_utf8, no_rows, not_a_table
from mooring.tables.problems import RaggedLines
from mooring.typing import Progress

Item = TypeVar("Item")
THREADS = min(8, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
"""That work on a table: of the cores, which a container or taskset may limit; and threads take memory."""
_BLOCK_BYTES = 2**20
_PAGE_BUFFER = 2**14  # a column; without one, Parquet would hold whole row groups
_MOST_NUMBERS = 2**20  # at once: wide tables come in shorter batches, for the sake of memory
_PREFIXES, _DICTIONARIES = "DELTA_BYTE_ARRAY", {"PLAIN", "PLAIN_DICTIONARY", "RLE_DICTIONARY", "RLE", "BIT_PACKED"}
WORDS = pa.dictionary(pa.int32(), pa.string())
"""The type of a column of words, each distinct one held once."""


def table_batches(
    table: OpenTable,
    *,
    numbers: Sequence[str] = (),
    words: Sequence[str] = (),
    missing_words: Sequence[str] = (),
    keep_bytes: bool = False,
    rows_at_once: int = 65_536,
    ragged: RaggedLines | None = None,
    progress: Progress | None = None,
) -> Iterator[list[Any]]:
    """Stream some columns of a table.

    Parameters
    ----------
    numbers, words : sequence of str
        Columns to read. Of a text file, they come as numbers and as dictionaries of words where all is well; where
        something in a block is no number or not UTF-8, that block and all after it come as bytes, so that the caller
        can say which row and column is wrong. Others come in the types that they have, text as dictionaries of words.
    missing_words : sequence of str
        Null among numbers.
    keep_bytes : bool
        Whether bytes of Parquet or data frames come as they are (images), and not as text.
    ragged : RaggedLines, optional
        Takes lines of another length, which are then passed over; without it, the first of them is refused.

    Yields
    ------
    list of pyarrow.RecordBatch
        Of `rows_at_once` rows together, fewer if the table is wide, the last excepted. Rows before a line that
        is refused come before the refusal.
    """
    if rows_at_once < 1:
        raise InputError("rows_at_once", expected="1 or more", got=str(rows_at_once), cure="65536 is the default.")
    size = float(table.columns.num_rows if table.path is None else table.path.stat().st_size)
    rows_at_once = min(rows_at_once, max(1, _MOST_NUMBERS // max(1, len(numbers) + len(words))))

    def told(share: float) -> None:
        if progress is not None:
            progress(min(share, 1.0) * size, size)

    if table.schema is None:
        types = dict.fromkeys(numbers, pa.float64()) | dict.fromkeys(words, WORDS)
        source = _text_batches(table, types, missing_words, ragged, told)
    else:
        batches = _frame_batches if table.path is None else _parquet_batches
        source = batches(table, [*numbers, *words], keep_bytes, rows_at_once, told)
    yield from _regrouped(source, rows_at_once)
    told(1.0)


def read_columns(
    table: OpenTable, *, missing_words: Sequence[str] = (), keep_bytes: bool = False
) -> tuple[OpenTable, Any]:
    """Read all columns of a table into memory.

    Parameters
    ----------
    keep_bytes : bool
        As for `table_batches`.

    Returns
    -------
    table : OpenTable
        As given, or in Latin-1 where the text is not UTF-8.
    columns : pyarrow.Table
        Text as numbers, or as dictionaries of words where some value is no number; others as `table_batches` gives them.
    """
    if table.schema is not None:
        parts = [part for parts in table_batches(table, words=table.names, keep_bytes=keep_bytes) for part in parts]
        if not parts:
            raise no_rows()
        return table, pa.Table.from_batches(parts).unify_dictionaries()
    numbers = _numbers_at_first(table, missing_words)
    parts = _whole(table, numbers, missing_words)
    if numbers and parts and pa.types.is_binary(parts[-1].schema.field(numbers[0]).type):
        numbers, parts = [], _whole(table, [], missing_words)  # some value further down is no number
    if not parts:
        raise no_rows()
    as_numbers = frozenset(numbers)
    types = pa.schema([(name, pa.float64() if name in as_numbers else WORDS) for name in parts[0].schema.names])
    try:  # bytes come where a value holds a line break, or is not UTF-8
        whole = pa.concat_tables([pa.Table.from_batches([part]).cast(types) for part in parts])
    except pa.ArrowInvalid:
        return read_columns(replace(table, encoding="latin-1"), missing_words=missing_words)
    return table, whole.select(list(table.names)).unify_dictionaries()


def _whole(table: OpenTable, numbers: Sequence[str], missing_words: Sequence[str]) -> list[Any]:
    as_numbers = frozenset(numbers)
    words = [name for name in table.names if name not in as_numbers]
    batches = table_batches(table, numbers=numbers, words=words, missing_words=missing_words)
    return [part for parts in batches for part in parts]


def _numbers_at_first(table: OpenTable, missing_words: Sequence[str]) -> list[str]:
    """Columns of a text file whose first values are numbers."""
    first = next(table_batches(table, words=table.names, rows_at_once=1000), [])
    return [name for part in first[:1] for name in table.names if _are_numbers(part.column(name), missing_words)]


def _are_numbers(words: Any, missing_words: Sequence[str]) -> bool:
    try:
        distinct = pc.utf8_trim_whitespace(words.dictionary.cast(pa.string()))
        present = distinct.filter(pc.invert(pc.is_in(distinct, pa.array(missing_words, pa.string()))))
        present.cast(pa.float64())
    except (pa.ArrowInvalid, AttributeError):  # bytes have no dictionary
        return False
    return len(present) > 0


def read_ahead(items: Iterable[Item], *, at_most: int = 2) -> Iterator[Item]:
    """The same items in the same order, made by another thread, at most so many ahead.

    Parsing and linear algebra release Python's lock: the next batch is read while the last one is worked on. An error of
    the other thread is raised here, in its place among the items; leaving early stops the other thread.

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


def _regrouped(source: Iterator[Any], rows_at_once: int) -> Iterator[list[Any]]:
    waiting, n_waiting, trouble = list[Any](), 0, None
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


def _frame_batches(
    table: OpenTable, wanted: list[str], keep_bytes: bool, rows_at_once: int, told: Callable[[float], None]
) -> Iterator[Any]:
    text, n_read = _list_text(table, wanted, keep_bytes), 0
    for batch in table.columns.select(wanted).to_batches(max_chunksize=rows_at_once):
        yield _decode_text(batch, text, n_read)
        n_read += batch.num_rows
        told(n_read / table.columns.num_rows)


def _parquet_batches(
    table: OpenTable, wanted: list[str], keep_bytes: bool, rows_at_once: int, told: Callable[[float], None]
) -> Iterator[Any]:
    """Text as dictionaries: a long word that stands in every row takes its length once."""
    assert table.path is not None
    text = _list_text(table, wanted, keep_bytes)
    with explain_read_errors():
        coded = _list_coded(table.path, text)
        file = pa.parquet.ParquetFile(table.path, pre_buffer=False, buffer_size=_PAGE_BUFFER, read_dictionary=coded)
    n_rows, n_read = max(1, file.metadata.num_rows), 0
    with file:
        batches = file.iter_batches(batch_size=rows_at_once, columns=wanted, use_threads=False)
        while True:
            with explain_read_errors():
                batch = next(batches, None)
            if batch is None and n_read != file.metadata.num_rows:  # its columns end at different rows
                raise not_a_table("a Parquet file that lacks a part of a column")
            if batch is None:
                return
            decoded = _decode_text(batch, text, n_read)
            n_read += batch.num_rows
            told(n_read / n_rows)
            yield decoded


def _list_coded(path: Path, text: Sequence[str]) -> list[str]:
    """Those columns of text that can be read as dictionaries."""
    if not text:
        return []
    _require_chunk_metadata(path, text)
    metadata = pa.parquet.read_metadata(path)
    places = {metadata.schema.column(k).path: k for k in range(metadata.num_columns)}
    groups = [metadata.row_group(k) for k in range(metadata.num_row_groups)]
    encodings = {name: {one for group in groups for one in group.column(places[name]).encodings} for name in text}
    if any(_PREFIXES in found for found in encodings.values()):  # a few bytes of it can stand for any amount of text
        raise not_a_table(f"text in Parquet's encoding {_PREFIXES}")
    return [name for name in text if encodings[name] <= _DICTIONARIES]


class _FooterOnly(io.FileIO):
    """A file that can be read until it is opened as Parquet; what is read after that are pages."""

    opened = False

    def read(self, size: int | None = -1, /) -> bytes:
        if self.opened:
            raise _PagesWantedError
        return super().read(size)


class _PagesWantedError(Exception):
    """Pages are asked for."""


def _require_chunk_metadata(path: Path, columns: Sequence[str]) -> None:
    """Refuse a file where some part of these columns has no metadata, or encrypted ones.

    pyarrow ends the process when it is asked for such metadata. Its reader raises instead: it looks up where all parts of
    the columns lie before it reads the first page, and a file without pages stops it there.
    """
    with _FooterOnly(path) as raw, pa.parquet.ParquetFile(raw, pre_buffer=True) as file:
        raw.opened = True
        with suppress(_PagesWantedError):
            next(file.iter_batches(1, columns=list(columns), use_threads=False), None)


def _list_text(table: OpenTable, wanted: Sequence[str], keep_bytes: bool) -> list[str]:
    """Those columns that hold text."""
    types = {name: table.schema.field(name).type for name in wanted}
    values = {name: kind.value_type if pa.types.is_dictionary(kind) else kind for name, kind in types.items()}
    as_text = () if keep_bytes else (pa.binary(), pa.large_binary())
    return [name for name, kind in values.items() if holds_words(kind) or kind in as_text]


def _decode_text(batch: Any, text: Sequence[str], n_before: int) -> Any:
    """A batch with its columns of text as dictionaries."""
    columns = {name: batch.column(name) for name in batch.schema.names}
    columns |= {name: _decode_words(name, columns[name], n_before) for name in text}
    return pa.RecordBatch.from_pydict(columns)


def _decode_words(name: str, column: Any, n_before: int) -> Any:
    """A dictionary of bytes, or of what claims to be text, as one of text; an error for the first row where it is none."""
    column = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    if len(column.dictionary) > len(column):  # of the whole row group, and this is a part of it
        used, places = np.unique(column.indices.fill_null(0).to_numpy(zero_copy_only=False), return_inverse=True)
        indices = pa.array(places.astype(np.int32), mask=column.indices.is_null().to_numpy(zero_copy_only=False))
        column = pa.DictionaryArray.from_arrays(indices, column.dictionary.take(pa.array(used)))
    words = column.dictionary
    with explain_read_errors(let_through=pa.ArrowInvalid):
        try:
            if words.type == pa.string():
                words.validate(full=True)
                return column
            text = words.cast(pa.large_binary()).cast(pa.large_string()).cast(pa.string())
            return pa.DictionaryArray.from_arrays(column.indices, text)
        except pa.ArrowInvalid:  # what it says quotes the value
            broken = [value is not None and not is_utf8(value) for value in words.cast(pa.large_binary()).to_pylist()]
    rows = pc.is_in(column.indices, pa.array([k for k, bad in enumerate(broken) if bad], column.indices.type))
    raise InputError(
        f"row {n_before + rows.index(True).as_py() + 1}, column {name!r}",
        expected="text in UTF-8",
        got="other bytes",
        cure="Save the table again, in UTF-8.",
    )


def _text_batches(
    table: OpenTable,
    types: dict[str, Any],
    missing_words: Sequence[str],
    ragged: RaggedLines | None,
    told: Callable[[float], None],
) -> Iterator[Any]:
    """Batches in these types; from the first block with something else on, as bytes."""
    n_read = 0
    batches = _parsed(table, types, missing_words, None, told)
    while True:
        try:
            with explain_read_errors(let_through=pa.ArrowInvalid):
                batch = next(batches, None)
        except pa.ArrowInvalid:  # what it says quotes the row
            break
        if batch is None:
            return
        n_read += batch.num_rows
        yield batch
    refuse, ragged = ragged is None, RaggedLines() if ragged is None else ragged
    n_passed = 0
    batches = _parsed(table, dict.fromkeys(types, pa.binary()), (), ragged, told)
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


def _parsed(
    table: OpenTable,
    types: dict[str, Any],
    missing_words: Sequence[str],
    ragged: RaggedLines | None,
    told: Callable[[float], None],
) -> Iterator[Any]:
    """Batches of a text file; with `ragged`, lines of another length are put there, and anything goes into bytes."""
    position = {name: f"c{k}" for k, name in enumerate(table.names)}  # names may need trimming or be odd

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
