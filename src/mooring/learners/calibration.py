"""Local calibration of a model with labelled rows that it was not trained on: probabilities and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax

from mooring.errors import InputError
from mooring.learners.models import choose_classes
from mooring.typing import Matrix, Vector

LEVEL = 0.9
"""The share of new rows that intervals must cover."""
FEWEST_ROWS = 20
_LEAST = 1e-6  # smallest probability
_RIDGE = 1.0  # penalty on the distance from slope 1 and bias 0: a fit to few rows changes probabilities little


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Recalibrated probabilities are proportional to p^slope · exp(bias). For two classes this is Platt scaling."""

    slope: float
    bias: Vector
    class_shares: Vector
    """The share of each class among the labelled rows, with one more row of each, so that none is zero."""

    @classmethod
    def fit(cls, truth: npt.NDArray[np.int64], probabilities: Matrix) -> Recalibration:
        """Fit by penalised maximum likelihood to the classes of some rows and their probabilities, of shape (n, classes)."""
        from scipy.optimize import minimize

        logs, places = np.log(probabilities.clip(_LEAST)), np.arange(truth.size)
        came_true = np.eye(probabilities.shape[1])[truth]

        def loss(parameters: Vector) -> tuple[float, Vector]:
            scores, off = parameters[0] * logs + parameters[1:], parameters - start
            left = softmax(scores, axis=1) - came_true
            gradient = np.r_[(left * logs).sum(), left.sum(axis=0)] + _RIDGE * off
            value = logsumexp(scores, axis=1).sum() - scores[places, truth].sum() + _RIDGE * (off @ off) / 2
            return float(value), gradient

        start = np.r_[1.0, np.zeros(probabilities.shape[1])]
        best = minimize(loss, start, jac=True, method="L-BFGS-B").x
        return cls(float(best[0]), best[1:], (came_true.sum(axis=0) + 1) / (truth.size + came_true.shape[1]))

    def apply(self, probabilities: Matrix) -> Matrix:
        """Return the recalibrated probabilities, of shape (n, classes)."""
        return np.asarray(softmax(self.slope * np.log(probabilities.clip(_LEAST)) + self.bias, axis=1))

    def choose(self, recalibrated: Matrix) -> npt.NDArray[np.int64]:
        """Return the predicted classes of rows with these recalibrated probabilities."""
        return choose_classes(recalibrated, self.class_shares, are_probabilities=True)


def conformal_radius(truth: Vector, predicted: Vector, level: float = LEVEL) -> float:
    """Return the radius around a prediction that covers the truth for at least a share `level` of new rows.

    This is split conformal prediction: the ⌈(n + 1) level⌉-th smallest of n errors on rows that the model was not fitted to.
    The share is covered whatever the model is, on average over draws of the calibration rows, if these and the new rows come
    from the same distribution.

    Examples
    --------
    >>> conformal_radius(np.arange(1.0, 20.0), np.zeros(19), 0.9)
    18.0
    """
    place = math.ceil((truth.size + 1) * level)
    if place > truth.size:
        raise InputError(
            "rows", expected=f"at least {place} for a level of {level:.0%}", got=f"{truth.size}", cure="Give more rows."
        )
    return float(np.sort(np.abs(truth - predicted))[place - 1])
