"""A model of sums as an ONNX graph of plain arithmetic, from encoded rows to predictions: features and all.

Legend: x the encoded row; u the features before they are scaled, in blocks; W the weights, b the intercept; c₀ the share of
the constant. The score is √(1 − c₀) uW/‖u‖ + b, computed block by block: no array of all features is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.learners.onnx_export import DOUBLE, INPUT, PROBABILITIES, SINGLE, WHOLE, Graph, write_graph
from mooring.learners.sums import SumModel
from mooring.mechanisms.sums.feature_map import FeatureMap, TableFeatures
from mooring.mechanisms.sums.picture_features import BLANK, FLOOR, PIXELS, PictureFeatures
from mooring.mechanisms.sums.random_fourier import FourierFeatures


def sums_to_onnx(model: SumModel, features: FeatureMap, *, limits: tuple[float, float] = (-1.0, 1.0)) -> bytes:
    """Write a model of sums as ONNX, from encoded rows to what `mooring.learners.onnx_export.to_onnx` says.

    Parameters
    ----------
    features : FeatureMap
        What the sums are of.
    limits : (float, float)
        Of a number: predictions are clipped to them.
    """
    graph = Graph()
    blocks = _blocks(graph, features, graph.add("Cast", INPUT, to=DOUBLE))
    along = graph.hold(np.array([1]))
    scores = squares = ""
    for values, places in blocks:
        part = graph.add("MatMul", values, graph.hold(np.ascontiguousarray(model.weights[places])))
        square = graph.add("ReduceSum", graph.add("Mul", values, values), along, keepdims=1)
        scores = graph.add("Add", scores, part) if scores else part
        squares = graph.add("Add", squares, square) if squares else square
    share = math.sqrt(1 - features.constant_share)
    if isinstance(features, TableFeatures) and not features.n_hats:
        scaled = graph.add("Mul", scores, graph.hold(np.float64(share / features.largest_norm)))
    else:
        some = graph.add("Greater", squares, graph.hold(np.zeros((1, 1))))
        length = graph.add("Sqrt", graph.add("Where", some, squares, graph.hold(np.ones((1, 1)))))
        scaled = graph.add("Mul", graph.add("Div", scores, length), graph.hold(np.float64(share)))
    scores = graph.add("Add", scaled, graph.hold(model.intercept))
    if model.n_classes == 0:
        _add_number(graph, scores, limits)
        return write_graph(graph, features.n_inputs, SINGLE)
    if model.n_classes == 2:
        scores = graph.add("MatMul", scores, graph.hold(np.array([[0.0, 1.0]])))  # the second class where it is above 0
    if model.is_logistic:
        graph.finish("Cast", graph.add("Softmax", scores, axis=1), output=PROBABILITIES, to=SINGLE)
    graph.finish("ArgMax", scores, axis=1, keepdims=0)
    return write_graph(graph, features.n_inputs, WHOLE, n_probabilities=model.n_classes if model.is_logistic else 0)


def _blocks(graph: Graph, features: FeatureMap, rows: str) -> list[tuple[str, Any]]:
    """The features of rows before they are scaled, in blocks, and the places of each block's columns in φ."""
    match features:
        case TableFeatures():
            return _table_blocks(graph, features, rows)
        case PictureFeatures():
            return [(_picture_features(graph, features, rows), np.arange(features.n_components))]
        case FourierFeatures():
            phases, M = graph.add("MatMul", rows, graph.hold(features.frequencies)), features.n_frequencies
            sine = graph.add("Cos", graph.add("Sub", phases, graph.hold(np.float64(math.pi / 2))))
            return [(graph.add("Cos", phases), np.arange(M)), (sine, np.arange(M, 2 * M))]
    raise InputError("features", expected="a map of mooring's", got=type(features).__name__, cure="Use one of them.")


def _picture_features(graph: Graph, features: PictureFeatures, rows: str) -> str:
    """U of pictures; filters are held in single precision, which halves the model."""
    projection = features.projection
    filters, m, along = projection.filters, projection.filters.n_moduli, graph.hold(np.array([1]))
    spread = np.repeat(filters.matrix / features.n_channels, features.n_channels, axis=0).astype(np.float32)

    brightness = graph.add("ReduceSum", rows, along, keepdims=1)
    centred = graph.add("Sub", rows, graph.add("Mul", brightness, graph.hold(np.float64(1 / features.n_inputs))))

    def respond(columns: slice) -> str:
        return graph.add("MatMul", centred, graph.add("Cast", graph.hold(spread[:, columns]), to=DOUBLE))

    def square(values: str) -> str:
        return graph.add("Mul", values, values)

    def normalise(values: str) -> str:
        length = graph.add("ReduceSum", square(values), along, keepdims=1)
        return graph.add("Div", values, graph.add("Sqrt", graph.add("Add", length, graph.hold(np.float64(BLANK)))))

    even, odd, low = (respond(part) for part in (slice(m), slice(m, 2 * m), slice(2 * m, None)))
    g = graph.add("Add", square(even), square(odd))
    floor = graph.add("Mul", graph.add("ReduceSum", g, along, keepdims=1), graph.hold(np.float64(FLOOR / m)))
    g = graph.add("Add", g, graph.add("Add", floor, graph.hold(np.float64(BLANK))))
    g = normalise(graph.add("Sqrt", graph.add("Sqrt", g)))
    low = graph.add("Mul", normalise(low), graph.hold(np.float64(PIXELS)))
    parts = [
        graph.add("MatMul", values, graph.hold(np.ascontiguousarray(projection.matrix[rows_of])))
        for values, rows_of in ((g, slice(m)), (low, slice(m, None)))
    ]
    return graph.add("Sub", graph.add("Add", *parts), graph.hold(projection.mean @ projection.matrix))


def _table_blocks(graph: Graph, features: TableFeatures, rows: str) -> list[tuple[str, Any]]:
    """The features of a table in blocks: linear ones, hats, and the same of numbers on a logarithmic scale."""
    found = features.describe()
    blocks = []
    if found.at.size:
        linear = graph.add("MatMul", rows, graph.hold(found.linear))
        blocks.append((graph.add("Add", linear, graph.hold(found.offset)), found.at))
    for part in found.curves:
        own = graph.add("Gather", rows, graph.hold(part.columns), axis=1)
        if part.decades:
            one, half = graph.hold(np.float64(1)), graph.hold(np.float64(part.decades / 2))
            logs = graph.add("Log", graph.add("Add", graph.add("Mul", graph.add("Add", own, one), half), one))
            own = graph.add("Mul", logs, graph.hold(np.float64(1 / math.log(part.decades + 1))))
        if not part.weight:
            away = graph.add("Abs", graph.add("Sub", own, graph.hold(part.centres)))
            near = graph.add("Sub", graph.hold(np.float64(1)), graph.add("Mul", away, graph.hold(1 / part.widths)))
            own = graph.add("Relu", near)
        else:
            own = graph.add("Mul", own, graph.hold(np.float64(part.weight)))
        blocks.append((own, part.at))
    return blocks


def _add_number(graph: Graph, scores: str, limits: tuple[float, float]) -> None:
    low, high = (graph.hold(np.float64(end)) for end in limits)
    over = graph.add("Relu", graph.add("Sub", scores, high))
    kept = graph.add("Add", graph.add("Relu", graph.add("Sub", graph.add("Sub", scores, over), low)), low)
    single = graph.add("ReduceSum", kept, graph.hold(np.array([1])), keepdims=0)
    graph.finish("Cast", single, to=SINGLE)
