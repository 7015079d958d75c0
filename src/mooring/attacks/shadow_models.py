"""Membership inference from a released model by shadow models, the likelihood-ratio attack of Carlini et al. (2022).

Models of the same kind are trained on random halves of the rows, in pairs with complementary halves. A statistic of a model
and a row tends to be higher if the model was trained on the row. A Gaussian is fitted to the statistic of models that were
trained on the row, and another to that of the other models; the ratio of the two likelihoods is the row's score. The model
under attack and its complement are left out of the two means, so that both means are estimated from the same number of
models. The spread of each Gaussian is common to all rows and models. If a model reveals nothing, the scores of members and
of non-members have the same distribution.

There are two statistics. One is the confidence in the row's label. The other is how far the model's parameters lie from
their mean over all models in the direction opposite to the gradient of the row's loss. This distance is computed from
outputs, as for a model that is linear in its parameters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp, softmax

from mooring.errors import InputError
from mooring.typing import Matrix

Mask = npt.NDArray[np.bool_]
_LEAST_SPREAD = 1e-9


def draw_halves(n_models: int, n_rows: int, *, rng: np.random.Generator) -> Mask:
    """Return which rows each model is trained on, as a mask of shape (n_models, n_rows).

    Each model gets a random half of the rows. Models 2j and 2j + 1 have complementary halves.
    """
    if n_models < 6 or n_models % 2:
        raise InputError("n_models", expected="even, and 6 or more", got=str(n_models), cure="16 is a usual choice.")
    first = rng.random((n_models // 2, n_rows)).argsort(axis=1) < n_rows // 2
    return np.stack([first, ~first], axis=1).reshape(n_models, n_rows)


def find_confidence(answers: Matrix, codes: npt.NDArray[np.integer]) -> Matrix:
    """Return the log-odds of each row's class, from log probabilities of shape (n, classes).

    Examples
    --------
    >>> find_confidence(np.log([[0.5, 0.5], [0.8, 0.2]]), np.array([0, 1])).round(2).tolist()
    [0.0, -1.39]
    """
    true_class = np.arange(codes.size), codes
    others = answers.copy()
    others[true_class] = -np.inf
    return np.asarray(answers[true_class] - logsumexp(others, axis=1))


def follow_gradients(answers: Matrix, labels: npt.NDArray[Any]) -> Matrix:
    """Return how far each model's parameters moved against the gradient of each row's loss, of shape (n_models, n_rows).

    `answers` are predicted numbers, or log probabilities with a last axis of classes; `labels` are numbers or class indices.
    """
    middle = answers.mean(axis=0)
    if answers.ndim == 2:
        return np.asarray((answers - middle) * (labels - middle))
    residual = np.eye(answers.shape[2])[labels] - softmax(middle, axis=1)
    return np.asarray(((answers - middle) * residual).sum(axis=2))


def score_members(statistic: Matrix, included: Mask) -> Matrix:
    """Return the log-likelihood ratio of membership of every row in every model, of shape (n_models, n_rows).

    `statistic` has a value for every model and row, and `included` is the result of `draw_halves`.
    """
    pairs = statistic.reshape(-1, 2, statistic.shape[1])
    inside = included.reshape(pairs.shape)
    trained, untrained = (np.where(which, pairs, 0.0).sum(axis=1) for which in (inside, ~inside))
    n_others = len(pairs) - 1
    means = [(sums.sum(axis=0) - sums)[:, None, :] / n_others for sums in (trained, untrained)]
    logs = []
    for which, mean in zip((inside, ~inside), means, strict=True):
        spread = max(float(np.sqrt(np.mean((pairs - mean)[which] ** 2))), _LEAST_SPREAD)
        logs.append(-(((pairs - mean) / spread) ** 2) / 2 - np.log(spread))
    return np.asarray(logs[0] - logs[1]).reshape(statistic.shape)
