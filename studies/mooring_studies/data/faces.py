"""CelebA: faces of known identity, partitioned among participants by identity as in the paper.

What a user must have: the aligned CelebA images, cropped to their centre square, brought to 64×64 pixels by bilinear
interpolation, and packed into one Parquet file with these columns, a row an image:

- file_no (integer): the number in the image's official file name;
- identity (integer): whom it shows;
- smiling (Boolean): the label;
- pool (text): "public" for the public projection, "participants" for the images of participants; no identity is in both;
- image_webp (bytes): the picture, 64×64 RGB, as WebP.

`mooring_studies.data.face_packing.pack_faces` makes such a file of the official ones. CelebA is for non-commercial
research only. A file other than the one mooring was measured with is as good, and its checksum is noted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mooring import InputError
from mooring.atomic_io import hash_file
from mooring.metrics import Galleries, build_identity_galleries
from mooring.randomness import Streams
from mooring.tables import decode_images, open_table, read_columns
from mooring.typing import Indices
from mooring_studies.data.downloads import changed, cut_short, missing

SIDE = 64
IMAGE_SHAPE = (SIDE, SIDE, 3)
PUBLIC, PARTICIPANTS = "public", "participants"
COLUMNS = ("file_no", "identity", "smiling", "pool", "image_webp")
REFERENCE_CHECKSUM = "338cbf2c052da05a9f73df7451a4c9b6ad17c62e34b7f44d67dd12a16cd7fa38"
HELD_OUT_SHARE = 0.15  # of a participant's identities, for validation; and as much again for testing
GALLERIES_PER_QUERY = 10
MIN_IMAGES = 2  # one to keep as the clean reference, one at least to upload


@dataclass(frozen=True, eq=False)
class FaceRows:
    """Faces; pictures are decoded when they are asked for."""

    file_numbers: Indices
    identity: Indices
    smiling: npt.NDArray[np.bool_]
    pool: npt.NDArray[np.str_]
    """"public" or "participants"."""
    checksum: str
    """SHA-256 of the file."""
    notes: tuple[str, ...]
    """What a reader of results should know about the file."""
    _encoded: Any = field(repr=False)

    def __len__(self) -> int:
        return len(self.identity)

    @property
    def public(self) -> Indices:
        """The images of the public pool."""
        return np.flatnonzero(self.pool == PUBLIC)

    def images(self, indices: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Decode images, in the order asked for: shape (n, 64, 64, 3)."""
        wanted = np.asarray(indices, dtype=np.int64)
        if wanted.size == 0:
            return np.zeros((0, *IMAGE_SHAPE), dtype=np.uint8)
        # The same picture may be asked for twice: each is decoded once.
        unique, places = np.unique(wanted, return_inverse=True)
        encoded = self._encoded.take(unique).to_pylist()
        pixels = decode_images(encoded, size=None, place=lambda k: f"row {unique[k] + 1} of the faces")
        if pixels.shape[1:] != IMAGE_SHAPE:
            raise InputError(
                "image_webp",
                expected=f"pictures of shape {IMAGE_SHAPE}",
                got=f"shape {pixels.shape[1:]}",
                cure="Pack the faces again with pack_faces.",
            )
        return pixels if len(unique) == len(wanted) and (np.diff(places) > 0).all() else pixels[places]

    def rows(self, indices: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Images as rows of pixel values between 0 and 1: shape (n, 12288)."""
        pixels = self.images(indices)
        return np.divide(pixels.reshape(len(pixels), -1), np.float32(255.0), dtype=np.float32)


@dataclass(frozen=True, eq=False)
class FacePartition:
    """Who holds which images: one index array a participant, into the `FaceRows`."""

    train: tuple[Indices, ...]
    validation: tuple[Indices, ...]
    test: tuple[Indices, ...]
    """What is uploaded; all images of an identity are in one of the three."""
    identities: tuple[Indices, ...]
    """Whom a participant holds."""
    reserved: tuple[Indices, ...]
    """For each of these identities, the image kept back as its clean reference; it is never uploaded."""
    queries: tuple[Indices, ...]
    """For each of these identities, one uploaded image, for an attacker to be tested on."""

    @property
    def n_participants(self) -> int:
        """How many participants there are."""
        return len(self.train)

    @property
    def references(self) -> Indices:
        """All reserved images, participant after participant."""
        return np.concatenate(self.reserved)

    def first(self, n_participants: int) -> FacePartition:
        """The same partition with only the first participants in it."""
        if not 1 <= n_participants <= self.n_participants:
            raise InputError(
                "n_participants",
                expected=f"between 1 and {self.n_participants}",
                got=str(n_participants),
                cure="Split among more participants.",
            )
        parts = (self.train, self.validation, self.test, self.identities, self.reserved, self.queries)
        return FacePartition(*(part[:n_participants] for part in parts))

    def query_places(self, participant: int) -> Indices:
        """Where a participant's queries stand among all uploaded rows.

        These are in the order: all training rows, participant after participant, then all validation rows, then all
        test rows.
        """
        uploaded = np.concatenate([*self.train, *self.validation, *self.test])
        order = np.argsort(uploaded)
        return np.asarray(order[np.searchsorted(uploaded, self.queries[participant], sorter=order)], dtype=np.int64)


def load_faces(path: Path) -> FaceRows:
    """Read a file of packed faces; see the top of this module for what is in it."""
    path = Path(path)
    if not path.is_file():
        raise missing("celeba/celeba64.parquet", looked_in=str(path))
    table = _table(path)
    identity, pool = table["identity"].to_numpy(), np.array(table["pool"].to_pylist())
    if set(pool.tolist()) != {PUBLIC, PARTICIPANTS}:
        raise _unfit(path, f"its pools are not {PUBLIC!r} and {PARTICIPANTS!r}")
    if (shared := np.intersect1d(identity[pool == PUBLIC], identity[pool == PARTICIPANTS]).size) > 0:
        raise _unfit(path, f"{shared} identities are in both pools")
    checksum = hash_file(path, what="the faces")
    notes = [] if checksum == REFERENCE_CHECKSUM else [f"the faces are another file than mooring's own: {checksum}"]
    faces = FaceRows(
        file_numbers=table["file_no"].to_numpy().astype(np.int64),
        identity=identity.astype(np.int64),
        smiling=table["smiling"].to_numpy(),
        pool=pool,
        checksum=checksum,
        notes=tuple(notes),
        _encoded=table["image_webp"].combine_chunks(),
    )
    try:
        faces.images([0, len(faces) - 1])  # a file of other pictures is refused before any work starts
    except InputError as error:
        raise _unfit(path, f"its pictures are not {error.expected}, but {error.got}") from None
    return faces


def partition_faces(
    identity: npt.ArrayLike,
    pool: npt.ArrayLike,
    *,
    n_participants: int,
    identities_each: int,
    streams: Streams,
    train_rows: Sequence[int] = (),
) -> FacePartition:
    """Partition the participants' pool by identity.

    Identities with a single image are left out. The others are shuffled once, and every participant takes the next
    `identities_each`; so a partition among fewer is the beginning of one among more (`FacePartition.first`).
    A participant's first 70 % of identities are for training, the next 15 % for validation, the last 15 % for testing.
    With `train_rows`, a participant holds the same people with fewer images of each: queries and references stay.
    """
    identity, theirs = np.asarray(identity, dtype=np.int64), np.flatnonzero(np.asarray(pool) == PARTICIPANTS)
    names, counts = np.unique(identity[theirs], return_counts=True)
    names = names[counts >= MIN_IMAGES]
    _require_enough(len(names), n_participants, identities_each)
    shuffled = streams.named("faces/identities").permutation(names)
    by_identity = theirs[np.argsort(identity[theirs], kind="stable")]
    starts = np.searchsorted(identity[by_identity], shuffled)
    ends = np.searchsorted(identity[by_identity], shuffled, side="right")
    n_held_out = int(HELD_OUT_SHARE * identities_each + 0.5)
    cuts = (0, identities_each - 2 * n_held_out, identities_each - n_held_out, identities_each)
    parts = []
    for participant in range(n_participants):
        rng = streams.named(f"faces/participant/{participant}/images")
        identities = range(participant * identities_each, (participant + 1) * identities_each)
        images = [rng.permutation(by_identity[starts[k] : ends[k]]) for k in identities]
        most = [math.inf] * 3
        if train_rows:
            most = [train_rows[participant] * (b - a) // cuts[1] for a, b in pairwise(cuts)]
        uploaded = [_uploaded(images[a:b], n) for (a, b), n in zip(pairwise(cuts), most, strict=True)]
        firsts, seconds = (np.array([few[k] for few in images], dtype=np.int64) for k in (0, 1))
        parts.append((*uploaded, shuffled[identities.start : identities.stop], firsts, seconds))
    return FacePartition(*(tuple(part) for part in zip(*parts, strict=True)))


def face_galleries(
    partition: FacePartition,
    *,
    target: int,
    seed: int,
    n_candidates: int = 10,
    galleries_per_query: int = GALLERIES_PER_QUERY,
) -> Galleries:
    """Build the galleries of cross-image linkage: a query against its identity's reserved image and other people's."""
    return build_identity_galleries(
        partition.identities[target],
        np.concatenate(partition.identities),
        n_candidates=n_candidates,
        galleries_per_query=galleries_per_query,
        seed=seed,
    )


def _table(path: Path) -> Any:
    try:
        table = read_columns(open_table(path), keep_bytes=True)
    except InputError:
        raise cut_short(path, "celeba", reason="it is no Parquet file, or one without its end") from None
    plain = [
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in table.schema
    ]
    table = table.cast(pa.schema(plain))
    if absent := [name for name in COLUMNS if name not in table.column_names]:
        raise _unfit(path, f"it has no column {', '.join(absent)}")
    kinds = {"smiling": pa.types.is_boolean, "pool": _is_text, "image_webp": _is_bytes}
    for name in COLUMNS:
        if not kinds.get(name, pa.types.is_integer)(table.schema.field(name).type):
            raise _unfit(path, f"its column {name} holds {table.schema.field(name).type}")
        if table[name].null_count:
            raise _unfit(path, f"its column {name} has {table[name].null_count} empty rows")
    return table.select(list(COLUMNS))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_bytes(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _require_enough(n_identities: int, n_participants: int, identities_each: int) -> None:
    for what, value in (("n_participants", n_participants), ("identities_each", identities_each)):
        if value < 1:
            raise InputError(what, expected="at least 1", got=str(value), cure="Ask for one or more.")
    if n_participants * identities_each > n_identities:
        raise InputError(
            "identities_each",
            expected=f"such that {n_participants} participants need at most {n_identities} identities, those with"
            f" {MIN_IMAGES} images or more",
            got=str(identities_each),
            cure=f"Ask for {n_identities // n_participants} or fewer.",
        )


def _uploaded(images: Sequence[Indices], most: float) -> Indices:
    """At most so many images, as many of each identity as can be and one at least; not the first, which is reserved."""
    none = np.zeros(0, dtype=np.int64)
    places = np.concatenate([none, *(np.arange(1, len(few)) for few in images)])
    uploaded = np.concatenate([none, *(few[1:] for few in images)])
    n_kept = int(min(max(most, len(images)), len(uploaded)))
    return np.sort(uploaded[np.argsort(places, kind="stable")[:n_kept]])


def _unfit(path: Path, reason: str) -> Exception:
    return changed(path, "celeba", reason=reason)
