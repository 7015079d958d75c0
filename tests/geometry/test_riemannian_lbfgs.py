"""The optimiser, on problems whose solutions are known: batches of −tr(Mᵀ O) + ½‖x − c‖² over O(h) × R^h."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring.geometry import polar_factor, riemannian_lbfgs, sample_orthogonal
from mooring.geometry.backend import namespace_of, to_numpy, transpose, vector_norms
from mooring.geometry.orthogonal import cayley
from mooring.geometry.riemannian_lbfgs import Evaluation, RiemannianLBFGS


class Linear:
    """The minimum is at the polar factor of M, for a start of its determinant, and at c."""

    def __init__(self, M: Any, c: Any, *, curvature: float = 1.0) -> None:
        self.M, self.c, self.constant, self.n_evaluated = M, c, curvature, []

    def evaluate(self, points: tuple[Any, Any]) -> Evaluation:
        O, x = points
        xp = namespace_of(O)
        n = O.shape[0]
        self.n_evaluated.append(n)
        product = -transpose(O) @ self.M
        turns = xp.reshape(0.5 * (product - transpose(product)), (n, -1))
        values = -xp.sum(self.M * O, axis=(1, 2)) + 0.5 * xp.sum((x - self.c) ** 2, axis=1)
        return Evaluation(values, xp.concat([turns, x - self.c], axis=1))

    def curvature(self, evaluation: Evaluation) -> Any:
        return self.constant * namespace_of(evaluation.value).ones_like(evaluation.value)

    def precondition(self, curvature: Any, tangents: Any) -> Any:
        return tangents / curvature[:, None]

    def retract(self, points: tuple[Any, Any], tangents: Any, *, exactly: bool) -> tuple[Any, Any]:
        O, x = points
        h = x.shape[1]
        return O @ cayley(self._turns(tangents)), x + tangents[:, h * h :]

    def limit_turns(self, tangents: Any, largest: Any) -> Any:
        xp = namespace_of(tangents)
        size = xp.max(vector_norms(self._turns(tangents)), axis=-1)
        return tangents * xp.clip(largest / xp.clip(size, min=1e-30), max=1.0)[:, None]

    def select(self, problems: np.ndarray) -> "Linear":
        part = Linear(self.M[problems], self.c[problems], curvature=self.constant)
        part.n_evaluated = self.n_evaluated
        return part

    def _turns(self, tangents: Any) -> Any:
        h = self.c.shape[1]
        return tangents[:, : h * h].reshape(-1, h, h)


def problems(n: int, h: int, *, seed: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M, c, and starts of M's determinant; M of very different size if `spread` is large."""
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((n, h, h)) * np.geomspace(1 / np.sqrt(spread), np.sqrt(spread), n)[:, None, None]
    starts = sample_orthogonal(h, rng=rng, batch_shape=(n,))
    starts[:, 0] *= np.sign(np.linalg.det(starts) * np.linalg.det(M))[:, None]
    return M, rng.standard_normal((n, h)), starts


def minimise(
    objective: Linear, starts: Any, *, max_iterations: int, tolerance: float = 1e-14, **options: Any
) -> RiemannianLBFGS:
    xp = namespace_of(starts)
    points = (xp.asarray(starts, copy=True), xp.zeros_like(objective.c))  # which the optimiser will own
    optimiser = RiemannianLBFGS(objective, points, **options)
    optimiser.run(lambda at: at.decrease < tolerance, max_iterations=max_iterations)
    return optimiser


@pytest.mark.parametrize("h", [1, 2, 5, 12])
@pytest.mark.parametrize("options", [{}, {"memory_size": 1}, {"refresh_at": frozenset({3, 9})}], ids=str)
def test_it_finds_the_optimum(h: int, options: dict[str, Any], on_backend: Callable[[Any], Any]) -> None:
    M, c, starts = problems(3, h, seed=h)
    solution = minimise(Linear(on_backend(M), on_backend(c)), on_backend(starts), max_iterations=3000, **options)
    O, x = map(to_numpy, solution.points)
    best = polar_factor(M)
    assert (solution.converged | solution.stalled).all()
    assert np.allclose(solution.value, -np.sum(M * best, axis=(1, 2)), atol=1e-9)
    assert np.allclose(O.transpose(0, 2, 1) @ O, np.eye(h), atol=1e-11)
    assert np.allclose(O, best, atol=1e-4)
    assert np.allclose(x, c, atol=1e-4)


def test_the_memory_makes_it_much_faster_than_the_preconditioned_gradient() -> None:
    M, c, starts = problems(4, 12, seed=0)
    quick = minimise(Linear(M, c), starts, max_iterations=3000).iterations
    slow = minimise(Linear(M, c), starts, max_iterations=3000, refresh_at=frozenset(range(10**4))).iterations
    assert 2 * quick.sum() < slow.sum()


def test_values_never_rise_and_the_limit_is_kept() -> None:
    M, c, starts = problems(3, 6, seed=1)
    values = []
    for limit in (0, 1, 3, 10, 500):
        solution = minimise(Linear(M, c, curvature=0.02), starts, max_iterations=limit)
        assert (solution.iterations <= limit).all()
        assert solution.converged.all() == (limit == 500)
        assert not solution.stalled.any()
        values.append(solution.value)
    assert (np.diff(values, axis=0) < 0).all()


def test_runs_go_on_from_where_the_last_one_ended() -> None:
    M, c, starts = problems(3, 6, seed=2)
    whole = minimise(Linear(M, c), starts, max_iterations=20)
    parts = minimise(Linear(M, c), starts, max_iterations=8)
    parts.run(lambda at: at.decrease < 1e-14, max_iterations=20)
    assert np.array_equal(whole.iterations, parts.iterations)
    assert np.allclose(whole.points[0], parts.points[0], atol=1e-12)


def test_problems_of_a_batch_go_the_way_they_would_go_alone() -> None:
    """Some converge long before others, and some have to shorten their steps: the first shifts are far too long."""
    n, h = 9, 4
    M, c, starts = problems(n, h, seed=7, spread=1e4)
    for limit in (0, 3, 300):
        objective = Linear(M, c, curvature=0.1)
        together = minimise(objective, starts, max_iterations=limit, tolerance=1e-5)
        for i in range(n):
            draw = slice(i, i + 1)
            alone = minimise(
                Linear(M[draw], c[draw], curvature=0.1), starts[draw], max_iterations=limit, tolerance=1e-5
            )
            assert together.iterations[i] == alone.iterations[0] <= limit
            assert together.converged[i] == alone.converged[0]
            assert together.value[i] == pytest.approx(alone.value[0], rel=1e-9)
            for mine, theirs in zip(together.points, alone.points, strict=True):
                assert np.allclose(mine[i], theirs[0], atol=1e-7)
    assert min(objective.n_evaluated) < n / 2  # those that converged are not evaluated for ever
    assert len(set(together.iterations)) > 2


def test_problems_left_out_of_a_run_that_split_the_batch_go_on_with_their_memory() -> None:
    n, h = 9, 6
    M, c, starts = problems(n, h, seed=7, spread=1e4)

    def run_twice(chosen: slice) -> tuple[RiemannianLBFGS, Linear]:
        objective = Linear(M[chosen], c[chosen])
        optimiser = minimise(objective, starts[chosen], max_iterations=300, tolerance=1e-2)
        first = optimiser.iterations.copy()
        optimiser.run(lambda at: at.iterations >= first[at.problems] + 4, max_iterations=300)
        return optimiser, objective

    together, objective = run_twice(slice(None))
    assert min(objective.n_evaluated) < n / 2
    for i in range(n):
        alone, _ = run_twice(slice(i, i + 1))
        assert together.iterations[i] == alone.iterations[0]
        for mine, theirs in zip(together.points, alone.points, strict=True):
            assert np.allclose(mine[i], theirs[0], atol=1e-9)


def test_a_problem_that_is_relocated_starts_afresh_and_the_others_go_on(on_backend: Callable[[Any], Any]) -> None:
    M, c, starts = map(on_backend, problems(2, 5, seed=3))
    optimiser = minimise(Linear(M, c), starts, max_iterations=10)
    elsewhere = sample_orthogonal(5, rng=np.random.default_rng(0), batch_shape=(2,))
    kept = to_numpy(optimiser.points[0][1]).copy()
    optimiser.relocate(np.array([True, False]), (on_backend(elsewhere), optimiser.points[1]))
    assert np.array_equal(to_numpy(optimiser.points[0][0]), elsewhere[0])
    assert np.array_equal(to_numpy(optimiser.points[0][1]), kept)
    assert np.allclose(optimiser.value, to_numpy(Linear(M, c).evaluate(optimiser.points).value))
    assert np.allclose(to_numpy(optimiser._memory._inverse)[0], 0)
    optimiser.run(lambda at: at.decrease < 1e-14, max_iterations=3000)
    assert np.allclose(optimiser.value[1], minimise(Linear(M, c), starts, max_iterations=3000).value[1])


@pytest.mark.parametrize("can_record", [True, False])
def test_iterations_that_cannot_be_recorded_are_launched_as_usual(
    can_record: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, but for the GPU: a recording there is repeated here by calling the function."""
    M, c, starts = problems(3, 5, seed=4)
    usual = minimise(Linear(M, c), starts, max_iterations=500)
    asked: list[Any] = []
    monkeypatch.setattr(riemannian_lbfgs, "is_on_gpu", lambda array: True)
    monkeypatch.setattr(
        riemannian_lbfgs, "capture", lambda work, device: asked.append(work) or (work if can_record else None)
    )
    solution = minimise(Linear(M, c), starts, max_iterations=500)
    assert np.allclose(solution.value, usual.value, rtol=0, atol=1e-12)
    # once for each set of problems that go on together
    assert len(asked) == (len({id(request.__self__) for request in asked}) if can_record else 1)
    assert solution.converged.all()
