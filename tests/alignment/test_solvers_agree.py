from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

from mooring import align, align_to_reference
from mooring.geometry import sample_orthogonal

SEEDS = range(12)


@pytest.fixture(scope="module")
def objectives(make_study: Callable) -> Callable[[str, tuple[int, int, int], float], np.ndarray]:
    """What a solver reaches on a problem a seed; each is solved once."""

    @cache
    def solve(solver: str, shape: tuple[int, int, int], noise: float) -> np.ndarray:
        uploads = (make_study(*shape, noise=noise, seed=seed).uploads for seed in SEEDS)
        return np.array([align(upload, solver=solver).objective for upload in uploads])

    return solve


@pytest.mark.parametrize("shape", [(3, 2, 6), (6, 3, 12), (10, 4, 16), (4, 1, 5)])
@pytest.mark.parametrize("noise", [0.0, 0.05, 0.15])
def test_at_low_noise_the_accelerated_solver_finds_the_power_method_s_optimum(
    shape: tuple[int, int, int], noise: float, objectives: Callable
) -> None:
    ratio = objectives("accelerated", shape, noise) / objectives("gpm", shape, noise)
    assert np.max(np.abs(ratio - 1)) < 1e-9


@pytest.mark.parametrize("noise", [0.4, 0.7, 1.5])
def test_at_high_noise_the_accelerated_solver_does_at_least_as_well(noise: float, objectives: Callable) -> None:
    """For these seeds on every one of them, and on some by far; over a thousand problems a few in a thousand are not."""
    ratio = objectives("accelerated", (6, 3, 12), noise) / objectives("gpm", (6, 3, 12), noise)
    assert np.min(ratio) > 1 - 1e-9
    assert np.max(ratio) > 1 + 1e-3


@pytest.mark.parametrize("noise", [0.05, 0.4, 1.5])
def test_iterations_never_lower_the_objective_of_the_spectral_start(noise: float, objectives: Callable) -> None:
    for solver in ("accelerated", "gpm"):
        assert np.min(objectives(solver, (6, 3, 12), noise) / objectives("spectral", (6, 3, 12), noise)) > 1 - 1e-9


def test_participants_whose_maps_start_the_wrong_way_round_are_turned_without_overflow() -> None:
    """The spectral start follows one large upload, of which the others show little."""
    rng = np.random.default_rng(3)
    directions = np.linalg.qr(rng.standard_normal((7, 4)))[0]
    directions -= directions.mean(axis=0)
    small, noise = 1e-2 * rng.standard_normal((8, 1, 1)), 1e-3 * rng.standard_normal((8, 7, 2))
    turned = directions[:, 2:] @ sample_orthogonal(2, rng=rng, batch_shape=(8,))
    alignment = align(np.concatenate([5 * directions[None, :, :2], turned + small * directions[:, :2] + noise]))
    assert alignment.converged
    assert alignment.residual < 1e-7


def test_procrustes_fits_noisy_anchors_better_than_one_reference_does(make_study: Callable) -> None:
    for seed in range(4):
        uploads = make_study(6, 3, 12, noise=0.2, seed=seed).uploads
        misfits = [align_to_reference(uploads, reference=reference).misfit for reference in range(6)]
        assert align(uploads).misfit < min(misfits)


def test_at_low_noise_the_accelerated_solver_needs_no_more_iterations(make_study: Callable) -> None:
    uploads = [make_study(10, 4, 16, noise=0.2, seed=seed).uploads for seed in SEEDS]
    ours, theirs = (
        sum(align(upload, solver=solver).iterations for upload in uploads) for solver in ("accelerated", "gpm")
    )
    assert ours <= theirs
