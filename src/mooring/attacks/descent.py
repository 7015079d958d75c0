"""Minimise a smooth function of an orthogonal matrix and a vector: limited-memory BFGS on O(h) × R^h.

Turns are written as O exp(Ω) with skew Ω, so that steps and gradients at different points live in one space (the Lie
algebra) and no transport is needed; exp is replaced by the Cayley transform, which stays on the group exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from mooring.geometry.backend import Array, identity_like, namespace_of

Objective = Callable[[Array, Array], tuple[float, Array, Array]]
_MEMORY = 10
_LARGEST_TURN = 0.5
_HALVINGS = 25


@dataclass(frozen=True, eq=False)
class Minimum:
    """Where a descent ended.

    Attributes
    ----------
    orthogonal, shift : arrays of shapes (h, h) and (h,)
    value : float
    iterations : int
    at_rest : bool
        Whether it stopped because nothing improved any more, rather than at the limit.
    """

    orthogonal: Array
    shift: Array
    value: float
    iterations: int
    at_rest: bool


@dataclass(frozen=True, eq=False)
class _Tangent:
    turn: Array
    shift: Array

    def dot(self, other: _Tangent) -> float:
        xp = namespace_of(self.turn)
        return float(xp.sum(self.turn * other.turn)) + float(xp.sum(self.shift * other.shift))

    def plus(self, factor: float, other: _Tangent) -> _Tangent:
        return _Tangent(self.turn + factor * other.turn, self.shift + factor * other.shift)

    def over(self, curvature: Array, shift_curvature: Array) -> _Tangent:
        return _Tangent(self.turn / curvature, self.shift / shift_curvature)


def minimise(
    objective: Objective,
    orthogonal: Array,
    shift: Array,
    *,
    curvature: Array,
    shift_curvature: Array,
    max_iterations: int,
    tolerance: float = 1e-5,
) -> Minimum:
    """Descend from (orthogonal, shift).

    Parameters
    ----------
    objective : callable
        Returns the value and its gradients with respect to the matrix and the vector.
    curvature, shift_curvature : arrays of shapes (h, h) and (h,)
        Diagonal of the Hessian over turns (symmetric) and shifts: the preconditioner.
    max_iterations : int
    tolerance : float, default 1e-5
        Stop when a step gains less than this; for a log-likelihood, units in which 1 is barely worth having.
    """
    value, gradient = _evaluated(objective, orthogonal, shift)
    memory: deque[tuple[_Tangent, _Tangent]] = deque(maxlen=_MEMORY)
    for iteration in range(max_iterations):
        direction = _direction(gradient, memory, curvature, shift_curvature)
        slope = gradient.dot(direction)
        if slope >= 0:
            memory.clear()
            direction = _direction(gradient, memory, curvature, shift_curvature)
            slope = gradient.dot(direction)
        xp = namespace_of(orthogonal)
        largest = float(xp.max(xp.sqrt(xp.sum(direction.turn * direction.turn, axis=1))))
        step = min(1.0, _LARGEST_TURN / largest) if largest > 0 else 1.0
        for _ in range(_HALVINGS):
            moved = orthogonal @ _cayley(step * direction.turn), shift + step * direction.shift
            new_value, new_gradient = _evaluated(objective, *moved)
            if new_value <= value + 1e-4 * step * slope:
                break
            step /= 2
        else:
            return Minimum(orthogonal, shift, value, iteration, True)
        taken = _Tangent(step * direction.turn, step * direction.shift)
        change = new_gradient.plus(-1, gradient)
        if taken.dot(change) > 0:
            memory.append((taken, change))
        gain = value - new_value
        (orthogonal, shift), value, gradient = moved, new_value, new_gradient
        if gain < tolerance:
            return Minimum(orthogonal, shift, value, iteration + 1, True)
    return Minimum(orthogonal, shift, value, max_iterations, False)


def _evaluated(objective: Objective, orthogonal: Array, shift: Array) -> tuple[float, _Tangent]:
    value, gradient, shift_gradient = objective(orthogonal, shift)
    product = orthogonal.T @ gradient
    return value, _Tangent(0.5 * (product - product.T), shift_gradient)


def _direction(
    gradient: _Tangent, memory: deque[tuple[_Tangent, _Tangent]], curvature: Array, shift_curvature: Array
) -> _Tangent:
    """The two-loop recursion, around the preconditioner."""
    q, weights = gradient, []
    for taken, change in reversed(memory):
        weight = taken.dot(q) / taken.dot(change)
        weights.append(weight)
        q = q.plus(-weight, change)
    q = q.over(curvature, shift_curvature)
    if memory:
        taken, change = memory[-1]
        scale = taken.dot(change) / change.dot(change.over(curvature, shift_curvature))
        q = _Tangent(scale * q.turn, scale * q.shift)
    for (taken, change), weight in zip(memory, reversed(weights), strict=True):
        q = q.plus(weight - change.dot(q) / taken.dot(change), taken)
    return _Tangent(-q.turn, -q.shift)


def _cayley(turn: Array) -> Array:
    identity = identity_like(turn)
    return namespace_of(turn).linalg.solve(identity - 0.5 * turn, identity + 0.5 * turn)
