"""The model that is trained on the opened sums and delivered to everybody; its file names the sums' closing list."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mooring.errors import InputError
from mooring.learners.models import ModelSpec, refuse_model
from mooring.mechanisms.sums.general.features import LevelFeatures, select_schema
from mooring.mechanisms.sums.guarantee import bound_share
from mooring.mechanisms.sums.settings import make_features
from mooring.protocol.messages.result import DeliveredModel, Release, find_model_limit, read_delivered_model
from mooring.protocol.messages.study import Study
from mooring.protocol.participant.membership import find_membership
from mooring.protocol.storage.ledger import Ledger
from mooring.protocol.storage.vault import Vault
from mooring.protocol.sums.features import study_features
from mooring.protocol.sums.scheme import sum_promise, sum_settings
from mooring.tables.schema import Schema
from mooring.typing import Matrix

if TYPE_CHECKING:
    from mooring.learners.models import Predicted


@dataclass(frozen=True, eq=False)
class SumResultModel:
    """A delivered model of a total as it applies to a participant's encoded rows."""

    delivered: DeliveredModel
    schema: Schema

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model."""
        return self.delivered.digest

    @property
    def release(self) -> Release | None:
        """What an attacker may learn about the rows behind the model; None if the study does not limit it."""
        return self.delivered.release

    def predict(self, rows: Matrix) -> Predicted:
        """Return the predicted values, and the probabilities of classes if the model has any."""
        return self.delivered.model.predict_with_probabilities(rows)


def guaranteed_risk(study: Study) -> float:
    """Return an upper bound on the true positive rate of any attack on membership, which follows from the noise.

    The bound holds at the false positive rate of the study's limit on models. Without a guarantee or such a limit, it is 1.
    """
    from mooring.metrics.membership import FALSE_POSITIVE_RATES

    promise = sum_promise(study)
    if promise is None or not study.model_limit:
        return 1.0
    return bound_share(*promise, FALSE_POSITIVE_RATES[find_model_limit(study).measure])


def model_schema(study: Study, outcome: str = "") -> Schema:
    """Return the schema of the rows that a model of an outcome takes, with the outcome as its label.

    From the general total, models of most columns can be trained (see `select_schema`). The sums of a study with one model
    can only train a model of the study's label.
    """
    features = make_features(sum_settings(study), study.schema, study.image_shape)
    if isinstance(features, LevelFeatures):
        return select_schema(features.workload, study.schema, outcome)
    if outcome:
        problem = f"The study shares sums for a model of {study.label.column!r}, which do not predict {outcome[:60]!r}."
        raise InputError("outcome", problem=problem, cure='Declare questions = ["model", "tables"] in a new study.')
    return study.schema


def specify_sum_model(study: Study, outcome: str = "") -> ModelSpec:
    """Return the inputs (encoded rows) and outputs of a model of an outcome, which is empty for the label."""
    try:
        schema = model_schema(study, outcome)
    except InputError:
        raise refuse_model("the study's total does not predict its outcome") from None
    label, features = schema.label, study_features(study)
    if isinstance(features, LevelFeatures):
        features = LevelFeatures(features.workload, schema)
    bounds = None if label.classes else (label.low, label.high)
    return ModelSpec(schema.n_features, len(label.classes), features, bounds, outcome)


def open_sum_model(vault: Vault, study: Study, folder: Path) -> SumResultModel:
    """Read the delivered model. A combiner that has answered a closing list accepts only a model of this list's total."""
    find_membership(vault, study)
    answered, risk = Ledger(vault.folder).find_answer(study.digest), guaranteed_risk(study)
    specify = partial(specify_sum_model, study)
    delivered = read_delivered_model(folder, study, specify, source=answered, risk=risk)
    return SumResultModel(delivered, model_schema(study, delivered.model.spec.outcome))
