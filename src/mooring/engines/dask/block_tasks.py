"""What a worker does with a few parts of the collaboration matrix: sums, a chain's next step, predictions."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import SGDClassifier

from mooring.learners.conversion import convert_features
from mooring.learners.fitted import FittedModel
from mooring.learners.models import LinearFunction, Model, ModelSpec
from mooring.learners.registry import LEARNERS, EstimatorLearner, LinearSettings
from mooring.protocol.analyst.collaboration_matrix import decode_block, read_row_groups
from mooring.protocol.messages.study import Study
from mooring.typing import Indices, Matrix

_AT_ONCE = 8192


@dataclass(frozen=True)
class Piece:
    """A part of the matrix."""

    path: Path
    place: int
    """Whose it is."""
    fold: int
    """The fold in which that participant is left out."""
    start: int = 0
    stop: int = 0
    """Which of the participant's rows it holds."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows."""

    count: int
    total: Matrix
    """Of shape (h,): of the rows."""
    squares: float
    """Of all their entries' squares."""
    labels: npt.NDArray[np.int64]
    """Of shape (classes,): how many rows there are of each class."""
    number: Matrix
    """Of shape (2,): of the number to predict, and of its square."""

    @classmethod
    def none(cls, study: Study) -> Moments:
        """Of no rows."""
        classes = len(study.label.classes)
        return cls(0, np.zeros(study.n_components), 0.0, np.zeros(classes, dtype=np.int64), np.zeros(2))

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def scale(self) -> float:
        """The standard deviation of the rows, over all columns; 1 where they are all alike."""
        mean = self.total / self.count
        variance = self.squares / (self.count * self.total.size) - float(np.mean(mean**2))
        return float(np.sqrt(max(variance, 0.0))) or 1.0

    @property
    def unit(self) -> tuple[float, float]:
        """The mean of the number to predict, and its standard deviation or 1 where it is always the same."""
        mean, square = self.number / self.count
        return float(mean), float(np.sqrt(max(0.0, square - mean**2))) or 1.0


@dataclass(frozen=True, eq=False)
class Features:
    """What a learner takes: rows divided by one scale, or features of them."""

    learner: str
    n_components: int
    """Columns of the rows, h."""
    scale: float
    made_by: Any
    """The linear model's transformer."""

    @classmethod
    def of(cls, learner: str, moments: Moments, *, seed: int) -> Features:
        """The features that the local learner of this name has, for rows with these sums."""
        h, scale, settings = moments.total.size, moments.scale, linear_settings(learner)
        mean = moments.total / moments.count
        # Rows around their mean take nothing but the mean from what they are fitted to, random Fourier features nothing.
        return cls(learner, h, scale, settings.features(h, seed).fit(mean[None] / scale))

    @property
    def width(self) -> int:
        """How many features there are."""
        return int(getattr(self.made_by, "n_components", self.n_components))

    @property
    def squared_length(self) -> float:
        """The mean squared length of a row of features."""
        return 1.0 if hasattr(self.made_by, "n_components") else float(self.n_components)

    def made(self, rows: Matrix) -> Matrix:
        """The features of rows."""
        return np.asarray(self.made_by.transform(rows / self.scale))


def linear_settings(learner: str) -> LinearSettings:
    """The settings of a linear learner in the registry."""
    found = LEARNERS[learner]
    assert isinstance(found, EstimatorLearner)
    assert found.linear is not None
    return found.linear


def fitted_from(
    features: Features, weights: Matrix, intercepts: npt.ArrayLike, classes: npt.NDArray[Any] | None = None
) -> FittedModel:
    """A linear model on the features, as arrays; of two classes, the only weights are those of the second's score."""
    turned, offsets = np.atleast_2d(weights).T, np.ravel(intercepts)
    if classes is None:
        spec, codes = ModelSpec(features.n_components, 0), np.zeros(1, dtype=np.int32)
    else:
        spec, codes = ModelSpec(features.n_components, int(classes.max()) + 1), classes.astype(np.int32)
        if classes.size == 2:
            turned, offsets = np.hstack([0 * turned, turned]), np.r_[0.0, offsets]
    function = convert_features(features.made_by, turned, offsets, features.scale)
    return FittedModel(features.learner, Model(spec, function, "none" if classes is None else "softmax", codes))


def fitted_to_one_class(learner: str, n_components: int, label: int) -> FittedModel:
    """The model of rows that are all of one class."""
    function = LinearFunction(np.zeros((n_components, 1)), np.zeros(1))
    classes = np.array([label], dtype=np.int32)
    return FittedModel(learner, Model(ModelSpec(n_components, label + 1), function, "softmax", classes))


def blocks_of(study: Study, piece: Piece) -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
    """The rows and labels of a part, some thousands at a time, however its row groups are cut."""
    waiting: list[tuple[npt.NDArray[np.float32], npt.NDArray[Any]]] = []
    for table in read_row_groups(piece.path):
        _, rows, labels = decode_block(table, study)
        assert labels is not None
        waiting.append((rows, labels))
        if sum(len(own) for own, _ in waiting) >= _AT_ONCE:
            yield from _cut(waiting)
            waiting = []
    yield from _cut(waiting)


def _cut(
    waiting: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[Any]]],
) -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
    if not waiting:
        return
    rows, labels = (np.concatenate([each[k] for each in waiting]) for k in range(2))
    for start in range(0, len(rows), _AT_ONCE):
        yield rows[start : start + _AT_ONCE].astype(np.float64), labels[start : start + _AT_ONCE]


def picked_rows(
    study: Study, pieces: Sequence[Piece], positions: Sequence[Indices]
) -> list[tuple[Matrix, npt.NDArray[Any]]]:
    """Of each of some parts, the rows and labels at these positions in it."""
    found = []
    for piece, wanted in zip(pieces, positions, strict=True):
        first, rows, labels = 0, [np.zeros((0, study.n_components))], [np.zeros(0, dtype=np.int8)]
        for block, own in blocks_of(study, piece) if wanted.size else ():
            picks = wanted[(wanted >= first) & (wanted < first + len(block))] - first
            rows.append(block[picks])
            labels.append(own[picks])
            first += len(block)
        found.append((np.concatenate(rows), np.concatenate(labels)))
    return found


def moments_of(study: Study, pieces: Sequence[Piece]) -> Moments:
    """Sums over some parts."""
    found = Moments.none(study)
    for piece in pieces:
        for rows, labels in blocks_of(study, piece):
            counts, number = np.zeros(0, dtype=np.int64), np.zeros(2)
            if study.label.kind == "classes":
                counts = np.bincount(labels, minlength=found.labels.size)
            else:
                told = labels.astype(np.float64)
                number = np.array([told.sum(), (told**2).sum()])
            found = found + Moments(len(rows), rows.sum(axis=0), float((rows**2).sum()), counts, number)
    return found


def ridge_sums(study: Study, pieces: Sequence[Piece], features: Features) -> dict[int, Matrix]:
    """By fold, ΣAᵀA with A = [1, features, label]."""
    found: dict[int, Matrix] = {}
    for piece in pieces:
        for rows, labels in blocks_of(study, piece):
            A = np.column_stack([np.ones(len(rows)), features.made(rows), labels])
            own = A.T @ A
            found[piece.fold] = found[piece.fold] + own if piece.fold in found else own
    return found


def solve_ridge(sums: Matrix, *, alpha: float) -> tuple[Matrix, float]:
    """Weights and intercept of the ridge regression that these sums belong to."""
    count = sums[0, 0]
    if count < 1:
        return np.zeros(len(sums) - 2), 0.0
    mean = sums[0, 1:] / count
    around = sums[1:, 1:] - count * np.outer(mean, mean)
    weights = np.linalg.solve(around[:-1, :-1] + alpha * np.eye(len(mean) - 1), around[:-1, -1])
    return weights, float(mean[-1] - mean[:-1] @ weights)


def start_chain(features: Features, classes: npt.NDArray[np.int64], n_models: int, alpha: float) -> list[SGDClassifier]:
    """Models that know nothing yet: one without each fold, and one of everybody."""
    model = SGDClassifier(
        loss="log_loss",
        alpha=alpha,
        learning_rate="invscaling",
        eta0=1 / features.squared_length,
        power_t=0.25,
        shuffle=True,
        random_state=0,
    )
    model.partial_fit(np.zeros((1, features.width)), classes[:1], classes=classes)
    model.coef_[:], model.intercept_[:] = 0.0, 0.0
    return [copy.deepcopy(model) for _ in range(n_models)]


def advance(
    models: Sequence[SGDClassifier], study: Study, features: Features, pieces: Sequence[Piece], seed: int
) -> list[SGDClassifier]:
    """The next step of a chain: every model learns from these parts, but for the one without their fold."""
    own = copy.deepcopy(list(models))  # what another task may still read stays as it is
    for model in own:
        model.random_state = seed
    for piece in pieces:
        for rows, labels in blocks_of(study, piece):
            X = features.made(rows)
            for k, model in enumerate(own):
                if k != piece.fold:  # the last one leaves nobody out
                    model.partial_fit(X, labels)
    return own


def average_models(*ends: Sequence[SGDClassifier]) -> list[SGDClassifier]:
    """The mean of several chains, model by model."""
    found = []
    for same in zip(*ends, strict=True):
        model = copy.deepcopy(same[0])
        model.coef_ = np.mean([each.coef_ for each in same], axis=0)
        model.intercept_ = np.mean([each.intercept_ for each in same], axis=0)
        model.t_ = float(np.mean([each.t_ for each in same]))
        found.append(model)
    return found
