"""The compact form of the inverse Hessian against the BFGS update, written out pair by pair."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring.geometry.backend import to_numpy
from mooring.geometry.inverse_hessian import InverseHessian

N, LENGTH, SIZE = 3, 6, 4


def written_out(pairs: list[tuple[np.ndarray, np.ndarray]], H0: np.ndarray) -> np.ndarray:
    if not pairs:
        return H0
    s, y = pairs[-1]
    H = s @ y / (y @ H0 @ y) * H0
    for s, y in pairs:
        left = np.eye(LENGTH) - np.outer(s, y) / (s @ y)
        H = left @ H @ left.T + np.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("n_rounds", [0, 1, 3, SIZE, 2 * SIZE + 3])
def test_directions_are_those_of_the_bfgs_update(n_rounds: int, on_backend: Callable[[Any], Any]) -> None:
    """Steps are rejected, have negative curvature, or make a problem forget all, at times that differ between problems."""
    rng = np.random.default_rng(n_rounds)
    Hessian, H0 = (A @ A.T + np.eye(LENGTH) for A in rng.standard_normal((2, LENGTH, LENGTH)))
    gradient = rng.standard_normal((N, LENGTH))
    memory = InverseHessian(on_backend(gradient), SIZE, beside=on_backend(gradient))
    memory.meet(on_backend(gradient))
    pairs: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in range(N)]
    for round in range(n_rounds):
        step = rng.standard_normal((N, LENGTH)) * 10.0 ** rng.integers(-5, 2, (N, 1))
        bends = np.arange(N) != (round - 1) % 5
        change = np.where(bends, 1.0, -1.0)[:, None] * step @ Hessian
        accepted = np.arange(N) != round % 4
        slopes = np.stack([np.sum(step * gradient, axis=1), np.sum(change @ H0 * gradient, axis=1)], axis=1)
        arrays = (on_backend(array) for array in (step, change, change @ H0))
        lengths = memory.add(*arrays, slopes=on_backend(slopes), accepted=on_backend(accepted))
        assert np.allclose(to_numpy(lengths), np.linalg.norm(step, axis=1))
        gradient = np.where(accepted[:, None], gradient + change, gradient)
        for i in np.flatnonzero(accepted & bends):
            pairs[i] = [*pairs[i], (step[i], change[i])][-SIZE:]
        if round == 6:
            memory.clear(on_backend(np.arange(N) == 2))
            pairs[2] = []
    share = np.array([1.0, 0.5, 0.25])
    expected = [-share[i] * written_out(pairs[i], H0) @ gradient[i] for i in range(N)]
    for _ in range(2):  # products with the gradient that were kept, and computed anew
        step_direction = memory.direction(on_backend(gradient @ H0), on_backend(share))
        assert np.allclose(to_numpy(step_direction), expected, rtol=1e-6, atol=1e-6 * np.max(np.abs(expected)))
        memory.meet(on_backend(gradient))
