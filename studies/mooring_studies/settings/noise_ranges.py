"""Ranges of noise levels, and uniform draws from them.

Legend: v scale of anchor noise, σ scale of private-data noise, s root mean square of the projected training rows; a level
in units of "rms" is λ, and σ = λ s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, TypeVar

import numpy as np

from mooring import InputError, Streams
from mooring.typing import Matrix
from mooring_studies.settings.sections import JointRange, NoiseRange

NoiseKind = Literal["data", "anchor", "both"]


def draw_levels(
    ranges: Sequence[NoiseRange | JointRange], kind: NoiseKind, streams: Streams, rms: float
) -> tuple[Matrix, Matrix]:
    """Return v and σ of every draw, absolute, in the order of the ranges; the k-th range draws from "noise/kind/k"."""
    if not rms > 0:
        raise InputError("rms", expected="above 0", got=str(rms), cure="Rows of zeros alone cannot be studied.")
    anchor, data = [np.empty(0)], [np.empty(0)]
    for k, one in enumerate(ranges):
        rng = streams.named(f"noise/{kind}/{k}")
        scale = rms if one.unit == "rms" else 1.0
        if isinstance(one, JointRange):
            levels = rng.uniform(size=(one.count, 2))  # pair by pair, so that fewer draws are the first ones of more
            anchor.append(one.anchor_low + (one.anchor_high - one.anchor_low) * levels[:, 0])
            data.append(scale * (one.data_low + (one.data_high - one.data_low) * levels[:, 1]))
            continue
        levels = scale * rng.uniform(one.low, one.high, one.count)
        anchor.append(levels if kind == "anchor" else np.zeros(one.count))
        data.append(levels if kind == "data" else np.zeros(one.count))
    return np.concatenate(anchor), np.concatenate(data)


Range = TypeVar("Range", bound=NoiseRange | JointRange)


def share_out(ranges: Sequence[Range], n: int) -> tuple[Range, ...]:
    """Return the ranges with n draws in all, in proportion to what each had; one may be left with none.

    Examples
    --------
    >>> [one.count for one in share_out([NoiseRange(100, 4.0), NoiseRange(50, 5.0, 4.0)], 10)]
    [7, 3]
    """
    total = sum(one.count for one in ranges)
    counts, so_far = [], 0
    for one in ranges:  # rounding the running sum keeps the sum of all exact
        before = so_far
        so_far += one.count
        counts.append(_nearest(n * so_far, total) - _nearest(n * before, total))
    return tuple(replace(one, count=count) for one, count in zip(ranges, counts, strict=True))


def _nearest(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator)
