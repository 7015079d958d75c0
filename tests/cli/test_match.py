"""`mooring match`, as a steward runs it on a table that differs from the study's in everything but its meaning."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.cli.execution import IN_PART
from mooring.cli.inputs import read_and_partition
from mooring.cli.options import AuditOptions
from mooring.errors import InputError
from mooring.protocol.messages.study_file import parse_study
from mooring.tables.schema import Column
from tests import commands
from tests.raising import raising

OWN = "Alter;sex;ill;comment;pid\n50,5;F;Ja;7531-canary;1\n60,25;M;Nein;x;2\n75;zzcanary;nein;y;3\n"
ROLES = (("north", "participant"), ("south", "participant"), ("west", "participant"), ("lab", "analyst"))
FILLED = ["--label", "ill", "--classes", "no,yes", "--range", "age=0:120", "--category", "gender=female,male,other"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "header.csv").write_text("age,gender,ill,pid\n")
    (tmp_path / "own.csv").write_text(OWN)
    sums = ["--mechanism", "secure-sum", "--epsilon", "1", "--person", "pid"]
    commands.run("study", "init", "header.csv", *FILLED, *sums)
    return tmp_path


def match(*words: Any, code: int = 0) -> Any:
    return commands.run("match", "own.csv", *words, code=code)


def test_a_table_of_other_names_and_words_is_read_once_it_is_matched(folder: Path) -> None:
    commands.run("check", "own.csv", "--fit-only", code=2)
    first = json.loads(match("--format", "json", code=IN_PART).stdout)
    assert first["pairs"] == {"gender": "sex"}
    assert not first["unknown_words"]  # the study's category 'other' stands for them
    assert first["fits"] is False
    done = json.loads(match("--rename", "age=Alter", "--format", "json").stdout)
    assert done["fits"]
    fit = json.loads(commands.run("check", "own.csv", "--fit-only", "--format", "json").stdout)
    assert fit["n_rows"] == 3
    assert fit["class_counts"] == {"no": 2, "yes": 1}


def test_every_command_that_reads_by_a_mapping_says_so(folder: Path) -> None:
    """A mapping that came with the study's files could have any column of the table read as one of the study's."""
    (folder / "mapping.toml").write_text('[columns.gender]\nsource = "zzhiv"\nother = "male"\n')
    (folder / "own.csv").write_text("age,zzhiv,ill,pid\n50,yes,no,1\n60,no,yes,2\n")
    for name, role in ROLES:
        commands.run("join", "--name", name, "--role", role, "--vault", folder / name, "--output", f"{name}.card.toml")
    commands.run("study", "enrol", *(f"{name}.card.toml" for name, _ in ROLES))
    (folder / "north").rename(folder / "vault")
    for words in (["check", "own.csv", "--fit-only"], ["check", "own.csv"], ["share", "own.csv"]):
        assert "zzhiv" in commands.run(*words).output


@pytest.mark.posix
def test_the_mapping_is_its_owners_alone(folder: Path) -> None:
    match(code=IN_PART)
    assert (folder / "mapping.toml").stat().st_mode & 0o077 == 0


def test_words_of_the_table_are_shown_only_on_the_stewards_screen(folder: Path) -> None:
    assert "zzcanary" not in match(code=IN_PART).output
    assert "zzcanary" in match("--show-values", code=IN_PART).output
    assert "zzcanary" not in match("--show-values", "--format", "json", code=IN_PART).stdout
    assert "canary" not in (folder / "mapping.toml").read_text()


def test_an_audit_for_a_study_reads_persons_and_the_mapping(folder: Path) -> None:
    rng = np.random.default_rng(5)
    rows = [f"{rng.integers(20, 90)};{'FM'[k % 2]};{('Ja', 'Nein')[k % 3 == 0]};x;{k // 2}" for k in range(120)]
    (folder / "own.csv").write_text("\n".join(["Alter;sex;ill;comment;pid", *rows]) + "\n")
    match("--rename", "age=Alter")
    inputs = read_and_partition(folder / "own.csv", AuditOptions(study=folder / "study.toml", participants=3))
    persons = inputs.records.groups
    assert persons is not None
    assert np.unique(persons).size == 60
    owners = [set(persons[rows]) for rows in inputs.parts.train_indices]
    assert not owners[0] & owners[1]
    assert not owners[0] & owners[2]


def test_headers_are_merged_for_secure_sums_of_persons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for site in ("north", "south"):
        rows = [f"{k},{20 + k % 50},{('no', 'yes')[k % 2]}" for k in range(60)]
        Path(f"{site}.csv").write_text("\n".join(["patient_id,age,ill", *rows]) + "\n")
        commands.run("study", "header", f"{site}.csv", "--site", site, "--yes")
    sums = ["--mechanism", "secure-sum", "--epsilon", "1", "--person", "patient_id", "--label", "ill"]
    commands.run("study", "merge", "north.header.toml", "south.header.toml", *sums)
    plain = parse_study(Path("study.toml").read_text())
    assert plain["mechanism"]["epsilon"] == 1.0
    assert plain["mechanism"]["person"] == "patient_id"
    assert [column["name"] for column in plain["columns"]] == ["age"]
    assert "ids" not in plain["rows"]


def test_a_category_has_no_range_to_clip_to() -> None:
    with raising(InputError, "outside of column 'sex'"):
        Column("sex", "category", categories=("f", "m"), outside="clip")
