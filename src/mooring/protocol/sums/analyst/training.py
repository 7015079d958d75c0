"""Training on the total of a study of secure sums: one model for everybody.

If the study adds noise, the total carries everybody's noise, and the guarantee covers all that follows from the total.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from mooring.errors import InputError, RefusedError
from mooring.learners import Gain, Kind, LearnerLike, Score
from mooring.learners.class_sums import ClassSums, QuadraticModel
from mooring.learners.registry import AUTO, resolve_sum_learner
from mooring.learners.sums import SumModel, Sums, estimate_predicted_shares
from mooring.mechanisms.sums.settings import SECURE_SUM
from mooring.protocol.analyst.trained_model import TRAINED_FILE, keep_training, require_label
from mooring.protocol.messages.model import write_model
from mooring.protocol.messages.study import Study
from mooring.protocol.results import Finding, TrainingRecord
from mooring.protocol.sums.analyst.total import open_total, read_list, refuse_total
from mooring.protocol.sums.result import model_schema, specify_sum_model
from mooring.protocol.sums.scheme import explain_missing_guarantee, sum_scheme
from mooring.serialization import Count, render_html
from mooring.typing import Vector

_ALMOST_ALL = 0.99


@dataclass(frozen=True)
class SumTraining(TrainingRecord):
    """The record of a training on the total; `wrong` and `checked` are as in `Total`."""

    mechanism: ClassVar[str] = SECURE_SUM

    learner: str
    """Either "quadratic", "discriminant" or "least-squares"."""
    outcome: str
    """Name of the column that is predicted."""
    kind: Kind
    contributors: tuple[str, ...]
    """Participants whose rows are in the total."""
    wrong: tuple[str, ...]
    epsilon: float | None
    """None without noise."""
    delta: float | None
    """None without noise."""
    unit: str
    rows: Count
    """Approximate number of rows, read from the noisy total."""
    model_digest: str
    checked: bool
    score: Score | None = None
    participants: tuple[tuple[str, Score], ...] = ()
    alone: tuple[tuple[str, Score], ...] = ()
    gain: Gain | None = None
    """`score`, `participants`, `alone` and `gain` stay empty, since the analyst has no rows to score the model on."""
    study: str = ""
    made_from: str = ""
    """Digests of the study, and of the closing list."""
    command: str = ""
    """The command that was run."""
    is_guaranteed: bool = True
    """Whether the noise gives a guarantee, which assumes public ranges."""
    n_classes: Count = 0
    """Number of classes; 0 if a number is predicted."""
    only_class: str = ""
    """The class that the model predicts for almost every row, by an estimate from the total; empty if there is none."""

    @property
    def is_whole(self) -> bool:
        """Whether every share fits."""
        return not self.wrong

    def state_scores(self) -> list[str]:
        """Return a sentence on who scores the model: the analyst has no rows."""
        return ["Each participant scores the model on its own rows."]

    def list_findings(self) -> tuple[Finding, ...]:
        """Return findings on shares that do not fit or could not be checked, and on a model that predicts one class."""
        findings = [
            Finding("wrong share", f"Left out the share of {name}: it does not fit the others'.", (name,))
            for name in self.wrong
        ]
        if self.only_class and self.n_classes > 1:
            findings.append(Finding("one class", self._state_only_class()))
        if not self.checked:
            words = (
                "There were no more shares than the threshold, so a wrong share would have gone unnoticed. To notice one, a "
                "study needs more combiners than its threshold."
            )
            findings.append(Finding("unchecked shares", words))
        return tuple(findings)

    def _state_only_class(self) -> str:
        return (
            f"The model predicts '{self.only_class}' for almost every row, by an estimate from the total, so its balanced "
            f"accuracy is about that of guessing, {1 / self.n_classes:.1%}."
        )

    def __str__(self) -> str:
        guarantee = "without noise, and without a guarantee"
        if self.epsilon is not None:
            guarantee = f"with epsilon = {self.epsilon:g}, delta = {self.delta:g} a {self.unit}"
            guarantee += (
                "" if self.is_guaranteed else ", which is no guarantee until the ranges are confirmed to be public"
            )
        n = len(self.contributors)
        what = f"Trained {self.learner!r} to predict {self.outcome!r}"
        return f"{what} on sums over about {self.rows:,} rows of {n} participants, {guarantee}."

    def _repr_html_(self) -> str:
        return render_html(str(self), *self.state_warnings())


def train_sums(
    study: Study,
    folder: str | Path,
    shares: str | Path,
    *,
    outcome: str = "",
    learner: LearnerLike = AUTO,
    command: str = "",
) -> SumTraining:
    """Open the total, train a model of an outcome (by default the label) on it, and write the model.

    There is no score: the analyst has no rows, and participants evaluate the model locally. The learner "auto" is the first
    of `mooring.learners.registry.SUM_LEARNERS` that predicts the outcome from the study's sums.
    """
    folder, scheme = Path(folder), sum_scheme(study)
    outcome = "" if outcome == study.label.column else outcome
    schema = model_schema(study, outcome)
    kind, classes = require_label(schema), schema.label.classes
    chosen = resolve_sum_learner(learner, kind, by_class=scheme.is_by_class)
    total = open_total(study, folder, shares)
    try:
        with np.errstate(all="ignore"):
            sums = total.extract_sums(schema)
            fitted = chosen.train(sums, shrink=scheme.settings.features == "columns")
            model = fitted.to_model(specify_sum_model(study, outcome))
            model.predict(np.zeros((1, schema.n_features)))
            predicted = _estimate_predicted(fitted, sums) if classes else np.zeros(1)
    except InputError:
        raise
    except (RefusedError, ValueError):  # the total holds numbers that no rows have
        raise refuse_total("no model can be trained on it, since it is not the sum over any rows") from None
    digest = write_model(folder / TRAINED_FILE, model)
    settings = scheme.settings
    training = SumTraining(
        chosen.name,
        schema.label.column,
        kind,
        total.participants,
        total.wrong,
        settings.epsilon,
        None if settings.epsilon is None else settings.delta,
        settings.unit,
        round(sums.n_rows),
        digest,
        total.checked,
        study=study.digest,
        made_from=read_list(study, folder).digest,
        command=command,
        is_guaranteed=not explain_missing_guarantee(study),
        n_classes=len(classes),
        only_class=classes[int(predicted.argmax())] if predicted.max() > _ALMOST_ALL else "",
    )
    keep_training(folder, training)
    return training


def _estimate_predicted(model: SumModel | QuadraticModel, sums: Sums | ClassSums) -> Vector:
    """Return the estimated share of rows for which a model predicts each class."""
    if isinstance(model, QuadraticModel):
        return model.estimate_predicted_shares()
    return estimate_predicted_shares(model, sums.pooled if isinstance(sums, ClassSums) else sums)
