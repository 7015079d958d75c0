"""Connection to a Dask cluster, at a scheduler's address or on this machine, and plain errors in place of Dask's."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from mooring.errors import InputError, MissingExtraError, StorageError

Client = Any
Future = Any
SHARED_CURE = "Put it on storage that all workers mount under the same path."
_PATIENCE = "5s"
_WAIT_FOR_WORKERS = 20.0
_MARK = ".mooring-shared-"


@dataclass(frozen=True)
class Tls:
    """Certificates for a scheduler at tls://…, as PEM files."""

    ca: Path
    """The certificate authority."""
    cert: Path
    """The certificate of this client."""
    key: Path
    """Its private key."""

    def __post_init__(self) -> None:
        for option, path in (("--tls-ca", self.ca), ("--tls-cert", self.cert), ("--tls-key", self.key)):
            if not path.is_file():
                raise InputError(option, expected="a PEM file", got="a path without a file", cure="Check the path.")


@contextmanager
def connect(*, scheduler: str | None = None, workers: int | None = None, tls: Tls | None = None) -> Iterator[Client]:
    """Yield a Dask client for a scheduler's address, such as tcp://host:8786, or for workers started on this machine.

    Workers started here have one thread each, and there is one per core by default. They use TLS with temporary
    certificates. The client, and a cluster started here, are closed at the end.
    """
    if scheduler is not None and workers is not None:
        problem = "The number of workers cannot be set for an existing scheduler."
        raise InputError(
            "workers", problem=problem, cure="Leave --workers out: all of the scheduler's workers are used."
        )
    if scheduler is None and tls is not None:
        raise InputError(
            "TLS",
            problem="Certificates are given without a scheduler.",
            cure="Pass --scheduler tls://…, or leave --tls-… out: workers started here use temporary certificates.",
        )
    if workers is not None and workers < 1:
        raise InputError("workers", expected="one or more", got=str(workers), cure="Leave it out for one per core.")
    distributed = _distributed()
    with _quiet():
        if scheduler is not None:
            with _remote(distributed, scheduler, tls) as client:
                yield client
            return
        with (
            distributed.LocalCluster(
                n_workers=workers or os.cpu_count() or 1,
                threads_per_worker=1,
                processes=True,
                host="127.0.0.1",
                protocol="tls://",  # other users of this machine can reach the ports, and whoever connects can run code
                security=distributed.Security.temporary(),
                dashboard_address="127.0.0.1:0",  # this machine only, on a free port
                scheduler_kwargs={"dashboard": False},
                silence_logs=logging.CRITICAL,
            ) as cluster,
            distributed.Client(cluster, timeout=_PATIENCE) as client,
        ):
            yield client


@contextmanager
def explain_dask_errors() -> Iterator[None]:
    """Turn Dask's errors into errors that say what to do."""
    distributed = _distributed()
    try:
        yield
    except distributed.scheduler.KilledWorker:
        raise StorageError(
            "a worker",
            reason="the same task ended several workers, most likely because they ran out of memory",
            cure="Use a smaller --rows-at-once, or workers with more memory, and run the same command again. Finished parts "
            "are kept.",
        ) from None
    except (distributed.comm.CommClosedError, asyncio.CancelledError, TimeoutError):
        raise _lost() from None
    except Exception as problem:
        if type(problem).__name__ in ("FutureCancelledError", "FuturesCancelledError", "CancelledError"):
            raise _lost() from None
        raise


def require_shared(client: Client, folder: Path) -> None:
    """Raise a `StorageError` if some worker does not see the work folder, because that worker would write elsewhere."""
    mark = folder / f"{_MARK}{secrets.token_hex(8)}"
    mark.touch()
    try:
        require_seen(client, mark, what="the work folder", cure=SHARED_CURE)
    finally:
        with suppress(OSError):
            mark.unlink()


def require_seen(client: Client, path: Path, *, what: str, cure: str) -> None:
    """Raise a `StorageError` if some worker does not see a folder or file."""
    seen = client.run(_is_there, str(path))
    if not all(seen.values()):
        count = sum(not each for each in seen.values())
        raise StorageError(what, reason=f"{count} of {len(seen)} workers cannot see it", cure=cure)


def run_throttled(
    client: Client, jobs: Iterator[tuple[Any, Callable[..., Any], tuple[Any, ...]]]
) -> Iterator[tuple[Any, Any]]:
    """Run jobs (key, function, arguments), a limited number at a time, and yield (key, result) as they finish.

    The scheduler holds the arguments of waiting jobs. The limit bounds their number, however many jobs there are.
    """
    from distributed import as_completed

    threads = sum(client.nthreads().values()) or 1
    at_once = 8 * threads + 8
    keys: dict[Future, Any] = {}
    running = as_completed([], with_results=True)
    try:
        exhausted = False
        while True:
            while not exhausted and len(keys) < at_once:
                job = next(jobs, None)
                if job is None:
                    exhausted = True
                    break
                key, function, arguments = job
                future = client.submit(function, *arguments, pure=False)
                keys[future] = key
                running.add(future)
            if not keys:
                return
            future, result = next(running)
            if future.cancelled():  # the connection to the scheduler was lost
                raise asyncio.CancelledError
            yield keys.pop(future), result
    finally:
        for future in keys:
            future.cancel()


@contextmanager
def _remote(distributed: Any, scheduler: str, tls: Tls | None) -> Iterator[Client]:
    security = None
    if tls is not None:
        security = distributed.Security(
            tls_ca_file=str(tls.ca), tls_client_cert=str(tls.cert), tls_client_key=str(tls.key), require_encryption=True
        )

    class Closing(distributed.Client):  # type: ignore[misc]
        """A client that is closed at once if it cannot start, because a leftover could block the next client."""

        def start(self, **options: Any) -> None:
            try:
                super().start(**options)
            except BaseException:
                self.close()
                raise

    try:
        client = Closing(scheduler, timeout=_PATIENCE, security=security)
    except (TimeoutError, OSError, ValueError, TypeError, RuntimeError):
        raise InputError(
            "scheduler",
            problem="No Dask scheduler answered at this address within five seconds.",
            cure="Start one with 'dask scheduler', check address and firewall (and --tls-… for tls://), or leave "
            "--scheduler out to use this machine. Nothing was changed.",
        ) from None
    with client:
        try:
            client.wait_for_workers(1, timeout=_WAIT_FOR_WORKERS)
        except TimeoutError:
            cure = "Start workers with 'dask worker ADDRESS --nthreads 1'."
            raise InputError("scheduler", problem="The scheduler has no workers.", cure=cure) from None
        require_same_version(client, "mooring")
        yield client


def require_same_version(client: Client, package: str) -> None:
    """Raise an `InputError` if a worker lacks a package or has a different version of it than this process."""
    version = _read_version(package)
    different = sorted({installed for installed in client.run(_read_version, package).values() if installed != version})
    if different:
        expected, got = f"on {package} {version}, as this process is", f"{', '.join(different)} on some of them"
        cure = f"Install the same version on every worker: pip install '{package}=={version}'."
        raise InputError("workers", expected=expected, got=got, cure=cure)


def _read_version(package: str) -> str:
    try:
        return str(import_module(package).__version__)
    except ImportError:
        return "not installed"


def _is_there(path: str) -> bool:
    return Path(path).exists()


def _lost() -> StorageError:
    return StorageError(
        "the scheduler",
        reason="the connection to it was lost",
        cure="Run the same command again when it is back. Accepted bundles and finished parts are kept.",
    )


def share_with_workers(client: Client, argument: Any) -> Future:
    """Return a future for an argument of tasks: a task returns the argument, so that each worker gets it only once."""
    return client.submit(_same, argument, pure=False)


def _same(argument: Any) -> Any:
    return argument


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        raise MissingExtraError(needed_for="--engine dask", package="dask", extra="dask") from None
    return distributed


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's logs about ending workers and schedulers; problems are reported as errors."""
    names = ("distributed", "distributed.client", "distributed.nanny", "distributed.worker", "tornado")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings(
                "ignore", message="Sending large graph"
            )  # a long roster makes the graph large, but is sent only once
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
