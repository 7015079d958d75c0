import math
from collections.abc import Callable

import pytest

from mooring.audit import AttackOutcome, LeakageLimit, PointResult, RotationPoint
from mooring.errors import InputError
from mooring.metrics import Figure, Interval

Refused = Callable[..., None]


def figure(value: float, low: float, high: float, name: str = "centred_error", worse: bool = False) -> Figure:
    return Figure(name, value, Interval(low, high, 0.95), 1.0, None, 0.0, 50, worse)


def point_result(*figures: Figure) -> PointResult:
    outcomes = tuple(AttackOutcome(f"attack {k}", {figure.name: figure}) for k, figure in enumerate(figures))
    return PointResult(RotationPoint("aa-i-gdp", 3, 12), outcomes=outcomes)


@pytest.mark.parametrize(
    ("words", "measure", "bound", "at_least"),
    [
        ("error at least 0.5", "exposed_tenth", 0.5, True),
        ("Mean Error AT LEAST 0.5", "centred_error", 0.5, True),
        ("  mean_error >= .25 ", "centred_error", 0.25, True),
        ("relative error ≥ 1", "relative_error", 1.0, True),
        ("decoded error>=50%", "decoded_error", 0.5, True),
        ("linkage at most 20 %", "linkage", 0.2, False),
        ("linkage <= 0.2", "linkage", 0.2, False),
        ("identity linkage ≤ 20%", "identity_linkage", 0.2, False),
        ("exact_source_linkage at most 15 %", "exact_source_linkage", 0.15, False),
        ("attribute at most 0.6", "attribute", 0.6, False),
        ("membership at most 5 % at 1 %", "membership_at_1_percent", 0.05, False),
        ("membership at most 5 %", "membership_at_1_percent", 0.05, False),
        ("outlying membership ≤ 0.2 at 0.1%", "outlying_membership_at_0.1_percent", 0.2, False),
        ("register at most 1 %", "register_class", 0.01, False),
        ("epsilon at most 2", "epsilon", 2.0, False),
    ],
)
def test_limits_are_read_as_people_write_them(words: str, measure: str, bound: float, at_least: bool) -> None:
    assert LeakageLimit.parse(words) == LeakageLimit(measure, pytest.approx(bound), at_least)


def test_a_share_above_one_is_taken_for_a_forgotten_percent_sign() -> None:
    with pytest.raises(InputError) as caught:
        LeakageLimit.parse("membership at most 1.5")
    assert caught.value.what == "limit"


NO_LIMIT = "|0.5|error 0.5|error at least|error at least much|error above 0.5|error at least -1|error at least 0,5"
NO_LIMIT += "|membership at most 5 % at 2 %"
NO_LIMIT += "|error at least nan|fame at least 0.5|error at least 0.5 and linkage at most 0.2"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        *((words, "such as 'error at least 0.5'") for words in NO_LIMIT.split("|")),
        ("linkage at most 5 % at 1 %", "only limits on membership"),
        *((words, "a number") for words in ("error at least 1.2.3", "error at least .")),
        *(
            (words, "'at least' for an error")
            for words in ("error at most 0.5", "linkage at least 20 %", "attribute >= 0.5")
        ),
    ],
)
def test_words_that_are_no_limit_are_refused(words: str, expected: str, refused: Refused) -> None:
    refused(lambda: LeakageLimit.parse(words), "limit", expected, repr(words))


@pytest.mark.parametrize(
    "words",
    [
        *("error at least 0.5", "mean error at least 0.25", "attribute at most 60%", "linkage at most 0.4%"),
        *("membership at most 5% at 1%", "outlying membership at most 20% at 0.1%", "epsilon at most 2"),
    ],
)
def test_a_limit_in_words_reads_as_itself_with_fractions_of_a_percent(words: str) -> None:
    limit = LeakageLimit.parse(words)
    assert str(limit) == words
    assert LeakageLimit.parse(str(limit)) == limit


BARE = Figure("centred_error", 0.6, Interval.unknown(), None, None, None, 1, False)


@pytest.mark.parametrize(
    ("words", "figure", "met"),
    [
        ("mean error at least 0.5", figure(0.6, 0.5, 0.7), True),  # an error at the low end of its interval
        ("mean error at least 0.5", figure(0.6, 0.49, 0.7), False),
        ("mean error at least 0.5", figure(0.4, 0.3, 0.9), False),
        ("linkage at most 20 %", figure(0.15, 0.1, 0.2, "linkage", True), True),  # linkage at the high end
        ("linkage at most 20 %", figure(0.15, 0.1, 0.21, "linkage", True), False),
        ("mean error at least 0.6", BARE, True),  # without an interval, the value
        ("mean error at least 0.61", BARE, False),
    ],
)
def test_the_worse_end_of_the_interval_must_keep_to_the_limit(words: str, figure: Figure, met: bool) -> None:
    assert LeakageLimit.parse(words).met_by(figure) == met


def test_the_strongest_attack_decides() -> None:
    limit = LeakageLimit.parse("mean error at least 0.5")
    safe, broken = figure(0.9, 0.8, 1.0), figure(0.2, 0.1, 0.3)
    assert point_result(safe).keeps_to(limit)
    assert not point_result(safe, broken).keeps_to(limit)
    assert not point_result(broken, safe).keeps_to(limit)
    assert [point_result(safe).keeps_to(limit, room=room) for room in (3.9, 4.1)] == [True, False]


def test_where_no_attack_could_be_run_no_limit_is_met() -> None:
    for words in ("mean error at least 0", "linkage at most 100 %"):
        assert not point_result().keeps_to(LeakageLimit.parse(words))
    undefined = Figure("centred_error", math.nan, Interval.unknown(), None, None, None, 1, False)
    assert not point_result(undefined).keeps_to(LeakageLimit.parse("mean error at least 0"))
    assert not point_result(figure(0.9, 0.8, 1.0)).keeps_to(LeakageLimit.parse("linkage at most 100 %"))
