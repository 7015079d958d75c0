"""Models as ONNX: written to say what the learner says, and refused unless they are plainly data."""

import json
import time
import tracemalloc
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from mooring.errors import InputError, RefusedError
from mooring.learners import LEARNERS, Fitted, Kind, registry, train_learner
from mooring.learners.boosted_trees import Boosted
from mooring.learners.onnx_export import to_onnx
from mooring.learners.trees import MOST_TREES, Trees, boosted_trees, rounded_down
from mooring.protocol.analyst.training import require_agreement
from mooring.protocol.messages.model import MOST_MODEL_BYTES, ROWS_AT_ONCE, Model, check_model
from tests.raising import raising

H = 3


def rows_and_labels(kind: str, n_classes: int = 3, n: int = 240, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, H)).astype(np.float32).astype(np.float64) * 2 + 5
    signal = rows[:, 0] - 5 + (rows[:, 1] - 5) ** 2 / 2 + 0.3 * rng.standard_normal(n)
    if kind == "number":
        return rows, 100 + 7 * signal
    return rows, np.digitize(signal, np.quantile(signal, np.arange(1, n_classes) / n_classes))


def loaded(fitted: Fitted, n_classes: int = 3) -> Model:
    return Model.load(to_onnx(fitted), n_components=H, kind=fitted.kind, n_classes=n_classes)


EVERY = [(name, 2000) for name, one in LEARNERS.items() if one.make is not None]


@pytest.mark.parametrize(("name", "most_leaves"), [*EVERY, ("forest", 20)])
@pytest.mark.parametrize("kind", ["classes", "two classes", "number"])
def test_every_learner_predicts_the_same_as_onnx(
    kind: str, name: str, most_leaves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_MOST_LEAVES", most_leaves)
    monkeypatch.setattr(registry, "_N_NYSTROEM", 60)  # of 240 rows
    n_classes = 2 if kind == "two classes" else 3
    rows, labels = rows_and_labels("number" if kind == "number" else "classes", n_classes)
    fitted = train_learner(name, rows, labels, kind="number" if kind == "number" else "classes", seed=0)
    new = np.random.default_rng(1).uniform(0, 10, (700, H)).astype(np.float32).astype(np.float64)
    expected, (found, shares) = fitted.predict(new), loaded(fitted, n_classes).predict_with_probabilities(new)
    if kind == "number":
        assert found.dtype == np.float64
        assert np.abs(found - expected).max() < 1e-5 * np.ptp(labels)
    else:
        assert found.dtype == np.int64
        assert np.mean(found == expected) >= 0.998
        assert set(found) == set(range(n_classes))
    wanted = fitted.probabilities(new, n_classes)
    assert (shares is None) == (wanted is None) == (kind == "number" or name == "svm")
    if shares is not None and wanted is not None:
        assert np.mean(np.abs(shares - wanted).max(axis=1) < 1e-5) >= 0.998  # a tree may turn another way by rounding


@pytest.mark.parametrize("name", [name for name, one in LEARNERS.items() if one.make is not None])
@pytest.mark.parametrize("kind", ["classes", "number"])
def test_no_model_holds_the_mean_of_its_rows(kind: Kind, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither itself nor in the phases of random features, which follow from the seed."""
    rows, labels = rows_and_labels(kind)
    rows += [1.0, -2.0, 4.0]
    monkeypatch.setattr(registry, "_N_NYSTROEM", 60)
    data = to_onnx(train_learner(name, rows, labels, kind=kind, seed=0))
    held = require_no_mean(data, rows)
    if name == "random-fourier":
        public = registry._random_fourier(H, 0).fit(np.zeros((1, H)))
        for expected in (public.random_weights_, public.random_offset_):
            assert any(np.array_equal(array, expected) for array in held)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_leaf_of_a_forest_is_of_five_rows_at_least(kind: Kind) -> None:
    """With one row a leaf, every row's number to predict stood in the model."""
    model = train_learner("forest", *rows_and_labels(kind), kind=kind, seed=0).model
    trees = [one.tree_ for one in (model if kind == "classes" else model.regressor_).estimators_]
    assert min(tree.n_node_samples[tree.children_left < 0].min() for tree in trees) == 5


def require_no_mean(data: bytes, rows: np.ndarray) -> list[np.ndarray]:
    """The arrays of a model, none of which has the mean of its rows as a row or column, in any unit or sign."""
    mean, held = (
        rows.mean(axis=0),
        [numpy_helper.to_array(one) for one in onnx.load_from_string(data).graph.initializer],
    )
    for each in (
        turned for array in held for turned in (array, array.T) if array.ndim and turned.shape[-1] == mean.size
    ):
        lengths = np.linalg.norm(each, axis=-1) * np.linalg.norm(mean)
        assert (np.abs(each @ mean) < (1 - 1e-6) * np.where(lengths > 0, lengths, 1)).all()
    return held


def test_one_class_or_one_value_is_what_the_model_says() -> None:
    rows = np.random.default_rng(0).standard_normal((20, H))
    assert set(loaded(train_learner("auto", rows, np.full(20, 2), kind="classes", seed=0)).predict(rows)) == {2}
    constant = loaded(train_learner("auto", rows, np.full(20, 7.5), kind="number", seed=0))
    assert constant.predict(rows) == pytest.approx(7.5)


def test_classes_that_nobody_has_keep_their_numbers() -> None:
    rows = np.concatenate([np.zeros((10, H)), np.ones((10, H))]) + np.random.default_rng(0).normal(0, 0.1, (20, H))
    fitted = train_learner("linear", rows, np.repeat([1, 4], 10), kind="classes", seed=0)
    data = to_onnx(fitted, n_classes=6)
    found, shares = Model.load(data, n_components=H, kind="classes", n_classes=6).predict_with_probabilities(rows)
    assert found.tolist() == [1] * 10 + [4] * 10
    assert shares is not None
    np.testing.assert_allclose(shares, fitted.probabilities(rows, 6), atol=1e-6)
    assert (shares[:, [0, 2, 3, 5]] == 0).all()


def test_a_model_written_wrongly_is_not_delivered() -> None:
    rows, labels = rows_and_labels("classes")
    fitted = train_learner("linear", rows, labels, kind="classes", seed=0)
    values, shares = fitted.predict(rows), fitted.probabilities(rows, 3)
    assert shares is not None
    require_agreement((values, shares), (values, shares), spread=1)
    for written in ((values + (np.arange(len(rows)) % 100 == 0)) % 3, shares), (values, 0.9 * shares), (values, None):
        with raising(RefusedError, "the model", reason="predicts something else"):
            require_agreement((values, shares), written, spread=1)


def good() -> onnx.ModelProto:
    rows, labels = rows_and_labels("classes")
    return onnx.load_from_string(to_onnx(train_learner("linear", rows, labels, kind="classes", seed=0)))


def check(data: bytes, **changed: Any) -> None:
    check_model(data, **{"n_components": H, "kind": "classes", "n_classes": 3, **changed})


def node(name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, **attributes)


def test_the_model_that_the_others_are_made_from_is_accepted() -> None:
    model = good()
    check(model.SerializeToString())
    noughts = [entry for step in model.graph.node for entry in step.attribute if entry.i == 0]
    assert noughts
    for entry in noughts:  # a number that is left out is nought
        entry.ClearField("i")
    check(model.SerializeToString())


Change = Callable[[onnx.ModelProto], object]


def first(operator: str, inputs: tuple[str, ...] = ("rows",), **attributes: Any) -> Change:
    """One step more, in front."""
    return lambda model: model.graph.node.insert(0, node(operator, list(inputs), ["extra"], **attributes))


def array(name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Change:
    return lambda model: model.graph.initializer.append(numpy_helper.from_array(np.zeros(shape, dtype=dtype), name))


def chain(operator: str, start: str, length: int, *more: str, **attributes: Any) -> Change:
    """Steps in front, of which each takes the result of the one before."""

    def change(model: onnx.ModelProto) -> None:
        names = [start, *(f"made{k}" for k in range(length))]
        for k in range(length):
            model.graph.node.insert(k, node(operator, [names[k], *more], [names[k + 1]], **attributes))

    return change


def replaced(tensor: onnx.TensorProto, dims: list[int]) -> None:
    tensor.ClearField("dims")
    tensor.dims.extend(dims)
    tensor.raw_data = b""


def input_type(model: onnx.ModelProto) -> Any:
    return model.graph.input[0].type.tensor_type


def of_probabilities(model: onnx.ModelProto) -> onnx.NodeProto:
    return next(one for one in model.graph.node if one.output[0] == "probabilities")


MORE = helper.make_tensor("more", TensorProto.FLOAT, [2], [1.0, 2.0])
HOSTILE: dict[str, list[Change]] = {  # besides those of hostile_results.py
    "other opset": [lambda m: setattr(m.opset_import[0], "domain", "com.microsoft")],
    "new opset": [lambda m: setattr(m.opset_import[0], "version", 99)],
    "input type": [lambda m: setattr(input_type(m), "elem_type", TensorProto.DOUBLE)],
    "input name": [lambda m: setattr(m.graph.input[0], "name", "else")],
    "output shape": [lambda m: m.graph.output[0].type.tensor_type.shape.dim.add(dim_value=2)],
    "empty shape": [lambda m: replaced(m.graph.initializer[0], [0, 2**62])],
    "typed data": [lambda m: m.graph.initializer.append(MORE)],
    "broadcast bomb": [array("tall", (100_000, 1)), array("wide", (1, 100_000)), first("Add", ("tall", "wide"))],
    "growing bomb": [array("places", (1, 1000), np.int64), chain("Gather", "places", 4, "places", axis=1)],
    "many nodes": [chain("Identity", "rows", 1200)],
    "long note": [lambda m: m.metadata_props.add(key="note", value="x" * 100_000)],
    "many notes": [lambda m: m.metadata_props.extend(100 * [onnx.StringStringEntryProto(key="k", value="x")])],
    "backwards": [first("Identity", ("v0",))],
    "same name twice": [lambda m: m.graph.node.append(node("Identity", ["v0"], ["v1"]))],
    "hidden input": [array("rows", (5, H))],
    "axis left to ONNX, which takes 0": [
        first("GatherElements", ("rows", "whole")),
        lambda m: m.graph.node.insert(0, node("Cast", ["rows"], ["whole"], to=TensorProto.INT64)),
    ],
    "no output": [lambda m: m.graph.node.pop()],
    "attribute tensor": [first("Identity", value=numpy_helper.from_array(np.zeros(3), "t"))],
    "cast to string": [first("Cast", to=TensorProto.STRING)],
    "sparse": [lambda m: m.graph.sparse_initializer.add()],
    "training": [lambda m: m.training_info.add()],
    "a third output": [lambda m: m.graph.output.add().CopyFrom(m.graph.output[1])],
    "predictions twice": [lambda m: m.graph.output[1].CopyFrom(m.graph.output[0])],
    "probabilities first": [lambda m: m.graph.output.reverse()],
    "another second output": [lambda m: setattr(m.graph.output[1], "name", "v1")],
    "whole probabilities": [lambda m: setattr(m.graph.output[1].type.tensor_type, "elem_type", TensorProto.INT64)],
    "a class more": [lambda m: setattr(m.graph.output[1].type.tensor_type.shape.dim[1], "dim_value", 4)],
    "probabilities of no row": [lambda m: of_probabilities(m).input.__setitem__(0, "n0")],
    "no probabilities": [lambda m: m.graph.node.remove(of_probabilities(m))],
    "held probabilities": [lambda m: m.graph.node.remove(of_probabilities(m)), array("probabilities", (128, 3))],
    "softmax over rows": [first("Softmax", axis=0)],
    "a row too few": [lambda m: setattr(m.graph.node[-2].attribute[0], "i", 0)],
}
for operator in ("Tile", "Expand", "SequenceEmpty", "Div", "RandomNormal", "StringNormalizer", "SVMClassifier", "Pad"):
    HOSTILE[operator] = [first(operator)]
HOSTILE["TreeEnsembleClassifier"] = [first("TreeEnsembleClassifier")]


@pytest.mark.parametrize("changes", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_model_is_refused_in_a_second_and_a_little_memory(changes: list[Change]) -> None:
    model = good()
    for change in changes:
        change(model)
    data = model.SerializeToString()
    for _ in range(3):  # a busy machine is no fault of the model's
        tracemalloc.start()
        started = time.perf_counter()
        with pytest.raises(RefusedError) as caught:
            check(data)
        seconds, memory = time.perf_counter() - started, tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        if seconds < 1:
            break
    assert caught.value.what == "the model"
    assert seconds < 1
    assert memory < 32 * 2**20


@pytest.mark.parametrize(
    "data",
    [b"", b"\x80", b"not a model", b"\x00" * 1000, b"\xff" * 1000, b":" + b"\xff" * 9 + b"\x01", b"\x80\x04]\x94."],
    ids=repr,
)
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        check(data)


def test_a_file_of_empty_parts_takes_no_memory_to_match() -> None:
    parts = b"\x0a\x00" * 10_000_000
    bomb = b"\x08\x08\x3a" + _varint(len(parts)) + parts
    tracemalloc.start()
    with raising(RefusedError, "the model", reason="more parts"):
        check(bomb)
    assert tracemalloc.get_traced_memory()[1] < 2**21
    tracemalloc.stop()


def _varint(value: int) -> bytes:
    found = b""
    while value >= 0x80:
        found += bytes([value & 0x7F | 0x80])
        value >>= 7
    return found + bytes([value])


def test_every_truncation_is_refused() -> None:
    data = good().SerializeToString()
    for length in range(len(data)):
        with pytest.raises(RefusedError):
            check(data[:length])


def test_probabilities_that_are_none_or_contradict_the_class_are_refused() -> None:
    def predict(shares: list[float], *, promised: bool = True, value: float = 2) -> Any:
        found = np.full(ROWS_AT_ONCE, value), np.tile(np.float32(shares), (ROWS_AT_ONCE, 1))
        process = Mock(predict=lambda block: [part[: len(block)] for part in found])
        return Model(H, "classes", 3, promised, process).predict_with_probabilities(np.zeros((200, H)))[1]

    for fine in ([0, 0.25, 0.75], [0, 0.4999, 0.5001], [0, 0.50005, 0.49995], [-1e-7, 0, 1]):
        found = predict(fine)
        assert found.shape == (200, 3)
        assert found.min() >= 0
    for wrong, reason in (
        ([np.nan, 0.5, 0.5], "no numbers"),
        ([np.inf, 0.5, 0.5], "add up"),
        ([0.2, 0.3, 0.4], "add up"),
        ([0.5, -0.5, 1], "below zero"),
        ([0.5, 0.5], "one probability a class"),
        ([0, 0, 1, 0], "one probability a class"),
        ([], "one probability a class"),
        ([0.1, 0.6, 0.3], "less probability than another"),
    ):
        with raising(RefusedError, "the model", reason=reason):
            predict(wrong)
    with raising(RefusedError, "the model", reason="one probability a class"):
        predict([0, 0, 1], promised=False)
    for value, reason in ((2.0, "one value a row"), (3, "does not have"), (-1, "does not have")):
        with raising(RefusedError, "the model", reason=reason):
            predict([0, 0, 1], value=value)


def test_a_model_of_another_kind_is_refused() -> None:
    rows, numbers = rows_and_labels("number")
    data = to_onnx(train_learner("linear", rows, numbers, kind="number", seed=0))
    more = onnx.load_from_string(data)
    more.graph.output.add().CopyFrom(good().graph.output[1])
    with raising(RefusedError, "the model", reason="probabilities of a number"):
        check(more.SerializeToString(), kind="number", n_classes=0)
    with raising(RefusedError, "the model", reason="not what the study asks for"):
        check(data)
    huge = to_onnx(train_learner("linear", rows, numbers * 1e100, kind="number", seed=0))
    with raising(RefusedError, "the model", reason="not finite"):
        Model.load(huge, n_components=H, kind="number").predict(rows)


def test_rows_that_do_not_fit_are_refused_without_their_values() -> None:
    rows, labels = rows_and_labels("classes")
    model = loaded(train_learner("linear", rows, labels, kind="classes", seed=0))
    with raising(InputError, "rows", got="shape"):
        model.predict(rows[:, :2])
    with raising(InputError, "rows", expected="finite"):
        model.predict(np.full((1, H), 1e300))
    assert model.predict(np.zeros((0, H))).shape == (0,)


def test_a_threshold_in_single_precision_splits_rows_as_before() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(1000)
    rounded = rounded_down(values)
    nearest = values.astype(np.float32)
    for rows in (nearest, np.nextafter(nearest, np.float32(9)), np.nextafter(nearest, np.float32(-9))):
        assert ((rows <= rounded) == (rows.astype(np.float64) <= values)).all()


# boosted trees; more of them, where XGBoost is installed, in tests/distributed


class Full(Boosted):
    """As large as boosted trees can be: all nodes of all trees down to the sixth level."""

    def __init__(self, n_classes: int, rounds: int) -> None:
        super().__init__(b"full", np.arange(n_classes))
        self._shape = rounds, n_classes if n_classes > 2 else 1

    def trees(self) -> tuple[Trees, np.ndarray]:
        count, node = self._shape[0] * self._shape[1], np.arange(127)
        starts, inner = 127 * np.arange(count), node < 63
        left, right = (
            (np.where(inner, 2 * node + side, node) + starts[:, None]).astype(np.int32).ravel() for side in (1, 2)
        )
        slot = np.where(inner, 0, node - 63) + 64 * np.arange(count)[:, None] * ~inner
        return Trees(
            roots=starts,
            feature=np.tile(node % H, count).astype(np.int32),
            limit=np.tile(0.1 * node - 3, count).astype(np.float32),
            left=left,
            right=right,
            slot=slot.astype(np.int32).ravel(),
            values=np.random.default_rng(0).standard_normal(64 * count).astype(np.float32),
            turns=np.arange(count, dtype=np.int32).reshape(self._shape),
            depth=6,
        ), np.zeros(self._shape[1])


@pytest.mark.parametrize("n_classes", [4, 500])
def test_participants_accept_as_many_boosted_trees_as_are_ever_trained(n_classes: int) -> None:
    fitted = Fitted("xgboost", "classes", H, 1.0, Full(n_classes, MOST_TREES // n_classes))
    data = to_onnx(fitted)
    assert len(data) < MOST_MODEL_BYTES
    check(data, n_classes=n_classes)


def test_participants_would_not_accept_many_more() -> None:
    with raising(RefusedError, "the model", reason="too much memory"):
        check(to_onnx(Fitted("xgboost", "classes", H, 1.0, Full(4, MOST_TREES * 12 // 40))), n_classes=4)


def document(**changed: Any) -> bytes:
    """XGBoost's JSON of two rounds for three classes: in the first round a tree of one split each, then a leaf each."""
    grown = {"left_children": [1, -1, -1], "right_children": [2, -1, -1], "split_indices": [1, 0, 0]}
    trees = [
        {**grown, "split_conditions": [0.5, 0.1 * k, -0.1 * k], "split_type": [0, 0, 0], "categories": []}
        for k in range(3)
    ]
    leaf = {"left_children": [-1], "right_children": [-1], "split_indices": [0], "split_type": [0], "categories": []}
    trees += [{**leaf, "split_conditions": [value]} for value in (0.0, 0.15, 0.0)]
    for tree in trees:
        tree["tree_param"] = {"size_leaf_vector": "1"}
    learner = {
        "learner_model_param": {"num_class": "3", "base_score": "[0.0,0.0,0.1]"},
        "objective": {"name": "multi:softprob"},
        "gradient_booster": {"name": "gbtree", "model": {"trees": trees, "tree_info": [0, 1, 2, 0, 1, 2]}},
    }
    return json.dumps({"learner": {**learner, **changed}}).encode()


def test_a_booster_is_read_from_its_document() -> None:
    class Read(Boosted):
        def trees(self) -> tuple[Trees, np.ndarray]:
            return boosted_trees(document())

    model = loaded(Fitted("xgboost", "classes", H, 1.0, Read(b"read", np.arange(3))))
    below = np.nextafter(np.float32(0.5), np.float32(0))
    rows = np.array([[9, below, 9], [9, 0.5, 9]], dtype=np.float32)
    # below 0.5 the classes have 0.0, 0.1 + 0.15 and 0.2 + 0.1; from 0.5 on 0.0, -0.1 + 0.15 and -0.2 + 0.1
    assert model.predict(rows).tolist() == [2, 1]


def test_a_booster_for_something_else_is_refused() -> None:
    with raising(InputError, "the booster", got="rank:pairwise"):
        boosted_trees(document(objective={"name": "rank:pairwise"}))
    with raising(InputError, "the booster", got="dart"):
        boosted_trees(document(gradient_booster={"name": "dart"}))


def wide(width: int) -> bytes:
    """A model of 16 columns that takes 17 `width` multiplications a row."""
    first, second = np.ones((16, width), np.float32), np.ones((width, 1), np.float32)
    arrays = {"first": first, "second": second, "axis": np.array([1])}
    steps = [
        ("MatMul", ["rows", "first"], "a"),
        ("MatMul", ["a", "second"], "b"),
        ("ReduceSum", ["b", "axis"], "predictions"),
    ]
    graph = helper.make_graph(
        [
            helper.make_node(name, given, [made], **({"keepdims": 0} if name == "ReduceSum" else {}))
            for name, given, made in steps
        ],
        "wide",
        [helper.make_tensor_value_info("rows", TensorProto.FLOAT, [None, 16])],
        [helper.make_tensor_value_info("predictions", TensorProto.FLOAT, [None])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()


def test_a_model_of_more_work_than_the_largest_honest_one_is_refused() -> None:
    """One that uses its weights over and over; the largest honest one uses 2^24 of them once, for 128 rows."""
    assert check_model(wide(1000), n_components=16, kind="number", n_classes=0).work < 2**22
    model = onnx.load_from_string(wide(1024))
    first, second, last = model.graph.node
    steps = [helper.make_node("MatMul", [f"a{k}" if k else "a", "square"], [f"a{k + 1}"]) for k in range(33)]
    second.input[0] = "a33"
    del model.graph.node[:]
    model.graph.node.extend([first, *steps, second, last])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((1024, 1024), np.float32), "square"))
    with raising(RefusedError, "the model", reason="too long"):
        check_model(model.SerializeToString(), n_components=16, kind="number", n_classes=0)
