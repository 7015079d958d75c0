"""The delivered model as a signed file: its arrays, and the disclosure risk that the analyst states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mooring.errors import RefusedError
from mooring.learners.models import Model, Specify
from mooring.metrics.limits import LeakageLimit
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.model import MODEL_FILE, SignedModel, read_signed_model, sign_model
from mooring.protocol.messages.reason import is_reasoned
from mooring.protocol.messages.study import Study
from mooring.serialization import Record

_MODEL_FIELDS, _RELEASE_FIELDS = ("study", "source"), ("risk", "override")
_ASK_AGAIN = "Ask the analyst for your result again."


def find_model_limit(study: Study) -> LeakageLimit:
    """Return the study's limit on what an attacker may learn about the rows behind its model."""
    return LeakageLimit.parse(study.model_limit)


@dataclass(frozen=True)
class Release(Record):
    """What an attacker may learn about the rows behind a model, if the study limits this."""

    risk: float
    """The share of rows that an attacker recognises at the false-positive rate of the limit. It is the upper end of the
    interval of a measurement, or a bound from the noise of secure sums; 1 without either."""
    override: str = ""
    """Who delivers a model above the limit, and why; empty within the limit."""

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any], study: Study, *, risk: float | None = None) -> Release | None:
        """Return the release that the analyst signed; None if the study has no limit. `risk` replaces the signed risk."""
        if not study.model_limit:
            return None
        try:
            release = cls(float(fields["risk"]), str(fields["override"]))
        except (ValueError, OverflowError):
            raise refuse_result("the result", "its risk is not a number") from None
        if not 0 <= release.risk <= 1:
            raise refuse_result("the result", "its risk is not between 0 and 1")
        if risk is not None:
            release = replace(release, risk=risk)
        if release.override and not is_reasoned(release.override):
            raise refuse_result("the result", "its override does not say who decided and why")
        if release.risk > find_model_limit(study).bound and not release.override:
            raise refuse_result("the result", "the model's risk is above the limit of the study")
        return release

    def __str__(self) -> str:
        overridden = f" The study's limit was overridden by {self.override}." if self.override else ""
        return f"An attacker may recognise up to {self.risk:.1%} of the rows behind the model.{overridden}"

    def as_fields(self) -> dict[str, str | int]:
        """Return the fields that the analyst signs."""
        return {"risk": f"{self.risk:.6f}", "override": self.override}


@dataclass(frozen=True, eq=False)
class DeliveredModel:
    """A model whose signature by the analyst was verified."""

    model: Model
    source: str
    """Digest of what the model was trained on: the space of an alignment, or the closing list of secure sums."""
    digest: str
    """SHA-256 of the model's file."""
    release: Release | None = None


def write_delivered_model(
    path: Path, study: Study, model: Model, source: str, signer: SigningKey, release: Release | None = None
) -> str:
    """Write a model, signed by the analyst, and return the SHA-256 of its file.

    `source` is the digest of what the model was trained on. `release` is required if the study limits what the model may
    disclose.
    """
    fields = {"study": study.digest, "source": source, **({} if release is None else release.as_fields())}
    return sign_model(path, model, fields, signer)


def read_delivered_model(
    folder: str | Path, study: Study, specify: Specify, *, source: str | None = None, risk: float | None = None
) -> DeliveredModel:
    """Read the model in a result folder, or refuse it with a reason.

    `source` is the digest of what the model must have been trained on, if known: for a combiner, the closing list that the
    combiner answered. `risk` is the proportion of rows that may be recognised, if the study alone determines it.
    """
    fields = (*_MODEL_FIELDS, *(_RELEASE_FIELDS if study.model_limit else ()))
    signed: SignedModel = read_signed_model(Path(folder) / MODEL_FILE, study, specify, fields=fields)
    if source is not None and signed.fields["source"] != source:
        raise refuse_result("the model", "it was trained on a closing list other than the one that was answered here")
    return DeliveredModel(
        signed.model, str(signed.fields["source"]), signed.digest, Release.from_fields(signed.fields, study, risk=risk)
    )


def refuse_result(what: str, reason: str) -> RefusedError:
    """Return the error for a result that is refused."""
    return RefusedError(what, reason=reason, cure=_ASK_AGAIN)
