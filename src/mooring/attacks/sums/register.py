"""Register: all candidates at once, as the unknown zeros and ones of a linear system.

Legend: w_i whether candidate i is a member; ψ_i = (φφᵀ, φyᵀ) what it adds; π the share of members.

The sums are Σ w_i ψ_i and noise: D(D + 1)/2 + DK equations. Someone who holds a register of everybody who may be in it
solves them for w, exactly where there is no noise and the register is not longer than that.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.view import MembershipScores, SumView

MOST_CANDIDATES = 4000
_LEAST_SHARE, _MOST_SHARE = 0.05, 0.95
_ROUNDING = 1e-4  # standard deviation assumed of exact sums, against what arithmetic loses


def register(view: SumView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by the linear estimate of w with least mean square error, from w uncorrelated with mean π.

    The covariance of the equations is never formed: ⟨ψ_i, ψ_j⟩ = (φ_iᵀφ_j)² and (φ_iᵀφ_j)(y_iᵀy_j) are enough.
    """
    sums, phi, y = view.honest, view.candidates.features, view.candidates.outcomes
    if len(phi) > MOST_CANDIDATES:
        raise DoesNotApply(f"A register of more than {MOST_CANDIDATES} candidates takes too long to solve for.")
    if len(phi) < sums.n_rows * _MOST_SHARE:
        raise DoesNotApply("The candidates are fewer than the rows, so they are no register of all of them.")
    on_products, on_outcomes = (1 / max(scale, _ROUNDING) ** 2 for scale in sums.noise_scales)
    likeness = phi @ phi.T
    gram = likeness * (on_products * likeness + on_outcomes * (y @ y.T))
    seen = on_products * np.einsum("ni,ni->n", phi @ sums.products, phi)
    seen += on_outcomes * np.einsum("nk,nk->n", phi @ sums.outcomes, y)
    share = float(np.clip(sums.n_rows / len(phi), _LEAST_SHARE, _MOST_SHARE))
    left = seen - share * gram.sum(axis=1)
    gram[np.diag_indices_from(gram)] += 1 / (share * (1 - share))
    return MembershipScores(share + solve(gram, left, assume_a="pos"))
