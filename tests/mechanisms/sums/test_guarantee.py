"""The accountant of sums: how much noise a guarantee takes, to the limits of its formulas, and what it means in words."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from mooring.mechanisms.sums.class_moments import ClassLayout
from mooring.mechanisms.sums.guarantee import (
    ProductNoise,
    SumNoise,
    SumPrivacy,
    bound_share,
    calibrate_multiplier,
    calibrate_products,
    calibrate_sums,
    find_lone_epsilon,
    round_up,
    state_belief,
    state_odds,
    write_small,
)
from mooring.mechanisms.sums.sums import Outcome, SumLayout
from tests.raising import numbers_in

LAYOUT = ClassLayout(9, 3)  # B² = 2³⁴


def promise(epsilon: float = 1.0, delta: float = 1e-5, **options: Any) -> SumPrivacy:
    return SumPrivacy(epsilon, delta, **{"quorum": 6, "n_colluders": 2} | options)


def exact_delta(epsilon: float, separation: float) -> float:
    """δ of Balle and Wang, of neighbours that are so many standard deviations apart."""
    first = ndtr(separation / 2 - epsilon / separation)
    return float(first - math.exp(epsilon + log_ndtr(-separation / 2 - epsilon / separation)))


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-9), (0.1, 1e-3), (1.0, 1e-5), (5.0, 1e-12), (20.0, 1e-6)])
def test_the_multiplier_is_the_least_of_the_exact_formula(epsilon: float, delta: float) -> None:
    separation = brentq(lambda mu: exact_delta(epsilon, mu) / delta - 1, 1e-4, 30, xtol=1e-13)
    above = calibrate_multiplier(epsilon, delta) * separation - 1
    assert above == pytest.approx(1e-6, rel=0.1)  # of which rounding errors of the formula take less than a tenth


@pytest.mark.parametrize("honest", [1, 3])
def test_the_distance_of_discrete_noise_is_bounded_by_the_sum_over_all_numbers(honest: int) -> None:
    sums = SumLayout(7, Outcome(3))
    for noise, layout in ((SumNoise(400, 90), sums), (ProductNoise(400), LAYOUT)):
        variances = noise.deviations(layout) ** 2  # type: ignore[arg-type]
        assert noise.bound_distance(layout, honest) == pytest.approx((1 / (24 * honest * variances)).sum())  # type: ignore[arg-type]
        assert len(variances) == layout.size
        products = variances[: layout.n_products] if isinstance(layout, SumLayout) else variances
        diagonal = np.equal(*np.triu_indices(layout.n_features))
        repeats = 1 if isinstance(layout, SumLayout) else layout.n_classes
        np.testing.assert_allclose(products, np.tile(np.where(diagonal, 400, 200), repeats))
    np.testing.assert_allclose(SumNoise(400, 90).deviations(sums)[sums.n_products :] ** 2, 90)


def separation_of(noise: ProductNoise, privacy: SumPrivacy) -> float:
    honest = privacy.quorum - privacy.n_colluders
    return privacy.rows_per_person * LAYOUT.resolution**2 / math.sqrt(honest * noise.on_products)


@pytest.mark.parametrize(("delta", "resolution"), [(1e-5, 2**9), (1e-9, 2**10)])
def test_what_discreteness_costs_is_spent_of_delta_up_to_a_hundredth_and_zcdp_takes_over(
    delta: float, resolution: int
) -> None:
    layout = ClassLayout(9, 3, resolution)

    def account(epsilon: float) -> tuple[float, float, float]:
        """What discreteness spends of δ, δ in all, and ε by zCDP, of the noise that is added."""
        privacy = promise(epsilon, delta)
        noise = calibrate_products(layout, privacy)
        mu = layout.resolution**2 / math.sqrt(4 * noise.on_products)
        spent = (1 + math.exp(epsilon)) * noise.bound_distance(layout, 4)
        return (
            spent / delta,
            (exact_delta(epsilon, mu) + spent) / delta,
            mu**2 / 2 + mu * math.sqrt(-2 * math.log(delta)),
        )

    def is_exact(epsilon: float) -> float:
        return float(account(epsilon)[2] > 1.01 * epsilon) - 0.5

    turn = brentq(is_exact, 1.0, 19.0, xtol=1e-9)
    spent, total, _ = account(turn - 1e-6)
    assert spent == pytest.approx(0.01, rel=1e-2)
    assert total == pytest.approx(1.0, rel=1e-4)
    assert total <= 1
    assert account(turn + 1e-6)[2] == pytest.approx(turn, rel=1e-5)


def test_the_exact_accounting_is_used_up_to_an_epsilon_of_twenty() -> None:
    at, beyond = (calibrate_products(LAYOUT, promise(epsilon)) for epsilon in (20.0, 20.0001))
    assert exact_delta(20.0, separation_of(at, promise())) == pytest.approx(1e-5, rel=1e-3)
    rho = separation_of(beyond, promise()) ** 2 / 2
    assert rho + 2 * math.sqrt(-rho * math.log(1e-5)) == pytest.approx(20.0001, rel=1e-5)
    assert beyond.on_products > 1.02 * at.on_products
    sums = SumLayout(3, Outcome(2), 2**17)
    assert calibrate_sums(sums, promise(20.0001)).on_products > 1.02 * calibrate_sums(sums, promise(20.0)).on_products


@pytest.mark.parametrize(("quorum", "rows"), [(3, 1), (6, 1), (20, 3), (40, 1), (200, 1)])
def test_one_contribution_alone_has_the_epsilon_of_its_own_noise(quorum: int, rows: int) -> None:
    privacy = promise(quorum=quorum, rows_per_person=rows)
    separation = math.sqrt(quorum - 2) / calibrate_multiplier(1.0, 1e-5)
    exact = brentq(lambda epsilon: exact_delta(epsilon, separation) - 1e-5, 1e-3, 200)
    rho = separation**2 / 2
    expected = exact if exact <= 20 else rho + 2 * math.sqrt(-rho * math.log(1e-5))
    assert (exact > 20) == (quorum == 200)
    assert find_lone_epsilon(privacy) == pytest.approx(expected, rel=1e-4)


def test_bounds_for_membership_tests_and_beliefs_are_those_of_epsilon_and_delta() -> None:
    assert bound_share(1.0, 1e-3) == pytest.approx(0.01 * math.e + 1e-3)
    assert bound_share(1.0, 1e-3, 0.1) == pytest.approx(0.1 * math.e + 1e-3)
    assert bound_share(8.0, 0.0) == 1
    assert bound_share(2.0, 0.5, 0.1) == 1
    assert bound_share(60.0, 0.0, 1e-30) == pytest.approx(1e-30 * math.exp(50))
    assert numbers_in(state_odds(4.0, 1e-5)) == {1, 54.6}
    assert numbers_in(state_odds(8.0, 1e-5)) == {1, 100, 2_981}
    assert numbers_in(state_belief(0.5, 1e-7)) == {1.65, 2.72, 1e-7}
    assert f"{math.exp(50):,.0f}"[:5] in state_belief(40.0, 1e-7)


@pytest.mark.parametrize(
    ("value", "written"),
    [(1e-5, "0.00001"), (2.5e-7, "0.00000025"), (1e-10, "0.0000000001"), (9.9e-11, "9.9e-11"), (0.1, "0.1")],
)
def test_a_small_number_is_written_without_an_exponent_where_it_can_be(value: float, written: str) -> None:
    assert write_small(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0, "1.00"),
        (2.72, "2.72"),
        (2.7200001, "2.73"),
        (2.720000001, "2.72"),
        (2.72001, "2.73"),
        (99.91, "100.0"),
        (100.0, "100"),
        (0.1, "0.100"),
    ],
)
def test_a_bound_has_three_digits(value: float, written: str) -> None:
    assert round_up(value) == written
