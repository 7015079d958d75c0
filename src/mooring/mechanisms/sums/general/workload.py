"""The general total: sums from which the answers of a study follow, whichever column is the outcome.

Legend: h_j the weights of a row on the levels of column j, of J columns, with Σ h_j = 1; M_j the contrasts of column j; c₀,
s_j the shares of the constant and of column j, c₀ + Σ s_j = 1; κ the share of a bubble; D the order of S.

    φ = (√c₀, M₁h₁, …, M_J h_J),        max ‖M_j h_j‖² = s_j,        S = Σ φφᵀ without the blocks of a column with itself.

The block of a column with itself follows from the products with the constant if every record lies on one level of the
column. A number can lie between two nodes, at a fraction t of the way. For such a column, the product of the constant and a
'bubble' √(κ s_j) 4t(1 − t) is summed too. The sum of the bubble makes squares of functions that are linear in the node index
exact.

A function of column j with the value g_a at level a is ⟨v, φ⟩ for a vector v = v(g) that solves
Σ_i (M_j)_ia v_i + v₀√c₀ = g_a at every level. The sum over rows of the product of two such functions is ⟨A, S⟩. For
functions of two columns, A is the symmetric part of v v′ᵀ. For functions g, g′ of the same column, A is the symmetric part
of v(gg′) e₀ᵀ/√c₀, where e₀ is the unit vector of the constant; the bubble has the coefficient −δδ′/4, where δ, δ′ are the
steps of g, g′ between nodes. The noise has variance σ² on the diagonal of S and σ²/2 off the diagonal, so that ⟨A, S⟩ and
⟨A′, S⟩ have the covariance σ²⟨A, A′⟩.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.general.impossible import Combination, find_combination, read_combination
from mooring.mechanisms.sums.general.levels import (
    LINEAR_WEIGHT,
    Levels,
    label_levels,
    make_levels,
    quantise_places,
    round_at_random,
    write_weights,
)
from mooring.mechanisms.sums.general.survival import (
    Survival,
    find_survival_columns,
    locate_survival,
    make_survival_levels,
    write_survival_weights,
)
from mooring.mechanisms.sums.sums import Integers
from mooring.tables.column_encoder import coded_width
from mooring.tables.schema import Schema
from mooring.typing import Indices, Labels, Matrix, Vector

RESOLUTION = 2**17
"""B, the integer that represents 1 in φ. A total can then have about 2²⁵ rows."""
CONSTANT_SHARE = 0.15
_OUTCOME_SHARE = 0.2  # the share of the label or of survival; if a study has both, each has 0.15
_BUBBLE_SHARE = 0.02
SmallIntegers: TypeAlias = npt.NDArray[np.signedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Functional:
    """A function of one column, given by the vector v of its coordinates."""

    column: str
    """Name of the column; empty for the constant."""
    values: Vector
    """The function's value at each level; for the constant, a single 1."""
    vector: Vector
    """v, of shape (D,)."""


@dataclass(frozen=True)
class Workload:
    """What is summed for the general total: columns with their levels, contrasts and shares.

    Examples
    --------
    >>> from mooring.mechanisms.sums.general.total import sum_exactly
    >>> from mooring.tables.schema import Column
    >>> schema = Schema((Column("age", "number", 0, 100), Column("sex", "category", categories=("f", "m"))))
    >>> workload = make_workload(schema)
    >>> total = sum_exactly(workload, np.array([[0.2, 1.0, 0.0], [-0.3, 0.0, 1.0]]))
    >>> women, age = workload.indicator("sex", "f"), workload.number("age")
    >>> round(total.estimate(workload.product(age, women)), 9)
    60.0
    """

    columns: tuple[Levels, ...]
    """The schema's columns in their order, then the label, then the column of survival, if there are such. Survival replaces
    the columns of time and event."""
    shares: tuple[float, ...]
    """s_j."""
    label: str = ""
    """Name of the label's column; empty if there is no label, or if the label is survival's event."""
    survival: Survival | None = None
    constant_share: float = CONSTANT_SHARE
    """c₀."""
    resolution: int = RESOLUTION
    """B."""
    places: tuple[int, ...] = ()
    """Index of the first entry of each column in an encoded row; −1 for the label and for survival."""
    n_inputs: int = 0
    """The number of entries of an encoded row."""
    survival_places: tuple[int, ...] = ()
    """Index of the first entry of the columns of time and of event in an encoded row; −1 for the label."""
    survival_sources: tuple[Levels, ...] = ()
    """Levels of the columns of time and event, from which the column of survival is made."""
    coded_places: tuple[int, ...] = ()
    """As `places`, but in coded rows. In these, a category is a single entry, the index of its word (`code`)."""
    coded_survival_places: tuple[int, ...] = ()
    """As `survival_places`, but in coded rows."""
    impossible: tuple[Combination, ...] = ()
    """Declared combinations of levels that cannot occur. Only synthetic rows depend on them; sums do not."""

    def column(self, name: str) -> Levels:
        """Return the levels of a column, or raise an `InputError` for an unknown name."""
        return self.columns[self._index(name)]

    def _index(self, name: str) -> int:
        for index, levels in enumerate(self.columns):
            if levels.name == name:
                return index
        known = ", ".join(repr(levels.name) for levels in self.columns)
        problem = f"The study has no column {name[:60]!r}. Its columns are {known}."
        raise InputError("column", problem=problem, cure="Use one of these names.")

    @property
    def outcomes(self) -> tuple[str, ...]:
        """Names of the label and of the column of survival, as far as the workload has them."""
        return tuple(levels.name for levels, place in zip(self.columns, self.places, strict=True) if place < 0)

    @property
    def regressed(self) -> tuple[Levels, ...]:
        """Columns that a regression can name: all but survival, and numbers on a logarithmic scale from zero or below."""
        return tuple(
            levels for levels in self.columns if levels.kind != "survival" and not (levels.is_log and levels.low <= 0)
        )

    @property
    def regression_outcomes(self) -> tuple[Levels, ...]:
        """Columns that can be the outcome of a regression: numbers, and categories of two levels besides missing values."""
        return tuple(levels for levels in self.regressed if levels.nodes or levels.n_levels - levels.has_missing == 2)

    @property
    def has_regressions(self) -> bool:
        """Whether some column can be regressed on another."""
        return bool(self.regression_outcomes) and len(self.regressed) > 1

    def narrow(self, names: Collection[str]) -> Workload:
        """Return the workload of only the outcomes and these columns, with new shares and no impossible combinations."""
        kept = self.select({*names, *self.outcomes})
        shares = _split_shares(kept.columns, [index for index, place in enumerate(kept.places) if place < 0])
        return replace(kept, shares=shares)

    def select(self, names: Collection[str]) -> Workload:
        """Return the workload of only these columns, which keep their shares, without impossible combinations."""
        kept = [index for index, levels in enumerate(self.columns) if levels.name in names]
        columns, shares = tuple(self.columns[index] for index in kept), tuple(self.shares[index] for index in kept)
        places, coded = (tuple(places[index] for index in kept) for places in (self.places, self.coded_places))
        return replace(self, columns=columns, shares=shares, places=places, coded_places=coded, impossible=())

    @cached_property
    def names(self) -> frozenset[str]:
        """Names of the columns."""
        return frozenset(levels.name for levels in self.columns)

    @cached_property
    def n_features(self) -> int:
        """The length of φ."""
        return 1 + sum(levels.n_levels - 1 for levels in self.columns)

    @cached_property
    def size(self) -> int:
        """D, the order of S: the length of φ plus the number of bubbles, which come last."""
        return self.n_features + len(self.bubbles)

    @cached_property
    def n_levels(self) -> int:
        """The total number of levels, over all columns."""
        return sum(levels.n_levels for levels in self.columns)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The index in φ of each column's first contrast."""
        return tuple(int(k) for k in 1 + np.cumsum([0, *(levels.n_levels - 1 for levels in self.columns)]))[:-1]

    @cached_property
    def bubbles(self) -> dict[int, int]:
        """Maps the index of each column with a bubble to the index of this bubble in S."""
        having = [index for index, levels in enumerate(self.columns) if not levels.is_exact]
        return {index: self.n_features + k for k, index in enumerate(having)}

    @cached_property
    def constant_integer(self) -> int:
        """√c₀ in integers."""
        return round(math.sqrt(self.constant_share) * self.resolution)

    @cached_property
    def integer_contrasts(self) -> tuple[Integers, ...]:
        """M_j in integers, for integer weights whose sum is U, the unit of the column."""
        matrices = []
        for levels, share in zip(self.columns, self.shares, strict=True):
            contrasts = levels.contrasts
            largest = float((contrasts**2).sum(axis=0).max()) or 1.0  # a single level has no contrasts
            scale = self.resolution * math.sqrt(share / largest) / levels.unit
            matrices.append(np.rint(scale * contrasts).astype(np.int64))
        return tuple(matrices)

    def scaled_contrasts(self, index: int) -> Matrix:
        """Return M_j for weights of sum 1, in the units of φ."""
        return np.asarray(
            self.integer_contrasts[index] * (self.columns[index].unit / self.resolution), dtype=np.float64
        )

    @cached_property
    def integer_bubbles(self) -> tuple[int, ...]:
        """The height of each column's bubble in integers; 0 for columns without a bubble."""
        return tuple(
            0 if levels.is_exact else round(self.resolution * math.sqrt(_BUBBLE_SHARE * share))
            for levels, share in zip(self.columns, self.shares, strict=True)
        )

    @cached_property
    def integer_shares(self) -> tuple[int, ...]:
        """For each column, the largest ‖M_j h_j‖² in integers. Some level attains it, since the norm is convex in h_j."""
        return tuple(
            levels.unit**2 * int((contrasts**2).sum(axis=0).max())
            for levels, contrasts in zip(self.columns, self.integer_contrasts, strict=True)
        )

    @property
    def integer_sensitivity_squared(self) -> int:
        """Δ² in integers: a bound on the squared norm of what one row adds to S, where off-diagonal entries count twice.

        For a row with x_j = ‖M_j h_j‖² and bubbles β_j, this squared norm is (c₀ + Σ x_j)² − Σ x_j² + 2 c₀ Σ β_j². It grows
        with every x_j and every β_j, and is therefore largest where all x_j and β_j are largest.
        """
        constant, shares = self.constant_integer**2, self.integer_shares
        squares = sum(share**2 for share in shares)
        bubbles = sum(height**2 for height in self.integer_bubbles)
        return (constant + sum(shares)) ** 2 - squares + 2 * constant * bubbles

    @property
    def sensitivity_squared(self) -> float:
        """Δ² in the units of S."""
        return self.integer_sensitivity_squared / self.resolution**4

    def noise_variance(self, multiplier: float) -> float:
        """Return σ² of S for noise of `multiplier` times the sensitivity."""
        return multiplier**2 * self.sensitivity_squared

    @cached_property
    def _readouts(self) -> tuple[Matrix, ...]:
        """For each column, the matrix that computes v from the values at its levels: the constant's part, then contrasts."""
        matrices = []
        for index, levels in enumerate(self.columns):
            matrices.append(np.linalg.inv(np.vstack([np.ones(levels.n_levels), self.scaled_contrasts(index)]).T))
        return tuple(matrices)

    @cached_property
    def constant(self) -> Functional:
        """The function that is 1 for every row."""
        vector = np.zeros(self.size)
        vector[0] = self.resolution / self.constant_integer
        return Functional("", np.ones(1), vector)

    def functional(self, column: str, values: Sequence[float] | Vector) -> Functional:
        """Return the function that takes these values at the levels of a column and is linear between nodes."""
        index, numbers = self._index(column), np.asarray(values, dtype=np.float64)
        n_levels = self.columns[index].n_levels
        if numbers.shape != (n_levels,):
            expected, got = f"{n_levels} numbers, one per level of {column!r}", f"shape {numbers.shape}"
            raise InputError("values", expected=expected, got=got, cure="Give one value per level.")
        solved = self._readouts[index] @ numbers
        vector = solved[0] * self.constant.vector
        vector[self.starts[index] :][: n_levels - 1] = solved[1:]
        return Functional(column, numbers, vector)

    def number(self, column: str) -> Functional:
        """Return the function that is a column's number, on the scale of its nodes, and 0 where the number is missing."""
        levels = self.column(column)
        if not levels.nodes:
            problem = f"The column {column!r} has levels, not numbers."
            raise InputError("column", problem=problem, cure="Use a column of numbers, or an indicator of a level.")
        return self.functional(column, [*levels.nodes, *([0.0] if levels.has_missing else [])])

    def indicator(self, column: str, level: str) -> Functional:
        """Return the function that is 1 at one level and 0 at the others; for a node of a number, its hat function."""
        levels = self.column(column)
        if level not in levels.names:
            problem = f"The column {column!r} has no level {level[:60]!r}. Its levels are {', '.join(levels.names)}."
            raise InputError("level", problem=problem, cure="Use one of them.")
        return self.functional(column, [float(name == level) for name in levels.names])

    def present(self, column: str) -> Functional:
        """Return the function that is 1 unless the value is missing."""
        levels = self.column(column)
        known = [1.0] * (levels.n_levels - levels.has_missing)
        return self.functional(column, known + [0.0] * levels.has_missing)

    def factors(self, first: Functional, second: Functional) -> tuple[Vector, Vector]:
        """Return vectors u and v for which uᵀSv is the sum over rows of the product of two functions.

        For two functions of the same column, this sum is exact if each row lies on one level, or if both functions are
        linear in the node index. Otherwise it is an approximation.
        """
        if not first.column == second.column != "":
            return first.vector, second.vector
        index = self._index(first.column)
        squares = self.functional(first.column, first.values * second.values)
        if index in self.bubbles:
            nodes = slice(len(self.columns[index].nodes))
            steps = float((np.diff(first.values[nodes]) * np.diff(second.values[nodes])).mean())
            squares.vector[self.bubbles[index]] = -steps / 4 * self.resolution / self.integer_bubbles[index]
        return squares.vector, self.constant.vector

    def product(self, first: Functional, second: Functional) -> Matrix:
        """Return the matrix A for which ⟨A, S⟩ is the sum over rows of a product: the symmetric part of uvᵀ (`factors`)."""
        return _symmetric(np.outer(*self.factors(first, second)))

    @cached_property
    def shared(self) -> npt.NDArray[np.bool_]:
        """Which entries of S are shared: none of a column with itself, and of a bubble only that with the constant."""
        shared = np.ones((self.size, self.size), dtype=np.bool_)
        for start, levels in zip(self.starts, self.columns, strict=True):
            shared[start : start + levels.n_levels - 1, start : start + levels.n_levels - 1] = False
        shared[self.n_features :, 1:] = shared[1:, self.n_features :] = False
        return shared

    def assemble(self, products: Matrix, bubbles: Vector) -> Matrix:
        """Return S, given the sum of (1, h)(1, h)ᵀ, where h has the weights of all columns, and the sums of 4t(1 − t)."""
        transform, at = np.zeros((self.size, self.n_levels + 1)), 1
        transform[0, 0] = self.constant_integer / self.resolution
        for index, (start, levels) in enumerate(zip(self.starts, self.columns, strict=True)):
            block = self.scaled_contrasts(index)
            transform[start : start + levels.n_levels - 1, at : at + levels.n_levels] = block
            at += levels.n_levels
        matrix = np.where(self.shared, transform @ products @ transform.T, 0.0)
        for curve, (index, place) in zip(bubbles, self.bubbles.items(), strict=True):
            height = self.integer_bubbles[index] * self.constant_integer / self.resolution**2
            matrix[0, place] = matrix[place, 0] = height * curve
        return matrix

    def weigh(self, rows: Matrix, labels: Labels | None = None) -> tuple[Matrix, Matrix]:
        """Return h, the weights of encoded rows on the levels of all columns, and 4t(1 − t) of columns with bubbles.

        `labels` are as in `EncodedRows`; without them, the weights of the label are zero.
        """
        weights, bubbles = np.zeros((self.n_levels, len(rows))).T, np.zeros((len(rows), len(self.bubbles)))
        at = 0
        for index, (levels, place) in enumerate(zip(self.columns, self.places, strict=True)):
            target = weights[:, at : at + levels.n_levels]
            at += levels.n_levels
            if levels.kind == "survival":
                assert self.survival is not None
                write_survival_weights(self.survival, self.survival_sources, self.survival_places, rows, labels, target)
                continue
            t = write_weights(levels, place, rows, labels, target)
            if index in self.bubbles:
                bubbles[:, self.bubbles[index] - self.n_features] = 4 * t * (1 - t)
        return weights, bubbles

    def quantise(self, rows: Matrix, labels: Labels | None, rng: np.random.Generator) -> tuple[SmallIntegers, Integers]:
        """Return the places of coded rows among the levels, of shape (J, n), and bubbles, of shape (n, number of bubbles).

        Places are in units of 1/U: level k of a column has the place kU, and a row on none of its levels has the place −U.
        Bubbles are in units of 1/B. Places between two nodes, and bubbles, are rounded up or down at random so that the
        expectations of weights and bubbles are exact. The sensitivity does not depend on this rounding.
        """
        places = np.empty((len(self.columns), len(rows)), dtype=self.units.dtype)
        bubbles = np.zeros((len(self.bubbles), len(rows)), dtype=np.int64).T  # column by column, like rows
        for index, (levels, place) in enumerate(zip(self.columns, self.coded_places, strict=True)):
            if levels.kind == "survival":
                assert self.survival is not None
                at_time, at_event = self.coded_survival_places
                event, _ = quantise_places(self.survival_sources[1], at_event, rows, labels, rng)
                places[index] = locate_survival(self.survival, self.survival_sources, rows[:, at_time:], event)
                continue
            places[index], t = quantise_places(levels, place, rows, labels, rng)
            if index in self.bubbles:
                height = self.integer_bubbles[index]
                bubbles[:, self.bubbles[index] - self.n_features] = round_at_random(height * (4 * t * (1 - t)), rng)
        return places, bubbles

    def code(self, rows: Matrix) -> Matrix:
        """Convert encoded rows to coded rows, in which a category is a single entry: the index of its word, or −1."""
        columns = [*zip(self.columns, self.places, self.coded_places, strict=True)]
        columns += zip(self.survival_sources, self.survival_places, self.coded_survival_places, strict=True)
        width = max((coded + 2 for _, _, coded in columns), default=0)
        coded_rows = np.zeros((len(rows), width), order="F")
        for levels, place, coded in columns:
            if place >= 0 and levels.kind == "category":
                n_words = levels.n_levels - levels.has_missing
                words = rows[:, place : place + n_words]
                coded_rows[:, coded] = words @ np.arange(1.0, n_words + 1) - 1  # −1 where no word's entry is 1
            elif place >= 0:
                n_entries = 1 + levels.has_missing
                coded_rows[:, coded : coded + n_entries] = rows[:, place : place + n_entries]
        return coded_rows

    def spread(self, places: SmallIntegers, levels: Indices) -> SmallIntegers:
        """Return the weights that rows at these places have on the given levels, in units of 1/U, of shape (levels, n).

        The weight on level k is max(0, U − |place − kU|). Weights are not negative. For a place from the first to the last
        level of a column, the weights on its levels sum to U.
        """
        weights = places[self.columns_of_levels[levels]]
        weights -= self._level_places[levels]
        np.abs(weights, out=weights)
        np.subtract(self._units_of_levels[levels], weights, out=weights)
        return np.maximum(weights, 0, out=weights)

    @cached_property
    def columns_of_levels(self) -> Indices:
        """The index of each level's column."""
        return np.repeat(np.arange(len(self.columns)), [levels.n_levels for levels in self.columns])

    @cached_property
    def ends(self) -> tuple[int, ...]:
        """The index after each column's last level, among the levels of all columns."""
        return tuple(int(k) for k in np.cumsum([levels.n_levels for levels in self.columns]))

    @cached_property
    def units(self) -> SmallIntegers:
        """U of each column, in the smallest type that holds all places and their differences."""
        largest = max((levels.n_levels + 1) * levels.unit for levels in self.columns)
        return np.array([levels.unit for levels in self.columns], dtype=np.int16 if largest < 2**15 else np.int32)

    @cached_property
    def _units_of_levels(self) -> SmallIntegers:
        return self.units[self.columns_of_levels][:, None]

    @cached_property
    def _level_places(self) -> SmallIntegers:
        """The place of each level in its column, kU, of shape (number of levels, 1)."""
        order = np.concatenate([np.arange(levels.n_levels) for levels in self.columns])
        return np.asarray(order[:, None] * self._units_of_levels, dtype=self.units.dtype)


def make_workload(
    schema: Schema,
    *,
    log_scaled: frozenset[str] = frozenset(),
    survival: Survival | None = None,
    linear_weight: int = LINEAR_WEIGHT,
    impossible: Sequence[str] = (),
) -> Workload:
    """Return the workload of the general total for a schema.

    The label is one more column. With `survival`, the columns of time and event become one column of intervals. A larger
    `linear_weight` lowers the noise of means, correlations and slopes of numbers, and raises the noise of other functions of
    numbers. `impossible` has combinations such as "sex=m, pregnant=yes". An `InputError` is raised for columns, survival or
    combinations that do not fit.
    """
    columns = [make_levels(column, is_log=column.name in log_scaled) for column in schema.columns]
    places = [int(place) for place in np.cumsum([0, *(column.width for column in schema.columns)])[:-1]]
    coded = [int(place) for place in np.cumsum([0, *map(coded_width, schema.columns)])[:-1]]
    if schema.label.kind != "none":
        columns.append(label_levels(schema.label))
        places.append(-1)
        coded.append(-1)
    columns = [replace(levels, linear_weight=linear_weight) for levels in columns]
    kept, sources = list(range(len(columns))), list[int]()
    if survival is not None:
        sources = find_survival_columns(survival, columns)
        kept = [index for index in kept if index not in sources]
    levels, at = [columns[index] for index in kept], [places[index] for index in kept]
    coded_at = [coded[index] for index in kept]
    outcomes = [index for index in range(len(levels)) if at[index] < 0]
    label = levels[outcomes[0]].name if outcomes else ""
    if survival is not None:
        outcomes.append(len(levels))
        levels.append(make_survival_levels(survival, any(columns[index].has_missing for index in sources)))
        at.append(-1)
        coded_at.append(-1)
    return Workload(
        tuple(levels),
        _split_shares(levels, outcomes),
        label,
        survival,
        places=tuple(at),
        n_inputs=schema.n_features,
        survival_places=tuple(places[index] for index in sources),
        survival_sources=tuple(columns[index] for index in sources),
        coded_places=tuple(coded_at),
        impossible=tuple(find_combination(levels, read_combination(text)) for text in impossible),
        coded_survival_places=tuple(coded[index] for index in sources),
    )


def _split_shares(levels: Sequence[Levels], outcomes: Sequence[int]) -> tuple[float, ...]:
    """Return the shares s_j of all columns.

    Each outcome has a fixed share. The other columns of two or more levels split the rest in proportion to √b_j, where b_j
    is the number of levels. If there are no such columns, the outcomes split the rest evenly.
    """
    weights = [0.0 if column.n_levels < 2 else math.sqrt(column.n_levels) for column in levels]
    of_others = sum(weight for index, weight in enumerate(weights) if index not in outcomes)
    left = 1 - CONSTANT_SHARE
    of_outcome = _OUTCOME_SHARE - 0.05 * (len(outcomes) - 1)
    if outcomes and not of_others:
        of_outcome = left / len(outcomes)
    rest = (left - of_outcome * len(outcomes)) / (of_others or 1.0)
    return tuple(of_outcome if index in outcomes else rest * weight for index, weight in enumerate(weights))


def _symmetric(matrix: Matrix) -> Matrix:
    return np.asarray((matrix + matrix.T) / 2)
