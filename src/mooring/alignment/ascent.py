"""Climbing tr(Rᵀ G R) on O(d)^p: a preconditioned quasi-Newton method, for a whole batch at once.

Legend: M_i = R_iᵀ (GR)_i, whose skew part K_i is the gradient; Ω_i skew, a direction; R_i ← R_i exp(Ω_i) the move.

Every iteration costs one product with D and one with Dᵀ, the same as the power method, plus a few d × d products a
participant; no decomposition. Directions live in the Lie algebra of skew matrices, so remembered steps need no transport.
They are computed in float32 throughout, since they only propose; maps and gradient are in the precision of the problem,
and a climb that has come as far as float32 can see goes on in float64 with all it remembers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mooring.alignment.curvature import Memory, Preconditioner
from mooring.alignment.problem import ProcrustesProblem
from mooring.geometry.backend import Array, identity_like, indices_beside, like, namespace_of, to_numpy, transposed
from mooring.geometry.orthogonal import polar_factor, reorthogonalised

_REFRESH_AT = frozenset({3, 9, 27, 81, 243})
_LARGEST_TURN = 0.5  # root mean square of a skew block's rows: about the radians that one step may turn
_SHRINK = 0.3
_SMALLEST_SHARE = 1e-4
_WORTH_SPLITTING = 0.6


class Climb:
    """A batch of problems on its way up.

    Attributes
    ----------
    maps : array of shape (n_problems, p, d, d)
        Where each problem is now.
    iterations, step : numpy.ndarray of shape (n_problems,)
        Iterations so far, and the Frobenius norm of each problem's last step.
    rested, stalled : numpy.ndarray of bool
        How the last `run` ended; neither means that the iteration limit came first.
    """

    _arrays = ("maps", "_value", "_slopes", "_gradient", "_size", "_proposal", "_preconditioned")
    _counts = ("iterations", "step", "rested", "stalled", "_share")

    def __init__(self, problem: ProcrustesProblem, maps: Array) -> None:
        n = problem.n_problems
        self.problem = problem
        self.iterations: npt.NDArray[np.int64] = np.zeros(n, dtype=np.int64)
        self.step: npt.NDArray[np.float64] = np.zeros(n)
        self.rested: npt.NDArray[np.bool_] = np.zeros(n, dtype=np.bool_)
        self.stalled: npt.NDArray[np.bool_] = np.zeros(n, dtype=np.bool_)
        self._share: npt.NDArray[np.float64] = np.ones(n)
        self._taken = 0
        self._place(maps)
        self._preconditioner = Preconditioner(self._slopes)
        self._precondition()
        self._memory = Memory(self._proposal, data_size=int(np.prod(problem.blocks.shape)))

    def run(self, *, gap_tolerance: float, max_iterations: int) -> None:
        """Climb until the fixed-point gap ‖Π(GR) − R‖_F is at most `gap_tolerance`, problem by problem.

        The tolerance is absolute and on the whole stack: it is the size of the step the power method would take from here.
        `max_iterations` counts all iterations of a problem so far, over all runs.
        """
        self.rested[:], self.stalled[:], self._share[:] = False, False, 1.0
        while True:
            running = np.flatnonzero(~self.rested & ~self.stalled & (self.iterations < max_iterations))
            if running.size:
                self.rested[running] = self._at_rest(gap_tolerance)[running]
            self.stalled = ~self.rested & (self._share < _SMALLEST_SHARE)
            running = running[~self.rested[running] & ~self.stalled[running]]
            if not running.size:
                return
            if running.size <= _WORTH_SPLITTING * self.iterations.size:
                rest = self._split(running)
                rest.run(gap_tolerance=gap_tolerance, max_iterations=max_iterations)
                self._merge(running, rest)
                return
            self._advance(running)

    def sharpen(self, problem: ProcrustesProblem) -> None:
        """Go on with the same problems in another precision, keeping what was learnt of their curvature."""
        self.problem = problem
        self._place(self.maps)
        self._precondition()

    def _place(self, maps: Array) -> None:
        xp = namespace_of(maps)
        self._accuracy = float(xp.finfo(self.problem.blocks.dtype).eps)
        self.maps = reorthogonalised(xp.astype(maps, self.problem.blocks.dtype), tolerance=self._accuracy)
        self._differentiate(self._evaluate(self.maps))

    def _at_rest(self, gap_tolerance: float) -> npt.NDArray[np.bool_]:
        """Whether the power method would move each problem by no more than the tolerance."""
        xp = namespace_of(self.maps)
        # The preconditioned gradient is the power method's step to first order; in float64 the step itself decides.
        likely = to_numpy(self._size * _norm(self._preconditioned)) <= 1.2 * gap_tolerance
        if likely.any() and self.problem.blocks.dtype == xp.float64:
            gap = _norm(polar_factor(self._slopes) - identity_like(self._slopes))
            likely = likely & (to_numpy(gap) <= gap_tolerance)
        return np.asarray(likely)

    def _advance(self, running: npt.NDArray[np.int64]) -> None:
        """Propose a step for the running problems, take it where the objective does not fall, shorten it elsewhere."""
        xp = namespace_of(self.maps)
        self._taken += 1
        if self._taken in _REFRESH_AT:
            self._preconditioner = Preconditioner(self._slopes)
            self._memory.forget()
            self._precondition()
        turn = self._bounded(self._direction())
        exponential = xp.astype(turn + 0.5 * (turn @ turn), self.maps.dtype)
        maps = reorthogonalised(self.maps + self.maps @ exponential, tolerance=self._accuracy)
        if running.size < self.iterations.size:
            maps = self._moved(np.isin(np.arange(self.iterations.size), running), maps)
        old_value, old_gradient, old_image = self._value, self._gradient, self._image()
        weighted_sum = self._evaluate(maps)
        accepted = to_numpy(self._value >= old_value - 30 * self._accuracy * xp.abs(old_value))
        if not accepted.all():
            maps = self._moved(accepted, maps)
            weighted_sum = self._evaluate(maps)
        self.maps = maps
        self._differentiate(weighted_sum)
        self._precondition()
        change = xp.astype(old_gradient - self._gradient, turn.dtype)
        self._memory.add(turn, change, old_image - self._image(), accepted=accepted)  # H₀ y, by linearity
        self._share = np.where(accepted, 1.0, self._share * _SHRINK)
        self._memory.forget(self._share < _SHRINK)
        self.step[running] = np.where(accepted, to_numpy(_norm(turn)), 0.0)[running]
        self.iterations[running] += 1

    def _moved(self, movers: npt.NDArray[np.bool_], maps: Array) -> Array:
        """The new maps of the movers, and the old maps of the others."""
        return namespace_of(maps).where(indices_beside(movers, maps)[:, None, None, None], maps, self.maps)

    def _evaluate(self, maps: Array) -> Array:
        xp = namespace_of(maps)
        S = self.problem.weighted_sum(maps)
        self._value = xp.sum(S * S, axis=(-2, -1))
        return S

    def _differentiate(self, weighted_sum: Array) -> None:
        self._slopes = transposed(self.maps) @ self.problem.pulled_back(weighted_sum)
        self._gradient = 0.5 * (self._slopes - transposed(self._slopes))

    def _precondition(self) -> None:
        xp = namespace_of(self._gradient)
        size = _norm(self._gradient)
        self._size = xp.where(size > 0, size, xp.ones_like(size))
        self._proposal = xp.astype(self._gradient / self._size[:, None, None, None], xp.float32)
        self._preconditioned = self._preconditioner.applied(self._proposal)

    def _image(self) -> Array:
        return self._preconditioned * _beside(self._size, self._preconditioned)

    def _direction(self) -> Array:
        xp = namespace_of(self._proposal)
        direction = self._memory.ascent_direction(self._proposal, self._preconditioned)
        rising = xp.sum(direction * self._proposal, axis=(1, 2, 3)) > 0
        if not bool(xp.all(rising)):
            direction = xp.where(rising[:, None, None, None], direction, self._preconditioned)
        return 0.5 * (direction - transposed(direction)) * _beside(self._size, direction)

    def _bounded(self, direction: Array) -> Array:
        """Shorten directions by the problem's share, and so that no block turns further than a step may."""
        xp = namespace_of(direction)
        turn = xp.max(xp.sqrt(xp.sum(direction * direction, axis=(-2, -1))), axis=-1) / self.problem.n_components**0.5
        limit = xp.clip(_LARGEST_TURN / xp.clip(turn, min=float(xp.finfo(turn.dtype).tiny)), max=1.0)
        return direction * (limit * like(self._share, limit))[:, None, None, None]

    def _split(self, rows: npt.NDArray[np.int64]) -> Climb:
        """A climb of some problems only."""
        part = object.__new__(Climb)
        indices = indices_beside(rows, self.maps)
        part.problem, part._accuracy, part._taken = self.problem.taken(indices), self._accuracy, self._taken
        for name in self._arrays:
            setattr(part, name, getattr(self, name)[indices])
        for name in self._counts:
            setattr(part, name, getattr(self, name)[rows])
        part._preconditioner = self._preconditioner.taken(indices)
        part._memory = self._memory.taken(rows, indices)
        return part

    def _merge(self, rows: npt.NDArray[np.int64], part: Climb) -> None:
        """Take back what `_split` gave away."""
        indices = indices_beside(rows, self.maps)
        for name in self._arrays:
            getattr(self, name)[indices] = getattr(part, name)
        for name in self._counts:
            getattr(self, name)[rows] = getattr(part, name)
        self._preconditioner = self._preconditioner.merged(indices, part._preconditioner)
        self._memory.merge(rows, indices, part._memory)
        self._taken = part._taken


def _norm(directions: Array) -> Array:
    """Frobenius norm of each problem's whole stack."""
    xp = namespace_of(directions)
    return xp.sqrt(xp.sum(directions * directions, axis=(1, 2, 3)))


def _beside(numbers: Array, directions: Array) -> Array:
    """One number a problem, in the type of `directions` and ready to multiply them."""
    return namespace_of(directions).astype(numbers, directions.dtype)[:, None, None, None]
