"""What the analyst of a study of rotation delivers: each participant's map, and the model before it is signed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mooring.protocol.analyst.trained_model import TRAINING_FILE, read_training
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.exchange_types import Deliverable
from mooring.protocol.messages.result import find_model_limit
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.alignment_state import read_space
from mooring.protocol.rotation.analyst.training_record import Training
from mooring.protocol.rotation.result import MAP_FILE, specify_model, write_map


def prepare_maps(study: Study, folder: Path) -> Deliverable:
    """Return each aligned participant's map, and the model if one was trained; a model of another alignment is an error."""
    space = read_space(folder, study)
    model, risk = None, 0.0
    if (folder / TRAINING_FILE).is_file() and study.label.kind != "none":
        specify = partial(specify_model, study)
        model, training = read_training(folder, Training, study, specify, made_from=space.space_digest)
        risk = _measured_risk(study, training)

    def write_own(place: Path, index: int, model_digest: str, signer: SigningKey) -> None:
        member, bundle = study.member(space.names[index]), space.record.participants[index].digest
        fields = {"participant": member.name, "key": member.signing_key, "bundle": bundle, "model": model_digest}
        arrays = {"orthogonal": space.orthogonals[index], "mean": space.means[index], "origin": space.origin}
        write_map(place / MAP_FILE, study, fields, arrays, signer)

    remedy = "Train another learner, or draft a study with more noise"
    return Deliverable(space.names, model, space.space_digest, risk, remedy, write_own)


def _measured_risk(study: Study, training: Training) -> float:
    """Return the risk measured at training, at the worse end of its interval; 1 if it was not measured."""
    if not study.model_limit or training.release is None:
        return 1.0
    figure = training.release.figures.get(find_model_limit(study).measure)
    if figure is None:
        return 1.0
    return figure.interval.high if figure.interval.known else figure.value
