"""Results of an audit as data: converted to JSON and back, with the sentences that head a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mooring.attacks import REGISTRY
from mooring.audit.operating_points import NoiseUnit, OperatingPoint, SumPoint
from mooring.audit.release import ReleaseRisk
from mooring.audit.utility import References
from mooring.learners import Gain, Score
from mooring.metrics import EpsilonAudit, Figure, strongest_value
from mooring.metrics.membership import FALSE_POSITIVE_RATES
from mooring.serialization import Record, Rows, render_html

HEADLINE = "centred_error"
"""The measure by which attacks are ranked: error of the rebuilt rows, relative to the centred rows, after projection."""
MEMBERSHIP = "membership_auc"
"""The measure by which attacks on sums are ranked."""
_UNKNOWN = "none could be run: do not trust"


@dataclass(frozen=True)
class AttackOutcome(Record):
    """One attack's figures, or why it has none."""

    attack: str
    """Its name; where its rows were denoised, followed by the denoiser's: "moments + kernel"."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """By measure; empty where the attack does not apply."""
    reason: str | None = None
    """Why it does not apply."""
    notes: tuple[str, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    """Membership's ROC: false-positive and true-positive rates; empty where it was not measured."""

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
class PointResult(Record):
    """One operating point: what attacks recover there, and what the joint model scores."""

    point: OperatingPoint
    data_noise_scale: float
    """σ itself, in the unit of the rows' numbers (`AuditResult.noise_unit`)."""
    outcomes: tuple[AttackOutcome, ...]
    deployed: Score | None = None
    """The joint model's score when participants map new rows themselves, without noise."""
    noisy_test: Score | None = None
    """Its score with private-data noise on test rows too, as the paper measures; None where that is no different."""
    alignment: str | None = None
    """Why the solver stopped."""
    examples: dict[str, Any] | None = field(default=None, repr=False)
    """A few rows, original beside rebuilt."""
    learner: str | None = None
    """What the joint model is; where "auto" was asked for, what it chose. None where there was nothing to learn."""
    gain: Gain | None = None
    """`deployed` over training alone, on the same rows; None where utility was not measured, and in older results."""
    release: ReleaseRisk | None = None
    """What the joint model itself gives away; None where it was not measured."""
    epsilon: EpsilonAudit | None = None
    """Of private-data noise, for rows that differ by σ and a map that is known; None without such noise."""

    @property
    def title(self) -> str:
        """The method and its noise, in a few words."""
        return self.point.title_with(self.data_noise_scale)

    def worst(self, measure: str = HEADLINE) -> tuple[str, Figure] | None:
        """The strongest attack's name and figure by a measure; None if no attack could be run."""
        outcome = find_strongest(self.outcomes, measure)
        return None if outcome is None else (outcome.attack, outcome.figures[measure])


@dataclass(frozen=True)
class SumResult(Record):
    """Secure sums at one ε: what attackers tell from the total, and what the joint model scores."""

    point: SumPoint
    outcomes: tuple[AttackOutcome, ...]
    """Membership among the honest rows, by the colluders that the guarantee allows for."""
    one_honest: tuple[AttackOutcome, ...]
    """Membership in one participant, where all others collude: beyond what the guarantee allows for."""
    epsilon: EpsilonAudit | None
    """The ε claimed beside the one measured; None without noise."""
    usable: bool
    """Whether a study may have it: without noise, features must be few against rows."""
    deployed: Score | None = None
    """The joint model's score."""
    gain: Gain | None = None
    """That over training alone, with the columns or with the same features, whichever is better."""

    @property
    def title(self) -> str:
        """The mechanism and its ε, in a few words."""
        return self.point.title

    def worst(self, measure: str = MEMBERSHIP) -> tuple[str, Figure] | None:
        """The strongest attack's name and figure by a measure; None if no attack could be run."""
        outcome = find_strongest(self.outcomes, measure)
        return None if outcome is None else (outcome.attack, outcome.figures[measure])


@dataclass(frozen=True)
class SumAudit(Record):
    """Secure sums at every ε that was asked for."""

    n_features: int
    """D."""
    n_rows: int
    """Behind the total."""
    alone: Score | None
    """Training alone with the same features; the mean over participants."""
    results: tuple[SumResult, ...]

    def list_results(self) -> Rows:
        """A line an ε: what the strongest attack tells of members, the ε measured, and what the joint model scores."""
        rows: list[tuple[str, ...]] = [
            ("secure sums", "strongest attack", "AUC", "told at 1 %", "at 0.1 %", "ε at least", "score")
        ]
        for one in self.results:
            figures = [one.worst(measure) for measure in (MEMBERSHIP, *FALSE_POSITIVE_RATES)]
            rows.append(
                (
                    one.title + ("" if one.usable else ", refused"),
                    _UNKNOWN if figures[0] is None else figures[0][0],
                    "" if figures[0] is None else figures[0][1].with_interval(),
                    *("" if found is None else f"{found[1].value:.1%}" for found in figures[1:]),
                    "" if one.epsilon is None else f"{one.epsilon.measured.gaussian:.2g}",
                    "" if one.deployed is None else str(one.deployed),
                )
            )
        return rows if self.alone is None else [*rows, ("local only, same features", *[""] * 5, str(self.alone))]


@dataclass(frozen=True)
class AuditResult(Record):
    """Everything an audit found."""

    description: dict[str, Any]
    """What was audited: participants, rows, features, projection, colluders, targets, seed, versions."""
    references: References
    """Local only and pooled raw."""
    points: tuple[PointResult, ...]
    warnings: tuple[str, ...] = ()
    """What makes this data easy to break, and what this audit could not do."""
    chosen: int | None = None
    """The place among the points of the one that a study has, or is to have."""
    sums: SumAudit | None = None
    """Secure sums beside the uploads of rows; None where they were not asked for, or there is nothing to learn."""

    @property
    def noise_unit(self) -> NoiseUnit:
        """What σ is measured in; older results do not say."""
        return next((unit for unit in NoiseUnit if unit == self.description.get("noise_unit")), NoiseUnit.GIVEN)

    @property
    def usable_points(self) -> Sequence[PointResult]:
        """The points that a study can use; where it could use none, all."""
        return [one for one in self.points if one.point.usable] or self.points

    @property
    def headline_point(self) -> PointResult | None:
        """The point that every sentence is about: the chosen one, else the worst of those that a study can use.

        None without points; where no study could use any, the worst of them.
        """
        if self.chosen is not None:
            return self.points[self.chosen]
        return min(self.usable_points, key=_value, default=None)

    @property
    def release(self) -> ReleaseRisk | None:
        """What the joint model gives away at that point; None where it was not measured."""
        return None if self.headline_point is None else self.headline_point.release

    @property
    def trustworthy(self) -> bool:
        """Whether at least one attack could be run at every point. If not, nothing here may be read as safety."""
        return bool(self.points) and all(result.worst() is not None for result in self.points)

    def headline(self) -> str:
        """The one sentence to read first."""
        one = self.headline_point
        if one is None or not self.trustworthy:
            return "This audit cannot be trusted: at some operating points no attack could be run. It is no clean bill."
        attack, figure = one.worst() or ("", None)
        assert figure is not None
        words = f"{self._where(one)} the attack '{attack}' rebuilds the target's rows to an error of {figure.value:.2f}"
        words += f"{figure.interval.written()} of their spread"
        words += "" if figure.control is None else f" (without the upload: {figure.control:.2f})"
        if (tenth := one.worst("exposed_tenth")) is not None:
            words += f", a tenth of them to {tenth[1].value:.2f} of the error of guessing"
        linked = one.worst("linkage")
        if linked is not None:
            by, link = linked
            words += f"; the attack '{by}' links {link.value:.0%}{link.interval.written('.0%')} of them"
            words += "" if link.chance is None else f" (chance {link.chance:.0%})"
        words += ". A lower bound on leakage: a better attack may exist."
        asked = self.description.get("attacks")
        if asked is not None and len(asked) < len(REGISTRY):
            words = f"Only {len(asked)} of {len(REGISTRY)} attacks were tried, so this is not the strongest. {words}"
        return words

    def _where(self, one: PointResult) -> str:
        """Which point a headline is about, and why it."""
        if not one.point.usable:
            return f"At worst ({one.title}, a method that no study can use)"
        if self.description.get("contrast"):
            return f"For contrast, where rows are uploaded ({one.title})"
        if self.description.get("safest"):
            return f"At the safest setting that was tried ({one.title})"
        n_usable = len(self.usable_points)
        if self.chosen is not None or n_usable == 1:
            return f"At the chosen setting ({one.title})"
        return f"No setting is chosen; at the worst of {n_usable} that a study can use ({one.title})"

    def joining(self) -> str:
        """Whether joining beats training alone, in a sentence."""
        alone, one = self.references.local_only, self.headline_point
        if alone is None or one is None or one.deployed is None or alone.value != alone.value:
            return "Utility was not measured: there is nothing to learn, or there are no rows to test on."
        words = f"Training alone scores {alone} ({alone.metric}), the joint model {one.deployed} ({one.title}). "
        if one.gain is None:
            return words + "The two were not compared row by row, so whether joining pays is not known."
        return words + one.gain.sentence()

    def measured(self, measure: str) -> str | None:
        """The strongest attack by a measure where the headline is, in a sentence; None if nobody measured it."""
        one = self.headline_point
        worst = None if one is None else one.worst(measure)
        if one is None or worst is None:
            return None
        attack, figure = worst
        beside = {"chance": figure.chance, "without the upload": figure.control, "projection alone": figure.floor}
        levels = ", ".join(f"{name} {value:.2f}" for name, value in beside.items() if value is not None)
        return f"{figure.value:.2f}{figure.interval.written()} by '{attack}' at {one.title} ({levels})"

    def list_points(self, only: Sequence[PointResult] | None = None) -> Rows:
        """A line a point: the strongest attack, what it recovers, the joint model's score; and training without joining."""
        shown = self.points if only is None else only
        several = len({one.point.n_components for one in shown}) > 1
        rows: list[tuple[str, ...]] = [
            ("operating point", "strongest attack", "its error", "guess", "links", "told", "score", "(noisy)")
        ]
        for one in shown:
            worst, linked, told = one.worst(), one.worst("linkage"), one.worst("membership_at_1_percent")
            rows.append(
                (
                    one.point.short_title(one.data_noise_scale, with_components=several),
                    _UNKNOWN if worst is None else worst[0],
                    "" if worst is None else worst[1].with_interval(),
                    "" if worst is None or worst[1].control is None else f"{worst[1].control:.2f}",
                    "" if linked is None else f"{linked[1].value:.0%}",
                    "" if told is None else f"{told[1].value:.0%}",
                    "" if one.deployed is None else str(one.deployed),
                    "" if one.noisy_test is None else str(one.noisy_test),
                )
            )
        beside = {"local only": self.references.local_only, "pooled raw": self.references.pooled_raw}
        return [*rows, *((name, *[""] * 5, str(one), "") for name, one in beside.items() if one is not None)]

    def _repr_html_(self) -> str:
        """What a notebook shows; `mooring.report.draw_audit` gives charts."""
        tables = [self.list_points(), *([] if self.sums is None else [self.sums.list_results()])]
        return render_html(self.headline(), self.joining(), tables=tables)


def _value(result: PointResult) -> float:
    worst = result.worst()
    return float("inf") if worst is None else worst[1].value
