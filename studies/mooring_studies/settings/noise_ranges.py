"""Ranges of noise levels, and uniform draws from them.

Legend: v scale of anchor noise, σ scale of private-data noise, s root mean square of the projected training rows; a level
in units of "rms" is λ, and σ = λ s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from mooring.errors import InputError
from mooring.randomness import Streams
from mooring.typing import Matrix
from mooring_studies.settings.toml_table import SpecTable

Unit = Literal["absolute", "rms"]
NoiseKind = Literal["data", "anchor", "both"]


@dataclass(frozen=True)
class NoiseRange:
    """So many uniform levels between two."""

    count: int
    low: float
    high: float
    unit: Unit = "absolute"

    @classmethod
    def read(cls, table: SpecTable, *, units: tuple[Unit, ...]) -> NoiseRange:
        """From a table of a study's file."""
        low, high = _ends(table, "low", "high")
        unit: Any = table.choice("unit", units, "absolute")
        result = cls(table.whole("count", least=1), low, high, unit)
        table.finish()
        return result


@dataclass(frozen=True)
class JointRange:
    """So many pairs of levels, each uniform; the unit is that of private-data noise."""

    count: int
    anchor_low: float
    anchor_high: float
    data_low: float
    data_high: float
    unit: Unit = "absolute"

    @classmethod
    def read(cls, table: SpecTable) -> JointRange:
        """From a table of a study's file."""
        anchor = _ends(table, "anchor_low", "anchor_high")
        data = _ends(table, "data_low", "data_high")
        unit: Any = table.choice("unit", ("absolute", "rms"), "absolute")
        result = cls(table.whole("count", least=1), *anchor, *data, unit)
        table.finish()
        return result


def drawn(
    ranges: Sequence[NoiseRange | JointRange], kind: NoiseKind, streams: Streams, rms: float
) -> tuple[Matrix, Matrix]:
    """V and σ of every draw of some ranges, absolute, in their order; the k-th range draws from "noise/kind/k"."""
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


Range = TypeVar("Range", NoiseRange, JointRange)


def shared_out(ranges: Sequence[Range], n: int) -> tuple[Range, ...]:
    """The same ranges with n draws in all, in proportion to what each had; one may be left with none.

    Examples
    --------
    >>> [one.count for one in shared_out([NoiseRange(100, 0, 4), NoiseRange(50, 4, 5)], 10)]
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


def _ends(table: SpecTable, low: str, high: str) -> tuple[float, float]:
    least, most = table.number(low, 0.0), table.number(high)
    if not 0 <= least < most:
        raise InputError(
            f"{low} and {high} of {table.name}",
            expected="0 or more, and the first below the second",
            got=f"{least:g} and {most:g}",
            cure="Noise scales are not negative.",
        )
    return least, most
