"""Each aligned participant's map, and the model with its measured risk, before they are signed."""

from __future__ import annotations

from pathlib import Path

from mooring.learners.models import Model
from mooring.protocol.analyst.trained_model import TRAINING_FILE, read_training
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.exchange import Deliverable
from mooring.protocol.messages.result import find_model_limit
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.alignment_state import AlignmentState, read_space
from mooring.protocol.rotation.result import MAP_FILE, specify_model, write_map
from mooring.protocol.rotation.training import Training


def prepare_maps(study: Study, folder: Path) -> Deliverable:
    """Each aligned participant's map, and the model where there is one."""
    space = read_space(folder, study)
    model, risk = _read_trained_model(folder, study, space)

    def write_own(place: Path, index: int, model_digest: str, signer: SigningKey) -> None:
        member, bundle = study.member(space.names[index]), space.record.participants[index].digest
        fields = {"participant": member.name, "key": member.signing_key, "bundle": bundle, "model": model_digest}
        arrays = {"orthogonal": space.orthogonals[index], "mean": space.means[index], "origin": space.origin}
        write_map(place / MAP_FILE, study, fields, arrays, signer)

    return Deliverable(space.names, model, space.space_digest, risk, write_own)


def _measured_risk(study: Study, training: Training) -> float:
    """What was measured when the model was trained, at the worse end of its interval; 1 where nothing was."""
    if not study.model_limit or training.release is None:
        return 1.0
    figure = training.release.figures.get(find_model_limit(study).measure)
    if figure is None:
        return 1.0
    return figure.interval.high if figure.interval.known else figure.value


def _read_trained_model(folder: Path, study: Study, space: AlignmentState) -> tuple[Model | None, float]:
    """The trained model, if there is one and it belongs to this alignment, and its risk."""
    if not (folder / TRAINING_FILE).is_file() or study.label.kind == "none":
        return None, 0.0
    spec = specify_model(study)
    model, training = read_training(folder, Training, study, spec, made_from=space.space_digest)
    return model, _measured_risk(study, training)
