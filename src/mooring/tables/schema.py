"""The schema of a table: columns with kinds, ranges and categories, and the label.

A study declares its schema (`mooring.protocol.messages.study_file`). An audit infers it from the rows
(`mooring.tables.inference`). The encoder (`mooring.tables.encoder`) accepts both.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from mooring.errors import InputError, require_choice

ColumnKind = Literal["number", "integer", "category", "date", "age"]
MissingRule = Literal["refuse", "fill", "indicate"]
OutsideRule = Literal["refuse", "clip"]
LabelKind = Literal["classes", "number", "none"]
MISSING_WORDS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null")
DAYS_A_YEAR = 365.2425
_MOST_CATEGORIES = 1000
MOST_FEATURES = 2**16
_MOST_LETTERS = 2**24  # in the names of all categories of all columns
_CHOICES = {"kind": get_args(ColumnKind), "missing": get_args(MissingRule), "outside": get_args(OutsideRule)}
_FORMULA = re.compile(r"[=@].|[+-](?![0-9.]+(?:[eE][+-]?[0-9]+)?$).")  # signed numbers do not match
_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@dataclass(frozen=True)
class Column:
    """One column of the table, as every participant encodes it."""

    name: str
    kind: ColumnKind
    """An integer is a number that must be whole. A date becomes the number of days since `day`. The cells of an "age" are
    dates of birth, which become ages in years at `day`."""
    low: float = 0.0
    high: float = 0.0
    """The declared range of a number, of a date in days, or of an age. It is encoded as −1 … 1, and is declared rather than
    measured, because no participant sees the rows of other participants."""
    categories: tuple[str, ...] = ()
    """The words of a category; each becomes a feature of zeros and ones. Only for categories."""
    missing: MissingRule = "refuse"
    """How a missing value is treated. "refuse" refuses it. "fill" replaces it by the middle of the range or, for a category,
    by zeros in all features. "indicate" does the same and marks the missing value in a further feature of zeros and ones."""
    outside: OutsideRule = "refuse"
    """How a number outside the range is treated: it is refused, or becomes the nearer end of the range."""
    inferred: bool = False
    """Whether the column was inferred from rows instead of declared. An inferred number has a scale and no range: it is
    encoded as (x − centre) / spread. A study accepts declared columns only."""
    centre: float = math.nan
    spread: float = math.nan
    """For a declared number, the middle and half the width of its range; for an inferred one, its mean and standard
    deviation in the rows."""
    fill: float | str | None = None
    """What replaces a missing value; None stands for the middle of the range or, for a category, zeros in all features."""
    missing_words: tuple[str, ...] = ()
    """Words that stand for a missing value in this column, besides those that do so in all columns."""
    day: str = ""
    """A public day such as "2026-01-31": the start of a date's range, or the day at which an age is counted."""

    def __post_init__(self) -> None:
        if self.inferred:
            return
        object.__setattr__(self, "centre", self.low / 2 + self.high / 2)
        object.__setattr__(self, "spread", self.high / 2 - self.low / 2)
        where = f"column {self.name!r}"
        for what, choices in _CHOICES.items():
            require_choice(f"{what} of {where}", getattr(self, what), choices, cure="Correct the study.")
        if not (isinstance(self.name, str) and self.name and can_be_shown(self.name)):
            expected = "a word without line breaks and control characters"
            raise InputError("name of a column", expected=expected, got=repr(self.name), cure="Name every column.")
        if self.kind == "category":
            _require_words(where, "categories", self.categories)
            if self.outside == "clip":
                problem = f"{where} is a category, which has no range to clip values to."
                cure = 'Leave outside out, and declare a category "other" for words that are not declared.'
                raise InputError(f"outside of {where}", problem=problem, cure=cure)
        else:
            _require_range(where, self.low, self.high)
        require_shown(f"missing_words of {where}", self.missing_words)
        if self.is_date:
            require_day(f"day of {where}", self.day)
        if self.kind == "date" and not (self.low == 0 and self.high <= count_days("9999-12-31") - count_days(self.day)):
            expected, got = "from day 0 to a day before the year 10000", f"{self.low:g} to {self.high:g}"
            raise InputError(f"range of {where}", expected=expected, got=got, cure="Correct the study.")

    @property
    def is_date(self) -> bool:
        """Whether the cells are dates, which are encoded as numbers."""
        return self.kind in ("date", "age")

    def number_of(self, days: Any) -> Any:
        """Convert days since 1970-01-01 to the numbers that stand for dates: days since `day`, or ages in years."""
        since = days - count_days(self.day)
        return since if self.kind == "date" else -since / DAYS_A_YEAR

    @property
    def described(self) -> str:
        """The declared range or categories, in words."""
        if self.kind == "category":
            return f"one of {', '.join(self.categories)}"
        ends = f"{self.low:g} to {self.high:g}"
        if self.kind == "date":
            return " to ".join(self._days)
        return f"date of birth that gives an age of {ends} at {self.day}" if self.kind == "age" else ends

    @property
    def _days(self) -> list[str]:
        """The first and the last day in the range of a date."""
        return [str(np.datetime64(self.day) + np.timedelta64(int(end), "D")) for end in (self.low, self.high)]

    @property
    def width(self) -> int:
        """Number of features that the column becomes."""
        return (len(self.categories) if self.kind == "category" else 1) + (self.missing == "indicate")

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features that the column becomes."""
        names = tuple(f"{self.name}={word}" for word in self.categories) if self.kind == "category" else (self.name,)
        return (*names, f"{self.name}: missing") if self.missing == "indicate" else names

    @property
    def feature_kinds(self) -> tuple[str, ...]:
        """Kinds of the features that the column becomes; a "category" is a feature of zeros and ones."""
        return ("number" if self.is_date else self.kind, *("category",) * self.width)[: self.width]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values in a fixed order, for the study's file and its digest."""
        plain: dict[str, Any] = {"name": self.name, "kind": self.kind}
        if self.kind == "category":
            plain["categories"] = list(self.categories)
        else:
            plain["range"] = self._days if self.kind == "date" else [float(self.low), float(self.high)]
        if self.kind == "age":
            plain["at"] = self.day
        if self.missing_words:
            plain["missing_words"] = list(self.missing_words)
        return plain | {"missing": self.missing, "outside": self.outside}


@dataclass(frozen=True)
class Label:
    """What is predicted. In rotation, the analyst sees the label of every row."""

    column: str = ""
    """Name of the column; empty if there is no label."""
    kind: LabelKind = "none"
    classes: tuple[str, ...] = ()
    low: float = 0.0
    high: float = 0.0
    """The declared range of a number."""

    def __post_init__(self) -> None:
        require_choice("kind of label", self.kind, get_args(LabelKind), cure="Correct the study.")
        if (self.kind == "none") != (self.column == ""):
            expected, cure = "a column and a kind, or kind 'none' and no column", "Correct [label] in the study."
            raise InputError("label", expected=expected, got=f"column {self.column!r} of kind {self.kind!r}", cure=cure)
        if not can_be_shown(self.column):
            expected = "without line breaks and control characters"
            raise InputError("column of the label", expected=expected, got=repr(self.column), cure="Rename it.")
        if self.kind == "classes":
            _require_words("label", "classes", self.classes)
            require_no_formula("classes of the label", self.classes)
            if len(self.classes) < 2:
                raise InputError("label", expected="two classes or more", got="one class", cure="Name every class.")
        elif self.kind == "number":
            _require_range("label", self.low, self.high)
            _require_single_precision(self.low, self.high)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values in a fixed order, for the study's file and its digest."""
        plain: dict[str, Any] = {"kind": self.kind}
        if self.kind != "none":
            plain["column"] = self.column
        if self.kind == "classes":
            plain["classes"] = list(self.classes)
        if self.kind == "number":
            plain["range"] = [float(self.low), float(self.high)]
        return plain


@dataclass(frozen=True)
class Schema:
    """The columns and the label of a table.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", 0, 100), Column("sex", "category", categories=("f", "m"))))
    >>> schema.feature_names
    ('age', 'sex=f', 'sex=m')
    """

    columns: tuple[Column, ...]
    """In the order of the encoded rows."""
    label: Label = field(default_factory=Label)
    missing_words: tuple[str, ...] = ()
    """Words that stand for a missing value, besides `MISSING_WORDS`."""
    ids: tuple[str, ...] = ()
    """Columns that identify rows. They are never shared or used as features, and are written beside predictions."""

    @property
    def n_features(self) -> int:
        """Width of the encoded rows."""
        return sum(column.width for column in self.columns)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(name for column in self.columns for name in column.feature_names)

    @property
    def feature_scales(self) -> tuple[tuple[float, float], ...]:
        """Centre and spread of each feature; 0 and 1 for features of zeros and ones."""
        return tuple(
            (column.centre, column.spread) if kind != "category" else (0.0, 1.0)
            for column in self.columns
            for kind in column.feature_kinds
        )

    @property
    def names(self) -> frozenset[str]:
        """Names of the columns and of the label's column."""
        label = {self.label.column} if self.label.column else set()
        return frozenset({column.name for column in self.columns} | label)

    @cached_property
    def all_missing_words(self) -> frozenset[str]:
        """Words that stand for a missing value in every column."""
        return frozenset((*MISSING_WORDS, *(word.strip() for word in self.missing_words)))

    def missing_words_of(self, column: Column) -> frozenset[str]:
        """Return the words that stand for a missing value in this column."""
        return self.all_missing_words.union(word.strip() for word in column.missing_words)

    def require_declared(self) -> None:
        """Refuse a schema that no study can declare, such as one without columns or with repeated names."""
        names = [column.name for column in self.columns]
        if not names:
            raise InputError("columns", expected="at least one", got="none", cure="Declare the columns to share.")
        if any(column.inferred for column in self.columns):
            raise InputError(
                "columns", expected="declared", got="inferred from rows", cure="Declare ranges and categories."
            )
        twice = find_repeated([*names, *([self.label.column] if self.label.column else []), *self.ids])
        if twice is not None:
            problem = f"The name {twice!r} is used more than once among the columns, the label and the ids."
            raise InputError("columns", problem=problem, cure="Remove or rename one of them.")
        if taken := [name for name in self.ids if name == "prediction" or name.startswith("probability_")]:
            problem = f"The id column {taken[0]!r} has the name of a column that predictions are written to."
            raise InputError("ids", problem=problem, cure="Rename the column.")
        require_width(self.n_features)
        require_shown("missing_words", self.missing_words)
        require_shown("ids", self.ids)
        require_no_formula("ids", self.ids)


def _require_range(where: str, low: float, high: float) -> None:
    """Refuse a declared range that is empty or not finite."""
    if not (math.isfinite(low) and math.isfinite(high) and high / 2 - low / 2 > 0):
        expected, cure = "finite, with the lower end below the upper", "Declare the range that the values can take."
        raise InputError(f"range of {where}", expected=expected, got=f"[{low:g}, {high:g}]", cure=cure)


def _require_single_precision(low: float, high: float) -> None:
    """Refuse the range of a label in which float32, the type of shared labels, distinguishes fewer than 1,000 values."""
    largest, length = max(abs(low), abs(high)), high - low
    if not (largest < 3e38 and length > 1e-30 and length > 1000 * 2**-23 * largest):
        raise InputError(
            "range of the label",
            expected="one in which single precision, the type of shared labels, distinguishes 1,000 values or more",
            got=f"[{low:g}, {high:g}]",
            cure="Change the origin or the unit, for example to days since the first day.",
        )


def count_days(day: str) -> int:
    """Return the number of days from 1970-01-01 to a day."""
    return date.fromisoformat(day).toordinal() - date(1970, 1, 1).toordinal()


def require_day(where: str, day: Any) -> None:
    """Refuse a value that is not a day of the calendar."""
    try:
        fine = isinstance(day, str) and re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", day) and date.fromisoformat(day)
    except ValueError:
        fine = None
    if not fine:
        got = "text that is not a day" if isinstance(day, str) else type(day).__name__
        raise InputError(where, expected='a day, such as "2026-01-31"', got=got, cure="Correct the study.")


def require_shown(what: str, words: tuple[str, ...]) -> None:
    """Refuse entries of a study that are not words, or that cannot be printed."""
    if any(not isinstance(word, str) for word in words):
        got = f"a value of type {next(type(word).__name__ for word in words if not isinstance(word, str))}"
        raise InputError(what, expected="a list of words", got=got, cure="Write each word in quotes.")
    if not all(map(can_be_shown, words)):
        problem = f"{what} contains a word with line breaks, control characters or changes of writing direction."
        raise InputError(what, problem=problem, cure="Remove these characters.")


def require_no_formula(what: str, words: tuple[str, ...]) -> None:
    """Refuse words that a spreadsheet would run as a formula where they are written into a table."""
    formula = next((word for word in words if _FORMULA.match(word)), None)
    if formula is not None:
        problem = f"{what} contains {formula[:60]!r}, which a spreadsheet would run as a formula."
        raise InputError(what, problem=problem, cure="Let no word start with =, @, + or -.")


def _require_words(where: str, what: str, words: tuple[str, ...]) -> None:
    """Refuse categories or classes that are too many, are not different words, or cannot be printed."""
    got = ""
    if not 1 <= len(words) <= _MOST_CATEGORIES:
        got = f"{len(words)} entries"
    elif not all(isinstance(word, str) for word in words):
        got = "an entry that is not text"
    elif not all(word and word == word.strip() and can_be_shown(word) for word in words):
        got = "a word that is empty, starts or ends with a space, or cannot be printed"
    elif len(set(words)) < len(words):
        got = f"{find_repeated(words)!r} twice"
    if got:
        cure = 'Correct the list. Write each word once and in quotes, also numbers: ["0", "1"].'
        raise InputError(f"{what} of {where}", expected=f"1 to {_MOST_CATEGORIES} different words", got=got, cure=cure)


def can_be_shown(text: str) -> bool:
    """Whether text can be printed safely: characters that move the cursor could make a study look like a different one."""
    if text.isprintable():
        return True
    return not any(
        letter in _BIDIRECTIONAL or unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") for letter in text
    )


def find_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that repeats an earlier name; None if all names differ."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def require_width(n_features: int, n_letters: int = 0) -> None:
    """Refuse a study that is wider than any real table, before memory and time are spent on it."""
    if n_features > MOST_FEATURES or n_letters > _MOST_LETTERS:
        expected = f"at most {MOST_FEATURES} features with {_MOST_LETTERS} letters in the names of categories"
        got = f"{n_features} features with {n_letters} letters"
        raise InputError("columns", expected=expected, got=got, cure="Declare fewer columns or categories.")


def require_known(where: str, plain: Mapping[str, Any], known: set[str]) -> None:
    """Refuse an unknown entry in a section of a file; it may be misspelt. The error calls the section `where`."""
    for name in plain:
        if name not in known:
            raise InputError(
                where, expected=f"made of {', '.join(sorted(known))}", got=repr(name), cure="Correct its spelling."
            )


def require_column(what: str, name: str, names: Collection[str]) -> None:
    """Refuse the name of a column that is not among `names`, in an error about `what` that lists the nearest names."""
    if name in names:
        return
    folded = {other.casefold(): other for other in names}
    near = [folded[word] for word in get_close_matches(str(name).casefold(), folded, n=3, cutoff=0.5)]
    cure = f"Nearest to it: {listed(near)}." if near else f"There are {listed(list(names))}."
    raise InputError(what, expected="the name of a column", got=repr(name), cure=cure)


def listed(names: list[str]) -> str:
    """Return the first ten names, quoted, and the number of further ones."""
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"
