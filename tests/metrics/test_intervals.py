import json
import math
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.metrics import Figure, Interval, bootstrap_mean, bootstrap_ratio, strongest_value, wilson
from mooring.metrics.intervals import (
    Written,
    mean_ratio,
    percentile_interval,
    resampled_sums,
    round_number,
    student_interval,
)
from tests.raising import raising

Refused = Callable[..., None]


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_values(successes: int, trials: int, low: float, high: float) -> None:
    """The four examples by which intervals of a proportion have been compared since 1998."""
    interval = wilson(successes, trials)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_ties_count_in_part_in_wilsons_interval() -> None:
    assert wilson(4, 10).low < wilson(4.5, 10).low < wilson(5, 10).low


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share_and_mirrors_when_success_and_failure_trade_places(counts: tuple[int, int]) -> None:
    successes, trials = counts
    interval, mirrored = wilson(successes, trials), wilson(trials - successes, trials)
    assert 0.0 <= interval.low <= successes / trials <= interval.high <= 1.0
    assert interval.low < interval.high
    assert (mirrored.low, mirrored.high) == (pytest.approx(1 - interval.high), pytest.approx(1 - interval.low))


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([truth in interval for interval in intervals]))


def test_bootstrap_intervals_of_a_mean_and_of_a_ratio_cover_it_as_often_as_they_say(rng: np.random.Generator) -> None:
    """250 samples of 60: 95 % give 0.95 ± 0.014, less one point for small samples. Half the width would cover 67 %.

    The ratio is √(Σ num / Σ den) of paired χ² squares, whose true value is 0.5.
    """
    samples = rng.standard_normal((250, 60)) + 3.0
    covered = coverage([bootstrap_mean(values, rng=rng) for values in samples], 3.0)
    assert 0.90 <= covered <= 0.98
    num, den = (scale * (rng.standard_normal((250, 60, 5)) ** 2).sum(axis=2) for scale in (0.25, 1.0))
    pairs = zip(num, den, strict=True)
    covered = coverage([bootstrap_ratio(*pair, rng=rng, n_resamples=400) for pair in pairs], 0.5)
    assert 0.90 <= covered <= 0.98


def test_the_ratio_is_of_sums_and_not_a_mean_of_ratios(rng: np.random.Generator) -> None:
    """One huge row decides the sums: the interval reaches its ratio, 3, which a mean of ratios, near 1, would not."""
    numerators, denominators = np.ones(50), np.ones(50)
    numerators[0], denominators[0] = 9e6, 1e6
    assert bootstrap_ratio(numerators, denominators, rng=rng).high == pytest.approx(3.0, abs=0.01)


def test_blocks_do_not_change_the_resamples() -> None:
    values = np.random.default_rng(2).standard_normal((30, 2))
    whole, blocked = (
        resampled_sums(values, rng=np.random.default_rng(3), n_resamples=100, **options)
        for options in ({}, {"block_numbers": 30 * 7})
    )
    np.testing.assert_allclose(blocked, whole)


def test_a_single_row_gives_no_interval(rng: np.random.Generator) -> None:
    assert not bootstrap_mean([2.0], rng=rng).known
    assert not bootstrap_ratio([2.0], [1.0], rng=rng).known
    assert 2.0 not in bootstrap_mean([2.0], rng=rng)


def test_resamples_without_a_denominator_are_left_out(rng: np.random.Generator) -> None:
    interval = bootstrap_ratio([4.0, 0.0, 0.0], [1.0, 0.0, 0.0], rng=rng)
    assert (interval.low, interval.high) == (2.0, 2.0)
    assert bootstrap_ratio([4e-9, 0.0, 0.0], [1e-9, 0.0, 0.0], rng=rng).low == pytest.approx(2.0)
    assert not bootstrap_ratio([4.0, 1.0], [0.0, 0.0], rng=rng).known


def test_the_mean_of_ratios_and_its_error_by_hand() -> None:
    """Two rows of one column: ratios 1/2, influences ±1/4, error √(2 · 2/16) = 1/2. Three rows: 1/3, √(3/2 · 6/81)."""
    is_scored = np.ones((2, 1))
    assert mean_ratio(np.array([[1.0], [0.0]]), is_scored) == (0.5, pytest.approx(0.5), 2)
    three = mean_ratio(np.array([[1.0], [0.0], [0.0]]), np.ones((3, 1)))
    assert three == (pytest.approx(1 / 3), pytest.approx(1 / 3), 3)
    # A second column of twice the weight, and a third that no row has: the mean of 1/2 and 1/4.
    numerators, denominators = np.array([[1.0, 1, 5], [0, 0, 5]]), np.array([[1.0, 2, 0], [1, 2, 0]])
    assert mean_ratio(numerators, denominators) == (0.375, pytest.approx(0.375), 2)
    # Clusters: rows 0 and 1 count once, and their influences add up; a pseudo-row adds (rows a cluster / rows)².
    grouped = np.array([[1.0], [1.0], [0.0], [0.0]])
    assert mean_ratio(grouped, np.ones((4, 1)), clusters=["a", "a", "b", "b"]) == (0.5, pytest.approx(0.5), 2)
    added = mean_ratio(grouped, np.ones((4, 1)), clusters=["a", "a", "b", "b"], pseudo_rows=3.0)
    assert added == (0.5, pytest.approx(math.sqrt(1 / 4 + 3 * (2 / 4) ** 2)), 2)
    two = mean_ratio(np.ones((4, 2)), np.ones((4, 2)) * [1, 2], pseudo_rows=1.0)
    assert two == (0.75, pytest.approx(math.sqrt((1 / 16 + 1 / 64) / 2 / 4)), 4)


def test_the_mean_of_ratios_without_rows_or_columns_to_tell_it_is_unknown() -> None:
    value, error, n = mean_ratio(np.ones((1, 1)), np.ones((1, 1)))
    assert (value, math.isnan(error), n) == (1.0, True, 1)
    value, error, n = mean_ratio(np.ones((3, 2)), np.zeros((3, 2)))
    assert (math.isnan(value), math.isnan(error), n) == (True, True, 3)
    assert mean_ratio(np.ones((0, 1)), np.ones((0, 1)))[2] == 0


@pytest.mark.parametrize(("n", "quantile"), [(2, 12.7062047), (3, 4.3026527)])
def test_students_interval_has_the_quantile_of_one_degree_less_than_rows(n: int, quantile: float) -> None:
    interval = student_interval(1.0, 0.5, n=n)
    assert (interval.low, interval.high) == (pytest.approx(1 - quantile / 2), pytest.approx(1 + quantile / 2))
    assert interval.level == 0.95
    for value, error in ((math.nan, 0.5), (1.0, math.nan)):
        assert not student_interval(value, error, n=n).known


def test_a_percentile_interval_cuts_equal_tails_off_and_needs_two_rows() -> None:
    estimates = np.arange(201.0)
    interval = percentile_interval(estimates, n_rows=2)
    assert (interval.low, interval.high) == (pytest.approx(5.0), pytest.approx(195.0))
    assert not percentile_interval(estimates, n_rows=1).known
    assert not percentile_interval(estimates[:0], n_rows=2).known


def test_the_strongest_attack_is_of_those_that_were_run() -> None:
    values = [[0.2, math.nan, 0.5], [0.3, math.nan, math.nan]]
    for higher, strongest in ((True, [0.3, math.nan, 0.5]), (False, [0.2, math.nan, 0.5])):
        assert strongest_value(values, higher_is_worse=higher) == pytest.approx(strongest, nan_ok=True)


def test_a_figure_survives_json() -> None:
    figure = Figure("linkage", np.float64(0.4), wilson(4, 10), 0.1, np.float64(0.2), None, np.int64(10), np.bool_(True))
    assert Figure.from_dict(json.loads(json.dumps(figure.as_dict(), allow_nan=False))) == figure


def test_what_is_undefined_is_none_in_json_and_nan_again_when_read() -> None:
    figure = Figure("error", math.nan, Interval.unknown(), math.nan, None, None, 1, False)
    bare_figure = Figure("error", 0.5, Interval(0.25, 0.75), None, None, None, 1, False)
    assert [written.with_interval() for written in (figure, bare_figure)] == ["–", "0.50 [0.25, 0.75]"]
    plain = json.loads(json.dumps(figure.as_dict(), allow_nan=False))
    assert plain["value"] is plain["interval"]["low"] is plain["chance"] is None
    again = Figure.from_dict(plain)
    assert math.isnan(again.value)
    assert not again.interval.known
    assert again.chance is None


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("psnr", ["0.3", "0.2", "0.5", "0.1"]),
        ("median_r2", ["0.30", "0.20", "0.41", "0.10"]),
        ("linkage", ["30.0%", "20.0%", "40.1%", "10.0%"]),
        ("membership_at_0.1_percent", ["30.00%", "20.00%", "40.01%", "10.00%"]),
    ],
)
def test_a_figure_is_written_in_the_digits_of_its_measure(name: str, written: list[str]) -> None:
    value, low, high, chance = written
    description = Figure(name, 0.3, Interval(0.2, 0.4001), 0.1, None, math.nan, 9, True).describe()
    assert description == Written(value, (low, high), chance)
    description = Figure(name, math.nan, Interval.unknown(), None, 0.1, 0.1, 9, True).describe()
    assert description == Written("–", None, None, chance, chance)


def test_a_dictionary_that_is_no_figure_is_refused() -> None:
    plain = Figure("x", 0.0, wilson(1, 2), None, None, None, 2, True).as_dict()
    for broken, expected, got in (
        ({}, "'name' given", "nothing"),
        ({**plain, "interval": None}, "'interval' a table", "null"),
        ({**plain, "interval": {"low": 0.0}}, "'interval.high' given", "nothing"),
    ):
        with raising(InputError, "Figure", expected=expected, got=got):
            Figure.from_dict(broken)


def test_infinite_figures_are_refused(refused: Refused) -> None:
    for what, value, interval in (
        ("value", math.inf, Interval.unknown()),
        ("interval", 1.0, Interval(0, math.inf, 0.9)),
        ("interval", 1.0, Interval(-math.inf, math.inf, 0.9)),
    ):
        refused(partial(Figure, "psnr", value, interval, None, None, None, 1, True), what, "finite", "Inf")


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_levels_that_are_no_share_are_refused(level: float, refused: Refused) -> None:
    refused(lambda: Interval(0.0, 1.0, level), "level", "between 0 and 1", f"{level:g}")


def test_unusable_counts_and_values_are_refused(refused: Refused, rng: np.random.Generator) -> None:
    refused(lambda: wilson(3, 2), "successes", "between 0 and trials = 2", "3")
    refused(lambda: wilson(-1, 2), "successes", "between 0 and trials = 2", "-1")
    refused(lambda: wilson(0, 0), "trials", "at least 1", "0")
    refused(lambda: Interval(1.0, 0.0, 0.9), "low", "at most high", "1")
    refused(lambda: Interval(math.nan, 0.0, 0.9), "low", "at most high", "nan")
    refused(lambda: bootstrap_mean([], rng=rng), "values", "at least one value", "shape (0,)")
    refused(lambda: bootstrap_mean([math.nan, 1.0], rng=rng), "values", "finite", "NaN or Inf")
    refused(lambda: bootstrap_ratio([0.0], [1.0], rng=rng, n_resamples=0), "n_resamples", "at least 1", "0")
    refused(lambda: bootstrap_ratio([1.0, 1.0], [1.0], rng=rng), "denominators", "2", "1 values")
    refused(lambda: bootstrap_ratio([-1.0, 1.0], [1.0, 1.0], rng=rng), "numerators", "", "negative")


def test_an_interval_of_a_mean_is_of_two_thousand_resamples_between_equal_tails() -> None:
    values = np.random.default_rng(6).gamma(1.0, size=9)
    times = np.random.default_rng(7).multinomial(9, np.full(9, 1 / 9), size=2000)
    low, high = np.quantile(times @ values / 9, [0.025, 0.975])
    interval = bootstrap_mean(values, rng=np.random.default_rng(7))
    assert [interval.low, interval.high] == pytest.approx([low, high], rel=1e-12)


@pytest.mark.parametrize(("error", "up", "down"), [(4e-13, 0.3, 0.3), (6e-13, 0.31, 0.3), (-6e-13, 0.3, 0.29)])
def test_numbers_are_rounded_to_one_side_after_errors_of_representation_are_removed(
    error: float, up: float, down: float
) -> None:
    rounded = [round_number(0.3 + error, 2, mode) for mode in (ROUND_CEILING, ROUND_FLOOR)]
    assert rounded == [up, down]
