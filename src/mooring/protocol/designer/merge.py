"""One draft of a study from the headers of several sites, with everything on which the sites differ."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mooring.errors import InputError
from mooring.protocol.designer.draft import DraftSettings, render_draft
from mooring.protocol.designer.header import Header
from mooring.tables.cells import is_number
from mooring.tables.schema import Column, require_column
from mooring.tables.suggestion import WordMatcher

_MOST_MISSPELT = 1000  # a site with more names is not searched for misspelt names
_LONGEST_COMPARED = 40
_MOST_ALIKE = 60  # a site with more unmatched columns is not searched for columns with the same content
_LEAST_OVERLAP = 0.8  # columns may be the same if their ranges overlap in at least this share of the union


@dataclass(frozen=True)
class MergedColumn:
    """A column as the sites describe it, and as it is in the draft."""

    name: str
    sites: dict[str, str]
    """By site: its description of the column; empty for a site without the column."""
    conflicts: tuple[str, ...]
    """Differences on which a person must decide; empty if the sites agree."""
    plain: dict[str, Any] | None
    """The column's entries in the draft, with an empty list for an open entry; None if it is left out."""


def merge_headers(headers: Sequence[Header]) -> tuple[MergedColumn, ...]:
    """Return all columns of all sites, each with the differences between the sites."""
    n_sites = len({header.site for header in headers})
    if n_sites < max(2, len(headers)):
        problem = (
            f"Two headers or more of different sites are needed, and there are {len(headers)}, of {n_sites} sites."
        )
        raise InputError("headers", problem=problem, cure="Give one header per site.")
    everywhere = set.intersection(*(set(header.described) for header in headers))
    apart = {header.site: [name for name in header.described if name not in everywhere] for header in headers}
    misspelt = max(map(len, apart.values())) <= _MOST_MISSPELT
    forms = {name: _list_forms(name, misspelt=misspelt) for names in apart.values() for name in names}
    near = {site: {form: name for name in reversed(names) for form in forms[name]} for site, names in apart.items()}
    all_names = dict.fromkeys(name for header in headers for name in header.described)
    near_names = {
        name: {site: _find_near(forms.get(name, ()), known) for site, known in near.items()} for name in all_names
    }
    alike = {header.site: _pair_by_content(header, headers, near_names) for header in headers}
    return tuple(
        _merge(name, headers, near_names[name], {site: pairs.get(name, "") for site, pairs in alike.items()})
        for name in all_names
    )


def _pair_by_content(
    header: Header, headers: Sequence[Header], near: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """Map each column that the site lacks to the site's column with the same content, if neither matches another column.

    The mapping is empty if there are too many columns to compare.
    """
    lacking = {
        name: other
        for other in headers
        for name in other.by_name
        if name not in header.described and not near[name][header.site]
    }
    used = {sites[header.site] for name, sites in near.items() if name not in header.described}
    everywhere = set.intersection(*(set(other.described) for other in headers))
    free = [column for name, column in header.by_name.items() if name not in used and name not in everywhere]
    if max(len(lacking), len(free)) > _MOST_ALIKE:
        return {}
    pairs = [
        (name, column.name)
        for name, other in lacking.items()
        for column in free
        if column.name not in other.described and _hold_the_same(other.by_name[name], column)
    ]
    count = Counter(side for pair in pairs for side in enumerate(pair))
    return {name: source for name, source in pairs if count[0, name] == count[1, source] == 1}


def _hold_the_same(column: Column, other: Column) -> bool:
    """Whether two columns may have the same meaning: they hold words for the same categories, or nearly the same range."""
    if "category" in (column.kind, other.kind):
        if column.kind != other.kind:
            return False
        matcher = WordMatcher(column.categories)
        matches = {matcher.match(word) for word in other.categories}
        return "" not in matches and len(matches) == len(other.categories) > 1
    if column.is_date is not other.is_date or (column.kind in ("date", "age") and column.kind != other.kind):
        return False
    both = min(column.high, other.high) - max(column.low, other.low)
    return both >= _LEAST_OVERLAP * (max(column.high, other.high) - min(column.low, other.low))


def _find_near(forms: Sequence[str], known: Mapping[str, str]) -> str:
    """Return the first known name that has one of these forms; empty if there is none."""
    return next((known[form] for form in forms if form in known), "")


def _list_forms(name: str, *, misspelt: bool) -> list[str]:
    """Return forms of a name: its letters, its sorted words and, if `misspelt`, its letters without one of them.

    Names that differ in letter case, signs or the order of words share a form. With `misspelt`, so do longer names that
    differ in a letter or two.
    """
    words = re.findall(r"[^\W_]+", name.casefold())
    letters = "".join(words)[:_LONGEST_COMPARED]
    forms = [letters, " ".join(sorted(words))]
    return (
        forms + [letters[:k] + letters[k + 1 :] for k in range(len(letters))]
        if misspelt and len(letters) > 3
        else forms
    )


def draft_merged(
    merged: Sequence[MergedColumn], *, name: str, label: str | None, mechanism: Mapping[str, Any] | None = None
) -> str:
    """Draft a study from merged columns; `label` is the column to predict, if any.

    `mechanism` holds entries of [mechanism] with the mechanism's name; by default the mechanism is rotation. The column that
    it names as that of persons is not one of the study's columns.
    """
    settings = DraftSettings() if mechanism is None else DraftSettings(mechanism=mechanism)
    person = str(settings.entries.get("person", ""))
    if person:
        require_column("--person", person, [column.name for column in merged])
    merged = [column for column in merged if column.name != person]
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
    from_rows = [column.name for column in merged if column.plain is not None and [] not in column.plain.values()]
    return render_draft(name, list(plain.values()), entries, ids, replace(settings, from_rows=from_rows))


def _merge(name: str, headers: Sequence[Header], near: Mapping[str, str], alike: Mapping[str, str]) -> MergedColumn:
    """Merge the column `name`; for sites that lack it, `near` and `alike` hold columns with a similar name or content."""
    descriptions = {header.site: header.described.get(name, "") for header in headers}
    declared = {header.site: header.by_name[name] for header in headers if name in header.by_name}
    conflicts = []
    for words in ("not described", "id") if declared else ():
        sites = [site for site, description in descriptions.items() if description == words]
        conflicts += [f"{words} at {', '.join(sites)}"] if sites else []
    for site in (site for site, description in descriptions.items() if not description):
        hint = f", which has {near[site]!r}" if near[site] else ""
        hint = f", where {alike[site]!r} looks the same by its content" if alike[site] else hint
        conflicts.append(f"not at {site}{hint}")
    if not declared or "id" in descriptions.values():
        return MergedColumn(name, descriptions, tuple(conflicts), None)
    plain, differences = _reconcile(name, declared)
    return MergedColumn(name, descriptions, (*conflicts, *differences), plain)


def _reconcile(name: str, declared: Mapping[str, Column]) -> tuple[dict[str, Any], list[str]]:
    """Return the entries of a column that sites declare, and the differences; what differs too much is left open."""
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
        if kinds == {"number"}:
            doubtful = _find_doubtful(words, declared)
            conflicts += [
                f"{word} may be a value at {', '.join(sites)}, and stands for a missing value elsewhere"
                for word, sites in doubtful.items()
            ]
            words = [word for word in words if word not in doubtful]
    missing = "fill" if any(column.missing == "fill" for column in columns) else "refuse"
    return plain | ({"missing_words": words} if words else {}) | {"missing": missing, "outside": "refuse"}, conflicts


def _find_doubtful(words: Sequence[str], declared: Mapping[str, Column]) -> dict[str, list[str]]:
    """Return the missing words that may be values at other sites, each with these sites; a person must decide."""
    known = {site: frozenset(column.missing_words) for site, column in declared.items()}
    sites_of = {
        word: [
            site
            for site, column in declared.items()
            if word not in known[site] and column.low <= float(word) <= column.high
        ]
        for word in words
        if is_number(word)
    }
    return {word: sites for word, sites in sites_of.items() if sites}


def _hull(columns: Sequence[Column]) -> tuple[list[Any], list[str]]:
    """Return the range that contains the ranges of all sites and no conflict; if they differ much, no range and why."""
    if columns[0].kind == "date":
        days = [column.as_dict()["range"] for column in columns]
        return [min(first for first, _ in days), max(last for _, last in days)], []
    spans = [column.high - column.low for column in columns]
    lows, highs = [column.low for column in columns], [column.high for column in columns]
    if max(spans) >= 10 * min(spans) or max(lows) > min(highs):
        return [], ["ranges that differ so much that the sites may use different units"]
    return [min(lows), max(highs)], []
