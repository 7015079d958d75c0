"""One process at a time in a folder; the system releases the lock when a process ends, however it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from mooring import StorageError
from mooring.atomic_io import explain_os_errors, make_folder


def lock_folder(folder: Path) -> FileLock:
    """Lock a folder until `release`; its file "lock" stays, since removing it could let two processes in.

    Raises
    ------
    StorageError
        Where another process has the lock.
    """
    lock = FileLock(folder / "lock", thread_local=False)
    with explain_os_errors("the folder of results"):
        try:
            lock.acquire(blocking=False)
        except Timeout:
            raise StorageError(
                f"the results in {folder}",
                reason="another run is working on them",
                cure="Wait until it ends, end it, or name another --output.",
            ) from None
    return lock


@contextmanager
def one_run_at_a_time(folder: Path, *, make: bool) -> Iterator[None]:
    """Lock a study's folder, whatever settings a run has: all of them write the same table, figures and page.

    Parameters
    ----------
    folder : Path
        Its folder "store" holds the lock: a folder of results without one, such as a published one, stays as it is.
    make : bool
        Whether to make both where they are missing; otherwise there is nothing to lock.
    """
    if make:
        make_folder(folder / "store", what="the folder of results")
    if not (folder / "store").is_dir():
        yield
        return
    lock = lock_folder(folder / "store")
    try:
        yield
    finally:
        lock.release()
