"""Models from sums alone: least squares and linear discriminant analysis on S = Σ φφᵀ and T = Σ φyᵀ, noise and all.

Legend: φ = (x, √c₀) the features of a row with their constant; n, m the number and mean of rows, read off the constant's row
of S; C = Σ (x − m)(x − m)ᵀ; σ_S, σ_T the known scales of the noise; D the number of features; λ the ridge.

Noise of known scale is taken into account in five ways, none of which looks at data: eigenvalues below zero are set to
zero; the ridge grows with the spectral norm of the noise, λ = σ_S √D + 10⁻³ n/D; means are shrunk (James and Stein), since
n m mᵀ would carry the square of their noise into C; what noise adds to the lengths of class means is taken off them, since
it would hold down rare classes; and, where features are many and weakly correlated, as those of tables, entries off the
diagonal of C are shrunk by the share of their mean square that is noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from mooring.errors import InputError
from mooring.typing import Matrix

_RIDGE = 1e-3
_SMALLEST = 1e-9


@dataclass(frozen=True, eq=False)
class Sums:
    """The total of everybody's sums, in the units of features and outcomes.

    Attributes
    ----------
    products : array of shape (D, D)
        S; the constant is the last feature.
    outcomes : array of shape (D, K)
        T: K is 1 for two classes (±1) and for a number, else the number of classes (e_k − 1/K).
    constant_share : float
        c₀.
    n_classes : int
        0 for a number.
    noise_scales : tuple of float, default (0, 0)
        σ_S and σ_T on the total.
    """

    products: Matrix
    outcomes: Matrix
    constant_share: float
    n_classes: int
    noise_scales: tuple[float, float] = (0.0, 0.0)

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
        """About the number of rows: one at least."""
        return max(1.0, float(self.products[-1, -1]) / self.constant_share)

    @property
    def means(self) -> tuple[Matrix, Matrix]:
        """The mean of x and the mean of y, each shrunk towards zero by the share of its square that is noise."""
        unit = math.sqrt(self.constant_share) * self.n_rows
        m, y = self.products[:-1, -1] / unit, self.outcomes[-1] / unit
        noise_S, noise_T = (scale / unit for scale in self.noise_scales)
        return _shrunk(m, m.size * noise_S**2 / 2), _shrunk(y, y.size * noise_T**2)


@dataclass(frozen=True, eq=False)
class SumModel:
    """A linear model of features.

    Attributes
    ----------
    weights : array of shape (D − 1, K)
    intercept : array of shape (K,)
    n_classes : int
        0 for a number.
    is_logistic : bool
        Whether scores are log-odds, or log-probabilities but for a constant a row: those of discriminant analysis are. Least
        squares has none: with noise, its scores are shrunk so far that no probability can be read off them.
    """

    weights: Matrix
    intercept: Matrix
    n_classes: int
    is_logistic: bool = False

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


def check_sums(sums: Sums) -> list[str]:
    """Return what about a total is not plausible, in sentences; rows invented within the bounds are not noticed.

    Every row has ‖φ‖ ≤ 1, so the trace of S is between c₀ n and n; S has no eigenvalue below zero, and T is bounded by both,
    all up to noise.
    """
    S, n, D = sums.products, float(sums.products[-1, -1]) / sums.constant_share, len(sums.products)
    noise_S, noise_T = sums.noise_scales
    slack = 6 * noise_S * (1 / sums.constant_share + math.sqrt(D))
    found = []
    if n < -slack or not -0.01 * n - slack <= n - float(np.trace(S)) <= max(n, 0) + slack:
        found.append("The trace of the products is above the number of rows, or below zero, as no rows' can be.")
    if float(np.linalg.eigvalsh(S)[0]) < -1e-6 * max(n, 1) - 3 * noise_S * math.sqrt(D):
        found.append("The products have an eigenvalue further below zero than their noise explains.")
    lengths = np.sqrt(np.maximum(np.diag(S) + 6 * noise_S, 0) * (max(n, 0) + slack))
    if (np.abs(sums.outcomes) > 1.01 * lengths[:, None] + 6 * noise_T + 1e-6).any():
        found.append("Outcomes and features correlate more than any rows' can.")
    return found


def fit_least_squares(sums: Sums, *, shrink: bool = True) -> SumModel:
    """Fit ridge regression of the outcome.

    Parameters
    ----------
    sums : Sums
    shrink : bool, default True
        Whether to shrink correlations by what noise makes of them; False for features that are dense and decorrelated.

    Examples
    --------
    >>> x = np.array([[0.5, 0.5], [-0.5, 0.5]])
    >>> model = fit_least_squares(Sums(x.T @ x, x.T @ np.array([[1.0], [-1.0]]), 0.25, 2))
    >>> model.predict(x)
    array([1, 0])
    """
    centred, crossed, m, y_mean = centre_sums(sums, shrink=shrink)
    weights = _solve(centred, find_ridge(sums), crossed)
    return SumModel(weights, y_mean - m @ weights, sums.n_classes)


def fit_discriminant(sums: Sums, *, shrink: bool = True) -> SumModel:
    """Fit linear discriminant analysis; for two classes `scores` are the log-odds of the second.

    For more they are log-probabilities, but for a constant a row.

    Parameters
    ----------
    sums : Sums
        Of classes.
    shrink : bool, default True
        As for `fit_least_squares`.
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
    solved = sums.n_rows * _solve(centred - between, find_ridge(sums), np.hstack([means, np.eye(len(m))]))
    axes, inverse = solved[:, :K], solved[:, K:]
    noise = (sums.noise_scales[1] * (0.5 if K == 2 else 1.0) / (sums.n_rows * shares)) ** 2  # of a class mean's entries
    lengths = np.maximum(0, np.einsum("ik,ik->k", means, axes) - noise * np.trace(inverse))
    offsets = np.log(shares) - lengths / 2 - m @ axes
    if K == 2:
        return SumModel(axes[:, 1:] - axes[:, :1], offsets[1:] - offsets[:1], K, is_logistic=True)
    return SumModel(axes, offsets, K, is_logistic=True)


def find_ridge(sums: Sums) -> float:
    """Return λ."""
    D = sums.products.shape[0]
    return float(sums.noise_scales[0] * math.sqrt(D) + _RIDGE * sums.n_rows / D)


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


def _shrunk(mean: Matrix, noise: float) -> Matrix:
    """Take the mean square of the noise off a mean's square."""
    squared = float(mean @ mean)
    return np.asarray(mean * (max(0.0, 1 - noise / squared) if squared > 0 else 0.0))


def _solve(matrix: Matrix, ridge: float, right: Matrix) -> Matrix:
    """(M₊ + λI)⁻¹ B, with the eigenvalues of M below zero set to zero."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray(vectors @ ((vectors.T @ right) / (np.maximum(values, 0) + ridge)[:, None]))
