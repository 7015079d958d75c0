"""Minimise a smooth function of an orthogonal matrix and a vector: limited-memory BFGS on O(h) × R^h.

Turns are written as O exp(Ω) with skew Ω, so that steps and gradients at different points live in one space (the Lie
algebra) and no transport is needed; exp is replaced by the Cayley transform, which stays on the group exactly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

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


Step: TypeAlias = Array
"""A turn (h × h, skew) and a shift (h), written one after the other as one vector: products of steps are then one call."""


@dataclass(frozen=True, eq=False)
class _Pair:
    """A step taken, the change of gradient it made, and their product."""

    taken: Step
    change: Step
    product: float


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
    xp = namespace_of(orthogonal)
    h = orthogonal.shape[-1]
    curvatures = xp.concat([xp.reshape(curvature, (-1,)), shift_curvature])
    value, gradient = _evaluated(objective, orthogonal, shift)
    memory: deque[_Pair] = deque(maxlen=_MEMORY)
    for iteration in range(max_iterations):
        direction = _direction(gradient, memory, curvatures)
        slope = float(gradient @ direction)
        if slope >= 0:
            memory.clear()
            direction = _direction(gradient, memory, curvatures)
            slope = float(gradient @ direction)
        turn, move = xp.reshape(direction[: h * h], (h, h)), direction[h * h :]
        largest = float(xp.max(xp.sum(turn * turn, axis=1))) ** 0.5
        step = min(1.0, _LARGEST_TURN / largest) if largest > 0 else 1.0
        for _ in range(_HALVINGS):
            moved = orthogonal @ _cayley(step * turn), shift + step * move
            new_value, new_gradient = _evaluated(objective, *moved)
            if new_value <= value + 1e-4 * step * slope:
                break
            step /= 2
        else:
            return Minimum(orthogonal, shift, value, iteration, True)
        taken, change = step * direction, new_gradient - gradient
        product = float(taken @ change)
        if product > 0:
            memory.append(_Pair(taken, change, product))
        gain = value - new_value
        (orthogonal, shift), value, gradient = moved, new_value, new_gradient
        if gain < tolerance:
            return Minimum(orthogonal, shift, value, iteration + 1, True)
    return Minimum(orthogonal, shift, value, max_iterations, False)


def _evaluated(objective: Objective, orthogonal: Array, shift: Array) -> tuple[float, Step]:
    value, gradient, shift_gradient = objective(orthogonal, shift)
    product = orthogonal.T @ gradient
    xp = namespace_of(product)
    return value, xp.concat([xp.reshape(0.5 * (product - product.T), (-1,)), shift_gradient])


def _direction(gradient: Step, memory: deque[_Pair], curvatures: Array) -> Step:
    """The two-loop recursion, around the preconditioner."""
    q, weights = gradient, []
    for pair in reversed(memory):
        weight = float(pair.taken @ q) / pair.product
        weights.append(weight)
        q = q - weight * pair.change
    q = q / curvatures
    if memory:
        last = memory[-1]
        q = (last.product / float(last.change @ (last.change / curvatures))) * q
    for pair, weight in zip(memory, reversed(weights), strict=True):
        q = q + (weight - float(pair.change @ q) / pair.product) * pair.taken
    return -q


def _cayley(turn: Array) -> Array:
    identity = identity_like(turn)
    return namespace_of(turn).linalg.solve(identity - 0.5 * turn, identity + 0.5 * turn)
