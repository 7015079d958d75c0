import json
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mooring.metrics.intervals
from mooring.metrics import Figure, Interval, bootstrap_mean, bootstrap_ratio, wilson

Refused = Callable[..., None]


@pytest.mark.parametrize(
    ("successes", "trials", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_the_published_values(successes: int, trials: int, low: float, high: float) -> None:
    """The four examples by which intervals of a proportion have been compared since 1998."""
    interval = wilson(successes, trials)
    assert (interval.low, interval.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


def test_a_higher_level_gives_a_wider_wilson_interval_and_ties_count_in_part() -> None:
    narrow, wide = wilson(30, 100, 0.8), wilson(30, 100, 0.99)
    assert wide.low < narrow.low < narrow.high < wide.high
    assert wilson(4, 10).low < wilson(4.5, 10).low < wilson(5, 10).low


@given(st.integers(1, 2000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_wilson_holds_the_share_and_mirrors_when_success_and_failure_trade_places(
    counts: tuple[int, int], level: float
) -> None:
    successes, trials = counts
    interval, mirrored = wilson(successes, trials, level), wilson(trials - successes, trials, level)
    assert 0.0 <= interval.low <= successes / trials <= interval.high <= 1.0
    assert interval.low < interval.high
    assert (mirrored.low, mirrored.high) == (pytest.approx(1 - interval.high), pytest.approx(1 - interval.low))


def coverage(intervals: list[Interval], truth: float) -> float:
    return float(np.mean([truth in interval for interval in intervals]))


def test_bootstrap_intervals_of_a_mean_and_of_a_ratio_cover_it_as_often_as_they_say(rng: np.random.Generator) -> None:
    """400 samples of 60: 95 % give 0.95 ± 0.011, less one point for small samples. Half the width would cover 67 %.

    The ratio is √(Σ num / Σ den) of paired χ² squares, whose true value is 0.5.
    """
    samples = rng.standard_normal((400, 60)) + 3.0
    found = coverage([bootstrap_mean(values, rng=rng, n_resamples=400) for values in samples], 3.0)
    assert 0.90 <= found <= 0.98
    num, den = (scale * (rng.standard_normal((400, 60, 5)) ** 2).sum(axis=2) for scale in (0.25, 1.0))
    pairs = zip(num, den, strict=True)
    found = coverage([bootstrap_ratio(*pair, rng=rng, n_resamples=400) for pair in pairs], 0.5)
    assert 0.90 <= found <= 0.98


def test_bootstrap_width_is_that_of_the_normal_approximation(rng: np.random.Generator) -> None:
    """1,000 values of unit spread: ±1.96/√1000, within a tenth, four spreads of 2,000 resamples' percentiles."""
    values = rng.standard_normal(1000)
    interval = bootstrap_mean(values, rng=rng)
    assert (interval.high - interval.low) / 2 == pytest.approx(1.96 * values.std() / math.sqrt(1000), rel=0.1)
    assert (interval.high + interval.low) / 2 == pytest.approx(values.mean(), abs=0.01)


def test_the_ratio_is_of_sums_and_not_a_mean_of_ratios(rng: np.random.Generator) -> None:
    """One huge row decides the sums: the interval reaches its ratio, 3, which a mean of ratios, near 1, would not."""
    numerators, denominators = np.ones(50), np.ones(50)
    numerators[0], denominators[0] = 9e6, 1e6
    assert bootstrap_ratio(numerators, denominators, rng=rng).high == pytest.approx(3.0, abs=0.01)


def test_blocks_do_not_change_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).standard_normal(30)
    whole = bootstrap_mean(values, rng=np.random.default_rng(3))
    monkeypatch.setattr(mooring.metrics.intervals, "BLOCK_NUMBERS", 30 * 7)
    blocked = bootstrap_mean(values, rng=np.random.default_rng(3))
    assert (blocked.low, blocked.high) == (pytest.approx(whole.low), pytest.approx(whole.high))


def test_a_single_row_gives_no_interval(rng: np.random.Generator) -> None:
    assert not bootstrap_mean([2.0], rng=rng).known
    assert not bootstrap_ratio([2.0], [1.0], rng=rng).known
    assert 2.0 not in bootstrap_mean([2.0], rng=rng)


def test_resamples_without_a_denominator_are_left_out(rng: np.random.Generator) -> None:
    interval = bootstrap_ratio([4.0, 0.0, 0.0], [1.0, 0.0, 0.0], rng=rng)
    assert (interval.low, interval.high) == (2.0, 2.0)
    assert not bootstrap_ratio([4.0, 1.0], [0.0, 0.0], rng=rng).known


def test_a_figure_survives_json() -> None:
    figure = Figure("linkage", np.float64(0.4), wilson(4, 10), 0.1, np.float64(0.2), None, np.int64(10), np.bool_(True))
    assert Figure.from_dict(json.loads(json.dumps(figure.as_dict(), allow_nan=False))) == figure


def test_what_is_undefined_is_none_in_json_and_nan_again_when_read() -> None:
    figure = Figure("error", math.nan, Interval.unknown(), math.nan, None, None, 1, False)
    plain = json.loads(json.dumps(figure.as_dict(), allow_nan=False))
    assert plain["value"] is plain["interval"]["low"] is plain["chance"] is None
    again = Figure.from_dict(plain)
    assert math.isnan(again.value)
    assert not again.interval.known
    assert again.chance is None


def test_a_dictionary_that_is_no_figure_is_refused(refused: Refused) -> None:
    plain = Figure("x", 0.0, wilson(1, 2), None, None, None, 2, True).as_dict()
    refused(lambda: Figure.from_dict({}), "Figure", "higher_is_worse", "the keys")
    for broken in (None, {"low": 0.0}):
        refused(
            lambda broken=broken: Figure.from_dict({**plain, "interval": broken}), "Interval", "low, high, level", ""
        )


def test_infinite_figures_are_refused(refused: Refused) -> None:
    for what, value, interval in (
        ("value", math.inf, Interval.unknown()),
        ("interval", 1.0, Interval(0, math.inf, 0.9)),
    ):
        refused(partial(Figure, "psnr", value, interval, None, None, None, 1, True), what, "finite", "Inf")


@pytest.mark.parametrize("level", [0.0, 1.0, 95.0, math.nan])
def test_levels_that_are_no_share_are_refused(level: float, refused: Refused, rng: np.random.Generator) -> None:
    for call in (
        lambda: wilson(1, 2, level),
        lambda: bootstrap_mean([1.0, 2.0], rng=rng, level=level),
        lambda: Interval(0.0, 1.0, level),
    ):
        refused(call, "level", "between 0 and 1", f"{level:g}")


def test_unusable_counts_and_values_are_refused(refused: Refused, rng: np.random.Generator) -> None:
    refused(lambda: wilson(3, 2), "successes", "between 0 and trials = 2", "3")
    refused(lambda: wilson(-1, 2), "successes", "between 0 and trials = 2", "-1")
    refused(lambda: wilson(0, 0), "trials", "at least 1", "0")
    refused(lambda: Interval(1.0, 0.0, 0.9), "low", "at most high", "another order")
    refused(lambda: Interval(math.nan, 0.0, 0.9), "low", "at most high", "another order")
    refused(lambda: bootstrap_mean([], rng=rng), "values", "at least one value", "shape (0,)")
    refused(lambda: bootstrap_mean([math.nan, 1.0], rng=rng), "values", "finite", "NaN or Inf")
    refused(lambda: bootstrap_mean([0.0, 1.0], rng=rng, n_resamples=0), "n_resamples", "at least 1", "0")
    refused(lambda: bootstrap_ratio([1.0, 1.0], [1.0], rng=rng), "denominators", "2", "1 values")
    refused(lambda: bootstrap_ratio([-1.0, 1.0], [1.0, 1.0], rng=rng), "numerators", "", "negative")
