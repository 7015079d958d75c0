"""A model's predictions adjusted at home, by labelled rows that it was not trained on: probabilities and intervals."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

from mooring.errors import InputError
from mooring.typing import Matrix, Vector

LEVEL = 0.9
"""The share of rows that intervals are to hold."""
FEWEST_ROWS = 20
_LEAST = 1e-6  # a probability
_RIDGE = 1.0  # toward no change: few rows change little


@dataclass(frozen=True, eq=False)
class Recalibration:
    """Probabilities p become those in proportion to p^slope · exp(bias); of two classes, Platt's scaling."""

    slope: float
    bias: Vector

    @classmethod
    def fit(cls, truth: npt.NDArray[np.int64], probabilities: Matrix) -> Recalibration:
        """By penalised maximum likelihood, on the classes of some rows and their probabilities of shape (n, classes)."""
        logs, places = np.log(probabilities.clip(_LEAST)), np.arange(truth.size)
        came_true = np.eye(probabilities.shape[1])[truth]

        def loss(found: Vector) -> tuple[float, Vector]:
            scores, off = found[0] * logs + found[1:], found - start
            left = softmax(scores, axis=1) - came_true
            gradient = np.r_[(left * logs).sum(), left.sum(axis=0)] + _RIDGE * off
            value = logsumexp(scores, axis=1).sum() - scores[places, truth].sum() + _RIDGE * (off @ off) / 2
            return float(value), gradient

        start = np.r_[1.0, np.zeros(probabilities.shape[1])]
        best = minimize(loss, start, jac=True, method="L-BFGS-B").x
        return cls(float(best[0]), best[1:])

    def apply(self, probabilities: Matrix) -> Matrix:
        """Probabilities of shape (n, classes), recalibrated."""
        return np.asarray(softmax(self.slope * np.log(probabilities.clip(_LEAST)) + self.bias, axis=1))


def conformal_radius(truth: Vector, predicted: Vector, level: float = LEVEL) -> float:
    """How far from a prediction the truth lies in at least this share of new rows, were all rows drawn alike.

    Split conformal prediction: of n errors the ⌈(n + 1) level⌉-th least. Whatever the model, and on average over the rows
    that it is fitted to.

    Parameters
    ----------
    truth, predicted : arrays of shape (n,)
        Numbers of rows that the model was not fitted to.
    level : float, optional
        Share of new rows, between 0 and 1.

    Examples
    --------
    >>> conformal_radius(np.arange(1.0, 20.0), np.zeros(19), 0.9)
    18.0
    """
    place = math.ceil((truth.size + 1) * level)
    if place > truth.size:
        raise InputError(
            "rows", expected=f"more for a level of {level:.0%}", got=f"{truth.size}", cure="Give more rows."
        )
    return float(np.sort(np.abs(truth - predicted))[place - 1])
