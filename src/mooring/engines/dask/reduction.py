"""Alignment whose steps reduce over workers, for more anchor representations than one process should hold.

Legend: B̄_j the centred anchor representation of participant j (r × h); R_j ∈ O(h); S = Σ B̄_j R_j; Π the polar factor.

The generalized power method needs of all participants together only S: R_j ← Π(B̄_jᵀ S), then S ← Σ B̄_j R_j. Each worker
keeps the B̄_j of its groups and takes both steps for them; what travels is one r × h matrix a group, summed in a tree. The
start is the spectral one, from the r × r matrix Σ B̄_j B̄_jᵀ, and the stopping rule that of `mooring.align`: the whole stack
of maps moves by at most the tolerance. The maps agree with those of `mooring.align` up to one turn common to all,
which changes no distance in the common space.
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
from mooring.protocol.analyst.anchor_source import AnchorSolution, Newcomer, fit_newcomer
from mooring.protocol.analyst.outliers import Fits, measure_fit, measure_random_fit
from mooring.protocol.messages.bundle import Bundle
from mooring.typing import Matrix

Stack = tuple[Matrix, Matrix]
Rows = tuple[int, ...]
_SUMMED_AT_ONCE = 16
_MOST_ITERATIONS, _TOLERANCE = 500, 1e-7  # steps, and what maps may still move
_MAPS_KEPT: dict[tuple[str, int], tuple[int, Matrix]] = {}
"""On a worker: of a run and a group, the step and the maps after it. Only a short cut: others are made again."""


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a group's stack, and the group's number, by which a worker knows its maps again."""

    stack: Future
    group: int
    rows: Rows


@dataclass(frozen=True, eq=False)
class Reduced:
    """Where the reduction came to rest: maps follow from `weighted_sum`, and `total` from the maps."""

    weighted_sum: Matrix
    """Of shape (r, h): S, from which R_j = Π(B̄_jᵀ S)."""
    total: Sum
    """Σ B̄_j R_j."""
    iterations: int
    termination: Termination
    gap: float
    """How far one more step would move the maps."""

    @property
    def objective(self) -> float:
        """tr(Rᵀ G R)."""
        return float((self.total.sum**2).sum())


class AnchorsOnWorkers:
    """The anchor representations with the workers that verified them."""

    can_certify = False

    def __init__(self, client: Client, stacks: Sequence[Future]) -> None:
        self._client, self._stacks = client, stacks

    def check_rank(self, bundles: Sequence[Bundle]) -> list[bool]:
        """Whether each spans all directions."""
        return [cast(RemoteBundle, bundle).has_full_rank for bundle in bundles]

    def solve(
        self, bundles: Sequence[Bundle], *, reference: int | None = None, certify: bool = False
    ) -> AnchorSolution:
        """Align these; no proof is tried."""
        parts, order = self._parts(bundles)
        if reference is not None:
            one = cast(RemoteBundle, bundles[reference])
            S, origin = self._client.submit(_one, self._stacks[one.group], one.row, pure=False).result()
            total = _stepped(self._client, parts, S, None, "", 0)
            gap = _stepped(self._client, parts, total.sum, S, "", 0).moved
            found = Reduced(S, total, 0, Termination.REFERENCE, gap)
        else:
            found = reduce_over_workers(self._client, parts)
            origin = np.zeros(found.weighted_sum.shape[1])
        p, h = len(bundles), origin.size
        sums = [share_with_workers(self._client, each) for each in (found.weighted_sum, found.total.sum)]
        told = [self._client.submit(_maps_and_fits, part.stack, part.rows, *sums, pure=False) for part in parts]
        orthogonals, means, values = np.empty((p, h, h)), np.empty((p, h)), np.empty(p)
        for places, (own, mean, fits) in zip(order, self._client.gather(told), strict=True):
            orthogonals[places], means[places], values[places] = own, mean, fits
        if reference is not None:
            orthogonals[reference] = np.eye(h)
        return AnchorSolution(
            orthogonals,
            means,
            np.ascontiguousarray(found.total.sum / p),
            np.ascontiguousarray(origin),
            found.iterations,
            str(found.termination),
            not found.termination.is_unfinished,
            found.gap / max(1.0, math.sqrt(p * h)),
            found.total.squares - found.objective / p,
            None,
            Fits(values, *measure_random_fit(found.total.sum)),
        )

    def fit_to_template(self, template: Matrix, bundles: Sequence[Bundle]) -> list[Newcomer]:
        """Fit each by itself to a template."""
        parts, order = self._parts(bundles)
        same = share_with_workers(self._client, template)
        told = [self._client.submit(newcomers, part.stack, part.rows, same, pure=False) for part in parts]
        found: list[Newcomer | None] = [None] * len(bundles)
        for places, some in zip(order, self._client.gather(told), strict=True):
            for place, one in zip(places, some, strict=True):
                found[place] = one
        return [one for one in found if one is not None]

    def _parts(self, bundles: Sequence[Bundle]) -> tuple[list[Part], list[list[int]]]:
        """The groups that hold these participants, and where each of a group's stands among them."""
        by_group: dict[int, list[tuple[int, int]]] = {}
        for place, bundle in enumerate(cast(Sequence[RemoteBundle], bundles)):
            by_group.setdefault(bundle.group, []).append((bundle.row, place))
        groups = sorted(by_group)
        parts = [Part(self._stacks[k], k, tuple(row for row, _ in by_group[k])) for k in groups]
        return parts, [[place for _, place in by_group[k]] for k in groups]


def reduce_over_workers(client: Client, parts: Sequence[Part]) -> Reduced:
    """The generalized power method from the spectral start; here are only matrices of r × h, and one of r × r."""
    start = sum_over_workers(client, [client.submit(outer, part.stack, part.rows, pure=False) for part in parts])
    h = start.n_components
    eigenvalues, eigenvectors = np.linalg.eigh(start.sum)
    S = eigenvectors[:, -h:] / np.sqrt(np.maximum(eigenvalues[-h:], np.finfo(np.float64).tiny))
    run = uuid.uuid4().hex
    before: Matrix | None = None
    iteration, converged = 0, False
    while True:
        # Step k makes R_k of the present sum, and the next sum; how far R_k is from R_{k−1} decides.
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
    # As results of tasks, these go to each worker once, and are made again if one is lost.
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
    """What workers hand on: a sum of matrices, of squares, and of squared distances that maps moved."""

    sum: Matrix
    squares: float
    moved_squared: float
    n_components: int

    @property
    def moved(self) -> float:
        """How far the whole stack of maps moved, in Frobenius norm."""
        return math.sqrt(self.moved_squared)


def sum_over_workers(client: Client, futures: Sequence[Future]) -> Sum:
    """Add up over workers in a tree, the same one at every run."""
    while len(futures) > 1:
        some = [futures[k : k + _SUMMED_AT_ONCE] for k in range(0, len(futures), _SUMMED_AT_ONCE)]
        futures = [client.submit(add, *each, pure=False) for each in some]
    found: Sum = futures[0].result()
    return found


# what runs on a worker


def select_rows(stack: Stack, rows: Rows) -> Matrix:
    """Some of a group's centred anchor representations."""
    return stack[0] if rows == tuple(range(len(stack[0]))) else stack[0][list(rows)]


def outer(stack: Stack, rows: Rows) -> Sum:
    """Σ B̄_j B̄_jᵀ, r × r."""
    B = select_rows(stack, rows)
    side_by_side = np.swapaxes(B, 0, 1).reshape(B.shape[1], -1)
    return Sum(side_by_side @ side_by_side.T, float((B**2).sum()), 0.0, B.shape[-1])


def step(stack: Stack, rows: Rows, group: int, S: Matrix, before: Matrix | None, run: str, iteration: int) -> Sum:
    """R_j = Π(B̄_jᵀ S), Σ B̄_j R_j, and how far the R_j are from those of the sum before."""
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
    """One sum of several."""
    return Sum(
        np.sum([each.sum for each in sums], axis=0),
        sum(each.squares for each in sums),
        sum(each.moved_squared for each in sums),
        sums[0].n_components,
    )


def _maps_and_fits(stack: Stack, rows: Rows, S: Matrix, total: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Orthogonal parts, made from S, mean rows, and how each fits the sum of the others, of `total` = Σ B̄_j R_j."""
    B = select_rows(stack, rows)
    maps = np.asarray(polar_factor(np.swapaxes(B, 1, 2) @ S))
    aligned = B @ maps
    fits = np.array([measure_fit(total - own, own) for own in aligned])
    return maps, stack[1][list(rows)], fits


def newcomers(stack: Stack, rows: Rows, template: Matrix) -> list[Newcomer]:
    """Each by itself against a template."""
    return [fit_newcomer(template, stack[0][row], stack[1][row]) for row in rows]


def _one(stack: Stack, row: int) -> tuple[Matrix, Matrix]:
    return np.array(stack[0][row]), np.array(stack[1][row])
