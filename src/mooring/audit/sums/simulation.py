"""A simulated study of sums: every contribution as `share` makes it, the total, and what an attacker sees of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.attacks.sums.view import LabelledFeatures, SumView
from mooring.attacks.view import check_roles
from mooring.audit.simulation import JointModel
from mooring.errors import InputError
from mooring.learners import LearnerLike
from mooring.learners.class_sums import ClassSums, QuadraticModel
from mooring.learners.fitting import MOST_ALONE
from mooring.learners.models import FeatureMap, Kind, Predicted
from mooring.learners.registry import AUTO, SumLearner, resolve_sum_learner
from mooring.learners.sums import SumModel, Sums
from mooring.mechanisms.sums.class_moments import ClassAccumulator, ClassLayout
from mooring.mechanisms.sums.features.columns import RowFeatures
from mooring.mechanisms.sums.guarantee import (
    Noise,
    SumNoise,
    SumPrivacy,
    calibrate_products,
    calibrate_sums,
)
from mooring.mechanisms.sums.prime_field import Words
from mooring.mechanisms.sums.sums import Integers, Outcome, SumAccumulator, SumLayout
from mooring.randomness import Streams
from mooring.tables.records import label_kind_of
from mooring.typing import Indices, Labels, Matrix


@dataclass(frozen=True, eq=False)
class LabelCoding:
    """How labels enter the sums: codes of classes, or numbers scaled to [−1, 1]."""

    classes: Labels | None
    """The classes in the order of their codes; None for a number."""
    unit: float = 1.0
    """The largest magnitude of a number, which a study declares."""

    @classmethod
    def of(cls, values: Labels) -> LabelCoding:
        """Return the coding of labels that take these values: 64-bit floats are numbers; other values name classes."""
        if label_kind_of(values) == "number":
            return cls(None, float(np.abs(values).max()) or 1.0)
        return cls(np.unique(values))

    @property
    def n_classes(self) -> int:
        """The number of classes; 0 for a number."""
        return 0 if self.classes is None else len(self.classes)

    def encode(self, labels: Labels) -> Matrix:
        """Return labels as they enter the sums."""
        if self.classes is None:
            return np.asarray(labels / self.unit, dtype=np.float64)
        return np.searchsorted(self.classes, labels).astype(np.float64)

    def decode(self, predictions: Labels) -> Labels:
        """Return predictions of a model of sums as labels."""
        if self.classes is None:
            return np.asarray(self.unit * predictions)
        return np.asarray(self.classes[predictions.astype(np.intp)])


@dataclass(frozen=True, eq=False)
class SumSimulation:
    """A simulated study of sums with all its secrets."""

    layout: SumLayout | ClassLayout
    feature_map: FeatureMap
    noise: Noise | None
    """The noise that each participant adds; None without noise."""
    features: tuple[Matrix, ...] = field(repr=False)
    """The features φ of every participant's rows, each of shape (n_i, D)."""
    labels: tuple[Matrix, ...] = field(repr=False)
    """Labels as they enter the sums, each of shape (n_i,)."""
    contributions: tuple[Integers, ...] = field(repr=False)
    """The sums over every participant's rows, plus noise, each of shape (size,)."""
    coding: LabelCoding = field(repr=False)
    privacy: SumPrivacy | None = None
    """The guarantee; None without noise."""
    rows_of_person: Sequence[Integers] | None = field(default=None, repr=False)
    """The number of rows of each row's person; None if every row counts on its own."""

    @cached_property
    def total(self) -> Integers:
        """The total that the analyst opens."""
        return np.asarray(np.sum(self.contributions, axis=0))

    @property
    def sums(self) -> Sums | ClassSums:
        """The total in the form that learners use."""
        return self._as_sums(self.total, len(self.contributions))

    def exact_sums_of(self, participant: int) -> Sums | ClassSums:
        """Return one participant's own sums, without noise, in the form that learners use."""
        i, rng = participant, np.random.default_rng(participant)
        persons = None if self.rows_of_person is None else self.rows_of_person[i]
        return self._as_sums(_sum_exactly(self.layout, self.features[i], self.labels[i], rng, persons), 0)

    def _as_sums(self, vector: Integers, n_noises: int) -> Sums | ClassSums:
        """Return a vector as sums. The vector carries the noise of `n_noises` participants."""
        layout, noise, features = self.layout, self.noise, self.feature_map
        c0, unit_length = features.constant_share, features.unit_length
        if isinstance(layout, ClassLayout):
            scale = math.sqrt(n_noises * noise.on_products) / layout.scale**2 if noise is not None else 0.0
            return ClassSums(layout.unpack(vector), c0, scale, unit_length)
        S, T = layout.unpack(vector)
        scales = noise.scales(layout, n_noises) if isinstance(noise, SumNoise) else (0.0, 0.0)
        return Sums(S, T, c0, layout.outcome.n_classes, scales, unit_length)

    def train(self, learner: LearnerLike = "auto", *, seed: int = 0) -> JointModel:
        """Return a model that is trained on the total, with the learner of sums that "auto" chooses.

        `learner` is ignored, since audits name learners of rows, which cannot be trained on a total. `seed` is ignored,
        since nothing is drawn.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> labels = [rng.integers(0, 2, 200) for _ in range(4)]
        >>> rows = [rng.standard_normal((200, 3)) + 4 * part[:, None] - 2 for part in labels]
        >>> simulation = simulate_sums(rows[:3], labels[:3], privacy=1.0, rng=rng)
        >>> float(np.mean(simulation.train().predict([rows[3]]) == labels[3])) > 0.95
        True
        """
        model = self.fit()

        def apply(fitted: SumModel | QuadraticModel, phi: Matrix) -> Predicted:
            return self.coding.decode(fitted.predict(phi)), fitted.class_scores(phi)

        def answer(new: Sequence[Matrix]) -> Predicted:
            return apply(model, np.concatenate([self.feature_map.apply(part) for part in new]))

        def answer_alone(new: Sequence[Matrix]) -> list[Predicted]:
            phi = np.concatenate([self.feature_map.apply(part) for part in new])
            chosen = np.unique(np.linspace(0, len(self.features) - 1, MOST_ALONE).astype(np.intp))
            return [apply(self._fit(self.exact_sums_of(int(i))), phi) for i in chosen]

        return JointModel(self._learner.name, self.coding.classes, answer, answer_alone=answer_alone)

    def fit(self) -> SumModel | QuadraticModel:
        """Return the model of features that "auto" trains on the total."""
        return self._fit(self.sums)

    def _fit(self, sums: Sums | ClassSums) -> SumModel | QuadraticModel:
        return self._learner.train(sums, shrink=not self.feature_map.is_dense)

    @property
    def _learner(self) -> SumLearner:
        kind: Kind = "number" if self.coding.classes is None else "classes"
        return resolve_sum_learner(AUTO, kind, by_class=isinstance(self.layout, ClassLayout))

    def view(self, colluders: Sequence[int] = (0,), *, asked: LabelledFeatures | None = None) -> SumView:
        """Return the view of the analyst and some colluders, or of the analyst alone if `colluders` is empty.

        `asked` holds the candidate rows; attacks score their membership. Sums by class are refused, since they have a
        view for each class (`views`).
        """
        layout, noise = self.layout, self.noise
        if isinstance(layout, ClassLayout):
            problem = "Sums by class have a view for each class."
            raise InputError("view", problem=problem, cure="Use `views`.")
        return SumView(
            layout=layout,
            constant_share=self.feature_map.constant_share,
            noise=noise if isinstance(noise, SumNoise) else None,
            **show_total(self.contributions, self.members, colluders, asked),
        )

    def views(self, colluders: Sequence[int], asked: LabelledFeatures) -> list[tuple[Indices, SumView]]:
        """Return one view of all sums or, for sums by class, one view for each class.

        Each view comes with the indices, in `asked`, of the candidates that the view holds. A view for a class holds the
        candidates of that class, since the sums of other classes do not depend on them. Sums by class are sums of products,
        without outcomes.
        """
        layout, noise = self.layout, self.noise
        if not isinstance(layout, ClassLayout):
            return [(np.arange(len(asked.features)), self.view(colluders, asked=asked))]
        views, known = list[tuple[Indices, SumView]](), self.members(colluders) if colluders else None
        for k in range(layout.n_classes):
            of_class = SumLayout(layout.n_features, Outcome(0), layout.scale)
            part = slice(k * layout.n_products, (k + 1) * layout.n_products)

            def pad(vector: Integers, part: slice = part) -> Integers:
                """Return the sums of the class, with zeros for outcomes."""
                return np.concatenate([vector[part], np.zeros(layout.n_features, dtype=np.int64)])

            places = np.flatnonzero(asked.outcomes.argmax(axis=1) == k)
            view = SumView(
                layout=of_class,
                constant_share=self.feature_map.constant_share,
                noise=None if noise is None else SumNoise(noise.on_products, 1),
                total=pad(self.total),
                n_contributions=len(self.contributions),
                known=tuple(pad(self.contributions[c]) for c in colluders),
                population=None
                if known is None
                else known.without_outcomes(np.flatnonzero(known.outcomes.argmax(axis=1) == k)),
                asked=asked.without_outcomes(places),
            )
            views.append((places, view))
        return views

    def members(self, participants: Sequence[int]) -> LabelledFeatures:
        """Return the rows of these participants as they enter the sums."""
        parts = [(self.features[i], self.labels[i]) for i in participants]
        return LabelledFeatures.encode(self.layout, *(np.concatenate(part) for part in zip(*parts, strict=True)))

    def encode(self, rows: Sequence[Matrix], labels: Sequence[Labels]) -> LabelledFeatures:
        """Return other rows, given in parts, as they would enter the sums."""
        features = np.concatenate([self.feature_map.apply(part) for part in rows])
        return LabelledFeatures.encode(self.layout, features, self.coding.encode(np.concatenate(labels)))


def show_total(
    contributions: Sequence[Integers],
    members: Callable[[Sequence[int]], LabelledFeatures],
    colluders: Sequence[int],
    asked: LabelledFeatures | None,
) -> dict[str, Any]:
    """Return the fields of `TotalView` for some colluders; `members` returns the rows of participants."""
    p = len(contributions)
    check_roles(next((i for i in range(p) if i not in colluders), 0), colluders, p)
    return {
        "total": np.asarray(np.sum(contributions, axis=0)),
        "n_contributions": p,
        "known": tuple(contributions[c] for c in colluders),
        "population": members(colluders) if colluders else None,
        "asked": asked,
    }


def simulate_sums(
    datasets: Sequence[Matrix],
    labels: Sequence[Labels],
    *,
    privacy: SumPrivacy | float | None,
    feature_map: FeatureMap | None = None,
    label_values: npt.ArrayLike | None = None,
    rng: np.random.Generator | Streams,
    rows_of_person: Sequence[Integers] | None = None,
    by_class: bool = False,
) -> SumSimulation:
    """Simulate a study of secure sums from rows to the total.

    Parameters
    ----------
    datasets : sequence of arrays of shape (n_i, n_features)
        The rows of every participant, with numbers in about [−1, 1].
    labels : sequence of arrays of shape (n_i,)
        64-bit floats are numbers; everything else names a class.
    privacy : SumPrivacy, float or None
        The guarantee. A number is ε for adding or removing one row, with δ = 1e-5, a quorum of all participants and one
        colluder. None for sums without noise, which carry no guarantee.
    feature_map : FeatureMap, optional
        The public feature map; by default the rows themselves, scaled to length one.
    label_values : array, optional
        The classes, or numbers whose largest magnitude bounds the labels, as a study declares them; by default, the labels.
    rng : numpy.random.Generator or Streams
        Participant i draws its noise from the stream "participant/i/sum-noise". If sums are by class, it draws their
        rounding from "participant/i/rounding".
    rows_of_person : sequence of integers of shape (n_i,), optional
        The number of rows of each row's person. With it, every person contributes the mean over its rows.
    by_class : bool, default False
        Whether the rows of each class are summed on their own, as a study of pictures with enough rows does.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> rows, labels = [rng.standard_normal((30, 3)) for _ in range(3)], [rng.integers(0, 2, 30) for _ in range(3)]
    >>> simulation = simulate_sums(rows, labels, privacy=None, rng=rng)
    >>> round(simulation.sums.n_rows)
    90
    """
    streams = rng if isinstance(rng, Streams) else Streams.drawn(rng)
    p = len(datasets)
    privacy = settle_privacy(privacy, p)
    feature_map = RowFeatures(datasets[0].shape[1]) if feature_map is None else feature_map
    coding = LabelCoding.of(np.concatenate(labels) if label_values is None else np.asarray(label_values))
    layout: SumLayout | ClassLayout = SumLayout(feature_map.n_features, Outcome(coding.n_classes))
    if by_class:
        layout = ClassLayout(feature_map.n_features, coding.n_classes)
    noise = None if privacy is None else _calibrate(layout, privacy)
    features = tuple(feature_map.apply(rows) for rows in datasets)
    encoded = tuple(coding.encode(part) for part in labels)
    contributions = []
    for i, (phi, outcomes) in enumerate(zip(features, encoded, strict=True)):
        rounding, words = (streams.named(f"participant/{i}/{what}") for what in ("rounding", "sum-noise"))
        persons = None if rows_of_person is None else rows_of_person[i]
        vector = _sum_exactly(layout, phi, outcomes, rounding, persons)
        contributions.append(vector if noise is None else vector + noise.draw(layout, words_from(words)))
    return SumSimulation(
        layout, feature_map, noise, features, encoded, tuple(contributions), coding, privacy, rows_of_person
    )


def settle_privacy(privacy: SumPrivacy | float | None, n_participants: int) -> SumPrivacy | None:
    """Return the guarantee of a simulation; a number is ε, with δ = 1e-5, a quorum of all and one colluding participant."""
    if isinstance(privacy, int | float):
        return SumPrivacy(float(privacy), 1e-5, quorum=n_participants, n_colluders=1)
    if privacy is not None and privacy.quorum > n_participants:
        raise InputError(
            "quorum",
            expected=f"at most {n_participants}, the number of participants",
            got=str(privacy.quorum),
            cure="Lower the quorum, since no total could be opened.",
        )
    return privacy


def _calibrate(layout: SumLayout | ClassLayout, privacy: SumPrivacy) -> Noise:
    return calibrate_sums(layout, privacy) if isinstance(layout, SumLayout) else calibrate_products(layout, privacy)


def _sum_exactly(
    layout: SumLayout | ClassLayout,
    features: Matrix,
    labels: Matrix,
    rounding: np.random.Generator,
    rows_of_person: Integers | None = None,
) -> Integers:
    """Return the sums over rows without noise."""
    sums = ClassAccumulator(layout, rounding) if isinstance(layout, ClassLayout) else SumAccumulator(layout)
    sums.add(features, labels, rows_of_person)
    return sums.vector


def words_from(rng: np.random.Generator) -> Words:
    """Return a function that draws uniform words for a simulation; a real participant derives its words from its secret."""
    return lambda count: rng.integers(2**64, size=count, dtype=np.uint64)
