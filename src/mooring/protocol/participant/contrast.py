"""Operating points that an audit compares with a study: other methods that upload rows, and sums of the same columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from mooring.learners.models import FeatureMap
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection
from mooring.mechanisms.sums.settings import SumSettings, make_features
from mooring.protocol.exchange_types import AuditRequest
from mooring.protocol.messages.study import Study
from mooring.tables import Partition

if TYPE_CHECKING:  # attacks take a second to load, and a draft does not need them
    from mooring.audit import OperatingPoint, SumPoint

WIDEST_WITHOUT_PROJECTION = 30
"""A draft projects encoded rows of more columns than this, unless it declares otherwise."""
ANCHOR_NOISE, DATA_NOISE = 0.1, 0.5
"""v and σ of drafts. Compared methods use them for a kind of noise that the study does not have."""


def drafted_projection(study: Study) -> Projection:
    """Return the projection that a draft with the same columns would have."""
    m = study.n_features
    if m <= WIDEST_WITHOUT_PROJECTION:
        return no_projection(m)
    return gaussian_projection(m, WIDEST_WITHOUT_PROJECTION, rng=np.random.default_rng(0))


def drafted_features(study: Study) -> FeatureMap:
    """Return the features that a draft of secure sums with the same columns would have."""
    settings = SumSettings(features="pictures" if study.image_shape else "columns")
    return make_features(settings, study.schema, study.image_shape)


def list_contrast(
    parts: Partition, projection: Projection, asked: AuditRequest, *, noises: tuple[float, float], n_anchor_rows: int
) -> Sequence[OperatingPoint]:
    """Return points of the requested methods, which upload rows, at the requested noise or else at `noises` (v, σ)."""
    from mooring.audit import PointGrid, root_mean_square

    if not asked.methods:
        return ()
    h, rms = projection.n_components, root_mean_square(parts.train, projection)
    return PointGrid(
        asked.methods,
        n_components=h,
        n_anchor_rows=n_anchor_rows,
        anchor_noise_scales=asked.anchor_noise_scales or noises[:1],
        data_noise_scales=asked.data_noise_scales or noises[1:],
    ).points(h, lambda n_components: rms)


def contrast_to_sums(parts: Partition, projection: Projection, asked: AuditRequest) -> Sequence[OperatingPoint]:
    """Return points at which rows are uploaded, for comparison with sums; by default, one with noise on the rows."""
    from mooring.audit import point_with_noise

    h = projection.n_components
    if not asked.methods:
        return (point_with_noise(0.0, DATA_NOISE, n_components=h, n_anchor_rows=4 * h),)
    return list_contrast(parts, projection, asked, noises=(ANCHOR_NOISE, DATA_NOISE), n_anchor_rows=4 * h)


def list_sums(asked: AuditRequest) -> tuple[SumPoint, ...]:
    """Return points of secure sums of the same columns, one per requested ε."""
    from mooring.audit import SumPoint

    return tuple(SumPoint(epsilon) for epsilon in dict.fromkeys(asked.epsilons))
