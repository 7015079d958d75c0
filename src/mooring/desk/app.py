"""The desk as a web application: one page of steps, uploads into its folder, and the pages that steps wrote."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route

from mooring.atomic_io import make_folder, require_absent, write_atomically
from mooring.desk.drafting import SOURCES, DraftForm, list_mechanisms, start_form
from mooring.desk.files import PAGES, find_page, receive
from mooring.desk.guide import Guide
from mooring.desk.hand_offs import HandOff, find_file, list_hand_offs
from mooring.desk.jobs import Job, JobRunner
from mooring.desk.session import DOCUMENT_POLICY, Guard, Session
from mooring.errors import InputError, MooringError, explain_error, require_choice
from mooring.protocol.driver import OpenQuestion
from mooring.protocol.driver.standing import list_standings
from mooring.protocol.messages.card import card_fingerprint, read_card
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.step import TABLES, Question, Step
from mooring.protocol.steps import StepState, state_of
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import CARDS, Identity, Outcome, Workspace
from mooring.report.frame import render_page
from mooring.report.step_pages import StepPages
from mooring.typing import Progress

_MOST_FILES, _MOST_FIELDS = 200, 2000  # a form has a field per card to enrol, or a few per column of a draft
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
    """The state of a study as a desk shows it."""

    study: Study | None = None
    who: Identity = field(default_factory=Identity)
    states: Sequence[StepState] = ()
    left: Sequence[str] = ()
    """Names of steps that only a person can take; without a place, at most that of unlocking the vault."""
    questions: Sequence[OpenQuestion] = ()
    hand_offs: Sequence[HandOff] = ()
    """Files to send to others; empty if a place is used."""
    card: str = ""
    """Fingerprint of the member's own card, until it is enrolled."""
    problem: MooringError | None = None

    @property
    def following(self) -> str:
        """Name of the step to take next; empty if none is left.

        Required steps come before optional steps; in both groups, steps that can be taken come before steps that wait.
        """
        left = [state for state in self.states if not state.is_done]
        # a participant does not take the designer's steps
        left = [state for state in left if not (self.who.role == "participant" and state.step.role == "designer")]
        left.sort(key=lambda state: (state.step.is_optional, bool(state.waits_for)))
        return left[0].step.name if left else ""


@dataclass(frozen=True)
class View:
    """The parts of the page that a browser asked for."""

    shows_steps: bool
    """Whether all steps and files are listed; otherwise only what a person has to do."""
    is_still: bool
    """Whether the page never reloads itself."""
    watches: bool
    """Whether the page reloads because a person waits for files in the inbox."""

    @classmethod
    def of(cls, query: Mapping[str, str], *, has_place: bool) -> View:
        """Return the view that an address asks for. With a place, steps run automatically and are listed on demand."""
        return cls("steps" in query or not has_place, "still" in query, "watch" in query)

    def pause(self, *, is_idle: bool) -> str:
        """Return after how many seconds the page reloads; empty for never, for example while a form is filled in."""
        waits = self.watches or not (self.shows_steps or is_idle)
        return "5" if waits and not self.is_still else ""


@dataclass
class DeskApplication:
    """The web application of a desk, which answers the requests that its session accepts."""

    workspace: Workspace
    session: Session
    jobs: JobRunner = field(default_factory=JobRunner)
    guide: Guide = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.guide = Guide(self.workspace, self.jobs)

    def build(self) -> Starlette:
        """Return the application, with the guard in front of it."""
        routes = [
            Route("/open", self.open),
            Route("/", self.show),
            Route("/step/{name}", self.take_step, methods=["POST"]),
            Route("/upload", self.upload, methods=["POST"]),
            Route("/answer", self.answer, methods=["POST"]),
            Route("/place", self.choose_place, methods=["POST"]),
            Route("/file/{name:path}", self.hand_off),
            Route("/draft", self.start_draft),
            Route("/draft", self.draft, methods=["POST"]),
            Route("/page/{name}", self.read_page),
        ]
        guard = Middleware(Guard, session=self.session)
        return Starlette(routes=[Mount(self.session.path, routes=routes)], middleware=[guard])

    def look(self) -> Situation:
        """Return the situation: the study, the identity of the vault's owner, the steps, or the problem that hides them."""
        workspace, guide = self.workspace, self.guide
        if workspace.is_locked:
            return Situation(states=[StepState(UNLOCK, is_done=False, waits_for=())], left=[UNLOCK.name])
        try:
            who, states = workspace.identify(), state_of(workspace)
            return Situation(
                workspace.study if workspace.has_study else None,
                who,
                states,
                guide.list_left(),
                guide.questions,
                [] if guide.place else list_hand_offs(workspace, who, states),
                self._find_card_fingerprint(who),
            )
        except Exception as problem:
            return Situation(problem=explain_error(problem))

    def open(self, request: Request) -> Response:
        """Give the cookie to a browser whose token the session has checked.

        The answer is a page that loads the desk, because browsers would not send the cookie if it were a redirect.
        """
        page = '<!doctype html><title>mooring desk</title><p><a href="./">Open the desk</a></p>'
        return HTMLResponse(page, headers={"set-cookie": self.session.cookie, "refresh": "0; url=./"})

    def show(self, request: Request) -> Response:
        """Return the page of steps, which reloads itself while a step runs or while the desk waits for files of others."""
        workspace, guide = self.workspace, self.guide
        turn = guide.turn  # if the guide ends a pass meanwhile, the page loads itself once more
        situation = self.look()
        lacks_table = situation.who.role == "participant" and not workspace.list_files(TABLES)
        is_asking = bool(situation.left or situation.questions or guide.problem or lacks_table)
        # If something is asked, the step that the guide runs is not shown: the page would reload and lose what is typed.
        # `job` is a copy. Otherwise a page that is made while a step ends could say that the step runs, but not reload.
        step, last = None if is_asking else guide.step, self.jobs.last
        job = replace(shown) if (shown := last if last and last.is_running else step or last) else None
        view = View.of(request.query_params, has_place=self.guide.place is not None)
        values = {
            "title": "desk",
            "situation": situation,
            "job": job,
            "base": self.session.path,
            "form_token": self.session.form_token,
            "workspace": workspace,
            "guide": self.guide,
            "lacks_table": lacks_table,
            "files": workspace.list_files(("",)),
            "inbox": workspace.list_files(("",), folder="inbox"),
            "pages": [name for name in PAGES if find_page(workspace, name)],
            "standings": list_standings(self.guide.turn.members) if self.guide.turn else (),
            "view": view,
        }
        page = render_page("desk.html.jinja", values, package=__package__)
        is_finished = turn is not None and turn.is_finished
        pause = "1" if job is not None and job.is_running else view.pause(is_idle=is_asking or is_finished)
        return HTMLResponse(page, headers={"refresh": pause} if pause else {})

    def _find_card_fingerprint(self, who: Identity) -> str:
        """Return the fingerprint of the member's own card; empty once it is enrolled, or if there is none."""
        path = self.workspace.root / f"{who.name}{CARDS[0]}"
        if not who.role or who.is_enrolled or not path.is_file():
            return ""
        return card_fingerprint(*read_card(path))

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
            take, title = step.run, step.title
            assert take is not None
            if step.consent == "share":
                _require_tick(form.get("sure"))
            entries = {asked.name: [str(value) for value in form.getlist(asked.name)] for asked in step.asks}
            answers = step.read(entries, workspace)
            if step.consent == "reading" and self.guide.place is not None and not state.is_done:
                self.guide.keep_entries(step, entries)
                self._leave_to_guide(title)
                return RedirectResponse(f"{self.session.path}/", 303)
            command = step.spell(answers, workspace) if step.command else ""

            def run(progress: Progress) -> Outcome:
                # Entries are kept only once the job has its turn, since the guide acts on kept entries and could also take
                # the step.
                self.guide.keep_entries(step, entries)
                return self._end_step(take(workspace, **answers, command=command, progress=progress))

            job = self.jobs.start(title, run, command=command)
            if job.thread is not None:
                job.thread.join(_SOON)
        except MooringError as problem:
            self.jobs.show(Job(title, problem=problem))
        return RedirectResponse(f"{self.session.path}/", 303)

    def _leave_to_guide(self, title: str) -> None:
        """Let the guide take a step; it may first ask whether the table is read correctly."""
        with self.jobs.turn:
            self.guide.turn = None
        self.jobs.show(Job(title, outcome=Outcome(None, {}, ("The table is chosen, and is being looked at.",))))
        self.guide.go_on()

    def _end_step(self, outcome: Outcome) -> Outcome:
        self.guide.turn = None  # the page then loads itself until the guide has looked again
        self.guide.go_on()
        return outcome

    async def answer(self, request: Request) -> Response:
        """Take a person's answer to a question, or begin again after a problem or a no."""
        async with request.form(max_files=0, max_fields=10) as form:
            return await run_in_threadpool(self._act, "Answer", form, self._answer)

    def _answer(self, entries: Mapping[str, str]) -> None:
        answer = entries.get("answer")
        if answer == "again":
            self.guide.ask_again()
            return
        if answer == "yes":
            _require_tick(entries.get("sure"))
        require_choice("answer", answer, ("yes", "no", "again"), cure="Load the page again.")
        self.guide.answer(entries.get("kind", ""), entries.get("subject", ""), answer == "yes")

    async def choose_place(self, request: Request) -> Response:
        """Exchange files through a place from now on."""
        async with request.form(max_files=0, max_fields=10) as form:
            act = lambda entries: self.guide.choose_place(entries.get("place", ""))  # noqa: E731
            return await run_in_threadpool(self._act, "Place", form, act)

    def _act(self, title: str, form: FormData, act: Callable[[Mapping[str, str]], None]) -> Response:
        """Do what a form asks for, and show the problem if there is one."""
        try:
            self.session.require_form_token(form.get("form_token"))
            act({name: value for name, value in form.items() if isinstance(value, str)})
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
            self.guide.go_on()
        except Exception as problem:
            self.jobs.show(Job(title, problem=explain_error(problem)))
        return RedirectResponse(f"{self.session.path}/", 303)

    def read_page(self, request: Request) -> Response:
        """Return a page that a step wrote, in a sandbox."""
        path = find_page(self.workspace, request.path_params["name"])
        if path is None:
            return PlainTextResponse("There is no such page.\n", 404)
        return HTMLResponse(path.read_bytes(), headers={"content-security-policy": DOCUMENT_POLICY})

    def start_draft(self, request: Request) -> Response:
        """Return the form in which a study is drafted, or ask for the file from which the study takes its columns."""
        source, form, problem = request.query_params.get("source", ""), None, None
        if source:
            try:
                form = start_form(self.workspace, source, request.query_params.get("mechanism", ""))
            except MooringError as found:
                problem = found
        return self._show_draft(form, problem)

    async def draft(self, request: Request) -> Response:
        """Check what was typed, and show the mistakes or the study that it makes, or write the draft."""
        async with request.form(max_files=0, max_fields=_MOST_FIELDS) as form:
            return await run_in_threadpool(self._draft, form)

    def _draft(self, entries: FormData) -> Response:
        form, problem = None, None
        typed = {name: value for name, value in entries.items() if isinstance(value, str)}
        try:
            self.session.require_form_token(typed.get("form_token"))
            form = start_form(self.workspace, typed.get("source", ""), typed.get("mechanism", ""))
            form.fill_in(typed)
            form.judge(self.workspace)
            if form.draft is not None and typed.get("do") == "write":
                path = self.workspace.study_file
                require_absent(path, force=bool(typed.get("replace")))
                write_atomically(path, form.draft.text.encode(), mode=0o600, what="the draft")
                lines = (
                    f"Wrote {self.workspace.show(path)}. It holds no value of a row, except in the ranges and words that "
                    "[ranges] lists as taken from rows.",
                )
                hand_off = (
                    "Everybody joins and sends a card to whoever enrols the members. Send the draft to whoever asks for it.",
                )
                self.jobs.show(Job("Draft the study", outcome=Outcome(None, {}, lines, hand_off)))
                self.guide.go_on()
                return RedirectResponse(f"{self.session.path}/", 303)
        except MooringError as found:
            problem = found
        return self._show_draft(form, problem)

    def _show_draft(self, form: DraftForm | None, problem: MooringError | None) -> Response:
        study = form.draft.study if form and form.draft else None
        values = {
            "title": "draft a study",
            "base": self.session.path,
            "form_token": self.session.form_token,
            "form": form,
            "problem": problem,
            "terms": () if study is None else exchange_of(study).describe_study(study),
            "sources": self.workspace.list_files(SOURCES),
            "mechanisms": list_mechanisms(),
            "has_study": self.workspace.has_study,
        }
        return HTMLResponse(render_page("draft.html.jinja", values, package=__package__))

    def hand_off(self, request: Request) -> Response:
        """Return a file that a step made for others, for the person to send."""
        path = find_file(self.workspace, self.look().hand_offs, request.path_params["name"])
        if path is None:
            return PlainTextResponse("There is no such file.\n", 404)
        return FileResponse(path, filename=path.name, media_type="application/octet-stream")


def _require_tick(tick: object) -> None:
    """Raise an error unless a person has ticked the box above a button whose effect cannot be undone."""
    if not tick:
        raise InputError("answer", problem="The box above the button is not ticked.", cure="Tick it once you are sure.")


def serve_desk(folder: Path, *, port: int = 0, place: str = "", announce: Callable[[str], None]) -> None:
    """Serve a desk on 127.0.0.1 until it is interrupted.

    Files are exchanged through `place` or, if it is empty, through the place that was chosen before, if any. The other
    arguments are those of `make_desk`.
    """
    listener, application = make_desk(folder, port=port, announce=announce)
    with listener, application.guide.running(place):
        announce(application.session.address)
        make_server(application).run(sockets=[listener])


def make_desk(folder: Path, *, port: int = 0, announce: Callable[[str], None]) -> tuple[socket.socket, DeskApplication]:
    """Return the socket that a desk listens on, and the desk for a folder, which is created if needed.

    Port 0 stands for any free port. `announce` is called with a new address whenever an address has been used; the first is
    `session.address` of the application, which the caller announces.
    """
    make_folder(folder, mode=0o700, what="the desk's folder", tighten=True)
    listener = socket.socket()
    try:
        if os.name != "nt":  # on Windows, this option would let another program listen on the same port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()  # a browser may come before the server is ready
    except OSError:
        listener.close()
        got = "a port that is in use or not allowed"
        raise InputError("port", expected="free", got=got, cure="Leave --port out.") from None
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
