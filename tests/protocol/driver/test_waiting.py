"""What a run waits for, for whom and for how long, and which steps it takes for done; no step is run."""

import hashlib
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.errors import StorageError
from mooring.protocol.driver import Driver, Given, OpenQuestion
from mooring.protocol.driver.driver import Waiting
from mooring.protocol.driver.journal import Journal
from mooring.protocol.driver.post import AwayError
from mooring.protocol.driver.routes import list_routes
from mooring.protocol.messages.study import Study
from mooring.protocol.step import AGREED, Awaited, Item, Question, Sent, Step
from mooring.protocol.steps import StepState
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import Outcome, Workspace
from mooring.report.step_pages import StepPages
from tests.protocol.driver.support import MemoryPlace
from tests.protocol.sums.support import make_sum_study
from tests.sites import vaulted_study


class Ward:
    """Two participants, of whom the first makes the anchor, and an analyst, who have agreed on a study."""

    def __init__(self, root: Path) -> None:
        self.root, self.place = root, MemoryPlace()
        vaults = {name: Vault.create(root / name / "vault") for name in ("north", "south", "lab")}
        self.study = vaulted_study({name: vaults[name] for name in ("north", "south")}, vaults["lab"], 2, 8)
        for name in vaults:
            self.study.write(root / name / "study.toml")
            self.driver(name).post.journal.agree(self.study.digest)

    def driver(self, name: str, **given: Any) -> Driver:
        """A run as after a start of the program, which has listed the files at the place."""
        workspace = Workspace.at(self.root / name, StepPages())
        driver = Driver(workspace, self.place, Given(is_analyst=name == "lab", **given))
        driver.post.journal.folder.mkdir(parents=True, exist_ok=True)
        driver.post.list()
        return driver

    def put(self, step: str, sender: str) -> None:
        for route in list_routes(self.study):
            if (route.step.name, route.sender) == (step, sender):
                self.place.content[route.at_place.path] = b"x"

    def waits(self, name: str, **given: Any) -> dict[str, Waiting]:
        """What a look finds that a member's steps wait for."""
        return {waiting.step: waiting for waiting in self.driver(name, **given).look().waits}


@pytest.fixture
def ward(tmp_path: Path) -> Ward:
    return Ward(tmp_path)


def test_steps_wait_for_those_who_hold_them_up(ward: Ward) -> None:
    waits = ward.waits("south")
    assert (waits["share"].members, waits["share"].senders) == (("north",), ("north",))
    assert (waits["predict"].members, waits["predict"].senders) == (("north",), ("lab",))
    assert (waits["check"].members, waits["check"].lacks) == ((), ("your table",))
    assert ward.waits("lab")["align"].members == ("north",)
    ward.put("deal", "north")
    assert ward.waits("lab")["align"].members == ward.waits("lab")["align"].senders == ("north", "south")
    ward.put("share", "north")
    assert ward.waits("lab")["align"].members == ("north", "south")  # one is there, and not fetched yet
    assert ward.waits("south")["predict"].members == ("lab",)  # nobody waits for itself
    assert ward.waits("lab")["align"].most_minutes == 0
    ward.put("share", "south")
    assert ward.waits("south")["predict"].members == ("lab",)
    ward.place.is_away = True
    assert ward.waits("lab")["align"].members == ("north", "south")  # causes are not known then
    assert ward.driver("lab").look().away


def test_files_that_have_arrived_and_those_of_members_who_stay_out_are_not_waited_for(ward: Ward) -> None:
    assert ward.waits("lab", without=("north",))["align"].senders == ("south",)
    inbox = ward.root / "lab" / "inbox"
    inbox.mkdir()
    (inbox / "north.bundle").write_bytes(b"x")
    assert ward.waits("lab")["align"].senders == ("south",)
    (inbox / "south.bundle").write_bytes(b"x")
    turn = ward.driver("lab").look()
    assert "align" not in {waiting.step for waiting in turn.waits}
    assert "align" in turn.left
    table = ward.root / "rows.csv"
    waits = ward.waits("south", answers={"check": {"data": table}})
    assert "check" not in waits  # the table is in another folder
    assert "the sealed anchor" in waits["share"].lacks
    assert "your table" not in waits["share"].lacks
    (ward.root / "south" / "small.anchor").write_bytes(b"x")
    assert ward.waits("south")["share"].senders == ()


def bundles(n_enough: int) -> Awaited:
    return Awaited("inbox/NAME.bundle", lambda _: ["north", "south"], lambda _: n_enough)


def a_step(*awaits: Awaited, **changes: Any) -> Step:
    return Step("x", "analyst", "X", "Do x.", "x", "", needs=(AGREED,), awaits=awaits, **changes)


def state(step: Step, *lacking: Item, is_done: bool = False) -> StepState:
    return StepState(step, is_done, lacking)


@pytest.mark.parametrize(
    ("n_enough", "waited", "patience", "minutes"),
    [(2, 0, 10, 0), (2, 10**6, 10, 0), (1, 0, 10, 10), (1, 590, 10, 10), (1, 610, 10, None), (1, 0, 0, None),
     (1, 50, 1, 1), (1, 70, 1, None), (1, 590, None, 10), (1, 610, None, None)],
)  # fmt: skip
def test_files_that_are_not_needed_are_awaited_for_a_while(
    n_enough: int, waited: float, patience: int | None, minutes: int | None, ward: Ward
) -> None:
    """For ten minutes, unless a person says otherwise."""
    (ward.root / "lab" / "inbox").mkdir()
    (ward.root / "lab" / "inbox" / "north.bundle").write_bytes(b"x")
    driver = ward.driver("lab", **({} if patience is None else {"patience": patience}))
    journal = driver.post.journal
    journal.entries = replace(journal.entries, waits={"inbox/NAME.bundle": time.time() - waited})
    waiting = driver._weigh(state(a_step(bundles(n_enough))))
    assert (None if waiting is None else (waiting.most_minutes, waiting.senders)) == (
        None if minutes is None else (minutes, ("south",))
    )
    both = driver._weigh(state(a_step(bundles(n_enough), bundles(2))))  # each is waited for in turn
    assert both is not None
    assert both.senders == ("south",)
    (ward.root / "lab" / "inbox" / "south.bundle").write_bytes(b"x")
    assert driver._weigh(state(a_step(bundles(n_enough)))) is None


def test_a_wait_is_noted_by_a_pass_and_not_by_a_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    journal = Journal(tmp_path, "memory")
    journal.folder.mkdir(parents=True)
    assert journal.measure_wait("a", note=False) == 0.0
    now[0] += 50
    assert journal.measure_wait("a", note=False) == 0.0
    assert journal.measure_wait("a", note=True) == 0.0
    now[0] += 7
    assert [journal.measure_wait("a", note=note) for note in (False, True, True)] == [7.0] * 3
    assert journal.measure_wait("b", note=False) == 0.0
    assert Journal(tmp_path, "memory").measure_wait("a", note=False) == 7.0
    now[0] -= 100  # a clock that was set back
    assert journal.measure_wait("a", note=False) == 0.0
    assert journal.measure_wait("a", note=True) == 0.0
    now[0] += 3
    assert journal.measure_wait("a", note=True) == 3.0


def test_one_folder_is_one_place_however_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "post").mkdir()
    address = str(tmp_path / "post")
    folders = {
        Journal(tmp_path, each).folder for each in (address, f"{address}/", f"file://{address}", f"{address}/../post")
    }
    assert len(folders) == 1
    assert len({Journal(tmp_path, each).folder for each in ("s3://a/b", "s3://a/b/", "s3://a/c", "")}) == 3
    assert all(len(folder.name) == 16 for folder in folders)


def test_before_a_study_is_agreed_on_its_steps_wait_for_that(ward: Ward) -> None:
    driver = ward.driver("south")
    assert driver.look().questions == ()
    driver.post.journal.agree("")
    for step in (a_step(), a_step(bundles(2))):
        waiting = driver._weigh(state(step))
        assert waiting is not None
        assert (waiting.lacks, waiting.members) == ((AGREED.what,), ())
    assert driver._weigh(state(replace(a_step(), needs=()))) is None
    turn = driver.look()
    assert [question.kind for question in turn.questions] == ["study"]
    assert not turn.is_finished
    lab = ward.driver("lab")
    lab.post.journal.agree("")
    assert lab.look().questions == ()  # its own study


def test_a_step_is_done_once_what_it_sends_is_there_unless_it_is_repeated(ward: Ward) -> None:
    driver = ward.driver("south")
    share = next(route.step for route in list_routes(ward.study) if route.step.name == "share")
    assert not driver._is_done(state(share))
    assert not driver._is_done(state(share, is_done=True))
    (ward.root / "south" / "south.bundle").write_bytes(b"x")
    assert driver._is_done(state(share, is_done=True))
    assert not driver._is_done(state(share))
    assert driver._is_done(state(a_step(), is_done=True))  # one that sends nothing
    driver.repeat("share", "check")
    assert driver._repeated == ["check", "share"]
    assert not driver._is_done(state(share, is_done=True))


def test_a_table_is_checked_again_if_it_is_another_and_nothing_is_shared(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ward.root / "rows.csv"
    table.write_text("a\n")
    driver = ward.driver("south", answers={"check": {"data": table}})
    check = replace(a_step(), name="check")
    assert not driver._is_table_new()  # none was checked
    driver.post.journal.note_checked(driver.post.hash_own(table))
    assert driver._is_done(state(check, is_done=True))
    table.write_text("a, b\n")
    assert driver._is_table_new()
    assert not driver._is_done(state(check, is_done=True))
    assert driver._is_done(state(a_step(), is_done=True))  # no other step
    for answer in ({"data": "rows.csv"}, {"data": ward.root / "none.csv"}, {}):
        other = ward.driver("south", answers={"check": answer})
        assert not other._is_table_new()
    monkeypatch.setattr("mooring.protocol.driver.driver.BUNDLE", SimpleNamespace(is_there=lambda _: True))
    assert not driver._is_table_new()


def test_a_members_own_file_is_handed_to_it_once(ward: Ward) -> None:
    driver, source, target = ward.driver("north"), ward.root / "a", ward.root / "in" / "a"
    assert not driver._hand_to_self(source, target)
    source.write_bytes(b"x")
    assert not driver._hand_to_self(source, source)
    assert driver._hand_to_self(source, target)
    assert not driver._hand_to_self(source, target)
    source.write_bytes(b"other")
    assert driver._hand_to_self(source, target)
    assert target.read_bytes() == b"other"


def test_a_run_is_finished_once_all_that_is_for_the_member_alone_has_arrived(ward: Ward) -> None:
    def missing(name: str, **given: Any) -> set[str]:
        return {route.source.rpartition("/")[2] for route in ward.driver(name, **given).list_missing()}

    assert missing("south") == {"map.safetensors", "model.safetensors"}
    assert missing("south", without=("lab",)) == set()
    assert missing("lab") == set()  # its steps wait for bundles
    (ward.root / "south" / "result").mkdir()
    (ward.root / "south" / "result" / "map.safetensors").write_bytes(b"x")
    assert missing("south") == {"model.safetensors"}
    assert not ward.driver("south").look().is_finished
    declined = ward.driver("south")
    declined._declined.add("share")
    assert declined.look().is_finished  # who does not share has nothing to wait for


def test_once_a_list_is_closed_nobody_shares_any_more(tmp_path: Path) -> None:
    given, place = make_sum_study(tmp_path, p=3, epsilon=2.0), MemoryPlace()
    root = tmp_path / "p0"
    root.mkdir()
    study: Study = given.study
    study.write(root / "study.toml")
    workspace = Workspace(root, root / "study.toml", given.vaults[0].folder, root / "analysis", StepPages())
    driver = Driver(workspace, place, Given())
    driver.post.journal.folder.mkdir(parents=True)
    closing = next(route for route in list_routes(study) if route.step.name == "align")
    for agrees, is_there, is_closed in ((False, True, False), (True, False, False), (True, True, True)):
        driver.post.journal.agree(study.digest if agrees else "")
        place.content = {closing.at_place.path: b"x"} if is_there else {}
        driver.post.list()
        assert driver.is_closed == is_closed
        if agrees:
            assert ("share" in {own.step.name for own in driver.list_own_states()}) != is_closed
    place.content.clear()
    driver.post.list()
    (root / "analysis").mkdir()
    (root / closing.source).write_bytes(b"x")
    assert driver.is_closed


@pytest.mark.parametrize(
    ("asked", "share", "adapts", "waits"),
    [
        (["reading"], "ask", False, True),
        (["reading"], "ask", True, True),
        (["reading"], "yes", False, True),
        (["reading"], "yes", True, False),  # who agreed beforehand is not asked row by row
        (["study"], "ask", False, False),
        ([], "ask", False, False),
    ],
)
def test_rows_are_not_shared_before_it_is_known_how_they_are_read(
    asked: list[Any], share: Any, adapts: bool, waits: bool, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = ward.driver("south", share=share)
    exchange = SimpleNamespace(adapts_rows=lambda _: adapts)
    monkeypatch.setattr("mooring.protocol.driver.driver.exchange_of", lambda _: exchange)
    driver._open = [OpenQuestion(kind, "", "") for kind in asked]
    assert driver._awaits_reading() == waits


@pytest.mark.parametrize(
    ("moves", "did_something", "calls"),
    [
        ({}, False, ["fetch", "take", "put"]),
        ({"fetch": 1}, True, ["fetch", "take", "put"] * 2),
        ({"take": 1}, True, ["fetch", "take", "put"] * 2),
        ({"put": 2}, True, ["fetch", "take", "put"] * 3),
        ({"fetch": 1, "put": 1}, True, ["fetch", "take", "put"] * 2),
    ],
)
def test_a_pass_goes_on_as_long_as_something_moves(
    moves: dict[str, int], did_something: bool, calls: list[str], ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, called = ward.driver("south"), list[str]()

    def act(name: str) -> bool:
        called.append(name)
        return called.count(name) <= moves.get(name, 0)

    for name in ("fetch", "put"):
        monkeypatch.setattr(driver, f"_{name}", lambda name=name: act(name))
    monkeypatch.setattr(driver, "_take", lambda waits, left: act("take"))
    turn = driver.advance()
    assert (turn.did_something, called, turn.away) == (did_something, calls, "")


def test_a_pass_ends_where_the_place_is_away_and_takes_steps_without_it(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, called = ward.driver("south"), list[str]()
    monkeypatch.setattr(driver, "_take", lambda waits, left: called.append("take") or False)

    def fail() -> bool:
        called.append("fetch")
        raise AwayError(StorageError("the place", reason="it went", cure="Wait."))

    monkeypatch.setattr(driver, "_fetch", fail)
    turn = driver.advance()
    assert (called, turn.did_something, turn.is_finished) == (["fetch"], False, False)
    assert "it went" in turn.away
    ward.place.is_away = True
    called.clear()
    turn = driver.advance()
    assert (called, turn.did_something) == (["take"], False)
    assert "it is away" in turn.away


def test_an_analyst_alone_takes_the_designers_steps_and_steps_of_people_are_left_to_them(ward: Ward) -> None:
    names = {own.step.name for own in ward.driver("south").list_own_states()}
    assert {"check", "share", "predict"} <= names
    assert not names & {"header", "match", "collect", "report", "align", "deal"}
    assert "deal" in {own.step.name for own in ward.driver("north").list_own_states()}
    assert {"align", "train", "deliver"} <= {own.step.name for own in ward.driver("lab").list_own_states()}


def test_a_file_for_one_member_is_sealed_once_and_one_for_several_is_put_as_it_is(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = ward.driver("north")
    bundle, anchor = (
        next(route for route in list_routes(ward.study) if (route.step.name, route.sender) == (step, "north"))
        for step in ("share", "deal")
    )
    source = ward.root / "north" / "north.bundle"
    source.write_bytes(b"rows")
    sealed = list[Path]()

    def seal(source: Path, target: Path, **options: Any) -> None:
        assert (options["name"], options["recipient"]) == ("north.bundle", ward.study.analyst)
        sealed.append(target)
        target.write_bytes(b"sealed")

    monkeypatch.setattr("mooring.protocol.messages.envelope.seal_file", seal)
    assert driver._seal(anchor, source) == source
    digest = hashlib.sha256(b"rows").hexdigest()
    outbox = driver.post.journal.folder / "outbox"
    assert [driver._seal(bundle, source) for _ in range(2)] == [outbox / f"{digest[:32]}-lab.sealed"] * 2
    assert len(sealed) == 1
    source.write_bytes(b"other rows")
    driver._seal(bundle, source)
    assert len({*sealed}) == 2
    beside = source.with_name("north.bundle.sealed")
    beside.write_bytes(b"sealed by the step")
    assert driver._seal(bundle, source) == beside


class Taken:
    """A run with steps of a test, and the answers with which it took them."""

    def __init__(self, ward: Ward, monkeypatch: pytest.MonkeyPatch, *states: StepState, **given: Any) -> None:
        self.driver, self.calls = ward.driver("south", **given), list[tuple[str, dict[str, Any]]]()
        self.waits, self.left = list[Waiting](), list[Step]()
        self.states = [replace(each, step=replace(each.step, run=self._run_as(each.step.name))) for each in states]
        monkeypatch.setattr(self.driver, "list_own_states", lambda: self.states)

    def _run_as(self, name: str) -> Any:
        def run(workspace: Workspace, *, command: str, progress: Any, **answers: Any) -> Outcome:
            self.calls.append((name, answers))
            return Outcome(None, {}, ())

        return run

    def take(self) -> bool:
        self.waits.clear()
        self.left.clear()
        return self.driver._take(self.waits, self.left)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def named(name: str, **changes: Any) -> Step:
    return replace(a_step(), name=name, **({"needs": ()} | changes))


def test_a_step_that_is_ready_is_taken_once_until_the_folder_is_another(
    ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = Item("a thing", ("thing",))
    asked = named("asked", asks=(Question("n", "N", "number", "--n"),))
    run = Taken(
        ward,
        monkeypatch,
        state(named("done"), is_done=True),
        state(named("lacking", needs=(lacking,)), lacking),
        state(asked),
        state(named("first")),
        state(named("second")),
    )
    assert [run.take() for _ in range(3)] == [True, True, False]
    assert run.names == ["first", "second"]
    assert [waiting.step for waiting in run.waits] == ["lacking"]
    assert [step.name for step in run.left] == ["asked"]
    (ward.root / "south" / "new").write_text("x")
    assert run.take()
    assert run.names == ["first", "second", "first"]


def test_a_repeated_step_waits_for_the_one_before_it(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Item("a thing", ("thing",))
    first = state(named("first", needs=(lacking,)), lacking, is_done=True)
    second = state(named("second"), is_done=True)
    run = Taken(ward, monkeypatch, first, second)
    run.driver.repeat("second", "first")
    assert not run.take()
    assert [waiting.step for waiting in run.waits] == ["first"]
    run.states[0] = replace(run.states[0], waits_for=(), step=replace(run.states[0].step, needs=()))
    assert [run.take() for _ in range(3)] == [True, True, False]
    assert run.names == ["first", "second"]


@pytest.mark.parametrize(("is_away", "names"), [(False, ["sends", "stays"]), (True, ["stays"])])
def test_a_step_that_sends_files_waits_for_the_place(
    is_away: bool, names: list[str], ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Taken(ward, monkeypatch, state(named("sends", sends=(Sent("x"),))), state(named("stays")))
    run.driver.post.is_away = is_away
    while run.take():
        pass
    assert run.names == names
    assert [waiting.lacks for waiting in run.waits] == [("the place",)] * is_away


@pytest.mark.parametrize(
    ("answer", "is_done", "calls", "asked"),
    [
        (True, False, [("share", {"labels": True})], 1),
        (False, False, [], 1),
        (None, False, [], 2),  # it is asked again
        (None, True, [("share", {"labels": True})], 0),  # what was shared is written again
    ],
)
def test_rows_are_shared_after_a_yes_with_the_ticks_that_belong_to_it(
    answer: bool | None, is_done: bool, calls: list[Any], asked: int, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    questions = list[OpenQuestion]()
    monkeypatch.setattr(
        "mooring.protocol.driver.driver.ask_about_sharing", lambda _: OpenQuestion("share", "digest", "Share?")
    )
    ticks = (Question("labels", "Labels", "tick", "--labels", is_optional=True),)
    run = Taken(ward, monkeypatch, state(named("share", consent="share", asks=ticks), is_done=is_done))
    run.driver.decide = lambda question: (questions.append(question), answer)[1]  # type: ignore[func-returns-value]
    if is_done:
        run.driver.repeat("share")
    assert [run.take() for _ in range(2)] == [bool(calls), False]
    assert (run.calls, len(questions)) == (calls, asked)
    run.driver._declined.add("share")
    (ward.root / "south" / "new").write_text("x")
    assert not run.take()  # who does not share is not asked again


@pytest.mark.parametrize(
    ("away", "waits", "questions", "is_done", "is_finished"),
    [
        ("", 0, 0, True, True),
        ("", 0, 0, False, False),
        ("no network", 0, 0, True, False),
        ("", 1, 0, True, False),
        ("", 0, 1, True, False),
    ],
)
def test_a_run_is_not_finished_while_it_waits_asks_or_cannot_reach_the_place(
    away: str, waits: int, questions: int, is_done: bool, is_finished: bool, ward: Ward, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = ward.driver("south")
    monkeypatch.setattr(driver, "_is_finished", lambda: is_done)
    turn = driver._conclude(False, [Waiting("a", "A")] * waits, [OpenQuestion("share", "", "")] * questions, [], away)
    assert (turn.is_finished, turn.away) == (is_finished, away)
