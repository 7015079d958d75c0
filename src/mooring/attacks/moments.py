"""Moments: the uploaded rows carry no anchor noise, so their means and covariances give the map away.

The attacker knows the accomplices' rows and every label. Rows of one class at two organisations come from nearly the same
distribution; the map that makes the target's class means and covariances agree with the accomplices', and its noisy
anchor with the anchor, is found by maximum likelihood (`moment_matching`). It works without an anchor, without labels,
and with any number of accomplices; how strong the anchor noise is hardly matters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.descent import Minimum, minimise
from mooring.attacks.moment_matching import AnchorEvidence, MomentMatch
from mooring.attacks.procrustes import procrustes
from mooring.attacks.reconstruction import DoesNotApply, Reconstruction, undone
from mooring.attacks.signs import sign_votes, third_moments
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import Array, namespace_of
from mooring.geometry.orthogonal import polar_factor

_FIRST_LOOK = 25
_SMOOTHING = (1.0, 0.1, 0.0)
_STAGE_ITERATIONS = 60
_MAX_ITERATIONS = 200
_COVARIANCE_STEPS = 40
_SIGN_ROUNDS = 2
_CLEAR_VOTE = 4.0
_CLASSES_TO_TRY = 4
_MANY_COMPONENTS = 150


@dataclass(frozen=True, eq=False)
class Side:
    """Rows with their classes, and their moments: one side of a comparison."""

    rows: Array
    codes: Codes
    moments: ClassMoments


def moments(view: CollusionView, *, rng: np.random.Generator) -> Reconstruction:
    """Match the target's class moments to the accomplices', and its anchor representation to the anchor."""
    if not view.accomplices:
        raise DoesNotApply("Without an accomplice's rows there is nothing to compare the target's moments with.")
    if view.anchor is not None and view.anchor_noise_scale == 0:
        exact = procrustes(view, rng=rng)
        return replace(exact, notes=("the anchor alone gives the map exactly",))
    population, target = both_sides(view, noise_variance=view.data_noise_scale**2)
    match, found, start = best_match(population, target, anchor_evidence(view))
    row_error = match.row_error(found.orthogonal)
    return undone(view, match.to_map(found.orthogonal, found.shift), row_error=row_error, notes=(f"start: {start}",))


def both_sides(view: CollusionView, *, noise_variance: float) -> tuple[Side, Side]:
    """The accomplices' rows, pooled, and the target's upload, over the classes that both have.

    The target's upload carries private-data noise; the accomplices' moments are given as if their rows did too.
    """
    rows, Y = view.colluder_rows, view.target_upload.representation
    codes_c = view.codes_of([accomplice.index for accomplice in view.accomplices])
    codes_t = view.codes_of([view.target])
    if rows is None or rows.shape[0] < 2 or Y.shape[0] < 2:
        raise DoesNotApply("A covariance needs two rows or more on either side.")
    shared = np.intersect1d(codes_c, codes_t)
    if shared.size == 0:  # nothing in common but the population: compare it as one class
        codes_c, codes_t, shared = np.zeros_like(codes_c), np.zeros_like(codes_t), np.zeros(1, dtype=np.intp)
    return side_of(rows, codes_c, shared, noise_variance=noise_variance), side_of(Y, codes_t, shared)


def anchor_evidence(view: CollusionView, participant: int | None = None) -> AnchorEvidence | None:
    """What a noisy anchor representation says, the target's by default; None without an anchor or who tells it."""
    upload = view.target_upload if participant is None else view.uploads[participant]
    A, B = view.anchor, upload.anchor_representation
    if A is None or B is None:
        return None
    xp = namespace_of(A, B)
    return AnchorEvidence(A.T @ (B - xp.mean(B, axis=0)), xp.mean(B, axis=0), view.anchor_noise_scale, B.shape[0])


def best_match(population: Side, target: Side, anchor: AnchorEvidence | None) -> tuple[MomentMatch, Minimum, str]:
    """Descend from several starts in a smoothed landscape, from the best of them in ever finer ones, settling signs.

    Returns the match in its finest form, where the descent ended, and which start won.
    """
    match = MomentMatch(population.moments, target.moments, anchor, smoothing=_SMOOTHING[0])
    looks = {
        name: descended(match, O, match.first_shift(), _FIRST_LOOK)
        for name, O in _starts(match, population, target).items()
    }
    scores = {name: look.value - _agreement(match, population, target, look.orthogonal) for name, look in looks.items()}
    winner = min(scores, key=lambda name: scores[name])
    found = looks[winner]
    for smoothing in _SMOOTHING:
        match = MomentMatch(population.moments, target.moments, anchor, smoothing=smoothing)
        limit = _MAX_ITERATIONS if smoothing == _SMOOTHING[-1] else _STAGE_ITERATIONS
        found = descended(match, found.orthogonal, found.shift, limit)
        for _ in range(_SIGN_ROUNDS):
            turned = _with_better_signs(match, population, target, found, limit)
            if turned is None:
                break
            found = turned
    return match, found, winner


def plain_starts(match: MomentMatch) -> dict[str, Array]:
    """Maps to begin with, from the means, from means and covariances, and from the anchor where there is one."""
    xp = namespace_of(match.pull)
    means = (match.paired_counts[:, None] * match.population.means).T @ match.target.means
    level_x, level_y = _levels(match)
    linear = match.pull + means / xp.mean(level_x * level_y)
    starts = {
        "means": polar_factor(match.pull + means / (level_x[:, None] * level_y[None, :])),
        "means and covariances": _power_steps(match, linear, polar_factor(linear)),
    }
    return starts if match.anchor is None else starts | {"anchor": polar_factor(match.pull)}


def _starts(match: MomentMatch, population: Side, target: Side) -> dict[str, Array]:
    """The plain starts and the principal axes, of all classes together and of single ones."""
    xp = namespace_of(match.pull)
    identity = xp.eye(match.n_components, dtype=match.pull.dtype, device=match.pull.device)
    level_x, level_y = _levels(match)
    leaning = xp.sum(match.paired_counts[:, None] * match.population.means * match.target.means, axis=0)
    leaning = xp.linalg.diagonal(match.pull) + leaning / (level_x * level_y)
    votes = _votes(match, population, target, identity) + 2 * leaning
    signs = xp.where(votes < 0, -xp.ones_like(votes), xp.ones_like(votes))
    starts = plain_starts(match) | {"principal axes": identity * signs}
    if match.n_components <= _MANY_COMPONENTS:
        starts |= _class_axes(match)
    return starts


def _levels(match: MomentMatch) -> tuple[Array, Array]:
    """Standard deviations along the axes of both sides."""
    xp = namespace_of(match.pull)
    level_x, level_y = (
        xp.sqrt(xp.linalg.diagonal(side.within) + match.ridge) for side in (match.population, match.target)
    )
    return level_x, level_y


def _class_axes(match: MomentMatch) -> dict[str, Array]:
    """The principal axes of single classes, pointed by all class means: where the axes of all classes together mix."""
    xp = namespace_of(match.pull)
    largest = np.argsort(-np.minimum(match.population.counts, match.target.counts))[:_CLASSES_TO_TRY]
    starts = {}
    for k in largest:
        axes_c, axes_t = (xp.linalg.eigh(side.covariances[int(k), ...])[1] for side in (match.population, match.target))
        means_c, means_t = match.population.means @ axes_c, match.target.means @ axes_t
        leaning = xp.sum(match.paired_counts[:, None] * means_c * means_t, axis=0)
        signs = xp.where(leaning < 0, -xp.ones_like(leaning), xp.ones_like(leaning))
        starts[f"axes of class {int(k)}"] = (axes_c * signs) @ axes_t.T
    return starts


def _power_steps(match: MomentMatch, linear: Array, O: Array) -> Array:
    """Fixed-point steps O ← Π(linear + Σ_k u_k S_k^c O S_k^t), which climb a plainer objective from far away."""
    xp = namespace_of(linear)
    level = float(xp.mean(xp.linalg.diagonal(match.population.within))) + match.ridge
    u = match.paired_counts / level**2
    for _ in range(_COVARIANCE_STEPS):
        new = polar_factor(
            linear + xp.sum(u[:, None, None] * (match.population.covariances @ O @ match.target.covariances), axis=0)
        )
        moved = float(xp.max(xp.abs(new - O)))
        O = new
        if moved < 1e-4:
            break
    return O


def _with_better_signs(
    match: MomentMatch, population: Side, target: Side, found: Minimum, limit: int
) -> Minimum | None:
    """Turn round the axes that third moments vote against, and keep it if likelihood and votes together gain."""
    xp = namespace_of(match.pull)
    votes = _votes(match, population, target, found.orthogonal)
    if not bool(xp.any(votes < -_CLEAR_VOTE)):
        return None
    signs = xp.where(votes < -_CLEAR_VOTE, -xp.ones_like(votes), xp.ones_like(votes))
    turned = descended(match, found.orthogonal * signs, found.shift, limit)
    before = found.value - _agreement(match, population, target, found.orthogonal)
    after = turned.value - _agreement(match, population, target, turned.orthogonal)
    return turned if after < before - _CLEAR_VOTE else None


def _agreement(match: MomentMatch, population: Side, target: Side, O: Array) -> float:
    """How much third moments speak for a map, in units of log-likelihood."""
    return 0.5 * float(namespace_of(O).sum(_votes(match, population, target, O)))


def _votes(match: MomentMatch, population: Side, target: Side, O: Array) -> Array:
    """Third moments' votes for the sign of each of the target's axes, given a map."""
    T_t = third_moments(target.rows, target.codes, match.axes_y)
    T_c = third_moments(population.rows, population.codes, match.axes_x @ O)
    return sign_votes(T_c, T_t, population.rows.shape[0], target.rows.shape[0])


def descended(match: MomentMatch, O: Array, shift: Array, max_iterations: int) -> Minimum:
    """Descend from a map and a shift in the landscape of a match."""
    return minimise(
        match.value_and_gradient,
        O,
        shift,
        curvature=match.curvature,
        shift_curvature=match.shift_curvature,
        max_iterations=max_iterations,
    )


def side_of(rows: Array, codes: Codes, shared: Codes, *, noise_variance: float = 0.0) -> Side:
    """Rows of the shared classes, recoded 0, 1, …, with their moments."""
    kept = np.flatnonzero(np.isin(codes, shared))
    if kept.size < codes.size:
        rows = rows[namespace_of(rows).asarray(kept, device=rows.device), :]
    recoded = np.searchsorted(shared, codes[kept])
    return Side(rows, recoded, ClassMoments.of(rows, recoded, shared.size).with_noise(noise_variance))
