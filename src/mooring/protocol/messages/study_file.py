"""A study's file: TOML that people read, with the same meaning whatever its layout."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
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
_MOST_ENTRIES = 90_000  # by signs that begin or end one
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}""")
TODO = "# TODO:"
"""Marks the lines of a draft that are still open."""
_OPEN = {
    "range": f"[]  {TODO} the lowest and highest value that can be, for example [0, 120]; of words: kind and categories",
    "days": f'[]  {TODO} the first and last day that can be, for example ["2000-01-01", "2026-12-31"]',
    "at": f'""  {TODO} a public day at which ages are counted, for example "2026-01-01"',
    "categories": f'[]  {TODO} every word that can stand there, for example ["female", "male"]',
    "classes": f'[]  {TODO} every class, for example ["no", "yes"]',
}
_HEAD = """\
# A study of mooring: everybody who takes part holds this file, and nothing in it is secret.
# Compare its fingerprint by telephone before you share: mooring study show --study FILE
"""
_ROWS = """\
# missing_words stand for a missing value in every column, besides "?", "NA", "NaN", "null" and nothing at all.
# ids name rows: they are never shared, and appear beside predictions.
# A participant with fewer rows of a class than smallest_class (but some) does not share.
"""
_LIMITS = "# What attacks on an upload ('mooring check') and on the model ('mooring deliver') may find.\n"
_NO_LIMITS = """
# [limits] may state what attacks find at most: of an upload ('mooring check'), uploads = ["error at least 0.5"] or, of sums,
# ["epsilon at most 1"]; of the model ('mooring deliver'), model = "membership at most 5 %".
"""
_RANGES = """\
# Columns whose ranges or categories were taken from the sites' rows. Take a column out once you have replaced its range or
# categories by what is publicly known to be possible, or let a person confirm that all of them are public:
# confirmed = "NAME: REASON". Until then, secure sums carry no guarantee, since it assumes that ranges are public.
"""
_MOST_NAMED = 10
_LABEL = """\
# What is predicted: kind = "classes" with their names, "number" with a range, or "none". {}.
"""
_COLUMNS = """\
# Columns, in the order of the encoded rows. Ranges and categories follow from what a column means, not from anybody's
# data. missing = "refuse", "fill" (the middle) or "indicate" (and a further column tells); outside = "refuse" or "clip".
# missing_words of a column count there only. kind = "date" has a range of days, ["2000-01-01", "2026-12-31"]; kind = "age"
# is a date of birth, taken as the age in years at a public day: at = "2026-01-01", range = [0, 110].
"""
_ROSTER = """\
# Who takes part, by public keys: from the cards that 'mooring join' writes, entered by 'mooring study enrol'.
"""


def read_plain(path: Path) -> dict[str, Any]:
    """Return the tables of a study's file without checking what they mean."""
    return parse_study(read_text(path))


def read_text(path: Path) -> str:
    """Read a study's file as text."""
    what = "the study's file"
    try:
        return read_bounded(path, _MOST_BYTES, what=what).decode("utf-8")
    except UnicodeDecodeError:
        raise StorageError(what, reason="it is no text", cure="Check the path.") from None


def parse_study(text: str) -> dict[str, Any]:
    """Return the tables of a study's text, after checking bounds within which parsing takes about a second."""
    require_size(text)
    if _LONG_KEY.search(text):  # a parser takes time that grows with the square of a key's parts
        raise InputError("study", expected="without keys of many parts", got="one of 16", cure="Correct the study.")
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as problem:
        raise InputError("study", expected="TOML", got=f"a mistake: {problem}", cure="Correct that line.") from None
    except ValueError:  # a whole number of thousands of digits
        raise InputError("study", expected="TOML", got="a number that is too large", cure="Correct it.") from None


def require_size(text: str) -> None:
    """Raise an `InputError` if a study's text is too long or has too many entries."""
    cure = "Declare columns alike by one 'names'."
    if len(text) > _MOST_BYTES or len(text.encode()) > _MOST_BYTES:
        raise InputError("study", expected="a file of at most 1 MB", got="a larger one", cure=cure)
    if sum(map(text.count, ",=[{.")) > _MOST_ENTRIES:
        raise InputError("study", expected=f"at most {_MOST_ENTRIES} entries", got="more entries", cure=cure)


def render_study(
    plain: Mapping[str, Any], *, above: str = "", below: str = "", remarks: Mapping[str, str] | None = None
) -> str:
    """Return the values of `Study.as_dict` as commented TOML, which `Study.read` reads as the same study.

    In a draft, open ranges, categories and classes are empty lists. `above` and `below` are comments around the entries
    of [mechanism]; `remarks` are comments on columns, by name.
    """
    remarks = remarks or {}
    mechanism = MechanismSettings.get_kind(plain["mechanism"]["name"])
    parts = [
        _HEAD,
        render_table({key: plain[key] for key in ("format", "name", "nonce")}),
        f"\n[mechanism]\n{mechanism.remark}{above}",
        render_table(plain["mechanism"]) + below,
        f"\n[rows]\n{_ROWS}",
        render_table(plain["rows"]),
        "\n[label]\n" + _LABEL.format("The analyst sees it" if mechanism.shows_labels else "It is not shared"),
        *[f"# {remarks[name]}\n" for name in [plain["label"].get("column", "")] if name in remarks],
        render_declaration(plain["label"]),
        *([f"\n[limits]\n{_LIMITS}", render_table(plain["limits"])] if "limits" in plain else [_NO_LIMITS]),
        *([f"\n[ranges]\n{_RANGES}", render_table(plain["ranges"])] if "ranges" in plain else []),
        f"\n{_COLUMNS}",
    ]
    for _, alike in groupby(enumerate(plain["columns"]), key=_likeness):
        group = [column for _, column in alike]
        names = {"names": [column["name"] for column in group]} if len(group) > 1 else {"name": group[0]["name"]}
        comments = [f"# {column['name']}: {remarks[column['name']]}\n" for column in group if column["name"] in remarks]
        parts += ["\n[[columns]]\n", *comments, render_declaration(names | _without_name(group[0]))]
    parts.append(f"\n{_ROSTER}")
    parts += [render_member("[[participants]]", member) for member in plain["participants"]]
    parts += [render_member("[[helpers]]", member) for member in plain.get("helpers", ())]
    if "analyst" in plain:
        parts.append(render_member("[analyst]", plain["analyst"]))
    return "".join(parts)


def _likeness(numbered: tuple[int, Mapping[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Return what columns that share an entry have in common; a column with an open entry shares none."""
    place, column = numbered
    return (place if [] in column.values() else -1), _without_name(column)


def _without_name(column: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in column.items() if key != "name"}


def render_declaration(table: Mapping[str, Any]) -> str:
    """Return the entries of a column or of the label as text, with open entries marked."""
    is_date = table.get("kind") == "date"
    open_entries = _OPEN | ({"range": _OPEN["days"]} if is_date else {})
    return "".join(
        f"{key} = {open_entries[key] if value == [] else render_value(value)}\n" for key, value in table.items()
    )


def render_member(header: str, member: Mapping[str, str]) -> str:
    """Return a member's entry in the roster as text."""
    return f"\n{header}\n{render_table(member)}"


def render_table(table: Mapping[str, Any]) -> str:
    """Return the entries of a table, one per line."""
    return "".join(f"{key} = {render_value(value)}\n" for key, value in table.items())


def render_value(value: Any) -> str:
    r"""Return a value as TOML; a long list is wrapped.

    Examples
    --------
    >>> render_value(["a", 'b"c']), render_value([0.0, 0.5]), render_value(3)
    ('["a", "b\\"c"]', '[0, 0.5]', '3')
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 and str(value) != "-0.0" else repr(value)
    if isinstance(value, list):
        words = [render_value(entry) for entry in value]
        line = f"[{', '.join(words)}]"
        if len(line) <= 100:
            return line
        return "[\n" + "".join(f"    {word},\n" for word in _wrap(words)) + "]"
    return str(int(value))


def _wrap(words: Sequence[str]) -> list[str]:
    """Return the items of a list in lines of up to a hundred characters, each line without its last comma."""
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 100:
            lines.append(line)
            line = ""
        line += f", {word}" if line else word
    return [*lines, line]


@dataclass(frozen=True)
class _Rows(Record):
    """The table [rows]."""

    missing_words: tuple[str, ...] = ()
    smallest_class: Count = 3
    ids: tuple[str, ...] = ()
    image_shape: tuple[Count, ...] = ()


@dataclass(frozen=True)
class RangeSource(Record):
    """The table [ranges]: which declared ranges and categories come from rows, and who says that they are public."""

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
    """A table of [[columns]]; `names` instead of `name` declares many columns alike."""

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
        got = "another whole number" if type(plain.get("format")) is int else "none"
        cure = "This mooring reads no other; use the version that the study was made with."
        raise InputError("format of the study", expected=str(FORMAT), got=got, cure=cure)
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
        got, cure = "a limit on another measure", "Correct [limits]."
        raise InputError("limits", expected="of the model, one on membership", got=got, cure=cure)


def declared_columns(plain: Mapping[str, Any]) -> tuple[Column, ...]:
    """Read the [[columns]] of a header, within bounds."""
    entries = plain.get("columns", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError(
            "columns", expected="tables, [[columns]]", got="a list of other values", cure="Correct the header."
        )
    return _read_columns(entries)


def _read_columns(entries: Sequence[Mapping[str, Any]]) -> tuple[Column, ...]:
    columns: list[Column] = []
    width, n_letters = 0, 0
    unfilled = [entry for entry in entries if [] in (entry.get("range"), entry.get("categories"))]
    if still_open := [repr(entry["name"]) for entry in unfilled if "name" in entry]:  # a draft's, which share no entry
        raise InputError(
            "columns",
            expected="filled in",
            got=f"{len(still_open)} open: {', '.join(still_open[:10])}{', …' * (len(still_open) > 10)}",
            cure='Give each its range; to one of words, kind = "category" and categories = ["…", "…"].',
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
        got = "both" if "name" in plain and "names" in plain else "neither, or an empty or padded one"
        raise InputError("a column", expected='name = "…" or names = ["…", …]', got=got, cure="Name every column.")
    where = f"column {names[0]!r}"
    table = read_entries(_Column, plain, what=where, within=where, cure=_CURE)
    if table.at and table.kind != "age":
        raise InputError(f"at of {where}", expected='given with kind = "age" only', got="given", cure=_CURE)
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
            got="nothing" if ends is None else "a list of other values",
            cure="Declare the range that the values can take, from what the column means and not from the data.",
        )
    try:
        return float(ends[0]), float(ends[1])
    except OverflowError:  # whole numbers have no end in TOML
        got = "a number that is too large"
        raise InputError(f"range of {where}", expected="finite", got=got, cure=_CURE) from None


def _days_of(where: str, ends: Sequence[Any] | None) -> tuple[str, float]:
    """Return the first day of a range of days, and the number of days to the last."""
    both: Sequence[Any] = ends if ends is not None and len(ends) == 2 else [None, None]
    for end in both:
        require_day(f"both ends of the range of {where}", end)
    return both[0], float(count_days(both[1]) - count_days(both[0]))
