"""Keyed fingerprints, by which the ledger recognises rows in a different order, file or study.

A fingerprint is a keyed sum over columns of the mixed bits of the row's values, encrypted. The keys never leave the vault,
and each column's key follows from the column's name. A fingerprint therefore depends on the values and names of the columns,
but not on the position of the row or the format of the file. Without the keys, fingerprints only reveal which of them are
equal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB

from mooring.mechanisms.sums.sums import PersonCounts
from mooring.protocol.crypto.keys import Secret
from mooring.tables import Schema
from mooring.tables.encoder import EncodedRows

Words = npt.NDArray[np.uint64]
_WORDS_AT_ONCE = 2**16


class Fingerprinter:
    """Collects fingerprints of rows, and a tag for each column that varies, one block at a time."""

    def __init__(self, key: Secret, names: Sequence[str]) -> None:
        self.n_rows = 0
        self._key = key
        self._multipliers = np.array([int.from_bytes(self._mac(name)[:8], "little") | 1 for name in names], np.uint64)
        self._cipher = Cipher(AES256(self._mac("\nfingerprints")), ECB()).encryptor()
        self._parts: list[Words] = []
        self._sums = np.zeros(len(names), dtype=np.uint64)
        self._first: Words | None = None
        self._varies = np.zeros(len(names), dtype=np.bool_)

    def add(self, values: npt.NDArray[np.float64]) -> Words:
        """Add further rows by their values, shape (n, columns), and return the fingerprints of these rows."""
        prints = np.empty(values.shape[0], dtype=np.uint64)
        step = max(1, _WORDS_AT_ONCE // max(1, values.shape[1]))  # a block that fits into the processor's cache
        for start in range(0, values.shape[0], step):
            mixed = (values[start : start + step] + 0.0).view(
                np.uint64
            )  # −0 becomes 0, the only number with two representations
            mixed ^= mixed >> np.uint64(32)
            mixed ^= mixed >> np.uint64(16)  # numbers with few digits now differ in their lowest bits too
            if self._first is None:
                self._first = mixed[0].copy()
            if not self._varies.all():
                self._varies |= (mixed != self._first).any(axis=0)
            self._sums += mixed.sum(axis=0, dtype=np.uint64)
            prints[start : start + step] = np.einsum("nc,c->n", mixed, self._multipliers)
        self._parts.append(self._encrypt(prints))
        self.n_rows += prints.size
        return self._parts[-1]

    def take(self) -> Words:
        """Return all fingerprints that were not taken yet, in the order of the rows, and do not keep them."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)

    def column_tags(self) -> tuple[str, ...]:
        """Return one tag per column that varies. Columns with the same values have equal tags, whatever their names."""
        return tuple(
            self._mac(f"\ncolumn\n{self.n_rows}\n{int(total)}").hex()[:32]
            for total, varies in zip(self._sums, self._varies, strict=True)
            if varies
        )

    def _encrypt(self, prints: Words) -> Words:
        """Return the fingerprints encrypted, because many plain sums would reveal the multipliers by linear algebra."""
        blocks = np.zeros((prints.size, 2), dtype="<u8")
        blocks[:, 0] = prints
        hidden = np.frombuffer(self._cipher.update(blocks.tobytes()), dtype="<u8")
        return hidden[::2].astype(np.uint64)

    def _mac(self, text: str) -> bytes:
        return hmac.digest(self._key.reveal(), text.encode(), "sha256")


def hash_rows(
    key: Secret,
    sorted_prints: Words,
    labels: npt.NDArray[Any] | None = None,
    order: npt.NDArray[np.unsignedinteger] | None = None,
) -> str:
    """Return a keyed digest of rows that does not depend on their order.

    `labels` are in the order of the file, and `order` sorts the file's fingerprints.
    """
    whole = hmac.new(key.reveal(), digestmod=hashlib.sha256)
    whole.update(np.ascontiguousarray(sorted_prints, dtype="<u8").data)
    if labels is not None and order is not None:
        for start in range(0, order.size, _WORDS_AT_ONCE):
            whole.update(labels[order[start : start + _WORDS_AT_ONCE]].astype("<f4").tobytes())
    return whole.hexdigest()


def find_known_rows(sorted_prints: Words, earlier: Words) -> npt.NDArray[np.bool_]:
    """Return which fingerprints of an upload an earlier upload has, too; of equal fingerprints, only the first is marked.

    Both arrays are sorted.
    """
    known, step = np.zeros(sorted_prints.size, dtype=np.bool_), 2**20
    for start in range(0, sorted_prints.size, step):
        block = sorted_prints[start : start + step]
        places = np.searchsorted(earlier, block)
        inside = places < earlier.size
        known[start : start + step][inside] = earlier[places[inside]] == block[inside]
    known[1:] &= sorted_prints[1:] != sorted_prints[:-1]
    return known


@dataclass(frozen=True, eq=False)
class RowSummary:
    """The keyed summary of rows that the ledger stores."""

    digest: str
    """Keyed digest that does not depend on the order of the rows."""
    prints: Words
    """Keyed fingerprints of the rows, sorted."""
    column_tags: tuple[str, ...]
    """One keyed tag per column that varies."""


class RowCollector:
    """Collects fingerprints, labels, and counts of classes and persons, one block of rows at a time."""

    def __init__(self, key: Secret, schema: Schema) -> None:
        self._key, self._label, names = key, schema.label, [column.name for column in schema.columns]
        self._prints, self._n_columns = Fingerprinter(key, names), len(names)
        self._labels: list[npt.NDArray[Any]] = []
        self.counts, self.persons = np.zeros(len(schema.label.classes), dtype=np.int64), PersonCounts()

    def add(self, block: EncodedRows) -> None:
        """Add further rows."""
        self._prints.add(block.values[:, : self._n_columns])
        self.persons.add(block.persons)
        if block.labels is None:
            return
        has_classes = self._label.kind == "classes"
        self._labels.append(block.labels.astype(np.min_scalar_type(self.counts.size) if has_classes else "<f4"))
        if has_classes:
            self.counts += np.bincount(block.labels, minlength=self.counts.size)

    @property
    def by_class(self) -> dict[str, int] | None:
        """The number of rows per class so far; None without classes."""
        return dict(zip(self._label.classes, self.counts.tolist(), strict=True)) if self.counts.size else None

    def finish(self) -> tuple[RowSummary, npt.NDArray[np.unsignedinteger], npt.NDArray[Any] | None]:
        """Return the summary for the ledger, the order that sorts the fingerprints, and the labels in the order of the rows.

        Labels are None if none were read.
        """
        labels = np.concatenate(self._labels) if self._labels else None
        self._labels.clear()
        summary, order = summarise_rows(self._key, self._prints.take(), self._prints.column_tags(), labels)
        return summary, order, labels


def summarise_rows(
    key: Secret, prints: Words, column_tags: Sequence[str], labels: npt.NDArray[Any] | None = None
) -> tuple[RowSummary, npt.NDArray[np.unsignedinteger]]:
    """Return the summary for the ledger and the order that sorts the fingerprints, which are then sorted in place.

    Labels are part of the digest, since they are uploaded without noise. They are not part of the fingerprints, since rows
    must be recognised in a study with a different label. Rows with equal fingerprints are ordered by label.
    """
    order = shrink_indices(np.argsort(prints), prints.size)
    prints.sort()
    if labels is not None:
        twins = np.zeros(prints.size, dtype=np.bool_)
        twins[1:] = prints[1:] == prints[:-1]
        twins[:-1] |= twins[1:]
        if twins.any():
            positions = order[twins]
            order[twins] = positions[np.lexsort((labels[positions], prints[twins]))]
        del twins
    return RowSummary(hash_rows(key, prints, labels, order), prints, tuple(column_tags)), order


def shrink_indices(indices: npt.NDArray[np.int64], n_rows: int) -> npt.NDArray[np.unsignedinteger]:
    """Return indices as unsigned integers, in half the memory if there are fewer than 2³² rows."""
    return indices.astype(np.uint32 if n_rows < 2**32 else np.uint64)
