"""One process at a time in a folder; the system lets go of the lock when a process ends, however it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mooring.errors import StorageError


class FolderLock:
    """A lock on a folder, held from here until `release`.

    Parameters
    ----------
    folder : Path
        It gets a file called "lock", which stays: removing it could let two processes in.
    """

    def __init__(self, folder: Path) -> None:
        from mooring.atomic_io import explain_os_errors

        with explain_os_errors("the folder of results"):
            self._descriptor: int | None = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _hold(self._descriptor, folder)
        except StorageError:
            self.release()
            raise

    def release(self) -> None:
        """Let another process in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def one_run_at_a_time(folder: Path, *, make: bool) -> Iterator[None]:
    """Hold a study's folder, whatever settings a run has: all of them write the same table, figures and page.

    Parameters
    ----------
    folder : Path
        The folder itself is locked: no file is left there.
    make : bool
        Whether to make it where it is missing; otherwise there is nothing to hold.
    """
    from mooring.atomic_io import explain_os_errors, make_folder

    if make:
        make_folder(folder, what="the folder of results")
    if not folder.is_dir() or os.name == "nt":  # Windows opens no folders
        yield
        return
    with explain_os_errors("the folder of results"):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        _hold(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _hold(descriptor: int, folder: Path) -> None:
    """Lock what a descriptor stands for until it is closed; refused where another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows: no lock, and rows of two runs could stand twice
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(
            f"the results in {folder}",
            reason="another run is working on them",
            cure="Wait until it ends, end it, or name another --output.",
        ) from None
    except OSError:  # a disk that knows no locks
        return
