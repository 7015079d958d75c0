"""A study by `mooring run` alone: one command each, three questions answered beforehand, no file carried by hand."""

import json
from pathlib import Path
from typing import Any

import pytest

from mooring.cli import execution
from mooring.cli.run import describe_question
from mooring.protocol.driver.questions import OpenQuestion
from mooring.protocol.messages.study import Study
from tests import commands
from tests.protocol.driver.support import ANALYST, NAMES, Town, draft

STRANGER = "-".join(["aaaa"] * 7)
UNSET = {"MOORING_STUDY": "", "MOORING_VAULT": "", "MOORING_PLACE": ""}


def run(town: Town, name: str, *words: Any, code: int | None = 0) -> dict[str, Any]:
    """What `mooring run --once` prints for programs."""
    usual = ["--analyst", "--name", ANALYST] if name == ANALYST else ["--table", "patients.csv", "--name", name]
    place = ["--place", town.place.address, "--once", "--format", "json"]
    result = commands.run("run", *place, *usual, *words, place=town.root / name, code=code, **UNSET)
    return dict(json.loads(result.stdout))


@pytest.fixture
def town(tmp_path: Path) -> Town:
    return Town.found(tmp_path, draft("sums"))


def test_four_stewards_and_an_analyst_answer_beforehand(town: Town) -> None:
    for name in (ANALYST, *NAMES):
        run(town, name)
    (asked,) = run(town, ANALYST, code=execution.IN_PART)["questions"]
    assert asked["kind"] == "members"
    cards = [word for _, fingerprint in asked["fingerprints"] for word in ("--accept", fingerprint)]
    run(town, ANALYST, *cards[2:], "--accept", STRANGER)  # waits for somebody who never comes
    assert not Study.read(town.root / ANALYST / "study.toml").participants
    run(town, ANALYST, *cards)
    fingerprint = Study.read(town.root / ANALYST / "study.toml").fingerprint
    north = run(town, "north", "--accept", STRANGER, "--share", "yes", code=execution.IN_PART)
    assert [question["kind"] for question in north["questions"]] == ["study"]
    turns: dict[str, dict[str, Any]] = {}
    while not all(turn["is_finished"] for turn in turns.values()) or not turns:
        for name in NAMES:
            turns[name] = run(town, name, "--accept", fingerprint, "--share", "yes", "--predict", "new.csv")
        turns[ANALYST] = run(town, ANALYST)
    for name in NAMES:
        assert (town.root / name / "predictions.csv").read_text().count("\n") == 13
    shown = commands.run("status", "--place", town.place.address, place=town.root / "north", **UNSET).output
    assert "Everything is done" in shown
    assert commands.run("status", place=town.root / "north", **UNSET).exit_code == 0
    assert all(not member["left"] for member in turns[ANALYST]["members"])


def test_a_status_tells_a_folder_without_a_vault_from_one_whose_card_is_elsewhere(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "north", tmp_path / "post"
    for path in (folder, elsewhere):
        path.mkdir()
    assert "You have not joined yet" in commands.run("status", place=folder, **UNSET).output
    commands.run("join", "--name", "north", "--output", elsewhere / "north.card.toml", place=folder, **UNSET)
    shown = commands.run("status", place=folder, **UNSET).output
    assert "names the owner of the vault" in shown
    assert "not joined" not in shown
    (elsewhere / "north.card.toml").rename(folder / "north.card.toml")
    assert "You are north, participant" in commands.run("status", place=folder, **UNSET).output


def test_a_participant_that_declines_shares_nothing_and_its_run_ends(tmp_path: Path) -> None:
    town = Town.found(tmp_path, draft("rotation"), names=NAMES[:2])
    for name in (ANALYST, *town.names, ANALYST):
        town.advance(name)
    fingerprint = town.study().fingerprint
    town.advance("south")  # may be the dealer
    for share in ("no", "if-advised"):  # rows without noise are not advised
        turn = run(town, "north", "--accept", fingerprint, "--share", share)
        assert turn["is_finished"]
        assert not (town.root / "north" / "north.bundle").exists()


def test_a_person_reads_terms_and_columns_once() -> None:
    columns = (("column", "kind"), ("age", "number"))
    first = OpenQuestion("study", "a", "Is this it?", (("Study", "ward"),), columns)
    second = OpenQuestion("share", "b", "Share?", (("Study", "ward"), ("The check", "fine")), columns)
    shown = [str(line) for line in describe_question(second, {*first.facts, first.columns})]
    assert not any("ward" in line for line in shown)
    assert any("fine" in line for line in shown)
    assert [line for line in describe_question(first) if not isinstance(line, str)]
    assert not [line for line in describe_question(second, {first.columns}) if not isinstance(line, str)]


def test_errors_of_run_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "post").mkdir()
    for words, code, what in (
        ([], execution.BAD_INPUT, "--name"),
        (["--name", "north"], execution.BAD_INPUT, "--table"),
        (["--name", "north", "--table", "t.csv"], execution.STORAGE, "the table t.csv"),
        (["--analyst", "--helper"], execution.BAD_INPUT, "--analyst and --helper"),
    ):
        commands.run("run", "--place", "post", "--once", *words, place=tmp_path, code=code, what=what, **UNSET)
    away = commands.run(
        "run", "--place", "away", "--analyst", "--once", place=tmp_path, code=execution.STORAGE, **UNSET
    )
    assert "the place: the place" not in away.output
    assert ".." not in away.output
