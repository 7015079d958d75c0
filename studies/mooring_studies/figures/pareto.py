"""Which operating points no other point beats on both counts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def frontier(leakage: Array, utility: Array) -> NDArray[np.intp]:
    """The points that no other beats: from the least leakage to the most, each more useful than those before.

    Points that are not finite are left out.

    Examples
    --------
    >>> frontier(np.array([10.0, 20.0, 30.0]), np.array([60.0, 50.0, 90.0])).tolist()
    [0, 2]
    """
    known = np.flatnonzero(np.isfinite(leakage) & np.isfinite(utility))
    order = known[np.lexsort((-utility[known], leakage[known]))]
    best = np.maximum.accumulate(utility[order]) if len(order) else utility[order]
    before = np.concatenate([[-np.inf], best[:-1]]) if len(order) else best
    return order[utility[order] > before]
