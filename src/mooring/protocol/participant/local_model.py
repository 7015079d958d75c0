"""A model of a participant's own rows alone, whose score joining has to exceed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from mooring.learners import Score, score
from mooring.learners.fitting import ROW_FOLDS, cross_validate_choice
from mooring.protocol.messages.study import Study
from mooring.tables.sampling import make_strata, split_stratified
from mooring.typing import Matrix


def measure_local_only(
    study: Study, rows: Matrix, labels: npt.NDArray[Any] | None, seed: int, *, most_rows: int = 5000
) -> Score | None:
    """Score a model of the rows as they are, by five-fold cross-validation; None if there is too little to learn from.

    If there are more than `most_rows` rows, a stratified sample of `most_rows` rows is used instead.
    """
    if labels is None or study.label.kind == "none" or rows.shape[0] < 2 * ROW_FOLDS:
        return None
    if np.unique(labels).size < 2:
        return None  # all labels are equal, so there is nothing to learn
    kind, rng = study.label.kind, np.random.default_rng([seed, 13])
    if rows.shape[0] > most_rows:
        strata = make_strata(labels, rows.shape[0])
        chosen, _ = split_stratified(np.arange(rows.shape[0]), strata, most_rows, rng=rng)
        rows, labels = rows[chosen], labels[chosen]
    predicted, shares = cross_validate_choice(rows, labels, kind=kind, seed=seed)
    return score(labels, predicted, kind=kind, rng=rng, shares=shares)
