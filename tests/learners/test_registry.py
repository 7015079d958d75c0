import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

from mooring import InputError, RigidMap
from mooring.learners import (
    AUTO,
    CANDIDATES,
    LEARNERS,
    Kind,
    Score,
    choose_learner,
    cross_validate,
    require_learner,
    score,
    score_value,
    train_learner,
)
from mooring.learners.fitting import MOST_ROWS, choice_rows, draw_rows, group_folds, row_folds
from mooring.learners.registry import SUM_LEARNERS, EstimatorLearner, resolve_learner, resolve_sum_learner
from tests.raising import raising

Refused = Callable[..., None]
EVERY = list(LEARNERS)


def rows_and_classes(n: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    return rng.standard_normal((n, 4)) * [3.0, 1.0, 1.0, 0.5] + 2 * rng.standard_normal((3, 4))[classes], classes


@pytest.mark.parametrize("name", ["svm", "linear"])
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_rigid_motion_of_the_rows_changes_no_prediction(name: str, kind: str) -> None:
    rows, labels = rows_and_classes()
    if kind == "number":
        labels = 100 + 30 * rows[:, 0] - 5 * rows[:, 2]
    motion = RigidMap.sample(4, rng=np.random.default_rng(1))
    moved = np.asarray(motion.apply(rows))
    here, there = (
        train_learner(name, each[:60], labels[:60], kind=kind, seed=0).predict(each[60:]) for each in (rows, moved)
    )
    np.testing.assert_allclose(here, there, rtol=1e-3)  # the solvers stop at this
    assert score_value(labels[60:], here, kind=kind) > 0.6


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", ["classes", "number"])
@pytest.mark.filterwarnings("ignore:n_components > n_samples")
def test_where_rows_lie_changes_no_score(name: str, kind: Kind) -> None:
    """However far from zero. Random features are other ones there, and score within 0.06 (20 seeds: at most 0.03)."""
    rows, labels = rows_and_classes(240)
    if kind == "number":
        labels = 100 + 30 * rows[:, 0] - 5 * rows[:, 2]
    scores = []
    for each in (rows, rows + np.array([1e4, -1e4, 0.0, 1e3])):
        fitted = train_learner(name, each[:120], labels[:120], kind=kind, seed=0)
        sent = [fitted.to_model()] if LEARNERS[name].delivers else []
        scores += [score_value(labels[120:], model.predict(each[120:]), kind=kind) for model in (fitted, *sent)]
    assert scores[0] > 0.6
    close = {"random-fourier": 0.06, "xgboost": 0.06}.get(name, 2e-3)  # XGBoost rounds numbers to single precision
    assert scores == pytest.approx(len(scores) * scores[:1], abs=close)


@pytest.mark.parametrize("name", [AUTO, *EVERY])
def test_with_one_class_only_that_class_is_predicted(name: str) -> None:
    rows, _ = rows_and_classes(20)
    for labels, kind in ((np.full(20, 7), "classes"), (np.full(20, 7.5), "number"), (np.array([2.0]), "number")):
        predictions = train_learner(name, rows[: labels.size], labels, kind=kind, seed=0).predict(rows)
        assert predictions == pytest.approx(float(labels[0]))


def test_rows_that_are_all_alike_can_be_learned_from() -> None:
    rows = np.full((12, 3), 0.1)
    assert train_learner("svm", rows, np.arange(12) % 2, kind="classes", seed=0).predict(rows).shape == (12,)


@pytest.mark.parametrize("name", ["nystroem", "random-fourier"])
def test_an_approximate_kernel_predicts_nearly_what_the_kernel_does(name: str) -> None:
    rows, classes = rows_and_classes(900)
    exact = train_learner("svm", rows, classes, kind="classes", seed=0).predict(rows)
    predictions = train_learner(name, rows, classes, kind="classes", seed=0).predict(rows)
    assert np.mean(predictions == exact) > 0.85
    numbers = rows[:, 0] + rows[:, 1]
    predictions = train_learner(name, rows, numbers, kind="number", seed=0).predict(rows)
    assert score_value(numbers, predictions, kind="number") > 0.8


def test_auto_chooses_the_candidate_that_predicts_other_participants_best() -> None:
    rows, labels = load_breast_cancer(return_X_y=True)
    rows = (rows - rows.mean(axis=0)) / rows.std(axis=0)
    owners = np.arange(len(rows)) % 5
    scores = {}
    for name in CANDIDATES:
        _, shares = cross_validate(name, rows, labels, owners, kind="classes", seed=0)
        assert shares is not None
        scores[name] = roc_auc_score(labels, shares[:, 1])
    chosen = choose_learner(rows, labels, kind="classes", seed=0, owners=owners)
    assert scores[chosen] == max(scores.values())
    assert train_learner(AUTO, rows, labels, kind="classes", seed=0, owners=owners).learner == chosen


def test_auto_asks_participants_that_it_was_not_trained_on() -> None:
    """Each participant's rows lie where nobody else's do: within participants curves pay, across them they mislead."""
    rng = np.random.default_rng(0)
    owners = np.repeat(np.arange(5), 60)
    rows = rng.uniform(-1, 1, (300, 2)) + np.column_stack([8.0 * owners, np.zeros(300)])
    numbers = rows[:, 0] + 3 * np.sin(4 * rows[:, 1])
    assert choose_learner(rows, numbers, kind="number", seed=0) == "random-fourier"
    assert choose_learner(rows, numbers, kind="number", seed=0, owners=owners) == "linear"


def test_auto_takes_the_simplest_learner_where_there_is_too_little_to_tell() -> None:
    rows, classes = rows_and_classes(8)
    assert choose_learner(rows, classes, kind="classes", seed=0) == CANDIDATES[0] == "linear"


def test_candidates_of_auto_may_be_delivered_and_are_trained_by_every_engine() -> None:
    for name in CANDIDATES:
        require_learner(name, engine="dask", to_deliver=True)
        require_learner(name, to_deliver=True)
    assert [name for name, learner in LEARNERS.items() if not learner.delivers] == ["nystroem", "svm"]


def test_auto_takes_the_first_learner_of_sums_that_predicts_the_label() -> None:
    assert [resolve_sum_learner(AUTO, kind).name for kind in ("classes", "number")] == ["discriminant", "least-squares"]
    assert resolve_sum_learner("least-squares", "classes") is SUM_LEARNERS["least-squares"]
    for learner, kind in (("discriminant", "number"), ("svm", "classes"), (["linear"], "number")):
        with raising(InputError, "learner", got=str(learner)):
            resolve_sum_learner(learner, kind)


def test_auto_is_no_learner_until_one_is_chosen() -> None:
    with raising(InputError, "learner", got="'auto'", cure="choose_learner"):
        resolve_learner("auto")


def test_a_learner_of_ones_own_is_used_as_it_is() -> None:
    rows, classes = rows_and_classes(60)
    learner = EstimatorLearner(
        "nearest", "one neighbour", lambda kind, *, shape, seed: KNeighborsClassifier(1), delivers=False
    )
    assert resolve_learner(learner) is learner
    fitted = train_learner(learner, rows, classes, kind="classes", seed=0)
    assert fitted.learner == "nearest"
    assert np.array_equal(fitted.predict(rows), classes)
    with raising(InputError, "learner", got="nearest"):
        resolve_learner(learner, to_deliver=True)
    with raising(InputError, "learner", got="nearest"):
        resolve_learner(learner, engine="dask")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("oracle", {}),
        ("waves", {}),
        ("svm", {"engine": "dask"}),
        ("svm", {"to_deliver": True}),
        ("nystroem", {"to_deliver": True}),
        (["linear"], {}),
    ],
)
def test_unknown_learners_are_refused(name: object, options: dict[str, object], refused: Refused) -> None:
    refused(lambda: require_learner(name, **options), "learner", "auto", repr(name))


def test_rows_to_choose_by_are_the_same_before_and_after_rows_are_drawn_to_train_on() -> None:
    """So a cluster, which does not draw rows, chooses by the same ones."""
    counts = [60_000, 5_000, 300]
    drawn = draw_rows(counts, MOST_ROWS, 3)
    assert sum(map(len, drawn)) <= MOST_ROWS
    after = choice_rows([draw.size for draw in drawn], 3)
    before = choice_rows(counts, 3)
    for drawn_rows, picks, expected in zip(drawn, after, before, strict=True):
        assert np.array_equal(drawn_rows[picks], expected)
    assert 590 <= sum(map(len, before)) <= 600
    assert [positions.tolist() for positions in draw_rows([3, 2], 10, 0)] == [[0, 1, 2], [0, 1]]


def test_folds_have_everybody_once_and_labels_evenly() -> None:
    assert group_folds(4, 0).tolist() == [0, 1, 2, 3]
    assert np.bincount(group_folds(23, 1)).tolist() == [3, 3, 3] + [2] * 7
    labels = np.repeat([0, 1], [30, 70])
    folds = row_folds(labels, 0)
    assert [np.bincount(labels[folds == k]).tolist() for k in range(5)] == [[6, 14]] * 5


def test_balanced_accuracy_by_hand() -> None:
    """2 of 4 rows of class 0 are right, 1 of 1 of class 1, 1 of 2 of class 5: (0.5 + 1 + 0.5)/3. Plain accuracy is 4/7."""
    truth, predicted = np.array([0, 0, 0, 0, 1, 5, 5]), np.array([0, 0, 1, 5, 1, 5, 9])
    measured_score = score(truth, predicted, kind="classes", rng=np.random.default_rng(0))
    assert measured_score.value == pytest.approx(2 / 3)
    assert (measured_score.metric, measured_score.n) == ("balanced accuracy", 7)


def test_r2_by_hand() -> None:
    """Squared errors 1 + 0 + 4 against 1 + 0 + 1 around the mean 2: 1 − 5/2."""
    measured_score = score(np.array([1.0, 2, 3]), np.array([2.0, 2, 5]), kind="number", rng=np.random.default_rng(0))
    assert measured_score.value == pytest.approx(-1.5)
    assert measured_score.metric == "R²"
    assert measured_score.low <= measured_score.value <= measured_score.high


def test_intervals_of_balanced_accuracy_cover_it_as_often_as_they_say() -> None:
    """300 samples of 60 rows, recalls 0.9 and 0.6: nominally 95 %, the binomial is coarse. Half the width gives 67 %."""
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1], 30)
    right = rng.random((300, 60)) < np.where(truth == 0, 0.9, 0.6)
    measured_scores = [score(truth, np.where(is_right, truth, 9), kind="classes", rng=rng) for is_right in right]
    assert 0.9 <= np.mean([measured.low <= 0.75 <= measured.high for measured in measured_scores]) <= 0.99


def test_intervals_of_r2_cover_it_as_often_as_they_say() -> None:
    """300 samples of 80 rows whose true R² is 0.75."""
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((300, 80))
    noise = 0.5 * rng.standard_normal((300, 80))
    measured_scores = [score(t, t + e, kind="number", rng=rng) for t, e in zip(truth, noise, strict=True)]
    assert 0.88 <= np.mean([measured.low <= 0.75 <= measured.high for measured in measured_scores]) <= 0.99


@pytest.mark.parametrize("right", [True, False])
def test_a_perfect_and_a_hopeless_score_have_an_interval_with_a_width(right: bool) -> None:
    truth = np.arange(20) % 2
    measured_score = score(truth, truth if right else 1 - truth, kind="classes", rng=np.random.default_rng(0))
    assert measured_score.value == float(right)
    assert 0.02 < measured_score.high - measured_score.low < 0.5
    assert measured_score.low <= measured_score.value <= measured_score.high


def test_a_score_survives_json() -> None:
    measured_score = score(np.array([0, 1, 1]), np.array([0, 1, 0]), kind="classes", rng=np.random.default_rng(0))
    assert Score.from_dict(json.loads(json.dumps(measured_score.as_dict(), allow_nan=False))) == measured_score


def test_where_all_numbers_are_alike_r2_is_undefined_and_stays_so_through_json() -> None:
    measured_score = score(np.full(5, 0.1), np.arange(5.0), kind="number", rng=np.random.default_rng(0))
    assert math.isnan(measured_score.value)
    plain = json.loads(json.dumps(measured_score.as_dict(), allow_nan=False))
    assert plain["value"] is plain["low"] is plain["high"] is None
    again = Score.from_dict(plain)
    assert all(math.isnan(x) for x in (again.value, again.low, again.high))
    assert again.n == 5


@pytest.mark.parametrize(("n_rows", "most_leaves"), [(2000, None), (2001, 2000)])
def test_a_forest_of_many_rows_is_bounded(n_rows: int, most_leaves: int | None) -> None:
    forest = LEARNERS["forest"].make("classes", shape=(n_rows, 4), seed=0)
    assert (forest.n_estimators, forest.max_depth, forest.max_leaf_nodes) == (200, 40, most_leaves)


@pytest.mark.parametrize("name", ["nystroem", "random-fourier"])
def test_the_penalty_of_an_approximate_kernel_is_the_one_that_was_chosen(name: str) -> None:
    assert LEARNERS[name].make("number", shape=(90, 4), seed=0)[-1].alpha == 0.1
