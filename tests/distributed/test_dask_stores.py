"""Bundles in an object store, verified and mapped by workers that download for themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("s3fs")

import dask

from mooring.engines.dask import connect
from mooring.engines.dask.intake import list_bundles
from mooring.errors import StorageError
from tests.raising import raising

from .conftest import METHOD
from .dask_study import align_on_dask, aligned_locally, make, matrix
from .object_store import SECRET, amazons_own, settings

BUNDLES = "s3://dask/bundles"


@pytest.fixture
def environment(moto_port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The store's address and keys are where workers, too, find them: in the environment."""
    import s3fs

    for name, value in settings(moto_port).items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()  # they keep the address of a server from before
    yield
    s3fs.S3FileSystem.clear_instance_cache()


@pytest.mark.usefixtures("environment")
def test_workers_download_for_themselves_and_let_go(moto_port: int, tmp_path: Path) -> None:
    made, work, here = make(tmp_path), tmp_path / "work", tmp_path / "here"
    (made.inbox / "site-4.bundle").write_bytes(b"no bundle")
    aligned_locally(made, here, certify=False)
    paths = sorted(made.inbox.iterdir())
    with amazons_own(moto_port) as others:  # not through fsspec, which would know that its listing is out of date
        for k, path in enumerate(paths, start=1):
            others.upload_file(str(path), "dask", f"bundles/{path.name}")
            assert [place.shown for place in list_bundles(BUNDLES)] == [each.name for each in paths[:k]]
    with dask.config.set({METHOD: "spawn"}), connect(workers=1) as client:  # with the environment of this test
        align_on_dask(client, made.study, BUNDLES, work, rows_at_once=9, certify=False)
        left = client.run(
            lambda dask_worker: [str(path) for path in Path(dask_worker.local_directory).rglob("*.bundle")]
        )
        assert not any(left.values())
        with raising(StorageError, reason="404") as caught:
            align_on_dask(client, made.study, "s3://nowhere/bundles", work)
        assert SECRET not in str(caught.value)
    assert np.abs(matrix(made.study, work).rows - matrix(made.study, here).rows).max() < 1e-6
    assert not (work / "received").exists()
    aside = [json.loads((place / "intake.json").read_text())["set_aside"] for place in (work, here)]
    assert aside[0] == aside[1]
    assert len(aside[0]) == 1
