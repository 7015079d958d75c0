"""Hazards of a table: properties that make a secret map easy to break or a row stand out, found without an attack.

A column lies on a grid if all steps between its values are whole multiples of the smallest step, and at most 200 such steps
span the column. Under noise of scale σ, rounding to the nearest grid point is right for a share erf(step / (2√2 σ)) of the
cells, and more often at the ends of the grid. Sentences about grids state this share. On a grid of at most 20 values, a
value is rare if one row has it, or at most 1 % of the rows and no more than ten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.metrics.exposure import FEW_VALUES
from mooring.serialization import count_noun
from mooring.tables import Partition
from mooring.typing import Matrix

_ROWS_FOR_SPECTRUM = 1000
_MOST_COMPARED = 50_000_000
SEPARATED = 1.5
_COARSE = 200  # maximum number of steps across a column; finer grids do not count
_LATTICE_WIDTH = 40
_MOST_NAMES = 8
_MOST_RARE, _RARE_SHARE = 10, 0.01
_MIXED = " The projection mixes the columns before they leave; the attacks' figures show how much that hides."


def find_hazards(partition: Partition, n_components: int, names: Sequence[str] = ()) -> tuple[str, ...]:
    """Return sentences about the rows of an audit, one for each known weakness.

    Columns, whose names are `names`, are examined only if no projection mixes them.
    """
    rows = np.concatenate(partition.train)
    hazards = [] if n_components < partition.n_features else hazards_of_columns(rows, names=names)
    short = [n for n in (part.shape[0] for part in partition.train) if n <= n_components]
    if short:
        hazards.append(
            f"{count_noun(len(short), 'participant has', 'participants have')} no more rows than the "
            f"{count_noun(n_components, 'component')} (fewest rows: {min(short)}): figures for them are uncertain, and "
            "every known row helps an attacker more."
        )
    labels = [] if partition.train_labels is None else hazards_of_labels(partition.train_labels)
    return (*hazards, *hazards_of_rows(rows), *labels)


def hazards_of_columns(
    rows: Matrix, *, names: Sequence[str] = (), mixed: bool = False, noise_scale: float = 0.0
) -> list[str]:
    """Return sentences about rare values, constant columns, and columns on a grid, which help lattice reduction.

    `names` are the names of the columns, of which sentences list the first few. `mixed` says whether a projection reduces
    the dimension of the rows; a square projection is public and does not count. `noise_scale` is that of the private-data
    noise.
    """
    hazards, width = [], rows.shape[1]
    grids, constant = find_grids(rows), np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()
    if grids:
        gridded = [names[grid.column] for grid in grids] if names else []
        reach = (
            "within reach of lattice reduction" if width <= _LATTICE_WIDTH else "a starting point for lattice reduction"
        )
        hazards.append(
            f"{_count(len(grids), width, 'columns takes', 'columns take')} values on a grid (whole numbers, yes or no)"
            f"{_named(gridded)}. Without private-data noise, the upload is a rotated lattice, {reach} (the attack "
            f"'lattice').{_MIXED * mixed}"
            + ("" if mixed or noise_scale == 0 else _rounded(grids, names, noise_scale))
            + " What helps: more private-data noise, or fewer such columns in the study."
        )
    rare = {grid.column: min(grid.rare_counts) for grid in grids if grid.rare_counts}
    if rare:
        words = _named([f"{_name(names, k)} ({count_noun(n, 'row')})" for k, n in rare.items()])
        hazards.append(
            f"{_count(len(rare), width, 'columns has', 'columns have')} rare values (one row, or at most {_RARE_SHARE:.0%} "
            f"of the rows and no more than {_MOST_RARE}){words}. Where noise does not hide them, "
            "whoever undoes the map sees these rows stand out, even if the error over all rows is large. "
            "What helps: wider categories or ranges, or no such rows."
        )
    if constant:
        hazards.append(
            f"{_count(len(constant), width, 'columns is', 'columns are')} constant"
            f"{_named([names[k] for k in constant] if names else [])}. A constant column fixes one direction of a map."
            f"{_MIXED * mixed} What helps: a study without them."
        )
    return hazards


def hazards_of_rows(rows: Matrix, *, projected: Matrix | None = None, noise_scale: float = 0.0) -> list[str]:
    """Return sentences about duplicate rows, zero rows, and variances so different that principal axes reveal the map.

    `projected` are the rows after a projection, if there is one. `noise_scale` is that of the private-data noise.
    """
    hazards, n, mapped = [], rows.shape[0], rows if projected is None else projected
    noisy, width = noise_scale > 0, mapped.shape[1]
    if duplicates := count_duplicates(rows):
        hazards.append(
            f"{_count(duplicates, n, 'rows is a duplicate', 'rows are duplicates')} of another: without noise, equal rows "
            "stay equal in an upload, and link participants."
            + f" With noise, equal rows lie {noise_scale * (2 * width) ** 0.5:.2g} apart, and two random rows "
            f"{(2 * float(mapped.var(axis=0).sum()) + 2 * width * noise_scale**2) ** 0.5:.2g}."
            * noisy
            + " What helps: sharing each row once."
        )
    if zero := int((rows == 0).all(axis=1).sum()):
        hazards.append(
            f"{_count(zero, n, 'rows is', 'rows are')} zero throughout: the image of such a row is the "
            "secret translation itself."
            + f" With noise it is known to within {noise_scale / zero**0.5:.2g} a coordinate." * noisy
            + " What helps: leaving such rows out."
        )
    apart, gaps = separated_variances(mapped)
    if apart:
        words = (
            f"Of the {gaps} gaps between the largest variances {count_noun(apart, 'exceeds', 'exceed')} a factor of "
            f"{SEPARATED:g}: the principal axes of an upload can be paired with those of rows like these."
        )
        left, _ = separated_variances(mapped, noise_scale=noise_scale)
        if noise_scale > 0:
            closed = " Private-data noise closes all of them."
            words += closed if left == 0 else f" With noise, {count_noun(left, 'remains', 'remain')}."
        hazards.append(words + " What helps: more private-data noise." * (left > 0))
    return hazards


def hazards_of_labels(labels: Sequence[npt.NDArray[Any]]) -> list[str]:
    """Return a sentence if rows have a label that no other row of the same participant has, since labels are not hidden."""
    alone = sum(int((np.unique(part, return_counts=True)[1] == 1).sum()) for part in labels)
    total = sum(len(part) for part in labels)
    if not alone:
        return []
    return [
        f"{_count(alone, total, 'rows has', 'rows have')} a label that no other row of the same participant has: labels "
        "are uploaded unchanged, so whoever knows such a label finds the row. What helps: classes, or leaving such rows out."
    ]


def count_duplicates(rows: npt.NDArray[np.float64]) -> int:
    """Return the number of rows that repeat an earlier row; 0 for very large tables, which are not searched."""
    if rows.size > _MOST_COMPARED:
        return 0
    return int(rows.shape[0] - np.unique(rows.round(12), axis=0).shape[0])


class Grid(NamedTuple):
    """A column on a grid: its index, its step, and the number of rows with each of its rare values."""

    column: int
    step: float
    rare_counts: tuple[int, ...]

    def recovered_share(self, noise_scale: float) -> float:
        """Return the minimum share of cells for which rounding to the nearest grid point undoes noise."""
        return math.erf(self.step / (2 * math.sqrt(2) * noise_scale))


def find_grids(rows: npt.NDArray[np.float64]) -> list[Grid]:
    """Return the columns whose values lie on a coarse grid, such as integers, standardised integers, or yes and no."""
    grids = []
    few = max(1.0, min(_MOST_RARE, _RARE_SHARE * rows.shape[0]))
    for k, column in enumerate(rows.T):
        values, counts = np.unique(column, return_counts=True)
        if values.size < 2:
            continue
        steps = np.diff(values)
        unit = float(steps.min())
        coarse = np.ptp(values) <= _COARSE * unit
        if coarse and np.allclose(steps / unit, np.round(steps / unit), atol=1e-6):
            rare = counts[counts <= few].tolist() if values.size <= FEW_VALUES else ()
            grids.append(Grid(k, unit, tuple(rare)))
    return grids


def rows_of_rare_values(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the indices of rows with a rare value, the rarest first."""
    rarity = np.full(rows.shape[0], np.inf)
    for grid in find_grids(rows):
        if grid.rare_counts:
            _, codes, counts = np.unique(rows[:, grid.column], return_inverse=True, return_counts=True)
            held = counts[codes]
            rarity = np.minimum(rarity, np.where(held <= max(grid.rare_counts), held, np.inf))
    order = np.argsort(rarity, kind="stable")
    return np.asarray(order[np.isfinite(rarity[order])], dtype=np.int64)


def separated_variances(rows: npt.NDArray[np.float64], *, noise_scale: float = 0.0) -> tuple[int, int]:
    """Return the number of wide gaps and of all gaps between the largest variances; noise adds to all variances."""
    if rows.shape[0] < 3:
        return 0, 0
    some = rows[:: -(-rows.shape[0] // _ROWS_FOR_SPECTRUM)]
    values = np.linalg.svd(some - some.mean(axis=0), compute_uv=False) ** 2  # avoids a matrix of features by features
    top = values[:10]
    top = top[
        top > 1e-9 * top[0]
    ]  # constant columns, and yes/no columns that sum to one, have no variance of their own
    if top.size < 2:
        return 0, 0
    top = top + some.shape[0] * noise_scale**2
    return int((top[:-1] / top[1:] > SEPARATED).sum()), top.size - 1


def _rounded(grids: Sequence[Grid], names: Sequence[str], noise_scale: float) -> str:
    """Return a sentence on the share of cells that rounding recovers, in the coarsest and in the finest column."""
    coarsest, finest = max(grids, key=lambda grid: grid.step), min(grids, key=lambda grid: grid.step)
    ends = [coarsest] if math.isclose(coarsest.step, finest.step) else [coarsest, finest]
    shares = (
        f"{grid.recovered_share(noise_scale):.2%} of {_name(names, grid.column)} (step {grid.step:.2g})"
        for grid in ends
    )
    return (
        f" Under noise of σ = {noise_scale:g}, once the map is undone, rounding to the nearest grid point recovers at "
        f"least {' and '.join(shares)}."
    )


def _count(n: int, total: int, singular: str, plural: str) -> str:
    return count_noun(n, f"of {total} {singular}", f"of {total} {plural}")


def _name(names: Sequence[str], column: int) -> str:
    return names[column] if names else f"column {column + 1}"


def _named(words: Sequence[str]) -> str:
    more = len(words) - _MOST_NAMES
    return (f": {', '.join(words[:_MOST_NAMES])}" + (f" and {more} more" if more > 0 else "")) if words else ""
