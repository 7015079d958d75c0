"""mooring's own solver and the default: an optimum as good or better on nearly all problems, in far cheaper steps.

1. Spectral start and a first climb, in float32.
2. If the dual certificate already holds, roughly, the basin is the right one. If not, a lifted climb looks for a better
   basin, and whichever of the two has the higher objective goes on.
3. On in float32 until rounding gets in the way, then in float64 to the tolerance, which means what it means to the power
   method: the size of the step that method would take from here.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from mooring.alignment.ascent import Climb
from mooring.alignment.certificate import seems_optimal
from mooring.alignment.outcome import SolverOutcome
from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.rank_relaxation import lifted_ascent
from mooring.alignment.result import Termination
from mooring.alignment.spectral import spectral_maps
from mooring.geometry.backend import identity_like, indices_beside, namespace_of, transposed
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array

_ROUGH = 2e-3  # relative fixed-point gap at which basins can be told apart
_SINGLE_PRECISION_FLOOR = 3e-5  # relative fixed-point gap that float32 still resolves
_LIFTED_ITERATIONS = 20


def solve_accelerated(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> SolverOutcome:
    """Solve every problem of the batch."""
    if problem.n_participants == 2:
        return _two_participants(problem)
    xp = namespace_of(problem.blocks)
    whole = math.sqrt(problem.n_participants * problem.n_components)
    single = problem.in_precision(xp.float32)
    climb = Climb(single, spectral_maps(single))
    climb.run(gap_tolerance=max(tolerance, _ROUGH * whole), max_iterations=max_iterations, roughly=True)
    doubtful = np.flatnonzero(~seems_optimal(single, climb.maps) & (climb.iterations < max_iterations))
    if doubtful.size:
        maps, spent = climb.maps, climb.iterations
        del climb, single  # their memory makes room for the lifted problem
        climb = _in_better_basins(problem, maps, doubtful, spent=spent, max_iterations=max_iterations)
    else:
        del single
    climb.run(gap_tolerance=max(tolerance, _SINGLE_PRECISION_FLOOR * whole), max_iterations=max_iterations)
    climb.sharpen(problem)
    climb.run(gap_tolerance=tolerance, max_iterations=max_iterations)
    return SolverOutcome(climb.maps, climb.step, climb.iterations, _terminations(climb), climb.gap, np.arange(0))


def _in_better_basins(
    problem: ProcrustesProblem,
    maps: Array,
    doubtful: npt.NDArray[np.int64],
    *,
    spent: npt.NDArray[np.int64],
    max_iterations: int,
) -> Climb:
    """Try a lifted climb for the doubtful problems; go on from the better maps of each problem, in float32."""
    xp = namespace_of(maps)
    rows = indices_beside(doubtful, maps)
    batch = problem if doubtful.size == problem.n_problems else problem.taken(rows)
    left = max_iterations - int(spent[doubtful].max())
    found, lifted_iterations = lifted_ascent(batch, maps[rows], max_iterations=min(_LIFTED_ITERATIONS, left // 2))
    climb = Climb(batch.in_precision(xp.float32), found)
    climb.iterations += spent[doubtful] + lifted_iterations
    whole = math.sqrt(problem.n_participants * problem.n_components)
    climb.run(gap_tolerance=_ROUGH * whole, max_iterations=max_iterations, roughly=True)
    better = climb.problem.objective(climb.maps) > climb.problem.objective(maps[rows])
    if batch is problem and bool(xp.all(better)):
        return climb
    maps[rows] = xp.where(better[:, None, None, None], climb.maps, maps[rows])
    iterations = spent.copy()
    iterations[doubtful] = climb.iterations
    climb = Climb(problem.in_precision(xp.float32), maps)
    climb.iterations += iterations
    return climb


def _two_participants(problem: ProcrustesProblem) -> SolverOutcome:
    """Two participants are one orthogonal Procrustes problem: R_1 = I, R_2 = Π(B̄_2ᵀ B̄_1) is the global optimum."""
    xp = namespace_of(problem.blocks)
    d = problem.n_components
    R = polar_factor(transposed(problem.blocks[..., d:]) @ problem.blocks[..., :d])
    identity = xp.broadcast_to(identity_like(R), R.shape)
    return SolverOutcome.started(xp.stack([identity, R], axis=1), termination=Termination.CLOSED_FORM)


def _terminations(climb: Climb) -> list[Termination]:
    ends = zip(climb.rested, climb.stalled, strict=True)
    return [
        Termination.CONVERGED if rested else Termination.STALLED if stalled else Termination.ITERATION_LIMIT
        for rested, stalled in ends
    ]
