"""Alignment distributed over workers, for more anchor representations than one process should hold.

Legend: B̄_j the centred anchor representation of participant j (r × h); R_j ∈ O(h); S = Σ B̄_j R_j; Π the polar factor.

In the generalized power method, a participant's step needs only S from the others: R_j ← Π(B̄_jᵀ S), then S ← Σ B̄_j R_j.
Each worker keeps the B̄_j of its groups and computes both steps for these groups. One r × h matrix per group is sent, and
these matrices are summed in a tree. The loop, the spectral start and the tolerance are those of
`mooring.alignment.power_method`. The maps agree with those of `mooring.align` up to a common orthogonal map, which changes
no distance in the common space.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from mooring.alignment import Alignment, Termination
from mooring.alignment.power_method import run_power_method, spectral_sum
from mooring.engines.dask.cluster import Client, Future, share_with_workers
from mooring.engines.dask.intake import RemoteBundle
from mooring.geometry.orthogonal import polar_factor
from mooring.geometry.rigid import RigidMap
from mooring.protocol.rotation.analyst.alignment import Newcomer, SolvedAnchors, fit_newcomer
from mooring.protocol.rotation.analyst.outliers import Fits, measure_fit, measure_random_fit
from mooring.protocol.rotation.bundle import RowBundle
from mooring.typing import Matrix

Stack = tuple[Matrix, Matrix]
Rows = tuple[int, ...]
_SUMMED_AT_ONCE = 16
_MOST_ITERATIONS, _TOLERANCE = 500, 1e-7  # limit of steps, and largest final step of the maps
_MAPS_KEPT: dict[tuple[str, int], tuple[int, Matrix]] = {}
"""A worker's cache of maps and their iteration, by run and group. Missing maps are recomputed."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a group's stack, and the group's number, which identifies its cached maps."""

    stack: Future
    group: int
    rows: Rows


class AnchorsOnWorkers:
    """Anchor representations that stay with the workers that verified them.

    `stacks` has one future per group: centred anchor representations (k, r, h), and the mean rows (k, h) that were
    subtracted from them.
    """

    can_certify = False

    def __init__(self, client: Client, stacks: Sequence[Future]) -> None:
        self._client, self._stacks = client, stacks

    def solve(
        self, bundles: Sequence[RowBundle], *, reference: int | None = None, certify: bool = False
    ) -> SolvedAnchors:
        """Align the bundles to each other or, if `reference` is the index of a bundle, all of them to that bundle.

        `certify` has no effect: a certificate needs all anchor representations in one process.
        """
        parts, order = self._parts(bundles)
        if reference is not None:
            bundle = cast(RemoteBundle, bundles[reference])
            S, origin = self._client.submit(_pick, self._stacks[bundle.group], bundle.row, pure=False).result()
            steps, run = WorkerSteps(self._client, parts, S), None
        else:
            steps = WorkerSteps.from_spectral_start(self._client, parts)
            run = run_power_method(steps, 1, max_iterations=_MOST_ITERATIONS, tolerance=_TOLERANCE)
            origin = np.zeros(steps.weighted_sum.shape[1])
        termination = Termination.REFERENCE if run is None else run.terminations[0]
        gap = steps.measure_gap()
        if gap <= _TOLERANCE and termination.is_unfinished:
            termination = Termination.CONVERGED
        p, h = len(bundles), origin.size
        sums = [share_with_workers(self._client, each) for each in (steps.weighted_sum, steps.total.sum)]
        futures = [self._client.submit(_maps_and_fits, part.stack, part.rows, *sums, pure=False) for part in parts]
        orthogonals, means, values = np.empty((p, h, h)), np.empty((p, h)), np.empty(p)
        for places, (maps, mean, fits) in zip(order, self._client.gather(futures), strict=True):
            orthogonals[places], means[places], values[places] = maps, mean, fits
        if reference is not None:
            orthogonals[reference] = np.eye(h)
        alignment = Alignment.from_sum(
            tuple(RigidMap.from_centre(R, mean, origin) for R, mean in zip(orthogonals, means, strict=True)),
            steps.total.sum,
            origin,
            squares=steps.total.squares,
            iterations=0 if run is None else int(run.iterations[0]),
            step=0.0 if run is None else float(run.step[0]),
            gap=gap,
            termination=termination,
        )
        return SolvedAnchors(alignment, means, Fits(values, *measure_random_fit(steps.total.sum)))

    def fit_to_template(self, template: Matrix, bundles: Sequence[RowBundle]) -> list[Newcomer]:
        """Fit each bundle to a template separately."""
        parts, order = self._parts(bundles)
        same = share_with_workers(self._client, template)
        futures = [self._client.submit(newcomers, part.stack, part.rows, same, pure=False) for part in parts]
        fitted: list[Newcomer | None] = [None] * len(bundles)
        for places, some in zip(order, self._client.gather(futures), strict=True):
            for place, newcomer in zip(places, some, strict=True):
                fitted[place] = newcomer
        return [newcomer for newcomer in fitted if newcomer is not None]

    def _parts(self, bundles: Sequence[RowBundle]) -> tuple[list[Part], list[list[int]]]:
        """Return a part for each group that holds some of the bundles, and the indices of its participants in `bundles`."""
        by_group: dict[int, list[tuple[int, int]]] = {}
        for place, bundle in enumerate(cast(Sequence[RemoteBundle], bundles)):
            by_group.setdefault(bundle.group, []).append((bundle.row, place))
        groups = sorted(by_group)
        parts = [Part(self._stacks[k], k, tuple(row for row, _ in by_group[k])) for k in groups]
        return parts, [[place for _, place in by_group[k]] for k in groups]


class WorkerSteps:
    """The power method's maps R_j = Π(B̄_jᵀ S) on the workers.

    This process holds two matrices. `weighted_sum` is the matrix S from which the present maps follow. `total` has the sum
    Σ B̄_j R_j over these maps, from which the next maps follow.
    """

    def __init__(self, client: Client, parts: Sequence[Part], weighted_sum: Matrix) -> None:
        self._client, self._parts, self._run, self._count = client, parts, uuid.uuid4().hex, 0
        self.weighted_sum = weighted_sum
        self.total = self._step(weighted_sum, None)

    @classmethod
    def from_spectral_start(cls, client: Client, parts: Sequence[Part]) -> WorkerSteps:
        """Start from the spectral estimate; this process holds only r × h and r × r matrices."""
        outers = sum_over_workers(client, [client.submit(outer, part.stack, part.rows, pure=False) for part in parts])
        return cls(client, parts, np.asarray(spectral_sum(outers.sum, outers.n_components)))

    def advance(self) -> npt.NDArray[np.float64]:
        """Take one step of the maps of all participants, and return its length."""
        before, self.weighted_sum = self.weighted_sum, self.total.sum
        self._count += 1
        self.total = self._step(self.weighted_sum, before)
        return np.array([self.total.moved])

    def finish(self, done: npt.NDArray[np.bool_]) -> None:
        """Do nothing: workers compute the final maps from `weighted_sum`."""

    def measure_gap(self) -> float:
        """Return the length of the next step."""
        self._count += 1
        return self._step(self.total.sum, self.weighted_sum).moved

    def _step(self, S: Matrix, before: Matrix | None) -> Sum:
        # As results of tasks, both matrices are sent to each worker once and recomputed if a worker is lost.
        now, then = (None if each is None else share_with_workers(self._client, each) for each in (S, before))
        return sum_over_workers(
            self._client,
            [
                self._client.submit(
                    step, part.stack, part.rows, part.group, now, then, self._run, self._count, pure=False
                )
                for part in self._parts
            ],
        )


@dataclass(frozen=True, eq=False)
class Sum:
    """Sums over some participants: of the matrices B̄_j B̄_jᵀ or B̄_j R_j, of ‖B̄_j‖², and of the squared steps of the R_j."""

    sum: Matrix
    squares: float
    moved_squared: float
    n_components: int

    @property
    def moved(self) -> float:
        """The step of the whole stack of maps, in Frobenius norm."""
        return math.sqrt(self.moved_squared)


def sum_over_workers(client: Client, futures: Sequence[Future]) -> Sum:
    """Return the sum over workers, added up in a tree that is the same in every run."""
    while len(futures) > 1:
        some = [futures[k : k + _SUMMED_AT_ONCE] for k in range(0, len(futures), _SUMMED_AT_ONCE)]
        futures = [client.submit(add, *each, pure=False) for each in some]
    total: Sum = futures[0].result()
    return total


# The following functions run on workers.


def select_rows(stack: Stack, rows: Rows) -> Matrix:
    """Return some of a group's centred anchor representations."""
    return stack[0] if rows == tuple(range(len(stack[0]))) else stack[0][list(rows)]


def outer(stack: Stack, rows: Rows) -> Sum:
    """Return Σ B̄_j B̄_jᵀ, of shape (r, r)."""
    B = select_rows(stack, rows)
    side_by_side = np.swapaxes(B, 0, 1).reshape(B.shape[1], -1)
    return Sum(side_by_side @ side_by_side.T, float((B**2).sum()), 0.0, B.shape[-1])


def step(stack: Stack, rows: Rows, group: int, S: Matrix, before: Matrix | None, run: str, iteration: int) -> Sum:
    """Return Σ B̄_j R_j for R_j = Π(B̄_jᵀ S), and the squared distance of the R_j from the maps that `before` yields as S.

    The squared distance is NaN if `before` is None.
    """
    B = select_rows(stack, rows)
    Bt = np.swapaxes(B, 1, 2)
    maps = np.asarray(polar_factor(Bt @ S))
    moved = math.nan
    if before is not None:
        known = _MAPS_KEPT.get((run, group))
        old = known[1] if known and known[0] == iteration - 1 else np.asarray(polar_factor(Bt @ before))
        moved = float(((maps - old) ** 2).sum())
    for key in [key for key in _MAPS_KEPT if key[0] != run]:
        _MAPS_KEPT.pop(key, None)
    _MAPS_KEPT[run, group] = (iteration, maps)
    total = np.tensordot(B, maps, axes=((0, 2), (0, 1)))
    return Sum(total, float((B**2).sum()), moved, B.shape[-1])


def add(*sums: Sum) -> Sum:
    """Return the sum of partial results."""
    return Sum(
        np.sum([each.sum for each in sums], axis=0),
        sum(each.squares for each in sums),
        sum(each.moved_squared for each in sums),
        sums[0].n_components,
    )


def _maps_and_fits(stack: Stack, rows: Rows, S: Matrix, total: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Return, for each participant, the map that follows from S, the mean row, and the fit to the sum of the others."""
    B = select_rows(stack, rows)
    maps = np.asarray(polar_factor(np.swapaxes(B, 1, 2) @ S))
    aligned = B @ maps
    fits = np.array([measure_fit(total - block, block) for block in aligned])
    return maps, stack[1][list(rows)], fits


def newcomers(stack: Stack, rows: Rows, template: Matrix) -> list[Newcomer]:
    """Return the fit of each participant to a template."""
    return [fit_newcomer(template, stack[0][row], stack[1][row]) for row in rows]


def _pick(stack: Stack, row: int) -> tuple[Matrix, Matrix]:
    return np.array(stack[0][row]), np.array(stack[1][row])
