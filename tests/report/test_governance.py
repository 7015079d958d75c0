"""Drafts of governance documents state what the study and the records say, and nothing that they do not."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.attacks.shadow_models import draw_halves
from mooring.audit.release import measure_release
from mooring.protocol.messages.study import Study
from mooring.protocol.results import ShareResult
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.sums.scheme import sum_scheme
from mooring.report.governance import DRAFTS, render_drafts
from mooring.report.records import StudyRecords
from mooring.report.signing_page import SIGNING_PAGE, render_signing_page
from mooring.report.summary import summarise
from mooring.tables.schema import Label
from tests import commands
from tests.permissions import has_mode
from tests.protocol.sums.support import make_sum_study
from tests.record import check_snapshot, without_digests
from tests.report.example_records import (
    analyst_records,
    example_audit,
    example_study,
    fixed,
    participant_records,
    write_records,
)
from tests.study_settings import change

SHOWN = (
    ("linkage", "picked out of ten", ".1%"),
    ("centred_error", "spread", ".2f"),
    ("membership_at_1_percent", "1 % FPR", ".1%"),
)
NAMES = ("north", "south", "west")
CANARY = 4.242424  # in rows that a self-attack keeps as examples


def drafted(study: Study, records: StudyRecords) -> dict[str, str]:
    drafts = render_drafts(summarise(study, records))
    assert tuple(drafts) == DRAFTS
    for text in drafts.values():
        assert text.startswith("# DRAFT: ")
        assert study.fingerprint in text
        assert all(f"`{member.name}`" in text for member in (*study.participants, study.analyst) if member)
        assert "**[TO FILL IN: " in text
        assert "None" not in text
    return drafts


def run(folder: Path, study: Study, place: Path, *more: str, code: int = 0) -> dict[str, str]:
    """The drafts as the command writes them."""
    study.write(place / "study.toml")
    words = ("--study", place / "study.toml", "--output", place / "drafts")
    commands.run("governance", folder, *words, *more, code=code, what="output" if code else "")
    return {name: (place / "drafts" / name).read_text(encoding="utf-8") for name in DRAFTS}


@pytest.mark.parametrize("label", ["classes", "number", "none"])
def test_a_study_of_rows_names_its_limits_and_no_epsilon(label: str) -> None:
    labels = {"number": Label("days", "number", low=0, high=60), "none": Label("", "none")}
    given = example_study(NAMES)
    study = change(given, method="aa-i-gdp-anchor-noise", data_noise_scale=0.0, label=labels.get(label, given.label))
    study = replace(study, upload_limits=("linkage at most 20 %",))
    for text in drafted(study, StudyRecords()).values():
        assert "ε" not in text
        assert study.upload_limits[0] in text
        assert ("class" in text) == (label == "classes")
        assert ("predict" in text) == (label != "none")


@pytest.mark.parametrize(
    "settings",
    [
        {"epsilon": 2.5, "delta": 1e-6},
        {"epsilon": 0.5, "person": "patient", "rows_per_person": 3, "n_colluders": 2},
        {"epsilon": None, "least_rows": 50},
    ],
)
def test_a_study_of_sums_states_its_epsilon_and_without_one_no_guarantee(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_sum_study(tmp_path, 6, **settings)
    study, vault = made.study, made.vaults[0].folder
    records = StudyRecords(share=ShareResult(4711, "ef" * 32, False, epsilon=1.25))
    monkeypatch.setattr(Ledger, "spent_epsilon", lambda ledger: 3.25)
    drafted(study, records)
    write_records(vault / "studies" / study.folder_name, records)
    result = run(vault, study, tmp_path)
    secrets = re.findall(r"\w{20,}", (vault / "identity.json").read_text())
    assert secrets
    assert not [secret for secret in secrets if any(secret in text for text in result.values())]
    for text in result.values():
        assert ("δ = " in text) == (settings["epsilon"] is not None)
        assert all(name in text for name in sum_scheme(study).combiners)
        if settings["epsilon"] is not None:
            unit = "person" if "person" in settings else "row"
            assert f"ε = {settings['epsilon']:g}, δ = {settings.get('delta', 1e-5):g}, unit: one {unit}" in text
        assert ("`patient`" in text) == ("person" in settings)
    assert "4711" in result["dpia.md"]
    assert "ε = 3.25" in result["dpia.md"]
    assert not any("4711" in result[name] or "3.25" in result[name] for name in DRAFTS[1:])  # sums do not tell them
    assert settings["epsilon"] is not None or not any("ε" in result[name] for name in DRAFTS[1:])


def test_figures_and_decision_are_those_of_the_records_and_no_row_is_there(tmp_path: Path) -> None:
    study, audit = example_study(NAMES), example_audit()
    examples = audit.points[0].examples
    spoiled = replace(examples, rows=dict.fromkeys(examples.rows, ((CANARY,) * 4,) * 2))
    audit = replace(audit, points=(replace(audit.points[0], examples=spoiled), *audit.points[1:]))
    records = participant_records(audit)
    folder = write_records(tmp_path / "records", records)
    assert str(CANARY) in (folder / "check.json").read_text()
    result = run(folder, study, tmp_path)
    for name in ("dpia.md", "five-safes.md"):
        assert summarise(study, records).summary.decision.words in result[name]
        for measure, words, digits in SHOWN:
            attack, figure = audit.points[0].worst(measure)
            (line,) = [line for line in result[name].splitlines() if line.startswith("|") and words in line]
            assert f"| {figure.value:{digits}}" in line
            assert f"| {attack} |" in line
    page = tmp_path / "drafts" / SIGNING_PAGE
    assert has_mode(page, 0o600)
    signed = page.read_text(encoding="utf-8")
    assert not any(str(CANARY) in text or "north.csv" in text for text in (*result.values(), signed))
    assert result["agreement-annex.md"] == drafted(study, analyst_records(NAMES))["agreement-annex.md"]
    run(folder, study, tmp_path, code=2)
    run(folder, study, tmp_path, "--force")


@pytest.mark.parametrize("kind", ["rotation", "sums", "sums-without-noise"])
def test_drafts_say_what_they_said(kind: str, tmp_path: Path) -> None:
    """One snapshot a draft: people sign what is derived from these words."""
    if kind == "rotation":
        study, records = example_study(NAMES), participant_records(example_audit())
    else:
        epsilon = None if kind == "sums-without-noise" else 2.5
        study = make_sum_study(tmp_path, 6, epsilon=epsilon, least_rows=50).study
        records = StudyRecords(share=ShareResult(4711, "ef" * 32, False, epsilon=epsilon, spent=epsilon))
    for name, text in render_drafts(fixed(summarise(study, records))).items():
        check_snapshot(Path(__file__).parent / "snapshots" / f"{kind}-{Path(name).stem}.txt", without_digests(text))


@pytest.mark.parametrize("failed", [None, 0, 1])
def test_figures_are_of_the_studys_own_point_whatever_was_attacked_beside_it(failed: int | None) -> None:
    """The first point has the study's settings."""
    audit, rng = example_audit(), np.random.default_rng(0)
    included = draw_halves(16, 20, rng=rng)
    risk = measure_release({"predictions": rng.standard_normal((16, 20))}, included, rng.random(20))
    points = [replace(audit.points[0], release=risk), audit.points[1]]
    if failed is not None:
        points[failed] = replace(points[failed], outcomes=())
    audit, study = replace(audit, points=tuple(points)), example_study(NAMES)
    sources = {"records of one role": (participant_records(audit), None), "and an audit": (StudyRecords(), audit)}
    for words, given in sources.items():
        drafts = render_drafts(summarise(study, *given))
        for text in (drafts["dpia.md"], drafts["five-safes.md"]):
            assert str(risk) in text
            assert (
                (f"| {audit.points[0].worst('linkage')[0]} |" in text) if failed != 0 else ("look-alikes |" not in text)
            )
            assert [source for source in sources if source in text] == [words]


@pytest.mark.parametrize(
    ("name", "quoted"), [("age <5 | x & _y_", "`age <5 | x & _y_`"), ("<i>|[a](http://b)`", "`` <i>|[a](http://b)` ``")]
)
def test_what_others_wrote_is_quoted_in_a_draft_and_no_markup(name: str, quoted: str) -> None:
    """Markdown decodes nothing in a code span, and takes | for the edge of a cell in a table alone."""
    study = replace(example_study(NAMES), label=Label(name, "classes", classes=("_a_ & **b**", "<i>|[a](http://b)`")))
    assert "<i>|" not in render_signing_page(summarise(study, StudyRecords()))
    text = drafted(study, StudyRecords())["agreement-annex.md"]
    cell = quoted.replace("|", r"\|")
    (line,) = [line for line in text.splitlines() if line.startswith(f"| {cell} | label |")]
    values = line.removeprefix(f"| {cell} | label |")
    assert re.sub(r"\\([!-/:-@[-`{-~])", r"\1", values).strip() == f"{', '.join(study.label.classes)} |"
    assert not re.search(r"[<*`]|]\(|\b_|_\b|\|.", re.sub(r"\\[!-/:-@[-`{-~]", "", values))
    assert "&#" not in text  # people read and edit the draft itself
