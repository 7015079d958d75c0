"""What a run answers by itself, what it asks, and what it says that it waits for; no step is run."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.errors import RefusedError
from mooring.protocol.common_steps import FITTING
from mooring.protocol.driver import Driver, Event, Given, OpenQuestion, Turn
from mooring.protocol.driver.driver import Waiting
from mooring.protocol.driver.questions import (
    ask_about_members,
    ask_about_reading,
    ask_about_sharing,
    describe_terms,
    list_members,
)
from mooring.protocol.messages.card import card_fingerprint
from mooring.protocol.participant.reading import Reading
from mooring.protocol.step import Choice, Question, Step
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from tests.protocol.sums.support import make_sum_study, with_helpers
from tests.sites import SITES, numeric_study


def driver(folder: Path, **options: Any) -> Driver:
    return Driver(Workspace.at(folder, StepPages()), None, **options)


def step(*asks: Question, **changes: Any) -> Step:
    return Step("x", "everybody", "X", "Do x.", "x", "", asks=asks, **changes)


FILE = Question("table", "Table", "choice", "--table", endings=(".csv",))


@pytest.mark.parametrize(
    ("asked", "files", "answers"),
    [
        (Question("n", "N", "number", "--n"), 0, None),
        (Question("n", "N", "number", "--n", is_optional=True), 0, {}),
        (Question("n", "N", "text", "--n", default="y"), 0, {"n": "y"}),
        (Question("n", "N", "usual", "--n", default="inbox"), 0, {"n": "inbox"}),
        (Question("kind", "Kind", "choice", choices=(Choice("a"),)), 1, None),
        (FILE, 0, None),
        (FILE, 1, {"table": "0.csv"}),
        (FILE, 2, None),
        (replace(FILE, kind="many"), 1, None),
        (replace(FILE, name="data"), 1, None),  # whose rows are shared, a person says
        (replace(FILE, name="given"), 2, {"given": "said"}),
    ],
)
def test_a_step_is_taken_without_a_person_where_there_is_one_answer_only(
    asked: Question, files: int, answers: dict[str, str] | None, tmp_path: Path
) -> None:
    for k in range(files):
        (tmp_path / f"{k}.csv").write_text("a\n")
    found = driver(tmp_path, given=Given({"x": {"given": "said"}, "y": {"n": 3}}))._find_answers(step(asked))
    named = None if found is None else {k: v.name if isinstance(v, Path) else v for k, v in found.items()}
    assert named == answers


def test_cards_are_chosen_by_the_run(tmp_path: Path) -> None:
    cards = Question("cards", "Cards", "many", endings=(".card",))
    assert driver(tmp_path)._find_answers(step(cards, consent="members")) == {}
    assert driver(tmp_path)._find_answers(step(cards)) is None


@pytest.mark.parametrize("kind", ["study", "share", "reading"])
def test_a_question_is_asked_until_it_is_answered_and_no_more_after_a_no(kind: Any, tmp_path: Path) -> None:
    answers, asked, told = [None, False, True], list[OpenQuestion](), list[Event]()

    def decide(question: OpenQuestion) -> bool | None:
        asked.append(question)
        return answers[len(asked) - 1]

    run, question = driver(tmp_path, decide=decide, tell=told.append), OpenQuestion(kind, "digest", "Is it?")
    assert not run._answer(question)
    assert run._open == [question]
    assert not run._answer(question)
    assert run._declined == {"digest"} | ({"share"} if kind == "share" else set())
    assert len(told) == (kind == "share")
    run._open.clear()
    assert not run._answer(question)
    assert (len(asked), run._open) == (2, [question])
    assert run._answer(replace(question, subject="another"))


@pytest.mark.parametrize(
    ("share", "advice", "answer"),
    [("ask", "share", None), ("yes", "", True), ("no", "share", False), ("if-advised", "share", True),
     ("if-advised", "cannot tell", False)],
)  # fmt: skip
def test_what_was_said_about_sharing_beforehand_is_the_answer(share: Any, advice: str, answer: bool | None) -> None:
    assert Given(share=share).answer(OpenQuestion("share", "", "", advice=advice)) is answer


def test_accepted_fingerprints_answer_where_all_were_compared() -> None:
    question = OpenQuestion("members", "", "", fingerprints=(("a", "one"), ("b", "two")))
    assert Given(accepted=("one", "two", "three")).answer(question) is True
    assert Given(accepted=("one",)).answer(question) is None
    assert Given(accepted=("one",)).answer(replace(question, fingerprints=())) is None


def test_a_turn_says_the_first_of_what_it_waits_for_and_a_table_that_does_not_fit_before_all() -> None:
    first, second = Waiting("a", "A", ("the first thing",)), Waiting("b", "B", (), ("north",))
    fitting = Waiting("c", "C", (FITTING.what,))
    for waits, said in (
        ((first,), "the first thing"),
        ((first, second), "north"),
        ((first, second, fitting), FITTING.what),
    ):
        words = Turn(False, waits).state_waiting()
        assert [part for part in ("the first thing", "north", FITTING.what) if part in words] == [said]
    question = OpenQuestion("study", "", "Is it agreed?")
    both = Turn(False, (first,), (question,)).state_waiting()
    assert question.words in both
    assert "the first thing" in both
    assert question.words not in Turn(False, (first,), (question,), away="no network").state_waiting()
    assert Turn(False).state_waiting()


def test_a_wait_names_its_members_or_else_what_is_lacking_and_how_long_it_lasts() -> None:
    wait = Waiting("a", "A", ("a thing", "another"), ("north", "south"), most_minutes=7)
    assert "north, south" in str(wait)
    assert "thing" not in str(wait)
    assert "7" in str(wait)
    assert "7" not in str(replace(wait, most_minutes=0))
    assert "a thing and another" in str(replace(wait, members=()))


def test_a_folder_is_another_once_a_file_that_steps_read_is(tmp_path: Path) -> None:
    table = tmp_path / "elsewhere" / "rows.csv"
    (root := tmp_path / "root").mkdir()
    table.parent.mkdir()
    table.write_text("a\n")
    run, seen = driver(root, given=Given({"check": {"data": table, "name": "north"}})), list[object]()
    for change in (lambda: None, lambda: table.write_text("a\n1\n"), lambda: (root / "inbox").mkdir(),
                   lambda: (root / "inbox" / "a").write_text("a"), lambda: (root / "b").write_text("b")):  # fmt: skip
        change()
        assert run._describe_folder() == run._describe_folder()
        seen.append(run._describe_folder())
    assert [a == b for a, b in pairwise(seen)] == [False, True, False, False]


def test_a_file_that_this_vault_did_not_put_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = driver(tmp_path)
    route = SimpleNamespace(step=SimpleNamespace(name="share"), at_place=SimpleNamespace(path="lab/a.bundle"))
    monkeypatch.setattr(run, "_list_own_routes", lambda: [route])

    def refuses(name: str, *, is_done: bool = False, put: bool = False, there: bool = True) -> bool:
        run.post.files = {"lab/a.bundle": object()} if there else {}  # type: ignore[dict-item]
        run.post.journal.entries = replace(run.post.journal.entries, put={"lab/a.bundle": "digest"} if put else {})
        state: Any = SimpleNamespace(step=SimpleNamespace(name=name), is_done=is_done)
        try:
            run._refuse_second_device(state)
        except RefusedError as refused:
            return refused.what == "the vault"
        return False

    assert refuses("share")
    assert not refuses("check")
    assert not refuses("share", is_done=True)
    assert not refuses("share", put=True)
    assert not refuses("share", there=False)


HEADINGS = ("column of the study", "read from", "how")


@pytest.mark.parametrize(
    ("reading", "headings", "n_lines"),
    [
        (Reading((HEADINGS,), ("room",), "", ()), ["Left out"], 0),
        (Reading((HEADINGS, ("age", "alter", "")), (), "latin-1", ()), ["Encoding"], 2),
        (Reading((HEADINGS, ("age", "alter", ""), ("sex", "sex", "")), (), "", ("What?",)), ["Not recognised"], 3),
    ],
)
def test_a_person_sees_what_is_read_otherwise_and_no_empty_table(
    reading: Reading, headings: list[str], n_lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = Workspace.at(tmp_path, StepPages())
    numeric_study().write(workspace.study_file)
    subjects = set()
    for changed in (reading, replace(reading, left_out=("ward",))):
        monkeypatch.setattr(
            "mooring.protocol.participant.reading.propose_reading", lambda *_, changed=changed, **__: changed
        )
        question = ask_about_reading(workspace, tmp_path / "rows.csv")
        assert question is not None
        subjects.add(question.subject)
        if changed is reading:
            assert [heading for heading, _ in question.facts] == headings
            assert len(question.columns) == n_lines
    assert len(subjects) == 2  # the answer to one reading is none to another
    monkeypatch.setattr("mooring.protocol.participant.reading.propose_reading", lambda *_, **__: None)
    assert ask_about_reading(workspace, tmp_path / "rows.csv") is None


def test_terms_name_the_label_and_say_who_sees_it(tmp_path: Path) -> None:
    def predicts(study: Any) -> str:
        return dict(describe_terms(study)).get("Predicts", "")

    classes, number = predicts(numeric_study()), predicts(numeric_study(kind="number"))
    assert "well, ill" in classes
    assert "-1000 to 1000" in number
    assert predicts(numeric_study(kind="none")) == ""
    sums = make_sum_study(tmp_path, 3)
    assert [words.count("; ") for words in (classes, number, predicts(sums.study))] == [1, 1, 0]  # sums show no label
    helped, _ = with_helpers(sums, 2)
    assert [heading for heading, _ in list_members(helped.study)] == ["3 participants", "Helpers", "Analyst"]
    assert [heading for heading, _ in list_members(sums.study)] == ["3 participants", "Analyst"]
    assert dict(list_members(replace(sums.study, analyst=None)))["Analyst"] == "nobody yet"


def test_members_are_listed_by_their_names_with_the_fingerprints_of_their_cards() -> None:
    cards: list[Any] = [("participant", SITES[1]), ("helper", SITES[0])]
    question = ask_about_members(cards)
    assert question.facts == (("site-0", "helper"), ("site-1", "participant"))
    assert question.fingerprints == tuple(
        (member.name, card_fingerprint(role, member)) for role, member in reversed(cards)
    )


@pytest.mark.parametrize(
    ("of_study", "of_rows", "advice"),
    [
        ("share", "do not share", "share"),
        ("", "do not share", "do not share"),
        ("", None, ""),
        ("share", None, "share"),
    ],
)
def test_advice_that_follows_from_the_study_goes_before_that_of_the_check(
    of_study: str, of_rows: str | None, advice: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = SimpleNamespace(advise_sharing=lambda _: of_study, describe_study=lambda _: [], forecast=lambda _: None)
    checked = None if of_rows is None else SimpleNamespace(answer=of_rows, advice="What was found.")
    monkeypatch.setattr("mooring.protocol.driver.questions.exchange_of", lambda _: exchange)
    monkeypatch.setattr("mooring.protocol.participant.membership.read_check", lambda *_: checked)
    workspace: Any = SimpleNamespace(study=numeric_study(), vault=None)
    question = ask_about_sharing(workspace)
    assert question.advice == advice
    assert ("What was found." in dict(question.facts).values()) == (checked is not None)
    assert (question.kind, question.subject) == ("share", numeric_study().digest)
