"""`mooring deliver`: each participant's result, signed by the analyst."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from mooring.atomic_io import copy_atomically, make_folder, write_atomically
from mooring.errors import RefusedError
from mooring.protocol.analyst.trained_model import DELIVERY_FILE, require_analyst
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.messages.model import MODEL_FILE
from mooring.protocol.messages.reason import require_reasoned
from mooring.protocol.messages.result import Release, find_model_limit, write_delivered_model
from mooring.protocol.messages.study import Study
from mooring.protocol.registry import exchange_of
from mooring.protocol.transport.addresses import is_url, local_path
from mooring.protocol.transport.object_stores import open_folder, send_folder
from mooring.serialization import Record
from mooring.typing import Progress


@dataclass(frozen=True)
class Delivery(Record):
    """The record of a delivery."""

    delivered: tuple[str, ...]
    """Names of the participants for whom a result was written."""
    model_digest: str
    """SHA-256 of the model in the results; empty without a model."""
    release: Release | None = None
    """What an attacker may learn from the model about its training rows; None if the study does not limit it."""
    command: str = ""
    """The command that was run."""


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
    """Write each participant's result: the signed model, if there is one, and what the mechanism adds for this participant.

    `output`, a folder or a URL that fsspec knows (s3://…), gets a folder for each participant. `override` says who delivers
    a model above the study's limit, and why; the override is signed, and every participant reads it.
    """
    require_analyst(study, signing_key)
    folder = Path(folder)
    if is_url(output):
        open_folder(str(output))  # refuses an unusable address before any work
    exchange = exchange_of(study)
    ready = exchange.prepare_results(study, folder)
    release = _require_release(study, ready.risk, override, remedy=ready.remedy)
    with ExitStack() as stack:
        here = local_path(output) if not is_url(output) else Path(stack.enter_context(TemporaryDirectory()))
        signed, digest = Path(stack.enter_context(TemporaryDirectory())) / MODEL_FILE, ""
        if ready.model is not None:
            digest = write_delivered_model(signed, study, ready.model, ready.source, signing_key, release)
        for index, name in enumerate(ready.names):
            place = here / name
            make_folder(place, mode=0o700, what="the folder of results")
            if ready.model is not None:
                copy_atomically(signed, place / MODEL_FILE, what="the model")
            ready.write_own(place, index, digest, signing_key)
            if is_url(output):
                send_folder(place, tuple(exchange.result_files(study)), address=f"{str(output).rstrip('/')}/{name}")
            if progress:
                progress(index + 1, len(ready.names))
    delivery = Delivery(ready.names, digest, release, command)
    write_atomically(folder / DELIVERY_FILE, delivery.to_json().encode(), what="the record")
    return delivery


def _require_release(study: Study, risk: float, override: str, *, remedy: str) -> Release | None:
    """Return the risk to sign; None if the study sets no limit. Refuse a risk above the limit without an override."""
    if not study.model_limit:
        return None
    require_reasoned("--override", override)
    if risk <= find_model_limit(study).bound:
        return Release(risk)
    if not override:
        measured = f"up to {risk:.1%} may be recognised"
        measured = measured if risk < 1 else "all may be recognised: no measurement and no guarantee shows otherwise"
        raise RefusedError(
            "the delivery",
            reason=f"the study's limit is '{study.model_limit}', and of the rows behind this model {measured}",
            cure=f"{remedy}; or give --override 'NAME: REASON', which is signed.",
        )
    return Release(risk, override)
