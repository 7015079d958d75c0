"""Register: solve for the membership of all candidates at once, as the unknowns of a linear system.

Legend: w_i is 1 if candidate i is a member, else 0; ψ_i = (φφᵀ, φyᵀ) its contribution; π the share of members;
D and K the lengths of φ and y.

The sums are Σ w_i ψ_i plus noise, which are D(D + 1)/2 + DK equations. An attacker with a register of all possible members
solves these equations for w. The solution is exact if there is no noise and there are at least as many independent equations
as candidates.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.view import MembershipScores, SumView
from mooring.typing import Matrix, Vector

MOST_CANDIDATES = 4000
_LEAST_SHARE, _MOST_SHARE = 0.05, 0.95
_ROUNDING = 1e-4  # standard deviation assumed for exact sums, to allow for rounding


def register(view: SumView, *, rng: np.random.Generator, most_candidates: int = MOST_CANDIDATES) -> MembershipScores:
    """Score by the linear estimate of w with the least mean square error, assuming uncorrelated w with mean π.

    The covariance of the equations is never formed: the inner products (φ_iᵀφ_j)² and (φ_iᵀφ_j)(y_iᵀy_j) of both parts of ψ
    suffice.
    """
    sums, phi, y = view.honest, view.candidates.features, view.candidates.outcomes
    if len(phi) > most_candidates:
        raise DoesNotApply(f"Solving for a register of more than {most_candidates} candidates takes too long.")
    if len(phi) < sums.n_rows * _MOST_SHARE:
        raise DoesNotApply("There are fewer candidates than rows, so they are not a register of all members.")
    on_products, on_outcomes = (1 / max(scale, _ROUNDING) ** 2 for scale in sums.noise_scales)
    likeness = phi @ phi.T
    gram = likeness * (on_products * likeness + on_outcomes * (y @ y.T))
    seen = on_products * np.einsum("ni,ni->n", phi @ sums.products, phi)
    seen += on_outcomes * np.einsum("nk,nk->n", phi @ sums.outcomes, y)
    return MembershipScores(_solve(gram, seen, sums.n_rows))


def solve_register(gram: Matrix, seen: Vector, n_rows: float, noise_scale: float) -> Vector:
    """Return the estimate of w for equations whose noise has one scale.

    `gram` has the inner products ⟨ψ_i, ψ_j⟩ and `seen` those of the sums with each ψ_i.
    """
    if len(gram) < n_rows * _MOST_SHARE:
        raise DoesNotApply("There are fewer candidates than rows, so they are not a register of all members.")
    precision = 1 / max(noise_scale, _ROUNDING) ** 2
    return _solve(precision * gram, precision * seen, n_rows)


def _solve(gram: Matrix, seen: Vector, n_rows: float) -> Vector:
    share = float(np.clip(n_rows / len(gram), _LEAST_SHARE, _MOST_SHARE))
    left = seen - share * gram.sum(axis=1)
    gram[np.diag_indices_from(gram)] += 1 / (share * (1 - share))
    return np.asarray(share + solve(gram, left, assume_a="pos"))
