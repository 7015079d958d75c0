"""Minimise smooth functions of an orthogonal matrix and a vector, many at once: limited-memory BFGS on O(h) × R^h.

Turns are written as O exp(Ω) with skew Ω, so that steps and gradients at different points live in one space (the Lie
algebra) and no transport is needed; exp is replaced by the Cayley transform, which stays on the group exactly.

All problems of a batch are evaluated together, once a round. In each round a problem either takes its step or halves it,
and stops by itself, so that it goes the way it would go alone. Which of the two it is stays on the device; the host waits
once a round, to hear who still runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.geometry.backend import device_of, identity_like, indices_beside, namespace_of, to_numpy, transposed
from mooring.typing import Array

Objective = Callable[[Array, Array], tuple[Array, Array, Array]]
"""Values, and gradients with respect to matrices and vectors, of all problems of a batch."""

Indices = npt.NDArray[np.intp]
_MEMORY = 10
_LARGEST_TURN = 0.5
_HALVINGS = 25
_STILL_WORTH_IT = 0.75


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
class Minima:
    """Where the descents of a batch ended: as `Minimum`, with a leading axis; numbers and flags in NumPy."""

    orthogonal: Array
    shift: Array
    value: npt.NDArray[np.float64]
    iterations: npt.NDArray[np.int64]
    at_rest: npt.NDArray[np.bool_]

    def __getitem__(self, problem: int) -> Minimum:
        return Minimum(
            self.orthogonal[problem, ...],
            self.shift[problem, ...],
            float(self.value[problem]),
            int(self.iterations[problem]),
            bool(self.at_rest[problem]),
        )


Step: TypeAlias = Array
"""Turns (h × h, skew) and shifts (h), written one after the other as one vector a problem."""


def minimise(
    objective: Callable[[Array, Array], tuple[float, Array, Array]],
    orthogonal: Array,
    shift: Array,
    *,
    curvature: Array,
    shift_curvature: Array,
    max_iterations: int,
    tolerance: float = 1e-5,
) -> Minimum:
    """Descend from (orthogonal, shift) in one problem; the parameters are those of `minimise_all`, without its axis."""
    xp = namespace_of(orthogonal)

    def alone(orthogonals: Array, shifts: Array) -> tuple[Array, Array, Array]:
        value, gradient, shift_gradient = objective(orthogonals[0, ...], shifts[0, ...])
        values = xp.asarray([float(value)], dtype=orthogonals.dtype, device=device_of(orthogonals))
        return values, gradient[None, ...], shift_gradient[None, ...]

    return minimise_all(
        lambda problems: alone,
        orthogonal[None, ...],
        shift[None, ...],
        curvature=curvature,
        shift_curvature=shift_curvature,
        max_iterations=max_iterations,
        tolerance=tolerance,
    )[0]


def minimise_all(
    objective_of: Callable[[Indices], Objective],
    orthogonals: Array,
    shifts: Array,
    *,
    curvature: Array,
    shift_curvature: Array,
    max_iterations: int,
    tolerance: float = 1e-5,
) -> Minima:
    """Descend from every (orthogonal, shift).

    Parameters
    ----------
    objective_of : callable
        Given the indices of problems, returns their objective. It is asked again when enough of them are at rest.
    orthogonals, shifts : arrays of shapes (n, h, h) and (n, h)
    curvature, shift_curvature : arrays that broadcast to shapes (n, h, h) and (n, h)
        Diagonal of the Hessian over turns (symmetric) and shifts: the preconditioner.
    max_iterations : int
    tolerance : float, default 1e-5
        Stop when a step gains less than this; for a log-likelihood, units in which 1 is barely worth having.
    """
    xp = namespace_of(orthogonals)
    n, h = shifts.shape
    problems = np.arange(n)
    curvatures = xp.concat(
        [xp.reshape(xp.broadcast_to(curvature, (n, h, h)), (n, -1)), xp.broadcast_to(shift_curvature, (n, h))], axis=1
    )
    batch = _Batch(
        objective_of(problems), xp.asarray(orthogonals, copy=True), xp.asarray(shifts, copy=True), curvatures
    )
    whole = batch
    for _ in range(max_iterations * (_HALVINGS + 1)):
        running = to_numpy(batch.running & (batch.iterations < max_iterations))
        if not running.any():
            break
        if running.sum() <= _STILL_WORTH_IT * running.size:
            if batch is not whole:
                whole.store(problems, batch)
            kept = np.flatnonzero(running)
            problems = problems[kept]
            batch = batch.taken(kept, objective_of(problems))
        batch.advance(max_iterations, tolerance)
    if batch is not whole:
        whole.store(problems, batch)
    return Minima(
        whole.orthogonal,
        whole.shift,
        to_numpy(whole.value).astype(np.float64),
        to_numpy(whole.iterations).astype(np.int64),
        ~to_numpy(whole.running),
    )


class _Batch:
    """Where the problems of a batch stand: one row of every array a problem."""

    _kept = ("orthogonal", "shift", "value", "iterations", "running")
    _working = ("curvatures", "gradient", "direction", "slope", "step", "halvings", "scale", "next")
    _remembered = ("taken_steps", "changes", "weights")

    def __init__(self, objective: Objective, orthogonal: Array, shift: Array, curvatures: Array) -> None:
        xp = namespace_of(orthogonal)
        n, size = curvatures.shape
        kind = {"dtype": orthogonal.dtype, "device": device_of(orthogonal)}
        whole_numbers = {"dtype": xp.int64, "device": device_of(orthogonal)}
        self.objective, self.orthogonal, self.shift, self.curvatures = objective, orthogonal, shift, curvatures
        self.iterations, self.halvings, self.next = (xp.zeros(n, **whole_numbers) for _ in range(3))
        self.running = self.iterations == 0
        # A pair of weight zero counts as none: so that every problem has a memory of its own length.
        self.taken_steps, self.changes = (xp.zeros((_MEMORY, n, size), **kind) for _ in range(2))
        self.weights, self.scale, self.longest = xp.zeros((_MEMORY, n), **kind), xp.ones(n, **kind), 0
        self.value, self.gradient = self._evaluated(orthogonal, shift)
        self.direction = -self.gradient / curvatures
        self.slope = xp.linalg.vecdot(self.gradient, self.direction)
        self.step = self._first_step(self.direction)

    def advance(self, max_iterations: int, tolerance: float) -> None:
        """Try every problem's step: take it where the value falls enough, halve it elsewhere."""
        xp = namespace_of(self.orthogonal)
        turn, move = self._parts(self.step[:, None] * self.direction)
        orthogonal, shift = self.orthogonal @ _cayley(turn), self.shift + move
        value, gradient = self._evaluated(orthogonal, shift)
        moving = self.running & (self.iterations < max_iterations)
        accepted = moving & (value <= self.value + 1e-4 * self.step * self.slope)
        gain = self.value - value
        self._remember(accepted, self.step[:, None] * self.direction, gradient - self.gradient)
        self.orthogonal = xp.where(accepted[:, None, None], orthogonal, self.orthogonal)
        self.shift = xp.where(accepted[:, None], shift, self.shift)
        self.value = xp.where(accepted, value, self.value)
        self.gradient = xp.where(accepted[:, None], gradient, self.gradient)
        self.iterations = self.iterations + xp.astype(accepted, self.iterations.dtype)
        self.halvings = xp.where(accepted, xp.zeros_like(self.halvings), self.halvings + 1)
        at_rest = (accepted & (gain < tolerance)) | (self.halvings >= _HALVINGS)
        self.running = self.running & ~(moving & at_rest)
        self._turn_downhill(accepted)

    def taken(self, kept: Indices, objective: Objective) -> _Batch:
        """A batch of some problems only."""
        part = object.__new__(_Batch)
        rows = indices_beside(kept, self.value)
        part.objective, part.longest = objective, self.longest
        for name in (*self._kept, *self._working):
            setattr(part, name, getattr(self, name)[rows, ...])
        for name in self._remembered:
            setattr(part, name, getattr(self, name)[:, rows, ...])
        return part

    def store(self, problems: Indices, part: _Batch) -> None:
        """Take the results of a part of the problems."""
        rows = indices_beside(problems, self.value)
        for name in self._kept:
            getattr(self, name)[rows, ...] = getattr(part, name)

    def _parts(self, steps: Step) -> tuple[Array, Array]:
        n, h = self.shift.shape
        return namespace_of(steps).reshape(steps[:, : h * h], (n, h, h)), steps[:, h * h :]

    def _evaluated(self, orthogonal: Array, shift: Array) -> tuple[Array, Step]:
        xp = namespace_of(orthogonal)
        value, gradient, shift_gradient = self.objective(orthogonal, shift)
        product = transposed(orthogonal) @ gradient
        turns = xp.reshape(0.5 * (product - transposed(product)), (shift.shape[0], -1))
        return value, xp.concat([turns, shift_gradient], axis=1)

    def _first_step(self, direction: Step) -> Array:
        """One, or less where a row of the turn would be longer than it may be."""
        xp = namespace_of(direction)
        turn, _ = self._parts(direction)
        largest = xp.sqrt(xp.max(xp.sum(turn * turn, axis=-1), axis=-1))
        return xp.clip(_LARGEST_TURN / xp.where(largest > 0, largest, xp.ones_like(largest)), max=1.0)

    def _remember(self, accepted: Array, step: Step, change: Step) -> None:
        """Write a pair over the oldest one, for problems that moved and found the function convex on the way."""
        xp = namespace_of(step)
        product = xp.linalg.vecdot(step, change)
        worth = accepted & (product > 0)
        safe = xp.where(worth, product, xp.ones_like(product))
        rows, columns = self.next, xp.arange(step.shape[0], device=device_of(step))
        for memory, new in ((self.taken_steps, step), (self.changes, change)):
            memory[rows, columns, :] = xp.where(worth[:, None], new, memory[rows, columns, :])
        self.weights[rows, columns] = xp.where(worth, 1 / safe, self.weights[rows, columns])
        curved = xp.linalg.vecdot(change, change / self.curvatures)
        self.scale = xp.where(worth, safe / xp.where(worth, curved, xp.ones_like(curved)), self.scale)
        self.next = (self.next + xp.astype(worth, self.next.dtype)) % _MEMORY
        self.longest = min(self.longest + 1, _MEMORY)

    def _turn_downhill(self, accepted: Array) -> None:
        """New directions and first steps for problems that moved, half a step for the others."""
        xp = namespace_of(self.gradient)
        direction = self._direction()
        slope = xp.linalg.vecdot(self.gradient, direction)
        uphill = accepted & ~(slope < 0)
        plain = -self.gradient / self.curvatures
        direction = xp.where(uphill[:, None], plain, direction)
        slope = xp.where(uphill, xp.linalg.vecdot(self.gradient, plain), slope)
        self.weights = xp.where(uphill[None, :], xp.zeros_like(self.weights), self.weights)
        self.scale = xp.where(uphill, xp.ones_like(self.scale), self.scale)
        self.step = xp.where(accepted, self._first_step(direction), self.step / 2)
        self.direction = xp.where(accepted[:, None], direction, self.direction)
        self.slope = xp.where(accepted, slope, self.slope)

    def _direction(self) -> Step:
        """The two-loop recursion, around the preconditioner."""
        xp = namespace_of(self.gradient)
        columns = xp.arange(self.gradient.shape[0], device=device_of(self.gradient))
        rows = [(self.next - 1 - age) % _MEMORY for age in range(self.longest)]
        q, shares = self.gradient, []
        for row in rows:
            share = self.weights[row, columns] * xp.linalg.vecdot(self.taken_steps[row, columns, :], q)
            shares.append(share)
            q = q - share[:, None] * self.changes[row, columns, :]
        q = self.scale[:, None] * (q / self.curvatures)
        for row, share in zip(reversed(rows), reversed(shares), strict=True):
            back = self.weights[row, columns] * xp.linalg.vecdot(self.changes[row, columns, :], q)
            q = q + (share - back)[:, None] * self.taken_steps[row, columns, :]
        return -q


def _cayley(turn: Array) -> Array:
    identity = identity_like(turn)
    return namespace_of(turn).linalg.solve(identity - 0.5 * turn, identity + 0.5 * turn)
