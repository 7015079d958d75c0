"""The driver takes a member's steps, each as soon as its inputs are there, and exchanges files with a place.

It follows the list of steps. One pass (`Driver.advance`) fetches the files that are addressed to the member, runs
the steps that are ready, and puts the files that they made at the place. If a pass is interrupted, the next one continues:
it finds in the folder what steps have made, compares what was put with the files at the place, and does not accept an older
version of a file again. Nothing depends on clocks, except for how long a step waits for files that it can do without.
`Driver.look` reports the state and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from mooring.atomic_io import copy_atomically, make_folder
from mooring.errors import RefusedError
from mooring.protocol.common_steps import BUNDLE, FITTING, TABLE
from mooring.protocol.driver.agreement import Agreement
from mooring.protocol.driver.causes import Causes
from mooring.protocol.driver.journal import Journal
from mooring.protocol.driver.post import AwayError, Event, Post
from mooring.protocol.driver.questions import (
    Decide,
    Given,
    OpenQuestion,
    ask_about_members,
    ask_about_reading,
    ask_about_sharing,
    ask_about_study,
)
from mooring.protocol.driver.routes import Route, bound_bytes, check_routed, find_member, list_routes
from mooring.protocol.driver.standing import Standing, standing_of
from mooring.protocol.messages import envelope
from mooring.protocol.registry import exchange_of
from mooring.protocol.step import AGREED, Item, Step, Value
from mooring.protocol.steps import StepState, find_step, state_of
from mooring.protocol.transport.place import ExchangePlace
from mooring.protocol.workspace import Workspace
from mooring.serialization import Record
from mooring.typing import Progress

COMMAND, CHECK, GATHER = "mooring run", "check", "align"


@dataclass(frozen=True)
class Waiting(Record):
    """A step that cannot run yet."""

    step: str
    title: str
    lacks: tuple[str, ...] = ()
    """Inputs that are missing."""
    members: tuple[str, ...] = ()
    """Members that the step waits for: each sender of a missing file or, if the sender has to wait itself, the members that
    the sender waits for."""
    senders: tuple[str, ...] = ()
    """Senders of missing files, whether or not they wait for others."""
    most_minutes: int = 0
    """For how many minutes the step waits at most, if it can do without the missing files; 0 if it cannot."""

    def __str__(self) -> str:
        words = f"'{self.title}' waits for {', '.join(self.members) or ' and '.join(self.lacks)}"
        if self.most_minutes:
            words += f", for {self.most_minutes} minutes at most, because the files that are there suffice"
        return f"{words}."


@dataclass(frozen=True)
class Turn(Record):
    """The state of a member's run after a pass."""

    did_something: bool
    waits: tuple[Waiting, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()
    """Questions that nobody has answered yet."""
    left: tuple[str, ...] = ()
    """Commands of steps that are ready but were not taken, because a person has to answer their questions or to start the
    run."""
    members: tuple[Standing, ...] = ()
    """Who has done what, as the files at the place show."""
    is_finished: bool = False
    """Whether nothing is left to do or to wait for, or the member refused to share."""
    away: str = ""
    """Why the place could not be reached; empty if it was."""

    def state_waiting(self) -> str:
        """Return sentences on what the run waits for, and for whom."""
        if self.away:
            return f"The place cannot be reached, and will be tried again: {self.away}"
        parts = [f"Not answered yet: {question.words}" for question in self.questions]
        on_table = tuple(waiting for waiting in self.waits if FITTING.what in waiting.lacks)  # nobody else can help
        of_members = tuple(waiting for waiting in self.waits if waiting.members)
        parts += [
            str(waiting) for waiting in (on_table or of_members or self.waits)[:1]
        ]  # later steps wait for the first
        return " ".join(parts) or "Waiting for the files of others."


@dataclass
class Driver:
    """Runs the steps of one member, who exchanges files at one place."""

    workspace: Workspace
    place: ExchangePlace | None
    """Where files are exchanged; None to use the member's folder alone."""
    given: Given = field(default_factory=Given)
    decide: Decide = lambda question: None
    """Asks a person; None for no answer yet."""
    tell: Callable[[Event], None] = lambda event: None
    progress: Callable[[str], AbstractContextManager[Progress | None]] = lambda title: nullcontext()
    """Shows the progress of a step while it runs, given its title."""
    command: str = COMMAND
    """The command that is written into the records of steps."""
    _tried: dict[str, object] = field(default_factory=dict, repr=False)
    """For each step that ran: the state of the folder afterwards. The step does not run again until this state changes."""
    _declined: set[str] = field(default_factory=set, repr=False)
    """Subjects of the questions that were answered with no, and "share" if sharing was refused."""
    _open: list[OpenQuestion] = field(default_factory=list, repr=False)
    """Questions of this pass that nobody has answered."""
    _repeated: list[str] = field(default_factory=list, repr=False)
    """Names of the steps that are still to be taken again although they are done, in their order."""

    def __post_init__(self) -> None:
        journal = Journal(self.workspace.vault_folder, self.place.address if self.place else "")
        self.post = Post(self.place, journal, lambda event: self.tell(event))
        self.agreement = Agreement(self.workspace, self.post, self.given, self._answer)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Refuse a second run on this vault at this place while the block runs."""
        with self.post.journal.lock():
            self.post.journal.read()
            yield

    def advance(self) -> Turn:
        """Fetch files, run steps and put what they made at the place. The lock must be held.

        If the place cannot be reached, the result says so, and the next pass tries again. An error of a step is raised.
        """
        did_something = False
        while True:
            away, self._open = self.post.list(), []
            waits, left = list[Waiting](), list[Step]()
            try:
                moved = not away and self._fetch()
                moved |= self._take(waits, left)
                moved |= not away and self._put()
            except AwayError as problem:
                away, moved = str(problem), False
            if not moved:
                return self._conclude(did_something, waits, self._open, left, away)
            did_something = True

    def repeat(self, *names: str) -> None:
        """Let later passes take steps again although they are done, one after the other, once their inputs are there."""
        self._repeated = [state.step.name for state in self.list_own_states() if state.step.name in names]

    @property
    def is_closed(self) -> bool:
        """Whether gathering has made a file for others, such as a closing list: later bundles come too late."""
        routes = list_routes(self.workspace.study) if self.agreement.is_reached else ()
        closing = [route for route in routes if route.step.name == GATHER]
        return any(
            route.at_place.path in self.post.files or (self.workspace.root / route.source).is_file()
            for route in closing
        )

    def look(self) -> Turn:
        """Return the state of the run, without fetching files, running steps or putting files."""
        away, waits, left = self.post.list(), list[Waiting](), list[Step]()
        for state in self.list_own_states():
            if not self._is_done(state):
                waiting = self._weigh(state)
                waits += [] if waiting is None else [waiting]
                left += [state.step] if waiting is None else []
        is_open = AGREED.is_there(self.workspace) and not self.agreement.is_reached and not self.given.is_analyst
        return self._conclude(False, waits, [ask_about_study(self.workspace.study)] if is_open else [], left, away)

    def _conclude(
        self, did_something: bool, waits: list[Waiting], questions: list[OpenQuestion], left: list[Step], away: str
    ) -> Turn:
        stays_out = "share" in self._declined
        is_finished = stays_out or (not (away or waits or questions) and self._is_finished())
        members = standing_of(self.workspace.study if self.agreement.is_reached else None, self.post.files)
        commands = tuple(step.command for step in left)
        return Turn(did_something, tuple(waits), tuple(questions), commands, members, is_finished, away)

    # Files

    def _fetch(self) -> bool:
        return self._fetch_files() if self.agreement.is_reached else self.agreement.advance()

    def _put(self) -> bool:
        """Put the card, the study, and the files that finished steps have made for others; return whether any was put."""
        workspace, who = self.workspace, self.workspace.identify()
        if not who.role:
            return False
        moved = self.agreement.put()
        done = {state.step.name for state in self.list_own_states() if state.is_done}
        for route in self._list_own_routes():
            source = workspace.root / route.source
            if route.step.name in done and source.is_file() and route.only_recipient != who.name:
                moved |= self.post.put(self._seal(route, source), route.at_place, grows=route.grows)
        return moved

    def _seal(self, route: Route, source: Path) -> Path:
        """Return what goes to the place: for a single recipient, an envelope that is made once; else the file itself."""
        if not route.only_recipient:
            return source
        if (beside := envelope.envelope_of(source)).is_file():  # the step sealed it
            return beside
        study, digest = self.workspace.study, self.post.hash_own(source)
        recipient = find_member(study, route.only_recipient)
        assert recipient is not None
        folder = self.post.journal.folder / "outbox"
        make_folder(folder, mode=0o700, what="the vault")
        sealed = folder / f"{digest[:32]}-{route.only_recipient}{envelope.SUFFIX}"
        if not sealed.is_file():
            signer = self.workspace.vault.signing_key
            envelope.seal_file(source, sealed, study=study, recipient=recipient, signer=signer, name=route.name)
        return sealed

    def _fetch_files(self) -> bool:
        """Fetch the study's files for this member, and return whether any came."""
        study, own_name, moved = self.workspace.study, self.workspace.identify().name, False
        for route in list_routes(study):
            if own_name not in route.arrivals:
                continue
            target = self.workspace.root / route.arrivals[own_name]
            if route.sender == own_name:
                moved |= self._hand_to_self(self.workspace.root / route.source, target)
                continue
            file = self.post.files.get(route.at_place.path)
            if file is not None:
                moved |= self.post.take_in(file, target, bound_bytes(study), self._checker(route), grows=route.grows)
        return moved

    def _hand_to_self(self, source: Path, target: Path) -> bool:
        """Copy a file of this member to where its own steps look for it, and return whether a copy was needed."""
        if not source.is_file() or source == target:
            return False
        if target.is_file() and self.post.hash_own(source) == self.post.hash_own(target):
            return False
        make_folder(target.parent, mode=0o700, what="the folder")
        copy_atomically(source, target, mode=0o600, what="the file")
        return True

    def _checker(self, route: Route) -> Callable[[Path], None]:
        """Return a function that checks a file of a route, and replaces an envelope by its content."""
        vault, study = self.workspace.vault, self.workspace.study

        def check(path: Path) -> None:
            signer = check_routed(path, route, study)
            if route.only_recipient:
                envelope.open_envelope(path, path, study=study, reader=vault, name=route.name, senders={signer})

        return check

    # Steps

    def list_own_states(self) -> list[StepState]:
        """Return the steps that a run takes for this member, with their states.

        Once it is too late for bundles, the step that shares rows is left out unless it is done: it would spend privacy
        budget for nothing.
        """
        return [
            state
            for state in state_of(self.workspace)
            if state.step.awaits is not None
            and (self.given.is_analyst or state.step.role != "designer")
            and (state.is_done or state.step.consent != "share" or not self.is_closed)
        ]

    def _weigh(self, state: StepState, *, note: bool = False) -> Waiting | None:
        """Return what a step waits for; None if it can run. With `note`, the journal records when the wait began."""
        step = state.step
        if AGREED in step.needs and not self.agreement.is_reached:
            return Waiting(step.name, step.title, (AGREED.what,))
        missing, most_minutes = self._list_awaited(step, note=note) if AGREED in step.needs else ([], 0)
        has_table = any("data" in answers for answers in self.given.answers.values())  # it may lie in another folder
        lacking = [item for item in state.waits_for if not (item == TABLE and has_table)]
        missing += [route for item in lacking for route in self._list_arriving(item)]
        lacks, senders = tuple(item.what for item in lacking), tuple(dict.fromkeys(route.sender for route in missing))
        members = self._name_causes(missing)
        return Waiting(step.name, step.title, lacks, members, senders, most_minutes) if lacks or missing else None

    def _list_awaited(self, step: Step, *, note: bool) -> tuple[list[Route], int]:
        """Return the routes of the files that a step waits for, and for how many minutes it waits at most.

        The number is 0 if the step cannot do without the files.
        """
        by_arrival = self._arrange_arriving()
        for awaited in step.awaits or ():
            names, are_enough = awaited.list_missing(self.workspace)
            missing = [
                by_arrival[path]
                for name in names
                if name not in self.given.without and (path := awaited.file.replace("NAME", name)) in by_arrival
            ]
            if missing and not are_enough:
                return missing, 0
            if missing and self.post.journal.measure_wait(awaited.file, note=note) < 60 * self.given.patience:
                return missing, self.given.patience
        return [], 0

    def _list_arriving(self, item: Item) -> list[Route]:
        """Return the routes of an item's files that have not arrived, except from members that the run goes on without."""
        return [
            route
            for path, route in self._arrange_arriving().items()
            if any(fnmatchcase(path, pattern) for pattern in item.files)
            and route.sender not in self.given.without
            and not (self.workspace.root / path).is_file()
        ]

    def _arrange_arriving(self) -> dict[str, Route]:
        """Return the routes of the files for this member, each by the path at which its file arrives."""
        if not self.agreement.is_reached:
            return {}
        own_name = self.workspace.identify().name
        return {
            route.arrivals[own_name]: route for route in list_routes(self.workspace.study) if own_name in route.arrivals
        }

    def _name_causes(self, missing: list[Route]) -> tuple[str, ...]:
        """Return the members that hold up missing files: the senders, or the members that the senders wait for."""
        senders = tuple(dict.fromkeys(route.sender for route in missing))
        if self.post.place is None or self.post.is_away or not missing:
            return senders
        causes = Causes(self.workspace, list_routes(self.workspace.study), self.post.files)
        traced = [name for route in missing for name in causes.trace(route)]
        own_name = self.workspace.identify().name
        return tuple(dict.fromkeys(name for name in traced if name != own_name)) or senders

    def _take(self, waits: list[Waiting], left: list[Step]) -> bool:
        for state in self.list_own_states():
            step = state.step
            if self._is_done(state) or (step.consent and step.consent in self._declined):
                continue
            if step.name in self._repeated[1:]:
                continue
            if (waiting := self._weigh(state, note=True)) is not None:
                waits.append(waiting)
                continue
            if FITTING in step.needs and self._awaits_reading():
                waits.append(Waiting(step.name, step.title, (FITTING.what,)))
                continue
            answers = self._find_answers(step)
            if answers is None:
                left.append(step)
                continue
            situation = self._describe_folder()
            if self._tried.get(step.name) == situation:
                continue
            if step.sends and self.post.is_away:
                waits.append(Waiting(step.name, step.title, ("the place",)))
                continue
            self._refuse_second_device(state)
            if step.consent and not state.is_done:
                agreed = self._agree_on_reading(answers) if step.consent == "reading" else self._consent(step, waits)
                if agreed is None:
                    continue
                answers = agreed | answers
            elif step.consent == "share":  # what was shared before is written again
                answers = self._tick_all(step) | answers
            self._run(step, answers)
            self._tried[step.name] = self._describe_folder()
            return True
        return False

    def _is_done(self, state: StepState) -> bool:
        """Whether a step is done and is not to be taken again; if it sends files, one of them must be there to be sent."""
        if state.step.name in self._repeated:
            return False
        if not state.is_done or (state.step.name == CHECK and self._is_table_new()):
            return False
        routes = [route for route in self._list_own_routes() if route.step.name == state.step.name]
        return not routes or any((self.workspace.root / route.source).is_file() for route in routes)

    def _is_table_new(self) -> bool:
        """Whether runs have checked another table than the present one; False once rows are shared.

        The advice of the check is then about other rows.
        """
        table, known = self.given.answers.get(CHECK, {}).get("data"), self.post.journal.entries.checked
        if not isinstance(table, Path) or not table.is_file() or BUNDLE.is_there(self.workspace):
            return False
        return bool(known) and self.post.hash_own(table) != known

    def _list_own_routes(self) -> list[Route]:
        if not self.agreement.is_reached:
            return []
        own_name = self.workspace.identify().name
        return [route for route in list_routes(self.workspace.study) if route.sender == own_name]

    def _find_answers(self, step: Step) -> dict[str, Value] | None:
        """Return the answers that a step needs; None if a person has to give one."""
        given, answers = self.given.answers.get(step.name, {}), dict[str, Value]()
        for question in step.list_questions(self.workspace):
            files = question.list_choices(self.workspace) if question.endings else ()
            if question.name in given:
                answers[question.name] = given[question.name]
            elif question.kind == "usual":
                answers[question.name] = self.workspace.root / question.default
            elif question.default:
                answers[question.name] = question.default
            elif question.is_optional or step.consent == "members":
                continue
            elif question.kind == "choice" and len(files) == 1 and question.name != "data":  # a person says which rows
                answers[question.name] = self.workspace.root / files[0].value
            else:
                return None
        return answers

    def _consent(self, step: Step, waits: list[Waiting]) -> dict[str, Value] | None:
        """Return the answers that come with a person's yes; None without it."""
        if step.consent == "share":
            question = ask_about_sharing(self.workspace)
            if not self._answer(question):
                return None
            return self._tick_all(step)
        cards = self.agreement.choose_cards()
        if cards is None:
            waits.append(Waiting(step.name, step.title, ("members' cards",)))
            return None
        paths, known = cards
        if not self.given.accepted and not self._answer(ask_about_members(known)):
            return None
        return {"cards": tuple(paths)}

    def _tick_all(self, step: Step) -> dict[str, Value]:
        """Return a tick for every tick box of a step: a person's yes stands for all of them."""
        return {asked.name: True for asked in step.list_questions(self.workspace) if asked.kind == "tick"}

    def _awaits_reading(self) -> bool:
        """Whether steps wait until a person says how the table is read.

        They do not wait if sharing was decided beforehand and the study adapts rows that do not fit.
        """
        is_asked = any(question.kind == "reading" for question in self._open)
        is_attended = self.given.share == "ask"
        return is_asked and (is_attended or not exchange_of(self.workspace.study).adapts_rows(self.workspace.study))

    def _agree_on_reading(self, answers: dict[str, Value]) -> dict[str, Value] | None:
        """Write how a table that differs from the study is read, once a person agrees.

        Returns no further answers ({}), or None if the person has not answered. After a no the table is taken as it is, and
        the step lists what does not fit.
        """
        question = ask_about_reading(self.workspace, **answers)  # type: ignore[arg-type]  # as the step 'match' takes them
        if question is None or question.subject in self._declined:
            return {}
        if self._answer(question):
            match = find_step(self.workspace, "match").run
            assert match is not None
            match(self.workspace, **answers, command=self.command)
            self.tell(Event("notice", f"Wrote {self.workspace.show(self.workspace.mapping_file)}, which stays here."))
            return {}
        return {} if question.subject in self._declined else None

    def _answer(self, question: OpenQuestion) -> bool:
        """Return whether a question has the answer yes; a question without an answer stays open."""
        answer = self.given.answer(question)
        if answer is None and question.subject not in self._declined:
            answer = self.decide(question)
        if answer is None:
            self._open.append(question)
        elif not answer:
            self._declined |= {question.subject, *({"share"} if question.kind == "share" else ())}
            if question.kind == "share":
                self.tell(Event("notice", "Your rows are not shared. Nothing of them has left."))
        return bool(answer)

    def _run(self, step: Step, answers: dict[str, Value]) -> None:
        assert step.run is not None
        table = answers.get("data") if step.name == CHECK else None
        digest = self.post.hash_own(table) if isinstance(table, Path) else ""
        with self.progress(step.title) as progress:
            outcome = step.run(self.workspace, **answers, command=self.command, progress=progress)
        self._repeated = [name for name in self._repeated if name != step.name]
        if digest:
            self.post.journal.note_checked(digest)
        self.tell(Event("took", step.title, outcome))

    def _refuse_second_device(self, state: StepState) -> None:
        """Refuse a step whose file is at the place although this vault did not put it there.

        A copy of the vault has probably put it there.
        """
        if state.is_done:
            return
        for route in self._list_own_routes():
            path = route.at_place.path
            if (
                route.step.name == state.step.name
                and path in self.post.files
                and path not in self.post.journal.entries.put
            ):
                raise RefusedError(
                    "the vault",
                    reason=f"{path} is at the place already, and this vault did not put it there",
                    cure="This vault is an old copy, or its owner runs mooring on two machines: use the vault that made "
                    "that file. Nothing was made or replaced.",
                )

    def _describe_folder(self) -> object:
        """Return a value that changes when one of the files that steps read changes."""
        workspace = self.workspace
        tables = [
            value
            for answers in self.given.answers.values()
            for value in answers.values()
            if isinstance(value, Path) and value.is_file()
        ]
        files = [
            path
            for folder in (workspace.root, workspace.root / "inbox", workspace.root / "result")
            if folder.is_dir()
            for path in folder.iterdir()
        ]
        return sorted(
            (str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in (*tables, *files) if path.is_file()
        )

    # State

    def _is_finished(self) -> bool:
        """Whether all steps that need no further answer are done, and all files for this member alone have arrived."""
        if not self.agreement.is_reached:
            return False
        if any(not state.is_done for state in self.list_own_states() if self._find_answers(state.step) is not None):
            return False
        return not self.list_missing()

    def list_missing(self) -> list[Route]:
        """Return the routes of files that are for this member alone, have not arrived, and are awaited by none of its steps.

        Files of members that the run goes on without do not count.
        """
        workspace, own_name = self.workspace, self.workspace.identify().name
        awaited = [
            each.file.replace("NAME", "*") for state in self.list_own_states() for each in state.step.awaits or ()
        ]
        return [
            route
            for route in list_routes(workspace.study)
            if route.only_recipient == own_name
            and not any(fnmatchcase(route.arrivals[own_name], pattern) for pattern in awaited)
            and route.sender not in (own_name, *self.given.without)
            and (route.step.when is None or route.step.when(workspace))
            and not (workspace.root / route.arrivals[own_name]).is_file()
        ]
