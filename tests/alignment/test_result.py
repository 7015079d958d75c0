from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mooring import Termination, align, align_to_reference
from mooring.alignment.power_method import spectral_maps
from mooring.alignment.problem import make_problem


@pytest.fixture
def study(make_study: Callable) -> Any:
    return make_study(6, 4, 16, noise=0.3, seed=1)


@pytest.mark.parametrize("termination", Termination)
def test_why_a_solver_stopped_is_a_sentence(termination: Termination) -> None:
    text = str(termination)
    assert text == termination.value
    assert text[0].isupper()
    assert text.endswith(".")


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
def test_not_converging_is_a_value(solver: str, study: Any) -> None:
    alignment = align(study.uploads, solver=solver, max_iterations=1)
    assert alignment.termination is Termination.ITERATION_LIMIT
    assert not alignment.converged
    assert alignment.iterations == 1
    assert alignment.residual > 1e-6
    assert len(alignment.maps) == 6


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
def test_no_iterations_give_the_spectral_start(solver: str, study: Any) -> None:
    start, spectral = align(study.uploads, solver=solver, max_iterations=0), align(study.uploads, solver="spectral")
    assert start.iterations == 0
    assert not start.converged
    assert start.objective == pytest.approx(spectral.objective, rel=1e-5)


@pytest.mark.parametrize("solver", ["accelerated", "gpm"])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-3, 1e-5, 1e-7])
def test_converged_maps_rest_within_the_tolerance(solver: str, tolerance: float, make_study: Callable) -> None:
    """The tolerance is absolute and the residual relative to ‖R‖_F = √24: one more step moves less than the tolerance."""
    for seed in range(10):
        alignment = align(make_study(6, 4, 16, noise=0.3, seed=seed).uploads, solver=solver, tolerance=tolerance)
        assert alignment.termination is Termination.CONVERGED
        assert alignment.residual * np.sqrt(24) <= 1.001 * tolerance


def test_an_impossible_tolerance_ends_all_the_same_and_says_so(study: Any) -> None:
    alignment = align(study.uploads, tolerance=1e-18, max_iterations=60)
    assert alignment.termination in (Termination.ITERATION_LIMIT, Termination.STALLED)
    assert not alignment.converged
    assert alignment.residual < 1e-12


def test_two_participants_are_solved_in_closed_form(make_study: Callable) -> None:
    study = make_study(2, 4, 16, noise=0.3)
    closed, power = align(study.uploads), align(study.uploads, solver="gpm")
    assert closed.termination is Termination.CLOSED_FORM
    assert closed.converged
    assert closed.objective == pytest.approx(power.objective, rel=1e-12)


@pytest.mark.parametrize("solver", ["accelerated", "gpm", "spectral"])
def test_one_component_is_a_choice_of_signs(solver: str, make_study: Callable) -> None:
    study = make_study(5, 1, 6, noise=0.1)
    alignment = align(study.uploads, solver=solver)
    signs = [
        float(map.orthogonal[0, 0] * secret.orthogonal[0, 0])
        for map, secret in zip(alignment.maps, study.secrets, strict=True)
    ]
    assert np.allclose(np.abs(signs), 1.0)
    assert np.ptp(signs) == pytest.approx(0.0)


def test_the_certificate_is_made_only_when_asked_for(study: Any) -> None:
    assert align(study.uploads).certificate is None
    assert align(study.uploads, certify=True).certificate is not None
    assert align_to_reference(study.uploads).certificate is None


def test_a_late_joiner_lands_on_the_template_and_moves_nobody(make_study: Callable) -> None:
    """Without noise, the eighth participant's rows land where the other seven's do."""
    study = make_study(8, 3, 12, seed=2)
    alignment = align(study.uploads[:7])
    before = [(map.orthogonal.copy(), map.translation.copy()) for map in alignment.maps]
    admitted = alignment.admit(study.uploads[7])
    assert np.allclose(admitted.apply(study.uploads[7]), alignment.template, atol=1e-9)
    rows = np.random.default_rng(0).standard_normal((5, 3))
    landed = admitted.apply(study.secrets[7].apply(rows))
    assert np.allclose(landed, alignment.maps[0].apply(study.secrets[0].apply(rows)), atol=1e-8)
    for map, (orthogonal, translation) in zip(alignment.maps, before, strict=True):
        assert np.array_equal(map.orthogonal, orthogonal)
        assert np.array_equal(map.translation, translation)


def test_admitting_a_participant_again_returns_its_map_at_a_fixed_point(study: Any) -> None:
    """At rest every participant is aligned to the template already; the anchor's mean is the origin."""
    alignment = align(study.uploads)
    assert np.array_equal(alignment.origin, np.zeros(4))
    again = alignment.admit(study.uploads[3])
    assert np.allclose(again.orthogonal, alignment.maps[3].orthogonal, atol=1e-6)
    assert np.allclose(again.translation, alignment.maps[3].translation, atol=1e-6)


def test_a_late_joiner_to_a_reference_lands_in_the_reference_s_coordinates(make_study: Callable) -> None:
    study = make_study(4, 3, 12, seed=3)
    alignment = align_to_reference(study.uploads[:3], reference=2)
    assert np.allclose(alignment.admit(study.uploads[3]).apply(study.uploads[3]), study.uploads[2], atol=1e-10)


@pytest.mark.parametrize("reference", [0, 1, 5])
def test_the_reference_s_own_map_is_the_identity_and_each_other_the_best_one_onto_it(
    reference: int, study: Any
) -> None:
    alignment = align_to_reference(study.uploads, reference=reference)
    assert np.array_equal(alignment.maps[reference].orthogonal, np.eye(4))
    assert np.array_equal(alignment.maps[reference].translation, np.zeros(4))
    assert np.allclose(alignment.origin, study.uploads[reference].mean(axis=0))
    assert alignment.termination is Termination.REFERENCE
    target = study.uploads[reference] - study.uploads[reference].mean(axis=0)
    for map, upload in zip(alignment.maps, study.uploads, strict=True):
        U, _, Vt = np.linalg.svd((upload - upload.mean(axis=0)).T @ target)
        assert np.allclose(map.orthogonal, U @ Vt, atol=1e-12)


def test_a_spectral_start_whose_squares_underflow_is_finite(make_study: Callable) -> None:
    """Four participants of four columns and nine anchor rows: the r × r matrix is decomposed."""
    problem = make_problem(make_study(4, 4, 9, noise=0.1, seed=0).uploads)
    tiny = spectral_maps(replace(problem, blocks=1e-200 * problem.blocks))
    assert np.isfinite(tiny).all()
