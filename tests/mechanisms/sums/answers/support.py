"""What tests of answers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.typing import Matrix


def differentiate(total: PairwiseTotal, ask: Callable[[PairwiseTotal], Any], step: float = 1e-4) -> Matrix:
    """The covariance of figures by the delta method, one shared number of the total after the other.

    Each has the variance of the total's noise, off the diagonal half of it.
    """
    covariance: Any = 0.0
    for j, k in zip(*np.nonzero(np.triu(total.workload.shared)), strict=True):
        moved = np.zeros_like(total.matrix)
        moved[j, k] = moved[k, j] = step
        above, below = (np.asarray(ask(replace(total, matrix=total.matrix + sign * moved))) for sign in (1, -1))
        slope = (above - below) / (2 * step)
        covariance = covariance + total.noise_variance * (1.0 if j == k else 0.5) * np.outer(slope, slope)
    return np.asarray(covariance)
