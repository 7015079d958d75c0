from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from mooring.geometry import orthogonality_defect, polar_factor, sample_orthogonal
from mooring.geometry.backend import to_numpy
from mooring.geometry.orthogonal import inverse_square_root, reorthogonalise, retract, svd_polar_factor


def conditioned(condition: float, n: int, *, rng: np.random.Generator) -> np.ndarray:
    """A random matrix with singular values spread geometrically from 1 down to 1 / condition."""
    return (
        sample_orthogonal(n, rng=rng) @ np.diag(np.geomspace(1.0, 1.0 / condition, n)) @ sample_orthogonal(n, rng=rng)
    )


def positive_definite(condition: float, n: int, *, rng: np.random.Generator) -> np.ndarray:
    Q = sample_orthogonal(n, rng=rng)
    return 3.0 * (Q * np.geomspace(1.0, 1.0 / condition, n)) @ Q.T


@pytest.mark.parametrize("n_components", [1, 2, 7])
def test_samples_are_orthogonal_and_repeatable(n_components: int) -> None:
    matrices, again = (sample_orthogonal(n_components, rng=np.random.default_rng(0), batch_shape=(3, 4)) for _ in "ab")
    assert np.array_equal(matrices, again)
    assert matrices.shape == (3, 4, n_components, n_components)
    assert orthogonality_defect(matrices) < 1e-13


def test_rotations_and_reflections_occur_equally_often() -> None:
    """1,000 fair coins leave [430, 570] with probability 1e-5; uncorrected QR gives one determinant only."""
    matrices = sample_orthogonal(3, rng=np.random.default_rng(0), batch_shape=(1000,))
    assert 430 <= np.count_nonzero(np.linalg.det(matrices) > 0) <= 570


def test_samples_are_haar_distributed_where_plain_qr_is_not() -> None:
    """Means and second moments of every entry, over 4,000 draws in three dimensions.

    Under the Haar measure an entry has mean 0 and variance 1/3, so its mean over the draws has spread 0.0091; the bound
    0.04 is 4.4 of those (nine entries: about 1e-4 to fail by chance). QR without the sign correction gives the first
    entry a mean of -0.5, fifty-five spreads away: power one, to any number of digits.
    """
    matrices = sample_orthogonal(3, rng=np.random.default_rng(1), batch_shape=(4000,))
    assert np.max(np.abs(matrices.mean(axis=0))) < 0.04
    assert np.max(np.abs((matrices**2).mean(axis=0) - 1 / 3)) < 0.025
    plain, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((4000, 3, 3)))
    assert np.max(np.abs(plain.mean(axis=0))) > 0.4


def test_samples_do_not_change_law_when_turned() -> None:
    """The trace of O Q, for a fixed Q, has mean 0 and variance 1 under the Haar measure; 4,000 draws, five spreads."""
    rng = np.random.default_rng(2)
    traces = np.trace(
        sample_orthogonal(4, rng=rng, batch_shape=(4000,)) @ sample_orthogonal(4, rng=rng), axis1=1, axis2=2
    )
    assert abs(traces.mean()) < 0.08
    assert abs(traces.var() - 1.0) < 0.12


def test_no_components_cannot_be_sampled(refused: Callable[..., None]) -> None:
    refused(lambda: sample_orthogonal(0, rng=np.random.default_rng(0)), "n_components", "at least 1", "0")


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e5])
@pytest.mark.parametrize("n", [1, 2, 6])
def test_polar_factor_equals_that_of_the_svd(condition: float, n: int, on_backend: Callable[[Any], Any]) -> None:
    """The factor's own sensitivity is the condition number, so that is what the tolerance grows with."""
    matrices = np.stack([conditioned(condition, n, rng=np.random.default_rng(seed)) for seed in range(6)])
    factors = polar_factor(on_backend(matrices))
    assert orthogonality_defect(factors) < 1e-14 * 10
    U, _, Vt = np.linalg.svd(matrices)
    assert np.max(np.abs(to_numpy(factors) - U @ Vt)) < 1e-14 * condition * 50


def test_polar_factor_keeps_the_shape_of_a_batch(on_backend: Callable[[Any], Any]) -> None:
    matrices = np.random.default_rng(0).standard_normal((2, 3, 4, 4))
    factors = to_numpy(polar_factor(on_backend(matrices)))
    assert factors.shape == (2, 3, 4, 4)
    for index in np.ndindex(2, 3):
        assert np.allclose(factors[index], to_numpy(polar_factor(on_backend(matrices[index]))), atol=1e-12)


@pytest.mark.parametrize("condition", [1.0, 1e2])
def test_polar_factor_works_in_single_precision(condition: float, on_backend: Callable[[Any], Any]) -> None:
    matrices = np.stack([conditioned(condition, 5, rng=np.random.default_rng(seed)) for seed in range(6)])
    factors = to_numpy(polar_factor(on_backend(matrices.astype(np.float32))))
    assert factors.dtype == np.float32
    assert np.max(np.abs(factors - to_numpy(svd_polar_factor(matrices)))) < 1e-5 * condition


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("smallest", [0.0, 1e-13, 1e-300])
def test_polar_factor_of_a_singular_matrix_is_orthogonal_and_nearest(
    smallest: float, dtype: type, on_backend: Callable[[Any], Any]
) -> None:
    """Among orthogonal Q the nearest has the largest tr(QᵀM), which is the sum of M's singular values."""
    rng = np.random.default_rng(0)
    left, right = sample_orthogonal(4, rng=rng), sample_orthogonal(4, rng=rng)
    values = np.array(
        [[2.0, 1.0, 0.5, smallest], [1.0, smallest, smallest, smallest], [smallest] * 4, [3.0, 2.0, 1.0, 1.0]]
    )
    matrices = ((left * values[:, None, :]) @ right).astype(dtype)
    factors = to_numpy(polar_factor(on_backend(matrices)))
    accuracy = 100 * np.finfo(dtype).eps
    assert orthogonality_defect(factors) < accuracy
    assert np.allclose(np.sum(factors * matrices, axis=(1, 2)), values.sum(axis=1), rtol=0, atol=accuracy)


@pytest.mark.parametrize(
    ("scale", "dtype"), [*((scale, np.float64) for scale in (1e-200, 1e-30, 1e30, 1e80)), (1e10, np.float32)]
)
def test_polar_factor_does_not_depend_on_scale(scale: float, dtype: type) -> None:
    """It does not overflow long before its input does."""
    matrices = np.random.default_rng(0).standard_normal((3, 4, 4))
    accuracy = 1e-12 if dtype is np.float64 else 1e-5
    assert np.allclose(polar_factor((scale * matrices).astype(dtype)), polar_factor(matrices), atol=accuracy)


def test_reorthogonalised_brings_nearly_orthogonal_matrices_back(on_backend: Callable[[Any], Any]) -> None:
    rng = np.random.default_rng(0)
    exact = sample_orthogonal(5, rng=rng, batch_shape=(4,))
    bent = exact + 1e-3 * rng.standard_normal(exact.shape)
    back = to_numpy(reorthogonalise(on_backend(bent), tolerance=1e-15))
    assert orthogonality_defect(back) < 1e-14
    assert np.allclose(back, svd_polar_factor(bent), atol=1e-12)


def test_reorthogonalised_falls_back_on_the_polar_factor_far_from_orthogonal() -> None:
    matrices = 5.0 * np.random.default_rng(0).standard_normal((3, 4, 4))
    assert np.allclose(reorthogonalise(matrices, tolerance=1e-15), svd_polar_factor(matrices), atol=1e-11)


@pytest.mark.parametrize("condition", [1.0, 10.0, 1e4])
def test_inverse_square_root_is_good_to_two_digits(condition: float, on_backend: Callable[[Any], Any]) -> None:
    matrices = np.stack([positive_definite(condition, 5, rng=np.random.default_rng(seed)) for seed in range(5)])
    root = inverse_square_root(on_backend(matrices))
    assert root is not None
    whitened = to_numpy(root) @ matrices @ to_numpy(root)
    assert np.max(np.abs(whitened - np.eye(5))) < 2e-2


@pytest.mark.parametrize("eigenvalues", [[1.0, 2.0, -0.5], [1.0, 2.0, -1e-6], [1.0, 2.0, 0.0], [0.0] * 3, [-1.0] * 3])
def test_inverse_square_root_answers_none_if_one_matrix_is_not_positive_definite(eigenvalues: list[float]) -> None:
    Q = sample_orthogonal(3, rng=np.random.default_rng(0))
    indefinite = (Q * np.array(eigenvalues)) @ Q.T
    assert inverse_square_root(indefinite) is None
    assert inverse_square_root(np.stack([np.eye(3), indefinite])) is None


@pytest.mark.parametrize("on_gpu", [False, True])
def test_a_retraction_is_the_exponential_to_second_order(
    on_gpu: bool, on_backend: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the one that does not wait for a GPU, whose defect is of fourth order, and which refuses turns too far for it."""
    monkeypatch.setattr("mooring.geometry.orthogonal.is_on_gpu", lambda array: on_gpu)
    maps = sample_orthogonal(5, rng=np.random.default_rng(0), batch_shape=(3,))
    turns = np.random.default_rng(1).standard_normal((3, 5, 5))
    turns -= turns.swapaxes(-2, -1)
    turns /= np.linalg.norm(turns, 2, axis=(-2, -1))[:, None, None]

    def moved(size: float) -> np.ndarray:
        return to_numpy(retract(on_backend(maps), on_backend(size * turns), tolerance=1e-15, exactly=True))

    for size in (1e-3, 1e-2, 1e-1):
        exact = maps @ np.stack([expm(size * turn) for turn in turns])
        assert np.max(np.abs(moved(size) - exact)) < size**3
        assert orthogonality_defect(moved(size)) < (size**4 if on_gpu else 0) + 1e-14
    assert np.isnan(moved(3.0)).any(axis=(-2, -1)).all() == on_gpu
