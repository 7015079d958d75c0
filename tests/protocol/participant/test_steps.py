"""What a participant's steps say of a table: whether it fits, how it is read, and what limits it does not keep."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mooring.errors import InputError, RefusedError
from mooring.protocol.common_steps import write_report
from mooring.protocol.messages.card import read_card
from mooring.protocol.participant import membership
from mooring.protocol.participant.membership import require_limits
from mooring.protocol.participant.reading import describe_unknown
from mooring.protocol.participant.steps import fit, join, match, predict, read_by_mapping, state_mapping
from mooring.protocol.storage.vault import Vault
from mooring.protocol.workspace import Workspace
from mooring.report.step_pages import StepPages
from mooring.tables.schema import Column
from tests.raising import raising
from tests.sites import numeric_study, vaulted_study

STUDY = numeric_study(h=2, r=8)
ROWS = ["0.5,0.1,well", "0.4,0.2,ill", "-0.3,0.9,well", "0.2,0.2,ill", "0.7,-0.1,well", "0.1,0.1,ill"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = Workspace.at(tmp_path, StepPages())
    replace(STUDY, participants=(), analyst=None).write(made.study_file)
    return made


def table(workspace: Workspace, *rows: str, header: str = "x0,x1,y") -> Path:
    path = workspace.root / "rows.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_a_table_that_fits_is_said_to_with_its_rows(workspace: Workspace) -> None:
    outcome = fit(workspace, data=table(workspace, *ROWS))
    assert (outcome.standing, outcome.notes, outcome.tables) == ("whole", (), ())
    assert outcome.lines[0].startswith("6 rows fit ")
    assert (workspace.fitted, workspace.is_misfit) == (workspace.study.schema, False)
    few = fit(workspace, data=table(workspace, *ROWS[:1]))
    assert few.lines[0].startswith("1 row fits ")
    assert (few.standing, len(few.notes)) == ("in part", 1)  # a class of too few rows, which sharing refuses


def test_what_does_not_fit_is_listed_by_column_with_its_first_rows(workspace: Workspace) -> None:
    outcome = fit(workspace, data=table(workspace, "7,0.1,well", *ROWS, "8,0.1,well", header="x0,x1,y"))
    assert outcome.standing == "in part"
    assert "mapping.toml" in outcome.notes[0]
    ((_, (headings, row)),) = outcome.tables
    shown = dict(zip(headings, row, strict=True))
    assert (shown["column"], shown["cells"], shown["first rows"]) == ("x0", "2", "1, 8")
    assert (workspace.fitted, workspace.is_misfit) == (None, True)
    missing = fit(workspace, data=table(workspace, *(row.partition(",")[2] for row in ROWS), header="x1,y"))
    ((_, (headings, *_)),) = missing.tables
    assert "cells" not in headings  # of a whole column, none are counted


def test_a_table_is_read_as_its_mapping_says(workspace: Workspace) -> None:
    """Another name is recognised; a word that nobody knows is counted, and shown if that is asked for."""
    data = table(workspace, *ROWS, header="X0,x1,y")
    assert read_by_mapping(workspace, data) == data
    assert state_mapping(workspace) == ()
    outcome = match(workspace, data=data)
    assert (outcome.standing, outcome.record["fits"], outcome.record["unknown_words"]) == ("whole", True, {})
    ((_, rows),) = outcome.tables
    assert [row[:2] for row in rows[1:]] == [("x0", "X0")]
    assert not workspace.is_misfit
    assert read_by_mapping(workspace, data) != data
    (sentence,) = state_mapping(workspace)
    assert "'x0' from 'X0'" in sentence
    data = table(workspace, *ROWS, "0.1,0.1,poorly", header="X0,x1,y")
    for shows in (False, True):
        outcome = match(workspace, data=data, show_values=shows)
        assert (outcome.standing, outcome.record["unknown_words"]) == ("in part", {"y": 1})
        assert ("poorly" in str(outcome.tables)) == shows
        assert len(outcome.tables) == 2 + shows
    assert "poorly" not in str(match(workspace, data=data).tables)  # unless it is asked for
    assert workspace.is_misfit
    (workspace.root / "mapping.toml").unlink()
    absent = match(workspace, data=table(workspace, *(row.partition(",")[2] for row in ROWS), header="other,y"))
    assert any("'x0'" in note for note in absent.notes)


@pytest.mark.parametrize(
    ("name", "cures"),
    [
        ("sex", ["--word 'sex:WORD=female'"]),
        ("race", ["--word 'race:WORD=a'", "--other 'race=other'"]),
        ("y", ["--word 'y:WORD=well'"]),
        ("x0", ["--missing-word 'x0=WORD'"]),
    ],
)
def test_what_helps_against_an_unknown_word_names_the_columns_own_words(name: str, cures: list[str]) -> None:
    words = (
        Column("sex", "category", categories=("female", "male")),
        Column("race", "category", categories=("a", "other")),
    )
    schema = replace(STUDY.schema, columns=(*STUDY.schema.columns, *words))
    sentence = describe_unknown(schema, name, 3)
    assert re.findall(r"--\w[\w-]* '[^']*'", sentence) == cures
    assert "3 words" in sentence
    assert ("--show-values" in sentence, "--show-values" in describe_unknown(schema, name, 3, is_shown=True)) == (
        True,
        False,
    )


LIMITED: Any = SimpleNamespace(upload_limits=("error at least 0.5",), digest="study")
OVER = LIMITED.upload_limits


@pytest.mark.parametrize(
    ("exceeded", "override", "bundle", "kept"),
    [
        ((), "", "none", ("", ())),
        ((), "a: why", "none", ("", ())),  # an override that is not needed is not kept
        (OVER, "a: why", "none", ("a: why", OVER)),
        (OVER, "", "none", None),
        (OVER, "", None, None),  # an upload that was never finished
        (OVER, "", "digest", ("", ())),  # issued again, with the override of the first time
        (None, "a: why", "none", None),  # nobody overrides what was not looked at
        (None, "", "digest", ("", ())),
    ],
)
def test_limits_are_kept_or_overridden_by_somebody_who_says_why(
    exceeded: tuple[str, ...] | None, override: str, bundle: str | None, kept: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = None if bundle == "none" else SimpleNamespace(bundle=bundle)
    monkeypatch.setattr(membership, "Ledger", lambda _: SimpleNamespace(entry=lambda _: entry))
    vault: Any = SimpleNamespace(folder=Path())
    if kept is None:
        with raising(RefusedError, "the upload", reason="not checked" if exceeded is None else "not shown"):
            require_limits(vault, LIMITED, exceeded, override)
    else:
        assert require_limits(vault, LIMITED, exceeded, override) == kept
    free: Any = SimpleNamespace(upload_limits=())
    assert require_limits(vault, free, None, "") == ("", ())


def test_who_joins_has_a_vault_that_refuses_studies_without_noise_unless_it_says_otherwise(tmp_path: Path) -> None:
    workspace = Workspace.at(tmp_path, StepPages())
    first = join(workspace, name="north")
    assert (first.record["new_vault"], first.record["revoked"], first.record["card"]) == (True, 0, "north.card.toml")
    assert len(first.lines) == 2
    assert not workspace.vault.floors.without_noise
    again = join(workspace, name="north", revoke=True, output=tmp_path / "other.toml")
    assert (again.record["new_vault"], again.record["revoked"], again.record["card"]) == (False, 20, "other.toml")
    assert len(again.lines) == 3
    assert read_card(tmp_path / "other.toml") == ("participant", again.result)
    assert read_card(tmp_path / "north.card.toml")[1] == first.result
    willing = Workspace.at(tmp_path / "south", StepPages())
    willing.root.mkdir()
    join(willing, name="south", accept_no_noise=True, least_anchor_noise=0.25)
    assert (willing.vault.floors.without_noise, willing.vault.floors.anchor_noise) == (True, 0.25)


def test_a_file_that_is_there_is_not_overwritten_unless_that_is_asked_for(workspace: Workspace) -> None:
    data = table(workspace, *ROWS)
    for name, step in (
        ("predictions.csv", lambda: predict(workspace, data=data, result="result")),
        ("report.html", lambda: write_report(workspace)),
    ):
        (workspace.root / name).write_text("mine")
        with raising(InputError, "output"):
            step()
        assert (workspace.root / name).read_text() == "mine"


def test_a_report_is_of_the_records_here_with_examples_unless_another_is_asked_for(tmp_path: Path) -> None:
    calls: list[Any] = []
    pages: Any = SimpleNamespace(write_report=lambda *given, **options: calls.append((*given, options)))
    workspace = Workspace.at(tmp_path, pages)
    vault = Vault.create(workspace.vault_folder)
    write_report(workspace, folder=tmp_path / "records")
    study = vaulted_study({"a": vault, "b": Vault.create(tmp_path / "b")}, Vault.create(tmp_path / "lab"), 2, 8)
    study.write(workspace.study_file)
    write_report(workspace, output=tmp_path / "other.html", audit=tmp_path / "audit.json", examples=False)
    usual = {"audit": None, "examples": True}
    asked = {"audit": tmp_path / "audit.json", "examples": False}
    assert calls == [
        (None, tmp_path / "records", tmp_path / "report.html", usual),
        (study, workspace.records, tmp_path / "other.html", asked),
    ]
    assert workspace.records == vault.study_path(study.folder_name)
