"""Inputs of `mooring audit` and `mooring plan`: rows split among participants, and who attacks whom.

With --study, rows are encoded as the study declares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from mooring import EvaluationSpec, InputError, OperatingPoint, Projection
from mooring.audit import (
    AuditSettings,
    NoiseUnit,
    ProjectionKind,
    SumPoint,
)
from mooring.cli.execution import make_workspace, read_study
from mooring.cli.options import AuditOptions
from mooring.learners.models import FeatureMap
from mooring.metrics import train_digit_auditor
from mooring.tables import Partition, Records, partition, read_records
from mooring.tables.encoder import read_encoded
from mooring.tables.records import hold_out

if TYPE_CHECKING:
    from mooring.protocol.exchange_types import AuditRequest

_TEST_ROWS = 3000
_SETTLED_BY_A_STUDY = (
    "label",
    "split_by",
    "missing",
    "size",
    "public_share",
    "components",
    "projection",
    "attribute",
    "auditor",
)
Study: TypeAlias = Any  # the protocol's libraries are loaded only by commands that run it


def _read_studied(path: Path, options: AuditOptions) -> tuple[Study, Records, Projection, EvaluationSpec]:
    """Read a study and a table that fits it; the encoding does not depend on the table's statistics."""
    from mooring.protocol.participant.steps import read_by_mapping
    from mooring.protocol.registry import exchange_of
    from mooring.protocol.rotation.participant.inspection import evaluation_of

    assert options.study is not None
    study = read_study(options.study)
    person = exchange_of(study).person_column(study)
    table = read_by_mapping(make_workspace(options.study), path)
    encoded = read_encoded(study.schema, table, labels="allow", ignore=options.ignore or (), person=person)
    records = Records(
        rows=encoded.rows,
        labels=encoded.labels,
        feature_names=study.feature_names,
        label_names=study.label.classes if encoded.labels is not None else (),
        groups=None if encoded.persons is None else np.unique(encoded.persons, return_inverse=True)[1],
        image_shape=study.image_shape or None,
    )
    projection = exchange_of(study).assessment.make_audit_maps(study).projection
    evaluation = evaluation_of(study, n_examples=6 if options.examples else 0)
    return study, records, projection, replace(evaluation, groups=records.groups)


def refuse_beside_a_study(options: Mapping[str, Any]) -> None:
    """Refuse options that a study settles, so that what is audited is what will be run."""
    for name, value in options.items():
        if value not in (None, [], ""):
            cure = "Leave it out: the study's file settles it for everybody."
            raise InputError(f"--{name.replace('_', '-')}", expected="left out with --study", got="given", cure=cure)


def points_of(inputs: AuditInputs, asked: AuditRequest) -> tuple[OperatingPoint, ...]:
    """Return the study's own point, then the points requested for comparison, by default with the study's noise."""
    from mooring.protocol.registry import exchange_of

    if (asked.anchor_noise_scales or asked.data_noise_scales) and not asked.methods:
        cure = "Name the method, or leave the noise out to audit the study's own point."
        raise InputError("--method", expected="given together with a noise", got="left out", cure=cure)
    if not any(part.any() for part in inputs.parts.train):
        raise InputError("data file", expected="rows that vary", got="rows of zeros", cure="Check the study's ranges.")
    return exchange_of(inputs.study).assessment.list_audit_points(inputs.study, inputs.parts, asked)


@dataclass(frozen=True, eq=False)
class AuditInputs:
    """The rows of a command, read and split among participants, with the settings that concern them."""

    records: Records
    parts: Partition
    evaluation: EvaluationSpec
    colluders: tuple[int, ...]
    targets: tuple[int, ...] | None
    projection: ProjectionKind | Projection
    study: Study = None

    @property
    def noise_unit(self) -> NoiseUnit:
        """The unit of the rows' numbers, and so of σ."""
        if self.study is not None:
            return NoiseUnit.ENCODED
        return NoiseUnit.DEVIATION if self.records.image_shape is None else NoiseUnit.PIXEL

    @property
    def feature_map(self) -> FeatureMap | None:
        """The study's features for secure sums; None without a study."""
        if self.study is None:
            return None
        from mooring.protocol.registry import exchange_of

        return exchange_of(self.study).assessment.make_audit_maps(self.study).features

    def points_without_rows(self, epsilons: Sequence[float | None]) -> tuple[OperatingPoint, ...]:
        """Return points that upload no rows, at each ε, for a plan; a study's own point comes first if it uploads none."""
        if self.study is None:
            return tuple(SumPoint(epsilon) for epsilon in epsilons)
        from mooring.protocol.exchange_types import AuditRequest

        points = points_of(self, AuditRequest(epsilons=epsilons))
        return tuple(point for point in points if not point.shares_rows)

    def settings(self, options: AuditOptions, folder: Path, **more: Any) -> AuditSettings:
        """Return the settings of an audit; finished points are kept in the folder."""
        return AuditSettings(
            projection=self.projection,
            colluders=self.colluders,
            targets=self.targets,
            learner=options.learner,
            evaluation=self.evaluation,
            seed=options.seed,
            device=options.device,
            folder=folder / "points",
            noise_unit=self.noise_unit,
            **more,
        )


def read_and_partition(path: Path, options: AuditOptions) -> AuditInputs:
    """Read a file, hold out an attribute, split the rows, and choose how reconstructions are evaluated."""
    if options.study is not None:
        settled = {name: getattr(options, name) for name in _SETTLED_BY_A_STUDY}
        refuse_beside_a_study(settled | {"projection": None if options.projection == "auto" else options.projection})
        study, records, projection, evaluation = _read_studied(path, options)
        parts = _partition(records, options, options.participants, by_group=records.groups is not None)
        colluders = _find_participants(options.colluder, parts) or tuple(range(options.colluders))
        targets = _find_participants(options.target, parts)
        return AuditInputs(records, parts, evaluation, colluders, targets, projection, study)
    records = read_records(
        path,
        label=options.label,
        group_by=options.split_by,
        ignore=options.ignore or (),
        missing=options.missing or (),
        size=options.size,
    )
    values, kind = None, "category"
    if options.attribute is not None:
        records, values, kind = hold_out(records, options.attribute)
    n_groups = 0 if records.groups is None else int(np.unique(records.groups).size)
    # If there are fewer groups than participants, each group is a participant: a natural split.
    participants = min(options.participants, n_groups or options.participants)
    parts = _partition(
        records, options, participants, public_share=_public_share(options, records), by_group=n_groups > 0
    )
    evaluation = EvaluationSpec(
        image_shape=records.image_shape,
        embedding=None if options.auditor is None else _embedding(options.auditor, records, parts, options.seed),
        groups=records.groups if n_groups > participants else None,
        attribute=values,
        attribute_name=options.attribute or "attribute",
        attribute_kind=kind,  # type: ignore[arg-type]
        n_examples=6 if options.examples else 0,
        columns=records.columns,
        feature_names=records.feature_names,
        feature_scales=records.feature_scales,
    )
    colluders = _find_participants(options.colluder, parts) or tuple(range(options.colluders))
    targets = _find_participants(options.target, parts)
    if targets is None and n_groups == participants:  # every other organisation of a natural split, up to five
        targets = tuple(i for i in range(participants) if i not in colluders)[:5]
    return AuditInputs(records, parts, evaluation, colluders, targets, options.projection)


def _partition(records: Records, options: AuditOptions, n_participants: int, **more: Any) -> Partition:
    return partition(
        records,
        n_participants=n_participants,
        rows_each=options.rows_each,
        test_share=min(0.25, max(_TEST_ROWS, n_participants) / records.n_rows),
        rng=np.random.default_rng([options.seed, 11]),
        **more,
    )


def _public_share(options: AuditOptions, records: Records) -> float:
    if options.public_share is not None:
        return options.public_share
    h = options.components or min(30, records.n_features)
    enough = h < records.n_features and records.n_rows > 20 * h
    return 0.1 if options.projection == "public-svd" or (options.projection == "auto" and enough) else 0.0


def _find_participants(names: Sequence[str] | None, parts: Partition) -> tuple[int, ...] | None:
    """Return the indices of participants by name; None if none is named."""
    for name in names or ():
        if name not in parts.names:
            raise InputError(
                "participant", expected=f"one of {', '.join(parts.names)}", got=repr(name), cure="Check its name."
            )
    return tuple(parts.names.index(name) for name in names) if names else None


def _embedding(auditor: str, records: Records, parts: Partition, seed: int) -> Any:
    if records.image_shape is None:
        raise InputError(
            "--auditor",
            expected="left out where rows are not images",
            got=repr(auditor),
            cure="Leave it out: it compares images.",
        )
    if auditor != "digits":
        cure = "In Python, EvaluationSpec(embedding=...) takes a model of your own."
        raise InputError("--auditor", expected="'digits'", got=repr(auditor)[:80], cure=cure)
    if records.labels is None:
        raise InputError(
            "--auditor",
            expected="left out where images have no labels",
            got="'digits'",
            cure="Name the column of labels with --label.",
        )
    used = np.concatenate(parts.train_indices)
    free = np.setdiff1d(np.arange(records.n_rows), used)
    return train_digit_auditor(records.rows[free], records.labels[free], seed=seed)
