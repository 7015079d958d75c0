"""The configuration of FLARE: the job that is submitted, which holds no code, and the policy of a kit.

FLARE 2.9 has two protections. `authorization.json` states what each role may do; without the right `byoc`, a job that
carries code is refused. `class_allow_list` in `resources.json` states which installed classes a job may name; FLARE's
default list has dozens. Both assume a server that runs unmodified FLARE. The guard, which resources.json also names, also
protects a site from a modified server.
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

if TYPE_CHECKING:  # the guard imports this module in every process of a site, and needs little of mooring
    from mooring.protocol.messages.study import Study

TASK = "mooring.run"
EXECUTOR = "mooring.engines.flare.executor.MooringExecutor"
CONTROLLER = "mooring.engines.flare.controller.MooringController"
_FEWEST_SITES = 2  # alignment needs two; the server's least_sites can require more
ROLES = ("project_admin", "org_admin", "lead", "member")
GUARDS = {"site": "mooring.engines.flare.guard.SiteGuard", "server": "mooring.engines.flare.guard.ServerGuard"}
_RESOURCES, _AUTHORIZATION, _CONNECTIONS = "resources.json", "authorization.json", "comm_config.json"
_GUARD = "mooring_guard"
_SENDS_LOGS = "site_log_streamer"
# The folder where FLARE stores jobs by default, which all servers on a machine would share; and the entry of resources.json
# with the folder that mooring has set instead. If a kit is moved, this entry shows which stores mooring has set: they move
# along, and stores that an administrator has set stay.
_SHARED_STORAGE, _STORAGE = "/tmp/nvflare", "mooring_storage"
_STORES = ("/snapshot-storage", "/jobs-storage")
_INTERNAL = {"scheme": "tcp", "resources": {"host": "localhost", "connection_security": "mtls"}}
_MOST_BYTES = 2**22
_CAN_SUBMIT = ("project_admin", "lead")
_OWN_ORGANISATION = "o:site"
_OTHERS = 0o077
_RENEWAL_DAYS = 30


def write_job(study: Study, folder: Path) -> None:
    """Write the folder of a job. Its content depends only on the study's name and digest."""
    study.require_roster()
    unfit = [member.name for member in (*study.participants, *study.helpers) if "." in member.name]
    if unfit:
        problem = f"FLARE does not allow dots in names of sites, and the roster has {unfit[0]!r}."
        raise InputError("roster", problem=problem, cure="Enrol this member under another name, in a new study.")
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
    """Return the configuration that sites read. The guard accepts nothing else."""
    return {
        "format_version": 2,
        "executors": [
            {
                "tasks": [TASK],
                "executor": {"path": EXECUTOR, "args": {"study": digest}},
            }
        ],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    }


def to_json(content: dict[str, Any]) -> bytes:
    """Return the JSON text of a configuration."""
    return json.dumps(content, indent=2).encode()


def permissions() -> dict[str, Any]:
    """Return what each role may do at a kit with this policy.

    Every right is listed for every role. A single value for a role, such as FLARE's "project_admin": "any", would allow
    code.

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

    The kit's resources are kept, except for the guard, the classes that a job may name, the streaming of logs to the server,
    and the place where a server stores jobs. Jobs use the kit's certificate to connect to the process that started them;
    by default FLARE lets anybody on the same machine connect there.
    """
    resources = _resources(folder)
    kept = [component for component in resources["components"] if component.get("id") != _GUARD]
    resources["components"] = [{"id": _GUARD, "path": GUARDS[kind], "args": {}}, *kept]
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [EXECUTOR if kind == "site" else CONTROLLER]
    if kind == "site":
        resources["allow_log_streaming"] = False
        resources["components"] = [part for part in resources["components"] if part.get("id") != _SENDS_LOGS]
    else:
        place, before = str(folder.resolve().parent / "storage"), (_SHARED_STORAGE, resources.get(_STORAGE))
        moved = {f"{old}{store}": f"{place}{store}" for old in before for store in _STORES}
        resources = _replaced(resources, moved) | {_STORAGE: place}
    connections = _read_kit_file(folder, _CONNECTIONS) or {}
    connections["internal"] = _INTERNAL
    files = {_RESOURCES: resources, _AUTHORIZATION: permissions(), _CONNECTIONS: connections}
    for name, content in files.items():
        write_atomically(folder / name, to_json(content), what="the policy")


def certificate_end(folder: Path) -> tuple[datetime, str] | None:
    """Return the earliest time at which a certificate of a kit expires, and the file name of that certificate.

    The authority's certificate counts, too. `folder` is the kit's `local` folder. The result is None if no certificate can
    be read.
    """
    from cryptography.x509 import load_pem_x509_certificates

    ends = []
    for path in (folder.resolve().parent / "startup").glob("*.crt"):
        with suppress(OSError, ValueError):
            certificates = load_pem_x509_certificates(path.read_bytes())
            ends += [(certificate.not_valid_after_utc, path.name) for certificate in certificates]
    return min(ends, default=None)


def list_kit_warnings(folder: Path, now: datetime | None = None) -> list[str]:
    """Return warnings about a kit: keys that others on the machine can read, and a certificate that expires soon.

    The authority's key is looked for where the kit was provisioned, and in folders beside the kit.
    """
    kit = folder.resolve().parent
    authority = [*kit.parent.parent.glob("state/cert.json"), *kit.parent.glob("*/*/state/cert.json")]
    keys = dict.fromkeys((kit / "startup").glob("*.key"), "the kit's private key")
    keys |= dict.fromkeys(authority, "the key that signs every certificate")
    warnings = []
    if os.name == "posix":
        bare = {path: what for path, what in keys.items() if _is_open_to_others(path)}
        warnings = [f"Others on this machine can read {what}. Run: chmod 600 {path}" for path, what in bare.items()]
    first = certificate_end(folder)
    if first is not None and (first[0] - (now or datetime.now(UTC))).days < _RENEWAL_DAYS:
        warnings.append(f"The kit's {first[1]} expires on {first[0]:%Y-%m-%d}; after that nobody can connect with it.")
    return warnings


def _resources(folder: Path) -> dict[str, Any]:
    """Return the kit's resources, or the defaults that FLARE provisioned."""
    resources = _read_kit_file(folder, _RESOURCES)
    if resources is not None:
        components = resources.get("components")
        if not isinstance(components, list) or not all(isinstance(part, dict) for part in components):
            raise _refuse_kit_file(_RESOURCES, "JSON without a list of components")
        return resources
    expected, got = "the local folder of a kit from 'nvflare provision'", "a folder without resources.json.default"
    raise InputError("output", expected=expected, got=got, cure="Give the path of the kit's local folder.")


def _read_kit_file(folder: Path, name: str) -> dict[str, Any] | None:
    """Return the content of a kit's file, or of the default that FLARE provisioned, or None."""
    for each in (name, f"{name}.default"):
        path = folder / each
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                content = json.loads(file.read(_MOST_BYTES))
        except OSError:
            raise StorageError("the kit", reason=f"its {each} cannot be read", cure="Check its permissions.") from None
        except (ValueError, RecursionError):
            raise _refuse_kit_file(each, "text that is not JSON") from None
        if not isinstance(content, dict):
            raise _refuse_kit_file(each, f"a JSON {type(content).__name__}")
        return content
    return None


def _refuse_kit_file(name: str, got: str) -> InputError:
    return InputError(name, expected="a JSON object as FLARE writes it", got=got, cure="Provision the kit again.")


def _replaced(content: Any, values: Mapping[str, str]) -> Any:
    """Return the content with some texts replaced."""
    if isinstance(content, dict):
        return {name: _replaced(value, values) for name, value in content.items()}
    if isinstance(content, list):
        return [_replaced(value, values) for value in content]
    return values.get(content, content) if isinstance(content, str) else content


def _is_open_to_others(path: Path) -> bool:
    with suppress(OSError):
        return bool(path.stat().st_mode & _OTHERS)
    return False
