"""A participant's result as it travels: its alignment map, signed by the analyst, and the model that the map names."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import read_bounded
from mooring.errors import InputError, RefusedError
from mooring.geometry.rigid import RigidMap
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.model import MOST_MODEL_BYTES, Model
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    Fields,
    SignedFile,
    Tensors,
    TensorSpec,
    read_signed,
    write_signed,
)
from mooring.protocol.messages.study import Study
from mooring.tables.schema import can_be_shown
from mooring.typing import Vector

if TYPE_CHECKING:
    from mooring.audit import LeakageLimit

MAP_FILE, SUM_FILE, MODEL_FILE = "map.safetensors", "result.safetensors", "model.onnx"
KIND, SUM_KIND = "map", "sum result"
FIELDS, SUM_FIELDS = ("study", "participant", "key", "bundle", "model"), ("study", "list", "model")
RELEASE_FIELDS = ("risk", "override")
_LARGEST = 1e6
_MOST_WORDS = 500
_ASK_AGAIN = "Ask the analyst for your result again."


def find_model_limit(study: Study) -> LeakageLimit:
    """What a study allows to be told of the rows behind its model."""
    from mooring.audit import LeakageLimit  # loads the audit, which a study without limits does not need

    return LeakageLimit.parse(study.model_limit)


def guaranteed_risk(study: Study) -> float:
    """What the noise of secure sums allows to be told at the limit's false-positive rate; 1 without noise or limit."""
    from mooring.metrics.membership import FALSE_POSITIVE_RATES

    settings = study.sum_scheme.settings
    if settings.epsilon is None or not study.model_limit:
        return 1.0
    rate = FALSE_POSITIVE_RATES[find_model_limit(study).measure]
    return min(1.0, math.exp(settings.epsilon) * rate + settings.delta)


def require_reasoned(override: str) -> None:
    """Refuse an override that does not say who decides and why."""
    if override and not is_reasoned(override):
        expected = f"NAME: REASON, of at most {_MOST_WORDS} printable signs"
        raise InputError("--override", expected=expected, got=repr(override)[:80], cure="Say who decides, and why.")


def is_reasoned(override: str) -> bool:
    """Whether an override says who decides and why, in words that can be shown."""
    who, _, why = override.partition(":")
    return bool(who.strip() and why.strip()) and len(override) <= _MOST_WORDS and can_be_shown(override)


@dataclass(frozen=True)
class Release:
    """What may be told of the rows behind a model, where the study limits it."""

    risk: float
    """The share of rows, at the false-positive rate of the limit: measured, at the worse end of its interval, or guaranteed
    by the noise of secure sums; 1 where neither can be had."""
    override: str = ""
    """Who delivers a model above the limit, and why; empty within the limit."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], study: Study) -> Release | None:
        """Read what the analyst signed; None where the study has no limit."""
        if not study.model_limit:
            return None
        try:
            found = cls(float(fields["risk"]), str(fields["override"]))
        except ValueError:
            raise _refuse("the result", "its risk is no number") from None
        if not 0 <= found.risk <= 1:
            raise _refuse("the result", "its risk is no share")
        if study.sums is not None:  # the study alone determines it
            found = replace(found, risk=guaranteed_risk(study))
        if found.override and not is_reasoned(found.override):
            raise _refuse("the result", "its override does not say who decided and why")
        if found.risk > find_model_limit(study).bound and not found.override:
            raise _refuse("the result", "the model's risk is above the limit of the study")
        return found

    def __str__(self) -> str:
        overridden = f" The study's limit was overridden by {self.override}." if self.override else ""
        return f"Of the rows behind the model up to {self.risk:.1%} may be told.{overridden}"

    def as_fields(self) -> dict[str, str | int]:
        """As the analyst signs it."""
        return {"risk": f"{self.risk:.6f}", "override": self.override}

    @staticmethod
    def as_record(release: Release | None) -> dict[str, Any]:
        """As records keep it; without a limit, no risk."""
        return (
            {"risk": None, "override": ""} if release is None else {"risk": release.risk, "override": release.override}
        )


@dataclass(frozen=True, eq=False)
class Result:
    """A participant's result, checked."""

    member: Member
    """Whose it is."""
    bundle_digest: str
    """The bundle that the analyst aligned; it must be the participant's own."""
    mean: Vector
    """Of shape (h,): the mean row of the participant's anchor representation; it must be the participant's own."""
    origin: Vector
    """Of shape (h,)."""
    alignment_map: RigidMap
    """T ↦ (T − mean) R + origin."""
    model: Model | None
    model_digest: str
    release: Release | None = None

    @property
    def orthogonal(self) -> npt.NDArray[np.float64]:
        """R."""
        return np.asarray(self.alignment_map.orthogonal)

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Bring the participant's transformed rows into the common space."""
        return np.asarray(self.alignment_map.apply(rows))


def result_file(study: Study) -> str:
    """The name of what the analyst signs of a result: a map or, of secure sums, which model came of which list."""
    return MAP_FILE if study.sums is None else SUM_FILE


def bound_result_files(study: Study) -> dict[str, int]:
    """The most bytes that each file of a result can have."""
    arrays = 0 if study.sums is not None else 8 * study.n_components * (study.n_components + 2)
    return {result_file(study): arrays + MOST_HEADER_BYTES + 8, MODEL_FILE: MOST_MODEL_BYTES}


def write_result(
    path: Path,
    study: Study,
    fields: Mapping[str, str],
    *,
    signer: SigningKey,
    arrays: Mapping[str, npt.NDArray[np.float64]] | None = None,
    release: Release | None = None,
) -> None:
    """Write what the analyst signs of a result: a participant's map or, the same for all, the word for a model of sums.

    Parameters
    ----------
    fields : mapping
        `FIELDS` or, of secure sums, `SUM_FIELDS`, without the study; the model is empty where there is none.
    signer : SigningKey
        The analyst's.
    arrays : mapping, optional
        Of a map: "orthogonal" of shape (h, h), "mean" and "origin" of shape (h,), in this order.
    release : Release, optional
        Where the study limits it.
    """
    signed: Fields = {"study": study.digest, **fields, **({} if release is None else release.as_fields())}
    write_signed(path, kind=KIND if study.sums is None else SUM_KIND, fields=signed, arrays=arrays or {}, signer=signer)


def read_sum_result(folder: str | Path, study: Study, *, answered: str | None = None) -> tuple[Model, Release | None]:
    """Read the delivered model of a study of secure sums, or refuse it with a reason.

    Parameters
    ----------
    folder : path
        With result.safetensors and model.onnx.
    answered : str, optional
        Digest of the closing list that the reader answered as a combiner; the model must be of that list.
    """
    found = _read_signed(Path(folder), study, {})
    if answered is not None and found.fields["list"] != answered:
        raise _refuse("the result", "it is of another closing list than the one that was answered here")
    model = _read_model(Path(folder) / MODEL_FILE, study, str(found.fields["model"]))
    return model, Release.from_fields(found.fields, study)


def read_result(folder: str | Path, study: Study, member: Member) -> Result:
    """Read a delivered result, or refuse it with a reason.

    Parameters
    ----------
    folder : path
        With map.safetensors, and model.onnx where there is a model.
    member : Member
        The participant who reads.

    Notes
    -----
    The caller must still compare `mean` and `bundle_digest` with its own: only the participant knows them.
    """
    folder, h = Path(folder), study.n_components
    tensors = {"orthogonal": TensorSpec("F64", (h, h))}
    tensors |= {name: TensorSpec("F64", (h,)) for name in ("mean", "origin")}
    found = _read_signed(folder, study, tensors)
    if (found.fields["participant"], found.fields["key"]) != (member.name, member.signing_key):
        raise _refuse("the map", "it is another participant's")
    R, mean, origin = (found.arrays[name] for name in tensors)
    if max(float(np.abs(array).max()) for array in found.arrays.values()) > _LARGEST:
        raise _refuse("the map", "it moves rows further than any map of mooring's")
    try:
        alignment_map = RigidMap.from_centre(R, mean, origin)
    except InputError:
        raise _refuse("the map", "it is not orthogonal, and would distort rows") from None
    digest = str(found.fields["model"])
    model = _read_model(folder / MODEL_FILE, study, digest) if digest else None
    release = Release.from_fields(found.fields, study) if model else None
    return Result(member, str(found.fields["bundle"]), mean, origin, alignment_map, model, digest, release)


def _read_signed(folder: Path, study: Study, tensors: Tensors) -> SignedFile:
    """What the analyst signed, of this study, with these arrays; where the study has a limit, also the model's risk."""
    kind, fields, what = (KIND, FIELDS, "the map") if study.sums is None else (SUM_KIND, SUM_FIELDS, "the result")
    path, more = folder / result_file(study), RELEASE_FIELDS if study.model_limit else ()
    found = read_signed(
        path, kind=kind, signed_by={study.analysts_key}, fields=(*fields, *more), tensors=lambda _: tensors
    )
    study.require_same(found.fields, what=what)
    return found


def _read_model(path: Path, study: Study, digest: str) -> Model:
    data = read_bounded(path, MOST_MODEL_BYTES, what="the model")
    if hashlib.sha256(data).hexdigest() != digest:
        raise _refuse("the model", "it is not the one that the analyst signed for")
    if study.label.kind == "none":
        raise _refuse("the model", "the study has no label to predict")
    return Model.load(data, n_components=study.n_components, kind=study.label.kind, n_classes=len(study.label.classes))


def _refuse(what: str, reason: str) -> RefusedError:
    return RefusedError(what, reason=reason, cure=_ASK_AGAIN)
