"""The most exposed value, column and rows of a table, which a mean over the whole table hides.

An attack that rebuilds rows badly on average may still identify the carriers of a rare value, rebuild one column, or rebuild
one unusual row. These measures report the worst case over all attacks and all values, columns or rows, beside the result of
guessing.
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
"""A column has few values if it has at most this many different ones."""
_FEWEST_ASKED, _MOST_ASKED, _MOST_CELLS = 20, 500, 1_000_000  # each attack ranks all rows for each value
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
    """The rows that carry each rare value. A rare value is held by at most half of the rows, in a column with few values."""

    columns: Integers
    """Column of each value, of shape (q,)."""
    values: Matrix
    """The values, of shape (q,)."""
    sides: Integers
    """1 for the largest value of a column, −1 for the smallest, 0 for any other; of shape (q,)."""
    carried: NDArray[np.bool_]
    """Which rows carry each value, of shape (n, q)."""

    @classmethod
    def of(cls, rows: Matrix) -> Carriers:
        """Return the carriers of rare values, the rarest first. At most 500 values are kept, and fewer for large tables."""
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
        columns, sides = (np.array([entry[part] for entry in asked], dtype=np.int64) for part in (2, 4))
        values = np.array([entry[3] for entry in asked], dtype=np.float64)
        return cls(columns, values, sides, rows[:, columns] == values)

    @property
    def counts(self) -> Integers:
        """The number of rows that carry each value."""
        return np.asarray(self.carried.sum(axis=0), dtype=np.int64)

    def rank(self, rebuilt: Matrix) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which rows rank above the last place for each value, and which tie for that place.

        For each value, rows are ranked by their likeness to its carriers, and there are as many places as carriers. Ranks
        are used because an attack that shrinks a column still keeps the order of its rows.
        """
        seen = rebuilt[:, self.columns]
        likeness = np.where(self.sides == 0, -np.abs(seen - self.values), self.sides * seen)
        last = np.take_along_axis(-np.sort(-likeness, axis=0), self.counts[None] - 1, axis=0)
        return likeness > last, likeness == last

    def count_found(self, above: NDArray[np.bool_], tied: NDArray[np.bool_]) -> Matrix:
        """Return how many carriers of each value are among the rows that `rank` returned; ties count fractionally."""
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
    """Return the attack that finds the carriers of a value most above guessing, and the figure of this value, or None.

    A value counts only if a random ranking would find as many carriers with a probability below 0.05 (hypergeometric tail).
    The probability is corrected for the number of values and of sets of rows that attacks rank first (Bonferroni); attacks
    that rank the same rows first count once. The result is None if no value that counts is found above guessing.

    `rebuilt` are names of attacks with their rebuilt rows, of shape (n, m); an attack may occur several times, once per
    decoder. `guessed` are guesses of an attacker without the upload. `name_of` returns words for a column and a value.
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
    for attack, hits in tries:
        p_values = hypergeom.sf(np.floor(hits) - 1, n_rows, counts, counts) * n_questions
        above = np.where(p_values < _SIGNIFICANCE, (hits / counts - without) / np.maximum(1 - without, 1e-9), 0.0)
        k = int(above.argmax())  # the first of equals, which is the rarest value
        if above[k] > 0 and (best is None or (above[k], -counts[k]) > best[:2]):
            best = (float(above[k]), -int(counts[k]), attack, k, float(hits[k]))
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
    """Return the attack that rebuilds a column best compared with guessing, and the figure of this column.

    The error of a column is relative to the column's spread. `rebuilt` and `guessed` are as for `find_exposed_value`, and
    `names` returns the name of a column. The result is None if no column can be compared.
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
    """Return figures of how well the most exposed rows are rebuilt, each with its strongest attack.

    The error of a row is relative to the error of guessing it. `exposed_row` is the smallest error. `exposed_percent`,
    `exposed_tenth` and `exposed_half` are the errors that 1 %, 10 % and half of the rows stay below. `exposed_share` is the
    share of rows with less than 0.3 of the error of guessing. Rows that are guessed exactly are left out, and the result is
    empty if all are. A figure for 1 % or 10 % of the rows is missing if that is less than one row.

    Parameters
    ----------
    truth : array of shape (n, h)
    rebuilt : mapping of str to array of shape (n, h)
        Rebuilt rows of each attack.
    guessed : array of shape (n, h)
        Guesses of an attacker without the upload.
    rng : numpy.random.Generator
        Shuffles the rebuilt rows, in the same order for all attacks, among rows with the same guess. Chance is the strongest
        figure over 20 shuffles and all attacks. Rows that say nothing beyond the guess give a stronger figure than this with
        a probability of at most 1/21.
    """
    require_generator(rng)
    size = np.linalg.norm(guessed - truth, axis=1)
    is_inexact = size > 1e-9 * size.max(initial=0.0)  # rows that are not guessed exactly
    n = int(is_inexact.sum())
    if n == 0:
        return {}

    def errors(rows: Matrix, order: Integers | slice = slice(None)) -> Matrix:
        gap = rows[order] - truth
        return np.sort(np.sqrt(np.einsum("ij,ij->i", gap, gap)[is_inexact]) / size[is_inexact])

    groups = np.unique(guessed, axis=0, return_inverse=True)[1].ravel()
    places, by_chance = np.argsort(groups, kind="stable"), []
    for _ in range(_N_SHUFFLES):
        shuffled = np.empty_like(places)
        shuffled[places] = np.lexsort((rng.random(groups.size), groups))
        by_chance += [errors(rows, shuffled) for rows in rebuilt.values()]
    errors_of = {name: errors(rows) for name, rows in rebuilt.items()}
    quantiles = {name: int(np.ceil(share * n)) - 1 for name, share in _SHARES.items() if share * n >= 1}
    exposed = {}
    for name, place in {"exposed_row": 0, **quantiles}.items():
        attack = min(errors_of, key=lambda attack: round(float(errors_of[attack][place]), 9))  # the first of equals
        interval = Interval.unknown() if name == "exposed_row" else _order_interval(errors_of[attack], _SHARES[name])
        chance = min(float(shuffled_errors[place]) for shuffled_errors in by_chance)
        value, words = float(errors_of[attack][place]), _NAMES[name]
        exposed[name] = (attack, Figure(words, value, interval, chance, 1.0, None, n, higher_is_worse=False))
    counts = {name: int((row_errors < _WELL_REBUILT).sum()) for name, row_errors in errors_of.items()}
    attack = max(counts, key=lambda attack: counts[attack])
    chance = max(float((shuffled_errors < _WELL_REBUILT).mean()) for shuffled_errors in by_chance)
    share = Figure("rows well rebuilt", counts[attack] / n, wilson(counts[attack], n), chance, 0.0, None, n, True)
    return exposed | {"exposed_share": (attack, share)}


def order_by_exposure(truth: Matrix, rebuilt: Matrix, guessed: Matrix | None) -> Integers:
    """Return the order of rows from best to worst rebuilt; errors are relative to guessing if `guessed` is given."""
    error = np.linalg.norm(rebuilt - truth, axis=1)
    if guessed is not None:
        size = np.linalg.norm(guessed - truth, axis=1)
        error = np.divide(error, size, out=np.full_like(error, np.inf), where=size > 1e-9 * size.max(initial=0.0))
    return np.argsort(error, kind="stable")


def find_read_columns(
    truth: Matrix, rebuilt: Iterable[tuple[str, Matrix]], *, guessed: Iterable[Matrix], names: Callable[[int], str]
) -> dict[str, tuple[str, Figure]]:
    """Return figures of how often attacks infer the values of columns with few values, beside the result of guessing.

    `column_accuracy` is the mean over all such columns. `read_column` is the column that is inferred most above guessing; it
    is missing if there is none. The result is empty without such columns. Encoded columns named 'column=category' count as
    one column, whatever the number of categories. `rebuilt`, `guessed` and `names` are as for `find_exposed_column`.
    """
    groups: dict[str, list[int]] = {}
    for k in range(truth.shape[1]):
        groups.setdefault(names(k).partition("=")[0], []).append(k)
    columns = {
        name: places
        for name, places in groups.items()
        if len(places) > 1 or 2 <= np.unique(truth[:, places[0]]).size <= FEW_VALUES
    }
    if not columns:
        return {}

    def read(rows: Matrix) -> Matrix:
        """Return which values are inferred correctly, with one column for each of `columns`."""
        return np.column_stack([_read(truth[:, places], rows[:, places]) for places in columns.values()])

    commonest = np.array([_commonest(truth[:, places]) for places in columns.values()])
    without = np.max([commonest, *(read(rows).mean(axis=0) for rows in guessed)], axis=0)
    tries = [(attack, read(rows)) for attack, rows in rebuilt]
    attack, best = max(tries, key=lambda attempt: float(attempt[1].mean()))
    by_row, n = best.mean(axis=1), len(truth)
    interval = wilson(float(by_row.sum()), n)  # conservative, because a row has several columns
    figure = Figure(
        "columns read", float(by_row.mean()), interval, float(commonest.mean()), float(without.mean()), None, n, True
    )
    figures = {"column_accuracy": (attack, figure)}
    above = [(hits.mean(axis=0) - without) / np.maximum(1 - without, 1e-9) for _, hits in tries]
    which, k = (int(index) for index in np.unravel_index(int(np.argmax(above)), np.shape(above)))
    if above[which][k] > 0:
        name, (attack, hits) = list(columns)[k], tries[which]
        interval = wilson(float(hits[:, k].sum()), n)
        levels = float(commonest[k]), float(without[k]), None
        figure = Figure(f"column {name}", float(hits[:, k].mean()), interval, *levels, n, True)
        figures["read_column"] = (attack, figure)
    return figures


def _read(truth: Matrix, rebuilt: Matrix) -> NDArray[np.bool_]:
    """Return whether the likeliest category, or the nearest of few values, is the true one."""
    if truth.shape[1] > 1:
        return np.asarray(rebuilt.argmax(axis=1) == truth.argmax(axis=1))
    values = np.unique(truth)
    nearest = values[np.abs(rebuilt - values).argmin(axis=1)]
    return np.asarray(nearest == truth[:, 0])


def _commonest(truth: Matrix) -> float:
    """Return the share of the most frequent value."""
    codes = truth.argmax(axis=1) if truth.shape[1] > 1 else truth[:, 0]
    return float(np.unique(codes, return_counts=True)[1].max() / len(truth))


def _order_interval(errors: Matrix, share: float) -> Interval:
    """Return the distribution-free interval of a quantile, between two of the sorted errors."""
    from scipy.stats import binom

    n = len(errors)
    low, high = binom.ppf([(1 - LEVEL) / 2, (1 + LEVEL) / 2], n, share).astype(int)
    return Interval(float(errors[max(low - 1, 0)]), float(errors[min(high, n - 1)]))


def _column_errors(truth: Matrix, rebuilt: Matrix) -> Matrix:
    return np.sqrt(1 - feature_r2(truth, rebuilt))
