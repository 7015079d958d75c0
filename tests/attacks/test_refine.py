"""Denoising and aligning in turns rebuilds rows that neither does alone; moments expects about the error that it makes."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any
from weakref import ref

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from mooring.attacks import CollusionView, DoesNotApply, Effort, PublicRows, run
from mooring.attacks.refine import _GRID_LEAST
from mooring.attacks.view import Codes
from mooring.audit import RowSimulation, SimulationSettings, simulate
from mooring.geometry import RigidMap
from mooring.metrics import centred_error
from mooring.tables import Column, Schema, encode_table
from mooring.typing import Matrix

refine: Any = import_module("mooring.attacks.refine")  # the package has a function of this name
CATEGORIES = ("a", "b", "c")
SCHEMA = Schema(
    (
        *(Column(f"kind {k}", "category", categories=CATEGORIES) for k in range(4)),
        *(Column(f"count {k}", "integer", 0, 12) for k in range(2)),
    )
)


def draw_table(n: int, rng: np.random.Generator) -> Matrix:
    """Rows of four kinds, each with columns that depend on its kind."""
    kind = rng.integers(0, 4, n)
    columns = {
        f"kind {k}": [
            CATEGORIES[(kind_of_row + k) % 3] if keep else CATEGORIES[other]
            for kind_of_row, keep, other in zip(kind, rng.random(n) < 0.7, rng.integers(0, 3, n), strict=True)
        ]
        for k in range(4)
    }
    columns |= {
        f"count {k}": [int(count) for count in rng.binomial(12, 0.2 + 0.2 * ((kind + k) % 4))] for k in range(2)
    }
    return encode_table(SCHEMA, pa.table(columns))


@cache
def tables(v: float, sigma: float = 0.0) -> RowSimulation:
    rng = np.random.default_rng(11)
    rows = [draw_table(80, rng) for _ in range(3)]
    labels = [np.zeros(80, dtype=int)] * 3
    settings = SimulationSettings(columns=SCHEMA.columns)
    method = "aa-i-gdp-both-noise" if sigma else "aa-i-gdp-anchor-noise"
    return simulate(
        rows,
        labels,
        method=method,
        anchor_noise_scale=v,
        data_noise_scale=sigma,
        rng=np.random.default_rng(2),
        settings=settings,
    )


def error_of(simulation: RowSimulation, view: CollusionView, attack: str, denoiser: str | None = None) -> float:
    rebuilt = run(attack, view, rng=np.random.default_rng(0), denoiser=denoiser)
    return float(centred_error(simulation.private_data[1], rebuilt.rows))


def test_rows_of_a_table_are_rebuilt_where_denoising_once_does_not() -> None:
    simulation = tables(0.15)
    view = simulation.view()
    once = min(error_of(simulation, view, name, "grid") for name in ("procrustes", "moments"))
    assert error_of(simulation, view, "refine") < 0.5 * once
    result = run("refine", view, rng=np.random.default_rng(0))
    assert result.row_error[0, 0] == pytest.approx(_GRID_LEAST**2)


def test_without_rounds_it_is_procrustes() -> None:
    simulation = tables(0.15)
    view = replace(simulation.view(), effort=Effort(refine_rounds=0))
    assert error_of(simulation, view, "refine") == pytest.approx(error_of(simulation, view, "procrustes"))


def test_private_data_noise_is_not_taken_for_an_error_of_the_map() -> None:
    simulation = tables(0.15, 0.3)
    view = simulation.view()
    assert error_of(simulation, view, "refine", "grid") < error_of(simulation, view, "procrustes", "grid")


WIDE = Schema(
    (
        *(Column(f"kind {k}", "category", categories=tuple("abcdefghij")) for k in range(5)),
        *(Column(f"count {k}", "integer", 0, 12) for k in range(2)),
    )
)


@cache
def wide_tables() -> RowSimulation:
    """Ten participants with 30 rows of 52 columns each: every row has a direction of its own."""
    rng, chances = np.random.default_rng(3), np.random.default_rng(1).dirichlet(np.full(10, 0.3), size=(5, 4))

    def draw() -> Matrix:
        kinds = rng.integers(0, 4, 30)
        columns = {f"kind {k}": ["abcdefghij"[rng.choice(10, p=chances[k, kind])] for kind in kinds] for k in range(5)}
        return encode_table(
            WIDE,
            pa.table(
                columns | {f"count {k}": rng.binomial(12, 0.2 + 0.2 * ((kinds + k) % 4)).tolist() for k in range(2)}
            ),
        )

    rows = [draw() for _ in range(10)]
    return simulate(
        rows,
        [np.zeros(30, dtype=int)] * 10,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.2,
        rng=np.random.default_rng(2),
        settings=SimulationSettings(columns=WIDE.columns),
    )


@cache
def error_alone() -> float:
    simulation = wide_tables()
    return error_of(simulation, replace(simulation.view(), effort=Effort(refine_rows=0, refine_again=0)), "refine")


def test_maps_of_several_participants_are_refined_together() -> None:
    simulation = wide_tables()
    together = replace(simulation.view(), effort=Effort(refine_rows=150, refine_again=0))
    result = run("refine", together, rng=np.random.default_rng(0))
    assert centred_error(simulation.private_data[1], result.rows) < 0.9 * error_alone()
    assert sorted(result.others) == [2, 3, 4, 5]


def test_all_targets_have_the_maps_that_were_refined_together_for_the_first() -> None:
    simulation, effort = tables(0.15), Effort(refine_rounds=4)
    first, second = (replace(simulation.view(target=i), effort=effort) for i in (1, 2))
    of_first = run("refine", first, rng=np.random.default_rng(0))
    of_second = run("refine", second, rng=np.random.default_rng(0))
    assert np.array_equal(of_first.others[2], of_second.rows)
    assert np.array_equal(of_second.others[1], of_first.rows)


def test_maps_refined_for_other_uploads_or_effort_are_not_used() -> None:
    simulation = tables(0.15)
    view = replace(simulation.view(), effort=Effort(refine_rounds=4))
    before = run("refine", view, rng=np.random.default_rng(0)).rows
    rng = np.random.default_rng(1)
    other = replace(
        view.uploads[2],
        anchor_representation=view.uploads[2].anchor_representation + rng.normal(0, 0.3, view.anchor.shape),
    )
    changed = replace(view, uploads=(*view.uploads[:2], other))
    assert not np.array_equal(run("refine", changed, rng=rng).rows, before)
    assert not np.array_equal(run("refine", replace(view, effort=Effort(refine_rounds=1)), rng=rng).rows, before)


KNOWLEDGE: dict[str, dict[str, Any]] = {
    "labels": {"labels": (np.arange(7) % 2,) * 5},
    "labels of some": {"labels": (np.zeros(7), np.zeros(7), None, None, None)},
    "public rows": {"public_rows": PublicRows(np.ones((4, 3)), np.ones((4, 3)))},
    "the anchor": {"anchor": np.ones((4, 3))},
    "a noise scale": {"anchor_noise_scale": 0.4},
    "columns": {"columns": tuple(Column(f"other {k}", "number", -1, 1) for k in range(3))},
}


@pytest.mark.parametrize("changes", [{}, *KNOWLEDGE.values()], ids=["nothing", *KNOWLEDGE])
def test_maps_refined_by_an_attacker_who_knows_something_else_are_not_used(
    changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    view, same, refined = small_view(7), RigidMap(np.eye(3), np.zeros(3)), []

    def refine_together(views: dict[int, CollusionView], rng: np.random.Generator) -> Any:
        first = next(iter(views.values()))
        refined.append(first)
        uploads = tuple(map(ref, first.uploads))
        known = refine._list_settings(first), refine._list_known_arrays(first)
        return refine._Together(dict.fromkeys(views, same), 0.1, uploads, *known)

    monkeypatch.setattr(refine, "_refine_together", refine_together)
    for each in (view, replace(view), replace(view, **changes)):
        run("refine", each, rng=np.random.default_rng(0))
    assert len(refined) == 1 + bool(changes)


def test_rows_that_were_read_wrongly_are_read_again_with_the_map_of_all_others() -> None:
    simulation = wide_tables()
    again = replace(simulation.view(), effort=Effort(refine_rows=0, refine_again=3))
    assert error_of(simulation, again, "refine") < 0.9 * error_alone()


def test_a_map_is_as_likely_as_its_rows_and_the_anchors_image_make_it() -> None:
    view, rng = tables(0.15).view(), np.random.default_rng(0)
    image, v = view.target_upload.anchor_representation, view.anchor_noise_scale
    likelihoods, of_rows, of_anchor = [], [], []
    for estimate in (RigidMap.sample(image.shape[1], rng=rng) for _ in range(2)):
        likelihoods.append(refine._log_likelihood(view, {}, estimate, 0.3))
        of_rows.append(refine._log_likelihood(replace(view, anchor=None), {}, estimate, 0.3))
        of_anchor.append(norm.logpdf(image, estimate.apply(view.anchor), v).sum())
    assert np.diff(likelihoods) == pytest.approx(np.diff(of_rows) + np.diff(of_anchor))


def test_answers_of_several_models_of_the_columns_are_averaged() -> None:
    simulation = tables(0.15, 0.5)
    learner, several = (replace(simulation.view(), effort=Effort(grid_models=n)) for n in (1, 6))
    assert error_of(simulation, several, "procrustes", "grid") < error_of(simulation, learner, "procrustes", "grid")


def images(n_known: int, n: int) -> tuple[RowSimulation, CollusionView]:
    """Rows on a curved surface in ten dimensions, of which the attacker knows many that are public."""
    rng = np.random.default_rng(5)
    mix = rng.standard_normal((8, 10))

    def draw(n: int) -> Matrix:
        u = rng.uniform(-2, 2, (n, 2))
        parts = [np.cos(u), np.sin(u), u, u**2 / 2]
        return np.hstack(parts) @ mix + 0.1 * rng.standard_normal((n, 10))

    public = draw(n_known)
    rows, labels = [draw(n) for _ in range(3)], [np.zeros(n, dtype=int)] * 3
    known = PublicRows(public, public, np.zeros(n_known, dtype=int))
    settings = SimulationSettings(public_rows=known)
    simulation = simulate(
        rows,
        labels,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.4,
        rng=np.random.default_rng(3),
        settings=settings,
    )
    return simulation, simulation.view()


def test_rows_of_other_kinds_are_rebuilt_more_closely_than_by_moments() -> None:
    simulation, view = images(400, 40)
    assert error_of(simulation, view, "refine") < 0.9 * error_of(simulation, view, "moments")


def test_moments_expects_the_error_that_few_rows_of_a_class_leave() -> None:
    """Four rows have directions of no variance, which do not determine the map."""
    rng, n_classes, h = np.random.default_rng(5), 6, 12
    means, shapes = 2 * rng.standard_normal((n_classes, h)), rng.standard_normal((n_classes, h, h)) / h**0.5

    def draw(n_each: int) -> tuple[Matrix, Codes]:
        codes = np.repeat(np.arange(n_classes), n_each)
        return means[codes] + np.einsum("ni,nij->nj", rng.standard_normal((codes.size, h)), shapes[codes]), codes

    public, public_labels = draw(100)
    rows, labels = zip(*(draw(4) for _ in range(3)), strict=True)
    simulation = simulate(
        rows,
        labels,
        method="aa-i-gdp-anchor-noise",
        anchor_noise_scale=0.3,
        rng=np.random.default_rng(3),
        settings=SimulationSettings(public_rows=PublicRows(public, public, public_labels)),
    )
    result = run("moments", simulation.view(), rng=rng)
    expected = float(np.sqrt(np.trace(result.row_error) / h))
    true = float(np.sqrt(np.mean((result.rows - simulation.private_data[1]) ** 2)))
    assert 0.7 * true < expected < 1.4 * true


@pytest.mark.parametrize("method", ["aa-i-gdp", "c-gdp"])
def test_a_map_that_is_known_exactly_is_not_refined(method: str) -> None:
    rng = np.random.default_rng(0)
    simulation = simulate([rng.standard_normal((20, 3)) for _ in range(3)], method=method, rng=rng)
    with pytest.raises(DoesNotApply):
        run("refine", simulation.view(), rng=rng)


def small_view(n: int = 12, v: float = 0.2, sigma: float = 0.0, scale: float = 1.0) -> CollusionView:
    """The view of five participants with n rows of three columns each, which are declared."""
    rng = np.random.default_rng(4)
    rows = [scale * rng.standard_normal((n, 3)) for _ in range(5)]
    columns = tuple(Column(name, "number", -5, 5) for name in "abc")
    noise = {"anchor_noise_scale": v, "data_noise_scale": sigma}
    method = "aa-i-gdp-both-noise" if sigma else "aa-i-gdp-anchor-noise"
    settings = SimulationSettings(columns=columns)
    return simulate(rows, method=method, rng=np.random.default_rng(6), settings=settings, **noise).view()


def search_scales(view: CollusionView, moved: float, **schedule: Any) -> list[float]:
    """τ of each round, and the last, for a denoiser that moves every number by so much, up or down at random."""
    secret = RigidMap.sample(3, rng=np.random.default_rng(1))
    signs = np.random.default_rng(2).choice([-1.0, 1.0], view.target_upload.representation.shape)
    scales: list[float] = []

    def denoise(rows_of: Mapping[int, Matrix], scale: float) -> dict[int, Matrix]:
        scales.append(scale)
        return {1: secret.invert(view.target_upload.representation) + moved * signs}

    alone = replace(view, anchor=None)
    maps, last = refine._search({1: alone}, {1: secret}, 0.8, refine._Schedule(denoise, **schedule))
    assert set(maps) == {1}
    return [*scales, last]


def test_the_error_falls_from_round_to_round_to_the_least() -> None:
    scales = search_scales(small_view(), 0.0, factor=0.5, least=0.15, n_rounds=4)
    assert scales == pytest.approx([0.8, 0.4, 0.2, 0.15, 0.15])


@pytest.mark.parametrize("sigma", [0.0, 0.3])
def test_the_error_is_no_less_than_what_rows_and_denoised_rows_differ_by_beyond_the_noise(sigma: float) -> None:
    """The best map takes up some of the difference, which is 0.5 for every number."""
    view = small_view(400, sigma=sigma)
    scales = search_scales(view, 0.5, factor=0.1, least=0.01, n_rounds=2)
    assert scales == pytest.approx([0.8, *[np.sqrt(0.25 - sigma**2)] * 2], rel=0.02)
    assert search_scales(view, sigma / 2, factor=0.1, least=0.01, n_rounds=1) == pytest.approx([0.8, 0.08])


@pytest.mark.parametrize("without", [None, 3])
def test_rows_and_anchor_are_aligned_by_weighted_least_squares(without: int | None) -> None:
    view, rng = small_view(sigma=0.3), np.random.default_rng(7)
    Y, B = view.target_upload.representation, view.target_upload.anchor_representation
    denoised = rng.standard_normal(Y.shape) + 2
    found = refine._align(view, denoised, 0.4, without=without)
    weights = np.full(len(Y), 1 / (0.4**2 + 0.3**2))
    if without is not None:
        weights[without] = 0.0

    def misfit(estimate: RigidMap) -> float:
        by_row = ((estimate.apply(denoised) - Y) ** 2).sum(axis=1)
        return float(weights @ by_row + ((estimate.apply(view.anchor) - B) ** 2).sum() / 0.2**2)

    for _ in range(40):
        turn = np.linalg.qr(found.orthogonal + 1e-3 * rng.standard_normal((3, 3)))[0]
        turn = turn * np.sign(np.diag(turn.T @ found.orthogonal))
        assert misfit(RigidMap(turn, found.translation)) > misfit(found)
        assert misfit(RigidMap(found.orthogonal, found.translation + 1e-3 * rng.standard_normal(3))) > misfit(found)


@pytest.mark.parametrize(
    ("most", "chosen"), [(24, [1, 2]), (35, [1, 2]), (36, [1, 2, 3]), (48, [1, 2, 3, 4]), (0, [3])]
)
def test_so_many_participants_are_refined_together_as_have_the_rows(most: int, chosen: list[int]) -> None:
    """Each has twelve rows; the target is one of them in any case, and without an anchor it is alone."""
    view = replace(small_view(), target=3, effort=Effort(refine_rows=most))
    assert refine._choose_participants(view) == [*chosen, *([] if 3 in chosen else [3])]
    assert refine._choose_participants(replace(view, anchor=None)) == [3]
    with_labels = replace(view, labels=(None, np.zeros(12), None, None, None))
    assert 1 not in refine._choose_participants(with_labels)


@pytest.mark.parametrize(("n", "sigma", "is_read_again"), [(6, 0.0, True), (7, 0.0, False), (6, 0.3, False)])
def test_rows_are_read_again_where_there_are_few_for_the_columns(
    n: int, sigma: float, is_read_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to twice as many as columns, and without noise on them."""
    view = small_view(n, sigma=sigma)
    same = RigidMap(np.eye(3), np.zeros(3))
    together = refine._Together({1: same, 2: same}, 0.1, (), (), ())
    monkeypatch.setattr(refine, "_refine_together", lambda views, rng: together)
    asked = []
    monkeypatch.setattr(refine, "_reread_rows", lambda view, others, *rest: asked.append(list(others)) or same)
    result = run("refine", view, rng=np.random.default_rng(0))
    assert asked == [[2]] * is_read_again
    assert list(result.others) == [2]


def test_rows_without_columns_are_refined_in_their_own_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    """From half of the rows' root mean square, or from the error that is expected if that is more."""
    begun = []

    def search(views: Any, maps: Any, scale: float, schedule: Any) -> Any:
        begun.append((scale, schedule.least))
        return maps, scale

    monkeypatch.setattr(refine, "_search", search)
    for unit, v in ((1.0, 0.01), (10.0, 0.01), (1.0, 3.0)):
        view = replace(small_view(40, v, scale=unit), columns=())
        start = run("moments", view, rng=np.random.default_rng(0))
        run("refine", view, rng=np.random.default_rng(0))
        size = np.sqrt(np.mean(np.square(view.reference_rows)))
        expected = np.sqrt(np.trace(start.row_error) / 3)
        assert begun[-1][0] == pytest.approx(max(size / 2, expected))
        assert (expected > size / 2) == (v == 3.0)
    assert begun[1][1] == pytest.approx(10 * begun[0][1], rel=1e-6)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, Any]]:
    """The first τ and the schedule of every search, none of which is made."""
    begun: list[tuple[float, Any]] = []

    def search(views: Any, maps: Any, scale: float, schedule: Any) -> Any:
        begun.append((scale, schedule))
        return maps, scale

    monkeypatch.setattr(refine, "_search", search)
    return begun


def rounds_of(schedule: Any) -> tuple[float, float, int]:
    return schedule.factor, schedule.least, schedule.n_rounds


@pytest.mark.parametrize(("sigma", "share", "n_rounds"), [(0.0, 1.4, 45), (0.3, 1.0, 8)])
def test_maps_of_tables_are_refined_in_many_rounds_and_in_few_under_noise(
    sigma: float, share: float, n_rounds: int, searches: list[tuple[float, Any]]
) -> None:
    """They start with 1.4 times the error that Procrustes expects; τ falls by 8 % a round, down to 0.02."""
    view = replace(small_view(sigma=sigma), effort=Effort())
    together = refine._refine_together({i: replace(view, target=i) for i in (1, 2)}, np.random.default_rng(0))
    assert sorted(together.maps) == [1, 2]
    ((scale, schedule),) = searches
    errors = [run("procrustes", replace(view, target=i), rng=np.random.default_rng(0)).row_error[0, 0] for i in (1, 2)]
    assert scale == pytest.approx(share * np.sqrt(np.mean(errors)))
    assert rounds_of(schedule) == (0.92, 0.02, n_rounds)


def test_rows_without_columns_are_denoised_by_fifty_neighbours_of_six_hundred_rows(
    searches: list[tuple[float, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """τ falls by 5 % a round, down to a twentieth of the rows' root mean square."""
    view = replace(small_view(), columns=(), effort=Effort())
    run("refine", view, rng=np.random.default_rng(0))
    ((_, schedule),) = searches
    size = float(np.sqrt(np.mean(np.square(view.reference_rows))))
    assert rounds_of(schedule) == (0.95, pytest.approx(0.05 * size), 45)
    asked: list[CollusionView] = []

    def denoise(rebuilt: Any, view: CollusionView, **_: Any) -> Any:
        asked.append(view)
        np.testing.assert_allclose(rebuilt.row_error, 0.7**2 * np.eye(3))
        return rebuilt

    monkeypatch.setattr(refine, "denoise_by_kernels", denoise)
    schedule.denoise({1: np.zeros((12, 3))}, 0.7)
    assert [(each.effort.known_shares, each.effort.kernel_centres) for each in asked] == [((50,), 600)]


@pytest.mark.parametrize(("sigma", "quick"), [(0.0, (3, 1)), (0.3, (20, 4))])
def test_models_of_columns_are_quick_unless_noise_makes_them_decisive(sigma: float, quick: tuple[int, int]) -> None:
    effort = refine._with_quick_models(replace(small_view(sigma=sigma), effort=Effort())).effort
    assert (effort.class_rounds, effort.grid_models) == quick


@pytest.mark.parametrize(("sizes", "chosen"), [((500, 500), [1, 2]), ((500, 501), [1])])
def test_maps_of_a_thousand_rows_are_refined_together(sizes: tuple[int, int], chosen: list[int]) -> None:
    view = replace(small_view(), effort=Effort())
    uploads = list(view.uploads)
    for i, size in enumerate(sizes, start=1):
        uploads[i] = replace(uploads[i], representation=np.zeros((size, 3)))
    assert refine._choose_participants(replace(view, uploads=tuple(uploads))) == chosen


@pytest.mark.parametrize(("likelihoods", "n_read"), [([0, 1, 2, 3, 4, 5], 3), ([0, 1, 1], 2), ([0, -1], 1)])
def test_rows_are_read_again_thrice_at_most_as_long_as_it_helps(
    likelihoods: list[float], n_read: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result is the last map that was likelier than the one before."""
    maps = [RigidMap(np.eye(3), np.full(3, float(k))) for k in range(6)]
    remaining, read = iter(likelihoods), iter(maps[1:])
    monkeypatch.setattr(refine, "_log_likelihood", lambda *_: next(remaining))
    monkeypatch.setattr(refine, "_reread_once", lambda *_: next(read))
    view = replace(small_view(), effort=Effort())
    kept = refine._reread_rows(view, {}, maps[0], 0.1)
    assert next(read) is maps[n_read + 1]
    assert kept is maps[n_read if len(likelihoods) == 6 else n_read - 1]


@pytest.mark.parametrize(("off", "expected"), [(0.0, 0.02), (0.3, 0.3)])
def test_a_row_is_read_again_with_the_map_of_all_others_and_their_median_error(
    off: float, expected: float, searches: list[tuple[float, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """τ starts at the root of the median of the rows' mean square errors, and falls by a quarter in each of six rounds."""
    view = replace(small_view(), effort=Effort())
    truth = np.random.default_rng(0).standard_normal((12, 3))
    secret = RigidMap.sample(3, rng=np.random.default_rng(1))
    left_out: list[int | None] = []
    scales: list[float] = []

    def denoise(rows_of: Mapping[int, Matrix], scale: float) -> dict[int, Matrix]:
        scales.append(scale)
        return {1: truth}

    def align(view: Any, denoised: Matrix, scale: float, *, without: int | None = None) -> RigidMap:
        left_out.append(without)
        move = off * np.array([1.0, 1.0, 1.0]) if without is not None and without < 7 else np.zeros(3)
        return RigidMap(secret.orthogonal, secret.translation - move @ secret.orthogonal)

    exact = replace(view.uploads[1], representation=secret.apply(truth))
    view = replace(view, uploads=(view.uploads[0], exact, *view.uploads[2:]))
    monkeypatch.setattr(refine, "_grid_denoiser", lambda view, others: denoise)
    monkeypatch.setattr(refine, "_align", align)
    refine._reread_once(view, {}, secret, 0.5)
    assert left_out == [*range(12), None]
    ((scale, schedule),) = searches
    assert scales == pytest.approx([0.5, expected])
    assert scale == pytest.approx(expected)
    assert rounds_of(schedule) == (0.75, 0.02, 6)
