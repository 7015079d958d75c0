"""Models from sums alone: least squares and linear discriminant analysis on S = Σ φφᵀ and T = Σ φyᵀ, noise and all.

Legend: φ = (x, √c₀) the features of a row with their constant; n, m the number and mean of rows, read off the constant's row
of S; C = Σ (x − m)(x − m)ᵀ; σ_S, σ_T the known scales of the noise; D the number of features; λ the ridge.

The ridge is λ = s²/τ² + σ_S √(D/2): s² the variance of residuals and τ² that of weights under a normal prior, by evidence
(the marginal likelihood of T given S), and what the noise of S asks for (`find_ridge`).

Noise of known scale is taken into account in further ways, none of which looks at rows. Eigenvalues below zero are set to
zero. Means are shrunk unless they stand out of their noise: n m mᵀ would carry the square of it into C, and shares of
classes would carry it into every prediction. What noise adds to the lengths of class means is taken off, and they are shrunk
to a common length by the variance that is left. Where features are many and weakly correlated, as those of tables, entries
off the diagonal of C are shrunk by the share of their mean square that is noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from mooring.errors import InputError
from mooring.learners.models import LinearFunction, Model, ModelSpec
from mooring.learners.ridge import solve_ridge
from mooring.typing import Matrix

_SMALLEST = 1e-9
_EXPLAINED = np.geomspace(1e-4, 1e3, 71)  # τ² tr C over the outcome's sum of squares
_LEAST_RESIDUAL = 0.05  # of that sum
_LEAST_VALUE, _RIDGE_OF_NUMBERS = 1e-3, 1e-2


@dataclass(frozen=True, eq=False)
class Sums:
    """The total of everybody's sums, in the units of features and outcomes."""

    products: Matrix
    """S, of shape (D, D); the constant is the last feature."""
    outcomes: Matrix
    """T, of shape (D, K): K is 1 for two classes (±1) and for a number, else the number of classes (e_k − 1/K)."""
    constant_share: float
    """c₀."""
    n_classes: int
    """0 for a number."""
    noise_scales: tuple[float, float] = (0.0, 0.0)
    """σ_S and σ_T on the total."""
    unit_length: bool = False
    """Whether every row has ‖φ‖ = 1, so that the trace of S counts rows, too."""

    def __post_init__(self) -> None:
        D = self.products.shape[0]
        if self.products.shape != (D, D) or D < 2 or self.outcomes.shape[0] != D:
            raise InputError(
                "sums",
                expected="a square matrix of products, and outcomes of as many rows",
                got=f"shapes {self.products.shape} and {self.outcomes.shape}",
                cure="Take both from SumLayout.unpack.",
            )

    @property
    def n_rows(self) -> float:
        """About the number of rows, by the count of least variance: of the constant, the trace, or both; one at least."""
        count, c0 = float(self.products[-1, -1]) / self.constant_share, self.constant_share
        if (
            self.unit_length and self.noise_scales[0] > 0
        ):  # exact sums are of rounded features, a little shorter than one
            weight = (1 / c0**2 - 1 / c0) / (len(self.products) + 1 / c0**2 - 2 / c0)
            count += weight * (float(np.trace(self.products)) - count)
        return max(1.0, count)

    @property
    def means(self) -> tuple[Matrix, Matrix]:
        """The mean of x and the mean of y, each shrunk towards zero by what may be noise."""
        unit = math.sqrt(self.constant_share) * self.n_rows
        m, y = self.products[:-1, -1] / unit, self.outcomes[-1] / unit
        noise_S, noise_T = (scale / unit for scale in self.noise_scales)
        return _shrunk(m, noise_S**2 / 2), _shrunk(y, noise_T**2)

    @property
    def outcome_squares(self) -> Matrix:
        """Σ (y − ȳ)² of classes, by their shares, of shape (K,); of a number, the largest that its range allows."""
        y = self.means[1]
        if self.n_classes > 2:
            shares = np.clip(y + 1 / self.n_classes, 1 / (self.n_rows + self.n_classes), 1.0)
            return np.asarray(self.n_rows * shares * (1 - shares))
        return np.asarray(self.n_rows * np.maximum(1 - y**2, 1 / (self.n_rows + 1)))


@dataclass(frozen=True, eq=False)
class SumModel:
    """A linear model of features."""

    weights: Matrix
    """Of shape (D − 1, K)."""
    intercept: Matrix
    """Of shape (K,)."""
    n_classes: int
    """0 for a number."""
    is_logistic: bool = False
    """Whether scores are log-odds, or log-probabilities but for a constant a row: those of discriminant analysis are. Least
    squares has none: with noise, its scores are shrunk so far that no probability can be read off them."""

    def scores(self, features: Matrix) -> Matrix:
        """Return the scores of rows of features, constant included, of shape (n, K)."""
        return np.asarray(features[:, :-1] @ self.weights + self.intercept)

    def predict(self, features: Matrix) -> Matrix:
        """Return codes of classes, or numbers in [−1, 1]."""
        scores = self.scores(features)
        if self.n_classes == 0:
            return np.clip(scores[:, 0], -1, 1)
        return np.asarray(scores[:, 0] > 0, dtype=np.int64) if self.n_classes == 2 else scores.argmax(axis=1)

    def probabilities(self, features: Matrix) -> Matrix | None:
        """Return the probability of each class, of shape (n, classes); None where scores are no log-odds."""
        if not self.is_logistic:
            return None
        scores = self.scores(features)
        return np.asarray(softmax(np.hstack([0 * scores, scores]) if self.n_classes == 2 else scores, axis=1))

    def to_model(self, spec: ModelSpec) -> Model:
        """Return the model as arrays, of the features in `spec`; a number is predicted in its own range, `spec.bounds`."""
        weights, intercepts = self.weights, self.intercept
        if self.n_classes == 0:
            low, high = spec.bounds or (-1.0, 1.0)
            half = (high - low) / 2
            weights, intercepts = half * weights, half * intercepts + low + half
        elif self.n_classes == 2:  # the score is that of the second class alone
            weights, intercepts = np.hstack([0 * weights, weights]), np.r_[0.0, intercepts]
        classes = np.arange(intercepts.size, dtype=np.int32)
        return Model(spec, LinearFunction(weights, intercepts), "softmax" if self.is_logistic else "none", classes)


def check_sums(sums: Sums) -> list[str]:
    """Return what about a total is not plausible, in sentences; rows invented within the bounds are not noticed.

    Every row has ‖φ‖ ≤ 1, so the trace of S is between c₀ n and n; S has no eigenvalue below zero, and T is bounded by both,
    all up to noise.
    """
    S, n, D = sums.products, float(sums.products[-1, -1]) / sums.constant_share, len(sums.products)
    noise_S, noise_T = sums.noise_scales
    slack = 6 * noise_S * (1 / sums.constant_share + math.sqrt(D))
    problems = []
    if n < -slack or not -0.01 * n - slack <= n - float(np.trace(S)) <= max(n, 0) + slack:
        problems.append("The trace of the products is above the number of rows, or below zero, as no rows' can be.")
    if float(np.linalg.eigvalsh(S)[0]) < -1e-6 * max(n, 1) - 3 * noise_S * math.sqrt(D):
        problems.append("The products have an eigenvalue further below zero than their noise explains.")
    lengths = np.sqrt(np.maximum(np.diag(S) + 6 * noise_S, 0) * (max(n, 0) + slack))
    if (np.abs(sums.outcomes) > 1.01 * lengths[:, None] + 6 * noise_T + 1e-6).any():
        problems.append("Outcomes and features correlate more than any rows' can.")
    return problems


def fit_least_squares(sums: Sums, *, shrink: bool = True) -> SumModel:
    """Fit ridge regression of the outcome; `shrink` correlations by what noise makes of them, unless features are dense.

    Examples
    --------
    >>> x = np.array([[0.5, 0.5], [-0.5, 0.5]])
    >>> model = fit_least_squares(Sums(x.T @ x, x.T @ np.array([[1.0], [-1.0]]), 0.25, 2))
    >>> model.predict(x)
    array([1, 0])
    """
    centred, crossed, m, y_mean = centre_sums(sums, shrink=shrink)
    weights = solve_ridge(centred, find_ridge(sums, centred, crossed), crossed)
    return SumModel(weights, y_mean - m @ weights, sums.n_classes)


def fit_discriminant(sums: Sums, *, shrink: bool = True) -> SumModel:
    """Fit linear discriminant analysis; for two classes `scores` are the log-odds of the second.

    For more they are log-probabilities, but for a constant a row. `shrink` is as for `fit_least_squares`.
    """
    K = sums.n_classes
    if K < 2:
        raise InputError("sums", expected="of classes", got="of a number", cure="Use fit_least_squares.")
    centred, crossed, m, y_mean = centre_sums(sums, shrink=shrink)
    shares = (1 + np.array([-y_mean[0], y_mean[0]])) / 2 if K == 2 else y_mean + 1 / K
    shares = np.clip(shares, 1 / (sums.n_rows + K), 1.0)
    shares = shares / shares.sum()
    deviations = np.hstack([-crossed, crossed]) / 2 if K == 2 else crossed  # Σ (x − m) over each class
    means = deviations / (sums.n_rows * shares)
    between = (means * (sums.n_rows * shares)) @ means.T
    ridge = find_ridge(sums, centred, crossed)
    solved = sums.n_rows * solve_ridge(centred - between, ridge, np.hstack([means, np.eye(len(m))]))
    axes, inverse = solved[:, :K], solved[:, K:]
    noise = (sums.noise_scales[1] * (0.5 if K == 2 else 1.0) / (sums.n_rows * shares)) ** 2  # of a class mean's entries
    lengths = _estimate_lengths(means, axes, inverse, noise)
    offsets = np.log(shares) - lengths / 2 - m @ axes
    if K == 2:
        return SumModel(axes[:, 1:] - axes[:, :1], offsets[1:] - offsets[:1], K, is_logistic=True)
    return SumModel(axes, offsets, K, is_logistic=True)


def _estimate_lengths(means: Matrix, axes: Matrix, inverse: Matrix, noise: Matrix) -> Matrix:
    """mₖᵀ A mₖ of class means with noise of variance `noise` (K,) an entry, where A is `inverse` and A mₖ the `axes`.

    What noise adds is taken off; of three classes and more, lengths are shrunk to their mean by the variance that is left
    (empirical Bayes). Of two, both come of one vector, and nothing is there to shrink to.
    """
    lengths = np.einsum("ik,ik->k", means, axes) - noise * np.trace(inverse)
    if len(lengths) > 2 and noise.min() > 0:
        squares = float((inverse**2).sum())
        signal = np.maximum(0, np.einsum("ik,ik->k", axes, axes) - noise * squares)
        variance = 2 * noise**2 * squares + 4 * noise * signal
        mean = np.average(lengths, weights=1 / variance)
        spread = max(0.0, float(((lengths - mean) ** 2).sum() / (len(lengths) - 1) - variance.mean()))
        lengths = mean + (lengths - mean) * spread / (spread + variance)
    return np.asarray(np.maximum(0, lengths))


def find_ridge(sums: Sums, centred: Matrix, crossed: Matrix) -> float:
    """Return λ = s²/τ² + σ_S √(D/2), with s²/τ² by evidence; of a number, whose Σy² is not shared, with 10⁻² n/D instead.

    Parameters
    ----------
    centred, crossed : arrays
        C and c, as `centre_sums` gives them.

    Notes
    -----
    With weights w ~ N(0, τ²I), residuals of variance s² and noise on both sums, c is normal; along an eigenvector of C with
    eigenvalue v its variance is τ²v² + s²v + κ, κ = σ_T² + ½ σ_S² D τ², and s² follows from τ², since Σ(y − ȳ)² is known.
    The posterior mean would be v/(v² + (s²/τ²) v + κ/τ²) times c. But noise mixes eigenvectors, so that small eigenvalues
    hold signal, too: the ridge agrees with it where it is largest, at v = √(κ/τ²), for the noise of S alone.
    """
    noise_S, noise_T = sums.noise_scales
    D, n, total = len(sums.products), sums.n_rows, sums.outcome_squares
    best, ratio = -math.inf, _RIDGE_OF_NUMBERS * n / D
    if sums.n_classes:
        values, vectors = np.linalg.eigh((centred + centred.T) / 2)
        usable = values > _LEAST_VALUE * n / D if noise_S == 0 else values > -math.inf  # what is less is rounding
        values, squares = np.maximum(values[usable], 0)[:, None], (vectors[:, usable].T @ crossed) ** 2
        trace = max(float(values.sum()), _SMALLEST * n)
        for explained in _EXPLAINED:
            prior, residual = explained * float(total.mean()) / trace, max(1 - explained, _LEAST_RESIDUAL) * total / n
            variance = prior * values**2 + residual * values + noise_T**2 + noise_S**2 * D * prior / 2
            variance = np.maximum(variance, _SMALLEST)
            evidence = -float((np.log(variance) + squares / variance).sum())
            if evidence > best:
                best, ratio = evidence, float(residual.mean()) / prior
    return max(ratio, _SMALLEST * n) + noise_S * math.sqrt(D / 2)


def centre_sums(sums: Sums, *, shrink: bool) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return C and Σ (x − m)(y − ȳ)ᵀ, and the means m and ȳ; with `shrink`, correlations are shrunk."""
    n, (m, y_mean) = sums.n_rows, sums.means
    centred = sums.products[:-1, :-1] - n * np.outer(m, m)
    crossed = sums.outcomes[:-1] - n * np.outer(m, y_mean)
    variance = sums.noise_scales[0] ** 2 / 2
    if shrink and variance > 0:
        lengths = np.maximum(np.diag(centred), _SMALLEST)
        products, off = np.outer(lengths, lengths), ~np.eye(lengths.size, dtype=np.bool_)
        signal = max(0.0, float((centred[off] ** 2 - variance).sum() / products[off].sum())) * products
        centred = np.where(off, centred * signal / (signal + variance), centred)
    return centred, crossed, m, y_mean


def _shrunk(mean: Matrix, variance: float) -> Matrix:
    """Shrink a mean whose entries have noise of this variance (James and Stein).

    It is zero unless its square is two standard deviations above what noise gives: d times the variance, ± √(2/d) of it.
    """
    squared, d = float(mean @ mean), mean.size
    noise = d * variance * (1 + 2 * math.sqrt(2 / d)) if variance > 0 else 0.0
    return np.asarray(mean * (max(0.0, 1 - noise / squared) if squared > 0 else 0.0))
