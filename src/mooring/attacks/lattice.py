"""Lattice: if columns hold integers or yes/no values, standardised or not, the upload lies on a rotated lattice.

Without private-data noise, lattice reduction finds the rotated axes from few more rows than columns, whatever the anchor
noise and without a colluder. Known rows (a colluder's or public ones) tell which column each axis is: parts of the two
lattices are paired by their step, the distribution of values, correlations and the anchor. If all pairs are right, the
rebuilt rows are exact. Where the parts of the two lattices differ, or distributions mislead because participants differ,
features are paired by steps and the anchor (`lattice_features`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import linear_sum_assignment

from mooring.attacks.lattice_features import align_features
from mooring.attacks.lattice_parts import (
    IMPOSSIBLE,
    SAME,
    AnchorStatistics,
    LatticeRows,
    Line,
    Simplex,
    common_unit,
    find_simplex,
    summarise_anchor,
)
from mooring.attacks.lattice_reduction import lattice_basis, orthogonal_parts
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import like, to_numpy
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Matrix

_MOST_COLUMNS = 40
_MOST_ROWS = 5_000
_MOST_SWEEPS = 10


def lattice(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Find the rotated grid of the columns in the upload, and invert the rotation."""
    Y = np.asarray(to_numpy(view.target_upload.representation), dtype=np.float64)
    n, h = Y.shape
    if view.data_noise_scale > 0:
        raise DoesNotApply("With private-data noise the upload does not lie on a lattice.")
    if view.projection.kind != "none":
        raise DoesNotApply("A projection mixes the columns, so the upload does not lie on a lattice.")
    if h > _MOST_COLUMNS:
        raise DoesNotApply(f"Lattice reduction is run for up to {_MOST_COLUMNS} columns; here there are {h}.")
    if n <= h:
        raise DoesNotApply(f"Lattice reduction needs more rows than columns; the target has {n} rows and {h} columns.")
    if view.reference_rows is None:
        return _on_its_own(view, Y, rng)
    X = np.asarray(to_numpy(view.reference_rows), dtype=np.float64)
    chosen = rng.permutation(X.shape[0])[:_MOST_ROWS]
    known, Y = (X[chosen], view.reference_codes()[chosen]), Y[:_MOST_ROWS]
    return _with_map(view, _named(view, known, (Y, view.codes_of([view.target])[:_MOST_ROWS]), rng))


def _named(
    view: CollusionView, known: tuple[Matrix, Codes], seen: tuple[Matrix, Codes], rng: np.random.Generator
) -> RigidMap:
    """Return the map from known to uploaded rows, found by pairing parts of the lattices or else by pairing features.

    `known` and `seen` hold rows and their classes. If the parts cannot be paired, the map is found from features. If they
    can, the map found from features is preferred under two conditions. The anchor must be so precise that no features are
    confused (over h² pairs, the largest error is about 2 v √log h, with v the scale of the anchor noise). And the map found
    from features must fit the anchor clearly better, because it fits a little better even if the other map is exact.
    """
    anchored = summarise_anchor(view)
    (X, codes), (Y, seen_codes) = known, seen
    known_parts, parts = _parts(X, rng), _parts(Y, rng)
    try:
        frames = _match_parts(_side_of(X, codes, known_parts), _side_of(Y, seen_codes, parts), anchored)
    except DoesNotApply:
        if anchored is None:
            raise
        return align_features(X, Y, parts, anchored, rng=rng)
    by_parts = _turned_back(Y[0], *frames, elsewhere=X.mean(axis=0))
    h = X.shape[1]
    if anchored is None or 2 * view.anchor_noise_scale * np.log(h) ** 0.5 > 1:
        return by_parts
    try:
        by_features = align_features(X, Y, parts, anchored, rng=rng)
    except DoesNotApply:
        return by_parts
    gain = anchored.log_likelihood(by_features) - anchored.log_likelihood(by_parts)
    return by_features if gain > h else by_parts


def _parts(rows: Matrix, rng: np.random.Generator) -> list[Matrix]:
    return orthogonal_parts(lattice_basis(rows, rng=rng), rng=rng)


def _on_its_own(view: CollusionView, Y: Matrix, rng: np.random.Generator) -> Reconstruction:
    """Rebuild rows without known rows: axes are in order of variance, with positive skewness and minimum or mean zero."""
    parts = _parts(Y[:_MOST_ROWS], rng)
    h = Y.shape[1]
    if len(parts) < h:
        raise DoesNotApply(
            f"The upload's lattice has {len(parts)} orthogonal parts for {h} columns. Without rows of a colluder or public "
            "ones, a part of several columns cannot be divided."
        )
    steps = np.array([np.linalg.norm(part[0]) for part in parts])
    directions = np.vstack(parts) / steps[:, None]
    values = Y @ directions.T
    centred = values - values.mean(axis=0)
    signs = np.where((centred**3).mean(axis=0) < 0, -1.0, 1.0)
    order = np.argsort(-centred.var(axis=0))
    values = signs * values
    whole = np.abs(steps - 1) < 1e-6  # standardised columns have mean zero, integer columns minimum zero
    first = np.where(whole, values[0] - values.min(axis=0), values[0] - values.mean(axis=0))
    image, note = (signs[:, None] * directions)[order], "columns are in order of variance"
    estimate = _turned_back(Y[0], np.eye(h), image, first[order], elsewhere=np.zeros(h))
    return _with_map(view, estimate, note)


def _turned_back(uploaded: Matrix, frame: Matrix, image: Matrix, first: Matrix, *, elsewhere: Matrix) -> RigidMap:
    """Return the map that takes an orthonormal frame to its image and `first` to the first uploaded row.

    In directions that the frame does not span, rebuilt rows get the coordinates of `elsewhere`.
    """
    orthogonal = svd_polar_factor(frame.T @ image)
    place = first + elsewhere - (elsewhere @ frame.T) @ frame
    return RigidMap(orthogonal, uploaded - place @ orthogonal)


def _with_map(view: CollusionView, estimate: RigidMap, *notes: str) -> Reconstruction:
    rows = view.target_upload.representation
    moved = RigidMap(like(estimate.orthogonal, rows), like(estimate.translation, rows))
    return reconstruct(view, moved, notes=notes)


def _side_of(rows: Matrix, codes: Codes, parts: list[Matrix]) -> LatticeRows:
    """Return the parts of a lattice as lines and simplices; other parts raise `DoesNotApply`."""
    lines = [part[0] for part in parts if part.shape[0] == 1]
    simplices = [find_simplex(rows, part) for part in parts if part.shape[0] > 1]
    norms = [float(np.linalg.norm(line)) for line in lines]
    return LatticeRows(rows, codes, tuple(Line(v / u, u) for v, u in zip(lines, norms, strict=True)), tuple(simplices))


def _match_parts(
    known: LatticeRows, observed: LatticeRows, anchored: AnchorStatistics | None
) -> tuple[Matrix, Matrix, Matrix]:
    """Pair the parts of the two lattices, and return a frame, its image, and the coordinates of the first uploaded row.

    Raises `DoesNotApply` if the parts of the two lattices differ.
    """
    if len(observed.lines) > len(known.lines) or len(observed.simplices) != len(known.simplices):
        raise DoesNotApply("The upload's lattice has different parts than that of the colluders' rows.")
    h = known.rows.shape[1]
    frames, images, first = [np.empty((0, h))], [np.empty((0, h))], np.zeros(h)
    for known_part, seen, order in _simplices_named(known, observed, anchored):
        vertices = known_part.vertices[order]  # the known vertex that each observed one is paired with
        U, _, Vt = np.linalg.svd((vertices - vertices.mean(axis=0)).T @ (seen.vertices - seen.vertices.mean(axis=0)))
        rank = order.size - 1
        frames.append(U[:, :rank].T)
        images.append(Vt[:rank])
        first += vertices[seen.vertex_of[0]]
    for own_line, seen_line, sign, place in _lines_named(known, observed, anchored):
        frames.append(own_line.direction[None])
        images.append(sign * seen_line.direction[None])
        first += place * own_line.direction
    return np.vstack(frames), np.vstack(images), first


def _simplices_named(
    known: LatticeRows, observed: LatticeRows, anchored: AnchorStatistics | None
) -> list[tuple[Simplex, Simplex, npt.NDArray[np.intp]]]:
    if not observed.simplices:
        return []
    scores = np.full((len(observed.simplices), len(known.simplices)), IMPOSSIBLE)
    orders = {}
    for i, seen in enumerate(observed.simplices):
        for j, known_part in enumerate(known.simplices):
            if seen.squared_steps.size == known_part.squared_steps.size:
                scores[i, j], orders[i, j] = _vertices_named(known_part, seen, known.codes, observed.codes, anchored)
    rows, columns = linear_sum_assignment(scores, maximize=True)
    if scores[rows, columns].min() <= IMPOSSIBLE:
        raise DoesNotApply("The upload's one-hot groups differ from those of the colluders' rows.")
    return [
        (known.simplices[j], observed.simplices[i], orders[i, j])
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    ]


def _vertices_named(
    known_part: Simplex, seen: Simplex, own_codes: Codes, seen_codes: Codes, anchored: AnchorStatistics | None
) -> tuple[float, npt.NDArray[np.intp]]:
    """Return the agreement of two simplices, and the known vertex that each vertex of `seen` is paired with."""
    k = known_part.squared_steps.size
    scores = np.zeros((k, k))
    for label in np.unique(seen_codes):
        wanted = 0.5 + np.bincount(known_part.vertex_of[own_codes == label], minlength=k)
        counted = np.bincount(seen.vertex_of[seen_codes == label], minlength=k)
        share = own_codes.size / (own_codes.size + seen_codes.size)
        scores += share * counted[:, None] * np.log(wanted / wanted.sum())
    if anchored is not None:
        scores += seen.vertices @ anchored.agreement.T @ known_part.vertices.T / known_part.squared_steps.mean()
    off = np.abs(seen.squared_steps[:, None] - known_part.squared_steps)
    scores[off > SAME * known_part.squared_steps.max()] = IMPOSSIBLE
    rows, order = linear_sum_assignment(scores, maximize=True)
    return max(IMPOSSIBLE, float(scores[rows, order].sum())), order


def _lines_named(
    known: LatticeRows, observed: LatticeRows, anchored: AnchorStatistics | None
) -> list[tuple[Line, Line, float, float]]:
    """Return pairs of lines, each with a sign and a position.

    A pair has a line of the known rows and a line of the upload. The sign is −1 if the upload's line is reversed; the
    position is that of the first uploaded row on the known line.
    """
    if not observed.lines:
        return []
    shape = (2, len(observed.lines), len(known.lines))
    scores, places = np.full(shape, IMPOSSIBLE), np.zeros(shape)
    for i, seen in enumerate(observed.lines):
        for j, known_part in enumerate(known.lines):
            unit = common_unit(seen.step, known_part.step)
            for turned, sign in enumerate((1.0, -1.0) if unit else ()):
                likelihoods, at = _likelihoods(known, observed, known_part, seen, sign, unit)
                if anchored is not None:
                    shift = observed.rows[0] @ seen.direction - sign * at
                    likelihoods = likelihoods - anchored.precision / 2 * (shift - anchored.mean @ seen.direction) ** 2
                    likelihoods = likelihoods + sign * (known_part.direction @ anchored.agreement @ seen.direction)
                best = int(likelihoods.argmax())
                scores[turned, i, j], places[turned, i, j] = likelihoods[best], at[best]
    _, pairs = linear_sum_assignment(scores.max(axis=0), maximize=True)
    own_place = np.arange(pairs.size)
    turns = scores[:, own_place, pairs].argmax(axis=0)
    if scores[turns, own_place, pairs].min() <= IMPOSSIBLE:
        raise DoesNotApply("The upload's steps differ from those of the colluders' columns.")
    pairs, turns = _by_correlation(known, observed, scores, pairs, turns)
    return [
        (known.lines[j], observed.lines[i], 1.0 - 2.0 * turn, float(places[turn, i, j]))
        for i, (j, turn) in enumerate(zip(pairs.tolist(), turns.tolist(), strict=True))
    ]


def _likelihoods(
    known: LatticeRows, observed: LatticeRows, known_part: Line, seen: Line, sign: float, unit: float
) -> tuple[Matrix, Matrix]:
    """Return log-likelihoods of all positions of the first uploaded row on a line of the known rows, and the positions."""
    values, moved = known.rows @ known_part.direction, sign * (observed.rows @ seen.direction)
    wanted = np.rint((values - values.min()) / unit).astype(np.intp)
    counted = np.rint((moved - moved.min()) / unit).astype(np.intp)
    margin, size = int(counted.max()), int(wanted.max()) + 1
    length = size + 2 * margin
    bandwidth = float(wanted.std()) * wanted.size**-0.2
    from scipy.signal import correlate  # loads scipy.stats

    overall = np.bincount(wanted + margin, minlength=length).astype(np.float64)
    if bandwidth > 1:
        overall = overall / 2 + gaussian_filter1d(overall, bandwidth, mode="constant") / 2
    near = gaussian_filter1d(overall, max(1.0, float(wanted.std()) / 2), mode="constant")  # for unobserved tails
    overall = overall + 4 * near / near.sum() + 0.5 / length
    overall = overall / overall.sum()
    total = np.zeros(length - margin)
    for label in np.unique(observed.codes):
        among = np.bincount(wanted[known.codes == label] + margin, minlength=length) + 4 * overall
        if bandwidth > 1:
            among = among / 2 + gaussian_filter1d(among, bandwidth, mode="constant") / 2 + 4 * overall
        counts = np.bincount(counted[observed.codes == label], minlength=margin + 1)
        total += correlate(np.log(among / among.sum()), counts.astype(np.float64), mode="valid")
    lowest = values.min() + unit * (np.arange(total.size) - margin)
    share = wanted.size / (wanted.size + counted.size)  # accounts for the sampling error of the colluders' rows
    return share * total, lowest + (moved[0] - moved.min())


def _by_correlation(
    known: LatticeRows, observed: LatticeRows, scores: Matrix, pairs: npt.NDArray[np.intp], turns: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Return pairs and signs that were swapped and reversed as long as the likelihood of all lines increased.

    The likelihood is that of distributions and correlations together. True correlations are modelled as normal around zero.
    Their variance is that of the known rows' correlations, minus the sampling error. If columns are independent, this
    variance is zero, and correlations have no weight.
    """
    wanted, seen, m = _correlations(known), _correlations(observed), pairs.size
    if m < 2:
        return pairs, turns
    error_x, error_y = 1 / known.rows.shape[0], 1 / observed.rows.shape[0]
    scatter = max(0.0, float((wanted**2).sum()) / max(1, wanted.size - wanted.shape[0]) - error_x)
    weight = scatter / (scatter * (error_x + error_y) + error_x * error_y) / 2  # every pair is summed twice

    def likelihood(pairs: npt.NDArray[np.intp], turns: npt.NDArray[np.intp]) -> float:
        signs = 1.0 - 2.0 * turns
        agreement = signs @ (seen * wanted[np.ix_(pairs, pairs)]) @ signs
        return float(scores[turns, np.arange(m), pairs].sum() + weight * agreement)

    best = likelihood(pairs, turns)
    for _ in range(_MOST_SWEEPS):
        before = best
        for i in range(m):
            for j in range(i, m):
                for turn_i, turn_j in ((0, 0), (0, 1), (1, 0), (1, 1)):
                    trial, turned = pairs.copy(), turns.copy()
                    trial[[i, j]] = trial[[j, i]]
                    turned[i] ^= turn_i
                    turned[j] ^= turn_j if i != j else 0
                    if scores[turned[[i, j]], [i, j], trial[[i, j]]].min() <= IMPOSSIBLE:
                        continue
                    value = likelihood(trial, turned)
                    if value > best + 1e-9:
                        best, pairs, turns = value, trial, turned
        if best <= before:
            break
    return pairs, turns


def _correlations(side: LatticeRows) -> Matrix:
    values = side.rows @ np.stack([line.direction for line in side.lines]).T
    centred = values - values.mean(axis=0)
    scaled = centred / np.linalg.norm(centred, axis=0)
    correlations = np.asarray(scaled.T @ scaled)
    np.fill_diagonal(correlations, 0)
    return correlations
