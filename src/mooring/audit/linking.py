"""One linkage test, set up once and put to every attack: galleries, their candidates as vectors, control and floor."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from mooring.measures import Embedding, Figure, Galleries, Linkage, link

Matrix = npt.NDArray[np.float64]
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
        What an attacker without the upload, and the projection alone, score.
    """

    name: str
    queried: npt.NDArray[np.int64]
    vectors: Matrix
    galleries: Galleries
    embedding: Embedding | None
    control: float | None = None
    floor: float | None = None

    def figure(self, rows: Matrix) -> Figure:
        """How often rebuilt rows are linked, beside chance, control and floor."""
        return self.linked(rows).figure(self.name, control=self.control, floor=self.floor)

    def linked(self, rows: Matrix) -> Linkage:
        """How often rebuilt rows are linked."""
        chosen = rows[self.queried]
        if (
            self.embedding is None
        ):  # by distance or by angle, whichever serves the attacker: much noise spoils distances
            both = [link(chosen, self.vectors, self.galleries, metric=metric) for metric in ("euclidean", "cosine")]
            return max(both, key=lambda one: one.accuracy)
        return link(np.asarray(self.embedding(chosen)), self.vectors, self.galleries, metric="cosine")


def linkage_test(
    name: str,
    galleries: Galleries,
    candidates: Matrix,
    *,
    embedding: Embedding | None,
    control_rows: Matrix | None,
    floor_rows: Matrix,
) -> LinkageTest:
    """Set a test up: embed the candidates that galleries use, once, and measure control and floor."""
    queried, queries = np.unique(galleries.queries, return_inverse=True)
    used, places = np.unique(galleries.candidates, return_inverse=True)
    compact = replace(galleries, queries=queries.ravel(), candidates=places.reshape(galleries.candidates.shape))
    vectors = candidates[used] if embedding is None else np.asarray(embedding(candidates[used]))
    test = LinkageTest(name, queried, vectors, compact, embedding)
    control = None if control_rows is None else test.linked(control_rows).accuracy
    return replace(test, control=control, floor=test.linked(floor_rows).accuracy)
