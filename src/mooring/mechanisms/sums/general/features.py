"""Models from the general total: features of the columns besides the outcome, and the sums that learners take.

Legend: φ the features of a row; S = Σ φφᵀ; c₀ the share of the constant; h, t and bubbles as in the module `workload`.

The total lacks the block of each column with itself. For indicators, this block follows from the counts c of the levels:
Σ hhᵀ = diag(c). For a number, Σ hhᵀ = diag(c) − Σ_a q_a (e_a − e_{a+1})(e_a − e_{a+1})ᵀ, where q_a = Σ t(1 − t) over the
rows between nodes a and a + 1, and e_a is the unit vector of node a. The bubble of the column is the sum of all q_a, up to a
factor; the total holds no single q_a. This sum is split into estimates of each q_a in proportion to
c_a c_{a+1}/(c_a + c_{a+1}), since a row between two nodes has weights on both nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from mooring.errors import InputError
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.features.columns import require_width
from mooring.mechanisms.sums.general.levels import Levels, write_weights
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Workload
from mooring.tables.schema import Label, Schema
from mooring.typing import Indices, Matrix, Vector

_SMALLEST = 1e-9


@dataclass(frozen=True)
class LevelFeatures:
    """The contrasts of a schema's columns as features of a model."""

    workload: Workload
    schema: Schema
    """Columns of the rows. A column that the workload lacks, such as the times of survival, has no features."""

    unit_length: ClassVar[bool] = False
    is_dense: ClassVar[bool] = False

    @cached_property
    def columns(self) -> tuple[tuple[int, int], ...]:
        """For each column with features, the column's index in the workload and the index of its first entry in a row."""
        indices = {levels.name: index for index, levels in enumerate(self.workload.columns)}
        starts = np.cumsum([0, *(column.width for column in self.schema.columns)])
        return tuple(
            (indices[column.name], int(start))
            for column, start in zip(self.schema.columns, starts, strict=False)
            if column.name in indices
        )

    @property
    def n_inputs(self) -> int:
        """The number of entries of an encoded row."""
        return self.schema.n_features

    @property
    def n_features(self) -> int:
        """The length of φ, including the constant."""
        return len(self.places)

    @property
    def constant_share(self) -> float:
        """c₀ as it is in the total: the square of √c₀ rounded to the resolution."""
        return (self.workload.constant_integer / self.workload.resolution) ** 2

    @cached_property
    def places(self) -> Indices:
        """Indices of the features in S: first the contrasts of each column, then the constant."""
        starts, levels = self.workload.starts, self.workload.columns
        parts = [np.arange(starts[index], starts[index] + levels[index].n_levels - 1) for index, _ in self.columns]
        return np.concatenate([*parts, np.zeros(1, dtype=np.int64)])

    @property
    def columns_of_features(self) -> Indices:
        """For each feature but the constant, the index of its column in the workload."""
        indices = [index for index, _ in self.columns]
        return np.repeat(indices, [self.workload.columns[index].n_levels - 1 for index in indices])

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of encoded rows."""
        require_width(rows, self)
        parts = [
            self.weigh(index, start, rows) @ self.workload.scaled_contrasts(index).T for index, start in self.columns
        ]
        return np.hstack([*parts, np.full((len(rows), 1), np.sqrt(self.constant_share))])

    def weigh(self, index: int, start: int, rows: Matrix) -> Matrix:
        """Return the weights of encoded rows on the levels of one column; `columns` has its index and its start."""
        levels = self.workload.columns[index]
        weights = np.zeros((len(rows), levels.n_levels))
        write_weights(levels, start, rows, None, weights)
        return weights


def select_schema(workload: Workload, schema: Schema, outcome: str = "") -> Schema:
    """Return the schema of rows for a model of one column, by default the label.

    The schema returned has the columns that have features, apart from the outcome, which is its label. The study's own label
    is not a feature for other outcomes, because the label is not known yet when the model is used. An `InputError` is raised
    if no model can predict the column, or if no other column has features.
    """
    name = outcome or workload.label
    require_outcome(workload, schema, name)
    kept = tuple(column for column in schema.columns if column.name != name and column.name in workload.names)
    if not kept:
        problem = f"There is no column besides {name!r} to predict it from."
        raise InputError("outcome", problem=problem, cure="Declare further columns in a new study.")
    levels = workload.column(name)
    if levels.nodes:
        label = Label(name, "number", low=levels.low, high=levels.high)
    else:
        label = Label(name, "classes", levels.names[: levels.n_levels - levels.has_missing])
    return replace(schema, columns=kept, label=label)


def require_outcome(workload: Workload, schema: Schema, name: str) -> None:
    """Raise an `InputError` for a column that no model can predict."""
    survival = workload.survival
    if not name or (survival is not None and name in (survival.time, survival.event, survival.name)):
        problem = f"{name!r} belongs to survival, which no model can predict." if name else "There is no label."
        names = ", ".join(repr(levels.name) for levels in workload.columns if levels.kind != "survival")
        raise InputError("outcome", problem=problem, cure=f"Name a column to predict, one of {names}.")
    levels = workload.column(name)
    dates = {column.name for column in schema.columns if column.is_date}
    if levels.is_log or name in dates:
        problem = f"A model cannot predict {name!r}: it is a date, or a number on a logarithmic scale."
        raise InputError("outcome", problem=problem, cure="Name a category, or a number on its own scale.")
    if not levels.nodes and levels.n_levels - levels.has_missing < 2:
        problem = f"The column {name!r} has only one category."
        raise InputError("outcome", problem=problem, cure="Name a column with two categories or more.")


def extract_sums(total: PairwiseTotal, schema: Schema) -> Sums:
    """Return the sums for a model that predicts a schema's label from its columns (`select_schema`).

    If the outcome is missing in some rows, the sums over the rows with an outcome are estimated from the sums over all rows.
    This assumes that features have the same distribution whether or not the outcome is missing.
    """
    workload, name = total.workload, schema.label.column
    features, levels = LevelFeatures(workload, schema), workload.column(schema.label.column)
    places, n_classes = features.places, len(schema.label.classes)
    products = _fill_blocks(total)[np.ix_(places, places)]
    coded = _code_outcome(levels, n_classes)
    present = 1.0
    if levels.has_missing:
        counts = _count_levels(total, workload.columns.index(levels))
        known = max(float(counts[:-1].sum()), 1.0)
        present = min(known / max(float(counts.sum()), 1.0), 1.0)
        means = np.clip(coded @ counts[:-1, None] / known, -1.0, 1.0)
        coded = np.hstack([coded, means])  # a missing outcome counts as the mean
    vectors = np.array([workload.functional(name, row).vector for row in coded]).T
    outcomes = total.matrix @ vectors
    if levels.has_missing:
        outcomes -= (1 - present) * np.outer(total.matrix @ workload.constant.vector, coded[:, -1])
    scale = float(np.sqrt(total.noise_variance))
    noise = (present * scale, scale * float(np.sqrt((vectors[1:] ** 2).sum(axis=0) / 2).mean()))
    columns = features.columns_of_features
    return Sums(present * products, outcomes[places], features.constant_share, n_classes, noise, columns=columns)


def _code_outcome(levels: Levels, n_classes: int) -> Matrix:
    """Return the coded outcome at each level but that of missing values: a number in [−1, 1], ±1, or e_k − 1/K."""
    if levels.nodes:
        middle, half = (levels.high + levels.low) / 2, (levels.high - levels.low) / 2
        return (np.array([levels.nodes]) - middle) / half
    return np.array([[-1.0, 1.0]]) if n_classes == 2 else np.eye(n_classes) - 1 / n_classes


def _fill_blocks(total: PairwiseTotal) -> Matrix:
    """Return S with the block of each column with itself, estimated from counts and bubbles."""
    workload, filled = total.workload, total.matrix.copy()
    for index, (start, levels) in enumerate(zip(workload.starts, workload.columns, strict=True)):
        contrasts = workload.scaled_contrasts(index)
        block = slice(start, start + levels.n_levels - 1)
        filled[block, block] = contrasts @ _estimate_products(total, index, levels) @ contrasts.T
    return filled


def _estimate_products(total: PairwiseTotal, index: int, levels: Levels) -> Matrix:
    """Return an estimate of Σ hhᵀ for one column."""
    workload = total.workload
    counts = np.maximum(_count_levels(total, index), 0.0)
    products = np.diag(counts)
    if index in workload.bubbles:
        first, second = counts[: len(levels.nodes) - 1], counts[1 : len(levels.nodes)]
        between = first * second / np.maximum(first + second, _SMALLEST)
        height = workload.integer_bubbles[index] * workload.constant_integer / workload.resolution**2
        curves = float(total.matrix[0, workload.bubbles[index]]) / height / 4  # Σ t(1 − t)
        curves = min(max(curves, 0.0), counts.sum() / 4)
        for a, share in enumerate(between / max(float(between.sum()), _SMALLEST)):
            step = np.zeros(levels.n_levels)
            step[a], step[a + 1] = 1.0, -1.0
            products -= share * curves * np.outer(step, step)
    return products


def _count_levels(total: PairwiseTotal, index: int) -> Vector:
    """Return the estimated sums of weights on each level of a column."""
    workload = total.workload
    name, n_levels = workload.columns[index].name, workload.columns[index].n_levels
    constant = workload.constant
    return total.estimates([workload.product(workload.functional(name, row), constant) for row in np.eye(n_levels)])
