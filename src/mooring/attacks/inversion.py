"""Model inversion on tables (Fredrikson et al. 2014), which infers a column from the other columns, the label and the model.

Each possible value of the column is inserted into the record. The attack selects the likeliest value, given its frequency
among records with this label and how well the model then predicts the label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from mooring.typing import Indices, Matrix

MOST_VALUES = 8
_N_BINS = 5


def invert_columns(
    log_likelihood: Callable[[Matrix], Matrix], rows: Matrix, codes: Indices, groups: Sequence[Indices]
) -> tuple[Matrix, Matrix]:
    """Return which cells are inferred correctly with the model, and without it, each of shape (n_rows, n_groups).

    `log_likelihood` returns the log probability of each row's label; `codes` are the rows' classes; `groups` are the
    features of each column. For a column of numbers with more than `MOST_VALUES` values, the quintile of the value is
    inferred.
    """
    inferred, guessed = np.zeros((2, len(rows), len(groups)))
    for k, group in enumerate(groups):
        values, truth = _list_values(rows[:, group])
        counts = np.ones((int(codes.max()) + 1, len(values)))
        np.add.at(counts, (codes, truth), 1)
        priors = np.log(counts)[codes]
        likelihoods = np.empty_like(priors)
        for column, value in zip(likelihoods.T, values, strict=True):
            changed = rows.copy()
            changed[:, group] = value
            column[:] = log_likelihood(changed)
        inferred[:, k] = (priors + likelihoods).argmax(axis=1) == truth
        guessed[:, k] = priors.argmax(axis=1) == truth
    return inferred, guessed


def _list_values(cells: Matrix) -> tuple[Matrix, Indices]:
    """Return the possible values of a column, and the index of each row's value.

    If there are many values, these are the medians of quintiles. A flag for missing values is the column's last feature.
    """
    values, truth = np.unique(cells, axis=0, return_inverse=True)
    if len(values) <= MOST_VALUES or np.isin(cells, (0, 1)).all():
        return values, truth.reshape(-1)
    flags = np.unique(cells[:, 1:], axis=0, return_inverse=True)[1].reshape(-1)
    present = cells[flags == 0, 0]  # np.unique sorts, so that rows without a flag come first
    ends = np.unique(np.quantile(present, np.arange(1, _N_BINS) / _N_BINS))
    truth = np.unique(flags * _N_BINS + np.searchsorted(ends, cells[:, 0]), return_inverse=True)[1]
    return np.array([np.median(cells[truth == k], axis=0) for k in range(int(truth.max()) + 1)]), truth
