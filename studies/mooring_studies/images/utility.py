"""How well a study's networks predict: the paper's, many at once, and the two that every figure is compared with.

'Local only' is each participant's own model on its own rows, tested on everybody's test rows; 'pooled raw' is one model on
everybody's rows without any protection. Both are the better for it that nobody hides anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mooring.learners import balanced_accuracy
from mooring.mechanisms import map_rows
from mooring.typing import Array, Indices
from mooring_studies.images.deployment import LABELLED, Deployment
from mooring_studies.networks import Architecture, Ensemble, Schedule, train_ensemble

_N_WAYS = 3


def trained(rows: Array, deployment: Deployment, *, architecture: Architecture, schedule: Schedule) -> Ensemble:
    """Train one network a draw on aligned rows of shape (D, n, h), all with the same first weights and batches."""
    labels = deployment.labels
    train, validation = deployment.span("train"), deployment.span("validation")
    return train_ensemble(
        rows[:, train],
        labels[train],
        rows[:, validation],
        labels[validation],
        architecture=architecture,
        streams=deployment.streams,
        schedule=schedule,
    )


def scored(ensemble: Ensemble, rows: Array, clean_rows: Array | None, deployment: Deployment) -> list[dict[str, Any]]:
    """The utility columns of every member: on rows with noise, as the paper scores them, and on clean rows.

    `clean_rows` is None where `rows` carry no private-data noise.
    """
    test = deployment.span("test")
    clean = None if clean_rows is None else clean_rows[..., test, :]
    return _columns(ensemble, rows[:, test], clean, deployment.labels[test])


def _columns(ensemble: Ensemble, rows: Array, clean_rows: Array | None, labels: Indices) -> list[dict[str, Any]]:
    predicted = ensemble.predict(rows)
    as_in_paper = balanced_accuracy(predicted, labels)
    clean = as_in_paper if clean_rows is None else balanced_accuracy(ensemble.predict(clean_rows), labels)
    return [
        {
            "balanced_accuracy": float(as_in_paper[k]),
            "balanced_accuracy_clean": float(clean[k]),
            "accuracy": float(np.mean(predicted[k] == labels)),
            "validation_balanced_accuracy": float(ensemble.validation_balanced_accuracy[k]),
            "best_epoch": int(ensemble.best_epoch[k]),
        }
        for k in range(len(as_in_paper))
    ]


def without_protection(
    deployment: Deployment, groups: Sequence[Sequence[int]], *, architecture: Architecture, schedule: Schedule
) -> list[dict[str, Any]]:
    """The model of each group of participants who see each other's rows, tested on everybody's test rows.

    A group is one participant alone, or all of them pooled. Whoever has rows may bring them to a network in any way. Three
    are tried: as they are, turned by a rigid map, and each column with mean 0 and variance 1; the one that validates best
    is taken. And fewer rows are gone through more often, for as many steps as everybody's rows take: nobody who trains
    alone stops at a few dozen steps. Without either, joining would look better than it is.
    """
    import torch

    scores: dict[int, dict[str, Any]] = {}
    for alike in _of_one_size(deployment, groups):
        ways = [_ways(deployment, groups[k]) for k in alike]
        train_rows, validation_rows, test_rows = (torch.cat(parts) for parts in zip(*ways, strict=True))
        train_labels, validation_labels = (
            np.repeat([deployment.labels[deployment.places(groups[k], [split])] for k in alike], _N_WAYS, axis=0)
            for split in LABELLED
        )
        ensemble = train_ensemble(
            train_rows,
            train_labels,
            validation_rows,
            validation_labels,
            architecture=architecture,
            streams=deployment.streams,
            schedule=replace(schedule, epochs=_epochs(deployment, train_rows.shape[1], schedule)),
        )
        truth = deployment.labels[deployment.span("test")]
        for place, k in enumerate(alike):
            tried = slice(_N_WAYS * place, _N_WAYS * (place + 1))
            best = tried.start + int(np.argmax(ensemble.validation_balanced_accuracy[tried]))
            scores[k] = _columns(ensemble[best], test_rows[best : best + 1], None, truth)[0]
    return [scores[k] for k in range(len(groups))]


def _ways(deployment: Deployment, group: Sequence[int]) -> tuple[Array, Array, Array]:
    """A group's training and validation rows, and everybody's test rows, each in three ways: shape (3, n, h)."""
    import torch

    train, validation = (deployment.rows[deployment.places(group, [split])] for split in LABELLED)
    centre, spread = train.mean(dim=0), train.std(dim=0, correction=0)
    spread = torch.where(spread > 0, spread, torch.ones_like(spread))
    secret = deployment.map_of(group[0])

    def three(rows: Array) -> Array:
        return torch.stack([rows, map_rows(rows, secret), (rows - centre) / spread]).float()

    return three(train), three(validation), three(deployment.rows[deployment.span("test")])


def _of_one_size(deployment: Deployment, groups: Sequence[Sequence[int]]) -> list[list[int]]:
    """Positions of groups that have equally many rows, and so can be trained together."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for k, group in enumerate(groups):
        size = tuple(int(sum(deployment.sizes[split][i] for i in group)) for split in LABELLED)
        alike.setdefault(size, []).append(k)
    return list(alike.values())


def _epochs(deployment: Deployment, n_rows: int, schedule: Schedule) -> int:
    """How often to go through these rows, for as many steps as the joint model takes."""
    steps = schedule.epochs * math.ceil(int(deployment.sizes["train"].sum()) / schedule.batch_size)
    return -(-steps // math.ceil(n_rows / schedule.batch_size))
