"""From a table to one signed bundle, in three passes that need about 20 bytes of memory per row.

The first pass checks every row, computes its fingerprint, and writes the mapped row to a scratch file in the vault. Then the
ledger decides whether the rows may be shared, and records the intent. The second pass sorts the rows into another scratch
file, by stretch: a stretch is a run of rows of the bundle that fits in memory. The third pass puts the rows of each stretch
in their places, adds noise, writes and hashes. The bundle is complete in the vault before it is handed out. Scratch files
have no name, so nothing remains of them after a crash.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from mooring.atomic_io import (
    hash_file,
    open_atomically,
    open_scratch,
    read_bounded,
    require_writable,
    write_atomically,
)
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.rotation.kernel import add_noise, map_rows
from mooring.protocol.crypto.derivation import Stream
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.messages.signed_file import encode_signed_header
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership, hand_out, recall_exceeded, require_limits
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import Consent, ShareResult
from mooring.protocol.rotation.anchor import Perturbation, most_anchor_bytes, open_anchor, used_anchor
from mooring.protocol.rotation.bundle import (
    KIND,
    bundle_fields,
    bundle_tensors,
    find_data_start,
    read_bundle_header,
)
from mooring.protocol.rotation.scheme import rotation_of, study_projection
from mooring.protocol.storage.fingerprints import RowCollector, RowSummary
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.tables import encoded_batches
from mooring.tables.reader import THREADS, read_ahead
from mooring.typing import Progress, TableSource

Indices = npt.NDArray[np.unsignedinteger]
_KEPT = "upload" + SUFFIX


@dataclass(frozen=True, eq=False)
class _Surveyed:
    """The result of the first pass."""

    order: Indices
    """The positions of the rows in the file, sorted by the rows' fingerprints."""
    labels: npt.NDArray[Any] | None
    """Labels in the order of the file, in a small type; None without labels."""
    class_counts: dict[str, int] | None


@dataclass(frozen=True)
class Blocks:
    """How much of a bundle is written at a time. The bundle does not depend on it."""

    stretch_bytes: int = 2**24
    """Largest size of a stretch, in bytes."""
    noise_numbers: int = 2**16
    """How many numbers get noise at a time; they fit in the processor's cache."""


_BLOCKS = Blocks()


def share_rows(
    vault: Vault,
    study: Study,
    data: TableSource,
    *,
    anchor: Path | None,
    output: Path,
    consent: Consent,
    ignore: Collection[str] = (),
    progress: Progress | None = None,
    blocks: Blocks = _BLOCKS,
) -> ShareResult:
    """Write the one bundle of these rows in this study, or write the same bytes again. `ignore` names columns to skip."""
    rotation_of(study)
    if anchor is None:
        cure = "Give the file that the dealer sent."
        raise InputError("anchor", problem="Rows cannot be shared without the study's anchor.", cure=cure)
    require_label_consent(study, consent.labels)
    # A mistyped output path must not use up the one upload.
    require_writable(output, what="the bundle", inputs=(data, anchor))
    member = find_membership(vault, study)
    exchange_of(study).require_floors(study, vault.floors)
    shared_anchor = open_anchor(vault, study, anchor)
    tell = progress or (lambda done, total, what="": None)
    perturbation = Perturbation(study, shared_anchor, vault)
    with vault.lock(), threadpool_limits(1, "blas"):  # our own threads work on different blocks instead
        kept = vault.study_folder(study.folder_name) / _KEPT
        with open_scratch(kept.parent, what="the bundle") as mapped:
            surveyed, rows = _survey(perturbation, data, ignore, mapped, lambda d, t, what="": tell(0.6 * d, t))
            for refusal in exchange_of(study).list_refusals(study, surveyed.order.size, surveyed.class_counts):
                raise refusal
            ledger = Ledger(vault.folder)
            decided = require_limits(vault, study, recall_exceeded(vault, study, rows.digest), consent.override)
            entry = ledger.record_intent(study.digest, study.name, rows, owner=member.name, decided=decided)
            del rows  # frees memory
            counts, reissued = surveyed.class_counts, entry.bundle is not None
            if not (reissued and kept.exists() and hash_file(kept, what="the bundle") == entry.bundle):
                places, shuffled = _place(perturbation, surveyed, entry.rows_digest)
                del surveyed
                digest = _write(kept, perturbation, entry.rows_digest, mapped, places, shuffled, tell, blocks)
                if reissued and digest != entry.bundle:
                    kept.unlink()
                    raise RefusedError(
                        "the bundle",
                        reason="it was issued before, its copy in the vault is gone, and the same bytes were not made "
                        "again: a different anchor file was given, or this machine rounds differently",
                        cure="Restore the vault from a backup, or send the copy that was first written.",
                    )
                ledger.record_bundle(study.digest, digest)
                entry = ledger.entry(study.digest) or entry
        if read_bundle_header(kept)[1]["anchor"] != shared_anchor.file_digest:
            raise RefusedError(
                "the anchor file",
                reason="these rows were shared with a different anchor file in this study",
                cure="Give the anchor file of the first upload, and ask the dealer why there are two.",
            )
        _keep_anchor(study, used_anchor(vault, study), anchor, shared_anchor.file_digest)
        return hand_out(ShareResult.of(entry, reissued=reissued, class_counts=counts), kept, output, consent.command)


def _survey(
    perturbation: Perturbation, data: TableSource, ignore: Collection[str], mapped: BinaryIO, tell: Progress
) -> tuple[_Surveyed, RowSummary]:
    """First pass: check, fingerprint and count all rows, and write the mapped rows in the order of the file."""
    study, secret = perturbation.study, perturbation.map
    project = study_projection(study).encode if rotation_of(study).projection != "none" else np.asarray
    collector = RowCollector(perturbation.vault.ledger_key, study.schema)

    def map_block(rows: npt.NDArray[np.float64]) -> memoryview:
        return np.asarray(map_rows(project(rows), secret, precision="float32"), dtype="<f4", order="C").data.cast("B")

    ahead = max(1, THREADS // 2)
    with ThreadPoolExecutor(ahead) as threads:
        made: deque[Future[memoryview]] = deque()
        for block in read_ahead(encoded_batches(study.schema, data, ignore=tuple(ignore), progress=tell)):
            made.append(threads.submit(map_block, block.rows))
            collector.add(block)
            if len(made) > ahead:
                mapped.write(made.popleft().result())
        for future in made:
            mapped.write(future.result())
    rows, order, labels = collector.finish()
    return _Surveyed(order, labels, collector.by_class), rows


def _place(perturbation: Perturbation, surveyed: _Surveyed, rows_digest: str) -> tuple[Indices, npt.NDArray[Any]]:
    """Return each row's secret, random place in the bundle, in the file's order, and the labels in the bundle's order."""
    places = np.empty_like(surveyed.order)
    places[surveyed.order] = perturbation.order(places.size, rows_digest)
    labels = np.empty(0) if surveyed.labels is None else np.empty_like(surveyed.labels)
    if surveyed.labels is not None:
        labels[places] = surveyed.labels
    return places, labels


def _write(
    path: Path,
    perturbation: Perturbation,
    rows_digest: str,
    mapped: BinaryIO,
    places: Indices,
    labels: npt.NDArray[Any],
    tell: Progress,
    blocks: Blocks,
) -> str:
    """Second and third pass: write the bundle durably, and return its SHA-256."""
    study, n_rows, h = perturbation.study, places.size, rotation_of(perturbation.study).n_components
    stretch = max(1, blocks.stretch_bytes // (4 * h))
    n_stretches = -(-n_rows // stretch)
    arrays, start = hashlib.sha256(), find_data_start(study, n_rows=n_rows)
    with open_scratch(path.parent, what="the bundle") as grouped:
        _group(mapped, grouped, places, stretch, h)
        mapped.truncate(0)  # makes room on the disk for the bundle
        with open_atomically(path, mode=0o600, what="the bundle") as file:

            def put(array: npt.NDArray[np.float32]) -> None:
                content = array.data.cast("B")
                file.write(content)
                arrays.update(content)

            file.seek(start)
            put(np.asarray(perturbation.anchor_representation(), dtype="<f4", order="C"))
            noise = perturbation.data_noise(n_rows, rows_digest)
            for k, rows in enumerate(
                read_ahead(_settle(grouped, places, stretch, study, noise, blocks.noise_numbers)), start=1
            ):
                put(rows)
                tell(0.8 * n_stretches + 0.2 * k, n_stretches)
            for begin in range(0, labels.size, stretch):
                put(labels[begin : begin + stretch].astype("<f4"))
            fields = bundle_fields(study, n_rows=n_rows, anchor_digest=perturbation.anchor.file_digest)
            tensors = bundle_tensors(study, n_rows)
            header = encode_signed_header(KIND, fields, tensors, arrays.hexdigest(), perturbation.vault.signing_key)
            file.seek(0)
            file.write(header)
            file.seek(0)
            return hashlib.file_digest(cast(Any, file), "sha256").hexdigest()


def _group(mapped: BinaryIO, grouped: BinaryIO, places: Indices, stretch: int, h: int) -> None:
    """Write the rows stretch by stretch, each stretch in the order of the file, and reorder `places` in the same way."""
    moved, came = np.empty_like(places), np.empty((min(stretch, places.size), h), dtype="<f4")
    cursors = np.arange(-(-places.size // stretch)) * stretch

    def sorted_blocks() -> Iterator[tuple[npt.NDArray[np.float32], Indices, npt.NDArray[np.int64]]]:
        mapped.seek(0)
        for begin in range(0, places.size, stretch):
            here = places[begin : begin + stretch]
            rows = _read_rows(mapped, came[: here.size])
            which = (here // stretch).astype(np.min_scalar_type(cursors.size))
            order = np.argsort(which, kind="stable")
            yield rows[order], here[order], np.bincount(which, minlength=cursors.size)

    for rows, here, counts in read_ahead(sorted_blocks(), at_most=1):
        end = 0
        for which in np.flatnonzero(counts):
            begin, end = end, end + int(counts[which])
            at = int(cursors[which])
            grouped.seek(4 * h * at)
            grouped.write(rows[begin:end].data.cast("B"))
            moved[at : at + end - begin] = here[begin:end]
            cursors[which] += end - begin
    places[:] = moved  # in place, because two copies would need much memory


def _read_rows(file: BinaryIO, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Fill an existing array with the next rows of a scratch file, and return it."""
    cast(io.BufferedRandom, file).readinto(rows.data.cast("B"))
    return rows


def _settle(
    grouped: BinaryIO, places: Indices, stretch: int, study: Study, noise: Stream, at_once: int
) -> Iterator[npt.NDArray[np.float32]]:
    """Yield the rows of the bundle stretch by stretch, in their places and with noise."""
    h, scale = rotation_of(study).n_components, rotation_of(study).data_noise_scale
    came = np.empty((min(stretch, places.size), h), dtype="<f4")
    grouped.seek(0)
    with ThreadPoolExecutor(THREADS) as threads:
        for begin in range(0, places.size, stretch):
            here = places[begin : begin + stretch]
            rows = np.empty((here.size, h), dtype="<f4")
            rows[here - begin] = _read_rows(grouped, came[: here.size])
            flat = rows.reshape(-1)

            def add(at: int, flat: npt.NDArray[np.float32] = flat, start: int = begin * h) -> None:
                piece = flat[at : at + at_once]
                piece[:] = add_noise(
                    piece, rotation_of(study).data_noise_scale, noise, start=start + at, precision="float32"
                )

            if scale:
                list(threads.map(add, range(0, flat.size, at_once)))
            yield rows


def require_label_consent(study: Study, is_given: bool) -> None:
    """Refuse a study that has a label unless the participant consents that the analyst sees it."""
    if study.label.kind != "none" and not is_given:
        raise InputError(
            "consent for labels",
            expected="given",
            got="none",
            cure=f"The analyst sees the column {study.label.column!r} of every row as it is. If you may share "
            "that, tick the box on the desk, or use --labels, labels=True in Python, or labels = true in a FLARE site's "
            "mooring.toml.",
        )


def _keep_anchor(study: Study, kept: Path, anchor: Path, digest: str) -> None:
    """Keep a copy of the anchor file, or refuse the file if it was changed since it was opened."""
    if kept.exists() and hash_file(kept, what="the vault") == digest:
        return
    content = read_bounded(anchor, most_anchor_bytes(study), what="the anchor file")
    if hashlib.sha256(content).hexdigest() != digest:
        raise RefusedError(
            "the anchor file", reason="it changed while it was being used", cure="Run the command again."
        )
    write_atomically(kept, content, mode=0o600, what="the vault")
