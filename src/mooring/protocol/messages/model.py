"""Models that come from somebody else: checked to be data, and nothing but data, before a runtime is given them.

A model of mooring's (`mooring.learners.onnx_export`) is a straight line of plain arithmetic. What is accepted here is just
that: no loops, no functions, no files beside it, and for every step the size of what it makes is worked out beforehand. It
gives one value a row and, of classes, may give a probability for each class of the study beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.geometry.backend import require_finite
from mooring.protocol.messages.model_process import ModelProcess
from mooring.protocol.messages.model_reader import Tree, read_model, refuse

MOST_MODEL_BYTES = 64 * 2**20
ROWS_AT_ONCE = 128
INPUT, OUTPUT, PROBABILITIES = "rows", "predictions", "probabilities"
_MOST_NUMBERS = 2**24  # in one array, while it predicts
_MOST_NUMBERS_IN_ALL = 2**26  # in all arrays that a block of rows passes through: a runtime may keep them all
_MOST_WORK = 2**32  # multiplications a block of rows: twice those of a model of the largest size
_IR_VERSIONS, _OPSETS = range(7, 11), range(13, 22)
_TYPES = {1: "<f4", 6: "<i4", 7: "<i8", 11: "<f8"}
_SINGLE, _WHOLE = 1, 7
_ROUNDING = 1e-3  # of probabilities

Kind = Literal["classes", "number"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class CheckedModel:
    """What a check found: the multiplications that a block of rows takes, and whether there are probabilities."""

    work: int
    has_probabilities: bool


def check_model(
    data: bytes, *, n_components: int, kind: Kind, n_classes: int, most_bytes: int = MOST_MODEL_BYTES
) -> CheckedModel:
    """Refuse a model that is not plainly data of the kind that mooring writes.

    Parameters
    ----------
    data : bytes
        The file, as it came.
    n_components : int
        The width of its rows.
    n_classes : int
        How many classes the study has; not used for numbers.
    most_bytes : int
        Larger files are refused unread.
    """
    if len(data) > most_bytes:
        raise refuse(f"it is larger than {most_bytes // 2**20} MB")
    if not n_classes and kind == "classes":
        raise InputError("n_classes", expected="1 or more", got="0", cure="Take it from the study.")
    model = read_model(data)
    _require_versions(model)
    graph = _take_one(model, "graph")
    _require_value(_take_one(graph, "input"), INPUT, _SINGLE, n_components)
    _require_value(_take_one(graph, "output"), OUTPUT, _WHOLE if kind == "classes" else _SINGLE, None)
    made: dict[str, Shape] = {OUTPUT: (ROWS_AT_ONCE,)}
    for value in graph["output"][1:]:
        if kind != "classes":
            raise refuse("it gives probabilities of a number")
        _require_value(value, PROBABILITIES, _SINGLE, n_classes)
        made[PROBABILITIES] = (ROWS_AT_ONCE, n_classes)
    numbers = _read_arrays(graph["initializer"])
    shapes: dict[str, Shape] = {INPUT: (ROWS_AT_ONCE, n_components)}
    shapes |= {name: array.shape for name, array in numbers.items()}
    if INPUT in numbers or not made.keys().isdisjoint(shapes):
        raise refuse("its input or output stands for something else")
    work = 0
    for node in graph["node"]:
        work += _infer_step(node, shapes, numbers)
    if sum(math.prod(shape) for shape in shapes.values()) > _MOST_NUMBERS_IN_ALL:
        raise refuse("it would take too much memory to use")
    if work > _MOST_WORK:
        raise refuse("it would take too long to use")
    if any(shapes.get(name) != shape for name, shape in made.items()):
        raise refuse("it does not predict one value a row, or one probability a class")
    return CheckedModel(work, PROBABILITIES in made)


@dataclass(frozen=True, eq=False)
class Model:
    """A model that was checked, ready to predict."""

    n_components: int
    kind: Kind
    n_classes: int
    has_probabilities: bool
    _process: ModelProcess

    @classmethod
    def load(cls, data: bytes, *, n_components: int, kind: Kind, n_classes: int = 0, threads: int = 2) -> Model:
        """Check a model (`check_model`) and hand it to ONNX Runtime, in a process of its own.

        Parameters
        ----------
        data : bytes
            An ONNX file.
        n_components : int
            Numbers that a row must have.
        kind : Kind
            What it must predict.
        n_classes : int, default 0
            0 for a number.
        threads : int, default 2
            Of ONNX Runtime.
        """
        found = check_model(data, n_components=n_components, kind=kind, n_classes=n_classes)
        process = ModelProcess(data, work=found.work, threads=threads)
        return cls(n_components, kind, n_classes, found.has_probabilities, process)

    def predict(self, rows: npt.NDArray[np.floating[Any]]) -> npt.NDArray[Any]:
        """Predict for rows of shape (n, h): the index of a class (int64), or a number (float64)."""
        return self.predict_with_probabilities(rows)[0]

    def predict_with_probabilities(
        self, rows: npt.NDArray[np.floating[Any]]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64] | None]:
        """Predict as `predict`, and the probability of each class, of shape (n, classes); None where the model has none."""
        if rows.ndim != 2 or rows.shape[1] != self.n_components:
            got, cure = f"shape {rows.shape}", "Give the model aligned rows of the study it belongs to."
            raise InputError("rows", expected=f"of shape (n, {self.n_components})", got=got, cure=cure)
        with np.errstate(over="ignore"):
            given = np.ascontiguousarray(rows, dtype=np.float32)
        require_finite("rows", given)
        found = np.empty(len(given), dtype=np.int64 if self.kind == "classes" else np.float64)
        shares = np.empty((len(given), self.n_classes if self.has_probabilities else 0))
        for start in range(0, len(given), ROWS_AT_ONCE):
            block = slice(start, start + ROWS_AT_ONCE)
            found[block], shares[block] = self._predict_block(given[block])
        return found, shares if self.has_probabilities else None

    def _predict_block(self, block: npt.NDArray[np.float32]) -> tuple[npt.NDArray[Any], npt.NDArray[np.float64]]:
        values, probabilities = self._process.predict(block)
        if values.dtype != (np.int64 if self.kind == "classes" else np.float32):
            raise refuse("it does not predict one value a row")
        if self.kind == "classes" and (values.min() < 0 or values.max() >= self.n_classes):
            raise refuse("it predicts classes that the study does not have")
        if not np.isfinite(values).all():
            raise refuse("it predicts numbers that are not finite")
        return values, self._require_shares(values, probabilities.astype(np.float64))

    def _require_shares(self, values: npt.NDArray[Any], shares: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Probabilities as they came, clipped to [0, 1]; refused where they are none, or contradict the class predicted."""
        if shares.shape[1] != (self.n_classes if self.has_probabilities else 0):
            raise refuse("it does not predict one probability a class")
        if shares.size == 0:
            return shares
        proper = shares.min() >= -_ROUNDING and np.abs(shares.sum(axis=1) - 1).max() <= _ROUNDING  # False of NaN, too
        if not proper:
            raise refuse("its probabilities are below zero, do not add up to one, or are no numbers")
        if (shares[np.arange(len(values)), values] < shares.max(axis=1) - _ROUNDING).any():
            raise refuse("it predicts a class that it gives less probability than another")
        return np.clip(shares, 0, 1)


def _take_one(tree: Tree, name: str, default: Any = None) -> Any:
    values = tree[name]
    if not values and default is None:
        raise refuse("a part of it is missing")
    return values[0] if values else default


def _require_versions(model: Tree) -> None:
    opset = _take_one(model, "opset_import")
    if _take_one(model, "ir_version") not in _IR_VERSIONS or _take_one(opset, "version") not in _OPSETS:
        raise refuse("it is of a version of ONNX that this mooring does not use")
    if _take_one(opset, "domain", "") != "":
        raise refuse("it uses operators that are not ONNX's own")


def _require_value(value: Tree, name: str, element: int, width: int | None) -> None:
    kind = _take_one(_take_one(value, "type"), "tensor_type")
    sides = _take_one(kind, "shape")["dim"]
    widths = [_take_one(side, "dim_value", -1) for side in sides]
    fine = _take_one(value, "name") == name and _take_one(kind, "elem_type") == element
    if not fine or widths != ([-1] if width is None else [-1, width]):
        raise refuse("its input or output is not what the study asks for")


def _read_arrays(tensors: Sequence[Tree]) -> dict[str, npt.NDArray[Any]]:
    found: dict[str, npt.NDArray[Any]] = {}
    for tensor in tensors:
        name, element = _take_one(tensor, "name"), _take_one(tensor, "data_type")
        data, shape = _take_one(tensor, "raw_data", b""), tuple(tensor["dims"])
        if element not in _TYPES:
            raise refuse("it holds arrays of a type that mooring's models do not have")
        if any(not 1 <= side <= _MOST_NUMBERS for side in shape) or math.prod(shape) * np.dtype(
            _TYPES[element]
        ).itemsize != len(data):
            raise refuse("an array in it is not as large as it says")
        if not name or name in found:
            raise refuse("two arrays in it have one name, or one has none")
        array = np.frombuffer(data, dtype=_TYPES[element]).reshape(shape)
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise refuse("it holds numbers that are not finite")
        found[name] = array
    return found


def _infer_step(node: Tree, shapes: dict[str, Shape], numbers: dict[str, npt.NDArray[Any]]) -> int:
    """Work out what one step makes, and return how many multiplications that takes."""
    name = _take_one(node, "op_type")
    if _take_one(node, "domain", "") != "" or name not in _OPERATORS:
        raise refuse("it uses an operator that mooring's models do not use")
    operator = _OPERATORS[name]
    attributes = {_take_one(entry, "name"): _take_one(entry, "i", 0) for entry in node["attribute"]}
    inputs = node["input"]
    if len(inputs) != operator.n_inputs or len(node["output"]) != 1 or any(given not in shapes for given in inputs):
        raise refuse("its steps do not follow from each other")
    strange = len(attributes) != len(node["attribute"]) or bool(set(attributes) - set(operator.settings))
    strange |= any(_take_one(entry, "type") != 2 for entry in node["attribute"])
    strange |= any(attributes.get(key, missing) not in allowed for key, (missing, allowed) in operator.settings.items())
    strange |= name == "ReduceSum" and (inputs[1] not in numbers or numbers[inputs[1]].tolist() != [1])
    if strange:
        raise refuse("a step of it has settings that mooring's models do not have")
    settings = {key: attributes.get(key, missing) for key, (missing, _) in operator.settings.items()}
    made = operator.shape([shapes[given] for given in inputs], settings)
    (output,) = node["output"]
    if made is None or not output or output in shapes:
        raise refuse("its steps do not fit each other")
    if math.prod(made) > _MOST_NUMBERS:
        raise refuse("it would take too much memory to use")
    shapes[output] = made
    return math.prod(made) * (shapes[inputs[0]][1] if name == "MatMul" else 1)


@dataclass(frozen=True)
class _Operator:
    """How many inputs it takes, its settings (what a missing one means, what is allowed), and what it makes."""

    n_inputs: int
    shape: Callable[[Sequence[Shape], dict[str, int]], Shape | None]
    settings: dict[str, tuple[int, Sequence[int]]]


def _broadcast_shape(shapes: Sequence[Shape], _: dict[str, int]) -> Shape | None:
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _matmul_shape(shapes: Sequence[Shape], _: dict[str, int]) -> Shape | None:
    a, b = shapes
    return (a[0], b[1]) if len(a) == len(b) == 2 and a[1] == b[0] else None


def _rows_shape(shapes: Sequence[Shape], _: dict[str, int]) -> Shape | None:
    return shapes[0] if len(shapes[0]) == 2 else None


def _reduce_shape(shapes: Sequence[Shape], settings: dict[str, int]) -> Shape | None:
    a = shapes[0]
    return (a[0], *((1,) if settings["keepdims"] else ()), *a[2:]) if 2 <= len(a) <= 3 else None


def _gather_shape(shapes: Sequence[Shape], settings: dict[str, int]) -> Shape | None:
    a, places = shapes
    axis = settings["axis"]
    fits = axis < len(a) and len(a) + len(places) <= 4
    return (*a[:axis], *places, *a[axis + 1 :]) if fits else None


def _gather_rows_shape(shapes: Sequence[Shape], _: dict[str, int]) -> Shape | None:
    a, places = shapes
    return places if len(a) == len(places) == 2 and a[0] == places[0] else None


_OPERATORS: dict[str, _Operator] = {
    **{
        name: _Operator(1, _broadcast_shape, {})
        for name in ("Abs", "Cos", "Exp", "Identity", "Log", "Neg", "Relu", "Sigmoid", "Sqrt", "Tanh")
    },
    **{name: _Operator(2, _broadcast_shape, {}) for name in ("Add", "Sub", "Mul", "Div", "Greater", "LessOrEqual")},
    "Where": _Operator(3, _broadcast_shape, {}),
    "Cast": _Operator(1, _broadcast_shape, {"to": (-1, tuple(_TYPES))}),
    "MatMul": _Operator(2, _matmul_shape, {}),
    "ReduceSum": _Operator(2, _reduce_shape, {"keepdims": (1, (0, 1))}),
    "Softmax": _Operator(1, _rows_shape, {"axis": (-1, (1,))}),
    "ArgMax": _Operator(1, _reduce_shape, {"axis": (0, (1,)), "keepdims": (1, (0,))}),
    "Gather": _Operator(2, _gather_shape, {"axis": (0, (0, 1))}),
    "GatherElements": _Operator(2, _gather_rows_shape, {"axis": (0, (1,))}),
}
