"""The decision: limits first, no measure alone says 'share', and joining that does not pay is a reason against."""

from dataclasses import replace
from typing import Any

import pytest

from mooring.attacks import REGISTRY
from mooring.audit import AuditResult, LeakageLimit, OperatingPoint, Plan, PointResult, References, SumPoint, SumResult
from mooring.audit.decision import decide, weigh_audit, weigh_plan, weigh_point, weigh_sums
from mooring.audit.result import AttackOutcome
from mooring.metrics import Figure, Interval

AT = OperatingPoint("aa-i-gdp-data-noise", 4, 16, 0.0, 0.5)


def rate(value: float, chance: float, low: float | None = None) -> Figure:
    interval = Interval.unknown() if low is None else Interval(low, 0.99, 0.95)
    return Figure("x", value, interval, chance, chance, None, 100, True)


def error(value: float, chance: float = 0.99) -> Figure:
    return Figure("x", value, Interval.unknown(), chance, 1.0, None, 100, False)


def point(at: OperatingPoint = AT, **figures: Figure) -> PointResult:
    """By default a point that gives nothing away by any measure."""
    least = {"centred_error": error(0.95), "exposed_tenth": error(0.9)}
    least |= {"linkage": rate(0.1, 0.1), "membership_at_1_percent": rate(0.01, 0.01)}
    return PointResult(at, 0.2, (AttackOutcome("moments", least | figures),), None, None)


@pytest.mark.parametrize(
    ("figures", "limits", "answer"),
    [
        ({}, (), "share"),
        ({"exposed_tenth": error(0.49)}, (), "do not share"),  # the default limit
        ({"centred_error": error(0.4)}, (), "do not share"),
        ({"membership_at_1_percent": rate(0.7, 0.01, 0.6)}, (), "do not share"),
        ({"membership_at_1_percent": rate(0.04, 0.01, 0.02)}, (), "cannot tell"),
        ({"membership_at_1_percent": rate(0.04, 0.01, 0.005)}, (), "share"),  # by luck
        ({"linkage": rate(0.25, 0.1)}, (), "cannot tell"),
        ({}, ("linkage at most 5 %",), "do not share"),
        ({"linkage": rate(0.25, 0.1)}, ("linkage at most 100 %",), "share"),  # what a limit covers was agreed to
        ({"exposed_tenth": error(0.08), "exposed_column": error(0.1)}, ("error at least 0.05",), "cannot tell"),
        ({"register_class": rate(0.9, 0.01, 0.8)}, ("error at least 0.5",), "cannot tell"),
        ({"read_column": rate(0.95, 0.5, 0.9)}, ("error at least 0.5",), "cannot tell"),
        ({"linkage": rate(0.95, 0.1)}, ("mean error at least 0.5",), "cannot tell"),  # and nothing else
        ({"exposed_tenth": error(0.1, 0.5)}, ("linkage at most 20 %",), "cannot tell"),
        ({}, ("identity linkage at most 20 %",), "cannot tell"),  # nobody measured it
    ],
)
def test_limits_come_first_and_no_measure_alone_says_share(
    figures: dict[str, Figure], limits: tuple[str, ...], answer: str
) -> None:
    assert weigh_point(point(**figures), limits)["answer"] == answer


def test_what_a_limit_allows_is_said_and_what_was_not_measured_is_not_called_broken() -> None:
    (allowed,) = weigh_point(point(exposed_tenth=error(0.6)), ("error at least 0.5",))["reasons"]
    assert "something is given away by the most exposed tenth" in allowed
    assert "not kept" not in str(weigh_point(point(), ("identity linkage at most 20 %",)))
    assert "at most 1.36%" in weigh_sums(None, 0.3, 1e-5)["reasons"][0]  # never rounded down


def test_without_attacks_noise_or_the_most_exposed_rows_nothing_says_share() -> None:
    bare = point(replace(AT, method="aa-i-gdp", data_noise_level=0.0))
    figures = point().outcomes[0].figures
    for name in figures:  # any one alone not measured
        part = AttackOutcome("moments", {other: one for other, one in figures.items() if other != name})
        assert weigh_point(PointResult(AT, 0.2, (part,), None, None))["answer"] == "cannot tell"
    for one in (None, PointResult(AT, 0.2, (), None, None), bare):
        assert weigh_point(one)["answer"] == "cannot tell"


@pytest.mark.parametrize(
    ("points", "about", "answer"),
    [
        ([point()], {"attacks": ["procrustes"]}, "cannot tell"),
        ([point()], {"attacks": list(REGISTRY)}, "share"),
        ([point(), PointResult(AT, 0.2, (), None, None)], {}, "cannot tell"),
        ([point(), point(exposed_tenth=error(0.1))], {}, "cannot tell"),  # no setting is chosen
        ([point(exposed_tenth=error(0.2)), point(exposed_tenth=error(0.1))], {}, "do not share"),
    ],
)
def test_of_an_audit(points: list[PointResult], about: dict[str, Any], answer: str) -> None:
    assert weigh_audit(AuditResult(about, References(None, None, 0), tuple(points)))["answer"] == answer


def test_of_a_plan() -> None:
    limit = LeakageLimit.parse("linkage at most 20 %")
    result = AuditResult({}, References(None, None, 0), (point(),))
    assert weigh_plan(Plan(limit, result, None, ""))["answer"] == "do not share"
    assert weigh_plan(Plan(limit, result, result.points[0], ""))["answer"] == "share"


@pytest.mark.parametrize(
    ("epsilon", "told", "limits", "answer"),
    [
        (2.0, 0.02, (), "share"),
        (8.0, 0.02, (), "cannot tell"),
        (8.0, 0.02, ("epsilon at most 10",), "cannot tell"),  # kept, and still no protection
        (1.0, 0.25, (), "share"),  # more than is possible, on few rows: by luck
        (2.0, None, ("epsilon at most 2",), "share"),
        (2.0, 0.02, ("epsilon at most 1",), "do not share"),
        (2.0, None, ("membership at most 5 %",), "cannot tell"),
        (2.0, None, ("epsilon at most 1",), "do not share"),
        (None, 0.02, (), "cannot tell"),
        (None, 0.9, (), "do not share"),
    ],
)
def test_of_secure_sums(epsilon: float | None, told: float | None, limits: tuple[str, ...], answer: str) -> None:
    outcome = AttackOutcome("likelihood", {"membership_at_1_percent": rate(told or 0.0, 0.01)})
    one = None if told is None else SumResult(SumPoint(epsilon, 1e-5, 2, 1, 0.5), (outcome,), (), None, True)
    assert weigh_sums(one, epsilon, 1e-5, limits)["answer"] == answer


@pytest.mark.parametrize(
    ("weighed", "answers", "answer"),
    [
        (["share"], [], "share"),
        (["share"], ["pays", "cannot tell"], "cannot tell"),
        (["share"], ["pays", "does not pay"], "do not share"),
        (["cannot tell", "do not share"], ["pays"], "do not share"),
        ([], ["pays"], "cannot tell"),  # leakage was not measured
    ],
)
def test_the_worst_answer_decides(weighed: list[str], answers: list[Any], answer: str) -> None:
    assert decide("?", [{"answer": one, "reasons": [one]} for one in weighed], answers)["answer"] == answer
