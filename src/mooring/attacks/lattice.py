"""Lattice: columns of whole numbers or yes/no, standardised or not, put the upload on a turned lattice.

Without private-data noise lattice reduction finds the turned axes from a few dozen rows, whatever the noise on the anchor
and with no colluder at all. A colluder names them: parts of the lattice are paired with the parts of its own rows' by
step, by how values are distributed, by how columns correlate, and by the anchor. If every name is right the rows are exact.
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.lattice_matching import Anchored, Naming, named, side_of
from mooring.attacks.lattice_reduction import lattice_basis, orthogonal_parts
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, undone
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import like, to_numpy
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Matrix

_MOST_COLUMNS = 40
_MOST_ROWS = 5_000
_LEAST_NOISE = 1e-3  # an anchor with less is as good as noiseless


def lattice(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Find the turned grid of the columns in the upload, and undo the turn."""
    Y = np.asarray(to_numpy(view.target_upload.representation), dtype=np.float64)
    n, h = Y.shape
    if view.data_noise_scale > 0:
        raise DoesNotApply("Private-data noise takes the upload off its lattice.")
    if view.projection.kind != "none":
        raise DoesNotApply("A projection mixed the columns, so that the upload lies on no lattice.")
    if h > _MOST_COLUMNS:
        raise DoesNotApply(f"Lattice reduction is run for up to {_MOST_COLUMNS} columns; here there are {h}.")
    if n <= h:
        raise DoesNotApply(f"Lattice reduction needs more rows than columns; the target has {n} for {h}.")
    if not view.colluders:
        return _on_its_own(view, Y, rng)
    X = np.asarray(to_numpy(view.colluder_rows), dtype=np.float64)
    codes = view.codes_of([colluder.index for colluder in view.colluders])
    chosen = rng.permutation(X.shape[0])[:_MOST_ROWS]
    known = side_of(X[chosen], codes[chosen], _parts(X[chosen], rng))
    Y, codes = Y[:_MOST_ROWS], view.codes_of([view.target])[:_MOST_ROWS]
    naming = named(known, side_of(Y, codes, _parts(Y, rng)), _anchored(view))
    return _turned_back(view, naming, elsewhere=X.mean(axis=0))


def _parts(rows: Matrix, rng: np.random.Generator) -> list[Matrix]:
    return orthogonal_parts(lattice_basis(rows, rng=rng), rng=rng)


def _anchored(view: CollusionView) -> Anchored | None:
    if view.anchor is None or view.target_upload.anchor_representation is None:
        return None
    A, B = to_numpy(view.anchor), to_numpy(view.target_upload.anchor_representation)
    variance = max(view.anchor_noise_scale, _LEAST_NOISE) ** 2
    mean = B.mean(axis=0)
    return Anchored(A.T @ (B - mean) / variance, mean, A.shape[0] / variance)


def _on_its_own(view: CollusionView, Y: Matrix, rng: np.random.Generator) -> Reconstruction:
    """Without a colluder: axes in order of variance, skewed to the right, and counted from nought."""
    parts = _parts(Y[:_MOST_ROWS], rng)
    h = Y.shape[1]
    if len(parts) < h:
        raise DoesNotApply(
            f"The upload's lattice has {len(parts)} orthogonal parts for {h} columns, and no colluder tells them apart."
        )
    steps = np.array([np.linalg.norm(part[0]) for part in parts])
    directions = np.vstack(parts) / steps[:, None]
    values = Y @ directions.T
    centred = values - values.mean(axis=0)
    signs = np.where((centred**3).mean(axis=0) < 0, -1.0, 1.0)
    order = np.argsort(-centred.var(axis=0))
    values = signs * values
    whole = np.abs(steps - 1) < 1e-6  # standardised columns have mean nought, whole numbers a least of nought
    first = np.where(whole, values[0] - values.min(axis=0), values[0] - values.mean(axis=0))
    naming = Naming(np.eye(h), (signs[:, None] * directions)[order], first[order])
    return _turned_back(view, naming, elsewhere=np.zeros(h), notes=("columns are in order of variance",))


def _turned_back(
    view: CollusionView, naming: Naming, *, elsewhere: Matrix, notes: tuple[str, ...] = ()
) -> Reconstruction:
    """The map that takes one frame to the other; rows that the frame does not reach stay where `elsewhere` is."""
    reference = view.target_upload.representation
    orthogonal = svd_polar_factor(naming.frame.T @ naming.image)
    place = naming.first + elsewhere - (elsewhere @ naming.frame.T) @ naming.frame
    translation = to_numpy(reference)[0] - place @ orthogonal
    return undone(view, RigidMap(like(orthogonal, reference), like(translation, reference)), notes=notes)
