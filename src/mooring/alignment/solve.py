"""The public functions `align` and `align_batch`: they check uploads, run a solver and return alignments."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from mooring.alignment.accelerated import solve_accelerated
from mooring.alignment.power_method import solve_by_power_method, spectral_maps
from mooring.alignment.problem import ProcrustesProblem, make_batch, make_problem, require_batch
from mooring.alignment.result import Alignment, BatchSolution, Termination
from mooring.errors import InputError, require_choice
from mooring.geometry.orthogonal import reorthogonalise
from mooring.typing import Array

_NUMBERS_AT_ONCE = 2**27  # a gigabyte of uploads keeps a large GPU busy while working memory stays bounded

Solver: TypeAlias = Literal["accelerated", "gpm", "spectral"]


def align(
    anchor_representations: Sequence[Array] | Array,
    *,
    solver: Solver = "accelerated",
    max_iterations: int = 500,
    tolerance: float = 1e-7,
    certify: bool = False,
) -> Alignment:
    """Solve the generalized orthogonal Procrustes problem for one set of uploads.

    Parameters
    ----------
    anchor_representations : sequence of p arrays of shape (r, d), or one array of shape (p, r, d)
        The uploaded anchor representations, with their noise. NumPy or torch arrays; torch arrays stay on their device.
    solver : {"accelerated", "gpm", "spectral"}, default "accelerated"
        The default solver, the paper's power method, or the spectral start alone.
    max_iterations : int, default 500
        Maximum number of iterations; the solver then returns the maps that it has.
    tolerance : float, default 1e-7
        Largest step ‖Π(GR) − R‖_F, over the whole stack, at which the maps count as converged.
    certify : bool, default False
        Whether to try to prove global optimality. A successful proof takes about as long as ten iterations, a failed one a
        few times as long. Proofs run one at a time, partly on the host.

    Returns
    -------
    Alignment
        Not converging is not an error: see `converged` and `termination`.

    Examples
    --------
    >>> import numpy as np
    >>> from mooring import RigidMap, make_anchor
    >>> rng = np.random.default_rng(0)
    >>> anchor = make_anchor(20, 4, rng=rng)
    >>> secrets = [RigidMap.sample(4, rng=rng) for _ in range(3)]
    >>> alignment = align([secret.apply(anchor) for secret in secrets], certify=True)
    >>> rows = rng.standard_normal((5, 4))
    >>> aligned = [map.apply(secret.apply(rows)) for map, secret in zip(alignment.maps, secrets)]
    >>> bool(np.allclose(aligned[0], aligned[1])), alignment.certificate.certified
    (True, True)
    """
    problem = make_problem(anchor_representations)
    return _solved(problem, solver=solver, max_iterations=max_iterations, tolerance=tolerance, certify=certify)[0]


def align_batch(
    anchor_representations: Array,
    *,
    solver: Solver = "accelerated",
    max_iterations: int = 500,
    tolerance: float = 1e-7,
    certify: bool = False,
) -> tuple[Alignment, ...]:
    """Solve many problems of one shape together, which is faster on a GPU than solving them in turn.

    Parameters
    ----------
    anchor_representations : array of shape (n_problems, p, r, d)
    solver, max_iterations, tolerance, certify
        As for `align`.
    """
    require_batch(anchor_representations)
    n_problems, *shape = anchor_representations.shape
    at_once = max(1, _NUMBERS_AT_ONCE // math.prod(shape))
    solved: list[Alignment] = []
    for start in range(0, n_problems, at_once):
        problem = make_batch(anchor_representations[start : start + at_once])
        solved += _solved(problem, solver=solver, max_iterations=max_iterations, tolerance=tolerance, certify=certify)
    return tuple(solved)


def _solved(
    problem: ProcrustesProblem, *, solver: str, max_iterations: int, tolerance: float, certify: bool
) -> tuple[Alignment, ...]:
    require_choice("solver", solver, _SOLVERS, cure="'accelerated' is the default.")
    if max_iterations < 0:
        raise InputError("max_iterations", expected="zero or more", got=str(max_iterations), cure="500 is the default.")
    if not tolerance > 0:
        raise InputError("tolerance", expected="a positive number", got=str(tolerance), cure="1e-7 is the default.")
    solution = _SOLVERS[solver](problem, max_iterations=max_iterations, tolerance=tolerance)
    exact = replace(solution, maps=reorthogonalise(solution.maps, tolerance=1e-15))
    return exact.alignments(problem, tolerance=tolerance, certify=certify)


def _spectral_only(problem: ProcrustesProblem, *, max_iterations: int, tolerance: float) -> BatchSolution:
    return BatchSolution.in_one_step(spectral_maps(problem), Termination.SPECTRAL_ONLY)


_SOLVERS: dict[str, Callable[..., BatchSolution]] = {
    "accelerated": solve_accelerated,
    "gpm": solve_by_power_method,
    "spectral": _spectral_only,
}
