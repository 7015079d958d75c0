"""The attacker's view: everything that the analyst and the colluders know, and nothing else.

An attack gets only a `CollusionView`. The target's secrets (its rows, its rigid map, its noise) cannot be reached from a
view; a test follows every reference to check this.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.alignment import Alignment
from mooring.attacks.effort import Effort, current_effort
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
_PUBLIC = -1  # index of the public rows among participants


@dataclass(frozen=True, eq=False)
class Colluder:
    """One colluding participant, with everything that it knows."""

    index: int
    """Index of the participant."""
    records: Array
    """Its rows before the projection, of shape (n_c, n_features)."""
    rows: Array
    """Its rows after the public projection, of shape (n_c, h)."""
    secret: RigidMap = field(repr=False)
    """Its rigid map."""


@dataclass(frozen=True, eq=False)
class PublicRows:
    """Public rows, which a study's public projection was made from."""

    records: Array
    """The rows before the projection, of shape (n, n_features)."""
    rows: Array
    """The rows after the public projection, of shape (n, h)."""
    labels: Array | None = None
    """Their labels, of shape (n,), if known."""


def check_roles(target: int, colluders: Sequence[int], n_participants: int) -> None:
    """Raise an `InputError` unless target and colluders are different participants, each given once."""
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
            cure="Choose a target that does not collude.",
        )
    if len(set(colluders)) != len(colluders) or any(not 0 <= c < n_participants for c in colluders):
        expected = f"distinct participants' indices, {indices}"
        cure = "Give the index of each colluder once, counted from zero."
        raise InputError("colluders", expected=expected, got=str(list(colluders)), cure=cure)


@dataclass(frozen=True, eq=False)
class CollusionView:
    """What the analyst sees, and what the colluders add."""

    method: Method
    """The method, which is public, like the noise scales and the projection."""
    data_noise_scale: float
    anchor_noise_scale: float
    projection: Projection
    uploads: tuple[Upload, ...]
    """The upload of every participant, in order."""
    labels: tuple[Array | None, ...]
    """Every participant's labels, which the analyst needs for training and therefore sees. None
    for a participant whose labels are not known."""
    alignment: Alignment | None
    """The analyst's alignment of the uploads; None for a method without an anchor."""
    target: int
    """Index of the participant under attack."""
    colluders: tuple[Colluder, ...] = ()
    """The colluding participants; empty if the analyst acts alone."""
    anchor: Array | None = None
    """The anchor, of shape (r, h), which any colluder reveals; None without a colluder or for a method without an anchor."""
    known_rows: Array | None = None
    """Rows that the attacker knows to be among the target's (for instance patients treated in both hospitals), after
    projection, of shape (k, h). Their positions in the upload are not known."""
    repeated_uploads: tuple[Upload, ...] = ()
    """Further uploads of the same target rows, each with fresh noise and a fresh map."""
    public_rows: PublicRows | None = None
    columns: tuple[Column, ...] = ()
    """The declared columns of the table; empty if rows do not come from a table."""
    anchor_mean: Array | None = None
    """b, the mean row of the target's anchor representation, of shape (h,), if alignment has computed it. Batched attacks
    then use exactly the same numbers, however many draws are aligned at once."""
    effort: Effort = field(default_factory=current_effort)
    """How long the attacker searches."""

    def __post_init__(self) -> None:
        check_roles(self.target, [colluder.index for colluder in self.colluders], len(self.uploads))

    @property
    def n_components(self) -> int:
        """The number of columns of representations, h."""
        return int(self.uploads[self.target].representation.shape[1])

    @property
    def target_upload(self) -> Upload:
        """The upload under attack."""
        return self.uploads[self.target]

    def with_target_upload(self, upload: Upload, **changes: Any) -> CollusionView:
        """Return the view with a different upload of the target; `changes` are other fields, such as noise scales."""
        uploads = tuple(upload if i == self.target else other for i, other in enumerate(self.uploads))
        return replace(self, uploads=uploads, **changes)

    @property
    def reference_rows(self) -> Array | None:
        """The rows that the attacker knows: the colluders' and then the public ones; None if there are neither."""
        rows = [source.rows for source in self._references]
        return namespace_of(*rows).concat(rows, axis=0) if rows else None

    @property
    def reference_records(self) -> tuple[Array, ...]:
        """The `reference_rows` before projection: one array per colluder and, if public rows are used, one for these."""
        return tuple(source.records for source in self._references)

    @property
    def reference_owners(self) -> list[int]:
        """The owner of each array of `reference_records`: a colluder's index, or −1 for the public rows."""
        public = [_PUBLIC] * (len(self._references) - len(self.colluders))
        return [*(colluder.index for colluder in self.colluders), *public]

    def reference_codes(self) -> Codes:
        """Return the class codes of `reference_rows`."""
        return self.codes_of(self.reference_owners)

    @property
    def _references(self) -> tuple[Colluder | PublicRows, ...]:
        """Colluders and public rows. Public rows without labels are left out if the target and all colluders have labels."""
        public = self.public_rows
        if public is None or (public.labels is None and self._compares_classes(self._all_codes())):
            return self.colluders
        return (*self.colluders, public)

    def class_codes(self) -> tuple[Codes | None, ...]:
        """Return every participant's labels as codes 0, 1, …; floats of more than 20 values become quantile groups.

        All participants have the same coding; the result is None for a participant whose labels are not known.
        """
        return self._all_codes()[: len(self.labels)]

    def _all_codes(self) -> tuple[Codes | None, ...]:
        """Return the codes of every participant's labels, and last those of the public rows."""
        all_labels = (*self.labels, None if self.public_rows is None else self.public_rows.labels)
        known = [None if labels is None else to_numpy(labels) for labels in all_labels]
        present = [labels for labels in known if labels is not None]
        if not present:
            return (None,) * len(known)
        values = np.concatenate(present)
        edges = np.unique(values)
        if edges.size > _FEW_VALUES and np.issubdtype(values.dtype, np.floating):
            edges = np.quantile(values, np.linspace(0, 1, _LABEL_BINS + 1)[1:-1])
        return tuple(None if labels is None else np.searchsorted(edges, labels) for labels in known)

    def codes_of(self, participants: Sequence[int]) -> Codes:
        """Return the class codes of these participants' rows, concatenated.

        Unless the labels of these participants, of the target and of every colluder are known, classes cannot be compared
        and all codes are zero.
        """
        codes, public = self._all_codes(), self.public_rows
        chosen = [codes[i] for i in participants]
        if not self._compares_classes(codes) or any(part is None for part in chosen):
            parts = [upload.representation for upload in self.uploads] + ([] if public is None else [public.rows])
            return np.zeros(sum(parts[i].shape[0] for i in participants), dtype=np.intp)
        return np.concatenate([np.zeros(0, dtype=np.intp), *(part for part in chosen if part is not None)])

    def _compares_classes(self, codes: tuple[Codes | None, ...]) -> bool:
        """Return whether the labels of the target and of every colluder are known."""
        compared = (self.target, *(colluder.index for colluder in self.colluders))
        return all(codes[i] is not None for i in compared)
