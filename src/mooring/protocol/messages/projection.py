"""The public projection of a study: none, drawn from the study's nonce, or a file beside the study."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

from mooring.errors import RefusedError, StorageError
from mooring.mechanisms.projection import Projection, gaussian_projection, no_projection
from mooring.protocol.messages.study import Study


def study_projection(study: Study) -> Projection:
    """The study's public projection: none, Gaussian by its nonce, or the file beside the study, checked by its digest.

    Raises
    ------
    StorageError
        If there is no such file.
    RefusedError
        If it is not the one that the study names, or holds no orthonormal matrix.
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
    cure = f"Put {projection_file_name(study)}, which came with the study, beside it."
    if study.folder is None:
        raise StorageError("the public projection", reason="the study was not read from a folder", cure=cure)
    most = 8 * m * h + 4096
    try:
        with (study.folder / projection_file_name(study)).open("rb") as file:
            content = file.read(most + 1)
    except OSError:
        raise StorageError("the public projection", reason="its file cannot be read", cure=cure) from None
    if len(content) > most or hashlib.sha256(content).hexdigest() != study.projection_digest:
        raise RefusedError("the public projection", reason="its file is not the one that the study names", cure=cure)
    F = _matrix_in(content)
    if F is None or F.shape != (m, h) or not np.isfinite(F).all() or np.abs(F.T @ F - np.eye(h)).max() > 1e-8:
        raise RefusedError(
            "the public projection",
            reason=f"its file holds no matrix of {m} by {h} with orthonormal columns",
            cure="Make it with 'mooring study project'.",
        )
    return Projection(F, F.T.copy(), "public-svd")


def _matrix_in(content: bytes) -> npt.NDArray[np.float64] | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError):
        return None
    matrix = arrays.get("matrix")
    return matrix if list(arrays) == ["matrix"] and matrix is not None and matrix.dtype == np.float64 else None


def projection_file_name(study: Study) -> str:
    """Name of the file beside the study that holds its public projection."""
    return f"{study.name}.projection.safetensors"
