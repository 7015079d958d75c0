"""Pairing the parts of an upload's lattice with the features of known rows, by their steps and the anchor.

Rows of two participants may generate different lattices, for instance if values of a category are missing in one of them
only: a one-hot group without missing values is a simplex; with missing values, each of its categories is a line. But each
line lies along one feature, and each vertex of a simplex belongs to one feature. Lines and vertices are therefore paired
with features, one to one, so that the anchor representation is most likely. The map is then known exactly in all directions
in which rows differ; in the other directions it is the likeliest map given the anchor. The translation is also the likeliest
given the anchor, and is then moved to the grid that known rows lie on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from mooring.attacks.lattice_parts import IMPOSSIBLE, SAME, AnchorStatistics, common_unit, find_simplex
from mooring.attacks.lattice_reduction import lattice_basis
from mooring.attacks.reconstruction import DoesNotApply
from mooring.geometry.orthogonal import svd_polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.typing import Matrix, Vector

_EXACT = 1e6  # weight of a pair relative to the anchor
_ON_A_GRID = 0.99  # mean resultant length of phases from which rows lie on the grid of known rows


@dataclass(frozen=True, eq=False)
class _Directions:
    """The direction of one feature (a line), or of each feature of a one-hot group (a simplex), in the upload."""

    vectors: Matrix
    """The direction of a line, of length 1, or the vertices of a simplex about their centre; of shape (k, h)."""
    steps: Vector
    """The features' steps, of shape (k,)."""

    def scores(self, agreement: Matrix, steps: Vector) -> Matrix:
        """Return how well the anchor agrees with pairing each direction with each feature, of shape (2, k, h).

        The first half is for the directions as they are, and the second for the reversed line; a simplex cannot be reversed.
        A direction and a feature whose steps differ have the score `IMPOSSIBLE`. A feature that is constant among known rows
        has a step of zero, and fits every step.
        """
        along = self.vectors @ agreement.T
        if self.steps.size > 1:
            fits = np.abs(self.steps[:, None] - steps) <= SAME * self.steps.max()
            both = np.stack([along, np.full_like(along, IMPOSSIBLE)])
        else:
            fits = np.array([[step > 0 and common_unit(float(self.steps[0]), step) > 0 for step in steps.tolist()]])
            both = np.stack([along, -along])
        return np.where(fits | (steps == 0), both, IMPOSSIBLE)


def align_features(
    known: Matrix, rows: Matrix, parts: Sequence[Matrix], anchored: AnchorStatistics, *, rng: np.random.Generator
) -> RigidMap:
    """Return the map from known to uploaded rows, found by pairing features with parts of the upload's lattice.

    Raises `DoesNotApply` if some direction of these parts fits no feature.
    """
    steps = _steps(known, rng)
    groups = [group for part in parts if (group := _find_directions(rows, part, steps)) is not None]
    if not groups:
        raise DoesNotApply("No part of the upload's lattice is a feature of the colluders' rows.")
    scores = np.concatenate([group.scores(anchored.agreement, steps) for group in groups], axis=1)
    directions, features = linear_sum_assignment(scores.max(axis=0), maximize=True)
    if directions.size < scores.shape[1] or scores.max(axis=0)[directions, features].min() <= IMPOSSIBLE:
        raise DoesNotApply("The upload's steps differ from those of the colluders' columns.")
    signs = 1.0 - 2.0 * scores[:, directions, features].argmax(axis=0)
    cross, start = anchored.agreement.copy(), 0
    weight = _EXACT * float(np.linalg.norm(cross))
    for group in groups:
        pair = slice(start, start := start + group.steps.size)
        named = (signs[pair, None] * group.steps[:, None]) * np.eye(steps.size)[features[pair]]
        centre = named.mean(axis=0) if group.steps.size > 1 else 0.0
        cross += weight * (named - centre).T @ (group.vectors / group.steps[:, None])
    orthogonal = svd_polar_factor(cross)
    shift = _find_shift((rows - anchored.mean) @ orthogonal.T, known, steps)
    return RigidMap(orthogonal, anchored.mean - shift @ orthogonal)


def _steps(known: Matrix, rng: np.random.Generator) -> Vector:
    """Return the step of each feature of known rows, and 0 for a constant one."""
    steps = np.zeros(known.shape[1])
    for feature, values in enumerate(known.T):
        if np.ptp(values) > 0:
            steps[feature] = abs(float(lattice_basis(values[:, None], rng=rng)[0, 0]))
    return steps


def _find_directions(rows: Matrix, part: Matrix, steps: Vector) -> _Directions | None:
    """Return the directions of a part of the lattice: a line, or a simplex; None if the part is neither.

    A part with one direction is a line if its step fits that of some feature.
    """
    length = float(np.linalg.norm(part[0]))
    if part.shape[0] == 1 and any(step > 0 and common_unit(length, step) > 0 for step in steps.tolist()):
        return _Directions(part / length, np.array([length]))
    try:
        simplex = find_simplex(rows, part)
    except DoesNotApply:
        return None
    return _Directions(simplex.vertices - simplex.vertices.mean(axis=0), np.sqrt(simplex.squared_steps))


def _find_shift(rebuilt: Matrix, known: Matrix, steps: Vector) -> Vector:
    """Return the smallest shift of rebuilt rows onto the grid of known rows; zero for features that lie on no such grid."""
    moving = np.flatnonzero(steps)
    phases = np.exp(2j * np.pi * (known[0] - rebuilt)[:, moving] / steps[moving]).mean(axis=0)
    shift = np.zeros(steps.size)
    shift[moving] = np.where(np.abs(phases) > _ON_A_GRID, np.angle(phases) / (2 * np.pi) * steps[moving], 0.0)
    return shift
