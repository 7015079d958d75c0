"""The perturbation kernel, which computes an upload from rows and an anchor.

    Y_i = X_i O_i + 1 Ψ_iᵀ + σ W_i,        B_i = A O_i + 1 Ψ_iᵀ + v W'_i.

Legend: X_i the n_i projected rows of participant i, with h components, and Y_i their representation; A the anchor of r rows,
and B_i its representation; (O_i, Ψ_i) the rigid map; σ and v the noise scales of private data and anchor; W_i and W'_i
independent standard Gaussian noise.

`mooring share` streams blocks of a table through `map_rows` and `add_noise`. `represent` computes the whole upload of one
participant in memory. Arrays are NumPy or torch arrays. In `map_rows` and `add_noise` they may have leading axes, such as
draws or participants; `represent` takes matrices. The caller provides the randomness: a `NoiseStream` for `add_noise`, and
an `UploadNoise` or a generator for `represent`.

Computation is in float64, and `precision` is the format of a step's result. The uploads of `mooring share`, and those of
`represent` with precision="float32", are in float32. Rows are rounded twice: after the map, because the mapped rows of a
large table wait on disk for their noise, and after the noise. The anchor representation is rounded once, after the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, device_of, namespace_of, require_finite
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.anchors import check_anchor
from mooring.mechanisms.rotation.methods import Method, get_method
from mooring.randomness import require_generator
from mooring.typing import Array

Precision: TypeAlias = Literal["float32", "float64"]


class RowMap(Protocol):
    """A secret rigid map that can be applied to rows, such as a `RigidMap`."""

    def apply(self, rows: Array, /) -> Array:
        """Return X O + 1 Ψᵀ of rows X."""


class NoiseStream(Protocol):
    """A stream of standard normal numbers with random access."""

    def normals(self, start: int, count: int, /) -> Array:
        """Return `count` numbers from position `start` on, in one dimension."""


@dataclass(frozen=True, eq=False)
class GeneratorNoise:
    """A noise stream that takes the next numbers of a generator. A generator has no positions, so `start` is ignored."""

    rng: np.random.Generator

    def __post_init__(self) -> None:
        require_generator(self.rng)

    def normals(self, start: int, count: int, /) -> Array:
        """Return the next `count` numbers."""
        return self.rng.standard_normal(count)


@dataclass(frozen=True, eq=False)
class ArrayNoise:
    """W as an array, for noise that is coupled between methods or drawn for many uploads at once."""

    values: Array

    def __post_init__(self) -> None:
        require_finite("noise", self.values, cure="Draw it again.")

    def normals(self, start: int, count: int, /) -> Array:
        """Return `count` numbers of the array, read row by row, from position `start` on."""
        flat = self.values.reshape(-1)
        if not 0 <= start <= flat.shape[0] - count:
            expected, got = f"at least {start + count} numbers, one per cell", f"shape {tuple(self.values.shape)}"
            raise InputError("noise", expected=expected, got=got, cure="Pass noise of the shape of the rows.")
        return flat[start : start + count]


@dataclass(frozen=True, eq=False)
class UploadNoise:
    """The noise streams of one upload: W for the rows and W' for the anchor."""

    data: NoiseStream | None = None
    anchor: NoiseStream | None = None

    @classmethod
    def drawn(cls, rng: np.random.Generator) -> UploadNoise:
        """Return streams that draw from one generator: first the noise of the rows, then that of the anchor."""
        return cls(GeneratorNoise(rng), GeneratorNoise(rng))


@dataclass(frozen=True, eq=False)
class Upload:
    """The upload of one participant to the analyst."""

    representation: Array
    """Y_i, of shape (n_i, h)."""
    anchor_representation: Array | None
    """B_i, of shape (r, h); None for methods without an anchor."""


def map_rows(rows: Array, secret: RowMap, *, precision: Precision = "float64") -> Array:
    """Return X O + 1 Ψᵀ.

    Parameters
    ----------
    rows : array of shape (..., n, h)
        Projected rows.
    secret : RowMap
        One map, or a batch with one map per index of the leading axes.
    precision : {"float64", "float32"}
        Format of the result.
    """
    return _rounded(secret.apply(rows), precision)


def add_noise(
    mapped: Array,
    noise_scale: float | Array,
    noise: NoiseStream | None,
    *,
    start: int = 0,
    precision: Precision = "float64",
) -> Array:
    """Return mapped + σ W.

    Parameters
    ----------
    mapped : array of shape (..., n, h)
        X O + 1 Ψᵀ, or a block of its rows.
    noise_scale : float or array
        σ. An array is broadcast against `mapped`: for D draws, its shape is (D, 1, 1). If σ is the number 0, no noise is
        drawn.
    noise : NoiseStream or None
        W, row by row. None is allowed only if σ is the number 0.
    start : int, default 0
        Position of the block's first number in the stream.
    precision : {"float64", "float32"}
        Format of the result.
    """
    if isinstance(noise_scale, int | float) and noise_scale == 0:
        return _rounded(mapped, precision)
    if noise is None:
        problem = "A noise scale above 0 needs a noise stream."
        raise InputError("noise", problem=problem, cure="Pass noise, for instance GeneratorNoise(rng).")
    xp = namespace_of(mapped)
    shape = np.broadcast_shapes(tuple(mapped.shape), tuple(getattr(noise_scale, "shape", ())))
    W = xp.asarray(noise.normals(start, math.prod(shape)), dtype=xp.float64, device=device_of(mapped))
    noisy = noise_scale * xp.reshape(W, shape)
    noisy += mapped
    return _rounded(noisy, precision)


def represent(
    method: Method | str,
    private_data: Array,
    secret: RowMap,
    *,
    noise: UploadNoise | np.random.Generator,
    anchor: Array | None = None,
    data_noise_scale: float | None = None,
    anchor_noise_scale: float | None = None,
    precision: Precision = "float64",
) -> Upload:
    """Return one participant's upload.

    Parameters
    ----------
    private_data : array of shape (n_i, h)
        X_i, already projected; NumPy or torch.
    secret : RowMap
        (O_i, Ψ_i) of this participant, or the common map of the C-GDP methods.
    noise : UploadNoise or numpy.random.Generator
        Source of the noise. Real uploads must use the operating system's entropy.
    anchor : array of shape (r, h), optional
        A. Methods that use an anchor need it and check it (`check_anchor`); others ignore it.
    data_noise_scale, anchor_noise_scale : float, optional
        σ and v. A method with such noise needs its scale, even if the scale is 0, so that protecting noise is not left out
        by mistake. For a method without such noise, the scale must be 0 or left out.
    precision : {"float64", "float32"}
        With "float32", the same map and noise give the same numbers as in `mooring share`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((5, 2))
    >>> upload = represent("i-gdp", rows, RigidMap.sample(2, rng=rng), noise=rng)
    >>> upload.representation.shape, upload.anchor_representation
    ((5, 2), None)
    """
    method = get_method(method) if isinstance(method, str) else method
    noise = UploadNoise.drawn(noise) if isinstance(noise, np.random.Generator) else noise
    sigma = _stated_scale("data_noise_scale", data_noise_scale, used=method.data_noise, method=method)
    v = _stated_scale("anchor_noise_scale", anchor_noise_scale, used=method.anchor_noise, method=method)
    rows = as_float64(private_data)
    if len(rows.shape) != 2 or rows.shape[0] < 1:
        expected = "a matrix with at least one row"
        raise InputError(
            "private_data", expected=expected, got=f"shape {tuple(rows.shape)}", cure="Pass one record per row."
        )
    require_finite("private_data", rows, cure="Fill or drop missing values first.")
    representation = add_noise(map_rows(rows, secret, precision=precision), sigma, noise.data, precision=precision)
    if not method.uses_anchor:
        return Upload(representation, None)
    if anchor is None:
        cure = "Make one with mooring.make_anchor and share it among participants in secret."
        raise InputError("anchor", problem=f"The method {method.name} needs an anchor.", cure=cure)
    check_anchor(anchor)
    return Upload(representation, add_noise(map_rows(anchor, secret), v, noise.anchor, precision=precision))


def coupled_noise(noise: Array, *, secret: RigidMap, reference: RigidMap) -> Array:
    """Return the noise W̃_i = W_i O_iᵀ O_s, with which C-GDP has the same output as AA-I-GDP with noise W_i.

    Parameters
    ----------
    noise : array of shape (n_i, h)
        W_i, the noise of participant i in AA-I-GDP (private-data noise).
    secret, reference : RigidMap
        The maps of participant i (O_i) and of the reference participant s (O_s). The map of s is also the common map of
        C-GDP.

    Notes
    -----
    This is the corollary on collaboration-output equivalence under private-data noise. Swapping the two maps converts the
    noise of C-GDP to that of AA-I-GDP.
    """
    noise = as_float64(noise)
    namespace_of(noise, secret.orthogonal, reference.orthogonal)
    return noise @ secret.orthogonal.T @ reference.orthogonal


def _rounded(array: Array, precision: Precision) -> Array:
    xp = namespace_of(array)
    return xp.astype(array, getattr(xp, precision), copy=False)


def _stated_scale(name: str, scale: float | None, *, used: bool, method: Method) -> float:
    if scale is None:
        if used:
            raise InputError(name, problem=f"The method {method.name} needs {name}.", cure="Use 0 for no noise.")
        return 0.0
    method.require_scale(name, scale, used=used)
    return scale
