"""Every registered learner keeps the contract of learners, and the check names the part that a faulty one breaks."""

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor, RandomForestClassifier, RandomForestRegressor
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from mooring.learners import LEARNERS, EstimatorLearner, Model
from mooring.learners.class_sums import QuadraticModel, fit_quadratic
from mooring.learners.fitted import FittedModel
from mooring.learners.models import LinearFunction, ModelSpec
from mooring.learners.registry import SUM_LEARNERS
from mooring.testing import check_learner

_CALLS = count()


@pytest.mark.parametrize("name", [*LEARNERS, *SUM_LEARNERS])
@pytest.mark.filterwarnings("ignore:n_components > n_samples")
def test_every_registered_learner_keeps_the_contract(name: str) -> None:
    check_learner(name)


def _shallow(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    return (RandomForestClassifier if kind == "classes" else RandomForestRegressor)(5, random_state=seed)


def _random_splits(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    return (ExtraTreesClassifier if kind == "classes" else ExtraTreesRegressor)(5, random_state=seed)


def _unseeded(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    return (RandomForestClassifier if kind == "classes" else RandomForestRegressor)(1, max_depth=1)


def _nearest(kind: str, *, shape: tuple[int, int], seed: int) -> Any:
    return (KNeighborsClassifier if kind == "classes" else KNeighborsRegressor)(1)


def test_a_learner_of_ones_own_keeps_it_in_three_lines() -> None:
    check_learner(EstimatorLearner("shallow", "a few trees", _shallow))
    check_learner(EstimatorLearner("random-splits", "a few trees with random splits", _random_splits))
    check_learner(EstimatorLearner("nearest", "the nearest row", _nearest, delivers=False))


@pytest.mark.parametrize(
    ("rule", "fit"),
    [
        (
            "predict the same for the same total",
            lambda sums: _avoiding(fit_quadratic(sums), next(_CALLS)),
        ),
        ("predict finite numbers", lambda sums: _Unsure(fit_quadratic(sums))),
    ],
)
def test_a_learner_of_sums_that_breaks_a_rule_is_told(rule: str, fit: Any) -> None:
    check_learner(replace(SUM_LEARNERS["quadratic"], name="own", fit=fit_quadratic))
    with pytest.raises(AssertionError, match=rule):
        check_learner(replace(SUM_LEARNERS["quadratic"], name="own", fit=fit))


def _avoiding(model: QuadraticModel, call: int) -> QuadraticModel:
    """Return a model that hardly ever predicts one class, which is another one at each call."""
    shares = np.full(model.class_shares.size, 1e-6)
    shares[call % shares.size] = 1.0
    return replace(model, class_shares=shares)


class _Unsure(QuadraticModel):
    def __init__(self, model: QuadraticModel) -> None:
        super().__init__(model.function, model.class_shares)

    def predict(self, features: Any) -> Any:
        return np.full(len(features), np.nan)


@dataclass(frozen=True)
class Spy:
    """Delivers a model that holds the rows."""

    name: str = "spy"
    description: str = "the rows themselves"
    delivers: bool = True
    automatic: bool = False
    distributed: bool = False

    def fit(self, rows: Any, labels: Any, *, kind: Any, seed: int) -> FittedModel:
        n = len(rows) if kind == "classes" else 1
        function = LinearFunction(rows[:n].T.copy(), np.zeros(n))
        spec = ModelSpec(rows.shape[1], n if kind == "classes" else 0)
        link = "softmax" if kind == "classes" else "none"
        classes, shares = np.arange(n, dtype=np.int32), np.full(n, 1 / n)
        return FittedModel(self.name, Model(spec, function, link, classes, shares))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Careless:
    """Wraps a learner, and takes whatever it is given."""

    inner: Any
    name: str = "careless"
    description: str = "takes anything"
    delivers: bool = True
    automatic: bool = False
    distributed: bool = False

    def fit(self, rows: Any, labels: Any, *, kind: Any, seed: int) -> Any:
        rows = np.nan_to_num(np.atleast_2d(np.asarray(rows).T).T)
        n = min(len(rows), len(labels))
        if n == 0:
            rows, labels, n = np.zeros((2, 3)), np.arange(2), 2
        return replace(self.inner.fit(rows[:n], np.maximum(labels[:n], 0), kind=kind, seed=seed), learner=self.name)


@pytest.mark.parametrize(
    ("learner", "rule"),
    [
        (EstimatorLearner("", "no name", _shallow), "name"),
        (EstimatorLearner("chosen", "by auto", _nearest, delivers=False, automatic=True), "deliver its model if"),
        (EstimatorLearner("unseeded", "trees", _unseeded), "same seed"),
        (EstimatorLearner("nearest", "the nearest row", _nearest), "arrays without rows"),
        (EstimatorLearner("shallow", "a few trees", _shallow, delivers=False), "would hold rows"),
        (Spy(), "classes that it has seen"),
        (Careless(LEARNERS["linear"]), "refuse rows"),
    ],
)
def test_a_learner_that_does_not_keep_it_is_told_which_part(learner: Any, rule: str) -> None:
    with pytest.raises((AssertionError, ValueError), match=rule):
        check_learner(learner)
