"""Conversion of trained scikit-learn estimators to models that are arrays.

The scale of the rows, the mean that a solver subtracts and the unit of a predicted number are all merged into the arrays, so
that a model takes rows without any preparation.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.kernel_approximation import RBFSampler
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from mooring.errors import InputError
from mooring.learners.models import FourierFunction, Kind, LinearFunction, Link, Model, ModelFunction, ModelSpec
from mooring.learners.trees import lay_out_trees, read_forest, read_gradient_boosting
from mooring.typing import Matrix, Vector


def convert_estimator(
    estimator: Any, *, kind: Kind, n_inputs: int, scale: float, class_shares: Vector, n_classes: int = 0
) -> Model:
    """Return the model of an estimator that was trained on rows of `n_inputs` numbers, divided by `scale`.

    `class_shares` are the shares of the estimator's classes among these rows. `n_classes` is the number of classes of the
    study, some of which may have no rows; 0 means the classes that the estimator knows.
    """
    if kind == "number":
        function = _convert_regressor(estimator, n_inputs, scale)
        return Model(ModelSpec(n_inputs, 0), function, "none", np.zeros(1, dtype=np.int32), class_shares)
    function, link = _convert_classifier(estimator, n_inputs, scale)
    classes = estimator.classes_.astype(np.int32)
    return Model(ModelSpec(n_inputs, n_classes or int(classes.max()) + 1), function, link, classes, class_shares)


def _convert_classifier(estimator: Any, n_inputs: int, scale: float) -> tuple[ModelFunction, Link]:
    match estimator:
        case RandomForestClassifier() | ExtraTreesClassifier():
            trees, n_outputs = read_forest(estimator, scale), estimator.classes_.size
            divisor = float(len(trees))
            return lay_out_trees(trees, [0] * len(trees), intercepts=np.zeros(n_outputs), divisor=divisor), "shares"
        case HistGradientBoostingClassifier():
            rounds, base = read_gradient_boosting(estimator, scale), np.ravel(estimator._baseline_prediction)
            first = int(base.size == 1)  # for two classes, there is only a score for the second
            outputs = [first + k for predictors in rounds for k in range(len(predictors))]
            trees = [tree for predictors in rounds for tree in predictors]
            return lay_out_trees(trees, outputs, intercepts=np.r_[np.zeros(first), base]), "softmax"
        case Pipeline(steps=[(_, features), (_, LogisticRegression() as last)]):
            weights, intercepts = last.coef_.T, last.intercept_
            if intercepts.size == 1:  # for two classes, there is only a score for the second
                weights, intercepts = np.hstack([0 * weights, weights]), np.r_[0.0, intercepts]
            return convert_features(features, weights, intercepts, scale), "softmax"
        case DummyClassifier():
            return LinearFunction(np.zeros((n_inputs, 1)), np.zeros(1)), "softmax"
    raise _not_convertible(estimator)


def _convert_regressor(estimator: Any, n_inputs: int, scale: float) -> ModelFunction:
    if isinstance(estimator, DummyRegressor):
        return LinearFunction(np.zeros((n_inputs, 1)), np.ravel(estimator.constant_))
    if not isinstance(estimator, TransformedTargetRegressor):
        raise _not_convertible(estimator)
    mean, unit = (float(getattr(estimator.transformer_, name)[0]) for name in ("mean_", "scale_"))
    match estimator.regressor_:
        case RandomForestRegressor() | ExtraTreesRegressor() as forest:
            trees = read_forest(forest, scale)
            return lay_out_trees(trees, [0] * len(trees), intercepts=[mean], divisor=len(trees) / unit)
        case HistGradientBoostingRegressor() as boosting:
            trees = [tree for predictors in read_gradient_boosting(boosting, scale) for tree in predictors]
            base = float(np.ravel(boosting._baseline_prediction)[0])
            return lay_out_trees(trees, [0] * len(trees), intercepts=[mean + unit * base], divisor=1 / unit)
        case Pipeline(steps=[(_, features), (_, Ridge() as last)]):
            weights, intercepts = unit * last.coef_.reshape(-1, 1), unit * np.ravel(last.intercept_) + mean
            return convert_features(features, weights, intercepts, scale)
    raise _not_convertible(estimator.regressor_)


def convert_features(features: Any, weights: Matrix, intercepts: Vector, scale: float) -> ModelFunction:
    """Return a linear function of rows, or of their random Fourier features √(2/D) cos(x F + f).

    `features` is a StandardScaler or RBFSampler that was fitted to rows / `scale`. `weights` and `intercepts`, of shapes
    (D, outputs) and (outputs,), belong to these features.
    """
    match features:
        case StandardScaler():
            weights = weights if features.scale_ is None else weights / features.scale_[:, None]
            mean = 0.0 if features.mean_ is None else features.mean_ @ weights
            return LinearFunction(weights / scale, intercepts - mean)
        case RBFSampler():
            unit = np.sqrt(2 / features.n_components)
            return FourierFunction(
                features.random_weights_ / scale, features.random_offset_, unit * weights, intercepts
            )
    raise _not_convertible(features)


def _not_convertible(estimator: Any) -> InputError:
    return InputError(
        "learner",
        expected="a learner whose model is arrays without rows",
        got=type(estimator).__name__,
        cure="Train 'linear', 'random-fourier', 'forest', 'gradient-boosting' or 'xgboost'. A learner of your own may set "
        "delivers=False, and is then used in audits only.",
    )
