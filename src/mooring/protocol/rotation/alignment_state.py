"""What the analyst keeps of an alignment: one file, so that no crash can part maps and record."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import open_plain_file, write_atomically
from mooring.errors import RefusedError, StorageError
from mooring.protocol.messages.signed_file import TensorSpec, encode_file, read_header, require_header
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

STATE_FILE, RECORD_FILE = "alignment.safetensors", "alignment.json"
_WHAT = "the alignment"
_MOST_RECORD_BYTES = 2**28  # a million participants
_ALIGN_AGAIN = "Run 'mooring align' again."


@dataclass(frozen=True, eq=False)
class AlignmentState:
    """Where everybody's rows are brought to, and how.

    Notes
    -----
    Rows T of participant i become (T − mean_i) R_i + origin.
    """

    study_digest: str
    record: dict[str, Any]
    """What `alignment.json` says: of each participant its name, rows, the bundle's digest, fit and whether it came
    late."""
    orthogonals: Matrix
    """Of shape (p, h, h)."""
    means: Matrix
    """Of shape (p, h): the mean rows of the anchor representations."""
    template: Matrix
    """Of shape (r, h): what late joiners are aligned to."""
    origin: Matrix
    """Of shape (h,)."""

    @property
    def names(self) -> tuple[str, ...]:
        """Who is in it, in the order of the maps."""
        return tuple(entry["name"] for entry in self.record["participants"])

    @property
    def rows(self) -> dict[str, int]:
        """How many rows each sent."""
        return {entry["name"]: int(entry["rows"]) for entry in self.record["participants"]}

    @property
    def space_digest(self) -> str:
        """SHA-256 of template and origin: the same as long as late joiners only are added."""
        return hashlib.sha256(self.template.tobytes() + self.origin.tobytes()).hexdigest()

    def map_digest(self, index: int) -> str:
        """SHA-256 of one participant's map."""
        parts = (self.orthogonals[index], self.means[index], self.origin)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

    def align_rows(self, index: int, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Bring one participant's rows into the common space."""
        moved = (rows.astype(np.float64) - self.means[index]) @ self.orthogonals[index] + self.origin
        return np.asarray(moved, dtype=np.float32)


def write_space(folder: Path, space: AlignmentState) -> None:
    """Keep an alignment: the file that counts, then the record for people and reports."""
    text = json.dumps(space.record, indent=2, ensure_ascii=False, allow_nan=False).encode()
    r, h = space.template.shape
    arrays: dict[str, npt.NDArray[Any]] = {
        "orthogonals": space.orthogonals,
        "means": space.means,
        "template": space.template,
        "origin": space.origin,
        "record": np.frombuffer(text, dtype=np.uint8),
    }
    metadata = {"study": space.study_digest, "participants": str(len(space.names)), "record": str(len(text))}
    tensors = _tensors(len(space.names), r, h, len(text))
    write_atomically(folder / STATE_FILE, encode_file(arrays, tensors, metadata), mode=0o600, what=_WHAT)
    write_atomically(folder / RECORD_FILE, text, what=_WHAT)


def read_space(folder: Path, study: Study) -> AlignmentState:
    """Read back what `write_space` kept."""
    path = folder / STATE_FILE
    if not path.is_file():
        raise StorageError(_WHAT, reason="there is none in this folder", cure="Run 'mooring align' first.")
    with open_plain_file(path, what=_WHAT) as file:
        header = read_header(file, what=_WHAT)
        if header.metadata.get("study") != study.digest:
            raise RefusedError(_WHAT, reason="it belongs to another study, or another version", cure=_ALIGN_AGAIN)
        try:
            p, n_bytes = int(header.metadata["participants"]), int(header.metadata["record"])
        except (KeyError, ValueError):
            raise RefusedError(_WHAT, reason="its header cannot be read", cure=_ALIGN_AGAIN) from None
        if not 0 <= n_bytes <= _MOST_RECORD_BYTES:
            raise RefusedError(_WHAT, reason="its record is too large", cure=_ALIGN_AGAIN)
        tensors = _tensors(p, study.n_anchor_rows, study.n_components, n_bytes)
        require_header(header, tensors, what=_WHAT)
        arrays = {name: spec.decode(file.read(spec.n_bytes)) for name, spec in tensors.items()}
    record = decode_record(arrays.pop("record"), p)
    if record is None or not all(np.isfinite(array).all() for array in arrays.values()):
        raise RefusedError(_WHAT, reason="it is damaged", cure=_ALIGN_AGAIN)
    if not {entry["name"] for entry in record["participants"]} <= {member.name for member in study.participants}:
        raise RefusedError(_WHAT, reason="it names others than the study's participants", cure=_ALIGN_AGAIN)
    return AlignmentState(study.digest, record, **arrays)


def decode_record(text: npt.NDArray[Any], n_participants: int) -> dict[str, Any] | None:
    """The record of an alignment of so many participants, or None if it is damaged."""
    try:
        record = json.loads(text.tobytes())
        fine = isinstance(record, dict) and all(isinstance(record.get(key), str) for key in ("note", "table"))
        entries = record["participants"]
        for entry in entries:
            fine &= all(isinstance(entry[key], str) for key in ("name", "digest"))
            fine &= type(entry["rows"]) is int and 0 < entry["rows"] < 2**48 and type(entry["fit"]) is float
        fine &= len({entry["name"] for entry in entries}) == len(entries) == n_participants
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return record if fine else None


def add_newcomers(
    space: AlignmentState, entries: Sequence[dict[str, Any]], maps: Sequence[tuple[Matrix, Matrix]], note: str
) -> AlignmentState:
    """The same space with further participants; nobody else moves.

    Parameters
    ----------
    entries : sequence of dict
        Their records.
    maps : sequence of (orthogonal, mean)
    """
    record = {**space.record, "participants": [*space.record["participants"], *entries], "note": note}
    orthogonals = np.concatenate([space.orthogonals, [orthogonal for orthogonal, _ in maps]])
    means = np.concatenate([space.means, [mean for _, mean in maps]])
    return AlignmentState(space.study_digest, record, orthogonals, means, space.template, space.origin)


def finite_or_none(value: float) -> float | None:
    """A number as JSON can hold it."""
    return value if math.isfinite(value) else None


def _tensors(p: int, r: int, h: int, record_bytes: int) -> dict[str, TensorSpec]:
    return {
        "orthogonals": TensorSpec("F64", (p, h, h)),
        "means": TensorSpec("F64", (p, h)),
        "template": TensorSpec("F64", (r, h)),
        "origin": TensorSpec("F64", (h,)),
        "record": TensorSpec("U8", (record_bytes,)),
    }
