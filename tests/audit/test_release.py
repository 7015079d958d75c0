"""What a delivered model gives away: membership by shadow models."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from mooring.attacks.shadow_models import draw_halves, score_members
from mooring.audit import OperatingPoint, run_audit
from mooring.audit.release import _draw_rows, measure_release, measure_trained_release
from mooring.errors import InputError
from mooring.typing import Indices, Matrix

RATE, RARE = "membership_at_1_percent", "membership_at_0.1_percent"


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
    found = measure_release(lambda _: rng.standard_normal(2000), rng.random(2000), rng=rng)
    assert found.figures["membership_auc"].value == pytest.approx(0.5, abs=0.015)
    assert 0.01 in found.figures[RATE].interval
    assert found.outlying[RATE].n == 200


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
        found = measure_trained_release(name, rows, labels, kind=kind, seed=0)  # type: ignore[arg-type]
        assert found is not None
        rates.append(found.figures["membership_auc"])
        assert abs((found.figures["membership_auc"].control or 0) - 0.5) < 0.06
    assert rates[1].interval.low > rates[0].value
    assert rates[0].interval.high > 0.5


def test_rows_and_queries_are_asked_about_as_given() -> None:
    asked: list[int] = []

    def confidences(half: Indices) -> Matrix:
        asked.append(half.size)
        return np.zeros(40)

    found = measure_release(confidences, np.arange(40.0), rng=np.random.default_rng(0), n_models=6)
    assert asked == [20] * 6
    assert found.figures["membership_auc"].value == 0.5
    assert found.outlying[RARE].n == 4


def test_too_few_rows_give_no_figure() -> None:
    rows, labels = np.random.default_rng(0).standard_normal((30, 2)), np.repeat([0, 1], 15)
    assert measure_trained_release("linear", rows[:19], labels[:19], kind="classes", seed=0) is None
    assert measure_trained_release("linear", rows, labels * 0, kind="classes", seed=0) is None
    assert measure_trained_release("linear", rows, labels, kind="classes", seed=0) is not None
    rare = np.append(labels, [2, 2, 2])  # of a class of three rows half of the models would hardly have one
    found = measure_trained_release("linear", np.vstack([rows, rows[:3]]), rare, kind="classes", seed=0)
    assert found is not None
    assert found.n_rows == 30


def test_of_many_rows_some_of_every_class_are_attacked() -> None:
    classes = np.zeros(50_000, dtype=np.int64)
    classes[:5], classes[5:7] = 1, 2
    chosen = _draw_rows(classes, np.random.default_rng(0))
    assert chosen.size == np.unique(chosen).size == 2000
    assert np.bincount(classes[chosen]).tolist() == [1995, 5]


def test_an_audit_measures_the_release_of_the_chosen_point() -> None:
    rng = np.random.default_rng(4)
    classes = [rng.integers(0, 2, 40) for _ in range(3)]
    rows = [rng.standard_normal((40, 3)) + part[:, None] for part in classes]
    points = [OperatingPoint("c-gdp-data-noise", 3, 0, data_noise_level=level) for level in (0.1, 20.0)]
    chosen, other = run_audit(rows, classes, points=points, chosen=points[0]).points
    assert other.release is None
    assert chosen.release is not None
    assert chosen.release.n_rows == 90
    assert f"{chosen.release.figures[RATE].value:.1%}" in str(chosen.release)
    again = type(chosen).from_dict(chosen.as_dict())
    assert again.release == chosen.release
