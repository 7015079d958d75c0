"""Settings of an audit: colluders, targets and attacks, and how rebuilt rows are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.attacks import ATTACKS, resolve_attack
from mooring.attacks.registry import Attack
from mooring.audit.effort import AuditEffort, current_audit_effort
from mooring.errors import InputError
from mooring.learners import LearnerLike, require_learner
from mooring.learners.models import FeatureMap
from mooring.mechanisms.rotation.projection import Projection
from mooring.metrics import Embedding
from mooring.tables import Column, Partition
from mooring.tables.column_encoder import decode_cells
from mooring.typing import Matrix

ProjectionKind = Literal["auto", "none", "gaussian", "public-svd"]
_ROWS_TO_ATTACK = 120


class NoiseUnit(StrEnum):
    """The unit of the numbers in the audited rows. The scale σ of private-data noise is measured in it, too."""

    ENCODED = "encoded"
    DEVIATION = "standard deviation"
    PIXEL = "pixel"
    GIVEN = "given"

    @property
    def words(self) -> str:
        """The unit of σ in a sentence."""
        return {
            NoiseUnit.ENCODED: "σ is the noise on every encoded number, which lies between −1 and 1, as in a study's "
            "data_noise_scale.",
            NoiseUnit.DEVIATION: "σ is the noise on every number, in standard deviations of its column (a category is 0 or "
            "1); 'mooring plan --study' gives it in a study's unit.",
            NoiseUnit.PIXEL: "σ is the noise on every pixel, where black is 0 and white is 1. In a study, numbers lie "
            "between −1 and 1, so that its data_noise_scale is twice this σ.",
            NoiseUnit.GIVEN: "σ is the noise on every number of the rows, in the unit in which they were given.",
        }[self]

    def in_study(self, scale: float) -> float | None:
        """Return the same noise in the unit of a study; None if it cannot be converted."""
        factor = {NoiseUnit.ENCODED: 1.0, NoiseUnit.PIXEL: 2.0}.get(self)
        return None if factor is None else factor * scale


@dataclass(frozen=True, eq=False)
class EvaluationSpec:
    """How rebuilt rows are evaluated besides their error: as images, by identity, for an attribute, by an auditor."""

    image_shape: tuple[int, ...] | None = None
    """The shape of a row as an image; None if rows are not images. For images, peak signal-to-noise ratio and structural
    similarity are measured, and reconstructions are drawn."""
    embedding: Embedding | None = None
    """An auditor for exact-source linkage on decoded rows, such as a digit network or a face model."""
    groups: npt.NDArray[Any] | None = None
    """The person of each record. Linkage across rows of one person is measured if persons have both training and test
    rows."""
    attribute: npt.NDArray[Any] | None = None
    """A column that is not shared, with one value per record, which attackers infer from the rebuilt rows."""
    attribute_name: str = "attribute"
    attribute_kind: Literal["category", "number"] = "category"
    n_candidates: int = 10
    """Number of candidates in a gallery."""
    n_queries: int = 1000
    """Maximum number of galleries, except for linkage across rows of one person."""
    n_examples: int = 6
    """Number of rows that are kept as examples, original beside rebuilt; 0 keeps none."""
    columns: tuple[Column, ...] = ()
    """The table's columns, in the order of the encoded rows, which attackers know; empty if rows do not come from a
    table."""
    feature_names: tuple[str, ...] = ()
    """Names of the encoded columns, for examples and for the most exposed column."""
    feature_scales: tuple[tuple[float, float], ...] = ()
    """Centre and spread of each encoded column: value × spread + centre is in the units of the table. If empty, values are
    already in these units."""
    pixel_range: tuple[float, float] = (0.0, 1.0)
    """The values of black and white pixels, if rows are images."""
    n_resamples: int = field(default_factory=lambda: current_audit_effort().n_resamples)
    """Number of bootstrap resamples for the intervals of errors and attributes."""
    others: tuple[Matrix, npt.NDArray[Any] | None] | None = None
    """Rows that nobody uploads, of shape (n, n_features), and their labels, of shape (n,), or None if they have no labels.
    They are non-members besides the test rows. None if there are no such rows."""

    @property
    def data_range(self) -> float | None:
        """The white value minus the black value of pixels; None if rows are not images."""
        return None if self.image_shape is None else self.pixel_range[1] - self.pixel_range[0]

    def column_name(self, column: int) -> str:
        """Return the name of an encoded column; by default, its number, counted from 1."""
        return self.feature_names[column] if self.feature_names else str(column + 1)

    def value_name(self, column: int, value: float) -> str:
        """Return a value in words, such as 'age = 30' or, for zeros and ones, 'sex = male' and 'sex other than male'."""
        centre, spread = self.feature_scales[column] if self.feature_scales else (0.0, 1.0)
        name = self.column_name(column)
        if "=" in name:
            return name.replace("=", " = " if value > 0 else " other than ", 1)
        return f"{name} = {float(f'{value * spread + centre:.6g}') + 0.0:g}"

    def decode(self, rows: Matrix) -> tuple[tuple[str, ...], ...]:
        """Return rows in words, with one word per column of the table."""
        ends = np.cumsum([0, *(column.width for column in self.columns)])
        parts = [decode_cells(column, rows[:, a:b]) for column, a, b in zip(self.columns, ends, ends[1:], strict=False)]
        return tuple(zip(*parts, strict=True))

    def clean(self, rows: Matrix) -> Matrix:
        """Return decoded images clipped to the range of pixels; other rows are returned unchanged."""
        return rows if self.image_shape is None else np.clip(rows, *self.pixel_range)

    def shown(self, rows: Matrix) -> Matrix:
        """Return decoded images with black as 0 and white as 1; other rows are returned unchanged."""
        if self.image_shape is None:
            return rows
        return (self.clean(rows) - self.pixel_range[0]) / (self.pixel_range[1] - self.pixel_range[0])


@dataclass(frozen=True, eq=False)
class AuditSettings:
    """The settings of an audit, except its data and operating points."""

    attacks: Sequence[str | Attack | Callable[..., Any]] | None = None
    """Names in `mooring.attacks.ATTACKS`, attacks, or functions of a view; by default, all attacks in the registry. Each
    attack is run on the operating points that give the kind of view it takes."""
    colluders: Sequence[int] = (0,)
    targets: Sequence[int] | None = None
    """Indices of the participants under attack, whose rows are measured together. By default, these are the first
    participants that do not collude: one, or up to `effort.most_targets` if each has few rows."""
    n_known_rows: int = 0
    n_repeated_uploads: int = 0
    """Further knowledge of the attacker, as for `RowSimulation.view`."""
    projection: ProjectionKind | Projection = "auto"
    """The public projection of rotation. "auto" is "none" if there are as many components as features, otherwise
    "public-svd" if there are public rows, and else "gaussian". A `Projection`, such as a study's, fixes the number of
    components."""
    feature_map: FeatureMap | None = None
    """The public feature map of secure sums. By default, images have features of pictures, tables have those of their
    columns, and other rows are scaled to length one."""
    n_canary_runs: int = 10_000
    """Number of simulated runs with and without a canary that measure the ε of secure sums."""
    learner: LearnerLike = "auto"
    """A name in `mooring.learners.LEARNERS`, a learner object, or "auto", which chooses at every point as `mooring train`
    does."""
    evaluation: EvaluationSpec = field(default_factory=EvaluationSpec)
    seed: int = 0
    device: str | None = None
    """The device on which uploads, alignment and attacks are computed, such as "cuda"."""
    folder: str | Path | None = None
    """A folder in which finished points are kept, so that an audit can be continued; unused if an attack is not built in."""
    effort: AuditEffort = field(default_factory=current_audit_effort)
    """How long attacks search, how many targets they have, and what noise a plan tries."""
    noise_unit: NoiseUnit = NoiseUnit.GIVEN
    """The unit of the rows' numbers, and therefore of σ, which results state for readers."""

    @property
    def attack_list(self) -> tuple[Attack, ...]:
        """The attacks to run."""
        return tuple(map(resolve_attack, ATTACKS if self.attacks is None else self.attacks))

    @property
    def learner_name(self) -> str:
        """The name of the learner in records."""
        return self.learner if isinstance(self.learner, str) else self.learner.name

    def for_data(self, partition: Partition) -> AuditSettings:
        """Return the settings after checking them against the data, and with targets chosen if none are named."""
        attacks = None if self.attacks is None else tuple(map(resolve_attack, self.attacks))
        require_learner(self.learner)
        _require_value_a_record(self.evaluation, partition)
        width = sum(column.width for column in self.evaluation.columns)
        if width not in (0, partition.n_features):
            raise InputError(
                "evaluation.columns",
                expected=f"columns with {partition.n_features} features in all, as the rows have",
                got=f"columns with {width} features",
                cure="Pass the columns by which the rows were encoded.",
            )
        targets = self._targets_among(partition)
        return replace(self, attacks=attacks, colluders=tuple(self.colluders), targets=targets)

    def _targets_among(self, partition: Partition) -> tuple[int, ...]:
        p, colluders = partition.n_participants, list(self.colluders)
        if p < 2:
            raise InputError(
                "datasets", expected="rows of at least two participants", got=str(p), cure="An attack needs a target."
            )
        if any(not 0 <= c < p for c in colluders):
            expected = f"indices from 0 to {p - 1}"
            raise InputError("colluders", expected=expected, got=str(colluders), cure="Count from zero.")
        others = [i for i in range(p) if i not in colluders]
        n_rows = max(1, min((partition.train[i].shape[0] for i in others), default=1))
        first = others[: max(1, min(self.effort.most_targets, -(-_ROWS_TO_ATTACK // n_rows)))]
        targets = first if self.targets is None else list(self.targets)
        if not targets or set(targets) & set(colluders):
            raise InputError(
                "targets",
                expected="at least one participant, and none that colludes",
                got=str(targets),
                cure="Name a participant that is not among the colluders.",
            )
        return tuple(targets)


def _require_value_a_record(evaluation: EvaluationSpec, partition: Partition) -> None:
    """Raise an `InputError` for groups or attributes that lack a value for a record of the partition."""
    used = (*partition.train_indices, *partition.test_indices, partition.public_indices)
    needed = 1 + max(int(part.max()) for part in used if part.size)
    for name, values in (("groups", evaluation.groups), ("attribute", evaluation.attribute)):
        if values is not None and len(values) < needed:
            raise InputError(
                f"evaluation.{name}",
                expected=f"one value per record, at least {needed}",
                got=str(len(values)),
                cure="Pass values for all records, also for those that are not used for training.",
            )
