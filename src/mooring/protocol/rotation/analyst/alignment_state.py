"""The alignment in the analyst's work folder: maps and record in one file, so that a crash cannot separate them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from mooring.alignment import Alignment
from mooring.atomic_io import open_plain_file, write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.rotation.settings import RotationSettings
from mooring.protocol.messages.signed_file import TensorSpec, encode_file, read_header, require_header
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Contribution, Finding, GatherRecord
from mooring.protocol.rotation.scheme import rotation_of
from mooring.serialization import Count, Record, Rows, count_noun
from mooring.theory import transition_scale
from mooring.typing import Matrix

STATE_FILE, RECORD_FILE = "alignment.safetensors", "alignment.json"
_WHAT = "the alignment"
_MOST_RECORD_BYTES = 2**28  # a million participants
_MISFIT = "its anchor representation does not fit the others', or cannot be aligned"
_ALIGN_AGAIN = "Run 'mooring align' again."


@dataclass(frozen=True)
class AlignedParticipant(Record):
    """A participant's bundle, and how well its anchor representation fits the others'."""

    name: str
    rows: Count
    digest: str
    """SHA-256 of the bundle."""
    fit: float
    """Correlation of the participant's anchor representation with the others'."""
    flagged: bool = False
    """Whether the bundle was set aside, because its anchor representation does not fit or cannot be aligned."""
    late: bool = False
    """Whether the bundle came after the others were aligned."""

    def __post_init__(self) -> None:
        if not 0 < self.rows < 2**48:
            raise InputError("rows", expected="at least 1 and below 2⁴⁸", got="a number outside", cure=_ALIGN_AGAIN)

    @property
    def state(self) -> str:
        """The state of the participant's upload in words."""
        late = ", late" if self.late else ""
        return f"accepted{late}; set aside: does not fit the others' anchor" if self.flagged else f"accepted{late}"


@dataclass(frozen=True)
class AlignmentRecord(GatherRecord):
    """The record of an alignment, alignment.json."""

    mechanism: ClassVar[str] = "rotation"

    participants: tuple[AlignedParticipant, ...]
    set_aside: tuple[AlignedParticipant, ...]
    method: str
    iterations: Count | None
    termination: str
    """Why the solver stopped."""
    converged: bool
    residual: float | None
    misfit: float | None
    certificate: str | None
    """What is proved about the optimum, in words; None if no proof was tried."""
    anchor_noise_scale: float
    transition_scale: float
    """The anchor noise near which the best alignment gets hard to find."""
    note: str
    command: str = ""
    """The command that was run."""
    is_certified: bool = False
    """Whether the alignment is proved to be the global optimum."""
    newcomers: tuple[str, ...] | None = None
    """Participants that were admitted by the last run, while everybody else kept its map; None if that run aligned all."""

    @classmethod
    def of(
        cls,
        settings: RotationSettings,
        alignment: Alignment,
        participants: Sequence[AlignedParticipant],
        set_aside: Sequence[AlignedParticipant],
        *,
        note: str,
        command: str,
    ) -> AlignmentRecord:
        """Return the record of an alignment."""
        certificate = alignment.certificate
        return cls(
            participants=tuple(participants),
            set_aside=tuple(set_aside),
            method=settings.method,
            iterations=alignment.iterations,
            termination=str(alignment.termination),
            converged=alignment.converged,
            residual=_finite_or_none(alignment.residual),
            misfit=_finite_or_none(alignment.misfit),
            certificate=None if certificate is None else str(certificate),
            anchor_noise_scale=settings.anchor_noise_scale,
            transition_scale=transition_scale(len(participants), settings.n_components, settings.n_anchor_rows),
            note=note,
            command=command,
            is_certified=certificate is not None and certificate.certified,
        )

    def __post_init__(self) -> None:
        names = [participant.name for participant in self.participants]
        if len(set(names)) < len(names):
            raise InputError("participants", expected="each named once", got="a name twice", cure=_ALIGN_AGAIN)

    def list_left_out(self) -> dict[str, str]:
        """Return the participants that were set aside, and why."""
        return {entry.name: _MISFIT for entry in self.set_aside}

    def describe(self) -> list[str]:
        """Return sentences on how well the participants fit each other, and where the rows are."""
        lines = list[str]()
        if self.newcomers is not None:
            admitted = f"Admitted {', '.join(self.newcomers)}" if self.newcomers else "Nobody new was admitted"
            lines.append(f"{admitted}; the maps of all others are unchanged.")
        worst = min(self.participants, key=lambda entry: entry.fit)
        n_rows = sum(entry.rows for entry in self.participants)
        lines.append(
            f"Aligned {count_noun(len(self.participants), 'participant')}, {n_rows:,} rows. The lowest correlation with "
            f"the others' anchor is {worst.fit:.2f} ({worst.name}); 1 is perfect, and noise lowers it for everybody alike."
        )
        if self.anchor_noise_scale:
            v, transition = self.anchor_noise_scale, self.transition_scale
            side = "below" if v < transition else "above"
            near = f"is {side} {transition:.3g}, near which the best alignment gets hard to find"
            lines.append(f"The anchor noise, {v:g}, {near}. {self.termination}")
        lines += [] if self.certificate is None else [self.certificate]
        lines += [f"Note: {self.note}"] if self.note else []
        return [*lines, "The collaboration matrix is in the work folder."]

    def list_contributions(self) -> Rows:
        """Return one line per participant, headings first."""
        return [
            ("participant", "rows", "correlation with the others' anchor"),
            *((entry.name, f"{entry.rows:,}", f"{entry.fit:.2f}") for entry in self.participants),
            *((name, "set aside", reason) for name, reason in self.list_left_out().items()),
        ]

    def list_states(self) -> dict[str, Contribution]:
        """Return the state of each participant's upload, by name."""
        everybody = (*self.participants, *self.set_aside)
        return {entry.name: Contribution(entry.state, entry.rows, entry.fit) for entry in everybody}

    def list_findings(self) -> tuple[Finding, ...]:
        """Return a finding on the participants that were set aside, and one if the solver did not converge."""
        flagged = tuple(entry.name for entry in self.set_aside)
        findings = []
        if flagged:
            words = f"Set aside, because its anchor does not fit the others': {', '.join(flagged)}."
            findings.append(Finding("flagged", words, flagged))
        if not self.converged:
            findings.append(Finding("not converged", "The alignment did not converge."))
        return tuple(findings)

    def list_measures(self) -> Rows:
        """Return how the alignment was computed, and how good it is."""
        v, transition = self.anchor_noise_scale, self.transition_scale
        share = (
            f"v = {v:.3g}, which is {v / transition:.0%} of the transition scale {transition:.3g}, near which the best "
        )
        share += "alignment gets hard to find (an empirical reference)"
        rows = [
            ("why the solver stopped", self.termination or "not known"),
            ("iterations", "not known" if self.iterations is None else f"{self.iterations}"),
            ("residual", "not known" if self.residual is None else f"{self.residual:.3g}"),
            ("misfit of the anchors", "not known" if self.misfit is None else f"{self.misfit:.3g}"),
            ("is it the global optimum?", self.certificate or "not shown: no certificate was computed"),
            ("anchor noise", share),
        ]
        return [*rows, ("note", self.note)] if self.note else rows


@dataclass(frozen=True, eq=False)
class AlignmentState:
    """The common space and everybody's map to it: rows T of participant i become (T − mean_i) R_i + origin."""

    study_digest: str
    record: AlignmentRecord
    """Also written as alignment.json."""
    orthogonals: Matrix
    """The orthogonal matrices of the alignment maps, of shape (p, h, h)."""
    means: Matrix
    """Mean rows of the anchor representations, of shape (p, h)."""
    template: Matrix
    """The matrix of shape (r, h) that late joiners are aligned to."""
    origin: Matrix
    """The row that the mean of every anchor representation is mapped to, of shape (h,)."""

    @classmethod
    def of(cls, study_digest: str, record: AlignmentRecord, alignment: Alignment, means: Matrix) -> AlignmentState:
        """Return the state of an alignment of anchor representations with these mean rows."""
        orthogonals = np.stack([np.asarray(map.orthogonal) for map in alignment.maps])
        template, origin = (np.ascontiguousarray(part) for part in (alignment.template, alignment.origin))
        return cls(study_digest, record, orthogonals, means, template, origin)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the aligned participants, in the order of the maps."""
        return tuple(entry.name for entry in self.record.participants)

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of each aligned participant, by name."""
        return {entry.name: entry.rows for entry in self.record.participants}

    @property
    def space_digest(self) -> str:
        """SHA-256 of template and origin, which does not change when late joiners are admitted."""
        return hashlib.sha256(self.template.tobytes() + self.origin.tobytes()).hexdigest()

    def map_digest(self, index: int) -> str:
        """Return the SHA-256 digest of one participant's map."""
        parts = (self.orthogonals[index], self.means[index], self.origin)
        return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()

    def align_rows(self, index: int, rows: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
        """Return one participant's rows in the common space."""
        moved = (rows.astype(np.float64) - self.means[index]) @ self.orthogonals[index] + self.origin
        return np.asarray(moved, dtype=np.float32)


def write_space(folder: Path, space: AlignmentState) -> None:
    """Write the alignment, and then its record as a separate file for people and reports."""
    text = space.record.to_json().encode()
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
    """Read the alignment that `write_space` wrote."""
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
        tensors = _tensors(p, *rotation_of(study).anchor_shape, n_bytes)
        require_header(header, tensors, what=_WHAT)
        arrays = {name: spec.decode(file.read(spec.n_bytes)) for name, spec in tensors.items()}
    record = decode_record(arrays.pop("record"), p)
    if not all(np.isfinite(array).all() for array in arrays.values()):
        raise RefusedError(_WHAT, reason="it is damaged", cure=_ALIGN_AGAIN)
    if not {entry.name for entry in record.participants} <= {member.name for member in study.participants}:
        raise RefusedError(_WHAT, reason="it names participants who are not in the study", cure=_ALIGN_AGAIN)
    return AlignmentState(study.digest, record, **arrays)


def decode_record(text: npt.NDArray[Any], n_participants: int) -> AlignmentRecord:
    """Read the record of an alignment of `n_participants`; any other record is refused as damaged."""
    try:
        record = AlignmentRecord.from_json(text.tobytes())
    except InputError:
        record = None
    if record is None or len(record.participants) != n_participants:
        raise RefusedError(_WHAT, reason="it is damaged", cure=_ALIGN_AGAIN)
    return record


def _finite_or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _tensors(p: int, r: int, h: int, record_bytes: int) -> dict[str, TensorSpec]:
    return {
        "orthogonals": TensorSpec("F64", (p, h, h)),
        "means": TensorSpec("F64", (p, h)),
        "template": TensorSpec("F64", (r, h)),
        "origin": TensorSpec("F64", (h,)),
        "record": TensorSpec("U8", (record_bytes,)),
    }
