"""The paper's solver, to the letter: the generalized power method (GPM).

R ← Π_p(G R) from the spectral start, all blocks from the old R, one SVD a block; it stops when the whole stack moves by at
most the tolerance in Frobenius norm (an absolute number), or at the iteration limit.
"""

from __future__ import annotations

from mooring.alignment.outcome import SolverOutcome
from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.solution import Termination
from mooring.alignment.spectral import spectral_maps
from mooring.geometry.backend import indices_beside, namespace_of
from mooring.geometry.orthogonal import svd_polar_factor


def solve_by_power_method(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> SolverOutcome:
    """Run the generalized power method on every problem of the batch; each stops by itself."""
    xp = namespace_of(problem.blocks)
    outcome = SolverOutcome.started(spectral_maps(problem))
    for iteration in range(1, max_iterations + 1):
        active = outcome.active
        if not active.size:
            break
        indices = indices_beside(active, outcome.maps)
        batch = problem if active.size == problem.n_problems else problem.taken(indices)
        old = outcome.maps[indices]
        new = svd_polar_factor(batch.pulled_back(batch.weighted_sum(old)))  # eq. paigdp_gpm_update
        step = xp.sqrt(xp.sum((new - old) ** 2, axis=(-3, -2, -1)))
        outcome.record(active, new, step=step, iteration=iteration, done=step <= tolerance, why=Termination.CONVERGED)
    return outcome
