"""Denoisers beyond the Gaussian: what each claims. All of them are under the contract of attacks, too."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import load_digits

from mooring.attacks import ATTACKS, DENOISERS, CollusionView, DoesNotApply, Effort, PublicRows, run
from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.denoising import grid, kernel, latent_classes
from mooring.attacks.denoising.atoms import AtomGroup, make_atoms
from mooring.attacks.denoising.gaussian import (
    Population,
    class_priors,
    fit_population,
    fit_to_noisy_rows,
    split_error,
)
from mooring.attacks.denoising.latent_classes import LatentClasses
from mooring.attacks.denoising.mixtures import (
    Atoms,
    Neighbourhoods,
    find_local_shapes,
    find_neighbourhoods,
    mix_atoms,
    mix_neighbourhoods,
)
from mooring.audit import LeakageEvaluator, SimulationSettings
from mooring.audit.rotation import attempts
from mooring.audit.rotation.simulation import RowSimulation, simulate
from mooring.mechanisms.rotation.projection import gaussian_projection, no_projection
from mooring.metrics import centred_error
from mooring.metrics.likelihood import Densities
from mooring.tables import Column, Schema, encode_table
from tests.auditing import class_rows
from tests.raising import numbers_in


def test_a_mixtures_gradient_and_laplacian_are_those_of_its_density() -> None:
    rng = np.random.default_rng(0)
    owners, spread = np.arange(8) % 2, np.diag([0.5, 1.0, 2.0])
    atoms, rows, step = Atoms(2 * rng.standard_normal((8, 3)), owners), rng.standard_normal((6, 3)), 1e-4

    def log_value(at: np.ndarray, owners: np.ndarray | None = None) -> np.ndarray:
        return mix_atoms(at, atoms, spread, owners).plus(mix_atoms(at, atoms, 0 * spread, owners)).log_value

    density = mix_atoms(rows, atoms, spread, None).plus(mix_atoms(rows, atoms, 0 * spread, None))
    moved = np.stack([[log_value(rows + sign * step * axis) for sign in (1, -1)] for axis in np.eye(3)])
    np.testing.assert_allclose(density.gradient, (moved[:, 0] - moved[:, 1]).T / (2 * step), atol=1e-6)
    second = (moved[:, 0] + moved[:, 1] - 2 * density.log_value).sum(axis=0) / step**2
    np.testing.assert_allclose(density.laplacian, second + (density.gradient**2).sum(axis=1), atol=1e-5)
    halves = [mix_atoms(rows, Atoms(atoms.rows[owners == k], owners[owners == k]), spread, None) for k in (0, 1)]
    hidden = mix_atoms(rows, atoms, spread, np.zeros(6, dtype=int))
    np.testing.assert_allclose(hidden.gradient, halves[1].gradient)  # an owner's rows are not compared with its own
    np.testing.assert_allclose(mix_atoms(rows, atoms, spread, None).log_value, halves[0].plus(halves[1]).log_value)
    in_blocks = mix_atoms(rows, atoms, spread, np.zeros(6, dtype=int), block_numbers=20)
    for part, expected in zip(vars(in_blocks).values(), vars(hidden).values(), strict=True):
        np.testing.assert_allclose(part, expected)


def test_stein_estimates_the_risk() -> None:
    rng = np.random.default_rng(1)
    atoms = Atoms(3 * rng.standard_normal((20, 4)), np.zeros(20, dtype=int))
    truth = atoms.rows[rng.integers(0, 20, 4000)]
    rows = truth + rng.standard_normal(truth.shape)
    for width in (0.0, 0.3, 2.0):
        density = mix_atoms(rows, atoms, width * np.eye(4), None)
        assert density.risk() == pytest.approx(((rows + density.gradient - truth) ** 2).sum(), abs=0.03 * rows.size)


def test_noisy_rows_count_as_much_as_they_tell() -> None:
    """Few rows under much noise: by maximum likelihood they improve the covariance that known rows give."""
    rng = np.random.default_rng(2)
    spread, sigma, h = np.diag(np.linspace(2.0, 0.05, 12)), 1.0, 12
    gaps = np.zeros((2, 3))
    for _ in range(8):
        known, clean = (rng.standard_normal((n, h)) @ np.sqrt(spread) for n in (20, 150))
        noisy = clean + sigma * rng.standard_normal(clean.shape)
        moments_of_classes, theirs = (ClassMoments.of(rows, np.arange(len(rows)) % 2, 3) for rows in (known, noisy))
        fits = [
            fit_to_noisy_rows(moments_of_classes, theirs, sigma**2),
            class_priors(moments_of_classes, 0.0),
            class_priors(moments_of_classes.with_noise(sigma**2).merged(theirs), sigma**2),
        ]
        for fit in fits:  # a class without rows
            np.testing.assert_allclose(fit.means[2], fit.means[:2].mean(axis=0), atol=0.3)
            assert fit.counts[2] == 1
        gaps += [[np.linalg.norm(fitted.covariances[k] - spread) for fitted in fits] for k in (0, 1)]
    assert (gaps[:, 0] < 0.9 * gaps[:, 1:].min(axis=1)).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_shift_is_the_expected_difference_of_class_means(library: str) -> None:
    """The oracle is a Gaussian model of the population's means and of the mean of rows that share the error of one map."""
    rng = np.random.default_rng(3)
    xp = np if library == "numpy" else pytest.importorskip("torch")
    moved = (lambda part: part) if library == "numpy" else xp.as_tensor
    spread, noise, wrong = np.diag([2.0, 0.5, 1.0]), 0.3 * np.eye(3), np.diag([0.0, 0.2, 0.1])
    counts, codes = np.array([4.0, 9.0, 1.0]), np.repeat([0, 1], [50, 7])
    population = Population(moved(np.zeros((3, 3))), moved(np.stack([spread] * 3)), counts)
    for size in (0.0, 5.0):  # alike, and too far off for luck
        rows = rng.standard_normal((57, 3)) + size * np.where(codes, 1, -1)[:, None]
        shift = population.estimate_shift(moved(rows), codes, noise=moved(noise), map_error=moved(wrong))
        beyond, scale, expected = -6 - 2 * np.sqrt(12), 0.0, {}
        for k in (0, 1):
            error = (spread + noise) / (codes == k).sum() + wrong + spread / counts[k]
            gap = rows[codes == k].mean(axis=0)
            beyond += gap @ np.linalg.inv(error) @ gap
            scale += np.trace(np.linalg.inv(error) @ spread)
        assert (beyond > 0) == (size > 0)
        for k in (0, 1):
            between = (beyond / scale + 1 / counts[k]) * spread if size else 0 * spread
            error = (spread + noise) / (codes == k).sum() + wrong
            expected[k] = between @ np.linalg.inv(between + error) @ rows[codes == k].mean(axis=0)
        np.testing.assert_allclose(np.asarray(shift), [expected[k] for k in codes], atol=1e-9)


def test_rows_with_noise_count_for_less() -> None:
    """As rows without noise whose mean is as uncertain: a variance of 2 under a noise of 2 has half as many."""
    rng = np.random.default_rng(3)
    rows, codes = rng.standard_normal((4000, 2)) * 2**0.5, np.arange(4000) % 2
    noisy = ClassMoments.of(rows + rng.standard_normal(rows.shape) * 2**0.5, codes, 3)
    known = ClassMoments.of(rows[:200], codes[:200], 3)
    assert class_priors(noisy, 2.0).counts == pytest.approx([1000, 1000, 1], rel=0.05)
    assert fit_to_noisy_rows(known, noisy, 2.0).counts == pytest.approx([1100, 1100, 1], rel=0.05)


@pytest.mark.parametrize("denoiser", ["gaussian", "kernel"])
@pytest.mark.parametrize(("gap", "most", "least"), [(3.0, 0.85, 0.0), (0.0, 1.005, 0.97)])
def test_a_target_unlike_the_others_is_denoised_about_its_own_means(
    denoiser: str, gap: float, most: float, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one that is like them no worse than before."""
    errors = np.zeros(2)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        labels = [np.arange(80) % 2 for _ in range(4)]
        rows = [rng.standard_normal((80, 6)) * np.linspace(2, 0.3, 6) + 2 * label[:, None] for label in labels]
        rows[1] = rows[1] + gap * np.sign(rng.standard_normal(6))
        options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 1.5}
        view = simulate(rows, labels, rng=rng, settings=SimulationSettings(no_projection(6)), **options).view()
        for place in (0, 1):
            with monkeypatch.context() as without:
                if place:
                    without.setattr(Population, "estimate_shift", lambda self, rows, codes, **errors: 0 * rows)
                rebuilt = run("known-anchor", view, rng=rng, denoiser=denoiser).rows
            errors[place] += centred_error(rows[1], rebuilt)
    assert least * errors[1] < errors[0] < most * errors[1]


def test_kernels_without_atoms_are_the_gaussian_of_the_class_about_its_own_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, labels = class_rows(2, 60, 4)
    rows[1] = rows[1] + 6.0
    view = simulate(
        rows, labels, method="aa-i-gdp-data-noise", data_noise_scale=0.7, rng=np.random.default_rng(0)
    ).view()
    view = replace(view, effort=Effort(known_shares=(0.0,), other_shares=(0.0,)))
    plain = run("known-anchor", view, rng=np.random.default_rng(0))
    plain = replace(plain, row_error=np.diag([0.0, 0.5, 1.0, 2.0]))
    rebuilt, usual = (
        DENOISERS[name](plain, view, rng=np.random.default_rng(0)).rows for name in ("kernel", "gaussian")
    )
    np.testing.assert_allclose(rebuilt, usual, atol=1e-9)
    monkeypatch.setattr(Population, "estimate_shift", lambda self, rows, codes, **errors: 0 * rows)
    assert not np.allclose(rebuilt, DENOISERS["gaussian"](plain, view, rng=np.random.default_rng(0)).rows, atol=0.1)


def test_rows_carry_an_error_unless_both_noise_and_map_are_known_to_have_none() -> None:
    rows = np.ones((3, 2))
    for noise_scale, map_error, has_error in (
        (0.5, 0.25, True),
        (0.0, 0.25, True),
        (0.5, 0.0, True),
        (0.0, 0.0, False),
    ):
        rebuilt: Any = SimpleNamespace(rows=rows, data_noise_scale=None, row_error=map_error * np.eye(2))
        view: Any = SimpleNamespace(data_noise_scale=noise_scale)
        with nullcontext() if has_error else pytest.raises(DoesNotApply):
            parts = split_error(rebuilt, view)
            assert [part.tolist() for part in parts] == [[[x, 0], [0, x]] for x in (noise_scale**2, map_error)]


def test_kernels_stay_where_they_are_for_a_target_with_other_shares_of_the_same_kinds() -> None:
    """Its mean is another, and no row is elsewhere: moving all atoms would lose what they tell."""
    errors = np.zeros(2)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        centres = 1.5 * rng.standard_normal((4, 6))
        shares = [np.full(4, 0.25), [0.7, 0.1, 0.1, 0.1]]
        rows = [centres[rng.choice(4, 80, p=share)] + 0.15 * rng.standard_normal((80, 6)) for share in shares]
        public, labels = centres[np.arange(400) % 4] + 0.15 * rng.standard_normal((400, 6)), np.zeros(400, dtype=int)
        known = PublicRows(public, public, labels)
        options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 1.0}
        settings = SimulationSettings(no_projection(6), public_rows=known)
        view = simulate(rows, [labels[:80]] * 2, rng=rng, settings=settings, **options).view()
        for place, name in enumerate(("kernel", "gaussian")):
            errors[place] += centred_error(rows[1], run("known-anchor", view, rng=rng, denoiser=name).rows)
    assert errors[0] < 0.8 * errors[1]


def rings(*, public: bool, gaussian: bool = False, sigma: float = 0.5) -> RowSimulation:
    """Rows of two classes on rings about different centres, or of Gaussians."""
    rng = np.random.default_rng(3)

    def drawn(n: int) -> tuple[np.ndarray, np.ndarray]:
        labels, angles = np.arange(n) % 2, rng.uniform(0, 2 * np.pi, n)
        ring = np.stack([np.cos(angles), np.sin(angles), np.cos(2 * angles), np.sin(3 * angles)], axis=1)
        return (rng.standard_normal((n, 4)) if gaussian else 1.5 * ring) + 4 * labels[:, None], labels

    parts = [drawn(60) for _ in range(4)]
    rows, labels = ([part[k] for part in parts] for k in (0, 1))
    known = drawn(300) if public else None
    settings = SimulationSettings(
        projection=no_projection(4), public_rows=None if known is None else PublicRows(known[0], *known)
    )
    options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": sigma, "settings": settings}
    return simulate(rows, labels, rng=rng, **options)


@pytest.mark.parametrize(("public", "gaussian", "most"), [(True, False, 0.8), (False, False, 0.95), (True, True, 1.02)])
def test_kernels_find_what_a_gaussian_blurs(public: bool, gaussian: bool, most: float) -> None:
    """And are no worse where the classes are Gaussians, nor where the others' noisy rows are all there is."""
    simulation = rings(public=public, gaussian=gaussian)
    errors = [
        centred_error(
            simulation.private_data[1],
            run("joint-moments", simulation.view(), rng=np.random.default_rng(0), denoiser=name).rows,
        )
        for name in ("kernel", "gaussian")
    ]
    assert errors[0] < most * errors[1]


def test_a_mixture_of_neighbourhoods_is_a_density_and_gradient_and_laplacian_are_its_own() -> None:
    rng, step = np.random.default_rng(6), 1e-4
    known, rows = 2 * rng.standard_normal((9, 3)), rng.standard_normal((5, 3))
    spread = np.diag([1.0, 2.0, 3.0])
    near = find_neighbourhoods(known, spread, [4, 5], most=100, block_numbers=20)  # several blocks
    assert list(near) == [4]  # of five there would have to be ten
    covariances = np.linalg.inv(near[4].inverses) - np.eye(3) - 0.05 * spread
    for row, mean, covariance in zip(known, near[4].means, covariances, strict=True):
        nearest = known[np.argsort(((known - row) ** 2).sum(axis=1))[:4]]
        np.testing.assert_allclose(mean, nearest.mean(axis=0))
        np.testing.assert_allclose(covariance, np.cov(nearest.T, bias=True), atol=1e-12)
    shapes = find_local_shapes(3 * known, 9 * spread, [4, 5], most=100)[4].with_noise(3.0)
    for part, expected in zip(vars(shapes).values(), vars(near[4]).values(), strict=True):
        np.testing.assert_allclose(part, expected)
    density = mix_neighbourhoods(rows, near[4], block_numbers=20)
    normals = [
        multivariate_normal(m, np.linalg.inv(i)).pdf(rows) for m, i in zip(near[4].means, near[4].inverses, strict=True)
    ]
    np.testing.assert_allclose(density.log_value, np.log(sum(normals)) + 1.5 * np.log(2 * np.pi))
    moved = np.stack(
        [[mix_neighbourhoods(rows + sign * step * axis, near[4]).log_value for sign in (1, -1)] for axis in np.eye(3)]
    )
    np.testing.assert_allclose(density.gradient, (moved[:, 0] - moved[:, 1]).T / (2 * step), atol=1e-6)
    second = (moved[:, 0] + moved[:, 1] - 2 * density.log_value).sum(axis=0) / step**2
    np.testing.assert_allclose(density.laplacian, second + (density.gradient**2).sum(axis=1), atol=1e-5)
    torch = pytest.importorskip("torch")
    there = find_neighbourhoods(torch.as_tensor(known), torch.as_tensor(spread), [4], most=100)[4]
    np.testing.assert_allclose(there.inverses.numpy(), near[4].inverses)
    again = mix_neighbourhoods(torch.as_tensor(rows), there)
    np.testing.assert_allclose(again.gradient.numpy(), density.gradient)
    np.testing.assert_allclose(find_neighbourhoods(known, spread, [4], most=3)[4].means, near[4].means[::3])
    fewer = find_neighbourhoods(known, spread, [4], most=100, most_numbers=3 * 3 * 5)
    np.testing.assert_allclose(fewer[4].means, near[4].means[::2])


def test_neighbourhoods_follow_how_a_class_bends_and_kernels_say_so() -> None:
    """Digits: of each about 160 are public."""
    images, labels = load_digits(return_X_y=True)
    order, centred = np.random.default_rng(0).permutation(len(images)), images - images.mean(axis=0)
    rows = centred @ np.linalg.svd(centred, full_matrices=False)[2][:16].T / 8
    first, target, public = np.split(order, [60, 160])
    known = PublicRows(rows[public], rows[public], labels[public])
    view = simulate(
        [rows[first], rows[target]],
        [labels[first], labels[target]],
        method="aa-i-gdp-data-noise",
        data_noise_scale=0.5,
        rng=np.random.default_rng(1),
        settings=SimulationSettings(no_projection(16), public_rows=known),
    ).view()
    by_shares, shares = {}, Effort().known_shares
    for given in (shares, shares[:-2]):
        tried = replace(view, effort=Effort(known_shares=given))
        by_shares[given] = run("known-anchor", tried, rng=np.random.default_rng(0), denoiser="kernel")
    errors = [centred_error(rows[target], error_of.rows) for error_of in by_shares.values()]
    assert errors[0] < 0.97 * errors[1]
    assert any(note.startswith("kernels: 20 neighbours of known rows, ") for note in by_shares[shares].notes)


def test_a_class_of_few_known_rows_has_a_share_in_place_of_neighbours_and_thinned_ones_weigh_as_much() -> None:
    rng = np.random.default_rng(7)
    rows = {k: Atoms(rng.standard_normal((n, 2)), np.zeros(n, dtype=int)) for k, n in ((0, 40), (1, 39))}
    population = {-1: Population(np.zeros((2, 2)), np.stack([np.eye(2)] * 2), np.ones(2))}
    prior = kernel.KernelPrior(np.array([0, 1]), rows, {}, np.eye(2), population)
    assert [prior.count_atoms(k, 20, 0.0) for k in (0, 1)] == [40, 39]
    few, wide = (prior.combined(1, rows[1].rows[:3], share, 0.0) for share in (20, 0.6))
    np.testing.assert_array_equal(few.gradient, wide.gradient)
    many, wide = (prior.combined(0, rows[0].rows[:3], share, 0.0) for share in (20, 0.6))
    assert not np.allclose(many.gradient, wide.gradient, atol=0.01)
    whole = prior.combined(0, rows[0].rows, 20, 0.0).log_value
    near = prior._near[0][20]
    prior._near[0][20] = Neighbourhoods(*(part[::2] for part in vars(near).values()))
    np.testing.assert_allclose(prior.combined(0, rows[0].rows, 20, 0.0).log_value, whole, atol=0.2)


# ----------------------------------------------------------------------------------------------------------------- grids

TABLE = Schema(
    (
        Column("sex", "category", categories=("f", "m")),
        Column("pain", "category", categories=("a", "b", "c"), missing="indicate"),
        Column("ecg", "category", categories=("x", "y"), missing="fill"),
        Column("visits", "integer", 0, 6, missing="indicate"),
        Column("age", "integer", 18, 90),
        Column("rate", "number", 40, 200, missing="fill"),
    )
)


def drawn_table(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Encoded rows of two classes, whose columns go together by a hidden kind of patient."""
    labels, kind = np.arange(n) % 2, rng.integers(0, 3, n)

    def some(values: list[Any]) -> list[Any]:
        return [
            values[(k + label) % len(values)] if rng.random() < 0.9 else None
            for k, label in zip(kind, labels, strict=True)
        ]

    columns = {
        "sex": rng.choice(["f", "m"], n),
        "pain": some(["a", "b", "c"]),
        "ecg": some(["x", "y"]),
        "visits": some([0, 3, 6, 1]),
        "age": rng.integers(18, 91, n),
        "rate": [None if rate is None else rate + rng.normal(0, 5) for rate in some([80.0, 120.0, 150.0])],
    }
    return encode_table(TABLE, pa.table(columns)), labels


def table_simulation(
    h: int | None, *, library: str = "numpy", n_public: int = 0
) -> tuple[RowSimulation, CollusionView]:
    rng = np.random.default_rng(5)
    rows, labels = zip(*(drawn_table(60, rng) for _ in range(4)), strict=True)
    m = TABLE.n_features
    projection = no_projection(m) if h is None else gaussian_projection(m, h, rng=rng)
    public = drawn_table(max(1, n_public), rng)
    if library == "torch":
        torch = pytest.importorskip("torch")
        rows = tuple(torch.as_tensor(part) for part in rows)
        projection = projection.moved_to(rows[0])
    known = PublicRows(public[0], projection.encode(public[0]), public[1]) if n_public else None
    settings = SimulationSettings(projection=projection, public_rows=known)
    options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 0.3, "settings": settings}
    simulation = simulate(rows, labels, rng=rng, **options)
    return simulation, replace(simulation.view(), columns=TABLE.columns)


def test_atoms_are_the_values_that_columns_can_have() -> None:
    rng = np.random.default_rng(4)
    rows, _ = drawn_table(300, rng)
    groups = list(make_atoms(TABLE.columns, rows[:50], 0.1))
    read = np.hstack([group.atoms[group.nearest(rows)] for group in groups])
    assert read.shape == rows.shape
    np.testing.assert_allclose(read[:, :-1], rows[:, :-1], atol=1e-12)  # all but the number, which has a fine grid
    assert np.abs(read[:, -1] - rows[:, -1]).max() <= 0.1 / 6 + 1e-9
    ends = groups[-1].atoms[groups[-1].grid, 0][[0, -1]]
    np.testing.assert_allclose(ends, [-1, 1], atol=0.501 * groups[-1].step)
    missing = rows[:, -1] == 0.0  # the middle of the range, which is an atom of its own
    assert missing.sum() > 10
    np.testing.assert_array_equal(read[missing, -1], 0.0)
    noisy = rows + 0.1 * rng.standard_normal(rows.shape)
    for k, group in enumerate(groups):
        scores = group.log_likelihoods(noisy, 0.01)
        assert k > 2 or (scores.argmax(axis=1) == group.nearest(rows)).all()  # categories are far apart
        weights = np.eye(len(group.atoms))[group.nearest(rows)]
        assert np.abs(group.means(weights, rows, 0.01) - rows[:, group.features]).max() < 0.02
    centred = Column("x", "integer", inferred=True, centre=3.2, spread=1.7, missing="fill", fill=4.0)
    values = (np.array([0.0, 2.0, 7.0]) - 3.2) / 1.7
    (group,) = make_atoms([centred], values[:, None], 0.05, values[:, None] + 0.02)
    np.testing.assert_allclose(group.atoms[group.grid, 0] * 1.7 + 3.2, np.arange(0, 8), atol=1e-9)
    filled = Column("c", "category", categories=("a", "b"), missing="indicate", fill="b")
    (group,) = make_atoms([filled], np.eye(3)[:2], 0.05)
    assert group.atoms.tolist() == [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    known = np.r_[np.full(6, 0.123), np.full(5, -0.321), np.linspace(-1, 1, 289)]  # a fiftieth of 300 rows is often
    (group,) = make_atoms([Column("x", "number", 0, 1)], known[:, None], 0.3)
    assert group.atoms[group.grid.stop :, 0].tolist() == [0.123]
    assert group.widths[[0, -1]].tolist() == [pytest.approx(0.1**2 / 12), 0.0]
    only_missing = Column("c", "category", categories=(), inferred=True, missing="indicate")
    (group,) = make_atoms([only_missing], np.eye(2)[:, :1], 0.05)
    assert group.atoms.tolist() == [[0], [1]]


def test_what_a_missing_value_is_encoded_as_is_an_atom() -> None:
    columns = (
        Column("rate", "number", 40, 60, missing="indicate", fill=57.3),
        Column("age", "integer", 18, 90, missing="indicate", fill=31),
        Column("dose", "number", 0, 50, missing="fill", fill=11.1),
        Column("days", "integer", 0, 900, missing="indicate"),
        Column("kind", "category", categories=("a", "b"), missing="fill", fill="b"),
    )
    table = {column.name: pa.array([None, "a" if column.categories else 42]) for column in columns}
    rows = encode_table(Schema(columns), pa.table(table))
    for group in make_atoms(columns, rows, 0.3):
        np.testing.assert_allclose(group.atoms[group.nearest(rows[:1])], rows[:1, group.features], atol=1e-12)


def test_an_atom_that_stands_for_several_values_is_as_likely_as_its_normal_density() -> None:
    """Compared with an atom of one value: a wider one is likelier far away, and less likely nearby."""
    group = AtomGroup(slice(0, 1), np.array([[0.0], [1.0]]), np.array([0.0, 0.75]), slice(0, 2), 1.0)
    rows = np.array([[-3.0], [0.5], [1.0], [2.0]])
    scores = group.log_likelihoods(rows, 0.25)
    expected = norm.logpdf(rows, [0.0, 1.0], [0.5, 1.0])
    np.testing.assert_allclose(np.diff(scores, axis=1), np.diff(expected, axis=1))


@pytest.mark.parametrize(
    ("h", "n_public", "most", "right"), [(None, 0, 0.6, 0.97), (9, 400, 0.85, 0.85), (9, 0, 1.0, 0.8)]
)
def test_grids_read_what_a_gaussian_blurs(h: int | None, n_public: int, most: float, right: float) -> None:
    simulation, view = table_simulation(h, n_public=n_public)
    truth, records = simulation.private_data[1], simulation.records[1]
    result, usual = (
        run("known-anchor", view, rng=np.random.default_rng(0), denoiser=name) for name in ("grid", "gaussian")
    )
    assert centred_error(truth, result.rows) < most * centred_error(truth, usual.rows)
    assert (result.records[:, :8] == records[:, :8]).mean() > right  # the categories' cells
    again = run("known-anchor", view, rng=np.random.default_rng(0), denoiser="grid")
    np.testing.assert_array_equal(result.rows, again.rows)


def mixed_columns(draw: Callable[[int], tuple[np.ndarray, np.ndarray]], schema: Schema, **sizes: int) -> RowSimulation:
    """Two participants and public rows behind a projection that mixes the columns, with noise on the rows."""
    rng = np.random.default_rng(sizes["seed"])
    rows, labels = zip(*(draw(sizes["rows"]) for _ in range(2)), strict=True)
    public, public_labels = draw(sizes["known"])
    projection = gaussian_projection(schema.n_features, sizes["h"], rng=rng)
    known = PublicRows(public, projection.encode(public), public_labels)
    return simulate(
        rows,
        labels,
        method="aa-i-gdp-data-noise",
        data_noise_scale=sizes["percent"] / 100,
        rng=rng,
        settings=SimulationSettings(projection=projection, public_rows=known, columns=schema.columns),
    )


def rebuild(simulation: RowSimulation, *, seed: int = 0, **effort: int) -> np.ndarray:
    view = replace(simulation.view(), effort=replace(Effort(), **effort))
    return run("known-anchor", view, rng=np.random.default_rng(seed), denoiser="grid").rows


def test_four_long_chains_read_mixed_columns_better_than_two_short_ones() -> None:
    """A chain that has settled on wrong cells stays there; among several, it counts less.

    The squared error is that of the posterior mean and the variance between runs, which chains and sweeps lower. Half of the
    squared difference of two runs estimates it. For four chains of 200 sweeps it was 0.15 to 0.49 of that for two of 100 on
    six of seven tables like this one.
    """
    rng = np.random.default_rng(1)
    simulation = mixed_columns(lambda n: drawn_table(n, rng), TABLE, seed=1, rows=80, known=200, h=7, percent=5)
    many, few = (
        [rebuild(simulation, seed=seed, class_rounds=4, **chains) for seed in range(2)]
        for chains in ({}, {"grid_chains": 2, "grid_sweeps": 100})
    )
    assert ((many[0] - many[1]) ** 2).sum() < 0.6 * ((few[0] - few[1]) ** 2).sum()


def test_rows_of_many_kinds_are_read_better_with_32_latent_classes_than_with_16() -> None:
    """Over three tables of 150 such rows, 16 classes leave an error that is 12 % larger, by three standard errors."""
    schema = Schema(tuple(Column(f"c{k}", "category", categories=tuple("abcd")) for k in range(6)))
    rng = np.random.default_rng(0)
    kinds = rng.integers(0, 4, (48, 6))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        usual = kinds[rng.integers(0, len(kinds), n)]
        codes = np.where(rng.random(usual.shape) < 0.97, usual, rng.integers(0, 4, usual.shape))
        columns = {f"c{k}": np.array(list("abcd"))[codes[:, k]] for k in range(6)}
        return encode_table(schema, pa.table(columns)), np.zeros(n, dtype=int)

    simulation = mixed_columns(draw, schema, seed=0, rows=450, known=800, h=10, percent=40)
    many, few = (
        ((rebuild(simulation, grid_chains=1, grid_sweeps=40, **classes) - simulation.private_data[1]) ** 2).sum(axis=1)
        for classes in ({}, {"projected_classes": 16})
    )
    assert many.sum() < 0.95 * few.sum()
    assert (few - many).mean() > 2 * (few - many).std() / many.size**0.5


def test_strata_are_pairs_of_a_label_and_an_owner() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((n, 3)) for n in (3, 2, 4, 2)]
    labels = [np.array([5, 7, 5]), np.array([7, 7]), None, np.array([9, 5])]
    public = PublicRows(rows[0][:2], rows[0][:2], np.array([9, 7]))
    for known, names in ((public, [0, 3, -1]), (replace(public, labels=None), [0, 3])):
        settings = SimulationSettings(no_projection(3), public_rows=known)
        made = simulate(
            rows, [np.zeros(len(part), dtype=int) for part in rows], method="aa-i-gdp", rng=rng, settings=settings
        )
        view = replace(made.view((0, 3), 1), labels=tuple(labels))
        assert view.reference_owners == names
        strata = grid._strata(view, view.reference_owners)
        owners, codes = strata % 5, strata // 5
        assert owners.tolist() == [0, 0, 0, 3, 3, *([4, 4] if -1 in names else [])]
        assert codes.tolist() == [0, 1, 0, 2, 0, *([2, 1] if -1 in names else [])]
        assert grid._strata(view, [1]).tolist() == [6, 6]
        assert grid._strata(view, [2]).tolist() == [2] * 4  # labels that are not known are one


def test_grids_read_rows_of_a_participant_that_is_unlike_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frequencies of kinds of patients come from the target's rows where these differ from others', else from all rows."""
    rng, errors, weights = np.random.default_rng(7), np.zeros((2, 2)), []
    mix, columns = latent_classes._mix, tuple(Column(f"c{k}", "category", categories=("a", "b", "c")) for k in range(6))

    def pooled(weights: Any, codes: Any, labels: Any, prior_weight: float, rng: Any) -> Any:
        mixing = mix(weights, 0 * codes, labels, prior_weight, rng)[0]
        return np.tile(mixing[:1], (labels.size, 1)), prior_weight

    def recorded(*given: Any) -> Any:
        mixture = mix(*given)
        weights.append(mixture[1])
        return mixture

    for place, shares in enumerate(([0.98, 0.02], [0.5, 0.5])):
        for _ in range(4):
            kinds = [rng.choice(2, 80, p=shares if i == 1 else shares[::-1]) for i in range(4)]
            cells = [np.where(rng.random((80, 6)) < 0.7, 2 * kind[:, None], 1) for kind in kinds]
            rows = [np.eye(3)[cell].reshape(80, 18) for cell in cells]
            labels = [np.zeros(80, dtype=int)] * 4
            options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 0.8}
            settings = SimulationSettings(no_projection(18), columns=columns)
            view = simulate(rows, labels, rng=rng, settings=settings, **options).view()
            for index, mixed in enumerate((recorded, pooled)):
                monkeypatch.setattr(latent_classes, "_mix", mixed)
                grid._fitted.clear()
                rebuilt = run("known-anchor", view, rng=np.random.default_rng(0), denoiser="grid").rows
                errors[place, index] += centred_error(rows[1], rebuilt)
        weights.append(np.inf)
    split = weights.index(np.inf)
    assert errors[0, 0] < 0.95 * errors[0, 1]
    assert errors[1, 0] < 1.01 * errors[1, 1]
    assert weights[split - 1] < 12  # and not what probabilities under noise suggest, which are alike
    assert weights[-2] > 60


def test_options_are_drawn_by_their_weights_however_unlikely_all_are() -> None:
    weights = np.array([0.2, 0.5, 0.3])
    for off in (-5000.0, 5000.0):
        drawn, draws = grid._draw(np.tile(np.log(weights) + off, (4000, 1)), np.random.default_rng(0))
        np.testing.assert_allclose(draws, np.tile(weights, (4000, 1)))
        np.testing.assert_allclose(np.bincount(drawn) / 4000, weights, atol=0.02)


def test_a_class_that_the_attacker_has_no_rows_of_is_read_too() -> None:
    """Behind a projection the model is fitted to known records first."""
    rng = np.random.default_rng(5)
    rows, labels = zip(*(drawn_table(60, rng) for _ in range(3)), strict=True)
    codes = [np.zeros(60, dtype=np.int64), labels[1], labels[2]]
    settings = SimulationSettings(projection=gaussian_projection(TABLE.n_features, 9, rng=rng))
    options: dict[str, Any] = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 0.3, "settings": settings}
    view = replace(simulate(rows, codes, rng=rng, **options).view(), columns=TABLE.columns)
    result = run("known-anchor", view, rng=np.random.default_rng(0), denoiser="grid")
    assert np.isfinite(result.rows).all()


def test_grids_give_torch_for_torch_and_say_why_not() -> None:
    rows = [
        run("procrustes", table_simulation(None, library=name)[1], rng=np.random.default_rng(0), denoiser="grid").rows
        for name in ("numpy", "torch")
    ]
    np.testing.assert_allclose(rows[1].numpy(), rows[0], atol=1e-6)
    _, view = table_simulation(None)
    few = replace(view, colluders=(replace(view.colluders[0], records=view.colluders[0].records[:5]),))
    for unsuitable in (replace(view, columns=()), few):
        with pytest.raises(DoesNotApply):
            run("procrustes", unsuitable, rng=np.random.default_rng(0), denoiser="grid")


def test_evidence_is_the_density_of_the_population_that_a_denoiser_has() -> None:
    rng = np.random.default_rng(0)
    tables, mixing = rng.dirichlet(np.ones(3), (2, 2)), rng.dirichlet(np.ones(2), 2)
    logs, codes = 5 * rng.standard_normal((2, 4, 3)), np.array([0, 1, 1, 0])
    expected = [
        np.log(sum(mixing[k, c] * np.prod([tables[g, c] @ np.exp(logs[g, j]) for g in (0, 1)]) for c in (0, 1)))
        for j, k in enumerate(codes)
    ]
    np.testing.assert_allclose(LatentClasses((), mixing, tuple(tables)).posterior(list(logs), codes)[1], expected)
    rows, labels = class_rows(2, 60, 4)
    method = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 0.7}
    view = simulate(rows, labels, rng=rng, **method).view((0,), 1)
    view = replace(view, effort=Effort(known_shares=(0.0,), other_shares=(0.0,)))  # without atoms, a Gaussian a class
    plain = run("known-anchor", view, rng=rng)
    kinds, population = fit_population(plain, view)
    shift = population.estimate_shift(plain.rows, kinds, noise=0.49 * np.eye(4), map_error=np.zeros((4, 4)))
    density = Densities(population.means, population.covariances + 0.49 * np.eye(4))
    density = density.log_density(plain.rows - shift, kinds)
    assert np.ptp(run("known-anchor", view, rng=rng, denoiser="kernel").evidence - density) < 1e-9
    view = replace(view, effort=Effort(known_shares=(0.5,), other_shares=(0.0,)))
    notes = run("known-anchor", view, rng=rng, denoiser="kernel").notes
    assert any(numbers_in(note) == {0.5, 0} for note in notes)


def test_rows_that_attacks_rebuild_alike_are_denoised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, asked = rings(public=False), []

    def counted(value: Any, view: Any, *, rng: Any) -> Any:
        asked.append(value)
        return DENOISERS["gaussian"](value, view, rng=rng)

    monkeypatch.setattr(attempts, "DENOISERS", {"counted": counted})
    runs = attempts.AttackRuns([simulation.view(target=1), simulation.view(target=2)], seed=0)
    names = ["known-anchor", "procrustes", "pseudoinverse", "principal-axes", "known-secret"]
    by_name = {name: runs.run(name) for name in names}
    assert len(asked) == 4  # two views: the anchor's exact map, and principal axes
    assert [[attempt.name for attempt in part.attempts] for part in by_name["procrustes"]] == [
        ["procrustes"] * 2,
        ["procrustes + counted"] * 2,
    ]
    assert len(by_name["known-secret"]) == 1
    assert set(names) < set(ATTACKS)
    zero = replace(asked[0], rows=0 * asked[0].rows, row_error=None)
    assert attempts._are_alike(zero, zero)


@pytest.mark.parametrize(("off", "denoisers"), [(0.0, ["", "gaussian"]), (9.0, ["", "gaussian", "kernel"])])
def test_what_the_gaussian_leaves_no_better_than_a_guess_is_not_denoised_further(
    off: float, denoisers: list[str]
) -> None:
    simulation = rings(public=False)
    truth = simulation.private_data[1]
    evaluator: Any = SimpleNamespace(truth=truth, guess=SimpleNamespace(by_class=truth + off))
    hopeless = partial(LeakageEvaluator.is_hopeless, evaluator)
    rebuilt = attempts.AttackRuns([simulation.view()], 0, hopeless).run("known-anchor")
    assert [part.name.partition(" + ")[2] for part in rebuilt if part.applies] == denoisers


@pytest.mark.parametrize(("least", "applies"), [(0.0, False), (0.9e-9, False), (1.2e-9, True)])
def test_kernels_need_an_error_in_every_direction(least: float, applies: bool) -> None:
    """The least of its variances must be a billionth of the largest."""
    rows, labels = class_rows(2, 30, 3)
    rng = np.random.default_rng(0)
    view = simulate(rows, labels, method="aa-i-gdp-anchor-noise", anchor_noise_scale=0.2, rng=rng).view()
    rebuilt = replace(run("procrustes", view, rng=rng), row_error=np.diag([4.0 * least, 1.0, 4.0]))
    with nullcontext() if applies else pytest.raises(DoesNotApply):
        assert np.isfinite(DENOISERS["kernel"](rebuilt, view, rng=rng).rows).all()


@pytest.mark.parametrize(("n", "n_atoms"), [(4095, 4095), (4096, 2048)])
def test_a_class_has_about_four_thousand_atoms_at_most(n: int, n_atoms: int) -> None:
    rows, codes = np.arange(2.0 * n).reshape(n, 2), np.zeros(n, dtype=np.intp)
    (atoms,) = kernel._by_class(rows, codes, np.arange(n), np.array([0])).values()
    assert atoms.rows.shape == (n_atoms, 2)
    np.testing.assert_array_equal(atoms.rows, rows[atoms.owners])  # each with the participant that owns it


@pytest.mark.parametrize(("n_others", "n_scored"), [(596, 298), (600, 150)])
def test_shares_are_also_scored_by_some_six_hundred_rows_of_others(n_others: int, n_scored: int) -> None:
    """Every second participant is left out of the fit of a fold, and its rows are scored by that fit."""
    rng = np.random.default_rng(0)
    atoms = {0: Atoms(rng.standard_normal((n_others, 2)), np.repeat(np.arange(4), n_others // 4))}
    populations = {fold: Population(np.zeros((1, 2)), np.eye(2)[None], np.ones(1)) for fold in (-1, 0, 1)}
    prior = kernel.KernelPrior(np.zeros(4, dtype=np.intp), {}, atoms, np.eye(2), populations)
    rows = rng.standard_normal((4, 2))
    target, first, second = prior._scored(rows, alone=False)
    assert [(k, fold) for k, _, _, fold in (target, first, second)] == [(0, -1), (0, 0), (0, 1)]
    np.testing.assert_array_equal(target[1], rows)
    assert first[1].shape == (n_scored, 2)
    assert set(first[2]) == {0, 2}
    assert set(second[2]) == {1, 3}
    assert len(list(prior._scored(rows, alone=True))) == 1
    other_noise = replace(prior, noise=1.1 * np.eye(2))
    assert len(list(other_noise._scored(rows, alone=False))) == 1


@pytest.mark.parametrize(("n", "n_used"), [(1023, 1023), (1024, 512)])
def test_neighbourhoods_hold_a_million_numbers_at_most(n: int, n_used: int) -> None:
    """1024 covariances of 32 columns would hold 2²⁰."""
    rows = np.random.default_rng(0).standard_normal((n, 32))
    for find in (find_neighbourhoods, find_local_shapes):
        assert find(rows, np.eye(32), [1], most=10**6)[1].means.shape[0] == n_used  # type: ignore[operator]


def test_a_grid_has_128_steps_however_small_the_noise() -> None:
    (group,) = make_atoms([Column("x", "number", 0, 1)], np.linspace(-1, 1, 9)[:, None], 1e-4)
    assert group.step == pytest.approx(2 / 128)
    assert group.grid.stop == 129


@pytest.mark.parametrize(("noise", "is_exact"), [(0.59, True), (0.61, False)])
def test_whole_numbers_are_atoms_while_they_are_half_a_step_of_the_grid_apart(noise: float, is_exact: bool) -> None:
    """They are a tenth apart, and a step is a third of the noise."""
    (group,) = make_atoms([Column("x", "integer", 0, 20)], np.zeros((3, 1)), noise)
    whole = np.arange(21) / 10 - 1
    assert (group.grid.stop == 21 and bool(np.allclose(group.atoms[:21, 0], whole))) == is_exact
    assert group.step == pytest.approx(0.1 if is_exact else noise / 3)


def test_a_value_of_few_known_rows_is_frequent_if_two_have_it() -> None:
    known = np.r_[0.123, 0.123, np.linspace(-1, 1, 8)]
    (group,) = make_atoms([Column("x", "number", 0, 1)], known[:, None], 0.3)
    assert group.atoms[group.grid.stop :, 0].tolist() == [0.123]


@pytest.mark.parametrize(("first", "spreads", "last"), [(1e7, 0.0, 1e4), (1e-6, 1.0, 0.5)])
def test_the_weight_of_the_prior_of_a_stratum_is_half_a_row_at_least_and_ten_thousand_at_most(
    first: float, spreads: float, last: float
) -> None:
    """Strata that are alike fit a large weight, and those that differ entirely a small one."""
    codes = np.repeat([0, 1], 200)
    of_first = 0.5 + spreads * np.where(codes, 0.5, -0.5) * (1 - 1e-12)
    weights = np.column_stack([of_first, 1 - of_first])
    labels = np.zeros(2, dtype=np.intp)
    _, weight = latent_classes._mix(weights, codes, labels, first, np.random.default_rng(0))
    assert weight == pytest.approx(last, rel=0.01)


@pytest.mark.parametrize(("share", "is_number"), [(1.0, False), (2, True)])
def test_a_note_tells_shares_from_numbers_of_neighbours(share: float, is_number: bool) -> None:
    rows, labels = class_rows(2, 60, 4)
    rng = np.random.default_rng(0)
    view = simulate(rows, labels, method="aa-i-gdp-data-noise", data_noise_scale=0.7, rng=rng).view()
    view = replace(view, effort=Effort(known_shares=(share,), other_shares=(0.0,)))
    note = run("known-anchor", view, rng=rng, denoiser="kernel").notes[-1]
    assert numbers_in(note) == {share, 0}
    assert ("neighbours" in note) == is_number
