"""The guard: what holds FLARE's processes to the rules in `admission`, whoever runs the server.

`mooring flare site` and `mooring flare server` name it in a kit's resources.json. FLARE builds it when a process starts,
that of the site or server as that of every job, before there is any connection. It takes the place of five functions of
FLARE's for as long as the process lives: the one that gets every message, the one that hears which cell is at the other end
of a connection, the one that answers administrators, and the two that turn what came into objects; at the server, of the
first, of one of the last two, and of the one that hears how a site's job ended. It knows one version of FLARE; with any
other, the process does not start.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mooring.engines.flare.admission import (
    DEPLOY,
    IncomingMessage,
    Request,
    Way,
    classify_connection,
    is_job,
    poses_as_server,
    refusal_of_message,
    refusal_of_request,
)
from mooring.errors import RefusedError

VERSION = "2.9.0"
_WAY, _PEER = "mooring.way", "mooring.peer"
_DATUM = "nvflare.fuel.utils.fobs.datum.Datum"
_OBJECTS = {
    "nvflare.apis.fl_context.FLContext",
    "nvflare.apis.job_def.JobMetaKey",
    "nvflare.apis.shareable.Shareable",
    "nvflare.private.admin_defs.Message",
    "tuple",
}
_CURE = "Install the version that mooring names: pip install 'mooring[flare]'."
_log = logging.getLogger(__name__)
_guarding: list[str] = []


class SiteGuard:
    """For a site: named in its resources.json, and built by FLARE. A job cannot name, change or remove it."""

    def __init__(self) -> None:
        flare = _Flare()
        flare.guard_objects(lambda name: name in _OBJECTS)
        flare.guard_parts()
        flare.guard_connections()
        flare.guard_messages()
        flare.guard_administration()
        _guarding.append("site")


class ServerGuard:
    """For the server: a site cannot have it send files of its own, end a job for the others, or speak in its name.

    FLARE sends back to a site some of what came from it. An object that says "the content of this file" would come back as
    the content of that file on the server.
    """

    def __init__(self) -> None:
        flare = _Flare()
        flare.guard_the_others()
        flare.guard_objects(lambda name: name != _DATUM)
        flare.guard_the_name()
        _guarding.append("server")


def is_guarded() -> bool:
    """Whether this process has a site's guard."""
    return "site" in _guarding


class _Flare:
    """The parts of FLARE that the guard stands before; not to be had without the version that it knows."""

    def __init__(self) -> None:
        try:
            import nvflare
            from nvflare.fuel.f3.cellnet.core_cell import CoreCell
            from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, MessageType
            from nvflare.fuel.f3.cellnet.identity import is_mtls_connection
            from nvflare.fuel.f3.sfm.conn_manager import ConnManager
            from nvflare.fuel.f3.streaming.stream_const import StreamHeaderKey
            from nvflare.fuel.utils.constants import Mode
            from nvflare.fuel.utils.fobs import lobs
            from nvflare.fuel.utils.fobs.fobs import FOBS_TYPE, Packer
            from nvflare.private.admin_defs import error_reply
            from nvflare.private.defs import new_cell_message
            from nvflare.private.fed.client.admin import FedAdminAgent

            self.found = str(nvflare.__version__)
            self.cell, self.header, self.stream = CoreCell, MessageHeaderKey, StreamHeaderKey
            self.request, self.is_protected, self.outgoing = MessageType.REQ, is_mtls_connection, Mode.ACTIVE
            self.connections, self.packer, self.object_name, self.parts = ConnManager, Packer, FOBS_TYPE, lobs
            self.agent, self.error_reply, self.cell_message = FedAdminAgent, error_reply, new_cell_message
        except (ImportError, AttributeError) as problem:
            raise _unknown(f"FLARE is not as the guard knows it: {problem}") from None
        if self.found != VERSION:
            raise _unknown(f"the guard knows FLARE {VERSION}, and this is {self.found}")
        self.unpack = _known(Packer, "unpack", "self", "obj")
        self.one_part = _known(lobs, "_get_one_section", "stream", "expect_datum")
        self.update_endpoint = _known(ConnManager, "update_endpoint", "self", "sfm_conn", "data")
        self.process = _known(CoreCell, "process_message", "self", "endpoint", "connection", "app_id", "message")
        self.dispatch = _known(FedAdminAgent, "_dispatch_request", "self", "request")

    def guard_objects(self, is_allowed: Callable[[str], bool]) -> None:
        """Build no object out of a message but those that are allowed."""
        original, key = self.unpack, self.object_name

        def unpack(packer: Any, obj: Any) -> Any:
            if type(obj) is dict and key in obj and not is_allowed(obj[key]):
                _log.warning("refused a message with an object of the kind %.80r", obj[key])
                raise ValueError("an object that the guard does not let in")
            return original(packer, obj)

        self.packer.unpack = unpack

    def guard_parts(self) -> None:
        """Take no message that has parts beside its body: FLARE would write them to files, or fetch what they name."""
        original = self.one_part

        def one_part(stream: Any, expect_datum: bool) -> Any:
            found = original(stream, expect_datum)
            if expect_datum and found[0] is not None:
                _log.warning("refused a message with parts beside its body")
                raise ValueError("a part that the guard does not let in")
            return found

        self.parts._get_one_section = one_part

    def guard_connections(self) -> None:
        """Nobody who connects to this process may pose as another than a job of its own."""
        original = self.update_endpoint

        def update_endpoint(manager: Any, sfm_conn: Any, data: Any) -> None:
            peer, me = str(data.get("endpoint_name", "")), manager.local_endpoint.name
            if not self._way(me, peer, sfm_conn.conn):
                _log.warning("closed a connection that says it is %.80r", peer)
                sfm_conn.conn.close()
                return
            original(manager, sfm_conn, data)

        self.connections.update_endpoint = update_endpoint

    def guard_messages(self) -> None:
        """Let in what a job needs, over the connections that the site knows."""
        original, header = self.process, self.header

        def process_message(cell: Any, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
            me = str(cell.my_info.fqcn)
            try:
                arriving = self._arriving(me, endpoint, connection, message)
                reason = refusal_of_message(arriving, me)
            except Exception as problem:
                reason = f"it cannot be read: {type(problem).__name__}"
            if reason:
                _log.warning("refused a message: %s", reason)
                return
            message.set_prop(_WAY, arriving.way)
            message.set_prop(_PEER, arriving.peer)
            if message.headers:
                message.headers.pop(header.CONN_URL, None)  # FLARE would connect to any address in there
            original(cell, endpoint, connection, app_id, message)

        self.cell.process_message = process_message

    def guard_administration(self) -> None:
        """Answer the requests that deploy, start and end a job of mooring's, and no other."""
        original, let_in = self.dispatch, set[str]()

        def dispatch(agent: Any, request: Any) -> Any:
            try:
                asked, job = request.payload, request.payload.headers.get("job_id")
                was_here = is_job(job) and (Path(agent.app_ctx.args.workspace) / job).exists()
                way, peer, known = request.get_prop(_WAY), request.get_prop(_PEER), job in let_in
                reason = refusal_of_request(Request(way, peer, asked.topic, asked.headers, asked.body, was_here, known))
            except Exception as problem:
                reason = f"it cannot be read: {type(problem).__name__}"
            if reason:
                _log.warning("refused a request: %s", reason)
                return self.cell_message({}, self.error_reply(f"refused by the guard of this site: {reason}"))
            if asked.topic == DEPLOY:
                let_in.add(job)
            return original(agent, request)

        self.agent._dispatch_request = dispatch

    def guard_the_others(self) -> None:
        """A site whose job ended badly, or that says so, is watched as a dead one; FLARE would fail the whole job."""
        try:
            from nvflare.private.defs import CellMessageHeaderKeys, JobFailureMsgKey
            from nvflare.private.fed.server.fed_server import FederatedServer

            code, job_id, token = JobFailureMsgKey.CODE, JobFailureMsgKey.JOB_ID, CellMessageHeaderKeys.TOKEN
        except (ImportError, AttributeError) as problem:
            raise _unknown(f"FLARE is not as the guard knows it: {problem}") from None
        original = _known(FederatedServer, "process_job_failure", "self", "request")

        def process_job_failure(server: Any, request: Any) -> Any:
            said, sender = request.payload, server.client_manager.clients.get(request.get_header(token))
            if isinstance(said, dict) and said.get(code):
                request.payload = {**said, code: None}
                if sender is not None and server.engine.job_runner.is_client_outcome_pending(
                    said.get(job_id), sender.name
                ):
                    _log.warning("the job of %.80r ended with %.80r; the others go on", sender.name, said[code])
                    with server._job_reported_clients_lock:  # FLARE waits for no site that had a job and has it no more
                        server._job_reported_clients.setdefault(said[job_id], set()).add(request.get_header(token))
            return original(server, request)

        FederatedServer.process_job_failure = process_job_failure

    def guard_the_name(self) -> None:
        """Pass nothing on from a site in the server's name: FLARE would, with a token that the site had before."""
        original, header = self.process, self.header

        def process_message(cell: Any, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
            if poses_as_server(str(message.get_header(header.ORIGIN)), str(endpoint.name)):
                _log.warning("refused a message of %.80r, which says that it is the server's", endpoint.name)
                return
            original(cell, endpoint, connection, app_id, message)

        self.cell.process_message = process_message

    def _way(self, me: str, peer: str, connection: Any) -> Way:
        connector = connection.connector
        protected = bool(self.is_protected(connector.params))
        return classify_connection(me, peer, outgoing=connector.mode == self.outgoing, protected=protected)

    def _arriving(self, me: str, endpoint: Any, connection: Any, message: Any) -> IncomingMessage:
        read, header, peer = message.get_header, self.header, str(endpoint.name)
        return IncomingMessage(
            self._way(me, peer, connection),
            peer,
            read(header.MSG_TYPE) == self.request,
            str(read(header.ORIGIN)),
            str(read(header.DESTINATION)),
            str(read(header.CHANNEL)),
            str(read(header.TOPIC)),
            (str(read(self.stream.CHANNEL)), str(read(self.stream.TOPIC))),
        )


def _known(holder: Any, name: str, *parameters: str) -> Callable[..., Any]:
    """A function of FLARE's, if it is the one that the guard knows."""
    function = getattr(holder, name, None)
    if not callable(function) or tuple(inspect.signature(function).parameters) != parameters:
        raise _unknown(f"{holder.__name__}.{name} is not as the guard knows it")
    return function  # type: ignore[no-any-return]


def _unknown(reason: str) -> RefusedError:
    return RefusedError("this FLARE", reason=f"{reason}; without a guard nothing is started", cure=_CURE)
