"""Training on the total of a study of secure sums: one model for everybody, as ONNX.

The total carries everybody's noise, and all that follows from it is covered by the guarantee.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mooring.errors import InputError
from mooring.learners.coefficients import Coefficient, fit_coefficients
from mooring.learners.sums import SumModel, fit_discriminant, fit_least_squares
from mooring.mechanisms.sums.feature_map import TableFeatures
from mooring.protocol.analyst.alignment_state import keep_model
from mooring.protocol.analyst.sum_total import Total, open_total, read_list
from mooring.protocol.analyst.training import require_agreement, require_label
from mooring.protocol.messages.model import Model
from mooring.protocol.messages.projection import study_features
from mooring.protocol.messages.study import Study
from mooring.serialization import Record, Rows, render_html

LEARNERS = ("auto", "discriminant", "least-squares")
_ROWS_COMPARED = 2_000


@dataclass(frozen=True)
class SumTraining(Record):
    """What was trained on the total; `contributors`, `wrong`, `remarks` and `checked` are those of `Total`."""

    learner: str
    """Either "discriminant" or "least-squares"."""
    kind: str
    contributors: tuple[str, ...]
    wrong: tuple[str, ...]
    remarks: tuple[str, ...]
    epsilon: float | None
    delta: float | None
    """None without noise."""
    unit: str
    rows: int
    """About how many, read off the noisy total."""
    model_digest: str
    checked: bool
    coefficients: tuple[Coefficient, ...] = ()
    """Of least squares, where features are the columns themselves and there are two classes or a number."""
    holds_rows: bool = False
    """Sums hold nobody's."""

    def list_coefficients(self) -> Rows:
        """A line a feature."""
        headings = ("column", "for", "change", "standard error", "of it by noise")
        numbers = [(one.value, one.standard_error, one.noise_error) for one in self.coefficients]
        written = [[f"{number:.3g}" for number in some] for some in numbers]
        return [headings, *((one.name, one.per, *cells) for one, cells in zip(self.coefficients, written, strict=True))]

    def __str__(self) -> str:
        told = "without noise, and without a guarantee"
        if self.epsilon is not None:
            told = f"with epsilon = {self.epsilon:g}, delta = {self.delta:g} a {self.unit}"
        n = len(self.contributors)
        return f"Trained {self.learner!r} on sums over about {self.rows:,} rows of {n} participants, {told}."

    def state_warnings(self) -> list[str]:
        """A sentence on each share that does not fit and on each remark, and one where no share could be checked."""
        lines = [f"Left out the share of {name}: it does not fit the others'." for name in self.wrong]
        unchecked = (
            "There was no share to spare: had a combiner answered wrongly, nobody could tell. It takes a share above the "
            "threshold, and so a study with more combiners than its threshold."
        )
        return [*lines, *self.remarks, *(() if self.checked else (unchecked,))]

    def _repr_html_(self) -> str:
        tables = [self.list_coefficients()] if self.coefficients else []
        return render_html(str(self), *self.state_warnings(), tables=tables)


def train_sums(
    study: Study, folder: str | Path, shares: str | Path, *, learner: str = "auto", command: str = ""
) -> SumTraining:
    """Open the total, train on it, and write the model as ONNX.

    There is no score: the analyst has no rows. Participants score the model at home.

    Parameters
    ----------
    folder, shares : path
        As for `open_total`.
    learner : {"auto", "discriminant", "least-squares"}
        "auto" is discriminant analysis for classes and least squares for numbers.
    """
    folder, scheme = Path(folder), study.sum_scheme
    kind = require_label(study)
    require_sum_learner(study, learner)
    if learner == "auto":
        learner = "discriminant" if kind == "classes" else "least-squares"
    total = open_total(study, folder, shares)
    fit = fit_discriminant if learner == "discriminant" else fit_least_squares
    model = fit(total.sums, shrink=scheme.settings.features == "columns")
    if kind == "number":
        model = _to_range(model, study.label.low, study.label.high)
    from mooring.learners.sum_export import sums_to_onnx  # scikit-learn and onnx, which only training needs

    data = sums_to_onnx(model, study_features(study), limits=(study.label.low, study.label.high))
    _require_agreement(study, model, data)
    settings = scheme.settings
    found = SumTraining(
        learner,
        kind,
        total.participants,
        total.wrong,
        total.remarks,
        settings.epsilon,
        None if settings.epsilon is None else settings.delta,
        settings.unit,
        round(total.sums.n_rows),
        hashlib.sha256(data).hexdigest(),
        total.checked,
        _coefficients(study, total),
    )
    made_of = {"study": study.digest, "list": read_list(study, folder).digest}
    keep_model(folder, found.as_dict(), data, command=command, **made_of)
    return found


def _coefficients(study: Study, total: Total) -> tuple[Coefficient, ...]:
    features = study.sum_scheme.features
    if not isinstance(features, TableFeatures) or features.n_hats or features.log_scaled or total.sums.n_classes > 2:
        return ()
    spread = study.label.high - study.label.low if study.label.kind == "number" else 1.0
    return fit_coefficients(total.sums, features, spread=spread)


def require_sum_learner(study: Study, learner: str) -> None:
    """Refuse a learner that sums do not train, before any work."""
    if learner not in LEARNERS or (learner == "discriminant" and study.label.kind == "number"):
        expected = f"one of {', '.join(LEARNERS)}, the second for classes only"
        raise InputError("learner", expected=expected, got=repr(learner), cure="Sums train these; 'auto' chooses.")


def _to_range(model: SumModel, low: float, high: float) -> SumModel:
    """A model of numbers in the label's own range instead of −1 to 1."""
    half = (high - low) / 2
    return replace(model, weights=model.weights * half, intercept=model.intercept * half + low + half)


def _require_agreement(study: Study, model: SumModel, data: bytes) -> None:
    """Compare the written model with the fitted one on invented rows: of everybody's there are none."""
    rng = np.random.default_rng(0)
    rows = _invent_rows(study, _ROWS_COMPARED, rng)
    features = study_features(study)
    low, high = study.label.low, study.label.high
    given = features.apply(rows)
    values = np.clip(model.scores(given)[:, 0], low, high) if model.n_classes == 0 else model.predict(given)
    kind = require_label(study)
    loaded = Model.load(data, n_components=study.n_features, kind=kind, n_classes=len(study.label.classes))
    found = loaded.predict_with_probabilities(rows)
    require_agreement((values, model.probabilities(given)), found, spread=high - low)


def _invent_rows(study: Study, n_rows: int, rng: np.random.Generator) -> Any:
    """Rows that the study's columns allow: uniform in each."""
    parts = []
    for column in study.columns:
        if column.kind == "category":
            part = np.eye(len(column.categories))[rng.integers(len(column.categories), size=n_rows)]
        else:
            part = rng.uniform(-1, 1, size=(n_rows, 1))
        extra = np.zeros((n_rows, column.width - part.shape[1]))
        parts += [part, extra]
    return np.hstack(parts)
