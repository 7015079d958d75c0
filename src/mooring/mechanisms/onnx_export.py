"""Export of models as ONNX, for use outside mooring (extra `onnx`). mooring itself never reads or runs such a file.

Models are written with operators of ONNX's own domain only, and all their numbers are in plain arrays. The graph of a model
of secure sums also computes the public features of a row.

Legend: u the features of a row before they are scaled; c₀ the share of the constant. A model with public features is applied
to √(1 − c₀) u/‖u‖. For columns without hat functions, u is divided by its largest possible norm instead; contrasts of levels
are not scaled.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, MissingExtraError
from mooring.learners.models import (
    FeatureMap,
    FourierFunction,
    LinearFunction,
    Model,
    ModelFunction,
    QuadraticFunction,
    TreeFunction,
)
from mooring.mechanisms.sums.features.columns import DECADES, TableFeatures, curve_coordinates, level_contrasts
from mooring.mechanisms.sums.features.fourier import FourierFeatures
from mooring.mechanisms.sums.features.pictures import BLANK, FLOOR, PIXELS, PictureFeatures
from mooring.mechanisms.sums.general.features import LevelFeatures
from mooring.mechanisms.sums.general.levels import Levels
from mooring.tables.schema import Column

INPUT, OUTPUT, PROBABILITIES = "rows", "predictions", "probabilities"
_OPSET, _IR_VERSION = 17, 8


def _require_onnx() -> Any:
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError:
        raise MissingExtraError(needed_for="Writing a model as ONNX", package="onnx", extra="onnx") from None
    return onnx


@dataclass
class _Graph:
    """A graph under construction: its nodes and its arrays so far."""

    onnx: Any = field(default_factory=_require_onnx)
    nodes: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def finish(self, output: str, operator: str, *inputs: str, **attributes: Any) -> None:
        """Add the node that computes an output of the graph."""
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), [output], **attributes))

    def hold(self, array: npt.ArrayLike) -> str:
        """Store an array of numbers and return its name."""
        name = f"n{len(self.numbers)}"
        self.numbers.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def cast(self, value: str, element: str) -> str:
        """Add a conversion of numbers to DOUBLE, FLOAT or INT64 and return the name of its output."""
        return self.add("Cast", value, to=self.onnx.TensorProto.DataType.Value(element))

    def sum_rows(self, value: str, *, keepdims: int = 0) -> str:
        """Add a sum over the second axis and return the name of its output."""
        return self.add("ReduceSum", value, self.hold(np.array([1])), keepdims=keepdims)

    def write(self, width: int, element: str, n_probabilities: int) -> bytes:
        """Return the finished graph as the bytes of an ONNX file."""
        helper, types = self.onnx.helper, self.onnx.TensorProto.DataType
        outputs = [helper.make_tensor_value_info(OUTPUT, types.Value(element), [None])]
        if n_probabilities:
            outputs.append(helper.make_tensor_value_info(PROBABILITIES, types.Value("FLOAT"), [None, n_probabilities]))
        rows = helper.make_tensor_value_info(INPUT, types.Value("FLOAT"), [None, width])
        graph = helper.make_graph(self.nodes, "mooring", [rows], outputs, self.numbers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
        return bytes(model.SerializeToString(deterministic=True))


def to_onnx(model: Model) -> bytes:
    """Return a model as an ONNX file.

    Returns
    -------
    bytes
        An ONNX model. Its input is "rows" (float32, any number of encoded rows), and its output "predictions": class codes
        (int64) or numbers (float32). A model of classes that has probabilities also has the output "probabilities" (float32,
        rows by classes).
    """
    graph, spec = _Graph(), model.spec
    rows = graph.cast(INPUT, "DOUBLE")
    arguments = rows if spec.features is None else _add_features(graph, spec.features, rows)
    scores = _add_function(graph, model.function, arguments)
    if spec.kind == "number":
        scores = scores if spec.bounds is None else _add_bounds(graph, scores, spec.bounds)
        graph.finish(OUTPUT, "Cast", graph.sum_rows(scores), to=graph.onnx.TensorProto.FLOAT)
        return graph.write(spec.n_inputs, "FLOAT", 0)
    class_shares = graph.hold(model.class_shares[None])
    if not model.has_probabilities:
        compared = graph.add("Sub", scores, class_shares)
    else:
        shares = graph.add("Softmax", scores, axis=1) if model.link == "softmax" else scores
        compared = graph.add("Div", shares, class_shares)
        if model.classes.tolist() != list(range(spec.n_classes)):
            shares = graph.add("MatMul", shares, graph.hold(np.eye(spec.n_classes)[model.classes]))
        graph.finish(PROBABILITIES, "Cast", shares, to=graph.onnx.TensorProto.FLOAT)
    best = graph.add("ArgMax", compared, axis=1, keepdims=0)
    graph.finish(OUTPUT, "Gather", graph.hold(model.classes.astype(np.int64)), best)
    return graph.write(spec.n_inputs, "INT64", spec.n_classes if model.has_probabilities else 0)


def _add_function(graph: _Graph, function: ModelFunction, rows: str) -> str:
    match function:
        case LinearFunction():
            return _add_linear(graph, rows, function.weights, function.intercepts)
        case FourierFunction():
            waves = graph.add("Cos", _add_linear(graph, rows, function.frequencies, function.offsets))
            return _add_linear(graph, waves, function.weights, function.intercepts)
        case QuadraticFunction():
            places = _add_linear(graph, rows, function.axes, function.offsets)
            halves = -np.kron(np.eye(function.intercepts.size), np.ones((function.axes.shape[0], 1))) / 2
            return _add_linear(graph, graph.add("Mul", places, places), halves, function.intercepts)
        case TreeFunction():
            return _add_trees(graph, function, rows)


def _add_linear(graph: _Graph, rows: str, weights: npt.ArrayLike, intercepts: npt.ArrayLike) -> str:
    return graph.add("Add", graph.add("MatMul", rows, graph.hold(weights)), graph.hold(intercepts))


def _add_trees(graph: _Graph, function: TreeFunction, rows: str) -> str:
    """Add the descent through all trees at once, one level per step. A leaf leads to itself."""
    is_leaf = function.feature < 0
    limits = np.where(is_leaf, np.finfo(np.float64).max, function.limit)
    children, others = function.children, np.where(is_leaf, function.children, function.children + 1)
    tables = [
        graph.hold(table) for table in (np.maximum(function.feature, 0).astype(np.int64), limits, children, others)
    ]
    zeros = graph.add("Mul", graph.add("Gather", rows, graph.hold(np.array([0])), axis=1), graph.hold(np.float64(0)))
    node = graph.add("Add", graph.cast(zeros, "INT64"), graph.hold(np.arange(function.n_trees)[None]))
    for _ in range(function.n_levels):
        column, limit, left, right = (graph.add("Gather", table, node) for table in tables)
        goes_left = graph.add("LessOrEqual", graph.add("GatherElements", rows, column, axis=1), limit)
        node = graph.add("Where", goes_left, left, right)
    values = graph.add("Gather", graph.hold(function.values), graph.add("Gather", graph.hold(function.leaves), node))
    n_outputs, width = function.intercepts.size, function.values.shape[1]
    if width < n_outputs:  # each tree has values for some outputs only, which are placed among all outputs
        columns = np.arange(n_outputs) - function.first_output[:, None]
        spread = (columns[:, None, :] == np.arange(width)[:, None]).astype(np.float64)
        values = graph.add(
            "MatMul", graph.add("Unsqueeze", values, graph.hold(np.array([2]))), graph.hold(spread[None])
        )
        values = graph.add("Squeeze", values, graph.hold(np.array([2])))
    mean = graph.add("Div", graph.sum_rows(values), graph.hold(function.divisor))
    return graph.add("Add", mean, graph.hold(function.intercepts))


def _add_features(graph: _Graph, features: FeatureMap, rows: str) -> str:
    """Add public features without their constant."""
    if isinstance(features, LevelFeatures):
        return _add_level_features(graph, features, rows)
    u = _add_unscaled_features(graph, features, rows)
    share = math.sqrt(1 - features.constant_share)
    if isinstance(features, TableFeatures) and not features.n_hats:
        return graph.add("Mul", u, graph.hold(np.float64(share / features.largest_norm)))
    squares = graph.sum_rows(graph.add("Mul", u, u), keepdims=1)
    is_positive = graph.add("Greater", squares, graph.hold(np.zeros((1, 1))))
    length = graph.add("Sqrt", graph.add("Where", is_positive, squares, graph.hold(np.ones((1, 1)))))
    return graph.add("Mul", graph.add("Div", u, length), graph.hold(np.float64(share)))


def _add_unscaled_features(graph: _Graph, features: FeatureMap, rows: str) -> str:
    match features:
        case TableFeatures():
            return _add_table_features(graph, features, rows)
        case PictureFeatures():
            return _add_picture_features(graph, features, rows)
        case FourierFeatures():
            phases = graph.add("MatMul", rows, graph.hold(features.frequencies))
            sine = graph.add("Cos", graph.add("Sub", phases, graph.hold(np.float64(math.pi / 2))))
            return graph.add("Concat", graph.add("Cos", phases), sine, axis=1)
    raise InputError(
        "features",
        expected="TableFeatures, LevelFeatures, PictureFeatures or FourierFeatures",
        got=type(features).__name__,
        cure="Use one of them.",
    )


def _add_table_features(graph: _Graph, features: TableFeatures, rows: str) -> str:
    """Add the features u of a table, column by column, as `TableFeatures.apply` computes them."""
    parts, start = [], 0
    for column in features.schema.columns:
        entries = np.arange(start, start + column.width)
        start += column.width
        if column.kind == "category":
            levels = graph.add("Gather", rows, graph.hold(entries[: len(column.categories)]), axis=1)
            parts.append(graph.add("MatMul", levels, graph.hold(level_contrasts(len(column.categories)).T)))
        else:
            number = graph.add("Gather", rows, graph.hold(entries[:1]), axis=1)
            parts.append(_add_number_features(graph, features, column, number))
        if column.missing == "indicate":
            missing = graph.add("Gather", rows, graph.hold(entries[-1:]), axis=1)
            parts.append(graph.add("Sub", missing, graph.hold(np.float64(0.5))))
    return graph.add("Concat", *parts, axis=1)


def _add_number_features(graph: _Graph, features: TableFeatures, column: Column, number: str) -> str:
    """Add the features of one number: the number itself, on its scale, or the coordinates of the number's hat functions."""
    unit = graph.hold(np.float64(1))
    if column.name in features.log_scaled:
        steps = graph.add("Mul", graph.add("Add", number, unit), graph.hold(np.float64((DECADES - 1) / 2)))
        logs = graph.add("Log", graph.add("Add", steps, unit))
        number = graph.add("Sub", graph.add("Mul", logs, graph.hold(np.float64(2 / math.log(DECADES)))), unit)
    if not (n_hats := features.n_hats):
        return number
    distance = graph.add("Abs", graph.add("Sub", number, graph.hold(np.linspace(-1.0, 1.0, n_hats)[None])))
    slope = graph.hold(np.float64((n_hats - 1) / 2))
    hats = graph.add("Relu", graph.add("Sub", unit, graph.add("Mul", distance, slope)))
    return graph.add("MatMul", hats, graph.hold(curve_coordinates(n_hats).T))


def _add_level_features(graph: _Graph, features: LevelFeatures, rows: str) -> str:
    """Add the contrasts of levels, column by column, as `LevelFeatures.apply` computes them."""
    parts = []
    for index, start in features.columns:
        levels = features.workload.columns[index]
        if levels.nodes:
            weights = _add_node_weights(graph, levels, start, rows)
        else:
            words = np.arange(start, start + levels.n_levels - levels.has_missing)
            weights = graph.add("Gather", rows, graph.hold(words), axis=1)
            if levels.has_missing:
                present = graph.sum_rows(weights, keepdims=1)
                weights = graph.add("Concat", weights, graph.add("Sub", graph.hold(np.float64(1)), present), axis=1)
        parts.append(graph.add("MatMul", weights, graph.hold(features.workload.scaled_contrasts(index).T)))
    return graph.add("Concat", *parts, axis=1)


def _add_node_weights(graph: _Graph, levels: Levels, start: int, rows: str) -> str:
    """Add the weights of a number on its nodes and on the level of missing values, if there is one."""
    number = graph.add("Gather", rows, graph.hold(np.array([start])), axis=1)
    low, high, unit = levels.low, levels.high, graph.hold(np.float64(1))
    scaled = graph.add("Mul", number, graph.hold(np.float64((high - low) / 2)))
    values = _add_bounds(graph, graph.add("Add", scaled, graph.hold(np.float64((high + low) / 2))), (low, high))
    if levels.is_whole:
        values = graph.add("Round", values)
    if levels.is_log and low > 0:
        values = graph.add("Log", values)
    elif levels.is_log:
        steps = graph.add("Sub", values, graph.hold(np.float64(low)))
        steps = graph.add("Mul", steps, graph.hold(np.float64((DECADES - 1) / (high - low))))
        values = graph.add("Log", graph.add("Add", steps, unit))
    first, last = levels.nodes[0], levels.nodes[-1]
    position = graph.add("Sub", values, graph.hold(np.float64(first)))
    position = graph.add("Mul", position, graph.hold(np.float64((len(levels.nodes) - 1) / (last - first))))
    distance = graph.add("Abs", graph.add("Sub", position, graph.hold(np.arange(len(levels.nodes))[None] * 1.0)))
    weights = graph.add("Relu", graph.add("Sub", unit, distance))
    if not levels.has_missing:
        return weights
    missing = graph.add("Gather", rows, graph.hold(np.array([start + 1])), axis=1)
    weights = graph.add("Mul", weights, graph.add("Sub", unit, missing))
    return graph.add("Concat", weights, missing, axis=1)


def _add_picture_features(graph: _Graph, features: PictureFeatures, rows: str) -> str:
    """Add the features u of pictures. Filters are stored in single precision, which halves the size of the file."""
    projection = features.projection
    filters, m = projection.filters, projection.filters.n_moduli
    spread = np.repeat(filters.matrix / features.n_channels, features.n_channels, axis=0).astype(np.float32)

    brightness = graph.sum_rows(rows, keepdims=1)
    centred = graph.add("Sub", rows, graph.add("Mul", brightness, graph.hold(np.float64(1 / features.n_inputs))))

    def respond(columns: slice) -> str:
        return graph.add("MatMul", centred, graph.cast(graph.hold(spread[:, columns]), "DOUBLE"))

    def square(values: str) -> str:
        return graph.add("Mul", values, values)

    def normalise(values: str) -> str:
        length = graph.sum_rows(square(values), keepdims=1)
        return graph.add("Div", values, graph.add("Sqrt", graph.add("Add", length, graph.hold(np.float64(BLANK)))))

    even, odd, low = (respond(part) for part in (slice(m), slice(m, 2 * m), slice(2 * m, None)))
    g = graph.add("Add", square(even), square(odd))
    floor = graph.add("Mul", graph.sum_rows(g, keepdims=1), graph.hold(np.float64(FLOOR / m)))
    g = graph.add("Add", g, graph.add("Add", floor, graph.hold(np.float64(BLANK))))
    g = normalise(graph.add("Sqrt", graph.add("Sqrt", g)))
    low = graph.add("Mul", normalise(low), graph.hold(np.float64(PIXELS)))
    parts = [
        graph.add("MatMul", values, graph.hold(projection.matrix[rows_of]))
        for values, rows_of in ((g, slice(m)), (low, slice(m, None)))
    ]
    return graph.add("Sub", graph.add("Add", *parts), graph.hold(projection.mean @ projection.matrix))


def _add_bounds(graph: _Graph, scores: str, bounds: tuple[float, float]) -> str:
    low, high = (graph.hold(np.float64(end)) for end in bounds)
    return graph.add("Min", graph.add("Max", scores, low), high)
