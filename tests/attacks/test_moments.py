"""Moments: what it achieves, and each part of it against what can be computed in another way."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from mooring import RigidMap
from mooring.attacks import DoesNotApply, Effort, moment_search, run
from mooring.attacks.class_moments import ClassMoments, third_moments
from mooring.attacks.moment_matching import _UNTRUSTED, AnchorEvidence, MomentMatch
from mooring.attacks.moment_search import (
    Minima,
    MomentRows,
    _class_axes,
    _Signs,
    _starts,
    _with_better_signs,
    minimise,
)
from mooring.audit.rotation.simulation import RowSimulation, simulate
from mooring.geometry import polar_factor, sample_orthogonal
from mooring.geometry.backend import to_numpy
from mooring.metrics import centred_error

joint_moments: Any = import_module("mooring.attacks.joint_moments")  # the package has a function of this name
H = 8
SEEDS = range(5)


def gaussian_classes(
    n_participants: int, n_rows: int, h: int, *, seed: int, n_classes: int = 3, narrowest: float = 0.3
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Rows of Gaussian classes with means and covariances of their own, the same at every participant."""
    rng = np.random.default_rng(seed)
    means = 1.5 * rng.standard_normal((n_classes, h))
    spreads = [sample_orthogonal(h, rng=rng) * np.geomspace(3, narrowest, h) for _ in range(n_classes)]
    rows, labels = [], []
    for _ in range(n_participants):
        codes = rng.integers(0, n_classes, n_rows)
        rows.append(means[codes] + np.einsum("nij,nj->ni", np.stack(spreads)[codes], rng.standard_normal((n_rows, h))))
        labels.append(codes)
    return rows, labels


@cache
def large(method: str, seed: int) -> RowSimulation:
    """Four participants of 600 rows, where the anchor noise is so strong that the anchor says next to nothing."""
    rows, labels = gaussian_classes(4, 600, H, seed=seed)
    v = 0.5 if method == "aa-i-gdp-anchor-noise" else 0.0
    return simulate(rows, labels, method=method, n_components=H, anchor_noise_scale=v, rng=np.random.default_rng(seed))


@cache  # tests compare with the same attacks
def error(attack: str, simulation: RowSimulation, **options: Any) -> float:
    rebuilt = run(attack, simulation.view(**options), rng=np.random.default_rng(0))
    return centred_error(simulation.private_data[1], rebuilt.rows)


@pytest.mark.parametrize("seed", SEEDS)
def test_moments_go_through_anchor_noise_that_stops_procrustes(seed: int) -> None:
    simulation = large("aa-i-gdp-anchor-noise", seed)
    by_anchor, by_moments = error("procrustes", simulation), error("moments", simulation)
    assert by_anchor > 0.7
    assert by_moments < 0.1
    assert by_moments < by_anchor / 8


def test_moments_need_no_anchor() -> None:
    """Without an anchor to start from, some draws of the classes end in a local optimum; most do not."""
    errors = [error("moments", large("i-gdp", seed)) for seed in SEEDS]
    assert sorted(errors)[2] < 0.1
    assert max(errors) < 0.8


def test_moments_need_no_labels() -> None:
    errors = [error("moments", large("aa-i-gdp-anchor-noise", seed), with_labels=False) for seed in SEEDS]
    assert np.median(errors) < 0.25
    assert max(errors) < 0.4


def test_labels_help() -> None:
    for seed in SEEDS:
        simulation = large("aa-i-gdp-anchor-noise", seed)
        assert error("moments", simulation) < 0.7 * error("moments", simulation, with_labels=False)


def test_colluders_that_pool_their_rows_come_closer() -> None:
    by_one, three = (
        [error("moments", large("aa-i-gdp-anchor-noise", seed), **options) for seed in SEEDS]
        for options in ({}, {"colluders": (0, 2, 3)})
    )
    assert np.mean(three) < 0.9 * np.mean(by_one)


def test_everybodys_uploads_help_where_the_colluder_has_few_rows() -> None:
    alone, together = [], []
    for seed in range(2):
        rows, labels = gaussian_classes(12, 25, 6, seed=seed)
        rng = np.random.default_rng(seed)
        simulation = simulate(
            rows, labels, method="aa-i-gdp-anchor-noise", n_components=6, anchor_noise_scale=0.3, rng=rng
        )
        alone.append(error("moments", simulation))
        together.append(error("joint-moments", simulation))
    assert np.mean(together) < 0.75 * np.mean(alone)
    assert all(joint < single for joint, single in zip(together, alone, strict=True))


def test_a_colluder_without_labels_does_not_mislead() -> None:
    """Labels of one side alone cannot be compared: the attack must go on as if there were none, not take all for class 0."""
    ratios = []
    for seed in SEEDS:
        simulation = large("aa-i-gdp-anchor-noise", seed)
        whole = simulation.view()
        lacking = replace(whole, labels=(None, *whole.labels[1:]))
        lost = centred_error(simulation.private_data[1], run("moments", lacking, rng=np.random.default_rng(0)).rows)
        ratios.append(lost / error("moments", simulation, with_labels=False))
    assert max(ratios) < 1.01


@pytest.mark.parametrize(
    ("attack", "colluders"), [("moments", (0,)), ("moments", (0, 2, 3)), ("joint-moments", (0,)), ("procrustes", (0,))]
)
def test_the_predicted_row_error_is_near_the_actual_one(attack: str, colluders: tuple[int, ...]) -> None:
    """Within a factor of three, in root mean square over a row."""
    v = 0.3 if attack == "moments" else 0.1
    for seed in range(2):
        rows, labels = gaussian_classes(4, 300, H, seed=seed)
        rng = np.random.default_rng(seed)
        simulation = simulate(
            rows, labels, method="aa-i-gdp-anchor-noise", n_components=H, anchor_noise_scale=v, rng=rng
        )
        rebuilt = run(attack, simulation.view(colluders=colluders), rng=rng)
        actual = np.sqrt(np.mean(np.sum((rebuilt.rows - rows[1]) ** 2, axis=1)))
        assert 1 / 3 < np.sqrt(np.trace(rebuilt.row_error)) / actual < 3


def test_without_anchor_noise_the_anchor_alone_does_it() -> None:
    simulation = large("aa-i-gdp", 0)
    for attack in ("moments", "joint-moments"):
        rebuilt = run(attack, simulation.view(), rng=np.random.default_rng(0))
        assert np.allclose(rebuilt.rows, simulation.private_data[1], atol=1e-9)
        (note,) = rebuilt.notes
        assert "anchor alone" in note


# ------------------------------------------------------------------------------------------------ the labels as codes


def test_numbers_for_labels_are_cut_into_groups_that_all_participants_share() -> None:
    rows, _ = gaussian_classes(3, 100, 4, seed=0)
    labels = [part[:, 0] for part in rows]
    view = simulate(rows, labels, method="i-gdp", n_components=4, rng=np.random.default_rng(0)).view()
    codes = np.concatenate(view.class_codes())
    assert np.array_equal(np.unique(codes), np.arange(5))
    assert np.bincount(codes).min() >= 55
    order = np.argsort(np.concatenate(labels))
    assert (np.diff(codes[order]) >= 0).all()
    assert np.isfinite(run("moments", view, rng=np.random.default_rng(0)).rows).all()


@pytest.mark.parametrize(
    "names", [np.array([7, -3, 20]), np.array([0.5, 1.5, 2.5]), np.array(["a", "c", "b"])], ids=["int", "float", "text"]
)
def test_few_values_are_classes_whatever_their_type(names: np.ndarray) -> None:
    rows, labels = gaussian_classes(3, 40, 4, seed=0)
    simulation = simulate(
        rows, [names[part] for part in labels], method="i-gdp", n_components=4, rng=np.random.default_rng(0)
    )
    order = np.argsort(np.argsort(names))
    for codes, part in zip(simulation.view().class_codes(), labels, strict=True):
        assert np.array_equal(codes, order[part])


@pytest.mark.parametrize(("n_values", "kind", "n_codes"), [(20, float, 20), (21, float, 5), (21, int, 21)])
def test_numbers_of_more_than_twenty_values_are_cut_into_five_groups_of_a_size(
    n_values: int, kind: type, n_codes: int
) -> None:
    labels = (np.arange(5 * n_values) % n_values).astype(kind)
    view = simulate([np.ones((labels.size, 2))] * 2, [labels] * 2, method="i-gdp", rng=np.random.default_rng(0)).view()
    sizes = np.bincount(view.class_codes()[0])
    assert sizes.size == n_codes
    assert np.ptp(sizes) <= 5


def test_without_labels_all_rows_are_of_one_class() -> None:
    view = large("i-gdp", 0).view(with_labels=False)
    assert view.class_codes() == (None,) * 4
    assert np.array_equal(view.codes_of([0, 2]), np.zeros(1200))
    whole = large("i-gdp", 0).view()
    assert np.array_equal(whole.codes_of([2, 0]), np.concatenate([whole.labels[2], whole.labels[0]]))
    lacking = replace(whole, labels=(whole.labels[0], None, *whole.labels[2:]))
    assert np.array_equal(lacking.codes_of([0]), np.zeros(600))  # the target's are not known


# ---------------------------------------------------------------------------------------------------------- the parts


def moments_of(rows: np.ndarray, codes: np.ndarray, n_classes: int) -> ClassMoments:
    """By NumPy's own mean and covariance."""
    parts = [rows[codes == k] for k in range(n_classes)]
    return ClassMoments(
        np.array([len(part) for part in parts], dtype=float),
        np.stack([part.mean(axis=0) if len(part) else np.zeros(rows.shape[1]) for part in parts]),
        np.stack([np.cov(part.T, bias=True) if len(part) > 1 else np.zeros((rows.shape[1],) * 2) for part in parts]),
    )


def check_equal(got: ClassMoments, expected: ClassMoments) -> None:
    assert np.array_equal(got.counts, expected.counts)
    assert np.allclose(to_numpy(got.means), expected.means, atol=1e-12)
    assert np.allclose(to_numpy(got.covariances), expected.covariances, atol=1e-12)


@pytest.fixture
def samples() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Two sets of rows over five classes: one empty, one of a single row, one that only the second set has."""
    rng = np.random.default_rng(0)
    codes, other_codes = np.array([0] * 9 + [1] * 6 + [2]), np.array([0] * 4 + [1] + [2] * 3 + [3] * 5)
    rows = rng.standard_normal((16, 3)) * [3, 1, 0.2] + codes[:, None]
    other = rng.standard_normal((13, 3)) - 2 * other_codes[:, None]
    return rows, codes, other, other_codes


def test_class_moments_are_those_of_numpy(samples: Any, on_backend: Callable[[Any], Any]) -> None:
    rows, codes, _, _ = samples
    got, expected = ClassMoments.of(on_backend(rows), codes, 5), moments_of(rows, codes, 5)
    check_equal(got, expected)
    assert got.n_rows == 16
    assert np.allclose(to_numpy(got.overall_mean), rows.mean(axis=0))
    within = sum((codes == k).sum() / 16 * expected.covariances[k] for k in range(5))
    assert np.allclose(to_numpy(got.within), within)


def test_merged_moments_are_those_of_all_rows_together(samples: Any) -> None:
    rows, codes, other, other_codes = samples
    expected = moments_of(np.concatenate([rows, other]), np.concatenate([codes, other_codes]), 5)
    moments_of_classes, two = ClassMoments.of(rows, codes, 5), ClassMoments.of(other, other_codes, 5)
    check_equal(moments_of_classes.merged(two), expected)
    check_equal(two.merged(moments_of_classes), expected)


def test_moments_seen_from_elsewhere_are_those_of_the_moved_rows(samples: Any) -> None:
    rows, codes, _, _ = samples
    rng = np.random.default_rng(1)
    axes, origin = sample_orthogonal(3, rng=rng), rng.standard_normal(3)
    got = ClassMoments.of(rows, codes, 3).seen_from(origin, axes)
    check_equal(got, moments_of((rows - origin) @ axes, codes, 3))


def test_moments_with_noise_are_those_of_noisy_rows_on_average(samples: Any) -> None:
    rows, codes, _, _ = samples
    plain = ClassMoments.of(rows, codes, 3)
    assert plain.with_noise(0.0) is plain
    noisy = plain.with_noise(0.49)
    assert np.array_equal(noisy.means, plain.means)
    assert np.allclose(noisy.covariances - plain.covariances, 0.49 * np.eye(3), atol=1e-14)
    many, rng = np.tile(rows, (4000, 1)), np.random.default_rng(2)
    drawn = ClassMoments.of(many + 0.7 * rng.standard_normal(many.shape), np.tile(codes, 4000), 3)
    assert np.allclose(drawn.covariances, noisy.covariances, atol=0.08)


def test_only_some_classes(samples: Any) -> None:
    rows, codes, _, _ = samples
    got = ClassMoments.of(rows, codes, 5).only(np.array([2, 0]))
    expected = moments_of(rows, codes, 5)
    check_equal(got, ClassMoments(expected.counts[[2, 0]], expected.means[[2, 0]], expected.covariances[[2, 0]]))


def matched(*, with_anchor: bool, smoothing: float, h: int = 4) -> tuple[MomentMatch, RigidMap]:
    rng = np.random.default_rng(3)
    rows, labels = gaussian_classes(2, 50, h, seed=4)
    secret = RigidMap.sample(h, rng=rng)
    v, r = 0.4, 16
    evidence = AnchorEvidence(
        (secret.orthogonal + v * rng.standard_normal((h, h)))[None],
        (secret.translation + v / np.sqrt(r) * rng.standard_normal(h))[None],
        np.array([v]),
        r,
    )
    population = ClassMoments.of(rows[0], labels[0], 3)
    target = ClassMoments.of(secret.apply(rows[1]), labels[1], 3)
    return MomentMatch(population, target, evidence if with_anchor else None, smoothing=smoothing), secret


def test_a_precise_anchor_does_not_stiffen_the_other_draws() -> None:
    rows, labels = gaussian_classes(2, 50, 4, seed=4)
    moments = [ClassMoments.of(part, codes, 3) for part, codes in zip(rows, labels, strict=True)]

    def curvature(*scales: float) -> np.ndarray:
        n = len(scales)
        evidence = AnchorEvidence(np.stack([np.eye(4)] * n), np.zeros((n, 4)), np.array(scales), 16)
        return MomentMatch(*moments, evidence).turn_curvature

    assert np.allclose(curvature(1e-6, 0.4)[1], curvature(0.4)[0])


@pytest.mark.parametrize("with_anchor", [True, False])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_the_gradient_is_that_of_the_value(with_anchor: bool, smoothing: float) -> None:
    """Along every turn and every shift, by central differences."""
    match, _ = matched(with_anchor=with_anchor, smoothing=smoothing)
    rng, h, step = np.random.default_rng(5), 4, 1e-5
    for _ in range(3):
        O, shift = sample_orthogonal(h, rng=rng, batch_shape=(1,)), rng.standard_normal((1, h))
        gradient = match.evaluate((O, shift)).gradient[0]
        for i in range(h):
            unit = np.eye(h)[i]
            up, down = (match.evaluate((O, shift + sign * step * unit)).value[0] for sign in (1, -1))
            assert gradient[h * h + i] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-4)
            for j in range(i):
                skew = np.outer(unit, np.eye(h)[j]) - np.outer(np.eye(h)[j], unit)
                up, down = (match.evaluate((O @ expm(sign * step * skew), shift)).value[0] for sign in (1, -1))
                assert gradient[: h * h] @ skew.ravel() == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-4)


@pytest.mark.parametrize("with_anchor", [True, False])
def test_the_value_is_the_negative_log_likelihood_up_to_a_constant(with_anchor: bool) -> None:
    """By the formula, from rows mapped back; the shrinkage is small enough here to be seen through."""
    h, n = 3, 4000
    rng = np.random.default_rng(6)
    rows, labels = gaussian_classes(2, n, h, seed=7, narrowest=2.0)
    secret = RigidMap.sample(h, rng=rng)
    A = np.linalg.qr((draws := rng.standard_normal((12, h))) - draws.mean(axis=0))[0]
    v = 0.3
    B = secret.apply(A) + v * rng.standard_normal(A.shape)
    Y = secret.apply(rows[1])
    centre = B.mean(axis=0)
    evidence = AnchorEvidence((A.T @ (B - centre))[None], centre[None], np.array([v]), 12) if with_anchor else None
    match = MomentMatch(ClassMoments.of(rows[0], labels[0], 3), ClassMoments.of(Y, labels[1], 3), evidence)

    def by_formula(map: RigidMap) -> float:
        both, codes = np.concatenate([rows[0], map.invert(Y)]), np.concatenate(labels)
        fit = sum(
            (codes == k).sum() / 2 * np.linalg.slogdet(np.cov(both[codes == k].T, bias=True))[1] for k in range(3)
        )
        return fit + (np.sum((B - map.apply(A)) ** 2) / (2 * v**2) if with_anchor else 0.0)

    gaps = []
    for size in (0.0, 0.05, 0.1, 0.3):
        O = polar_factor(secret.orthogonal + size * rng.standard_normal((h, h)))
        map = RigidMap(O, secret.translation + size * rng.standard_normal(h))
        shift = (map.translation - match.centre_y) @ match.axes_y
        if not with_anchor:
            shift = (map.translation + match.centre_x @ O - match.centre_y) @ match.axes_y
        value = match.evaluate((match.from_orthogonal(O)[None], shift[None])).value[0]
        back = match.to_map(match.from_orthogonal(O), shift)
        assert np.allclose(back.orthogonal, O)
        assert np.allclose(back.translation, map.translation)
        gaps.append((value, by_formula(map)))
    values, expected = np.array(gaps).T
    assert np.allclose(values - values[0], expected - expected[0], rtol=0.02, atol=2.0)
    assert values[-1] - values[0] > 100


def test_a_turn_beyond_the_limit_is_shortened_to_it_and_its_shift_alike() -> None:
    match, _ = matched(with_anchor=True, smoothing=0.0)
    turn = np.zeros((4, 4))
    turn[0, 1], turn[1, 0] = 3.0, -3.0
    tangent = np.r_[turn.ravel(), 1.0, 2.0, 0.0, 0.0][None]
    assert np.allclose(match.limit_turns(tangent, np.array([0.6])), 0.2 * tangent)
    assert np.array_equal(match.limit_turns(tangent, np.array([3.5])), tangent)


@pytest.mark.parametrize("rows", [np.ones((6, 3)), 1e9 + np.zeros((6, 3)), np.zeros((6, 3))])
def test_rows_that_do_not_vary_within_classes_have_a_ridge_of_one(rows: np.ndarray) -> None:
    flat = ClassMoments.of(rows, np.zeros(6, dtype=int), 1)
    assert MomentMatch(flat, flat, None).ridge == 1.0


def test_third_moments_along_an_axis_without_variation_are_nought() -> None:
    rows = np.random.default_rng(0).standard_normal((20, 3)) * [1.0, 0.0, 2.0]
    moments = third_moments(rows, np.arange(20) % 2, np.eye(3))
    assert np.array_equal(np.flatnonzero(moments.any(axis=0)), [0, 2])


@pytest.mark.parametrize("h", [1, 2, 7])
def test_the_ridge_is_that_of_oracle_approximating_shrinkage(h: int) -> None:
    """Chen et al. 2010, eq. 23, by eigenvalues; and a share of the mean variance beside it."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((30, h)) @ np.diag(np.linspace(0.01, 0.04, h))
    both = ClassMoments.of(rows, np.zeros(30, dtype=int), 1)
    values = np.linalg.eigvalsh(both.within)
    spherical = (1 - 2 / h) * (values**2).sum() + values.sum() ** 2
    shrinkage = min(0.9, spherical / ((60 + 1 - 2 / h) * h * values.var())) if h > 1 else 0.9
    expected = shrinkage / (1 - shrinkage) + _UNTRUSTED * h / 60
    assert MomentMatch(both, both, None).ridge == pytest.approx(expected * values.mean(), rel=1e-6)


@pytest.mark.parametrize(("n_colluder", "n_target"), [(2, 2), (1, 2), (2, 1)])
def test_two_rows_on_either_side_are_enough_and_one_is_not(n_colluder: int, n_target: int) -> None:
    rng = np.random.default_rng(0)
    parts = [rng.standard_normal((n, 2)) for n in (n_colluder, n_target)]
    view = simulate(parts, method="i-gdp", rng=rng).view(colluders=(0,), target=1)
    if min(n_colluder, n_target) < 2:
        with pytest.raises(DoesNotApply):
            run("moments", view, rng=rng)
    else:
        assert np.isfinite(run("moments", view, rng=rng).rows).all()


@pytest.mark.parametrize(
    ("skewed", "pull", "turned"), [(True, 0, True), (False, 0, False), (True, 0.1, True), (True, 1, False)]
)
def test_axes_that_third_moments_vote_against_are_turned_round(skewed: bool, pull: float, turned: bool) -> None:
    """Means and covariances cannot tell an axis from its opposite; third moments can, if the rows are skewed.

    Not against an anchor that pulls as much the other way.
    """
    rng = np.random.default_rng(0)
    draw = rng.gamma(1.0, 1.0, (2, 300, 3)) - 1 if skewed else rng.standard_normal((2, 300, 3))
    rows, secret = draw * [3.0, 2.0, 1.0], RigidMap.sample(3, rng=rng)
    codes, flipped = np.zeros(300, dtype=int), np.array([1.0, -1.0, -1.0])
    sides = [MomentRows(side, codes, ClassMoments.of(side, codes, 1)) for side in (rows[0], secret.apply(rows[1]))]
    match = MomentMatch(sides[0].moments, sides[1].moments, None)
    right, signs = match.from_orthogonal(secret.orthogonal), _Signs(match, *sides)
    if pull:
        against = match.axes_x @ (right * flipped) @ match.axes_y.T
        v = np.sqrt(4 / pull / -signs.votes(right * flipped)[1:].sum())  # turning two axes costs 2 / v² each
        evidence = AnchorEvidence(against[None], secret.translation[None], np.array([v]), 12)
        match = MomentMatch(sides[0].moments, sides[1].moments, evidence)
    wrong = minimise(match, (right * flipped)[None], match.anchor_shift, 100)
    match_after = _with_better_signs(match, signs, wrong, 100, n_rounds=2)
    assert np.array_equal(np.sign((match_after.orthogonal[0] * right).sum(axis=0)), np.ones(3) if turned else flipped)


def test_classes_that_both_sides_have_are_matched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those of one row on either side."""
    matched = []

    def match(population: ClassMoments, seen: ClassMoments, evidence: Any) -> None:
        matched.append([population.counts.tolist(), seen.counts.tolist()])
        raise ArithmeticError

    monkeypatch.setattr(joint_moments, "MomentMatch", match)
    rng = np.random.default_rng(0)
    population, seen = (
        ClassMoments.of(rng.standard_normal((len(codes), 3)), np.array(codes), 4)
        for codes in ([0, 0, 0, 1, 3, 3], [0, 1, 1, 2, 2, 2])
    )
    with pytest.raises(ArithmeticError):
        joint_moments._matched(population, seen, None, None, (1, 1))
    assert matched == [[[3, 1], [1, 2]]]


def test_other_participants_are_used_if_they_have_labels_like_the_target_and_colluders() -> None:
    others = joint_moments._others
    labels = [np.arange(8) % 2] * 6
    labels[3] = None  # type: ignore[call-overload]
    simulation = simulate([np.ones((8, 2))] * 6, labels, method="i-gdp", rng=np.random.default_rng(0))
    view, rng = simulation.view((0,), 2), np.random.default_rng(0)
    assert others(view, rng) == [1, 4, 5]
    assert others(simulation.view((0, 1), 3), rng) == [2, 4, 5]
    assert others(simulation.view((0,), 2, with_labels=False), rng) == [1, 3, 4, 5]
    few = replace(view, effort=Effort(joint_participants=2))
    assert others(few, rng) == [1, 4, 5]  # without noise on the anchor all maps are known
    chosen = [others(replace(few, anchor_noise_scale=0.1), np.random.default_rng(seed)) for seed in range(20)]
    assert {tuple(some) for some in chosen} == {(1, 4), (1, 5), (4, 5)}
    assert others(replace(few, anchor_noise_scale=0.1, effort=Effort(joint_participants=3)), rng) == [1, 4, 5]


@pytest.mark.parametrize(
    ("votes", "gain", "turned"),
    [
        ([-4.1, -3.9, 5.0], 4.1, [-1, 1, 1]),
        ([-4.1, -3.9, 5.0], 3.9, [1, 1, 1]),
        ([-9.0, 0.5, -4.5], 9.0, [-1, 1, -1]),
        ([-3.9, -3.9, 0.0], 9.0, [1, 1, 1]),
    ],
)
def test_an_axis_is_turned_round_by_a_vote_of_more_than_four_and_for_a_gain_of_more_than_four(
    votes: list[float], gain: float, turned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In units of log-likelihood. A gain is that of the value and of half of the agreement with the votes."""
    signs: Any = SimpleNamespace(
        votes=lambda O: np.array([votes]), agreement=lambda O: np.where(O[:, 0, 0] < 0, gain - 1.0, 0.0)
    )
    match: Any = SimpleNamespace(pull=np.zeros((1, 3, 3)), select=lambda draws: None)
    monkeypatch.setattr(moment_search, "minimise", lambda match, O, shift, limit: Minima(O, shift + 1, np.array([1.0])))
    start = Minima(np.eye(3)[None], np.zeros((1, 3)), np.array([2.0]))
    result = _with_better_signs(match, signs, start, 9, n_rounds=1)
    assert np.diagonal(result.orthogonal[0]).tolist() == turned
    is_turned = min(turned) < 0
    assert result.shift.tolist() == [[float(is_turned)] * 3]
    assert result.value.tolist() == [1.0 if is_turned else 2.0]


def test_axes_of_the_four_classes_with_the_most_rows_on_both_sides_are_starts() -> None:
    rng = np.random.default_rng(0)
    counts = np.array([[9.0, 2, 7, 8, 90, 6], [5.0, 9, 7, 8, 1, 60]])
    first, second = (
        ClassMoments(sizes, rng.standard_normal((6, 2)), np.stack([np.diag([1.0, 2.0])] * 6)) for sizes in counts
    )
    assert list(_class_axes(MomentMatch(first, second, None))) == [f"axes of class {k}" for k in (3, 2, 5, 0)]


@pytest.mark.parametrize(("h", "n_starts"), [(150, 2), (151, 1)])
def test_of_more_than_150_components_no_class_has_starts_of_its_own(
    h: int, n_starts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(moment_search, "plain_starts", lambda match: {})
    monkeypatch.setattr(moment_search, "_class_axes", lambda match: {"axes of class 0": None})
    monkeypatch.setattr(moment_search, "_levels", lambda match: (np.ones(h), np.ones(h)))
    side = SimpleNamespace(means=np.zeros((1, h)))
    match: Any = SimpleNamespace(
        pull=np.zeros((1, 1, 1)), n_components=h, paired_counts=np.ones(1), population=side, target=side
    )
    signs: Any = SimpleNamespace(votes=lambda O: np.zeros(h))
    assert len(_starts(match, signs)) == n_starts


def moments_of_spread(variance: np.ndarray, mean: float = 0.0) -> ClassMoments:
    """Moments of a hundred rows of one class."""
    return ClassMoments(np.array([100.0]), np.full((1, len(variance)), mean), np.diag(variance)[None])


@pytest.mark.parametrize(("share", "varies"), [(0.9, False), (1.2, True)])
def test_variances_below_the_rounding_of_large_numbers_count_as_none(share: float, varies: bool) -> None:
    """The limit is 1e-20 of the mean square of both sides' means in all columns."""
    side = moments_of_spread(np.ones(2), mean=float(np.sqrt(1 / (2 * share * 1e-20))))
    assert (MomentMatch(side, side, None).ridge != 1.0) == varies


def test_a_turn_that_no_moment_determines_has_a_ten_millionth_of_the_largest_curvature() -> None:
    """The first two columns have one variance and no mean; the third has another variance."""
    side = moments_of_spread(np.array([1.0, 1.0, 4.0]))
    curvature = MomentMatch(side, side, None).turn_curvature
    assert np.min(curvature) == pytest.approx(1e-7 * np.max(curvature), rel=1e-3)
    assert np.sort(curvature.ravel())[-4] == pytest.approx(np.max(curvature))


def test_other_maps_are_sought_on_a_smoothed_objective_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smoothing is three tenths of the mean variance; from a start it is left out."""
    asked: list[tuple[str, float, int]] = []
    ridge = MomentMatch(side := moments_of_spread(np.array([1.0, 2.0, 4.0])), side, None).ridge
    kept = {name: getattr(joint_moments, name) for name in ("minimise", "minimise_each")}

    def spy(name: str) -> Callable[..., Any]:
        def minimise(match: MomentMatch, *rest: Any) -> Any:
            asked.append((name, match.ridge, rest[-1]))
            return kept[name](match, *rest)

        return minimise

    evidence = AnchorEvidence(np.eye(3)[None], np.zeros((1, 3)), np.array([0.3]), 12)
    for name in kept:
        monkeypatch.setattr(joint_moments, name, spy(name))
    joint_moments._matched(side, side, evidence, None, (2, 3))
    joint_moments._matched(side, side, evidence, RigidMap(np.eye(3), np.zeros(3)), (2, 3))
    smoothed = ("minimise_each", pytest.approx(0.3 * 7 / 3), 2)
    assert ridge < 0.3
    assert asked == [smoothed, *[("minimise", ridge, 3)] * 2]
