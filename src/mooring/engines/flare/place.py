"""The place where members exchange files: a folder of the server, which sites reach by requests over FLARE.

The server sends each site that FLARE has authenticated a ticket with its task. The ticket stands for the site's name in
every request. A site may put only files that the study's steps send from it, and read only those that they send to it.
Answers are text, integers and bytes.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from mooring.atomic_io import open_atomically, open_plain_file
from mooring.engines.flare.chunks import PIECE_SIZE, SUBMIT_AGAIN, Ask, IncomingFile, Message, Value, read_piece
from mooring.errors import InputError, RefusedError, StorageError
from mooring.protocol.driver.routes import Route, bound_bytes, check_routed, list_routes
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.object_stores import TOO_LARGE
from mooring.protocol.transport.place import EVERYBODY, Place, PlacedFile, parse_path
from mooring.protocol.transport.transfer import OccupiedError, check_parcel

_SERVER = "the server"


@dataclass(eq=False)
class SitePlace:
    """The server's place as a site reaches it."""

    digest: str
    """The study's digest: all jobs of a study share one place."""
    ticket: str
    ask: Ask = field(repr=False)
    sent: Callable[[int, int], None] | None = field(default=None, repr=False)
    """Shows how many bytes of how many were sent."""
    piece_size: int = PIECE_SIZE
    is_over: bool = False
    """Whether the last listing said that no more files will come."""
    absent: frozenset[str] = frozenset()
    """Members whose files will not come, according to the last listing."""

    @property
    def address(self) -> str:
        """A word that tells places apart."""
        return f"flare://{self.digest}"

    def list_files(self) -> list[PlacedFile]:
        """Return the files that this site may see."""
        answer = self._request("list")
        files = _read_listing(answer.get("files"))
        self.is_over = bool(answer.get("over"))
        self.absent = frozenset(str(answer.get("absent", "")).split(","))
        return files

    def put(self, source: Path, file: PlacedFile, *, replace: bool = False, public: Collection[str] = ()) -> bool:
        """Put a signed file of a kind that may leave, and return whether the server had it before.

        `replace` and `public` have no effect, since the server decides whether a file may replace another one.
        """
        with open_plain_file(source, what="the file") as opened:
            parcel = check_parcel(source, opened)
            answer = self._request("offer", path=file.path, size=parcel.size, digest=parcel.digest)
            if answer.get("have"):
                return True
            if answer.get("occupied"):
                raise OccupiedError("the place", problem="A different file has this name.", cure="Ask the analyst.")
            opened.seek(0)
            n_sent = 0
            while piece := opened.read(self.piece_size):
                self._request("put", path=file.path, offset=n_sent, piece=piece)
                n_sent += len(piece)
                if self.sent:
                    self.sent(n_sent, parcel.size)
            self._request("done", path=file.path)
        return False

    def fetch(self, file: PlacedFile, target: Path, *, most_bytes: int) -> None:
        """Copy a file from the place to `target`. A failure leaves `target` unchanged."""
        what, size, came = f"the file {file.path}", file.size or 0, 0
        if not 0 < size <= most_bytes:
            raise RefusedError(what, reason=TOO_LARGE, cure="Ask its sender what it is.")
        with open_atomically(target, mode=0o600, what=what) as copy:
            while came < size:
                piece = self._request("get", path=file.path, offset=came).get("piece")
                if not isinstance(piece, bytes) or not 0 < len(piece) <= min(self.piece_size, size - came):
                    raise StorageError(what, reason="a piece of it did not arrive", cure="It is tried again.")
                copy.write(piece)
                came += len(piece)

    def _request(self, do: str, **fields: Value) -> Message:
        answer = self.ask({"do": do, "ticket": self.ticket, **fields})
        if answer.get("no"):
            reason = f"the server's answer is {str(answer['no'])[:200]!r}"
            raise RefusedError("a request to the server", reason=reason, cure=SUBMIT_AGAIN)
        return answer


def _read_listing(text: object) -> list[PlacedFile]:
    """Return the files in a server's answer."""
    files = list[PlacedFile]()
    try:
        for path, size, version in json.loads(str(text)):
            file = parse_path(path)
            if file is None or type(size) is not int or type(version) is not str:
                raise ValueError(path)
            files.append(PlacedFile(file.sender, file.recipient, file.name, size, version))
    except (ValueError, TypeError, AttributeError, RecursionError):
        reason = "its list of files cannot be read"
        raise StorageError(_SERVER, reason=reason, cure="Use the same version of mooring everywhere.") from None
    return files


@dataclass(eq=False)
class ServedPlace:
    """The place in a folder of the server, and the answers to sites' requests."""

    folder: Path
    study: Study
    piece_size: int = PIECE_SIZE
    is_over: bool = False
    """Whether no more files will come, so that sites can end."""
    absent: set[str] = field(default_factory=set)
    """Members whose files will not come in this job."""
    _sites: dict[str, str] = field(default_factory=dict, repr=False)
    """The name of the site, by ticket."""
    _arriving: dict[str, IncomingFile] = field(default_factory=dict, repr=False)
    _locks: dict[str, threading.Lock] = field(default_factory=dict, repr=False)
    _routes: dict[str, Route] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._routes = {route.at_place.path: route for route in list_routes(self.study)}

    @property
    def place(self) -> Place:
        """The place as the server's own run reaches it."""
        return Place(str(self.folder))

    def issue_ticket(self, site: str) -> str:
        """Return a new ticket for a site."""
        ticket = secrets.token_hex(16)
        self._locks[ticket] = threading.Lock()
        self._sites[ticket] = site
        return ticket

    def close(self) -> None:
        """Invalidate all tickets and remove incomplete files."""
        for ticket, lock in list(self._locks.items()):
            with lock:  # a request may be in progress
                del self._sites[ticket], self._locks[ticket]
        for arriving in self._arriving.values():
            arriving.give_up()

    def answer(self, request: Message) -> Message:
        """Return the answer to one request; a refusal holds the reason."""
        ticket = str(request.get("ticket"))
        lock = self._locks.get(ticket)
        if lock is None:
            return {"no": "the ticket is unknown or has expired"}
        with lock:
            try:
                if ticket not in self._sites:  # the job ended while this request waited
                    return {"no": "the ticket has expired"}
                return self._answer(self._sites[ticket], request)
            except (RefusedError, StorageError) as problem:
                return {"no": problem.reason}
            except InputError as problem:
                return {"no": problem.problem}

    def _answer(self, site: str, request: Message) -> Message:
        do, path = request.get("do"), str(request.get("path"))
        route, offset = self._routes.get(path), request.get("offset")
        if do == "list":
            return self._list(site)
        if do == "get":
            if route is None or site not in route.arrivals or not isinstance(offset, int) or offset < 0:
                raise RefusedError("the request", reason="this site does not receive such a file", cure=SUBMIT_AGAIN)
            return {"piece": read_piece(self.folder / path, offset, self.piece_size)}
        if route is None or route.sender != site:
            raise RefusedError("the request", reason="this site does not send such a file", cure=SUBMIT_AGAIN)
        arriving = self._expect(path, route)
        match do:
            case "offer":
                return arriving.offer(request.get("size"), request.get("digest"))
            case "put":
                return arriving.put(offset, request.get("piece"))
            case "done":
                return arriving.done()
        raise RefusedError("the request", reason="it is of an unknown kind", cure=SUBMIT_AGAIN)

    def _list(self, site: str) -> Message:
        """Return the files that a site sent, and those for it or for everybody."""
        over = self.is_over  # read before the files are listed, so that the last list has all of them
        files = [
            (file.path, file.size, file.version)
            for file in self.place.list_files()
            if file.sender == site or file.recipient in (site, EVERYBODY)
        ]
        return {"files": json.dumps(files), "over": int(over), "absent": ",".join(sorted(self.absent))}

    def _expect(self, path: str, route: Route) -> IncomingFile:
        if path not in self._arriving:
            self._arriving[path] = IncomingFile(
                self.folder / path,
                bound_bytes(self.study),
                lambda arrived: check_routed(arrived, route, self.study),
                route.grows,
                self.piece_size,
            )
        return self._arriving[path]
