"""What goes wrong on a cluster: killed workers, clients and schedulers, memory, folders that are not shared."""

import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster

from mooring.engines.dask import Tls, connect
from mooring.engines.dask.cluster import explain_dask_errors, require_shared, run_throttled
from mooring.errors import InputError, StorageError
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.collaboration_matrix import list_parts
from tests.raising import raising

from .dask_study import Made, align_on_dask, aligned_locally, make, matrix
from .flare_deployment import free_ports, wait_until


def rows_at_home(made: Made, folder: Path) -> np.ndarray:
    """The matrix as the local engine writes it."""
    aligned_locally(made, folder, certify=False)
    return matrix(made.study, folder).rows


def kills_one(client: Client) -> int:
    pid = sorted(client.run(os.getpid).values())[0]
    os.kill(pid, signal.SIGKILL)
    return int(pid)


@pytest.mark.ends_workers
def test_a_worker_killed_while_parts_are_written_loses_nothing(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, n=10_000)
    expected = rows_at_home(made, tmp_path / "here")
    killed: list[int] = []

    def kills(done: float, total: float) -> None:
        if not killed and done < total:
            killed.append(kills_one(client))

    work = tmp_path / "work"
    align_on_dask(client, made.study, made.inbox, work, rows_at_once=50, certify=False, writing=kills)
    assert killed
    assert np.abs(matrix(made.study, work).rows - expected).max() < 1e-6
    assert not list((work / "collaboration").glob(".*"))


@pytest.mark.ends_workers
def test_anchors_that_were_with_a_killed_worker_are_read_again(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, p=6)
    kept = align_on_dask(client, made.study, made.inbox, tmp_path / "kept", reduce_over_workers=True)
    work = tmp_path / "work"

    def kills(_: object) -> None:
        kills_one(client)

    align_on_dask(client, made.study, made.inbox, work, reduce_over_workers=True, on_intake=kills)
    assert np.array_equal(read_space(work, made.study).orthogonals, kept.space.orthogonals)


@pytest.mark.ends_workers
def test_work_that_ends_every_worker_is_told_with_its_cure(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = client.cluster.scheduler
    assert scheduler.allowed_failures == 3  # and the fourth is told
    monkeypatch.setattr(scheduler, "allowed_failures", 1)  # no worker is ended that has only just begun
    with raising(StorageError, "a worker", cure="--rows-at-once"), explain_dask_errors():
        list(run_throttled(client, iter([("work", os._exit, (1,))])))


def test_workers_that_do_not_see_a_folder_are_told(tmp_path: Path) -> None:
    class Elsewhere:
        def run(self, function: Any, path: str) -> dict[str, bool]:
            return {"one": True, "two": False}

    with raising(StorageError, "the work folder", reason="1 of 2 workers"):
        require_shared(Elsewhere(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_memory_is_bounded_by_the_block_and_not_by_the_bundle(client: Client, tmp_path: Path) -> None:
    made = make(tmp_path, p=2, n=1_200_000, h=20, r=24, whom=[0])  # 96 MB
    warm = make(tmp_path / "warm", p=2, h=20, r=24)
    shutil.copy(warm.inbox / "site-1.bundle", made.inbox)
    align_on_dask(client, warm.study, warm.inbox, tmp_path / "warm-work", certify=False)
    workers = [psutil.Process(pid) for pid in client.run(os.getpid).values()]
    before = {worker.pid: worker.memory_info().rss for worker in workers}
    peak, stop = dict(before), threading.Event()

    def watches() -> None:
        while not stop.wait(0.01):
            for worker in workers:
                peak[worker.pid] = max(peak[worker.pid], worker.memory_info().rss)

    watcher = threading.Thread(target=watches)
    watcher.start()
    try:
        align_on_dask(client, made.study, made.inbox, tmp_path / "work", rows_at_once=5_000, certify=False)
    finally:
        stop.set()
        watcher.join()
    growth = max(peak[pid] - before[pid] for pid in before)
    assert growth < 64 * 2**20  # verification reads 16 MB at a time; a bundle would be 96 MB, and in float64 192
    assert sum(len(paths) for paths in list_parts(tmp_path / "work").values()) == 16


# schedulers


def test_a_scheduler_that_is_not_there_is_told_within_seconds(tmp_path: Path) -> None:
    begin = time.monotonic()
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    with raising(InputError, "scheduler", problem="No Dask scheduler answered"), connect(scheduler=address):
        raise AssertionError
    assert time.monotonic() - begin < 15


@pytest.mark.parametrize("address", ["nonsense://x", "127.0.0.1:notaport", ""])
def test_an_address_that_is_none_is_told(address: str) -> None:
    before = loops()
    with raising(InputError, "scheduler"), connect(scheduler=address):
        raise AssertionError
    # What could not connect is closed: the garbage collector would do that from any thread, and wait for itself.
    assert loops() <= before


def loops() -> int:
    """How many threads run an event loop of Dask's."""
    return sum(thread.name == "IO loop" for thread in threading.enumerate())


def test_options_that_contradict_each_other_are_told(tmp_path: Path) -> None:
    with (
        raising(InputError, "workers", problem="existing scheduler"),
        connect(scheduler="tcp://127.0.0.1:1", workers=2),
    ):
        raise AssertionError
    with raising(InputError, "workers", expected="one or more"), connect(workers=0):
        raise AssertionError
    for name in ("ca", "cert", "key"):
        (tmp_path / name).touch()
    tls = Tls(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")
    with raising(InputError, "TLS", problem="without a scheduler"), connect(workers=1, tls=tls):
        raise AssertionError
    (tmp_path / "cert").unlink()
    with raising(InputError, "--tls-cert"):
        Tls(tmp_path / "ca", tmp_path / "cert", tmp_path / "key")


def test_workers_started_here_take_nobody_else() -> None:
    with connect(workers=2) as client:
        address = client.scheduler.address
        assert client.submit(abs, -1).result() == 1
        for each in (address, *client.nthreads()):
            assert each.startswith("tls://127.0.0.1:")
        with raising(InputError, "scheduler"), connect(scheduler=address):
            raise AssertionError
        with raising(InputError, "scheduler"), connect(scheduler=address.replace("tls", "tcp")):
            raise AssertionError


def test_a_scheduler_behind_tls_takes_those_with_a_certificate_only(tmp_path: Path) -> None:
    from distributed.security import Security

    drawn = Security.temporary()
    files = {name: tmp_path / f"{name}.pem" for name in ("ca", "cert", "key")}
    for name, text in zip(files, (drawn.tls_ca_file, drawn.tls_client_cert, drawn.tls_client_key), strict=True):
        files[name].write_text(text)
    with LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0", security=drawn
    ) as cluster:
        address = cluster.scheduler_address
        assert address.startswith("tls://")
        with connect(scheduler=address, tls=Tls(**files)) as client:
            assert client.submit(abs, -1).result() == 1
        with raising(InputError, "scheduler"), connect(scheduler=address):
            raise AssertionError
        others = Security.temporary()
        files["cert"].write_text(others.tls_client_cert)
        files["key"].write_text(others.tls_client_key)
        with raising(InputError, "scheduler"), connect(scheduler=address, tls=Tls(**files)):
            raise AssertionError


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A scheduler and a worker of their own, as an administrator starts them."""
    address = f"tcp://127.0.0.1:{(port := free_ports(1)[0])}"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    dask = [sys.executable, "-m", "dask"]
    scheduler = subprocess.Popen(
        [*dask, "scheduler", "--host", "127.0.0.1", "--port", str(port), "--no-dashboard"], **quiet
    )
    worker = subprocess.Popen(
        [*dask, "worker", address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path)], **quiet
    )
    try:
        yield address, scheduler
    finally:
        for process in (worker, scheduler):
            process.terminate()
        for process in (worker, scheduler):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def test_a_scheduler_that_is_lost_midway_is_told_and_a_later_run_goes_on(
    client: Client, outside: tuple[str, subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    address, scheduler = outside
    made, work = make(tmp_path, n=10_000), tmp_path / "work"

    def answers() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", int(address.rpartition(":")[2]))) == 0

    wait_until(answers, 60, "a scheduler that answers")

    def kills(done: float, total: float) -> None:
        assert not logging.getLogger("distributed.client").isEnabledFor(logging.ERROR)  # it would log a traceback
        scheduler.kill()

    with raising(StorageError, "the scheduler", reason="lost"), connect(scheduler=address) as outsiders:
        align_on_dask(outsiders, made.study, made.inbox, work, rows_at_once=50, certify=False, writing=kills)
    alignment = align_on_dask(client, made.study, made.inbox, work, rows_at_once=50, certify=False)
    assert alignment.parts_kept > 0
    assert np.abs(matrix(made.study, work).rows - rows_at_home(made, tmp_path / "here")).max() < 1e-6


def test_a_run_whose_client_was_killed_is_resumed(client: Client, tmp_path: Path) -> None:
    made, work = make(tmp_path, n=15_000), tmp_path / "work"
    made.study.write(tmp_path / "study.toml")
    command = [sys.executable, "-m", "mooring", "align", "--study", str(tmp_path / "study.toml")]
    command += ["--bundles", str(made.inbox), "--folder", str(work), "--no-certify", "--format", "json"]
    command += ["--engine", "dask", "--workers", "1", "--rows-at-once", "50"]
    with (tmp_path / "log").open("wb") as log:
        first = subprocess.Popen(command, stdout=log, stderr=log)
    children: list[psutil.Process] = []
    while first.poll() is None and not list_parts(work):
        time.sleep(0.01)
    assert first.poll() is None, (tmp_path / "log").read_text()
    children = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    assert not psutil.wait_procs(children, timeout=20)[1]  # workers end with their client
    there = sum(len(paths) for paths in list_parts(work).values())
    assert there > 0
    with pytest.raises(StorageError):
        read_space(work, made.study)
    alignment = align_on_dask(client, made.study, made.inbox, work, rows_at_once=50, certify=False)
    assert alignment.parts_kept == there
    assert alignment.parts_kept < sum(len(paths) for paths in list_parts(work).values())
    assert np.abs(matrix(made.study, work).rows - rows_at_home(made, tmp_path / "here")).max() < 1e-6
