"""Headers of tables: what each site says of its columns before there is a study, and several of them merged to one draft.

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
# Ranges and categories come from sites' rows, widened. For sums, put what can be in their place: the guarantee assumes
# that they are public.
"""
_FEW_NUMBERS = 10  # so few distinct whole numbers may be codes
_MOST_COMPARED = 100  # names that one name is compared with
_ABOVE = """\
# The header of a table, for 'mooring study merge'. It was made from rows: ranges run from the fifth lowest value to the
# fifth highest, widened and rounded outward, and words of fewer than five rows are left out. Read it before you send it.
"""


@dataclass(frozen=True)
class Header:
    """What a site says of its columns."""

    site: str
    columns: tuple[Column, ...]
    """With ranges and categories as the site has them."""
    ids: tuple[str, ...] = ()
    """Columns that name rows."""
    undescribed: tuple[str, ...] = ()
    """Columns of which nothing is said: free text, dates in another form, hardly any values."""

    def __post_init__(self) -> None:
        require_name("site", self.site)
        Schema(self.columns, ids=(*self.ids, *self.undescribed)).require_declared()

    def render(self) -> str:
        """The file's text."""
        top = {"header": 1, "site": self.site, "ids": list(self.ids), "undescribed": list(self.undescribed)}
        columns = (column.as_dict() for column in self.columns)
        return _ABOVE + render_table(top) + "".join(f"\n[[columns]]\n{render_declaration(one)}" for one in columns)

    @cached_property
    def by_name(self) -> dict[str, Column]:
        """The columns that are described."""
        return {column.name: column for column in self.columns}

    @cached_property
    def described(self) -> dict[str, str]:
        """What is said of each column, in a few words."""
        found = dict.fromkeys(self.ids, "id") | dict.fromkeys(self.undescribed, "not described")
        for name, one in self.by_name.items():
            words = f" (missing: {', '.join(one.missing_words)})" if one.missing_words else ""
            found[name] = f"{one.kind}, {one.described}{words}"
        return found


def read_header(path: str | Path) -> Header:
    """Read a header that somebody sent; everything is checked, within a study's bounds."""
    plain = parse_study(read_text(Path(path)))
    require_known("header", plain, {"header", "site", "ids", "undescribed", "columns"})
    lists = [plain.get(key, []) for key in ("ids", "undescribed")]
    if plain.get("header") != 1 or not all(
        isinstance(one, list) and all(isinstance(name, str) for name in one) for one in lists
    ):
        expected = "one that 'mooring study header' wrote"
        raise InputError("header", expected=expected, got="something else", cure="Ask for it again.")
    return Header(plain.get("site", ""), declared_columns(plain), *map(tuple, lists))


def infer_header(data: TableSource, *, site: str, categorical: Collection[str] = ()) -> tuple[Header, tuple[str, ...]]:
    """Describe a table from its rows, which are read into memory.

    Parameters
    ----------
    categorical : collection of str
        Columns whose numbers are codes.

    Returns
    -------
    header : Header
    notes : tuple of str
        What was done with columns that are not plain, for the site alone.
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
    """A column as several sites have it, and as the draft does."""

    name: str
    sites: dict[str, str]
    """What each site says of it; empty where it has none."""
    conflicts: tuple[str, ...]
    """What somebody has to settle; empty where the sites agree."""
    plain: dict[str, Any] | None
    """Its entries in the draft, an open one being an empty list; None if it is left out."""


def merge_headers(headers: Sequence[Header]) -> tuple[MergedColumn, ...]:
    """Every column that some site has, with what the sites do not agree on."""
    if len({header.site for header in headers}) < max(2, len(headers)):
        raise InputError("headers", expected="two or more, of different sites", got="others", cure="Give each once.")
    everywhere = set.intersection(*(set(header.described) for header in headers))
    apart = {header.site: [one for one in header.described if one not in everywhere] for header in headers}
    names = dict.fromkeys(name for header in headers for name in header.described)
    return tuple(_merge(name, headers, apart) for name in names)


def draft_merged(merged: Sequence[MergedColumn], *, name: str, label: str | None) -> str:
    """Draft a study from merged columns.

    Parameters
    ----------
    label : str, optional
        The column to predict.
    """
    plain = {one.name: dict(one.plain) for one in merged if one.plain is not None}
    if label is not None and label not in plain:
        raise InputError("--label", expected="a column that a site describes", got=repr(label), cure="Check the names.")
    own = plain.pop(label) if label is not None else {}
    if own.get("kind") in ("date", "age"):
        raise InputError(
            "--label", expected="a class or a number", got=f"a {own['kind']}", cure="Choose another column."
        )
    entries = {"kind": "classes" if "categories" in own else "number", "column": label} if own else {"kind": "none"}
    entries |= {"classes": own["categories"]} if "categories" in own else {"range": own["range"]} if own else {}
    ids = [one.name for one in merged if "id" in one.sites.values()]
    return _MERGED + render_draft(name, list(plain.values()), entries, ids, DraftSettings())


def _merge(name: str, headers: Sequence[Header], apart: Mapping[str, Sequence[str]]) -> MergedColumn:
    """One column; `apart` are the names that not all sites have."""
    said = {header.site: header.described.get(name, "") for header in headers}
    own = {header.site: header.by_name[name] for header in headers if name in header.by_name}
    conflicts = []
    for words in ("not described", "id") if own else ():
        sites = [site for site, found in said.items() if found == words]
        conflicts += [f"{words} at {', '.join(sites)}"] if sites else []
    for site in (site for site, words in said.items() if not words):
        others = {one.casefold(): one for one in apart[site][:_MOST_COMPARED]}
        near = get_close_matches(name.casefold(), others, n=1)
        conflicts.append(f"not at {site}" + (f", which has {others[near[0]]!r}" if near else ""))
    if not own or any(words == "id" for words in said.values()):
        return MergedColumn(name, said, tuple(conflicts), None)
    plain, found_conflicts = _reconcile(name, own)
    return MergedColumn(name, said, (*conflicts, *found_conflicts), plain)


def _reconcile(name: str, own: Mapping[str, Column]) -> tuple[dict[str, Any], list[str]]:
    """The entries of a column that several sites describe, and what they do not agree on, which stays open."""
    columns = list(own.values())
    kinds = {"number" if one.kind == "integer" else one.kind for one in columns}
    words = list(dict.fromkeys(word for one in columns for word in one.missing_words))
    plain: dict[str, Any] = {"name": name, "kind": columns[0].kind}
    conflicts = []
    if len(kinds) > 1:
        conflicts.append("of several kinds")
        plain |= {"categories": []} if columns[0].kind == "category" else {"range": []}
    elif kinds == {"category"}:
        sets = [set(one.categories) for one in columns]
        union = list(dict.fromkeys(word for one in columns for word in one.categories))
        if any(one - other and other - one for one in sets for other in sets):
            conflicts.append("different words")
        if len({word.casefold() for word in union}) < len(union):
            conflicts, union = ["words in different letter case"], []
        plain["categories"] = union
    else:
        ends, conflicts = _hull(columns)
        plain |= {"kind": "number" if "number" in {one.kind for one in columns} else columns[0].kind, "range": ends}
        for word in [word for word in words if is_number(word)] if kinds == {"number"} else ():
            inside = {
                site: one.low <= float(word) <= one.high for site, one in own.items() if word not in one.missing_words
            }
            if any(inside.values()):  # nobody's values become missing unasked
                sites = ", ".join(site for site, holds in inside.items() if holds)
                conflicts.append(f"{word} may be a value at {sites}, and is missing elsewhere")
                words.remove(word)
    missing = "fill" if any(one.missing == "fill" for one in columns) else "refuse"
    return plain | ({"missing_words": words} if words else {}) | {"missing": missing, "outside": "refuse"}, conflicts


def _hull(columns: Sequence[Column]) -> tuple[list[Any], list[str]]:
    """A range around those of all sites; none, and why, where they are far apart."""
    if columns[0].kind == "date":
        days = [one.as_dict()["range"] for one in columns]
        return [min(first for first, _ in days), max(last for _, last in days)], []
    spans = [one.high - one.low for one in columns]
    if max(spans) >= 10 * min(spans) or max(one.low for one in columns) > min(one.high for one in columns):
        return [], ["ranges of another size: perhaps another unit"]
    return [min(one.low for one in columns), max(one.high for one in columns)], []
