"""Canaries: a measurement of how well the noise on sums hides one row from an attacker who knows all other rows.

The canary is the row that changes the sums most, (√½, √½) in two features. It changes the sums of squares, of the product
and of outcomes, so that wrong noise in any of these sums is detected; of sums by class, it changes those of its own class.
All other rows are known and can be subtracted, so that every draw of the noise on two features is one run of a whole study.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mooring.audit.sums.simulation import words_from
from mooring.mechanisms.sums.class_moments import ClassAccumulator, ClassLayout
from mooring.mechanisms.sums.general.layout import PairwiseAccumulator, PairwiseLayout
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.mechanisms.sums.guarantee import Noise, SumPrivacy, calibrate_products, calibrate_sums
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import SumAccumulator, SumLayout
from mooring.metrics.membership import EpsilonAudit, bound_epsilon, gaussian_epsilon
from mooring.randomness import require_generator
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix

Draws = Sequence[tuple[Noise, Words]]
CANARY = np.full((1, 2), math.sqrt(0.5))
N_RUNS = 10_000
_SMALLEST = 1e-12


def audit_epsilon(
    layout: SumLayout | ClassLayout, privacy: SumPrivacy, *, rng: np.random.Generator, n_runs: int = N_RUNS
) -> EpsilonAudit:
    """Return the ε that canaries measure for the least noise that the guarantee allows for.

    The least noise is that of the honest participants in a quorum to which all assumed colluders belong. `layout` is the
    layout of the study; two of its features are enough for the measurement. `privacy` is the guarantee that is tested. The
    noise is drawn from children of `rng`. With 10,000 runs, the Gaussian bound for correct noise is on average
    53 % of a claimed ε of 1, and 85 % of a claimed ε of 8.

    Examples
    --------
    >>> from mooring.mechanisms.sums.sums import Outcome
    >>> privacy = SumPrivacy(epsilon=8, delta=1e-5, quorum=3, n_colluders=1)
    >>> audit = audit_epsilon(SumLayout(2, Outcome(2)), privacy, rng=np.random.default_rng(0))
    >>> audit.holds, 6 < audit.measured.gaussian < audit.reachable < audit.claimed
    (True, True)
    """
    require_generator(rng)
    layout, honest = replace(layout, n_features=2), privacy.quorum - privacy.n_colluders
    noise: Noise
    if isinstance(layout, SumLayout):
        noise = calibrate_sums(layout, privacy)
        largest = math.sqrt(layout.outcome.largest_norm_squared) / layout.outcome.unit
        on_products, on_outcomes = noise.scales(layout, honest)
        separation = math.hypot(1 / on_products, largest / on_outcomes)
    else:
        noise = calibrate_products(layout, privacy)
        separation = math.sqrt(layout.sensitivity_squared / (honest * noise.on_products))
    draws = [(noise, words_from(generator)) for generator in rng.spawn(honest)]
    included, excluded = run_canaries(layout, draws, n_runs=n_runs)
    return EpsilonAudit(
        privacy.epsilon,
        gaussian_epsilon(separation, privacy.delta),
        bound_epsilon(included, excluded, delta=privacy.delta),
    )


def audit_pairwise_epsilon(privacy: SumPrivacy, *, rng: np.random.Generator, n_runs: int = N_RUNS) -> EpsilonAudit:
    """Return the ε that canaries measure for the noise of the general total, as `audit_epsilon` does.

    The simulated study has two columns of two levels each, so that one row changes every entry of the total.

    Examples
    --------
    >>> privacy = SumPrivacy(epsilon=8, delta=1e-5, quorum=3, n_colluders=1)
    >>> audit = audit_pairwise_epsilon(privacy, rng=np.random.default_rng(0))
    >>> audit.holds, 6 < audit.measured.gaussian < audit.reachable < audit.claimed
    (True, True)
    """
    require_generator(rng)
    columns = tuple(Column(name, "category", categories=("a", "b")) for name in ("x", "y"))
    layout = PairwiseLayout(make_workload(Schema(columns)))
    noise = calibrate_products(layout, replace(privacy, rows_per_person=1))
    honest = privacy.quorum - privacy.n_colluders
    sums = PairwiseAccumulator(layout, rng)
    sums.add(np.array([[1.0, 0.0, 1.0, 0.0]]))
    scales = math.sqrt(noise.on_products) * np.array([1.0, *[math.sqrt(0.5)] * (layout.size - 1)])
    moved = sums.vector / scales
    drawn = np.zeros((n_runs, layout.size))
    for generator in rng.spawn(honest):
        words = words_from(generator)
        drawn += noise.draw_many(layout, words, n_runs) / scales
    included, excluded = _score_runs(moved, drawn)
    separation = float(np.linalg.norm(moved)) / math.sqrt(honest)
    return EpsilonAudit(
        privacy.epsilon,
        gaussian_epsilon(separation, privacy.delta),
        bound_epsilon(included, excluded, delta=privacy.delta),
    )


def run_canaries(
    layout: SumLayout | ClassLayout, honest: Draws, *, n_runs: int, known: Draws = (), canary: Matrix = CANARY
) -> tuple[Matrix, Matrix]:
    """Return the scores of runs with the canary, and the scores of runs without; `n_runs` is the number of both together.

    `layout` must have two features. `honest` is the noise of participants who do not collude. `known` is noise that the
    attacker knows, from colluders or from another study of the same rows. If every stream is used once, the known noise
    gives no information; if a stream is used twice, a regression subtracts what is known of it.

    The score is the log-likelihood ratio for Gaussian noise, up to a constant: the sum, over entries, of the entry times its
    change by the canary, divided by its variance. The variances are estimated from the runs, so that missing noise in one
    entry is detected.
    """
    sums = (
        ClassAccumulator(layout, np.random.default_rng(0))
        if isinstance(layout, ClassLayout)
        else SumAccumulator(layout)
    )
    sums.add(canary, np.ones(1))  # an arbitrary class, or the largest number
    scales = honest[0][0].deviations(layout)
    moved = sums.vector / scales
    drawn = np.sum([source.draw_many(layout, words, n_runs) for source, words in honest], axis=0) / scales
    if known:
        seen = np.column_stack([(source.draw_many(layout, words, n_runs) / scales).ravel() for source, words in known])
        drawn -= (seen @ np.linalg.lstsq(seen, drawn.ravel(), rcond=None)[0]).reshape(drawn.shape)
    return _score_runs(moved, drawn)


def _score_runs(moved: Matrix, drawn: Matrix) -> tuple[Matrix, Matrix]:
    """Return the scores of one half of the runs, to which the canary is added, and the scores of the other half."""
    weights = moved / np.maximum(drawn.var(axis=0), _SMALLEST)
    scores = drawn @ weights
    scores[::2] += float(moved @ weights)
    return scores[::2], scores[1::2]
