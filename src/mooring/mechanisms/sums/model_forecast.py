"""A forecast, before anybody shares, of how well a model of secure sums will do against guessing and training alone.

Rows are invented from the declaration, as for the forecasts of answers: categories are equally frequent, numbers have a bell
curve whose standard deviation is an eighth of the declared range, columns are independent, and nothing is missing. The
label is ρη + √(1 − ρ²)ε, cut into equally frequent classes if it has classes, where η is a linear function of the columns,
ε is normal, and η and ε have variance 1. With ρ of 0.3, 0.5 and 0.7, an unlimited number of rows would allow an AUC of 0.63,
0.73 and 0.83 for two classes. The sums over such rows get the noise of the study, and the study's learner is trained on
these noisy sums. A second model is trained, without noise, on one participant's share of the rows. The two models are scored
on further rows.

A gain over training alone of less than 0.03 AUC, or 0.01 R², counts as none. Invented columns are independent and have no
rare levels, which makes joining look slightly better than it is.

A forecast can also use a participant's own rows, or 22,000 of them, drawn at random, if there are more. Half of these rows
or more then stand for everybody's rows: their sums are scaled to the expected number of rows. The remaining rows are for
scoring. Such a forecast does not show what different rows of the other participants would add.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from mooring.learners import score_value, train_learner
from mooring.learners.models import FeatureMap, Kind
from mooring.learners.registry import AUTO, resolve_sum_learner
from mooring.learners.sums import Sums
from mooring.mechanisms.sums.features.columns import DECADES
from mooring.mechanisms.sums.general.features import LevelFeatures, extract_sums, select_schema
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.sums import Outcome
from mooring.serialization import FloatOrNaN, Record, Rows
from mooring.tables.schema import Column, Schema
from mooring.typing import Labels, Matrix, Vector

Outlook = Literal["better than training alone", "no better than training alone", "no better than guessing"]
RELATIONS = {"weak": 0.3, "moderate": 0.5, "strong": 0.7}
"""The assumed correlations ρ of the label with a linear function of the columns, by name."""
OWN_ROWS = "as in the table"
_TELL = {"weak": "weakly", "moderate": "moderately", "strong": "strongly"}
_OVER_GUESSING, _OVER_ALONE = {"AUC": 0.05, "R²": 0.02}, {"AUC": 0.03, "R²": 0.01}  # smaller gains are of no use
_MOST_ROWS, _TEST_ROWS, _N_DRAWS = 20_000, 2_000, 4
_MOST_FEATURES = 1_500  # beyond which a forecast takes minutes
_LEAST_OWN_ROWS = 40


@dataclass(frozen=True)
class ModelOutlook(Record):
    """The scores that are to be expected if the label follows the columns as strongly as is assumed."""

    relation: str
    """"weak", "moderate" or "strong"; "as in the table" for a participant's own rows."""
    joint: FloatOrNaN
    """Mean score of the model from everybody's sums."""
    alone: FloatOrNaN
    """Mean score of the model that is trained on one participant's rows."""
    gain_error: FloatOrNaN
    """Standard deviation of joint − alone over the simulations."""
    guessing: float
    """The score of guessing."""
    least_gains: tuple[float, float]
    """Minimum useful gains over guessing and over training alone."""

    @property
    def outlook(self) -> Outlook:
        """The likely benefit of joining.

        The joint model is better than guessing if its gain is at least the minimum useful gain. It is better than training
        alone if its gain exceeds both the minimum useful gain and `gain_error`.
        """
        over_guessing, over_alone = self.least_gains
        if not self.joint >= self.guessing + over_guessing:
            return "no better than guessing"
        if not self.joint - self.alone > max(self.gain_error, over_alone):
            return "no better than training alone"
        return "better than training alone"


@dataclass(frozen=True)
class ModelForecast(Record):
    """How well a model will do: on the assumption of a weak, moderate or strong relation, or on a participant's rows."""

    metric: str
    """"AUC" or "R²"."""
    lines: tuple[ModelOutlook, ...]

    @property
    def outlook(self) -> Outlook:
        """The outlook for a moderate relation, or for a participant's own rows."""
        return self.lines[len(self.lines) // 2].outlook

    def list_table(self) -> Rows:
        """Return a table with a line per assumption."""
        table: list[tuple[str, ...]] = [
            ("label follows columns", "the model is likely", f"{self.metric}, joint", "alone", "guessing")
        ]
        for line in self.lines:
            scores = (f"{score:.2f}" for score in (line.joint, line.alone, line.guessing))
            table.append((_TELL.get(line.relation, line.relation), line.outlook, *scores))
        return table


@dataclass(frozen=True, eq=False)
class ModelCase:
    """The model that a study trains: its features, its label, and the noise on the total."""

    features: FeatureMap
    schema: Schema
    log_scaled: frozenset[str]
    noise: tuple[float, float]
    """Standard deviations of the total's noise on S and on T. The general total has no T, and the second number is 0."""

    @property
    def kind(self) -> Kind:
        """Whether the model predicts classes or a number."""
        return "classes" if self.schema.label.kind == "classes" else "number"

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 for a number."""
        return len(self.schema.label.classes)

    @property
    def metric(self) -> str:
        """The score by which models are judged."""
        return "AUC" if self.n_classes else "R²"

    @property
    def guessing(self) -> float:
        """The score of guessing."""
        return 0.5 if self.n_classes else 0.0

    def guess(self, rows: Matrix, truth: Labels) -> float:
        """Return the score of guessing, which does not depend on the rows."""
        return self.guessing

    @property
    def can_be_forecast(self) -> bool:
        """Whether there are few enough features for a forecast within seconds."""
        return self.features.n_features <= _MOST_FEATURES


def forecast_model(case: ModelCase, n_rows: int, n_participants: int) -> ModelForecast:
    """Return how well a model will do, from the declaration alone.

    Parameters
    ----------
    case : ModelCase
        The study's features, label and noise.
    n_rows : int
        The number of rows that is expected of all participants together.
    n_participants : int
        The number of participants among whom the rows are split.
    """
    n_drawn = max(2 * n_participants, min(n_rows, _MOST_ROWS))
    n_alone = max(2, min(n_rows // n_participants, n_drawn))
    lines = []
    for name, correlation in RELATIONS.items():
        scores = []
        for draw in range(_N_DRAWS):
            rng = np.random.default_rng([draw, 41])
            rows, labels = _invent_rows(case, n_drawn + _TEST_ROWS, correlation, rng)
            train, test = slice(0, n_drawn), slice(n_drawn, None)
            joint = _train_jointly(case, rows[train], labels[train], n_rows, rng)
            alone = _train_alone(case, rows[:n_alone], labels[:n_alone])
            scores.append([model(rows[test], labels[test]) for model in (joint, alone)])
        lines.append(_summarise(case, name, np.array(scores)))
    return ModelForecast(case.metric, tuple(lines))


def forecast_on_rows(case: ModelCase, rows: Matrix, labels: Labels, n_rows: int) -> ModelForecast | None:
    """Return how well a model will do if everybody's rows are like these; None if they do not allow a forecast.

    A forecast needs 40 rows, and two or more different labels among the rows for training and among those for scoring.

    Parameters
    ----------
    case : ModelCase
        The study's features, label and noise.
    rows, labels : arrays of shape (n, n_features) and (n,)
        Encoded rows of one participant, and their labels as `EncodedRows` has them.
    n_rows : int
        The number of rows that is expected of all participants together.
    """
    if len(rows) < _LEAST_OWN_ROWS or np.unique(labels).size < 2:
        return None
    scores = []
    for draw in range(_N_DRAWS):
        rng = np.random.default_rng([draw, 43])
        order = rng.permutation(len(rows))[: _MOST_ROWS + _TEST_ROWS]
        test = order[: min(_TEST_ROWS, len(order) // 2)]
        train = order[len(test) :]
        if min(np.unique(labels[part]).size for part in (train, test)) < 2:
            continue
        models = (
            _train_jointly(case, rows[train], labels[train], n_rows, rng),
            _train_alone(case, rows[train], labels[train]),
        )
        scores.append([model(rows[test], labels[test]) for model in models])
    return ModelForecast(case.metric, (_summarise(case, OWN_ROWS, np.array(scores)),)) if scores else None


Judge = Callable[[Matrix, Labels], float]


def _summarise(case: ModelCase, name: str, scores: Matrix) -> ModelOutlook:
    joint, alone = scores.mean(axis=0)
    error = float((scores[:, 0] - scores[:, 1]).std())
    least_gains = _OVER_GUESSING[case.metric], _OVER_ALONE[case.metric]
    return ModelOutlook(name, float(joint), float(alone), error, case.guessing, least_gains)


def _train_jointly(case: ModelCase, rows: Matrix, labels: Labels, n_rows: int, rng: np.random.Generator) -> Judge:
    """Return the scorer of a model of everybody's sums, where these rows stand for `n_rows` rows; it may have to guess."""
    features = case.features
    with np.errstate(all="ignore"):
        try:
            sums = _sum_rows(case, rows, labels, n_rows / len(rows), rng)
            model = resolve_sum_learner(AUTO, case.kind).fit(sums, shrink=True)
        except ValueError:  # the noise leaves numbers that no rows have, and the analyst would get no model
            return case.guess
    if isinstance(features, LevelFeatures):
        features = LevelFeatures(features.workload, select_schema(features.workload, case.schema))

    def judge(new: Matrix, truth: Labels) -> float:
        phi = features.apply(_select_columns(case, new))
        shares = model.class_scores(phi)
        if shares is not None and not np.isfinite(shares).all():
            return case.guess(new, truth)
        return score_value(_scale_labels(case, truth), model.predict(phi), kind=case.kind, shares=shares)

    return judge


def _train_alone(case: ModelCase, rows: Matrix, labels: Labels) -> Judge:
    """Return the scorer of a model that is trained on these rows without noise. If all labels are equal, it guesses."""
    inputs = _select_columns(case, rows)
    if np.unique(labels).size < 2:
        return case.guess
    model = train_learner("linear", inputs, _scale_labels(case, labels), kind=case.kind, seed=0)

    def judge(new: Matrix, truth: Labels) -> float:
        new = _select_columns(case, new)
        shares = model.probabilities(new, case.n_classes) if case.n_classes else None
        return score_value(_scale_labels(case, truth), model.predict(new), kind=case.kind, shares=shares)

    return judge


def _sum_rows(case: ModelCase, rows: Matrix, labels: Labels, factor: float, rng: np.random.Generator) -> Sums:
    """Return the sums over rows, multiplied by a factor, with the noise of the study."""
    features = case.features
    if isinstance(features, LevelFeatures):
        total = sum_exactly(features.workload, rows, labels)
        total = replace(total, matrix=factor * total.matrix).with_noise(rng, case.noise[0] ** 2)
        return extract_sums(total, select_schema(features.workload, case.schema))
    phi, outcome = features.apply(rows), Outcome(case.n_classes)
    coded = outcome.encode(_scale_labels(case, labels).astype(np.float64)) / outcome.unit
    S, T = factor * phi.T @ phi, factor * phi.T @ coded
    upper = np.triu(rng.normal(scale=case.noise[0] / math.sqrt(2), size=S.shape), 1)
    S += upper + upper.T + np.diag(rng.normal(scale=case.noise[0], size=len(S)))
    T += rng.normal(scale=case.noise[1], size=T.shape)
    return Sums(S, T, features.constant_share, case.n_classes, case.noise, features.unit_length)


def _select_columns(case: ModelCase, rows: Matrix) -> Matrix:
    """Return the entries of encoded rows from which the model predicts."""
    if not isinstance(case.features, LevelFeatures):
        return rows
    kept = {column.name for column in select_schema(case.features.workload, case.schema).columns}
    return rows[:, np.repeat([column.name in kept for column in case.schema.columns], _widths(case.schema))]


def _widths(schema: Schema) -> list[int]:
    return [column.width for column in schema.columns]


def _scale_labels(case: ModelCase, labels: Labels) -> Labels:
    """Return class codes unchanged, and numbers mapped from the declared range to −1 to 1."""
    if case.n_classes:
        return labels
    low, high = case.schema.label.low, case.schema.label.high
    return np.asarray(np.clip((2 * labels - low - high) / (high - low), -1.0, 1.0))


def _invent_rows(case: ModelCase, n: int, correlation: float, rng: np.random.Generator) -> tuple[Matrix, Labels]:
    """Return invented encoded rows, and their labels as `EncodedRows` has them."""
    parts, linear = list[Matrix](), np.zeros(n)
    for column in case.schema.columns:
        entries, values = _invent_column(column, column.name in case.log_scaled, n, rng)
        parts.append(entries)
        linear += values
    spread = float(linear.std()) or 1.0
    latent = correlation * (linear - linear.mean()) / spread
    latent += math.sqrt(1 - correlation**2) * rng.standard_normal(n)
    rows = np.hstack(parts)
    if case.n_classes:
        return rows, np.searchsorted(np.quantile(latent, np.arange(1, case.n_classes) / case.n_classes), latent)
    label = case.schema.label
    return rows, np.clip((label.low + label.high) / 2 + (label.high - label.low) / 8 * latent, label.low, label.high)


def _invent_column(column: Column, is_log: bool, n: int, rng: np.random.Generator) -> tuple[Matrix, Vector]:
    """Return a column's entries in encoded rows, and the column's contribution to η, whose coefficients are random."""
    entries = np.zeros((n, column.width))
    if column.kind == "category":
        codes = rng.integers(len(column.categories), size=n)
        entries[np.arange(n), codes] = 1.0
        return entries, rng.standard_normal(len(column.categories))[codes]
    place = np.clip(rng.standard_normal(n) / 4, -1.0, 1.0)
    entries[:, 0] = place
    if is_log:
        entries[:, 0] = 2 * np.expm1((place + 1) / 2 * math.log(DECADES)) / (DECADES - 1) - 1
    return entries, 4 * place * rng.standard_normal()
