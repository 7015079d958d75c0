"""What solvers do on record (see tests/record.py), and where their settings change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring import Termination, align_batch
from mooring.alignment import accelerated
from mooring.alignment.problem import make_problem
from mooring.alignment.rank_relaxation import relaxed_maps
from mooring.alignment.result import BatchSolution
from mooring.alignment.trace_objective import choose_memory_size
from mooring.geometry import sample_orthogonal
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
