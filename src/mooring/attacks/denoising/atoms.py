"""What values a declared column can have, as points of the encoded space: its atoms.

A category is one of a few points √2 apart, an integer one of a grid, and what is missing a point of its own. Numbers
that are not whole, or whole ones too many to count, have a grid that is fine beside the noise, and besides every value that
known rows have often: a column of gains has many zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.tables.schema import Column
from mooring.typing import Matrix, Vector

_MOST_STEPS = 128  # of a grid
_STEPS_A_NOISE = 3
_OFTEN = 0.02  # of the known rows


@dataclass(frozen=True, eq=False)
class AtomGroup:
    """One column's atoms."""

    features: slice
    """Which features of the encoded rows are the column's."""
    atoms: Matrix
    """Of shape (n_atoms, width)."""
    widths: Vector
    """Of shape (n_atoms,): variance of the values that an atom stands for; zero but on a grid coarser than the
    values."""
    grid: slice
    """Which atoms are neighbours on a grid, in order; empty for a category."""
    step: float
    """Between these."""

    def log_likelihoods(self, rows: Matrix, variance: float) -> Matrix:
        """Of each atom, up to a term that all share, for encoded rows with independent noise; shape (n, n_atoms)."""
        own = rows[:, self.features]
        spread = variance + self.widths
        squares = (own**2).sum(axis=1)[:, None] + (self.atoms**2).sum(axis=1) - 2 * own @ self.atoms.T
        return np.asarray(-squares / (2 * spread) - np.log(spread) / 2)

    def nearest(self, rows: Matrix) -> npt.NDArray[np.intp]:
        """The atom that each row is, or is nearest to."""
        own = rows[:, self.features]
        return np.asarray(((self.atoms**2).sum(axis=1) - 2 * own @ self.atoms.T).argmin(axis=1))

    def means(self, weights: Matrix, rows: Matrix, variance: float) -> Matrix:
        """The expected values of rows whose atoms have these probabilities."""
        kept = self.widths / (self.widths + variance)
        return np.asarray(
            weights @ ((1 - kept)[:, None] * self.atoms) + (weights @ kept)[:, None] * rows[:, self.features]
        )


def make_atoms(
    columns: Sequence[Column], known: Matrix, noise: float, noisy: Matrix | None = None
) -> Iterator[AtomGroup]:
    """The atoms of every column, in order."""
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
    if k == 0:  # nothing but whether it is missing
        atoms = np.array([[0.0], [1.0]])
    return AtomGroup(features, atoms, np.zeros(len(atoms)), slice(0, 0), 0.0)


def _number(column: Column, features: slice, bounds: tuple[float, float], known: Vector, noise: float) -> AtomGroup:
    low, high = bounds
    exact = 1 / column.spread if column.kind in ("integer", "date") else 0.0
    step = max(noise / _STEPS_A_NOISE, (high - low) / _MOST_STEPS)
    if exact >= step / 2:  # whole numbers of the table's own unit
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
