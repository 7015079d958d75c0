"""Checks of the arguments of measures: finite rows, one label per row, and matching image shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mooring.errors import InputError
from mooring.geometry.backend import namespace_of, require_finite
from mooring.typing import Array, Matrix

Integers = NDArray[np.int64]

BLOCK_NUMBERS = 2**22  # size of the temporary arrays of functions that process rows in blocks


def finite_rows(what: str, values: ArrayLike) -> Matrix:
    """Return `values` as a float64 matrix, or raise an `InputError` unless they are a matrix of finite numbers."""
    expected = "a matrix of rows by features, with at least one of each"
    return _finite(what, values, 2, expected, "Pass one record per row; flatten images first.")


def finite_vector(what: str, values: ArrayLike) -> Matrix:
    """Return `values` as a float64 vector, or raise an `InputError` unless they are a vector of finite numbers."""
    return _finite(what, values, 1, "a vector of at least one value", "Pass one value per row.")


def require_length(what: str, values: ArrayLike, *, n_rows: int | None = None) -> NDArray[Any]:
    """Return labels, identities or categories as a vector, and check its length if `n_rows` is given."""
    vector = np.asarray(values)
    if vector.ndim != 1 or (n_rows is not None and len(vector) != n_rows):
        raise InputError(
            what,
            expected="a vector" if n_rows is None else f"a vector of {n_rows} values, one per row",
            got=f"shape {vector.shape}",
            cure="Pass one value for each row, in the order of the rows.",
        )
    return vector


def require_minimum(what: str, value: int, least: int) -> None:
    """Raise an `InputError` for a number below `least`."""
    if value < least:
        raise InputError(what, expected=f"at least {least}", got=str(value), cure=f"Pass {least} or more.")


def unit_rows(vectors: Array) -> Array:
    """Return rows scaled to length one; rows of zeros are not changed."""
    xp = namespace_of(vectors)
    lengths = xp.linalg.vector_norm(vectors, axis=1, keepdims=True)
    return vectors / xp.where(lengths > 0, lengths, 1.0)


def require_image_shape(image_shape: tuple[int, ...], n_pixels: int | None = None) -> None:
    """Raise an `InputError` unless this is the shape of an image (with `n_pixels` values, if given)."""
    shape = tuple(image_shape)
    if len(shape) not in (2, 3) or min(shape) < 1 or n_pixels not in (None, math.prod(shape)):
        raise InputError(
            "image_shape",
            expected="(H, W) or (H, W, C)" + ("" if n_pixels is None else f" with {n_pixels} pixel values in all"),
            got=str(shape),
            cure="Pass the shape that each row was flattened from.",
        )


def image_rows(what: str, rows: ArrayLike, image_shape: tuple[int, ...]) -> Matrix:
    """Return rows of shape (n, H · W · C) as images of shape (n, H, W, C), clamped to [0, 1]; errors call them `what`."""
    rows = finite_rows(what, rows)
    if rows.shape[1] != math.prod(image_shape):
        expected, got = f"of {math.prod(image_shape)} pixel values, images of shape {image_shape}", f"{rows.shape[1]}"
        raise InputError(what, expected=expected, got=got, cure="Pass rows flattened from images of that shape.")
    height, width, *channels = image_shape
    return rows.clip(0.0, 1.0).reshape(len(rows), height, width, *(channels or [1]))


def _finite(what: str, values: ArrayLike, n_dimensions: int, expected: str, cure: str) -> Matrix:
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InputError(
            what, expected="numbers", got=f"dtype {array.dtype}", cure="Encode categories as numbers, or drop them."
        )
    if array.ndim != n_dimensions or array.size == 0:
        raise InputError(what, expected=expected, got=f"shape {array.shape}", cure=cure)
    require_finite(what, array)
    return np.asarray(array, dtype=np.float64)
