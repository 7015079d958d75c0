"""The automatic part of a desk: it runs the steps that need no person, and exchanges files through a place.

A thread runs the driver of `mooring run`, one pass after another. Questions that only a person can answer stay on the page
until a form answers them. The vault keeps the choice of the place and of the tables, so that a desk continues after a
restart.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from typing import Any

from mooring.atomic_io import make_folder, write_atomically
from mooring.desk.jobs import Job, JobRunner
from mooring.errors import InputError, MooringError, explain_error
from mooring.geometry.backend import is_out_of_memory
from mooring.protocol.driver import Driver, Event, Given, OpenQuestion, Turn
from mooring.protocol.driver.journal import Journal
from mooring.protocol.messages.study import Study
from mooring.protocol.step import Question, Step, Value
from mooring.protocol.steps import state_of
from mooring.protocol.storage.vault import has_vault
from mooring.protocol.transport.addresses import is_presigned, is_url
from mooring.protocol.transport.place import Place
from mooring.protocol.workspace import Workspace
from mooring.serialization import Record, read_record
from mooring.typing import Progress

_PATIENCE = 5.0  # seconds; a pass that takes longer is interrupted, and the next start continues it
_MOST_EVENTS = 40
_WHAT = "the desk's record"


@dataclass(frozen=True)
class Arrangement(Record):
    """A person's choices that a desk remembers."""

    place: str = ""
    """The address of the place; empty if people send files themselves."""
    entries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The tables and columns that were chosen last, by the labels of the questions that asked for them."""


@dataclass
class Guide:
    """A member's driver in a thread, with the questions that it has for a person."""

    workspace: Workspace
    jobs: JobRunner
    arrangement: Arrangement = field(default_factory=Arrangement, repr=False)
    turn: Turn | None = None
    """The state after the last pass; None before the first pass, and after a form has changed something, until the next."""
    problem: MooringError | None = None
    """The error that stopped the last pass; no further pass begins until a form is sent."""
    step: Job | None = None
    """The step that is running."""
    first_wait: float = 2.0
    longest_wait: float = 30.0
    """Shortest and longest wait between passes, in seconds; the wait grows while passes do nothing."""
    events: deque[Event] = field(default_factory=lambda: deque(maxlen=_MOST_EVENTS), repr=False)
    answers: dict[tuple[str, str], bool] = field(default_factory=dict, repr=False)
    """A person's answers, by kind and subject of the question."""
    _driver: Driver | None = field(default=None, repr=False)
    _wake: Signal = field(default_factory=Signal, repr=False)
    _ends: Signal = field(default_factory=Signal, repr=False)

    @contextmanager
    def running(self, place: str = "") -> Iterator[None]:
        """Restore the kept choices, replace the place if one is given, and run the thread while the block runs."""
        if has_vault(self.workspace.vault_folder) and self._path.is_file():
            self.arrangement = read_record(Arrangement, self._path, what=_WHAT, cure="Delete this file.")
        if place:
            self.choose_place(place)
        thread = Thread(target=self._work, name="mooring-guide", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            self._wake.set()
            thread.join(_PATIENCE)

    # Choices and answers

    @property
    def place(self) -> Place | None:
        """The place; None if people send files themselves."""
        return Place(self.arrangement.place) if self.arrangement.place else None

    def choose_place(self, address: str) -> None:
        """Exchange files through a place from now on; with an empty address, people send files themselves."""
        address = address.strip()
        if is_presigned(address):
            Place(address)  # refuses it
        if address and not is_url(address):
            folder = Path(address).expanduser()
            inside = folder.resolve().is_relative_to(self.workspace.root.resolve())
            if not folder.is_absolute() or not folder.is_dir() or inside:
                expected = "the absolute path of a folder that all members reach, outside the desk's folder, or a URL"
                if not folder.is_absolute():
                    got = "a relative path"
                else:
                    got = "a folder inside the desk's folder" if inside else "a folder that does not exist"
                raise InputError("place", expected=expected, got=got, cure="Write /mnt/ward or s3://ward/study.")
            address = str(folder)
        self._keep(replace(self.arrangement, place=address))
        self._driver, self.turn = None, None
        self.go_on()

    def recall(self, question: Question) -> Sequence[str] | None:
        """Return the entries of the last answer to a question; None if it was not answered."""
        return self.arrangement.entries.get(question.label)

    def keep_entries(self, step: Step, entries: Mapping[str, Sequence[str]]) -> None:
        """Keep those answers to a step's questions that other steps offer again and the driver uses."""
        kept = {asked.label: tuple(entries[asked.name]) for asked in step.asks if asked.is_kept}
        self._keep(replace(self.arrangement, entries={**self.arrangement.entries, **kept}))

    def answer(self, kind: str, subject: str, yes: bool) -> None:
        """Take a person's answer to an open question."""
        if (kind, subject) not in {(question.kind, question.subject) for question in self.questions}:
            raise InputError("question", problem="This question is not open.", cure="Load the page again.")
        self.answers[kind, subject] = yes
        if kind == "study" and yes and self.place is None:
            with (journal := self._journal).lock():
                journal.read()
                journal.agree(subject)
        self.go_on()

    def ask_again(self) -> None:
        """Forget all answers that were no."""
        self.answers = {key: yes for key, yes in self.answers.items() if yes}
        self._driver = None
        self.go_on()

    def go_on(self) -> None:
        """Begin the next pass now, also after a problem."""
        self.problem = None
        self._wake.set()

    # State

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """The questions that are open for a person; without a place, only whether the study's fingerprint is right."""
        from mooring.protocol.driver.questions import ask_about_study

        if self.place is not None:
            asked = () if self.turn is None else self.turn.questions
            return tuple(question for question in asked if (question.kind, question.subject) not in self.answers)
        workspace = self.workspace
        if workspace.is_locked or not workspace.has_study or not workspace.study.is_complete:
            return ()
        who = workspace.identify()
        is_asked = who.is_enrolled and who.role != "analyst" and not self.has_compared(workspace.study)
        return (ask_about_study(workspace.study),) if is_asked else ()

    @property
    def refusals(self) -> tuple[str, ...]:
        """The kinds of questions whose answer was no."""
        return tuple(kind for (kind, _), yes in self.answers.items() if not yes)

    def has_compared(self, study: Study) -> bool:
        """Whether a person has compared the fingerprint of a study, or is the analyst who completed it."""
        return self._journal.entries.agreed == study.digest

    def list_left(self) -> list[str]:
        """Return the names of steps that only a person can take now."""
        workspace = self.workspace
        if self.place is None:
            return []
        if not workspace.identify().role:
            return ["join"]
        turn = self.turn
        left = () if turn is None else (*turn.left, *(["report"] if turn.is_finished else []))
        return [
            state.step.name
            for state in state_of(workspace)
            if state.step.command in left and not (state.is_done or state.waits_for)
        ]

    # The thread

    @property
    def _path(self) -> Path:
        return self.workspace.vault_folder / "runs" / "desk.json"

    @property
    def _journal(self) -> Journal:
        return Journal(self.workspace.vault_folder, self.arrangement.place)

    def _keep(self, arrangement: Arrangement) -> None:
        self.arrangement = arrangement
        self._save()

    def _save(self) -> None:
        """Write the choices, once there is a vault."""
        if has_vault(self.workspace.vault_folder) and (self.arrangement.place or self._path.is_file()):
            make_folder(self._path.parent, mode=0o700, what="the vault")
            write_atomically(self._path, self.arrangement.to_json().encode(), mode=0o600, what=_WHAT)

    def _work(self) -> None:
        wait = self.first_wait
        while not self._ends.is_set():
            if self.place is not None and self.problem is None:
                try:
                    with self.jobs.turn:
                        did_something = self._pass()
                    wait = self.first_wait if did_something else min(2 * wait, self.longest_wait)
                except Exception as problem:
                    self.problem = explain_error(problem, is_out_of_memory=is_out_of_memory(problem))
                    if not isinstance(problem, MooringError | OSError) and os.environ.get("MOORING_TRACEBACK"):
                        raise
                finally:
                    self.step = None
            if self._wake.wait(wait):
                wait = self.first_wait
            self._wake.clear()

    def _pass(self) -> bool:
        """Run one pass of the driver, and return whether it did something; before the member has joined, no pass is run."""
        workspace, place = self.workspace, self.place
        if place is None or workspace.is_locked or not (who := workspace.identify()).role:
            return False
        if not self._path.is_file():  # the place was chosen before there was a vault
            self._save()
        is_analyst = who.role == "analyst"
        driver = self._driver  # a request may reset it meanwhile, for example when a no is taken back
        if driver is None or driver.given.is_analyst != is_analyst:
            given = Given({}, is_analyst)
            driver = Driver(workspace, place, given, self._decide, self.events.append, self._show_progress)
            self._driver = driver
        answers = driver.given.answers
        assert isinstance(answers, dict)
        answers.clear()
        answers.update(self._list_answers())
        with driver.lock():
            turn = self.turn = driver.advance()
        return turn.did_something

    def _decide(self, question: OpenQuestion) -> bool | None:
        return self.answers.get((question.kind, question.subject))

    def _list_answers(self) -> dict[str, dict[str, Value]]:
        """Return the kept answers to questions of steps, without answers that name a file which is gone."""
        answers: dict[str, dict[str, Value]] = {}
        for state in state_of(self.workspace):
            for question in state.step.asks:
                entries = self.recall(question)
                if entries is None or not question.is_kept or state.step.consent == "members":
                    continue
                try:
                    value: Any = question.read(entries, self.workspace)
                except InputError:  # the file is gone
                    continue
                answers.setdefault(state.step.name, {})[question.name] = value
        return answers

    @contextmanager
    def _show_progress(self, title: str) -> Iterator[Progress]:
        job = self.step = Job(title)
        try:
            yield job.tell
        finally:
            self.step = None
