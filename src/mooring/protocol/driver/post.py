"""Fetching files from a place and putting files there: each version once, and never an older one.

A fetched file is first written to the vault, checked there, and only then moved to where steps look for it. A
file that fails the check, for example because it is half written, is not looked at again until its version changes. Before
a file is put, the journal records its digest. Later passes compare the file with the one at the place, once for each version
that is listed there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mooring.atomic_io import copy_atomically, hash_file, make_folder
from mooring.errors import InputError, MooringError, RefusedError, StorageError
from mooring.protocol.driver.journal import Journal
from mooring.protocol.transport.place import EVERYBODY, ExchangePlace, PlacedFile
from mooring.protocol.transport.transfer import ENVELOPE, OccupiedError
from mooring.protocol.workspace import Outcome

_WHAT = "the file"


class AwayError(Exception):
    """Raised while the place cannot be reached."""

    def __init__(self, problem: StorageError) -> None:
        super().__init__(str(problem))


@dataclass(frozen=True)
class Event:
    """Something that a run did or noticed, for a person to read."""

    kind: Literal["took", "fetched", "put", "refused", "notice"]
    words: str
    outcome: Outcome | None = field(default=None, compare=False)
    """The outcome of a step that ran."""


@dataclass
class Post:
    """A member's exchange of files with a place."""

    place: ExchangePlace | None
    """None to use the member's folder alone."""
    journal: Journal
    tell: Callable[[Event], None]
    files: Mapping[str, PlacedFile] = field(default_factory=dict)
    """The files at the place, by path, as of the last listing."""
    is_away: bool = False
    _looked: dict[str, str] = field(default_factory=dict, repr=False)
    """For each path at the place: the version that need not be looked at again."""
    _noticed: set[str] = field(default_factory=set, repr=False)
    _digests: dict[Path, tuple[tuple[int, ...], str]] = field(default_factory=dict, repr=False)
    """Digests of this member's own files, with size, time and inode of each, so that a large bundle is hashed only once."""

    def hash_own(self, path: Path) -> str:
        """Return the SHA-256 of a file of this member's folder."""
        facts = path.stat()
        known = (facts.st_size, facts.st_mtime_ns, facts.st_ino)
        if self._digests.get(path, ((), ""))[0] != known:
            self._digests[path] = known, hash_file(path, what=_WHAT)
        return self._digests[path][1]

    def list(self) -> str:
        """List the files at the place. Returns why this is impossible, or an empty string."""
        try:
            listed = [] if self.place is None else self.place.list_files()
        except StorageError as problem:
            self.files, self.is_away = {}, True
            return str(problem)
        self.files, self.is_away = {file.path: file for file in listed}, False
        return ""

    def list_open(self, own_name: str, is_wanted: Callable[[PlacedFile], bool]) -> Sequence[PlacedFile]:
        """Return the wanted files that others put for everybody."""
        files = self.files.values()
        return [file for file in files if file.recipient == EVERYBODY and file.sender != own_name and is_wanted(file)]

    def notice(self, words: str) -> None:
        """Report a sentence to the person, unless it was reported before."""
        if words not in self._noticed:
            self._noticed.add(words)
            self.tell(Event("notice", words))

    def take_in(
        self, file: PlacedFile, target: Path, most_bytes: int, check: Callable[[Path], None], *, grows: bool
    ) -> bool:
        """Fetch a file, check it, and move it to where steps look for it; return whether anything changed.

        `check` may replace the fetched file, for example an envelope by its content. A version that a later
        one has replaced is not accepted again. A file that has no later versions (`grows` is False) is fetched once.
        """
        assert self.place is not None
        version, is_here = f"{file.size} {file.version}", target.is_file()
        versions = self.journal.entries.taken.get(file.path, ())
        if self._looked.get(file.path) == version and (is_here or file.path in self._noticed):
            return False
        if not grows and is_here and versions:
            return False
        fetched = self.journal.folder / "fetched"
        try:
            self.place.fetch(file, fetched, most_bytes=most_bytes)
        except StorageError as problem:
            raise AwayError(problem) from None
        except RefusedError as problem:
            return self._set_aside(file, version, problem)
        digest = hash_file(fetched, what=_WHAT)
        if digest in versions[:-1] or (digest in versions and is_here):
            self._looked[file.path] = version
            fetched.unlink()
            if digest in versions[:-1]:
                self.notice(f"The place holds an older copy of {file.path}; the newer copy that is here stays.")
            return False
        try:
            check(fetched)
        except (RefusedError, InputError) as problem:
            return self._set_aside(file, version, problem)
        make_folder(target.parent, mode=0o700, what="the folder")
        copy_atomically(fetched, target, mode=0o600, what=_WHAT)
        self.journal.note_taken(file.path, digest)
        fetched.unlink()
        self._looked[file.path] = version
        self._noticed.discard(file.path)
        self.tell(Event("fetched", f"Fetched {target.name} from {file.sender}."))
        return True

    def _set_aside(self, file: PlacedFile, version: str, problem: MooringError) -> bool:
        """Report once that a version of a file is not accepted, and return False.

        The file may be half written, or come from somebody else.
        """
        (self.journal.folder / "fetched").unlink(missing_ok=True)
        self._looked[file.path] = version
        self._noticed.add(file.path)
        self.tell(Event("refused", f"{file.path} is not accepted: {problem}"))
        return False

    def put(self, source: Path, file: PlacedFile, *, grows: bool, public: Sequence[str] = ()) -> bool:
        """Put a file at the place unless it is there, and return whether it was put.

        An envelope that this vault put there stays, even if a new envelope of the same file has been sealed since.
        """
        if not source.is_file():
            return False
        digest, there = self.hash_own(source), self.files.get(file.path)
        version = "" if there is None else f"{digest} {there.size} {there.version}"
        if version and self._looked.get(file.path) == version:
            return False
        before = self.journal.entries.put.get(file.path, digest)
        if version and not grows and before != digest and file.name.endswith(ENVELOPE.suffix):
            return False
        self.journal.note_put(file.path, digest)
        try:
            was_there = self._put_at_place(source, file, grows, public)
        except OccupiedError:
            raise RefusedError(
                "the place",
                reason=f"it has a different {file.path} under your name",
                cure="If mooring runs with a copy of your vault elsewhere, use only one of them; otherwise somebody else "
                "writes to your folder at the place: tell its keeper. Nothing was replaced.",
            ) from None
        except StorageError as problem:
            raise AwayError(problem) from None
        if was_there:
            self._looked[file.path] = version
        else:
            self.tell(Event("put", f"Put {file.path}."))
        return not was_there

    def _put_at_place(self, source: Path, file: PlacedFile, grows: bool, public: Sequence[str]) -> bool:
        """Put a file, and return whether the place had the same bytes. A file that grows replaces its older version."""
        assert self.place is not None
        try:
            return self.place.put(source, file, public=public)
        except OccupiedError:
            if not grows:
                raise
            return self.place.put(source, file, replace=True, public=public)
