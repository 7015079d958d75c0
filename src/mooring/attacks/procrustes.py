"""Orthogonal Procrustes: the maximum-likelihood map given only the noisy anchor (eqs. pdp_op_attack_*).

Legend: Ā the anchor and B̄ its uploaded representation, both centred; Π the polar factor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mooring.attacks.reconstruction import (
    AnchorDraws,
    Reconstruction,
    anchor_row_error,
    centred_anchor_pair,
    reconstruct,
)
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array


def procrustes(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Estimate Ô = Π(Āᵀ B̄)."""
    A, a, B, b = centred_anchor_pair(view)
    estimate = RigidMap.from_centre(procrustes_estimate(A, B), a, b)
    return reconstruct(view, estimate, row_error=anchor_row_error(view, view.anchor_noise_scale**2 / 2))


def procrustes_batch(views: Sequence[CollusionView], *, rng: np.random.Generator) -> tuple[Reconstruction, ...]:
    """Run the attack on several views with one anchor at once."""
    draws = AnchorDraws.of(views)
    O = procrustes_estimate(draws.anchor, draws.centred)
    errors = [anchor_row_error(view, view.anchor_noise_scale**2 / 2) for view in views]
    return draws.reconstructions(draws.undo(transpose(O)), O, errors)


def procrustes_estimate(anchor: Array, representations: Array) -> Array:
    """Return Ô = Π(Āᵀ B̄) (eq. pdp_op_attack_rotation) for Ā (r, h) and, for each draw, B̄ (..., r, h)."""
    return polar_factor(transpose(anchor) @ representations)
