"""Four stewards and an analyst, each in a folder of its own, who meet at a place and carry no file by hand."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mooring.errors import RefusedError, StorageError
from mooring.protocol.driver import Driver, Event, Given, OpenQuestion, Turn
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.place import Place, PlacedFile
from mooring.protocol.transport.transfer import OccupiedError
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from mooring.tables.schema import Column, Label
from tests.study_settings import make_study

NAMES = ("north", "south", "east", "west")
ANALYST = "lab"
N_ROWS, N_NEW = 40, 12
COLUMNS = (Column("age", "number", 0, 120), Column("sex", "category", categories=("female", "male")))
MECHANISMS: dict[str, dict[str, Any]] = {
    "rotation": {"method": "aa-i-gdp-anchor-noise", "n_components": 3, "n_anchor_rows": 12, "anchor_noise_scale": 0.1},
    "sums": {"epsilon": 2.0, "n_hats": 0},
}


def draft(mechanism: str, **changes: Any) -> Study:
    """A study without a roster."""
    common: dict[str, Any] = {
        "name": "ward",
        "nonce": "0123456789abcdef" * 2,
        "columns": COLUMNS,
        "label": Label("ill", "classes", ("no", "yes")),
        "smallest_class": 1,
    }
    if mechanism == "rotation":
        return make_study(**(common | MECHANISMS["rotation"] | changes))
    from mooring.mechanisms.sums.settings import SumSettings

    return Study(**common, mechanism=SumSettings(**(MECHANISMS["sums"] | changes)))


def write_table(path: Path, k: int, n_rows: int = N_ROWS) -> None:
    """A table of patients: the older are ill."""
    rng = np.random.default_rng([11, k])
    lines = ["age,sex,ill"]
    for _ in range(n_rows):
        age = rng.uniform(20, 100)
        lines.append(f"{age:.5f},{rng.choice(['female', 'male'])},{'yes' if age + rng.normal(0, 4) > 60 else 'no'}")
    path.write_text("\n".join(lines) + "\n")


@dataclass(eq=False)
class Town:
    """Folders of stewards, helpers and the analyst, and the place where they meet."""

    root: Path
    place: Place
    names: Sequence[str] = NAMES
    helpers: Sequence[str] = ()
    events: dict[str, list[Event]] = field(default_factory=dict)
    asked: dict[str, list[OpenQuestion]] = field(default_factory=dict)
    answers: dict[tuple[str, str], bool | None] = field(default_factory=dict)
    """What a person answers, by name and kind of the question; yes unless said otherwise."""

    @classmethod
    def found(
        cls, root: Path, study: Study, *, names: Sequence[str] = NAMES, helpers: Sequence[str] = (), place: str = ""
    ) -> "Town":
        """Write everybody's table, and the analyst's draft."""
        if not place:
            (root / "post").mkdir()
        for k, name in enumerate((*names, *helpers, ANALYST)):
            (root / name).mkdir()
            if name in names:
                write_table(root / name / "patients.csv", k)
                write_table(root / name / "new.csv", k + 100, N_NEW)
        study.write(root / ANALYST / "study.toml")
        return cls(root, Place(place or str(root / "post")), names, helpers)

    @property
    def everybody(self) -> tuple[str, ...]:
        return (*self.names, *self.helpers, ANALYST)

    def workspace(self, name: str) -> Workspace:
        return Workspace.at(self.root / name, StepPages())

    def given(self, name: str, **rest: Any) -> Given:
        role = "analyst" if name == ANALYST else "helper" if name in self.helpers else "participant"
        answers: dict[str, Any] = {"join": {"name": name, "role": role, "accept_no_noise": True}}
        if name in self.names:
            table = {"data": self.root / name / "patients.csv"}
            answers |= dict.fromkeys(("fit", "check", "share"), table)
            answers["predict"] = {"data": self.root / name / "new.csv"}
        n_members = len(self.names) + len(self.helpers)
        return Given(answers, is_analyst=name == ANALYST, n_members=n_members, **rest)

    def driver(self, name: str, **rest: Any) -> Driver:
        """A new run of a member, as after a start of the program."""

        def decide(question: OpenQuestion) -> bool | None:
            self.asked.setdefault(name, []).append(question)
            return self.answers.get((name, question.kind), True)

        tell = self.events.setdefault(name, []).append
        return Driver(self.workspace(name), self.place, self.given(name, **rest), decide, tell)

    def advance(self, name: str, **rest: Any) -> Turn:
        """One pass of a new run."""
        driver = self.driver(name, **rest)
        with driver.lock():
            return driver.advance()

    def go_round(self, *, most: int = 12, without: Sequence[str] = ()) -> int:
        """Start everybody's run again and again until all are finished; returns how many rounds that took."""
        for k in range(most):
            turns = {name: self.advance(name, without=without) for name in self.everybody if name not in without}
            if all(turn.is_finished for turn in turns.values()):
                return k + 1
        raise AssertionError({name: turn for name, turn in turns.items() if not turn.is_finished})

    def study(self, name: str = ANALYST) -> Study:
        return Study.read(self.root / name / "study.toml")

    def took(self, name: str) -> list[str]:
        """The titles of the steps that a member's runs took."""
        return [event.words for event in self.events[name] if event.kind == "took"]


class MemoryPlace:
    """A place in memory, which counts how often it is asked for a file."""

    address = "memory"

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.is_away, self.n_asked, self.n_put = False, 0, 0

    def list_files(self) -> list[PlacedFile]:
        if self.is_away:
            raise StorageError("the place", reason="it is away", cure="Wait.")
        return [PlacedFile(*path.split("/"), len(data), str(hash(data))) for path, data in self.content.items()]

    def put(self, source: Path, file: PlacedFile, *, replace: bool = False, public: Collection[str] = ()) -> bool:
        self.n_put += 1
        if self.is_away:
            raise StorageError("the place", reason="it is away", cure="Wait.")
        there, data = self.content.get(file.path), source.read_bytes()
        if there not in (None, data) and not replace:
            raise OccupiedError("to", problem="It is there.", cure="Wait.")
        self.content[file.path] = data
        return there == data

    def fetch(self, file: PlacedFile, target: Path, *, most_bytes: int) -> None:
        self.n_asked += 1
        data = self.content[file.path]
        if self.is_away:
            raise StorageError("the place", reason="it is away", cure="Wait.")
        if len(data) > most_bytes:
            raise RefusedError("the file", reason="it is too large", cure="Ask for another.")
        target.write_bytes(data)
