"""Transfer of files in pieces. Each end holds a few megabytes in memory and checks the SHA-256 digest at the end.

A site sends requests and the server answers, with text, integers and bytes only. A ticket, which the server gives to one
site with a task, identifies the file of a request, so that no site can read or write files of another.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from mooring.atomic_io import explain_os_errors, hash_file, make_folder, open_atomically, open_plain_file, sync_folder
from mooring.errors import InputError, RefusedError, StorageError

PIECE_SIZE = 2**22
"""Number of bytes that are transferred at a time, at most."""
Value = str | int | bytes
Message = Mapping[str, Value]
Ask = Callable[[Message], Message]
TOPIC = "mooring"
"""FLARE topic of the sites' requests."""
_SEND_AGAIN = "Submit the job again. The same bytes are sent again, and accepted files are kept."


def plain_values(content: Mapping[str, object]) -> dict[str, Value]:
    """Return the entries of a message that are text, integers or bytes."""
    return {name: value for name, value in content.items() if isinstance(value, str | int | bytes)}


def send_file(
    path: Path,
    ticket: str,
    ask: Ask,
    *,
    progress: Callable[[int, int], None] | None = None,
    piece_size: int = PIECE_SIZE,
) -> str:
    """Send a file to the issuer of the ticket, unless it is there already, and return its SHA-256 digest."""
    digest, size = hash_file(path, what="the file"), path.stat().st_size
    if _answer(ask, {"do": "offer", "ticket": ticket, "size": size, "digest": digest}).get("have"):
        return digest
    sent = 0
    with open_plain_file(path, what="the file") as file:
        while piece := file.read(piece_size):
            _answer(ask, {"do": "put", "ticket": ticket, "offset": sent, "piece": piece})
            sent += len(piece)
            if progress:
                progress(sent, size)
    _answer(ask, {"do": "done", "ticket": ticket})
    return digest


def fetch_file(
    name: str,
    path: Path,
    ticket: str,
    ask: Ask,
    *,
    size: int,
    digest: str,
    most: int,
    what: str = "the file",
    piece_size: int = PIECE_SIZE,
) -> None:
    """Fetch a file whose size and SHA-256 digest a task announced; a file larger than `most` bytes is refused."""
    if not 0 < size <= most:
        raise RefusedError(what, reason="it is larger than any file of this study can be", cure="Ask the analyst.")
    whole, came = hashlib.sha256(), 0
    with open_atomically(path, mode=0o600, what=what) as file:
        while came < size:
            answer = _answer(ask, {"do": "get", "ticket": ticket, "file": name, "offset": came})
            piece = answer.get("piece")
            if not isinstance(piece, bytes) or not 0 < len(piece) <= min(piece_size, size - came):
                raise StorageError(what, reason="a piece of it did not arrive", cure=_SEND_AGAIN)
            whole.update(piece)
            file.write(piece)
            came += len(piece)
        if whole.hexdigest() != digest:
            raise StorageError(what, reason="it differs from the announced file", cure=_SEND_AGAIN)


def _answer(ask: Ask, request: Message) -> Message:
    answer = ask(request)
    if answer.get("no"):
        raise StorageError("the server", reason=f"it refused the request: {str(answer['no'])[:200]}", cure=_SEND_AGAIN)
    return answer


@dataclass(eq=False)
class IncomingFile:
    """A file that one site may send, once."""

    path: Path
    """The place of the complete file; an existing file there is kept."""
    most: int
    accept: Callable[[Path], None]
    """Checks the complete file before it is moved to its place; may raise a `RefusedError`."""
    piece_size: int = PIECE_SIZE
    _size: int = -1
    _digest: str = ""
    _came: int = 0
    _held: str = ""
    _whole: hashlib._Hash = field(default_factory=hashlib.sha256, repr=False)

    @property
    def partial(self) -> Path:
        """The path of the incomplete file."""
        return self.path.with_name(f".{self.path.name}.arriving")

    def offer(self, size: object, digest: object) -> Message:
        """Answer a site that announces a file by its size and digest."""
        if not isinstance(size, int) or not isinstance(digest, str) or not 0 < size <= self.most:
            raise RefusedError("the file", reason="it is larger than any file of this study can be", cure=_SEND_AGAIN)
        if self.path.exists():
            self._held = self._held or hash_file(
                self.path, what="the file"
            )  # computed once, because it takes a while for a large file
            if self._held == digest:
                return {"have": 1}
            raise RefusedError(
                "the file", reason="a different file was accepted before and is kept", cure="Ask the analyst."
            )
        make_folder(self.path.parent, mode=0o700, what="the work folder")
        with explain_os_errors("the work folder"):
            self.partial.write_bytes(b"")
            self.partial.chmod(0o600)
        self._size, self._digest, self._came, self._whole = size, digest, 0, hashlib.sha256()
        return {"have": 0}

    def put(self, offset: object, piece: object) -> Message:
        """Write the next piece. A piece that is sent again because the answer was lost is not written twice."""
        if not isinstance(offset, int) or not isinstance(piece, bytes) or not 0 < len(piece) <= self.piece_size:
            raise RefusedError("the piece", reason="it is malformed", cure=_SEND_AGAIN)
        if offset + len(piece) <= self._came:
            return {"ok": 1}
        if offset != self._came or self._came + len(piece) > self._size:
            raise RefusedError("the piece", reason="it is not the next one", cure=_SEND_AGAIN)
        with explain_os_errors("the work folder"), self.partial.open("ab") as file:
            file.write(piece)
        self._whole.update(piece)
        self._came += len(piece)
        return {"ok": 1}

    def done(self) -> Message:
        """Check the complete file and move it to its place."""
        if self.path.exists() and self._came == self._size:
            return {"ok": 1}
        if self._came != self._size or self._whole.hexdigest() != self._digest:
            raise RefusedError("the file", reason="it differs from the announced file", cure=_SEND_AGAIN)
        self.accept(self.partial)
        with explain_os_errors("the work folder"):
            with self.partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(self.partial, self.path)
            sync_folder(self.path.parent)
        return {"ok": 1}

    def give_up(self) -> None:
        """Remove an incomplete file."""
        with suppress(OSError):
            self.partial.unlink()


@dataclass(eq=False)
class FileExchange:
    """Answers requests of sites. Every ticket belongs to one site and one task."""

    piece_size: int = PIECE_SIZE
    _arrivals: dict[str, IncomingFile] = field(default_factory=dict, repr=False)
    _handed_out: dict[str, dict[str, Path]] = field(default_factory=dict, repr=False)
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    def ticket(self, *, arrival: IncomingFile | None = None, files: Mapping[str, Path] | None = None) -> str:
        """Return a new ticket for a file that may be sent and for files that may be read."""
        name = secrets.token_hex(16)
        self._locks[name] = threading.Lock()
        if arrival is not None:
            self._arrivals[name] = arrival
        self._handed_out[name] = dict(files or {})
        return name

    def close(self, ticket: str) -> None:
        """Invalidate a ticket and remove its incomplete file."""
        lock = self._locks.pop(ticket, None)
        if lock is None:
            return
        with lock:  # a request may be in progress
            self._handed_out.pop(ticket, None)
            arrival = self._arrivals.pop(ticket, None)
            if arrival is not None:
                arrival.give_up()

    def answer(self, request: Message) -> Message:
        """Return the answer to one request; a refusal holds the reason."""
        ticket = request.get("ticket")
        lock = self._locks.get(ticket) if isinstance(ticket, str) else None
        if lock is None:
            return {"no": "the ticket is unknown or has expired"}
        assert isinstance(ticket, str)
        with lock:
            try:
                return self._answer(ticket, request)
            except (RefusedError, StorageError) as problem:
                return {"no": problem.reason}
            except InputError as problem:
                return {"no": problem.problem}

    def _answer(self, ticket: str, request: Message) -> Message:
        arrival, do = self._arrivals.get(ticket), request.get("do")
        if do == "get":
            path = self._handed_out.get(ticket, {}).get(str(request.get("file")))
            offset = request.get("offset")
            if path is None or not isinstance(offset, int) or offset < 0:
                raise RefusedError("the request", reason="this ticket has no such file", cure=_SEND_AGAIN)
            return {"piece": _piece_of(path, offset, self.piece_size)}
        if arrival is None:
            raise RefusedError("the request", reason="no file is expected with this ticket", cure=_SEND_AGAIN)
        match do:
            case "offer":
                return arrival.offer(request.get("size"), request.get("digest"))
            case "put":
                return arrival.put(request.get("offset"), request.get("piece"))
            case "done":
                return arrival.done()
        raise RefusedError("the request", reason="it is of an unknown kind", cure=_SEND_AGAIN)


def _piece_of(path: Path, offset: int, size: int) -> bytes:
    with open_plain_file(path, what="the file") as file:
        file.seek(offset)
        return file.read(size)
