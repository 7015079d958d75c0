"""Column space: with fewer rows than features φ, members lie in the column space of S = Σ φφᵀ; most other rows do not."""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.view import MembershipScores, SumView

_ROUNDING = 1e-10


def column_space(view: SumView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by minus the squared distance of a candidate's φ from the column space of S, which is zero for members."""
    if view.noise is not None:
        raise DoesNotApply("With noise, the sums span all features.")
    values, vectors = np.linalg.eigh(view.honest.products)
    empty = vectors[:, values < _ROUNDING * values[-1]]
    if empty.shape[1] == 0:
        raise DoesNotApply("The honest rows span all features, so every candidate lies in the column space.")
    return MembershipScores(-((view.candidates.features @ empty) ** 2).sum(axis=1))
