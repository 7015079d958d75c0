"""`mooring report`, as each role would run it: from one record to all of them."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from typer.testing import CliRunner

from mooring import AuditResult, Plan
from mooring.audit import LeakageLimit
from mooring.audit.results.statements import warn_of_linkage
from mooring.cli.report import report
from mooring.errors import InputError, StorageError
from mooring.protocol.forecast import Outlook, StudyForecast
from mooring.protocol.messages.result import Release
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import RangeSource
from mooring.protocol.participant.prediction import Predictions
from mooring.protocol.registry import exchange_of
from mooring.protocol.sums.scheme import sum_scheme
from mooring.report.audit_page import AuditSection, render_audit, render_plan
from mooring.report.frame import load_template
from mooring.report.records import StudyRecords, collect_records, read_audit
from mooring.report.signing_page import render_signing_page
from mooring.report.study_page import render_check, render_report
from mooring.report.summary import Report, summarise
from mooring.serialization import Record
from tests.permissions import has_mode
from tests.protocol.sums.support import make_sum_study
from tests.raising import raising
from tests.record import check_snapshot, without_digests
from tests.report.example_records import (
    NAMES,
    analyst_records,
    example_audit,
    example_study,
    fixed,
    gain,
    list_files,
    participant_records,
    score,
    sum_records,
    write_records,
)
from tests.study_settings import change

app = typer.Typer()
app.command()(report)
RUNNER = CliRunner()
SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.fixture(scope="module")
def study() -> Study:
    return example_study()


@pytest.fixture(scope="module")
def audit() -> AuditResult:
    return example_audit()


@pytest.fixture(scope="module")
def sum_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    return make_sum_study(tmp_path_factory.mktemp("sums"), 4, epsilon=1.0).study


def run(*words: Any, code: int = 0) -> Any:
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def body(page: str) -> str:
    """The page's text as a reader sees it, without its tags, a line for each block."""
    inside = re.sub(r"</(p|tr|h1|h2|h3|li|summary|dd|figure|div)>", "\n", page.split("</head><body>")[1])
    lines = (" ".join(line.split()) for line in re.sub(r"<[^>]+>", " ", inside).split("\n"))
    return html.unescape("\n".join(line for line in lines if line)) + "\n"


def kinds(made: Report) -> list[tuple[str, tuple[str, ...]]]:
    return [(finding.kind, finding.about) for finding in made.summary.attention]


def both(first: StudyRecords, second: StudyRecords) -> StudyRecords:
    return replace(first, check=second.check, share=second.share, predict=second.predict)


def make_pages(study: Study, sum_study: Study) -> dict[str, str]:
    names = [member.name for member in sum_study.participants]
    rows, with_totals = example_audit(), example_audit(totals=True)
    totals = replace(with_totals, points=with_totals.totals, chosen=0)
    limit = LeakageLimit.parse("error at least 0.5")
    plan = Plan(limit, replace(rows, chosen=0), rows.points[0], "Recommended: both noises.", search=rows)
    of_rows = summarise(study, both(analyst_records(), participant_records(rows)), rows)
    of_sums = summarise(sum_study, sum_records(names, totals), with_totals)
    return {
        "rotation-report": render_report(fixed(of_rows)),
        "sums-report": render_report(fixed(of_sums)),
        "sums-sign": render_signing_page(fixed(of_sums)),
        "audit": render_audit(with_totals, command="mooring audit"),
        "plan": render_plan(plan, command="mooring plan"),
    }


@pytest.mark.parametrize("name", ["rotation-report", "sums-report", "sums-sign", "audit", "plan"])
def test_a_page_says_what_it_said(name: str, study: Study, sum_study: Study) -> None:
    """One snapshot for each page; RENEW_RECORDS=1 renews it, and its difference is to be read."""
    check_snapshot(SNAPSHOTS / f"{name}.txt", without_digests(body(make_pages(study, sum_study)[name])))


def test_the_analysts_report_finds_who_took_part_what_joining_gives_and_that_leakage_is_not_known(
    study: Study, tmp_path: Path
) -> None:
    quiet = change(study, method="aa-i-gdp-anchor-noise", data_noise_scale=0.0)
    made = summarise(quiet, collect_records(write_records(tmp_path, analyst_records())))
    summary = made.summary
    assert (summary.study.name, summary.study.fingerprint) == ("hearts", quiet.fingerprint)
    assert [(fact.kind, fact.answer) for fact in summary.joining] == [("uploads", None), ("pooled raw not known", None)]
    assert (summary.decision.answer, summary.leakage_measured) == ("cannot tell", False)
    assert kinds(made) == [
        ("set aside", ("west.bundle",)),
        ("missing", ("west",)),
        ("flagged", ("south",)),
        ("left out", ("north",)),
    ]
    states = {member.name: member.contribution for member in summary.participants}
    assert [(name, sent.rows, sent.fit) for name, sent in states.items()] == [
        ("north", 60, 0.98),
        ("south", 60, 0.31),
        ("west", None, None),
    ]
    assert {member.name: member.delivered for member in summary.participants} == {
        "north": True,
        "south": False,
        "west": False,
    }
    assert {entry.group for entry in summary.scores} == {"joint", "joint by participant", "alone"}
    assert summary.scores[0].score == score(0.86)
    assert made.audits == ()


def test_limits_that_are_not_kept_are_among_what_to_look_at(study: Study) -> None:
    records, limits = analyst_records(), ("linkage at most 20 %",)
    release = Release(0.478, "board: no patients in it")
    records = replace(records, delivery=replace(records.delivery, release=release))
    check = replace(participant_records(None).check, exceeded=limits)
    share = replace(participant_records(None).share, exceeded=limits, override="head: urgent")
    kinds_of_findings = kinds(summarise(study, replace(records, check=check, share=share)))
    assert kinds_of_findings[-3:] == [("limits", limits), ("shared despite", limits), ("release", ())]
    words = summarise(study, records).summary.attention[-1].words
    assert all(value in words for value in ("47.8%", release.override))


@pytest.mark.parametrize(("shared", "answer"), [(0, "pays"), (40, None)])
def test_rows_that_were_trained_on_do_not_judge_joining(study: Study, shared: int, answer: str | None) -> None:
    predict = replace(participant_records(None).predict, n_shared=shared, gain=gain(0.16, 120))
    first = summarise(study, StudyRecords(predict=predict)).summary.joining[0]
    assert (first.kind, first.answer) == ("new rows", answer)
    assert ("40" in first.words) is bool(shared)


@pytest.mark.parametrize("value", [0.16, -0.16])
@pytest.mark.parametrize("noise", [0.2, 0.0])
def test_uploads_do_not_judge_joining(study: Study, value: float, noise: float) -> None:
    """Neither model is what somebody gets or has: the delivered one has everybody's rows, and alone rows have no noise."""
    records = analyst_records()
    records = replace(records, training=replace(records.training, gain=gain(value, 120)))
    method = "aa-i-gdp-both-noise" if noise else "aa-i-gdp-anchor-noise"
    summary = summarise(change(study, data_noise_scale=noise, method=method), records).summary
    assert [fact.answer for fact in summary.joining] == [None, None]
    assert summary.scores[0].name == ("joint model, noisy uploads" if noise else "joint model")


def test_the_participants_report_decides_by_the_strongest_attack(study: Study, audit: AuditResult) -> None:
    made = summarise(study, participant_records(audit))
    first = made.summary.joining[0]
    assert (first.kind, first.answer) == ("new rows", "cannot tell")
    assert made.summary.decision.answer == "do not share"
    (attacked,) = made.audits
    attack, figure = attacked.study_point.worst()
    assert attack == "moments"
    rebuilt = " ".join(made.summary.leakage)
    assert all(words in rebuilt for words in (f"'{attack}'", f"{figure.value:.2f} [", f"{figure.control:.2f}"))


def test_a_report_of_sums_leads_with_the_guarantee_and_finds_what_combiners_did(sum_study: Study) -> None:
    names = [member.name for member in sum_study.participants]
    made = summarise(sum_study, sum_records(names))
    assert made.description.promise == (1.0, 1e-5)
    assert made.summary.leakage == made.description.headlines
    assert made.summary.leakage_measured
    assert kinds(made) == [
        ("left out", (names[-1],)),
        ("not tested", ()),
        ("wrong share", (names[0],)),
        ("unchecked shares", ()),
    ]
    assert {member.name for member in made.summary.participants if member.role} == set(sum_scheme(sum_study).combiners)
    assert made.records.share.epsilon_in_all == 1.5


@pytest.mark.parametrize("totals", [False, True])
def test_a_report_of_sums_takes_the_audited_point_with_its_own_epsilon(sum_study: Study, totals: bool) -> None:
    attacked = summarise(sum_study, StudyRecords(), example_audit(totals=totals)).audits[0]
    assert (attacked.study_point is not None) == totals
    assert not totals or attacked.study_point.point.promise == (1.0, 1e-5)


@pytest.mark.parametrize("name", ["intake", "gathered", "training", "delivery", "check", "share", "predict"])
def test_one_record_is_enough(name: str, study: Study, audit: AuditResult, tmp_path: Path) -> None:
    everything = both(analyst_records(), participant_records(audit))
    records = collect_records(write_records(tmp_path, StudyRecords(**{name: getattr(everything, name)})))
    assert records == StudyRecords(**{name: getattr(everything, name)})
    for agreed in (study, None):
        made = summarise(agreed, records)
        assert [step for step, _ in made.summary.commands] == [name]
        assert made.summary.leakage_measured == (name == "check")
        assert bool(made.summary.participants) == (name in ("intake", "gathered"))
        page = render_report(made)
        assert ("<h2>What joining gives</h2>" in page) == (name in ("training", "check", "predict"))


@pytest.mark.parametrize("kind", ["rotation", "sums"])
def test_records_are_read_as_they_were_written(kind: str, audit: AuditResult, tmp_path: Path) -> None:
    records = both(analyst_records(), participant_records(audit)) if kind == "rotation" else sum_records(NAMES)
    if records.share is not None and records.share.epsilon is not None:
        records = replace(records, share=replace(records.share, spent=None))  # only a vault knows it
    assert collect_records(write_records(tmp_path, records)) == records


EVERY_RECORD = {
    **list_files(both(analyst_records(), participant_records(example_audit()))),
    **{name: record for name, record in list_files(sum_records(NAMES)).items() if name in ("closing.json",)},
}


def read(name: str, text: str, folder: Path) -> None:
    for path in folder.glob("*.json"):
        path.unlink()
    (folder / name).write_text(text, encoding="utf-8")
    collect_records(folder)


@pytest.mark.parametrize("name", EVERY_RECORD)
@pytest.mark.parametrize("damage", ["", "{", "[]", "null", "3", '"text"', "{}", "[" * 100_000, '{"a":' * 100_000])
def test_text_that_is_no_record_is_an_error_that_names_it_and_its_command(
    name: str, damage: str, tmp_path: Path
) -> None:
    with raising(InputError, f"the record {name}", cure="Run 'mooring "):
        read(name, damage, tmp_path)


@pytest.mark.parametrize("name", EVERY_RECORD)
def test_every_field_of_a_record_is_checked(name: str, tmp_path: Path) -> None:
    """Another key, a key that is missing, a value of another kind, and numbers that are not finite, anywhere in it."""
    plain = json.loads(EVERY_RECORD[name].to_json())
    for broken in list_broken(plain):
        with raising(InputError, f"the record {name}") as caught:
            read(name, json.dumps(broken), tmp_path)
        assert "planted-value" not in str(caught.value)


def list_broken(plain: dict[str, Any]) -> list[Any]:
    broken: list[Any] = [{**plain, "other": 1}]
    for key, value in plain.items():
        wrong: list[Any] = [{"other": ["planted-value"]}] if not isinstance(value, dict) else [["planted-value"]]
        wrong += (
            ["planted-value"] if isinstance(value, int | float) else [1e400, True] if isinstance(value, str) else []
        )
        wrong += [float("nan"), float("inf")] if isinstance(value, float) else []
        broken += [{**plain, key: bad} for bad in wrong]
        if isinstance(value, dict) and key not in OPEN and value:
            broken += [{**plain, key: bad} for bad in list_broken(value)]
        if isinstance(value, list) and value and isinstance(value[0], dict):
            broken += [{**plain, key: [bad, *value[1:]]} for bad in list_broken(value[0])]
    return broken


OPEN = (
    "class_counts",
    "remembered",
    "copies",
    "left_out",
    "figures",
    "rows",
    "words",
    "description",
)
"""Mappings whose keys are data."""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("name", EVERY_RECORD)
@given(data=st.data())
def test_whatever_a_record_holds_it_is_refused_or_can_be_shown(name: str, data: st.DataObject) -> None:
    kind = type(EVERY_RECORD[name])
    plain = json.loads(EVERY_RECORD[name].to_json())
    plain[data.draw(st.sampled_from(sorted(plain)))] = data.draw(JSON)
    try:
        record: Record = kind.from_json(json.dumps(plain))
    except InputError:
        return
    field = {"alignment.json": "gathered", "closing.json": "gathered"}.get(name, name.removesuffix(".json"))
    assert render_report(summarise(example_study(), StudyRecords(**{field: record})))


def test_a_record_that_is_too_large_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    with (tmp_path / "share.json").open("wb") as file:
        file.truncate(65 * 2**20)
    with raising(InputError, "the record share.json", got="larger than 64 MB"):
        collect_records(tmp_path)


def test_a_folder_that_is_not_there_and_one_without_records(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        collect_records(tmp_path / "none")
    assert collect_records(tmp_path) == StudyRecords()
    run(tmp_path, "--output", tmp_path / "report.html", code=2)
    assert not (tmp_path / "report.html").exists()


def test_of_two_mechanisms_records_the_studys_is_read(study: Study, sum_study: Study, tmp_path: Path) -> None:
    aligned, closed = analyst_records().gathered, sum_records(NAMES).gathered
    for gathered in (aligned, closed):
        write_records(tmp_path, StudyRecords(gathered=gathered))
    assert collect_records(tmp_path, study).gathered == aligned
    assert collect_records(tmp_path, sum_study).gathered == closed
    with raising(InputError, "the records"):
        collect_records(tmp_path)


def test_a_check_of_other_rows_than_those_shared_is_left_out(study: Study, tmp_path: Path) -> None:
    records = participant_records(None)
    records = replace(records, share=replace(records.share, rows_digest="other"))
    collected = collect_records(write_records(tmp_path, records))
    assert (collected.check, collected.checked_other_rows) == (None, True)
    assert kinds(summarise(study, collected)) == [("other rows", ())]


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (("points", 0, "point", "method"), "no-such-method"), (("points", 0, "point", "mechanism"), 3),
        (("points", 0, "outcomes"), "none"), (("points", 0, "examples", "rows"), {"original": "x"}),
        (("points", 0, "examples", "rows"), {"original": [], "rebuilt": [[1.0]]}),
        (("points", 0, "examples", "image_shape"), [7, 7]), (("points", 0, "examples", "row_numbers"), [1]),
        (("warnings",), [3]), (("references",), {}), (("chosen",), 7), (("chosen",), -1),
        (("description", "rows_each"), 3), (("description", "colluders"), [3]),
    ],
)  # fmt: skip
def test_a_damaged_audit_is_refused(where: tuple[Any, ...], what: Any, audit: AuditResult, tmp_path: Path) -> None:
    plain = json.loads(audit.to_json())
    inner = plain
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = what
    (tmp_path / "audit.json").write_text(json.dumps(plain))
    with raising(InputError, "the audit"):
        read_audit(tmp_path / "audit.json")
    check = json.loads(participant_records(None).check.to_json())
    (tmp_path / "check.json").write_text(json.dumps(check | {"self_attack": plain}))
    with raising(InputError, "the record check.json"):
        collect_records(tmp_path)


def test_figures_of_other_settings_do_not_decide(study: Study) -> None:
    weak, other = (summarise(study, StudyRecords(), example_audit(scale=scale)) for scale in (0.2, 0.3))
    assert [made.audits[0].study_point is None for made in (weak, other)] == [False, True]
    assert (weak.summary.decision.answer, other.summary.decision.answer) == ("do not share", "cannot tell")
    assert len(other.summary.leakage) == len(weak.summary.leakage) + 1


def test_what_a_report_says_of_joining_is_at_the_studys_settings(study: Study, audit: AuditResult) -> None:
    """Another point of the audit scores best; a report that quoted it would promise what the study's noise does not give."""
    made = summarise(study, StudyRecords(), audit)
    (fact,) = [fact for fact in made.summary.joining if fact.kind == "simulation"]
    assert fact.answer == audit.points[0].gain.answer
    assert f"{audit.points[0].deployed}" in fact.words
    assert AuditSection(made.audits[0].result).detailed == audit.points[0]


def test_a_plan_may_be_given_for_an_audit(audit: AuditResult, tmp_path: Path) -> None:
    plan = Plan(LeakageLimit.parse("error at least 0.5"), audit, None, "Joining does not pay here.")
    (tmp_path / "plan.json").write_text(plan.to_json())
    made = summarise(None, StudyRecords(), read_audit(tmp_path / "plan.json"))
    assert made.audits[0].plan == plan
    assert plan.verdict in made.summary.leakage


def test_the_command_writes_a_page_for_its_owner_alone(study: Study, audit: AuditResult, tmp_path: Path) -> None:
    folder, out = write_records(tmp_path / "work", analyst_records()), tmp_path / "report.html"
    (folder / "audit.json").write_text(audit.to_json())
    study.write(folder / "study.toml")
    run(folder, "--audit", folder / "audit.json", "--output", out)
    assert has_mode(out, 0o600)
    page = out.read_text(encoding="utf-8")
    assert "Row 7" in body(page)
    run(folder, "--audit", folder / "audit.json", "--no-examples", "--output", out, code=2)
    assert out.read_text(encoding="utf-8") == page
    run(folder, "--audit", folder / "audit.json", "--no-examples", "--output", out, "--force")
    assert "Row 7" not in body(out.read_text(encoding="utf-8"))


def test_the_command_finds_a_vaults_folder_of_the_study_and_prints_json(
    audit: AuditResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example_study().write(tmp_path / "study.toml")
    agreed = Study.read(tmp_path / "study.toml")
    write_records(tmp_path / "vault" / "studies" / agreed.folder_name, participant_records(audit))
    (tmp_path / "vault" / "studies" / "other").mkdir()
    plain = json.loads(run("vault", "--format", "json", "--no-examples").stdout)
    assert (plain["role"], plain["study"]["fingerprint"]) == ("participant", agreed.fingerprint)
    assert (plain["decision"]["answer"], plain["page"]) == ("do not share", "report.html")
    (tmp_path / "study.toml").unlink()
    run("vault", "--force", code=2)


def test_the_page_of_a_check_is_not_signed(study: Study, audit: AuditResult) -> None:
    check = participant_records(audit).check
    assert 'class="sign"' not in render_check(study, check)
    assert 'class="sign"' in render_report(summarise(study, StudyRecords(check=check)))


def test_templates_escape_html_and_refuse_a_name_that_they_are_not_given() -> None:
    environment = load_template("report.html.jinja").environment
    parts = environment.get_template("parts.html.jinja").module
    assert "&lt;b&gt;" in str(parts.items(["<b>"]))  # type: ignore[attr-defined]
    with pytest.raises(UndefinedError):
        load_template("report.html.jinja").render({})


def test_the_page_of_leakage_says_so_too() -> None:
    """The page says how many rows are linked at the plans' points; every error stands beside chance and control."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "leakage.md").read_text(encoding="utf-8")
    plans = json.loads((root / "benchmarks" / "results" / "plans.json").read_text(encoding="utf-8"))
    reported = [entry["plan"]["reported"]["figures"] for entry in plans.values()]
    linked = [100 * figures["linkage"]["value"] for figures in reported]
    assert all(warn_of_linkage(share / 100, 0.1) for share in linked)
    assert f"whose row is whose**: {min(linked):.0f} to {max(linked):.0f} % of the rows are linked" in page
    assert f"| | {' | '.join(plans)} |" in page
    errors, others = re.findall(
        r"^\| error of the most exposed tenth \| (.*) \|\n\| – other seeds \| (.*) \|$", page, flags=re.M
    )[0]
    for figures, entry, error, other in zip(
        reported, plans.values(), errors.split(" | "), others.split(" | "), strict=True
    ):
        assert error.endswith(f"] ({figures['exposed_tenth']['chance']:.2f}; 1.00)")
        fresh = [folder["figures"]["exposed_tenth"] for folder in entry["fresh"]]
        assert other == "–".join(f"{pick(one['value'] for one in fresh):.2f}" for pick in (min, max))
        if entry["plan"]["recommended"]:
            assert min(one["interval"][0] for one in fresh) >= 0.5


@pytest.mark.parametrize("is_useful", [True, False])
def test_a_check_says_first_what_is_likely_to_be_useless_and_decides_as_its_command(
    is_useful: bool, sum_study: Study, audit: AuditResult
) -> None:
    model = Outlook("model", False, "The model is likely no better than guessing")
    tables = Outlook(
        "tables", is_useful, "A Table 1 is likely to be useful" if is_useful else "A Table 1 will be refused"
    )
    forecast = StudyForecast(
        90, 3, (model, tables), {"Table 1": (("answer", "interval"), ("share", "± 3"))}, ("As declared.",)
    )
    check = replace(sum_records(NAMES).check, forecast=forecast)
    check = exchange_of(sum_study).assessment.conclude(sum_study, check)
    made = summarise(sum_study, StudyRecords(check=check))
    assert made.summary.decision.answer == check.decision.answer == ("share" if is_useful else "do not share")
    assert kinds(made)[0] == ("forecast", ("model",))
    page = body(render_check(sum_study, check))
    assert page.index(model.words) < page.index("What an attacker gets") < page.index("± 3")


def test_ranges_that_nobody_confirmed_and_a_simulated_model_of_one_class_are_among_what_to_look_at(
    study: Study, audit: AuditResult
) -> None:
    doubtful = replace(study, range_source=RangeSource(from_rows=("age",)))
    audit = replace(audit, points=(replace(audit.points[0], predicts_one_of=3), audit.points[1]))
    assert kinds(summarise(doubtful, StudyRecords(), audit)) == [("ranges", ("age",)), ("one class", ())]
    page = render_audit(replace(audit, chosen=0), command="mooring audit")
    assert "33.3%" in body(page).split("What joining gives")[0]


def test_a_model_that_predicts_one_class_is_said_to_with_what_guessing_scores() -> None:
    predictions = Predictions(np.array(["b"] * 5), ("a", "b", "c"), None, None, None)
    assert "33.3%" in predictions.state_findings()[0]
    several = replace(predictions, values=np.array(["a", "b", "b"]))
    assert (several.only_class, several.state_findings()) == ("", [])
    study, records = example_study(NAMES), participant_records(example_audit())
    summary = summarise(study, replace(records, predict=predictions.record)).summary
    assert [finding.about for finding in summary.attention if finding.kind == "one class"] == [("b",)]
    training = replace(sum_records(NAMES).training, only_class="a", n_classes=3)
    (finding,) = [finding for finding in training.list_findings() if finding.kind == "one class"]
    assert "33.3%" in finding.words
    assert training.is_whole == sum_records(NAMES).training.is_whole
