"""A participant's result as it travels: the model and, unless sums were shared, its alignment map; both signed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, RefusedError
from mooring.geometry.rigid import RigidMap
from mooring.learners.models import Model
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.model import MODEL_FILE, MOST_MODEL_BYTES, SignedModel, read_signed_model, sign_model
from mooring.protocol.messages.signed_file import (
    MOST_HEADER_BYTES,
    TensorSpec,
    read_signed,
    write_signed,
)
from mooring.protocol.messages.study import Study
from mooring.tables.schema import can_be_shown
from mooring.typing import Vector

if TYPE_CHECKING:
    from mooring.audit import LeakageLimit

MAP_FILE = "map.safetensors"
KIND = "map"
FIELDS = ("study", "participant", "key", "bundle", "model")
_MODEL_FIELDS, _RELEASE_FIELDS = ("study", "source"), ("risk", "override")
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
class DeliveredModel:
    """A model that the analyst signed, checked."""

    model: Model
    source: str
    """Digest of what it was trained on: the space of an alignment, or the closing list of secure sums."""
    digest: str
    """SHA-256 of its file."""
    release: Release | None = None


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
    delivered: DeliveredModel | None
    """The model, where there is one."""

    @property
    def orthogonal(self) -> npt.NDArray[np.float64]:
        """R."""
        return np.asarray(self.alignment_map.orthogonal)

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Bring the participant's transformed rows into the common space."""
        return np.asarray(self.alignment_map.apply(rows))


def result_file(study: Study) -> str:
    """The name of the file that every result of a study has: the map or, of secure sums, the model."""
    return MAP_FILE if study.sums is None else MODEL_FILE


def bound_result_files(study: Study) -> dict[str, int]:
    """The most bytes that each file of a result can have, in the order in which they are sent."""
    if study.sums is not None:
        return {MODEL_FILE: MOST_MODEL_BYTES}
    arrays = 8 * study.n_components * (study.n_components + 2)
    return {MODEL_FILE: MOST_MODEL_BYTES, MAP_FILE: arrays + MOST_HEADER_BYTES + 8}


def write_map(
    path: Path,
    study: Study,
    fields: Mapping[str, str],
    arrays: Mapping[str, npt.NDArray[np.float64]],
    signer: SigningKey,
) -> None:
    """Write a participant's map, signed by the analyst.

    Parameters
    ----------
    fields : mapping
        `FIELDS` without the study; the model is its file's digest, or empty where there is none.
    arrays : mapping
        "orthogonal" of shape (h, h), "mean" and "origin" of shape (h,), in this order.
    """
    write_signed(path, kind=KIND, fields={"study": study.digest, **fields}, arrays=arrays, signer=signer)


def write_delivered_model(
    path: Path, study: Study, model: Model, source: str, signer: SigningKey, release: Release | None = None
) -> str:
    """Write a model, signed by the analyst, and return the SHA-256 of its file.

    Parameters
    ----------
    source : str
        Digest of what it was trained on.
    release : Release, optional
        Where the study limits what a model may tell.
    """
    fields = {"study": study.digest, "source": source, **({} if release is None else release.as_fields())}
    return sign_model(path, model, fields, signer)


def read_delivered_model(folder: str | Path, study: Study, *, source: str | None = None) -> DeliveredModel:
    """Read the model in a result, or refuse it with a reason.

    Parameters
    ----------
    folder : path
        With model.safetensors.
    source : str, optional
        Digest of what it must have been trained on: for a combiner, the closing list that it answered.
    """
    fields = (*_MODEL_FIELDS, *(_RELEASE_FIELDS if study.model_limit else ()))
    found: SignedModel = read_signed_model(Path(folder) / MODEL_FILE, study, fields=fields)
    if source is not None and found.fields["source"] != source:
        raise _refuse("the model", "it is of another closing list than the one that was answered here")
    return DeliveredModel(
        found.model, str(found.fields["source"]), found.digest, Release.from_fields(found.fields, study)
    )


def read_result(folder: str | Path, study: Study, member: Member) -> Result:
    """Read a delivered result with a map, or refuse it with a reason.

    Parameters
    ----------
    folder : path
        With map.safetensors, and model.safetensors where there is a model.
    member : Member
        The participant who reads.

    Notes
    -----
    The caller must still compare `mean` and `bundle_digest` with its own: only the participant knows them.
    """
    folder, h = Path(folder), study.n_components
    tensors = {"orthogonal": TensorSpec("F64", (h, h))}
    tensors |= {name: TensorSpec("F64", (h,)) for name in ("mean", "origin")}
    found = read_signed(
        folder / MAP_FILE, kind=KIND, signed_by={study.analysts_key}, fields=FIELDS, tensors=lambda _: tensors
    )
    study.require_same(found.fields, what="the map")
    if (found.fields["participant"], found.fields["key"]) != (member.name, member.signing_key):
        raise _refuse("the map", "it is another participant's")
    R, mean, origin = (found.arrays[name] for name in tensors)
    if max(float(np.abs(array).max()) for array in found.arrays.values()) > _LARGEST:
        raise _refuse("the map", "it moves rows further than any map of mooring's")
    try:
        alignment_map = RigidMap.from_centre(R, mean, origin)
    except InputError:
        raise _refuse("the map", "it is not orthogonal, and would distort rows") from None
    delivered = read_delivered_model(folder, study) if found.fields["model"] != "" else None
    if delivered is not None and delivered.digest != found.fields["model"]:
        raise _refuse("the model", "it is not the one that the map is for")
    return Result(member, str(found.fields["bundle"]), mean, origin, alignment_map, delivered)


def _refuse(what: str, reason: str) -> RefusedError:
    return RefusedError(what, reason=reason, cure=_ASK_AGAIN)
