"""The result of one operating point: what each attack recovers there, and what the joint model scores."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mooring.audit.operating_points import OperatingPoint
from mooring.audit.release import ReleaseRisk
from mooring.audit.utility import Utility
from mooring.errors import InputError
from mooring.metrics import EpsilonAudit, Figure, strongest_value
from mooring.metrics.limits import LeakageLimit
from mooring.serialization import Count, Record

HEADLINE = "centred_error"
"""The measure by which attacks on rows are ranked: the error of rebuilt rows relative to the spread of projected rows."""
MEMBERSHIP = "membership_auc"
"""The measure by which attacks on sums are ranked: the AUC."""
_N_TELLING = 3


@dataclass(frozen=True)
class AttackOutcome(Record):
    """One attack's figures, or why it has none."""

    attack: str
    """The name of the attack, and of the denoiser if there is one, such as "moments + kernel"."""
    figures: dict[str, Figure] = field(default_factory=dict)
    """Figures by measure; empty if the attack does not apply."""
    reason: str | None = None
    """The reason why the attack does not apply."""
    notes: tuple[str, ...] = ()
    curve: tuple[tuple[float, float], ...] = ()
    """The ROC curve of membership, as false and true positive rates; empty if it was not measured."""

    @property
    def applies(self) -> bool:
        """Whether there are figures."""
        return bool(self.figures)

    def with_figures(self, figures: Mapping[str, Figure]) -> AttackOutcome:
        """Return the outcome with further figures."""
        return replace(self, figures={**self.figures, **figures})


@dataclass(frozen=True)
class Examples(Record):
    """A few rows, original beside rebuilt, as numbers and, for a table, in words."""

    attack: str
    """The attack that rebuilt the rows."""
    rows: dict[str, tuple[tuple[float, ...], ...]]
    """The rows by version: "original", "projection only", "rebuilt" and, if there is a guess, "guessed without the
    upload"."""
    image_shape: tuple[Count, ...] | None = None
    """The shape of an image; None for tables."""
    feature_names: tuple[str, ...] = ()
    indices: tuple[Count, ...] = ()
    """Indices of the rows among the records that were partitioned."""
    columns: tuple[str, ...] = ()
    """The columns of the table; empty if they are not known."""
    words: dict[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    """The cells of the rows in words, by version; empty if the columns are not known."""
    row_numbers: tuple[Count, ...] | None = None
    """Numbers of the rows in the file, from 1; None if they are not known."""

    def __post_init__(self) -> None:
        n, width = len(self.rows.get("original", ())), len(next(iter(self.rows.get("original", ())), ()))
        parts: list[tuple[Mapping[str, Sequence[Sequence[object]]], int]] = [(self.rows, width)]
        parts += [(self.words, len(self.columns))] if self.columns else []
        for part, n_cells in parts:
            same = all(len(rows) == n and {len(row) for row in rows} <= {n_cells} for rows in part.values())
            if not {"original", "rebuilt"} <= set(part) or not same:
                problem = "The examples must hold original and rebuilt rows of the same shape, and they do not."
                raise InputError("examples", problem=problem, cure="Run the audit again.")
        shape = self.image_shape
        if shape is not None and (
            len(shape) not in (2, 3) or math.prod(shape) != width or "projection only" not in self.rows
        ):
            problem = f"The example rows are not images of shape {shape}, or their projections are missing."
            raise InputError("image_shape", problem=problem, cure="Run the audit again.")
        if self.row_numbers is not None and len(self.row_numbers) != n:
            problem = f"The examples have {n} rows, but {len(self.row_numbers)} row numbers."
            raise InputError("row_numbers", problem=problem, cure="Run the audit again.")


def find_strongest(outcomes: Sequence[AttackOutcome], measure: str = HEADLINE) -> AttackOutcome | None:
    """Return the outcome of the strongest attack by a measure; None if no attack has a figure for it."""
    having = [outcome for outcome in outcomes if measure in outcome.figures]
    if not having:
        return None
    values = np.array([outcome.figures[measure].value for outcome in having])
    best = strongest_value(values, higher_is_worse=having[0].figures[measure].higher_is_worse)
    return next((outcome for outcome, value in zip(having, values, strict=True) if value == best), None)


def find_most_telling(outcomes: Sequence[AttackOutcome]) -> list[AttackOutcome]:
    """Return the outcomes of up to three attacks with the smallest error, and of the attack that links the most rows."""
    having = [outcome for outcome in outcomes if HEADLINE in outcome.figures]
    chosen = sorted(having, key=lambda outcome: outcome.figures[HEADLINE].value)[:_N_TELLING]
    linking = find_strongest(outcomes, "linkage")
    return chosen if linking is None or any(outcome is linking for outcome in chosen) else [*chosen, linking]


@dataclass(frozen=True, kw_only=True)
class Leakage(Record):
    """What attackers recover at one operating point."""

    outcomes: tuple[AttackOutcome, ...] = ()
    """The outcome of each attack by the colluders that the audit assumes."""
    beyond: tuple[AttackOutcome, ...] = ()
    """The outcome of each attack by more colluders than a guarantee allows for: all participants but one. Empty for rows,
    and if the audit assumes as many colluders."""
    examples: Examples | None = field(default=None, repr=False)
    """A few rows, original beside rebuilt."""
    epsilon: EpsilonAudit | None = None
    """The measured ε, beside the one that the noise claims; None without noise. For noise on rows, the attacker knows the
    map and tells apart two rows at a distance of σ."""


@dataclass(frozen=True)
class PointResult(Leakage, Utility):
    """One operating point: what attacks recover there, and what the joint model scores."""

    point: OperatingPoint
    data_noise_scale: float = 0.0
    """σ in the unit of the rows' numbers (`AuditDescription.noise_unit`); 0 if no noise is added to rows."""
    usable: bool = True
    """Whether a study between organisations may have these settings with rows like these."""
    alignment: str | None = None
    """The reason why the solver of the alignment stopped; None without an alignment."""
    release: ReleaseRisk | None = None
    """What the joint model itself discloses; None if this was not measured."""

    @property
    def title(self) -> str:
        """The mechanism and its noise, in a few words."""
        return self.point.title_with(self.data_noise_scale)

    @property
    def headline(self) -> str:
        """The measure by which attacks on this point are ranked."""
        return HEADLINE if self.point.shares_rows else MEMBERSHIP

    def worst(self, measure: str | None = None) -> tuple[str, Figure] | None:
        """Return the strongest attack's name and figure by a measure, by default `headline`; None if there is none."""
        measure = measure or self.headline
        outcome = find_strongest(self.outcomes, measure)
        return None if outcome is None else (outcome.attack, outcome.figures[measure])

    def keeps_to(self, limit: LeakageLimit, *, room: float = 1.0) -> bool:
        """Return whether a limit is met: a limit on ε by the guarantee of the point, any other by the strongest attack.

        If no attack could be run at the point, it can only meet a limit on ε. `room` is as for `LeakageLimit.met_by`.
        """
        if limit.measure == "epsilon":
            return self.point.promise is not None and self.point.promise[0] <= limit.bound
        worst = self.worst(limit.measure)
        return worst is not None and not math.isnan(worst[1].value) and limit.met_by(worst[1], room=room)
