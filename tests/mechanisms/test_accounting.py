import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from mooring import Guarantee, NeighboringRelation, calibrate_gaussian, clip_rows
from mooring.geometry.backend import to_numpy
from tests.raising import numbers_in

Refused = Callable[..., None]


def exact_delta(scale: float, epsilon: float, sensitivity: float) -> float:
    """The Gaussian mechanism's exact δ(ε): Φ(Δ/2σ − εσ/Δ) − e^ε Φ(−Δ/2σ − εσ/Δ)."""
    half, tilt = sensitivity / (2 * scale), epsilon * scale / sensitivity
    return float(norm.cdf(half - tilt) - math.exp(epsilon + norm.logcdf(-half - tilt)))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6])
@pytest.mark.parametrize("clipping_norm", [1.0, 3.7])
def test_the_noise_is_the_least_that_meets_the_exact_formula(
    epsilon: float, delta: float, clipping_norm: float
) -> None:
    pytest.importorskip("dp_accounting")
    scale = calibrate_gaussian(epsilon, delta, clipping_norm=clipping_norm).data_noise_scale
    sensitivity = 2 * clipping_norm
    assert exact_delta(scale, epsilon, sensitivity) <= delta * (1 + 1e-6)
    least = brentq(lambda s: exact_delta(s, epsilon, sensitivity) - delta, 1e-3 * sensitivity, 1e3 * sensitivity)
    assert scale == pytest.approx(least, rel=1e-3)


def test_replacing_a_record_takes_twice_the_noise_of_zeroing_one_out() -> None:
    pytest.importorskip("dp_accounting")
    zeroed = calibrate_gaussian(1.0, 1e-5, clipping_norm=2.0, neighboring=NeighboringRelation.ZERO_OUT_ONE)
    replace = calibrate_gaussian(1.0, 1e-5, clipping_norm=2.0)
    assert replace.neighboring is NeighboringRelation.REPLACE_ONE
    assert replace.data_noise_scale == pytest.approx(2 * zeroed.data_noise_scale, rel=1e-4)


def test_the_noise_grows_with_the_clipping_norm_and_falls_with_epsilon_and_delta() -> None:
    pytest.importorskip("dp_accounting")

    def scale(epsilon: float, delta: float, clipping_norm: float) -> float:
        return calibrate_gaussian(epsilon, delta, clipping_norm=clipping_norm).data_noise_scale

    assert scale(1.0, 1e-5, 3.0) == pytest.approx(3 * scale(1.0, 1e-5, 1.0), rel=1e-4)
    assert scale(2.0, 1e-5, 1.0) < scale(1.0, 1e-5, 1.0) < scale(1.0, 1e-6, 1.0)


def test_a_guarantee_says_what_it_covers_and_that_labels_are_not() -> None:
    text = str(Guarantee(1.0, 1e-5, NeighboringRelation.REPLACE_ONE, 2.5, 7.4567))
    assert numbers_in(text) >= {1, 1e-5, 2.5, 7.457}
    assert all(word in text for word in ("replaced", "upload", "labels", "row counts"))


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_epsilon_and_clipping_norm_must_be_positive(value: float, refused: Refused) -> None:
    expectation = {"expected": "a positive, finite number", "got": str(value)}
    refused(lambda: calibrate_gaussian(value, 1e-5, clipping_norm=1.0), what="epsilon", **expectation)
    refused(lambda: calibrate_gaussian(1.0, 1e-5, clipping_norm=value), what="clipping_norm", **expectation)
    refused(lambda: clip_rows(np.ones((2, 2)), value), what="clipping_norm", **expectation)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 2.0, math.nan])
def test_delta_must_lie_between_zero_and_one(delta: float, refused: Refused) -> None:
    refused(lambda: calibrate_gaussian(1.0, delta, clipping_norm=1.0), "delta", "between 0 and 1", str(delta))


def test_an_unknown_neighbouring_relation_is_refused(refused: Refused) -> None:
    pytest.importorskip("dp_accounting")
    refused(lambda: calibrate_gaussian(1.0, 1e-5, clipping_norm=1.0, neighboring="replace-one"), "neighboring", "", "")


def test_long_rows_are_scaled_down_even_very_long_ones_and_short_ones_left_alone(
    on_backend: Callable[[Any], Any],
) -> None:
    rows = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, 1.0], [-30.0, 40.0]])
    clipped = to_numpy(clip_rows(on_backend(rows), 1.0))
    assert rows[0].tolist() == [3.0, 4.0]  # the rows given are left alone
    assert np.allclose(clipped, [[0.6, 0.8], [0.3, 0.4], [0.0, 0.0], [0.0, 1.0], [-0.6, 0.8]])
    assert np.array_equal(clipped[1:4], rows[1:4])
    assert np.allclose(clip_rows(np.array([[3e200, 4e200]]), 1.0), [[0.6, 0.8]])


def test_a_row_as_long_as_the_norm_is_not_changed_by_rounding() -> None:
    for row in np.random.default_rng(0).standard_normal((50, 1, 3)):
        largest = np.abs(row).max()
        length = float(largest * np.sqrt(np.sum((row / largest) ** 2)))
        assert np.array_equal(clip_rows(row, length), row)
        assert not np.array_equal(clip_rows(row, (1 - 1e-12) * length), row)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_rows_that_are_not_finite_cannot_be_clipped(value: float, refused: Refused) -> None:
    refused(lambda: clip_rows(np.array([[value, 1.0]]), 1.0), "rows", "finite", "NaN or Inf")
