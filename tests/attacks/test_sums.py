"""One contract that every attack on sums keeps, in every view; and that each is strong where it must be."""

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring.attacks import DoesNotApply, LabelledFeatures, MembershipScores, SumView, attacks_on, run
from mooring.attacks.sums.class_of_one import class_of_one
from mooring.attacks.sums.column_space import column_space
from mooring.attacks.sums.leverage import measure_leverage, score_without_sums
from mooring.attacks.sums.pairwise_register import pairwise_register
from mooring.attacks.sums.register import register, solve_register
from mooring.attacks.sums.whitened_difference import whitened_difference
from mooring.audit import SumSimulation, simulate_sums
from mooring.errors import InputError
from mooring.mechanisms.sums.guarantee import SumPrivacy
from mooring.metrics import Membership
from tests.attacks.test_contract import arrays_of, check_sentence, holds
from tests.raising import numbers_in, raising
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
RNG = np.random.default_rng(0)
P, WIDTH = 4, 9
N_ROWS = {"few rows": 2, "one honest": 4}
NOISY = ("noise", "much noise")
VIEWS = (
    "plain",
    "noise",
    "much noise",
    "few rows",
    "one honest",
    "class of one",
    "value of one",
    "two classes",
    "number",
    "nobody",
)
# Views in which each attack must give scores, said here once more and apart from its own code.
CONTRACT = {
    "whitened-difference": {*VIEWS} - {"nobody"},
    "leverage": {*VIEWS},
    "column-space": {"few rows", "one honest"},
    "class-of-one": {"class of one", "noise"},
    "value-of-one": {"value of one"},
    "register": {*VIEWS},
}
# The least area under the ROC that each attack must reach; rows of 9 columns, 180 of them unless they are few.
STRONG = [
    ("whitened-difference", "one honest", 0.99),
    ("whitened-difference", "two classes", 0.57),
    ("leverage", "plain", 0.65),
    ("leverage", "few rows", 0.99),
    ("column-space", "few rows", 1.0),
    ("column-space", "one honest", 1.0),
    ("class-of-one", "class of one", 1.0),
    ("class-of-one", "noise", 1.0),
    ("register", "plain", 0.72),
    ("register", "few rows", 1.0),
]


@cache
def simulated(name: str) -> tuple[SumSimulation, LabelledFeatures, int]:
    """A study, its candidates with the honest rows first, and how many those are."""
    rng = np.random.default_rng(5)
    n, K = N_ROWS.get(name, 60), 0 if name == "number" else 2 if name == "two classes" else 4
    sizes = [n] * P + [60, 60]
    rows = [rng.standard_normal((n, WIDTH)) for n in sizes]
    labels = [rng.uniform(-1, 1, n) if K == 0 else np.arange(n) % 2 for n in sizes]
    if name == "value of one":
        for part in rows[:P]:
            part[:, :2] = 0.0
        rows[1][3, 0], rows[2][7, 1] = 0.4, -0.2  # each carried by one row
        rows[0][5, 0] = 0.3  # the colluder's, which it takes off
    if name in ("class of one", "noise"):
        labels[1][0] = labels[P][0] = labels[P + 1][1] = 3
    # with noise as small as that a class of one is still found, which no claim of privacy would cover
    privacy = SumPrivacy(3000 if name == "noise" else 1, 1e-5, P, 1) if name in NOISY else None
    values = np.arange(K) if K else np.array([-1.0, 1.0])
    simulation = simulate_sums(rows[:P], labels[:P], label_values=values, privacy=privacy, rng=rng)
    honest = simulation.members(range(P) if name == "nobody" else [i for i in range(P) if i not in colluders_of(name)])
    others = simulation.encode(rows[P:], labels[P:])
    both = [np.concatenate(pair) for pair in zip(*((r.features, r.outcomes) for r in (honest, others)), strict=True)]
    return simulation, LabelledFeatures(*both), len(honest.features)


def colluders_of(name: str) -> tuple[int, ...]:
    return {"nobody": (), "one honest": (0, 2, 3)}.get(name, (0,))


def view_of(name: str) -> SumView:
    simulation, candidates, _ = simulated(name)
    return simulation.view(colluders_of(name), asked=candidates)


def score(attack: str, view: SumView) -> np.ndarray:
    return run(attack, view, rng=RNG).scores  # type: ignore[union-attr]


def test_every_attack_is_under_this_contract() -> None:
    assert list(CONTRACT) == [attack.name for attack in attacks_on(SumView)]
    with raising(InputError, "attack", expected="leverage", got="'Leverage'"):
        score("Leverage", view_of("plain"))
    with raising(InputError, "view", expected="CollusionView"):
        run("procrustes", view_of("plain"), rng=RNG)
    with raising(InputError, "denoiser", problem="this attack is on sums"):
        run("leverage", view_of("plain"), rng=RNG, denoiser="gaussian")
    with raising(InputError, "asked"):
        score("leverage", simulated("plain")[0].view())


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("attack", CONTRACT)
def test_it_scores_candidates_where_it_must_and_says_why_not_elsewhere(attack: str, name: str) -> None:
    view, candidates = view_of(name), simulated(name)[1]
    try:
        scores = score(attack, view)
    except DoesNotApply as refusal:
        check_sentence(refusal)
        assert name not in CONTRACT[attack]
        return
    assert name in CONTRACT[attack]
    assert scores.shape == (len(candidates.features),)
    is_scored = np.ones(len(scores), dtype=np.bool_)
    if attack == "class-of-one":
        is_scored = candidates.outcomes.argmax(axis=1) == 3
    assert np.array_equal(np.isfinite(scores), is_scored)
    assert np.array_equal(scores, score(attack, view), equal_nan=True)


def test_scores_are_as_on_record() -> None:
    """The record holds a member's score, another row's and sums over all rows, for every attack in each of its views."""
    rates = {}
    for attack, views in CONTRACT.items():
        for name in sorted(views):
            _, _, n = simulated(name)
            scores = np.arcsinh(score(attack, view_of(name)))  # some are as large as 1e9
            finite_scores = scores[np.isfinite(scores)]
            rates[f"{attack}, {name}"] = [scores[0], scores[n], finite_scores.sum(), np.abs(finite_scores).sum()]
    check_record(RECORD, "sums", rates)


@pytest.mark.parametrize(("attack", "name", "least"), STRONG)
def test_it_tells_members_where_it_must(attack: str, name: str, least: float) -> None:
    _, _, n = simulated(name)
    scores = score(attack, view_of(name))
    members, others = scores[:n], scores[n:]
    assert Membership(members[np.isfinite(members)], others[np.isfinite(others)]).auc >= least


def test_noise_that_carries_a_guarantee_leaves_every_attack_near_chance() -> None:
    _, _, n = simulated("much noise")
    for attack in ("whitened-difference", "leverage", "register"):
        scores = score(attack, view_of("much noise"))
        assert Membership(scores[:n], scores[n:]).auc < 0.6
    control = score_without_sums(view_of("much noise")).scores
    assert abs(Membership(control[:n], control[n:]).auc - 0.5) < 0.12


def test_a_view_takes_off_what_colluders_know_and_holds_nothing_of_the_others() -> None:
    simulation = simulated("plain")[0]
    view = simulation.view((0, 2))
    phi = np.concatenate([simulation.members([i]).features for i in (1, 3)])
    y = np.concatenate([simulation.members([i]).outcomes for i in (1, 3)])
    assert np.allclose(view.honest.products, phi.T @ phi, atol=1e-12)
    assert np.allclose(view.joint_products(), (z := view.joint_features(LabelledFeatures(phi, y))).T @ z, atol=1e-9)
    assert np.allclose(view.class_sums()[-1] / view.constant, [60, 60, 0, 0])
    assert view.n_honest == 2
    secrets = [simulation.features[1], simulation.labels[1], simulation.contributions[1], phi]
    assert not any(
        holds(array, np.asarray(secret, dtype=np.float64)) for array in arrays_of(view) for secret in secrets
    )
    for colluders in ((0, 0), (4,), (0, 1, 2, 3)):
        with raising(InputError, "colluders"):
            simulation.view(colluders)


@pytest.mark.parametrize(("name", "counts"), [("plain", [90, 90, 0, 0]), ("two classes", [90, 90])])
def test_sums_by_class_are_those_of_its_rows(name: str, counts: list[int]) -> None:
    simulation, view = simulated(name)[0], view_of(name)
    members = simulation.members((1, 2, 3))
    codes = np.arange(180) % 2
    expected = np.column_stack([members.features[codes == k].sum(axis=0) for k in range(len(counts))])
    assert np.allclose(view.class_sums(), expected, atol=1e-9)
    assert np.allclose(view.class_sums()[-1] / view.constant, counts)


@pytest.mark.parametrize("name", ["plain", "two classes", "number"])
def test_joint_products_are_those_of_features_and_labels(name: str) -> None:
    """A number's square is not shared."""
    view, members = view_of(name), simulated(name)[0].members((1, 2, 3))
    both = view.joint_features(members)
    assert both.shape[1] - members.features.shape[1] == {"plain": 3, "two classes": 1, "number": 0}[name]
    np.testing.assert_allclose(view.joint_products(), both.T @ both, atol=1e-9)


def difference(share: float, noise: float, scale: float = 1.0) -> tuple[float, LabelledFeatures]:
    """The score of a row of which a share is in the sums, beside as many rows as are known of the population; the row."""
    rng = np.random.default_rng(0)
    known = LabelledFeatures(scale * rng.standard_normal((40, 4)), scale * rng.standard_normal((40, 2)))
    row = LabelledFeatures(rng.standard_normal((1, 4)), rng.standard_normal((1, 2)))
    products, outcomes = (
        known.features.T @ part + share * row.features.T @ values
        for part, values in ((known.features, row.features), (known.outcomes, row.outcomes))
    )
    honest = SimpleNamespace(products=products, outcomes=outcomes, n_rows=40, noise_scales=(noise, noise))
    view: Any = SimpleNamespace(require_population=lambda: known, honest=honest, candidates=row)
    return float(whitened_difference(view, rng=RNG).scores[0]), row


def test_a_row_half_of_which_is_in_the_sums_is_neither_in_nor_out() -> None:
    """The log-likelihood ratio of two Gaussians of one spread is nought half way between their means."""
    out, half, inside = (difference(share, 0.3)[0] for share in (0.0, 0.5, 1.0))
    assert out < -0.01 < 0.01 < inside
    assert half == pytest.approx(0.0, abs=1e-9)


def test_where_noise_is_all_there_is_a_row_counts_by_its_length_in_units_of_noise() -> None:
    """σ on the diagonal of S and on T, σ/√2 on both sides of the diagonal: (‖φφᵀ‖² + ‖φyᵀ‖²) / 2σ² altogether."""
    score, row = difference(1.0, 10.0, scale=1e-6)
    squares = [np.sum((row.features.T @ part) ** 2) for part in vars(row).values()]
    assert score == pytest.approx(sum(squares) / (2 * 10.0**2), rel=0.01)


def test_leverage_does_not_depend_on_the_unit_of_features() -> None:
    rows = np.random.default_rng(0).standard_normal((5, 4))
    leverage, scaled = (measure_leverage(u**2 * rows[:2].T @ rows[:2], u * rows, noise_scale=0.0) for u in (1, 10))
    np.testing.assert_allclose(leverage, scaled, rtol=1e-6)


@pytest.mark.parametrize("share", [0.98, 1.02])
@pytest.mark.parametrize(("K", "on_products"), [(4, True), (2, True), (4, False), (3, False), (2, False)])
def test_a_class_of_one_is_told_until_noise_hides_the_count(K: int, on_products: bool, share: float) -> None:
    """σ on S moves the constant's column by σ/√2, a class's count by σ/(√2 · constant² · K); σ on T by σ/constant.

    With two classes, T holds their difference, and half of it belongs to each class.
    """
    constant, row = 0.5, np.array([[0.3, 0.5]])
    noise = share * 0.25 * (math.sqrt(2) * constant**2 * K if on_products else constant * (2 if K == 2 else 1))
    sums = np.column_stack([row[0], np.array([[0.1], [1.5]]) * np.ones(K - 1)])
    candidates = LabelledFeatures(row, np.array([[-1.0]]) if K == 2 else np.eye(K)[:1])
    view: Any = SimpleNamespace(
        constant=constant,
        class_sums=lambda: sums,
        layout=SimpleNamespace(outcome=SimpleNamespace(n_classes=K)),
        honest=SimpleNamespace(noise_scales=(noise, 0.0) if on_products else (0.0, noise)),
        candidates=candidates,
    )
    if share > 1:
        with pytest.raises(DoesNotApply):
            class_of_one(view, rng=RNG)
    else:
        assert class_of_one(view, rng=RNG).scores == pytest.approx([0.0])


def test_rows_that_alone_carry_a_value_are_read_off_with_their_labels() -> None:
    candidates = simulated("value of one")[1]
    finding = run("value-of-one", view_of("value of one"), rng=RNG)
    assert isinstance(finding, MembershipScores)
    assert finding.rows is not None
    places = [3, 60 + 7]  # among the honest rows, which come first and start with participant 1
    read, true = (
        {(*features, *outcomes) for features, outcomes in zip(rows.features, rows.outcomes, strict=True)}
        for rows in (finding.rows, LabelledFeatures(candidates.features[places], candidates.outcomes[places]))
    )
    assert read == true
    assert set(np.flatnonzero(finding.scores > -1e-12)) == set(places)


@pytest.mark.parametrize("n_carriers", [2, 3])
def test_a_value_of_several_rows_discloses_none_of_them(n_carriers: int) -> None:
    rows, labels = np.random.default_rng(3).standard_normal((40, 5)), np.arange(40) % 2
    rows[:, 0] = 0.0
    rows[:n_carriers, 0] = 0.5
    view = simulate_sums([rows, rows[::-1, 1:][:, [0, 0, 1, 2, 3]]], [labels, labels], privacy=None, rng=RNG)
    with pytest.raises(DoesNotApply):
        run("value-of-one", view.view((1,), asked=view.encode([rows], [labels])), rng=RNG)


def test_four_equal_rows_are_not_read_off_as_one_row_of_twice_their_length() -> None:
    rng = np.random.default_rng(3)
    rows, labels = rng.standard_normal((40, 5)), np.arange(40) % 2
    rows[:, 0], labels[:4] = 0.0, 0
    rows[0, 0] = 0.5
    rows[1:4] = rows[0]
    others = rows[::-1, 1:][:, [0, 0, 1, 2, 3]]
    simulation = simulate_sums([rows, others], [labels, labels], privacy=None, rng=rng)
    with pytest.raises(DoesNotApply):
        run("value-of-one", simulation.view((1,), asked=simulation.encode([rows], [labels])), rng=rng)


def test_of_one_honest_row_the_column_space_is_a_line() -> None:
    rows = 1e3 * np.random.default_rng(1).standard_normal((6, 5))
    honest, candidates = SimpleNamespace(products=np.outer(rows[0], rows[0])), LabelledFeatures(rows, rows)
    view: Any = SimpleNamespace(noise=None, honest=honest, candidates=candidates)
    beside = (rows**2).sum(axis=1) - (rows @ rows[0]) ** 2 / (rows[0] @ rows[0])
    assert column_space(view, rng=RNG).scores == pytest.approx(-beside, abs=1e-6)


@pytest.mark.parametrize(("variance", "is_empty"), [(0.9e-10, True), (1.1e-10, False)])
def test_a_direction_is_empty_if_its_sum_of_squares_is_rounding(variance: float, is_empty: bool) -> None:
    candidates = LabelledFeatures(np.array([[3.0, 2.0]]), np.zeros((1, 0)))
    products = 7 * np.diag([variance, 1.0])
    view: Any = SimpleNamespace(noise=None, honest=SimpleNamespace(products=products), candidates=candidates)
    with nullcontext() if is_empty else pytest.raises(DoesNotApply):
        assert column_space(view, rng=RNG).scores == pytest.approx([-9.0])


@pytest.mark.parametrize(("n", "applies"), [(170, False), (171, True), (200, True), (201, False)])
def test_a_register_must_be_one(n: int, applies: bool) -> None:
    """A register has at least 95 % of the 180 rows, and no more candidates than can be solved for."""
    asked = LabelledFeatures(*(part[:n] for part in vars(simulated("plain")[1]).values()))
    view = simulated("plain")[0].view(asked=asked)
    with nullcontext() if applies else pytest.raises(DoesNotApply):
        assert np.isfinite(register(view, rng=RNG, most_candidates=200).scores).all()


def solve_by_ridge(contributions: np.ndarray, sums: np.ndarray, share: float) -> np.ndarray:
    """The membership of least squares, given what each candidate adds and the sums, both in units of the noise."""
    scale = math.sqrt(share * (1 - share))
    rows = np.vstack([contributions.T, np.eye(len(contributions)) / scale])
    right = np.concatenate([sums, np.full(len(contributions), share / scale)])
    return np.asarray(np.linalg.lstsq(rows, right, rcond=None)[0])


REGISTERS = [(12.0, 0.3, 0.4), (1.0, 2.0, 2.0), (31.0, 0.5, 0.8), (12.0, 0.0, 0.0)]  # with 30 candidates, 5 to 95 %


@pytest.mark.parametrize(("n_rows", "noise", "on_labels"), REGISTERS)
def test_a_register_is_solved_by_least_squares(n_rows: float, noise: float, on_labels: float) -> None:
    """Shares of members range from 5 to 95 %; sums without noise are exact to a ten-thousandth."""
    rng = np.random.default_rng(1)
    phi, y, S, T = (rng.standard_normal(shape) for shape in ((30, 3), (30, 2), (3, 3), (3, 2)))
    S = 5 * (S + S.T)
    honest = SimpleNamespace(products=S, outcomes=T, n_rows=n_rows, noise_scales=(noise, on_labels))
    view: Any = SimpleNamespace(honest=honest, candidates=LabelledFeatures(phi, y))
    scales = np.repeat([max(noise, 1e-4), max(on_labels, 1e-4)], [9, 6])
    added = [
        np.concatenate([np.outer(f, part).ravel() for part in (f, k)]) / scales for f, k in zip(phi, y, strict=True)
    ]
    sums = np.concatenate([S.ravel(), T.ravel()]) / scales
    expected = solve_by_ridge(np.array(added), sums, min(max(n_rows / 30, 0.05), 0.95))
    np.testing.assert_allclose(register(view, rng=RNG).scores, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("n_rows", "noise", "on_labels"), REGISTERS)
def test_a_register_of_the_general_total_is_solved_by_least_squares(
    n_rows: float, noise: float, on_labels: float
) -> None:
    """The equations are products of different columns, and of the constant with columns and with curves of numbers."""
    rng = np.random.default_rng(2)
    phi, bubbles = rng.standard_normal((30, 6)), rng.standard_normal((30, 2))
    phi[:, 0] = 0.4
    column = np.array([0, 1, 1, 2, 3, 3])
    matrix = rng.standard_normal((8, 8))
    matrix = 5 * (matrix + matrix.T)
    apart = (column[:, None] != column) | (column[:, None] + column == 0)
    matrix[:6, :6] *= apart
    columns = [SimpleNamespace(n_levels=n) for n in (3, 2, 3)]
    view: Any = SimpleNamespace(
        layout=SimpleNamespace(workload=SimpleNamespace(n_features=6, starts=(1, 3, 4), columns=columns)),
        honest=SimpleNamespace(matrix=matrix, n_rows=n_rows, noise_variance=noise**2),
        candidates=None,
        vectors=lambda rows: (phi, bubbles),
    )
    added = [np.concatenate([np.outer(f, f)[apart], math.sqrt(2) * 0.4 * b]) for f, b in zip(phi, bubbles, strict=True)]
    sums = np.concatenate([matrix[:6, :6][apart], math.sqrt(2) * matrix[0, 6:]])
    scale, share = max(noise, 1e-4), min(max(n_rows / 30, 0.05), 0.95)
    expected = solve_by_ridge(np.array(added) / scale, sums / scale, share)
    np.testing.assert_allclose(pairwise_register(view, rng=RNG).scores, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("n", "limit"), [(4000, set()), (4001, {4000.0})])
def test_a_register_of_more_than_four_thousand_candidates_is_not_solved(n: int, limit: set[float]) -> None:
    """The refusal states the limit; within it, these candidates are too few for a billion rows."""
    phi, bubbles = np.ones((n, 1)), np.ones((n, 0))
    products = {"products": np.ones((1, 1)), "outcomes": np.ones((1, 1)), "noise_scales": (1.0, 1.0)}
    of_one: Any = SimpleNamespace(
        honest=SimpleNamespace(n_rows=1e9, **products), candidates=LabelledFeatures(phi, np.ones((n, 1)))
    )
    with pytest.raises(DoesNotApply) as refusal:
        register(of_one, rng=RNG)
    assert numbers_in(refusal.value.reason) == limit
    if limit:
        of_pairs: Any = SimpleNamespace(
            layout=SimpleNamespace(workload=None), honest=None, candidates=None, vectors=lambda rows: (phi, bubbles)
        )
        with pytest.raises(DoesNotApply) as refusal:
            pairwise_register(of_pairs, rng=RNG)
        assert numbers_in(refusal.value.reason) == limit


@pytest.mark.parametrize(("n_rows", "applies"), [(31.5, True), (31.6, False)])
def test_candidates_of_the_general_total_must_be_95_percent_of_the_rows(n_rows: float, applies: bool) -> None:
    gram, seen = np.eye(30), np.ones(30)
    with nullcontext() if applies else pytest.raises(DoesNotApply):
        assert np.isfinite(solve_register(gram, seen, n_rows, 1.0)).all()


def test_without_sums_a_row_is_scored_by_how_typical_it_is_of_the_colluders_rows() -> None:
    """The ridge is √D, as for noise of scale one; the label is a part of the row."""
    view = view_of("plain")
    known, rows = (view.joint_features(part) for part in (view.require_population(), view.candidates))
    D = known.shape[1]
    inverse = np.linalg.inv(known.T @ known + math.sqrt(D) * np.eye(D))
    expected = -np.einsum("ni,ij,nj->n", rows, inverse, rows)
    np.testing.assert_allclose(score_without_sums(view).scores, expected, rtol=1e-6)


@pytest.mark.parametrize(("counts", "alone"), [((1.45, 0.55), [True, True]), ((1.55, 0.45), [False, False])])
def test_a_class_has_one_row_if_its_count_is_nearer_to_one_than_to_two_or_none(
    counts: tuple[float, float], alone: list[bool]
) -> None:
    sums = np.vstack([np.ones(3), 0.5 * np.array([*counts, 1.0])])
    view: Any = SimpleNamespace(
        constant=0.5,
        class_sums=lambda: sums,
        layout=SimpleNamespace(outcome=SimpleNamespace(n_classes=3)),
        honest=SimpleNamespace(noise_scales=(0.0, 0.0)),
        candidates=LabelledFeatures(np.zeros((3, 2)), np.eye(3)),
    )
    assert np.isfinite(class_of_one(view, rng=RNG).scores).tolist() == [*alone, True]


def test_colluders_without_rows_of_a_class_know_no_population_of_it() -> None:
    view = replace(view_of("plain"), population=LabelledFeatures(np.ones((0, 3)), np.ones((0, 1))))
    with pytest.raises(DoesNotApply):
        view.require_population()
