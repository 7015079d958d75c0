"""Local evaluation of a model on labelled rows: AUC, sensitivity, specificity, calibration, confusion and importance.

Intervals are 95 % intervals over rows. The interval of the AUC is DeLong's, computed from the influence of each row;
differences of AUCs are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.learners.models import Kind, Predicted
from mooring.learners.scores import METRICS, measure_area, score_value
from mooring.metrics.intervals import student_interval, wilson
from mooring.serialization import FloatOrNaN, Record, Rows
from mooring.typing import Labels, Matrix

_BINS, _REPEATS = 10, 5
_MOST_PREDICTIONS, _FEWEST_ROWS, _MOST_ROWS = 200_000, 50, 500


@dataclass(frozen=True)
class Estimate(Record):
    """A value and its 95 % interval over rows."""

    value: FloatOrNaN
    low: FloatOrNaN
    high: FloatOrNaN

    def written(self, digits: str = ".3f") -> str:
        """Return the value as text, with its interval if there is one."""
        return f"{self.value:{digits}}" + (
            "" if math.isnan(self.low) else f" [{self.low:{digits}}, {self.high:{digits}}]"
        )


@dataclass(frozen=True)
class CalibrationBin(Record):
    """Rows with similar probabilities: their mean, the observed share with its interval, and the number of rows."""

    predicted: float
    observed: float
    low: FloatOrNaN
    high: FloatOrNaN
    n: int


@dataclass(frozen=True)
class ModelEvaluation(Record):
    """How well one model predicts the classes of labelled rows."""

    confusion: tuple[tuple[int, ...], ...]
    """Number of rows by true class (outer) and predicted class (inner)."""
    auc: Estimate | None
    """Area under the ROC curve of the second of two classes. For more classes, it is the mean of the areas of each class
    against the others. None without probabilities, or if all rows have the same class."""
    sensitivity: Estimate | None
    specificity: Estimate | None
    """Shares of the second and of the first class that are recognised; None if there are more than two classes, or if no row
    has the class."""
    brier: FloatOrNaN
    """Mean squared error of the second class's probability. For more classes, it is the sum over classes; NaN without
    probabilities."""
    calibration: tuple[CalibrationBin, ...]
    """Calibration of the second of two classes or, for more classes, of the predicted class."""


@dataclass(frozen=True)
class Evaluation(Record):
    """The evaluation of the joint model and of a model trained alone, on the same labelled rows."""

    classes: tuple[str, ...]
    threshold: float | None
    """Probability from which the second of two classes is predicted; None if each model chooses by its shares of classes."""
    joint: ModelEvaluation
    alone: ModelEvaluation | None = None
    auc_gain: Estimate | None = None
    """AUC of the joint model minus that of training alone, paired by row."""

    def list_measures(self) -> Rows:
        """Return a table with one line per measure: the joint model, training alone, and the paired difference if known."""
        second, models = self.classes[-1], (self.joint, self.alone)
        chosen = "as predicted" if self.threshold is None else f"from a probability of {self.threshold:g} on"
        names = {
            "auc": f"AUC of '{second}'" if len(self.classes) == 2 else "AUC, mean over classes",
            "sensitivity": f"sensitivity, '{second}' {chosen}",
            "specificity": f"specificity, '{self.classes[0]}' otherwise",
        }
        rows = [("measure", "joint", "raw rows alone", "difference")]
        for name, words in names.items():
            joint, alone = (None if model is None else getattr(model, name) for model in models)
            gain = self.auc_gain if name == "auc" else None
            if joint is not None:
                rows.append(
                    (words, joint.written(), alone.written() if alone else "", gain.written("+.3f") if gain else "")
                )
        if not math.isnan(self.joint.brier):
            brier = ["" if model is None or math.isnan(model.brier) else f"{model.brier:.3f}" for model in models]
            rows.append(("Brier score (0 is best)", brier[0], brier[1], ""))
        return rows


@dataclass(frozen=True)
class Importance(Record):
    """The drop of the score when a column is shuffled: its mean and standard deviation over shuffles."""

    name: str
    drop: FloatOrNaN
    deviation: FloatOrNaN


def evaluate_classes(
    truth: Labels,
    joint: Predicted,
    alone: Predicted | None = None,
    *,
    classes: Sequence[str],
    threshold: float | None = None,
) -> Evaluation:
    """Return the evaluation of the joint model and of a model trained alone, on the same labelled rows.

    `truth` holds the class codes of the rows. `threshold` is the probability from which the second of two classes was
    predicted, if there was one.

    Examples
    --------
    >>> truth, sure = np.array([0, 0, 1, 1]), np.array([0.1, 0.6, 0.4, 0.9])
    >>> predicted = (sure > 0.5).astype(int), np.column_stack([1 - sure, sure])
    >>> evaluation = evaluate_classes(truth, predicted, classes=("no", "yes"), threshold=0.5)
    >>> evaluation.joint.auc.value, evaluation.joint.confusion
    (0.75, ((1, 1), (1, 1)))
    """
    models = [joint] if alone is None else [joint, alone]
    curves = [None if shares is None else measure_area(truth, shares) for _, shares in models]
    evaluations = [
        _evaluate(truth, predicted, curve, len(classes)) for predicted, curve in zip(models, curves, strict=True)
    ]
    gain = None
    if alone is not None and curves[0] is not None and curves[1] is not None:
        gain = _estimate(curves[0][0] - curves[1][0], curves[0][1] - curves[1][1], least=-1.0)
    return Evaluation(tuple(classes), threshold, evaluations[0], None if alone is None else evaluations[1], gain)


def measure_importance(
    predict: Callable[[Matrix], Predicted],
    rows: Matrix,
    truth: Labels,
    *,
    widths: dict[str, int],
    kind: Kind,
) -> tuple[str, tuple[Importance, ...]]:
    """Return the metric, and the permutation importance of each column: the drop of the score when its cells are shuffled.

    `predict` returns a model's predictions for encoded rows. At most 500 of the rows are drawn; if there are many
    columns, fewer are drawn, but at least 50. `widths` maps the name of each column, in order, to its number of encoded
    numbers. The metric is the AUC if it is defined, else balanced accuracy or R². The most important column comes first.
    """
    from sklearn.inspection import permutation_importance

    most = min(_MOST_ROWS, max(_FEWEST_ROWS, _MOST_PREDICTIONS // (_REPEATS * max(1, len(widths)))))
    drawn = np.random.default_rng(0).permutation(len(rows))[:most]
    rows, truth = rows[drawn], truth[drawn]
    blocks = np.split(rows, np.cumsum(list(widths.values()))[:-1], axis=1)

    def score(model: _Shuffled, places: Labels, truth: Labels) -> float:
        values, shares = model.predict(places)
        return score_value(truth, values, kind=kind, shares=shares)

    places = np.tile(np.arange(len(rows))[:, None], len(blocks))
    importances = permutation_importance(
        _Shuffled(predict, blocks), places, truth, scoring=score, n_repeats=_REPEATS, random_state=0
    )
    each = zip(widths, importances.importances_mean.tolist(), importances.importances_std.tolist(), strict=True)
    ordered = sorted((Importance(*figures) for figures in each), key=lambda importance: -importance.drop)
    shares = predict(rows[:1])[1]
    return METRICS[kind] if shares is None or np.unique(truth).size < 2 else "AUC", tuple(ordered)


class _Shuffled:
    """A model whose inputs are the indices of the rows from which each column is taken.

    One index per column shuffles all encoded numbers of the column together.
    """

    def __init__(self, predict: Callable[[Matrix], Predicted], blocks: Sequence[Matrix]) -> None:
        self._predict, self._blocks = predict, blocks

    def fit(self, *_: Any) -> _Shuffled:
        """Do nothing; scikit-learn requires this method."""
        return self

    def predict(self, places: Labels) -> Predicted:
        """Return the predictions for rows that are assembled from these indices."""
        return self._predict(np.hstack([block[places[:, k]] for k, block in enumerate(self._blocks)]))


def _evaluate(
    truth: Labels, predicted: Predicted, curve: tuple[float, Matrix] | None, n_classes: int
) -> ModelEvaluation:
    values, shares = predicted
    two, brier = n_classes == 2, math.nan
    calibration: tuple[CalibrationBin, ...] = ()
    if shares is not None:
        brier = float(((shares - np.eye(n_classes)[truth]) ** 2).sum(axis=1).mean()) / (2 if two else 1)
        calibration = _calibrate(*((shares[:, 1], truth == 1) if two else (shares.max(axis=1), values == truth)))
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(counts, (truth, values), 1)
    confusion = counts.tolist()
    first, second = (_share(confusion[k][k], sum(confusion[k])) if two else None for k in (0, 1))
    auc = None if curve is None else _estimate(*curve, least=0.0)
    return ModelEvaluation(tuple(map(tuple, confusion)), auc, second, first, brier, calibration)


def _calibrate(predicted: Matrix, came_true: npt.NDArray[np.bool_]) -> tuple[CalibrationBin, ...]:
    """Return the calibration in ten bins of equal width, without empty bins."""
    bins = np.minimum((predicted * _BINS).astype(np.int64), _BINS - 1)
    calibration = []
    for number in np.unique(bins):
        inside = bins == number
        share = _share(int(came_true[inside].sum()), int(inside.sum()))
        assert share is not None
        mean = float(predicted[inside].mean())
        calibration.append(CalibrationBin(mean, share.value, share.low, share.high, int(inside.sum())))
    return tuple(calibration)


def _share(successes: int, trials: int) -> Estimate | None:
    if trials == 0:
        return None
    interval = wilson(successes, trials)
    return Estimate(successes / trials, interval.low, interval.high)


def _estimate(value: float, influence: Matrix, *, least: float) -> Estimate:
    n = influence.size
    error = math.sqrt(float(influence @ influence) / (n * (n - 1))) if n > 1 else math.nan
    interval = student_interval(value, error, n=n)
    return Estimate(value, *np.clip([interval.low, interval.high], least, 1.0).tolist())  # NaN stays NaN
