"""The result of a plan: every point tried, the report on the chosen one, and the recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mooring.audit.operating_points import Recommendation
from mooring.audit.results.audit_result import QUESTION, AuditResult
from mooring.audit.results.decision import Decision, Reason, Remark, judge_joining, weigh_point
from mooring.audit.results.point_result import PointResult
from mooring.learners import Answer
from mooring.metrics.limits import LeakageLimit
from mooring.serialization import Record, render_html


@dataclass(frozen=True)
class Plan(Record):
    """The points that were tried, the report on the chosen one, and the recommendation."""

    computed: ClassVar[tuple[str, ...]] = ("decision",)

    limit: LeakageLimit
    audit: AuditResult
    """The report on the half of the rows that the search did not use, with independent random draws. It holds the chosen
    point, or the safest point if no point keeps to the limit. If joining pays at points with a guarantee, it also holds the
    one with the smallest ε. If the limit bounds ε, the report holds all points that were tried."""
    recommended: PointResult | None
    """The chosen point; None if no point kept to the limit in the search, if the chosen point does not keep to it in the
    report, or if it is shown to be no better than training alone. `answer` says whether it is shown to be better."""
    verdict: str
    """The recommendation in words."""
    mechanism: Recommendation | None = None
    """The recommendation as settings of a study."""
    search: AuditResult | None = None
    """All points that were tried, on the other half of the rows; None if the limit bounds ε."""

    @property
    def tried(self) -> AuditResult:
        """All points that were tried, or the report if there was no search."""
        return self.audit if self.search is None else self.search

    @property
    def answer(self) -> Answer | None:
        """Whether joining pays at the recommended point; None if this was not measured or nothing is recommended."""
        gain = None if self.recommended is None else self.recommended.gain
        return None if gain is None else gain.answer

    @property
    def decision(self) -> Decision:
        """Whether rows like these should be shared, by the plan's own limit."""
        reasons: list[Reason] = [Remark("do not share", f"No setting is recommended within the limit ({self.limit})")]
        if self.recommended is not None:
            reasons = weigh_point(self.recommended, [str(self.limit)], "the plan's limit", are_complete=True)
            reasons += judge_joining([self.recommended.gain])
        return Decision.from_reasons(QUESTION, reasons)

    @property
    def has_known_noise(self) -> bool:
        """Whether the recommended noise, if there is any, is in the unit of a study."""
        return self.mechanism is None or self.mechanism.has_known_noise

    def mechanism_lines(self) -> str | None:
        """Return the [mechanism] table as lines for a study's file, or None if nothing is recommended."""
        if self.mechanism is None:
            return None
        lines = ["[mechanism]"]
        for name, value in self.mechanism.as_dict().items():
            if value is not None:
                words = (
                    f'"{value}"' if isinstance(value, str) else str(value) if isinstance(value, int) else f"{value:.6g}"
                )
                lines.append(f"{name} = {words}")
        if self.recommended is not None and not self.has_known_noise:
            scale = self.recommended.data_noise_scale
            lines.append(f"# data_noise_scale: {scale:.3g} here. {self.audit.noise_unit.words}")
        return "\n".join(lines)

    @property
    def frontier(self) -> tuple[PointResult, ...]:
        """The Pareto-optimal points at which rows are shared, by score and safety, the safest last."""
        known = [
            (find_safety(result, self.limit), result.deployed.value, result)
            for result in self.tried.row_points
            if result.deployed is not None and result.worst(self.limit.measure) is not None
        ]
        best = [
            (a, result)
            for a, b, result in known
            if not any(safety >= a and score >= b and (safety, score) != (a, b) for safety, score, _ in known)
        ]
        return tuple(result for _, result in sorted(best, key=lambda pair: pair[0]))

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the settings, and a table of frontier and totals."""
        shown = [*self.frontier, *self.tried.totals]
        tables = [self.tried.list_points(shown)] if shown else []
        return render_html(self.verdict, self.mechanism_lines() or "", tables=tables)


def find_safety(result: PointResult, limit: LeakageLimit) -> float:
    """Return a number that is higher if the strongest attack recovers less; −1 if no attack has this measure."""
    worst = result.worst(limit.measure)
    if worst is None:
        return -1.0
    return worst[1].value if limit.at_least else -worst[1].value
