"""What an anchor representation, or a map made from it, says of the target's orthogonal map: three formulas.

The attacks of one view and studies of many draws call the same formulas; every one takes leading batch axes, on NumPy or
torch.

Legend: Ā the anchor and B̄ its uploaded representation, both centred; R_c, R_i the analyst's maps of a colluder and of
the target; O_c the colluder's secret; Π the polar factor, † the pseudoinverse. With the paper's anchor Ā† = Āᵀ.
"""

from __future__ import annotations

import numpy as np

from mooring.geometry.backend import identity_like, namespace_of, to_numpy, transposed
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array

_TRUSTED_RESIDUAL = 1e-8


def procrustes_estimate(anchor: Array, representations: Array) -> Array:
    """Ô = Π(Āᵀ B̄) (eq. pdp_op_attack_rotation).

    Parameters
    ----------
    anchor : array of shape (r, h)
        Ā.
    representations : array of shape (..., r, h)
        B̄, for each draw.

    Returns
    -------
    array of shape (..., h, h)
    """
    return polar_factor(transposed(anchor) @ representations)


def least_squares_estimate(anchor: Array, representations: Array) -> Array:
    """Ô = Ā† B̄, of shape (..., h, h), which need not be orthogonal (eq. pdp_mp_attack_rotation)."""
    gram = transposed(anchor) @ anchor  # Ā† = (Āᵀ Ā)† Āᵀ, and for an orthonormal anchor the first factor is I
    return pseudoinverses(gram) @ (transposed(anchor) @ representations)


def pseudoinverse_estimate(anchor: Array, representations: Array) -> Array:
    """(Ā† B̄)†, of shape (..., h, h): what takes uploaded rows back (eq. pdp_mp_attack_reconstruction)."""
    return pseudoinverses(least_squares_estimate(anchor, representations))


def alignment_map_estimate(secrets: Array, colluder_maps: Array, target_maps: Array) -> Array:
    """Ô_i = Π(O_c R_c) R_iᵀ (eqs. pdp_am_attack_global_rotation and pdp_am_attack_rotation).

    Parameters
    ----------
    secrets : array of shape (h, h) or (m, h, h)
        O_c of one colluder, or of m of them, the mean of whose O_c R_c is then taken.
    colluder_maps : array of shape (..., h, h) or (..., m, h, h)
        R_c.
    target_maps : array of shape (..., h, h)
        R_i.

    Returns
    -------
    array of shape (..., h, h)
    """
    effective = secrets @ colluder_maps
    if len(secrets.shape) > 2:
        effective = namespace_of(effective).mean(effective, axis=-3)
    return polar_factor(effective) @ transposed(target_maps)


def pseudoinverses(matrices: Array) -> Array:
    """M† of square matrices: by elimination where that is accurate, by singular values elsewhere.

    The two agree wherever M is far from singular, as noisy matrices nearly always are; a GPU eliminates a whole batch at
    once, but decomposes matrices one after the other.
    """
    xp = namespace_of(matrices)
    try:
        inverses = xp.linalg.inv(matrices)
    except (np.linalg.LinAlgError, RuntimeError):  # one is exactly singular; torch's error is a RuntimeError
        return xp.linalg.pinv(matrices)
    residual = xp.max(xp.abs(matrices @ inverses - identity_like(matrices)), axis=(-2, -1))
    if bool(xp.all(residual <= _TRUSTED_RESIDUAL)):
        return inverses
    flat, inverses = (xp.reshape(stack, (-1, *matrices.shape[-2:])) for stack in (matrices, inverses))
    for index in np.flatnonzero(~(to_numpy(xp.reshape(residual, (-1,))) <= _TRUSTED_RESIDUAL)):
        inverses[int(index), ...] = xp.linalg.pinv(flat[int(index), ...])
    return xp.reshape(inverses, matrices.shape)
