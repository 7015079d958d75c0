"""Mixtures of Gaussians as densities of rows with noise of unit covariance, and Stein's estimate of the risk.

Legend: x a row with noise, p its density, L the covariance of a Gaussian, and S = L + I its covariance with the noise. The
posterior mean of the row without noise is x + ∇ log p(x); its risk follows from |∇ log p|² and ∆p / p (see `kernel`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mooring.attacks.view import Codes
from mooring.geometry.backend import device_of, identity_like, like, namespace_of, solve
from mooring.typing import Array

_OF_CLASS = 0.05  # share of the class covariance that is added to that of neighbours
_BLOCK_NUMBERS = 2**22
_HIDDEN = -1e300


@dataclass(frozen=True, eq=False)
class Atoms:
    """Rows of one class in whitened coordinates, and a code for the owner of each row."""

    rows: Array
    owners: Codes


@dataclass(frozen=True, eq=False)
class Density:
    """The sum of a mixture's Gaussians at n rows.

    The sum is not divided by the number of Gaussians, and a factor common to all mixtures is left out.
    """

    log_value: Array
    """log p, of shape (n,)."""
    gradient: Array
    """∇ log p, of shape (n, h), which is the posterior mean minus the row."""
    laplacian: Array
    """∆p / p, of shape (n,)."""

    def plus(self, other: Density) -> Density:
        """Return the sum of both densities."""
        xp = namespace_of(self.log_value)
        top = xp.maximum(self.log_value, other.log_value)
        first, second = xp.exp(self.log_value - top), xp.exp(other.log_value - top)
        share = first / (first + second)
        return Density(
            top + xp.log(first + second),
            share[:, None] * self.gradient + (1 - share)[:, None] * other.gradient,
            share * self.laplacian + (1 - share) * other.laplacian,
        )

    def risk(self) -> float:
        """Return Stein's estimate of the summed squared error of the posterior means, in units of the noise."""
        xp = namespace_of(self.log_value)
        squares = xp.sum(self.gradient * self.gradient, axis=1)
        return float(xp.sum(2 * self.laplacian - squares)) + float(np.prod(self.gradient.shape))


@dataclass(frozen=True, eq=False)
class Neighbourhoods:
    """Gaussians, each at the mean of a row and its nearest neighbours, with noise of unit covariance added."""

    means: Array
    """Means, of shape (m, h)."""
    inverses: Array
    """Inverse covariances, of shape (m, h, h)."""
    levels: Array
    """−½ log det of the covariances, of shape (m,)."""


@dataclass(frozen=True, eq=False)
class LocalShapes:
    """Gaussians, each at the mean of a row and its nearest neighbours, without noise."""

    means: Array
    """Means, of shape (m, h)."""
    variances: Array
    """Eigenvalues of the covariances, of shape (m, h)."""
    axes: Array
    """Their eigenvectors, of shape (m, h, h)."""

    def with_noise(self, scale: float) -> Neighbourhoods:
        """Return the neighbourhoods with noise of this scale, in coordinates in which the noise has unit covariance."""
        xp = namespace_of(self.means)
        variances = 1 + self.variances / scale**2
        inverses = (self.axes / variances[:, None, :]) @ xp.matrix_transpose(self.axes)
        return Neighbourhoods(self.means / scale, inverses, -xp.sum(xp.log(variances), axis=1) / 2)


def mix_atoms(
    rows: Array, atoms: Atoms, kernel: Array, owners: Codes | None, *, block_numbers: int = _BLOCK_NUMBERS
) -> Density:
    """Return the density of Gaussians with the covariance L (`kernel`) at atoms.

    With `owners`, a row skips atoms of its own owner. Rows are worked through in blocks of about `block_numbers` weights.
    """
    xp = namespace_of(rows)
    S = kernel + identity_like(kernel)
    inverse = solve(S, identity_like(S))
    scaled = atoms.rows @ inverse
    squares = xp.sum(scaled * atoms.rows, axis=1) / 2
    bends = xp.sum(scaled * scaled, axis=1)  # |S⁻¹ a|²
    level = -xp.linalg.slogdet(S)[1] / 2
    step = max(1, block_numbers // atoms.rows.shape[0])
    parts = []
    for start in range(0, max(1, rows.shape[0]), step):
        block = rows[start : start + step, :]
        turned = block @ inverse
        logs = block @ scaled.T - squares
        if owners is not None:
            same = owners[start : start + step, None] == atoms.owners
            logs = xp.where(like(same, logs) > 0, _HIDDEN, logs)
        top = xp.max(logs, axis=1)
        weights = xp.exp(logs - top[:, None])
        total = xp.sum(weights, axis=1)
        weights = weights / total[:, None]
        middle = weights @ scaled  # S⁻¹ ā
        gradient = middle - turned
        # ∆p / p = Σ_j w_j |S⁻¹ (a_j − x)|² − tr S⁻¹
        bent = weights @ bends - 2 * xp.sum(middle * turned, axis=1) + xp.sum(turned * turned, axis=1)
        value = top + xp.log(total) - xp.sum(block * turned, axis=1) / 2 + level
        parts.append((value, gradient, bent - xp.sum(xp.linalg.diagonal(inverse))))
    return Density(*(xp.concat([part[k] for part in parts], axis=0) for k in range(3)))


def find_neighbourhoods(
    rows: Array,
    covariance: Array,
    numbers: Sequence[int],
    *,
    most: int,
    most_numbers: int = 2**20,
    block_numbers: int = _BLOCK_NUMBERS,
) -> dict[int, Neighbourhoods]:
    """Return the neighbourhoods of a class's rows by number of neighbours.

    A number of neighbours is used if there are at least twice as many rows. Some rows get no neighbourhood if there are more
    than `most`, or if all covariances would hold more than `most_numbers` numbers.
    """
    xp, neighbourhoods = namespace_of(rows), {}
    for number, means, covariances in _local_moments(rows, covariance, numbers, most, most_numbers, block_numbers):
        noisy = covariances + identity_like(covariance)
        neighbourhoods[number] = Neighbourhoods(means, xp.linalg.inv(noisy), -xp.linalg.slogdet(noisy)[1] / 2)
    return neighbourhoods


def find_local_shapes(rows: Array, covariance: Array, numbers: Sequence[int], *, most: int) -> dict[int, LocalShapes]:
    """Return the local shapes of a class by number of neighbours; rows are chosen as in `find_neighbourhoods`."""
    eigh = namespace_of(rows).linalg.eigh
    moments = _local_moments(rows, covariance, numbers, most)
    return {number: LocalShapes(means, *eigh(covariances)) for number, means, covariances in moments}


def _local_moments(
    rows: Array,
    covariance: Array,
    numbers: Sequence[int],
    most: int,
    most_numbers: int = 2**20,
    block_numbers: int = _BLOCK_NUMBERS,
) -> Iterator[tuple[int, Array, Array]]:
    """Yield each number of neighbours, with the means and covariances of neighbourhoods.

    A share of the class's covariance is added to each covariance.
    """
    xp, (n, h) = namespace_of(rows), rows.shape
    numbers = [number for number in numbers if n >= 2 * number]
    if not numbers:
        return
    centred = rows - xp.mean(rows, axis=0)
    some = slice(None, None, max(1 + n * h**2 // most_numbers, -(-n // most)))
    distances = xp.sum(centred * centred, axis=1) - 2 * centred[some, :] @ centred.T
    nearest = xp.argsort(distances, axis=1)[:, : max(numbers)]
    m = nearest.shape[0]
    for number in numbers:
        means = xp.empty_like(rows[some, :])
        covariances = xp.empty((m, h, h), dtype=rows.dtype, device=device_of(rows))
        step = max(1, block_numbers // (number * h))
        for start in range(0, m, step):
            at = slice(start, start + step)
            near = xp.reshape(rows[xp.reshape(nearest[at, :number], (-1,)), :], (-1, number, h))
            means[at, :] = xp.mean(near, axis=1)
            off = near - means[at, None, :]
            covariances[at, :, :] = xp.matrix_transpose(off) @ off / number + _OF_CLASS * covariance
        yield number, means, covariances


def mix_neighbourhoods(rows: Array, near: Neighbourhoods, *, block_numbers: int = _BLOCK_NUMBERS) -> Density:
    """Return the density of Gaussians at the means of neighbourhoods, each with its own covariance."""
    xp = namespace_of(rows)
    traces = xp.sum(xp.linalg.diagonal(near.inverses), axis=1)
    step = max(1, block_numbers // int(np.prod(near.means.shape)))
    parts = []
    for start in range(0, max(1, rows.shape[0]), step):
        off = near.means[:, None, :] - rows[None, start : start + step, :]
        turned = off @ near.inverses
        logs = near.levels[:, None] - xp.sum(off * turned, axis=2) / 2
        top = xp.max(logs, axis=0)
        weights = xp.exp(logs - top)
        total = xp.sum(weights, axis=0)
        weights = weights / total
        bent = xp.sum(weights * (xp.sum(turned * turned, axis=2) - traces[:, None]), axis=0)
        parts.append((top + xp.log(total), xp.sum(weights[:, :, None] * turned, axis=0), bent))
    return Density(*(xp.concat([part[k] for part in parts], axis=0) for k in range(3)))
