"""Parts of a lattice of rows (single columns and one-hot groups), and the statistics of a noisy anchor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.view import Codes, CollusionView
from mooring.geometry.backend import to_numpy
from mooring.geometry.rigid import RigidMap
from mooring.typing import Matrix

SAME = 1e-5
"""Relative difference of steps that counts as rounding."""
IMPOSSIBLE = -1e12
"""Score of an impossible pair."""
_LEAST_NOISE = 1e-3  # smaller anchor noise counts as this
_LARGEST_RATIO = 20


@dataclass(frozen=True, eq=False)
class Line:
    """A part of a lattice with one direction, such as a single column."""

    direction: Matrix
    step: float


@dataclass(frozen=True, eq=False)
class Simplex:
    """A one-hot group: one point per column. The squared distance of two points is the sum of their squared steps."""

    vertices: Matrix
    """The points, of shape (k, h), within the span of the group's part of the lattice."""
    squared_steps: Matrix
    """Squared steps, of shape (k,)."""
    vertex_of: Codes
    """The vertex of each row, of shape (n,)."""


@dataclass(frozen=True, eq=False)
class AnchorStatistics:
    """Statistics of a noisy anchor."""

    agreement: Matrix
    """AᵀB̄ / v², for the anchor A, its centred representation B̄ and the scale v of the anchor noise; of shape (h, h)."""
    mean: Matrix
    """The mean of the uploaded representation, of shape (h,)."""
    precision: float
    """The precision of this mean, r / v², for r anchor rows."""

    def log_likelihood(self, estimate: RigidMap) -> float:
        """Return the log-likelihood of a map given the anchor, up to a constant."""
        gap = estimate.translation - self.mean
        return float(np.sum(self.agreement * estimate.orthogonal) - self.precision / 2 * np.sum(gap * gap))


@dataclass(frozen=True, eq=False)
class LatticeRows:
    """Rows, their classes, and the parts of their lattice."""

    rows: Matrix
    codes: Codes
    lines: tuple[Line, ...]
    simplices: tuple[Simplex, ...]


def summarise_anchor(view: CollusionView) -> AnchorStatistics | None:
    """Return the statistics of the target's anchor representation; None if the attacker knows no anchor."""
    if view.anchor is None or view.target_upload.anchor_representation is None:
        return None
    A, B = to_numpy(view.anchor), to_numpy(view.target_upload.anchor_representation)
    variance = max(view.anchor_noise_scale, _LEAST_NOISE) ** 2
    mean = B.mean(axis=0)
    return AnchorStatistics(A.T @ (B - mean) / variance, mean, A.shape[0] / variance)


def find_simplex(rows: Matrix, part: Matrix) -> Simplex:
    """Return the one-hot group that rows form within the span of a part; other points raise `DoesNotApply`."""
    frame = np.linalg.qr(part.T)[0].T
    coordinates = rows @ frame.T
    points, vertex_of = np.unique(np.round(coordinates, 6), axis=0, return_inverse=True)
    k = points.shape[0]
    beyond = DoesNotApply(
        f"A part of {part.shape[0]} directions is not a one-hot group, so the lattice is not orthogonal."
    )
    if k != part.shape[0] + 1:
        raise beyond
    vertex_of = vertex_of.reshape(-1)
    points = np.stack([coordinates[vertex_of == vertex].mean(axis=0) for vertex in range(k)])
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    total = squares.sum() / (2 * (k - 1))
    steps = (squares.sum(axis=1) - total) / (k - 2) if k > 2 else squares.sum(axis=1) / 2  # two points have equal steps
    fitted = (steps[:, None] + steps) * (1 - np.eye(k))
    if steps.min() <= 0 or np.abs(fitted - squares).max() > SAME * squares.max():
        raise beyond
    return Simplex(points @ frame, steps, vertex_of)


def common_unit(first: float, second: float) -> float:
    """Return the smaller of two steps if the larger is a small multiple of it, else 0.

    The steps of one column may differ by such a factor, because rare values may be missing in a table.
    """
    small, large = sorted((first, second))
    ratio = large / small
    return small if ratio < _LARGEST_RATIO and abs(ratio - round(ratio)) < SAME * ratio else 0.0
