"""The collaboration matrix as Parquet: everybody's rows in the common space, written and read a block at a time.

It is one file, or a folder of parts (`mooring.protocol.analyst.collaboration_parts`); the alignment's record says which.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mooring.atomic_io import hash_file, open_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.analyst.alignment_state import STATE_FILE, CommonSpace
from mooring.protocol.analyst.collaboration_parts import PARTS_FOLDER, WHAT, read_parts
from mooring.protocol.messages.bundle import Bundle
from mooring.protocol.messages.study import Study
from mooring.typing import Progress

TABLE_FILE = "collaboration.parquet"
_NUMBERS_AT_ONCE = 2**22
_KEY = b"mooring maps"

Block = tuple[str, npt.NDArray[np.float32], npt.NDArray[Any] | None]


class TableWriter(Protocol):
    """Who writes the collaboration matrix, and where in the work folder it is then."""

    name: str

    def write(
        self, folder: Path, study: Study, space: CommonSpace, bundles: Mapping[str, Bundle], progress: Progress | None
    ) -> None:
        """Write everybody's rows; of participants without a bundle, those that are there stay."""


class OneFile:
    """This process writes, into one file."""

    name = TABLE_FILE

    def write(
        self, folder: Path, study: Study, space: CommonSpace, bundles: Mapping[str, Bundle], progress: Progress | None
    ) -> None:
        """Write everybody's rows."""
        write_table(folder, study, space, bundles, progress)


def choose_block_rows(n_components: int) -> int:
    """Rows of a block: what is in memory at a time, and a row group of the file."""
    return max(256, min(65_536, _NUMBERS_AT_ONCE // n_components))


def open_table_writer(file: BinaryIO, schema: pa.Schema) -> pq.ParquetWriter:
    """Write Parquet; only words repeat themselves, and looking for numbers that do takes longer than all the rest."""
    words = [field.name for field in schema if pa.types.is_dictionary(field.type)]
    return pq.ParquetWriter(file, schema, use_dictionary=words)


def write_table(
    folder: Path, study: Study, space: CommonSpace, bundles: Mapping[str, Bundle], progress: Progress | None = None
) -> None:
    """Write everybody's rows; of participants without a bundle, those of the file that is there."""
    schema = make_schema(study, space)
    done, total = 0, sum(space.rows.values())
    with open_atomically(folder / TABLE_FILE, mode=0o600, what=WHAT) as file:
        with open_table_writer(file, schema) as writer:
            kept = [name for name in space.names if name not in bundles]
            for table in read_tables(folder, space, kept) if kept else ():
                writer.write_table(table.cast(schema))
                done += table.num_rows
                if progress:
                    progress(done, total)
            for index, name in enumerate(space.names):
                if name not in bundles:
                    continue
                for rows, labels in bundles[name].blocks(choose_block_rows(study.n_components)):
                    writer.write_table(make_table(schema, study, name, space.align_rows(index, rows), labels))
                    done += len(rows)
                    if progress:
                        progress(done, total)
        for bundle in bundles.values():
            require_unchanged(bundle.path, bundle.digest, bundle.member.name)


def require_unchanged(path: Path, digest: str, name: str) -> None:
    """Whoever can write where bundles arrive could have changed one after it was verified."""
    if hash_file(path, what="the bundle") != digest:
        raise RefusedError(
            "the bundle",
            reason=f"the file of {name} changed while it was read",
            cure="Let nobody write to the folder of bundles, and run the same command again.",
        )


def read_blocks(folder: Path, study: Study, space: CommonSpace) -> Iterator[Block]:
    """The rows of everybody in the space: name, rows (n, h), and labels as class numbers or numbers."""
    for found in read_tables(folder, space, space.names):
        yield decode_block(found, study)


def decode_block(found: pa.Table, study: Study) -> Block:
    """One row group as whose it is, rows and labels."""
    columns = [found[f"z{k + 1}"].to_numpy() for k in range(study.n_components)]
    return str(found["participant"][0]), np.column_stack(columns), _labels(found, study)


def read_tables(folder: Path, space: CommonSpace, names: Sequence[str]) -> Iterator[pa.Table]:
    """The row groups of these participants, whichever form the matrix has."""
    if space.record.get("table", TABLE_FILE) == PARTS_FOLDER:
        yield from read_parts(folder, space, names)
        return
    known = set(names)
    with _opened(folder / TABLE_FILE) as table:
        _require_maps(table, space, names)
        for index in range(table.num_row_groups):
            found = table.read_row_group(index)
            if str(found["participant"][0]) in known:
                yield found


def remove_other_forms(folder: Path, name: str) -> None:
    """Remove the matrix of an earlier alignment that was written in another form."""
    if name != TABLE_FILE:
        with suppress(OSError):
            (folder / TABLE_FILE).unlink(missing_ok=True)
    if name != PARTS_FOLDER:
        shutil.rmtree(folder / PARTS_FOLDER, ignore_errors=True)


def export(folder: str | Path, path: str | Path, *, force: bool = False) -> Path:
    """Copy the collaboration matrix to where any other tool can read it, as one file.

    Parameters
    ----------
    folder : path
        The analyst's work folder.
    path : path
        The Parquet file to write.
    force : bool, default False
        Whether a file that is there may be overwritten.
    """
    folder, path = Path(folder), Path(path)
    if not (folder / TABLE_FILE).is_file() and not (folder / PARTS_FOLDER).is_dir():
        raise StorageError(WHAT, reason="there is none in this folder", cure="Run 'mooring align' first.")
    if path.exists() and not force:
        raise InputError(
            "output", expected="a file that is not there", got="one that is", cure="Pass --force to overwrite."
        )
    space = _space_of(folder)
    metadata = {_KEY: _maps_of(space, space.names)}
    writer = None
    with open_atomically(path, mode=0o600, what=WHAT) as file:
        try:
            for found in read_tables(folder, space, space.names):
                table = found.replace_schema_metadata(metadata)
                writer = writer or open_table_writer(file, table.schema)
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
    return path


def _space_of(folder: Path) -> CommonSpace:
    """The alignment that the matrix must belong to, whichever study it is of."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(folder / STATE_FILE, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            record = json.loads(arrays.pop("record").tobytes())
            space = CommonSpace(file.metadata()["study"], record, **arrays)
            if len(space.rows) != len(space.orthogonals):
                raise ValueError
    except (OSError, SafetensorError, ValueError, KeyError, TypeError):
        raise StorageError(WHAT, reason="its alignment was not finished", cure="Run 'mooring align' again.") from None
    return space


def make_schema(study: Study, space: CommonSpace, names: Sequence[str] | None = None) -> pa.Schema:
    """Columns, and of everybody (or of `names`) which map made the rows."""
    label = {
        "classes": [pa.field("label", pa.dictionary(pa.int32(), pa.string()))],
        "number": [pa.field("label", pa.float64())],
    }
    return pa.schema(
        [
            pa.field("participant", pa.dictionary(pa.int32(), pa.string())),
            *label.get(study.label.kind, []),
            *(pa.field(f"z{k + 1}", pa.float32()) for k in range(study.n_components)),
        ],
        metadata={_KEY: _maps_of(space, space.names if names is None else names)},
    )


def _maps_of(space: CommonSpace, names: Sequence[str]) -> bytes:
    wanted = set(names)
    maps = {name: space.map_digest(index) for index, name in enumerate(space.names) if name in wanted}
    return json.dumps(maps).encode()


def make_table(
    schema: pa.Schema, study: Study, name: str, rows: npt.NDArray[np.float32], labels: npt.NDArray[Any] | None
) -> pa.Table:
    """A block of one participant's rows as a table."""
    places = pa.array(np.zeros(len(rows), dtype=np.int32))
    columns: list[Any] = [pa.DictionaryArray.from_arrays(places, pa.array([name]))]
    if study.label.kind == "classes" and labels is not None:
        words = pa.array(list(study.label.classes))
        columns.append(pa.DictionaryArray.from_arrays(pa.array(labels.astype(np.int32)), words))
    elif labels is not None:
        columns.append(pa.array(labels.astype(np.float64)))
    columns += [pa.array(np.ascontiguousarray(column)) for column in rows.T]
    return pa.Table.from_arrays(columns, schema=schema)


def _opened(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        raise StorageError(WHAT, reason="there is none in this folder", cure="Run 'mooring align' first.")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise StorageError(WHAT, reason="it cannot be read", cure="Run 'mooring align' again.") from None


def _require_maps(table: pq.ParquetFile, space: CommonSpace, names: Sequence[str]) -> None:
    """Refuse rows that other maps made: an alignment that was interrupted leaves them."""
    maps = json.loads((table.schema_arrow.metadata or {}).get(_KEY, b"{}"))
    places = {name: index for index, name in enumerate(space.names)}
    if any(maps.get(name) != space.map_digest(places[name]) for name in names):
        raise StorageError(
            WHAT,
            reason="it is not the one of this alignment, which was interrupted",
            cure="Run 'mooring align' again.",
        )


def _labels(found: pa.Table, study: Study) -> npt.NDArray[Any] | None:
    if study.label.kind == "none":
        return None
    if study.label.kind == "number":
        return np.asarray(found["label"].to_numpy(), dtype=np.float64)
    codes = {word: code for code, word in enumerate(study.label.classes)}
    words = found["label"].combine_chunks()
    lookup = np.array([codes[str(word)] for word in words.dictionary], dtype=np.int64)
    return np.asarray(lookup[words.indices.to_numpy()])
