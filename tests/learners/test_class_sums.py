"""Sums by class: regularised discriminant analysis, its model as arrays, and linear models of the same total."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from mooring.errors import InputError, RefusedError
from mooring.learners.class_sums import ClassSums, check_class_sums, fit_quadratic
from mooring.learners.models import Model, ModelSpec, QuadraticFunction
from mooring.learners.registry import SUM_LEARNERS, list_sum_learners, resolve_sum_learner
from mooring.learners.sums import Sums, fit_discriminant
from mooring.protocol.messages.model import read_model, write_model
from mooring.typing import Indices, Matrix

C0 = 0.05
SHAPES = np.array([[[0.5, 0.0], [0.0, 0.1]], [[0.1, 0.0], [0.0, 0.5]], [[0.25, 0.1], [0.1, 0.25]]])


def draw(n: int, seed: int = 0, n_classes: int = 3) -> tuple[Matrix, Indices]:
    """Rows of classes with nearly one mean, which differ in their covariance, with the constant last."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_classes, n)
    rows = np.einsum("nij,nj->ni", SHAPES[codes], rng.standard_normal((n, 2))) + 0.05 * codes[:, None]
    return np.column_stack([rows, np.full(n, np.sqrt(C0))]), codes


def by_class(phi: Matrix, codes: Indices, n_classes: int = 3, noise: float = 0.0, seed: int = 0) -> ClassSums:
    """The sums, with noise of this scale."""
    products = np.array([phi[codes == k].T @ phi[codes == k] for k in range(n_classes)])
    if noise:
        drawn = np.triu(np.random.default_rng(seed).normal(scale=noise / np.sqrt(2), size=products.shape))
        products += drawn + drawn.transpose(0, 2, 1)
        diagonal = np.arange(products.shape[1])
        products[:, diagonal, diagonal] -= (2 - np.sqrt(2)) * drawn[:, diagonal, diagonal]
    return ClassSums(products, C0, noise)


def test_without_noise_scores_are_the_log_densities_of_shrunk_covariances() -> None:
    phi, codes = draw(3000)
    x, scores = phi[:, :-1], fit_quadratic(by_class(phi, codes)).scores(phi)
    parts = [x[codes == k] for k in range(3)]
    covariances = [np.cov(part.T, bias=True) for part in parts]
    shares = np.array([len(part) for part in parts]) / len(x)
    pooled = np.einsum("k,kij->ij", shares, covariances)
    ridge = 1e-3 * np.trace(pooled) / 2 * np.eye(2)
    expected = []
    for share, part, covariance in zip(shares, parts, covariances, strict=True):
        weight = 0.8 * min(1.0, 3 * share)
        shrunk = weight * covariance + (1 - weight) * pooled + ridge
        expected.append(np.log(share) + multivariate_normal(part.mean(axis=0), shrunk).logpdf(x))
    np.testing.assert_allclose(scores, np.array(expected).T + np.log(2 * np.pi), rtol=1e-9, atol=1e-9)


def test_classes_that_differ_in_covariance_alone_are_told_apart_and_a_linear_model_cannot() -> None:
    (phi, codes), (new, truth) = draw(6000), draw(2000, 1)
    sums = by_class(phi, codes, noise=4.0)
    quadratic, linear = fit_quadratic(sums), fit_discriminant(sums.pooled, shrink=False)
    assert np.mean(quadratic.predict(new) == truth) > 0.65 > np.mean(linear.predict(new) == truth) + 0.1
    predicted = np.bincount(quadratic.predict(new), minlength=3) / len(new)
    np.testing.assert_allclose(quadratic.estimate_predicted_shares(), predicted, atol=0.05)
    probabilities = quadratic.class_scores(new)
    assert np.allclose(probabilities.sum(axis=1), 1)


def test_a_rare_class_under_strong_noise_swallows_no_other() -> None:
    """With a ridge of its own for every class, most rows would go to the class whose determinant noise made smallest."""
    rng = np.random.default_rng(0)
    codes = rng.choice(5, size=4000, p=[0.24, 0.24, 0.24, 0.24, 0.04])
    x = 0.8 * np.eye(5, 30)[codes] + 0.1 * rng.standard_normal((4000, 30))
    phi = np.column_stack([np.sqrt(1 - C0) * x / np.linalg.norm(x, axis=1, keepdims=True), np.full(4000, np.sqrt(C0))])
    for seed in range(10):
        predicted = fit_quadratic(by_class(phi, codes, 5, noise=6.0, seed=seed)).predict(phi)
        common = codes < 4
        assert np.mean(predicted[common] == codes[common]) > 0.9
    nothing = fit_quadratic(by_class(0 * phi[:0], codes[:0], 5, noise=6.0))
    assert np.isfinite(nothing.scores(phi)).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_the_pooled_sums_are_those_of_all_rows_with_their_outcomes_and_noise(n_classes: int) -> None:
    phi, codes = draw(500, n_classes=n_classes)
    outcomes = (2.0 * codes - 1)[:, None] if n_classes == 2 else np.eye(n_classes)[codes] - 1 / n_classes
    pooled = by_class(phi, codes, n_classes).pooled
    np.testing.assert_allclose(pooled.products, phi.T @ phi, atol=1e-9)
    np.testing.assert_allclose(pooled.outcomes, phi.T @ outcomes, atol=1e-9)
    noisy = [by_class(phi[:0], codes[:0], n_classes, noise=2.0, seed=seed).pooled for seed in range(4000)]
    expected = noisy[0].noise_scales
    assert np.std([sums.products[0, 0] for sums in noisy]) == pytest.approx(expected[0], rel=0.05)
    assert np.std([sums.outcomes[0, 0] for sums in noisy]) == pytest.approx(expected[1], rel=0.05)


def test_what_no_rows_can_have_is_said_of_each_class() -> None:
    phi, codes = draw(500)
    phi = phi / 3
    assert check_class_sums(by_class(phi, codes, noise=1.0), 10_000) == []
    c0 = C0 / 9
    good = by_class(phi, codes).products
    assert check_class_sums(ClassSums(good, c0), 500) == []
    assert check_class_sums(ClassSums(good, c0), 400)
    for change in (-100 * np.eye(3), 1000 * np.diag([1.0, 1.0, 0.0])):
        bad = good.copy()
        bad[1] += change
        assert check_class_sums(ClassSums(bad, c0), 1e6)
    with pytest.raises(InputError):
        ClassSums(good[:, :, :2], c0)


def test_learners_by_class_need_sums_by_class_and_others_take_them() -> None:
    assert next(iter(list_sum_learners("classes", by_class=True))) == "quadratic"
    assert "quadratic" not in list_sum_learners("classes")
    with pytest.raises(InputError):
        resolve_sum_learner("quadratic", "classes")
    phi, codes = draw(300)
    sums = by_class(phi, codes)
    for name, learner in list_sum_learners("classes", by_class=True).items():
        model = learner.train(sums, shrink=False)
        assert model.predict(phi).shape == (300,), name
    assert isinstance(sums.pooled, Sums)
    assert SUM_LEARNERS["least-squares"].by_class is False


def test_the_model_is_arrays_that_a_file_holds_and_onnx_evaluates(tmp_path: Path) -> None:
    from mooring.mechanisms.onnx_export import to_onnx
    from mooring.mechanisms.sums.features.columns import RowFeatures

    features = RowFeatures(2, C0)
    rows, codes = draw(400)
    phi = features.apply(rows[:, :2])
    model = fit_quadratic(by_class(phi, codes, noise=1.0)).to_model(ModelSpec(2, 3, features))
    digest = write_model(tmp_path / "model", model)
    again, read_digest = read_model(tmp_path / "model", lambda _: model.spec)
    assert digest == read_digest
    assert isinstance(again.function, QuadraticFunction)
    np.testing.assert_array_equal(
        again.predict(rows[:, :2]), fit_quadratic(by_class(phi, codes, noise=1.0)).predict(phi)
    )
    plain = Model(ModelSpec(2, 3), model.function, "softmax", model.classes, model.class_shares)
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(to_onnx(plain), providers=["CPUExecutionProvider"])
    x = rows[:, :2].astype(np.float32)
    predicted, probabilities = session.run(None, {"rows": x})
    expected, shares = plain.predict_with_probabilities(x)
    np.testing.assert_array_equal(predicted, expected)
    assert shares is not None
    np.testing.assert_allclose(probabilities, shares, atol=1e-6)


def test_axes_that_are_not_square_are_refused() -> None:
    function = QuadraticFunction(np.zeros((2, 5)), np.zeros(5), np.zeros(3))
    with pytest.raises(RefusedError):
        Model(ModelSpec(2, 3), function, "softmax", np.arange(3, dtype=np.int32), np.full(3, 1 / 3))
