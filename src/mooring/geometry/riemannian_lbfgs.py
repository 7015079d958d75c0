"""Limited-memory BFGS on a Lie group such as O(d)^p or O(d) × R^d, for a whole batch of problems at once.

Legend: g the gradient and H₀ the preconditioner at a point; s a step, y the change of the gradient along it, u = H₀ y;
S, Y, U the remembered s, y, u as columns; γ = sᵀy / yᵀu of the newest pair.

Tangent vectors are elements of the Lie algebra, written as one flat vector a problem, so that vectors of different points
live in one linear space and need no transport. The direction is −H g with the compact form of the inverse Hessian (Byrd,
Nocedal and Schnabel 1994), where R_ij = s_iᵀ y_j for i no newer than j, and D is its diagonal:

    H g = γ H₀ g + S R⁻ᵀ (D a + γ YᵀU a − γ Uᵀg) − γ U a,   a = R⁻¹ Sᵀg.

That takes three passes over the memory an iteration, whatever its length; the small systems are solved on the host. Each
problem accepts or shortens its own step and stops by itself: in a batch it goes the way it would go alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.geometry.backend import device_of, indices_beside, like, namespace_of, to_numpy, vector_norms
from mooring.typing import Array

Points: TypeAlias = tuple[Array, ...]
"""A point of every problem: arrays whose first axis counts problems."""
Mask: TypeAlias = npt.NDArray[np.bool_]

_LARGEST_TURN = 0.5  # about the radians that one step may turn
_SUFFICIENT_DECREASE = 1e-4  # Armijo's constant
_ROUNDING = 30  # units of rounding by which a value may seem to rise
_SHRINK = 0.5
_SMALLEST_SHARE = 1e-4  # of a step, below which a problem has stalled
_EXACTLY_EVERY = 8  # iterations: rounding makes orthogonal matrices drift off the group, slowly
_SMALLEST_CURVATURE = 1e-8
_WORTH_SPLITTING = 0.6  # share of running problems at which the others are left out


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What an objective says of a point of every problem.

    Attributes
    ----------
    value : array of shape (n_problems,)
    gradient : array of shape (n_problems, size)
        In the Lie algebra. Its precision is the one that directions are computed in.
    extra : tuple of arrays, the first axis counting problems
        Whatever the objective's `curvature` or a stopping rule needs of this point.
    """

    value: Array
    gradient: Array
    extra: tuple[Array, ...] = ()


class Objective(Protocol):
    """A batch of smooth functions to minimise, and the geometry of their points."""

    def evaluate(self, points: Points) -> Evaluation:
        """Return values and gradients."""

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return what `precondition` needs, computed at a point; the first axis counts problems."""

    def precondition(self, curvature: Array, tangents: Array) -> Array:
        """Return H₀ applied to tangent vectors: linear, symmetric, positive definite."""

    def retract(self, points: Points, tangents: Array, *, exactly: bool) -> Points:
        """Move points along tangent vectors, staying on the group to rounding if `exactly`, nearly otherwise."""

    def limit_turns(self, tangents: Array, largest: float) -> Array:
        """Shorten tangent vectors, by parts that `precondition` keeps apart, to about `largest` radians."""

    def select(self, problems: npt.NDArray[np.intp]) -> Self:
        """Return the objective of some problems only."""


StoppingRule: TypeAlias = "Callable[[RiemannianLBFGS], Mask]"
"""Given the optimiser, says which of its present problems have converged."""


class RiemannianLBFGS:
    """A batch of minimisations.

    Parameters
    ----------
    objective : Objective
    points : tuple of arrays
        Where each problem starts; owned by the optimiser from here on.
    memory_size : int, default 10
        Pairs of steps and gradient changes to remember.
    refresh_at : frozenset of int, optional
        Iterations at which the preconditioner is computed anew, and the memory cleared.

    Attributes
    ----------
    points, evaluation, preconditioned : tuple of arrays, Evaluation, array
        Where each problem is now; what the objective says there; H₀ g.
    problems : numpy.ndarray of shape (n_problems,)
        Which problems these are of those the optimiser was made for: a run leaves out those that have stopped.
    value, decrease, step : numpy.ndarray of shape (n_problems,)
        The value, by how much the last iteration lowered it (infinite if it took no step), and the norm of the last step.
    iterations : numpy.ndarray of shape (n_problems,)
        Steps taken so far.
    converged, stalled : numpy.ndarray of bool
        How the last `run` ended; neither means that the iteration limit came first.
    """

    points: Points
    evaluation: Evaluation
    preconditioned: Array
    value: npt.NDArray[np.float64]
    _curvature: Array
    _accuracy: float
    _counts = ("problems", "value", "decrease", "step", "iterations", "converged", "stalled", "_share")

    def __init__(
        self, objective: Objective, points: Points, *, memory_size: int = 10, refresh_at: frozenset[int] = frozenset()
    ) -> None:
        n = int(points[0].shape[0])
        self.objective, self.problems, self._refresh_at, self._n_rounds = objective, np.arange(n), refresh_at, 0
        self.iterations: npt.NDArray[np.int64] = np.zeros(n, dtype=np.int64)
        self.decrease: npt.NDArray[np.float64] = np.full(n, np.inf)
        self.step: npt.NDArray[np.float64] = np.zeros(n)
        self.converged: Mask = np.zeros(n, dtype=np.bool_)
        self.stalled: Mask = np.zeros(n, dtype=np.bool_)
        self._share: npt.NDArray[np.float64] = np.ones(n)
        self._evaluate(points)
        self._memory = _Memory(self.evaluation.gradient, memory_size)
        self._renew_curvature()

    def run(self, has_converged: StoppingRule, *, max_iterations: int) -> None:
        """Minimise until every problem has converged, stalled, or taken `max_iterations` steps in all its runs.

        Parameters
        ----------
        has_converged : callable
        max_iterations : int
        """
        self.converged[:], self.stalled[:], self.decrease[:], self._share[:] = False, False, np.inf, 1.0
        self._run(has_converged, max_iterations)

    def replace_objective(self, objective: Objective, points: Points) -> None:
        """Go on with the same problems in another form, such as a higher precision, keeping preconditioner and memory."""
        self.objective = objective
        self._evaluate(points)
        self.preconditioned = objective.precondition(self._curvature, self.evaluation.gradient)

    def relocate(self, movers: Mask, points: Points) -> None:
        """Put some problems elsewhere and clear their memory."""
        self._memory.clear(movers)
        self.replace_objective(self.objective, _chosen(movers, points, self.points))

    def _run(self, has_converged: StoppingRule, max_iterations: int) -> None:
        while True:
            running = ~self.converged & ~self.stalled & (self.iterations < max_iterations)
            if running.any():
                self.converged |= running & has_converged(self)
            self.stalled |= ~self.converged & (self._share < _SMALLEST_SHARE)
            running &= ~self.converged & ~self.stalled
            if not running.any():
                return
            if running.sum() <= _WORTH_SPLITTING * running.size:
                rows = np.flatnonzero(running)
                part = self._split(rows)
                part._run(has_converged, max_iterations)
                self._merge(rows, part)
                return
            self._iterate(running)

    def _iterate(self, running: Mask) -> None:
        """Propose a step for every problem; take it where the value falls enough, shorten the next one elsewhere."""
        self._n_rounds += 1
        if self._n_rounds in self._refresh_at:
            self._renew_curvature()
        step, slope = self._proposal()
        points = self.objective.retract(self.points, step, exactly=self._n_rounds % _EXACTLY_EVERY == 0)
        old, old_value, old_preconditioned = self.evaluation, self.value, self.preconditioned
        evaluation = self.objective.evaluate(points)
        value = to_numpy(evaluation.value).astype(np.float64)
        rounding = _ROUNDING * self._accuracy * np.abs(old_value)
        accepted = running & (value <= old_value + _SUFFICIENT_DECREASE * slope + rounding)
        self.decrease = np.where(accepted, old_value - value, np.inf)
        self._share = np.where(accepted, 1.0, np.where(running, self._share * _SHRINK, self._share))
        if not accepted.any():
            return
        if not accepted.all():
            points = _chosen(accepted, points, self.points)
            new = _chosen(accepted, _parts(evaluation), _parts(old))
            evaluation, value = Evaluation(new[0], new[1], new[2:]), np.where(accepted, value, old_value)
        self.points, self.evaluation, self.value = points, evaluation, value
        self.preconditioned = self.objective.precondition(self._curvature, evaluation.gradient)
        lengths = self._memory.add(
            step, evaluation.gradient - old.gradient, self.preconditioned - old_preconditioned, accepted
        )
        self.step = np.where(accepted, lengths, self.step)
        self.iterations += accepted

    def _proposal(self) -> tuple[Array, npt.NDArray[np.float64]]:
        """The quasi-Newton step, shortened by the problem's share and so that it does not turn too far; gᵀs."""
        gradient = self.evaluation.gradient
        xp = namespace_of(gradient)
        direction = self.objective.limit_turns(self._memory.direction(gradient, self.preconditioned), _LARGEST_TURN)
        slope = xp.linalg.vecdot(gradient, direction)
        uphill = ~(to_numpy(slope) < 0)
        if uphill.any():
            self._memory.clear(uphill)
            plain = self.objective.limit_turns(-self.preconditioned, _LARGEST_TURN)
            direction = xp.where(indices_beside(uphill, gradient)[:, None], plain, direction)
            slope = xp.linalg.vecdot(gradient, direction)
        share = like(self._share, slope)
        return direction * share[:, None], to_numpy(slope * share).astype(np.float64)

    def _evaluate(self, points: Points) -> None:
        self.points, self.evaluation = points, self.objective.evaluate(points)
        self.value = to_numpy(self.evaluation.value).astype(np.float64)
        self._accuracy = float(namespace_of(points[0]).finfo(points[0].dtype).eps)

    def _renew_curvature(self) -> None:
        self._memory.clear()
        self._curvature = self.objective.curvature(self.evaluation)
        self.preconditioned = self.objective.precondition(self._curvature, self.evaluation.gradient)

    def _split(self, rows: npt.NDArray[np.intp]) -> RiemannianLBFGS:
        """An optimiser of some problems only."""
        part = object.__new__(RiemannianLBFGS)
        part.objective, part._refresh_at, part._n_rounds = self.objective.select(rows), self._refresh_at, self._n_rounds
        indices = indices_beside(rows, self.points[0])
        part.points = tuple(array[indices, ...] for array in self.points)
        value, gradient, *extra = (array[indices, ...] for array in _parts(self.evaluation))
        part.evaluation, part._accuracy = Evaluation(value, gradient, tuple(extra)), self._accuracy
        part.preconditioned, part._curvature = self.preconditioned[indices, ...], self._curvature[indices, ...]
        for name in self._counts:
            setattr(part, name, getattr(self, name)[rows])
        part._memory = self._memory.select(rows, indices)
        return part

    def _merge(self, rows: npt.NDArray[np.intp], part: RiemannianLBFGS) -> None:
        """Take back what `_split` gave away."""
        indices = indices_beside(rows, self.points[0])
        mine = (*self.points, *_parts(self.evaluation), self.preconditioned, self._curvature)
        theirs = (*part.points, *_parts(part.evaluation), part.preconditioned, part._curvature)
        for whole, some in zip(mine, theirs, strict=True):
            whole[indices, ...] = some
        for name in self._counts:
            getattr(self, name)[rows] = getattr(part, name)
        self._memory.merge(rows, indices, part._memory)
        self._n_rounds = part._n_rounds


class _Memory:
    """The last few pairs of every problem, each in a ring of its own; the slot to be written next holds none."""

    _counts = ("_step_change", "_change_image", "_filled", "_next")

    def __init__(self, tangents: Array, size: int) -> None:
        n, length = tangents.shape
        self._slots = slots = size + 1
        # s and u of each slot, and on the host the products SᵀY and UᵀY
        self._vectors = namespace_of(tangents).zeros(
            (n, 2 * slots, length), dtype=tangents.dtype, device=device_of(tangents)
        )
        self._step_change: npt.NDArray[np.float64] = np.zeros((n, slots, slots))
        self._change_image: npt.NDArray[np.float64] = np.zeros((n, slots, slots))
        self._filled: Mask = np.zeros((n, slots), dtype=np.bool_)
        self._next: npt.NDArray[np.intp] = np.zeros(n, dtype=np.intp)

    def clear(self, problems: Mask | None = None) -> None:
        """Forget the pairs of some problems, or of all."""
        self._filled[slice(None) if problems is None else problems] = False

    def add(self, step: Array, change: Array, image: Array, accepted: Mask) -> npt.NDArray[np.float64]:
        """Remember s, y and u of problems that accepted their step and have positive curvature; return norms of steps."""
        xp = namespace_of(step)
        n, slot, slots = step.shape[0], self._next, self._slots
        each = np.arange(n)
        lengths = vector_norms(step)
        scale = (1.0 / xp.where(lengths > 0, lengths, xp.ones_like(lengths)))[:, None]  # H does not depend on it
        if (slot == slot[0]).all():
            self._vectors[:, int(slot[0]), :] = step * scale
            self._vectors[:, slots + int(slot[0]), :] = image * scale
        else:
            rows, columns = indices_beside(each, step), indices_beside(slot, step)
            self._vectors[rows, columns, :] = step * scale
            self._vectors[rows, slots + columns, :] = image * scale
        products = self._products_with(change) * to_numpy(scale).astype(np.float64)
        self._step_change[each, :, slot] = products[:, :slots]
        self._change_image[each, :, slot] = self._change_image[each, slot, :] = products[:, slots:]
        curvature = products[each, slot]
        good = accepted & np.isfinite(products).all(axis=1) & (curvature > _SMALLEST_CURVATURE)
        self._filled[each, slot] = good
        self._next = np.where(good, (slot + 1) % slots, slot)
        self._filled[each, self._next] = False
        return to_numpy(lengths).astype(np.float64)

    def direction(self, gradient: Array, preconditioned: Array) -> Array:
        """−H g, given g and H₀ g."""
        if not self._filled.any():
            return -preconditioned
        products = self._products_with(gradient)
        weights, scale = self._coefficients(products[:, : self._slots], products[:, self._slots :])
        xp = namespace_of(gradient)
        remembered = like(weights, gradient)[:, None, :] @ self._vectors
        return xp.reshape(remembered, gradient.shape) - like(scale, gradient)[:, None] * preconditioned

    def select(self, rows: npt.NDArray[np.intp], indices: Array) -> _Memory:
        """That of some problems only; `indices` are the same numbers beside the vectors."""
        part = object.__new__(_Memory)
        part._slots, part._vectors = self._slots, self._vectors[indices, ...]
        for name in self._counts:
            setattr(part, name, getattr(self, name)[rows])
        return part

    def merge(self, rows: npt.NDArray[np.intp], indices: Array, part: _Memory) -> None:
        """Take back some problems' memory."""
        self._vectors[indices, ...] = part._vectors
        for name in self._counts:
            getattr(self, name)[rows] = getattr(part, name)

    def _coefficients(
        self, step_gradient: npt.NDArray[np.float64], image_gradient: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Weights of S and then of U in −H g, and γ."""
        each, newest = np.arange(self._next.size), (self._next - 1) % self._slots
        filled = self._filled
        both = filled[:, :, None] & filled[:, None, :]
        age = (newest[:, None] - np.arange(self._slots)) % self._slots
        identity = np.eye(self._slots)
        R = np.where(both & (age[:, :, None] >= age[:, None, :]), self._step_change, identity)
        curvature, image = self._step_change[each, newest, newest], self._change_image[each, newest, newest]
        known = filled[each, newest] & (image > 0)
        gamma = np.where(known, curvature, 1.0) / np.where(known, image, 1.0)
        a = np.linalg.solve(R, (step_gradient * filled)[:, :, None])
        images = gamma[:, None, None] * np.where(both, self._change_image, 0.0)
        right = (np.where(both, identity * self._step_change, 0.0) + images) @ a
        right -= (gamma[:, None] * image_gradient * filled)[:, :, None]
        steps = np.linalg.solve(np.swapaxes(R, 1, 2), right)
        return np.concatenate([-steps, gamma[:, None, None] * a], axis=1)[:, :, 0], gamma

    def _products_with(self, tangents: Array) -> npt.NDArray[np.float64]:
        return to_numpy((self._vectors @ tangents[:, :, None])[:, :, 0]).astype(np.float64)


def _parts(evaluation: Evaluation) -> tuple[Array, ...]:
    return (evaluation.value, evaluation.gradient, *evaluation.extra)


def _chosen(problems: Mask, new: tuple[Array, ...], old: tuple[Array, ...]) -> tuple[Array, ...]:
    """The new arrays of some problems and the old ones of the others."""
    chosen = indices_beside(problems, new[0])
    xp = namespace_of(*new)
    return tuple(xp.where(xp.reshape(chosen, (-1, *[1] * (a.ndim - 1))), a, b) for a, b in zip(new, old, strict=True))
