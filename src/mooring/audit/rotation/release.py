"""Membership risk of a simulation's joint model, and inversion of the model by a participant."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import numpy as np

from mooring.attacks.inversion import invert_columns
from mooring.audit.deployment import Deployment
from mooring.audit.release import ReleaseRisk, answer_queries, measure_trained_release
from mooring.audit.rotation.simulation import RowSimulation
from mooring.geometry.backend import to_numpy
from mooring.learners import Fitted, LearnerLike, train_learner
from mooring.metrics import Figure, wilson
from mooring.typing import Indices, Labels, Matrix

_MOST_INVERTED, _MOST_COLUMNS = 600, 40


def measure_point_release(
    simulation: RowSimulation, deployment: Deployment, *, learner: LearnerLike | None
) -> ReleaseRisk | None:
    """Return the risk of a simulation's joint model; None if there is nothing to learn, or if there are too few rows."""
    kind, partition = deployment.label_kind, deployment.partition
    seed, columns = deployment.settings.seed, deployment.settings.evaluation.columns
    if kind is None or learner is None:
        return None
    mapped = [simulation.map_new_rows(i, part, data_noise_scale=0.0) for i, part in enumerate(partition.train)]
    rows, labels = (
        to_numpy(simulation.collaboration_matrix),
        np.concatenate(cast("tuple[Any, ...]", partition.train_labels)),
    )
    queries = np.concatenate([to_numpy(part) for part in mapped])
    risk = measure_trained_release(learner, rows, labels, kind=kind, seed=seed, queries=queries)
    if risk is None or not columns:
        return risk
    records = np.concatenate([to_numpy(part) for part in partition.train])
    chosen = np.random.default_rng([seed, 17]).permutation(len(records))[:_MOST_INVERTED]
    half, outcomes = chosen.size // 2, labels[chosen]
    outcomes = np.unique(outcomes, return_inverse=True)[1] if kind == "classes" else outcomes
    fitted = train_learner(learner, rows[chosen[:half]], outcomes[:half], kind=kind, seed=seed)
    ends = np.cumsum([0, *(column.width for column in columns)])
    groups = [np.arange(a, b) for a, b in pairwise(ends) if np.ptp(records[chosen, a:b], axis=0).any()][:_MOST_COLUMNS]
    inversion = _invert(fitted, simulation, records[chosen], outcomes, half, groups) if groups else None
    return replace(risk, inversion=inversion, n_columns=len(groups))


def _invert(
    fitted: Fitted,
    simulation: RowSimulation,
    records: Matrix,
    labels: Labels,
    n_members: int,
    groups: Sequence[Indices],
) -> Figure:
    """Return the share of cells that a participant infers from a model that was trained on the first `n_members` records."""
    places = np.arange(len(labels))

    def answer(changed: Matrix) -> Matrix:
        return answer_queries(fitted, to_numpy(simulation.map_new_rows(0, changed)), int(labels.max()) + 1)

    def log_likelihood(changed: Matrix) -> Matrix:
        if fitted.kind == "classes":
            return np.asarray(answer(changed)[places, labels])
        return np.asarray(-((answer(changed) - labels) ** 2) / (2 * variance))

    variance = 1.0 if fitted.kind == "classes" else float(np.var(answer(records) - labels)) or 1.0
    strata = labels if fitted.kind == "classes" else np.zeros_like(places)
    recovered, guessed = invert_columns(log_likelihood, records, strata, groups)
    by_row = recovered[:n_members].mean(axis=1)
    return Figure(
        "cells found by the model",
        float(by_row.mean()),
        wilson(float(by_row.sum()), n_members),  # wider than it needs to be, because a row has several columns
        chance=float(guessed[:n_members].mean()),
        control=float(recovered[n_members:].mean()),
        floor=None,
        n=n_members,
        higher_is_worse=True,
    )
