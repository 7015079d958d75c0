"""The page of a report, which a data-protection officer can read, print and sign."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.report.answer_page import AnswerSection, find_leading, list_sections
from mooring.report.audit_page import AuditSection
from mooring.report.charts import draw_calibration
from mooring.report.frame import render_page
from mooring.report.pictures import Picture, picture_attackers, picture_joining, picture_trade_off
from mooring.report.records import StudyRecords
from mooring.report.summary import Report, summarise

if TYPE_CHECKING:
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.messages.study import Study

_UPLOADS = (
    "'Together' is the score of models trained on the other uploads, and 'alone' the score of a model trained on the "
    "participant's own upload. A participant gets neither of these models, so this does not show whether joining pays."
)


def render_report(report: Report) -> str:
    """Return the page as HTML. All text in the report is escaped, because anybody may have written it."""
    predict, sections = report.records.predict, list_sections(report.records.answers)
    leading = find_leading(sections)
    audits = [(attacked, AuditSection(attacked.result)) for attacked in report.audits]
    values = {
        "title": report.title,
        "report": report,
        "summary": report.summary,
        "pictures": draw_pictures(report) + _draw_leading(leading),
        "answers": sections,
        "leading": leading,
        "audits": audits,
        "has_examples": any(section.has_examples for _, section in audits),
        "calibration": draw_calibration(None if predict is None else predict.evaluation),
    }
    return render_page("report.html.jinja", values)


def _draw_leading(leading: AnswerSection | None) -> list[Picture]:
    return (
        [] if leading is None else [Picture("What the answers say", f"{leading.charts[0].label}.", leading.charts[0])]
    )


def draw_pictures(report: Report) -> list[Picture]:
    """Return the pictures of a report: what joining gives, what an attacker gets, and the trade-off."""
    first, gains = report.summary.joining[0], [fact.gain for fact in report.summary.joining if fact.gain is not None]
    words = gains[0].sentence() if gains else _UPLOADS if first.kind == "uploads" else first.words
    pictures = picture_joining(report.comparisons, words)
    about = report.description
    promise, unit = (None, "row") if about is None else (about.promise, about.unit)
    attacked = next((audit for audit in report.audits if audit.study_point is not None), None)
    other = next(iter(report.audits), None) if attacked is None and promise is None else None
    point = other.result.headline_point if other is not None else None if attacked is None else attacked.study_point
    caveat = "The attacks were on other settings than the study's." if other is not None and about is not None else ""
    if unit != "row" and point is not None:
        caveat = f"The attack was on single rows, with the noise for rows; the noise for {unit}s is at least as strong."
    pictures += picture_attackers(point, promise, unit=unit, caveat=caveat)
    for audit in reversed(report.audits):
        if drawn := picture_trade_off(audit.plan or audit.result, audit.study_point):
            return [*pictures, *drawn]
    return pictures


def render_check(study: Study, inspection: Inspection) -> str:
    """Return the page that a participant sees before it shares: the self-attack and the hazards, laid out as in a report."""
    report = summarise(study, StudyRecords(check=inspection))
    title = "Before anything leaves: what an upload would disclose"
    return render_report(replace(report, title=title, is_signed=False))
