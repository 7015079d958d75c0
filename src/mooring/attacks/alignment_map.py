"""Alignment-map calibration: the analyst's own maps, and one colluder's secret to fix the gauge (eqs. pdp_am_attack_*).

Legend: R_c, R_i the analyst's maps of a colluder and of the target; O_c the colluder's secret; Π the polar factor.
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
    """Estimate Q̂ = O_c R̂_c, then Ô_i = Q̂ R̂_iᵀ; with several colluders, Q̂ is the polar factor of their mean."""
    own, theirs, of_target = _orthogonal_parts(view)
    _, a, _, b = centred_anchor_pair(view)
    xp = namespace_of(*own, *theirs)
    O = alignment_map_estimate(xp.stack(own), xp.stack(theirs), of_target)
    return reconstruct(
        view, RigidMap.from_centre(O, a, b), row_error=anchor_row_error(view, view.anchor_noise_scale**2)
    )


def alignment_map_batch(views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """The same for views with one anchor and the same colluders, at once."""
    parts = [_orthogonal_parts(view) for view in views]
    draws = AnchorDraws.of(views)
    own, xp = parts[0][0], namespace_of(draws.means)
    of_target = xp.stack([target for _, _, target in parts])
    if len(own) == 1:
        O = alignment_map_estimate(own[0], xp.stack([theirs[0] for _, theirs, _ in parts]), of_target)
    else:
        O = alignment_map_estimate(xp.stack(own), xp.stack([xp.stack(theirs) for _, theirs, _ in parts]), of_target)
    errors = [anchor_row_error(view, view.anchor_noise_scale**2) for view in views]
    return draws.reconstructions(draws.undo(transpose(O)), O, errors)


def _orthogonal_parts(view: CollusionView) -> tuple[list[Array], list[Array], Array]:
    """O_c and R_c of every colluder, and R_i of the target."""
    if view.alignment is None:
        raise DoesNotApply(f"{view.method.title} has no alignment maps.")
    if not view.colluders:
        raise DoesNotApply("Without a colluder nothing tells the common coordinates from the original ones.")
    maps = view.alignment.maps
    own = [colluder.secret.orthogonal for colluder in view.colluders]
    theirs = [maps[colluder.index].orthogonal for colluder in view.colluders]
    return own, theirs, maps[view.target].orthogonal


def alignment_map_estimate(secrets: Array, colluder_maps: Array, target_maps: Array) -> Array:
    """Ô_i = Π(O_c R_c) R_iᵀ (eqs. pdp_am_attack_global_rotation and pdp_am_attack_rotation), of shape (..., h, h)."""
    effective = secrets @ colluder_maps
    if len(secrets.shape) > 2:
        effective = namespace_of(effective).mean(effective, axis=-3)
    return polar_factor(effective) @ transpose(target_maps)


def map_back_exactly(view: CollusionView) -> dict[int, Array]:
    """Rows of all participants who do not collude, the target's too, where a colluder's secret gives their maps exactly.

    Private-data noise stays on them. Empty where maps are known approximately or not at all; participants without labels are
    left out where the others have them.
    """
    common = view.method.transform == "common"
    exact = common or (view.alignment is not None and view.anchor_noise_scale == 0)
    if not view.colluders or not exact:
        return {}
    first, out = view.colluders[0], {view.target, *(colluder.index for colluder in view.colluders)}
    labelled = all(view.labels[i] is not None for i in out)
    found = {}
    for i, upload in enumerate(view.uploads):
        if i in out - {view.target} or (labelled and view.labels[i] is None):
            continue
        rows = upload.representation
        if not common and view.alignment is not None:
            maps = view.alignment.maps
            rows = maps[first.index].invert(maps[i].apply(rows))
        found[i] = first.secret.invert(rows)
    return found
