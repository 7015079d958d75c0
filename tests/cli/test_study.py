"""`mooring study`, as whoever keeps the study's file runs it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.cli.execution import BAD_INPUT, IN_PART, REFUSED, STORAGE
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study
from tests import commands
from tests.commands import flat
from tests.protocol.support import write_member_card

CANARY = "8642.1357"
FILLED = ["--label", "ill", "--classes", "no,yes", "--range", "age=0:120", "--category", "sex=female,male"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(f"age,sex,ill\n{CANARY},{CANARY},{CANARY}\n")
    return path


def run(*words: Any, code: int = 0, what: str = "") -> Any:
    return commands.run("study", *words, code=code, what=what)


def card(folder: Path, name: str, role: Any = "participant") -> Path:
    return write_member_card(folder, name, role)[0]


def test_from_header_to_roster_and_fingerprint(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    drafted = run("init", data, "--output", study, "--name", "heart", *FILLED)
    cards = [card(tmp_path, "north"), card(tmp_path, "south"), card(tmp_path, "analyst", "analyst")]
    enrolled = run("enrol", *cards, "--study", study, "--format", "json")
    record = json.loads(enrolled.stdout)
    agreed = Study.read(study)
    expected = {"participants": ["north", "south"], "analyst": "analyst", "fingerprint": agreed.fingerprint}
    assert expected.items() <= record.items()
    shown = flat(run("show", "--study", study).output)
    for words in ("heart", "0 to 120", "female, male", "no, yes", "north, south", agreed.fingerprint):
        assert words in shown
    assert commands.record_of("study", "show", "--study", study)["digest"] == agreed.digest
    assert CANARY not in study.read_text() + shown + drafted.output + enrolled.output


def test_ids_dates_and_text_are_recognised_by_name_or_rows_and_declared_columns_are_not_guessed(tmp_path: Path) -> None:
    study, header = tmp_path / "study.toml", tmp_path / "t.csv"
    header.write_text("PatientID,date_of_birth,admission_date,notes,age,birth_weight,email,visit_no\n")
    words = [
        "init", header, "-o", study, "--range", "age=0:120", "--range", "birth_weight=0:9", "--category",
        "email=no,yes",
    ]  # fmt: skip
    record = json.loads(run(*words, "--format", "json").stdout)
    assert list(record["recognised"]) == ["PatientID", "date_of_birth", "admission_date", "notes", "visit_no"]
    assert record["open_entries"] == 2
    days = ["--date", "admission_date=2000-01-01:2026-12-31", "--birth", "date_of_birth=2026-01-01", "--id", "age"]
    run(
        *words[:-6], "--all-ranges", "0:9", *days, "--missing-word", "birth_weight=0", "--missing-word", "-9", "--force"
    )
    agreed = Study.read(study)
    assert (agreed.ids, agreed.missing_words) == (("PatientID", "age", "visit_no"), ("-9",))
    assert [(column.name, column.kind, column.missing_words) for column in agreed.columns] == [
        ("date_of_birth", "age", ()), ("admission_date", "date", ()), ("birth_weight", "number", ("0",)),
    ]  # fmt: skip
    shown = flat(run("show", "--study", study).output)
    for name in ("2000-01-01 to 2026-12-31", "age of 0 to 120 at 2026-01-01", "missing or 0: refuse", "PatientID, age"):
        assert name in shown
    lines = [f"{k},2024-01-{10 + k},{k}.1.1960,A{k:03},{'AB'[k % 2]},says {k * 'o'},{40 + k}" for k in range(19)]
    header.write_text("\n".join(["person,seen,born,erst,ward,said,age", *lines, ",,,,,,n/a"]))
    recognised = commands.record_of("study", "init", header, "-o", study, "--force")["recognised"]
    assert list(recognised) == ["person", "seen", "born", "erst", "ward", "said"]
    drafted = parse_study(study.read_text())
    assert {column["name"]: column["kind"] for column in drafted["columns"]} == {
        "seen": "date", "born": "age", "ward": "category", "age": "number",
    }  # fmt: skip
    assert drafted["rows"]["ids"] == ["person", "erst"]
    assert "says" not in study.read_text()


@pytest.mark.parametrize("method", [(), ("--mechanism", "secure-sum")])
def test_a_roster_without_analyst_or_with_one_participant_is_not_complete_yet(
    data: Path, tmp_path: Path, method: tuple[str, ...]
) -> None:
    study = tmp_path / "study.toml"
    run("init", data, "-o", study, *FILLED, *method)
    for name, complete in (("north", False), ("south", False), ("analyst", True)):
        path = tmp_path / f"{name}.card.toml"
        commands.run(
            "join", "--name", name, *["--role", "analyst"] * complete, "--vault", tmp_path / name, "--output", path
        )
        run("enrol", path, "--study", study)
        assert (Study.read(study).analyst is not None) is complete


def test_an_open_draft_says_what_to_do_and_is_no_study_yet(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    record = commands.record_of("study", "init", data, "-o", study, "--label", "ill")
    assert (record["open_entries"], record["fingerprint"]) == (3, None)
    assert (record["mechanism"]["projection"], record["mechanism"]["data_noise_scale"]) == ("none", 0.5)
    run("show", "--study", study, code=BAD_INPUT, what="columns")


def test_a_file_that_is_there_is_not_overwritten_unless_asked(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text("mine")
    run("init", data, "-o", study, code=BAD_INPUT, what="output")
    assert study.read_text() == "mine"
    run("init", data, "-o", study, "--force")


def test_a_draft_that_would_be_no_study_is_not_written(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    run("init", data, "-o", study, *FILLED, "--method", "i-gdp", code=BAD_INPUT)
    run("init", data, "-o", study, *FILLED, "--range", "age=5:1", code=BAD_INPUT)
    assert not study.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--range", "age"], ["--range", "age=1"], ["--all-ranges", "x:y"], ["--category", "sex"],
        ["--image-shape", "8xx"], ["--ignore", "agee"],
    ],
)  # fmt: skip
def test_options_that_cannot_be_read_are_refused(data: Path, tmp_path: Path, words: list[str]) -> None:
    assert "mooring:" in run("init", data, "-o", tmp_path / "study.toml", *words, code=BAD_INPUT).stderr


def test_a_card_whose_proof_fails_is_not_enrolled(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    run("init", data, "-o", study, *FILLED)
    before = study.read_bytes()
    good, bad = card(tmp_path, "north"), card(tmp_path, "south")
    bad.write_text(bad.read_text().replace('name = "south"', 'name = "east"'))
    assert "'east'" in run("enrol", good, bad, "--study", study, code=REFUSED).stderr
    assert study.read_bytes() == before
    run("enrol", tmp_path / "none.card.toml", "--study", study, code=STORAGE)


def test_a_public_projection_is_made_from_public_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(5)]
    rows = "\n".join(",".join(f"{value:.4f}" for value in row) + ",1" for row in rng.uniform(0, 1, (30, 5)))
    (tmp_path / "public.csv").write_text(",".join([*names, "note"]) + "\n" + rows + "\n")
    study = tmp_path / "study.toml"
    init = [
        "init",
        tmp_path / "public.csv",
        "-o",
        study,
        "--ignore",
        "note",
        "--all-ranges",
        "0:1",
        "--components",
        "2",
    ]
    run(*init, "--projection", "public-svd")
    project = ["project", tmp_path / "public.csv", "--study", study]
    assert "--ignore note" in flat(run(*project, code=BAD_INPUT).stderr)
    made = run(*project, "--ignore", "note", "--format", "json")
    assert json.loads(made.stdout)["fingerprint"] == Study.read(study).fingerprint
    assert (tmp_path / "study.projection.safetensors").exists()


@pytest.mark.parametrize("option", [("--epsilon", "1"), ("--question", "tables"), ("--person", "sex")])
def test_options_of_secure_sums_are_refused_in_a_draft_of_rotation(
    option: tuple[str, str], data: Path, tmp_path: Path
) -> None:
    """Somebody who asks for a guarantee must not get a study that uploads rows."""
    study = tmp_path / "study.toml"
    run("init", data, "--output", study, *FILLED, *option, code=BAD_INPUT, what="mechanism")
    assert not study.exists()


def test_a_draft_and_a_table_are_enough_to_see_whether_it_fits(data: Path, tmp_path: Path) -> None:
    """Without vault, roster or anchor: exit code 2 and every problem; 3 where a class is too small; else 0."""
    study, other = tmp_path / "study.toml", tmp_path / "other.csv"
    run("init", data, "-o", study, *FILLED)
    check = ["check", data, "--study", study, "--fit-only", "--format", "json"]
    error = json.loads(commands.run(*check, code=BAD_INPUT, what="the table").stdout)
    fit = error["error"]["fit"]
    assert (error["exit_code"], error["error"]["kind"], fit["fits"]) == (BAD_INPUT, "InputError", False)
    assert [(problem["column"], problem["kind"]) for problem in fit["problems"]] == [
        ("age", "far-outside"), ("sex", "code"), ("ill", "code"),
    ]  # fmt: skip
    output = flat(commands.run(*check[:-2], code=BAD_INPUT).output)
    assert "1 cell, row 1" in output
    assert CANARY not in output + json.dumps(fit)
    other.write_text("age,sex,ill\n50,male,no\n50,male,yes\n")
    fits = json.loads(commands.run("check", other, *check[2:], code=IN_PART).stdout)
    assert (fits["fits"], fits["n_rows"], fits["class_counts"]) == (True, 2, {"no": 1, "yes": 1})
    assert len(fits["warnings"]) == 2
