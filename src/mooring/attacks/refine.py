"""Refine: denoise the rebuilt rows and align them again, in turns.

Legend: (O, Ψ) the target's map, Y its uploaded rows, A and B the anchor and its representation, D denoised rows; σ and v
the scales of private-data and anchor noise; τ the standard deviation of the rows' error.

The posterior mean D of the rebuilt rows under the population (a denoiser) is nearer to the true rows than the rebuilt rows,
and so is the map that takes D to the upload and the anchor to its representation,

    min ‖Y − D O − 1 Ψᵀ‖² / (τ² + σ²) + ‖B − A O − 1 Ψᵀ‖² / v²,

to the true map. This is expectation maximisation, because ‖X O‖ does not depend on O. τ falls slowly, so that first only
what is certain moves the map. Where columns are declared and not projected, the population is that of the denoiser `grid`,
otherwise of `kernel`. A search may end in a wrong map. Of several, the one is kept under which the rows and the anchor
representation are most likely.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from mooring.attacks.denoising.grid import denoise_by_grids
from mooring.attacks.denoising.kernel import denoise_by_kernels
from mooring.attacks.moments import moments
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, reconstruct
from mooring.attacks.view import CollusionView
from mooring.geometry.backend import device_of, namespace_of, transpose
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Array

_GRID_FACTOR, _GRID_WIDTHS, _GRID_LEAST = 0.92, (1.0, 1.4), 0.02  # encoded numbers lie between −1 and 1
_KERNEL_FACTOR, _KERNEL_START, _KERNEL_LEAST = 0.92, 0.5, 0.1  # the last two relative to the rows' root mean square


@dataclass(frozen=True, eq=False)
class _Schedule:
    """The denoiser, and how τ falls from round to round."""

    denoise: Callable[..., Reconstruction]
    starts: tuple[float, ...]
    """τ of the first round, one for each search."""
    factor: float
    """τ of a round over that of the round before."""
    least: float
    """The least τ."""
    n_rounds: int


def refine(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Refine the map of `procrustes` for declared columns, or else of `moments`, by denoising and aligning in turns."""
    known = view.reference_rows
    if known is None:
        raise DoesNotApply("Without rows of a colluder or public rows, nothing is known about the population.")
    if view.method.transform == "common" or (view.anchor is not None and view.anchor_noise_scale == 0):
        raise DoesNotApply("The map is known exactly, so there is nothing to refine.")
    by_grids = bool(view.columns) and view.projection.kind == "none"
    start = procrustes(view, rng=rng) if by_grids and view.anchor is not None else moments(view, rng=rng)
    schedule, view = _prepare(view, start, known, by_grids=by_grids)
    searches = [_search(view, start.rigid_map, scale, schedule, rng) for scale in schedule.starts]
    best, scale = searches[0]
    if len(searches) > 1:
        level = max(scale for _, scale in searches)
        scores = [_log_likelihood(view, estimate, level, schedule, rng) for estimate, _ in searches]
        best, scale = searches[int(np.argmax(scores))]
    return reconstruct(view, best, row_error=_isotropic(view, scale))


def _prepare(
    view: CollusionView, start: Reconstruction, known: Array, *, by_grids: bool
) -> tuple[_Schedule, CollusionView]:
    """Return the schedule, and the view with the effort of the denoiser in each round; `known` are known rows."""
    xp, effort = namespace_of(start.rows), view.effort
    expected = float(xp.mean(xp.linalg.diagonal(start.row_error))) ** 0.5
    if not by_grids:
        size = float(xp.mean(known * known)) ** 0.5
        start_scale, least = max(expected, _KERNEL_START * size), _KERNEL_LEAST * size
        denoise = partial(denoise_by_kernels, shapes={})
        schedule = _Schedule(denoise, (start_scale,), _KERNEL_FACTOR, least, effort.refine_kernel_rounds)
        fewer = replace(effort, known_shares=effort.refine_shares, kernel_centres=effort.refine_centres)
        return schedule, replace(view, effort=fewer)
    if view.data_noise_scale > 0:  # the noise hides fine structure, and a good model of the population matters more
        schedule = _Schedule(denoise_by_grids, (expected,), _GRID_FACTOR, _GRID_LEAST, effort.refine_few_rounds)
        return schedule, view
    starts = tuple(width * expected for width in _GRID_WIDTHS)
    schedule = _Schedule(denoise_by_grids, starts, _GRID_FACTOR, _GRID_LEAST, effort.refine_rounds)
    return schedule, replace(view, effort=replace(effort, class_rounds=effort.refine_class_rounds))


def _search(
    view: CollusionView, estimate: RigidMap, scale: float, schedule: _Schedule, rng: np.random.Generator
) -> tuple[RigidMap, float]:
    """Return the map after all rounds from an estimate and its τ, and the last τ."""
    Y, xp = view.target_upload.representation, namespace_of(view.target_upload.representation)
    for _ in range(schedule.n_rounds):
        denoised = _denoise(view, estimate, scale, schedule, rng).rows
        estimate = _align(view, denoised, scale)
        gap = estimate.invert(Y) - denoised
        residual = max(0.0, float(xp.mean(gap * gap)) - view.data_noise_scale**2) ** 0.5
        scale = max(schedule.factor * scale, residual, schedule.least)
    return estimate, scale


def _denoise(
    view: CollusionView, estimate: RigidMap, scale: float, schedule: _Schedule, rng: np.random.Generator
) -> Reconstruction:
    return schedule.denoise(reconstruct(view, estimate, row_error=_isotropic(view, scale)), view, rng=rng)


def _isotropic(view: CollusionView, scale: float) -> Array:
    """Return τ² I."""
    Y = view.target_upload.representation
    return scale**2 * namespace_of(Y).eye(view.n_components, dtype=Y.dtype, device=device_of(Y))


def _align(view: CollusionView, denoised: Array, scale: float) -> RigidMap:
    """Return the map that takes the denoised rows to the upload and the anchor to its representation."""
    Y, B = view.target_upload.representation, view.target_upload.anchor_representation
    pairs = [(denoised, Y, 1 / (scale**2 + view.data_noise_scale**2))]
    if view.anchor is not None and B is not None:
        pairs.append((view.anchor, B, view.anchor_noise_scale**-2.0))
    xp = namespace_of(Y)
    total = sum(weight * source.shape[0] for source, _, weight in pairs)
    centre_x, centre_y = (sum(pair[2] * xp.sum(pair[side], axis=0) for pair in pairs) / total for side in (0, 1))
    cross = sum(weight * transpose(source - centre_x) @ (image - centre_y) for source, image, weight in pairs)
    return RigidMap.from_centre(polar_factor(cross), centre_x, centre_y)


def _log_likelihood(
    view: CollusionView, estimate: RigidMap, scale: float, schedule: _Schedule, rng: np.random.Generator
) -> float:
    """Return the log-likelihood of a map given the rows and the anchor representation, up to a constant."""
    xp, B = namespace_of(view.target_upload.representation), view.target_upload.anchor_representation
    value = float(xp.sum(_denoise(view, estimate, scale, schedule, rng).evidence))
    if view.anchor is None or B is None:
        return value
    gap = B - estimate.apply(view.anchor)
    return value - float(xp.sum(gap * gap)) / (2 * view.anchor_noise_scale**2)
