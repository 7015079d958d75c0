"""Trained learners as ONNX graphs of plain arithmetic: no tree, kernel or vote that a runtime would have to trust.

Legend: Z the rows, scaled; K = exp(−γ‖Z − S‖²) the Gaussian kernel against rows S.

Every learner becomes matrix products, comparisons and look-ups of ONNX's own domain, with all its numbers in plain arrays.
So whoever receives a model can check all of it in a few lines (`mooring.protocol.messages.model`), which no check of a
runtime's tree or support-vector operators could do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from mooring.errors import InputError
from mooring.learners.boosted_trees import Boosted
from mooring.learners.fitting import Fitted
from mooring.learners.trees import Trees, forest_trees

OPSET, IR_VERSION = 17, 8
INPUT, OUTPUT, PROBABILITIES = "rows", "predictions", "probabilities"
DOUBLE, SINGLE, WHOLE = TensorProto.DOUBLE, TensorProto.FLOAT, TensorProto.INT64


@dataclass
class Graph:
    """A graph while it is drawn: steps and numbers so far."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    numbers: list[onnx.TensorProto] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a step, and return the name of what it makes."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def finish(self, operator: str, *inputs: str, output: str = OUTPUT, **attributes: Any) -> None:
        """Add the last step of an output: the one that makes the predictions, or the probabilities."""
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))

    def hold(self, array: npt.ArrayLike) -> str:
        """Hold an array of numbers, and return its name."""
        name = f"n{len(self.numbers)}"
        self.numbers.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name


def to_onnx(fitted: Fitted, *, n_classes: int = 0) -> bytes:
    """Write a trained learner as ONNX.

    Parameters
    ----------
    fitted : Fitted
        From `mooring.learners.train_learner`.
    n_classes : int
        Of the study, which may have classes that no row is of; 0 for as many as the learner knows.

    Returns
    -------
    bytes
        A model from "rows" (float32, any number of rows by h) to "predictions": the index of a class (int64), or a number
        (float32). Of classes also to "probabilities" (float32, rows by `n_classes`), unless the learner has none.

    Examples
    --------
    >>> from mooring.learners import train_learner
    >>> from mooring.protocol.messages.model import Model
    >>> rows = np.array([[0.0], [0.1], [1.0], [1.1]])
    >>> data = to_onnx(train_learner("svm", rows, np.array([0, 0, 1, 1]), kind="classes", seed=0))
    >>> Model.load(data, n_components=1, kind="classes", n_classes=2).predict(rows).tolist()
    [0, 0, 1, 1]
    """
    graph = Graph()
    h = fitted.n_components
    rows = graph.add("Mul", graph.add("Cast", INPUT, to=DOUBLE), graph.hold(np.float64(1 / fitted.scale)))
    if fitted.kind == "classes":
        scores = _outputs(graph, fitted.model, rows, h)
        known = fitted.model.classes_.astype(np.int64)
        width = _add_probabilities(graph, fitted.model, scores, known, n_classes or int(known.max()) + 1)
        best = graph.add("ArgMax", scores, axis=1, keepdims=0)
        graph.finish("Gather", graph.hold(known), best)
        return write_graph(graph, h, WHOLE, n_probabilities=width)
    number = _outputs(graph, fitted.model, rows, h)
    number = graph.add("ReduceSum", number, graph.hold(np.array([1])), keepdims=0)
    graph.finish("Cast", number, to=SINGLE)
    return write_graph(graph, h, SINGLE)


def write_graph(graph: Graph, width: int, element: int, *, n_probabilities: int = 0) -> bytes:
    """Write a graph from rows to predictions as a model.

    Parameters
    ----------
    width : int
        Of the rows.
    element : int
        ONNX type of the predictions.
    n_probabilities : int
        The width of the probabilities; 0 where the graph has none.
    """
    outputs = [helper.make_tensor_value_info(OUTPUT, element, [None])]
    if n_probabilities:
        outputs.append(helper.make_tensor_value_info(PROBABILITIES, SINGLE, [None, n_probabilities]))
    drawn = helper.make_graph(
        graph.nodes, "mooring", [helper.make_tensor_value_info(INPUT, SINGLE, [None, width])], outputs, graph.numbers
    )
    model = helper.make_model(drawn, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    return bytes(model.SerializeToString(deterministic=True))


def _outputs(graph: Graph, model: Any, rows: str, n_components: int) -> str:
    """A score a class, whose first largest is the class predicted; or the number predicted, as a matrix of one column."""
    match model:
        case TransformedTargetRegressor():
            inner, turned = _outputs(graph, model.regressor_, rows, n_components), model.transformer_
            stretched = graph.add("Mul", inner, graph.hold(np.asarray(turned.scale_, dtype=np.float64)))
            return graph.add("Add", stretched, graph.hold(np.asarray(turned.mean_, dtype=np.float64)))
        case SVC():
            return _votes(graph, model, rows)
        case SVR():
            K = _kernel(graph, rows, model.support_vectors_, model._gamma, in_single=True)
            return _linear(graph, K, model.dual_coef_, model.intercept_)
        case RandomForestClassifier():
            return _walk(graph, forest_trees(model), rows)
        case RandomForestRegressor():
            total = _walk(graph, forest_trees(model), rows)
            return graph.add("Mul", total, graph.hold(np.float64(1 / len(model.estimators_))))
        case Boosted():
            trees, base = model.trees()
            sums = graph.add("Add", _walk(graph, trees, rows), graph.hold(base))
            if model.classes_ is None:
                stretched = graph.add("Mul", sums, graph.hold(np.float64(model.scale)))
                return graph.add("Add", stretched, graph.hold(np.float64(model.centre)))
            if model.classes_.size > 2:
                return sums
            return graph.add("MatMul", sums, graph.hold(np.array([[0.0, 1.0]])))  # the second class where it is above 0
        case Pipeline():
            first, last = (step for _, step in model.steps)
            return _features(graph, first, rows, *_weights(last))
        case DummyClassifier() | DummyRegressor():
            found = model.class_prior_ if isinstance(model, DummyClassifier) else model.constant_
            constants = np.asarray(found, dtype=np.float64).ravel()
            return _linear(graph, rows, np.zeros((constants.size, n_components)), constants)
    raise InputError(
        "learner", expected="one of mooring.learners", got=type(model).__name__, cure="Train it with train_learner."
    )


def _add_probabilities(graph: Graph, model: Any, scores: str, known: npt.NDArray[np.int64], n_classes: int) -> int:
    """Add the probabilities of all classes of a study, of which `known` have scores; return how many, 0 for none."""
    if isinstance(model, SVC):  # votes are no probabilities
        return 0
    if isinstance(model, RandomForestClassifier):
        shares = graph.add("Mul", scores, graph.hold(np.float64(1 / len(model.estimators_))))
    elif isinstance(model, DummyClassifier):
        shares = scores
    else:
        shares = graph.add("Softmax", scores, axis=1)
    if known.tolist() != list(range(n_classes)):
        shares = graph.add("MatMul", shares, graph.hold(np.eye(n_classes)[known]))
    graph.finish("Cast", shares, output=PROBABILITIES, to=SINGLE)
    return n_classes


def _linear(graph: Graph, rows: str, weights: npt.NDArray[np.float64], intercepts: npt.NDArray[np.float64]) -> str:
    return graph.add("Add", graph.add("MatMul", rows, graph.hold(weights.T)), graph.hold(intercepts))


def _weights(model: LogisticRegression | Ridge) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Weights and intercepts, one row an output; two for two classes, of which scikit-learn has one score."""
    weights, intercepts = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    if isinstance(model, Ridge) or weights.shape[0] > 1:
        return weights, intercepts
    return np.vstack([np.zeros_like(weights), weights]), np.array([0.0, intercepts[0]])


def _kernel(graph: Graph, rows: str, others: npt.NDArray[np.float64], gamma: float, *, in_single: bool = False) -> str:
    """exp(−γ‖z − s‖²) = exp(2γ z·s − γ‖z‖² − γ‖s‖²); the rows s may be kept in single precision, as uploads came.

    Both are taken from the first s: far from zero the three terms would cancel.
    """
    rows, others = graph.add("Sub", rows, graph.hold(others[0])), others - others[0]
    if in_single:
        kept = graph.add("Cast", graph.hold(others.T.astype(np.float32)), to=DOUBLE)
        others = others.astype(np.float32).astype(np.float64)
    else:
        kept = graph.hold(others.T)
    squares = graph.add("ReduceSum", graph.add("Mul", rows, rows), graph.hold(np.array([1])), keepdims=1)
    products = graph.add("Mul", graph.add("MatMul", rows, kept), graph.hold(np.float64(2 * gamma)))
    exponent = graph.add("Sub", products, graph.hold(gamma * np.sum(others**2, axis=1)))
    exponent = graph.add("Sub", exponent, graph.add("Mul", squares, graph.hold(np.float64(gamma))))
    return graph.add("Exp", exponent)


def _features(
    graph: Graph, features: Any, rows: str, weights: npt.NDArray[np.float64], intercepts: npt.NDArray[np.float64]
) -> str:
    """A linear model on rows, the kernel with some rows (Nyström), or random Fourier features √(2/D) cos(Z W + b)."""
    if isinstance(features, StandardScaler):  # the mean of the rows, which would tell of them, goes into the intercepts
        return _linear(graph, rows, weights, intercepts - weights @ features.mean_)
    if isinstance(features, Nystroem):
        # The two matrices after the kernel are multiplied here, once: the first is badly conditioned, so it stays in double.
        K = _kernel(graph, rows, features.components_, float(features.gamma))
        return _linear(graph, K, weights @ features.normalization_, intercepts)
    cosines = graph.add("Cos", _linear(graph, rows, features.random_weights_.T, features.random_offset_))
    return _linear(graph, cosines, weights * np.sqrt(2 / features.n_components), intercepts)


def _votes(graph: Graph, model: SVC, rows: str) -> str:
    """One machine for each pair of classes, and a vote from each: for the first of the pair where its value is above 0."""
    n_classes, n_vectors = model.classes_.size, model.support_vectors_.shape[0]
    owner = np.repeat(np.arange(n_classes), model.n_support_)
    pairs = [(i, j) for i in range(n_classes) for j in range(i + 1, n_classes)]
    sign = -1.0 if n_classes == 2 else 1.0  # for two classes scikit-learn turns the sign of what it shows
    weights = np.zeros((n_vectors, len(pairs)))
    first, second = np.zeros((len(pairs), n_classes)), np.zeros((len(pairs), n_classes))
    for column, (i, j) in enumerate(pairs):
        weights[owner == i, column] = sign * model.dual_coef_[j - 1, owner == i]
        weights[owner == j, column] = sign * model.dual_coef_[i, owner == j]
        first[column, i] = second[column, j] = 1.0
    K = _kernel(graph, rows, model.support_vectors_, model._gamma, in_single=True)
    values = _linear(graph, K, weights.T, sign * model.intercept_)
    above = graph.add("Cast", graph.add("Greater", values, graph.hold(np.float64(0))), to=DOUBLE)
    return _linear(graph, above, (first - second).T, second.sum(axis=0))


def _walk(graph: Graph, trees: Trees, rows: str) -> str:
    """Walk down all trees at once, one level a step; a leaf leads to itself. Returns the sums over trees."""
    single, roots = graph.add("Cast", rows, to=SINGLE), trees.roots
    value = graph.add("Gather", single, graph.hold(trees.feature[roots]), axis=1)
    go_left = graph.add("LessOrEqual", value, graph.hold(trees.limit[roots]))
    place = graph.add("Where", go_left, graph.hold(trees.left[roots]), graph.hold(trees.right[roots]))
    features, limits, lefts, rights = (
        graph.hold(array) for array in (trees.feature, trees.limit, trees.left, trees.right)
    )
    for _ in range(trees.depth - 1):
        value = graph.add("GatherElements", single, graph.add("Gather", features, place), axis=1)
        go_left = graph.add("LessOrEqual", value, graph.add("Gather", limits, place))
        place = graph.add("Where", go_left, graph.add("Gather", lefts, place), graph.add("Gather", rights, place))
    slots = graph.add("Gather", graph.hold(trees.slot), place)
    found = graph.add("Gather", graph.hold(trees.values), slots)
    if trees.turns is not None:
        found = graph.add("Gather", found, graph.hold(trees.turns), axis=1)
    return graph.add("ReduceSum", graph.add("Cast", found, to=DOUBLE), graph.hold(np.array([1])), keepdims=0)
