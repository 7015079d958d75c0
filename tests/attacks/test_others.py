"""Known rows, repeated uploads, principal axes, independent components, and denoising: what each claims."""

import re
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring import METHODS, RigidMap
from mooring.attacks import DoesNotApply, Effort, Reconstruction, known_rows, repeated_upload, run
from mooring.attacks.alignment_map import map_back_exactly
from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.denoising import denoise_by_gaussians
from mooring.attacks.independent_components import _directions
from mooring.attacks.inversion import _list_values
from mooring.attacks.view import CollusionView
from mooring.audit.rotation.simulation import RowSimulation, simulate
from mooring.geometry import sample_orthogonal
from mooring.mechanisms.rotation.kernel import Upload
from mooring.metrics import centred_error

H = 6
NOISELESS = [name for name, method in METHODS.items() if not method.data_noise]


def simulated(method: str, *, seed: int = 0, n_rows: int = 50, v: float = 0.3, sigma: float = 0.3) -> RowSimulation:
    rng = np.random.default_rng(seed)
    rows = [rng.gamma(2.0, 1.0, (n_rows, H)) * np.linspace(2, 0.5, H) for _ in range(3)]
    return simulate(
        rows,
        method=method,
        n_components=H,
        anchor_noise_scale=v if METHODS[method].anchor_noise else 0.0,
        data_noise_scale=sigma if METHODS[method].data_noise else 0.0,
        rng=rng,
    )


def attacked(name: str, view: CollusionView, **options: Any) -> Reconstruction:
    return run(name, view, rng=np.random.default_rng(0), **options)


def error(name: str, simulation: RowSimulation, **options: Any) -> float:
    return centred_error(simulation.private_data[1], attacked(name, simulation.view(**options)).rows)


def with_target(view: CollusionView, upload: Upload) -> CollusionView:
    return replace(view, uploads=(view.uploads[0], upload, *view.uploads[2:]))


def test_private_data_noise_blurs_known_rows_but_does_not_stop_them() -> None:
    simulation = simulated("aa-i-gdp-both-noise", sigma=0.1, n_rows=200)
    without, few, many = (
        error("procrustes", simulation),
        *(error("known-rows", simulation, n_known_rows=k) for k in (20, 150)),
    )
    assert many < few < without
    with pytest.raises(DoesNotApply):
        attacked("known-rows", simulation.view(colluders=(), n_known_rows=20))


# ----------------------------------------------------------------------------------------------------------- known rows


@pytest.mark.parametrize("n_known_rows", [H + 1, H + 5, 50])
@pytest.mark.parametrize("colluders", [(), (0,)])
@pytest.mark.parametrize("method", NOISELESS)
def test_one_row_more_than_components_gives_everything_away(
    method: str, colluders: tuple[int, ...], n_known_rows: int
) -> None:
    """Although nobody says where in the upload they stand, and no participant need collude."""
    simulation = simulated(method)
    view = simulation.view(colluders=colluders, n_known_rows=n_known_rows)
    rebuilt = attacked("known-rows", view)
    assert np.allclose(rebuilt.rows, simulation.private_data[1], atol=1e-9)
    assert rebuilt.notes == (f"{n_known_rows} known rows determine {H} of {H} directions",)
    shuffled = np.random.default_rng(1).permutation(50)
    upload = replace(view.target_upload, representation=view.target_upload.representation[shuffled])
    again = attacked("known-rows", with_target(view, upload))
    assert np.allclose(again.rows, simulation.private_data[1][shuffled], atol=1e-9)


def test_no_other_attack_is_run_where_known_rows_suffice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_rows, "_base", lambda view, rng: pytest.fail("another attack was run"))
    simulation = simulated("aa-i-gdp-anchor-noise")
    attacked("known-rows", simulation.view(n_known_rows=H + 1))


@pytest.mark.parametrize("k", range(3, H + 1))
def test_fewer_known_rows_tie_down_one_direction_less_than_they_are(k: int) -> None:
    """In their own span the map is exact; outside it, it is what the next best attack says."""
    simulation = simulated("aa-i-gdp-anchor-noise")
    view = simulation.view(n_known_rows=k)
    rebuilt = attacked("known-rows", view)
    assert rebuilt.notes == (f"{k} known rows determine {k - 1} of {H} directions",)
    centred = view.known_rows - view.known_rows.mean(axis=0)
    assert np.allclose(centred @ rebuilt.rigid_map.orthogonal, centred @ simulation.secrets[1].orthogonal, atol=1e-5)
    with pytest.raises(DoesNotApply) as refusal:
        attacked("known-rows", simulation.view(colluders=(), n_known_rows=k))
    assert {str(k), str(H + 1)} <= set(re.findall(r"\d+", refusal.value.reason))


def test_more_known_rows_help_even_before_they_suffice() -> None:
    errors = [
        np.mean(
            [error("known-rows", simulated("aa-i-gdp-anchor-noise", seed=seed), n_known_rows=k) for seed in range(3)]
        )
        for k in (3, 5, 6)
    ]
    assert errors[0] > 1.5 * errors[1] > 3 * errors[2]


def test_known_rows_that_repeat_do_not_stop_the_attack() -> None:
    rng = np.random.default_rng(2)
    rows = [np.repeat(rng.standard_normal((20, H)), 2, axis=0) for _ in range(2)]
    simulation = simulate(rows, method="i-gdp", n_components=H, rng=rng)
    view = replace(simulation.view(colluders=()), known_rows=rows[1][:20])
    assert np.allclose(attacked("known-rows", view).rows, rows[1], atol=1e-9)


# ----------------------------------------------------------------------------------------------------- repeated uploads


def by_the_anchor_alone(simulation: RowSimulation, n_repeated_uploads: int) -> float:
    """The error where the colluder has but one row, so that moments have nothing to say."""
    view = simulation.view(n_repeated_uploads=n_repeated_uploads)
    colluder = view.colluders[0]
    view = replace(view, colluders=(replace(colluder, rows=colluder.rows[:1], records=colluder.records[:1]),))
    name = "repeated-upload" if n_repeated_uploads else "procrustes"
    return centred_error(simulation.private_data[1], attacked(name, view).rows)


def test_repeated_uploads_average_anchor_noise_away() -> None:
    """Under a fresh map each time; as 1/√k: 4 uploads halve the error, 16 quarter it."""
    simulations = [simulated("aa-i-gdp-anchor-noise", seed=seed, v=0.1) for seed in range(16)]
    once, *more = (np.mean([by_the_anchor_alone(s, k - 1) for s in simulations]) for k in (1, 4, 16))
    assert np.allclose(np.array(more) / once, [1 / 2, 1 / 4], rtol=0.2)


@pytest.mark.parametrize("method", ["aa-i-gdp-data-noise", "c-gdp-data-noise"])
def test_repeated_uploads_average_private_data_noise_away(method: str) -> None:
    name = "known-secret" if method == "c-gdp-data-noise" else "known-anchor"
    simulations = [simulated(method, seed=seed, n_rows=300, sigma=0.1) for seed in range(3)]
    once = np.mean([error(name, s) for s in simulations])
    if method == "c-gdp-data-noise":  # moments adds an error of its own: compare the merged uploads, mapped back
        again = [
            centred_error(
                s.private_data[1], s.secrets[1].invert(merged_upload(s.view(n_repeated_uploads=15)).representation)
            )
            for s in simulations
        ]
    else:
        again = [error("repeated-upload", s, n_repeated_uploads=15) for s in simulations]
    assert np.mean(again) / once == pytest.approx(1 / 4, rel=0.15)


def merged_upload(view: CollusionView) -> Upload:
    """The upload that a repeated-upload attack works on: the estimated map, applied to the rows it gave."""
    rebuilt = attacked("repeated-upload", view)
    return Upload(rebuilt.rigid_map.apply(rebuilt.rows), None)


def test_rows_that_come_in_the_same_order_are_averaged_in_it_however_large_the_noise() -> None:
    """Under noise of twice their spread, partners by distance would be others."""
    simulation = simulated("aa-i-gdp-data-noise", sigma=4.0)
    view = simulation.view(n_repeated_uploads=1)
    first = attacked("known-anchor", view).rows
    merged = attacked("repeated-upload", view).rows
    assert np.std(merged - first) == pytest.approx(4.0 / 2**0.5, rel=0.1)  # half of two independent noises
    assert np.std(merged - simulation.private_data[1]) == pytest.approx(4.0 / 2**0.5, rel=0.1)


def test_what_noise_is_left_is_said() -> None:
    rebuilt = attacked("repeated-upload", simulated("aa-i-gdp-data-noise").view(n_repeated_uploads=3))
    assert rebuilt.data_noise_scale == pytest.approx(0.15)
    assert rebuilt.notes[-1] == "4 uploads averaged"


@pytest.mark.parametrize("method", NOISELESS)
def test_repeated_uploads_are_merged_in_whatever_order_their_rows_come(method: str) -> None:
    view = simulated(method).view(n_repeated_uploads=3)
    rng = np.random.default_rng(3)
    shuffled = tuple(
        replace(upload, representation=upload.representation[rng.permutation(50)]) for upload in view.repeated_uploads
    )
    expected = attacked("repeated-upload", view)
    got = attacked("repeated-upload", replace(view, repeated_uploads=shuffled))
    assert np.allclose(got.rows, expected.rows, atol=1e-8)


def shuffle_repeated(view: CollusionView, rng: np.random.Generator) -> CollusionView:
    again = tuple(
        replace(upload, representation=rng.permutation(upload.representation)) for upload in view.repeated_uploads
    )
    return replace(view, repeated_uploads=again)


@pytest.mark.parametrize(("sigma", "most"), [(0.0, 1e-6), (0.05, 0.7)])
def test_rows_of_whole_numbers_that_are_equally_far_from_the_mean_find_their_partners(
    sigma: float, most: float
) -> None:
    """6 draws of 30 rows of ±1, whose distances from the mean are tied: all of one value, or a few."""
    method = "aa-i-gdp-both-noise" if sigma else "aa-i-gdp-anchor-noise"
    for seed in range(6):
        rng = np.random.default_rng(seed)
        rows = [rng.choice([-1.0, 1.0], size=(30, 6)) for _ in range(3)]
        simulation = simulate(rows, method=method, anchor_noise_scale=0.05, data_noise_scale=sigma, rng=rng)
        merged = merged_upload(shuffle_repeated(simulation.view(n_repeated_uploads=3), rng)).representation
        exact = simulation.secrets[1].apply(rows[1])
        once = np.linalg.norm(simulation.uploads[1].representation - exact) if sigma else 1.0
        assert np.linalg.norm(merged - exact) < most * once


@pytest.mark.parametrize("n_rows", [1, 2, 8])
@pytest.mark.parametrize("sigma", [0.0, 0.1])
def test_more_uploads_of_few_rows_are_never_weaker_than_one(n_rows: int, sigma: float) -> None:
    """Means over 12 draws, of one attack on both; with one row it is the anchors that tell how the uploads lie."""
    method = "aa-i-gdp-both-noise" if sigma else "aa-i-gdp-anchor-noise"
    once, twice = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = [rng.standard_normal((n_rows, 6)) for _ in range(3)]
        simulation = simulate(rows, method=method, anchor_noise_scale=0.05, data_noise_scale=sigma, rng=rng)
        view = shuffle_repeated(simulation.view(colluders=(0,), n_repeated_uploads=3), rng)
        one_row = replace(view.colluders[0], rows=view.colluders[0].rows[:1], records=view.colluders[0].records[:1])
        view = replace(view, colluders=(one_row,))
        for name, rebuilt in (("procrustes", once), ("repeated-upload", twice)):
            rebuilt.append(np.linalg.norm(attacked(name, view).rows - rows[1]))
    assert np.mean(twice) < np.mean(once)


# ------------------------------------------------------------------------- principal axes and independent components


def skewed(n_rows: int, scales: list[float], *, seed: int) -> RowSimulation:
    rng = np.random.default_rng(seed)
    rows = [(rng.gamma(1.0, 1.0, (n_rows, len(scales))) - 1) * scales for _ in range(2)]
    return simulate(rows, method="i-gdp", n_components=len(scales), rng=rng)


@pytest.mark.parametrize("colluders", [(), (0,)])
def test_principal_axes_find_the_map_in_the_limit(colluders: tuple[int, ...]) -> None:
    """Well separated variances and skewed columns, paired with a colluder's axes or with the columns themselves."""
    few, many = (
        np.mean(
            [error("principal-axes", skewed(n, [4, 2, 1, 0.5], seed=seed), colluders=colluders) for seed in range(4)]
        )
        for n in (400, 40_000)
    )
    assert many < 0.015
    assert many == pytest.approx(few / 10, rel=0.5)


@pytest.mark.parametrize("colluders", [(), (0,)])
def test_independent_components_find_independent_skewed_columns(colluders: tuple[int, ...]) -> None:
    errors = [
        error("independent-components", skewed(2000, [2.0, 1.5, 1.0, 0.7], seed=seed), colluders=colluders)
        for seed in range(6)
    ]
    assert max(errors) < 0.2


def test_independent_components_find_columns_of_very_different_variance() -> None:
    errors = [error("independent-components", skewed(2000, [4.0, 2.0, 1.0, 0.5], seed=seed)) for seed in range(6)]
    assert max(errors) < 0.15


def test_independent_components_need_rows_and_variation() -> None:
    with pytest.raises(DoesNotApply) as refusal:
        attacked("independent-components", simulated("i-gdp", n_rows=H + 1).view())
    assert {str(H + 1), str(H)} <= set(re.findall(r"\d+", refusal.value.reason))
    rng = np.random.default_rng(4)
    rows = [rng.standard_normal((50, 4)) * [1, 1, 1, 0] for _ in range(2)]
    for unit in (1e-5, 1.0, 1e5):
        flat = simulate([unit * part for part in rows], method="i-gdp", n_components=4, rng=rng)
        with pytest.raises(DoesNotApply):
            attacked("independent-components", flat.view())


def test_independent_components_do_not_depend_on_the_unit_and_have_a_limit() -> None:
    for unit in (1e-5, 1e5):
        assert error("independent-components", skewed(2000, [unit * scale for scale in (2.0, 1.5, 1.0)], seed=0)) < 0.2
    attacked("independent-components", simulated("i-gdp", n_rows=H + 2).view())  # as few rows as may be
    rng = np.random.default_rng(5)
    wide = simulate([rng.standard_normal((203, 201)) for _ in range(2)], method="i-gdp", n_components=201, rng=rng)
    with pytest.raises(DoesNotApply) as refusal:
        attacked("independent-components", wide.view())
    assert {"200", "201"} <= set(re.findall(r"\d+", refusal.value.reason))


@pytest.mark.parametrize(("share", "applies"), [(0.9, False), (1.2, True)])
def test_independent_components_need_a_variance_in_every_direction(
    share: float, applies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The least must be 1e-12 of the largest."""
    fitted = SimpleNamespace(mixing_=np.eye(2), fit=lambda rows: None)
    monkeypatch.setattr("sklearn.decomposition.FastICA", lambda **_: fitted)
    rows = np.array([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]]) * [1.0, np.sqrt(share) * 1e-6]
    with nullcontext() if applies else pytest.raises(DoesNotApply):
        _directions(rows, np.random.default_rng(0), Effort())


# ------------------------------------------------------------------------------- exact maps, and the values of a column


@pytest.mark.parametrize(
    ("method", "unlabelled", "mapped_back"),
    [
        ("aa-i-gdp-data-noise", (), [1, 2]),
        ("aa-i-gdp-data-noise", (2,), [1]),
        ("aa-i-gdp-data-noise", (1, 2), [1, 2]),  # the target has none, either
        ("c-gdp-data-noise", (2,), [1]),
        ("aa-i-gdp-both-noise", (), []),
    ],
)
def test_rows_are_mapped_back_where_maps_are_exact(
    method: str, unlabelled: tuple[int, ...], mapped_back: list[int]
) -> None:
    simulation = simulated(method)
    labels = [None if i in unlabelled else np.arange(50) % 2 for i in range(3)]
    back = map_back_exactly(replace(simulation.view(), labels=tuple(labels)))
    assert list(back) == mapped_back
    for i, rows in back.items():
        assert np.std(rows - simulation.private_data[i]) == pytest.approx(0.3, rel=0.15)  # the noise stays on them
    assert map_back_exactly(simulation.view(colluders=())) == {}


def test_values_of_a_column_are_listed_or_cut_into_fifths() -> None:
    """Up to eight values as they are, and categories; of more, the medians of fifths, with those of each flag apart."""
    categories = np.vstack([np.eye(9)[[0] * 20 + list(range(9))], np.zeros((1, 9))])  # the last is missing
    for cells in (np.arange(16)[:, None] % 8, categories):
        values, truth = _list_values(cells.astype(float))
        np.testing.assert_array_equal(values[truth], cells)
    values, truth = _list_values(np.arange(10.0)[:, None])
    np.testing.assert_array_equal(values[:, 0], [0.5, 2.5, 4.5, 6.5, 8.5])
    np.testing.assert_array_equal(truth, np.arange(10) // 2)
    values, truth = _list_values(np.array([[k, k < 3] for k in np.r_[0, 0, 0, 5:15]], dtype=float))
    np.testing.assert_array_equal(values, [[5.5, 0], [7.5, 0], [9.5, 0], [11.5, 0], [13.5, 0], [0, 1]])
    np.testing.assert_array_equal(truth, [5, 5, 5, *(np.arange(10) // 2)])


# ------------------------------------------------------------------------------------------------------------ denoising


def gaussian(sigma: float, *, n_known: int = 20_000) -> tuple[RowSimulation, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    mixing = sample_orthogonal(3, rng=rng) * [2.0, 1.0, 0.4]
    mean = np.array([3.0, -1.0, 0.5])
    rows = [mean + rng.standard_normal((n, 3)) @ mixing.T for n in (n_known, 4000)]
    simulation = simulate(rows, method="c-gdp-data-noise", n_components=3, data_noise_scale=sigma, rng=rng)
    return simulation, mean, mixing @ mixing.T


@pytest.mark.parametrize("sigma", [0.2, 1.0, 3.0])
def test_denoising_is_the_wiener_filter_of_a_gaussian_population(sigma: float) -> None:
    simulation, mean, covariance = gaussian(sigma)
    noisy, rebuilt = (
        attacked("known-secret", simulation.view(), denoiser=denoiser).rows for denoiser in (None, "gaussian")
    )
    gain = np.linalg.solve(covariance + sigma**2 * np.eye(3), covariance)
    expected = mean + (noisy - mean) @ gain
    assert np.sqrt(np.mean((rebuilt - expected) ** 2)) < 0.03 * np.sqrt(np.mean((noisy - mean) ** 2))
    truth = simulation.private_data[1]
    left = np.trace(covariance @ np.linalg.inv(covariance + sigma**2 * np.eye(3))) * sigma**2
    assert np.mean(np.sum((rebuilt - truth) ** 2, axis=1)) == pytest.approx(left, rel=0.06)
    assert left < 3 * sigma**2


@pytest.mark.parametrize("sigma", [0.5, 1.0, 3.0])
def test_a_population_learnt_from_noisy_rows_is_a_prior_without_their_noise(sigma: float) -> None:
    simulation, mean, covariance = gaussian(sigma)
    noisy = attacked("known-secret", simulation.view())
    population = ClassMoments.of(noisy.rows, np.zeros(4000, dtype=np.int64), 1)
    rebuilt = denoise_by_gaussians(
        replace(noisy, population=population), simulation.view(), rng=np.random.default_rng(0)
    ).rows
    expected = mean + (noisy.rows - mean) @ np.linalg.solve(covariance + sigma**2 * np.eye(3), covariance)
    assert np.sqrt(np.mean((rebuilt - expected) ** 2)) < 0.05 * np.sqrt(np.mean((noisy.rows - mean) ** 2))


def plain_and_denoised(attack: str, simulation: RowSimulation) -> list[float]:
    rebuilt = (attacked(attack, simulation.view(), denoiser=denoiser).rows for denoiser in (None, "gaussian"))
    return [centred_error(simulation.private_data[1], rows) for rows in rebuilt]


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.data_noise])
def test_denoising_brings_rows_closer(method: str) -> None:
    attack = "known-secret" if method == "c-gdp-data-noise" else "procrustes"
    for seed in range(3):
        plain, better = plain_and_denoised(attack, simulated(method, seed=seed, sigma=1.0, v=0.05))
        assert better < 0.9 * plain


def test_denoising_takes_out_what_a_wrong_map_adds() -> None:
    for seed in range(5):
        plain, better = plain_and_denoised("procrustes", simulated("aa-i-gdp-anchor-noise", seed=seed, v=0.3))
        assert better < plain


def test_repeated_uploads_are_denoised_by_what_noise_is_left() -> None:
    """15 more uploads leave a quarter of the noise: less to take out, and rows that move less."""
    simulation = simulated("aa-i-gdp-data-noise", sigma=1.0)
    moves = []
    for name, more in (("procrustes", 0), ("repeated-upload", 15)):
        view = simulation.view(n_repeated_uploads=more)
        plain, better = (attacked(name, view, denoiser=denoiser).rows for denoiser in (None, "gaussian"))
        moves.append(np.linalg.norm(better - plain))
        truth = simulation.private_data[1]
        assert centred_error(truth, better) < centred_error(truth, plain)
    assert moves[1] < 0.3 * moves[0]


@pytest.mark.parametrize(
    ("method", "attack"),
    [("c-gdp", "known-secret"), ("aa-i-gdp", "known-anchor"), ("aa-i-gdp", "procrustes"), ("aa-i-gdp", "moments")],
)
def test_there_is_nothing_to_take_out_of_exact_rows_or_without_a_population(method: str, attack: str) -> None:
    with pytest.raises(DoesNotApply):
        attacked(attack, simulated(method).view(), denoiser="gaussian")
    with pytest.raises(DoesNotApply):
        attacked("principal-axes", simulated("c-gdp-data-noise").view(colluders=()), denoiser="gaussian")


def test_denoising_changes_rows_and_notes_only() -> None:
    view = simulated("aa-i-gdp-both-noise").view()
    plain = attacked("moments", view)
    better = denoise_by_gaussians(plain, view, rng=np.random.default_rng(0))
    assert better.rigid_map is plain.rigid_map
    assert better.row_error is plain.row_error
    assert better.notes == (*plain.notes, "denoised")


@pytest.mark.parametrize(("n_known", "fine"), [(1, False), (2, True)])
def test_a_population_is_learnt_from_two_rows_at_least(n_known: int, fine: bool) -> None:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((n, H)) for n in (n_known, 20, 20)]
    view = simulate(rows, method="aa-i-gdp-data-noise", data_noise_scale=0.3, rng=rng).view()
    if fine:
        assert np.isfinite(attacked("procrustes", view, denoiser="gaussian").rows).all()
    else:
        with pytest.raises(DoesNotApply):
            attacked("procrustes", view, denoiser="gaussian")


@pytest.mark.parametrize(
    ("attack", "method", "options", "words"),
    [
        ("alignment-map", "i-gdp", {}, "alignment maps"),
        ("alignment-map", "aa-i-gdp", {"colluders": ()}, "Without a colluder"),
        ("known-anchor", "aa-i-gdp-anchor-noise", {}, "carries noise"),
        ("known-secret", "i-gdp", {}, "its own map"),
        ("known-secret", "c-gdp", {"colluders": ()}, "none colludes"),
        ("procrustes", "i-gdp", {}, "no anchor representation"),
        ("procrustes", "aa-i-gdp", {"colluders": ()}, "none colludes"),
        ("moments", "aa-i-gdp", {"colluders": ()}, "Without rows of a colluder"),
        ("joint-moments", "aa-i-gdp-anchor-noise", {"colluders": ()}, "Without a colluder"),
        ("joint-moments", "i-gdp", {}, "no anchor"),
        ("joint-moments", "aa-i-gdp-anchor-noise", {"colluders": (0, 2)}, "no participant other than"),
        ("known-rows", "i-gdp", {}, "none of the target's rows"),
        ("repeated-upload", "i-gdp", {}, "once"),
    ],
)
def test_an_attack_that_does_not_apply_gives_its_own_reason(
    attack: str, method: str, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(DoesNotApply) as refusal:
        attacked(attack, simulated(method).view(**options))
    assert words in refusal.value.reason


def test_one_row_has_no_covariance() -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((n, 2)) for n in (1, 9, 2)]
    with pytest.raises(DoesNotApply) as refusal:
        attacked("principal-axes", simulate(parts, method="i-gdp", rng=rng).view(colluders=(1,), target=0))
    assert "two rows" in refusal.value.reason
    simulation = simulate(parts, method="i-gdp", rng=rng)
    alone, reconstruction, two = (
        attacked("principal-axes", simulation.view(colluders=who)) for who in ((), (0,), (2,))
    )
    assert np.allclose(alone.rows, reconstruction.rows)
    assert not np.allclose(alone.rows, two.rows, atol=0.1)


# -------------------------------------------------------------------------------- limits of searches for rows and orders


@pytest.mark.parametrize(("share", "rank"), [(1.1, 3), (0.9, 2)])
def test_directions_are_tied_down_whose_singular_value_is_above_the_precision(share: float, rank: int) -> None:
    """The precision is relative to the largest singular value; in other directions nothing is said of the map."""
    rng = np.random.default_rng(0)
    U = np.linalg.qr(rng.standard_normal((5, 3)))[0]
    O = sample_orthogonal(3, rng=rng)
    X = U * [4.0, 1.0, share * 4.0 * 0.01]
    tied, n_tied = known_rows._tied_down(X, X @ O, precision=0.01)
    assert n_tied == rank
    np.testing.assert_allclose(tied, np.diag(np.arange(3) < rank) @ O, atol=1e-12)


def test_two_hundred_places_of_the_first_known_rows_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(known_rows, "_pairs_apart", lambda *_: [(k, k + 1) for k in range(500)])
    monkeypatch.setattr(known_rows, "_placed", lambda X, Y, i, j, *_: tried.append((i, j)))
    assert known_rows._by_distances(np.eye(3), np.eye(3)) is None
    assert tried == [(k, k + 1) for k in range(200)]


@pytest.mark.parametrize("n_anchor", [0, 5])
@pytest.mark.parametrize(("share", "is_kept"), [(0.99, True), (1.01, False)])
def test_the_order_of_a_repeated_upload_is_kept_if_what_is_left_is_within_four_deviations_of_noise(
    share: float, is_kept: bool, n_anchor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two uploads differ by twice the variance of the noise, and a sum of n squares of it has the deviation 2 √(2 n)."""
    asked = []
    monkeypatch.setattr(repeated_upload, "_rigid_fit", lambda parts: RigidMap(np.eye(3), np.zeros(3)))
    monkeypatch.setattr(repeated_upload, "_partners", lambda *_, **__: np.arange(10))
    monkeypatch.setattr(repeated_upload, "_order_like", lambda *_: asked.append(1) or np.arange(10))
    n, sigma = (10 + n_anchor) * 3, 0.3
    off = sigma * np.sqrt(share * (2 * n + 4 * 2 * np.sqrt(2 * n)) / 30)
    anchor = np.ones((n_anchor, 3)) if n_anchor else None
    view: Any = SimpleNamespace(data_noise_scale=sigma, anchor_noise_scale=0.1, effort=Effort())
    repeated_upload._match(Upload(np.full((10, 3), off), anchor), Upload(np.zeros((10, 3)), anchor), view)
    assert asked == [1] * (not is_kept)


@pytest.mark.parametrize(("share", "n_rounds"), [(0.5, 20), (1 - 1.2e-9, 20), (1 - 0.9e-9, 1)])
def test_an_order_is_improved_in_twenty_rounds_at_most_while_it_gets_better(share: float, n_rounds: int) -> None:
    orders = []

    def fit(order: Any) -> Any:
        orders.append(order)
        return None, order, share ** len(orders)

    best = repeated_upload._improved(fit, lambda estimate: np.arange(2), (None, np.arange(2), 1.0))  # type: ignore[arg-type]
    assert len(orders) == n_rounds
    assert best[2] == pytest.approx(share**n_rounds if n_rounds > 1 else 1.0)
