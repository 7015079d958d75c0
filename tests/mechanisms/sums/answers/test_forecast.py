"""A forecast says how wide intervals will be, and which answers will be refused, as the answers then do."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import numpy as np
import pytest

from mooring.mechanisms.sums.answers.association import associate
from mooring.mechanisms.sums.answers.forecast import (
    AnswerForecast,
    ForecastLine,
    _find_median,
    _list_regressions,
    find_most_columns,
    forecast_answers,
    forecast_total,
    invent_total,
)
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, sum_exactly
from mooring.mechanisms.sums.general.workload import Functional, Workload, make_workload
from mooring.mechanisms.sums.guarantee import calibrate_multiplier
from mooring.tables.schema import Column, Label, Schema
from mooring.testing.answers import draw_total, population
from tests.raising import numbers_in

WIDE = make_workload(
    Schema(
        tuple(Column(f"x{k}", "number", 0, 1) for k in range(12)),
        Label("ill", "classes", ("no", "yes")),
    )
)


KINDS = make_workload(
    Schema(
        (
            Column("kind", "category", categories=("a", "b", "c"), missing="indicate"),
            Column("visits", "integer", 0, 6, missing="indicate"),
            Column("level", "number", 10, 30, missing="indicate"),
            Column("days", "number", 0, 100, missing="indicate"),
        ),
        Label("died", "classes", ("no", "yes")),
    ),
    survival=Survival("days", "died", "yes", (0.0, 10.0, 20.0, 30.0)),
)


def test_rows_are_invented_as_is_stated() -> None:
    """Levels equally frequent, numbers about the middle of their range, half with the event by the last interval."""
    n = 1_000
    total = invent_total(KINDS, n, 2.0)
    constant = KINDS.constant
    assert (total.n_rows, total.noise_variance) == (pytest.approx(n), 2.0)

    def count(first: Functional, second: Functional = constant) -> float:
        return total.estimate(KINDS.product(first, second)) / n

    shares = {
        levels.name: [count(KINDS.indicator(levels.name, name)) for name in levels.names] for levels in KINDS.columns
    }
    assert shares["kind"] == pytest.approx([1 / 3] * 3 + [0], abs=1e-9)
    for name, middle, deviation in (("visits", 3.0, 0.75), ("level", 20.0, 2.5)):
        number = KINDS.number(name)
        mean, squares = count(number), count(number, number)
        assert mean == pytest.approx(middle, rel=1e-6)
        assert np.sqrt(squares - mean**2) == pytest.approx(deviation, rel=2e-3)
        assert shares[name][-1] == pytest.approx(0, abs=1e-9)
        assert count(number, KINDS.indicator("kind", "b")) == pytest.approx(mean / 3)
    ends, seen = 1 - 0.5 ** (1 / 3), 0.8 ** (1 / 3)
    left = [(1 - ends) ** k * seen**k for k in range(4)]
    expected = [share * part for share in left[:3] for part in (ends, (1 - ends) * (1 - seen))]
    assert shares["days × died"] == pytest.approx([*expected, 0.5 * 0.8, 0.0], abs=1e-9)


@pytest.mark.parametrize(
    ("half_width", "unit", "rows_needed", "printed_words"),
    [
        (0.0123, "", None, "± 0.012"),
        (1.26, "points", None, "± 1.3 points"),
        (1.2345, "times", None, "×/÷ 1.23"),
        (np.nan, "points", None, "refused"),
        (np.nan, "times", 12_000, "refused; from about 12,000 rows on"),
    ],
)
def test_a_line_states_half_a_width_or_what_it_takes(
    half_width: float, unit: str, rows_needed: int | None, printed_words: str
) -> None:
    line = ForecastLine("tables", "mean", half_width, unit, rows_needed)
    assert str(line) == printed_words
    assert AnswerForecast(9, (line,)).list_table()[1] == ("mean", printed_words)


def test_no_column_does_where_even_one_leaves_the_noise_too_large() -> None:
    schema = Schema((Column("x", "number", 0, 1), Column("z", "number", 0, 1)), Label("ill", "classes", ("no", "yes")))
    narrow = make_workload(schema)
    found = [find_most_columns(narrow, variance, 1_000, "regression") for variance in (1.0, 4_000.0)]
    assert found == [1, 0]  # of fewer columns than there are
    assert find_most_columns(narrow, 1.0, 1_000, "survival") == 0


def noise_of(workload: Workload, epsilon: float) -> float:
    return workload.noise_variance(calibrate_multiplier(epsilon, 1e-5))


def widths(forecast: AnswerForecast) -> dict[str, float]:
    return {line.answer: line.half_width for line in forecast.lines}


def printed(totals: list[PairwiseTotal]) -> dict[str, float]:
    """What the answers of noisy totals have as half widths, the median over totals."""
    each = [widths(forecast_total(total)) for total in totals]
    return {
        name: float(np.median([drawn[name] for drawn in each]))
        for name in each[0]
        if all(name in drawn for drawn in each)
    }


@pytest.mark.parametrize(("epsilon", "n_rows"), [(1.0, 6_000), (8.0, 2_000)])
def test_the_forecast_of_known_rows_is_within_a_quarter_of_what_is_printed(epsilon: float, n_rows: int) -> None:
    exact = population().total
    expected = replace(
        exact, matrix=n_rows / exact.n_rows * exact.matrix, noise_variance=noise_of(exact.workload, epsilon)
    )
    forecast = widths(forecast_total(expected))
    drawn = printed([draw_total(seed, epsilon, n_rows) for seed in range(5)])
    assert drawn.keys() == forecast.keys()
    for name, half_width in forecast.items():
        assert half_width == pytest.approx(drawn[name], rel=0.25), name


@pytest.mark.parametrize(("epsilon", "n_rows"), [(1.0, 6_000), (8.0, 2_000)])
def test_the_forecast_of_a_declaration_is_within_a_quarter_of_what_rows_as_assumed_print(
    epsilon: float, n_rows: int
) -> None:
    workload = population().total.workload
    variance, rng = noise_of(workload, epsilon), np.random.default_rng(0)
    exact = invent_total(workload, n_rows, 0.0)
    drawn = printed([exact.with_noise(rng, variance) for _ in range(5)])
    forecast = widths(forecast_answers(workload, variance, n_rows))
    assert drawn.keys() == forecast.keys()
    for name, half_width in forecast.items():
        assert half_width == pytest.approx(drawn[name], rel=0.25), name
    actual = printed([draw_total(seed, epsilon, n_rows) for seed in range(3)])
    for name in ("share of a category", "mean of a number", "share that survives 24", "share in a group by ill"):
        assert forecast[name] == pytest.approx(actual[name], rel=0.25), name


def test_half_a_width_is_known_where_most_entries_are_shown() -> None:
    assert _find_median([1.0, 3.0], 3) == 2.0
    assert np.isnan(_find_median([1.0], 2))
    assert np.isnan(_find_median([], 0))


def test_regressions_are_forecast_on_one_two_four_or_eight_columns() -> None:
    """Up to the first number of columns for which the noise is too large."""
    asked = [
        [numbers_in(asked.answer) for asked in _list_regressions(invent_total(WIDE, 700, variance))]
        for variance in (0.0, 0.5, 0.9)
    ]
    assert asked == [[{8}, {8}], [{2}, {2}, {4}], [{1}, {1}, {2}]]


def test_correlations_of_the_first_five_numbers_are_forecast() -> None:
    rng, names = np.random.default_rng(0), [f"x{k}" for k in range(6)]
    rows = np.clip(rng.normal(0, 0.2, (300, 1)) + np.linspace(0.01, 0.4, 6) * rng.normal(size=(300, 6)), -1, 1)
    total = sum_exactly(make_workload(Schema(tuple(Column(name, "number", 0, 1) for name in names))), rows)
    pairs = [associate(total, names[:n_columns]).correlations for n_columns in (5, 6)]
    expected, of_six = (np.median([(pair.high - pair.low) / 2 for pair in of_some]) for of_some in pairs)
    assert widths(forecast_total(total))["correlation of two numbers"] == pytest.approx(expected)
    assert of_six > 1.1 * expected


@pytest.mark.parametrize("n_rows", [70, 85, 100, 120])
def test_the_rows_that_an_answer_needs_are_named_to_two_digits_and_a_twentieth(n_rows: int) -> None:
    workload = make_workload(Schema((Column("x", "number", 0, 1),)))

    def ask(n_rows: int) -> ForecastLine:
        (line,) = forecast_answers(workload, 300.0, n_rows).lines
        return line

    needed = ask(n_rows).rows_needed
    assert needed is not None
    unit = 10 ** (len(str(needed)) - 2)
    assert needed % unit == 0
    least = bisect_left(range(2 * needed), True, lo=n_rows, key=lambda rows: not ask(rows).is_refused)
    assert least <= needed <= 1.05 * least + unit


@pytest.mark.parametrize(("needed", "is_named"), [(7.5e8, True), (1.2e9, False)])
def test_at_most_a_thousand_million_rows_are_named(needed: float, is_named: bool) -> None:
    """What is needed grows with the standard deviation of the noise."""
    workload = make_workload(Schema((Column("x", "number", 0, 1),)))
    (line,) = forecast_answers(workload, 1e8, 1_000).lines
    assert line.rows_needed is not None
    (line,) = forecast_answers(workload, 1e8 * (needed / line.rows_needed) ** 2, 10**8).lines
    assert line.is_refused
    assert (line.rows_needed is not None) == is_named


def first_regression(workload: Workload, noise_variance: float, n_rows: int) -> ForecastLine:
    lines = forecast_answers(workload, noise_variance, n_rows).lines
    return next(line for line in lines if line.question == "regression")


@pytest.mark.parametrize(("n_levels", "is_forecast"), [(31, True), (32, False)])
def test_a_regression_of_up_to_thirty_coefficients_is_forecast(n_levels: int, is_forecast: bool) -> None:
    columns = (
        Column("x", "number", 0, 1),
        Column("code", "category", categories=tuple(f"c{k}" for k in range(n_levels))),
    )
    lines = forecast_answers(make_workload(Schema(columns)), 0.0, 10_000).lines
    assert ("regression" in {line.question for line in lines}) == is_forecast


@pytest.mark.parametrize(("n_levels", "n_terms"), [(30, 2), (31, 1)])
def test_a_number_is_one_of_thirty_coefficients(n_levels: int, n_terms: int) -> None:
    columns = [Column(name, "number", 0, 1) for name in "xy"]
    code = Column("code", "category", categories=tuple(f"c{k}" for k in range(n_levels)))
    asked = _list_regressions(invent_total(make_workload(Schema((*columns, code))), 10_000, 0.0))
    assert [numbers_in(regression.answer) for regression in asked] == [{n_terms}]


def test_a_refused_answer_is_given_from_the_number_of_rows_that_the_forecast_names() -> None:
    variance = noise_of(WIDE, 1.0)
    line = first_regression(WIDE, variance, 300)
    assert line.is_refused
    assert line.rows_needed is not None
    assert not first_regression(WIDE, variance, line.rows_needed).is_refused
    assert first_regression(WIDE, variance, round(0.85 * line.rows_needed)).is_refused


def test_fewer_columns_do_where_there_are_too_many_for_the_rows() -> None:
    variance, n_rows = noise_of(WIDE, 1.0), 700
    assert first_regression(WIDE, variance, n_rows).is_refused
    most = find_most_columns(WIDE, variance, n_rows, "regression")
    assert 0 < most < 12

    def is_refused(n_columns: int) -> bool:
        narrow = WIDE.narrow([f"x{k}" for k in range(n_columns)])
        return first_regression(narrow, noise_of(narrow, 1.0), n_rows).is_refused

    assert not is_refused(most)
    assert is_refused(most + 1)


def test_a_narrower_workload_is_that_of_a_study_with_fewer_columns() -> None:
    schema = Schema(tuple(Column(f"x{k}", "number", 0, 1) for k in range(3)), Label("ill", "classes", ("no", "yes")))
    assert replace(WIDE.narrow(["x0", "x1", "x2"]), n_inputs=3) == make_workload(schema)
