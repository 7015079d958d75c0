"""One deployment of an image study: who holds which rows, everybody's secrets, the anchor; all on one device.

Legend: X̃_i projected rows, (O_i, Ψ_i) the rigid map of participant i, A the anchor, Y_i = X̃_i O_i + 1 Ψ_iᵀ.

Rows stand in one order throughout: all training rows, participant after participant, then all validation rows, then all
test rows. A matrix in that order can be cut into splits, and each split into participants, without copying.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.attacks import PublicRows
from mooring.geometry import RigidMap
from mooring.mechanisms import NoiseStream, add_noise, make_anchor, map_rows
from mooring.mechanisms.sums import CONSTANT_SHARE, RowFeatures
from mooring.randomness import Streams
from mooring.tables import Partition
from mooring.typing import Array, Indices, Matrix
from mooring_studies.images.evaluator import ImageEvaluator
from mooring_studies.networks import Architecture
from mooring_studies.roles import COLLUDER
from mooring_studies.tabular.sum_line import SumRows

Split = Literal["train", "validation", "test"]
SPLITS: tuple[Split, ...] = ("train", "validation", "test")
_FEWEST_STRONG = 12
LABELLED: tuple[Split, ...] = ("train", "validation")
"""Splits whose labels the analyst is given: it learns from them, and so does an attacker."""


@dataclass(frozen=True, eq=False)
class Deployment:
    """Rows, labels and secrets of p participants."""

    rows: Array = field(repr=False)
    """X̃ in the order of this module."""
    labels: npt.NDArray[np.int64] = field(repr=False)
    """Classes 0, 1, …"""
    sizes: Mapping[Split, npt.NDArray[np.int64]]
    """How many rows each participant has in a split."""
    maps: RigidMap = field(repr=False)
    """(O_i, Ψ_i) of everybody, p of them in one batch."""
    anchor: Array = field(repr=False)
    query_places: npt.NDArray[np.int64] = field(repr=False)
    """Where the target's queries stand in `rows`."""
    streams: Streams = field(repr=False)
    """Noise comes from here, named by draw."""
    public_rows: PublicRows | None = field(default=None, repr=False)
    """Rows of the public pictures that the projection was made from. The attacker has them, too."""

    @property
    def n_participants(self) -> int:
        """How many take part."""
        return int(self.maps.orthogonal.shape[0])

    @property
    def device(self) -> Any:
        """Where the rows are."""
        return self.rows.device

    def blocks(self) -> Iterator[tuple[Split, int, slice]]:
        """Every participant's rows of every split, as a slice of `rows`."""
        start = 0
        for split in SPLITS:
            for participant, size in enumerate(self.sizes[split]):
                yield split, participant, slice(start, start + int(size))
                start += int(size)

    def span(self, split: Split) -> slice:
        """All rows of a split."""
        slices = [where for name, _, where in self.blocks() if name == split]
        return slice(slices[0].start, slices[-1].stop)

    def own(self, split: Split, participant: int) -> slice:
        """One participant's rows of a split."""
        return next(where for name, i, where in self.blocks() if (name, i) == (split, participant))

    def places(self, participants: int | Sequence[int], splits: Sequence[Split]) -> npt.NDArray[np.int64]:
        """Where the rows of one participant or of several stand in `rows`, split after split."""
        who = [participants] if isinstance(participants, int) else participants
        places = [self.own(split, participant) for split in splits for participant in who]
        return np.concatenate([np.arange(where.start, where.stop) for where in places])

    def uploaded(self, *, common: bool = False) -> Array:
        """Y without noise, in the order of `rows`; `common` gives everybody the reference's map, as C-GDP does."""
        import torch

        result = torch.empty_like(self.rows)
        for _, participant, where in self.blocks():
            i = COLLUDER if common else participant
            result[where] = map_rows(self.rows[where], self.map_of(i))
        return result

    def map_of(self, participant: int) -> RigidMap:
        """(O_i, Ψ_i) of one participant."""
        return RigidMap(self.maps.orthogonal[participant], self.maps.translation[participant])

    def anchor_uploads(self, noise_scale: float | Array = 0.0, noise: NoiseStream | None = None) -> Array:
        """B_i = A O_i + 1 Ψ_iᵀ + v W' of everybody: shape (p, r, h), behind the leading axes of `noise_scale`."""
        return add_noise(map_rows(self.anchor, self.maps), noise_scale, noise)


def deployed(
    parts: Mapping[Split, Sequence[npt.NDArray[np.float64]]],
    labels: Mapping[Split, Sequence[npt.NDArray[np.int64]]],
    query_places: npt.NDArray[np.int64],
    *,
    n_anchor_rows: int,
    streams: Streams,
    device: str,
    public_rows: PublicRows | None = None,
) -> Deployment:
    """Draw secrets and anchor for projected rows, and bring all of it to a device.

    Participant i draws its map from the stream "participant/i/transform", whatever the number of participants.
    """
    p = len(parts["train"])
    h = parts["train"][0].shape[1]
    secrets = [RigidMap.sample(h, rng=streams.named(f"participant/{i}/transform")) for i in range(p)]
    anchor = make_anchor(n_anchor_rows, h, rng=streams.named("anchor"))

    def moved(array: npt.NDArray[np.float64]) -> Array:
        return on_device(array, device, "float64")

    return Deployment(
        rows=moved(np.concatenate([part for split in SPLITS for part in parts[split]])),
        labels=np.concatenate([part for split in SPLITS for part in labels[split]]).astype(np.int64),
        sizes={split: np.array([len(part) for part in parts[split]], dtype=np.int64) for split in SPLITS},
        maps=RigidMap(
            moved(np.stack([s.orthogonal for s in secrets])), moved(np.stack([s.translation for s in secrets]))
        ),
        anchor=moved(anchor),
        query_places=np.asarray(query_places, dtype=np.int64),
        streams=streams,
        public_rows=public_rows,
    )


@dataclass(frozen=True, eq=False)
class Levels:
    """The noise of every draw of a part, and which draws the costly attacks are run on."""

    anchor: Matrix
    data: Matrix
    strong: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.anchor)

    def __getitem__(self, draws: npt.NDArray[np.intp]) -> Levels:
        """Those of some draws."""
        return Levels(self.anchor[draws], self.data[draws], self.strong[draws])


def strong_draws(scales: Matrix, every: int) -> npt.NDArray[np.bool_]:
    """Which draws get the costly attacks: one in `every`, a dozen at least, spread evenly over the noise levels."""
    n_chosen = min(len(scales), max(_FEWEST_STRONG, math.ceil(len(scales) / every)))
    chosen = np.zeros(len(scales), dtype=bool)
    for level in np.linspace(scales.min(), scales.max(), n_chosen):
        chosen[np.argmin(np.where(chosen, np.inf, np.abs(scales - level)))] = True
    return chosen


@dataclass(frozen=True, eq=False)
class PreparedDeployment:
    """One deployment, ready to run."""

    deployment: Deployment
    evaluator: ImageEvaluator
    architecture: Architecture
    identities_each: int | None
    rms: float
    """s, the root mean square of the projected training rows."""
    pictures: npt.NDArray[np.uint8] = field(repr=False)
    """Clean images of the rows to show."""
    picture_labels: Indices = field(repr=False)
    facts: dict[str, Any] = field(repr=False)
    """What is worth telling of this deployment."""
    sum_rows: Callable[[], SumRows] | None = field(default=None, repr=False)
    """Returns the same pictures as secure sums take them: labelled rows to train on, and test rows."""


def make_sum_rows(
    features: Mapping[Split, Matrix], labels: Mapping[Split, Indices], held: Mapping[Split, Any]
) -> SumRows:
    """Public features of everybody's pictures, without their constant; sums need no validation rows to themselves."""

    def parts(values: Mapping[Split, Any], splits: Sequence[Split]) -> list[Any]:
        p = len(held["train"])
        return [np.concatenate([values[split][held[split][i]] for split in splits]) for i in range(p)]

    rows = Partition.from_parts(
        parts(features, LABELLED),
        parts(labels, LABELLED),
        test=parts(features, ["test"]),
        test_labels=parts(labels, ["test"]),
        rng=np.random.default_rng(0),  # chooses nothing: test rows are given
    )
    return SumRows(rows, RowFeatures(rows.n_features, CONSTANT_SHARE, is_dense=True))


def on_device(array: npt.NDArray[Any], device: str, dtype: str) -> Array:
    """A NumPy array as a tensor of a type, there."""
    import torch

    return torch.as_tensor(array, dtype=getattr(torch, dtype), device=device)


def in_pieces(encode: Callable[[Any], Any], rows: Any, size: int = 4096) -> npt.NDArray[np.float64]:
    """Encode many rows a piece at a time, so that no wide copy of all of them is ever made."""
    return np.concatenate([encode(rows[start : start + size]) for start in range(0, max(1, len(rows)), size)])
