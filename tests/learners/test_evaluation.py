"""Scores at home: those of scikit-learn, with intervals that resampling bears out, and what a model looks at."""

import numpy as np
import pytest
from scipy.stats import rankdata
from sklearn.metrics import brier_score_loss, roc_auc_score

from mooring.learners.evaluation import Evaluation, evaluate_classes, measure_importance

NAMES = ("a", "b", "c")


def drawn(n_classes: int, n: int, strength: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Labels, and probabilities that follow them as strongly as asked for; rounded, so that some are tied."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n)
    raw = np.exp(np.round(rng.standard_normal((n, n_classes)) + strength * np.eye(n_classes)[truth], 1))
    return truth, raw / raw.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_auc_is_that_of_scikit_learn_and_its_error_that_of_resampling(n_classes: int) -> None:
    truth, shares = drawn(n_classes, 200, 1.0)
    weak = drawn(n_classes, 200, 0.3)[1]

    def of_class(inside: np.ndarray, given: np.ndarray) -> float:
        m = inside.sum()
        return float((rankdata(given)[inside].sum() - m * (m + 1) / 2) / (m * (inside.size - m)))

    def auc(rows: np.ndarray, given: np.ndarray) -> float:
        return float(
            np.mean([of_class(truth[rows] == k, given[rows, k]) for k in ((1,) if n_classes == 2 else range(3))])
        )

    evaluation = evaluate_classes(
        truth, (shares.argmax(axis=1), shares), (weak.argmax(axis=1), weak), classes=NAMES[:n_classes]
    )
    every, rng = np.arange(200), np.random.default_rng(1)
    again = [rng.integers(200, size=200) for _ in range(150)]
    assert evaluation.joint.auc is not None
    assert evaluation.auc_gain is not None
    known = shares[:, 1] if n_classes == 2 else shares
    assert evaluation.joint.auc.value == pytest.approx(roc_auc_score(truth, known, multi_class="ovr"))
    assert evaluation.auc_gain.value == pytest.approx(auc(every, shares) - auc(every, weak))
    for auc_value, values in (
        (evaluation.joint.auc, [auc(rows, shares) for rows in again]),
        (evaluation.auc_gain, [auc(rows, shares) - auc(rows, weak) for rows in again]),
    ):
        assert (auc_value.high - auc_value.low) / 4 == pytest.approx(np.std(values), rel=0.25)
    assert Evaluation.from_dict(evaluation.as_dict()) == evaluation
    same = evaluate_classes(truth, (truth, shares), (truth, shares), classes=NAMES[:n_classes]).auc_gain
    assert same is not None
    assert (same.low, same.value, same.high) == (0, 0, 0)


def test_errors_of_both_kinds_follow_the_threshold_and_calibration_adds_up() -> None:
    truth, shares = drawn(2, 400, 1.0)
    for threshold in (0.2, 0.5, 0.8):
        is_predicted = shares[:, 1] >= threshold
        predicted = is_predicted.astype(np.int64), shares
        joint = evaluate_classes(truth, predicted, classes=("no", "yes"), threshold=threshold).joint
        assert joint.sensitivity is not None
        assert joint.specificity is not None
        assert joint.sensitivity.value == pytest.approx(is_predicted[truth == 1].mean())
        assert joint.specificity.value == pytest.approx(1 - is_predicted[truth == 0].mean())
        assert joint.sensitivity.low < joint.sensitivity.value < joint.sensitivity.high
        assert joint.confusion[1][1] == int(is_predicted[truth == 1].sum())
        assert joint.brier == pytest.approx(brier_score_loss(truth, shares[:, 1]))
        assert sum(part.n for part in joint.calibration) == 400
        assert sum(part.n * part.observed for part in joint.calibration) == pytest.approx(truth.sum())


@pytest.mark.parametrize("labels", ["of all classes", "of one class"])
def test_without_probabilities_or_with_one_class_there_is_no_auc(labels: str) -> None:
    truth = np.arange(30) % 3 if labels == "of all classes" else np.zeros(30, dtype=np.int64)
    probabilities = None if labels == "of all classes" else np.full((30, 3), 1 / 3)
    evaluation = evaluate_classes(truth, (truth, probabilities), (truth, probabilities), classes=NAMES)
    assert evaluation.joint.auc is evaluation.auc_gain is evaluation.joint.sensitivity is None
    assert np.sum(evaluation.joint.confusion) == 30
    assert (evaluation.joint.calibration == ()) == (probabilities is None)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_column_that_the_model_uses_matters_and_is_shuffled_whole(kind: str) -> None:
    rng = np.random.default_rng(0)
    ward = rng.integers(3, size=120)
    rows = np.hstack([rng.standard_normal((120, 1)), np.eye(3)[ward], rng.standard_normal((120, 1))])
    seen = []

    def predict(given: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        seen.append(given)
        place = given[:, 1:4].argmax(axis=1)
        return (place, None) if kind == "classes" else (place + 0.1 * given[:, 0], None)

    widths = {"age": 1, "ward": 3, "unused": 1}
    metric, importances = measure_importance(predict, rows, predict(rows)[0], widths=widths, kind=kind)  # type: ignore[arg-type]
    assert metric == ("balanced accuracy" if kind == "classes" else "R²")
    assert importances[0].name == "ward"
    assert importances[0].drop > 0.5
    assert {importance.name: importance.drop for importance in importances}["unused"] == 0
    assert all((given[:, 1:4].sum(axis=1) == 1).all() for given in seen)
