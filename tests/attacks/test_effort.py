"""How much work attacks do where nobody says otherwise, observed where they do it.

An audit is as strong as the effort of its attacks. What they ask of their parts under `Effort()` is therefore part of
what an audit claims, also where a little more or less would change no figure of these tests.
"""

from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring.attacks import (
    CollusionView,
    DoesNotApply,
    Effort,
    Reconstruction,
    joint_moments,
    moment_search,
    repeated_upload,
)
from mooring.attacks.class_moments import ClassMoments
from mooring.attacks.denoising import grid, kernel
from mooring.attacks.denoising.gaussian import Population
from mooring.attacks.denoising.mixtures import Atoms
from mooring.attacks.independent_components import _directions
from mooring.attacks.moment_search import MomentRows, best_matches
from mooring.audit import SimulationSettings, simulate
from mooring.geometry import RigidMap
from mooring.mechanisms.rotation.kernel import Upload
from mooring.mechanisms.rotation.projection import gaussian_projection, no_projection
from mooring.tables import Column
from mooring.typing import Matrix

HERE = RigidMap(np.eye(2), np.zeros(2))


def test_moments_descends_in_three_stages_and_turns_doubtful_axes_twice_in_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """25 steps from each start; then the smoothing is all, a tenth and none of the mean variance, which is 1 here."""
    stages: list[tuple[int, float]] = []
    agreements = count()

    class Descent:
        def __init__(self, match: Any, points: Any) -> None:
            self.match, self.points, self.value = match, points, np.zeros(match.n_draws)

        def run(self, rule: Any, *, max_iterations: int) -> None:
            stages.append((max_iterations, round(self.match.ridge, 5)))

    class Doubts:
        """Votes against every axis, which are pleased by every turn."""

        def __init__(self, *_: Any) -> None:
            pass

        def votes(self, O: Matrix) -> Matrix:
            return np.full(O.shape[:-1], -9.0)

        def agreement(self, O: Matrix) -> Matrix:
            return np.full(len(O), 100.0 * next(agreements))

    monkeypatch.setattr(moment_search, "RiemannianLBFGS", Descent)
    monkeypatch.setattr(moment_search, "_Signs", Doubts)
    moments = ClassMoments(np.array([1e9]), np.zeros((1, 2)), np.diag([1.9, 0.1])[None])
    rows = MomentRows(np.eye(2), np.zeros(2, dtype=np.intp), moments)
    _, _, starts = best_matches(rows, rows, None, Effort())
    assert starts == ["axes of class 0"]  # the last start, with which the votes agree most
    assert stages == [(25, 1.0), *[(60, 1.0)] * 3, *[(60, 0.1)] * 3, *[(200, 0.0)] * 3]


@pytest.mark.parametrize("n_others", [30, 31])
def test_joint_moments_matches_thirty_others_twice_to_the_rest_before_the_target(
    n_others: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def match(population: Any, seen: Any, evidence: Any, start: Any, steps: Any, *, also: Any = None) -> Any:
        asked.append((start is not None, steps, also is not None))
        return HERE, None

    monkeypatch.setattr(joint_moments, "_matched", match)
    monkeypatch.setattr(joint_moments, "moments", lambda view, rng: SimpleNamespace(rigid_map=HERE))
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((2, 2)) for _ in range(2 + n_others)]
    view = simulate(rows, method="aa-i-gdp-anchor-noise", anchor_noise_scale=0.1, rng=rng).view()
    result = joint_moments.joint_moments(replace(view, effort=Effort()), rng=rng)
    first = [(False, (25, 25), False)] * 30
    assert asked == [*first, *[(True, (25, 25), False)] * 60, (False, (25, 200), True)]
    assert result.population is not None
    assert result.population.n_rows == 2 + 60


def test_fast_ica_is_fitted_to_twenty_thousand_rows_for_four_hundred_iterations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted: list[tuple[Matrix, int]] = []

    class Components:
        def __init__(self, *, max_iter: int, **_: Any) -> None:
            self.max_iter, self.mixing_ = max_iter, np.eye(1)

        def fit(self, rows: Matrix) -> None:
            fitted.append((rows, self.max_iter))

    monkeypatch.setattr("sklearn.decomposition.FastICA", Components)
    Y = np.random.default_rng(0).standard_normal((20_001, 1))
    for n in (20_000, 20_001):
        _directions(Y[:n], np.random.default_rng(0), Effort())
    assert [(rows.shape, iterations) for rows, iterations in fitted] == [((20_000, 1), 400)] * 2
    assert np.array_equal(fitted[0][0], Y[:20_000])
    assert np.isin(fitted[1][0], Y).all()
    assert np.unique(fitted[1][0]).size == 20_000


@pytest.mark.parametrize(("n_rows", "assign"), [(2000, True), (2001, False)])
def test_rows_of_two_uploads_are_assigned_up_to_two_thousand(
    n_rows: int, assign: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def pair(estimate: Any, rows: Matrix, others: Matrix, *, assign: bool) -> Any:
        asked.append(assign)
        return np.arange(n_rows)

    monkeypatch.setattr(repeated_upload, "_partners", pair)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_rows, 1))
    view: Any = SimpleNamespace(data_noise_scale=0.0, anchor_noise_scale=0.0, effort=Effort())
    repeated_upload._match(Upload(rng.permutation(rows), None), Upload(rows, None), view)
    assert asked == [assign]


# -------------------------------------------------------------------------------------------------------------- denoisers


def coded_view(n_known: int, n: int, *, is_projected: bool) -> CollusionView:
    """A colluder and a target with rows of one declared category, and labels that are the category."""
    rows = [np.eye(2)[np.arange(size) % 2] for size in (n_known, n)]
    projection = gaussian_projection(2, 1, rng=np.random.default_rng(0)) if is_projected else no_projection(2)
    settings = SimulationSettings(projection, columns=(Column("c", "category", categories=("a", "b")),))
    labels = [np.arange(size) % 2 for size in (n_known, n)]
    noise = {"method": "aa-i-gdp-data-noise", "data_noise_scale": 0.3}
    view = simulate(rows, labels, rng=np.random.default_rng(1), settings=settings, **noise).view()  # type: ignore[arg-type]
    return replace(view, effort=Effort())


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What models of columns are asked for, with the number of rows: a fit of some rounds, or sweeps over the rows."""
    asked: list[tuple[str, int, int]] = []

    def fit(groups: Any, likelihoods: Any, strata: Any, *, labels: Any, n_classes: int, n_rounds: int, **_: Any) -> Any:
        assert np.array_equal(
            labels[strata[:8]], likelihoods[0][:8].argmax(axis=1)
        )  # the label of a known row's stratum
        asked.append((f"{n_classes} classes", strata.size, n_rounds))
        return SimpleNamespace(groups=tuple(groups))

    def draw(sampler: Any, rows: Matrix, codes: Any, n_sweeps: int, rng: Any) -> Any:
        asked.append(("sweeps", len(rows), n_sweeps))
        return [np.full((len(rows), 2), 0.5)], [np.zeros(len(rows), dtype=np.intp)]

    monkeypatch.setattr(grid, "fit_latent_classes", fit)
    monkeypatch.setattr(grid.CellSampler, "draw", draw)
    return asked


@pytest.mark.parametrize(("n", "n_fitted"), [(8191, 8191), (8192, 4096)])
def test_four_models_of_columns_are_fitted_to_the_rows_of_exact_maps(
    n: int, n_fitted: int, work: list[tuple[str, int, int]]
) -> None:
    view = coded_view(10, n, is_projected=False)
    assert len(grid._models_of(view, {}, 0.09)) == 4
    assert work == [("16 classes", 10 + n_fitted, 20)] * 4


def test_models_of_exact_maps_are_fitted_once_for_a_variance(work: list[tuple[str, int, int]]) -> None:
    view = coded_view(10, 20, is_projected=False)
    for variance, n_fits in ((1e-4, 4), (1e-4, 4), (1.001e-4, 8)):
        grid._models_of(view, {}, variance)
        assert len(work) == n_fits


@pytest.mark.parametrize(("n", "n_fitted"), [(499, 499), (500, 250)])
def test_behind_a_projection_cells_are_drawn_thrice_for_the_model_and_by_four_chains_for_the_rows(
    n: int, n_fitted: int, work: list[tuple[str, int, int]]
) -> None:
    view = coded_view(999, n, is_projected=True)
    grid.denoise_by_grids(Reconstruction(view.target_upload.representation, HERE), view, rng=np.random.default_rng(0))
    refits = [("sweeps", n_fitted, 40), ("32 classes", 999 + n_fitted, 20)] * 3
    assert work == [("32 classes", 999, 20), *refits, ("sweeps", 4 * n, 200)]


def test_a_thousand_known_records_are_enough_for_the_model_behind_a_projection(
    work: list[tuple[str, int, int]],
) -> None:
    view = coded_view(1000, 20, is_projected=True)
    grid._fit(view, {1: np.asarray(view.target_upload.representation)}, 0.09)
    assert work == [("32 classes", 1000, 20)]


@pytest.mark.parametrize("n_known", [7, 8])
def test_a_model_of_columns_needs_eight_known_records(n_known: int, work: list[tuple[str, int, int]]) -> None:
    view = coded_view(n_known, 20, is_projected=True)
    rebuilt = Reconstruction(view.target_upload.representation, HERE)
    with nullcontext() if n_known == 8 else pytest.raises(DoesNotApply):
        grid.denoise_by_grids(rebuilt, view, rng=np.random.default_rng(0))


def test_kernels_are_tried_with_these_shares_and_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    atoms = {0: Atoms(np.random.default_rng(0).standard_normal((50, 2)), np.zeros(50, dtype=np.intp))}
    population = {-1: Population(np.zeros((1, 2)), np.eye(2)[None], np.ones(1))}
    prior = kernel.KernelPrior(np.zeros(3, dtype=np.intp), atoms, atoms, np.eye(2), population, Effort())
    tried: dict[str, list[float]] = {"_known": [], "_others": []}
    for name, shares in tried.items():
        monkeypatch.setattr(kernel.KernelPrior, name, lambda self, k, rows, share, *_, s=shares: s.append(share))
    prior.choose_shares(np.zeros((3, 2)))
    assert tried == {"_known": [0.0, 0.3, 0.6, 0.9, 20, 80], "_others": [0.0, 0.5, 0.8, 0.95]}
    sought: list[tuple[list[int], int]] = []
    monkeypatch.setattr(kernel, "find_neighbourhoods", lambda rows, spread, ns, most: sought.append((ns, most)) or {})
    prior._find_near(0)
    assert sought == [([20, 80], 4096)]
