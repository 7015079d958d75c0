"""Lattice: columns of whole numbers or yes/no, standardised or not, put the upload on a rotated lattice.

Without private-data noise lattice reduction finds the turned axes from a few dozen rows, whatever the noise on the anchor
and with no colluder at all. A colluder names them: parts of the lattice are paired with the parts of its own rows' by
step, by how values are distributed, by how columns correlate, and by the anchor. If every name is right the rows are exact.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.ndimage import gaussian_filter1d
from scipy.optimize import linear_sum_assignment

from mooring.attacks.lattice_reduction import lattice_basis, orthogonal_parts
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import like, to_numpy
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Matrix

_MOST_COLUMNS = 40
_MOST_ROWS = 5_000
_LEAST_NOISE = 1e-3  # an anchor with less is as good as noiseless
_SAME = 1e-5
_LARGEST_RATIO = 20
_IMPOSSIBLE = -1e12
_MOST_SWEEPS = 10


@dataclass(frozen=True, eq=False)
class Line:
    """A free column, or whatever else moves along one direction in whole steps."""

    direction: Matrix
    step: float


@dataclass(frozen=True, eq=False)
class Simplex:
    """A one-hot group: as many points as columns, whose squared distances are sums of two squared steps."""

    vertices: Matrix
    """Of shape (k, h): the points, within the part's own span."""
    squared_steps: Matrix
    """Of shape (k,)."""
    vertex_of: Codes
    """Of shape (n,): where each row stands."""


@dataclass(frozen=True, eq=False)
class AnchorStatistics:
    """What a noisy anchor says: AᵀB̄ / v², the uploaded mean, and that mean's precision r / v²."""

    agreement: Matrix
    mean: Matrix
    precision: float


@dataclass(frozen=True, eq=False)
class LatticeRows:
    """Rows, their classes, and the parts of their lattice."""

    rows: Matrix
    codes: Codes
    lines: tuple[Line, ...]
    simplices: tuple[Simplex, ...]


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
    if view.reference_rows is None:
        return _on_its_own(view, Y, rng)
    X = np.asarray(to_numpy(view.reference_rows), dtype=np.float64)
    codes = view.reference_codes()
    chosen = rng.permutation(X.shape[0])[:_MOST_ROWS]
    known = _side_of(X[chosen], codes[chosen], _parts(X[chosen], rng))
    Y, codes = Y[:_MOST_ROWS], view.codes_of([view.target])[:_MOST_ROWS]
    frames = _match_parts(known, _side_of(Y, codes, _parts(Y, rng)), _anchored(view))
    return _turned_back(view, *frames, elsewhere=X.mean(axis=0))


def _parts(rows: Matrix, rng: np.random.Generator) -> list[Matrix]:
    return orthogonal_parts(lattice_basis(rows, rng=rng), rng=rng)


def _anchored(view: CollusionView) -> AnchorStatistics | None:
    if view.anchor is None or view.target_upload.anchor_representation is None:
        return None
    A, B = to_numpy(view.anchor), to_numpy(view.target_upload.anchor_representation)
    variance = max(view.anchor_noise_scale, _LEAST_NOISE) ** 2
    mean = B.mean(axis=0)
    return AnchorStatistics(A.T @ (B - mean) / variance, mean, A.shape[0] / variance)


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
    image, note = (signs[:, None] * directions)[order], "columns are in order of variance"
    return _turned_back(view, np.eye(h), image, first[order], elsewhere=np.zeros(h), notes=(note,))


def _turned_back(
    view: CollusionView, frame: Matrix, image: Matrix, first: Matrix, *, elsewhere: Matrix, notes: tuple[str, ...] = ()
) -> Reconstruction:
    """The map that takes each row of an orthonormal frame to that of its image; the first uploaded row is `first` there.

    Directions that the frame does not reach stay where `elsewhere` is.
    """
    reference = view.target_upload.representation
    orthogonal = svd_polar_factor(frame.T @ image)
    place = first + elsewhere - (elsewhere @ frame.T) @ frame
    translation = to_numpy(reference)[0] - place @ orthogonal
    return reconstruct(view, RigidMap(like(orthogonal, reference), like(translation, reference)), notes=notes)


def _side_of(rows: Matrix, codes: Codes, parts: list[Matrix]) -> LatticeRows:
    """Sort the parts of a lattice into lines and simplices; anything else is beyond this attack."""
    lines = [part[0] for part in parts if part.shape[0] == 1]
    simplices = [_simplex(rows, part) for part in parts if part.shape[0] > 1]
    norms = [float(np.linalg.norm(line)) for line in lines]
    return LatticeRows(rows, codes, tuple(Line(v / u, u) for v, u in zip(lines, norms, strict=True)), tuple(simplices))


def _match_parts(
    known: LatticeRows, found: LatticeRows, anchored: AnchorStatistics | None
) -> tuple[Matrix, Matrix, Matrix]:
    """Pair every part of the upload's lattice with one of the colluders': a frame, its image, and the first row in it."""
    if len(found.lines) > len(known.lines) or len(found.simplices) != len(known.simplices):
        raise DoesNotApply("The upload's lattice falls into other parts than the colluders' rows do.")
    h = known.rows.shape[1]
    frames, images, first = [np.empty((0, h))], [np.empty((0, h))], np.zeros(h)
    for own, seen, order in _simplices_named(known, found, anchored):
        vertices = own.vertices[order]  # the vertex of `own` that each of `seen` is
        U, _, Vt = np.linalg.svd((vertices - vertices.mean(axis=0)).T @ (seen.vertices - seen.vertices.mean(axis=0)))
        rank = order.size - 1
        frames.append(U[:, :rank].T)
        images.append(Vt[:rank])
        first += vertices[seen.vertex_of[0]]
    for own_line, seen_line, sign, place in _lines_named(known, found, anchored):
        frames.append(own_line.direction[None])
        images.append(sign * seen_line.direction[None])
        first += place * own_line.direction
    return np.vstack(frames), np.vstack(images), first


def _simplex(rows: Matrix, part: Matrix) -> Simplex:
    frame = np.linalg.qr(part.T)[0].T
    coordinates = rows @ frame.T
    points, vertex_of = np.unique(np.round(coordinates, 6), axis=0, return_inverse=True)
    k = points.shape[0]
    beyond = DoesNotApply(
        f"The reduction left {part.shape[0]} directions entangled that are no one-hot group: the lattice is not orthogonal."
    )
    if k != part.shape[0] + 1:
        raise beyond
    vertex_of = vertex_of.reshape(-1)
    points = np.stack([coordinates[vertex_of == vertex].mean(axis=0) for vertex in range(k)])
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    total = squares.sum() / (2 * (k - 1))
    steps = (squares.sum(axis=1) - total) / (k - 2)
    fitted = (steps[:, None] + steps) * (1 - np.eye(k))
    if steps.min() <= 0 or np.abs(fitted - squares).max() > _SAME * squares.max():
        raise beyond
    return Simplex(points @ frame, steps, vertex_of)


def _simplices_named(
    known: LatticeRows, found: LatticeRows, anchored: AnchorStatistics | None
) -> list[tuple[Simplex, Simplex, npt.NDArray[np.intp]]]:
    if not found.simplices:
        return []
    scores = np.full((len(found.simplices), len(known.simplices)), _IMPOSSIBLE)
    orders = {}
    for i, seen in enumerate(found.simplices):
        for j, own in enumerate(known.simplices):
            if seen.squared_steps.size == own.squared_steps.size:
                scores[i, j], orders[i, j] = _vertices_named(own, seen, known.codes, found.codes, anchored)
    rows, columns = linear_sum_assignment(scores, maximize=True)
    if scores[rows, columns].min() <= _IMPOSSIBLE:
        raise DoesNotApply("The upload's one-hot groups are not those of the colluders' rows.")
    return [
        (known.simplices[j], found.simplices[i], orders[i, j])
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    ]


def _vertices_named(
    own: Simplex, seen: Simplex, own_codes: Codes, seen_codes: Codes, anchored: AnchorStatistics | None
) -> tuple[float, npt.NDArray[np.intp]]:
    """How well two simplices agree, and the vertex of `own` that each of `seen` is."""
    k = own.squared_steps.size
    scores = np.zeros((k, k))
    for label in np.unique(seen_codes):
        wanted = 0.5 + np.bincount(own.vertex_of[own_codes == label], minlength=k)
        counted = np.bincount(seen.vertex_of[seen_codes == label], minlength=k)
        share = own_codes.size / (own_codes.size + seen_codes.size)
        scores += share * counted[:, None] * np.log(wanted / wanted.sum())
    if anchored is not None:
        scores += seen.vertices @ anchored.agreement.T @ own.vertices.T / own.squared_steps.mean()
    off = np.abs(seen.squared_steps[:, None] - own.squared_steps)
    scores[off > _SAME * own.squared_steps.max()] = _IMPOSSIBLE
    rows, order = linear_sum_assignment(scores, maximize=True)
    return max(_IMPOSSIBLE, float(scores[rows, order].sum())), order


def _lines_named(
    known: LatticeRows, found: LatticeRows, anchored: AnchorStatistics | None
) -> list[tuple[Line, Line, float, float]]:
    """For each line of the upload the colluders' line it is, its sign, and where the first row stands on it."""
    if not found.lines:
        return []
    shape = (2, len(found.lines), len(known.lines))
    scores, places = np.full(shape, _IMPOSSIBLE), np.zeros(shape)
    for i, seen in enumerate(found.lines):
        for j, own in enumerate(known.lines):
            unit = _common_unit(seen.step, own.step)
            for turned, sign in enumerate((1.0, -1.0) if unit else ()):
                likelihoods, at = _likelihoods(known, found, own, seen, sign, unit)
                if anchored is not None:
                    shift = found.rows[0] @ seen.direction - sign * at
                    likelihoods = likelihoods - anchored.precision / 2 * (shift - anchored.mean @ seen.direction) ** 2
                    likelihoods = likelihoods + sign * (own.direction @ anchored.agreement @ seen.direction)
                best = int(likelihoods.argmax())
                scores[turned, i, j], places[turned, i, j] = likelihoods[best], at[best]
    _, pairs = linear_sum_assignment(scores.max(axis=0), maximize=True)
    own_place = np.arange(pairs.size)
    turns = scores[:, own_place, pairs].argmax(axis=0)
    if scores[turns, own_place, pairs].min() <= _IMPOSSIBLE:
        raise DoesNotApply("The upload's steps are not those of the colluders' columns.")
    pairs, turns = _by_correlation(known, found, scores, pairs, turns)
    return [
        (known.lines[j], found.lines[i], 1.0 - 2.0 * turn, float(places[turn, i, j]))
        for i, (j, turn) in enumerate(zip(pairs.tolist(), turns.tolist(), strict=True))
    ]


def _common_unit(first: float, second: float) -> float:
    """The smaller of two steps if the other is a small multiple of it, which a column's rare values may make it; or 0."""
    small, large = sorted((first, second))
    ratio = large / small
    return small if ratio < _LARGEST_RATIO and abs(ratio - round(ratio)) < _SAME * ratio else 0.0


def _likelihoods(
    known: LatticeRows, found: LatticeRows, own: Line, seen: Line, sign: float, unit: float
) -> tuple[Matrix, Matrix]:
    """Log-likelihoods of all places that the first uploaded row could have on a line of the colluders', and the places."""
    values, moved = known.rows @ own.direction, sign * (found.rows @ seen.direction)
    wanted = np.rint((values - values.min()) / unit).astype(np.intp)
    counted = np.rint((moved - moved.min()) / unit).astype(np.intp)
    margin, size = int(counted.max()), int(wanted.max()) + 1
    length = size + 2 * margin
    bandwidth = float(wanted.std()) * wanted.size**-0.2
    from scipy.signal import correlate  # loads scipy.stats

    overall = np.bincount(wanted + margin, minlength=length).astype(np.float64)
    if bandwidth > 1:
        overall = overall / 2 + gaussian_filter1d(overall, bandwidth, mode="constant") / 2
    near = gaussian_filter1d(overall, max(1.0, float(wanted.std()) / 2), mode="constant")  # tails not yet seen
    overall = overall + 4 * near / near.sum() + 0.5 / length
    overall = overall / overall.sum()
    total = np.zeros(length - margin)
    for label in np.unique(found.codes):
        among = np.bincount(wanted[known.codes == label] + margin, minlength=length) + 4 * overall
        if bandwidth > 1:
            among = among / 2 + gaussian_filter1d(among, bandwidth, mode="constant") / 2 + 4 * overall
        counts = np.bincount(counted[found.codes == label], minlength=margin + 1)
        total += correlate(np.log(among / among.sum()), counts.astype(np.float64), mode="valid")
    lowest = values.min() + unit * (np.arange(total.size) - margin)
    share = wanted.size / (wanted.size + counted.size)  # the colluders' own sampling error blunts what counts say
    return share * total, lowest + (moved[0] - moved.min())


def _by_correlation(
    known: LatticeRows, found: LatticeRows, scores: Matrix, pairs: npt.NDArray[np.intp], turns: npt.NDArray[np.intp]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Swap and turn pairs as long as values' distributions and correlations together become likelier.

    Correlations are taken to scatter about nought with the variance that the colluders' have beyond their sampling
    error; where they have none, as among independent columns, they say nothing.
    """
    wanted, seen, m = _correlations(known), _correlations(found), pairs.size
    if m < 2:
        return pairs, turns
    error_x, error_y = 1 / known.rows.shape[0], 1 / found.rows.shape[0]
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
                    if scores[turned[[i, j]], [i, j], trial[[i, j]]].min() <= _IMPOSSIBLE:
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
