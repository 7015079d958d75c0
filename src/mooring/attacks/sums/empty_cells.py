"""Empty cells: a candidate with a pair of values that no honest row has is not in the sums.

A member with the weights h on the levels of all columns adds h_a h_b to the cell of levels a and b, so that the cell holds
at least h_a h_b. A candidate is not a member if one of its cells holds less.
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import MembershipScores

_ROUNDING = 0.02  # weights are rounded at random when they are summed


def empty_cells(view: PairwiseView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by minus what is missing from a candidate's cells, which is zero for members."""
    view.require_exact()
    cells, blocks = view.cells, view.list_blocks()
    rows = view.candidates.features[:, : len(cells)]
    lacking = np.zeros(len(rows))
    for k, first in enumerate(blocks):
        for second in blocks[:k]:
            added = rows[:, first, None] * rows[:, None, second]
            lacking += np.maximum(added - cells[first, second] - _ROUNDING, 0.0).sum(axis=(1, 2))
    return MembershipScores(-lacking)
