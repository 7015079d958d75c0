"""The limited-memory BFGS approximation of the inverse Hessian, in compact form, for a whole batch of problems.

Legend: g the gradient and H₀ the preconditioner; s a step, y the change of the gradient along s, u = H₀ y; S, Y, U the
remembered s, y, u as columns; γ = sᵀy / yᵀu of the newest pair; R_ij = s_iᵀ y_j for i no newer than j, and D its diagonal.

    H g = γ H₀ g + S R⁻ᵀ (D a + γ YᵀU a − γ Uᵀg) − γ U a,   a = R⁻¹ Sᵀg     (Byrd, Nocedal and Schnabel 1994).

R is triangular in the order of time: a new pair adds a column to R⁻¹, and dropping the oldest pair removes a row and a
column, so that no system is ever solved. Sᵀg and Uᵀg follow from Sᵀy and Uᵀy. An iteration takes two passes over the
memory, however many pairs there are. Small arrays are kept on the device of the vectors, so that the host need not wait for
that device. Where the host waits anyway, they are kept on the host, which is faster.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mooring.geometry.backend import device_of, indices_beside, like, namespace_of, overwrite, vector_norms
from mooring.typing import Array

_SMALLEST_CURVATURE = 1e-8  # sᵀy / sᵀs


class InverseHessian:
    """The remembered pairs (s, y) of every problem of a batch.

    Each problem has a ring buffer of `size` pairs and one free slot, which the next pair is written to. Small arrays are
    made on the library and device of `beside`.
    """

    _arrays = ("_vectors", "_along", "_inverse", "_images", "_curvatures", "_scale", "_next")

    def __init__(self, tangents: Array, size: int, *, beside: Array) -> None:
        n, length = tangents.shape
        self._slots = slots = size + 1
        self._vectors = namespace_of(tangents).zeros(  # S, and then U
            (n, 2 * slots, length), dtype=tangents.dtype, device=device_of(tangents)
        )
        xp, device = namespace_of(beside), device_of(beside)
        self._along = xp.zeros((n, 2, slots), dtype=xp.float64, device=device)  # Sᵀg, and then Uᵀg
        self._inverse = xp.zeros((n, slots, slots), dtype=xp.float64, device=device)  # R⁻¹; zero where there is no pair
        self._images = xp.zeros((n, slots, slots), dtype=xp.float64, device=device)  # UᵀY
        self._curvatures = xp.zeros((n, slots), dtype=xp.float64, device=device)  # D
        self._scale = xp.ones(n, dtype=xp.float64, device=device)  # γ
        self._next = xp.zeros(n, dtype=xp.int64, device=device)
        self._number()

    def _number(self) -> None:
        self._each = indices_beside(np.arange(self._next.shape[0]), self._vectors)
        self._slot_numbers = indices_beside(np.arange(self._slots), self._next)

    def clear(self, problems: Array) -> None:
        """Forget the pairs of the problems that the mask `problems` marks."""
        self._inverse *= ~problems[:, None, None]
        self._scale[...] = namespace_of(problems).where(problems, 1.0, self._scale)

    def meet(self, gradient: Array) -> None:
        """Recompute Sᵀg and Uᵀg for the gradient of a new point or precision."""
        self._along[...] = self._products_with(gradient)

    def direction(self, preconditioned: Array, share: Array) -> Array:
        """Return −H g, multiplied by each problem's `share`; `preconditioned` is H₀ g."""
        xp = namespace_of(self._scale)
        gamma = self._scale[:, None, None]
        a = self._inverse @ self._along[:, 0, :, None]
        right = self._curvatures[:, :, None] * a + gamma * (self._images @ a - self._along[:, 1, :, None])
        weights = xp.concat([-(xp.matrix_transpose(self._inverse) @ right), gamma * a], axis=1)
        weights = xp.matrix_transpose(weights * share[:, None, None])
        remembered = (like(weights, preconditioned) @ self._vectors)[:, 0, :]
        remembered -= like(self._scale * share, preconditioned)[:, None] * preconditioned
        return remembered

    def add(self, step: Array, change: Array, image: Array, *, slopes: Array, accepted: Array) -> Array:
        """Remember pairs and return the norms of the steps.

        `step`, `change` and `image` are s, y and u, of shape (n_problems, length); `slopes` holds sᵀg and uᵀg at the point
        before the step. Only accepted steps of positive curvature are remembered.
        """
        xp, slot = namespace_of(self._scale), indices_beside(self._next, step)
        self._vectors[self._each, slot, ...] = step
        self._vectors[self._each, self._slots + slot, ...] = image
        lengths = like(vector_norms(step), self._scale)
        products = self._products_with(change)
        newest = self._slot_numbers == self._next[:, None]
        curvatures = xp.sum(xp.where(newest[:, None, :], products, 0.0), axis=2)  # sᵀy and uᵀy of the newest pair
        positive = (curvatures[:, 0] > _SMALLEST_CURVATURE * lengths * lengths) & (curvatures[:, 1] > 0)
        good = accepted & positive & xp.isfinite(xp.sum(products, axis=(1, 2)))
        overwrite(self._along, products + xp.where(newest[:, None, :], slopes[:, :, None], self._along), accepted)
        curvatures = xp.where(good[:, None], curvatures, 1.0)
        step_change, image_change, curvature = products[:, 0, :], products[:, 1, :], curvatures[:, :1]
        column = xp.where(newest, 1.0, -(self._inverse @ step_change[:, :, None])[:, :, 0]) / curvature
        fresh = newest & good[:, None]
        overwrite(self._inverse, column[:, :, None], fresh[:, None, :])
        overwrite(self._images, image_change[:, :, None], fresh[:, None, :])
        overwrite(self._images, image_change[:, None, :], fresh[:, :, None])
        overwrite(self._curvatures, curvature, fresh)
        overwrite(self._scale, curvatures[:, 0] / curvatures[:, 1], good)
        overwrite(self._next, (self._next + 1) % self._slots, good)
        kept = self._slot_numbers != self._next[:, None]  # the oldest pair makes room for the next
        self._inverse *= kept[:, :, None] & kept[:, None, :]
        return lengths

    def select(self, problems: npt.NDArray[np.intp]) -> InverseHessian:
        """Return the memory of some problems."""
        part = object.__new__(InverseHessian)
        part._slots = self._slots
        for name in self._arrays:
            array = getattr(self, name)
            setattr(part, name, array[indices_beside(problems, array), ...])
        part._number()
        return part

    def merge(self, problems: npt.NDArray[np.intp], part: InverseHessian) -> None:
        """Write the memory of some problems, made by `select`, back into this one."""
        for name in self._arrays:
            array = getattr(self, name)
            array[indices_beside(problems, array), ...] = getattr(part, name)

    def _products_with(self, tangents: Array) -> Array:
        """Return Sᵀ and Uᵀ times the tangents, of shape (n_problems, 2, slots)."""
        return like((self._vectors @ tangents[:, :, None]).reshape(self._along.shape), self._along)
