"""What the statistical tests of this folder share: p-values of laws, and the power to notice a stated deviation.

All tests run at one level and at fixed seeds, so each of them passes or fails once and for all. A test that states a law
also states a deviation, computes the probability of noticing it, and feeds the deviation in to see it noticed.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from mooring import RigidMap


def draw_secrets(n_participants, n_components):
    """Maps that all translate, and of which some turn and some also reflect."""
    rng = np.random.default_rng(1)
    secrets = [RigidMap.sample(n_components, rng=rng) for _ in range(n_participants)]
    assert {round(np.linalg.det(secret.orthogonal)) for secret in secrets} == {-1, 1}
    assert min(np.linalg.norm(secret.translation) for secret in secrets) > 0.3
    return secrets


def mean_row(B):
    return B.T @ np.ones(len(B)) / len(B)


def centred(B):
    return B - np.outer(np.ones(len(B)), mean_row(B))


class Laws:
    """Tests of standard normal noise, each with its power."""

    LEVEL = 1e-3

    @staticmethod
    def size(noise):
        """Two-sided p-value that the squares of independent standard normal entries sum to what they should (exact)."""
        total, count = float(np.sum(np.square(noise))), np.size(noise)
        return 2 * min(stats.chi2.cdf(total, count), stats.chi2.sf(total, count))

    @classmethod
    def size_power(cls, count, *, variance_factor):
        """Probability that `size` notices entries whose variance is off by a factor (exact)."""
        low, high = stats.chi2.ppf([cls.LEVEL / 2, 1 - cls.LEVEL / 2], count)
        return stats.chi2.cdf(low / variance_factor, count) + stats.chi2.sf(high / variance_factor, count)

    @staticmethod
    def centre(vectors):
        """p-value that vectors with independent standard normal coordinates have mean zero (exact)."""
        n, width = vectors.shape
        return stats.chi2.sf(n * np.sum(np.square(vectors.mean(axis=0))), width)

    @classmethod
    def centre_power(cls, n, width, *, shift):
        """Probability that `centre` notices a mean vector of length `shift` (exact)."""
        return stats.ncx2.sf(stats.chi2.isf(cls.LEVEL, width), width, n * shift**2)

    @staticmethod
    def covariance(vectors):
        """p-value that vectors of mean zero have the identity as covariance: ½ n ‖S − I‖² against χ² (large n)."""
        n, width = vectors.shape
        gap = vectors.T @ vectors / n - np.eye(width)
        return stats.chi2.sf(n / 2 * np.sum(gap**2), width * (width + 1) / 2)

    @classmethod
    def covariance_power(cls, n, width, *, correlation, pairs=1):
        """Probability that `covariance` notices this correlation in so many pairs of coordinates (large n)."""
        freedom = width * (width + 1) / 2
        return stats.ncx2.sf(stats.chi2.isf(cls.LEVEL, freedom), freedom, n * pairs * correlation**2)

    @classmethod
    def unrelated(cls, noise, features):
        """p-value that standard normal vectors do not follow the features that go with them.

        Exact given the features: the share of each noise coordinate in their span is χ² with as many degrees of freedom
        as the span has dimensions.
        """
        basis = cls._span(features)
        return stats.chi2.sf(np.sum(np.square(basis.T @ noise)), basis.shape[1] * noise.shape[1])

    @classmethod
    def unrelated_power(cls, noise_shape, features, *, explained):
        """Probability that `unrelated` notices features that explain this share of one coordinate's variance."""
        freedom = cls._span(features).shape[1] * noise_shape[1]
        return stats.ncx2.sf(stats.chi2.isf(cls.LEVEL, freedom), freedom, noise_shape[0] * explained / (1 - explained))

    @staticmethod
    def _span(features):
        U, singular_values, _ = np.linalg.svd(np.asarray(features), full_matrices=False)
        return U[:, singular_values > 1e-9 * singular_values[0]]

    @classmethod
    def shape_power(cls, n, *, distance, tests=1, samples=1):
        """Probability, at least, that a Kolmogorov–Smirnov test notices distribution functions `distance` apart.

        From the Dvoretzky–Kiefer–Wolfowitz inequality, for one sample of n or two, at the level shared by so many tests.
        """
        threshold = math.sqrt(samples * math.log(2 * tests / cls.LEVEL) / (2 * n))
        room = (distance - threshold) / samples
        return 1 - 2 * samples * math.exp(-2 * n * room**2) if room > 0 else 0.0

    @staticmethod
    def distance_to_laplace():
        """Largest gap between the distribution functions of the normal and the Laplace law of one variance."""
        grid = np.linspace(-8, 8, 200_001)
        return float(np.max(np.abs(stats.norm.cdf(grid) - stats.laplace.cdf(grid, scale=math.sqrt(0.5)))))


@pytest.fixture(scope="session")
def laws():
    return Laws()
