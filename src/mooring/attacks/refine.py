"""Refine: denoise the rebuilt rows, align them with the upload, and repeat.

Legend: (O, Ψ) the target's map, Y its uploaded rows, A and B the anchor and its representation, D denoised rows; σ and v
the scales of private-data and anchor noise; τ the standard deviation of the rows' error.

The posterior mean D of the rebuilt rows under the population (a denoiser) is nearer to the true rows than the rebuilt rows
are. The map that takes D to the upload and the anchor to its representation,

    min ‖Y − D O − 1 Ψᵀ‖² / (τ² + σ²) + ‖B − A O − 1 Ψᵀ‖² / v²,

is therefore nearer to the true map. This is expectation maximisation, because ‖X O‖ does not depend on O. τ falls slowly, so
that at first the map follows only the rows whose values are certain.

If columns are declared and not projected, the population is that of the denoiser `grid`. With an anchor, this population is
fitted to the rows of several participants, whose maps are refined together. If there are few rows for the number of columns,
the map turns to fit rows that were denoised to wrong values. Without private-data noise, each row is therefore denoised
again with a map found from all other rows, and the result is kept if it makes the rows and the anchor representation more
likely. Without declared columns, or behind a projection, the population is that of the denoiser `kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import starmap
from weakref import ReferenceType, WeakKeyDictionary, ref

import numpy as np

from mooring.attacks.denoising.grid import denoise_together
from mooring.attacks.denoising.kernel import ShapesByClass, denoise_by_kernels
from mooring.attacks.moments import moments
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import device_of, like, namespace_of, to_numpy, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.kernel import Upload
from mooring.typing import Array

_GRID_FACTOR, _GRID_START, _GRID_LEAST = 0.92, 1.4, 0.02  # encoded numbers lie between −1 and 1
_AGAIN_FACTOR, _FEW_ROWS = 0.75, 2  # rows are denoised again if there are at most twice as many as columns
_KERNEL_FACTOR, _KERNEL_START, _KERNEL_LEAST = 0.95, 0.5, 0.05  # the last two relative to the rows' root mean square

Views = Mapping[int, CollusionView]
"""Views of several targets, by participant."""
Maps = Mapping[int, RigidMap]
Denoise = Callable[[Mapping[int, Array], float], Mapping[int, Array]]
"""Takes the rebuilt rows of participants and τ, and returns their posterior means."""


@dataclass(frozen=True, eq=False)
class _Schedule:
    """The denoiser, and how τ falls from round to round."""

    denoise: Denoise
    factor: float
    """Ratio of τ in a round to τ in the round before."""
    least: float
    """The least τ."""
    n_rounds: int


@dataclass(frozen=True, eq=False)
class _Together:
    """Maps of participants that were refined together, kept for attacks on each of these participants."""

    maps: Maps
    scale: float
    """The last τ."""
    uploads: tuple[ReferenceType[Upload], ...]
    """All uploads of the views."""
    settings: tuple[object, ...]
    """Settings that the attacker knows, and who colludes."""
    arrays: tuple[Array | None, ...]
    """Labels, the anchor and public rows that the attacker knows."""

    def serves(self, view: CollusionView) -> bool:
        """Return whether a view has the same uploads and knowledge, and its target is among the participants."""
        arrays = _list_known_arrays(view)
        return (
            view.target in self.maps
            and self.settings == _list_settings(view)
            and len(self.uploads) == len(view.uploads)
            and all(known() is upload for known, upload in zip(self.uploads, view.uploads, strict=True))
            and len(self.arrays) == len(arrays)
            and all(starmap(_are_equal, zip(self.arrays, arrays, strict=True)))
        )


def _list_settings(view: CollusionView) -> tuple[object, ...]:
    return view.data_noise_scale, view.anchor_noise_scale, view.columns, view.effort, _colluders(view)


def _list_known_arrays(view: CollusionView) -> tuple[Array | None, ...]:
    public = view.public_rows
    known = (None, None) if public is None else (public.records, public.labels)
    return *view.labels, view.anchor, *known


def _are_equal(known: Array | None, other: Array | None) -> bool:
    if known is None or other is None:
        return known is other
    return known is other or np.array_equal(to_numpy(known), to_numpy(other))


_refined: WeakKeyDictionary[Upload, _Together] = WeakKeyDictionary()


def refine(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Refine a map that another attack found, and return the rows that it rebuilds.

    The first map is that of `procrustes` if there is an anchor and columns are declared and not projected. Otherwise it is
    that of `moments`.
    """
    known = view.reference_rows
    if known is None:
        raise DoesNotApply("Without rows of a colluder or public rows, nothing is known about the population.")
    if view.method.transform == "common" or (view.anchor is not None and view.anchor_noise_scale == 0):
        raise DoesNotApply("The map is known exactly, so there is nothing to refine.")
    if view.columns and view.projection.kind == "none":
        return _by_grids(view, rng)
    return _by_kernels(view, known, rng)


def _by_kernels(view: CollusionView, known: Array, rng: np.random.Generator) -> Reconstruction:
    """Refine the target's map alone; `known` are the view's reference rows."""
    start, effort = moments(view, rng=rng), view.effort
    size = float(namespace_of(known).mean(known * known)) ** 0.5
    fewer = replace(
        view, effort=replace(effort, known_shares=effort.refine_shares, kernel_centres=effort.refine_centres)
    )
    shapes: ShapesByClass = {}

    def denoise(rows_of: Mapping[int, Array], scale: float) -> dict[int, Array]:
        rebuilt = Reconstruction(rows_of[view.target], start.rigid_map, _isotropic(view, scale))
        return {view.target: denoise_by_kernels(rebuilt, fewer, rng=rng, shapes=shapes).rows}

    schedule = _Schedule(denoise, _KERNEL_FACTOR, _KERNEL_LEAST * size, effort.refine_kernel_rounds)
    scale = max(_expected_error(start), _KERNEL_START * size)
    maps, scale = _search({view.target: view}, {view.target: start.rigid_map}, scale, schedule)
    return reconstruct(view, maps[view.target], row_error=_isotropic(view, scale))


def _by_grids(view: CollusionView, rng: np.random.Generator) -> Reconstruction:
    together = _refined.get(view.target_upload)
    if together is None or not together.serves(view):
        together = _refine_together({i: replace(view, target=i) for i in _choose_participants(view)}, rng)
        _refined.update(dict.fromkeys((view.uploads[i] for i in together.maps), together))
    others = {i: to_numpy(estimate.invert(view.uploads[i].representation)) for i, estimate in together.maps.items()}
    del others[view.target]
    estimate, Y = together.maps[view.target], view.target_upload.representation
    if view.data_noise_scale == 0 and Y.shape[0] <= _FEW_ROWS * Y.shape[1]:
        estimate = _reread_rows(view, others, estimate, together.scale)
    return replace(reconstruct(view, estimate, row_error=_isotropic(view, together.scale)), others=others)


def _choose_participants(view: CollusionView) -> list[int]:
    """Return the participants whose maps are refined together, including the target.

    Participants that do not collude are taken in order, up to `effort.refine_rows` rows. Left out are those without an
    anchor representation, and those that lack labels where the target has them, or the reverse. Without an anchor, only the
    target is returned, because every further participant would need a costly start.
    """
    chosen, n_rows = [], 0
    for i, upload in enumerate(view.uploads):
        n_rows += 0 if i in _colluders(view) else upload.representation.shape[0]
        if view.anchor is None or n_rows > view.effort.refine_rows:
            break
        is_like_target = (view.labels[i] is None) == (view.labels[view.target] is None)
        if i not in _colluders(view) and is_like_target and upload.anchor_representation is not None:
            chosen.append(i)
    return chosen if view.target in chosen else [*chosen, view.target]


def _colluders(view: CollusionView) -> tuple[int, ...]:
    return tuple(colluder.index for colluder in view.colluders)


def _refine_together(views: Views, rng: np.random.Generator) -> _Together:
    view = next(iter(views.values()))
    attack = moments if view.anchor is None else procrustes
    starts = {i: attack(each, rng=rng) for i, each in views.items()}
    scale = float(np.mean([_expected_error(start) ** 2 for start in starts.values()])) ** 0.5
    if view.data_noise_scale > 0:  # it hides fine structure, and many rounds would fit the map to the noise
        n_rounds = view.effort.refine_few_rounds
    else:
        n_rounds, scale = view.effort.refine_rounds, _GRID_START * scale
    schedule = _Schedule(_grid_denoiser(view, {}), _GRID_FACTOR, _GRID_LEAST, n_rounds)
    maps, scale = _search(views, {i: start.rigid_map for i, start in starts.items()}, scale, schedule)
    uploads = tuple(ref(upload) for upload in view.uploads)
    return _Together(maps, scale, uploads, _list_settings(view), _list_known_arrays(view))


def _grid_denoiser(view: CollusionView, others: Mapping[int, Array]) -> Denoise:
    """Return the denoiser by a model of the columns that is also fitted to the fixed rows of `others`."""
    view = _with_quick_models(view)

    def denoise(rows_of: Mapping[int, Array], scale: float) -> dict[int, Array]:
        every = {**others, **{i: to_numpy(rows) for i, rows in rows_of.items()}}
        denoised, _ = denoise_together(view, every, scale**2 + view.data_noise_scale**2)
        return {i: like(denoised[i], rows) for i, rows in rows_of.items()}

    return denoise


def _with_quick_models(view: CollusionView) -> CollusionView:
    """Return the view with less effort for models of columns, unless private-data noise makes their quality decisive."""
    effort = view.effort
    if view.data_noise_scale > 0:
        return view
    return replace(view, effort=replace(effort, class_rounds=effort.refine_class_rounds, grid_models=1))


def _search(views: Views, maps: Maps, scale: float, schedule: _Schedule) -> tuple[Maps, float]:
    """Return the maps and τ after all rounds, which start from `maps` with τ = `scale`."""
    for _ in range(schedule.n_rounds):
        denoised = schedule.denoise(_invert(views, maps), scale)
        maps = {i: _align(view, denoised[i], scale) for i, view in views.items()}
        gaps = [float(((rows - denoised[i]) ** 2).sum()) for i, rows in _invert(views, maps).items()]
        noise = next(iter(views.values())).data_noise_scale
        variance = sum(gaps) / sum(int(np.prod(rows.shape)) for rows in denoised.values()) - noise**2
        scale = max(schedule.factor * scale, max(0.0, variance) ** 0.5, schedule.least)
    return maps, scale


def _reread_rows(view: CollusionView, others: Mapping[int, Array], estimate: RigidMap, scale: float) -> RigidMap:
    """Return the target's map after denoising its rows again, as long as the rows and the anchor become more likely.

    Rows are denoised again at most `effort.refine_again` times.
    """
    likelihood = _log_likelihood(view, others, estimate, scale)
    for _ in range(view.effort.refine_again):
        again = _reread_once(view, others, estimate, scale)
        better = _log_likelihood(view, others, again, scale)
        if better <= likelihood:
            break
        estimate, likelihood = again, better
    return estimate


def _reread_once(view: CollusionView, others: Mapping[int, Array], estimate: RigidMap, scale: float) -> RigidMap:
    """Return the target's map after denoising each row with the map found from all other rows and the anchor."""
    Y, target, denoise = view.target_upload.representation, view.target, _grid_denoiser(view, others)
    xp = namespace_of(Y)
    denoised = denoise({target: estimate.invert(Y)}, scale)[target]
    apart = xp.concat(
        [_align(view, denoised, scale, without=j).invert(Y[j : j + 1, :]) for j in range(Y.shape[0])], axis=0
    )
    errors = to_numpy(xp.mean((apart - denoised) ** 2, axis=1))
    apart_scale = max(float(np.median(errors)) ** 0.5, _GRID_LEAST)
    start = _align(view, denoise({target: apart}, apart_scale)[target], apart_scale)
    schedule = _Schedule(denoise, _AGAIN_FACTOR, _GRID_LEAST, view.effort.refine_again_rounds)
    return _search({target: view}, {target: start}, apart_scale, schedule)[0][target]


def _log_likelihood(view: CollusionView, others: Mapping[int, Array], estimate: RigidMap, scale: float) -> float:
    """Return the log-likelihood of a map given the rows and the anchor representation, up to a constant."""
    rows, B = to_numpy(estimate.invert(view.target_upload.representation)), view.target_upload.anchor_representation
    variance = scale**2 + view.data_noise_scale**2
    _, evidence = denoise_together(_with_quick_models(view), {**others, view.target: rows}, variance)
    value = evidence[view.target]
    if view.anchor is None or B is None:
        return value
    squares = float(namespace_of(B).sum((B - estimate.apply(view.anchor)) ** 2))
    return float(value - squares / (2 * view.anchor_noise_scale**2))


def _invert(views: Views, maps: Maps) -> dict[int, Array]:
    return {i: maps[i].invert(view.target_upload.representation) for i, view in views.items()}


def _align(view: CollusionView, denoised: Array, scale: float, *, without: int | None = None) -> RigidMap:
    """Return the map that takes the denoised rows, except row `without`, and the anchor to their images."""
    Y, B = view.target_upload.representation, view.target_upload.anchor_representation
    xp = namespace_of(Y)
    weights = 0 * Y[:, :1] + 1 / (scale**2 + view.data_noise_scale**2)
    if without is not None:
        weights[without, 0] = 0.0
    pairs = [(denoised, Y, weights)]
    if view.anchor is not None and B is not None:
        pairs.append((view.anchor, B, 0 * B[:, :1] + view.anchor_noise_scale**-2.0))
    total = sum(xp.sum(weight) for _, _, weight in pairs)
    centre_x, centre_y = (sum(xp.sum(pair[2] * pair[side], axis=0) for pair in pairs) / total for side in (0, 1))
    cross = sum(transpose(weight * (source - centre_x)) @ (image - centre_y) for source, image, weight in pairs)
    return RigidMap.from_centre(polar_factor(cross), centre_x, centre_y)


def _expected_error(start: Reconstruction) -> float:
    """Return τ of rows that another attack rebuilt, as that attack estimates it."""
    xp = namespace_of(start.rows)
    return float(xp.mean(xp.linalg.diagonal(start.row_error)) ** 0.5)


def _isotropic(view: CollusionView, scale: float) -> Array:
    """Return τ² I."""
    Y = view.target_upload.representation
    return scale**2 * namespace_of(Y).eye(view.n_components, dtype=Y.dtype, device=device_of(Y))
