"""The sections of a study's file, as types: what each holds, the limits of its values, and draws of its noise levels.

Legend: p participants, h components, r anchor rows, v scale of anchor noise, σ scale of private-data noise, s root mean
square of the projected training rows; a level in units of "rms" is λ, and σ = λ s.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
import numpy as np

from mooring import InputError, Streams
from mooring.typing import Matrix

IMAGE_KINDS = ("digits", "faces", "faces-by-participants")
AtLeastZero = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
AtLeastTwo = Annotated[int, msgspec.Meta(ge=2)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
Scale = Annotated[float, msgspec.Meta(ge=0)]
T = TypeVar("T")
Range = TypeVar("Range", bound="NoiseRange | JointRange")
NoiseKind = Literal["data", "anchor", "both"]


@dataclass(frozen=True)
class NoiseRange:
    """A number of uniform levels between two; in units of "rms" they are multiples of the rows' root mean square."""

    count: AtLeastZero  # none where few draws are shared out over several ranges
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
class JointRange:
    """A number of pairs of levels, each uniform; the unit is that of private-data noise."""

    count: AtLeastZero  # none where few draws are shared out over several ranges
    anchor_high: Scale
    data_high: Scale
    anchor_low: Scale = 0.0
    data_low: Scale = 0.0
    unit: Literal["absolute", "rms"] = "absolute"

    def __post_init__(self) -> None:
        _require_order(self.anchor_low, self.anchor_high, "anchor_low and anchor_high")
        _require_order(self.data_low, self.data_high, "data_low and data_high")


@dataclass(frozen=True)
class DataSettings:
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
            raise ValueError("Expected different numbers in n_participants")
        if self.n_anchor_rows and self.n_anchor_rows <= self.n_components:
            raise ValueError(f"Expected n_anchor_rows above n_components = {self.n_components}")
        most = max(self.n_participants)
        if self.train_rows and len(self.train_rows) < most:
            raise ValueError(f"Expected a number in train_rows for each of {most} participants")
        if self.identities_each and max(pair[0] for pair in self.identities_each) < most:
            raise ValueError(f"Expected a pair of most participants and identities for {most} in identities_each")

    def allocations(self) -> list[tuple[int, int, tuple[int, ...]]]:
        """The allocations: maximum number of participants, identities of each, and the values of p that fit into it."""
        return [(most, each, tuple(p for p in self.n_participants if p <= most)) for most, each in self.identities_each]


@dataclass(frozen=True)
class NetworkSettings:
    """How the analyst's network is trained."""

    epochs: AtLeastOne = 15
    batch_size: AtLeastOne = 256
    learning_rate: Positive = 1e-3


@dataclass(frozen=True)
class AuditorSettings:
    """How the auditor's network is trained; 0 rows takes all."""

    epochs: AtLeastOne = 10
    rows: AtLeastZero = 0


@dataclass(frozen=True)
class NoiseSettings:
    """Ranges of noise levels: on private data, on anchors, on both."""

    data: tuple[NoiseRange, ...] = ()
    anchor: tuple[AnchorRange, ...] = ()
    both: tuple[JointRange, ...] = ()


@dataclass(frozen=True)
class AttackSettings:
    """One draw in `every` gets the costly attacks beside the paper's, spread over the noise levels."""

    every: AtLeastOne = 8


@dataclass(frozen=True)
class SolverSettings:
    """The solver of the alignment."""

    name: Literal["gpm", "accelerated", "spectral"] = "gpm"
    max_iterations: AtLeastOne = 500
    tolerance: Positive = 1e-7


@dataclass(frozen=True)
class SumLine:
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


def convert(values: Mapping[str, Any], into: type[T]) -> T:
    """Return the tables of a file as an instance of the dataclass `into`; a mistake is named by its key."""
    _refuse_unknown_keys(values, into, "")
    try:
        return msgspec.convert(values, into)
    except msgspec.ValidationError as problem:
        message, _, path = str(problem).partition(" - at `$")
        path, value = path.strip("`."), values
        for step in re.findall(r"\w+", path):
            value = value[int(step)] if isinstance(value, list) else value[step]
        raise InputError(
            path or "the study's file", expected=message.removeprefix("Expected "), got=_shorten(value), cure=_CURE
        ) from None


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


def _refuse_unknown_keys(values: Any, kind: Any, path: str) -> None:
    if isinstance(values, list):
        for k, one in enumerate(values):
            _refuse_unknown_keys(one, (get_args(kind) or (None,))[0], f"{path}[{k}]")
    if not (isinstance(values, Mapping) and dataclasses.is_dataclass(kind)):
        return
    known = get_type_hints(kind)
    for key, value in values.items():
        where = f"{path}.{key}".lstrip(".")
        if key not in known:
            raise InputError(
                where, expected=f"one of {', '.join(known)}", got=repr(key), cure=suggest_name(key, [*known]) or _CURE
            )
        _refuse_unknown_keys(value, known[key], where)


def _require_order(low: float, high: float, names: str) -> None:
    if not low < high < float("inf"):
        raise ValueError(f"Expected {names} finite and the first below the second")


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
