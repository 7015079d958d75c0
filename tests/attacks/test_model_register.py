"""Members of a register are the solution of the equations that a model was trained by."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mooring.attacks.model_register import Equations, ModelRegister, solve_equations
from mooring.attacks.reconstruction import DoesNotApply
from mooring.attacks.shadow_models import Mask
from mooring.errors import InputError
from mooring.learners import train_learner
from mooring.metrics import Membership
from mooring.typing import Labels, Matrix
from tests.record import check_record

RECORD = Path(__file__).parent / "record.json"
LABELS = ["number", "2 classes", "3 classes"]


def draw(labels: str, n: int = 120) -> tuple[Matrix, Labels, Mask]:
    """Return candidates, their labels, and which of them are members."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 4)) + 3
    score = rows[:, 0] - rows[:, 1] + rng.standard_normal(n)
    outcomes: Labels = 10 + 5 * score if labels == "number" else np.digitize(score, [0.0, 1.0][: int(labels[0]) - 1])
    return rows, outcomes, rng.permutation(n) < n // 2


def write(learner: str, labels: str) -> tuple[Equations, Matrix]:
    """Return the equations of a model of the members, and w."""
    rows, outcomes, members = draw(labels)
    kind = "number" if labels == "number" else "classes"
    fitted = train_learner(learner, rows[members], outcomes[members], kind=kind, seed=0)  # type: ignore[arg-type]
    return ModelRegister(learner, rows, outcomes)._write(fitted.to_model()), members.astype(np.float64)


def square_error(equations: Equations, w: Matrix) -> float:
    """Return ‖A w − b‖² / ‖A‖²."""
    if equations.coefficients is not None:
        error = equations.coefficients.T @ w - equations.right
        return float(error @ error) / float((equations.coefficients**2).sum())
    assert equations.gram is not None
    error = equations.square_length - 2 * equations.right @ w + w @ equations.gram @ w
    return float(error / np.trace(equations.gram))


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("learner", ["linear", "random-fourier", "gradient-boosting", "xgboost"])
def test_a_model_solves_the_equations_of_its_members(learner: str, labels: str) -> None:
    """The equations hold for the members, and not for as many random candidates.

    They hold as exactly as the solver has converged; the scale of linear models is also that of the candidates.
    """
    equations, w = write(learner, labels)
    assert square_error(equations, w) < (2e-5 if learner in ("linear", "random-fourier") else 1e-11)
    assert square_error(equations, np.random.default_rng(1).permutation(w)) > 0.01


@pytest.mark.parametrize("labels", LABELS)
def test_bootstrap_samples_add_the_noise_that_the_attack_on_forests_assumes(labels: str) -> None:
    equations, w = write("forest", labels)
    assert equations.gram is not None
    assert equations.noise_variance == 0.5
    assert 0.3 < square_error(equations, w) < 0.5  # it is lower by the rows that leaves learn their shares from
    assert square_error(equations, np.random.default_rng(1).permutation(w)) > 0.55


@pytest.mark.parametrize(("learner", "least_area"), [("random-fourier", 1.0), ("xgboost", 0.99), ("forest", 0.8)])
def test_members_of_a_small_model_are_read_off(learner: str, least_area: float) -> None:
    rows, outcomes, members = draw("2 classes")
    fitted = train_learner(learner, rows[members], outcomes[members], kind="classes", seed=0)
    scores = ModelRegister(learner, rows, outcomes).score(fitted, 60)
    assert Membership(scores[members], scores[~members]).auc >= least_area


@pytest.mark.parametrize("learner", ["linear", "random-fourier", "gradient-boosting", "forest"])
def test_scores_are_as_on_record(learner: str) -> None:
    """The record holds a member's score, another row's and sums over all rows, and the noise that the attack assumes."""
    by_labels = {}
    for labels in LABELS:
        rows, outcomes, members = draw(labels)
        kind = "number" if labels == "number" else "classes"
        fitted = train_learner(learner, rows[members], outcomes[members], kind=kind, seed=0)  # type: ignore[arg-type]
        register = ModelRegister(learner, rows + 0.01 * np.sin(np.arange(rows.size)).reshape(rows.shape), outcomes)
        scores = np.arcsinh(register.score(fitted, 60))
        figures = [scores[members][0], scores[~members][0], scores.sum(), np.abs(scores).sum()]
        by_labels[labels] = [*figures, register._noise_scale]
    check_record(RECORD, f"register, {learner}", by_labels, rel=5e-3)


def test_candidates_unlike_the_rows_are_scored_with_noise() -> None:
    rows, outcomes, members = draw("2 classes")
    fitted = train_learner("random-fourier", rows[members], outcomes[members], kind="classes", seed=0)
    scales = []
    for noise in (0.0, 0.1, 1.0):
        attack = ModelRegister(
            "random-fourier", rows + noise * np.random.default_rng(2).standard_normal(rows.shape), outcomes
        )
        scores = attack.score(fitted, 60)
        scales.append(attack._noise_scale)
        equations = attack._write(fitted.to_model())
        unit = equations.coefficient_scale
        counted = equations.with_count(60, 10 * unit)
        tried = [solve_equations(counted, 0.5, (k * unit) ** 2) for k in 10 ** np.linspace(-4, 0, 9)]
        np.testing.assert_allclose(scores, max(tried, key=lambda solved: solved.likelihood).scores)
    assert scales == sorted(scales)  # type: ignore[type-var]
    assert scales[0] < scales[1]  # type: ignore[operator]


@pytest.mark.parametrize("noise_variance", [0.01, 1.0])
def test_few_and_many_equations_are_solved_alike(noise_variance: float) -> None:
    """One system, given by its coefficients and by their products, has the solution of the textbook's formula."""
    rng = np.random.default_rng(3)
    A, members = rng.standard_normal((7, 20)), rng.random(20) < 0.3
    b = A @ members
    few = Equations(7, b, float(b @ b), coefficients=A.T).with_count(6, 2.0)
    many = Equations(7, A.T @ b, float(b @ b), gram=A.T @ A).with_count(6, 2.0)
    assert few.coefficient_scale == pytest.approx(many.coefficient_scale)
    A, b = np.vstack([A, np.full(20, 2.0)]), np.append(b, 12.0)
    covariance = 0.21 * A @ A.T + noise_variance * np.eye(8)
    left = b - 0.3 * A.sum(axis=1)
    for equations in (few, many):
        solved = solve_equations(equations, 0.3, noise_variance)
        np.testing.assert_allclose(solved.estimate, 0.3 + 0.21 * A.T @ np.linalg.solve(covariance, left))
        after = 0.21 * np.eye(20) - 0.21**2 * A.T @ np.linalg.solve(covariance, A)
        np.testing.assert_allclose(solved.variance, np.diag(after))
        likelihood = -(left @ np.linalg.solve(covariance, left) + np.linalg.slogdet(covariance)[1]) / 2
        assert solved.likelihood == pytest.approx(likelihood)


def test_scores_are_the_likelihood_ratios_of_what_the_equations_say() -> None:
    """One equation w + noise = x says x of w: its ratio is that of two normal densities; nothing said is a ratio of one."""
    x, noise_variance = 0.9, 0.2
    solved = solve_equations(
        Equations(1, np.array([x]), x**2, coefficients=np.array([[1.0], [0.0]])), 0.3, noise_variance
    )
    assert solved.scores[0] == pytest.approx((x**2 - (x - 1) ** 2) / (2 * noise_variance))
    assert solved.scores[1] == pytest.approx(0.0)


def test_learners_without_known_equations_are_not_attacked() -> None:
    rows, outcomes, _ = draw("2 classes")
    for learner in ("svm", "nystroem"):
        with pytest.raises(DoesNotApply):
            ModelRegister(learner, rows, outcomes)


@pytest.mark.parametrize("learner", ["linear", "forest"])
def test_a_model_of_rows_with_one_label_says_nothing_of_them(learner: str) -> None:
    rows = draw("number")[0]
    fitted = train_learner(learner, rows[:60], np.full(60, 5.0), kind="number", seed=0)
    assert ModelRegister(learner, rows, np.full(120, 5.0)).score(fitted, 60).tolist() == [0.0] * 120


def test_a_model_that_is_not_of_arrays_is_not_attacked() -> None:
    rows, outcomes, _ = draw("2 classes")

    class Strange:
        def to_model(self) -> None:
            raise InputError("model", problem="It cannot be written.", cure="Choose another learner.")

    with pytest.raises(DoesNotApply):
        ModelRegister("linear", rows, outcomes).score(Strange(), 60)  # type: ignore[arg-type]
