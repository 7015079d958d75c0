"""The paper's solver: the generalized power method (GPM), from its spectral start.

R ← Π_p(G R), all blocks from the old R; it stops when the whole stack moves by at most the tolerance in Frobenius norm (an
absolute number), or at the iteration limit. The start: top d eigenvectors of G, each block projected onto O(d).

The paper writes Π through a singular value decomposition of each block. Here it is `polar_factor`: the same matrix up to
rounding, from matrix products alone, and through the decomposition only where those do not settle. On a GPU that is the
difference between minutes and hours; iteration counts and stopping are those of the decomposition (a test compares).
"""

from __future__ import annotations

import numpy as np

from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.result import BatchSolution, Termination
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array


def solve_by_power_method(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> BatchSolution:
    """Run the generalized power method on every problem of the batch; each stops by itself."""
    xp = namespace_of(problem.blocks)
    solution = BatchSolution.in_one_step(spectral_maps(problem), Termination.ITERATION_LIMIT)
    active, batch, maps = np.arange(problem.n_problems), problem, solution.maps
    for iteration in range(1, max_iterations + 1):
        new = polar_factor(batch.pulled_back(batch.weighted_sum(maps)))  # eq. paigdp_gpm_update
        # All problems' steps in one array: the only numbers of this loop that the host waits for.
        step = to_numpy(xp.sqrt(xp.sum((new - maps) ** 2, axis=(-3, -2, -1))))
        maps, done = new, step <= tolerance
        if not done.any() and iteration < max_iterations:
            continue
        solution.maps[indices_beside(active, maps)] = maps
        solution.step[active], solution.iterations[active] = step, iteration
        for index in active[done]:
            solution.terminations[index] = Termination.CONVERGED
        active, left = active[~done], indices_beside(np.flatnonzero(~done), maps)
        if not active.size:
            break
        batch, maps = batch.select(left), maps[left]
    return solution


def spectral_maps(problem: ProcrustesProblem) -> Array:
    """Return the spectral start, of shape (n_problems, p, d, d), in the precision of `problem`.

    The eigenvectors of G = DᵀD are the right singular vectors of D. Up to a positive scale a column, which the blocks share,
    they are Dᵀ U with U the top d eigenvectors of the r × r matrix D Dᵀ, whatever the number of participants. Where few
    participants have a long anchor G itself is the smaller of the two, and is decomposed instead.

    Iterations on a subspace would be quicker at low noise only. Past the phase transition hardly a gap sets the top d
    eigenvalues apart from the next, and they would take thousands of products to settle on the same space.
    """
    xp = namespace_of(problem.blocks)
    n, n_rows, width = problem.blocks.shape
    d = problem.n_components
    if width < n_rows:
        eigenvectors = xp.linalg.eigh(transpose(problem.blocks) @ problem.blocks)[1]
        return polar_factor(xp.reshape(eigenvectors[..., -d:], (n, problem.n_participants, d, d)))
    eigenvalues, eigenvectors = xp.linalg.eigh(problem.blocks @ transpose(problem.blocks))
    scale = xp.sqrt(xp.clip(eigenvalues[..., -d:], min=float(xp.finfo(eigenvalues.dtype).tiny)))
    return polar_factor(problem.pulled_back(eigenvectors[..., -d:] / scale[..., None, :]))
