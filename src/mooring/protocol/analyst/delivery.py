"""`mooring deliver`, and its other end: each participant's map and the model, signed by the analyst, checked on arrival."""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.atomic_io import make_folder, write_atomically
from mooring.errors import InputError, RefusedError, StorageError
from mooring.geometry.rigid import RigidMap
from mooring.protocol.analyst.alignment_state import CommonSpace, read_space
from mooring.protocol.analyst.training import MODEL_FILE, TRAINING_FILE
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.container import TensorSpec
from mooring.protocol.messages.model import MOST_MODEL_BYTES, Model
from mooring.protocol.messages.signed_file import opened, read_signed, write_signed
from mooring.protocol.messages.study import Member, Study
from mooring.protocol.transport.addresses import is_url, local_path
from mooring.protocol.transport.object_stores import folder_at, send_folder
from mooring.typing import Progress, Vector

DELIVERY_FILE, MAP_FILE = "delivery.json", "map.safetensors"
KIND = "map"
FIELDS = ("study", "participant", "key", "bundle", "model")
_LARGEST = 1e6
_ASK_AGAIN = "Ask the analyst for your result again."


@dataclass(frozen=True)
class Delivery:
    """Who was delivered a result, and of which model (its SHA-256; empty without a model)."""

    delivered: tuple[str, ...]
    model_digest: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"delivered": list(self.delivered), "model_digest": self.model_digest}


@dataclass(frozen=True, eq=False)
class Result:
    """What a participant got back, checked.

    Attributes
    ----------
    member : Member
        Whose it is.
    bundle_digest : str
        The bundle that the analyst aligned; it must be the participant's own.
    mean : array of shape (h,)
        The mean row of the participant's anchor representation; it must be the participant's own.
    origin : array of shape (h,)
    alignment_map : RigidMap
        T ↦ (T − mean) R + origin.
    model : Model or None
    model_digest : str
    """

    member: Member
    bundle_digest: str
    mean: Vector
    origin: Vector
    alignment_map: RigidMap
    model: Model | None
    model_digest: str

    @property
    def orthogonal(self) -> npt.NDArray[np.float64]:
        """R."""
        return np.asarray(self.alignment_map.orthogonal)

    def apply(self, rows: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Bring the participant's transformed rows into the common space."""
        return np.asarray(self.alignment_map.apply(rows))


def deliver(
    study: Study,
    folder: str | Path,
    output: str | Path,
    signing_key: SigningKey,
    *,
    allow_rows: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> Delivery:
    """Write each aligned participant's result: its map, signed, and the model where there is one.

    Parameters
    ----------
    study : Study
    folder : path
        The analyst's work folder.
    output : path
        Gets a folder for each participant; may be a URL that fsspec knows (s3://…), to which the finished folders are sent.
    signing_key : SigningKey
        The analyst's.
    allow_rows : bool, default False
        Deliver a model even if it holds rows of the collaboration matrix, as a support vector machine does. Every
        participant can turn these back into raw rows, up to the study's noise on the data.
    command : str
        For the record.
    progress : callable, optional
        Called with participants done and participants in all.
    """
    study.require_roster()
    if study.analyst is None or signing_key.public != study.analyst.signing_key:
        raise RefusedError(
            "the delivery",
            reason="this key is not that of the study's analyst, and participants would refuse what it signs",
            cure="Open the vault that the analyst joined with.",
        )
    folder = Path(folder)
    if is_url(output):
        folder_at(str(output))  # an address that cannot be used is said to be before any work
    space = read_space(folder, study)
    model = _model_of(folder, study, space, allow_rows=allow_rows)
    digest = hashlib.sha256(model).hexdigest() if model is not None else ""
    with ExitStack() as stack:
        here = local_path(output) if not is_url(output) else Path(stack.enter_context(TemporaryDirectory()))
        for index, entry in enumerate(space.record["participants"]):
            member = study.member(entry["name"])
            place = here / member.name
            make_folder(place, mode=0o700, what="the folder of results")
            if model is not None:
                write_atomically(place / MODEL_FILE, model, what="the model")
            write_signed(
                place / MAP_FILE,
                kind=KIND,
                fields={
                    "study": study.digest,
                    "participant": member.name,
                    "key": member.signing_key,
                    "bundle": entry["digest"],
                    "model": digest,
                },
                arrays={"orthogonal": space.orthogonals[index], "mean": space.means[index], "origin": space.origin},
                signer=signing_key,
            )
            if is_url(output):
                address = f"{str(output).rstrip('/')}/{member.name}"
                send_folder(place, (MODEL_FILE, MAP_FILE), address=address)  # the map last, since it names the model
            if progress:
                progress(index + 1, len(space.names))
    delivery = Delivery(space.names, digest)
    record = {"command": command, **delivery.as_dict()}
    write_atomically(folder / DELIVERY_FILE, json.dumps(record, indent=2).encode(), what="the record")
    return delivery


def read_result(folder: str | Path, study: Study, member: Member) -> Result:
    """Read what the analyst delivered, or refuse it with a reason.

    Parameters
    ----------
    folder : path
        With map.safetensors, and model.onnx where there is a model.
    study : Study
    member : Member
        The participant who reads.

    Notes
    -----
    The caller must still compare `mean` and `bundle_digest` with its own: only the participant knows them.
    """
    study.require_roster()
    folder, h = Path(folder), study.n_components
    tensors = {
        "orthogonal": TensorSpec("F64", (h, h)),
        "mean": TensorSpec("F64", (h,)),
        "origin": TensorSpec("F64", (h,)),
    }
    found = read_signed(
        folder / MAP_FILE,
        kind=KIND,
        signed_by=study.analyst.signing_key if study.analyst else "",
        fields=FIELDS,
        tensors=lambda _: tensors,
    )
    if found.fields["study"] != study.digest:
        raise RefusedError("the map", reason="it was made for another study, or another version of it", cure=_ASK_AGAIN)
    if (found.fields["participant"], found.fields["key"]) != (member.name, member.signing_key):
        raise RefusedError("the map", reason="it is another participant's", cure=_ASK_AGAIN)
    mean, origin = found.arrays["mean"], found.arrays["origin"]
    if max(float(np.abs(array).max()) for array in found.arrays.values()) > _LARGEST:
        raise RefusedError("the map", reason="it moves rows further than any map of mooring's", cure=_ASK_AGAIN)
    try:
        R = found.arrays["orthogonal"]
        alignment_map = RigidMap(R, origin - mean @ R)
    except InputError:
        raise RefusedError("the map", reason="it is not orthogonal, and would distort rows", cure=_ASK_AGAIN) from None
    digest = str(found.fields["model"])
    model = _delivered_model(folder / MODEL_FILE, study, digest) if digest else None
    return Result(member, str(found.fields["bundle"]), mean, origin, alignment_map, model, digest)


def _delivered_model(path: Path, study: Study, digest: str) -> Model:
    data = _bounded(path)
    if hashlib.sha256(data).hexdigest() != digest:
        raise RefusedError("the model", reason="it is not the one that the analyst signed for", cure=_ASK_AGAIN)
    if study.label.kind == "none":
        raise RefusedError("the model", reason="the study has no label to predict", cure=_ASK_AGAIN)
    return Model.load(data, n_components=study.n_components, kind=study.label.kind, n_classes=len(study.label.classes))


def _bounded(path: Path) -> bytes:
    """A model's file, without trusting its length."""
    with opened(path, what="the model") as file:
        data = file.read(min(os.fstat(file.fileno()).st_size, MOST_MODEL_BYTES) + 1)  # a buffer of this size is made
    if len(data) > MOST_MODEL_BYTES:
        raise RefusedError("the model", reason=f"it is larger than {MOST_MODEL_BYTES // 2**20} MB", cure=_ASK_AGAIN)
    return data


def _model_of(folder: Path, study: Study, space: CommonSpace, *, allow_rows: bool) -> bytes | None:
    """The trained model, if there is one and it belongs to this alignment; another one's coordinates mean nothing here."""
    if not (folder / TRAINING_FILE).is_file() or study.label.kind == "none":
        return None
    try:
        record = json.loads((folder / TRAINING_FILE).read_bytes())
        expected, space_digest = record["model_digest"], record["space"]
    except (OSError, ValueError, KeyError, TypeError):
        raise StorageError(
            "the record", reason="training.json cannot be read", cure="Run 'mooring train' again."
        ) from None
    if record.get("holds_rows", True) and not allow_rows:
        raise RefusedError(
            "the delivery",
            reason="this model holds rows of the participants, which every other participant could turn back into raw ones",
            cure="Train with the learner 'auto' or 'linear', whose models hold nobody's rows.",
        )
    data = _bounded(folder / MODEL_FILE)
    if space_digest != space.space_digest or hashlib.sha256(data).hexdigest() != expected:
        raise InputError(
            "model",
            expected="one that was trained on this alignment",
            got="one from before it",
            cure="Run 'mooring train' again, then deliver.",
        )
    return data
