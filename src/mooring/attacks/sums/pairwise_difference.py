"""Pairwise difference: compare the general total, minus its expectation, with a candidate's products of two columns."""

from __future__ import annotations

import numpy as np

from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import MembershipScores

_SMALLEST = 1e-6


def pairwise_difference(view: PairwiseView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by the likelihood ratio of the differences with and without the candidate, as if entries were independent.

    Over n rows, an entry whose product has the variance v in the population differs from its expectation with the variance
    n(1 + n/n_c) v, where n_c rows of the population are known, plus the noise of the entry.
    """
    workload, total = view.layout.workload, view.honest
    (known, known_bubbles), (phi, bubbles) = (
        view.vectors(rows) for rows in (view.require_population(), view.candidates)
    )
    n, n_known, D = max(total.n_rows, 1.0), len(known), workload.n_features
    factor, noise = n * (1 + n / n_known), total.noise_variance / 2
    shared = np.triu(workload.shared[:D, :D], 1)
    expected = known.T @ known / n_known
    variances = (known**2).T @ known**2 / n_known - expected**2
    weights = np.where(shared, 1 / (factor * np.maximum(variances, _SMALLEST) + noise), 0.0)
    difference = (total.matrix[:D, :D] - n * expected) * weights
    matched = np.einsum("ni,ni->n", phi @ difference, phi)
    moved = np.einsum("ni,ni->n", phi**2 @ weights, phi**2)
    mean, spread = known_bubbles.mean(axis=0), known_bubbles.var(axis=0)
    constant = phi[0, 0]
    precision = 1 / (factor * constant**2 * np.maximum(spread, _SMALLEST) + noise)
    curves = (total.matrix[0, D:] - n * constant * mean) * precision
    matched += constant * bubbles @ curves
    moved += constant**2 * bubbles**2 @ precision
    return MembershipScores(matched - moved / 2)
