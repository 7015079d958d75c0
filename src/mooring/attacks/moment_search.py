"""The search for the map that matches moments best, from several starts, on a smoothed objective first.

There is one population and one set of target rows, but the anchor's evidence may come from several draws. All draws go
through each stage together, with the same results as one by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.attacks.class_moments import ClassMoments, sign_votes, third_moments
from mooring.attacks.effort import Effort
from mooring.attacks.moment_matching import AnchorEvidence, MomentMatch
from mooring.attacks.view import Codes
from mooring.geometry.backend import indices_beside, namespace_of, to_numpy
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.riemannian_lbfgs import RiemannianLBFGS
from mooring.typing import Array, Indices

_SMOOTHING = (1.0, 0.1, 0.0)
_WORTH_HAVING = 1e-5  # log-likelihood that a step must gain for the search to continue
_COVARIANCE_STEPS = 40
_CLEAR_VOTE = 4.0
_CLASSES_TO_TRY = 4
_MANY_COMPONENTS = 150
_NUMBERS_TOGETHER = 2**16  # in the covariances of all classes, over the draws and starts that are followed together


@dataclass(frozen=True, eq=False)
class MomentRows:
    """Rows with their classes and moments, one side of a comparison."""

    rows: Array
    codes: Codes
    moments: ClassMoments


@dataclass(frozen=True, eq=False)
class Minima:
    """The results of minimisations for n draws."""

    orthogonal: Array
    """O, of shape (n, h, h)."""
    shift: Array
    """Shifts, of shape (n, h)."""
    value: npt.NDArray[np.float64]
    """Objective values, of shape (n,)."""


def best_matches(
    population: MomentRows, target: MomentRows, anchor: AnchorEvidence | None, effort: Effort
) -> tuple[MomentMatch, Minima, list[str]]:
    """Minimise from several starts on a smoothed objective, then from the best of them with less smoothing, fixing signs.

    Returns the match without smoothing, the minima of all draws, and the name of the best start of each draw.
    """
    match = MomentMatch(population.moments, target.moments, anchor, smoothing=_SMOOTHING[0])
    signs = _Signs(match, population, target)
    starts = _starts(match, signs)
    looks = minimise_each(match, list(starts.values()), effort.first_iterations)
    scores = np.stack([look.value - signs.agreement(look.orthogonal) for look in looks])
    winners = np.argmin(scores, axis=0)
    minima = _chosen(looks, winners)
    for smoothing in _SMOOTHING:
        match = match if smoothing == _SMOOTHING[0] else match.smoothed(smoothing)
        limit = effort.last_iterations if smoothing == _SMOOTHING[-1] else effort.stage_iterations
        minima = minimise(match, minima.orthogonal, minima.shift, limit)
        minima = _with_better_signs(match, signs, minima, limit, n_rounds=effort.sign_rounds)
    names = list(starts)
    return match, minima, [names[int(winner)] for winner in winners]


def plain_starts(match: MomentMatch) -> dict[str, Array]:
    """Return starting maps from the means, from means and covariances, and from the anchor if there is one."""
    xp = namespace_of(match.pull)
    means = (match.paired_counts[:, None] * match.population.means).T @ match.target.means
    level_x, level_y = _levels(match)
    linear = match.pull + means / xp.mean(level_x * level_y)
    starts = {
        "means": polar_factor(match.pull + means / (level_x[:, None] * level_y[None, :])),
        "means and covariances": _power_steps(match, linear, polar_factor(linear)),
    }
    return starts | {"anchor": polar_factor(match.pull)} if match.has_anchor else starts


def minimise_each(match: MomentMatch, starts: list[Array], max_iterations: int) -> list[Minima]:
    """Return the minima from each of several starts, whose shapes broadcast to (n, h, h).

    As many starts as fit into the cache are followed together, because a step on few numbers spends most of its time on
    calling functions.
    """
    n, (n_classes, *shape) = match.n_draws, match.target.covariances.shape
    at_once = max(1, _NUMBERS_TOGETHER // max(1, n * n_classes * math.prod(shape)))  # without common classes, zero
    results = []
    for first in range(0, len(starts), at_once):
        group = starts[first : first + at_once]
        xp = namespace_of(*group)
        several = match.select(np.tile(np.arange(n), len(group)))
        O = xp.concat([xp.broadcast_to(start, (n, *shape)) for start in group], axis=0)
        found = minimise(several, O, several.anchor_shift, max_iterations)
        parts = [slice(i * n, (i + 1) * n) for i in range(len(group))]
        results += [Minima(found.orthogonal[part, ...], found.shift[part, ...], found.value[part]) for part in parts]
    return results


def minimise(match: MomentMatch, O: Array, shift: Array, max_iterations: int) -> Minima:
    """Return the minima of a match for all its draws, from starts that broadcast to shapes (n, h, h) and (n, h)."""
    xp = namespace_of(O)
    n, h = match.n_draws, match.n_components
    start = (xp.broadcast_to(O, (n, h, h)), xp.broadcast_to(shift, (n, h)))
    optimiser = RiemannianLBFGS(match, tuple(xp.asarray(part, copy=True) for part in start))
    optimiser.run(lambda optimiser: optimiser.decrease < _WORTH_HAVING, max_iterations=max_iterations)
    O, shift = optimiser.points
    return Minima(O, shift, optimiser.value)


def _chosen(options: list[Minima], choice: Indices) -> Minima:
    """Return, for each draw, its minimum in the option that `choice` selects."""
    xp = namespace_of(options[0].shift)
    each = np.arange(choice.size)
    rows = indices_beside(choice * choice.size + each, options[0].shift)
    return Minima(
        xp.concat([option.orthogonal for option in options], axis=0)[rows, ...],
        xp.concat([option.shift for option in options], axis=0)[rows, ...],
        np.stack([option.value for option in options])[choice, each],
    )


def _starts(match: MomentMatch, signs: _Signs) -> dict[str, Array]:
    """Return the plain starts, and maps from the principal axes of all classes together.

    Unless there are many components, maps from the axes of the largest classes are added.
    """
    xp = namespace_of(match.pull)
    identity = xp.eye(match.n_components, dtype=match.pull.dtype, device=match.pull.device)
    level_x, level_y = _levels(match)
    leaning = xp.sum(match.paired_counts[:, None] * match.population.means * match.target.means, axis=0)
    leaning = xp.linalg.diagonal(match.pull) + leaning / (level_x * level_y)
    votes = signs.votes(identity) + 2 * leaning
    starts = plain_starts(match) | {"principal axes": identity * _sign(votes)[..., None, :]}
    if match.n_components <= _MANY_COMPONENTS:
        starts |= _class_axes(match)
    return starts


def _levels(match: MomentMatch) -> tuple[Array, Array]:
    """Return standard deviations along the axes of both sides."""
    xp = namespace_of(match.pull)
    level_x, level_y = (
        xp.sqrt(xp.linalg.diagonal(side.within) + match.ridge) for side in (match.population, match.target)
    )
    return level_x, level_y


def _class_axes(match: MomentMatch) -> dict[str, Array]:
    """Return maps from the principal axes of each of the largest classes, with signs from all class means."""
    xp = namespace_of(match.pull)
    largest = np.argsort(-np.minimum(match.population.counts, match.target.counts))[:_CLASSES_TO_TRY]
    starts = {}
    for k in largest:
        axes_c, axes_t = (xp.linalg.eigh(side.covariances[int(k), ...])[1] for side in (match.population, match.target))
        means_c, means_t = match.population.means @ axes_c, match.target.means @ axes_t
        leaning = xp.sum(match.paired_counts[:, None] * means_c * means_t, axis=0)
        starts[f"axes of class {int(k)}"] = (axes_c * _sign(leaning)) @ axes_t.T
    return starts


def _power_steps(match: MomentMatch, linear: Array, O: Array) -> Array:
    """Return O after fixed-point steps O ← Π(linear + Σ_k W_k O S_k), which maximise a simpler objective.

    Π is the polar factor; W_k are the weighted covariances of the population's classes, S_k those of the target's classes.
    """
    xp = namespace_of(linear)
    level = xp.mean(xp.linalg.diagonal(match.population.within)) + match.ridge
    weighted = (match.paired_counts / level**2)[:, None, None] * match.population.covariances
    moving = xp.ones_like(O[..., 0, 0]) > 0
    for _ in range(_COVARIANCE_STEPS):
        pulled = xp.sum(weighted @ O[..., None, :, :] @ match.target.covariances, axis=-3)
        new = xp.where(moving[..., None, None], polar_factor(linear + pulled), O)
        moving = moving & (xp.max(xp.abs(new - O), axis=(-2, -1)) >= 1e-4)
        O = new
        if not bool(xp.any(moving)):
            break
    return O


def _with_better_signs(match: MomentMatch, signs: _Signs, minima: Minima, limit: int, *, n_rounds: int) -> Minima:
    """Reverse axes that third moments vote against, and keep the result if likelihood and votes together improve."""
    xp = namespace_of(match.pull)
    trying = np.arange(minima.value.size)
    for _ in range(n_rounds):
        votes = signs.votes(minima.orthogonal[indices_beside(trying, minima.shift), ...])
        doubted = np.flatnonzero(to_numpy(xp.any(votes < -_CLEAR_VOTE, axis=-1)))
        if not doubted.size:
            break
        trying, votes = trying[doubted], votes[indices_beside(doubted, votes), :]
        rows = indices_beside(trying, minima.shift)
        old = minima.orthogonal[rows, ...]
        start = old * _sign(votes + _CLEAR_VOTE)[..., None, :]
        turned = minimise(match.select(trying), start, minima.shift[rows, :], limit)
        before = minima.value[trying] - signs.agreement(old)
        after = turned.value - signs.agreement(turned.orthogonal)
        better = after < before - _CLEAR_VOTE
        trying, kept = trying[better], indices_beside(np.flatnonzero(better), minima.shift)
        if not trying.size:
            break
        rows = indices_beside(trying, minima.shift)
        minima.orthogonal[rows, ...] = turned.orthogonal[kept, ...]
        minima.shift[rows, :] = turned.shift[kept, :]
        minima.value[trying] = turned.value[better]
    return minima


class _Signs:
    """Votes of third moments for the sign of each of the target's axes, given a map."""

    def __init__(self, match: MomentMatch, population: MomentRows, target: MomentRows) -> None:
        self._population, self._target, self._axes = population, target, match.axes_x
        self._third = third_moments(target.rows, target.codes, match.axes_y)

    def votes(self, O: Array) -> Array:
        """Return votes of shape (h,) for a map of shape (h, h); several maps have a leading axis."""
        if len(O.shape) > 2:
            return namespace_of(O).stack([self.votes(O[index, ...]) for index in range(O.shape[0])])
        third = third_moments(self._population.rows, self._population.codes, self._axes @ O)
        return sign_votes(third, self._third, self._population.rows.shape[0], self._target.rows.shape[0])

    def agreement(self, O: Array) -> npt.NDArray[np.float64]:
        """Return the agreement of third moments with each map, in units of log-likelihood."""
        return 0.5 * to_numpy(namespace_of(O).sum(self.votes(O), axis=-1)).astype(np.float64)


def _sign(numbers: Array) -> Array:
    """Return −1 for negative numbers and 1 for all others."""
    xp = namespace_of(numbers)
    return xp.where(numbers < 0, -xp.ones_like(numbers), xp.ones_like(numbers))
