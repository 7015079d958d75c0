"""One training over several workers: a task on each, XGBoost's own connections between them, and what becomes of both.

XGBoost's connections cannot go on without one of their ends, so a training that loses a worker is begun again on those that
are there. They have neither encryption nor a password: over a network that was to be encrypted they are not used.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from mooring.engines.dask.block_tasks import Piece
from mooring.engines.dask.cluster import Client, Future, require_same_version
from mooring.engines.dask.xgboost_tasks import has_joined, load_share, tracker_address, train_share
from mooring.errors import InputError, StorageError
from mooring.learners.boosted_trees import Singles, require_xgboost

_TRIES = 3
_BEGIN, _OTHERS, _SETTLE, _RETURN = 120, 1800, 30.0, 60.0  # seconds
_LOOK, _AGAIN = 0.1, 5.0
_TURN, _FIRST = "mooring-boosted-trees", 10


class _LostError(Exception):
    """A worker went away in the middle."""


@dataclass(frozen=True, eq=False)
class Boosting:
    """A training over workers: what it is given, besides parts and cuts."""

    study: Future
    task: Future
    """The study and the `BoostingTask`, each sent to a worker once."""
    settings: Mapping[str, Any]
    """XGBoost's own."""
    rounds: int


def require_boosting_cluster(client: Client) -> None:
    """Refuse, before any work, a cluster that cannot train boosted trees or should not."""
    require_xgboost()
    require_same_version(client, "xgboost")
    _require_open(str(client.scheduler.address), list(client.nthreads()))


def _require_open(scheduler: str, workers: Sequence[str]) -> None:
    """Where encryption was asked for, refuse connections that have none; on one machine they do not leave it."""
    if not scheduler.startswith("tls://") or len(workers) == 1 or all(map(is_here, (scheduler, *workers))):
        return
    raise InputError(
        "learner",
        expected="another than xgboost on several workers behind tls://",
        got="xgboost, whose own connections between workers are not encrypted",
        cure="Choose 'random-fourier' or 'linear', use one worker, or start the cluster at tcp:// on a network of its own.",
    )


def assign_shares(pieces: Sequence[Piece], n_shares: int) -> list[list[Piece]]:
    """About as much for everybody, the largest first to whoever has least; nobody goes without."""
    shares: list[list[Piece]] = [[] for _ in range(min(n_shares, len(pieces)))]
    sizes = [0] * len(shares)
    for size, piece in sorted(((each.path.stat().st_size, each) for each in pieces), key=lambda pair: -pair[0]):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += size
    return shares


def train_distributed(client: Client, boosting: Boosting, pieces: Sequence[Piece], cuts: Singles) -> bytes:
    """The model of these parts, with numbers cut as `cuts` say; begun again where workers are lost.

    Parameters
    ----------
    client : Client
    boosting : Boosting
        What is trained.
    pieces : sequence of Piece
        Parts to learn from.
    cuts : array
        Of each column, into bins.
    """
    if not pieces:
        return b""  # of one participant, nobody is left to learn from
    problem: Exception | None = None
    for _ in range(_TRIES):
        with _turn(client):
            workers = _workers(client)
            try:
                return _once(
                    client, boosting, dict(zip(workers, assign_shares(pieces, len(workers)), strict=False)), cuts
                )
            except _LostError as lost:
                problem = lost
    raise StorageError(
        "the training",
        reason=f"it was begun {_TRIES} times, and each time a worker was lost or could not reach another",
        cure="Most likely memory was used up, or a firewall is between workers, or between them and this machine: give more "
        "memory or more workers, and run the same command again.",
    ) from problem


@contextmanager
def _turn(client: Client) -> Iterator[None]:
    """Keep other trainings of boosted trees off the cluster: each could wait for ever for workers that the other holds."""
    from distributed import Semaphore

    turn, held = Semaphore(name=_TURN, scheduler_rpc=client.scheduler, loop=client.loop), False
    try:
        while not held:
            try:
                held = turn.acquire(timeout=_AGAIN)
            except OSError:  # the scheduler went away
                raise asyncio.CancelledError from None
        yield
    finally:
        # A turn that is not given back, of a process that was killed or interrupted, the scheduler takes back by itself.
        client.loop.add_callback(turn.refresh_callback.stop)
        if held:
            turn.release()


def _once(client: Client, boosting: Boosting, shares: Mapping[str, list[Piece]], cuts: Singles) -> bytes:
    """One try, over these workers."""
    given = (boosting.study, boosting.task, cuts)
    loading = {worker: _on(client, worker, load_share, *given, pieces) for worker, pieces in shares.items()}
    training: dict[str, Future] = {}
    try:
        _finish(client, loading)
        with _meeting_place(client, list(shares)) as together:
            for (worker, matrix), own in zip(loading.items(), together, strict=True):
                training[worker] = _on(client, worker, train_share, matrix, boosting.settings, boosting.rounds, own)
            try:
                _finish(client, training, None if together[0] is None else tracker_address(together[0]))
            except Exception:
                _let_go(client, training)
                raise
        try:
            found: list[bytes | None] = [future.result(timeout=_RETURN) for future in training.values()]
        except TimeoutError:  # it went away with its worker
            raise _LostError from None
        return next(raw for raw in found if raw is not None)
    finally:
        for future in (*training.values(), *loading.values()):
            future.cancel()


def _finish(client: Client, running: Mapping[str, Future], meeting: str | None = None) -> None:
    """Wait for a task on each worker; a worker that is gone, or cannot join the others, is told soon."""
    from distributed import wait

    until = time.monotonic() + 2 * _BEGIN
    while True:
        if any(future.cancelled() for future in running.values()):  # the scheduler went away
            raise asyncio.CancelledError
        if not set(running) <= _there(client):
            raise _LostError
        for future in running.values():
            if future.status == "error":
                _explain(future.exception())
        waiting = [future for future in running.values() if not future.done()]
        if not waiting:
            return
        if meeting and time.monotonic() > until:
            late = [worker for worker, future in running.items() if not future.done()]
            if sum(client.run(has_joined, meeting, workers=late, on_error="ignore").values()) < len(late):
                raise _LostError
            meeting = None
        with suppress(TimeoutError):
            wait(waiting, timeout=_LOOK, return_when="FIRST_COMPLETED")


def _explain(problem: BaseException) -> None:
    """XGBoost's errors mean that another worker went away; others mean what they say."""
    if type(problem).__name__ in ("XGBoostError", "KilledWorker"):
        raise _LostError from problem
    raise problem


def _let_go(client: Client, running: Mapping[str, Future]) -> None:
    """Give the other workers time to end; those that hang in XGBoost are started again."""
    until = time.monotonic() + _SETTLE
    left = dict(running)
    while left and time.monotonic() < until:
        there = _there(client)
        left = {worker: future for worker, future in left.items() if worker in there and not future.done()}
        time.sleep(_LOOK)
    if left:
        with suppress(ValueError):  # workers that nobody starts again: they end when XGBoost's patience does
            client.restart_workers(list(left), timeout=_RETURN, raise_for_error=False)


def _workers(client: Client) -> list[str]:
    """Addresses of the workers that are there and free; those that are busy with something else for long are left out."""
    until = time.monotonic() + _BEGIN
    asked: dict[str, Future] = {}
    while time.monotonic() < until:
        there = sorted(_there(client))
        asked |= {worker: _on(client, worker, bool) for worker in there if worker not in asked}
        if there and all(asked[worker].done() for worker in there):
            break
        time.sleep(_LOOK)
    free = [worker for worker in there if asked[worker].status == "finished"]
    for future in asked.values():
        future.cancel()
    if not free:
        raise StorageError(
            "the training",
            reason=f"no worker was there and free within {_BEGIN} seconds",
            cure="Start workers with 'dask worker ADDRESS --nthreads 1', or wait until others' work is done, and run the "
            "same command again.",
        )
    return free


def _there(client: Client) -> set[str]:
    try:
        return set(client.nthreads())
    except OSError:  # the scheduler went away
        raise asyncio.CancelledError from None


def _on(client: Client, worker: str, function: Any, *given: Any) -> Future:
    """A task for this worker, the next that it takes up: until all have, the others wait for it."""
    return client.submit(function, *given, workers=[worker], allow_other_workers=False, pure=False, priority=_FIRST)


@contextmanager
def _meeting_place(client: Client, workers: Sequence[str]) -> Iterator[list[dict[str, Any] | None]]:
    """Where workers find each other, on this machine while the block runs; what each is told. One worker needs none."""
    if len(workers) == 1:
        yield [None]
        return
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    scheduler = str(client.scheduler.address)
    _require_open(scheduler, workers)
    own = own_address((scheduler, *workers))
    tracker = RabitTracker(n_workers=len(workers), host_ip=own, sortby="task", timeout=_BEGIN)
    tracker.start()
    try:
        common = {**tracker.worker_args(), "dmlc_timeout": _OTHERS, "dmlc_retry": 3}
        yield [{**common, "dmlc_task_id": f"{k:06d}"} for k in range(len(workers))]
    finally:
        with suppress(XGBoostError):  # that it was stopped before all had said goodbye
            tracker.free()


def own_address(others: Sequence[str]) -> str:
    """The address of this machine that all of these reach it at: loopback where they are all here."""
    found = [way for each in others if (way := _way_to(each))]
    return next((way for way in found if not _is_loopback(way)), found[0] if found else "127.0.0.1")


def is_here(address: str) -> bool:
    """Whether a scheduler or worker can only be on this machine."""
    way = _way_to(address)
    return way is not None and _is_loopback(way)


def _way_to(address: str) -> str | None:
    """The address of this machine on the way to another; None where there is no way from here."""
    from distributed.comm import get_address_host

    if address.startswith("inproc://"):
        return "127.0.0.1"
    try:
        host = get_address_host(address)
        family = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((host, 9))  # sends nothing
            return str(way.getsockname()[0])
    except OSError:  # a name or a network that only the others know
        return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback
