"""Signed files: a manifest that names what is inside, by whom and for which study, and arrays that match it.

The Ed25519 signature covers the manifest; the manifest holds the SHA-256 of the arrays; and the header must be exactly what
manifest and signature make of it. So no bit of the file can change unnoticed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import open_atomically
from mooring.errors import RefusedError, StorageError
from mooring.protocol.crypto.keys import SigningKey, verify
from mooring.protocol.messages.container import (
    Header,
    TensorSpec,
    array_from,
    as_stored,
    header_bytes,
    read_header,
    require_header,
)

FORMAT = 1
Fields = Mapping[str, str | int]
_BLOCK = 2**20
_SIGNATURE_BYTES = 64
_DTYPE_NAMES = {"f4": "F32", "f8": "F64", "u1": "U8"}
_ASK_AGAIN = "Ask its sender to send it again."


@dataclass(frozen=True, eq=False)
class SignedFile:
    """A signed file that was verified.

    Attributes
    ----------
    fields : dict
        What its manifest says.
    arrays : dict of arrays
    digest : str
        SHA-256 of the whole file.
    """

    fields: dict[str, str | int]
    arrays: dict[str, npt.NDArray[Any]]
    digest: str


def signed_header(
    kind: str, fields: Fields, tensors: Mapping[str, TensorSpec], data_digest: str, signer: SigningKey
) -> bytes:
    """The beginning of a signed file whose arrays have this SHA-256."""
    manifest = _manifest(kind, {**fields, "signer": signer.public, "data": data_digest})
    return header_bytes(tensors, {"manifest": manifest, "signature": signer.sign(_message(kind, manifest)).hex()})


def header_length(kind: str, fields: Fields, tensors: Mapping[str, TensorSpec]) -> int:
    """How long the header will be, before digest and signature are known."""
    manifest = _manifest(kind, {**fields, "signer": "0" * 64, "data": "0" * 64})
    return len(header_bytes(tensors, {"manifest": manifest, "signature": "0" * 2 * _SIGNATURE_BYTES}))


def write_signed(
    path: Path,
    *,
    kind: str,
    fields: Fields,
    arrays: Mapping[str, npt.NDArray[Any]],
    signer: SigningKey,
    mode: int = 0o644,
) -> str:
    """Write a small signed file durably, and return the SHA-256 of the whole of it.

    Parameters
    ----------
    path : Path
    kind : str
        What the file is; a signature for one kind is none for another.
    fields : mapping
        What the manifest says besides.
    arrays : mapping of arrays
        float32, float64 or uint8.
    signer : SigningKey
    mode : int
        Permissions.
    """
    tensors = {name: _spec_of(array) for name, array in arrays.items()}
    stored = [as_stored(arrays[name], spec).tobytes() for name, spec in tensors.items()]
    header = signed_header(kind, fields, tensors, hashlib.sha256(b"".join(stored)).hexdigest(), signer)
    with open_atomically(path, mode=mode, what=f"the {kind} file") as file:
        for part in (header, *stored):
            file.write(part)
    return hashlib.sha256(b"".join((header, *stored))).hexdigest()


def read_signed(
    path: Path,
    *,
    kind: str,
    signed_by: str,
    fields: Collection[str],
    tensors: Callable[[Fields], Mapping[str, TensorSpec]],
) -> SignedFile:
    """Read a small signed file, or refuse it with a reason.

    Parameters
    ----------
    path : Path
    kind : str
    signed_by : str
        The only public key whose signature counts.
    fields : collection of str
        Exactly what the manifest must say.
    tensors : callable
        From the (verified) fields, exactly which arrays there must be. Memory is taken only after the file's length has
        been found to match.
    """
    what = f"the {kind} file"
    with opened(path, what=what) as file:
        header, found = verified_header(file, kind=kind, fields=fields, what=what)
        if found["signer"] != signed_by:
            raise RefusedError(what, reason="it is signed by somebody else", cure=_ASK_AGAIN)
        specs = tensors(found)
        require_header(header, specs, what=what)
        data = file.read(header.size - header.data_start)
    if hashlib.sha256(data).hexdigest() != found["data"]:
        raise RefusedError(what, reason="its arrays are not those that were signed", cure=_ASK_AGAIN)
    arrays, position = {}, 0
    for name, spec in specs.items():
        arrays[name] = array_from(data[position : position + spec.n_bytes], spec)
        position += spec.n_bytes
        if spec.dtype != "U8" and not np.isfinite(arrays[name]).all():
            raise RefusedError(what, reason="it holds numbers that are not finite", cure=_ASK_AGAIN)
    return SignedFile(found, arrays, hashlib.sha256(header.raw + data).hexdigest())


def verified_header(
    file: BinaryIO, *, kind: str, fields: Collection[str], what: str
) -> tuple[Header, dict[str, str | int]]:
    """Read a header, check its manifest's form and that whoever it names did sign it; arrays are not touched."""
    header = read_header(file, what=what)
    if list(header.metadata) != ["manifest", "signature"]:  # in this order: else one signature would have two files
        raise RefusedError(what, reason="it has no manifest and signature, or more than these", cure=_ASK_AGAIN)
    manifest = header.metadata["manifest"]
    try:
        found = json.loads(manifest)
        signature = bytes.fromhex(header.metadata["signature"])
    except (ValueError, RecursionError):
        raise RefusedError(what, reason="its manifest cannot be read", cure=_ASK_AGAIN) from None
    expected = {"kind", "format", "signer", "data", *fields}
    if not isinstance(found, dict) or set(found) != expected:
        raise RefusedError(what, reason="its manifest does not say what it must, and nothing else", cure=_ASK_AGAIN)
    if any(not isinstance(value, str | int) or isinstance(value, bool) for value in found.values()):
        raise RefusedError(what, reason="its manifest holds other things than words and whole numbers", cure=_ASK_AGAIN)
    if found["kind"] != kind or found["format"] != FORMAT:
        raise RefusedError(what, reason="it is of another kind or format", cure="Use the same version of mooring.")
    rest = {name: value for name, value in found.items() if name not in ("kind", "format")}
    if _manifest(kind, rest) != manifest or header.metadata["signature"] != signature.hex():
        raise RefusedError(what, reason="its manifest is not in the one form allowed", cure=_ASK_AGAIN)
    if not (isinstance(found["signer"], str) and verify(found["signer"], signature, _message(kind, manifest))):
        raise RefusedError(what, reason="its signature does not match", cure=_ASK_AGAIN)
    return header, rest


def opened(path: Path, *, what: str) -> BinaryIO:
    """Open a file that somebody else may have named: no folder, no pipe, no device."""
    try:
        if not path.is_file():
            raise StorageError(what, reason="it is not there, or it is no plain file", cure="Check the path.")
        return path.open("rb")
    except OSError:
        raise StorageError(what, reason="it cannot be read", cure="Check its permissions.") from None


def digest_of(path: Path, *, what: str) -> str:
    """SHA-256 of a file."""
    whole = hashlib.sha256()
    with opened(path, what=what) as file:
        while block := file.read(_BLOCK):
            whole.update(block)
    return whole.hexdigest()


def _spec_of(array: npt.NDArray[Any]) -> TensorSpec:
    if not isinstance(array, np.ndarray) or array.dtype.str[1:] not in _DTYPE_NAMES:
        raise TypeError("only plain float32, float64 and uint8 arrays travel")
    return TensorSpec(_DTYPE_NAMES[array.dtype.str[1:]], array.shape)


def _manifest(kind: str, fields: Fields) -> str:
    return json.dumps(
        {"kind": kind, "format": FORMAT, **fields}, sort_keys=True, separators=(",", ":"), ensure_ascii=True
    )


def _message(kind: str, manifest: str) -> bytes:
    return b"mooring " + kind.encode() + b" signature\n" + manifest.encode()
