"""Leverage: sums fit the rows that they were computed from better than other rows."""

from __future__ import annotations

import math

import numpy as np

from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import MembershipScores, SumView
from mooring.typing import Matrix

_ROUNDING = 1e-9


def leverage(view: SumView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by −zᵀM⁻¹z for z = (φ, y), a row's features and label, and M = Σzzᵀ over the honest rows.

    For φ alone, zᵀM⁻¹z is the leverage; with the label it is the leverage plus the squared residual of least squares. If M
    is a Wishart matrix of n rows of length D, the log-likelihood ratio of membership is (n − D − 2)/2 log(1 − zᵀM⁻¹z), apart
    from terms of the population. Noise of scale σ widens the spectrum of M by about σ√D, which is added to the eigenvalues.
    """
    rows = view.joint_features(view.candidates)
    return MembershipScores(-measure_leverage(view.joint_products(), rows, noise_scale=max(view.honest.noise_scales)))


def score_without_sums(view: SumView | PairwiseView) -> MembershipScores:
    """Score candidates by how typical they are of the colluders' rows, which an attacker can do without the total."""
    known = view.joint_features(view.require_population())
    rows = view.joint_features(view.candidates)
    return MembershipScores(-measure_leverage(known.T @ known, rows, noise_scale=1.0))


def measure_leverage(products: Matrix, rows: Matrix, *, noise_scale: float) -> Matrix:
    """Return zᵀ(M₊ + λI)⁻¹z of every row z, for products M whose entries have noise of this scale.

    M₊ is M with negative eigenvalues set to zero; λ grows with the noise.
    """
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    ridge = noise_scale * math.sqrt(len(values)) + _ROUNDING * max(float(values[-1]), _ROUNDING)
    return np.asarray(((rows @ vectors) ** 2 / (np.maximum(values, 0) + ridge)).sum(axis=1))
