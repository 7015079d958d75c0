"""Odds ratios: where the rows are known, their equations are those of a logistic regression with a normal prior."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import expit

from mooring.errors import InputError
from mooring.mechanisms.sums.answers import odds_ratios
from mooring.mechanisms.sums.answers.mixture import Mixture
from mooring.mechanisms.sums.answers.odds_ratios import OddsRatios, estimate_odds_ratios
from mooring.mechanisms.sums.answers.readings import Z
from mooring.mechanisms.sums.answers.regression import (
    DesignColumn,
    Spread,
    make_design,
    measure_noise,
    read_normal_equations,
)
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Vector
from tests.mechanisms.sums.answers.support import differentiate

COLUMNS = (
    Column("arm", "category", categories=("a", "b", "c")),
    Column("score", "integer", 0, 6),
    Column("ill", "category", categories=("no", "yes")),
)
WORKLOAD, N = make_workload(Schema(COLUMNS)), 400
FORMULA = "ill ~ arm + score"


def draw_rows(seed: int = 0) -> tuple[PairwiseTotal, Matrix, Vector]:
    """The total, the terms of its rows, and their outcomes."""
    rng = np.random.default_rng(seed)
    arm, score = rng.choice(3, N, p=[0.5, 0.3, 0.2]), rng.integers(0, 7, N)
    ill = (rng.random(N) < expit(-1 + 0.7 * (arm == 1) - 0.9 * (arm == 2) + 0.4 * (score - 3))).astype(int)
    place = score / 3 - 1
    total = sum_exactly(WORKLOAD, np.hstack([np.eye(3)[arm], place[:, None], np.eye(2)[ill]]))
    return total, np.column_stack([np.ones(N), arm == 1, arm == 2, place]).astype(float), ill.astype(float)


def test_the_solution_is_the_most_likely_one_under_the_prior() -> None:
    total, z, y = draw_rows()
    equations = read_normal_equations(total, make_design(total, FORMULA))
    solution = odds_ratios._solve(equations, z)
    precision = np.array([0.0, *[1 / 2.5**2] * 3])

    def lose(beta: Vector) -> float:
        return float(np.logaddexp(0, z @ beta).sum() - y @ z @ beta + (precision * beta**2).sum() / 2)

    fitted = minimize(lose, np.zeros(4), method="BFGS", options={"gtol": 1e-8}).x
    np.testing.assert_allclose(solution.coefficients, fitted, atol=1e-5)
    p = expit(z @ fitted)
    hessian = (z.T * (p * (1 - p))) @ z + np.diag(precision)
    np.testing.assert_allclose(solution.inverse, np.linalg.inv(hessian), rtol=1e-4, atol=1e-8)
    constants = [solution.find_spread(equations, k).constant for k in range(4)]
    np.testing.assert_allclose(constants, np.diag(np.linalg.inv(hessian)), rtol=1e-4)


def test_noise_moves_the_solution_as_is_stated() -> None:
    total, z, _ = draw_rows()
    total = replace(total, noise_variance=3.0)
    design = make_design(total, FORMULA)
    equations = read_normal_equations(total, design)
    solution = odds_ratios._solve(equations, z)

    def solve(moved: PairwiseTotal) -> Vector:
        return odds_ratios._solve(
            replace(read_normal_equations(moved, design), n_rows=equations.n_rows), z
        ).coefficients

    noise = np.diag(differentiate(total, solve, 1e-3))
    sampling = np.diag(solution.inverse @ solution.hessian @ solution.inverse)
    spreads = [solution.find_spread(equations, k) for k in range(4)]
    np.testing.assert_allclose([spread.constant for spread in spreads], sampling + noise, rtol=1e-4)
    assert (noise > 0.05 * sampling).all()


def test_the_variance_of_an_estimate_is_that_at_the_true_value_beside_it() -> None:
    """By how much an estimate varies if the true one is x above it, others moving with it: by equations that x moves."""
    total, z, _ = draw_rows()
    total = replace(total, noise_variance=0.5)
    equations = read_normal_equations(total, make_design(total, FORMULA))
    solution, x = odds_ratios._solve(equations, z), 0.2
    for k in range(1, 4):
        spread, row = solution.find_spread(equations, k), solution.inverse[k]
        N = odds_ratios.residual_weights(solution.linear) @ equations.readings.noise
        N = N @ odds_ratios.residual_weights(solution.linear).T
        covariance = solution.inverse @ (solution.hessian + N) @ solution.inverse
        moved = solution.linear + x * solution.slope * covariance[:, k] / covariance[k, k]
        weights = row @ odds_ratios.residual_weights(moved)
        expected = row @ solution.hessian @ row + weights @ equations.readings.noise @ weights
        at = spread.constant + spread.linear * x + spread.square * x**2
        assert at == pytest.approx(expected, rel=1e-6)


def test_an_interval_has_each_value_that_lies_within_its_own_standard_errors() -> None:
    for spread in (Spread(0.04, 0.0, 0.0), Spread(0.04, 0.03, 0.05), Spread(0.5, -0.2, 0.2)):
        low, high = spread.find_interval(1.5, Z)
        for end in (low, high):
            x = end - 1.5
            assert x**2 == pytest.approx(Z**2 * (spread.constant + spread.linear * x + spread.square * x**2))
        assert low < 1.5 < high
    assert np.isnan(Spread(0.04, 0.0, 1 / Z**2).find_interval(1.5, Z)).all()
    assert np.isfinite(Spread(0.04, 0.0, 0.999 / Z**2).find_interval(1.5, Z)).all()
    variance = 0.04 - 0.03 * 0.5 + 0.05 * 0.25  # at a true value of zero
    assert Spread(0.04, 0.03, 0.05).find_p(0.5, math.inf) == pytest.approx(math.erfc(0.5 / math.sqrt(2 * variance)))


def test_a_ratio_of_a_unit_that_is_far_larger_than_the_range_is_finite() -> None:
    column = DesignColumn("x", "", "", WORKLOAD.constant, scale=1e-3)
    ratio = odds_ratios._state_ratio(column, 2.0, Spread(0.04, 0.0, 0.0), 0.0)
    assert 1e300 < ratio.low == ratio.odds_ratio == ratio.high < math.inf
    ratio = odds_ratios._state_ratio(column, -2.0, Spread(0.04, 0.0, 0.0), 0.0)
    assert ratio.low == ratio.odds_ratio == ratio.high == 0


@pytest.fixture
def known_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """The distribution of the rows itself, in place of a mixture that is fitted to them."""
    rows = np.random.default_rng(0)
    arm, score = rows.choice(3, N, p=[0.5, 0.3, 0.2]), rows.integers(0, 7, N)
    tables = {"arm": np.eye(3)[arm], "score": np.eye(7)[score], "ill": np.tile([0.6, 0.4], (N, 1))}

    def fit(total: PairwiseTotal) -> Mixture:
        columns = total.workload.columns
        return Mixture(
            total.workload, np.full(N, 1 / N), tuple(tables[levels.name] for levels in columns), (0.0,) * len(columns)
        )

    monkeypatch.setattr(odds_ratios, "fit_mixture", fit)


@pytest.mark.usefixtures("known_mixture")
def test_ratios_are_of_one_unit_or_of_a_level_against_the_first() -> None:
    total, z, _ = draw_rows()
    answer = estimate_odds_ratios(total, FORMULA)
    equations = read_normal_equations(total, make_design(total, FORMULA))
    solution = odds_ratios._solve(equations, z)
    assert [(ratio.term, ratio.level, ratio.reference) for ratio in answer.ratios] == [
        ("arm", "b", "a"), ("arm", "c", "a"), ("score", "", "")
    ]  # fmt: skip
    assert answer.outcome == "ill = yes"
    for k, ratio in enumerate(answer.ratios, start=1):
        unit = 3 if ratio.term == "score" else 1  # the score is scaled to a range from −1 to 1
        coefficient, error = solution.coefficients[k], math.sqrt(solution.inverse[k, k])
        assert math.log(ratio.odds_ratio) * unit == pytest.approx(coefficient, abs=0.1 * error)
        assert math.log(ratio.high / ratio.low) * unit == pytest.approx(2 * Z * error, rel=0.03)
        assert ratio.p == pytest.approx(math.erfc(abs(coefficient) / error / math.sqrt(2)), rel=0.3, abs=1e-9)
        assert abs(ratio.bias) < 0.3


@pytest.mark.usefixtures("known_mixture")
def test_noise_that_a_regression_does_not_bear_is_refused() -> None:
    total, _, _ = draw_rows()
    equations = read_normal_equations(replace(total, noise_variance=1.0), make_design(total, "ill ~ score"))
    most = (0.5 / measure_noise(equations)) ** 2
    estimate_odds_ratios(replace(total, noise_variance=0.4 * most), "ill ~ score")
    with pytest.raises(InputError) as caught:
        estimate_odds_ratios(replace(total, noise_variance=1.02 * most), "ill ~ score")
    assert caught.value.what == "formula"


@pytest.mark.usefixtures("known_mixture")
def test_an_interval_without_an_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    total, _, _ = draw_rows()
    monkeypatch.setattr(odds_ratios._Solution, "find_spread", lambda *_: Spread(0.04, 0.0, 0.0))
    assert len(estimate_odds_ratios(total, "ill ~ score").ratios) == 1
    monkeypatch.setattr(odds_ratios._Solution, "find_spread", lambda *_: Spread(0.04, 0.0, 1.0))
    with pytest.raises(InputError) as caught:
        estimate_odds_ratios(total, "ill ~ score")
    assert caught.value.what == "formula"


@pytest.mark.usefixtures("known_mixture")
def test_odds_ratios_are_given_up_to_a_bias_of_half_a_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    total, _, _ = draw_rows()
    bias = np.array([5.0, 0.1, -0.3, 0.2])

    def ask(factor: float) -> OddsRatios | None:
        monkeypatch.setattr(odds_ratios, "_measure_bias", lambda *_: factor * bias)
        try:
            return estimate_odds_ratios(total, FORMULA)
        except InputError:
            return None

    turn = brentq(lambda factor: float(ask(factor) is None) - 0.5, 1e-3, 10, xtol=1e-5)
    given = ask(turn * (1 - 1e-4))
    assert given is not None
    assert max(abs(ratio.bias) for ratio in given.ratios) == pytest.approx(0.5, rel=1e-3)
    assert [np.sign(ratio.bias) for ratio in given.ratios] == [1, -1, 1]
