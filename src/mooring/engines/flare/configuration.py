"""What FLARE is configured with: the job that is submitted, which holds no code, and the policy of a kit.

FLARE 2.9 has two locks. `authorization.json` says what each role may do: without the right `byoc`, a job that carries code
is refused. `class_allow_list` in `resources.json` says which installed classes the configuration of a job may name; the list
that FLARE ships with holds dozens. Both rest on a server that runs FLARE as it is shipped: the guard, which resources.json
names too, does not.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError, StorageError

if TYPE_CHECKING:  # the guard reads this module in every process of a site's, and needs little of mooring
    from mooring.protocol.messages.study import Study

ANCHOR_TASK, SHARE_TASK, RESULT_TASK = "mooring.anchor", "mooring.share", "mooring.result"
CONFIRM_TASK, COMBINE_TASK = "mooring.confirm", "mooring.combine"
EXECUTOR = "mooring.engines.flare.executor.MooringExecutor"
CONTROLLER = "mooring.engines.flare.controller.MooringController"
_FEWEST_SITES = 2  # alignment needs two; more is for the server's least_sites to ask
ROLES = ("project_admin", "org_admin", "lead", "member")
GUARDS = {"site": "mooring.engines.flare.guard.SiteGuard", "server": "mooring.engines.flare.guard.ServerGuard"}
_RESOURCES, _AUTHORIZATION, _CONNECTIONS = "resources.json", "authorization.json", "comm_config.json"
_GUARD = "mooring_guard"
_SENDS_LOGS = "site_log_streamer"
# FLARE's own default for a server, which every server on a machine would use; and what mooring put in its place, told in
# resources.json, so that a kit that was moved takes its stores along and an administrator's own stay where they are
_SHARED_STORAGE, _STORAGE = "/tmp/nvflare", "mooring_storage"
_STORES = ("/snapshot-storage", "/jobs-storage")
_INTERNAL = {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}}
_MOST_BYTES = 2**22
_CAN_SUBMIT = ("project_admin", "lead")
_OWN_ORGANISATION = "o:site"
_OTHERS = 0o077
_RENEWAL_DAYS = 30


def write_job(study: Study, folder: Path) -> None:
    """Write the job's folder; everything in it follows from the study's digest."""
    study.require_roster()
    unfit = [member.name for member in study.participants if "." in member.name]
    if unfit:
        expected = "names without dots, which FLARE's sites cannot have"
        raise InputError("roster", expected=expected, got=unfit[0], cure="Another name makes another study.")
    server = {
        "format_version": 2,
        "workflows": [{"id": "mooring", "path": CONTROLLER, "args": {"study": study.digest}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }
    meta = {
        "name": f"mooring-{study.name}",
        "resource_spec": {},
        "min_clients": _FEWEST_SITES,
        "deploy_map": {"app": ["@ALL"]},
    }
    config = folder / "app" / "config"
    make_folder(config, what="the job")
    write_atomically(folder / "meta.json", to_json(meta), what="the job")
    write_atomically(config / "config_fed_server.json", to_json(server), what="the job")
    write_atomically(config / "config_fed_client.json", to_json(site_config(study.digest)), what="the job")


def site_config(digest: str) -> dict[str, Any]:
    """The part of a job that sites read. The guard lets in nothing else, to the byte."""
    return {
        "format_version": 2,
        "executors": [
            {
                "tasks": [ANCHOR_TASK, SHARE_TASK, CONFIRM_TASK, COMBINE_TASK, RESULT_TASK],
                "executor": {"path": EXECUTOR, "args": {"study": digest}},
            }
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }


def to_json(content: dict[str, Any]) -> bytes:
    """As it is written."""
    return json.dumps(content, indent=2).encode()


def permissions() -> dict[str, Any]:
    """What each role may do at a kit with this policy.

    Every right is spelt out for every role: one word for a role, as in FLARE's own "project_admin": "any", would cover code.

    Examples
    --------
    >>> [permissions()["permissions"][role]["byoc"] for role in ROLES]
    ['none', 'none', 'none', 'none']
    """
    return {
        "format_version": "1.0",
        "permissions": {
            role: {
                "submit_job": "any" if role in _CAN_SUBMIT else "none",
                "clone_job": "n:submitter" if role in _CAN_SUBMIT else "none",
                "manage_job": "n:submitter" if role in _CAN_SUBMIT else "none",
                "download_job": "n:submitter" if role in _CAN_SUBMIT else "none",
                "view": "any",
                "operate": _OWN_ORGANISATION if role != "member" else "none",
                "shell_commands": "none",
                "byoc": "none",
                "server-predeployed-flwr": "none",
            }
            for role in ROLES
        },
    }


def write_policy(folder: Path, kind: Literal["site", "server"]) -> None:
    """Write authorization.json, resources.json and comm_config.json to the `local` folder of a kit that FLARE provisioned.

    The kit's own resources stay as they are, apart from the guard, the classes that a job may name, logs that a site would
    send to the server, and the place where a server keeps jobs. Its jobs connect to the process that started them with the
    kit's certificate: FLARE would let anybody on the same machine connect there.
    """
    resources = _resources(folder)
    kept = [one for one in resources["components"] if one.get("id") != _GUARD]
    resources["components"] = [{"id": _GUARD, "path": GUARDS[kind], "args": {}}, *kept]
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [EXECUTOR if kind == "site" else CONTROLLER]
    if kind == "site":
        resources["allow_log_streaming"] = False
        resources["components"] = [one for one in resources["components"] if one.get("id") != _SENDS_LOGS]
    else:
        place, before = str(folder.resolve().parent / "storage"), (_SHARED_STORAGE, resources.get(_STORAGE))
        moved = {f"{old}{store}": f"{place}{store}" for old in before for store in _STORES}
        resources = _replaced(resources, moved) | {_STORAGE: place}
    connections = _found(folder, _CONNECTIONS) or {}
    connections["internal"] = _INTERNAL
    files = {_RESOURCES: resources, _AUTHORIZATION: permissions(), _CONNECTIONS: connections}
    for name, content in files.items():
        write_atomically(folder / name, to_json(content), what="the policy")


def certificate_end(folder: Path) -> tuple[datetime, str] | None:
    """When the first certificate of a kit ends, the authority's included, and its file; by the kit's `local` folder.

    None where no certificate can be read.
    """
    from cryptography.x509 import load_pem_x509_certificates

    found = []
    for path in (folder.resolve().parent / "startup").glob("*.crt"):
        with suppress(OSError, ValueError):
            found += [(one.not_valid_after_utc, path.name) for one in load_pem_x509_certificates(path.read_bytes())]
    return min(found, default=None)


def list_kit_warnings(folder: Path, now: datetime | None = None) -> list[str]:
    """List what is to be mended in a kit: keys that others on the machine can read, and a certificate that ends soon.

    The authority's key is looked for where the kit was provisioned, and in folders beside the kit.
    """
    kit = folder.resolve().parent
    authority = [*kit.parent.parent.glob("state/cert.json"), *kit.parent.glob("*/*/state/cert.json")]
    keys = dict.fromkeys((kit / "startup").glob("*.key"), "the kit's private key")
    keys |= dict.fromkeys(authority, "the key that signs every certificate")
    found = []
    if os.name == "posix":
        bare = {path: what for path, what in keys.items() if _is_open_to_others(path)}
        found = [f"Others on this machine can read {what}. Run: chmod 600 {path}" for path, what in bare.items()]
    first = certificate_end(folder)
    if first is not None and (first[0] - (now or datetime.now(UTC))).days < _RENEWAL_DAYS:
        found.append(f"The kit's {first[1]} ends on {first[0]:%Y-%m-%d}; after that nobody can connect with it.")
    return found


def _resources(folder: Path) -> dict[str, Any]:
    """What the kit has: its own resources, or those that FLARE provisioned."""
    found = _found(folder, _RESOURCES)
    if found is not None:
        if not isinstance(found.get("components"), list) or not all(isinstance(x, dict) for x in found["components"]):
            raise _not_flares(_RESOURCES)
        return found
    expected, got = "the local folder of a kit that 'nvflare provision' made", "a folder without resources.json.default"
    raise InputError("output", expected=expected, got=got, cure="Give the path of the kit's local folder.")


def _found(folder: Path, name: str) -> dict[str, Any] | None:
    """A file of the kit's, or of those that FLARE provisioned, or None."""
    for each in (name, f"{name}.default"):
        path = folder / each
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                found = json.loads(file.read(_MOST_BYTES))
        except OSError:
            raise StorageError("the kit", reason=f"its {each} cannot be read", cure="Check its permissions.") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise _not_flares(each)
        return found
    return None


def _not_flares(name: str) -> InputError:
    return InputError(name, expected="JSON as FLARE writes it", got="something else", cure="Provision again.")


def _replaced(content: Any, values: Mapping[str, str]) -> Any:
    """The same, with some texts replaced by others."""
    if isinstance(content, dict):
        return {name: _replaced(value, values) for name, value in content.items()}
    if isinstance(content, list):
        return [_replaced(value, values) for value in content]
    return values.get(content, content) if isinstance(content, str) else content


def _is_open_to_others(path: Path) -> bool:
    with suppress(OSError):
        return bool(path.stat().st_mode & _OTHERS)
    return False
