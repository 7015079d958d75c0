"""What mooring's solver is measured against: the obvious way, and two libraries."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import array_api_compat
import numpy as np

Array = Any

_REACHABLE_GAP = 1e-5  # pymanopt's conjugate gradient does not get much below this, whatever it is asked for


@dataclass(frozen=True)
class Result:
    """One contender's answer to one problem."""

    seconds: float
    objective: float
    gap: float  # ‖Π(GR) − R‖_F over the whole stack
    iterations: int
    good: bool = True  # at least as good as what it is compared with


def loop(uploads: Array, *, max_iterations: int = 500, tolerance: float = 1e-7) -> Result:
    """The power method with one SVD a block in a Python loop, which is what the paper's authors run."""
    xp = array_api_compat.array_namespace(uploads)
    began = _now(uploads)
    centred = uploads - xp.mean(uploads, axis=1, keepdims=True)
    p, r, d = centred.shape
    side_by_side = xp.reshape(xp.permute_dims(centred, (1, 0, 2)), (r, p * d))
    _, _, Vt = xp.linalg.svd(side_by_side, full_matrices=False)
    R = xp.stack([_polar(xp, Vt[:d, i * d : (i + 1) * d].T) for i in range(p)])
    iterations = 0
    while iterations < max_iterations:
        iterations += 1
        S = side_by_side @ xp.reshape(R, (p * d, d))
        new = xp.stack([_polar(xp, centred[i].T @ S) for i in range(p)])
        step = float(xp.sqrt(xp.sum((new - R) ** 2)))
        R = new
        if step <= tolerance:
            break
    return Result(_now(uploads) - began, *judged(centred, R), iterations)


def conjugate_gradient(uploads: Array, *, gap: float) -> Result:
    """Pymanopt's conjugate gradient from the spectral start, until its fixed-point gap is as small as asked.

    Called with the gradient norm that should do, and with a smaller one if that turns out not to have been enough.
    """
    asked = max(gap, _REACHABLE_GAP)
    while True:
        result = _conjugate_gradient_down_to(uploads, asked)
        if result.gap <= max(gap, 3 * _REACHABLE_GAP) or asked < _REACHABLE_GAP / 10:
            return result
        asked /= 3


def _conjugate_gradient_down_to(uploads: Array, gap: float) -> Result:
    import pymanopt

    began = time.perf_counter()
    centred = uploads - uploads.mean(axis=1, keepdims=True)
    p, r, d = centred.shape
    side_by_side = np.ascontiguousarray(centred.transpose(1, 0, 2).reshape(r, p * d))
    _, _, Vt = np.linalg.svd(side_by_side, full_matrices=False)
    start = np.stack([_polar(np, Vt[:d, i * d : (i + 1) * d].T) for i in range(p)])
    manifold = pymanopt.manifolds.Stiefel(d, d, k=p)

    @pymanopt.function.numpy(manifold)  # type: ignore[untyped-decorator]
    def cost(R: Array) -> float:
        S = side_by_side @ R.reshape(p * d, d)
        return -float(np.vdot(S, S))

    @pymanopt.function.numpy(manifold)  # type: ignore[untyped-decorator]
    def gradient(R: Array) -> Array:
        return -2 * (side_by_side.T @ (side_by_side @ R.reshape(p * d, d))).reshape(p, d, d)

    curvature = abs(cost(start)) / (p * d)  # turns a fixed-point gap into a gradient norm, to first order
    optimizer = pymanopt.optimizers.ConjugateGradient(
        verbosity=0, min_gradient_norm=2 * gap * curvature, max_iterations=5000, max_time=60
    )
    found = optimizer.run(pymanopt.Problem(manifold, cost, euclidean_gradient=gradient), initial_point=start)
    return Result(time.perf_counter() - began, *judged(centred, found.point), int(found.iterations))


def qc_procrustes(uploads: Array) -> Result:
    """The `generalized` function of the qc-procrustes package, as it comes."""
    from procrustes import generalized

    began = time.perf_counter()
    centred = uploads - uploads.mean(axis=1, keepdims=True)
    aligned, _ = generalized(list(centred), check_finite=False)
    seconds = time.perf_counter() - began
    maps = np.stack([_polar(np, before.T @ after) for before, after in zip(centred, aligned, strict=True)])
    return Result(seconds, *judged(centred, maps), -1)


def mooring_solver(uploads: Array, *, objective: float, gap: float) -> Result:
    """mooring's default solver, until objective and fixed-point gap are both at least as good as asked.

    Called with the tolerance asked for, and with a tighter one if the objective should need it; the time is that of the
    call that met both, from raw uploads to finished maps.
    """
    import mooring

    tolerance = gap
    while True:
        began = _now(uploads)
        alignment = mooring.align(uploads, tolerance=tolerance)
        seconds = _now(uploads) - began
        found_gap = alignment.residual * max(1.0, (uploads.shape[0] * uploads.shape[2]) ** 0.5)
        good = alignment.objective >= objective * (1 - 1e-12) and found_gap <= gap
        if good or tolerance <= 1e-10:
            return Result(seconds, alignment.objective, found_gap, alignment.iterations, good)
        tolerance /= 10


def judged(centred: Array, R: Array) -> tuple[float, float]:
    """Objective and fixed-point gap of maps, computed the plain way."""
    xp = array_api_compat.array_namespace(centred)
    S = xp.sum(centred @ R, axis=0)
    rest = xp.stack([_polar(xp, block.T @ S) for block in centred])
    return float(xp.sum(S * S)), float(xp.sqrt(xp.sum((rest - R) ** 2)))


def _polar(xp: Any, matrix: Array) -> Array:
    U, _, Vt = xp.linalg.svd(matrix)
    return U @ Vt


def _now(array: Array) -> float:
    if array_api_compat.is_torch_array(array) and array.is_cuda:
        import torch

        torch.cuda.synchronize()
    return time.perf_counter()
