"""MNIST: the four files, checked to the byte, and the rows partitioned among participants as in the paper.

10,000 of the 60,000 images of the training file become validation rows; the 10,000 of the test file stay test rows. Each
of the three is partitioned round-robin, digit by digit, after a shuffle. Nothing here changes a pixel: rows are bytes.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring import InputError
from mooring.randomness import Streams
from mooring.tables import read_idx, round_robin, split_stratified
from mooring.typing import Indices
from mooring_studies.data.downloads import changed, cut_short, find_packed, missing, require_checksum

Bytes = npt.NDArray[np.uint8]

SIDE = 28
TRAIN_IMAGES, TRAIN_LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"
TEST_IMAGES, TEST_LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"
SHAPES: dict[str, tuple[int, ...]] = {
    TRAIN_IMAGES: (60_000, SIDE, SIDE),
    TRAIN_LABELS: (60_000,),
    TEST_IMAGES: (10_000, SIDE, SIDE),
    TEST_LABELS: (10_000,),
}
CHECKSUMS = {  # of the content once unpacked: mirrors compress it differently
    TRAIN_IMAGES: "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    TRAIN_LABELS: "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    TEST_IMAGES: "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    TEST_LABELS: "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}


@dataclass(frozen=True, eq=False)
class DigitRows:
    """All of MNIST."""

    train_images: Bytes
    train_labels: Indices
    test_images: Bytes
    test_labels: Indices
    checksums: Mapping[str, str]
    """SHA-256 of each file's content, unpacked."""


@dataclass(frozen=True, eq=False)
class DigitPartition:
    """Who holds which rows: one index array a participant."""

    train: tuple[Indices, ...]
    validation: tuple[Indices, ...]
    """Rows of the training file."""
    test: tuple[Indices, ...]
    """Rows of the test file."""


def load_digits(
    folder: Path, *, _shapes: Mapping[str, tuple[int, ...]] = SHAPES, _checksums: Mapping[str, str] = CHECKSUMS
) -> DigitRows:
    """Read MNIST and check that it is MNIST."""
    files = {name: _read(_locate(Path(folder), name), name, shape=shape) for name, shape in _shapes.items()}
    checksums = {}
    for name, (path, array) in files.items():
        checksums[name] = _content_checksum(array)
        require_checksum(path, "mnist", checksum=checksums[name], expected=_checksums[name])
    arrays = {name: array for name, (_, array) in files.items()}
    return DigitRows(
        train_images=arrays[TRAIN_IMAGES].reshape(len(arrays[TRAIN_IMAGES]), -1),
        train_labels=arrays[TRAIN_LABELS].astype(np.int64),
        test_images=arrays[TEST_IMAGES].reshape(len(arrays[TEST_IMAGES]), -1),
        test_labels=arrays[TEST_LABELS].astype(np.int64),
        checksums=checksums,
    )


def partition_digits(
    labels_train: npt.ArrayLike,
    labels_test: npt.ArrayLike,
    *,
    n_participants: int,
    streams: Streams,
    n_validation: int = 10_000,
    rows_limit: tuple[int, int, int] | None = None,
) -> DigitPartition:
    """Partition rows among participants, digit by digit.

    Examples
    --------
    >>> labels = np.arange(60) % 10
    >>> streams = Streams.for_experiment(seed=0)
    >>> parts = partition_digits(labels, labels, n_participants=2, n_validation=20, streams=streams)
    >>> [len(rows) for rows in (*parts.train, *parts.validation, *parts.test)]
    [20, 20, 10, 10, 30, 30]
    """
    strata_train, strata_test = (np.asarray(labels, dtype=np.int64) for labels in (labels_train, labels_test))
    if not 0 < n_validation < len(strata_train):
        raise InputError(
            "n_validation",
            expected=f"between 1 and {len(strata_train) - 1}, one less than the rows of the training file",
            got=str(n_validation),
            cure="The paper has 10,000 of 60,000.",
        )
    validation, train = split_stratified(
        np.arange(len(strata_train)), strata_train, n_validation, rng=streams.named("digits/validation")
    )
    rows = {"train": train, "validation": validation, "test": np.arange(len(strata_test))}
    strata = {"train": strata_train, "validation": strata_train, "test": strata_test}
    for part, limit in zip(rows, rows_limit or (), strict=False):
        few = min(limit, len(rows[part]))
        rows[part], _ = split_stratified(rows[part], strata[part], few, rng=streams.named(f"digits/limit/{part}"))
    for part, chosen in rows.items():
        if not 1 <= n_participants <= len(chosen):
            raise InputError(
                "n_participants",
                expected=f"between 1 and the {len(chosen)} {part} rows",
                got=str(n_participants),
                cure="Ask for fewer participants, or for more rows.",
            )
    parts = {
        part: round_robin(chosen, strata[part], n_participants, rng=streams.named(f"digits/deal/{part}"))
        for part, chosen in rows.items()
    }
    return DigitPartition(**parts)


def _locate(folder: Path, name: str) -> Path:
    packed = find_packed(folder, "mnist", name)
    if packed is None:
        raise missing(f"mnist/{name}.gz", looked_in=f"{folder / name}, with .gz or without")
    return packed


def _read(path: Path, name: str, *, shape: tuple[int, ...]) -> tuple[Path, Bytes]:
    try:
        array = read_idx(path, n_dimensions=(1, 3))
    except InputError as error:
        raise cut_short(path, "mnist", reason=f"it is {error.got}") from None
    except OSError as error:
        raise cut_short(path, "mnist", reason=f"it cannot be read ({error.strerror})") from None
    if array.shape != shape:
        raise changed(path, "mnist", reason=f"it holds an array of shape {array.shape}, and {name} is of shape {shape}")
    return path, array


def _content_checksum(array: Bytes) -> str:
    """SHA-256 of an IDX file's content: its header follows from the shape."""
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return hashlib.sha256(header + array.tobytes()).hexdigest()
