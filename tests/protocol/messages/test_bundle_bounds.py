"""What an honest upload can be: honest ones are within the bounds, and the bounds are not much wider than need be."""

import math

import numpy as np
import pytest
from scipy.stats import ncx2

from mooring import RigidMap, make_anchor
from mooring.protocol.messages.bundle_bounds import (
    FALSE_REFUSAL,
    bound_norm,
    bound_row,
    bound_singular_values,
    explain_anchor,
)
from tests.sites import numeric_study

SHAPES = [(24, 3, 0.01), (24, 6, 0.05), (52, 13, 0.1), (31, 30, 0.1), (80, 20, 0.0), (10, 9, 0.5), (24, 2, 1.0)]


@pytest.mark.parametrize(("r", "h", "v"), SHAPES)
def test_honest_uploads_are_within_the_bounds(r: int, h: int, v: float) -> None:
    """Four bounds of a false refusal of 1e-9 and 200 draws: fails by chance in fewer than one of 100,000 runs."""
    method = "aa-i-gdp-anchor-noise" if v else "aa-i-gdp"
    study, rng = numeric_study(h=h, r=r, v=v, method=method), np.random.default_rng(0)
    corner = np.ones((1, h))  # of the encoded box, where rows are longest
    for _ in range(200):
        secret = RigidMap.sample(h, rng=rng)
        noisy = np.asarray(secret.apply(make_anchor(r, h, rng=rng))) + v * rng.standard_normal((r, h))
        sent = noisy.astype(np.float32).astype(np.float64)
        assert explain_anchor(sent, study) is None
        row = np.asarray(secret.apply(corner)).astype(np.float32)
        assert np.linalg.norm(row - sent.mean(axis=0)) <= bound_row(study, 1)


@pytest.mark.parametrize(("r", "h", "v"), [shape for shape in SHAPES if shape[2]])
def test_the_norms_bounds_hold_the_noncentral_chi_squared_and_little_more(r: int, h: int, v: float) -> None:
    low, high = bound_norm(r, h, v)
    exact = v**2 * ncx2.ppf([FALSE_REFUSAL, 1 - FALSE_REFUSAL], (r - 1) * h, h / v**2)
    mean = h * (1 + v**2 * (r - 1))
    assert low <= exact[0] < exact[1] <= high
    assert mean - low <= 2 * (mean - exact[0]) + 0.01 * mean
    assert high - mean <= 2 * (exact[1] - mean) + 0.01 * mean


@pytest.mark.parametrize(("r", "h", "v"), [(400, 100, 0.03), (120, 60, 0.1), (41, 40, 0.05)])
def test_singular_values_come_near_the_edges_of_their_law(r: int, h: int, v: float) -> None:
    low, high = bound_singular_values(r, h, v)
    slack = v * math.sqrt(-2 * math.log(FALSE_REFUSAL)) + 1e-3
    rng = np.random.default_rng(1)
    drawn = make_anchor(r, h, rng=rng) + v * rng.standard_normal((r, h))
    values = np.linalg.svd(drawn - drawn.mean(axis=0), compute_uv=False)
    assert values[[-1, 0]] == pytest.approx([low + slack, high - slack], abs=1.5 * v)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda centred, mean: centred + mean + 200, "from the origin"),
        (lambda centred, mean: centred + mean + 4, "from the origin"),
        (lambda centred, mean: 0.5 * centred + mean, "times as large"),
        (lambda centred, mean: 2 * centred + mean, "times as large"),
        (lambda centred, mean: _swap_length(centred, 1e-3) + mean, "by direction"),
        (lambda centred, mean: _swap_length(centred, 0.3) + mean, "by direction"),
    ],
    ids=["far", "near", "half", "twice", "singular", "narrow"],
)
def test_what_no_participant_makes_is_refused(change: object, reason: str) -> None:
    study, rng = numeric_study(h=12, r=48, v=0.05), np.random.default_rng(0)
    for _ in range(50):
        noisy = np.asarray(RigidMap.sample(12, rng=rng).apply(make_anchor(48, 12, rng=rng)))
        noisy += 0.05 * rng.standard_normal(noisy.shape)
        mean = noisy.mean(axis=0)
        found = explain_anchor(change(noisy - mean, mean), study)  # type: ignore[operator]
        assert found is not None
        assert reason in found


def _swap_length(centred: np.ndarray, factor: float) -> np.ndarray:
    """One column shorter, all others longer, and the same norm."""
    changed = centred * np.array([factor, *[1] * (centred.shape[1] - 1)])
    return np.asarray(changed * np.linalg.norm(centred) / np.linalg.norm(changed))
