"""Formulas: what R and statsmodels write is read, and what needs more than pairs of columns is refused by name."""

from __future__ import annotations

import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.formula import FormulaTerm, parse_formula

COLUMNS = ["y", "age", "crp", "ward", "education-num", "blood pressure", "a+b"]


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("y ~ age + ward", [("age", "as declared"), ("ward", "as declared")]),
        ("y~1+age", [("age", "as declared")]),
        ("y ~ education-num", [("education-num", "as declared")]),
        ("y ~ `blood pressure` + `a+b`", [("blood pressure", "as declared"), ("a+b", "as declared")]),
        ("y ~ Q('blood pressure') + C(ward)", [("blood pressure", "as declared"), ("ward", "category")]),
        ("y ~ np.log(crp) + factor(ward)", [("crp", "log"), ("ward", "category")]),
        ("y ~ log(`a+b`)", [("a+b", "log")]),
        ("y ~ .", [(name, "log" if name == "crp" else "as declared") for name in COLUMNS[1:]]),
        ("y ~ log(crp) + .", [("crp", "log"), *((name, "as declared") for name in COLUMNS[1:] if name != "crp")]),
        ("y ~ age + age", [("age", "as declared")]),
    ],
)
def test_a_formula_is_read(text: str, terms: list[tuple[str, str]]) -> None:
    formula = parse_formula(text, COLUMNS, ["crp"])
    assert formula.outcome == FormulaTerm("y")
    assert [(term.column, term.form) for term in formula.terms] == terms


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("y ~ age*ward", "age*ward"),
        ("y ~ age:ward", "age:ward"),
        ("y ~ `blood pressure`:ward", "`blood pressure`:ward"),
        ("y ~ I(age**2)", "I(age**2)"),
        ("y ~ age^2", "age^2"),
        ("y ~ poly(age, 2)", "poly(age, 2)"),
        ("y ~ sqrt(age)", "sqrt"),
        ("y ~ height", "height"),
        ("y ~ age + y", "'y'"),
        ("y ~ crp + log(crp)", "'crp'"),
        ("y ~ `no such`", "no such"),
        ("death ~ age", "death"),
    ],
)
def test_what_cannot_be_computed_is_refused_by_name(text: str, named: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_formula(text, COLUMNS)
    assert caught.value.what == "formula"
    assert named in caught.value.problem


def test_of_a_long_formula_the_beginning_is_quoted() -> None:
    for text, quoted in (("y" * 200, "y" * 80), ("y ~ " + "x" * 200, "x" * 60), ("y ~ " + "x" * 200 + ":y", "x" * 60)):
        with pytest.raises(InputError) as caught:
            parse_formula(text, COLUMNS)
        assert repr(quoted) in f"{caught.value.got} {caught.value.problem}"


@pytest.mark.parametrize("text", ["y", "y ~", "~ age", "y ~ age ~ ward", "y ~ 1", "y ~ 0 + age", "y ~ age - 1", ""])
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_formula(text, COLUMNS)
    assert caught.value.what == "formula"
