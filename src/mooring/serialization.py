"""Base classes for results as typed values that are written as JSON and read back, and their HTML in notebooks."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from mooring.atomic_io import read_bounded
from mooring.errors import InputError, RefusedError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

__all__ = [
    "Count",
    "FloatOrNaN",
    "OpenRecord",
    "Record",
    "Rows",
    "explain_validation",
    "read_entries",
    "read_record",
    "render_html",
]

Rows = Sequence[Sequence[str]]
"""Rows of a table as text; the first row holds the headings."""
MOST_BYTES = 64 * 2**20
"""The largest record that is read, unless a caller allows more."""
_LONGEST_KEY = 60
_MOST_BITS = 10_000


class _NaNAsNull:
    """Writes NaN as null, which JSON has, and reads null as NaN."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_wrap_validator_function(
            lambda value, validate: math.nan if value is None else validate(value),
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda value: None if math.isnan(value) else value
            ),
        )


class _CountBounds:
    """Bounds an integer, so that no file makes arithmetic or printing slow."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.int_schema(ge=0, lt=2**63, strict=True)


FloatOrNaN = Annotated[float, _NaNAsNull()]
"""A number of a record that is NaN where it is undefined."""
Count = Annotated[int, _CountBounds()]
"""A number of rows, participants or steps in a record: from 0, and below 2⁶³."""


class Record:
    """A frozen dataclass that is written as JSON and read back, checked field by field.

    Fields are text, numbers, tuples, mappings, None, or other dataclasses. A file must have every field that has no default,
    and no unknown fields. Numbers must be finite, and values are not converted to other types. Annotate a number that may
    be NaN as `FloatOrNaN`.

    A subclass may name properties in `computed`. These are written before the fields, for readers of the file. When
    a file is read they are ignored, because the record computes them again.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Reading(Record):
    ...     value: FloatOrNaN
    ...     notes: tuple[str, ...] = ()
    >>> Reading(math.nan, ("late",)).as_dict()
    {'value': None, 'notes': ['late']}
    >>> Reading.from_dict({"value": None})
    Reading(value=nan, notes=())
    """

    __pydantic_config__: ClassVar[Mapping[str, Any]] = {
        "strict": True,
        "extra": "forbid",
        "frozen": True,
        "allow_inf_nan": False,
        "hide_input_in_errors": True,
    }

    computed: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: the computed ones, then those of the fields in their order."""
        plain: dict[str, Any] = _adapter(type(self)).dump_python(self, mode="json")
        values = {name: getattr(self, name) for name in self.computed}
        return {name: value.as_dict() if isinstance(value, Record) else value for name, value in values.items()} | plain

    def to_json(self) -> str:
        """Return JSON text: the computed values, then those of the fields in their order."""
        from pydantic_core import to_json

        return to_json(self.as_dict(), indent=1).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, what: str = "", cure: str = "Pass what to_json returned.") -> Self:
        """Read what `to_json` returned; in errors, the record is called `what`, and `cure` says what to do."""
        from pydantic import ValidationError

        try:
            record: Self = _adapter(cls).validate_json(_without(text, cls.computed) if cls.computed else text)
        except ValidationError as problem:
            where, expected, got = explain_validation(problem)
        else:
            return record
        what = what or cls.__name__
        if not where:
            raise InputError(what, expected=expected, got=got, cure=cure)
        sentence = f"'{where}' in {what} must be {expected}, got {got}."
        raise InputError(what, expected=f"'{where}' {expected}", got=got, cure=cure, problem=sentence)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], *, what: str = "", cure: str = "Pass what as_dict returned.") -> Self:
        """Read what `as_dict` returned; `what` and `cure` are as for `from_json`."""
        from pydantic_core import to_json

        return cls.from_json(to_json(plain), what=what, cure=cure)


class OpenRecord(Record):
    """A record of several kinds. Each kind is a subclass, and other packages may define further kinds.

    A class that derives from OpenRecord directly is the base of its kinds, and may set `kind_key`, the name of a class
    variable. Each kind sets this class variable to the name of the kind. The name is written beside the fields, and a file
    is read as the kind that the file names. If no such kind is loaded, `read_unknown` is called.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> class Shape(OpenRecord):
    ...     kind_key = "shape"
    >>> @dataclass(frozen=True)
    ... class Circle(Shape):
    ...     shape: ClassVar[str] = "circle"
    ...     radius: float
    >>> Circle(2.0).as_dict()
    {'shape': 'circle', 'radius': 2.0}
    >>> Shape.from_dict({"shape": "circle", "radius": 2.0})
    Circle(radius=2.0)
    """

    kind_key: ClassVar[str] = "kind"
    _kinds: ClassVar[dict[str, type[OpenRecord]]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if OpenRecord in cls.__bases__:
            cls._kinds = {}
        elif (name := getattr(cls, cls.kind_key, "")) and isinstance(name, str):
            cls._kinds[name] = cls

    @classmethod
    def read_unknown(cls, name: str, fields: Mapping[str, Any]) -> Self:
        """Read a kind that is not loaded; by default it is refused."""
        known = ", ".join(cls._kinds)
        cure = "Import the package that defines it."
        raise InputError(cls.kind_key, expected=f"one of {known}", got="none of these", cure=cure)

    def as_dict(self) -> dict[str, Any]:
        """Return the kind and the plain values, in the order of the fields."""
        return {self.kind_key: getattr(self, self.kind_key), **super().as_dict()}

    @classmethod
    def from_json(cls, text: str | bytes, *, what: str = "", cure: str = "Pass what to_json returned.") -> Self:
        """Read what `to_json` returned, as the kind that the text names. This kind must be this class or derive from it."""
        base = next(kind for kind in cls.__mro__ if OpenRecord in kind.__bases__)
        record = Record.from_json.__func__(base, text, what=what, cure=cure)  # type: ignore[attr-defined]
        if not isinstance(record, cls):
            expected = f"'{cls.kind_key}' {getattr(cls, cls.kind_key)}"
            raise InputError(
                what or cls.__name__, expected=expected, got=f"{getattr(record, cls.kind_key)!r}", cure=cure
            )
        return record

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        if OpenRecord not in cls.__bases__:
            return handler(source)
        return core_schema.no_info_plain_validator_function(
            cls._read_kind,
            serialization=core_schema.plain_serializer_function_ser_schema(lambda record: record.as_dict()),
        )

    @classmethod
    def _read_kind(cls, plain: object) -> Any:
        if isinstance(plain, cls):
            return plain
        name = plain.get(cls.kind_key) if isinstance(plain, dict) else None
        if not isinstance(plain, dict) or not isinstance(name, str):
            got = "a table without this key" if isinstance(plain, dict) else _name_kind(plain)
            raise InputError("", expected=f"a table with the key {cls.kind_key}", got=got, cure="")
        from pydantic_core import to_json

        fields = {key: value for key, value in plain.items() if key != cls.kind_key}
        kind = cls._kinds.get(name)
        return cls.read_unknown(name, fields) if kind is None else _adapter(kind).validate_json(to_json(fields))


def _without(text: str | bytes, names: Sequence[str]) -> str | bytes:
    """Return the JSON text of a table without some of its keys; other text is unchanged, for the validator to refuse."""
    from pydantic_core import from_json, to_json

    try:
        plain = from_json(text)
    except ValueError:
        return text
    if not isinstance(plain, dict):
        return text
    return to_json({name: value for name, value in plain.items() if name not in names})


R = TypeVar("R", bound=Record)


def read_record(kind: type[R], path: Path, *, what: str, cure: str, most_bytes: int = MOST_BYTES) -> R:
    """Read a file that holds one record; in errors, the record is called `what`, and `cure` says what to do.

    A file that is larger than `most_bytes` or does not hold such a record raises an `InputError`, which names the place and
    never the value. A file that is missing or cannot be read raises a `StorageError`.
    """
    try:
        text = read_bounded(path, most_bytes, what=what)
    except RefusedError as problem:
        raise InputError(what, expected="a record that mooring wrote", got=problem.reason, cure=cure) from None
    return kind.from_json(text, what=what, cure=cure)


def _has_huge_integer(value: object) -> bool:
    """Return whether tomllib read an integer that has so many digits that printing it would take seconds."""
    if isinstance(value, Mapping):
        return any(map(_has_huge_integer, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_has_huge_integer, value))
    return isinstance(value, int) and value.bit_length() > _MOST_BITS


def read_entries(kind: type[R], entries: Mapping[str, Any], *, what: str, cure: str, within: str = "") -> R:
    """Read what a person wrote, such as a table of a TOML file, as a record.

    An entry that is missing, unknown or of the wrong type raises an `InputError`, which names the entry and never its value.
    The error calls the whole table `what` and a single entry "entry of `within`", for example "range of column 'age'";
    `cure` says what to do. An `InputError` that the record itself raises is passed on.
    """
    from pydantic import ValidationError
    from pydantic_core import PydanticSerializationError, to_json

    if _has_huge_integer(entries):  # hexadecimal text is not bounded by Python, and its decimal form takes seconds
        got = "a whole number that is too large"
        raise InputError(what, expected="numbers of a usable size", got=got, cure=cure)
    try:
        record: R = _adapter(kind).validate_json(to_json(entries))
    except PydanticSerializationError:
        got = "values of other types, such as dates"
        raise InputError(what, expected="text, numbers, lists and tables", got=got, cure=cure) from None
    except ValidationError as problem:
        inner = problem.errors(include_url=False)[0].get("ctx", {}).get("error")
        if isinstance(inner, InputError):
            raise inner from None
        where, expected, got = explain_validation(problem)
        if problem.errors()[0]["type"] == "json_invalid":
            where, expected, got = "", "numbers of a usable size", "a whole number that is too large"
        where = re.sub(r"(\.\d+)+$", "", where)
        entry = f"{where} of {within}" if where and within else where or what
        raise InputError(entry, expected=expected, got=got, cure=cure) from None
    return record


def explain_validation(problem: ValidationError) -> tuple[str, str, str]:
    """Return the place of the first error of a validation, what was expected there, and the kind of value that was found.

    The place is a path such as 'participants.3.name', or empty for the whole record. No value is quoted.
    """
    first = problem.errors(include_url=False)[0]
    context = first.get("ctx", {})
    where = ".".join(map(_shorten_key, first["loc"]))
    if isinstance(inner := context.get("error"), InputError):
        return ".".join(filter(None, (where, inner.what))), inner.expected or "valid", "a different value"
    match first["type"]:
        case "missing":
            return where, "given", "nothing"
        case "extra_forbidden" | "unexpected_keyword_argument":
            return where, "absent, since no such key is known", "a value"
        case "json_invalid":
            return where, "JSON", f"text that is not ({context['error']})"
        case "literal_error" | "enum":
            return where, f"one of {context['expected']}", "none of these"
        case "finite_number":
            return where, "a finite number", "NaN, an infinite or a very large number"
        case "greater_than_equal" | "greater_than":
            bound = context.get("ge", context.get("gt"))
            return where, f"{'at least' if 'ge' in context else 'above'} {bound}", "a smaller number"
        case "less_than_equal" | "less_than":
            bound = context.get("le", context.get("lt"))
            return where, f"{'at most' if 'le' in context else 'below'} {bound}", "a larger number"
        case "dataclass_type" | "dict_type" | "model_type":
            expected = "a table"
        case "tuple_type" | "list_type":
            expected = "a list"
        case "string_type":
            expected = "text"
        case "int_type" | "int_from_float":
            expected = "a whole number"
        case "float_type":
            expected = "a number"
        case "bool_type":
            expected = "true or false"
        case _:
            expected = first["msg"].removeprefix("Input should be ")
    return where, expected, _name_kind(first["input"])


def _shorten_key(key: int | str) -> str:
    text = str(key)
    shown = "".join(letter if letter.isprintable() else "?" for letter in text[:_LONGEST_KEY])
    return shown if len(text) <= _LONGEST_KEY else f"{shown}…"


def _name_kind(value: object) -> str:
    kinds = {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        dict: "a table",
        list: "a list",
    }
    return "null" if value is None else kinds.get(type(value), f"a value of type {type(value).__name__}")


_ADAPTERS: dict[type[Record], TypeAdapter[Any]] = {}


def _adapter(kind: type[Record]) -> TypeAdapter[Any]:
    """Return the validator of a class; it is kept, because making it takes milliseconds."""
    if kind not in _ADAPTERS:
        from pydantic import TypeAdapter

        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


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
