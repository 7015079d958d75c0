"""What is public in a study: its projection, by its nonce or a file beside it, and features fitted to pictures."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from mooring.errors import RefusedError, StorageError
from mooring.mechanisms.rotation.projection import Projection, gaussian_projection, no_projection
from mooring.mechanisms.sums.feature_map import FeatureMap
from mooring.mechanisms.sums.picture_features import PictureFeatures, PictureProjection, filters_of
from mooring.mechanisms.sums.settings import make_features
from mooring.protocol.messages.study import Study
from mooring.typing import Matrix

_LARGEST = 1e6  # of a number in the file: none that is made comes near


def study_projection(study: Study) -> Projection:
    """The study's public projection: none, Gaussian by its nonce, or the file beside the study, checked by its digest.

    A file that is not the one that the study names, or holds no orthonormal matrix, is refused.
    """
    m, h = study.n_features, study.n_components
    if study.projection == "none":
        return no_projection(m)
    if study.projection == "gaussian":
        seed = int.from_bytes(hashlib.sha256(b"mooring projection" + study.nonce.encode()).digest())
        rng = np.random.default_rng(seed)
        if study.format == 1:  # columns of any length
            gaussian = rng.standard_normal((m, h))
            return Projection(gaussian, np.linalg.pinv(gaussian), "gaussian")
        return gaussian_projection(m, h, rng=rng)
    F = _read_public_file(study, study.projection_digest, {"matrix": (m, h)})["matrix"]
    if np.abs(F.T @ F - np.eye(h)).max() > 1e-8:
        raise _unusable(f"no matrix of {m} by {h} with orthonormal columns")
    return Projection(F, F.T.copy(), "public-svd")


def study_features(study: Study) -> FeatureMap:
    """The public feature map of a study of secure sums; fitted to public pictures by the file beside it, if it names one."""
    assert study.sums is not None
    features = make_features(study.sums, study.schema, study.image_shape)
    if not (isinstance(features, PictureFeatures) and study.sums.features_digest):
        return features
    filters = filters_of(features.height, features.width)
    n, k = filters.n_responses, features.n_components
    found = _read_public_file(study, study.sums.features_digest, {"mean": (n,), "matrix": (n, k)})
    return replace(features, fitted=PictureProjection(filters, found["mean"], found["matrix"]))


def _read_public_file(study: Study, digest: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Matrix]:
    """Arrays of these shapes, finite and below 10⁶, from the file beside the study that has this digest."""
    cure = f"Put {projection_file_name(study)}, which came with the study, beside it."
    if study.folder is None:
        raise StorageError("the public projection", reason="the study was not read from a folder", cure=cure)
    most = 8 * sum(math.prod(shape) for shape in shapes.values()) + 4096
    try:
        with (study.folder / projection_file_name(study)).open("rb") as file:
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
        raise _unusable(" and ".join(f"no {name} of {'x'.join(map(str, shape))}" for name, shape in shapes.items()))
    return arrays


def _unusable(what: str) -> RefusedError:
    reason = f"its file holds {what}"
    return RefusedError("the public projection", reason=reason, cure="Make it with 'mooring study project'.")


def projection_file_name(study: Study) -> str:
    """Name of the file beside the study that holds its public projection."""
    return f"{study.name}.projection.safetensors"
