"""Cells of a table: their text, their numbers and days, and the number that each has in a record's fingerprint.

A column is converted word by word: `distinct_words` finds the distinct words, each word is converted once, and every cell
takes the result of its word.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.tables.schema import MISSING_WORDS
from mooring.typing import Vector

Entry = TypeVar("Entry", bound=np.generic)
MISSING_VALUE = -(2.0**1000)
"""The number of a missing cell in a record's fingerprint. It is finite, and far outside every range that is declared."""
FINITE = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""Regular expression of a finite number."""
NUMBER = rf"^({FINITE}|[+-]?(?i:nan|inf|infinity))$"
"""Regular expression of a number, finite or not."""
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}.*)?$"
_MIDNIGHT = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[t ]00:00(?::00(?:\.0+)?)?z?$")
_UTC = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2}[t ][0-9:.]+)\+00:00$")
_NOT_FINITE = re.compile(r"[+-]?(nan(\([0-9a-z_]*\))?|inf|infinity)")  # as the parser of text files reads them
_FEW_WORDS = 32
_USUAL_MISSING = frozenset(word.casefold() for word in MISSING_WORDS)


@dataclass(frozen=True, eq=False, repr=False)
class DistinctWords:
    """The distinct words of a column, and the index of each cell's word."""

    text: Any
    """The words as a pyarrow array of text, null where a word is missing or not UTF-8."""
    values: Any
    """The words as the table holds them: text, bytes, numbers or truth values."""
    places: npt.NDArray[np.integer[Any]]
    """The index of each cell's word; the number of words where the cell is missing."""
    not_utf8: npt.NDArray[np.int64]
    """Rows whose bytes are not UTF-8."""

    def spread(self, converted: npt.NDArray[Entry], missing: Any) -> npt.NDArray[Entry]:
        """Return the converted word of every cell; `missing` where the cell is missing."""
        return np.append(converted, np.array([missing], converted.dtype)).take(self.places)


def distinct_words(cells: Any) -> DistinctWords:
    """Return the distinct words of a pyarrow column of any readable type."""
    coded = encode_distinct(as_plain(cells))
    values, places = coded.dictionary, word_places(coded)
    rows, kind = np.zeros(0, dtype=np.int64), values.type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        as_type = pa.string() if pa.types.is_binary(kind) else pa.large_string()
        try:
            text = pc.cast(values, as_type)
        except pa.ArrowInvalid:  # its message quotes the cell
            fine = np.array([value is None or is_utf8(value) for value in values.to_pylist()])
            rows = np.flatnonzero(~np.append(fine, True).take(places))
            text = pc.cast(pc.if_else(pa.array(fine), values, None), as_type)
    elif holds_words(kind):
        text = values
    else:
        text = pa.array([as_text(value) for value in values.to_pylist()], pa.string())
    return DistinctWords(text, values, places, rows)


def encode_distinct(cells: Any) -> Any:
    """Return a column as one array with a dictionary."""
    coded = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
    if not isinstance(coded, pa.ChunkedArray):
        return coded
    whole = coded.unify_dictionaries().combine_chunks()
    return whole.chunk(0) if isinstance(whole, pa.ChunkedArray) else whole


def word_places(coded: Any) -> npt.NDArray[np.integer[Any]]:
    """Return the index of each cell in its dictionary; it is the length of the dictionary where the cell is missing."""
    places = coded.indices.fill_null(len(coded.dictionary)) if coded.indices.null_count else coded.indices
    return np.asarray(places.to_numpy(zero_copy_only=False))


def cell_value(text: str | None) -> float:
    """Return the number of a cell in a record's fingerprint, whatever kind, category or missing word a study declares.

    A number stands for itself, however it is written. Usual words for a missing value, and numbers that are not finite,
    become `MISSING_VALUE`. Other text is trimmed, case-folded and hashed. A day with the time midnight is the same as the
    day alone.

    Examples
    --------
    >>> cell_value("1.00") == cell_value(" 1") == 1.0, cell_value("Yes") == cell_value("yes "), cell_value("NA")
    (True, True, -1.0715086071862673e+301)
    """
    word = "" if text is None else text.strip().casefold()
    if word in _USUAL_MISSING:
        return MISSING_VALUE
    if is_number(word):
        number = float(word)
        return number + 0.0 if math.isfinite(number) else MISSING_VALUE  # -0.0 and 0.0 must be the same record
    if _NOT_FINITE.fullmatch(word):
        return MISSING_VALUE
    if len(word) > len("2026-01-31"):  # a day must be the same from Parquet, from a spreadsheet and from text
        word = _MIDNIGHT.sub(r"\1", _UTC.sub(r"\1z", word))
    return float(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) >> 12)


_known_cell_value = lru_cache(maxsize=1024)(cell_value)


def cell_values(text: Any) -> Vector:
    """Return the `cell_value` of each entry of a pyarrow array of text."""
    if len(text) <= _FEW_WORDS:  # such as the words of a category, which every batch repeats
        return np.array([_known_cell_value(word) for word in text.to_pylist()], dtype=np.float64)
    trimmed = pc.utf8_trim_whitespace(text)
    readable = pc.match_substring_regex(trimmed, f"^({FINITE})$").fill_null(False)
    values = pc.cast(pc.if_else(readable, trimmed, None), pa.float64()).to_numpy(zero_copy_only=False) + 0.0
    others = np.flatnonzero(~np.isfinite(values))
    values[others] = [cell_value(word) for word in text.take(pa.array(others)).to_pylist()]
    return np.asarray(values)


def as_plain(cells: Any) -> Any:
    """Convert cells to one of a few types: numbers, truth values, text, dictionaries of text, or bytes."""
    kind = cells.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        cells = cells.cast(kind.value_type)
    if pa.types.is_decimal(cells.type):  # through text, to round as in a text file; the direct cast rounds differently
        return pc.cast(pc.cast(cells, pa.string()), pa.float64())
    if pa.types.is_date(cells.type) or pa.types.is_timestamp(cells.type):
        words = pc.replace_substring_regex(pc.cast(cells, pa.string()), r"\.0+(Z|[+-]\d+)?$", r"\1")
        return pc.replace_substring_regex(words, r"([+-]\d\d)(\d\d)$", r"\1:\2")  # as text files write it
    if pa.types.is_float16(cells.type):
        return pa.array(cells.to_numpy(zero_copy_only=False).astype(str).astype(np.float64))
    if pa.types.is_float32(cells.type):
        mask = cells.is_null().to_numpy(zero_copy_only=False) if cells.null_count else None
        return pa.array(widen(cells.to_numpy(zero_copy_only=False)), mask=mask)
    return pc.cast(cells, pa.string()) if cells.type == pa.string_view() else cells


def widen(narrow: npt.NDArray[np.float32]) -> Vector:
    """Convert numbers of 32 bits to the numbers that their text states: to 0.1, for example, and not to 0.10000000149.

    The text is the shortest decimal that rounds to the number. At most one decimal of up to six digits rounds to it. If none
    does, longer decimals are tried, with one digit more each time. Among decimals of the same length, the nearest is taken
    and, if two are equally near, the even one.
    """
    with np.errstate(invalid="ignore"):
        wide = narrow.astype(np.float64)
        largest = float(np.fmax.reduce(np.abs(narrow), initial=1.0))
        if largest < 2**24:
            k = max(0, 5 - math.floor(math.log10(largest)))
            decimals = np.round(wide, k)
            left = np.flatnonzero(decimals.astype(np.float32) != narrow)
        else:  # such numbers are too large for exact rounding to 8 decimals, and are converted through text
            k, decimals, left = 8, wide, np.arange(wide.size)
        while left.size and k < 8:
            k += 1
            decimals[left] = rounded = np.round(wide[left], k)
            left = left[rounded.astype(np.float32) != narrow[left]]
    if left.size:
        text = pc.cast(pa.array(narrow[left]), pa.string())
        decimals[left] = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
    return decimals


def as_text(value: Any) -> str | None:
    """Return a value as the word of a category: whole numbers have no decimal point, a missing value is None."""
    if value is None or value != value:
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value)


def as_texts(cells: Any) -> list[str]:
    """Return cells as text, empty where missing. Whole numbers have no decimal point; invalid UTF-8 is replaced."""
    coded = encode_distinct(as_plain(cells))
    values = (
        value.decode(errors="replace") if isinstance(value, bytes) else value for value in coded.dictionary.to_pylist()
    )
    texts = [*(as_text(value) or "" for value in values), ""]
    return [texts[place] for place in word_places(coded).tolist()]


def holds_words(kind: Any) -> bool:
    """Return whether a type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def describe_type(kind: Any) -> str:
    """Return the name of a type, without names of fields."""
    if isinstance(kind, pa.BaseExtensionType):
        return str(getattr(kind, "type_name", kind.extension_name))
    return str(kind).partition("<")[0]


def is_readable(kind: Any, *, as_date: bool = False) -> bool:
    """Whether a type is one of numbers or words or, with `as_date`, of days; not lists, structs or fixed-size bytes."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if as_date and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return True
    is_other = isinstance(kind, pa.BaseExtensionType) or pa.types.is_fixed_size_binary(kind)
    return not (is_other or pa.types.is_nested(kind) or pa.types.is_temporal(kind))


def read_days(words: Any) -> Vector:
    """Convert text to days since 1970-01-01, NaN where it is not a day of the calendar; the time of day is ignored."""
    readable = pc.match_substring_regex(words, _DATE).fill_null(False)
    dates = pc.if_else(readable, words, "1970-01-01")
    year, month, day = (
        pc.cast(pc.utf8_slice_codeunits(dates, *at), pa.int64()).to_numpy(zero_copy_only=False)
        for at in ((0, 4), (5, 7), (8, 10))
    )
    months = (12 * (year - 1970) + month - 1).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + (day - 1).astype("timedelta64[D]")
    fine = readable.to_numpy(zero_copy_only=False) & (month >= 1) & (month <= 12) & (day >= 1)
    return np.where(fine & (days.astype("datetime64[M]") == months), days.astype(np.int64), np.nan)


@lru_cache(maxsize=64)
def missing_numbers(missing_words: frozenset[str]) -> tuple[float, ...]:
    """Return the numbers among words for a missing value, in rising order."""
    return tuple(sorted({float(word) for word in missing_words if is_number(word)}))


def is_number(word: str) -> bool:
    """Whether a word is a finite number."""
    return re.fullmatch(FINITE, word) is not None


def is_whole(values: Vector) -> bool:
    """Whether all values are whole numbers."""
    return bool((values == np.rint(values)).all())


def is_utf8(word: bytes) -> bool:
    """Whether bytes are text in UTF-8."""
    try:
        word.decode()
    except UnicodeDecodeError:
        return False
    return True
