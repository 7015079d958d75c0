"""Utility: the score of the joint model, compared row by row with training alone, and the score of pooled raw rows."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from mooring.audit.deployment import Deployment
from mooring.audit.simulation import Simulation
from mooring.learners import Gain, LearnerLike, Score, compare, score
from mooring.learners.fitting import MOST_ALONE, decide_learner
from mooring.serialization import Record
from mooring.typing import Labels


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
    predictions: Labels | None
    """Predictions of each participant's own model for all test rows, of shape (n_alone, n_test_rows)."""


@dataclass(frozen=True, kw_only=True)
class Utility(Record):
    """The scores of the joint model at one operating point; None if there is nothing to learn."""

    learner: str | None = None
    """Name of the learner; if "auto" was asked for, of the one that was chosen."""
    deployed: Score | None = None
    """Score of the joint model if participants map new rows themselves, without noise."""
    noisy_test: Score | None = None
    """Its score with private-data noise on test rows too, as the paper measures; None without such noise."""
    alone: Score | None = None
    """Mean score of training alone with the mechanism's features; None if the mechanism trains on rows as they are."""
    gain: Gain | None = None
    """`deployed` minus training alone, on the same rows."""


def measure_alone(deployment: Deployment, *, learner: LearnerLike) -> Alone:
    """Return the scores of training alone and of pooled raw rows, which are None without labels or without test rows.

    Both use the same learner; "auto" is decided across participants on the pooled rows. If there are more than `MOST_ALONE`
    participants, a sample of them trains alone.
    """
    kind, partition, seed = deployment.label_kind, deployment.partition, deployment.seed
    if kind is None:
        return Alone(References(None, None, 0), None)
    rng = np.random.default_rng([seed, 1])
    test, truth, labels = np.concatenate(partition.test), deployment.test_labels, deployment.require_labels()
    chosen = np.arange(partition.n_participants)
    if chosen.size > MOST_ALONE:
        chosen = np.sort(rng.choice(chosen, MOST_ALONE, replace=False))
    rows, outcomes = np.concatenate(partition.train), np.concatenate(labels)
    owners = np.repeat(np.arange(partition.n_participants), [part.shape[0] for part in partition.train])
    decided = decide_learner(learner, rows, outcomes, kind=kind, seed=seed, owners=owners)
    pooled = decided.fit(rows, outcomes, kind=kind, seed=seed)
    alone = [decided.fit(partition.train[i], labels[i], kind=kind, seed=seed) for i in chosen]
    predicted = [fitted.predict(test) for fitted in (*alone, pooled)]
    scores = [score(truth, guesses, kind=kind, rng=rng) for guesses in predicted]
    references = References(mean_score(scores[:-1]), scores[-1], int(chosen.size), decided.name)
    return Alone(references, np.stack(predicted[:-1]))


def measure_utility(
    simulation: Simulation, deployment: Deployment, *, learner: LearnerLike, alone: Alone, groups: Labels | None = None
) -> Utility:
    """Return the score of the joint model, and its gain over training alone.

    Participants train alone on their raw rows or on the mechanism's features, whichever scores better. With `groups`, the
    person of each record, the interval of the gain is over persons.
    """
    kind, partition, seed = deployment.label_kind, deployment.partition, deployment.seed
    if kind is None:
        return Utility()
    model, truth = simulation.train(learner, seed=seed), deployment.test_labels
    rng, predicted = np.random.default_rng([seed, 2]), model.predict(partition.test)
    deployed = score(truth, predicted, kind=kind, rng=rng)
    noisy = None
    if model.predict_noisy is not None:
        noisy = score(truth, model.predict_noisy(partition.test), kind=kind, rng=rng)
    baselines = [] if alone.predictions is None else [(alone.references.local_only, alone.predictions)]
    with_features = None
    if model.predict_alone is not None:
        predicted_alone, draws = model.predict_alone(partition.test), np.random.default_rng([seed, 1])
        with_features = mean_score([score(truth, guesses, kind=kind, rng=draws) for guesses in predicted_alone])
        baselines.insert(0, (with_features, predicted_alone))
    owners = None if groups is None else groups[np.concatenate(partition.test_indices)]
    gain = None
    if baselines:
        _, best = max(baselines, key=lambda pair: -np.inf if pair[0] is None else pair[0].value)
        gain = compare(truth, predicted, best, kind=kind, groups=owners)
    return Utility(learner=model.learner, deployed=deployed, noisy_test=noisy, alone=with_features, gain=gain)


def mean_score(scores: list[Score]) -> Score:
    """Return the mean of several models' scores; its interval is over participants if there are at least three."""
    values = np.array([model_score.value for model_score in scores])
    if values.size < 3:
        return replace(
            scores[0],
            value=float(values.mean()),
            low=float(np.mean([model_score.low for model_score in scores])),
            high=float(np.mean([model_score.high for model_score in scores])),
        )
    half = 1.96 * float(values.std(ddof=1)) / np.sqrt(values.size)
    mean = float(values.mean())
    return replace(
        scores[0],
        value=mean,
        low=float(max(mean - half, 0 if scores[0].metric != "R²" else -np.inf)),
        high=float(min(mean + half, 1.0)),
    )
