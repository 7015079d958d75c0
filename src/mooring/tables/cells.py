"""Cells of a table: whether one is a number, what it is as the word of a category, and its value in a fingerprint."""

from __future__ import annotations

import hashlib
import math
import re
from functools import lru_cache
from typing import Any

import numpy as np
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
_USUAL_MISSING = frozenset(word.casefold() for word in MISSING_WORDS)


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
    return np.asarray(table[words.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)])


def as_plain(chunk: Any) -> Any:
    """The same values in one of few types: numbers, truths, text, dictionaries of text, bytes."""
    kind = chunk.type
    if pa.types.is_dictionary(kind) and not pa.types.is_string(kind.value_type):
        chunk = chunk.dictionary_decode()
    if pa.types.is_decimal(chunk.type):  # through text, which is rounded as any other: the direct cast is not
        return pc.cast(pc.cast(chunk, pa.string()), pa.float64())
    if pa.types.is_float16(chunk.type):
        return pc.cast(chunk, pa.float64())
    return pc.cast(chunk, pa.string()) if chunk.type == pa.string_view() else chunk


def as_text(value: Any) -> str | None:
    """A value as the word of a category: a whole number without a decimal point, None for what is missing."""
    if value is None or value != value:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def is_readable(kind: Any) -> bool:
    """Whether a type of Parquet is one of numbers or words; lists, tables, blocks of bytes and times are not."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return not (pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_temporal(kind))


@lru_cache(maxsize=64)
def missing_numbers(missing_words: frozenset[str]) -> tuple[float, ...]:
    """Numbers that stand for a missing value, however they are written."""
    return tuple(sorted({float(word) for word in missing_words if is_number(word)}))


def is_number(word: str) -> bool:
    """Whether a word is a finite number."""
    return re.fullmatch(FINITE, word) is not None
