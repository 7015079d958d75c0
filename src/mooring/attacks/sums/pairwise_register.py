"""Pairwise register: solve for the membership of all candidates at once, from the general total.

This is `register` for sums of products of two columns. With g_j = φ_ijᵀφ_lj for each column j, the inner product of what
rows i and l add is (c² + Σ g_j)² − Σ g_j² + 2c² β_iᵀβ_l (φ, c and β as in `pairwise_view`).
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.register import MOST_CANDIDATES, solve_register
from mooring.attacks.sums.view import MembershipScores


def pairwise_register(view: PairwiseView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by the linear estimate of membership with the least mean square error."""
    total, workload = view.honest, view.layout.workload
    phi, bubbles = view.vectors(view.candidates)
    if len(phi) > MOST_CANDIDATES:
        raise DoesNotApply(f"Solving for a register of more than {MOST_CANDIDATES} candidates takes too long.")
    S, constant = total.matrix[: workload.n_features, : workload.n_features], phi[0, 0]
    seen = np.einsum("ni,ni->n", phi @ S, phi)
    seen += 2 * constant * bubbles @ total.matrix[0, workload.n_features :]
    likeness, squares = np.full((len(phi), len(phi)), constant**2), np.zeros((len(phi), len(phi)))
    for start, levels in zip(workload.starts, workload.columns, strict=True):
        part = phi[:, start : start + levels.n_levels - 1]
        products = part @ part.T
        likeness += products
        squares += products**2
    gram = likeness**2 - squares + 2 * constant**2 * bubbles @ bubbles.T
    return MembershipScores(solve_register(gram, seen, total.n_rows, total.noise_variance**0.5))
