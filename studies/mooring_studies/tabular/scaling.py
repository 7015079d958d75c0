"""Numbers on one scale and gaps filled, by what training and public rows tell; test rows are only ever transformed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mooring.tables import Partition
from mooring.typing import Matrix
from mooring_studies.data.tables import TableRows

_NO_SPREAD = 1e-12  # of the mean: what rounding leaves of a constant column


@dataclass(frozen=True, eq=False)
class Scaling:
    """What fills a gap in each column, what is taken off, and what that is divided by.

    Attributes
    ----------
    medians, centres, scales : arrays of shape (n_features,)
        0, 0 and 1 for columns of zeros and ones.

    Examples
    --------
    >>> rows = np.array([[1.0, 0.0], [3.0, 1.0], [np.nan, 1.0], [2.0, 0.0]])
    >>> scaling = Scaling.fitted(rows, is_number=[True, False])
    >>> scaling.applied(np.array([[np.nan, 1.0], [2.0, 0.0]])).tolist()
    [[0.0, 1.0], [0.0, 0.0]]
    """

    medians: Matrix
    centres: Matrix
    scales: Matrix

    @classmethod
    def fitted(cls, rows: Matrix, *, is_number: Sequence[bool]) -> Scaling:
        """Fit to rows that have NaN for what is missing.

        A column that is constant is centred only. One that is missing in all these rows becomes 0 for everybody: nothing
        is known of its scale.
        """
        width = rows.shape[1]
        medians, centres, scales = np.zeros(width), np.zeros(width), np.ones(width)
        for k in np.flatnonzero(is_number):
            column = rows[:, k]
            present = column[~np.isnan(column)]
            if present.size == 0:
                scales[k] = np.inf
                continue
            medians[k] = np.median(present)
            filled = np.where(np.isnan(column), medians[k], column)
            centres[k], spread = filled.mean(), filled.std()
            if spread > _NO_SPREAD * abs(centres[k]):
                scales[k] = spread
        return cls(medians, centres, scales)

    def applied(self, rows: Matrix) -> Matrix:
        """Fill the gaps and standardise."""
        filled = np.where(np.isnan(rows), self.medians, rows)
        return np.asarray((filled - self.centres) / self.scales)


def on_one_scale(dealt: Partition, tables: TableRows) -> Partition:
    """The same deal with everybody's rows standardised by its training and public rows.

    Parameters
    ----------
    dealt : Partition
        Of `tables.records`.
    tables : TableRows
    """
    train = [tables.values(own) for own in dealt.train_indices]
    public = tables.values(dealt.public_indices)
    is_number = [kind != "category" for kind in tables.records.feature_kinds]
    scaling = Scaling.fitted(np.concatenate([*train, public]), is_number=is_number)
    return replace(
        dealt,
        train=tuple(scaling.applied(rows) for rows in train),
        test=tuple(scaling.applied(tables.values(own)) for own in dealt.test_indices),
        public=None if dealt.public is None else scaling.applied(public),
    )
