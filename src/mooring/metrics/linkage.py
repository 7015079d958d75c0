"""Linkage: finding the true record of a rebuilt row among similar ones.

Each query, a reconstructed row, comes with a gallery of clean rows: its true match and similar rows. The attacker selects
the candidate nearest to the reconstruction. With k candidates a guess is right with probability 1/k.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike

from mooring.errors import InputError, require_choice
from mooring.geometry.backend import as_float64, indices_beside, namespace_of, to_numpy, vector_norms
from mooring.metrics.galleries import Galleries
from mooring.metrics.intervals import N_RESAMPLES, Figure, Interval, percentile_interval, resampled_sums, wilson
from mooring.metrics.validation import BLOCK_NUMBERS, Integers, finite_rows, unit_rows
from mooring.typing import Array, Matrix

Metric = Literal["euclidean", "cosine"]
ROW_METRICS: tuple[Metric, ...] = ("euclidean", "cosine")
"""Metrics for rows without an embedding. The metric that links more rows counts, since strong noise spoils distances."""

_TIE_TOLERANCE = 1e-12
_ROUNDING_OF_UNIT_ROWS = 1e-14
_RIGHT_ANGLE = 2.0**0.5  # the distance of two unit vectors whose cosine is 0


class Embedding(Protocol):
    """A callable that turns rows, float64 of shape (n, m), into vectors, float64 of shape (n, k)."""

    def __call__(self, rows: Matrix, /) -> Matrix:
        """Return one vector per row."""
        ...


def gallery_hits(
    queries: Array,
    candidates: Array,
    galleries: Galleries,
    *,
    metric: Metric = "euclidean",
    block_numbers: int = BLOCK_NUMBERS,
) -> Matrix:
    """Return the hits of each gallery in each of D reconstructions of the same rows, of shape (D, q).

    A hit is 1 if the true match is nearest, 0 if it is not, and 1/t if it ties with t − 1 others. `queries` are of shape
    (D, n, m) and `candidates` of shape (r, m). A vector of zeros has cosine 0 with every other. Galleries are compared in
    blocks of at most `block_numbers` numbers.
    """
    xp, cosine = namespace_of(queries, candidates), metric == "cosine"
    far, zero_far = _prepared(candidates, cosine=cosine)
    n_galleries, n_candidates = galleries.candidates.shape
    block = max(1, block_numbers // (n_candidates * far.shape[1]))
    slack = _ROUNDING_OF_UNIT_ROWS if cosine else 0.0
    hits = np.empty((queries.shape[0], n_galleries))
    for draw in range(queries.shape[0]):
        near, zero_near = _prepared(queries[draw, ...], cosine=cosine)
        for start in range(0, n_galleries, block):
            part = slice(start, start + block)
            asked, shown = (indices_beside(rows[part], far) for rows in (galleries.queries, galleries.candidates))
            distances = vector_norms(far[shown, :] - near[asked, :][:, None, :])
            if cosine:  # cosines rank like distances of unit vectors
                zero = zero_near[asked][:, None] | zero_far[shown]
                distances = xp.where(zero, _RIGHT_ANGLE, distances)
            nearest = xp.min(distances, axis=1, keepdims=True)
            tied = to_numpy(distances <= nearest * (1.0 + _TIE_TOLERANCE) + slack)
            hits[draw, part] = tied[np.arange(len(tied)), galleries.answers[part]] / tied.sum(axis=1)
    return hits


def linked_shares(
    queries: Array, candidates: Array, galleries: Galleries, *, metrics: Sequence[Metric] = ROW_METRICS
) -> Matrix:
    """Return the share of linked galleries in each of D reconstructions, by the metric that links most; of shape (D,).

    `queries` are of shape (D, n, m); all else is as for `link`. Use both metrics for rows, and cosine for an auditor's
    vectors.
    """
    shares = [gallery_hits(queries, candidates, galleries, metric=metric).mean(axis=1) for metric in metrics]
    return np.asarray(np.max(shares, axis=0), dtype=np.float64)


def _prepared(rows: Array, *, cosine: bool) -> tuple[Array, Array]:
    """Return rows in float64, scaled to length one for cosines, and which of them are zero."""
    rows = as_float64(rows)
    is_zero = namespace_of(rows).all(rows == 0, axis=1)
    return (unit_rows(rows) if cosine else rows), is_zero


def link(queries: ArrayLike, candidates: ArrayLike, galleries: Galleries, *, metric: Metric = "euclidean") -> Figure:
    """Return how often the nearest candidate of a gallery is the true match.

    The interval is Wilson's if every query has one gallery. Several galleries of one query are not independent; the interval
    is then a bootstrap over queries, or Wilson's over queries if all galleries agree.

    Parameters
    ----------
    queries : array of shape (n, m)
        Reconstructed rows, indexed by `galleries.queries`.
    candidates : array of shape (r, m)
        Clean rows, indexed by `galleries.candidates`.
    galleries : Galleries
        The candidates of each query.
    metric : {"euclidean", "cosine"}
        Distance to rank candidates by. A vector of zeros has cosine 0 with every other.

    Examples
    --------
    >>> from mooring.metrics import build_galleries
    >>> rows = np.arange(20.0)[:, None]
    >>> linkage = link(rows, rows, build_galleries(np.zeros(20), n_candidates=5, seed=0))
    >>> linkage.value, linkage.chance
    (1.0, 0.2)
    """
    require_choice("metric", metric, ROW_METRICS)
    near, far = finite_rows("queries", queries), finite_rows("candidates", candidates)
    for what, rows, wanted in (("queries", near, galleries.queries), ("candidates", far, galleries.candidates)):
        if wanted.min() < 0 or wanted.max() >= len(rows):
            expected, cure = (
                f"at least {wanted.max() + 1} rows, as the galleries need",
                "Build galleries for these rows.",
            )
            raise InputError(what, expected=expected, got=f"{len(rows)} rows", cure=cure)
    if near.shape[1] != far.shape[1]:
        got, cure = f"{far.shape[1]}", "Decode reconstructions to the features of the clean rows."
        raise InputError("candidates", expected=f"of {near.shape[1]} features like the queries", got=got, cure=cure)
    hits = gallery_hits(near[None], far, galleries, metric=metric)[0]
    asked, query = np.unique(galleries.queries, return_inverse=True)
    if len(asked) == len(hits):
        interval = wilson(float(hits.sum()), len(hits))
    else:
        interval = _interval_over_queries(hits, query, seed=galleries.seed)
    chance = 1.0 / galleries.candidates.shape[1]
    return Figure("linkage", float(hits.mean()), interval, chance, None, None, len(asked), higher_is_worse=True)


def _interval_over_queries(hits: Matrix, query: Integers, *, seed: int) -> Interval:
    """Return a bootstrap interval over queries, or Wilson's interval if all galleries agree."""
    counts = np.bincount(query).astype(np.float64)
    totals = np.bincount(query, weights=hits)
    if hits.min() == hits.max() and hits[0] in (0.0, 1.0):
        return wilson(float(hits[0]) * len(counts), len(counts))
    rng = np.random.default_rng([seed, 1])
    sums = resampled_sums(np.column_stack([totals, counts]), rng=rng, n_resamples=N_RESAMPLES)
    return percentile_interval(sums[:, 0] / sums[:, 1], n_rows=len(counts))
