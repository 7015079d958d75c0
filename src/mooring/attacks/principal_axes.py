"""Principal axes: the eigenvectors of the upload's covariance are those of the data, rotated by the secret map.

No collusion is needed. Axes are paired by variance, and their signs follow from skewness. If the attacker knows rows, the
upload's axes are matched to the axes of these rows. Otherwise they are matched to the coordinates, which are assumed to be
in order of variance and to have positive skewness, as is typical after a public SVD of non-negative data.
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.class_moments import sign_votes, third_moments
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import identity_like, namespace_of
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array


def principal_axes(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Pair the principal axes of the upload with those of the population."""
    Y, known = view.target_upload.representation, view.reference_rows
    xp = namespace_of(Y)
    if Y.shape[0] < 2:
        raise DoesNotApply("A covariance needs at least two rows.")
    axes_y = _axes(Y)
    T_y = third_moments(Y, np.zeros(Y.shape[0], dtype=np.intp), axes_y)
    if known is not None and known.shape[0] >= 2:
        axes_x = _axes(known)
        T_x = third_moments(known, np.zeros(known.shape[0], dtype=np.intp), axes_x)
        votes = sign_votes(T_x, T_y, known.shape[0], Y.shape[0])
        mean = xp.mean(known, axis=0)
    else:
        axes_x = xp.flip(identity_like(axes_y), axis=1)  # eigenvalues ascend, and the first coordinate varies most
        votes = xp.linalg.diagonal(T_y)
        mean = xp.zeros_like(Y[0, :])
    signs = xp.where(votes < 0, -xp.ones_like(votes), xp.ones_like(votes))
    orthogonal = (axes_x * signs) @ axes_y.T
    return reconstruct(view, RigidMap(orthogonal, translation_for(view, orthogonal, mean)))


def translation_for(view: CollusionView, orthogonal: Array, mean: Array) -> Array:
    """Return Ψ̂: the uploaded anchor's mean, or else the translation from the population's mean to the upload's."""
    Y, B = view.target_upload.representation, view.target_upload.anchor_representation
    xp = namespace_of(Y)
    if B is not None:
        return xp.mean(B, axis=0)
    return xp.mean(Y, axis=0) - mean @ orthogonal


def _axes(rows: Array) -> Array:
    xp = namespace_of(rows)
    centred = rows - xp.mean(rows, axis=0)
    return xp.linalg.eigh(centred.T @ centred / rows.shape[0])[1]
