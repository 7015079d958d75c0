"""`mooring deliver`: each participant's map and the model, signed by the analyst."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mooring.atomic_io import copy_atomically, make_folder, write_atomically
from mooring.audit.release import ReleaseRisk
from mooring.errors import RefusedError
from mooring.learners.models import Model
from mooring.protocol.analyst.alignment_state import (
    DELIVERY_FILE,
    TRAINING_FILE,
    AlignmentState,
    damaged_training,
    read_space,
    read_training,
)
from mooring.protocol.analyst.sum_total import read_list, require_analyst
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.result import (
    MAP_FILE,
    Release,
    bound_result_files,
    find_model_limit,
    guaranteed_risk,
    require_reasoned,
    write_delivered_model,
    write_map,
)
from mooring.protocol.messages.study import Study
from mooring.protocol.transport.addresses import is_url, local_path
from mooring.protocol.transport.object_stores import open_folder, send_folder
from mooring.serialization import Record
from mooring.typing import Progress


@dataclass(frozen=True)
class Delivery(Record):
    """Who was delivered a result, and of which model (its SHA-256; empty without a model)."""

    delivered: tuple[str, ...]
    model_digest: str


def deliver(
    study: Study,
    folder: str | Path,
    output: str | Path,
    signing_key: SigningKey,
    *,
    override: str = "",
    command: str = "",
    progress: Progress | None = None,
) -> Delivery:
    """Write each aligned participant's result: its map, signed, and the model where there is one.

    Parameters
    ----------
    output : path
        Gets a folder for each participant; may be a URL that fsspec knows (s3://…), to which the finished folders are sent.
    override : str
        Who delivers a model above the study's limit, and why; it is signed, and every participant reads it.
    """
    require_analyst(study, signing_key)
    folder = Path(folder)
    if is_url(output):
        open_folder(str(output))  # an address that cannot be used is said to be before any work
    space, model = None, None
    if study.sums is not None:
        source, risk = read_list(study, folder).digest, guaranteed_risk(study)
        model, _ = read_training(folder, study, list=source)
        names = tuple(member.name for member in study.participants)  # who is not in the total has the model too
    else:
        space = read_space(folder, study)
        source, names = space.space_digest, space.names
        model, risk = _read_trained_model(folder, study, space)
    release = _require_release(study, risk, override)
    with ExitStack() as stack:
        here = local_path(output) if not is_url(output) else Path(stack.enter_context(TemporaryDirectory()))
        signed, digest = Path(stack.enter_context(TemporaryDirectory())) / MODEL_FILE, ""
        if model is not None:
            digest = write_delivered_model(signed, study, model, source, signing_key, release)
        for index, name in enumerate(names):
            place = here / name
            make_folder(place, mode=0o700, what="the folder of results")
            if model is not None:
                copy_atomically(signed, place / MODEL_FILE, what="the model")
            if space is not None:
                _write_map(place / MAP_FILE, study, space, index, digest, signing_key)
            if is_url(output):
                send_folder(place, tuple(bound_result_files(study)), address=f"{str(output).rstrip('/')}/{name}")
            if progress:
                progress(index + 1, len(names))
    delivery = Delivery(tuple(names), digest)
    record = {"command": command, **delivery.as_dict(), **Release.as_record(release)}
    write_atomically(folder / DELIVERY_FILE, json.dumps(record, indent=2).encode(), what="the record")
    return delivery


def _write_map(
    path: Path, study: Study, space: AlignmentState, index: int, digest: str, signing_key: SigningKey
) -> None:
    member, bundle = study.member(space.names[index]), space.record["participants"][index]["digest"]
    fields = {"participant": member.name, "key": member.signing_key, "bundle": bundle, "model": digest}
    arrays = {"orthogonal": space.orthogonals[index], "mean": space.means[index], "origin": space.origin}
    write_map(path, study, fields, arrays, signing_key)


def _require_release(study: Study, risk: float, override: str) -> Release | None:
    """What is signed of the model's risk; one above the study's limit is refused without an override."""
    if not study.model_limit:
        return None
    require_reasoned(override)
    if risk <= find_model_limit(study).bound:
        return Release(risk)
    if not override:
        measured = f"up to {risk:.1%} may be told" if risk < 1 else "all may be told: it was not measured"
        raise RefusedError(
            "the delivery",
            reason=f"the study's limit is '{study.model_limit}', and of the rows behind this model {measured}",
            cure="Train another learner, or study with more noise; or give --override 'NAME: REASON', which is signed.",
        )
    return Release(risk, override)


def _measured_risk(study: Study, record: dict[str, Any]) -> float:
    """What was measured when the model was trained, at the worse end of its interval; 1 where nothing was."""
    if not study.model_limit or record.get("release") is None:
        return 1.0
    figure = ReleaseRisk.from_dict(record["release"]).figures[find_model_limit(study).measure]
    return figure.interval.high if figure.interval.known else figure.value


def _read_trained_model(folder: Path, study: Study, space: AlignmentState) -> tuple[Model | None, float]:
    """The trained model, if there is one and it belongs to this alignment, and its risk."""
    if not (folder / TRAINING_FILE).is_file() or study.label.kind == "none":
        return None, 0.0
    model, record = read_training(folder, study, space=space.space_digest)
    try:
        return model, _measured_risk(study, record)
    except (ValueError, KeyError, TypeError):
        raise damaged_training() from None
