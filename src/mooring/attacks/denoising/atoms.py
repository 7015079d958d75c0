"""Atoms: the points of the encoded space that a declared column can take.

Categories are points at a distance of √2, integers form a grid, and a missing value may add a point. Other numbers, and
integers with too many values, get a grid that is fine compared with the noise. In addition, every value that is frequent
among known rows, such as zero in a column of capital gains, is a point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.tables.schema import Column
from mooring.typing import Matrix, Vector

_MOST_STEPS = 128  # steps of a grid
_STEPS_A_NOISE = 3
_OFTEN = 0.02  # share of the known rows from which a value counts as frequent


@dataclass(frozen=True, eq=False)
class AtomGroup:
    """The atoms of one column."""

    features: slice
    """The column's features in encoded rows."""
    atoms: Matrix
    """The atoms, of shape (n_atoms, width)."""
    widths: Vector
    """Variance of the values that each atom represents, of shape (n_atoms,); zero unless the grid is coarser than the
    values."""
    grid: slice
    """The atoms that form a grid, in order; empty for a category."""
    step: float
    """Distance between neighbours on the grid."""

    def log_likelihoods(self, rows: Matrix, variance: float) -> Matrix:
        """Return log-likelihoods of the atoms for noisy encoded rows, up to a common term, of shape (n, n_atoms)."""
        cells = rows[:, self.features]
        spread = variance + self.widths
        squares = (cells**2).sum(axis=1)[:, None] + (self.atoms**2).sum(axis=1) - 2 * cells @ self.atoms.T
        return np.asarray(-squares / (2 * spread) - np.log(spread) / 2)

    def nearest(self, rows: Matrix) -> npt.NDArray[np.intp]:
        """Return the atom nearest to each row."""
        cells = rows[:, self.features]
        return np.asarray(((self.atoms**2).sum(axis=1) - 2 * cells @ self.atoms.T).argmin(axis=1))

    def means(self, weights: Matrix, rows: Matrix, variance: float) -> Matrix:
        """Return the expected values of rows whose atoms have the probabilities `weights`, of shape (n, n_atoms)."""
        kept = self.widths / (self.widths + variance)
        return np.asarray(
            weights @ ((1 - kept)[:, None] * self.atoms) + (weights @ kept)[:, None] * rows[:, self.features]
        )


def make_atoms(
    columns: Sequence[Column], known: Matrix, noise: float, noisy: Matrix | None = None
) -> Iterator[AtomGroup]:
    """Yield the atoms of every column, in order.

    Grids need not be much finer than the noise. A column without a declared range gets the range of the known and noisy
    rows.
    """
    every, start = known if noisy is None else np.concatenate([known, noisy]), 0
    lows, highs = every.min(axis=0), every.max(axis=0)
    for column in columns:
        features = slice(start, start + column.width)
        if column.kind == "category":
            yield _category(column, features)
        else:
            bounds = (float(lows[start]), float(highs[start])) if column.inferred else (-1.0, 1.0)
            yield _number(column, features, bounds, known[:, start], noise)
        start += column.width


def _category(column: Column, features: slice) -> AtomGroup:
    k = len(column.categories)
    atoms = np.eye(k, column.width)
    if column.missing == "indicate" or (column.missing == "fill" and column.fill is None):
        missing = np.zeros((1, column.width))
        missing[0, k:] = 1.0
        if column.fill is not None:
            missing[0, column.categories.index(str(column.fill))] = 1.0
        atoms = np.vstack([atoms, missing])
    if k == 0:  # only whether the value is missing
        atoms = np.array([[0.0], [1.0]])
    return AtomGroup(features, atoms, np.zeros(len(atoms)), slice(0, 0), 0.0)


def _number(column: Column, features: slice, bounds: tuple[float, float], known: Vector, noise: float) -> AtomGroup:
    low, high = bounds
    exact = 1 / column.spread if column.kind in ("integer", "date") else 0.0
    step = max(noise / _STEPS_A_NOISE, (high - low) / _MOST_STEPS)
    if exact >= step / 2:  # the grid holds the integers of the table
        first, last = (column.centre + bound * column.spread for bound in bounds)
        whole = np.arange(np.ceil(first - 1e-6), np.floor(last + 1e-6) + 1)
        grid, width, step, often = (whole - column.centre) / column.spread, 0.0, exact, np.zeros(0)
    else:
        grid, width = np.arange(low, high + step / 2, step), step**2 / 12
        values, counts = np.unique(known, return_counts=True)
        often = values[counts >= max(2, _OFTEN * known.size)]
    fill = (column.centre if column.fill is None else float(column.fill)) - column.centre
    extra = [*often, *([fill / column.spread] if column.missing == "fill" else [])]
    atoms = np.zeros((grid.size + len(extra), column.width))
    atoms[:, 0] = [*grid, *extra]
    if column.missing == "indicate":
        atoms = np.vstack([atoms, [fill / column.spread, 1.0]])
    every = np.r_[np.full(grid.size, width), np.zeros(len(atoms) - grid.size)]
    return AtomGroup(features, atoms, every, slice(0, grid.size), float(step))
