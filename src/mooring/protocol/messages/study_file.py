"""Reading of a study's file: TOML that people write, whose layout does not change its meaning."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from mooring.atomic_io import read_bounded
from mooring.errors import InputError, StorageError
from mooring.mechanisms.settings import MechanismSettings
from mooring.metrics.limits import LeakageLimit
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.reason import require_reasoned
from mooring.serialization import Count, Record, read_entries
from mooring.tables.schema import Column, Label, LabelKind, Schema, count_days, require_day, require_width

FORMAT = 3
_CURE = "Correct the study's file."

_MOST_BYTES = 2**20
_MOST_ENTRIES = 90_000  # counted by the characters ,=[{.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")
_MOST_NAMED = 10


def read_plain(path: Path) -> dict[str, Any]:
    """Return the tables of a study's file without checking what they mean."""
    return parse_study(read_text(path))


def read_text(path: Path) -> str:
    """Read a study's file as text."""
    what = "the study's file"
    try:
        return read_bounded(path, _MOST_BYTES, what=what).decode("utf-8")
    except UnicodeDecodeError:
        raise StorageError(what, reason="it is not text", cure="Check the path.") from None


def parse_study(text: str) -> dict[str, Any]:
    """Return the tables of a study's text; refuse a text that would take more than about a second to parse."""
    require_size(text)
    if _LONG_KEY.search(text):  # a parser takes time that grows with the square of a key's parts
        problem = "The study's file has a key that consists of 17 or more parts."
        raise InputError("study", problem=problem, cure=_CURE)
    try:
        return deepcopy(_load(text))
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        words = f"The study's file is not valid TOML: {problem}."
        raise InputError("study", problem=words, cure="Correct that line.") from None
    except ValueError:  # a whole number of thousands of digits
        raise InputError("study", problem="The study's file has a number that is too large.", cure=_CURE) from None


_load = lru_cache(maxsize=8)(tomllib.loads)  # a run reads the same study at every step


def require_size(text: str) -> None:
    """Raise an `InputError` if a study's text is too long or has too many entries."""
    cure = "Declare columns that are alike in one table, with 'names'."
    if len(text) > _MOST_BYTES or len(text.encode()) > _MOST_BYTES:
        raise InputError("study", expected="a file of at most 1 MB", got="a larger one", cure=cure)
    if sum(map(text.count, ",=[{.")) > _MOST_ENTRIES:
        raise InputError(
            "study", expected=f"a file of at most {_MOST_ENTRIES:,} entries", got="more entries", cure=cure
        )


@dataclass(frozen=True)
class _Rows(Record):
    """The table [rows]."""

    missing_words: tuple[str, ...] = ()
    smallest_class: Count = 3
    ids: tuple[str, ...] = ()
    image_shape: tuple[Count, ...] = ()


@dataclass(frozen=True)
class RangeSource(Record):
    """The table [ranges]: which declared ranges and categories come from rows, and who confirms that these are public."""

    from_rows: tuple[str, ...] = ()
    """Columns, the label among them, whose range, categories or classes 'mooring study merge' took from sites' rows."""
    confirmed: str = ""
    """'NAME: REASON': the person who confirms that these ranges and categories are public; empty if nobody does."""

    def __post_init__(self) -> None:
        require_reasoned("confirmed in [ranges]", self.confirmed)

    @property
    def is_public(self) -> bool:
        """Whether no range or category depends on rows that are not public."""
        return not self.from_rows or bool(self.confirmed)

    def __str__(self) -> str:
        if not self.from_rows:
            return "Ranges and categories were declared without looking at anybody's rows."
        names = ", ".join(self.from_rows[:_MOST_NAMED]) + (", …" if len(self.from_rows) > _MOST_NAMED else "")
        confirmed = (
            f"Confirmed to be public by {self.confirmed}."
            if self.confirmed
            else "Nobody has confirmed that they are public."
        )
        return f"Ranges or categories of {names} were taken from the sites' rows. {confirmed}"


@dataclass(frozen=True)
class _Limits(Record):
    """The table [limits]."""

    uploads: tuple[str, ...] = ()
    model: str = ""


@dataclass(frozen=True)
class _Label(Record):
    """The table [label]."""

    column: str = ""
    kind: str = "none"
    classes: tuple[str, ...] = ()
    range: tuple[Any, ...] | None = None


@dataclass(frozen=True)
class _Column(Record):
    """A table of [[columns]]; with `names` instead of `name`, it declares several columns alike."""

    name: str | None = None
    names: tuple[str, ...] | None = None
    kind: str = "number"
    range: tuple[Any, ...] | None = None
    categories: tuple[str, ...] = ()
    missing: str = "refuse"
    outside: str = "refuse"
    missing_words: tuple[str, ...] = ()
    at: str = ""


@dataclass(frozen=True)
class _StudyFile(Record):
    """A study's file whose tables are not validated yet."""

    format: int
    name: str
    nonce: str
    mechanism: dict[str, Any]
    rows: dict[str, Any] = field(default_factory=dict)
    label: dict[str, Any] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    ranges: dict[str, Any] = field(default_factory=dict)
    columns: tuple[dict[str, Any], ...] = ()
    participants: tuple[Member, ...] = ()
    helpers: tuple[Member, ...] = ()
    analyst: Member | None = None


def study_entries(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Study`, from the values of `Study.as_dict` or from the tables of a study's file."""
    if type(plain.get("format")) is not int or plain["format"] != FORMAT:
        cure = f"This mooring reads format {FORMAT} only. Use the version of mooring that the study was made with."
        raise InputError("format of the study", problem=f"The study does not state the format {FORMAT}.", cure=cure)
    file = read_entries(_StudyFile, plain, what="study", cure=_CURE)
    rows = read_entries(_Rows, file.rows, what="rows", cure=_CURE)
    columns = _read_columns(file.columns)
    label = _read_label(read_entries(_Label, file.label, what="label", within="the label", cure=_CURE))
    limits = read_entries(_Limits, file.limits, what="limits", cure=_CURE)
    _check_limits(limits)
    if len(rows.image_shape) > 3:
        got = f"{len(rows.image_shape)} numbers"
        raise InputError("image_shape", expected="up to three whole numbers", got=got, cure=_CURE)
    schema = Schema(columns, label, rows.missing_words, rows.ids)
    return {
        "name": file.name,
        "nonce": file.nonce,
        "columns": columns,
        "label": label,
        "mechanism": MechanismSettings.read(file.mechanism, schema),
        "missing_words": rows.missing_words,
        "smallest_class": rows.smallest_class,
        "image_shape": rows.image_shape,
        "participants": file.participants,
        "helpers": file.helpers,
        "analyst": file.analyst,
        "ids": rows.ids,
        "upload_limits": limits.uploads,
        "model_limit": limits.model,
        "range_source": read_entries(RangeSource, file.ranges, what="ranges", cure=_CURE),
    }


def _check_limits(limits: _Limits) -> None:
    for words in limits.uploads:
        LeakageLimit.parse(words)
    if limits.model and not LeakageLimit.parse(limits.model).measure.startswith("membership_at"):
        problem = "The limit on the model in [limits] is not a limit on membership."
        raise InputError("limits", problem=problem, cure='For example: model = "membership at most 5 %".')


def declared_columns(plain: Mapping[str, Any]) -> tuple[Column, ...]:
    """Read the [[columns]] of a header, within the bounds of a study's columns."""
    entries = plain.get("columns", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(
            "columns", expected="tables, [[columns]]", got="values of other types", cure="Correct the header."
        )
    return _read_columns(entries)


def _read_columns(entries: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    columns: list[Column] = []
    width, n_letters = 0, 0
    unfilled = [entry for entry in entries if [] in (entry.get("range"), entry.get("categories"))]
    if still_open := [
        repr(entry["name"]) for entry in unfilled if "name" in entry
    ]:  # a draft has one table per open column
        raise InputError(
            "columns",
            expected="filled in",
            got=f"{len(still_open)} open: {', '.join(still_open[:10])}{', …' * (len(still_open) > 10)}",
            cure='Give each column its range. A column of words needs kind = "category" and categories = ["…", "…"].',
        )
    for entry in entries:
        columns += (added := _columns_from(entry))
        width += sum(column.width for column in added)
        n_letters += len(added) * sum(map(len, added[0].categories))
        require_width(width, n_letters)
    return tuple(columns)


def _columns_from(plain: Mapping[str, Any]) -> tuple[Column, ...]:
    names: Any = plain["names"] if "names" in plain else [plain.get("name")]
    fine = isinstance(names, list) and names and all(isinstance(name, str) and name.strip() == name for name in names)
    if not fine or "" in names or ("name" in plain and "names" in plain):
        got = (
            "both"
            if "name" in plain and "names" in plain
            else "neither, or a name that is empty, has spaces around it or is not text"
        )
        raise InputError("a column", expected='name = "…" or names = ["…", …]', got=got, cure="Name every column.")
    where = f"column {names[0]!r}"
    table = read_entries(_Column, plain, what=where, within=where, cure=_CURE)
    if table.at and table.kind != "age":
        problem = f"The {where} has an entry 'at', which only columns with kind = \"age\" have."
        raise InputError(f"at of {where}", problem=problem, cure=_CURE)
    low, high, day = 0.0, 0.0, table.at
    if table.kind == "date":
        day, high = _days_of(where, table.range)
    elif table.kind != "category":
        low, high = _range_of(where, table.range)
    require_width(len(names) * max(1, len(table.categories)), len(names) * sum(map(len, table.categories)))
    shared: dict[str, Any] = {
        "kind": table.kind,
        "low": low,
        "high": high,
        "categories": table.categories,
        "missing": table.missing,
        "outside": table.outside,
        "missing_words": table.missing_words,
        "day": day,
    }
    return tuple(Column(name, **shared) for name in names)


def _read_label(table: _Label) -> Label:
    if table.column != table.column.strip():
        got = "one with spaces around it"
        raise InputError("column of the label", expected="a column's name", got=got, cure=_CURE)
    low, high = _range_of("label", table.range) if table.kind == "number" else (0.0, 0.0)
    return Label(table.column, cast(LabelKind, table.kind), table.classes, low, high)


def _range_of(where: str, ends: Sequence[Any] | None) -> tuple[float, float]:
    if ends is None or len(ends) != 2 or not all(type(end) in (int, float) for end in ends):
        raise InputError(
            f"range of {where}",
            expected="two numbers, [lowest, highest]",
            got="nothing" if ends is None else "a list that is not two numbers",
            cure="Declare the range that the values can take, from what the column means and not from the data.",
        )
    try:
        return float(ends[0]), float(ends[1])
    except OverflowError:  # whole numbers in TOML are unbounded
        got = "a number that is too large"
        raise InputError(f"range of {where}", expected="finite", got=got, cure=_CURE) from None


def _days_of(where: str, ends: Sequence[Any] | None) -> tuple[str, float]:
    """Return the first day of a range of days, and the number of days to the last."""
    both: Sequence[Any] = ends if ends is not None and len(ends) == 2 else [None, None]
    for end in both:
        require_day(f"both ends of the range of {where}", end)
    return both[0], float(count_days(both[1]) - count_days(both[0]))
