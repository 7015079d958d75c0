"""A participant's upload as a file: representation, noisy anchor representation, labels, and nothing else.

Every number is float32, whatever it was before, and the manifest says only which study, whose key, how many rows, and which
anchor file was used. The analyst verifies before it touches an array: length, names, types and shapes from the study,
signature, roster; then, block by block, digest, finiteness and labels; then the norm of the anchor representation.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import open_atomically
from mooring.errors import RefusedError
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.container import Header, TensorSpec, require_header
from mooring.protocol.messages.projection import study_projection
from mooring.protocol.messages.signed_file import Fields, header_length, opened, signed_header, verified_header
from mooring.protocol.messages.study import Member, Study

KIND = "bundle"
SUFFIX = ".bundle"
FIELDS = ("study", "nonce", "rows", "anchor")
_WHAT = "the bundle"
_MOST_ROWS = 2**40
_BLOCK_BYTES = 2**24
_NORM_SPREADS = 8.0
_LARGEST_NORMAL = 8.6
_ASK_AGAIN = "Ask the participant to send its bundle again."
Single = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Bundle:
    """An upload that was verified.

    Attributes
    ----------
    member : Member
        Who signed it.
    digest : str
        SHA-256 of the file.
    n_rows : int
    anchor_digest : str
        Of the sealed anchor file that was used: the same for all, or somebody was dealt another anchor.
    anchor_representation : array of shape (r, h)
        B_i, in float64.
    """

    member: Member
    digest: str
    n_rows: int
    anchor_digest: str
    anchor_representation: npt.NDArray[np.float64]
    _path: Path
    _offsets: Mapping[str, int]
    _n_components: int
    _label_kind: str

    def blocks(self, rows_at_once: int = 65_536) -> Iterator[tuple[Single, npt.NDArray[Any] | None]]:
        """The rows, and labels where the study has them, a block at a time."""
        for start in range(0, self.n_rows, rows_at_once):
            count = min(rows_at_once, self.n_rows - start)
            rows = self._read("representation", start * self._n_components, count * self._n_components)
            labels = self._as_labels(self._read("labels", start, count)) if self._label_kind != "none" else None
            yield rows.reshape(count, self._n_components), labels

    def representation(self) -> Single:
        """All rows: Y_i."""
        return self._read("representation", 0, self.n_rows * self._n_components).reshape(self.n_rows, -1)

    def labels(self) -> npt.NDArray[Any] | None:
        """All labels: class numbers (int64), numbers (float64), or None."""
        return None if self._label_kind == "none" else self._as_labels(self._read("labels", 0, self.n_rows))

    def _read(self, name: str, start: int, count: int) -> Single:
        with opened(self._path, what=_WHAT) as file:
            found = np.fromfile(file, dtype="<f4", count=count, offset=self._offsets[name] + 4 * start)
        if found.size < count:
            raise _changed()
        return found.astype(np.float32)

    def _as_labels(self, stored: Single) -> npt.NDArray[Any]:
        return stored.astype(np.int64 if self._label_kind == "classes" else np.float64)


def bundle_tensors(study: Study, n_rows: int) -> dict[str, TensorSpec]:
    """Exactly the arrays of a bundle of so many rows."""
    h = study.n_components
    tensors = {
        "anchor_representation": TensorSpec("F32", (study.n_anchor_rows, h)),
        "representation": TensorSpec("F32", (n_rows, h)),
    }
    return tensors if study.label.kind == "none" else tensors | {"labels": TensorSpec("F32", (n_rows,))}


def bundle_fields(study: Study, *, n_rows: int, anchor_digest: str) -> dict[str, str | int]:
    """Exactly what the manifest of a bundle says, besides kind, format, signer and digest."""
    return {"study": study.digest, "nonce": study.nonce, "rows": n_rows, "anchor": anchor_digest}


def bundle_offsets(study: Study, n_rows: int, data_start: int) -> dict[str, int]:
    """Where each array begins in the file."""
    offsets, position = {}, data_start
    for name, spec in bundle_tensors(study, n_rows).items():
        offsets[name] = position
        position += spec.n_bytes
    return offsets


def data_start_of(study: Study, *, n_rows: int) -> int:
    """Where the arrays of a bundle of so many rows begin."""
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest="0" * 64)
    return header_length(KIND, fields, bundle_tensors(study, n_rows))


def write_small_bundle(
    path: Path,
    study: Study,
    *,
    representation: npt.NDArray[Any],
    anchor_representation: npt.NDArray[Any],
    labels: npt.NDArray[Any] | None,
    signer: SigningKey,
    anchor_digest: str = "0" * 64,
) -> str:
    """Write a bundle from arrays in memory, and return its SHA-256: for simulations and tests; rows are not shuffled."""
    n_rows = representation.shape[0]
    tensors = bundle_tensors(study, n_rows)
    arrays = {"anchor_representation": anchor_representation, "representation": representation, "labels": labels}
    stored = [np.asarray(arrays[name], dtype="<f4").reshape(spec.shape).tobytes() for name, spec in tensors.items()]
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest=anchor_digest)
    header = signed_header(KIND, fields, tensors, hashlib.sha256(b"".join(stored)).hexdigest(), signer)
    with open_atomically(path, what=_WHAT) as file:
        for part in (header, *stored):
            file.write(part)
    return hashlib.sha256(b"".join((header, *stored))).hexdigest()


def verify_bundle(path: Path, study: Study) -> Bundle:
    """Read a bundle from somebody who is not trusted, or refuse it with a reason.

    Memory does not grow with what the file claims: its claims are compared with its length first, and its arrays are read
    a block at a time.
    """
    with opened(path, what=_WHAT) as file:
        header, fields = verified_header(file, kind=KIND, fields=FIELDS, what=_WHAT)
        member = _entitled(fields, study)
        n_rows = fields["rows"]
        if not isinstance(n_rows, int) or not 1 <= n_rows <= _MOST_ROWS:
            raise RefusedError(_WHAT, reason="it has no rows, or claims more than there can be", cure=_ASK_AGAIN)
        require_header(header, bundle_tensors(study, n_rows), what=_WHAT)
        whole, arrays = hashlib.sha256(header.raw), hashlib.sha256()
        anchor, largest = b"", _largest_entry(study)
        left = {name: spec.n_bytes for name, spec in bundle_tensors(study, n_rows).items()}
        for name, n_bytes in left.items():
            for start in range(0, n_bytes, _BLOCK_BYTES):
                block = file.read(wanted := min(_BLOCK_BYTES, n_bytes - start))
                if len(block) < wanted:
                    raise _changed()
                whole.update(block)
                arrays.update(block)
                values = np.frombuffer(block, dtype="<f4")
                if not np.isfinite(values).all():
                    raise RefusedError(_WHAT, reason="it holds numbers that are not finite", cure=_ASK_AGAIN)
                if name == "labels":
                    _require_labels(values, study)
                elif name == "anchor_representation":
                    anchor += block
                elif np.abs(values).max() > largest:
                    raise RefusedError(
                        _WHAT, reason="it holds numbers larger than any row of the study becomes", cure=_ASK_AGAIN
                    )
            if name == "anchor_representation":  # before gigabytes of rows are read
                representation = np.frombuffer(anchor, dtype="<f4").astype(np.float64)
                representation = representation.reshape(study.n_anchor_rows, study.n_components)
                _require_anchor_norm(representation, study)
    if arrays.hexdigest() != fields["data"]:
        raise RefusedError(_WHAT, reason="its arrays are not those that were signed", cure=_ASK_AGAIN)
    return Bundle(
        member,
        whole.hexdigest(),
        n_rows,
        str(fields["anchor"]),
        representation,
        path,
        bundle_offsets(study, n_rows, header.data_start),
        study.n_components,
        study.label.kind,
    )


def _changed() -> RefusedError:
    return RefusedError(_WHAT, reason="it became shorter while it was read", cure=_ASK_AGAIN)


def read_header_of(path: Path) -> tuple[Header, Fields]:
    """The header of a bundle, its signature checked; no study is needed, and no array is touched."""
    with opened(path, what=_WHAT) as file:
        return verified_header(file, kind=KIND, fields=FIELDS, what=_WHAT)


def _entitled(fields: Fields, study: Study) -> Member:
    member = study.member_with_key(str(fields["signer"]))
    if member is None:
        raise RefusedError(
            _WHAT, reason="whoever signed it is not in the study's roster", cure="Only enrolled participants count."
        )
    if fields["study"] != study.digest or fields["nonce"] != study.nonce:
        raise RefusedError(
            _WHAT,
            reason="it was made for another study, or another version of this one",
            cure="Compare fingerprints: 'mooring study show' prints them.",
        )
    if not (isinstance(fields["anchor"], str) and len(fields["anchor"]) == 64):
        raise RefusedError(_WHAT, reason="it does not say which anchor was used", cure=_ASK_AGAIN)
    return member


def _require_labels(values: Single, study: Study) -> None:
    if study.label.kind == "classes":
        fine = bool(((values >= 0) & (values < len(study.label.classes)) & (values == np.rint(values))).all())
    else:
        slack = 1e-6 * (study.label.high - study.label.low)
        fine = bool(((values >= study.label.low - slack) & (values <= study.label.high + slack)).all())
    if not fine:
        raise RefusedError(_WHAT, reason="it holds labels that the study does not declare", cure=_ASK_AGAIN)


def _largest_entry(study: Study) -> float:
    """No entry of Y_i is larger: encoded numbers lie between −1 and 1, and normal numbers are below 8.6 as we draw them."""
    reach = math.sqrt(study.n_features)
    if study.projection == "gaussian":
        reach = float(np.linalg.norm(np.abs(study_projection(study).matrix).sum(axis=0)))
    return 1.01 * reach + _LARGEST_NORMAL * (1 + study.data_noise_scale)  # the map's translation is standard normal


def _require_anchor_norm(representation: npt.NDArray[np.float64], study: Study) -> None:
    """The centred norm's square is h(1 + v²(r − 1)) on average; garbage of another size would pull everybody's maps."""
    r, h, v = study.n_anchor_rows, study.n_components, study.anchor_noise_scale
    centred = representation - representation.mean(axis=0)
    found, mean = float((centred**2).sum()), h * (1 + v**2 * (r - 1))
    spread = math.sqrt(2 * (r - 1) * h * v**4 + 4 * h * v**2)
    if not abs(found - mean) <= _NORM_SPREADS * spread + 1e-3 * mean:
        raise RefusedError(
            _WHAT,
            reason=f"its anchor representation is {math.sqrt(found / mean):.3g} times as large as the study makes it",
            cure="Ask the participant whether it used the study's anchor and noise.",
        )
