"""The Procrustes objective that the optimiser minimises, against what can be computed in another way."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from mooring.alignment.problem import make_problem
from mooring.alignment.trace_objective import FixedPointGap, TraceObjective, trace_optimiser
from mooring.geometry import orthogonality_defect, sample_orthogonal
from mooring.geometry.riemannian_lbfgs import Evaluation

P, D = 4, 3


@pytest.fixture
def objective(make_study: Callable[..., Any]) -> TraceObjective:
    return TraceObjective(make_problem(make_study(P, D, 12, noise=0.3).uploads))


@pytest.fixture
def maps() -> np.ndarray:
    return sample_orthogonal(D, rng=np.random.default_rng(0), batch_shape=(1, P))


def skew_directions(n: int) -> np.ndarray:
    Omega = np.random.default_rng(1).standard_normal((n, 1, P, D, D))
    return Omega - Omega.swapaxes(-2, -1)


def test_the_gradient_is_that_of_the_value(objective: TraceObjective, maps: np.ndarray) -> None:
    gradient = objective.evaluate((maps,)).gradient
    for Omega in skew_directions(5):
        up, down = (
            objective.evaluate((maps @ np.stack([expm(t * turn) for turn in Omega[0]]),)).value[0]
            for t in (1e-5, -1e-5)
        )
        assert np.sum(gradient * Omega.reshape(1, -1)) == pytest.approx((up - down) / 2e-5, rel=1e-4)


def test_the_preconditioner_is_symmetric_and_positive(objective: TraceObjective, maps: np.ndarray) -> None:
    curvature = objective.curvature(objective.evaluate((maps,)))
    tangents = skew_directions(6).reshape(6, -1).astype(np.float32)
    images = np.concatenate([objective.precondition(curvature, tangent[None]) for tangent in tangents])
    products = tangents @ images.T
    assert np.allclose(products, products.T, atol=1e-4 * np.abs(products).max())
    assert np.linalg.eigvalsh(products).min() > 0


@pytest.mark.parametrize(("least", "shift"), [(0.02, 0.05), (-0.03, 0.5), (-0.24, 2.0), (-0.55, None)])
def test_the_curvature_is_shifted_by_the_least_multiple_of_its_mean_that_makes_it_positive(
    least: float, shift: float | None, objective: TraceObjective
) -> None:
    """Where no multiple suffices, the preconditioner is the inverse of the mean eigenvalue."""
    turn = sample_orthogonal(2, rng=np.random.default_rng(0))
    P, mean = turn @ np.diag([1.0, least]) @ turn.T, (1 + least) / 2
    root = objective.curvature(Evaluation(np.zeros(1), np.zeros((1, 4)), (P[None, None] / 2,)))[0, 0]
    expected = np.eye(2) / mean if shift is None else np.linalg.inv(P + shift * mean * np.eye(2))
    assert np.abs(root @ root - expected).max() < 0.03 * np.abs(expected).max()


def test_the_turn_of_each_participant_is_limited_by_the_root_mean_square_length_of_its_rows(
    objective: TraceObjective,
) -> None:
    turns = skew_directions(1)[0, 0] * np.array([0.01, 0.1, 1.0, 10.0])[:, None, None]
    limited = objective.limit_turns(turns.reshape(1, -1).copy(), np.array([0.5])).reshape(turns.shape)
    sizes = np.sqrt((turns**2).sum(axis=2).mean(axis=1))
    assert sizes[1] < 0.5 < sizes[2]
    np.testing.assert_allclose(limited, turns * np.minimum(1, 0.5 / sizes)[:, None, None])


def test_the_curvature_is_computed_again_each_time_four_times_as_many_steps_were_taken(
    objective: TraceObjective, maps: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    optimiser, curvature = trace_optimiser(objective.problem, maps), TraceObjective.curvature
    steps: list[int] = []
    monkeypatch.setattr(
        TraceObjective, "curvature", lambda *given: steps.append(optimiser._n_rounds) or curvature(*given)
    )
    for _ in range(200):
        optimiser._go_on()
    assert steps == [12, 4 * 12, 4 * 4 * 12]


@pytest.mark.parametrize("size", [1e-6, 0.1, 0.5])
def test_a_step_is_a_turn_that_stays_on_the_group(objective: TraceObjective, maps: np.ndarray, size: float) -> None:
    (Omega,) = skew_directions(1)
    Omega = objective.limit_turns(1e6 * Omega.reshape(1, -1), np.array([size])).reshape(Omega.shape)
    (moved,) = objective.retract((maps,), Omega.reshape(1, -1), exactly=True)
    assert orthogonality_defect(moved) < 1e-12
    exact = maps @ np.stack([expm(turn) for turn in Omega[0]])[None]
    assert np.allclose(moved, exact, atol=size**3)


def test_maps_that_rest_on_a_saddle_are_moved_off_it() -> None:
    """One map of three has a direction the wrong way round: no gradient says so, the power method's step does."""
    block = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    problem, right = make_problem([block] * 3), np.broadcast_to(np.eye(2), (1, 3, 2, 2))
    maps = right.copy()
    maps[0, 2, 1, 1] = -1.0
    assert not TraceObjective(problem).evaluate((maps,)).gradient.any()
    optimiser = trace_optimiser(problem, maps)
    optimiser.run(FixedPointGap(1, tolerance=1e-7), max_iterations=20)
    assert optimiser.converged.all()
    assert np.allclose(problem.objective(optimiser.points[0]), problem.objective(right))


@pytest.mark.parametrize(
    ("tolerance", "gap", "is_moved"), [(1e-3, 0.99, False), (1e-3, 1.01, True), (0.2, 1.99, False), (0.2, 2.01, True)]
)
def test_maps_are_moved_where_the_next_step_is_longer_than_one_or_than_ten_tolerances(
    tolerance: float, gap: float, is_moved: bool
) -> None:
    """One direction of the wrong sign makes a step of two."""
    moved: list[np.ndarray] = []
    optimiser: Any = SimpleNamespace(
        preconditioned=np.array([[1e-9]]),
        problems=np.array([0]),
        evaluation=SimpleNamespace(extra=(turn_of_length(gap),)),
        points=(np.eye(2)[None, None],),
        relocate=lambda movers, points: moved.append(points[0]),
    )
    assert not FixedPointGap(1, tolerance=tolerance)(optimiser)[0]
    np.testing.assert_allclose(moved, [turn_of_length(gap)] * is_moved)


def turn_of_length(length: float) -> np.ndarray:
    """A turn in the plane at this distance from the identity, as the maps of one participant in one problem."""
    t = 2 * math.asin(length / math.sqrt(8))
    return np.array([[math.cos(t), math.sin(t)], [-math.sin(t), math.cos(t)]])[None, None]


def test_an_estimate_that_once_was_too_low_is_trusted_less_from_then_on() -> None:
    """By the gap over the estimate, of which a thousandth of the tolerance is the least that counts."""
    gap = FixedPointGap(1, tolerance=1e-3)

    def asked(estimate: float, value: float) -> tuple[bool, float]:
        evaluation = SimpleNamespace(extra=(turn_of_length(value),))
        optimiser: Any = SimpleNamespace(
            preconditioned=np.array([[estimate]]), problems=np.array([0]), evaluation=evaluation
        )
        return bool(gap(optimiser)[0]), float(gap.gap[0])

    assert asked(5e-4, 2e-3) == (False, pytest.approx(math.nan, nan_ok=True))  # four times as large as it seemed
    assert not asked(2.6e-4, 1e-4)[0]
    assert asked(2.4e-4, 1e-4) == (True, pytest.approx(1e-4))
    assert not asked(1e-8, 2e-3)[0]  # as 1e-6: 2,000 times as large
    assert [asked(estimate, 1e-4)[0] for estimate in (5.1e-7, 4.9e-7)] == [False, True]
