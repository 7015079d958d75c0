"""Which way along each axis: second moments cannot tell an axis from its opposite, third moments and means can."""

from __future__ import annotations

import numpy as np

from mooring.attacks.view import Codes
from mooring.geometry.backend import indices_beside, namespace_of
from mooring.typing import Array


def third_moments(rows: Array, codes: Codes, axes: Array) -> Array:
    """T[a, b] = mean of z_a² z_b, for rows centred by class and scaled to unit variance along each axis.

    Turning axis b round changes the sign of column b and of nothing else, whatever the other axes' signs are.
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
    """Evidence, in units of log-likelihood, that each axis points the same way on both sides.

    Parameters
    ----------
    population, target : arrays of shape (h, h)
        Third moments of both sides on matched axes.
    n_population, n_target : int
        Rows behind them.
    """
    xp = namespace_of(population, target)
    h = population.shape[0]
    spread = (
        2.0 * (1 / n_population + 1 / n_target) * xp.ones_like(population)
    )  # Var z_a² z_b = 2 or more for a Gaussian
    diagonal = xp.arange(h, device=population.device)
    spread[diagonal, diagonal] = 6.0 * (1 / n_population + 1 / n_target)
    return 2 * xp.sum(population * target / spread, axis=0)
