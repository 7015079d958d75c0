"""Sums by class: Σ φφᵀ over the rows of each class, as exact integers, and which studies use them.

Legend: φ the features of a row, ‖φ‖ ≤ 1; q the features as integers; D the length of φ and of q; B the resolution; s the
largest integer below B − √D; W_k = Σ q qᵀ over the rows of class k of K; n the number of rows; σ₁ the standard deviation of
the noise for a sensitivity of one.

A row belongs to one class, so it changes one of the matrices W_k by q qᵀ, whose norm is ‖q‖² ≤ B². It would change a single
sum over all classes by as much. The constant's row of W_k yields the number of rows and the mean features of class k, so
nothing else is shared.

Features are rounded at random, up or down, so that the expectation of q/s is φ. Products of two features then have no bias
at any number of rows; squares have a bias of at most about 1/(4B²) for each row. Rounding adds at most √D to a norm.
Therefore features are multiplied by s before rounding, and ‖q‖² ≤ B² is checked in integers for every row that is added. If
the mean over a person's k rows is added, features are multiplied by B/√k − (B − s), so that Σ‖q‖² ≤ B² over the person's
rows, and every row is checked against B²/k.

**Which studies use sums by class.** With K classes of n/K rows each, noise hides covariances beyond a number of features
that grows with r = n/(K σ₁): the largest eigenvalue of noise, σ₁ √(2D) K/n, exceeds a mean eigenvalue, 1/D, from
D = (r/√2)^⅔ on. Features are sorted by importance, so about the first 1.5 r^⅔ of them are used, as long as bundles stay
small. Pictures of three classes or more are summed by class from r = 150 on. The constants 1.5 and 150 were chosen on
scikit-learn's digits and on synthetic glyphs (random bent curves), not on MNIST or CelebA.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.guarantee import calibrate_multiplier
from mooring.mechanisms.sums.prime_field import LARGEST
from mooring.mechanisms.sums.sums import (
    Integers,
    require_codes,
    require_room,
    require_rows,
    require_short,
    require_size,
)
from mooring.typing import Matrix

RESOLUTION = 2**17
"""B. A total can then have about 2²⁵ rows."""
LEAST_CLASSES, LEAST_SIGNAL = 3, 150.0
"""Minimum K and r of a study whose sums are by class."""
_COMPONENTS, _FEWEST = 1.5, 16
_MOST_BY_RULE = 2**16  # the most sums that the rule allows: a bundle for 15 combiners then has less than 4 MB
_MOST_NUMBERS = 2**23
_EXACT = 2**53


def count_components(expected_rows: int, n_classes: int, epsilon: float, delta: float, rows_per_person: int = 1) -> int:
    """Return how many features of pictures are summed by class; 0 if sums are not by class.

    The number depends only on public numbers: the number of rows that all participants together are expected to have, the
    number of classes, and the guarantee.

    Examples
    --------
    >>> [count_components(n, 10, epsilon, 1e-5) for n, epsilon in ((60_000, 1), (4000, 2), (4000, 1))]
    [112, 51, 0]
    """
    if n_classes < LEAST_CLASSES:
        return 0
    signal = expected_rows / (n_classes * rows_per_person * calibrate_multiplier(epsilon, delta))
    if signal < LEAST_SIGNAL:
        return 0
    most = (math.isqrt(8 * (_MOST_BY_RULE // n_classes) + 1) - 1) // 2 - 1  # D − 1 features, D(D + 1)/2 sums per class
    return max(_FEWEST, min(round(_COMPONENTS * math.pow(signal, 2 / 3)), most))


@dataclass(frozen=True)
class ClassLayout:
    """The layout of the vector: the upper triangle of each W_k, row by row, one class after another."""

    n_features: int
    """D, including the constant."""
    n_classes: int
    """K."""
    resolution: int = RESOLUTION
    """B."""

    def __post_init__(self) -> None:
        if self.n_features < 2 or self.n_classes < 2 or self.size > _MOST_NUMBERS:
            expected, got = f"at most {_MOST_NUMBERS:,} sums", f"{self.n_classes} × {self.n_features} features"
            raise InputError("n_features", expected=expected, got=got, cure="Use fewer features.")

    @property
    def n_products(self) -> int:
        """The number of sums of each class."""
        return self.n_features * (self.n_features + 1) // 2

    @property
    def size(self) -> int:
        """The length of the vector, N."""
        return self.n_classes * self.n_products

    @cached_property
    def on_diagonal(self) -> npt.NDArray[np.bool_]:
        """Which numbers of the vector are on a diagonal."""
        rows, columns = np.triu_indices(self.n_features)
        return np.tile(rows == columns, self.n_classes)

    @property
    def sensitivity_squared(self) -> int:
        """The square of the largest change, by one row or by the mean over one person's rows: B⁴."""
        return self.resolution**4

    @property
    def scale(self) -> int:
        """s, the integer that represents 1 in q: B − ⌊√D⌋ − 1, which is below B − √D."""
        return self.resolution - math.isqrt(self.n_features) - 1

    @property
    def most_rows(self) -> int:
        """Maximum number of rows of all participants together, so that no sum exceeds the field."""
        return LARGEST // (2 * self.resolution**2)  # the other half is for the noise

    def pack(self, products: Integers) -> Integers:
        """Return the vector of the matrices W_k, which are of shape (K, D, D)."""
        rows, columns = np.triu_indices(self.n_features)
        return np.ascontiguousarray(products[:, rows, columns]).ravel()

    def unpack(self, vector: Integers) -> Matrix:
        """Return the matrices W_k from a vector, in the units of features and of shape (K, D, D)."""
        require_size(vector, self.size)
        (rows, columns), D = np.triu_indices(self.n_features), self.n_features
        products = np.zeros((self.n_classes, D, D))
        products[:, rows, columns] = vector.reshape(self.n_classes, -1) / self.scale**2
        products[:, columns, rows] = products[:, rows, columns]
        return products


class ClassAccumulator:
    """Accumulates sums by class over blocks of rows. Several threads may add blocks at the same time.

    Examples
    --------
    >>> layout = ClassLayout(2, 2)
    >>> sums = ClassAccumulator(layout, np.random.default_rng(0))
    >>> sums.add(np.array([[0.6, 0.8], [0.8, 0.6]]), np.array([1, 1]))
    >>> layout.unpack(sums.vector)[1].round(4)
    array([[1.  , 0.96],
           [0.96, 1.  ]])
    """

    def __init__(self, layout: ClassLayout, rng: np.random.Generator) -> None:
        self.layout = layout
        self.n_rows = 0
        self._products = np.zeros((layout.n_classes, layout.n_features, layout.n_features), dtype=np.int64)
        self._rng, self._lock = rng, Lock()

    def add(self, features: Matrix, labels: Matrix, rows_of_person: Integers | None = None) -> None:
        """Add rows with features φ and class codes.

        An `InputError` is raised for a row with a norm above one. The norm is computed from the integers that are added, so
        that the sensitivity is right for any feature map. `rows_of_person` has, for each row, the number of rows of its
        person. If it is given, the mean over each person's rows is added.
        """
        layout = self.layout
        require_rows(features, labels, layout.n_features)
        codes = require_codes(labels, layout.n_classes)
        with self._lock:
            rng = self._rng.spawn(1)[0]
        q = round_features(features, layout, rng, rows_of_person)
        require_short(features, q, layout.resolution, rows_of_person)
        step = _EXACT // layout.resolution**2
        for k in np.unique(codes):
            rows = q[codes == k]
            for start in range(0, len(rows), step):
                block = rows[start : start + step]
                products = (block.T @ block).astype(np.int64)
                with self._lock:
                    self._products[k] += products
                    self.n_rows += len(block)
        require_room(self.n_rows, layout.most_rows)

    @property
    def vector(self) -> Integers:
        """The sums so far."""
        return self.layout.pack(self._products)


def round_features(
    features: Matrix, layout: ClassLayout, rng: np.random.Generator, rows_of_person: Integers | None = None
) -> Matrix:
    """Return q: integers with the expectation s φ or, for the rows of a person with k rows, (B/√k − (B − s)) φ."""
    if rows_of_person is None:
        scaled = features * layout.scale
    else:
        lost = layout.resolution - layout.scale
        scaled = features * np.maximum(layout.resolution / np.sqrt(rows_of_person) - lost, 0.0)[:, None]
    scaled += rng.random(scaled.shape)
    return np.asarray(np.floor(scaled, out=scaled))
