"""Alignment distributed over workers, for more anchor representations than one process should hold.

Legend: B̄_j the centred anchor representation of participant j (r × h); R_j ∈ O(h); S = Σ B̄_j R_j; Π the polar factor.

The generalized power method shares only S among participants: R_j ← Π(B̄_jᵀ S), then S ← Σ B̄_j R_j. Each worker keeps
the B̄_j of its groups and computes both steps for them. One r × h matrix per group is sent and summed in a tree. The
method starts from the spectral estimate, from the r × r matrix Σ B̄_j B̄_jᵀ, and stops like `mooring.align`, when the
whole stack of maps moves by at most the tolerance. The maps agree with those of `mooring.align` up to a common orthogonal
map, which changes no distance in the common space.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from mooring.alignment.result import Termination
from mooring.engines.dask.cluster import Client, Future, share_with_workers
from mooring.engines.dask.intake import RemoteBundle
from mooring.geometry.orthogonal import polar_factor
from mooring.protocol.rotation.anchor_source import AnchorSolution, Newcomer, fit_newcomer
from mooring.protocol.rotation.bundle import RowBundle
from mooring.protocol.rotation.outliers import Fits, measure_fit, measure_random_fit
from mooring.typing import Matrix

Stack = tuple[Matrix, Matrix]
Rows = tuple[int, ...]
_SUMMED_AT_ONCE = 16
_MOST_ITERATIONS, _TOLERANCE = 500, 1e-7  # limit of steps, and largest final step of the maps
_MAPS_KEPT: dict[tuple[str, int], tuple[int, Matrix]] = {}
"""A worker's cache: iteration and maps by run and group. Missing maps are recomputed."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a group's stack, and the group's number, which identifies its cached maps."""

    stack: Future
    group: int
    rows: Rows


@dataclass(frozen=True, eq=False)
class Reduced:
    """The result of the distributed power method."""

    weighted_sum: Matrix
    """S, of shape (r, h). The maps are R_j = Π(B̄_jᵀ S)."""
    total: Sum
    """Σ B̄_j R_j for these maps."""
    iterations: int
    termination: Termination
    gap: float
    """Length of the next step."""

    @property
    def objective(self) -> float:
        """tr(Rᵀ G R)."""
        return float((self.total.sum**2).sum())


class AnchorsOnWorkers:
    """Anchor representations that stay with the workers that verified them.

    `stacks` has one future per group: centred anchor representations (k, r, h) and their mean rows (k, h).
    """

    can_certify = False

    def __init__(self, client: Client, stacks: Sequence[Future]) -> None:
        self._client, self._stacks = client, stacks

    def check_rank(self, bundles: Sequence[RowBundle]) -> list[bool]:
        """Return whether each anchor representation has full rank."""
        return [cast(RemoteBundle, bundle).has_full_rank for bundle in bundles]

    def solve(
        self, bundles: Sequence[RowBundle], *, reference: int | None = None, certify: bool = False
    ) -> AnchorSolution:
        """Align the bundles. `certify` has no effect: no proof is tried."""
        parts, order = self._parts(bundles)
        if reference is not None:
            bundle = cast(RemoteBundle, bundles[reference])
            S, origin = self._client.submit(_pick, self._stacks[bundle.group], bundle.row, pure=False).result()
            total = _stepped(self._client, parts, S, None, "", 0)
            gap = _stepped(self._client, parts, total.sum, S, "", 0).moved
            reduced = Reduced(S, total, 0, Termination.REFERENCE, gap)
        else:
            reduced = reduce_over_workers(self._client, parts)
            origin = np.zeros(reduced.weighted_sum.shape[1])
        p, h = len(bundles), origin.size
        sums = [share_with_workers(self._client, each) for each in (reduced.weighted_sum, reduced.total.sum)]
        futures = [self._client.submit(_maps_and_fits, part.stack, part.rows, *sums, pure=False) for part in parts]
        orthogonals, means, values = np.empty((p, h, h)), np.empty((p, h)), np.empty(p)
        for places, (maps, mean, fits) in zip(order, self._client.gather(futures), strict=True):
            orthogonals[places], means[places], values[places] = maps, mean, fits
        if reference is not None:
            orthogonals[reference] = np.eye(h)
        return AnchorSolution(
            orthogonals,
            means,
            np.ascontiguousarray(reduced.total.sum / p),
            np.ascontiguousarray(origin),
            reduced.iterations,
            str(reduced.termination),
            not reduced.termination.is_unfinished,
            reduced.gap / max(1.0, math.sqrt(p * h)),
            reduced.total.squares - reduced.objective / p,
            None,
            Fits(values, *measure_random_fit(reduced.total.sum)),
        )

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
        """Return the groups that hold these participants, and the positions of a group's participants among them."""
        by_group: dict[int, list[tuple[int, int]]] = {}
        for place, bundle in enumerate(cast(Sequence[RemoteBundle], bundles)):
            by_group.setdefault(bundle.group, []).append((bundle.row, place))
        groups = sorted(by_group)
        parts = [Part(self._stacks[k], k, tuple(row for row, _ in by_group[k])) for k in groups]
        return parts, [[place for _, place in by_group[k]] for k in groups]


def reduce_over_workers(client: Client, parts: Sequence[Part]) -> Reduced:
    """Run the generalized power method from the spectral start. This process holds only r × h and r × r matrices."""
    start = sum_over_workers(client, [client.submit(outer, part.stack, part.rows, pure=False) for part in parts])
    h = start.n_components
    eigenvalues, eigenvectors = np.linalg.eigh(start.sum)
    S = eigenvectors[:, -h:] / np.sqrt(np.maximum(eigenvalues[-h:], np.finfo(np.float64).tiny))
    run = uuid.uuid4().hex
    before: Matrix | None = None
    iteration, converged = 0, False
    while True:
        # Step k computes R_k from the present sum, and the next sum. The distance of R_k from R_{k−1} decides.
        total = _stepped(client, parts, S, before, run, iteration)
        if iteration and total.moved <= _TOLERANCE:
            converged = True
        if converged or iteration == _MOST_ITERATIONS:
            break
        before, S = S, total.sum
        iteration += 1
    gap = _stepped(client, parts, total.sum, S, run, iteration + 1).moved
    converged = converged or gap <= _TOLERANCE
    return Reduced(S, total, iteration, Termination.CONVERGED if converged else Termination.ITERATION_LIMIT, gap)


def _stepped(client: Client, parts: Sequence[Part], S: Matrix, before: Matrix | None, run: str, iteration: int) -> Sum:
    # As results of tasks, these are sent to each worker once and recomputed if a worker is lost.
    now, then = (None if each is None else share_with_workers(client, each) for each in (S, before))
    return sum_over_workers(
        client,
        [
            client.submit(step, part.stack, part.rows, part.group, now, then, run, iteration, pure=False)
            for part in parts
        ],
    )


@dataclass(frozen=True, eq=False)
class Sum:
    """A partial result: the sum of matrices, of squares, and of the squared steps of maps."""

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
    """Return Σ B̄_j R_j for R_j = Π(B̄_jᵀ S), and the distance of the R_j from those of the sum `before`."""
    B = select_rows(stack, rows)
    Bt = np.swapaxes(B, 1, 2)
    maps = np.asarray(polar_factor(Bt @ S))
    moved = math.nan
    if before is not None:
        known = _MAPS_KEPT.get((run, group))
        old = known[1] if known and known[0] == iteration - 1 else np.asarray(polar_factor(Bt @ before))
        moved = float(((maps - old) ** 2).sum())
    if run:
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
    """Return maps computed from S, mean rows, and the fit of each participant to the sum of the others."""
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
