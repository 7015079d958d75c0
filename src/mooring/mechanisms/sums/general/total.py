"""The opened general total: estimates from it, the noise of these estimates, and a check for sums that no rows can produce.

Legend: S the matrix of products and D its order; A the coefficients of an estimate ⟨A, S⟩; σ² the variance of the noise on
the diagonal of S (see `workload`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from mooring.mechanisms.sums.general.workload import Workload
from mooring.typing import Labels, Matrix, Vector

_ROWS_AT_ONCE = 2**14


@dataclass(frozen=True, eq=False)
class PairwiseTotal:
    """The opened general total."""

    workload: Workload
    matrix: Matrix
    """S, of shape (D, D), with bubbles in the row and the column of the constant; entries that are not shared are zero."""
    noise_variance: float = 0.0
    """σ², the variance on the diagonal of the noise of all listed contributions together. Off the diagonal it is half."""
    epsilon: float | None = None
    delta: float | None = None
    """ε and δ of the guarantee for adding or removing one unit; None without a guarantee."""
    unit: str = "row"
    """The unit of the guarantee, "row" or "person"."""
    caveat: str = ""
    """Why the noise of this total gives no guarantee; empty if it gives one, or if there is no noise."""

    @property
    def n_rows(self) -> float:
        """An estimate of the number of rows, which noise can make negative."""
        return float(self.matrix[0, 0]) * (self.workload.resolution / self.workload.constant_integer) ** 2

    def estimate(self, matrix: Matrix) -> float:
        """Return ⟨A, S⟩."""
        return float(np.vdot(matrix, self.matrix))

    def estimates(self, matrices: Sequence[Matrix]) -> Vector:
        """Return ⟨A, S⟩ for several A."""
        return np.array([self.estimate(matrix) for matrix in matrices])

    def covariance(self, matrices: Sequence[Matrix]) -> Matrix:
        """Return the covariances σ²⟨A, A′⟩ of the noise in ⟨A, S⟩ and ⟨A′, S⟩ for all pairs of matrices."""
        flat = np.reshape(np.asarray(matrices), (len(matrices), -1))
        return np.asarray(self.noise_variance * (flat @ flat.T))

    def read(self, left: Matrix, right: Matrix) -> tuple[Vector, Matrix]:
        """Return uᵀSv for each row u of `left` and the row v of `right` beside it, and the covariance of the noise.

        `Workload.factors` returns such vectors. If A is the symmetric part of uvᵀ, ⟨A, A′⟩ is
        ½ [(u·u′)(v·v′) + (u·v′)(v·u′)].
        """
        across = left @ right.T
        noise = self.noise_variance / 2 * ((left @ left.T) * (right @ right.T) + across * across.T)
        return np.asarray(np.einsum("ij,ij->i", left @ self.matrix, right)), noise

    def select(self, names: Collection[str]) -> PairwiseTotal:
        """Return the part of the total that concerns only these columns."""
        workload = self.workload
        kept = [k for k, levels in enumerate(workload.columns) if levels.name in names]
        contrasts = [
            workload.starts[k] + contrast for k in kept for contrast in range(workload.columns[k].n_levels - 1)
        ]
        entries = [0, *contrasts, *(workload.bubbles[k] for k in kept if k in workload.bubbles)]
        return replace(self, workload=workload.select(names), matrix=self.matrix[np.ix_(entries, entries)])

    def with_noise(self, rng: np.random.Generator, variance: float) -> PairwiseTotal:
        """Return the total with additional normal noise, which has this variance on the diagonal, for simulations."""
        noise = np.triu(rng.normal(scale=math.sqrt(variance / 2), size=self.matrix.shape))
        noise = (noise + noise.T) * self.workload.shared
        noise[0, 0] /= math.sqrt(2)
        return replace(self, matrix=self.matrix + noise, noise_variance=self.noise_variance + variance)


def check_total(total: PairwiseTotal, most_rows: float = math.inf) -> list[str]:
    """Return a clause for each property of a total that no data of at most `most_rows` rows can have, apart from noise.

    The list is empty for a plausible total. Invented rows with valid values are not detected.
    """
    workload, deviation, problems = total.workload, 6 * math.sqrt(total.noise_variance), list[str]()
    inverse = workload.resolution / workload.constant_integer
    n, slack = total.n_rows, deviation * inverse**2
    if n - slack > most_rows:
        problems.append(f"it has about {n:,.0f} rows, and all participants together may add {most_rows:,.0f}")
    if n < -slack - 1e-6:
        problems.append("its number of rows is below zero")
    for levels in workload.columns:
        for k, name in enumerate(levels.names):
            vector = workload.functional(levels.name, np.eye(levels.n_levels)[k]).vector
            count, scale = float(total.matrix[0] @ vector) * inverse, float(np.linalg.norm(vector)) * inverse
            if not -deviation * scale - 1e-6 * max(n, 1) <= count <= max(n, 0) + slack + deviation * scale + 1:
                problems.append(
                    f"the count of level {name!r} of {levels.name!r} is below zero or above the number of rows"
                )
    lengths = np.sqrt(
        [float((workload.scaled_contrasts(k) ** 2).sum(axis=0).max()) for k in range(len(workload.columns))]
    )
    largest = np.repeat(lengths, [levels.n_levels - 1 for levels in workload.columns])
    bounds = np.outer(largest, largest) * (max(n, 0) + slack) + deviation + 1
    if (np.abs(total.matrix[1 : workload.n_features, 1 : workload.n_features]) > bounds).any():
        problems.append("columns are correlated more strongly than is possible")
    return problems


def sum_exactly(workload: Workload, rows: Matrix, labels: Labels | None = None) -> PairwiseTotal:
    """Return the total of encoded rows, with neither noise nor rounded weights, for simulations and tests."""
    products, bubbles = np.zeros((workload.n_levels + 1,) * 2), np.zeros(len(workload.bubbles))
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        here = slice(start, start + _ROWS_AT_ONCE)
        weights, curves = workload.weigh(rows[here], None if labels is None else labels[here])
        block = np.hstack([np.ones((len(weights), 1)), weights])
        products += block.T @ block
        bubbles += curves.sum(axis=0)
    return PairwiseTotal(workload, workload.assemble(products, bubbles))
