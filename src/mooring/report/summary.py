"""From a study and its records to one plain dict that says everything the report shows."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mooring import METHODS, __version__
from mooring.audit import AuditResult, PointResult, RotationPoint
from mooring.audit.decision import decide_upload, weigh_audit, weigh_total
from mooring.audit.result import state_total
from mooring.report.frame import render_sentence
from mooring.report.governance import describe_scheme
from mooring.report.numbers import describe_evaluation
from mooring.report.records import RECORDS, read_plain_audit
from mooring.report.sum_page import describe_contributors, list_attention, list_promises
from mooring.report.verdict import judge, read_own_result

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

Records = Mapping[str, Mapping[str, Any]]
_ANALYST, _PARTICIPANT = ("intake", "alignment", "closing", "training", "delivery"), ("check", "share", "predict")
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "cryptography", "pyrage")


def summarise(
    study: Study | None, records: Records, audit: Mapping[str, Any] | None = None, *, made: str | None = None
) -> dict[str, Any]:
    """Summarise what a role has, in plain values that JSON can hold.

    Parameters
    ----------
    study : Study or None
        None where it is not at hand: the report then says that its fingerprint is not known.
    records : mapping
        What `collect_records` gave.
    audit : mapping or None
        What `read_audit` gave.
    made : str or None
        When the report was made; now, if None.
    """
    if study is not None and study.sums is not None:
        return _summarise_sums(study, records, audit, made=made)
    audits = _audits(study, records, audit)
    noisy = study is not None and study.data_noise_scale > 0
    scores = _scores(records, audits, noisy=noisy)
    verdict = judge(records, audits, scores, noisy=noisy)
    limits = () if study is None else study.upload_limits
    own = [audit for audit in audits if audit["point"] is not None or audit["source"] == "check"]
    weighed = [weigh_audit(read_own_result(audit), limits) for audit in own]
    if audits and not own:
        weighed = [{"answer": "cannot tell", "reasons": ["the audit is of other settings than the study's"]}]
    return {
        **_frame(records, made),
        "study": None if study is None else _described(study),
        "decision": decide_upload("these rows", weighed, records, verdict["joining"]),
        "verdict": verdict,
        "participants": _participants(study, records),
        "set_aside": list(records.get("intake", {}).get("set_aside") or ()),
        "alignment": _alignment(records),
        "utility": scores,
        "evaluation": describe_evaluation(records.get("predict", {})),
        "own_rows": _own_rows(records, verdict["sentences"]["leakage"]),
        "audits": audits,
    }


def _summarise_sums(
    study: Study, records: Records, audit: Mapping[str, Any] | None, *, made: str | None
) -> dict[str, Any]:
    scores = _scores(records, [], noisy=False)
    verdict = judge(records, [], scores, noisy=False)
    leakage, attention = list_promises(study), list_attention(records)
    sentences = {**verdict["sentences"], "leakage": leakage, "attention": attention}
    own, settings, checked = (
        _own_rows(records, leakage),
        study.sum_scheme.settings,
        records.get("check", {}).get("self_attack"),
    )
    attacked = [read_plain_audit(plain) for plain in (checked, audit) if plain]
    tried = [one for result in attacked for one in result.totals if one.point.promise == settings.promise]
    if not verdict["joining_measured"]:
        told = [f"In the audit's simulation {state_total(one)}" for one in tried if one.gain is not None][:1]
        answers = [{"kind": "simulation", "answer": one.gain.answer} for one in tried if one.gain is not None]
        verdict |= {"joining": answers}
        sentences["joining"] = [*told, render_sentence("verdict.txt.jinja", "not_scored")]
    found: list[PointResult | None] = [*tried] or [None]
    weighed = [weigh_total(one, settings.promise, study.upload_limits) for one in found]
    return {
        **_frame(records, made),
        "study": _described(study),
        "decision": decide_upload("sums over these rows", weighed, records, verdict["joining"]),
        "verdict": verdict | {"sentences": sentences, "leakage_measured": True, "attention": {}},
        "participants": describe_contributors(study, records),
        "training": records.get("training"),
        "utility": scores,
        "evaluation": describe_evaluation(records.get("predict", {})),
        "attacked": {title: found for title, found in (("the self-attack", checked), ("the audit", audit)) if found},
        "own_rows": own and own | {"epsilon_in_all": records.get("share", {}).get("epsilon_in_all")},
    }


def _frame(records: Records, made: str | None) -> dict[str, Any]:
    """What every report says of itself."""
    return {
        "title": "What joining gives, and what it gives away",
        "signed": True,
        "role": _role(records),
        "made": made or f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "commands": [
            {"record": f"{name}.json", "command": str(records[name].get("command") or f"{RECORDS[name][0]} …")}
            for name in RECORDS
            if name in records
        ],
        "versions": _versions(),
    }


def _role(records: Records) -> str:
    analyst, participant = any(name in records for name in _ANALYST), any(name in records for name in _PARTICIPANT)
    if analyst and participant:
        return "analyst and participant (records of both lie in one folder)"
    return "analyst" if analyst else "participant" if participant else "reader of an audit, without records of a study"


def _described(study: Study) -> dict[str, Any]:
    common = {
        "name": study.name,
        "fingerprint": study.fingerprint,
        "digest": study.digest,
        "method": study.method,
        "analyst": None if study.analyst is None else study.analyst.name,
        "columns": len(study.columns),
    }
    if study.sums is not None:
        return common | describe_scheme(study)
    return common | {
        "method_title": METHODS[study.method].title,
        "components": study.n_components,
        "features": study.n_features,
        "anchor_rows": study.n_anchor_rows,
        "data_noise_scale": float(study.data_noise_scale),
        "anchor_noise_scale": float(study.anchor_noise_scale),
        "projection": study.projection,
        "label": study.label.kind,
    }


def _participants(study: Study | None, records: Records) -> list[dict[str, Any]]:
    intake, alignment = records.get("intake", {}), records.get("alignment", {})
    accepted = {entry["name"]: entry for entry in intake.get("accepted") or ()}
    aligned = {entry["name"]: entry for part in ("participants", "set_aside") for entry in alignment.get(part) or ()}
    left_out = {entry["name"] for entry in records.get("training", {}).get("left_out") or ()}
    missing = list(intake.get("missing") or ())
    delivered = None if "delivery" not in records else set(records["delivery"].get("delivered") or ())
    roster = [] if study is None else [member.name for member in study.participants]
    known = "intake" in records or "alignment" in records
    states = dict.fromkeys(missing, "missing") | dict.fromkeys([*accepted, *aligned], "accepted")
    return [
        {
            "name": name,
            "state": states.get(name, "not recorded") if known else "not known",
            "rows": (accepted.get(name) or aligned.get(name) or {}).get("rows"),
            "fit": aligned.get(name, {}).get("fit"),
            "late": bool(aligned.get(name, {}).get("late")),
            "flagged": bool(aligned.get(name, {}).get("flagged")),
            "left_out": name in left_out,
            "delivered": None if delivered is None else name in delivered,
            "digest": accepted.get(name, {}).get("digest"),
        }
        for name in dict.fromkeys([*roster, *accepted, *aligned, *missing])
    ]


def _alignment(records: Records) -> dict[str, Any] | None:
    if "alignment" not in records:
        return None
    plain = dict(records["alignment"])
    v, transition = plain.get("anchor_noise_scale"), plain.get("transition_scale")
    plain["share_of_transition"] = v / transition if v is not None and transition else None
    plain.pop("command", None)
    return plain


def _own_rows(records: Records, said: Sequence[str]) -> dict[str, Any] | None:
    """What is known of a participant's rows; of the verdict, what `said` on the page does not say already."""
    check, share = records.get("check"), records.get("share")
    if check is None and share is None:
        return None
    kept = ("rows", "class_counts", "hazards", "warnings", "noise", "verdict")
    found = {name: (check or {}).get(name) for name in kept}
    for words in said:
        found["verdict"] = (found["verdict"] or "").replace(words, "").strip()
    return found | {
        "checked": check is not None,
        "shared": None if share is None else {name: share.get(name) for name in ("rows", "bundle_digest", "reissued")},
    }


def _scores(records: Records, audits: list[dict[str, Any]], *, noisy: bool) -> list[dict[str, Any]]:
    """Every score that this role knows, each with its source; None where it is undefined."""
    training, predict, check = (records.get(name, {}) for name in ("training", "predict", "check"))
    found: list[dict[str, Any]] = []

    which = "rows, some of them trained on" if predict.get("shared") else "new rows"

    def add(group: str, name: str, source: str, score: Any) -> None:
        found.append({"group": group, "name": name, "source": source, "score": score or None})

    if training.get("score"):
        name = "joint model, noisy uploads" if noisy else "joint model"
        add("joint", name, "mooring train: each participant's upload held out in turn", training["score"])
    for entry in training.get("participants") or ():
        add("joint by participant", entry["name"], "mooring train: this participant held out", entry.get("score"))
    for entry in training.get("alone") or ():
        add("alone", entry["name"], "mooring train: a model on its upload only", entry.get("score"))
    if predict.get("score"):
        add(
            "joint",
            f"joint model, {which}",
            f"mooring predict: {which} of this participant, labelled",
            predict["score"],
        )
    if predict.get("local_only"):
        add("local only", f"my rows alone, {which}", f"mooring predict: the same {which}", predict["local_only"])
    if check.get("local_only"):
        add("local only", "my rows alone, held out", "mooring check: my rows, held out in turn", check["local_only"])
    for audit in audits:
        about, how = f"{audit['title']}, a simulation", "simulated" if audit["source"] == "audit" else "self-attack"
        if audit["point"] is not None and audit["point"]["deployed"]:
            add("joint", f"joint model, {how}", f"{about}: {audit['point']['title']}", audit["point"]["deployed"])
        for name, group in (("local_only", "local only"), ("pooled_raw", "pooled raw")):
            if audit["plain"]["references"].get(name):
                add(group, f"{group}, {how}", about, audit["plain"]["references"][name])
    return found


def _audits(study: Study | None, records: Records, audit: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    given = [("the self-attack", "check", records.get("check", {}).get("self_attack")), ("the audit", "audit", audit)]
    found = []
    for title, source, plain in given:
        if not plain:
            continue
        result = read_plain_audit(plain)
        point = result.points[0] if source == "check" and result.points else _point_of(study, result)
        described = None
        if point is not None:
            deployed = None if point.deployed is None else point.deployed.as_dict()
            described = {"title": point.title, "index": result.points.index(point), "deployed": deployed}
        found.append({"title": title, "source": source, "point": described, "plain": dict(plain)})
    return found


def _point_of(study: Study | None, result: AuditResult) -> PointResult | None:
    """The audited point that has the study's own settings, if there is one."""
    if study is None:
        return None
    sizes = (study.method, study.n_components, study.n_anchor_rows)
    for one in result.points:
        if not isinstance(point := one.point, RotationPoint):
            continue
        noises = (
            (point.anchor_noise_scale, study.anchor_noise_scale),
            (one.data_noise_scale, study.data_noise_scale),
        )
        same = (point.method, point.n_components, point.n_anchor_rows) == sizes
        if same and all(math.isclose(*pair, rel_tol=0.02) for pair in noises):
            return one
    return None


def _versions() -> dict[str, str]:
    found = {"mooring": __version__, "Python": platform.python_version()}
    for name in _LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
