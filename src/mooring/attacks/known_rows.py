"""Known rows: some of the target's records are known from elsewhere, for instance patients treated in two hospitals.

A rigid map preserves distances, so known rows are identified in the shuffled upload by the distances between them. After the
first, each identified row determines one direction of the map, so that h + 1 rows that differ in every direction determine
the whole map.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment

from mooring.attacks.moments import moments
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array, Matrix

_PRECISION = 1e-7
_FIRM = 1e8
_BLOCK_NUMBERS = 2**22
_MOST_CANDIDATES = 200


def known_rows(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Identify the known rows in the upload and estimate the map from them.

    Directions that the known rows do not determine are taken from another attack, `moments` or `procrustes`.
    """
    X, Y = view.known_rows, view.target_upload.representation
    if X is None or X.shape[0] == 0:
        raise DoesNotApply("The attacker knows none of the target's rows.")
    xp = namespace_of(X, Y)
    X = X[indices_beside(np.sort(np.unique(to_numpy(X), axis=0, return_index=True)[1]), X), :]
    matched = _by_distances(to_numpy(X), to_numpy(Y)) if view.data_noise_scale == 0 else None
    base = None  # another attack's map, which is found only if it is needed
    if matched is None:
        base = _base(view, rng)
        if base is None:
            raise DoesNotApply("Distances do not identify the known rows, and no other attack gives a first estimate.")
        matched = _by_first_guess(X, Y, base)
    seen = Y[indices_beside(matched, Y), :]
    centre_x, centre_y = xp.mean(X, axis=0), xp.mean(seen, axis=0)
    tied, rank = _tied_down(
        X - centre_x, seen - centre_y, precision=max(_PRECISION, _noise_to_signal(view, X - centre_x))
    )
    if base is None and rank < view.n_components:
        base = _base(view, rng)
    if base is None and rank < view.n_components:
        raise DoesNotApply(
            f"{X.shape[0]} known rows do not determine the map, and no other attack completes it; "
            f"{view.n_components + 1} rows that differ in every direction would suffice."
        )
    orthogonal = svd_polar_factor(tied if rank == view.n_components or base is None else _FIRM * tied + base.orthogonal)
    note = f"{X.shape[0]} known rows determine {rank} of {view.n_components} directions"
    return reconstruct(view, RigidMap.from_centre(orthogonal, centre_x, centre_y), notes=(note,))


def _tied_down(X: Array, Y: Array, *, precision: float) -> tuple[Array, int]:
    """Return the part of O that Y = X O determines, V S⁻¹ Uᵀ Y over singular values above the precision, and its rank."""
    xp = namespace_of(X, Y)
    U, S, Vt = xp.linalg.svd(X, full_matrices=False)
    rank = int(xp.sum(xp.astype(precision * S[0] < S, xp.int64))) if float(S[0]) > 0 else 0
    images = (U[:, :rank].T @ Y) / S[:rank][:, None]
    return Vt[:rank, :].T @ images, rank


def _noise_to_signal(view: CollusionView, centred: Array) -> float:
    """Return the share of the largest singular value below which noise hides a direction of the known rows."""
    largest = float(namespace_of(centred).linalg.matrix_norm(centred, ord=2))
    noise = 2 * view.data_noise_scale * np.sqrt(centred.shape[0])
    return float(noise / largest) if largest > 0 else 0.0


def _base(view: CollusionView, rng: np.random.Generator) -> RigidMap | None:
    for attack in (moments, procrustes):
        try:
            return attack(view, rng=rng).rigid_map
        except DoesNotApply:
            continue
    return None


def _by_distances(X: Matrix, Y: Matrix) -> Codes | None:
    """Return the positions in Y of the rows of X, from distances; None if not all rows can be identified."""
    k = X.shape[0]
    if k < 3:
        return None
    centred = Y - Y.mean(axis=0)
    tolerance = _PRECISION * float(np.sqrt((centred**2).sum(axis=1).max()))
    among = np.sqrt(((X - X[0]) ** 2).sum(axis=1))
    second = int(np.argmax(among))
    for i, j in _pairs_apart(centred, among[second], tolerance)[:_MOST_CANDIDATES]:
        places = _placed(X, centred, int(i), int(j), second, tolerance)
        if places is not None:
            return places
    return None


def _pairs_apart(Y: Matrix, distance: float, tolerance: float) -> list[tuple[int, int]]:
    squares = (Y**2).sum(axis=1)
    step = max(1, _BLOCK_NUMBERS // Y.shape[0])
    pairs: list[tuple[int, int]] = []
    for start in range(0, Y.shape[0], step):
        gaps = squares[start : start + step, None] + squares - 2 * Y[start : start + step] @ Y.T
        near = np.abs(np.sqrt(np.maximum(gaps, 0)) - distance) < tolerance
        pairs += [(start + int(i), int(j)) for i, j in np.argwhere(near)]
    return pairs


def _placed(X: Matrix, Y: Matrix, i: int, j: int, second: int, tolerance: float) -> Codes | None:
    """Return the positions of all known rows if row 0 is at i and row `second` is at j; None if they do not fit."""
    from_i, from_j = (np.sqrt(((Y - Y[place]) ** 2).sum(axis=1)) for place in (i, j))
    wanted_i, wanted_j = (np.sqrt(((X - X[row]) ** 2).sum(axis=1)) for row in (0, second))
    off = np.abs(from_i[None] - wanted_i[:, None]) + np.abs(from_j[None] - wanted_j[:, None])
    places = off.argmin(axis=1)
    places[0], places[second] = i, j
    if off[np.arange(X.shape[0]), places].max() > 4 * tolerance or np.unique(places).size < X.shape[0]:
        return None
    between = np.sqrt(((Y[places][:, None] - Y[places][None]) ** 2).sum(axis=2))
    wanted = np.sqrt(((X[:, None] - X[None]) ** 2).sum(axis=2))
    return places if np.abs(between - wanted).max() <= 4 * tolerance else None


def _by_first_guess(X: Array, Y: Array, guess: RigidMap) -> Codes:
    """Return the most likely positions of the known rows if the map is close to the guess."""
    rebuilt, wanted = to_numpy(guess.invert(Y)), to_numpy(X)
    squared = (wanted**2).sum(axis=1)[:, None] + (rebuilt**2).sum(axis=1) - 2 * wanted @ rebuilt.T
    return np.asarray(linear_sum_assignment(squared)[1])
