"""The collaboration matrix as Parquet: everybody's rows in the common space, written and read a block at a time.

It is a folder of Parquet files ("parts"), each with some rows of one participant. The metadata of a part name the map and
the bundle that made its rows, and the range of these rows. After an interruption, the metadata show which parts are
finished and can be kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mooring.atomic_io import explain_os_errors, hash_file, open_atomically, require_absent
from mooring.errors import RefusedError, StorageError
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import STATE_FILE, AlignmentState, decode_record
from mooring.protocol.rotation.scheme import rotation_of

PARTS_FOLDER = "collaboration"
WHAT = "the collaboration matrix"
_PART_KEY, _MAPS_KEY = b"mooring part", b"mooring maps"
_NUMBERS_AT_ONCE = 2**22
_WORDS = pa.dictionary(pa.int32(), pa.string())
_PART_NAME = re.compile(r"part-(.+)-(\d{6,})\.parquet")

Block = tuple[str, npt.NDArray[np.float32], npt.NDArray[Any] | None]


@dataclass(frozen=True)
class PartFacts:
    """The metadata of a part: its rows [start, stop), and the digests of the bundle and the map that they come from."""

    start: int
    stop: int
    bundle: str
    map: str

    def mark(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with these facts in its metadata, which already hold the digest of the map."""
        plain = json.dumps({"start": self.start, "stop": self.stop, "bundle": self.bundle}).encode()
        return schema.with_metadata({**schema.metadata, _PART_KEY: plain})


def choose_block_rows(n_components: int) -> int:
    """Return the number of rows that are in memory at a time, and in one row group of a part."""
    return max(256, min(65_536, _NUMBERS_AT_ONCE // n_components))


def make_schema(study: Study, space: AlignmentState) -> pa.Schema:
    """Return the schema of the columns, whose metadata hold the digest of each aligned participant's map."""
    return pa.schema(_fields(study), metadata={_MAPS_KEY: _encode_maps(space)})


def _fields(study: Study) -> list[pa.Field]:
    label = {"classes": [pa.field("label", _WORDS)], "number": [pa.field("label", pa.float64())]}
    numbers = [pa.field(f"z{k + 1}", pa.float32()) for k in range(rotation_of(study).n_components)]
    return [pa.field("participant", _WORDS), *label.get(study.label.kind, []), *numbers]


def make_table(
    schema: pa.Schema, study: Study, name: str, rows: npt.NDArray[np.float32], labels: npt.NDArray[Any] | None
) -> pa.Table:
    """Return a block of one participant's rows as a table."""
    places = pa.array(np.zeros(len(rows), dtype=np.int32))
    columns: list[Any] = [pa.DictionaryArray.from_arrays(places, pa.array([name]))]
    if study.label.kind == "classes" and labels is not None:
        words = pa.array(list(study.label.classes))
        columns.append(pa.DictionaryArray.from_arrays(pa.array(labels.astype(np.int32)), words))
    elif labels is not None:
        columns.append(pa.array(labels.astype(np.float64)))
    columns += [pa.array(np.ascontiguousarray(column)) for column in rows.T]
    return pa.Table.from_arrays(columns, schema=schema)


def open_table_writer(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a Parquet writer with dictionaries for text columns only, because making them for numbers is slow."""
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(file, schema, use_dictionary=words)


def require_unchanged(path: Path, digest: str, name: str) -> None:
    """Refuse a bundle that changed after it was verified: others may be able to write to the folder where bundles arrive."""
    if hash_file(path, what="the bundle") != digest:
        cure = "Let nobody write to the folder of bundles, and run the same command again."
        raise RefusedError("the bundle", reason=f"the file of {name} changed while it was read", cure=cure)


def read_blocks(folder: Path, study: Study, space: AlignmentState) -> Iterator[Block]:
    """Yield all aligned rows in blocks: the owner's name, rows of shape (n, h), and class numbers, numbers or None."""
    for group in read_tables(folder, space):
        yield decode_block(group, study)


def decode_block(group: pa.Table, study: Study) -> Block:
    """Return one row group as the owner's name, its rows, and its labels, or None without labels."""
    if _fields(study) != list(group.schema.remove_metadata()) or any(column.null_count for column in group.columns):
        raise _report("it is damaged")
    rows = np.column_stack([group[f"z{k + 1}"].to_numpy() for k in range(rotation_of(study).n_components)])
    labels: npt.NDArray[Any] | None = None
    if study.label.kind == "number":
        labels = np.asarray(group["label"].to_numpy(), dtype=np.float64)
    elif study.label.kind == "classes":
        codes = {word: code for code, word in enumerate(study.label.classes)}
        words = group["label"].combine_chunks()
        if not {str(word) for word in words.dictionary} <= set(codes):
            raise _report("it is damaged")
        lookup = np.array([codes[str(word)] for word in words.dictionary], dtype=np.int64)
        labels = np.asarray(lookup[words.indices.to_numpy()])
    return str(group["participant"][0]), rows, labels


def read_tables(folder: Path, space: AlignmentState) -> Iterator[pa.Table]:
    """Yield the row groups of all aligned participants, one participant after the other."""
    for paths in check_parts(folder, space, space.names).values():
        for path in paths:
            yield from read_row_groups(path)


def read_row_groups(path: Path) -> Iterator[pa.Table]:
    """Yield the row groups of one Parquet file."""
    try:
        with pq.ParquetFile(path) as table:
            for index in range(table.num_row_groups):
                group = table.read_row_group(index)
                group.validate(full=True)  # finds text that is not UTF-8, and indices outside the dictionary
                if group.num_rows == 0 or group.column_names[0] != "participant":
                    raise _report(f"{path.name} is damaged")
                yield group
    except (pa.ArrowException, OSError, ValueError):
        raise _report(f"{path.name} cannot be read") from None


def part_path(folder: Path, name: str, index: int) -> Path:
    """Return the path of a part of a participant's rows."""
    return folder / PARTS_FOLDER / f"part-{name}-{index:06d}.parquet"


def read_facts(path: Path, name: str) -> PartFacts | None:
    """Return the metadata of a part, or None if it does not exist or cannot be read."""
    try:
        metadata: Mapping[bytes, bytes] = pq.read_schema(path).metadata or {}
        plain, maps = json.loads(metadata[_PART_KEY]), json.loads(metadata[_MAPS_KEY])
        return PartFacts(int(plain["start"]), int(plain["stop"]), str(plain["bundle"]), str(maps[name]))
    except (OSError, pa.ArrowException, ValueError, KeyError, TypeError, RecursionError):
        return None


def list_parts(folder: Path) -> dict[str, list[Path]]:
    """Return the existing parts of each participant, in order."""
    numbered: dict[str, list[tuple[int, Path]]] = {}
    with explain_os_errors(WHAT):
        for path in (folder / PARTS_FOLDER).iterdir() if (folder / PARTS_FOLDER).is_dir() else ():
            if match := _PART_NAME.fullmatch(path.name):
                numbered.setdefault(match[1], []).append((int(match[2]), path))
    return {name: [path for _, path in sorted(paths)] for name, paths in numbered.items()}


def check_parts(folder: Path, space: AlignmentState, names: Sequence[str]) -> dict[str, list[Path]]:
    """Return these participants' parts, after checking that the parts hold every row once and were made by these maps."""
    if names:
        _require_matrix(folder)
    rows, places = space.rows, {name: index for index, name in enumerate(space.names)}
    there = list_parts(folder)
    for name in names:
        reached, digest = 0, space.map_digest(places[name])
        for path in there.get(name, ()):
            facts = read_facts(path, name)
            if facts is None:
                raise _report("a part of it cannot be read")
            if facts.start != reached or facts.map != digest:
                raise _report("it is not the one of this alignment, which was interrupted")
            reached = facts.stop
        if reached != rows[name]:
            raise _report("it is not the one of this alignment, which was interrupted")
    return {name: there[name] for name in names}


def export(folder: str | Path, path: str | Path, *, force: bool = False) -> Path:
    """Copy the collaboration matrix to one file for other tools; `force` overwrites an existing file."""
    folder, path = Path(folder), Path(path)
    _require_matrix(folder)
    require_absent(path, force=force)
    space = _read_any_space(folder)
    metadata = {_MAPS_KEY: _encode_maps(space)}
    writer = None
    with open_atomically(path, mode=0o600, what=WHAT) as file:
        try:
            for group in read_tables(folder, space):
                table = group.replace_schema_metadata(metadata)
                writer = writer or open_table_writer(file, table.schema)
                if table.schema != writer.schema:
                    raise _report("a part of it is damaged")
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
    return path


def _read_any_space(folder: Path) -> AlignmentState:
    """Read the alignment in a work folder without knowing its study."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / STATE_FILE, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            record = decode_record(arrays.pop("record"), len(arrays["orthogonals"]))
            space = AlignmentState(file.metadata()["study"], record, **arrays)
    except (OSError, SafetensorError, RefusedError, ValueError, KeyError, TypeError, AttributeError):
        raise _report("its alignment was not finished") from None
    return space


def _encode_maps(space: AlignmentState) -> bytes:
    return json.dumps({name: space.map_digest(index) for index, name in enumerate(space.names)}).encode()


def _require_matrix(folder: Path) -> None:
    if not (folder / PARTS_FOLDER).is_dir():
        cure = "Run 'mooring align' first. A study of secure sums has no collaboration matrix."
        raise StorageError(WHAT, reason="there is none in this folder", cure=cure)


def _report(reason: str) -> StorageError:
    return StorageError(WHAT, reason=reason, cure="Run 'mooring align' again.")
