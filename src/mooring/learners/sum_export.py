"""A model of sums as an ONNX graph of plain arithmetic, from encoded rows to predictions: features and all.

Legend: x the encoded row; u the features before they are scaled, in blocks; W the weights, b the intercept; c₀ the share of
the constant. The score is √(1 − c₀) uW/‖u‖ + b, computed block by block: no array of all features is needed.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.learners.onnx_export import DOUBLE, INPUT, SINGLE, WHOLE, Graph, write_graph
from mooring.learners.sums import SumModel
from mooring.mechanisms.secure_sum.feature_map import FeatureMap, TableFeatures


def sums_to_onnx(model: SumModel, features: FeatureMap, *, limits: tuple[float, float] = (-1.0, 1.0)) -> bytes:
    """Write a model of sums as ONNX.

    Parameters
    ----------
    model : SumModel
    features : FeatureMap
        What the sums are of.
    limits : (float, float)
        Of a number: predictions are clipped to them.

    Returns
    -------
    bytes
        As `mooring.learners.onnx_export.to_onnx`, from encoded rows.
    """
    graph = Graph()
    rows = graph.add("Cast", INPUT, to=DOUBLE)
    blocks = _table_blocks(graph, features, rows) if isinstance(features, TableFeatures) else None
    if blocks is None:
        raise InputError(
            "features", expected="a map of mooring's", got=type(features).__name__, cure="Use one of them."
        )
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
    _add_output(graph, model, scores, limits)
    return write_graph(graph, features.n_inputs, WHOLE if model.n_classes else SINGLE)


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


def _add_output(graph: Graph, model: SumModel, scores: str, limits: tuple[float, float]) -> None:
    if model.n_classes == 0:
        low, high = (graph.hold(np.float64(end)) for end in limits)
        over = graph.add("Relu", graph.add("Sub", scores, high))
        kept = graph.add("Add", graph.add("Relu", graph.add("Sub", graph.add("Sub", scores, over), low)), low)
        single = graph.add("ReduceSum", kept, graph.hold(np.array([1])), keepdims=0)
        graph.finish("Cast", single, to=SINGLE)
        return
    if model.n_classes == 2:
        scores = graph.add("MatMul", scores, graph.hold(np.array([[0.0, 1.0]])))  # the second class where it is above 0
    graph.finish("ArgMax", scores, axis=1, keepdims=0)
