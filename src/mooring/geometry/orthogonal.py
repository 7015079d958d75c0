"""Sampling from, distance to and projection onto the orthogonal group O(d).

Legend: M a square matrix, Π(M) = U Vᵀ its polar factor (eq. orthogonal_polar_projection), σ a singular value.

Both iterations here (Newton–Schulz for the polar factor, its coupled form for the inverse square root) consist of matrix
products only, so batches run at the speed of the matrix product on CPU and GPU.
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
# x ↦ a x + b x³ + c x⁵: each polynomial is closest to one over the interval to which its predecessors map [0.03, 1].
# Together they map [0.03, 1] into [0.96, 1.04] and raise smaller values by a factor of 44. All three are positive there, so
# no singular value is lost.
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
    The draw is the Q factor of a Gaussian matrix, with the signs of R's diagonal moved into Q. Without that step some
    orientations would be more likely than others.

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
    """Return uniformly distributed matrices with orthonormal columns, from standard normal ones of shape (..., m ≥ d, d).

    The results are Q factors, with the signs of R's diagonal moved into Q. Square results follow the Haar measure on O(d).
    """
    Q, R = np.linalg.qr(gaussian)
    signs = np.where(np.diagonal(R, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.asarray(Q * signs[..., None, :])


def require_components(n_components: int) -> None:
    """Raise an `InputError` for a dimension below one."""
    if n_components < 1:
        raise InputError(
            "n_components", expected="at least 1", got=str(n_components), cure="Ask for one component or more."
        )


def orthogonality_defect(matrices: Array) -> float:
    """Return the largest entry of |MᵀM − I| over a batch of matrices."""
    xp = namespace_of(matrices)
    return float(xp.max(xp.abs(transpose(matrices) @ matrices - identity_like(matrices))))


def polar_factor(matrices: Array) -> Array:
    """Return the nearest orthogonal matrix, Π(M) = U Vᵀ, of each matrix of a batch.

    The iteration is Newton–Schulz. Matrices so close to singular that the iteration does not converge get a full SVD. For a
    singular M the nearest matrix is not unique, and the SVD gives one of them, as the paper allows.
    """
    return blockwise(_polar_factors, matrices)


def svd_polar_factor(matrices: Array) -> Array:
    """Return the nearest orthogonal matrices through the singular value decomposition, as the paper writes it."""
    U, _, Vt = namespace_of(matrices).linalg.svd(matrices, full_matrices=True)
    return U @ Vt


def reorthogonalise(matrices: Array, *, tolerance: float) -> Array:
    """Return nearly orthogonal matrices projected onto O(d) by Newton–Schulz without scaling.

    Each step squares the defect, so one or two steps suffice after a retraction.
    """
    return blockwise(lambda block: _reorthogonalise(block, tolerance), matrices)


def retract(maps: Array, turns: Array, *, tolerance: float, exactly: bool) -> Array:
    """Return R exp(Ω), to second order in Ω, for orthogonal maps R and skew turns Ω of shape (..., d, d).

    The result has the precision of the maps. I + Ω + Ω²/2 deviates from orthogonality by Ω⁴/4. If this deviation is
    below the tolerance, the result is projected back onto O(d) only if `exactly`. On a GPU, `_retract_unwatched` is used
    instead.
    """

    def moved(maps: Array, turns: Array) -> Array:
        xp = namespace_of(maps)
        if is_on_gpu(maps):
            return _retract_unwatched(maps, turns)
        square = turns @ turns
        result = maps + maps @ xp.astype(turns + 0.5 * square, maps.dtype)
        # ‖Ω²‖_F / √d is the root mean square of the squared angles, and the maximum is usually below four times that.
        # If it is not, the maps deviate slightly from O(d) until the next exact retraction.
        largest_square = 4 * float(xp.max(_frobenius(square))) / math.sqrt(maps.shape[-1])
        if not exactly and largest_square * largest_square / 4 <= tolerance:
            return result
        return _reorthogonalise(result, tolerance)

    return blockwise(moved, maps, turns)


def _retract_unwatched(maps: Array, turns: Array) -> Array:
    """Return R (I + Ω) after one Newton–Schulz step, without waiting for the GPU; NaN if one step is not enough.

    This is R exp(Ω) to second order. It deviates from orthogonality by ¾ Ω⁴, which the next step removes.
    """
    xp = namespace_of(maps)
    moved = multiply_add(maps, maps, xp.astype(turns, maps.dtype, copy=False))
    defect = transpose(moved) @ moved - identity_like(moved)
    size = _frobenius(defect)[..., 0, 0]
    defect[..., 0, 0] = xp.where(size < 1.0, defect[..., 0, 0], xp.nan)
    return multiply_add(moved, moved, defect, scale=-0.5)


def cayley(turns: Array) -> Array:
    """Return (I − Ω/2)⁻¹ (I + Ω/2) for skew Ω: exp(Ω) to second order, and orthogonal to rounding."""
    identity = identity_like(turns)
    return solve(identity - 0.5 * turns, identity + 0.5 * turns)


def _reorthogonalise(matrices: Array, tolerance: float) -> Array:
    xp = namespace_of(matrices)
    for _ in range(_MAX_SCHULZ_STEPS):
        defect = transpose(matrices) @ matrices - identity_like(matrices)
        size = float(xp.max(_frobenius(defect)))  # bounds the largest eigenvalue, which must be below two
        if not size < 1.0:
            return _polar_factors(matrices)
        matrices = matrices - 0.5 * (matrices @ defect)
        if size * size <= tolerance:
            break
    return matrices


def inverse_square_root(matrices: Array) -> Array | None:
    """Return P^(−1/2) for a batch of symmetric matrices P, to about two digits; None if any P is not positive definite.

    Two digits suffice for a preconditioner. The iteration is coupled Newton–Schulz on P / s with s ≥ λ_max(P), after a few
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
        # The eigenvalues of P / s and of every gap lie in (0, 1], except between steep steps, which overshoot.
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
    matrices = matrices / xp.where(largest > 0, largest, xp.ones_like(largest))  # avoids overflow of fourth powers
    X, settled = _schulz_polar(matrices)
    if bool(xp.all(settled)):
        return X
    return xp.where(settled[..., None, None], X, svd_polar_factor(matrices))


def _schulz_polar(matrices: Array) -> tuple[Array, Array]:
    """Return polar factors by fifth-order Newton–Schulz after a few steeper steps, and whether each one converged."""
    xp = namespace_of(matrices)
    identity = identity_like(matrices)
    # After a step singular values deviate by 5/16 of the gap cubed; the Frobenius norm bounds the gap's eigenvalues.
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
    """Return matrices scaled so that no singular value exceeds one, their Gram matrices, and the squares of those.

    The scale is the Schatten-8 norm, which exceeds σ_max by a factor of at most d^(1/8). It needs no further products.
    """
    xp = namespace_of(matrices)
    gram = transpose(matrices) @ matrices
    coarse = xp.sqrt(_frobenius(gram))
    coarse = xp.where(coarse > 0, coarse, xp.ones_like(coarse))
    gram = gram / (coarse * coarse)
    square = gram @ gram
    fine = xp.sqrt(_frobenius(square))  # the square of the scaled matrices' Schatten-8 norm
    fine = xp.where(fine > 0, fine, xp.ones_like(fine))
    return matrices / (coarse * xp.sqrt(fine)), gram / fine, square / (fine * fine)


def _frobenius(matrices: Array) -> Array:
    xp = namespace_of(matrices)
    flat = xp.reshape(matrices, (*matrices.shape[:-2], -1))
    return vector_norms(flat)[..., None, None]
