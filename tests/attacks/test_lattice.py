"""The lattice attack: exact where columns lie on grids, and a reason wherever it has nothing to work with."""

import re
import time
from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from mooring.attacks import CollusionView, DoesNotApply, lattice, run
from mooring.attacks.lattice_features import _Directions, _steps
from mooring.attacks.lattice_parts import (
    IMPOSSIBLE,
    AnchorStatistics,
    LatticeRows,
    Line,
    common_unit,
    find_simplex,
    summarise_anchor,
)
from mooring.attacks.lattice_reduction import _belongs, _parts, _refined, lattice_basis, orthogonal_parts
from mooring.audit.rotation.simulation import SimulationSettings, simulate
from mooring.geometry import RigidMap
from mooring.geometry.backend import to_numpy
from mooring.mechanisms.rotation.projection import Projection

N_ROWS = 500


def counts(width: int, rng: np.random.Generator) -> np.ndarray:
    """Poisson and binomial columns by turns, every one distributed in its own way."""
    rates = np.geomspace(0.15, 6, width)
    trials = np.arange(width) % 5 + 1
    poisson = rng.poisson(rates, (N_ROWS, width))
    binomial = rng.binomial(trials, np.linspace(0.08, 0.3, width), (N_ROWS, width))
    return np.where(np.arange(width) % 2 == 0, poisson, binomial).astype(float)


def drawn(width: int, *, n_participants: int = 4, seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [counts(width, rng) for _ in range(n_participants)]


def standardised(parts: Sequence[np.ndarray]) -> list[np.ndarray]:
    rows = np.concatenate(parts)
    return [(part - rows.mean(axis=0)) / rows.std(axis=0) for part in parts]


def viewed(
    parts: Sequence[np.ndarray],
    *,
    method: str = "i-gdp",
    colluders: Sequence[int] = (0, 2, 3),
    labels: Sequence[np.ndarray] | None = None,
    **settings: object,
) -> CollusionView:
    simulation = simulate(parts, labels, method=method, rng=np.random.default_rng(7), **settings)  # type: ignore[arg-type]
    return simulation.view(colluders=colluders, target=1)


def recovered(view: CollusionView) -> np.ndarray:
    reconstruction = run("lattice", view, rng=np.random.default_rng(3))
    rows, O = to_numpy(reconstruction.rows), to_numpy(reconstruction.rigid_map.orthogonal)
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(O @ O.T, np.eye(O.shape[0]), atol=1e-10)
    np.testing.assert_allclose(reconstruction.rigid_map.apply(reconstruction.rows), view.target_upload.representation)
    return rows


def test_a_few_rows_span_a_lattice_whose_parts_are_found_without_a_draw() -> None:
    rng = np.random.default_rng(0)
    basis = lattice_basis(np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 2.0]]), rng=rng)
    assert sorted(np.abs(basis).sum(axis=1)) == pytest.approx([2.0, 3.0])
    before = rng.bit_generator.state
    assert [part.shape for part in orthogonal_parts(basis, rng=rng)] == [(1, 2)] * 2
    assert rng.bit_generator.state == before


@pytest.mark.parametrize(("step", "fine"), [(1.1e-4, True), (0.9e-4, False)])
def test_a_grid_finer_than_a_ten_thousandth_of_the_widest_difference_is_none(step: float, fine: bool) -> None:
    rows = step * np.array([0, 1, 3, 7, round(1 / step)])[:, None]
    if fine:
        assert np.abs(lattice_basis(rows, rng=np.random.default_rng(0))).item() == pytest.approx(step)
    else:
        with pytest.raises(DoesNotApply):
            lattice_basis(rows, rng=np.random.default_rng(0))


def check_exact(parts: Sequence[np.ndarray], **options: object) -> None:
    np.testing.assert_allclose(recovered(viewed(parts, **options)), parts[1], atol=1e-9)  # type: ignore[arg-type]


def reason(view: CollusionView) -> str:
    with pytest.raises(DoesNotApply) as refused:
        run("lattice", view, rng=np.random.default_rng(3))
    return refused.value.reason


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("width", [1, 2, 6])
def test_counts_are_recovered_exactly(width: int, scaled: bool, seed: int) -> None:
    parts = drawn(width, seed=seed)
    check_exact(standardised(parts) if scaled else parts)


def test_more_columns_than_can_be_reduced_are_refused() -> None:
    assert {"40", "41"} <= set(re.findall(r"\d+", reason(viewed(drawn(41)))))


def test_fourteen_standardised_columns_are_recovered_exactly_in_a_few_seconds() -> None:
    parts = standardised(drawn(14))
    view = viewed(parts)
    started = time.process_time()
    rows = recovered(view)
    assert time.process_time() - started < 10
    np.testing.assert_allclose(rows, parts[1], atol=1e-9)
    np.testing.assert_array_equal(recovered(view), rows)  # the same generator, the same rows


def test_fourteen_columns_of_counts_are_recovered_exactly() -> None:
    rng = np.random.default_rng(0)
    rates, among = np.geomspace(0.1, 8, 14), np.arange(14)
    parts = [np.where(among < 9, rng.poisson(rates, (3000, 14)), 0).astype(float) for _ in range(4)]
    for part in parts:
        part[:, 9:] = rng.binomial([1, 2, 3, 4, 5], [0.2, 0.4, 0.6, 0.7, 0.9], (3000, 5))
    check_exact(parts)


@pytest.mark.parametrize("width", [14, 30])
@pytest.mark.parametrize("scaled", [False, True])
def test_values_are_whole_and_right_up_to_naming(width: int, scaled: bool) -> None:
    """Whatever the names, every rebuilt column is one of the true ones, or its mirror image, moved."""
    rng = np.random.default_rng(5)
    parts = [rng.poisson(rng.uniform(1, 4, width), (N_ROWS, width)).astype(float) for _ in range(4)]
    parts = standardised(parts) if scaled else parts
    rows = recovered(viewed(parts))
    similar = np.abs(np.corrcoef(rows.T, parts[1].T)[:width, width:])
    assert (np.isclose(similar, 1, atol=1e-12).sum(axis=0) == 1).all()


@pytest.mark.parametrize("scale", [0.0, 0.1, 3.0, 1e3])
@pytest.mark.parametrize("scaled", [False, True])
def test_anchor_noise_does_not_stop_it(scale: float, scaled: bool) -> None:
    parts = standardised(drawn(6)) if scaled else drawn(6)
    check_exact(parts, method="aa-i-gdp", anchor_noise_scale=scale)


def test_the_anchor_names_columns_that_nothing_else_tells_apart() -> None:
    rng = np.random.default_rng(2)
    parts = [rng.integers(0, 2, (N_ROWS, 8)).astype(float) for _ in range(4)]
    check_exact(parts, method="aa-i-gdp", anchor_noise_scale=0.05)


@pytest.mark.parametrize("scaled", [False, True])
def test_independent_yes_no_columns(scaled: bool) -> None:
    rng = np.random.default_rng(1)
    share = np.array([0.04, 0.12, 0.2, 0.3, 0.4, 0.65, 0.75, 0.85])
    parts = [(rng.random((1500, 8)) < share).astype(float) for _ in range(4)]
    check_exact(standardised(parts) if scaled else parts)


def test_correlations_name_columns_that_are_distributed_alike() -> None:
    rng = np.random.default_rng(4)
    mixing = np.linalg.cholesky(
        0.9 ** np.abs(np.subtract.outer(np.cumsum([0, 1, 2, 4, 7]), np.cumsum([0, 1, 2, 4, 7])))
    )
    parts = [(rng.standard_normal((2000, 5)) @ mixing.T > 0.3).astype(float) for _ in range(4)]
    check_exact(parts)


def test_labels_name_columns_that_are_distributed_alike() -> None:
    rng = np.random.default_rng(6)
    labels = [rng.integers(0, 2, N_ROWS) for _ in range(4)]
    rates = np.array([[1.0, 3.0, 2.0], [3.0, 1.0, 2.0]])
    parts = [rng.poisson(rates[codes]).astype(float) for codes in labels]
    check_exact(parts, labels=labels)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("unit", [1.0, 1000.0])
def test_one_hot_groups_and_constant_columns(unit: float, scaled: bool) -> None:
    rng = np.random.default_rng(8)

    def table() -> np.ndarray:
        groups = [
            np.eye(len(p))[rng.choice(len(p), 1500, p=p)] for p in ((0.1, 0.2, 0.7), (0.35, 0.65), (0.4, 0.3, 0.2, 0.1))
        ]
        return np.hstack([*groups, rng.poisson([0.3, 2.0], (1500, 2)), np.full((1500, 1), 5.0)])

    parts = [table() for _ in range(4)]
    if scaled:
        spread = np.concatenate(parts).std(axis=0)
        parts = [part / np.where(spread > 0, spread, 1) for part in parts]
    np.testing.assert_allclose(recovered(viewed([unit * part for part in parts])), unit * parts[1], atol=1e-9 * unit)


def test_an_analyst_on_its_own_orders_columns_by_variance_and_counts_from_nought() -> None:
    rng = np.random.default_rng(9)
    parts = [rng.poisson([4.0, 2.0, 1.0, 0.3], (N_ROWS, 4)).astype(float) for _ in range(2)]
    check_exact(parts, colluders=())


def test_an_analyst_on_its_own_takes_other_steps_for_standardised() -> None:
    rng = np.random.default_rng(9)
    parts = [rng.poisson([6.0, 3.0, 1.0], (N_ROWS, 3)) * [0.5, 0.4, 0.3] for _ in range(2)]
    rows = recovered(viewed(parts, colluders=()))
    np.testing.assert_allclose(rows, parts[1] - parts[1].mean(axis=0), atol=1e-9)


def test_a_target_whose_values_are_all_even_has_twice_the_step() -> None:
    parts = drawn(3)
    parts[1][:, 0] *= 2
    rows = recovered(viewed(parts))
    assert np.allclose(rows - rows[0], parts[1] - parts[1][0], atol=1e-9)


def test_torch_comes_back_as_torch() -> None:
    torch = pytest.importorskip("torch")
    parts = drawn(4)
    view = viewed([torch.as_tensor(part) for part in parts])  # type: ignore[misc]
    reconstruction = run("lattice", view, rng=np.random.default_rng(3))
    assert isinstance(reconstruction.rows, torch.Tensor)
    np.testing.assert_allclose(to_numpy(reconstruction.rows), parts[1], atol=1e-9)


def replaced(parts: list[np.ndarray], target: np.ndarray) -> list[np.ndarray]:
    return [parts[0], target, *parts[2:]]


def one_hot(n_participants: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [np.eye(4)[rng.integers(0, 4, N_ROWS)] for _ in range(n_participants)]


def partly_continuous(n_continuous: int) -> list[np.ndarray]:
    parts = drawn(5)
    for part in parts:
        part[:, :n_continuous] = np.random.default_rng(1).standard_normal((N_ROWS, n_continuous))
    return parts


def with_even_sums() -> list[np.ndarray]:
    parts = drawn(5)
    for part in parts:
        part[:, 0] += part.sum(axis=1) % 2
    return parts


TURN = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
MIXED = SimulationSettings(projection=Projection(TURN, TURN.T, "public-svd"))
NOTHING_TO_WORK_WITH: dict[str, tuple[list[np.ndarray], dict[str, object], str]] = {
    "private-data noise": (drawn(4), {"method": "aa-i-gdp-data-noise", "data_noise_scale": 0.1}, "noise"),
    "fewer components": (drawn(6), {"n_components": 4}, "projection"),
    "a turn of the columns": (drawn(4), {"settings": MIXED}, "projection"),
    "a continuous column": (partly_continuous(1), {"colluders": ()}, "off any grid"),
    "a continuous column, a colluder": (partly_continuous(1), {"colluders": (0,)}, "off any grid"),
    "continuous columns": (partly_continuous(5), {"colluders": ()}, "off any grid"),
    "continuous columns, a colluder": (partly_continuous(5), {"colluders": (0,)}, "off any grid"),
    "only a continuous column": ([p[:, :1] for p in partly_continuous(1)], {"colluders": ()}, "off any grid"),
    "too many columns": (drawn(41, n_participants=2), {"colluders": (0,)}, "up to 40"),
    "too few rows": (replaced(drawn(6), drawn(6)[1][:6]), {}, "more rows than columns"),
    "rows all alike": ([np.ones((N_ROWS, 3))] * 2, {"colluders": (0,)}, "equal"),
    "rows of even sum": (with_even_sums(), {}, "not orthogonal"),
    "one-hot without a colluder": (one_hot(2), {"colluders": ()}, "colluder"),
    "other steps": (replaced(drawn(3), drawn(3)[1] * np.sqrt(2)), {}, "steps"),
    "other parts": (replaced(drawn(4), one_hot(1)[0]), {}, "different parts"),
    "other one-hot steps": (replaced(one_hot(4), one_hot(4)[1] * np.sqrt(2)), {}, "one-hot"),
}


@pytest.mark.parametrize("case", NOTHING_TO_WORK_WITH)
def test_where_it_has_nothing_to_work_with_it_says_why(case: str) -> None:
    parts, options, words = NOTHING_TO_WORK_WITH[case]
    assert words in reason(viewed(parts, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("steps", "unit"), [((0.3, 0.9), 0.3), ((0.9, 0.3), 0.3), ((0.5, 0.75), 0.0), ((0.1, 1.9), 0.1), ((0.1, 2.0), 0.0)]
)
def test_steps_have_a_common_unit_where_one_is_a_small_multiple_of_the_other(
    steps: tuple[float, float], unit: float
) -> None:
    assert common_unit(*steps) == unit


def test_a_basis_generates_every_difference_and_splits_into_orthogonal_parts() -> None:
    rng = np.random.default_rng(0)
    rows = drawn(6)[0] * [1, 1, 0.5, 0.7, 2, 3] @ np.linalg.qr(rng.standard_normal((6, 6)))[0]
    parts = orthogonal_parts(lattice_basis(rows, rng=rng), rng=rng)
    assert [part.shape for part in parts] == [(1, 6)] * 6
    basis = np.vstack(parts)
    coordinates = (rows - rows[0]) @ np.linalg.inv(basis)
    np.testing.assert_allclose(coordinates, np.rint(coordinates), atol=1e-9)
    gram = basis @ basis.T
    np.testing.assert_allclose(gram, np.diag(np.diagonal(gram)), atol=1e-9)


def test_a_one_hot_group_is_told_by_the_distances_between_its_points() -> None:
    """Squared, they are sums of two squared steps; rows within rounding of a point stand on it."""
    points, where = np.diag([0.5, 1.0, 2.0, 3.0]), np.arange(40) % 4
    rows = points[where] + 2e-8 * np.random.default_rng(0).uniform(-1, 1, (40, 4)) + 0.1
    simplex = find_simplex(rows, points[1:] - points[0])
    order = simplex.vertex_of[:4]
    assert sorted(order) == [0, 1, 2, 3]
    assert (simplex.vertex_of == order[where]).all()
    np.testing.assert_allclose(simplex.squared_steps[order], [0.25, 1.0, 4.0, 9.0], rtol=1e-6)
    gaps = ((simplex.vertices[order][:, None] - simplex.vertices[order]) ** 2).sum(axis=2)
    np.testing.assert_allclose(gaps, ((points[:, None] - points) ** 2).sum(axis=2), atol=1e-6)


@pytest.mark.parametrize("scale", [0.01, 100.0])
@pytest.mark.parametrize(
    "points",
    [
        [[0, 0], [4, 0], [3.9, 0.5]],  # an obtuse corner: one squared step would be negative
        [[0, 0], [1, 0], [0, 1], [1, 1]],  # a square: more points than corners of a triangle
        [[0, 0, 0], [2, 0, 0], [1, 2, 0], [1, 1, 2]],  # opposite edges whose squares do not add up alike
    ],
)
def test_other_points_are_no_one_hot_group(points: list[list[float]], scale: float) -> None:
    rows = scale * np.array(points)
    with pytest.raises(DoesNotApply):
        find_simplex(rows, np.eye(rows.shape[1]))


def hospital(n: int, mean: float, missing: float, rng: np.random.Generator) -> np.ndarray:
    """Rows of two counts on different scales, a category of three values, and one of two with some missing."""
    kinds = np.eye(3)[rng.integers(0, 3, n)]
    sexes = np.eye(2)[rng.integers(0, 2, n)] * (rng.random(n) >= missing)[:, None]
    counts = rng.poisson(mean, (n, 2)) * [0.03, 0.01]
    return np.hstack([counts, kinds, sexes])


@pytest.mark.parametrize("missing", [(0.0, 0.3), (0.3, 0.0), (0.0, 0.0)])
@pytest.mark.parametrize("means", [(20, 20), (20, 35)])
def test_anchor_names_features_where_participants_differ(
    missing: tuple[float, float], means: tuple[float, float]
) -> None:
    """Missing values in one of the lattices change its parts; other means mislead a comparison of distributions."""
    rng = np.random.default_rng(4)
    parts = [hospital(N_ROWS, mean, share, rng) for mean, share in zip(means, missing, strict=True)]
    view = viewed(parts, method="aa-i-gdp-anchor-noise", anchor_noise_scale=0.1, colluders=(0,))
    off = np.abs(recovered(view) - parts[1])
    assert off[:, 2:].max() < 1e-4
    assert off.max() < 0.1


@pytest.mark.parametrize(("step", "least"), [(1 + 0.9e-6, True), (1 + 1.2e-6, False)])
def test_without_a_colluder_columns_of_whole_numbers_start_at_zero_and_others_have_mean_zero(
    step: float, least: bool
) -> None:
    rng = np.random.default_rng(9)
    parts = [step * rng.poisson([6.0, 2.0], (N_ROWS, 2)) for _ in range(2)]
    rows = recovered(viewed(parts, colluders=()))
    origin = parts[1].min(axis=0) if least else parts[1].mean(axis=0)
    np.testing.assert_allclose(rows, parts[1] - origin, atol=1e-7)


def test_lattices_are_those_of_five_thousand_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.poisson(2.0, (n, 1)).astype(float) for n in (5002, 5001)]
    reduced: list[np.ndarray] = []

    def reduce(rows: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
        reduced.append(rows)
        if len(reduced) > 1:
            raise DoesNotApply("Nothing more is looked at.")
        return []

    monkeypatch.setattr(lattice, "_parts", reduce)
    for colluders in ((0,), ()):
        reason(viewed(parts, colluders=colluders))
    known, seen, alone = reduced
    assert known.shape == seen.shape == alone.shape == (5000, 1)
    assert not np.array_equal(known, parts[0][:5000])  # a random choice of them


@pytest.mark.parametrize(
    ("v", "gain", "by_features"), [(0.34, 8.1, True), (0.34, 7.9, False), (0.36, 8.1, False), (0.0, 8.1, True)]
)
def test_a_precise_anchor_names_features_if_it_fits_their_map_clearly_better(
    v: float, gain: float, by_features: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors of up to 2 v √log 8 confuse none of eight features below v = 0.347; eight is also the least gain."""
    of_parts, of_features = (RigidMap(np.eye(8), np.full(8, float(k))) for k in range(2))
    anchored: Any = SimpleNamespace(log_likelihood=lambda estimate: gain * float(estimate.translation[0]))
    monkeypatch.setattr(lattice, "summarise_anchor", lambda view: anchored)
    monkeypatch.setattr(lattice, "_parts", lambda rows, rng: [])
    monkeypatch.setattr(lattice, "_side_of", lambda *_: None)
    monkeypatch.setattr(lattice, "_match_parts", lambda *_: ())
    monkeypatch.setattr(lattice, "_turned_back", lambda *_, **__: of_parts)
    monkeypatch.setattr(lattice, "align_features", lambda *_, **__: of_features)
    rows, codes = np.zeros((3, 8)), np.zeros(3, dtype=np.intp)
    view: Any = SimpleNamespace(anchor_noise_scale=v)
    named = lattice._named(view, (rows, codes), (rows, codes), np.random.default_rng(0))
    assert named is (of_features if by_features else of_parts)


def test_correlations_correct_the_sign_of_one_of_two_columns() -> None:
    """Values of both columns are as likely turned round, and likelier by one if the second is."""
    rng = np.random.default_rng(1)
    mixing = np.linalg.cholesky(np.array([[1.0, 0.8], [0.8, 1.0]]))
    lines = tuple(Line(direction, 1.0) for direction in np.eye(2))
    known, seen = (
        LatticeRows(rng.standard_normal((n, 2)) @ mixing.T, np.zeros(n, dtype=np.intp), lines, ()) for n in (90, 70)
    )
    scores = np.zeros((2, 2, 2))
    scores[1, 1, 1] = 1.0
    scores[:, [0, 1], [1, 0]] = -100.0
    pairs, turns = lattice._by_correlation(known, seen, scores, np.array([0, 1]), np.array([0, 1]))
    assert pairs.tolist() == [0, 1]
    assert turns[0] == turns[1]


@pytest.mark.parametrize("v", [0.0, 0.0005, 0.0012, 0.2])
def test_anchor_statistics_are_those_of_the_normal_likelihood_of_its_image(v: float) -> None:
    """Noise below a thousandth counts as a thousandth."""
    rng, scale = np.random.default_rng(2), max(v, 1e-3)
    draws = rng.standard_normal((12, 3))
    A = np.linalg.qr(draws - draws.mean(axis=0))[0]
    B = RigidMap.sample(3, rng=rng).apply(A) + 0.1 * rng.standard_normal((12, 3))
    view: Any = SimpleNamespace(anchor=A, anchor_noise_scale=v, target_upload=SimpleNamespace(anchor_representation=B))
    anchored = summarise_anchor(view)
    assert anchored is not None
    first, second = (RigidMap.sample(3, rng=rng) for _ in range(2))
    expected = norm.logpdf(B, first.apply(A), scale).sum() - norm.logpdf(B, second.apply(A), scale).sum()
    assert anchored.log_likelihood(first) - anchored.log_likelihood(second) == pytest.approx(expected)


@pytest.mark.parametrize(("difference", "is_equal"), [(0.9e-7, True), (1.2e-7, False)])
def test_rows_that_differ_by_a_ten_millionth_of_the_widest_difference_are_equal(
    difference: float, is_equal: bool
) -> None:
    rows = np.array([0.0, difference, 0.25, 1.0])[:, None]
    with nullcontext() if is_equal else pytest.raises(DoesNotApply):
        assert np.abs(lattice_basis(rows, rng=np.random.default_rng(0))).item() == pytest.approx(0.25)


@pytest.mark.parametrize(("off", "belongs"), [(99.5, True), (100.5, False)])
def test_a_difference_belongs_to_a_lattice_within_a_hundred_times_the_rounding(off: float, belongs: bool) -> None:
    vectors = np.array([[3.0, 1.0], [3.0 + off * 1e-7, 1.0]])
    assert _belongs(vectors, np.array([[3.0, 0.0], [0.0, 1.0]]), 1e-7).tolist() == [True, belongs]


@pytest.mark.parametrize(("cosine", "n_parts"), [(0.9e-6, 2), (1.2e-6, 1)])
def test_directions_are_parts_of_their_own_if_they_are_orthogonal_but_for_rounding(cosine: float, n_parts: int) -> None:
    assert len(_parts(np.array([[2.0, 0.0], [3 * cosine, 3.0]]))) == n_parts


def test_a_basis_that_does_not_fall_into_lines_is_shuffled_six_times() -> None:
    simplex = np.array([[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]])
    rng, after = np.random.default_rng(0), np.random.default_rng(0)
    assert [part.shape for part in orthogonal_parts(simplex, rng=rng)] == [(2, 3)]
    for _ in range(6):
        after.permutation(2)
    assert rng.bit_generator.state == after.bit_generator.state


@pytest.mark.parametrize(("vectors", "belongs"), [([[1 + 1e-8, 0.0]], True), ([[0.5, 0.5]], False)])
def test_a_basis_is_not_refitted_to_differences_that_do_not_determine_it(
    vectors: list[list[float]], belongs: bool
) -> None:
    """One difference does not determine two vectors, and one off the lattice is none to refit to."""
    assert _belongs(np.array(vectors), np.eye(2), 1e-7).tolist() == [belongs]
    np.testing.assert_array_equal(_refined(np.eye(2), np.array(vectors), 1e-7), np.eye(2))
    both = np.array([*vectors, [1.0, 0.0], [0.0, 1 + 1e-8]])
    np.testing.assert_allclose(_refined(np.eye(2), both, 1e-7), np.diag([1 + 0.5e-8 * belongs, 1 + 1e-8]), rtol=1e-12)


@pytest.mark.parametrize(("likelihood", "place"), [(4.9, 0.0), (4.7, 1.0)])
def test_the_anchors_mean_tells_where_the_first_row_is_on_a_line(
    likelihood: float, place: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 0 and 1 the shift would be 2 and 1, where 0.3 is seen: a difference of 2 (1.7² − 0.7²) = 4.8."""
    monkeypatch.setattr(
        lattice,
        "_likelihoods",
        lambda *parts: (np.array([likelihood, 0.0]) - 99 * (parts[4] < 0), np.array([0.0, 1.0])),
    )
    side = LatticeRows(np.array([[2.0], [3.0]]), np.zeros(2, dtype=np.intp), (Line(np.ones(1), 1.0),), ())
    anchored = AnchorStatistics(np.zeros((1, 1)), np.array([0.3]), 4.0)
    ((_, _, sign, at),) = lattice._lines_named(side, side, anchored)
    assert (sign, at) == (1.0, place)


@pytest.mark.parametrize(("agreement", "sign"), [(1.1, 1.0), (0.9, -1.0)])
def test_the_anchor_tells_which_way_a_line_points(
    agreement: float, sign: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values are likelier by two if the line is turned round, and the anchor agrees with it as it is."""
    monkeypatch.setattr(
        lattice, "_likelihoods", lambda *parts: (np.array([2.0 * (parts[4] < 0)]), np.array([2.0 * parts[4]]))
    )
    side = LatticeRows(np.array([[2.0], [3.0]]), np.zeros(2, dtype=np.intp), (Line(np.ones(1), 1.0),), ())
    anchored = AnchorStatistics(np.array([[agreement]]), np.zeros(1), 4.0)
    ((_, _, way, _),) = lattice._lines_named(side, side, anchored)
    assert way == sign


def test_a_line_may_be_any_feature_of_its_step_or_a_constant_one_and_a_simplex_points_one_way() -> None:
    """The first of three features is constant among known rows, and only the third has the step of the line."""
    rng = np.random.default_rng(0)
    agreement, steps = rng.standard_normal((3, 3)), np.array([0.0, 0.5, 0.6])
    line = _Directions(np.array([[0.6, 0.0, 0.8]]), np.array([0.3])).scores(agreement, steps)
    along = line[0, 0, [0, 2]]
    np.testing.assert_allclose(along, agreement[[0, 2]] @ [0.6, 0.0, 0.8])
    np.testing.assert_allclose(line[1, 0, [0, 2]], -along)
    assert line[:, 0, 1].tolist() == [IMPOSSIBLE] * 2
    vectors, sides = rng.standard_normal((2, 3)), np.array([0.5 * (1 + 0.9e-5), 0.4])
    simplex = _Directions(vectors, sides).scores(agreement, steps)
    np.testing.assert_allclose(simplex[0, :, 0], vectors @ agreement[0])
    assert simplex[0, 0, 1] == pytest.approx(vectors[0] @ agreement[1])
    assert simplex[0, [1, 0, 1], [1, 2, 2]].tolist() == [IMPOSSIBLE] * 3
    assert (simplex[1] == IMPOSSIBLE).all()


def test_a_feature_that_is_constant_among_known_rows_has_no_step() -> None:
    known = np.array([[0.0, 5.0], [0.6, 5.0], [0.9, 5.0]])
    assert _steps(known, np.random.default_rng(0)) == pytest.approx([0.3, 0.0])
