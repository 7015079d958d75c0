"""The certificate says yes only where it may, and its bound on what is left holds."""

import json
import math
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring import Certificate, RigidMap, align, make_anchor
from mooring.alignment.certificate import prove_optimal
from mooring.alignment.problem import make_problem
from mooring.geometry.orthogonal import sample_orthogonal
from mooring.theory import transition_scale


def centred(uploads: np.ndarray) -> np.ndarray:
    return uploads - uploads.mean(axis=1, keepdims=True)


def objective(uploads: np.ndarray, maps: np.ndarray) -> float:
    return float(np.sum((centred(uploads) @ maps).sum(axis=0) ** 2))


def stacked(alignment: Any) -> np.ndarray:
    return np.stack([map.orthogonal for map in alignment.maps])


def dense_smallest_eigenvalue(uploads: np.ndarray, maps: np.ndarray) -> float:
    """Smallest eigenvalue of blkdiag(sym((GR)_i R_iᵀ)) − G with the gauge, the columns of R, projected out."""
    p, _, d = uploads.shape
    D = np.concatenate(list(centred(uploads)), axis=1)
    G = D.T @ D
    R = maps.reshape(p * d, d)
    L = -G
    for i in range(p):
        block = slice(i * d, (i + 1) * d)
        M = (G @ R)[block] @ maps[i].T
        L[block, block] += 0.5 * (M + M.T)
    outside = np.linalg.svd(R, full_matrices=True)[0][:, d:]
    return float(np.linalg.eigvalsh(outside.T @ L @ outside)[0])


def power_method(uploads: np.ndarray, maps: np.ndarray, *, n_steps: int = 300) -> np.ndarray:
    B = centred(uploads)
    for _ in range(n_steps):
        U, _, Vt = np.linalg.svd(np.swapaxes(B, 1, 2) @ (B @ maps).sum(axis=0))
        maps = U @ Vt
    return maps


def trap(n_small: int = 10, *, large: float = 4.0, tilt: float = 1e-3) -> np.ndarray:
    """A problem of signs that holds the power method in a poor fixed point.

    One long column along e₁ and many short ones along e₂, tilted towards ±e₁ by turns. The spectral start sees e₁ alone
    and lets the tilts decide the signs, so the short ones cancel: an objective of about large², against large² + n².
    """
    e1, e2 = np.array([1.0, -1.0, 0.0, 0.0]) / np.sqrt(2), np.array([0.0, 0.0, 1.0, -1.0]) / np.sqrt(2)
    short = [e2 + (tilt if i % 2 else -tilt) * e1 for i in range(n_small)]
    return np.stack([large * e1, *short])[:, :, None]


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_low_noise_solutions_are_certified(
    solver: str, noise: float, make_study: Callable, on_backend: Callable
) -> None:
    for seed in range(4):
        study = make_study(6, 3, 12, noise=noise, seed=seed)
        certificate = align(on_backend(study.uploads), solver=solver, certify=True).certificate
        assert certificate.certified
        assert certificate.min_eigenvalue > 0
        assert certificate.optimality_gap <= 1e-7


@pytest.mark.parametrize("solver", ["accelerated", "gpm", "spectral"])
@pytest.mark.parametrize("noise", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("shape", [(2, 2, 5), (3, 1, 4), (6, 3, 12), (4, 4, 5)])
def test_the_eigenvalue_is_that_of_the_dense_matrix(
    solver: str, noise: float, shape: tuple[int, int, int], make_study: Callable
) -> None:
    uploads = make_study(*shape, noise=noise, seed=4).uploads
    alignment = align(uploads, solver=solver, certify=True)
    expected = dense_smallest_eigenvalue(uploads, stacked(alignment))
    assert alignment.certificate.min_eigenvalue == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_high_noise_solutions_are_not_shown_where_the_dense_matrix_is_indefinite(make_study: Callable) -> None:
    n_indefinite = 0
    for seed in range(8):
        uploads = make_study(8, 4, 12, noise=2.0, seed=seed).uploads
        alignment = align(uploads, certify=True)
        expected = dense_smallest_eigenvalue(uploads, stacked(alignment))
        if expected < -1e-3:
            n_indefinite += 1
            assert not alignment.certificate.certified
            assert alignment.certificate.min_eigenvalue < 0
            assert alignment.certificate.min_eigenvalue == pytest.approx(expected, rel=1e-3)
            share = -1.01 * expected * 8 * 4 / alignment.objective  # of the mean entry on L's diagonal
            assert alignment.certificate.optimality_gap == pytest.approx(share, rel=1e-3)
    assert n_indefinite >= 5


@pytest.mark.parametrize("noise", [0.3, 0.8, 2.0])
def test_the_gap_bounds_the_best_of_many_restarts(noise: float, make_study: Callable) -> None:
    rng = np.random.default_rng(0)
    for seed in range(3):
        uploads = make_study(6, 2, 8, noise=noise, seed=seed).uploads
        starts = [sample_orthogonal(2, rng=rng, batch_shape=(6,)) for _ in range(12)]
        best = max(objective(uploads, power_method(uploads, start)) for start in starts)
        for solver in ("accelerated", "gpm", "spectral"):
            alignment = align(uploads, solver=solver, certify=True)
            assert best <= alignment.objective * (1 + alignment.certificate.optimality_gap) * (1 + 1e-12)


@pytest.mark.parametrize("noise", [0.2, 1.0, 3.0])
def test_against_all_choices_of_sign_the_certificate_never_errs(noise: float, make_study: Callable) -> None:
    """With one component the maps are signs, and the global optimum can be had by trying all of them."""
    for seed in range(6):
        uploads = make_study(7, 1, 5, noise=noise, seed=seed).uploads
        signs = np.array(list(product([1.0, -1.0], repeat=6)))
        signs = np.concatenate([np.ones((64, 1)), signs], axis=1)
        best = np.max(np.sum((signs @ centred(uploads)[:, :, 0]) ** 2, axis=1))
        for choice in signs[:: 5 + seed]:
            certificate = prove_optimal(make_problem(uploads), choice[:, None, None])
            reached = objective(uploads, choice[:, None, None])
            assert not certificate.certified or reached == pytest.approx(best, rel=1e-7)
            if certificate.optimality_gap < 1:
                assert best <= reached * (1 + certificate.optimality_gap) * (1 + 1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.3])
def test_flipped_maps_are_never_certified(noise: float, make_study: Callable, on_backend: Callable) -> None:
    uploads = make_study(5, 3, 12, noise=noise, seed=6).uploads
    problem = make_problem(on_backend(uploads))
    maps = stacked(align(uploads))
    assert prove_optimal(problem, on_backend(maps)).certified
    for participant in range(5):
        for reflection in (np.diag([1.0, 1.0, -1.0]), -np.eye(3)):
            flipped = maps.copy()
            flipped[participant] = flipped[participant] @ reflection
            certificate = prove_optimal(problem, on_backend(flipped))
            assert not certificate.certified
            assert certificate.min_eigenvalue < 0


@pytest.mark.parametrize("seed", range(4))
def test_the_gap_that_is_proved_is_little_more_than_the_smallest_eigenvalue_asks_for(
    seed: int, make_study: Callable
) -> None:
    """Relative to the objective it is −λ p d; a proof takes one step more, of a half, where that does not suffice."""
    uploads = make_study(5, 3, 12, noise=0.8, seed=seed).uploads
    rng = np.random.default_rng(seed)
    maps = power_method(uploads, sample_orthogonal(3, rng=rng, batch_shape=(5,)), n_steps=30)
    gap = prove_optimal(make_problem(uploads), maps).optimality_gap
    asked = -dense_smallest_eigenvalue(uploads, maps) * 5 * 3 / objective(uploads, maps)
    assert 1e-3 < asked <= gap <= 1.52 * asked


def test_a_wrong_fixed_point_is_never_certified() -> None:
    """The power method rests here, a seventh of the way up: a stationary point that is not the optimum."""
    alignment = align(trap(), solver="gpm", certify=True)
    assert alignment.converged
    assert alignment.objective < 17 < 116
    assert not alignment.certificate.certified
    assert alignment.certificate.min_eigenvalue < 0


def test_local_optima_of_noisy_problems_are_never_certified(make_study: Callable) -> None:
    """Flip one block of the best maps known, climb from there, and certify wherever that ends below."""
    n_worse = 0
    for seed in range(6):
        uploads = make_study(6, 2, 8, noise=0.7, seed=seed).uploads
        best = align(uploads)
        for participant in range(6):
            flipped = stacked(best)
            flipped[participant] = flipped[participant] @ np.diag([1.0, -1.0])
            rest = power_method(uploads, flipped)
            if objective(uploads, rest) < best.objective * (1 - 1e-6):
                n_worse += 1
                assert not prove_optimal(make_problem(uploads), rest).certified
    assert n_worse >= 3


def test_the_certificate_does_not_depend_on_everybody_s_frame(make_study: Callable) -> None:
    rng = np.random.default_rng(0)
    uploads = make_study(5, 3, 12, noise=0.6, seed=7).uploads
    turned = RigidMap.sample(3, rng=rng, batch_shape=(5,)).apply(uploads)
    certificate, other = (align(B, certify=True).certificate for B in (uploads, turned))
    assert certificate.certified == other.certified
    assert certificate.min_eigenvalue == pytest.approx(other.min_eigenvalue, rel=1e-3)


@pytest.mark.parametrize("solver", ["gpm", "spectral"])
def test_the_gap_bounds_the_optimum_even_when_the_maps_are_poor(solver: str) -> None:
    uploads = trap()
    alignment = align(uploads, solver=solver, certify=True)
    known = objective(uploads, np.ones((11, 1, 1)))
    assert known > 115
    assert known <= alignment.objective * (1 + alignment.certificate.optimality_gap)


@pytest.mark.parametrize(("gap", "is_bounded"), [(0.97e6, True), (1.03e6, False)])
def test_a_bound_of_more_than_a_million_times_the_objective_is_none(gap: float, is_bounded: bool) -> None:
    """Columns a, a and (ε − 2)a nearly cancel: L is about −6, and the mean entry of its diagonal is ε²/3."""
    column, small = np.array([[1.0], [-1.0]]), math.sqrt(1.01 * 18 / gap)
    uploads = np.stack([column, column, (small - 2) * column])
    certificate = prove_optimal(make_problem(uploads), np.ones((3, 1, 1)))
    assert certificate.optimality_gap == pytest.approx(gap if is_bounded else math.inf, rel=0.01)


def test_maps_that_cancel_are_not_certified() -> None:
    column = np.array([[1.0], [-1.0]])
    certificate = prove_optimal(make_problem(np.stack([column, column])), np.array([[[1.0]], [[-1.0]]]))
    assert not certificate.certified


@pytest.mark.parametrize(("shape", "certified"), [((5, 3, 4), 6), ((20, 4, 16), 0)])
def test_above_the_transition_certificates_depend_on_the_shape(shape: tuple[int, int, int], certified: int) -> None:
    """As docs/alignment.md has it: at twice v_PT, a short anchor is certified in 6 draws of 6, a longer one in none."""
    p, d, r = shape
    count = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        anchor, v = make_anchor(r, d, rng=rng), 2 * transition_scale(p, d, r)
        uploads = [anchor @ sample_orthogonal(d, rng=rng) + v * rng.standard_normal((r, d)) for _ in range(p)]
        count += align(uploads, certify=True).certificate.certified
    assert count == certified


def test_the_page_states_what_was_measured_of_certificates() -> None:
    root = Path(__file__).parents[2]
    page = (root / "docs" / "alignment.md").read_text(encoding="utf-8")
    stated = re.search(r"up to ([\d.]+) v_PT and none from ([\d.]+) v_PT on,.*?gap was\s+(\d+) to (\d+) %", page, re.S)
    assert stated is not None
    last, first, least, most = map(float, stated.groups())
    rows = json.loads((root / "benchmarks" / "results" / "certified_share.json").read_text(encoding="utf-8"))["rows"]
    assert {row["certified"] for row in rows if row["share_of_transition"] <= last} == {1.0}
    beyond = [row for row in rows if row["share_of_transition"] >= first]
    assert {row["certified"] for row in beyond} == {0.0}
    gaps = [100 * row["largest_gap"] for row in beyond]
    assert (round(min(gaps)), round(max(gaps))) == (least, most)


def test_a_certificate_reads_as_a_sentence() -> None:
    assert str(Certificate(True, 0.1, 1e-7)).endswith(".")
    assert "at most 12.30%" in str(Certificate(False, -0.1, 0.123))
