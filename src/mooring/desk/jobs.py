"""Steps that run in a thread, one at a time, with their progress."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock, Thread

from mooring.errors import MooringError, RefusedError, explain_error
from mooring.geometry.backend import is_out_of_memory
from mooring.protocol.workspace import Outcome
from mooring.typing import Progress


@dataclass
class Job:
    """A step that runs or has ended."""

    title: str
    command: str = ""
    """The command that does the same in a terminal, in the desk's folder; empty if there is none."""
    done: float = 0.0
    total: float = 0.0
    what: str = ""
    outcome: Outcome | None = None
    problem: MooringError | None = None
    thread: Thread | None = field(default=None, repr=False)

    @property
    def is_running(self) -> bool:
        """Whether the job has neither an outcome nor a problem yet."""
        return self.outcome is None and self.problem is None

    def tell(self, done: float, total: float, what: str = "", /) -> None:
        """Record the progress of the step; an empty `what` keeps the last description."""
        self.done, self.total, self.what = done, total, what or self.what


@dataclass
class JobRunner:
    """Runs one job at a time; the last one is kept to be shown."""

    last: Job | None = None
    turn: Lock = field(default_factory=Lock, repr=False)
    """Held while a step runs, whether a form or the desk itself started it."""
    _starting: Lock = field(default_factory=Lock, repr=False)

    def start(self, title: str, run: Callable[[Progress], Outcome], *, command: str = "") -> Job:
        """Start a step; refuse it while another one runs."""
        with self._starting:
            if self.last is not None and self.last.is_running:
                raise RefusedError(
                    "the step", reason=f"'{self.last.title}' is still running", cure="Wait until it has ended."
                )
            job = self.last = Job(title, command)
            job.thread = Thread(target=_work, args=(job, run, self.turn), name="mooring-desk", daemon=True)
            job.thread.start()
        return job

    def show(self, ended: Job) -> None:
        """Show a job that has ended and had no thread, unless another one is running."""
        with self._starting:
            if self.last is None or not self.last.is_running:
                self.last = ended


def _work(job: Job, run: Callable[[Progress], Outcome], turn: Lock) -> None:
    try:
        with turn:
            job.outcome = run(job.tell)
    except Exception as problem:
        job.problem = explain_error(problem, is_out_of_memory=is_out_of_memory(problem))
        if not isinstance(problem, MooringError | OSError) and os.environ.get("MOORING_TRACEBACK"):
            raise
