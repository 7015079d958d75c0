"""The job that is submitted to FLARE: configuration that names mooring's two classes, and no code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError

if TYPE_CHECKING:  # the guard reads this module in every process of a site's, and needs little of mooring
    from mooring.protocol.messages.study import Study

ANCHOR_TASK, SHARE_TASK, RESULT_TASK = "mooring.anchor", "mooring.share", "mooring.result"
EXECUTOR = "mooring.engines.flare.executor.MooringExecutor"
CONTROLLER = "mooring.engines.flare.controller.MooringController"
_FEWEST_SITES = 2  # alignment needs two; more is for the server's least_sites to ask


def write_job(study: Study, folder: Path) -> None:
    """Write the job's folder; everything in it follows from the study's digest."""
    study.require_roster()
    unfit = [member.name for member in study.participants if "." in member.name]
    if unfit:
        raise InputError(
            "roster",
            expected="names without dots, which FLARE's sites cannot have",
            got=unfit[0],
            cure="Another name makes another study.",
        )
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
    _write(folder / "meta.json", meta)
    _write(config / "config_fed_server.json", server)
    _write(config / "config_fed_client.json", site_config(study.digest))


def site_config(digest: str) -> dict[str, Any]:
    """The part of a job that sites read. The guard lets in nothing else, to the byte."""
    return {
        "format_version": 2,
        "executors": [
            {
                "tasks": [ANCHOR_TASK, SHARE_TASK, RESULT_TASK],
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


def _write(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, to_json(content), what="the job")
