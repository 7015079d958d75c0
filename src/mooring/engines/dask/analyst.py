"""The analyst's alignment and training on a cluster (`--engine dask`)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from mooring.atomic_io import make_folder
from mooring.engines.dask.cluster import (
    SHARED_CURE,
    Client,
    Future,
    explain_dask_errors,
    require_seen,
    require_shared,
    run_throttled,
)
from mooring.engines.dask.intake import FILES_AT_ONCE, RemoteBundle, collect_on_workers, list_bundles
from mooring.engines.dask.learners import train_on_dask
from mooring.engines.dask.reduction import AnchorsOnWorkers
from mooring.errors import InputError
from mooring.protocol.analyst.intake import Intake
from mooring.protocol.exchange_types import GatherOptions, TrainOptions
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment import Backend, LocalAnchors, align_bundles
from mooring.protocol.rotation.analyst.alignment_state import AlignmentRecord
from mooring.protocol.rotation.analyst.matrix_writer import Batches, MatrixWriter, WriteTask, write_all
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.rotation.scheme import rotation_of
from mooring.protocol.transport.addresses import is_url, local_path
from mooring.typing import Progress

_TASKS_A_BUNDLE = 4
MOST_ANCHOR_BYTES = 2**31
"""Maximum size of anchor representations in one process; if they are larger, they stay with the workers."""


@dataclass(eq=False)
class DaskEngine:
    """Runs an analyst's alignment and training on a cluster: `mooring.Analyst(study, folder, engine=DaskEngine(client))`."""

    client: Client
    reduce_over_workers: bool | None = None
    """Whether anchor representations stay with the workers. By default, they do if they exceed `MOST_ANCHOR_BYTES`."""
    rows_at_once: int | None = None
    """Maximum number of rows that a worker holds at a time."""
    passes: int | None = None
    """Number of passes over the rows, as for `train_on_dask`."""
    files_at_once: int = FILES_AT_ONCE
    """Maximum number of bundles that a worker verifies in one task."""
    reduced: bool = field(default=False, init=False)
    """Whether the last `collect` left anchor representations with the workers."""
    parts_kept: int = field(default=0, init=False)
    """Number of parts that were reused from an interrupted run."""
    _intake: Intake | None = field(default=None, init=False, repr=False)
    _stacks: tuple[Future, ...] = field(default=(), init=False, repr=False)

    def __post_init__(self) -> None:
        if self.rows_at_once is not None and self.rows_at_once < 1:
            raise InputError(
                "rows_at_once",
                expected="one or more",
                got=str(self.rows_at_once),
                cure="Leave it out to use the default.",
            )

    def collect(
        self,
        study: Study,
        source: str | Path,
        folder: str | Path,
        *,
        command: str = "",
        progress: Progress | None = None,
    ) -> Intake:
        """Verify the bundles at `source` and accept the valid ones. Every worker must see `source` and `folder`."""
        folder = Path(folder).absolute()
        rotation_of(study)
        study.require_roster()
        make_folder(folder, mode=0o700, what="the work folder")
        places = list_bundles(source)
        with explain_dask_errors():
            require_shared(self.client, folder)
            if not is_url(source):
                cure = f"{SHARED_CURE[:-1]}, or give the bundles' address in an object store."
                require_seen(self.client, local_path(source).absolute(), what="the folder of bundles", cure=cure)
            anchors = 8 * len(places) * math.prod(rotation_of(study).anchor_shape)
            requested = self.reduce_over_workers
            reduced = anchors > MOST_ANCHOR_BYTES if requested is None else requested
            self._intake, self._stacks = collect_on_workers(
                self.client,
                study,
                places,
                folder,
                anchors_here=not reduced,
                files_at_once=self.files_at_once,
                command=command,
                progress=progress,
            )
        self.reduced = reduced
        return self._intake

    def gather(
        self, study: Study, bundles: Sequence[Bundle], folder: str | Path, options: GatherOptions
    ) -> AlignmentRecord:
        """Align bundles that this engine collected, and map their rows on the workers."""
        folder = Path(folder).absolute()
        known = {bundle.digest for bundle in self._intake.bundles} if self._intake else set()
        foreign = [b for b in bundles if not isinstance(b, RemoteBundle) or b.digest not in known]
        if self._intake is None or foreign:
            raise InputError(
                "bundles",
                expected="those that this engine collected last",
                got=f"{len(foreign)} that it did not collect" if foreign else "none, because it has not collected any",
                cure="Collect them with the same engine: Analyst(…, engine=engine).collect(source).",
            )
        writer = MatrixWriter(self._run_on_workers, most_tasks=_TASKS_A_BUNDLE, rows_at_once=self.rows_at_once)
        anchors = AnchorsOnWorkers(self.client, self._stacks) if self.reduced else LocalAnchors()
        with explain_dask_errors():
            aligned = align_bundles(
                study,
                cast(Sequence[RemoteBundle], bundles),
                folder,
                mode=options.mode,
                certify=options.certify,
                command=options.command,
                progress=options.progress,
                backend=Backend(anchors, writer),
            )
        self.parts_kept = writer.kept
        return aligned.record

    def _run_on_workers(self, study: Study, batches: Batches) -> Iterator[tuple[list[WriteTask], int]]:
        at_work = self.client.submit(replace, study, pure=False)
        return run_throttled(self.client, ((batch, write_all, (at_work, batch)) for batch in batches))

    def train(self, study: Study, folder: str | Path, options: TrainOptions) -> Training:
        """Train in parts, as `train_on_dask` does."""
        return train_on_dask(
            self.client,
            study,
            folder,
            passes=self.passes,
            learner=options.learner if isinstance(options.learner, str) else options.learner.name,
            seed=options.seed,
            command=options.command,
            progress=options.progress,
        )
