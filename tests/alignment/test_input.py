"""Bad uploads and bad options: each is refused with a message that says what was expected, what came, what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring import RigidMap, align, align_batch, align_to_reference, make_anchor
from mooring.alignment.problem import make_problem

Refused = Callable[..., None]
REPRESENTATIONS = "anchor_representations"


@pytest.fixture
def uploads(make_study: Callable) -> np.ndarray:
    return make_study(4, 3, 12, noise=0.05).uploads


@pytest.fixture(params=[align, align_to_reference], ids=["align", "align_to_reference"])
def solve(request: pytest.FixtureRequest) -> Callable:
    return request.param


def with_values(uploads: np.ndarray, value: float) -> np.ndarray:
    uploads[1, 5, 2] = uploads[3, 0, 0] = value
    return uploads


def with_third(uploads: np.ndarray, third: np.ndarray) -> np.ndarray:
    uploads[2] = third
    return uploads


NOT_FINITE = (REPRESENTATIONS, "finite", "NaN or Inf from participant 1, 3")
RANK_POOR = (REPRESENTATIONS, "of rank 3 after centring", "a lower rank from participant 2")
BAD_UPLOADS: dict[str, tuple[Callable[[np.ndarray], Any], tuple[str, str, str]]] = {
    "nobody": (lambda B: B[:0], (REPRESENTATIONS, "those of at least two participants", "0")),
    "one participant": (lambda B: B[:1], (REPRESENTATIONS, "those of at least two participants", "1")),
    "a vector": (lambda B: [B[0], B[1, :, 0]], ("anchor representation 1", "a matrix of anchor rows", "shape (12,)")),
    "a stack": (lambda B: [B[0], B[:1]], ("anchor representation 1", "a matrix of anchor rows", "shape (1, 12, 3)")),
    "one matrix in place of a sequence": (lambda B: B[0], ("anchor representation 0", "a matrix", "shape (3,)")),
    "narrower": (lambda B: [B[0], B[1], B[2, :, :2]], ("anchor representation 2", "of shape (12, 3)", "shape (12, 2)")),
    "shorter": (lambda B: [B[0], B[1], B[2, :11]], ("anchor representation 2", "of shape (12, 3)", "shape (11, 3)")),
    "no rows": (lambda B: B[:, :0], (REPRESENTATIONS, "at least n_components + 1 = 4 rows long", "0 rows")),
    "too few rows": (lambda B: B[:, :3], (REPRESENTATIONS, "at least n_components + 1 = 4 rows long", "3 rows")),
    "no columns": (lambda B: B[:, :, :0], (REPRESENTATIONS, "at least one column", "no columns")),
    "NaN": (lambda B: with_values(B, np.nan), NOT_FINITE),
    "Inf": (lambda B: with_values(B, np.inf), NOT_FINITE),
    "-Inf": (lambda B: with_values(B, -np.inf), NOT_FINITE),
    "constant": (lambda B: with_third(B, np.ones_like(B[2])), RANK_POOR),
    "repeated column": (lambda B: with_third(B, B[2][:, [0, 0, 1]]), RANK_POOR),
    "constant column": (lambda B: with_third(B, B[2] * np.array([1.0, 1.0, 0.0]) + 7.0), RANK_POOR),
    "three rows only": (lambda B: with_third(B, np.where(np.arange(12)[:, None] < 2, B[2], B[2][11])), RANK_POOR),
}


@pytest.mark.parametrize("case", BAD_UPLOADS)
def test_bad_uploads_are_refused_and_named(
    case: str, solve: Callable, uploads: np.ndarray, refused: Refused, on_backend: Callable
) -> None:
    spoil, (what, expected, got) = BAD_UPLOADS[case]
    spoiled = [on_backend(np.ascontiguousarray(part)) for part in spoil(uploads)]
    refused(lambda: solve(spoiled), what, expected, got)


SOLVERS = "one of accelerated, gpm, spectral"


@pytest.mark.parametrize(
    ("call", "what", "expected", "got"),
    [
        (lambda B: align(B, solver="newton"), "solver", SOLVERS, "'newton'"),
        (lambda B: align_batch(B[None], solver="newton"), "solver", SOLVERS, "'newton'"),
        (lambda B: align(B, max_iterations=-1), "max_iterations", "zero or more", "-1"),
        *(
            (lambda B, t=t: align(B, tolerance=t), "tolerance", "a positive number", str(t))
            for t in (0.0, -1e-7, np.nan)
        ),
        *((lambda B, k=k: align_to_reference(B, reference=k), "reference", "0 to 3", str(k)) for k in (-1, 4)),
    ],
)
def test_options_that_cannot_be_used_are_refused(
    call: Callable, what: str, expected: str, got: str, uploads: np.ndarray, refused: Refused
) -> None:
    refused(lambda: call(uploads), what, expected, got)


@pytest.mark.parametrize("shape", [(4, 12, 3), (0, 4, 12, 3), (2, 1, 12, 3), (1, 2, 4, 12, 3)])
def test_a_batch_of_another_shape_is_refused(shape: tuple[int, ...], refused: Refused) -> None:
    expected = "of shape (n_problems, n_participants, n_anchor_rows, n_components)"
    refused(lambda: align_batch(np.ones(shape)), REPRESENTATIONS, expected, f"shape {shape}")


def test_a_batch_is_checked_like_a_single_problem(uploads: np.ndarray, refused: Refused) -> None:
    batch = np.stack([uploads, uploads])
    refused(lambda: align_batch(batch[:, :, :3]), REPRESENTATIONS, "4 rows long", "3 rows")
    poor = batch.copy()
    poor[1, 2] = 0.0
    refused(lambda: align_batch(poor), REPRESENTATIONS, "of rank 3", "a lower rank from participant 2")
    broken = batch.copy()
    broken[1, 3, 0, 0] = np.nan
    refused(lambda: align_batch(broken), REPRESENTATIONS, "finite", "NaN or Inf from participant 3")


@pytest.mark.parametrize(("length", "is_fine"), [(9e-7, True), (7e-7, False)])
def test_a_column_counts_if_its_variance_is_above_a_millionth_of_a_millionth_of_the_mean(
    length: float, is_fine: bool, refused: Refused, rng: np.random.Generator
) -> None:
    """The columns have lengths 1, 1 and √(2/3) 10⁻⁶, so that the last has 10⁻¹² of the mean variance."""
    anchor = make_anchor(12, 3, rng=rng)
    uploads = [anchor, anchor, anchor * np.array([1.0, 1.0, length])]
    if is_fine:
        make_problem(uploads)
    else:
        refused(lambda: make_problem(uploads), *RANK_POOR)


@pytest.mark.parametrize(
    ("newcomer", "expected", "got"),
    [
        *((np.ones(shape), "of shape (12, 3)", f"shape {shape}") for shape in ((12,), (11, 3), (12, 2), (1, 12, 3))),
        (np.full((12, 3), np.nan), "finite", "NaN or Inf"),
        (np.ones((12, 3)), "of rank 3 after centring", "a lower rank"),
        (np.random.default_rng(0).standard_normal((12, 3))[:, [0, 0, 1]], "of rank 3 after centring", "a lower rank"),
    ],
)
def test_a_bad_late_joiner_is_refused(
    newcomer: np.ndarray, expected: str, got: str, solve: Callable, uploads: np.ndarray, refused: Refused
) -> None:
    alignment = solve(uploads)
    refused(lambda: alignment.admit(newcomer), "anchor_representation", expected, got)


def test_uploads_are_not_changed(solve: Callable, uploads: np.ndarray, on_backend: Callable) -> None:
    before = uploads.copy()
    solve(on_backend(uploads))
    align_batch(on_backend(uploads[None]))
    assert np.array_equal(uploads, before)


def test_lists_and_integers_are_welcome(solve: Callable) -> None:
    rows = [[[1, 0], [0, 1], [-1, -1]], [[0, 1], [1, 0], [-1, -1]]]
    assert solve(rows).misfit == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("solver", ["accelerated", "gpm", "spectral"])
@pytest.mark.parametrize("scale", [1e-15, 1e-6, 1e6, 1e12])
def test_the_unit_of_the_uploads_does_not_matter(
    solver: str, scale: float, uploads: np.ndarray, on_backend: Callable
) -> None:
    """Far outside the range whose squares float32 holds, too."""
    plain = align(on_backend(uploads), solver=solver, certify=True)
    scaled = align(on_backend(scale * uploads), solver=solver, certify=True)
    assert scaled.objective == pytest.approx(scale**2 * plain.objective)
    assert scaled.misfit == pytest.approx(scale**2 * plain.misfit)
    assert scaled.certificate.min_eigenvalue == pytest.approx(scale**2 * plain.certificate.min_eigenvalue, rel=1e-3)
    assert scaled.certificate.certified == plain.certificate.certified
    assert scaled.converged


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
@pytest.mark.parametrize(("shape", "noise"), [((5, 3, 12), 0.05), ((10, 20, 80), 0.05), ((10, 20, 80), 0.3)])
def test_an_upload_of_another_scale_does_not_hold_up_the_others(
    shape: tuple[int, int, int], noise: float, scale: float, make_study: Callable
) -> None:
    uploads = make_study(*shape, noise=noise, seed=0).uploads
    uploads[1] *= scale
    alignment, power = align(uploads), align(uploads, solver="gpm")
    assert alignment.converged
    assert alignment.iterations <= max(2 * power.iterations, 50)
    assert alignment.objective > power.objective * (1 - 1e-12)
    if noise < 0.1 or scale > 1:  # otherwise there is more than one optimum
        for rigid_map, other in zip(alignment.maps[1:], power.maps[1:], strict=True):
            relative = rigid_map.orthogonal @ alignment.maps[0].orthogonal.T
            assert np.allclose(relative, other.orthogonal @ power.maps[0].orthogonal.T, atol=1e-6)


def test_a_large_common_translation_does_not_matter(uploads: np.ndarray) -> None:
    far = RigidMap(np.eye(3), np.full(3, 1e6)).apply(uploads)
    assert align(far).objective == pytest.approx(align(uploads).objective, rel=1e-8)
