"""Limited-memory BFGS on a Lie group such as O(d)^p or O(d) × R^d, for a whole batch of problems at once.

Legend: g the gradient, H₀ the preconditioner and H the approximate inverse Hessian at a point; s a step.

Tangent vectors are elements of the Lie algebra, written as one flat vector per problem, so that vectors of different points
live in one linear space and need no transport. Each problem accepts or shortens its own step and stops by itself: its
iterates are the same in a batch as alone.

An iteration uses masks and changes arrays in place, so that the host need not wait for a GPU. On a GPU an iteration is
recorded once and repeated, and the host checks only every few iterations which problems have stopped. An iteration that
cannot be recorded, because a library function in it waits for the GPU, is launched as usual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.geometry.backend import (
    capture,
    device_of,
    indices_beside,
    is_on_gpu,
    like,
    namespace_of,
    overwrite,
    to_numpy,
)
from mooring.geometry.inverse_hessian import InverseHessian
from mooring.typing import Array

Points: TypeAlias = tuple[Array, ...]
"""One point for every problem: arrays whose first axis counts problems."""
Mask: TypeAlias = npt.NDArray[np.bool_]

_LARGEST_TURN = 0.5  # largest rotation of one step, in radians (approximately)
_SUFFICIENT_DECREASE = 1e-4  # Armijo's constant
_ROUNDING = 30  # multiples of the machine precision by which rounding may raise a value
_SHRINK = 0.5
_SMALLEST_SHARE = 1e-4  # share of the full step below which a problem counts as stalled
_EXACTLY_EVERY = 8  # iterations between exact retractions: rounding slowly moves matrices off the group
_WORTH_SPLITTING = 0.6  # share of running problems at or below which they continue as a smaller batch
_UNWATCHED = 4  # GPU iterations between two checks by the host; an eighth of all iterations so far is added


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Values and gradients of an objective at one point per problem."""

    value: Array
    """Objective values, of shape (n_problems,)."""
    gradient: Array
    """Gradients in the Lie algebra, of shape (n_problems, size). Directions are computed in their precision."""
    extra: tuple[Array, ...] = ()
    """Further arrays at this point that the objective's `curvature` or a stopping rule needs."""


class Objective(Protocol):
    """A batch of smooth functions to minimise, and the geometry of their points."""

    def evaluate(self, points: Points) -> Evaluation:
        """Return values and gradients."""

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return the array that `precondition` uses, computed at a point. Its first axis counts problems."""

    def precondition(self, curvature: Array, tangents: Array) -> Array:
        """Return H₀ applied to tangent vectors. H₀ must be linear, symmetric and positive definite."""

    def retract(self, points: Points, tangents: Array, *, exactly: bool) -> Points:
        """Return the points moved along tangent vectors. They lie on the group, to rounding if `exactly`, else nearly."""

    def limit_turns(self, tangents: Array, largest: Array) -> Array:
        """Return tangent vectors whose independently preconditioned parts turn by at most about `largest` radians."""

    def select(self, problems: npt.NDArray[np.intp]) -> Self:
        """Return the objective of some problems only."""


StoppingRule: TypeAlias = "Callable[[RiemannianLBFGS], Mask]"
"""A function that takes the optimiser and returns which of the optimiser's present problems have converged."""


class RiemannianLBFGS:
    """A batch of minimisations.

    The starting `points` are owned by the optimiser and changed in place. `memory_size` is the number of remembered pairs
    of steps and gradient changes. At the iterations `refresh_at` the preconditioner is recomputed and the memory cleared.
    `iterations` counts steps that were already taken elsewhere.

    `preconditioned` is H₀ g at the current points. `problems` are the indices of the optimiser's problems in the original
    batch; a run may go on without problems that have stopped. `converged` and `stalled` say how the last `run` ended for
    each problem; if both are false, the iteration limit was reached.
    """

    points: Points
    evaluation: Evaluation
    preconditioned: Array
    _value: Array
    _may_record: bool
    _accuracy: float
    _repeat: Callable[[], None] | None
    _is_new: bool
    _counts = ("_value", "_decrease", "_step", "_share", "_iterations", "_limit")

    def __init__(
        self,
        objective: Objective,
        points: Points,
        *,
        memory_size: int = 10,
        refresh_at: frozenset[int] = frozenset(),
        iterations: npt.NDArray[np.int64] | None = None,
    ) -> None:
        n, self._may_record = int(points[0].shape[0]), is_on_gpu(points[0])
        beside = points[0] if self._may_record else np.zeros(0)
        xp, device = namespace_of(beside), device_of(beside)
        self.objective, self.problems, self._refresh_at, self._n_rounds = objective, np.arange(n), refresh_at, 0
        self.converged: Mask = np.zeros(n, dtype=np.bool_)
        self.stalled: Mask = np.zeros(n, dtype=np.bool_)
        self._decrease = xp.full(n, xp.inf, dtype=xp.float64, device=device)
        self._step = xp.zeros(n, dtype=xp.float64, device=device)
        self._share = xp.ones(n, dtype=xp.float64, device=device)
        spent = np.zeros(n, dtype=np.int64) if iterations is None else iterations.copy()
        self._iterations = indices_beside(spent, beside)
        self._limit = xp.zeros_like(self._iterations)  # iteration limit; zero for problems that have stopped
        self._evaluate(points)
        self._memory = InverseHessian(self.evaluation.gradient, memory_size, beside=beside)
        self._curvature = objective.curvature(self.evaluation)
        self.preconditioned = objective.precondition(self._curvature, self.evaluation.gradient)

    @property
    def value(self) -> npt.NDArray[np.float64]:
        """The objective value of each problem."""
        return to_numpy(self._value).copy()

    @property
    def decrease(self) -> npt.NDArray[np.float64]:
        """The decrease of each value in the last iteration; infinite if no step was taken."""
        return to_numpy(self._decrease).copy()

    @property
    def step(self) -> npt.NDArray[np.float64]:
        """The norm of each problem's last step."""
        return to_numpy(self._step).copy()

    @property
    def iterations(self) -> npt.NDArray[np.int64]:
        """The number of steps that each problem has taken so far."""
        return to_numpy(self._iterations).copy()

    def run(self, has_converged: StoppingRule, *, max_iterations: int) -> None:
        """Minimise until every problem has converged, stalled, or taken `max_iterations` steps over all its runs."""
        self.converged[:], self.stalled[:] = False, False
        self._decrease[...], self._share[...] = np.inf, 1.0
        self._run(has_converged, max_iterations)

    def replace_objective(self, objective: Objective, points: Points) -> None:
        """Continue with a new objective for the same problems, for instance in a higher precision; the memory is kept."""
        self.objective = objective
        self._evaluate(points)
        self._memory.meet(self.evaluation.gradient)
        self.preconditioned = objective.precondition(self._curvature, self.evaluation.gradient)

    def relocate(self, movers: Mask, points: Points) -> None:
        """Move some problems to new points and clear their memory."""
        self._memory.clear(indices_beside(movers, self._value))
        chosen = indices_beside(movers, points[0])
        for mine, theirs in zip(self.points, points, strict=True):
            overwrite(mine, theirs, chosen)
        self.replace_objective(self.objective, self.points)

    def _run(self, has_converged: StoppingRule, max_iterations: int) -> None:
        allowed = np.zeros(0)
        while True:
            left = max_iterations - self.iterations
            running = ~self.converged & ~self.stalled & (left > 0)
            if running.any():
                self.converged |= running & has_converged(self)
            self.stalled |= ~self.converged & (to_numpy(self._share) < _SMALLEST_SHARE)
            running &= ~self.converged & ~self.stalled
            if not running.any():
                return
            if running.sum() <= _WORTH_SPLITTING * running.size:
                rows = np.flatnonzero(running)
                part = self._split(rows)
                part._run(has_converged, max_iterations)
                self._merge(rows, part)
                return
            limit = np.where(running, max_iterations, 0)
            if not np.array_equal(limit, allowed):
                self._limit[...], allowed = indices_beside(limit, self._limit), limit
            unwatched = _UNWATCHED + self._n_rounds // 8 if self._may_record else 1
            for _ in range(min(unwatched, int(left[running].max()))):
                self._go_on()

    def _go_on(self) -> None:
        """Run one iteration. On a GPU the second iteration is recorded, and later iterations repeat the recording."""
        self._n_rounds += 1
        if self._n_rounds in self._refresh_at:
            self._renew_curvature()
        if self._repeat is not None:
            self._repeat()
        elif self._is_new or not self._may_record:
            self._is_new = False
            self._iterate()
        else:
            self._repeat = capture(self._iterate, device_of(self._value))
            self._may_record = self._repeat is not None
            (self._repeat or self._iterate)()

    def _iterate(self) -> None:
        """Propose a step for every problem; accept the step if the value falls enough, otherwise shorten the next step."""
        objective, old = self.objective, self.evaluation
        xp, products = namespace_of(self._value), namespace_of(old.gradient).linalg
        direction = self._memory.direction(self.preconditioned, self._share)
        step = objective.limit_turns(direction, like(_LARGEST_TURN * self._share, direction))
        slope = like(products.vecdot(old.gradient, step), self._value)
        points = objective.retract(self.points, step, exactly=self._n_rounds % _EXACTLY_EVERY == 0)
        new = objective.evaluate(points)
        value = like(new.value, self._value)
        running = (self._iterations < self._limit) & (self._share >= _SMALLEST_SHARE)
        largest = self._value + _SUFFICIENT_DECREASE * slope + _ROUNDING * self._accuracy * xp.abs(self._value)
        downhill = slope <= 0
        accepted = running & downhill & (value <= largest)
        overwrite(self._decrease, xp.where(accepted, self._value - value, xp.inf), running)
        overwrite(self._share, xp.where(accepted, 1.0, _SHRINK * self._share), running)
        overwrite(self._value, value, accepted)
        change = new.gradient - old.gradient
        chosen = indices_beside(accepted, change)
        for mine, theirs in zip((*self.points, *_parts(old)), (*points, *_parts(new)), strict=True):
            overwrite(mine, theirs, chosen)
        preconditioned = objective.precondition(self._curvature, old.gradient)
        image = preconditioned - self.preconditioned
        image_slope = like(products.vecdot(change, self.preconditioned), self._value)  # uᵀg = yᵀ H₀ g
        slopes = xp.stack([slope, image_slope], axis=1)
        lengths = self._memory.add(step, change, image, slopes=slopes, accepted=accepted)
        self._memory.clear(running & ~downhill)
        self.preconditioned[...] = preconditioned
        overwrite(self._step, lengths, accepted)
        self._iterations += xp.astype(accepted, self._iterations.dtype)

    def _evaluate(self, points: Points) -> None:
        self.points, self.evaluation = points, self.objective.evaluate(points)
        self._value = like(self.evaluation.value, self._share)
        self._accuracy = float(namespace_of(points[0]).finfo(points[0].dtype).eps)
        self._repeat, self._is_new = None, True

    def _renew_curvature(self) -> None:
        self._memory.clear(self._share > 0)
        self._curvature[...] = self.objective.curvature(self.evaluation)
        self.preconditioned[...] = self.objective.precondition(self._curvature, self.evaluation.gradient)

    def _split(self, rows: npt.NDArray[np.intp]) -> RiemannianLBFGS:
        """Return an optimiser of some of the problems."""
        part = object.__new__(RiemannianLBFGS)
        part.objective, part._refresh_at, part._n_rounds = self.objective.select(rows), self._refresh_at, self._n_rounds
        part.problems, part.converged, part.stalled = self.problems[rows], self.converged[rows], self.stalled[rows]
        part._may_record, indices = self._may_record, indices_beside(rows, self.points[0])
        part.points = tuple(array[indices, ...] for array in self.points)
        value, gradient, *extra = (array[indices, ...] for array in _parts(self.evaluation))
        part.evaluation, part._accuracy = Evaluation(value, gradient, tuple(extra)), self._accuracy
        part.preconditioned, part._curvature = self.preconditioned[indices, ...], self._curvature[indices, ...]
        for name in self._counts:
            array = getattr(self, name)
            setattr(part, name, array[indices_beside(rows, array)])
        part._memory = self._memory.select(rows)
        part._repeat, part._is_new = None, True
        return part

    def _merge(self, rows: npt.NDArray[np.intp], part: RiemannianLBFGS) -> None:
        """Write the state of an optimiser made by `_split` back into this one."""
        indices = indices_beside(rows, self.points[0])
        mine = (*self.points, *_parts(self.evaluation), self.preconditioned, self._curvature)
        theirs = (*part.points, *_parts(part.evaluation), part.preconditioned, part._curvature)
        for whole, some in zip(mine, theirs, strict=True):
            whole[indices, ...] = some
        for name in self._counts:
            array = getattr(self, name)
            array[indices_beside(rows, array)] = getattr(part, name)
        self.converged[rows], self.stalled[rows] = part.converged, part.stalled
        self._memory.merge(rows, part._memory)
        self._n_rounds = part._n_rounds


def _parts(evaluation: Evaluation) -> tuple[Array, ...]:
    return (evaluation.value, evaluation.gradient, *evaluation.extra)
