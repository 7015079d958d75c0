"""Moments of rows by class: counts, means and covariances, and third moments, which determine the signs of axes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.attacks.view import Codes
from mooring.geometry.backend import device_of, identity_like, indices_beside, like, namespace_of, transpose
from mooring.typing import Array


@dataclass(frozen=True, eq=False)
class ClassMoments:
    """First and second moments of each class."""

    counts: npt.NDArray[np.float64]
    """Number of rows of each class, of shape (K,)."""
    means: Array
    """Mean of each class, of shape (K, h); zero for a class without rows."""
    covariances: Array
    """Covariance of each class with divisor n_k, of shape (K, h, h); zero for a class of one row or none."""

    @classmethod
    def of(cls, rows: Array, codes: Codes, n_classes: int) -> ClassMoments:
        """Return the moments of rows with class codes 0 … n_classes − 1."""
        xp = namespace_of(rows)
        h = rows.shape[1]
        counts = np.bincount(codes, minlength=n_classes).astype(np.float64)
        means = xp.zeros((n_classes, h), dtype=rows.dtype, device=device_of(rows))
        covariances = xp.zeros((n_classes, h, h), dtype=rows.dtype, device=device_of(rows))
        # Rows are sorted by class once, so that each class is a slice and the host need not wait for a GPU.
        ordered = rows[indices_beside(np.argsort(codes, kind="stable"), rows), :]
        ends = np.cumsum(counts).astype(np.intp)
        for k in np.flatnonzero(counts):
            members = ordered[int(ends[k] - counts[k]) : int(ends[k]), :]
            means[k, :] = xp.mean(members, axis=0)
            centred = members - means[k, :]
            covariances[k, ...] = centred.T @ centred / counts[k]
        return cls(counts, means, covariances)

    @property
    def n_rows(self) -> float:
        """The number of rows of all classes."""
        return float(self.counts.sum())

    @property
    def overall_mean(self) -> Array:
        """The mean of all rows."""
        return like(self.counts / self.n_rows, self.means) @ self.means

    @property
    def within(self) -> Array:
        """The mean of the class covariances, weighted by their numbers of rows."""
        return weighted_sum(like(self.counts / self.n_rows, self.means), self.covariances)

    def seen_from(self, origin: Array, axes: Array) -> ClassMoments:
        """Return the moments in coordinates with this origin and these orthonormal axes (columns)."""
        return ClassMoments(self.counts, (self.means - origin) @ axes, transpose(axes) @ self.covariances @ axes)

    def with_noise(self, variance: float) -> ClassMoments:
        """Return the moments that the rows would have with independent noise of this variance."""
        if variance == 0:
            return self
        return ClassMoments(self.counts, self.means, self.covariances + variance * identity_like(self.means))

    def merged(self, other: ClassMoments) -> ClassMoments:
        """Return the moments of both sets of rows together."""
        total = self.counts + other.counts
        share = like(np.divide(other.counts, total, out=np.zeros_like(total), where=total > 0), self.means)
        gap = other.means - self.means
        wide = share[:, None, None]
        spread = gap[:, :, None] * gap[:, None, :]
        return ClassMoments(
            total,
            self.means + share[:, None] * gap,
            (1 - wide) * self.covariances + wide * other.covariances + wide * (1 - wide) * spread,
        )

    def only(self, classes: npt.NDArray[np.intp]) -> ClassMoments:
        """Return the moments of these classes only."""
        chosen = indices_beside(classes, self.means)
        return ClassMoments(self.counts[classes], self.means[chosen, ...], self.covariances[chosen, ...])


def weighted_sum(weights: Array, matrices: Array) -> Array:
    """Return Σ_k w_k M_k for weights of shape (K,) and matrices of shape (..., K, a, b)."""
    xp = namespace_of(weights, matrices)
    return xp.sum(weights[:, None, None] * matrices, axis=-3)


def third_moments(rows: Array, codes: Codes, axes: Array) -> Array:
    """Return T[a, b] = mean of z_a² z_b, for rows centred by class and scaled to unit variance along each axis.

    Reversing axis b changes only the sign of column b, whatever the signs of the other axes.
    """
    xp = namespace_of(rows, axes)
    centred = xp.empty_like(rows)
    for k in np.unique(codes):
        members = indices_beside(np.flatnonzero(codes == k), rows)
        centred[members, :] = rows[members, :] - xp.mean(rows[members, :], axis=0)
    z = centred @ axes
    scale = xp.sqrt(xp.mean(z * z, axis=0))
    z = z / xp.where(scale > 0, scale, xp.ones_like(scale))
    total = (z * z).T @ z
    return total / rows.shape[0]


def sign_votes(population: Array, target: Array, n_population: int, n_target: int) -> Array:
    """Return the evidence, in units of log-likelihood, that each axis has the same sign on both sides.

    `population` and `target` are third moments on matched axes, of shape (h, h).
    """
    xp = namespace_of(population, target)
    spread = 2.0 + 4.0 * identity_like(population)  # Var z_a² z_b of a Gaussian
    spread = spread * (1 / n_population + 1 / n_target)
    return 2 * xp.sum(population * target / spread, axis=0)
