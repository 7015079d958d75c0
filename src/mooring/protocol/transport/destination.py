"""Where exactly a file goes at a store: under which name, over which connection, and over nobody else's file."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from mooring.errors import InputError, RefusedError
from mooring.protocol.messages import anchor as anchor_file
from mooring.protocol.messages import bundle
from mooring.protocol.transport.addresses import is_this_machine, read_scheme, refuse_unprotected
from mooring.protocol.transport.object_stores import WAITS, TransientError, open_file_system, retry
from mooring.protocol.transport.store_errors import is_absent, is_transient

SUFFIXES = {bundle.KIND: bundle.SUFFIX, anchor_file.KIND: anchor_file.SUFFIX}
MD5 = re.compile(r"[0-9a-f]{32}")
_OPEN = ("ftp", "hdfs", "arrow_hdfs", "webhdfs", "jupyter", "jlab", "smb")
_BLOCK = 2**20


def open_store(address: str, *, allow_http: bool) -> tuple[Any, str]:
    """What fsspec makes of an address that something is sent to; one that others could read on the way is refused."""
    if "::" in address:
        raise RefusedError(
            "the address",
            reason="it is made of several with ::, and nobody can say over which connections a file would go",
            cure="Give the address of the store alone.",
        )
    if read_scheme(address) in _OPEN and not allow_http:
        raise refuse_unprotected(
            "the bundle", f"the address begins with {read_scheme(address)}://, which protects nothing"
        )
    system, root = open_file_system(address)
    endpoint = "" if allow_http else _endpoint(system)
    if endpoint.lower().startswith("http://") and not is_this_machine(urlsplit(endpoint).hostname or ""):
        raise refuse_unprotected(
            "the bundle", "the store's own address (AWS_ENDPOINT_URL, or a profile's) begins with http://"
        )
    return system, root


def _endpoint(system: Any) -> str:
    """The address that an S3 client talks to; empty where there is none, or none yet."""
    try:
        return str(system.s3.meta.endpoint_url)
    except Exception:  # other kinds of stores; what is wrong with credentials is said when they are used
        return ""


def is_local(system: Any) -> bool:
    """Whether an address leads to this machine's own disks, as local:// does."""
    from fsspec.implementations.local import LocalFileSystem

    return isinstance(system, LocalFileSystem)


def choose_file_name(path: Path, kind: str) -> str:
    """The name that a file gets in a folder: its own, which ends as its kind does."""
    return path.name if path.name.endswith(SUFFIXES[kind]) else f"{path.name}{SUFFIXES[kind]}"


def is_file_name(address: str, kind: str) -> bool:
    """Whether an address ends in the name of a file of this kind; all others are folders, there or not yet."""
    return address.endswith(SUFFIXES[kind]) and address.rsplit("/", 1)[-1] != SUFFIXES[kind]


def refuse_overwrite() -> InputError:
    """The refusal to write over a file."""
    return InputError(
        "address",
        expected="a place where no other file is",
        got="one with another file of this name",
        cure="It may be another one's: give the file's name in --to as well, as FOLDER/NAME.bundle.",
    )


def is_stored(system: Any, target: str, file: BinaryIO, *, size: int, checksum: str) -> bool:
    """Whether the file is at the store already; another one in its place is an error.

    Where the store does not say, as to somebody who may write but not read, and where there is but a beginning of the file,
    as an upload leaves that broke off, the answer is no.

    Parameters
    ----------
    system, target
        The file system, and the path in it.
    file : binary file
        What is to be sent.
    size : int
    checksum : str
        MD5 of the file.
    """

    def look() -> tuple[int, str]:
        try:
            system.invalidate_cache()
            found = system.info(target)
            return int(found["size"]), str(found.get("ETag", "")).strip('"').lower()
        except Exception as problem:
            raise (TransientError("") if is_transient(problem) else LookupError) from None

    try:
        (there, tag), _ = retry(look, waits=WAITS[:1])
    except (TransientError, LookupError):
        return False
    if there > size:
        raise refuse_overwrite()
    if there == size and tag == checksum:
        return True
    try:
        same = _begins_with(system, target, file)
    except Exception as problem:
        if is_absent(problem):  # removed meanwhile
            return False
        same = there == size and not MD5.fullmatch(tag)  # it cannot be read: what the listing told must do
        there = -1
    if not same:
        raise refuse_overwrite()
    return there == size


def _begins_with(system: Any, target: str, file: BinaryIO) -> bool:
    """Whether what is at the store is the file, or a beginning of it."""
    file.seek(0)
    ours, theirs = hashlib.sha256(), hashlib.sha256()
    with system.open(target, "rb") as stream:
        while block := stream.read(_BLOCK):
            theirs.update(block)
            ours.update(file.read(len(block)))
    return ours.digest() == theirs.digest()
