"""One process at a time in a folder; the system lets go of the lock when a process ends, however it ends."""

from __future__ import annotations

import os
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
        from mooring.protocol.durable import explained

        with explained("the folder of results"):
            self._descriptor: int | None = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            import fcntl
        except ImportError:  # Windows: no lock, and rows of two runs could stand twice
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.release()
            raise StorageError(
                f"the results in {folder}",
                reason="another run is working on them",
                cure="Wait until it ends, end it, or name another --output.",
            ) from None
        except OSError:  # a disk that knows no locks
            return

    def release(self) -> None:
        """Let another process in."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
