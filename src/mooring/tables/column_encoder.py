"""The encoding of one column of a table, as its schema says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mooring.tables.cells import (
    MISSING_VALUE,
    NUMBER,
    as_plain,
    cell_values,
    distinct_words,
    is_number,
    is_whole,
    missing_numbers,
    read_days,
    widen,
)
from mooring.tables.problems import (
    MANY_WORDS,
    SENTINELS,
    InvalidCells,
    Mask,
    ProblemKind,
    classify_text,
    find_invalid_numbers,
)
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Vector

_ABSENT, _UNKNOWN, _OTHER_CASE, _CODE, _TRUTH, _SENTINEL = range(-1, -7, -1)  # −6 and below: one for each sentinel
_UNKNOWN_KINDS = {
    _UNKNOWN: ProblemKind.UNKNOWN_CATEGORY,
    _OTHER_CASE: ProblemKind.LETTER_CASE,
    _CODE: ProblemKind.CODE,
    _TRUTH: ProblemKind.TRUTH_VALUE,
}


def encode_column(
    column: Column, cells: Any, missing_words: frozenset[str], rows: Matrix, values: Vector
) -> list[InvalidCells]:
    """Encode the cells of a column, a pyarrow column, into `rows`, a matrix of `coded_width` columns.

    A category becomes the index of its word. A missing category becomes −1, or the index of the word that fills it. The
    cells' numbers in the fingerprints of records are written to `values`. Returns the cells that do not fit; if there are
    such cells, `rows` must not be used.
    """
    if column.kind == "category":
        return _encode_category(column, cells, missing_words, rows, values)
    return _encode_number(column, cells, missing_words, rows, values)


def coded_width(column: Column) -> int:
    """Return how many entries a column has in coded rows: the index of a category is one number."""
    return 1 if column.kind == "category" else column.width


def spread_categories(schema: Schema, coded: Matrix) -> Matrix:
    """Return coded rows with a feature of zeros and ones per category of each categorical column.

    If such a column marks missing cells, a further feature does so. The result is stored column by column.
    """
    if all(column.kind != "category" for column in schema.columns):
        return coded
    rows, at, start = np.empty((len(coded), schema.n_features), order="F"), 0, 0
    for column in schema.columns:
        features, cells = rows[:, at : at + column.width], coded[:, start : start + coded_width(column)]
        at, start = at + column.width, start + coded_width(column)
        if column.kind != "category":
            features[:] = cells
            continue
        codes, n_words = cells[:, 0].astype(np.int32), len(column.categories)
        for k in range(n_words):
            features[:, k] = codes == k
        if column.missing == "indicate":
            features[:, n_words] = codes < 0
    return rows


def decode_cells(column: Column, cells: Matrix) -> list[str]:
    """Return words for the encoded cells of a column, which `spread_categories` returned or an attack rebuilt.

    Each word is the nearest value that the column can have, or "missing". Numbers are rounded to a hundredth of the range
    (of two standard deviations, if the column was inferred) or finer. Integers and ages are rounded to whole numbers, dates
    to days. A column that only marks missing cells has the words "missing" and "there".
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


def encode_plain(schema: Schema, cells: Mapping[str, Any], rows: Matrix, values: Matrix) -> set[int]:
    """Encode columns of floats that are complete and in range, neighbouring columns in one step; return their indices.

    `cells` are pyarrow columns by name. Results are written to `rows`, which are coded rows, and to `values`, which has a
    column for each column of the schema. Columns with missing words, or with a feature for missing cells, are not encoded.
    """

    def is_plain(column: Column) -> bool:
        if column.kind != "number" or column.missing == "indicate" or column.missing_words:
            return False
        stored = cells[column.name]
        return bool(stored.null_count == 0 and stored.type in (pa.float32(), pa.float64()))

    done, first, at = set[int](), 0, 0
    for plain, run in groupby(() if missing_numbers(schema.all_missing_words) else schema.columns, is_plain):
        columns = list(run)
        which = range(first, first := first + len(columns))
        scaled = rows[:, at : (at := at + sum(map(coded_width, columns)))]
        if not plain:
            continue
        numbers = values[:, which.start : which.stop]
        for k, column in enumerate(columns):
            chunks = [chunk.to_numpy() for chunk in cells[column.name].chunks]
            wide = [widen(chunk) if chunk.dtype == np.float32 else chunk for chunk in chunks]
            np.concatenate(wide, out=numbers[:, k])
        numbers += 0.0  # turns -0.0 into 0.0, since they must be the same record
        low, high, centre, spread = np.array([(c.low, c.high, c.centre, c.spread) for c in columns]).T
        if (numbers.min(axis=0) >= low).all() and (numbers.max(axis=0) <= high).all():
            np.subtract(numbers, centre, out=scaled)
            scaled /= spread
            done.update(which)
    return done


def _encode_number(
    column: Column, cells: Any, missing_words: frozenset[str], rows: Matrix, values: Vector
) -> list[InvalidCells]:
    numbers, invalid = _read_numbers(column, cells, missing_words, values)
    numbers = numbers + 0.0  # turns -0.0 into 0.0, since they must be the same record
    for number in () if column.is_date else missing_numbers(missing_words):
        numbers[numbers == number] = np.nan
    low, high = column.low, column.high
    lowest, highest = numbers.min(), numbers.max()
    missing = None
    is_inside = bool(low <= lowest and highest <= high)  # False if a cell is missing
    if invalid or not is_inside or (column.kind == "integer" and not is_whole(numbers)):
        missing = np.isnan(numbers)
        invalid += find_invalid_numbers(column, numbers, missing, invalid)
        if invalid:
            return invalid
    scaled = rows[:, 0]
    np.subtract(numbers, column.centre, out=scaled)
    scaled /= column.spread
    if not is_inside and not column.inferred:  # some are missing, or must be clipped
        np.clip(scaled, -1.0, 1.0, out=scaled)
    if missing is not None and missing.any():
        fill = column.centre if column.fill is None else float(column.fill)
        scaled[missing] = (fill - column.centre) / column.spread
    if column.missing == "indicate":
        rows[:, 1] = 0.0 if missing is None else missing
    return []


def _read_numbers(
    column: Column, cells: Any, missing_words: frozenset[str], values: Vector
) -> tuple[Vector, list[InvalidCells]]:
    """Return the numbers of cells, NaN where missing, and the cells that are not numbers; write fingerprints to `values`."""
    cells = as_plain(cells)
    if pa.types.is_floating(cells.type) or pa.types.is_integer(cells.type):
        numbers = cells.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        np.add(numbers, 0.0, out=values)  # turns -0.0 into 0.0, since they must be the same record
        values[~np.isfinite(values)] = MISSING_VALUE  # as `cell_value` has them
        present = np.flatnonzero(~np.isnan(numbers)) if column.is_date else np.zeros(0, np.int64)
        return numbers, [InvalidCells(ProblemKind.NOT_A_DATE, present)] if present.size else []
    words = distinct_words(cells)
    values[:] = words.spread(cell_values(words.text), MISSING_VALUE)
    numbers, wrong = _numbers_of_words(column, words.text, missing_words)
    invalid = [InvalidCells(ProblemKind.ENCODING, words.not_utf8)] if words.not_utf8.size else []
    for kind, mask in wrong:
        rows = np.flatnonzero(words.spread(mask, False))
        invalid += [InvalidCells(kind, rows)] if rows.size else []
    return words.spread(numbers, np.nan), invalid


def _numbers_of_words(
    column: Column, text: Any, missing_words: frozenset[str]
) -> tuple[Vector, list[tuple[ProblemKind, Mask]]]:
    """Return the number of each word, NaN where it is wrong or missing, and a mask of the wrong words of each kind."""
    text = pc.utf8_trim_whitespace(text)
    absent = pa.array(sorted(missing_words), text.type)
    stands_for_missing = pc.is_in(text, absent)
    if column.is_date:  # a day that stands for a missing one may come with the time of day
        has_time = pc.match_substring_regex(text, r"^\d{4}-\d{2}-\d{2}[ T]")
        is_absent_day = pc.is_in(pc.utf8_slice_codeunits(text, 0, 10), absent)
        stands_for_missing = pc.or_(stands_for_missing, pc.and_(has_time, is_absent_day))
    present = pc.and_(pc.is_valid(text), pc.invert(stands_for_missing))
    if column.is_date:
        days = read_days(pc.if_else(present, text, None))
        readable, numbers = pa.array(~np.isnan(days)), column.number_of(days)
    else:
        readable = pc.match_substring_regex(text, NUMBER)
        cast = pc.cast(pc.if_else(pc.and_(present, readable), text, None), pa.float64())
        numbers = cast.to_numpy(zero_copy_only=False)
    wrong = pc.and_(present, pc.invert(readable)).fill_null(False).to_numpy(zero_copy_only=False)
    return numbers, classify_text(text, wrong, as_dates=column.is_date) if wrong.any() else []


def _encode_category(
    column: Column, cells: Any, missing_words: frozenset[str], rows: Matrix, values: Vector
) -> list[InvalidCells]:
    words = distinct_words(cells)
    values[:] = words.spread(cell_values(words.text), MISSING_VALUE)
    code_of = _code_reader(column.categories, missing_words)
    word_codes = np.array([code_of(word) for word in words.text.to_pylist()], dtype=np.int32)
    codes = words.spread(word_codes, _ABSENT)
    missing = codes == _ABSENT
    missing[words.not_utf8] = False
    kinds = {} if column.inferred else dict(_UNKNOWN_KINDS)
    if kinds and np.count_nonzero(word_codes < _ABSENT) > MANY_WORDS:
        kinds[_UNKNOWN] = ProblemKind.FREE_TEXT
    masks = [(kind, codes == code, "") for code, kind in kinds.items()] if codes.min() < _ABSENT else []
    if masks and codes.min() <= _SENTINEL:
        masks += [
            (ProblemKind.SENTINEL, codes == _SENTINEL - k, f"{sentinel:g}") for k, sentinel in enumerate(SENTINELS)
        ]
    masks += [(ProblemKind.MISSING, missing, "")] if column.missing == "refuse" else []
    invalid = [InvalidCells(ProblemKind.ENCODING, words.not_utf8)] if words.not_utf8.size else []
    invalid += [InvalidCells(kind, np.flatnonzero(mask), value) for kind, mask, value in masks if mask.any()]
    if invalid:
        return invalid
    if column.fill is not None:
        codes[missing] = column.categories.index(str(column.fill))
    rows[:, 0] = codes
    return []


@lru_cache(maxsize=4096)
def _code_reader(categories: tuple[str, ...], missing_words: frozenset[str]) -> Callable[[str | None], int]:
    """Return a function from a word to its position among the categories, or to a negative code if it is none of them.

    Files write one category in several forms, such as "1" and "1.0", or "true" and "True". Declared words take precedence
    over the usual meaning of a word, so a category may be called "NA".
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
