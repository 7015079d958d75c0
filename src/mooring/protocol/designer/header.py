"""Headers of tables, in which sites describe their columns before there is a study.

A header is made from rows and is sent to others. So no category, missing word or end of a range in it comes from fewer than
`FEWEST_ROWS` (five) persons: ranges run from the fifth lowest person's lowest value to the fifth highest person's highest,
widened and rounded outward. Words that look like names, mail addresses or identifiers are left out. A header contains no
count of rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.protocol.designer.draft import DeclaredColumns, recognise_columns, require_header, to_snake_case
from mooring.protocol.designer.personal_text import find_personal
from mooring.protocol.messages.card import require_name
from mooring.protocol.messages.study_file import declared_columns, parse_study, read_text
from mooring.protocol.messages.study_text import render_declaration, render_table
from mooring.tables.cells import encode_distinct, is_whole, word_places
from mooring.tables.files import open_table
from mooring.tables.inference import (
    FEWEST_ROWS,
    MAX_CATEGORIES,
    InferredColumn,
    find_ends,
    infer_column,
    widen_range,
)
from mooring.tables.mapping import MappedTable
from mooring.tables.reader import read_columns
from mooring.tables.schema import (
    Column,
    ColumnKind,
    MissingRule,
    Schema,
    count_days,
    require_column,
    require_known,
)
from mooring.tables.suggestion import recognise_forms
from mooring.typing import TableSource, Vector

HEADER_SUFFIX = ".header.toml"
MOST_COLUMNS = 5000
"""Maximum number of columns that a header describes, so that people can compare headers."""
_FEW_NUMBERS = 10  # so few distinct whole numbers may be codes
_PERSON = re.compile(r"(^|_)(patient|person|subject|client|participant)s?($|_)|(^|_)(mrn|ssn|pid|nhs)($|_)")
Persons = npt.NDArray[np.int64]
"""For each row, the number of the person to whom it belongs, from 0 on."""
_ABOVE = """\
# The header of a table, for 'mooring study merge'. It was made from rows: ranges run from the fifth lowest person to the
# fifth highest, widened and rounded outward, and words of fewer than five persons are left out. Read it before you send it.
"""


@dataclass(frozen=True)
class Header:
    """A site's description of its columns."""

    site: str
    columns: tuple[Column, ...]
    """The columns with the site's ranges and categories."""
    ids: tuple[str, ...] = ()
    """Columns that identify rows."""
    undescribed: tuple[str, ...] = ()
    """Columns without a description, such as free text, names, unusual forms of dates, or columns with hardly any values."""

    def __post_init__(self) -> None:
        require_name("site", self.site)
        if len(self.columns) > MOST_COLUMNS:
            problem = f"The header describes {len(self.columns)} columns, and the limit is {MOST_COLUMNS}."
            raise InputError("header", problem=problem, cure="Draft such a study with 'mooring study init'.")
        Schema(self.columns, ids=(*self.ids, *self.undescribed)).require_declared()

    def render(self) -> str:
        """Return the text of the file."""
        top = {"header": 1, "site": self.site, "ids": list(self.ids), "undescribed": list(self.undescribed)}
        columns = (render_declaration(column.as_dict()) for column in self.columns)
        return _ABOVE + render_table(top) + "".join(f"\n[[columns]]\n{declaration}" for declaration in columns)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns that are described, by name."""
        return {column.name: column for column in self.columns}

    @cached_property
    def described(self) -> dict[str, str]:
        """The description of each column, in a few words."""
        described = dict.fromkeys(self.ids, "id") | dict.fromkeys(self.undescribed, "not described")
        for name, column in self.by_name.items():
            words = f" (missing: {', '.join(column.missing_words)})" if column.missing_words else ""
            described[name] = f"{column.kind}, {column.described}{words}"
        return described


def read_header(path: str | Path) -> Header:
    """Read a header that a site sent. Everything in it is checked, with the same bounds as for a study's file."""
    plain = parse_study(read_text(Path(path)))
    require_known("header", plain, {"header", "site", "ids", "undescribed", "columns"})
    if plain.get("header") != 1:
        problem = "The file is not a header of format 1, as 'mooring study header' writes it."
        raise InputError("header", problem=problem, cure="Ask the site for it again.")
    lists = {key: plain.get(key, []) for key in ("ids", "undescribed")}
    for key, names in lists.items():
        if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
            problem = f"The entry {key!r} of the header is not a list of names."
            raise InputError("header", problem=problem, cure="Ask the site for it again.")
    return Header(plain.get("site", ""), declared_columns(plain), *map(tuple, lists.values()))


def infer_header(
    data: TableSource,
    *,
    site: str,
    categorical: Collection[str] = (),
    person: str = "",
    row_per_person: bool = False,
) -> tuple[Header, tuple[str, ...]]:
    """Describe a table from its rows, which are read into memory; `categorical` names columns whose numbers are codes.

    `person` is the column that names persons; by default it is a column such as patient_id or mrn. A table without such a
    column is refused, unless every row is a different person's (`row_per_person`). So is a table with rows of too few
    persons. Returns the header, and notes on columns that needed a decision. The notes are for the site only.
    """
    forms = recognise_forms(data)
    file = open_table(MappedTable(data, forms))
    require_header(file)
    names = recognise_columns(file, DeclaredColumns(categories=dict.fromkeys(categorical, ())))
    table = read_columns(file)
    person = person or ("" if row_per_person else _find_person_column(table.column_names, names))
    if person:
        require_column("--person", person, table.column_names)
        names |= {person: "id"}
    persons = np.arange(table.num_rows)
    if person:
        persons = word_places(encode_distinct(table.column(person))).astype(np.int64)
    n_persons = np.unique(persons).size
    if n_persons < 2 * FEWEST_ROWS:
        problem = (
            f"A header needs the rows of {2 * FEWEST_ROWS} persons or more, and the table has rows of {n_persons}."
        )
        raise InputError("data file", problem=problem, cure="Add rows, or do not send a header.")
    columns, undescribed, notes = [], [], []
    for name in (name for name in table.column_names if names.get(name) != "id"):
        column, note = None, "free text or names, by its name"
        if names.get(name) != "text":
            cells, as_category = table.column(name), name in categorical
            inferred = infer_column(name, cells, is_text=file.schema is None, as_category=as_category)
            column, note = _describe(inferred, persons, is_named=as_category)
        columns += [] if column is None else [column]
        undescribed += [name] if column is None else []
        notes += [(name, note)] if note else []
    ids = tuple(name for name in table.column_names if names.get(name) == "id")
    notes += [(name, "names rows or persons, and is not described") for name in ids]
    notes += [(name, f"read with {rules}") for name, _, rules in forms.describe()]
    alike = {note: ", ".join(name for name, other in notes if other == note) for _, note in notes}
    header = Header(site, tuple(columns), ids, tuple(undescribed))
    return header, tuple(f"{which}: {note}" for note, which in alike.items())


def _find_person_column(columns: Collection[str], kinds: Mapping[str, str]) -> str:
    """Return the column whose name says that it names persons; refuse a table without such a column."""
    for name in columns:
        if kinds.get(name) == "id" and _PERSON.search(to_snake_case(name)):
            return name
    raise InputError(
        "--person",
        problem="Nothing in the table says which rows belong to the same person.",
        cure="Name the column of persons with --person, or pass --row-per-person if every row is a different person's.",
    )


def _describe(column: InferredColumn, persons: Persons, *, is_named: bool) -> tuple[Column | None, str]:
    """Return a column's declaration, made from its rows, and a note for the site, which may be empty.

    The declaration is None if the header does not describe the column. `is_named` says that the site itself named the column
    as a category.
    """
    if column.kind == "other" or (column.kind == "time" and not column.days.size):
        return None, column.unusable
    if column.kind == "time":
        return _describe_days(column, persons)
    first = _find_first(column, persons)
    column, persons = column.keep(first), persons[first]  # now counts of rows are counts of persons
    note = f"{', '.join(column.missing_words)} taken for a missing value" if column.missing_words else ""
    missing: MissingRule = "fill" if column.missing_words or column.n_missing >= FEWEST_ROWS else "refuse"
    if column.kind == "category":
        words, n_words = column.frequent_words, len(column.word_counts)
        if personal := find_personal(column.word_counts, is_named=is_named):
            return None, personal
        if not words or n_words > MAX_CATEGORIES:
            return None, "free text, identifiers, or numbers and dates that are not written as 2.5 and 2026-01-31"
        if len(words) + len(column.missing_words) < n_words:
            note += f"{'; ' if note else ''}words of fewer than {FEWEST_ROWS} persons are left out"
        return Column(
            column.name, "category", categories=words, missing=missing, missing_words=column.missing_words
        ), note
    numbers = np.array(column.values.to_numpy(zero_copy_only=False), dtype=np.float64)
    numbers[np.isin(numbers, [float(word) for word in column.missing_words])] = np.nan
    ends = _find_ends(numbers, persons)
    if ends is None or ends[0] >= ends[1]:
        return None, "hardly any values, or nearly all the same"
    kind: ColumnKind = "integer" if is_whole(column.present_numbers) else "number"
    is_few = kind == "integer" and np.unique(column.present_numbers).size <= _FEW_NUMBERS
    if is_few:
        note += f"{'; ' if note else ''}few whole numbers: if they are codes, name the column with --category"
    low, high = widen_range(*ends, n_steps=0 if is_few else 1)
    return Column(column.name, kind, low, high, missing=missing, missing_words=column.missing_words), note


def _find_first(column: InferredColumn, persons: Persons) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows in which a person has a value for the first time; a missing value counts as a value."""
    values = np.asarray(word_places(encode_distinct(column.values)), dtype=np.int64)
    first = np.zeros(persons.size, dtype=np.bool_)
    first[np.unique(values * (persons.max() + 1) + persons, return_index=True)[1]] = True
    return first


def _find_ends(values: Vector, persons: Persons) -> tuple[float, float] | None:
    """Return the fifth lowest person's lowest value and the fifth highest person's highest; None with too few persons."""
    known = ~np.isnan(values)
    owners, places = np.unique(persons[known], return_inverse=True)
    if owners.size < 2 * FEWEST_ROWS:
        return None
    lowest, highest = np.full(owners.size, np.inf), np.full(owners.size, -np.inf)
    np.minimum.at(lowest, places, values[known])
    np.maximum.at(highest, places, values[known])
    return find_ends(lowest)[0], find_ends(highest)[1]


def _describe_days(column: InferredColumn, persons: Persons) -> tuple[Column | None, str]:
    ends = _find_ends(column.days, persons)
    if ends is None:
        return None, f"{column.unusable}, not written as 2026-01-31"
    first, last = (str(np.datetime64(int(end), "D"))[:4] for end in ends)
    n_days = count_days(f"{last}-12-31") - count_days(f"{first}-01-01")
    n_missing = np.unique(persons[np.isnan(column.days)]).size
    missing: MissingRule = "fill" if n_missing >= FEWEST_ROWS else "refuse"
    return Column(column.name, "date", 0, n_days, day=f"{first}-01-01", missing=missing), "dates"
