"""Certificates of global optimality by duality.

Legend, besides that of `problem`: Λ = blkdiag(sym((GR)_i R_iᵀ)) and L = Λ − G, both pd × pd; C_i = B̄_i R_i;
P_i = sym(C_iᵀ S); δ a shift.

Every stack of orthogonal maps X satisfies tr(Xᵀ G X) = tr Λ − tr(Xᵀ L X), and tr Λ is the objective at R. So if L ⪰ −δ I,
no maps whatsoever have an objective above the present one by more than δ p d; with δ = 0, the present maps are globally
optimal. At a stationary point L has d zero eigenvalues, because a rotation common to all participants (the gauge) changes
nothing.

L is never formed. In the frame of the aligned blocks it is blkdiag(P_i) − CᵀC, and by the Schur complement

    L + δ I ≻ 0   if and only if   every P_i + δ I ≻ 0   and   I_r − Σ C_i (P_i + δ I)⁻¹ C_iᵀ ≻ 0.

The last matrix is r × r, whatever the number of participants. Cholesky factorisations of it and of every P_i + δ I are the
proof, to rounding. The Lanczos method overestimates the smallest eigenvalue and proves nothing; it is used only to report
that eigenvalue and to choose which shifts are tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from mooring.alignment.problem import ProcrustesProblem
from mooring.geometry.backend import are_positive_definite, device_of, identity_like, namespace_of, to_numpy, transpose
from mooring.typing import Array

CERTIFIED_GAP = 1e-7
"""Largest relative optimality gap at which maps count as globally optimal; the solvers' default tolerance is the same."""

_HOPELESS_GAP = 1e6
_LANCZOS_RESTARTS = 100
_NUMBERS_AT_ONCE = 2**23


@dataclass(frozen=True)
class Certificate:
    """The result of trying to prove that an alignment is globally optimal."""

    certified: bool
    """True if it is proved that no maps have an objective higher than this one by more than a relative 1e-7. False means
    that this is not proved: either a better alignment exists, or this method of proof cannot decide."""
    min_eigenvalue: float
    """Smallest eigenvalue of L outside the gauge, estimated by the Lanczos method; usually clearly negative where the
    proof fails. NaN if the Lanczos method did not converge."""
    optimality_gap: float
    """Proved bound on the relative difference between the global optimum and the objective. Infinite if nothing is
    proved."""

    def __str__(self) -> str:
        if self.certified:
            return "Certified: no other maps have a higher objective (to one part in ten million)."
        if math.isinf(self.optimality_gap):
            return "Not shown to be the global optimum, and there is no bound on how much better another alignment could be."
        bound = f"if there is a better one, it is better by at most {self.optimality_gap:.2%}"
        return f"Not shown to be the global optimum; {bound}."


def prove_optimal(problem: ProcrustesProblem, maps: Array, *, index: int = 0) -> Certificate:
    """Try to prove that maps of shape (p, d, d) are the global optimum of the batch's problem `index`."""
    dual = _Dual.at(problem, maps, index)
    smallest = _smallest_eigenvalue(dual)
    gap = _proved_gap(dual, smallest=smallest)
    return Certificate(
        certified=gap <= CERTIFIED_GAP, min_eigenvalue=smallest * float(problem.unit[index]) ** 2, optimality_gap=gap
    )


def seems_optimal(problem: ProcrustesProblem, maps: Array) -> npt.NDArray[np.bool_]:
    """Return for each problem whether L is positive definite outside the gauge; maps need only be roughly converged."""
    optimal = np.zeros(problem.n_problems, dtype=np.bool_)
    for index in range(problem.n_problems):
        dual = _Dual.at(problem, maps[index], index)
        if are_positive_definite(dual.P).all():
            S = dual.weighted_sum
            gauge = S @ namespace_of(S).linalg.solve(S.T @ S, S.T)
            optimal[index] = are_positive_definite(dual.schur_complement(dual.P, roughly=True) + gauge)
    return optimal


@dataclass(frozen=True)
class _Dual:
    """The dual quantities of one problem at its maps. C is computed for a few participants at a time."""

    blocks: Array  # D, of shape (r, p·d)
    maps: Array  # R, of shape (p, d, d)
    weighted_sum: Array  # S, of shape (r, d)
    P: Array  # of shape (p, d, d)

    @classmethod
    def at(cls, problem: ProcrustesProblem, maps: Array, index: int) -> _Dual:
        xp = namespace_of(maps)
        blocks = problem.blocks[index]
        p, d, _ = maps.shape
        S = blocks @ xp.reshape(maps, (p * d, d))
        M = transpose(maps) @ xp.reshape(blocks.T @ S, (p, d, d))
        return cls(blocks, maps, S, 0.5 * (M + transpose(M)))

    def schur_complement(self, P: Array, *, roughly: bool = False) -> Array:
        """Return I_r − Σ C_i P_i⁻¹ C_iᵀ, by linear solves or, if `roughly`, by explicit inverses, which are faster."""
        xp = namespace_of(P)
        n_rows = self.blocks.shape[0]
        p, d, _ = P.shape
        at_once = max(1, _NUMBERS_AT_ONCE // (n_rows * d))
        explained = xp.zeros((n_rows, n_rows), dtype=P.dtype, device=device_of(P))
        for start in range(0, p, at_once):
            some = slice(start, min(start + at_once, p))
            blocks = xp.reshape(self.blocks[:, some.start * d : some.stop * d], (n_rows, -1, d))
            C = xp.permute_dims(blocks, (1, 0, 2)) @ self.maps[some]
            solved = xp.linalg.inv(P[some]) @ transpose(C) if roughly else xp.linalg.solve(P[some], transpose(C))
            side_by_side = xp.reshape(xp.permute_dims(C, (1, 0, 2)), (n_rows, -1))
            explained += side_by_side @ xp.reshape(solved, (-1, n_rows))
        return identity_like(explained) - 0.5 * (explained + explained.T)


def _proved_gap(dual: _Dual, *, smallest: float) -> float:
    """Return the smallest relative gap, on a coarse grid, that factorisations prove; infinite if they prove none."""
    xp = namespace_of(dual.P)
    typical = float(xp.mean(xp.linalg.diagonal(dual.P)))  # δ over this is the relative gap
    if not typical > 0:
        return math.inf
    gap = CERTIFIED_GAP
    while not _proves(dual, shift=gap * typical):
        gap = max(1.5 * gap, -1.01 * smallest / typical)  # max ignores a NaN here
        if gap > _HOPELESS_GAP:
            return math.inf
    return gap


def _proves(dual: _Dual, *, shift: float) -> bool:
    """Return whether the shifted blocks and their Schur complement have Cholesky factors, which proves L ⪰ −shift I."""
    shifted = dual.P + shift * identity_like(dual.P)
    return bool(are_positive_definite(shifted).all()) and bool(are_positive_definite(dual.schur_complement(shifted)))


def _smallest_eigenvalue(dual: _Dual) -> float:
    """Return the smallest eigenvalue of L outside the gauge, by Lanczos on x ↦ P_i x_i − C_iᵀ Σ C_j x_j on the host."""
    D, R, P = to_numpy(dual.blocks), to_numpy(dual.maps), to_numpy(dual.P)
    p, d, _ = P.shape

    def without_gauge(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.asarray(x - x.mean(axis=0))

    def applied(flat: npt.NDArray[Any]) -> npt.NDArray[Any]:
        x = without_gauge(flat.reshape(p, d, 1))
        coupling = (D.T @ (D @ (R @ x).reshape(p * d))).reshape(p, d, 1)
        image = without_gauge(P @ x - np.swapaxes(R, 1, 2) @ coupling)
        return np.asarray(image + far * (flat.reshape(p, d, 1) - x)).ravel()

    far = float(np.max(np.trace(P, axis1=1, axis2=2)))  # shifts the gauge beyond every eigenvalue of P
    if p * d <= 2:
        return float(np.min(np.linalg.eigvalsh(np.stack([applied(column) for column in np.eye(p * d)]))))
    operator = LinearOperator((p * d, p * d), matvec=applied, dtype=P.dtype)
    start = without_gauge(np.random.default_rng(0).standard_normal((p, d))).ravel()
    try:
        eigenvalues = eigsh(
            operator, k=1, which="SA", v0=start, tol=1e-5, maxiter=_LANCZOS_RESTARTS, return_eigenvectors=False
        )
    except ArpackError:
        return math.nan  # the proof does not need this estimate
    return float(eigenvalues[0])
