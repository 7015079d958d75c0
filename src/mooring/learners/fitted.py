"""Trained learners: a scikit-learn estimator with the scale of its rows, or a model that consists of arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.geometry.backend import require_finite
from mooring.learners.models import Kind, Model, Predicted, choose_classes
from mooring.typing import Labels, Matrix, Vector


class Fitted(Protocol):
    """A trained learner."""

    @property
    def learner(self) -> str:
        """The name of the learner."""

    @property
    def kind(self) -> Kind:
        """Whether it predicts classes or a number."""

    def predict(self, rows: Matrix) -> Labels:
        """Predict the labels of rows of shape (n, h)."""

    def probabilities(self, rows: Matrix, n_classes: int) -> Matrix | None:
        """Predict the probabilities of the classes 0 to `n_classes` − 1, of shape (n, classes).

        The result is None for a number, and for a learner without probabilities.
        """

    def to_model(self, n_classes: int = 0) -> Model:
        """Return the model as arrays; 0 classes stand for as many as the learner knows.

        Raises InputError where the model would hold rows, or cannot be written as arrays.
        """


@dataclass(frozen=True, eq=False)
class FittedEstimator:
    """A trained scikit-learn estimator, with the number that its rows are divided by."""

    learner: str
    kind: Kind
    n_components: int
    """The number of columns of its rows, h."""
    scale: float
    estimator: Any
    """The estimator, trained on rows / scale."""
    class_shares: Vector
    """The share of each of the estimator's classes among its rows; 1 if a number is predicted."""

    def predict(self, rows: Matrix) -> Labels:
        """Predict the labels of rows of shape (n, h): classes by `choose_classes` if there are probabilities."""
        if not self._has_probabilities:
            return np.asarray(self.estimator.predict(self.scaled(rows)))
        return self._choose(self.estimator.predict_proba(self.scaled(rows)))

    def predict_with_probabilities(self, rows: Matrix, n_classes: int) -> tuple[Labels, Matrix | None]:
        """Return what `predict` and `probabilities` return, computed once."""
        if not self._has_probabilities:
            return self.predict(rows), None
        shares = self.estimator.predict_proba(self.scaled(rows))
        return self._choose(shares), self._spread(shares, n_classes)

    def _choose(self, shares: Matrix) -> Labels:
        return np.asarray(self.estimator.classes_[choose_classes(shares, self.class_shares, are_probabilities=True)])

    def _spread(self, shares: Matrix, n_classes: int) -> Matrix:
        """Return shares of the estimator's classes as shares of the classes 0 to `n_classes` − 1."""
        spread = np.zeros((len(shares), n_classes))
        spread[:, self.estimator.classes_] = shares
        return spread

    @property
    def _has_probabilities(self) -> bool:
        return self.kind == "classes" and hasattr(self.estimator, "predict_proba")

    def probabilities(self, rows: Matrix, n_classes: int) -> Matrix | None:
        """Predict the probabilities of the classes 0 to `n_classes` − 1; None for a number, and without `predict_proba`."""
        if not self._has_probabilities:
            return None
        return self._spread(self.estimator.predict_proba(self.scaled(rows)), n_classes)

    def scaled(self, rows: Matrix) -> npt.NDArray[Any]:
        """Return rows divided by the scale, as the estimator expects them."""
        return np.asarray(rows / np.float64(self.scale))  # in double precision, whatever the precision of the rows

    def to_model(self, n_classes: int = 0) -> Model:
        """Return the model as arrays (`mooring.learners.conversion`)."""
        from mooring.learners.conversion import convert_estimator  # loads scikit-learn

        return convert_estimator(
            self.estimator,
            kind=self.kind,
            n_inputs=self.n_components,
            scale=self.scale,
            class_shares=self.class_shares,
            n_classes=n_classes,
        )


@dataclass(frozen=True, eq=False)
class FittedModel:
    """A trained learner whose model consists of arrays."""

    learner: str
    model: Model

    @property
    def kind(self) -> Kind:
        """Whether it predicts classes or a number."""
        return self.model.spec.kind

    def predict(self, rows: Matrix) -> Labels:
        """Predict the labels of rows of shape (n, h)."""
        return self.model.predict(rows)

    def probabilities(self, rows: Matrix, n_classes: int) -> Matrix | None:
        """Predict the probabilities of the classes 0 to `n_classes` − 1; the model must not know any further class."""
        shares = self.model.predict_with_probabilities(rows)[1]
        return None if shares is None else np.pad(shares, ((0, 0), (0, n_classes - shares.shape[1])))

    def to_model(self, n_classes: int = 0) -> Model:
        """Return the model, for this many classes."""
        return self.model.with_classes(n_classes or self.model.spec.n_classes)


def require_labelled_rows(rows: Matrix, labels: Labels, kind: Kind) -> None:
    """Raise an `InputError` for rows or labels that no learner can be trained on.

    There must be at least one row, of shape (n, h), and one label per row, of shape (n,) or (n, k) for k numbers at once;
    all numbers must be finite.
    """
    if rows.ndim != 2 or min(rows.shape) < 1:
        cure = "Give a table with a row for each record."
        raise InputError("rows", expected="of shape (n, h), n and h at least 1", got=f"shape {rows.shape}", cure=cure)
    require_finite("rows", rows)
    if labels.shape[:1] != (len(rows),):
        expected, got = f"{len(rows)}, one for each row", f"shape {labels.shape}"
        raise InputError("labels", expected=expected, got=got, cure="Give one label for each row.")
    if kind == "number":
        require_finite("labels", labels)


def find_class_shares(labels: Labels, kind: Kind) -> Vector:
    """Return the share of each class that occurs among labels, in the order of the classes; 1 for numbers."""
    return np.unique(labels, return_counts=True)[1] / labels.size if kind == "classes" else np.ones(1)


def find_scale(rows: Matrix) -> float:
    """Return the standard deviation of rows of shape (n, h), over all columns; 1 if all rows are equal."""
    return float(np.sqrt(np.mean((rows - rows.mean(axis=0)) ** 2))) or 1.0


def predict_classes(fitted: Fitted, rows: Matrix, classes: Labels | None) -> Predicted:
    """Return the predictions of a learner that was trained on class codes, and a score for each class.

    The scores are probabilities or, for a learner without probabilities, 1 for the predicted class and 0 for others. If
    `classes` is None, the learner predicts numbers, and the scores are None.
    """
    if classes is None:
        return fitted.predict(rows), None
    if isinstance(fitted, FittedEstimator):
        predicted, shares = fitted.predict_with_probabilities(rows, classes.size)
    else:
        predicted, shares = fitted.predict(rows), fitted.probabilities(rows, classes.size)
    if shares is None:
        shares = np.asarray(predicted[:, None] == np.arange(classes.size), dtype=np.float64)
    return classes[predicted], shares
