"""The values of other people's tables: each one checked, and all of them compared with those that our numbers are of."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from mooring.tables import MISSING_WORDS
from mooring_studies.data.downloads import changed

_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
GAP = "?"

KNOWN_VALUES: Mapping[str, str] = {
    "processed.cleveland.data": "bb4252811d4b51ddeba725b47e1c476e77ba21ea1b9e4d06f022166fb9e2e555",
    "processed.hungarian.data": "1779eccd017b4c03c5c9df161b99cc7e059940dd38168ea202209a49b7072d04",
    "processed.switzerland.data": "9e2a578a46363f412741c11cf97b54aa5675cfdab7b5b19c6f7452414f4ca1bf",
    "processed.va.data": "eb477d882bad73cbe605f8aef4350d8128cde20b3c931f1d5a5d2e0635a4f50b",
    "adult.data": "58fad3194d6cafb0cc477374e56e562b815766f0e82123837c75fc910dd38d62",
    "adult.test": "646cf5ae75a8c9a12cc8e74b23a99613b736fa1e9c641ea93fd944c85d09a3dc",
}
"""SHA-256 of the values of the files that our numbers were made from, however they are written: `values_checksum`."""


def checked_rows(
    path: Path,
    data_set: str,
    rows: Sequence[Sequence[str]],
    columns: Sequence[str],
    *,
    numbers: Sequence[str],
    label: str,
    classes: Sequence[str] = (),
    also_missing: Sequence[str] = (),
) -> list[list[str]]:
    """Rows with '?' for all that is missing; refuse a value that cannot be, by its row and column."""
    result = []
    for k, fields in enumerate(rows, start=1):
        fields = [GAP if word in also_missing else word for word in fields]
        for column, word in zip(columns, fields, strict=True):
            trouble = _trouble(word, number=column in numbers, classes=classes if column == label else ())
            if trouble:
                reason = f"row {k} has {trouble} in column {column!r}; '?' is what stands for a missing value"
                raise changed(path, data_set, reason=reason)
        result.append(fields)
    return result


def _trouble(word: str, *, number: bool, classes: Sequence[str]) -> str:
    """What is wrong with one value; empty where nothing is. A label that is missing is for others to refuse."""
    if word == GAP:
        return ""
    if number:
        return "" if _NUMBER.fullmatch(word) else "no number"
    if classes and word not in classes:
        return f"none of {', '.join(classes)}"
    return "nothing" if word in MISSING_WORDS else ""


def values_checksum(rows: Sequence[Sequence[str]]) -> str:
    """SHA-256 of values, not of how they are written: 63 is 63.0, and a line of headings counts for nothing.

    Examples
    --------
    >>> values_checksum([["63", "?"]]) == values_checksum([["63.0", "?"]]) != values_checksum([["64", "?"]])
    True
    """
    sha = hashlib.sha256()
    for fields in rows:
        words = [repr(float(word)) if _NUMBER.fullmatch(word) else word for word in fields]
        sha.update((",".join(words) + "\n").encode())
    return sha.hexdigest()
