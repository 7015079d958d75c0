"""Fingerprints of rows, by which the ledger knows them again: in another order, another file, another study.

A fingerprint is a keyed sum over columns of the mixed bits of the row's values, encrypted; the keys never leave the vault,
and each column's part follows from the column's name. So it depends on what a row says and on which columns say it, not on
where it stands or how the file is written. Without the keys, fingerprints say nothing about the rows but which are equal.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
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
    """Collects fingerprints of rows, and a tag for each column that varies, block by block."""

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
        """Take the values of further rows, and return the rows' fingerprints."""
        prints = np.empty(values.shape[0], dtype=np.uint64)
        step = max(1, _WORDS_AT_ONCE // max(1, values.shape[1]))  # a block that the processor's cache holds
        for start in range(0, values.shape[0], step):
            mixed = (values[start : start + step] + 0.0).view(np.uint64)  # −0 becomes 0, the only number with two forms
            mixed ^= mixed >> np.uint64(32)
            mixed ^= mixed >> np.uint64(16)  # numbers of few digits now differ in their lowest bits as well
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
        """All fingerprints in the order the rows came in; they are handed over, not kept."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint64)

    def column_tags(self) -> tuple[str, ...]:
        """One tag a column that varies: equal tags mean the same values, whatever they are called or were shared with."""
        return tuple(
            self._mac(f"\ncolumn\n{self.n_rows}\n{int(total)}").hex()[:32]
            for total, varies in zip(self._sums, self._varies, strict=True)
            if varies
        )

    def _encrypt(self, prints: Words) -> Words:
        """Each print through a block cipher: the sums are linear in the multipliers, and many would give them away."""
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
    """A keyed digest of rows that does not depend on their order."""
    whole = hmac.new(key.reveal(), digestmod=hashlib.sha256)
    whole.update(np.ascontiguousarray(sorted_prints, dtype="<u8").data.cast("B"))
    if labels is not None and order is not None:
        for start in range(0, order.size, _WORDS_AT_ONCE):
            whole.update(labels[order[start : start + _WORDS_AT_ONCE]].astype("<f4").tobytes())
    return whole.hexdigest()


def hash_names(names: Iterable[str]) -> str:
    """A digest of the columns that fingerprints are made of: only those of the same columns can be compared."""
    return hashlib.sha256("\n".join(sorted(names)).encode()).hexdigest()


def find_known_rows(sorted_prints: Words, earlier: Words) -> npt.NDArray[np.bool_]:
    """Which rows of one upload were in an earlier one (both sorted); of equal rows only the first is marked."""
    found, step = np.zeros(sorted_prints.size, dtype=np.bool_), 2**20
    for start in range(0, sorted_prints.size, step):
        block = sorted_prints[start : start + step]
        places = np.searchsorted(earlier, block)
        inside = places < earlier.size
        found[start : start + step][inside] = earlier[places[inside]] == block[inside]
    found[1:] &= sorted_prints[1:] != sorted_prints[:-1]
    return found


@dataclass(frozen=True, eq=False)
class RowSummary:
    """What the ledger is told of the rows to be shared."""

    digest: str
    """Keyed, whatever the order of the rows."""
    prints: Words
    """Keyed fingerprints of the rows, sorted."""
    column_tags: tuple[str, ...]


class RowCollector:
    """Collects fingerprints, labels and counts of classes and persons, block by block: what `share` asks of rows."""

    def __init__(self, key: Secret, schema: Schema) -> None:
        self._key, self._label, names = key, schema.label, [column.name for column in schema.columns]
        self._prints, self._n_columns = Fingerprinter(key, names), len(names)
        self._labels: list[npt.NDArray[Any]] = []
        self.counts, self.persons = np.zeros(len(schema.label.classes), dtype=np.int64), PersonCounts()

    def add(self, block: EncodedRows) -> None:
        """Take further rows."""
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
        """Rows a class so far; None without classes."""
        return dict(zip(self._label.classes, self.counts.tolist(), strict=True)) if self.counts.size else None

    def finish(self) -> tuple[RowSummary, npt.NDArray[np.unsignedinteger], npt.NDArray[Any] | None]:
        """What the ledger is told of all rows, the order of their fingerprints, and labels in the order they came."""
        labels = np.concatenate(self._labels) if self._labels else None
        self._labels.clear()
        summary, order = summarise_rows(self._key, self._prints.take(), self._prints.column_tags(), labels)
        return summary, order, labels


def summarise_rows(
    key: Secret, prints: Words, column_tags: Sequence[str], labels: npt.NDArray[Any] | None = None
) -> tuple[RowSummary, npt.NDArray[np.unsignedinteger]]:
    """What the ledger is told of rows, and the order of their fingerprints, which are sorted in place.

    Labels carry no noise, and another study may ask for another one: they have no part in the fingerprints, by which rows
    are known again, and are in the digest. Of rows with one fingerprint, the label says which comes first.
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
