"""Public features of pictures: responses of fixed filters, projected to directions that distinguish synthetic glyphs.

Legend: e, o the responses of the even and the odd part of a Gabor filter to a picture, whose pixels are in [−1, 1]; p the
picture at a low resolution; z̄ the mean of z over the glyphs; W, B the covariances of z (after `contrast_orientations`)
within and between glyphs; P the projection; c₀ the share of the constant; τ, κ small constants.

    g = (e² + o² + τ mean(e² + o²))^¼            compressed contrast of each filter at each position
    z = (g / ‖g‖, 0.1 p / ‖p‖)                   independent of brightness and of contrast
    u = (z − z̄) P,  φ = (√(1 − c₀) u/‖u‖, √c₀),  ‖φ‖ = 1.

Classes are taken to be shapes: a shape that is bent, shifted or drawn with a different pen stays in its class. P keeps the
directions v in which random curves differ more from each other than from bent copies of themselves: B v = μ (W + κI) v with
the largest μ. Directions are scaled to vᵀ(W + κI)v = μ/(1 + μ), so that bending has nearly the same effect in all strong
directions. Noise on the sums then costs least, since no direction is much weaker than another. The glyphs come from a public
seed, and nothing comes from rows, so features cost no privacy.

`mooring.mechanisms.onnx_export` can write the same map as ONNX.

**Reproducibility.** Glyphs are computed from raw words of PCG64, whose stream NumPy guarantees, by sums, products and one
exponential; signs of eigenvectors are fixed. Machines differ only by rounding: in the order of sums in a matrix product, and
in the last bit of an exponential. Eigenvalues are far enough apart that φ then differs by less than 10⁻⁹. (A test rounds all
responses to 10⁻¹³. Kernels of OpenBLAS for three processors, with one thread and with two, differed by 3·10⁻¹³.) This is far
less than the rounding of φ by a participant, to multiples of 2⁻¹² or, in sums by class, of about 2⁻¹⁷. Nothing requires two
machines to have equal φ: norms are checked in each participant's own integers, and a model is affected as by rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.linalg import eigh

from mooring.errors import InputError
from mooring.mechanisms.sums.features.columns import require_width, scale_to_unit
from mooring.typing import Matrix

CONSTANT_SHARE = 0.05
N_COMPONENTS = 200
_ORIENTATIONS = 8
_FINEST, _OF_ROOT, _RATIO = (
    2.5,
    0.85,
    1.8,
)  # minimum wavelength in pixels, finer wavelength over the root of the side, ratio of the two wavelengths
_PLACES = 7  # positions of a filter per side
FLOOR = 4e-4  # τ
BLANK = 1e-12  # added to squares, so that rounding does not count as contrast
_ISOTROPIC = 0.5  # weight of a response's mean over orientations
PIXELS = 0.1
_WITHIN = 0.01  # κ, relative to the largest eigenvalue of W
_WEAKEST = 0.1  # relative to the largest variance; directions with less variance are not fully whitened
_GLYPHS, _COPIES = 2000, 5
_CURVES, _POINTS = 3, 20
_BEND = 0.11
_PEN = (0.04, 0.1)
_BLOCK = 512


@dataclass(frozen=True)
class PictureFeatures:
    """Features of pictures of one size.

    Examples
    --------
    >>> features = PictureFeatures(8, 8, n_components=16)
    >>> phi = features.apply(np.linspace(-1, 1, 128).reshape(2, 64))
    >>> phi.shape, round(float((phi[0] ** 2).sum()), 12)
    ((2, 17), 1.0)
    """

    height: int
    width: int
    n_channels: int = 1
    """Numbers per pixel, which are stored side by side; features use the mean over channels."""
    n_components: int = N_COMPONENTS
    """Number of features, not counting the constant."""
    seed: int = 0
    """Public seed of the synthetic glyphs."""
    fitted: PictureProjection | None = field(default=None, repr=False, compare=False)
    """Projection that `fit_to_public` has fitted to public pictures; None if the projection is that of glyphs."""
    constant_share: ClassVar[float] = CONSTANT_SHARE
    """c₀."""
    unit_length: ClassVar[bool] = True
    """Every picture that is not blank has features of length one."""
    is_dense: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least, most in (("height", 4, 256), ("width", 4, 256), ("n_channels", 1, 4), ("seed", 0, 2**63)):
            if not least <= getattr(self, name) <= most:
                expected, got = f"between {least} and {most}", str(getattr(self, name))
                cure = "Resize the pictures." if name in ("height", "width") else f"Correct {name}."
                raise InputError(name, expected=expected, got=got, cure=cure)
        most = filters_of(self.height, self.width).n_responses
        if not 1 <= self.n_components <= most:
            expected, got = f"between 1 and {most} for pictures of this size", str(self.n_components)
            cure = f"{min(N_COMPONENTS, most)} is a good choice for most pictures of this size."
            raise InputError("n_components", expected=expected, got=got, cure=cure)

    @property
    def n_inputs(self) -> int:
        """The number of entries of an encoded row."""
        return self.height * self.width * self.n_channels

    @property
    def n_features(self) -> int:
        """The length of φ."""
        return self.n_components + 1

    @property
    def projection(self) -> PictureProjection:
        """The filters, the mean z̄ and the matrix P, which together define the features."""
        if self.fitted is not None:
            return self.fitted
        return _project_glyphs(self.height, self.width, self.n_components, self.seed)

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of pictures: one picture per row, its pixels line by line, the channels of a pixel side by side."""
        require_width(rows, self)
        phi = np.empty((rows.shape[0], self.n_features))
        for start in range(0, len(rows), _BLOCK):
            phi[start : start + _BLOCK, :-1] = self.projection.apply(self.to_grey(rows[start : start + _BLOCK]))
        scale_to_unit(phi, CONSTANT_SHARE)
        return phi

    def first(self, n_components: int) -> PictureFeatures:
        """Return only the first `n_components` features. Features are sorted by importance."""
        fitted = self.fitted
        if fitted is not None:
            fitted = replace(fitted, matrix=fitted.matrix[:, :n_components])
        return replace(self, n_components=n_components, fitted=fitted)

    def to_grey(self, rows: Matrix) -> Matrix:
        """Return the mean of each pixel's channels."""
        rows = rows.astype(np.float64, copy=False)
        return rows if self.n_channels == 1 else np.asarray(rows.reshape(len(rows), -1, self.n_channels).mean(axis=2))


@dataclass(frozen=True, eq=False)
class Filters:
    """The filters for pictures of one size."""

    matrix: Matrix
    """The filters as columns, of shape (pixels, 2 n_moduli + number of low-resolution pixels): first the even parts, then
    the odd parts, then the means that form the picture at a low resolution. Every column sums to zero."""
    n_moduli: int
    """The number of Gabor filters: wavelengths × orientations × positions, in this order."""

    @property
    def n_responses(self) -> int:
        """The length of z."""
        return int(self.matrix.shape[1]) - self.n_moduli

    def apply(self, pictures: Matrix) -> Matrix:
        """Return z of grey pictures."""
        m = self.n_moduli
        responses = pictures @ self.matrix
        g = responses[:, :m] ** 2 + responses[:, m : 2 * m] ** 2
        g = np.sqrt(np.sqrt(g + (FLOOR * g.mean(axis=1, keepdims=True) + BLANK)))
        return np.hstack([_normalised(g), PIXELS * _normalised(responses[:, 2 * m :])])

    def contrast_orientations(self, z: Matrix) -> Matrix:
        """Return z with each g minus its mean over orientations, and half of these means as further columns."""
        g = z[:, : self.n_moduli].reshape(len(z), -1, _ORIENTATIONS, self.n_moduli // (2 * _ORIENTATIONS))
        mean = g.mean(axis=2, keepdims=True)
        parts = [(g - mean).reshape(len(z), -1), _ISOTROPIC * mean.reshape(len(z), -1), z[:, self.n_moduli :]]
        return np.hstack(parts)


@dataclass(frozen=True, eq=False)
class PictureProjection:
    """The filters and the linear part of the features, u = (z − z̄) P."""

    filters: Filters
    mean: Matrix
    """z̄, of shape (n_responses,)."""
    matrix: Matrix
    """P, of shape (n_responses, n_components)."""

    def apply(self, pictures: Matrix) -> Matrix:
        """Return u of grey pictures."""
        return np.asarray((self.filters.apply(pictures) - self.mean) @ self.matrix)


@lru_cache(maxsize=4)
def filters_of(height: int, width: int) -> Filters:
    """Return the filters for pictures of this size."""
    side = min(height, width)
    n_places = min(_PLACES, side // 2)
    places = [_places(length, n_places) for length in (height, width)]
    finest = max(_FINEST, _OF_ROOT * math.sqrt(side))
    even, odd = [], []
    for wavelength in (finest, _RATIO * finest):
        for k in range(_ORIENTATIONS):
            angle = math.pi * k / _ORIENTATIONS
            turns = [2 * math.pi / wavelength * part for part in (math.sin(angle), math.cos(angle))]
            down, across = (
                np.exp(-((offsets / wavelength) ** 2) * 2 + 1j * turn * offsets)
                for offsets, turn in zip(places, turns, strict=True)
            )
            filters = np.einsum("py,qx->yxpq", down, across).reshape(height * width, -1)
            envelope = np.abs(filters)
            filters -= envelope * (filters.sum(axis=0) / envelope.sum(axis=0))
            even.append(filters.real / wavelength**2)
            odd.append(filters.imag / wavelength**2)
    boxes = [
        np.clip(0.5 + length / (4 * n_places) - np.abs(_places(length, 2 * n_places)), 0, 1)
        for length in (height, width)
    ]
    low = np.einsum("py,qx->yxpq", *boxes).reshape(height * width, -1)
    low = low / low.sum(axis=0) - 1 / (height * width)
    matrix = np.hstack([*even, *odd, low])
    return Filters(matrix, 2 * _ORIENTATIONS * n_places**2)


def draw_glyphs(height: int, width: int, seed: int) -> Matrix:
    """Return synthetic pictures: glyphs of two or three random Bézier curves, each in bent and shifted copies.

    The array is of shape (glyphs × copies, height × width), with values in [−1, 1]. Copies of a glyph are consecutive.
    """
    words = np.random.PCG64(seed)

    def uniform(*shape: int) -> Matrix:
        return np.asarray((words.random_raw(math.prod(shape)) >> np.uint64(11)) * 2.0**-53).reshape(shape)

    def deviate(scale: float, *shape: int) -> Matrix:
        return scale * math.sqrt(3) * (2 * uniform(*shape) - 1)

    ends = 0.1 + 0.8 * uniform(_GLYPHS, 1, _CURVES, 4, 2)
    drawn = np.ones((_GLYPHS, 1, _CURVES, 1))
    drawn[:, 0, -1, 0] = uniform(_GLYPHS) < 0.5
    ends = ends - 0.5 + deviate(0.4 * _BEND, _GLYPHS, _COPIES, _CURVES, 4, 2)
    bent = ends @ (np.eye(2) + deviate(_BEND, _GLYPHS, _COPIES, 1, 2, 2))
    bent += 0.5 + deviate(0.3 * _BEND, _GLYPHS, _COPIES, 1, 1, 2)
    pen = _PEN[0] + (_PEN[1] - _PEN[0]) * uniform(_GLYPHS * _COPIES, 1, 1)
    t = np.linspace(0, 1, _POINTS)[:, None]
    points = np.hstack([(1 - t) ** 3, 3 * (1 - t) ** 2 * t, 3 * (1 - t) * t**2, t**3]) @ bent
    points = points.reshape(_GLYPHS * _COPIES, -1, 2)
    ink = np.broadcast_to(drawn, (_GLYPHS, _COPIES, _CURVES, _POINTS)).reshape(_GLYPHS * _COPIES, -1, 1)
    down, across = (
        np.exp(-(((np.arange(length) + 0.5) / length - points[:, :, axis, None]) ** 2) / (2 * pen**2))
        for axis, length in enumerate((height, width))
    )
    down *= ink
    pictures = np.zeros((_GLYPHS * _COPIES, height, width))
    for k in range(points.shape[1]):
        np.maximum(pictures, down[:, k, :, None] * across[:, k, None, :], out=pictures)
    return 2 * pictures.reshape(len(pictures), -1) - 1


@lru_cache(maxsize=4)
def _project_glyphs(height: int, width: int, n_components: int, seed: int) -> PictureProjection:
    filters = filters_of(height, width)
    glyphs = draw_glyphs(height, width, seed)
    z = np.vstack([filters.apply(glyphs[start : start + _BLOCK]) for start in range(0, len(glyphs), _BLOCK)])
    matrix = discriminating_directions(filters.contrast_orientations(z), n_components)
    # contrast_orientations is linear: applied to the identity, it gives its matrix, which is merged into the projection.
    return PictureProjection(filters, z.mean(axis=0), filters.contrast_orientations(np.eye(z.shape[1])) @ matrix)


def fit_to_public(features: PictureFeatures, pictures: Matrix) -> PictureFeatures:
    """Return features with a projection that is fitted to public pictures of the same kind rather than to glyphs.

    `pictures` is of shape (n, n_inputs). The projection consists of the whitened principal components of their z. If all
    pictures are similar, like aligned faces, the projection of glyphs leaves a large mean in φ, which is not informative and
    takes up part of the norm. The pictures must be public, and must not be among the records that the study protects.
    """
    require_width(pictures, features)
    filters = filters_of(features.height, features.width)
    blocks = range(0, len(pictures), _BLOCK)
    z = np.vstack([filters.apply(features.to_grey(pictures[start : start + _BLOCK])) for start in blocks])
    contrasts = filters.contrast_orientations(z - z.mean(axis=0))
    n, k = contrasts.shape[1], features.n_components
    values, vectors = eigh(contrasts.T @ contrasts, subset_by_index=(n - k, n - 1))
    signs = np.where(vectors.sum(axis=0) < 0, -1.0, 1.0)
    matrix = (vectors * (signs / np.sqrt(values / values[-1] + _WEAKEST)))[:, ::-1]
    folded = filters.contrast_orientations(np.eye(z.shape[1])) @ matrix
    return replace(features, fitted=PictureProjection(filters, z.mean(axis=0), folded))


def discriminating_directions(z: Matrix, n_components: int) -> Matrix:
    """Return the directions in which glyphs differ most relative to their copies, B v = μ (W + κI) v, as columns.

    z is of shape (glyphs × copies, n), with the copies of a glyph in consecutive rows. Directions with the largest μ come
    first.
    """
    copies = z.reshape(-1, _COPIES, z.shape[1])
    means = copies.mean(axis=1)
    off = (copies - means[:, None]).reshape(z.shape)
    means = means - means.mean(axis=0)
    within = off.T @ off / (len(z) - len(means))
    between = means.T @ means / (len(means) - 1) - within / _COPIES
    n = len(within)
    largest = eigh(within, eigvals_only=True, subset_by_index=(n - 1, n - 1))[0]
    within[np.diag_indices(n)] += _WITHIN * largest
    values, vectors = eigh(between, within, subset_by_index=(n - n_components, n - 1))
    values = np.maximum(values, 0)
    signs = np.where(vectors.sum(axis=0) < 0, -1.0, 1.0)
    return np.asarray((vectors * (signs * np.sqrt(values / (1 + values))))[:, ::-1])


def _places(length: int, n_places: int) -> Matrix:
    """Return the offset of every pixel of a side from each of `n_places` positions that are evenly spread over the side."""
    centres = (np.arange(n_places) + 0.5) * length / n_places - 0.5
    return np.arange(length) - centres[:, None]


def _normalised(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.sqrt(np.einsum("ij,ij->i", rows, rows) + BLANK)[:, None])
