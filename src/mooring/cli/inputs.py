"""What `mooring audit` and `mooring plan` do alike: read a file, partition its rows, report progress and errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape

from mooring import EvaluationSpec, InputError, Projection
from mooring.audit import ProjectionKind
from mooring.cli.execution import BAD_INPUT, REFUSED, STORAGE
from mooring.cli.study_records import StudiedRows, read_studied, refuse_beside_a_study
from mooring.errors import MooringError, RefusedError, StorageError
from mooring.metrics import onnx_embedding, train_digit_auditor
from mooring.tables import Partition, Records, hold_out, partition, read_records

_TEST_ROWS = 3000


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


def read_and_partition(
    path: Path,
    *,
    study: Path | None,
    label: str | None,
    participants: int,
    split_by: str | None,
    rows_each: int | None,
    drop: list[str] | None,
    missing: list[str] | None,
    size: int | None,
    public_share: float | None,
    components: int | None,
    projection: str,
    attribute: str | None,
    auditor: str | None,
    examples: bool,
    colluders: int,
    colluder: list[str] | None,
    target: list[str] | None,
    seed: int,
) -> AuditInputs:
    """Read a file, hold an attribute out, partition the rows, and say how to evaluate what is rebuilt of them."""
    if study is not None:
        refuse_beside_a_study(
            {
                "label": label,
                "split-by": split_by,
                "missing": missing,
                "size": size,
                "public-share": public_share,
                "components": components,
                "projection": None if projection == "auto" else projection,
                "attribute": attribute,
                "auditor": auditor,
            }
        )
        return _partition_by_study(
            read_studied(path, study, ignore=drop or (), examples=examples),
            participants=participants,
            rows_each=rows_each,
            colluders=colluders,
            colluder=colluder,
            target=target,
            seed=seed,
        )
    kind_of_projection = projection_kind(projection)
    records = read_records(path, label=label, group_by=split_by, drop=drop or (), missing=missing or (), size=size)
    values, kind = None, "category"
    if attribute is not None:
        records, values, kind = hold_out(records, attribute)
    h = components or min(30, records.n_features)
    wants_public = projection == "public-svd" or (
        projection == "auto" and h < records.n_features and records.n_rows > 20 * h
    )
    share = public_share if public_share is not None else 0.1 if wants_public else 0.0
    rng = np.random.default_rng([seed, 11])
    n_groups = 0 if records.groups is None else int(np.unique(records.groups).size)
    if 0 < n_groups < participants:
        participants = n_groups  # a natural split, one group each
    parts = partition(
        records,
        n_participants=participants,
        rows_each=rows_each,
        test_share=min(0.25, max(_TEST_ROWS, participants) / records.n_rows),
        public_share=share,
        by_group=n_groups > 0,
        rng=rng,
    )
    evaluation = EvaluationSpec(
        image_shape=records.image_shape,
        embedding=None if auditor is None else _embedding(auditor, records, parts, seed),
        groups=records.groups if n_groups > participants else None,
        attribute=values,
        attribute_name=attribute or "attribute",
        attribute_kind=kind,  # type: ignore[arg-type]
        n_examples=6 if examples else 0,
        feature_names=records.feature_names,
    )
    colluding = tuple(_numbered(name, parts) for name in colluder) if colluder else tuple(range(colluders))
    targets = tuple(_numbered(name, parts) for name in target) if target else None
    if targets is None and n_groups == participants:  # every other organisation of a natural split, up to five
        targets = tuple(i for i in range(participants) if i not in colluding)[:5]
    return AuditInputs(records, parts, evaluation, colluding, targets, kind_of_projection)


def _partition_by_study(
    studied: StudiedRows,
    *,
    participants: int,
    rows_each: int | None,
    colluders: int,
    colluder: list[str] | None,
    target: list[str] | None,
    seed: int,
) -> AuditInputs:
    records = studied.records
    parts = partition(
        records,
        n_participants=participants,
        rows_each=rows_each,
        test_share=min(0.25, max(_TEST_ROWS, participants) / records.n_rows),
        rng=np.random.default_rng([seed, 11]),
    )
    colluding = tuple(_numbered(name, parts) for name in colluder) if colluder else tuple(range(colluders))
    targets = tuple(_numbered(name, parts) for name in target) if target else None
    return AuditInputs(records, parts, studied.evaluation, colluding, targets, studied.projection, studied)


def _numbered(name: str, parts: Partition) -> int:
    if name not in parts.names:
        raise InputError(
            "participant", expected=f"one of {', '.join(parts.names)}", got=repr(name), cure="Check its name."
        )
    return parts.names.index(name)


def _embedding(auditor: str, records: Records, parts: Partition, seed: int) -> Any:
    if records.image_shape is None:
        raise typer.BadParameter("an auditor compares images, and these are not images", param_hint="--auditor")
    if auditor == "digits":
        if parts.test_labels is None:
            raise typer.BadParameter(
                "the digit auditor is trained on labels, and there are none", param_hint="--auditor"
            )
        used = np.concatenate(parts.train_indices)
        free = np.setdiff1d(np.arange(records.n_rows), used)
        assert records.labels is not None
        return train_digit_auditor(records.rows[free], records.labels[free], seed=seed)
    return onnx_embedding(auditor, image_shape=records.image_shape, input_size=(112, 112), scale=2.0, offset=-1.0)


def projection_kind(name: str) -> ProjectionKind:
    """Read the name of a projection."""
    match name:
        case "auto" | "none" | "gaussian" | "public-svd":
            return name
    raise InputError(
        "projection", expected="auto, none, gaussian or public-svd", got=repr(name), cure="'auto' chooses."
    )


def refuse(problem: MooringError) -> NoReturn:
    """Say what is wrong, and leave with the exit code for it."""
    Console(stderr=True).print(f"[bold red]mooring:[/bold red] {escape(str(problem))}", highlight=False, soft_wrap=True)
    raise typer.Exit(
        REFUSED if isinstance(problem, RefusedError) else STORAGE if isinstance(problem, StorageError) else BAD_INPUT
    )


def interrupted(output: Path) -> NoReturn:
    """Say that nothing is lost."""
    Console(stderr=True).print(
        f"Interrupted. What is finished is kept in {output}: run the same command again to go on."
    )
    raise typer.Exit(130)
