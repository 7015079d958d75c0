"""Predictions adjusted at home: probabilities come true as often as they say, intervals hold as many rows as they should."""

import numpy as np
import pytest
from scipy.special import softmax

from mooring.errors import InputError
from mooring.learners.calibration import Recalibration, conformal_radius
from tests.raising import raising


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("factor", [3.0, 0.3, 1.0])  # too sure, not sure enough, right
def test_recalibrated_probabilities_come_near_the_true_ones(n_classes: int, factor: float) -> None:
    rng = np.random.default_rng(n_classes)
    scores = 1.5 * rng.standard_normal((3000, n_classes))
    true = softmax(scores, axis=1)
    truth = (rng.random((3000, 1)) > true.cumsum(axis=1)).sum(axis=1).clip(max=n_classes - 1)
    shift = np.linspace(0.0, 1.0, n_classes) if factor != 1.0 else 0.0
    given = softmax(factor * scores + shift, axis=1)
    calibrated = Recalibration.fit(truth[:1000], given[:1000]).apply(given[1000:])
    off, before = (np.abs(probabilities - true[1000:]).mean() for probabilities in (calibrated, given[1000:]))
    assert off < (0.03 if factor == 1.0 else 0.5 * before)


def test_recalibrated_classes_are_predicted_from_their_share_of_the_labelled_rows_on() -> None:
    """Also a class that none of the labelled rows has."""
    truth, given = np.arange(98) % 10 // 9, np.full((98, 3), [0.8, 0.1, 0.1])
    fitted = Recalibration.fit(truth, given)
    assert fitted.class_shares == pytest.approx([90 / 101, 10 / 101, 1 / 101])
    assert fitted.choose(np.array([[0.89, 0.105, 0.005], [0.91, 0.08, 0.005], [0.8, 0.1, 0.1]])).tolist() == [1, 0, 2]


def test_few_rows_change_little() -> None:
    given = np.array([[0.6, 0.4], [0.3, 0.7]])
    assert np.abs(Recalibration.fit(np.array([0, 1]), given).apply(given) - given).max() < 0.15


def test_intervals_hold_the_share_of_rows_that_they_should() -> None:
    rng = np.random.default_rng(0)
    errors = rng.standard_t(2, (2000, 31))  # whatever the distribution; 30 rows to fit to, and one new
    held = [abs(row[-1]) <= conformal_radius(row[:-1], np.zeros(30), 0.9) for row in errors]
    assert 0.885 < np.mean(held) < 0.925  # 28 of 31 is 0.903
    with raising(InputError, "rows"):
        conformal_radius(np.zeros(8), np.zeros(8), 0.9)
