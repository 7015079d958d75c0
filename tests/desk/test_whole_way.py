"""A study from joining to the report on the desks of three participants and an analyst, by rotation and by sums."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from mooring.protocol.steps import steps_of
from mooring.protocol.workspace import Outcome
from tests import commands
from tests.desk.chromium import Tab, open_chromium
from tests.desk.serving import Running, serving

NAMES = ("north", "south", "east")
ROLES = (*NAMES, "analyst")
DRAFT = "study init columns.csv --name ward --label ill --classes no,yes"
DRAFT += " --range age=0:120 --range pressure=50:250 --category smoker=no,yes"
FORM = {"low-0": "0", "high-0": "120", "low-1": "50", "high-1": "250", "kind-2": "category"}
FORM |= {"kind-3": "classes", "words-3": "no,yes"}
SUMS = " --mechanism secure-sum --epsilon 2"
LIMITS = '\n[limits]\nuploads = ["epsilon at most 1"]\nmodel = "membership at most 2 %"\n'
REASON = "Dr. Ash: the ward's board agreed"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder each, with tables; and a drafted study."""
    rng = np.random.default_rng(5)
    for role in (*ROLES, "post"):
        (tmp_path / role).mkdir()
    (tmp_path / "post" / "columns.csv").write_text("age,pressure,smoker,ill\n")
    for name in NAMES:
        for file, count in (("patients.csv", 40), ("new.csv", 20)):
            age, pressure, smokes = rng.uniform(20, 90, count), rng.uniform(80, 200, count), rng.integers(0, 2, count)
            ill = age / 90 + 0.4 * smokes + rng.normal(0, 0.1, count) > 0.8
            words = np.array(["no", "yes"])
            rows = zip(age, pressure, words[smokes], words[ill.astype(int)], strict=True)
            lines = [f"{a:.5f},{b:.5f},{c},{d}" for a, b, c, d in rows]
            (tmp_path / name / file).write_text("\n".join(["age,pressure,smoker,ill", *lines]) + "\n")
    (tmp_path / "north" / "wide.csv").write_text("age,pressure,smoker,ill,note\n50,100,no,no,x\n")
    return tmp_path


def copy(place: Path, source: str, *targets: str) -> None:
    """Carry files by hand, as the roles do: a pattern below the folder of all, to other folders."""
    for path in sorted(place.glob(source)):
        for target in targets:
            (place / target).mkdir(exist_ok=True)
            shutil.copy(path, place / target)


@pytest.fixture
def tabs(place: Path, chromium: str, tmp_path: Path) -> Iterator[Mapping[str, Tab]]:
    """A desk for each role, opened in a browser of its own."""
    with ExitStack() as stack:
        browser = stack.enter_context(open_chromium(chromium, tmp_path / "profile"))
        running = {role: stack.enter_context(serving(place / role)) for role in ROLES}
        yield {role: browser.open(desk.application.session.address) for role, desk in running.items()}


@pytest.mark.posix  # Chromium is driven over pipes that it inherits
def test_three_participants_and_an_analyst_go_from_joining_to_the_report_in_chromium(
    place: Path, tabs: Mapping[str, Tab]
) -> None:
    """Every role's whole way, in a browser: what is tested is that forms, uploads and pages work there."""
    north, analyst = tabs["north"], tabs["analyst"]
    for role, tab in tabs.items():
        kind = "analyst" if role == "analyst" else "participant"
        assert f"{role}.card.toml" in tab.submit("#join form", name=role, role=kind)
    analyst.upload(place / "post" / "columns.csv")
    analyst.follow("nav a[href$=draft]")
    analyst.send_form("#source", "#source button", mechanism="rotation")
    analyst.send_form("#draft", "#draft [value=write]", name="ward", **FORM)
    analyst.wait_for("document.querySelectorAll('fieldset .fault').length === 1")  # no words for 'smoker' yet
    analyst.send_form("#draft", "#draft [value=write]", **{"words-2": "no, yes"})
    assert "Wrote study.toml" in str(analyst.wait_for("(document.querySelector('#outcome') || {}).innerText"))
    north.upload(place / "analyst" / "study.toml")
    analyst.upload(*(place / name / f"{name}.card.toml" for name in NAMES))
    assert all((place / "analyst" / f"{name}.card.toml").is_file() for name in NAMES)
    assert "mooring study enrol" in analyst.submit("#enrol form")
    copy(place, "analyst/study.toml", "south", "east")
    north.upload(place / "analyst" / "study.toml", replace=True)
    assert (place / "north" / "study.toml").read_bytes() == (place / "analyst" / "study.toml").read_bytes()

    tabs["east"].send("Page.reload")
    tabs["east"].answer("study")
    tabs["east"].submit("#deal form")  # who was enrolled first
    copy(place, "east/ward.anchor", "north", "south")
    assert "mooring check patients.csv" in north.submit("#check form", data="patients.csv")
    assert north.find("!!document.querySelector('#share .warn')")  # 40 rows of three columns, with the least noise
    refused = north.submit("#share form", data="patients.csv", labels=False, sure=True)
    assert "consent for labels" in refused
    assert re.search(r"expected\s+given\s+got\s+none\s+cure\s", refused)
    tabs["south"].send("Page.reload")
    for name in NAMES:
        tabs[name].submit("#share form", data="patients.csv", labels=True, sure=True)
        assert (place / name / f"{name}.bundle").is_file()
        assert tabs[name].find(f"!!document.querySelector('.sends a[href$=\"/file/{name}.bundle.sealed\"][download]')")

    analyst.upload(*(place / name / f"{name}.bundle.sealed" for name in NAMES))
    analyst.submit("#align form", mode="first")
    assert "120" in analyst.submit("#train form", learner="linear")  # rows
    assert "mooring deliver --output results" in analyst.submit("#deliver form")
    north.upload(*(place / "analyst" / "results" / "north").iterdir())
    north.submit("#predict form", data="new.csv", beside="patients.csv")
    assert "mooring report" in north.submit("#report form")
    north.find("location = document.querySelector('#outcome a').href")
    north.wait_for("!!document.querySelector('svg') && document.title.startsWith('mooring: ')")
    assert north.find("window.origin") == "null"
    heading, *predictions = (place / "north" / "predictions.csv").read_text().splitlines()
    assert (heading, len(predictions)) == ("prediction,probability_no,probability_yes", 20)


@pytest.mark.posix
def test_three_participants_and_an_analyst_meet_at_a_place_in_chromium_and_carry_no_file(
    place: Path, chromium: str, tmp_path: Path
) -> None:
    """Secure sums: people choose a table, compare a fingerprint and say yes; pages load themselves while they wait."""
    commands.run(*shlex.split(DRAFT + SUMS), place=place / "post")
    shutil.move(place / "post" / "study.toml", place / "analyst")
    with ExitStack() as stack:
        browser = stack.enter_context(open_chromium(chromium, tmp_path / "profile"))
        running = {role: stack.enter_context(serving(place / role, str(place / "post"))) for role in ROLES}
        tabs = {role: browser.open(desk.application.session.address) for role, desk in running.items()}
        for role, tab in tabs.items():
            tab.submit("#join form", name=role, role="analyst" if role == "analyst" else "participant")
        tabs["analyst"].wait_for(f"document.querySelectorAll('#ask-members .compare').length === {len(NAMES)}")
        tabs["analyst"].answer("members")
        for name in NAMES:
            tabs[name].wait_for("!!document.querySelector('#fit form')")
            tabs[name].submit("#fit form", data="patients.csv")
        for kind in ("study", "share"):
            for name in NAMES:
                tabs[name].answer(kind)
        north = tabs["north"]
        north.wait_for("!!document.querySelector('#predict form')")
        assert "Wrote 20 predictions" in north.submit("#predict form", data="new.csv")
        assert "report.html" in north.submit("#report form")
    assert not list((place / "analyst" / "inbox").glob("*.sealed"))
    assert (place / "north" / "predictions.csv").is_file()


@dataclass
class Member:
    """A desk, and beside it a copy of its folder in which every command that the desk shows is typed."""

    desk: Running
    root: Path
    monkeypatch: pytest.MonkeyPatch
    taken: set[str] = field(default_factory=set)

    def take(self, step: str, *, is_fresh: bool = False, **values: str | list[str]) -> Outcome:
        """Take a step on the desk, type its command into a copy of the folder as it was, and compare what both left.

        What is drawn or sealed anew (`is_fresh`) has other bytes each time; everything else must be the same.
        """
        copy = self.root.parent / "copies" / self.root.name
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.root, copy)
        panel = self.desk.take(step, **values)
        job = self.desk.application.jobs.last
        assert job is not None
        assert job.outcome is not None, panel
        words = shlex.split(job.command)
        self.monkeypatch.setattr(sys, "argv", words)
        codes = {"whole": 0, "in part": 3, "refused": 4}
        code = codes[job.outcome.standing] if step != "fit" or job.outcome.result.fits else 2
        commands.run(*words[1:], place=copy, code=code)
        left, typed = files_of(self.root), files_of(copy)
        assert left.keys() == typed.keys(), job.command
        if not is_fresh:
            assert [name for name in left if left[name] != typed[name]] == [], job.command
        self.taken.add(step)
        return job.outcome

    @property
    def open_steps(self) -> list[str]:
        """The steps that the page has open."""
        return re.findall(r'<details class="step[^>]* id="(\w+)" open>', self.desk.ask("GET", "/").text)

    def waits(self, step: str) -> bool:
        """Whether a step that is listed cannot be taken yet."""
        state = next(state for state in self.desk.application.look().states if state.step.name == step)
        return bool(state.waits_for)


UNLIKE = (".sqlite", ".sqlite-wal", ".sqlite-shm", "lock", ".sealed")


def files_of(folder: Path) -> dict[str, bytes]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(UNLIKE))
    names = {path: str(path.relative_to(folder)) for path in paths}
    # a combining key's file is named after the key, and pages say when they were made
    contents = {path: re.sub(rb"[\d-]{10} \d\d:\d\d UTC", b"TIME", path.read_bytes()) for path in paths}
    return {re.sub(r"[0-9a-f]{32}", "KEY", names[path]): contents[path] for path in paths}


@pytest.fixture
def members(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mapping[str, Member]]:
    with ExitStack() as stack:
        yield {role: Member(stack.enter_context(serving(place / role)), place / role, monkeypatch) for role in ROLES}


def agree(place: Path, members: Mapping[str, Member], draft: str, limits: str = "") -> None:
    """Everybody joins, and the analyst, who keeps the study's file, enrols all."""
    for role, member in members.items():
        assert member.open_steps == ["join"]
        member.take("join", is_fresh=True, name=role, role="analyst" if role == "analyst" else "participant")
    commands.run(*shlex.split(draft), place=place / "post")
    with (place / "post" / "study.toml").open("a") as file:
        file.write(limits)
    copy(place, "post/study.toml", "analyst", "north")
    for name in NAMES:
        copy(place, f"{name}/*.card.toml", "analyst")
    north, analyst = members["north"], members["analyst"]
    north.take("fit", data="patients.csv")  # in a draft
    north.take("match", data="patients.csv", missing_word="-9")
    assert north.waits("check")
    assert north.open_steps == ["check"]  # enrolling is for whoever keeps the study's file
    assert analyst.open_steps == ["enrol"]
    enrolled = analyst.take("enrol", cards=[f"{role}.card.toml" for role in ROLES])
    assert enrolled.result.is_complete
    copy(place, "analyst/study.toml", *NAMES)


def finish(place: Path, members: Mapping[str, Member], **release: str) -> None:
    """The analyst delivers, a participant predicts, both report; and every step of the study was taken."""
    delivered = members["analyst"].take("deliver", **release).result.delivered
    assert set(delivered) == set(NAMES)
    east = members["east"]
    assert east.waits("predict")
    copy(place, "analyst/results/east/*", "east/result")
    assert east.take("predict", data="new.csv").result.values.size == 20
    east.take("predict", data="new.csv", beside="patients.csv", importance="yes", force="yes", ignore="")
    for member in (east, members["analyst"]):
        assert member.take("report").page is not None
    (place / "east" / "report.html").write_text("signed")
    assert "--force" in east.desk.take("report")
    assert (place / "east" / "report.html").read_text() == "signed"
    east.take("report", force="yes")
    assert "<svg" in (place / "east" / "report.html").read_text()
    for name in ("east", "analyst"):
        require_hand_offs(members[name])
    study = east.desk.application.workspace.study
    assert {name for member in members.values() for name in member.taken} == {
        step.name for step in steps_of(study) if step.run
    }


def require_hand_offs(member: Member) -> None:
    """The page links what steps made for others, each file for its recipients, and no other file can be downloaded."""
    hand_offs = member.desk.application.look().hand_offs
    page = member.desk.ask("GET", "/").text
    recipients: dict[str, set[str]] = {}
    for hand_off in hand_offs:
        for file in hand_off.files:
            recipients.setdefault(file, set()).update(hand_off.recipients)
            assert f'/file/{file}" download>' in page
            assert member.desk.ask("GET", f"/file/{file}").headers["content-disposition"].startswith("attachment")
    if member.root.name == "analyst":
        assert recipients["study.toml"] == {"everybody"}
        for name in NAMES:
            delivered = {file for file in recipients if file.startswith(f"results/{name}/")}
            assert delivered
            assert all(recipients[file] == {name} for file in delivered)
    else:
        assert {"analyst"} <= set().union(*(to for file, to in recipients.items() if ".bundle" in file))
    for other in ("patients.csv", "vault%2fkey", "..%2fpost%2fcolumns.csv", f".%2f{next(iter(recipients))}", "results"):
        assert member.desk.ask("GET", f"/file/{other}").status == 404


def test_every_step_of_rotation_does_on_the_desk_what_its_command_does(
    place: Path, members: Mapping[str, Member]
) -> None:
    agree(place, members, DRAFT)
    north, analyst = members["north"], members["analyst"]
    dealer = next(member for member in members.values() if "deal" in member.open_steps)
    dealer.take("deal", is_fresh=True)
    copy(place, f"{dealer.root.name}/ward.anchor", *(name for name in NAMES if name != dealer.root.name))
    checked = north.take("check", data="patients.csv")
    assert checked.standing == "in part"
    assert "<dt>cure</dt>" in north.desk.take("share", data="patients.csv", anchor="ward.anchor", labels="yes", sure="")
    assert not (place / "north" / "north.bundle").exists()
    for name in NAMES:
        shared = members[name].take("share", data="patients.csv", anchor="ward.anchor", labels="yes")
        assert shared.result.n_rows == 40
        assert ("The check of these rows: " in shared.notes[0]) == (name == "north")
    assert analyst.open_steps == ["align"]
    assert analyst.waits("align")
    copy(place, "*/*.bundle", "analyst/inbox")
    assert len(analyst.take("collect").result.bundles) == 3
    analyst.take("align", mode="first")
    analyst.take("train", learner="linear")
    finish(place, members)
    for mode in ("late", "again"):
        analyst.take("align", mode=mode)


def test_every_step_of_secure_sums_does_on_the_desk_what_its_command_does(
    place: Path, members: Mapping[str, Member]
) -> None:
    """In a study whose limits are not kept, so that somebody has to give a reason for sharing and for delivering."""
    agree(place, members, DRAFT + SUMS, LIMITS)
    north, south, analyst = members["north"], members["south"], members["analyst"]
    assert north.take("fit", data="patients.csv").result.fits
    assert north.open_steps == ["check"]
    assert not north.take("fit", data="wide.csv").result.fits
    assert north.open_steps == ["fit"]
    assert north.take("fit", data="wide.csv", ignore="note").result.fits
    north.desk.upload({"more.csv": b"?"})
    assert north.open_steps == ["fit"]  # a table may be another now
    north.take("check", data="patients.csv")
    with serving(place / "north") as restarted:
        advice = "of the table as it was then (mooring check patients.csv"
        assert all(advice in desk.ask("GET", "/").text for desk in (north.desk, restarted))
    north.desk.upload({"patients.csv": (place / "north" / "new.csv").read_bytes()}, replace=True)
    for name in NAMES:
        assert members[name].take("check", data="patients.csv").standing == "refused"
        assert "--override" in members[name].desk.take("share", data="patients.csv")
        shared = members[name].take("share", is_fresh=True, data="patients.csv", override=REASON)
        assert shared.result.override == REASON
        assert shared.result.epsilon == 2
    assert south.open_steps == ["confirm"]  # nobody is sent to the report while a step waits
    copy(place, "*/*.bundle", "analyst/inbox", *(f"{name}/inbox" for name in NAMES))
    (place / "analyst" / "inbox" / "x.bundle").write_text("none")
    collected = analyst.take("collect")
    assert (len(collected.result.bundles), len(collected.result.set_aside)) == (3, 1)
    (place / "analyst" / "inbox" / "x.bundle").unlink()
    for name in NAMES:
        assert members[name].take("confirm").result.is_whole
        assert members[name].waits("combine")  # until the list is closed
    copy(place, "*/*.receipt", "analyst/inbox")
    assert set(analyst.take("align").result.participants) == set(NAMES)
    copy(place, "analyst/analysis/closing.list", *NAMES)
    for name in NAMES:
        assert members[name].take("combine").result.is_whole
    copy(place, "*/*.share", "analyst/inbox")
    analyst.take("train", learner="auto")
    finish(place, members, override=REASON)
