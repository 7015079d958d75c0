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
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mooring.errors import InputError
from mooring.metrics.intervals import Figure, Interval, percentile_interval, resampled_sums
from mooring.metrics.validation import Integers, finite_rows, finite_vector, require_length
from mooring.randomness import require_generator
from mooring.typing import Matrix

_MAX_ITERATIONS = 1000


@dataclass(frozen=True)
class AttributeInference:
    """How well an attribute was inferred, from the reconstruction and from the label alone."""

    attack: Figure
    """Balanced accuracy (categories) or R² (numbers) of the inference from the reconstruction; its control is the value of
    `baseline`."""
    baseline: Figure
    """The same measure of the inference from the label alone."""
    advantage: float
    """What the reconstruction adds: attack less baseline."""
    advantage_interval: Interval
    """Its bootstrap interval; both are measured on the same resampled rows."""


@dataclass(frozen=True, eq=False)
class KnownRows:
    """The colluder's rows, with their attribute and labels."""

    rows: ArrayLike
    """Of shape (r, m)."""
    attribute: ArrayLike
    labels: ArrayLike
    """Of shape (r,)."""


@dataclass(frozen=True)
class InferenceSettings:
    """How an attribute is inferred."""

    kind: Literal["category", "number"] = "category"
    """A category is inferred by logistic regression and scored by balanced accuracy, a number by ridge regression and
    scored by R²; either on standardised rows."""
    attribute_column: int | None = None
    """The column of the rows that is the attribute itself: then nothing is learned, and the reconstructed value is the
    inference. For a category it goes to the category whose rows, in the population, have the nearest mean in that column,
    so that the column may be scaled. A number must be in the units of the column."""
    with_labels: bool = False
    """Whether the attacker learns from its labels as well as from its rows."""
    regularisation: float = 1.0
    """Strength of the ridge, or of the same penalty in logistic regression."""
    name: str = "attribute"
    """The attribute's name in the figures."""
    level: float = 0.95
    n_resamples: int = 2000

    def __post_init__(self) -> None:
        if not (math.isfinite(self.regularisation) and self.regularisation > 0):
            raise InputError(
                "regularisation", expected="positive", got=f"{self.regularisation:g}", cure="Pass 1.0, say."
            )
        if self.kind not in ("category", "number"):
            raise InputError(
                "kind", expected="'category' or 'number'", got=repr(self.kind), cure="Pass one of the two."
            )


def infer_attribute(
    attribute: ArrayLike,
    *,
    population: KnownRows,
    target_reconstruction: ArrayLike,
    target_labels: ArrayLike,
    rng: np.random.Generator,
    settings: InferenceSettings | None = None,
) -> AttributeInference:
    """Infer an attribute of the target's rows, as an attacker would that owns other rows of the same kind.

    Parameters
    ----------
    attribute : array of shape (n,)
        The true attribute of the target's rows.
    population : KnownRows
        The colluder's.
    target_reconstruction, target_labels : array of shape (n, m), (n,)
        The target's reconstructed rows and its labels, which the attacker sees.

    Notes
    -----
    Balanced accuracy counts every category alike, so both sides choose with categories weighted alike: the baseline
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
    >>> found.attack.value > 0.9, found.baseline.value
    (True, 0.5)
    """
    require_generator(rng)
    settings = settings or InferenceSettings()
    known_rows = finite_rows("population.rows", population.rows)
    rows = finite_rows("target_reconstruction", target_reconstruction)
    if rows.shape[1] != known_rows.shape[1]:
        raise InputError(
            "target_reconstruction",
            expected=f"of {known_rows.shape[1]} features like the population's rows",
            got=f"{rows.shape[1]}",
            cure="Decode the reconstruction to the features of the records.",
        )
    column = settings.attribute_column
    if column is not None and not 0 <= column < rows.shape[1]:
        expected = f"between 0 and {rows.shape[1] - 1}"
        raise InputError("attribute_column", expected=expected, got=str(column), cure="Count columns from 0.")
    truth = require_length("attribute", attribute, n_rows=len(rows))
    known = require_length("population.attribute", population.attribute, n_rows=len(known_rows))
    known_labels = require_length("population.labels", population.labels, n_rows=len(known_rows))
    labels = require_length("target_labels", target_labels, n_rows=len(rows))
    attacker = _Attacker.knowing(known_rows, rows, known_labels, labels, settings)
    measure: Callable[[Matrix], Matrix]
    if settings.kind == "category":
        categories, codes = np.unique(known, return_inverse=True)
        guess, baseline = attacker.infer_category(codes)
        columns, measure = _recall_columns(truth, categories[guess], categories[baseline]), _balanced_accuracies
        chance = 1.0 / len(categories)
    else:
        truth, known = finite_vector("attribute", truth), finite_vector("population.attribute", known)
        columns, measure = _square_columns(truth, *attacker.infer_number(known)), _determinations
        chance = 0.0
    return _compared(columns, measure, chance, rng=rng, settings=settings)


@dataclass(frozen=True, eq=False)
class _Attacker:
    """What the attacker has to infer from: its own rows and labels, the target's reconstructed rows and labels."""

    known_rows: Matrix
    rows: Matrix
    label_codes: Integers
    label_columns: Matrix
    column: tuple[Matrix, Matrix] | None
    regularisation: float

    @classmethod
    def knowing(
        cls,
        known_rows: Matrix,
        rows: Matrix,
        known_labels: NDArray[Any],
        labels: NDArray[Any],
        settings: InferenceSettings,
    ) -> _Attacker:
        names, codes = np.unique(known_labels, return_inverse=True)
        label_columns = _one_hot(labels, names)
        chosen = settings.attribute_column
        column = None if chosen is None else (known_rows[:, chosen], rows[:, chosen])
        if settings.with_labels:
            known_rows = np.hstack([known_rows, _one_hot(known_labels, names)])
            rows = np.hstack([rows, label_columns])
        return cls(known_rows, rows, codes, label_columns, column, settings.regularisation)

    def infer_category(self, codes: Integers) -> tuple[Integers, Integers]:
        """Infer the codes of categories from the rows, and from the labels alone."""
        counts = np.bincount(codes)
        if len(counts) < 2:
            expected, cure = "of at least two categories", "Pass rows of a colluder that knows more than one category."
            raise InputError("population.attribute", expected=expected, got=f"{len(counts)}", cure=cure)
        by_label = np.zeros((self.label_columns.shape[1], len(counts)))
        np.add.at(by_label, (self.label_codes, codes), 1.0 / counts[codes])
        baseline = self._of_label(by_label.argmax(axis=1), otherwise=0)
        if self.column is None:
            learner = LogisticRegression(C=1.0 / self.regularisation, class_weight="balanced", max_iter=_MAX_ITERATIONS)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # an attacker stops where it likes
                return self._learned(learner, codes), baseline
        means = np.bincount(codes, weights=self.column[0]) / counts
        if len(np.unique(means)) < len(means):
            raise InputError(
                "attribute_column",
                expected="a column that tells the categories apart",
                got="categories with the same mean in it",
                cure="Pass the column that holds the attribute.",
            )
        return np.abs(self.column[1][:, None] - means).argmin(axis=1), baseline

    def infer_number(self, known: Matrix) -> tuple[Matrix, Matrix]:
        """Infer numbers from the rows, and from the labels alone."""
        means = np.bincount(self.label_codes, weights=known) / np.bincount(self.label_codes)
        baseline = self._of_label(means, otherwise=known.mean())
        if self.column is None:
            return self._learned(Ridge(alpha=self.regularisation), known), baseline
        if not np.allclose(self.column[0], known):
            raise InputError(
                "population.attribute",
                expected="the values of attribute_column, in its units",
                got="other values",
                cure="Undo the scaling of the rows, or scale the attribute like its column.",
            )
        return self.column[1], baseline

    def _learned(self, learner: Any, known: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(make_pipeline(StandardScaler(), learner).fit(self.known_rows, known).predict(self.rows))

    def _of_label(self, answers: NDArray[Any], *, otherwise: Any) -> NDArray[Any]:
        """The answer for each target row's label, and `otherwise` for labels that the population lacks."""
        of_known = answers[self.label_columns.argmax(axis=1)]
        return np.asarray(np.where(self.label_columns.any(axis=1), of_known, otherwise))


def _one_hot(labels: NDArray[Any], names: NDArray[Any]) -> Matrix:
    """One column a known label; a row of zeros for a label that is not known."""
    return np.asarray(labels[:, None] == names, dtype=np.float64)


def _recall_columns(truth: NDArray[Any], guess: NDArray[Any], baseline: NDArray[Any]) -> Matrix:
    """For each category of the truth: whether a row is of it, and if so, whether attack and baseline found it."""
    of_category = _one_hot(truth, np.unique(truth))
    return np.hstack([of_category, of_category * (guess == truth)[:, None], of_category * (baseline == truth)[:, None]])


def _balanced_accuracies(sums: Matrix) -> Matrix:
    """Mean recall over the categories that occur, of attack and baseline: shape (..., 2)."""
    n_of, found, found_by_label = np.split(sums, 3, axis=-1)
    occurs = n_of > 0
    recalls = np.stack([found, found_by_label], axis=-1) / np.where(occurs, n_of, 1.0)[..., None]
    return np.asarray(recalls.sum(axis=-2) / occurs.sum(axis=-1)[..., None], dtype=np.float64)


def _square_columns(truth: Matrix, guess: Matrix, baseline: Matrix) -> Matrix:
    """What R² is made of, row by row; the truth is shifted to mean 0, so that its squares lose no digits."""
    shifted = np.where(np.ptp(truth) == 0, 0.0, truth - truth.mean())
    return np.column_stack([np.ones_like(truth), shifted, shifted**2, (guess - truth) ** 2, (baseline - truth) ** 2])


def _determinations(sums: Matrix) -> Matrix:
    """R² of attack and baseline: shape (..., 2), NaN where the truth does not vary."""
    n_rows, total, squares, *missed = np.moveaxis(sums, -1, 0)
    spread = squares - total**2 / n_rows
    varies = spread > 1e-12 * squares
    missing = np.stack(missed, axis=-1) / np.where(varies, spread, 1.0)[..., None]
    return np.where(varies[..., None], 1.0 - missing, math.nan)


def _compared(
    columns: Matrix,
    measure: Callable[[Matrix], Matrix],
    chance: float,
    *,
    rng: np.random.Generator,
    settings: InferenceSettings,
) -> AttributeInference:
    name = settings.name
    attack, baseline = measure(columns.sum(axis=0))
    estimates = measure(resampled_sums(columns, rng=rng, n_resamples=settings.n_resamples))
    estimates = estimates[~np.isnan(estimates).any(axis=1)]
    intervals = [
        percentile_interval(values, n_rows=len(columns), level=settings.level)
        for values in (estimates[:, 0], estimates[:, 1], estimates[:, 0] - estimates[:, 1])
    ]
    n = len(columns)
    return AttributeInference(
        Figure(name, attack, intervals[0], chance, baseline, None, n, higher_is_worse=True),
        Figure(f"{name}, from the label alone", baseline, intervals[1], chance, None, None, n, higher_is_worse=True),
        float(attack - baseline),
        intervals[2],
    )
