"""Bundles at a store: listed, downloaded, and not downloaded again where an accepted one is here and unchanged there.

Of every accepted bundle that was downloaded, the analyst's record keeps its SHA-256 and what the listing told of the
object: its size, with its ETag or its time. The copy counts without another download if the listing tells the same and the
copy still has that SHA-256; a listing that tells a size alone is not enough. An object that changed since, or that cannot be
fetched now, does not undo what was accepted: the copy stays, and counts for as long as the listing names the object.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mooring.atomic_io import explain_os_errors, hash_file, make_folder
from mooring.errors import MooringError, StorageError
from mooring.protocol.messages.bundle import SUFFIX
from mooring.protocol.transport.addresses import local_path
from mooring.protocol.transport.object_stores import download, explain_store_error, open_file_system
from mooring.serialization import Record
from mooring.typing import Progress

NO_ROOM = ("the disk is full", "the quota is used up")
_VERSIONS = ("etag", "md5hash", "checksum", "generation")
_TIMES = ("lastmodified", "last_modified", "mtime", "updated", "modified", "created")


@dataclass(frozen=True)
class Copy(Record):
    """An accepted bundle in the analyst's folder."""

    object: str
    """SHA-256 of the object's path at the store."""
    mark: str
    """What the listing told of the object; empty if that was a size at most."""
    digest: str
    """SHA-256 of the bundle."""


@dataclass(frozen=True)
class Candidate:
    """A file that may be a bundle."""

    shown: str
    """Its name, as it lies at its source."""
    found: Path | str
    """Where it is, or why it cannot be looked at."""
    kept: tuple[Path, ...] = ()
    """Accepted before from this very object, and still here."""
    origin: tuple[str, str] | None = None
    """Object and mark, for the record; None for a file that was not downloaded."""


def download_bundles(
    address: str, received: Path, copies: Mapping[str, Copy], *, most_bytes: int, progress: Progress | None = None
) -> Iterator[Candidate]:
    """Every bundle at an address."""
    system, listed = list_objects(address)
    make_folder(received, mode=0o700, what="the work folder")
    for index, entry in enumerate(listed):
        if progress:
            progress(index, len(listed))
        yield _fetch_candidate(system, entry, received, copies, most_bytes)
    if progress and listed:
        progress(len(listed), len(listed))


def list_objects(address: str) -> tuple[Any, list[dict[str, Any]]]:
    """The file system at a URL, and what it lists of every object that may be a bundle, sorted by name."""
    system, root = open_file_system(address)
    try:
        system.invalidate_cache()  # a client that lives long would be told an old listing
        listed = [entry for entry in system.ls(root, detail=True) if _is_bundle(str(entry["name"]))]
    except Exception as problem:  # every file system has errors of its own, and they may quote credentials
        raise explain_store_error(problem, what="the source of bundles", address=address, doing="listed") from None
    return system, sorted(listed, key=lambda entry: str(entry["name"]))


def list_files(folder: str | Path) -> list[Path]:
    """Every file in a folder of this machine that may be a bundle, sorted by name."""
    place, what = local_path(folder), "the folder of bundles"
    with explain_os_errors(what):
        if not place.is_dir():
            raise StorageError(what, reason="it is not there", cure="Check the path.")
        return sorted(path for path in place.iterdir() if _is_bundle(path.name))


def _is_bundle(name: str) -> bool:
    """Whether a file or an object may be one: hidden ones are what systems leave beside copies."""
    return name.endswith(SUFFIX) and not name.rpartition("/")[2].startswith(".")


def hash_name(path: str) -> str:
    """What the record calls an object: SHA-256 of its path at the store."""
    return hashlib.sha256(path.encode("utf-8", "replace")).hexdigest()


def listed_size(entry: Mapping[str, Any]) -> int | None:
    """How large an object is, if the listing says so."""
    size = entry.get("size")
    return size if isinstance(size, int) else None


def _fetch_candidate(
    system: Any, entry: dict[str, Any], received: Path, copies: Mapping[str, Copy], most_bytes: int
) -> Candidate:
    path = str(entry["name"])
    shown, mark = path.rstrip("/").rsplit("/", 1)[-1], _hash_listing(entry)
    identity = hash_name(path)
    mine = {
        name: copy for name, copy in copies.items() if copy.object == identity and _is_intact(received / name, copy)
    }
    current = next((name for name, copy in mine.items() if mark and copy.mark == mark), None)
    kept = tuple(received / name for name in mine if name != current)
    if current is not None:
        return Candidate(shown, received / current, kept, (identity, mark))
    if entry.get("type") == "directory":
        return Candidate(shown, "it is a folder", kept)
    target, number = received / f"{identity[:32]}{SUFFIX}", 1
    while target.name in mine:  # what was accepted is not written over
        number += 1
        target = received / f"{identity[:32]}-{number}{SUFFIX}"
    try:
        reason = download(system, path, target, size=listed_size(entry), most_bytes=most_bytes, what="the work folder")
    except StorageError as problem:
        if problem.reason not in NO_ROOM:
            raise
        reason = f"there is no room for it here: {problem.reason}"  # anybody can fill an inbox; the others still count
    return Candidate(shown, target if reason is None else reason, kept, (identity, mark))


def _hash_listing(entry: Mapping[str, Any]) -> str:
    """What a listing tells of an object that would not stay the same if its content changed; empty if it tells nothing."""
    told = {str(name).lower(): value for name, value in entry.items()}
    for names in (_VERSIONS, _TIMES):
        found = {name: str(told[name]) for name in names if told.get(name) is not None}
        if found:
            return hashlib.sha256(json.dumps([str(told.get("size")), found], sort_keys=True).encode()).hexdigest()
    return ""


def _is_intact(path: Path, copy: Copy) -> bool:
    try:
        return hash_file(path, what="the copy of a bundle") == copy.digest
    except (MooringError, OSError):
        return False
