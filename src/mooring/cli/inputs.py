"""What `mooring audit` and `mooring plan` read: a file of rows, partitioned among participants, and who attacks whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mooring import EvaluationSpec, InputError, Projection
from mooring.audit import AuditSettings, NoiseUnit, ProjectionKind, SumSpec
from mooring.cli.options import AuditOptions
from mooring.cli.study_records import StudiedRows, read_studied, refuse_beside_a_study, sums_of
from mooring.metrics import onnx_embedding, train_digit_auditor
from mooring.tables import Partition, Records, hold_out, partition, read_records

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


@dataclass(frozen=True, eq=False)
class AuditInputs:
    """What a command was given, read and partitioned."""

    records: Records
    parts: Partition
    evaluation: EvaluationSpec
    colluders: tuple[int, ...]
    targets: tuple[int, ...] | None
    projection: ProjectionKind | Projection
    studied: StudiedRows | None = None

    @property
    def noise_unit(self) -> NoiseUnit:
        """What the rows' numbers are, and so what σ is measured in."""
        if self.studied is not None:
            return NoiseUnit.ENCODED
        return NoiseUnit.DEVIATION if self.records.image_shape is None else NoiseUnit.PIXEL

    def sum_spec(self, epsilons: Sequence[float | None] = SumSpec.epsilons) -> SumSpec:
        """How secure sums are audited on these rows: with the features that a study of these columns has."""
        if self.studied is not None:
            return sums_of(self.studied, self.parts, epsilons)
        return SumSpec(tuple(epsilons))

    def settings(self, options: AuditOptions, folder: Path, **more: Any) -> AuditSettings:
        """What an audit is asked, but for its data and operating points; finished points are kept in the folder."""
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
    """Read a file, hold an attribute out, partition the rows, and say how to evaluate what is rebuilt of them."""
    if options.study is not None:
        given = {name: getattr(options, name) for name in _SETTLED_BY_A_STUDY}
        refuse_beside_a_study(given | {"projection": None if options.projection == "auto" else options.projection})
        studied = read_studied(path, options.study, ignore=options.drop or (), examples=options.examples)
        parts = _partition(studied.records, options, options.participants)
        colluders = _find_participants(options.colluder, parts) or tuple(range(options.colluders))
        targets = _find_participants(options.target, parts)
        return AuditInputs(studied.records, parts, studied.evaluation, colluders, targets, studied.projection, studied)
    records = read_records(
        path,
        label=options.label,
        group_by=options.split_by,
        drop=options.drop or (),
        missing=options.missing or (),
        size=options.size,
    )
    values, kind = None, "category"
    if options.attribute is not None:
        records, values, kind = hold_out(records, options.attribute)
    n_groups = 0 if records.groups is None else int(np.unique(records.groups).size)
    participants = min(
        options.participants, n_groups or options.participants
    )  # fewer groups: a natural split, one each
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
        feature_scales=_scales(records),
    )
    colluders = _find_participants(options.colluder, parts) or tuple(range(options.colluders))
    targets = _find_participants(options.target, parts)
    if targets is None and n_groups == participants:  # every other organisation of a natural split, up to five
        targets = tuple(i for i in range(participants) if i not in colluders)[:5]
    return AuditInputs(records, parts, evaluation, colluders, targets, options.projection)


def _scales(records: Records) -> tuple[tuple[float, float], ...]:
    if records.centres is None or records.scales is None:
        return ()
    return tuple(zip(records.centres.tolist(), records.scales.tolist(), strict=True))


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
    """Participants by name; None where none is named."""
    for name in names or ():
        if name not in parts.names:
            raise InputError(
                "participant", expected=f"one of {', '.join(parts.names)}", got=repr(name), cure="Check its name."
            )
    return tuple(parts.names.index(name) for name in names) if names else None


def _embedding(auditor: str, records: Records, parts: Partition, seed: int) -> Any:
    if records.image_shape is None:
        raise InputError(
            "--auditor", expected="left out where rows are not images", got=repr(auditor), cure="It compares images."
        )
    if auditor == "digits":
        if records.labels is None:
            raise InputError(
                "--auditor", expected="another where images have no labels", got="'digits'", cure="It learns labels."
            )
        used = np.concatenate(parts.train_indices)
        free = np.setdiff1d(np.arange(records.n_rows), used)
        return train_digit_auditor(records.rows[free], records.labels[free], seed=seed)
    return onnx_embedding(auditor, image_shape=records.image_shape, input_size=(112, 112), scale=2.0, offset=-1.0)
