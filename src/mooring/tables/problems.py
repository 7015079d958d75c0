"""Cells, lines and columns that do not fit a schema: how many there are, and what to do about each kind.

Nothing here quotes a cell, with two exceptions that disclose nothing: the numbers and dates of fixed public lists, which
often stand for a missing value, and the words 'true' and 'false'.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from mooring.errors import InputError
from mooring.serialization import Record, count_noun
from mooring.tables.cells import FINITE
from mooring.tables.schema import Column, count_days

Mask = npt.NDArray[np.bool_]
SENTINELS = (0.0, *(sign * digit for digit in (1, 9, 99, 999, 9999, 99999) for sign in (1.0, -1.0)))
"""Numbers that stand for a missing value in many tables."""
_SENTINEL_WORDS = [(sentinel, f"{sentinel:g}") for sentinel in SENTINELS]
_SENTINEL_DAYS = ("1899-12-30", "1900-01-01", "1970-01-01", "9999-12-31")
N_FIRST_ROWS = 5
_MOST_RAGGED = 10_000
MANY_WORDS = 50
"""With more different unknown words in a batch than this, a column holds free text or identifiers, not misspelt words."""


class ProblemKind(StrEnum):
    """What is wrong with cells, with lines, or with a whole column."""

    got: str
    """What the cells hold; empty for lines and whole columns."""
    suggestion: str
    """What to do about it; empty for lines and whole columns."""

    def __new__(cls, value: str, got: str = "", suggestion: str = "") -> ProblemKind:
        """Make a kind from its name in JSON."""
        kind = str.__new__(cls, value)
        kind._value_, kind.got, kind.suggestion = value, got, suggestion
        return kind

    MISSING = "missing", "a missing value", 'Fill it in, or declare missing = "fill" or "indicate" for the column.'
    DECIMAL_COMMA = "decimal-comma", "a number with a comma", "Write a decimal point, and no mark for thousands."
    DATE = "date", "a date", 'Declare kind = "date", or "age" for a date of birth; or leave the column out.'
    NUMBER_WITH_UNIT = (
        "number-with-unit",
        "a number with a unit or sign",
        "Write the number alone, in the study's unit.",
    )
    NOT_A_NUMBER = (
        "not-a-number",
        "text that is not a number",
        "Correct it, or declare it in missing_words or as a category.",
    )
    DATE_FORM = "date-form", "a date in a different form", "Write it as YEAR-MONTH-DAY: 2026-01-31."
    NOT_A_DATE = "not-a-date", "a cell that is not a date", "Write dates as 2026-01-31, or declare it in missing_words."
    INFINITE = "infinite", "an infinite number", "Correct it, or leave the cell empty."
    NOT_WHOLE = "not-whole", "a number that is not whole", 'Correct it, or declare kind = "number".'
    SENTINEL = (
        "sentinel",
        "{value}, which often stands for a missing value",
        'If it does here, declare missing_words = ["{value}"] for the column, or leave cells empty; '
        "if not, correct the declaration.",
    )
    FAR_OUTSIDE = (
        "far-outside",
        "a value outside the range by more than its width",
        "Check its unit, or correct the range.",
    )
    OUTSIDE = (
        "outside",
        "a value outside the range",
        'Correct it or the declared range; or, except for a label, declare outside = "clip".',
    )
    LETTER_CASE = "letter-case", "a declared word in different letter case", "Write it as it is declared."
    TRUTH_VALUE = (
        "truth-value",
        "true or false",
        'Declare "true" and "false", or write what is declared; in pandas: frame["{column}"].map({{True: …, False: …}}).',
    )
    CODE = "code", "a number", "Write the declared words in place of codes, or declare the codes."
    FREE_TEXT = "free-text", "many different words: free text or identifiers", "Leave the column out of the study."
    UNKNOWN_CATEGORY = "unknown-category", "a word that is not declared", "Correct its spelling, or declare it."
    ENCODING = (
        "encoding",
        "text that is not UTF-8",
        "Save the table again, in UTF-8, or let 'mooring match' find its encoding.",
    )
    LINE_LENGTH = "line-length"
    ABSENT_COLUMN = "absent-column"
    UNKNOWN_COLUMN = "unknown-column"
    UNREADABLE = "unreadable"


DATE_LIKE = r"^([0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.]([0-9]{2}|[0-9]{4}))([T ].*)?$"
_DECIMAL_COMMA = r"^[+-]?[0-9]{1,3}([.' ]?[0-9]{3})*,[0-9]+$|^[+-]?[0-9]*,[0-9]+$"
_NUMBER_WITH_UNIT = rf"^[<>=~≤≥]+ *{FINITE} *[^0-9]{{0,8}}$|^{FINITE} *[^0-9]{{1,8}}$"
NUMBER_LIKE = "|".join((rf"^{FINITE}$", _DECIMAL_COMMA, _NUMBER_WITH_UNIT))
"""Regular expression of numbers, also with a decimal comma, a unit or a limit of detection."""
_TEXT_KINDS = (
    (ProblemKind.DECIMAL_COMMA, _DECIMAL_COMMA),
    (ProblemKind.DATE, DATE_LIKE),
    (ProblemKind.TRUTH_VALUE, "^(?i:true|false)$"),
    (ProblemKind.NUMBER_WITH_UNIT, _NUMBER_WITH_UNIT),
)
_DATE_KINDS = ((ProblemKind.DATE_FORM, DATE_LIKE),)


@dataclass(frozen=True, eq=False)
class InvalidCells:
    """Cells of one column in one batch that do not fit, for one reason."""

    kind: ProblemKind
    rows: npt.NDArray[np.int64]
    """Their indices in the batch, in rising order; at least one."""
    value: str = ""
    """The sentinel that they hold. Only set for sentinels."""


def classify_text(words: Any, wrong: Mask, *, as_dates: bool = False) -> list[tuple[ProblemKind, Mask]]:
    """Classify words that should have been numbers, or dates, by what they look like; return a mask for each kind.

    `words` are a pyarrow array of trimmed text, and `wrong` marks the words to classify.
    """
    masks, left = [], wrong
    for kind, pattern in _DATE_KINDS if as_dates else _TEXT_KINDS:
        matching = left & pc.match_substring_regex(words, pattern).fill_null(False).to_numpy(zero_copy_only=False)
        masks.append((kind, matching))
        left = left & ~matching
    return [*masks, (ProblemKind.NOT_A_DATE if as_dates else ProblemKind.NOT_A_NUMBER, left)]


def find_invalid_numbers(
    column: Column, numbers: npt.NDArray[np.float64], missing: Mask, known: Sequence[InvalidCells]
) -> list[InvalidCells]:
    """Return the cells that the declaration of a column of numbers forbids.

    Cells in `known` are left out, because they are already known not to be numbers. `missing` marks where `numbers` is NaN.
    """
    low, high, masks = column.low, column.high, list[tuple[ProblemKind, Mask, str]]()
    if column.missing == "refuse":
        masks.append((ProblemKind.MISSING, missing, ""))
    outside = (numbers < low) | (numbers > high)
    any_outside = outside.any()
    if any_outside:
        masks.append((ProblemKind.INFINITE, np.isinf(numbers), ""))
    if column.kind == "integer":
        masks.append((ProblemKind.NOT_WHOLE, (numbers != np.rint(numbers)) & ~missing, ""))
    if any_outside and column.outside == "refuse":
        days = [(column.number_of(count_days(day)), day) for day in _SENTINEL_DAYS] if column.is_date else []
        masks += [(ProblemKind.SENTINEL, numbers == number, word) for number, word in (days or _SENTINEL_WORDS)]
        far = (numbers < low - (high - low)) | (numbers > high + (high - low))
        masks += [(ProblemKind.FAR_OUTSIDE, far, ""), (ProblemKind.OUTSIDE, outside, "")]
    if not any(mask.any() for _, mask, _ in masks):
        return []
    invalid, left = list[InvalidCells](), np.ones(numbers.size, dtype=np.bool_)
    for cells in known:
        left[cells.rows] = False
    for kind, mask, value in masks:
        matching = mask & left & outside if kind is ProblemKind.SENTINEL else mask & left
        if matching.any():
            left &= ~matching
            invalid.append(InvalidCells(kind, np.flatnonzero(matching), value))
    return invalid


@dataclass(frozen=True)
class Problem(Record):
    """One reason why a table does not fit a schema; no cell is quoted."""

    kind: ProblemKind
    column: str
    """Name of the column; empty for lines with a wrong number of fields."""
    expected: str
    got: str
    suggestion: str
    n_cells: int = 0
    """Number of cells or lines; 0 where the whole column is meant."""
    first_rows: tuple[int, ...] = ()
    """Numbers of the first rows concerned, counted from 1 without the header."""

    @property
    def what(self) -> str:
        """The place where the problem occurs first."""
        if self.kind in (ProblemKind.ABSENT_COLUMN, ProblemKind.UNKNOWN_COLUMN):
            return "data file"
        row = f"row {self.first_rows[0]}" if self.first_rows else ""
        return ", ".join(part for part in (row, f"column {self.column!r}" if self.column else "") if part)

    @property
    def where(self) -> str:
        """The number of cells or lines and the first rows; empty where the whole column is meant."""
        if not self.n_cells:
            return ""
        rows = ", ".join(map(str, self.first_rows)) + (", …" if self.n_cells > len(self.first_rows) else "")
        return f"{count_noun(self.n_cells, 'cell' if self.column else 'line')}, row{'s' * (self.n_cells > 1)} {rows}"

    def error(self, *, note: str = "") -> InputError:
        """Return the error for the first occurrence; `note` is a further sentence."""
        return InputError(self.what, expected=self.expected, got=self.got, cure=f"{self.suggestion} {note}".strip())


@dataclass
class RaggedLines:
    """Lines of a text file that do not have as many fields as the first line. They are skipped and counted."""

    numbers: list[int] = field(default_factory=list)
    """Their row numbers, counted from 1 without the header."""
    n_fields: int = 0
    """Number of fields in the first of them."""
    n_expected: int = 0
    """Number of fields in the first line of the file."""
    most: float = _MOST_RAGGED
    """With more such lines than this, the rest of the file is not read."""

    def add(self, number: int, n_fields: int, n_expected: int) -> None:
        """Record a line by its row number and its number of fields."""
        self.n_fields, self.n_expected = self.n_fields or n_fields, n_expected
        self.numbers.append(number)

    @property
    def are_too_many(self) -> bool:
        """Whether there are so many that reading on is pointless."""
        return len(self.numbers) > self.most

    def number_of(self, places: Any) -> Any:
        """Return the row numbers in the file for `places`, which count rows from 0 without these lines."""
        above = np.array(self.numbers, dtype=np.int64) - 1 - np.arange(len(self.numbers))  # other rows above each line
        return places + 1 + np.searchsorted(above, places, side="right")

    @property
    def problem(self) -> Problem:
        """These lines as one problem of the table."""
        expected, got = f"of {self.n_expected} columns, as the first line is", f"{self.n_fields} columns"
        cure = "Check for stray separators and quotes; where commas separate columns, a decimal comma splits a cell."
        cure += " The table was not read further." if self.are_too_many else ""
        first = tuple(self.numbers[:N_FIRST_ROWS])
        return Problem(ProblemKind.LINE_LENGTH, "", expected, got, cure, len(self.numbers), first)


@dataclass
class _Tally:
    n_cells: int = 0
    rows: list[int] = field(default_factory=list)


class ProblemLog:
    """Collects what does not fit, batch after batch, in memory that grows with columns and not with rows.

    `label` is the column, among `columns`, that is the label; None if there is none.
    """

    def __init__(self, columns: Sequence[Column], label: Column | None = None) -> None:
        self._columns, self._label = columns, label
        self.ragged = RaggedLines()
        """The reader adds lines with a wrong number of fields here."""
        self.n_rows = 0
        """Number of rows in the batches so far."""
        self._tallies: dict[tuple[int, ProblemKind, str], _Tally] = {}

    def __bool__(self) -> bool:
        return bool(self._tallies) or bool(self.ragged.numbers)

    def add(self, n_rows: int, invalid: Iterable[tuple[int, InvalidCells]]) -> None:
        """Add a batch of `n_rows` rows with its invalid cells, each with the index of its column."""
        for place, cells in invalid:
            tally = self._tallies.setdefault((place, cells.kind, cells.value), _Tally())
            tally.n_cells += cells.rows.size
            first = self.n_rows + cells.rows[: N_FIRST_ROWS - len(tally.rows)]
            tally.rows += self.ragged.number_of(first).tolist()
        self.n_rows += n_rows

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Lines of a wrong length, then a problem per column and reason, by column and in order of falling frequency."""
        order = sorted(self._tallies.items(), key=lambda item: (item[0][0], -item[1].n_cells))
        lines = (self.ragged.problem,) if self.ragged.numbers else ()
        return (*lines, *(self._describe(*key, tally) for key, tally in order))

    def first_error(self) -> InputError:
        """Return the error for the first row that does not fit, with the number of cells that do not fit."""
        problems = self.problems
        first = min(problems, key=lambda problem: problem.first_rows[0])
        in_columns = [problem for problem in problems if problem.column]
        n_cells = sum(problem.n_cells for problem in in_columns)
        n_columns = len({problem.column for problem in in_columns})
        note = f"{n_cells} cells of {count_noun(n_columns, 'column')} do not fit; 'mooring check --fit-only' lists all."
        return first.error(note=note if n_cells > 1 else "")

    def _describe(self, place: int, kind: ProblemKind, value: str, tally: _Tally) -> Problem:
        column = self._columns[place]
        is_label = column is self._label
        got, suggestion = (words.format(value=value, column=column.name) for words in (kind.got, kind.suggestion))
        if is_label and kind is ProblemKind.MISSING:
            suggestion = "Correct the row, or leave it out."
        expected = describe_expected(column, is_label=is_label)
        return Problem(kind, column.name, expected, got, suggestion, tally.n_cells, tuple(tally.rows))


def describe_expected(column: Column, *, is_label: bool = False) -> str:
    """Return the declaration of a column in words."""
    if column.inferred:
        return "text in UTF-8"
    if column.kind == "category":
        shown = ", ".join(column.categories[:10]) + (", …" if len(column.categories) > 10 else "")
        return f"a {'class' if is_label else 'category'} that the study declares ({shown})"
    kind = {"integer": "whole number from ", "number": "number from ", "date": "date from "}.get(column.kind, "")
    return f"a {kind}{column.described}"
