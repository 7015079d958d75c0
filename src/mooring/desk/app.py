"""The desk as a web application: one page of steps, uploads into its folder, and the pages that steps wrote."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from mooring.atomic_io import make_folder
from mooring.desk.files import PAGES, find_page, receive
from mooring.desk.jobs import Job, JobRunner
from mooring.desk.session import DOCUMENT_POLICY, Guard, Session
from mooring.errors import InputError, MooringError, explain_error
from mooring.protocol.messages.study import Study
from mooring.protocol.step import Question, Step
from mooring.protocol.steps import StepState, state_of
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import Identity, Outcome, Workspace
from mooring.report.frame import render_page
from mooring.report.step_pages import StepPages
from mooring.typing import Progress

_MOST_FILES, _MOST_FIELDS = 200, 2000  # a field for each card that is enrolled
_SOON = 0.3  # seconds: a step that ends by then is shown at once


def _unlock(workspace: Workspace, *, passphrase: str, command: str, progress: Progress) -> Outcome:
    workspace.opened = Vault.open(workspace.vault_folder, passphrase=passphrase)
    return Outcome(None, {}, ("The vault is open for as long as the desk runs.",))


UNLOCK = Step(
    name="unlock",
    role="everybody",
    title="Unlock the vault",
    explanation="The vault is encrypted. Commands ask for its passphrase each time; the desk asks once.",
    command="",
    phase="",
    asks=(Question("passphrase", "Passphrase of the vault", "password"),),
    run=_unlock,
)


@dataclass(frozen=True)
class Situation:
    """What a desk shows at one time."""

    study: Study | None = None
    who: Identity = field(default_factory=Identity)
    states: Sequence[StepState] = ()
    problem: MooringError | None = None

    @property
    def following(self) -> str:
        """The step to take next: the first that can be taken, else the first that waits; empty if there is none."""
        left = [state for state in self.states if not state.is_done]
        # a participant does not take the designer's steps
        left = [state for state in left if not (self.who.role == "participant" and state.step.role == "designer")]
        left.sort(key=lambda state: (state.step.is_optional, bool(state.waits_for)))
        return left[0].step.name if left else ""


@dataclass
class DeskApplication:
    """The web application of a desk, which answers the requests that its session accepts."""

    workspace: Workspace
    session: Session
    jobs: JobRunner = field(default_factory=JobRunner)
    chosen: dict[str, Sequence[str]] = field(default_factory=dict, repr=False)
    """The last answers by the names of their questions, which other steps offer again."""

    def build(self) -> Starlette:
        """Return the application, with the guard in front of it."""
        routes = [
            Route("/open", self.open),
            Route("/", self.show),
            Route("/step/{name}", self.take_step, methods=["POST"]),
            Route("/upload", self.upload, methods=["POST"]),
            Route("/page/{name}", self.read_page),
        ]
        guard = Middleware(Guard, session=self.session)
        return Starlette(routes=[Mount(self.session.path, routes=routes)], middleware=[guard])

    def look(self) -> Situation:
        """Return the study, the identity of the vault's owner, and the steps that follow."""
        workspace = self.workspace
        if workspace.is_locked:
            return Situation(states=[StepState(UNLOCK, is_done=False, waits_for=())])
        try:
            return Situation(
                workspace.study if workspace.has_study else None, workspace.identify(), state_of(workspace)
            )
        except Exception as problem:
            return Situation(problem=explain_error(problem))

    def open(self, request: Request) -> Response:
        """Give the cookie to a browser whose token the session has checked; a redirect would not send the cookie."""
        page = '<!doctype html><title>mooring desk</title><p><a href="./">Open the desk</a></p>'
        return HTMLResponse(page, headers={"set-cookie": self.session.cookie, "refresh": "0; url=./"})

    def show(self, request: Request) -> Response:
        """Return the page of steps, which reloads itself while a step runs or while it watches the inbox."""
        # A copy: a step that ends while the page is made must not leave a page that says it runs and never reloads.
        job, workspace = replace(self.jobs.last) if self.jobs.last else None, self.workspace
        values = {
            "title": "desk",
            "situation": self.look(),
            "job": job,
            "base": self.session.path,
            "form_token": self.session.form_token,
            "workspace": workspace,
            "chosen": self.chosen,
            "files": workspace.list_files(("",)),
            "inbox": workspace.list_files(("",), folder="inbox"),
            "pages": [name for name in PAGES if find_page(workspace, name)],
            "watches": "watch" in request.query_params,
        }
        page = render_page("desk.html.jinja", values, package=__package__)
        is_running = job is not None and job.is_running
        pause = "1" if is_running else "5" if values["watches"] else ""
        return HTMLResponse(page, headers={"refresh": pause} if pause else {})

    async def take_step(self, request: Request) -> Response:
        """Start a step with the values of its form."""
        async with request.form(max_files=0, max_fields=_MOST_FIELDS) as form:
            return await run_in_threadpool(self._start, request.path_params["name"], form)

    def _start(self, name: str, form: FormData) -> Response:
        title = name
        try:
            self.session.require_form_token(form.get("form_token"))
            state = next((state for state in self.look().states if state.step.name == name), None)
            if state is None or state.waits_for:
                got = (
                    "a step that is not listed" if state is None else f"a step that waits for {state.waits_for[0].what}"
                )
                raise InputError("step", expected="a step that can be taken now", got=got, cure="Load the page again.")
            step, workspace = state.step, self.workspace
            assert step.run is not None
            title = step.title
            entries = {asked.name: [str(value) for value in form.getlist(asked.name)] for asked in step.asks}
            answers = step.read(entries, workspace)
            self.chosen |= {asked.name: entries[asked.name] for asked in step.asks if asked.is_kept}
            command = step.spell(answers, workspace) if step.command else ""
            run = partial(step.run, workspace, **answers, command=command)
            job = self.jobs.start(title, lambda progress: run(progress=progress), command=command)
            if job.thread is not None:
                job.thread.join(_SOON)
        except MooringError as problem:
            self.jobs.show(Job(title, problem=problem))
        return RedirectResponse(f"{self.session.path}/", 303)

    async def upload(self, request: Request) -> Response:
        """Take files from the browser into the folder."""
        async with request.form(max_files=_MOST_FILES, max_fields=10) as form:
            return await run_in_threadpool(self._receive, form)

    def _receive(self, form: FormData) -> Response:
        title = "Put files in"
        try:
            self.session.require_form_token(form.get("form_token"))
            sent = [file for file in form.getlist("files") if isinstance(file, UploadFile) and file.filename]
            if not sent:
                raise InputError("files", expected="one or more", got="none", cure="Choose files first.")
            workspace, may_replace = self.workspace, bool(form.get("replace"))
            workspace.fitted = None  # a table may have other rows now
            taken = [receive(workspace, file.filename or "", file.file, replace=may_replace) for file in sent]
            lines = tuple(f"Took {workspace.show(path)}." for path in taken)
            self.jobs.show(Job(title, outcome=Outcome(None, {}, lines)))
        except Exception as problem:
            self.jobs.show(Job(title, problem=explain_error(problem)))
        return RedirectResponse(f"{self.session.path}/", 303)

    def read_page(self, request: Request) -> Response:
        """Return a page that a step wrote, in a sandbox."""
        path = find_page(self.workspace, request.path_params["name"])
        if path is None:
            return PlainTextResponse("There is no such page.\n", 404)
        return HTMLResponse(path.read_bytes(), headers={"content-security-policy": DOCUMENT_POLICY})


def serve_desk(folder: Path, *, port: int = 0, announce: Callable[[str], None]) -> None:
    """Serve a desk on 127.0.0.1 until it is interrupted; the arguments are those of `make_desk`."""
    listener, application = make_desk(folder, port=port, announce=announce)
    announce(application.session.address)
    make_server(application).run(sockets=[listener])


def make_desk(folder: Path, *, port: int = 0, announce: Callable[[str], None]) -> tuple[socket.socket, DeskApplication]:
    """Return a desk for a folder, which is created if needed, and the socket that the desk listens on.

    Port 0 stands for any free port. `announce` is called with the address to open, and with a new one whenever an address
    has been used.
    """
    make_folder(folder, mode=0o700, what="the desk's folder", tighten=True)
    listener = socket.socket()
    try:
        if os.name != "nt":  # where it would let another program listen there, too
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()  # a browser may come before the server is ready
    except OSError:
        listener.close()
        raise InputError("port", expected="free", got="a port that is in use", cure="Leave --port out.") from None
    session = Session(listener.getsockname()[1], announce)
    return listener, DeskApplication(Workspace.at(folder.resolve(), StepPages()), session)


def make_server(application: DeskApplication) -> uvicorn.Server:
    """Return a server that logs nothing, because addresses and forms hold secrets."""
    config = uvicorn.Config(
        application.build(),
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=1,
    )
    return uvicorn.Server(config)
