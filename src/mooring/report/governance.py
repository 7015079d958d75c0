"""Drafts of governance documents for a data-protection officer.

Drafts are Markdown, to be edited: an impact assessment, an annex to a data-sharing agreement, and answers to the Five Safes.
What they state comes from the study's file and a role's records; what mooring cannot know is left as a blank. The annex is
made from the study's file alone, so that all parties have the same one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from mooring.audit import PointResult
from mooring.errors import InputError
from mooring.metrics import Figure
from mooring.metrics.measures import MEASURES
from mooring.report.frame import load_template
from mooring.report.summary import Report
from mooring.serialization import count_noun

DRAFTS = ("dpia.md", "agreement-annex.md", "five-safes.md")
_MOST_COLUMNS = 40
_MARKUP = re.compile(r"[|`*\\]|<(?=[\w/!?])|&(?=#?\w+;)|\](?=[(\[])|(?<!\w)_|_(?!\w)")
_PIPE = "\0"  # stands for | in a code span; only in lines of a table must | be escaped there
_SHOWN = ("membership_at_1_percent", "membership_auc", "linkage", "register_class", "exposed_tenth", "centred_error")


@dataclass(frozen=True)
class MeasuredLine:
    """The strongest attack by one measure."""

    source: str
    measure: str
    attack: str
    figure: Figure


def render_drafts(report: Report) -> dict[str, str]:
    """Return the drafts as Markdown, by file name. The report needs the study; records may be missing."""
    study, description = report.study, report.description
    if study is None or description is None:
        raise InputError("study", expected="given", got="none", cure="Name the study's file with --study.")
    study.require_roster()
    kinds = Counter(column.kind for column in study.columns)
    attacked = [(audit.title, audit.study_point) for audit in report.audits if audit.study_point is not None]
    values = {
        "study": study,
        "columns": study.columns[:_MOST_COLUMNS],
        "kinds": ", ".join(
            count_noun(n, f"column of kind {kind}", f"columns of kind {kind}") for kind, n in kinds.items()
        ),
        "terms": description.terms,
        "promise": description.promise,
        "shares_rows": description.shares_rows,
        "has_model": study.label.kind != "none",
        "summary": report.summary,
        "records": report.records,
        "hazards": ()
        if report.records.check is None
        else (*report.records.check.hazards, *report.records.check.warnings),
        "sources": list_sources(report),
        "leakage": [] if description.headlines or not report.summary.leakage_measured else report.summary.leakage,
        "measured": [line for title, point in attacked for line in _list_figures(title, point)],
        "not_attacked": [title for title, point in attacked if not [*_list_figures(title, point)]],
        "released": [(title, point.release) for title, point in attacked if point.release is not None],
        "blank": lambda words: Markup(f"**[TO FILL IN: {words}]**"),
        "code": _to_code_span,
    }
    environment = load_template(f"{DRAFTS[0]}.jinja").environment.overlay(finalize=_to_markdown, autoescape=True)
    return {name: _tidied(environment.get_template(f"{name}.jinja").render(values)) for name in DRAFTS}


def _tidied(text: str) -> str:
    lines = re.sub(r"\n{3,}", "\n\n", text).strip("\n").split("\n")
    return "\n".join(line.replace(_PIPE, r"\|" if line.startswith("|") else "|") for line in lines) + "\n"


def list_sources(report: Report) -> list[str]:
    """Return the sources of a draft, in words."""
    sources = [f"the records of one role ({report.summary.role})"] if report.summary.commands else []
    sources += ["an audit"] if any(not attacked.is_self_attack for attacked in report.audits) else []
    return ["the study's file", *sources] if sources else ["the study's file alone"]


def _list_figures(source: str, point: PointResult) -> Iterator[MeasuredLine]:
    """Yield the strongest attack by each of the measures that drafts show, if the measure was computed."""
    for measure in _SHOWN:
        worst = point.worst(measure)
        if worst is not None and worst[1].describe().value != "–":
            yield MeasuredLine(source, f"{MEASURES[measure].title}: {MEASURES[measure].explanation}", *worst)


def _to_markdown(value: Any) -> Any:
    """Return Markdown that shows a text literally, because others may have written it."""
    if hasattr(value, "__html__") or not isinstance(value, str):
        return value
    text = " ".join(value.splitlines())
    return Markup(_MARKUP.sub(r"\\\g<0>", text))


def _to_code_span(text: str) -> Markup:
    """Return a code span, in which Markdown decodes nothing; its fence is longer than every run of backticks in it."""
    text = " ".join(text.splitlines())
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    text = f" {text} " if len(fence) > 1 else text
    return Markup(f"{fence}{text}{fence}".replace("|", _PIPE))
