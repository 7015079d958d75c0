"""Bundles in an object store, verified and mapped by workers that download for themselves."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("distributed")
pytest.importorskip("s3fs")

from mooring.engines.dask import align_on_dask, connected
from mooring.errors import StorageError
from mooring.protocol.aligning import align_bundles
from mooring.protocol.collaboration_file import read_blocks
from mooring.protocol.common_space import read_space
from mooring.protocol.intake import collect

from .dask_study import Made, make


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3-compatible server on loopback, whose address and keys workers find in their environment."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        settings = {
            "AWS_ACCESS_KEY_ID": "analyst",
            "AWS_SECRET_ACCESS_KEY": "hidden-from-everybody",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("inbox")
        yield "s3://inbox"
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()


def matrix(made: Made, folder: Path) -> np.ndarray:
    space = read_space(folder, made.study)
    return np.concatenate([rows for _, rows, _ in read_blocks(folder, made.study, space)])


def test_workers_download_for_themselves_and_let_go(bucket: str, tmp_path: Path) -> None:
    import s3fs

    made, work = make(tmp_path), tmp_path / "work"
    (made.inbox / "site-4.bundle").write_bytes(b"no bundle")
    for path in made.inbox.iterdir():
        s3fs.S3FileSystem().put_file(str(path), f"inbox/bundles/{path.name}")
    bundles = collect(made.study, made.inbox, tmp_path / "here").bundles
    align_bundles(made.study, bundles, tmp_path / "here", certify=False)
    with connected(workers=2) as client:
        align_on_dask(client, made.study, f"{bucket}/bundles", work, rows_at_once=9, certify=False)
        left = client.run(
            lambda dask_worker: [str(path) for path in Path(dask_worker.local_directory).rglob("*.bundle")]
        )
        assert not any(left.values())
        with pytest.raises(StorageError, match="404") as told:
            align_on_dask(client, made.study, "s3://nowhere/bundles", work)
        assert "hidden" not in str(told.value)
    assert np.abs(matrix(made, work) - matrix(made, tmp_path / "here")).max() < 1e-6
    assert not (work / "received").exists()
    aside = [json.loads((place / "intake.json").read_text())["set_aside"] for place in (work, tmp_path / "here")]
    assert aside[0] == aside[1]
    assert len(aside[0]) == 1
