"""Results as pages: one self-contained HTML file that needs nothing from the network.

records -> `collect_records` -> `summarise` -> a plain dict -> `render_report` -> the page.
"""

from mooring.report.page import render_audit, render_plan
from mooring.report.records import collect_records, read_audit
from mooring.report.study_page import render_report
from mooring.report.summary import summarise

__all__ = ["collect_records", "read_audit", "render_audit", "render_plan", "render_report", "summarise"]
