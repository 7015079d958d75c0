"""Public features of pictures: fixed filters, projected to directions that distinguish synthetic glyphs.

Legend: x the pixels of a picture, row by row, each in [−1, 1]; e, o the responses of the even and the odd part of a Gabor
filter; p the picture at a low resolution; W, B the covariance of z (after `contrast_orientations`) within and between
synthetic glyphs; c₀ the share of the constant; τ, κ small constants.

    g = (e² + o² + τ mean(e² + o²))^¼            compressed contrast of each filter at each position
    z = (g / ‖g‖, 0.1 p / ‖p‖)                   independent of brightness and of contrast
    u = (z − z̄) P,  φ = (√(1 − c₀) u/‖u‖, √c₀),  ‖φ‖ = 1.

Classes are shapes: a shape that is bent, shifted or drawn with a different pen stays in its class. P keeps the directions in
which random curves differ more from each other than from bent copies of themselves, and scales them so that bending has the
same effect in all: B v = μ (W + κI) v, scaled to vᵀ(W + κI)v = μ/(1 + μ). Noise on the sums then costs least, since no
direction is much weaker than another. The glyphs come from a public seed, and nothing comes from rows, so features cost no
privacy.

`mooring.mechanisms.onnx_export` can write the same map as ONNX.

**Reproducibility.** Glyphs are drawn from raw words of PCG64, whose stream NumPy guarantees, by sums, products and one
exponential; signs of eigenvectors are fixed. Machines differ only by rounding: in the order of sums in a matrix product and
the last bit of an exponential. Eigenvalues are far enough apart that φ then differs by less than 10⁻⁹ (a test rounds all
responses to 10⁻¹³; kernels of OpenBLAS for three processors, with one thread and two, differed by 3·10⁻¹³), while a
participant rounds φ to multiples of 2⁻¹² or, in sums by class, of about 2⁻¹⁷. Nothing depends on two machines having equal
φ: norms are checked in each participant's own integers, and for a model the difference is like rounding.
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
)  # minimum wavelength in pixels, wavelength over the root of the side, ratio of the two wavelengths
_PLACES = 7  # positions of a filter per side
FLOOR = 4e-4  # τ
BLANK = 1e-12  # added to squares, so that rounding does not count as contrast
_ISOTROPIC = 0.5  # weight of a response's mean over orientations
PIXELS = 0.1
_WITHIN = 0.01  # κ, relative to the largest eigenvalue of W
_WEAKEST = 0.1  # relative to the largest variance; weaker directions are not fully whitened
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
    """Numbers per pixel, stored side by side; their mean is used."""
    n_components: int = N_COMPONENTS
    """Number of features without the constant."""
    seed: int = 0
    """Public seed of the synthetic glyphs."""
    fitted: PictureProjection | None = field(default=None, repr=False, compare=False)
    """Projection fitted to public pictures by `fit_to_public`; None for that of glyphs."""
    constant_share: ClassVar[float] = CONSTANT_SHARE
    """c₀."""
    unit_length: ClassVar[bool] = True
    """Every picture that is not blank has features of length one."""
    is_dense: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name, least, most in (("height", 4, 256), ("width", 4, 256), ("n_channels", 1, 4), ("seed", 0, 2**63)):
            if not least <= getattr(self, name) <= most:
                raise InputError(
                    name, expected=f"between {least} and {most}", got=str(getattr(self, name)), cure="Resize pictures."
                )
        most = filters_of(self.height, self.width).n_responses
        if not 1 <= self.n_components <= most:
            expected, got = f"between 1 and {most} for pictures of this size", str(self.n_components)
            cure = f"{N_COMPONENTS} is a good choice for most pictures that are large enough."
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
        """The filters, z̄ and P, which define the map."""
        if self.fitted is not None:
            return self.fitted
        return _project_glyphs(self.height, self.width, self.n_components, self.seed)

    def apply(self, rows: Matrix) -> Matrix:
        """Return φ of pictures, one per row, with pixels row by row and channels of a pixel side by side."""
        require_width(rows, self)
        phi = np.empty((rows.shape[0], self.n_features))
        for start in range(0, len(rows), _BLOCK):
            phi[start : start + _BLOCK, :-1] = self.projection.apply(self.to_grey(rows[start : start + _BLOCK]))
        scale_to_unit(phi, CONSTANT_SHARE)
        return phi

    def first(self, n_components: int) -> PictureFeatures:
        """Return the first `n_components` of these features, which are sorted by importance."""
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
    """Even parts, odd parts, and the picture at a low resolution, of shape (pixels, 2 n_moduli + n_low); every column sums
    to zero."""
    n_moduli: int
    """The number of wavelengths × orientations × positions, in this order."""

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
        """Return z with the mean over orientations subtracted from each modulus, and half that mean as further columns."""
        g = z[:, : self.n_moduli].reshape(len(z), -1, _ORIENTATIONS, self.n_moduli // (2 * _ORIENTATIONS))
        mean = g.mean(axis=2, keepdims=True)
        parts = [(g - mean).reshape(len(z), -1), _ISOTROPIC * mean.reshape(len(z), -1), z[:, self.n_moduli :]]
        return np.hstack(parts)


@dataclass(frozen=True, eq=False)
class PictureProjection:
    """The linear part of the map, u = (z − z̄) P."""

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

    They are of shape (glyphs × copies, height × width), with values in [−1, 1]; copies of a glyph are consecutive.
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
    # The contrast is linear, so applying it to the identity gives a matrix that is merged into the projection.
    return PictureProjection(filters, z.mean(axis=0), filters.contrast_orientations(np.eye(z.shape[1])) @ matrix)


def fit_to_public(features: PictureFeatures, pictures: Matrix) -> PictureFeatures:
    """Return features whose projection is fitted to public pictures (n, n_inputs) of the same kind instead of glyphs.

    The projection consists of their whitened principal components. If all pictures are similar, like aligned faces, the
    projection of glyphs leaves a large mean in φ, which is not informative and takes up part of the norm. The pictures
    must be public, and not among the records that the study protects.
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

    Copies of a glyph are consecutive in z, of shape (glyphs × copies, n); directions with the largest μ come first.
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
    """Return the offset of every pixel from each of `n_places` positions, evenly spread over a side."""
    centres = (np.arange(n_places) + 0.5) * length / n_places - 0.5
    return np.arange(length) - centres[:, None]


def _normalised(rows: Matrix) -> Matrix:
    return np.asarray(rows / np.sqrt(np.einsum("ij,ij->i", rows, rows) + BLANK)[:, None])
