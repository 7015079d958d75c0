"""Attacks on many draws at once: the same as one draw after the other, and as the formulas written out."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from mooring import align, make_anchor
from mooring.alignment import power_method
from mooring.alignment.power_method import spectral_maps
from mooring.alignment.problem import make_batch
from mooring.attacks import CollusionView, DoesNotApply, run, run_batch
from mooring.attacks.alignment_map import alignment_map_estimate
from mooring.attacks.moments import moments, moments_batch
from mooring.attacks.procrustes import procrustes_estimate
from mooring.attacks.pseudoinverse import least_squares_estimate, pseudoinverses
from mooring.attacks.reconstruction import centred_anchor_pair
from mooring.attacks.view import PublicRows
from mooring.audit.rotation.simulation import RowSimulation, simulate
from mooring.geometry import polar_factor, sample_orthogonal
from mooring.geometry.backend import to_numpy
from mooring.geometry.orthogonal import svd_polar_factor
from tests.auditing import class_rows

H, R = 5, 20
SCALES = (0.02, 0.1, 0.3, 1.0)


def simulated(method: str = "aa-i-gdp-anchor-noise", *, on: Callable = np.asarray) -> Any:
    rows, labels = class_rows(4, 120, H)
    return simulate(
        [on(part) for part in rows],
        labels,
        method=method,
        n_components=H,
        anchor_noise_scale=0.2 if "anchor" in method else 0.0,
        rng=np.random.default_rng(1),
    )


def draws_of(
    simulation: RowSimulation, scales: tuple[float, ...] = SCALES, *, on: Callable = np.asarray, **options: Any
) -> list[CollusionView]:
    """Views that differ in the target's anchor noise alone."""
    view, rng = simulation.view(**options), np.random.default_rng(2)
    views = []
    for v in scales:
        noise = on(v * rng.standard_normal(tuple(view.anchor.shape)))
        uploads = list(view.uploads)
        clean = simulation.secrets[view.target].apply(view.anchor)
        uploads[view.target] = replace(uploads[view.target], anchor_representation=clean + noise)
        views.append(replace(view, uploads=tuple(uploads), anchor_noise_scale=v))
    return views


# ----------------------------------------------------------------------------------------------- the three estimates


@pytest.fixture
def noisy() -> tuple[np.ndarray, np.ndarray]:
    """An anchor, and centred representations of shape (2, 3, r, h)."""
    rng = np.random.default_rng(3)
    A = make_anchor(R, H, rng=rng)
    B = A @ sample_orthogonal(H, rng=rng, batch_shape=(2, 3)) + 0.2 * rng.standard_normal((2, 3, R, H))
    return A, B - B.mean(axis=-2, keepdims=True)


def test_estimates_of_a_batch_are_the_paper_s_formulas(noisy: Any, on_backend: Callable) -> None:
    A, B = noisy
    rng = np.random.default_rng(4)
    O_c, R_c, R_i = (sample_orthogonal(H, rng=rng, batch_shape=shape) for shape in ((), (2, 3), (2, 3)))
    by_procrustes = to_numpy(procrustes_estimate(on_backend(A), on_backend(B)))
    by_inverse = to_numpy(pseudoinverses(least_squares_estimate(on_backend(A), on_backend(B))))
    by_maps = to_numpy(alignment_map_estimate(on_backend(O_c), on_backend(R_c), on_backend(R_i)))
    for i in np.ndindex(2, 3):
        U, _, Vt = np.linalg.svd(A.T @ B[i])
        assert np.allclose(by_procrustes[i], U @ Vt, atol=1e-12)
        assert np.allclose(by_inverse[i], np.linalg.pinv(A.T @ B[i]), atol=1e-11)
        assert np.allclose(by_maps[i], O_c @ R_c[i] @ R_i[i].T, atol=1e-12)


def test_several_colluders_are_averaged(on_backend: Callable) -> None:
    rng = np.random.default_rng(5)
    O_c, R_i = sample_orthogonal(H, rng=rng, batch_shape=(3,)), sample_orthogonal(H, rng=rng, batch_shape=(4,))
    R_c = O_c.transpose(0, 2, 1) @ sample_orthogonal(H, rng=rng) + 0.1 * rng.standard_normal((4, 3, H, H))
    got = to_numpy(alignment_map_estimate(on_backend(O_c), on_backend(R_c), on_backend(R_i)))
    for draw in range(4):
        mean = sum(O_c[m] @ R_c[draw, m] for m in range(3)) / 3
        assert np.allclose(got[draw], svd_polar_factor(mean) @ R_i[draw].T, atol=1e-12)


@pytest.mark.parametrize("attack", ["alignment-map", "procrustes", "pseudoinverse"])
def test_a_batch_of_two_colluders_is_as_one_draw_after_the_other(attack: str) -> None:
    views = draws_of(simulated(), colluders=(0, 2))
    for reconstruction, view in zip(run_batch(attack, views, rng=np.random.default_rng(0)), views, strict=True):
        assert np.allclose(reconstruction.rows, run(attack, view, rng=np.random.default_rng(0)).rows, atol=1e-9)


def test_the_inverse_of_an_anchor_that_is_not_orthonormal_is_that_of_least_squares(noisy: Any) -> None:
    A, B = noisy
    A = A * np.linspace(0.5, 2, H)
    expected = np.linalg.pinv(np.linalg.lstsq(A, B[0, 0], rcond=None)[0])
    assert np.allclose(pseudoinverses(least_squares_estimate(A, B))[0, 0], expected, atol=1e-10)


@pytest.mark.parametrize("smallest", [0.0, 1e-17, 1e-10])
def test_singular_matrices_of_a_batch_have_pseudoinverses(smallest: float, on_backend: Callable) -> None:
    """Elimination fails or is useless there; the others of the batch are not harmed."""
    rng = np.random.default_rng(6)
    M = rng.standard_normal((3, H, H))
    U, s, Vt = np.linalg.svd(M[1])
    s[-1] = smallest
    M[1] = (U * s) @ Vt
    if smallest == 0:
        M[1] = np.diag([1.0, 2, 3, 4, 0])
    got = to_numpy(pseudoinverses(on_backend(M)))
    expected = np.linalg.pinv(M)
    assert np.allclose(got[[0, 2]], expected[[0, 2]], rtol=1e-9)
    assert np.max(np.abs(got[1] - expected[1])) <= 1e-4 * np.max(np.abs(expected[1]))


@pytest.mark.parametrize("colluders", [(0,), (0, 2, 3)])
@pytest.mark.parametrize("own_rows", [False, True])
@pytest.mark.parametrize("name", ["procrustes", "pseudoinverse", "alignment-map", "principal-axes"])
def test_a_batch_of_views_gives_what_each_view_gives(
    name: str, own_rows: bool, colluders: tuple[int, ...], on_backend: Callable[[Any], Any]
) -> None:
    views = draws_of(simulated(on=on_backend), on=on_backend, colluders=colluders)
    if own_rows:
        shifted = [
            replace(v.target_upload, representation=v.target_upload.representation + k) for k, v in enumerate(views)
        ]
        views = [replace(v, uploads=(v.uploads[0], up, *v.uploads[2:])) for v, up in zip(views, shifted, strict=True)]
    together = run_batch(name, views, rng=np.random.default_rng(0))
    for reconstruction, view in zip(together, views, strict=True):
        alone = run(name, view, rng=np.random.default_rng(0))
        pairs = [(reconstruction.rows, alone.rows), (reconstruction.rigid_map.orthogonal, alone.rigid_map.orthogonal)]
        pairs += [(reconstruction.rigid_map.translation, alone.rigid_map.translation)]
        pairs += [] if alone.row_error is None else [(reconstruction.row_error, alone.row_error)]
        assert all(np.allclose(to_numpy(pair), to_numpy(other), atol=1e-9) for pair, other in pairs)
        assert (reconstruction.row_error is None) == (alone.row_error is None)
    (first,) = run_batch(name, views[:1], rng=np.random.default_rng(0))
    assert np.allclose(to_numpy(first.rows), to_numpy(together[0].rows), atol=1e-9)


def test_both_anchors_are_centred_on_their_own_mean() -> None:
    view = simulated().view()
    view = replace(view, anchor=view.anchor + 2.0)
    A, a, B, b = centred_anchor_pair(view)
    assert np.allclose([A.mean(axis=0), B.mean(axis=0)], 0, atol=1e-12)
    assert np.allclose(A + a, view.anchor)
    assert np.allclose(B + b, view.target_upload.anchor_representation)


def test_a_batch_needs_views_one_anchor_and_what_the_attack_uses(refused: Callable[..., None]) -> None:
    rng, (first, second, *_) = np.random.default_rng(0), draws_of(simulated())
    other = replace(second, anchor=second.anchor[::-1].copy())
    refused(lambda: run_batch("procrustes", [first, other], rng=rng), "view 1", "", "")
    refused(lambda: run_batch("procrustes", [], rng=rng), "views", "one or more", "none")
    refused(lambda: run_batch("nothing", [first], rng=rng), "attack", "one of", "nothing")
    for missing in ({"anchor": None}, {"alignment": None}, {"colluders": ()}):
        with pytest.raises(DoesNotApply):
            run_batch("alignment-map", [first, replace(second, **missing)], rng=rng)


def test_a_batch_takes_equal_copies_of_an_anchor() -> None:
    rng, (first, second, *_) = np.random.default_rng(0), draws_of(simulated())
    copied = replace(second, anchor=second.anchor.copy())
    pairs = [run_batch("procrustes", [first, view], rng=rng)[1].rows for view in (second, copied)]
    np.testing.assert_array_equal(*pairs)


# ------------------------------------------------------------------------------------------- moments of many draws


@pytest.mark.parametrize(
    ("library", "options"),
    [("numpy", {}), ("torch", {}), ("numpy", {"with_labels": False}), ("numpy", {"colluders": (0, 2)})],
    ids=["plain", "torch", "blind", "two"],
)
def test_moments_of_many_draws_are_those_of_each(library: str, options: dict[str, Any], torch: ModuleType) -> None:
    on = torch.as_tensor if library == "torch" else np.asarray
    views = draws_of(simulated(on=on), SCALES[::2] if library == "torch" else SCALES, on=on, **options)
    together = moments_batch(views, rng=np.random.default_rng(0))
    alone = [moments(view, rng=np.random.default_rng(0)) for view in views]
    for got, expected in zip(together, alone, strict=True):
        assert got.notes == expected.notes
        assert np.allclose(to_numpy(got.rows), to_numpy(expected.rows), atol=1e-6)
        assert np.allclose(to_numpy(got.row_error), to_numpy(expected.row_error), rtol=1e-6)
    spread = [
        float(np.abs(to_numpy(reconstruction.rows) - to_numpy(together[0].rows)).max())
        for reconstruction in together[1:]
    ]
    assert min(spread) > 1e-3  # each draw has its own evidence


def test_draws_without_noise_are_exact_in_a_batch_too() -> None:
    simulation = simulated()
    views = draws_of(simulation, (0.3, 0.0, 0.1))
    together = moments_batch(views, rng=np.random.default_rng(0))
    assert np.allclose(together[1].rows, simulation.private_data[1], atol=1e-9)
    (note,) = together[1].notes
    assert "anchor alone" in note
    for draw in (0, 2):
        assert np.allclose(together[draw].rows, moments(views[draw], rng=np.random.default_rng(0)).rows, atol=1e-6)


def test_without_an_anchor_every_view_has_the_same_answer() -> None:
    view = simulated("i-gdp").view()
    first, other = moments_batch([view, view], rng=np.random.default_rng(0))
    assert np.array_equal(first.rows, other.rows)
    assert np.allclose(first.rows, moments(view, rng=np.random.default_rng(0)).rows)


def test_views_of_different_rows_are_refused(refused: Callable) -> None:
    simulation = simulated()
    first, second, third = draws_of(simulation, (0.1, 0.2, 0.3))
    upload = replace(second.target_upload, representation=second.target_upload.representation + 1)
    fewer = replace(upload, representation=upload.representation[1:])
    without = replace(second.target_upload, anchor_representation=None)
    others: dict[str, CollusionView] = {
        **{
            name: replace(second, uploads=(second.uploads[0], upload_seen, *second.uploads[2:]))
            for name, upload_seen in (("rows", upload), ("fewer rows", fewer), ("no anchor", without))
        },
        "target": replace(second, target=2),
        "labels": replace(second, labels=(second.labels[0][::-1].copy(), *second.labels[1:])),
        "colluders": replace(second, colluders=simulation.view(colluders=(2,)).colluders),
        "noise": replace(second, data_noise_scale=0.1),
        "anchor": replace(second, anchor=None),
        "public rows": replace(second, public_rows=PublicRows(*[np.zeros((3, H))] * 2, np.arange(3))),
    }
    rng = np.random.default_rng(0)
    for other in others.values():
        refused(lambda v=other: moments_batch([first, third, v], rng=rng), "view 2", "", "")
    alone = replace(first, colluders=())
    beside = replace(alone, public_rows=others["public rows"].public_rows)
    for pair in ([alone, beside], [beside, alone]):
        refused(lambda pair=pair: moments_batch(pair, rng=rng), "view 1", "", "")
    refused(lambda: moments_batch([], rng=rng), "views", "one or more", "none")
    with pytest.raises(DoesNotApply):
        moments_batch([replace(first, colluders=()), replace(third, colluders=())], rng=rng)


# --------------------------------------------------------------------------------------------------- the power method


@pytest.mark.parametrize(("h", "noise"), [(4, 0.0), (12, 0.02), (12, 0.1), (12, 0.2), (12, 0.3)])
def test_the_power_method_goes_the_way_of_singular_value_decompositions(
    h: int, noise: float, make_study: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = make_batch(np.stack([make_study(10, h, 4 * h, noise=noise, seed=seed).uploads for seed in range(3)]))
    ours = power_method.solve_by_power_method(problem, max_iterations=150, tolerance=1e-7)
    monkeypatch.setattr(power_method, "polar_factor", svd_polar_factor)
    theirs = power_method.solve_by_power_method(problem, max_iterations=150, tolerance=1e-7)
    assert np.array_equal(ours.iterations, theirs.iterations)
    assert ours.terminations == theirs.terminations
    assert np.allclose(ours.step, theirs.step, rtol=1e-6, atol=1e-12)
    assert np.allclose(ours.maps, theirs.maps, atol=1e-9)


def test_problems_that_outlast_others_go_on_from_where_they_were(make_study: Callable) -> None:
    noises = [0.0, 0.15, 0.02, 0.1, 0.05]
    uploads = np.stack([make_study(6, 3, 12, noise=noise, seed=seed).uploads for seed, noise in enumerate(noises)])
    together = power_method.solve_by_power_method(make_batch(uploads), max_iterations=400, tolerance=1e-7)
    for index, upload in enumerate(uploads):
        alone = power_method.solve_by_power_method(make_batch(upload[None]), max_iterations=400, tolerance=1e-7)
        assert together.iterations[index] == alone.iterations[0]
        assert together.step[index] == pytest.approx(alone.step[0], rel=1e-6)
    assert len(set(together.iterations)) >= 4


def test_the_host_waits_once_an_iteration_whatever_the_number_of_problems(
    make_study: Callable, monkeypatch: pytest.MonkeyPatch, torch: ModuleType
) -> None:
    """Counted for the loop itself; the projection onto O(d) waits for its own convergence."""
    waits = []

    def projected(matrices: Any) -> Any:
        return torch.as_tensor(svd_polar_factor(np.asarray(matrices)))

    monkeypatch.setattr(power_method, "polar_factor", projected)
    monkeypatch.setattr(power_method, "to_numpy", lambda array: waits.append(1) or to_numpy(array))
    noises = [0.0, 0.05, 0.1, 0.15, 0.3]
    uploads = np.stack([make_study(6, 3, 12, noise=noise, seed=seed).uploads for seed, noise in enumerate(noises)])
    outcome = power_method.solve_by_power_method(
        make_batch(torch.as_tensor(uploads)), max_iterations=60, tolerance=1e-7
    )
    assert len(waits) == outcome.iterations.max()
    assert len(set(outcome.iterations)) > 2


@pytest.mark.parametrize("shape", [(2, 4, 20), (3, 4, 13), (3, 4, 12), (4, 4, 12)])
def test_the_spectral_start_is_that_of_the_gram_matrix_whichever_side_is_smaller(
    shape: tuple[int, int, int], make_study: Callable
) -> None:
    """By the paper's own words: top eigenvectors of G, every block projected, up to the common turn."""
    uploads = make_study(*shape, noise=0.15, seed=0).uploads
    p, d, _ = shape
    centred = np.concatenate([B - B.mean(axis=0) for B in uploads], axis=1)
    V = np.linalg.eigh(centred.T @ centred)[1][:, -d:]
    expected = svd_polar_factor(V.reshape(p, d, d))
    got = spectral_maps(make_batch(uploads[None]))[0]
    turns = got.transpose(0, 2, 1) @ expected
    assert np.allclose(turns, turns[0], atol=1e-10)
    assert align(uploads, solver="spectral").converged
    assert np.allclose(polar_factor(got), got, atol=1e-12)
