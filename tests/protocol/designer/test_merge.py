"""Which names and contents of two sites' columns are taken for the same, and which words for values, at their limits."""

from typing import Any

import pytest

from mooring.errors import InputError
from mooring.protocol.designer.header import Header
from mooring.protocol.designer.merge import MergedColumn, draft_merged, merge_headers
from mooring.protocol.messages.study_file import parse_study
from mooring.tables.schema import Column
from tests.raising import raising

WORDS = Column("y", "category", categories=("no", "yes"))


def number(name: str, low: float, high: float, **rest: Any) -> Column:
    return Column(name, "number", low, high, **rest)


def merge(first: Column, second: Column) -> dict[str, MergedColumn]:
    merged = merge_headers([Header("a", (first, WORDS)), Header("b", (second, WORDS))])
    return {column.name: column for column in merged}


LONG = "x" * 36


@pytest.mark.parametrize(
    ("name", "other", "is_near"),
    [
        ("abcd", "abc", True),  # a letter more or less
        ("abcd", "abxd", True),
        ("abcd", "axcx", False),
        ("abc", "ab", False),  # of three letters, one is too much
        ("bmi", "BMI", True),
        ("bp sys", "sys_bp", True),
        ("bp sys", "bp.syx", True),
        ("bp sys", "sys.bpx", False),
        (f"{LONG}abcd-one", f"{LONG}abcd-two", True),  # the first forty letters are compared
        (f"{LONG}abc-one", f"{LONG}abc-two", True),
        (f"{LONG}ab-one", f"{LONG}ab-two", False),
    ],
)
def test_names_are_near_that_differ_in_a_letter_in_signs_or_in_the_order_of_words(
    name: str, other: str, is_near: bool
) -> None:
    merged = merge(number(name, 0, 1), number(other, 500, 900))
    assert merged[name].conflicts == (f"not at b, which has {other!r}" if is_near else "not at b",)
    assert merged[other].conflicts == (f"not at a, which has {name!r}" if is_near else "not at a",)


@pytest.mark.parametrize(("n_names", "is_near"), [(1000, True), (1001, False)])
def test_misspelt_names_are_looked_for_among_a_thousand(n_names: int, is_near: bool) -> None:
    others = tuple(number(f"{k}", 0, 1) for k in range(n_names - 1))
    merged = merge_headers([Header("a", (number("weight", 0, 1),)), Header("b", (number("weigth", 5, 9), *others))])
    assert ("'weigth'" in str(merged[0].conflicts)) == is_near


@pytest.mark.parametrize(
    ("column", "other", "is_same"),
    [
        (number("p", 0, 100), number("q", 20, 100), True),  # four fifths of both together
        (number("p", 0, 100), number("q", 21, 100), False),
        (number("p", 0, 80), number("q", 0, 100), True),
        (number("p", 0, 79), number("q", 0, 100), False),
        (number("p", 0, 1), number("q", 5, 6), False),
        (number("p", 0, 1), Column("q", "integer", 0, 1), True),
        (number("p", 0, 30), Column("q", "date", 0, 30, day="2020-01-01"), False),
        (Column("p", "date", 0, 30, day="2020-01-01"), Column("q", "date", 0, 30, day="2020-01-01"), True),
        (number("p", 0, 30), Column("q", "age", 0, 30, day="2020-01-01"), False),
        (Column("p", "category", categories=("0", "1")), number("q", 0, 1), False),
        (Column("p", "category", categories=("f", "m")), Column("q", "category", categories=("M", "F")), True),
        (Column("p", "category", categories=("f", "m", "x")), Column("q", "category", categories=("M", "F")), True),
        (Column("p", "category", categories=("f", "m")), Column("q", "category", categories=("M", "F", "u")), False),
        (Column("p", "category", categories=("f", "m")), Column("q", "category", categories=("f",)), False),
    ],
)  # fmt: skip
def test_columns_hold_the_same_whose_words_match_or_whose_ranges_share_four_fifths(
    column: Column, other: Column, is_same: bool
) -> None:
    assert merge(column, other)["p"].conflicts == (
        "not at b, where 'q' looks the same by its content" if is_same else "not at b",
    )


@pytest.mark.parametrize(
    ("word", "is_value"), [("20", True), ("90", True), ("19", False), ("91", False), ("50.5", True), ("none", False)]
)
def test_a_missing_word_may_be_a_value_elsewhere_within_the_range(word: str, is_value: bool) -> None:
    merged = merge(number("age", 0, 95, missing_words=(word, "-9")), number("age", 20, 90))["age"]
    conflict = f"{word} may be a value at b, and stands for a missing value elsewhere"
    assert merged.conflicts == ((conflict,) if is_value else ())
    assert merged.plain is not None
    assert merged.plain["missing_words"] == ["-9"] if is_value else [word, "-9"]
    known = merge(number("age", 0, 95, missing_words=(word,)), number("age", 20, 90, missing_words=(word,)))["age"]
    assert known.conflicts == ()


@pytest.mark.parametrize(("rules", "rule"), [(("fill", "refuse"), "fill"), (("refuse", "refuse"), "refuse")])
def test_missing_values_are_filled_where_one_site_fills_them(rules: tuple[Any, Any], rule: str) -> None:
    plain = merge(*(number("age", 0, 9, missing=each) for each in rules))["age"].plain
    assert plain is not None
    assert (plain["missing"], plain["outside"], plain["kind"]) == (rule, "refuse", "number")


def test_one_header_is_not_merged_nor_two_of_one_site() -> None:
    for headers in ([Header("a", (WORDS,))], [Header("a", (WORDS,)), Header("a", (WORDS,)), Header("b", (WORDS,))], []):
        with raising(InputError, "headers"):
            merge_headers(headers)


def test_what_is_no_column_of_the_study_is_left_out_of_the_draft() -> None:
    """A column of persons, ids, and columns that a site does not describe; ranges from rows are those that are filled in."""
    age, other = Column("age", "integer", 20, 90), Column("units", "number", 0, 1)
    merged = merge_headers([
        Header("a", (age, other, WORDS), ("id", "person"), ("note",)),
        Header("b", (age, Column("units", "number", 0, 900), WORDS), ("id", "person"), ("note",)),
    ])  # fmt: skip
    sums = {"name": "secure-sum", "person": "person", "questions": ["tables"]}
    for mechanism, ids in ((None, ["id", "person"]), (sums, ["id"])):
        plain = parse_study(draft_merged(merged, name="s", label="y", mechanism=mechanism))
        assert plain["rows"]["ids"] == ids
        assert [column["name"] for column in plain["columns"]] == ["age", "units"]
        assert plain["ranges"]["from_rows"] == ["age", "y"]
        assert plain["label"] == {"kind": "classes", "column": "y", "classes": ["no", "yes"]}
    by_age = parse_study(draft_merged(merged, name="s", label="age"))
    assert by_age["label"] == {"kind": "number", "column": "age", "range": [20, 90]}
    seen = Column("seen", "date", 0, 30, day="2020-01-01")
    with raising(InputError, "--label", got="'date'"):
        draft_merged(merge_headers([Header(site, (age, seen)) for site in "ab"]), name="s", label="seen")
