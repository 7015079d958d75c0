"""A simulated study of the general total: every contribution as `share` makes it, the total, and what an attacker sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from mooring.attacks.sums.pairwise_view import PairwiseView
from mooring.attacks.sums.view import LabelledFeatures
from mooring.audit.simulation import JointModel
from mooring.audit.sums.simulation import settle_privacy, show_total, words_from
from mooring.learners import Kind, LearnerLike
from mooring.learners.class_sums import QuadraticModel
from mooring.learners.fitting import MOST_ALONE
from mooring.learners.models import Predicted
from mooring.learners.registry import AUTO, resolve_sum_learner
from mooring.learners.sums import SumModel
from mooring.mechanisms.sums.general.features import LevelFeatures, extract_sums, select_schema
from mooring.mechanisms.sums.general.layout import PairwiseAccumulator, PairwiseLayout
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.guarantee import ProductNoise, SumPrivacy, calibrate_products
from mooring.mechanisms.sums.sums import Integers
from mooring.randomness import Streams
from mooring.tables.schema import Schema
from mooring.typing import Indices, Labels, Matrix


@dataclass(frozen=True, eq=False)
class PairwiseSimulation:
    """A simulated study of the general total with all its secrets."""

    layout: PairwiseLayout
    schema: Schema
    """The study's columns and label."""
    noise: ProductNoise | None
    """The noise that each participant adds; None without noise."""
    features: tuple[Matrix, ...] = field(repr=False)
    """Encoded rows of every participant."""
    labels: tuple[Labels | None, ...] = field(repr=False)
    """Labels of every participant's rows, as in `EncodedRows`; None where the study has no label."""
    contributions: tuple[Integers, ...] = field(repr=False)
    """The sums over every participant's rows, plus noise, each of shape (size,)."""
    exact: tuple[Integers, ...] = field(repr=False)
    """The same sums without noise."""
    privacy: SumPrivacy | None = None
    """The guarantee; None without noise."""

    @cached_property
    def total(self) -> PairwiseTotal:
        """The total that the analyst opens."""
        variance = 0.0 if self.noise is None else float(len(self.contributions) * self.noise.on_products)
        return self.layout.unpack(np.sum(self.contributions, axis=0), variance)

    def fit(self) -> SumModel | QuadraticModel:
        """Return the model of features that "auto" trains on the total."""
        return self._fit(self.total)

    def _fit(self, total: PairwiseTotal) -> SumModel | QuadraticModel:
        return resolve_sum_learner(AUTO, self._kind).train(extract_sums(total, self._model_schema), shrink=True)

    @property
    def features_of_model(self) -> LevelFeatures:
        """The features from which a model predicts the label. Rows must hold only the columns that the model uses."""
        return LevelFeatures(self.layout.workload, self._model_schema)

    @property
    def _model_schema(self) -> Schema:
        return select_schema(self.layout.workload, self.schema)

    def train(self, learner: LearnerLike = AUTO, *, seed: int = 0) -> JointModel:
        """Return the model that "auto", the default learner of sums, trains on the total.

        `learner` is ignored, since audits name learners of rows. `seed` is ignored, since nothing is drawn.
        """
        schema, features = self._model_schema, self.features_of_model
        kept = {column.name for column in schema.columns}
        chosen = np.concatenate([np.full(column.width, column.name in kept) for column in self.schema.columns])
        label, n_classes = schema.label, len(schema.label.classes)

        def apply(fitted: SumModel | QuadraticModel, new: Sequence[Matrix]) -> Predicted:
            phi = features.apply(np.concatenate(new)[:, chosen])
            predicted = fitted.predict(phi)
            if not n_classes:
                predicted = (label.low + label.high) / 2 + (label.high - label.low) / 2 * predicted
            return predicted, fitted.class_scores(phi)

        def answer_alone(new: Sequence[Matrix]) -> list[Predicted]:
            picked = np.unique(np.linspace(0, len(self.exact) - 1, MOST_ALONE).astype(np.intp))
            return [apply(self._fit(self.layout.unpack(self.exact[int(i)], 0.0)), new) for i in picked]

        model, name = self.fit(), resolve_sum_learner(AUTO, self._kind).name
        classes = np.arange(n_classes) if n_classes else None
        return JointModel(name, classes, lambda new: apply(model, new), answer_alone=answer_alone)

    @property
    def _kind(self) -> Kind:
        return "classes" if self.schema.label.kind == "classes" else "number"

    def view(self, colluders: Sequence[int] = (0,), *, asked: LabelledFeatures | None = None) -> PairwiseView:
        """Return the view of the analyst and some colluders, or of the analyst alone if `colluders` is empty.

        `asked` holds the candidate rows; attacks score their membership.
        """
        seen = show_total(self.contributions, self.members, colluders, asked)
        return PairwiseView(layout=self.layout, noise=self.noise, **seen)

    def views(self, colluders: Sequence[int], asked: LabelledFeatures) -> list[tuple[Indices, PairwiseView]]:
        """Return a single view, with the indices of all candidates in `asked`; see `SumSimulation.views`."""
        return [(np.arange(len(asked.features)), self.view(colluders, asked=asked))]

    def members(self, participants: Sequence[int]) -> LabelledFeatures:
        """Return the rows of these participants as they enter the sums."""
        return self.encode([self.features[i] for i in participants], [self.labels[i] for i in participants])

    def encode(self, rows: Sequence[Matrix], labels: Sequence[Labels | None]) -> LabelledFeatures:
        """Return other rows, given in parts, as they would enter the sums."""
        known = [part for part in labels if part is not None]
        weights, curves = self.layout.workload.weigh(np.concatenate(rows), np.concatenate(known) if known else None)
        both = np.hstack([weights, curves])
        return LabelledFeatures(both, np.zeros((len(both), 0)))


def simulate_general_total(
    datasets: Sequence[Matrix],
    labels: Sequence[Labels] | None,
    *,
    features: LevelFeatures,
    privacy: SumPrivacy | float | None,
    rng: np.random.Generator | Streams,
    rows_of_person: Sequence[Integers] | None = None,
) -> PairwiseSimulation:
    """Simulate a study of the general total from rows to the total.

    Parameters
    ----------
    datasets : sequence of arrays of shape (n_i, n_features)
        Encoded rows of every participant.
    labels : sequence of arrays of shape (n_i,), or None
        Codes of classes, or numbers in the units of the table; None where the study has no label.
    features : LevelFeatures
        The columns of the study, from `make_features` of its settings.
    privacy : SumPrivacy, float or None
        As for `simulate_sums`.
    rng : numpy.random.Generator or Streams
        Participant i draws from the streams "participant/i/sum-noise" and "participant/i/rounding".
    rows_of_person : sequence of integers of shape (n_i,), optional
        The number of rows of each row's person. With it, every person contributes the mean over its rows.
    """
    streams = rng if isinstance(rng, Streams) else Streams.drawn(rng)
    privacy = settle_privacy(privacy, len(datasets))
    layout = PairwiseLayout(features.workload, rows_of_person is not None)
    noise = None if privacy is None else calibrate_products(layout, privacy)
    exact, contributions = [], []
    outcomes: Sequence[Labels | None] = [None] * len(datasets) if labels is None else labels
    for i, (rows, known) in enumerate(zip(datasets, outcomes, strict=True)):
        sums = PairwiseAccumulator(layout, streams.named(f"participant/{i}/rounding"))
        sums.add(rows, known, None if rows_of_person is None else rows_of_person[i])
        words = words_from(streams.named(f"participant/{i}/sum-noise"))
        exact.append(sums.vector)
        contributions.append(exact[-1] if noise is None else exact[-1] + noise.draw(layout, words))
    parts = tuple(datasets), tuple(outcomes), tuple(contributions), tuple(exact)
    return PairwiseSimulation(layout, features.schema, noise, *parts, privacy)
