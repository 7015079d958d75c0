"""Results of an audit as data: converted to JSON and back, with the sentences that head a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from mooring.attacks import ATTACKS, CollusionView, SumView, attacks_on
from mooring.audit.release import ReleaseRisk
from mooring.audit.results.decision import Decision, Reason, Remark, judge_joining, weigh_point
from mooring.audit.results.point_result import PointResult
from mooring.audit.results.statements import LOWER_BOUND, list_exposed, state_strongest, state_total
from mooring.audit.specification import NoiseUnit
from mooring.audit.utility import References
from mooring.errors import InputError
from mooring.learners import Score
from mooring.metrics import Figure
from mooring.serialization import Count, Record, Rows, drop_empty_columns, render_html

QUESTION = "Should rows like these be shared?"
_UNKNOWN = "none could be run: do not trust"
_LEADING = ("centred_error", "exposed_tenth", "linkage")


@dataclass(frozen=True)
class AuditDescription(Record):
    """The data, the attackers, the settings and the machine of an audit."""

    mooring: str = ""
    """The version of mooring."""
    n_participants: Count = 0
    n_rows: Count = 0
    rows_each: tuple[Count, Count] = (0, 0)
    """The smallest and the largest number of rows of a participant."""
    n_features: Count = 0
    n_test_rows: Count = 0
    labels: str | None = None
    projection: str = "none"
    colluders: tuple[str, ...] = ()
    targets: tuple[str, ...] = ()
    attacks: tuple[str, ...] | None = None
    """Names of the attacks that were requested; None for all."""
    n_known_rows: Count = 0
    n_repeated_uploads: Count = 0
    attribute: str | None = None
    learner: str = ""
    seed: int = 0
    noise_unit: NoiseUnit = NoiseUnit.GIVEN
    device: str = "cpu"
    machine: str = ""
    n_sum_features: Count | None = None
    """Number of features of the totals; None if no totals were audited."""
    limits: tuple[str, ...] = ()
    """Limits of the study that the rows belong to."""
    safest: bool = False
    """Whether the reported point is the safest of those that were tried, because no point keeps to the limit."""


@dataclass(frozen=True)
class AuditResult(Record):
    """The result of an audit."""

    computed: ClassVar[tuple[str, ...]] = ("decision", "headline", "joining", "trustworthy", "titles")

    description: AuditDescription
    references: References
    """The scores of training alone and of pooled raw rows."""
    points: tuple[PointResult, ...]
    warnings: tuple[str, ...] = ()
    """Properties of the data that help attackers, and limitations of this audit."""
    chosen: int | None = None
    """Index of the point that a study uses or will use."""

    def __post_init__(self) -> None:
        if self.chosen is not None and not 0 <= self.chosen < len(self.points):
            problem = f"The chosen point has index {self.chosen}, but the audit has {len(self.points)} points."
            raise InputError("chosen", problem=problem, cure="Run the audit again.")

    @property
    def noise_unit(self) -> NoiseUnit:
        """The unit of σ."""
        return self.description.noise_unit

    @property
    def usable_points(self) -> Sequence[PointResult]:
        """The points at which rows are shared and that a study can use.

        If a study can use none of these points, the result is all points at which rows are shared; without any such points,
        the result is the totals.
        """
        return [result for result in self.row_points if result.usable] or self.row_points or self.totals

    @property
    def headline_point(self) -> PointResult | None:
        """The point that the sentences describe: the chosen one, else the worst of `usable_points`; None without points."""
        if self.chosen is not None:
            return self.points[self.chosen]
        return min(self.usable_points, key=_value, default=None)

    @property
    def totals(self) -> tuple[PointResult, ...]:
        """The points at which totals over rows are shared instead of rows."""
        return tuple(result for result in self.points if not result.point.shares_rows)

    @property
    def row_points(self) -> tuple[PointResult, ...]:
        """The points at which rows are shared."""
        return tuple(result for result in self.points if result.point.shares_rows)

    @property
    def release(self) -> ReleaseRisk | None:
        """What the joint model discloses at the headline's point; None if it was not measured."""
        return None if self.headline_point is None else self.headline_point.release

    @property
    def trustworthy(self) -> bool:
        """Whether at least one attack could be run at every point; if not, the result is no evidence of safety."""
        return bool(self.points) and all(result.worst() is not None for result in self.points)

    @property
    def headline(self) -> str:
        """The sentences to read first: what the strongest attacks recover at the headline's point."""
        result = self.headline_point
        is_guarded = result is not None and not result.point.shares_rows and result.point.promise is not None
        if result is None or not (self.trustworthy or is_guarded):
            return (
                "This audit cannot be trusted: at some operating points no attack could be run. It does not show that "
                "sharing is safe."
            )
        n_tried, n_known = self.count_attacks()
        few = f"Not all attacks were tried ({n_tried} of {n_known}), so a stronger one may be missing."
        first = [few] if n_tried < n_known else []
        first += [] if self.trustworthy else ["At some operating points no attack could be run."]
        if not result.point.shares_rows:
            measured = [result.point.state_guarantee(), f"{self._where(result)}: {state_total(result)}"]
        else:
            clauses = filter(None, (state_strongest(result, measure) for measure in _LEADING))
            measured = [f"{self._where(result)}: {'; '.join(clauses)}."]
        return " ".join([*first, *measured, LOWER_BOUND])

    @property
    def sentences(self) -> list[str]:
        """A few sentences on the leakage at the headline's point."""
        point = self.headline_point
        if point is not None and not point.point.shares_rows:
            return [self.headline]
        if point is None or not self.trustworthy:
            return [self.headline, *self.warnings]
        membership = state_strongest(point, "membership_at_1_percent")
        exposed = [f"Most exposed: {clause}." for clause in list_exposed(point)[:1]]
        return [*([f"{membership}."] if membership else []), self.headline, *exposed]

    @property
    def titles(self) -> tuple[str, ...]:
        """The title of each point, in the order of the points."""
        return tuple(result.title for result in self.points)

    def weigh(self, limits: Sequence[str] = ()) -> list[Reason]:
        """Return the reasons for or against sharing at the headline's point; without a chosen point, at all usable ones.

        If the point shares rows and only some of the attacks were requested, the answer cannot be 'share'.
        """
        point, usable = self.headline_point, self.usable_points
        if point is not None and not point.point.shares_rows:
            return weigh_point(point, limits)
        if not self.trustworthy:
            return weigh_point(None)
        reasons = weigh_point(point, limits)
        if self.chosen is None and len(usable) > 1:
            answers = [Decision.from_reasons("", weigh_point(other, limits)).answer for other in usable]
            n_much, n_little = answers.count("do not share"), answers.count("share")
            if n_much == len(usable):
                against = [reason for reason in reasons if reason.answer == "do not share"]
                return [Remark("do not share", f"Each of the {n_much} settings discloses too much"), *against]
            words = f"No setting is chosen: {n_much} of {len(usable)} disclose too much, and {n_little} disclose little"
            return [Remark("cannot tell", f"{words} ('mooring plan' chooses one)")]
        n_tried, n_known = self.count_attacks()
        if n_tried < n_known:
            reasons.append(Remark("cannot tell", f"Not all attacks were tried ({n_tried} of {n_known})"))
        return reasons

    @property
    def decision(self) -> Decision:
        """Whether rows like these should be shared, by the limits of their study if there are any."""
        is_settled = self.chosen is not None or len(self.usable_points) == 1
        gains = [self.headline_point.gain] if is_settled and self.headline_point is not None else []
        reasons = [*self.weigh(self.description.limits), *judge_joining(gains)]
        return Decision.from_reasons(QUESTION, reasons)

    def count_attacks(self) -> tuple[int, int]:
        """Return how many of mooring's attacks that suit the headline's point were requested, and how many there are."""
        result, asked = self.headline_point, self.description.attacks
        usual = CollusionView if result is None or result.point.shares_rows else SumView
        names = [] if result is None else [outcome.attack.partition(" + ")[0] for outcome in result.outcomes]
        view = next((ATTACKS[name].view for name in names if name in ATTACKS), usual)
        known = {attack.name for attack in attacks_on(view)}
        return len(known if asked is None else known & set(asked)), len(known)

    def _where(self, result: PointResult) -> str:
        """Return which point the headline is about."""
        if not result.usable:
            return f"With settings that no study may have ({result.title})"
        if self.description.safest:
            return f"With the safest settings that were tried ({result.title})"
        n_usable = len(self.usable_points)
        if self.chosen is not None or n_usable == 1:
            return f"With these settings ({result.title})"
        return f"With the least safe of {n_usable} settings that a study may have ({result.title})"

    @property
    def joining(self) -> str:
        """Sentences on whether the joint model is better than training alone."""
        result = self.headline_point
        alone = None if result is None else self.find_alone(result)
        if alone is None or result is None or result.deployed is None or alone.value != alone.value:
            return "Utility was not measured: there is nothing to learn, or there are no rows to test on."
        trained = "Training alone" + (" with the same features" if alone is result.alone else "")
        words = (
            f"{trained} has {alone.article} {alone.metric} of {alone.with_interval()}, the joint model one of "
            f"{result.deployed.with_interval()} ({result.title})."
        )
        if result.gain is None:
            return f"{words} The two were not compared row by row, so whether joining pays is not known."
        return f"{words} {result.gain.sentence()}"

    def find_alone(self, result: PointResult) -> Score | None:
        """Return the score of training alone with which a point is compared; None if that was not measured.

        This is the score on raw rows or, if it is higher, the score with the point's own features.
        """
        raw, same = self.references.local_only, result.alone
        return same if raw is not None and same is not None and same.value > raw.value else raw

    def list_points(self, only: Sequence[PointResult] | None = None) -> Rows:
        """Return a table with a line for each point: the strongest attack, what it recovers, and the joint model's score.

        The scores without joining come last. Empty columns are left out.
        """
        shown = self.points if only is None else only
        several = len({getattr(result.point, "n_components", 0) for result in shown if result.point.shares_rows}) > 1
        rows = [_HEADINGS, *(_list_point(result, with_components=several) for result in shown)]
        beside = {
            "local only": self.references.local_only,
            "local only, same features": next((result.alone for result in shown if result.alone is not None), None),
            "pooled raw": self.references.pooled_raw,
        }
        rows += [(name, *[""] * 8, str(score), "") for name, score in beside.items() if score is not None]
        return drop_empty_columns(rows)

    def _repr_html_(self) -> str:
        """Return what a notebook shows; `mooring.report.charts.draw_audit` returns charts."""
        return render_html(self.headline, self.joining, tables=[self.list_points()])


_HEADINGS = (
    "operating point",
    "strongest attack",
    "its error",
    "guess",
    "links",
    "AUC",
    "at 1 %",
    "at 0.1 %",
    "ε ≥",
    "score",
    "(noisy)",
)


def _list_point(result: PointResult, *, with_components: bool) -> tuple[str, ...]:
    """Return the cells of a line below `_HEADINGS`."""
    worst, linked, at_1 = result.worst(), result.worst("linkage"), result.worst("membership_at_1_percent")
    title = result.point.short_title(result.data_noise_scale, with_components=with_components)
    if result.point.shares_rows:
        measured = [
            "" if worst is None else worst[1].with_interval(),
            "" if worst is None or worst[1].control is None else f"{worst[1].control:.2f}",
            "" if linked is None else f"{linked[1].value:.0%}",
            "",
            _write_rate(at_1, 0.01, n_decimals=0),
            "",
            "",
        ]
    else:
        title += "" if result.usable else ", refused"
        at_01 = result.worst("membership_at_0.1_percent")
        measured = [
            *[""] * 3,
            "" if worst is None else worst[1].with_interval(),
            _write_rate(at_1, 0.01, n_decimals=1),
            _write_rate(at_01, 0.001, n_decimals=1),
            "" if result.epsilon is None else f"{result.epsilon.measured.gaussian:.2g}",
        ]
    scores = ["" if score is None else str(score) for score in (result.deployed, result.noisy_test)]
    return (title, _UNKNOWN if worst is None else worst[0], *measured, *scores)


def _write_rate(worst: tuple[str, Figure] | None, false_alarms: float, *, n_decimals: int) -> str:
    """Return a true positive rate, with its rate of false alarms if rows are too few for the rate in the heading."""
    if worst is None:
        return ""
    value, shown = f"{worst[1].value:.{n_decimals}%}", worst[1].chance or 0.0
    return f"{value} (at {shown:.1%})" if shown > 1.05 * false_alarms else value


def _value(result: PointResult) -> float:
    """Return a number that is lower if the strongest attack recovers more; infinity if no attack could be run."""
    worst = result.worst()
    if worst is None:
        return float("inf")
    return -worst[1].value if worst[1].higher_is_worse else worst[1].value
