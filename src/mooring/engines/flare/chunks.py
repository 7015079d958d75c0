"""Files in pieces: a few megabytes in memory at each end, written to disk as they arrive, SHA-256 at the end.

A site asks and the server answers; what is said are words, whole numbers and bytes. A ticket, which the server hands to one
site in the data of a task, says which file a request is about: no site can read or write what is another's.
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

PIECE = 2**22
Value = str | int | bytes
Message = Mapping[str, Value]
Ask = Callable[[Message], Message]
TOPIC = "mooring"
"""Under which sites ask, as FLARE names messages."""
_SEND_AGAIN = "Submit the job again: the same bytes are sent again, and what was accepted stays accepted."


def plain_values(content: Mapping[str, object]) -> dict[str, Value]:
    """What of a message is words, whole numbers and bytes."""
    return {name: value for name, value in content.items() if isinstance(value, str | int | bytes)}


def send_file(path: Path, ticket: str, ask: Ask, *, progress: Callable[[int, int], None] | None = None) -> str:
    """Send a file to whoever gave the ticket, unless it is there already; returns its SHA-256."""
    digest, size = hash_file(path, what="the file"), path.stat().st_size
    if _answer(ask, {"do": "offer", "ticket": ticket, "size": size, "digest": digest}).get("have"):
        return digest
    sent = 0
    with open_plain_file(path, what="the file") as file:
        while piece := file.read(PIECE):
            _answer(ask, {"do": "put", "ticket": ticket, "offset": sent, "piece": piece})
            sent += len(piece)
            if progress:
                progress(sent, size)
    _answer(ask, {"do": "done", "ticket": ticket})
    return digest


def fetch_file(
    name: str, path: Path, ticket: str, ask: Ask, *, size: int, digest: str, most: int, what: str = "the file"
) -> None:
    """Fetch a file of which a task told size and SHA-256; one that is larger than `most` is not begun."""
    if not 0 < size <= most:
        raise RefusedError(what, reason="it is larger than any of this study", cure="Ask the analyst.")
    whole, came = hashlib.sha256(), 0
    with open_atomically(path, mode=0o600, what=what) as file:
        while came < size:
            answer = _answer(ask, {"do": "get", "ticket": ticket, "file": name, "offset": came})
            piece = answer.get("piece")
            if not isinstance(piece, bytes) or not 0 < len(piece) <= min(PIECE, size - came):
                raise StorageError(what, reason="a piece of it did not come", cure=_SEND_AGAIN)
            whole.update(piece)
            file.write(piece)
            came += len(piece)
        if whole.hexdigest() != digest:
            raise StorageError(what, reason="it is not what was announced", cure=_SEND_AGAIN)


def _answer(ask: Ask, request: Message) -> Message:
    answer = ask(request)
    if answer.get("no"):
        raise StorageError("the server", reason=f"it says no: {str(answer['no'])[:200]}", cure=_SEND_AGAIN)
    return answer


@dataclass(eq=False)
class IncomingFile:
    """A file that one site may send, once."""

    path: Path
    """Where it goes when it is whole; what lies there already stays."""
    most: int
    accept: Callable[[Path], None]
    """Looks at the whole file before it gets its place, and raises a RefusedError."""
    _size: int = -1
    _digest: str = ""
    _came: int = 0
    _held: str = ""
    _whole: hashlib._Hash = field(default_factory=hashlib.sha256, repr=False)

    @property
    def partial(self) -> Path:
        """Where it grows."""
        return self.path.with_name(f".{self.path.name}.arriving")

    def offer(self, size: object, digest: object) -> Message:
        """The site tells what it would send."""
        if not isinstance(size, int) or not isinstance(digest, str) or not 0 < size <= self.most:
            raise RefusedError("the file", reason="it is larger than any of this study", cure=_SEND_AGAIN)
        if self.path.exists():
            self._held = self._held or hash_file(self.path, what="the file")  # once: of a large file it takes a while
            if self._held == digest:
                return {"have": 1}
            raise RefusedError(
                "the file", reason="another one came before, and what was taken stays", cure="Ask the analyst."
            )
        make_folder(self.path.parent, mode=0o700, what="the work folder")
        with explain_os_errors("the work folder"):
            self.partial.write_bytes(b"")
            self.partial.chmod(0o600)
        self._size, self._digest, self._came, self._whole = size, digest, 0, hashlib.sha256()
        return {"have": 0}

    def put(self, offset: object, piece: object) -> Message:
        """The next piece; one that came before, and whose answer was lost, is not written twice."""
        if not isinstance(offset, int) or not isinstance(piece, bytes) or not 0 < len(piece) <= PIECE:
            raise RefusedError("the piece", reason="it is none", cure=_SEND_AGAIN)
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
        """The site has sent everything: digest, checks, and the file gets its place."""
        if self.path.exists() and self._came == self._size:
            return {"ok": 1}
        if self._came != self._size or self._whole.hexdigest() != self._digest:
            raise RefusedError("the file", reason="it is not what was announced", cure=_SEND_AGAIN)
        self.accept(self.partial)
        with explain_os_errors("the work folder"):
            with self.partial.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(self.partial, self.path)
            sync_folder(self.path.parent)
        return {"ok": 1}

    def give_up(self) -> None:
        """Remove what came in part."""
        with suppress(OSError):
            self.partial.unlink()


@dataclass(eq=False)
class FileExchange:
    """Answers what sites ask; every ticket is one site's, for one task."""

    _arrivals: dict[str, IncomingFile] = field(default_factory=dict, repr=False)
    _handed_out: dict[str, dict[str, Path]] = field(default_factory=dict, repr=False)
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)

    def ticket(self, *, arrival: IncomingFile | None = None, files: Mapping[str, Path] | None = None) -> str:
        """A new ticket, for a file that may come and for files that may be read."""
        name = secrets.token_hex(16)
        self._locks[name] = threading.Lock()
        if arrival is not None:
            self._arrivals[name] = arrival
        self._handed_out[name] = dict(files or {})
        return name

    def close(self, ticket: str) -> None:
        """A ticket whose task is over counts no more, and what came in part goes."""
        lock = self._locks.pop(ticket, None)
        if lock is None:
            return
        with lock:  # a request may be under way
            self._handed_out.pop(ticket, None)
            arrival = self._arrivals.pop(ticket, None)
            if arrival is not None:
                arrival.give_up()

    def answer(self, request: Message) -> Message:
        """Answer one request; what is wrong with it is said in words."""
        ticket = request.get("ticket")
        lock = self._locks.get(ticket) if isinstance(ticket, str) else None
        if lock is None:
            return {"no": "there is no such ticket, or its time is over"}
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
                raise RefusedError("the request", reason="there is no such file for you", cure=_SEND_AGAIN)
            return {"piece": _piece_of(path, offset)}
        if arrival is None:
            raise RefusedError("the request", reason="nothing is expected from you", cure=_SEND_AGAIN)
        match do:
            case "offer":
                return arrival.offer(request.get("size"), request.get("digest"))
            case "put":
                return arrival.put(request.get("offset"), request.get("piece"))
            case "done":
                return arrival.done()
        raise RefusedError("the request", reason="it is none that is known", cure=_SEND_AGAIN)


def _piece_of(path: Path, offset: int) -> bytes:
    with open_plain_file(path, what="the file") as file:
        file.seek(offset)
        return file.read(PIECE)
