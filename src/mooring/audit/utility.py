"""Utility: the score of the joint model, compared row by row with training alone, and the score of pooled raw rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mooring.audit.deployment import Deployment
from mooring.audit.simulation import Simulation
from mooring.learners import Gain, Kind, LearnerLike, Score, compare, score
from mooring.learners.fitted import predict_classes
from mooring.learners.fitting import MOST_ALONE, decide_learner
from mooring.learners.models import Predicted
from mooring.serialization import Record
from mooring.typing import Labels, Matrix


@dataclass(frozen=True)
class References(Record):
    """The two reference scores."""

    local_only: Score | None
    """Mean score of models that each participant trains on its own raw rows, tested on the test rows of all participants."""
    pooled_raw: Score | None
    """Score of one model of all participants' raw rows, without any protection."""
    n_alone: int
    """The number of participants whose own models were trained: all of them, or a sample."""
    learner: str | None = None
    """Name of the learner of both scores; None if there is nothing to learn."""


@dataclass(frozen=True, eq=False)
class Alone:
    """The reference scores, and the predictions of models trained alone."""

    references: References
    predictions: list[Predicted]
    """Predictions of each participant's own model for all test rows; empty if there is nothing to learn."""


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """The test rows' labels, and how predictions of them are scored and compared."""

    labels: Labels
    kind: Kind
    groups: Labels | None = None
    """The person of each row, if persons have several rows."""

    @cached_property
    def classes(self) -> Labels:
        """All classes of the test rows."""
        return np.unique(self.labels)

    def score(self, predicted: Predicted, classes: Labels | None, rng: np.random.Generator) -> Score:
        """Return the score of predictions whose class scores are in the order of `classes`."""
        codes, labels, shares = self._encode(predicted, classes)
        return score(codes, labels, kind=self.kind, rng=rng, shares=shares)

    def compare(self, joint: Predicted, alone: Sequence[Predicted], *classes: Labels | None) -> Gain | None:
        """Return the gain of the joint model over models trained alone; None if the score is undefined.

        `classes` has two entries: the classes of the joint model, and those of the models trained alone.
        """
        codes, labels, shares = self._encode(joint, classes[0])
        others = [self._encode(predicted, classes[1]) for predicted in alone]
        both = None
        if shares is not None:
            both = shares, np.stack([part for *_, part in others if part is not None])
        predicted = np.stack([part for _, part, _ in others])
        return compare(codes, labels, predicted, kind=self.kind, groups=self.groups, shares=both)

    def _encode(self, predicted: Predicted, classes: Labels | None) -> tuple[Labels, Labels, Matrix | None]:
        """Return the truth, the predictions, and the scores of the classes that occur in the test rows.

        Classes are coded by their position among the classes of the test rows; a prediction of any other class is −1. If
        there are no scores of classes, labels and predictions are not coded.
        """
        labels, shares = predicted
        if self.kind == "number" or shares is None or classes is None:
            return self.labels, labels, None
        place = np.minimum(np.searchsorted(self.classes, labels), self.classes.size - 1)
        codes = np.where(self.classes[place] == labels, place, -1)
        scores = np.zeros((labels.size, self.classes.size))
        known, at = np.isin(classes, self.classes), np.searchsorted(self.classes, classes)
        scores[:, at[known]] = shares[:, known]
        return np.searchsorted(self.classes, self.labels), codes, scores


@dataclass(frozen=True, kw_only=True)
class Utility(Record):
    """The scores of the joint model at one operating point; None if there is nothing to learn."""

    learner: str | None = None
    """Name of the learner; for "auto", of the learner that was chosen."""
    deployed: Score | None = None
    """Score of the joint model if participants map new rows themselves, without noise."""
    noisy_test: Score | None = None
    """Score of the joint model with private-data noise on test rows too, as the paper measures; None without such noise."""
    alone: Score | None = None
    """Mean score of training alone with the mechanism's features; None if the mechanism trains on rows as they are."""
    gain: Gain | None = None
    """`deployed` minus training alone, on the same rows."""
    predicts_one_of: int = 0
    """Number of classes, if the joint model predicts the same class for all test rows; 0 otherwise."""


def measure_alone(deployment: Deployment, *, learner: LearnerLike) -> Alone:
    """Return the scores of training alone and of pooled raw rows, which are None if there is nothing to learn or to test on.

    Both use the same learner. "auto" means the candidate that, on the pooled rows, best predicts participants that were left
    out of training. If there are more than `MOST_ALONE` participants, a sample of them trains alone.
    """
    kind, partition, seed = deployment.label_kind, deployment.partition, deployment.settings.seed
    if kind is None:
        return Alone(References(None, None, 0), [])
    rng = np.random.default_rng([seed, 1])
    test, labels = np.concatenate(partition.test), deployment.require_labels()
    truth = HeldOutRows(deployment.test_labels, kind)
    chosen = np.arange(partition.n_participants)
    if chosen.size > MOST_ALONE:
        chosen = np.sort(rng.choice(chosen, MOST_ALONE, replace=False))
    rows, outcomes = np.concatenate(partition.train), np.concatenate(labels)
    classes = np.unique(outcomes) if kind == "classes" else None
    encoded = [part if classes is None else np.searchsorted(classes, part) for part in labels]
    owners = np.repeat(np.arange(partition.n_participants), [part.shape[0] for part in partition.train])
    everybody = np.concatenate(encoded)
    decided = decide_learner(learner, rows, everybody, kind=kind, seed=seed, owners=owners)
    pooled = decided.fit(rows, everybody, kind=kind, seed=seed)
    alone = [decided.fit(partition.train[i], encoded[i], kind=kind, seed=seed) for i in chosen]
    predicted = [predict_classes(fitted, test, classes) for fitted in (*alone, pooled)]
    scores = [truth.score(guesses, classes, rng) for guesses in predicted]
    references = References(mean_score(scores[:-1]), scores[-1], int(chosen.size), decided.name)
    return Alone(references, predicted[:-1])


def measure_utility(
    simulation: Simulation, deployment: Deployment, *, learner: LearnerLike, alone: Alone, groups: Labels | None = None
) -> Utility:
    """Return the score of the joint model, and its gain over training alone.

    Participants train alone on their raw rows or on the mechanism's features, whichever scores better. With `groups`, the
    person of each record, the interval of the gain is over persons.
    """
    kind, partition, seed = deployment.label_kind, deployment.partition, deployment.settings.seed
    if kind is None:
        return Utility()
    owners = None if groups is None else groups[np.concatenate(partition.test_indices)]
    model, truth = simulation.train(learner, seed=seed), HeldOutRows(deployment.test_labels, kind, owners)
    rng, predicted = np.random.default_rng([seed, 2]), model.answer(partition.test)
    deployed = truth.score(predicted, model.classes, rng)
    noisy = None
    if model.answer_noisy is not None:
        noisy = truth.score(model.answer_noisy(partition.test), model.classes, rng)
    classes = np.unique(np.concatenate(deployment.require_labels())) if kind == "classes" else None
    baselines = [(alone.references.local_only, alone.predictions, classes)] if alone.predictions else []
    with_features = None
    if model.answer_alone is not None:
        predicted_alone, draws = model.answer_alone(partition.test), np.random.default_rng([seed, 1])
        with_features = mean_score([truth.score(guesses, model.classes, draws) for guesses in predicted_alone])
        baselines.insert(0, (with_features, predicted_alone, model.classes))
    gain = None
    if baselines:
        _, best, known = max(baselines, key=lambda entry: -np.inf if entry[0] is None else entry[0].value)
        gain = truth.compare(predicted, best, model.classes, known)
    return Utility(
        learner=model.learner,
        deployed=deployed,
        noisy_test=noisy,
        alone=with_features,
        gain=gain,
        predicts_one_of=len(model.classes) if model.classes is not None and np.unique(predicted[0]).size == 1 else 0,
    )


def mean_score(scores: list[Score]) -> Score:
    """Return the mean of several models' scores; its interval is over participants if there are at least three."""
    values = np.array([model_score.value for model_score in scores])
    accuracies = [model_score.balanced_accuracy for model_score in scores if model_score.balanced_accuracy is not None]
    beside = float(np.mean(accuracies)) if accuracies else None
    if values.size < 3:
        return replace(
            scores[0],
            value=float(values.mean()),
            low=float(np.mean([model_score.low for model_score in scores])),
            high=float(np.mean([model_score.high for model_score in scores])),
            balanced_accuracy=beside,
        )
    half = 1.96 * float(values.std(ddof=1)) / np.sqrt(values.size)
    mean = float(values.mean())
    return replace(
        scores[0],
        value=mean,
        low=float(max(mean - half, 0 if scores[0].metric != "R²" else -np.inf)),
        high=float(min(mean + half, 1.0)),
        balanced_accuracy=beside,
    )
