"""The most exposed value, column and row of a table, which a mean over all of it hides.

An attack that rebuilds rows badly on the whole may still tell who carries a rare value, rebuild one column, or one row far
from the others. Of all attacks and of all values, columns or rows the worst is taken, beside what guessing gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom

from mooring.metrics.intervals import Figure, Interval, wilson
from mooring.metrics.reconstruction import feature_r2
from mooring.metrics.validation import Integers
from mooring.randomness import require_generator
from mooring.typing import Matrix

FEW_VALUES = 20
"""A column of at most so many values is asked for the carriers of each."""
_FEWEST_ASKED, _MOST_ASKED, _MOST_CELLS = 20, 500, 1_000_000  # each question ranks all rows, for every attack
_LUCK = 0.05
_N_SHUFFLES = 20


@dataclass(frozen=True, eq=False)
class Carriers:
    """Who carries which value: one question for each value that at most half of the rows hold.

    Attributes
    ----------
    columns, values : array of shape (q,)
    sides : array of shape (q,)
        1 for the largest value of a column, −1 for the smallest, 0 for one between.
    carried : array of bool of shape (n, q)
    """

    columns: Integers
    values: Matrix
    sides: Integers
    carried: NDArray[np.bool_]

    @classmethod
    def of(cls, rows: Matrix) -> Carriers:
        """Ask for the values of every column that has few, the rarest first."""
        asked = []
        for column, cells in enumerate(rows.T):
            values, counts = np.unique(cells, return_counts=True)
            if 2 <= values.size <= FEW_VALUES:
                asked += [
                    (count, value < values[-1], column, value, int(value == values[-1]) - int(value == values[0]))
                    for value, count in zip(values, counts, strict=True)
                    if 2 * count <= cells.size
                ]
        asked = sorted(asked)[: min(_MOST_ASKED, max(_FEWEST_ASKED, _MOST_CELLS // max(1, len(rows))))]
        columns, sides = (np.array([one[part] for one in asked], dtype=np.int64) for part in (2, 4))
        values = np.array([one[3] for one in asked], dtype=np.float64)
        return cls(columns, values, sides, rows[:, columns] == values)

    @property
    def counts(self) -> Integers:
        """How many rows carry each value."""
        return np.asarray(self.carried.sum(axis=0), dtype=np.int64)

    def rank(self, rebuilt: Matrix) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which rows look most like each value, as many as it has carriers: those above the last place, those tied for it.

        By rank: an attack that shrinks a column keeps the order of its rows.
        """
        seen = rebuilt[:, self.columns]
        likeness = np.where(self.sides == 0, -np.abs(seen - self.values), self.sides * seen)
        last = np.take_along_axis(-np.sort(-likeness, axis=0), self.counts[None] - 1, axis=0)
        return likeness > last, likeness == last

    def count_found(self, above: NDArray[np.bool_], tied: NDArray[np.bool_]) -> Matrix:
        """How many carriers are among the rows of `rank`; ties count in part."""
        left = self.counts - above.sum(axis=0)
        return np.asarray(
            (self.carried & above).sum(axis=0) + left * (self.carried & tied).sum(axis=0) / tied.sum(axis=0)
        )


def find_exposed_value(
    carriers: Carriers,
    rebuilt: Iterable[tuple[str, Matrix]],
    *,
    guessed: Iterable[Matrix],
    name_of: Callable[[int, float], str],
) -> tuple[str, Figure] | None:
    """The value whose carriers are found most above guessing, and the attack that finds them; None if none is, or by luck.

    Parameters
    ----------
    carriers : Carriers
        Of the true rows.
    rebuilt : iterable of (str, array of shape (n, m))
        Rows by attack; several of one attack where there are several ways back to records.
    guessed : iterable of arrays of shape (n, m)
        What an attacker would say without the upload.
    name_of : callable
        Words for a column and its value.

    Notes
    -----
    A value counts only where so many carriers would be found at random with a probability of less than 0.05 over all
    values asked for and all sets of rows that attacks rank first (hypergeometric tail, Bonferroni). Attacks that rank the
    same rows first count once.
    """
    n_rows, counts = len(carriers.carried), carriers.counts
    if counts.size == 0:
        return None
    control = np.max([carriers.count_found(*carriers.rank(rows)) for rows in guessed], axis=0) / counts
    without = np.maximum(counts / n_rows, control)
    tries: list[tuple[str, Matrix]] = []
    chosen: list[set[bytes]] = [set() for _ in counts]
    for attack, rows in rebuilt:
        ranked = carriers.rank(rows)
        tries.append((attack, carriers.count_found(*ranked)))
        for different, rows_of_value in zip(chosen, np.packbits(np.concatenate(ranked), axis=0).T, strict=True):
            different.add(rows_of_value.tobytes())
    n_questions = sum(map(len, chosen))
    best: tuple[float, int, str, int, float] | None = None
    for attack, found in tries:
        luck = hypergeom.sf(np.floor(found) - 1, n_rows, counts, counts) * n_questions
        above = np.where(luck < _LUCK, (found / counts - without) / np.maximum(1 - without, 1e-9), 0.0)
        k = int(above.argmax())  # of equals the first, which is the rarest
        if above[k] > 0 and (best is None or (above[k], -counts[k]) > best[:2]):
            best = (float(above[k]), -int(counts[k]), attack, k, float(found[k]))
    if best is None:
        return None
    _, _, attack, k, n_found = best
    count, words = int(counts[k]), name_of(int(carriers.columns[k]), float(carriers.values[k]))
    levels = (count / n_rows, float(control[k]), None)
    return attack, Figure(
        f"carriers of {words}", n_found / count, wilson(n_found, count), *levels, n=count, higher_is_worse=True
    )


def find_exposed_column(
    truth: Matrix, rebuilt: Iterable[tuple[str, Matrix]], *, guessed: Iterable[Matrix], names: Callable[[int], str]
) -> tuple[str, Figure] | None:
    """The column rebuilt best compared with guessing, and the attack; its error is relative to the column's spread.

    Parameters
    ----------
    truth : array of shape (n, m)
    rebuilt, guessed
        As for `find_exposed_value`.
    names : callable
        Words for a column.
    """
    control = np.min([_column_errors(truth, rows) for rows in guessed], axis=0)
    best: tuple[float, str, int, float] | None = None
    for attack, rows in rebuilt:
        errors = _column_errors(truth, rows)
        ratios = np.where(np.isfinite(errors) & (control > 0), errors / np.where(control > 0, control, 1.0), np.inf)
        k = int(ratios.argmin())
        if np.isfinite(ratios[k]) and (best is None or ratios[k] < best[0]):
            best = (float(ratios[k]), attack, k, float(errors[k]))
    if best is None:
        return None
    _, attack, k, error = best
    figure = Figure(
        f"column {names(k)}",
        error,
        Interval.unknown(),
        None,
        float(control[k]),
        None,
        len(truth),
        higher_is_worse=False,
    )
    return attack, figure


def find_exposed_row(
    truth: Matrix, rebuilt: Mapping[str, Matrix], *, guessed: Matrix, rng: np.random.Generator
) -> tuple[str, Figure] | None:
    """The row rebuilt best compared with guessing it, and the attack; the error is relative to the guess's, whose own is 1.

    Parameters
    ----------
    truth : array of shape (n, h)
    rebuilt : mapping of str to array of shape (n, h)
        By attack.
    guessed : array of shape (n, h)
        What an attacker would say without the upload.
    rng : numpy.random.Generator
        Shuffles the rebuilt rows, those of all attacks alike, among rows with the same guess. Chance is the least error
        over 20 shuffles and all attacks: rows that tell nothing come below it with a probability of 1/21 at most.
    """
    require_generator(rng)
    size = np.linalg.norm(guessed - truth, axis=1)
    told = size > 1e-9 * max(float(size.max(initial=0.0)), 1e-300)
    if not told.any():
        return None

    def least(rows: Matrix, order: Integers | slice = slice(None)) -> float:
        gap = rows[order] - truth
        return float(np.sqrt(np.einsum("ij,ij->i", gap, gap)[told] / size[told] ** 2).min())

    attack, value = min(((name, least(rows)) for name, rows in rebuilt.items()), key=lambda one: one[1])
    groups = np.unique(guessed, axis=0, return_inverse=True)[1].ravel()
    places, chance = np.argsort(groups, kind="stable"), np.inf
    for _ in range(_N_SHUFFLES):
        shuffled = np.empty_like(places)
        shuffled[places] = np.lexsort((rng.random(groups.size), groups))
        chance = min(chance, *(least(rows, shuffled) for rows in rebuilt.values()))
    return attack, Figure("one row", value, Interval.unknown(), chance, 1.0, None, len(truth), higher_is_worse=False)


def _column_errors(truth: Matrix, rebuilt: Matrix) -> Matrix:
    return np.sqrt(1 - feature_r2(truth, rebuilt))
