"""Class of one: if only one honest row has a certain label, the sum of features over that class is the row itself."""

from __future__ import annotations

import math

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.view import MembershipScores, SumView

_CLEAR = 0.25  # standard deviation up to which a count of one differs clearly from zero and two


def class_of_one(view: SumView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by minus the squared distance of a candidate's features from the sum over the honest rows of its class.

    The score is NaN if the class does not have exactly one honest row.
    """
    sums, K = view.class_sums(), view.layout.outcome.n_classes
    on_products, on_outcomes = view.honest.noise_scales
    share = 1 / 2 if K == 2 else 1.0  # the factor of T, the sums with labels, in a class's sum
    scale = math.hypot(share * on_outcomes, on_products / math.sqrt(2) / view.constant / K)
    if scale > _CLEAR * view.constant:
        raise DoesNotApply("Noise hides the number of rows of each class.")
    counts = sums[-1] / view.constant
    alone = np.abs(counts - 1) < 0.5
    if not alone.any():
        raise DoesNotApply("Every class has more than one honest row, or none.")
    candidates = view.candidates
    codes = (candidates.outcomes[:, 0] > 0).astype(np.intp) if K == 2 else candidates.outcomes.argmax(axis=1)
    distances = ((candidates.features - sums[:, codes].T) ** 2).sum(axis=1)
    return MembershipScores(np.where(alone[codes], -distances, np.nan))
