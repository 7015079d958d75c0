"""What an audit found, as data: it becomes JSON and back, and says in words what a reader must know first."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from mooring.audit.outcomes import HEADLINE, AttackOutcome, strongest
from mooring.audit.points import OperatingPoint
from mooring.audit.utility import References
from mooring.learners import Score
from mooring.measures import Figure

FORMAT = 1


@dataclass(frozen=True)
class PointResult:
    """One operating point: what attacks recover there, and what the joint model scores.

    Attributes
    ----------
    point : OperatingPoint
    data_noise_scale : float
        σ itself.
    outcomes : tuple of AttackOutcome
    deployed : Score or None
        The joint model's score when participants map new rows themselves, without noise.
    noisy_test : Score or None
        Its score with private-data noise on test rows too, as the paper measures; None where that is no different.
    alignment : str or None
        Why the solver stopped.
    examples : dict or None
        A few rows, original beside rebuilt.
    """

    point: OperatingPoint
    data_noise_scale: float
    outcomes: tuple[AttackOutcome, ...]
    deployed: Score | None
    noisy_test: Score | None
    alignment: str | None = None
    examples: dict[str, Any] | None = field(default=None, repr=False)

    def worst(self, measure: str = HEADLINE) -> tuple[str, Figure] | None:
        """The strongest attack's name and figure by a measure; None if no attack could be run."""
        outcome = strongest(self.outcomes, measure)
        return None if outcome is None else (outcome.attack, outcome.figures[measure])

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "point": self.point.as_dict(),
            "data_noise_scale": self.data_noise_scale,
            "outcomes": [outcome.as_dict() for outcome in self.outcomes],
            "deployed": None if self.deployed is None else self.deployed.as_dict(),
            "noisy_test": None if self.noisy_test is None else self.noisy_test.as_dict(),
            "alignment": self.alignment,
            "examples": self.examples,
        }

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> PointResult:
        """Read back what `as_dict` gave."""
        return cls(
            OperatingPoint(**plain["point"]),
            plain["data_noise_scale"],
            tuple(AttackOutcome.from_dict(outcome) for outcome in plain["outcomes"]),
            None if plain["deployed"] is None else Score.from_dict(plain["deployed"]),
            None if plain["noisy_test"] is None else Score.from_dict(plain["noisy_test"]),
            plain["alignment"],
            plain["examples"],
        )


@dataclass(frozen=True)
class AuditResult:
    """Everything an audit found.

    Attributes
    ----------
    description : dict
        What was audited: participants, rows, features, projection, colluders, targets, seed, versions.
    references : References
        Local only and pooled raw.
    points : tuple of PointResult
    warnings : tuple of str
        What makes this data easy to break, and what this audit could not do.
    """

    description: dict[str, Any]
    references: References
    points: tuple[PointResult, ...]
    warnings: tuple[str, ...] = ()

    @property
    def trustworthy(self) -> bool:
        """Whether at least one attack could be run at every point. If not, nothing here may be read as safety."""
        return bool(self.points) and all(result.worst() is not None for result in self.points)

    def headline(self) -> str:
        """The one sentence to read first."""
        if not self.trustworthy:
            return "This audit cannot be trusted: at some operating points no attack could be run. It is no clean bill."
        worst = min(self.points, key=lambda result: _value(result))
        attack, figure = worst.worst() or ("", None)
        assert figure is not None
        linked = worst.worst("linkage")
        words = f"At worst ({worst.point.title}) the attack '{attack}' rebuilds the target's rows to an error of "
        words += f"{figure.value:.2f}"
        words += f" [{figure.interval.low:.2f}, {figure.interval.high:.2f}]" if figure.interval.known else ""
        words += " of their spread"
        if linked is not None:
            words += f" and links {linked[1].value:.0%} of them (chance {linked[1].chance:.0%})"
        return words + ". A lower bound on leakage: a better attack may exist."

    def joining(self) -> str:
        """Whether joining beats training alone, in a sentence."""
        alone = self.references.local_only
        scored = [result for result in self.points if result.deployed is not None]
        if alone is None or not scored:
            return "Utility was not measured: there are no labels to learn, or no rows to test on."
        best = max(scored, key=lambda result: result.deployed.value if result.deployed else 0.0)
        assert best.deployed is not None
        ahead = [result for result in scored if result.deployed is not None and result.deployed.value > alone.value]
        words = f"Training alone scores {alone.value:.1%} ({alone.metric}). "
        if not ahead:
            return words + f"No operating point here beats that: the best joint model scores {best.deployed.value:.1%}."
        return words + (
            f"Joining beats it at {len(ahead)} of {len(scored)} operating points, at best with {best.deployed.value:.1%} "
            f"({best.point.title})."
        )

    def to_json(self) -> str:
        """Everything, as JSON text."""
        plain = {
            "format": FORMAT,
            "headline": self.headline(),
            "joining": self.joining(),
            "trustworthy": self.trustworthy,
            "description": self.description,
            "references": self.references.as_dict(),
            "warnings": list(self.warnings),
            "points": [result.as_dict() for result in self.points],
        }
        return json.dumps(plain, indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AuditResult:
        """Read back what `to_json` gave."""
        plain = json.loads(text)
        return cls(
            plain["description"],
            References.from_dict(plain["references"]),
            tuple(PointResult.from_dict(result) for result in plain["points"]),
            tuple(plain["warnings"]),
        )

    def figures(self) -> dict[str, Any]:
        """Plotly figures by name: frontier, leakage, utility, and rows or images side by side."""
        from mooring.audit.drawing import draw

        return dict(draw(self))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from html import escape

        figures = self.figures()
        drawn = figures["frontier"].to_html(full_html=False, include_plotlyjs=True) if "frontier" in figures else ""
        return f"<p><b>{escape(self.headline())}</b></p><p>{escape(self.joining())}</p>{drawn}"


def _value(result: PointResult) -> float:
    worst = result.worst()
    return float("inf") if worst is None else worst[1].value
