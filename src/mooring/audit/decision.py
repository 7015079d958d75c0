"""The decision whether to share (share, do not share, or cannot tell), with its reasons.

Limits are checked first: those of the study or, by default, 'error at least 0.5' on the most exposed tenth of rows. No
single measure leads to 'share': if limits are kept, but a measure that they do not cover shows much more leakage than
guessing, the answer is 'cannot tell'. If joining is shown not to pay, the answer is 'do not share'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from mooring.audit.planning import Plan
from mooring.audit.point_result import PointResult
from mooring.audit.result import AuditResult
from mooring.audit.specification import DEFAULT_LIMIT, LeakageLimit
from mooring.audit.statements import MEASURES, grade_measures, state_exposure, state_membership
from mooring.learners import Answer, Score
from mooring.mechanisms.sums.guarantee import bound_odds, round_up
from mooring.mechanisms.sums.settings import SumSettings
from mooring.metrics import Figure
from mooring.metrics.membership import state_alarms
from mooring.serialization import Record, count_noun

Verdict = Literal["share", "do not share", "cannot tell"]
_DEFAULT = LeakageLimit.parse(DEFAULT_LIMIT)
_MEMBERSHIP = "membership_at_1_percent"
_NEEDED = (_MEMBERSHIP, "linkage")
_RATES = {
    _MEMBERSHIP: "an attacker recognises {} of the rows as uploaded, at {}",
    "linkage": "{} of the rows are picked out of ten look-alikes",
    "register_class": "{} of the rows rank first in a register of their class",
    "identity_linkage": "{} of the persons are recognised",
}
_WEIGHED = {
    **MEASURES,
    "register_class": "the share of rows found in a register of their class",
    "identity_linkage": "the share of persons recognised",
    "attribute": "how well the attribute is inferred",
    "read_column": "the column that is read best",
}
_FAR_ABOVE_CHANCE, _MUCH, _SOMETHING = 2.0, 0.5, 0.2  # as in mooring.audit.hazards


@dataclass(frozen=True)
class Decision(Record):
    """The answer to whether to share, and its reasons."""

    answer: Verdict
    reasons: tuple[str, ...]
    """The reasons for the answer, as clauses without a full stop."""
    question: str = ""
    """The question that the decision answers; empty for a part of a decision."""

    @property
    def words(self) -> str:
        """Question, answer and reasons as one text."""
        return f"{self.question} {self.answer.capitalize()}: {'; '.join(self.reasons)}."


class Checked(Protocol):
    """The findings of the check of a participant's rows, as far as a decision needs them."""

    @property
    def exceeded(self) -> tuple[str, ...]:
        """The study's limits that the check does not show to be kept."""

    @property
    def refused(self) -> tuple[str, ...]:
        """The reasons why `share` refuses these rows."""


class Shared(Protocol):
    """The record of what a participant shared, as far as a decision needs it."""

    @property
    def exceeded(self) -> tuple[str, ...]:
        """The study's limits that were not shown to be kept, and that the participant overrode."""


def weigh_point(result: PointResult | None, limits: Sequence[str] = (), whose: str = "the study allows") -> Decision:
    """Return the decision that one operating point suggests: from its guarantee for totals, from attacks for rows.

    `limits` bound the leakage by each measure. Without any, the default limit applies to rows. `whose` introduces a limit
    that is not kept.
    """
    if result is not None and not result.point.shares_rows:
        return weigh_total(result, result.point.promise, limits, whose)
    asked = {words: LeakageLimit.parse(words) for words in limits}
    unknown = [words for words, limit in asked.items() if result is None or not _is_known(result.worst(limit.measure))]
    broken = [words for words, limit in asked.items() if words not in unknown and result and not limit.met_at(result)]
    if broken:
        return state_broken(broken, whose)
    if result is None or result.worst() is None:
        return _because("cannot tell", "no attack could be run, so these results do not show that sharing is safe")
    if not limits and _is_known(tenth := result.worst(_DEFAULT.measure)) and tenth and not _DEFAULT.met_at(result):
        share = f"{tenth[1].value:.0%} or less" if tenth[1].value >= 0.01 else "less than 1%"
        rebuilt = f"one row in ten is rebuilt with {share} of the error that guessing makes"
        return _because("do not share", f"{rebuilt} (the default limit is {_DEFAULT.bound:.0%})")
    left = grade_measures(result, _WEIGHED)
    findings = {
        measure: _state_amount(result, measure, amount) for measure, amount in left.items() if amount != "little"
    }
    if not limits and (much := [findings[measure] for measure, amount in left.items() if amount == "much"]):
        return _because("do not share", much[0])
    for measure, words in _RATES.items():
        worst = result.worst(measure)
        if worst is not None and measure not in findings and _is_far_above_chance(worst[1]):
            findings[measure] = words.format(f"{worst[1].value:.0%}", state_alarms(worst[1]))
    covered = {limit.measure for limit in asked.values()}
    against = [words for measure, words in findings.items() if measure not in covered]
    if result.data_noise_scale == 0:
        against.append("the rows carry no noise, so an upload is an exact image of them")
    needed = (*_NEEDED, *(() if limits else (_DEFAULT.measure,)))
    missing = [name for name in needed if name not in covered and not _is_known(result.worst(name))]
    against += [f"not measured: {MEASURES[name]}" for name in missing]
    against += [f"whether {words!r} is kept was not measured here" for words in unknown]
    known = [words for words in limits or [DEFAULT_LIMIT] if words not in unknown]
    kept = f"{' and '.join(map(repr, known))} is kept"
    if against:
        return _because("cannot tell", f"{kept}, but {against[0]}" if known else against[0], *against[1:])
    allowed = [words for measure, words in findings.items() if measure in covered]
    if allowed:
        return _because("share", f"{kept}, which allows this: {' and '.join(allowed)}")
    return _because("share", f"{kept}, and every measure considered here shows little leakage")


def weigh_audit(result: AuditResult, limits: Sequence[str] = ()) -> Decision:
    """Return the decision for the point that an audit's headline is about.

    If only some of the attacks were run, the answer cannot be 'share'.
    """
    headline = result.headline_point
    if headline is not None and not headline.point.shares_rows:
        return weigh_point(headline, limits)
    if not result.trustworthy:
        return weigh_point(None)
    decision = weigh_point(result.headline_point, limits)
    usable = result.usable_points
    if result.chosen is None and len(usable) > 1:
        answers = [weigh_point(point, limits).answer for point in usable]
        much, total = answers.count("do not share"), len(usable)
        if much == total:
            return _because("do not share", f"all {total} settings leak too much: at worst, {decision.reasons[0]}")
        counts = count_noun(much, f"of {total} leaks too much", f"of {total} leak too much")
        counts += f", {answers.count('share')} little"
        return _because("cannot tell", f"no setting is chosen: {counts} ('mooring plan' chooses one)")
    n_tried, n_known = result.count_attacks()
    if decision.answer == "share" and n_tried < n_known:
        return _because("cannot tell", f"only {n_tried} of {n_known} attacks were tried", *decision.reasons)
    return decision


def weigh_total(
    result: PointResult | None,
    promise: tuple[float, float] | None,
    limits: Sequence[str] = (),
    whose: str = "the study allows",
) -> Decision:
    """Return the decision that a total suggests, from its guarantee (ε, δ) and from attacks where they were run."""
    asked = {words: LeakageLimit.parse(words) for words in limits}
    allowed = {words: limit for words, limit in asked.items() if limit.measure == "epsilon"}
    broken = [words for words, limit in allowed.items() if promise is None or promise[0] > limit.bound]
    others = {words: limit for words, limit in asked.items() if limit.measure != "epsilon"}
    unknown = [words for words, limit in others.items() if result is None or not _is_known(result.worst(limit.measure))]
    broken += [words for words, limit in others.items() if words not in unknown and result and not limit.met_at(result)]
    if broken:
        return state_broken(broken, whose)
    if result is not None and result.epsilon is not None and not result.epsilon.holds:
        return _because("do not share", "the measured ε exceeds the guaranteed one")
    worst = None if result is None else result.worst(_MEMBERSHIP)
    rate = ""
    if worst is not None:
        share = f"{worst[1].value:.0%}{worst[1].interval.written('.0%')} of {worst[1].n} rows"
        rate = f"'{worst[0]}' recognises {share} at {state_alarms(worst[1])}"
    if promise is None:
        answer: Verdict = "do not share" if worst is not None and worst[1].value > _MUCH else "cannot tell"
        return _because(answer, f"the sums carry no noise, so there is no guarantee{rate and '; '}{rate}")
    most = min(1.0, bound_odds(*promise) / 100)
    share = f"{round_up(100 * most)}% of the rows"
    bound = f"with ε = {promise[0]:g}, any membership test at 1 % false positives recognises at most {share}"
    if most > _SOMETHING:
        kept = "the limit of ε is kept, but " if allowed else ""
        return _because("cannot tell", f"{kept}the guarantee is weak: {bound}")
    if unknown:
        return _because("cannot tell", f"whether {' and '.join(map(repr, unknown))} is kept was not measured here")
    above = worst is not None and worst[1].value > most
    fault = "because of a fault in the noise, which canaries (artificial rows that change the sums most) can reveal"
    control = (
        f" ({worst[1].control:.0%} without the sums)" if worst is not None and worst[1].control is not None else ""
    )
    by_chance = "by chance, which is likely with few rows"
    more = f"; {rate}{control}, which exceeds this bound {by_chance}, or {fault}" if above else ""
    return _because("share", f"{bound}, if the study's assumptions hold{more}")


def decide_audit(audit: AuditResult | Plan) -> Decision:
    """Return the decision that the page of an audit or a plan states first, by the limits of its study if there are any."""
    if isinstance(audit, Plan):
        weighed, answer = weigh_plan(audit), audit.answer
    else:
        settled = audit.chosen is not None or len(audit.usable_points) == 1
        headline = audit.headline_point if settled else None
        weighed = weigh_audit(audit, audit.description.limits)
        answer = None if headline is None or headline.gain is None else headline.gain.answer
    return decide("Should rows like these be shared?", [weighed], [] if answer is None else [answer])


def weigh_plan(plan: Plan) -> Decision:
    """Return the decision for the setting that a plan recommends, by the plan's own limit."""
    if plan.recommended is not None:
        return weigh_point(plan.recommended, [str(plan.limit)], "the plan allows")
    return _because("do not share", f"no setting is recommended within the limit ({plan.limit})")


def state_broken(limits: Sequence[str], whose: str) -> Decision:
    """Return the decision where limits are not kept."""
    return _because("do not share", f"{whose} {' and '.join(map(repr, limits))}, and that is not kept")


def decide(question: str, weighed: Sequence[Decision], answers: Sequence[Answer] = ()) -> Decision:
    """Return the decision that follows from several partial decisions and from the answers to whether joining pays."""
    unpaid: dict[Verdict, Answer] = {"do not share": "does not pay", "cannot tell": "cannot tell"}
    words = {"do not share": "joining is shown not to pay", "cannot tell": "whether joining pays is not shown"}
    for answer, unpaying in unpaid.items():
        reasons = [reason for part in weighed if part.answer == answer for reason in part.reasons]
        if not weighed and answer == "cannot tell":
            reasons.append("what an upload discloses was not measured here")
        if unpaying in answers:
            reasons.append(words[answer])
        if reasons:
            return replace(_because(answer, *reasons), question=question)
    joining = "joining is shown to pay" if answers else "the benefit of joining was not measured here"
    decision = _because("share", *(reason for part in weighed for reason in part.reasons), joining)
    return replace(decision, question=question)


def decide_upload(
    what: str,
    weighed: Sequence[Decision],
    *,
    check: Checked | None = None,
    share: Shared | None = None,
    answers: Sequence[Answer] = (),
) -> Decision:
    """Return the decision on what a participant shares or shared or, without its records, on the uploads of a study.

    `what` names what is shared: rows, or sums over them. `answers` state whether joining pays.
    """
    question = "Should participants share in this study?" if check is None else f"Should you share {what}?"
    if share is not None:
        question = f"You shared {what}. Do the measurements support sharing them?"
    broken = dict.fromkeys(limit for record in (share, check) if record is not None for limit in record.exceeded)
    if broken and not any(part.answer == "do not share" for part in weighed):
        words = f"this check or an earlier one does not show that {' and '.join(map(repr, broken))} is kept"
        weighed = [*weighed, _because("do not share", words)]
    if check is not None and check.refused and share is None:
        refusals = (f"'mooring share' refuses them: {reason}" for reason in check.refused)
        weighed = [_because("do not share", *refusals), *weighed]
    return decide(question, weighed, answers)


def state_leakage(result: AuditResult) -> list[str]:
    """Return sentences on membership, reconstruction and the most exposed part, at the point of the headline."""
    headline = result.headline_point
    if headline is None or not result.trustworthy:
        return [result.headline(), *result.warnings]
    if not headline.point.shares_rows:
        return [result.headline()]
    membership = state_membership(headline)
    exposed = [f"Most exposed: {words}." for words in state_exposure(headline)[:1]]
    return [*([] if membership is None else [membership]), result.headline(), *exposed]


def state_promise(settings: SumSettings) -> str:
    """Return what secure sums disclose at most, by their guarantee."""
    return f"Can an attacker tell that a {settings.unit} is in the data? {settings.state_guarantee()}"


def state_alone(score: Score) -> str:
    """Return a sentence on the score of a participant's model of its own rows, before it joins."""
    figure = f"{score.metric} of {score.with_interval()}"
    return (
        f"A model of this participant's raw rows alone has a cross-validated {figure}. Joining has to improve on that."
    )


def _state_amount(result: PointResult, measure: str, amount: str) -> str:
    attack, figure = result.worst(measure) or ("", None)
    assert figure is not None
    which = f"{figure.name}: " if measure in ("exposed_value", "exposed_column", "read_column") else ""
    return f"{amount} leaks, judged by {_WEIGHED[measure]} ({which}{figure.describe().value}, by '{attack}')"


def _is_known(worst: tuple[str, Figure] | None) -> bool:
    return worst is not None and not math.isnan(worst[1].value)


def _is_far_above_chance(figure: Figure) -> bool:
    """Return whether a rate is at least twice its chance, with an interval above chance."""
    chance = figure.chance or 0.0
    return figure.value >= _FAR_ABOVE_CHANCE * chance and not figure.interval.low <= chance


def _because(answer: Verdict, *reasons: str) -> Decision:
    return Decision(answer, tuple(dict.fromkeys(reasons)))
