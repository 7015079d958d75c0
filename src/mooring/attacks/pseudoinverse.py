"""Moore–Penrose: least squares for the map, orthogonality ignored (eqs. pdp_mp_attack_objective to _reconstruction)."""

from __future__ import annotations

import numpy as np

from mooring.attacks.anchor_estimates import least_squares_estimate, pseudoinverses
from mooring.attacks.reconstruction import Reconstruction, anchor_map, centred_anchor_pair
from mooring.attacks.view import CollusionView
from mooring.geometry.orthogonal import polar_factor


def pseudoinverse(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Estimate Ô = Ā† B̄ and rebuild rows with Ô†; the reported map is the nearest rigid one."""
    A, a, B, b = centred_anchor_pair(view)
    O = least_squares_estimate(A, B)
    translation = b - a @ O
    rows = (view.target_upload.representation - translation) @ pseudoinverses(O)
    return Reconstruction(rows, anchor_map(polar_factor(O), a, b))
