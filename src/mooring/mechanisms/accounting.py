"""The formal guarantee of private-data noise: clipping, neighbouring relation and calibration.

Legend: (ε, δ) the guarantee; C the clipping norm; Δ the sensitivity; σ the private-data noise scale.

A rigid map preserves distances, so the sensitivity of Y_i = X_i O_i + 1 Ψ_iᵀ to one record is that of X_i: with rows
clipped to norm C, replacing one record changes Y_i by at most 2C, and setting its row to zero by at most C. Gaussian
noise calibrated to this sensitivity gives (ε, δ)-differential privacy for the features of each record and for one upload.
The number of rows and the labels are public. The library `dp_accounting` computes the calibration.

The guarantee assumes ideal Gaussian noise. It does not cover the rounding of noise in floating point, generators that are
not cryptographic (in simulations), or scaling and centring computed from the data. A person with records at two participants
is in two uploads.

Anchor noise gives no such guarantee, because Y_i carries no anchor noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, namespace_of, require_finite
from mooring.typing import Array


class NeighboringRelation(Enum):
    """Which pairs of data sets a guarantee makes hard to distinguish."""

    REPLACE_ONE = "one record is replaced by another"
    ZERO_OUT_ONE = "one record's features are set to zero"


@dataclass(frozen=True)
class Guarantee:
    """A differential-privacy guarantee for the features of each record, and the noise scale that it needs."""

    epsilon: float
    delta: float
    neighboring: NeighboringRelation
    clipping_norm: float
    """Norm to which rows must be clipped (`clip_rows`) in the projected space."""
    data_noise_scale: float
    """σ, for the methods with private-data noise."""

    def __str__(self) -> str:
        return (
            f"({self.epsilon:g}, {self.delta:g})-differential privacy where {self.neighboring.value}, "
            f"for one upload of rows clipped to norm {self.clipping_norm:g} with private-data noise of scale "
            f"{self.data_noise_scale:.4g}; labels and row counts are not covered"
        )


def clip_rows(rows: Array, clipping_norm: float) -> Array:
    """Return rows scaled down to a Euclidean norm of at most `clipping_norm`; shorter rows are not changed."""
    _require_positive("clipping_norm", clipping_norm)
    rows = as_float64(rows)
    xp = namespace_of(rows)
    require_finite("rows", rows, cure="Fill or drop missing values first.")
    largest = xp.max(xp.abs(rows), axis=-1, keepdims=True)
    largest = xp.where(largest > 0, largest, xp.ones_like(largest))
    scaled = rows / largest  # avoids overflow of the squares
    lengths = xp.clip(
        xp.sqrt(xp.sum(scaled * scaled, axis=-1, keepdims=True)), min=1.0
    )  # the clip changes zero rows only: the length of any other scaled row is at least one
    return xp.where(largest * lengths > clipping_norm, scaled * (clipping_norm / lengths), rows)


def calibrate_gaussian(
    epsilon: float,
    delta: float,
    *,
    clipping_norm: float,
    neighboring: NeighboringRelation = NeighboringRelation.REPLACE_ONE,
) -> Guarantee:
    """Return the guarantee (ε, δ) with the smallest noise scale that provides it.

    Parameters
    ----------
    epsilon, delta : float
        ε > 0 and 0 < δ < 1. δ should be well below one over the number of records.
    clipping_norm : float
        The norm that `clip_rows` enforces. It must come from public knowledge; a norm chosen from the data leaks.

    Notes
    -----
    The smallest σ comes from `dp_accounting`'s exact analysis of the Gaussian mechanism.

    Examples
    --------
    >>> round(calibrate_gaussian(1.0, 1e-5, clipping_norm=1.0).data_noise_scale, 2)
    7.46
    """
    _require_positive("epsilon", epsilon)
    _require_positive("clipping_norm", clipping_norm)
    if not 0 < delta < 1:
        cure = "Choose it well below one over the number of records."
        raise InputError("delta", expected="between 0 and 1", got=str(delta), cure=cure)
    if not isinstance(neighboring, NeighboringRelation):
        expected, cure = "a member of mooring.NeighboringRelation", "NeighboringRelation.REPLACE_ONE is the default."
        raise InputError("neighboring", expected=expected, got=repr(neighboring), cure=cure)
    from dp_accounting.pld.accountant import get_smallest_gaussian_noise
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    sensitivity = (2.0 if neighboring is NeighboringRelation.REPLACE_ONE else 1.0) * clipping_norm
    scale = float(get_smallest_gaussian_noise(DifferentialPrivacyParameters(epsilon, delta), sensitivity=sensitivity))
    return Guarantee(epsilon, delta, neighboring, clipping_norm, scale)


def _require_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InputError(name, expected="a positive, finite number", got=str(value), cure="Check its unit.")
