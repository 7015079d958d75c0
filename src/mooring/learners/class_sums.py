"""Models of sums by class: regularised discriminant analysis on W_k = Σ φφᵀ over the rows of each class.

Legend: φ = (x, √c₀) the features of a row and the constant; n_k, m_k the number and the mean of the rows of class k, which
follow from the constant's row of W_k; C_k = Σ (x − m_k)(x − m_k)ᵀ; n, K, D the numbers of rows, classes and features; σ the
known scale of the noise on every W_k.

    Σ_k = w_k C_k/n_k + (1 − w_k) C/n + λI,        w_k = a min(1, K n_k/n),        λ = ½ σ √(2D) f

Here C = Σ C_k. The largest eigenvalue of noise of scale σ is σ √(2D), and the noise of the first two terms is f times as
large. All classes have the same λ: if λ were larger for a class of fewer rows, the determinant of its covariance would
decide instead of the shape. The covariance of a rare class has no more noise than that of a class of n/K rows, because the
rare class's own covariance has less weight. Eigenvalues below zero, which come from noise, are set to zero before λ is
added, and means are shrunk towards the mean of all rows unless they exceed their noise. a and ½ were chosen on
scikit-learn's digits and on synthetic glyphs, and nothing here needs rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import softmax

from mooring.errors import InputError
from mooring.learners.models import Model, ModelSpec, QuadraticFunction, choose_classes
from mooring.learners.sums import Sums, check_products, count_rows, shrink_mean
from mooring.typing import Indices, Matrix, Vector

_OWN_SHARE = 0.8  # a
_OF_NOISE = 0.5  # λ over the largest eigenvalue of the noise
_LEAST_RIDGE = 1e-3  # λ over the mean eigenvalue; decides only if there is hardly any noise
_SMALLEST = 1e-12
_DRAWS = 4000


@dataclass(frozen=True, eq=False)
class ClassSums:
    """The total of everybody's sums by class, in the units of features."""

    products: Matrix
    """W_k, with shape (K, D, D); the constant is the last feature."""
    constant_share: float
    """c₀."""
    noise_scale: float = 0.0
    """σ, the standard deviation of the noise on the diagonals; entries off them have σ/√2."""
    unit_length: bool = False
    """Whether every row has ‖φ‖ = 1, so that traces also count rows."""

    def __post_init__(self) -> None:
        K, D = self.products.shape[:2]
        if self.products.shape != (K, D, D) or D < 2 or K < 2:
            expected, got = "a square matrix for each of two classes or more", f"shape {self.products.shape}"
            raise InputError("sums", expected=expected, got=got, cure="Take them from ClassLayout.unpack.")

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.products)

    @cached_property
    def counts(self) -> Vector:
        """Estimates of the numbers of rows n_k, at least 1."""
        c0, noise, unit = self.constant_share, self.noise_scale, self.unit_length
        return np.array([max(1.0, count_rows(products, c0, noise, unit_length=unit)) for products in self.products])

    @property
    def n_rows(self) -> float:
        """An estimate of the number of rows."""
        return float(self.counts.sum())

    @property
    def class_shares(self) -> Vector:
        """The share of each class, all positive."""
        shares = np.maximum(self.counts, self.n_rows / (self.n_rows + self.n_classes))
        return np.asarray(shares / shares.sum())

    @cached_property
    def pooled(self) -> Sums:
        """The sums over the rows of all classes, with their outcomes, as linear models take them."""
        K, root, sums = self.n_classes, math.sqrt(self.constant_share), self.products.sum(axis=0)
        by_class = self.products[:, :, -1].T / root  # Σφ over the rows of each class
        if K == 2:
            outcomes, of_outcomes = by_class[:, 1:] - by_class[:, :1], 1.0
        else:
            outcomes, of_outcomes = by_class - sums[:, -1:] / (root * K), math.sqrt((1 - 1 / K) / 2)
        scales = (math.sqrt(K) * self.noise_scale, of_outcomes * self.noise_scale / root)
        return Sums(sums, outcomes, self.constant_share, K, scales, self.unit_length)


@dataclass(frozen=True, eq=False)
class QuadraticModel:
    """A model whose scores are quadratic functions of the features: log-probabilities up to a constant per row."""

    function: QuadraticFunction
    class_shares: Vector
    """The share of each class, of shape (K,)."""

    def scores(self, features: Matrix) -> Matrix:
        """Return the scores of rows of features with their constant, an array of shape (n, K)."""
        return self.function.evaluate(features[:, :-1])

    def predict(self, features: Matrix) -> Indices:
        """Return class codes."""
        return self.choose(self.scores(features))

    def choose(self, scores: Matrix) -> Indices:
        """Return the predicted class codes of rows with these scores."""
        return choose_classes(softmax(scores, axis=1), self.class_shares, are_probabilities=True)

    def class_scores(self, features: Matrix) -> Matrix:
        """Return the probability of each class, of shape (n, K)."""
        return np.asarray(softmax(self.scores(features), axis=1))

    def to_model(self, spec: ModelSpec) -> Model:
        """Return the model as arrays, for the features in `spec`."""
        classes = np.arange(self.class_shares.size, dtype=np.int32)
        return Model(spec, self.function, "softmax", classes, self.class_shares)

    def estimate_predicted_shares(self) -> Vector:
        """Return the share of rows for which each class is predicted, if rows are distributed as the model assumes."""
        K, rng = self.class_shares.size, np.random.default_rng(0)
        n_inputs = self.function.axes.shape[0]
        predicted = np.zeros(K)
        for k, share in enumerate(self.class_shares):
            columns = slice(k * n_inputs, (k + 1) * n_inputs)
            drawn = rng.standard_normal((_DRAWS // K + 1, n_inputs)) - self.function.offsets[columns]
            rows = np.asarray(np.linalg.solve(self.function.axes[:, columns].T, drawn.T).T, dtype=np.float64)
            codes = self.choose(self.function.evaluate(rows))
            predicted += share * np.bincount(codes, minlength=K) / len(rows)
        return predicted


def fit_quadratic(sums: ClassSums) -> QuadraticModel:
    """Fit regularised discriminant analysis.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> classes = [rng.normal(size=(200, 2)) * spread for spread in (0.1, 0.4)]
    >>> phi = [np.hstack([rows, np.full((200, 1), 0.5)]) for rows in classes]
    >>> model = fit_quadratic(ClassSums(np.array([part.T @ part for part in phi]), 0.25))
    >>> model.predict(np.array([[0.05, 0.0, 0.5], [0.5, 0.4, 0.5]]))
    array([0, 1])
    """
    n, shares = sums.counts, sums.class_shares
    means, scatters = _centre(sums)
    K, D, total = len(n), means.shape[1], n.sum()
    pooled = scatters.sum(axis=0) / total
    largest = sums.noise_scale * math.sqrt(2 * D)
    carried = math.hypot((_OWN_SHARE * K + 1 - _OWN_SHARE) / total, (1 - _OWN_SHARE) * math.sqrt(K - 1) / total)
    ridge = _OF_NOISE * largest * carried + max(_LEAST_RIDGE * float(np.trace(pooled)) / D, _SMALLEST)
    axes, offsets, intercepts = [], [], []
    for k, share in enumerate(shares):
        own_share = _OWN_SHARE * min(1.0, K * n[k] / total)
        covariance = own_share * scatters[k] / n[k] + (1 - own_share) * pooled
        values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
        values = np.maximum(values, 0) + ridge
        axes.append(vectors / np.sqrt(values))
        offsets.append(-means[k] @ axes[-1])
        intercepts.append(math.log(share) - float(np.log(values).sum()) / 2)
    function = QuadraticFunction(np.hstack(axes), np.concatenate(offsets), np.array(intercepts))
    return QuadraticModel(function, shares)


def _centre(sums: ClassSums) -> tuple[Matrix, Matrix]:
    """Return the means of classes, of shape (K, D), and C_k, of shape (K, D, D). Means are shrunk, C_k are not."""
    n, root = sums.counts, math.sqrt(sums.constant_share)
    means = sums.products[:, :-1, -1] / (root * n[:, None])
    variances = (sums.noise_scale / (math.sqrt(2) * root * n)) ** 2  # of an entry of a mean
    squares = np.einsum("ki,kj->kij", means, means) - variances[:, None, None] * np.eye(means.shape[1])
    scatters = sums.products[:, :-1, :-1] - n[:, None, None] * squares
    mean = n @ means / n.sum()
    deviations = [
        shrink_mean(class_mean - mean, variance) for class_mean, variance in zip(means, variances, strict=True)
    ]
    return mean + np.array(deviations), scatters


def check_class_sums(sums: ClassSums, most_rows: float = math.inf) -> list[str]:
    """Return properties of a total by class that no `most_rows` rows can produce.

    Invented rows with valid values are not detected.
    """
    c0, noise = sums.constant_share, sums.noise_scale
    count = float(sums.products[:, -1, -1].sum()) / c0
    if count - 6 * noise * math.sqrt(sums.n_classes) / c0 > most_rows:
        return [f"it has about {count:,.0f} rows, and all participants together may add {most_rows:,.0f}"]
    problems = [problem for products in sums.products for problem in check_products(products, c0, noise)]
    return list(dict.fromkeys(problems))
