"""Random Fourier features of encoded rows.

Legend: x an encoded row; ω one of M random frequencies, normal of scale 1/ℓ; c₀ the share of the constant.

    φ = (√((1 − c₀)/M) (cos ω_1ᵀx, …, cos ω_Mᵀx, sin ω_1ᵀx, …, sin ω_Mᵀx), √c₀),        ‖φ‖ = 1,

The inner product of the φ of x and x′ approximates (1 − c₀) exp(−‖x − x′‖²/2ℓ²) + c₀, so that a linear model of φ is a
smooth model of x (Rahimi and Recht 2007). The frequencies are the normal quantiles of raw words of PCG64, whose stream NumPy
guarantees, from a public seed. They are the same on all machines up to rounding.

`mooring.mechanisms.onnx_export` can write the same features as ONNX.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import ndtri

from mooring.errors import InputError
from mooring.mechanisms.sums.features.columns import require_width, scale_to_unit
from mooring.typing import Matrix


@dataclass(frozen=True)
class FourierFeatures:
    """Random Fourier features of encoded rows, and a constant.

    Examples
    --------
    >>> features = FourierFeatures(3, n_frequencies=500)
    >>> phi = features.apply(np.array([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]))
    >>> round(float(phi[0] @ phi[1]), 1), round(0.95 * math.exp(-1 / 2) + 0.05, 1)
    (0.6, 0.6)
    """

    n_inputs: int
    """The number of entries of an encoded row."""
    n_frequencies: int = 64
    """M; each frequency gives a cosine and a sine."""
    length_scale: float = 0.0
    """ℓ, the distance up to which rows count as similar; 0 stands for √n_inputs."""
    seed: int = 0
    """Public seed of the frequencies."""
    constant_share: float = 0.05
    """c₀."""
    unit_length: ClassVar[bool] = True
    is_dense: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("n_inputs", "n_frequencies"):
            if getattr(self, name) < 1:
                raise InputError(
                    name, expected="1 or more", got=str(getattr(self, name)), cure="Use a positive number."
                )
        if not (math.isfinite(self.length_scale) and self.length_scale >= 0):
            raise InputError("length_scale", expected="0 or more", got=str(self.length_scale), cure="0 is the default.")
        if not 0 < self.constant_share < 1:
            raise InputError(
                "constant_share", expected="between 0 and 1", got=str(self.constant_share), cure="0.05 is the default."
            )

    @property
    def n_features(self) -> int:
        """The length of φ."""
        return 2 * self.n_frequencies + 1

    @property
    def frequencies(self) -> Matrix:
        """The frequencies ω, as columns."""
        return _draw_normal(self.seed, self.n_inputs, self.n_frequencies) / (
            self.length_scale or math.sqrt(self.n_inputs)
        )

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of encoded rows."""
        require_width(rows, self)
        phi, phases, M = np.empty((len(rows), self.n_features)), rows @ self.frequencies, self.n_frequencies
        np.cos(phases, out=phi[:, :M])
        np.sin(phases, out=phi[:, M:-1])
        scale_to_unit(phi, self.constant_share)
        return phi


@lru_cache(maxsize=4)
def _draw_normal(seed: int, n_rows: int, n_columns: int) -> Matrix:
    words = np.random.PCG64(seed).random_raw(n_rows * n_columns) >> np.uint64(11)
    return np.asarray(ndtri((words + 0.5) * 2.0**-53)).reshape(n_rows, n_columns)
