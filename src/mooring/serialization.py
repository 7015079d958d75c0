"""Conversion of results to plain values for JSON and back, and to HTML for notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from html import escape
from types import NoneType
from typing import Any, Self, get_args, get_origin, get_type_hints

from mooring.errors import InputError

__all__ = ["Rows", "Serializable", "render_html"]

Rows = Sequence[Sequence[str]]
"""Rows of a table as text; the first row holds the headings."""


class Serializable:
    """A frozen dataclass that converts to a dictionary of plain values and back.

    Fields are text, numbers, lists, mappings, other dataclasses, tuples of these, or None. NaN, which JSON lacks, is written
    as None.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Reading(Serializable):
    ...     value: float
    ...     notes: tuple[str, ...] = ()
    >>> Reading(math.nan, ("late",)).as_dict()
    {'value': None, 'notes': ['late']}
    >>> Reading.from_dict({"value": None})
    Reading(value=nan, notes=())
    """

    def as_dict(self) -> dict[str, Any]:
        """Return plain values in the order of the fields."""
        return {field.name: _to_plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Return the object from the result of `as_dict`. Fields with a default may be absent; other keys are ignored."""
        result: Self = _from_plain(cls, plain)
        return result


def _to_plain(value: Any) -> Any:
    if is_dataclass(value):
        return Serializable.as_dict(value)  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        return {name: _to_plain(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [_to_plain(part) for part in value]
    return None if isinstance(value, float) and math.isnan(value) else value


def _from_plain(kind: Any, plain: Any) -> Any:
    arguments = get_args(kind)
    if NoneType in arguments:
        return None if plain is None else _from_plain(arguments[0], plain)
    if kind is float:
        return math.nan if plain is None else float(plain)
    if get_origin(kind) is tuple:
        return tuple(_from_plain(arguments[0], part) for part in plain)
    if get_origin(kind) is dict:
        return {name: _from_plain(arguments[1], part) for name, part in plain.items()}
    return _read_dataclass(kind, plain) if is_dataclass(kind) else plain


def _read_dataclass(kind: Any, plain: Any) -> Any:
    types = _field_types(kind)
    needed = [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    if not isinstance(plain, Mapping) or not set(needed) <= set(plain):
        raise InputError(
            kind.__name__,
            expected=f"a mapping with the keys {', '.join(needed)}",
            got=f"the keys {', '.join(map(str, plain)) or '(none)'}"
            if isinstance(plain, Mapping)
            else type(plain).__name__,
            cure="Pass the result of as_dict.",
        )
    return kind(**{name: _from_plain(types[name], plain[name]) for name in types if name in plain})


@cache
def _field_types(kind: Any) -> dict[str, Any]:
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in fields(kind)}


def count_noun(n: int, singular: str, plural: str = "") -> str:
    """Return a number with its noun: '1 row', '2 rows', '1 row fits', '2 rows fit'."""
    return f"{n} {singular if n == 1 else plural or singular + 's'}"


def drop_empty_columns(table: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Return a table without the columns that are empty below their heading.

    Examples
    --------
    >>> drop_empty_columns([("x", "y"), ("1", ""), ("2", "")])
    [('x',), ('1',), ('2',)]
    """
    kept = [k for k in range(len(table[0])) if any(row[k] for row in table[1:])]
    return [tuple(row[k] for k in kept) for row in table]


def render_html(*sentences: str, tables: Sequence[Rows] = ()) -> str:
    """Return paragraphs, the first in bold, and tables as HTML. All text is escaped.

    Examples
    --------
    >>> render_html("a < b", tables=[[("x",), ("1",)]])
    '<p><b>a &lt; b</b></p><table><tr><th>x</th></tr><tr><td>1</td></tr></table>'
    """
    first, *others = [escape(sentence) for sentence in sentences if sentence] or [""]
    lines = [f"<p><b>{first}</b></p>" if first else "", *(f"<p>{sentence}</p>" for sentence in others)]
    for headings, *rows in map(drop_empty_columns, tables):
        cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
        top = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
        lines.append("<table>" + "".join(f"<tr>{line}</tr>" for line in (top, *cells)) + "</table>")
    return "".join(lines)
