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

    found = evaluate_classes(
        truth, (shares.argmax(axis=1), shares), (weak.argmax(axis=1), weak), classes=NAMES[:n_classes]
    )
    every, rng = np.arange(200), np.random.default_rng(1)
    again = [rng.integers(200, size=200) for _ in range(150)]
    assert found.joint.auc is not None
    assert found.auc_gain is not None
    known = shares[:, 1] if n_classes == 2 else shares
    assert found.joint.auc.value == pytest.approx(roc_auc_score(truth, known, multi_class="ovr"))
    assert found.auc_gain.value == pytest.approx(auc(every, shares) - auc(every, weak))
    for one, values in (
        (found.joint.auc, [auc(rows, shares) for rows in again]),
        (found.auc_gain, [auc(rows, shares) - auc(rows, weak) for rows in again]),
    ):
        assert (one.high - one.low) / 4 == pytest.approx(np.std(values), rel=0.25)
    assert Evaluation.from_dict(found.as_dict()) == found
    same = evaluate_classes(truth, (truth, shares), (truth, shares), classes=NAMES[:n_classes]).auc_gain
    assert same is not None
    assert (same.low, same.value, same.high) == (0, 0, 0)


def test_errors_of_both_kinds_follow_the_threshold_and_calibration_adds_up() -> None:
    truth, shares = drawn(2, 400, 1.0)
    for threshold in (0.2, 0.5, 0.8):
        said = shares[:, 1] >= threshold
        predicted = said.astype(np.int64), shares
        one = evaluate_classes(truth, predicted, classes=("no", "yes"), threshold=threshold).joint
        assert one.sensitivity is not None
        assert one.specificity is not None
        assert one.sensitivity.value == pytest.approx(said[truth == 1].mean())
        assert one.specificity.value == pytest.approx(1 - said[truth == 0].mean())
        assert one.sensitivity.low < one.sensitivity.value < one.sensitivity.high
        assert one.confusion[1][1] == int(said[truth == 1].sum())
        assert one.brier == pytest.approx(brier_score_loss(truth, shares[:, 1]))
        assert sum(part.n for part in one.calibration) == 400
        assert sum(part.n * part.observed for part in one.calibration) == pytest.approx(truth.sum())


@pytest.mark.parametrize("labels", ["of all classes", "of one class"])
def test_without_probabilities_or_with_one_class_there_is_no_auc(labels: str) -> None:
    truth = np.arange(30) % 3 if labels == "of all classes" else np.zeros(30, dtype=np.int64)
    said = None if labels == "of all classes" else np.full((30, 3), 1 / 3)
    found = evaluate_classes(truth, (truth, said), (truth, said), classes=NAMES)
    assert found.joint.auc is found.auc_gain is found.joint.sensitivity is None
    assert np.sum(found.joint.confusion) == 30
    assert (found.joint.calibration == ()) == (said is None)


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
    metric, found = measure_importance(predict, rows, predict(rows)[0], widths=widths, kind=kind)  # type: ignore[arg-type]
    assert metric == ("balanced accuracy" if kind == "classes" else "R²")
    assert found[0].name == "ward"
    assert found[0].drop > 0.5
    assert {one.name: one.drop for one in found}["unused"] == 0
    assert all((given[:, 1:4].sum(axis=1) == 1).all() for given in seen)
