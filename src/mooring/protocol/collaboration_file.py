"""The collaboration matrix as Parquet: everybody's rows in the common space, written and read a block at a time."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.bundle import Bundle
from mooring.protocol.common_space import CommonSpace
from mooring.protocol.durable import durable_file
from mooring.protocol.signed import digest_of
from mooring.protocol.study import Study
from mooring.protocol.tables import Progress

TABLE_FILE = "collaboration.parquet"
_WHAT = "the collaboration matrix"
_NUMBERS_AT_ONCE = 2**22
_KEY = b"mooring maps"

Block = tuple[str, npt.NDArray[np.float32], npt.NDArray[Any] | None]


def write_table(
    folder: Path, study: Study, space: CommonSpace, bundles: Mapping[str, Bundle], progress: Progress | None = None
) -> None:
    """Write everybody's rows; of participants without a bundle, those of the file that is there."""
    schema = _schema(study, space)
    done, total = 0, sum(space.rows.values())
    with durable_file(folder / TABLE_FILE, mode=0o600, what=_WHAT) as file:
        with pq.ParquetWriter(file, schema) as writer:
            kept = [name for name in space.names if name not in bundles]
            for table in _old_tables(folder / TABLE_FILE, space, kept) if kept else ():
                writer.write_table(table.cast(schema))
                done += table.num_rows
                if progress:
                    progress(done, total)
            for index, name in enumerate(space.names):
                if name not in bundles:
                    continue
                for rows, labels in bundles[name].blocks(max(256, min(65_536, _NUMBERS_AT_ONCE // study.n_components))):
                    writer.write_table(_table(schema, study, name, space.bring(index, rows), labels))
                    done += len(rows)
                    if progress:
                        progress(done, total)
        for bundle in bundles.values():
            # Whoever can write where bundles arrive could have changed one after it was verified.
            if digest_of(bundle._path, what="the bundle") != bundle.digest:
                raise RefusedError(
                    "the bundle",
                    reason=f"the file of {bundle.member.name} changed while it was read",
                    cure="Let nobody write to the folder of bundles, and run the same command again.",
                )


def read_blocks(folder: Path, study: Study, space: CommonSpace) -> Iterator[Block]:
    """The rows of everybody in the space: name, rows (n, h), and labels as class numbers or numbers."""
    with _opened(folder / TABLE_FILE) as table:
        _require_maps(table, space, space.names)
        known = set(space.names)
        for index in range(table.num_row_groups):
            found = table.read_row_group(index)
            name = str(found["participant"][0])
            if name not in known:
                continue
            columns = [found[f"z{k + 1}"].to_numpy() for k in range(study.n_components)]
            yield name, np.column_stack(columns), _labels(found, study)


def export(folder: str | Path, path: str | Path, *, force: bool = False) -> Path:
    """Copy the collaboration matrix to where any other tool can read it.

    Parameters
    ----------
    folder : path
        The analyst's work folder.
    path : path
        The Parquet file to write.
    force : bool, default False
        Whether a file that is there may be overwritten.
    """
    source, path = Path(folder) / TABLE_FILE, Path(path)
    if not source.is_file():
        raise StorageError(_WHAT, reason="there is none in this folder", cure="Run 'mooring align' first.")
    if path.exists() and not force:
        raise InputError(
            "output", expected="a file that is not there", got="one that is", cure="Pass --force to overwrite."
        )
    with source.open("rb") as old, durable_file(path, mode=0o600, what=_WHAT) as new:
        shutil.copyfileobj(old, new, 2**20)
    return path


def _schema(study: Study, space: CommonSpace) -> pa.Schema:
    label = {
        "classes": [pa.field("label", pa.dictionary(pa.int32(), pa.string()))],
        "number": [pa.field("label", pa.float64())],
    }
    maps = {name: space.map_digest(index) for index, name in enumerate(space.names)}
    return pa.schema(
        [
            pa.field("participant", pa.dictionary(pa.int32(), pa.string())),
            *label.get(study.label.kind, []),
            *(pa.field(f"z{k + 1}", pa.float32()) for k in range(study.n_components)),
        ],
        metadata={_KEY: json.dumps(maps).encode()},
    )


def _table(
    schema: pa.Schema, study: Study, name: str, rows: npt.NDArray[np.float32], labels: npt.NDArray[Any] | None
) -> pa.Table:
    places = pa.array(np.zeros(len(rows), dtype=np.int32))
    columns: list[Any] = [pa.DictionaryArray.from_arrays(places, pa.array([name]))]
    if study.label.kind == "classes" and labels is not None:
        words = pa.array(list(study.label.classes))
        columns.append(pa.DictionaryArray.from_arrays(pa.array(labels.astype(np.int32)), words))
    elif labels is not None:
        columns.append(pa.array(labels.astype(np.float64)))
    columns += [pa.array(np.ascontiguousarray(column)) for column in rows.T]
    return pa.Table.from_arrays(columns, schema=schema)


def _old_tables(path: Path, space: CommonSpace, names: Sequence[str]) -> Iterator[pa.Table]:
    with _opened(path) as table:
        _require_maps(table, space, names)
        for index in range(table.num_row_groups):
            found = table.read_row_group(index)
            if str(found["participant"][0]) in names:
                yield found


def _opened(path: Path) -> pq.ParquetFile:
    if not path.is_file():
        raise StorageError(_WHAT, reason="there is none in this folder", cure="Run 'mooring align' first.")
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError):
        raise StorageError(_WHAT, reason="it cannot be read", cure="Run 'mooring align' again.") from None


def _require_maps(table: pq.ParquetFile, space: CommonSpace, names: Sequence[str]) -> None:
    """Refuse rows that other maps made: an alignment that was interrupted leaves them."""
    maps = json.loads((table.schema_arrow.metadata or {}).get(_KEY, b"{}"))
    places = {name: index for index, name in enumerate(space.names)}
    if any(maps.get(name) != space.map_digest(places[name]) for name in names):
        raise StorageError(
            _WHAT,
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
