"""Pages in headless Chromium: charts are drawn, nothing is fetched, nothing planted runs, phone and paper work."""

import html
import json
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mooring.audit import AuditResult, EvaluationSpec
from mooring.protocol.messages.study import Study
from mooring.protocol.results import ShareResult
from mooring.report.audit_page import render_audit
from mooring.report.records import StudyRecords, collect_records, read_audit
from mooring.report.study_page import render_report
from mooring.report.summary import summarise
from tests.auditing import audited
from tests.report.example_records import analyst_records, example_study, list_files, participant_records

Browse = Callable[..., subprocess.CompletedProcess[str]]

PLANTED = "<script>document.documentElement.setAttribute('data-planted','1')</script>"
PLANTED += "<img src=x onerror=\"document.documentElement.setAttribute('data-planted','2')\">"
PLANTED += "</script></style></title>{braces}%{x}<a href='https://example.org/'>link</a>"

# Looser than the page's own policy, so that what is planted would run if it were not escaped; whatever would be fetched
# is blocked, reported as a violation and counted.
POLICY = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src 'unsafe-inline';
 style-src 'unsafe-inline'; img-src data:">"""
PROBE = """<script>
window.violations = [];
document.addEventListener("securitypolicyviolation", function (e) { window.violations.push(e.blockedURI); });
window.addEventListener("load", function () {
  document.querySelectorAll("details").forEach(function (e) { e.open = true; });
  var small = [];
  document.querySelectorAll("body *").forEach(function (e) {
    var own = Array.from(e.childNodes).some(function (c) { return c.nodeType === 3 && c.textContent.trim(); });
    if (own && !["SCRIPT", "STYLE", "NOSCRIPT"].includes(e.tagName) && parseFloat(getComputedStyle(e).fontSize) < 14) {
      small.push(e.tagName + ":" + e.textContent.slice(0, 20)); } });
  var drawn = Array.from(document.querySelectorAll("figure.chart > svg, figure img")).map(function (e) {
    var box = e.getBoundingClientRect();
    return box.height > 20 && (e.naturalWidth || e.querySelectorAll("path, rect[fill^='var']").length); });
  document.documentElement.setAttribute("data-probe", JSON.stringify({
    violations: window.violations, small: small, drawn: drawn,
    fetched: performance.getEntriesByType("resource").map(function (e) { return e.name; })
      .filter(function (name) { return !name.startsWith("data:"); }),
    width: document.documentElement.scrollWidth, inner: window.innerWidth })); });
</script>"""


KEPT = (
    *("method", "metric", "mechanism", "kind", "image_shape", "machine", "projection", "noise_unit", "answer"),
    *("epsilon", "labels"),
)


def planted(value: Any) -> Any:
    """Markup in every string, and in the names of classes; methods, metrics and the like must stay what they are."""
    if isinstance(value, dict):
        counts = value.get("class_counts")
        changed = {k: v if k in KEPT else planted(v) for k, v in value.items()}
        return changed | ({"class_counts": {k + PLANTED: n for k, n in counts.items()}} if counts else {})
    if isinstance(value, list):
        return [planted(entry) for entry in value]
    return value + PLANTED if isinstance(value, str) else value


@pytest.fixture(scope="module")
def study() -> Study:
    return example_study(["north", "south", "west", "st-mary-and-all-saints-general-hospital", "east", "harbour"])


@pytest.fixture(scope="module")
def audits() -> tuple[AuditResult, AuditResult]:
    """One audit of a table at several points, and a self-attack on images at one."""
    rng = np.random.default_rng(0)
    centres = 1.5 * rng.standard_normal((3, 5))
    labels = [rng.integers(0, 3, 80) for _ in range(4)]
    rows = [centres[label] + rng.standard_normal((80, 5)) * np.linspace(2.0, 0.6, 5) for label in labels]
    attacks = ["procrustes", "principal-axes", "known-anchor"]
    common: dict[str, Any] = {"anchor_noise_scales": [0.1], "learner": "linear", "attacks": attacks}
    table = audited(
        rows,
        labels,
        **common,
        methods=["aa-i-gdp", "aa-i-gdp-data-noise", "aa-i-gdp-both-noise"],
        data_noise_levels=[0.3, 0.8],
        evaluation=EvaluationSpec(n_examples=3, feature_names=("age", "weight", "height", "pressure", "sugar")),
    )
    pixels = [np.clip(0.3 * label[:, None] + 0.4 * rng.random((80, 9)), 0, 1) for label in labels]
    evaluation = EvaluationSpec(n_examples=4, image_shape=(3, 3))
    return table, audited(
        pixels, labels, methods=["aa-i-gdp-both-noise"], data_noise_levels=[0.5], evaluation=evaluation, **common
    )


@pytest.fixture(scope="module")
def pages(
    study: Study, audits: tuple[AuditResult, AuditResult], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """A full report, one with markup planted in everything, one with as little as there can be, and an audit's page."""
    names = [member.name for member in study.participants]
    table, pictures = audits
    records = replace(analyst_records(names), **vars_of(participant_records(pictures), "check", "share", "predict"))
    made = {}
    for title, change in (("full", lambda value: value), ("planted", planted)):
        folder = tmp_path_factory.mktemp(title)
        for name, record in {**list_files(records), "audit.json": table}.items():
            (folder / name).write_text(json.dumps(change(record.as_dict())), encoding="utf-8")
        made[title] = render_report(summarise(study, collect_records(folder), read_audit(folder / "audit.json")))
    made["least"] = render_report(summarise(None, StudyRecords(share=ShareResult(3, PLANTED, False))))
    made["audit"] = render_audit(audits[0], command=f"mooring audit {PLANTED}")
    return made


def vars_of(records: StudyRecords, *names: str) -> dict[str, Any]:
    return {name: getattr(records, name) for name in names}


def probed(page: str) -> str:
    """The page with the probe in it, and the probe's policy in place of its own."""
    answer = re.search(r'<meta http-equiv="Content-Security-Policy"[^>]*>', page)
    return page.replace(answer.group(), POLICY + PROBE, 1)


def found_by_probe(dom: str) -> dict[str, Any]:
    answer = re.search(r'<html[^>]* data-probe="([^"]*)"', dom)
    assert answer is not None, "the probe did not run"
    return dict(json.loads(html.unescape(answer.group(1))))


def opened(browse: Browse, page: str, folder: Path) -> tuple[str, dict[str, Any]]:
    """The page's document once drawn, and what the probe found."""
    path = folder / "page.html"
    path.write_text(probed(page), encoding="utf-8")
    dom = browse(path, "--dump-dom").stdout
    return dom, found_by_probe(dom)


def check_probe(probe: dict[str, Any], page: str, *, least: int) -> None:
    assert probe["violations"] == []
    assert probe["fetched"] == []
    expected = page.count('<figure class="chart"') + page.count("<img src")
    assert len(probe["drawn"]) == expected >= least
    assert all(drawn > 0 for drawn in probe["drawn"])


@pytest.mark.parametrize(("name", "least"), [("planted", 6), ("audit", 3)])
def test_charts_are_drawn_nothing_is_fetched_and_nothing_planted_runs(
    name: str, least: int, pages: dict[str, str], browse: Browse, tmp_path: Path
) -> None:
    dom, probe = opened(browse, pages[name], tmp_path)
    check_probe(probe, pages[name], least=least)
    assert "data-planted" not in dom.split("<body", 1)[0].split("<script", 1)[0]  # on the root element
    assert not re.search(r"<(img|a)[^>]*(onerror|example\.org)", dom)
    assert "{braces}" in dom


@pytest.mark.parametrize(("name", "least"), [("full", 6), ("least", 0)])
def test_a_phone_needs_no_sideways_scrolling_and_no_glasses(
    name: str, least: int, pages: dict[str, str], browse: Browse, tmp_path: Path
) -> None:
    """Chromium's window is 500 pixels wide at the least, so a frame of a phone's width stands in for the phone."""
    frame = f'<iframe width=390 height=800 style="border:0" srcdoc="{html.escape(probed(pages[name]))}"></iframe>'
    copy = """<script>setInterval(function () {
      var found = frames[0].document.documentElement.getAttribute("data-probe");
      if (found) { document.documentElement.setAttribute("data-probe", found); } }, 500);</script>"""
    path = tmp_path / "phone.html"
    path.write_text(f"<!doctype html><html><meta charset=utf-8><body>{frame}{copy}</body></html>", encoding="utf-8")
    probe = found_by_probe(browse(path, "--virtual-time-budget=2000", "--dump-dom").stdout)
    assert probe["inner"] == 390
    assert probe["width"] <= probe["inner"]
    assert probe["small"] == []
    check_probe(probe, pages[name], least=least)


def test_it_prints_to_several_pages(pages: dict[str, str], browse: Browse, tmp_path: Path) -> None:
    path, pdf = tmp_path / "page.html", tmp_path / "page.pdf"
    path.write_text(pages["full"], encoding="utf-8")
    done = browse(path, f"--print-to-pdf={pdf}", "--no-pdf-header-footer")
    assert pdf.exists(), done.stderr[-2000:]
    data = pdf.read_bytes()
    assert len(data) > 10_000
    assert len(re.findall(rb"/Type\s*/Page\b", data)) > 1


@pytest.mark.parametrize("name", ["full", "planted", "audit", "least"])
def test_a_page_is_small_has_no_script_and_names_no_address_that_a_browser_would_follow(
    name: str, pages: dict[str, str]
) -> None:
    head, body = pages[name].split("</head><body>")
    style = "".join(re.findall(r"<style>(.*?)</style>", head, flags=re.S))
    tags = "".join(re.findall(r"<[a-z][^>]*>", head + body))
    assert len(pages[name].encode()) < 2**20
    assert "<script" not in tags
    assert not re.search(r"""(src|href|srcset|action|poster)\s*=\s*["']?\s*(https?:)?//""", tags)
    assert "@import" not in style
    assert "url(" not in style
