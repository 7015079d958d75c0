"""Public feature maps of tables, from encoded rows to vectors φ of norm at most one.

Legend: x an encoded number in [−1, 1]; h its hat functions; u the features of a row before they are scaled; c₀ the share of
the constant.

    φ = (√(1 − c₀) u/‖u‖, √c₀),        ‖φ‖ = 1.

Without hat functions, the feature of a number is x itself, and u is divided by its largest possible norm instead of ‖u‖, so
that a linear model of φ is a linear model of the columns.

Features follow from the declared columns only, so they cost no privacy. Take five hat functions, the default. From x and the
hat functions, each minus its mean over the range, a linear model can form any curve of a number that is piecewise linear
between the centres of the hats. These six functions are linearly dependent, because hat functions sum to one, and noise on a
sum that follows from other sums is wasted. The features are therefore four coordinates in the space that the six functions
span, with respect to an orthonormal basis, so that inner products of rows stay the same. A log-scaled number is first
replaced by the position of its logarithm in the range, from −1 to 1. A category of two levels has the feature ±½; a category
of L > 2 levels has L − 1 orthonormal contrasts. A column that indicates missing values has ±½ as a further feature. The
constant yields the number of rows and the mean of the features, with noise. The weights of x and of the hats, both 1, were
chosen on tables that appear in none of mooring's results.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from mooring.errors import InputError
from mooring.learners.models import FeatureMap
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix

CONSTANT_SHARE = 0.2
"""c₀ of the features of tables."""
DECADES = 1e4
"""The ratio of the upper to the lower end of a logarithmic scale."""


@dataclass(frozen=True)
class TableFeatures:
    """The features of a table's declared columns.

    Examples
    --------
    >>> schema = Schema((Column("age", "number", 0, 100), Column("sex", "category", categories=("f", "m"))))
    >>> features = TableFeatures(schema)
    >>> phi = features.apply(np.array([[0.2, 1.0, 0.0]]))
    >>> phi.shape == (1, features.n_features), round(float((phi**2).sum()), 12)
    (True, 1.0)
    """

    schema: Schema
    """The declared columns; the label is not used."""
    log_scaled: frozenset[str] = frozenset()
    """Names of columns on a logarithmic scale, whose lower end is the lower end of the column's range."""
    n_hats: int = 5
    """Hat functions per number; with 0, the only feature of a number is the number itself."""
    constant_share: float = CONSTANT_SHARE
    """c₀."""

    is_dense: ClassVar[bool] = False

    def __post_init__(self) -> None:
        numbers = {column.name for column in self.schema.columns if column.kind != "category"}
        if not self.log_scaled <= numbers:
            unknown = sorted(self.log_scaled - numbers)
            expected, got = "names of columns of numbers", f"{unknown[0][:60]!r}"  # a study's text may hold escapes
            cure = "Declare this column as a number, or leave it out of log_scaled."
            raise InputError("log_scaled", expected=expected, got=got, cure=cure)
        if not 0 < self.constant_share < 1:
            raise InputError(
                "constant_share", expected="between 0 and 1", got=str(self.constant_share), cure="0.2 is the default."
            )
        if self.n_hats != 0 and self.n_hats < 3:
            raise InputError("n_hats", expected="0, or 3 and more", got=str(self.n_hats), cure="5 is the default.")

    @property
    def n_inputs(self) -> int:
        """The number of entries of an encoded row."""
        return self.schema.n_features

    @property
    def n_features(self) -> int:
        """The length of φ."""
        return sum(self._width(column) for column in self.schema.columns) + 1

    @property
    def unit_length(self) -> bool:
        """Whether every φ has length one, as is the case with hat functions."""
        return bool(self.n_hats)

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of encoded rows."""
        require_width(rows, self)
        phi = np.empty((rows.shape[0], self.n_features), order="F")  # column by column, like encoded rows
        place = start = 0
        for column, count in self._alike:
            width, n_features = column.width, self._width(column)
            encoded = rows.T[start : start + count * width].reshape(count, width, len(rows))
            target = phi.T[place : place + count * n_features].reshape(count, n_features, len(rows))
            self._write(column, encoded, target)
            start, place = start + count * width, place + count * n_features
        scale_to_unit(phi, self.constant_share, largest=None if self.n_hats else self.largest_norm)
        return phi

    @property
    def largest_norm(self) -> float:
        """The largest norm of u without hat functions."""
        squares = 0.0
        for column in self.schema.columns:
            squares += 0.25 if column.kind == "category" and len(column.categories) == 2 else 1.0
            squares += 0.25 * (column.missing == "indicate")
        return math.sqrt(squares)

    @cached_property
    def _alike(self) -> list[tuple[Column, int]]:
        """Runs of columns whose features have the same form; for each run, its first column and its length."""

        def form(column: Column) -> tuple[Any, ...]:
            log, indicated = column.name in self.log_scaled, column.missing == "indicate"
            return column.kind == "category", len(column.categories), log, indicated

        runs = (list(columns) for _, columns in groupby(self.schema.columns, form))
        return [(columns[0], len(columns)) for columns in runs]

    def _width(self, column: Column) -> int:
        width = max(1, self.n_hats - 1) if column.kind != "category" else len(column.categories) - 1
        return width + (column.missing == "indicate")

    def _write(self, column: Column, encoded: Matrix, phi: Matrix) -> None:
        """Write the features of a run of columns like this one. Both arrays have the axes column, entry or feature, row."""
        if column.missing == "indicate":
            np.subtract(encoded[:, -1], 0.5, out=phi[:, -1])
        n_levels = len(column.categories)
        if column.kind == "category":
            np.matmul(level_contrasts(n_levels), encoded[:, :n_levels], out=phi[:, : n_levels - 1])
            return
        x = encoded[:, 0]
        if column.name in self.log_scaled:
            x = np.log1p((x + 1) / 2 * (DECADES - 1)) * (2 / math.log(DECADES)) - 1
        if not self.n_hats:
            phi[:, 0] = x
            return
        hats = x[:, None] - np.linspace(-1.0, 1.0, self.n_hats)[:, None]
        np.abs(hats, out=hats)
        hats *= (1 - self.n_hats) / 2  # minus one over the distance of centres
        hats += 1
        np.clip(hats, 0.0, 1.0, out=hats)  # values never exceed 1; np.maximum would take three times as long
        np.matmul(curve_coordinates(self.n_hats), hats, out=phi[:, : self.n_hats - 1])


@lru_cache(maxsize=16)
def curve_coordinates(n_hats: int) -> Matrix:
    """Return the matrix that computes features from the hat functions of a number, of shape (n_hats − 1, n_hats).

    Column k holds the features of a number at the centre of hat k. They are coordinates of x and the hats, each minus its
    mean over the range. The basis is found by the Gram–Schmidt process from the first centres, so that it is the same on all
    machines.

    Examples
    --------
    >>> coordinates = curve_coordinates(3)
    >>> expected = [1 + 0.75**2 + 0.5**2 + 0.25**2, 0 + 0.25**2 + 0.5**2 + 0.25**2]
    >>> np.allclose((coordinates**2).sum(axis=0)[:2], expected)
    True
    """
    means = np.full(n_hats, 1 / (n_hats - 1))
    means[[0, -1]] /= 2
    redundant = np.vstack([np.linspace(-1.0, 1.0, n_hats), np.eye(n_hats) - means[:, None]])
    basis: list[Matrix] = []
    for k in range(n_hats - 1):  # the vector of the last centre is a combination of the other vectors
        vector = redundant[:, k].copy()
        for _ in range(2):  # once more, against rounding errors
            for other in basis:
                vector -= math.fsum(vector * other) * other
        basis.append(vector / math.sqrt(math.fsum(vector**2)))
    return np.asarray(np.array(basis) @ redundant)


@lru_cache(maxsize=64)
def level_contrasts(n_levels: int) -> Matrix:
    """Return the matrix that computes features from indicators of levels, of shape (n_levels − 1, n_levels).

    Two levels have the feature ±½. With more levels, each is contrasted with the mean of the levels before it.
    """
    if n_levels == 2:
        return np.array([[-0.5, 0.5]])
    contrasts = np.zeros((n_levels - 1, n_levels))
    for k in range(1, n_levels):
        contrasts[k - 1, :k], contrasts[k - 1, k] = 1.0, -float(k)
        contrasts[k - 1] /= math.sqrt(k * (k + 1))
    return contrasts


@dataclass(frozen=True)
class RowFeatures:
    """Features that are the entries of encoded rows and a constant, scaled to length one."""

    n_inputs: int
    """The number of entries of an encoded row."""
    constant_share: float = 0.3
    """c₀."""
    is_dense: bool = False
    """Whether most entries of a row are not zero and are hardly correlated, as in pictures."""
    unit_length: ClassVar[bool] = True

    @property
    def n_features(self) -> int:
        """The length of φ."""
        return self.n_inputs + 1

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of encoded rows."""
        require_width(rows, self)
        phi = np.empty((len(rows), self.n_features))
        phi[:, :-1] = rows
        scale_to_unit(phi, self.constant_share)
        return phi


def require_width(rows: Matrix, features: FeatureMap) -> None:
    """Raise an `InputError` unless rows have as many entries as a feature map needs."""
    if rows.ndim != 2 or rows.shape[1] != features.n_inputs:
        expected, got = f"encoded rows of {features.n_inputs} numbers", f"shape {rows.shape}"
        raise InputError("rows", expected=expected, got=got, cure="Encode them with the schema of the features.")


def scale_to_unit(phi: Matrix, constant_share: float, *, largest: float | None = None) -> None:
    """Scale all features but the last, in place, to a norm of √(1 − c₀) or by √(1 − c₀)/`largest`; set the last to √c₀."""
    features = phi[:, :-1]
    if largest is not None:
        features *= math.sqrt(1 - constant_share) / largest
    else:
        norms = np.sqrt(np.einsum("ij,ij->i", features, features))[:, None]
        features *= math.sqrt(1 - constant_share) / np.where(norms > 0, norms, 1.0)
    phi[:, -1] = math.sqrt(constant_share)
