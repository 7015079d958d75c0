"""Value of one: a feature that a single honest row carries discloses that row, with its label.

Legend: q the features of a row as integers, B the resolution, S = Σ q qᵀ and T = Σ q yᵀ over the honest rows.

A hat function at the end of a range, or a rare category, may be zero in all rows but one. Then S[j, :] = q_j q, so that
‖S[j, :]‖² = S[j, j] ‖q‖² with ‖q‖ ≤ B, and T[j, :] = q_j y. If several rows carry the feature, S[j, :] is usually longer,
because the features of different rows overlap at least in the constant, and √S[j, j] divides S[j, :] only by chance.
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.view import LabelledFeatures, MembershipScores, SumView


def value_of_one(view: SumView, *, rng: np.random.Generator) -> MembershipScores:
    """Read off each row that alone carries some feature; score candidates by minus the squared distance to the nearest."""
    if view.noise is not None:
        raise DoesNotApply("Noise hides which features a single row carries.")
    rows = _read_rows(view)
    if not len(rows.features):
        raise DoesNotApply("Every feature is carried by more than one honest row, or by none.")
    asked, known = (view.joint_features(part) for part in (view.candidates, rows))
    squares = (asked**2).sum(axis=1)[:, None] + (known**2).sum(axis=1) - 2 * asked @ known.T
    return MembershipScores(-np.maximum(squares, 0.0).min(axis=1), rows)


def _read_rows(view: SumView) -> LabelledFeatures:
    """Return each row that alone carries some feature, once."""
    layout, sums = view.layout, view.honest
    S = np.rint(sums.products * layout.resolution**2)
    T = np.rint(sums.outcomes * layout.resolution * layout.outcome.unit)
    squares = S.diagonal()
    q = np.sqrt(squares)
    lone = (squares > 0) & (q == np.rint(q)) & ((S**2).sum(axis=1) <= squares * layout.resolution**2)
    divisor = np.where(lone, q, 1.0)[:, None]
    features, outcomes = S / divisor, T / divisor
    both = np.hstack([features, outcomes])
    lone &= (both == np.rint(both)).all(axis=1)
    sign = np.where(S[:, -1:] < 0, -1.0, 1.0)  # the constant, which is last, is positive
    rows = np.unique(
        np.hstack([sign * features / layout.resolution, sign * outcomes / layout.outcome.unit])[lone], axis=0
    )
    return LabelledFeatures(rows[:, : layout.n_features], rows[:, layout.n_features :])
