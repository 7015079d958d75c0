"""Encoded pictures (PNG, JPEG, WebP, BMP) as arrays of bytes, all of one shape."""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, MissingExtraError
from mooring.typing import Matrix

Pixels = npt.NDArray[np.uint8]
IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
MAX_NUMBERS = 2**30  # 8 GiB in float64
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
_GREY = ("1", "L", "LA", "I", "I;16", "I;16B", "I;16L")
_MAX_PIXELS = 2**26
_BLOCK = 256


class _ColourFound(Exception):
    """Raised for a colour image among grey ones."""


def decode_images(
    sources: list[Path] | list[bytes], *, size: tuple[int, int] | None, place: Callable[[int], str]
) -> Pixels:
    """Return images of one shape as an array of shape (n, height, width), or (n, height, width, 3) if any is in colour.

    `sources` are paths or the contents of image files. If `size` is given, images are resized to it. Transparency is
    dropped, and grey levels of 16 bits are converted to 8 bits. `place` returns, for
    error messages, where the image with a given index comes from.
    """
    try:
        return _decode(sources, size=size, place=place, colour=False)
    except _ColourFound:
        return _decode(sources, size=size, place=place, colour=True)


def as_pixel_values(images: npt.NDArray[Any]) -> tuple[Matrix, tuple[str, ...]]:
    """Return pixels scaled to the range from 0 to 1, with notes for the owner of the images.

    Unsigned integers of 8 and 16 bits are divided by 255 or 65,535. Other numbers are not changed if all are between 0 and
    1, are divided by 255 if all are between 0 and 255, and are refused otherwise.
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
        got, cure = "values outside these ranges, or not finite", "Undo the normalisation before you save the images."
        raise InputError("images", expected="pixel values between 0 and 1, or between 0 and 255", got=got, cure=cure)
    return (values, ()) if high <= 1.0 else (values / 255.0, ("pixel values above 1: all are divided by 255",))


def resize_images(images: Matrix, size: tuple[int, int]) -> Matrix:
    """Resize images of numbers, of shape (n, height, width, ...)."""
    Image = _pillow()
    n, height, width = images.shape[:3]
    planes = np.moveaxis(images.reshape(n, height, width, -1), -1, 1).astype(np.float32)
    check_count(n * size[0] * size[1] * planes.shape[1])
    resized = np.empty((n, planes.shape[1], *size))
    for k in range(n):
        for c in range(planes.shape[1]):
            picture = Image.fromarray(planes[k, c]).resize((size[1], size[0]), Image.Resampling.BOX)
            resized[k, c] = np.asarray(picture)
    return np.moveaxis(resized, 1, -1).reshape(n, *size, *images.shape[3:])


def as_size(size: int | tuple[int, int] | None) -> tuple[int, int] | None:
    """Return a size as (height, width), where one number stands for a square; None if no size is given."""
    if size is None:
        return None
    pair = (size, size) if isinstance(size, int) else tuple(size)
    if len(pair) != 2 or not all(isinstance(side, int) and side >= 1 for side in pair):
        raise InputError(
            "size", expected="a number of pixels, or (height, width)", got=str(size), cure="32 makes 32×32 pixels."
        )
    return pair[0], pair[1]


def check_count(n_numbers: int) -> None:
    """Refuse images that would not fit in memory as rows of numbers."""
    if n_numbers > MAX_NUMBERS:
        expected, got = f"images with at most {MAX_NUMBERS:,} pixel values in all", f"{n_numbers:,}"
        cure = "Use fewer or smaller images; files such as PNG can be made smaller with size (--size)."
        raise InputError("path", expected=expected, got=got, cure=cure)


def _decode(
    sources: list[Path] | list[bytes], *, size: tuple[int, int] | None, place: Callable[[int], str], colour: bool
) -> Pixels:
    Image = _pillow()
    first = _pixels(Image, sources[0], size, colour, place(0))
    check_count(len(sources) * first.size)
    images = np.empty((len(sources), *first.shape), dtype=np.uint8)

    def fill(start: int) -> None:
        for k in range(start, min(start + _BLOCK, len(sources))):
            pixels = _pixels(Image, sources[k], size, colour, place(k))
            if pixels.shape != first.shape:
                raise InputError(
                    "path",
                    expected=f"images of one shape, {first.shape} like the first",
                    got=f"shape {pixels.shape} at {place(k)}",
                    cure="Resize them with size (--size), for example 32.",
                )
            images[k] = pixels

    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        try:
            list(pool.map(fill, range(0, len(sources), _BLOCK)))
        except Exception:
            pool.shutdown(cancel_futures=True)
            raise
    return images


def _pixels(Image: Any, source: Path | bytes, size: tuple[int, int] | None, colour: bool, place: str) -> Pixels:
    damage = (OSError, SyntaxError, ValueError, EOFError, struct.error, Warning, Image.DecompressionBombError)
    try:
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(file, formats=_FORMATS) as picture:
            if picture.width * picture.height > _MAX_PIXELS:
                raise ValueError("too many pixels")
            if not colour and picture.mode not in _GREY:
                raise _ColourFound
            picture = _plain(Image, picture, "RGB" if colour else "L")
            if size is not None and picture.size != (size[1], size[0]):
                picture = picture.resize((size[1], size[0]), Image.Resampling.BOX)
            return np.asarray(picture, dtype=np.uint8)
    except damage:
        expected, cure = f"images in {', '.join(_FORMATS)} of at most {_MAX_PIXELS:,} pixels", "Replace or remove it."
        raise InputError(
            "path", expected=expected, got=f"an image that cannot be decoded at {place}", cure=cure
        ) from None


def _plain(Image: Any, picture: Any, mode: str) -> Any:
    if picture.mode.startswith("I"):
        levels = np.clip(np.asarray(picture, dtype=np.int64) // 257, 0, 255)
        picture = Image.fromarray(levels.astype(np.uint8))
    if picture.mode in ("P", "PA"):
        picture = picture.convert("RGBA")
    return picture if picture.mode == mode else picture.convert(mode)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtraError(needed_for="Decoding images", package="Pillow", extra="images") from None
    return Image
