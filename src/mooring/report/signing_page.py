"""A page on a study that a data-protection officer reads in ten minutes and signs.

Every sentence follows from the study's file and a role's records, and holds for every study: with a guarantee for rows or
for persons, without noise, and with ranges that nobody has confirmed. What mooring cannot know is a line to fill in.
"""

from __future__ import annotations

from mooring.errors import InputError
from mooring.mechanisms.sums.guarantee import state_belief
from mooring.report.frame import render_page
from mooring.report.governance import list_sources
from mooring.report.pictures import Picture
from mooring.report.plot import BLUE, PALE, Area, Axis, Chart
from mooring.report.study_page import draw_pictures
from mooring.report.summary import Report
from mooring.serialization import count_noun

SIGNING_PAGE = "sign.html"
_MOST_COLUMNS = 60
_STRONG, _MODERATE, _CENSUS = 1.0, 10.0, 19.61
PRACTICE = (
    "In practice a guarantee is called strong if ε is at most 1, reasonable if ε is at most 10, and weak if ε is larger "
    "(Ponomareva and others, 'How to DP-fy ML', 2023). The United States census of 2020 published its redistricting data "
    "with ε = 19.61. Compare the unit, too: a guarantee for one row is weaker for a person with several rows."
)


def render_signing_page(report: Report) -> str:
    """Return the page as HTML. The report needs the study; records may be missing."""
    study, about = report.study, report.description
    if study is None or about is None:
        raise InputError("study", expected="given", got="none", cure="Name the study's file with --study.")
    study.require_roster()
    attackers = [picture for picture in draw_pictures(report) if picture.people]
    values = {
        "title": "Decision on a study",
        "study": study,
        "about": about,
        "terms": about.terms,
        "summary": report.summary,
        "records": report.records,
        "sources": list_sources(report),
        "n_rows": _count_rows(report),
        "columns": study.columns[:_MOST_COLUMNS],
        "pictures": [*attackers, *_picture_practice(about.promise)],
        "belief": "" if about.promise is None else state_belief(*about.promise, about.unit),
        "practice": "" if about.promise is None else PRACTICE,
        "has_model": study.label.kind != "none",
        "is_confidential": report.records.check is not None or report.records.share is not None,
    }
    return render_page("sign.html.jinja", values)


def _count_rows(report: Report) -> str:
    """Return a sentence on how many rows this role's records are about; empty if the records do not say."""
    share, check, training = report.records.share, report.records.check, report.records.training
    if share is not None:
        return f"This participant shared {count_noun(share.n_rows, 'row')}."
    if check is not None:
        return f"This participant has checked {count_noun(check.n_rows, 'row')}."
    return "" if training is None else str(training)


def _picture_practice(promise: tuple[float, float] | None) -> list[Picture]:
    """Return a picture of the study's ε as a bar beside bars of usual practice; an empty list without a guarantee."""
    if promise is None:
        return []
    epsilon = promise[0]
    bars = (
        ("this study", epsilon, BLUE),
        ("called strong, up to", _STRONG, PALE),
        ("called reasonable, up to", _MODERATE, PALE),
        ("US census 2020", _CENSUS, PALE),
    )
    far = max(1.12 * _CENSUS, 1.12 * epsilon)
    area = Area(Axis.even("ε", 0.0, far), Axis.names([name for name, *_ in bars]))
    shapes = [area.bar(k, value, colour, f"{name}: ε = {value:g}") for k, (name, value, colour) in enumerate(bars)]
    shapes += [area.text(value, k, f"{value:g}") for k, (_, value, _) in enumerate(bars)]
    words = "A smaller ε is more private: adding 0.69 to ε doubles the factor by which an attacker's odds may change."
    return [
        Picture("ε beside usual practice", words, Chart("ε of this study and of others", area, tuple(shapes), (), 136))
    ]
