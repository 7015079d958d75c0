"""The decision: limits first, no measure alone says 'share', and joining that does not pay is a reason against."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.attacks import ATTACKS
from mooring.audit import (
    AuditDescription,
    AuditResult,
    LeakageLimit,
    Plan,
    PointResult,
    References,
    RotationPoint,
    SumPoint,
)
from mooring.audit.decision import (
    Decision,
    decide,
    decide_audit,
    decide_upload,
    state_leakage,
    weigh_audit,
    weigh_plan,
    weigh_point,
    weigh_total,
)
from mooring.audit.point_result import AttackOutcome
from mooring.learners import Gain
from mooring.mechanisms.sums.guarantee import bound_odds
from mooring.metrics import EpsilonAudit, EpsilonBound, Figure, Interval

AT = RotationPoint("aa-i-gdp-data-noise", 4, 16, 0.0, 0.5)


def rate(value: float, chance: float, low: float | None = None) -> Figure:
    interval = Interval.unknown() if low is None else Interval(low, 0.99, 0.95)
    return Figure("x", value, interval, chance, chance, None, 100, True)


def error(value: float, chance: float = 0.99) -> Figure:
    return Figure("x", value, Interval.unknown(), chance, 1.0, None, 100, False)


def point(at: RotationPoint = AT, **figures: Figure) -> PointResult:
    """By default a point that gives nothing away by any measure."""
    least = {"centred_error": error(0.95), "exposed_tenth": error(0.9)}
    least |= {"linkage": rate(0.1, 0.1), "membership_at_1_percent": rate(0.01, 0.01)}
    scale = 0.2 if at.data_noise_level else 0.0
    return PointResult(at, scale, outcomes=(AttackOutcome("moments", least | figures),))


@pytest.mark.parametrize(
    ("figures", "limits", "answer"),
    [
        ({}, (), "share"),
        ({"exposed_tenth": error(0.49)}, (), "do not share"),  # the default limit
        ({"centred_error": error(0.4)}, (), "do not share"),
        ({"membership_at_1_percent": rate(0.7, 0.01, 0.6)}, (), "do not share"),
        ({"membership_at_1_percent": rate(0.04, 0.01, 0.02)}, (), "cannot tell"),
        ({"membership_at_1_percent": rate(0.04, 0.01, 0.005)}, (), "share"),  # by chance
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
    assert weigh_point(point(**figures), limits).answer == answer


def test_what_a_limit_allows_is_said_and_what_was_not_measured_is_not_called_broken() -> None:
    assert len(weigh_point(point(exposed_tenth=error(0.6)), ("error at least 0.5",)).reasons) == 1
    assert "at most 1.36%" in weigh_total(None, (0.3, 1e-5)).reasons[0]  # never rounded down


def test_without_attacks_noise_or_the_most_exposed_rows_nothing_says_share() -> None:
    bare = point(replace(AT, method="aa-i-gdp", data_noise_level=0.0))
    figures = point().outcomes[0].figures
    for name in figures:  # any one alone not measured
        part = AttackOutcome("moments", {other: one for other, one in figures.items() if other != name})
        assert weigh_point(PointResult(AT, 0.2, outcomes=(part,))).answer == "cannot tell"
    for one in (None, PointResult(AT, 0.2), bare):
        assert weigh_point(one).answer == "cannot tell"


@pytest.mark.parametrize(
    ("points", "about", "answer"),
    [
        ([point()], {"attacks": ("procrustes",)}, "cannot tell"),
        ([point()], {"attacks": tuple(ATTACKS)}, "share"),
        ([point(), PointResult(AT, 0.2)], {}, "cannot tell"),
        ([point(), point(exposed_tenth=error(0.1))], {}, "cannot tell"),  # no setting is chosen
        ([point(exposed_tenth=error(0.2)), point(exposed_tenth=error(0.1))], {}, "do not share"),
    ],
)
def test_of_an_audit(points: list[PointResult], about: dict[str, Any], answer: str) -> None:
    assert (
        weigh_audit(AuditResult(AuditDescription(**about), References(None, None, 0), tuple(points))).answer == answer
    )


def test_of_a_plan() -> None:
    limit = LeakageLimit.parse("linkage at most 20 %")
    result = AuditResult(AuditDescription(), References(None, None, 0), (point(),))
    assert weigh_plan(Plan(limit, result, None, "")).answer == "do not share"
    assert weigh_plan(Plan(limit, result, result.points[0], "")).answer == "share"


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
    assert decide("?", [Decision(one, (one,)) for one in weighed], answers).answer == answer


# ---------------------------------------------------------------------------------------------------- what exactly is said

PAYS, COSTS, OPEN = (Gain("balanced accuracy", value, value - 0.05, value + 0.05, 40) for value in (0.1, -0.1, 0.0))
SAFE = "'error at least 0.5' is kept, and every measure considered here shows little leakage"
PICKED = "'error at least 0.5' is kept, but {}% of the rows are picked out of ten look-alikes"
COLUMN, UNTAKEN = "the most exposed column (x: 0.60, by 'moments')", "identity linkage at most 20 %"
EXACT = "the rows carry no noise, so an upload is an exact image of them"


@pytest.mark.parametrize(
    ("figures", "limits", "reasons"),
    [
        ({}, (), [SAFE]),
        ({"linkage": rate(0.2, 0.1)}, (), [PICKED.format(20)]),
        ({"linkage": rate(0.19, 0.1)}, (), [SAFE]),
        ({"linkage": rate(0.2, 0.1, 0.1)}, (), [SAFE]),  # by chance: the interval begins at chance itself
        ({"linkage": replace(rate(0.15, 0.1), chance=None, control=None)}, (), [PICKED.format(15)]),
        ({"exposed_column": error(0.1)}, (), ["much leaks, judged by the most exposed column (x: 0.10, by 'moments')"]),
        ({"centred_error": error(0.1)}, (), ["much leaks, judged by the error over all rows (0.10, by 'moments')"]),
        (
            {"exposed_column": error(0.6), "linkage": rate(0.3, 0.1)},
            ("mean error at least 0.2", UNTAKEN),
            [
                f"'mean error at least 0.2' is kept, but something leaks, judged by {COLUMN}",
                "something leaks, judged by the share of rows linked (0.30, by 'moments')",
                f"whether {UNTAKEN!r} is kept was not measured here",
            ],
        ),
        ({}, (UNTAKEN,), [f"whether {UNTAKEN!r} is kept was not measured here"]),
    ],
)
def test_the_reasons_are_those_that_decide(
    figures: dict[str, Figure], limits: tuple[str, ...], reasons: list[str]
) -> None:
    assert weigh_point(point(**figures), limits).reasons == tuple(reasons)


def test_rows_without_noise_are_an_exact_image() -> None:
    bare = point(replace(AT, method="aa-i-gdp", data_noise_level=0.0), linkage=rate(0.2, 0.1))
    assert weigh_point(bare).reasons == (PICKED.format(20), EXACT)


WEAK = (
    "the guarantee is weak: with ε = 8, any membership test at 1 % false positives recognises at most 100% of the rows"
)
BOUND = "with ε = 2, any membership test at 1 % false positives recognises at most 7.39% of the rows"
KEPT = f"{BOUND}, if the study's assumptions hold"
ABOVE = (
    "which exceeds this bound by chance, which is likely with few rows, or because of a fault in the noise, which canaries "
    "(artificial rows that change the sums most) can reveal"
)
FIVE = "membership at most 5 %"
NOTHING = "the sums carry no noise, so there is no guarantee"
RECOGNISED = "'likelihood' recognises {}% of 100 rows at {} % false alarms"


def sums(
    epsilon: float | None, told: Figure | None = None, *, gain: Gain | None = None, measured: float | None = None
) -> PointResult:
    outcomes = () if told is None else (AttackOutcome("likelihood", {"membership_at_1_percent": told}),)
    found = None if measured is None else EpsilonAudit(2.0, 1.9, EpsilonBound(measured, 0.0, 1e-5, 0.95, 9))
    return PointResult(SumPoint(epsilon, 0.0, 2, 1, 0.5), outcomes=outcomes, epsilon=found, gain=gain)


@pytest.mark.parametrize(
    ("one", "limits", "answer", "reason"),
    [
        (sums(2.0), (), "share", KEPT),
        (None, ("epsilon at most 2",), "share", KEPT),  # nobody attacked them
        (None, (FIVE,), "cannot tell", f"whether {FIVE!r} is kept was not measured here"),
        (None, ("epsilon at most 1",), "do not share", "the study allows 'epsilon at most 1', and that is not kept"),
        (sums(2.0, rate(bound_odds(2.0, 0) / 100, 0.01)), (), "share", KEPT),  # as much as is possible
        (sums(2.0, rate(0.5, 0.02)), (), "share", f"{KEPT}; {RECOGNISED.format(50, 2)} (2% without the sums), {ABOVE}"),
        (
            sums(2.0, replace(rate(0.5, 0.01), control=None)),
            (),
            "share",
            f"{KEPT}; {RECOGNISED.format(50, 1)}, {ABOVE}",
        ),
        (sums(8.0), (), "cannot tell", WEAK),
        (sums(8.0), ("epsilon at most 8",), "cannot tell", f"the limit of ε is kept, but {WEAK}"),
        (sums(2.0, measured=2.0), (), "share", KEPT),
        (sums(2.0, measured=2.1), (), "do not share", "the measured ε exceeds the guaranteed one"),
        (sums(None), (), "cannot tell", NOTHING),
        (sums(None, rate(0.5, 0.01)), (), "cannot tell", f"{NOTHING}; {RECOGNISED.format(50, 1)}"),
        (sums(None, rate(0.51, 0.01)), (), "do not share", f"{NOTHING}; {RECOGNISED.format(51, 1)}"),
        (sums(2.0, rate(0.05, 0.01)), (FIVE,), "share", KEPT),
        (
            sums(2.0, rate(0.06, 0.01)),
            ("membership at most 5 %", "epsilon at most 1"),
            "do not share",
            "the study allows 'epsilon at most 1' and 'membership at most 5 %', and that is not kept",
        ),
        (
            sums(2.0),
            ("membership at most 5 %", "linkage at most 20 %"),
            "cannot tell",
            "whether 'membership at most 5 %' and 'linkage at most 20 %' is kept was not measured here",
        ),
        (
            sums(None),
            ("epsilon at most 9",),
            "do not share",
            "the study allows 'epsilon at most 9', and that is not kept",
        ),
    ],
)
def test_sums_are_weighed_by_their_guarantee_first(
    one: PointResult | None, limits: tuple[str, ...], answer: str, reason: str
) -> None:
    promise = (2.0, 0.0) if one is None else one.point.promise
    assert weigh_total(one, promise, limits) == Decision(answer, (reason,))


def test_a_guarantee_is_weak_where_more_than_a_fifth_may_be_found() -> None:
    assert bound_odds(0.0, 0.19) / 100 == 0.2
    assert [weigh_total(None, (0.0, delta)).answer for delta in (0.19, 0.1901)] == ["share", "cannot tell"]


def audit(*points: PointResult, chosen: int | None = None, **more: Any) -> AuditResult:
    return AuditResult(AuditDescription(), References(None, None, 0), points, chosen=chosen, **more)


BEST = replace(point(), gain=PAYS)
POOR = replace(point(), gain=COSTS)
UNSURE = replace(point(exposed_tenth=error(0.2)), gain=OPEN)
APART = replace(AT, method="c-gdp-data-noise")  # which no study can use
GIVEN = "little leakage"


@pytest.mark.parametrize(
    ("given", "answer", "reasons"),
    [
        (audit(BEST), "share", [GIVEN, "joining is shown to pay"]),
        (audit(POOR), "do not share", ["joining is shown not to pay"]),
        (audit(point()), "share", [GIVEN, "the benefit of joining was not measured here"]),
        (audit(BEST, POOR, chosen=1), "do not share", ["joining is shown not to pay"]),
        (audit(BEST, UNSURE, chosen=0), "share", [GIVEN, "joining is shown to pay"]),
        (audit(POOR, POOR), "cannot tell", ["no setting is chosen: 0 of 2 leak too much, 2 little ('mooring plan'"]),
        (audit(BEST, UNSURE), "cannot tell", ["no setting is chosen: 1 of 2 leaks too much, 1 little ('mooring plan'"]),
        (audit(UNSURE, UNSURE), "do not share", ["all 2 settings leak too much: at worst, one row in ten is rebuilt"]),
        (audit(BEST, replace(UNSURE, point=APART, usable=False)), "share", [GIVEN, "joining is shown to pay"]),
        (audit(UNSURE, replace(UNSURE, point=APART, usable=False)), "do not share", ["one row in ten is rebuilt"]),
        (audit(), "cannot tell", ["no attack could be run, so these results do not show that sharing is safe"]),
        (audit(BEST, sums(2.0, gain=COSTS)), "cannot tell", ["no attack could be run"]),  # beside rows
        (audit(BEST, sums(2.0, gain=COSTS), sums(8.0), chosen=1), "do not share", ["joining is shown not to pay"]),
        (audit(sums(2.0, gain=PAYS), POOR, chosen=0), "share", [KEPT, "joining is shown to pay"]),
        (Plan(LeakageLimit.parse("linkage at most 20 %"), audit(), None, ""), "do not share", ["no setting is recommended"]),
    ],
)  # fmt: skip
def test_an_audit_decides_by_the_point_that_its_page_is_about(
    given: AuditResult | Plan, answer: str, reasons: list[str]
) -> None:
    found = decide_audit(given)
    assert (found.question, found.answer) == ("Should rows like these be shared?", answer)
    assert [words in reason for words, reason in zip(reasons, found.reasons, strict=True)] == [True] * len(reasons)


YES, NO = Decision("share", ("little",)), Decision("do not share", ("much",))
UNSHOWN = "this check or an earlier one does not show that 'a' and 'b' is kept"
ASKED, SHARED = "Should you share sums?", "You shared sums. Do the measurements support sharing them?"
LITTLE = "Share: little; the benefit of joining was not measured here."
REFUSED, UNPAID = "'mooring share' refuses them:", "joining is shown not to pay"
UNKNOWN = "what an upload discloses was not measured here; whether joining pays is not shown"


def made_of(**parts: tuple[str, ...]) -> Any:
    """A record with the limits that were exceeded, and why rows are refused."""
    return SimpleNamespace(**{"exceeded": (), "refused": ()} | parts)


@pytest.mark.parametrize(
    ("weighed", "records", "joining", "words"),
    [
        ([YES], {}, [], f"Should participants share in this study? {LITTLE}"),
        ([YES], {"check": made_of()}, ["pays"], f"{ASKED} Share: little; joining is shown to pay."),
        ([YES], {"check": made_of(), "share": made_of()}, [], f"{SHARED} {LITTLE}"),
        (
            [YES],
            {"check": made_of(exceeded=("b",)), "share": made_of(exceeded=("a",))},
            [],
            f"{SHARED} Do not share: {UNSHOWN}.",
        ),
        ([NO], {"check": made_of(exceeded=("a",))}, [], f"{ASKED} Do not share: much."),  # said already
        ([YES], {"check": made_of(refused=("r", "s"))}, [], f"{ASKED} Do not share: {REFUSED} r; {REFUSED} s."),
        ([YES], {"check": made_of(refused=("r",)), "share": made_of()}, [], f"{SHARED} {LITTLE}"),
        (
            [NO],
            {"check": made_of(refused=("r",))},
            ["does not pay"],
            f"{ASKED} Do not share: {REFUSED} r; much; {UNPAID}.",
        ),
        ([], {"check": made_of()}, ["cannot tell"], f"{ASKED} Cannot tell: {UNKNOWN}."),
    ],
)
def test_of_an_upload(weighed: list[Any], records: dict[str, Any], joining: list[Any], words: str) -> None:
    assert decide_upload("sums", weighed, **records, answers=joining).words == words


def test_what_leaks_is_stated_from_the_row_that_is_in_to_the_most_exposed_column() -> None:
    assert len(state_leakage(audit(point(exposed_column=error(0.6), exposed_row=error(0.1))))) == 3
    few = PointResult(AT, 0.2, outcomes=(AttackOutcome("moments", {"centred_error": error(0.9)}),))
    assert len(state_leakage(audit(few))) == 1
    unread = audit(point(), PointResult(AT, 0.2), warnings=("w",))
    assert state_leakage(unread) == [unread.headline(), "w"]
    assert state_leakage(audit()) == [audit().headline()]


def test_one_setting_that_a_study_can_use_is_the_chosen_one() -> None:
    apart = replace(UNSURE, point=APART, usable=False)
    alone, beside_another_method, beside_another_noise = (
        audit(*points)._where(BEST) for points in ((BEST,), (BEST, apart), (BEST, POOR))
    )
    assert alone == beside_another_method != beside_another_noise
