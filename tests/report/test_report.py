"""`mooring report`, as each role would run it: from one record to all of them."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from jinja2 import UndefinedError
from typer.testing import CliRunner

from mooring.audit.hazards import warn_of_linkage
from mooring.cli.report import report
from mooring.errors import InputError, StorageError
from mooring.protocol.messages.study import Study
from mooring.report import collect_records, describe_report, read_audit, render_report, summarise
from mooring.report.frame import load_template
from tests.permissions import has_mode
from tests.report.example_records import analyst_records, example_study, gain, participant_records, write_records

app = typer.Typer()
app.command()(report)
RUNNER = CliRunner()
NAMES = ("north", "south", "west")


@pytest.fixture(scope="module")
def study() -> Study:
    return example_study(NAMES)


def run(*words: Any, code: int = 0) -> Any:
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def body(page: str) -> str:
    """The page's text as a reader sees it, without its tags."""
    inside = page.split("</head><body>")[1]
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", inside).split()))


def test_the_analysts_page_says_who_took_part_what_joining_gives_and_that_leakage_is_not_known(
    study: Study, tmp_path: Path
) -> None:
    quiet = replace(study, method="aa-i-gdp-anchor-noise", data_noise_scale=0.0)
    shown = describe_report(summarise(quiet, collect_records(write_records(tmp_path, analyst_records(NAMES)))))
    assert (shown["study"]["name"], shown["study"]["fingerprint"]) == ("hearts", quiet.fingerprint)
    uploads, pooled = shown["verdict"]["joining"]
    assert uploads["score"] == {"value": "86.0%", "interval": ["83.0%", "89.0%"], "metric": "balanced accuracy"}
    assert (uploads["difference"]["participants"], uploads["answer"]) == (2, None)
    assert pooled["kind"] == "pooled raw not known"
    words = (
        "on the 120 rows of 2 participants their score less that of models of each one's upload alone is +16.0 points"
    )
    assert words in shown["verdict"]["sentences"]["joining"][0]
    assert shown["decision"]["answer"] == "cannot tell"
    assert shown["verdict"]["leakage_measured"] is False
    assert shown["verdict"]["attention"] == {
        "set aside": 1,
        "missing": 1,
        "flagged": ["south"],
        "left out": ["north"],
        "not converged": False,
        "limits": [],
        "shared despite": None,
        "other rows": None,
        "release": None,
    }
    assert shown["set_aside"] == [{"file": "west.bundle", "reason": "its signature does not hold"}]
    told = ("late", "flagged", "left_out")
    states = {one["name"]: (one["state"], *(name for name in told if one[name])) for one in shown["participants"]}
    assert states == {"north": ("accepted", "late", "left_out"), "south": ("accepted", "flagged"), "west": ("missing",)}
    assert shown["alignment"]["share_of_transition"] == "25%"
    assert shown["alignment"]["certificate"] == "Shown to be the global optimum."
    assert {one["group"] for one in shown["scores"]} == {"joint"}
    assert shown["audits"] == []


def test_limits_that_are_not_kept_stand_among_what_to_look_at(study: Study, tmp_path: Path) -> None:
    records = analyst_records(NAMES)
    records["delivery"] |= {"risk": 0.478, "override": "board: no patients in it"}
    records["check"] = {"exceeded": ["linkage at most 20 %"]}
    shown = describe_report(summarise(study, collect_records(write_records(tmp_path, records))))
    sentences = " ".join(shown["verdict"]["sentences"]["attention"])
    assert all(value in sentences for value in ("47.8%", "board: no patients in it", "linkage at most 20 %"))
    records["delivery"] |= {"risk": 0.02, "override": ""}
    shown = describe_report(summarise(study, collect_records(write_records(tmp_path, records))))
    assert "2.0%" in " ".join(shown["verdict"]["sentences"]["attention"])


@pytest.mark.parametrize(("shared", "answer"), [(0, "pays"), (40, None)])
def test_rows_that_were_trained_on_do_not_judge_joining(study: Study, shared: int, answer: str | None) -> None:
    one = {"metric": "balanced accuracy", "value": 0.8, "low": 0.7, "high": 0.9, "n": 120}
    records = {"predict": {"rows": 120, "score": one, "local_only": one, "gain": gain(0.16, 120), "shared": shared}}
    verdict = summarise(study, records)["verdict"]
    assert verdict["joining"][0]["answer"] == answer
    assert ("40" in verdict["sentences"]["joining"][0]) is bool(shared)


@pytest.mark.parametrize("value", [0.16, -0.16])
def test_uploads_do_not_judge_joining(study: Study, tmp_path: Path, value: float) -> None:
    """Neither model is what somebody gets or has: the delivered one has everybody's rows, and alone rows have no noise."""
    for noise in (0.2, 0.0):
        records = analyst_records(NAMES)
        records["training"]["gain"] = gain(value, 120)
        one = replace(study, data_noise_scale=noise, method="aa-i-gdp-both-noise" if noise else "aa-i-gdp-anchor-noise")
        summary = summarise(one, collect_records(write_records(tmp_path, records)))
        uploads = summary["verdict"]["joining"][0]
        assert (uploads["noisy"], uploads["answer"]) == (noise > 0, None)
        assert "pay" not in summary["decision"]["words"]
        for words in ("Joining pays", "Joining does not pay", "Cannot tell"):
            assert words not in summary["verdict"]["sentences"]["joining"][0]
        assert summary["utility"][0]["name"] == ("joint model, noisy uploads" if noise else "joint model")


def test_the_participants_page_names_the_strongest_attack_with_chance_control_and_interval(
    study: Study, audit: dict[str, Any], tmp_path: Path
) -> None:
    shown = describe_report(summarise(study, collect_records(write_records(tmp_path, participant_records(audit)))))
    value, attack = min(
        (outcome["figures"]["centred_error"]["value"], outcome["attack"])
        for outcome in audit["points"][0]["outcomes"]
        if "centred_error" in outcome["figures"]
    )
    new_rows = shown["verdict"]["joining"][0]
    assert (new_rows["kind"], new_rows["rows"], new_rows["answer"]) == ("new rows", 30, "cannot tell")
    assert "+1.0 points [−7.0, +9.0]" in shown["verdict"]["sentences"]["joining"][0]
    assert "about 900" in shown["verdict"]["sentences"]["joining"][0]
    assert shown["decision"]["answer"] == "do not share"
    assert shown["own_rows"]["class_counts"] == {"no": 40, "yes": 20}
    assert shown["own_rows"]["shared"]["reissued"]
    assert shown["audits"][0]["has_examples"]
    rebuilt = shown["verdict"]["sentences"]["leakage"][1]
    assert f"'{attack}'" in rebuilt
    assert f"{value:.2f} [" in rebuilt
    assert "lower bound" in rebuilt


def test_scores_at_home_are_on_the_page_and_others_names_are_text_there(study: Study, tmp_path: Path) -> None:
    record = participant_records({})["predict"]
    record["evaluation"]["classes"][1] = "<b>yes</b>"
    page = render_report(summarise(study, collect_records(write_records(tmp_path, {"predict": record}))))
    text = body(page)
    auc = record["evaluation"]["joint"]["auc"]
    assert f"{auc['value']:.3f} [{auc['low']:.3f}, {auc['high']:.3f}]" in text
    assert all(words in text for words in ("sensitivity", "specificity", "Brier", "age +0.250 0.010", "<b>yes</b>"))
    assert "<b>yes</b>" not in page
    assert page.count(" rows</title>") == len(record["evaluation"]["joint"]["calibration"])
    del record["evaluation"]["joint"]["confusion"]
    with pytest.raises(InputError, match=r"predict\.json"):
        collect_records(write_records(tmp_path, {"predict": record}))


@pytest.mark.parametrize("name", ["intake", "alignment", "training", "delivery", "check", "share", "predict"])
def test_one_record_is_enough_and_a_section_that_it_does_not_fill_is_not_there(
    name: str, study: Study, audit: dict[str, Any], tmp_path: Path
) -> None:
    record = (analyst_records(NAMES) | participant_records(audit))[name]
    found = collect_records(write_records(tmp_path, {name: record}))
    assert list(found) == [name]
    for given in (study, None):
        summary = summarise(given, found)
        assert [one["command"] for one in summary["commands"]] == [record["command"]]
        assert summary["verdict"]["leakage_measured"] == (name == "check")
        assert (summary["alignment"] is None) == (name != "alignment")
        page = render_report(summary)
        text = body(page)
        assert (" Alignment " in text) == (name == "alignment")
        assert ("about persons" in text) == ("what helps" in text) == (name == "check")
        assert ("<h2>What joining gives" in page) == (name in ("training", "check", "predict"))


@pytest.mark.parametrize("part", ["command", "score", "participants", "alone", "kind"])
def test_a_part_that_is_absent_or_null_is_tolerated(part: str, study: Study, tmp_path: Path) -> None:
    records = analyst_records(NAMES)
    records["training"][part] = None
    assert render_report(summarise(study, collect_records(write_records(tmp_path, records))))
    del records["training"][part]
    assert render_report(summarise(study, collect_records(write_records(tmp_path, records))))


@pytest.mark.parametrize(
    "damage",
    [
        "", "{", "[]", "null", '{"participants": {}}', '{"participants": [{"rows": 3}]}',
        '{"participants": [{"name": 3}]}', '{"participants": [{"name": "a", "fit": "0.9"}]}',
        '{"participants": [{"name": "a", "fit": NaN}]}', '{"residual": true}', '{"certificate": "yes"}',
        "[" * 100_000,
    ],
)  # fmt: skip
def test_a_damaged_record_is_an_error_that_names_it_and_its_command(damage: str, tmp_path: Path) -> None:
    (tmp_path / "alignment.json").write_text(damage)
    with pytest.raises(InputError) as caught:
        collect_records(tmp_path)
    assert caught.value.what == "the record alignment.json"
    assert "'mooring align'" in caught.value.cure


def test_a_record_that_is_too_large_is_refused_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.report.records._MOST_BYTES", 1000)
    (tmp_path / "share.json").write_text(json.dumps({"command": "x" * 1000}))
    with pytest.raises(InputError) as caught:
        collect_records(tmp_path)
    assert caught.value.got.startswith("more than")


def test_a_folder_that_is_not_there_and_one_without_records(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        collect_records(tmp_path / "none")
    assert collect_records(tmp_path) == {}
    run(tmp_path, "--output", tmp_path / "report.html", code=2)
    assert not (tmp_path / "report.html").exists()


@pytest.mark.parametrize(
    ("where", "what"),
    [
        (("points", 0, "point", "method"), "no-such-method"), (("points", 0, "outcomes"), "none"),
        (("points", 0, "examples", "rows"), {"original": "x"}), (("points", 0, "examples", "image_shape"), [7, 7]),
        (("description", "rows_each"), 3), (("warnings",), [3]), (("references",), {}),
    ],
)  # fmt: skip
def test_a_damaged_audit_is_refused(where: tuple[Any, ...], what: Any, audit: dict[str, Any], tmp_path: Path) -> None:
    plain = json.loads(json.dumps(audit))
    inner = plain
    for key in where[:-1]:
        inner = inner[key]
    inner[where[-1]] = what
    (tmp_path / "audit.json").write_text(json.dumps(plain))
    with pytest.raises(InputError) as caught:
        read_audit(tmp_path / "audit.json")
    assert caught.value.what == "the audit"
    (tmp_path / "check.json").write_text(json.dumps({"self_attack": plain}))
    with pytest.raises(InputError) as caught:
        collect_records(tmp_path)
    assert caught.value.what == "the self-attack"


def test_figures_of_other_settings_are_said_to_be_of_other_settings(study: Study, audit: dict[str, Any]) -> None:
    same = json.loads(json.dumps(audit))
    same["points"][0]["data_noise_scale"] = study.data_noise_scale
    others, own = (summarise(study, {}, plain)["verdict"]["sentences"]["leakage"] for plain in (audit, same))
    assert len(others) == len(own) + 1


def test_what_a_report_says_of_joining_is_at_the_studys_settings(study: Study, audit: dict[str, Any]) -> None:
    """Of two points the other scores best; a report that quotes it promises what the study's own noise does not give."""
    same = json.loads(json.dumps(audit))
    own, other = same["points"]
    own["data_noise_scale"] = study.data_noise_scale
    assert other["deployed"]["value"] != own["deployed"]["value"]
    summary = summarise(study, {}, same)
    (words,) = [one for one in summary["verdict"]["sentences"]["joining"] if "simulation" in one]
    assert f"{own['deployed']['value']:.1%}" in words
    assert f"σ = {study.data_noise_scale:g}" in words
    shown = describe_report(summary)["audits"][0]
    _, headline, *_, joining = shown["sentences"]
    assert joining in words
    assert f"σ = {study.data_noise_scale:g}" in headline


def test_a_plan_may_be_given_for_an_audit(audit: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps({"verdict": "Joining does not pay here.", "audit": audit}))
    summary = summarise(None, {}, read_audit(tmp_path / "plan.json"))
    assert "Joining does not pay here." in summary["verdict"]["sentences"]["leakage"]


def test_the_command_writes_a_page_and_says_the_verdict_in_a_few_lines(audit: dict[str, Any], tmp_path: Path) -> None:
    folder = write_records(tmp_path / "work", analyst_records(NAMES) | {"audit": audit})
    out = tmp_path / "report.html"
    result = run(folder, "--audit", folder / "audit.json", "--output", out)
    assert str(out) in result.stdout.replace("\n", "")
    assert "lower bound" in result.stdout
    assert has_mode(out, 0o600)
    page = out.read_text(encoding="utf-8")
    assert "The target's rows" in body(page)
    run(folder, "--audit", folder / "audit.json", "--no-examples", "--output", out, code=2)
    assert out.read_text(encoding="utf-8") == page
    run(folder, "--audit", folder / "audit.json", "--no-examples", "--output", out, "--force")
    hidden = body(out.read_text(encoding="utf-8"))
    assert "The target's rows" not in hidden
    assert "as confidential as the data" not in hidden


def test_the_command_finds_a_vaults_folder_of_the_study_and_prints_json(
    audit: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    example_study(NAMES).write(tmp_path / "study.toml")
    place = tmp_path / "vault" / "studies" / Study.read(tmp_path / "study.toml").folder_name
    write_records(place, participant_records(audit))
    (tmp_path / "vault" / "studies" / "other").mkdir()
    plain = json.loads(run("vault", "--format", "json", "--no-examples").stdout)
    assert plain["role"] == "participant"
    assert plain["study"]["fingerprint"] == Study.read(tmp_path / "study.toml").fingerprint
    assert plain["page"] == "report.html"
    assert all(point["examples"] is None for point in plain["audits"][0]["plain"]["points"])
    (tmp_path / "study.toml").unlink()
    assert "--study" in " ".join(run("vault", "--force", code=2).stderr.split())


def test_the_summary_is_plain_and_the_page_the_same_for_the_same_summary(
    study: Study, audit: dict[str, Any], tmp_path: Path
) -> None:
    records = collect_records(write_records(tmp_path, analyst_records(NAMES) | participant_records(audit)))
    summary = summarise(study, records, audit, made="2026-01-01 00:00 UTC")
    again = json.loads(json.dumps(summary, allow_nan=False))
    assert again == summary
    assert render_report(again) == render_report(summary)


def test_templates_escape_html_and_refuse_a_name_that_they_are_not_given() -> None:
    environment = load_template("report.html.jinja").environment
    parts = environment.get_template("parts.html.jinja").module
    assert "&lt;b&gt;" in str(parts.items(["<b>"]))  # type: ignore[attr-defined]
    with pytest.raises(UndefinedError):
        load_template("report.html.jinja").render({})


def test_the_page_of_leakage_says_so_too() -> None:
    """Points in docs/leakage.md that are recommended carry the sentence; every point stands beside chance and control."""
    root = Path(__file__).parents[2]
    page = (root / "docs" / "leakage.md").read_text(encoding="utf-8")
    plans = json.loads((root / "benchmarks" / "results" / "plans.json").read_text(encoding="utf-8"))
    for name, entry in plans.items():
        plan, figures = entry["plan"], entry["plan"]["reported"]["figures"]
        after = page.split(f"## {name}\n")[1]
        if plan["recommended"]:
            assert warn_of_linkage(figures["linkage"]["value"], 0.1) in after[:400]
            assert min(one["figures"]["exposed_tenth"]["interval"][0] for one in entry["fresh"]) >= 0.5
        again = ", ".join(f"{one['figures']['exposed_tenth']['value']:.2f}" for one in entry["again"])
        assert f"{figures['exposed_tenth']['chance']:.2f}; 1.00 | {again} |" in after[:1500]
