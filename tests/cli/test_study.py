"""`mooring study`, as whoever keeps the study's file runs it."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from mooring.cli.execution import BAD_INPUT, REFUSED, STORAGE
from mooring.cli.study import study_app
from mooring.protocol.crypto.keys import SealingKey, SigningKey
from mooring.protocol.messages.card import Member, write_card
from mooring.protocol.messages.study import Study

RUNNER = CliRunner()
CANARY = "8642.1357"
FILLED = ["--label", "ill", "--classes", "no,yes", "--range", "age=0:120", "--category", "sex=female,male"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "patients.csv"
    path.write_text(f"age,sex,ill\n{CANARY},{CANARY},{CANARY}\n")
    return path


def run(*words: Any) -> Any:
    return RUNNER.invoke(study_app, [str(word) for word in words])


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def card(folder: Path, name: str, role: Any = "participant") -> Path:
    signer = SigningKey.generate()
    member = Member(name, signer.public, SealingKey.generate().public if role == "participant" else "")
    write_card(folder / f"{name}.card.toml", role=role, member=member, signer=signer)
    return folder / f"{name}.card.toml"


def test_from_header_to_roster_and_fingerprint(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    drafted = run("init", data, "--output", study, "--name", "heart", *FILLED)
    assert drafted.exit_code == 0, drafted.output
    assert "No row of the table was read" in flat(drafted.output)
    cards = [card(tmp_path, "north"), card(tmp_path, "south"), card(tmp_path, "analyst", "analyst")]
    enrolled = run("enrol", *cards, "--study", study, "--format", "json")
    found = json.loads(enrolled.stdout)
    agreed = Study.read(study)
    assert found["participants"] == ["north", "south"]
    assert found["analyst"] == "analyst"
    assert found["fingerprint"] == agreed.fingerprint
    shown = flat(run("show", "--study", study).output)
    for words in (
        "heart",
        "age: number, 0 to 120",
        "one of female, male",
        "one of no, yes",
        "north, south",
        "private-data",
    ):
        assert words in shown
    assert agreed.fingerprint in shown
    plain = json.loads(run("show", "--study", study, "--format", "json").stdout)
    assert plain["digest"] == agreed.digest
    assert CANARY not in study.read_text() + shown + drafted.output + enrolled.output


def test_an_open_draft_says_what_to_do_and_is_no_study_yet(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    drafted = run("init", data, "-o", study, "--label", "ill", "--format", "json")
    assert json.loads(drafted.stdout) == {"study": str(study), "open_entries": 3, "fingerprint": None}
    shown = run("show", "--study", study)
    assert shown.exit_code == BAD_INPUT
    assert "range of column 'age'" in flat(shown.output)


def test_a_file_that_is_there_is_not_overwritten_unless_asked(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    study.write_text("mine")
    assert run("init", data, "-o", study).exit_code == REFUSED
    assert study.read_text() == "mine"
    assert run("init", data, "-o", study, "--force").exit_code == 0


def test_a_draft_that_would_be_no_study_is_not_written(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    assert run("init", data, "-o", study, *FILLED, "--method", "i-gdp").exit_code == BAD_INPUT
    assert run("init", data, "-o", study, *FILLED, "--range", "age=5:1").exit_code == BAD_INPUT
    assert not study.exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--range", "age"],
        ["--range", "age=1"],
        ["--all-ranges", "x:y"],
        ["--category", "sex"],
        ["--image-shape", "8xx"],
        ["--projection", "svd"],
        ["--drop", "agee"],
        ["--format", "yaml"],
    ],
)
def test_options_that_cannot_be_read_are_refused(data: Path, tmp_path: Path, words: list[str]) -> None:
    result = run("init", data, "-o", tmp_path / "study.toml", *words)
    assert result.exit_code == BAD_INPUT
    assert "mooring:" in result.output


def test_a_card_whose_proof_fails_is_not_enrolled(data: Path, tmp_path: Path) -> None:
    study = tmp_path / "study.toml"
    run("init", data, "-o", study, *FILLED)
    before = study.read_bytes()
    good, bad = card(tmp_path, "north"), card(tmp_path, "south")
    bad.write_text(bad.read_text().replace('name = "south"', 'name = "east"'))
    result = run("enrol", good, bad, "--study", study)
    assert result.exit_code == REFUSED
    assert "'east'" in result.output
    assert study.read_bytes() == before
    assert run("enrol", tmp_path / "none.card.toml", "--study", study).exit_code == STORAGE


def test_a_public_projection_is_made_from_public_rows(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = [f"x{k}" for k in range(5)]
    rows = "\n".join(",".join(f"{value:.4f}" for value in row) + ",1" for row in rng.uniform(0, 1, (30, 5)))
    (tmp_path / "public.csv").write_text(",".join([*names, "note"]) + "\n" + rows + "\n")
    study = tmp_path / "study.toml"
    init = ["init", tmp_path / "public.csv", "-o", study, "--drop", "note", "--all-ranges", "0:1", "--components", "2"]
    assert run(*init, "--projection", "public-svd").exit_code == 0
    project = ["project", tmp_path / "public.csv", "--study", study]
    assert "--ignore note" in flat(run(*project).output)
    made = run(*project, "--ignore", "note", "--format", "json")
    assert json.loads(made.stdout)["fingerprint"] == Study.read(study).fingerprint
    assert (tmp_path / "study.projection.safetensors").exists()
