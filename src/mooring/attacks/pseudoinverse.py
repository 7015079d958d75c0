"""Moore–Penrose: least squares for the map without the constraint of orthogonality (eqs. pdp_mp_attack_*).

Legend: Ā the anchor and B̄ its uploaded representation, both centred; † the pseudoinverse. With the
paper's anchor, Ā† = Āᵀ.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.attacks.reconstruction import AnchorDraws, Reconstruction, centred_anchor_pair
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import identity_like, namespace_of, to_numpy, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array

_TRUSTED_RESIDUAL = 1e-8


def pseudoinverse(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Estimate Ô = Ā† B̄ and rebuild rows with Ô†. The reported map is the nearest rigid one."""
    A, a, B, b = centred_anchor_pair(view)
    O = least_squares_estimate(A, B)
    translation = b - a @ O
    rows = (view.target_upload.representation - translation) @ pseudoinverses(O)
    return Reconstruction(rows, RigidMap.from_centre(polar_factor(O), a, b))


def pseudoinverse_batch(views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """Run the attack on several views with one anchor at once."""
    draws = AnchorDraws.of(views)
    O = least_squares_estimate(draws.anchor, draws.centred)
    return draws.reconstructions(draws.undo(pseudoinverses(O)), polar_factor(O), [None] * len(views))


def least_squares_estimate(anchor: Array, representations: Array) -> Array:
    """Return Ô = Ā† B̄, of shape (..., h, h), which need not be orthogonal (eq. pdp_mp_attack_rotation)."""
    gram = transpose(anchor) @ anchor  # Ā† = (Āᵀ Ā)† Āᵀ, and for an orthonormal anchor the first factor is I
    return pseudoinverses(gram) @ (transpose(anchor) @ representations)


def pseudoinverses(matrices: Array) -> Array:
    """Return M† of square matrices, by inversion if that is accurate and by singular values otherwise.

    The two agree if M is far from singular, as noisy matrices nearly always are. A GPU inverts a whole batch at once, but
    decomposes matrices one at a time.
    """
    xp = namespace_of(matrices)
    try:
        inverses = xp.linalg.inv(matrices)
    except (np.linalg.LinAlgError, RuntimeError):  # a matrix is exactly singular; torch's error is a RuntimeError
        return xp.linalg.pinv(matrices)
    residual = xp.max(xp.abs(matrices @ inverses - identity_like(matrices)), axis=(-2, -1))
    if bool(xp.all(residual <= _TRUSTED_RESIDUAL)):
        return inverses
    flat, inverses = (xp.reshape(stack, (-1, *matrices.shape[-2:])) for stack in (matrices, inverses))
    for index in np.flatnonzero(~(to_numpy(xp.reshape(residual, (-1,))) <= _TRUSTED_RESIDUAL)):
        inverses[int(index), ...] = xp.linalg.pinv(flat[int(index), ...])
    return xp.reshape(inverses, matrices.shape)
