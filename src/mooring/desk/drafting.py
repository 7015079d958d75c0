"""The form in which a study is drafted: its entries, the mistakes in them, and the draft that they make.

The draft is that of `mooring study init`: this module turns what a person typed into the arguments of the same functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_type_hints

import pyarrow as pa

from mooring.errors import InputError, MooringError
from mooring.mechanisms.settings import MechanismSettings
from mooring.protocol.designer.draft import (
    DeclaredColumns,
    Draft,
    DraftSettings,
    draft_study,
    infer_kinds,
    read_draft,
    recognise_columns,
)
from mooring.protocol.designer.header import HEADER_SUFFIX, Header, read_header
from mooring.protocol.registry import get_exchange, list_own_steps
from mooring.protocol.step import TABLES, split_words
from mooring.protocol.workspace import Workspace
from mooring.tables.files import open_table
from mooring.tables.schema import Column

SOURCES = (*TABLES, HEADER_SUFFIX)
"""Endings of the files from which a draft can take its columns."""
MOST_COLUMNS = 300
"""Maximum number of columns in a form; commands have no such limit."""
KINDS = {
    "number": "a number",
    "category": "words",
    "date": "a day",
    "birth": "a date of birth, as an age",
    "id": "identifies rows; is never uploaded",
    "person": "identifies persons; is never uploaded",
    "classes": "predicted: classes",
    "outcome": "predicted: a number",
    "leave": "leave it out",
}
_PREDICTED = ("classes", "outcome")


@dataclass(frozen=True)
class Entry:
    """An entry of [mechanism] that the form asks for, where the mechanism has it."""

    name: str
    label: str
    hint: str
    read: Callable[[str], Any]
    is_rare: bool = False
    """Whether the form folds it away."""


def _number(text: str) -> float:
    value = float(text.replace(",", "."))
    if not math.isfinite(value):
        raise ValueError
    return value


ENTRIES = (
    Entry("epsilon", "ε, the privacy loss", "smaller is more private; a usual value is 1", _number),
    Entry("delta", "δ", "far below 1 divided by the number of all rows; 0.00001 if empty", _number, is_rare=True),
    Entry("expected_rows", "Rows of all participants together", "about how many; for the forecast", int),
    Entry(
        "questions", "What the total must answer", "model, tables, regression, survival; model if empty", split_words
    ),
    Entry("survival_time", "Column of times, for survival", "", str, is_rare=True),
    Entry("survival_event", "Column that says whether the event occurred", "", str, is_rare=True),
    Entry("survival_occurred", "The word for an event that occurred", "", str, is_rare=True),
    Entry(
        "survival_edges",
        "Boundaries of the time intervals",
        "0, 12, 24",
        lambda text: [*map(_number, split_words(text))],
        is_rare=True,
    ),
    Entry(
        "impossible",
        "Combinations that cannot occur, for synthetic rows",
        "sex=m, pregnant=yes; sex=m, births=1",
        lambda text: [part.strip() for part in text.split(";") if part.strip()],
        is_rare=True,
    ),
    Entry("n_colluders", "Participants who may collude with the analyst", "1 if empty", int, is_rare=True),
    Entry("method", "Method", "the usual one if empty", str),
    Entry("n_components", "Components to share", "all, up to 30, if empty", int, is_rare=True),
    Entry("anchor_noise_scale", "Scale of the anchor noise", "0.1 if empty", _number),
    Entry("data_noise_scale", "Scale of the noise on rows", "0.5 if empty", _number),
)


@dataclass
class ColumnForm:
    """What a person declares of one column."""

    name: str
    kind: str = "number"
    low: str = ""
    high: str = ""
    words: str = ""
    is_from_rows: bool = False
    """Whether its range or words come from a site's rows and were not changed."""
    mistake: str = ""


@dataclass
class DraftForm:
    """All entries of the form, as they were typed, with the mistakes in them."""

    source: str
    mechanism: str
    columns: list[ColumnForm]
    name: str = "study"
    missing: str = "refuse"
    entries: dict[str, str] = field(default_factory=dict)
    """What was typed for [mechanism]."""
    mistakes: dict[str, str] = field(default_factory=dict)
    """What is wrong, by the name of the field. A mistake in the form as a whole has the empty name."""
    draft: Draft | None = None

    @property
    def asked(self) -> list[Entry]:
        """The entries that the mechanism has."""
        names = _list_entries(self.mechanism)
        return [entry for entry in ENTRIES if entry.name in names]

    @property
    def uses_rare(self) -> bool:
        """Whether an entry that is folded away was filled in, or has a mistake."""
        names = [entry.name for entry in self.asked if entry.is_rare]
        return any(self.entries.get(name) or name in self.mistakes for name in names)

    @property
    def kinds(self) -> dict[str, str]:
        """The kinds of columns that the mechanism knows."""
        has_persons = "person" in _list_entries(self.mechanism)
        return {kind: words for kind, words in KINDS.items() if kind != "person" or has_persons}

    @property
    def n_mistakes(self) -> int:
        """Number of mistakes."""
        return len(self.mistakes) + sum(bool(column.mistake) for column in self.columns)

    def fill_in(self, form: Mapping[str, str]) -> None:
        """Take what was typed; nothing is judged yet."""
        names = [form.get(f"name-{k}") for k in range(len(self.columns))]
        if names != [column.name for column in self.columns]:
            problem = "The columns of the file have changed since the form was shown."
            raise InputError("form", problem=problem, cure="Start the draft again.")
        self.name, self.missing = form.get("name", "").strip(), form.get("missing", "")
        self.entries = {entry.name: form.get(entry.name, "").strip() for entry in self.asked}
        for k, column in enumerate(self.columns):
            typed = {part: form.get(f"{part}-{k}", "").strip() for part in ("kind", "low", "high", "words")}
            known = {part: getattr(column, part) for part in typed}
            column.is_from_rows = column.is_from_rows and typed == known
            for part, text in typed.items():
                setattr(column, part, text)

    def judge(self, workspace: Workspace) -> None:
        """Draft the study from what was typed, or note each mistake beside its field."""
        self.mistakes, self.draft = {}, None
        entries, known = self._read_entries(), self._read_columns()
        if self.n_mistakes:
            return
        settings = DraftSettings(
            mechanism=entries,
            missing=self.missing,  # type: ignore[arg-type]  # checked with the study
            from_rows=[column.name for column in self.columns if column.is_from_rows],
        )
        label = next((column.name for column in self.columns if column.kind in _PREDICTED), None)
        ignore = [column.name for column in self.columns if column.kind == "leave"]
        try:
            text = draft_study(
                _open_source(workspace, self.source),
                name=self.name,
                label=label,
                ignore=ignore,
                known=known,
                settings=settings,
            )
            self.draft = read_draft(text)
        except MooringError as problem:
            self._place(problem)

    def _read_entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = {"name": self.mechanism}
        for entry in self.asked:
            text = self.entries[entry.name]
            try:
                entries |= {entry.name: text if text == "none" else entry.read(text)} if text else {}
            except ValueError:
                whole = "a whole number, such as 1000" if entry.read is int else "a number, such as 0.5"
                self.mistakes[entry.name] = f"This must be {whole}."
        persons = [column.name for column in self.columns if column.kind == "person"]
        return entries | ({"person": persons[0]} if persons else {})

    def _read_columns(self) -> DeclaredColumns:
        ranges: dict[str, tuple[float, float]] = {}
        categories: dict[str, list[str]] = {}
        dates: dict[str, tuple[str, str]] = {}
        births: dict[str, str] = {}
        for column in self.columns:
            column.mistake = ""
            if column.kind not in self.kinds:
                column.mistake = "Choose what the column holds."
            elif column.kind in ("number", "outcome"):
                try:
                    ranges[column.name] = _number(column.low), _number(column.high)
                except ValueError:
                    column.mistake = (
                        "Give the lowest and the highest possible value as numbers, not those of your rows."
                    )
            elif column.kind in ("category", "classes"):
                categories[column.name] = split_words(column.words)
                if len(categories[column.name]) < 2:
                    column.mistake = "List two words or more, between commas: every word that can stand there."
            elif column.kind == "date":
                dates[column.name] = (column.low, column.high)
                if not (column.low and column.high):
                    column.mistake = "Give the first and the last possible day, such as 2000-01-31."
            elif column.kind == "birth":
                births[column.name] = column.low
                if not column.low:
                    column.mistake = (
                        "Give a public day at which ages are counted, such as 2026-01-01, in the first field."
                    )
        for kinds in (_PREDICTED, ("person",)):
            for column in [column for column in self.columns if column.kind in kinds][1:]:
                column.mistake = "Only one column can have this meaning."
        outcome = next((column.name for column in self.columns if column.kind == "outcome"), "")
        classes = next((column.name for column in self.columns if column.kind == "classes"), "")
        return DeclaredColumns(
            ranges={name: ends for name, ends in ranges.items() if name != outcome},
            label_range=ranges.get(outcome),
            categories={name: words for name, words in categories.items() if name != classes},
            classes=categories.get(classes, ()),
            ids=[column.name for column in self.columns if column.kind == "id"],
            dates=dates,
            births=births,
        )

    def _place(self, problem: MooringError) -> None:
        """Note an error beside the column or the entry that the error names, or else for the whole form."""
        what, words = str(getattr(problem, "what", "")), str(problem)
        for column in self.columns:
            if repr(column.name) in what:
                column.mistake = words
                return
        named = [entry.name for entry in self.asked if entry.name in what or f"[mechanism] {entry.name}" in words]
        self.mistakes["name" if "name of the study" in what else named[0] if named else ""] = words


def _list_entries(mechanism: str) -> frozenset[str]:
    """Return the names of the entries of a mechanism."""
    get_exchange(mechanism)  # loads its settings
    return frozenset(get_type_hints(MechanismSettings.get_kind(mechanism)))


def list_mechanisms() -> list[str]:
    """Return the names of all mechanisms."""
    return list(list_own_steps())


def start_form(workspace: Workspace, source: str, mechanism: str) -> DraftForm:
    """Return a form for the columns of a file in the folder, filled in from names and types of columns, or from a header."""
    if source not in workspace.list_files(SOURCES):
        raise InputError(
            "file", expected="a table or a header in this folder", got="a different name", cure="Choose it in the list."
        )
    get_exchange(mechanism)
    columns = _list_columns(workspace, source)
    if len(columns) > MOST_COLUMNS:
        cure = "Use 'mooring study init', which has options for many columns at once."
        raise InputError("file", expected=f"at most {MOST_COLUMNS} columns", got=str(len(columns)), cure=cure)
    return DraftForm(source, mechanism, columns)


def _list_columns(workspace: Workspace, source: str) -> list[ColumnForm]:
    if source.endswith(HEADER_SUFFIX):
        header = read_header(workspace.root / source)
        described = {column.name: _from_column(column) for column in header.columns}
        apart = {**dict.fromkeys(header.ids, "id"), **dict.fromkeys(header.undescribed, "leave")}
        return [described.get(name) or ColumnForm(name, apart[name]) for name in _list_names(header)]
    path = workspace.root / source
    known = DeclaredColumns(kinds=infer_kinds(path))
    table = open_table(path)
    recognised = recognise_columns(table, known)
    kinds = {name: recognised.get(name, "number") for name in table.names}
    return [ColumnForm(name, "leave" if kind == "text" else kind) for name, kind in kinds.items()]


def _list_names(header: Header) -> Sequence[str]:
    return [*(column.name for column in header.columns), *header.ids, *header.undescribed]


def _from_column(column: Column) -> ColumnForm:
    """Return the entries of a column that a site described from its rows."""
    if column.kind == "category":
        return ColumnForm(column.name, words=", ".join(column.categories), kind="category", is_from_rows=True)
    if column.kind == "date":
        first, _, last = column.described.partition(" to ")
        return ColumnForm(column.name, "date", first, last, is_from_rows=True)
    if column.kind == "age":
        return ColumnForm(column.name, "birth", column.day, is_from_rows=True)
    return ColumnForm(column.name, "number", f"{column.low:g}", f"{column.high:g}", is_from_rows=True)


def _open_source(workspace: Workspace, source: str) -> Path | pa.Table:
    """Return a table that has the columns of a draft: the file itself, or an empty table with a header's columns."""
    path = workspace.root / source
    if not source.endswith(HEADER_SUFFIX):
        return path
    return pa.table({name: pa.array([], pa.float64()) for name in _list_names(read_header(path))})
