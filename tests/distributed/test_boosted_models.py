"""Boosted trees as ONNX: they predict what XGBoost predicts, to the leaf, and nothing else is written."""

import json
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("xgboost")

import onnxruntime
import xgboost
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from mooring.errors import InputError
from mooring.learners.boosted_trees import Boosted, FittedBoosted, to_float32
from mooring.learners.onnx_export import to_onnx
from mooring.learners.trees import Trees, boosted_trees
from mooring.protocol.messages.model import Model
from tests.raising import raising

H = 3
OBJECTIVE = {0: "reg:squarederror", 2: "binary:logistic"}


def trained(n_classes: int, seed: int, *, depth: int = 4, rounds: int = 12, **more: Any) -> Boosted:
    """Boosted trees of random rows, many of them the same; 0 classes for a number."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((200, H)).round(1).astype(np.float32)
    signal = rows[:, 0] + rows[:, 1] ** 2 + 0.2 * rng.standard_normal(200)
    labels = signal
    told: dict[str, Any] = {"objective": OBJECTIVE.get(n_classes, "multi:softprob")}
    if n_classes:
        labels = np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))
        told |= {"num_class": n_classes} if n_classes > 2 else {}
    told |= {"max_depth": depth, "eta": 0.3, "nthread": 1, "verbosity": 0, **more}
    booster = xgboost.train(told, xgboost.DMatrix(rows, labels, nthread=1), rounds)
    return Boosted(bytes(booster.save_raw("ubj")), np.arange(n_classes) if n_classes else None)


def at_the_limits(trees: Trees, rng: np.random.Generator, n: int = 600) -> np.ndarray:
    """Rows made of the numbers that trees compare with, of their neighbours, and of others; none is subnormal."""
    found = [rng.standard_normal((n, H)).astype(np.float32)]
    for away in (-np.inf, np.inf):
        found += [np.nextafter(rng.choice(trees.limit, (n, H)), np.float32(away)), rng.choice(trees.limit, (n, H))]
    rows = np.concatenate(found)
    return np.where(np.abs(rows) < np.finfo(np.float32).tiny, np.float32(0), rows)


def leaves(trees: Trees, rows: np.ndarray) -> np.ndarray:
    """The leaf of each row in each tree, counted within the tree."""
    place = np.broadcast_to(trees.roots, (len(rows), trees.roots.size))
    for _ in range(trees.depth):
        left = np.take_along_axis(rows, trees.feature[place], axis=1) <= trees.limit[place]
        place = np.where(left, trees.left[place], trees.right[place])
    return np.asarray(place - trees.roots)


def written(model: Boosted, scale: float = 1.0) -> tuple[FittedBoosted, Model]:
    kind = "number" if model.classes_ is None else "classes"
    fitted = FittedBoosted("xgboost", kind, H, scale, model)
    n_classes = 0 if model.classes_ is None else int(model.classes_.max()) + 1
    return fitted, Model.load(to_onnx(fitted), n_components=H, kind=kind, n_classes=n_classes)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([0, 2, 3, 5]), st.integers(0, 6), st.integers(1, 15), st.integers(0, 10_000))
def test_the_written_model_is_the_booster(n_classes: int, depth: int, rounds: int, seed: int) -> None:
    model = trained(n_classes, seed, depth=depth or 1, rounds=rounds, gamma=0 if depth else 1e9)
    trees, base = model.trees()
    assert trees.depth <= depth
    assert not ((trees.limit != 0) & (np.abs(trees.limit) < np.finfo(np.float32).tiny)).any()
    rows = at_the_limits(trees, np.random.default_rng(seed))
    matrix = xgboost.DMatrix(rows, nthread=1)
    told = model._booster().predict(matrix, pred_leaf=True).reshape(len(rows), -1)
    assert np.array_equal(leaves(trees, rows), told)
    margins = model.margins(rows).astype(np.float64)
    _, found = written(model)
    if n_classes == 0:
        assert np.abs(found.predict(rows) - margins).max() < 1e-5 * max(1.0, np.abs(margins).max())
        return
    scores = np.column_stack([np.zeros(len(rows)), margins]) if n_classes == 2 else margins
    clear = np.diff(np.sort(scores, axis=1)[:, -2:], axis=1)[:, 0] > 1e-5
    assert np.array_equal(found.predict(rows)[clear], scores.argmax(axis=1)[clear])
    assert base.shape == (1 if n_classes == 2 else n_classes,)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
@pytest.mark.parametrize("base", [None, 0.3])
def test_what_the_sums_begin_with_is_read_as_xgboost_means_it(n_classes: int, base: float | None) -> None:
    model = trained(n_classes, 3, **({} if base is None else {"base_score": base}))
    trees, begin = model.trees()
    rows = at_the_limits(trees, np.random.default_rng(0), n=50)
    values = trees.values.reshape(trees.values.shape[0])[trees.slot[leaves(trees, rows) + trees.roots]]
    sums = values.sum(axis=1)[:, None] if trees.turns is None else values[:, trees.turns].sum(axis=1)
    assert np.abs(sums + begin - model.margins(rows).reshape(len(rows), -1)).max() < 1e-5


def test_rows_come_to_the_trees_as_they_do_in_training() -> None:
    """Where a step taken in another way would give another number, too: scales are made to be like that."""
    rng = np.random.default_rng(0)
    numbers, low = rng.uniform(1, 2, (2, 2000)).astype(np.float32)
    scales = numbers / ((low.astype(np.float64) + np.nextafter(low, np.float32(9))) / 2)
    differs = (numbers / scales).astype(np.float32) != (numbers * (1 / scales)).astype(np.float32)
    assert differs.sum() > 100
    model = Boosted(trained(0, 0).raw, None)
    for number, scale in list(zip(numbers[differs], scales[differs], strict=True))[:20]:
        document = onnx.load_from_string(to_onnx(FittedBoosted("xgboost", "number", H, scale, model)))
        (cast,) = (n for n in document.graph.node[:5] if n.op_type == "Cast" and n.attribute[0].i == TensorProto.FLOAT)
        document.graph.output.append(helper.make_tensor_value_info(cast.output[0], TensorProto.FLOAT, [None, H]))
        session = onnxruntime.InferenceSession(document.SerializeToString(), providers=["CPUExecutionProvider"])
        rows = np.concatenate([np.full((1, H), number), rng.standard_normal((300, H))]).astype(np.float32)
        (seen,) = session.run([cast.output[0]], {"rows": rows})
        own = to_float32(rows.astype(np.float64), scale)
        assert np.array_equal(seen, own)
        assert not np.array_equal((rows / scale).astype(np.float32), own)


@pytest.mark.parametrize(("centre", "scale"), [(3e-4, 1e-6), (5e3, 0.1), (-1e30, 1e36)])
def test_numbers_come_back_in_their_own_unit(centre: float, scale: float) -> None:
    model = Boosted(trained(0, 5).raw, None, centre=centre, scale=scale)
    fitted, found = written(model)
    rows = at_the_limits(model.trees()[0], np.random.default_rng(0), n=50)
    expected = model.margins(rows) * scale + centre
    assert np.ptp(expected) > scale
    assert np.allclose(fitted.predict(rows.astype(np.float64)), expected, rtol=1e-6, atol=1e-5 * scale)
    assert np.allclose(found.predict(rows), expected, rtol=1e-6, atol=1e-5 * scale)


def test_classes_keep_their_numbers() -> None:
    model = trained(3, 1)
    model.classes_ = np.array([1, 4, 6])
    fitted, found = written(model, 1.7)
    rows = np.random.default_rng(0).standard_normal((500, H)).astype(np.float32)
    expected = fitted.predict(rows.astype(np.float64))
    assert set(expected) == {1, 4, 6}
    assert np.mean(found.predict(rows) == expected) > 0.995


def test_a_model_of_no_rows_says_the_first_class_or_nought() -> None:
    assert Boosted(b"", np.array([3, 5])).predict(np.zeros((2, H))).tolist() == [3, 3]
    assert Boosted(b"", None).predict(np.zeros((2, H))).tolist() == [0, 0]


def test_what_cannot_be_written_is_refused() -> None:
    for more in ({"booster": "dart"}, {"objective": "reg:logistic"}, {"booster": "gblinear"}):
        with raising(InputError, "the booster"):
            Boosted(trained(2, 0, **more).raw, np.arange(2)).trees()
    with raising(InputError, "the booster", got="several outputs"):
        trained(3, 0, multi_strategy="multi_output_tree", tree_method="hist").trees()
    rows = np.random.default_rng(0).integers(0, 5, (200, 1))
    matrix = xgboost.DMatrix(rows, rows[:, 0] % 2, feature_types=["c"], enable_categorical=True, nthread=1)
    by_category = xgboost.train({"max_cat_to_onehot": 1, "tree_method": "hist", "verbosity": 0}, matrix, 2)
    with raising(InputError, "the booster", got="by category"):
        boosted_trees(bytes(by_category.save_raw("json")))
    none = json.loads(trained(0, 0)._booster().save_raw("json"))
    none["learner"]["gradient_booster"]["model"]["trees"] = []
    with raising(InputError, "the booster", got="no tree"):
        boosted_trees(json.dumps(none).encode())
