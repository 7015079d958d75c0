"""What an image study needs of its data before any noise is drawn, and what both data sets have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.mechanisms import Projection
from mooring.typing import Array, Indices
from mooring_studies.images.deployment import Deployment
from mooring_studies.images.evaluator import ImageEvaluator
from mooring_studies.networks import Architecture


@dataclass(frozen=True, eq=False)
class PreparedDeployment:
    """One deployment, ready to run.

    Attributes
    ----------
    deployment : Deployment
    evaluator : ImageEvaluator
    projection : Projection
    architecture : Architecture
    identities_each : int or None
    rms : float
        s, the root mean square of the projected training rows.
    pictures : array of shape (k, …), uint8
        Clean images of the rows to show.
    picture_labels : array of shape (k,)
    facts : dict
        What is worth telling of this deployment.
    """

    deployment: Deployment
    evaluator: ImageEvaluator
    projection: Projection
    architecture: Architecture
    identities_each: int | None
    rms: float
    pictures: npt.NDArray[np.uint8] = field(repr=False)
    picture_labels: Indices = field(repr=False)
    facts: dict[str, Any] = field(repr=False)


def on_device(array: npt.NDArray[Any], device: str, dtype: str) -> Array:
    """A NumPy array as a tensor of a type, there."""
    import torch

    return torch.as_tensor(array, dtype=getattr(torch, dtype), device=device)


def in_pieces(encode: Callable[[Any], Any], rows: Any, size: int = 4096) -> npt.NDArray[np.float64]:
    """Encode many rows a piece at a time, so that no wide copy of all of them is ever made."""
    return np.concatenate([encode(rows[start : start + size]) for start in range(0, max(1, len(rows)), size)])
