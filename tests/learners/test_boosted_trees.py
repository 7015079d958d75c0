"""Boosted trees as arrays: they predict what XGBoost predicts, to the leaf, and nothing of anybody's rows is in them."""

import json
import sys
from typing import Any

import numpy as np
import pytest
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.errors import InputError, MissingExtraError
from mooring.learners import LEARNERS
from mooring.learners.boosted_trees import BINS, BoostingTask, find_cuts
from mooring.learners.models import TreeFunction
from mooring.learners.trees import read_xgboost
from tests.learners.test_models import require_no_mean, rows_and_labels
from tests.raising import raising

H = 3
OBJECTIVE = {0: "reg:squarederror", 2: "binary:logistic"}


def trained(n_classes: int, seed: int, *, depth: int = 4, rounds: int = 12, **more: Any) -> Any:
    """A booster of random rows, many of them the same; 0 classes for a number."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((200, H)).round(1).astype(np.float32)
    signal = rows[:, 0] + rows[:, 1] ** 2 + 0.2 * rng.standard_normal(200)
    labels = signal
    settings: dict[str, Any] = {"objective": OBJECTIVE.get(n_classes, "multi:softprob")}
    if n_classes:
        labels = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))
        settings |= {"num_class": n_classes} if n_classes > 2 else {}
    settings |= {"max_depth": depth, "eta": 0.3, "nthread": 1, "verbosity": 0, **more}
    return xgboost.train(settings, xgboost.DMatrix(rows, labels, nthread=1), rounds)


def task_of(n_classes: int, **more: Any) -> BoostingTask:
    return BoostingTask(
        H, 1.0, np.arange(n_classes) if n_classes else None, np.full(n_classes or 1, 1 / (n_classes or 1)), **more
    )


def at_the_limits(booster: Any, rng: np.random.Generator, n: int = 600) -> np.ndarray:
    """Rows made of the numbers that trees compare with, of their neighbours, and of others."""
    trees = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    limits = np.concatenate([np.float32(tree["split_conditions"]) for tree in trees])
    drawn = [rng.standard_normal((n, H)).astype(np.float32), rng.choice(limits, (n, H))]
    drawn += [np.nextafter(rng.choice(limits, (n, H)), np.float32(away)) for away in (-np.inf, np.inf)]
    return np.concatenate(drawn)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([0, 2, 3, 5]), st.integers(0, 6), st.integers(1, 15), st.integers(0, 10_000))
def test_the_model_is_the_booster(n_classes: int, depth: int, rounds: int, seed: int) -> None:
    booster = trained(n_classes, seed, depth=depth or 1, rounds=rounds, gamma=0 if depth else 1e9)
    model = task_of(n_classes).to_model(bytes(booster.save_raw("ubj")))
    assert isinstance(model.function, TreeFunction)
    assert model.function.n_levels <= depth
    rows = at_the_limits(booster, np.random.default_rng(seed))
    margins = booster.predict(xgboost.DMatrix(rows, nthread=1), output_margin=True).astype(np.float64)
    scores = model.decision(rows.astype(np.float64))
    expected = margins.reshape(len(rows), -1)
    expected = np.hstack([0 * expected, expected]) if n_classes == 2 else expected
    np.testing.assert_allclose(scores, expected, atol=1e-5 * max(1.0, np.abs(margins).max()))
    if n_classes:
        clear = np.diff(np.sort(expected, axis=1)[:, -2:], axis=1)[:, 0] > 1e-5
        assert np.array_equal(model.predict(rows.astype(np.float64))[clear], expected.argmax(axis=1)[clear])


@pytest.mark.parametrize("n_classes", [0, 2, 4])
@pytest.mark.parametrize("base", [None, 0.3])
def test_what_the_sums_begin_with_is_read_as_xgboost_means_it(n_classes: int, base: float | None) -> None:
    booster = trained(n_classes, 3, **({} if base is None else {"base_score": base}))
    rows = at_the_limits(booster, np.random.default_rng(0), n=50)
    margins = booster.predict(xgboost.DMatrix(rows, nthread=1), output_margin=True).reshape(len(rows), -1)
    scores = task_of(n_classes).to_model(bytes(booster.save_raw("ubj"))).decision(rows.astype(np.float64))
    assert np.abs(scores[:, -margins.shape[1] :] - margins).max() < 1e-5


@pytest.mark.parametrize(("centre", "unit"), [(3e-4, 1e-6), (5e3, 0.1), (-1e30, 1e36)])
def test_numbers_come_back_in_their_own_unit(centre: float, unit: float) -> None:
    booster = trained(0, 5)
    rows = at_the_limits(booster, np.random.default_rng(0), n=50)
    expected = booster.predict(xgboost.DMatrix(rows, nthread=1)).astype(np.float64) * unit + centre
    assert np.ptp(expected) > unit
    model = task_of(0, centre=centre, unit=unit).to_model(bytes(booster.save_raw("ubj")))
    assert np.allclose(model.predict(rows.astype(np.float64)), expected, rtol=1e-6, atol=1e-5 * unit)


def test_a_model_of_no_rows_says_the_first_class_or_the_mean() -> None:
    assert BoostingTask(H, 1.0, np.array([3, 5]), np.array([0.5, 0.5])).to_model(b"").predict(
        np.zeros((2, H))
    ).tolist() == [3, 3]
    assert task_of(0).to_model(b"").predict(np.zeros((2, H))).tolist() == [0, 0]


def test_what_cannot_be_read_is_refused() -> None:
    for more in ({"booster": "dart"}, {"objective": "reg:logistic"}, {"booster": "gblinear"}):
        with raising(InputError, "the booster"):
            task_of(2).to_model(bytes(trained(2, 0, **more).save_raw("ubj")))
    with raising(InputError, "the booster", got="several outputs"):
        read_xgboost(bytes(trained(3, 0, multi_strategy="multi_output_tree", tree_method="hist").save_raw("json")), 1.0)
    rows = np.random.default_rng(0).integers(0, 5, (200, 1))
    matrix = xgboost.DMatrix(rows, rows[:, 0] % 2, feature_types=["c"], enable_categorical=True, nthread=1)
    by_category = xgboost.train({"max_cat_to_onehot": 1, "tree_method": "hist", "verbosity": 0}, matrix, 2)
    with raising(InputError, "the booster", got="by category"):
        read_xgboost(bytes(by_category.save_raw("json")), 1.0)
    none = json.loads(trained(0, 0).save_raw("json"))
    none["learner"]["gradient_booster"]["model"]["trees"] = []
    with raising(InputError, "the booster", got="no tree"):
        read_xgboost(json.dumps(none).encode(), 1.0)


def test_numbers_are_cut_at_means_of_ten_rows_or_more() -> None:
    rows = np.random.default_rng(0).standard_normal((20_000, 2)).astype(np.float32)
    assert find_cuts(rows).shape == (BINS, 2)
    few = np.sort(rows[:300], axis=0)
    cuts = find_cuts(few)
    assert len(cuts) == 30
    assert cuts == pytest.approx(few.reshape(30, 10, 2).mean(axis=1), abs=1e-6)
    assert not np.isin(cuts, rows).any()
    assert find_cuts(rows[:7]) == pytest.approx(rows[:7].mean(axis=0)[None], abs=1e-6)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_no_limit_of_a_tree_is_a_number_of_a_row(kind: Any) -> None:
    rows, labels = rows_and_labels(kind)
    model = LEARNERS["xgboost"].fit(rows, labels, kind=kind, seed=0).to_model()
    require_no_mean(model, rows)
    inner = model.function.feature >= 0
    assert inner.sum() > 200
    limits, columns = model.function.limit[inner], model.function.feature[inner]
    assert np.abs(limits[:, None] / rows.T[columns] - 1).min() > 1e-6 * 1e-2
    assert not np.isin(limits.astype(np.float32), rows.astype(np.float32)).any()


def test_rounds_are_fewer_where_classes_are_many() -> None:
    assert [task_of(n).n_rounds for n in (0, 2, 3, 50, 500)] == [200, 200, 200, 200, 20]
    with raising(InputError, "learner", expected="500"):
        _ = task_of(501).n_rounds


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    rows, labels = rows_and_labels("classes")
    with raising(MissingExtraError, extra="xgboost"):
        LEARNERS["xgboost"].fit(rows, labels, kind="classes", seed=0)
