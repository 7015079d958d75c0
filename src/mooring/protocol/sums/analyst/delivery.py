"""The model of the total, before it is signed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from mooring.protocol.analyst.trained_model import read_training
from mooring.protocol.crypto.keys import SigningKey
from mooring.protocol.exchange_types import Deliverable
from mooring.protocol.messages.study import Study
from mooring.protocol.sums.analyst.total import read_list
from mooring.protocol.sums.analyst.training import SumTraining
from mooring.protocol.sums.result import guaranteed_risk, specify_sum_model
from mooring.protocol.sums.scheme import sum_promise


def prepare_sum_model(study: Study, folder: Path) -> Deliverable:
    """Return the model of the total, for all participants, including those whose rows are not in the total."""
    source = read_list(study, folder).digest
    model, _ = read_training(folder, SumTraining, study, partial(specify_sum_model, study), made_from=source)
    names = tuple(member.name for member in study.participants)

    def write_own(place: Path, index: int, model_digest: str, signer: SigningKey) -> None:
        """Write nothing besides the model."""

    remedy = "Every model of this total has the same bound: draft a study with a smaller epsilon"
    if sum_promise(study) is None:
        remedy = "No model of this total has a bound: draft a study with noise and public ranges"
    return Deliverable(names, model, source, guaranteed_risk(study), remedy, write_own)
