"""A job without FLARE: the sites' tasks, each a pass at a time, in one process."""

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from mooring.engines.flare.chunks import Message
from mooring.engines.flare.client_workflow import ClientWorkflow
from mooring.engines.flare.server_workflow import Answers, JobAbortedError, TaskMessage, answer_of
from mooring.errors import MooringError

Open = Callable[[str, Message], ClientWorkflow]


@dataclass(eq=False)
class SiteTasks:
    """What FLARE does for a job: each `wait` is one pass of every site that is there."""

    open: Open
    """Opens a site's part of the job, given its name and its task."""
    dead: Collection[str] = ()
    """Sites whose job has died, as FLARE notices."""
    silent: Collection[str] = ()
    """Sites that do nothing, which FLARE does not notice."""
    before: Callable[[str], None] = lambda name: None
    """Called before each pass of a site; a `JobAbortedError` aborts the job."""
    problems: dict[str, MooringError] = field(default_factory=dict)
    """The errors of sites that ended with one."""
    n_passes: int = 0
    _messages: dict[str, TaskMessage] = field(default_factory=dict)
    _sites: dict[str, ClientWorkflow] = field(default_factory=dict)
    _locks: dict[str, ExitStack] = field(default_factory=dict)

    def start(self, messages: Mapping[str, TaskMessage]) -> None:
        self._messages = dict(messages)

    def wait(self) -> Answers:
        self.n_passes += 1
        assert self.n_passes < 400, "the job does not end"
        answers: Answers = {}
        for name, message in list(self._messages.items()):
            try:
                self.before(name)
            except JobAbortedError:
                self.close()
                raise
            if name in self.dead:
                answers[name] = {"outcome": "no answer"}
                self._end(name)
            elif name not in self.silent:
                try:
                    answer = self._advance(name, message)
                except MooringError as problem:
                    self.problems[name] = problem
                    answer = {"outcome": type(problem).__name__}
                if answer:
                    answers[name] = answer_of(answer)
                    self._end(name)
        return answers

    def close(self) -> None:
        """Let go of the sites' folders, as FLARE does at the end of a job."""
        for name in list(self._messages):
            self._end(name)

    def _advance(self, name: str, message: TaskMessage) -> dict[str, object]:
        """One pass of a site; its answer when it has ended."""
        if name not in self._sites:
            self._sites[name] = self.open(name, message)
            self._locks[name] = ExitStack()
            self._locks[name].enter_context(self._sites[name].lock())
        return {**self._sites[name].answer(), "outcome": "done"} if self._sites[name].advance() else {}

    def _end(self, name: str) -> None:
        del self._messages[name]
        if name in self._locks:
            self._locks.pop(name).close()
