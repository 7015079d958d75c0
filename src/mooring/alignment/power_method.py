"""The paper's solver: the generalized power method (GPM) with a spectral start.

Legend, besides that of `problem`: R the stack of the maps R_i; Π projects a matrix onto O(d), and Π_p each of p blocks.

The iteration is R ← Π_p(G R), with all blocks computed from the old R. It stops when the Frobenius norm of the step over the
whole stack is at most the tolerance, or at the iteration limit. It starts from the top d eigenvectors of G, with each block
projected onto O(d).

The paper computes Π by a singular value decomposition of each block. Here `polar_factor` computes the same matrix, up to
rounding, from matrix products, and falls back to the decomposition where the products do not converge. On a GPU this takes
minutes instead of hours; a test checks that iteration counts are the same.

`run_power_method` is the only loop. It steps a `PowerIteration`, which holds either the maps of a batch of problems in this
process or those of one problem that is spread over workers (`mooring.engines.dask.reduction`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.result import BatchSolution, Termination
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array


class PowerIteration(Protocol):
    """The maps of unfinished problems, wherever they are."""

    def advance(self) -> npt.NDArray[np.float64]:
        """Take the step R ← Π(GR) of every unfinished problem, and return the length ‖R_new − R‖_F of each step."""

    def finish(self, done: npt.NDArray[np.bool_]) -> None:
        """Keep the present maps of the problems that are done. These problems take no further steps."""


@dataclass(frozen=True, eq=False)
class PowerRun:
    """How far the power method came, for each problem."""

    iterations: npt.NDArray[np.int64]
    step: npt.NDArray[np.float64]
    """Length of the last step."""
    terminations: list[Termination]


def run_power_method(iteration: PowerIteration, n_problems: int, *, max_iterations: int, tolerance: float) -> PowerRun:
    """Take steps until each problem's step is at most the tolerance, or the limit is reached; return how far they came."""
    run = PowerRun(
        np.zeros(n_problems, dtype=np.int64), np.zeros(n_problems), [Termination.ITERATION_LIMIT] * n_problems
    )
    active = np.arange(n_problems)
    for count in range(1, max_iterations + 1):
        step = iteration.advance()
        done = step <= tolerance
        if not done.any() and count < max_iterations:
            continue
        run.step[active], run.iterations[active] = step, count
        for index in active[done]:
            run.terminations[index] = Termination.CONVERGED
        iteration.finish(done if count < max_iterations else np.ones_like(done))
        active = active[~done]
        if not active.size:
            break
    return run


class _BatchIteration:
    """Maps of a batch of problems in this process. Finished problems leave the batch, so that it gets smaller."""

    def __init__(self, problem: ProcrustesProblem) -> None:
        self.finished = spectral_maps(problem)
        self._batch, self._maps, self._places = problem, self.finished, np.arange(problem.n_problems)

    def advance(self) -> npt.NDArray[np.float64]:
        """Take one step of all problems in the batch."""
        xp = namespace_of(self._maps)
        new = polar_factor(self._batch.pulled_back(self._batch.weighted_sum(self._maps)))  # eq. paigdp_gpm_update
        # The steps of all problems are one array, the only one that the host waits for.
        step = to_numpy(xp.sqrt(xp.sum((new - self._maps) ** 2, axis=(-3, -2, -1))))
        self._maps = new
        return step

    def finish(self, done: npt.NDArray[np.bool_]) -> None:
        """Move the maps of finished problems out of the batch."""
        chosen, left = (indices_beside(np.flatnonzero(mask), self._maps) for mask in (done, ~done))
        self.finished[indices_beside(self._places[done], self._maps)] = self._maps[chosen]
        self._batch, self._maps, self._places = self._batch.select(left), self._maps[left], self._places[~done]


def solve_by_power_method(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> BatchSolution:
    """Run the generalized power method until each problem reaches the limit, or ‖R_new − R‖_F is at most the tolerance."""
    iteration, n = _BatchIteration(problem), problem.n_problems
    run = run_power_method(iteration, n, max_iterations=max_iterations, tolerance=tolerance)
    return BatchSolution(iteration.finished, run.terminations, run.iterations, run.step, np.full(n, np.nan))


def spectral_maps(problem: ProcrustesProblem) -> Array:
    """Return the spectral start, of shape (n_problems, p, d, d), in the precision of `problem`.

    The eigenvectors of G = DᵀD are the right singular vectors of D. Up to a positive scale per column, shared by the blocks,
    they are Dᵀ U, where U are the top d eigenvectors of the r × r matrix D Dᵀ. If few participants have a long anchor, G is
    the smaller matrix and is decomposed instead.

    Subspace iteration would be faster only at low noise. Beyond the phase transition, the gap after the top d eigenvalues is
    so small that subspace iteration would need thousands of products to converge.
    """
    xp = namespace_of(problem.blocks)
    n, n_rows, width = problem.blocks.shape
    d = problem.n_components
    if width < n_rows:
        eigenvectors = xp.linalg.eigh(transpose(problem.blocks) @ problem.blocks)[1]
        return polar_factor(xp.reshape(eigenvectors[..., -d:], (n, problem.n_participants, d, d)))
    return polar_factor(problem.pulled_back(spectral_sum(problem.blocks @ transpose(problem.blocks), d)))


def spectral_sum(outer: Array, n_components: int) -> Array:
    """Return the r × d matrix S whose maps Π(B̄_iᵀ S) are the spectral start, from Σ B̄_i B̄_iᵀ."""
    xp = namespace_of(outer)
    eigenvalues, eigenvectors = xp.linalg.eigh(outer)
    scale = xp.sqrt(xp.clip(eigenvalues[..., -n_components:], min=float(xp.finfo(eigenvalues.dtype).tiny)))
    return eigenvectors[..., -n_components:] / scale[..., None, :]
