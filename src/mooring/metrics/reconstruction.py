"""Measures of how close reconstructed rows are to the true ones.

Legend: X the true rows, X̂ their reconstruction, in the same order. A low error and a high R², PSNR or SSIM mean that more
leaks.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from mooring.errors import InputError, MissingExtraError
from mooring.geometry.backend import namespace_of, to_numpy
from mooring.metrics.intervals import N_RESAMPLES, Figure, Interval, bootstrap_mean, bootstrap_ratio
from mooring.metrics.validation import finite_rows, require_image_shape
from mooring.randomness import require_generator
from mooring.typing import Array, Matrix

_SSIM_WINDOW = 7
_SMALLEST_IMAGE_SIDE = 3


def root_ratio(numerators: Matrix, denominators: Matrix) -> float:
    """Return √(Σ numerators / Σ denominators), a relative error; NaN if the denominators sum to zero."""
    total = float(denominators.sum())
    return math.sqrt(float(numerators.sum()) / total) if total > 0 else math.nan


def error_figure(
    name: str, errors: Matrix, sizes: Matrix, *, rng: np.random.Generator, n_resamples: int = N_RESAMPLES
) -> Figure:
    """Return a relative error over rows, with a bootstrap interval, from each row's squared error and squared size."""
    require_generator(rng)
    value = root_ratio(errors, sizes)
    interval = Interval.unknown()
    if not math.isnan(value):
        interval = bootstrap_ratio(errors, sizes, rng=rng, n_resamples=n_resamples)
    return Figure(name, value, interval, None, None, None, n=len(errors), higher_is_worse=False)


def relative_error(truth: ArrayLike, reconstruction: ArrayLike) -> float:
    """Return ‖X̂ − X‖ / ‖X‖ in the Frobenius norm; NaN if X is zero.

    Examples
    --------
    >>> relative_error([[3.0, 4.0]], [[3.0, 3.0]])
    0.2
    """
    truth, reconstruction = _pair(truth, reconstruction)
    return root_ratio((reconstruction - truth) ** 2, truth**2)


def relative_errors(truth: Array, reconstructions: Array) -> Matrix:
    """Return the relative errors of D reconstructions, of shape (D, n, m), of the same rows."""
    xp = namespace_of(truth, reconstructions)
    gaps = xp.sum((reconstructions - truth) ** 2, axis=(1, 2))
    return np.asarray(to_numpy(xp.sqrt(gaps / xp.sum(truth**2))), dtype=np.float64)


def centred_error(truth: ArrayLike, reconstruction: ArrayLike) -> float:
    """Return ‖X̂ − X‖ / ‖X − mean(X)‖, so that guessing the mean row scores 1; NaN if all rows are equal.

    Examples
    --------
    >>> centred_error([[1.0], [3.0]], [[2.0], [2.0]])
    1.0
    """
    truth, reconstruction = _pair(truth, reconstruction)
    return root_ratio((reconstruction - truth) ** 2, _centred(truth) ** 2)


def feature_r2(truth: ArrayLike, reconstruction: ArrayLike) -> Matrix:
    """Return R² of each column: 1 is perfect, 0 is as good as the column's mean; NaN for a constant column.

    Examples
    --------
    >>> feature_r2([[1.0, 5.0], [3.0, 5.0]], [[1.0, 5.0], [3.0, 5.0]])
    array([ 1., nan])
    """
    truth, reconstruction = _pair(truth, reconstruction)
    spread = np.sum(_centred(truth) ** 2, axis=0)
    varies = spread > 0
    missed = np.sum((reconstruction - truth) ** 2, axis=0)
    return np.where(varies, 1.0 - missed / np.where(varies, spread, 1.0), math.nan)


def psnr(truth: ArrayLike, reconstruction: ArrayLike, *, image_shape: tuple[int, ...], data_range: float) -> Matrix:
    """Return the peak signal-to-noise ratio of each image, in decibels.

    An image reconstructed to the last bit of double precision counts as 313 dB rather than infinity, so that means and
    intervals stay finite.

    Parameters
    ----------
    truth, reconstruction : array of shape (n, m)
        True rows and their reconstruction, in the same order, clipped to the range of pixel values.
    image_shape : (H, W) or (H, W, C)
        The shape each row was flattened from.
    data_range : float
        The width of the range of pixel values, such as 1 or 255.
    """
    truth, images = _as_images(truth, reconstruction, image_shape, data_range)
    squares = np.mean((images - truth) ** 2, axis=tuple(range(1, truth.ndim))) / data_range**2
    return np.asarray(-10.0 * np.log10(np.maximum(squares, np.finfo(np.float64).eps ** 2)), dtype=np.float64)


def ssim(truth: ArrayLike, reconstruction: ArrayLike, *, image_shape: tuple[int, ...], data_range: float) -> Matrix:
    """Return the structural similarity of each image, as defined by scikit-image, in windows of at most 7 × 7 pixels.

    The parameters are those of `psnr`; the sides of an image must be at least 3 pixels long.
    """
    truth, images = _as_images(truth, reconstruction, image_shape, data_range)
    try:
        from skimage.metrics import structural_similarity
    except ImportError:
        raise MissingExtraError(needed_for="Structural similarity", package="scikit-image", extra="images") from None
    side = min(image_shape[:2])
    if side < _SMALLEST_IMAGE_SIDE:
        expected, got = f"at least {_SMALLEST_IMAGE_SIDE} pixels high and wide", str(tuple(image_shape))
        cure = "Pass images of at least that size."
        raise InputError("image_shape", expected=expected, got=got, cure=cure)
    options = {
        "win_size": min(_SSIM_WINDOW, side - 1 + side % 2),
        "data_range": data_range,
        "channel_axis": 2 if len(image_shape) == 3 else None,
    }
    similarity: Callable[..., float] = structural_similarity
    scores = [similarity(true, image, **options) for true, image in zip(truth, images, strict=True)]
    return np.asarray(scores, dtype=np.float64)


def mean_figure(name: str, of_each: Matrix, *, rng: np.random.Generator) -> Figure:
    """Return the mean of the rows' scores, with a bootstrap interval. Higher scores mean that more leaks."""
    require_generator(rng)
    interval = bootstrap_mean(of_each, rng=rng)
    return Figure(name, float(of_each.mean()), interval, None, None, None, n=len(of_each), higher_is_worse=True)


def _pair(truth: ArrayLike, reconstruction: ArrayLike) -> tuple[Matrix, Matrix]:
    truth, reconstruction = finite_rows("truth", truth), finite_rows("reconstruction", reconstruction)
    if truth.shape != reconstruction.shape:
        got, cure = f"shape {reconstruction.shape}", "Decode it to the features of the records, one row per record."
        raise InputError("reconstruction", expected=f"of shape {truth.shape} like the truth", got=got, cure=cure)
    return truth, reconstruction


def _centred(rows: Matrix) -> Matrix:
    """Return rows less their mean; a constant column gives exact zeros."""
    constant = np.ptp(rows, axis=0) == 0
    return np.where(constant, 0.0, rows - rows.mean(axis=0))


def _as_images(
    truth: ArrayLike, reconstruction: ArrayLike, image_shape: tuple[int, ...], data_range: float
) -> tuple[Matrix, Matrix]:
    truth, reconstruction = _pair(truth, reconstruction)
    require_image_shape(image_shape, truth.shape[1])
    if not (math.isfinite(data_range) and data_range > 0):
        cure = "Pass the largest possible pixel value minus the smallest."
        raise InputError("data_range", expected="a positive width", got=f"{data_range:g}", cure=cure)
    return truth.reshape(-1, *image_shape), reconstruction.reshape(-1, *image_shape)
