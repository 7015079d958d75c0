"""Sums over the rows of a participant, as exact integers.

Legend: φ the features of a row, with D entries; q = trunc(Bφ) in integers, B the resolution; y the row's outcome, in
integers, ‖y‖ ≤ Y; F a power of two, R = FB; S = Σ q qᵀ, T = Σ Fq yᵀ over all rows.

Since the features are quantised before the summation, every sum is exact. Products of such integers are exact in float64
below 2⁵³, in any order, so that blocks of rows can use floating-point matrix products. A row changes (S, T) by at most
(B², RY) in norm. This is checked in integers. The shared vector holds the upper triangle of S, row by row, and then T.

If the unit is a person, there are two ways. Either at most m rows of each person are added, and the noise is m times as
large. Or the mean over each person's k rows is added, which changes the sums by no more than one row does. The mean is
computed in integers, row by row: each row adds q qᵀ with q = trunc(Bφ/√k) to S and r yᵀ with r = trunc(Rφ/k) to T, so that
Σ‖q‖² ≤ B² and Σ‖r‖‖y‖ ≤ RY over a person's rows. R is 2⁸ to 2²⁰ times B, so that rounding φ/k loses hardly anything, and
noise on T is fine-grained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.prime_field import LARGEST
from mooring.typing import Matrix

Integers = npt.NDArray[np.int64]

RESOLUTION = 2**12
_NUMBER_RESOLUTION = 2**12
_EXACT = 2**53
_MOST_FEATURES = 4096


@dataclass(frozen=True)
class Outcome:
    """The encoding of labels as integer vectors y.

    Notes
    -----
    Two classes are encoded as ±1. Class k of K > 2 classes is encoded as K e_k − 1, whose entries sum to zero. A number in
    [−1, 1] is multiplied by a resolution of its own and truncated.
    """

    n_classes: int
    """K; 0 for a number."""

    @property
    def width(self) -> int:
        """The number of entries of y."""
        return 1 if self.n_classes <= 2 else self.n_classes

    @property
    def largest_norm_squared(self) -> int:
        """Y², the largest ‖y‖²."""
        k = self.n_classes
        return _NUMBER_RESOLUTION**2 if k == 0 else 1 if k == 2 else k * (k - 1)

    @property
    def unit(self) -> float:
        """The divisor that turns y into the label that learners use: a number in [−1, 1], ±1, or e_k − 1/K."""
        return float(_NUMBER_RESOLUTION if self.n_classes == 0 else 1 if self.n_classes == 2 else self.n_classes)

    def encode(self, labels: Matrix) -> Integers:
        """Return y for labels that are class codes or numbers in [−1, 1]; raise an `InputError` for other labels."""
        if self.n_classes == 0:
            if not np.all(np.abs(labels) <= 1):
                problem = "Some labels are not between −1 and 1."
                raise InputError("labels", problem=problem, cure="Encode labels with the study's schema.")
            return np.trunc(labels * _NUMBER_RESOLUTION).astype(np.int64)[:, None]
        codes = require_codes(labels, self.n_classes)
        if self.n_classes == 2:
            return (2 * codes - 1)[:, None]
        return np.asarray(self.n_classes * np.eye(self.n_classes, dtype=np.int64)[codes] - 1)


def require_codes(labels: Matrix, n_classes: int) -> Integers:
    """Return labels as integers, or raise an `InputError` for labels that are not class codes."""
    codes = labels.astype(np.int64)
    if not np.all((codes == labels) & (codes >= 0) & (codes < n_classes)):
        problem = f"Some labels are not class codes from 0 to {n_classes - 1}."
        raise InputError("labels", problem=problem, cure="Encode labels with the study's schema.")
    return codes


@dataclass(frozen=True)
class SumLayout:
    """The layout of the vector of sums."""

    n_features: int
    """D, including the constant."""
    outcome: Outcome
    resolution: int = RESOLUTION
    """B."""

    def __post_init__(self) -> None:
        if not 1 <= self.n_features <= _MOST_FEATURES:
            expected, got = f"between 1 and {_MOST_FEATURES}", str(self.n_features)
            raise InputError(
                "n_features", expected=expected, got=got, cure="Use fewer features, for instance without hat functions."
            )

    @property
    def outcome_resolution(self) -> int:
        """R, the integer that represents 1 in the features of T. R is B F, and F the largest power of two with F Y ≤ 2²⁰."""
        return int(self.resolution << (20 - (math.isqrt(self.outcome.largest_norm_squared - 1)).bit_length()))

    @property
    def n_products(self) -> int:
        """The number of entries in the upper triangle of S."""
        return self.n_features * (self.n_features + 1) // 2

    @property
    def size(self) -> int:
        """The length of the vector."""
        return self.n_products + self.n_features * self.outcome.width

    @property
    def most_rows(self) -> int:
        """Maximum number of rows of all participants together, so that no sum exceeds the field."""
        return LARGEST // (2 * self.largest_product)  # the other half is for the noise

    @property
    def largest_product(self) -> int:
        """A bound on the entries that one row adds to S and T: the larger of B² and R ⌈Y⌉."""
        root = math.isqrt(self.outcome.largest_norm_squared - 1) + 1
        return max(self.resolution**2, self.outcome_resolution * root)

    def pack(self, S: Integers, T: Integers) -> Integers:
        """Return the vector of the sums S and T."""
        return np.concatenate([S[np.triu_indices(self.n_features)], T.ravel()])

    def unpack(self, vector: Integers) -> tuple[Matrix, Matrix]:
        """Return S, as a full symmetric matrix, and T from a vector, in the units of features and outcomes."""
        require_size(vector, self.size)
        D = self.n_features
        S, rows_and_columns = np.zeros((D, D)), np.triu_indices(D)
        S[rows_and_columns] = vector[: self.n_products] / self.resolution**2
        S.T[rows_and_columns] = S[rows_and_columns]
        T = vector[self.n_products :].reshape(D, self.outcome.width) / (self.outcome_resolution * self.outcome.unit)
        return S, T


class SumAccumulator:
    """Accumulates sums over blocks of rows.

    Several threads may add blocks at the same time, since sums of integers do not depend on the order.

    Examples
    --------
    >>> layout = SumLayout(2, Outcome(2), resolution=10)
    >>> sums = SumAccumulator(layout)
    >>> sums.add(np.array([[0.6, 0.8]]), np.array([1]))
    >>> sums.vector
    array([     36,      48,      64, 6291456, 8388608])
    """

    def __init__(self, layout: SumLayout) -> None:
        self._layout = layout
        self._S = np.zeros((layout.n_features,) * 2, dtype=np.int64)
        self._T = np.zeros((layout.n_features, layout.outcome.width), dtype=np.int64)
        self.n_rows = 0
        self._lock = Lock()

    def add(self, features: Matrix, labels: Matrix, rows_of_person: Integers | None = None) -> None:
        """Add rows with features φ and labels.

        An `InputError` is raised for a row with a norm above one. The norm is computed from the integers that are added, so
        that the sensitivity is right for any feature map. `rows_of_person` has, for each row, the number of rows of its
        person. If it is given, the mean over each person's rows is added.
        """
        layout = self._layout
        require_rows(features, labels, layout.n_features)
        B, R = layout.resolution, layout.outcome_resolution
        q = quantise(features, B, rows_of_person)
        r = q * (R // B) if rows_of_person is None else quantise(features, R, rows_of_person**2)
        y = layout.outcome.encode(labels)
        for start in range(0, len(q), step := max(1, _EXACT // layout.largest_product)):
            block, outcomes = q[start : start + step], y[start : start + step].astype(np.float64)
            S, T = block.T @ block, r[start : start + step].T @ outcomes
            with self._lock:
                self._S += S.astype(np.int64)
                self._T += T.astype(np.int64)
                self.n_rows += len(block)
        require_room(self.n_rows, layout.most_rows)

    @property
    def vector(self) -> Integers:
        """The sums so far."""
        return self._layout.pack(self._S, self._T)


class PersonCounts:
    """Counts the rows of each person, block by block. Memory grows with the number of persons.

    Examples
    --------
    >>> counts = PersonCounts()
    >>> counts.add(np.array([7.0, 3.0, 7.0]))
    >>> counts.count_above(1)
    1
    """

    def __init__(self) -> None:
        self._persons, self._counts = np.empty(0), np.empty(0, dtype=np.int64)

    def count_above(self, most: int) -> int:
        """Return the number of persons with more than `most` rows."""
        return int(np.count_nonzero(self._counts > most))

    def add(self, persons: Matrix | None) -> None:
        """Count rows by person, where equal numbers are the same person; None adds nothing."""
        if persons is None:
            return
        block, counts = np.unique(persons, return_counts=True)
        known, place = np.unique(np.concatenate([self._persons, block]), return_inverse=True)
        total = np.bincount(place, weights=np.concatenate([self._counts, counts]), minlength=known.size)
        self._persons, self._counts = known, total.astype(np.int64)


def count_rows_of_persons(persons: Matrix) -> Integers:
    """Return, for each row of a whole table, the number of rows of its person."""
    _, place, counts = np.unique(persons, return_inverse=True, return_counts=True)
    return np.asarray(counts[place], dtype=np.int64)


def rank_rows_of_persons(persons: Matrix, keys: npt.NDArray[np.uint64]) -> Integers:
    """Return, for each row of a whole table, its rank by `keys` among the rows of its person, from 0 on.

    Whether a row has a rank below m depends only on the rows of its own person.

    Examples
    --------
    >>> rank_rows_of_persons(np.array([7.0, 3.0, 7.0]), np.array([9, 5, 4], dtype=np.uint64))
    array([1, 0, 0])
    """
    order = np.lexsort((keys, persons))
    begins = np.flatnonzero(np.diff(persons[order], prepend=np.nan) != 0)
    lengths = np.diff(begins, append=order.size)
    ranks = np.empty(order.size, dtype=np.int64)
    ranks[order] = np.arange(order.size) - np.repeat(begins, lengths)
    return ranks


def quantise(features: Matrix, resolution: int, divisors: Integers | None = None) -> Matrix:
    """Return trunc(Bφ/√d) as floats with integer values, or raise an `InputError` for rows longer than B/√d.

    B is `resolution`, and d is the row's entry of `divisors`; without divisors, d is 1.
    """
    d = np.ones(1, dtype=np.int64) if divisors is None else divisors
    q = features * (resolution / np.sqrt(np.maximum(d, 1)))[:, None]
    np.trunc(q, out=q)
    require_short(features, q, resolution, divisors)
    return np.asarray(q)


def require_short(features: Matrix, q: Matrix, resolution: int, divisors: Integers | None = None) -> None:
    """Raise an `InputError` for rows whose integers q are longer than B/√d (see `quantise`), and for divisors d below 1."""
    d = np.ones(1, dtype=np.int64) if divisors is None else divisors
    if d.min(initial=1) < 1:
        cure = "Count the rows of each person first."
        raise InputError("divisors", expected="1 or more", got=str(int(d.min())), cure=cure)
    if not (np.einsum("ij,ij->i", q, q) * d <= resolution**2).all():  # False for NaN
        if not np.isfinite(features).all():
            raise InputError(
                "features", expected="finite", got="NaN or Inf", cure="Declare how missing values are written."
            )
        cure = "A feature map must bound the norm of its rows, because the noise is calibrated to it."
        raise InputError("features", problem="Some rows of features have a norm above one.", cure=cure)


def require_rows(features: Matrix, labels: Matrix, n_features: int) -> None:
    """Raise an `InputError` unless `features` has `n_features` columns and a row for each label."""
    if features.ndim != 2 or features.shape[1] != n_features or len(labels) != len(features):
        got, cure = f"shape {features.shape} and {len(labels)} labels", "Use the study's feature map."
        raise InputError("features", expected=f"rows of {n_features}, one per label", got=got, cure=cure)


def require_room(n_rows: int, most_rows: int) -> None:
    """Raise an `InputError` for more rows than a total can have without exceeding the field."""
    if n_rows > most_rows:
        problem = f"The total of this study can have at most {most_rows} rows."
        raise InputError("rows", problem=problem, cure="Share fewer rows.")


def require_size(vector: Integers, size: int) -> None:
    """Raise an `InputError` for a vector that does not have one number for each sum of a layout."""
    if vector.shape != (size,):
        expected, got = f"{size} sums", f"shape {vector.shape}"
        raise InputError("vector", expected=expected, got=got, cure="Request the vector again.")
