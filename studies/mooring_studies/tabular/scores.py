"""What a model is worth: scores over everybody's test rows, as the paper has them and as deployed."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from mooring import RowSimulation
from mooring.geometry import to_numpy
from mooring.learners import Fitted, FittedEstimator, score_value, train_learner
from mooring.metrics import Membership
from mooring.tables import Partition
from mooring.typing import Matrix
from mooring_studies.comparison.results import Column, Row

_FEW_PARTICIPANTS = 10  # of so many, each one's own score has a column
_NO_NOISE: Row = {"anchor_noise_scale": 0.0, "data_noise_scale": 0.0}


def utility(rows: Partition, simulation: RowSimulation, *, learners: Sequence[str], seed: int) -> Row:
    """Train on everybody's aligned rows; score with noise on test rows, as the paper does, and without, as deployed."""
    labels, test_labels = _labels(rows)
    joint, joint_labels = to_numpy(simulation.collaboration_matrix), np.concatenate(labels)

    def tested(noise: float) -> Matrix:
        parts = [to_numpy(simulation.map_new_rows(i, part, data_noise_scale=noise)) for i, part in enumerate(rows.test)]
        return np.concatenate(parts)

    noise = simulation.data_noise_scale
    clean, noisy = tested(0.0), tested(noise) if noise > 0 else None
    return by_learner(
        learners, lambda name: _score(train(name, joint, joint_labels, seed=seed), test_labels, clean, noisy)
    )


def alone(rows: Partition, who: Sequence[int], *, learners: Sequence[str], seed: int) -> Row:
    """Train on the rows of some participants, of one or of all, and score on everybody's test rows."""
    labels, test_labels = _labels(rows)
    train_rows, own_labels = (np.concatenate([part[i] for i in who]) for part in (rows.train, labels))
    tested = np.concatenate(rows.test)
    scores = by_learner(
        learners, lambda name: _score(train(name, train_rows, own_labels, seed=seed), test_labels, tested)
    )
    return {**_NO_NOISE, "n_own_rows": int(train_rows.shape[0])} | scores


def each_own(rows: Partition, *, learners: Sequence[str], seed: int) -> Row:
    """Train every participant's own model, test it on its own test rows, and score all predictions together.

    Where populations differ, as hospitals' do, this is what joining has to beat: a model that was never meant for other
    hospitals' patients is not to blame for failing on them.
    """
    labels, test_labels = _labels(rows)

    def score(learner: str) -> Row:
        models = [train(learner, part, known, seed=seed) for part, known in zip(rows.train, labels, strict=True)]
        pairs = [(model, test) for model, test in zip(models, rows.test, strict=True) if len(test)]
        predicted = np.concatenate([most_probable(model, test) for model, test in pairs])
        columns = scored(test_labels, clean=predicted, noisy=predicted)
        leans = [part for model, test in pairs if (part := leaning(model, test)) is not None]
        if len(leans) == len(pairs):
            columns |= ranked(test_labels, np.concatenate(leans))
            columns.pop("auc_clean", None)  # leanings of different models cannot be ranked together
        return columns

    return _NO_NOISE | by_learner(learners, score)


def by_learner(learners: Sequence[str], score: Callable[[str], Row]) -> Row:
    """Scores of every learner: the first one's in the usual columns, those of another with its name after a colon."""
    columns: Row = {}
    for k, learner in enumerate(learners):
        columns |= {f"{name}:{learner}" if k else name: value for name, value in score(learner).items()}
    return columns


def _score(fitted: Fitted, test_labels: Sequence[Column], clean: Matrix, noisy: Matrix | None = None) -> Row:
    """All columns of one model on everybody's test rows; without `noisy` ones, the clean ones stand for both."""
    predicted = most_probable(fitted, clean)
    with_noise = predicted if noisy is None else most_probable(fitted, noisy)
    return scored(test_labels, clean=predicted, noisy=with_noise) | ranked(test_labels, leaning(fitted, clean))


def train(learner: str, rows: Matrix, labels: Column, *, seed: int) -> Fitted:
    """Train a learner for classes; a logistic regression that stops at its last step is no news here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return train_learner(learner, rows, labels, kind="classes", seed=seed)


def most_probable(fitted: Fitted, rows: Matrix) -> Column:
    """Predict the most probable class, as the paper does; mooring itself predicts a class from its share of the rows on."""
    assert isinstance(fitted, FittedEstimator)
    return np.asarray(fitted.estimator.predict(fitted.scaled(rows)))


def leaning(fitted: Fitted, rows: Matrix) -> Matrix | None:
    """How far a model of two classes leans to the second; None for more classes."""
    assert isinstance(fitted, FittedEstimator)
    if len(fitted.estimator.classes_) > 2:
        return None
    scaled = fitted.scaled(rows)
    if hasattr(fitted.estimator, "decision_function"):
        return np.asarray(fitted.estimator.decision_function(scaled))
    return np.asarray(fitted.estimator.predict_proba(scaled)[:, -1])


def ranked(test_labels: Sequence[Column], leans: Matrix | None) -> Row:
    """Areas under the ROC curve, as deployed: over all test rows, and the mean over participants of their own rows'.

    Balanced accuracy at the usual threshold also tells how many rows a model calls positive, which noise shifts, one way or
    the other; how well it ranks them does not depend on that.
    """
    truth = np.concatenate(list(test_labels))
    if leans is None or np.unique(truth).size != 2:
        return {}
    parts = np.split(leans, np.cumsum([len(part) for part in test_labels])[:-1])
    scores = {
        i: _measure_auc(labels, part)
        for i, (labels, part) in enumerate(zip(test_labels, parts, strict=True))
        if np.unique(labels).size == 2
    }
    columns: Row = {"auc_clean": _measure_auc(truth, leans)}
    if scores:
        columns["auc_own_clean"] = float(np.mean(list(scores.values())))
    if len(test_labels) <= _FEW_PARTICIPANTS:
        columns |= {f"auc_own:{i}": value for i, value in scores.items()}
    return columns


def _measure_auc(labels: Column, leans: Matrix) -> float:
    """Return the area under the ROC curve of the second of two classes."""
    is_second = labels == np.unique(labels)[1]
    return Membership(leans[is_second], leans[~is_second]).auc


def scored(test_labels: Sequence[Column], *, clean: Column, noisy: Column) -> Row:
    """Scores over all test rows, and where participants are few each one's own score as deployed."""
    truth = np.concatenate(list(test_labels))
    columns: Row = {
        "balanced_accuracy": balanced(truth, noisy),
        "balanced_accuracy_clean": balanced(truth, clean),
        "accuracy": float(np.mean(truth == noisy)),
    }
    if len(test_labels) <= _FEW_PARTICIPANTS:
        ends = np.cumsum([len(part) for part in test_labels])
        parts = zip(test_labels, np.split(clean, ends[:-1]), strict=True)
        columns |= {f"own:{i}": balanced(truth, predicted) for i, (truth, predicted) in enumerate(parts) if len(truth)}
    return columns


def balanced(truth: Column, predicted: Column) -> float:
    """The mean over classes of the share recognised."""
    return score_value(truth, predicted, kind="classes")


def _labels(rows: Partition) -> tuple[tuple[Column, ...], tuple[Column, ...]]:
    assert rows.train_labels is not None
    assert rows.test_labels is not None
    return rows.train_labels, rows.test_labels
