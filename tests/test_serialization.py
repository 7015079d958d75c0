"""What is read back is what was written; hostile text is refused by place and kind, and never quoted."""

from __future__ import annotations

import json
import math
import traceback
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError, StorageError
from mooring.protocol.registry import list_exchanges
from mooring.serialization import Count, FloatOrNaN, OpenRecord, Record, read_record
from tests.raising import raising

SECRET = "a value that nobody may read"


@dataclass(frozen=True)
class Inner(Record):
    value: FloatOrNaN
    share: float = 0.0

    def __post_init__(self) -> None:
        if self.share > 1:
            raise InputError("share", expected="at most 1", got="more", cure="Divide by 100.")


@dataclass(frozen=True)
class Outer(Record):
    name: str
    rows: Count
    kind: Literal["classes", "number"] = "classes"
    inner: Inner | None = None
    scores: tuple[tuple[str, Inner], ...] = ()
    counts: dict[str, Count] = field(default_factory=dict)
    flag: bool | None = None


class Shape(OpenRecord):
    kind_key = "shape"


@dataclass(frozen=True)
class Circle(Shape):
    shape: ClassVar[str] = "circle"
    radius: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawing(Record):
    shapes: tuple[Shape, ...]


FINITE = st.floats(allow_nan=False, allow_infinity=False)
INNER = st.builds(Inner, FINITE, st.floats(0, 1))
OUTER = st.builds(
    Outer,
    st.text(),
    st.integers(0, 2**63 - 1),
    st.sampled_from(["classes", "number"]),
    st.none() | INNER,
    st.lists(st.tuples(st.text(), INNER)).map(tuple),
    st.dictionaries(st.text(), st.integers(0, 2**63 - 1)),
    st.none() | st.booleans(),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["name", "rows", "inner"]), inner),
)


@given(OUTER)
def test_what_was_written_is_read_back(record: Outer) -> None:
    assert Outer.from_json(record.to_json()) == record
    assert Outer.from_dict(record.as_dict()) == record
    assert json.loads(record.to_json()) == record.as_dict()


def test_what_is_undefined_is_null_in_the_file_and_nan_in_the_record() -> None:
    record = Inner(math.nan)
    assert json.loads(record.to_json()) == {"value": None, "share": 0.0}
    assert math.isnan(Inner.from_json(record.to_json()).value)


@given(JSON)
def test_any_other_json_is_refused_or_is_a_record(plain: Any) -> None:
    text = json.dumps(plain)
    with suppress(InputError):
        record = Outer.from_json(text)
        assert Outer.from_json(record.to_json()) == record


@pytest.mark.parametrize(
    ("text", "expected", "got"),
    [
        ("", "JSON", "not"), ("[" * 10_000, "JSON", "recursion"), ("[]", "a table", "a list"), ("null", "a table", "null"),
        ("{}", "'name' given", "nothing"), ('{"name": "x", "rows": 1, "more": 2}', "'more' absent", "a value"),
        ('{"name": 1, "rows": 1}', "'name' text", "a whole number"),
        (f'{{"name": "x", "rows": "{SECRET}"}}', "'rows' a whole number", "text"),
        ('{"name": "x", "rows": true}', "'rows' a whole number", "true or false"),
        ('{"name": "x", "rows": 1.0}', "'rows' a whole number", "a number"),
        ('{"name": "x", "rows": -1}', "'rows' at least 0", "smaller"),
        ('{"name": "x", "rows": 1' + "0" * 30 + "}", "'rows' below", "larger"),
        ('{"name": "x", "rows": 1, "inner": {"value": NaN}}', "'inner.value' a finite number", "NaN"),
        ('{"name": "x", "rows": 1, "inner": {"value": 1e999}}', "'inner.value' a finite number", "infinite"),
        ('{"name": "x", "rows": 1, "inner": {"value": 1, "share": null}}', "'inner.share' a number", "null"),
        ('{"name": "x", "rows": 1, "inner": {"value": 1, "share": 2}}', "'inner.share' at most 1", "a different value"),
        (f'{{"name": "x", "rows": 1, "kind": "{SECRET}"}}', "'kind' one of 'classes' or 'number'", "none of these"),
        (f'{{"name": "x", "rows": 1, "scores": [["a", "{SECRET}"]]}}', "'scores.0.1' a table", "text"),
        (f'{{"name": "x", "rows": 1, "counts": ["{SECRET}"]}}', "'counts' a table", "a list"),
        (f'{{"name": "x", "rows": 1, "flag": "{SECRET}"}}', "'flag' true or false", "text"),
    ],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_named_by_place_and_kind_and_not_quoted(
    text: str, expected: str, got: str
) -> None:
    with raising(InputError, "the record", expected=expected, got=got) as caught:
        Outer.from_json(text, what="the record", cure="Run it again.")
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert caught.value.cure == "Run it again."


def test_keys_of_others_are_shortened_and_made_printable_in_an_error() -> None:
    with raising(InputError, "Outer", expected="?[31m") as caught:
        Outer.from_dict({"name": "x", "rows": 1, "\x1b[31m" + "y" * 1000: 1})
    assert len(str(caught.value)) < 300


def test_a_file_is_read_up_to_a_size(tmp_path: Path) -> None:
    path, record = tmp_path / "outer.json", Outer("x", 3)
    path.write_text(record.to_json())
    assert read_record(Outer, path, what="the record", cure="") == record
    with raising(InputError, "the record", got="larger", cure="Run it again."):
        read_record(Outer, path, what="the record", cure="Run it again.", most_bytes=10)
    with raising(StorageError, "the record"):
        read_record(Outer, tmp_path / "none.json", what="the record", cure="")


def test_a_record_of_several_kinds_is_read_as_the_kind_that_it_names() -> None:
    drawing = Drawing((Circle(1.0, ("round",)), Circle(2.0)))
    assert drawing.as_dict()["shapes"][1] == {"shape": "circle", "radius": 2.0, "notes": []}
    assert Drawing.from_json(drawing.to_json()) == drawing
    assert Shape.from_json(drawing.shapes[0].to_json()) == drawing.shapes[0]


@pytest.mark.parametrize(
    ("plain", "expected", "got"),
    [
        (3, "'shapes.0' a table with the key shape", "a different value"),
        ({"radius": 1.0}, "'shapes.0' a table with the key shape", "a different value"),
        ({"shape": 3}, "'shapes.0' a table with the key shape", "a different value"),
        ({"shape": SECRET, "radius": 1.0}, "'shapes.0.shape' one of circle", "a different value"),
        ({"shape": "circle", "radius": SECRET}, "'shapes.0.radius' a number", "text"),
        ({"shape": "circle", "radius": 1.0, "more": 1}, "'shapes.0.more' absent", "a value"),
    ],
)
def test_a_kind_that_is_not_known_and_fields_that_do_not_fit_it_are_refused(
    plain: Any, expected: str, got: str
) -> None:
    with raising(InputError, "Drawing", expected=expected, got=got) as caught:
        Drawing.from_dict({"shapes": [plain]})
    assert SECRET not in str(caught.value)


def every_record(kind: type[Record] = Record) -> Iterator[type[Record]]:
    """Every class of records in mooring."""
    for name in ("mooring.cli.app", "mooring.report.records", "mooring.report.summary", "mooring.testing"):
        import_module(name)
    list_exchanges()
    for derived in kind.__subclasses__():
        if is_dataclass(derived) and derived.__module__.startswith("mooring."):
            yield derived
        yield from every_record(derived)


@pytest.mark.parametrize("kind", sorted(set(every_record()), key=lambda kind: kind.__qualname__))
def test_no_record_quotes_a_value_in_an_error(kind: type[Record]) -> None:
    """This holds for every field and every kind of value in its place; keys are named, since they say where the value is."""
    names = [field.name for field in fields(cast(Any, kind))]
    for wrong in (SECRET, [SECRET], {"key": SECRET}, {"key": [SECRET]}, [[SECRET]], [{"key": SECRET}], 7, True):
        for some in (names, names[:1], names[1:]):
            with suppress(InputError):
                refuse_quietly(kind, dict.fromkeys(some, wrong))


def refuse_quietly(kind: type[Record], plain: dict[str, Any]) -> None:
    try:
        kind.from_dict(plain)
    except InputError as problem:
        assert SECRET not in "".join(traceback.format_exception_only(problem))  # noqa: PT017
        assert problem.__cause__ is problem.__context__ is None  # noqa: PT017
        raise
