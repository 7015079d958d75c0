"""The decision: limits first, no measure alone says 'share', and joining that does not pay is a reason against."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.attacks import ATTACKS, PairwiseView, SumView, attacks_on
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
from mooring.audit.results.decision import (
    Decision,
    Finding,
    Reason,
    Remark,
    compare_with_limit,
    decide_upload,
    judge_joining,
    weigh_point,
    weigh_total,
)
from mooring.audit.results.point_result import AttackOutcome
from mooring.errors import InputError
from mooring.learners import Gain
from mooring.mechanisms.sums.guarantee import bound_odds
from mooring.metrics import EpsilonAudit, EpsilonBound, Figure, Interval
from tests.report.example_records import example_audit, outcome

AT = RotationPoint("aa-i-gdp-data-noise", 4, 16, 0.0, 0.5)


def rate(value: float, chance: float, low: float | None = None) -> Figure:
    interval = Interval.unknown() if low is None else Interval(low, 0.99, 0.95)
    return Figure("x", value, interval, chance, chance, None, 100, True)


def error(value: float, chance: float = 0.99, *, low: float | None = None, high: float = 0.99) -> Figure:
    interval = Interval.unknown() if low is None else Interval(low, high)
    return Figure("x", value, interval, chance, 1.0, None, 100, False)


def point(at: RotationPoint = AT, **figures: Figure) -> PointResult:
    """By default a point that gives nothing away by any measure."""
    least = {"centred_error": error(0.95), "exposed_tenth": error(0.9)}
    least |= {"linkage": rate(0.1, 0.1), "membership_at_1_percent": rate(0.01, 0.01)}
    scale = 0.2 if at.data_noise_level else 0.0
    return PointResult(at, scale, outcomes=(AttackOutcome("moments", least | figures),))


def answer_of(reasons: list[Reason]) -> str:
    return Decision.from_reasons("?", reasons).answer


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
        ({"exposed_tenth": error(0.08), "exposed_column": error(0.1)}, ("error at least 0.05",), "do not share"),
        ({"register_class": rate(0.9, 0.01, 0.8)}, ("error at least 0.5",), "do not share"),
        ({"read_column": rate(0.95, 0.5, 0.9)}, ("error at least 0.5",), "do not share"),
        (
            {"linkage": rate(0.95, 0.1)},
            ("mean error at least 0.5",),
            "do not share",
        ),  # a limit replaces the default for its own measure
        ({"exposed_tenth": error(0.1, 0.5)}, ("linkage at most 20 %",), "do not share"),
        ({}, ("identity linkage at most 20 %",), "cannot tell"),  # nobody measured it
    ],
)
def test_limits_come_first_and_no_measure_alone_says_share(
    figures: dict[str, Figure], limits: tuple[str, ...], answer: str
) -> None:
    assert answer_of(weigh_point(point(**figures), limits)) == answer


@pytest.mark.parametrize(("low", "shown_low"), [(0.45, 0.45), (0.4996, 0.49)])  # outwards, not to the limit
def test_of_a_limit_the_figure_its_interval_and_the_limit_are_shown_and_decide(low: float, shown_low: float) -> None:
    (finding,) = weigh_point(point(exposed_tenth=error(0.69, low=low, high=0.93)), ("error at least 0.5",))
    assert isinstance(finding, Finding)
    assert (finding.value, finding.interval, finding.limit) == (0.69, Interval(shown_low, 0.93), 0.5)
    assert (finding.answer, finding.decisive) == ("do not share", shown_low)
    assert _shown(finding.words) == ((0.69, shown_low, 0.93), 0.5)


def test_without_attacks_noise_or_the_most_exposed_rows_nothing_says_share() -> None:
    bare = point(replace(AT, method="aa-i-gdp", data_noise_level=0.0))
    figures = point().outcomes[0].figures
    for name in figures:  # any one alone not measured
        part = AttackOutcome("moments", {other: figure for other, figure in figures.items() if other != name})
        assert answer_of(weigh_point(PointResult(AT, 0.2, outcomes=(part,)))) == "cannot tell"
    for result in (None, PointResult(AT, 0.2), bare):
        assert answer_of(weigh_point(result)) == "cannot tell"


# ---------------------------------------------------------------------- every decision follows from what its sentences show

NUMBERS = re.compile(
    r"(?P<value>[\d.]+%?)(?: \[(?P<low>[\d.]+%?), (?P<high>[\d.]+%?)\])?[^;\[\]]*; [^;]* (?:demands|allows) "
    r"(?P<side>at least|at most) (?P<limit>[\d.]+%?), "
    r"(?P<kept>which is kept|which is not kept|which the (?:lower|upper) end)"
)


def _number(words: str) -> float:
    return float(words.rstrip("%")) / (100 if words.endswith("%") else 1)


def _shown(words: str) -> tuple[tuple[float, ...], float]:
    """Read back the figure with its interval, and the limit."""
    shown = NUMBERS.search(re.sub(r"1 false alarm in [\d,]+", "", words))
    assert shown is not None, words
    return tuple(_number(shown[name]) for name in ("value", "low", "high") if shown[name]), _number(shown["limit"])


def _follows(reason: Finding) -> str:
    """Return the answer that a reader draws from the sentence alone."""
    shown = NUMBERS.search(re.sub(r"1 false alarm in [\d,]+", "", reason.words))
    assert shown is not None, reason.words
    decisive = "value"
    if reason.by_interval and shown["low"]:
        decisive = "low" if shown["side"] == "at least" else "high"
    limit = _number(shown["limit"])

    def keeps(number: float) -> bool:
        return number >= limit if shown["side"] == "at least" else number <= limit

    is_kept = keeps(_number(shown[decisive]))
    assert is_kept == (shown["kept"] == "which is kept")
    assert shown["kept"].startswith("which the") == (keeps(_number(shown["value"])) and not is_kept)  # an end decided
    return "share" if is_kept else reason.otherwise


near_tenths = st.builds(lambda n, off: min(max(n / 10 + off, 0.0), 1.0), st.integers(0, 10), st.floats(-0.009, 0.009))
shares = st.floats(0, 1) | near_tenths  # near a limit, rounding decides


@st.composite
def figures(draw: st.DrawFn, *, is_error: bool) -> Figure:
    low, value, high = sorted(draw(st.tuples(shares, shares, shares)))
    interval = draw(st.sampled_from([Interval.unknown(), Interval(low, high)]))
    chance, control = draw(shares), draw(st.none() | shares)
    return Figure("x", value, interval, chance, control, None, 100, not is_error)


@st.composite
def results(draw: st.DrawFn) -> PointResult:
    errors = ("centred_error", "exposed_tenth", "exposed_row", "exposed_column")
    rates = ("linkage", "membership_at_1_percent", "register_class", "identity_linkage", "read_column", "exposed_value")
    measured = {name: draw(figures(is_error=True)) for name in errors}
    measured |= {name: draw(figures(is_error=False)) for name in rates if draw(st.booleans())}
    scale = draw(st.sampled_from([0.0, 0.2]))
    return PointResult(AT, scale, outcomes=(AttackOutcome("moments", measured),), gain=draw(st.none() | gains()))


@st.composite
def gains(draw: st.DrawFn) -> Gain:
    low, value, high = sorted(draw(st.tuples(*[st.floats(-0.2, 0.2)] * 3)))
    return Gain("balanced accuracy", value, low, high, 40)


bounds = st.integers(0, 1000).map(lambda n: n / 1000) | st.integers(0, 10).map(lambda n: n / 10)
limits_on_rows = st.builds(
    lambda bound, name: f"{name} at {'least' if 'error' in name else 'most'} {bound}",
    bounds,
    st.sampled_from(["error", "mean error", "linkage", "membership", "register"]),
)


@given(results(), st.lists(limits_on_rows, max_size=3))
def test_every_decision_follows_from_what_its_sentences_show(result: PointResult, limits: list[str]) -> None:
    reasons = [*weigh_point(result, limits), *judge_joining([result.gain])]
    decision = Decision.from_reasons("?", reasons)
    drawn = [_follows(reason) if isinstance(reason, Finding) else reason.answer for reason in reasons]
    assert drawn == [reason.answer for reason in reasons]
    order = ("do not share", "cannot tell", "share")
    assert decision.answer == min(drawn, key=order.index)
    assert {reason.answer for reason in decision.reasons} == {decision.answer}  # and no sentence contradicts it
    assert Decision.from_json(decision.to_json()) == decision


@given(results(), limits_on_rows)
def test_a_limit_is_kept_on_the_page_where_share_takes_it_for_kept(result: PointResult, words: str) -> None:
    reason = compare_with_limit(result, words, "the study's limit")
    if isinstance(reason, Finding):
        assert reason.is_kept == result.keeps_to(LeakageLimit.parse(words))


@given(gains())
def test_whether_joining_pays_follows_from_the_interval_that_is_shown(gain: Gain) -> None:
    low, high = (float(end.replace("−", "-")) for end in re.findall(r"[+−][\d.]+", str(gain))[1:])
    assert gain.answer == ("pays" if low > 0 else "does not pay" if high <= 0 else "cannot tell")


def test_a_decision_whose_reasons_lead_elsewhere_is_refused() -> None:
    with pytest.raises(InputError) as refused:
        Decision("?", "share", (Remark("do not share", "Much leaks"),))
    assert refused.value.what == "reasons"


# --------------------------------------------------------------------------------------------------------- what decides


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
    result = AuditResult(AuditDescription(**about), References(None, None, 0), tuple(points))
    assert result.decision.answer == answer


def test_of_a_plan() -> None:
    limit = LeakageLimit.parse("linkage at most 20 %")
    result = AuditResult(AuditDescription(), References(None, None, 0), (point(),))
    assert Plan(limit, result, None, "").decision.answer == "do not share"
    assert Plan(limit, result, result.points[0], "").decision.answer == "share"


PAYS, COSTS, OPEN = (Gain("balanced accuracy", value, value - 0.05, value + 0.05, 40) for value in (0.1, -0.1, 0.0))


@pytest.mark.parametrize(
    ("answers", "gains", "answer"),
    [
        (["share"], [], "share"),
        (["share"], [PAYS, OPEN], "cannot tell"),
        (["share"], [PAYS, COSTS], "do not share"),
        (["cannot tell", "do not share"], [PAYS], "do not share"),
        ([], [PAYS], "cannot tell"),  # leakage was not measured
    ],
)
def test_the_worst_answer_decides(answers: list[Any], gains: list[Gain], answer: str) -> None:
    reasons = [Remark(given, given) for given in answers]
    assert decide_upload("rows", reasons, gains=gains).answer == answer


@pytest.mark.parametrize(
    ("figures", "limits", "decisive"),
    [
        ({}, (), [0.9]),
        ({"linkage": rate(0.201, 0.1)}, (), [0.201]),
        ({"linkage": rate(0.2, 0.1)}, (), [0.9]),
        ({"linkage": rate(0.21, 0.1, 0.1)}, (), [0.9]),  # by chance: the interval begins at chance itself
        ({"linkage": replace(rate(0.15, 0.1), chance=None, control=None)}, (), [0.15]),
        ({"exposed_column": error(0.1)}, (), [0.1]),
        ({"centred_error": error(0.1)}, (), [0.1]),
        (
            {"exposed_column": error(0.6), "linkage": rate(0.3, 0.1)},
            ("mean error at least 0.2", "identity linkage at most 20 %"),
            [0.3, 0.6],
        ),
    ],
)
def test_the_reasons_are_those_that_decide(
    figures: dict[str, Figure], limits: tuple[str, ...], decisive: list[float]
) -> None:
    decision = Decision.from_reasons("?", weigh_point(point(**figures), limits))
    assert [reason.value for reason in decision.reasons if isinstance(reason, Finding)] == decisive


def sums(
    epsilon: float | None, figure: Figure | None = None, *, gain: Gain | None = None, measured: float | None = None
) -> PointResult:
    outcomes = () if figure is None else (AttackOutcome("likelihood", {"membership_at_1_percent": figure}),)
    epsilon_audit = None if measured is None else EpsilonAudit(2.0, 1.9, EpsilonBound(measured, 0.0, 1e-5, 0.95, 9))
    return PointResult(SumPoint(epsilon, 0.0, 2, 1, 0.5), outcomes=outcomes, epsilon=epsilon_audit, gain=gain)


FIVE = "membership at most 5 %"


@pytest.mark.parametrize(
    ("result", "limits", "answer", "decisive"),
    [
        (sums(2.0), (), "share", [0.074]),  # e² %, never rounded down
        (None, ("epsilon at most 2",), "share", [2.0, 0.074]),  # nobody attacked them
        (None, (FIVE,), "cannot tell", []),
        (None, ("epsilon at most 1",), "do not share", [2.0]),
        (
            sums(2.0, rate(0.5, 0.02)),
            (),
            "share",
            [0.074],
        ),  # more than is possible: chance, which its own sentence says
        (sums(8.0), (), "cannot tell", [1.0]),
        (sums(8.0), ("epsilon at most 8",), "cannot tell", [1.0]),
        (sums(2.0, measured=2.0), (), "share", [0.074]),
        (sums(2.0, measured=2.1), (), "do not share", [2.1]),
        (sums(None), (), "cannot tell", []),
        (sums(None, rate(0.5, 0.01)), (), "cannot tell", []),
        (sums(None, rate(0.51, 0.01)), (), "do not share", [0.51]),
        (sums(2.0, rate(0.05, 0.01)), (FIVE,), "share", [0.05, 0.074]),
        (sums(2.0, rate(0.06, 0.01)), (FIVE, "epsilon at most 1"), "do not share", [0.06, 2.0]),
        (sums(2.0), (FIVE, "linkage at most 20 %"), "cannot tell", []),
        (sums(None), ("epsilon at most 9",), "do not share", []),
    ],
)
def test_sums_are_weighed_by_their_guarantee_first(
    result: PointResult | None, limits: tuple[str, ...], answer: str, decisive: list[float]
) -> None:
    promise = (2.0, 0.0) if result is None else result.point.promise
    decision = Decision.from_reasons("?", weigh_total(result, promise, limits))
    values = [reason.value for reason in decision.reasons if isinstance(reason, Finding)]
    assert (decision.answer, values) == (answer, decisive)


def test_a_guarantee_is_weak_where_more_than_a_fifth_may_be_found() -> None:
    assert bound_odds(0.0, 0.19) / 100 == 0.2
    assert [answer_of(weigh_total(None, (0.0, delta))) for delta in (0.19, 0.1901)] == ["share", "cannot tell"]


def audit(*points: PointResult, chosen: int | None = None, warnings: tuple[str, ...] = ()) -> AuditResult:
    return AuditResult(AuditDescription(), References(None, None, 0), points, warnings, chosen)


BEST = replace(point(), gain=PAYS)
POOR = replace(point(), gain=COSTS)
UNSURE = replace(point(exposed_tenth=error(0.2)), gain=OPEN)
APART = replace(UNSURE, point=replace(AT, method="c-gdp-data-noise"), usable=False)  # which no study can use


@pytest.mark.parametrize(
    ("given", "answer"),
    [
        (audit(BEST), "share"),
        (audit(POOR), "do not share"),
        (audit(point()), "share"),
        (audit(BEST, POOR, chosen=1), "do not share"),
        (audit(BEST, UNSURE, chosen=0), "share"),
        (audit(POOR, POOR), "cannot tell"),
        (audit(BEST, UNSURE), "cannot tell"),
        (audit(UNSURE, UNSURE), "do not share"),
        (audit(BEST, APART), "share"),
        (audit(UNSURE, APART), "do not share"),
        (audit(), "cannot tell"),
        (audit(BEST, sums(2.0, gain=COSTS)), "cannot tell"),  # beside rows, and nobody attacked it
        (audit(BEST, sums(2.0, gain=COSTS), sums(8.0), chosen=1), "do not share"),
        (audit(sums(2.0, gain=PAYS), POOR, chosen=0), "share"),
        (Plan(LeakageLimit.parse("linkage at most 20 %"), audit(), None, ""), "do not share"),
    ],
)
def test_an_audit_decides_by_the_point_that_its_page_is_about(given: AuditResult | Plan, answer: str) -> None:
    assert given.decision.answer == answer


YES, NO = Remark("share", "Little leaks"), Remark("do not share", "Much leaks")


def made_of(**parts: tuple[str, ...]) -> Any:
    """A record with the limits that were exceeded, and why rows are refused."""
    return SimpleNamespace(**{"exceeded": (), "refused": ()} | parts)


@pytest.mark.parametrize(
    ("reasons", "records", "gains", "answer", "n_reasons"),
    [
        ([YES], {}, [], "share", 2),
        ([YES], {"check": made_of()}, [PAYS], "share", 2),
        ([YES], {"check": made_of(), "share": made_of()}, [], "share", 2),
        ([YES], {"check": made_of(exceeded=("b",)), "share": made_of(exceeded=("a",))}, [], "do not share", 1),
        ([NO], {"check": made_of(exceeded=("a",))}, [], "do not share", 1),  # said already
        ([YES], {"check": made_of(refused=("r", "s"))}, [], "do not share", 2),
        ([YES], {"check": made_of(refused=("r",)), "share": made_of()}, [], "share", 2),
        ([NO], {"check": made_of(refused=("r",))}, [COSTS], "do not share", 3),
        ([], {"check": made_of()}, [OPEN], "cannot tell", 2),
    ],
)
def test_of_an_upload(
    reasons: list[Reason], records: dict[str, Any], gains: list[Gain], answer: str, n_reasons: int
) -> None:
    decision = decide_upload("sums", reasons, **records, gains=gains)
    assert (decision.answer, len(decision.reasons)) == (answer, n_reasons)


def test_who_is_asked_depends_on_what_was_checked_and_shared() -> None:
    """About a study, rows that were checked, rows that were shared, and a study in which all have shared."""
    cases: list[dict[str, Any]] = [
        {},
        {"check": made_of()},
        {"check": made_of(), "share": made_of()},
        {"is_over": True},
    ]
    decisions = [decide_upload("these sums", [YES], **given) for given in cases]
    assert len({decision.question for decision in decisions}) == 4
    assert ["these sums" in decision.question for decision in decisions] == [False, True, True, False]
    assert [decision.is_over for decision in decisions] == [False, False, True, True]


def test_what_leaks_is_stated_from_the_row_that_is_in_to_the_most_exposed_column() -> None:
    assert len(audit(point(exposed_column=error(0.6), exposed_row=error(0.1))).sentences) == 3
    few = PointResult(AT, 0.2, outcomes=(AttackOutcome("moments", {"centred_error": error(0.9)}),))
    assert len(audit(few).sentences) == 1
    unread = audit(point(), PointResult(AT, 0.2), warnings=("w",))
    assert unread.sentences == [unread.headline, "w"]
    assert audit().sentences == [audit().headline]


def test_one_setting_that_a_study_can_use_is_the_chosen_one() -> None:
    alone, beside_another_method, beside_another_noise = (
        audit(*points)._where(BEST) for points in ((BEST,), (BEST, APART), (BEST, POOR))
    )
    assert alone == beside_another_method != beside_another_noise


def test_the_decision_and_its_figures_are_in_the_json() -> None:
    result = audit(BEST)
    plain = json.loads(result.to_json())
    assert plain["decision"]["answer"] == result.decision.answer
    assert plain["decision"]["sentences"] == list(result.decision.sentences)
    assert plain["decision"]["reasons"][0]["value"] == 0.9
    assert [plain[name] for name in ("headline", "joining", "trustworthy")] == [result.headline, result.joining, True]
    assert plain["titles"] == [BEST.title]
    assert AuditResult.from_json(result.to_json()) == result
    plan = Plan(LeakageLimit.parse("linkage at most 20 %"), result, BEST, "")
    assert json.loads(plan.to_json())["decision"]["answer"] == "share"
    assert Plan.from_json(plan.to_json()) == plan


def test_attacks_are_counted_among_those_on_the_same_view() -> None:
    audit = example_audit(totals=True)
    description = replace(audit.description, attacks=("pairwise-register", "moments"))
    for attack, count in (
        ("pairwise-register", (1, len(attacks_on(PairwiseView)))),
        ("from outside", (0, len(attacks_on(SumView)))),
    ):
        total = replace(audit.totals[0], outcomes=(outcome(attack, 0.9, 0.012),))
        assert replace(audit, points=(total,), chosen=0, description=description).count_attacks() == count
