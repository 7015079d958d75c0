"""A desk at a place: what it does by itself, what it asks, and what its forms refuse."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import urlencode

import pytest

from mooring.desk.app import Situation
from mooring.desk.jobs import Job
from mooring.errors import InputError
from mooring.protocol.driver import Turn
from tests.desk.serving import Running, serving
from tests.protocol.driver.support import ANALYST, Town, draft
from tests.raising import raising

NAMES = ("north", "south")


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path, draft("rotation"), names=NAMES)


@pytest.fixture
def north(town: Town) -> Iterator[Running]:
    with serving(town.root / "north", town.place.address) as desk:
        desk.take("join", name="north", role="participant", accept_no_noise="yes")
        yield desk


def wait_for(holds: Callable[[], object], seconds: float = 120.0) -> None:
    end = monotonic() + seconds
    while not holds():
        assert monotonic() < end
        sleep(0.05)


def post(desk: Running, path: str, **entries: str) -> str:
    """Send a form, and return the page."""
    form = {"form_token": desk.application.session.form_token} | entries
    assert desk.ask("POST", path, urlencode(form).encode()).status == 303
    return desk.ask("GET", "/").text


def ask_about_study(town: Town, desk: Running) -> str:
    """Let the others join and complete the study; return the subject of the question that the desk then asks."""
    for name in ("south", ANALYST):
        town.advance(name)
    wait_for(lambda: (town.root / "post" / "north").is_dir())
    town.advance(ANALYST)
    guide = desk.application.guide
    wait_for(lambda: [question.kind for question in guide.questions] == ["study"])
    return guide.questions[0].subject


def test_a_desk_asks_only_what_a_person_must_answer_and_keeps_still_while_it_asks(town: Town, north: Running) -> None:
    subject = ask_about_study(town, north)
    guide, page = north.application.guide, north.ask("GET", "/")
    assert "refresh" not in page.headers  # what is typed into a form is not lost
    guide.step = Job("Test bundles")
    assert "refresh" not in north.ask("GET", "/").headers  # also while the desk does something meanwhile
    guide.step = None
    study = town.study(ANALYST)
    assert page.text.count(study.fingerprint) == 1
    assert "not yet compared" in page.text
    assert all(column.described in page.text for column in study.columns)
    refused = {
        "token": {"form_token": "x"},
        "tick": {"sure": ""},
        "subject": {"subject": "x"},
        "answer": {"answer": "?"},
    }
    for changed in refused.values():
        form = {"kind": "study", "subject": subject, "answer": "yes", "sure": "yes"} | changed
        assert "<dt>cure</dt>" in post(north, "/answer", **form)
        assert not guide.answers
    post(north, "/answer", kind="study", subject=subject, answer="no")
    wait_for(lambda: guide.turn is not None and not guide.questions)
    assert guide.refusals == ("study",)
    assert not guide.has_compared(study)
    post(north, "/answer", answer="again")
    wait_for(lambda: guide.questions)
    post(north, "/answer", kind="study", subject=subject, answer="yes", sure="yes")
    wait_for(lambda: guide.has_compared(study))
    wait_for(lambda: "fit" in guide.list_left())
    assert 'action="' + north.application.session.path + '/step/fit"' in north.ask("GET", "/").text
    with serving(town.root / "north") as restarted:
        again = restarted.application.guide
        assert again.place == town.place
        assert again.has_compared(study)


def test_a_page_loads_itself_after_a_step_until_the_desk_has_a_question(
    town: Town, north: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, guide = town.root / "north" / "patients.csv", north.application.guide
    table.write_text(table.read_text().replace("sex", "gender"))
    town.advance(ANALYST)
    wait_for(lambda: "fit" in guide.list_left())
    assert "refresh" not in north.ask("GET", "/").headers
    with monkeypatch.context() as patch:
        patch.setattr(guide, "_pass", lambda: False)
        north.take("fit", data="patients.csv")
        assert north.ask("GET", "/").headers["refresh"] == "5"
        look = north.application.look

        def end_a_pass_meanwhile() -> Situation:
            situation, guide.turn = look(), Turn(did_something=False, is_finished=True)
            return situation

        patch.setattr(north.application, "look", end_a_pass_meanwhile)
        assert north.ask("GET", "/").headers["refresh"] == "5"  # the page does not list what can be done now
    guide.go_on()
    wait_for(lambda: [question.kind for question in guide.questions] == ["reading"])
    assert "gender" in north.ask("GET", "/").text
    subject = guide.questions[0].subject
    post(north, "/answer", kind="reading", subject=subject, answer="yes", sure="yes")
    wait_for((town.root / "north" / "mapping.toml").is_file)


def test_the_desk_cannot_take_the_step_of_a_form_before_the_form_does(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(town.root / "north", town.place.address) as desk:
        guide, was_held = desk.application.guide, list[bool]()
        monkeypatch.setattr(guide, "keep_entries", lambda step, entries: was_held.append(guide.jobs.turn.locked()))
        with guide.jobs.turn:  # no pass of the desk holds it by chance
            monkeypatch.setattr(guide, "_pass", lambda: False)
        desk.take("join", name="north", role="participant", accept_no_noise="yes")
        assert was_held == [True]


def test_a_step_that_fails_stops_the_desk_until_a_person_goes_on(town: Town, north: Running) -> None:
    guide = north.application.guide
    with guide.jobs.turn:
        (town.root / "north" / "study.toml").write_text("?")
    wait_for(lambda: guide.problem is not None)
    assert 'id="again"' in north.ask("GET", "/?steps").text
    (town.root / "north" / "study.toml").unlink()
    post(north, "/answer", answer="again")
    wait_for(lambda: guide.turn is not None and guide.problem is None)
    page = north.ask("GET", "/")
    assert page.headers["refresh"] == "5"  # nothing to do but to wait
    assert "refresh" not in north.ask("GET", "/?still").headers
    assert "refresh" not in north.ask("GET", "/?steps").headers  # which has forms


@pytest.mark.parametrize("address", ["ward", "../post", "{root}/nowhere", "{root}/north/inside", "https://x.example/a"])
def test_a_place_is_a_folder_elsewhere_that_is_there(address: str, town: Town, north: Running) -> None:
    (town.root / "north" / "inside").mkdir()
    guide = north.application.guide
    with raising(InputError, *([] if address.startswith("http") else ["place"])):
        guide.choose_place(address.format(root=town.root))
    assert guide.place == town.place
    assert "<dt>cure</dt>" in post(north, "/place", place=address.format(root=town.root))
    assert "<dt>cure</dt>" in post(north, "/place", place="", form_token="x")
    assert guide.place == town.place
    post(north, "/place", place="")
    assert guide.place is None
    (kept,) = (town.root / "north" / "vault").rglob("desk.json")  # what the desk begins with when it is started again
    assert json.loads(kept.read_text(encoding="utf-8"))["place"] == ""
