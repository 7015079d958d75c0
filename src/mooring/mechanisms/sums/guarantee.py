"""The (ε, δ) guarantee of noise on sums, and the noise that each participant adds.

Legend: m the maximum number of rows of a person; Δ_S, Δ_T the largest changes of the sums S and T by one row; σ_S², σ_T² the
variance of the noise on the total; a the share of the budget for S; c the number of colluders; N the number of sums.

Adding or removing a person changes (S, T) by at most m (Δ_S, Δ_T). S and T are released with independent discrete Gaussian
noise. Its variance is σ_T² on T, σ_S² on the diagonal of S, and σ_S²/2 above the diagonal, since the norm counts the entries
above it twice. The general total has one matrix like S and no T; sums by class have one such matrix per class and no T.

Rounded continuous noise would give the guarantee of the Gaussian mechanism: because sums are integers, adding rounded noise
is the same as rounding the noisy sums, which is post-processing. That guarantee is (ε, δ′)-differential privacy with the
exact δ′ of Balle and Wang (2018), where μ = m √(Δ_S²/σ_S² + Δ_T²/σ_T²) is the distance of neighbours in standard deviations.
A discrete Gaussian of variance σ² differs from a rounded Gaussian by at most 1/(24 σ²) in total variation
(docs/privacy.md). N such numbers differ by at most τ = Σ 1/(24 σ²), so that δ = δ′ + (1 + e^ε) τ. In units of the integers,
σ is so large that the term with τ is negligible up to an ε of about ten. Where this term is not negligible, the noise
follows from ρ-zCDP of the discrete Gaussian, ρ = μ²/2 (Canonne, Kamath and Steinke 2020).

Every participant adds 1/(quorum − c) of the variance, so that the honest contributions in any total of at least `quorum`
contributions carry the whole variance. A sum of discrete Gaussians is not exactly a discrete Gaussian, but if each has a
standard deviation of at least four units, the difference is below 10⁻⁶⁷ times the number of contributions (Kairouz, Liu and
Steinke 2021).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_ndtr, ndtr

from mooring.errors import InputError
from mooring.mechanisms.sums.discrete_gaussian import draw_discrete_gaussians
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import Integers, SumLayout
from mooring.metrics.membership import gaussian_epsilon
from mooring.typing import Vector

NoiseT = TypeVar("NoiseT", bound="Noise")

PRODUCT_SHARE = 0.5
"""Default share of the privacy budget for S. It is not chosen by looking at rows, because such a choice would disclose
something about them. On tables that appear in none of mooring's results, shares from 0.3 to 0.65 gave the same area under
the ROC curve to within 0.008."""
MOST_NUMBERS_A_ROW = 0.1
"""Maximum number of sums in a total without noise, as a multiple of the least number of rows in a quorum.

An attacker with a register of candidates can solve equations for the members, and succeeds more often if there are more sums
per row. This limit is not a guarantee."""
_LEAST_SCALE = 4  # minimum standard deviation of a participant's noise, in units
_FALSE_ALARMS = 0.01
_LARGEST_EXACT = 20.0  # the largest ε for which the exact accounting is used
_LARGEST_SPENT = 0.01  # share of δ that the difference of discrete and rounded noise may take up
_SAFE = 1 + 1e-6  # above rounding errors of the accounting


@dataclass(frozen=True)
class SumPrivacy:
    """The guarantee of a study of secure sums."""

    epsilon: float
    """ε for adding or removing one unit."""
    delta: float
    """δ for adding or removing one unit."""
    quorum: int
    """Minimum number of contributions in a total."""
    n_colluders: int
    """c, the number of participants who may collude with the analyst and omit their noise."""
    rows_per_person: int = 1
    """m. If it is 1 and no column names persons, the unit is a row."""
    product_share: float = PRODUCT_SHARE
    """a, the share of the budget for S."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.epsilon) and self.epsilon > 0):
            raise InputError("epsilon", expected="positive", got=str(self.epsilon), cure="Usual values are 0.5 to 8.")
        if not 0 < self.delta < 1:
            raise InputError(
                "delta",
                expected="between 0 and 1",
                got=str(self.delta),
                cure="Choose it well below one over the number of rows.",
            )
        if not 0 <= self.n_colluders < self.quorum:
            expected, got = f"above the number of colluders, {self.n_colluders}", str(self.quorum)
            raise InputError(
                "quorum", expected=expected, got=got, cure="Every total must include at least one honest participant."
            )
        if self.rows_per_person < 1:
            raise InputError(
                "rows_per_person",
                expected="1 or more",
                got=str(self.rows_per_person),
                cure="Use the maximum number of rows of a person.",
            )
        if not 0 < self.product_share < 1:
            raise InputError(
                "product_share", expected="between 0 and 1", got=str(self.product_share), cure="0.5 is the default."
            )


@dataclass(frozen=True)
class Noise(ABC):
    """The discrete Gaussian noise of one participant on a vector of sums; variances are in squared units of the integers.

    Every `layout` that is passed must be the layout for which the noise was calibrated.
    """

    on_products: int
    """Variance on the diagonals of matrices of products; entries off the diagonal get half of this variance."""

    @abstractmethod
    def variances(self, layout: Any) -> list[tuple[npt.NDArray[np.bool_], Fraction]]:
        """Return pairs of a mask and a variance: the numbers under the mask get noise of this variance."""

    def draw(self, layout: Any, words: Words) -> Integers:
        """Return the noise for one vector of sums."""
        return np.asarray(self.draw_many(layout, words, 1)[0])

    def draw_many(self, layout: Any, words: Words, n_draws: int) -> Integers:
        """Return the noise for several vectors of sums, of shape (n_draws, size)."""
        noise = np.empty((n_draws, layout.size), dtype=np.int64)
        for entries, variance in self.variances(layout):
            drawn = draw_discrete_gaussians(words, variance, n_draws * int(entries.sum()))
            noise[:, entries] = drawn.reshape(n_draws, -1)
        return noise

    def deviations(self, layout: Any) -> Vector:
        """Return the standard deviation of each number of the vector, in units of the integers."""
        variances = np.empty(layout.size)
        for entries, variance in self.variances(layout):
            variances[entries] = float(variance)
        return np.asarray(np.sqrt(variances))

    def bound_distance(self, layout: Any, honest: int) -> float:
        """Return τ, a bound on the total variation between the noise of `honest` participants and rounded Gaussian noise."""
        return float(sum(int(entries.sum()) / (24 * honest * variance) for entries, variance in self.variances(layout)))


@dataclass(frozen=True)
class SumNoise(Noise):
    """The noise of one participant on S and T."""

    on_outcomes: int
    """Variance on T."""

    def variances(self, layout: SumLayout) -> list[tuple[npt.NDArray[np.bool_], Fraction]]:
        """Return masks and variances for the diagonal of S, for the entries above the diagonal, and for T."""
        is_product = np.arange(layout.size) < layout.n_products
        on_diagonal = np.zeros(layout.size, dtype=np.bool_)
        on_diagonal[: layout.n_products] = np.equal(*np.triu_indices(layout.n_features))
        return [
            (on_diagonal, Fraction(self.on_products)),
            (is_product & ~on_diagonal, Fraction(self.on_products, 2)),
            (~is_product, Fraction(self.on_outcomes)),
        ]

    def scales(self, layout: SumLayout, n_contributions: int) -> tuple[float, float]:
        """Return σ_S and σ_T for a total of `n_contributions` contributions, in the units of `SumLayout.unpack`."""
        S = math.sqrt(n_contributions * self.on_products) / layout.resolution**2
        return S, math.sqrt(n_contributions * self.on_outcomes) / (layout.outcome_resolution * layout.outcome.unit)


@lru_cache(maxsize=64)
def calibrate_sums(layout: SumLayout, privacy: SumPrivacy) -> SumNoise:
    """Return the smallest noise that provides a guarantee; variances are rounded up to integers.

    An `InputError` is raised if a participant's noise would have a standard deviation of less than four units.

    Examples
    --------
    >>> from mooring.mechanisms.sums.sums import Outcome
    >>> privacy = SumPrivacy(epsilon=1, delta=1e-5, quorum=20, n_colluders=1)
    >>> layout = SumLayout(65, Outcome(10))
    >>> [round(scale, 2) for scale in calibrate_sums(layout, privacy).scales(layout, 19)]
    [5.28, 5.01]
    """
    products, outcomes = _sensitivities(layout, privacy)
    honest, share = privacy.quorum - privacy.n_colluders, Fraction(privacy.product_share)

    def make(multiplier: float) -> SumNoise:
        squared = Fraction(multiplier) ** 2 / honest
        return SumNoise(math.ceil(squared * products / share), math.ceil(squared * outcomes / (1 - share)))

    noise = _find_noise(privacy, layout, make)
    if min(noise.on_products / 2, noise.on_outcomes) < _LEAST_SCALE**2:
        raise InputError(
            "resolution",
            expected="fine enough for a participant's noise to have a standard deviation of four units",
            got=f"{layout.resolution}",
            cure="Lower epsilon. Otherwise the sum of all participants' noise is not close to a discrete Gaussian.",
        )
    return noise


class ProductLayout(Protocol):
    """The layout of a vector of products with equal noise, except that entries off a diagonal get half of the variance."""

    @property
    def size(self) -> int:
        """The length of the vector, N."""

    @property
    def on_diagonal(self) -> npt.NDArray[np.bool_]:
        """Which numbers of the vector are on a diagonal."""

    @property
    def sensitivity_squared(self) -> int:
        """The square of the largest change by one row, in squared units of the integers."""


class ProductNoise(Noise):
    """The noise of one participant on products alone."""

    def variances(self, layout: ProductLayout) -> list[tuple[npt.NDArray[np.bool_], Fraction]]:
        """Return masks and variances for the entries on a diagonal and for those off it."""
        on_diagonal = layout.on_diagonal
        return [(on_diagonal, Fraction(self.on_products)), (~on_diagonal, Fraction(self.on_products, 2))]


@lru_cache(maxsize=64)
def calibrate_products(layout: ProductLayout, privacy: SumPrivacy) -> ProductNoise:
    """Return the smallest noise on products alone that provides a guarantee; `product_share` is not used.

    In units of the integers, this noise is always far above the minimum of four units, so that no check is needed.
    """
    honest, squared = privacy.quorum - privacy.n_colluders, privacy.rows_per_person**2 * layout.sensitivity_squared
    return _find_noise(
        privacy, layout, lambda multiplier: ProductNoise(math.ceil(Fraction(multiplier) ** 2 * squared / honest))
    )


def _find_noise(privacy: SumPrivacy, layout: Any, make: Callable[[float], NoiseT]) -> NoiseT:
    """Return the noise for a guarantee; `make` returns the noise for a multiple of the sensitivity.

    Of δ, (1 + e^ε) τ is spent on the difference between discrete and rounded noise, where τ is `Noise.bound_distance`. If ε
    is large or this is too much of δ, the noise follows from ρ-zCDP instead.
    """
    if privacy.epsilon <= _LARGEST_EXACT:
        noise = make(calibrate_multiplier(privacy.epsilon, privacy.delta))
        distance = noise.bound_distance(layout, privacy.quorum - privacy.n_colluders)
        spent = (1 + math.exp(privacy.epsilon)) * distance  # an upper bound, since the final noise is larger
        if spent <= _LARGEST_SPENT * privacy.delta:
            return make(calibrate_multiplier(privacy.epsilon, privacy.delta - spent))
    roots = math.sqrt(privacy.epsilon - math.log(privacy.delta)) - math.sqrt(-math.log(privacy.delta))  # √ρ
    return make(_SAFE / (math.sqrt(2) * roots))


@lru_cache(maxsize=64)
def find_lone_epsilon(privacy: SumPrivacy) -> float:
    """Return the ε that a contribution has if it is opened alone; it carries 1/(quorum − c) of the variance.

    If this ε is large, a bound by ρ-zCDP is returned instead.

    Examples
    --------
    >>> round(find_lone_epsilon(SumPrivacy(epsilon=1, delta=1e-5, quorum=20, n_colluders=1)), 1)
    5.2
    """
    multiplier = calibrate_multiplier(privacy.epsilon, privacy.delta)
    separation = math.sqrt(privacy.quorum - privacy.n_colluders) / multiplier
    exact = gaussian_epsilon(separation, privacy.delta)
    rho = separation**2 / 2
    return exact if exact <= _LARGEST_EXACT else rho + 2 * math.sqrt(-rho * math.log(privacy.delta))


@lru_cache(maxsize=256)
def calibrate_multiplier(epsilon: float, delta: float) -> float:
    """Return the smallest standard deviation of Gaussian noise that is (ε, δ)-private, in units of the sensitivity.

    Examples
    --------
    >>> round(calibrate_multiplier(1, 1e-5), 3)
    3.731
    """
    low, high = 0.0, 1.0  # bounds of μ, the distance of neighbours in standard deviations
    while _exact_delta(epsilon, high) < delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _exact_delta(epsilon, middle) < delta else (low, middle)
    return _SAFE / low


def _exact_delta(epsilon: float, separation: float) -> float:
    """Return the exact δ at ε of Gaussian noise if neighbours are `separation` standard deviations apart."""
    above, below = separation / 2 - epsilon / separation, -separation / 2 - epsilon / separation
    return float(ndtr(above) - math.exp(min(epsilon + float(log_ndtr(below)), 0.0)))


def _sensitivities(layout: SumLayout, privacy: SumPrivacy) -> tuple[int, int]:
    """Return the squared sensitivities of S and T in integers: m² B⁴ and m² R² Y²."""
    m, B, R = privacy.rows_per_person, layout.resolution, layout.outcome_resolution
    return m**2 * B**4, m**2 * R**2 * layout.outcome.largest_norm_squared


def state_odds(epsilon: float, delta: float, unit: str = "row") -> str:
    """Return a sentence on what ε and δ mean for a test of membership: its true positive rate is at most e^ε FPR + δ.

    Examples
    --------
    >>> state_odds(1, 1e-5)
    'Any membership test at 1% false positives recognises at most 2.72% of the rows in the data, and its answer multiplies \
the odds by 2.72 at most.'
    """
    factor = bound_odds(epsilon, delta)
    share = round_up(100 * min(1.0, factor * _FALSE_ALARMS))
    return (
        f"Any membership test at {_FALSE_ALARMS:.0%} false positives recognises at most {share}% of the {unit}s in the "
        f"data, and its answer multiplies the odds by {round_up(factor)} at most."
    )


def state_belief(epsilon: float, delta: float, unit: str = "row") -> str:
    """Return a sentence on what ε and δ mean for an attacker's beliefs.

    The odds that a unit is in the data change by a factor of at most e^ε, and the odds between two values of the unit by at
    most e^2ε: to exchange one value for another is to remove a unit and to add one, so that ε counts twice.

    Examples
    --------
    >>> state_belief(1, 1e-5, "person")
    'Whatever an attacker already believes about a person, the odds that the person is in the data change by at most 2.72 \
times, and the odds between two values that the person may have by at most 7.39 times, apart from rare events that δ = \
0.00001 accounts for.'
    """
    odds, between = (round_up(math.exp(min(factor * epsilon, 50.0))) for factor in (1, 2))
    return (
        f"Whatever an attacker already believes about a {unit}, the odds that the {unit} is in the data change by at most "
        f"{odds} times, and the odds between two values that the {unit} may have by at most {between} times, apart from "
        f"rare events that δ = {write_small(delta)} accounts for."
    )


def bound_odds(epsilon: float, delta: float) -> float:
    """Return the largest factor by which a membership test at 1 % false positives multiplies the odds: e^ε + δ/1 %."""
    return math.exp(min(epsilon, 50.0)) + delta / _FALSE_ALARMS


def bound_share(epsilon: float, delta: float, false_alarms: float = _FALSE_ALARMS) -> float:
    """Return the largest share of members that a test recognises at a false positive rate: e^ε FPR + δ, at most 1."""
    return min(1.0, math.exp(min(epsilon, 50.0)) * false_alarms + delta)


def write_small(value: float) -> str:
    """Return a small number as people write it: 0.00001 and not 1e-05. Numbers below 10⁻¹⁰ are written as 1e-12."""
    return f"{value:.12f}".rstrip("0") if value >= 1e-10 else f"{value:g}"


def round_up(value: float) -> str:
    """Return a bound as text, rounded up to three significant digits, or to an integer if it is 100 or more."""
    digits = max(0, 2 - math.floor(math.log10(value)))
    return f"{math.ceil(round(value * 10**digits, 6)) / 10**digits:,.{digits}f}"
