"""`--engine` where Dask is not installed, and options that only make sense with it; parts are read without Dask."""

import json
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mooring.errors import StorageError
from mooring.protocol.rotation.analyst.alignment_state import (
    AlignedParticipant,
    AlignmentRecord,
    AlignmentState,
    write_space,
)
from mooring.protocol.rotation.analyst.collaboration_matrix import PartFacts, export, list_parts, part_path, read_facts
from tests.commands import flat, run
from tests.raising import raising
from tests.sites import numeric_study


@pytest.fixture
def study(tmp_path: Path) -> Path:
    numeric_study(p=2).write(tmp_path / "study.toml")
    (tmp_path / "inbox").mkdir()
    return tmp_path / "study.toml"


@pytest.mark.parametrize("command", ["align", "train"])
def test_without_dask_the_extra_is_named(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    words = ["--bundles", tmp_path / "inbox"] if command == "align" else []
    result = run(command, "--study", study, "--folder", tmp_path / "work", *words, "--engine", "dask", code=2)
    assert "mooring[dask]" in flat(result.stderr)
    assert not (tmp_path / "work").exists()


TLS = ["--tls-ca", __file__, "--tls-cert", __file__, "--tls-key", __file__]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--workers", "2"], "--workers"),
        (["--scheduler", "tcp://127.0.0.1:1"], "--scheduler"),
        (["--rows-at-once", "5"], "--rows-at-once"),
        (["--reduce-over-workers"], "--reduce-over-workers"),
        (["--engine", "dask", "--tls-ca", "ca.pem"], "TLS"),
        (["--engine", "dask", *TLS], "TLS"),
    ],
)
def test_options_that_cannot_be_used_are_told(study: Path, tmp_path: Path, words: list[str], what: str) -> None:
    common = ("--study", study, "--bundles", tmp_path / "inbox", "--folder", tmp_path / "work")
    run("align", *common, *words, code=2, what=what)


def test_an_address_in_the_environment_does_not_stop_the_local_engine(study: Path, tmp_path: Path) -> None:
    common = ("--study", study, "--bundles", tmp_path / "inbox", "--folder", tmp_path / "work")
    run("align", *common, code=2, what="bundles", MOORING_DASK_SCHEDULER="tcp://127.0.0.1:1")


# parts


def space_of(sign: float = 1.0, **rows: int) -> AlignmentState:
    record = AlignmentRecord(
        participants=tuple(AlignedParticipant(name, count, "", 1.0) for name, count in rows.items()),
        set_aside=(),
        method="test",
        iterations=None,
        termination="",
        converged=True,
        residual=None,
        misfit=None,
        certificate=None,
        anchor_noise_scale=0.1,
        transition_scale=1.0,
        note="",
    )
    p = len(rows)
    return AlignmentState("s", record, np.full((p, 1, 1), sign), np.zeros((p, 1)), np.zeros((2, 1)), np.zeros(1))


def with_rows(name: str, rows: range, metadata: dict[bytes, bytes]) -> pa.Table:
    names = pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(rows), dtype=np.int32)), pa.array([name]))
    numbers = pa.array(np.arange(rows.start, rows.stop, dtype=np.float32))
    return pa.table({"participant": names, "z1": numbers}).replace_schema_metadata(metadata)


def write_part(folder: Path, name: str, index: int, rows: range, *, sign: float = 1.0) -> Path:
    path = part_path(folder, name, index)
    path.parent.mkdir(exist_ok=True)
    digest = space_of(sign, **{name: 1}).map_digest(0)
    facts = PartFacts(rows.start, rows.stop, "b" * 64, digest)
    marked = facts.mark(pa.schema([], {b"mooring maps": json.dumps({name: digest}).encode()}))
    pq.write_table(with_rows(name, rows, marked.metadata), path)
    assert read_facts(path, name) == facts
    return path


def record(folder: Path, **rows: int) -> None:
    write_space(folder, space_of(**rows))


def test_parts_become_one_file_in_order(tmp_path: Path) -> None:
    write_part(tmp_path, "b", 0, range(0, 3))
    write_part(tmp_path, "a-000001", 1, range(2, 4))
    write_part(tmp_path, "a-000001", 0, range(0, 2))
    record(tmp_path, **{"a-000001": 4, "b": 3})
    assert {name: len(paths) for name, paths in list_parts(tmp_path).items()} == {"a-000001": 2, "b": 1}
    table = pq.read_table(export(tmp_path, tmp_path / "all.parquet"))
    assert table["participant"].to_pylist() == ["a-000001"] * 4 + ["b"] * 3
    assert table["z1"].to_pylist() == [0, 1, 2, 3, 0, 1, 2]


def test_parts_that_are_not_whole_are_not_exported(tmp_path: Path) -> None:
    write_part(tmp_path, "a", 0, range(0, 2))
    with raising(StorageError, "the collaboration matrix"):
        export(tmp_path, tmp_path / "all.parquet")
    record(tmp_path, a=4)
    with raising(StorageError, "the collaboration matrix", reason="interrupted"):
        export(tmp_path, tmp_path / "all.parquet")
    later = write_part(tmp_path, "a", 1, range(3, 4))
    with raising(StorageError, "the collaboration matrix", reason="interrupted"):
        export(tmp_path, tmp_path / "all.parquet")
    later.write_bytes(b"torn")
    with raising(StorageError, "the collaboration matrix"):
        export(tmp_path, tmp_path / "all.parquet")
    assert not (tmp_path / "all.parquet").exists()
    assert not list(tmp_path.glob(".*.partial"))


def test_parts_that_another_alignment_made_are_not_exported(tmp_path: Path) -> None:
    write_part(tmp_path, "a", 0, range(0, 2))
    write_part(tmp_path, "b", 0, range(0, 2), sign=-1.0)  # written again, and then the command was killed
    record(tmp_path, a=2, b=2)
    with raising(StorageError, "the collaboration matrix", reason="interrupted"):
        export(tmp_path, tmp_path / "all.parquet")
    write_part(tmp_path, "b", 0, range(0, 2))
    assert pq.read_table(export(tmp_path, tmp_path / "all.parquet")).num_rows == 4
