"""Attribute inference: how much a reconstruction reveals about an attribute beyond the label.

The attacker learns to predict the attribute from the colluder's rows and applies the model to the target's reconstructed
rows. The control infers the attribute from the target's labels alone, without any upload.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mooring.errors import InputError, require_choice
from mooring.metrics.intervals import N_RESAMPLES, Figure, percentile_interval, resampled_sums
from mooring.metrics.validation import finite_rows, finite_vector, require_length
from mooring.randomness import require_generator
from mooring.typing import Matrix

_MAX_ITERATIONS, _ROUNDING = 1000, 1e-12


@dataclass(frozen=True, eq=False)
class KnownRows:
    """The colluder's rows, with their attribute and labels."""

    rows: ArrayLike
    """Rows, of shape (r, m)."""
    attribute: ArrayLike
    """The attribute of each row, of shape (r,)."""
    labels: ArrayLike
    """The label of each row, of shape (r,)."""


def infer_attribute(
    attribute: ArrayLike,
    *,
    population: KnownRows,
    target_reconstruction: ArrayLike,
    target_labels: ArrayLike,
    rng: np.random.Generator,
    kind: Literal["category", "number"] = "category",
    with_labels: bool = False,
    n_resamples: int = N_RESAMPLES,
) -> Figure:
    """Return how well an attacker who knows similar rows infers an attribute of the target's rows.

    A category is inferred by logistic regression and scored by balanced accuracy, a number by ridge regression and scored by
    R², both on standardised rows; `with_labels` makes the labels features, too. The control infers the attribute from the
    label alone: it predicts the mean over rows of this label, or the category in which the label is most over-represented,
    because balanced accuracy weights all categories equally. For a label that the population lacks, the control predicts
    the mean of all rows or the first category.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((200, 3))
    >>> smoker, label = rows[:, 0] > 0, np.zeros(100)
    >>> figure = infer_attribute(
    ...     smoker[:100],
    ...     population=KnownRows(rows[100:], smoker[100:], label),
    ...     target_reconstruction=rows[:100],
    ...     target_labels=label,
    ...     rng=np.random.default_rng(1),
    ... )
    >>> figure.value > 0.9, figure.control
    (True, 0.5)
    """
    require_generator(rng)
    require_choice("kind", kind, ("category", "number"))
    known_rows = finite_rows("population.rows", population.rows)
    rows = finite_rows("target_reconstruction", target_reconstruction)
    if rows.shape[1] != known_rows.shape[1]:
        expected, got = f"of {known_rows.shape[1]} features like the population's rows", f"{rows.shape[1]}"
        cure = "Decode the reconstruction to the features of the records."
        raise InputError("target_reconstruction", expected=expected, got=got, cure=cure)
    truth = require_length("attribute", attribute, n_rows=len(rows))
    known = require_length("population.attribute", population.attribute, n_rows=len(known_rows))
    known_labels = require_length("population.labels", population.labels, n_rows=len(known_rows))
    names, label_codes = np.unique(known_labels, return_inverse=True)
    of_label = _one_hot(require_length("target_labels", target_labels, n_rows=len(rows)), names)
    if with_labels:
        known_rows, rows = np.hstack([known_rows, _one_hot(known_labels, names)]), np.hstack([rows, of_label])
    measure: Callable[[Matrix], Matrix]
    if kind == "category":
        guess, by_label, otherwise = _infer_category(known_rows, known, rows, label_codes)
        chance, measure, make_columns = 1.0 / np.unique(known).size, _balanced_accuracies, _recall_columns
    else:
        truth, known = finite_vector("attribute", truth), finite_vector("population.attribute", known)
        from sklearn.linear_model import Ridge

        guess, otherwise = _learn(Ridge(), known_rows, known, rows), known.mean()
        by_label = np.bincount(label_codes, weights=known) / np.bincount(label_codes)
        chance, measure, make_columns = 0.0, _determinations, _square_columns
    control = np.where(of_label.any(axis=1), by_label[of_label.argmax(axis=1)], otherwise)
    columns = make_columns(truth, guess, control)
    value, without = measure(columns.sum(axis=0))
    estimates = measure(resampled_sums(columns, rng=rng, n_resamples=n_resamples))
    interval = percentile_interval(estimates[~np.isnan(estimates).any(axis=1), 0], n_rows=len(columns))
    return Figure("attribute", value, interval, chance, without, None, len(columns), higher_is_worse=True)


def _infer_category(
    known_rows: Matrix, known: NDArray[Any], rows: Matrix, label_codes: NDArray[np.intp]
) -> tuple[NDArray[Any], NDArray[Any], Any]:
    """Return the category inferred for each row, the one inferred from each label alone, and the one for unknown labels."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    categories, codes, counts = np.unique(known, return_inverse=True, return_counts=True)
    if len(categories) < 2:
        expected, cure = "of at least two categories", "Pass rows of a colluder with more than one category."
        raise InputError("population.attribute", expected=expected, got=f"{len(categories)}", cure=cure)
    by_label = np.zeros((label_codes.max() + 1, len(categories)))
    np.add.at(by_label, (label_codes, codes), 1.0 / counts[codes])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an attacker need not run to convergence
        learner = LogisticRegression(class_weight="balanced", max_iter=_MAX_ITERATIONS)
        guess = _learn(learner, known_rows, codes, rows)
    return categories[guess], categories[by_label.argmax(axis=1)], categories[0]


def _learn(learner: Any, known_rows: Matrix, known: NDArray[Any], rows: Matrix) -> NDArray[Any]:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return np.asarray(make_pipeline(StandardScaler(), learner).fit(known_rows, known).predict(rows))


def _one_hot(labels: NDArray[Any], names: NDArray[Any]) -> Matrix:
    """Return one column per known label; an unknown label gives a row of zeros."""
    return np.asarray(labels[:, None] == names, dtype=np.float64)


def _recall_columns(truth: NDArray[Any], guess: NDArray[Any], control: NDArray[Any]) -> Matrix:
    """Return indicators per category: the row belongs to it, and the attack or the control inferred it correctly."""
    of_category = _one_hot(truth, np.unique(truth))
    return np.hstack([of_category, of_category * (guess == truth)[:, None], of_category * (control == truth)[:, None]])


def _balanced_accuracies(sums: Matrix) -> Matrix:
    """Return the mean recall over the categories that occur, for attack and control, of shape (..., 2)."""
    n_rows, n_by_attack, n_by_control = np.split(sums, 3, axis=-1)
    occurs = n_rows > 0
    recalls = np.stack([n_by_attack, n_by_control], axis=-1) / np.where(occurs, n_rows, 1.0)[..., None]
    return np.asarray(recalls.sum(axis=-2) / occurs.sum(axis=-1)[..., None], dtype=np.float64)


def _square_columns(truth: Matrix, guess: Matrix, control: Matrix) -> Matrix:
    """Return the terms of R², row by row. The truth is centred so that its squares lose no digits."""
    shifted = np.where(np.ptp(truth) == 0, 0.0, truth - truth.mean())
    return np.column_stack([np.ones_like(truth), shifted, shifted**2, (guess - truth) ** 2, (control - truth) ** 2])


def _determinations(sums: Matrix) -> Matrix:
    """Return R² of attack and control, of shape (..., 2); NaN where the truth does not vary."""
    n_rows, total, squares, *missed = np.moveaxis(sums, -1, 0)
    spread = squares - total**2 / n_rows
    varies = spread > _ROUNDING * squares
    missing = np.stack(missed, axis=-1) / np.where(varies, spread, 1.0)[..., None]
    return np.where(varies[..., None], 1.0 - missing, math.nan)
