"""The default solver. On nearly all problems its optimum is as good as the power method's or better, at a lower cost.

Two participants have a closed-form solution. For more participants, the steps are:

1. L-BFGS on O(d)^p starts from the spectral estimate and runs in float32 until the basin of attraction is clear (in float64
   if the scales of uploads differ by more than a factor of a thousand, or if the GPU is as fast in float64).
2. If the dual certificate roughly holds, the basin is the right one. Otherwise a rank relaxation looks for a better basin,
   and the solver continues from the maps with the higher objective.
3. The solver continues in float32 as long as rounding allows, and then in float64 down to the tolerance. The tolerance
   bounds the step that the power method would take from these maps, as the power method's own tolerance does.
4. Where uploads differ only by rounding or a little noise, two power steps follow, after which the maps are exact to
   rounding.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mooring.alignment.certificate import seems_optimal
from mooring.alignment.power_method import spectral_maps
from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.rank_relaxation import relaxed_maps
from mooring.alignment.result import BatchSolution, Termination
from mooring.alignment.trace_objective import FixedPointGap, change_precision, trace_optimiser
from mooring.geometry.backend import identity_like, indices_beside, namespace_of, to_numpy, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.riemannian_lbfgs import RiemannianLBFGS
from mooring.typing import Array

_ROUGH = 2e-3  # relative fixed-point gap at which basins can be distinguished
_SINGLE_PRECISION_FLOOR = 3e-5  # relative fixed-point gap that float32 still resolves
_RELAXED_ITERATIONS = 20
_LITTLE_NOISE = 1e-3  # relative misfit, and about the factor by which a power step shrinks the gap
_FINAL_STEPS = 2


def solve_accelerated(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> BatchSolution:
    """Iterate until each problem stalls, reaches the limit, or has a gap ‖Π(GR) − R‖_F of at most the tolerance."""
    if problem.n_participants == 2:
        return _two_participants(problem)
    n, whole = problem.n_problems, math.sqrt(problem.n_participants * problem.n_components)
    single = problem.in_precision(problem.working_precision())
    optimiser = trace_optimiser(single, spectral_maps(single))
    rough = FixedPointGap(n, tolerance=max(tolerance, _ROUGH * whole), roughly=True)
    optimiser.run(rough, max_iterations=max_iterations)
    doubtful = np.flatnonzero(~seems_optimal(single, optimiser.points[0]) & (optimiser.iterations < max_iterations))
    if doubtful.size:
        maps, spent = optimiser.points[0], optimiser.iterations
        del optimiser, single  # their memory makes room for the relaxed problem
        optimiser = _in_better_basins(problem, maps, doubtful, spent=spent, max_iterations=max_iterations)
    else:
        del single
    floor = FixedPointGap(n, tolerance=max(tolerance, _SINGLE_PRECISION_FLOOR * whole))
    optimiser.run(floor, max_iterations=max_iterations)
    change_precision(optimiser, problem)
    final = FixedPointGap(n, tolerance=tolerance)
    optimiser.run(final, max_iterations=max_iterations)
    solution = BatchSolution(
        optimiser.points[0], _terminations(optimiser), optimiser.iterations, optimiser.step, final.gap
    )
    # the unexplained share of the centred uploads' sum of squares; the optimiser's value is −‖S‖²
    misfits = 1.0 + optimiser.value / (problem.n_participants**2 * problem.n_components)
    _refine(problem, solution, optimiser.converged & (misfits < _LITTLE_NOISE))
    return solution


def _in_better_basins(
    problem: ProcrustesProblem,
    maps: Array,
    doubtful: npt.NDArray[np.intp],
    *,
    spent: npt.NDArray[np.int64],
    max_iterations: int,
) -> RiemannianLBFGS:
    """Try the rank relaxation on doubtful problems; return an optimiser that starts from the better maps of each problem."""
    xp = namespace_of(maps)
    rows = indices_beside(doubtful, maps)
    batch = problem if doubtful.size == problem.n_problems else problem.select(rows)
    left = max_iterations - int(spent[doubtful].max())
    candidates, relaxed_iterations = relaxed_maps(batch, maps[rows], max_iterations=min(_RELAXED_ITERATIONS, left // 2))
    single = batch.in_precision(maps.dtype)
    optimiser = trace_optimiser(single, candidates, iterations=spent[doubtful] + relaxed_iterations)
    whole = math.sqrt(problem.n_participants * problem.n_components)
    rough = FixedPointGap(doubtful.size, tolerance=_ROUGH * whole, roughly=True)
    optimiser.run(rough, max_iterations=max_iterations)
    (candidates,) = optimiser.points
    better = single.objective(candidates) > single.objective(maps[rows])
    if batch is problem and bool(xp.all(better)):
        return optimiser
    maps[rows] = xp.where(better[:, None, None, None], candidates, maps[rows])
    iterations = spent.copy()
    iterations[doubtful] = optimiser.iterations
    return trace_optimiser(problem.in_precision(maps.dtype), maps, iterations=iterations)


def _refine(problem: ProcrustesProblem, solution: BatchSolution, chosen: npt.NDArray[np.bool_]) -> None:
    """Refine the chosen problems by power steps, in place."""
    if not chosen.any():
        return
    rows = indices_beside(np.flatnonzero(chosen), solution.maps)
    batch, maps = problem.select(rows), solution.maps[rows]
    for _ in range(_FINAL_STEPS):
        maps = polar_factor(batch.pulled_back(batch.weighted_sum(maps)))
    solution.maps[rows], solution.gap[chosen] = maps, to_numpy(batch.fixed_point_gap(maps))


def _two_participants(problem: ProcrustesProblem) -> BatchSolution:
    """Return the global optimum R_1 = I, R_2 = Π(B̄_2ᵀ B̄_1) of an orthogonal Procrustes problem of two participants."""
    xp = namespace_of(problem.blocks)
    d = problem.n_components
    R = polar_factor(transpose(problem.blocks[..., d:]) @ problem.blocks[..., :d])
    identity = xp.broadcast_to(identity_like(R), R.shape)
    return BatchSolution.in_one_step(xp.stack([identity, R], axis=1), Termination.CLOSED_FORM)


def _terminations(optimiser: RiemannianLBFGS) -> list[Termination]:
    return [
        Termination.CONVERGED if converged else Termination.STALLED if stalled else Termination.ITERATION_LIMIT
        for converged, stalled in zip(optimiser.converged, optimiser.stalled, strict=True)
    ]
