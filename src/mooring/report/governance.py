"""Texts for a data-protection officer: the guarantee of secure sums in sentences, and drafts of governance documents.

Drafts are Markdown, to be edited: an impact assessment, an annex to a data-sharing agreement, and answers to the Five Safes.
What they state comes from the study's file and a role's records; what mooring cannot know is left as a blank. The annex is
made from the study's file alone, so that all parties have the same one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mooring.report.frame import load_template, render_sentence

if TYPE_CHECKING:
    from mooring.audit import PointResult
    from mooring.protocol.messages.study import Study

DRAFTS = ("dpia.md", "agreement-annex.md", "five-safes.md")
_MOST_COLUMNS = 40
_MARKUP = re.compile(r"[&<|`*\\]|\](?=[(\[])|(?<!\w)_|_(?!\w)")
_PIPE = "\0"  # stands for | in a code span, which is escaped in lines of a table only
_MEASURES = {
    "membership_at_1_percent": "records told to be in the data, at 1 % false alarms or, of few rows, at the chance beside",
    "membership_auc": "telling whether a record is in the data (area under the curve; 0.5 is chance)",
    "linkage": "rows picked out of ten look-alikes",
    "register_class": "rows that come first in a register of their class",
    "exposed_tenth": "error of the most exposed tenth of rows, relative to guessing (0 is exact)",
    "centred_error": "error over all rows (0 is exact)",
}


def render_drafts(study: Study, summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the drafts as Markdown, by file name, from what `summarise` gave of this study; records may be absent."""
    study.require_roster()
    facts = _to_markdown(_describe_study(study) | _describe_records(study, summary))
    facts["blank"] = "**[TO FILL IN: {}]**".format
    return {name: _tidied(load_template(f"{name}.jinja").render(facts)) for name in DRAFTS}


def _tidied(text: str) -> str:
    lines = re.sub(r"\n{3,}", "\n\n", text).rstrip("\n").split("\n")
    return "\n".join(line.replace(_PIPE, r"\|" if line.startswith("|") else "|") for line in lines) + "\n"


def _describe_study(study: Study) -> dict[str, Any]:
    """What everybody agreed on, in plain values."""
    columns = [
        {"name": _Code(one.name), "kind": one.kind, "values": one.described} for one in study.columns[:_MOST_COLUMNS]
    ]
    analyst, label = study.analyst, study.label
    assert analyst is not None
    values = f"{label.low:g} to {label.high:g}" if label.kind == "number" else ", ".join(label.classes)
    return {
        "name": _Code(study.name),
        "fingerprint": study.fingerprint,
        "digest": study.digest,
        "participants": [_Code(member.name) for member in study.participants],
        "analyst": _Code(analyst.name),
        "columns": columns,
        "n_columns": len(study.columns),
        "ids": [_Code(one) for one in study.ids],
        "label": {"column": _Code(label.column), "kind": label.kind, "values": values},
        "has_model": label.kind != "none",
        "upload_limits": list(study.upload_limits),
        "model_limit": study.model_limit,
        "rows": None if study.sums is not None else _describe_mechanism(study),
        "sums": None if study.sums is None else _describe_sums(study),
    }


def _describe_mechanism(study: Study) -> dict[str, Any]:
    return {
        "method": study.method_described.title,
        "components": study.n_components,
        "features": study.n_features,
        "projection": study.projection,
        "data_noise": f"{study.data_noise_scale:g}" if study.data_noise_scale > 0 else None,
        "anchor_noise": f"{study.anchor_noise_scale:g}" if study.anchor_noise_scale > 0 else None,
        "anchor_rows": study.n_anchor_rows,
        "dealer": _Code(study.dealing_member.name),
        "smallest_class": study.smallest_class,
    }


def _describe_sums(study: Study) -> dict[str, Any]:
    found, person = describe_scheme(study), study.sum_scheme.settings.person
    return found | {
        "numbers": f"{found['sums']:,}",
        "epsilon": None if found["epsilon"] is None else f"{found['epsilon']:g}",
        "delta": f"{found['delta']:g}",
        "person": person and _Code(person),
        "combiners": [_Code(one) for one in found["combiners"]],
    }


def _describe_records(study: Study, summary: Mapping[str, Any]) -> dict[str, Any]:
    """What a role's records say: measured leakage, the decision, what joining gives, what was done."""
    said, own = summary["verdict"]["sentences"], summary["own_rows"] or {}
    attacked = _attacked_rows(summary) if study.sums is None else _attacked_sums(study, summary)
    figures = [(title, _list_figures(one, title)) for title, one in attacked]
    released = [(title, getattr(one, "release", None)) for title, one in attacked]
    return {
        "sources": _list_sources(summary),
        "made": summary["made"],
        "version": summary["versions"]["mooring"],
        "decision": summary["decision"]["words"],
        "leakage": said["leakage"] if study.sums is None and summary["verdict"]["leakage_measured"] else [],
        "measured": [one for _, found in figures for one in found],
        "not_attacked": [title for title, found in figures if not found],
        "released": [{"source": title, "words": str(risk)} for title, risk in released if risk is not None],
        "joining": said["joining"],
        "attention": said["attention"],
        "hazards": [*(own.get("hazards") or ()), *(own.get("warnings") or ())],
        "checked_rows": own.get("rows"),
        "shared": own.get("shared"),
        "epsilon_in_all": own.get("epsilon_in_all"),
    }


def _list_sources(summary: Mapping[str, Any]) -> list[str]:
    """What a draft is made from."""
    titles = [*summary.get("attacked", ()), *(audit["title"] for audit in summary.get("audits", ()))]
    found = [f"the records of one role (seen by: {summary['role']})"] if summary["commands"] else []
    found += ["an audit"] if "the audit" in titles else []
    return ["the study's file", *found] if found else ["the study's file alone"]


def _attacked_rows(summary: Mapping[str, Any]) -> list[tuple[str, PointResult]]:
    """The study's own point, by the audit that has it."""
    from mooring.report.verdict import read_own_result

    of_study = [audit for audit in summary["audits"] if audit["point"] is not None]
    return [(audit["title"], one) for audit in of_study for one in read_own_result(audit).points]


def _attacked_sums(study: Study, summary: Mapping[str, Any]) -> list[tuple[str, PointResult]]:
    """Results at the study's own ε; others say nothing of it."""
    from mooring.report.records import read_plain_audit

    promise = study.sum_scheme.settings.promise
    return [
        (title, one)
        for title, plain in summary["attacked"].items()
        for one in read_plain_audit(plain).totals
        if one.point.promise == promise
    ]


def _list_figures(one: PointResult, source: str) -> list[dict[str, Any]]:
    """The strongest attack by each measure that was taken, with its interval and the level of guessing."""
    found = []
    for measure, words in _MEASURES.items():
        worst = one.worst(measure)
        if worst is not None and (written := worst[1].describe())["value"] != "–":
            found.append({"source": source, "measure": words, "attack": worst[0], "n": worst[1].n, **written})
    return found


class _Code(str):
    """Text that is shown as a code span."""


def _to_markdown(value: Any) -> Any:
    """The same values, with text as Markdown that shows it: others may have written it, and it is no markup."""
    if isinstance(value, Mapping):
        return {name: _to_markdown(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_to_markdown(one) for one in value]
    if not isinstance(value, str):
        return value
    text = " ".join(value.splitlines())
    if not isinstance(value, _Code):
        return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", text)
    # In a code span Markdown decodes nothing; its fence is longer than every run of backticks in it.
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    text = f" {text} " if len(fence) > 1 else text
    return f"{fence}{text}{fence}".replace("|", _PIPE)


def describe_scheme(study: Study) -> dict[str, Any]:
    """What was agreed of secure sums, in plain values."""
    scheme, settings = study.sum_scheme, study.sum_scheme.settings
    return {
        "features": scheme.layout.n_features,
        "feature_map": settings.features,
        "sums": scheme.layout.size,
        "epsilon": settings.epsilon,
        "delta": settings.delta,
        "unit": settings.unit,
        "rows_per_person": settings.rows_per_person,
        "colluders": settings.n_colluders,
        "combiners": list(scheme.combiners),
        "threshold": scheme.threshold.threshold,
        "quorum": scheme.quorum,
        "participants": len(study.participants),
        "guarantee": describe_guarantee(study),
    }


def describe_guarantee(study: Study) -> dict[str, str]:
    """Return sentences by what they are about: who is protected, against whom, how much, on what assumptions.

    Parameters
    ----------
    study : Study
        Of secure sums, with its roster.
    """
    settings, about = (
        study.sum_scheme.settings,
        ("protected", "against", "guarantee", "sealing", "assumptions", "limits"),
    )
    shown = ("guarantee", "sealing", "assumptions") if settings.epsilon is None else about
    return {name: render_sentence("guarantee.txt.jinja", name, study.sum_scheme, settings) for name in shown}
