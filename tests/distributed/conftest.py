"""What tests of other engines and of stores share: one cluster and one S3-compatible server for all of them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from .object_store import moto


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """A client of two workers, each a process with one thread."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
        ) as workers,
        distributed.Client(workers) as client,
    ):
        yield client


@pytest.fixture
def client(cluster: Any) -> Any:
    """The same client, with both workers there: tests of faults end some, which are started again."""
    for _ in range(24):
        cluster.cluster.scale(2)  # one that ended before it had quite begun is otherwise given up
        with suppress(TimeoutError):
            cluster.wait_for_workers(2, timeout=5)
            return cluster
    raise AssertionError("workers that ended did not come back within two minutes")


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    """The port of the S3-compatible server."""
    pytest.importorskip("moto")
    with moto() as port:
        yield port
