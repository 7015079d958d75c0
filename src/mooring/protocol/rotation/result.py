"""A participant's alignment map, signed by the analyst, and the use of map and model on the participant's rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, RefusedError, StorageError
from mooring.geometry.rigid import RigidMap
from mooring.learners.models import ModelSpec, refuse_model
from mooring.mechanisms.rotation.kernel import map_rows
from mooring.mechanisms.rotation.projection import Projection
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.card import Member
from mooring.protocol.messages.result import DeliveredModel, Release, read_delivered_model, refuse_result
from mooring.protocol.messages.signed_file import MOST_HEADER_BYTES, TensorSpec, read_signed, write_signed
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership
from mooring.protocol.rotation.anchor import Perturbation, open_anchor, used_anchor
from mooring.protocol.rotation.scheme import rotation_of, study_projection
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.tables.schema import Schema
from mooring.typing import Matrix, Vector

if TYPE_CHECKING:
    from mooring.learners.models import Predicted

MAP_FILE = "map.safetensors"
_KIND = "map"
_FIELDS = ("study", "participant", "key", "bundle", "model")
_LARGEST = 1e6
_MEAN_TOLERANCE = 1e-4


@dataclass(frozen=True, eq=False)
class Result:
    """A participant's result, after its checks."""

    member: Member
    """The participant."""
    bundle_digest: str
    """SHA-256 of the bundle that the analyst aligned, which must be the participant's own bundle."""
    mean: Vector
    """Mean row, of shape (h,), of the aligned anchor representation, which must be the participant's own."""
    origin: Vector
    """The row that the mean of every anchor representation is mapped to, of shape (h,)."""
    alignment_map: RigidMap
    """The map of transformed rows T to (T − mean) R + origin."""
    delivered: DeliveredModel | None
    """The model; None if none was trained."""

    @property
    def orthogonal(self) -> npt.NDArray[np.float64]:
        """The matrix R of `alignment_map`."""
        return np.asarray(self.alignment_map.orthogonal)

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Bring the participant's transformed rows into the common space."""
        return np.asarray(self.alignment_map.apply(rows))


def map_tensors(study: Study) -> dict[str, TensorSpec]:
    """Return the type and shape of each array of a map."""
    h = rotation_of(study).n_components
    return {"orthogonal": TensorSpec("F64", (h, h)), "mean": TensorSpec("F64", (h,)), "origin": TensorSpec("F64", (h,))}


def bound_map_bytes(study: Study) -> int:
    """Return the largest possible size of a map in bytes."""
    return sum(spec.n_bytes for spec in map_tensors(study).values()) + MOST_HEADER_BYTES + 8


def specify_model(study: Study, outcome: str = "") -> ModelSpec:
    """Return the inputs (aligned rows) and outputs (the label) of a study's models; refuse any outcome but the label."""
    if study.label.kind == "none":
        raise refuse_model("the study has no label to predict")
    if outcome:
        raise refuse_model("it predicts a column that is not the study's label")
    return ModelSpec(rotation_of(study).n_components, len(study.label.classes) if study.label.kind == "classes" else 0)


def write_map(
    path: Path,
    study: Study,
    fields: Mapping[str, str],
    arrays: Mapping[str, npt.NDArray[np.float64]],
    signer: SigningKey,
) -> None:
    """Write a participant's map, signed by the analyst. The field "model" is the model's digest; empty without a model."""
    write_signed(path, kind=_KIND, fields={"study": study.digest, **fields}, arrays=arrays, signer=signer)


def read_result(folder: str | Path, study: Study, member: Member) -> Result:
    """Read a delivered result with a map, or refuse it with a reason.

    The caller must still compare `mean` and `bundle_digest` with those of the participant's own upload.
    """
    folder, tensors = Path(folder), map_tensors(study)
    path, signers = folder / MAP_FILE, {study.analysts_key}
    signed = read_signed(path, kind=_KIND, signed_by=signers, fields=_FIELDS, tensors=lambda _: tensors)
    study.require_same(signed.fields, what="the map")
    if (signed.fields["participant"], signed.fields["key"]) != (member.name, member.signing_key):
        raise refuse_result("the map", "it is another participant's")
    R, mean, origin = (signed.arrays[name] for name in tensors)
    if max(float(np.abs(array).max()) for array in signed.arrays.values()) > _LARGEST:
        raise refuse_result("the map", "it moves rows further than any map that mooring makes")
    try:
        alignment_map = RigidMap.from_centre(R, mean, origin)
    except InputError:
        raise refuse_result("the map", "it is not orthogonal, and would distort rows") from None
    delivered = (
        read_delivered_model(folder, study, partial(specify_model, study)) if signed.fields["model"] != "" else None
    )
    if delivered is not None and delivered.digest != signed.fields["model"]:
        raise refuse_result("the model", "it is not the one that the map is for")
    return Result(member, str(signed.fields["bundle"]), mean, origin, alignment_map, delivered)


@dataclass(frozen=True, eq=False)
class MappedModel:
    """A delivered model for encoded rows, which are projected and brought into the common space first."""

    result: Result
    perturbation: Perturbation
    projection: Projection
    schema: Schema

    @property
    def release(self) -> Release | None:
        """What an attacker may learn from the model about its training rows; None without a limit or a model."""
        return None if self.result.delivered is None else self.result.delivered.release

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model; empty without one."""
        return "" if self.result.delivered is None else self.result.delivered.digest

    def predict(self, rows: Matrix) -> Predicted:
        """Return predicted values and the model's probabilities, if it has any; no noise is added to the rows."""
        assert self.result.delivered is not None
        mapped = np.asarray(map_rows(self.projection.encode(rows), self.perturbation.map))
        return self.result.delivered.model.predict_with_probabilities(self.result.apply(mapped))


def open_mapped_model(vault: Vault, study: Study, folder: Path) -> MappedModel:
    """Read a participant's own map and, if there is one, the model, or refuse them with a reason."""
    delivered = read_result(folder, study, find_membership(vault, study))
    anchor = used_anchor(vault, study)
    if not anchor.exists():
        raise _not_shared()
    perturbation = Perturbation(study, open_anchor(vault, study, anchor), vault)
    require_own_map(delivered, perturbation, vault)
    return MappedModel(delivered, perturbation, study_projection(study), study.schema)


def require_own_map(delivered: Result, perturbation: Perturbation, vault: Vault) -> None:
    """Refuse a map that is not for this participant's own upload.

    The map must subtract the mean of the participant's own anchor representation. Any other mean would come from a different
    upload, or would shift every row to where the analyst wants it. A vault that records no upload is an error.
    """
    entry = Ledger(vault.folder).entry(perturbation.study.digest)
    if entry is None or entry.bundle is None:  # a backup from before the share cannot tell whose map this is
        raise _not_shared()
    if delivered.bundle_digest != entry.bundle:
        raise RefusedError(
            "the map", reason="it was made from another bundle than yours", cure="Ask the analyst again."
        )
    own_mean = perturbation.anchor_representation().astype(np.float64).mean(axis=0)
    if not np.abs(delivered.mean - own_mean).max() <= _MEAN_TOLERANCE:
        raise RefusedError(
            "the map",
            reason="its mean is not that of your own anchor representation",
            cure="Ask the analyst again.",
        )


def _not_shared() -> StorageError:
    cure = "Run 'mooring share' on the rows that you shared: it writes the same bytes again, and records the upload."
    return StorageError("the vault", reason="it does not know of an upload in this study", cure=cure)
