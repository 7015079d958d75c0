"""Ridge regression from sums: the solver for models of secure sums, for their coefficients, and for rows in pieces."""

from __future__ import annotations

import numpy as np

from mooring.typing import Matrix


def solve_ridge(products: Matrix, ridge: float, right: Matrix) -> Matrix:
    """Return (M₊ + λI)⁻¹ B, with the eigenvalues of M below zero, which noise makes, set to zero.

    Examples
    --------
    >>> solve_ridge(np.diag([1.0, 3.0]), 1.0, np.array([[2.0], [4.0]])).ravel()
    array([1., 1.])
    """
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    return np.asarray(vectors @ ((vectors.T @ right) / (np.maximum(values, 0) + ridge)[:, None]))
