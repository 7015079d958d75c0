"""What a site's FLARE processes let in: rules on plain values, and no FLARE in here. `guard` holds FLARE to them.

What a job of mooring's needs is named, and everything else is refused. Who sent a message follows from the connection that
it came over, never from what it says of itself.
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
    },  # it passes on what is the server's
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
    """A message as it comes in."""

    way: Way
    """Over which connection: the one that the site made to its server, a job's to its site's own process, or the one that
    this process listens on for its jobs. Empty for any other."""
    peer: str
    """The cell at the other end of that connection."""
    is_request: bool
    """Answers go only to who waits for them: FLARE numbers requests at random."""
    origin: str
    destination: str
    """Cells, as the message says."""
    channel: str
    topic: str
    streamed: tuple[str, str] = ("", "")
    """Channel and topic of what comes in pieces."""


def is_job(name: object) -> bool:
    """Whether a job's name is a plain UUID, as FLARE draws them: it becomes a folder, and a word of a command.

    Examples
    --------
    >>> is_job("6b1c2f64-52a1-4b0a-9d5e-0f1f0e4d7a11"), is_job("../../etc"), is_job(None)
    (True, False, False)
    """
    return isinstance(name, str) and _JOB.fullmatch(name) is not None


def classify_connection(me: str, peer: str, *, outgoing: bool, protected: bool) -> Way:
    """Which of the few connections that a site has this is.

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
    """Why a message is refused, in a few words; empty for one that a job of mooring's needs."""
    if not message.way:
        return "it came over a connection that the site does not know"
    _, _, job = me.partition(".")
    if message.destination != me:
        return _refusal_to_pass_on(message, me)
    if not message.is_request:
        return ""
    senders = {message.peer, f"{SERVER}.{job}"} if job else {message.peer}
    if message.origin not in senders:
        return f"it says that it is {make_printable(str(message.origin))}'s, which sends nothing this way"
    asked = (message.channel, message.topic)
    if asked == (_STREAM, _DATA):
        if message.streamed[0] == _ANSWERS:
            return ""
        asked = message.streamed
    allowed = (_TO_JOB if job else _TO_SITE).get(message.way, set()) | _UPKEEP
    if asked in allowed or (asked[0] == _ADMIN and message.way == "server" and not job):
        return ""  # what the server asks as an administrator is looked into below
    return f"{make_printable(str(asked[0]))}, {make_printable(str(asked[1]))} is nothing that a job needs"


def _refusal_to_pass_on(message: IncomingMessage, me: str) -> str:
    to_job = message.way == "server" and message.destination.startswith(f"{me}.")
    to_server = message.way == "job" and message.destination.partition(".")[0] == SERVER
    return "" if to_job or to_server else "it is for somebody else"


def poses_as_server(origin: str, peer: str) -> bool:
    """Whether a message that came to the server from a site says that it is the server's: it would be passed on as such.

    Examples
    --------
    >>> poses_as_server("server", "south"), poses_as_server("south", "south"), poses_as_server("server.x", "server.x")
    (True, False, False)
    """
    return origin.partition(".")[0] == SERVER != peer.partition(".")[0]


@dataclass(frozen=True)
class Request:
    """What a site is asked as by an administrator."""

    way: Way
    peer: str
    """As in `IncomingMessage`."""
    topic: object
    headers: Mapping[str, Any]
    body: object
    was_here: bool = False
    """Whether the site has a folder of a job of this name."""
    let_in: bool = False
    """Whether this process has let it be deployed."""


def refusal_of_request(request: Request) -> str:
    """Why a request to the site's administration is refused; empty for one that a job of mooring's needs.

    FLARE asks `authorization.json` only where a request wants it. Here nothing rests on who asks, or in which role.
    """
    topic, job = request.topic, request.headers.get("job_id")
    if request.way == "job":
        own = topic == _NOTIFY and job == request.peer.partition(".")[2]
        return "" if own else "a job can tell of its own state, and nothing else"
    if request.way != "server":
        return "only the server may ask"
    if topic == _STATUS:
        return ""
    if not isinstance(topic, str) or topic not in _OF_A_JOB:
        return f"{make_printable(str(topic))} is nothing that a job needs"
    if topic != CANCEL and not is_job(job):
        return "the job's name is no UUID"
    if topic in (CHECK, START, CANCEL) and request.body:
        return "a job of mooring's asks for no resources"
    if topic in (DEPLOY, START):
        problem = refusal_of_meta(request.headers.get("job_meta"), str(job))
        return problem or (_refusal_to_deploy(request) if topic == DEPLOY else _refusal_to_start(request))
    return ""


def _refusal_to_start(request: Request) -> str:
    """A folder of a job from before there was a guard may hold code, which FLARE would run."""
    return "" if request.let_in else "it was not deployed since this site's process began"


def _refusal_to_deploy(request: Request) -> str:
    name = request.headers.get("app_name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return "the app's name is none"
    if request.was_here:
        return "a job of this name was here, and its folder and log stay"
    return refusal_of_app(request.body)


def refusal_of_meta(meta: object, job: str) -> str:
    """Why what a server says of a job is refused: launchers, images, paths and the like come from there."""
    if not isinstance(meta, dict) or meta.get("job_id") != job:
        return "what is said of the job is not about this job"
    for name in _EMPTY_IN_META:
        if meta.get(name):
            return f"a job of mooring's has no {name}"
    unknown = sorted(make_printable(str(name)) for name in meta if name not in {*_KNOWN_IN_META, *_EMPTY_IN_META})
    if unknown:
        return f"a job of mooring's has no {unknown[0]}"
    if meta.get("submitter_role", "member") not in ROLES:  # FLARE lets a role "super" do everything
        return "its submitter has no role that is known"
    return ""


def refusal_of_app(data: object) -> str:
    """Why an app is refused: it must be, to the byte, what 'mooring flare job' writes for a site, signed or not.

    'nvflare job submit' writes the file anew, and ends it with a newline, which says nothing.
    So it has no code, no settings for logs or resources, and no class or argument but mooring's own.
    """
    if not isinstance(data, bytes) or len(data) > _MOST_BYTES:
        return "the app is too large, or none"
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = [entry for entry in archive.infolist() if entry.filename != "config/"]
            names = [entry.filename for entry in entries]
            strange = [name for name in names if name not in {_CONFIG, _SERVERS_CONFIG, *_SIGNATURES}]
            if strange:
                return f"the app has a file that mooring's has not: {make_printable(str(strange[0]))}"
            if len(names) > _MOST_FILES or len(set(names)) != len(names) or _CONFIG not in names:
                return "the app's files are not those of mooring's"
            if any(entry.file_size > _MOST_BYTES for entry in entries):
                return "the app is too large"
            config = archive.read(_CONFIG)
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, ValueError, OSError, EOFError):
        return "the app cannot be read"
    study = _DIGEST.search(config)
    if study is None or config.removesuffix(b"\n") != to_json(site_config(study[1].decode())):
        return "the app's configuration is not mooring's"
    return ""
