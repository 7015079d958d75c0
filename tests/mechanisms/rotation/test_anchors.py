from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring import check_anchor, make_anchor

Refused = Callable[..., None]


@pytest.fixture
def anchor() -> np.ndarray:
    return make_anchor(12, 3, rng=np.random.default_rng(0))


def test_anchors_repeat_with_the_stream_and_differ_otherwise() -> None:
    first, again, other = (make_anchor(8, 2, rng=np.random.default_rng(seed)) for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_anchors_favour_no_orientation() -> None:
    """The mean of an entry over 2,000 anchors of 5 × 2 has spread 0.01; plain QR gives the first entry one of -0.36."""
    rng = np.random.default_rng(0)
    anchors = np.stack([make_anchor(5, 2, rng=rng) for _ in range(2000)])
    assert np.max(np.abs(anchors.mean(axis=0))) < 0.05


def test_a_good_anchor_passes_on_both_libraries(anchor: np.ndarray, on_backend: Callable[[Any], Any]) -> None:
    check_anchor(on_backend(anchor))


def test_anchors_of_another_shape_are_refused(refused: Refused, rng: np.random.Generator) -> None:
    for shape in ((5,), (2, 5, 2)):
        refused(lambda s=shape: check_anchor(np.zeros(s)), "anchor", "a matrix of rows by components", f"shape {shape}")
    for make in (lambda n, d: check_anchor(np.eye(n, d)), lambda n, d: make_anchor(n, d, rng=rng)):
        refused(lambda make=make: make(5, 0), "n_components", "at least 1", "0")
        for n in (0, 2, 3):
            refused(lambda make=make, n=n: make(n, 3), "n_anchor_rows", "at least n_components + 1 = 4", str(n))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_an_anchor_that_is_not_finite_is_refused(
    value: float, anchor: np.ndarray, refused: Refused, on_backend: Callable[[Any], Any]
) -> None:
    anchor[3, 1] = value
    refused(lambda: check_anchor(on_backend(anchor)), "anchor", "finite", "NaN or Inf")


def test_an_anchor_off_centre_is_refused(anchor: np.ndarray, refused: Refused) -> None:
    refused(lambda: check_anchor(anchor + 1e-9), "anchor", "centred, with column sums below 1e-10", "1.2e-08")
    orthonormal, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((12, 3)))
    refused(lambda: check_anchor(orthonormal), "anchor", "centred", "a column sum of")


@pytest.mark.parametrize(
    "spoil",
    [lambda A: 10 * A, lambda A: A * (1 + 1e-9), lambda A: A[:, [0, 0, 1]], lambda A: A * np.array([1.0, 1.0, 0.0])],
    ids=["scaled", "barely scaled", "repeated column", "empty column"],
)
def test_an_anchor_that_is_not_orthonormal_is_refused(
    spoil: Callable[[np.ndarray], np.ndarray], anchor: np.ndarray, refused: Refused
) -> None:
    refused(
        lambda: check_anchor(spoil(anchor)), "anchor", "orthonormal columns, |AᵀA − I| below 1e-10", "a deviation of"
    )
