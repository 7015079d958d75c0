"""Canaries: what the noise on sums hides of one row, measured where the attacker knows all the others.

The canary is the row that moves the sums most, (√½, √½) in two features: it moves both diagonal entries of S, the one above
them and T, so noise that is wrong in any block shows. All other rows are known and can be taken off, so that many draws of
the noise on two features are as many runs of a whole study.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mooring.audit.sum_simulation import words_from
from mooring.mechanisms.sums.guarantee import SumNoise, SumPrivacy, calibrate_sums
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import Outcome, SumAccumulator, SumLayout
from mooring.metrics.membership import EpsilonAudit, bound_epsilon, gaussian_epsilon
from mooring.randomness import require_generator
from mooring.typing import Matrix

Draws = Sequence[tuple[SumNoise, Words]]
CANARY = np.full((1, 2), math.sqrt(0.5))
N_RUNS = 10_000
_SMALLEST = 1e-12


def audit_epsilon(
    outcome: Outcome, privacy: SumPrivacy, *, rng: np.random.Generator, n_runs: int = N_RUNS
) -> EpsilonAudit:
    """Run canaries through the noise that a study's honest participants add, as few as its quorum may have.

    Parameters
    ----------
    privacy : SumPrivacy
        What is claimed.
    rng : numpy.random.Generator
        The noise comes from its children.
    n_runs : int
        With 10,000 the Gaussian bound of honest noise is 53 % of a claim of 1 and 85 % of one of 8, in the mean.

    Examples
    --------
    >>> privacy = SumPrivacy(epsilon=8, delta=1e-5, quorum=3, n_colluders=1)
    >>> found = audit_epsilon(Outcome(2), privacy, rng=np.random.default_rng(0))
    >>> found.holds, 6 < found.measured.gaussian < found.reachable < found.claimed
    (True, True)
    """
    require_generator(rng)
    layout = SumLayout(2, outcome)
    noise = calibrate_sums(layout, privacy)
    honest = privacy.quorum - privacy.n_colluders
    draws = [(noise, words_from(generator)) for generator in rng.spawn(honest)]
    included, excluded = run_canaries(layout, draws, n_runs=n_runs)
    scales = noise.scales(layout, honest)
    norms = 1.0, math.sqrt(outcome.largest_norm_squared) / outcome.unit
    separation = math.hypot(*(norm / scale for norm, scale in zip(norms, scales, strict=True)))
    return EpsilonAudit(
        privacy.epsilon,
        gaussian_epsilon(separation, privacy.delta),
        bound_epsilon(included, excluded, delta=privacy.delta),
    )


def run_canaries(
    layout: SumLayout, honest: Draws, *, n_runs: int, known: Draws = (), canary: Matrix = CANARY
) -> tuple[Matrix, Matrix]:
    """Scores of runs with the canary, and of as many without.

    Parameters
    ----------
    layout : SumLayout
        Of two features.
    honest : sequence of (SumNoise, stream of words)
        What those add who do not collude.
    n_runs : int
        Of both kinds together.
    known : sequence of (SumNoise, stream of words)
        Noise that the attacker knows or saw elsewhere: colluders' own, or that of another study of the same rows. It tells
        nothing if every stream is used once; otherwise regression takes it off.
    canary : array of shape (1, 2)

    Notes
    -----
    The score is the likelihood ratio of Gaussian noise: every entry by what the canary moves it, over its variance. The
    attacker learns that from runs of its own, so noise that one entry lacks is not made up for by the others'.
    """
    sums = SumAccumulator(layout)
    sums.add(canary, np.ones(1))  # a class as good as any other, or the largest number
    noise = honest[0][0]
    scales = np.full(layout.size, math.sqrt(noise.on_outcomes))
    scales[: layout.n_products] = np.sqrt(noise.on_products * np.array([1, 0.5, 1]))
    moved = sums.vector / scales
    drawn = sum(source.draw_many(layout, words, n_runs) for source, words in honest) / scales
    if known:
        seen = np.column_stack([(source.draw_many(layout, words, n_runs) / scales).ravel() for source, words in known])
        drawn -= (seen @ np.linalg.lstsq(seen, drawn.ravel(), rcond=None)[0]).reshape(drawn.shape)
    weights = moved / np.maximum(drawn.var(axis=0), _SMALLEST)
    scores = drawn @ weights
    scores[::2] += float(moved @ weights)
    return scores[::2], scores[1::2]
