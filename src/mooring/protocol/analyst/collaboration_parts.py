"""The collaboration matrix as a folder of Parquet files, each with some rows of one participant.

A part says in its metadata which map made it, from which bundle, and which of the participant's rows it holds. So parts of
an alignment that was interrupted are known, and kept or refused one by one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mooring.atomic_io import explain_os_errors
from mooring.errors import StorageError
from mooring.protocol.analyst.alignment_state import CommonSpace

PARTS_FOLDER = "collaboration"
WHAT = "the collaboration matrix"
PART_KEY = b"mooring part"
_MAPS_KEY = b"mooring maps"
_NAME = re.compile(r"part-(.+)-(\d{6,})\.parquet")


@dataclass(frozen=True)
class PartFacts:
    """What a part says of itself: its rows [start, stop), and the digests of the bundle and of the map behind them."""

    start: int
    stop: int
    bundle: str
    map: str

    def as_metadata(self) -> bytes:
        """As the part's metadata holds it; the map is there under a key of its own."""
        return json.dumps({"start": self.start, "stop": self.stop, "bundle": self.bundle}).encode()


def part_path(folder: Path, name: str, index: int) -> Path:
    """Where part `index` of a participant's rows is."""
    return folder / PARTS_FOLDER / f"part-{name}-{index:06d}.parquet"


def read_facts(path: Path, name: str) -> PartFacts | None:
    """What a part says, or None if it is not there or cannot be read."""
    try:
        schema = pq.read_schema(path)
        metadata: Mapping[bytes, bytes] = schema.metadata or {}
        plain: dict[str, Any] = json.loads(metadata[PART_KEY])
        maps = json.loads(metadata[_MAPS_KEY])
        return PartFacts(int(plain["start"]), int(plain["stop"]), str(plain["bundle"]), str(maps[name]))
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError):
        return None


def list_parts(folder: Path) -> dict[str, list[Path]]:
    """The parts that are there, by participant, in order."""
    found: dict[str, list[tuple[int, Path]]] = {}
    with explain_os_errors(WHAT):
        for path in (folder / PARTS_FOLDER).iterdir() if (folder / PARTS_FOLDER).is_dir() else ():
            match = _NAME.fullmatch(path.name)
            if match:
                found.setdefault(match[1], []).append((int(match[2]), path))
    return {name: [path for _, path in sorted(paths)] for name, paths in found.items()}


def check_parts(folder: Path, space: CommonSpace, names: Sequence[str]) -> dict[str, list[Path]]:
    """The parts of these participants: every row once, and made by the space's maps, or a clear error."""
    rows, places = space.rows, {name: index for index, name in enumerate(space.names)}
    there = list_parts(folder)
    for name in names:
        reached, digest = 0, space.map_digest(places[name])
        for path in there.get(name, ()):
            facts = read_facts(path, name)
            if facts is None:
                raise StorageError(WHAT, reason="a part of it cannot be read", cure="Run 'mooring align' again.")
            if facts.start != reached or facts.map != digest:
                raise _interrupted()
            reached = facts.stop
        if reached != rows[name]:
            raise _interrupted()
    return {name: there[name] for name in names}


def read_parts(folder: Path, space: CommonSpace, names: Sequence[str]) -> Iterator[pa.Table]:
    """Every row group of these participants' parts, participant by participant."""
    for paths in check_parts(folder, space, names).values():
        for path in paths:
            yield from read_row_groups(path)


def read_row_groups(path: Path) -> Iterator[pa.Table]:
    """The row groups of one part."""
    try:
        with pq.ParquetFile(path) as table:
            for index in range(table.num_row_groups):
                yield table.read_row_group(index)
    except (pa.ArrowException, OSError):
        raise StorageError(WHAT, reason="a part of it cannot be read", cure="Run 'mooring align' again.") from None


def _interrupted() -> StorageError:
    return StorageError(
        WHAT,
        reason="it is not the one of this alignment, which was interrupted",
        cure="Run 'mooring align' again.",
    )
