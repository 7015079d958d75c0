"""Results as pages: one self-contained HTML file that needs nothing from the network.

Files -> `collect_records` -> typed records -> `summarise` -> `Report` -> `render_report` -> the page. Templates of
other packages extend the same frame through `render_page`. Names are loaded when they are used: a sentence needs no
attack and no chart.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mooring.report.audit_page import render_audit, render_plan
    from mooring.report.charts import draw_audit
    from mooring.report.frame import load_template, render_page, render_sentence
    from mooring.report.governance import render_drafts
    from mooring.report.records import StudyRecords, collect_records, read_audit
    from mooring.report.study_page import render_check, render_report
    from mooring.report.summary import Report, summarise

__all__ = [
    "Report",
    "StudyRecords",
    "collect_records",
    "draw_audit",
    "load_template",
    "read_audit",
    "render_audit",
    "render_check",
    "render_drafts",
    "render_page",
    "render_plan",
    "render_report",
    "render_sentence",
    "summarise",
]
_HOMES = {
    "audit_page": ("render_audit", "render_plan"),
    "charts": ("draw_audit",),
    "frame": ("load_template", "render_page", "render_sentence"),
    "governance": ("render_drafts",),
    "records": ("StudyRecords", "collect_records", "read_audit"),
    "study_page": ("render_check", "render_report"),
    "summary": ("Report", "summarise"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load a public name from where it lives."""
    if name in _HOME_OF:
        return getattr(import_module(f"mooring.report.{_HOME_OF[name]}"), name)
    raise AttributeError(f"module 'mooring.report' has no attribute {name!r}")
