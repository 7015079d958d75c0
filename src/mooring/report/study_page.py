"""From a report's values to one page that a data protection officer can read, print and sign."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from mooring.report.audit_page import AuditSection
from mooring.report.charts import draw_calibration, draw_scores, draw_scores_by_participant
from mooring.report.frame import render_page
from mooring.report.records import StudyRecords
from mooring.report.summary import Report, summarise

if TYPE_CHECKING:
    from mooring.protocol.inspection import Inspection
    from mooring.protocol.messages.study import Study

_BY_PARTICIPANT = ("joint by participant", "alone")


def render_report(report: Report) -> str:
    """The page, as HTML; everything in the report is taken for text that anybody may have written."""
    scores, predict = report.summary.scores, report.records.predict
    values = {
        "title": report.title,
        "report": report,
        "summary": report.summary,
        "audits": [(attacked, AuditSection(attacked.result)) for attacked in report.audits],
        "scores": [score for score in scores if score.group not in _BY_PARTICIPANT],
        "scores_by_participant": [score for score in scores if score.group in _BY_PARTICIPANT],
        "charts": {
            "scores": draw_scores(scores),
            "by_participant": draw_scores_by_participant(scores),
            "calibration": draw_calibration(None if predict is None else predict.evaluation),
        },
    }
    return render_page("report.html.jinja", values)


def render_check(study: Study, inspection: Inspection) -> str:
    """What a participant is shown before it shares: the self-attack and the hazards, in the report's frame."""
    report = summarise(study, StudyRecords(check=inspection))
    title = "Before anything leaves: what an upload would disclose"
    return render_report(replace(report, title=title, is_signed=False))
