"""From a summary to the report: one page that a data protection officer can read, print and sign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mooring.report.audit_page import describe_audit, list_attacks
from mooring.report.charts import draw_calibration, draw_scores, draw_scores_by_participant
from mooring.report.frame import render_page
from mooring.report.numbers import describe_score, score_from, significant
from mooring.report.sum_page import describe_sum_report
from mooring.report.summary import summarise
from mooring.report.verdict import read_result

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

_BY_PARTICIPANT = ("joint by participant", "alone")


def render_report(summary: Mapping[str, Any]) -> str:
    """The page, as HTML; everything in the summary is taken for text that anybody may have written."""
    if summary["study"] is not None and summary["study"]["method"] == "secure-sum":
        return render_page("sum_report.html.jinja", describe_sum_report(summary))
    return render_page("report.html.jinja", describe_report(summary))


def render_check(study: Study, record: Mapping[str, Any]) -> str:
    """What a participant is shown before it shares: the self-attack and the hazards, in the report's frame."""
    summary = summarise(study, {"check": record})
    return render_report(summary | {"title": "Before anything leaves: what an upload would give away", "signed": False})


def describe_report(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the page shows: the summary, its numbers as people write them, and its charts."""
    charts = {
        "scores": draw_scores(summary["utility"]),
        "by_participant": draw_scores_by_participant(summary["utility"]),
        "calibration": draw_calibration(summary["evaluation"]),
    }
    scores = [_describe_entry(entry) for entry in summary["utility"] if entry["score"]]
    own = _describe_own_rows(summary["own_rows"])
    audits = []
    for audit in summary["audits"]:
        result = read_result(audit)
        best = None if audit["point"] is None else result.points[audit["point"]["index"]]
        audits.append({"title": audit["title"], "source": audit["source"], **describe_audit(result, best=best)})
    of_rows = [*(own["hazards"] or ()), *(own["warnings"] or ())] if own is not None else []
    return {
        **summary,
        "participants": [one for one in summary["participants"] if one["state"] != "not known"],
        "alignment": _describe_alignment(summary["alignment"]),
        "scores": [one for one in scores if one["group"] not in _BY_PARTICIPANT],
        "scores_by_participant": [one for one in scores if one["group"] in _BY_PARTICIPANT],
        "own_rows": own,
        "hazards": list(dict.fromkeys([*of_rows, *(words for audit in audits for words in audit["warnings"])])),
        "charts": charts,
        "audits": audits,
        "attacks": list_attacks(),
    }


def _describe_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    name = entry["name"] if entry["group"] in entry["name"] else f"{entry['group']}: {entry['name']}"
    score = describe_score(score_from(entry["score"]))
    return {"group": entry["group"], "name": name, "source": entry["source"], "score": score}


def _describe_alignment(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    numbers = ("iterations", "residual", "misfit", "anchor_noise_scale", "transition_scale")
    share = found.get("share_of_transition")
    return {
        **{name: significant(found.get(name)) for name in numbers},
        "share_of_transition": None if share is None else f"{share:.0%}",
        "termination": found.get("termination"),
        "certificate": found.get("certificate") and found["certificate"].get("words", "not known"),
        "note": found.get("note"),
    }


def _describe_own_rows(own: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if own is None:
        return None
    noise = own["noise"]
    written = {name: significant(noise.get(name)) for name in ("data_noise_scale", "level", "rms")} if noise else None
    return {**own, "noise": written, "has_noise": bool(noise and noise.get("data_noise_scale"))}
