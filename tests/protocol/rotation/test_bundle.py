"""What an honest upload can be: honest ones are within the bounds, and the bounds are not much wider than need be."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, ncx2

from mooring import RigidMap, make_anchor
from mooring.errors import RefusedError
from mooring.protocol.rotation.bundle import (
    FALSE_REFUSAL,
    bound_norm,
    bound_row,
    bound_singular_values,
    explain_anchor,
    verify_bundle,
)
from tests.raising import raising
from tests.sites import KEYS, numeric_study, write_site

SHAPES = [(24, 3, 0.01), (24, 6, 0.05), (52, 13, 0.1), (31, 30, 0.1), (80, 20, 0.0), (10, 9, 0.5), (24, 2, 1.0)]
LENGTH = math.sqrt(12 * (1 + 0.05**2 * 47))  # of an anchor representation, as expected: √(h (1 + v² (r − 1)))


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


def test_the_norms_bounds_of_a_large_anchor_are_a_tenth_wider_than_the_law_at_most() -> None:
    (low, high), mean = bound_norm(400, 100, 0.1), 100 * (1 + 0.1**2 * 399)
    exact = 0.1**2 * ncx2.ppf([FALSE_REFUSAL, 1 - FALSE_REFUSAL], 399 * 100, 100 / 0.1**2)
    assert mean - exact[0] <= mean - low <= 1.1 * (mean - exact[0]) + 0.001 * mean
    assert exact[1] - mean <= high - mean <= 1.1 * (exact[1] - mean) + 0.001 * mean


@pytest.mark.parametrize(("h", "v"), [(3, 0.0), (12, 1.0)])
def test_an_anchor_moves_as_far_as_the_chi_squared_quantile_of_its_mean(h: int, v: float) -> None:
    study = numeric_study(h=h, r=48, v=v, method="aa-i-gdp-anchor-noise" if v else "aa-i-gdp")
    rng = np.random.default_rng(0)
    centred = make_anchor(48, h, rng=rng) + v * rng.standard_normal((48, h))
    centred -= centred.mean(axis=0)
    farthest = math.sqrt((1 + v**2 / 48) * chi2.isf(FALSE_REFUSAL, h))
    problems = [explain_anchor(centred + share * farthest * np.eye(h)[0], study) for share in (0.999, 1.001)]
    assert [bool(reason) for reason in problems] == [False, True]


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
        (lambda centred, mean: 0.5 * LENGTH / np.linalg.norm(centred) * centred + mean, "is 0.5 times as large"),
        (lambda centred, mean: 2 * LENGTH / np.linalg.norm(centred) * centred + mean, "is 2 times as large"),
        (lambda centred, mean: _swap_length(centred, 1e-3) + mean, "singular values"),
        (lambda centred, mean: _swap_length(centred, 0.3) + mean, "singular values"),
        (lambda centred, mean: _swap_length(centred, 3) + mean, "singular values"),
    ],
    ids=["far", "near", "half", "twice", "singular", "narrow", "long"],
)
def test_what_no_participant_makes_is_refused(change: object, reason: str) -> None:
    study, rng = numeric_study(h=12, r=48, v=0.05), np.random.default_rng(0)
    for _ in range(50):
        noisy = np.asarray(RigidMap.sample(12, rng=rng).apply(make_anchor(48, 12, rng=rng)))
        noisy += 0.05 * rng.standard_normal(noisy.shape)
        mean = noisy.mean(axis=0)
        problem = explain_anchor(change(noisy - mean, mean), study)  # type: ignore[operator]
        assert problem is not None
        assert reason in problem


def _swap_length(centred: np.ndarray, factor: float) -> np.ndarray:
    """One column shorter or longer, all others the other way, and the same norm."""
    changed = centred * np.array([factor, *[1] * (centred.shape[1] - 1)])
    return np.asarray(changed * np.linalg.norm(centred) / np.linalg.norm(changed))


def test_a_bundle_that_becomes_shorter_after_it_was_verified_is_refused_where_it_is_read(tmp_path: Path) -> None:
    study, rng, path = numeric_study(), np.random.default_rng(0), tmp_path / "site-0.bundle"
    rows, anchor = rng.uniform(-1, 1, (40, 6)), make_anchor(24, 6, rng=rng)
    write_site(path, study, KEYS[0], rows, rng.integers(0, 2, 40), anchor, rng)
    bundle = verify_bundle(path, study)
    assert bundle.representation().shape == (40, 6)
    path.write_bytes(path.read_bytes()[:-200])
    with raising(RefusedError, "the bundle", reason="shorter"):
        list(bundle.blocks(40))
