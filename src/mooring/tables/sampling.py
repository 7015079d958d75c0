"""Random selection of rows: samples of large tables, and splits by class or by group."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.randomness import require_generator
from mooring.tables.encoder import EncodedRows, UnfitUse, encoded_batches, join_rows
from mooring.tables.files import no_rows
from mooring.tables.reader import read_ahead
from mooring.tables.records import label_kind_of
from mooring.tables.schema import Schema
from mooring.typing import Indices, Labels, TableSource

_MOST_ROWS, _FEWEST_ROWS, _MOST_NUMBERS = 20_000, 2_000, 2**24


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows drawn from a table, in the table's order."""

    encoded: EncodedRows
    """All rows of a small table; otherwise a uniform sample."""
    n_rows: int
    """Number of rows of the table, without rows that the reader left out."""
    class_counts: dict[str, int] | None
    """Number of these rows per class; None if the label has no classes."""


def sample_rows(
    schema: Schema,
    data: TableSource,
    *,
    ignore: Collection[str] = (),
    person: str = "",
    unfit: UnfitUse = "refuse",
    seed: int = 0,
    at_most: int | None = None,
    each: Callable[[EncodedRows], object] | None = None,
) -> Sample:
    """Read a whole table, check every row, and keep a uniform sample.

    Each row gets a random number, and the rows with the lowest numbers are kept. At most `at_most` rows are kept; by
    default, the limit follows from the number of features, so that the sample fits in memory. `each` is called with every
    batch of rows. A table without rows is refused only if `unfit` is "refuse".
    """
    if at_most is None:
        at_most = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_NUMBERS // schema.n_features))
    rng = np.random.default_rng([seed, 13])
    counts = np.zeros(len(schema.label.classes), dtype=np.int64)
    kept: EncodedRows | None = None
    draws: npt.NDArray[np.float64] = np.zeros(0)
    n_rows = 0
    for block in read_ahead(encoded_batches(schema, data, ignore=tuple(ignore), person=person, unfit=unfit)):
        if each is not None:
            each(block)
        if schema.label.kind == "classes" and block.labels is not None:
            counts += np.bincount(block.labels, minlength=counts.size)
        drawn = np.asarray(rng.random(block.rows.shape[0]))
        n_rows += drawn.size
        highest = float(draws.max()) if draws.size == at_most else 1.0
        chosen = np.flatnonzero(drawn < highest)
        kept = join_rows([*([] if kept is None else [kept]), _taken(block, chosen)])
        draws = np.concatenate([draws, drawn[chosen]])
        if draws.size > at_most:
            stay = np.sort(np.argpartition(draws, at_most - 1)[:at_most])
            kept, draws = _taken(kept, stay), draws[stay]
    if kept is None and unfit == "refuse":
        raise no_rows()
    kept = kept or _no_rows_of(schema)
    by_class = dict(zip(schema.label.classes, counts.tolist(), strict=True)) if counts.size else None
    return Sample(kept, n_rows, by_class)


def _no_rows_of(schema: Schema) -> EncodedRows:
    labels = None if schema.label.kind == "none" else np.zeros(0, dtype=np.int64)
    n_values = len(schema.columns) + (labels is not None)
    return EncodedRows(np.zeros((0, schema.n_features)), labels, np.zeros((0, n_values)), 1)


def _taken(some: EncodedRows, chosen: npt.NDArray[np.int64]) -> EncodedRows:
    labels = None if some.labels is None else some.labels[chosen]
    return EncodedRows(some.rows[chosen], labels, some.values[chosen], some.first_row)


def make_strata(labels: Labels | None, n_rows: int) -> Indices:
    """Return the class of every row; 0 for all rows if labels are numbers or absent."""
    if labels is None or label_kind_of(labels) != "classes":
        return np.zeros(n_rows, dtype=np.int64)
    return labels.astype(np.int64)


def split_stratified(
    chosen: Indices, strata: Indices, n_out: int, *, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return `n_out` of the chosen rows, drawn at random, and the rest, both as row numbers in rising order.

    The draw is stratified: the number of rows drawn from each class is proportional to the class's size, to within one row.
    `chosen` are row numbers, and `strata` the classes of all rows.

    Examples
    --------
    >>> strata = np.array([0, 0, 0, 0, 1, 1])
    >>> out, rest = split_stratified(np.arange(6), strata, 3, rng=np.random.default_rng(0))
    >>> strata[out].tolist()
    [0, 0, 1]
    """
    require_generator(rng)
    shuffled = rng.permutation(chosen)
    if n_out == 0:
        return shuffled[:0], np.sort(shuffled)
    _, codes, counts = np.unique(strata[shuffled], return_inverse=True, return_counts=True)
    exact = counts * (n_out / shuffled.size)
    quota = np.floor(exact + 1e-9).astype(np.int64)
    largest_remainders = np.argsort(quota - exact, kind="stable")[: n_out - quota.sum()]
    quota[largest_remainders] += 1
    order = np.argsort(codes, kind="stable")
    starts = np.cumsum(counts) - counts
    rank = np.empty(shuffled.size, dtype=np.int64)
    rank[order] = np.arange(shuffled.size) - starts[codes[order]]
    out = rank < quota[codes]
    return np.sort(shuffled[out]), np.sort(shuffled[~out])


def round_robin(chosen: Indices, strata: Indices, n_parts: int, *, rng: np.random.Generator) -> tuple[Indices, ...]:
    """Split rows at random into parts whose class counts and totals differ by one row at most.

    `chosen` and `strata` are as for `split_stratified`.

    Examples
    --------
    >>> parts = round_robin(np.arange(7), np.zeros(7, dtype=np.int64), 3, rng=np.random.default_rng(0))
    >>> [part.size for part in parts]
    [3, 2, 2]
    """
    require_generator(rng)
    shuffled = rng.permutation(chosen)
    ordered = shuffled[np.argsort(strata[shuffled], kind="stable")]
    return tuple(np.sort(ordered[part::n_parts]) for part in range(n_parts))


def share_of(share: float, n_rows: int) -> int:
    """Return a share of the rows, rounded to a whole number of rows."""
    return int(share * n_rows + 0.5)


def owners_of_groups(
    groups: Indices, strata: Indices, n_participants: int, n_public: int, *, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Return the participant that every row goes to, −1 for public rows, and the indices of the public rows.

    With as many groups as participants, each participant gets one group, and public rows come from all groups. Otherwise
    the public rows are whole groups, with at least `n_public` rows together. The other groups are assigned in order of size,
    the largest first, each to the participant that has the fewest rows so far. `groups` and `strata` are the group and the
    class of every row.
    """
    present, codes, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if present.size == n_participants:
        owner = codes.astype(np.int64)
        public, _ = split_stratified(np.arange(groups.size), strata, n_public, rng=rng)
        owner[public] = -1
        return owner, public
    shuffled = rng.permutation(present.size)
    n_public_groups = int(np.searchsorted(np.cumsum(sizes[shuffled]), n_public)) + 1 if n_public else 0
    private = shuffled[n_public_groups:]
    if private.size < n_participants:
        raise InputError(
            "n_participants",
            expected=f"at most {private.size}, the number of groups" + (" that are not public" if n_public else ""),
            got=str(n_participants),
            cure="Ask for fewer participants, or leave by_group out.",
        )
    owner_of_group = np.full(present.size, -1, dtype=np.int64)
    loads = np.zeros(n_participants, dtype=np.int64)
    for group in private[np.argsort(-sizes[private], kind="stable")]:
        poorest = int(np.argmin(loads))
        owner_of_group[group] = poorest
        loads[poorest] += sizes[group]
    owner = owner_of_group[codes]
    return owner, np.flatnonzero(owner < 0)
