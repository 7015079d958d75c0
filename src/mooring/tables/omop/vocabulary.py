"""What the public vocabulary says of a cohort's columns: names of concepts, their codes, and ranges of measurements.

`ranges.csv` has the lowest and highest plausible value of common measurements by LOINC code and UCUM unit. The values are
'VALID LOW' and 'VALID HIGH' of MIMIC-Extract's table of variables (resources/variable_ranges.csv, CHIL 2020, MIT licence),
which clinicians made for intensive care. LOINC codes were added by name and unit.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mooring.tables.omop.query import SelectedColumn

Ask = Callable[[str, Sequence[Any]], list[tuple[Any, ...]]]
"""Runs a query with parameters on tables of the vocabulary, and returns its rows."""
_DOMAINS = {
    "gender_concept_id": "Gender",
    "race_concept_id": "Race",
    "ethnicity_concept_id": "Ethnicity",
    "visit_concept_id": "Visit",
}
"""For columns that usually have few different concepts, the domain of these concepts."""
_MOST_CONCEPTS = 50
_FIRST_LOCAL = 2_000_000_000  # concepts that sites make themselves have larger numbers
_YEARS, _AGES = (1900.0, 2100.0), (0.0, 120.0)
_OF_BIRTH = {"year_of_birth", "birth_datetime"}
_OF_CALENDAR = {"year_of_birth": _YEARS, "month_of_birth": (1.0, 12.0), "day_of_birth": (1.0, 31.0)}
_UNMATCHED = {"id": "0", "name": "No matching concept"}


@dataclass(frozen=True)
class PlausibleRange:
    """The range of a measurement in a unit."""

    loinc: str
    name: str
    ucum: str
    low: float
    high: float


@dataclass(frozen=True)
class KnownColumn:
    """What is publicly known of a column; a field is None or empty if it is not known."""

    range: tuple[float, float] | None = None
    words: tuple[str, ...] | None = None
    """The column's categories; empty if a person must name them, and None if the column is not known to have any."""
    missing_words: tuple[str, ...] = ()
    remark: str = ""
    """Where the range or the words are from, or why they are not known."""


@cache
def read_ranges() -> tuple[PlausibleRange, ...]:
    """Return the ranges that mooring ships."""
    text = files("mooring.tables.omop").joinpath("ranges.csv").read_text(encoding="utf-8")
    return tuple(
        PlausibleRange(row["loinc"], row["name"], row["ucum"], float(row["low"]), float(row["high"]))
        for row in csv.DictReader(text.splitlines())
    )


def look_up(column: SelectedColumn, ask: Ask | None) -> KnownColumn:
    """Return what is publicly known of a column. Without a table of concepts, `ask` is None, and less is known."""
    if column.words is not None:
        return KnownColumn(words=column.words, remark="The words are those that the query itself gives.")
    if column.name.lower() in _OF_CALENDAR:
        return KnownColumn(range=_OF_CALENDAR[column.name.lower()], remark="The range is that of the calendar.")
    if column.name.lower().startswith("age") and column.sources & _OF_BIRTH:
        return KnownColumn(range=_AGES, remark="An age in years: the range is that of a human life.")
    if column.concept_column:
        return _list_concepts(column, ask)
    if column.concepts or column.codes:
        return _find_range(column, ask)
    return KnownColumn()


def _list_concepts(column: SelectedColumn, ask: Ask | None) -> KnownColumn:
    """Return the categories of a column of concepts, or of their names."""
    domain, is_name = _DOMAINS.get(column.concept_column), "concept_name" in column.sources
    missing = (_UNMATCHED["name" if is_name else "id"],)
    if domain is None or ask is None:
        why = "the file has no table of concepts" if domain else "its domain has many concepts"
        return KnownColumn(words=(), missing_words=missing, remark=f"Concepts of {column.concept_column}; {why}.")
    rows = ask(
        "SELECT concept_id, concept_name FROM concept WHERE domain_id = ? AND standard_concept = 'S' AND concept_id > 0 "
        "AND concept_id < ? AND invalid_reason IS NULL ORDER BY concept_id LIMIT ?",
        [domain, _FIRST_LOCAL, _MOST_CONCEPTS + 1],
    )
    words = tuple(dict.fromkeys(str(name if is_name else number) for number, name in rows))
    if not 0 < len(words) <= _MOST_CONCEPTS:
        return KnownColumn(
            words=(), missing_words=missing, remark=f"The domain {domain} has {len(words) or 'no'} concepts."
        )
    shown = "" if is_name else f": {', '.join(f'{number} {name}' for number, name in rows)}"
    remark = f"All standard concepts of the domain {domain}{shown}."
    return KnownColumn(words=words, missing_words=missing, remark=remark)


def _find_range(column: SelectedColumn, ask: Ask | None) -> KnownColumn:
    """Return the plausible range, if it is known, of a column whose values are measurements."""
    concepts = _read_concepts(column.concepts, ask)
    codes = {code for vocabulary, code, _ in concepts if vocabulary == "LOINC"} | column.codes
    units = {code for vocabulary, code, _ in _read_concepts(column.units, ask) if vocabulary == "UCUM"}
    named = ", ".join(sorted(name for *_, name in concepts)) or ", ".join(sorted(codes)) or "Measurements"
    known = [each for each in read_ranges() if each.loinc in codes]
    if not column.keeps_values:
        return KnownColumn(remark=f"Computed from {named}; no range is known.")
    if len(known) < max(len(concepts), len(codes), 1):
        return KnownColumn(remark=f"{named}; no plausible range ships with mooring.")
    ucum = known[0].ucum
    if {each.ucum for each in known} != {ucum} or not units <= {ucum}:
        return KnownColumn(
            remark=f"{named}; a known range is in {ucum}, but another range, or the query, has another unit."
        )
    assumed = "" if units else " The query does not choose this unit, so values may be in other units."
    codes_named = ", ".join(each.loinc for each in known)
    remark = f"{named}, in {ucum}: plausible values of LOINC {codes_named} by MIMIC-Extract.{assumed}"
    return KnownColumn(range=(min(each.low for each in known), max(each.high for each in known)), remark=remark)


def _read_concepts(numbers: Collection[int], ask: Ask | None) -> list[tuple[str, str, str]]:
    """Return the vocabulary, code and name of each of these concepts that is not a site's own."""
    wanted = [number for number in sorted(numbers) if 0 < number < _FIRST_LOCAL]
    if ask is None or not wanted:
        return []
    marks = ", ".join("?" * len(wanted))
    rows = ask(f"SELECT vocabulary_id, concept_code, concept_name FROM concept WHERE concept_id IN ({marks})", wanted)
    return [(str(vocabulary), str(code), str(name)) for vocabulary, code, name in rows]
