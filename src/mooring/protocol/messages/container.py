"""Arrays in a file: the safetensors layout, read with bounds on everything, and one way only to write each content.

A file is eight bytes of header length, a JSON header, and the arrays one after the other. Readers know beforehand which
arrays, dtypes and shapes to expect, and rebuild the header they expect from its metadata: a header that differs by one byte
is refused, so there is no room for duplicate keys, gaps, overlaps or trailing bytes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.errors import RefusedError

MOST_HEADER_BYTES = 2**16
_DTYPES: dict[str, str] = {"F32": "<f4", "F64": "<f8", "U8": "|u1"}
_ASK_AGAIN = "Ask its sender to send it again."


class TensorSpec(NamedTuple):
    """What an array must be: "F32", "F64" or "U8", and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """Its size in the file."""
        return math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize


class Header(NamedTuple):
    """The metadata of a file, where its arrays begin, and how long it is."""

    metadata: dict[str, str]
    data_start: int
    size: int
    raw: bytes


def header_bytes(tensors: Mapping[str, TensorSpec], metadata: Mapping[str, str]) -> bytes:
    """The beginning of a file with these arrays, up to the first of them."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    position = 0
    for name, spec in tensors.items():
        end = position + spec.n_bytes
        entries[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def read_header(file: BinaryIO, *, what: str) -> Header:
    """Read a header without trusting any length it states."""
    size = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
        raise RefusedError(what, reason="it is no mooring file, or it is cut short", cure=_ASK_AGAIN)
    text = file.read(length)
    try:
        entries = json.loads(text)
        metadata = entries["__metadata__"]
        fine = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    except (ValueError, KeyError, TypeError, RecursionError):
        fine = False
    if not fine:
        raise RefusedError(what, reason="its header cannot be read", cure=_ASK_AGAIN)
    return Header(metadata, 8 + length, size, first + text)


def require_header(header: Header, tensors: Mapping[str, TensorSpec], *, what: str) -> None:
    """Refuse a file that is not, byte for byte, one that holds exactly these arrays."""
    if any(side < 0 for spec in tensors.values() for side in spec.shape):
        raise RefusedError(what, reason="it states a negative size", cure=_ASK_AGAIN)
    if header.raw != header_bytes(tensors, header.metadata):
        raise RefusedError(
            what, reason="its arrays are not those, of the type and shape, that the study asks for", cure=_ASK_AGAIN
        )
    if header.size != header.data_start + sum(spec.n_bytes for spec in tensors.values()):
        raise RefusedError(what, reason="its length is not what its header says", cure=_ASK_AGAIN)


def as_stored(array: npt.NDArray[Any], spec: TensorSpec) -> npt.NDArray[Any]:
    """The array as it lies in the file."""
    return np.ascontiguousarray(array, dtype=_DTYPES[spec.dtype]).reshape(spec.shape)


def array_from(data: bytes | memoryview, spec: TensorSpec) -> npt.NDArray[Any]:
    """An array out of the bytes of a file; a copy, in the machine's own byte order."""
    return np.frombuffer(data, dtype=_DTYPES[spec.dtype]).reshape(spec.shape).astype(_DTYPES[spec.dtype][1:])


def pack(
    arrays: Mapping[str, npt.NDArray[Any]], tensors: Mapping[str, TensorSpec], metadata: Mapping[str, str]
) -> bytes:
    """A whole small file, in memory."""
    return header_bytes(tensors, metadata) + b"".join(
        as_stored(arrays[name], spec).tobytes() for name, spec in tensors.items()
    )
