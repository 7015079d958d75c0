"""One participant's secrets in one study: its map, its anchor noise, its private-data noise, the order of its rows.

All follow from the vault's secret and from what they are for. The map and the anchor's noise do not depend on the rows, so
nothing about rows can make a second, different anchor representation; the rows' noise and order depend on the rows, in
whatever order the file has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from mooring.mechanisms.kernel import represent_anchor
from mooring.protocol.crypto.derivation import SecretMap, Stream, derive
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.messages.anchor import Anchor
from mooring.protocol.messages.study import Study
from mooring.protocol.storage.vault import Vault


@dataclass(frozen=True, eq=False)
class Perturbation:
    """What a participant does to its rows and to the anchor in one study."""

    study: Study
    anchor: Anchor
    vault: Vault = field(repr=False)

    @property
    def map(self) -> SecretMap:
        """(O_i, Ψ_i)."""
        key = self._key("transform", {"components": self.study.n_components})
        return SecretMap.derive(key, n_components=self.study.n_components, version=self.study.format)

    @property
    def anchor_noise(self) -> Stream:
        """W' of the anchor's representation."""
        scale, shape = self.study.anchor_noise_scale, self.anchor.matrix.shape
        return self._noise("anchor noise", scale, shape, self.anchor.digest)

    def data_noise(self, n_rows: int, rows_digest: str) -> Stream:
        """W of the rows' representation, row after row of the bundle."""
        shape = (n_rows, self.study.n_components)
        return self._noise("data noise", self.study.data_noise_scale, shape, rows_digest)

    def anchor_representation(self) -> npt.NDArray[np.float32]:
        """B_i, as it is uploaded."""
        scale = self.study.anchor_noise_scale
        return np.asarray(represent_anchor(self.anchor.matrix, self.map, scale, self.anchor_noise, precision="float32"))

    def order(self, n_rows: int, rows_digest: str) -> npt.NDArray[np.int64]:
        """A secret, uniformly random order of the rows."""
        return Stream(self._key("order", {"rows": n_rows, "added_to": rows_digest})).permutation(n_rows)

    def _noise(self, purpose: str, scale: float, shape: tuple[int, ...], added_to: str) -> Stream:
        circumstances = {"scale": float(scale).hex(), "shape": list(shape), "added_to": added_to}
        return Stream(self._key(purpose, circumstances), self.study.format)

    def _key(self, purpose: str, circumstances: Mapping[str, object]) -> Secret:
        known: dict[str, object] = {"study": self.study.digest, "anchor": self.anchor.digest}
        return derive(self.vault.master, purpose, {**known, **circumstances}, version=self.study.format)
