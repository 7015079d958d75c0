"""Writing of the collaboration matrix by workers, part by part. Finished parts of an earlier run are kept."""

from __future__ import annotations

import math
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np

from mooring.atomic_io import PARTIAL, clear_partial_files, explain_os_errors, make_folder, open_atomically, sync_folder
from mooring.engines.dask.cluster import Client, run_throttled
from mooring.engines.dask.intake import RemoteBundle, open_local_copy
from mooring.errors import StorageError
from mooring.protocol.analyst.intake import MOST_BYTES
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.alignment_state import AlignmentState
from mooring.protocol.rotation.bundle import RowBundle
from mooring.protocol.rotation.collaboration_matrix import (
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
    read_tables,
    require_unchanged,
)
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Progress

_BLOCKS_A_PART = 16
_PARTS_A_TASK, _TASKS_A_BUNDLE = 8, 4
_WORKS_A_TASK, _NUMBERS_A_TASK = 32, 2**17


@dataclass(frozen=True, eq=False)
class WriteTask:
    """The parts of one participant that a task writes."""

    folder: Path
    bundle: RemoteBundle
    """The bundle, without its anchor representation."""
    space: AlignmentState
    """The alignment state of this participant only."""
    block: int
    first: int
    last: int

    @property
    def name(self) -> str:
        """The participant's name."""
        return self.bundle.member.name

    @property
    def n_rows(self) -> int:
        """The number of rows in the parts to write."""
        rows = self.block * _BLOCKS_A_PART
        return min(self.bundle.n_rows, self.last * rows) - self.first * rows

    def facts(self, index: int) -> PartFacts:
        """Return the metadata that part `index` must have."""
        rows = self.block * _BLOCKS_A_PART
        stop = min(self.bundle.n_rows, (index + 1) * rows)
        return PartFacts(index * rows, stop, self.bundle.digest, self.space.map_digest(0))


class PartsOnWorkers:
    """Writes the matrix with workers, into a folder of parts that they all see."""

    name = PARTS_FOLDER

    def __init__(self, client: Client, *, rows_at_once: int | None = None) -> None:
        self._client, self._rows_at_once = client, rows_at_once
        self.kept = 0
        """Number of parts that were kept from an earlier run."""

    def write(
        self,
        folder: Path,
        study: Study,
        space: AlignmentState,
        bundles: Mapping[str, RowBundle],
        progress: Progress | None,
    ) -> None:
        """Write the rows of all participants with a bundle; existing parts of the others are kept."""
        folder = folder.absolute()
        stay = [name for name in space.names if name not in bundles]
        if stay and space.record.table != PARTS_FOLDER:
            _from_one_file(folder, study, space, stay)
        elif stay:
            check_parts(folder, space, stay)
        make_folder(folder / PARTS_FOLDER, mode=0o700, what=WHAT)
        clear_partial_files(folder / PARTS_FOLDER)
        at_work = self._client.submit(replace, study, pure=False)
        block = self._rows_at_once or choose_block_rows(rotation_of(study).n_components)
        rows = space.rows
        done, total = sum(rows[name] for name in stay), sum(rows.values())
        counts: dict[str, int] = {}
        works = _batches(_works(folder, space, bundles, block=block, counts=counts), rotation_of(study).n_components)
        self.kept = 0
        for batch, kept in run_throttled(self._client, ((batch, write_all, (at_work, batch)) for batch in works)):
            done += sum(work.n_rows for work in batch)
            self.kept += kept
            if progress:
                progress(done, total)
        _remove_others(folder, {name: counts.get(name) for name in space.names})


def write_all(study: Study, works: Sequence[WriteTask]) -> int:
    """Write parts of several participants and return the number of parts that were kept. Runs on a worker."""
    return sum(write_parts(study, work) for work in works)


def write_parts(study: Study, work: WriteTask) -> int:
    """Write some parts of one participant and return the number of parts that were kept. Runs on a worker."""
    wanted = [
        k
        for k in range(work.first, work.last)
        if read_facts(part_path(work.folder, work.name, k), work.name) != work.facts(k)
    ]
    kept = work.last - work.first - len(wanted)
    if not wanted:
        return kept
    place, digest = work.bundle.place, work.bundle.digest
    with open_local_copy(place, most_bytes=MOST_BYTES) as path:
        if isinstance(path, str):
            cure = "Restore it and run the same command again. Finished parts are kept."
            raise StorageError(f"the bundle of {work.name}", reason=f"it was accepted, but now {path}", cure=cure)
        if place.is_away:  # a private copy, which nobody else changes
            require_unchanged(path, digest, work.name)
        bundle = replace(work.bundle, path=path)
        schema = make_schema(study, work.space)
        staged: list[tuple[Path, Path]] = []
        try:
            for index in wanted:
                facts, target = work.facts(index), part_path(work.folder, work.name, index)
                part_schema = facts.mark(schema)
                beside = target.parent / f".{secrets.token_hex(8)}{PARTIAL}"
                staged.append((beside, target))
                with (
                    open_atomically(beside, mode=0o600, what=WHAT) as file,
                    open_table_writer(file, part_schema) as writer,
                ):
                    for rows, labels in bundle.blocks(work.block, start=facts.start, stop=facts.stop):
                        writer.write_table(
                            make_table(part_schema, study, work.name, work.space.align_rows(0, rows), labels)
                        )
            if not place.is_away:  # others may have changed it while it was read
                require_unchanged(path, digest, work.name)
            with explain_os_errors(WHAT):
                for beside, target in staged:
                    os.replace(beside, target)
                sync_folder(work.folder / PARTS_FOLDER)
        finally:
            for beside, _ in staged:
                beside.unlink(missing_ok=True)
    return kept


def _works(
    folder: Path, space: AlignmentState, bundles: Mapping[str, RowBundle], *, block: int, counts: dict[str, int]
) -> Iterator[WriteTask]:
    for index, name in enumerate(space.names):
        if name not in bundles:
            continue
        bundle = replace(cast(RemoteBundle, bundles[name]), anchor_representation=np.empty((0, space.origin.size)))
        n_parts = max(1, math.ceil(bundle.n_rows / (block * _BLOCKS_A_PART)))
        counts[name] = n_parts
        # A download serves all parts. A shared file is hashed at the end of each task, so there are at most four tasks.
        at_once = n_parts if bundle.place.is_away else max(_PARTS_A_TASK, math.ceil(n_parts / _TASKS_A_BUNDLE))
        for first in range(0, n_parts, at_once):
            yield WriteTask(folder, bundle, _alone(space, index), block, first, min(first + at_once, n_parts))


def _batches(works: Iterator[WriteTask], n_components: int) -> Iterator[list[WriteTask]]:
    """Yield batches of work for one task each. Small participants share a task, because each task costs milliseconds."""
    batch: list[WriteTask] = []
    for work in works:
        batch.append(work)
        if len(batch) >= _WORKS_A_TASK or sum(each.n_rows for each in batch) * n_components >= _NUMBERS_A_TASK:
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


def _from_one_file(folder: Path, study: Study, space: AlignmentState, names: Sequence[str]) -> None:
    """Turn rows of participants without a new bundle from one file into parts, one per row group."""
    shutil.rmtree(folder / PARTS_FOLDER, ignore_errors=True)  # from an older or interrupted alignment
    make_folder(folder / PARTS_FOLDER, mode=0o700, what=WHAT)
    digests = {entry.name: entry.digest for entry in space.record.participants}
    places = {name: index for index, name in enumerate(space.names)}
    reached: dict[str, tuple[int, int]] = dict.fromkeys(names, (0, 0))
    for group in read_tables(folder, space, names):
        name = str(group["participant"][0])
        index, start = reached[name]
        stop = start + group.num_rows
        facts = PartFacts(start, stop, digests[name], space.map_digest(places[name]))
        table = group.cast(facts.mark(make_schema(study, space, [name])))
        path = part_path(folder, name, index)
        with open_atomically(path, mode=0o600, what=WHAT) as file, open_table_writer(file, table.schema) as writer:
            writer.write_table(table)
        reached[name] = (index + 1, stop)


def _remove_others(folder: Path, counts: Mapping[str, int | None]) -> None:
    """Remove parts of other participants, surplus parts, and temporary files of killed workers."""
    for name, paths in list_parts(folder).items():
        known = counts.get(name, 0)
        for path in paths[len(paths) if known is None else known :]:
            with suppress(OSError):
                path.unlink()
    clear_partial_files(folder / PARTS_FOLDER)
