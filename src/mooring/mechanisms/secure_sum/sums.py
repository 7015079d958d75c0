"""What a participant uploads: sums over its rows, as exact integers.

Legend: φ the features of a row, q = trunc(Bφ) in integers, B the resolution; y the row's outcome, in integers, ‖y‖ ≤ Y;
S = Σ q qᵀ, T = Σ q yᵀ over all rows.

Quantising φ, not the sums, makes every sum exact: products of such integers are exact in float64 below 2⁵³, in any order, so
blocks of rows go through the matrix product of the machine. A row moves (S, T) by no more than (B², BY) in norm, which is
checked in integers, not derived. The vector that is shared holds the upper triangle of S, row after row, and then T.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.secure_sum.prime_field import LARGEST
from mooring.typing import Matrix

Integers = npt.NDArray[np.int64]

RESOLUTION = 2**12
_NUMBER_RESOLUTION = 2**12
_EXACT = 2**53
_MOST_FEATURES = 4096


@dataclass(frozen=True)
class Outcome:
    """How a label becomes integers.

    Attributes
    ----------
    n_classes : int
        K; 0 for a number.

    Notes
    -----
    Two classes are ±1, which is one number. K classes are K e_k − 1, K numbers, of which each row's add up to zero. A
    number in [−1, 1] is scaled by a resolution of its own.
    """

    n_classes: int

    @property
    def width(self) -> int:
        """How many numbers y holds."""
        return 1 if self.n_classes <= 2 else self.n_classes

    @property
    def largest_norm_squared(self) -> int:
        """Y²."""
        k = self.n_classes
        return _NUMBER_RESOLUTION**2 if k == 0 else 1 if k == 2 else k * (k - 1)

    @property
    def unit(self) -> float:
        """By what y is divided to be the label in [−1, 1], ±1, or e_k − 1/K."""
        return float(_NUMBER_RESOLUTION if self.n_classes == 0 else 1 if self.n_classes == 2 else self.n_classes)

    def encode(self, labels: Matrix) -> Integers:
        """Return y of labels: codes of classes, or numbers in [−1, 1]."""
        if self.n_classes == 0:
            if not np.all(np.abs(labels) <= 1):
                raise InputError("labels", expected="between −1 and 1", got="others", cure="Encode them by the study.")
            return np.trunc(labels * _NUMBER_RESOLUTION).astype(np.int64)[:, None]
        codes = labels.astype(np.int64)
        if not np.all((codes == labels) & (codes >= 0) & (codes < self.n_classes)):
            raise InputError("labels", expected="codes of the study's classes", got="others", cure="Encode them by it.")
        if self.n_classes == 2:
            return (2 * codes - 1)[:, None]
        return np.asarray(self.n_classes * np.eye(self.n_classes, dtype=np.int64)[codes] - 1)


@dataclass(frozen=True)
class SumLayout:
    """Which sums are shared, and where each stands in the vector.

    Attributes
    ----------
    n_features : int
        D, the constant included.
    outcome : Outcome
    resolution : int
        B.
    """

    n_features: int
    outcome: Outcome
    resolution: int = RESOLUTION

    def __post_init__(self) -> None:
        if not 1 <= self.n_features <= _MOST_FEATURES:
            raise InputError(
                "n_features",
                expected=f"between 1 and {_MOST_FEATURES}",
                got=str(self.n_features),
                cure="Project the features, or leave hats out.",
            )

    @property
    def n_products(self) -> int:
        """Entries of the upper triangle of S."""
        return self.n_features * (self.n_features + 1) // 2

    @property
    def size(self) -> int:
        """Length of the vector."""
        return self.n_products + self.n_features * self.outcome.width

    @property
    def most_rows(self) -> int:
        """How many rows all participants may have together before a sum could leave the field."""
        largest = max(self.resolution**2, self.resolution * math.isqrt(self.outcome.largest_norm_squared) + 1)
        return LARGEST // (2 * largest)  # half is left for the noise

    def pack(self, S: Integers, T: Integers) -> Integers:
        """Return the vector of these sums."""
        return np.concatenate([S[np.triu_indices(self.n_features)], T.reshape(-1)])

    def unpack(self, vector: Integers) -> tuple[Matrix, Matrix]:
        """Return S, symmetric, and T of a vector, in the units of features and outcomes."""
        if vector.shape != (self.size,):
            raise InputError(
                "vector", expected=f"{self.size} sums", got=f"shape {vector.shape}", cure="Ask for it again."
            )
        D = self.n_features
        S, rows_and_columns = np.zeros((D, D)), np.triu_indices(D)
        S[rows_and_columns] = vector[: self.n_products] / self.resolution**2
        S.T[rows_and_columns] = S[rows_and_columns]
        T = vector[self.n_products :].reshape(D, self.outcome.width) / (self.resolution * self.outcome.unit)
        return S, T


class SumAccumulator:
    """Sums over blocks of rows.

    Parameters
    ----------
    layout : SumLayout

    Examples
    --------
    >>> layout = SumLayout(2, Outcome(2), resolution=10)
    >>> sums = SumAccumulator(layout)
    >>> sums.add(np.array([[0.6, 0.8]]), np.array([1]))
    >>> sums.vector
    array([36, 48, 64,  6,  8])
    """

    def __init__(self, layout: SumLayout) -> None:
        self._layout = layout
        self._S = np.zeros((layout.n_features,) * 2, dtype=np.int64)
        self._T = np.zeros((layout.n_features, layout.outcome.width), dtype=np.int64)
        self.n_rows = 0

    def add(self, features: Matrix, labels: Matrix) -> None:
        """Add rows: their φ, and codes of classes or numbers in [−1, 1].

        A row longer than one is refused, by the integers that are added: whatever made φ, the sensitivity holds.
        """
        layout = self._layout
        if features.ndim != 2 or features.shape[1] != layout.n_features or len(labels) != len(features):
            raise InputError(
                "features",
                expected=f"rows of {layout.n_features}, one a label",
                got=f"shape {features.shape} and {len(labels)} labels",
                cure="Make them by the study's feature map.",
            )
        q = quantise(features, layout.resolution)
        y = layout.outcome.encode(labels)
        for start in range(0, len(q), step := max(1, _EXACT // (2 * layout.resolution * max(layout.resolution, 4096)))):
            own, outcomes = q[start : start + step], y[start : start + step].astype(np.float64)
            self._S += (own.T @ own).astype(np.int64)
            self._T += (own.T @ outcomes).astype(np.int64)
        self.n_rows += len(q)
        if self.n_rows > layout.most_rows:
            raise InputError("rows", expected=f"{layout.most_rows} at most", got="more", cure="Share fewer rows.")

    @property
    def vector(self) -> Integers:
        """The sums so far."""
        return self._layout.pack(self._S, self._T)


def quantise(features: Matrix, resolution: int) -> Matrix:
    """Return trunc(Bφ) as whole floats, or refuse rows whose integers are longer than B."""
    if not np.isfinite(features).all():
        raise InputError("features", expected="finite", got="NaN or Inf", cure="Declare what a missing value is.")
    q = np.trunc(features * resolution)
    if np.abs(q).max(initial=0) > resolution or np.einsum("ij,ij->i", q, q).max(initial=0) > resolution**2:
        raise InputError(
            "features",
            expected="rows of norm one at most",
            got="longer rows",
            cure="A feature map must bound its rows: the noise is calibrated to that.",
        )
    return np.asarray(q)
