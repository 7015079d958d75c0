from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mooring import Termination, align, align_batch
from mooring.alignment import solve
from mooring.geometry.backend import to_numpy

SOLVERS = ["accelerated", "gpm", "spectral"]


@pytest.fixture(scope="module")
def batch(make_study: Callable) -> np.ndarray:
    """Seven problems of which some are far harder than others, so that they stop at different times."""
    noises = [0.0, 0.01, 0.05, 0.1, 0.2, 0.02, 0.25]
    return np.stack([make_study(6, 3, 12, noise=noise, seed=seed).uploads for seed, noise in enumerate(noises)])


def effective_gauge(value: Any, other: Any) -> np.ndarray:
    """What turns the first alignment's common space into the second's, as each participant sees it."""
    return np.stack(
        [to_numpy(a.orthogonal).T @ to_numpy(b.orthogonal) for a, b in zip(value.maps, other.maps, strict=True)]
    )


def assert_same(value: Any, other: Any, *, atol: float) -> None:
    """Equal alignments, up to the one orthogonal map of the common space that every solver is free to choose."""
    assert value.objective == pytest.approx(other.objective, rel=1e-10)
    assert value.misfit == pytest.approx(other.misfit, rel=1e-8, abs=1e-10)
    gauge = effective_gauge(value, other)
    assert np.allclose(gauge, gauge[0], atol=atol)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_batch_equals_its_problems_one_at_a_time(solver: str, batch: np.ndarray) -> None:
    together = align_batch(batch, solver=solver, certify=True)
    assert len(together) == len(batch)
    for alignment, uploads in zip(together, batch, strict=True):
        alone = align(uploads, solver=solver, certify=True)
        assert_same(alignment, alone, atol=1e-6)
        assert alignment.termination is alone.termination
        assert alignment.certificate.certified == alone.certificate.certified


@pytest.mark.parametrize(("n_rows", "sizes"), [(2**13, [2, 2, 1]), (2**13 + 1, [1] * 5), (2**15, [1] * 5)])
def test_a_batch_is_solved_in_parts_of_a_gigabyte(
    n_rows: int, sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A part has at most 2²⁷ numbers of eight bytes, and at least one problem."""
    parts: list[tuple[int, ...]] = []
    monkeypatch.setattr(solve, "make_batch", lambda uploads: parts.append(uploads.shape))
    monkeypatch.setattr(solve, "_solved", lambda problem, **options: ())
    assert align_batch(np.broadcast_to(0.0, (5, 2, n_rows, 2**12))) == ()
    assert parts == [(size, 2, n_rows, 2**12) for size in sizes]


def test_two_participants_come_in_batches_too(make_study: Callable) -> None:
    uploads = np.stack([make_study(2, 3, 12, noise=0.3, seed=seed).uploads for seed in range(3)])
    for alignment, upload in zip(align_batch(uploads), uploads, strict=True):
        assert alignment.termination is Termination.CLOSED_FORM
        assert_same(alignment, align(upload), atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
def test_torch_equals_numpy(solver: str, batch: np.ndarray, torch: ModuleType) -> None:
    expected, got = align_batch(batch, solver=solver), align_batch(torch.as_tensor(batch), solver=solver)
    for solution, other in zip(expected, got, strict=True):
        assert_same(solution, other, atol=1e-6)
        assert isinstance(other.template, torch.Tensor)


def test_a_gpu_that_is_rarely_looked_at_finds_the_same(
    batch: np.ndarray, torch: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a processor that passes for a GPU; recordings are then run as they are."""
    expected, captured = align_batch(batch), []
    for module in ("geometry.riemannian_lbfgs", "geometry.orthogonal", "geometry.backend"):
        monkeypatch.setattr(f"mooring.{module}.is_on_gpu", lambda array: True)
    monkeypatch.setattr("mooring.alignment.problem.has_fast_float64", lambda array: False)
    monkeypatch.setattr(
        "mooring.geometry.riemannian_lbfgs.capture", lambda function, device: captured.append(1) or function
    )
    for solution, other in zip(expected, align_batch(torch.as_tensor(batch)), strict=True):
        assert_same(solution, other, atol=1e-6)
        assert other.iterations <= 2 * solution.iterations + 10
    assert captured
    assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("solver", SOLVERS)
def test_single_precision_uploads_are_welcome(solver: str, batch: np.ndarray, on_backend: Callable) -> None:
    for exact, rounded in zip(
        align_batch(batch, solver=solver), align_batch(on_backend(batch.astype(np.float32)), solver=solver), strict=True
    ):
        assert rounded.objective == pytest.approx(exact.objective, rel=1e-5)
        assert to_numpy(rounded.template).dtype == np.float64


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
def test_each_problem_of_a_batch_stops_by_itself(solver: str, batch: np.ndarray) -> None:
    alignments = align_batch(batch, solver=solver)
    assert all(alignment.termination is Termination.CONVERGED for alignment in alignments)
    iterations = [alignment.iterations for alignment in alignments]
    assert iterations[0] < iterations[-1]


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
@pytest.mark.parametrize("max_iterations", [0, 1, 2, 4, 7, 12])
def test_no_problem_of_a_batch_goes_over_the_limit(solver: str, max_iterations: int, make_study: Callable) -> None:
    noises = [0.0, 0.1, 1.0, 0.5, 2.0]
    uploads = np.stack([make_study(6, 3, 9, noise=noise, seed=seed).uploads for seed, noise in enumerate(noises)])
    alignments = align_batch(uploads, solver=solver, max_iterations=max_iterations)
    assert all(alignment.iterations <= max_iterations for alignment in alignments)
    assert any(not alignment.converged for alignment in alignments)


def test_noisy_problems_of_a_batch_are_solved_about_as_well_as_alone(make_study: Callable) -> None:
    """In high noise there are many local optima, and which one is found may depend on the company; not by much."""
    uploads = np.stack([make_study(6, 3, 12, noise=1.0, seed=seed).uploads for seed in range(10)])
    together = np.array([alignment.objective for alignment in align_batch(uploads)])
    alone = np.array([align(upload).objective for upload in uploads])
    assert np.all(np.abs(together / alone - 1) < 0.05)
    assert abs(np.mean(together / alone) - 1) < 0.01


def test_maps_that_rest_with_the_last_iteration_have_converged(batch: np.ndarray) -> None:
    """The limit is no reason to deny what was reached: stopped exactly where it would have stopped, it converged."""
    uploads = batch[3]
    free = align(uploads)
    assert free.termination is Termination.CONVERGED
    assert align(uploads, max_iterations=free.iterations).termination is Termination.CONVERGED
    assert align(uploads, max_iterations=1).termination is Termination.ITERATION_LIMIT
