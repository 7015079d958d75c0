"""The ledger: which rows this vault has uploaded, in which study, so that no row goes out twice with fresh noise.

The same rows under fresh noise, even under a fresh map, let an analyst average the noise away: 64 uploads leave an eighth of
it. So every upload is written down, by keyed fingerprints of its rows, before its bundle is; and a study gets one upload.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import explain_os_errors, open_atomically
from mooring.errors import RefusedError, StorageError
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.storage.fingerprints import Words, find_known_rows, hash_rows

_MOST_SHARED = 0.01
_SCHEMA = """
CREATE TABLE IF NOT EXISTS uploads (
    study TEXT PRIMARY KEY,          -- digest of the study
    name TEXT NOT NULL,              -- and its name
    rows_digest TEXT NOT NULL,       -- keyed, whatever the order of the rows
    n_rows INTEGER NOT NULL,
    column_tags TEXT NOT NULL,       -- keyed, one a column
    bundle TEXT                      -- SHA-256 of the bundle once there is one
)
"""


@dataclass(frozen=True)
class Entry:
    """One upload, or the intent to make it."""

    study: str
    name: str
    rows_digest: str
    n_rows: int
    column_tags: tuple[str, ...]
    bundle: str | None


@dataclass(frozen=True, eq=False)
class RowSummary:
    """What the ledger is told of the rows to be shared.

    Attributes
    ----------
    digest : str
        Keyed, whatever the order of the rows.
    prints : array of uint64
        Keyed fingerprints of the rows, sorted.
    column_tags : tuple of str
    """

    digest: str
    prints: Words
    column_tags: tuple[str, ...]


class Ledger:
    """The ledger of one vault: SQLite with full synchronisation, and a file of fingerprints an upload."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.sqlite"
        self._prints = folder

    def entry(self, study_digest: str) -> Entry | None:
        """What is written down for a study."""
        with self._connect() as connection:
            row = connection.execute("SELECT * FROM uploads WHERE study = ?", (study_digest,)).fetchone()
        return None if row is None else _entry(row)

    def entries(self) -> tuple[Entry, ...]:
        """Everything that is written down."""
        with self._connect() as connection:
            return tuple(_entry(row) for row in connection.execute("SELECT * FROM uploads ORDER BY name, study"))

    def record_intent(self, study_digest: str, name: str, rows: RowSummary, *, owner: str = "its owner") -> Entry:
        """Write down that these rows are about to be uploaded in this study, or refuse.

        The same rows in the same study are no second upload: the entry that is there is returned. An intent whose bundle was
        never finished gives way to another.

        Parameters
        ----------
        study_digest, name : str
        rows : RowSummary
        owner : str
            Of the vault, in words.
        """
        found = self.entry(study_digest)
        if found is not None and found.rows_digest == rows.digest:
            return found
        if found is not None and found.bundle is not None:
            raise RefusedError(
                "a second upload",
                reason=f"from this vault, {owner}'s, other rows have been uploaded in this study, and rows cannot be added "
                "or changed later",
                cure=f"If you are not {owner}, give your own --vault. If you are, run the command with the very rows of the "
                "first upload to have its bundle again; new rows need a new study, without the old ones.",
            )
        self._require_unseen(study_digest, rows)
        with open_atomically(self._file(study_digest), mode=0o600, what="the ledger") as file:
            prints = np.ascontiguousarray(rows.prints, "<u8").data.cast("B")
            file.write(prints)
            file.write(hashlib.sha256(prints).digest())  # one wrong bit, and a row would not be known again
        entry = Entry(study_digest, name, rows.digest, int(rows.prints.size), rows.column_tags, None)
        with self._connect() as connection, connection:
            connection.execute(
                "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, NULL)",
                (study_digest, name, rows.digest, entry.n_rows, " ".join(rows.column_tags)),
            )
        return entry

    def record_bundle(self, study_digest: str, bundle_digest: str) -> None:
        """Write down that the bundle is finished; from here on it may have left."""
        with self._connect() as connection, connection:
            connection.execute("UPDATE uploads SET bundle = ? WHERE study = ?", (bundle_digest, study_digest))

    def _require_unseen(self, study_digest: str, rows: RowSummary) -> None:
        known = np.zeros(rows.prints.size, dtype=np.bool_)
        for entry in self.entries():
            if entry.study == study_digest or entry.bundle is None:
                continue
            ours, theirs = set(rows.column_tags), set(entry.column_tags)
            if entry.n_rows == rows.prints.size and 2 * len(ours & theirs) > min(len(ours), len(theirs)):
                raise _second_upload("these rows", f", in the study {entry.name!r}")
            shared = find_known_rows(rows.prints, self._read_prints(entry))
            if (count := int(shared.sum())) > _MOST_SHARED * min(rows.prints.size, entry.n_rows):
                raise _second_upload(f"{count} of these rows", f", in the study {entry.name!r}")
            known |= shared
        if (count := int(known.sum())) > _MOST_SHARED * rows.prints.size:  # a little of each of many is much
            raise _second_upload(f"{count} of these rows", ", in several studies")

    def _read_prints(self, entry: Entry) -> Words:
        with suppress(OSError):
            content = np.fromfile(self._file(entry.study), dtype=np.uint8)
            prints, digest = content[: 8 * entry.n_rows], content[8 * entry.n_rows :].tobytes()
            # Before 0.3.0 there was no digest.
            if prints.size == 8 * entry.n_rows and digest in (b"", hashlib.sha256(prints.data).digest()):
                return prints.view("<u8").astype(np.uint64, copy=False)
        raise _damaged("the fingerprints of an earlier upload are lost or damaged")

    def _file(self, study_digest: str) -> Path:
        return self._prints / f"rows-{study_digest[:32]}.prints"

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        try:
            with explain_os_errors("the ledger"), closing(sqlite3.connect(self._path, timeout=60.0)) as connection:
                self._path.chmod(0o600)
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute(_SCHEMA)
                yield connection
        except (sqlite3.Error, UnicodeDecodeError):  # the latter from damaged names of columns
            raise StorageError(
                "the ledger",
                reason="it cannot be read or written",
                cure="Check that there is room and that the vault's folder can be written; or restore a backup.",
            ) from None


def summarise_rows(
    key: Secret, prints: Words, column_tags: Sequence[str], labels: npt.NDArray[Any] | None = None
) -> tuple[RowSummary, npt.NDArray[np.unsignedinteger]]:
    """What the ledger is told of rows, and the order of their fingerprints, which are sorted in place.

    Labels carry no noise, and another study may ask for another one: they have no part in the fingerprints, by which rows
    are known again, and are in the digest. Of rows with one fingerprint, the label says which comes first.

    Parameters
    ----------
    key : Secret
    prints : array of uint64
        Sorted in place.
    column_tags : sequence of str
    labels : array, optional
    """
    order = shrink_indices(np.argsort(prints), prints.size)
    prints.sort()
    if labels is not None:
        twins = np.zeros(prints.size, dtype=np.bool_)
        twins[1:] = prints[1:] == prints[:-1]
        twins[:-1] |= twins[1:]
        if twins.any():
            own = order[twins]
            order[twins] = own[np.lexsort((labels[own], prints[twins]))]
        del twins
    return RowSummary(hash_rows(key, prints, labels, order), prints, tuple(column_tags)), order


def shrink_indices(indices: npt.NDArray[np.int64], n_rows: int) -> npt.NDArray[np.unsignedinteger]:
    """Indices in half the memory, where there are fewer than four thousand million rows."""
    return indices.astype(np.uint32 if n_rows < 2**32 else np.uint64)


def _second_upload(which: str, where: str) -> RefusedError:
    return RefusedError(
        "a second upload",
        reason=f"{which} have been uploaded before{where}: with fresh noise on the same rows the noise can be averaged away",
        cure="Share rows that were never shared.",
    )


def _entry(row: Sequence[Any]) -> Entry:
    study, name, rows_digest, n_rows, tags, bundle = [*row, *[b""] * 6][:6]
    words = (study, name, rows_digest, tags, "" if bundle is None else bundle)
    if not all(isinstance(word, str) for word in words) or type(n_rows) is not int or n_rows < 0 or len(row) != 6:
        raise _damaged("an entry of it is damaged")
    return Entry(study, name, rows_digest, n_rows, tuple(tags.split()), bundle)


def _damaged(reason: str) -> StorageError:
    cure = "Restore the vault from a backup: without it the same rows could go out twice."
    return StorageError("the ledger", reason=reason, cure=cure)
