"""Results as pages: one self-contained HTML file that needs nothing from the network.

records -> `collect_records` -> `summarise` -> a plain dict -> `render_report` -> the page. Templates of other packages
extend the same frame through `render_page`.
"""

from mooring.report.audit_page import render_audit, render_plan
from mooring.report.charts import draw_audit
from mooring.report.frame import load_template, render_page, render_sentence
from mooring.report.records import collect_records, read_audit
from mooring.report.study_page import describe_report, render_check, render_report
from mooring.report.summary import summarise

__all__ = [
    "collect_records",
    "describe_report",
    "draw_audit",
    "load_template",
    "read_audit",
    "render_audit",
    "render_check",
    "render_page",
    "render_plan",
    "render_report",
    "render_sentence",
    "summarise",
]
