"""The levels of a column in the general total, and the integer contrasts that are summed.

Legend: b the number of levels of a column; h the weights of a row's value on them; U the unit of h in integers; M the
integer contrasts of the levels.

A category has one level per word. A whole number with few values has one level per value. Any other number has eight nodes
on its declared range, equally spaced on its scale: a value between two nodes has weights 1 − t and t on them (hat
functions). A missing value is a further level where the study indicates missing values. Weights are not negative and sum to
one, or are all zero for a category that is none of the declared words.

Both h and M are integers, and answers are read back with the same M, so that no answer is biased by the rounding of M. The
weights of a number are rounded at random to multiples of 1/U without bias, unless they are such multiples already, as those
of whole numbers are for a suitable U.
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
    """A number may have a level per value, or nodes with hat functions; see `is_exact`."""
    names: tuple[str, ...]
    """Names of the levels; "missing" comes last."""
    nodes: tuple[float, ...] = ()
    """The value at each node, in the unit of the column or on its logarithmic scale; empty unless the column is a number."""
    low: float = 0.0
    high: float = 0.0
    """The declared range of a number."""
    is_log: bool = False
    """Whether nodes are on a logarithmic scale: log x if the range is positive, otherwise the logarithm of 1 + 9999 u, where
    u is the place in the range from 0 to 1."""
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
        """Whether every row lies on one level, so that products of functions of this column are functions of it, too."""
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
        """Weighted orthogonal contrasts of the levels, of shape (b − 1, b), the linear one of a number first."""
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
        """Return numbers in the unit of the column on the scale of its nodes."""
        if not self.is_log:
            return value
        return np.log(value) if self.low > 0 else np.log1p((np.asarray(value) - self.low) * self._decades)

    def from_scale(self, position: Any) -> Any:
        """Return numbers on the scale of the nodes in the unit of the column."""
        if not self.is_log:
            return position
        return np.exp(position) if self.low > 0 else self.low + np.expm1(position) / self._decades

    @property
    def _decades(self) -> float:
        return (DECADES - 1) / (self.high - self.low)

    def locate(self, encoded: Matrix) -> tuple[Indices, Vector]:
        """Return, for each row of a number, the lower level a and the weight t on the level a + 1.

        `encoded` has the column's entries of encoded rows: a number from −1 to 1, and whether it is missing.
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
    """Return the levels of a declared column."""
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
    """Return the levels of a label, which is one more column."""
    if label.kind == "classes":
        return Levels(label.column, "category", label.classes)
    return make_levels(Column(label.column, "number", label.low, label.high), is_log=False)


def write_weights(levels: Levels, place: int, rows: Matrix, labels: Labels | None, target: npt.NDArray[Any]) -> Vector:
    """Write the weights of rows on a column's levels into an array of zeros; return the weight t on the second node."""
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
    target[every, index] = 1 - t  # a missing value has t = 0 and one level, which is written last
    return t


def quantise_places(
    levels: Levels, place: int, rows: Matrix, labels: Labels | None, rng: np.random.Generator
) -> tuple[npt.NDArray[Any], Vector]:
    """Return where coded rows lie among the levels of a column in units of 1/U, and the weight t on the second of two nodes.

    Level k lies at kU, and a row that lies on no level at −U. A place between two nodes is rounded at random.
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
    """Return the entries of a column of numbers in encoded rows or, for a label, its numbers scaled to −1 to 1."""
    if place >= 0:
        return rows[:, place : place + 1 + levels.has_missing]
    middle, half = (levels.low + levels.high) / 2, (levels.high - levels.low) / 2
    return np.asarray((np.asarray(labels, dtype=np.float64)[:, None] - middle) / half)


def round_at_random(values: Vector, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return random integers with these expectations; a value that is an integer up to rounding errors is not changed."""
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
    while word in names:  # a declared category of this name means something else
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
