import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mooring import MissingExtraError
from mooring.errors import InputError
from mooring.metrics import DigitAuditor, build_galleries, link, train_digit_auditor
from mooring.metrics.digit_auditor import _untrained_network
from tests.raising import raising

Refused = Callable[..., None]
Digits = tuple[np.ndarray, np.ndarray]


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with raising(MissingExtraError, extra="torch"):
        train_digit_auditor(np.ones((4, 16)), [0, 1, 0, 1], seed=0)


@pytest.fixture(scope="module")
def digits() -> Digits:
    pixels, labels = load_digits(return_X_y=True)
    return pixels / 16.0, labels


@pytest.fixture(scope="module")
def auditor(digits: Digits, torch: ModuleType) -> DigitAuditor:
    pixels, labels = digits
    return train_digit_auditor(pixels[:900], labels[:900], seed=0, device="cpu", epochs=3, batch_size=32)


def test_the_auditor_learns_digits(auditor: DigitAuditor) -> None:
    assert auditor.validation_accuracy > 0.9
    assert 1 <= auditor.best_epoch <= 3
    assert "network" not in repr(auditor)


def test_vectors_have_128_values_and_length_one_and_the_nearest_other_image_shows_the_same_digit(
    auditor: DigitAuditor, digits: Digits
) -> None:
    pixels, labels = digits[0][1200:], digits[1][1200:]
    vectors = auditor(pixels)
    assert vectors.shape == (len(pixels), 128)
    assert vectors.dtype == np.float64
    assert (vectors >= 0).all()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0)
    cosines = vectors @ vectors.T - 2.0 * np.eye(len(vectors))
    assert np.mean(labels[cosines.argmax(axis=1)] == labels) > 0.9


def test_it_clamps_pixels(auditor: DigitAuditor, digits: Digits) -> None:
    wild = digits[0][:5] * 4.0 - 1.5
    assert np.array_equal(auditor(wild), auditor(wild.clip(0.0, 1.0)))


def test_it_links_clean_images_always_and_noise_at_chance(
    auditor: DigitAuditor, digits: Digits, rng: np.random.Generator
) -> None:
    """About 600 queries in same-digit galleries: 0.1 ± 0.012."""
    pixels, labels = digits[0][1200:], digits[1][1200:]
    galleries = build_galleries(labels, seed=0)
    clean = auditor(pixels)
    assert link(clean, clean, galleries, metric="cosine").value == 1.0
    noise = link(auditor(rng.random(pixels.shape)), clean, galleries, metric="cosine")
    assert abs(noise.value - 0.1) < 4 * 0.0123


@pytest.mark.parametrize("side", [4, 9, 28])
def test_images_of_other_sizes_are_welcome(side: int, rng: np.random.Generator, torch: ModuleType) -> None:
    images = rng.random((40, side**2))
    trained = train_digit_auditor(images, np.arange(40) % 2, seed=0, device="cpu", epochs=1)
    assert trained(images).shape == (40, 128)
    assert trained.image_side == side
    n_flat = trained._network[-2].in_features
    assert n_flat == 64 * (side // 4) ** 2


def test_training_depends_on_its_seed_and_leaves_global_random_state_alone(digits: Digits, torch: ModuleType) -> None:
    pixels, labels = digits[0][:200], digits[1][:200]
    vectors = []
    with torch.random.fork_rng(devices=[]):
        for seed in (3, 3, 4):
            torch.rand(1)  # each training finds another global state
            before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
            vectors.append(train_digit_auditor(pixels, labels, seed=seed, device="cpu", epochs=1)(pixels))
            assert torch.equal(torch.get_rng_state(), before)
            assert np.array_equal(np.random.get_state()[1], numpy_before)  # noqa: NPY002
    assert np.array_equal(vectors[0], vectors[1])
    assert not np.allclose(vectors[0], vectors[2])


def test_the_best_checkpoint_is_kept_and_the_earliest_of_equals(rng: np.random.Generator, torch: ModuleType) -> None:
    """The network separates dark from bright images at once; what later epochs change is not kept."""
    labels = np.arange(120) % 2
    pixels = 0.8 * labels[:, None] + 0.2 * rng.random((120, 36))
    options = {"seed": 0, "device": "cpu", "batch_size": 10}
    best = train_digit_auditor(pixels, labels, epochs=8, **options)
    assert best.validation_accuracy == 1.0
    assert best.best_epoch < 8
    stopped = train_digit_auditor(pixels, labels, epochs=best.best_epoch, **options)
    assert np.array_equal(best(pixels), stopped(pixels))


@pytest.mark.definitions
def test_the_schedule_is_the_papers_by_default() -> None:
    """Ten epochs of batches of 256 at a rate of 0.001; a sixth of the images is held out."""
    stated = inspect.signature(train_digit_auditor).parameters
    names = ("epochs", "batch_size", "learning_rate", "validation_fraction")
    assert [stated[name].default for name in names] == [10, 256, 1e-3, 1 / 6]


def test_two_images_of_a_digit_are_enough_where_one_is_held_out(torch: ModuleType, rng: np.random.Generator) -> None:
    images, labels = rng.random((12, 16)), np.array([0, 0] + [1] * 10)
    options = {"seed": 0, "device": "cpu", "epochs": 1, "batch_size": 1, "validation_fraction": 0.5}
    assert train_digit_auditor(images, labels, **options).best_epoch == 1


def test_unusable_digits_are_refused(refused: Refused, torch: ModuleType) -> None:
    images, labels = np.ones((20, 16)), np.arange(20) % 2
    refused(lambda: train_digit_auditor(np.ones((20, 15)), labels, seed=0), "images", "square", "15")
    refused(lambda: train_digit_auditor(np.ones((20, 9)), labels, seed=0), "images", "4 × 4", "9")
    for name, least in (("seed", 0), ("epochs", 1), ("batch_size", 1)):
        refused(
            lambda given={"seed": 0, name: least - 1}: train_digit_auditor(images, labels, **given),
            *(name, f"at least {least}", str(least - 1)),
        )
    for some in (np.zeros(20), np.arange(20), np.arange(20) == 3):
        refused(
            lambda some=some: train_digit_auditor(images, some, seed=0), "labels", "two or more digits", "20 images"
        )


@pytest.mark.parametrize(("share", "n_held_out"), [(0.05, 1), (0.1, 2), (0.9, 18), (0.95, 19)])
def test_an_image_of_every_digit_is_left_to_either_side(
    share: float, n_held_out: int, torch: ModuleType, rng: np.random.Generator
) -> None:
    images, labels = rng.random((20, 16)), np.arange(20) % 2
    options: dict[str, Any] = {"seed": 0, "device": "cpu", "epochs": 1, "validation_fraction": share}
    with nullcontext() if 2 <= n_held_out <= 18 else raising(InputError, "labels", got=f"{n_held_out} held out"):
        train_digit_auditor(images, labels, **options)


@pytest.mark.parametrize("side", [4, 9, 28])
def test_convolutions_keep_the_sides_of_an_image_and_two_pools_halve_them(side: int, torch: ModuleType) -> None:
    embedding, head = _untrained_network(torch, side, 10, 0)
    shapes = [(1, side, side)]
    seen = torch.zeros(1, *shapes[0])
    for layer in (*embedding, head):
        seen = layer(seen)
        shapes.append(tuple(seen.shape[1:]))
    half, quarter = side // 2, side // 4
    sides = [(32, side, side), (64, side, side), (64, half, half), (64, half, half), (64, quarter, quarter)]
    assert list(dict.fromkeys(shapes))[1:] == [*dict.fromkeys(sides), (64 * quarter**2,), (128,), (10,)]
    kernels = [layer.kernel_size for layer in embedding if isinstance(layer, torch.nn.Conv2d)]
    assert kernels == [(3, 3)] * 3


def test_training_clamps_pixels(torch: ModuleType, rng: np.random.Generator) -> None:
    wild, labels = 3.0 * rng.random((24, 16)) - 1.0, np.arange(24) % 2
    vectors = [
        train_digit_auditor(images, labels, seed=0, device="cpu", epochs=2, batch_size=8)(wild)
        for images in (wild, wild.clip(0.0, 1.0))
    ]
    assert np.array_equal(vectors[0], vectors[1])
