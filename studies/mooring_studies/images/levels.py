"""The noise of every draw of a part of a study, and which draws are worth the costly attacks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.typing import Matrix

_FEWEST_STRONG = 12


@dataclass(frozen=True, eq=False)
class Levels:
    """The noise of every draw of a part, and which draws the costly attacks are run on."""

    anchor: Matrix
    data: Matrix
    strong: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.anchor)


def strong_draws(scales: Matrix, every: int) -> npt.NDArray[np.bool_]:
    """Which draws get the costly attacks: one in `every`, a dozen at least, spread evenly over the noise levels."""
    n_chosen = min(len(scales), max(_FEWEST_STRONG, math.ceil(len(scales) / every)))
    chosen = np.zeros(len(scales), dtype=bool)
    for level in np.linspace(scales.min(), scales.max(), n_chosen):
        chosen[np.argmin(np.where(chosen, np.inf, np.abs(scales - level)))] = True
    return chosen
