"""The methods, as data: whose transform, whether an anchor, what gets noise, how the uploads are aligned.

Legend: X_i private data, Y_i its representation; A the anchor, B_i its representation; (O_i, Ψ_i) the rigid map;
σ and v the noise scales of private data and anchor; W standard Gaussian noise; s the reference participant.

The paper's six methods and mooring's seventh are corners of one mechanism:

    Y_i = X_i O_i + 1 Ψ_iᵀ + σ W_i,        B_i = A O_i + 1 Ψ_iᵀ + v W'_i.

Neither the transform nor anchor noise gives a formal guarantee. Private-data noise can: see `mooring.mechanisms.accounting`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, like, namespace_of
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.anchors import check_anchor
from mooring.typing import Array


@dataclass(frozen=True)
class Method:
    """One method, described.

    Attributes
    ----------
    name : str
        How code and commands call it.
    title : str
        How the paper calls it.
    transform : {"common", "own"}
        Whether all participants share one secret rigid map or each draws its own.
    data_noise, anchor_noise : bool
        Whether the representation of the data, of the anchor, may carry noise.
    alignment : {"none", "reference", "procrustes"}
        How the analyst brings uploads together. "none" needs no anchor.
    """

    name: str
    title: str
    transform: Literal["common", "own"]
    data_noise: bool
    anchor_noise: bool
    alignment: Literal["none", "reference", "procrustes"]

    @property
    def uses_anchor(self) -> bool:
        """Whether participants upload an anchor representation."""
        return self.alignment != "none"


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        method.name: method
        for method in (
            Method("c-gdp", "C-GDP", "common", False, False, "none"),
            Method("c-gdp-data-noise", "C-GDP (private-data noise)", "common", True, False, "none"),
            Method("i-gdp", "I-GDP", "own", False, False, "none"),
            Method("aa-i-gdp", "AA-I-GDP", "own", False, False, "reference"),
            Method("aa-i-gdp-data-noise", "AA-I-GDP (private-data noise)", "own", True, False, "reference"),
            Method("aa-i-gdp-anchor-noise", "AA-I-GDP (anchor noise)", "own", False, True, "procrustes"),
            Method("aa-i-gdp-both-noise", "AA-I-GDP (both noises)", "own", True, True, "procrustes"),
        )
    }
)
"""Every method by name: the paper's six, and `aa-i-gdp-both-noise`, of which the anchor-aligned ones are corners."""


def method_named(name: str) -> Method:
    """Return the method called `name`."""
    if name not in METHODS:
        raise InputError(
            "method",
            expected=f"one of {', '.join(METHODS)}",
            got=repr(name),
            cure="Names are lower-case, with hyphens.",
        )
    return METHODS[name]


@dataclass(frozen=True, eq=False)
class Upload:
    """What one participant sends the analyst, once.

    Attributes
    ----------
    representation : array of shape (n_i, d)
        Y_i.
    anchor_representation : array of shape (r, d) or None
        B_i, for methods that use an anchor.
    """

    representation: Array
    anchor_representation: Array | None


def represent(
    method: Method | str,
    private_data: Array,
    secret: RigidMap,
    *,
    rng: np.random.Generator,
    anchor: Array | None = None,
    data_noise_scale: float | None = None,
    anchor_noise_scale: float | None = None,
    data_noise: Array | None = None,
) -> Upload:
    """Make one participant's upload.

    Parameters
    ----------
    method : Method or str
    private_data : array of shape (n_i, d)
        X_i, already projected; NumPy or torch.
    secret : RigidMap
        (O_i, Ψ_i): this participant's own, or the common one for the C-GDP methods.
    rng : numpy.random.Generator
        Source of the noise; the operating system's entropy for anything real.
    anchor : array of shape (r, d), optional
        A, for methods that use one; it is checked.
    data_noise_scale, anchor_noise_scale : float, optional
        σ and v. A method that has such a noise wants its scale stated, be it 0: noise that protects must not go missing by
        omission. A method that has no such noise accepts only 0.
    data_noise : array of shape (n_i, d), optional
        W_i itself, for experiments that couple the noise of two methods (see `coupled_noise`); drawn from `rng` if absent.

    Returns
    -------
    Upload

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((5, 2))
    >>> upload = represent("i-gdp", rows, RigidMap.sample(2, rng=rng), rng=rng)
    >>> upload.representation.shape, upload.anchor_representation
    ((5, 2), None)
    """
    method = method_named(method) if isinstance(method, str) else method
    sigma = _stated_scale("data_noise_scale", data_noise_scale, used=method.data_noise, method=method)
    v = _stated_scale("anchor_noise_scale", anchor_noise_scale, used=method.anchor_noise, method=method)
    if data_noise is not None and sigma == 0:
        raise InputError(
            "data_noise",
            expected="absent where data_noise_scale is 0",
            got="an array",
            cure="State the noise scale too.",
        )
    rows = _checked_rows(private_data)
    representation = secret.apply(rows)
    if sigma > 0:
        noise = like(rng.standard_normal(tuple(rows.shape)), rows) if data_noise is None else data_noise
        representation = representation + sigma * _checked_noise(noise, rows)
    return Upload(representation, _anchor_representation(method, anchor, secret, v, rng))


def coupled_noise(noise: Array, *, own: RigidMap, reference: RigidMap) -> Array:
    """The C-GDP noise that makes C-GDP's output equal AA-I-GDP's: W̃_i = W_i O_iᵀ O_s.

    Parameters
    ----------
    noise : array of shape (n_i, d)
        W_i, which participant i adds under AA-I-GDP (private-data noise).
    own, reference : RigidMap
        The maps of participant i and of the reference, which C-GDP then uses as its common map.

    Notes
    -----
    Corollary: collaboration-output equivalence under private-data noise. To go the other way, from C-GDP's noise to
    AA-I-GDP's, swap the two maps.
    """
    noise = as_float64(noise)
    namespace_of(noise, own.orthogonal, reference.orthogonal)
    return noise @ own.orthogonal.T @ reference.orthogonal


def _anchor_representation(
    method: Method, anchor: Array | None, secret: RigidMap, scale: float, rng: np.random.Generator
) -> Array | None:
    if not method.uses_anchor:
        return None
    if anchor is None:
        raise InputError(
            "anchor",
            expected=f"given for {method.name}",
            got="none",
            cure="Make one with mooring.make_anchor and share it in secret.",
        )
    check_anchor(anchor)
    representation = secret.apply(anchor)
    if scale > 0:
        representation = representation + scale * like(rng.standard_normal(tuple(representation.shape)), representation)
    return representation


def _checked_noise(noise: Array, rows: Array) -> Array:
    noise = as_float64(noise)
    xp = namespace_of(noise, rows)
    if tuple(noise.shape) != tuple(rows.shape):
        raise InputError(
            "data_noise",
            expected=f"of shape {tuple(rows.shape)} like the rows",
            got=f"shape {tuple(noise.shape)}",
            cure="One value a cell.",
        )
    if not bool(xp.all(xp.isfinite(noise))):
        raise InputError("data_noise", expected="finite", got="NaN or Inf", cure="Draw it again.")
    return noise


def _checked_rows(private_data: Array) -> Array:
    rows = as_float64(private_data)
    xp = namespace_of(rows)
    if len(rows.shape) != 2 or rows.shape[0] < 1:
        raise InputError(
            "private_data",
            expected="a matrix with at least one row",
            got=f"shape {tuple(rows.shape)}",
            cure="One record a row.",
        )
    if not bool(xp.all(xp.isfinite(rows))):
        raise InputError("private_data", expected="finite", got="NaN or Inf", cure="Fill or drop missing values first.")
    return rows


def _stated_scale(name: str, scale: float | None, *, used: bool, method: Method) -> float:
    if scale is None:
        if used:
            raise InputError(name, expected=f"stated for {method.name}", got="nothing", cure="0 means no noise.")
        return 0.0
    if not (math.isfinite(scale) and scale >= 0):
        raise InputError(name, expected="zero or more, and finite", got=str(scale), cure="0 means no noise.")
    if scale > 0 and not used:
        raise InputError(
            name,
            expected=f"0 for {method.name}, which has no such noise",
            got=str(scale),
            cure="'aa-i-gdp-both-noise' takes both.",
        )
    return scale
