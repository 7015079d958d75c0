"""Table 1: counts and shares of categories, means and standard deviations of numbers, for all rows or by group.

Apart from noise and unbiased rounding, counts and means are those of the rows, and so are standard deviations over all rows.
In a group, the sum of squares of a number is computed through hat functions, which add something to it. The mean of this
addition over all rows is subtracted. The standard deviation in a group is therefore approximate, unless the number has one
level per value, and has no interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import (
    SAYS_NOTHING,
    Answer,
    explain_empty,
    require_group,
    require_rows,
    state_intervals,
    write_number,
)
from mooring.mechanisms.sums.answers.readings import (
    HATS_TO_FOURTH,
    LEAST_SIGNAL,
    Readings,
    Z,
    find_ratio_interval,
    find_share_interval,
    list_levels,
    read_products,
    read_table,
)
from mooring.mechanisms.sums.general.levels import Levels
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import Functional
from mooring.serialization import FloatOrNaN, Record, Rows
from mooring.typing import Matrix, Vector

StatisticName = Literal["count", "share", "mean", "sd"]
ALL_ROWS = "all"
"""Name of the group of all rows."""


@dataclass(frozen=True)
class Statistic(Record):
    """One entry of a Table 1."""

    column: str
    level: str
    """The level of a category, or the level of missing values; empty for a number, and for the number of rows."""
    group: str
    """The level of the column that forms groups, or "all"."""
    statistic: StatisticName
    """Shares, means and standard deviations are those of the values that are not missing."""
    estimate: FloatOrNaN
    """NaN if the interval says nothing, or if the noise hides a standard deviation. Shares are adjusted so that they are not
    negative and add up to one over the levels."""
    low: FloatOrNaN
    high: FloatOrNaN


@dataclass(frozen=True)
class Description(Answer):
    """A Table 1."""

    answer: ClassVar[str] = "table-1"
    lines_field: ClassVar[str] = "statistics"

    by: str
    """The column that forms groups; empty if there are no groups."""
    groups: tuple[str, ...]
    """Names of the groups; the first is "all", for all rows."""
    statistics: tuple[Statistic, ...]

    def list_estimates(self) -> dict[str, tuple[float, float, float]]:
        """Return shares, means and standard deviations with an interval. Counts concern the rows, not a population."""
        return {
            f"{entry.statistic} of {entry.column} {entry.level} ({entry.group})": (
                entry.estimate,
                entry.low,
                entry.high,
            )
            for entry in self.statistics
            if entry.statistic != "count" and not np.isnan(entry.low)
        }

    def list_tables(self) -> dict[str, Rows]:
        """Return one table with a line per number or level and a column per group."""
        entries: dict[tuple[str, str], dict[tuple[str, str], Statistic]] = {}
        for entry in self.statistics:
            entries.setdefault((entry.column, entry.level), {})[entry.group, entry.statistic] = entry
        table = [("", *(group if group == ALL_ROWS else f"{self.by} = {group}" for group in self.groups))]
        for (column, level), cells in entries.items():
            name = ": ".join(part for part in (column, level) if part) or "rows"
            table.append((name, *(_write_cell(cells, group) for group in self.groups)))
        title = f"Table 1{f', by {self.by}' if self.by else ''}: n (%) or mean (SD), and 95 % interval"
        return {title: table}


def _write_cell(cells: dict[tuple[str, str], Statistic], group: str) -> str:
    """Return 'n (share) [interval]' or 'mean (sd) [interval of the mean]'."""
    if mean := cells.get((group, "mean")):
        sd = cells[group, "sd"]
        interval = f" [{write_number(mean.low)}, {write_number(mean.high)}]" if np.isfinite(mean.low) else ""
        return f"{write_number(mean.estimate)} ({write_number(sd.estimate)}){interval}"
    count = cells[group, "count"]
    share = cells.get((group, "share"))
    if share is None:
        return f"{count.estimate:,.0f} [{count.low:,.0f}, {count.high:,.0f}]"
    if np.isnan(share.estimate):
        return f"{count.estimate:,.0f} (–)"
    interval = f"[{100 * share.low:.1f}, {100 * share.high:.1f}]"
    return f"{count.estimate:,.0f} ({100 * share.estimate:.1f}) {interval}"


def describe(total: PairwiseTotal, *, by: str = "", columns: Sequence[str] = ()) -> Description:
    """Return counts, shares, means and standard deviations of columns, over all rows and by group.

    A group is left out if it has no rows, or if the noise hides whether it has any. A note says so.

    Parameters
    ----------
    total : PairwiseTotal
        The opened total, from `Analyst.open_total`.
    by : str, optional
        The column that forms groups: a category, or whole numbers with few values.
    columns : sequence of str, optional
        The columns to describe; by default all but `by` and the column of survival.

    Returns
    -------
    Description

    Raises
    ------
    InputError
        If a column is not declared or cannot form groups, if there are no rows, or if the noise leaves nothing to say.
    """
    workload = total.workload
    names, groups, notes = [ALL_ROWS], [workload.constant], []
    if by:
        require_group(total, by)
        for name, group in zip(workload.column(by).names, list_levels(total, by, with_missing=True), strict=True):
            count = read_products(total, [(group, workload.constant)])
            if count.values[0] > max(LEAST_SIGNAL * count.errors[0], 0.5):
                names.append(name)
                groups.append(group)
            else:
                notes.append(f"Nothing is said of {by} = {name}: {explain_empty(total)}.")
        if len(names) == 1:
            raise InputError(
                "by", problem=f"No group of {by!r} can be distinguished from an empty one.", cure="Ask for all rows."
            )
    source = require_rows(total)
    asked = columns or [levels.name for levels in workload.columns if levels.kind != "survival" and levels.name != by]
    entries = [*_count("", [""], read_table(total, [workload.constant], groups), names)]
    for column in asked:
        levels = workload.column(column)
        describe_column = _describe_number if levels.nodes else _describe_category
        entries += describe_column(total, levels, groups, names)
    hidden = sorted({entry.column for entry in entries if np.isnan(entry.estimate)})
    if hidden:
        notes.append(f"A dash stands where the interval says nothing: {', '.join(hidden)}.")
    if by and any(workload.column(column).nodes and not workload.column(column).is_exact for column in asked):
        notes.append("Standard deviations in groups are approximate, and have no interval.")
    if source.epsilon is not None:
        notes.append(
            "Small counts need no suppression: the noise protects them. Intervals of counts are those of the noise."
        )
    return Description(source, tuple(notes), state_intervals(total), by, tuple(names), tuple(entries))


def _count(column: str, level_names: Sequence[str], table: Readings, groups: Sequence[str]) -> list[Statistic]:
    """Return the counts from a table of levels by groups. The intervals of counts include the noise only."""
    half = Z * table.errors
    return [
        Statistic(column, level, group, "count", max(0.0, float(n)), max(0.0, float(n - h)), max(0.0, float(n + h)))
        for level, row, halves in zip(level_names, table.values, half, strict=True)
        for group, n, h in zip(groups, row, halves, strict=True)
    ]


def _describe_category(
    total: PairwiseTotal, levels: Levels, groups: Sequence[Functional], names: Sequence[str]
) -> list[Statistic]:
    counts = read_table(total, list_levels(total, levels.name, with_missing=True), groups)
    entries = _count(levels.name, levels.names, counts, names)
    n_known = levels.n_levels - levels.has_missing
    known = counts.values[:n_known]
    shares = np.column_stack([_project_shares(column) for column in known.T])
    for k, level in enumerate(levels.names[:n_known]):
        for g, group in enumerate(names):
            weights = np.zeros((2, *counts.values.shape))
            weights[0, k, g], weights[1, :n_known, g] = 1.0, 1.0
            low, high = find_share_interval(counts.combine(weights.reshape(2, -1)))
            estimate = float(shares[k, g]) if high - low < SAYS_NOTHING else np.nan
            entries.append(Statistic(levels.name, level, group, "share", estimate, low, high))
    return entries


def _project_shares(counts: Vector) -> Vector:
    """Return the shares that are nearest to those of noisy counts, not negative and of sum one; NaN without rows."""
    if not counts.sum() > 0:
        return np.full(len(counts), np.nan)
    shares = counts / counts.sum()
    largest = np.sort(shares)[::-1]
    excess = (np.cumsum(largest) - 1) / np.arange(1, len(shares) + 1)
    return np.asarray(np.maximum(shares - excess[largest > excess][-1], 0.0))


def _describe_number(
    total: PairwiseTotal, levels: Levels, groups: Sequence[Functional], names: Sequence[str]
) -> list[Statistic]:
    workload, name = total.workload, levels.name
    scale = _name_scale(levels)
    number, present = workload.number(name), workload.present(name)
    squares = workload.functional(name, number.values**2)
    ends = (levels.nodes[0], levels.nodes[-1])
    # what hat functions add to the sum of squares, per row
    added, rows = read_products(total, [(squares, workload.constant), (present, workload.constant)]).values
    added = (added - read_products(total, [(number, number)]).values[0]) / rows
    table = read_table(total, [number, present, squares], groups)
    entries = []
    for g, group in enumerate(names):
        moments = table.combine(np.eye(3 * len(groups))[[g, len(groups) + g, 2 * len(groups) + g]])
        ratio = Readings(moments.values[:2], moments.noise[:2, :2])
        x, y, q = (float(value) for value in moments.values)
        mean, variance = x / y, q / y - added - (x / y) ** 2
        low, high = find_ratio_interval(ratio, (y * max(variance, 0.0), 0.0, 0.0), ends)
        is_known = y > 1 and high - low < SAYS_NOTHING * (ends[1] - ends[0])
        shown = float(np.clip(mean, *ends)) if is_known else np.nan
        entries.append(Statistic(scale, "", group, "mean", shown, low, high))
        gradient = np.array([-2 * mean, mean**2 - variance, 1.0]) / y
        error = float(np.sqrt(gradient @ moments.noise @ gradient))
        sd = np.sqrt(variance * y / (y - 1)) if is_known and variance > max(2 * error, 0.0) else np.nan
        interval = _find_sd_interval(total, levels) if group == ALL_ROWS else (np.nan, np.nan)
        entries.append(Statistic(scale, "", group, "sd", float(sd), *interval))
    if levels.has_missing:
        absent = workload.indicator(name, levels.names[-1])
        entries += _count(scale, [levels.names[-1]], read_table(total, [absent], groups), names)
    return entries


def _name_scale(levels: Levels) -> str:
    """Return the name of a column of numbers, with its scale if the scale is logarithmic."""
    if not levels.is_log:
        return levels.name
    return (
        f"log({levels.name})"
        if levels.low > 0
        else f"log(1 + {9999 / (levels.high - levels.low):.4g} ({levels.name} − {levels.low:g}))"
    )


def _find_sd_interval(total: PairwiseTotal, levels: Levels) -> tuple[float, float]:
    """Return the interval of the standard deviation over all rows, by the delta method for the variance."""
    workload, name = total.workload, levels.name
    number, present = workload.number(name), workload.present(name)
    readings = read_products(total, [(number, number), (number, workload.constant), (present, workload.constant)])
    q, x, y = readings.values
    mean, variance = x / y, q / y - (x / y) ** 2
    gradient = np.array([[1.0, -2 * mean, mean**2 - variance]]) / y
    fourth = _find_fourth_moment(total, levels, mean, max(variance, 0.0))
    error = np.sqrt((gradient @ readings.noise @ gradient.T)[0, 0] + max(fourth - variance**2, 0.0) / y)
    low, high = np.sqrt(np.clip([variance - Z * error, variance + Z * error], 0, None))
    return float(low), float(min(high, (levels.nodes[-1] - levels.nodes[0]) / 2))


def _find_fourth_moment(total: PairwiseTotal, levels: Levels, mean: float, variance: float) -> float:
    """Return E(x − mean)⁴ minus what hat functions add to it (`HATS_TO_FOURTH`), but no less than the squared variance."""
    workload, name = total.workload, levels.name
    number, present = workload.number(name), workload.present(name)
    values: Matrix = present.values * (number.values - mean) ** 4
    squares = workload.functional(name, present.values * number.values**2)
    pairs = [(workload.functional(name, values), workload.constant), (squares, workload.constant), (number, number)]
    fourth, hats, exact = read_products(total, pairs).values
    y = read_products(total, [(present, workload.constant)]).values[0]
    added = max(float(hats - exact) / y, 0.0)
    return float(max(fourth / y - 6 * variance * added - HATS_TO_FOURTH * added**2, variance**2))
