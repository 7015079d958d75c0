"""The discrete Gaussian: its law, to the last decision."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from mooring.errors import InputError
from mooring.mechanisms.sums.discrete_gaussian import draw_below, draw_discrete_gaussians, draw_events
from tests.mechanisms.sums.test_secret_sharing import words_from, words_of
from tests.raising import raising

N = 200_000


@pytest.mark.parametrize(
    "variance", [Fraction(1, 5), Fraction(1), Fraction(20, 3), Fraction(2500), Fraction(10**14, 7)]
)
def test_numbers_follow_the_law(variance: Fraction) -> None:
    """Chi-square over some forty cells of like weight at level 10⁻⁴; numbers 5 % too large are noticed."""
    draws, sigma = draw_discrete_gaussians(words_of(1), variance, N), math.sqrt(variance)
    if sigma > 1000:  # the sum over a cell is the integral, to far below what N draws can tell
        edges = np.ceil(sigma * stats.norm.ppf(np.linspace(0, 1, 41)[1:-1]))
        chances = np.diff(stats.norm.cdf((edges - 0.5) / sigma), prepend=0, append=1)
    else:
        reach = math.ceil(12 * sigma) + 3
        weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * float(variance)))
        law = np.cumsum(weights / weights.sum())
        edges = np.unique(np.searchsorted(law, np.linspace(0, 1, 41)[1:-1])) - reach
        chances = np.diff(law[edges + reach - 1], prepend=0, append=1)
    counts = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=edges.size + 1)
    assert stats.chisquare(counts, N * chances).pvalue > 1e-4
    if sigma > 20:
        wide = np.bincount(np.searchsorted(edges, np.rint(1.05 * draws), side="right"), minlength=edges.size + 1)
        assert stats.chisquare(wide, N * chances).pvalue < 1e-4


def test_signs_and_neighbours_are_independent() -> None:
    draws = draw_discrete_gaussians(words_of(2), Fraction(10**6), N).astype(float)
    for lag in (1, 2, 7, 1000):
        assert abs(np.corrcoef(draws[:-lag], draws[lag:])[0, 1]) < 4 / math.sqrt(N)
    assert abs((draws > 0).mean() - (draws < 0).mean()) < 4 / math.sqrt(N)
    with mock.patch("mooring.mechanisms.sums.discrete_gaussian.draw_events", wraps=draw_events) as drawn:
        draw_discrete_gaussians(words_of(1), Fraction(20, 3), 50)
    for _, x, exact in (call.args for call in drawn.call_args_list):  # what decides is what is drawn
        assert [float(exact(k)) for k in range(x.size)] == pytest.approx(x.tolist(), rel=1e-12)


def near_half(thirds: int) -> Fraction:
    """x of a chance that lies so many thirds of 2⁻¹²⁸ above a half: 64 bits of it are not enough."""
    with localcontext() as context:
        context.prec = 120
        return -Fraction((Decimal(1) / 2 + Decimal(thirds) / 3 / 2**128).ln())


@pytest.mark.parametrize("exponent", [*(Fraction(x) for x in (1, "1/3", "22/7", 30)), near_half(301), near_half(-301)])
def test_a_word_that_does_not_decide_is_followed_by_others(exponent: Fraction) -> None:
    with localcontext() as context:
        context.prec = 120
        chance = (Decimal(-exponent.numerator) / exponent.denominator).exp() * 2**192
    first, second, third = (int(chance) >> shift & (2**64 - 1) for shift in (128, 64, 0))
    x = np.array([float(exponent)])

    def happened(*words: int) -> bool:
        return bool(draw_events(words_from(*words), x, lambda _: exponent)[0])

    assert happened(first, second - 1)
    assert not happened(first, second + 1)
    assert happened(first, second, third - 1)
    assert not happened(first, second, third + 1)
    assert happened(max(0, first - 2**40)) or first < 2**40
    assert not happened(first + 2**40)


def test_an_incomplete_round_of_words_is_drawn_again() -> None:
    whole = 2**64 // 10 * 10
    assert draw_below(words_from(whole - 1, whole, 2**64 - 1, 7, 3), 10, 3).tolist() == [9, 7, 3]
    assert draw_below(words_from(2**64 - 1, 5), 4, 2).tolist() == [3, 1]


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(2**97)])
def test_no_variance_is_refused(variance: Fraction) -> None:
    with raising(InputError, "variance"):
        draw_discrete_gaussians(words_of(0), variance, 3)
