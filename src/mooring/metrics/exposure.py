"""The most exposed value, column and row of a table, which a mean over all of it hides.

An attack that rebuilds rows badly on the whole may still tell who carries a rare value, rebuild one column, or one row far
from the others. Of all attacks and of all values, columns or rows the worst is taken, beside what guessing gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mooring.metrics.intervals import LEVEL, Figure, Interval, wilson
from mooring.metrics.reconstruction import feature_r2
from mooring.metrics.validation import Integers
from mooring.randomness import require_generator
from mooring.typing import Matrix

FEW_VALUES = 20
"""A column of at most so many values is asked for the carriers of each."""
_FEWEST_ASKED, _MOST_ASKED, _MOST_CELLS = 20, 500, 1_000_000  # each question ranks all rows, for every attack
_SIGNIFICANCE = 0.05
_N_SHUFFLES = 20
_WELL_REBUILT = 0.3
_SHARES = {"exposed_percent": 0.01, "exposed_tenth": 0.1, "exposed_half": 0.5}
_NAMES = {
    "exposed_row": "one row",
    "exposed_percent": "1 % of the rows",
    "exposed_tenth": "a tenth of the rows",
    "exposed_half": "half of the rows",
}


@dataclass(frozen=True, eq=False)
class Carriers:
    """Who carries which value: one question for each value that at most half of the rows hold."""

    columns: Integers
    values: Matrix
    """Of shape (q,)."""
    sides: Integers
    """Of shape (q,): 1 for the largest value of a column, −1 for the smallest, 0 for one between."""
    carried: NDArray[np.bool_]
    """Of shape (n, q)."""

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
    """The value whose carriers are found most above guessing, and the attack that finds them; None if none is, or by chance.

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
    from scipy.stats import hypergeom

    best: tuple[float, int, str, int, float] | None = None
    for attack, found in tries:
        by_chance = hypergeom.sf(np.floor(found) - 1, n_rows, counts, counts) * n_questions
        above = np.where(by_chance < _SIGNIFICANCE, (found / counts - without) / np.maximum(1 - without, 1e-9), 0.0)
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
    tries = [(attack, _column_errors(truth, rows)) for attack, rows in rebuilt]
    ratios = np.full((len(tries), control.size), np.inf)
    for ratio, (_, errors) in zip(ratios, tries, strict=True):
        np.divide(errors, control, out=ratio, where=np.isfinite(errors) & (control > 0))
    if not np.isfinite(ratios).any():
        return None
    which, k = np.unravel_index(int(ratios.argmin()), ratios.shape)
    (attack, errors), level, n = tries[which], float(control[k]), len(truth)
    return attack, Figure(f"column {names(int(k))}", float(errors[k]), Interval.unknown(), None, level, None, n, False)


def find_exposed_rows(
    truth: Matrix, rebuilt: Mapping[str, Matrix], *, guessed: Matrix, rng: np.random.Generator
) -> dict[str, tuple[str, Figure]]:
    """How well the rows rebuilt best are rebuilt, compared with guessing them, each figure with its strongest attack.

    A row's error is relative to that of guessing it. `exposed_row` is the least; `exposed_percent`, `exposed_tenth` and
    `exposed_half` are the errors that 1 %, 10 % and half of the rows stay below; `exposed_share` is the share of rows with
    less than 0.3 of the error of guessing. Nothing is found where guesses are exact.

    Parameters
    ----------
    truth : array of shape (n, h)
    rebuilt : mapping of str to array of shape (n, h)
        By attack.
    guessed : array of shape (n, h)
        What an attacker would say without the upload.
    rng : numpy.random.Generator
        Shuffles the rebuilt rows, those of all attacks alike, among rows with the same guess. Chance is the strongest
        figure over 20 shuffles and all attacks: rows that tell nothing come beyond it with a probability of 1/21 at most.
    """
    require_generator(rng)
    size = np.linalg.norm(guessed - truth, axis=1)
    told = size > 1e-9 * max(float(size.max(initial=0.0)), 1e-300)
    n = int(told.sum())
    if n == 0:
        return {}

    def errors(rows: Matrix, order: Integers | slice = slice(None)) -> Matrix:
        gap = rows[order] - truth
        return np.sort(np.sqrt(np.einsum("ij,ij->i", gap, gap)[told]) / size[told])

    groups = np.unique(guessed, axis=0, return_inverse=True)[1].ravel()
    places, by_chance = np.argsort(groups, kind="stable"), []
    for _ in range(_N_SHUFFLES):
        shuffled = np.empty_like(places)
        shuffled[places] = np.lexsort((rng.random(groups.size), groups))
        by_chance += [errors(rows, shuffled) for rows in rebuilt.values()]
    found = {name: errors(rows) for name, rows in rebuilt.items()}
    asked = {name: int(np.ceil(share * n)) - 1 for name, share in _SHARES.items() if share * n >= 1}
    exposed = {}
    for name, place in {"exposed_row": 0, **asked}.items():
        attack = min(found, key=lambda one: round(float(found[one][place]), 9))  # of equal attacks the first
        interval = Interval.unknown() if name == "exposed_row" else _order_interval(found[attack], _SHARES[name])
        chance = min(float(one[place]) for one in by_chance)
        value, words = float(found[attack][place]), _NAMES[name]
        exposed[name] = (attack, Figure(words, value, interval, chance, 1.0, None, n, higher_is_worse=False))
    counts = {name: int((one < _WELL_REBUILT).sum()) for name, one in found.items()}
    attack = max(counts, key=lambda one: counts[one])
    chance = max(float((one < _WELL_REBUILT).mean()) for one in by_chance)
    share = Figure("rows well rebuilt", counts[attack] / n, wilson(counts[attack], n), chance, 0.0, None, n, True)
    return exposed | {"exposed_share": (attack, share)}


def order_by_exposure(truth: Matrix, rebuilt: Matrix, guessed: Matrix | None) -> Integers:
    """Places of rows, those first that are rebuilt best compared with guessing them; all are of shape (n, h).

    Parameters
    ----------
    truth, rebuilt : arrays of shape (n, h)
    guessed : array of shape (n, h) or None
        None orders by the error alone.
    """
    error = np.linalg.norm(rebuilt - truth, axis=1)
    if guessed is not None:
        size = np.linalg.norm(guessed - truth, axis=1)
        error = np.divide(error, size, out=np.full_like(error, np.inf), where=size > 1e-9 * size.max(initial=0.0))
    return np.argsort(error, kind="stable")


def find_read_columns(
    truth: Matrix, rebuilt: Iterable[tuple[str, Matrix]], *, guessed: Iterable[Matrix], names: Callable[[int], str]
) -> dict[str, tuple[str, Figure]]:
    """How often attacks read the value of a column with few values, compared with the best guess from label and population.

    `column_accuracy` is the mean over all such columns, `read_column` the column read most above guessing. Columns named
    'column=category' are one column.

    Parameters
    ----------
    truth : array of shape (n, m)
    rebuilt, guessed
        As for `find_exposed_value`.
    names : callable
        Words for a column.
    """
    groups: dict[str, list[int]] = {}
    for k in range(truth.shape[1]):
        groups.setdefault(names(k).partition("=")[0], []).append(k)
    columns = {
        name: own for name, own in groups.items() if len(own) > 1 or 2 <= np.unique(truth[:, own[0]]).size <= FEW_VALUES
    }
    if not columns:
        return {}

    def read(rows: Matrix) -> Matrix:
        """Which values are right, one column a column."""
        return np.column_stack([_read(truth[:, own], rows[:, own]) for own in columns.values()])

    commonest = np.array([_commonest(truth[:, own]) for own in columns.values()])
    without = np.max([commonest, *(read(rows).mean(axis=0) for rows in guessed)], axis=0)
    tries = [(attack, read(rows)) for attack, rows in rebuilt]
    attack, best = max(tries, key=lambda one: float(one[1].mean()))
    by_row, n = best.mean(axis=1), len(truth)
    interval = wilson(float(by_row.sum()), n)  # wider than it must be: a row has several columns
    figure = Figure(
        "columns read", float(by_row.mean()), interval, float(commonest.mean()), float(without.mean()), None, n, True
    )
    found = {"column_accuracy": (attack, figure)}
    above = [(one.mean(axis=0) - without) / np.maximum(1 - without, 1e-9) for _, one in tries]
    which, k = (int(one) for one in np.unravel_index(int(np.argmax(above)), np.shape(above)))
    if above[which][k] > 0:
        name, (attack, hits) = list(columns)[k], tries[which]
        interval = wilson(float(hits[:, k].sum()), n)
        levels = float(commonest[k]), float(without[k]), None
        found["read_column"] = (attack, Figure(f"column {name}", float(hits[:, k].mean()), interval, *levels, n, True))
    return found


def _read(truth: Matrix, rebuilt: Matrix) -> NDArray[np.bool_]:
    """Whether the likeliest category, or the nearest of few values, is the true one."""
    if truth.shape[1] > 1:
        return np.asarray(rebuilt.argmax(axis=1) == truth.argmax(axis=1))
    values = np.unique(truth)
    nearest = values[np.abs(rebuilt - values).argmin(axis=1)]
    return np.asarray(nearest == truth[:, 0])


def _commonest(truth: Matrix) -> float:
    """The share of the commonest value."""
    codes = truth.argmax(axis=1) if truth.shape[1] > 1 else truth[:, 0]
    return float(np.unique(codes, return_counts=True)[1].max() / len(truth))


def _order_interval(errors: Matrix, share: float) -> Interval:
    """The interval of a quantile between order statistics, whatever the distribution."""
    from scipy.stats import binom

    n = len(errors)
    low, high = binom.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], n, share).astype(int)
    return Interval(float(errors[max(low - 1, 0)]), float(errors[min(high, n - 1)]))


def _column_errors(truth: Matrix, rebuilt: Matrix) -> Matrix:
    return np.sqrt(1 - feature_r2(truth, rebuilt))
