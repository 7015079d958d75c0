"""One column of a table, encoded as its schema says."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.errors import InputError
from mooring.tables.files import is_utf8
from mooring.tables.schema import MISSING_WORDS, Column
from mooring.typing import Vector

MISSING_VALUE = -(2.0**1000)
"""Stands for what is missing in a record's fingerprint: finite, and no number that anybody declares."""
_USUAL_MISSING = frozenset(word.casefold() for word in MISSING_WORDS)
_FINITE = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
_NUMBER = rf"^({_FINITE}|[+-]?(?i:nan|inf|infinity))$"
_ABSENT, _UNKNOWN = -1, -2
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class InvalidValue:
    """The first row of a batch that does not fit, and what is wrong with it."""

    row: int
    trouble: str

    def error(self, row: int, column: Column, *, is_label: bool) -> InputError:
        """The refusal, with the row's number in the file and without its value."""
        if column.kind == "category":
            what = "class" if is_label else "category"
            expected = f"a {what} that the study declares"
        else:
            kind = "whole number" if column.kind == "integer" else "number"
            expected = f"a {kind} from {column.low:g} to {column.high:g}"
        cures = {
            "nothing": 'Fill it in, or declare missing = "fill" or "indicate" for the column.',
            "one outside": 'Correct it or the declared range, or declare outside = "clip" for the column.',
            "text that is not UTF-8": "Save the table again, in UTF-8.",
        }
        cure = "Correct the row, or leave it out." if is_label else cures.get(self.trouble, "Correct it, or the study.")
        return InputError(f"row {row}, column {column.name!r}", expected=expected, got=self.trouble, cure=cure)


def encode_column(
    column: Column, found: Sequence[Any], missing_words: frozenset[str], rows: npt.NDArray[np.float64], values: Vector
) -> InvalidValue | None:
    """Encode a column into `rows` and `values`.

    Parameters
    ----------
    column : Column
    found : sequence of pyarrow.Array
        What stands in the table, piece after piece.
    missing_words : frozenset of str
    rows : array of shape (n, number of features of the column)
        Is written to.
    values : array of shape (n,)
        Is written to: see `mooring.tables.encoder.EncodedRows`.

    Returns
    -------
    InvalidValue or None
    """
    if column.kind == "category":
        return _encode_category(column, found, missing_words, rows, values)
    return _encode_number(column, found, missing_words, rows, values)


def encode_numbers(
    columns: Sequence[Column],
    batch: Sequence[Any],
    missing_words: frozenset[str],
    rows: npt.NDArray[np.float64],
    values: npt.NDArray[np.float64],
) -> bool:
    """Encode a table of plain numbers all at once, if that is what it is and all of them fit; else say so.

    What does not fit, or may be missing, is for `encode_column`, which goes column by column and knows what to say.
    """
    plain = all(column.kind == "number" and column.missing != "indicate" for column in columns)
    if not plain or missing_numbers(missing_words):
        return False
    block, start = values[:, : len(columns)], 0
    for part in batch:
        for k, column in enumerate(columns):
            chunk = part.column(column.name)
            if not pa.types.is_floating(chunk.type) or chunk.null_count:
                return False
            block[start : start + len(chunk), k] = chunk.to_numpy(zero_copy_only=False)
        start += part.num_rows
    block += 0.0  # no negative zero: it would be another record
    low, high, centre, spread = np.array([(c.low, c.high, c.centre, c.spread) for c in columns]).T
    if not ((block.min(axis=0) >= low).all() and (block.max(axis=0) <= high).all()):
        return False
    np.subtract(block, centre, out=rows)
    np.divide(rows, spread, out=rows)
    return True


def read_cells(name: str, found: Sequence[Any], values: Vector) -> InvalidValue | None:
    """Write to `values` what tells the cells of a column apart, whatever they hold: see `cell_value`.

    Parameters
    ----------
    name : str
    found : sequence of pyarrow.Array
    values : array of shape (n,)
    """
    column, start = Column(name, "category", categories=("",), inferred=True), 0
    for chunk in found:
        own = _codes_of(column, chunk, frozenset(), values[start : start + len(chunk)])
        if isinstance(own, InvalidValue):
            return InvalidValue(start + own.row, own.trouble)
        start += len(chunk)
    return None


def cell_value(text: str | None) -> float:
    """The number that a cell has in a record's fingerprint, before any kind, category or missing word is declared.

    A number is itself however it is written; other text is a hash of its trimmed, case-folded form.

    Examples
    --------
    >>> cell_value("1.00") == cell_value(" 1") == 1.0, cell_value("Yes") == cell_value("yes "), cell_value("NA")
    (True, True, -1.0715086071862673e+301)
    """
    word = "" if text is None else text.strip().casefold()
    if word in _USUAL_MISSING:
        return MISSING_VALUE
    if is_number(word) and math.isfinite(number := float(word)):
        return number + 0.0  # no negative zero: it would be another record
    return float(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) >> 12)


def _encode_number(
    column: Column, found: Sequence[Any], missing_words: frozenset[str], rows: npt.NDArray[np.float64], values: Vector
) -> InvalidValue | None:
    n, start, bad = values.shape[0], 0, None
    numbers = np.empty(n)
    for chunk in found:
        end = start + len(chunk)
        own, wrong = _numbers_of(column, chunk, missing_words, values[start:end])
        numbers[start:end] = own
        if isinstance(wrong, InvalidValue):
            return InvalidValue(start + wrong.row, wrong.trouble)
        if wrong is not None:
            bad = np.zeros(n, dtype=np.bool_) if bad is None else bad
            bad[start:end] = wrong
        start = end
    numbers += 0.0  # no negative zero: it would be another record
    for number in missing_numbers(missing_words):
        numbers[numbers == number] = np.nan
    low, high = column.low, column.high
    lowest, highest = numbers.min(), numbers.max()
    missing = None
    if bad is not None or not (low <= lowest and highest <= high) or column.kind == "integer":
        missing = np.isnan(numbers)
        offence = _first_offence(column, numbers, missing, bad)
        if offence is not None:
            return offence
    scaled = rows[:, 0]
    np.subtract(numbers, column.centre, out=scaled)
    scaled /= column.spread
    if not (low <= lowest and highest <= high) and not column.inferred:  # missing ones, or ones to be clipped
        np.clip(scaled, -1.0, 1.0, out=scaled)
    if missing is not None and missing.any():
        fill = column.centre if column.fill is None else float(column.fill)
        scaled[missing] = (fill - column.centre) / column.spread
    if column.missing == "indicate":
        rows[:, 1] = 0.0 if missing is None else missing
    return None


def _first_offence(column: Column, values: Vector, missing: Mask, bad: Mask | None) -> InvalidValue | None:
    nothing = np.zeros_like(missing)
    bad = nothing if bad is None else bad
    with np.errstate(invalid="ignore"):
        troubles = (
            ("something else", bad),
            ("nothing", missing & ~bad if column.missing == "refuse" else nothing),
            ("an infinite one", np.isinf(values)),
            ("one that is not whole", (values != np.rint(values)) & ~missing if column.kind == "integer" else nothing),
            ("one outside", (values < column.low) | (values > column.high) if column.outside == "refuse" else nothing),
        )
    firsts = [(int(mask.argmax()), k) for k, (_, mask) in enumerate(troubles) if mask.any()]
    if not firsts:
        return None
    row, k = min(firsts)
    return InvalidValue(row, troubles[k][0])


def _numbers_of(
    column: Column, chunk: Any, missing_words: frozenset[str], values: Vector
) -> tuple[Vector, Mask | InvalidValue | None]:
    """Numbers, NaN where missing, and which are none; `values` is written to."""
    chunk = _plain(chunk)
    kind = chunk.type
    if pa.types.is_null(kind):
        values[:] = MISSING_VALUE
        return np.full(len(chunk), np.nan), None
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        numbers = chunk.to_numpy(zero_copy_only=False).astype(np.float64, copy=False)
        np.add(numbers, 0.0, out=values)  # no negative zero: it would be another record
        values[np.isnan(values)] = MISSING_VALUE
        return numbers, None
    words = _words_of(column, chunk)
    if isinstance(words, InvalidValue):
        return np.full(len(chunk), np.nan), words
    if pa.types.is_dictionary(words.type):
        return _numbers_of_dictionary(column, words, missing_words, values)
    values[:] = _cell_values(words)
    words = pc.utf8_trim_whitespace(words)
    present = pc.and_(pc.is_valid(words), pc.invert(pc.is_in(words, pa.array(sorted(missing_words), words.type))))
    readable = pc.match_substring_regex(words, _NUMBER)
    found = pc.cast(pc.if_else(pc.and_(present, readable), words, None), pa.float64())
    wrong = pc.and_(present, pc.invert(readable)).fill_null(False).to_numpy(zero_copy_only=False)
    return found.to_numpy(zero_copy_only=False), wrong if wrong.any() else None


def _numbers_of_dictionary(
    column: Column, words: Any, missing_words: frozenset[str], values: Vector
) -> tuple[Vector, Mask | InvalidValue | None]:
    """As `_numbers_of`, each word read once: a long one that stands in every row would fill the memory."""
    n = len(words.dictionary)
    own = np.full(n + 1, MISSING_VALUE)
    numbers, wrong = _numbers_of(column, words.dictionary, missing_words, own[:n])
    places = words.indices.fill_null(n).to_numpy(zero_copy_only=False)
    values[:] = own[places]
    if isinstance(wrong, InvalidValue):
        return np.full(len(words), np.nan), InvalidValue(int((places == wrong.row).argmax()), wrong.trouble)
    bad = None if wrong is None else np.append(wrong, False)[places]
    return np.append(numbers, np.nan)[places], bad if bad is not None and bad.any() else None


def _cell_values(words: Any) -> Vector:
    """What each cell has in a record's fingerprint: `cell_value`, of every distinct word that is no number."""
    if not pa.types.is_dictionary(words.type):
        trimmed = pc.utf8_trim_whitespace(words)
        readable = pc.match_substring_regex(trimmed, f"^({_FINITE})$").fill_null(False)
        values = pc.cast(pc.if_else(readable, trimmed, None), pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        others = ~np.isfinite(values)
        values[others] = _cell_values(words.filter(pa.array(others)).dictionary_encode()) if others.any() else 0.0
        return np.asarray(values)
    table = np.array([*(cell_value(as_text(word)) for word in words.dictionary.to_pylist()), MISSING_VALUE])
    return np.asarray(table[words.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)])


def _encode_category(
    column: Column, found: Sequence[Any], missing_words: frozenset[str], rows: npt.NDArray[np.float64], values: Vector
) -> InvalidValue | None:
    codes = np.empty(values.shape[0], dtype=np.int64)
    start = 0
    for chunk in found:
        end = start + len(chunk)
        own = _codes_of(column, chunk, missing_words, values[start:end])
        if isinstance(own, InvalidValue):
            return InvalidValue(start + own.row, own.trouble)
        codes[start:end] = own
        start = end
    missing = codes == _ABSENT
    wrong = (codes == _UNKNOWN) & (not column.inferred)
    if column.missing == "refuse":
        wrong |= missing
    if wrong.any():
        row = int(wrong.argmax())
        return InvalidValue(row, "nothing" if missing[row] else "something else")
    if column.fill is not None:
        codes[missing] = column.categories.index(str(column.fill))
    width = len(column.categories)
    for k in range(width):
        rows[:, k] = codes == k
    if column.missing == "indicate":
        rows[:, width] = missing
    return None


def _codes_of(
    column: Column, chunk: Any, missing_words: frozenset[str], values: Vector
) -> npt.NDArray[np.int64] | InvalidValue:
    """Positions among the categories; `values` is written to."""
    chunk = _plain(chunk)
    if pa.types.is_null(chunk.type):
        values[:] = MISSING_VALUE
        return np.full(len(chunk), _ABSENT, dtype=np.int64)
    numeric = pa.types.is_floating(chunk.type) or pa.types.is_integer(chunk.type) or pa.types.is_boolean(chunk.type)
    words = chunk if numeric else _words_of(column, chunk)
    if isinstance(words, InvalidValue):
        return words
    words = words if pa.types.is_dictionary(words.type) else words.dictionary_encode()
    values[:] = _cell_values(words)
    code_of = _reader_of(column.categories, missing_words)
    table = np.array([*(code_of(as_text(word)) for word in words.dictionary.to_pylist()), _ABSENT], dtype=np.int64)
    return np.asarray(table[words.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)])


def _plain(chunk: Any) -> Any:
    """The same values in one of few types: numbers, truths, text, dictionaries of text, bytes."""
    kind = chunk.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        chunk = chunk.dictionary_decode()
    if pa.types.is_decimal(chunk.type):  # through text, which is rounded as any other: the direct cast is not
        return pc.cast(pc.cast(chunk, pa.string()), pa.float64())
    if pa.types.is_float16(chunk.type):
        return pc.cast(chunk, pa.float64())
    return pc.cast(chunk, pa.string()) if chunk.type == pa.string_view() else chunk


def _words_of(column: Column, chunk: Any) -> Any:
    """A chunk as text; in a file that is not UTF-8, the first row where it is not."""
    kind = chunk.type
    if pa.types.is_dictionary(kind):
        return chunk
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return chunk
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return pc.cast(chunk, pa.large_string() if pa.types.is_large_binary(kind) else pa.string())
        except pa.ArrowInvalid:  # what it says quotes the value
            broken = [value is not None and not is_utf8(value) for value in chunk.to_pylist()]
            return InvalidValue(broken.index(True), "text that is not UTF-8")
    raise _unreadable(column.name, kind)


def require_readable(name: str, kind: Any) -> None:
    """Refuse a column of lists, of tables or of blocks of bytes, which are not read: they may be of any size."""
    if pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind):
        raise _unreadable(name, kind)


def _unreadable(name: str, kind: Any) -> InputError:
    return InputError(
        f"column {name!r}",
        expected="made of numbers or words",
        got=f"values of type {str(kind).partition('<')[0]}",  # without names of fields
        cure="Write the column in another form, or declare truths as a category.",
    )


def as_text(value: Any) -> str | None:
    """A value as the word of a category: a whole number without a decimal point, None for what is missing."""
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


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
            return numbers.get(number, _ABSENT if number in absent else _UNKNOWN)
        return _UNKNOWN

    return code_of


@lru_cache(maxsize=64)
def missing_numbers(missing_words: frozenset[str]) -> tuple[float, ...]:
    """Numbers that stand for a missing value, however they are written."""
    return tuple(sorted({float(word) for word in missing_words if is_number(word)}))


def is_number(word: str) -> bool:
    """Whether a word is a finite number."""
    return re.fullmatch(_FINITE, word) is not None
