"""Listing and downloading of bundles at a store. An accepted bundle that has not changed is not downloaded again.

For every accepted bundle that was downloaded, the analyst's record keeps the bundle's SHA-256 digest, and a digest of the
metadata that the store listed: size, and ETag or time. The local copy is used without another download if the metadata are
unchanged and the copy still has the bundle's digest; an unchanged size alone is not enough. If the object at the store has
changed, or cannot be downloaded now, the bundle stays accepted: its copy is kept and used as long as the store lists the
object.
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
from mooring.protocol.transport.addresses import is_url, local_path
from mooring.protocol.transport.object_stores import Part, download, explain_store_error, open_file_system
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
    """Digest of the object's listed metadata; empty if at most a size was listed."""
    digest: str
    """SHA-256 of the bundle."""


@dataclass(frozen=True)
class Candidate:
    """A file that may be a bundle."""

    shown: str
    """The file's name at the source."""
    path_or_reason: Path | str
    """The file's local path, or the reason why it cannot be read."""
    kept: tuple[Path, ...] = ()
    """Other local copies of this object that were accepted before."""
    origin: tuple[str, str] | None = None
    """`Copy.object` and `Copy.mark` of a file at a store; None for a file on this machine and for a folder."""


def download_bundles(
    address: str,
    received: Path,
    copies: Mapping[str, Copy],
    *,
    most_bytes: int,
    part: Part | None = None,
    progress: Progress | None = None,
) -> Iterator[Candidate]:
    """Yield a candidate for each bundle at an address, or for `part` of each; `copies` describes those in `received`."""
    system, listed = list_objects(address)
    make_folder(received, mode=0o700, what="the work folder")
    for index, entry in enumerate(listed):
        if progress:
            progress(index, len(listed))
        yield _fetch_candidate(system, entry, received, copies, most_bytes, part)
    if progress and listed:
        progress(len(listed), len(listed))


def fetch_files(source: str | Path, suffix: str, folder: Path, *, most_bytes: int) -> list[Path]:
    """Return the files with a suffix at a source, sorted by name; those at a URL are downloaded to `folder`.

    Files at a URL that are too large, or cannot be downloaded, are left out.
    """
    if not is_url(source):
        return list_files(source, suffix)
    system, listed = list_objects(str(source), suffix)
    paths = list[Path]()
    for entry in listed:
        target = folder / f"{hash_name(str(entry['name']))[:32]}{suffix}"
        size = listed_size(entry)
        if download(system, str(entry["name"]), target, size=size, most_bytes=most_bytes, what="the folder") is None:
            paths.append(target)
    return paths


def list_versions(source: str | Path) -> list[tuple[str, str]]:
    """Return each bundle's name and a mark that changes with its content; the mark is empty if the store lists none."""
    if is_url(source):
        return [(str(entry["name"]), hash_listing(entry)) for entry in list_objects(str(source))[1]]
    files = list_files(source, SUFFIX)
    with explain_os_errors("the folder of bundles"):
        return [(path.name, f"{(facts := path.stat()).st_size} {facts.st_mtime_ns}") for path in files]


def list_objects(address: str, suffix: str = SUFFIX) -> tuple[Any, list[dict[str, Any]]]:
    """Return the file system at a URL, and the listed objects whose names end in a suffix, sorted by name."""
    system, root = open_file_system(address)
    try:
        system.invalidate_cache()  # a long-lived client may have cached an old listing
        listed = [entry for entry in system.ls(root, detail=True) if _is_wanted(str(entry["name"]), suffix)]
    except Exception as problem:  # file systems raise errors of their own, which may quote credentials
        raise explain_store_error(problem, what="the source of bundles", address=address, doing="listed") from None
    return system, sorted(listed, key=lambda entry: str(entry["name"]))


def list_files(folder: str | Path, suffix: str = SUFFIX) -> list[Path]:
    """Return the paths in a local folder that end in a suffix, by default that of bundles, sorted by name."""
    place, what = local_path(folder), "the folder of bundles"
    with explain_os_errors(what):
        if not place.is_dir():
            raise StorageError(what, reason="it does not exist", cure="Check the path.")
        return sorted(path for path in place.iterdir() if _is_wanted(path.name, suffix))


def _is_wanted(name: str, suffix: str) -> bool:
    """Return whether a file has a suffix and is not hidden: operating systems leave hidden files beside copies."""
    return name.endswith(suffix) and not name.rpartition("/")[2].startswith(".")


def hash_name(path: str) -> str:
    """Return the identifier of an object in the record, the SHA-256 digest of its path at the store."""
    return hashlib.sha256(path.encode("utf-8", "replace")).hexdigest()


def listed_size(entry: Mapping[str, Any]) -> int | None:
    """Return the listed size of an object; None if no size is listed."""
    size = entry.get("size")
    return size if isinstance(size, int) else None


def _fetch_candidate(
    system: Any,
    entry: dict[str, Any],
    received: Path,
    copies: Mapping[str, Copy],
    most_bytes: int,
    part: Part | None,
) -> Candidate:
    path = str(entry["name"])
    shown, mark = path.rstrip("/").rsplit("/", 1)[-1], hash_listing(entry)
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
    while target.name in mine:  # accepted copies are not overwritten
        number += 1
        target = received / f"{identity[:32]}-{number}{SUFFIX}"
    try:
        size, what = listed_size(entry), "the work folder"
        reason = download(system, path, target, size=size, most_bytes=most_bytes, what=what, part=part)
    except StorageError as problem:
        if problem.reason not in NO_ROOM:
            raise
        reason = f"there is no room for it here: {problem.reason}"  # a full inbox must not stop the other bundles
    return Candidate(shown, target if reason is None else reason, kept, (identity, mark))


def hash_listing(entry: Mapping[str, Any]) -> str:
    """Return a digest of the listed metadata that change with an object's content; empty if there are none."""
    listed = {str(name).lower(): value for name, value in entry.items()}
    for names in (_VERSIONS, _TIMES):
        marks = {name: str(listed[name]) for name in names if listed.get(name) is not None}
        if marks:
            return hashlib.sha256(json.dumps([str(listed.get("size")), marks], sort_keys=True).encode()).hexdigest()
    return ""


def _is_intact(path: Path, copy: Copy) -> bool:
    try:
        return hash_file(path, what="the copy of a bundle") == copy.digest
    except (MooringError, OSError):
        return False
