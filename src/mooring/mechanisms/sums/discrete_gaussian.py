"""An exact sampler of the discrete Gaussian for arrays, from any stream of uniform words.

Legend: N_Z(0, σ²) the discrete Gaussian, under which the integer y has a probability proportional to exp(−y²/2σ²);
t = ⌊σ⌋ + 1.

The algorithm is that of Canonne, Kamath and Steinke (2020): a discrete Laplace number of scale t is accepted with
probability exp(−(|y| − σ²/t)²/2σ²). It needs only uniform integers and events of probability exp(−x) for rational x. To
decide such an event, a uniform word is compared with exp(−x) in floating point if the two clearly differ. Otherwise, which
happens about once in 10¹¹ events, further words are drawn, and as many digits of exp(−x) are computed as necessary. Every
decision is therefore exact, and no probability is rounded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.mechanisms.sums.prime_field import Words

_UNCLEAR = 1e-11  # relative; far above the rounding errors of exp and of its argument, which is less than 1000
LARGEST_VARIANCE = 2**96
"""The largest σ² for which numbers are drawn."""


def draw_discrete_gaussians(words: Words, variance: Fraction, count: int) -> npt.NDArray[np.int64]:
    """Return `count` independent numbers from N_Z(0, σ²), where σ² is `variance`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> draw_discrete_gaussians(lambda n: rng.integers(2**64, size=n, dtype=np.uint64), Fraction(9), 6)
    array([ 0,  4, -1, -1, -2, -2])
    """
    if not 0 < variance <= LARGEST_VARIANCE:
        raise InputError("variance", expected="above 0 and at most 2⁹⁶", got=str(variance), cure="Check its unit.")
    drawn, open_places = np.zeros(count, dtype=np.int64), np.arange(count)
    while open_places.size:
        numbers, kept = _try_once(words, variance, open_places.size)
        drawn[open_places[kept]] = numbers[kept]
        open_places = open_places[~kept]
    return drawn


def _try_once(words: Words, variance: Fraction, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return candidates and a mask of those that are accepted; accepted candidates follow N_Z(0, σ²)."""
    t = math.isqrt(math.floor(variance)) + 1
    small = draw_below(words, t, count)
    kept = draw_events(words, small / t, lambda k: Fraction(int(small[k]), t))
    magnitude = small + t * _draw_geometric(words, count)
    negative = (words(count) & np.uint64(1)).astype(np.bool_)
    kept &= ~(negative & (magnitude == 0))  # zero would be counted twice
    centre, width = variance / t, 2 * variance
    exponents = np.square(magnitude - float(centre), dtype=np.float64) / float(width)
    kept &= draw_events(words, exponents, lambda k: (int(magnitude[k]) - centre) ** 2 / width)
    return np.where(negative, -magnitude, magnitude), kept


def _draw_geometric(words: Words, count: int) -> npt.NDArray[np.int64]:
    """Return `count` geometric numbers: how many events of probability exp(−1) happen in a row before one does not."""
    counts, running = np.zeros(count, dtype=np.int64), np.arange(count)
    while running.size:
        running = running[draw_events(words, np.ones(running.size), lambda _: Fraction(1))]
        counts[running] += 1
    return counts


def draw_below(words: Words, bound: int, count: int) -> npt.NDArray[np.int64]:
    """Return uniform integers from 0 to `bound` − 1, which is at most 2⁶². Words that would cause a bias are redrawn."""
    whole_rounds = 2**64 - 2**64 % bound
    drawn = words(count)
    while whole_rounds < 2**64 and (rejected := np.flatnonzero(drawn >= np.uint64(whole_rounds))).size:
        drawn[rejected] = words(rejected.size)
    return (drawn % np.uint64(bound)).astype(np.int64)


def draw_events(
    words: Words, exponents: npt.NDArray[np.float64], exact: Callable[[int], Fraction]
) -> npt.NDArray[np.bool_]:
    """Return which events of probability exp(−x) happen; `exponents` approximates x, and `exact` returns x as a fraction."""
    drawn = words(exponents.size)
    uniform, chance = drawn * 2.0**-64, np.exp(-exponents)
    happened = uniform < chance
    for k in np.flatnonzero(np.abs(uniform - chance) <= _UNCLEAR * chance + 2.0**-64):  # one unit for the unseen bits
        happened[k] = _decide(int(drawn[k]), exact(int(k)), words)
    return happened


def _decide(drawn: int, exponent: Fraction, words: Words) -> bool:
    """Return whether the uniform number that begins with the word `drawn` is below exp(−x)."""
    bits = 64
    while True:
        context = Context(prec=20 + bits // 3)
        chance = Fraction(context.exp(context.divide(-exponent.numerator, exponent.denominator))) * 2**bits
        slack = chance / 10 ** (context.prec - 5)  # bounds the rounding errors of exp and, times x, of the quotient
        low, high = chance - slack, chance + slack
        if drawn + 1 <= low:
            return True
        if drawn >= high:
            return False
        drawn, bits = (drawn << 64) + int(words(1)[0]), bits + 64
