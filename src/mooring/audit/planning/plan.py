"""The result of a plan: every point tried, the report on the chosen one, and the recommendation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mooring.audit.result import AuditResult, PointResult
from mooring.audit.specification import LeakageLimit
from mooring.learners import Answer
from mooring.serialization import Record, render_html


@dataclass(frozen=True)
class Plan(Record):
    """What was searched, and what to do."""

    limit: LeakageLimit
    audit: AuditResult
    """What is reported, on the half of the rows that the search did not see, with draws of its own: the chosen point,
    or the safest one where none keeps to the limit; and secure sums."""
    recommended: PointResult | None
    """That point, if it keeps to the limit there and is not shown to be no better than training alone. Whether it is
    shown to be better, `answer` says."""
    verdict: str
    """The same in words."""
    mechanism: dict[str, Any] | None = None
    """What is recommended, as the [mechanism] table of a study. `data_noise_scale` is None where the rows were not encoded
    by a study, and do not tell its unit."""
    search: AuditResult | None = None
    """Every point that was tried, on the other half; None where the limit is of ε."""

    @property
    def tried(self) -> AuditResult:
        """Every point that was tried; what is reported, where nothing was searched."""
        return self.audit if self.search is None else self.search

    @property
    def answer(self) -> Answer | None:
        """Whether joining pays at the recommended point; None where that was not measured, or nothing is recommended."""
        gain = None if self.recommended is None else self.recommended.gain
        return None if gain is None else gain.answer

    def mechanism_lines(self) -> str | None:
        """The [mechanism] table as lines to paste into a study's file; None where nothing is recommended."""
        if self.mechanism is None:
            return None
        entries = {
            name: f'"{value}"' if isinstance(value, str) else f"{value:.6g}"
            for name, value in self.mechanism.items()
            if value is not None
        }
        lines = ["[mechanism]", *(f"{name} = {value}" for name, value in entries.items())]
        if self.recommended is not None and self.mechanism.get("data_noise_scale", 0.0) is None:
            scale = self.recommended.data_noise_scale
            lines.append(f"# data_noise_scale: {scale:.3g} here. {self.audit.noise_unit.words}")
        return "\n".join(lines)

    @property
    def frontier(self) -> tuple[PointResult, ...]:
        """Points that no other point beats both in score and in what the strongest attack leaves, the safest last."""
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
        """What a notebook shows: the verdict, and the points among which it chose."""
        shown = [*self.frontier, *self.tried.totals]
        tables = [self.tried.list_points(shown)] if shown else []
        return render_html(self.verdict, self.mechanism_lines() or "", tables=tables)


def find_safety(result: PointResult, limit: LeakageLimit) -> float:
    """A number that is higher where the strongest attack recovers less."""
    worst = result.worst(limit.measure)
    if worst is None:
        return -1.0
    return worst[1].value if limit.at_least else -worst[1].value
