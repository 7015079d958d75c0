"""NumPy archives (.npz) with images, read without trusting them: no pickles, and no header taken at its word."""

from __future__ import annotations

import math
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.images.pixels import check_count
from mooring.typing import Matrix


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


def as_pixel_values(images: npt.NDArray[Any]) -> tuple[Matrix, tuple[str, ...]]:
    """Bring pixels to the range from 0 to 1, and say how.

    Unsigned bytes and unsigned integers of 16 bits are divided by their largest value; other numbers must lie between 0
    and 1, and stay as they are, or between 0 and 255, and are divided by 255.
    """
    if images.dtype in (np.uint8, np.uint16):
        return np.divide(images, float(np.iinfo(images.dtype).max), dtype=np.float64), ()
    if images.dtype.kind not in "biuf":
        raise InputError(
            "images", expected="an array of numbers", got=f"an array of {images.dtype}", cure="Save pixels as bytes."
        )
    values = images.astype(np.float64)
    low, high = values.min(), values.max()
    if not (low >= 0.0 and high <= 255.0):  # NaN fails, too
        raise InputError(
            "images",
            expected="pixel values between 0 and 1, or between 0 and 255",
            got="values outside, or not finite",
            cure="Undo the normalisation before you save the images.",
        )
    return (values, ()) if high <= 1.0 else (values / 255.0, ("pixel values above 1: all are divided by 255",))


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
    return InputError(
        "path",
        expected="an archive with an array 'images'",
        got=got,
        cure=f"Write {path.name} with numpy.savez_compressed(path, images=..., labels=...).",
    )
