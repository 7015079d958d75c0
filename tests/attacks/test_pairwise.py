"""Attacks on the general total: exact where there is no noise, near chance under a guarantee, and each where it applies."""

import math
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from mooring.attacks import DoesNotApply, LabelledFeatures, MembershipScores, PairwiseView, attacks_on, run
from mooring.attacks.sums import synthetic_rows
from mooring.attacks.sums.leverage import score_without_sums
from mooring.attacks.sums.pairwise_difference import pairwise_difference
from mooring.audit import AuditSettings, PairwiseSimulation, attack_total, simulate_general_total, simulate_sums
from mooring.audit.measurement import measure_leakage
from mooring.audit.sums.canaries import audit_pairwise_epsilon
from mooring.errors import InputError
from mooring.learners.fitting import MOST_ALONE
from mooring.learners.models import FeatureMap
from mooring.mechanisms.sums.answers.mixture import Mixture
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.mechanisms.sums.guarantee import SumPrivacy
from mooring.metrics import Membership
from mooring.tables import Partition
from mooring.tables.schema import Column, Label, Schema
from mooring.typing import Matrix
from tests.raising import raising
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
SCHEMA = Schema(
    (
        Column("age", "integer", 18, 90),
        Column("bmi", "number", 15, 55),
        Column("sex", "category", categories=("f", "m")),
        Column("ward", "category", categories=tuple("abcdef")),
        Column("site", "category", categories=tuple("ghij")),
    ),
    Label("ill", "classes", ("no", "yes")),
)
FEATURES = LevelFeatures(make_workload(SCHEMA), SCHEMA)
P, N_ROWS, N_OTHERS = 3, 80, 200
EXACT = ("empty-cells", "level-of-one")
RNG = np.random.default_rng(0)


def draw(rng: np.random.Generator, n: int, *, rare: bool = False) -> tuple[Matrix, Matrix]:
    """Encoded rows and labels; `rare` rows have a ward and an age that no others have."""
    wards = rng.integers(0, 5, n)
    age = rng.uniform(-0.8, 0.8, n)
    if rare:
        wards[:], age[:] = 5, 1.0
    parts = [age[:, None], rng.uniform(-0.6, 0.6, (n, 1)), np.eye(2)[rng.integers(2, size=n)], np.eye(6)[wards]]
    return np.hstack([*parts, np.eye(4)[rng.integers(4, size=n)]]), rng.integers(2, size=n)


@cache
def simulated(epsilon: float | None) -> tuple[PairwiseSimulation, LabelledFeatures, int]:
    """A study, its candidates with the honest rows first, and how many those are. One honest row alone has a ward."""
    rng = np.random.default_rng(3)
    parts = [draw(rng, N_ROWS) for _ in range(P)]
    lone, label = draw(rng, 1, rare=True)
    parts[1] = np.vstack([parts[1][0], lone]), np.append(parts[1][1], label)
    rows, labels = zip(*parts, strict=True)
    simulation = simulate_general_total(rows, labels, features=FEATURES, privacy=epsilon, rng=rng)
    honest, others = simulation.members((1, 2)), simulation.encode(*([part] for part in draw(rng, N_OTHERS)))
    both = np.concatenate([honest.features, others.features])
    return simulation, LabelledFeatures(both, np.zeros((len(both), 0))), len(honest.features)


def view_of(epsilon: float | None) -> PairwiseView:
    simulation, candidates, _ = simulated(epsilon)
    return simulation.view((0,), asked=candidates)


def attack(name: str, epsilon: float | None) -> MembershipScores:
    result = run(name, view_of(epsilon), rng=RNG)
    assert isinstance(result, MembershipScores)
    return result


def area(name: str, epsilon: float | None) -> float:
    _, _, n = simulated(epsilon)
    scores = attack(name, epsilon).scores
    return float(Membership(scores[:n], scores[n:]).auc)


def test_the_cells_of_two_columns_are_read_exactly_off_a_total_without_noise() -> None:
    simulation, view = simulated(None)[0], view_of(None)
    weights = simulation.members((1, 2)).features[:, : view.layout.workload.n_levels]
    expected = weights.T @ weights
    for block in view.list_blocks():
        expected[block, block] = 0.0
    assert np.abs(view.cells - expected).max() < 0.1  # weights between nodes are rounded at random
    words = [
        block
        for block, levels in zip(view.list_blocks(), view.layout.workload.columns, strict=True)
        if not levels.nodes
    ]
    for first in words:
        for second in words:
            np.testing.assert_allclose(view.cells[first, second], expected[first, second], atol=1e-6)
    np.testing.assert_allclose(view.counts[words[1]], weights[:, words[1]].sum(axis=0), atol=1e-6)


def test_a_row_that_alone_has_a_level_is_read_off_with_its_label() -> None:
    simulation, candidates, _ = simulated(None)
    rows = attack("level-of-one", None).rows
    assert rows is not None
    lone = candidates.features[N_ROWS]  # the last of participant 1
    scores = attack("level-of-one", None).scores
    assert scores[N_ROWS] == pytest.approx(0.0, abs=1e-3)
    assert (np.delete(scores, N_ROWS) < -0.1).mean() > 0.95
    nearest = np.abs(rows.features - lone[: rows.features.shape[1]]).max(axis=1).min()
    assert nearest < 0.01
    assert simulation.total.noise_variance == 0


def test_rows_with_a_pair_of_values_that_no_member_has_are_told_from_members() -> None:
    scores, n = attack("empty-cells", None).scores, simulated(None)[2]
    assert scores[:n].min() == 0 > scores[n:].min()
    assert area("empty-cells", None) > 0.55


@pytest.mark.parametrize(("epsilon", "least", "most"), [(None, 0.9, 1.0), (8.0, 0.6, 1.0), (1.0, 0.4, 0.62)])
def test_a_register_is_solved_without_noise_and_hardly_with_it(
    epsilon: float | None, least: float, most: float
) -> None:
    assert least <= area("pairwise-register", epsilon) <= most


def test_the_difference_to_the_population_tells_members_and_noise_hides_them() -> None:
    assert area("pairwise-difference", None) > 0.55
    control = score_without_sums(view_of(None)).scores
    n = simulated(None)[2]
    assert abs(Membership(control[:n], control[n:]).auc - 0.5) < 0.1
    assert abs(area("pairwise-difference", 0.5) - 0.5) < 0.12


@pytest.mark.parametrize(("n_rows", "noise_variance"), [(40.0, 0.0), (40.0, 9.0), (0.3, 9.0)])
def test_the_difference_is_scored_by_the_normal_densities_of_its_entries(n_rows: float, noise_variance: float) -> None:
    """Each entry is one of a normal variable with and without the row; a total has one row at least."""
    rng, n, constant = np.random.default_rng(6), max(n_rows, 1.0), 0.4
    known, asked = (np.hstack([np.full((k, 1), constant), rng.standard_normal((k, 5))]) for k in (25, 3))
    known[:, 2] = 0.5  # its product with the constant and one bubble do not vary
    known[:, 5] = asked[:, 5] = 1.0
    shared = np.ones((6, 6), dtype=bool)
    shared[1, 3] = False
    matrix = n * known.T @ known / len(known) + rng.standard_normal((6, 6))
    matrix = (matrix + matrix.T) / 2
    view: Any = SimpleNamespace(
        layout=SimpleNamespace(workload=SimpleNamespace(n_features=4, shared=shared)),
        honest=SimpleNamespace(n_rows=n_rows, noise_variance=noise_variance, matrix=matrix),
        require_population=lambda: known,
        candidates=asked,
        vectors=lambda rows: (rows[:, :4], rows[:, 4:]),
    )
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (2, 3), (0, 4), (0, 5)]
    expected = np.zeros(3)
    for i, j in pairs:
        products = known[:, i] * known[:, j]
        scale = np.sqrt(
            n * (1 + n / 25) * max(products.var(), 1e-6 * (constant**2 if j > 3 else 1)) + noise_variance / 2
        )
        seen, added = matrix[i, j] - n * products.mean(), asked[:, i] * asked[:, j]
        expected += norm.logpdf(seen, added, scale) - norm.logpdf(seen, 0.0, scale)
    np.testing.assert_allclose(pairwise_difference(view, rng=RNG).scores, expected)


@pytest.mark.parametrize("epsilon", [None, 8.0])
def test_synthetic_rows_are_no_nearer_to_members_than_to_others(epsilon: float | None) -> None:
    """The deviation of this area under the null hypothesis is about 0.03."""
    assert abs(area("synthetic-rows", epsilon) - 0.5) < 0.12


def test_a_generator_that_repeats_its_rows_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, candidates, n = simulated(None)
    members = candidates.features[:n, : simulation.layout.workload.n_levels]
    monkeypatch.setattr(Mixture, "weigh_places", lambda mixture, places: members)
    assert area("synthetic-rows", None) > 0.99


@pytest.mark.parametrize(
    ("n_rows", "noise_variance", "n_drawn"),
    [(0.49, 0.0, None), (0.51, 0.0, 1), (47.9, 9.0, None), (48.1, 9.0, 48), (5000.0, 0.0, 5000), (6000.0, 0.0, 5000)],
)
def test_synthetic_rows_are_as_many_as_the_total_has_if_it_surely_has_any(
    n_rows: float, noise_variance: float, n_drawn: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number must be four standard errors, here of σ · 2², or half a row; five thousand are drawn at most."""
    drawn = []
    mixture = SimpleNamespace(
        draw_places=lambda n, rng: drawn.append(n), weigh_places=lambda places: np.array([[0.0, 1.0], [1.0, 0.0]])
    )
    monkeypatch.setattr(synthetic_rows, "fit_mixture", lambda total: mixture)
    view: Any = SimpleNamespace(
        layout=SimpleNamespace(workload=SimpleNamespace(resolution=8, constant_integer=4, n_levels=2)),
        honest=SimpleNamespace(n_rows=n_rows, noise_variance=noise_variance),
        candidates=LabelledFeatures(np.array([[0.2, 0.5, 7.0], [1.0, 0.1, 7.0]]), np.zeros((2, 0))),
    )
    with nullcontext() if n_drawn else pytest.raises(DoesNotApply):
        scores = synthetic_rows.synthetic_rows(view, rng=RNG).scores
        assert scores == pytest.approx([-0.29, -0.01])  # minus the square of the distance to the nearest
    assert drawn == [n_drawn] * bool(n_drawn)


def test_a_simulation_prints_no_rows() -> None:
    sums = simulate_sums([np.ones((4, 2))] * 2, [np.arange(4) % 2] * 2, privacy=None, rng=np.random.default_rng(0))
    for simulation in (simulated(8.0)[0], sums):
        assert "array(" not in repr(simulation)


@pytest.mark.parametrize("epsilon", [None, 8.0, 1.0])
def test_scores_are_as_on_record(epsilon: float | None) -> None:
    """The record holds a member's score, another row's and sums over all rows, for every attack that applies."""
    by_name = {}
    for name in (attack.name for attack in attacks_on(PairwiseView)):
        if name == "synthetic-rows":  # a fit of many steps, which amplify rounding
            continue
        try:
            found = attack(name, epsilon)
        except DoesNotApply:
            continue
        n, scores = simulated(epsilon)[2], np.arcsinh(found.scores)
        rows = [] if found.rows is None else [found.rows.features.shape, np.abs(found.rows.features).sum()]
        by_name[name] = [scores[0], scores[n], scores.sum(), np.abs(scores).sum(), *rows]
    assert by_name
    check_record(RECORD, f"general total, {epsilon}", by_name)


@pytest.mark.parametrize("name", EXACT)
def test_attacks_on_single_cells_do_not_apply_under_noise(name: str) -> None:
    with pytest.raises(DoesNotApply):
        attack(name, 8.0)


def test_an_audit_of_a_general_total_runs_these_attacks_and_measures_its_noise() -> None:
    rng = np.random.default_rng(1)
    train, test = ([draw(rng, 60) for _ in range(P)] for _ in range(2))
    partition = Partition.from_parts(
        [rows for rows, _ in train],
        [labels for _, labels in train],
        rng=rng,
        test=[rows for rows, _ in test],
        test_labels=[labels for _, labels in test],
    )
    privacy = SumPrivacy(1.0, 1e-5, P, 1)
    parts = partition.train, partition.train_labels or ()
    simulation = simulate_general_total(*parts, features=FEATURES, privacy=privacy, rng=rng)
    settings = AuditSettings(colluders=(0,), n_canary_runs=2_000)
    leakage = measure_leakage(simulation, partition, settings)
    assert [outcome.attack for outcome in leakage.outcomes] == [known.name for known in attacks_on(PairwiseView)]
    assert leakage.epsilon is not None
    assert leakage.epsilon.holds
    exact = simulate_general_total(*parts, features=FEATURES, privacy=None, rng=rng)
    strongest = max(
        outcome.figures["membership_auc"].value
        for outcome in attack_total(exact, partition, settings, (0,))
        if outcome.applies
    )
    assert strongest > 0.99


def test_a_general_total_without_a_label_is_attacked_and_needs_a_quorum_of_those_who_take_part() -> None:
    rng = np.random.default_rng(1)
    schema = Schema(SCHEMA.columns)
    features = LevelFeatures(make_workload(schema), schema)
    train, test = ([draw(rng, 60)[0] for _ in range(P)] for _ in range(2))
    partition = Partition.from_parts(train, rng=rng, test=test)
    exact = simulate_general_total(train, None, features=features, privacy=None, rng=rng)
    outcomes = attack_total(exact, partition, AuditSettings(colluders=(0,)), (0,))
    assert max(outcome.figures["membership_auc"].value for outcome in outcomes if outcome.applies) > 0.95
    with raising(InputError, "quorum"):
        simulate_general_total(train, None, features=features, privacy=SumPrivacy(1.0, 1e-5, P + 1, 1), rng=rng)


def test_canaries_show_nearly_the_guarantee_of_the_general_total_and_notice_noise_that_is_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    privacy = SumPrivacy(4.0, 1e-5, 3, 1)
    audit = audit_pairwise_epsilon(privacy, rng=np.random.default_rng(0), n_runs=4_000)
    assert audit.holds
    assert audit.claimed == 4.0
    assert 2.5 < audit.measured.gaussian < audit.reachable < audit.claimed
    from mooring.audit.sums import canaries

    def calibrate(layout: object, given: SumPrivacy) -> object:
        noise = calibrate_rightly(layout, given)
        return replace(noise, on_products=noise.on_products // 16)

    calibrate_rightly = canaries.calibrate_products
    monkeypatch.setattr(canaries, "calibrate_products", calibrate)
    assert not audit_pairwise_epsilon(privacy, rng=np.random.default_rng(0), n_runs=4_000).holds


def test_the_model_of_a_simulated_general_total_is_that_of_its_rows() -> None:
    rng = np.random.default_rng(2)
    parts = [draw(rng, 400) for _ in range(P)]
    labels = [(rows[:, 0] > 0).astype(int) for rows, _ in parts]
    simulation = simulate_general_total([rows for rows, _ in parts], labels, features=FEATURES, privacy=8.0, rng=rng)
    rows, _ = draw(rng, 300)
    assert np.mean(simulation.train().predict([rows]) == (rows[:, 0] > 0)) > 0.9
    one_model: FeatureMap = FEATURES
    sums = simulate_sums([rows for rows, _ in parts], labels, feature_map=one_model, privacy=None, rng=rng)
    assert sums.layout.n_features == FEATURES.n_features
    assert math.isclose(simulation.total.n_rows, 1200, rel_tol=0.1)


def test_a_number_is_predicted_in_its_own_unit_by_all_and_by_participants_alone() -> None:
    """Models of no more than ten participants are trained alone, the first and the last among them."""
    rng = np.random.default_rng(4)
    columns = (Column("x", "number", -1, 1), Column("y", "number", -1, 1))
    schema = Schema(columns, Label("score", "number", low=20.0, high=60.0))
    rows = [rng.uniform(-0.9, 0.9, (300, 2)) for _ in range(12)]
    rows[-1][:, 1] = -rows[-1][:, 0]  # the last is unlike the others
    labels = [40 + 12 * part[:, 0] + 6 * part[:, 1] + rng.normal(0, 0.2, len(part)) for part in rows]
    features = LevelFeatures(make_workload(schema), schema)
    simulation = simulate_general_total(rows, labels, features=features, privacy=None, rng=rng)
    model, new = simulation.train(), rng.uniform(-0.9, 0.9, (100, 2))
    truth = 40 + 12 * new[:, 0] + 6 * new[:, 1]
    assert np.abs(model.predict([new]) - truth).max() < 3
    assert model.answer_alone is not None
    alone = [np.abs(predicted - truth).mean() for predicted, _ in model.answer_alone([new[:60], new[60:]])]
    assert len(alone) == MOST_ALONE
    assert max(alone[:-1]) < 1 < alone[-1]
