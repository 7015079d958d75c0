"""Known anchor: the anchor and its noiseless representation give the map exactly (Prop. aaigdp_collusion)."""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, centred_anchor_pair, reconstruct
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import namespace_of
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap


def known_anchor(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Solve B̄ = Ā O for O, which is exact when the anchor representation carries no noise."""
    A, a, B, b = centred_anchor_pair(view)
    if view.anchor_noise_scale > 0:
        raise DoesNotApply("The anchor representation carries noise; see pseudoinverse, procrustes and moments.")
    O = polar_factor(namespace_of(A).linalg.pinv(A) @ B)  # already orthogonal up to rounding
    return reconstruct(view, RigidMap.from_centre(O, a, b))
