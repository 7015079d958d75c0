"""The paper's solver: the generalized power method (GPM).

R ← Π_p(G R) from the spectral start, all blocks from the old R; it stops when the whole stack moves by at most the
tolerance in Frobenius norm (an absolute number), or at the iteration limit.

The paper writes Π through a singular value decomposition of each block. Here it is `polar_factor`: the same matrix up to
rounding, from matrix products alone, and through the decomposition only where those do not settle. On a GPU that is the
difference between minutes and hours; iteration counts and stopping are those of the decomposition (a test compares).
"""

from __future__ import annotations

import numpy as np

from mooring.alignment.outcome import SolverOutcome
from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.result import Termination
from mooring.alignment.spectral import spectral_maps
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy
from mooring.geometry.orthogonal import polar_factor


def solve_by_power_method(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> SolverOutcome:
    """Run the generalized power method on every problem of the batch; each stops by itself."""
    xp = namespace_of(problem.blocks)
    outcome = SolverOutcome.started(spectral_maps(problem))
    batch, maps = problem, outcome.maps
    for iteration in range(1, max_iterations + 1):
        new = polar_factor(batch.pulled_back(batch.weighted_sum(maps)))  # eq. paigdp_gpm_update
        # All problems' steps in one array: the only numbers of this loop that the host waits for.
        step = to_numpy(xp.sqrt(xp.sum((new - maps) ** 2, axis=(-3, -2, -1))))
        maps, done = new, step <= tolerance
        if not done.any() and iteration < max_iterations:
            continue
        outcome.record(outcome.active, maps, step=step, iteration=iteration, done=done, why=Termination.CONVERGED)
        if not outcome.active.size:
            break
        left = indices_beside(np.flatnonzero(~done), maps)
        batch, maps = batch.taken(left), maps[left]
    return outcome
