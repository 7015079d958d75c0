"""Answers are given up to stated limits: of rows, of the noise in standard errors, and of what intervals may cover."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import brentq

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.answer import Answer
from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.correlation import Moments, read_moments
from mooring.mechanisms.sums.answers.description import describe
from mooring.mechanisms.sums.answers.readings import Z, read_products
from mooring.mechanisms.sums.answers.regression import (
    Regression,
    make_design,
    measure_noise,
    read_normal_equations,
    regress,
)
from mooring.mechanisms.sums.answers.survival import estimate_survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, MissingRule, Schema
from mooring.typing import Vector
from tests.mechanisms.sums.answers.support import differentiate
from tests.mechanisms.sums.answers.test_noise import WORKLOAD, draw_total

TOTAL = draw_total(0.0)
N_ROWS = round(TOTAL.n_rows)


def scale(total: PairwiseTotal, factor: float) -> PairwiseTotal:
    """So many times the rows, under the same noise."""
    return replace(total, matrix=factor * total.matrix)


def with_variance(total: PairwiseTotal, variance: float) -> PairwiseTotal:
    return replace(total, noise_variance=variance)


def find_turn(is_given: Callable[[float], bool], low: float, high: float) -> float:
    """Where an answer turns from refused to given or back."""
    turn = brentq(lambda x: is_given(math.exp(x)) - 0.5, math.log(low), math.log(high), xtol=1e-9)
    return math.exp(turn)


def is_answered(ask: Callable[[], Answer]) -> bool:
    try:
        ask()
    except InputError:
        return False
    return True


def count_rows(total: PairwiseTotal, column: str, values: list[float]) -> tuple[float, float]:
    """The rows with some levels of a column, and the standard error of their number under noise of variance one."""
    workload = total.workload
    function = workload.functional(column, values) if column else workload.constant
    count = read_products(with_variance(total, 1.0), [(function, workload.constant)])
    return float(count.values[0]), float(count.errors[0])


LEAST_ROWS: dict[str, tuple[Callable[[PairwiseTotal], bool], tuple[str, list[float]]]] = {
    "all rows": (lambda total: is_answered(lambda: describe(total)), ("", [])),
    "a group": (lambda total: "c" in describe(total, by="arm").groups, ("arm", [0.0, 0.0, 1.0])),
    "a level of a regression": (
        lambda total: "c" in [term.level for term in regress(total, "score ~ arm").terms],
        ("arm", [0.0, 0.0, 1.0]),
    ),
    "a level of a test": (
        lambda total: associate(total, ["arm", "site"]).tests[0].degrees_of_freedom == 2,
        ("arm", [0.0, 0.0, 1.0]),
    ),
    "rows at risk": (
        lambda total: is_answered(lambda: estimate_survival(total)) and len(estimate_survival(total).points) == 3,
        ("weeks × status", [0.0] * 4 + [1.0] * 3),
    ),
}


@pytest.mark.parametrize("name", LEAST_ROWS)
def test_half_a_row_is_enough_without_noise(name: str) -> None:
    """The total is scaled to fractions of rows, since no whole number of rows is near the limit."""
    is_given, counted = LEAST_ROWS[name]
    total = draw_rare() if name != "all rows" else TOTAL
    share = count_rows(total, *counted)[0] / total.n_rows
    turn = find_turn(lambda n: is_given(scale(total, n / total.n_rows)), 0.1 / share, 100 / share)
    assert turn * share == pytest.approx(0.5, rel=1e-6)


def draw_rare() -> PairwiseTotal:
    """A total in which one row in two hundred is in the third arm, and one is followed for longer than twenty weeks."""
    rng, n = np.random.default_rng(1), 2_000
    arm = np.where(np.arange(n) % 200 == 0, 2, rng.integers(0, 2, n))
    dose, weeks = rng.integers(0, 3, n) - 1.0, np.where(np.arange(n) % 200 == 7, 40, rng.integers(1, 21, n))
    words = [np.eye(3)[arm], np.eye(2)[rng.integers(0, 2, n)]]
    rows = [*words, rng.integers(0, 4, n)[:, None] / 1.5 - 1, dose[:, None], np.zeros((n, 1)), weeks[:, None] / 20 - 1]
    return sum_exactly(WORKLOAD, np.hstack([*rows, np.eye(2)[rng.integers(0, 2, n)]]))


@pytest.mark.parametrize(("name", "n_errors"), [*((name, 4.0) for name in [*LEAST_ROWS][:-1]), ("rows at risk", 2.0)])
def test_under_noise_counts_are_several_standard_errors(name: str, n_errors: float) -> None:
    is_given, counted = LEAST_ROWS[name]
    total = draw_rare() if name != "all rows" else TOTAL
    count, error = count_rows(total, *counted)
    expected = (count / (n_errors * error)) ** 2
    turn = find_turn(lambda variance: is_given(with_variance(total, variance)), expected / 3, 3 * expected)
    assert turn == pytest.approx(expected, rel=1e-6)


def test_the_first_number_at_risk_is_four_standard_errors() -> None:
    """Almost everybody dies at once, so that the noise leaves something to say of the share that survives."""
    rows = np.repeat([[1, 0, 0, 1, 0, -1, 0, 0, -0.75, 0, 1], [1, 0, 0, 1, 0, -1, 0, 0, 1, 1, 0]], [960, 40], axis=0)
    total = sum_exactly(WORKLOAD, rows.astype(float))
    count, error = count_rows(total, "weeks × status", [1.0] * 7)
    expected = (count / (4 * error)) ** 2
    turn = find_turn(
        lambda variance: is_answered(lambda: estimate_survival(with_variance(total, variance))),
        expected / 2,
        2 * expected,
    )
    assert turn == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("statistic", "column", "width"), [("share", "site", 0.8), ("mean", "score", 0.8 * 3)])
def test_an_estimate_is_shown_up_to_an_interval_of_four_fifths_of_what_is_possible(
    statistic: str, column: str, width: float
) -> None:
    def entry(n: float) -> tuple[bool, float]:
        statistics = describe(scale(TOTAL, n / N_ROWS), columns=[column]).statistics
        found = next(entry for entry in statistics if entry.statistic == statistic)
        return math.isnan(found.estimate), found.high - found.low

    turn = find_turn(lambda n: entry(n)[0], 1.1, 50)
    assert entry(turn)[1] == pytest.approx(width, rel=1e-6)


def test_a_mean_needs_more_than_one_row_and_a_standard_deviation_two_errors() -> None:
    def shown(total: PairwiseTotal, statistic: str) -> bool:
        entries = describe(total, columns=["score"]).statistics
        return not math.isnan(next(entry for entry in entries if entry.statistic == statistic).estimate)

    rows = np.repeat(
        [[1, 0, 0, 1, 0, 1 / 3, 0, 0, 1, 1, 0], [1, 0, 0, 1, 0, -1 / 3, 0, 0, 1, 1, 0]], [900, 100], axis=0
    )
    narrow = sum_exactly(WORKLOAD, rows)
    assert find_turn(lambda n: shown(scale(narrow, n / 1000), "mean"), 0.6, 50) == pytest.approx(1.0, rel=1e-6)
    number, constant = narrow.workload.number("score"), narrow.workload.constant
    squares = narrow.workload.functional("score", number.values**2)

    def vary(moved: PairwiseTotal) -> list[float]:
        q, x, y = read_products(moved, [(function, constant) for function in (squares, number, constant)]).values
        return [q / y - (x / y) ** 2]

    error = math.sqrt(differentiate(with_variance(narrow, 1.0), vary)[0, 0])
    turn = find_turn(lambda variance: shown(with_variance(narrow, variance), "sd"), 1e-2, 1e3)
    assert turn == pytest.approx((0.09 / (2 * error)) ** 2, rel=1e-4)


def test_a_regression_needs_more_rows_than_coefficients_and_one() -> None:
    turn = find_turn(lambda n: is_answered(lambda: regress(scale(TOTAL, n / N_ROWS), "score ~ site")), 2.1, 50)
    assert turn == pytest.approx(3.0, rel=1e-6)


@pytest.mark.parametrize("variance", [0.0, 0.002])
def test_a_correlation_is_shown_where_its_interval_without_correlation_is_narrow_enough(variance: float) -> None:
    levels = [TOTAL.workload.column(name) for name in ("score", "site")]

    def ask(n: float) -> PairwiseTotal:
        return with_variance(scale(TOTAL, n / N_ROWS), variance)

    turn = find_turn(lambda n: bool(associate(ask(n), ["score", "site"]).correlations), 4, 500)
    moments = read_moments(ask(turn), *levels)
    assert isinstance(moments, Moments)
    _, v, w = moments.readings.values
    spread = moments.readings.noise[0, 0] / (v * w) + 1 / turn
    assert Z * math.sqrt(spread) == pytest.approx(0.4, rel=1e-6)
    assert bool(variance) == (turn > 24.1)


def test_the_noise_on_a_regression_is_measured_as_the_largest_mean_square_in_units_of_the_matrix() -> None:
    total = with_variance(TOTAL, 1.0)
    design = make_design(total, "site ~ score")
    equations = read_normal_equations(total, design)
    values, vectors = np.linalg.eigh(equations.matrix)
    root = vectors / np.sqrt(values) @ vectors.T
    p, mean = equations.n_terms, np.zeros_like(root)
    for j, k in zip(*np.nonzero(np.triu(total.workload.shared)), strict=True):
        moved = np.zeros_like(total.matrix)
        moved[j, k] = moved[k, j] = 1.0
        W = root @ read_normal_equations(replace(total, matrix=moved), design).matrix @ root
        mean += (1.0 if j == k else 0.5) * W @ W
    expected = math.sqrt(np.linalg.eigvalsh(mean)[-1])
    assert p == 2
    assert measure_noise(equations) == pytest.approx(expected, rel=1e-9)
    turn = find_turn(
        lambda variance: is_answered(lambda: regress(with_variance(TOTAL, variance), "site ~ score")), 1.0, 1e3
    )
    assert turn == pytest.approx((0.5 / expected) ** 2, rel=1e-6)


class Line:
    """Rows with y = x, and how much they explain of y if less of its sum of squares is left than they have."""

    def __init__(self, missing: MissingRule, variance: float) -> None:
        n = 2_000
        x = np.random.default_rng(0).uniform(-1, 1, n)
        workload = make_workload(Schema((Column("x", "number", 0, 10), Column("y", "number", 0, 10, missing=missing))))
        gone = [np.zeros(n)] if missing == "indicate" else []
        self.n_rows, self.total = n, with_variance(sum_exactly(workload, np.column_stack([x, x, *gone])), variance)
        place = np.linspace(-1, 1, 8)
        self.x, self.y = (
            workload.functional(name, np.append(place, [0.0] * n_gone)) for name, n_gone in (("x", 0), ("y", len(gone)))
        )

    def ask(self, excess: float) -> Regression:
        """The regression if the sum of squares of y is smaller by this."""
        workload = self.total.workload
        bubble, matrix = workload.bubbles[1], self.total.matrix.copy()
        matrix[0, bubble] -= excess / (2 * workload.product(self.y, self.y)[0, bubble])
        matrix[bubble, 0] = matrix[0, bubble]
        return regress(replace(self.total, matrix=matrix), "y ~ x")

    def find_error(self) -> tuple[float, float]:
        """The standard error of the sum of squared residuals, and what fitting to noise removes from it."""
        x, y, constant = self.x, self.y, self.total.workload.constant
        pairs = [(constant, y), (constant, x), (x, y), (x, x), (y, y), (constant, constant)]
        readings = read_products(self.total, pairs)
        (error,) = readings.combine(np.array([[0.0, 0, -2, 1, 1, 0]])).errors
        left = readings.combine(np.array([[1.0, -1, 0, 0, 0, 0], [0.0, 0, 1, -1, 0, 0]]))  # b − Gβ with β = (0, 1)
        _, of_x, _, of_squares, _, n = readings.values
        return float(error), float(np.trace(np.linalg.solve([[n, of_x], [of_x, of_squares]], left.noise)))


@pytest.mark.parametrize(("missing", "most"), [("refuse", 6.0), ("indicate", 3.0)])
def test_terms_explain_more_than_there_is_by_some_standard_errors_of_the_noise(
    missing: MissingRule, most: float
) -> None:
    """By more of them where outcomes are always known, so that only noise or invented sums do that."""
    line = Line(missing, 0.5)
    error, fitted = line.find_error()
    turn = find_turn(lambda excess: is_answered(lambda: line.ask(excess)), error, 20 * error)
    assert turn == pytest.approx(most * error + fitted, rel=1e-4)
    deviation = 5 * math.sqrt(error / (line.n_rows - 2))  # the range of y is 10, and 2 in the design
    assert line.ask(error).residual_sd == pytest.approx(deviation, rel=1e-4)


def test_without_noise_terms_explain_more_than_there_is_by_rounding_alone() -> None:
    line = Line("refuse", 0.0)
    squares = float(read_products(line.total, [(line.y, line.y)]).values[0])
    turn = find_turn(lambda excess: is_answered(lambda: line.ask(excess)), 1e-11 * squares, 1e-7 * squares)
    assert turn == pytest.approx(1e-9 * squares, rel=1e-3)
    assert line.ask(0.0).residual_sd == pytest.approx(5 * math.sqrt(1e-12 * squares / (line.n_rows - 2)), rel=1e-6)


def draw_two(share: float) -> PairwiseTotal:
    """Two terms that are equal but for this share of the rows, and an outcome."""
    rng, n = np.random.default_rng(3), 900
    workload = make_workload(Schema(tuple(Column(name, "integer", 0, 2) for name in "yab")))
    rows = rng.integers(-1, 2, (n, 3)).astype(float)
    different, equal = (sum_exactly(workload, rows[:, places]) for places in ([0, 1, 2], [0, 1, 1]))
    return replace(equal, matrix=(1 - share) * equal.matrix + share * different.matrix)


def test_terms_follow_from_each_other_up_to_rounding() -> None:
    share = find_turn(lambda share: is_answered(lambda: regress(draw_two(share), "y ~ a + b")), 1e-12, 1e-6)
    total = draw_two(share)
    eigenvalues = np.linalg.eigvalsh(read_normal_equations(total, make_design(total, "y ~ a + b")).matrix)
    assert eigenvalues[0] / eigenvalues[-1] == pytest.approx(1e-10, rel=1e-3)


def test_a_regression_is_refused_for_few_rows_for_noise_or_for_terms_that_follow_from_each_other() -> None:
    def refuse(share: float, n_rows: float, variance: float) -> str:
        total = draw_two(share)
        with pytest.raises(InputError) as caught:
            regress(with_variance(scale(total, n_rows / total.n_rows), variance), "y ~ a + b")
        return caught.value.problem

    few, equal, noisy = refuse(1.0, 3.9, 0.0), refuse(0.0, 4.1, 0.0), refuse(1.0, 4.1, 1.0)
    assert len({few, equal, noisy}) == 3
    assert refuse(0.0, 3.9, 0.0) == refuse(1.0, 3.9, 1.0) == few
    assert refuse(0.0, 900, 0.0) == equal
    assert refuse(0.0, 900, 1.0) == noisy


@pytest.mark.parametrize("variance", [0.0, 0.3])
def test_outcomes_are_missing_at_random_up_to_four_standard_errors(variance: float) -> None:
    rng, n = np.random.default_rng(2), 4_000
    score = rng.integers(0, 4, n)
    gone = rng.random(n) < 0.2 + 0.06 * score
    blank = np.tile([1, 0, 0, 1, 0], (n, 1))
    dose = np.where(gone, 0, rng.integers(-1, 2, n))
    rows = np.column_stack([blank, score / 1.5 - 1, dose, gone, np.ones(n), np.ones(n), np.zeros(n)])
    total = sum_exactly(WORKLOAD, rows.astype(float))
    number, present = total.workload.number("score"), total.workload.present("dose")
    constant = total.workload.constant

    def gap(moved: PairwiseTotal) -> Vector:
        pairs = [(number, present), (number, constant), (present, constant), (constant, constant)]
        known_sum, whole_sum, n_known, n_all = read_products(moved, pairs).values
        return np.array([known_sum - n_known / n_all * whole_sum])

    def ask(n_rows: float) -> PairwiseTotal:
        return with_variance(scale(total, n_rows / n), variance)

    turn = find_turn(lambda n_rows: is_answered(lambda: regress(ask(n_rows), "dose ~ score")), 200, n)
    known = 1 - gone.mean()
    sampling = turn * known * (1 - known) * score.var()
    noise = differentiate(ask(turn), gap)[0, 0] if variance else 0.0
    assert abs(gap(ask(turn))[0]) == pytest.approx(4 * math.sqrt(sampling + noise), rel=1e-5)


def test_a_log_rank_test_tells_where_it_depends_on_how_censored_rows_count() -> None:
    def tests(n: float) -> list[float]:
        """χ² with both ways to count, and the number of notes."""
        plain, table = (
            estimate_survival(scale(TOTAL, n / N_ROWS), by="arm", estimator=estimator)
            for estimator in ("kaplan-meier", "life-table")
        )
        assert plain.log_rank is not None
        assert table.log_rank is not None
        return [plain.log_rank.chi_square, table.log_rank.chi_square, len(plain.notes)]

    turn = find_turn(lambda n: tests(n)[2] > 0, 20, 1e7)
    plain, table, _ = tests(turn)
    assert abs(math.sqrt(plain) - math.sqrt(table)) == pytest.approx(0.5, rel=1e-5)


def test_three_rows_are_too_few_for_a_correlation() -> None:
    rng, workload = np.random.default_rng(2), TOTAL.workload
    for n, is_answered_with in ((3, str), (4, Moments)):
        words = [np.eye(3)[rng.integers(0, 3, n)], np.eye(2)[np.arange(n) % 2]]
        numbers = [np.arange(n)[:, None] / 1.5 - 1, np.zeros((n, 1)), np.zeros((n, 1)), np.zeros((n, 1))]
        total = sum_exactly(workload, np.hstack([*words, *numbers, np.eye(2)[np.zeros(n, dtype=int)]]))
        assert isinstance(read_moments(total, workload.column("score"), workload.column("site")), is_answered_with)
