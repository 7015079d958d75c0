"""A FLARE deployment on loopback: provisioned with mTLS, a server, three sites and an administrator, each a process."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from .flare_admin import MARK

SERVER, LEAD = "localhost", "lead@analyst.org"
PROJECT = """\
api_version: 3
name: ward
description: three sites and an analyst
participants:
  - {{name: localhost, type: server, org: analyst, fed_learn_port: {port}, admin_port: {admin_port}}}
{sites}
  - {{name: lead@analyst.org, type: admin, org: analyst, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {{template_file: [master_template.yml]}}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "2",  # FLARE waits 900 s for a dead site before it says that a job is over
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def wait_until(true: Callable[[], bool], seconds: float, what: str) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(0.1)


class AdministratorError(Exception):
    """What FLARE would not do for its administrator."""


@dataclass(eq=False)
class Deployment:
    """Kits, and the processes that run from them.

    Attributes
    ----------
    place : Path
    sites : sequence of str
    """

    place: Path
    sites: Sequence[str]
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    admin: subprocess.Popen[str] | None = None

    def kit(self, name: str) -> Path:
        return self.place / "kits" / "ward" / "prod_00" / name

    def local(self, name: str) -> Path:
        return self.kit(name) / "local"

    def provision(self) -> None:
        port, admin_port = free_ports(2)
        sites = "\n".join(f"  - {{name: {name}, type: client, org: {name}}}" for name in self.sites)
        project = self.place / "project.yml"
        project.write_text(PROJECT.format(port=port, admin_port=admin_port, sites=sites))
        nvflare = Path(sys.executable).with_name("nvflare")
        words = [str(nvflare), "provision", "-p", str(project), "-w", str(self.place / "kits")]
        done = subprocess.run(
            words, cwd=self.place, capture_output=True, text=True, timeout=60, env=self._environment()
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self, name: str) -> None:
        """Run a kit's own script; --once leaves out its loop that would start a killed site again."""
        log = (self.place / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            ["bash", str(self.kit(name) / "startup" / "sub_start.sh"), "--once"],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self._environment(),
            start_new_session=True,
        )
        log.close()

    def start_all(self) -> None:
        for name in (SERVER, *self.sites):
            self.start(name)

    def log_in(self) -> None:
        """Log in as the administrator, anew if need be, and wait until everybody is connected."""
        self.log_out()
        log = (self.place / "admin.log").open("wb")
        self.admin = subprocess.Popen(
            [sys.executable, "-u", str(Path(__file__).with_name("flare_admin.py")), LEAD, str(self.kit(LEAD))],
            cwd=self.place,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=self._environment(),
        )
        log.close()
        self._answer()
        self.wait_for_sites(self.sites)

    def log_out(self) -> None:
        if self.admin is not None:
            self.admin.kill()
            self.admin.communicate()
            self.admin = None

    def ask(self, **request: str) -> Any:
        assert self.admin is not None
        assert self.admin.stdin is not None
        self.admin.stdin.write(json.dumps(request) + "\n")
        self.admin.stdin.flush()
        found = self._answer()
        if "problem" in found:
            raise AdministratorError(found["problem"])
        return found["answer"]

    def _answer(self) -> Any:
        assert self.admin is not None
        assert self.admin.stdout is not None
        for line in self.admin.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise AssertionError(f"the administrator is gone: {(self.place / 'admin.log').read_text()[-2000:]}")

    def wait_for_sites(self, names: Sequence[str]) -> None:
        wait_until(lambda: set(names) <= self.connected(), 120, f"{', '.join(names)} connecting")

    def connected(self) -> set[str]:
        return set(self.ask(do="sites"))

    def kill(self, name: str) -> None:
        """As when a machine loses its power: the site's process and those of its jobs."""
        process = self.processes.pop(name)
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid)
            for one in [*family.children(recursive=True), family]:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
        process.wait(timeout=20)

    def stop(self) -> None:
        self.log_out()
        for name in list(self.processes):
            self.kill(name)

    def submit(self, job: Path) -> str:
        return str(self.ask(do="submit", job=str(job)))

    def finished(self, job_id: str, seconds: float = 120) -> dict[str, Any]:
        """What FLARE says of a job when it is over."""
        wait_until(lambda: self._meta(job_id)["status"].startswith("FINISHED"), seconds, "the end of the job")
        return self._meta(job_id)

    def _meta(self, job_id: str) -> dict[str, Any]:
        return dict(self.ask(do="meta", job=job_id))

    def log(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text(errors="replace")

    def _environment(self) -> dict[str, str]:
        """Its own interpreter first, as in an activated environment."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return os.environ | ENVIRONMENT | {"PATH": path, "HOME": str(self.place)}


def write_hostile_job(folder: Path, *, executor: str, code: str | None) -> Path:
    """A job that asks sites to run something else: code that it carries, or a class that is installed."""
    config = folder / "app" / "config"
    config.mkdir(parents=True)
    sites = {"format_version": 2, "executors": [{"tasks": ["train"], "executor": {"path": executor, "args": {}}}]}
    server = {
        "format_version": 2,
        "workflows": [
            {"id": "w", "path": "mooring.engines.flare.controller.MooringController", "args": {"study": "x"}}
        ],
    }
    meta = {"name": "hostile", "resource_spec": {}, "min_clients": 1, "deploy_map": {"app": ["@ALL"]}}
    (folder / "meta.json").write_text(json.dumps(meta))
    (config / "config_fed_server.json").write_text(json.dumps(server))
    (config / "config_fed_client.json").write_text(json.dumps(sites))
    if code is not None:
        (folder / "app" / "custom").mkdir()
        (folder / "app" / "custom" / "spy.py").write_text(code)
    return folder
