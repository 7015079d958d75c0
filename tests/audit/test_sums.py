"""Secure sums in an audit and in a plan: what attackers tell, the ε measured, and what the joint model is worth."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from mooring import Plan
from mooring.attacks import LabelledFeatures, SumView, attacks_on
from mooring.audit import (
    AuditEffort,
    AuditResult,
    AuditSettings,
    EvaluationSpec,
    LeakageLimit,
    PointResult,
    RotationPoint,
    SumPoint,
    SumSimulation,
    plan_study,
    simulate_sums,
)
from mooring.audit.auditor import Auditor
from mooring.audit.deployment import Deployment
from mooring.audit.operating_points import OperatingPoint, Recommendation
from mooring.audit.results.point_result import AttackOutcome
from mooring.audit.results.statements import state_only_class, state_total
from mooring.audit.simulation import JointModel
from mooring.audit.sums import leakage
from mooring.audit.sums.leakage import attack_total, measure_total
from mooring.audit.sums.point import RecommendedSums, _round_down
from mooring.audit.table_features import InferredTableFeatures
from mooring.audit.utility import Alone, References, measure_alone, measure_utility
from mooring.errors import InputError
from mooring.learners import LearnerLike
from mooring.mechanisms.sums.class_moments import ClassLayout, count_components
from mooring.mechanisms.sums.features.columns import RowFeatures
from mooring.mechanisms.sums.features.pictures import PictureFeatures
from mooring.mechanisms.sums.guarantee import PRODUCT_SHARE, SumNoise, SumPrivacy
from mooring.mechanisms.sums.settings import SumSettings, make_scheme
from mooring.mechanisms.sums.sums import Outcome, SumLayout
from mooring.metrics.membership import FALSE_POSITIVE_RATES, Membership
from mooring.report.audit_page import render_audit, render_plan
from mooring.tables import Column, Partition, partition, read_records
from tests.auditing import audited, planned
from tests.raising import numbers_in, raising
from tests.record import check_record

EPSILONS = (None, 8.0, 1.0)
RECORD = Path(__file__).parent / "record.json"
POINT = RotationPoint("aa-i-gdp-data-noise", 6, 24, 0.0, 0.5)
NAMES = [attack.name for attack in attacks_on(SumView)]


def study(n_rows: int = 12, n_test: int = 80, *, number: bool = False, n_participants: int = 8) -> Partition:
    """Rows of three classes, or with a number to predict."""
    rng = np.random.default_rng(3)
    centres = 0.9 * rng.standard_normal((3, 6))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        codes = np.arange(n) % 3
        rows = centres[codes] + rng.standard_normal((n, 6))
        return rows, rows @ centres[0] + rng.standard_normal(n) if number else 10 * codes

    parts = [draw(n_rows) for _ in range(n_participants)]
    test = [draw(n_test) for _ in range(n_participants)]
    rows, labels = zip(*parts, strict=True)
    test_rows, test_labels = zip(*test, strict=True)
    return Partition.from_parts(rows, labels, test=test_rows, test_labels=test_labels, rng=rng)


def settings(n_canary_runs: int = 2000, **options: object) -> AuditSettings:
    return AuditSettings(n_canary_runs=n_canary_runs, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def result() -> AuditResult:
    points = [POINT, *map(SumPoint, EPSILONS)]
    return audited(study(), points=points, attacks=["procrustes", *NAMES], learner="linear", n_canary_runs=2000)


def test_figures_of_sums_are_as_on_record(result: AuditResult) -> None:
    check_record(RECORD, "sums", [total.as_dict() for total in result.totals])
    check_record(RECORD, "sums, table", [result.list_points(result.totals), result.list_points(result.row_points)])


def test_every_epsilon_has_its_attacks_its_bound_and_its_score(result: AuditResult) -> None:
    assert [total.point.epsilon for total in result.totals] == list(EPSILONS)
    assert (result.description.n_sum_features, result.description.n_rows) == (7, 96)
    for point in result.totals:
        assert [outcome.attack for outcome in point.outcomes] == NAMES
        assert [outcome.attack for outcome in point.beyond] == NAMES
        assert all(outcome.figures or outcome.reason for outcome in point.outcomes)
        assert point.deployed.value > point.alone.value - 0.05
        assert (point.point.quorum, point.point.n_colluders) == (8, 1)
        _, auc = point.worst()
        assert auc.control is not None
        assert auc.chance == 0.5
        assert (point.epsilon is None) == (point.point.epsilon is None)
        assert point.epsilon is None or point.epsilon.holds
        for measure, rate in FALSE_POSITIVE_RATES.items():
            worst = point.worst(measure)[1]
            assert rate <= worst.chance < 2 * rate  # above all of some 600
            assert (
                point.epsilon is None
                or worst.interval.low <= math.exp(point.epsilon.claimed) * rate + point.point.delta
            )
    bare, weak, strong = result.totals
    assert not bare.usable  # 49 numbers of 96 rows
    assert bare.worst()[1].value > strong.worst()[1].value
    assert weak.epsilon.measured.gaussian > 4 > 1 > strong.epsilon.measured.gaussian
    assert AuditResult.from_json(result.to_json()).totals == result.totals


def test_a_page_shows_sums_and_calls_those_without_noise_no_guarantee(result: AuditResult) -> None:
    page = render_audit(result, command="mooring audit")
    for words in (
        "refused: too many features",
        "Sums instead of rows",
        "no guarantee",
        "Sums, ε = 8",
        "odds ×2,981",
        "register",
        "local only",
    ):
        assert words in page


def test_rows_that_can_be_read_off_the_total_are_counted() -> None:
    parts = study(40)
    for part in (*parts.train, *parts.test):
        part[:, 5] = 0.0
    parts.train[2][7, 5] = 1.0
    simulation = SumPoint(None).simulate(Auditor.of(parts, None, settings()).deployment)
    outcomes = {outcome.attack: outcome for outcome in attack_total(simulation, parts, settings(), (0,))}
    assert outcomes["value-of-one"].notes == ("rows read off exactly, with their labels: 1",)
    assert not any(outcome.notes for name, outcome in outcomes.items() if name != "value-of-one")


def test_many_features_without_noise_are_refused_and_a_fault_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight participants of six rows and seven features: more than a tenth of the rows of a quorum."""
    few = Auditor.of(study(6), None, settings(4000))
    assert not few.audit(SumPoint(None)).usable
    point = SumPoint(None).settled_for(few.deployment)
    features = [np.ones((n, 7)) for n in (90, 5, 10, 10, 10, 10, 10, 10)]
    n_least = sum(sorted(map(len, features))[: point.quorum])
    for size, usable in ((n_least // 10, True), (n_least // 10 + 1, False)):
        assert point.is_usable_with(SimpleNamespace(features=features, layout=SimpleNamespace(size=size))) == usable
    draw = SumNoise.draw_many
    monkeypatch.setattr(SumNoise, "draw_many", lambda *given: draw(*given) // 2)
    result = few.audit(SumPoint(2.0))
    assert result.usable
    assert not result.epsilon.holds


def test_a_number_is_learnt_and_attacked_as_well() -> None:
    moments_of_classes = Auditor.of(study(number=True), None, settings()).audit(SumPoint(None))
    assert moments_of_classes.deployed.metric == "R²"
    assert moments_of_classes.deployed.value > 0.3
    assert moments_of_classes.worst()[1].value > 0.52
    unlabelled = Partition.from_parts([np.eye(6)] * 3, rng=np.random.default_rng(0))
    with raising(InputError, "labels"):
        Auditor.of(unlabelled, None, settings()).audit(SumPoint(None))
    with raising(InputError, "limit", expected="labels"):
        planned(unlabelled, limit="epsilon at most 2")


def test_the_colluders_own_test_rows_are_nobodys() -> None:
    """Which test rows the colluder has says nothing: it knows that they are not behind the sums."""
    rows = study()
    collected = []
    for colluder_rows in (rows.test[0], rows.test[0] + 5.0):
        auditor = Auditor.of(replace(rows, test=(colluder_rows, *rows.test[1:])), None, settings())
        simulation = SumPoint(None).simulate(auditor.deployment)
        collected.append(attack_total(simulation, auditor.partition, auditor.settings, (0,)))
    assert collected[0] == collected[1]


def test_the_one_honest_is_the_target_and_of_many_candidates_some_are_others() -> None:
    auditor = Auditor.of(study(), None, settings(targets=(2,)))
    result = auditor.audit(SumPoint(None))
    simulation = SumPoint(None).simulate(auditor.deployment)
    others = (0, 1, 3, 4, 5, 6, 7)
    assert result.beyond == attack_total(simulation, auditor.partition, auditor.settings, others)
    outcomes = attack_total(simulation, auditor.partition, auditor.settings, (0,), most_candidates=60, least_others=20)
    figures = [outcome.figures for outcome in outcomes if outcome.figures]
    assert [figure["membership_auc"].n for figure in figures] == [40, 40]
    assert figures[0]["membership_at_0.1_percent"].chance == 1 / 20


def test_of_many_participants_twelve_train_alone_each_once() -> None:
    alone = measure_alone(Deployment(study(n_participants=14, number=True), settings()), learner="linear")
    assert (alone.references.n_alone, len({values.tobytes() for values, _ in alone.predictions})) == (12, 12)


def test_images_have_the_features_of_pictures() -> None:
    rng = np.random.default_rng(0)
    parts = [(rng.random((12, 64)), np.arange(12) % 2) for _ in range(2)]
    rows, labels = zip(*parts, strict=True)
    auditor = Auditor.of(rows, labels, settings(evaluation=EvaluationSpec(image_shape=(8, 8))))
    assert auditor.deployment.features == PictureFeatures(8, 8)
    result = auditor.audit(SumPoint(None))
    assert (result.usable, result.beyond) == (False, ())  # of two, one is honest in any case
    coloured = Deployment(auditor.partition, settings(evaluation=EvaluationSpec(image_shape=(4, 4, 4)))).features
    assert isinstance(coloured, PictureFeatures)
    assert (coloured.height, coloured.width, coloured.n_channels) == (4, 4, 4)
    for shape in (None, (2, 32), (4, 4, 5)):  # no images, smaller ones than filters take, and more channels
        wide = settings(evaluation=EvaluationSpec(image_shape=shape))
        assert Deployment(auditor.partition, wide).features == RowFeatures(64)


@pytest.fixture(scope="module")
def plan() -> Plan:
    collected: list[tuple[int, int, str]] = []
    options = {"attacks": ["procrustes", *NAMES], "learner": "linear", "n_canary_runs": 200}
    options |= {"others": [SumPoint(None), SumPoint(1.0)], "progress": lambda *words: collected.append(words)}
    plan = planned(study(8, 40, n_participants=40), limit="epsilon at most 2", **options)
    assert {total.point.product_share for total in plan.audit.totals} == {PRODUCT_SHARE}  # rows do not choose it
    assert [words[:2] for words in collected] == [(k, 4) for k in range(5)]
    (contrast,) = plan.audit.row_points
    assert contrast.point.n_anchor_rows == 4 * contrast.point.n_components
    assert contrast.point.data_noise_level in AuditEffort().data_levels
    return plan


def test_the_quorum_of_an_audit_is_that_of_a_study_of_so_many() -> None:
    """Everybody's noise is shared among a quorum: with another one, an audit's model has other noise than the study's."""
    roster, features = [f"p{i}" for i in range(20)], RowFeatures(4)
    scheme = make_scheme(SumSettings(), SumLayout(5, Outcome(2)), features, roster)
    for n, colluders, given, quorum in ((20, 1, 0, scheme.quorum), (4, 1, 0, 4), (10, 9, 0, 10), (9, 1, 4, 4)):
        deployment = Deployment(study(4, 4, n_participants=n), settings(colluders=tuple(range(colluders))))
        point = SumPoint(2.0, quorum=given or None).settled_for(deployment)
        assert (point.quorum, point.n_colluders) == (quorum, colluders)


@pytest.mark.parametrize(("answer", "n_classes"), [("one class", 3), ("several classes", 0)])
def test_a_joint_model_that_predicts_one_class_is_said_to_with_what_guessing_scores(
    answer: str, n_classes: int
) -> None:
    deployment = Deployment(study(4, 8), settings())
    labels = np.concatenate(deployment.partition.test_labels)
    predicted = np.zeros_like(labels) if answer == "one class" else labels

    class Constant:
        def train(self, learner: LearnerLike, *, seed: int) -> JointModel:
            return JointModel("constant", np.arange(3), lambda new: (predicted, np.ones((predicted.size, 3))))

    alone = Alone(References(None, None, 0), [])
    utility = measure_utility(Constant(), deployment, learner="auto", alone=alone)
    assert utility.predicts_one_of == n_classes
    result = PointResult(SumPoint(1.0), **vars(utility))
    stated = state_only_class(result)
    assert ("33.3%" in stated) is bool(n_classes)
    assert stated in state_total(result)  # whose score may be 33.3%, too


@pytest.mark.parametrize(("n_others", "allowed", "is_fault"), [(15, "49.3%", False), (100, "7.40%", True)])
def test_what_the_guarantee_allows_is_of_the_false_positive_rate_that_was_measured(
    n_others: int, allowed: str, is_fault: bool
) -> None:
    recognised = Membership(np.r_[np.ones(2), np.zeros(8)], np.arange(n_others) / n_others)
    figure = recognised.figures()["membership_at_1_percent"]
    sentence = state_total(
        PointResult(SumPoint(2.0), outcomes=(AttackOutcome("register", {"membership_at_1_percent": figure}),))
    )
    assert figure.value == 0.2
    assert f"the guarantee allows at most {allowed}" in sentence
    assert ("fault" in sentence) is is_fault


def test_a_limit_of_epsilon_is_answered_by_sums(plan: Plan) -> None:
    assert plan.recommended.point.epsilon == 2
    assert plan.answer == "pays"
    for words in ("Recommended: secure sums, ε = 2", "odds by 7.40", "1 participant colluding"):
        assert words in plan.verdict
    assert plan.mechanism == RecommendedSums(2.0, 1e-5, 1, plan.recommended.point.product_share)
    assert plan.mechanism_lines().startswith('[mechanism]\nname = "secure-sum"\nepsilon = 2\n')
    assert [total.point.epsilon for total in plan.audit.totals] == [None, 1.0, 2.0]
    assert plan.audit.headline_point is plan.recommended
    assert Plan.from_json(plan.to_json()).recommended == plan.recommended
    page = render_plan(plan, command="mooring plan")
    assert 'class="good decision"' in page


def test_a_limit_of_epsilon_is_met_by_a_guarantee_alone(plan: Plan) -> None:
    limit = LeakageLimit.parse("epsilon at most 2")
    assert (limit, str(limit)) == (LeakageLimit("epsilon", 2.0, False), "epsilon at most 2")
    met = {total.point.epsilon: total.keeps_to(limit) for total in plan.audit.totals}
    assert met == {None: False, 1.0: True, 2.0: True}
    assert not PointResult(POINT, 0.5).keeps_to(limit)
    assert not plan.recommended.keeps_to(LeakageLimit.parse("error at least 0.5"))
    upper_end = plan.recommended.worst("membership_at_1_percent")[1].interval.high
    met = [
        plan.recommended.keeps_to(LeakageLimit("membership_at_1_percent", upper_end + more, False))
        for more in (-0.001, 0.001)
    ]
    assert met == [False, True]


@dataclass(frozen=True)
class RecommendedTotals(Recommendation):
    name: ClassVar[str] = "noisy-totals"

    epsilon: float


@dataclass(frozen=True)
class NoisyTotals(OperatingPoint):
    """A mechanism that mooring does not know, with a guarantee."""

    mechanism: ClassVar[str] = "noisy-totals"
    shares_rows: ClassVar[bool] = False

    epsilon: float

    @property
    def promise(self) -> tuple[float, float]:
        return self.epsilon, 1e-5

    def with_epsilon(self, epsilon: float) -> "NoisyTotals":
        return NoisyTotals(epsilon)

    def simulate(self, deployment: Deployment) -> SumSimulation:
        return SumPoint(self.epsilon).simulate(deployment)  # type: ignore[return-value]

    def recommend(self, deployment: Deployment, data_noise_scale: float) -> RecommendedTotals:
        return RecommendedTotals(self.epsilon)


def test_a_plan_recommends_a_mechanism_that_mooring_does_not_know() -> None:
    options: dict[str, Any] = {"attacks": ["procrustes"], "learner": "linear", "n_canary_runs": 50}
    rows = study(8, 40, n_participants=40)
    plan = planned(rows, limit="epsilon at most 2", others=[NoisyTotals(1.0)], **options)
    assert plan.recommended is not None
    assert (plan.recommended.point, plan.mechanism) == (NoisyTotals(2.0), RecommendedTotals(2.0))
    assert plan.mechanism_lines() == '[mechanism]\nname = "noisy-totals"\nepsilon = 2'
    assert Plan.from_json(plan.to_json()) == plan


def test_sums_that_do_not_pay_are_not_recommended(refused: Callable[..., None]) -> None:
    """Three participants with many rows each: at ε = 0.05 noise is all there is."""
    rich = study(60, 30, n_participants=3)
    plan = planned(rich, limit="epsilon at most 0.05", attacks=["procrustes", *NAMES], n_canary_runs=200)
    assert (plan.recommended, plan.mechanism, plan.mechanism_lines(), plan.answer) == (None, None, None, None)
    refused(lambda: planned(rich, limit="epsilon at most 0"), "limit", "above zero", "epsilon at most 0")


def test_a_person_who_comes_twice_is_counted_once() -> None:
    rows, labels = np.random.default_rng(0).standard_normal((40, 3)), np.arange(40) % 2

    def simulated(times: int, rows_of_person: list[np.ndarray] | None) -> SumSimulation:
        given = [[np.concatenate([part] * times)] * 2 for part in (rows, labels)]
        return simulate_sums(*given, privacy=None, rng=np.random.default_rng(1), rows_of_person=rows_of_person)

    once, twice = simulated(1, None), simulated(2, [np.full(80, 2)] * 2)
    assert twice.sums.products == pytest.approx(once.sums.products, rel=1e-3, abs=0.05)
    own, own_twice = (simulation.exact_sums_of(1) for simulation in (once, twice))
    assert own_twice.products == pytest.approx(own.products, rel=1e-3, abs=0.05)


def test_numbers_that_are_all_zero_are_predicted_as_zero() -> None:
    rows = np.random.default_rng(0).standard_normal((2, 40, 3))
    simulation = simulate_sums([*rows], [np.zeros(40)] * 2, privacy=None, rng=np.random.default_rng(1))
    np.testing.assert_array_equal(simulation.train().predict([rows[0]]), np.zeros(40))


def test_without_a_study_tables_have_the_features_that_a_study_would_declare(tmp_path: Path) -> None:
    """A label that comes and goes with age, twice: rows as they are tell little, hats do."""
    rng = np.random.default_rng(3)
    ages, sexes = rng.uniform(20, 80, 900), rng.choice(["f", "m"], 900)
    ill = np.cos(2 * np.pi * (ages - 20) / 30) + rng.normal(0, 0.3, 900) > 0
    lines = [f"{age:.1f},{sex},{int(label)}" for age, sex, label in zip(ages, sexes, ill, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(["age,sex,ill", *lines]))
    records = read_records(tmp_path / "table.csv", label="ill")
    parts = partition(records, n_participants=3, test_share=0.3, rng=rng)
    scores = []
    for columns in (records.columns, ()):
        deployment = Deployment(parts, AuditSettings(evaluation=EvaluationSpec(columns=columns)))
        point = SumPoint(8.0).settled_for(deployment)
        alone = Alone(References(None, None, 0), [])
        utility = measure_utility(point.simulate(deployment), deployment, learner="auto", alone=alone)
        scores.append(utility.deployed)
    with_hats, plain = scores
    assert (with_hats.metric, plain.metric) == ("AUC", "AUC")
    assert with_hats.low > 0.9 > 0.7 > plain.value


def draw_pictures(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pictures of 8 by 8 of three classes: a stripe that lies, stands or crosses."""
    rng = np.random.default_rng(seed)
    codes, place = rng.integers(0, 3, n), rng.integers(1, 7, n)
    pictures = rng.uniform(-1, -0.4, (n, 8, 8))
    for picture, code, k in zip(pictures, codes, place, strict=True):
        stripe = (np.s_[k, :], np.s_[:, k], (np.arange(8), np.roll(np.arange(8), k)))[code]
        picture[stripe] = 1
    return pictures.reshape(n, 64), codes


def test_pictures_by_class_are_simulated_attacked_and_planned_as_a_study_has_them() -> None:
    rows, labels = zip(*(draw_pictures(150, seed) for seed in range(6)), strict=True)
    tests, test_labels = zip(*(draw_pictures(60, 10 + seed) for seed in range(6)), strict=True)
    parts = Partition.from_parts(rows, labels, test=tests, test_labels=test_labels, rng=np.random.default_rng(0))
    options = settings(evaluation=EvaluationSpec(image_shape=(8, 8)))
    deployment = Deployment(parts, options)
    point = SumPoint(8.0).settled_for(deployment)
    assert point.expected_rows == 900
    simulation = point.simulate(deployment)
    expected = ClassLayout(count_components(900, 3, 8.0, 1e-5) + 1, 3)
    assert simulation.layout == expected
    assert simulation.train().learner == "quadratic"
    assert np.mean(simulation.train().predict([*tests]) == np.concatenate(test_labels)) > 0.9
    assert isinstance(SumPoint(8.0, expected_rows=0).simulate(deployment).layout, SumLayout)
    with pytest.raises(InputError):
        simulation.view()

    noisy = attack_total(simulation, parts, options, (0,))
    bare = simulate_sums(
        rows, labels, privacy=None, feature_map=simulation.feature_map, rng=np.random.default_rng(0), by_class=True
    )
    assert [each.sums.noise_scale > 0 for each in (simulation, bare)] == [True, False]
    worst = [
        max(outcome.figures["membership_auc"].value for outcome in outcomes if outcome.applies)
        for outcomes in (noisy, attack_total(bare, parts, options, (0,)))
    ]
    assert [outcome.attack for outcome in noisy] == NAMES
    assert worst[0] < 0.8 < 0.95 < worst[1]  # with three quarters as many numbers as rows, sums without noise tell
    moments_of_classes = Auditor.of(parts, None, options).audit(SumPoint(8.0))
    assert moments_of_classes.epsilon is not None
    assert moments_of_classes.epsilon.holds
    assert moments_of_classes.learner == "quadratic"
    plan = plan_study(parts, limit="epsilon at most 8", settings=options)
    assert isinstance(plan.mechanism, RecommendedSums)
    assert "expected_rows = 400" in str(plan.mechanism_lines())


def test_numbers_of_an_inferred_table_are_scaled_by_their_range_over_all_rows() -> None:
    """Beyond it they are clipped; a column that does not vary is zero, and a category and a flag stay as they are."""
    columns = (
        Column("x", "number", inferred=True, missing="indicate"),
        Column("k", "category", categories=("a", "b")),
        Column("same", "number", inferred=True),
    )
    parts = [
        np.array([[2.0, 0.0, 1.0, 0.0, 7.0], [4.0, 1.0, 0.0, 1.0, 7.0]]),
        np.zeros((0, 5)),
        np.array([[10.0, 0.0, 0.0, 1.0, 7.0]]),
    ]
    features = InferredTableFeatures.of(columns, parts)
    asked = np.array([[2.0, 0.0, 1.0, 0.0, 7.0], [8.0, 1.0, 0.0, 1.0, 9.0], [30.0, 0.0, 1.0, 0.0, 7.0]])
    scaled = asked.copy()
    scaled[:, 0], scaled[:, 4] = [-1.0, 0.5, 1.0], 0.0
    np.testing.assert_allclose(features.apply(asked), features.declared.apply(scaled))
    assert features.n_inputs == 5


@pytest.mark.parametrize(
    ("count", "rounded"), [(0, 0), (7, 7), (10, 10), (34, 30), (999, 900), (1000, 1000), (65432, 60000)]
)
def test_a_number_of_rows_that_a_study_expects_has_one_digit(count: int, rounded: int) -> None:
    assert _round_down(count) == rounded


def test_an_epsilon_alone_is_a_guarantee_of_all_participants_but_one_with_the_usual_delta() -> None:
    rows, labels = [np.ones((4, 2))] * 3, [np.arange(4) % 2] * 3
    simulation = simulate_sums(rows, labels, privacy=2.0, rng=np.random.default_rng(0))
    assert simulation.privacy == SumPrivacy(2.0, 1e-5, quorum=3, n_colluders=1)


@pytest.mark.parametrize("by_class", [False, True])
def test_learners_assume_the_noise_of_all_participants_and_none_for_exact_sums(by_class: bool) -> None:
    """The standard deviation of 435 products has a standard error of 3.4 %; the bounds are four of these away."""
    rng = np.random.default_rng(0)
    rows, labels = [rng.standard_normal((9, 29)) for _ in range(4)], [rng.integers(0, 3, 9) for _ in range(4)]
    noisy, exact = (
        simulate_sums(rows, labels, privacy=epsilon, rng=np.random.default_rng(1), by_class=by_class)
        for epsilon in (8.0, None)
    )

    def scale_of(sums: Any) -> float:
        return float(sums.noise_scale if by_class else sums.noise_scales[0])

    upper = np.triu_indices(noisy.layout.n_features, 1)
    drawn = (noisy.sums.products - exact.sums.products)[..., *upper] * math.sqrt(2)
    assert drawn.std() == pytest.approx(scale_of(noisy.sums), rel=0.13)
    assert scale_of(noisy.exact_sums_of(2)) == scale_of(exact.sums) == 0


@pytest.mark.parametrize(("n_participants", "n_alone"), [(2, 2), (12, 12), (14, 12)])
def test_of_many_participants_twelve_train_alone_on_their_own_sums_the_first_and_the_last_among_them(
    n_participants: int, n_alone: int
) -> None:
    """The sums of the first and of the last have labels the other way round."""
    rng = np.random.default_rng(0)
    rows = [rng.standard_normal((30, 2)) for _ in range(n_participants)]
    labels = [(part[:, 0] > 0).astype(int) for part in rows]
    labels[0], labels[-1] = 1 - labels[0], 1 - labels[-1]
    model = simulate_sums(rows, labels, privacy=None, rng=rng).train()
    assert model.answer_alone is not None
    truth = rows[0][:, 0] > 0
    shares = [np.mean(predicted == truth) for predicted, _ in model.answer_alone([rows[0]])]
    assert len(shares) == n_alone
    assert [share > 0.5 for share in shares] == [False, *[True] * (n_alone - 2), False]


@pytest.mark.parametrize(("n_honest", "n_others", "asked"), [(5000, 3000, (3000, 1000)), (5000, 700, (3300, 700))])
def test_of_four_thousand_candidates_a_thousand_are_others_if_there_are_as_many(
    n_honest: int, n_others: int, asked: tuple[int, int]
) -> None:
    collected: list[LabelledFeatures] = []

    def show(colluders: Any, candidates: LabelledFeatures) -> Any:
        collected.append(candidates)
        return [(np.arange(len(candidates.features)), None)]

    simulation: Any = SimpleNamespace(
        members=lambda participants: LabelledFeatures(np.ones((n_honest, 1)), np.zeros((n_honest, 0))),
        encode=lambda rows, labels: LabelledFeatures(np.zeros((n_others, 1)), np.zeros((n_others, 0))),
        views=show,
    )
    assert attack_total(simulation, study(2, 2), settings(attacks=[]), ()) == ()
    is_member = collected[0].features[:, 0] == 1
    assert (is_member.sum(), (~is_member).sum()) == asked


@pytest.mark.parametrize("n_colluders", [0, 1, 3])
def test_a_guarantee_states_against_how_many_it_holds(n_colluders: int) -> None:
    point = SumPoint(2.0, quorum=7, n_colluders=n_colluders)
    assert numbers_in(point.state_scope()) == {n_colluders, 7}
    assert numbers_in(replace(point, n_colluders=None).state_scope()) == {0, 7}


def test_a_view_is_that_of_the_first_participant_unless_others_collude() -> None:
    rows, labels = [np.full((4, 2), float(k + 1)) for k in range(3)], [np.arange(4) % 2] * 3
    simulation = simulate_sums(rows, labels, privacy=None, rng=np.random.default_rng(0))
    assert [part.tolist() for part in simulation.view().known] == [simulation.contributions[0].tolist()]


def test_utility_of_a_number_is_on_record() -> None:
    """Scores with intervals by resampling, of training alone, of pooled rows, with features and of the joint model."""
    deployment = Deployment(study(6, 6, number=True, n_participants=3), settings())
    alone = measure_alone(deployment, learner="linear")
    utilities = [
        measure_utility(point.settled_for(deployment).simulate(deployment), deployment, learner="linear", alone=alone)
        for point in (SumPoint(8.0), RotationPoint("aa-i-gdp-data-noise", 6, 24, 0.0, 0.5))
    ]
    check_record(
        RECORD, "utility of a number", [alone.references.as_dict(), *(utility.as_dict() for utility in utilities)]
    )


def test_a_sample_of_candidates_is_on_record() -> None:
    auditor = Auditor.of(study(), None, settings())
    simulation = SumPoint(None).simulate(auditor.deployment)
    outcomes = attack_total(simulation, auditor.partition, auditor.settings, (0,), most_candidates=60, least_others=20)
    check_record(RECORD, "sums, a sample", [outcome.as_dict() for outcome in outcomes])


@pytest.mark.parametrize(("targets", "honest"), [(None, 1), ((2, 3), 2)])
def test_beyond_the_guarantee_all_collude_but_the_first_target_or_else_the_second_participant(
    targets: tuple[int, ...] | None, honest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[int]] = []
    rows = LabelledFeatures(np.zeros((3, 1)), np.zeros((3, 0)))
    simulation: Any = SimpleNamespace(
        privacy=None,
        members=lambda participants: asked.append([*participants]) or rows,  # type: ignore[func-returns-value]
        encode=lambda rows_of_parts, labels: rows,
        views=lambda colluders, candidates: [(np.arange(6), None)],
    )
    monkeypatch.setattr(leakage, "_score", lambda score, views: (np.zeros(6), None))
    measure_total(simulation, study(2, 2), settings(attacks=[], colluders=(0, 4), targets=targets))
    assert asked == [[honest], [1, 2, 3, 5, 6, 7]]
