"""The verdict: what joining gives, what the strongest attack recovers, and what to look at before signing.

Facts first, as plain values; the sentences that the page and the terminal say come from them by verdict.txt.jinja.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from mooring.attacks import REGISTRY
from mooring.audit import AuditResult, PointResult
from mooring.audit.hazards import state_exposure, state_membership
from mooring.learners import Gain
from mooring.report.frame import render_sentence
from mooring.report.numbers import describe_figure, describe_score, score_from

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
        `joining` and `leakage` (facts, each of a `kind`), `attention`, and `sentences` of all three.
    """
    results = [(audit, read_result(audit)) for audit in audits]
    joining = [*_of_uploads(records, noisy=noisy), *_of_new_rows(records), *_of_own_rows(records)]
    for audit, result in results:
        one = result.headline_point
        if audit["source"] == "audit" and result.references.local_only is not None and one is not None:
            answer = None if one.gain is None else one.gain.answer
            joining.append({"kind": "simulation", "words": result.joining(), "answer": answer})
    if joining and not any(entry["group"] == "pooled raw" and entry["score"] for entry in scores):
        joining.append({"kind": "pooled raw not known", "answer": None})
    leakage = [fact for audit, result in results for fact in _leakage(audit, result)]
    facts = {
        "joining": joining or [{"kind": "not measured", "answer": None}],
        "joining_measured": bool(joining),
        "leakage": leakage or [{"kind": "not measured"}],
        "leakage_measured": bool(leakage),
        "attention": _attention(records),
    }
    return facts | {"sentences": _sentences(facts)}


def read_result(audit: Mapping[str, Any]) -> AuditResult:
    """An audit of a summary; where one of its points has the study's settings, that is the chosen one."""
    result = AuditResult.from_dict(audit["plain"])
    return result if audit["point"] is None else replace(result, chosen=audit["point"]["index"])


def _gain(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of joining over training alone on the same rows; older records do not."""
    gain = None if record.get("gain") is None else Gain.from_dict(record["gain"])
    return {"gain": None if gain is None else gain.sentence(), "answer": None if gain is None else gain.answer}


def _sentences(facts: Mapping[str, Any]) -> dict[str, list[str]]:
    found = {
        group: [render_sentence("verdict.txt.jinja", group, fact) for fact in facts[group]]
        for group in ("joining", "leakage")
    }
    return found | {"attention": state_attention(facts["attention"])}


def state_attention(facts: Mapping[str, Any]) -> list[str]:
    """A sentence for each kind of fact that there is."""
    found = [{"kind": kind, "found": found} for kind, found in facts.items() if found]
    return [render_sentence("verdict.txt.jinja", "attention", one) for one in found]


def _of_uploads(records: Records, *, noisy: bool) -> list[Fact]:
    """Models of the other uploads beside models of one upload alone; neither is what a participant gets or has.

    The delivered model has the participant's own rows as well, and alone it has rows without noise: no answer follows.
    """
    training = records.get("training", {})
    joint = score_from(training.get("score"))
    if joint is None:
        return []
    difference = None
    if training.get("gain") is not None:
        gain = Gain.from_dict(training["gain"])
        difference = {"words": str(gain), "rows": f"{gain.n:,}", "participants": len(training.get("alone") or ())}
    uploads = {"kind": "uploads", "score": describe_score(joint), "noisy": noisy, "difference": difference}
    return [uploads | {"answer": None}]


def _of_new_rows(records: Records) -> list[Fact]:
    """The joint model on a participant's new rows, beside the participant's own."""
    predict = records.get("predict", {})
    joint, local = score_from(predict.get("score")), score_from(predict.get("local_only"))
    if joint is None:
        return []
    scores = {"score": describe_score(joint), "local": describe_score(local)}
    return [{"kind": "new rows", "rows": predict.get("rows"), **scores, **_gain(predict)}]


def _of_own_rows(records: Records) -> list[Fact]:
    own = score_from(records.get("check", {}).get("local_only"))
    if own is None or score_from(records.get("predict", {}).get("score")) is not None:
        return []
    return [{"kind": "own rows", "score": describe_score(own), "answer": None}]


def _leakage(audit: Mapping[str, Any], result: AuditResult) -> list[Fact]:
    title = {"title": str(audit["title"]).capitalize()}
    if not result.trustworthy:
        untrusted = title | {"kind": "not trustworthy", "words": result.headline()}
        return [untrusted, *({"kind": "warning", "words": text} for text in result.warnings)]
    asked = result.description.get("attacks")
    in_part = None if asked is None or len(asked) >= len(REGISTRY) else {"asked": len(asked), "known": len(REGISTRY)}
    facts: list[Fact] = []
    one = result.headline_point
    assert one is not None  # a result that is trustworthy has points
    if (told := state_membership(one)) is not None:
        facts.append(title | {"kind": "membership", "words": told})
    found = {"in_part": in_part, "point": one.title, **state_strongest(one)}
    if audit["point"] is not None:
        facts.append(title | {"kind": "at the study's settings", **found})
    else:
        kind = "at worst" if result.chosen is None else "at its own setting"
        facts += [title | {"kind": kind, **found}, title | {"kind": "other settings"}]
    if isinstance(audit["plain"].get("verdict"), str):
        facts.append({"kind": "plan", "words": audit["plain"]["verdict"]})
    return facts


def state_strongest(one: PointResult) -> Fact:
    """What the strongest attack recovers at a point, beside interval, chance and control; None where none could be run."""
    found = {"strongest": one.worst(), "linkage": one.worst("linkage")}
    return {"exposed": list(state_exposure(one))} | {
        name: None if worst is None else {"attack": worst[0], **describe_figure(worst[1])}
        for name, worst in found.items()
    }


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
    """Limits of the study that a participant's rows do not keep, and who delivered a model above its limit."""
    check, delivery, predict = (records.get(name, {}) for name in ("check", "delivery", "predict"))
    return {"limits": check.get("exceeded"), "override": delivery.get("override") or predict.get("override")}
