"""A kit's policy: no code from outside, and of installed classes mooring's alone.

FLARE 2.9 has two locks, and both are needed. `authorization.json` says what each role may do: without the right `byoc`, a
job that carries code is refused. `class_allow_list` in `resources.json` says which installed classes the configuration of a
job may name; the list that FLARE ships with holds dozens.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from mooring.engines.flare.job import CONTROLLER, EXECUTOR
from mooring.errors import InputError, StorageError
from mooring.protocol.durable import write_durably

ROLES = ("project_admin", "org_admin", "lead", "member")
_RESOURCES, _AUTHORIZATION = "resources.json", "authorization.json"
_SENDS_LOGS = "site_log_streamer"
_SHARED_PLACE = "/tmp/nvflare"  # FLARE's own default for a server, which every server on a machine would use
_MOST_BYTES = 2**22
_CAN_SUBMIT = ("project_admin", "lead")
_OWN_ORGANISATION = "o:site"


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
    """Write authorization.json and resources.json to the `local` folder of a kit that FLARE provisioned.

    The kit's own resources stay as they are, apart from the classes that a job may name, logs that a site would send to the
    server, and the place where a server keeps jobs.
    """
    resources = _resources(folder)
    resources["class_list_enforcement_mode"] = "enforce"
    resources["class_allow_list"] = [EXECUTOR if kind == "site" else CONTROLLER]
    if kind == "site":
        resources["allow_log_streaming"] = False
        resources["components"] = [one for one in resources["components"] if one.get("id") != _SENDS_LOGS]
    else:
        resources = _moved(resources, str(folder.resolve().parent / "storage"))
    for name, content in ((_RESOURCES, resources), (_AUTHORIZATION, permissions())):
        write_durably(folder / name, json.dumps(content, indent=2).encode(), what="the policy")


def _resources(folder: Path) -> dict[str, Any]:
    """What the kit has: its own resources, or those that FLARE provisioned."""
    for name in (_RESOURCES, f"{_RESOURCES}.default"):
        path = folder / name
        try:
            if not path.is_file():
                continue
            with path.open("rb") as file:
                found = json.loads(file.read(_MOST_BYTES))
        except OSError:
            raise StorageError("the kit", reason=f"its {name} cannot be read", cure="Check its permissions.") from None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not isinstance(found.get("components"), list):
            raise InputError(name, expected="JSON as FLARE writes it", got="something else", cure="Provision again.")
        return found
    raise InputError(
        "output",
        expected="the local folder of a kit that 'nvflare provision' made",
        got="a folder without resources.json.default",
        cure="Give the path of the kit's local folder.",
    )


def _moved(content: Any, place: str) -> Any:
    """The same, with the places that all servers of a machine would share moved into the kit."""
    if isinstance(content, dict):
        return {name: _moved(value, place) for name, value in content.items()}
    if isinstance(content, list):
        return [_moved(value, place) for value in content]
    if isinstance(content, str) and content.startswith(_SHARED_PLACE):
        return place + content.removeprefix(_SHARED_PLACE)
    return content
