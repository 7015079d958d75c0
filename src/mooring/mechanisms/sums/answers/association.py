"""Correlations of numbers and χ² tests of categories, for pairs of columns.

Legend: O the table of counts of two categories, n its sum, r and c its margins divided by n; w the entries of O − n r cᵀ but
those of the last row and column.

Without noise, Pearson's χ² is wᵀV⁻¹w, where V = n (diag r − rrᵀ) ⊗ (diag c − ccᵀ), also without the last row and column. If
O has noise of covariance N, JNJᵀ is added to V, where J is the derivative of w with respect to O. The test then keeps its
level; with V alone, it would reject too often.

For correlations, see the module `correlation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np

from mooring.mechanisms.sums.answers.answer import Answer, name_source, state_intervals, write_p
from mooring.mechanisms.sums.answers.correlation import find_correlation_interval, read_moments
from mooring.mechanisms.sums.answers.readings import (
    LEAST_SIGNAL,
    Z,
    find_chi_square,
    find_p_value,
    list_levels,
    read_table,
)
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.serialization import FloatOrNaN, Record, Rows

_MOST_CORRELATION_ERROR = 0.4  # half width, for a correlation of 0, from which an interval says nothing


@dataclass(frozen=True)
class Correlation(Record):
    """Pearson's correlation of two numbers, or of a number and a category of two levels."""

    first: str
    second: str
    correlation: FloatOrNaN
    low: FloatOrNaN
    high: FloatOrNaN
    p: FloatOrNaN


@dataclass(frozen=True)
class Independence(Record):
    """Pearson's χ² test that two categories are independent, with the noise in its covariance."""

    first: str
    second: str
    chi_square: FloatOrNaN
    degrees_of_freedom: int
    p: FloatOrNaN


@dataclass(frozen=True)
class Associations(Answer):
    """Associations of pairs of columns."""

    answer: ClassVar[str] = "associations"
    lines_field: ClassVar[str] = "correlations"

    correlations: tuple[Correlation, ...]
    tests: tuple[Independence, ...]

    def list_estimates(self) -> dict[str, tuple[float, float, float]]:
        """Return the correlations, by pair of columns."""
        return {
            f"{entry.first} and {entry.second}": (entry.correlation, entry.low, entry.high)
            for entry in self.correlations
        }

    def list_tables(self) -> dict[str, Rows]:
        """Return a table of correlations and one of tests. A table without entries is left out."""
        correlations = [
            (
                entry.first,
                entry.second,
                f"{entry.correlation:.3f}",
                f"{entry.low:.3f} to {entry.high:.3f}",
                write_p(entry.p),
            )
            for entry in self.correlations
        ]
        tests = [
            (entry.first, entry.second, f"{entry.chi_square:.2f}", str(entry.degrees_of_freedom), write_p(entry.p))
            for entry in self.tests
        ]
        tables: dict[str, Rows] = {}
        if correlations:
            tables["Correlations"] = [("column", "column", "correlation", "95 % interval", "p"), *correlations]
        if tests:
            tables["Tests of independence"] = [("column", "column", "χ²", "degrees of freedom", "p"), *tests]
        return tables


def associate(total: PairwiseTotal, columns: Sequence[str] = ()) -> Associations:
    """Return the correlation of each pair of numbers, and the χ² test of each pair of categories.

    A category of two levels is also correlated with numbers, as 0 and 1. To compare a category of more levels with a number,
    use `regress`. Each pair uses the rows in which both values are known; the variance of a number is that of all its known
    values. A pair whose correlation or test would say nothing is left out, and a note says so.

    Parameters
    ----------
    total : PairwiseTotal
        The opened total, from `Analyst.open_total`.
    columns : sequence of str, optional
        The columns whose pairs are compared; by default all columns. The column of survival is always left out.

    Returns
    -------
    Associations

    Raises
    ------
    InputError
        If a column is not declared.
    """
    chosen = [total.workload.column(name) for name in columns] or list(total.workload.columns)
    correlations, tests, notes = [], [], list[str]()
    for first, second in combinations([levels for levels in chosen if levels.kind != "survival"], 2):
        names = (first.name, second.name)
        if not (first.nodes or second.nodes):
            test = _test_independence(total, *names)
            tests += [test] if isinstance(test, Independence) else []
            notes += [test] if isinstance(test, str) else []
        elif _is_numeric(first) and _is_numeric(second):
            correlation = _correlate(total, first, second)
            correlations += [correlation] if isinstance(correlation, Correlation) else []
            if isinstance(correlation, str):
                notes.append(f"The correlation of {names[0]} and {names[1]} is not shown: {correlation}.")
    return Associations(name_source(total), tuple(notes), state_intervals(total), tuple(correlations), tuple(tests))


def _is_numeric(levels: Levels) -> bool:
    return bool(levels.nodes) or levels.n_levels - levels.has_missing == 2


def _correlate(total: PairwiseTotal, first: Levels, second: Levels) -> Correlation | str:
    """Return the correlation with its interval, or a clause that says why it is not shown."""
    moments = read_moments(total, first, second)
    if isinstance(moments, str):
        return moments
    r, n = moments.correlation, moments.n_rows
    (noise, *_), (_, v, w) = moments.readings.noise[0], moments.readings.values
    # The variance of r due to the noise of the covariance. Where r is 0, the noise of the variances adds nothing.
    uncertainty = float(noise / (v * w))
    # The width of the interval itself would be a bad criterion: noise that makes a correlation larger narrows its interval.
    if not Z * math.sqrt(uncertainty + 1 / n) < _MOST_CORRELATION_ERROR:
        return "its interval would say nothing"
    low, high = find_correlation_interval(moments)
    if math.isnan(low):
        return "the noise has made the correlation larger than is possible"
    shown = float(np.clip(r, -1, 1))
    error = math.sqrt((1 - shown**2) / (n - 2) + uncertainty)
    return Correlation(first.name, second.name, shown, low, high, find_p_value(r, error, n - 2))


def _test_independence(total: PairwiseTotal, first: str, second: str) -> Independence | str:
    """Return the test, or a sentence that says why the categories are not compared."""
    rows, columns = list_levels(total, first), list_levels(total, second)
    for axis in (0, 1):  # levels without rows have no expected counts
        margin = read_table(total, rows, columns)
        weights = np.zeros((margin.values.shape[axis], *margin.values.shape))
        for k in range(len(weights)):
            weights[(k, k) if axis == 0 else (k, slice(None), k)] = 1.0
        count = margin.combine(weights.reshape(len(weights), -1))
        kept = count.values > np.maximum(LEAST_SIGNAL * count.errors, 0.5)
        if axis == 0:
            rows = [level for level, fine in zip(rows, kept, strict=True) if fine]
        else:
            columns = [level for level, fine in zip(columns, kept, strict=True) if fine]
        if kept.sum() < 2:
            which = "counts that stand out from the noise" if total.noise_variance else "rows"
            return f"{first} and {second} are not compared: one of them has fewer than two levels with {which}."
    table = read_table(total, rows, columns)
    O, (a, b) = table.values, table.values.shape
    n, of_rows, of_columns = O.sum(), O.sum(axis=1), O.sum(axis=0)
    r, c = of_rows / n, of_columns / n
    deviation = O - n * np.outer(r, c)
    cells = np.eye(a * b).reshape(a, b, a, b)
    derivative = (
        cells
        - np.eye(a)[:, None, :, None] * c[None, :, None, None]
        - r[:, None, None, None] * np.eye(b)[None, :, None, :]
        + np.outer(r, c)[:, :, None, None]
    )
    V = n * np.kron(np.diag(r) - np.outer(r, r), np.diag(c) - np.outer(c, c))
    J = derivative.reshape(a * b, a * b)
    kept_cells = np.arange(a * b).reshape(a, b)[:-1, :-1].ravel()
    covariance = (V + J @ table.noise @ J.T)[np.ix_(kept_cells, kept_cells)]
    return Independence(first, second, *find_chi_square(deviation.ravel()[kept_cells], covariance))
