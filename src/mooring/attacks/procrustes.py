"""Orthogonal Procrustes: the maximum-likelihood map given the noisy anchor alone (eqs. pdp_op_attack_objective and on)."""

from __future__ import annotations

import numpy as np

from mooring.attacks.anchor_estimates import procrustes_estimate
from mooring.attacks.reconstruction import (
    Reconstruction,
    anchor_map,
    anchor_row_error,
    centred_anchor_pair,
    undone,
)
from mooring.attacks.view import CollusionView


def procrustes(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Estimate Ô = Π(Āᵀ B̄)."""
    A, a, B, b = centred_anchor_pair(view)
    estimate = anchor_map(procrustes_estimate(A, B), a, b)
    return undone(view, estimate, row_error=anchor_row_error(view, view.anchor_noise_scale**2 / 2))
