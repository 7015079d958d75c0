"""The paper's solver: the generalized power method (GPM) with a spectral start.

The iteration is R ← Π_p(G R), with all blocks computed from the old R. It stops when the Frobenius norm of the step over the
whole stack is at most the tolerance, or at the iteration limit. It starts from the top d eigenvectors of G, with each block
projected onto O(d).

The paper computes Π by a singular value decomposition of each block. Here `polar_factor` computes the same matrix, up to
rounding, from matrix products, and falls back to the decomposition where those do not converge. On a GPU this takes minutes
instead of hours; a test checks that iteration counts are the same.
"""

from __future__ import annotations

import numpy as np

from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.result import BatchSolution, Termination
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array


def solve_by_power_method(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> BatchSolution:
    """Run the generalized power method on every problem until ‖R_new − R‖_F is at most the tolerance."""
    xp = namespace_of(problem.blocks)
    solution = BatchSolution.in_one_step(spectral_maps(problem), Termination.ITERATION_LIMIT)
    active, batch, maps = np.arange(problem.n_problems), problem, solution.maps
    for iteration in range(1, max_iterations + 1):
        new = polar_factor(batch.pulled_back(batch.weighted_sum(maps)))  # eq. paigdp_gpm_update
        # The steps of all problems are one array, the only one in this loop that the host waits for.
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

    The eigenvectors of G = DᵀD are the right singular vectors of D. Up to a positive scale per column, shared by the blocks,
    they are Dᵀ U, where U are the top d eigenvectors of the r × r matrix D Dᵀ. If few participants have a long anchor, G is
    the smaller matrix and is decomposed instead.

    Subspace iteration would be faster only at low noise. Beyond the phase transition the gap after the top d eigenvalues is
    so small that it would need thousands of products to converge.
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
