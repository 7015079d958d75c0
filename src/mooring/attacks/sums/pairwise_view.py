"""The view of an attacker on the general total: everybody's sums of products of two columns, and what the colluders know.

Legend: h_j the weights of a row on the levels of column j; φ_j = M_j h_j its coordinates, c the constant; β the bubbles
(M and bubbles as in `workload`).
A row adds to the total the products φ_i φ_jᵀ of two columns, c φ_j, cβ and c², but no φ_j φ_jᵀ.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.sums.view import LabelledFeatures, TotalView
from mooring.mechanisms.sums.general.layout import PairwiseLayout
from mooring.mechanisms.sums.general.total import PairwiseTotal
from mooring.mechanisms.sums.guarantee import ProductNoise
from mooring.typing import Matrix


@dataclass(frozen=True, eq=False, kw_only=True)
class PairwiseView(TotalView):
    """The attacker's view of the general total.

    Rows in this view are `LabelledFeatures` without outcomes. Their features are the weights h on the levels of all columns,
    including the label, followed by 4t(1 − t) for each bubble, where the row's number is a fraction t of the way between two
    nodes.
    """

    layout: PairwiseLayout
    """The layout of the sums, which is public, like the columns and the noise."""
    noise: ProductNoise | None
    """The noise of each contribution; None in a study without noise."""

    @cached_property
    def honest(self) -> PairwiseTotal:
        """The sums of honest participants: the total minus the known contributions."""
        variance = 0.0 if self.noise is None else float(self.n_honest * self.noise.on_products)
        return self.layout.unpack(self.honest_total, variance)

    def require_exact(self) -> None:
        """Raise `DoesNotApply` if the total carries noise."""
        if self.noise is not None:
            raise DoesNotApply("Noise hides which cells of two columns a single row fills.")

    def joint_features(self, rows: LabelledFeatures) -> Matrix:
        """Return the coordinates of rows in all columns and the constant, of shape (n, D)."""
        workload = self.layout.workload
        parts = [np.full((len(rows.features), 1), workload.constant_integer / workload.resolution)]
        at = 0
        for index, levels in enumerate(workload.columns):
            parts.append(rows.features[:, at : at + levels.n_levels] @ workload.scaled_contrasts(index).T)
            at += levels.n_levels
        return np.hstack(parts)

    def vectors(self, rows: LabelledFeatures) -> tuple[Matrix, Matrix]:
        """Return the coordinates of rows, and their bubbles in the units of the total, of shape (n, n_bubbles)."""
        workload = self.layout.workload
        heights = np.array([workload.integer_bubbles[index] for index in workload.bubbles]) / workload.resolution
        return self.joint_features(rows), rows.features[:, workload.n_levels :] * heights

    def list_blocks(self) -> list[slice]:
        """Return, for each column, the slice of its levels among those of all columns."""
        ends = np.cumsum([levels.n_levels for levels in self.layout.workload.columns])
        return [
            slice(int(end) - levels.n_levels, int(end))
            for end, levels in zip(ends, self.layout.workload.columns, strict=True)
        ]

    @cached_property
    def cells(self) -> Matrix:
        """Σ h hᵀ over the honest rows, of shape (n_levels, n_levels), which is zero between levels of the same column."""
        workload, total = self.layout.workload, self.honest
        functions = [
            workload.functional(levels.name, row).vector
            for levels in workload.columns
            for row in np.eye(levels.n_levels)
        ]
        readouts = np.array(functions)
        cells = readouts @ total.matrix @ readouts.T
        for block in self.list_blocks():
            cells[block, block] = 0.0
        return np.asarray(cells)

    @cached_property
    def counts(self) -> Matrix:
        """Σ h over the honest rows, of shape (n_levels,)."""
        workload, total = self.layout.workload, self.honest
        constant = total.matrix @ workload.constant.vector
        return np.array(
            [
                float(constant @ workload.functional(levels.name, row).vector)
                for levels in workload.columns
                for row in np.eye(levels.n_levels)
            ]
        )
