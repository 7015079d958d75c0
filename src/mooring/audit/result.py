"""What an audit found, as data: it becomes JSON and back, and says in words what a reader must know first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mooring.attacks import REGISTRY
from mooring.audit.operating_points import OperatingPoint
from mooring.audit.utility import References
from mooring.learners import Score
from mooring.metrics import Figure, strongest_value
from mooring.serialization import Serializable

FORMAT = 1
HEADLINE = "centred_error"
"""The measure by which attacks are ranked: error of the rebuilt rows, relative to the centred rows, after projection."""


@dataclass(frozen=True)
class AttackOutcome(Serializable):
    """One attack's figures, or why it has none.

    Attributes
    ----------
    attack : str
        Its name; " + denoising" is appended where its rows were denoised.
    figures : dict of Figure
        By measure; empty where the attack does not apply.
    reason : str or None
        Why it does not apply.
    notes : tuple of str
    """

    attack: str
    figures: dict[str, Figure] = field(default_factory=dict)
    reason: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def applies(self) -> bool:
        """Whether there are figures."""
        return bool(self.figures)


def find_strongest(outcomes: Sequence[AttackOutcome], measure: str = HEADLINE) -> AttackOutcome | None:
    """The outcome that leaks most by this measure; None if no attack has it."""
    having = [one for one in outcomes if measure in one.figures]
    if not having:
        return None
    values = np.array([one.figures[measure].value for one in having])
    best = strongest_value(values, higher_is_worse=having[0].figures[measure].higher_is_worse)
    return next((one for one, value in zip(having, values, strict=True) if value == best), None)


@dataclass(frozen=True)
class PointResult(Serializable):
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
    learner : str or None
        What the joint model is; where "auto" was asked for, what it chose. None where there was nothing to learn.
    """

    point: OperatingPoint
    data_noise_scale: float
    outcomes: tuple[AttackOutcome, ...]
    deployed: Score | None
    noisy_test: Score | None
    alignment: str | None = None
    examples: dict[str, Any] | None = field(default=None, repr=False)
    learner: str | None = None

    def worst(self, measure: str = HEADLINE) -> tuple[str, Figure] | None:
        """The strongest attack's name and figure by a measure; None if no attack could be run."""
        outcome = find_strongest(self.outcomes, measure)
        return None if outcome is None else (outcome.attack, outcome.figures[measure])


@dataclass(frozen=True)
class AuditResult(Serializable):
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
        worst = min(self.points, key=_value)
        attack, figure = worst.worst() or ("", None)
        assert figure is not None
        words = f"At worst ({worst.point.title}) the attack '{attack}' rebuilds the target's rows to an error of "
        words += f"{figure.value:.2f}"
        words += f" [{figure.interval.low:.2f}, {figure.interval.high:.2f}]" if figure.interval.known else ""
        words += " of their spread"
        linked = [(one.worst("linkage"), one) for one in self.points]
        known = [(found[1].value, found[0], found[1], one) for found, one in linked if found is not None]
        if known:
            value, by, link, one = max(known, key=lambda entry: entry[0])
            where = "" if one is worst else f" at {one.point.title}"
            words += (
                f"; the attack '{by}' links {value:.0%} [{link.interval.low:.0%}, {link.interval.high:.0%}] of them"
            )
            words += f"{where} (chance {link.chance:.0%})"
        words += ". A lower bound on leakage: a better attack may exist."
        asked = self.description.get("attacks")
        if asked is not None and len(asked) < len(REGISTRY):
            words = (
                f"Only {len(asked)} of {len(REGISTRY)} attacks were asked for, so this is not the strongest. {words}"
            )
        return words

    def joining(self) -> str:
        """Whether joining beats training alone, in a sentence."""
        alone = self.references.local_only
        scored = [one for one in self.points if one.deployed is not None and one.deployed.value == one.deployed.value]
        if alone is None or not scored or alone.value != alone.value:
            return "Utility was not measured: there is nothing to learn, or there are no rows to test on."
        best = max(scored, key=_score)
        assert best.deployed is not None
        ahead = sum(one.deployed.low > alone.value for one in scored if one.deployed is not None)
        words = f"Training alone scores {alone} ({alone.metric}). "
        at_best = f"the best joint model scores {best.deployed.with_interval()} ({best.point.title})"
        if ahead:
            return words + f"Joining is shown to beat it at {ahead} of {len(scored)} operating points; {at_best}."
        if best.deployed.value > alone.value:
            return words + f"Joining is not shown to beat that: {at_best}, within its uncertainty."
        return words + f"No operating point here beats that: {at_best}."

    def measured(self, measure: str) -> str | None:
        """The strongest attack by a measure over all points, in a sentence; None if nobody measured it."""
        found = [(one.worst(measure), one) for one in self.points]
        known = [(figure, attack, one) for (attack, figure), one in ((f, o) for f, o in found if f is not None)]
        if not known:
            return None
        leaks_most = max if known[0][0].higher_is_worse else min
        figure, attack, one = leaks_most(known, key=lambda entry: entry[0].value)
        beside = {"chance": figure.chance, "without the upload": figure.control, "projection alone": figure.floor}
        levels = ", ".join(f"{name} {value:.2f}" for name, value in beside.items() if value is not None)
        spread = f" [{figure.interval.low:.2f}, {figure.interval.high:.2f}]" if figure.interval.known else ""
        return f"{figure.value:.2f}{spread} by '{attack}' at {one.point.title} ({levels})"

    def as_dict(self) -> dict[str, Any]:
        """Everything, in plain values."""
        return {
            "format": FORMAT,
            "headline": self.headline(),
            "joining": self.joining(),
            "trustworthy": self.trustworthy,
            "description": self.description,
            "references": self.references.as_dict(),
            "warnings": list(self.warnings),
            "points": [result.as_dict() for result in self.points],
        }

    def to_json(self) -> str:
        """Everything, as JSON text."""
        return json.dumps(self.as_dict(), indent=1, ensure_ascii=False, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> AuditResult:
        """Read back what `to_json` gave."""
        return cls.from_dict(json.loads(text))

    def _repr_html_(self) -> str:
        """What a notebook shows; `mooring.report.draw_audit` gives charts."""
        from html import escape

        return f"<p><b>{escape(self.headline())}</b></p><p>{escape(self.joining())}</p>"


def _score(result: PointResult) -> float:
    return float("-inf") if result.deployed is None else result.deployed.value


def _value(result: PointResult) -> float:
    worst = result.worst()
    return float("inf") if worst is None else worst[1].value
