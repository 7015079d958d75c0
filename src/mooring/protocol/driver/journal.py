"""The record of a member's runs at one place, so that nothing is done twice, and a lock against a second run."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from mooring.atomic_io import LockHeldError, clear_partial_files, hold_lock, make_folder, write_atomically
from mooring.errors import RefusedError
from mooring.protocol.transport.addresses import is_url, local_path
from mooring.serialization import Record, read_record

_WHAT = "the record of runs"


@dataclass(frozen=True)
class Entries(Record):
    """The content of a journal."""

    agreed: str = ""
    """Digest of the study whose fingerprint a person compared."""
    taken: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """For each path at the place: SHA-256 of every version that was fetched and accepted, the newest last."""
    put: dict[str, str] = field(default_factory=dict)
    """For each path at the place: SHA-256 of the version that was put last."""
    checked: str = ""
    """SHA-256 of the table that was checked last."""
    waits: dict[str, float] = field(default_factory=dict)
    """For each `Awaited.file`: the Unix time at which a step began to wait for files that it can do without."""


class Journal:
    """The record of a member's runs at one place, in its vault."""

    def __init__(self, vault_folder: Path, address: str) -> None:
        if address and not is_url(address):  # one folder may be written in several ways
            address = str(local_path(address).resolve())
        self.folder = vault_folder / "runs" / hashlib.sha256(address.rstrip("/").encode()).hexdigest()[:16]
        self._path = self.folder / "journal.json"
        self.entries = Entries()
        self.read()

    def read(self) -> None:
        """Read what earlier runs have recorded."""
        if self._path.is_file():
            cure = "Restore the vault from a backup."
            self.entries = read_record(Entries, self._path, what=_WHAT, cure=cure)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Refuse a second run at the same time; a process that dies releases the lock."""
        make_folder(self.folder.parent.parent, mode=0o700, what="the vault")
        for folder in (self.folder.parent, self.folder):
            make_folder(folder, mode=0o700, what="the vault")
        try:
            with hold_lock(self.folder / "lock", what="the vault"):
                clear_partial_files(self.folder)
                yield
        except LockHeldError:
            raise RefusedError(
                "the run",
                reason="another run or job is using this vault for this place",
                cure="Leave that one running, or stop it first. 'mooring status' shows what it has done.",
            ) from None

    def agree(self, study_digest: str) -> None:
        """Record that a person compared the fingerprint of a study."""
        self._save(replace(self.entries, agreed=study_digest))

    def note_taken(self, path: str, digest: str) -> None:
        """Record that a version of a file was fetched and accepted."""
        versions = tuple(known for known in self.entries.taken.get(path, ()) if known != digest)
        self._save(replace(self.entries, taken={**self.entries.taken, path: (*versions, digest)}))

    def note_put(self, path: str, digest: str) -> None:
        """Record that a version of a file is about to be put."""
        if self.entries.put.get(path) != digest:
            self._save(replace(self.entries, put={**self.entries.put, path: digest}))

    def note_checked(self, digest: str) -> None:
        """Record which table was checked."""
        self._save(replace(self.entries, checked=digest))

    def measure_wait(self, file: str, *, note: bool) -> float:
        """Return for how many seconds files have been awaited; with `note`, the first call records when the wait began."""
        now = time.time()
        since = self.entries.waits.get(file, now)
        if note and (file not in self.entries.waits or since > now):  # the clock was set back
            self._save(replace(self.entries, waits={**self.entries.waits, file: now}))
        return max(0.0, now - since)

    def _save(self, entries: Entries) -> None:
        self.entries = entries
        write_atomically(self._path, entries.to_json().encode(), mode=0o600, what=_WHAT)
