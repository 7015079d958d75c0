"""Repeated upload: the same rows sent again with fresh noise, even under a fresh map, average the noise away.

The rows themselves tell how one upload lies to the other, so that all anchor representations (and, with private-data
noise, all representations) can be brought together and averaged: k uploads leave 1/√k of either noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mooring.attacks.moments import moments
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.kernel import Upload
from mooring.typing import Array


def repeated_upload(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Average the uploads, then attack what is left: by moments with a colluder, by the anchor alone otherwise."""
    if not view.repeated_uploads:
        raise DoesNotApply("The target uploaded its rows once.")
    uploads = [view.target_upload, *view.repeated_uploads]
    less = 1 / np.sqrt(len(uploads))
    merged = _averaged(uploads, shuffled=view.data_noise_scale == 0)
    averaged = replace(
        view,
        uploads=tuple(merged if i == view.target else upload for i, upload in enumerate(view.uploads)),
        data_noise_scale=view.data_noise_scale * less,
        anchor_noise_scale=view.anchor_noise_scale * less,
        repeated_uploads=(),
    )
    try:
        found = moments(averaged, rng=rng)
    except DoesNotApply:
        found = procrustes(averaged, rng=rng)
    note = f"{len(uploads)} uploads averaged"
    return replace(found, data_noise_scale=averaged.data_noise_scale, notes=(*found.notes, note))


def _averaged(uploads: list[Upload], *, shuffled: bool) -> Upload:
    """All uploads in the first one's coordinates and row order, averaged."""
    first = uploads[0].representation
    xp = namespace_of(first)
    rows, anchors = [first], [uploads[0].anchor_representation]
    for upload in uploads[1:]:
        again = upload.representation
        if shuffled:
            again = again[indices_beside(_order_like(first, again), again), :]
        centre, centre_again = xp.mean(first, axis=0), xp.mean(again, axis=0)
        turn = polar_factor((again - centre_again).T @ (first - centre))
        onto_first = RigidMap(turn, centre - centre_again @ turn)
        rows.append(onto_first.apply(again))
        if upload.anchor_representation is not None:
            anchors.append(onto_first.apply(upload.anchor_representation))
    mean_anchor = None if anchors[0] is None else xp.mean(xp.stack(anchors), axis=0)
    return Upload(xp.mean(xp.stack(rows), axis=0), mean_anchor)


def _order_like(first: Array, again: Array) -> Codes:
    """The order in which the rows of `again` are those of `first`: distances from the mean survive any rigid map."""
    xp = namespace_of(first)
    ranks = [np.argsort(to_numpy(xp.sum((rows - xp.mean(rows, axis=0)) ** 2, axis=1))) for rows in (first, again)]
    order = np.empty_like(ranks[0])
    order[ranks[0]] = ranks[1]
    return order
