"""The Procrustes objective −tr(Rᵀ G R) on O(d)^p, its preconditioner and its stopping rule.

Legend: G = DᵀD, D the centred anchor representations side by side; M_i = R_iᵀ (GR)_i; P_i = M_i + M_iᵀ; R_i ← R_i exp(Ω_i) a
step, Ω_i skew-symmetric. The gradient of the objective is Mᵀ − M, and tr(Rᵀ G R) is the trace of M.

An evaluation costs one product with D and one with Dᵀ, the same as an iteration of the power method, plus a few d × d
products per participant, without any decomposition. Directions are always computed in float32, since a step is checked
before it is accepted; maps and values are in the precision of the problem.

Near an optimum the Hessian acts on participant i's direction Ω mostly as (P Ω + Ω P)/2; the coupling between participants
is smaller. The map Ω ↦ P^(1/2) Ω P^(1/2) is close to (P Ω + Ω P)/2. Its inverse, which takes two products per block, is the
preconditioner. The power method's polar step uses the same curvature, so L-BFGS only has to learn the coupling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.alignment.problem import ProcrustesProblem
from mooring.geometry.backend import (
    blockwise,
    coarse_products,
    identity_like,
    indices_beside,
    namespace_of,
    to_numpy,
    transpose,
)
from mooring.geometry.backend import vector_norms as norms
from mooring.geometry.orthogonal import inverse_square_root, polar_factor, reorthogonalise, retract
from mooring.geometry.riemannian_lbfgs import Evaluation, Mask, Points, RiemannianLBFGS
from mooring.typing import Array

_SHIFTS = (0.05, 0.5, 2.0)
_DRIFT = 30  # multiples of the machine precision by which maps may deviate from O(d) between exact steps
_REFRESH_AT = frozenset({12, 48, 192})
_MEMORY_SIZE = 7
_SMALLEST_MEMORY = 2**25  # numbers that the memory may always hold; beyond that, as many as the data have
_SADDLE_GAP = 1.0  # one direction of the wrong sign makes a gap of two


@dataclass(frozen=True, eq=False)
class TraceObjective:
    """The objective −tr(Rᵀ G R) of every problem of a batch, for `RiemannianLBFGS`; a point is (maps,)."""

    problem: ProcrustesProblem

    def evaluate(self, points: Points) -> Evaluation:
        """Return values and gradients; the extra array is M."""
        (maps,) = points
        xp = namespace_of(maps)
        M = transpose(maps) @ self.problem.pulled_back(self.problem.weighted_sum(maps))
        gradient = xp.astype(transpose(M) - M, xp.float32, copy=False)
        return Evaluation(-xp.sum(xp.linalg.diagonal(M), axis=(-2, -1)), self._flat(gradient), (M,))

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return P^(−1/2) in float32, or a multiple of the identity if P is far from positive definite."""
        (M,) = evaluation.extra
        xp = namespace_of(M)
        P = xp.astype(M + transpose(M), xp.float32, copy=False)
        mean, limits = xp.mean(xp.linalg.diagonal(P), axis=-1), xp.finfo(P.dtype)
        # The mean is negative for a participant whose map is the wrong way round, but the largest of the means is not.
        mean = xp.maximum(mean, float(limits.eps) * xp.max(mean, axis=-1, keepdims=True))
        mean = xp.clip(mean, min=float(limits.tiny))[..., None, None]
        # The shift limits steps along directions of little curvature and keeps P definite while the maps are rough.
        candidates = (inverse_square_root(P + shift * mean * identity_like(P)) for shift in _SHIFTS)
        root = next((root for root in candidates if root is not None), None)
        return xp.broadcast_to(identity_like(P), P.shape) / xp.sqrt(mean) if root is None else root

    def precondition(self, curvature: Array, tangents: Array) -> Array:
        """Return P^(−1/2) Ω P^(−1/2), in reduced precision, since a direction is only a proposal."""
        with coarse_products(tangents):
            return self._flat(blockwise(lambda root, turns: root @ turns @ root, curvature, self._turns(tangents)))

    def retract(self, points: Points, tangents: Array, *, exactly: bool) -> Points:
        """Return R exp(Ω), to second order; orthogonal up to rounding if `exactly` and not on a GPU, else approximately."""
        (maps,) = points
        tolerance = _DRIFT * float(namespace_of(maps).finfo(maps.dtype).eps)
        return (retract(maps, self._turns(tangents), tolerance=tolerance, exactly=exactly),)

    def limit_turns(self, tangents: Array, largest: Array) -> Array:
        """Shorten each participant's turn separately, so that a poor step of one does not shorten those of others.

        The size of a turn is the root mean square norm of its rows.
        """
        xp = namespace_of(tangents)
        p, d = self.problem.n_participants, self.problem.n_components
        turns = xp.reshape(tangents, (-1, p, d * d))
        sizes = xp.clip(norms(turns), min=float(xp.finfo(turns.dtype).tiny))
        turns *= xp.clip(xp.astype(largest, sizes.dtype)[:, None] * d**0.5 / sizes, max=1.0)[..., None]
        return self._flat(turns)

    def select(self, problems: npt.NDArray[np.intp]) -> TraceObjective:
        """Return the objective of some of the problems."""
        return TraceObjective(self.problem.select(indices_beside(problems, self.problem.blocks)))

    def _turns(self, tangents: Array) -> Array:
        p, d = self.problem.n_participants, self.problem.n_components
        return namespace_of(tangents).reshape(tangents, (-1, p, d, d))

    @staticmethod
    def _flat(turns: Array) -> Array:
        return namespace_of(turns).reshape(turns, (turns.shape[0], -1))


class FixedPointGap:
    """Stops when the fixed-point gap ‖Π(GR) − R‖_F, the length of the power method's next step, is at most the tolerance.

    If `roughly`, an estimate of the gap decides, and the gap itself is not computed. `gap` holds the gap of each problem
    that converged; it is NaN for other problems, and in a rough run.
    """

    def __init__(self, n_problems: int, *, tolerance: float, roughly: bool = False) -> None:
        self.gap: npt.NDArray[np.float64] = np.full(n_problems, np.nan)
        self._misjudgement: npt.NDArray[np.float64] = np.ones(n_problems)
        self._tolerance, self._roughly = tolerance, roughly

    def __call__(self, optimiser: RiemannianLBFGS) -> Mask:
        """Return which problems have converged; problems at a saddle point are moved away from it."""
        # The preconditioned gradient, which is available anyway, estimates the power method's step; the step decides.
        estimate = to_numpy(norms(optimiser.preconditioned)).astype(np.float64)
        problems = optimiser.problems
        likely = np.asarray(self._misjudgement[problems] * estimate <= self._tolerance)
        if self._roughly or not likely.any():
            return likely
        step = polar_factor(optimiser.evaluation.extra[0])
        step -= identity_like(step)
        gaps = to_numpy(norms(TraceObjective._flat(step))).astype(np.float64)
        astray = likely & (gaps > max(_SADDLE_GAP, 10 * self._tolerance))
        if astray.any():
            # The gradient vanishes although a direction has the wrong sign: the power method's step corrects it.
            (maps,) = optimiser.points
            optimiser.relocate(astray, (_on_the_group(maps + maps @ step),))
        ratio = np.maximum(gaps / np.maximum(estimate, self._tolerance * 1e-3), 1.0)
        self._misjudgement[problems] = np.where(likely & ~astray, ratio, self._misjudgement[problems])
        likely &= gaps <= self._tolerance
        self.gap[problems] = np.where(likely, gaps, np.nan)
        return likely


def trace_optimiser(
    problem: ProcrustesProblem, maps: Array, *, iterations: npt.NDArray[np.int64] | None = None
) -> RiemannianLBFGS:
    """Return an optimiser of tr(Rᵀ G R) that starts at these maps; `iterations` counts steps already taken."""
    n, p, d, _ = maps.shape
    return RiemannianLBFGS(
        TraceObjective(problem),
        (_on_the_group(namespace_of(maps).astype(maps, problem.blocks.dtype)),),
        memory_size=choose_memory_size(math.prod(problem.blocks.shape) // n, p, d),
        refresh_at=_REFRESH_AT,
        iterations=iterations,
    )


def choose_memory_size(n_numbers: int, p: int, d: int) -> int:
    """Return how many pairs the optimiser remembers for p maps of size d, if a problem's data are `n_numbers` numbers.

    A pair is two vectors of p d² numbers each; only one of the two is counted, and one more slot is kept free.
    """
    affordable = max(n_numbers, _SMALLEST_MEMORY) // (p * d * d)
    return max(1, min(_MEMORY_SIZE, affordable - 1))


def change_precision(optimiser: RiemannianLBFGS, problem: ProcrustesProblem) -> None:
    """Continue with the same problems in the precision of `problem`."""
    (maps,) = optimiser.points
    maps = _on_the_group(namespace_of(maps).astype(maps, problem.blocks.dtype))
    optimiser.replace_objective(TraceObjective(problem), (maps,))


def _on_the_group(maps: Array) -> Array:
    return reorthogonalise(maps, tolerance=float(namespace_of(maps).finfo(maps.dtype).eps))
