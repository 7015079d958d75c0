"""Linkage tests with galleries, embedded candidates, control and floor, which are prepared once for all attacks."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.audit.specification import EvaluationSpec
from mooring.errors import InputError
from mooring.metrics import Embedding, Figure, Galleries, build_galleries, build_identity_galleries, link
from mooring.metrics.linkage import ROW_METRICS
from mooring.typing import Matrix

Rows = Matrix | tuple[Matrix, ...]
"""Rebuilt rows, or one version of them for each decoder. The figure is that of the version that links the most rows."""


class CachedEmbedding:
    """An embedding with a cache, since candidates, controls and floors are the same at many points."""

    def __init__(self, embedding: Embedding, *, size: int = 16) -> None:
        self._embedding, self._size = embedding, size
        self._kept: OrderedDict[str, Matrix] = OrderedDict()

    def __call__(self, rows: Matrix) -> Matrix:
        """Return the embedding of rows, from the cache if possible."""
        key = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
        if key not in self._kept:
            self._kept[key] = np.asarray(self._embedding(rows))
            if len(self._kept) > self._size:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def __repr__(self) -> str:
        return repr(self._embedding)


@dataclass(frozen=True, eq=False)
class LinkageTest:
    """A linkage test that can be applied to the rows of every attack."""

    name: str
    """Name of the figure."""
    queried: npt.NDArray[np.int64]
    """Indices of the rebuilt rows that are queries."""
    vectors: Matrix
    """The embedded candidates that galleries use."""
    galleries: Galleries
    """Galleries with indices into `queried` and `vectors`."""
    embedding: Embedding | None
    """The auditor's embedding, or None to compare rows directly."""
    control: float | None = None
    """The linkage of an attacker without the upload; None if such an attacker has no guess."""
    floor: float | None = None
    """The linkage of the exact projected rows."""

    def figure(self, rows: Rows) -> Figure:
        """Return the share of rebuilt rows that are linked, with chance, control and floor."""
        seen = [part[self.queried] for part in (rows if isinstance(rows, tuple) else (rows,))]
        if self.embedding is not None:
            figures = [link(self.embedding(part), self.vectors, self.galleries, metric="cosine") for part in seen]
        else:
            figures = [
                link(part, self.vectors, self.galleries, metric=metric) for part in seen for metric in ROW_METRICS
            ]
        best = max(figures, key=lambda figure: figure.value)
        return replace(best, name=self.name, control=self.control, floor=self.floor)


def make_linkage_test(
    name: str,
    galleries: Galleries,
    candidates: Matrix,
    *,
    embedding: Embedding | None = None,
    control_rows: Rows | None,
    floor_rows: Rows,
) -> LinkageTest:
    """Return a linkage test, with embedded candidates, control and floor.

    The queries of the galleries are indices of rebuilt rows, and their candidates are indices of true rows in `candidates`.
    Without an embedding, rows are compared directly. `control_rows` are guesses without the upload, or None; `floor_rows`
    are the exact projected rows.
    """
    queried, queries = np.unique(galleries.queries, return_inverse=True)
    used, places = np.unique(galleries.candidates, return_inverse=True)
    compact = replace(galleries, queries=queries.ravel(), candidates=places.reshape(galleries.candidates.shape))
    vectors = candidates[used] if embedding is None else np.asarray(embedding(candidates[used]))
    test = LinkageTest(name, queried, vectors, compact, embedding)
    control = None if control_rows is None else test.figure(control_rows).value
    return replace(test, control=control, floor=test.figure(floor_rows).value)


def make_galleries(spec: EvaluationSpec, labels: npt.NDArray[Any], n_targets: int, seed: int) -> Galleries | None:
    """Return galleries whose queries are the targets' rows, or None if no class has enough rows.

    `labels` are the classes of the targets' `n_targets` rows, and then of further rows that fill the galleries.
    """
    try:
        built = build_galleries(labels, n_candidates=spec.n_candidates, seed=seed)
    except InputError:
        return None
    queried = np.flatnonzero(built.queries < n_targets)
    if queried.size == 0:
        return None
    if queried.size > spec.n_queries:
        queried = np.sort(np.random.default_rng([seed, 7]).choice(queried, spec.n_queries, replace=False))
    return replace(
        built, queries=built.queries[queried], candidates=built.candidates[queried], answers=built.answers[queried]
    )


def identity_galleries(
    spec: EvaluationSpec, where: npt.NDArray[Any], reference_indices: npt.NDArray[Any], seed: int
) -> Galleries | None:
    """Return galleries of held-out rows with one query row per person; None without groups, or with too few rows.

    `spec.groups` names the person of every row. `where` and `reference_indices` are the indices of the targets' rows and of
    the held-out rows. `seed` determines the other candidates of each gallery.
    """
    if spec.groups is None or reference_indices.size == 0:
        return None
    persons, first = np.unique(spec.groups[where], return_index=True)
    try:
        built = build_identity_galleries(  # one query per person, since rows of one person are not independent
            persons, spec.groups[reference_indices], n_candidates=spec.n_candidates, galleries_per_query=10, seed=seed
        )
    except InputError:
        return None
    return replace(built, queries=first[built.queries])
