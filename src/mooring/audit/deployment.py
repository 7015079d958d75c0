"""The deployment that an audit simulates: the participants, their rows, and what is public."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np

from mooring.attacks import PublicRows
from mooring.audit.specification import AuditSettings, ProjectionKind
from mooring.audit.table_features import InferredTableFeatures
from mooring.errors import InputError, MissingExtraError
from mooring.learners import Kind
from mooring.learners.models import FeatureMap
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection, public_svd_projection
from mooring.mechanisms.sums.features.columns import RowFeatures, TableFeatures
from mooring.mechanisms.sums.features.pictures import N_COMPONENTS, PictureFeatures, filters_of
from mooring.tables import Partition
from mooring.tables.schema import Schema
from mooring.typing import Array, Labels, Matrix

_SIDES, _MOST_CHANNELS = (4, 256), 4  # limits of pictures for which there are features


@dataclass(frozen=True, eq=False)
class Deployment:
    """The participants' rows and the settings of the audit that simulates operating points on them."""

    partition: Partition
    settings: AuditSettings = field(default_factory=AuditSettings)
    _projections: dict[int, Projection] = field(default_factory=dict, repr=False)
    _rms: dict[int, float] = field(default_factory=dict, repr=False)

    @property
    def projection_name(self) -> str:
        """The kind of projection in the settings."""
        projection = self.settings.projection
        return projection.kind if isinstance(projection, Projection) else projection

    @property
    def rows(self) -> list[Array]:
        """Every participant's training rows, on the device."""
        return [_on_device(part, self.settings.device) for part in self.partition.train]

    def public_rows(self, projection: Projection) -> PublicRows | None:
        """Return the public rows and their projection, or None if there are no public rows."""
        if self.partition.public is None:
            return None
        records = _on_device(self.partition.public, self.settings.device)
        return PublicRows(records, projection.moved_to(records).encode(records), self.partition.public_labels)

    @property
    def default_n_components(self) -> int:
        """The number of components of a given projection; otherwise the number of features, up to 30."""
        projection = self.settings.projection
        return projection.n_components if isinstance(projection, Projection) else min(30, self.partition.n_features)

    def projection_onto(self, n_components: int) -> Projection:
        """Return the public projection onto this number of components; every call returns the same one."""
        projection = self.settings.projection
        if isinstance(projection, Projection):
            if (projection.n_features, projection.n_components) != (self.partition.n_features, n_components):
                raise InputError(
                    "projection",
                    expected=f"a projection from {self.partition.n_features} features onto {n_components} components",
                    got=f"a projection from {projection.n_features} onto {projection.n_components}",
                    cure="Use the number of components of the given projection.",
                )
            return projection
        if n_components not in self._projections:
            rng = np.random.default_rng([self.settings.seed, 0, n_components])
            self._projections[n_components] = make_projection(self.partition, projection, n_components, rng)
        return self._projections[n_components]

    def rms(self, n_components: int) -> float:
        """Return s, the root mean square of the entries of all training rows projected onto this number of components."""
        if n_components not in self._rms:
            self._rms[n_components] = root_mean_square(self.partition.train, self.projection_onto(n_components))
        return self._rms[n_components]

    @cached_property
    def features(self) -> FeatureMap:
        """The public feature map of sums: that of the settings if given, else one for images, for tables or for other rows.

        Images whose size does not suit the features of pictures count as other rows.
        """
        if self.settings.feature_map is not None:
            return self.settings.feature_map
        columns, shape = self.settings.evaluation.columns, self.settings.evaluation.image_shape
        if shape is None and columns:
            if any(column.inferred for column in columns):
                return InferredTableFeatures.of(columns, [*self.partition.train, *self.partition.test])
            return TableFeatures(Schema(columns))
        if shape is None:
            return RowFeatures(self.partition.n_features)
        height, width, n_channels = (*shape, 1)[:3]
        sides = sorted((height, width))
        if not (_SIDES[0] <= sides[0] <= sides[1] <= _SIDES[1] and n_channels <= _MOST_CHANNELS):
            return RowFeatures(self.partition.n_features)
        n_components = min(N_COMPONENTS, filters_of(height, width).n_responses)
        return PictureFeatures(height, width, n_channels, n_components)

    @property
    def label_kind(self) -> Kind | None:
        """The kind of label; None if there is nothing to learn, or no row to test on."""
        partition = self.partition
        if partition.train_labels is None or partition.test_labels is None or partition.label_kind == "none":
            return None
        if partition.label_kind == "classes" and np.unique(np.concatenate(partition.train_labels)).size < 2:
            return None  # with one class, there is nothing to learn
        return partition.label_kind if sum(part.shape[0] for part in partition.test) else None

    def require_labels(self) -> tuple[Labels, ...]:
        """Return every participant's training labels, or raise an `InputError` if `label_kind` is None."""
        if self.label_kind is None:
            expected, cure = (
                "numbers or at least two classes, of training rows and of test rows",
                "Secure sums train a model. Name a label that varies, and keep rows to test on.",
            )
            got = "no labels, one class only, or no test rows"
            raise InputError("labels", expected=expected, got=got, cure=cure)
        return cast("tuple[Labels, ...]", self.partition.train_labels)

    @property
    def test_labels(self) -> Labels:
        """The labels of all test rows, in the order of participants."""
        return np.concatenate(cast("tuple[Labels, ...]", self.partition.test_labels))

    @cached_property
    def label_values(self) -> Labels:
        """The labels of training and test rows, from which the declared classes or the range of a number follow."""
        return np.concatenate([*self.require_labels(), self.test_labels])


def make_projection(
    partition: Partition, kind: ProjectionKind, n_components: int, rng: np.random.Generator
) -> Projection:
    """Return the public projection that a study with this kind of projection would use."""
    m = partition.n_features
    if kind == "auto":
        kind = "none" if n_components == m else "gaussian" if partition.public is None else "public-svd"
    if kind == "none":
        if n_components != m:
            raise InputError(
                "n_components", expected=f"{m} without a projection", got=str(n_components), cure="Choose a projection."
            )
        return no_projection(m)
    if kind == "gaussian":
        return gaussian_projection(m, n_components, rng=rng)
    if partition.public is None:
        raise InputError(
            "projection",
            expected="'none' or 'gaussian' without public rows",
            got="'public-svd'",
            cure="Set public rows aside.",
        )
    return public_svd_projection(partition.public, n_components, rng=rng)


def root_mean_square(parts: Sequence[Matrix], projection: Projection | None = None) -> float:
    """Return s, the root mean square of the entries of all projected training rows, which is the unit of private-data noise.

    Without a projection, the rows are assumed to be projected already.
    """
    projected = (part if projection is None else projection.encode(part) for part in parts)
    squares = [(float((part**2).sum()), part.size) for part in projected]
    return float(np.sqrt(sum(total for total, _ in squares) / sum(size for _, size in squares)))


def _on_device(rows: Matrix, device: str | None) -> Array:
    if device in (None, "cpu"):
        return rows
    try:
        import torch
    except ImportError:
        raise MissingExtraError(needed_for="An audit on a GPU", package="torch", extra="torch") from None
    try:
        return torch.as_tensor(rows, dtype=torch.float64, device=device)
    except (AssertionError, RuntimeError):
        raise InputError(
            "device", expected="a device that torch finds here", got=repr(device), cure="Use 'cpu', which always works."
        ) from None
