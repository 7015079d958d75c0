"""Linkage: finding the true record of a rebuilt row among similar ones.

Each query, a reconstructed row, comes with a gallery of clean rows: its true match and look-alikes. The attacker names
the candidate nearest to the reconstruction; with k candidates a guess is right once in k times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, indices_beside, namespace_of, to_numpy, vector_norms
from mooring.metrics.embeddings import Embedding
from mooring.metrics.galleries import Galleries
from mooring.metrics.intervals import Figure, Interval, percentile_interval, resampled_sums, wilson
from mooring.metrics.validation import BLOCK_NUMBERS, Integers, finite_rows, unit_rows
from mooring.typing import Array, Matrix

Metric = Literal["euclidean", "cosine"]
ROW_METRICS: tuple[Metric, ...] = ("euclidean", "cosine")
"""How rows that no auditor embeds are compared, by whichever serves the attacker: much noise spoils distances."""

_TIE_TOLERANCE = 1e-12
_N_RESAMPLES = 2000
_ROUNDING_OF_UNIT_ROWS = 1e-14
_RIGHT_ANGLE = 2.0**0.5  # the distance of two unit vectors whose cosine is 0


@dataclass(frozen=True, eq=False)
class Linkage:
    """How often the true match was named."""

    accuracy: float
    """The mean of `hits`."""
    interval: Interval
    """Wilson's where every query has one gallery; where queries have several, which are not independent, a bootstrap over
    queries."""
    chance: float
    """1/k."""
    hits: Matrix
    """Of shape (q,): 1 where the true match was nearest, 0 where it was not, 1/t where it shared that place with t − 1
    others."""
    n_queries: int
    n_dropped: int
    """Queries without a gallery."""

    def figure(self, name: str = "linkage", *, control: float | None = None, floor: float | None = None) -> Figure:
        """Return the accuracy as a figure, beside a control and a floor measured elsewhere.

        Parameters
        ----------
        name : str, default "linkage"
            Of the figure.
        control : float, optional
            Accuracy of an attack that does not use the upload.
        floor : float, optional
            Accuracy with the exact projected rows.
        """
        return Figure(name, self.accuracy, self.interval, self.chance, control, floor, self.n_queries, True)


def gallery_hits(queries: Array, candidates: Array, galleries: Galleries, *, metric: Metric = "euclidean") -> Matrix:
    """Hit or miss of each gallery in each of several reconstructions of the same rows, on their device.

    Parameters
    ----------
    queries : array of shape (D, n, m)
        D reconstructions, indexed by `galleries.queries`.
    candidates : array of shape (r, m)
        Clean rows, indexed by `galleries.candidates`.
    metric : {"euclidean", "cosine"}
        What nearest means. A vector of zeros has cosine 0 with every other.

    Returns
    -------
    array of shape (D, q)
        1 where the true match is nearest, 0 where it is not, 1/t where it shares that place with t − 1 others.
    """
    xp, cosine = namespace_of(queries, candidates), metric == "cosine"
    far, aimless_far = _prepared(candidates, cosine=cosine)
    n_galleries, n_candidates = galleries.candidates.shape
    block = max(1, BLOCK_NUMBERS // (n_candidates * far.shape[1]))
    slack = _ROUNDING_OF_UNIT_ROWS if cosine else 0.0
    hits = np.empty((queries.shape[0], n_galleries))
    for draw in range(queries.shape[0]):
        near, aimless_near = _prepared(queries[draw, ...], cosine=cosine)
        for start in range(0, n_galleries, block):
            part = slice(start, start + block)
            asked, shown = (indices_beside(one[part], far) for one in (galleries.queries, galleries.candidates))
            distances = vector_norms(far[shown, :] - near[asked, :][:, None, :])
            if cosine:  # ranks like the distance of unit vectors
                aimless = aimless_near[asked][:, None] | aimless_far[shown]
                distances = xp.where(aimless, _RIGHT_ANGLE, distances)
            nearest = xp.min(distances, axis=1, keepdims=True)
            tied = to_numpy(distances <= nearest * (1.0 + _TIE_TOLERANCE) + slack)
            hits[draw, part] = tied[np.arange(len(tied)), galleries.answers[part]] / tied.sum(axis=1)
    return hits


def linked_shares(
    queries: Array, candidates: Array, galleries: Galleries, *, metrics: Sequence[Metric] = ROW_METRICS
) -> Matrix:
    """The share of galleries linked in each of D reconstructions, by the metric that links most: shape (D,).

    Parameters
    ----------
    queries, candidates, galleries
        As for `gallery_hits`.
    metrics : sequence of {"euclidean", "cosine"}
        Both for rows, cosine for an auditor's vectors.
    """
    found = [gallery_hits(queries, candidates, galleries, metric=metric).mean(axis=1) for metric in metrics]
    return np.asarray(np.max(found, axis=0), dtype=np.float64)


def _prepared(rows: Array, *, cosine: bool) -> tuple[Array, Array]:
    """Rows in float64, of length one for cosines, and which of them are zero throughout."""
    rows = as_float64(rows)
    aimless = namespace_of(rows).all(rows == 0, axis=1)
    return (unit_rows(rows) if cosine else rows), aimless


def link(
    queries: ArrayLike,
    candidates: ArrayLike,
    galleries: Galleries,
    *,
    embedding: Embedding | None = None,
    metric: Metric = "euclidean",
) -> Linkage:
    """Name the nearest candidate of each gallery and count how often it is the true match.

    Parameters
    ----------
    queries : array of shape (n, m)
        Reconstructed rows, indexed by `galleries.queries`.
    candidates : array of shape (r, m)
        Clean rows, indexed by `galleries.candidates`.
    galleries : Galleries
        Which candidates each query is shown with.
    embedding : callable, optional
        The auditor: turns rows into vectors, on both sides; the rows themselves by default.
    metric : {"euclidean", "cosine"}
        What nearest means. A vector of zeros has cosine 0 with every other.

    Examples
    --------
    >>> from mooring.metrics import build_galleries
    >>> rows = np.arange(20.0)[:, None]
    >>> linkage = link(rows, rows, build_galleries(None, n_rows=20, n_candidates=5, seed=0))
    >>> linkage.accuracy, linkage.chance
    (1.0, 0.2)
    """
    if metric not in ("euclidean", "cosine"):
        raise InputError("metric", expected="'euclidean' or 'cosine'", got=repr(metric), cure="Pass one of the two.")
    near, near_index = _embedded("queries", queries, galleries.queries, embedding)
    far, far_index = _embedded("candidates", candidates, galleries.candidates, embedding)
    if near.shape[1] != far.shape[1]:
        got, cure = f"{far.shape[1]}", "Decode reconstructions to the features of the clean rows."
        raise InputError("candidates", expected=f"of {near.shape[1]} features like the queries", got=got, cure=cure)
    shown = replace(galleries, queries=near_index, candidates=far_index)
    hits = gallery_hits(near[None], far, shown, metric=metric)[0]
    n_queries = len(near)
    if n_queries == len(hits):
        interval = wilson(float(hits.sum()), n_queries)
    else:
        interval = _interval_over_queries(hits, near_index, seed=galleries.seed)
    chance = 1.0 / galleries.n_candidates
    return Linkage(float(hits.mean()), interval, chance, hits, n_queries, galleries.n_dropped)


def _embedded(what: str, rows: ArrayLike, wanted: Integers, embedding: Embedding | None) -> tuple[Matrix, Integers]:
    """The vectors of the wanted rows only, and for each wanted row where its vector is."""
    rows = finite_rows(what, rows)
    if wanted.min() < 0 or wanted.max() >= len(rows):
        expected = f"at least {wanted.max() + 1} rows, as the galleries ask for"
        raise InputError(what, expected=expected, got=f"{len(rows)} rows", cure="Build the galleries for these rows.")
    used, index = np.unique(wanted, return_inverse=True)
    index = index.reshape(wanted.shape)
    if embedding is None:
        return rows[used], index
    vectors = finite_rows("embedding", embedding(rows[used]))
    if len(vectors) != len(used):
        expected = f"to give one vector a row, {len(used)} in all"
        raise InputError("embedding", expected=expected, got=f"{len(vectors)}", cure="Return an array of shape (n, k).")
    return vectors, index


def _interval_over_queries(hits: Matrix, query: Integers, *, seed: int) -> Interval:
    """Resample queries with all their galleries; where every gallery agrees, a bootstrap is blind and Wilson's is not."""
    counts = np.bincount(query).astype(np.float64)
    totals = np.bincount(query, weights=hits)
    if hits.min() == hits.max() and hits[0] in (0.0, 1.0):
        return wilson(float(hits[0]) * len(counts), len(counts))
    rng = np.random.default_rng([seed, 1])
    sums = resampled_sums(np.column_stack([totals, counts]), rng=rng, n_resamples=_N_RESAMPLES)
    return percentile_interval(sums[:, 0] / sums[:, 1], n_rows=len(counts), level=0.95)
