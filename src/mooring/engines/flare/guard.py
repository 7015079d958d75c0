"""The guard, which enforces the rules of `admission` in FLARE's processes, whoever runs the server.

`mooring flare site` and `mooring flare server` name it in a kit's resources.json. FLARE creates it when a process of the
site, the server or a job starts, before there is any connection. At a site it replaces five functions of FLARE: those
that receive messages, identify the other end of a connection, answer administrators, unpack objects, and read message
parts. At the server it replaces those that receive messages, unpack objects, and process the end of a site's job. It
supports one version of FLARE; with any other version the process does not start.
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
_CURE = "Install the supported version: pip install 'mooring[flare]'."
_log = logging.getLogger(__name__)
_guarding: list[str] = []


class SiteGuard:
    """The guard of a site, named in its resources.json. A job cannot name, change or remove it."""

    def __init__(self) -> None:
        flare = _Flare()
        flare.guard_objects(lambda name: name in _OBJECTS)
        flare.guard_parts()
        flare.guard_connections()
        flare.guard_messages()
        flare.guard_administration()
        _guarding.append("site")


class ServerGuard:
    """The guard of the server. Sites cannot read the server's files, end a job for others, or send in the server's name.

    FLARE echoes some objects back to the site that sent them. An object that stands for the content of a file would come
    back with the content of that file on the server.
    """

    def __init__(self) -> None:
        flare = _Flare()
        flare.guard_the_others()
        flare.guard_objects(lambda name: name != _DATUM)
        flare.guard_the_name()
        _guarding.append("server")


def is_guarded() -> bool:
    """Return whether this process has a site's guard."""
    return "site" in _guarding


class _Flare:
    """The parts of FLARE that the guard replaces. Creating it fails for an unsupported version of FLARE."""

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

            self.version = str(nvflare.__version__)
            self.cell, self.header, self.stream = CoreCell, MessageHeaderKey, StreamHeaderKey
            self.request, self.is_protected, self.outgoing = MessageType.REQ, is_mtls_connection, Mode.ACTIVE
            self.connections, self.packer, self.object_name, self.parts = ConnManager, Packer, FOBS_TYPE, lobs
            self.agent, self.error_reply, self.cell_message = FedAdminAgent, error_reply, new_cell_message
        except (ImportError, AttributeError) as problem:
            raise _unknown(f"it differs from the version that the guard supports: {problem}") from None
        if self.version != VERSION:
            raise _unknown(f"the guard supports FLARE {VERSION}, and this is {self.version}")
        self.unpack = _known(Packer, "unpack", "self", "obj")
        self.one_part = _known(lobs, "_get_one_section", "stream", "expect_datum")
        self.update_endpoint = _known(ConnManager, "update_endpoint", "self", "sfm_conn", "data")
        self.process = _known(CoreCell, "process_message", "self", "endpoint", "connection", "app_id", "message")
        self.dispatch = _known(FedAdminAgent, "_dispatch_request", "self", "request")

    def guard_objects(self, is_allowed: Callable[[str], bool]) -> None:
        """Unpack only allowed kinds of objects from messages."""
        original, key = self.unpack, self.object_name

        def unpack(packer: Any, obj: Any) -> Any:
            if type(obj) is dict and key in obj and not is_allowed(obj[key]):
                _log.warning("refused a message with an object of the kind %.80r", obj[key])
                raise ValueError("the guard does not accept this object")
            return original(packer, obj)

        self.packer.unpack = unpack

    def guard_parts(self) -> None:
        """Refuse messages with parts beside their body, which FLARE would write to files or use to fetch data."""
        original = self.one_part

        def one_part(stream: Any, expect_datum: bool) -> Any:
            section = original(stream, expect_datum)
            if expect_datum and section[0] is not None:
                _log.warning("refused a message with parts beside its body")
                raise ValueError("the guard does not accept message parts")
            return section

        self.parts._get_one_section = one_part

    def guard_connections(self) -> None:
        """Close all connections except those to the server or the parent process, and those from a job."""
        original = self.update_endpoint

        def update_endpoint(manager: Any, sfm_conn: Any, data: Any) -> None:
            peer, me = str(data.get("endpoint_name", "")), manager.local_endpoint.name
            if not self._way(me, peer, sfm_conn.conn):
                _log.warning("closed a connection that names itself %.80r", peer)
                sfm_conn.conn.close()
                return
            original(manager, sfm_conn, data)

        self.connections.update_endpoint = update_endpoint

    def guard_messages(self) -> None:
        """Accept only messages that a job needs, over known connections."""
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
                message.headers.pop(header.CONN_URL, None)  # FLARE would connect to any address given here
            original(cell, endpoint, connection, app_id, message)

        self.cell.process_message = process_message

    def guard_administration(self) -> None:
        """Answer only the requests that a mooring job needs."""
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
        """Treat a site whose job failed like one that died. By default FLARE would end the job for all sites."""
        try:
            from nvflare.private.defs import CellMessageHeaderKeys, JobFailureMsgKey
            from nvflare.private.fed.server.fed_server import FederatedServer

            code, job_id, token = JobFailureMsgKey.CODE, JobFailureMsgKey.JOB_ID, CellMessageHeaderKeys.TOKEN
        except (ImportError, AttributeError) as problem:
            raise _unknown(f"it differs from the version that the guard supports: {problem}") from None
        original = _known(FederatedServer, "process_job_failure", "self", "request")

        def process_job_failure(server: Any, request: Any) -> Any:
            report, sender = request.payload, server.client_manager.clients.get(request.get_header(token))
            if isinstance(report, dict) and report.get(code):
                request.payload = {**report, code: None}
                if sender is not None and server.engine.job_runner.is_client_outcome_pending(
                    report.get(job_id), sender.name
                ):
                    _log.warning("the job of %.80r ended with %.80r; the others continue", sender.name, report[code])
                    with (
                        server._job_reported_clients_lock
                    ):  # FLARE does not wait for sites that reported the end of their job
                        server._job_reported_clients.setdefault(report[job_id], set()).add(request.get_header(token))
            return original(server, request)

        FederatedServer.process_job_failure = process_job_failure

    def guard_the_name(self) -> None:
        """Refuse messages of a site in the server's name, which FLARE would forward."""
        original, header = self.process, self.header

        def process_message(cell: Any, endpoint: Any, connection: Any, app_id: int, message: Any) -> None:
            if poses_as_server(str(message.get_header(header.ORIGIN)), str(endpoint.name)):
                _log.warning("refused a message of %.80r in the server's name", endpoint.name)
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
    """Return a function of FLARE if it has the expected parameters, else raise a `RefusedError`."""
    function = getattr(holder, name, None)
    if not callable(function) or tuple(inspect.signature(function).parameters) != parameters:
        raise _unknown(f"{holder.__name__}.{name} does not have the expected parameters")
    return function  # type: ignore[no-any-return]


def _unknown(reason: str) -> RefusedError:
    return RefusedError("this FLARE", reason=f"{reason}; nothing is started without a guard", cure=_CURE)
