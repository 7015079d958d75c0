"""Writing of the collaboration matrix, part by part. Finished parts of an earlier run are kept."""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mooring.atomic_io import PARTIAL, clear_partial_files, explain_os_errors, make_folder, open_atomically, sync_folder
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import AlignmentState
from mooring.protocol.rotation.analyst.collaboration_matrix import (
    PARTS_FOLDER,
    WHAT,
    PartFacts,
    check_parts,
    choose_block_rows,
    list_parts,
    make_schema,
    make_table,
    open_table_writer,
    part_path,
    read_facts,
    require_unchanged,
)
from mooring.protocol.rotation.bundle import RowBundle
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Progress

_BLOCKS_A_PART = 16
_PARTS_A_TASK = 8
_TASKS_A_BATCH, _NUMBERS_A_BATCH = 32, 2**17


@dataclass(frozen=True, eq=False)
class WriteTask:
    """Parts of one participant that are written together."""

    folder: Path
    bundle: RowBundle
    """The bundle, without its anchor representation."""
    space: AlignmentState
    """The alignment state of this participant only."""
    block: int
    """Rows of a block; a part holds up to `_BLOCKS_A_PART` blocks."""
    first: int
    last: int
    """The parts from `first` up to, but without, `last` are written."""

    @property
    def name(self) -> str:
        """The participant's name."""
        return self.bundle.member.name

    @property
    def n_rows(self) -> int:
        """The number of rows in the parts of this task."""
        rows = self.block * _BLOCKS_A_PART
        return min(self.bundle.n_rows, self.last * rows) - self.first * rows

    def facts(self, index: int) -> PartFacts:
        """Return the metadata that part `index` must have."""
        rows = self.block * _BLOCKS_A_PART
        stop = min(self.bundle.n_rows, (index + 1) * rows)
        return PartFacts(index * rows, stop, self.bundle.digest, self.space.map_digest(0))


def write_all(study: Study, tasks: Sequence[WriteTask]) -> int:
    """Write parts of several participants and return the number of parts that were kept."""
    return sum(write_parts(study, task) for task in tasks)


Batches = Iterator[list[WriteTask]]
Run = Callable[[Study, Batches], Iterator[tuple[list[WriteTask], int]]]
"""Calls `write_all` on each batch of tasks; yields each batch when it is done, with the number of parts that were kept."""


def run_here(study: Study, batches: Batches) -> Iterator[tuple[list[WriteTask], int]]:
    """Write batch after batch in this process."""
    for batch in batches:
        yield batch, write_all(study, batch)


@dataclass
class MatrixWriter:
    """Writes the matrix into the folder of parts in the work folder, by default in this process."""

    run: Run = run_here
    most_tasks: int = 1
    """Maximum number of tasks for one participant; one if its bundle must be fetched. Each task reads the whole bundle."""
    rows_at_once: int | None = None
    """Maximum number of rows in memory at a time; by default `choose_block_rows`."""
    kept: int = field(default=0, init=False)
    """Number of parts that the last call kept from an earlier run."""

    def write(
        self,
        folder: Path,
        study: Study,
        space: AlignmentState,
        bundles: Mapping[str, RowBundle],
        progress: Progress | None,
    ) -> None:
        """Write the rows of each aligned participant in `bundles`; the parts of the others must be there, and are kept."""
        folder = folder.absolute()
        stay = [name for name in space.names if name not in bundles]
        check_parts(folder, space, stay)
        make_folder(folder / PARTS_FOLDER, mode=0o700, what=WHAT)
        clear_partial_files(folder / PARTS_FOLDER)
        n_components = rotation_of(study).n_components
        rows = space.rows
        done, total = sum(rows[name] for name in stay), sum(rows.values())
        counts: dict[str, int] = {}
        tasks = self._tasks(folder, space, bundles, self.rows_at_once or choose_block_rows(n_components), counts)
        self.kept = 0
        for batch, kept in self.run(study, _batches(tasks, n_components)):
            done += sum(task.n_rows for task in batch)
            self.kept += kept
            if progress:
                progress(done, total)
        _remove_others(folder, {name: counts.get(name) for name in space.names})

    def _tasks(
        self,
        folder: Path,
        space: AlignmentState,
        bundles: Mapping[str, RowBundle],
        block: int,
        counts: dict[str, int],
    ) -> Iterator[WriteTask]:
        for index, name in enumerate(space.names):
            if name not in bundles:
                continue
            bundle = replace(bundles[name], anchor_representation=np.empty((0, space.origin.size)))
            n_parts = max(1, math.ceil(bundle.n_rows / (block * _BLOCKS_A_PART)))
            counts[name] = n_parts
            split = not bundle.is_away and self.most_tasks > 1
            at_once = max(_PARTS_A_TASK, math.ceil(n_parts / self.most_tasks)) if split else n_parts
            for first in range(0, n_parts, at_once):
                yield WriteTask(folder, bundle, _alone(space, index), block, first, min(first + at_once, n_parts))


def write_parts(study: Study, task: WriteTask) -> int:
    """Write some parts of one participant and return the number of parts that were kept."""
    wanted = [
        k
        for k in range(task.first, task.last)
        if read_facts(part_path(task.folder, task.name, k), task.name) != task.facts(k)
    ]
    kept = task.last - task.first - len(wanted)
    if not wanted:
        return kept
    schema = make_schema(study, task.space)
    staged: list[tuple[Path, Path]] = []
    try:
        with task.bundle.opened() as bundle:
            for index in wanted:
                facts, target = task.facts(index), part_path(task.folder, task.name, index)
                part_schema = facts.mark(schema)
                beside = target.parent / f".{secrets.token_hex(8)}{PARTIAL}"
                staged.append((beside, target))
                with (
                    open_atomically(beside, mode=0o600, what=WHAT) as file,
                    open_table_writer(file, part_schema) as writer,
                ):
                    for rows, labels in bundle.blocks(task.block, start=facts.start, stop=facts.stop):
                        aligned = task.space.align_rows(0, rows)
                        writer.write_table(make_table(part_schema, study, task.name, aligned, labels))
            require_unchanged(bundle.path, bundle.digest, task.name)
        with explain_os_errors(WHAT):
            for beside, target in staged:
                os.replace(beside, target)
            sync_folder(task.folder / PARTS_FOLDER)
    finally:
        for beside, _ in staged:
            beside.unlink(missing_ok=True)
    return kept


def _batches(tasks: Iterator[WriteTask], n_components: int) -> Batches:
    """Yield batches of tasks to run together. A batch costs milliseconds on workers, so small participants share one."""
    batch: list[WriteTask] = []
    for task in tasks:
        batch.append(task)
        if len(batch) >= _TASKS_A_BATCH or sum(each.n_rows for each in batch) * n_components >= _NUMBERS_A_BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _alone(space: AlignmentState, index: int) -> AlignmentState:
    """Return the alignment state of one participant, which is all that a task needs."""
    return AlignmentState(
        space.study_digest,
        replace(space.record, participants=(space.record.participants[index],)),
        space.orthogonals[index : index + 1],
        space.means[index : index + 1],
        np.empty((0, space.origin.size)),
        space.origin,
    )


def _remove_others(folder: Path, counts: Mapping[str, int | None]) -> None:
    """Remove surplus parts, parts of participants that are not aligned, and temporary files of killed workers."""
    for name, paths in list_parts(folder).items():
        known = counts.get(name, 0)
        for path in paths[len(paths) if known is None else known :]:
            with suppress(OSError):
                path.unlink()
    clear_partial_files(folder / PARTS_FOLDER)
