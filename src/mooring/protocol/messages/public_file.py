"""The file of public arrays beside a study, which states its digest: a projection, or features fitted to pictures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import numpy as np

from mooring.errors import RefusedError, StorageError
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

PUBLIC_SUFFIX = ".projection.safetensors"
_LARGEST = 1e6  # upper bound of a number in the file, far above any that mooring writes


def read_public_file(study: Study, digest: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Matrix]:
    """Return the arrays in the file beside the study. Refuse a file that has another digest, or arrays of other shapes."""
    cure = f"Put {public_file_name(study)}, which came with the study, beside it."
    if study.folder is None:
        raise StorageError("the public projection", reason="the study was not read from a folder", cure=cure)
    most = 8 * sum(math.prod(shape) for shape in shapes.values()) + 4096
    try:
        with (study.folder / public_file_name(study)).open("rb") as file:
            content = file.read(most + 1)
    except OSError:
        raise StorageError("the public projection", reason="its file cannot be read", cure=cure) from None
    if len(content) > most or hashlib.sha256(content).hexdigest() != digest:
        raise RefusedError("the public projection", reason="its file is not the one that the study names", cure=cure)
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError):
        arrays = {}
    if {name: array.shape for name, array in arrays.items()} != dict(shapes) or not all(
        array.dtype == np.float64 and (np.abs(array) < _LARGEST).all() for array in arrays.values()
    ):
        raise refuse_public_file(
            " and ".join(f"no {name} of {'x'.join(map(str, shape))}" for name, shape in shapes.items())
        )
    return arrays


def refuse_public_file(what: str) -> RefusedError:
    """Return the error for a file that has the right digest but the wrong content; `what` names the wrong content."""
    reason = f"its file holds {what}"
    return RefusedError("the public projection", reason=reason, cure="Make it with 'mooring study project'.")


def public_file_name(study: Study) -> str:
    """Return the name of the file beside the study that holds the study's public arrays."""
    return f"{study.name}{PUBLIC_SUFFIX}"
