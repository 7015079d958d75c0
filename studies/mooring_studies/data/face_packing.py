"""The official CelebA files packed into the one file that `mooring_studies.data.faces` reads.

Wanted are the aligned images (img_align_celeba/*.jpg), identity_CelebA.txt, list_attr_celeba.txt and
list_eval_partition.txt. The participants' pool is the official test split, without identities of a single image; the
public pool is the first images of the official training split whose identities are not among those.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mooring import InputError, MissingExtraError, StorageError
from mooring_studies.data.downloads import cut_short, missing
from mooring_studies.data.faces import COLUMNS, MIN_IMAGES, PARTICIPANTS, PUBLIC, SIDE

_TRAIN_SPLIT, _TEST_SPLIT = 0, 2
_BLOCK = 2000


def pack_faces(
    folder_of_jpgs: Path,
    identity_file: Path,
    attributes_file: Path,
    partition_file: Path,
    output: Path,
    *,
    n_public: int = 10_000,
    quality: int = 95,
) -> Path:
    """Crop, shrink and pack the official images into one Parquet file.

    A picture is cropped to its centre square and brought to 64×64 pixels by Pillow's bilinear filter, which averages as
    it shrinks.
    """
    import pyarrow as pa
    import pyarrow.parquet

    Image = _pillow()
    identities = _numbers(Path(identity_file))
    splits = _numbers(Path(partition_file))
    smiling = _smiling(Path(attributes_file))
    chosen = _chosen(identities, splits, n_public)
    if unlabelled := [name for name, _ in chosen if name not in smiling]:
        raise cut_short(Path(attributes_file), "celeba", reason=f"{len(unlabelled):,} images are not in it")
    output, unfinished = Path(output), Path(output).with_name(Path(output).name + ".unfinished")
    kinds = (pa.int32(), pa.int64(), pa.bool_(), pa.string(), pa.binary())
    schema = pa.schema(list(zip(COLUMNS, kinds, strict=True)))

    def packed(name: str) -> bytes:
        return _packed(Image, Path(folder_of_jpgs) / name, quality)

    try:
        with (
            pa.parquet.ParquetWriter(unfinished, schema, compression="zstd") as writer,
            ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as threads,
        ):
            for start in range(0, len(chosen), _BLOCK):
                names, pools = zip(*chosen[start : start + _BLOCK], strict=True)
                columns = (
                    [int(Path(name).stem) for name in names],
                    [identities[name] for name in names],
                    [smiling[name] for name in names],
                    list(pools),
                    list(threads.map(packed, names)),
                )
                writer.write_table(pa.table(dict(zip(COLUMNS, columns, strict=True)), schema=schema))
        unfinished.replace(output)
    except OSError as error:
        raise StorageError(
            str(output), reason=f"it cannot be written ({error.strerror})", cure="Choose another place."
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)
    return output


def _chosen(identities: dict[str, int], splits: dict[str, int], n_public: int) -> list[tuple[str, str]]:
    """Names and pools of the images to pack, in order of name."""
    known = sorted(name for name in splits if name in identities)
    tested = [name for name in known if splits[name] == _TEST_SPLIT]
    counted = dict(zip(*np.unique([identities[name] for name in tested], return_counts=True), strict=True))
    kept = [name for name in tested if counted[identities[name]] >= MIN_IMAGES]
    people = {identities[name] for name in kept}
    trained = [name for name in known if splits[name] == _TRAIN_SPLIT and identities[name] not in people]
    if not kept or not trained[:n_public]:
        raise InputError(
            "partition_file",
            expected="a list with training and test images whose identities are known",
            got=f"{len(trained[:n_public])} public images and {len(kept)} for participants",
            cure="Take the official lists, whole.",
        )
    return [(name, PUBLIC) for name in trained[:n_public]] + [(name, PARTICIPANTS) for name in kept]


def _packed(Image: Any, path: Path, quality: int) -> bytes:
    if not path.is_file():
        raise missing(f"celeba/{path.name}", looked_in=str(path))
    try:
        with Image.open(path, formats=("JPEG",)) as picture:
            side = min(picture.size)
            left, top = ((length - side) // 2 for length in picture.size)
            square = picture.convert("RGB").crop((left, top, left + side, top + side))
    except (OSError, SyntaxError, ValueError):
        raise cut_short(path, "celeba", reason="it is no JPEG picture, or one without its end") from None
    content = io.BytesIO()
    square.resize((SIDE, SIDE), Image.Resampling.BILINEAR).save(content, format="WEBP", quality=quality)
    return content.getvalue()


def _numbers(path: Path) -> dict[str, int]:
    """A list of names, each with a number."""
    return {words[0]: int(words[1]) for words in _lines(path, n_words=2)}


def _smiling(path: Path) -> dict[str, bool]:
    """The attribute Smiling of every image; the list starts with a count and a line of names."""
    lines = _lines(path)
    next(lines, None)
    names = next(lines, [])
    if "Smiling" not in names:
        raise cut_short(path, "celeba", reason="its second line does not name Smiling")
    place = names.index("Smiling") + 1
    return {words[0]: words[place] == "1" for words in _lines(path, n_words=len(names) + 1, skip=2)}


def _lines(path: Path, *, n_words: int | None = None, skip: int = 0) -> Iterator[list[str]]:
    if not path.is_file():
        raise missing(f"celeba/{path.name}", looked_in=str(path))
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            words = line.split()
            if number <= skip or not words:
                continue
            if n_words is not None and not _fits(words, n_words):
                raise cut_short(
                    path, "celeba", reason=f"line {number} is not a file name and {n_words - 1} whole numbers"
                )
            yield words


def _fits(words: list[str], n_words: int) -> bool:
    return len(words) == n_words and all(word.lstrip("-").isdecimal() for word in words[1:])


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(needed_for="Packing faces", package="Pillow", extra="images") from None
    return Image
