"""The (ε, δ) that noise on sums carries, and the noise that each participant adds for it.

Legend: m the most rows a person has; B, Y the largest norms of a quantised row's features and outcome; S, T the sums;
σ_S², σ_T² the variance of the noise on the total; a the share of the budget that S gets; c the colluders.

Adding or removing a person moves (S, T) by at most m (B², BY), each measured with independent discrete Gaussian noise, of
variance σ_S² on the diagonal of S and σ_S²/2 above it, since the norm counts those entries twice. That is ρ-zCDP with

    ρ = ½ m² (B⁴/σ_S² + B² Y²/σ_T²),

the zCDP of the discrete Gaussian being at most that of the continuous one (Canonne, Kamath and Steinke 2020). ε follows from
ρ and δ through the Rényi curve αρ, by the accounting library. Every participant adds 1/(quorum − c) of the variance:
whatever list of at least `quorum` contributions is opened, those of the honest ones on it carry the whole. A sum of discrete
Gaussians is not quite one, but from a standard deviation of four units each on it is within 10⁻⁶⁷ times the number of
contributions (Kairouz, Liu and Steinke 2021).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.mechanisms.sums.discrete_gaussian import draw_discrete_gaussians
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import Integers, SumLayout

PRODUCT_SHARE = 0.4
MOST_NUMBERS_A_ROW = 0.1
"""Without noise, a total has at most this many numbers for each row of a quorum.

An attacker who has a register of candidates solves for who is in it: with as many numbers as rows, members were told from
others with an area of 0.78 to 0.82; with a tenth as many, 0.60 to 0.63 (docs/privacy.md). That is no guarantee."""
_LEAST_SCALE = 4  # units of a participant's own noise
_FALSE_ALARMS = 0.01
_ORDERS = 1 + np.geomspace(1e-2, 1e4, 600)


@dataclass(frozen=True)
class SumPrivacy:
    """What a study of sums promises, and to whom."""

    epsilon: float
    delta: float
    """For adding or removing one unit."""
    quorum: int
    """The least number of contributions in a total that is opened."""
    n_colluders: int
    """c: how many participants may collude with the analyst and leave their noise out."""
    rows_per_person: int = 1
    """m: with 1, and no column that names persons, the unit is a row."""
    product_share: float = PRODUCT_SHARE
    """a."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError(
                "epsilon", expected="positive", got=str(self.epsilon), cure="Values from 0.5 to 8 are usual."
            )
        if not 0 < self.delta < 1:
            raise InputError(
                "delta", expected="between 0 and 1", got=str(self.delta), cure="Well below one over the number of rows."
            )
        if not 0 <= self.n_colluders < self.quorum:
            expected, got = f"above the number of colluders, {self.n_colluders}", str(self.quorum)
            raise InputError("quorum", expected=expected, got=got, cure="Somebody honest must be in every total.")
        if self.rows_per_person < 1:
            raise InputError("rows_per_person", expected="1 or more", got=str(self.rows_per_person), cure="State it.")
        if not 0 < self.product_share < 1:
            raise InputError("product_share", expected="between 0 and 1", got=str(self.product_share), cure="0.4.")


@dataclass(frozen=True)
class SumNoise:
    """The variance of the discrete Gaussian noise that one participant adds, in squares of the integers' unit."""

    on_products: int
    """On the diagonal of S. Entries above it get half of it."""
    on_outcomes: int
    """On T."""

    def draw(self, layout: SumLayout, words: Words) -> Integers:
        """Draw the noise on the vector of sums."""
        return np.asarray(self.draw_many(layout, words, 1)[0])

    def draw_many(self, layout: SumLayout, words: Words, n_draws: int) -> Integers:
        """Draw the noise on so many vectors of sums, of shape (n_draws, size)."""
        rows, columns = np.triu_indices(layout.n_features)
        on_diagonal, n_outcomes = rows == columns, layout.size - layout.n_products
        noise = np.empty((n_draws, layout.size), dtype=np.int64)
        products = noise[:, : layout.n_products]
        for entries, variance in ((on_diagonal, self.on_products), (~on_diagonal, Fraction(self.on_products, 2))):
            drawn = draw_discrete_gaussians(words, Fraction(variance), n_draws * int(entries.sum()))
            products[:, entries] = drawn.reshape(n_draws, -1)
        drawn = draw_discrete_gaussians(words, Fraction(self.on_outcomes), n_draws * n_outcomes)
        noise[:, layout.n_products :] = drawn.reshape(n_draws, -1)
        return noise

    def scales(self, layout: SumLayout, n_contributions: int) -> tuple[float, float]:
        """Return σ_S and σ_T on the total of so many contributions, in the units that `SumLayout.unpack` gives."""
        S = math.sqrt(n_contributions * self.on_products) / layout.resolution**2
        return S, math.sqrt(n_contributions * self.on_outcomes) / (layout.resolution * layout.outcome.unit)


@lru_cache(maxsize=64)
def calibrate_sums(layout: SumLayout, privacy: SumPrivacy) -> SumNoise:
    """Return the least noise that keeps a promise; variances are rounded up to whole numbers.

    Examples
    --------
    >>> from mooring.mechanisms.sums.sums import Outcome
    >>> privacy = SumPrivacy(epsilon=1, delta=1e-5, quorum=20, n_colluders=1)
    >>> layout = SumLayout(65, Outcome(10))
    >>> [round(scale, 2) for scale in calibrate_sums(layout, privacy).scales(layout, 19)]
    [6.4, 4.95]
    """
    from dp_accounting import GaussianDpEvent
    from dp_accounting.mechanism_calibration import calibrate_dp_mechanism

    multiplier = calibrate_dp_mechanism(_accountant, GaussianDpEvent, privacy.epsilon, privacy.delta)
    products, outcomes = _sensitivities(layout, privacy)
    honest = privacy.quorum - privacy.n_colluders
    noise = SumNoise(
        math.ceil(Fraction(multiplier) ** 2 * products / Fraction(privacy.product_share) / honest),
        math.ceil(Fraction(multiplier) ** 2 * outcomes / (1 - Fraction(privacy.product_share)) / honest),
    )
    if min(noise.on_products / 2, noise.on_outcomes) < _LEAST_SCALE**2:
        raise InputError(
            "resolution",
            expected="fine enough for a participant's own noise to have a standard deviation of four units",
            got=f"{layout.resolution}",
            cure="Raise it: with less, the sum of everybody's discrete noise is no discrete Gaussian.",
        )
    return noise


def _accountant() -> Any:
    from dp_accounting.rdp import RdpAccountant

    return RdpAccountant(_ORDERS)


def _sensitivities(layout: SumLayout, privacy: SumPrivacy) -> tuple[int, int]:
    """The squares by which one unit moves S and T: m² B⁴ and m² B² Y²."""
    squared = (privacy.rows_per_person * layout.resolution) ** 2
    return squared * layout.resolution**2, squared * layout.outcome.largest_norm_squared


def state_odds(epsilon: float, delta: float, unit: str = "row") -> str:
    """Say what ε and δ mean for any test of membership: its true positive rate is at most e^ε times its false one, plus δ.

    Examples
    --------
    >>> state_odds(1, 1e-5)
    'Any test for whether a given row is in the data, with 1% false alarms, finds at most 2.72% of those that are, and its \
answer multiplies the odds by 2.72 at most.'
    """
    factor = bound_odds(epsilon, delta)
    found = round_up(100 * min(1.0, factor * _FALSE_ALARMS))
    return (
        f"Any test for whether a given {unit} is in the data, with {_FALSE_ALARMS:.0%} false alarms, finds at most {found}% "
        f"of those that are, and its answer multiplies the odds by {round_up(factor)} at most."
    )


def bound_odds(epsilon: float, delta: float) -> float:
    """By what the answer of a test for membership multiplies the odds at most, at 1 % false alarms: e^ε + δ/1 %."""
    return math.exp(min(epsilon, 50.0)) + delta / _FALSE_ALARMS


def round_up(value: float) -> str:
    """Write a bound with three digits, never lower than it is."""
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{math.ceil(round(value * 10**digits, 6)) / 10**digits:,.{digits}f}"
