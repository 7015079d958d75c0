"""Climbing tr(Rᵀ G R) on O(d)^p: a preconditioned quasi-Newton method, for a whole batch at once.

Legend: M_i = R_iᵀ (GR)_i, whose skew part K_i is the gradient; Ω_i skew, a direction; R_i ← R_i exp(Ω_i) the move.

Every iteration costs one product with D and one with Dᵀ, the same as the power method, plus a few d × d products a
participant; no decomposition. Directions live in the Lie algebra of skew matrices, so remembered steps need no transport.
They are computed in float32 throughout, since they only propose; maps and gradient are in the precision of the problem,
and a climb that has come as far as float32 can see goes on in float64 with what it has learnt of the curvature.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mooring.alignment.curvature import Memory, Preconditioner
from mooring.alignment.problem import ProcrustesProblem
from mooring.geometry.backend import (
    identity_like,
    indices_beside,
    like,
    namespace_of,
    to_numpy,
    transposed,
    vector_norms,
)
from mooring.geometry.orthogonal import polar_factor, reorthogonalised, retracted
from mooring.typing import Array

_REFRESH_AT = frozenset({12, 48, 192})
_LARGEST_TURN = 0.5  # root mean square of a skew block's rows: about the radians that one step may turn
_SADDLE_GAP = 1.0  # a turned direction alone makes a gap of two
_TIDY_EVERY = 8  # iterations: rounding makes maps drift off O(d), slowly
_SLACK = 30  # units of rounding that an objective may seem to fall by
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
    gap : numpy.ndarray of shape (n_problems,)
        The fixed-point gap of the problems that came to rest; not a number for the others.
    rested, stalled : numpy.ndarray of bool
        How the last `run` ended; neither means that the iteration limit came first.
    """

    _arrays = ("maps", "_value", "_slopes", "_size", "_proposal", "_preconditioned")
    _counts = ("iterations", "step", "gap", "rested", "stalled", "_share", "_misjudgement")

    def __init__(self, problem: ProcrustesProblem, maps: Array) -> None:
        n = problem.n_problems
        self.problem = problem
        self.iterations: npt.NDArray[np.int64] = np.zeros(n, dtype=np.int64)
        self.step: npt.NDArray[np.float64] = np.zeros(n)
        self.gap: npt.NDArray[np.float64] = np.full(n, np.nan)
        self.rested: npt.NDArray[np.bool_] = np.zeros(n, dtype=np.bool_)
        self.stalled: npt.NDArray[np.bool_] = np.zeros(n, dtype=np.bool_)
        self._share: npt.NDArray[np.float64] = np.ones(n)
        self._misjudgement: npt.NDArray[np.float64] = np.ones(n)
        self._taken = 0
        self._place(maps)
        self._preconditioner = Preconditioner(self._slopes)
        self._precondition()
        self._memory = Memory(self._proposal, data_size=int(np.prod(problem.blocks.shape)))

    def run(self, *, gap_tolerance: float, max_iterations: int, roughly: bool = False) -> None:
        """Climb until the fixed-point gap ‖Π(GR) − R‖_F is at most `gap_tolerance`, problem by problem.

        The tolerance is absolute and on the whole stack: it is the size of the step the power method would take from here.
        `max_iterations` counts all iterations of a problem so far, over all runs. A rough run trusts its estimate of the
        gap; any other computes it before it ends.
        """
        self.rested[:], self.stalled[:], self.gap[:] = False, False, np.nan
        self._share[:], self._misjudgement[:] = 1.0, 1.0
        while True:
            running = np.flatnonzero(~self.rested & ~self.stalled & (self.iterations < max_iterations))
            if running.size:
                self.rested[running] = self._at_rest(gap_tolerance, roughly=roughly)[running]
            self.stalled |= ~self.rested & (self._share < _SMALLEST_SHARE)
            running = running[~self.rested[running] & ~self.stalled[running]]
            if not running.size:
                return
            if running.size <= _WORTH_SPLITTING * self.iterations.size:
                rest = self._split(running)
                rest.run(gap_tolerance=gap_tolerance, max_iterations=max_iterations, roughly=roughly)
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

    def _at_rest(self, gap_tolerance: float, *, roughly: bool) -> npt.NDArray[np.bool_]:
        """Whether the power method would move each problem by no more than the tolerance."""
        # The preconditioned gradient is about the power method's step and costs nothing; the step itself decides.
        estimate = to_numpy(self._size * _norm(self._preconditioned)).astype(np.float64)
        likely = self._misjudgement * estimate <= gap_tolerance
        if roughly or not likely.any():
            return np.asarray(likely)
        rest = polar_factor(self._slopes)
        rest -= identity_like(rest)
        found = to_numpy(_norm(rest)).astype(np.float64)
        astray = likely & (found > max(_SADDLE_GAP, 10 * gap_tolerance))
        if astray.any():
            # No slope is left, yet some direction points the wrong way: the power method's step turns it round.
            self._place(self._moved(astray, self.maps + self.maps @ rest))
            self._memory.forget(astray)
            self._precondition()
        ratio = found / np.maximum(estimate, gap_tolerance * 1e-3)
        self._misjudgement = np.where(likely & ~astray, np.maximum(ratio, 1.0), self._misjudgement)
        likely &= found <= gap_tolerance
        self.gap = np.where(likely, found, np.nan)
        return likely

    def _advance(self, running: npt.NDArray[np.int64]) -> None:
        """Propose a step for the running problems, take it where the objective does not fall, shorten it elsewhere."""
        xp = namespace_of(self.maps)
        self._taken += 1
        if self._taken in _REFRESH_AT:
            self._preconditioner = Preconditioner(self._slopes)
            self._memory.forget()
            self._misjudgement[:] = 1.0
            self._precondition()
        turn = self._turn()
        maps = retracted(self.maps, turn, tolerance=_SLACK * self._accuracy, exactly=self._taken % _TIDY_EVERY == 0)
        if running.size < self.iterations.size:
            maps = self._moved(np.isin(np.arange(self.iterations.size), running), maps)
        old_value, old_size, old_proposal, old_image = self._value, self._size, self._proposal, self._preconditioned
        weighted_sum = self._evaluate(maps)
        accepted = to_numpy(self._value >= old_value - _SLACK * self._accuracy * xp.abs(old_value))
        if not accepted.all():
            maps = self._moved(accepted, maps)
            weighted_sum = self._evaluate(maps)
        self.maps = maps
        self._differentiate(weighted_sum)
        self._precondition()
        ratio = xp.astype(old_size / self._size, turn.dtype)[:, None, None, None]
        old_proposal *= ratio
        old_proposal -= self._proposal  # y, in units of the gradient
        old_image *= ratio
        old_image -= self._preconditioned  # H₀ y, by linearity
        unit = xp.astype(self._size, turn.dtype)
        self._memory.add(turn, old_proposal, old_image, unit=unit, accepted=accepted)
        self._share[running] = np.where(accepted, 1.0, self._share * _SHRINK)[running]
        self._memory.forget(self._share < _SHRINK)
        self.step[running] = np.where(accepted, to_numpy(_norm(turn)), 0.0)[running]
        self.iterations[running] += 1

    def _moved(self, movers: npt.NDArray[np.bool_], maps: Array) -> Array:
        """The new maps of the movers, and the old maps of the others."""
        return namespace_of(maps).where(indices_beside(movers, maps)[:, None, None, None], maps, self.maps)

    def _evaluate(self, maps: Array) -> Array:
        S = self.problem.weighted_sum(maps)
        self._value = _inner(S, S)
        return S

    def _differentiate(self, weighted_sum: Array) -> None:
        xp = namespace_of(weighted_sum)
        self._slopes = transposed(self.maps) @ self.problem.pulled_back(weighted_sum)
        gradient = self._slopes - transposed(self._slopes)
        size = 0.5 * _norm(gradient)
        self._size = xp.where(size > 0, size, xp.ones_like(size))
        gradient *= (0.5 / self._size)[:, None, None, None]
        self._proposal = xp.astype(gradient, xp.float32)

    def _precondition(self) -> None:
        self._preconditioned = self._preconditioner.applied(self._proposal)

    def _turn(self) -> Array:
        """The quasi-Newton direction, shortened by the problem's share and so that no block turns too far."""
        xp = namespace_of(self._proposal)
        direction = self._memory.ascent_direction(self._proposal, self._preconditioned)
        rising = _inner(direction, self._proposal) > 0
        if not bool(xp.all(rising)):
            direction = xp.where(rising[:, None, None, None], direction, self._preconditioned)
        n, p, d, _ = direction.shape
        size = xp.astype(self._size, direction.dtype)
        turn = size * xp.max(vector_norms(xp.reshape(direction, (n, p, d * d))), axis=-1) / d**0.5
        limit = xp.clip(_LARGEST_TURN / xp.clip(turn, min=float(xp.finfo(turn.dtype).tiny)), max=1.0)
        return direction * (size * limit * like(self._share, limit))[:, None, None, None]

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


def _inner(first: Array, second: Array) -> Array:
    """Inner product of each problem's whole stack."""
    xp = namespace_of(first, second)
    return xp.linalg.vecdot(xp.reshape(first, (first.shape[0], -1)), xp.reshape(second, (second.shape[0], -1)))


def _norm(directions: Array) -> Array:
    """Frobenius norm of each problem's whole stack."""
    return namespace_of(directions).sqrt(_inner(directions, directions))
