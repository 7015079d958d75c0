"""The anchor as it travels: sealed to every participant's key and signed by the dealer, so that anybody may carry it.

Whoever opens it checks the dealer's signature, the study with its roster, and that the anchor is what the study says: r × h,
centred, orthonormal.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, RefusedError
from mooring.mechanisms.rotation.anchors import check_anchor
from mooring.protocol.crypto.keys import SealingKey, SigningKey, is_sealing_key, seal
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    Fields,
    TensorSpec,
    encode_file,
    encode_header,
    read_signed,
    write_signed,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.scheme import dealing_member, rotation_of
from mooring.typing import Matrix

KIND, SUFFIX = "anchor", ".anchor"
FIELDS = ("study", "nonce", "bytes")
_WHAT = "the anchor file"
_OVERHEAD, _A_RECIPIENT = 2**16, 512
_ASK_AGAIN = "Ask the dealer for it again."


@dataclass(frozen=True, eq=False, repr=False)
class Anchor:
    """An anchor that was opened and checked; secret."""

    matrix: npt.NDArray[np.float64]
    """Of shape (r, h)."""
    digest: str
    """Of the matrix; secret, and part of what noise is derived from."""
    file_digest: str
    """Of the sealed file; public."""

    def __repr__(self) -> str:
        return "Anchor(redacted)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an anchor is not pickled")


def write_anchor(path: Path, study: Study, matrix: Matrix, signer: SigningKey) -> None:
    """Seal an anchor to every participant and write it, signed; readable by its owner only.

    Parameters
    ----------
    study : Study
        With its roster.
    matrix : array of shape (r, h)
    """
    unusable = [one.name for one in study.participants if not is_sealing_key(one.sealing_key)]
    if unusable:
        got, cure = f"another one of {', '.join(unusable)}", "Ask for the card again; another key makes another study."
        raise InputError("roster", expected="sealing keys that something can be sealed to", got=got, cure=cure)
    plain = encode_file({"anchor": matrix}, _sealed_tensors(study), {"study": study.digest})
    sealed = np.frombuffer(seal(plain, [one.sealing_key for one in study.participants]), dtype=np.uint8)
    fields: dict[str, str | int] = {"study": study.digest, "nonce": study.nonce, "bytes": sealed.size}
    write_signed(path, kind=KIND, fields=fields, arrays={"sealed": sealed}, signer=signer, mode=0o600)


def read_anchor(path: Path, study: Study, key: SealingKey) -> Anchor:
    """Open a sealed anchor, or refuse it with a reason.

    Parameters
    ----------
    key : SealingKey
        Of a participant.
    """
    most = _most_sealed_bytes(study)

    def expect_tensors(fields: Fields) -> dict[str, TensorSpec]:
        n_bytes = fields["bytes"]
        if not isinstance(n_bytes, int) or not 1 <= n_bytes <= most:
            raise RefusedError(_WHAT, reason="it is larger than an anchor of this study", cure=_ASK_AGAIN)
        study.require_same(fields, what=_WHAT)
        return {"sealed": TensorSpec("U8", (n_bytes,))}

    dealer = dealing_member(study).signing_key
    found = read_signed(path, kind=KIND, signed_by={dealer}, fields=FIELDS, tensors=expect_tensors)
    plain = key.open(found.arrays["sealed"].tobytes())
    start = encode_header(_sealed_tensors(study), {"study": study.digest})
    spec = _sealed_tensors(study)["anchor"]
    if not plain.startswith(start) or len(plain) != len(start) + spec.n_bytes:
        raise RefusedError(_WHAT, reason="what is sealed is not the anchor that the study asks for", cure=_ASK_AGAIN)
    matrix = spec.decode(plain[len(start) :])
    try:
        check_anchor(matrix)
    except InputError as problem:
        raise RefusedError(
            _WHAT,
            reason=problem.problem.rstrip("."),
            cure="Do not use it: with such an anchor the noise protects less than the study says.",
        ) from None
    return Anchor(matrix, hashlib.sha256(matrix.tobytes()).hexdigest(), found.digest)


def most_anchor_bytes(study: Study) -> int:
    """How large a study's anchor file can be."""
    return _most_sealed_bytes(study) + MOST_HEADER_BYTES + 8


def _most_sealed_bytes(study: Study) -> int:
    return 9 * math.prod(rotation_of(study).anchor_shape) + _OVERHEAD + _A_RECIPIENT * len(study.participants)


def _sealed_tensors(study: Study) -> dict[str, TensorSpec]:
    settings = rotation_of(study)
    return {"anchor": TensorSpec("F64", (settings.n_anchor_rows, settings.n_components))}
