"""Rigid maps S ↦ S O + 1 Ψᵀ, which participants apply to their rows and which align uploads.

Legend: O ∈ O(d) the orthogonal part, reflections included; Ψ the translation (Definition GDP).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mooring.errors import InputError
from mooring.geometry.backend import as_float64, like, namespace_of, require_finite, transpose
from mooring.geometry.orthogonal import orthogonality_defect, require_components, sample_orthogonal
from mooring.randomness import require_generator
from mooring.typing import Array

_ORTHOGONALITY_TOLERANCE = 1e-8


@dataclass(frozen=True, repr=False, eq=False)
class RigidMap:
    """A rigid map of rows, or a batch of them.

    Notes
    -----
    A participant's map is secret, so the printed form shows only its shape.

    Examples
    --------
    >>> secret = RigidMap.sample(2, rng=np.random.default_rng(0))
    >>> rows = np.array([[1.0, 2.0], [3.0, 4.0]])
    >>> bool(np.allclose(secret.invert(secret.apply(rows)), rows))
    True
    >>> secret
    RigidMap(n_components=2)
    """

    orthogonal: Array
    """Orthogonal matrices, of shape (..., d, d)."""
    translation: Array
    """Translations Ψ, of shape (..., d)."""

    def __post_init__(self) -> None:
        orthogonal, translation = as_float64(self.orthogonal), as_float64(self.translation)
        namespace_of(orthogonal, translation)
        shape = tuple(orthogonal.shape)
        if len(shape) < 2 or shape[-1] != shape[-2]:
            expected = "square, of shape (..., d, d)"
            raise InputError(
                "orthogonal", expected=expected, got=f"shape {shape}", cure="Pass one d × d matrix per map."
            )
        if tuple(translation.shape) != shape[:-1]:
            expected, got = f"of shape {shape[:-1]} to go with the orthogonal part", f"shape {tuple(translation.shape)}"
            raise InputError("translation", expected=expected, got=got, cure="Pass one vector of d values per map.")
        require_finite("orthogonal", orthogonal)
        require_finite("translation", translation)
        defect = orthogonality_defect(orthogonal)
        if not defect <= _ORTHOGONALITY_TOLERANCE:
            got, cure = f"|OᵀO − I| up to {defect:.2g}", "Project it first with mooring.geometry.polar_factor."
            raise InputError("orthogonal", expected=f"orthogonal to {_ORTHOGONALITY_TOLERANCE:g}", got=got, cure=cure)
        object.__setattr__(self, "orthogonal", orthogonal)
        object.__setattr__(self, "translation", translation)

    @classmethod
    def sample(cls, n_components: int, *, rng: np.random.Generator, batch_shape: tuple[int, ...] = ()) -> RigidMap:
        """Draw O from the Haar measure on O(d) and Ψ with independent standard normal coordinates.

        Parameters
        ----------
        batch_shape : tuple of int, optional
            Leading axes, for independent draws at once.
        """
        require_generator(rng)
        orthogonal = sample_orthogonal(n_components, rng=rng, batch_shape=batch_shape)
        return cls(orthogonal, rng.standard_normal((*batch_shape, n_components)))

    @classmethod
    def from_centre(cls, orthogonal: Array, centre: Array, origin: Array) -> RigidMap:
        """Return the map T ↦ (T − 1 bᵀ) R + 1 oᵀ, which takes b to o (eq. paigdp_alignment_map; Algorithm 2 with o = b_s).

        For an anchor's mean a as the centre and the uploaded mean b as the origin, the translation is Ψ̂ = b − Ôᵀ a.

        Parameters
        ----------
        orthogonal : array of shape (d, d)
            R.
        centre, origin : arrays of shape (d,)
            b and its image o.
        """
        return cls(orthogonal, origin - centre @ orthogonal)

    @classmethod
    def identity(cls, n_components: int) -> RigidMap:
        """Return the identity map."""
        require_components(n_components)
        return cls(np.eye(n_components), np.zeros(n_components))

    @property
    def n_components(self) -> int:
        """The dimension d."""
        return int(self.orthogonal.shape[-1])

    def apply(self, rows: Array) -> Array:
        """Return S O + 1 Ψᵀ for rows S of shape (..., m, d)."""
        rows = self._checked(rows)
        return rows @ self.orthogonal + self.translation[..., None, :]

    def invert(self, rows: Array) -> Array:
        """Return (S − 1 Ψᵀ) Oᵀ, the rows before the map."""
        rows = self._checked(rows)
        return (rows - self.translation[..., None, :]) @ transpose(self.orthogonal)

    def compose(self, then: RigidMap) -> RigidMap:
        """Return the map that applies this one and then `then`."""
        namespace_of(self.orthogonal, then.orthogonal)
        if then.n_components != self.n_components:
            expected, got = f"a map of {self.n_components} components like this one", f"one of {then.n_components}"
            raise InputError(
                "then", expected=expected, got=got, cure="Compose maps with the same number of components."
            )
        return RigidMap(self.orthogonal @ then.orthogonal, then.apply(self.translation[..., None, :])[..., 0, :])

    def inverse(self) -> RigidMap:
        """Return the inverse map."""
        back = transpose(self.orthogonal)
        return RigidMap(back, -(self.translation[..., None, :] @ back)[..., 0, :])

    def moved_to(self, reference: Array) -> RigidMap:
        """Return this map on the array library and device of `reference`, in float64."""
        xp = namespace_of(reference)
        target = xp.astype(reference, xp.float64)
        return RigidMap(like(self.orthogonal, target), like(self.translation, target))

    def _checked(self, rows: Array) -> Array:
        rows = as_float64(rows)
        namespace_of(rows, self.orthogonal)
        if len(rows.shape) < 2 or rows.shape[-1] != self.n_components:
            expected, got = f"of shape (..., m, {self.n_components}), as wide as the map", f"shape {tuple(rows.shape)}"
            cure = "Project the records to this many components before mapping them."
            raise InputError("rows", expected=expected, got=got, cure=cure)
        return rows

    def __repr__(self) -> str:
        batch = tuple(self.orthogonal.shape[:-2])
        return f"RigidMap(n_components={self.n_components}{f', batch_shape={batch}' if batch else ''})"
