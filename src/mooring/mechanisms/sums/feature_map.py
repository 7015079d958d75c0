"""Public feature maps of tables, from encoded rows to vectors φ of norm one.

Legend: x an encoded number in [−1, 1]; u the features of a row before they are scaled; c₀ the share of the constant.

    φ = (√(1 − c₀) u/‖u‖, √c₀),        ‖φ‖ = 1.

Without hat functions, the feature of a number is x itself, and u is divided by its largest possible norm instead, so that a
linear model of φ is a linear model of the columns.

Features follow from the declared columns only, so they cost no privacy. A number has the features 2x and five hat functions,
from which a linear model can form any piecewise linear curve. A log-scaled number has 2z and four hat functions, where z in
[0, 1] is the position of its logarithm in the range. A category of two levels has the feature ±½, a category of L levels its
indicators minus 1/L. The constant yields the number of rows and the mean of the features, with noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, ClassVar

import numpy as np

from mooring.errors import InputError
from mooring.learners.models import FeatureMap
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix

_BESIDE_HATS = 2.0  # weight of a number's linear feature
DECADES = 1e4
"""The ratio of the ends of a logarithmic scale."""


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
    """Names of columns on a logarithmic scale, which starts at the lower end of their range."""
    n_hats: int = 5
    """Hat functions per number; with 0, a number has only its linear feature."""
    constant_share: float = 0.3
    """c₀."""

    is_dense: ClassVar[bool] = False

    def __post_init__(self) -> None:
        numbers = {column.name for column in self.schema.columns if column.kind != "category"}
        if not self.log_scaled <= numbers:
            unknown = sorted(self.log_scaled - numbers)
            expected, got = "names of columns of numbers", f"{unknown[0][:60]!r}"  # a study's text may hold escapes
            cure = "Declare such a column as a number, or leave it out."
            raise InputError("log_scaled", expected=expected, got=got, cure=cure)
        if not 0 < self.constant_share < 1:
            raise InputError(
                "constant_share", expected="between 0 and 1", got=str(self.constant_share), cure="0.3 is the default."
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
        """Whether φ has length one, which is so with hat functions."""
        return self.n_hats > 0

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each feature; the constant comes last."""
        return (*(name for column in self.schema.columns for name in self._names(column)), "constant")

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

    @property
    def linear_weight(self) -> float:
        """The weight of the feature that is a number itself."""
        return _BESIDE_HATS if self.n_hats else 1.0

    @cached_property
    def _alike(self) -> list[tuple[Column, int]]:
        """Runs of columns with features of the same form, as the first column and the length of each run."""

        def form(column: Column) -> tuple[Any, ...]:
            log, indicated = column.name in self.log_scaled, column.missing == "indicate"
            return column.kind == "category", len(column.categories), log, indicated

        runs = (list(columns) for _, columns in groupby(self.schema.columns, form))
        return [(columns[0], len(columns)) for columns in runs]

    def count_hats(self, column: Column) -> int:
        """Return the number of hat functions of a column of numbers."""
        return max(0, self.n_hats - (column.name in self.log_scaled))

    def _width(self, column: Column) -> int:
        if column.kind == "category":
            width = 1 if len(column.categories) == 2 else len(column.categories)
        else:
            width = 1 + self.count_hats(column)
        return width + (column.missing == "indicate")

    def _names(self, column: Column) -> Iterator[str]:
        if column.kind == "category":
            levels = column.categories
            yield from (f"{column.name}={level}" for level in (levels[1:] if len(levels) == 2 else levels))
        else:
            yield f"log {column.name}" if column.name in self.log_scaled else column.name
            yield from (f"{column.name}, hat {k + 1}" for k in range(self.count_hats(column)))
        if column.missing == "indicate":
            yield f"{column.name}: missing"

    def _write(self, column: Column, encoded: Matrix, phi: Matrix) -> None:
        """Write the features of columns of this form. The axes of both arrays are column, entry or feature, and row."""
        if column.missing == "indicate":
            np.subtract(encoded[:, -1], 0.5, out=phi[:, -1])
        if column.kind == "category":
            n_levels = len(column.categories)
            levels = encoded[:, :n_levels]
            if n_levels == 2:
                np.subtract(levels[:, 1], levels[:, 0], out=phi[:, 0])
                phi[:, 0] *= 0.5
            else:
                np.subtract(levels, levels.sum(axis=1, keepdims=True) / n_levels, out=phi[:, :n_levels])
            return
        x, low = encoded[:, 0], -1.0
        if column.name in self.log_scaled:
            x, low = np.log1p((x + 1) / 2 * (DECADES - 1)) / math.log(DECADES), 0.0
        np.multiply(x, self.linear_weight, out=phi[:, 0])
        hats = self.count_hats(column)
        if hats:
            curves = phi[:, 1 : 1 + hats]
            np.subtract(x[:, None], np.linspace(low, 1.0, hats)[:, None], out=curves)
            np.abs(curves, out=curves)
            curves *= (1 - hats) / (1 - low)  # minus one over the distance of centres
            curves += 1
            np.clip(curves, 0.0, 1.0, out=curves)  # values never exceed 1; np.maximum would take three times as long


@dataclass(frozen=True)
class RowFeatures:
    """Encoded rows as features, scaled to length one."""

    n_inputs: int
    """The number of entries of an encoded row."""
    constant_share: float = 0.3
    """c₀."""
    unit_length: ClassVar[bool] = True
    is_dense: ClassVar[bool] = False

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
    """Raise an `InputError` for rows that do not have the width of a feature map."""
    if rows.ndim != 2 or rows.shape[1] != features.n_inputs:
        expected, got = f"encoded rows of {features.n_inputs} numbers", f"shape {rows.shape}"
        raise InputError("rows", expected=expected, got=got, cure="Encode them with the study of these features.")


def scale_to_unit(phi: Matrix, constant_share: float, *, largest: float | None = None) -> None:
    """Scale all features but the last to a norm of √(1 − c₀), or by `largest`, and set the last to √c₀, in place."""
    features = phi[:, :-1]
    if largest is not None:
        features *= math.sqrt(1 - constant_share) / largest
    else:
        norms = np.sqrt(np.einsum("ij,ij->i", features, features))[:, None]
        features *= math.sqrt(1 - constant_share) / np.where(norms > 0, norms, 1.0)
    phi[:, -1] = math.sqrt(constant_share)
