"""The verdict: what joining gives, what the strongest attack recovers, and what to look at before signing.

Facts first, as plain values; the sentences that the page and the terminal say come from them by verdict.txt.jinja.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mooring.audit import AuditResult
from mooring.audit.decision import state_alone, state_leakage
from mooring.learners import Gain
from mooring.report.frame import render_sentence
from mooring.report.numbers import describe_score, score_from
from mooring.report.records import read_plain_audit

Records = Mapping[str, Mapping[str, Any]]
Fact = dict[str, Any]


def judge(
    records: Records, audits: Sequence[Mapping[str, Any]], scores: Sequence[Mapping[str, Any]], *, noisy: bool
) -> dict[str, Any]:
    """State what was measured of joining and of leakage.

    Parameters
    ----------
    records : mapping
        What `collect_records` gave.
    audits : sequence of mapping
        Audits in plain values, each with its title and the point that has the study's settings.
    scores : sequence of mapping
        Every score that this role knows.
    noisy : bool
        Whether the study puts noise on rows.

    Returns
    -------
    dict
        `joining` (facts, each of a `kind`), `attention`, and `sentences` of both and of leakage.
    """
    results = [(audit, read_own_result(audit)) for audit in audits]
    joining = _list_joining(records, noisy=noisy)
    for audit, result in results:
        one = result.headline_point
        if audit["source"] == "audit" and result.references.local_only is not None and one is not None:
            # of the study's point alone
            answer = None if audit["point"] is None or one.gain is None else one.gain.answer
            joining.append({"kind": "simulation", "words": result.joining(), "answer": answer})
    if joining and not any(entry["group"] == "pooled raw" and entry["score"] for entry in scores):
        joining.append({"kind": "pooled raw not known", "answer": None})
    leakage = [words for audit, result in results for words in _leakage(audit, result)]
    joining, attention = joining or [{"kind": "not measured", "answer": None}], _attention(records)
    return {
        "joining": joining,
        "joining_measured": joining[0]["kind"] != "not measured",
        "leakage_measured": bool(leakage),
        "attention": attention,
        "sentences": {
            "joining": [render_sentence("verdict.txt.jinja", "joining", fact) for fact in joining],
            "leakage": leakage or [render_sentence("verdict.txt.jinja", "not_measured")],
            "attention": state_attention(attention),
        },
    }


def read_result(audit: Mapping[str, Any]) -> AuditResult:
    """An audit of a summary; where one of its points has the study's settings, that is the chosen one."""
    result = read_plain_audit(audit["plain"])
    return result if audit["point"] is None else replace(result, chosen=audit["point"]["index"])


def read_own_result(audit: Mapping[str, Any]) -> AuditResult:
    """The same, of the study's point alone where there is one: whether attacks ran at other points says nothing of it."""
    result, own = read_result(audit), audit["point"]
    return result if own is None else replace(result, points=(result.points[own["index"]],), chosen=0)


def state_attention(facts: Mapping[str, Any]) -> list[str]:
    """A sentence for each kind of fact that there is."""
    found = [{"kind": kind, "found": found} for kind, found in facts.items() if found]
    return [render_sentence("verdict.txt.jinja", "attention", one) for one in found]


def _list_joining(records: Records, *, noisy: bool) -> list[Fact]:
    """What records say of joining: of uploads, and of a participant's new rows, or else of its own.

    Models of the other uploads stand beside models of one upload alone; neither is what a participant gets or has. The
    delivered model has the participant's own rows as well, and alone it has rows without noise: no answer follows.
    """
    training, predict, check = (records.get(name, {}) for name in ("training", "predict", "check"))
    gains = [None if one.get("gain") is None else Gain.from_dict(one["gain"]) for one in (training, predict)]
    found: list[Fact] = []
    if (joint := score_from(training.get("score"))) is not None:
        uploads = {"kind": "uploads", "score": describe_score(joint), "noisy": noisy, "difference": None}
        if (gain := gains[0]) is not None:
            n_alone = len(training.get("alone") or ())
            uploads["difference"] = {"words": str(gain), "rows": f"{gain.n:,}", "participants": n_alone}
        found.append(uploads | {"answer": None})
    if (joint := score_from(predict.get("score"))) is not None:
        local, gain = describe_score(score_from(predict.get("local_only"))), gains[1]
        shared = predict.get("shared") or 0
        told = None if shared else gain
        said = {"gain": None if told is None else told.sentence(), "answer": None if told is None else told.answer}
        scores = {"score": describe_score(joint), "local": local, "shared": shared}
        found.append({"kind": "new rows", "rows": predict.get("rows"), **scores, **said})
    elif (own := score_from(check.get("local_only"))) is not None:
        found.append({"kind": "own rows", "words": state_alone(own), "answer": None})
    return found


def _leakage(audit: Mapping[str, Any], result: AuditResult) -> list[str]:
    found = state_leakage(result)
    if audit["source"] == "audit":
        found = [f"The audit: {found[0]}", *found[1:]]
        if audit["point"] is None and result.trustworthy:
            found.append(render_sentence("verdict.txt.jinja", "other_settings"))
    return found + ([audit["plain"]["verdict"]] if isinstance(audit["plain"].get("verdict"), str) else [])


def _attention(records: Records) -> dict[str, Any]:
    """What a signer must not overlook, whatever the scores."""
    intake, alignment, training = (records.get(name, {}) for name in ("intake", "alignment", "training"))
    return {
        "set aside": len(intake.get("set_aside") or ()),
        "missing": len(intake.get("missing") or ()),
        "flagged": [entry["name"] for entry in alignment.get("set_aside") or ()],
        "left out": [entry["name"] for entry in training.get("left_out") or ()],
        "not converged": alignment.get("converged") is False,
        **limits_not_kept(records),
    }


def limits_not_kept(records: Records) -> dict[str, Any]:
    """Limits that a participant's rows do not keep, who shared all the same, and what a model with a limit tells of rows."""
    check, share, delivery, predict = (records.get(name, {}) for name in ("check", "share", "delivery", "predict"))
    limits = dict.fromkeys([*(share.get("exceeded") or ()), *(check.get("exceeded") or ())])
    model = predict if delivery.get("risk") is None else delivery
    risk = model.get("risk")
    return {
        "limits": list(limits),
        "shared despite": share.get("override") and {"by": share["override"], "limits": share.get("exceeded") or ()},
        "other rows": share.get("checked_other_rows"),
        "release": None if risk is None else {"risk": risk, "override": model.get("override")},
    }
