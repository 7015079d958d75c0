"""The anchor, dealt by one participant to all: sealed to each one's key, signed by the dealer, carried by anybody.

The dealer derives it from its own secret and the study, so dealing twice deals the same anchor. Whoever opens it checks the
dealer's signature, the study with its roster, and that the anchor is what the study says: r × h, centred, orthonormal.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import write_atomically
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.anchors import anchor_from_gaussian, check_anchor
from mooring.protocol.crypto.derivation import Stream, derive
from mooring.protocol.crypto.keys import is_sealing_key, seal
from mooring.protocol.messages.container import TensorSpec, array_from, header_bytes, pack
from mooring.protocol.messages.signed_file import Fields, digest_of, opened, read_signed, write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.storage.vault import Vault

KIND = "anchor"
SUFFIX = ".anchor"
_FIELDS = ("study", "nonce", "bytes")
_OVERHEAD = 2**16
_A_RECIPIENT = 512
_KEPT = "dealt.anchor"


@dataclass(frozen=True, eq=False, repr=False)
class Anchor:
    """An anchor that was opened and checked; secret.

    Attributes
    ----------
    matrix : array of shape (r, h)
    digest : str
        Of the matrix; secret, and part of what noise is derived from.
    file_digest : str
        Of the sealed file; public.
    """

    matrix: npt.NDArray[np.float64]
    digest: str
    file_digest: str

    def __repr__(self) -> str:
        return "Anchor(redacted)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an anchor is not pickled")


def deal_anchor(vault: Vault, study: Study, path: Path) -> str:
    """Make the study's anchor and write it, sealed and signed; the dealer's part. Returns the file's SHA-256."""
    member = vault.membership(study)
    if member != study.dealing_member:
        raise InputError(
            "dealer",
            expected=f"{study.dealing_member.name!r}, as the study says",
            got=repr(member.name),
            cure="Let that participant deal the anchor.",
        )
    unusable = [one.name for one in study.participants if not is_sealing_key(one.sealing_key)]
    if unusable:
        raise InputError(
            "roster",
            expected="sealing keys that something can be sealed to",
            got=f"another one of {', '.join(unusable)}",
            cure="Ask for the card again; another key makes another study.",
        )
    with vault.locked():
        kept = vault.study_folder(study) / _KEPT
        if not kept.exists():
            shape = (study.n_anchor_rows, study.n_components)
            key = derive(vault.master, "anchor", {"study": study.digest, "shape": list(shape)})
            matrix = anchor_from_gaussian(Stream(key).normals(0, shape[0] * shape[1]).reshape(shape))
            plain = pack({"anchor": matrix}, _inner(study), {"study": study.digest})
            sealed = np.frombuffer(seal(plain, [one.sealing_key for one in study.participants]), dtype=np.uint8)
            fields: dict[str, str | int] = {"study": study.digest, "nonce": study.nonce, "bytes": sealed.size}
            arrays = {"sealed": sealed}
            write_signed(kept, kind=KIND, fields=fields, arrays=arrays, signer=vault.signing_key, mode=0o600)
        with opened(kept, what="the anchor file") as file:
            write_atomically(path, file.read(), what="the anchor file")
    return digest_of(path, what="the anchor file")


def open_anchor(vault: Vault, study: Study, path: Path) -> Anchor:
    """Open a dealt anchor, or refuse it with a reason."""
    vault.membership(study)
    what = "the anchor file"
    most = study.n_anchor_rows * study.n_components * 9 + _OVERHEAD + _A_RECIPIENT * len(study.participants)

    def tensors(fields: Fields) -> dict[str, TensorSpec]:
        n_bytes = fields["bytes"]
        if not isinstance(n_bytes, int) or not 1 <= n_bytes <= most:
            raise RefusedError(what, reason="it is larger than an anchor of this study", cure=_ASK_AGAIN)
        if fields["study"] != study.digest or fields["nonce"] != study.nonce:
            raise RefusedError(
                what,
                reason="it was dealt for another study, another roster, or another version of this one",
                cure="Compare fingerprints with the others: 'mooring study show' prints them.",
            )
        return {"sealed": TensorSpec("U8", (n_bytes,))}

    dealer = study.dealing_member.signing_key
    found = read_signed(path, kind=KIND, signed_by=dealer, fields=_FIELDS, tensors=tensors)
    plain = vault.sealing_key.open(found.arrays["sealed"].tobytes())
    start = header_bytes(_inner(study), {"study": study.digest})
    spec = _inner(study)["anchor"]
    if not plain.startswith(start) or len(plain) != len(start) + spec.n_bytes:
        raise RefusedError(what, reason="what is sealed is not the anchor that the study asks for", cure=_ASK_AGAIN)
    matrix = array_from(plain[len(start) :], spec)
    try:
        check_anchor(matrix)
    except InputError as problem:
        raise RefusedError(
            what,
            reason=f"the anchor must be {problem.expected}, and has {problem.got}",
            cure="Do not use it: with such an anchor the noise protects less than the study says.",
        ) from None
    return Anchor(matrix, hashlib.sha256(matrix.tobytes()).hexdigest(), found.digest)


_ASK_AGAIN = "Ask the dealer for it again."


def _inner(study: Study) -> dict[str, TensorSpec]:
    return {"anchor": TensorSpec("F64", (study.n_anchor_rows, study.n_components))}
