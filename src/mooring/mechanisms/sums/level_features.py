"""Models from the general total: features of the columns besides the outcome, and the sums that learners take.

The total has no block of a column with itself. For indicators it follows from the counts c of the levels: Σ hhᵀ = diag(c).
Between nodes of a number, Σ hhᵀ = diag(c) − Σ_a q_a (e_a − e_{a+1})(e_a − e_{a+1})ᵀ, where q_a = Σ t(1 − t) over the rows
between nodes a and a + 1. Only the sum of all q_a is shared, by the bubble; it is split in proportion to the counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from mooring.errors import InputError
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.feature_map import require_width
from mooring.mechanisms.sums.levels import Levels
from mooring.mechanisms.sums.workload import Functional, PairwiseTotal, Workload
from mooring.typing import Indices, Matrix, Vector


@dataclass(frozen=True)
class LevelFeatures:
    """The contrasts of all columns but the outcome, the label and survival, as features of a model."""

    workload: Workload
    outcome: str = ""
    """Name of the column that is predicted; empty for the label."""

    unit_length: ClassVar[bool] = False
    is_dense: ClassVar[bool] = False

    @property
    def columns(self) -> tuple[int, ...]:
        """Indices in the workload of the columns whose contrasts are features."""
        left_out = {self.outcome, self.workload.label}
        return tuple(
            index
            for index, levels in enumerate(self.workload.columns)
            if levels.kind != "survival" and levels.name not in left_out
        )

    @property
    def n_inputs(self) -> int:
        """The number of entries of an encoded row."""
        return self.workload.n_inputs

    @property
    def n_features(self) -> int:
        """The length of φ, with the constant."""
        return len(self.places)

    @property
    def constant_share(self) -> float:
        """c₀, as it is in integers."""
        return (self.workload.constant_integer / self.workload.resolution) ** 2

    @property
    def places(self) -> Indices:
        """Where the features are in the total: the contrasts of each column, and the constant last."""
        workload = self.workload
        parts = [
            np.arange(workload.starts[index], workload.starts[index] + workload.columns[index].n_levels - 1)
            for index in self.columns
        ]
        return np.concatenate([*parts, np.zeros(1, dtype=np.int64)])

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of encoded rows."""
        require_width(rows, self)
        workload = self.workload
        weights, _ = workload.weigh(rows)
        ends = np.cumsum([levels.n_levels for levels in workload.columns])
        parts = [
            weights[:, ends[index] - workload.columns[index].n_levels : ends[index]]
            @ workload.scaled_contrasts(index).T
            for index in self.columns
        ]
        return np.hstack([*parts, np.full((len(rows), 1), workload.constant_integer / workload.resolution)])


def extract_sums(total: PairwiseTotal, outcome: str = "") -> Sums:
    """Return the sums of a model of one column of the general total, the label by default."""
    workload = total.workload
    features = LevelFeatures(workload, outcome)
    places = features.places
    target, n_classes = _code_outcome(workload, outcome or workload.label)
    vectors = np.array([functional.vector for functional in target]).T
    products = _fill_blocks(total)[np.ix_(places, places)]
    scale = float(np.sqrt(total.noise_variance))
    lengths = np.sqrt((vectors[1:] ** 2).sum(axis=0) / 2)
    noise = (scale, scale * float(lengths.mean()))
    return Sums(products, (total.matrix @ vectors)[places], features.constant_share, n_classes, noise)


def _code_outcome(workload: Workload, outcome: str) -> tuple[list[Functional], int]:
    """Return the functions that learners predict, and the number of classes: ±1, e_k − 1/K, or a number in [−1, 1]."""
    if not outcome:
        problem = "The study has no label, or survival includes it."
        raise InputError("outcome", problem=problem, cure="Name a column to predict.")
    levels = workload.column(outcome)
    if levels.kind == "survival" or levels.is_log:
        problem = f"A model cannot predict {outcome!r}: it is survival, or a number on a logarithmic scale."
        raise InputError("outcome", problem=problem, cure="Name a category, or a number on its own scale.")
    absent, n_words = [0.0] * levels.has_missing, levels.n_levels - levels.has_missing
    if levels.nodes:
        middle, half = (levels.high + levels.low) / 2, (levels.high - levels.low) / 2
        return [workload.functional(outcome, [*((node - middle) / half for node in levels.nodes), *absent])], 0
    if n_words == 2:
        return [workload.functional(outcome, [-1.0, 1.0, *absent])], 2
    identity = np.eye(n_words) - 1 / n_words
    return [workload.functional(outcome, [*identity[k], *absent]) for k in range(n_words)], n_words


def _fill_blocks(total: PairwiseTotal) -> Matrix:
    """Return S with the blocks of each column with itself, as far as counts and bubbles determine them."""
    workload, filled = total.workload, total.matrix.copy()
    for index, (start, levels) in enumerate(zip(workload.starts, workload.columns, strict=True)):
        contrasts = workload.scaled_contrasts(index)
        block = slice(start, start + levels.n_levels - 1)
        filled[block, block] = contrasts @ _estimate_products(total, index, levels) @ contrasts.T
    return filled


def _estimate_products(total: PairwiseTotal, index: int, levels: Levels) -> Matrix:
    """Return an estimate of Σ hhᵀ of one column."""
    workload = total.workload
    counts = np.maximum(_count_levels(total, index), 0.0)
    products = np.diag(counts)
    if index in workload.bubbles:
        between = (counts[:-1] + counts[1:])[: len(levels.nodes) - 1]
        height = workload.integer_bubbles[index] * workload.constant_integer / workload.resolution**2
        curves = float(total.matrix[0, workload.bubbles[index]]) / height / 4  # Σ t(1 − t)
        curves = min(max(curves, 0.0), counts.sum() / 4)
        for a, share in enumerate(between / max(float(between.sum()), 1e-9)):
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
