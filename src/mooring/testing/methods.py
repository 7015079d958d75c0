"""The contract of a method of rotation."""

from __future__ import annotations

from typing import Any

import numpy as np

from mooring.audit.rotation.simulation import simulate
from mooring.geometry.rigid import RigidMap
from mooring.mechanisms.rotation.anchors import make_anchor
from mooring.mechanisms.rotation.kernel import Upload, represent
from mooring.mechanisms.rotation.methods import Method, get_method
from mooring.testing.contract import require
from mooring.typing import Matrix

_DATA_NOISE, _ANCHOR_NOISE = 0.7, 0.03
_ROWS, _WIDTH = 4000, 3


def check_method(method: str | Method) -> None:
    """Check that a method keeps the contract that every method of mooring keeps.

    Uploads must have the shape of what they represent, in float64 and in memory of their own. Without noise they must be
    the rigid image of the rows and nothing else. Noise must be added exactly where the method says so. It must be normal,
    with mean zero and the stated standard deviation, and be the same for the same random stream. A collaboration must align
    if and only if the method uses an anchor.

    Parameters
    ----------
    method : str or Method
        A name in `mooring.METHODS`, or a `Method`.

    Raises
    ------
    AssertionError
        If the method breaks the contract; the message says where.

    Notes
    -----
    Bounds on noise are 4.5 standard errors, for 4,000 rows of three columns. The seed is fixed.

    Examples
    --------
    >>> check_method("aa-i-gdp-both-noise")
    >>> check_method(Method("plain", "Plain rows with noise", "common", True, False, "none"))
    """
    method = get_method(method)
    rng = np.random.default_rng(3)
    rows, anchor = rng.standard_normal((_ROWS, _WIDTH)), make_anchor(_ROWS, _WIDTH, rng=rng)
    secret = RigidMap.sample(_WIDTH, rng=rng)

    def make(seed: int = 1, *, noisy: bool = True, secret: RigidMap = secret) -> Upload:
        return represent(
            method,
            rows,
            secret,
            noise=np.random.default_rng(seed),
            anchor=anchor if method.uses_anchor else None,
            data_noise_scale=_DATA_NOISE if method.data_noise and noisy else 0.0,
            anchor_noise_scale=_ANCHOR_NOISE if method.anchor_noise and noisy else 0.0,
        )

    first, again, other = make(1), make(1), make(2)
    bare, still = make(noisy=False), make(noisy=False, secret=RigidMap.identity(_WIDTH))
    parts: dict[str, tuple[Matrix, bool, float]] = {"representation": (rows, method.data_noise, _DATA_NOISE)}
    if method.uses_anchor:
        parts["anchor_representation"] = (anchor, method.anchor_noise, _ANCHOR_NOISE)
    else:
        require(first.anchor_representation is None, f"{method.name} says that it uses no anchor, but uploads one.")
    for part, (truth, has_noise, scale) in parts.items():
        uploads: list[Any] = [getattr(upload, part) for upload in (first, again, other, bare, still)]
        require(all(upload is not None for upload in uploads), f"{method.name} uploads no {part}.")
        require(uploads[0].shape == truth.shape, f"{part} must have the shape of what it represents.")
        require(uploads[0].dtype == np.float64, f"{part} must be in float64, got {uploads[0].dtype}.")
        require(np.array_equal(uploads[0], uploads[1]), f"{part} must be the same for the same stream of noise.")
        same = np.array_equal(uploads[0], uploads[2])
        require(same != has_noise, f"{part} must differ between streams if and only if the method adds noise to it.")
        require(np.array_equal(uploads[3], secret.apply(truth)), f"Without noise, {part} must be a rigid image.")
        require(not np.shares_memory(uploads[4], truth), f"{part} must not share memory with what it represents.")
        if has_noise:
            _check_noise((uploads[0] - secret.apply(truth)) / scale, part)
    _check_alignment(method)


def _check_noise(noise: Matrix, part: str) -> None:
    require(abs(noise.mean()) < 0.041, f"The noise on {part} must have mean zero.")
    require(abs(noise.var() - 1) < 0.058, f"The noise on {part} must have the stated standard deviation.")
    require(abs(float(np.mean(noise**4)) - 3) < 0.4, f"The noise on {part} must be normal.")
    away = np.abs(np.corrcoef(noise, rowvar=False) - np.eye(noise.shape[1])).max()
    require(away < 0.071, f"The noise on {part} must be independent across columns.")


def _check_alignment(method: Method) -> None:
    rng = np.random.default_rng(5)
    rows = [rng.standard_normal((20, _WIDTH)) for _ in range(3)]
    simulation = simulate(rows, method=method, rng=np.random.default_rng(6))
    require(
        (simulation.alignment is None) != method.uses_anchor,
        f"{method.name} must align if and only if it uses an anchor.",
    )
    if method.uses_anchor or method.transform == "common":
        joint, truth = np.concatenate(simulation.aligned), np.concatenate(rows)
        measured, expected = (np.linalg.norm(part[:, None] - part[None], axis=-1) for part in (joint, truth))
        is_same = np.allclose(measured, expected, atol=1e-6)
        require(is_same, f"Without noise, {method.name} must keep all distances between rows.")
