"""Scores of shadow models, row by row from normal densities, and the statistics that they compare."""

from typing import Any

import numpy as np
from scipy.special import log_softmax
from scipy.stats import norm

from mooring.attacks.shadow_models import draw_halves, find_confidence, follow_gradients, score_members


def test_six_models_of_an_odd_number_of_rows_are_trained_on_halves() -> None:
    included = draw_halves(6, 11, rng=np.random.default_rng(0))
    assert included.sum(axis=1).tolist() == [5, 6] * 3


def test_a_row_is_scored_by_the_normal_densities_of_members_and_others_in_the_models_of_other_pairs() -> None:
    rng, n_models, n_rows = np.random.default_rng(1), 8, 5
    included = draw_halves(n_models, n_rows, rng=rng)
    statistic = rng.standard_normal(included.shape) + included
    means = np.zeros((2, n_models, n_rows))
    for model in range(n_models):
        others = np.arange(n_models) // 2 != model // 2
        for row in range(n_rows):
            for kind, members in enumerate((included[:, row], ~included[:, row])):
                means[kind, model, row] = statistic[others & members, row].mean()
    spreads = [np.sqrt(np.mean((statistic - means[k])[mask] ** 2)) for k, mask in enumerate((included, ~included))]
    logs = [norm.logpdf(statistic, mean, spread) for mean, spread in zip(means, spreads, strict=True)]
    np.testing.assert_allclose(score_members(statistic, included), logs[0] - logs[1])


def test_confidence_is_the_log_odds_of_a_rows_class() -> None:
    shares = np.array([[0.5, 0.3, 0.2], [0.1, 0.8, 0.1]])
    np.testing.assert_allclose(find_confidence(np.log(shares), np.array([2, 1])), np.log([0.25, 4.0]))


def test_parameters_of_a_classifier_move_along_the_gradients_of_their_rows() -> None:
    """For scores that are linear in the parameters, the loss of a row has the gradient x (e_y − softmax)ᵀ up to its sign."""
    rng = np.random.default_rng(6)
    rows, labels = rng.standard_normal((7, 4)), rng.integers(0, 3, 7)
    parameters = rng.standard_normal((5, 4, 3))
    answers: Any = rows @ parameters
    middle = parameters.mean(axis=0)
    shares = np.exp(log_softmax(rows @ middle, axis=1))
    gradients = np.einsum("nh,nk->nhk", rows, np.eye(3)[labels] - shares)
    expected = np.einsum("mhk,nhk->mn", parameters - middle, gradients)
    np.testing.assert_allclose(follow_gradients(answers, labels), expected, atol=1e-12)
