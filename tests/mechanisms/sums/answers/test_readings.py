"""Intervals of ratios are those of Fieller and of Wilson; numbers and p are written as people write them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from mooring.mechanisms.sums.answers.answer import Source, write_number, write_p
from mooring.mechanisms.sums.answers.readings import Readings, Z, find_p_value, find_ratio_interval, find_share_interval
from tests.raising import numbers_in

EVERYWHERE = (-np.inf, np.inf)


def read(x: float, y: float, xx: float = 0.0, xy: float = 0.0, yy: float = 0.0) -> Readings:
    return Readings(np.array([x, y]), np.array([[xx, xy], [xy, yy]]))


@given(
    st.floats(-200, 200), st.floats(20, 200), st.floats(0.1, 9), st.floats(0.1, 9), st.floats(-0.9, 0.9),
    st.floats(0, 50), st.floats(-1, 1), st.floats(0, 1),
)  # fmt: skip
def test_at_the_ends_the_deviation_is_as_large_as_chance_makes_it(
    x: float, y: float, sx: float, sy: float, r: float, a: float, b: float, c: float
) -> None:
    noise = (sx**2, r * sx * sy, sy**2)
    ends = find_ratio_interval(read(x, y, *noise), (a, b, c))
    if not y**2 > Z**2 * (sy**2 + c):
        assert np.isnan(ends).all()
        return
    assert ends[0] <= x / y <= ends[1]
    for end in ends:
        variance = noise[0] - 2 * end * noise[1] + end**2 * noise[2] + a + b * end + c * end**2
        assert (x - end * y) ** 2 == pytest.approx(Z**2 * variance, rel=1e-5, abs=1e-4)


@pytest.mark.parametrize(("count", "n"), [(0, 40), (3, 40), (40, 40), (5_000, 9_000)])
def test_a_share_without_noise_has_the_interval_of_wilson(count: int, n: int) -> None:
    middle = (count + Z**2 / 2) / (n + Z**2)
    half = Z / (n + Z**2) * math.sqrt(count * (n - count) / n + Z**2 / 4)
    assert find_share_interval(read(count, n)) == pytest.approx((middle - half, middle + half), abs=1e-12)


@pytest.mark.parametrize(
    ("ratio", "within", "expected"),
    [
        ((50.0, 100.0, 100.0), (0.4, 0.6), (0.4, 0.6)),  # wider than what is possible
        ((70.0, 100.0, 100.0), EVERYWHERE, (0.7 - Z / 10, 0.7 + Z / 10)),
        ((70.0, 100.0, 100.0), (0.0, 0.6), (0.7 - Z / 10, 0.6)),
        ((90.0, 100.0, 100.0), (0.0, 0.6), (0.6 - Z / 10, 0.6)),  # that of the nearest numerator, 60
        ((-90.0, 100.0, 100.0), (0.0, 1.0), (0.0, Z / 10)),
        ((0.0, 100.0), (0.0, 1.0), (0.0, 0.0)),
        ((100.0, 100.0), (0.0, 1.0), (1.0, 1.0)),
    ],
)
def test_an_interval_is_cut_to_what_is_possible(
    ratio: tuple[float, ...], within: tuple[float, float], expected: tuple[float, float]
) -> None:
    assert find_ratio_interval(read(*ratio), (0.0, 0.0, 0.0), within) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("y", "yy"), [(0.0, 0.0), (-5.0, 1.0), (5.0, 25.0 / Z**2)])
def test_a_ratio_to_what_may_be_zero_has_no_interval(y: float, yy: float) -> None:
    assert np.isnan(find_ratio_interval(read(1.0, y, 1.0, 0.0, yy), (0.0, 0.0, 0.0))).all()
    if yy:
        assert np.isfinite(find_ratio_interval(read(1.0, 5.0, 1.0, 0.0, 0.999 * 25 / Z**2), (0.0, 0.0, 0.0))).all()


def test_rounding_of_a_part_in_a_million_million_does_not_take_an_interval_away() -> None:
    """Without noise, both ends of an interval are the ratio, and rounding may put them a little beyond each other."""

    def is_one_place(a: float) -> bool:
        return find_ratio_interval(read(50.0, 100.0), (-a, 0.0, 0.0), (0.0, 1.0)) != (0.0, 1.0)

    turn = math.exp(brentq(lambda log: is_one_place(math.exp(log)) - 0.5, math.log(1e-11), math.log(1e-7), xtol=1e-6))
    assert Z**2 * turn / 50.0**2 == pytest.approx(1e-12, rel=1e-3, abs=0)


def test_an_estimate_without_a_standard_error_has_no_p() -> None:
    assert math.isnan(find_p_value(1.0, 0.0, 5.0))
    assert find_p_value(-1e-9, 1e-9, 1.0) == pytest.approx(0.5)  # Cauchy's quartile


@pytest.mark.parametrize(
    ("value", "digits", "written"),
    [
        *((999.4, 3, "999"), (1000.0, 3, "1,000"), (12_345.6, 4, "12,346"), (1000.0, 4, "1000"), (0.0, 3, "0")),
        *((-0.0, 3, "0"), (-0.0123456, 3, "-0.0123"), (1.0, 3, "1.00"), (9.996, 3, "10.00"), (0.5, 1, "0.5")),
    ],
)
def test_a_number_is_written_with_so_many_digits(value: float, digits: int, written: str) -> None:
    assert write_number(value, digits) == written
    assert write_number(value) == write_number(value, 3)


@pytest.mark.parametrize(
    ("p", "written"),
    [(1.0, "1.00"), (0.12, "0.12"), (0.1, "0.10"), (0.0999, "0.100"), (0.0123, "0.012"), (0.001, "0.001")],
)
def test_a_p_is_written_with_two_or_three_digits(p: float, written: str) -> None:
    assert write_p(p) == written
    assert write_p(0.00099) == write_p(0.0) == "<0.001"


def test_a_source_states_the_rows_with_what_the_noise_makes_of_them_and_the_guarantee() -> None:
    assert numbers_in(str(Source(1234.4, 100.0, 2.0, 1e-5, "row", ""))) == {1234, 196, 2, 1e-5}
    noisy = Source(-3.0, 100.0, 2.0, 1e-5, "person", "Nobody was honest.")
    assert numbers_in(str(noisy)) == {0, 196, 2, 1e-5}
    assert str(noisy).endswith("for one person. Nobody was honest.")
    assert numbers_in(str(Source(77.0, 0.0, None, None, "row", ""))) == {77}
