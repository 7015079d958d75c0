"""From a table to one signed bundle, in bounded memory: two passes over the file, and one over the bundle.

The first pass checks every row and takes its fingerprint; the ledger decides whether the rows may go out, and writes the
intent down. The second maps the rows and puts each into the stretch of the bundle where its secret place lies; the last puts
the rows of each stretch in order, adds noise, and hashes. The bundle is finished in the vault before anything is handed out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mooring.atomic_io import (
    clear_partial_copies,
    copy_atomically,
    hash_file,
    open_atomically,
    read_bounded,
    require_writable,
    write_atomically,
)
from mooring.errors import RefusedError
from mooring.mechanisms.kernel import add_noise, map_rows
from mooring.protocol.messages.anchor import most_anchor_bytes
from mooring.protocol.messages.bundle import (
    KIND,
    SUFFIX,
    bundle_fields,
    bundle_offsets,
    bundle_tensors,
    find_data_start,
    read_bundle_header,
)
from mooring.protocol.messages.projection import study_projection
from mooring.protocol.messages.signed_file import encode_signed_header
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership, open_anchor, require_floors
from mooring.protocol.participant.secrets import Perturbation
from mooring.protocol.storage.fingerprints import Fingerprinter
from mooring.protocol.storage.ledger import Ledger, RowSummary, summarise_rows
from mooring.protocol.storage.vault import Vault
from mooring.tables import EncodedRows, encoded_batches, read_ahead
from mooring.typing import Progress

Indices = npt.NDArray[np.unsignedinteger]
_STRETCH_BYTES = 2**24
_KEPT, _USED_ANCHOR = "upload" + SUFFIX, "used.anchor"


@dataclass(frozen=True)
class ShareResult:
    """What was shared.

    Attributes
    ----------
    n_rows : int
    class_counts : dict of int, or None
        Rows a class; the analyst sees them too.
    bundle_digest : str
    reissued : bool
        Whether this is a bundle that was made before.
    """

    n_rows: int
    class_counts: dict[str, int] | None
    bundle_digest: str
    reissued: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "rows": self.n_rows,
            "class_counts": self.class_counts,
            "bundle_digest": self.bundle_digest,
            "reissued": self.reissued,
        }


@dataclass(frozen=True, eq=False)
class _Surveyed:
    """What the first pass found."""

    n_rows: int
    rows_digest: str
    class_counts: dict[str, int] | None
    checksum: tuple[int, int, int]


def share_rows(
    vault: Vault,
    study: Study,
    data: Path,
    *,
    anchor: Path,
    output: Path,
    ignore: Collection[str] = (),
    progress: Progress | None = None,
) -> ShareResult:
    """Write the one bundle of these rows in this study, or write the same bytes again.

    Parameters
    ----------
    vault : Vault
    study : Study
    data : Path
        CSV or Parquet.
    anchor : Path
        The dealt anchor file.
    output : Path
        Where the bundle goes.
    ignore : collection of str
        Columns of the table that are not shared.
    progress : callable, optional
        Told how much is done, and of how much.
    """
    require_writable(
        output, what="the bundle", inputs=(data, anchor)
    )  # a typing error there must not use up the one upload
    member = find_membership(vault, study)
    _require_current_format(study)
    require_floors(study, vault.floors)
    dealt = open_anchor(vault, study, anchor)
    tell = progress or (lambda done, total, what="": None)
    with vault.lock(), threadpool_limits(1, "blas"):  # the other core is reading ahead, and hashing waits for nobody
        surveyed, rows, order = _survey(vault, study, data, ignore, lambda d, t, what="": tell(0.4 * d, t))
        _require_no_small_class(study, surveyed.class_counts)
        ledger = Ledger(vault.folder)
        entry = ledger.record_intent(study.digest, study.name, rows, owner=member.name)
        del rows  # of many rows, every array that is not needed any more is let go
        kept = vault.study_folder(study.folder_name) / _KEPT
        reissued = entry.bundle is not None
        if not (reissued and kept.exists() and hash_file(kept, what="the bundle") == entry.bundle):
            perturbation = Perturbation(study, dealt, vault)
            places = _places(perturbation, surveyed, order)
            del order
            digest = _write(kept, perturbation, surveyed, places, data, ignore, tell)
            if reissued and digest != entry.bundle:
                kept.unlink()
                raise RefusedError(
                    "the bundle",
                    reason="it was issued before, its copy in the vault is gone, and this machine rounds differently, so "
                    "the same bytes cannot be made again",
                    cure="Restore the vault from a backup, or send the copy that was first written.",
                )
            ledger.record_bundle(study.digest, digest)
            entry = ledger.entry(study.digest) or entry
        if read_bundle_header(kept)[1]["anchor"] != dealt.file_digest:
            raise RefusedError(
                "the anchor file",
                reason="these rows were shared under another one in this study",
                cure="Give the anchor file of the first upload, and ask the dealer why there are two.",
            )
        _keep_anchor(study, used_anchor(vault, study), anchor, dealt.file_digest)
        clear_partial_copies(output)
        copy_atomically(kept, output, mode=0o600, what="the bundle")
    assert entry.bundle is not None
    return ShareResult(entry.n_rows, surveyed.class_counts, entry.bundle, reissued)


def used_anchor(vault: Vault, study: Study) -> Path:
    """The anchor file that was used to share in this study."""
    return vault.study_folder(study.folder_name) / _USED_ANCHOR


def _survey(
    vault: Vault, study: Study, data: Path, ignore: Collection[str], tell: Progress
) -> tuple[_Surveyed, RowSummary, Indices]:
    """The first pass: every row checked, fingerprinted and counted; and the order of the fingerprints."""
    prints = Fingerprinter(vault.ledger_key, [column.name for column in study.columns])
    small = np.min_scalar_type(len(study.label.classes)) if study.label.kind == "classes" else np.dtype("<f4")
    labels: list[npt.NDArray[Any]] = []
    counts = np.zeros(len(study.label.classes), dtype=np.int64)
    checksum = _Checksum()
    for block in read_ahead(encoded_batches(study.schema, data, ignore=tuple(ignore), progress=tell)):
        prints.add(block.values[:, : len(study.columns)])
        checksum.add(block)
        labels += [] if block.labels is None else [block.labels.astype(small)]
        if study.label.kind == "classes" and block.labels is not None:
            counts += np.bincount(block.labels, minlength=counts.size)
    joined = np.concatenate(labels) if labels else None
    labels.clear()
    rows, order = summarise_rows(vault.ledger_key, prints.take(), prints.column_tags(), joined)
    by_class = dict(zip(study.label.classes, counts.tolist(), strict=True)) if counts.size else None
    return _Surveyed(order.size, rows.digest, by_class, checksum.found), rows, order


def _places(perturbation: Perturbation, surveyed: _Surveyed, order: Indices) -> Indices:
    """Where each row of the file goes in the bundle: a secret order of the rows as their fingerprints sort them."""
    places = np.empty_like(order)
    places[order] = perturbation.order(surveyed.n_rows, surveyed.rows_digest)
    return places


def _write(
    path: Path,
    perturbation: Perturbation,
    surveyed: _Surveyed,
    places: Indices,
    data: Path,
    ignore: Collection[str],
    tell: Progress,
) -> str:
    """Passes two and three: the bundle, written durably; returns its SHA-256."""
    study, n_rows, h = perturbation.study, surveyed.n_rows, perturbation.study.n_components
    projection, secret = study_projection(study), perturbation.map
    labels = None if study.label.kind == "none" else np.empty(n_rows, dtype="<f4")
    offsets = bundle_offsets(study, n_rows, find_data_start(study, n_rows=n_rows))
    stretch = max(1, _STRETCH_BYTES // (4 * h))
    cursors = np.arange(-(-n_rows // stretch)) * stretch
    checksum, start = _Checksum(), 0
    with open_atomically(path, mode=0o600, what="the bundle") as file:
        file.truncate(offsets["representation"] + 4 * n_rows * h + (0 if labels is None else 4 * n_rows))
        blocks = encoded_batches(
            study.schema, data, ignore=tuple(ignore), progress=lambda d, t, what="": tell(0.4 * (t + d), t)
        )
        for block in read_ahead(blocks):
            checksum.add(block)
            here = places[start : start + block.rows.shape[0]]
            if here.size < block.rows.shape[0]:
                raise _changed()
            projected = block.rows if study.projection == "none" else projection.encode(block.rows)
            mapped = np.asarray(map_rows(projected, secret, precision="float32"), dtype="<f4")
            _scatter(file, mapped, here // stretch, cursors, offsets["representation"])
            if labels is not None:
                labels[here] = block.labels
            start += here.size
        if checksum.found != surveyed.checksum:
            raise _changed()
        return _settle(file, perturbation, surveyed, places, stretch, labels, tell)


def _scatter(
    file: BinaryIO, mapped: npt.NDArray[Any], stretches: npt.NDArray[Any], cursors: npt.NDArray[Any], offset: int
) -> None:
    """Append each row of a block to the stretch of the bundle that its place lies in."""
    row_bytes = 4 * mapped.shape[1]
    ordered = np.argsort(stretches, kind="stable")
    mapped = mapped[ordered]
    found, first = np.unique(stretches[ordered], return_index=True)
    ends = [*first[1:], stretches.size]
    for which, begin, end in zip(found, first, ends, strict=True):
        file.seek(offset + int(cursors[which]) * row_bytes)
        file.write(mapped[begin:end].data.cast("B"))
        cursors[which] += end - begin


def _settle(
    file: BinaryIO,
    perturbation: Perturbation,
    surveyed: _Surveyed,
    places: Indices,
    stretch: int,
    labels: npt.NDArray[Any] | None,
    tell: Progress,
) -> str:
    """The last pass: rows to their places, noise, labels, digest, and the signed header."""
    study, n_rows, h = perturbation.study, places.size, perturbation.study.n_components
    tensors = bundle_tensors(study, n_rows)
    offsets = bundle_offsets(study, n_rows, find_data_start(study, n_rows=n_rows))
    noise = perturbation.data_noise(n_rows, surveyed.rows_digest)
    arrays = hashlib.sha256()
    anchor = perturbation.anchor_representation().astype("<f4").tobytes()
    file.seek(offsets["anchor_representation"])
    file.write(anchor)
    arrays.update(anchor)
    n_stretches = -(-n_rows // stretch)
    stretches = (places // stretch).astype(np.min_scalar_type(n_stretches))
    for which in range(n_stretches):
        begin, end = which * stretch, min(n_rows, (which + 1) * stretch)
        position = offsets["representation"] + 4 * h * begin
        file.seek(position)
        came = np.frombuffer(file.read(4 * h * (end - begin)), dtype="<f4").reshape(end - begin, h)
        settled = np.empty_like(came)
        settled[places[stretches == which] - begin] = came  # rows lie as they came, and came in the file's order
        noisy = add_noise(settled, study.data_noise_scale, noise, start=begin * h, precision="float32")
        stored = np.asarray(noisy, dtype="<f4").data.cast("B")
        file.seek(position)
        file.write(stored)
        arrays.update(stored)
        tell(0.8 * n_stretches + 0.2 * (which + 1), n_stretches)
    if labels is not None:
        file.seek(offsets["labels"])
        file.write(labels.data.cast("B"))
        arrays.update(labels.data.cast("B"))
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest=perturbation.anchor.file_digest)
    header = encode_signed_header(KIND, fields, tensors, arrays.hexdigest(), perturbation.vault.signing_key)
    file.seek(0)
    file.write(header)
    file.seek(0)
    return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


class _Checksum:
    """Tells whether a second reading of the file gave the same values as the first."""

    def __init__(self) -> None:
        self.found = (0, 0, 0)

    def add(self, block: EncodedRows) -> None:
        bits = block.values.ravel(order="K").view(np.uint64)  # as they lie in memory: nothing is copied
        n, folded, total = self.found
        folded ^= int(np.bitwise_xor.reduce(bits)) if bits.size else 0
        self.found = (n + bits.size, folded, (total + int(bits.sum(dtype=np.uint64))) % 2**64)


def _changed() -> RefusedError:
    return RefusedError(
        "the table", reason="it changed while it was being read", cure="Run the command again on a file at rest."
    )


def _require_current_format(study: Study) -> None:
    if study.format == 1:
        raise RefusedError(
            "the study",
            reason="it is of format 1, whose noise has too few bits and a scale that depends on the projection",
            cure="Ask its designer to draft it again with this version.",
        )


def _require_no_small_class(study: Study, counts: dict[str, int] | None) -> None:
    for name, count in (counts or {}).items():
        if 0 < count < study.smallest_class:
            raise RefusedError(
                "the upload",
                reason=f"fewer than {study.smallest_class} rows have the label {name!r}, and labels are visible to the "
                "analyst: such rows stand out",
                cure="Leave those rows out, or gather more of them; the study's smallest_class says how many.",
            )


def _keep_anchor(study: Study, kept: Path, given: Path, digest: str) -> None:
    """Keep the anchor file that was used; it lies where others can write, and may have been changed since it was opened."""
    if kept.exists() and hash_file(kept, what="the vault") == digest:
        return
    content = read_bounded(given, most_anchor_bytes(study), what="the anchor file")
    if hashlib.sha256(content).hexdigest() != digest:
        raise RefusedError(
            "the anchor file", reason="it changed while it was being used", cure="Run the command again."
        )
    write_atomically(kept, content, mode=0o600, what="the vault")
