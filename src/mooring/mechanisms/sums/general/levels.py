"""The levels of a column in the general total, and the integer contrasts that are summed.

Legend: b the number of levels of a column; h the weights of a row's value on them; U the unit of h in integers; M the
integer contrasts of the levels.

A category has one level per word. A whole number with few values has one level per value. Any other number has eight nodes
on its declared range, equally spaced on its scale: a value between two nodes has the weights 1 − t and t on these nodes (hat
functions). Missing values have a further level, unless the study refuses them or replaces them by a value. The weights of a
row are not negative and sum to one. For a category's value that is none of the declared words and has no other level, they
are all zero.

Sums use h and M as integers. Answers are computed from the total with the same M, so that the rounding of M does not bias
them. The weights of a number are rounded at random, without bias, to multiples of 1/U. For whole numbers U is chosen, where
possible, so that all weights are such multiples already and need no rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.features.columns import DECADES, level_contrasts
from mooring.tables.schema import Column, Label
from mooring.typing import Indices, Labels, Matrix, Vector

LevelKind = Literal["category", "number", "survival"]
MISSING = "missing"
N_NODES = 8
_HAT_UNIT = 2**9
_ROUNDING = 1e-6  # distance from an integer below which a weight counts as that integer
LINEAR_WEIGHT = 3
"""The squared norm of a number's linear contrast by default; that of its other contrasts is 1."""


@dataclass(frozen=True)
class Levels:
    """The levels of one column, and where its values lie among them."""

    name: str
    """Name of the column."""
    kind: LevelKind
    """A number has either one level per value, or nodes with hat functions; see `is_exact`."""
    names: tuple[str, ...]
    """Names of the levels. If there is a level of missing values, it comes last, with the name "missing" where this name is
    not taken."""
    nodes: tuple[float, ...] = ()
    """The value at each node, in the unit of the column or on its logarithmic scale; empty unless the column is a number. A
    number with one level per value has a node at each value."""
    low: float = 0.0
    high: float = 0.0
    """The declared range of a number."""
    is_log: bool = False
    """Whether nodes are on a logarithmic scale. This is log x if the range is positive, and otherwise log(1 + 9999 u), where
    u is the position of x in its range, from 0 to 1."""
    is_whole: bool = False
    """Whether values are whole numbers."""
    has_missing: bool = False
    """Whether the last level stands for missing values."""
    linear_weight: int = LINEAR_WEIGHT
    """The squared norm of a number's linear contrast."""

    @property
    def n_levels(self) -> int:
        """The number of levels, b."""
        return len(self.names)

    @property
    def is_exact(self) -> bool:
        """Whether every value lies on one level, so that a product of functions of this column is a function of it, too."""
        return not self.nodes or (self.is_whole and not self.is_log and self.high - self.low < N_NODES)

    @property
    def unit(self) -> int:
        """U, the sum of a row's weights in integers."""
        if self.is_exact:
            return 1
        length = round(self.high - self.low)
        exact = length // math.gcd(length, N_NODES - 1) if self.is_whole and not self.is_log else 0
        return exact if 0 < exact <= _HAT_UNIT else _HAT_UNIT

    @cached_property
    def contrasts(self) -> Matrix:
        """Weighted orthogonal contrasts of the levels, of shape (b − 1, b). For a number, the first contrast is linear."""
        n_nodes = len(self.nodes)
        if n_nodes < 2:
            return level_contrasts(self.n_levels)
        contrasts = np.zeros((self.n_levels - 1, self.n_levels))
        contrasts[: n_nodes - 1, :n_nodes] = _polynomials(n_nodes)
        contrasts[0] *= math.sqrt(self.linear_weight)
        if self.has_missing:
            contrasts[-1, :n_nodes], contrasts[-1, -1] = 1.0, -n_nodes
            contrasts[-1] /= math.sqrt(n_nodes * (n_nodes + 1))
        return contrasts

    def to_scale(self, value: Any) -> Any:
        """Convert numbers from the unit of the column to the scale of its nodes."""
        if not self.is_log:
            return value
        return np.log(value) if self.low > 0 else np.log1p((np.asarray(value) - self.low) * self._decades)

    def from_scale(self, position: Any) -> Any:
        """Convert numbers from the scale of the nodes to the unit of the column."""
        if not self.is_log:
            return position
        return np.exp(position) if self.low > 0 else self.low + np.expm1(position) / self._decades

    @property
    def _decades(self) -> float:
        return (DECADES - 1) / (self.high - self.low)

    def locate(self, encoded: Matrix) -> tuple[Indices, Vector]:
        """Return, for each row of a column of numbers, the lower level a and the weight t on the level a + 1.

        `encoded` has the column's entries of encoded rows: a number from −1 to 1 and, for a column with a level of missing
        values, whether the number is missing. For a missing number, a is the last level, and t is 0.
        """
        centre, spread = self.low / 2 + self.high / 2, self.high / 2 - self.low / 2
        values = np.clip(centre + spread * encoded[:, 0], self.low, self.high)
        if self.is_whole:
            values = np.rint(values)
        if self.is_exact:
            place, t = (values - self.low).astype(np.int64), np.zeros(len(encoded))
        else:
            last = len(self.nodes) - 1
            scaled = (self.to_scale(values) - self.nodes[0]) * (last / (self.nodes[-1] - self.nodes[0]))
            if self.is_whole and not self.is_log:
                scaled = (
                    (values - self.low) * last / (self.high - self.low)
                )  # rounded once, so that t is a multiple of 1/U
            place = np.clip(np.floor(scaled), 0, last - 1).astype(np.int64)
            t = np.clip(scaled - place, 0.0, 1.0)
        if self.has_missing:
            absent = encoded[:, -1] > 0
            place[absent], t[absent] = self.n_levels - 1, 0.0
        return place, t


def make_levels(column: Column, *, is_log: bool) -> Levels:
    """Return the levels of a declared column, or raise an `InputError` for a range with fewer than two whole numbers."""
    if column.kind == "category":
        has_missing = column.missing == "indicate" or (column.missing == "fill" and column.fill is None)
        return Levels(column.name, "category", _add_missing(column.categories, has_missing), has_missing=has_missing)
    low, high, is_whole = column.low, column.high, column.kind == "integer"
    if is_whole:
        low, high = math.ceil(low), math.floor(high)
        if low >= high:
            problem = f"The range of the column {column.name!r} has fewer than two whole numbers."
            raise InputError("columns", problem=problem, cure="Declare the range that the values can take.")
    has_missing = column.missing == "indicate"
    levels = Levels(column.name, "number", (), (0.0, 1.0), float(low), float(high), is_log, is_whole, has_missing)
    if levels.is_exact:
        nodes = tuple(low + float(k) for k in range(round(high - low) + 1))
    else:
        ends = (float(levels.to_scale(low)), float(levels.to_scale(high)))
        nodes = tuple(ends[0] + (ends[1] - ends[0]) * k / (N_NODES - 1) for k in range(N_NODES))
    names = _add_missing(tuple(f"{float(levels.from_scale(node)):g}" for node in nodes), has_missing)
    return Levels(column.name, "number", names, nodes, float(low), float(high), is_log, is_whole, has_missing)


def label_levels(label: Label) -> Levels:
    """Return the levels of a label, which the general total treats as one more column."""
    if label.kind == "classes":
        return Levels(label.column, "category", label.classes)
    return make_levels(Column(label.column, "number", label.low, label.high), is_log=False)


def write_weights(levels: Levels, place: int, rows: Matrix, labels: Labels | None, target: npt.NDArray[Any]) -> Vector:
    """Write the weights of rows on a column's levels into an array of zeros.

    Returns t, the weight of each row on the second of its two nodes; 0 for categories. `place` is the index of the column's
    first entry in an encoded row, or −1 for the label, whose values are in `labels`. If `labels` is None, the weights of the
    label stay zero.
    """
    every, t = np.arange(len(rows)), np.zeros(len(rows))
    if place < 0 and labels is None:
        return t
    if levels.kind == "category":
        if place < 0:
            target[every, np.asarray(labels, dtype=np.int64)] = 1.0
        else:
            n_words = levels.n_levels - levels.has_missing
            target[:, :n_words] = rows[:, place : place + n_words]
            if levels.has_missing:
                target[:, -1] = 1 - target[:, :-1].sum(axis=1)
        return t
    index, t = levels.locate(_numbers_of(levels, place, rows, labels))
    target[every, np.minimum(index + 1, levels.n_levels - 1)] = t
    target[every, index] = 1 - t  # written last: a missing value, with t = 0, gets the weight 1 on its only level
    return t


def quantise_places(
    levels: Levels, place: int, rows: Matrix, labels: Labels | None, rng: np.random.Generator
) -> tuple[npt.NDArray[Any], Vector]:
    """Return the places of coded rows among the levels of a column in units of 1/U, and the weight t on the second node.

    Level k lies at kU. A row that lies on no level gets the place −U. A place between two nodes is rounded at random.
    """
    unit, t = levels.unit, np.zeros(len(rows))
    if place < 0 and labels is None:
        return np.full(len(rows), -unit), t
    if levels.kind == "category":
        if place < 0:
            return np.asarray(labels, dtype=np.int64), t
        words = rows[:, place]
        return (np.where(words < 0, levels.n_levels - 1, words) if levels.has_missing else words), t
    index, t = levels.locate(_numbers_of(levels, place, rows, labels))
    if levels.is_exact:
        return index, t
    return index * unit + round_at_random(unit * t, rng), t


def _numbers_of(levels: Levels, place: int, rows: Matrix, labels: Labels | None) -> Matrix:
    """Return the entries of a column of numbers in encoded rows or, for a label, its numbers on a scale from −1 to 1."""
    if place >= 0:
        return rows[:, place : place + 1 + levels.has_missing]
    middle, half = (levels.low + levels.high) / 2, (levels.high - levels.low) / 2
    return np.asarray((np.asarray(labels, dtype=np.float64)[:, None] - middle) / half)


def round_at_random(values: Vector, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Round values up or down at random, so that expectations are kept; integers, up to rounding errors, do not change."""
    nearest = np.rint(values)
    drawn = rng.random(len(values))
    drawn += values
    np.floor(drawn, out=drawn)
    np.copyto(drawn, nearest, where=np.abs(values - nearest) < _ROUNDING)
    return drawn.astype(np.int64)


def _add_missing(names: tuple[str, ...], has_missing: bool) -> tuple[str, ...]:
    if not has_missing:
        return names
    word = MISSING
    while word in names:  # the column declares a category of this name
        word = f"({word})"
    return (*names, word)


@lru_cache(maxsize=16)
def _polynomials(n: int) -> Matrix:
    """Return the orthonormal polynomials of degree 1 to n − 1 on n equally spaced nodes, of shape (n − 1, n).

    They are orthogonalised in fractions, so that they are the same on all machines.
    """
    basis = [[Fraction(1)] * n]
    for degree in range(1, n):
        vector = [Fraction(2 * a - n + 1) ** degree for a in range(n)]
        for other in basis:
            share = sum(map(Fraction.__mul__, vector, other), Fraction()) / sum(x * x for x in other)
            vector = [x - share * y for x, y in zip(vector, other, strict=True)]
        basis.append(vector)
    return np.array([[float(x) / math.sqrt(sum(y * y for y in row)) for x in row] for row in basis[1:]])
