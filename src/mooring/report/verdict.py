"""The verdict, in words: what joining gives, and what the strongest attack recovers. What was not measured is said too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mooring.attacks import REGISTRY
from mooring.audit import AuditResult, PointResult
from mooring.learners import Score
from mooring.report.numbers import beside_levels, score_from

NOT_MEASURED = (
    "What an upload gives away was not measured here. Nothing on this page may be read as safety. 'mooring check' attacks a "
    "participant's own rows before they leave; 'mooring audit' attacks rows like them, and '--audit' brings its result here."
)
_NO_SCORE = (
    "What joining gives was not measured here: 'mooring train' (analyst) or 'mooring predict' on labelled rows "
    "(participant) measures it."
)


def verdict(
    records: Mapping[str, Mapping[str, Any]],
    audits: Sequence[Mapping[str, Any]],
    scores: Sequence[Mapping[str, Any]],
    *,
    noisy: bool,
) -> dict[str, Any]:
    """Sentences to read first, and whether joining is shown to pay by what was measured on the study itself."""
    joining, paying = _joining(records, noisy=noisy)
    for audit in audits:
        result = AuditResult.from_json(json.dumps(audit["plain"]))
        if audit["source"] == "audit" and result.references.local_only is not None:
            joining.append(f"In the audit's simulation: {result.joining()}")
            alone = result.references.local_only.value
            paying.append(any(one.deployed is not None and one.deployed.low > alone for one in result.points))
    known = {entry["group"] for entry in scores if entry["score"]}
    if joining and "pooled raw" not in known:
        joining.append("What pooling all raw rows would score is not known to this role.")
    leakage = [sentence for audit in audits for sentence in _leakage(audit)]
    return {
        "joining": joining or [_NO_SCORE],
        "joining_measured": bool(joining),
        "joining_shown_to_pay": bool(paying) and all(paying),
        "leakage": leakage or [NOT_MEASURED],
        "leakage_measured": bool(leakage),
        "attention": _attention(records),
    }


def _joining(records: Mapping[str, Mapping[str, Any]], *, noisy: bool) -> tuple[list[str], list[bool]]:
    words: list[str] = []
    paying: list[bool] = []
    training, predict, check = (records.get(name, {}) for name in ("training", "predict", "check"))
    joint = score_from(training.get("score"))
    if joint is not None:
        alone = [
            score for entry in training.get("alone") or () if (score := score_from(entry.get("score"))) is not None
        ]
        said = f"The joint model scores {_bounded(joint)} {joint.metric} on uploads that it did not see"
        said += ", whose rows carry the study's noise (new rows are scored without it)" if noisy else ""
        if alone:
            mean = sum(score.value for score in alone) / len(alone)
            compared = f"{said}; models on one upload alone score {joint.written(mean)} on average over {len(alone)}. "
            if noisy:  # those alone would not train on noisy rows
                words.append(
                    f"{compared}Both are of noisy rows, so they do not tell whether joining pays: 'mooring predict "
                    "--beside' does, at each participant."
                )
            else:
                beats = joint.low > mean
                paying.append(beats)
                words.append(f"{compared}Joining is {'' if beats else 'not '}shown to beat that.")
        else:
            words.append(
                f"{said}. What participants score alone was not measured, so whether joining pays is not shown."
            )
    new = score_from(predict.get("score"))
    if new is not None:
        local = score_from(predict.get("local_only"))
        rows = predict.get("rows", "its")
        said = f"On {rows} new rows of this participant the joint model scores {_bounded(new)} {new.metric}"
        if local is None:
            words.append(f"{said}; its own model was not measured on them.")
        else:
            beats = new.low > local.value
            paying.append(beats)
            words.append(
                f"{said}, its own model alone {_bounded(local)}. Joining is {'' if beats else 'not '}shown to beat that."
            )
    own = score_from(check.get("local_only"))
    if own is not None and new is None:
        words.append(f"Local only: this participant's own model on its own rows scores {_bounded(own)} {own.metric}.")
    return words, paying


def _bounded(score: Score) -> str:
    return score.with_interval() if score.low == score.low else f"{score} (no interval)"


def _leakage(audit: Mapping[str, Any]) -> list[str]:
    result = AuditResult.from_json(json.dumps(audit["plain"]))
    title = str(audit["title"])[:1].upper() + str(audit["title"])[1:]
    if not result.trustworthy:
        return [f"{title}: {result.headline()}", *result.warnings]
    own = None if audit["point"] is None else result.points[audit["point"]["index"]]
    words = []
    if own is not None:
        words.append(f"{title}, at this study's settings: {strongest_in_words(own)}{_in_part(result)}")
        if len(result.points) > 1:
            words.append(f"{title}, over all {len(result.points)} settings tried: {result.headline()}")
    else:
        worst = min(result.points, key=lambda one: (one.worst() or ("", None))[1].value)  # type: ignore[union-attr]
        words.append(f"{title}, at worst ({worst.point.title}): {strongest_in_words(worst)}{_in_part(result)}")
        words.append(
            f"{title} has no point that is known to have this study's settings: its figures are of other settings, and "
            "say what to expect, not what happened."
        )
    if isinstance(audit["plain"].get("verdict"), str):
        words.append(f"The plan's verdict: {audit['plain']['verdict']}")
    return words


def _in_part(result: AuditResult) -> str:
    asked = result.description.get("attacks")
    if asked is None or len(asked) >= len(REGISTRY):
        return ""
    return f" Only {len(asked)} of {len(REGISTRY)} attacks were asked for, so this is not the strongest there is."


def strongest_in_words(one: PointResult) -> str:
    """What the strongest attack recovers at a point: its name, interval, chance and control; a lower bound."""
    worst, linked = one.worst(), one.worst("linkage")
    if worst is None:
        return "no attack could be run, so nothing here may be read as safety."
    words = (
        f"the strongest attack, '{worst[0]}', rebuilds rows to an error of {beside_levels(worst[1])}, where 0 is exact "
        "recovery and 1 the rows' spread"
    )
    if linked is not None:
        words += f"; '{linked[0]}' tells a row from nine look-alikes in {beside_levels(linked[1])} of cases"
    return f"{words}. A lower bound on leakage: a better attack may exist."


def _attention(records: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What a signer must not overlook, whatever the scores."""
    found = []
    aside = records.get("intake", {}).get("set_aside") or ()
    missing = records.get("intake", {}).get("missing") or ()
    alignment = records.get("alignment", {})
    flagged = [entry["name"] for entry in alignment.get("participants") or () if entry.get("flagged")]
    if aside:
        found.append(_counted(len(aside), "upload was set aside", "uploads were set aside"))
    if missing:
        found.append(_counted(len(missing), "participant sent no valid upload", "participants sent no valid upload"))
    if flagged:
        found.append(f"Does not fit the others' anchor: {', '.join(flagged)}.")
    if alignment and alignment.get("converged") is False:
        found.append("The alignment did not converge.")
    if records.get("check", {}).get("hazards"):
        found.append(
            _counted(
                len(records["check"]["hazards"]),
                "hazard was found in this participant's rows",
                "hazards were found in this participant's rows",
            )
        )
    return found


def _counted(n: int, one: str, several: str) -> str:
    return f"{n} {one if n == 1 else several}."
