"""Model inversion on tables (Fredrikson et al. 2014): a column of a record, from its other columns, its label and the model.

Each value that the column may have is put into the record, and the one is taken that is likeliest, given how frequent it is
among records of this label and how well the model then predicts the label.
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
    """Which cells are found, with the model and without it, each of shape (n_rows, n_groups)."""
    found, guessed = np.zeros((2, len(rows), len(groups)))
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
        found[:, k] = (priors + likelihoods).argmax(axis=1) == truth
        guessed[:, k] = priors.argmax(axis=1) == truth
    return found, guessed


def _list_values(cells: Matrix) -> tuple[Matrix, Indices]:
    """Values that a column may have, and the place of each row's; of a number that may be missing, its flags come last."""
    values, truth = np.unique(cells, axis=0, return_inverse=True)
    if len(values) <= MOST_VALUES or np.isin(cells, (0, 1)).all():
        return values, truth.reshape(-1)
    flags = np.unique(cells[:, 1:], axis=0, return_inverse=True)[1].reshape(-1)
    present = cells[flags == 0, 0]  # np.unique sorts: without a flag comes first
    ends = np.unique(np.quantile(present, np.arange(1, _N_BINS) / _N_BINS))
    truth = np.unique(flags * _N_BINS + np.searchsorted(ends, cells[:, 0]), return_inverse=True)[1]
    return np.array([np.median(cells[truth == k], axis=0) for k in range(int(truth.max()) + 1)]), truth
