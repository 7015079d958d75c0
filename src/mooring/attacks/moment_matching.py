"""How well a rigid map explains the target's class moments and its anchor representation, as one likelihood.

Legend: x = population rows, y = target rows, y = x O + Ψᵀ; m_k, S_k class means and covariances, n_k counts on the two
sides, N_k their sum; B = A O + 1 Ψᵀ + v W. If both sides' rows are drawn from the same Gaussian for each class, with
mean and covariance unknown, then the likelihood of (O, Ψ) with these nuisances maximised out is

    − ½ Σ_k N_k log det C_k(O, Ψ)  −  ‖B − A O − 1 Ψᵀ‖² / (2 v²),

where C_k is the covariance of the two sides' rows of class k, taken together, after the target's are mapped back. So
every class mean and covariance enters with the weight its own sampling variance gives it, and no weight is chosen by
hand. C_k is drawn towards the mean over classes, and that towards a multiple of I, the more so the fewer rows there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.attacks.class_moments import ClassMoments, beside, weighted_sum
from mooring.geometry.backend import Array, device_of, namespace_of, transposed
from mooring.geometry.rigid import RigidMap

_UNTRUSTED = 0.3
_FLATTEST = 1e-7
_ROUNDING = 1e-20


@dataclass(frozen=True, eq=False)
class AnchorEvidence:
    """What the noisy anchor says of the target's map.

    Attributes
    ----------
    cross : array of shape (h, h)
        Āᵀ B̄, with A orthonormal.
    mean : array of shape (h,)
        b, the uploaded anchor's mean: Ψ plus noise.
    noise_scale : float
        v, positive.
    n_rows : int
        r.
    """

    cross: Array
    mean: Array
    noise_scale: float
    n_rows: int


class MomentMatch:
    """The negative logarithm of the likelihood above, over (O, Ψ), in coordinates that suit a descent.

    Both sides are seen from their own centre and on their own principal axes, so that a good map is near a diagonal of
    signs. `shift` is Ψ in the target's coordinates when there is an anchor, and the mapped centre when there is none:
    either way its error and the map's are nearly independent. With `smoothing`, a multiple of the mean variance is added to
    every C_k, which mutes directions of little variance: a plainer landscape, to find the way in before the fine work.
    """

    def __init__(
        self,
        population: ClassMoments,
        target: ClassMoments,
        anchor: AnchorEvidence | None,
        *,
        smoothing: float = 0.0,
    ) -> None:
        xp = namespace_of(population.means, target.means)
        h = target.means.shape[1]
        self.n_components = h
        self.centre_x, self.centre_y = population.overall_mean, target.overall_mean
        self.axes_x, self.axes_y = _principal_axes(population), _principal_axes(target)
        self.population = population.seen_from(self.centre_x, self.axes_x)
        self.target = target.seen_from(self.centre_y, self.axes_y)
        n_c, n_t = population.counts, target.counts
        self._total = beside(n_c + n_t, target.means)
        self._share_c, self._share_t = (beside(n / (n_c + n_t), target.means) for n in (n_c, n_t))
        self.paired_counts = beside(n_c * n_t / (n_c + n_t), target.means)
        self._to_mean = beside(h / (h + n_c + n_t), target.means)
        size = float(xp.sum(self.centre_x * self.centre_x) + xp.sum(self.centre_y * self.centre_y)) / h
        self.ridge = _ridge(self.population, self.target, smoothing, size)
        self._identity = xp.eye(h, dtype=target.means.dtype, device=device_of(target.means))
        self.anchor = anchor
        if anchor is not None:
            precision = 1 / anchor.noise_scale**2
            self.pull = precision * (transposed(self.axes_x) @ anchor.cross @ self.axes_y)
            self._shift_precision = precision * anchor.n_rows
            self._seen_shift = (anchor.mean - self.centre_y) @ self.axes_y
            self._origin_x = self.centre_x @ self.axes_x
        else:
            self.pull = xp.zeros_like(self._identity)
            self._shift_precision = 0.0
            self._seen_shift = xp.zeros_like(self.target.means[0, :])
            self._origin_x = xp.zeros_like(self._seen_shift)
        self.curvature, self.shift_curvature = self._curvature()

    def first_shift(self) -> Array:
        """The shift to start from: what the anchor says, or that the two centres agree."""
        return self._seen_shift

    def value_and_gradient(self, O: Array, shift: Array) -> tuple[float, Array, Array]:
        """Return the value at (O, shift) and its gradients with respect to both."""
        xp = namespace_of(O)
        translation = shift + self._origin_x @ O
        moved_means = self.target.means - translation
        gaps = moved_means @ O.T - self.population.means
        OS = O @ self.target.covariances
        within = (
            self._share_c[:, None, None] * self.population.covariances
            + self._share_t[:, None, None] * (OS @ O.T)
            + (self._share_c * self._share_t)[:, None, None] * (gaps[:, :, None] * gaps[:, None, :])
        )
        share = self._total / xp.sum(self._total)
        mean = weighted_sum(share, within)
        keep = 1 - self._to_mean
        C = keep[:, None, None] * within + self._to_mean[:, None, None] * mean + self.ridge * self._identity
        L = xp.linalg.cholesky(C)
        value = float(xp.sum(self._total[:, None] * xp.log(xp.linalg.diagonal(L))))
        half = 0.5 * self._total[:, None, None] * xp.linalg.inv(C)  # ∂value/∂C_k
        D = keep[:, None, None] * half + share[:, None, None] * weighted_sum(self._to_mean, half)
        gradient = 2 * weighted_sum(self._share_t, D @ OS)
        pushes = 2 * (self._share_c * self._share_t)[:, None] * (D @ gaps[:, :, None])[:, :, 0]
        gradient = gradient + pushes.T @ moved_means
        shift_gradient = -xp.sum(pushes @ O, axis=0)
        gradient = gradient + self._origin_x[:, None] * shift_gradient[None, :]
        if self.anchor is not None:
            off = shift - self._seen_shift
            value += 0.5 * self._shift_precision * float(off @ off) - float(xp.sum(self.pull * O))
            gradient = gradient - self.pull
            shift_gradient = shift_gradient + self._shift_precision * off
        return value, gradient, shift_gradient

    def from_orthogonal(self, orthogonal: Array) -> Array:
        """O of a map, in these coordinates."""
        return self.axes_x.T @ orthogonal @ self.axes_y

    def to_map(self, O: Array, shift: Array) -> RigidMap:
        """The rigid map that (O, shift) stands for."""
        orthogonal = self.axes_x @ O @ self.axes_y.T
        if self.anchor is not None:
            return RigidMap(orthogonal, self.centre_y + shift @ self.axes_y.T)
        return RigidMap(orthogonal, self.centre_y + shift @ self.axes_y.T - self.centre_x @ orthogonal)

    def row_error(self, O: Array) -> Array:
        """Covariance of the rebuilt rows' error: the turn's variance, from the curvature, times the rows' spread."""
        turn_variance = (
            0.5 / (1 + self.curvature) * (1 - self._identity)
        )  # bounded: no turn is further off than a random one
        pivot = self.target.means - self._seen_shift if self.anchor is not None else self.target.means
        share = beside(self.target.counts / self.target.n_rows, pivot)
        xp = namespace_of(pivot)
        second = xp.linalg.diagonal(self.target.within) + share @ (pivot * pivot)
        spread = second @ turn_variance + 1 / self.shift_curvature
        axes = self.axes_x @ O
        return (axes * spread) @ axes.T

    def _curvature(self) -> tuple[Array, Array]:
        """Diagonal of the Hessian over turns of the target's axes, and over shifts, at a map that fits."""
        xp = namespace_of(self.target.means)
        share = self._total / xp.sum(self._total)
        S = (1 - self._to_mean)[:, None, None] * self.target.covariances
        S = S + self._to_mean[:, None, None] * weighted_sum(share, self.target.covariances)
        S = S + self.ridge * self._identity
        P = xp.linalg.inv(S)
        p, s = xp.linalg.diagonal(P), xp.linalg.diagonal(S)
        w = self.paired_counts
        crossed = (w[:, None] * p).T @ s
        turns = crossed + crossed.T - 2 * weighted_sum(w, P * S) - 2 * xp.sum(w)
        means = self.target.means - self._seen_shift
        lifted = (w[:, None] * means * means).T @ p
        H = 0.5 * (turns + lifted + lifted.T)
        shifts = w @ p + self._shift_precision
        if self.anchor is not None:
            H = H + 1 / self.anchor.noise_scale**2
        floor = _FLATTEST * float(xp.max(H))
        return xp.where(floor < H, H, floor * xp.ones_like(H)), shifts


def _principal_axes(moments: ClassMoments) -> Array:
    xp = namespace_of(moments.means)
    centred = moments.means - moments.overall_mean
    between = transposed(centred * beside(moments.counts / moments.n_rows, centred)[:, None]) @ centred
    return xp.linalg.eigh(moments.within + 0.1 * between)[1]


def _ridge(population: ClassMoments, target: ClassMoments, smoothing: float, size: float) -> float:
    """The multiple of I to add to covariances estimated from this many rows.

    Oracle-approximating shrinkage of the pooled covariance, and a share of the mean variance that grows with the number
    of components to a row: with few rows the smallest variances are the least trustworthy.
    """
    xp = namespace_of(population.means)
    h, n = population.means.shape[1], population.n_rows + target.n_rows
    S = population.within
    trace, square = float(xp.sum(xp.linalg.diagonal(S))), float(xp.sum(S * S))
    level = (trace + float(xp.sum(xp.linalg.diagonal(target.within)))) / (2 * h)
    if level <= _ROUNDING * size or level <= 0:  # rows that do not vary within classes at all
        return 1.0
    excess = square - trace * trace / h
    shrinkage = ((1 - 2 / h) * square + trace * trace) / ((n + 1 - 2 / h) * excess) if excess > 0 else 0.9
    shrinkage = min(0.9, shrinkage)
    return float(max(smoothing, shrinkage / (1 - shrinkage) + _UNTRUSTED * h / n) * level)
