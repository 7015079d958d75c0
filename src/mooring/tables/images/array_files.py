"""Files of arrays with images: IDX, the form of MNIST, and NumPy archives (.npz).

No header is taken at its word: what it promises is checked against the size of the file before memory is taken. No
pickle is loaded.
"""

from __future__ import annotations

import gzip
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.files import is_gzip, require_file
from mooring.tables.images.pixels import MAX_NUMBERS, check_count
from mooring.tables.inference import listed

_NAME = re.compile(r"images[-.]idx[34]-ubyte(\.gz)?$")
_UNSIGNED_BYTES = 0x08
_BEST_COMPRESSION = 1032  # deflate never does better than this


def is_idx_file(path: Path) -> bool:
    """Whether a file's name is that of IDX images."""
    return _NAME.search(path.name) is not None


def find_idx_images(folder: Path) -> tuple[Path | None, tuple[str, ...]]:
    """Find the file of IDX images in a folder: the only one, or the training images if there are more."""
    found = sorted(path for path in folder.iterdir() if path.is_file() and is_idx_file(path))
    if len(found) <= 1:
        return (found[0] if found else None), ()
    training = [path for path in found if path.name.startswith("train")]
    if len(training) != 1:
        raise InputError(
            "path",
            expected="a folder with one file of IDX images, or one that starts with 'train'",
            got=listed([path.name for path in found]),
            cure="Give the path of one of the files.",
        )
    others = [path.name for path in found if path != training[0]]
    return training[0], (f"only {training[0].name} is read; {listed(others)} is left aside",)


def find_idx_labels(images: Path) -> Path | None:
    """Find the labels that belong to a file of IDX images, by its name."""
    name = re.sub(r"images([-.])idx[34]", r"labels\1idx1", images.name)
    bare = name.removesuffix(".gz")
    return next((path for path in (images.with_name(n) for n in (name, bare, bare + ".gz")) if path.is_file()), None)


def read_idx(path: Path, *, n_dimensions: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, whose array may have so many dimensions.

    The header is checked against the size of the file before anything of that size is set aside.
    """
    require_file(path)
    try:
        with gzip.open(path) if is_gzip(path) else path.open("rb") as file:
            magic = file.read(4)
            _check_magic(path, magic, n_dimensions)
            shape = struct.unpack(f">{magic[3]}I", file.read(4 * magic[3]))
            if 0 in shape:
                raise _damaged(path, f"shape {shape}")
            promised = math.prod(shape)
            ratio = _BEST_COMPRESSION if is_gzip(path) else 1
            if promised > ratio * path.stat().st_size or promised > MAX_NUMBERS:
                raise _damaged(path, f"a header that promises {promised:,} bytes, more than the file can hold")
            content = file.read(promised + 1)
    except (OSError, EOFError, zlib.error, struct.error):
        raise _damaged(path, "a file that is truncated or damaged") from None
    if len(content) != promised:
        more_or_less = "more" if len(content) > promised else f"only {len(content):,}"
        raise _damaged(path, f"a header that promises {promised:,} bytes and a file that holds {more_or_less}")
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)


def _check_magic(path: Path, magic: bytes, n_dimensions: tuple[int, ...]) -> None:
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] != _UNSIGNED_BYTES:
        raise _damaged(path, "a file without the first bytes of one")
    if magic[3] not in n_dimensions:
        raise _damaged(path, f"an array of {magic[3]} dimensions")


def _damaged(path: Path, got: str) -> InputError:
    return InputError(
        "path", expected="an IDX file of unsigned bytes", got=got, cure=f"Fetch {path.name} again from its source."
    )


def read_archive(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None, npt.NDArray[Any] | None]:
    """Read the arrays `images`, `labels` and `groups`; the last two may be absent."""
    try:
        with zipfile.ZipFile(path) as archive:
            if "images.npy" not in archive.namelist():
                raise _refused(path, "none of that name")
            images = _member(archive, path, "images")
            assert images is not None
            return images, _member(archive, path, "labels"), _member(archive, path, "groups")
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, RuntimeError):
        raise _refused(path, "a file that is damaged, or no archive") from None


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> npt.NDArray[Any] | None:
    if f"{name}.npy" not in archive.namelist():
        return None
    with archive.open(f"{name}.npy") as file:
        try:
            version = np.lib.format.read_magic(file)
            header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
            shape, fortran_order, dtype = header[version](file)
        except Exception:  # a hostile header breaks the parser in more ways than it documents
            raise _refused(path, f"an array {name!r} with a damaged header") from None
        if dtype.hasobject:
            raise _refused(path, f"an array {name!r} of pickled objects, which could run code")
        if dtype.itemsize == 0 or any(side < 0 for side in shape):
            raise _refused(path, f"an array {name!r} with a damaged header")
        count = math.prod(shape)
        check_count(count)
        if count * dtype.itemsize > archive.getinfo(f"{name}.npy").file_size:
            raise _refused(path, f"an array {name!r} whose header promises more than the file holds")
        content = file.read(count * dtype.itemsize)
    if len(content) != count * dtype.itemsize:
        raise _refused(path, f"an array {name!r} that is truncated")
    array = np.frombuffer(content, dtype=dtype)
    return array.reshape(shape, order="F" if fortran_order else "C")


def _refused(path: Path, got: str) -> InputError:
    cure = f"Write {path.name} with numpy.savez_compressed(path, images=..., labels=...)."
    return InputError("path", expected="an archive with an array 'images'", got=got, cure=cure)
