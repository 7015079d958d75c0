"""What tests of other engines and of stores share: one cluster and one S3-compatible server for all of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from .object_store import moto

PRELOADED = ["distributed", "mooring.engines.dask.learners", "mooring.engines.dask.xgboost_training"]
METHOD = "distributed.worker.multiprocessing-method"
# Idle, a cluster took a tenth of a core to watch itself.
QUIET = {"distributed.worker.profile.enabled": False, "distributed.admin.tick.interval": "1s"}


@contextmanager
def two_workers() -> Iterator[Any]:
    """A client of two workers, each a process with one thread, forked from one that has loaded what they need."""
    dask, distributed = (pytest.importorskip(name) for name in ("dask", "distributed"))
    with dask.config.set(QUIET | {METHOD: "forkserver"}):
        distributed.utils.get_mp_context().set_forkserver_preload(PRELOADED)
        with (
            distributed.LocalCluster(
                n_workers=2, threads_per_worker=1, processes=True, host="127.0.0.1", dashboard_address="127.0.0.1:0"
            ) as workers,
            distributed.Client(workers) as client,
        ):
            yield client


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """The cluster that tests share."""
    with two_workers() as client:
        yield client


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A client of that cluster; of one of its own for a test that ends workers, which Dask does not always bring back."""
    if request.node.get_closest_marker("ends_workers"):
        with two_workers() as client:
            yield client
    else:
        yield request.getfixturevalue("cluster")


@pytest.fixture(scope="session")
def moto_port() -> Iterator[int]:
    """The port of the S3-compatible server."""
    pytest.importorskip("moto")
    with moto() as port:
        yield port
