import math
import sys
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import MissingExtraError
from mooring.errors import InputError
from mooring.metrics import centred_error, feature_r2, psnr, relative_error, ssim
from mooring.metrics.reconstruction import error_figure, mean_figure, relative_errors
from mooring.metrics.validation import require_image_shape
from tests.raising import raising

Refused = Callable[..., None]
seeds = st.integers(0, 2**32 - 1)


def pair(seed: int, n_rows: int = 12, n_features: int = 5) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((n_rows, n_features)) + 2.0
    return truth, truth + 0.3 * rng.standard_normal(truth.shape)


def test_a_perfect_reconstruction_has_no_error_and_the_mean_row_an_error_of_one() -> None:
    truth, _ = pair(0)
    assert relative_error(truth, truth.copy()) == centred_error(truth, truth.copy()) == 0.0
    assert np.array_equal(feature_r2(truth, truth.copy()), np.ones(5))
    mean = np.broadcast_to(truth.mean(axis=0), truth.shape)
    assert centred_error(truth, mean) == pytest.approx(1.0)
    assert np.allclose(feature_r2(truth, mean), 0.0, atol=1e-12)


def test_known_errors() -> None:
    truth, values = np.array([[0.0, 3.0], [4.0, 3.0]]), np.array([[1.0, 3.0], [4.0, 3.0]])
    assert relative_error(truth, values) == pytest.approx(1 / math.sqrt(34))
    assert relative_error(truth, np.zeros_like(truth)) == pytest.approx(1.0)
    assert centred_error(truth, values) == pytest.approx(1 / math.sqrt(8))
    assert feature_r2(truth, values)[0] == pytest.approx(1 - 1 / 8)
    assert relative_errors(truth, np.stack([values, 0 * values])) == pytest.approx([1 / math.sqrt(34), 1.0])


@given(seeds, st.floats(0.01, 100.0))
def test_relative_error_ignores_rotation_and_unit(seed: int, unit: float) -> None:
    truth, rebuilt = pair(seed)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((5, 5)))[0]
    assert relative_error(unit * truth @ Q, unit * rebuilt @ Q) == pytest.approx(relative_error(truth, rebuilt))


@given(seeds, st.lists(st.floats(0.1, 10.0), min_size=5, max_size=5))
def test_r2_ignores_the_unit_of_each_column(seed: int, units: list[float]) -> None:
    truth, rebuilt = pair(seed)
    assert np.allclose(feature_r2(truth * units, rebuilt * units), feature_r2(truth, rebuilt))


def test_intervals_hold_the_value_and_shrink_with_rows(rng: np.random.Generator) -> None:
    """Sixteen times the rows, a quarter of the width, within a third."""
    widths = []
    for n in (100, 1600):
        truth, rebuilt = pair(1, n)
        figure = error_figure("error", ((rebuilt - truth) ** 2).sum(axis=1), (truth**2).sum(axis=1), rng=rng)
        assert figure.value == pytest.approx(relative_error(truth, rebuilt))
        assert figure.value in figure.interval
        assert (figure.higher_is_worse, figure.n) == (False, n)
        widths.append(figure.interval.high - figure.interval.low)
    assert widths[0] / widths[1] == pytest.approx(4.0, rel=0.33)


@pytest.mark.parametrize("value", [0.1, 1e6 + 0.1])
def test_constant_columns_have_no_r2_and_add_nothing_to_the_spread(value: float) -> None:
    truth, rebuilt = pair(2)
    truth[:, 3] = rebuilt[:, 3] = value
    assert np.flatnonzero(np.isnan(feature_r2(truth, rebuilt))).tolist() == [3]
    assert centred_error(truth, rebuilt) == pytest.approx(
        centred_error(np.delete(truth, 3, axis=1), np.delete(rebuilt, 3, axis=1))
    )


def test_what_cannot_be_related_to_anything_has_no_error(rng: np.random.Generator) -> None:
    zeros = error_figure("error", np.ones(3), np.zeros(3), rng=rng)
    assert math.isnan(zeros.value)
    assert not zeros.interval.known
    assert zeros.as_dict()["value"] is None
    assert math.isnan(relative_error(np.zeros((3, 2)), np.ones((3, 2))))
    single_row = [[3.0, 4.0]], [[3.0, 3.0]]
    assert relative_error(*single_row) == pytest.approx(0.2)
    assert math.isnan(centred_error(*single_row))
    assert np.isnan(feature_r2(*single_row)).all()
    assert not error_figure("error", np.ones(1), np.full(1, 25.0), rng=rng).interval.known


@pytest.mark.parametrize("shape", [(8, 8), (9, 7), (8, 8, 3), (5, 6), (3, 3), (11, 10)])
def test_images_are_measured_as_scikit_image_does(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    metrics = pytest.importorskip("skimage.metrics")
    truth = rng.random((4, *shape)) * 255
    clipped = np.clip(truth + 20 * rng.standard_normal(truth.shape), 0, 255)
    arguments = {"image_shape": shape, "data_range": 255.0}
    flat = truth.reshape(4, -1), clipped.reshape(4, -1)
    expected = [metrics.peak_signal_noise_ratio(a, b, data_range=255.0) for a, b in zip(truth, clipped, strict=True)]
    assert psnr(*flat, **arguments) == pytest.approx(expected)
    options = {
        "data_range": 255.0,
        "channel_axis": 2 if len(shape) == 3 else None,
        "win_size": min(7, shape[0] // 2 * 2 + 1 - 2 * (shape[0] == 8)),
    }
    expected = [metrics.structural_similarity(a, b, **options) for a, b in zip(truth, clipped, strict=True)]
    assert ssim(*flat, **arguments) == pytest.approx(expected)
    figure = mean_figure("ssim", ssim(*flat, **arguments), rng=rng)
    assert figure.value == pytest.approx(np.mean(expected))
    assert figure.value in figure.interval
    assert figure.higher_is_worse


def test_psnr_follows_the_noise_and_is_finite_for_perfect_images() -> None:
    """An error of 0.1 everywhere on a range of 1 is 20 dB; ten times the range, the same error is 40 dB."""
    truth = np.zeros((2, 64))
    for width, decibels in ((1.0, 20.0), (10.0, 40.0)):
        assert psnr(truth, truth + 0.1, image_shape=(8, 8), data_range=width) == pytest.approx(decibels)
    assert psnr(truth, truth.copy(), image_shape=(8, 8), data_range=1.0) == pytest.approx(313.07, abs=0.01)


def test_ssim_without_scikit_image_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "skimage.metrics", None)
    with pytest.raises(MissingExtraError) as caught:
        ssim(np.zeros((1, 64)), np.ones((1, 64)), image_shape=(8, 8), data_range=1.0)
    assert (caught.value.package, caught.value.extra) == ("scikit-image", "images")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_reconstructions_that_are_not_finite_are_refused(value: float, refused: Refused) -> None:
    truth, rebuilt = pair(0)
    rebuilt[2, 2] = value
    for measure in (relative_error, centred_error, feature_r2):
        refused(partial(measure, truth, rebuilt), "reconstruction", "finite", "NaN or Inf")


def test_shapes_that_do_not_fit_are_refused(refused: Refused) -> None:
    truth = np.ones((3, 16))
    refused(lambda: relative_error(truth, truth[:2]), "reconstruction", "(3, 16)", "shape (2, 16)")
    refused(lambda: relative_error(truth[0], truth[0]), "truth", "rows by features", "shape (16,)")
    refused(lambda: relative_error(truth[:0], truth[:0]), "truth", "at least one", "shape (0, 16)")
    measured = partial(psnr, truth, truth)
    for shape in ((4, 5), (16,), (-4, -4)):
        refused(partial(measured, image_shape=shape, data_range=1.0), "image_shape", "16 pixel values", str(shape))
    for width in (0.0, -1.0, math.inf):
        refused(partial(measured, image_shape=(4, 4), data_range=width), "data_range", "positive", f"{width:g}")
    thin = partial(ssim, truth, truth, image_shape=(2, 8), data_range=1.0)
    refused(thin, "image_shape", "at least 3 pixels", "(2, 8)")


@pytest.mark.parametrize(
    ("shape", "is_image"),
    [((1, 1), True), ((3, 5, 1), True), ((0, 3), False), ((3, 5, 0), False), ((3,), False), ((2, 2, 2, 2), False)],
)
def test_images_have_two_or_three_sides_of_a_pixel_or_more(shape: tuple[int, ...], is_image: bool) -> None:
    with nullcontext() if is_image else raising(InputError, "image_shape"):
        require_image_shape(shape)
