"""What a study's networks are worth: the paper's, many at once, and the two that every figure must stand beside.

'Local only' is each participant's own model on its own rows, tested on everybody's test rows; 'pooled raw' is one model on
everybody's rows without any protection. Both are the better for it that nobody hides anything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.apps.experiments.images.deployment import Deployment, Tensor
from mooring.learners.ensemble import Architecture, Ensemble, balanced_accuracy, train_ensemble


def trained(rows: Tensor, deployment: Deployment, *, architecture: Architecture, training: dict[str, Any]) -> Ensemble:
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
        **training,
    )


def scored(ensemble: Ensemble, rows: Tensor, clean_rows: Tensor | None, deployment: Deployment) -> list[dict[str, Any]]:
    """The utility columns of every member.

    Parameters
    ----------
    rows : tensor of shape (D, n, h)
        As the paper scores them, noise and all.
    clean_rows : tensor of shape (D, n, h) or (n, h), or None
        As a participant scores its own new rows; None where `rows` carry no private-data noise.
    """
    test = deployment.span("test")
    labels = deployment.labels[test]
    predicted = ensemble.predict(rows[:, test])
    as_in_paper = balanced_accuracy(predicted, labels)
    clean = as_in_paper if clean_rows is None else balanced_accuracy(ensemble.predict(clean_rows[..., test, :]), labels)
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
    deployment: Deployment,
    participants: Sequence[int],
    *,
    architecture: Architecture,
    training: dict[str, Any],
) -> dict[str, Any]:
    """The model of participants who see each other's rows, tested on everybody's: one of them alone, or all pooled.

    Whoever has rows may bring them to a network in any way. Three are tried: as they are, turned by a rigid map, and each
    column with mean 0 and variance 1; the one that validates best is taken. And fewer rows are gone through more often, for
    as many steps as everybody's rows take: nobody who trains alone stops at a few dozen steps. Without either, joining would
    look better than it is.
    """
    import torch

    labels, rows = deployment.labels, deployment.rows
    train, validation = (
        np.concatenate([_places(deployment.own(split, i)) for i in participants]) for split in ("train", "validation")
    )
    first = participants[0]
    known = rows[train]
    spread = known.std(dim=0, correction=0)
    scaled = (rows - known.mean(dim=0)) / torch.where(spread > 0, spread, torch.ones_like(spread))
    turned = rows @ deployment.orthogonals[first] + deployment.translations[first]
    ways = torch.stack([rows, turned, scaled]).float()
    n_joint = int(deployment.sizes["train"].sum())
    steps = training["epochs"] * math.ceil(n_joint / training["batch_size"])
    epochs = math.ceil(steps / math.ceil(len(train) / training["batch_size"]))
    ensemble = train_ensemble(
        ways[:, train],
        labels[train],
        ways[:, validation],
        labels[validation],
        architecture=architecture,
        streams=deployment.streams,
        **{**training, "epochs": epochs},
    )
    best = int(np.argmax(ensemble.validation_balanced_accuracy))
    return scored(ensemble[best], ways[best : best + 1], None, deployment)[0]


def _places(where: slice) -> npt.NDArray[np.int64]:
    return np.arange(where.start, where.stop, dtype=np.int64)
