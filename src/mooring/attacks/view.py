"""What the attacker has: everything the analyst and the colluders know, and nothing more.

An attack is handed a `CollusionView` and nothing else, so what it recovers it recovered from this. Whatever the target
keeps to itself (its rows, its rigid map, its noise) cannot be reached from a view; a test walks every reference to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.alignment import Alignment
from mooring.attacks.effort import Effort
from mooring.errors import InputError
from mooring.geometry.backend import namespace_of, to_numpy
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.kernel import Upload
from mooring.mechanisms.rotation.methods import Method
from mooring.mechanisms.rotation.projection import Projection
from mooring.tables.schema import Column
from mooring.typing import Array

Codes = npt.NDArray[np.intp]
_LABEL_BINS = 5
_FEW_VALUES = 20
_PUBLIC = -1  # the place of public rows among participants


@dataclass(frozen=True, eq=False)
class Colluder:
    """One colluding participant: all that it knows, it tells."""

    index: int
    """Which participant."""
    records: Array
    """Of shape (n_c, n_features): its rows as they are."""
    rows: Array
    """Of shape (n_c, h): its rows after the public projection."""
    secret: RigidMap = field(repr=False)
    """Its own map."""


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Rows that belong to nobody and that everybody has: those that a study's public projection was made from."""

    records: Array
    """Of shape (n, n_features)."""
    rows: Array
    """Of shape (n, h): the same after the public projection."""
    labels: Array | None = None
    """Of shape (n,)."""


def check_roles(target: int, colluders: Sequence[int], n_participants: int) -> None:
    """Refuse a target or colluders that do not take part, or a target that is among the colluders.

    Parameters
    ----------
    target : int
    colluders : sequence of int
    n_participants : int
    """
    indices = f"0 to {n_participants - 1}"
    if not 0 <= target < n_participants:
        raise InputError(
            "target", expected=f"a participant's index, {indices}", got=str(target), cure="Count from zero."
        )
    if target in colluders:
        raise InputError(
            "colluders",
            expected="participants other than the target",
            got=f"the target, {target}, among them",
            cure="A participant that colludes against itself has nothing left to lose.",
        )
    if len(set(colluders)) != len(colluders) or any(not 0 <= c < n_participants for c in colluders):
        expected = f"distinct participants' indices, {indices}"
        raise InputError("colluders", expected=expected, got=str(list(colluders)), cure="Name each colluder once.")


@dataclass(frozen=True, eq=False)
class CollusionView:
    """What an analyst sees, and what the colluders add."""

    method: Method
    """The method, which is public, like the noise scales and the projection."""
    data_noise_scale: float
    anchor_noise_scale: float
    projection: Projection
    uploads: tuple[Upload, ...]
    """Every participant's, in order."""
    labels: tuple[Array | None, ...]
    """Every participant's labels, which the analyst needs for training and therefore sees."""
    alignment: Alignment | None
    """What the analyst computed from the uploads."""
    target: int
    """Whose rows are attacked."""
    colluders: tuple[Colluder, ...] = ()
    """Empty for an analyst on its own."""
    anchor: Array | None = None
    """Of shape (r, h): known through any colluder; None without one, or for a method without an anchor."""
    known_rows: Array | None = None
    """Of shape (k, h): rows that the attacker knows to be among the target's (patients treated in both hospitals),
    after projection. It does not know where they stand in the upload."""
    repeated_uploads: tuple[Upload, ...] = ()
    """Further uploads of the same target rows, each with fresh noise and a fresh map."""
    public_rows: PublicRows | None = None
    columns: tuple[Column, ...] = ()
    """The table's columns, which a study declares; empty where rows are not of a table."""
    anchor_mean: Array | None = None
    """b, of shape (h,): the mean row of the target's anchor representation, where alignment has computed it: batched
    attacks then use the same to the last bit, however many draws are aligned at once."""
    effort: Effort = field(default_factory=Effort)
    """How long the attacker searches."""

    def __post_init__(self) -> None:
        check_roles(self.target, [colluder.index for colluder in self.colluders], len(self.uploads))

    @property
    def n_components(self) -> int:
        """The width of representations, h."""
        return int(self.uploads[self.target].representation.shape[1])

    @property
    def target_upload(self) -> Upload:
        """The upload under attack."""
        return self.uploads[self.target]

    def with_target_upload(self, upload: Upload, **changes: Any) -> CollusionView:
        """The same attacker's view, had the target uploaded this; `changes` are other fields, such as the noise scales."""
        uploads = tuple(upload if i == self.target else one for i, one in enumerate(self.uploads))
        return replace(self, uploads=uploads, **changes)

    @property
    def reference_rows(self) -> Array | None:
        """Rows of the population that the attacker has: the colluders' and then the public ones; None without either."""
        rows = [one.rows for one in self._references]
        return namespace_of(*rows).concat(rows, axis=0) if rows else None

    @property
    def reference_records(self) -> tuple[Array, ...]:
        """The same before projection, one array a colluder and one for the public rows."""
        return tuple(one.records for one in self._references)

    @property
    def reference_owners(self) -> list[int]:
        """Whose `reference_records` are, in their order: the colluders, and −1 for the public rows."""
        public = [_PUBLIC] * (len(self._references) - len(self.colluders))
        return [*(colluder.index for colluder in self.colluders), *public]

    def reference_codes(self) -> Codes:
        """Codes of `reference_rows`."""
        return self.codes_of(self.reference_owners)

    @property
    def _references(self) -> tuple[Colluder | PublicRows, ...]:
        """Colluders and public rows; public rows without labels are of no use where everything else has them."""
        public = self.public_rows
        if public is None or (public.labels is None and self._compares_classes(self._all_codes())):
            return self.colluders
        return (*self.colluders, public)

    def class_codes(self) -> tuple[Codes | None, ...]:
        """Every participant's labels as codes 0, 1, …, one coding for all; numbers are cut into quantile groups.

        The same for every participant whose labels are known; None for one whose labels are not.
        """
        return self._all_codes()[: len(self.labels)]

    def _all_codes(self) -> tuple[Codes | None, ...]:
        """Codes of every participant's labels, and last of the public rows'."""
        given = (*self.labels, None if self.public_rows is None else self.public_rows.labels)
        known = [None if labels is None else to_numpy(labels) for labels in given]
        present = [labels for labels in known if labels is not None]
        if not present:
            return (None,) * len(known)
        values = np.concatenate(present)
        edges = np.unique(values)
        if edges.size > _FEW_VALUES and np.issubdtype(values.dtype, np.floating):
            edges = np.quantile(values, np.linspace(0, 1, _LABEL_BINS + 1)[1:-1])
        return tuple(None if labels is None else np.searchsorted(edges, labels) for labels in known)

    def codes_of(self, participants: Sequence[int]) -> Codes:
        """Codes of these participants' rows, one after the other.

        All zero unless the labels of these, of the target and of every colluder are known: otherwise there is nothing to
        compare class by class.
        """
        codes, public = self._all_codes(), self.public_rows
        chosen = [codes[i] for i in participants]
        if not self._compares_classes(codes) or any(part is None for part in chosen):
            parts = [upload.representation for upload in self.uploads] + ([] if public is None else [public.rows])
            return np.zeros(sum(parts[i].shape[0] for i in participants), dtype=np.intp)
        return np.concatenate([np.zeros(0, dtype=np.intp), *(part for part in chosen if part is not None)])

    def _compares_classes(self, codes: tuple[Codes | None, ...]) -> bool:
        """Whether the labels of the target and of every colluder are known."""
        compared = (self.target, *(colluder.index for colluder in self.colluders))
        return all(codes[i] is not None for i in compared)
