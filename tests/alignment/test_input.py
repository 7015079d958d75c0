"""Bad uploads and bad options: each is refused with a message that says what was expected, what came, what to do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring import InputError, RigidMap, align, align_batch, align_to_reference

Refused = Callable[..., None]
REPRESENTATIONS = "anchor_representations"


@pytest.fixture
def uploads(make_study: Callable[..., Any]) -> np.ndarray:
    return make_study(4, 3, 12, noise=0.05).uploads


@pytest.fixture(params=[align, align_to_reference], ids=["align", "align_to_reference"])
def solve(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return request.param


@pytest.mark.parametrize("n_participants", [0, 1])
def test_fewer_than_two_participants_are_refused(
    n_participants: int, solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    refused(
        lambda: solve(uploads[:n_participants]),
        what=REPRESENTATIONS,
        expected="those of at least two participants",
        got=str(n_participants),
    )


@pytest.mark.parametrize("shape", [(12,), (1, 12, 3)])
def test_an_upload_that_is_no_matrix_is_refused(
    shape: tuple[int, ...], solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    refused(
        lambda: solve([uploads[0], np.zeros(shape)]),
        what="anchor representation 1",
        expected="a matrix of anchor rows by components",
        got=f"shape {shape}",
    )


def test_one_matrix_in_place_of_a_sequence_is_refused(
    solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    refused(lambda: solve(uploads[0]), what="anchor representation 0", expected="a matrix", got="shape (3,)")


@pytest.mark.parametrize("shape", [(12, 2), (12, 4), (11, 3)])
def test_participants_of_different_width_or_length_are_refused(
    shape: tuple[int, ...], solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    refused(
        lambda: solve([uploads[0], uploads[1], np.ones(shape)]),
        what="anchor representation 2",
        expected="of shape (12, 3) like that of participant 0",
        got=f"shape {shape}",
    )


@pytest.mark.parametrize("n_rows", [0, 1, 3])
def test_too_few_anchor_rows_are_refused(
    n_rows: int, solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    refused(
        lambda: solve(uploads[:, :n_rows]),
        what=REPRESENTATIONS,
        expected="at least n_components + 1 = 4 rows long",
        got=f"{n_rows} rows",
    )


def test_uploads_without_columns_are_refused(solve: Callable[..., Any], uploads: np.ndarray, refused: Refused) -> None:
    refused(lambda: solve(uploads[:, :, :0]), what=REPRESENTATIONS, expected="at least one column", got="no columns")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_uploads_that_are_not_finite_are_refused_and_named(
    value: float,
    solve: Callable[..., Any],
    uploads: np.ndarray,
    refused: Refused,
    on_backend: Callable[[Any], Any],
) -> None:
    uploads[1, 5, 2] = uploads[3, 0, 0] = value
    refused(
        lambda: solve(on_backend(uploads)),
        what=REPRESENTATIONS,
        expected="finite",
        got="NaN or Inf from participant 1, 3",
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda B: np.ones_like(B),
        lambda B: B[:, [0, 0, 1]],
        lambda B: B * np.array([1.0, 1.0, 0.0]) + 7.0,
        lambda B: np.where(np.arange(12)[:, None] < 2, B, B[11]),
    ],
    ids=["constant", "repeated column", "constant column", "three rows only"],
)
def test_a_rank_poor_upload_is_refused_and_named(
    spoil: Callable[[np.ndarray], np.ndarray],
    solve: Callable[..., Any],
    uploads: np.ndarray,
    refused: Refused,
    on_backend: Callable[[Any], Any],
) -> None:
    uploads[2] = spoil(uploads[2])
    refused(
        lambda: solve(on_backend(uploads)),
        what=REPRESENTATIONS,
        expected="of rank 3 after centring",
        got="less from participant 2",
    )


def test_an_unknown_solver_is_refused(uploads: np.ndarray, refused: Refused) -> None:
    for call in (lambda: align(uploads, solver="newton"), lambda: align_batch(uploads[None], solver="newton")):
        refused(call, what="solver", expected="one of 'accelerated', 'gpm', 'spectral'", got="'newton'")


def test_a_negative_iteration_limit_is_refused(uploads: np.ndarray, refused: Refused) -> None:
    refused(lambda: align(uploads, max_iterations=-1), what="max_iterations", expected="zero or more", got="-1")


@pytest.mark.parametrize("tolerance", [0.0, -1e-7, float("nan")])
def test_a_tolerance_that_is_not_positive_is_refused(tolerance: float, uploads: np.ndarray, refused: Refused) -> None:
    refused(
        lambda: align(uploads, tolerance=tolerance), what="tolerance", expected="a positive number", got=str(tolerance)
    )


@pytest.mark.parametrize("reference", [-1, 4])
def test_a_reference_that_does_not_take_part_is_refused(reference: int, uploads: np.ndarray, refused: Refused) -> None:
    refused(
        lambda: align_to_reference(uploads, reference=reference),
        what="reference",
        expected="a participant's index, 0 to 3",
        got=str(reference),
    )


@pytest.mark.parametrize("shape", [(4, 12, 3), (0, 4, 12, 3), (2, 1, 12, 3), (1, 2, 4, 12, 3)])
def test_a_batch_of_another_shape_is_refused(shape: tuple[int, ...], refused: Refused) -> None:
    refused(
        lambda: align_batch(np.ones(shape)),
        what=REPRESENTATIONS,
        expected="of shape (n_problems, n_participants, n_anchor_rows, n_components)",
        got=f"shape {shape}",
    )


def test_a_batch_is_checked_like_a_single_problem(uploads: np.ndarray, refused: Refused) -> None:
    batch = np.stack([uploads, uploads])
    refused(lambda: align_batch(batch[:, :, :3]), what=REPRESENTATIONS, expected="4 rows long", got="3 rows")
    poor = batch.copy()
    poor[1, 2] = 0.0
    refused(lambda: align_batch(poor), what=REPRESENTATIONS, expected="of rank 3", got="less from participant 2")
    broken = batch.copy()
    broken[1, 3, 0, 0] = np.nan
    refused(lambda: align_batch(broken), what=REPRESENTATIONS, expected="finite", got="NaN or Inf from participant 3")


@pytest.mark.parametrize("shape", [(12,), (11, 3), (12, 2), (1, 12, 3)])
def test_a_late_joiner_of_another_shape_is_refused(
    shape: tuple[int, ...], solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    alignment = solve(uploads)
    refused(
        lambda: alignment.admit(np.ones(shape)),
        what="anchor_representation",
        expected="of shape (12, 3) like the template",
        got=f"shape {shape}",
    )


def test_a_late_joiner_that_is_not_finite_is_refused(
    solve: Callable[..., Any], uploads: np.ndarray, refused: Refused
) -> None:
    alignment = solve(uploads)
    newcomer = uploads[0].copy()
    newcomer[0, 0] = np.nan
    refused(lambda: alignment.admit(newcomer), what="anchor_representation", expected="finite", got="NaN or Inf")


def test_a_broken_late_joiner_is_not_blamed_on_participant_0(uploads: np.ndarray) -> None:
    with pytest.raises(InputError) as caught:
        align(uploads).admit(np.full((12, 3), np.nan))
    assert "participant 0" not in str(caught.value)


def test_a_rank_poor_late_joiner_is_refused(solve: Callable[..., Any], uploads: np.ndarray, refused: Refused) -> None:
    alignment = solve(uploads)
    for newcomer in (np.ones((12, 3)), uploads[0][:, [0, 0, 1]]):
        refused(
            lambda newcomer=newcomer: alignment.admit(newcomer),
            what="anchor_representation",
            expected="of rank 3 after centring",
            got="less",
        )


def test_uploads_are_not_changed(
    solve: Callable[..., Any], uploads: np.ndarray, on_backend: Callable[[Any], Any]
) -> None:
    before = uploads.copy()
    solve(on_backend(uploads))
    align_batch(on_backend(uploads[None]))
    assert np.array_equal(uploads, before)


def test_lists_and_integers_are_welcome(solve: Callable[..., Any]) -> None:
    rows = [[[1, 0], [0, 1], [-1, -1]], [[0, 1], [1, 0], [-1, -1]]]
    assert solve(rows).misfit == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("solver", ["accelerated", "gpm", "spectral"])
@pytest.mark.parametrize("scale", [1e-15, 1e-6, 1e6, 1e12])
def test_the_unit_of_the_uploads_does_not_matter(
    solver: str, scale: float, uploads: np.ndarray, on_backend: Callable[[Any], Any]
) -> None:
    """Far outside the range whose squares float32 holds, too."""
    plain = align(on_backend(uploads), solver=solver, certify=True)
    scaled = align(on_backend(scale * uploads), solver=solver, certify=True)
    assert scaled.objective == pytest.approx(scale**2 * plain.objective)
    assert scaled.misfit == pytest.approx(scale**2 * plain.misfit)
    assert scaled.certificate.min_eigenvalue == pytest.approx(scale**2 * plain.certificate.min_eigenvalue, rel=1e-3)
    assert scaled.certificate.certified == plain.certificate.certified
    assert scaled.converged


def test_a_large_common_translation_does_not_matter(uploads: np.ndarray) -> None:
    far = RigidMap(np.eye(3), np.full(3, 1e6)).apply(uploads)
    assert align(far).objective == pytest.approx(align(uploads).objective, rel=1e-8)
