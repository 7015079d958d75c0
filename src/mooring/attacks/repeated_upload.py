"""Repeated upload: uploading the same rows again with fresh noise, even under a fresh map, lets the noise be averaged away.

Rows and anchors determine the map between two uploads, so that all representations and anchor representations can be aligned
and averaged. k uploads leave 1/√k of the noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from mooring.attacks.moments import moments
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.kernel import Upload
from mooring.typing import Array

_Fit: TypeAlias = tuple[RigidMap, Codes, float]
"""A map, an order of rows, and the remaining sum of squares in units of the noise."""
_NO_NOISE = 1e-6  # replaces a noise scale of zero, because uploads are rounded to float32
_MOST_ROUNDS = 20


def repeated_upload(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Average the uploads, then attack the average by `moments` or, if that does not apply, by `procrustes`."""
    if not view.repeated_uploads:
        raise DoesNotApply("The target uploaded its rows once.")
    uploads = [view.target_upload, *view.repeated_uploads]
    less = 1 / np.sqrt(len(uploads))
    merged = _averaged(uploads, view)
    averaged = view.with_target_upload(
        merged,
        data_noise_scale=view.data_noise_scale * less,
        anchor_noise_scale=view.anchor_noise_scale * less,
        repeated_uploads=(),
    )
    try:
        result = moments(averaged, rng=rng)
    except DoesNotApply:
        result = procrustes(averaged, rng=rng)
    note = f"{len(uploads)} uploads averaged"
    return replace(result, data_noise_scale=averaged.data_noise_scale, notes=(*result.notes, note))


def _averaged(uploads: list[Upload], view: CollusionView) -> Upload:
    """Return the average of all uploads in the coordinates and row order of the first one."""
    first, *others = uploads
    xp = namespace_of(first.representation)
    rows, anchors = [first.representation], [first.anchor_representation]
    for upload in others:
        onto_first, order = _match(upload, first, view)
        rows.append(onto_first.apply(upload.representation[order, :]))
        if upload.anchor_representation is not None:
            anchors.append(onto_first.apply(upload.anchor_representation))
    mean_anchor = None if anchors[0] is None else xp.mean(xp.stack(anchors), axis=0)
    return Upload(xp.mean(xp.stack(rows), axis=0), mean_anchor)


def _match(upload: Upload, first: Upload, view: CollusionView) -> tuple[RigidMap, Array]:
    """Return the rigid map and the order of rows that align an upload with the first one.

    Rows may be in any order. The given order is kept if the remaining difference is no larger than noise. Otherwise there
    are two starting orders: one from the anchors, if there are any, and one from the ranks of distances from the mean, which
    a rigid map preserves. Each is improved by alternating between pairing of rows and estimation of the map, and the better
    result is returned.
    """
    target, again = first.representation, upload.representation
    of_rows, of_anchor = (1 / max(scale, _NO_NOISE) ** 2 for scale in (view.data_noise_scale, view.anchor_noise_scale))
    anchors = []
    if upload.anchor_representation is not None and first.anchor_representation is not None:
        anchors = [(upload.anchor_representation, first.anchor_representation, of_anchor)]

    def fit(order: Codes) -> _Fit:
        parts = [(again[indices_beside(order, again), :], target, of_rows), *anchors]
        estimate = _rigid_fit(parts)
        left = sum(weight * float(((estimate.apply(source) - image) ** 2).sum()) for source, image, weight in parts)
        return estimate, order, left

    def pair(estimate: RigidMap) -> Codes:
        return _partners(estimate, again, target, assign=target.shape[0] <= view.effort.assigned_rows)

    best = fit(np.arange(target.shape[0]))
    n_numbers = (target.shape[0] + sum(source.shape[0] for source, _, _ in anchors)) * target.shape[1]
    if best[2] > 2 * n_numbers * (1 + 4 * math.sqrt(2 / n_numbers)):
        starts = [_order_like(target, again)]
        starts += [pair(_rigid_fit(anchors))] if anchors else []
        best = min((_improved(fit, pair, fit(start)) for start in starts), key=lambda result: result[2])
    return best[0], indices_beside(best[1], again)


def _improved(fit: Callable[[Codes], _Fit], pair: Callable[[RigidMap], Codes], start: _Fit) -> _Fit:
    best = start
    for _ in range(_MOST_ROUNDS):
        tried = fit(pair(best[0]))
        if tried[2] >= best[2] * (1 - 1e-9):
            break
        best = tried
    return best


def _rigid_fit(parts: list[tuple[Array, Array, float]]) -> RigidMap:
    """Return the rigid map from the first to the second matrix of all pairs, by weighted least squares."""
    xp = namespace_of(*(part[0] for part in parts))
    whole = sum(weight * source.shape[0] for source, _, weight in parts)
    centre = sum(weight * xp.sum(source, axis=0) for source, _, weight in parts) / whole
    onto = sum(weight * xp.sum(image, axis=0) for _, image, weight in parts) / whole
    turn = polar_factor(sum(weight * ((source - centre).T @ (image - onto)) for source, image, weight in parts))
    return RigidMap.from_centre(turn, centre, onto)


def _partners(onto: RigidMap, rows: Array, others: Array, *, assign: bool) -> Codes:
    """Return, for each row of `others`, the index of its partner in `rows`, which are mapped first.

    Partners are found by an assignment if `assign`; otherwise the partner is the closest row, which may serve several times.
    """
    mapped, target = to_numpy(onto.apply(rows)), to_numpy(others)
    if assign:
        return np.asarray(linear_sum_assignment(cdist(target, mapped, "sqeuclidean"))[1])
    return np.asarray(cKDTree(mapped).query(target)[1])


def _order_like(first: Array, again: Array) -> Codes:
    """Return the order in which the rows of `again`, by distance from their mean, rank as the rows of `first` do."""
    xp = namespace_of(first)
    ranks = [np.argsort(to_numpy(xp.sum((rows - xp.mean(rows, axis=0)) ** 2, axis=1))) for rows in (first, again)]
    order = np.empty_like(ranks[0])
    order[ranks[0]] = ranks[1]
    return order
