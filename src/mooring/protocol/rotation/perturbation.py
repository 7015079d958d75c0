"""The anchor that a participant deals or opens, and the secrets that it perturbs its rows with.

A participant's map, its anchor noise, its private-data noise and the order of its rows follow from the vault's secret and
from what they are for. The map and the anchor's noise do not depend on the rows, so nothing about rows can make a second,
different anchor representation; the rows' noise and order depend on the rows, in whatever order the file has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import hash_file, open_plain_file, write_atomically
from mooring.errors import InputError
from mooring.mechanisms.rotation.anchors import anchor_from_gaussian
from mooring.mechanisms.rotation.kernel import represent_anchor
from mooring.protocol.crypto.derivation import SecretMap, Stream, derive
from mooring.protocol.crypto.keys import SealingKey, Secret
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership
from mooring.protocol.rotation.anchor import Anchor, read_anchor, write_anchor
from mooring.protocol.rotation.scheme import dealing_member, rotation_of
from mooring.protocol.storage.vault import Vault

_KEPT, _USED = "dealt.anchor", "used.anchor"


def deal_anchor(vault: Vault, study: Study, path: Path) -> str:
    """Make the study's anchor and write it, sealed and signed. Returns the file's SHA-256.

    The anchor follows from the dealer's secret and the study, and the sealed file is kept: dealing again gives the same.

    Parameters
    ----------
    vault : Vault
        The dealer's.
    """
    rotation_of(study)
    member = find_membership(vault, study)
    if member != dealing_member(study):
        expected, got = f"{dealing_member(study).name!r}, as the study says", repr(member.name)
        raise InputError("dealer", expected=expected, got=got, cure="Let that participant deal the anchor.")
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


def open_anchor(vault: Vault, study: Study, path: Path) -> Anchor:
    """Open a dealt anchor, or refuse it with a reason.

    Parameters
    ----------
    vault : Vault
        A participant's.
    """
    rotation_of(study)
    find_membership(vault, study)
    return read_anchor(path, study, SealingKey.of(vault.signing_key))


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What a participant does to its rows and to the anchor in one study."""

    study: Study
    anchor: Anchor
    vault: Vault = field(repr=False)

    @property
    def map(self) -> SecretMap:
        """(O_i, Ψ_i)."""
        key = self._key("transform", {"components": rotation_of(self.study).n_components})
        return SecretMap.derive(key, n_components=rotation_of(self.study).n_components)

    @property
    def anchor_noise(self) -> Stream:
        """W' of the anchor's representation."""
        scale, shape = rotation_of(self.study).anchor_noise_scale, self.anchor.matrix.shape
        return self._noise("anchor noise", scale, shape, self.anchor.digest)

    def data_noise(self, n_rows: int, rows_digest: str) -> Stream:
        """W of the rows' representation, row after row of the bundle."""
        shape = (n_rows, rotation_of(self.study).n_components)
        return self._noise("data noise", rotation_of(self.study).data_noise_scale, shape, rows_digest)

    def anchor_representation(self) -> npt.NDArray[np.float32]:
        """B_i, as it is uploaded."""
        scale = rotation_of(self.study).anchor_noise_scale
        return np.asarray(represent_anchor(self.anchor.matrix, self.map, scale, self.anchor_noise, precision="float32"))

    def order(self, n_rows: int, rows_digest: str) -> npt.NDArray[np.int64]:
        """A secret, uniformly random order of the rows."""
        return Stream(self._key("order", {"rows": n_rows, "added_to": rows_digest})).permutation(n_rows)

    def _noise(self, purpose: str, scale: float, shape: tuple[int, ...], added_to: str) -> Stream:
        circumstances = {"scale": float(scale).hex(), "shape": list(shape), "added_to": added_to}
        return Stream(self._key(purpose, circumstances))

    def _key(self, purpose: str, circumstances: Mapping[str, object]) -> Secret:
        known: dict[str, object] = {"study": self.study.digest, "anchor": self.anchor.digest}
        return derive(self.vault.master, purpose, {**known, **circumstances})


def used_anchor(vault: Vault, study: Study) -> Path:
    """The anchor file that was used to share in this study."""
    return vault.study_folder(study.folder_name) / _USED
