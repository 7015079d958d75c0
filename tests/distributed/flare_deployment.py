"""A FLARE deployment on loopback: provisioned with mTLS, a server, three sites and an administrator, each a process."""

import json
import os
import re
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgpack
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
FRAME, HELLO, PING, PONG = struct.Struct(">IHBBHHHH"), 4, 6, 7
ENVIRONMENT = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": "2",  # FLARE waits 900 s for a dead site before it says that a job is over
}


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for listener in sockets:
        listener.bind(("127.0.0.1", 0))
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def wait_until(true: Callable[[], bool], seconds: float, what: str, *, pause: float = 0.1) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"{what} did not happen within {seconds:g} s"
        time.sleep(pause)


class AdministratorError(Exception):
    """What FLARE would not do for its administrator."""


@dataclass(eq=False)
class Deployment:
    """Kits, and the processes that run from them."""

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

    def alter_server(self) -> None:
        """Have the server send sites what `altered` asks for."""
        (self.place / "altered").mkdir()
        custom, resources = self.local(SERVER) / "custom", self.local(SERVER) / "resources.json"
        custom.mkdir(exist_ok=True)
        shutil.copy(Path(__file__).with_name("flare_altered.py"), custom)
        record = json.loads(resources.read_bytes())
        altered = {"id": "altered", "path": "flare_altered.Altered", "args": {"folder": str(self.place / "altered")}}
        resources.write_text(json.dumps({**record, "components": [*record["components"], altered]}))

    def altered(self, **request: Any) -> Any:
        """What came back when the altered server sent a site this."""
        name = f"{time.monotonic_ns()}"
        folder = self.place / "altered"
        (folder / f"{name}.part").write_text(json.dumps(request))
        os.replace(folder / f"{name}.part", folder / f"{name}.ask")
        wait_until((folder / f"{name}.answer").exists, 60, "an answer of the altered server")
        return json.loads((folder / f"{name}.answer").read_bytes())["answer"]

    def is_heard(self, site: str, *, says: str, certificate: str | None) -> bool:
        """Connect as a local process to where a site's jobs do, and say who one is: whether a ping is answered then."""
        port = int(re.findall(r"internal listener for \w+://localhost:(\d+)", self.log(site))[-1])
        data = msgpack.packb({"endpoint_name": says, "timestamp": 0.0})
        with ExitStack() as stack:
            line = stack.enter_context(socket.create_connection(("localhost", port), timeout=60))
            if certificate is not None:
                kit = self.kit(certificate) / "startup"
                context = ssl.create_default_context(cafile=str(kit / "rootCA.pem"))
                context.check_hostname = False
                context.load_cert_chain(kit / "client.crt", kit / "client.key")
                line = stack.enter_context(context.wrap_socket(line))
            line.settimeout(0.5)
            came, end = b"", time.monotonic() + 60
            try:
                line.sendall(FRAME.pack(FRAME.size + len(data), 0, HELLO, 0, 0, 0, 1, 1) + data)
                while time.monotonic() < end:  # a ping that comes before FLARE has noted who we are is not answered
                    line.sendall(FRAME.pack(FRAME.size, 0, PING, 0, 0, 0, 1, 2))
                    with suppress(TimeoutError):
                        came += line.recv(4096) or _closed()
                    while len(came) >= FRAME.size and len(came) >= FRAME.unpack_from(came)[0]:
                        if FRAME.unpack_from(came)[2] == PONG:
                            return True
                        came = came[FRAME.unpack_from(came)[0] :]
            except (ConnectionError, ssl.SSLError):
                return False
        raise AssertionError("neither answered nor closed")

    def start(self, name: str, **environment: str) -> None:
        """Run a kit's own script; --once leaves out its loop that would start a killed site again."""
        log = (self.place / f"{name}.log").open("ab")
        self.processes[name] = subprocess.Popen(
            ["bash", str(self.kit(name) / "startup" / "sub_start.sh"), "--once"],
            cwd=self.place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=self._environment() | environment,
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
        answer = self._answer()
        if "problem" in answer:
            raise AdministratorError(answer["problem"])
        return answer["answer"]

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
            for member in [*family.children(recursive=True), family]:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
        process.wait(timeout=20)

    def kill_job(self, name: str) -> None:
        """As when a job runs out of memory: its process, and not the site's."""
        family = psutil.Process(self.processes[name].pid).children(recursive=True)
        jobs = [process for process in family if any("worker_process" in word for word in process.cmdline())]
        assert jobs
        for job in jobs:
            job.kill()

    def stop(self) -> None:
        self.log_out()
        for name in list(self.processes):
            self.kill(name)

    def submit(self, job: Path) -> str:
        return str(self.ask(do="submit", job=str(job)))

    def submit_by_command(self, job: Path) -> str:
        """As the page says; FLARE's command writes the job's files anew, which its Python interface does not."""
        words = ["nvflare", "job", "submit", "-j", str(job), "--startup-kit", str(self.kit(LEAD))]
        words[0] = str(Path(sys.executable).with_name(words[0]))
        done = subprocess.run(
            words, cwd=self.place, capture_output=True, text=True, timeout=120, env=self._environment()
        )
        answer = re.search(r"job_id: ([0-9a-f-]{36})", done.stdout)
        assert answer is not None, done.stdout + done.stderr
        return answer[1]

    def finished(self, job_id: str, seconds: float = 120) -> dict[str, Any]:
        """What FLARE says of a job when it is over."""
        over = lambda: self._meta(job_id)["status"].startswith("FINISHED")  # noqa: E731
        wait_until(over, seconds, "the end of the job", pause=0.5)  # FLARE works a while for every answer
        return self._meta(job_id)

    def _meta(self, job_id: str) -> dict[str, Any]:
        return dict(self.ask(do="meta", job=job_id))

    def log(self, name: str) -> str:
        return (self.place / f"{name}.log").read_text(errors="replace")

    def _environment(self) -> dict[str, str]:
        """Its own interpreter first, as in an activated environment."""
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {"PATH": path, "HOME": str(self.place), "NVFLARE_DATUM_DIR": str(self.place / "datums")}
        return os.environ | ENVIRONMENT | environment


def _closed() -> bytes:
    raise ConnectionError("closed")


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
