"""The records that each command leaves for the report: read, bounded and checked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from mooring import AuditResult
from mooring.audit.hazards import state_exposure
from mooring.errors import InputError, StorageError
from mooring.report.audit_page import describe_rows, describe_sums, state_setting
from mooring.report.charts import describe_images, draw_audit
from mooring.report.numbers import describe_evaluation

_MOST_BYTES = 64 * 2**20
_NO_AUDIT = "something that cannot be an audit's result"
_NUMBER = (int, float, type(None))
_WORD = (str, type(None))
_FLAG = (bool, type(None))
_SCORE = {"metric": str, "value": _NUMBER, "low": _NUMBER, "high": _NUMBER, "n": int}
_GAIN = {**_SCORE, "n_needed": _NUMBER}
_NAMED_SCORE = {"name": str, "score": _SCORE}
_COEFFICIENT = ("value", "standard_error", "noise_error")
_ESTIMATE = {"value": _NUMBER, "low": _NUMBER, "high": _NUMBER}
_MODEL = {
    "confusion": [[int]],
    **dict.fromkeys(("auc", "sensitivity", "specificity"), _ESTIMATE),
    "calibration": [{"predicted": _NUMBER, "observed": _NUMBER, "low": _NUMBER, "high": _NUMBER, "n": int}],
}
_ALIGNED = {"name": str, "rows": int, "fit": _NUMBER, "flagged": _FLAG, "late": _FLAG}

RECORDS: Mapping[str, tuple[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "intake": (
            "mooring align",
            {
                "accepted": [{"name": str, "rows": int, "digest": str}],
                "set_aside": [{"file": str, "reason": str}],
                "missing": [str],
            },
        ),
        "alignment": (
            "mooring align",
            {
                "participants": [_ALIGNED],
                "set_aside": [_ALIGNED],
                "iterations": _NUMBER,
                "termination": _WORD,
                "converged": _FLAG,
                "residual": _NUMBER,
                "misfit": _NUMBER,
                "certificate": {"certified": bool, "words": str},
                "anchor_noise_scale": _NUMBER,
                "transition_scale": _NUMBER,
                "note": _WORD,
            },
        ),
        "closing": (
            "mooring align",
            {"participants": [str], "left_out": {}, "doubted": [str], "confirmed_by": [str], "list": _WORD},
        ),
        "training": (
            "mooring train",
            {
                "contributors": [str],
                "wrong": [str],
                "remarks": [str],
                "checked": _FLAG,
                "epsilon": _NUMBER,
                "coefficients": [{"name": str, "per": str, **dict.fromkeys(_COEFFICIENT, _NUMBER)}],
                "learner": _WORD,
                "kind": _WORD,
                "score": _SCORE,
                "participants": [_NAMED_SCORE],
                "alone": [_NAMED_SCORE],
                "gain": _GAIN,
                "left_out": [_NAMED_SCORE],
                "rows": int,
            },
        ),
        "delivery": (
            "mooring deliver",
            {"delivered": [str], "model_digest": _WORD, "risk": _NUMBER, "override": _WORD},
        ),
        "check": (
            "mooring check",
            {
                "rows": int,
                "hazards": [str],
                "warnings": [str],
                "local_only": _SCORE,
                "noise": {"data_noise_scale": _NUMBER, "rms": _NUMBER, "level": _NUMBER, "anchor_noise_scale": _NUMBER},
                "self_attack": {},
                "class_counts": {},
                "verdict": _WORD,
                "exceeded": [str],
                "refused": [str],
                "rows_digest": _WORD,
            },
        ),
        "share": (
            "mooring share",
            {"rows": int, "bundle_digest": str, "reissued": _FLAG, "epsilon": _NUMBER, "epsilon_in_all": _NUMBER}
            | {"rows_digest": _WORD, "override": _WORD, "exceeded": [str]},
        ),
        "predict": (
            "mooring predict",
            {
                "rows": int,
                "score": _SCORE,
                "local_only": _SCORE,
                "gain": _GAIN,
                "risk": _NUMBER,
                "override": _WORD,
                "shared": int,
                "evaluation": {"classes": [str], "threshold": _NUMBER, "joint": _MODEL, "alone": _MODEL},
                "adjustment": dict.fromkeys(("rows", "left_out", "radius", "coverage"), _NUMBER) | {"checked": _FLAG},
                "importance": {"metric": _WORD, "columns": [{"name": str, "drop": float, "deviation": float}]},
            },
        ),
    }
)
"""Every record by name: the command that writes it, and what it holds. Any part may be absent."""


def collect_records(folder: Path, *, examples: bool = True) -> dict[str, dict[str, Any]]:
    """Read whichever records lie in a role's folder, by name; a folder without any gives an empty dict.

    Records that are absent are left out; one that is damaged is an error, since leaving it out would hide something. Without
    `examples`, no row of a self-attack is kept. Once rows are shared, a check of others is left out, and `share` says so.
    """
    if not folder.is_dir():
        raise StorageError(
            "the folder of the records",
            reason="there is none at that place",
            cure="Give the analyst's work folder, or a participant's vault.",
        )
    found = {}
    for name, (command, shape) in RECORDS.items():
        path = folder / f"{name}.json"
        if path.exists():
            record = read_json(path, f"the record {name}.json", f"Run '{command}' again.")
            wrong = _misfit(record, {"command": _WORD, **shape}, "")
            if wrong is not None:
                raise _damaged(f"the record {name}.json", wrong, f"Run '{command}' again.")
            found[name] = record
    with _refusing("the record predict.json", "no evaluation of a model", "Run 'mooring predict' again."):
        describe_evaluation(found.get("predict", {}))
    check, what, cure = found.get("check", {}), "the self-attack", "Run 'mooring check' again."
    if attack := check.get("self_attack"):
        _require_audit(attack, what, cure)
        check["self_attack"] = attack if examples else _without_examples(attack)
    share = found.get("share", check)
    if check and share.get("rows_digest") != check.get("rows_digest"):
        found.pop("check")
        share["checked_other_rows"] = True
    return found


def read_json(path: Path, what: str, cure: str) -> dict[str, Any]:
    """Read one JSON object, of bounded size and with finite numbers only.

    Parameters
    ----------
    what, cure : str
        In the error.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as problem:
        raise StorageError(what, reason=problem.strerror or "it cannot be read", cure="Check the path.") from None
    if len(text) > _MOST_BYTES:
        raise _damaged(what, f"more than {_MOST_BYTES // 2**20} MiB", cure)
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise _damaged(what, "something that is not JSON", cure) from None
    if not isinstance(plain, dict):
        raise _damaged(what, "JSON of another kind", cure)
    return plain


def read_audit(path: Path, *, examples: bool = True) -> dict[str, Any]:
    """Read what `mooring audit` or `mooring plan` wrote: the audit in plain values, with the plan's verdict if any."""
    what, cure = "the audit", "Give the audit.json or plan.json that 'mooring audit' or 'mooring plan' wrote."
    plain = read_json(path, what, cure)
    planned = isinstance(plain.get("audit"), dict)
    audit = dict(plain["audit"]) if planned else plain
    if planned and isinstance(plain.get("verdict"), str):
        audit["verdict"] = plain["verdict"]
    _require_audit(audit, what, cure)
    return audit if examples else _without_examples(audit)


def read_plan_method(path: Path) -> dict[str, Any]:
    """Read the method that `mooring plan` recommends, as the settings of a draft: name, sizes, noise, projection."""
    what, cure = "the plan", "Give the plan.json that 'mooring plan --study' wrote."
    plain = read_json(path, what, cure)
    method = plain.get("method")
    if "audit" in plain and "verdict" in plain and method is None:
        raise InputError(
            what, expected="one that recommends a setting", got="one that recommends none", cure=str(plain["verdict"])
        )
    if isinstance(method, dict) and method.get("name") == "secure-sum":
        from mooring.mechanisms.sums.settings import settings_from

        numbers = {"epsilon": _NUMBER, "delta": _NUMBER, "colluders": int, "product_share": _NUMBER}
        if (wrong := _misfit(method, numbers, "method")) is not None or not set(numbers) <= set(method):
            raise _damaged(what, wrong or "a method that is not complete", cure)
        return {"method": method["name"], "sums": settings_from({name: method[name] for name in numbers})}
    shape = {
        "name": str,
        "components": int,
        "anchor_rows": int,
        "data_noise_scale": _NUMBER,
        "anchor_noise_scale": _NUMBER,
    }
    wrong = "no method" if method is None else _misfit(method, {**shape, "projection": str}, "method")
    needed = ("name", "anchor_rows", "anchor_noise_scale", "projection")
    if wrong is None and any(method.get(name) is None for name in needed):  # type: ignore[union-attr]
        wrong = "a method that is not complete"
    if wrong is not None:
        raise _damaged(what, wrong, cure)
    assert method is not None
    if method.get("data_noise_scale") is None:
        raise InputError(
            what,
            expected="one whose rows a study encoded, so that noise is in a study's unit",
            got="one of rows in another unit",
            cure="Draft the study first, and plan with --study.",
        )
    names = ("components", "anchor_rows", "data_noise_scale", "anchor_noise_scale", "projection")
    return {"method": method["name"], **{name: method[name] for name in names if name in method}}


def _require_audit(plain: dict[str, Any], what: str, cure: str) -> None:
    """Refuse plain values that are no audit which can be drawn."""
    with _refusing(what, _NO_AUDIT, cure):
        result = read_plain_audit(plain)
        result.headline(), result.joining(), state_setting(result), draw_audit(result), describe_images(result)
        for one in result.points:
            describe_rows(one), state_exposure(one)
        describe_sums(result)
        attacks = (outcome.attack for point in result.points for outcome in point.outcomes)
        if not all(isinstance(text, str) for text in (*result.warnings, *attacks)):
            raise TypeError


def read_plain_audit(plain: Mapping[str, Any]) -> AuditResult:
    """The audit that `read_audit` gave; the verdict of a plan is not part of it."""
    return AuditResult.from_dict({name: value for name, value in plain.items() if name != "verdict"})


@contextmanager
def _refusing(what: str, got: str, cure: str) -> Iterator[None]:
    """Take whatever goes wrong with the values of a file for damage to it."""
    try:
        yield
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise _damaged(what, got, cure) from None


def _without_examples(audit: dict[str, Any]) -> dict[str, Any]:
    """The same audit without any row, original or rebuilt."""
    return audit | {"points": [{**point, "examples": None} for point in audit["points"]]}


def _misfit(value: Any, shape: Any, where: str) -> str | None:
    """Say where a value is not of the shape it should have; None where it is. What is absent or null is no misfit."""
    if value is None:
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"no list at '{where}'"
        return next((bad for entry in value if (bad := _misfit_entry(entry, shape[0], where)) is not None), None)
    if isinstance(shape, Mapping):
        if not isinstance(value, dict):
            return f"no table at '{where}'"
        parts = ((name, value[name]) for name in shape if name in value)
        found = (_misfit(part, shape[name], f"{where}.{name}".lstrip(".")) for name, part in parts)
        return next((bad for bad in found if bad is not None), None)
    kinds = shape if isinstance(shape, tuple) else (shape,)
    fits = isinstance(value, kinds) and (not isinstance(value, bool) or bool in kinds)
    return None if fits else f"another kind of value at '{where}'"


def _misfit_entry(entry: Any, shape: Any, where: str) -> str | None:
    is_named = isinstance(entry, dict) and entry.get("name") is not None
    if entry is None or (isinstance(shape, Mapping) and "name" in shape and not is_named):
        return f"an entry without a name at '{where}'"
    return _misfit(entry, shape, where)


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _damaged(what: str, got: str, cure: str) -> InputError:
    return InputError(what, expected="as the command wrote it", got=got, cure=cure)
