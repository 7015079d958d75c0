"""A study goes from a draft to predictions by passes of the driver alone, whatever its mechanism."""

from pathlib import Path

import pytest

from mooring.protocol.driver.questions import ask_about_reading, ask_about_sharing
from mooring.protocol.participant.steps import fit, match
from tests.protocol.driver.support import ANALYST, N_NEW, NAMES, Town, draft


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_four_stewards_and_an_analyst_carry_no_file_from_a_draft_to_predictions(mechanism: str, folder: Path) -> None:
    town = Town.found(folder, draft(mechanism))
    rounds = town.go_round()
    assert rounds <= 8
    for name in NAMES:
        assert (folder / name / "predictions.csv").is_file()
        assert [question.kind for question in town.asked[name]] == ["study", "share"]
    assert [question.kind for question in town.asked[ANALYST]] == ["members"]


def test_a_look_finds_what_a_pass_left(folder: Path) -> None:
    town = Town.found(folder, draft("sums"), names=NAMES[:2])
    town.advance(ANALYST)
    driver = town.driver("north")
    with driver.lock():
        turn = driver.advance()
    look = driver.look()
    assert (look.waits, look.left, look.members) == (turn.waits, turn.left, turn.members)
    assert look.waits
    assert not look.did_something


MESSY = ("abc,male,no", "500,unknown,yes", "50,male", "50,male,perhaps", "50,male,")


@pytest.mark.parametrize(("mechanism", "unread", "n_scored"), [("rotation", {13, 14, 15}, 12), ("sums", {15}, 14)])
def test_new_rows_are_predicted_as_rows_are_read_when_they_are_shared(
    mechanism: str, unread: set[int], n_scored: int, folder: Path
) -> None:
    """With noise, cells that do not fit are adapted. Rows that cannot be read keep their place, without a prediction."""
    town = Town.found(folder, draft(mechanism), names=NAMES[:3])
    for name in town.names:
        table = folder / name / "new.csv"
        table.write_text(table.read_text() + "\n".join(MESSY) + "\n")
    town.go_round()
    _, *lines = (folder / "north" / "predictions.csv").read_text().splitlines()
    assert [k + 1 for k, line in enumerate(lines) if not line.strip(",")] == sorted(unread)
    assert len(lines) == N_NEW + len(MESSY)
    (outcome,) = (event.outcome for event in town.events["north"] if event.words == "Predict")
    assert outcome is not None
    assert set(outcome.result.reading.unread) == unread
    assert (outcome.result.n_scored, outcome.result.reading.n_rows) == (n_scored, len(lines))
    assert outcome.result.importance is None  # which takes long, and nobody asked for it


OWN = "e-mail;Alter;Geschlecht;ill\n" + "".join(
    f"{k}@example.org;{k},5;{'wm'[k % 2]};{('nein', 'ja')[k > 60]}\n" for k in range(20, 100)
)


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_a_table_with_other_names_and_words_is_read_as_a_person_agrees(mechanism: str, folder: Path) -> None:
    town = Town.found(folder, draft(mechanism), names=NAMES[:1])
    path, mapping = folder / "north" / "patients.csv", folder / "north" / "mapping.toml"
    path.write_text(OWN)
    town.answers["north", "reading"] = None
    for name in (ANALYST, "north", ANALYST, "north"):
        town.advance(name)
    (question, *_) = town.asked["north"]
    assert question.kind == "reading"
    assert dict(question.facts)["Left out"] == "e-mail"
    assert {row[:2] for row in question.columns[1:]} == {("age", "Alter"), ("sex", "Geschlecht"), ("ill", "ill")}
    assert not mapping.exists()
    assert "Fit your table" not in town.took("north")
    path.write_text(OWN.replace("Alter", "AGE"))
    town.answers["north", "reading"] = True
    turn = town.advance("north", share="ask")
    assert "AGE" in mapping.read_text()
    assert "Fit your table" in town.took("north")
    assert not any("fit" in lacks for waiting in turn.waits for lacks in waiting.lacks)
    n_asked = len(town.asked["north"])
    town.advance("north")
    assert "reading" not in [question.kind for question in town.asked["north"][n_asked:]]


def test_a_table_that_differs_by_a_further_column_alone_is_asked_about_without_a_table_of_rules(folder: Path) -> None:
    workspace = Town.found(folder, draft("rotation"), names=NAMES[:1]).workspace("north")
    draft("rotation").write(workspace.study_file)
    path = folder / "north" / "patients.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["e-mail," + lines[0], *(f"{k}@example.org,{line}" for k, line in enumerate(lines[1:]))]))
    question = ask_about_reading(workspace, path)
    assert question is not None
    assert question.facts == (("Left out", "e-mail"),)
    assert question.columns == ()


def test_a_table_that_fits_by_its_mapping_keeps_no_step_waiting(folder: Path) -> None:
    """As on a desk without a place, where nobody takes the step 'fit' a second time."""
    workspace = Town.found(folder, draft("rotation"), names=NAMES[:1]).workspace("north")
    draft("rotation").write(workspace.study_file)
    table = workspace.root / "patients.csv"
    table.write_text(OWN)
    fit(workspace, data=table)
    assert workspace.is_misfit
    match(workspace, data=table)
    assert not workspace.is_misfit


@pytest.mark.parametrize("mechanism", ["rotation", "sums"])
def test_a_run_waits_while_a_table_lacks_a_column_and_goes_on_once_it_is_read(mechanism: str, folder: Path) -> None:
    town = Town.found(folder, draft(mechanism), names=NAMES[:2])
    table = folder / "north" / "patients.csv"
    table.write_text(OWN)
    town.answers["north", "reading"] = False
    for name in (ANALYST, "south", "north", ANALYST, "south", "north"):
        turn = town.advance(name)
    assert "a table that fits the study" in {lacks for waiting in turn.waits for lacks in waiting.lacks}
    assert "Share" not in town.took("north")
    mapping = folder / "north" / "mapping.toml"
    mapping.write_text(
        'decimal = ","\nignore = ["e-mail"]\n[columns.age]\nsource = "Alter"\n'
        '[columns.sex]\nsource = "Geschlecht"\nwords = {w = "female", m = "male"}\n'
        '[columns.ill]\nwords = {nein = "no", ja = "yes"}\n'
    )
    town.advance("north")
    assert "See what would be disclosed" in town.took("north")


def test_a_person_is_not_asked_to_share_before_it_is_known_how_the_table_is_read(folder: Path) -> None:
    """With noise, cells that cannot be read are filled, so that a table read wrongly would be shared without an error."""
    town = Town.found(folder, draft("sums"), names=NAMES[:2])
    (folder / "north" / "patients.csv").write_text("age;sex;ill\n" + "50,5;male;no\n61,5;female;yes\n" * 20)
    town.answers["north", "reading"] = None
    for name in (*town.names, ANALYST, *town.names):
        town.advance(name)
    assert {"reading", "study"} <= {question.kind for question in town.asked["north"]}
    assert "share" not in {question.kind for question in town.asked["north"]}
    town.advance("north", share="if-advised")  # said beforehand: whether cells fit must not decide
    assert "Share" in town.took("north")


def test_helpers_combine_by_themselves_and_members_may_be_gone_without(folder: Path) -> None:
    study = draft("sums", quorum=2)
    town = Town.found(folder, study, names=NAMES[:3], helpers=("first", "second"))
    town.answers["east", "share"] = False  # stays out
    for _ in range(8):
        for name in town.everybody:
            town.advance(name, without=("east",))
    assert "Combine" in town.took("first")
    assert "Combine" in town.took("second")
    for name in ("north", "south"):
        assert (folder / name / "predictions.csv").is_file()
        assert "Combine" not in town.took(name)
    assert not (folder / "east" / "east.bundle").exists()
    town.answers.clear()
    assert town.advance("east").is_finished  # it comes after the list is closed, and shares nothing for nothing
    assert not (folder / "east" / "east.bundle").exists()
    assert (folder / "east" / "predictions.csv").is_file()


def test_the_analyst_goes_on_without_combiners_beyond_the_threshold_after_a_while(folder: Path) -> None:
    """Any three of four combiners open the same total; a member that waits reads the cause, and not who is next."""
    town = Town.found(folder, draft("sums"))
    for name in (*town.names, ANALYST, *town.names[:3], ANALYST):
        turn = town.advance(name)
    assert {waiting.step: waiting.members for waiting in turn.waits}["align"] == ("west",)
    assert {waiting.members for waiting in town.advance("north").waits} == {("west",)}
    town.advance("west")  # shares, and is gone before its receipt arrives
    (receipt,) = (folder / "post" / "west" / ANALYST).glob("west.receipt*")
    receipt.unlink()
    for name in (*town.names[:3], ANALYST):
        turn = town.advance(name)
    (waiting,) = (waiting for waiting in turn.waits if waiting.step == "align")
    assert (waiting.members, waiting.most_minutes) == (("west",), 10)
    for name in (ANALYST, *town.names[:2], ANALYST):
        turn = town.advance(name, patience=0)
    (waiting,) = (waiting for waiting in turn.waits if waiting.step == "train")
    assert (waiting.members, waiting.most_minutes) == (("east", "west"), 0)  # three must answer
    assert {waiting.members for waiting in town.advance("north").waits} == {("east", "west")}
    town.advance("east")
    assert town.advance(ANALYST).waits[0].most_minutes == 10
    assert {waiting.members for waiting in town.advance("north").waits} == {(ANALYST,)}
    assert town.advance(ANALYST, patience=0).is_finished
    assert town.advance("north").is_finished
    assert town.advance("west").is_finished  # comes back
    assert town.advance(ANALYST).is_finished
    assert town.took(ANALYST).count("Train") == 1


@pytest.mark.parametrize(("epsilon", "expected_rows", "advice"), [(2.0, 0, "share"), (0.001, 200, "do not share")])
def test_advice_of_sums_with_noise_follows_from_the_study_and_from_no_row(
    epsilon: float, expected_rows: int, advice: str, folder: Path
) -> None:
    town = Town.found(folder, draft("sums", epsilon=epsilon, expected_rows=expected_rows), names=NAMES[:2])
    for name in (*town.names, ANALYST, *town.names):
        if name == "north":  # another table, whose rows are all the same
            (folder / name / "patients.csv").write_text("age,sex,ill\n" + "50,male,no\n" * 40)
        town.advance(name, accepted=(), share="if-advised")
    for name in town.names:
        assert ask_about_sharing(town.workspace(name)).advice == advice
        assert (folder / name / f"{name}.bundle").exists() == (advice == "share")


def test_a_table_without_rows_is_checked_and_shared_like_any_other(folder: Path) -> None:
    """With noise, whether there are rows, or rows that can be used, does not decide whether something leaves."""
    tables = {"north": "", "south": "50,male,\n50\n", "east": "50,male,no\n"}
    town = Town.found(folder, draft("sums"), names=tuple(tables))
    for name, rows in tables.items():
        (folder / name / "patients.csv").write_text(f"age,sex,ill\n{rows}")
    for name in (*town.names, ANALYST, *town.names):
        town.advance(name, share="if-advised")
    for name in town.names:
        assert {"See what would be disclosed", "Share"} <= {*town.took(name)}
        assert (folder / "post" / name / "everybody" / f"{name}.bundle").is_file()
