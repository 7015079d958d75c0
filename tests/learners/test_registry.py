import json
import math
from collections.abc import Callable

import numpy as np
import pytest

from mooring import RigidMap
from mooring.learners import LEARNERS, Score, fit, score

Refused = Callable[..., None]


def rows_and_classes(n: int = 90, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    classes = np.arange(n) % 3
    return rng.standard_normal((n, 4)) * [3.0, 1.0, 1.0, 0.5] + 2 * rng.standard_normal((3, 4))[classes], classes


@pytest.mark.parametrize("name", ["svm", "linear", "auto"])
def test_a_rigid_motion_of_the_rows_changes_no_prediction_of_a_class(name: str) -> None:
    rows, classes = rows_and_classes()
    motion = RigidMap.sample(4, rng=np.random.default_rng(1))
    here = fit(name, rows[:60], classes[:60], kind="classes", seed=0)
    there = fit(name, motion.apply(rows[:60]), classes[:60], kind="classes", seed=0)
    predicted = here(rows[60:])
    assert predicted.tolist() == there(motion.apply(rows[60:])).tolist()
    assert np.mean(predicted == classes[60:]) > 0.6


@pytest.mark.parametrize("name", ["svm", "linear"])
def test_a_rigid_motion_of_the_rows_changes_no_prediction_of_a_number(name: str) -> None:
    rows, _ = rows_and_classes()
    numbers = 100 + 30 * rows[:, 0] - 5 * rows[:, 2]
    motion = RigidMap.sample(4, rng=np.random.default_rng(2))
    here = fit(name, rows[:60], numbers[:60], kind="number", seed=0)(rows[60:])
    there = fit(name, motion.apply(rows[:60]), numbers[:60], kind="number", seed=0)(motion.apply(rows[60:]))
    np.testing.assert_allclose(here, there, rtol=1e-3)  # the solvers stop at this
    assert np.corrcoef(here, numbers[60:])[0, 1] > 0.9


@pytest.mark.parametrize("name", list(LEARNERS))
def test_with_one_class_only_that_class_is_predicted(name: str) -> None:
    rows, _ = rows_and_classes(20)
    assert set(fit(name, rows, np.full(20, 7), kind="classes", seed=0)(rows)) == {7}
    assert fit(name, rows, np.full(20, 7.5), kind="number", seed=0)(rows) == pytest.approx(7.5)
    assert fit(name, rows[:1], np.array([2.0]), kind="number", seed=0)(rows) == pytest.approx(2.0)


def test_rows_that_are_all_alike_can_be_learned_from() -> None:
    rows = np.full((12, 3), 0.1)
    assert fit("svm", rows, np.arange(12) % 2, kind="classes", seed=0)(rows).shape == (12,)


def test_many_rows_are_learned_by_landmarks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What 'auto' does from 12,000 rows, at a lower threshold: nearly the exact kernel's predictions."""
    monkeypatch.setattr("mooring.learners.scikit._ROWS_FOR_KERNEL", 50)
    monkeypatch.setattr("mooring.learners.scikit._LANDMARKS", 40)
    rows, classes = rows_and_classes()
    exact = fit("svm", rows, classes, kind="classes", seed=0)(rows)
    assert np.mean(fit("auto", rows, classes, kind="classes", seed=0)(rows) == exact) > 0.85
    numbers = rows[:, 0] + rows[:, 1]
    landmarks = fit("auto", rows, numbers, kind="number", seed=0)(rows)
    assert score(numbers, landmarks, kind="number", rng=np.random.default_rng(0)).value > 0.8


def test_unknown_learners_are_refused(refused: Refused) -> None:
    rows, classes = rows_and_classes(10)
    refused(
        lambda: fit("oracle", rows, classes, kind="classes", seed=0), what="learner", expected="auto", got="'oracle'"
    )


def test_balanced_accuracy_by_hand() -> None:
    """Of class 0 two of four, of class 1 one of one, of class 5 one of two: (0.5 + 1 + 0.5)/3. Plain accuracy is 4/7."""
    truth, predicted = np.array([0, 0, 0, 0, 1, 5, 5]), np.array([0, 0, 1, 5, 1, 5, 9])
    found = score(truth, predicted, kind="classes", rng=np.random.default_rng(0))
    assert found.value == pytest.approx(2 / 3)
    assert (found.metric, found.n) == ("balanced accuracy", 7)


def test_r2_by_hand() -> None:
    """Squared errors 1 + 0 + 4 against 1 + 0 + 1 around the mean 2: 1 − 5/2."""
    found = score(np.array([1.0, 2, 3]), np.array([2.0, 2, 5]), kind="number", rng=np.random.default_rng(0))
    assert found.value == pytest.approx(-1.5)
    assert found.metric == "R²"
    assert found.low <= found.value <= found.high


def test_intervals_of_balanced_accuracy_cover_it_as_often_as_they_say() -> None:
    """300 samples of 60 rows, recalls 0.9 and 0.6: nominally 95 %, the binomial is coarse. Half the width gives 67 %."""
    rng = np.random.default_rng(3)
    truth = np.repeat([0, 1], 30)
    right = rng.random((300, 60)) < np.where(truth == 0, 0.9, 0.6)
    found = [score(truth, np.where(one, truth, 9), kind="classes", rng=rng) for one in right]
    assert 0.9 <= np.mean([one.low <= 0.75 <= one.high for one in found]) <= 0.99


def test_intervals_of_r2_cover_it_as_often_as_they_say() -> None:
    """300 samples of 80 rows whose true R² is 0.75."""
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((300, 80))
    noise = 0.5 * rng.standard_normal((300, 80))
    found = [score(t, t + e, kind="number", rng=rng) for t, e in zip(truth, noise, strict=True)]
    assert 0.88 <= np.mean([one.low <= 0.75 <= one.high for one in found]) <= 0.99


@pytest.mark.parametrize("right", [True, False])
def test_a_perfect_and_a_hopeless_score_have_an_interval_with_a_width(right: bool) -> None:
    truth = np.arange(20) % 2
    found = score(truth, truth if right else 1 - truth, kind="classes", rng=np.random.default_rng(0))
    assert found.value == float(right)
    assert 0.02 < found.high - found.low < 0.5
    assert found.low <= found.value <= found.high


def test_a_score_survives_json() -> None:
    found = score(np.array([0, 1, 1]), np.array([0, 1, 0]), kind="classes", rng=np.random.default_rng(0))
    assert Score.from_dict(json.loads(json.dumps(found.as_dict(), allow_nan=False))) == found


def test_where_all_numbers_are_alike_r2_is_undefined_and_stays_so_through_json() -> None:
    found = score(np.full(5, 0.1), np.arange(5.0), kind="number", rng=np.random.default_rng(0))
    assert math.isnan(found.value)
    plain = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert plain["value"] is plain["low"] is plain["high"] is None
    again = Score.from_dict(plain)
    assert all(math.isnan(x) for x in (again.value, again.low, again.high))
    assert again.n == 5
