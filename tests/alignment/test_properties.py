from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring import RigidMap, align, align_to_reference

seeds = st.integers(0, 2**32 - 1)
sizes = st.tuples(st.integers(2, 6), st.integers(1, 4))
low_noise = st.floats(0.0, 0.1)
solvers = st.sampled_from(["accelerated", "gpm"])


def turned(uploads: np.ndarray, seed: int) -> tuple[RigidMap, np.ndarray]:
    """Every upload under a rigid map of its own."""
    p, _, d = uploads.shape
    turns = RigidMap.sample(d, rng=np.random.default_rng(seed), batch_shape=(p,))
    return turns, turns.apply(uploads)


def assert_same_up_to_one_map(aligned: np.ndarray, others: np.ndarray, *, atol: float = 1e-6) -> None:
    """The rows of all participants together are one rigid image of the others: all their distances agree."""
    joined, other = (np.concatenate(list(rows)) for rows in (aligned, others))
    gaps = [np.linalg.norm(rows[:, None] - rows[None], axis=-1) for rows in (joined, other)]
    assert np.allclose(*gaps, atol=atol)


def aligned(alignment: Any, uploads: np.ndarray) -> np.ndarray:
    return np.stack([map.apply(upload) for map, upload in zip(alignment.maps, uploads, strict=True)])


@given(sizes, low_noise, seeds, solvers)
def test_nobody_s_own_frame_matters(
    make_study: Callable[..., Any], size: tuple[int, int], noise: float, seed: int, solver: str
) -> None:
    """Gauge invariance: the objective stays, and aligned rows are equal up to one rigid map common to all."""
    p, d = size
    uploads = make_study(p, d, 4 * d + 1, noise=noise, seed=seed).uploads
    _, others = turned(uploads, seed)
    alignment, other = align(uploads, solver=solver), align(others, solver=solver)
    assert alignment.objective == pytest.approx(other.objective, rel=1e-9)
    assert alignment.misfit == pytest.approx(other.misfit, rel=1e-6, abs=1e-9)
    assert_same_up_to_one_map(aligned(alignment, uploads), aligned(other, others))


@given(sizes, st.floats(0.0, 3.0), seeds)
def test_the_objective_of_turned_maps_is_that_of_the_maps(
    make_study: Callable[..., Any], size: tuple[int, int], noise: float, seed: int
) -> None:
    """At any noise: maps found for turned uploads, after the turns, reach the same objective on the uploads themselves."""
    p, d = size
    uploads = make_study(p, d, 3 * d + 1, noise=noise, seed=seed).uploads
    turns, others = turned(uploads, seed)
    alignment = align(others)
    composed = [
        RigidMap(turns.orthogonal[i], turns.translation[i]).compose(map) for i, map in enumerate(alignment.maps)
    ]
    total = np.sum([map.apply(upload) for map, upload in zip(composed, uploads, strict=True)], axis=0)
    assert np.sum(total**2) == pytest.approx(alignment.objective, rel=1e-9)


@given(sizes, low_noise, seeds, solvers)
def test_the_order_of_participants_does_not_matter(
    make_study: Callable[..., Any], size: tuple[int, int], noise: float, seed: int, solver: str
) -> None:
    p, d = size
    uploads = make_study(p, d, 4 * d + 1, noise=noise, seed=seed).uploads
    order = np.random.default_rng(seed).permutation(p)
    alignment, other = align(uploads, solver=solver), align(uploads[order], solver=solver)
    assert alignment.objective == pytest.approx(other.objective, rel=1e-9)
    gauge = alignment.maps[order[0]].inverse().compose(other.maps[0])
    for place, participant in enumerate(order):
        moved = alignment.maps[participant].compose(gauge)
        assert np.allclose(moved.orthogonal, other.maps[place].orthogonal, atol=1e-6)
        assert np.allclose(moved.translation, other.maps[place].translation, atol=1e-5)


@given(sizes, st.integers(1, 12), seeds, st.sampled_from(["accelerated", "gpm", "spectral", "reference"]))
def test_zero_noise_recovers_exactly(
    make_study: Callable[..., Any], size: tuple[int, int], extra: int, seed: int, solver: str
) -> None:
    """Secret map and alignment map together are the same rigid map for everybody, to the solvers' own tolerance."""
    p, d = size
    study = make_study(p, d, d + extra, seed=seed)
    reference = seed % p
    alignment = (
        align_to_reference(study.uploads, reference=reference)
        if solver == "reference"
        else align(study.uploads, solver=solver)
    )
    effective = [secret.compose(map) for secret, map in zip(study.secrets, alignment.maps, strict=True)]
    common = study.secrets[reference] if solver == "reference" else effective[0]
    for norm in effective:
        assert np.allclose(norm.orthogonal, common.orthogonal, atol=3e-7)
        assert np.allclose(norm.translation, common.translation, atol=3e-6)
    assert alignment.misfit == pytest.approx(0.0, abs=1e-9)


@given(sizes, st.floats(0.0, 2.0), seeds)
def test_a_certified_optimum_is_not_beaten_by_random_maps(
    make_study: Callable[..., Any], size: tuple[int, int], noise: float, seed: int
) -> None:
    p, d = size
    uploads = make_study(p, d, 3 * d + 1, noise=noise, seed=seed).uploads
    alignment = align(uploads, certify=True)
    rng = np.random.default_rng(seed)
    rivals = RigidMap.sample(d, rng=rng, batch_shape=(50, p)).orthogonal
    nearby = np.stack([map.orthogonal for map in alignment.maps]) @ np.where(
        rng.random((50, p, 1, 1)) < 0.5, np.eye(d), np.diag([-1.0] + [1.0] * (d - 1))
    )
    centred = uploads - uploads.mean(axis=1, keepdims=True)
    best = max(np.max(np.sum((centred @ maps).sum(axis=1) ** 2, axis=(1, 2))) for maps in (rivals, nearby))
    assert best <= alignment.objective * (1 + alignment.certificate.optimality_gap) * (1 + 1e-12)


@given(st.integers(2, 6), st.integers(1, 4), st.floats(0.0, 1.0), seeds)
def test_the_reference_keeps_its_rows_whatever_the_noise(
    make_study: Callable[..., Any], p: int, d: int, noise: float, seed: int
) -> None:
    uploads = make_study(p, d, 3 * d + 1, noise=noise, seed=seed).uploads
    reference = seed % p
    alignment = align_to_reference(uploads, reference=reference)
    assert np.allclose(alignment.maps[reference].apply(uploads[reference]), uploads[reference], atol=1e-12)
    means = aligned(alignment, uploads).mean(axis=1)
    assert np.allclose(means, means[reference], atol=1e-10)
