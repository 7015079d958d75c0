"""Sums by class in integers: no row or person exceeds the sensitivity, rounding adds no bias, and a public rule decides."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.mechanisms.sums.class_moments import ClassAccumulator, ClassLayout, count_components
from mooring.mechanisms.sums.guarantee import SumPrivacy, calibrate_multiplier, calibrate_products
from mooring.mechanisms.sums.settings import SumSettings, make_features, make_layout, make_scheme
from mooring.mechanisms.sums.sums import Integers
from mooring.protocol.sums.description import list_sums
from mooring.tables.schema import Column, Label, Schema
from mooring.typing import Matrix
from tests.mechanisms.sums.test_secret_sharing import words_of

COUNTS = st.lists(st.integers(-9, 9) | st.floats(-1, 1), min_size=1, max_size=12)
PIXELS = tuple(Column(f"x{k}", "number", 0, 1) for k in range(64))


def unit(directions: list[list[float]], length: float) -> Matrix:
    """Rows of these directions and of one length; the shorter ones are filled with zeros."""
    width = max(2, *(len(direction) for direction in directions))
    rows = np.array([[*direction, *[0.0] * (width - len(direction))] for direction in directions])
    rows[np.abs(rows).max(axis=1) < 1e-9, 0] = 1.0
    return np.asarray(length * rows / np.linalg.norm(rows, axis=1, keepdims=True))


def square_norm(layout: ClassLayout, vector: Integers) -> int:
    """The squared norm in exact integers, where off-diagonal entries count twice."""
    squares = [int(number) ** 2 for number in vector]
    return 2 * sum(squares) - sum(square for square, once in zip(squares, layout.on_diagonal, strict=True) if once)


@settings(max_examples=150, deadline=None)
@given(COUNTS, st.sampled_from([1.0, 1.0, 0.3]), st.integers(2, 5), st.integers(0, 2**32), st.sampled_from([2**17, 64]))
def test_no_row_exceeds_the_sensitivity(
    direction: list[float], length: float, n_classes: int, seed: int, resolution: int
) -> None:
    row = unit([direction], length)
    layout = ClassLayout(row.shape[1], n_classes, resolution)
    sums = ClassAccumulator(layout, np.random.default_rng(seed))
    sums.add(row, np.array([seed % n_classes]))
    moved = square_norm(layout, sums.vector)
    target(moved / layout.sensitivity_squared)  # Hypothesis looks for rows that change the sums more
    assert moved <= layout.sensitivity_squared
    assert int(np.abs(sums.vector).max()) * layout.most_rows < 2**60


@settings(max_examples=60, deadline=None)
@given(
    st.lists(COUNTS, min_size=1, max_size=6), st.lists(st.integers(0, 2), min_size=6, max_size=6), st.integers(0, 2**32)
)
def test_no_person_exceeds_the_sensitivity_with_rows_of_several_classes(
    person: list[list[float]], codes: list[int], seed: int
) -> None:
    rows = unit(person, 1.0)
    layout, labels = ClassLayout(rows.shape[1], 3), np.array(codes[: len(rows)])
    for counts, most in ((np.full(len(rows), len(rows)), 1), (None, len(rows))):
        sums = ClassAccumulator(layout, np.random.default_rng(seed))
        sums.add(rows, labels, counts)
        moved = square_norm(layout, sums.vector)
        target(moved / most**2 / layout.sensitivity_squared, label="mean" if counts is not None else "at most m rows")
        assert moved <= most**2 * layout.sensitivity_squared


def test_the_sensitivity_is_almost_attained() -> None:
    layout = ClassLayout(113, 10)
    sums = ClassAccumulator(layout, np.random.default_rng(0))
    sums.add(unit([list(np.random.default_rng(1).standard_normal(113))], 1.0), np.array([3]))
    assert square_norm(layout, sums.vector) > 0.999 * layout.sensitivity_squared


def test_rounding_has_no_bias_even_where_all_rows_are_equal() -> None:
    """The largest error over all sums stays below a tenth of the noise of ε = 8, and that of truncation is above it."""
    n, layout = 300_000, ClassLayout(8, 2)
    row = unit([list(np.random.default_rng(2).uniform(0.5, 1, 8))], 1.0)
    sums = ClassAccumulator(layout, np.random.default_rng(3))
    for _ in range(20):
        sums.add(np.repeat(row, n // 20, axis=0), np.ones(n // 20))
    error = np.abs(layout.unpack(sums.vector)[1] - n * row.T @ row).max()
    noise = calibrate_products(layout, SumPrivacy(8.0, 1e-5, quorum=2, n_colluders=1))
    deviation = math.sqrt(noise.on_products / 2) / layout.scale**2
    truncated = np.abs(n * (row.T @ row - np.trunc(2**17 * row).T @ np.trunc(2**17 * row) / 2**34)).max()
    assert error < deviation / 10 < truncated


def test_sums_of_any_order_of_blocks_are_those_of_the_rows_of_each_class() -> None:
    rng = np.random.default_rng(4)
    rows, codes = unit([list(row) for row in rng.standard_normal((500, 6))], 0.9), rng.integers(0, 3, 500)
    layout = ClassLayout(6, 3)
    sums = ClassAccumulator(layout, rng)
    for start in (250, 0):
        sums.add(rows[start : start + 250], codes[start : start + 250])
    expected = np.array([rows[codes == k].T @ rows[codes == k] for k in range(3)])
    np.testing.assert_allclose(layout.unpack(sums.vector), expected, atol=1e-3)
    assert sums.n_rows == 500


def test_sums_of_any_number_of_rows_are_exact_to_the_last_integer() -> None:
    """127 rows whose squares have 52 bits, of which no more than two are added up in floating point."""
    layout = ClassLayout(4, 2, resolution=2**26)
    assert layout.scale == 2**26 - 3
    sums = ClassAccumulator(layout, np.random.default_rng(0))
    sums.add(np.tile([1.0, 0.0, 0.0, 0.0], (127, 1)), np.ones(127))
    assert sums.vector.tolist() == [0] * 10 + [127 * layout.scale**2] + [0] * 9


def test_rows_of_a_person_with_so_many_that_rounding_exceeds_them_add_nothing() -> None:
    """With 300 rows, 64/√300 is less than the 4 that rounding may add to the length of nine integers."""
    layout = ClassLayout(9, 2, resolution=64)
    sums = ClassAccumulator(layout, np.random.default_rng(0))
    sums.add(unit([[1.0] * 9] * 300, 1.0), np.zeros(300), np.full(300, 300))
    assert sums.n_rows == 300
    assert not sums.vector.any()


@pytest.mark.parametrize(
    ("features", "labels"),
    [
        (np.array([[0.8, 0.7]]), np.array([0])),
        (np.array([[0.1, np.nan]]), np.array([0])),
        (np.array([[0.1, 0.2, 0.3]]), np.array([0])),
        (np.array([[0.1, 0.2]]), np.array([2])),
        (np.array([[0.1, 0.2]]), np.array([0, 1])),
    ],
)
def test_rows_from_which_the_sensitivity_does_not_follow_are_refused(features: Matrix, labels: Matrix) -> None:
    sums = ClassAccumulator(ClassLayout(2, 2), np.random.default_rng(0))
    with pytest.raises(InputError):
        sums.add(features, labels)
    assert not sums.vector.any()


def test_the_noise_on_every_class_is_its_own() -> None:
    """400 vectors of 4 classes have the expected variances on and off all diagonals, and no two correlated numbers.

    One of 24,000 pairs of independent numbers has a correlation of 6 standard errors with probability 5e-5.
    """
    layout = ClassLayout(10, 4)
    privacy = SumPrivacy(1.0, 1e-5, quorum=6, n_colluders=2, rows_per_person=3)
    noise = calibrate_products(layout, privacy)
    assert math.sqrt(4 * noise.on_products) / (3 * 2.0**34) == pytest.approx(3.7306, abs=5e-5)
    drawn = noise.draw_many(layout, words_of(35), 400) / math.sqrt(noise.on_products)
    for numbers, variance in ((drawn[:, layout.on_diagonal], 1.0), (drawn[:, ~layout.on_diagonal], 0.5)):
        assert numbers.shape[1] in (40, 180)
        assert np.mean(numbers**2) == pytest.approx(variance, rel=5 * math.sqrt(2 / numbers.size))
    scaled = drawn * np.where(layout.on_diagonal, 1.0, math.sqrt(2))
    correlations = scaled.T @ scaled / math.sqrt(len(scaled))
    np.fill_diagonal(correlations, 0.0)
    assert np.abs(correlations).max() < 6


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(InputError):
        ClassLayout(3, 3).unpack(np.zeros(17, dtype=np.int64))
    with pytest.raises(InputError):
        ClassLayout(4000, 10)


def test_classes_are_summed_on_their_own_from_a_public_number_of_rows_on() -> None:
    def count(n: int, n_classes: int = 10, epsilon: float = 1.0, m: int = 1) -> int:
        return count_components(n, n_classes, epsilon, 1e-5, m)

    counts = [count(n) for n in (0, 1000, 10_000, 20_000, 60_000, 10**6)]
    assert counts == sorted(counts)
    assert counts[1] == 0 < counts[3] < counts[4] == counts[5]
    assert count(4000) == 0 < count(4000, epsilon=2.0) < count(4000, epsilon=8.0)  # few rows need little noise
    assert count(60_000, m=10) == count(6000)
    assert count(60_000, n_classes=2) == 0


@pytest.mark.parametrize("n_classes", [3, 10, 1000])
def test_the_number_of_components_follows_from_the_signal_within_what_a_bundle_holds(n_classes: int) -> None:
    """1.5 r to the power of two thirds, from r = 150 on, in 2¹⁶ numbers of all classes, or 16 where those are too few."""
    sigma, m = calibrate_multiplier(2.0, 1e-6), 3
    most = max(D for D in range(1, 300) if n_classes * D * (D + 1) // 2 <= 2**16) - 1
    for signal in (149.9, 150.1, 400.0, 1000.0, 1e5):
        n = round(signal * n_classes * m * sigma)
        expected = max(16, min(round(1.5 * signal ** (2 / 3)), most)) if signal > 150 else 0
        assert count_components(n, n_classes, 2.0, 1e-6, m) == expected


def test_a_layout_by_class_has_up_to_two_to_the_23_sums_of_two_features_and_two_classes_at_least() -> None:
    assert ClassLayout(2, 2).size == 6
    assert ClassLayout(2895, 2).size == 2895 * 2896
    for n_features, n_classes in ((1, 2), (2, 1), (2896, 2)):
        with pytest.raises(InputError) as caught:
            ClassLayout(n_features, n_classes)
        assert caught.value.what == "n_features"
    layout = ClassLayout(113, 10)
    assert layout.most_rows == (2**60 - 1) // 2**35
    assert 0 < layout.resolution - layout.scale - math.sqrt(113) < 1
    assert layout.sensitivity_squared == 2**68


def picture_settings(**entries: object) -> SumSettings:
    return SumSettings(features="pictures", expected_rows=60_000, **entries)  # type: ignore[arg-type]


def test_the_workload_follows_from_the_declaration() -> None:
    digits = Schema(PIXELS, Label("y", "classes", tuple("0123456789")))
    made = picture_settings()
    features = make_features(made, digits, (8, 8))
    layout = make_layout(made, digits, features)
    assert layout == ClassLayout(features.n_features, 10)
    assert features.n_features == 113
    rows = list_sums(made, layout)
    assert rows[1][1] == f"{layout.size:,}"
    for other in (
        replace(made, expected_rows=0),
        replace(made, epsilon=None),
        replace(made, epsilon=0.05),
        replace(made, rows_per_person=50, person="who"),
    ):
        assert not isinstance(make_layout(other, digits, make_features(other, digits, (8, 8))), ClassLayout)
    assert "expected_rows" not in replace(made, expected_rows=0).as_dict()
    few = replace(made, n_features=20)
    assert make_features(few, digits, (8, 8)).n_features == 21


def test_a_bundle_of_digits_by_class_for_fifteen_combiners_has_less_than_ten_megabytes() -> None:
    digits = Schema(PIXELS, Label("y", "classes", tuple("0123456789")))
    made = picture_settings()
    features = make_features(made, digits, (8, 8))
    scheme = make_scheme(made, make_layout(made, digits, features), features, [f"p{i}" for i in range(50)])
    n_shares = scheme.threshold.n_combiners - scheme.threshold.threshold + 1
    assert scheme.is_by_class
    assert 8 * scheme.layout.size * n_shares < 10e6
