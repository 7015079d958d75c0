"""Linkage tests, each set up once and put to every attack: galleries, their candidates as vectors, control and floor."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.audit.simulation import Simulation
from mooring.audit.specification import Lens
from mooring.errors import InputError
from mooring.geometry.backend import to_numpy
from mooring.metrics import Embedding, Figure, Galleries, Linkage, build_galleries, build_identity_galleries, link
from mooring.typing import Matrix

Rows = Matrix | tuple[Matrix, ...]
"""Rebuilt rows; or the same ones decoded in several ways, of which the one that links most counts."""
_KEPT = 16


class Remembering:
    """An embedding that keeps what it was last asked: candidates, controls and floors recur from point to point."""

    def __init__(self, embedding: Embedding) -> None:
        self._embedding = embedding
        self._kept: OrderedDict[str, Matrix] = OrderedDict()

    def __call__(self, rows: Matrix) -> Matrix:
        """Embed rows, or give back what was found for the same ones before."""
        key = hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()
        if key not in self._kept:
            self._kept[key] = np.asarray(self._embedding(rows))
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]

    def __repr__(self) -> str:
        return repr(self._embedding)


@dataclass(frozen=True, eq=False)
class LinkageTest:
    """A linkage test.

    Attributes
    ----------
    name : str
        What its figure is called.
    queried : array of int
        Which rebuilt rows are queries.
    vectors : array
        The candidates in use, embedded.
    galleries : Galleries
        Over `queried` and `vectors`.
    embedding : Embedding or None
        The auditor, or None to compare rows as they are.
    control, floor : float or None
        What an attacker without the upload scores, and the exact projected rows.
    """

    name: str
    queried: npt.NDArray[np.int64]
    vectors: Matrix
    galleries: Galleries
    embedding: Embedding | None
    control: float | None = None
    floor: float | None = None

    def figure(self, rows: Rows) -> Figure:
        """How often rebuilt rows are linked, beside chance, control and floor."""
        return self.linked(rows).figure(self.name, control=self.control, floor=self.floor)

    def linked(self, rows: Rows) -> Linkage:
        """How often rebuilt rows are linked."""
        ways = rows if isinstance(rows, tuple) else (rows,)
        return max((self._linked(one[self.queried]) for one in ways), key=lambda one: one.accuracy)

    def _linked(self, chosen: Matrix) -> Linkage:
        if self.embedding is not None:
            return link(np.asarray(self.embedding(chosen)), self.vectors, self.galleries, metric="cosine")
        # by distance or by angle, whichever serves the attacker: much noise spoils distances
        both = [link(chosen, self.vectors, self.galleries, metric=metric) for metric in ("euclidean", "cosine")]
        return max(both, key=lambda one: one.accuracy)


def linkage_test(
    name: str,
    galleries: Galleries,
    candidates: Matrix,
    *,
    embedding: Embedding | None,
    control_rows: Rows | None,
    floor_rows: Rows,
) -> LinkageTest:
    """Set a test up: embed the candidates that galleries use, once, and measure control and floor."""
    queried, queries = np.unique(galleries.queries, return_inverse=True)
    used, places = np.unique(galleries.candidates, return_inverse=True)
    compact = replace(galleries, queries=queries.ravel(), candidates=places.reshape(galleries.candidates.shape))
    vectors = candidates[used] if embedding is None else np.asarray(embedding(candidates[used]))
    test = LinkageTest(name, queried, vectors, compact, embedding)
    control = None if control_rows is None else test.linked(control_rows).accuracy
    return replace(test, control=control, floor=test.linked(floor_rows).accuracy)


def galleries_for(
    lens: Lens,
    simulation: Simulation,
    targets: Sequence[int],
    candidate_labels: npt.NDArray[Any] | None,
    n_candidates: int,
    seed: int,
) -> Galleries | None:
    """Galleries whose queries are the targets' rows; None where no class has enough look-alikes."""
    own = [simulation.labels[t] for t in targets]
    n_own = sum(int(simulation.records[t].shape[0]) for t in targets)
    labels = None
    if candidate_labels is not None and all(part is not None for part in own):
        labels = np.concatenate([*(to_numpy(part) for part in own), candidate_labels])
        if np.issubdtype(labels.dtype, np.floating):
            labels = None
    try:
        built = build_galleries(labels, n_candidates=lens.n_candidates, n_rows=n_own + n_candidates, seed=seed)
    except InputError:
        return None
    queried = np.flatnonzero(built.queries < n_own)
    if queried.size == 0:
        return None
    if queried.size > lens.n_queries:
        queried = np.sort(np.random.default_rng([seed, 7]).choice(queried, lens.n_queries, replace=False))
    return replace(
        built, queries=built.queries[queried], candidates=built.candidates[queried], answers=built.answers[queried]
    )


def identity_galleries(
    lens: Lens, where: npt.NDArray[Any], reference_indices: npt.NDArray[Any], seed: int
) -> Galleries | None:
    """Galleries of held-out rows, a query a person; None where there are no persons, or too few."""
    if lens.groups is None or reference_indices.size == 0:
        return None
    persons, first = np.unique(lens.groups[where], return_index=True)
    try:
        built = build_identity_galleries(  # one query a person: rows of one person are not independent
            persons, lens.groups[reference_indices], n_candidates=lens.n_candidates, galleries_per_query=10, seed=seed
        )
    except InputError:
        return None
    return replace(built, queries=first[built.queries])
