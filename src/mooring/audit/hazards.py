"""Hazards of a table: properties that make a secret map easy to break or a row stand out, found without an attack.

A column lies on a grid if all steps between its values are whole multiples of the smallest step, and at most 200 such steps
span the column. Under noise of scale σ, rounding to the nearest grid point is right for a share erf(step / (2√2 σ)) of the
cells, and more often at the ends of the grid. The sentences state this share. A value is rare if at most 1 % of the rows,
and no more than ten, have it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.audit.result import PointResult
from mooring.metrics import Figure
from mooring.metrics.exposure import FEW_VALUES
from mooring.metrics.membership import state_alarms
from mooring.serialization import count_noun
from mooring.tables import Partition
from mooring.typing import Matrix

_STRANGE = 1.2
_ROWS_FOR_SPECTRUM = 1000
_MOST_COMPARED = 50_000_000
SEPARATED = 1.5
_COARSE = 200  # maximum number of steps across a column; finer grids do not count
_LATTICE_WIDTH = 40
_MOST_NAMES = 8
_MOST_RARE, _RARE_SHARE = 10, 0.01
_MIXED = " The projection mixes the columns before they leave; the attacks' figures show how much that hides."
_AMOUNTS = ((0.5, "much"), (0.8, "something"), (math.inf, "little"))
MEASURES = {
    "centred_error": "the error over all rows",
    "linkage": "the share of rows linked",
    "exposed_value": "the most exposed value",
    "exposed_column": "the most exposed column",
    "exposed_row": "the most exposed row",
    "exposed_tenth": "the most exposed tenth of rows",
    "membership_at_1_percent": "the share of rows recognised as uploaded",
}
_FAR_ABOVE_CHANCE = 2.0


def find_hazards(partition: Partition, n_components: int) -> tuple[str, ...]:
    """Return sentences about the rows of an audit, one for each known weakness.

    Columns are examined only if no projection mixes them.
    """
    rows = np.concatenate(partition.train)
    hazards = [] if n_components < partition.n_features else hazards_of_columns(rows)
    short = [n for n in (part.shape[0] for part in partition.train) if n <= n_components]
    if short:
        hazards.append(
            f"{count_noun(len(short), 'participant has', 'participants have')} no more rows ({min(short)} at least) than "
            f"components ({n_components}): figures for them are uncertain, and every known row helps an attacker more."
        )
    labels = [] if partition.train_labels is None else hazards_of_labels(partition.train_labels)
    return (*hazards, *hazards_of_rows(rows), *labels)


def hazards_of_columns(
    rows: Matrix, *, names: Sequence[str] = (), mixed: bool = False, noise_scale: float = 0.0
) -> list[str]:
    """Return sentences about columns on a grid, which lattice reduction can find, rare values and constant columns.

    `names` are the names of the columns, of which sentences list the first few. `mixed` says whether a projection reduces
    the dimension of the rows; a square projection is public and does not count. `noise_scale` is that of the private-data
    noise.
    """
    hazards, width = [], rows.shape[1]
    grids, constant = find_grids(rows), np.flatnonzero(np.ptp(rows, axis=0) == 0).tolist()
    if grids:
        gridded = [names[grid.column] for grid in grids] if names else []
        reach = "within reach of lattice reduction" if width <= _LATTICE_WIDTH else "a start for lattice reduction"
        hazards.append(
            f"{_count(len(grids), width, 'columns takes', 'columns take')} values on a grid (whole numbers, yes or no): "
            f"without private-data noise the upload is a rotated lattice, {reach} (the attack 'lattice')"
            + f"{_named(gridded)}.{_MIXED * mixed}"
            + ("" if mixed or noise_scale == 0 else _rounded(grids, names, noise_scale))
            + " What helps: more private-data noise, or fewer such columns in the study."
        )
    rare = {grid.column: min(grid.rare_counts) for grid in grids if grid.rare_counts}
    if rare:
        words = _named([f"{_name(names, k)} ({count_noun(n, 'row')})" for k, n in rare.items()])
        hazards.append(
            f"{_count(len(rare), width, 'columns has', 'columns have')} rare values (at most {_RARE_SHARE:.0%} of the rows, "
            f"no more than {_MOST_RARE}): where noise does not hide them, whoever undoes the map sees these rows stand out, "
            f"even if the error over all rows is large{words}. What helps: wider categories or ranges, or no such rows."
        )
    if constant:
        hazards.append(
            f"{_count(len(constant), width, 'columns is', 'columns are')} constant, which fixes one direction of a map"
            f"{_named([names[k] for k in constant] if names else [])}.{_MIXED * mixed} What helps: a study without them."
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
            + f" With noise they lie {noise_scale * (2 * width) ** 0.5:.2g} apart, two rows at random "
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


def warn_of_dissimilar_colluder(results: Sequence[PointResult]) -> tuple[str, ...]:
    """Return a warning if the colluder's rows hardly resemble the target's, so that attacks that compare them say little.

    The control guesses the mean of the colluder's rows of the same class. Its error is at most about 1 if they are similar.
    """
    for result in results:
        worst = result.worst()
        if worst is not None and worst[1].control is not None and worst[1].control > _STRANGE:
            return (
                f"The colluder's rows hardly resemble the target's (guessing from them alone is off by "
                f"{worst[1].control:.2f}, where 1 is the spread): these figures say little about an attacker whose rows do.",
            )
    return ()


def state_exposure(point: PointResult) -> tuple[str, ...]:
    """Return clauses on the most exposed value, column and row by the strongest attacks, with chance and control."""
    clauses = []
    if (value := point.worst("exposed_value")) is not None:
        attack, figure, n = *value, round(value[1].value * value[1].n)
        clauses.append(
            f"{n} of {figure.n} {figure.name} {'is' if n == 1 else 'are'} among as many rows that '{attack}' "
            f"ranks first (chance {figure.chance:.2%}, without the upload {figure.control:.2%})"
        )
    if (column := point.worst("exposed_column")) is not None:
        attack, figure = column
        clauses.append(
            f"{figure.name} is rebuilt by '{attack}' with an error of {figure.value:.2f} of its spread (without the upload "
            f"{figure.control:.2f})"
        )
    row = point.worst("exposed_row")
    if row is not None and row[1].value < (row[1].chance or 0.0):
        attack, figure = row
        clauses.append(
            f"one row is rebuilt by '{attack}' with {figure.value:.2f} of the error of guessing it (by chance "
            f"{figure.chance:.2f})"
        )
    return tuple(clauses)


def state_membership(point: PointResult) -> str | None:
    """Return a sentence on whether an attacker recognises uploaded rows, or None if this was not measured."""
    if (worst := point.worst("membership_at_1_percent")) is None:
        return None
    attack, figure = worst
    beside = "" if figure.control is None else f"; with an upload of other rows {figure.control:.1%}"
    few = "" if (figure.chance or 0) <= 0.01 else ", the lowest rate that so few non-members allow"
    words = (
        f"Can an attacker tell that a row is in the upload? '{attack}' recognises "
        f"{figure.value:.0%}{figure.interval.written('.0%')} of the uploaded rows at {state_alarms(figure)}{few} (chance "
        f"{100 * (figure.chance or 0):.2g} %{beside})"
    )
    outlying = point.worst("outlying_membership_at_1_percent")
    words += "" if outlying is None else f", and {outlying[1].value:.0%} of the most outlying tenth"
    return words + "."


def judge_leakage(point: PointResult) -> tuple[str, str, str]:
    """Return how much leaks ('much', 'something' or 'little'), the rule behind this, and the decisive measure.

    Every measure is converted to the share of the error of guessing that the attack leaves, or the share of what guessing
    misses, where guessing is the better of chance and control. Less than 0.5 is much, less than 0.8 is something. The
    smallest share decides, so that no mean over rows and no single measure makes a point look safe.
    """
    left = _left_by_measure(point, MEASURES)
    decisive = min(left, key=lambda measure: left[measure])
    amount = _name_amount(left[decisive])
    rule = (
        f"by {MEASURES[decisive]}; 'much' is more than half of what guessing leaves open, 'something' more than a fifth"
    )
    return amount, rule if "linkage" in left else f"{rule}; whether rows can be picked out was not measured", decisive


def grade_measures(point: PointResult, measures: Iterable[str]) -> dict[str, str]:
    """Return how much leaks by each measure that has a figure, by the rule of `judge_leakage`, the largest leak first."""
    left = _left_by_measure(point, measures)
    return {measure: _name_amount(left[measure]) for measure in sorted(left, key=lambda name: left[name])}


def _left_by_measure(point: PointResult, measures: Iterable[str]) -> dict[str, float]:
    taken = {measure: point.worst(measure) for measure in measures}
    return {
        measure: _left_open(measure, worst[1])
        for measure, worst in taken.items()
        if worst is not None and not math.isnan(worst[1].value)
    }


def _name_amount(left: float) -> str:
    return next(word for limit, word in _AMOUNTS if left < limit)


def _left_open(measure: str, figure: Figure) -> float:
    """Return the share of the error of guessing, or of what guessing misses, that an attack leaves."""
    levels = [level for level in (figure.chance, figure.control) if level is not None]
    if measure in (
        "exposed_row",
        "exposed_tenth",
    ):  # already relative to guessing; chance is the smallest error by chance
        return 1.0 if figure.value >= (figure.chance or 0.0) else figure.value
    if figure.higher_is_worse:
        without = max(levels, default=0.0)
        return 1 - (figure.value - without) / (1 - without) if without < 1 else 1.0
    without = min(levels, default=1.0)
    return figure.value / without if without > 0 else 1.0


def warn_of_linked_rows(recommended: PointResult | None) -> str | None:
    """Return a warning to show with a recommended point if its rows are linked far above chance, else None."""
    linked = None if recommended is None else recommended.worst("linkage")
    return None if linked is None else warn_of_linkage(linked[1].value, linked[1].chance or 0.0)


def warn_of_linkage(share: float, chance: float) -> str | None:
    """Return a warning to show with an error within the limit if rows are linked far above chance, else None."""
    if not chance > 0 or share < _FAR_ABOVE_CHANCE * chance:
        return None
    return (
        f"This does not hide whose row is whose: {share:.0%} of the rows are linked, {share / chance:.1f} times chance "
        f"({chance:.0%}). The error only says how far rebuilt rows are from the true ones."
    )


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
    """Return the columns whose values lie on a coarse grid: integers, standardised integers, or yes and no."""
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
    """Return the number of wide gaps between the largest variances, and the number of gaps; noise adds to all variances."""
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
    """Return a sentence on how much of the coarsest and of the finest column rounding recovers."""
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
