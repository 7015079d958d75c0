"""Alignment-map calibration: a colluder's secret shows how the analyst's common coordinates are turned.

The equations are pdp_am_attack_global_rotation to pdp_am_attack_reconstruction of the paper.

Legend: R_c, R_i the orthogonal parts of the analyst's maps of a colluder and of the target; O_c, O_i those of their secrets;
Π the polar factor. There is one orthogonal map Q for all participants, such that O_i R_i is about Q.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.attacks.reconstruction import (
    AnchorDraws,
    DoesNotApply,
    Reconstruction,
    anchor_row_error,
    centred_anchor_pair,
    reconstruct,
)
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import namespace_of, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array


def alignment_map(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Estimate Q by O_c R_c, and the target's secret by Q R_iᵀ.

    With several colluders, Q is estimated by the polar factor of the mean of their O_c R_c.
    """
    secrets, theirs, of_target = _orthogonal_parts(view)
    _, a, _, b = centred_anchor_pair(view)
    xp = namespace_of(*secrets, *theirs)
    O = alignment_map_estimate(xp.stack(secrets), xp.stack(theirs), of_target)
    return reconstruct(
        view, RigidMap.from_centre(O, a, b), row_error=anchor_row_error(view, view.anchor_noise_scale**2)
    )


def alignment_map_batch(views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """Run the attack on several views with one anchor and the same colluders at once."""
    parts = [_orthogonal_parts(view) for view in views]
    draws = AnchorDraws.of(views)
    secrets, xp = parts[0][0], namespace_of(draws.means)
    of_target = xp.stack([target for _, _, target in parts])
    if len(secrets) == 1:
        O = alignment_map_estimate(secrets[0], xp.stack([theirs[0] for _, theirs, _ in parts]), of_target)
    else:
        O = alignment_map_estimate(xp.stack(secrets), xp.stack([xp.stack(theirs) for _, theirs, _ in parts]), of_target)
    errors = [anchor_row_error(view, view.anchor_noise_scale**2) for view in views]
    return draws.reconstructions(draws.undo(transpose(O)), O, errors)


def _orthogonal_parts(view: CollusionView) -> tuple[list[Array], list[Array], Array]:
    """Return O_c and R_c of every colluder, and R_i of the target."""
    if view.alignment is None:
        raise DoesNotApply(f"{view.method.title} has no alignment maps.")
    if not view.colluders:
        raise DoesNotApply("Without a colluder the common coordinates cannot be related to the original ones.")
    maps = view.alignment.maps
    secrets = [colluder.secret.orthogonal for colluder in view.colluders]
    theirs = [maps[colluder.index].orthogonal for colluder in view.colluders]
    return secrets, theirs, maps[view.target].orthogonal


def alignment_map_estimate(secrets: Array, colluder_maps: Array, target_maps: Array) -> Array:
    """Return Ô_i = Π(O_c R_c) R_iᵀ (eqs. pdp_am_attack_global_rotation and pdp_am_attack_rotation), of shape (..., h, h).

    For m colluders, `secrets` and `colluder_maps` have a further axis, and the mean of O_c R_c is used.
    """
    effective = secrets @ colluder_maps
    if len(secrets.shape) > 2:
        effective = namespace_of(effective).mean(effective, axis=-3)
    return polar_factor(effective) @ transpose(target_maps)


def map_back_exactly(view: CollusionView) -> dict[int, Array]:
    """Return the rows of all honest participants, including the target, if a colluder's secret gives their maps exactly.

    The rows keep their private-data noise. The result is empty if maps are not known exactly. Participants without labels
    are left out if the target and the colluders have labels.
    """
    is_common = view.method.transform == "common"
    exact = is_common or (view.alignment is not None and view.anchor_noise_scale == 0)
    if not view.colluders or not exact:
        return {}
    first, out = view.colluders[0], {view.target, *(colluder.index for colluder in view.colluders)}
    labelled = all(view.labels[i] is not None for i in out)
    rows_of = {}
    for i, upload in enumerate(view.uploads):
        if i in out - {view.target} or (labelled and view.labels[i] is None):
            continue
        rows = upload.representation
        if view.alignment is not None:
            maps = view.alignment.maps
            rows = maps[first.index].invert(maps[i].apply(rows))
        rows_of[i] = first.secret.invert(rows)
    return rows_of
