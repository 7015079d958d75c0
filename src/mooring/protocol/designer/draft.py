"""The draft of a study, made from the names and types of a table's columns, never from the contents of rows.

Only `infer_kinds`, for `mooring study init`, reads rows: they suggest the likely kind of each column, and nothing else.
Ranges, categories and classes stay open in the draft, and `Study.read` refuses the file until a person who knows what the
columns mean has filled them in. Statistics of a site's rows would disclose information about these rows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from mooring.errors import InputError
from mooring.mechanisms.settings import MechanismSettings
from mooring.protocol.forecast import StudyForecast
from mooring.protocol.messages.card import require_name
from mooring.protocol.messages.study import Study, draw_nonce
from mooring.protocol.messages.study_file import FORMAT, parse_study
from mooring.protocol.messages.study_text import TODO, render_study
from mooring.protocol.registry import exchange_of, get_exchange
from mooring.tables.cells import describe_type, holds_words, is_number
from mooring.tables.files import OpenTable, open_table
from mooring.tables.inference import LikelyKind, infer_column, kind_of_type
from mooring.tables.problems import RaggedLines
from mooring.tables.reader import table_batches
from mooring.tables.schema import MissingRule, require_column
from mooring.typing import TableSource


@dataclass(frozen=True)
class DeclaredColumns:
    """What the designer of a study knows of its columns."""

    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Mapping from name to (lowest, highest)."""
    all_ranges: tuple[float, float] | None = None
    """(lowest, highest) of every column of numbers that `ranges` does not name."""
    categories: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Mapping from name to words."""
    classes: Sequence[str] = ()
    label_range: tuple[float, float] | None = None
    """(lowest, highest) of a label that is a number."""
    ids: Sequence[str] = ()
    """Columns that identify rows."""
    dates: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Mapping from name to (first day, last day)."""
    births: Mapping[str, str] = field(default_factory=dict)
    """Mapping from name to the public day at which ages are counted."""
    missing_words: Mapping[str, Sequence[str]] = field(default_factory=dict)
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kinds that `infer_kinds` inferred, for columns that are not declared. "number" prevails over a name that suggests
    another kind than "id"; other kinds count only if the name suggests none."""

    @property
    def names(self) -> frozenset[str]:
        """Columns whose kind is declared."""
        return frozenset((*self.ranges, *self.categories, *self.ids, *self.dates, *self.births))


@dataclass(frozen=True)
class DraftSettings:
    """What a draft declares besides its columns."""

    mechanism: MechanismSettings | Mapping[str, Any] = field(default_factory=lambda: {"name": "rotation"})
    """Settings, or entries of [mechanism] with the mechanism's name. Entries that are left out get defaults: rotation
    shares all columns of the encoded rows; if there are more than 30, it shares 30 components by a Gaussian projection."""
    smallest_class: int = 3
    image_shape: Sequence[int] = ()
    missing_words: Sequence[str] = ()
    """As in `Study`."""
    missing: MissingRule = "refuse"
    """What is done with a missing value in every column; people can edit the draft for single columns."""
    nonce: str | None = None
    """Drawn from the system's entropy if it is None."""
    from_rows: Sequence[str] = ()
    """Columns whose ranges or categories come from sites' rows."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Comments on columns, by name: where a range comes from, or why it is open."""

    @property
    def entries(self) -> Mapping[str, Any]:
        """The entries of [mechanism] that were asked for."""
        return self.mechanism.as_dict() if isinstance(self.mechanism, MechanismSettings) else self.mechanism


def draft_study(
    data: TableSource,
    *,
    name: str = "study",
    label: str | None = None,
    ignore: Sequence[str] = (),
    known: DeclaredColumns | None = None,
    settings: DraftSettings | None = None,
) -> str:
    """Draft a study's file from the header of a table.

    Parameters
    ----------
    data : path or data frame
        Only the first line of a text file, the schema of a Parquet file, or the names and types of a data frame are read.
    ignore : sequence of str
        Columns that are not part of the study.
    known : DeclaredColumns, optional
        Ranges, categories and classes; what is left out stays open.

    Returns
    -------
    str
        TOML. Each open entry has a line marked "TODO". `Study.read` refuses the text while there is such a line.
    """
    known, settings = known or DeclaredColumns(), settings or DraftSettings()
    table = open_table(data)
    for each in (*ignore, *known.names, *known.missing_words, *([label] if label is not None else [])):
        require_column(f"column {each!r}", each, table.names)
    require_header(table, ignore)
    person = str(settings.entries.get("person", ""))  # like ids, this column is never uploaded
    apart = {*ignore, *([label] if label is not None else []), *([person] if person else [])}
    kinds = recognise_columns(table, known, apart)
    ids = [each for each in table.names if each in known.ids or kinds.get(each) == "id"]
    left_out = {*apart, *ids, *(each for each, kind in kinds.items() if kind == "text")}
    columns = [
        _describe_column(table, each, known, kinds.get(each, "")) for each in table.names if each not in left_out
    ]
    if not columns:
        raise InputError("data file", problem="No column is left to share.", cure="Drop fewer columns.")
    for column in columns:
        if column["name"] in known.missing_words:
            column["missing_words"] = list(known.missing_words[column["name"]])
        column |= {"missing": settings.missing, "outside": "refuse"}
    return render_draft(name, columns, _describe_label(table, label, known), ids, settings)


def render_draft(
    name: str,
    columns: Sequence[Mapping[str, Any]],
    label: Mapping[str, Any],
    ids: Sequence[str],
    settings: DraftSettings,
) -> str:
    """Return the text of a draft; an open entry of a column or of the label is an empty list."""
    require_name("name of the study", name)
    rows: dict[str, Any] = {"missing_words": list(settings.missing_words), "smallest_class": settings.smallest_class}
    if ids:
        rows["ids"] = list(ids)
    if settings.image_shape:
        rows["image_shape"] = list(settings.image_shape)
    width = sum(len(column["categories"]) if column["kind"] == "category" else 1 for column in columns)
    width += len(columns) if settings.missing == "indicate" else 0
    exchange = get_exchange(settings.entries.get("name"))
    mechanism = exchange.draft(
        settings.entries, width, has_images=bool(settings.image_shape), has_label=label["kind"] != "none"
    )
    plain = {
        "format": FORMAT,
        "name": name,
        "nonce": settings.nonce or draw_nonce(),
        "mechanism": mechanism.entries,
        "rows": rows,
        "label": label,
        "columns": columns,
        "participants": [],
    }
    if settings.from_rows:
        plain["ranges"] = {"from_rows": list(settings.from_rows), "confirmed": ""}
    return render_study(plain, above=mechanism.above, below=mechanism.below, remarks=settings.remarks)


def count_open_entries(text: str) -> int:
    """Return the number of open entries in a draft."""
    return sum(1 for line in text.splitlines() if TODO in line)


@dataclass(frozen=True)
class Draft:
    """A drafted study."""

    text: str
    """The study's file."""
    plain: Mapping[str, Any]
    """The tables of the study's file."""
    n_open: int
    """Number of open entries."""
    study: Study | None
    """The study; None while entries are open."""
    forecast: StudyForecast | None
    """The forecast of the study's results; None while entries are open, or if nothing can be forecast."""


def read_draft(text: str) -> Draft:
    """Return a draft with its forecast; a draft that has no open entries, but is not a valid study, is refused."""
    plain, n_open = parse_study(text), count_open_entries(text)
    study = None if n_open else Study.from_dict(plain)
    forecast = None if study is None else exchange_of(study).forecast(study)
    return Draft(text, plain, n_open, study, forecast)


_NAMES = {
    "id": r"(^|_)(id|ids|uuid|guid|mrn|ssn|pid)($|_)|(^|_)(patient|person|subject|case|record|encounter|admission|visit)s?_"
    r"?(id|nr|no|nbr|num|number|key)($|_)|^(patient|person|subject|client)s?$",
    "birth": r"(^|_)(dob|born|birthday|birth_?date|(date|day)_of_birth|geburtsdatum)($|_)",
    "date": r"(^|_)(date|datum|datetime|timestamp|dt)($|_)",
    "text": r"(^|_)(notes?|comments?|remarks?|text|freetext|description|address|email|phone|surname|"
    r"(first|last|full|patient)_?name)($|_)|^name$",
}
_RECOGNISED = {
    "id": "identifies rows or persons: it is never shared, and is written beside predictions",
    "birth": "a date of birth, used as the age at a public day",
    "date": "a date, used as the number of days since the first day of its range",
    "text": "free text or a name: it is left out, and every participant must give --ignore {name}",
    "category": "words: a category, whose words are open unless you name them",
}


def infer_kinds(data: TableSource) -> dict[str, LikelyKind]:
    """Return the likely kind of each column of a text file, from its first 1,000 rows; empty for a table with types.

    Columns that cannot be read are left out.
    """
    table = open_table(data)
    first: Any = None
    with suppress(InputError):  # 'mooring check --fit-only' says what is wrong
        batches = table_batches(table, table.names, rows_at_once=1000, ragged=RaggedLines())
        first = next(batches, None) if table.schema is None else None
    kinds: dict[str, LikelyKind] = {}
    for name in table.names if first is not None else ():
        with suppress(pa.ArrowInvalid):  # bytes that are not text
            kinds[name] = infer_column(name, first.column(name).cast(pa.string()), is_text=True).likely_kind
    return kinds


def to_snake_case(name: str) -> str:
    """Return a column's name in lower case, with an underscore between its words.

    Examples
    --------
    >>> to_snake_case("PatientID"), to_snake_case("date of-birth")
    ('patient_id', 'date_of_birth')
    """
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower())


def recognise_columns(table: OpenTable, known: DeclaredColumns, apart: Collection[str] = ()) -> dict[str, str]:
    """Return the kind of each column that does not seem to be a plain number.

    A kind is "id", "birth", "date", "text" or "category". It follows from the column's name, its type in the file and its
    inferred kind. Columns that are declared or listed in `apart`, such as the label, are left out.
    """
    recognised, settled = {}, known.names.union(apart)
    for name in (name for name in table.names if name not in settled):
        word = to_snake_case(name)
        kind = next((kind for kind, pattern in _NAMES.items() if re.search(pattern, word)), "")
        inferred = known.kinds.get(name, "")
        kind = "" if inferred == "number" and kind != "id" else kind or inferred
        stored = None if table.schema is None else table.schema.field(name).type
        if stored is not None and (pa.types.is_date(stored) or pa.types.is_timestamp(stored)):
            kind = "birth" if kind == "birth" else "date"
        elif stored is not None and kind in ("birth", "date", "text") and not holds_words(stored):
            kind = ""
        if kind:
            recognised[name] = kind
    return recognised


def describe_recognised(data: TableSource, known: DeclaredColumns, apart: Collection[str] = ()) -> dict[str, str]:
    """Return, in words, how a draft treats each column that `recognise_columns` recognises."""
    recognised = recognise_columns(open_table(data), known, apart)
    return {name: _RECOGNISED[kind].format(name=shlex.quote(name)) for name, kind in recognised.items()}


def _describe_column(table: OpenTable, name: str, known: DeclaredColumns, recognised: str) -> dict[str, Any]:
    """Return the entries of a column; an open entry is an empty list."""
    if name in known.dates or recognised == "date":
        return {"name": name, "kind": "date", "range": list(known.dates.get(name, ()))}
    if name in known.births or recognised == "birth":
        return {"name": name, "kind": "age", "range": [0.0, 120.0], "at": known.births.get(name, [])}
    kind = _kind_in_file(table, name)
    if name in known.categories or recognised == "category":
        kind = "category"
    elif name in known.ranges and kind == "category":
        kind = "number"
    if kind == "category":
        words = list(known.categories.get(name, ()))
        is_truth = table.schema is not None and pa.types.is_boolean(table.schema.field(name).type)
        return {"name": name, "kind": kind, "categories": words or (["false", "true"] if is_truth else [])}
    ends = known.ranges.get(name, known.all_ranges)
    return {"name": name, "kind": kind, "range": [] if ends is None else [float(end) for end in ends]}


def _kind_in_file(table: OpenTable, name: str) -> str:
    """Return the kind of a column by its type in the file; columns of text files, which have no types, are numbers."""
    if table.schema is None:
        return "number"
    stored = table.schema.field(name).type
    kind = kind_of_type(stored)
    if kind in ("time", "other"):
        got, cure = (
            f"values of type {describe_type(stored)}",
            "Leave it out with --ignore, or write it in another form.",
        )
        raise InputError(f"column {name!r}", expected="made of numbers or words", got=got, cure=cure)
    return "category" if kind == "empty" else kind


def _describe_label(table: OpenTable, label: str | None, known: DeclaredColumns) -> dict[str, Any]:
    """Return the entries of [label]; an open entry is an empty list."""
    if label is None:
        return {"kind": "none"}
    is_float = table.schema is not None and pa.types.is_floating(table.schema.field(label).type)
    if known.label_range is not None or (is_float and not known.classes):
        return {"kind": "number", "column": label, "range": [float(end) for end in known.label_range or ()]}
    is_truth = table.schema is not None and pa.types.is_boolean(table.schema.field(label).type)
    classes = list(known.classes) or (["false", "true"] if is_truth else [])
    return {"kind": "classes", "column": label, "classes": classes}


def require_header(table: OpenTable, ignore: Sequence[str] = ()) -> None:
    """Raise an `InputError` if the first line may be a record: its words would become part of the public draft."""
    kept = [name for name in table.names if name not in ignore]
    counted = [str(k) for k in range(len(table.names) + 1)]
    is_count = list(table.names) in (counted[:-1], counted[1:])
    if not is_count and any(not name or is_number(name) for name in kept):
        at = next(k for k, name in enumerate(table.names) if name in kept and (not name or is_number(name)))
        got, cure = f"a number or nothing as the name of column {at + 1}", "Write a header into the first line."
        raise InputError("data file", expected="a table whose first line names the columns", got=got, cure=cure)
