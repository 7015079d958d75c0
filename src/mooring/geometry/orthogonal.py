"""The orthogonal group O(d): sampling it, measuring the distance to it, projecting onto it.

Legend: M a square matrix, Π(M) = U Vᵀ its polar factor (eq. orthogonal_polar_projection), σ a singular value.

Both iterations here (Newton–Schulz for the polar factor, its coupled form for the inverse square root) consist of
matrix products alone, so whole batches run at the speed of the product, on CPU and GPU alike.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.geometry.backend import (
    blockwise,
    identity_like,
    is_on_gpu,
    multiply_add,
    namespace_of,
    solve,
    transpose,
    vector_norms,
)
from mooring.randomness import require_generator
from mooring.typing import Array

_MAX_SCHULZ_STEPS = 40
_PRECONDITIONER_ACCURACY = 1e-2
# x ↦ a x + b x³ + c x⁵, each the nearest to one, over the interval where the step before leaves [0.03, 1]; together they
# take it to [0.96, 1.04], and smaller values up by a factor of 44. No value is lost: all three are positive there.
_STEEP_STEPS = ((7.3625, -20.7434, 15.1606), (2.9175, -2.1824, 0.4755), (2.0463, -1.4295, 0.3934))
_STEEP_GAP = 4.0


def sample_orthogonal(
    n_components: int, *, rng: np.random.Generator, batch_shape: tuple[int, ...] = ()
) -> npt.NDArray[np.float64]:
    """Draw from the Haar measure on O(d), reflections included.

    Parameters
    ----------
    n_components : int
        The dimension d.
    batch_shape : tuple of int, optional
        Leading axes, for independent draws at once.

    Returns
    -------
    numpy.ndarray of shape (*batch_shape, d, d)

    Notes
    -----
    QR of a Gaussian matrix, with the signs of R's diagonal moved into Q; without that step QR favours some orientations.

    Examples
    --------
    >>> O = sample_orthogonal(3, rng=np.random.default_rng(0))
    >>> bool(np.allclose(O.T @ O, np.eye(3)))
    True
    """
    require_generator(rng)
    require_components(n_components)
    return orthogonal_from_gaussian(rng.standard_normal((*batch_shape, n_components, n_components)))


def orthogonal_from_gaussian(gaussian: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Turn standard normal matrices of shape (..., m, d), m at least d, into orthonormal columns without a bias.

    QR with the signs of R's diagonal moved into Q: for square matrices that is the Haar measure on O(d).
    """
    Q, R = np.linalg.qr(gaussian)
    signs = np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.asarray(Q * signs[..., None, :])


def require_components(n_components: int) -> None:
    """Refuse a dimension below one."""
    if n_components < 1:
        raise InputError(
            "n_components", expected="at least 1", got=str(n_components), cure="Ask for one component or more."
        )


def orthogonality_defect(matrices: Array) -> float:
    """Return the largest entry of |MᵀM − I| over a batch of matrices."""
    xp = namespace_of(matrices)
    return float(xp.max(xp.abs(transpose(matrices) @ matrices - identity_like(matrices))))


def polar_factor(matrices: Array) -> Array:
    """Project each matrix of a batch onto O(d): the nearest orthogonal matrix, Π(M) = U Vᵀ.

    Newton–Schulz, and a full SVD for the rare blocks so close to singular that it has not settled. For a singular M any
    factor of a full SVD is a nearest one, as the paper allows.
    """
    return blockwise(_polar_factors, matrices)


def svd_polar_factor(matrices: Array) -> Array:
    """Project onto O(d) through the singular value decomposition, as the paper writes it."""
    U, _, Vt = namespace_of(matrices).linalg.svd(matrices, full_matrices=True)
    return U @ Vt


def reorthogonalise(matrices: Array, *, tolerance: float) -> Array:
    """Bring nearly orthogonal matrices back onto O(d): Newton–Schulz without scaling.

    Each step squares the defect, so one or two steps are enough for what a retraction leaves behind.
    """
    return blockwise(lambda block: _reorthogonalise(block, tolerance), matrices)


def retract(maps: Array, turns: Array, *, tolerance: float, exactly: bool) -> Array:
    """Move orthogonal maps along skew turns: R exp(Ω), to third order in Ω."""

    def moved(maps: Array, turns: Array) -> Array:
        xp = namespace_of(maps)
        if is_on_gpu(maps):
            return _retract_unwatched(maps, turns)
        square = turns @ turns
        result = maps + maps @ xp.astype(turns + 0.5 * square, maps.dtype)
        # The Frobenius norm of Ω², over √d, is the root mean square of the squared angles; four times that is a usual
        # maximum. Where it is not, the maps are off by a little until they are next brought back.
        largest_square = 4 * float(xp.max(_frobenius(square))) / math.sqrt(maps.shape[-1])
        if not exactly and largest_square * largest_square / 4 <= tolerance:
            return result
        return _reorthogonalise(result, tolerance)

    return blockwise(moved, maps, turns)


def _retract_unwatched(maps: Array, turns: Array) -> Array:
    """R (I + Ω) and one Newton–Schulz step, without waiting for the GPU; NaN where that step would not be enough.

    That is R exp(Ω) to second order, and shorter than orthogonal by ¾ Ω⁴, which the next step takes away.
    """
    xp = namespace_of(maps)
    moved = multiply_add(maps, maps, xp.astype(turns, maps.dtype, copy=False))
    defect = transpose(moved) @ moved - identity_like(moved)
    size = _frobenius(defect)[..., 0, 0]
    defect[..., 0, 0] = xp.where(size < 1.0, defect[..., 0, 0], xp.nan)
    return multiply_add(moved, moved, defect, scale=-0.5)


def cayley(turns: Array) -> Array:
    """Orthogonal matrices (I − Ω/2)⁻¹ (I + Ω/2) of skew turns: exp(Ω) to second order, and orthogonal to rounding."""
    identity = identity_like(turns)
    return solve(identity - 0.5 * turns, identity + 0.5 * turns)


def _reorthogonalise(matrices: Array, tolerance: float) -> Array:
    xp = namespace_of(matrices)
    for _ in range(_MAX_SCHULZ_STEPS):
        defect = transpose(matrices) @ matrices - identity_like(matrices)
        size = float(xp.max(_frobenius(defect)))  # a bound on the largest eigenvalue, which must stay below two
        if not size < 1.0:
            return _polar_factors(matrices)
        matrices = matrices - 0.5 * (matrices @ defect)
        if size * size <= tolerance:
            break
    return matrices


def inverse_square_root(matrices: Array) -> Array | None:
    """Return P^(−1/2) for a batch of symmetric positive definite P, to about two digits; None if one is not.

    Meant for preconditioners, where two digits are plenty: coupled Newton–Schulz on P / s with s ≥ λ_max(P), after a few
    steeper steps.
    """
    xp = namespace_of(matrices)
    identity = identity_like(matrices)
    scale = xp.sqrt(_frobenius(matrices @ matrices))  # the Schatten-4 norm: λ_max ≤ s ≤ d^(1/4) λ_max
    if not bool(xp.all(scale > 0)):
        return None
    Y = matrices / scale
    Z = xp.broadcast_to(identity, Y.shape)
    for step in range(_MAX_SCHULZ_STEPS):
        product = Z @ Y if step else Y
        gap = identity - product
        size = float(xp.max(xp.abs(gap)))
        # The eigenvalues of P / s lie in (0, 1], and so do those of every gap, but between steep steps, which overshoot.
        if not size < (_STEEP_GAP if 0 < step < len(_STEEP_STEPS) else 1.0 + 1e-3):
            return None
        if size < _PRECONDITIONER_ACCURACY:
            return Z / xp.sqrt(scale)
        if step < len(_STEEP_STEPS):
            a, b, c = _STEEP_STEPS[step]
            update = a * identity + multiply_add(product, product, product, weight=b, scale=c)
        else:
            update = identity + 0.5 * gap
        Y, Z = Y @ update, update @ Z if step else update
    return None


def _polar_factors(matrices: Array) -> Array:
    xp = namespace_of(matrices)
    largest = xp.max(xp.abs(matrices), axis=(-2, -1), keepdims=True)
    matrices = matrices / xp.where(largest > 0, largest, xp.ones_like(largest))  # fourth powers must not overflow
    X, settled = _schulz_polar(matrices)
    if bool(xp.all(settled)):
        return X
    U, _, Vt = xp.linalg.svd(matrices, full_matrices=True)
    return xp.where(settled[..., None, None], X, U @ Vt)


def _schulz_polar(matrices: Array) -> tuple[Array, Array]:
    """Newton–Schulz of fifth order after a few steeper steps, and for each matrix whether it settled."""
    xp = namespace_of(matrices)
    identity = identity_like(matrices)
    # A step leaves singular values off by 5/16 of the gap's cube, and the Frobenius norm bounds the gap's eigenvalues.
    settled_at = (3 * float(xp.finfo(matrices.dtype).eps)) ** (1 / 3)
    X, gram, square = _within_unit_ball(matrices)
    for step, (a, b, c) in enumerate(_STEEP_STEPS):
        polynomial = multiply_add(gram, gram, gram, weight=b, scale=c) if step else b * gram + c * square
        X = multiply_add(X, X, polynomial, weight=a)
        gram = transpose(X) @ X
    for _ in range(_MAX_SCHULZ_STEPS - len(_STEEP_STEPS)):
        defect = _frobenius(identity - gram)[..., 0, 0]
        # I + ½ (I − G) + ⅜ (I − G)², sorted by powers of G
        X = multiply_add(X, X, multiply_add(gram, gram, gram, weight=-1.25, scale=0.375), weight=1.875)
        if bool(xp.all(defect <= settled_at)):
            break
        gram = transpose(X) @ X
    return X, defect <= settled_at


def _within_unit_ball(matrices: Array) -> tuple[Array, Array, Array]:
    """Scale so that no singular value is above one; also return the Gram matrix of the result, and its square.

    The Schatten-8 norm bounds σ_max from above by at most d^(1/8), and costs nothing: the two products are needed anyway.
    """
    xp = namespace_of(matrices)
    gram = transpose(matrices) @ matrices
    coarse = xp.sqrt(_frobenius(gram))
    coarse = xp.where(coarse > 0, coarse, xp.ones_like(coarse))
    gram = gram / (coarse * coarse)
    square = gram @ gram
    fine = xp.sqrt(_frobenius(square))  # of the scaled Gram matrix: the square of the norm
    fine = xp.where(fine > 0, fine, xp.ones_like(fine))
    return matrices / (coarse * xp.sqrt(fine)), gram / fine, square / (fine * fine)


def _frobenius(matrices: Array) -> Array:
    xp = namespace_of(matrices)
    flat = xp.reshape(matrices, (*matrices.shape[:-2], -1))
    return vector_norms(flat)[..., None, None]
