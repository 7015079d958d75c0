"""What a delivered model gives away: membership by shadow models."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

from benchmarks.second_opinion import PAGE, render_results
from mooring.attacks.inversion import invert_columns
from mooring.attacks.shadow_models import draw_halves, follow_gradients, score_members
from mooring.audit import AuditSettings, Deployment, EvaluationSpec, RotationPoint, run_audit, simulate
from mooring.audit.release import _draw_rows, _figures, answer_queries, measure_release, measure_trained_release
from mooring.audit.rotation.release import measure_point_release
from mooring.errors import InputError
from mooring.learners import FittedEstimator
from mooring.learners.fitted import find_class_shares
from mooring.tables import Column, Partition
from mooring.typing import Matrix
from tests.raising import raising
from tests.record import check_record

RATE = "membership_at_1_percent"
RECORD = Path(__file__).parent / "record.json"


def test_halves_complement_each_other() -> None:
    included = draw_halves(8, 101, rng=np.random.default_rng(0))
    assert (included[0::2] == ~included[1::2]).all()
    assert (included.sum(axis=0) == 4).all()
    assert set(included.sum(axis=1)) == {50, 51}
    for wrong in (4, 7):
        with pytest.raises(InputError) as caught:
            draw_halves(wrong, 10, rng=np.random.default_rng(0))
        assert caught.value.what == "n_models"


def test_models_that_tell_nothing_are_at_chance() -> None:
    rng = np.random.default_rng(1)  # 16 × 2000 scores: an area beyond 0.5 ± 0.015 has a probability below 1e-5
    included = draw_halves(16, 2000, rng=rng)
    scores = score_members(rng.standard_normal((16, 2000)), included)
    release = measure_release({"predictions": scores}, included, rng.random(2000))
    assert release.figures["membership_auc"].value == pytest.approx(0.5, abs=0.015)
    assert 0.01 in release.figures[RATE].interval
    assert release.outlying[RATE].n == 200


def test_scores_do_not_depend_on_the_origin_or_the_unit_of_what_is_compared() -> None:
    rng = np.random.default_rng(3)
    included = draw_halves(8, 30, rng=rng)
    statistic = included + rng.standard_normal(included.shape)
    np.testing.assert_allclose(score_members(statistic + 7.0, included), score_members(statistic, included), atol=1e-9)
    np.testing.assert_allclose(score_members(3.0 * statistic, included), score_members(statistic, included), atol=1e-9)


def test_an_attack_is_chosen_on_other_models_than_it_is_measured_on() -> None:
    rng = np.random.default_rng(5)
    included = draw_halves(16, 400, rng=rng)
    signals = {"predictions": 9.0 * included, "gradients": 0.5 * included, "others": 9.0 * included}
    signals["predictions"][:, 360:] = 0.0  # the outlying tenth
    signals["gradients"][:, 360:] = 9.0 * included[:, 360:]
    signals["others"][:8] = 0.0  # where it is not chosen
    scores = {name: signal + rng.standard_normal(signal.shape) for name, signal in signals.items()}
    release = measure_release(scores, included, np.arange(400.0))
    assert (release.attack, release.outlying_attack) == ("predictions", "gradients")
    assert release.figures == measure_release({"": scores["predictions"][8:]}, included[8:], np.arange(400.0)).figures
    assert release.outlying[RATE].value == 1.0
    assert release.outlying["membership_auc"].n == 40


def test_the_rate_and_the_area_each_have_their_strongest_attack() -> None:
    rng = np.random.default_rng(7)
    included = draw_halves(16, 400, rng=rng)
    scores = {name: rng.standard_normal((16, 400)) for name in ("predictions", "gradients")}
    scores["predictions"] += 0.5 * included
    scores["gradients"][:, :40] += 9.0 * included[:, :40]  # few rows, and all of them surely
    release = measure_release(scores, included, rng.random(400))
    assert (release.attack, release.area_attack) == ("gradients", "predictions")
    alone = {
        name: measure_release({name: values[8:]}, included[8:], rng.random(400)) for name, values in scores.items()
    }
    assert release.figures[RATE] == alone["gradients"].figures[RATE]
    assert release.figures["membership_auc"] == alone["predictions"].figures["membership_auc"]


def test_many_attacks_that_tell_nothing_stay_at_chance() -> None:
    """60 audits by three attacks of noise: their mean area lies within 0.5 ± 0.004 with a probability above 0.999."""
    areas = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        included = draw_halves(16, 60, rng=rng)
        scores = {name: rng.standard_normal((16, 60)) for name in "abc"}
        areas.append(measure_release(scores, included, np.arange(60.0)).figures["membership_auc"].value)
    assert np.mean(areas) == pytest.approx(0.5, abs=0.006)


def test_parameters_move_along_the_gradients_of_their_rows() -> None:
    """Least squares, by the parameters themselves: the gradient of a row's squared error times their difference."""
    rng = np.random.default_rng(6)
    rows, labels = rng.standard_normal((30, 4)), rng.standard_normal(30)
    parameters = np.stack([np.linalg.lstsq(rows[k:], labels[k:], rcond=None)[0] for k in range(6)])
    middle = parameters.mean(axis=0)
    gradients = (labels - rows @ middle)[:, None] * rows
    moved = follow_gradients(parameters @ rows.T, labels)
    np.testing.assert_allclose(moved, (parameters - middle) @ gradients.T, atol=1e-12)


def test_a_model_that_memorises_its_rows_gives_up_their_columns() -> None:
    """Noise labels depend on no column; only rows that a model holds are found more often than by guessing."""
    rng = np.random.default_rng(8)
    rows = np.column_stack([rng.integers(0, 3, 300), rng.standard_normal(300)]).astype(np.float64)
    codes = rng.integers(0, 2, 300)

    def log_likelihood(changed: Matrix) -> Matrix:
        known = (changed[:150] == rows[:150]).all(axis=1)
        return np.append(np.where(known, 0.0, -5.0), np.full(150, -0.7))

    inverted, guessed = invert_columns(log_likelihood, rows, codes, [np.array([0]), np.array([1])])
    assert inverted[:150, 0].all()
    assert inverted[150:].tolist() == guessed[150:].tolist()
    assert inverted[150:, 0].mean() < 0.5
    assert inverted[:, 1].mean() < 0.5  # a fifth is sought, and its median is not the row's own number


def test_one_row_that_a_model_memorises_is_found_in_every_model() -> None:
    rng = np.random.default_rng(2)
    included = draw_halves(16, 500, rng=rng)
    confidences = rng.standard_normal(included.shape)
    confidences[:, 7] += 8 * included[:, 7]
    scores = score_members(confidences, included)
    assert scores[included[:, 7], 7].min() > np.quantile(scores[~included], 0.99)
    assert scores[~included[:, 7], 7].max() < np.quantile(scores, 0.01)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_a_learner_with_more_freedom_gives_more_away(kind: str) -> None:
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((160, 3 if kind == "number" else 64))
    labels = rows[:, 0] + 0.5 * rng.standard_normal(160)
    if kind == "classes":
        rows, labels = (part[:160] for part in load_digits(return_X_y=True))
    rates = []
    for name in ("linear", "random-fourier"):
        release = measure_trained_release(name, rows, labels, kind=kind, seed=0)  # type: ignore[arg-type]
        assert release is not None
        rates.append(release.figures["membership_auc"])
        assert abs((release.figures["membership_auc"].control or 0) - 0.5) < 0.06
    assert rates[1].interval.low > rates[0].value
    assert rates[0].interval.high > 0.5


def test_too_few_rows_give_no_figure() -> None:
    rows, labels = np.random.default_rng(0).standard_normal((30, 2)), np.repeat([0, 1], 15)
    assert measure_trained_release("linear", rows[:19], labels[:19], kind="classes", seed=0) is None
    assert measure_trained_release("linear", rows[:20], labels[5:25], kind="classes", seed=0) is not None
    assert measure_trained_release("linear", rows, labels * 0, kind="classes", seed=0) is None
    assert measure_trained_release("linear", rows, labels, kind="classes", seed=0) is not None
    rare = np.append(labels, [2, 2, 2])  # of a class of three rows half of the models would hardly have one
    release = measure_trained_release("linear", np.vstack([rows, rows[:3]]), rare, kind="classes", seed=0)
    assert release is not None
    assert release.n_rows == 30


def test_rows_of_a_class_with_fewer_than_four_are_left_out() -> None:
    classes = np.repeat([0, 1, 2], [3, 4, 30])
    drawn = _draw_rows(classes, np.random.default_rng(0))
    assert drawn.tolist() == list(range(3, 37))


def test_of_many_rows_some_of_every_class_are_attacked() -> None:
    classes = np.zeros(50_000, dtype=np.int64)
    classes[:5], classes[5:7] = 1, 2
    chosen = _draw_rows(classes, np.random.default_rng(0))
    assert chosen.size == np.unique(chosen).size == 2000
    assert np.bincount(classes[chosen]).tolist() == [1995, 5]


def test_of_a_rare_class_eight_rows_come_before_the_others() -> None:
    classes = np.repeat([0, 1], [500_000, 100])
    assert (classes[_draw_rows(classes, np.random.default_rng(0))] == 1).sum() == 8


def test_an_audit_measures_the_release_of_the_chosen_point() -> None:
    rng = np.random.default_rng(4)
    classes = [rng.integers(0, 2, 40) for _ in range(3)]
    rows = [rng.standard_normal((40, 3)) + part[:, None] for part in classes]
    points = [RotationPoint("c-gdp-data-noise", 3, 0, data_noise_level=level) for level in (0.1, 20.0)]
    with raising(InputError, "chosen"):
        run_audit(rows, classes, points=points[:1], chosen=points[1])
    chosen, other = run_audit(rows, classes, points=points, chosen=points[0]).points
    assert other.release is None
    assert chosen.release is not None
    assert chosen.release.n_rows == 90
    assert f"{chosen.release.figures[RATE].value:.1%}" in str(chosen.release)
    again = type(chosen).from_dict(chosen.as_dict())
    assert again.release == chosen.release


@pytest.mark.parametrize(("n_values", "n_asked"), [(8, 8), (9, 5)])
def test_a_number_of_more_than_eight_values_is_sought_by_fifths(n_values: int, n_asked: int) -> None:
    asked: list[float] = []

    def log_likelihood(changed: Matrix) -> Matrix:
        asked.append(float(changed[0, 0]))
        return np.zeros(360)

    rows = np.arange(360.0)[:, None] % n_values + 1.0
    invert_columns(log_likelihood, rows, np.zeros(360, dtype=np.intp), [np.array([0])])
    assert len(asked) == len(set(asked)) == n_asked


def test_a_number_that_may_be_missing_is_sought_by_fifths() -> None:
    rng = np.random.default_rng(10)
    gone = rng.random(400) < 0.25
    rows = np.column_stack([np.where(gone, 0.0, rng.standard_normal(400)), gone]).astype(np.float64)
    asked: list[Matrix] = []

    def log_likelihood(changed: Matrix) -> Matrix:
        asked.append(changed[0])
        return np.zeros(400)

    inverted, guessed = invert_columns(log_likelihood, rows, np.zeros(400, dtype=np.intp), [np.array([0, 1])])
    assert len(asked) == 6
    assert [tuple(request) for request in asked if request[1]] == [(0.0, 1.0)]
    assert inverted.tolist() == guessed.tolist()
    assert inverted.mean() == pytest.approx(gone.mean(), abs=0.01)  # the commonest of six is 'missing'
    asked.clear()
    rows = np.eye(10)[rng.integers(0, 10, 400)]
    invert_columns(log_likelihood, rows, np.zeros(400, dtype=np.intp), [np.arange(10)])
    assert np.array_equal(np.array(asked)[::-1], np.eye(10))  # categories are all asked for


def test_names_of_classes_change_nothing() -> None:
    rows, labels = np.random.default_rng(11).standard_normal((60, 3)), np.repeat([0, 1], 30)
    releases = [
        measure_trained_release("linear", rows, labels * k + a, kind="classes", seed=0) for k, a in ((1, 0), (2, -1))
    ]
    assert releases[0] == releases[1]
    assert releases[0] == measure_trained_release("linear", rows, labels * 10**9, kind="classes", seed=0)


@pytest.mark.parametrize("kind", ["classes", "number"])
def test_what_a_model_gives_away_is_on_record(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Membership and inversion of three columns, two of a category and one that never varies, and what is said of them."""

    def memorise(name: str, rows: Matrix, labels: Matrix, **_: object) -> FittedEstimator:
        nearest = (KNeighborsClassifier if kind == "classes" else KNeighborsRegressor)(2).fit(rows, labels)
        shares = find_class_shares(labels, kind)  # type: ignore[arg-type]
        return FittedEstimator(name, kind, rows.shape[1], 1.0, nearest, shares)  # type: ignore[arg-type]

    for module in ("release", "rotation.release"):
        monkeypatch.setattr(f"mooring.audit.{module}.train_learner", memorise)
    rng = np.random.default_rng(12)
    codes = [rng.integers(0, 3, (30, 2)) for _ in range(3)]
    rows = [np.hstack([np.eye(3)[part[:, 0]], part[:, 1:] / 2, np.ones((30, 1))]) for part in codes]
    labels = [part.sum(axis=1) % 3 * 4 if kind == "classes" else part @ [1.0, 2.5] + rng.random(30) for part in codes]
    partition = Partition.from_parts(rows, labels, rng=rng)
    simulation = simulate(
        partition.train, partition.train_labels, method="c-gdp-data-noise", data_noise_scale=0.1, rng=rng
    )
    columns = [Column("a", "category", categories=("a", "b", "c")), *(Column(name, "number", 0, 1) for name in "bc")]
    release = measure_point_release(
        simulation,
        Deployment(partition, AuditSettings(evaluation=EvaluationSpec(columns=tuple(columns)))),
        learner="linear",
    )
    assert release is not None
    check_record(RECORD, f"release, {kind}", [release.as_dict(), re.findall(r"\d[\d.]*", str(release))])


def test_an_audit_finds_columns_of_rows_that_a_model_memorises(monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise labels, no noise on rows: other rows' columns are found as often as by guessing (1,200 cells: within 0.1).

    Four seeds tried: the interval lies 0.08 to 0.11 above the control.
    """

    def memorise(name: str, rows: Matrix, labels: Matrix, **_: object) -> FittedEstimator:
        nearest = KNeighborsClassifier(1).fit(rows, labels)
        return FittedEstimator(name, "classes", rows.shape[1], 1.0, nearest, find_class_shares(labels, "classes"))

    for module in ("release", "rotation.release"):
        monkeypatch.setattr(f"mooring.audit.{module}.train_learner", memorise)
    rng = np.random.default_rng(0)
    rows = [np.eye(4)[rng.integers(0, 4, (160, 5))].reshape(160, 20) for _ in range(4)]
    partition = Partition.from_parts(rows, [rng.integers(0, 2, 160) for _ in rows], rng=rng)
    simulation = simulate(partition.train, partition.train_labels, method="c-gdp", rng=rng)
    columns = [Column(name, "category", categories=("a", "b", "c", "d")) for name in "vwxyz"]
    release = measure_point_release(
        simulation,
        Deployment(partition, AuditSettings(evaluation=EvaluationSpec(columns=tuple(columns)))),
        learner="linear",
    )
    assert release is not None
    assert release.inversion is not None
    assert release.inversion.interval.low > release.inversion.control  # type: ignore[operator]
    assert release.inversion.control == pytest.approx(release.inversion.chance, abs=0.1)
    assert release.figures["membership_auc"].interval.low > 0.7
    assert measure_point_release(simulation, Deployment(partition), learner="linear").inversion is None  # type: ignore[union-attr]


def test_the_page_of_the_second_opinion_has_the_figures_on_record() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_results()


def test_the_interval_of_an_area_ends_at_one() -> None:
    """Two pairs of models, one that tells members from others and one that guesses: Student's interval is wider than 1."""
    included = np.array([[True, False] * 20, [False, True] * 20] * 2)
    scores = np.vstack([included[:2].astype(float), np.random.default_rng(0).standard_normal((2, 40)) / 100])
    interval = _figures(scores, included)["membership_auc"].interval
    assert (interval.low, interval.high) == (0.0, 1.0)


def test_an_attack_is_chosen_by_what_it_recognises_at_one_percent() -> None:
    """Two of 200 others may lie above the threshold: one attack then finds half of the members, the other none."""
    included = draw_halves(16, 50, rng=np.random.default_rng(0))
    scores = {name: np.zeros(included.shape) for name in ("half", "none")}
    first = included[:8]
    for name, values in scores.items():
        members, others = (values[:8][mask].copy() for mask in (first, ~first))
        others[:3] = 5.0 if name == "none" else 0.0
        members[: 100 if name == "half" else 200] = 1.0
        values[:8][first], values[:8][~first] = members, others
    assert measure_release(scores, included, np.arange(50.0)).attack == "half"


def test_probabilities_are_no_smaller_than_a_millionth_of_a_millionth() -> None:
    shares = np.array([[1.0, 0.0], [1 - 1e-9, 1e-9]])
    fitted: Any = SimpleNamespace(
        kind="classes", predict=lambda rows: np.array([1, 0]), probabilities=lambda rows, n: shares
    )
    rows = np.zeros((2, 1))
    np.testing.assert_allclose(np.exp(answer_queries(fitted, rows, 2)), [[1, 1e-12], [1 - 1e-9, 1e-9]])
    fitted.probabilities = lambda rows, n: None
    np.testing.assert_allclose(np.exp(answer_queries(fitted, rows, 2)), [[1e-12, 1], [1, 1e-12]])
