"""Settings of an audit: colluders, targets and attacks, how rebuilt rows are evaluated, and limits on leakage."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.attacks import ATTACKS, Effort, current_effort, resolve_attack
from mooring.attacks.registry import Attack
from mooring.audit.deployment import Deployment, ProjectionKind
from mooring.audit.operating_points import NoiseUnit
from mooring.errors import InputError
from mooring.learners import LearnerLike, require_learner
from mooring.learners.models import FeatureMap
from mooring.mechanisms.rotation.projection import Projection
from mooring.metrics import Embedding, Figure
from mooring.metrics.measures import MEASURES
from mooring.serialization import Record
from mooring.tables import Column, Partition
from mooring.tables.column_encoder import decode_cells
from mooring.typing import Matrix

if TYPE_CHECKING:
    from mooring.audit.point_result import PointResult

DEFAULT_LIMIT = "error at least 0.5"
"""What a plan keeps to, and a page decides by, unless a study or its reader says otherwise."""
_MEASURES = {measure.limit: name for name, measure in MEASURES.items() if measure.limit} | {"epsilon": "epsilon"}
_ERRORS = ("exposed_tenth", "centred_error", "relative_error", "decoded_error")
_SHAPE = re.compile(
    r"^\s*(?P<measure>[a-z_ ]+?)\s*(?P<side>at least|at most|>=|<=|≥|≤)\s*(?P<bound>[0-9.]+)\s*(?P<percent>%?)"
    r"(?:\s*at\s*(?P<rate>1|0?\.1)\s*%)?\s*$"
)
_ROWS_TO_ATTACK = 120


@dataclass(frozen=True, eq=False)
class EvaluationSpec:
    """How rebuilt rows are evaluated besides their error: as images, by identity, for an attribute, by an auditor."""

    image_shape: tuple[int, ...] | None = None
    """Rows are images of this shape; peak signal-to-noise ratio and structural similarity are measured, and
    reconstructions are drawn."""
    embedding: Embedding | None = None
    """An auditor for exact-source linkage on decoded rows, such as a digit network or a face model."""
    groups: npt.NDArray[Any] | None = None
    """Whose row each record is (one value a record). Linkage across rows of one person is measured where groups have
    both training and test rows."""
    attribute: npt.NDArray[Any] | None = None
    attribute_name: str = "attribute"
    attribute_kind: Literal["category", "number"] = "category"
    """A column that is not shared, to be inferred from the rebuilt rows (one value a record)."""
    n_candidates: int = 10
    """Size of a gallery."""
    n_queries: int = 1000
    """At most so many galleries."""
    n_examples: int = 6
    """Rows to keep for pictures, original beside rebuilt; 0 keeps none."""
    columns: tuple[Column, ...] = ()
    """The table's columns, in the order of the encoded rows, which attackers know; empty where rows are not of a
    table."""
    feature_names: tuple[str, ...] = ()
    """Columns, for tables of examples and for the most exposed one."""
    feature_scales: tuple[tuple[float, float], ...] = ()
    """Centre and spread of each column: value × spread + centre is in the units of the table. As they are, if empty."""
    pixel_range: tuple[float, float] = (0.0, 1.0)
    """Black and white, where rows are images."""
    n_resamples: int = field(default_factory=lambda: current_effort().n_resamples)
    """Bootstrap resamples behind the intervals of errors and attributes."""
    others: tuple[Matrix, npt.NDArray[Any] | None] | None = None
    """Rows that nobody uploads, of shape (n, n_features), and their labels, of shape (n,), or None. They are non-members
    besides the test rows."""

    @property
    def data_range(self) -> float | None:
        """Range of pixel values, for images."""
        return None if self.image_shape is None else self.pixel_range[1] - self.pixel_range[0]

    def column_name(self, column: int) -> str:
        """What a column is called."""
        return self.feature_names[column] if self.feature_names else str(column + 1)

    def value_name(self, column: int, value: float) -> str:
        """A value of a column in words, such as 'age = 30'; of a category's column of zeros and ones, its category."""
        centre, spread = self.feature_scales[column] if self.feature_scales else (0.0, 1.0)
        name = self.column_name(column)
        if "=" in name:
            return name.replace("=", " = " if value > 0 else " other than ", 1)
        return f"{name} = {float(f'{value * spread + centre:.6g}') + 0.0:g}"

    def decode(self, rows: Matrix) -> tuple[tuple[str, ...], ...]:
        """Rows as words, one a column of the table."""
        ends = np.cumsum([0, *(column.width for column in self.columns)])
        parts = [decode_cells(column, rows[:, a:b]) for column, a, b in zip(self.columns, ends, ends[1:], strict=False)]
        return tuple(zip(*parts, strict=True))

    def clean(self, rows: Matrix) -> Matrix:
        """Clamp decoded images to where pixels can be; other rows are left alone."""
        return rows if self.image_shape is None else np.clip(rows, *self.pixel_range)

    def shown(self, rows: Matrix) -> Matrix:
        """Decoded rows as they are drawn: images from black, 0, to white, 1; other rows as they are."""
        if self.image_shape is None:
            return rows
        return (self.clean(rows) - self.pixel_range[0]) / (self.pixel_range[1] - self.pixel_range[0])


@dataclass(frozen=True, eq=False)
class AuditSettings:
    """Everything an audit is asked but for its data and operating points."""

    attacks: Sequence[str | Attack | Callable[..., Any]] | None = None
    """Names in `mooring.attacks.ATTACKS`, attacks, or functions of a view; all in the registry by default. Each is run on
    the operating points whose view it takes."""
    colluders: Sequence[int] = (0,)
    targets: Sequence[int] | None = None
    """Attacked one after the other; their rows are measured together. By default the first others: one, or up to
    `effort.most_targets` where each has few rows."""
    n_known_rows: int = 0
    n_repeated_uploads: int = 0
    """Extra knowledge of the attacker, as for `Simulation.view`."""
    projection: ProjectionKind | Projection = "auto"
    """With "auto", none if there are as many components as features; else a public SVD where there are public rows;
    else Gaussian. A projection itself, such as a study's, is used as it is, and fixes the number of components."""
    feature_map: FeatureMap | None = None
    """The public feature map of secure sums. By default, images have features of pictures, tables those that a study has
    of its columns, and other rows are scaled to length one."""
    n_canary_runs: int = 10_000
    """How many simulated runs with and without a canary measure the ε of secure sums."""
    learner: LearnerLike = "auto"
    """A name in `mooring.learners.LEARNERS`, a learner of one's own, or "auto": chosen at every point as `mooring train`
    would."""
    evaluation: EvaluationSpec = field(default_factory=EvaluationSpec)
    seed: int = 0
    device: str | None = None
    """Such as "cuda": uploads, alignment and attacks run there."""
    folder: str | Path | None = None
    """Where finished points are kept; an audit that was interrupted goes on from there."""
    effort: Effort = field(default_factory=current_effort)
    """How long attacks search, and how many targets they have."""
    noise_unit: NoiseUnit = NoiseUnit.GIVEN
    """What the rows' numbers are, and so what σ is measured in; for the reader alone."""

    @property
    def attack_list(self) -> tuple[Attack, ...]:
        """The attacks to run."""
        return tuple(map(resolve_attack, ATTACKS if self.attacks is None else self.attacks))

    @property
    def learner_name(self) -> str:
        """What the learner is called in records."""
        return self.learner if isinstance(self.learner, str) else self.learner.name

    def deploy(self, partition: Partition) -> Deployment:
        """What operating points are simulated on."""
        return Deployment(
            partition,
            tuple(self.colluders),
            self.seed,
            self.projection,
            self.feature_map,
            self.evaluation.columns,
            self.evaluation.image_shape,
            self.device,
        )

    def for_data(self, partition: Partition) -> AuditSettings:
        """Check the settings against the data, and choose the targets where none are named."""
        attacks = None if self.attacks is None else tuple(map(resolve_attack, self.attacks))
        require_learner(self.learner)
        _require_value_a_record(self.evaluation, partition)
        width = sum(column.width for column in self.evaluation.columns)
        if width not in (0, partition.n_features):
            raise InputError(
                "evaluation.columns",
                expected=f"columns that become the {partition.n_features} features of a row",
                got=f"columns of {width}",
                cure="Give the columns that the rows were encoded by.",
            )
        targets = self._targets_among(partition)
        return replace(self, attacks=attacks, colluders=tuple(self.colluders), targets=targets)

    def _targets_among(self, partition: Partition) -> tuple[int, ...]:
        p, colluders = partition.n_participants, list(self.colluders)
        if p < 2:
            raise InputError(
                "datasets", expected="at least two participants'", got=str(p), cure="An attack needs a target."
            )
        if any(not 0 <= c < p for c in colluders):
            raise InputError("colluders", expected=f"0 to {p - 1} each", got=str(colluders), cure="Count from zero.")
        others = [i for i in range(p) if i not in colluders]
        n_rows = max(1, min((partition.train[i].shape[0] for i in others), default=1))
        first = others[: max(1, min(self.effort.most_targets, -(-_ROWS_TO_ATTACK // n_rows)))]
        targets = first if self.targets is None else list(self.targets)
        if not targets or set(targets) & set(colluders):
            raise InputError(
                "targets",
                expected="participants who do not collude, at least one",
                got=str(targets),
                cure="Name another.",
            )
        return tuple(targets)


def _require_value_a_record(evaluation: EvaluationSpec, partition: Partition) -> None:
    """Refuse groups and attributes that lack a value for a record of the partition."""
    used = (*partition.train_indices, *partition.test_indices, partition.public_indices)
    needed = 1 + max(int(part.max()) for part in used if part.size)
    for name, values in (("groups", evaluation.groups), ("attribute", evaluation.attribute)):
        if values is not None and len(values) < needed:
            raise InputError(
                f"evaluation.{name}",
                expected=f"one value a record, at least {needed}",
                got=str(len(values)),
                cure="Give values for all records, also those that nobody trains on.",
            )


@dataclass(frozen=True)
class LeakageLimit(Record):
    """A bound on what the strongest attack may recover.

    Notes
    -----
    "error" is about the most exposed tenth of rows: what a tenth of them stay below, relative to guessing a row. "mean
    error" is over all rows, relative to their spread. "membership" is at 1 % false alarms, unless "at 0.1 %" follows.

    Examples
    --------
    >>> LeakageLimit.parse("error at least 0.5")
    LeakageLimit(measure='exposed_tenth', bound=0.5, at_least=True)
    >>> LeakageLimit.parse("linkage at most 20 %")
    LeakageLimit(measure='linkage', bound=0.2, at_least=False)
    >>> LeakageLimit.parse("membership at most 5 % at 0.1 %")
    LeakageLimit(measure='membership_at_0.1_percent', bound=0.05, at_least=False)
    """

    measure: str
    """The name of a figure, such as "exposed_tenth" or "linkage"."""
    bound: float
    at_least: bool
    """True for errors, of which more is safer; False for linkage and the like."""

    @classmethod
    def parse(cls, words: str) -> LeakageLimit:
        """Read a limit as people write it."""
        parsed = _SHAPE.match(words.lower())
        name = "" if parsed is None else parsed["measure"].replace("_", " ").strip()
        if parsed is None or name not in _MEASURES or (parsed["rate"] and "membership" not in name):
            raise InputError(
                "limit",
                expected=f"such as 'error at least 0.5' or 'linkage at most 20 %', about one of {', '.join(_MEASURES)}",
                got=repr(words),
                cure="Name a measure, 'at least' or 'at most', and a bound.",
            )
        try:
            bound = float(parsed["bound"]) / (100 if parsed["percent"] else 1)
        except ValueError:
            raise InputError(
                "limit", expected="a number as its bound", got=repr(words), cure="Write 0.5 or 20 %."
            ) from None
        at_least = parsed["side"] in ("at least", ">=", "≥")
        measure = _MEASURES[name]
        if bound > 1 and measure not in (*_ERRORS, "epsilon"):
            cure = "Did you mean a percentage? Write '%'."
            raise InputError("limit", expected="a share of at most 1, or of 100 %", got=repr(words), cure=cure)
        if (parsed["rate"] or "1") != "1":
            measure = measure.replace("at_1", "at_0.1")
        if at_least != (measure in _ERRORS):
            raise InputError(
                "limit",
                expected="'at least' for an error, 'at most' for anything else",
                got=repr(words),
                cure="More error is safer; more linkage is not.",
            )
        return cls(measure, bound, at_least)

    def __str__(self) -> str:
        known = self.measure.replace("at_0.1", "at_1")
        name = next(word for word, measure in _MEASURES.items() if measure == known)
        if self.at_least or self.measure == "epsilon":
            return f"{name} at {'least' if self.at_least else 'most'} {self.bound:g}"
        rate = f" at {'1' if known == self.measure else '0.1'}%" if "membership" in name else ""
        return f"{name} at most {100 * self.bound:.6g}%{rate}"

    def met_by(self, figure: Figure, *, room: float = 1.0) -> bool:
        """Whether a figure keeps to the limit at the worse end of its interval, or so many times as far away."""
        worse = figure.interval.low if self.at_least else figure.interval.high
        value = figure.value + room * (worse - figure.value if figure.interval.known else 0.0)
        return value >= self.bound if self.at_least else value <= self.bound

    def met_at(self, result: PointResult, *, room: float = 1.0) -> bool:
        """Whether a point keeps to the limit: of ε by its guarantee, of anything else by the strongest attack.

        A point that no attack could be run on does not.
        """
        if self.measure == "epsilon":
            promise = result.point.promise
            return promise is not None and promise[0] <= self.bound
        worst = result.worst(self.measure)
        return worst is not None and not math.isnan(worst[1].value) and self.met_by(worst[1], room=room)
