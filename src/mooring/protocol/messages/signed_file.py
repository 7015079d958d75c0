"""Arrays in signed files: the safetensors layout, with bounds on all that is read and a single encoding of each content.

A file is eight bytes of header length, a JSON header, and the arrays one after the other. Readers know beforehand which
arrays, dtypes and shapes to expect. They compute the expected header from these and from the metadata that they read, and
refuse a header that differs by one byte. So there is no room for duplicate keys, gaps, overlaps or trailing bytes.

A signed file's metadata are a manifest and its Ed25519 signature. The manifest says what the file holds, who signed it and
for which study, and gives the SHA-256 of the arrays. So no bit of the file can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import open_atomically, open_plain_file
from mooring.errors import RefusedError
from mooring.protocol.crypto.keys import SigningKey, verify

FORMAT = 1
MOST_HEADER_BYTES = 2**16
Fields = Mapping[str, str | int]
_SIGNATURE_BYTES = 64
_DTYPES: dict[str, str] = {"F32": "<f4", "F64": "<f8", "I32": "<i4", "U8": "|u1"}
_DTYPE_NAMES = {dtype[1:]: name for name, dtype in _DTYPES.items()}
_ASK_AGAIN = "Ask its sender to send it again."


class TensorSpec(NamedTuple):
    """What an array must be: "F32", "F64", "I32" or "U8", and its shape."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def n_bytes(self) -> int:
        """The size of the array in the file."""
        return math.prod(self.shape) * np.dtype(_DTYPES[self.dtype]).itemsize

    def encode(self, array: npt.NDArray[Any]) -> bytes:
        """Return the bytes of an array in the file."""
        return np.ascontiguousarray(array, dtype=_DTYPES[self.dtype]).reshape(self.shape).tobytes()

    def decode(self, data: bytes | memoryview) -> npt.NDArray[Any]:
        """Return an array from its bytes in the file, as a copy in the machine's byte order."""
        return np.frombuffer(data, dtype=_DTYPES[self.dtype]).reshape(self.shape).astype(_DTYPES[self.dtype][1:])


Tensors = Mapping[str, TensorSpec]


class Header(NamedTuple):
    """The header of a file: its metadata, where the arrays begin, the length of the file, and the header's bytes."""

    metadata: dict[str, str]
    data_start: int
    size: int
    raw: bytes


@dataclass(frozen=True, eq=False)
class SignedFile:
    """A signed file that was verified."""

    fields: dict[str, str | int]
    """The fields of the file's manifest, except its kind and format."""
    arrays: dict[str, npt.NDArray[Any]]
    digest: str
    """SHA-256 of the whole file."""


def encode_header(tensors: Tensors, metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a file with these arrays, up to the first array."""
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    position = 0
    for name, spec in tensors.items():
        end = position + spec.n_bytes
        entries[name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def encode_file(arrays: Mapping[str, npt.NDArray[Any]], tensors: Tensors, metadata: Mapping[str, str]) -> bytes:
    """Return the bytes of a whole small file; `tensors` holds type and shape of each array, in the order of the file."""
    return encode_header(tensors, metadata) + b"".join(spec.encode(arrays[name]) for name, spec in tensors.items())


def read_header(file: BinaryIO, *, what: str) -> Header:
    """Read a header without trusting the length that it states; refuse a file without a readable header."""
    size = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= min(MOST_HEADER_BYTES, size - 8):
        raise _refuse(what, "it is not a file of mooring, or it is cut short")
    text = file.read(length)
    try:
        metadata = json.loads(text)["__metadata__"]
        is_plain = isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    except (ValueError, KeyError, TypeError, RecursionError):
        is_plain = False
    if not is_plain:
        raise _refuse(what, "its header cannot be read")
    return Header(metadata, 8 + length, size, first + text)


def require_header(header: Header, tensors: Tensors, *, what: str) -> None:
    """Refuse a file that is not, byte for byte, one that holds exactly these arrays; `what` names it in errors."""
    if any(side < 0 for spec in tensors.values() for side in spec.shape):
        raise _refuse(what, "it states a negative size")
    if header.raw != encode_header(tensors, header.metadata):
        raise _refuse(what, "its arrays do not have the names, types and shapes that the study asks for")
    if header.size != header.data_start + sum(spec.n_bytes for spec in tensors.values()):
        raise _refuse(what, "its length is not what its header says")


def encode_signed_header(kind: str, fields: Fields, tensors: Tensors, data_digest: str, signer: SigningKey) -> bytes:
    """Return the header of a signed file; `data_digest` is the SHA-256 of the arrays' bytes."""
    manifest = _encode_manifest(kind, {**fields, "signer": signer.public, "data": data_digest})
    signature = signer.sign(_signed_message(kind, manifest)).hex()
    return encode_header(tensors, {"manifest": manifest, "signature": signature})


def measure_signed_header(kind: str, fields: Fields, tensors: Tensors) -> int:
    """Return the length of a signed file's header, before digest and signature are known."""
    manifest = _encode_manifest(kind, {**fields, "signer": "0" * 64, "data": "0" * 64})
    return len(encode_header(tensors, {"manifest": manifest, "signature": "0" * 2 * _SIGNATURE_BYTES}))


def write_signed(
    path: Path,
    *,
    kind: str,
    fields: Fields,
    arrays: Mapping[str, npt.NDArray[Any]],
    signer: SigningKey,
    mode: int = 0o644,
) -> str:
    """Write a small signed file, and return the SHA-256 of the file.

    `fields` are the fields of the manifest. A signature for one `kind` is not valid for another. Arrays are of float32,
    float64, int32 or uint8.
    """
    tensors = {name: _describe_array(array) for name, array in arrays.items()}
    data = b"".join(spec.encode(arrays[name]) for name, spec in tensors.items())
    header = encode_signed_header(kind, fields, tensors, hashlib.sha256(data).hexdigest(), signer)
    with open_atomically(path, mode=mode, what=f"the {kind} file") as file:
        file.writelines((header, data))
    return hashlib.sha256(header + data).hexdigest()


def read_signed(
    path: Path, *, kind: str, signed_by: Set[str], fields: Collection[str], tensors: Callable[[Fields], Tensors]
) -> SignedFile:
    """Read a small signed file, or refuse it with a reason.

    The signer must be one of the public keys `signed_by`; `fields` is as for `read_signed_header`. `tensors` returns types
    and shapes of the expected arrays for the verified fields. Memory is allocated only once the file's length is known to
    match.
    """
    what = f"the {kind} file"
    with open_plain_file(path, what=what) as file:
        header, fields_read = read_signed_header(file, kind=kind, fields=fields, what=what)
        if fields_read["signer"] not in signed_by:
            raise _refuse(what, "it is signed by somebody else, not by the member that the study names")
        specs = tensors(fields_read)
        require_header(header, specs, what=what)
        data = file.read(header.size - header.data_start)
    if hashlib.sha256(data).hexdigest() != fields_read["data"]:
        raise _refuse(what, "its arrays are not those that were signed")
    arrays = decode_arrays(data, specs, what=what)
    return SignedFile(fields_read, arrays, hashlib.sha256(header.raw + data).hexdigest())


def decode_arrays(data: bytes, tensors: Tensors, *, what: str) -> dict[str, npt.NDArray[Any]]:
    """Return the arrays of a file, given the bytes that follow its header; numbers that are not finite are refused."""
    arrays, position, view = {}, 0, memoryview(data)
    for name, spec in tensors.items():
        arrays[name] = spec.decode(view[position : position + spec.n_bytes])
        position += spec.n_bytes
        if not np.isfinite(arrays[name]).all():
            raise _refuse(what, "it holds numbers that are not finite")
    return arrays


def read_signed_header(
    file: BinaryIO, *, kind: str, fields: Collection[str], what: str
) -> tuple[Header, dict[str, str | int]]:
    """Read the header at the beginning of a file, and check the form of its manifest and its signature.

    Besides kind, format, signer and the digest of the arrays, the manifest must have exactly `fields`. Arrays are not read.
    """
    header = read_header(file, what=what)
    if list(header.metadata) != ["manifest", "signature"]:  # in this order, so that a signature fits one file only
        raise _refuse(what, "it has no manifest and signature, or more than these")
    manifest = header.metadata["manifest"]
    try:
        plain = json.loads(manifest)
        signature = bytes.fromhex(header.metadata["signature"])
    except (ValueError, RecursionError):
        raise _refuse(what, "its manifest cannot be read") from None
    if not isinstance(plain, dict) or set(plain) != {"kind", "format", "signer", "data", *fields}:
        raise _refuse(what, "its manifest does not have exactly the expected fields")
    if any(not isinstance(value, str | int) or isinstance(value, bool) for value in plain.values()):
        raise _refuse(what, "its manifest holds values other than text and whole numbers")
    if plain["kind"] != kind or plain["format"] != FORMAT:
        raise RefusedError(what, reason="it is of another kind or format", cure="Use the same version of mooring.")
    rest = {name: value for name, value in plain.items() if name not in ("kind", "format")}
    if _encode_manifest(kind, rest) != manifest or header.metadata["signature"] != signature.hex():
        raise _refuse(what, "its manifest is not in the one form allowed")
    if not (isinstance(plain["signer"], str) and verify(plain["signer"], signature, _signed_message(kind, manifest))):
        raise _refuse(what, "its signature does not match")
    return header, rest


def _refuse(what: str, reason: str) -> RefusedError:
    return RefusedError(what, reason=reason, cure=_ASK_AGAIN)


def _describe_array(array: npt.NDArray[Any]) -> TensorSpec:
    if not isinstance(array, np.ndarray) or array.dtype.str[1:] not in _DTYPE_NAMES:
        raise TypeError("only plain float32, float64, int32 and uint8 arrays can be written")
    return TensorSpec(_DTYPE_NAMES[array.dtype.str[1:]], array.shape)


def _encode_manifest(kind: str, fields: Fields) -> str:
    plain = {"kind": kind, "format": FORMAT, **fields}
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _signed_message(kind: str, manifest: str) -> bytes:
    return b"mooring " + kind.encode() + b" signature\n" + manifest.encode()
