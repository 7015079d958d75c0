"""Models from sums: those of the rows where there is no noise, and what noise may do to them."""

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import BayesianRidge, Ridge

from mooring.errors import InputError
from mooring.learners.sums import (
    Sums,
    centre_sums,
    check_sums,
    estimate_predicted_shares,
    find_ridge,
    fit_discriminant,
    fit_least_squares,
)
from mooring.mechanisms.sums.features.columns import scale_to_unit
from tests.raising import raising

C0, N, D = 0.2, 3000, 9
OUTCOMES = {0: lambda y: y[:, None], 2: lambda y: 2.0 * y[:, None] - 1, 4: lambda y: np.eye(4)[y] - 1 / 4}


def drawn(n_classes: int, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Features of rows and their labels, which follow the features."""
    rng = np.random.default_rng(n_classes)
    phi = rng.standard_normal((n, D)) * np.linspace(2, 0.5, D) + 0.3
    scale_to_unit(phi, C0)
    scores = phi[:, :-1] @ np.random.default_rng(1).standard_normal((D - 1, max(1, n_classes)))
    if n_classes == 0:
        return phi, np.clip(scores[:, 0] / 3, -1, 1)
    return phi, (scores[:, 0] > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)


def summed(phi: np.ndarray, y: np.ndarray, n_classes: int, scales: tuple[float, float] = (0.0, 0.0)) -> Sums:
    rng, T = np.random.default_rng(5), phi.T @ OUTCOMES[n_classes](y)
    noise = np.triu(rng.standard_normal((D, D))) * np.where(np.eye(D), 1, math.sqrt(0.5))
    S = phi.T @ phi + scales[0] * (np.triu(noise) + np.triu(noise, 1).T)
    return Sums(S, T + scales[1] * rng.standard_normal(T.shape), C0, n_classes, scales)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
@pytest.mark.parametrize("shrink", [True, False])
def test_without_noise_least_squares_is_ridge_regression_on_the_rows(n_classes: int, shrink: bool) -> None:
    phi, y = drawn(n_classes)
    sums = summed(phi, y, n_classes)
    centred, crossed, _, _ = centre_sums(sums, shrink=shrink)
    ridge = Ridge(alpha=find_ridge(sums, centred, crossed)).fit(phi[:, :-1], OUTCOMES[n_classes](y))
    model = fit_least_squares(sums, shrink=shrink)
    assert np.allclose(model.scores(phi), ridge.predict(phi[:, :-1]).reshape(N, -1), atol=1e-9)
    if n_classes == 0:
        assert np.abs(model.predict(phi)).max() <= 1
        assert np.corrcoef(model.predict(phi), y)[0, 1] > 0.95
    else:
        assert np.mean(model.predict(phi) == y) > 0.85


@pytest.mark.parametrize("signal", [0.3, 1.0])
def test_without_noise_the_ridge_is_that_of_the_evidence_of_the_rows(signal: float) -> None:
    """scikit-learn maximises the same, from rows."""
    rng = np.random.default_rng(3)
    phi = rng.standard_normal((300, 40))
    scale_to_unit(phi, C0)
    y = signal * phi[:, :-1] @ rng.standard_normal(39) + rng.normal(0, 0.7, 300)
    y = np.where(y > 0, 1.0, -1.0)
    reference = BayesianRidge().fit(phi[:, :-1], y)
    sums = Sums(phi.T @ phi, phi.T @ y[:, None], C0, 2, unit_length=True)
    ridge = find_ridge(sums, *centre_sums(sums, shrink=False)[:2])
    assert 0.5 < ridge / (reference.lambda_ / reference.alpha_) < 2


def test_without_noise_the_ridge_does_not_follow_what_rounding_leaves_where_features_do_not_vary() -> None:
    """As of persons, whose products and outcomes are rounded apart: columns of a category add up to nothing but that."""
    rng, along = np.random.default_rng(3), np.eye(5, 11).sum(axis=0) / math.sqrt(5)
    phi = np.column_stack([*(np.eye(5)[rng.integers(5, size=3000)] - 1 / 5 for _ in range(2)), np.zeros(3000)])
    scale_to_unit(phi, C0)
    y = np.where(phi[:, 0] + rng.normal(0, 1, 3000) > 0, 1.0, -1.0)[:, None]
    exact = Sums(phi.T @ phi, phi.T @ y, C0, 2)
    rounded = Sums(exact.products + 1e-2 * np.outer(along, along), exact.outcomes + along[:, None], C0, 2)
    ridges = [find_ridge(sums, *centre_sums(sums, shrink=False)[:2]) for sums in (exact, rounded)]
    assert ridges[1] == pytest.approx(ridges[0], rel=0.05)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_without_noise_the_discriminant_is_that_of_the_rows(n_classes: int) -> None:
    """But for the ridge, which is small beside these variances: probabilities within 0.03."""
    phi, y = drawn(n_classes)
    reference = LinearDiscriminantAnalysis().fit(phi[:, :-1], y).predict_proba(phi[:, :-1])
    scores = fit_discriminant(summed(phi, y, n_classes)).scores(phi)
    scores = np.hstack([0 * scores, scores]) if n_classes == 2 else scores
    probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    assert np.abs(probabilities - reference).max() < 0.03


@pytest.mark.parametrize("shrink", [True, False])
def test_noise_far_below_the_sums_changes_little_and_far_above_leaves_a_finite_model(shrink: bool) -> None:
    phi, y = drawn(4)
    clean = fit_least_squares(summed(phi, y, 4), shrink=shrink)
    mild, wild = (fit_least_squares(summed(phi, y, 4, scales), shrink=shrink) for scales in ((1.0, 1.0), (1e6, 1e6)))
    assert np.mean(mild.predict(phi) == clean.predict(phi)) > 0.9
    assert np.isfinite(wild.scores(phi)).all()
    assert np.isfinite(fit_discriminant(summed(phi, y, 4, (1e6, 1e6))).scores(phi)).all()


def test_shrinking_and_the_ridge_pay_where_noise_is_strong() -> None:
    """Least squares as it stands inverts the noise."""
    phi, y = drawn(2, n=400)
    sums = summed(phi, y, 2, (12.0, 6.0))
    naive = np.linalg.solve(sums.products, sums.outcomes)
    assert np.mean(fit_least_squares(sums).predict(phi) == y) > np.mean((phi @ naive)[:, 0] * (2 * y - 1) > 0) + 0.05


def test_the_number_of_rows_and_the_means_are_read_off_the_constant() -> None:
    phi, y = drawn(4)
    sums = summed(phi, y, 4)
    assert sums.n_rows == pytest.approx(N)
    assert np.allclose(sums.means[0], phi[:, :-1].mean(axis=0))
    assert np.allclose(sums.means[1], np.bincount(y, minlength=4) / N - 1 / 4)


def test_means_that_are_noise_are_taken_for_none() -> None:
    """Few rows of many features with a mean of zero: taken as they come, noisy means cost more than the classes tell."""
    rng, n, D, c0, scales = np.random.default_rng(2), 800, 100, 0.05, (6.5, 5.0)
    y = rng.integers(0, 4, n)
    phi = np.column_stack(
        [rng.standard_normal((n, D - 1)) + 3 * np.eye(4, D - 1)[y] - 3 / 4 * (np.arange(D - 1) < 4), y]
    )
    scale_to_unit(phi, c0)
    noise = np.triu(rng.standard_normal((D, D))) * np.where(np.eye(D), 1, math.sqrt(0.5))
    S = phi.T @ phi + scales[0] * (np.triu(noise) + np.triu(noise, 1).T)
    T = phi.T @ OUTCOMES[4](y)
    sums = Sums(S, T + scales[1] * rng.standard_normal(T.shape), c0, 4, scales)
    unit = math.sqrt(c0) * sums.n_rows
    assert np.linalg.norm(sums.means[0]) < 0.5 * np.linalg.norm(S[:-1, -1] / unit)
    assert np.mean(fit_least_squares(sums, shrink=False).predict(phi) == y) > 0.8


def test_a_rare_class_is_not_held_down_by_the_noise_of_its_mean() -> None:
    """A mean's noise adds to its squared length, most for the class with the fewest rows, which would never be predicted."""
    rng, n, D, c0, scales = np.random.default_rng(4), 800, 100, 0.05, (8.0, 8.0)
    y = rng.choice(4, n, p=[0.1, 0.3, 0.3, 0.3])
    centred = np.eye(4, D - 1) - 1 / 4 * (np.arange(D - 1) < 4)
    phi = np.column_stack([rng.standard_normal((n, D - 1)) + 8 * centred[y], y])
    scale_to_unit(phi, c0)
    noise = np.triu(rng.standard_normal((D, D))) * np.where(np.eye(D), 1, math.sqrt(0.5))
    S, T = phi.T @ phi + scales[0] * (np.triu(noise) + np.triu(noise, 1).T), phi.T @ OUTCOMES[4](y)
    predicted = fit_discriminant(
        Sums(S, T + scales[1] * rng.standard_normal(T.shape), c0, 4, scales), shrink=False
    ).predict(phi)
    assert min(np.mean(predicted[y == k] == k) for k in range(4)) > 0.9


def test_the_discriminant_of_small_classes_holds_in_every_draw_of_strong_noise() -> None:
    """As of digits at ε = 1. Noise of shares and of lengths, and of the count of rows, each ruined some of them."""
    rng, n, D, K, c0, scales = np.random.default_rng(7), 800, 100, 10, 0.05, (6.6, 5.1)
    y = np.arange(n) % K
    phi = np.column_stack(
        [rng.standard_normal((n, D - 1)) + 6 * (np.eye(K, D - 1) - 1 / K * (np.arange(D - 1) < K))[y], y]
    )
    scale_to_unit(phi, c0)
    collected = []
    for _ in range(12):
        noise = np.triu(rng.standard_normal((D, D))) * np.where(np.eye(D), 1, math.sqrt(0.5))
        S, T = phi.T @ phi + scales[0] * (np.triu(noise) + np.triu(noise, 1).T), phi.T @ (np.eye(K)[y] - 1 / K)
        sums = Sums(S, T + scales[1] * rng.standard_normal(T.shape), c0, K, scales, unit_length=True)
        assert abs(sums.n_rows - n) < 200
        model = fit_discriminant(sums, shrink=False)
        collected.append(float(np.mean(model.predict(phi) == y)))
    assert min(collected) > 0.9


def test_sums_that_do_not_fit_are_refused() -> None:
    with raising(InputError, "sums"):
        Sums(np.zeros((3, 2)), np.zeros((3, 1)), C0, 2)
    with raising(InputError, "sums"):
        Sums(np.zeros((3, 3)), np.zeros((2, 1)), C0, 2)
    with raising(InputError, "sums", got="number"):
        fit_discriminant(Sums(np.eye(3), np.zeros((3, 1)), C0, 0))


@pytest.mark.parametrize("n_classes", [2, 4])
def test_shares_of_predicted_classes_are_estimated_from_the_sums(n_classes: int) -> None:
    """Within 0.05 of those of the rows; and all are of one class where the others' scores are always lower."""
    phi, y = drawn(n_classes)
    sums = summed(phi, y, n_classes)
    model = fit_discriminant(sums)
    shares = np.bincount(model.predict(phi), minlength=n_classes) / N
    assert estimate_predicted_shares(model, sums) == pytest.approx(shares, abs=0.05)
    one_sided = replace(
        model, intercept=model.intercept - np.arange(model.intercept.size) * 100 - (n_classes == 2) * 100
    )
    assert set(one_sided.predict(phi)) == {0}
    assert estimate_predicted_shares(one_sided, sums)[0] == 1


@pytest.mark.parametrize("noise", [0.0, 2.0])
def test_each_property_that_no_rows_can_have_is_noticed_by_itself(noise: float) -> None:
    phi, y = drawn(4)
    sums = summed(phi, y, 4, (noise, noise))
    assert check_sums(sums, N + 100) == []
    assert len(check_sums(sums, N - 400)) == 1
    longer, crossed = sums.products.copy(), sums.products.copy()
    longer[:-1, :-1] *= 3  # rows longer than one
    crossed[0, 1] = crossed[1, 0] = 2 * math.sqrt(crossed[0, 0] * crossed[1, 1])  # more than their lengths allow
    for products in (longer, crossed):
        assert len(check_sums(replace(sums, products=products))) == 1
    correlated, counts = sums.outcomes.copy(), sums.outcomes.copy()
    correlated[0] *= 100
    counts[-1, 0] = -0.6 * math.sqrt(C0) * N  # 1,050 rows fewer than none
    for outcomes in (correlated, counts):
        assert len(check_sums(replace(sums, outcomes=outcomes))) == 1
