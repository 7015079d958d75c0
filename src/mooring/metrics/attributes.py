"""Attribute inference: what the reconstruction tells of an attribute beyond what the label tells.

The attacker learns the attribute from the rows it owns, the colluder's, and reads it off the target's reconstructed
rows. What it could infer from the target's labels alone, without any upload, is the control.
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
    """Of shape (r, m)."""
    attribute: ArrayLike
    labels: ArrayLike
    """Of shape (r,)."""


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
    """Infer an attribute of the target's rows, as an attacker would that owns other rows of the same kind.

    Parameters
    ----------
    attribute : array of shape (n,)
        The true attribute of the target's rows.
    population : KnownRows
        The colluder's.
    target_reconstruction, target_labels : array of shape (n, m), (n,)
        The target's reconstructed rows and its labels, which the attacker sees.
    kind : {"category", "number"}
        A category is inferred by logistic regression and scored by balanced accuracy, a number by ridge regression and
        scored by R²; either on standardised rows.
    with_labels : bool, default False
        Whether the attacker learns from its labels as well as from its rows.

    Returns
    -------
    Figure
        Its control is the same measure of the inference from the label alone.

    Notes
    -----
    Balanced accuracy counts every category alike, so both sides choose with categories weighted alike: the control
    takes the category in which a label is most over-represented, the plain majority where categories are equally
    frequent. For a number it takes the label's mean. A label that the population lacks gets what no label would.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((200, 3))
    >>> smoker, label = rows[:, 0] > 0, np.zeros(100)
    >>> found = infer_attribute(
    ...     smoker[:100],
    ...     population=KnownRows(rows[100:], smoker[100:], label),
    ...     target_reconstruction=rows[:100],
    ...     target_labels=label,
    ...     rng=np.random.default_rng(1),
    ... )
    >>> found.value > 0.9, found.control
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
    """The category of each row, that of each label alone, and that of a label which is not known."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    categories, codes, counts = np.unique(known, return_inverse=True, return_counts=True)
    if len(categories) < 2:
        expected, cure = "of at least two categories", "Pass rows of a colluder that knows more than one category."
        raise InputError("population.attribute", expected=expected, got=f"{len(categories)}", cure=cure)
    by_label = np.zeros((label_codes.max() + 1, len(categories)))
    np.add.at(by_label, (label_codes, codes), 1.0 / counts[codes])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an attacker stops where it likes
        learner = LogisticRegression(class_weight="balanced", max_iter=_MAX_ITERATIONS)
        guess = _learn(learner, known_rows, codes, rows)
    return categories[guess], categories[by_label.argmax(axis=1)], categories[0]


def _learn(learner: Any, known_rows: Matrix, known: NDArray[Any], rows: Matrix) -> NDArray[Any]:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return np.asarray(make_pipeline(StandardScaler(), learner).fit(known_rows, known).predict(rows))


def _one_hot(labels: NDArray[Any], names: NDArray[Any]) -> Matrix:
    """One column a known label; a row of zeros for a label that is not known."""
    return np.asarray(labels[:, None] == names, dtype=np.float64)


def _recall_columns(truth: NDArray[Any], guess: NDArray[Any], control: NDArray[Any]) -> Matrix:
    """For each category of the truth: whether a row is of it, and if so, whether attack and control found it."""
    of_category = _one_hot(truth, np.unique(truth))
    return np.hstack([of_category, of_category * (guess == truth)[:, None], of_category * (control == truth)[:, None]])


def _balanced_accuracies(sums: Matrix) -> Matrix:
    """Mean recall over the categories that occur, of attack and control: shape (..., 2)."""
    n_of, found, found_by_label = np.split(sums, 3, axis=-1)
    occurs = n_of > 0
    recalls = np.stack([found, found_by_label], axis=-1) / np.where(occurs, n_of, 1.0)[..., None]
    return np.asarray(recalls.sum(axis=-2) / occurs.sum(axis=-1)[..., None], dtype=np.float64)


def _square_columns(truth: Matrix, guess: Matrix, control: Matrix) -> Matrix:
    """What R² is made of, row by row; the truth is shifted to mean 0, so that its squares lose no digits."""
    shifted = np.where(np.ptp(truth) == 0, 0.0, truth - truth.mean())
    return np.column_stack([np.ones_like(truth), shifted, shifted**2, (guess - truth) ** 2, (control - truth) ** 2])


def _determinations(sums: Matrix) -> Matrix:
    """R² of attack and control: shape (..., 2), NaN where the truth does not vary."""
    n_rows, total, squares, *missed = np.moveaxis(sums, -1, 0)
    spread = squares - total**2 / n_rows
    varies = spread > _ROUNDING * squares
    missing = np.stack(missed, axis=-1) / np.where(varies, spread, 1.0)[..., None]
    return np.where(varies[..., None], 1.0 - missing, math.nan)
