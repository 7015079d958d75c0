"""Training of boosted trees on several workers, with one task on each and XGBoost's own connections between them.

XGBoost's connections do not survive the loss of a worker, so a training that loses a worker starts again on those that are
left. XGBoost's connections have neither encryption nor a password, so they are refused on a cluster that uses encryption.

For its rows, a worker holds two indices of XGBoost, each with one byte per number, and a few further numbers per row.
Numbers are binned at the same limits on every worker (`mooring.learners.boosted_trees`), so that trees do not depend on
which worker has which rows.
"""

from __future__ import annotations

import asyncio
import io
import ipaddress
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from mooring.engines.dask.block_tasks import Piece, training_blocks
from mooring.engines.dask.cluster import Client, Future, require_same_version
from mooring.errors import InputError, StorageError
from mooring.learners.boosted_trees import BoostingTask, Singles, require_xgboost, train_booster
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

_TRIES = 3
_BEGIN, _OTHERS, _SETTLE, _RETURN = 120, 1800, 30.0, 60.0  # seconds
_LOOK, _AGAIN = 0.1, 5.0
_TURN, _FIRST = "mooring-boosted-trees", 10


_JOINED: list[str] = []


class _LostError(Exception):
    """A worker was lost during a training, or could not join the others."""


@dataclass(frozen=True, eq=False)
class Boosting:
    """The arguments of a training on workers, besides the parts and the cuts at which numbers are binned."""

    study: Future
    task: Future
    """The study and the `BoostingTask`, each sent to a worker once."""
    settings: Mapping[str, Any]
    """Parameters of XGBoost."""
    rounds: int


def require_boosting_cluster(client: Client) -> None:
    """Refuse, before any work, a cluster that cannot train boosted trees or should not."""
    require_xgboost()
    require_same_version(client, "xgboost")
    _require_open(str(client.scheduler.address), list(client.nthreads()))


def _require_open(scheduler: str, workers: Sequence[str]) -> None:
    """Refuse unencrypted connections on a cluster that uses encryption, unless all workers are on this machine."""
    if not scheduler.startswith("tls://") or len(workers) == 1 or all(map(is_here, (scheduler, *workers))):
        return
    raise InputError(
        "learner",
        expected="a learner other than xgboost on several workers at tls://",
        got="xgboost, whose own connections between workers are not encrypted",
        cure="Choose 'random-fourier' or 'linear', use one worker, or start the cluster at tcp:// on a network of its own.",
    )


def assign_shares(pieces: Sequence[Piece], n_shares: int) -> list[list[Piece]]:
    """Split parts into non-empty shares of similar size: from the largest part on, each joins the smallest share."""
    shares: list[list[Piece]] = [[] for _ in range(min(n_shares, len(pieces)))]
    sizes = [0] * len(shares)
    for size, piece in sorted(((each.path.stat().st_size, each) for each in pieces), key=lambda pair: -pair[0]):
        least = sizes.index(min(sizes))
        shares[least].append(piece)
        sizes[least] += size
    return shares


def train_distributed(client: Client, boosting: Boosting, pieces: Sequence[Piece], cuts: Singles) -> bytes:
    """Return the model of these parts, with numbers binned at `cuts`; start again if workers are lost.

    The model is empty if there are no parts.
    """
    if not pieces:
        return b""  # with one participant, no other rows are left to learn from
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
        reason=f"it was started {_TRIES} times, and each time a worker was lost or could not reach the others",
        cure="Most likely memory ran out, or a firewall blocks connections between workers, or from them to this machine. "
        "Provide more memory or more workers, or open the firewall, and run the same command again.",
    ) from problem


@contextmanager
def _turn(client: Client) -> Iterator[None]:
    """Keep other trainings of boosted trees off the cluster, because two could wait for each other's workers for ever."""
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
        # If the process is killed or interrupted, the scheduler takes the turn back by itself.
        client.loop.add_callback(turn.refresh_callback.stop)
        if held:
            turn.release()


def _once(client: Client, boosting: Boosting, shares: Mapping[str, list[Piece]], cuts: Singles) -> bytes:
    """Train once on these workers."""
    arguments_of_loading = (boosting.study, boosting.task, cuts)
    loading = {
        worker: _on(client, worker, load_share, *arguments_of_loading, pieces) for worker, pieces in shares.items()
    }
    training: dict[str, Future] = {}
    try:
        _finish(client, loading)
        with _meeting_place(client, list(shares)) as together:
            for (worker, matrix), arguments in zip(loading.items(), together, strict=True):
                training[worker] = _on(
                    client, worker, train_share, matrix, boosting.settings, boosting.rounds, arguments
                )
            try:
                _finish(client, training, None if together[0] is None else tracker_address(together[0]))
            except Exception:
                _let_go(client, training)
                raise
        try:
            models: list[bytes | None] = [future.result(timeout=_RETURN) for future in training.values()]
        except TimeoutError:  # the model was lost with its worker
            raise _LostError from None
        return next(model for model in models if model is not None)
    finally:
        for future in (*training.values(), *loading.values()):
            future.cancel()


def _finish(client: Client, running: Mapping[str, Future], meeting: str | None = None) -> None:
    """Wait for a task on each worker; raise soon if a worker is lost or cannot join the others."""
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
    """Raise the error of a task; an error of XGBoost becomes `_LostError`, because it means that another worker was lost."""
    if type(problem).__name__ in ("XGBoostError", "KilledWorker"):
        raise _LostError from problem
    raise problem


def _let_go(client: Client, running: Mapping[str, Future]) -> None:
    """Give the other workers time to finish, and restart those that hang in XGBoost."""
    until = time.monotonic() + _SETTLE
    left = dict(running)
    while left and time.monotonic() < until:
        there = _there(client)
        left = {worker: future for worker, future in left.items() if worker in there and not future.done()}
        time.sleep(_LOOK)
    if left:
        with suppress(ValueError):  # workers that cannot be restarted end after XGBoost's timeout
            client.restart_workers(list(left), timeout=_RETURN, raise_for_error=False)


def _workers(client: Client) -> list[str]:
    """Return the addresses of available workers; those that stay busy with other tasks are left out."""
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
            reason=f"no worker was available within {_BEGIN} seconds",
            cure="Start workers with 'dask worker ADDRESS --nthreads 1', or wait until other tasks are done, and run the "
            "same command again.",
        )
    return free


def _there(client: Client) -> set[str]:
    try:
        return set(client.nthreads())
    except OSError:  # the scheduler went away
        raise asyncio.CancelledError from None


def _on(client: Client, worker: str, function: Any, *arguments: Any) -> Future:
    """Submit a task to this worker as its next one, because the other workers wait for it."""
    return client.submit(function, *arguments, workers=[worker], allow_other_workers=False, pure=False, priority=_FIRST)


@contextmanager
def _meeting_place(client: Client, workers: Sequence[str]) -> Iterator[list[dict[str, Any] | None]]:
    """Run XGBoost's tracker on this machine, and yield each worker's arguments to join it; None for a single worker."""
    if len(workers) == 1:
        yield [None]
        return
    from xgboost.core import XGBoostError
    from xgboost.tracker import RabitTracker

    scheduler = str(client.scheduler.address)
    _require_open(scheduler, workers)
    address = own_address((scheduler, *workers))
    tracker = RabitTracker(n_workers=len(workers), host_ip=address, sortby="task", timeout=_BEGIN)
    tracker.start()
    try:
        common = {**tracker.worker_args(), "dmlc_timeout": _OTHERS, "dmlc_retry": 3}
        yield [{**common, "dmlc_task_id": f"{k:06d}"} for k in range(len(workers))]
    finally:
        with suppress(XGBoostError):  # it may be stopped before all workers have left
            tracker.free()


def own_address(others: Sequence[str]) -> str:
    """Return the address at which all others reach this machine: a loopback address if all of them are on this machine."""
    addresses = [address for other in others if (address := _local_address_to(other))]
    outside = (address for address in addresses if not _is_loopback(address))
    return next(outside, addresses[0] if addresses else "127.0.0.1")


def is_here(address: str) -> bool:
    """Whether a scheduler or worker can only be on this machine."""
    local = _local_address_to(address)
    return local is not None and _is_loopback(local)


def _local_address_to(address: str) -> str | None:
    """Return this machine's address in connections to another; None if the other cannot be reached."""
    from distributed.comm import get_address_host

    if address.startswith("inproc://"):
        return "127.0.0.1"
    try:
        host = get_address_host(address)
        family = socket.getaddrinfo(host, 9, type=socket.SOCK_DGRAM)[0][0]
        with socket.socket(family, socket.SOCK_DGRAM) as connection:
            connection.connect((host, 9))  # sends nothing
            return str(connection.getsockname()[0])
    except OSError:  # a name or a network that only other machines know
        return None


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address).is_loopback


# The following functions run on workers.


def load_share(study: Study, task: BoostingTask, cuts: Singles, pieces: Sequence[Piece]) -> Any:
    """Return a worker's share of the parts as XGBoost's matrix, read one block at a time."""

    def blocks() -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
        for piece in pieces:
            yield from training_blocks(study, piece)

    return task.load(cuts, blocks)


def train_share(
    matrix: Any, settings: Mapping[str, Any], rounds: int, together: Mapping[str, Any] | None
) -> bytes | None:
    """Train on this worker's share, together with the other workers; one worker returns the model, the others None."""
    from xgboost import collective

    # XGBoost prints a line when it joins the other workers, whatever its verbosity.
    with (
        redirect_stdout(io.StringIO()),
        nullcontext() if together is None else collective.CommunicatorContext(**together),
    ):
        _JOINED[:] = [] if together is None else [tracker_address(together)]
        booster = train_booster(matrix, settings, rounds)
        first = together is None or collective.get_rank() == 0
    return bytes(booster.save_raw("ubj")) if first else None


def tracker_address(together: Mapping[str, Any]) -> str:
    """Return the address of the tracker, which identifies one joint training of workers."""
    return f"{together['dmlc_tracker_uri']}:{together['dmlc_tracker_port']}"


def has_joined(meeting: str) -> bool:
    """Whether this worker has joined the training whose tracker has this address."""
    return meeting in _JOINED
