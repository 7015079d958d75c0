"""The sections of a study's file, as types: what each holds, the limits of its values, and draws of its noise levels.

Legend: p participants, h components, r anchor rows, v scale of anchor noise, σ scale of private-data noise, s root mean
square of the projected training rows; a level in units of "rms" is λ, and σ = λ s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import pairwise
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from annotated_types import Ge, Gt

from mooring import InputError, Streams
from mooring.serialization import Record, read_entries
from mooring.typing import Matrix

IMAGE_KINDS = ("digits", "faces", "faces-by-participants")
AtLeastZero = Annotated[int, Ge(0)]
AtLeastOne = Annotated[int, Ge(1)]
AtLeastTwo = Annotated[int, Ge(2)]
Positive = Annotated[float, Gt(0)]
Scale = Annotated[float, Ge(0)]
R = TypeVar("R", bound=Record)
Range = TypeVar("Range", bound="NoiseRange | JointRange")
NoiseKind = Literal["data", "anchor", "both"]


@dataclass(frozen=True)
class NoiseRange(Record):
    """A number of uniform levels of noise; in the unit "rms" they are multiples of the rows' root mean square."""

    count: AtLeastZero  # 0 if there are fewer draws than ranges
    high: Scale
    low: Scale = 0.0
    unit: Literal["absolute", "rms"] = "absolute"

    def __post_init__(self) -> None:
        _require_order(self.low, self.high, "low and high")


@dataclass(frozen=True)
class AnchorRange(NoiseRange):
    """Levels of anchor noise, which are absolute."""

    unit: Literal["absolute"] = "absolute"


@dataclass(frozen=True)
class JointRange(Record):
    """A number of pairs of levels, each uniform; the unit is that of private-data noise."""

    count: AtLeastZero  # 0 if there are fewer draws than ranges
    anchor_high: Scale
    data_high: Scale
    anchor_low: Scale = 0.0
    data_low: Scale = 0.0
    unit: Literal["absolute", "rms"] = "absolute"

    def __post_init__(self) -> None:
        _require_order(self.anchor_low, self.anchor_high, "anchor_low and anchor_high")
        _require_order(self.data_low, self.data_high, "data_low and data_high")


@dataclass(frozen=True)
class DataSettings(Record):
    """Who takes part with what; a limit of 0 takes all rows."""

    n_participants: tuple[AtLeastTwo, ...] = (10,)
    """One number, or several for a study over p."""
    n_components: AtLeastZero = 0
    n_anchor_rows: AtLeastZero = 0
    projection: Literal["gaussian", "public-svd"] = "gaussian"
    n_train: AtLeastZero = 0
    n_validation: AtLeastZero = 0
    n_test: AtLeastZero = 0
    identities_each: tuple[tuple[AtLeastTwo, AtLeastTwo], ...] = ()
    """Allocations of faces: (most participants, identities each). Empty where there are none."""
    train_rows: tuple[AtLeastOne, ...] = ()
    """Maximum number of training rows of each participant, if participants are uneven; empty means all of its rows."""

    def __post_init__(self) -> None:
        if len(set(self.n_participants)) < len(self.n_participants):
            raise _mistake("n_participants", "different numbers", str(self.n_participants))
        if self.n_anchor_rows and self.n_anchor_rows <= self.n_components:
            raise _mistake("n_anchor_rows", f"above n_components = {self.n_components}", str(self.n_anchor_rows))
        most = max(self.n_participants)
        if self.train_rows and len(self.train_rows) < most:
            raise _mistake("train_rows", f"a number for each of {most} participants", f"{len(self.train_rows)} numbers")
        if self.identities_each and max(pair[0] for pair in self.identities_each) < most:
            raise _mistake("identities_each", f"an allocation for {most} participants", str(self.identities_each))

    def allocations(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """The allocations: maximum number of participants, identities of each, and the values of p that fit into it."""
        return [(most, each, tuple(p for p in self.n_participants if p <= most)) for most, each in self.identities_each]


@dataclass(frozen=True)
class NetworkSettings(Record):
    """How the analyst's network is trained."""

    epochs: AtLeastOne = 15
    batch_size: AtLeastOne = 256
    learning_rate: Positive = 1e-3


@dataclass(frozen=True)
class AuditorSettings(Record):
    """How the auditor's network is trained; 0 rows takes all."""

    epochs: AtLeastOne = 10
    rows: AtLeastZero = 0


@dataclass(frozen=True)
class NoiseSettings(Record):
    """Ranges of noise levels: on private data, on anchors, on both."""

    data: tuple[NoiseRange, ...] = ()
    anchor: tuple[AnchorRange, ...] = ()
    both: tuple[JointRange, ...] = ()


@dataclass(frozen=True)
class AttackSettings(Record):
    """One draw in `every` gets the costly attacks beside the paper's, spread over the noise levels."""

    every: AtLeastOne = 8


@dataclass(frozen=True)
class SolverSettings(Record):
    """The solver of the alignment."""

    name: Literal["gpm", "accelerated", "spectral"] = "gpm"
    max_iterations: AtLeastOne = 500
    tolerance: Positive = 1e-7


@dataclass(frozen=True)
class SumLine(Record):
    """Secure sums beside a study's other methods: one row at each ε in every deployment, none where no ε is named."""

    epsilons: tuple[float | Literal["none"], ...] = ()
    """"none" is for sums without noise, which carry no guarantee."""
    delta: float = 1e-5
    n_colluders: AtLeastZero = 1
    """Participants that the noise allows for."""
    n_hats: AtLeastZero = 5
    """Hat functions of a number of a table; in the study of sums every case has its own."""
    alone: AtLeastZero | Literal["own rows"] = 0
    """Participants who train alone on the same features, the first ones; or all of them, each scored on its own
    rows."""

    @property
    def n_rows(self) -> int:
        """How many rows of results there are in a deployment."""
        return len(self.epsilons) + (1 if self.alone == "own rows" else self.alone)


def draw_levels(
    ranges: Sequence[NoiseRange | JointRange], kind: NoiseKind, streams: Streams, rms: float
) -> tuple[Matrix, Matrix]:
    """Return v and σ of every draw, absolute, in the order of the ranges; the k-th range draws from "noise/kind/k"."""
    if not rms > 0:
        raise InputError("rms", expected="above 0", got=str(rms), cure="Rows of zeros alone cannot be studied.")
    anchor, data = [np.empty(0)], [np.empty(0)]
    for k, levels in enumerate(ranges):
        rng = streams.named(f"noise/{kind}/{k}")
        scale = rms if levels.unit == "rms" else 1.0
        if isinstance(levels, JointRange):
            shares = rng.uniform(size=(levels.count, 2))  # pair by pair, so that fewer draws are the first ones of more
            anchor.append(levels.anchor_low + (levels.anchor_high - levels.anchor_low) * shares[:, 0])
            data.append(scale * (levels.data_low + (levels.data_high - levels.data_low) * shares[:, 1]))
            continue
        drawn = scale * rng.uniform(levels.low, levels.high, levels.count)
        anchor.append(drawn if kind == "anchor" else np.zeros(levels.count))
        data.append(drawn if kind == "data" else np.zeros(levels.count))
    return np.concatenate(anchor), np.concatenate(data)


def share_out(ranges: Sequence[Range], n: int) -> tuple[Range, ...]:
    """Return the ranges with n draws in all, in proportion to what each had; one may be left with none.

    Examples
    --------
    >>> [levels.count for levels in share_out([NoiseRange(100, 4.0), NoiseRange(50, 5.0, 4.0)], 10)]
    [7, 3]
    """
    sums = np.cumsum([0, *(levels.count for levels in ranges)]).tolist()
    total = max(1, sums[-1])  # there may be no ranges
    ends = [(2 * n * so_far + total) // (2 * total) for so_far in sums]  # rounded sums, so that they add up
    return tuple(
        replace(levels, count=end - start) for levels, (start, end) in zip(ranges, pairwise(ends), strict=True)
    )


def convert(values: Mapping[str, Any], into: type[R]) -> R:
    """Return the tables of a file as the record `into`; an error names the key of the mistake."""
    return read_entries(into, values, what="the study's file", cure=_CURE)


def suggest_name(word: str, among: Sequence[str]) -> str:
    """Return a sentence that names the nearest known word; empty where none is near.

    Examples
    --------
    >>> suggest_name("epoch", ["epochs", "batch_size"])
    "Perhaps 'epochs' is meant."
    """
    near = get_close_matches(word, among, n=1)
    return f"Perhaps {near[0]!r} is meant." if near else ""


_CURE = "Correct the study's file."


def _require_order(low: float, high: float, names: str) -> None:
    if not low < high:
        raise _mistake(names, "in rising order", f"{low:g} and {high:g}")


def _mistake(what: str, expected: str, got: str) -> InputError:
    return InputError(what, expected=expected, got=got, cure=_CURE)
