"""The anchor, and the secrets with which a participant perturbs its rows and the anchor.

The anchor is encrypted with a key of its own, and that key is sealed to every participant's key (HPKE). The dealer signs
the file, so anybody may carry it. Whoever opens the file checks the dealer's signature, the study with its roster, and that
the anchor is as the study demands: r × h, centred, with orthonormal columns.

A participant's map, its anchor noise, its private-data noise and the order of its rows are derived from the vault's secret
and from the purpose of each. The map and the anchor noise do not depend on the rows, so that no change of the rows can lead
to a second, different anchor representation. The noise on rows and the order of the rows depend on the rows, but not on
their order in the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import hash_file, open_plain_file, write_atomically
from mooring.errors import InputError, RefusedError
from mooring.mechanisms.rotation.anchors import anchor_from_gaussian, check_anchor
from mooring.mechanisms.rotation.kernel import add_noise, map_rows
from mooring.protocol.crypto.derivation import SecretMap, Stream, derive
from mooring.protocol.crypto.keys import BOX_OVERHEAD, LOCK_OVERHEAD, Secret, SigningKey, lock, seal_box, unlock
from mooring.protocol.messages.card import Member
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
from mooring.protocol.participant.membership import find_membership
from mooring.protocol.rotation.scheme import dealing_member, rotation_of
from mooring.protocol.storage.vault import Vault
from mooring.typing import Matrix

KIND, SUFFIX = "anchor", ".anchor"
FIELDS = ("study", "nonce")
_WHAT = "the anchor file"
_KEY_BYTES = 32
_ASK_AGAIN = "Ask the dealer for it again."
_KEPT, _USED = "dealt.anchor", "used.anchor"


@dataclass(frozen=True, eq=False, repr=False)
class Anchor:
    """An anchor that was opened and checked; secret."""

    matrix: npt.NDArray[np.float64]
    """The anchor, of shape (r, h)."""
    digest: str
    """SHA-256 of the matrix; this digest is secret, because noise is derived from it."""
    file_digest: str
    """SHA-256 of the sealed file; public."""

    def __repr__(self) -> str:
        return "Anchor(redacted)"

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("an anchor is not pickled")


def write_anchor(path: Path, study: Study, matrix: Matrix, signer: SigningKey) -> None:
    """Seal an anchor of shape (r, h) to every participant, sign it, and write it with permissions for its owner only."""
    key, plain = Secret.draw(), encode_file({"anchor": matrix}, _sealed_tensors(study), {"study": study.digest})
    boxes = [seal_box(key.reveal(), member.sealing_key, info=_context(study, member)) for member in study.participants]
    parts = {"keys": b"".join(boxes), "sealed": lock(plain, key)}
    arrays = {name: np.frombuffer(parts[name], np.uint8).reshape(spec.shape) for name, spec in _tensors(study).items()}
    fields: dict[str, str | int] = {"study": study.digest, "nonce": study.nonce}
    write_signed(path, kind=KIND, fields=fields, arrays=arrays, signer=signer, mode=0o600)


def open_anchor(vault: Vault, study: Study, path: Path) -> Anchor:
    """Open the dealer's anchor as the participant that owns a vault, or refuse it with a reason."""

    def expect_tensors(fields: Fields) -> dict[str, TensorSpec]:
        study.require_same(fields, what=_WHAT)
        return _tensors(study)

    dealer, member = dealing_member(study).signing_key, find_membership(vault, study)
    opened = read_signed(path, kind=KIND, signed_by={dealer}, fields=FIELDS, tensors=expect_tensors)
    box = opened.arrays["keys"][study.participants.index(member)].tobytes()
    try:
        key = vault.sealing_key.open(box, info=_context(study, member))
    except RefusedError:
        key = b""
    plain = unlock(opened.arrays["sealed"].tobytes(), Secret(key)) if len(key) == _KEY_BYTES else None
    if plain is None:
        cure = "Check that your card is in the study's roster, and ask the dealer for the file again."
        raise RefusedError(_WHAT, reason="it is not sealed to your key, or it is damaged", cure=cure)
    start = encode_header(_sealed_tensors(study), {"study": study.digest})
    spec = _sealed_tensors(study)["anchor"]
    if not plain.startswith(start) or len(plain) != len(start) + spec.n_bytes:
        raise RefusedError(_WHAT, reason="its content is not an anchor of the study's size", cure=_ASK_AGAIN)
    matrix = spec.decode(plain[len(start) :])
    try:
        check_anchor(matrix)
    except InputError as problem:
        raise RefusedError(
            _WHAT,
            reason=problem.problem.rstrip("."),
            cure="Do not use it: with such an anchor the noise protects less than the study says.",
        ) from None
    return Anchor(matrix, hashlib.sha256(matrix.tobytes()).hexdigest(), opened.digest)


def most_anchor_bytes(study: Study) -> int:
    """Return the largest possible size of a study's anchor file."""
    return sum(spec.n_bytes for spec in _tensors(study).values()) + MOST_HEADER_BYTES + 8


def _tensors(study: Study) -> dict[str, TensorSpec]:
    """Return the arrays of an anchor file: the anchor's key, sealed to every participant, and the encrypted anchor."""
    inside = _sealed_tensors(study)
    n_bytes = len(encode_header(inside, {"study": study.digest})) + inside["anchor"].n_bytes
    return {
        "keys": TensorSpec("U8", (len(study.participants), BOX_OVERHEAD + _KEY_BYTES)),
        "sealed": TensorSpec("U8", (LOCK_OVERHEAD + n_bytes,)),
    }


def _context(study: Study, member: Member) -> bytes:
    """Return the context for which the key is sealed; HPKE opens the key only with the same `info`."""
    return b"mooring anchor key\n" + bytes.fromhex(study.digest + member.signing_key)


def _sealed_tensors(study: Study) -> dict[str, TensorSpec]:
    settings = rotation_of(study)
    return {"anchor": TensorSpec("F64", (settings.n_anchor_rows, settings.n_components))}


def deal_anchor(vault: Vault, study: Study, path: Path) -> str:
    """Make the study's anchor from the dealer's secret, write it sealed and signed, and return the file's SHA-256.

    The vault keeps the sealed file, so that a second call writes the same file.
    """
    rotation_of(study)
    member = find_membership(vault, study)
    if member != dealing_member(study):
        expected, got = f"{dealing_member(study).name!r}, as the study says", repr(member.name)
        raise InputError("dealer", expected=expected, got=got, cure="Let that participant make the anchor.")
    with vault.lock():
        kept = vault.study_folder(study.folder_name) / _KEPT
        if not kept.exists():
            shape = rotation_of(study).anchor_shape
            known = {"study": study.digest, "shape": list(shape)}
            key = derive(vault.master, "anchor", known)
            matrix = anchor_from_gaussian(Stream(key).normals(0, shape[0] * shape[1]).reshape(shape))
            write_anchor(kept, study, matrix, vault.signing_key)
        with open_plain_file(kept, what="the anchor file") as file:
            write_atomically(path, file.read(), mode=0o600, what="the anchor file")
    return hash_file(path, what="the anchor file")


@dataclass(frozen=True, eq=False)
class Perturbation:
    """The secret map, noise and order of rows of a participant in one study."""

    study: Study
    anchor: Anchor
    vault: Vault = field(repr=False)

    @property
    def map(self) -> SecretMap:
        """The secret map (O_i, Ψ_i)."""
        key = self._key("transform", {"components": rotation_of(self.study).n_components})
        return SecretMap.derive(key, n_components=rotation_of(self.study).n_components)

    @property
    def anchor_noise(self) -> Stream:
        """The noise W' of the anchor representation."""
        scale, shape = rotation_of(self.study).anchor_noise_scale, self.anchor.matrix.shape
        return self._noise("anchor noise", scale, shape, self.anchor.digest)

    def data_noise(self, n_rows: int, rows_digest: str) -> Stream:
        """Return the noise W of the rows, in the order of the rows in the bundle."""
        shape = (n_rows, rotation_of(self.study).n_components)
        return self._noise("data noise", rotation_of(self.study).data_noise_scale, shape, rows_digest)

    def anchor_representation(self) -> npt.NDArray[np.float32]:
        """Return B_i, as it is uploaded."""
        scale = rotation_of(self.study).anchor_noise_scale
        mapped = map_rows(self.anchor.matrix, self.map)
        return np.asarray(add_noise(mapped, scale, self.anchor_noise, precision="float32"))

    def order(self, n_rows: int, rows_digest: str) -> npt.NDArray[np.int64]:
        """Return the secret, uniformly random order of the rows in the bundle."""
        return Stream(self._key("order", {"rows": n_rows, "added_to": rows_digest})).permutation(n_rows)

    def _noise(self, purpose: str, scale: float, shape: tuple[int, ...], added_to: str) -> Stream:
        circumstances = {"scale": float(scale).hex(), "shape": list(shape), "added_to": added_to}
        return Stream(self._key(purpose, circumstances))

    def _key(self, purpose: str, circumstances: Mapping[str, object]) -> Secret:
        known: dict[str, object] = {"study": self.study.digest, "anchor": self.anchor.digest}
        return derive(self.vault.master, purpose, {**known, **circumstances})


def used_anchor(vault: Vault, study: Study) -> Path:
    """Return the path of the vault's copy of the anchor file with which rows were shared in this study."""
    return vault.study_folder(study.folder_name) / _USED
