"""Tasks of a worker on parts of the collaboration matrix: reading rows, sums over rows, and training steps."""

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
from mooring.learners.models import LinearFunction, Link, Model, ModelSpec
from mooring.learners.registry import LEARNERS, EstimatorLearner, LinearSettings
from mooring.learners.sums import solve_ridge
from mooring.protocol.messages.study import Study
from mooring.protocol.rotation.analyst.collaboration_matrix import decode_block, read_row_groups
from mooring.protocol.rotation.scheme import rotation_of
from mooring.typing import Indices, Matrix, Vector

_ROWS_AT_ONCE = 8192


@dataclass(frozen=True, eq=False)
class Piece:
    """A part of the matrix, with rows of one participant."""

    path: Path
    place: int
    """Index of the participant."""
    fold: int
    """The fold in which the participant is left out."""
    start: int = 0
    """Index of the first row in this part, among the participant's rows."""
    stop: int = 0
    """Index after that of the last row in this part."""
    kept: Indices | None = None
    """Positions of the rows to train on, counted from the start of this part, in ascending order; None for all rows."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over rows."""

    count: int
    """Number of rows."""
    total: Matrix
    """Sum of the rows, of shape (h,)."""
    squares: float
    """Sum of the squares of all entries."""
    labels: npt.NDArray[np.int64]
    """Number of rows of each class, of shape (classes,)."""
    number: Matrix
    """Sums of the number to predict and of its square, of shape (2,)."""

    @classmethod
    def none(cls, study: Study) -> Moments:
        """Return the sums over no rows."""
        classes = len(study.label.classes)
        return cls(0, np.zeros(rotation_of(study).n_components), 0.0, np.zeros(classes, dtype=np.int64), np.zeros(2))

    def __add__(self, other: Moments) -> Moments:
        return Moments(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    @property
    def scale(self) -> float:
        """The standard deviation of the rows over all columns; 1 if all rows are equal."""
        mean = self.total / self.count
        variance = self.squares / (self.count * self.total.size) - float(np.mean(mean**2))
        return float(np.sqrt(max(variance, 0.0))) or 1.0

    @property
    def unit(self) -> tuple[float, float]:
        """The mean of the number to predict, and its standard deviation, or 1 if it is constant."""
        mean, square = self.number / self.count
        return float(mean), float(np.sqrt(max(0.0, square - mean**2))) or 1.0


@dataclass(frozen=True, eq=False)
class Features:
    """The features of a linear learner: rows divided by a common scale, and then centred or mapped to random features."""

    learner: str
    n_components: int
    """Columns of the rows, h."""
    scale: float
    made_by: Any
    """The scikit-learn transformer that makes the features from scaled rows."""

    @classmethod
    def of(cls, learner: str, moments: Moments, *, seed: int) -> Features:
        """Return the features of the local learner of this name, for rows with these sums."""
        h, scale, settings = moments.total.size, moments.scale, linear_settings(learner)
        mean = moments.total / moments.count
        # Centring is fitted to the mean row alone, and random Fourier features to no row, so that the mean row suffices.
        return cls(learner, h, scale, settings.features(h, seed).fit(mean[None] / scale))

    @property
    def width(self) -> int:
        """The number of features."""
        return int(getattr(self.made_by, "n_components", self.n_components))

    @property
    def squared_length(self) -> float:
        """The approximate mean of the squared length of a row of features."""
        return 1.0 if hasattr(self.made_by, "n_components") else float(self.n_components)

    def made(self, rows: Matrix) -> Matrix:
        """Return the features of rows."""
        return np.asarray(self.made_by.transform(rows / self.scale))


def linear_settings(learner: str) -> LinearSettings:
    """Return the settings of a linear learner in the registry."""
    registered = LEARNERS[learner]
    assert isinstance(registered, EstimatorLearner)
    assert registered.linear is not None
    return registered.linear


def fitted_from(
    features: Features,
    weights: Matrix,
    intercepts: npt.ArrayLike,
    classes: npt.NDArray[Any] | None = None,
    class_shares: Vector | None = None,
) -> FittedModel:
    """Return a linear model on the features. For two classes, `weights` has one row, for the second class."""
    turned, offsets = np.atleast_2d(weights).T, np.ravel(intercepts)
    if classes is None:
        spec, codes = ModelSpec(features.n_components, 0), np.zeros(1, dtype=np.int32)
    else:
        spec, codes = ModelSpec(features.n_components, int(classes.max()) + 1), classes.astype(np.int32)
        if classes.size == 2:
            turned, offsets = np.hstack([0 * turned, turned]), np.r_[0.0, offsets]
    function = convert_features(features.made_by, turned, offsets, features.scale)
    link: Link = "none" if classes is None else "softmax"
    shares = np.ones(1) if class_shares is None else class_shares
    return FittedModel(features.learner, Model(spec, function, link, codes, shares))


def fitted_to_one_class(learner: str, n_components: int, label: int) -> FittedModel:
    """Return the model of rows that all have one class."""
    function = LinearFunction(np.zeros((n_components, 1)), np.zeros(1))
    classes = np.array([label], dtype=np.int32)
    return FittedModel(learner, Model(ModelSpec(n_components, label + 1), function, "softmax", classes, np.ones(1)))


def training_blocks(study: Study, piece: Piece) -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
    """Yield the rows of a part that are trained on, with their labels, in blocks of at most `_ROWS_AT_ONCE` rows."""
    first = 0
    for rows, labels in blocks_of(study, piece):
        if piece.kept is not None:
            picks = piece.kept[(piece.kept >= first) & (piece.kept < first + len(rows))] - first
            first += len(rows)
            rows, labels = rows[picks], labels[picks]
        if len(rows):
            yield rows, labels


def blocks_of(
    study: Study, piece: Piece, rows_at_once: int = _ROWS_AT_ONCE
) -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
    """Yield the rows and labels of a part in blocks of at most this many rows, whatever the size of its row groups."""
    waiting: list[tuple[npt.NDArray[np.float32], npt.NDArray[Any]]] = []
    for table in read_row_groups(piece.path):
        _, rows, labels = decode_block(table, study)
        assert labels is not None
        waiting.append((rows, labels))
        if sum(len(block) for block, _ in waiting) >= rows_at_once:
            yield from _cut(waiting, rows_at_once)
            waiting = []
    yield from _cut(waiting, rows_at_once)


def _cut(
    waiting: Sequence[tuple[npt.NDArray[np.float32], npt.NDArray[Any]]], rows_at_once: int
) -> Iterator[tuple[Matrix, npt.NDArray[Any]]]:
    if not waiting:
        return
    rows, labels = (np.concatenate([each[k] for each in waiting]) for k in range(2))
    for start in range(0, len(rows), rows_at_once):
        yield rows[start : start + rows_at_once].astype(np.float64), labels[start : start + rows_at_once]


def picked_rows(
    study: Study, pieces: Sequence[Piece], positions: Sequence[Indices], rows_at_once: int = _ROWS_AT_ONCE
) -> list[tuple[Matrix, npt.NDArray[Any]]]:
    """Return for each part the rows and labels at its given positions, which must be in ascending order."""
    picked = []
    for piece, wanted in zip(pieces, positions, strict=True):
        first, rows, labels = 0, [np.zeros((0, rotation_of(study).n_components))], [np.zeros(0, dtype=np.int8)]
        for block, block_labels in blocks_of(study, piece, rows_at_once) if wanted.size else ():
            picks = wanted[(wanted >= first) & (wanted < first + len(block))] - first
            rows.append(block[picks])
            labels.append(block_labels[picks])
            first += len(block)
        picked.append((np.concatenate(rows), np.concatenate(labels)))
    return picked


def moments_of(study: Study, pieces: Sequence[Piece]) -> Moments:
    """Return sums over the rows of some parts that are trained on."""
    moments = Moments.none(study)
    for piece in pieces:
        for rows, labels in training_blocks(study, piece):
            counts, number = np.zeros(0, dtype=np.int64), np.zeros(2)
            if study.label.kind == "classes":
                counts = np.bincount(labels, minlength=moments.labels.size)
            else:
                values = labels.astype(np.float64)
                number = np.array([values.sum(), (values**2).sum()])
            moments = moments + Moments(len(rows), rows.sum(axis=0), float((rows**2).sum()), counts, number)
    return moments


def ridge_sums(study: Study, pieces: Sequence[Piece], features: Features) -> dict[int, Matrix]:
    """Return, by fold, ΣAᵀA over the rows of its participants, with A = [1, features, label]."""
    sums: dict[int, Matrix] = {}
    for piece in pieces:
        for rows, labels in training_blocks(study, piece):
            A = np.column_stack([np.ones(len(rows)), features.made(rows), labels])
            products = A.T @ A
            sums[piece.fold] = sums[piece.fold] + products if piece.fold in sums else products
    return sums


def fit_ridge(sums: Matrix, *, alpha: float) -> tuple[Matrix, float]:
    """Return weights and intercept of the ridge regression with these sums; all are 0 if there are no rows."""
    count = sums[0, 0]
    if count < 1:
        return np.zeros(len(sums) - 2), 0.0
    mean = sums[0, 1:] / count
    around = sums[1:, 1:] - count * np.outer(mean, mean)
    weights = solve_ridge(around[:-1, :-1], alpha, around[:-1, -1:])[:, 0]
    return weights, float(mean[-1] - mean[:-1] @ weights)


def start_chain(features: Features, classes: npt.NDArray[np.int64], n_models: int, alpha: float) -> list[SGDClassifier]:
    """Return the untrained models from which chains start.

    There is one model for each fold, which does not learn from that fold, and at the end one model of all participants. A
    chain is a sequence of tasks, each of which trains the models of the task before it on further parts.
    """
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
    """Return the models after the next task of a chain, which learns from these parts.

    The model of a fold does not learn from that fold.
    """
    updated = copy.deepcopy(list(models))  # another task may still read the given models
    for model in updated:
        model.random_state = seed
    for piece in pieces:
        for rows, labels in training_blocks(study, piece):
            X = features.made(rows)
            for k, model in enumerate(updated):
                if k != piece.fold:  # the last model leaves nobody out
                    model.partial_fit(X, labels)
    return updated


def average_models(*ends: Sequence[SGDClassifier]) -> list[SGDClassifier]:
    """Return the mean of the models at the ends of several chains, model by model."""
    means = []
    for same in zip(*ends, strict=True):
        model = copy.deepcopy(same[0])
        model.coef_ = np.mean([each.coef_ for each in same], axis=0)
        model.intercept_ = np.mean([each.intercept_ for each in same], axis=0)
        model.t_ = float(np.mean([each.t_ for each in same]))
        means.append(model)
    return means
