import math
from collections.abc import Callable

import pytest

from mooring.audit import AttackOutcome, OperatingPoint, PointResult, Target
from mooring.metrics import Figure, Interval

Refused = Callable[..., None]


def figure(value: float, low: float, high: float, name: str = "centred_error", worse: bool = False) -> Figure:
    return Figure(name, value, Interval(low, high, 0.95), 1.0, None, 0.0, 50, worse)


def point_result(*figures: Figure) -> PointResult:
    outcomes = tuple(AttackOutcome(f"attack {k}", {one.name: one}) for k, one in enumerate(figures))
    return PointResult(OperatingPoint("aa-i-gdp", 3, 12), 0.0, outcomes, None, None)


@pytest.mark.parametrize(
    ("words", "measure", "bound", "at_least"),
    [
        ("error at least 0.5", "centred_error", 0.5, True),
        ("Reconstruction Error AT LEAST 0.5", "centred_error", 0.5, True),
        ("  centred_error >= .25 ", "centred_error", 0.25, True),
        ("relative error ≥ 1", "relative_error", 1.0, True),
        ("decoded error>=50%", "decoded_error", 0.5, True),
        ("linkage at most 20 %", "linkage", 0.2, False),
        ("linkage <= 0.2", "linkage", 0.2, False),
        ("identity linkage ≤ 20%", "identity_linkage", 0.2, False),
        ("exact_source_linkage at most 15 %", "exact_source_linkage", 0.15, False),
        ("attribute at most 0.6", "attribute", 0.6, False),
    ],
)
def test_targets_are_read_as_people_write_them(words: str, measure: str, bound: float, at_least: bool) -> None:
    assert Target.parse(words) == Target(measure, pytest.approx(bound), at_least)


@pytest.mark.parametrize(
    "words",
    [
        "",
        "0.5",
        "error 0.5",
        "error at least",
        "error at least much",
        "error above 0.5",
        "error at least -1",
        "error at least 0,5",
        "error at least nan",
        "fame at least 0.5",
        "error at least 0.5 and linkage at most 0.2",
    ],
)
def test_words_that_are_no_target_are_refused(words: str, refused: Refused) -> None:
    refused(lambda: Target.parse(words), "target", "such as 'error at least 0.5'", repr(words))


@pytest.mark.parametrize("words", ["error at least 1.2.3", "error at least ."])
def test_bounds_that_are_no_number_are_refused(words: str, refused: Refused) -> None:
    refused(lambda: Target.parse(words), "target", "a number", repr(words))


@pytest.mark.parametrize("words", ["error at most 0.5", "linkage at least 20 %", "attribute >= 0.5"])
def test_a_bound_on_the_wrong_side_is_refused(words: str, refused: Refused) -> None:
    refused(lambda: Target.parse(words), "target", "'at least' for an error", repr(words))


@pytest.mark.parametrize(
    "words", ["error at least 0.5", "relative error at least 0.25", "attribute at most 60%", "linkage at most 0.4%"]
)
def test_a_target_in_words_reads_as_itself_with_fractions_of_a_percent(words: str) -> None:
    target = Target.parse(words)
    assert str(target) == words
    assert Target.parse(str(target)) == target


def test_an_error_must_keep_to_the_target_at_the_low_end_of_its_interval() -> None:
    target = Target.parse("error at least 0.5")
    assert target.met_by(figure(0.6, 0.5, 0.7))
    assert not target.met_by(figure(0.6, 0.49, 0.7))
    assert not target.met_by(figure(0.4, 0.3, 0.9))


def test_linkage_must_keep_to_the_target_at_the_high_end_of_its_interval() -> None:
    target = Target.parse("linkage at most 20 %")
    assert target.met_by(figure(0.15, 0.1, 0.2, "linkage", True))
    assert not target.met_by(figure(0.15, 0.1, 0.21, "linkage", True))


def test_without_an_interval_the_value_decides() -> None:
    bare = Figure("centred_error", 0.6, Interval.unknown(), None, None, None, 1, False)
    assert Target.parse("error at least 0.6").met_by(bare)
    assert not Target.parse("error at least 0.61").met_by(bare)


def test_the_strongest_attack_decides() -> None:
    target = Target.parse("error at least 0.5")
    safe, broken = figure(0.9, 0.8, 1.0), figure(0.2, 0.1, 0.3)
    assert target.met_at(point_result(safe))
    assert not target.met_at(point_result(safe, broken))
    assert not target.met_at(point_result(broken, safe))


def test_where_no_attack_could_be_run_no_target_is_met() -> None:
    for words in ("error at least 0", "linkage at most 100 %"):
        assert not Target.parse(words).met_at(point_result())
    undefined = Figure("centred_error", math.nan, Interval.unknown(), None, None, None, 1, False)
    assert not Target.parse("error at least 0").met_at(point_result(undefined))
    assert not Target.parse("linkage at most 100 %").met_at(point_result(figure(0.9, 0.8, 1.0)))
