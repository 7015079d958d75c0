"""The server's part of a FLARE job: it runs the analyst's steps, and keeps the place where sites put and fetch files.

This module does not import FLARE. The analyst's folder is laid out as for 'mooring run', so any command can continue from
where a job stopped: `analysis` is the work folder, and `place` holds what members exchange. Files for a single member
are sealed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from mooring.atomic_io import make_folder, write_atomically
from mooring.engines.flare.chunks import SUBMIT_AGAIN
from mooring.engines.flare.place import ServedPlace
from mooring.engines.flare.settings import COMMAND, ServerSettings, Tell, open_workspace, report_event
from mooring.errors import InputError, MooringError, RefusedError
from mooring.protocol.analyst.trained_model import TRAINING_FILE
from mooring.protocol.driver import Driver, Event, Given, Standing, Turn
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.results import GatherRecord
from mooring.protocol.step import AWAITED_BUNDLES, Value
from mooring.protocol.transport.addresses import make_printable
from mooring.serialization import read_record

PLACE, RECORD = "place", "flare.json"
_ANSWER_FIELDS = ("outcome", "model")
_SILENT = {"outcome": "no answer"}
TaskMessage = dict[str, str | int]
Answers = dict[str, dict[str, Any]]


class JobAbortedError(MooringError):
    """Raised when the job is aborted while it waits for sites."""


class Tasks(Protocol):
    """The tasks of a job's sites. Each site has one task, which lasts as long as the job."""

    def start(self, messages: Mapping[str, TaskMessage]) -> None:
        """Give each site its task."""

    def wait(self) -> Answers:
        """Wait a moment, and return the answers of sites whose task ended meanwhile.

        The outcome of a site that died is "no answer".
        """


@dataclass(eq=False)
class ServerWorkflow:
    """The analyst in a job."""

    settings: ServerSettings
    driver: Driver
    place: ServedPlace
    not_awaited: set[str]
    """Members for whose files the driver does not wait."""
    tell: Tell = field(default=lambda words: None, repr=False)
    """Writes a line to the server's log."""
    job: str = ""
    """FLARE's identifier of the job."""
    answers: Answers = field(default_factory=dict, repr=False)
    """The answers of sites that were given a task."""
    _lock: ExitStack = field(default_factory=ExitStack, repr=False)
    _members: tuple[Standing, ...] = ()
    """Who has done what, as the files at the place show."""
    _since: float = 0.0
    """When the run last took a step or found a new file at the place."""
    _known: frozenset[str] = frozenset()
    """The files that were at the place then."""

    @classmethod
    def opened(cls, folder: Path, digest: object, tell: Tell, job: str = "") -> ServerWorkflow:
        """Read the settings in a kit's local folder, and lock the analyst's folder until `close`.

        A job for a different study is refused, and so is a job while another one runs in the same folder.
        """
        settings = ServerSettings.read(folder)
        study = Study.read(settings.study)
        study.require_roster()
        study.require_same({"study": digest}, what="the job")
        workspace = open_workspace(settings)
        if workspace.identify().role != "analyst":
            raise RefusedError(
                "the job",
                reason="the server's vault does not belong to the study's analyst",
                cure="In the server's mooring.toml, name the vault that the analyst joined with.",
            )
        settings.require_learner(study)
        make_folder(settings.folder / PLACE, mode=0o700, what="the place")
        place, not_awaited = ServedPlace(settings.folder / PLACE, study), set[str]()
        is_gathered = (workspace.analysis / f"{exchange_of(study).gather_record}.json").is_file()
        given: dict[str, dict[str, Value]] = {
            "align": {"mode": "late" if settings.late and is_gathered else "again"},
            "train": {"learner": settings.learner, "seed": settings.seed},
        }
        driver = Driver(
            workspace,
            place.place,
            Given(given, without=not_awaited, patience=-(-settings.wait_seconds // 60)),
            command=COMMAND,
        )
        part = cls(settings, driver, place, not_awaited, tell, job)
        driver.tell = part._note
        part._lock.enter_context(driver.lock())
        driver.post.journal.agree(study.digest)
        return part

    def close(self) -> None:
        """Release the folder, and refuse further requests."""
        self.place.close()
        self._lock.close()

    @property
    def study(self) -> Study:
        """The study."""
        return self.place.study

    def run(self, connected: Iterable[str], tasks: Tasks) -> tuple[str, ...]:
        """Run the whole job with the connected sites in the roster, and record their answers.

        Returns the participants who did not finish or were left out, and the helpers with steps that are not done. If the
        job is aborted, `tasks.wait` raises a `JobAbortedError`, which ends the run and is recorded.
        """
        here = set(connected)
        sites = [name for name in self._list_sites() if name in here]
        self.tell(f"connected sites of the study: {', '.join(sites) or 'none'}")
        self.record("running")
        try:
            self._serve(sites, tasks)
        except JobAbortedError:
            self.record("aborted")
        except MooringError as problem:
            self.record("failed", str(problem))
            raise
        else:
            self.record("incomplete" if self.missing else "done")
        return self.missing

    def _serve(self, sites: list[str], tasks: Tasks) -> None:
        """Take the analyst's steps as files come, until all are done; then wait for the sites to fetch what is theirs."""
        self.place.absent |= {name for name in self._list_sites() if name not in sites}
        self._expect_newcomers(sites)
        self._since = time.monotonic()
        self.answers |= dict.fromkeys(sites, _SILENT)
        tasks.start({name: {"study": self.study.digest, "ticket": self.place.issue_ticket(name)} for name in sites})
        while not (turn := self._advance()).is_finished:
            self._await_files(turn)
            self._hear(tasks)
        self.place.is_over = True
        end = time.monotonic() + self.settings.wait_seconds
        while not set(sites) <= self.place.absent and time.monotonic() < end:
            self._hear(tasks)

    def _advance(self) -> Turn:
        turn = self.driver.advance()
        if turn.away:
            raise InputError("the place", problem=turn.away, cure=SUBMIT_AGAIN)
        self._members = turn.members
        if turn.did_something or not self._known.issuperset(self.driver.post.files):
            self._since, self._known = time.monotonic(), frozenset(self.driver.post.files)
        return turn

    def _note(self, event: Event) -> None:
        """Write what the run did to the log, and refuse to train on too few contributions."""
        report_event(event, self.tell)
        gathered = None if event.outcome is None else event.outcome.result
        if isinstance(gathered, GatherRecord):
            self._require(len(gathered.list_states()), self.settings.least_sites, "valid bundles")

    def _hear(self, tasks: Tasks) -> None:
        """Note the answers of sites whose task has ended: no more files of theirs will come."""
        for name, answer in tasks.wait().items():
            self.answers[name] = answer
            self.place.absent.add(name)
            self.tell(f"{name}: {answer.get('outcome')}")

    def _expect_newcomers(self, sites: Iterable[str]) -> None:
        """Let the run gather, train and deliver again if further sites can join, or if too few contributions were gathered.

        With `late`, a model that exists is not trained again.
        """
        gathered = self._read_gathered()
        self.driver.post.list()
        if gathered is None or self.driver.is_closed:
            return
        states = gathered.list_states()
        are_newcomers = any(member.name in sites and member.name not in states for member in self.study.participants)
        if are_newcomers or len(states) < self.settings.least_sites:
            has_model = (self.driver.workspace.analysis / TRAINING_FILE).is_file()
            self.driver.repeat("align", "deliver", *([] if self.settings.late and has_model else ["train"]))

    def _await_files(self, turn: Turn) -> None:
        """Go on without members whose files are awaited in vain; raise an `InputError` if too few files are left for that.

        A member's files are awaited in vain once its site has gone, or if no new file came for `wait_seconds`.
        """
        waiting = next((waiting for waiting in turn.waits if waiting.senders), None)
        if waiting is None:
            lacking = " and ".join(lack for waiting in turn.waits for lack in waiting.lacks) or "files"
            problem = f"The analyst's steps lack {lacking}, and no site is left that could send them."
            raise InputError("files", problem=problem, cure=SUBMIT_AGAIN)
        senders = set(waiting.senders)
        if not senders <= self.place.absent and time.monotonic() - self._since > self.settings.wait_seconds:
            self.tell(f"no longer waiting for {', '.join(waiting.senders)}")
            self.place.absent |= senders
        if senders <= self.place.absent:
            self._require_enough(waiting.step)
            self.not_awaited |= senders

    def _require_enough(self, step: str) -> None:
        """Raise an `InputError` if too few of the files that a step awaits came or can still come."""
        workspace = self.driver.workspace
        (waiting,) = (state.step for state in self.driver.list_own_states() if state.step.name == step)
        for each in waiting.awaits or ():
            missing, _ = each.list_missing(workspace)
            n_left = len(list(each.names(workspace))) - len(self.place.absent.intersection(missing))
            least = 0 if each.enough is None else each.enough(workspace)
            least = max(least, self.settings.least_sites if each == AWAITED_BUNDLES else 0)
            self._require(n_left, least, f"{each.file.rpartition('.')[2]}s")

    def _require(self, number: int, least: int, what: str) -> None:
        if number < least:
            problem = f"The number of {what} that came or can still come is {number}, and {least} are needed."
            cure = "Files that arrived are kept. Submit the job again when the other sites are running."
            raise InputError(what, problem=problem, cure=cure)

    def _read_gathered(self) -> GatherRecord | None:
        """Return the record of the contributions that were gathered, if there is one."""
        path = self.driver.workspace.analysis / f"{exchange_of(self.study).gather_record}.json"
        if not path.is_file():
            return None
        return read_record(GatherRecord, path, what="the record of contributions", cure="Restore it from a backup.")

    @property
    def left_out(self) -> dict[str, str]:
        """Participants whose contribution is not in the result, and why."""
        gathered = self._read_gathered()
        states, left_out = (gathered.list_states(), gathered.list_left_out()) if gathered is not None else ({}, {})
        names = [member.name for member in self.study.participants if member.name not in states]
        return {**dict.fromkeys(names, "it has no valid bundle"), **left_out}

    @property
    def missing(self) -> tuple[str, ...]:
        """Participants who did not finish or were left out, and helpers with steps that are not done."""
        left_out = self.left_out
        names = [member.name for member in self.study.participants]
        missing = [name for name in names if self.answers.get(name, {}).get("outcome") != "done" or name in left_out]
        helpers = [helper.name for helper in self.study.helpers]
        return *missing, *(member.name for member in self._members if member.name in helpers and member.left)

    def record(self, outcome: str, reason: str | None = None) -> None:
        """Record the state of the job, what each member has done, and the answers of sites."""
        is_running = outcome == "running"
        done = {member.name: member.done for member in self._members}
        record = {
            "study": self.study.digest,
            "job": self.job,
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "outcome": outcome,
            "reason": reason,
            "missing": () if is_running else self.missing,
            "left_out": {} if is_running else self.left_out,
            "sites": {name: {"done": done.get(name, ()), **self.answers.get(name, {})} for name in self._list_sites()},
        }
        text = json.dumps(record, indent=2, ensure_ascii=False).encode()
        write_atomically(self.settings.folder / RECORD, text, what="the record")

    def _list_sites(self) -> list[str]:
        return [member.name for member in (*self.study.participants, *self.study.helpers)]


def answer_of(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known entries of a site's reply, safe to write into a record that people read."""
    return {name: make_printable(value) for name in _ANSWER_FIELDS if isinstance(value := reply.get(name), str)}
