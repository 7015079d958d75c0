"""A place through which the members of a study exchange files: PLACE/SENDER/RECIPIENT/FILE, in a folder or at a URL.

A sender writes only below the folder with its own name. RECIPIENT is a member's name, or `EVERYBODY`. Whoever keeps the
place is not trusted: files there are signed, or their digest is in the study, and confidential files are sealed. A file is
written under another name and renamed, or put as one object. Different bytes replace it only on request, or if an
interrupted copy left only its beginning. Which of two files is newer makes no difference.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from mooring.atomic_io import explain_os_errors, make_folder, open_atomically, open_plain_file
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.exchange_types import SendableFile
from mooring.protocol.messages.card import MEMBER_NAME, RESERVED_NAME, read_card
from mooring.protocol.messages.public_file import PUBLIC_SUFFIX
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import is_presigned, is_url, local_path, read_scheme, redact_address
from mooring.protocol.transport.inbox import hash_listing, listed_size
from mooring.protocol.transport.object_stores import (
    NOT_GIVEN,
    TOO_LARGE,
    download,
    explain_store_error,
    is_absent,
    open_folder,
)
from mooring.protocol.transport.transfer import Parcel, check_parcel, measure_parcel, open_store, send_parcel

EVERYBODY = RESERVED_NAME
"""The recipient of files that all members may take."""
CARD_SUFFIX, STUDY_NAME = ".card.toml", "study.toml"
WHAT = "the place"
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_MOST_LISTED = 50_000
_DEPTH = 3
_FLAT = frozenset({"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az"})
"""Schemes of stores without folders, which list everything below a prefix without a request for each folder."""
_BLOCK = 2**20
_CARD = SendableFile("card", (), CARD_SUFFIX, is_sealed=True)
_STUDY = SendableFile("study", (), ".toml", is_sealed=True)
_PUBLIC = SendableFile("public file", (), PUBLIC_SUFFIX, is_sealed=True)


@dataclass(frozen=True, order=True)
class PlacedFile:
    """A file at a place, as the place lists it."""

    sender: str
    recipient: str
    name: str
    size: int | None = None
    version: str = ""
    """A text that changes when the file does; empty if the place does not list one."""

    @property
    def path(self) -> str:
        """Its path below the place."""
        return f"{self.sender}/{self.recipient}/{self.name}"


def parse_path(path: str) -> PlacedFile | None:
    """Return the file with this path below a place; None if no member puts a file under such a path."""
    sender, _, rest = path.partition("/")
    recipient, _, name = rest.partition("/")
    is_usual = MEMBER_NAME.fullmatch(sender) and MEMBER_NAME.fullmatch(recipient) and _FILE_NAME.fullmatch(name)
    return PlacedFile(sender, recipient, name) if is_usual else None


class ExchangePlace(Protocol):
    """What a run needs of the place where members exchange files: `Place`, or an engine's connection to one."""

    @property
    def address(self) -> str:
        """A text that differs from place to place."""

    def list_files(self) -> list[PlacedFile]:
        """Return the files that this member may see; raise a `StorageError` if the place cannot be reached."""

    def put(self, source: Path, file: PlacedFile, *, replace: bool = False, public: Collection[str] = ()) -> bool:
        """Put a file, and return whether it was there before; without `replace`, a different file is an `OccupiedError`."""

    def fetch(self, file: PlacedFile, target: Path, *, most_bytes: int) -> None:
        """Copy a file from the place to `target`, which a failure leaves as it was."""


@dataclass(frozen=True)
class Place:
    """A folder, or a URL that fsspec knows, through which files are exchanged."""

    address: str

    def __post_init__(self) -> None:
        if is_presigned(self.address):
            expected, got = "a folder, or a URL of a store such as s3://bucket/study", "a presigned address of one file"
            raise InputError(WHAT, expected=expected, got=got, cure="Give the folder that all members can reach.")

    @property
    def shown(self) -> str:
        """The address without secrets."""
        return redact_address(self.address)

    def list_files(self) -> list[PlacedFile]:
        """Return the files at SENDER/RECIPIENT/FILE, sorted; links, hidden files and unusual names are left out."""
        listed = self._list_store() if is_url(self.address) else self._list_folder()
        files = list[PlacedFile]()
        for file in listed:
            files.append(file)
            if len(files) > _MOST_LISTED:
                reason = f"it has more than {_MOST_LISTED:,} files"
                raise StorageError(WHAT, reason=reason, cure="Use a folder of its own for each study.")
        return sorted(files)

    def _open_folder(self) -> Path:
        root = local_path(self.address)
        if not root.is_dir():  # it is never created here: its drive may not be mounted
            raise StorageError(WHAT, reason="the folder is not there", cure="Check the path, or mount the drive.")
        return root

    def _list_folder(self) -> Iterator[PlacedFile]:
        with explain_os_errors(WHAT):
            root = self._open_folder()
            for sender in _list_folders(os.scandir(root)):
                for recipient in _list_folders(_scan(root / sender)):
                    yield from _list_plain_files(root, sender, recipient)

    def _list_store(self) -> Iterator[PlacedFile]:
        system, root = open_folder(self.address)
        try:
            system.invalidate_cache()
            depth = None if read_scheme(self.address) in _FLAT else _DEPTH
            listed: dict[str, dict[str, Any]] = system.find(root, maxdepth=depth, detail=True)
        except Exception as problem:  # file systems raise errors of their own, which may quote credentials
            if is_absent(problem):  # stores have no empty folders
                return
            raise explain_store_error(problem, what=WHAT, address=self.address, doing="listed") from None
        for path, entry in listed.items():
            file = parse_path(str(path).removeprefix(root).lstrip("/"))
            if file is not None and entry.get("type") != "directory":
                yield PlacedFile(file.sender, file.recipient, file.name, listed_size(entry), hash_listing(entry))

    def put(
        self,
        source: Path,
        file: PlacedFile,
        *,
        replace: bool = False,
        public: Collection[str] = (),
        waits: Sequence[float] | None = None,
    ) -> bool:
        """Put a card, a study, its public file or a signed file; return whether the same bytes were there before.

        Different bytes under this name are an `OccupiedError`, unless `replace` is set or they are the beginning of the
        file, as after an interrupted copy. `public` holds the SHA-256 digests of public files that the study names; these
        files need no signature.
        """
        if parse_path(file.path) is None:
            expected, cure = (
                "SENDER/RECIPIENT/FILE, with names of members",
                "Name the file as the step that wrote it does.",
            )
            raise InputError("the file's name", expected=expected, got="a different path", cure=cure)
        target = f"{self.address.rstrip('/')}/{file.path}"
        with open_plain_file(source, what="the file") as opened:
            parcel = _check(source, opened, file.name, public)
            if not is_url(self.address):
                self._open_folder()
                make_folder(local_path(target).parent, what=WHAT)
            else:
                system, path = open_store(target, allow_http=parcel.form.is_sealed)
                _make_store_folder(system, path)
            if not file.name.endswith(parcel.form.suffix) or _is_elsewhere(self.address, file):
                reason = "at the place, a link or a folder has its name, or its name lacks the suffix of its kind"
                cure = "Remove the link or folder from the place, or name the file as the step that wrote it does."
                raise RefusedError("the file", reason=reason, cure=cure)
            return send_parcel(parcel, target, overwrite=replace, waits=waits).there_before

    def fetch(self, file: PlacedFile, target: Path, *, most_bytes: int) -> None:
        """Copy a file from the place to `target`, which a failure leaves as it was."""
        what = f"the file {file.path}"
        if not is_url(self.address):
            source = local_path(self.address) / file.path
            if parse_path(file.path) is None or _is_elsewhere(self.address, file):
                raise RefusedError(
                    what,
                    reason="it is a link or a folder, or in a linked folder",
                    cure="Ask its sender to put the file itself.",
                )
            with explain_os_errors(what), open_plain_file(source, what=what) as stored:
                _copy_bounded(stored, target, most_bytes, what)
            return
        system, root = open_folder(self.address)
        reason = download(system, f"{root}/{file.path}", target, size=file.size, most_bytes=most_bytes, what=what)
        if reason in (TOO_LARGE, NOT_GIVEN):  # another attempt would not help
            raise RefusedError(what, reason=reason, cure="Ask its sender what it is.")
        if reason is not None:
            raise StorageError(what, reason=reason, cure="Try again later, or ask its sender to put it again.")


def _check(path: Path, opened: BinaryIO, name: str, public: Collection[str]) -> Parcel:
    """Return a file that may be put: a card, a study, its public file, or a signed file that may leave. Refuse others."""
    if name.endswith(CARD_SUFFIX):
        read_card(path)
        return measure_parcel(path, opened, _CARD)
    if name == STUDY_NAME:
        Study.read(path)
        return measure_parcel(path, opened, _STUDY)
    if name.endswith(PUBLIC_SUFFIX):
        parcel = measure_parcel(path, opened, _PUBLIC)
        if parcel.digest not in public:
            reason = "it is not the public file that the study names"
            raise RefusedError("the file", reason=reason, cure="Put the file that 'mooring study project' wrote.")
        return parcel
    return check_parcel(path, opened)


def _is_elsewhere(address: str, file: PlacedFile) -> bool:
    """Return whether a file of a local place is a folder or a link, or in a linked folder; anybody there can make these."""
    if is_url(address):
        return False
    path = local_path(address) / file.path
    return path.is_dir() or any(part.is_symlink() for part in (path, path.parent, path.parent.parent))


def _copy_bounded(stored: BinaryIO, target: Path, most_bytes: int, what: str) -> None:
    left = most_bytes
    with open_atomically(target, mode=0o600, what=what) as copy:
        while block := stored.read(_BLOCK):
            left -= len(block)
            if left < 0:
                raise RefusedError(what, reason=TOO_LARGE, cure="Ask its sender what it is.")
            copy.write(block)


def _list_folders(listing: AbstractContextManager[Iterator[os.DirEntry[str]]]) -> list[str]:
    with listing as entries:
        return [
            entry.name for entry in entries if MEMBER_NAME.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
        ]


def _list_plain_files(root: Path, sender: str, recipient: str) -> Iterator[PlacedFile]:
    with _scan(root / sender / recipient) as entries:
        for entry in entries:
            if _FILE_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                try:
                    facts = entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # removed or renamed meanwhile
                    continue
                version = f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
                yield PlacedFile(sender, recipient, entry.name, facts.st_size, version)


@contextmanager
def _scan(folder: Path) -> Iterator[Iterator[os.DirEntry[str]]]:
    """Open a folder's listing; the listing is empty if another member removed the folder or does not let others read it."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        yield iter(())
        return
    with entries:
        yield entries


def _make_store_folder(system: Any, path: str) -> None:
    """Create the folder of a file, at stores that have folders; putting the file will show any error."""
    try:
        system.makedirs(path.rpartition("/")[0], exist_ok=True)
    except Exception:  # object stores have none, and some refuse to create a bucket that exists
        return
