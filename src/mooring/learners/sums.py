"""Models of sums: least squares and linear discriminant analysis on the noisy sums S = Σ φφᵀ and T = Σ φyᵀ.

Legend: φ = (x, √c₀) the features of a row and the constant; y the row's outcomes; n, m the number and the mean of rows, from
the constant's row of S; C = Σ (x − m)(x − m)ᵀ; σ_S, σ_T the known scales of noise; D the number of features; λ the ridge.

The ridge is λ = s²/τ² + σ_S √(D/2); models from the general total use a different one. Here s² is the variance of the
residuals and τ² the variance of the weights under a normal prior. Their ratio maximises the evidence, the marginal
likelihood of T given S (`find_ridge`).

The known scale of the noise is also used as follows; nothing here needs rows.

- Eigenvalues of C below zero are set to zero.
- Means are shrunk unless they exceed their noise, because n m mᵀ would carry the square of that noise into C, and the shares
  of classes would carry it into every prediction.
- The squared lengths of class means are reduced by what noise adds to them. For three classes or more, they are then shrunk
  towards their mean, according to the variance that noise leaves.
- If features are many and weakly correlated, as those of tables are, the entries of C off the diagonal are shrunk by the
  share of their mean square that is noise. Products of two features of one column of the general total are not shrunk,
  since they follow from counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from mooring.errors import InputError
from mooring.learners.models import LinearFunction, Link, Model, ModelSpec, choose_classes
from mooring.typing import Indices, Labels, Matrix

_SMALLEST = 1e-9
_EXPLAINED = np.geomspace(1e-4, 1e3, 71)  # τ² tr C divided by the outcome's sum of squares
_LEAST_RESIDUAL = 0.05  # share of that sum
_LEAST_VALUE, _RIDGE_OF_NUMBERS = 1e-3, 1e-2
_DRAWS = 4000
_NOISE_LEFT = 0.3  # part of the noise that shrinking leaves; chosen on tables other than Adult, credit and diabetes


@dataclass(frozen=True, eq=False)
class Sums:
    """The total of everybody's sums, in the units of features and outcomes."""

    products: Matrix
    """S, with shape (D, D); the constant is the last feature."""
    outcomes: Matrix
    """T, with shape (D, K). K is 1 for two classes, coded ±1, and for a number; otherwise it is the number of classes, and
    class k is coded as e_k − 1/K."""
    constant_share: float
    """c₀."""
    n_classes: int
    """The number of classes; 0 if a number is predicted."""
    noise_scales: tuple[float, float] = (0.0, 0.0)
    """σ_S and σ_T of the total."""
    unit_length: bool = False
    """Whether every row has ‖φ‖ = 1, so that the trace of S also counts rows."""
    columns: Indices | None = None
    """The column that each feature but the constant belongs to, for the general total. Products of two features of one
    column follow from counts and have hardly any noise. None if all products have noise."""

    def __post_init__(self) -> None:
        D = self.products.shape[0]
        if self.products.shape != (D, D) or D < 2 or self.outcomes.shape[0] != D:
            raise InputError(
                "sums",
                expected="a square matrix of products, and outcomes with the same number of rows",
                got=f"shapes {self.products.shape} and {self.outcomes.shape}",
                cure="Take both from SumLayout.unpack.",
            )

    @property
    def n_rows(self) -> float:
        """An estimate of the number of rows, at least 1."""
        noise = self.noise_scales[0]
        return max(1.0, count_rows(self.products, self.constant_share, noise, unit_length=self.unit_length))

    @property
    def means(self) -> tuple[Matrix, Matrix]:
        """The means of x and y, each shrunk towards zero according to its noise."""
        unit = math.sqrt(self.constant_share) * self.n_rows
        m, y = self.products[:-1, -1] / unit, self.outcomes[-1] / unit
        noise_S, noise_T = (scale / unit for scale in self.noise_scales)
        return shrink_mean(m, noise_S**2 / 2), shrink_mean(y, noise_T**2)

    @property
    def class_shares(self) -> Matrix:
        """The share of each class, of shape (n_classes,), all positive; 1 if a number is predicted."""
        K, y = self.n_classes, self.means[1]
        if K == 0:
            return np.ones(1)
        shares = (1 + np.array([-y[0], y[0]])) / 2 if K == 2 else y + 1 / K
        shares = np.clip(shares, 1 / (self.n_rows + K), 1.0)
        return np.asarray(shares / shares.sum())

    @property
    def outcome_squares(self) -> Matrix:
        """Σ (y − ȳ)², with shape (K,). For classes it follows from their shares; for a number it is the largest possible."""
        y = self.means[1]
        if self.n_classes > 2:
            shares = np.clip(y + 1 / self.n_classes, 1 / (self.n_rows + self.n_classes), 1.0)
            return np.asarray(self.n_rows * shares * (1 - shares))
        return np.asarray(self.n_rows * np.maximum(1 - y**2, 1 / (self.n_rows + 1)))


@dataclass(frozen=True, eq=False)
class SumModel:
    """A linear model of features."""

    weights: Matrix
    """Weights with shape (D − 1, K)."""
    intercept: Matrix
    """Intercepts with shape (K,)."""
    n_classes: int
    """The number of classes; 0 if a number is predicted."""
    class_shares: Matrix
    """The share of each class, of shape (n_classes,); 1 if a number is predicted."""
    is_logistic: bool = False
    """Whether scores are log-odds or, for more than two classes, log-probabilities up to a constant per row. This holds for
    discriminant analysis. Noise shrinks the scores of least squares too far to read probabilities from them."""

    def scores(self, features: Matrix) -> Matrix:
        """Return the scores of rows of features with their constant, an array of shape (n, K)."""
        return np.asarray(features[:, :-1] @ self.weights + self.intercept)

    def predict(self, features: Matrix) -> Labels:
        """Return class codes, or numbers in [−1, 1]."""
        scores = self.scores(features)
        return np.clip(scores[:, 0], -1, 1) if self.n_classes == 0 else self.choose(scores)

    def choose(self, scores: Matrix) -> Indices:
        """Return the predicted class codes of rows with these scores."""
        return choose_classes(self._to_class_scores(scores), self.class_shares, are_probabilities=self.is_logistic)

    def class_scores(self, features: Matrix) -> Matrix | None:
        """Return scores of shape (n, n_classes) that rank rows by the probability of each class; None for a number."""
        return None if self.n_classes == 0 else self._to_class_scores(self.scores(features))

    def _to_class_scores(self, scores: Matrix) -> Matrix:
        scores = np.hstack([-scores, scores]) / 2 if self.n_classes == 2 else scores
        return np.asarray(softmax(scores, axis=1) if self.is_logistic else scores)

    def to_model(self, spec: ModelSpec) -> Model:
        """Return the model as arrays, for the features in `spec`; a number is predicted in the range `spec.bounds`."""
        weights, intercepts = self.weights, self.intercept
        if self.n_classes == 0:
            low, high = spec.bounds or (-1.0, 1.0)
            half = (high - low) / 2
            weights, intercepts = half * weights, half * intercepts + low + half
        elif self.n_classes == 2:  # there is only a score for the second class
            weights, intercepts = np.hstack([0 * weights, weights]), np.r_[0.0, intercepts]
        classes = np.arange(intercepts.size, dtype=np.int32)
        link: Link = "softmax" if self.is_logistic else "none"
        return Model(spec, LinearFunction(weights, intercepts), link, classes, self.class_shares)


def check_sums(sums: Sums, most_rows: float = math.inf) -> list[str]:
    """Return properties of a total that no `most_rows` rows can produce; invented rows with valid values are not detected.

    Every row has ‖φ‖ ≤ 1. Up to noise, the trace of S is therefore between zero and n, S has no eigenvalue below zero, the
    diagonal of S and n bound T, and no class has a negative number of rows.
    """
    S, n, D = sums.products, float(sums.products[-1, -1]) / sums.constant_share, len(sums.products)
    noise_S, noise_T = sums.noise_scales
    slack = 6 * noise_S * (1 / sums.constant_share + math.sqrt(D))
    problems = list[str]()
    if n - 6 * noise_S / sums.constant_share > most_rows:
        problems.append(f"it has about {n:,.0f} rows, and all participants together may add {most_rows:,.0f}")
    problems += check_products(S, sums.constant_share, noise_S)
    lengths = np.sqrt(np.maximum(np.diag(S) + 6 * noise_S, 0) * (max(n, 0) + slack))
    if (np.abs(sums.outcomes) > 1.01 * lengths[:, None] + 6 * noise_T + 1e-6).any():
        problems.append("outcomes and features are correlated more strongly than is possible")
    if sums.n_classes > 2:
        counts = sums.outcomes[-1] / math.sqrt(sums.constant_share) + n / sums.n_classes
        if counts.min() < -0.01 * max(n, 1) - 6 * noise_T / math.sqrt(sums.constant_share) - slack:
            problems.append("the number of rows of a class is below zero")
    return problems


def check_products(S: Matrix, constant_share: float, noise: float) -> list[str]:
    """Return properties of Σ φφᵀ, with noise of this scale, that no rows with ‖φ‖ ≤ 1 can have."""
    n, D, problems = float(S[-1, -1]) / constant_share, len(S), list[str]()
    slack = 6 * noise * (1 / constant_share + math.sqrt(D))
    if n < -slack or not -0.01 * n - slack <= n - float(np.trace(S)) <= max(n, 0) + slack:
        problems.append("the trace of the products is above the number of rows or below zero, which is impossible")
    if float(np.linalg.eigvalsh(S)[0]) < -1e-6 * max(n, 1) - 3 * noise * math.sqrt(D):
        problems.append("the products have an eigenvalue that is further below zero than noise explains")
    return problems


def count_rows(S: Matrix, constant_share: float, noise: float, *, unit_length: bool) -> float:
    """Return an estimate of the number of rows from the constant's sum and, if rows have length one, the trace of S."""
    count, c0 = float(S[-1, -1]) / constant_share, constant_share
    if unit_length and noise > 0:  # without noise, rounding makes the trace a little short
        weight = (1 / c0**2 - 1 / c0) / (len(S) + 1 / c0**2 - 2 / c0)
        count += weight * (float(np.trace(S)) - count)
    return count


def estimate_predicted_shares(model: SumModel, sums: Sums) -> Matrix:
    """Return the estimated share of rows for which a model predicts each class, of shape (n_classes,).

    The estimate assumes normal features with the mean and covariance of the sums, so that scores are normal, too.

    Examples
    --------
    >>> x = np.array([[0.5, 0.5], [-0.5, 0.5]])
    >>> sums = Sums(x.T @ x, x.T @ np.array([[1.0], [-1.0]]), 0.25, 2)
    >>> estimate_predicted_shares(fit_least_squares(sums), sums).round(1)
    array([0.5, 0.5])
    """
    centred, _, m, _ = centre_sums(sums, shrink=False)
    mean, covariance = m @ model.weights + model.intercept, model.weights.T @ centred @ model.weights / sums.n_rows
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    draws = np.random.default_rng(0).standard_normal((_DRAWS, values.size))  # the same for every model
    scores = mean + (draws * np.sqrt(np.maximum(values, 0))) @ vectors.T
    return np.asarray(np.bincount(model.choose(scores), minlength=model.n_classes) / _DRAWS)


def fit_least_squares(sums: Sums, *, shrink: bool = True) -> SumModel:
    """Fit ridge regression of the outcome.

    With `shrink`, correlations of features are shrunk according to their noise. Dense features do not need this.

    Examples
    --------
    >>> x = np.array([[0.5, 0.5], [-0.5, 0.5]])
    >>> model = fit_least_squares(Sums(x.T @ x, x.T @ np.array([[1.0], [-1.0]]), 0.25, 2))
    >>> model.predict(x)
    array([1, 0])
    """
    centred, crossed, m, y_mean = centre_sums(sums, shrink=shrink)
    weights = solve_ridge(centred, find_ridge(sums, centred, crossed), crossed)
    return SumModel(weights, y_mean - m @ weights, sums.n_classes, sums.class_shares)


def fit_discriminant(sums: Sums, *, shrink: bool = True) -> SumModel:
    """Fit linear discriminant analysis; `shrink` is as for `fit_least_squares`.

    For two classes, scores are the log-odds of the second; for more, they are log-probabilities up to a constant per row.
    """
    K = sums.n_classes
    if K < 2:
        raise InputError("sums", expected="sums of classes", got="sums of a number", cure="Use fit_least_squares.")
    centred, crossed, m, _ = centre_sums(sums, shrink=shrink)
    shares = sums.class_shares
    deviations = np.hstack([-crossed, crossed]) / 2 if K == 2 else crossed  # Σ (x − m) over each class
    means = deviations / (sums.n_rows * shares)
    between = (means * (sums.n_rows * shares)) @ means.T
    ridge = find_ridge(sums, centred, crossed)
    solved = sums.n_rows * solve_ridge(centred - between, ridge, np.hstack([means, np.eye(len(m))]))
    axes, inverse = solved[:, :K], solved[:, K:]
    variance = (sums.noise_scales[1] * (0.5 if K == 2 else 1.0) / (sums.n_rows * shares)) ** 2  # of a mean's entries
    lengths = _estimate_lengths(means, axes, inverse, variance)
    offsets = np.log(shares) - lengths / 2 - m @ axes
    if K == 2:
        return SumModel(axes[:, 1:] - axes[:, :1], offsets[1:] - offsets[:1], K, shares, is_logistic=True)
    return SumModel(axes, offsets, K, shares, is_logistic=True)


def _estimate_lengths(means: Matrix, axes: Matrix, inverse: Matrix, noise: Matrix) -> Matrix:
    """Return the squared lengths mₖᵀ A mₖ of class means whose entries have noise of variance `noise`, of shape (K,).

    A is `inverse`, and A mₖ are the `axes`. What noise adds is subtracted. For three classes or more, the lengths are then
    shrunk towards their mean (empirical Bayes). For two classes, both means follow from one vector.
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


def solve_ridge(products: Matrix, ridge: float, right: Matrix) -> Matrix:
    """Return (M₊ + λI)⁻¹ B, where M₊ is M with its eigenvalues below zero, which come from noise, set to zero.

    Examples
    --------
    >>> solve_ridge(np.diag([1.0, 3.0]), 1.0, np.array([[2.0], [4.0]])).ravel()
    array([1., 1.])
    """
    values, vectors = np.linalg.eigh((products + products.T) / 2)
    return np.asarray(vectors @ ((vectors.T @ right) / (np.maximum(values, 0) + ridge)[:, None]))


def find_ridge(sums: Sums, centred: Matrix, crossed: Matrix) -> float:
    """Return λ = s²/τ² + σ_S √(D/2), where s²/τ² maximises the evidence. C and c are what `centre_sums` returns.

    For a number, Σy² is not shared, and s²/τ² is 10⁻² n/D instead. For classes of the general total, λ is
    s²/τ² + √(σ_T²/τ² + 0.3 σ_S² D/2).

    Notes
    -----
    With weights w ~ N(0, τ²I), residuals of variance s² and noise on both sums, c is normal. Along an eigenvector of C with
    eigenvalue v its variance is τ²v² + s²v + κ, where κ = σ_T² + ½ σ_S² D τ², and s² follows from τ², since Σ(y − ȳ)² is
    known. The posterior mean would be v/(v² + (s²/τ²) v + κ/τ²) times c. But noise mixes eigenvectors, so that small
    eigenvalues also carry signal. The ridge therefore agrees with the posterior mean only at v = √(κ/τ²), where this factor
    is largest, and only for the noise of S.

    In the general total, features vary less, so that this λ would exceed most eigenvalues of C where the outcome is easy to
    predict. Its λ therefore includes the noise of T, and only that part of the noise of S that shrinking leaves.
    """
    noise_S, noise_T = sums.noise_scales
    D, n, total = len(sums.products), sums.n_rows, sums.outcome_squares
    best, ratio = -math.inf, _RIDGE_OF_NUMBERS * n / D
    noise = noise_S * math.sqrt(D / 2)
    if sums.n_classes:
        values, vectors = np.linalg.eigh((centred + centred.T) / 2)
        usable = (
            values > _LEAST_VALUE * n / D if noise_S == 0 else values > -math.inf
        )  # smaller ones are rounding errors
        values, squares = np.maximum(values[usable], 0)[:, None], (vectors[:, usable].T @ crossed) ** 2
        trace = max(float(values.sum()), _SMALLEST * n)
        for explained in _EXPLAINED:
            prior, residual = explained * float(total.mean()) / trace, max(1 - explained, _LEAST_RESIDUAL) * total / n
            variance = prior * values**2 + residual * values + noise_T**2 + noise_S**2 * D * prior / 2
            variance = np.maximum(variance, _SMALLEST)
            evidence = -float((np.log(variance) + squares / variance).sum())
            if evidence > best:
                best, ratio = evidence, float(residual.mean()) / prior
                if sums.columns is not None:
                    noise = math.sqrt(noise_T**2 / prior + _NOISE_LEFT * noise_S**2 * D / 2)
    return max(ratio, _SMALLEST * n) + noise


def centre_sums(sums: Sums, *, shrink: bool) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Return C, c = Σ (x − m)(y − ȳ)ᵀ, and the means m and ȳ; with `shrink`, correlations are shrunk."""
    n, (m, y_mean) = sums.n_rows, sums.means
    centred = sums.products[:-1, :-1] - n * np.outer(m, m)
    crossed = sums.outcomes[:-1] - n * np.outer(m, y_mean)
    variance = sums.noise_scales[0] ** 2 / 2
    if shrink and variance > 0:
        lengths = np.maximum(np.diag(centred), _SMALLEST)
        columns = np.arange(lengths.size) if sums.columns is None else sums.columns
        products, noisy = np.outer(lengths, lengths), columns[:, None] != columns
        mean_square = float((centred[noisy] ** 2 - variance).sum()) / max(float(products[noisy].sum()), _SMALLEST)
        signal = max(0.0, mean_square) * products
        centred = np.where(noisy, centred * signal / (signal + variance), centred)
    return centred, crossed, m, y_mean


def shrink_mean(mean: Matrix, variance: float) -> Matrix:
    """Return a mean whose entries have noise of this variance, shrunk towards zero (James and Stein).

    Noise alone, with d entries, has a squared length of d times the variance, with a relative standard deviation of √(2/d).
    The result is zero unless the mean's squared length is more than two standard deviations above that.
    """
    squared, d = float(mean @ mean), mean.size
    noise = d * variance * (1 + 2 * math.sqrt(2 / d)) if variance > 0 else 0.0
    return np.asarray(mean * (max(0.0, 1 - noise / squared) if squared > 0 else 0.0))
