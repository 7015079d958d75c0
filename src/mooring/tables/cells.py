"""Cells of a table: whether one is a number, what it is as the word of a category, and its value in a fingerprint."""

from __future__ import annotations

import hashlib
import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.tables.schema import MISSING_WORDS
from mooring.typing import Vector

MISSING_VALUE = -(2.0**1000)
"""Stands for what is missing in a record's fingerprint: finite, and no number that anybody declares."""
FINITE = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
"""A finite number, as a regular expression."""
NUMBER = rf"^({FINITE}|[+-]?(?i:nan|inf|infinity))$"
"""A number, as a regular expression."""
_DATE = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9]{2}:[0-9]{2}.*)?$"
_MIDNIGHT = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2})[t ]00:00(?::00(?:\.0+)?)?z?$")
_UTC = re.compile(r"^([0-9]{4}-[0-9]{2}-[0-9]{2}[t ][0-9:.]+)\+00:00$")
_USUAL_MISSING = frozenset(word.casefold() for word in MISSING_WORDS)


def cell_value(text: str | None) -> float:
    """The number that a cell has in a record's fingerprint, before any kind, category or missing word is declared.

    A number is itself however it is written; other text is a hash of its trimmed, case-folded form, midnight being the day.

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
    word = _MIDNIGHT.sub(r"\1", _UTC.sub(r"\1z", word))  # the same record from Parquet, a spreadsheet, and as text
    return float(int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) >> 12)


def cell_values(words: Any) -> Vector:
    """`cell_value` of an array of text, or of a dictionary of it; a word that is no number is hashed once."""
    if not pa.types.is_dictionary(words.type):
        trimmed = pc.utf8_trim_whitespace(words)
        readable = pc.match_substring_regex(trimmed, f"^({FINITE})$").fill_null(False)
        values = pc.cast(pc.if_else(readable, trimmed, None), pa.float64()).to_numpy(zero_copy_only=False) + 0.0
        others = ~np.isfinite(values)
        values[others] = cell_values(words.filter(pa.array(others)).dictionary_encode()) if others.any() else 0.0
        return np.asarray(values)
    table = np.array([*(cell_value(as_text(word)) for word in words.dictionary.to_pylist()), MISSING_VALUE])
    return table.take(word_places(words))


def word_places(words: Any) -> npt.NDArray[np.integer[Any]]:
    """Where in its dictionary the word of each cell stands: behind the last one where it is missing."""
    places = words.indices.fill_null(len(words.dictionary)) if words.indices.null_count else words.indices
    return np.asarray(places.to_numpy(zero_copy_only=False))


def as_plain(chunk: Any) -> Any:
    """The same values in one of few types: numbers, truths, text, dictionaries of text, bytes."""
    kind = chunk.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        chunk = chunk.dictionary_decode()
    if pa.types.is_decimal(chunk.type):  # through text, which is rounded as any other: the direct cast is not
        return pc.cast(pc.cast(chunk, pa.string()), pa.float64())
    if pa.types.is_date(chunk.type) or pa.types.is_timestamp(chunk.type):
        words = pc.replace_substring_regex(pc.cast(chunk, pa.string()), r"\.0+(Z|[+-]\d+)?$", r"\1")
        return pc.replace_substring_regex(words, r"([+-]\d\d)(\d\d)$", r"\1:\2")  # as text files write it
    if pa.types.is_float16(chunk.type):
        return pa.array(chunk.to_numpy(zero_copy_only=False).astype(str).astype(np.float64))
    if pa.types.is_float32(chunk.type):
        mask = chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None
        return pa.array(widen(chunk.to_numpy(zero_copy_only=False)), mask=mask)
    return pc.cast(chunk, pa.string()) if chunk.type == pa.string_view() else chunk


def widen(narrow: npt.NDArray[np.float32]) -> Vector:
    """Numbers of 32 bits as the numbers that their text says: 0.1, not the nearest of 32 bits.

    The text is the shortest decimal that rounds to the number. Of six digits or fewer there is one at most; of more, the
    fewest decimals are tried first, and the nearest decimal is taken, of two the even one, as text does.
    """
    with np.errstate(invalid="ignore"):
        wide = narrow.astype(np.float64)
        largest = float(np.fmax.reduce(np.abs(wide), initial=1.0))
        k = max(0, 5 - math.floor(math.log10(largest))) if largest < 2**24 else 8  # up to 8, what follows is exact
        found = np.round(wide, k)
        others = found.astype(np.float32) != narrow
        others |= largest >= 2**24
        left = np.flatnonzero(others) if others.any() else np.empty(0, dtype=np.intp)
        while left.size and k < 8:
            k += 1
            found[left] = rounded = np.round(wide[left], k)
            left = left[rounded.astype(np.float32) != narrow[left]]
    if left.size:
        text = pc.cast(pa.array(narrow[left]), pa.string())
        found[left] = pc.cast(text, pa.float64()).to_numpy(zero_copy_only=False)
    return found


def as_text(value: Any) -> str | None:
    """A value as the word of a category: a whole number without a decimal point, None for what is missing."""
    if value is None or value != value:
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and value.is_integer():
        return str(int(value))
    return str(value)


def as_texts(chunk: Any) -> list[str]:
    """Cells as text, empty where missing: whole numbers without a decimal point, other bytes than UTF-8 replaced."""
    chunk = as_plain(chunk)
    chunk = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
    values = (one.decode(errors="replace") if isinstance(one, bytes) else one for one in chunk.dictionary.to_pylist())
    texts = [*(as_text(one) or "" for one in values), ""]
    return [texts[place] for place in word_places(chunk).tolist()]


def holds_words(kind: Any) -> bool:
    """Whether a type is one of text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def describe_type(kind: Any) -> str:
    """The name of a type, without names of fields."""
    if isinstance(kind, pa.BaseExtensionType):
        return str(getattr(kind, "type_name", kind.extension_name))
    return str(kind).partition("<")[0]


def is_readable(kind: Any, *, as_date: bool = False) -> bool:
    """Whether a type is one of numbers or words, or of days; lists, tables, blocks of bytes, times and others are not."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if as_date and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        return True
    is_other = isinstance(kind, pa.BaseExtensionType) or pa.types.is_fixed_size_binary(kind)
    return not (is_other or pa.types.is_nested(kind) or pa.types.is_temporal(kind))


def read_days(words: Any) -> Vector:
    """Text as days since 1970-01-01, NaN where it is no day of the calendar; a time of the day is left away."""
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
    """Numbers that stand for a missing value, however they are written."""
    return tuple(sorted({float(word) for word in missing_words if is_number(word)}))


def is_number(word: str) -> bool:
    """Whether a word is a finite number."""
    return re.fullmatch(FINITE, word) is not None


def is_whole(values: Vector) -> bool:
    """Whether all of these are whole numbers."""
    return bool((values == np.rint(values)).all())
