"""How well a model serves on labelled rows at home: AUC, sensitivity and specificity, calibration, confusion, importance.

Intervals are 95 %, over rows. That of the AUC is DeLong's, by each row's influence; differences of AUCs are paired.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.learners.models import Kind, Predicted
from mooring.learners.scores import METRICS, score_value
from mooring.metrics.intervals import student_interval, wilson
from mooring.metrics.membership import Membership
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
        """The value, and its interval where it has one."""
        return f"{self.value:{digits}}" + (
            "" if math.isnan(self.low) else f" [{self.low:{digits}}, {self.high:{digits}}]"
        )


@dataclass(frozen=True)
class CalibrationBin(Record):
    """Rows with about the same probability: its mean, the share that came true with its interval, and how many."""

    predicted: float
    observed: float
    low: FloatOrNaN
    high: FloatOrNaN
    n: int


@dataclass(frozen=True)
class ModelEvaluation(Record):
    """How well one model predicts the classes of labelled rows."""

    confusion: tuple[tuple[int, ...], ...]
    """Rows of each class (outer) by what was predicted (inner)."""
    auc: Estimate | None
    """Area under the ROC curve: of the second of two classes; of more, the mean over classes of each against the others.
    None without probabilities, or where the rows are all of one class."""
    sensitivity: Estimate | None
    specificity: Estimate | None
    """Of two classes: the share of the second, and of the first, that is recognised."""
    brier: FloatOrNaN
    """Mean squared error of the second class's probability, or of more classes the sum over them; NaN without any."""
    calibration: tuple[CalibrationBin, ...]
    """Of the second of two classes; of more, of the class predicted."""


@dataclass(frozen=True)
class Evaluation(Record):
    """The joint model beside one trained alone, on the same labelled rows."""

    classes: tuple[str, ...]
    threshold: float
    """From which probability on the second of two classes is predicted."""
    joint: ModelEvaluation
    alone: ModelEvaluation | None = None
    auc_gain: Estimate | None = None
    """The joint model's AUC less that of training alone, paired by row."""

    def list_measures(self) -> Rows:
        """A line a measure, as text: of the joint model, of training alone, and the difference where it is paired."""
        second, models = self.classes[-1], (self.joint, self.alone)
        names = {
            "auc": f"AUC of '{second}'" if len(self.classes) == 2 else "AUC, mean over classes",
            "sensitivity": f"sensitivity, '{second}' from a probability of {self.threshold:g} on",
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
            brier = ["" if one is None or math.isnan(one.brier) else f"{one.brier:.3f}" for one in models]
            rows.append(("Brier score (0 is best)", brier[0], brier[1], ""))
        return rows


@dataclass(frozen=True)
class Importance(Record):
    """What the score falls by when a column is shuffled: its mean and standard deviation over shuffles."""

    name: str
    drop: FloatOrNaN
    deviation: FloatOrNaN


def evaluate_classes(
    truth: Labels, joint: Predicted, alone: Predicted | None = None, *, classes: Sequence[str], threshold: float = 0.5
) -> Evaluation:
    """Evaluate the joint model, and beside it one that was trained alone, on the same labelled rows.

    Parameters
    ----------
    truth : integers of shape (n,)
    threshold : float, default 0.5
        From which probability on the second of two classes is predicted.

    Examples
    --------
    >>> truth, sure = np.array([0, 0, 1, 1]), np.array([0.1, 0.6, 0.4, 0.9])
    >>> found = evaluate_classes(truth, (truth, np.column_stack([1 - sure, sure])), classes=("no", "yes"))
    >>> found.joint.auc.value, found.joint.confusion
    (0.75, ((1, 1), (1, 1)))
    """
    if not 0 < threshold < 1:
        raise InputError("threshold", expected="between 0 and 1", got=f"{threshold:g}", cure="0.5 is the default.")
    models = [joint] if alone is None else [joint, alone]
    curves = [None if shares is None else _auc(truth, shares) for _, shares in models]
    found = [_evaluate(truth, one, curve, len(classes), threshold) for one, curve in zip(models, curves, strict=True)]
    gain = None
    if alone is not None and curves[0] is not None and curves[1] is not None:
        gain = _estimate(curves[0][0] - curves[1][0], curves[0][1] - curves[1][1], least=-1.0)
    return Evaluation(tuple(classes), threshold, found[0], None if alone is None else found[1], gain)


def measure_importance(
    predict: Callable[[Matrix], Predicted],
    rows: Matrix,
    truth: Labels,
    *,
    widths: dict[str, int],
    kind: Kind,
) -> tuple[str, tuple[Importance, ...]]:
    """Measure by how much a model's score falls when a column is shuffled among rows (permutation importance).

    Parameters
    ----------
    predict : callable
        From encoded rows to what the model says of them.
    rows : array of shape (n, width)
        Of them, 50 to 500 are drawn: fewer where columns are many.
    truth : array of shape (n,)
    widths : dict
        Encoded numbers of each column, in order, by the column's name.

    Returns
    -------
    metric : str
        The AUC where it is defined, else as of `Score`.
    importances : tuple of Importance
        The column that matters most first.
    """
    from sklearn.inspection import permutation_importance

    most = min(_MOST_ROWS, max(_FEWEST_ROWS, _MOST_PREDICTIONS // (_REPEATS * max(1, len(widths)))))
    drawn = np.random.default_rng(0).permutation(len(rows))[:most]
    rows, truth = rows[drawn], truth[drawn]
    blocks = np.split(rows, np.cumsum(list(widths.values()))[:-1], axis=1)

    def score(model: _Shuffled, places: Labels, truth: Labels) -> float:
        values, shares = model.predict(places)
        curve = None if shares is None else _auc(truth, shares)
        return score_value(truth, values, kind=kind) if curve is None else curve[0]

    places = np.tile(np.arange(len(rows))[:, None], len(blocks))
    found = permutation_importance(
        _Shuffled(predict, blocks), places, truth, scoring=score, n_repeats=_REPEATS, random_state=0
    )
    each = zip(widths, found.importances_mean.tolist(), found.importances_std.tolist(), strict=True)
    ordered = sorted((Importance(*one) for one in each), key=lambda one: -one.drop)
    shares = predict(rows[:1])[1]
    return METRICS[kind] if shares is None or np.unique(truth).size < 2 else "AUC", tuple(ordered)


class _Shuffled:
    """A model that takes, for every column, the place of the row whose cell it is: columns of several numbers stay whole."""

    def __init__(self, predict: Callable[[Matrix], Predicted], blocks: Sequence[Matrix]) -> None:
        self._predict, self._blocks = predict, blocks

    def fit(self, *_: Any) -> _Shuffled:
        """Nothing: scikit-learn asks for it."""
        return self

    def predict(self, places: Labels) -> Predicted:
        """What the model says of rows that are put together from these places."""
        return self._predict(np.hstack([block[places[:, k]] for k, block in enumerate(self._blocks)]))


def _evaluate(
    truth: Labels, predicted: Predicted, curve: tuple[float, Matrix] | None, n_classes: int, threshold: float
) -> ModelEvaluation:
    values, shares = predicted
    two, brier = n_classes == 2, math.nan
    calibration: tuple[CalibrationBin, ...] = ()
    if shares is not None:
        values = (shares[:, 1] >= threshold).astype(np.int64) if two else values
        brier = float(((shares - np.eye(n_classes)[truth]) ** 2).sum(axis=1).mean()) / (2 if two else 1)
        calibration = _calibrate(*((shares[:, 1], truth == 1) if two else (shares.max(axis=1), values == truth)))
    counts = np.zeros((n_classes, n_classes), dtype=np.int64)
    np.add.at(counts, (truth, values), 1)
    confusion = counts.tolist()
    first, second = (_share(confusion[k][k], sum(confusion[k])) if two else None for k in (0, 1))
    auc = None if curve is None else _estimate(*curve, least=0.0)
    return ModelEvaluation(tuple(map(tuple, confusion)), auc, second, first, brier, calibration)


def _calibrate(predicted: Matrix, came_true: npt.NDArray[np.bool_]) -> tuple[CalibrationBin, ...]:
    """Ten bins of the same width, without those that no row is in."""
    bins = np.minimum((predicted * _BINS).astype(np.int64), _BINS - 1)
    found = []
    for one in np.unique(bins):
        inside = bins == one
        share = _share(int(came_true[inside].sum()), int(inside.sum()))
        assert share is not None
        mean = float(predicted[inside].mean())
        found.append(CalibrationBin(mean, share.value, share.low, share.high, int(inside.sum())))
    return tuple(found)


def _share(successes: int, trials: int) -> Estimate | None:
    if trials == 0:
        return None
    interval = wilson(successes, trials)
    return Estimate(successes / trials, interval.low, interval.high)


def _auc(truth: Labels, shares: Matrix) -> tuple[float, Matrix] | None:
    """The AUC and every row's influence on it (DeLong et al. 1988); None where no class has rows in it and outside."""
    n, K = shares.shape
    values, influences = [], []
    for k in (1,) if K == 2 else range(K):
        inside, own = truth == k, shares[:, k]
        m = int(inside.sum())
        if m in (0, n):
            continue
        above = np.empty(n)
        above[inside], above[~inside] = Membership(own[inside], own[~inside]).wins()
        value = float(above[inside].mean())
        values.append(value)
        influences.append((above - value) * n / np.where(inside, m, n - m))
    return (float(np.mean(values)), np.mean(influences, axis=0)) if values else None


def _estimate(value: float, influence: Matrix, *, least: float) -> Estimate:
    n = influence.size
    error = math.sqrt(float(influence @ influence) / (n * (n - 1))) if n > 1 else math.nan
    interval = student_interval(value, error, n=n)
    return Estimate(value, *np.clip([interval.low, interval.high], least, 1.0).tolist())  # NaN stays NaN
