"""`mooring deliver`: each participant's map and the model, signed by the analyst."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mooring.atomic_io import make_folder, write_atomically
from mooring.audit.release import ReleaseRisk
from mooring.errors import RefusedError
from mooring.protocol.analyst.alignment_state import (
    DELIVERY_FILE,
    TRAINING_FILE,
    AlignmentState,
    damaged_training,
    read_model,
    read_space,
)
from mooring.protocol.analyst.sum_total import read_list, require_analyst
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.result import (
    MODEL_FILE,
    Release,
    find_model_limit,
    guaranteed_risk,
    require_reasoned,
    result_file,
    write_result,
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
    allow_rows: bool = False,
    override: str = "",
    command: str = "",
    progress: Progress | None = None,
) -> Delivery:
    """Write each aligned participant's result: its map, signed, and the model where there is one.

    Parameters
    ----------
    output : path
        Gets a folder for each participant; may be a URL that fsspec knows (s3://…), to which the finished folders are sent.
    allow_rows : bool, default False
        Deliver a model even if it holds rows of the collaboration matrix, as a support vector machine does. Every
        participant can turn these back into raw rows, up to the study's noise on the data.
    override : str
        Who delivers a model above the study's limit, and why; it is signed, and every participant reads it.
    """
    require_analyst(study, signing_key)
    folder = Path(folder)
    if is_url(output):
        open_folder(str(output))  # an address that cannot be used is said to be before any work
    model: bytes | None
    if study.sums is not None:
        closed = read_list(study, folder)
        model, risk = read_model(folder, study=study.digest, list=closed.digest)[0], guaranteed_risk(study)
        names = tuple(member.name for member in study.participants)  # who is not in the total has the model too

        def describe(index: int) -> tuple[dict[str, str], dict[str, Any]]:
            return {"list": closed.digest}, {}
    else:
        space = read_space(folder, study)
        model, risk = _read_trained_model(folder, study, space, allow_rows=allow_rows)
        names = tuple(space.names)

        def describe(index: int) -> tuple[dict[str, str], dict[str, Any]]:
            member, bundle = study.member(names[index]), space.record["participants"][index]["digest"]
            arrays = {"orthogonal": space.orthogonals[index], "mean": space.means[index], "origin": space.origin}
            return {"participant": member.name, "key": member.signing_key, "bundle": bundle}, arrays

    release = _require_release(study, risk, override)

    def sign(path: Path, index: int, digest: str) -> None:
        fields, arrays = describe(index)
        write_result(path, study, fields | {"model": digest}, arrays=arrays, signer=signing_key, release=release)

    delivery = _write_results(output, names, model, result_file(study), sign, progress)
    record = {"command": command, **delivery.as_dict(), **Release.as_record(release)}
    write_atomically(folder / DELIVERY_FILE, json.dumps(record, indent=2).encode(), what="the record")
    return delivery


def _write_results(
    output: str | Path,
    names: Sequence[str],
    model: bytes | None,
    signed: str,
    sign: Callable[[Path, int, str], None],
    progress: Progress | None,
) -> Delivery:
    """Write a folder for each participant: the model, and the file `signed`, which names the model, by `sign`."""
    digest = hashlib.sha256(model).hexdigest() if model is not None else ""
    with ExitStack() as stack:
        here = local_path(output) if not is_url(output) else Path(stack.enter_context(TemporaryDirectory()))
        for index, name in enumerate(names):
            place = here / name
            make_folder(place, mode=0o700, what="the folder of results")
            if model is not None:
                write_atomically(place / MODEL_FILE, model, what="the model")
            sign(place / signed, index, digest)
            if is_url(output):
                address = f"{str(output).rstrip('/')}/{name}"
                send_folder(place, (MODEL_FILE, signed), address=address)  # last what names the model
            if progress:
                progress(index + 1, len(names))
    return Delivery(tuple(names), digest)


def _require_release(study: Study, risk: float, override: str) -> Release | None:
    """What is signed of the model's risk; one above the study's limit is refused without an override."""
    if not study.model_limit:
        return None
    require_reasoned(override)
    if risk <= find_model_limit(study).bound:
        return Release(risk)
    if not override:
        measured = (
            f"up to {risk:.1%} may be told" if risk < 1 else "all may be told: it was not measured, or it holds rows"
        )
        raise RefusedError(
            "the delivery",
            reason=f"the study's limit is '{study.model_limit}', and of the rows behind this model {measured}",
            cure="Train another learner, or study with more noise; or give --override 'NAME: REASON', which is signed.",
        )
    return Release(risk, override)


def _measured_risk(study: Study, record: dict[str, Any]) -> float:
    """What was measured when the model was trained, at the worse end of its interval; 1 where nothing was.

    1, too, of a model that holds rows: whoever has it has them.
    """
    if not study.model_limit or record.get("release") is None or record.get("holds_rows", True):
        return 1.0
    figure = ReleaseRisk.from_dict(record["release"]).figures[find_model_limit(study).measure]
    return figure.interval.high if figure.interval.known else figure.value


def _read_trained_model(
    folder: Path, study: Study, space: AlignmentState, *, allow_rows: bool
) -> tuple[bytes | None, float]:
    """The trained model, if there is one and it belongs to this alignment, and its risk."""
    if not (folder / TRAINING_FILE).is_file() or study.label.kind == "none":
        return None, 0.0
    data, record = read_model(folder, space=space.space_digest)
    if record.get("holds_rows", True) and not allow_rows:
        raise RefusedError(
            "the delivery",
            reason="this model holds rows of the participants, which every other participant could turn back into raw ones",
            cure="Train with the learner 'auto' or 'linear', whose models hold nobody's rows.",
        )
    try:
        return data, _measured_risk(study, record)
    except (ValueError, KeyError, TypeError):
        raise damaged_training() from None
