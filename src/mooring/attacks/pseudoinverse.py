"""Moore–Penrose: least squares for the map, orthogonality ignored (eqs. pdp_mp_attack_objective to _reconstruction)."""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import Reconstruction, anchor_map, centred_anchor_pair
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import namespace_of
from mooring.geometry.orthogonal import polar_factor


def pseudoinverse(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Estimate Ô = Ā† B̄ and rebuild rows with Ô†; the reported map is the nearest rigid one."""
    A, a, B, b = centred_anchor_pair(view)
    xp = namespace_of(A)
    O = xp.linalg.pinv(A) @ B
    translation = b - a @ O
    rows = (view.target_upload.representation - translation) @ xp.linalg.pinv(O)
    return Reconstruction(rows, anchor_map(polar_factor(O), a, b))
