"""The likelihood of a rigid map given the target's class moments and its anchor representation.

Legend: x = population rows, y = target rows, y = x O + Ψᵀ; m_k, S_k class means and covariances, n_k counts on the two
sides, N_k their sum; B = A O + 1 Ψᵀ + v W, W standard normal. If both sides' rows are drawn from the same Gaussian for each
class, with mean and covariance unknown, then the log-likelihood of (O, Ψ), maximised over these unknowns, is

    − ½ Σ_k N_k log det C_k(O, Ψ)  −  ‖B − A O − 1 Ψᵀ‖² / (2 v²),

where C_k is the covariance of both sides' rows of class k together, after the target's rows are mapped back. Every class
mean and covariance is thereby weighted by its sampling variance, and no weight is chosen by hand. C_k is shrunk to the
mean over classes, which is shrunk to a multiple of I; both are shrunk more strongly if there are fewer rows.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.attacks.class_moments import ClassMoments, weighted_sum
from mooring.geometry.backend import (
    cholesky,
    device_of,
    identity_like,
    indices_beside,
    like,
    namespace_of,
    transpose,
    vector_norms,
)
from mooring.geometry.orthogonal import cayley
from mooring.geometry.riemannian_lbfgs import Evaluation, Points
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array

_UNTRUSTED = 0.3
_FLATTEST = 1e-7
_ROUNDING = 1e-20
_OF_A_DRAW = ("pull", "_precision", "_shift_precision", "anchor_shift", "turn_curvature", "shift_curvature")


@dataclass(frozen=True, eq=False)
class AnchorEvidence:
    """The information of n draws of the noisy anchor about the target's map."""

    cross: Array
    """Āᵀ B̄ with orthonormal A, of shape (n, h, h)."""
    mean: Array
    """b, the uploaded anchor's mean, which is Ψ plus noise; of shape (n, h)."""
    noise_scale: npt.NDArray[np.float64]
    """v, positive, of shape (n,)."""
    n_rows: int
    """r, the number of anchor rows."""


class MomentMatch:
    """The negative log-likelihood of (O, Ψ), for each draw of the anchor's evidence.

    It is an `Objective` of the Riemannian optimiser; a point is (O, shift), of shapes (n, h, h) and (n, h). Both sides are
    centred and expressed in their own principal axes, so that a good map is close to a diagonal of signs. With an anchor,
    `shift` is Ψ in the target's coordinates; without, it is the image of the population's centre. In both cases the error of
    `shift` is nearly independent of that of O. `smoothing` adds a multiple of the mean variance to every C_k, which leaves
    fewer local optima.
    """

    def __init__(
        self, population: ClassMoments, target: ClassMoments, anchor: AnchorEvidence | None, *, smoothing: float = 0.0
    ) -> None:
        xp = namespace_of(population.means, target.means)
        h = target.means.shape[1]
        self.n_components = h
        self.centre_x, self.centre_y = population.overall_mean, target.overall_mean
        self.axes_x, self.axes_y = _principal_axes(population), _principal_axes(target)
        self.population = population.seen_from(self.centre_x, self.axes_x)
        self.target = target.seen_from(self.centre_y, self.axes_y)
        n_c, n_t = population.counts, target.counts
        self._total = like(n_c + n_t, target.means)
        self._share_c, self._share_t = (like(n / (n_c + n_t), target.means) for n in (n_c, n_t))
        self.paired_counts = like(n_c * n_t / (n_c + n_t), target.means)
        self._share_both = self._share_c * self._share_t
        self._known_part = self._share_c[:, None, None] * self.population.covariances
        self._to_mean = like(h / (h + n_c + n_t), target.means)
        self._identity = xp.eye(h, dtype=target.means.dtype, device=device_of(target.means))
        self.has_anchor = anchor is not None
        if anchor is not None:
            self._precision = like(anchor.noise_scale**-2.0, target.means)
            self.pull = self._precision[:, None, None] * (transpose(self.axes_x) @ anchor.cross @ self.axes_y)
            self._shift_precision = self._precision * anchor.n_rows
            self.anchor_shift = (anchor.mean - self.centre_y) @ self.axes_y
            self._origin_x = self.centre_x @ self.axes_x
        else:
            self.pull = xp.zeros_like(self._identity)[None, ...]
            self._shift_precision = self._precision = xp.zeros_like(self._total[:1])
            self.anchor_shift = xp.zeros_like(self.target.means[:1, :])
            self._origin_x = xp.zeros_like(self.centre_x)
        self._smooth(smoothing)

    def _smooth(self, smoothing: float) -> None:
        xp = namespace_of(self.pull)
        size = float(xp.sum(self.centre_x * self.centre_x) + xp.sum(self.centre_y * self.centre_y)) / self.n_components
        self.ridge = _ridge(self.population, self.target, smoothing, size)
        self.turn_curvature, self.shift_curvature = self._curvatures(self.target.covariances)

    def smoothed(self, smoothing: float) -> MomentMatch:
        """Return the same match with a different smoothing."""
        other = copy.copy(self)
        other._smooth(smoothing)
        return other

    @property
    def n_draws(self) -> int:
        """The number of draws of the anchor's evidence; 1 without an anchor."""
        return int(self.pull.shape[0])

    def select(self, problems: npt.NDArray[np.intp]) -> MomentMatch:
        """Return the match of some of the draws."""
        if np.array_equal(problems, np.arange(self.n_draws)):
            return self
        other, rows = copy.copy(self), indices_beside(problems, self.pull)
        for name in _OF_A_DRAW:
            setattr(other, name, getattr(self, name)[rows, ...])
        return other

    def evaluate(self, points: Points) -> Evaluation:
        """Return values, and gradients over skew turns and over shifts."""
        O, shift = points
        xp = namespace_of(O)
        values, gradient, shift_gradient = self.values_and_gradients(O, shift)
        product = transpose(O) @ gradient
        turns = xp.reshape(0.5 * (product - transpose(product)), (shift.shape[0], -1))
        return Evaluation(values, xp.concat([turns, shift_gradient], axis=1))

    def curvature(self, evaluation: Evaluation) -> Array:
        """Return the diagonal of the Hessian over turns and shifts at a map that fits."""
        xp = namespace_of(self.pull)
        return xp.concat([xp.reshape(self.turn_curvature, (self.n_draws, -1)), self.shift_curvature], axis=1)

    def precondition(self, curvature: Array, tangents: Array) -> Array:
        """Return tangent vectors divided by the curvature."""
        return tangents / curvature

    def retract(self, points: Points, tangents: Array, *, exactly: bool) -> Points:
        """Return O moved by the Cayley transform, which stays on the group, and the moved shift."""
        O, shift = points
        h = self.n_components
        return O @ cayley(self._turns(tangents)), shift + tangents[:, h * h :]

    def limit_turns(self, tangents: Array, largest: Array) -> Array:
        """Return tangent vectors, whose turn and shift are shortened by one factor if the turn exceeds `largest`.

        The size of a turn is the length of its longest row.
        """
        xp = namespace_of(tangents)
        size = xp.max(vector_norms(self._turns(tangents)), axis=-1)
        most = xp.astype(largest, size.dtype, copy=False)
        return tangents * (most / xp.maximum(size, most))[:, None]

    def _turns(self, tangents: Array) -> Array:
        h = self.n_components
        return namespace_of(tangents).reshape(tangents[:, : h * h], (-1, h, h))

    def values_and_gradients(self, O: Array, shift: Array) -> tuple[Array, Array, Array]:
        """Return the values at all (O, shift) and their gradients with respect to both."""
        xp = namespace_of(O)
        translation = shift + self._origin_x @ O
        moved_means = self.target.means - translation[:, None, :]
        gaps = moved_means @ transpose(O) - self.population.means
        OS = O[:, None, :, :] @ self.target.covariances
        within = self._known_part + self._share_t[:, None, None] * (OS @ transpose(O)[:, None, :, :])
        within = within + (gaps * self._share_both[:, None])[..., :, None] * gaps[..., None, :]
        share = self._total / xp.sum(self._total)
        mean = weighted_sum(share, within)
        keep = 1 - self._to_mean
        C = keep[:, None, None] * within + self._to_mean[:, None, None] * mean[:, None, :, :]
        C = C + self.ridge * self._identity
        L = cholesky(C)
        values = xp.sum(self._total[:, None] * xp.log(xp.linalg.diagonal(L)), axis=(-2, -1))
        half = 0.5 * self._total[:, None, None] * _inverse(C, L)  # ∂value/∂C_k
        D = keep[:, None, None] * half + share[:, None, None] * weighted_sum(self._to_mean, half)[:, None, :, :]
        gradient = 2 * weighted_sum(self._share_t, D @ OS)
        pushes = 2 * self._share_both[:, None] * (D @ gaps[..., :, None])[..., 0]
        gradient = gradient + transpose(pushes) @ moved_means
        shift_gradient = -xp.sum(pushes @ O, axis=-2)
        gradient = gradient + self._origin_x[:, None] * shift_gradient[:, None, :]
        if self.has_anchor:
            off = shift - self.anchor_shift
            values = values + 0.5 * self._shift_precision * xp.sum(off * off, axis=-1)
            values = values - xp.sum(self.pull * O, axis=(-2, -1))
            gradient = gradient - self.pull
            shift_gradient = shift_gradient + self._shift_precision[:, None] * off
        return values, gradient, shift_gradient

    def from_orthogonal(self, orthogonal: Array) -> Array:
        """Return the orthogonal part of a map in these coordinates."""
        return self.axes_x.T @ orthogonal @ self.axes_y

    def to_map(self, O: Array, shift: Array) -> RigidMap:
        """Return the rigid map of one (O, shift), of shapes (h, h) and (h,)."""
        orthogonal = self.axes_x @ O @ self.axes_y.T
        if self.has_anchor:
            return RigidMap(orthogonal, self.centre_y + shift @ self.axes_y.T)
        return RigidMap(orthogonal, self.centre_y + shift @ self.axes_y.T - self.centre_x @ orthogonal)

    def row_error(self, O: Array) -> Array:
        """Return the covariance of the rebuilt rows' error for every draw.

        It is the turn's variance times the rows' spread, plus the shift's variance. The turn's variance follows from the
        curvature at the pooled covariances of both sides, and is bounded by that of a random map. The covariances of the
        target's few rows alone have directions of almost no variance, which would seem to determine the turn.
        """
        known = transpose(O)[..., None, :, :] @ self.population.covariances @ O[..., None, :, :]
        share_c, share_t = (share[:, None, None] for share in (self._share_c, self._share_t))
        pooled = share_c * known + share_t * self.target.covariances
        turn_curvature, shift_curvature = self._curvatures(pooled)
        turn_variance = 0.5 / (1 + turn_curvature) * (1 - self._identity)
        pivot = self.target.means - self.anchor_shift[:, None, :]
        share = like(self.target.counts / self.target.n_rows, pivot)
        xp = namespace_of(pivot)
        second = xp.linalg.diagonal(self.target.within) + share @ (pivot * pivot)
        spread = (second[..., None, :] @ turn_variance)[..., 0, :] + 1 / shift_curvature
        axes = self.axes_x @ O
        return (axes * spread[..., None, :]) @ transpose(axes)

    def _curvatures(self, covariances: Array) -> tuple[Array, Array]:
        """Return the diagonal of the Hessian over turns of the target's axes, and over shifts, at a map that fits.

        `covariances` are those of the classes in the target's axes, of shape (..., K, h, h).
        """
        xp = namespace_of(self.target.means)
        share = self._total / xp.sum(self._total)
        S = (1 - self._to_mean)[:, None, None] * covariances
        S = S + self._to_mean[:, None, None] * weighted_sum(share, covariances)[..., None, :, :]
        S = S + self.ridge * self._identity
        P = xp.linalg.inv(S)
        p, s = xp.linalg.diagonal(P), xp.linalg.diagonal(S)
        w = self.paired_counts
        crossed = transpose(w[:, None] * p) @ s
        turns = crossed + transpose(crossed) - 2 * weighted_sum(w, P * S) - 2 * xp.sum(w)
        means = self.target.means - self.anchor_shift[:, None, :]
        lifted = transpose(w[:, None] * means * means) @ p
        H = 0.5 * (turns + lifted + transpose(lifted)) + self._precision[..., None, None]
        shifts = xp.sum(w[:, None] * p, axis=-2) + self._shift_precision[..., None]
        return xp.maximum(H, _FLATTEST * xp.max(H, axis=(-2, -1), keepdims=True)), shifts


def _inverse(matrices: Array, factors: Array) -> Array:
    """Return inverses of positive definite matrices; torch uses their known Cholesky factors."""
    xp = namespace_of(matrices)
    solve_triangular = getattr(xp.linalg, "solve_triangular", None)
    if solve_triangular is None:
        return xp.linalg.inv(matrices)
    rest = solve_triangular(factors, xp.broadcast_to(identity_like(factors), factors.shape), upper=False)
    return transpose(rest) @ rest


def _principal_axes(moments: ClassMoments) -> Array:
    xp = namespace_of(moments.means)
    centred = moments.means - moments.overall_mean
    between = transpose(centred * like(moments.counts / moments.n_rows, centred)[:, None]) @ centred
    return xp.linalg.eigh(moments.within + 0.1 * between)[1]


def _ridge(population: ClassMoments, target: ClassMoments, smoothing: float, size: float) -> float:
    """Return the multiple of I to add to covariances estimated from this many rows.

    The multiple combines oracle-approximating shrinkage of the pooled covariance with a share of the mean variance that
    grows with the number of components per row, because small variances are unreliable with few rows. If rows do not vary
    within classes, the multiple is 1.
    """
    xp = namespace_of(population.means)
    h, n = population.means.shape[1], population.n_rows + target.n_rows
    S = population.within
    trace, square = float(xp.sum(xp.linalg.diagonal(S))), float(xp.sum(S * S))
    level = (trace + float(xp.sum(xp.linalg.diagonal(target.within)))) / (2 * h)
    if level <= _ROUNDING * size or level <= 0:  # rows do not vary within classes
        return 1.0
    excess = square - trace * trace / h
    shrinkage = ((1 - 2 / h) * square + trace * trace) / ((n + 1 - 2 / h) * excess) if excess > 0 else np.inf
    shrinkage = min(0.9, shrinkage)
    return float(max(smoothing, shrinkage / (1 - shrinkage) + _UNTRUSTED * h / n) * level)
