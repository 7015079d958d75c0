"""Utility: what the joint model scores, beside what participants reach alone, row by row, and what pooling would give."""

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
    """The two scores that every other is read against."""

    local_only: Score | None
    """Each participant's own model, on its rows as they are, tested on everybody's test rows; the mean over
    participants."""
    pooled_raw: Score | None
    """One model on everybody's rows as they are: no protection at all."""
    n_alone: int
    """How many participants' own models were trained: all, or a sample."""
    learner: str | None = None
    """What both trained; None where there was nothing to learn."""


@dataclass(frozen=True, eq=False)
class Alone:
    """What participants reach by themselves."""

    references: References
    predictions: Labels | None
    """What each participant's own model predicts of everybody's test rows, of shape (n_alone, n_test_rows)."""


@dataclass(frozen=True)
class Utility:
    """What the joint model is worth; the fields are those of `PointResult`."""

    learner: str | None = None
    deployed: Score | None = None
    noisy_test: Score | None = None
    alone: Score | None = None
    gain: Gain | None = None


def measure_alone(deployment: Deployment, *, learner: LearnerLike) -> Alone:
    """Measure local only and pooled raw; neither where there are no labels to learn or no test rows.

    Both train the same learner: with "auto", the one chosen across participants on the pooled rows. Where there are more
    than `MOST_ALONE` participants, some are drawn.
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
    """Train the joint model, score it, and compare it with training alone: with the rows or with the mechanism's features.

    Of the two ways to train alone, the better one counts. With `groups`, whose row each record is, the comparison is over
    persons.
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
    return Utility(model.learner, deployed, noisy, with_features, gain)


def mean_score(scores: list[Score]) -> Score:
    """The mean of several models' scores; its interval is over participants, where there are enough of them."""
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
