"""The delivered model of a total: the same for everybody, and named by the closing list that it came of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.learners.models import ModelSpec, refuse_model
from mooring.protocol.messages.result import DeliveredModel, Release, find_model_limit, read_delivered_model
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.scheme import sum_promise
from mooring.typing import Matrix

if TYPE_CHECKING:
    from mooring.learners.models import Predicted

_LARGEST_EXPONENT = 50.0  # beyond which the bound is 1 in any case


@dataclass(frozen=True, eq=False)
class SumResultModel:
    """A delivered model of a total as it applies to a participant's encoded rows."""

    delivered: DeliveredModel

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model."""
        return self.delivered.digest

    @property
    def release(self) -> Release | None:
        """What an attacker may learn about the rows behind the model, where the study limits it."""
        return self.delivered.release

    def predict(self, rows: Matrix) -> Predicted:
        """Values and, where there are such, probabilities."""
        return self.delivered.model.predict_with_probabilities(rows)


def guaranteed_risk(study: Study) -> float:
    """The greatest true positive rate that the noise allows at the limit's false positive rate; 1 without noise or limit."""
    from mooring.metrics.membership import FALSE_POSITIVE_RATES

    promise = sum_promise(study)
    if promise is None or not study.model_limit:
        return 1.0
    epsilon, delta = promise
    rate = FALSE_POSITIVE_RATES[find_model_limit(study).measure]
    return min(1.0, math.exp(min(epsilon, _LARGEST_EXPONENT)) * rate + delta)


def specify_sum_model(study: Study) -> ModelSpec:
    """What the models of a study take and predict: encoded rows, through the study's features, and the label."""
    if study.label.kind == "none":
        raise refuse_model("the study has no label to predict")
    n_classes = len(study.label.classes) if study.label.kind == "classes" else 0
    bounds = None if n_classes else (study.label.low, study.label.high)
    return ModelSpec(study.n_features, n_classes, study_features(study), bounds)


def open_sum_model(vault: Vault, study: Study, folder: Path) -> SumResultModel:
    """Read the delivered model; a participant that answered a closing list accepts the model of that list only."""
    find_membership(vault, study)
    answered, risk = Ledger(vault.folder).find_answer(study.digest), guaranteed_risk(study)
    return SumResultModel(read_delivered_model(folder, study, specify_sum_model(study), source=answered, risk=risk))
