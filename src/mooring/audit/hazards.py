"""Hazards: what in a table makes a secret map easy to break, before any attack is run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mooring.audit.result import PointResult
from mooring.tables import Partition

_FEW_VALUES = 2
_STRANGE = 1.2
_ROWS_FOR_SPECTRUM = 1000
_MOST_COMPARED = 50_000_000
SEPARATED = 1.5
_COARSE = 200  # steps across a column: finer grids are as good as none
_LATTICE_WIDTH = 40


def find_hazards(partition: Partition, n_components: int) -> tuple[str, ...]:
    """Sentences about the rows given, each a known way in; empty if none was found.

    Covers columns of whole numbers or of two values (a lattice, which lattice reduction can find: d = 14 has been broken in
    under a second), constant columns, duplicate and zero rows (fixed points that an attacker recognises), fewer rows than
    components, and widely separated variances (principal axes then give the map).
    """
    rows = np.concatenate(partition.train)
    found = []
    whole = is_unprojected(partition, n_components)
    if whole:
        found += _lattice(rows)
    constant = constant_columns(rows).size
    if constant and whole:
        found.append(f"{constant} of {rows.shape[1]} columns are constant: they tie a direction of every map down.")
    duplicates = count_duplicates(rows)
    if duplicates:
        found.append(
            f"{duplicates} of {rows.shape[0]} rows are duplicates: equal rows stay equal in every upload, "
            "and link participants."
        )
    zero = int((rows == 0).all(axis=1).sum())
    if zero:
        found.append(f"{zero} rows are zero throughout: their image is the secret translation itself.")
    short = [n for n in (part.shape[0] for part in partition.train) if n <= n_components]
    if short:
        found.append(
            f"{len(short)} participants have no more rows ({min(short)} at least) than components ({n_components}): "
            "figures for them are uncertain, and every known row weighs more."
        )
    found += _separated(rows)
    return tuple(found)


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


def is_unprojected(partition: Partition, n_components: int) -> bool:
    """Whether columns reach the upload unmixed by a projection."""
    return n_components == partition.n_features


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


def reach_of_lattice_reduction(n_columns: int) -> str:
    """How far lattice reduction gets with so many columns, in words."""
    return "within reach of lattice reduction" if n_columns <= _LATTICE_WIDTH else "a start for lattice reduction"


def _lattice(rows: npt.NDArray[np.float64]) -> list[str]:
    gridded = gridded_columns(rows).size
    if gridded == 0:
        return []
    return [
        f"{gridded} of {rows.shape[1]} columns take values on a grid (whole numbers, yes/no): without private-data noise "
        f"the upload lies on a turned lattice, {reach_of_lattice_reduction(rows.shape[1])} (the attack 'lattice')."
    ]


def _separated(rows: npt.NDArray[np.float64]) -> list[str]:
    apart, gaps = separated_variances(rows)
    if apart == 0:
        return []
    return [
        f"{apart} of the {gaps} gaps between the largest variances exceed a factor of {SEPARATED}: "
        "the principal axes of an upload can be paired with the population's."
    ]
