"""Section 4.4 again, this time of `mooring.attacks`: the attacks are the estimators that the paper writes down.

Legend: A the anchor, a its mean row, Ā = A − 1 aᵀ; B_i the anchor representation, b_i its mean row, B̄_i = B_i − 1 b_iᵀ;
(O_i, Ψ_i) the rigid map, R_i the alignment rotation; v the anchor noise scale, W_i the noise; c the colluder, Q = O_c R_c.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from mooring.attacks import run
from mooring.audit.rotation.simulation import SimulationSettings, simulate
from mooring.geometry import polar_factor, sample_orthogonal
from tests.theorems.conftest import centred, mean_row

D, R_ROWS, V = 3, 12, 0.2
TARGET = 1
PAPERS = ("pseudoinverse", "procrustes", "alignment-map")


def _simulation(*, v, method="aa-i-gdp-anchor-noise", seed=0):
    rng = np.random.default_rng(seed)
    data = [rng.standard_normal((n, D)) * [3, 2, 1] + [5, -2, 1] for n in (9, 14, 11, 8)]
    settings = SimulationSettings(n_anchor_rows=R_ROWS)
    return simulate(data, method=method, anchor_noise_scale=v, rng=rng, settings=settings)


def _with_anchor_pair(view, A, B):
    """The same view with another anchor, or other noise on the target's representation of it."""
    upload = replace(view.target_upload, anchor_representation=B)
    uploads = tuple(upload if i == view.target else other for i, other in enumerate(view.uploads))
    return replace(view, anchor=A, uploads=uploads)


def _uncentred_pair(simulation, *, v, seed=1):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((R_ROWS, D)) * [0.5, 1.0, 2.0] + [4.0, -6.0, 1.0]
    return A, simulation.secrets[TARGET].apply(A) + v * rng.standard_normal(A.shape)


def _attacked(name, view):
    return run(name, view, rng=np.random.default_rng(2))


def _map_behind(rebuilt, view):
    """The linear map that takes rebuilt rows back to the upload: Ô, be it orthogonal or not."""
    rows, Y = rebuilt.rows, view.target_upload.representation
    return np.linalg.lstsq(rows - rows.mean(axis=0), Y - Y.mean(axis=0))[0]


@pytest.mark.parametrize("attack", ["known-anchor", *PAPERS])
@pytest.mark.parametrize("method", ["aa-i-gdp", "aa-i-gdp-anchor-noise"])
@pytest.mark.parametrize("colluders", [(0,), (3,), (0, 2), (0, 2, 3)])
def test_eq_pdp_collusion_centered_noisy_relation_is_solved_exactly_without_noise(attack, method, colluders):
    """eq:pdp_collusion_centered_noisy_relation: at v = 0 the anchor noise method inherits AA-I-GDP's exact vulnerability.

    Whoever colludes, and by each of the attacks; the alignment-map attack to the solver's own tolerance.
    """
    simulation = _simulation(v=0.0, method=method)
    rebuilt = _attacked(attack, simulation.view(colluders=colluders))
    secret, tolerance = simulation.secrets[TARGET], 1e-6 if attack == "alignment-map" else 1e-10
    np.testing.assert_allclose(rebuilt.rows, simulation.private_data[TARGET], atol=tolerance)
    np.testing.assert_allclose(rebuilt.rigid_map.orthogonal, secret.orthogonal, atol=tolerance)
    np.testing.assert_allclose(rebuilt.rigid_map.translation, secret.translation, atol=tolerance)


@pytest.mark.parametrize("attack", PAPERS)
@pytest.mark.parametrize("v", [0.0, V])
def test_eq_pdp_collusion_centered_noisy_relation_gives_the_translation(attack, v):
    """eq:pdp_collusion_centered_noisy_relation: Ψ̂ = b − Ôᵀa for every estimator, also for an anchor with a ≠ 0."""
    simulation = _simulation(v=V)
    A, B = _uncentred_pair(simulation, v=v)
    view = _with_anchor_pair(simulation.view(), A, B)
    rebuilt = _attacked(attack, view)
    O = _map_behind(rebuilt, view)
    if attack != "pseudoinverse":
        np.testing.assert_allclose(O, rebuilt.rigid_map.orthogonal, atol=1e-10)
    translation = mean_row(B) - O.T @ mean_row(A)
    np.testing.assert_allclose(rebuilt.rows @ O + translation, view.target_upload.representation, atol=1e-9)
    assert np.linalg.norm(translation - mean_row(B)) > 1  # a plug-in of b alone would be noticed
    turned = rebuilt.rigid_map.orthogonal
    np.testing.assert_allclose(rebuilt.rigid_map.translation, mean_row(B) - turned.T @ mean_row(A), atol=1e-10)


@pytest.mark.parametrize("normalised", [True, False])
def test_par_mp_attack_rebuilds_with_the_pseudoinverses(normalised):
    """par:mp_attack: X̂ = (Y − 1 Ψ̂ᵀ) Ô† with Ô = Ā†B̄, not made orthogonal; the reported map is the nearest that is."""
    simulation = _simulation(v=V)
    view = simulation.view()
    if not normalised:
        view = _with_anchor_pair(view, *_uncentred_pair(simulation, v=V))
    A, B, Y = view.anchor, view.target_upload.anchor_representation, view.target_upload.representation
    O = np.linalg.pinv(centred(A)) @ centred(B)
    rebuilt = _attacked("pseudoinverse", view)
    np.testing.assert_allclose(rebuilt.rows, (Y - (mean_row(B) - O.T @ mean_row(A))) @ np.linalg.pinv(O), atol=1e-10)
    assert np.linalg.norm(O.T @ O - np.eye(D)) > 0.05
    U, _, Vt = np.linalg.svd(O)
    np.testing.assert_allclose(rebuilt.rigid_map.orthogonal, U @ Vt, atol=1e-9)


def test_par_mp_attack_estimates_without_bias(laws):
    """par:mp_attack: over 500 draws of the noise, the map behind the rebuilt rows is O_i + v Aᵀ W_i: unbiased.

    Nine entries each: noticed with probability above 0.99 are a bias of length 0.33 v and a variance off by 14 % (exact).
    """
    simulation = _simulation(v=V)
    view, secret, rng = simulation.view(), simulation.secrets[TARGET], np.random.default_rng(3)
    noise = []
    for _ in range(500):
        B = secret.apply(view.anchor) + V * rng.standard_normal(view.anchor.shape)
        drawn = _with_anchor_pair(view, view.anchor, B)
        noise.append(((_map_behind(_attacked("pseudoinverse", drawn), drawn) - secret.orthogonal) / V).ravel())
    noise = np.stack(noise)
    assert laws.centre_power(*noise.shape, shift=0.33) > 0.99
    assert laws.size_power(noise.size, variance_factor=1.14) > 0.99
    assert laws.centre(noise) > laws.LEVEL > laws.centre(noise + 0.33 / math.sqrt(noise.shape[1]))
    assert laws.size(noise) > laws.LEVEL > laws.size(noise * math.sqrt(1.14))
    assert laws.covariance(noise) > laws.LEVEL
    assert stats.kstest(noise.ravel(), "norm").pvalue > laws.LEVEL


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("v", [0.1, 1.0])
def test_par_op_attack_finds_the_map_of_least_misfit(normalised, v):
    """par:op_attack: no orthogonal map fits the anchor pair better, near or far, the true one included.

    Gaussian noise makes the misfit the negative log-likelihood, so this is the most likely map.
    """
    simulation = _simulation(v=v)
    view = simulation.view()
    if not normalised:
        view = _with_anchor_pair(view, *_uncentred_pair(simulation, v=v))
    A, B = centred(view.anchor), centred(view.target_upload.anchor_representation)
    O, rng = _attacked("procrustes", view).rigid_map.orthogonal, np.random.default_rng(4)

    def misfit(candidate):
        return np.sum((B - A @ candidate) ** 2)

    near = [polar_factor(O + size * rng.standard_normal((D, D))) for size in (1e-4, 1e-2, 0.3) for _ in range(30)]
    far = [*sample_orthogonal(D, rng=rng, batch_shape=(100,)), simulation.secrets[TARGET].orthogonal]
    others = [_attacked(name, view).rigid_map.orthogonal for name in ("pseudoinverse", "alignment-map")]
    assert all(misfit(O) < misfit(candidate) for candidate in near + far)
    assert all(misfit(O) <= misfit(candidate) + 1e-12 for candidate in others)


@pytest.mark.parametrize("method", ["aa-i-gdp-anchor-noise", "aa-i-gdp"])
def test_par_am_attack_calibrates_with_the_colluders_map(method):
    """par:am_attack: Q̂ = O_c R̂_c and Ô_i = Q̂ R̂_iᵀ, whoever colludes; several of them agree on their mean's polar factor."""
    simulation = _simulation(v=V if method == "aa-i-gdp-anchor-noise" else 0.0, method=method)
    R = [map.orthogonal for map in simulation.alignment.maps]
    effective = {c: simulation.secrets[c].orthogonal @ R[c] for c in (0, 2, 3)}
    for c, Q in effective.items():
        rigid_map = _attacked("alignment-map", simulation.view(colluders=(c,))).rigid_map
        np.testing.assert_allclose(rigid_map.orthogonal, Q @ R[TARGET].T, atol=1e-9)
    U, _, Vt = np.linalg.svd(sum(effective.values()))
    rigid_map = _attacked("alignment-map", simulation.view(colluders=(0, 2, 3))).rigid_map
    np.testing.assert_allclose(rigid_map.orthogonal, U @ Vt @ R[TARGET].T, atol=1e-9)


def test_par_am_attack_errs_no_less_than_procrustes_on_average():
    """par:am_attack: with noise it leans on two noisy anchors where Procrustes has one clean: worse by about √2 here.

    Errors of the map over 100 studies; it is worse in the mean by more than four standard errors.
    """
    gaps = []
    for seed in range(100):
        simulation = _simulation(v=0.05, seed=seed)
        view, O = simulation.view(), simulation.secrets[TARGET].orthogonal
        errors = [np.linalg.norm(_attacked(name, view).rigid_map.orthogonal - O) for name in PAPERS[1:]]
        gaps.append(errors[1] - errors[0])
    assert np.mean(gaps) > 4 * np.std(gaps) / math.sqrt(len(gaps))
