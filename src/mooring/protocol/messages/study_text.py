"""Writing of a study's file: TOML with comments for people, in which open entries of a draft are marked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from mooring.mechanisms.settings import MechanismSettings

TODO = "# TODO:"
"""Marks the lines of a draft that are still open."""
_OPEN = {
    "range": f"[]  {TODO} lowest and highest possible value, such as [0, 120]; words need kind and categories instead",
    "days": f'[]  {TODO} first and last possible day, for example ["2000-01-01", "2026-12-31"]',
    "at": f'""  {TODO} a public day at which ages are counted, for example "2026-01-01"',
    "categories": f'[]  {TODO} every word that can occur, for example ["female", "male"]',
    "classes": f'[]  {TODO} every class, for example ["no", "yes"]',
}
_HEAD = """\
# A study of mooring: everybody who takes part holds this file, and nothing in it is secret.
# Compare its fingerprint by telephone before you share: mooring study show --study FILE
"""
_ROWS = """\
# missing_words stand for a missing value in every column, besides "?", "NA", "NaN", "null" and empty cells.
# ids name rows: they are never shared, and appear beside predictions.
# A participant that has rows of a class, but fewer than smallest_class, does not share.
"""
_LIMITS = "# What attacks on an upload ('mooring check') and on the model ('mooring deliver') may find.\n"
_NO_LIMITS = """
# [limits] may bound what attacks find. For uploads ('mooring check'): uploads = ["error at least 0.5"], or with secure sums
# ["epsilon at most 1"]. For the model ('mooring deliver'): model = "membership at most 5 %".
"""
_RANGES = """\
# Columns whose ranges or categories were taken from the sites' rows. Take a column out once you have replaced its range or
# categories by what is publicly known to be possible, or let a person confirm that all of them are public:
# confirmed = "NAME: REASON". Until then, secure sums carry no guarantee, since a guarantee assumes that ranges are public.
"""
_LABEL = """\
# What is predicted: kind = "classes" with the names of the classes, "number" with a range, or "none". {}.
"""
_COLUMNS = """\
# Columns, in the order of the encoded rows. Ranges and categories should follow from what a column means, not from
# data. missing = "refuse", "fill" (with the middle of the range or, for words, with no category) or "indicate" (as "fill",
# and a further column marks it); outside = "refuse" or "clip". missing_words of a column hold in that column only.
# kind = "date" has a range of days, ["2000-01-01", "2026-12-31"]; kind = "age" is a date of birth, taken as the age in years
# at a public day: at = "2026-01-01", range = [0, 110].
"""
_ROSTER = """\
# Who takes part, by public keys. 'mooring study enrol' enters them from the cards that 'mooring join' writes.
"""


def render_study(
    plain: Mapping[str, Any], *, above: str = "", below: str = "", remarks: Mapping[str, str] | None = None
) -> str:
    """Return the values of `Study.as_dict` as commented TOML; `Study.read` reads the same study from it.

    In a draft, open entries are empty lists. `above` and `below` are comments around the entries
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
        "\n[label]\n"
        + _LABEL.format("The analyst sees all labels" if mechanism.shows_labels else "Labels are not shared"),
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
    """Return a key that is equal for columns that share one table; a column with an open entry has its own."""
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
    """Return the items of a list in lines of up to a hundred characters; longer items have their own line.

    Lines do not end with a comma.
    """
    lines, line = [], ""
    for word in words:
        if line and len(line) + len(word) > 100:
            lines.append(line)
            line = ""
        line += f", {word}" if line else word
    return [*lines, line]
