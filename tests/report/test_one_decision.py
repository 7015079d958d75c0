"""Whatever was measured, a page states one decision, which follows from its figures, and nothing on it contradicts it."""

import html
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.audit import AuditResult
from mooring.audit.results.decision import Decision
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import RangeSource
from mooring.protocol.registry import exchange_of
from mooring.protocol.sums.scheme import sum_settings
from mooring.report.audit_page import render_audit
from mooring.report.governance import render_drafts
from mooring.report.records import StudyRecords
from mooring.report.signing_page import render_signing_page
from mooring.report.study_page import render_check, render_report
from mooring.report.summary import Report, summarise
from tests.protocol.sums.support import make_sum_study
from tests.report.example_records import (
    analyst_records,
    example_audit,
    example_study,
    gain,
    outcome,
    participant_records,
    sum_records,
)

VERDICTS = {
    "share": r"\bdo not share\b|\bcannot tell\b|\bdoes not pay\b|is not kept|does not keep|cannot be trusted",
    "do not share": r"(?<!not )\bshare\. |\bThat is little\b",
    "cannot tell": r"\bdo not share\b|(?<!not )\bshare\. |\bThat is little\b",
}
"""Words that would contradict a decision, wherever they stand on its page."""
KINDS = ("rotation", "sums", "persons", "without noise", "ranges not confirmed")


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Study]:
    settings_of = {
        "sums": {"epsilon": 1.0},
        "persons": {"epsilon": 6.0, "person": "patient", "rows_per_person": 3},
        "without noise": {"epsilon": None, "least_rows": 50},
    }
    made = {
        name: make_sum_study(tmp_path_factory.mktemp("sums"), 4, **given).study for name, given in settings_of.items()
    }
    unconfirmed = replace(made["sums"], range_source=RangeSource(from_rows=("x0",)))
    return {"rotation": example_study(), **made, "ranges not confirmed": unconfirmed}


@st.composite
def audits(draw: st.DrawFn) -> AuditResult:
    """An audit with figures from exact recovery to guessing, of which some may be missing."""
    audit = example_audit(totals=True)
    points = []
    for point in audit.points:
        outcomes = (outcome("moments", draw(st.floats(0, 1.5)), draw(st.floats(0, 1))),) if draw(st.booleans()) else ()
        drawn_gain = gain(draw(st.floats(-0.3, 0.3)), draw(st.integers(2, 10_000))) if draw(st.booleans()) else None
        points.append(replace(point, outcomes=outcomes, gain=drawn_gain))
    return replace(audit, points=tuple(points), chosen=draw(st.sampled_from([None, 0, 2])))


@st.composite
def records(draw: st.DrawFn, study: Study, *, is_rotation: bool) -> StudyRecords:
    """Records of any steps; a self-attack is of the study's own settings first, and its check has been concluded."""
    names = [member.name for member in study.participants]
    gathered = analyst_records() if is_rotation else sum_records(names)
    everything = participant_records(None) if is_rotation else gathered
    attack, steps = (
        draw(st.none() | audits()),
        draw(st.sets(st.sampled_from(["check", "share", "predict", "gathered"]))),
    )
    check = everything.check
    if attack is not None:
        points = attack.row_points[:1] if is_rotation else attack.totals
        if not is_rotation and sum_settings(study).epsilon is None:
            points = points[1:]
        check = replace(check, self_attack=replace(attack, points=points, chosen=0))
    kept = {name: getattr(everything, name) for name in ("share", "predict") if name in steps}
    if "check" in steps:
        kept["check"] = exchange_of(study).assessment.conclude(study, check)
    if "gathered" in steps:
        kept |= {name: getattr(gathered, name) for name in ("intake", "gathered", "training", "delivery")}
    return StudyRecords(**kept)


def read_text(page: str) -> str:
    body = page.split("</head><body>")[1]
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body)))


def check_page(page: str, decision: Decision) -> None:
    (card,) = re.findall(r'<section class="[^"]*decision".*?</section>', page, flags=re.S)
    (stated,) = re.findall(r'<p class="answer">.*?</span> (.*?)\.</p>', page)
    assert stated == decision.spoken
    text = read_text(page)
    assert all(reason in read_text(f"</head><body>{card}") for reason in decision.sentences)
    beside = text.replace(read_text(f"</head><body>{card}"), "", 1)
    assert not re.search(VERDICTS[decision.answer], beside, flags=re.I), decision.answer


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_a_page_states_one_decision_and_nothing_on_it_contradicts_it(
    kind: str, studies: dict[str, Study], data: st.DataObject
) -> None:
    study = studies[kind]
    kept = data.draw(records(study, is_rotation=kind == "rotation"))
    audit = data.draw(st.none() | audits())
    made = summarise(study, kept, audit)
    decision = made.summary.decision
    for page in (render_report(made), render_signing_page(made)):
        check_page(page, decision)
    drafts = render_drafts(made)
    assert drafts["dpia.md"].count(decision.question) == 1
    if kept.check is not None:
        printed = kept.check.decision  # by the command
        check_page(render_check(study, kept.check), printed)
    if audit is not None:
        check_page(render_audit(audit, command="mooring audit"), audit.decision)
    check_promise(made)


def check_promise(made: Report) -> None:
    """A page to sign promises what its study does, no more, and to whom."""
    page, about = read_text(render_signing_page(made)), made.description
    assert about is not None
    assert ("the odds that the" in page) == (about.promise is not None)
    assert "What is not covered" in page
    assert all(words in page for words in about.terms.not_covered)
    assert made.study is not None
    assert str(made.study.range_source) in page
    if about.promise is None:
        assert "ε beside usual practice" not in page
        assert "differential privacy" not in page
    else:
        assert f"already believes about a {about.unit}," in page


def test_a_second_decision_or_a_sentence_against_it_would_be_seen(studies: dict[str, Study], tmp_path: Path) -> None:
    made = summarise(studies["sums"], StudyRecords())
    page, decision = render_report(made), made.summary.decision
    check_page(page, decision)
    for planted in (
        "<p>Do not share these rows.</p>",
        '<p class="answer"><span></span> Share.</p>',
        "<p>Cannot tell.</p>",
    ):
        with pytest.raises((AssertionError, ValueError)):
            check_page(page.replace("</main>", f"{planted}</main>"), decision)
