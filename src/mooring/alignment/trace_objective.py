"""The Procrustes objective for the optimiser on O(d)^p: −tr(Rᵀ G R), its curvature, and when it has converged.

Legend: M_i = R_iᵀ (GR)_i, P_i = M_i + M_iᵀ; R_i ← R_i exp(Ω_i) a step, Ω_i skew. The gradient of the objective is Mᵀ − M,
and tr(Rᵀ G R) the trace of M.

An evaluation costs one product with D and one with Dᵀ, the same as an iteration of the power method, plus a few d × d
products a participant; no decomposition. Directions are computed in float32 throughout, since they only propose; maps and
values are in the precision of the problem.

Near an optimum the Hessian acts on participant i's direction Ω mostly as (P Ω + Ω P)/2; the coupling between participants
is the smaller rest. P^(1/2) Ω P^(1/2) is close to that, and its inverse, the preconditioner, is two products a block. It is
the curvature that the power method's polar step uses, so what is left for L-BFGS to learn is the coupling.
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
_DRIFT = 30  # units of rounding by which maps may be off O(d) between exact steps
_REFRESH_AT = frozenset({12, 48, 192})
_MEMORY_SIZE = 7
_SMALLEST_MEMORY = 2**25  # numbers: the memory may always take this much, and otherwise as much as the data
_SADDLE_GAP = 1.0  # a single direction that points the wrong way makes a gap of two


@dataclass(frozen=True, eq=False)
class TraceObjective:
    """−tr(Rᵀ G R) of every problem of a batch, as `RiemannianLBFGS` needs it; a point is (maps,)."""

    problem: ProcrustesProblem

    def evaluate(self, points: Points) -> Evaluation:
        """Values and gradients; the extra array is M."""
        (maps,) = points
        xp = namespace_of(maps)
        M = transpose(maps) @ self.problem.pulled_back(self.problem.weighted_sum(maps))
        gradient = xp.astype(transpose(M) - M, xp.float32, copy=False)
        return Evaluation(-xp.sum(xp.linalg.diagonal(M), axis=(-2, -1)), self._flat(gradient), (M,))

    def curvature(self, evaluation: Evaluation) -> Array:
        """P^(−1/2) in float32, or one over the root of the mean eigenvalue where P is far from positive definite."""
        (M,) = evaluation.extra
        xp = namespace_of(M)
        P = xp.astype(M + transpose(M), xp.float32, copy=False)
        mean = xp.mean(xp.linalg.diagonal(P), axis=-1)[..., None, None]
        mean = xp.clip(mean, min=float(xp.finfo(P.dtype).tiny))
        # The shift keeps soft directions from being trusted too far, and P definite while the maps are still rough.
        candidates = (inverse_square_root(P + shift * mean * identity_like(P)) for shift in _SHIFTS)
        root = next((root for root in candidates if root is not None), None)
        return xp.broadcast_to(identity_like(P), P.shape) / xp.sqrt(mean) if root is None else root

    def precondition(self, curvature: Array, tangents: Array) -> Array:
        """P^(−1/2) Ω P^(−1/2), roughly: a direction is only proposed."""
        with coarse_products(tangents):
            return self._flat(blockwise(lambda root, turns: root @ turns @ root, curvature, self._turns(tangents)))

    def retract(self, points: Points, tangents: Array, *, exactly: bool) -> Points:
        """R exp(Ω), to third order."""
        (maps,) = points
        tolerance = _DRIFT * float(namespace_of(maps).finfo(maps.dtype).eps)
        return (retract(maps, self._turns(tangents), tolerance=tolerance, exactly=exactly),)

    def limit_turns(self, tangents: Array, largest: Array) -> Array:
        """Shorten each participant's turn by itself: the light ones' may be far off, and should not hold up the others'.

        A turn's size is the root mean square norm of its rows.
        """
        xp = namespace_of(tangents)
        p, d = self.problem.n_participants, self.problem.n_components
        turns = xp.reshape(tangents, (-1, p, d * d))
        sizes = xp.clip(norms(turns), min=float(xp.finfo(turns.dtype).tiny))
        turns *= xp.clip(xp.astype(largest, sizes.dtype)[:, None] * d**0.5 / sizes, max=1.0)[..., None]
        return self._flat(turns)

    def select(self, problems: npt.NDArray[np.intp]) -> TraceObjective:
        """The objective of some problems only."""
        return TraceObjective(self.problem.select(indices_beside(problems, self.problem.blocks)))

    def _turns(self, tangents: Array) -> Array:
        p, d = self.problem.n_participants, self.problem.n_components
        return namespace_of(tangents).reshape(tangents, (-1, p, d, d))

    @staticmethod
    def _flat(turns: Array) -> Array:
        return namespace_of(turns).reshape(turns, (turns.shape[0], -1))


class FixedPointGap:
    """Stop when the fixed-point gap ‖Π(GR) − R‖_F, the size of the step the power method would take, is small.

    Attributes
    ----------
    gap : numpy.ndarray of shape (n_problems,)
        The gap of the problems that converged; not a number for the others, and in a rough run.
    """

    def __init__(self, n_problems: int, *, tolerance: float, roughly: bool = False) -> None:
        self.gap: npt.NDArray[np.float64] = np.full(n_problems, np.nan)
        self._misjudgement: npt.NDArray[np.float64] = np.ones(n_problems)
        self._tolerance, self._roughly = tolerance, roughly

    def __call__(self, optimiser: RiemannianLBFGS) -> Mask:
        """Say which problems have converged; move those that rest on a saddle off it."""
        # The preconditioned gradient is about the power method's step and costs nothing; the step itself decides.
        estimate = to_numpy(norms(optimiser.preconditioned)).astype(np.float64)
        problems = optimiser.problems
        likely = np.asarray(self._misjudgement[problems] * estimate <= self._tolerance)
        if self._roughly or not likely.any():
            return likely
        rest = polar_factor(optimiser.evaluation.extra[0])
        rest -= identity_like(rest)
        found = to_numpy(norms(TraceObjective._flat(rest))).astype(np.float64)
        astray = likely & (found > max(_SADDLE_GAP, 10 * self._tolerance))
        if astray.any():
            # The gradient vanishes, yet some direction points the wrong way: the power method's step turns it round.
            (maps,) = optimiser.points
            optimiser.relocate(astray, (_on_the_group(maps + maps @ rest),))
        ratio = np.maximum(found / np.maximum(estimate, self._tolerance * 1e-3), 1.0)
        self._misjudgement[problems] = np.where(likely & ~astray, ratio, self._misjudgement[problems])
        likely &= found <= self._tolerance
        self.gap[problems] = np.where(likely, found, np.nan)
        return likely


def trace_optimiser(
    problem: ProcrustesProblem, maps: Array, *, iterations: npt.NDArray[np.int64] | None = None
) -> RiemannianLBFGS:
    """Return an optimiser of tr(Rᵀ G R) from these maps, in the precision of the problem."""
    n, p, d, _ = maps.shape
    affordable = max(math.prod(problem.blocks.shape), _SMALLEST_MEMORY * n) // (n * p * d * d)
    return RiemannianLBFGS(
        TraceObjective(problem),
        (_on_the_group(namespace_of(maps).astype(maps, problem.blocks.dtype)),),
        memory_size=max(1, min(_MEMORY_SIZE, affordable - 1)),
        refresh_at=_REFRESH_AT,
        iterations=iterations,
    )


def change_precision(optimiser: RiemannianLBFGS, problem: ProcrustesProblem) -> None:
    """Go on with the same problems in another precision."""
    (maps,) = optimiser.points
    maps = _on_the_group(namespace_of(maps).astype(maps, problem.blocks.dtype))
    optimiser.replace_objective(TraceObjective(problem), (maps,))


def _on_the_group(maps: Array) -> Array:
    return reorthogonalise(maps, tolerance=float(namespace_of(maps).finfo(maps.dtype).eps))
