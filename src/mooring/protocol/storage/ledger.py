"""The ledger: a record of which rows this vault has uploaded in which study.

The same rows under fresh noise, even under a fresh map, let an analyst average the noise away: 64 uploads leave an eighth of
it. Every upload is therefore recorded, by keyed fingerprints of its rows, before its bundle is written, and each study gets
one upload.

Secure sums spend ε instead: a vault may take part in several such studies, and the ε of these studies adds up, whatever rows
are shared in them. A charge that depended on the rows would disclose something about the rows. Rows that left without a
guarantee, by rotation or in sums without noise, cannot take part in sums with a guarantee. The ledger also records the one
closing list that a combiner answers in a study.
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
from mooring.protocol.storage.fingerprints import RowSummary, Words, find_known_rows
from mooring.serialization import count_noun

_MOST_SHARED = 0.01
_SOME = "of these rows has", "of these rows have"
_FRESH_NOISE = "uploading the same rows with fresh noise lets the noise be averaged away"
_BESIDE_SUMS = "in secure sums, and uploading them by rotation would void the guarantee of those sums"
_SCHEMA = (
    """
CREATE TABLE IF NOT EXISTS uploads (
    study TEXT PRIMARY KEY,          -- digest of the study
    name TEXT NOT NULL,              -- and its name
    rows_digest TEXT NOT NULL,       -- keyed, independent of the order of the rows
    n_rows INTEGER NOT NULL,
    column_tags TEXT NOT NULL,       -- keyed, one per column
    bundle TEXT,                     -- SHA-256 of the bundle once there is one
    override TEXT NOT NULL,          -- who shared although limits were not shown to be kept, and why
    exceeded TEXT NOT NULL           -- these limits, one per line
)
""",
    """
CREATE TABLE IF NOT EXISTS spent (
    study TEXT PRIMARY KEY,          -- digest of a study of secure sums
    epsilon REAL,                    -- NULL: no noise
    combining_key TEXT NOT NULL      -- used in no other study
)
""",
    """
CREATE TABLE IF NOT EXISTS combined (
    study TEXT PRIMARY KEY,
    list TEXT NOT NULL               -- SHA-256 of the one closing list that was answered
)
""",
)


@dataclass(frozen=True)
class Entry:
    """One upload or, while `bundle` is None, the intent to upload."""

    study: str
    name: str
    rows_digest: str
    n_rows: int
    column_tags: tuple[str, ...]
    bundle: str | None
    override: str = ""
    """Who shared, and why, although some limits of the study were not shown to be kept."""
    exceeded: tuple[str, ...] = ()
    """The limits that were not shown to be kept."""


@dataclass(frozen=True)
class Spending:
    """The privacy budget that an upload of secure sums spends."""

    epsilon: float | None
    """ε of the study; None without noise."""
    combining_key: str
    """The participant's public combining key in this study; empty if it does not combine."""
    most_epsilon: float
    """Limit on the ε that this vault spends in all studies."""


class Ledger:
    """The ledger of one vault: an SQLite database with full synchronisation, and one file of fingerprints per upload."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "ledger.sqlite"
        self._prints = folder

    def entry(self, study_digest: str) -> Entry | None:
        """Return the entry of a study; None if there is none."""
        with self._connect() as connection:
            row = connection.execute("SELECT * FROM uploads WHERE study = ?", (study_digest,)).fetchone()
        return None if row is None else _entry(row)

    def find_bundle(self, study_digest: str) -> str | None:
        """Return the digest of a study's bundle; None if no bundle is finished."""
        entry = self.entry(study_digest)
        return None if entry is None else entry.bundle

    def entries(self) -> tuple[Entry, ...]:
        """Return all entries."""
        with self._connect() as connection:
            return tuple(_entry(row) for row in connection.execute("SELECT * FROM uploads ORDER BY name, study"))

    def record_intent(
        self,
        study_digest: str,
        name: str,
        rows: RowSummary,
        *,
        owner: str = "its owner",
        spending: Spending | None = None,
        decided: tuple[str, Sequence[str]] = ("", ()),
    ) -> Entry:
        """Record that these rows are about to be uploaded in this study, or raise a `RefusedError`.

        The same rows in the same study are not a second upload: the existing entry is returned. An intent whose bundle was
        never finished is checked again and replaced, because the rows may have been used in other studies since. `decided`
        holds `Entry.override` and `Entry.exceeded`, so that no crash can separate them from the upload.
        """
        entry = self.entry(study_digest)
        if entry is not None and entry.rows_digest == rows.digest and entry.bundle is not None:
            return entry
        if entry is not None and entry.bundle is not None:
            raise RefusedError(
                "a second upload",
                reason=f"{owner} has already uploaded other rows from this vault in this study, and rows cannot be added or "
                "changed later",
                cure=f"If you are not {owner}, give your own --vault. If you are, use exactly the rows of the first upload "
                "to write its bundle again. New rows need a new study; by rotation, it must not have the old ones.",
            )
        if spending is None:
            self._require_unseen(study_digest, rows)
        else:
            self._require_budget(study_digest, rows, spending)
        with open_atomically(self._file(study_digest), mode=0o600, what="the ledger") as file:
            prints = np.ascontiguousarray(rows.prints, "<u8").data
            file.write(prints)
            file.write(hashlib.sha256(prints).digest())  # a row with one wrong bit would not be recognised
        n_rows, (override, exceeded) = int(rows.prints.size), decided
        with self._connect() as connection, connection:
            tags, limits = " ".join(rows.column_tags), "\n".join(exceeded)
            connection.execute(
                "INSERT OR REPLACE INTO uploads VALUES (?, ?, ?, ?, ?, NULL, ?, ?)",
                (study_digest, name, rows.digest, n_rows, tags, override, limits),
            )
            if spending is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO spent VALUES (?, ?, ?)",
                    (study_digest, spending.epsilon, spending.combining_key),
                )
        return Entry(study_digest, name, rows.digest, n_rows, rows.column_tags, None, override, tuple(exceeded))

    def record_bundle(self, study_digest: str, bundle_digest: str) -> None:
        """Record that the bundle is finished, so that it may have been sent."""
        with self._connect() as connection, connection:
            connection.execute("UPDATE uploads SET bundle = ? WHERE study = ?", (bundle_digest, study_digest))

    def find_answer(self, study_digest: str) -> str | None:
        """Return the digest of the closing list that this vault answered in a study; None if it answered none."""
        with self._connect() as connection:
            row = connection.execute("SELECT list FROM combined WHERE study = ?", (study_digest,)).fetchone()
        return None if row is None else str(row[0])

    def list_combining_keys(self) -> list[str]:
        """Return the public combining keys of the studies in which this vault shared sums."""
        with self._connect() as connection:
            return [
                str(key) for (key,) in connection.execute("SELECT combining_key FROM spent WHERE combining_key != ''")
            ]

    def record_answer(self, study_digest: str, list_digest: str) -> None:
        """Record which closing list a combiner answers in a study, or raise a `RefusedError` for a second one."""
        with self._connect() as connection, connection:
            connection.execute("INSERT OR IGNORE INTO combined VALUES (?, ?)", (study_digest, list_digest))
        self.require_first_list(study_digest, list_digest)

    def require_first_list(self, study_digest: str, list_digest: str) -> None:
        """Raise a `RefusedError` if a different closing list of the study was answered."""
        if self.find_answer(study_digest) not in (None, list_digest):
            raise RefusedError(
                "a second list",
                reason="this vault has already answered a different closing list of this study, and two totals would reveal "
                "the participants who are in only one of them",
                cure="Ask the analyst for the list that was answered. Its share can be written again.",
            )

    def spent_epsilon(self, study_digest: str = "") -> float:
        """Return the ε that this vault has spent in all studies of secure sums except the one with this digest."""
        return sum(epsilon for _, epsilon in self._list_sums(study_digest) if epsilon is not None)

    def _require_budget(self, study_digest: str, rows: RowSummary, spending: Spending) -> None:
        with self._connect() as connection:
            used = connection.execute(
                "SELECT study FROM spent WHERE combining_key = ? AND combining_key != '' AND study != ?",
                (spending.combining_key, study_digest),
            ).fetchone()
        if used is not None:
            raise RefusedError(
                "the study",
                reason="your combining key in its roster was used in another study",
                cure="Write a new card with 'mooring join' and have it enrolled.",
            )
        guaranteed = {entry.study for entry, epsilon in self._list_sums(study_digest) if epsilon is not None}
        if spending.epsilon is None:
            if guaranteed:
                reason = "this vault has shared sums with a guarantee, which sums without noise could void"
                raise RefusedError("the upload", reason=reason, cure="Stay out of this study.")
            return
        total = self.spent_epsilon(study_digest) + spending.epsilon
        if total > spending.most_epsilon:
            raise RefusedError(
                "the upload",
                reason=f"this vault would have spent epsilon = {total:g} in all its studies, added up whatever rows each "
                f"had, above your limit of {spending.most_epsilon:g}",
                cure="Stay out of this study. The limit is set when you join.",
            )
        for entry in self.entries():
            if entry.study == study_digest or entry.bundle is None or entry.study in guaranteed:
                continue
            # One known row is enough to refuse: a tolerated share would depend on the number of rows that never left before.
            if find_known_rows(rows.prints, self._read_prints(entry)).any():
                raise RefusedError(
                    "the upload",
                    reason=f"some of these rows were uploaded without a guarantee in the study {entry.name!r}, which would "
                    "void that of this study",
                    cure="Share rows that were uploaded neither by rotation nor in sums without noise.",
                )

    def _list_sums(self, study_digest: str) -> list[tuple[Entry, float | None]]:
        """Return the uploads of secure sums in other studies, with the ε of each."""
        with self._connect() as connection:
            spent = dict(connection.execute("SELECT study, epsilon FROM spent"))
        return [
            (entry, spent[entry.study])
            for entry in self.entries()
            if entry.study != study_digest and entry.bundle is not None and entry.study in spent
        ]

    def _require_unseen(self, study_digest: str, rows: RowSummary) -> None:
        known = np.zeros(rows.prints.size, dtype=np.bool_)
        summed = {entry.study for entry, _ in self._list_sums(study_digest)}
        for entry in self.entries():
            if entry.study == study_digest or entry.bundle is None:
                continue
            why = _BESIDE_SUMS if entry.study in summed else _FRESH_NOISE
            if _has_same_columns(rows, entry):
                raise _second_upload("these rows have", f", in the study {entry.name!r}", why)
            shared = find_known_rows(rows.prints, self._read_prints(entry))
            most = 0 if entry.study in summed else _MOST_SHARED * min(rows.prints.size, entry.n_rows)
            if (count := int(shared.sum())) > most:
                raise _second_upload(count_noun(count, *_SOME), f", in the study {entry.name!r}", why)
            known |= shared
        if (count := int(known.sum())) > _MOST_SHARED * rows.prints.size:  # small overlaps with many studies add up
            raise _second_upload(count_noun(count, *_SOME), ", in several studies")

    def find_shared(self, study_digest: str, prints: Words) -> npt.NDArray[np.bool_]:
        """Return which rows, given by their fingerprints, were uploaded in a study."""
        entry = self.entry(study_digest)
        return np.isin(prints, [] if entry is None else self._read_prints(entry))

    def _read_prints(self, entry: Entry) -> Words:
        with suppress(OSError):
            content = np.fromfile(self._file(entry.study), dtype=np.uint8)
            prints, digest = content[: 8 * entry.n_rows], content[8 * entry.n_rows :].tobytes()
            if prints.size == 8 * entry.n_rows and digest == hashlib.sha256(prints.data).digest():
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
                for statement in _SCHEMA:
                    connection.execute(statement)
                yield connection
        except (sqlite3.Error, UnicodeDecodeError):  # UnicodeDecodeError comes from damaged column names
            cure = "Check that the disk has room and that the vault's folder is writable, or restore a backup."
            raise StorageError("the ledger", reason="it cannot be read or written", cure=cure) from None


def _has_same_columns(rows: RowSummary, entry: Entry) -> bool:
    ours, theirs = set(rows.column_tags), set(entry.column_tags)
    return entry.n_rows == rows.prints.size and 2 * len(ours & theirs) > min(len(ours), len(theirs))


def _second_upload(which: str, where: str, why: str = _FRESH_NOISE) -> RefusedError:
    return RefusedError(
        "a second upload",
        reason=f"{which} already been uploaded{where}: {why}",
        cure="Share rows that were never shared before.",
    )


def _entry(row: Sequence[Any]) -> Entry:
    study, name, rows_digest, n_rows, tags, bundle, override, exceeded = [*row, *[b""] * 8][:8]
    words = (study, name, rows_digest, tags, "" if bundle is None else bundle, override, exceeded)
    if not all(isinstance(word, str) for word in words) or type(n_rows) is not int or n_rows < 0 or len(row) != 8:
        raise _damaged("an entry of it is damaged")
    return Entry(study, name, rows_digest, n_rows, tuple(tags.split()), bundle, override, tuple(exceeded.splitlines()))


def _damaged(reason: str) -> StorageError:
    cure = "Restore the vault from a backup. Without its ledger the same rows could be uploaded twice."
    return StorageError("the ledger", reason=reason, cure=cure)
