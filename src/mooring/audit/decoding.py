"""The attacker's ways back from projected rows to records: the projection's own, and one learnt from colluders' records.

What stands beside figures as the floor is the exact projected rows decoded by these; a better decoder may get below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mooring.attacks import CollusionView
from mooring.attacks.decoding import LearnedDecoder, learned_decoder
from mooring.geometry.backend import like, to_numpy
from mooring.mechanisms.projection import Projection
from mooring.typing import Matrix

_FOLDS = 3
_MOST_TRIED = 1000
_MOST_TOGETHER = 8


@dataclass(frozen=True, eq=False)
class WaysBack:
    """One way back or two.

    Attributes
    ----------
    projection : Projection
        Its pseudoinverse is a way back that needs no records.
    learned : LearnedDecoder or None
        None where the projection loses nothing, or colluders have fewer than two records.
    trusts_learned : bool
        Whether the attacker would choose the learned one: learnt from two thirds of the colluders' records, it came
        nearer to the other third.
    """

    projection: Projection
    learned: LearnedDecoder | None = None
    trusts_learned: bool = False

    def tried(self, rows: Matrix) -> tuple[Matrix, ...]:
        """Rows decoded in every way: by the pseudoinverse, then by the learned decoder where there is one."""
        own = np.asarray(to_numpy(self.projection.decode(like(rows, self.projection.matrix))))
        return (own,) if self.learned is None else (own, self.learned.decode(rows))

    def trusted(self, rows: Matrix) -> Matrix:
        """Rows decoded in the way that the attacker would choose, which it can without the truth."""
        return self.tried(rows)[-1 if self.trusts_learned else 0]


def ways_back(view: CollusionView) -> WaysBack:
    """Learn what can be learnt from the colluders' records, and from nobody else's."""
    projection = view.projection
    records = [np.asarray(to_numpy(colluder.records), dtype=np.float64) for colluder in view.colluders]
    loses = projection.kind != "none" and projection.n_components < projection.n_features
    if not loses or sum(part.shape[0] for part in records) < 2:
        return WaysBack(projection)
    known = np.concatenate(records)
    return WaysBack(projection, learned_decoder(projection, known), _comes_nearer(projection, known))


def _comes_nearer(projection: Projection, records: Matrix) -> bool:
    """Whether a learned decoder is nearer than the pseudoinverse to records that it has not seen; too few say no."""
    records = records[np.sort(np.unique(records, axis=0, return_index=True)[1])]  # a copy would be seen, not unseen
    if records.shape[0] < _FOLDS:
        return False
    some = records[:: -(-records.shape[0] // _MOST_TRIED)]
    # Neighbours may be one person's rows and are kept together, a few at a time: a table may also be sorted by class.
    block = min(_MOST_TOGETHER, max(1, some.shape[0] // (4 * _FOLDS)))
    fold = np.arange(some.shape[0]) // block % _FOLDS
    missed = np.zeros(2)
    for k in range(_FOLDS):
        unseen = some[fold == k]
        ways = WaysBack(projection, learned_decoder(projection, some[fold != k]))
        missed += [float(((found - unseen) ** 2).sum()) for found in ways.tried(unseen @ to_numpy(projection.matrix))]
    return bool(missed[1] < missed[0])
