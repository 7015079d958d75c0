"""What solvers do on record (see tests/record.py), and where their settings change."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring import Termination, align_batch
from mooring.alignment import accelerated, rank_relaxation
from mooring.alignment.certificate import seems_optimal
from mooring.alignment.problem import ProcrustesProblem, make_batch, make_problem
from mooring.alignment.rank_relaxation import relaxed_maps
from mooring.alignment.result import BatchSolution
from mooring.alignment.trace_objective import change_precision, choose_memory_size, trace_optimiser
from mooring.geometry import sample_orthogonal
from mooring.geometry.riemannian_lbfgs import RiemannianLBFGS
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
CASES = {"easy": (5, 4, 16, 0.05), "noisy": (6, 8, 32, 0.25), "hard": (8, 6, 24, 0.5), "beyond": (5, 10, 20, 1.0)}


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
@pytest.mark.parametrize("name", CASES)
def test_solutions_are_as_on_record(name: str, solver: str, make_study: Callable[..., Any]) -> None:
    *shape, noise = CASES[name]
    uploads = np.stack([make_study(*shape, noise=noise, seed=seed).uploads for seed in range(6)])
    solutions = align_batch(uploads, solver=solver, certify=True)
    values = {
        "objective": [solution.objective for solution in solutions],
        "misfit": [solution.misfit for solution in solutions],
    }
    values["certified"] = [solution.certificate.certified for solution in solutions if solution.certificate]
    check_record(RECORD, f"{name}, {solver}", values, rel=1e-4, abs=1e-4)
    check_record(RECORD, f"{name}, {solver}, iterations", float(sum(each.iterations for each in solutions)), rel=0.12)


def test_a_relaxation_is_as_on_record(make_study: Callable[..., Any]) -> None:
    problem = make_problem(make_study(6, 5, 20, noise=0.6).uploads)
    start = sample_orthogonal(5, rng=np.random.default_rng(3), batch_shape=(1, 6))
    for limit in (2, 20):
        maps, iterations = relaxed_maps(problem, start, max_iterations=limit)
        figures = [float(iterations[0]), problem.objective(maps).item()]
        check_record(RECORD, f"relaxed, {limit}", figures, rel=0.01, abs=0.1)
    many = np.stack([make_study(4, 3, 12, noise=0.2, seed=seed).uploads for seed in range(40)])
    starts = sample_orthogonal(3, rng=np.random.default_rng(4), batch_shape=(40, 4))
    maps, iterations = relaxed_maps(make_batch(many), starts, max_iterations=500)
    assert iterations.max() < 500
    check_record(RECORD, "relaxed to their end", float(iterations.mean()), rel=0.015)


def make_noisy(make_study: Callable[..., Any], noise: float) -> np.ndarray:
    """Sixty problems of this noise."""
    return np.stack([make_study(5, 3, 12, noise=noise, seed=seed).uploads for seed in range(60)])


def test_the_gaps_at_which_a_solver_goes_on_are_as_on_record(
    make_study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where basins are judged, where the precision changes, and where the last power steps end: means of logarithms.

    A limit that is half as large again moves a mean by 0.18.
    """
    judged, changed = list[np.ndarray](), list[np.ndarray]()

    def judge(problem: ProcrustesProblem, maps: np.ndarray) -> np.ndarray:
        judged.append(problem.fixed_point_gap(maps))
        return seems_optimal(problem, maps)

    def change(optimiser: RiemannianLBFGS, problem: ProcrustesProblem) -> None:
        changed.append(problem.fixed_point_gap(optimiser.points[0].astype(np.float64)))
        change_precision(optimiser, problem)

    monkeypatch.setattr(accelerated, "seems_optimal", judge)
    monkeypatch.setattr(accelerated, "change_precision", change)
    solutions = align_batch(make_noisy(make_study, 0.15))
    ((gaps_judged,), (gaps_changed,)) = judged, changed
    finished = align_batch(make_noisy(make_study, 0.005), tolerance=1e-2)
    means = [np.log10(gaps).mean() for gaps in (gaps_judged, gaps_changed, [each.residual for each in finished])]
    check_record(RECORD, "gaps, accelerated", [*means, np.mean([each.iterations for each in solutions])], abs=0.04)


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
def test_the_first_steps_of_a_solver_are_as_on_record(solver: str, make_study: Callable[..., Any]) -> None:
    """By the logarithm of the residual, which every choice of a step's direction and length moves."""
    uploads = np.stack([make_study(8, 6, 24, noise=0.4, seed=seed).uploads for seed in range(6)])
    residuals = [
        np.mean([math.log10(each.residual) for each in align_batch(uploads, solver=solver, max_iterations=n)])
        for n in (0, 1, 2, 3, 5, 8, 12, 14, 17)
    ]
    check_record(RECORD, f"first steps, {solver}", residuals, abs=0.02)


@pytest.mark.parametrize(("d", "k"), [(1, 3), (40, 42), (41, 44), (60, 63), (61, 65)])
def test_a_relaxation_has_a_twentieth_more_dimensions_and_two_at_least(
    d: int, k: int, make_study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    lifted: list[int] = []

    def optimise(problem: ProcrustesProblem, maps: np.ndarray) -> RiemannianLBFGS:
        lifted.append(problem.n_components)
        return trace_optimiser(problem, maps)

    monkeypatch.setattr(rank_relaxation, "trace_optimiser", optimise)
    maps, _ = relaxed_maps(
        make_problem(make_study(3, d, d + 1).uploads), np.tile(np.eye(d), (1, 3, 1, 1)), max_iterations=0
    )
    assert lifted == [k]
    assert maps.shape == (1, 3, d, d)


@pytest.mark.parametrize("max_iterations", [500, 60, 30])
def test_a_relaxation_takes_twenty_steps_or_half_of_those_that_are_left(
    max_iterations: int, make_study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    limits, expected = list[int](), list[int]()

    def relax(*given: Any, max_iterations: int) -> Any:
        limits.append(max_iterations)
        return relaxed_maps(*given, max_iterations=max_iterations)

    def judge(problem: ProcrustesProblem, maps: np.ndarray, doubtful: np.ndarray, **options: Any) -> RiemannianLBFGS:
        expected.append(min(20, (max_iterations - int(options["spent"][doubtful].max())) // 2))
        return in_better_basins(problem, maps, doubtful, **options)

    in_better_basins = accelerated._in_better_basins
    monkeypatch.setattr(accelerated, "relaxed_maps", relax)
    monkeypatch.setattr(accelerated, "_in_better_basins", judge)
    align_batch(make_study(8, 6, 24, noise=0.5).uploads[None], max_iterations=max_iterations)
    assert limits == expected
    assert (limits == [20]) == (max_iterations != 30)


@pytest.mark.parametrize(("n_rows", "size"), [(2 * 2**10, 1), (3 * 2**10, 2), (5 * 2**10, 4), (20 * 2**10, 7)])
def test_the_memory_takes_no_more_than_the_data(n_rows: int, size: int) -> None:
    """A remembered pair takes p d² numbers, here 2**25, and another slot is kept free; the data take r p d."""
    assert choose_memory_size(n_rows * 2**5 * 2**10, 2**5, 2**10) == size


@pytest.mark.parametrize(("factor", "single"), [(1000.0, True), (1000.25, False)])
def test_scales_up_to_the_limit_are_solved_in_single_precision(factor: float, single: bool) -> None:
    block = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    problem = make_problem([block, block, factor * block])
    assert (problem.working_precision() is np.float32) == single


def test_maps_that_rest_exactly_have_converged_with_their_last_iteration() -> None:
    block = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    maps = np.broadcast_to(np.eye(2), (1, 3, 2, 2))
    solutions = BatchSolution(maps, [Termination.ITERATION_LIMIT], np.ones(1, dtype=np.int64), np.zeros(1), np.zeros(1))
    assert solutions.alignments(make_problem([block] * 3))[0].converged


def test_uploads_of_which_a_thousandth_is_unexplained_are_refined_by_power_steps(
    make_study: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share of the sum of squares by which aligned and centred uploads differ from their mean."""
    uploads = np.stack([make_study(4, 3, 16, noise=noise).uploads for noise in (0.0, 0.004, 0.009, 0.01, 0.02, 0.3)])
    refined: list[list[bool]] = []
    monkeypatch.setattr(accelerated, "_refine", lambda problem, solution, chosen: refined.append(chosen.tolist()))
    shares = []
    for solution, problem in zip(align_batch(uploads, solver="accelerated"), uploads, strict=True):
        aligned = np.stack([rigid.apply(part) for rigid, part in zip(solution.maps, problem, strict=True)])
        aligned -= aligned.mean(axis=1, keepdims=True)
        shares.append(((aligned - aligned.mean(axis=0)) ** 2).sum() / (aligned**2).sum())
    assert refined == [[bool(share < 1e-3) for share in shares]]
    assert [share for share in shares if 0.7e-3 < share < 1e-3]
    assert [share for share in shares if 1e-3 < share < 1.4e-3]
