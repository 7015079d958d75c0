"""What the ascent remembers of the objective's curvature: a preconditioner, and a limited memory of past steps.

Legend: K the skew gradient, P_i the symmetric part of R_iᵀ(GR)_i; H₀ the preconditioner; s, y a step and the fall of the
gradient along it; u = H₀ y.

Near a maximum the Hessian acts on participant i's skew direction Ω mostly as (P Ω + Ω P)/2; the coupling between
participants is the smaller rest. P^(1/2) Ω P^(1/2) is close to that, and its inverse is two products a block. It is the
curvature that the power method's polar step uses, so what is left for the memory to learn is the coupling.

The limited-memory (L-BFGS) recursion runs on inner products alone: three passes over the memory an iteration, each one
matrix-vector product, instead of four passes a remembered pair.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.geometry.backend import (
    blockwise,
    device_of,
    identity_like,
    like,
    namespace_of,
    to_numpy,
    transposed,
    vector_norms,
)
from mooring.geometry.orthogonal import inverse_square_root
from mooring.typing import Array

_MEMORY_SIZE = 8
_SMALLEST_MEMORY_BUDGET = 2**25  # numbers: the memory may always take this much, and otherwise as much as the data
_SHIFTS = (0.05, 0.5, 2.0)


class Preconditioner:
    """H₀: Ω ↦ P^(−1/2) Ω P^(−1/2), or a plain division by the mean eigenvalue where P is far from positive definite."""

    def __init__(self, slopes: Array) -> None:
        xp = namespace_of(slopes)
        P = xp.astype(0.5 * (slopes + transposed(slopes)), xp.float32)
        mean = xp.mean(xp.linalg.diagonal(P), axis=(-2, -1))[:, None, None, None]
        mean = xp.clip(mean, min=float(xp.finfo(P.dtype).tiny))
        # The shift keeps soft directions from being trusted too far, and P definite while the maps are still rough.
        candidates = (inverse_square_root(P + shift * mean * identity_like(P)) for shift in _SHIFTS)
        root = next((root for root in candidates if root is not None), None)
        self._root = xp.broadcast_to(identity_like(P), P.shape) / xp.sqrt(mean) if root is None else root

    def applied(self, directions: Array) -> Array:
        """H₀ applied to skew directions of shape (n_problems, p, d, d)."""
        return blockwise(lambda root, direction: root @ direction @ root, self._root, directions)

    def taken(self, indices: Array) -> Preconditioner:
        """That of some problems only."""
        part = object.__new__(Preconditioner)
        part._root = self._root[indices]
        return part

    def merged(self, indices: Array, part: Preconditioner) -> Preconditioner:
        """This one, with some problems' replaced."""
        self._root[indices] = part._root
        return self


class Memory:
    """The last few steps of every problem in a batch, in a ring; an empty slot contributes nothing."""

    def __init__(self, directions: Array, *, data_size: int) -> None:
        xp = namespace_of(directions)
        n, self._length = int(directions.shape[0]), int(np.prod(directions.shape[1:]))
        affordable = max(data_size, _SMALLEST_MEMORY_BUDGET * n) // (n * self._length)
        self._size = size = max(2, min(_MEMORY_SIZE, affordable))
        self._newest = -1
        self._vectors = xp.zeros((n, 2 * size, self._length), dtype=directions.dtype, device=device_of(directions))
        self._step_change: npt.NDArray[np.float64] = np.zeros((n, size, size))
        self._change_image: npt.NDArray[np.float64] = np.zeros((n, size, size))
        self._weight: npt.NDArray[np.float64] = np.zeros((n, size))

    def forget(self, problems: npt.NDArray[np.bool_] | None = None) -> None:
        """Forget the steps of some problems, or of all."""
        self._weight[slice(None) if problems is None else problems] = 0.0

    def add(self, step: Array, change: Array, image: Array, *, unit: Array, accepted: npt.NDArray[np.bool_]) -> None:
        """Remember s, y and u = H₀ y, the latter two in `unit`; problems that rejected the step get an empty slot."""
        xp = namespace_of(step)
        self._newest = slot = (self._newest + 1) % self._size
        length = vector_norms(xp.reshape(step, (-1, self._length)))
        scale = 1.0 / xp.where(length > 0, length, xp.ones_like(length))  # the recursion does not care about scale
        self._vectors[:, slot, :] = xp.reshape(step, (-1, self._length)) * scale[:, None]
        self._vectors[:, self._size + slot, :] = xp.reshape(image, (-1, self._length)) * (scale * unit)[:, None]
        products = self._products_with(change) * to_numpy(scale * unit).astype(np.float64)[:, None]
        self._step_change[:, :, slot] = products[:, : self._size]
        self._change_image[:, :, slot] = self._change_image[:, slot, :] = products[:, self._size :]
        curvature = products[:, slot]
        good = accepted & np.isfinite(curvature) & (curvature > 1e-8)
        self._weight[:, slot] = np.where(good, 1.0 / np.where(good, curvature, 1.0), 0.0)

    def ascent_direction(self, gradient: Array, preconditioned: Array) -> Array:
        """The quasi-Newton direction for a gradient, given H₀ applied to it."""
        xp = namespace_of(gradient)
        if not self._weight.any():
            return preconditioned
        products = self._products_with(gradient)
        weights = like(self._coefficients(products[:, : self._size], products[:, self._size :]), gradient)
        return preconditioned + xp.reshape(weights[:, None, :] @ self._vectors, gradient.shape)

    def taken(self, rows: npt.NDArray[np.int64], indices: Array) -> Memory:
        """That of some problems only (`indices` are the same numbers beside the vectors)."""
        part = object.__new__(Memory)
        part._length, part._size, part._newest = self._length, self._size, self._newest
        part._vectors = self._vectors[indices]
        for name in ("_step_change", "_change_image", "_weight"):
            setattr(part, name, getattr(self, name)[rows])
        return part

    def merge(self, rows: npt.NDArray[np.int64], indices: Array, part: Memory) -> None:
        """Take back some problems' memory; the others, whose ring has not turned, forget."""
        self.forget()
        self._newest = part._newest
        self._vectors[indices] = part._vectors
        for name in ("_step_change", "_change_image", "_weight"):
            getattr(self, name)[rows] = getattr(part, name)

    def _coefficients(self, step_gradient: npt.NDArray[Any], image_gradient: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """The two-loop recursion, on inner products: the weights of the steps s, then those of the images u."""
        newest_first = [(self._newest - age) % self._size for age in range(self._size)]
        first = np.zeros_like(step_gradient)
        for slot in newest_first:
            first[:, slot] = self._weight[:, slot] * (
                step_gradient[:, slot] - np.sum(self._step_change[:, slot, :] * first, axis=1)
            )
        along_change = image_gradient - np.einsum("nij,nj->ni", self._change_image, first)
        total = np.zeros_like(first)
        for slot in reversed(newest_first):
            second = self._weight[:, slot] * (
                along_change[:, slot] + np.sum(self._step_change[:, :, slot] * total, axis=1)
            )
            total[:, slot] = first[:, slot] - second
        return np.concatenate([total, -first], axis=1)

    def _products_with(self, vectors: Array) -> npt.NDArray[np.float64]:
        flat = namespace_of(vectors).reshape(vectors, (-1, self._length, 1))
        return to_numpy((self._vectors @ flat)[:, :, 0]).astype(np.float64)
