"""The decision whether to share (share, do not share, or cannot tell), made from the rounded figures that it states.

For rows, limits are checked first: those of the study and, unless the study limits the error of the most exposed tenth of
rows, the default limit 'error at least 0.5' on it. No single measure leads to 'share': if the limits are kept, but a measure
without a limit shows clearly more leakage than guessing, the answer is 'cannot tell', or 'do not share' if it shows much
more. For totals, the guarantee decides, beside the study's limits. If joining is shown not to pay, the answer is 'do not
share'.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import ClassVar, Literal, Protocol

from mooring.audit.results.point_result import PointResult
from mooring.audit.results.statements import FAR_ABOVE_CHANCE
from mooring.errors import InputError
from mooring.learners import Answer, Gain
from mooring.mechanisms.sums.guarantee import bound_odds
from mooring.metrics import Figure, Interval
from mooring.metrics.intervals import round_number
from mooring.metrics.limits import DEFAULT_LIMIT, LeakageLimit
from mooring.metrics.measures import MEASURES, state_figure
from mooring.serialization import FloatOrNaN, Record

Verdict = Literal["share", "do not share", "cannot tell"]
_FIGURE = "{figure}"
_MEMBERSHIP = "membership_at_1_percent"
_NEEDED = (_MEMBERSHIP, "linkage")
_GRADED = (
    *("centred_error", "linkage", "exposed_value", "exposed_column", "exposed_row", "exposed_tenth", _MEMBERSHIP),
    *("register_class", "identity_linkage", "attribute", "read_column"),
)
_RATES = (_MEMBERSHIP, "linkage", "register_class", "identity_linkage")
_MUCH, _SOMETHING = 0.5, 0.2
"""Shares of what guessing misses. An attack that recovers more than the first share discloses much; more than the second,
something."""


@dataclass(frozen=True)
class Finding(Record):
    """A figure, its interval and the limit that it is compared with, rounded as its sentence shows them."""

    clause: str
    """What was measured, with {figure} as the placeholder of the number."""
    value: FloatOrNaN
    interval: Interval
    """Ends are rounded outwards."""
    limit: float
    at_least: bool
    """Whether the figure must be at least the limit, as errors must, or at most, as shares of rows must."""
    basis: str
    """What the limit is, such as "the study's limit"."""
    otherwise: Verdict
    """The answer if the limit is not kept."""
    n_decimals: int
    """Number of decimals to which all numbers are rounded."""
    is_share: bool
    """Whether numbers are written as percentages."""
    by_interval: bool = True
    """Whether the less safe end of the interval decides, rather than the figure itself."""

    @classmethod
    def of(
        cls,
        clause: str,
        figure: tuple[float, Interval],
        limit: float,
        *,
        at_least: bool,
        basis: str,
        otherwise: Verdict = "do not share",
        is_share: bool = False,
        is_exact: bool = True,
        by_interval: bool = True,
    ) -> Finding:
        """Round a figure, its interval and its limit to the decimals that are shown.

        An exact limit, which a person wrote, is shown with all of its decimals. A computed limit is rounded to the safe
        side. With `by_interval`, the interval, or a figure without one, is rounded to the less safe side.
        """
        value, interval = figure
        n_decimals = 3 if is_share else 2
        if is_exact:
            n_decimals = max(n_decimals, _count_decimals(limit))
        safe, unsafe = (ROUND_CEILING, ROUND_FLOOR) if at_least else (ROUND_FLOOR, ROUND_CEILING)
        alone = by_interval and not interval.known
        return cls(
            clause,
            round_number(value, n_decimals, unsafe if alone else ROUND_HALF_EVEN),
            interval.round_outwards(n_decimals),
            limit if is_exact else round_number(limit, n_decimals, safe),
            at_least,
            basis,
            otherwise,
            n_decimals,
            is_share,
            by_interval,
        )

    @property
    def decisive(self) -> float:
        """The number that is compared with the limit."""
        if not self.by_interval or not self.interval.known:
            return self.value
        return self.interval.low if self.at_least else self.interval.high

    @property
    def is_kept(self) -> bool:
        """Whether the decisive number keeps to the limit; NaN does not."""
        return self.decisive >= self.limit if self.at_least else self.decisive <= self.limit

    @property
    def answer(self) -> Verdict:
        """The answer that this figure suggests."""
        return "share" if self.is_kept else self.otherwise

    @property
    def words(self) -> str:
        """A sentence with the figure, its interval and the limit, in this order, without a full stop."""
        ends = self.interval
        shown = self.write(self.value) + (f" [{self.write(ends.low)}, {self.write(ends.high)}]" if ends.known else "")
        side, end = ("demands at least", "lower") if self.at_least else ("allows at most", "upper")
        is_figure_kept = self.value >= self.limit if self.at_least else self.value <= self.limit
        kept = "which is kept" if self.is_kept else "which is not kept"
        if is_figure_kept and not self.is_kept:
            kept = f"which the {end} end of the interval does not keep"
        return f"{self.clause.replace(_FIGURE, shown)}; {self.basis} {side} {self.write(self.limit)}, {kept}"

    def write(self, number: float) -> str:
        """Return a number as the sentence shows it."""
        return f"{number:.{self.n_decimals - 2}%}" if self.is_share else f"{number:.{self.n_decimals}f}"


@dataclass(frozen=True)
class Remark(Record):
    """A reason that is not a comparison of a figure with a limit, such as that something was not measured."""

    answer: Verdict
    words: str
    """A sentence without a full stop."""


Reason = Finding | Remark


@dataclass(frozen=True)
class Decision(Record):
    """The answer to a question, and the reasons that lead to it."""

    computed: ClassVar[tuple[str, ...]] = ("sentences",)

    question: str
    answer: Verdict
    reasons: tuple[Reason, ...]
    is_over: bool = False
    """Whether participants have shared, so that the question is whether the measurements support that."""

    def __post_init__(self) -> None:
        if not self.reasons or any(reason.answer != self.answer for reason in self.reasons):
            problem = "The reasons of a decision must be given, and must all lead to its answer."
            raise InputError("reasons", problem=problem, cure="Make the decision again from its figures.")

    @classmethod
    def from_reasons(cls, question: str, reasons: Iterable[Reason], *, is_over: bool = False) -> Decision:
        """Return the decision: the most cautious answer that any of the reasons gives."""
        distinct = list(dict.fromkeys(reasons))
        answers: tuple[Verdict, ...] = ("do not share", "cannot tell", "share")
        answer = next(answer for answer in answers if any(reason.answer == answer for reason in distinct))
        return cls(question, answer, tuple(reason for reason in distinct if reason.answer == answer), is_over)

    @property
    def spoken(self) -> str:
        """The answer as a reply to the question: advice or, if participants have shared already, yes, no or cannot tell."""
        replies: dict[Verdict, str] = {"share": "yes", "do not share": "no"} if self.is_over else {}
        return replies.get(self.answer, self.answer).capitalize()

    @property
    def sentences(self) -> tuple[str, ...]:
        """The reasons, each as a sentence without a full stop."""
        return tuple(reason.words for reason in self.reasons)

    @property
    def words(self) -> str:
        """Question, answer and reasons as one text."""
        return f"{self.question} {self.spoken}: {'. '.join(self.sentences)}."


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


def compare_with_limit(result: PointResult | None, words: str, basis: str) -> Reason:
    """Return what follows from a limit: a limit on ε is compared with the guarantee, any other with the strongest attack."""
    limit = LeakageLimit.parse(words)
    if limit.measure == "epsilon" and result is not None:
        return _compare_epsilon(result.point.promise, limit, basis)
    worst = None if result is None else result.worst(limit.measure)
    if worst is None or math.isnan(worst[1].value):
        return Remark("cannot tell", f"Whether {words!r} is kept was not measured")
    attack, figure = worst
    return Finding.of(
        state_figure(limit.measure, attack, figure, _FIGURE),
        (figure.value, figure.interval),
        limit.bound,
        at_least=limit.at_least,
        basis=basis,
        is_share=figure.is_share,
    )


def weigh_point(
    result: PointResult | None,
    limits: Sequence[str] = (),
    basis: str = "the study's limit",
    *,
    are_complete: bool = False,
) -> list[Reason]:
    """Return the reasons of one operating point: for rows, those from attacks; for a total, those of `weigh_total`.

    A limit replaces the default for its own measure only, so that a weak limit does not silence what other measures show.
    `are_complete` means that `limits` are all that is asked for, as in a plan: the default limit is not checked, and no
    other measure leads to 'do not share'.
    """
    if result is not None and not result.point.shares_rows:
        return weigh_total(result, result.point.promise, limits, basis)
    if result is None or result.worst() is None:
        return [Remark("cannot tell", "No attack could be run, so these results do not show that sharing is safe")]
    covered = {LeakageLimit.parse(words).measure for words in limits}
    reasons = [compare_with_limit(result, words, basis) for words in limits]
    if not are_complete and LeakageLimit.parse(DEFAULT_LIMIT).measure not in covered:
        reasons.append(compare_with_limit(result, DEFAULT_LIMIT, "the default limit"))
    if any(reason.answer == "do not share" for reason in reasons):
        return reasons
    graded = [reason for name in _GRADED if name not in covered for reason in _grade(result, name, are_complete)]
    if much := [reason for reason in graded if reason.answer == "do not share"]:
        return [*reasons, much[0]]
    if result.data_noise_scale == 0:
        graded.append(Remark("cannot tell", "The rows carry no noise, so an upload is an exact image of them"))
    missing = [name for name in _NEEDED if name not in covered and not _is_known(result.worst(name))]
    graded += [Remark("cannot tell", f"Not measured: {MEASURES[name].explanation}") for name in missing]
    if not graded:
        graded = [Remark("share", "No other measure shows much more than guessing")]
    return reasons + graded


def weigh_total(
    result: PointResult | None,
    promise: tuple[float, float] | None,
    limits: Sequence[str] = (),
    basis: str = "the study's limit",
) -> list[Reason]:
    """Return the reasons of a total: those from its guarantee (ε, δ) and, if attacks were run, those from attacks."""
    asked = {words: LeakageLimit.parse(words) for words in limits}
    reasons: list[Reason] = [
        _compare_epsilon(promise, limit, basis)
        if limit.measure == "epsilon"
        else compare_with_limit(result, words, basis)
        for words, limit in asked.items()
    ]
    if result is not None and result.epsilon is not None:
        clause = "Canaries, artificial rows that change the sums most, show that ε is at least {figure}"
        measured = result.epsilon.measured.epsilon, Interval.unknown()
        above = Finding.of(clause, measured, result.epsilon.claimed, at_least=False, basis="the guarantee")
        reasons += [] if above.is_kept else [above]
    if promise is None:
        words = "There is no guarantee" if result is None else result.point.state_guarantee().rstrip(".")
        reasons.append(Remark("cannot tell", words))
        worst = None if result is None else result.worst(_MEMBERSHIP)
        if worst is not None:
            clause, figure = state_figure(_MEMBERSHIP, *worst, _FIGURE), (worst[1].value, worst[1].interval)
            many = Finding.of(
                clause, figure, _MUCH, at_least=False, basis="the limit", is_share=True, by_interval=False
            )
            reasons += [] if many.is_kept else [many]
        return reasons
    clause = (
        f"With ε = {promise[0]:g}, any attacker who accepts 1 false alarm in 100 recognises at most {{figure}} of the "
    )
    bound = Finding.of(
        f"{clause}members, if the study's assumptions hold",
        (min(1.0, bound_odds(*promise) / 100), Interval.unknown()),
        _SOMETHING,
        at_least=False,
        basis="the limit of a strong guarantee",
        otherwise="cannot tell",
        is_share=True,
    )
    return [*reasons, bound]


def judge_joining(gains: Sequence[Gain | None]) -> list[Reason]:
    """Return a reason for each measured gain, judged by its interval; if there is none, one reason that says so."""
    answers: dict[Answer, Verdict] = {"pays": "share", "does not pay": "do not share", "cannot tell": "cannot tell"}
    known = [gain for gain in gains if gain is not None]
    reasons: list[Reason] = [Remark(answers[gain.answer], gain.sentence().rstrip(".")) for gain in known]
    return reasons or [Remark("share", "The benefit of joining was not measured")]


def decide_upload(
    what: str,
    reasons: Sequence[Reason],
    *,
    check: Checked | None = None,
    share: Shared | None = None,
    gains: Sequence[Gain | None] = (),
    is_over: bool = False,
) -> Decision:
    """Return the decision on a participant's upload or, without `check` and `share`, on all uploads of a study.

    `what` names what is shared: rows, or sums over them. `reasons` follow from attacks and guarantees, and `gains` are the
    measured gains of joining. `is_over` says that participants have shared.
    """
    question = "Should participants share in this study?" if check is None else f"Should you share {what}?"
    if is_over:
        question = "Participants have shared in this study. Do the measurements support it?"
    if share is not None:
        question = f"You shared {what}. Do the measurements support sharing them?"
    weighed = list(reasons) or [Remark("cannot tell", "What an upload discloses was not measured")]
    broken = dict.fromkeys(limit for record in (share, check) if record is not None for limit in record.exceeded)
    if broken and not any(reason.answer == "do not share" for reason in weighed):
        unkept = ", ".join(map(repr, broken))
        words = f"A check of these rows does not show that the study's limits are kept: {unkept}"
        weighed.append(Remark("do not share", words))
    if check is not None and share is None:
        refusals = [Remark("do not share", f"'mooring share' refuses them: {reason}") for reason in check.refused]
        weighed = [*refusals, *weighed]
    over = is_over or share is not None
    return Decision.from_reasons(question, [*weighed, *judge_joining(gains)], is_over=over)


def _compare_epsilon(promise: tuple[float, float] | None, limit: LeakageLimit, basis: str) -> Reason:
    if promise is None:
        return Remark("do not share", f"There is no guarantee, and {basis} is {str(limit)!r}")
    epsilon = promise[0], Interval.unknown()
    return Finding.of("The guarantee has ε = {figure}", epsilon, limit.bound, at_least=False, basis=basis)


def _grade(result: PointResult, measure: str, is_decided: bool) -> list[Reason]:
    """Return a list of one finding if an attack recovers clearly more than guessing, and an empty list otherwise.

    With `is_decided`, limits alone decide what may leak: this finding can then lead to 'cannot tell', but not to 'do not
    share'.
    """
    worst = result.worst(measure)
    if worst is None or math.isnan(worst[1].value):
        return []
    attack, figure = worst
    clause = state_figure(measure, attack, figure, _FIGURE)

    def compare(limit: float, basis: str, otherwise: Verdict) -> Finding:
        return Finding.of(
            clause,
            (figure.value, figure.interval),
            limit,
            at_least=not figure.higher_is_worse,
            basis=basis,
            otherwise=otherwise,
            is_share=figure.is_share,
            is_exact=False,
            by_interval=False,
        )

    levels = [level for level in (figure.chance, figure.control) if level is not None]
    is_relative = measure in ("exposed_row", "exposed_tenth")  # already relative to guessing
    if is_relative and figure.value >= (figure.chance or 0.0):  # chance: the smallest error of shuffled rows
        return []
    findings = []
    otherwise: Verdict = "cannot tell" if is_decided else "do not share"
    for share, way, error, answer in (
        (_MUCH, "half", "half", otherwise),
        (_SOMETHING, "a fifth", "four fifths", "cannot tell"),
    ):
        if figure.higher_is_worse:
            without = max(levels, default=0.0)
            limit, basis = without + share * (1 - without), f"{way} of the way from guessing to certainty"
        else:
            limit = (1 - share) * (1.0 if is_relative else min(levels, default=1.0))
            basis = f"{error} of the error of guessing"
        findings.append(compare(limit, f"the limit ({basis})", answer))
    chance = figure.chance or 0.0
    if measure in _RATES and not figure.interval.low <= chance:
        findings.append(compare(FAR_ABOVE_CHANCE * chance, "the limit (twice chance)", "cannot tell"))
    return next(([finding] for finding in findings if not finding.is_kept), [])


def _is_known(worst: tuple[str, Figure] | None) -> bool:
    return worst is not None and not math.isnan(worst[1].value)


def _count_decimals(number: float) -> int:
    exponent = Decimal(repr(float(number))).normalize().as_tuple().exponent
    return -exponent if isinstance(exponent, int) else 0
