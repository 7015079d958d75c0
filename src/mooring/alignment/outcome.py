"""The running account that every iterative solver keeps of its batch: maps, steps, iterations, and why each ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mooring.alignment.result import Termination
from mooring.geometry.backend import indices_beside, to_numpy
from mooring.typing import Array


@dataclass
class SolverOutcome:
    """Where each problem of a batch stands. Solvers change it as they go; it never leaves the alignment package."""

    maps: Array
    step: npt.NDArray[np.float64]
    iterations: npt.NDArray[np.int64]
    terminations: list[Termination]
    gap: npt.NDArray[np.float64]  # fixed-point gap; not a number where the solver did not come to know it
    active: npt.NDArray[np.int64]

    @classmethod
    def started(cls, maps: Array, *, termination: Termination = Termination.ITERATION_LIMIT) -> SolverOutcome:
        """An account of maps that no iteration has touched; a problem keeps `termination` until a solver records another."""
        n = int(maps.shape[0])
        return cls(maps, np.zeros(n), np.zeros(n, dtype=np.int64), [termination] * n, np.full(n, np.nan), np.arange(n))

    def record(
        self,
        problems: npt.NDArray[np.int64],
        maps: Array,
        *,
        step: Array,
        iteration: int,
        done: Array,
        why: Termination,
    ) -> None:
        """Store one iteration of `problems`, and retire those that are `done`."""
        self.maps[indices_beside(problems, self.maps)] = maps
        self.step[problems] = to_numpy(step)
        self.iterations[problems] = iteration
        finished = problems[to_numpy(done)]
        for problem in finished:
            self.terminations[problem] = why
        self.active = np.setdiff1d(self.active, finished)
