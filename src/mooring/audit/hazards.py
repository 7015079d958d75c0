"""Hazards: what in a table makes a secret map easy to break, before any attack is run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mooring.audit.result import PointResult
from mooring.tables import Partition
from mooring.typing import Matrix

_FEW_VALUES = 2
_STRANGE = 1.2
_ROWS_FOR_SPECTRUM = 1000
_MOST_COMPARED = 50_000_000
SEPARATED = 1.5
_COARSE = 200  # steps across a column: finer grids are as good as none
_LATTICE_WIDTH = 40
_MOST_NAMES = 8
_MIXED = " The projection mixes the columns before they leave, which blunts this."
_BLURRED = " Private-data noise blurs this."


def find_hazards(partition: Partition, n_components: int) -> tuple[str, ...]:
    """Sentences about an audit's rows, each a known way in; empty if none was found.

    Columns are looked at only where no projection mixes them.
    """
    rows = np.concatenate(partition.train)
    found = [] if n_components < partition.n_features else hazards_of_columns(rows)
    short = [n for n in (part.shape[0] for part in partition.train) if n <= n_components]
    if short:
        found.append(
            f"{len(short)} participants have no more rows ({min(short)} at least) than components ({n_components}): "
            "figures for them are uncertain, and every known row weighs more."
        )
    return (*found, *hazards_of_rows(rows))


def hazards_of_columns(
    rows: Matrix, *, names: Sequence[str] = (), mixed: bool = False, noisy: bool = False
) -> list[str]:
    """Sentences about columns on a grid (a lattice, which lattice reduction can find) and constant ones; never a value.

    Parameters
    ----------
    rows : array of shape (n, m)
    names : sequence of str
        Of the columns; the first few are named, where given.
    mixed : bool, default False
        Whether a projection mixes the columns before they leave.
    noisy : bool, default False
        Whether rows carry private-data noise.
    """
    found, width = [], rows.shape[1]
    gridded, constant = gridded_columns(rows), constant_columns(rows)
    if gridded.size:
        reach = "within reach of lattice reduction" if width <= _LATTICE_WIDTH else "a start for lattice reduction"
        found.append(
            f"{gridded.size} of {width} columns take values on a grid (whole numbers, yes or no): without private-data "
            f"noise the upload lies on a turned lattice, {reach} (the attack 'lattice'){_named(names, gridded)}."
            + _MIXED * mixed
            + _BLURRED * noisy
        )
    if constant.size:
        found.append(
            f"{constant.size} of {width} columns are constant, which ties a direction of a secret map down"
            f"{_named(names, constant)}." + _MIXED * mixed
        )
    return found


def hazards_of_rows(rows: Matrix, *, projected: Matrix | None = None, noise_scale: float = 0.0) -> list[str]:
    """Sentences about duplicate and zero rows, and about variances so far apart that principal axes give the map.

    Parameters
    ----------
    rows : array of shape (n, m)
    projected : array of shape (n, h), optional
        As they are mapped, if not as they are.
    noise_scale : float, default 0
        Of private-data noise.
    """
    found, n, blurred = [], rows.shape[0], _BLURRED * (noise_scale > 0)
    if duplicates := count_duplicates(rows):
        found.append(
            f"{duplicates} of {n} rows are duplicates of another: without noise, equal rows stay equal in an upload, and "
            f"link participants.{blurred}"
        )
    if zero := int((rows == 0).all(axis=1).sum()):
        found.append(f"{zero} of {n} rows are zero throughout: their image is the secret translation itself.{blurred}")
    mapped = rows if projected is None else projected
    apart, gaps = separated_variances(mapped)
    if apart:
        words = (
            f"{apart} of the {gaps} gaps between the largest variances exceed a factor of {SEPARATED:g}: the principal axes "
            "of an upload can be paired with those of rows like these."
        )
        if noise_scale > 0:
            left, _ = separated_variances(mapped, noise_scale=noise_scale)
            words += " Private-data noise closes all of them." if left == 0 else f" With noise, {left} remain."
        found.append(words)
    return found


def warn_of_dissimilar_colluder(results: Sequence[PointResult]) -> tuple[str, ...]:
    """A warning where the colluder hardly resembles the target: attacks that compare the two then say little.

    The control, guessing the mean of the colluder's rows of the same class, is at most about 1 where they are alike.
    """
    for result in results:
        worst = result.worst()
        if worst is not None and worst[1].control is not None and worst[1].control > _STRANGE:
            return (
                f"The colluder's rows hardly resemble the target's (guessing from them alone is off by "
                f"{worst[1].control:.2f}, where 1 is the spread): these figures say little about an attacker whose do.",
            )
    return ()


def constant_columns(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Which columns have one value only."""
    return np.flatnonzero(np.ptp(rows, axis=0) == 0)


def count_duplicates(rows: npt.NDArray[np.float64]) -> int:
    """How many rows repeat an earlier one; in a very large table none is looked for."""
    if rows.size > _MOST_COMPARED:
        return 0
    return int(rows.shape[0] - np.unique(rows.round(12), axis=0).shape[0])


def gridded_columns(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Columns whose values lie on a coarse grid: whole numbers, or standardised whole numbers, or yes and no."""
    gridded = []
    for k, column in enumerate(rows.T):
        values = np.unique(column)
        if values.size < _FEW_VALUES:
            continue
        steps = np.diff(values)
        unit = steps.min()
        coarse = np.ptp(values) <= _COARSE * unit
        if coarse and np.allclose(steps / unit, np.round(steps / unit), atol=1e-6):
            gridded.append(k)
    return np.array(gridded, dtype=np.int64)


def separated_variances(rows: npt.NDArray[np.float64], *, noise_scale: float = 0.0) -> tuple[int, int]:
    """How many gaps between the largest variances are wide, and of how many; noise adds to all variances alike."""
    if rows.shape[0] < 3:
        return 0, 0
    some = rows[:: -(-rows.shape[0] // _ROWS_FOR_SPECTRUM)]
    values = np.linalg.svd(some - some.mean(axis=0), compute_uv=False) ** 2  # no matrix of features by features
    top = values[:10]
    top = top[
        top > 1e-9 * top[0]
    ]  # constant columns, and yes/no columns that sum to one, have no variance of their own
    if top.size < 2:
        return 0, 0
    top = top + some.shape[0] * noise_scale**2
    return int((top[:-1] / top[1:] > SEPARATED).sum()), top.size - 1


def _named(names: Sequence[str], chosen: npt.NDArray[np.int64]) -> str:
    if not names:
        return ""
    more = chosen.size - _MOST_NAMES
    return f": {', '.join(names[k] for k in chosen[:_MOST_NAMES])}" + (f" and {more} more" if more > 0 else "")
