"""Headers of tables, in which sites describe their columns before there is a study; and a draft merged from several.

A header is made from rows, and travels. No end of a range, category or missing word in it comes from fewer than
`FEWEST_ROWS` rows: ranges run from the fifth lowest value to the fifth highest, widened and rounded outward. A header
contains no count of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.protocol.designer.draft import (
    DeclaredColumns,
    DraftSettings,
    recognise_columns,
    render_draft,
    require_header,
)
from mooring.protocol.messages.card import require_name
from mooring.protocol.messages.study_file import (
    declared_columns,
    parse_study,
    read_text,
    render_declaration,
    render_table,
)
from mooring.tables.cells import is_number, is_whole
from mooring.tables.files import open_table
from mooring.tables.inference import (
    FEWEST_ROWS,
    MAX_CATEGORIES,
    InferredColumn,
    find_ends,
    infer_column,
    widen_range,
)
from mooring.tables.reader import read_columns
from mooring.tables.schema import Column, ColumnKind, MissingRule, Schema, count_days, require_known
from mooring.typing import TableSource

_MERGED = """\
# Ranges and categories come from the rows of the sites, widened. For sums, replace them with what is publicly known to be
# possible: the guarantee assumes that ranges and categories are public.
"""
_FEW_NUMBERS = 10  # so few distinct whole numbers may be codes
_MOST_COMPARED = 100  # names that one name is compared with
_ABOVE = """\
# The header of a table, for 'mooring study merge'. It was made from rows: ranges run from the fifth lowest value to the
# fifth highest, widened and rounded outward, and words of fewer than five rows are left out. Read it before you send it.
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
    """Columns without a description: free text, dates that are not written as 2026-01-31, hardly any values."""

    def __post_init__(self) -> None:
        require_name("site", self.site)
        Schema(self.columns, ids=(*self.ids, *self.undescribed)).require_declared()

    def render(self) -> str:
        """The text of the file."""
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
    """Read a header that a site sent. Everything in it is checked, within the limits of a study."""
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


def infer_header(data: TableSource, *, site: str, categorical: Collection[str] = ()) -> tuple[Header, tuple[str, ...]]:
    """Describe a table from its rows, which are read into memory; `categorical` names columns whose numbers are codes.

    Returns the header and notes on columns that needed a decision. The notes are for the site only.
    """
    file = open_table(data)
    require_header(file)
    names = recognise_columns(file, DeclaredColumns(categories=dict.fromkeys(categorical, ())))
    table = read_columns(file)
    if table.num_rows < 2 * FEWEST_ROWS:
        expected, got = f"{2 * FEWEST_ROWS} rows or more", str(table.num_rows)
        raise InputError("data file", expected=expected, got=got, cure="Add rows.")
    columns, undescribed, notes = [], [], []
    for name in (name for name in table.column_names if names.get(name) != "id"):
        column, note = None, "free text or names, by its name"
        if names.get(name) != "text":
            cells, as_category = table.column(name), name in categorical
            column, note = _describe(infer_column(name, cells, is_text=file.schema is None, as_category=as_category))
        columns += [] if column is None else [column]
        undescribed += [name] if column is None else []
        notes += [(name, note)] if note else []
    ids = tuple(name for name, kind in names.items() if kind == "id")
    notes += [(name, "names rows, by its name") for name in ids]
    alike = {note: ", ".join(name for name, other in notes if other == note) for _, note in notes}
    header = Header(site, tuple(columns), ids, tuple(undescribed))
    return header, tuple(f"{which}: {note}" for note, which in alike.items())


def _describe(column: InferredColumn) -> tuple[Column | None, str]:
    """The declaration of a column by its rows, None if the header does not describe it; and a note for the site."""
    if column.kind == "other" or (column.kind == "time" and not column.days.size):
        return None, column.unusable
    if column.kind == "time":
        return _describe_days(column)
    note = f"{', '.join(column.missing_words)} taken for a missing value" if column.missing_words else ""
    missing: MissingRule = "fill" if column.missing_words or column.n_missing >= FEWEST_ROWS else "refuse"
    if column.kind == "category":
        words, n_words = column.frequent_words, len(column.word_counts)
        if not words or n_words > MAX_CATEGORIES:
            return None, "free text, identifiers, or numbers and dates not written as 2.5 and 2026-01-31"
        if len(words) + len(column.missing_words) < n_words:
            note += f"{'; ' if note else ''}words that fewer than {FEWEST_ROWS} rows have are left out"
        return Column(
            column.name, "category", categories=words, missing=missing, missing_words=column.missing_words
        ), note
    numbers = column.present_numbers
    if numbers.size < 2 * FEWEST_ROWS or np.subtract(*find_ends(numbers)) == 0:
        return None, "hardly any values, or nearly all the same"
    kind: ColumnKind = "integer" if is_whole(numbers) else "number"
    is_few = kind == "integer" and np.unique(numbers).size <= _FEW_NUMBERS
    if is_few:
        note += f"{'; ' if note else ''}few whole numbers: if they are codes, name the column with --category"
    low, high = widen_range(*find_ends(numbers), n_steps=0 if is_few else 1)
    return Column(column.name, kind, low, high, missing=missing, missing_words=column.missing_words), note


def _describe_days(column: InferredColumn) -> tuple[Column | None, str]:
    known = column.days[~np.isnan(column.days)]
    if known.size < 2 * FEWEST_ROWS:
        return None, f"{column.unusable}, not written as 2026-01-31"
    first, last = (str(np.datetime64(int(end), "D"))[:4] for end in find_ends(known))
    n_days = count_days(f"{last}-12-31") - count_days(f"{first}-01-01")
    missing: MissingRule = "fill" if column.days.size - known.size >= FEWEST_ROWS else "refuse"
    return Column(column.name, "date", 0, n_days, day=f"{first}-01-01", missing=missing), "dates"


@dataclass(frozen=True)
class MergedColumn:
    """A column as the sites describe it, and as it is in the draft."""

    name: str
    sites: dict[str, str]
    """The description of each site; empty for a site without the column."""
    conflicts: tuple[str, ...]
    """Differences that a person must settle; empty if the sites agree."""
    plain: dict[str, Any] | None
    """The column's entries in the draft, with an empty list for an open entry; None if it is left out."""


def merge_headers(headers: Sequence[Header]) -> tuple[MergedColumn, ...]:
    """All columns of all sites, each with the differences between the sites."""
    n_sites = len({header.site for header in headers})
    if n_sites < max(2, len(headers)):
        expected, got = "two or more, of different sites", f"{len(headers)} of {n_sites} sites"
        raise InputError("headers", expected=expected, got=got, cure="Give one header per site.")
    everywhere = set.intersection(*(set(header.described) for header in headers))
    apart = {header.site: [name for name in header.described if name not in everywhere] for header in headers}
    names = dict.fromkeys(name for header in headers for name in header.described)
    return tuple(_merge(name, headers, apart) for name in names)


def draft_merged(merged: Sequence[MergedColumn], *, name: str, label: str | None) -> str:
    """Draft a study from merged columns; `label` is the column to predict, if any."""
    plain = {column.name: dict(column.plain) for column in merged if column.plain is not None}
    if label is not None and label not in plain:
        raise InputError("--label", expected="a column that a site describes", got=repr(label), cure="Check the names.")
    outcome = plain.pop(label) if label is not None else {}
    if outcome.get("kind") in ("date", "age"):
        got = f"a column of kind {outcome['kind']!r}"
        raise InputError("--label", expected="a class or a number", got=got, cure="Choose a different column.")
    entries: dict[str, Any] = {"kind": "none"}
    if "categories" in outcome:
        entries = {"kind": "classes", "column": label, "classes": outcome["categories"]}
    elif outcome:
        entries = {"kind": "number", "column": label, "range": outcome["range"]}
    ids = [column.name for column in merged if "id" in column.sites.values()]
    return _MERGED + render_draft(name, list(plain.values()), entries, ids, DraftSettings())


def _merge(name: str, headers: Sequence[Header], apart: Mapping[str, Sequence[str]]) -> MergedColumn:
    """Merge the column `name`; `apart` has the names that not all sites have, by site."""
    descriptions = {header.site: header.described.get(name, "") for header in headers}
    declared = {header.site: header.by_name[name] for header in headers if name in header.by_name}
    conflicts = []
    for words in ("not described", "id") if declared else ():
        sites = [site for site, description in descriptions.items() if description == words]
        conflicts += [f"{words} at {', '.join(sites)}"] if sites else []
    for site in (site for site, description in descriptions.items() if not description):
        others = {other.casefold(): other for other in apart[site][:_MOST_COMPARED]}
        near = get_close_matches(name.casefold(), others, n=1)
        conflicts.append(f"not at {site}" + (f", which has {others[near[0]]!r}" if near else ""))
    if not declared or "id" in descriptions.values():
        return MergedColumn(name, descriptions, tuple(conflicts), None)
    plain, differences = _reconcile(name, declared)
    return MergedColumn(name, descriptions, (*conflicts, *differences), plain)


def _reconcile(name: str, declared: Mapping[str, Column]) -> tuple[dict[str, Any], list[str]]:
    """The entries of a column that several sites declare, and their differences, for which an entry stays open."""
    columns = list(declared.values())
    kinds = {"number" if column.kind == "integer" else column.kind for column in columns}
    words = list(dict.fromkeys(word for column in columns for word in column.missing_words))
    plain: dict[str, Any] = {"name": name, "kind": columns[0].kind}
    conflicts = []
    if len(kinds) > 1:
        conflicts.append("of several kinds")
        plain |= {"categories": []} if columns[0].kind == "category" else {"range": []}
    elif kinds == {"category"}:
        sets = [set(column.categories) for column in columns]
        union = list(dict.fromkeys(word for column in columns for word in column.categories))
        if any(first - second and second - first for first in sets for second in sets):
            conflicts.append("different words")
        if len({word.casefold() for word in union}) < len(union):
            conflicts, union = ["words in different letter case"], []
        plain["categories"] = union
    else:
        ends, conflicts = _hull(columns)
        is_number_somewhere = any(column.kind == "number" for column in columns)
        plain |= {"kind": "number" if is_number_somewhere else columns[0].kind, "range": ends}
        for word in [word for word in words if is_number(word)] if kinds == {"number"} else ():
            sites = [
                site
                for site, column in declared.items()
                if word not in column.missing_words and column.low <= float(word) <= column.high
            ]
            if sites:  # values of a site must not become missing without its consent
                conflicts.append(f"{word} may be a value at {', '.join(sites)}, and is missing elsewhere")
                words.remove(word)
    missing = "fill" if any(column.missing == "fill" for column in columns) else "refuse"
    return plain | ({"missing_words": words} if words else {}) | {"missing": missing, "outside": "refuse"}, conflicts


def _hull(columns: Sequence[Column]) -> tuple[list[Any], list[str]]:
    """The range that contains those of all sites; if they are far apart, no range and the reason."""
    if columns[0].kind == "date":
        days = [column.as_dict()["range"] for column in columns]
        return [min(first for first, _ in days), max(last for _, last in days)], []
    spans = [column.high - column.low for column in columns]
    lows, highs = [column.low for column in columns], [column.high for column in columns]
    if max(spans) >= 10 * min(spans) or max(lows) > min(highs):
        return [], ["ranges that differ so much that the sites may use different units"]
    return [min(lows), max(highs)], []
