"""Level of one: a level that a single honest row has discloses that row, with its label.

Legend: h the weights of a row on the levels of all columns, w = h_a its weight on level a.

Sums are over the honest rows. The attack takes it that only one row has the level a if Σ h_a is at most one and, in each
other column, the sums Σ h_a h_b look like those of one row: a row is on one level of a category, or on two neighbouring
nodes of a number. Then Σ h_a h_b = w h_b for all levels b of other columns, so that these sums are the row's weights times
w. Several rows that are equal in all other columns look like one row, and are read off together.
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import LabelledFeatures, MembershipScores
from mooring.mechanisms.sums.general.levels import Levels
from mooring.typing import Matrix, Vector

_ROUNDING = 1e-6
_LEAST_WEIGHT = 1e-2  # a row with a smaller w is read too inexactly


def level_of_one(view: PairwiseView, *, rng: np.random.Generator) -> MembershipScores:
    """Read off each row that alone has some level, and score candidates by minus the squared distance from the nearest."""
    view.require_exact()
    rows, known = _read_rows(view)
    if not len(rows):
        raise DoesNotApply("Every level is that of more than one honest row, or of none.")
    asked = view.candidates.features[:, : rows.shape[1]]
    squares = (asked**2) @ known.T + (known * rows**2).sum(axis=1) - 2 * asked @ (known * rows).T
    scores = -np.maximum(squares, 0.0).min(axis=1)
    return MembershipScores(scores, LabelledFeatures(rows, np.zeros((len(rows), 0))))


def _read_rows(view: PairwiseView) -> tuple[Matrix, Matrix]:
    """Return the weights of each row that alone has some level, and which of these weights are known."""
    columns, blocks = view.layout.workload.columns, view.list_blocks()
    rows, known = list[Vector](), list[Vector]()
    for levels in blocks:
        for a in range(levels.start, levels.stop):
            weight = view.counts[a]
            if not _LEAST_WEIGHT < weight <= 1 + _ROUNDING:
                continue
            row = view.cells[a] / weight
            others = [(other, row[block]) for other, block in zip(columns, blocks, strict=True) if block != levels]
            if not others or not all(_is_one_row(other, part) for other, part in others):
                continue
            row[a] = weight
            is_known = np.ones(row.size)
            if abs(weight - 1) > _ROUNDING:  # the rest of the weight is on one of two neighbours
                is_known[levels] = 0.0
                is_known[a] = 1.0
            rows.append(np.where(np.abs(row) < _ROUNDING, 0.0, row))
            known.append(is_known)
    if not rows:
        return np.zeros((0, view.layout.workload.n_levels)), np.zeros((0, view.layout.workload.n_levels))
    distinct = np.unique(np.round(rows, 4), axis=0, return_index=True)[1]
    return np.array(rows)[distinct], np.array(known)[distinct]


def _is_one_row(levels: Levels, weights: Vector) -> bool:
    """Return whether the weights on the levels of a column are those of one row.

    These are one level, or two neighbouring nodes of a number, and sum to one. A word that the study does not declare has no
    weight on any level.
    """
    carried = np.flatnonzero(np.abs(weights) > _ROUNDING)
    if (weights < -_ROUNDING).any() or abs(weights.sum() - 1) > 100 * _ROUNDING:
        return not len(carried)
    if levels.is_exact or len(carried) == 1:
        return len(carried) == 1
    return len(carried) == 2 and carried[1] == carried[0] + 1 and carried[1] < len(levels.nodes)
