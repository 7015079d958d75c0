"""One contract that every solver keeps, alignment to a reference included, on both array libraries."""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

from mooring import Alignment, align, align_to_reference
from mooring.alignment.solve import Solver
from mooring.geometry import orthogonality_defect
from mooring.geometry.backend import to_numpy

Solve = Callable[[Any], Alignment]
SOLVERS: dict[str, Solve] = {
    "accelerated": lambda uploads: align(uploads, solver="accelerated"),
    "gpm": lambda uploads: align(uploads, solver="gpm"),
    "spectral": lambda uploads: align(uploads, solver="spectral"),
    "reference": lambda uploads: align_to_reference(uploads, reference=1),
}
SHAPES = [(2, 3, 12), (5, 3, 12), (4, 1, 4), (6, 4, 5)]


@pytest.fixture(scope="module", params=SOLVERS)
def solve(request: pytest.FixtureRequest) -> Solve:
    return SOLVERS[request.param]


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def shape(request: pytest.FixtureRequest) -> tuple[int, int, int]:
    return request.param


def stacked(alignment: Alignment) -> np.ndarray:
    return np.stack([to_numpy(map.orthogonal) for map in alignment.maps])


def centred(uploads: np.ndarray) -> np.ndarray:
    return uploads - uploads.mean(axis=1, keepdims=True)


def test_every_solver_is_under_this_contract() -> None:
    assert set(SOLVERS) == {*get_args(Solver), "reference"}


def test_zero_noise_is_undone_exactly(
    solve: Solve, shape: tuple[int, int, int], make_study: Callable, on_backend: Callable
) -> None:
    """Private rows of all participants land in one place, and late rows keep their distances."""
    study = make_study(*shape, seed=3)
    alignment = solve(on_backend(study.uploads))
    rows = np.random.default_rng(0).standard_normal((7, shape[1]))
    landed = np.stack(
        [
            to_numpy(map.apply(on_backend(secret.apply(rows))))
            for map, secret in zip(alignment.maps, study.secrets, strict=True)
        ]
    )
    assert np.allclose(landed, landed[0], atol=1e-12)
    assert alignment.misfit == pytest.approx(0.0, abs=1e-10)
    assert alignment.objective == pytest.approx(shape[0] ** 2 * shape[1])
    assert alignment.residual < 1e-13
    assert alignment.converged


@pytest.fixture(scope="module", params=[0.1, 1.0])
def uploads(request: pytest.FixtureRequest, shape: tuple[int, int, int], make_study: Callable) -> np.ndarray:
    """With noise."""
    return make_study(*shape, noise=request.param, seed=5).uploads


@pytest.fixture(scope="module")
def alignment(solve: Solve, uploads: np.ndarray, on_backend: Callable) -> Alignment:
    return solve(on_backend(uploads))


def test_there_is_one_orthogonal_map_a_participant(alignment: Alignment, uploads: np.ndarray) -> None:
    assert len(alignment.maps) == len(uploads)
    assert orthogonality_defect(stacked(alignment)) < 1e-13


def test_the_answer_stays_on_the_library_of_the_question(alignment: Alignment, on_backend: Callable) -> None:
    kind = type(on_backend(np.zeros(1)))
    assert all(isinstance(array, kind) for array in (alignment.template, alignment.origin))
    assert all(isinstance(map.orthogonal, kind) and isinstance(map.translation, kind) for map in alignment.maps)
    numbers = (alignment.objective, alignment.misfit, alignment.step, alignment.residual)
    assert all(type(number) is float for number in numbers)
    assert type(alignment.iterations) is int


def test_every_map_brings_the_anchor_s_mean_to_the_origin_of_the_common_space(
    alignment: Alignment, uploads: np.ndarray, on_backend: Callable
) -> None:
    for map, upload in zip(alignment.maps, uploads, strict=True):
        mean = to_numpy(map.apply(on_backend(upload))).mean(axis=0)
        assert np.allclose(mean, to_numpy(alignment.origin), atol=1e-12)


def test_the_template_is_the_mean_of_the_aligned_centred_anchors(
    alignment: Alignment, uploads: np.ndarray, on_backend: Callable
) -> None:
    aligned = [
        to_numpy(map.apply(on_backend(upload)) - alignment.origin)
        for map, upload in zip(alignment.maps, uploads, strict=True)
    ]
    assert np.allclose(np.mean(aligned, axis=0), to_numpy(alignment.template), atol=1e-12)


def test_the_objective_is_the_squared_norm_of_the_sum(alignment: Alignment, uploads: np.ndarray) -> None:
    total = (centred(uploads) @ stacked(alignment)).sum(axis=0)
    assert alignment.objective == pytest.approx(np.sum(total**2), rel=1e-12)


def test_the_misfit_is_what_the_objective_leaves_over(alignment: Alignment, uploads: np.ndarray) -> None:
    """Σ‖B̄ᵢ‖² − objective / p, which is the sum of squared distances to the template."""
    whole = np.sum(centred(uploads) ** 2)
    assert alignment.misfit == pytest.approx(whole - alignment.objective / len(uploads), rel=1e-10)
    distances = centred(uploads) @ stacked(alignment) - to_numpy(alignment.template)
    assert alignment.misfit == pytest.approx(np.sum(distances**2), rel=1e-9)


def test_the_residual_is_the_paper_s(alignment: Alignment, uploads: np.ndarray) -> None:
    """‖Π(GR) − R‖_F / max(1, ‖R‖_F), block by block, with G formed and one SVD a block."""
    maps, B = stacked(alignment), centred(uploads)
    D = np.concatenate(list(B), axis=1)
    GR = (D.T @ D @ maps.reshape(-1, maps.shape[-1])).reshape(maps.shape)
    U, _, Vt = np.linalg.svd(GR)
    residual = np.linalg.norm(U @ Vt - maps) / max(1.0, np.linalg.norm(maps))
    assert alignment.residual == pytest.approx(residual, rel=1e-6, abs=1e-12)


def test_a_late_joiner_is_admitted_by_the_best_map_onto_the_template(
    alignment: Alignment, uploads: np.ndarray, on_backend: Callable
) -> None:
    newcomer = uploads[0][:, ::-1] + 2.0
    admitted = alignment.admit(on_backend(newcomer.copy()))
    U, _, Vt = np.linalg.svd((newcomer - newcomer.mean(axis=0)).T @ to_numpy(alignment.template))
    assert np.allclose(to_numpy(admitted.orthogonal), U @ Vt, atol=1e-9)
    mean = to_numpy(admitted.apply(on_backend(newcomer.copy()))).mean(axis=0)
    assert np.allclose(mean, to_numpy(alignment.origin), atol=1e-12)


def test_the_same_uploads_give_the_same_answer(
    alignment: Alignment, solve: Solve, uploads: np.ndarray, on_backend: Callable
) -> None:
    assert np.array_equal(stacked(alignment), stacked(solve(on_backend(uploads))))
