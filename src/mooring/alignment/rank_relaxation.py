"""Search for a better basin of attraction by relaxing the problem into a few more dimensions.

Legend: k > d the lifted dimension. Pad every B̄_i with k − d zero columns and let R_i range over O(k): the objective then
depends on the first d rows of R_i, a d-frame in k dimensions. Orthogonal matrices of opposite determinant, which no path in
O(d) connects, are connected in the space of d-frames, and poor local optima can become saddle points that an optimiser
leaves.

To return to O(d), the k columns of the lifted sum S are rotated so that d of the columns carry most of S; these columns
of each frame are projected onto O(d). This is one step of the Riemannian staircase for the semidefinite relaxation.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from mooring.alignment.problem import ProcrustesProblem
from mooring.alignment.trace_objective import FixedPointGap, trace_optimiser
from mooring.geometry.backend import device_of, identity_like, like, namespace_of, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.typing import Array

_NUDGE = 0.3  # size of an entry: large enough to leave a saddle point, small enough to keep the maps' progress
_REST = 3e-3  # relative fixed-point gap at which the relaxation ends


def relaxed_maps(
    problem: ProcrustesProblem, maps: Array, *, max_iterations: int
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Return maps improved in k dimensions and rounded back to O(d), and the iterations spent on each problem."""
    p, d = problem.n_participants, problem.n_components
    lifted_problem = _padded(problem.in_precision(maps.dtype), extra=max(2, math.ceil(d / 20)))
    k = lifted_problem.n_components
    optimiser = trace_optimiser(lifted_problem, _lifted(maps, k))
    rule = FixedPointGap(problem.n_problems, tolerance=_REST * math.sqrt(p * k), roughly=True)
    optimiser.run(rule, max_iterations=max_iterations)
    return _rounded(lifted_problem, optimiser.points[0], d), optimiser.iterations


def _padded(problem: ProcrustesProblem, *, extra: int) -> ProcrustesProblem:
    xp = namespace_of(problem.blocks)
    n, r, p, d = problem.n_problems, problem.blocks.shape[1], problem.n_participants, problem.n_components
    blocks = xp.zeros((n, r, p, d + extra), dtype=problem.blocks.dtype, device=device_of(problem.blocks))
    blocks[..., :d] = xp.reshape(problem.blocks, (n, r, p, d))
    blocks = xp.reshape(blocks, (n, r, p * (d + extra)))
    return replace(problem, blocks=blocks, n_components=d + extra)


def _lifted(maps: Array, k: int) -> Array:
    """Return blkdiag(R_i, I), rotated slightly out of the first d dimensions.

    The direction comes from a fixed seed, so that the same input gives the same output; any direction leaves a saddle point.
    """
    xp = namespace_of(maps)
    p, d = maps.shape[-3], maps.shape[-1]
    nudge = np.zeros((p, k, k))
    nudge[:, :d, d:] = np.random.default_rng(0).standard_normal((p, d, k - d)) * _NUDGE
    nudge -= np.swapaxes(nudge, 1, 2)
    turned = like(np.eye(k) + nudge, maps)
    lifted = xp.zeros((*maps.shape[:-2], k, k), dtype=maps.dtype, device=device_of(maps))
    lifted[..., :d, :d] = maps
    lifted[..., d:, d:] = identity_like(lifted)[d:, d:]
    return polar_factor(lifted @ turned)


def _rounded(problem: ProcrustesProblem, maps: Array, d: int) -> Array:
    xp = namespace_of(maps)
    S = problem.weighted_sum(maps)
    _, directions = xp.linalg.eigh(transpose(S) @ S)
    return polar_factor(maps[..., :d, :] @ directions[:, None, :, -d:])
