"""From a study and its records to one plain dict that says everything the report shows."""

from __future__ import annotations

import importlib.metadata
import math
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mooring import METHODS, __version__
from mooring.audit import AuditResult, PointResult
from mooring.report.records import RECORDS, audit_from
from mooring.report.verdict import verdict

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study

Records = Mapping[str, Mapping[str, Any]]
_ANALYST, _PARTICIPANT = ("intake", "alignment", "training", "delivery"), ("check", "share", "predict")
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "plotly", "cryptography", "pyrage", "onnx", "onnxruntime")


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
    audits = _audits(study, records, audit)
    noisy = study is not None and study.data_noise_scale > 0
    scores = _scores(records, audits, noisy=noisy)
    return {
        "title": "What joining gives, and what it gives away",
        "role": _role(records),
        "made": made or f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "study": None if study is None else _described(study),
        "verdict": verdict(records, audits, scores, noisy=noisy),
        "participants": _participants(study, records),
        "set_aside": list(records.get("intake", {}).get("set_aside") or ()),
        "alignment": _alignment(records),
        "utility": scores,
        "own_rows": _own_rows(records),
        "audits": audits,
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
    method = METHODS[study.method]
    return {
        "name": study.name,
        "fingerprint": study.fingerprint,
        "digest": study.digest,
        "method": study.method,
        "components": study.n_components,
        "features": study.n_features,
        "columns": len(study.columns),
        "anchor_rows": study.n_anchor_rows,
        "data_noise_scale": float(study.data_noise_scale),
        "anchor_noise_scale": float(study.anchor_noise_scale),
        "projection": study.projection,
        "label": study.label.kind,
        "analyst": None if study.analyst is None else study.analyst.name,
        "words": _in_words(study, method.title),
    }


def _in_words(study: Study, title: str) -> list[str]:
    """The declared method and its noise, as a reader who is no mathematician needs them."""
    n_columns, m, h = len(study.columns), study.n_features, study.n_components
    kept = (
        "all of them"
        if study.projection == "none"
        else f"{h} mixtures of them by a public {study.projection} projection"
    )
    words = [
        f"{n_columns} declared columns become {m} numbers a row; {kept} are shared.",
        f"Method: {title}. Every participant moves its rows by a secret rigid map of its own and uploads once; an anchor of "
        f"{study.n_anchor_rows} rows, secret from the analyst, lets the uploads be aligned.",
    ]
    if study.data_noise_scale > 0:
        words.append(
            f"Noise on the rows themselves: Gaussian, scale σ = {study.data_noise_scale:.3g} on numbers that lie between −1 "
            "and 1. Its effect is measured by attack, not proved."
        )
    else:
        words.append(
            "No noise on the rows themselves: each upload is an exact rigid image of them. As many rows known from "
            "elsewhere as components plus one give all of it away."
        )
    if study.anchor_noise_scale > 0:
        words.append(
            f"Noise on the anchor: scale v = {study.anchor_noise_scale:.3g}. Anchor noise is no privacy guarantee: the "
            "uploaded rows carry none of it."
        )
    else:
        words.append("No noise on the anchor. (Anchor noise would be no privacy guarantee either.)")
    if study.label.kind != "none":
        words.append("Labels travel as they are: the analyst sees each row's label, by design.")
    return words


def _participants(study: Study | None, records: Records) -> list[dict[str, Any]]:
    intake, alignment = records.get("intake", {}), records.get("alignment", {})
    accepted = {entry["name"]: entry for entry in intake.get("accepted") or ()}
    aligned = {entry["name"]: entry for entry in alignment.get("participants") or ()}
    missing = list(intake.get("missing") or ())
    delivered = None if "delivery" not in records else set(records["delivery"].get("delivered") or ())
    roster = [] if study is None else [member.name for member in study.participants]
    return [
        {
            "name": name,
            "state": _state(name, accepted, aligned, missing, known="intake" in records or "alignment" in records),
            "rows": (accepted.get(name) or aligned.get(name) or {}).get("rows"),
            "fit": aligned.get(name, {}).get("fit"),
            "late": bool(aligned.get(name, {}).get("late")),
            "flagged": bool(aligned.get(name, {}).get("flagged")),
            "delivered": None if delivered is None else name in delivered,
            "digest": accepted.get(name, {}).get("digest"),
        }
        for name in dict.fromkeys([*roster, *accepted, *aligned, *missing])
    ]


def _state(name: str, accepted: Any, aligned: Any, missing: Any, *, known: bool) -> str:
    if not known:
        return "on the roster; what it sent is not known to this role"
    if name in aligned or name in accepted:
        words = "accepted, late" if aligned.get(name, {}).get("late") else "accepted"
        return f"{words}; flagged: does not fit the others' anchor" if aligned.get(name, {}).get("flagged") else words
    return "missing: no valid upload" if name in missing else "on the roster; nothing is recorded of it"


def _alignment(records: Records) -> dict[str, Any] | None:
    if "alignment" not in records:
        return None
    plain = dict(records["alignment"])
    v, transition = plain.get("anchor_noise_scale"), plain.get("transition_scale")
    plain["share_of_transition"] = v / transition if v is not None and transition else None
    plain.pop("command", None)
    return plain


def _own_rows(records: Records) -> dict[str, Any] | None:
    check, share = records.get("check"), records.get("share")
    if check is None and share is None:
        return None
    kept = ("rows", "class_counts", "hazards", "warnings", "noise", "verdict")
    return {name: (check or {}).get(name) for name in kept} | {
        "checked": check is not None,
        "shared": None if share is None else {name: share.get(name) for name in ("rows", "bundle_digest", "reissued")},
    }


def _scores(records: Records, audits: list[dict[str, Any]], *, noisy: bool) -> list[dict[str, Any]]:
    """Every score that this role knows, each with where it comes from; None where it is not known."""
    training, predict, check = (records.get(name, {}) for name in ("training", "predict", "check"))
    found: list[dict[str, Any]] = []

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
            "joint model, my new rows",
            "mooring predict: new labelled rows of this participant",
            predict["score"],
        )
    if predict.get("local_only"):
        add("local only", "local only, my new rows", "mooring predict: the same new rows", predict["local_only"])
    if check.get("local_only"):
        add("local only", "local only, my rows", "mooring check: own rows, held out in turn", check["local_only"])
    for audit in audits:
        about, how = f"{audit['title']}, a simulation", "simulated" if audit["source"] == "audit" else "self-attack"
        if audit["point"] is not None and audit["point"]["deployed"]:
            add("joint", f"joint model, {how}", f"{about}: {audit['point']['title']}", audit["point"]["deployed"])
        for name, group in (("local_only", "local only"), ("pooled_raw", "pooled raw")):
            if audit["plain"]["references"].get(name):
                add(group, f"{group}, {how}", about, audit["plain"]["references"][name])
    for group, how in _HOW_TO_KNOW.items():
        if not any(entry["group"] == group for entry in found):
            add(group, group if group != "joint" else "joint model", how, None)
    return found


_HOW_TO_KNOW = {
    "joint": "not known to this role: 'mooring train' (analyst) and 'mooring predict' on labelled rows (participant) say it",
    "local only": "not known to this role: 'mooring check' (participant) measures it, 'mooring audit' simulates it",
    "pooled raw": "not known to this role: nobody holds everybody's raw rows; 'mooring audit' simulates it",
}


def _audits(study: Study | None, records: Records, audit: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    given = [("the audit", "audit", audit), ("the self-attack", "check", records.get("check", {}).get("self_attack"))]
    found = []
    for title, source, plain in given:
        if not plain:
            continue
        cure = "Give an audit.json or plan.json." if source == "audit" else "Run 'mooring check' again."
        result = audit_from(dict(plain), title, cure)
        point = result.points[0] if source == "check" and result.points else _point_of(study, result)
        described = None
        if point is not None:
            deployed = None if point.deployed is None else point.deployed.as_dict()
            described = {"title": point.point.title, "index": result.points.index(point), "deployed": deployed}
        found.append({"title": title, "source": source, "point": described, "plain": dict(plain)})
    return found


def _point_of(study: Study | None, result: AuditResult) -> PointResult | None:
    """The audited point that has the study's own settings, if there is one."""
    if study is None:
        return None
    for one in result.points:
        same = (one.point.method, one.point.n_components, one.point.n_anchor_rows) == (
            study.method,
            study.n_components,
            study.n_anchor_rows,
        )
        if (
            same
            and math.isclose(one.point.anchor_noise_scale, study.anchor_noise_scale, rel_tol=0.02)
            and math.isclose(one.data_noise_scale, study.data_noise_scale, rel_tol=0.02)
        ):
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
