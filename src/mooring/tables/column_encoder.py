"""One column of a table, encoded as its schema says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.tables.cells import (
    MISSING_VALUE,
    NUMBER,
    as_plain,
    as_text,
    cell_values,
    is_number,
    is_whole,
    missing_numbers,
    read_days,
    widen,
    word_places,
)
from mooring.tables.files import is_utf8
from mooring.tables.problems import (
    MANY_WORDS,
    SENTINELS,
    InvalidCells,
    ProblemKind,
    classify_text,
    find_invalid_numbers,
)
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Vector

_ABSENT, _UNKNOWN, _OTHER_CASE, _CODE, _TRUTH, _SENTINEL = range(-1, -7, -1)  # from the last on, one a sentinel
_UNKNOWN_KINDS = {
    _UNKNOWN: ProblemKind.UNKNOWN_CATEGORY,
    _OTHER_CASE: ProblemKind.LETTER_CASE,
    _CODE: ProblemKind.CODE,
    _TRUTH: ProblemKind.TRUTH_VALUE,
}


def encode_column(
    column: Column, found: Sequence[Any], missing_words: frozenset[str], rows: npt.NDArray[np.float64], values: Vector
) -> list[InvalidCells]:
    """Encode a column into `rows` and `values`.

    Parameters
    ----------
    found : sequence of pyarrow.Array
        What stands in the table, piece after piece.
    rows : array of shape (n, number of features of the column)
        Is written to.
    values : array of shape (n,)
        Is written to: see `mooring.tables.encoder.EncodedRows`.

    Returns
    -------
    list of InvalidCells
        Empty where everything fits; else what was written is of no use.
    """
    if column.kind == "category":
        return _encode_category(column, found, missing_words, rows, values)
    return _encode_number(column, found, missing_words, rows, values)


def decode_cells(column: Column, cells: Matrix) -> list[str]:
    """Words for encoded cells of a column: the nearest value that it can have, numbers to a hundredth of their range.

    Parameters
    ----------
    cells : array of shape (n, number of features of the column)
        As `encode_column` writes them, or as an attack rebuilds them.
    """
    k = len(column.categories)
    missing = cells[:, -1] > 0.5 if column.missing == "indicate" else np.zeros(len(cells), dtype=bool)
    if column.kind == "category":
        if column.missing == "fill" and column.fill is None:
            missing = cells.max(axis=1) < 0.5
        words = [column.categories[place] for place in cells[:, :k].argmax(axis=1)] if k else ["there"] * len(cells)
    else:
        numbers = column.centre + column.spread * cells[:, 0]
        numbers = numbers if column.inferred else numbers.clip(column.low, column.high)
        digits = 0 if column.kind in ("integer", "age") else max(0, math.ceil(-math.log10(column.spread / 50)))
        words = [f"{round(number, digits) + 0.0:.{digits}f}" for number in numbers.tolist()]
        if column.kind == "date":
            words = [str(np.datetime64(column.day) + np.timedelta64(round(number), "D")) for number in numbers.tolist()]
    return ["missing" if blank else word for blank, word in zip(missing, words, strict=True)]


def encode_plain(schema: Schema, batch: Sequence[Mapping[str, Any]], rows: Matrix, values: Matrix) -> set[int]:
    """Encode columns of floats that all are there and fit, those that stand side by side at once; returns which.

    Parameters
    ----------
    batch : sequence of mapping
        Arrow arrays by the name of their column, piece after piece.
    rows, values : arrays of shape (n, number of features), (n, number of columns)
        Are written to, as by `encode_column`.
    """

    def is_plain(column: Column) -> bool:
        if column.kind != "number" or column.missing == "indicate" or column.missing_words:
            return False
        cells = [part[column.name] for part in batch]
        return all(one.null_count == 0 and one.type in (pa.float32(), pa.float64()) for one in cells)

    done, first, at = set[int](), 0, 0
    for plain, run in groupby(() if missing_numbers(schema.all_missing_words) else schema.columns, is_plain):
        columns = list(run)
        which, start = range(first, first := first + len(columns)), 0
        scaled = rows[:, at : (at := at + sum(column.width for column in columns))]
        if not plain:
            continue
        own = values[:, which.start : which.stop]
        for part in batch:
            for k, column in enumerate(columns):
                numbers = part[column.name].to_numpy()
                own[start : start + numbers.size, k] = widen(numbers) if numbers.dtype == np.float32 else numbers
            start += numbers.size
        own += 0.0  # no negative zero: it would be another record
        low, high, centre, spread = np.array([(c.low, c.high, c.centre, c.spread) for c in columns]).T
        if (own.min(axis=0) >= low).all() and (own.max(axis=0) <= high).all():
            np.subtract(own, centre, out=scaled)
            scaled /= spread
            done.update(which)
    return done


def read_cells(name: str, found: Sequence[Any], values: Vector) -> list[InvalidCells]:
    """Write to `values` what tells the cells of a column apart, whatever they hold: see `cell_value`.

    Parameters
    ----------
    values : array of shape (n,)

    Returns
    -------
    list of InvalidCells
        Those that are not UTF-8.
    """
    column, start, invalid = Column(name, "category", categories=("",), inferred=True), 0, []
    for chunk in found:
        broken = _codes_of(column, chunk, frozenset(), values[start : start + len(chunk)])[1]
        invalid += _at(start, broken)
        start += len(chunk)
    return invalid


def _encode_number(
    column: Column, found: Sequence[Any], missing_words: frozenset[str], rows: npt.NDArray[np.float64], values: Vector
) -> list[InvalidCells]:
    n, start = values.shape[0], 0
    invalid: list[InvalidCells] = []
    numbers = np.empty(n)
    for chunk in found:
        end = start + len(chunk)
        numbers[start:end], wrong = _numbers_of(column, chunk, missing_words, values[start:end])
        invalid += _at(start, wrong)
        start = end
    numbers += 0.0  # no negative zero: it would be another record
    for number in () if column.is_date else missing_numbers(missing_words):
        numbers[numbers == number] = np.nan
    low, high = column.low, column.high
    lowest, highest = numbers.min(), numbers.max()
    missing = None
    is_inside = bool(low <= lowest and highest <= high)  # not so if one is missing
    if invalid or not is_inside or (column.kind == "integer" and not is_whole(numbers)):
        missing = np.isnan(numbers)
        invalid += find_invalid_numbers(column, numbers, missing, invalid)
        if invalid:
            return invalid
    scaled = rows[:, 0]
    np.subtract(numbers, column.centre, out=scaled)
    scaled /= column.spread
    if not is_inside and not column.inferred:  # missing ones, or ones to be clipped
        np.clip(scaled, -1.0, 1.0, out=scaled)
    if missing is not None and missing.any():
        fill = column.centre if column.fill is None else float(column.fill)
        scaled[missing] = (fill - column.centre) / column.spread
    if column.missing == "indicate":
        rows[:, 1] = 0.0 if missing is None else missing
    return []


def _at(start: int, invalid: Sequence[InvalidCells]) -> list[InvalidCells]:
    """The same cells, counted from further up."""
    return [InvalidCells(cells.kind, cells.rows + start, cells.value) for cells in invalid]


def _numbers_of(
    column: Column, chunk: Any, missing_words: frozenset[str], values: Vector
) -> tuple[Vector, list[InvalidCells]]:
    """Numbers, NaN where missing, and which cells are none; `values` is written to."""
    chunk = as_plain(chunk)
    kind = chunk.type
    if pa.types.is_null(kind):
        values[:] = MISSING_VALUE
        return np.full(len(chunk), np.nan), []
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        numbers = chunk.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        np.add(numbers, 0.0, out=values)  # no negative zero: it would be another record
        values[np.isnan(values)] = MISSING_VALUE
        present = np.flatnonzero(~np.isnan(numbers)) if column.is_date else np.zeros(0, np.int64)
        return numbers, [InvalidCells(ProblemKind.NOT_A_DATE, present)] if present.size else []
    words, invalid = _words_of(chunk)
    if pa.types.is_dictionary(words.type):
        return _numbers_of_dictionary(column, words, missing_words, values)
    values[:] = cell_values(words)
    words = pc.utf8_trim_whitespace(words)
    absent = pa.array(sorted(missing_words), words.type)
    named = pc.is_in(words, absent)
    if column.is_date:  # a day that stands for a missing one may come with the time of day
        has_time = pc.match_substring_regex(words, r"^\d{4}-\d{2}-\d{2}[ T]")
        named = pc.or_(named, pc.and_(has_time, pc.is_in(pc.utf8_slice_codeunits(words, 0, 10), absent)))
    present = pc.and_(pc.is_valid(words), pc.invert(named))
    if column.is_date:
        days = read_days(pc.if_else(present, words, None))
        readable, numbers = pa.array(~np.isnan(days)), column.number_of(days)
    else:
        readable = pc.match_substring_regex(words, NUMBER)
        found = pc.cast(pc.if_else(pc.and_(present, readable), words, None), pa.float64())
        numbers = found.to_numpy(zero_copy_only=False)
    wrong = pc.and_(present, pc.invert(readable)).fill_null(False).to_numpy(zero_copy_only=False)
    sorted_out = classify_text(words, wrong, as_dates=column.is_date) if wrong.any() else []
    invalid += [InvalidCells(kind, np.flatnonzero(mask)) for kind, mask in sorted_out if mask.any()]
    return numbers, invalid


def _numbers_of_dictionary(
    column: Column, words: Any, missing_words: frozenset[str], values: Vector
) -> tuple[Vector, list[InvalidCells]]:
    """As `_numbers_of`, each word read once: a long one that stands in every row would fill the memory."""
    n = len(words.dictionary)
    own = np.full(n + 1, MISSING_VALUE)
    numbers, wrong = _numbers_of(column, words.dictionary, missing_words, own[:n])
    places = word_places(words)
    values[:] = own.take(places)
    invalid = [InvalidCells(cells.kind, np.flatnonzero(np.isin(places, cells.rows))) for cells in wrong]
    return np.append(numbers, np.nan).take(places), [cells for cells in invalid if cells.rows.size]


def _encode_category(
    column: Column, found: Sequence[Any], missing_words: frozenset[str], rows: npt.NDArray[np.float64], values: Vector
) -> list[InvalidCells]:
    codes = np.empty(values.shape[0], dtype=np.int32)
    start, n_unknown = 0, 0
    invalid: list[InvalidCells] = []
    for chunk in found:
        end = start + len(chunk)
        codes[start:end], broken, n_words = _codes_of(column, chunk, missing_words, values[start:end])
        invalid += _at(start, broken)
        n_unknown = max(n_unknown, n_words)
        start = end
    missing = codes == _ABSENT
    for cells in invalid:
        missing[cells.rows] = False
    kinds = {} if column.inferred else dict(_UNKNOWN_KINDS)
    if kinds and n_unknown > MANY_WORDS:
        kinds[_UNKNOWN] = ProblemKind.FREE_TEXT
    masks = [(kind, codes == code, "") for code, kind in kinds.items()] if codes.min() < _ABSENT else []
    if masks and codes.min() <= _SENTINEL:
        masks += [(ProblemKind.SENTINEL, codes == _SENTINEL - k, f"{one:g}") for k, one in enumerate(SENTINELS)]
    masks += [(ProblemKind.MISSING, missing, "")] if column.missing == "refuse" else []
    invalid += [InvalidCells(kind, np.flatnonzero(mask), value) for kind, mask, value in masks if mask.any()]
    if invalid:
        return invalid
    if column.fill is not None:
        codes[missing] = column.categories.index(str(column.fill))
    width = len(column.categories)
    for k in range(width):
        rows[:, k] = codes == k
    if column.missing == "indicate":
        rows[:, width] = missing
    return []


def _codes_of(
    column: Column, chunk: Any, missing_words: frozenset[str], values: Vector
) -> tuple[npt.NDArray[np.int32], list[InvalidCells], int]:
    """Positions among the categories, cells that are no text, and how many words are unknown; `values` is written to."""
    chunk = as_plain(chunk)
    if pa.types.is_null(chunk.type):
        values[:] = MISSING_VALUE
        return np.full(len(chunk), _ABSENT, dtype=np.int32), [], 0
    numeric = pa.types.is_floating(chunk.type) or pa.types.is_integer(chunk.type) or pa.types.is_boolean(chunk.type)
    words, broken = (chunk, []) if numeric else _words_of(chunk)
    words = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
    values[:] = cell_values(words)
    code_of = _reader_of(column.categories, missing_words)
    table = np.array([*(code_of(as_text(word)) for word in words.dictionary.to_pylist()), _ABSENT], dtype=np.int32)
    return table.take(word_places(words)), broken, int(np.count_nonzero(table < _ABSENT))


def _words_of(chunk: Any) -> tuple[Any, list[InvalidCells]]:
    """A chunk as text, and the rows where it is not UTF-8, which are null."""
    kind = chunk.type
    if not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        return (pc.cast(chunk, pa.string()) if pa.types.is_boolean(kind) else chunk), []
    text = pa.large_string() if pa.types.is_large_binary(kind) else pa.string()
    try:
        return pc.cast(chunk, text), []
    except pa.ArrowInvalid:  # what it says quotes the value
        fine = [value is None or is_utf8(value) for value in chunk.to_pylist()]
    broken = np.flatnonzero(~np.array(fine))
    return pc.cast(pc.if_else(pa.array(fine), chunk, None), text), [InvalidCells(ProblemKind.ENCODING, broken)]


@lru_cache(maxsize=4096)
def _reader_of(categories: tuple[str, ...], missing_words: frozenset[str]) -> Any:
    """A function from a word to its position among the categories.

    Files write one category in several ways: "1", "1.0", "True". What is declared goes before what is usual, so a
    category may be called "NA".
    """
    exact = {word.strip(): k for k, word in reversed(list(enumerate(categories)))}
    truths = {word.lower(): k for word, k in exact.items() if word.lower() in ("true", "false")}
    numbers = {float(word): k for word, k in exact.items() if is_number(word)}
    absent = set(missing_numbers(missing_words))
    folded = {word.casefold() for word in exact}

    def code_of(word: str | None) -> int:
        word = "" if word is None else word.strip()
        if word in exact:
            return exact[word]
        if word in missing_words:
            return _ABSENT
        if word.lower() in truths:
            return truths[word.lower()]
        if is_number(word):
            number = float(word)
            if number in SENTINELS and not 0 <= number < 9:  # 0 and 1 are codes
                unknown = _SENTINEL - SENTINELS.index(number)
            else:
                unknown = _UNKNOWN if numbers else _CODE
            return numbers.get(number, _ABSENT if number in absent else unknown)
        unknown = _TRUTH if word.casefold() in ("true", "false") else _UNKNOWN
        return _OTHER_CASE if word.casefold() in folded else unknown

    return code_of
