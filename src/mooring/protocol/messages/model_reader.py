"""Reading an ONNX file with bounds on everything, before any library is given it.

A protobuf library makes an object of every two bytes that say so, and sixty megabytes of them fill a memory. This reads the
few kinds of entries that mooring's own models consist of, counts them, and refuses all others: strings of attributes, nested
graphs, functions, external data, sparse tensors, training steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mooring.errors import RefusedError

_MOST_ENTRIES = 40_000
_LONGEST_WORD = 256
_VARINT, _BYTES = 0, 2

Tree = dict[str, list[Any]]


@dataclass(frozen=True)
class _Entry:
    """A field: its name, what it holds ("whole", "word", "bytes", or a message's fields), how often at most."""

    name: str
    holds: str | Mapping[int, _Entry]
    most: int = 1


_OPSET = {1: _Entry("domain", "word"), 2: _Entry("version", "whole")}
_NOTE = {1: _Entry("key", "word"), 2: _Entry("value", "word")}
_TENSOR = {
    1: _Entry("dims", "whole", 8),
    2: _Entry("data_type", "whole"),
    8: _Entry("name", "word"),
    9: _Entry("raw_data", "bytes"),
}
_DIMENSION = {1: _Entry("dim_value", "whole"), 2: _Entry("dim_param", "word")}
_SHAPE = {1: _Entry("dim", _DIMENSION, 8)}
_TENSOR_TYPE = {1: _Entry("elem_type", "whole"), 2: _Entry("shape", _SHAPE)}
_TYPE = {1: _Entry("tensor_type", _TENSOR_TYPE)}
_VALUE = {1: _Entry("name", "word"), 2: _Entry("type", _TYPE), 3: _Entry("doc_string", "word")}
_ATTRIBUTE = {1: _Entry("name", "word"), 3: _Entry("i", "whole"), 20: _Entry("type", "whole")}
_NODE = {
    1: _Entry("input", "word", 8),
    2: _Entry("output", "word", 8),
    3: _Entry("name", "word"),
    4: _Entry("op_type", "word"),
    5: _Entry("attribute", _ATTRIBUTE, 8),
    6: _Entry("doc_string", "word"),
    7: _Entry("domain", "word"),
}
_GRAPH = {
    1: _Entry("node", _NODE, 1000),
    2: _Entry("name", "word"),
    5: _Entry("initializer", _TENSOR, 200),
    10: _Entry("doc_string", "word"),
    11: _Entry("input", _VALUE),
    12: _Entry("output", _VALUE, 2),
}
_MODEL = {
    1: _Entry("ir_version", "whole"),
    2: _Entry("producer_name", "word"),
    3: _Entry("producer_version", "word"),
    4: _Entry("domain", "word"),
    5: _Entry("model_version", "whole"),
    6: _Entry("doc_string", "word"),
    7: _Entry("graph", _GRAPH),
    8: _Entry("opset_import", _OPSET),
    14: _Entry("metadata_props", _NOTE, 8),
}


def read_model(data: bytes) -> Tree:
    """Take an ONNX file apart into names and plain values; every entry that mooring's models do not have is refused."""
    return _Reader(memoryview(data)).message(0, len(data), _MODEL)


def refuse(reason: str) -> RefusedError:
    """The error that a model is refused with."""
    return RefusedError("the model", reason=reason, cure="Ask the analyst for it again.")


@dataclass
class _Reader:
    data: memoryview
    entries: int = field(default=0)

    def message(self, position: int, end: int, fields: Mapping[int, _Entry]) -> Tree:
        found: Tree = {entry.name: [] for entry in fields.values()}
        while position < end:
            self.entries += 1
            if self.entries > _MOST_ENTRIES:
                raise refuse("it has more parts than any model of mooring's")
            tag, position = self._varint(position, end)
            entry = fields.get(tag >> 3)
            if entry is None:
                raise refuse("it has parts that mooring's models do not have")
            value, position = self._value(position, end, tag & 7, entry)
            found[entry.name].append(value)
            if len(found[entry.name]) > entry.most:
                raise refuse("it has more parts of a kind than mooring's models have")
        return found

    def _value(self, position: int, end: int, wire: int, entry: _Entry) -> tuple[Any, int]:
        if entry.holds == "whole":
            if wire != _VARINT:
                raise refuse("its parts are not laid out as mooring's are")
            return self._varint(position, end)
        if wire != _BYTES:
            raise refuse("its parts are not laid out as mooring's are")
        length, position = self._varint(position, end)
        if length > end - position:
            raise refuse("it is cut short")
        after = position + length
        if isinstance(entry.holds, Mapping):
            return self.message(position, after, entry.holds), after
        if entry.holds == "bytes":
            return self.data[position:after], after
        if length > _LONGEST_WORD:
            raise refuse("it has names or notes that are too long")
        try:
            return bytes(self.data[position:after]).decode("utf-8"), after
        except UnicodeDecodeError:
            raise refuse("it has names that are no text") from None

    def _varint(self, position: int, end: int) -> tuple[int, int]:
        value = 0
        for k in range(9):  # 63 bits: no count or size is negative
            if position >= end:
                raise refuse("it is cut short, or no model")
            byte = self.data[position]
            position += 1
            value |= (byte & 0x7F) << (7 * k)
            if byte < 0x80:
                return value, position
        raise refuse("it has numbers that no size can be")
