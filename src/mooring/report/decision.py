"""The decision: share, do not share, or cannot tell, and why.

Limits come first: those of the study, else 'error at least 0.5', about the most exposed tenth of rows. No measure alone says
'share': where limits are kept, a measure that they do not cover, and by which much more leaks than guessing gives, leaves it
open. Joining that is shown not to pay is a reason not to share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mooring.attacks import REGISTRY
from mooring.audit import DEFAULT_LIMIT, AuditResult, LeakageLimit, Plan, PointResult, SumResult
from mooring.audit.hazards import MEASURES, judge_leakage, warn_of_linked_rows
from mooring.learners import Answer
from mooring.mechanisms.secure_sum.guarantee import bound_odds
from mooring.metrics import Figure
from mooring.report.numbers import describe_figure

Decision = dict[str, Any]
_DEFAULT = LeakageLimit.parse(DEFAULT_LIMIT)
_TOLD = "membership_at_1_percent"
_FAR_ABOVE_CHANCE, _MUCH, _SOMETHING = 2.0, 0.5, 0.2  # as in mooring.audit.hazards


def weigh_point(one: PointResult | None, limits: Sequence[str] = ()) -> Decision:
    """Whether what attacks recover at a point, if any could be run, speaks against sharing, by limits of the study."""
    asked = [LeakageLimit.parse(words) for words in limits]
    broken = [words for words, limit in zip(limits, asked, strict=True) if one is None or not limit.met_at(one)]
    if broken:
        return state_broken(broken)
    if one is None or one.worst() is None:
        return _because("cannot tell", "no attack could be run, so nothing here may be read as safety")
    amount, _, measure = judge_leakage(one)
    attack, figure = one.worst(measure) or ("", None)
    assert figure is not None
    which = f"{figure.name}: " if measure in ("exposed_value", "exposed_column") else ""
    found = f"{amount} is given away by {MEASURES[measure]} ({which}{describe_figure(figure)['value']}, by '{attack}')"
    tenth, told, linked = (one.worst(name) for name in (_DEFAULT.measure, _TOLD, "linkage"))
    if not limits and tenth is not None and not _DEFAULT.met_at(one):
        rebuilt = f"a tenth of the rows is rebuilt with {tenth[1].value:.2f} of the error of guessing them, or less"
        return _because("do not share", f"{rebuilt} (the limit is {_DEFAULT.bound:g}, where a study states none)")
    if not limits and amount == "much":
        return _because("do not share", found)
    covered, against = {limit.measure for limit in asked}, []
    if amount != "little" and measure not in covered:
        against.append(found)
        covered.add(measure)
    if told is not None and _TOLD not in covered and _is_far_above_chance(told[1]):
        against.append(f"{told[1].value:.0%} of the rows can be told to be in the upload, at 1 % false alarms")
    if linked is not None and "linkage" not in covered and warn_of_linked_rows(one) is not None:
        against.append(f"{linked[1].value:.0%} of the rows are picked out of ten look-alikes")
    if one.point.data_noise_level == 0:
        against.append("the rows carry no noise, so that an upload is an exact image of them")
    missing = {_DEFAULT.measure: tenth if not limits else figure, _TOLD: told, "linkage": linked}
    against += [
        f"not measured: {MEASURES[name]}" for name, got in missing.items() if got is None and name not in covered
    ]
    kept = f"{' and '.join(map(repr, limits or [DEFAULT_LIMIT]))} is kept"
    if against:
        return _because("cannot tell", f"{kept}, but {against[0]}", *against[1:])
    return _because("share", f"{kept}, and by no measure more than little is given away")


def weigh_audit(result: AuditResult, limits: Sequence[str] = ()) -> Decision:
    """The same of an audit, at the point that its headline is about; some attacks alone cannot say 'share'."""
    if (sums := _leading_sums(result)) is not None:
        return weigh_sums(sums, sums.point.epsilon, sums.point.delta, limits)
    if not result.trustworthy:
        return weigh_point(None)
    found, asked = weigh_point(result.headline_point, limits), result.description.get("attacks")
    usable = [one for one in result.points if one.point.usable] or result.points
    if result.chosen is None and len(usable) > 1:
        answers = [weigh_point(one, limits)["answer"] for one in usable]
        if {*answers} == {"do not share"}:
            return _because(
                "do not share", f"all {len(usable)} settings give too much away: at worst, {found['reasons'][0]}"
            )
        counts = f"{answers.count('do not share')} of {len(usable)} give too much away, {answers.count('share')} little"
        return _because("cannot tell", f"no setting is chosen: {counts} ('mooring plan' chooses one)")
    if found["answer"] == "share" and asked is not None and len(asked) < len(REGISTRY):
        return _because("cannot tell", f"only {len(asked)} of {len(REGISTRY)} attacks were run", *found["reasons"])
    return found


def weigh_sums(one: SumResult | None, epsilon: float | None, delta: float, limits: Sequence[str] = ()) -> Decision:
    """The same of secure sums.

    Parameters
    ----------
    one : SumResult or None
        What attackers told from them, where that was tried.
    epsilon, delta
        Of the guarantee.
    limits : sequence of str
        As for `weigh_point`.
    """
    asked = [LeakageLimit.parse(words) for words in limits]
    if one is not None:
        broken = [words for words, limit in zip(limits, asked, strict=True) if not limit.met_by_sums(one)]
        if broken:
            return state_broken(broken)
        if one.epsilon is not None and not one.epsilon.holds:
            return _because("do not share", "the ε that was measured is above the one that is promised")
    unknown = [words for words, limit in zip(limits, asked, strict=True) if one is None and limit.measure != "epsilon"]
    if unknown:
        return _because("cannot tell", f"whether {' and '.join(map(repr, unknown))} is kept was not measured here")
    told = None if one is None else one.worst(_TOLD)
    rate = "" if told is None else f"; '{told[0]}' tells {told[1].value:.0%} of the rows at 1 % false alarms"
    if epsilon is None:
        answer = "do not share" if told is not None and told[1].value > _MUCH else "cannot tell"
        return _because(answer, f"the sums carry no noise, and nothing is promised{rate}")
    most = min(1.0, bound_odds(epsilon, delta) / 100)
    bound = f"with ε = {epsilon:g} whoever is wrong about 1 % of others can tell at most {most:.0%} of the rows"
    if told is not None and told[1].interval.low > most:
        return _because("do not share", f"{bound}, and more are told{rate}")
    allowed = [limit.bound for limit in asked if limit.measure == "epsilon"]
    if allowed and epsilon > min(allowed):
        return state_broken(limits)
    if most > _SOMETHING and not allowed:
        return _because("cannot tell", f"the guarantee is weak: {bound}")
    return _because("share", f"{bound}, whatever attacks there are")


def decide_audit(audit: AuditResult | Plan) -> Decision:
    """The decision that the page of an audit or a plan leads with."""
    if isinstance(audit, Plan):
        weighed, answer = weigh_plan(audit), audit.answer
    else:
        one = _leading_sums(audit) or (
            audit.headline_point if audit.chosen is not None or len(audit.points) == 1 else None
        )
        weighed, answer = weigh_audit(audit), None if one is None or one.gain is None else one.gain.answer
    return decide("Should rows like these be shared?", [weighed], [] if answer is None else [answer])


def _leading_sums(result: AuditResult) -> SumResult | None:
    """Secure sums, where uploads of rows only stand beside them."""
    found = () if result.sums is None or not result.description.get("contrast") else result.sums.results
    return next(iter(found), None)


def weigh_plan(plan: Plan) -> Decision:
    """The same of a plan, at the setting that it recommends and within its own limit."""
    if plan.sums is not None:
        return weigh_sums(plan.sums, plan.sums.point.epsilon, plan.sums.point.delta, [str(plan.limit)])
    if plan.recommended is not None:
        return weigh_point(plan.recommended, [str(plan.limit)])
    return _because("do not share", f"nothing that was tried keeps to the limit ({plan.limit}) and may pay")


def state_broken(limits: Sequence[str]) -> Decision:
    """Limits of the study are not kept."""
    return _because("do not share", f"the study allows {' and '.join(map(repr, limits))}, and that is not kept")


def decide(question: str, weighed: Sequence[Decision], answers: Sequence[Answer] = ()) -> Decision:
    """The decision from everything that was weighed, and from every answer to whether joining pays.

    Parameters
    ----------
    question : str
        What is decided.
    weighed : sequence of dict
        As the functions above give them.
    answers : sequence of str
        Each from a comparison on the same rows.
    """
    unpaid = {"do not share": "does not pay", "cannot tell": "cannot tell"}
    words = {"do not share": "joining is shown not to pay", "cannot tell": "whether joining pays is not shown"}
    for answer, unpaying in unpaid.items():
        reasons = [reason for one in weighed if one["answer"] == answer for reason in one["reasons"]]
        if not weighed and answer == "cannot tell":
            reasons.append("what an upload gives away was not measured here")
        if unpaying in answers:
            reasons.append(words[answer])
        if reasons:
            return {"question": question, **_because(answer, *reasons)}
    joining = "joining is shown to pay" if answers else "what joining gives was not measured here"
    return {"question": question, **_because("share", *(words for one in weighed for words in one["reasons"]), joining)}


def _is_far_above_chance(figure: Figure) -> bool:
    """Whether a rate is twice its chance, and its interval above it."""
    chance = figure.chance or 0.0
    return figure.value >= _FAR_ABOVE_CHANCE * chance and not figure.interval.low <= chance


def _because(answer: str, *reasons: str) -> Decision:
    return {"answer": answer, "reasons": list(dict.fromkeys(reasons))}
