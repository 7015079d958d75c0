"""The report of a study of secure sums: who is protected against whom, who took part, what joining gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mooring.audit import AuditResult
from mooring.audit.decision import state_promise
from mooring.learners import Score
from mooring.metrics.membership import state_alarms
from mooring.report.audit_page import describe_audit, describe_sums
from mooring.report.charts import draw_calibration
from mooring.report.governance import describe_guarantee
from mooring.report.numbers import describe_score, score_from
from mooring.report.records import read_plain_audit
from mooring.report.verdict import limits_not_kept, state_attention

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

Records = Mapping[str, Mapping[str, Any]]
_STATES = {
    True: "in the total",
    False: "not in the total",
    None: "on the roster; whether it is in the total is not known to this role",
}


def describe_contributors(study: Study, records: Records) -> list[dict[str, Any]]:
    """Every participant: whether its sums are in the total, whether it combines, whether it has the model."""
    closing, intake, delivery = (records.get(name) for name in ("closing", "intake", "delivery"))
    digests = {entry["name"]: entry.get("digest") for entry in (intake or {}).get("accepted") or ()}
    found = []
    for member in study.participants:
        inside = None if closing is None else member.name in (closing.get("participants") or ())
        reason = ((closing or {}).get("left_out") or {}).get(member.name)
        found.append(
            {
                "name": member.name,
                "state": _STATES[inside] + (f": {reason}" if reason else ""),
                "combines": member.name in study.sum_scheme.combiners,
                "delivered": None if delivery is None else member.name in (delivery.get("delivered") or ()),
                "digest": digests.get(member.name),
            }
        )
    return found


def list_promises(study: Study) -> list[str]:
    """What an upload gives away, first: the guarantee, or that there is none."""
    said = describe_guarantee(study)
    protected = [f"Protected: {said['protected']} Against: {said['against']}"] if "protected" in said else []
    return [state_promise(study.sum_scheme.settings), *protected]


def describe_sum_report(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Everything that the page of a study of secure sums shows."""
    scores = [
        {"name": one["name"], "source": one["source"], "score": describe_score(score_from(one["score"]))}
        for one in summary["utility"]
        if one["score"]
    ]
    attacked = [_describe_attacked(title, audit) for title, audit in summary["attacked"].items()]
    took_part = any(one["delivered"] is not None or one["state"] != _STATES[None] for one in summary["participants"])
    charts = {"calibration": draw_calibration(summary["evaluation"])}
    return {**summary, "scores": scores, "attacked": attacked, "took_part": took_part, "charts": charts}


def _describe_attacked(title: str, audit: Mapping[str, Any]) -> dict[str, Any]:
    result = read_plain_audit(audit)
    if not result.row_points:  # a self-attack: sums alone, of a quorum that is not the study's
        sums = (describe_sums(result) or {}) | {"scope": None}
        return {"title": title, "sums": sums, "percent": True, "rows": None, "compared": []}
    described = describe_audit(result)
    return {
        "title": title,
        "sums": describe_sums(result),
        "percent": described["percent"],
        "rows": described,
        "compared": compare_ways(result),
    }


def compare_ways(result: AuditResult) -> list[dict[str, Any]]:
    """Every way that an audit simulated, from training alone to pooling: its score, and what an attacker gets of it."""
    nothing = "nothing leaves"
    found = [_way("alone", result.references.local_only, "nothing", nothing)]
    alone = next((one.alone for one in result.totals if one.alone is not None), None)
    if alone is not None:
        found.append(_way("alone, with the features of the sums", alone, "nothing", nothing))
    for one in result.totals:
        auc, told = one.worst(), one.worst("membership_at_1_percent")
        attacker = "no attack could be run"
        if auc is not None and told is not None:
            rate = f"{told[1].value:.1%} of members at {state_alarms(told[1])}"
            attacker = f"who is in it: AUC {auc[1].value:.2f} (0.5 is chance), {rate}"
        promised = one.point.promise
        promise = "nothing" if promised is None else f"ε = {promised[0]:g}, δ = {promised[1]:g} a row"
        found.append(_way(one.title, one.deployed, attacker, promise))
    for point in result.row_points:
        worst, linked = point.worst(), point.worst("linkage")
        attacker = "no attack could be run"
        if worst is not None:
            attacker = f"rows, with an error of {worst[1].value:.2f} (0 is exact)"
            attacker += "" if linked is None else f"; {linked[1].value:.0%} of them told from nine look-alikes"
        found.append(_way(f"{point.title}: rows uploaded", point.deployed, attacker, "nothing"))
    return [*found, _way("pooled raw", result.references.pooled_raw, "every row", "nothing")]


def _way(name: str, score: Score | None, attacker: str, promise: str) -> dict[str, Any]:
    return {"way": name, "score": describe_score(score), "attacker": attacker, "promise": promise}


def list_attention(records: Records) -> list[str]:
    """What to look at before signing."""
    closing, training = records.get("closing", {}), records.get("training", {})
    found = [f"{name} was left out: {reason}." for name, reason in (closing.get("left_out") or {}).items()]
    found += [f"The combiner {name} contradicted the others." for name in closing.get("doubted") or ()]
    found += [f"The share of {name} did not fit the others'." for name in training.get("wrong") or ()]
    found += [str(remark) for remark in training.get("remarks") or ()]
    if training and not training.get("checked", True):
        found.append("There was no share to spare: had a combiner answered wrongly, nobody could tell.")
    if closing and not closing.get("confirmed_by"):
        found.append("Combiners did not confirm the bundles before the list was closed.")
    return found + state_attention(limits_not_kept(records))
