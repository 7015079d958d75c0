"""Whitened difference: compare the sums, minus their expectation, with a candidate's contribution."""

from __future__ import annotations

import numpy as np

from mooring.attacks.sums.view import MembershipScores, SumView
from mooring.typing import Matrix

_SMALLEST = 1e-6


def whitened_difference(view: SumView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by the likelihood ratio of the difference with and without the candidate, under a Gaussian model.

    In the eigenbasis V of S, with x = Vᵀφ and eigenvalues nλ, the difference d = S − n E φφᵀ has entries of variance
    n(1 + n/n_c) λ_i λ_j plus the variance of the noise, which is the same in every basis. The term n/n_c is the error of the
    expectation, which comes from n_c known rows of the population. A member adds x xᵀ to d, and x yᵀ to the difference of T.
    """
    population, sums, candidates = view.require_population(), view.honest, view.candidates
    n, known = sums.n_rows, len(population.features)
    values, V = np.linalg.eigh(sums.products)
    spread, x, reference = np.maximum(values, 0) / n + _SMALLEST, candidates.features @ V, population.features @ V
    factor = n * (1 + n / known)
    variances = factor * np.outer(spread, spread) + sums.noise_scales[0] ** 2 / 2
    on_outcomes = factor * np.outer(spread, population.outcomes.var(axis=0) + _SMALLEST) + sums.noise_scales[1] ** 2
    d = np.diag(values) - n / known * reference.T @ reference
    t = V.T @ sums.outcomes - n / known * reference.T @ population.outcomes
    y, squares = candidates.outcomes, x**2
    matched = _forms(x, d / variances, x) / 2 + _forms(x, t / on_outcomes, y)
    moved = _forms(squares, 1 / variances, squares) / 2 + _forms(squares, 1 / on_outcomes, y**2)
    return MembershipScores(matched - moved / 2)


def _forms(left: Matrix, matrix: Matrix, right: Matrix) -> Matrix:
    """Return lᵀMr of every pair of rows."""
    return np.asarray(np.einsum("ni,ni->n", left @ matrix, right))
