"""Synthetic rows: a row close to a synthetic row is likelier to be in the sums that the synthetic rows were drawn from.

The attacker draws synthetic rows from the total, as `mooring synthesize` does, and scores a candidate by its distance from
the nearest one. This detects a generator that repeats the rows it was made from.
"""

from __future__ import annotations

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import MembershipScores
from mooring.mechanisms.sums.answers.mixture import fit_mixture
from mooring.mechanisms.sums.answers.readings import LEAST_SIGNAL

_MOST_ROWS = 5_000


def synthetic_rows(view: PairwiseView, *, rng: np.random.Generator) -> MembershipScores:
    """Score by minus the squared distance of a candidate's weights on all levels from those of the nearest synthetic row."""
    total, workload = view.honest, view.layout.workload
    scale = workload.resolution / workload.constant_integer
    if not total.n_rows > max(LEAST_SIGNAL * total.noise_variance**0.5 * scale**2, 0.5):
        raise DoesNotApply("Under the noise it cannot be known whether the total has any rows.")
    mixture = fit_mixture(total)
    drawn = mixture.weigh_places(mixture.draw_places(min(round(total.n_rows), _MOST_ROWS), rng))
    rows = view.candidates.features[:, : workload.n_levels]
    squares = (rows**2).sum(axis=1)[:, None] + (drawn**2).sum(axis=1) - 2 * rows @ drawn.T
    return MembershipScores(-np.maximum(squares, 0.0).min(axis=1))
