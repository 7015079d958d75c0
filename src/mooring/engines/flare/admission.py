"""The rules for what a site's FLARE processes accept. They work on plain values; `guard` applies them to FLARE.

Everything that a mooring job needs is listed, and everything else is refused. The sender of a message is determined by its
connection, never by what the message states.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mooring.engines.flare.configuration import ROLES, site_config, to_json
from mooring.protocol.transport.addresses import make_printable

SERVER = "server"
Way = Literal["server", "parent", "job", ""]
_ADMIN, _COMMAND, _AUX, _STREAM, _ANSWERS = "admin", "client_command", "aux_communication", "sm__STREAM", "return_only"
_DATA = "sm__DATA"
_UPKEEP = {("cellnet.channel", "bye"), (_STREAM, "sm__ACK"), (_STREAM, "sm__ERROR")}
_TO_SITE: dict[Way, set[tuple[str, str]]] = {"job": {(_ADMIN, "train.notify_job_status")}}
_TO_JOB: dict[Way, set[tuple[str, str]]] = {
    "server": {(_AUX, "__end_run__")},
    "parent": {
        (_COMMAND, "abort"),
        (_COMMAND, "abort_task"),
        (_AUX, "__end_run__"),
    },  # the parent process forwards messages of the server
}

DEPLOY, START, CHECK, CANCEL = (
    "train.deploy",
    "train.start_job",
    "scheduler.check_resource",
    "scheduler.cancel_resource",
)
_OF_A_JOB = {DEPLOY, START, CHECK, CANCEL, "train.abort", "train.abort_task"}
_STATUS, _NOTIFY = "train.check_status", "train.notify_job_status"
_EMPTY_IN_META = ("resource_spec", "launcher_spec", "scope", "stats_pool_config", "custom_props", "edge_method", "byoc")
_KNOWN_IN_META = {
    *("job_id", "name", "job_folder_name", "submitter_name", "submitter_org", "submitter_role", "status"),
    *("data_storage_format", "deploy_map", "content_location", "result_location", "approvals", "min_clients"),
    *("mandatory_clients", "submit_time", "submit_time_iso", "start_time", "duration", "job_deploy_detail"),
    *("schedule_count", "cloned_from", "last_schedule_time", "schedule_history", "job_clients", "study"),
}

_CONFIG, _SERVERS_CONFIG = "config/config_fed_client.json", "config/config_fed_server.json"
_SIGNATURES = {".__nvfl_sig.json", ".__nvfl_submitter.crt", "config/.__nvfl_sig.json", "config/.__nvfl_submitter.crt"}
_MOST_BYTES, _MOST_FILES = 2**20, 12
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DIGEST = re.compile(rb'"study": "([0-9a-f]{64})"')
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class IncomingMessage:
    """An incoming message."""

    way: Way
    """The connection: from the site to its server ("server"), from a job to its site's process ("parent"), or from a job to
    this process ("job"). Empty for any other connection."""
    peer: str
    """The cell at the other end of that connection."""
    is_request: bool
    """Whether it is a request. Answers need no check: a random number matches each to a waiting request."""
    origin: str
    """The sending cell, as stated in the message."""
    destination: str
    """The receiving cell, as stated in the message."""
    channel: str
    topic: str
    streamed: tuple[str, str] = ("", "")
    """Channel and topic of a message that is sent in pieces."""


def is_job(name: object) -> bool:
    """Return whether a job's name is a plain UUID, as FLARE makes them. The name becomes a folder and part of a command.

    Examples
    --------
    >>> is_job("6b1c2f64-52a1-4b0a-9d5e-0f1f0e4d7a11"), is_job("../../etc"), is_job(None)
    (True, False, False)
    """
    return isinstance(name, str) and _JOB.fullmatch(name) is not None


def classify_connection(me: str, peer: str, *, outgoing: bool, protected: bool) -> Way:
    """Return which of a site's connections this is; empty if it is none of them.

    Examples
    --------
    >>> classify_connection("north", "server", outgoing=True, protected=True)
    'server'
    >>> classify_connection("north", "server", outgoing=False, protected=False)
    ''
    """
    site, _, job = me.partition(".")
    if not protected:
        return ""
    if outgoing and peer == SERVER:
        return "server"
    if outgoing and job and peer == site:
        return "parent"
    if not outgoing and not job and peer.startswith(f"{me}.") and is_job(peer.removeprefix(f"{me}.")):
        return "job"
    return ""


def refusal_of_message(message: IncomingMessage, me: str) -> str:
    """Return why a message is refused; empty for one that a mooring job needs."""
    if not message.way:
        return "it came over an unknown connection"
    _, _, job = me.partition(".")
    if message.destination != me:
        return _refusal_to_pass_on(message, me)
    if not message.is_request:
        return ""
    senders = {message.peer, f"{SERVER}.{job}"} if job else {message.peer}
    if message.origin not in senders:
        return f"it states {make_printable(str(message.origin))} as its sender, which does not use this connection"
    asked = (message.channel, message.topic)
    if asked == (_STREAM, _DATA):
        if message.streamed[0] == _ANSWERS:
            return ""
        asked = message.streamed
    allowed = (_TO_JOB if job else _TO_SITE).get(message.way, set()) | _UPKEEP
    if asked in allowed or (asked[0] == _ADMIN and message.way == "server" and not job):
        return ""  # requests of the server as an administrator are checked by refusal_of_request
    return f"{make_printable(str(asked[0]))}, {make_printable(str(asked[1]))} is not needed by a job"


def _refusal_to_pass_on(message: IncomingMessage, me: str) -> str:
    to_job = message.way == "server" and message.destination.startswith(f"{me}.")
    to_server = message.way == "job" and message.destination.partition(".")[0] == SERVER
    return "" if to_job or to_server else "it is addressed to another cell"


def poses_as_server(origin: str, peer: str) -> bool:
    """Return whether a message from a site states the server as its sender, so that it would be forwarded as such.

    Examples
    --------
    >>> poses_as_server("server", "south"), poses_as_server("south", "south"), poses_as_server("server.x", "server.x")
    (True, False, False)
    """
    return origin.partition(".")[0] == SERVER != peer.partition(".")[0]


@dataclass(frozen=True)
class Request:
    """An administrator's request to a site."""

    way: Way
    """As in `IncomingMessage`."""
    peer: str
    """As in `IncomingMessage`."""
    topic: object
    headers: Mapping[str, Any]
    body: object
    was_here: bool = False
    """Whether the site already has a folder for a job of this name."""
    let_in: bool = False
    """Whether this process has accepted the job's deployment."""


def refusal_of_request(request: Request) -> str:
    """Return why a request to the site's administration is refused; empty for one that a mooring job needs.

    FLARE consults `authorization.json` only if a request asks for it. These rules do not depend on who asks or in which
    role.
    """
    topic, job = request.topic, request.headers.get("job_id")
    if request.way == "job":
        is_status = topic == _NOTIFY and job == request.peer.partition(".")[2]
        return "" if is_status else "a job may only report its own status"
    if request.way != "server":
        return "only the server may send requests"
    if topic == _STATUS:
        return ""
    if not isinstance(topic, str) or topic not in _OF_A_JOB:
        return f"{make_printable(str(topic))} is not needed by a job"
    if topic != CANCEL and not is_job(job):
        return "the job's name is not a UUID"
    if topic in (CHECK, START, CANCEL) and request.body:
        return "a mooring job requests no resources"
    if topic in (DEPLOY, START):
        problem = refusal_of_meta(request.headers.get("job_meta"), str(job))
        return problem or (_refusal_to_deploy(request) if topic == DEPLOY else _refusal_to_start(request))
    return ""


def _refusal_to_start(request: Request) -> str:
    """Return why a job may not start. A folder from before the guard was installed may hold code that FLARE would run."""
    return "" if request.let_in else "it was not deployed since this site's process started"


def _refusal_to_deploy(request: Request) -> str:
    name = request.headers.get("app_name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "the app's name is invalid"
    if request.was_here:
        return "a job of this name ran here before, and its folder and log are kept"
    return refusal_of_app(request.body)


def refusal_of_meta(meta: object, job: str) -> str:
    """Return why a job's metadata are refused, since they could set launchers, images and paths; empty if accepted."""
    if not isinstance(meta, dict) or meta.get("job_id") != job:
        return "the metadata belong to a different job"
    for name in _EMPTY_IN_META:
        if meta.get(name):
            return f"a mooring job has no {name}"
    unknown = sorted(make_printable(str(name)) for name in meta if name not in {*_KNOWN_IN_META, *_EMPTY_IN_META})
    if unknown:
        return f"a mooring job has no {unknown[0]}"
    if meta.get("submitter_role", "member") not in ROLES:  # FLARE allows everything to the role "super"
        return "its submitter has an unknown role"
    return ""


def refusal_of_app(data: object) -> str:
    """Return why an app is refused; empty for exactly what 'mooring flare job' writes for a site, signed or not.

    An app that is accepted therefore has no code, no settings for logs or resources, and only mooring's class and argument.
    A final newline, which 'nvflare job submit' adds, is accepted.
    """
    if not isinstance(data, bytes) or len(data) > _MOST_BYTES:
        return "the app is too large, or not a zip file"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename != "config/"]
            names = [entry.filename for entry in entries]
            unknown = [name for name in names if name not in {_CONFIG, _SERVERS_CONFIG, *_SIGNATURES}]
            if unknown:
                return f"the app has a file that a mooring app does not have: {make_printable(str(unknown[0]))}"
            if len(names) > _MOST_FILES or len(set(names)) != len(names) or _CONFIG not in names:
                return "the app does not have exactly the files of a mooring app"
            if any(entry.file_size > _MOST_BYTES for entry in entries):
                return "the app is too large"
            config = archive.read(_CONFIG)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, OSError, EOFError):
        return "the app cannot be read"
    study = _DIGEST.search(config)
    if study is None or config.removesuffix(b"\n") != to_json(site_config(study[1].decode())):
        return "the app's configuration differs from that of a mooring app"
    return ""
