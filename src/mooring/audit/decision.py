"""The decision: share, do not share, or cannot tell, and why.

Limits come first: those of the study, else 'error at least 0.5', about the most exposed tenth of rows. No measure alone says
'share': where limits are kept, a measure that they do not cover, and by which much more leaks than guessing gives, leaves it
open. Joining that is shown not to pay is a reason not to share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from mooring.audit.hazards import MEASURES, grade_measures, state_exposure, state_membership
from mooring.audit.planning import Plan
from mooring.audit.result import AuditResult, PointResult
from mooring.audit.specification import DEFAULT_LIMIT, LeakageLimit
from mooring.learners import Answer, Score
from mooring.mechanisms.sums.guarantee import bound_odds, round_up
from mooring.mechanisms.sums.settings import SumSettings
from mooring.metrics import Figure
from mooring.metrics.membership import state_alarms
from mooring.serialization import Record, count_noun

Verdict = Literal["share", "do not share", "cannot tell"]
_DEFAULT = LeakageLimit.parse(DEFAULT_LIMIT)
_TOLD = "membership_at_1_percent"
_NEEDED = (_TOLD, "linkage")
_RATES = {
    _TOLD: "{} of the rows can be told to be in the upload, at {}",
    "linkage": "{} of the rows are picked out of ten look-alikes",
    "register_class": "{} of the rows come first in a register of their class",
    "identity_linkage": "{} of the persons are recognised",
}
_WEIGHED = {
    **MEASURES,
    "register_class": "the rows found in a register of their class",
    "identity_linkage": "the persons recognised",
    "attribute": "the attribute inferred",
    "read_column": "the column that is read best",
}
_FAR_ABOVE_CHANCE, _MUCH, _SOMETHING = 2.0, 0.5, 0.2  # as in mooring.audit.hazards


@dataclass(frozen=True)
class Decision(Record):
    """Whether to share, and why."""

    answer: Verdict
    reasons: tuple[str, ...]
    """What decides, in clauses without a full stop."""
    question: str = ""
    """What is decided; empty for a part of a decision."""

    @property
    def words(self) -> str:
        """Question, answer and reasons."""
        return f"{self.question} {self.answer.capitalize()}: {'; '.join(self.reasons)}."


class Checked(Protocol):
    """What the check of a participant's rows found."""

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Limits of the study that are not shown to be kept."""

    @property
    def refused(self) -> tuple[str, ...]:
        """Why `share` takes no such rows."""


class Shared(Protocol):
    """What a participant shared."""

    @property
    def exceeded(self) -> tuple[str, ...]:
        """Limits of the study that were not shown to be kept, and overridden."""


def weigh_point(one: PointResult | None, limits: Sequence[str] = (), whose: str = "the study allows") -> Decision:
    """Weigh whether a point speaks against sharing: by its guarantee where totals are shared, by attacks where rows are.

    `limits` say which measures may be how high; without any, the default limit holds for rows. `whose` introduces a limit
    that is not kept.
    """
    if one is not None and not one.point.shares_rows:
        return weigh_total(one, one.point.promise, limits, whose)
    asked = {words: LeakageLimit.parse(words) for words in limits}
    unknown = [words for words, limit in asked.items() if one is None or not _is_known(one.worst(limit.measure))]
    broken = [words for words, limit in asked.items() if words not in unknown and one and not limit.met_at(one)]
    if broken:
        return state_broken(broken, whose)
    if one is None or one.worst() is None:
        return _because("cannot tell", "no attack could be run, so nothing here may be read as safety")
    if not limits and _is_known(tenth := one.worst(_DEFAULT.measure)) and tenth and not _DEFAULT.met_at(one):
        share = f"{tenth[1].value:.0%} or less" if tenth[1].value >= 0.01 else "less than 1%"
        rebuilt = f"one row in ten is rebuilt with {share} of the error that guessing makes"
        return _because("do not share", f"{rebuilt} (the limit is {_DEFAULT.bound:.0%}, where a study states none)")
    left = grade_measures(one, _WEIGHED)
    found = {measure: _state_amount(one, measure, amount) for measure, amount in left.items() if amount != "little"}
    if not limits and (much := [found[measure] for measure, amount in left.items() if amount == "much"]):
        return _because("do not share", much[0])
    for measure, words in _RATES.items():
        told = one.worst(measure)
        if told is not None and measure not in found and _is_far_above_chance(told[1]):
            found[measure] = words.format(f"{told[1].value:.0%}", state_alarms(told[1]))
    covered = {limit.measure for limit in asked.values()}
    against = [words for measure, words in found.items() if measure not in covered]
    if one.data_noise_scale == 0:
        against.append("the rows carry no noise, so that an upload is an exact image of them")
    needed = (*_NEEDED, *(() if limits else (_DEFAULT.measure,)))
    missing = [name for name in needed if name not in covered and not _is_known(one.worst(name))]
    against += [f"not measured: {MEASURES[name]}" for name in missing]
    against += [f"whether {words!r} is kept was not measured here" for words in unknown]
    known = [words for words in limits or [DEFAULT_LIMIT] if words not in unknown]
    kept = f"{' and '.join(map(repr, known))} is kept"
    if against:
        return _because("cannot tell", f"{kept}, but {against[0]}" if known else against[0], *against[1:])
    allowed = [words for measure, words in found.items() if measure in covered]
    if allowed:
        return _because("share", f"{kept}, which allows that {' and '.join(allowed)}")
    return _because("share", f"{kept}, and by no measure weighed here is more than little given away")


def weigh_audit(result: AuditResult, limits: Sequence[str] = ()) -> Decision:
    """Weigh an audit at the point that its headline is about; where only some attacks were run, it cannot say 'share'."""
    headline = result.headline_point
    if headline is not None and not headline.point.shares_rows:
        return weigh_point(headline, limits)
    if not result.trustworthy:
        return weigh_point(None)
    found = weigh_point(result.headline_point, limits)
    usable = result.usable_points
    if result.chosen is None and len(usable) > 1:
        answers = [weigh_point(one, limits).answer for one in usable]
        much, total = answers.count("do not share"), len(usable)
        if much == total:
            return _because("do not share", f"all {total} settings give too much away: at worst, {found.reasons[0]}")
        counts = count_noun(much, f"of {total} gives too much away", f"of {total} give too much away")
        counts += f", {answers.count('share')} little"
        return _because("cannot tell", f"no setting is chosen: {counts} ('mooring plan' chooses one)")
    n_tried, n_known = result.count_attacks()
    if found.answer == "share" and n_tried < n_known:
        return _because("cannot tell", f"only {n_tried} of {n_known} attacks were tried", *found.reasons)
    return found


def weigh_total(
    one: PointResult | None,
    promise: tuple[float, float] | None,
    limits: Sequence[str] = (),
    whose: str = "the study allows",
) -> Decision:
    """Weigh whether a total speaks against sharing: by the ε and δ that it promises, and by attacks where they were run."""
    asked = {words: LeakageLimit.parse(words) for words in limits}
    allowed = {words: limit for words, limit in asked.items() if limit.measure == "epsilon"}
    broken = [words for words, limit in allowed.items() if promise is None or promise[0] > limit.bound]
    others = {words: limit for words, limit in asked.items() if limit.measure != "epsilon"}
    unknown = [words for words, limit in others.items() if one is None or not _is_known(one.worst(limit.measure))]
    broken += [words for words, limit in others.items() if words not in unknown and one and not limit.met_at(one)]
    if broken:
        return state_broken(broken, whose)
    if one is not None and one.epsilon is not None and not one.epsilon.holds:
        return _because("do not share", "the ε that was measured is above the one that is promised")
    told = None if one is None else one.worst(_TOLD)
    rate = ""
    if told is not None:
        share = f"{told[1].value:.0%}{told[1].interval.written('.0%')} of {told[1].n} rows"
        rate = f"'{told[0]}' tells {share} at {state_alarms(told[1])}"
    if promise is None:
        answer: Verdict = "do not share" if told is not None and told[1].value > _MUCH else "cannot tell"
        return _because(answer, f"the sums carry no noise, and nothing is promised{rate and '; '}{rate}")
    most = min(1.0, bound_odds(*promise) / 100)
    bound = f"with ε = {promise[0]:g} a test with 1 % false alarms finds at most {round_up(100 * most)}% of the rows"
    if most > _SOMETHING:
        kept = "the limit of ε is kept, but " if allowed else ""
        return _because("cannot tell", f"{kept}the guarantee is weak: {bound}")
    if unknown:
        return _because("cannot tell", f"whether {' and '.join(map(repr, unknown))} is kept was not measured here")
    above = told is not None and told[1].value > most
    fault = "a fault of the noise, which canaries (made-up rows that move the sums most) look for"
    control = f" ({told[1].control:.0%} without the sums)" if told is not None and told[1].control is not None else ""
    by_chance = "by chance, for which few rows leave much room"
    more = f"; {rate}{control}, which is above that {by_chance}, or by {fault}" if above else ""
    return _because("share", f"{bound}, by any attack, on the study's assumptions{more}")


def decide_audit(audit: AuditResult | Plan) -> Decision:
    """The decision that the page of an audit or a plan leads with, by the limits of its study, if it states any."""
    if isinstance(audit, Plan):
        weighed, answer = weigh_plan(audit), audit.answer
    else:
        settled = audit.chosen is not None or len(audit.usable_points) == 1
        one = audit.headline_point if settled else None
        weighed = weigh_audit(audit, audit.description.limits)
        answer = None if one is None or one.gain is None else one.gain.answer
    return decide("Should rows like these be shared?", [weighed], [] if answer is None else [answer])


def weigh_plan(plan: Plan) -> Decision:
    """Weigh a plan at the setting that it recommends and within its own limit."""
    if plan.recommended is not None:
        return weigh_point(plan.recommended, [str(plan.limit)], "the plan allows")
    return _because("do not share", f"no setting is recommended within the limit ({plan.limit})")


def state_broken(limits: Sequence[str], whose: str) -> Decision:
    """Limits are not kept."""
    return _because("do not share", f"{whose} {' and '.join(map(repr, limits))}, and that is not kept")


def decide(question: str, weighed: Sequence[Decision], answers: Sequence[Answer] = ()) -> Decision:
    """The decision from everything that was weighed, and from every answer to whether joining pays."""
    unpaid: dict[Verdict, Answer] = {"do not share": "does not pay", "cannot tell": "cannot tell"}
    words = {"do not share": "joining is shown not to pay", "cannot tell": "whether joining pays is not shown"}
    for answer, unpaying in unpaid.items():
        reasons = [reason for part in weighed if part.answer == answer for reason in part.reasons]
        if not weighed and answer == "cannot tell":
            reasons.append("what an upload gives away was not measured here")
        if unpaying in answers:
            reasons.append(words[answer])
        if reasons:
            return replace(_because(answer, *reasons), question=question)
    joining = "joining is shown to pay" if answers else "what joining gives was not measured here"
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
    """The decision on what a participant shares, or shared; without its records, on the uploads of a study.

    `what` is shared: rows, or sums over them. `answers` say whether joining pays.
    """
    question = "Should participants share in this study?" if check is None else f"Should you share {what}?"
    if share is not None:
        question = f"You shared {what}. By what is measured, should they be shared?"
    broken = dict.fromkeys(limit for record in (share, check) if record is not None for limit in record.exceeded)
    if broken and not any(part.answer == "do not share" for part in weighed):
        words = f"a check, this or an earlier one, does not show that {' and '.join(map(repr, broken))} is kept"
        weighed = [*weighed, _because("do not share", words)]
    if check is not None and check.refused and share is None:
        refusals = (f"'mooring share' refuses them: {reason}" for reason in check.refused)
        weighed = [_because("do not share", *refusals), *weighed]
    return decide(question, weighed, answers)


def state_leakage(result: AuditResult) -> list[str]:
    """Whether rows can be told to be in, what is rebuilt, and what is most exposed, where the headline is."""
    one = result.headline_point
    if one is None or not result.trustworthy:
        return [result.headline(), *result.warnings]
    if not one.point.shares_rows:
        return [result.headline()]
    told = state_membership(one)
    exposed = [f"Most exposed: {words}." for words in state_exposure(one)[:1]]
    return [*([] if told is None else [told]), result.headline(), *exposed]


def state_promise(settings: SumSettings) -> str:
    """What secure sums give away, by their guarantee."""
    return f"Can they tell that a {settings.unit} is in it? {settings.state_guarantee()}"


def state_alone(score: Score) -> str:
    """What a participant's model of its own rows scores before it joins."""
    rows = f"A model of this participant's raw rows alone scores {score.with_interval()} {score.metric} on them"
    return f"{rows}, held out in turn: joining has to beat that."


def _state_amount(one: PointResult, measure: str, amount: str) -> str:
    attack, figure = one.worst(measure) or ("", None)
    assert figure is not None
    which = f"{figure.name}: " if measure in ("exposed_value", "exposed_column", "read_column") else ""
    return f"{amount} is given away by {_WEIGHED[measure]} ({which}{figure.describe().value}, by '{attack}')"


def _is_known(worst: tuple[str, Figure] | None) -> bool:
    return worst is not None and not math.isnan(worst[1].value)


def _is_far_above_chance(figure: Figure) -> bool:
    """Whether a rate is twice its chance, and its interval above it."""
    chance = figure.chance or 0.0
    return figure.value >= _FAR_ABOVE_CHANCE * chance and not figure.interval.low <= chance


def _because(answer: Verdict, *reasons: str) -> Decision:
    return Decision(answer, tuple(dict.fromkeys(reasons)))
