"""The desk as a web application: one page of steps, uploads into its folder, and the pages that steps wrote."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
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
from mooring.desk.analyst import list_analyst_steps
from mooring.desk.jobs import Job, JobRunner, Outcome
from mooring.desk.participant import enrolling, fitting, joining, list_participant_steps, unlocking
from mooring.desk.session import DOCUMENT_POLICY, Guard, Session
from mooring.desk.steps import Desk, Step
from mooring.desk.workspace import PAGES, Workspace
from mooring.errors import InputError, MooringError, explain_error
from mooring.protocol.messages.study import Study
from mooring.report import render_page

_MOST_FILES, _MOST_FIELDS = 200, 2000  # a field for each card that is enrolled
_SOON = 0.3  # seconds: a step that ends by then is shown at once


@dataclass(frozen=True)
class Situation:
    """What a desk shows at one time."""

    study: Study | None
    role: str
    name: str
    steps: list[Step]
    problem: MooringError | None = None


@dataclass
class DeskApplication:
    """What a desk answers to the requests that its session lets through."""

    desk: Desk
    session: Session
    jobs: JobRunner = field(default_factory=JobRunner)

    def build(self) -> Starlette:
        """The application, guarded."""
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
        """The study, who this is, and the steps that follow."""
        desk = self.desk
        if desk.is_locked:
            return Situation(None, "", "", [unlocking(desk)])
        try:
            study = desk.read_study()
            role, name, is_enrolled = desk.find_role(study)
            steps = [] if is_enrolled else [replace(joining(desk), is_done=bool(role))]
            if study is not None and study.is_complete and is_enrolled:
                is_analyst = role == "analyst"
                steps += list_analyst_steps(desk, study) if is_analyst else list_participant_steps(desk, study, name)
            elif study is not None:
                steps += [fitting(desk, study)] if role != "analyst" else []
                steps += [enrolling(desk)] if not study.is_complete else []
            return Situation(study, role, name, steps)
        except Exception as problem:
            return Situation(None, "", "", [], explain_error(problem))

    def open(self, request: Request) -> Response:
        """Let a browser in, whose token the session has checked; after a redirect it would not send the new cookie."""
        page = '<!doctype html><title>mooring desk</title><p><a href="./">Open the desk</a></p>'
        return HTMLResponse(page, headers={"set-cookie": self.session.cookie, "refresh": "0; url=./"})

    def show(self, request: Request) -> Response:
        """The page of steps; it loads itself again while a step runs, or where it is asked to watch the inbox."""
        found, job, place = self.look(), self.jobs.last, self.desk.workspace
        apart = ("report", "enrol" if found.role == "participant" else "")  # never waited for, or somebody else's
        left = [one for one in found.steps if not one.is_done and one.name not in apart]
        following = next((one.name for one in sorted(left, key=lambda one: bool(one.obstacle))), "report")
        values = {
            "title": "desk",
            "found": found,
            "following": following,
            "job": job,
            "base": self.session.path,
            "form_token": self.session.form_token,
            "folder": place.root.name,
            "chosen": self.desk.chosen,
            "files": place.list_files(("",)),
            "inbox": place.list_files(("",), folder=place.inbox),
            "pages": [name for name in PAGES if place.find_page(name)],
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
            step = next((one for one in self.look().steps if one.name == name), None)
            if step is None or step.obstacle:
                got = "one that is not" if step is None else step.obstacle
                raise InputError("step", expected="one that can be taken now", got=got, cure="Load the page again.")
            title = step.title
            values = step.read({one.name: [str(value) for value in form.getlist(one.name)] for one in step.fields})
            self.desk.chosen |= {one.name: values[one.name] for one in step.fields if one.is_remembered}
            job = self.jobs.start(step.title, partial(step.run, values))
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
            given = [one for one in form.getlist("files") if isinstance(one, UploadFile) and one.filename]
            if not given:
                raise InputError("files", expected="one or more", got="none", cure="Choose files first.")
            place, may_replace = self.desk.workspace, bool(form.get("replace"))
            self.desk.fitted = None  # a table may be another now
            taken = [place.receive(one.filename or "", one.file, replace=may_replace) for one in given]
            lines = tuple(f"Took {path.relative_to(place.root)}." for path in taken)
            self.jobs.show(Job(title, outcome=Outcome(lines)))
        except Exception as problem:
            self.jobs.show(Job(title, problem=explain_error(problem)))
        return RedirectResponse(f"{self.session.path}/", 303)

    def read_page(self, request: Request) -> Response:
        """A page that a step wrote, without an origin of its own."""
        path = self.desk.workspace.find_page(request.path_params["name"])
        if path is None:
            return PlainTextResponse("There is no such page.\n", 404)
        return HTMLResponse(path.read_bytes(), headers={"content-security-policy": DOCUMENT_POLICY})


def serve_desk(folder: Path, *, port: int = 0, announce: Callable[[str], None]) -> None:
    """Serve a desk on 127.0.0.1 until it is interrupted.

    Parameters
    ----------
    folder : Path
        Where it works.
    port : int
        0 for any that is free.
    announce : callable
        Given the address to open, and a new one each time that one is used.
    """
    listener, application = make_desk(folder, port=port, announce=announce)
    announce(application.session.address)
    make_server(application).run(sockets=[listener])


def make_desk(folder: Path, *, port: int = 0, announce: Callable[[str], None]) -> tuple[socket.socket, DeskApplication]:
    """A desk, and the socket that it is to listen on.

    Parameters
    ----------
    folder : Path
        Where vaults, studies and tables are; a new one is made for this account alone.
    port : int, default 0
        On 127.0.0.1; 0 takes a free one.
    announce : callable
        Called with the page's address.
    """
    make_folder(folder, mode=0o700, what="the desk's folder")
    listener = socket.socket()
    try:
        if os.name != "nt":  # where it would let another program listen there, too
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()  # a browser may come before the server is ready
    except OSError:
        listener.close()
        raise InputError("port", expected="free", got="one that is in use", cure="Leave --port out.") from None
    session = Session(listener.getsockname()[1], announce)
    return listener, DeskApplication(Desk(Workspace(folder.resolve())), session)


def make_server(application: DeskApplication) -> uvicorn.Server:
    """A server that logs nothing: addresses and forms hold secrets."""
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
