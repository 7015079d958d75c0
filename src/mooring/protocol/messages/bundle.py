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

from mooring.atomic_io import open_plain_file
from mooring.errors import RefusedError
from mooring.protocol.crypto.derivation import LARGEST_NORMAL
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.projection import study_projection
from mooring.protocol.messages.signed_file import (
    Fields,
    Header,
    TensorSpec,
    measure_signed_header,
    read_signed_header,
    require_header,
    write_signed,
)
from mooring.protocol.messages.study import Study

KIND = "bundle"
SUFFIX = ".bundle"
FIELDS = ("study", "nonce", "rows", "anchor")
_WHAT = "the bundle"
_MOST_ROWS = 2**40
_BLOCK_BYTES = 2**24
_NORM_SPREADS = 8.0

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
    path : Path
    """

    member: Member
    digest: str
    n_rows: int
    anchor_digest: str
    anchor_representation: npt.NDArray[np.float64]
    path: Path
    _offsets: Mapping[str, int]
    _n_components: int
    _label_kind: str

    def blocks(
        self, rows_at_once: int = 65_536, *, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[Single, npt.NDArray[Any] | None]]:
        """Rows `start` to `stop`, and their labels where the study has them, a block at a time.

        Parameters
        ----------
        rows_at_once, start : int
        stop : int, optional
            Default: the end.
        """
        stop = self.n_rows if stop is None else stop
        for first in range(start, stop, rows_at_once):
            count = min(rows_at_once, stop - first)
            rows = self._read("representation", first * self._n_components, count * self._n_components)
            labels = None
            if self._label_kind != "none":
                dtype = np.int64 if self._label_kind == "classes" else np.float64
                labels = self._read("labels", first, count).astype(dtype)
            yield rows.reshape(count, self._n_components), labels

    def representation(self) -> Single:
        """All rows: Y_i."""
        return next(self.blocks(self.n_rows))[0]

    def labels(self) -> npt.NDArray[Any] | None:
        """All labels: class numbers (int64), numbers (float64), or None."""
        return next(self.blocks(self.n_rows))[1]

    def _read(self, name: str, start: int, count: int) -> Single:
        with open_plain_file(self.path, what=_WHAT) as file:
            found = np.fromfile(file, dtype="<f4", count=count, offset=self._offsets[name] + 4 * start)
        if found.size < count:
            raise _refuse("it became shorter while it was read")
        return found.astype(np.float32)


def bundle_tensors(study: Study, n_rows: int) -> dict[str, TensorSpec]:
    """Exactly the arrays of a bundle of so many rows."""
    h = study.n_components
    tensors = {
        "anchor_representation": TensorSpec("F32", (study.n_anchor_rows, h)),
        "representation": TensorSpec("F32", (n_rows, h)),
    }
    return tensors if study.label.kind == "none" else tensors | {"labels": TensorSpec("F32", (n_rows,))}


def bundle_fields(study: Study, *, n_rows: int, anchor_digest: str) -> dict[str, str | int]:
    """Exactly what the manifest of a bundle says, besides kind, format, signer and digest.

    Parameters
    ----------
    study : Study
    n_rows : int
    anchor_digest : str
        Of the sealed anchor file.
    """
    return {"study": study.digest, "nonce": study.nonce, "rows": n_rows, "anchor": anchor_digest}


def bundle_offsets(study: Study, n_rows: int, data_start: int) -> dict[str, int]:
    """Where each array begins in the file.

    Parameters
    ----------
    study : Study
    n_rows, data_start : int
    """
    offsets, position = {}, data_start
    for name, spec in bundle_tensors(study, n_rows).items():
        offsets[name] = position
        position += spec.n_bytes
    return offsets


def find_data_start(study: Study, *, n_rows: int) -> int:
    """Where the arrays of a bundle of so many rows begin."""
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest="0" * 64)
    return measure_signed_header(KIND, fields, bundle_tensors(study, n_rows))


def write_bundle(
    path: Path,
    study: Study,
    *,
    representation: npt.NDArray[Any],
    anchor_representation: npt.NDArray[Any],
    labels: npt.NDArray[Any] | None,
    signer: SigningKey,
    anchor_digest: str = "0" * 64,
) -> str:
    """Write a bundle from arrays in memory, and return its SHA-256: for simulations and tests; rows are not shuffled.

    Parameters
    ----------
    path : Path
    study : Study
    representation : array of shape (n, h)
    anchor_representation : array of shape (r, h)
    labels : array of shape (n,) or None
    signer : SigningKey
    anchor_digest : str
        Of the sealed anchor file.
    """
    given = {"anchor_representation": anchor_representation, "representation": representation, "labels": labels}
    n_rows = representation.shape[0]
    specs = bundle_tensors(study, n_rows)
    arrays = {name: np.asarray(given[name], dtype=np.float32).reshape(spec.shape) for name, spec in specs.items()}
    fields = bundle_fields(study, n_rows=n_rows, anchor_digest=anchor_digest)
    return write_signed(path, kind=KIND, fields=fields, arrays=arrays, signer=signer)


def verify_bundle(path: Path, study: Study) -> Bundle:
    """Read a bundle from somebody who is not trusted, or refuse it with a reason.

    Memory does not grow with what the file claims: its claims are compared with its length first, and its arrays are read
    a block at a time.
    """
    with open_plain_file(path, what=_WHAT) as file:
        header, fields = read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)
        member = _find_signer(fields, study)
        n_rows = fields["rows"]
        if not isinstance(n_rows, int) or not 1 <= n_rows <= _MOST_ROWS:
            raise _refuse("it has no rows, or claims more than there can be")
        require_header(header, bundle_tensors(study, n_rows), what=_WHAT)
        whole, arrays = hashlib.sha256(header.raw), hashlib.sha256()
        anchor, largest = b"", _largest_entry(study)
        left = {name: spec.n_bytes for name, spec in bundle_tensors(study, n_rows).items()}
        for name, n_bytes in left.items():
            for start in range(0, n_bytes, _BLOCK_BYTES):
                block = file.read(wanted := min(_BLOCK_BYTES, n_bytes - start))
                if len(block) < wanted:
                    raise _refuse("it became shorter while it was read")
                whole.update(block)
                arrays.update(block)
                values = np.frombuffer(block, dtype="<f4")
                if not np.isfinite(values).all():
                    raise _refuse("it holds numbers that are not finite")
                if name == "labels":
                    _require_labels(values, study)
                elif name == "anchor_representation":
                    anchor += block
                elif np.abs(values).max() > largest:
                    raise _refuse("it holds numbers larger than any row of the study becomes")
            if name == "anchor_representation":  # before gigabytes of rows are read
                representation = np.frombuffer(anchor, dtype="<f4").astype(np.float64)
                representation = representation.reshape(study.n_anchor_rows, study.n_components)
                _require_anchor_norm(representation, study)
    if arrays.hexdigest() != fields["data"]:
        raise _refuse("its arrays are not those that were signed")
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


def read_bundle_header(path: Path) -> tuple[Header, Fields]:
    """The header of a bundle, its signature checked; no study is needed, and no array is touched."""
    with open_plain_file(path, what=_WHAT) as file:
        return read_signed_header(file, kind=KIND, fields=FIELDS, what=_WHAT)


def _find_signer(fields: Fields, study: Study) -> Member:
    member = study.member_with_key(str(fields["signer"]))
    if member is None:
        raise RefusedError(
            _WHAT, reason="whoever signed it is not in the study's roster", cure="Only enrolled participants count."
        )
    study.require_same(fields, what=_WHAT)
    if not (isinstance(fields["anchor"], str) and len(fields["anchor"]) == 64):
        raise _refuse("it does not say which anchor was used")
    return member


def _require_labels(values: Single, study: Study) -> None:
    if study.label.kind == "classes":
        fine = bool(((values >= 0) & (values < len(study.label.classes)) & (values == np.rint(values))).all())
    else:
        slack = 1e-6 * (study.label.high - study.label.low)
        fine = bool(((values >= study.label.low - slack) & (values <= study.label.high + slack)).all())
    if not fine:
        raise _refuse("it holds labels that the study does not declare")


def _largest_entry(study: Study) -> float:
    """No entry of Y_i is larger: encoded numbers lie between −1 and 1, and no normal number is larger as we draw them."""
    reach = math.sqrt(study.n_features)
    if study.projection == "gaussian" and study.format == 1:
        reach = float(np.linalg.norm(np.abs(study_projection(study).matrix).sum(axis=0)))
    return 1.01 * reach + LARGEST_NORMAL * (1 + study.data_noise_scale)  # the map's translation is standard normal


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


def _refuse(reason: str) -> RefusedError:
    return RefusedError(_WHAT, reason=reason, cure=_ASK_AGAIN)
