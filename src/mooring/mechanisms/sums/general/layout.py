"""The general total in integers: what one participant adds up, and the layout of its vector.

Legend: h the weights of a row on all levels, in integers; M the integer contrasts; K = Σ (1, h)(1, h)ᵀ; S the matrix of
products and D its order; Δ the sensitivity; ω the weight of a row; U the unit of a column.

K is summed over blocks of rows. Products of small integers are exact in float64 below 2⁵³, in any order. S = M K Mᵀ is
computed once, at the end, in integers. Before a row is added, a check in integers ensures that the row lies between the
first and the last level of each column, or on no level of it. The row's weights on a column are then not negative, and sum
to U or to zero. Δ follows from this, whatever the table holds (`Workload.integer_sensitivity_squared`). If every row of a
block lies on levels of every column, the last level of each column is left out of the product: its weight is U minus the sum
of the column's other weights.

If the mean over a person's k rows is added, each row has the integer weight ω = ⌊2²⁰/k⌋ in K, and S is divided by 2²⁰ at
the end and rounded down. A person's weights sum to at most 2²⁰. The person therefore changes S by at most Δ before rounding,
and by at most Δ + √(2N) after rounding, where N is the length of the vector.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from threading import Lock

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.general.workload import SmallIntegers, Workload
from mooring.mechanisms.sums.prime_field import LARGEST
from mooring.mechanisms.sums.sums import Integers, require_room, require_size
from mooring.typing import Indices, Labels, Matrix

_MEAN_BITS = 20
_MOST_NUMBERS = 2**23
_ROWS_A_PRODUCT = 2**9  # with weights of at most 2⁹ and ω of at most 2²⁰, sums of products are far below 2⁵³


@dataclass(frozen=True)
class PairwiseLayout:
    """The layout of the general total's vector: the entries of S on and above the diagonal that are shared, row by row."""

    workload: Workload
    adds_means: bool = False
    """Whether the mean over each person's rows is added."""

    def __post_init__(self) -> None:
        if self.size > _MOST_NUMBERS:
            problem = f"The study's columns need {self.size:,} sums, and {_MOST_NUMBERS:,} can be shared."
            raise InputError("columns", problem=problem, cure="Declare fewer columns or fewer categories.")

    @cached_property
    def entries(self) -> tuple[Indices, Indices]:
        """The row and the column in S of each number of the vector. On the diagonal, only the first entry is shared."""
        rows, columns = np.nonzero(np.triu(self.workload.shared))
        return rows, columns

    @cached_property
    def size(self) -> int:
        """The length of the vector, N."""
        shared = self.workload.shared
        return (int(np.count_nonzero(shared)) + 1) // 2

    @cached_property
    def on_diagonal(self) -> npt.NDArray[np.bool_]:
        """Which numbers of the vector are on the diagonal of S: only the first."""
        rows, columns = self.entries
        return np.asarray(rows == columns)

    @property
    def sensitivity_squared(self) -> int:
        """The square of the largest change of S in integers by one row or, with means, by one person."""
        squared = self.workload.integer_sensitivity_squared
        if not self.adds_means:
            return squared
        return (math.isqrt(squared) + 1 + math.isqrt(2 * self.size) + 1) ** 2

    @property
    def most_rows(self) -> int:
        """Maximum number of rows of all participants together, so that no sum exceeds the field."""
        largest = self.workload.constant_integer**2 + sum(self.workload.integer_shares)
        return LARGEST // (2 * largest)  # the other half is for the noise

    def unpack(self, vector: Integers, noise_variance: float) -> PairwiseTotal:
        """Return the total that a vector holds; `noise_variance` is in squared units of the vector's integers."""
        require_size(vector, self.size)
        workload, (rows, columns) = self.workload, self.entries
        matrix = np.zeros((workload.size, workload.size))
        matrix[rows, columns] = matrix[columns, rows] = vector / workload.resolution**2
        return PairwiseTotal(workload, matrix, noise_variance / workload.resolution**4)


class PairwiseAccumulator:
    """Accumulates the general total over blocks of rows. Several threads may add blocks at the same time.

    Examples
    --------
    >>> from mooring.mechanisms.sums.general.workload import make_workload
    >>> from mooring.tables.schema import Column, Schema
    >>> schema = Schema((Column("age", "integer", 0, 70), Column("sex", "category", categories=("f", "m"))))
    >>> workload = make_workload(schema)
    >>> sums = PairwiseAccumulator(PairwiseLayout(workload), np.random.default_rng(0))
    >>> sums.add(np.array([[0.2, 1.0, 0.0], [-0.4, 0.0, 1.0]]))
    >>> total = sums.layout.unpack(sums.vector, 0.0)
    >>> round(total.estimate(workload.product(workload.number("age"), workload.constant)), 9)
    63.0
    """

    def __init__(self, layout: PairwiseLayout, rng: np.random.Generator) -> None:
        self.layout = layout
        self.n_rows = 0
        workload = layout.workload
        self._kept = np.flatnonzero(np.diff(workload.columns_of_levels, append=-1) == 0)  # all but the last of a column
        self._all = np.arange(workload.n_levels)
        self._products = np.zeros((workload.n_levels + 1,) * 2, dtype=np.int64)
        self._products_of_kept = np.zeros((len(self._kept) + 1,) * 2, dtype=np.int64)
        self._bubbles = np.zeros(len(workload.bubbles), dtype=np.int64)
        self._rng, self._lock = rng, Lock()

    def add(self, rows: Matrix, labels: Labels | None = None, rows_of_person: Integers | None = None) -> None:
        """Add encoded rows or, given the number of rows of each row's person, the mean over each person's rows."""
        self.add_coded(self.layout.workload.code(rows), labels, rows_of_person)

    def add_coded(self, rows: Matrix, labels: Labels | None, rows_of_person: Integers | None) -> None:
        """Add coded rows (`Workload.code`) in the way in which `add` adds encoded rows."""
        if (rows_of_person is not None) != self.layout.adds_means:
            expected = "given if, and only if, the layout's adds_means is set"
            got = "None" if rows_of_person is None else "an array"
            raise InputError("rows_of_person", expected=expected, got=got, cure="Change one of the two.")
        with self._lock:
            rng = self._rng.spawn(1)[0]
        workload = self.layout.workload
        places, bubbles = workload.quantise(rows, labels, rng)
        require_places(workload, places, bubbles)
        factors = np.ones(1, dtype=np.int64)
        if rows_of_person is not None:
            if rows_of_person.min(initial=1) < 1:
                cure = "Count the rows of each person first."
                raise InputError("rows_of_person", problem="Some person has no rows.", cure=cure)
            factors = (1 << _MEAN_BITS) // rows_of_person
        is_complete = bool((places >= 0).all())
        weights = workload.spread(places, self._kept if is_complete else self._all)
        products = _multiply(weights, factors)
        with self._lock:
            (self._products_of_kept if is_complete else self._products)[...] += products
            self._bubbles += (bubbles if rows_of_person is None else bubbles * factors[:, None]).sum(axis=0)
            self.n_rows += len(rows)
        require_room(self.n_rows, self.layout.most_rows)

    def _restore(self) -> Integers:
        """Return the matrix that computes 1 and all weights of a row from 1 and the kept weights."""
        workload = self.layout.workload
        restored = np.zeros((workload.n_levels + 1, len(self._kept) + 1), dtype=np.int64)
        restored[0, 0] = 1
        restored[self._kept + 1, np.arange(len(self._kept)) + 1] = 1
        for levels, end in zip(workload.columns, workload.ends, strict=True):
            restored[end] = -restored[end - levels.n_levels + 1 : end].sum(axis=0)
            restored[end, 0] = levels.unit
        return restored

    @property
    def vector(self) -> Integers:
        """The sums so far."""
        workload, bits = self.layout.workload, _MEAN_BITS if self.layout.adds_means else 0
        products = self._products + self._restore() @ self._products_of_kept @ self._restore().T
        low = products & ((1 << bits) - 1)  # K = 2²⁰ (K >> 20) + low, so that nothing exceeds 64 bits
        matrix = _transform(workload, products >> bits) + (_transform(workload, low) >> bits)
        for curve, place in zip(self._bubbles, workload.bubbles.values(), strict=True):
            matrix[0, place] = (int(curve) * workload.constant_integer) >> bits
        return np.asarray(matrix[self.layout.entries])


def _multiply(weights: SmallIntegers, factors: Integers) -> Integers:
    """Return Σ ω (1, h)(1, h)ᵀ for weights of shape (number of levels, n), by blocks whose sums are exact in float64."""
    n_levels, n = weights.shape
    products = np.zeros((n_levels + 1,) * 2, dtype=np.int64)
    memory = np.ones((n_levels + 1, min(_ROWS_A_PRODUCT, n)))  # reused for each block, so that it stays in the cache
    for start in range(0, n, _ROWS_A_PRODUCT):
        some = weights[:, start : start + _ROWS_A_PRODUCT]
        block = memory[:, : some.shape[1]]
        block[1:] = some
        weighted = block if len(factors) == 1 != n else block * factors[start : start + _ROWS_A_PRODUCT]
        products += (weighted @ block.T).astype(np.int64)
    return products


def require_places(workload: Workload, places: SmallIntegers, bubbles: Integers) -> None:
    """Raise an `InputError` for rows that could change S by more than the sensitivity.

    Each place must lie between the first and the last level of its column, or at −U. Each bubble must lie between zero and
    the height of the column's bubble.
    """
    lengths = [(levels.n_levels - 1) * levels.unit for levels in workload.columns]
    heights = np.array([workload.integer_bubbles[index] for index in workload.bubbles], dtype=np.int64)
    fits = (places.max(axis=1, initial=0) <= lengths).all() and not (bubbles > heights).any()
    if places.min(initial=0) < 0:
        fits = fits and ((places >= 0) | (places == -workload.units[:, None])).all()
    if not fits or bubbles.min(initial=0) < 0:
        problem = "Some rows have weights that are negative or do not sum to one."
        raise InputError("rows", problem=problem, cure="Encode them with the study's schema.")


def _transform(workload: Workload, products: Integers) -> Integers:
    """Return M K Mᵀ in integers, of shape (D, D), with zeros in the rows and columns of bubbles."""
    half = np.zeros((workload.size, products.shape[1]), dtype=np.int64)
    whole = np.zeros((workload.size, workload.size), dtype=np.int64)
    for source, target in ((products, half), (half.T, whole)):
        target[0] = workload.constant_integer * source[0]
        at = 1
        for start, contrasts in zip(workload.starts, workload.integer_contrasts, strict=True):
            n_contrasts, n_levels = contrasts.shape
            target[start : start + n_contrasts] = contrasts @ source[at : at + n_levels]
            at += n_levels
    return whole
