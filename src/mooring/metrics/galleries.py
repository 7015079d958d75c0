"""Galleries: the candidates among which an attacker must identify the true match of a query.

With k candidates a guess is right with probability 1/k. Except in galleries of identities, all candidates share the
query's label, so that the label, which the attacker sees anyway, does not help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mooring.errors import InputError
from mooring.metrics.validation import Integers, require_length, require_minimum


@dataclass(frozen=True, eq=False)
class Galleries:
    """Queries with the candidates to compare each of them with."""

    queries: Integers
    """Index of each query among the reconstructed rows, of shape (q,)."""
    candidates: Integers
    """Indices of each gallery's rows among the clean rows, of shape (q, k)."""
    answers: Integers
    """Position of the true match in each gallery, of shape (q,)."""
    seed: int
    """Seed that the galleries were drawn with."""

    def __post_init__(self) -> None:
        shape = np.shape(self.candidates)
        if len(shape) != 2 or np.shape(self.queries) != shape[:1] or np.shape(self.answers) != shape[:1]:
            raise InputError(
                "candidates",
                expected="of shape (q, k) with q queries and q answers",
                got=f"shapes {shape}, {np.shape(self.queries)} and {np.shape(self.answers)}",
                cure="Build galleries with build_galleries or build_identity_galleries.",
            )


def build_galleries(labels: ArrayLike, *, n_candidates: int = 10, n_queries: int | None = None, seed: int) -> Galleries:
    """Return galleries of `n_candidates` rows, each with a row itself and distinct other rows of the row's label.

    By default every row whose label has enough rows gets a gallery; `n_queries` of these rows are drawn if there are more.
    `seed` determines the queries, the candidates and the positions of the true match.

    Examples
    --------
    >>> build_galleries(["a"] * 4 + ["b"], n_candidates=3, seed=0).candidates.shape
    (4, 3)
    """
    require_minimum("n_candidates", n_candidates, 2)
    if n_queries is not None:
        require_minimum("n_queries", n_queries, 1)
    groups = _Groups.of(require_length("labels", labels))
    rng = _generator(seed)
    fits = np.flatnonzero(groups.counts[groups.codes] >= n_candidates)
    if len(fits) == 0:
        raise InputError(
            "labels",
            expected=f"such that at least one label has n_candidates = {n_candidates} rows",
            got=f"at most {groups.counts.max(initial=0)} rows per label",
            cure="Ask for fewer candidates or pass more rows.",
        )
    queries = fits if n_queries is None else np.sort(rng.permutation(fits)[:n_queries])
    codes = groups.codes[queries]
    places = _distinct_below(groups.counts[codes] - 1, n_candidates - 1, rng=rng)
    places += places >= groups.places[queries][:, None]
    others = groups.row_at(codes[:, None], places)
    return _shuffled(queries, queries, others, seed=seed, rng=rng)


def build_identity_galleries(
    query_identities: ArrayLike,
    reference_identities: ArrayLike,
    *,
    n_candidates: int = 10,
    galleries_per_query: int = 10,
    seed: int,
) -> Galleries:
    """Return galleries that consist of a reference row of the query's identity and rows of distinct other identities.

    Queries are reconstructed rows, and references are clean rows; both are given by their identities.
    Every query whose identity is among the references has `galleries_per_query` independent galleries of `n_candidates`
    rows, including the true match.

    Examples
    --------
    >>> build_identity_galleries([0, 1, 9], [0, 1, 2, 2], n_candidates=3, galleries_per_query=2, seed=0).queries
    array([0, 0, 1, 1])
    """
    require_minimum("n_candidates", n_candidates, 2)
    require_minimum("galleries_per_query", galleries_per_query, 1)
    identities = require_length("query_identities", query_identities)
    groups = _Groups.of(require_length("reference_identities", reference_identities))
    n_identities = len(groups.counts)
    if n_identities < n_candidates:
        expected, got = f"of at least n_candidates = {n_candidates} identities", f"{n_identities} identities"
        cure = "Ask for fewer candidates or pass references of more identities."
        raise InputError("reference_identities", expected=expected, got=got, cure=cure)
    known = np.flatnonzero(np.isin(identities, groups.names))
    if len(known) == 0:
        raise InputError(
            "query_identities",
            expected="such that at least one is among the references",
            got=f"{len(identities)} queries without a reference",
            cure="Pass references of the same identities.",
        )
    rng = _generator(seed)
    queries = np.repeat(known, galleries_per_query)
    codes = np.searchsorted(groups.names, identities[queries])
    others = _distinct_below(np.full(len(queries), n_identities - 1), n_candidates - 1, rng=rng)
    others += others >= codes[:, None]
    truths = groups.row_at(codes, rng.integers(0, groups.counts[codes]))
    impostors = groups.row_at(others, rng.integers(0, groups.counts[others]))
    return _shuffled(queries, truths, impostors, seed=seed, rng=rng)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Rows grouped by label: the labels, each row's code and position in its group, and the size of each group."""

    names: NDArray[Any]
    codes: Integers
    places: Integers
    counts: Integers
    starts: Integers
    order: Integers

    @classmethod
    def of(cls, labels: NDArray[Any]) -> _Groups:
        names, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
        order = np.argsort(codes, kind="stable")
        starts = np.cumsum(counts) - counts
        places = np.empty_like(order)
        places[order] = np.arange(len(order)) - starts[codes[order]]
        return cls(names, codes, places, counts, starts, order)

    def row_at(self, code: Integers, place: Integers) -> Integers:
        """Return the row at a position of a group."""
        return np.asarray(self.order[self.starts[code] + place], dtype=np.int64)


def _generator(seed: int) -> np.random.Generator:
    require_minimum("seed", seed, 0)
    return np.random.default_rng(seed)


def _distinct_below(limits: Integers, n_draws: int, *, rng: np.random.Generator) -> Integers:
    """Return, for each limit, `n_draws` distinct integers below it; all sets are equally likely (Floyd's method)."""
    chosen = np.empty((len(limits), n_draws), dtype=np.int64)
    for draw in range(n_draws):
        last = limits - n_draws + draw
        picked = rng.integers(0, last + 1)
        taken = (chosen[:, :draw] == picked[:, None]).any(axis=1)
        chosen[:, draw] = np.where(taken, last, picked)
    return chosen


def _shuffled(
    queries: Integers, truths: Integers, others: Integers, *, seed: int, rng: np.random.Generator
) -> Galleries:
    """Return galleries with each true match at a random position among the other candidates."""
    answers = rng.integers(0, others.shape[1] + 1, size=len(queries))
    columns = np.arange(others.shape[1] + 1)
    sources = np.where(columns < answers[:, None], columns, columns - 1)
    candidates = np.take_along_axis(others, np.maximum(sources, 0), axis=1)
    np.put_along_axis(candidates, answers[:, None], truths[:, None], axis=1)
    return Galleries(queries, candidates, answers, seed)
