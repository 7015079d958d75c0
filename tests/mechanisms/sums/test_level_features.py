"""Models of any column from the general total: the sums of its learners follow from pairs of columns."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.learners.sums import centre_sums, find_ridge, fit_discriminant, fit_least_squares
from mooring.mechanisms.sums.general.features import LevelFeatures, _estimate_products, extract_sums, select_schema
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import make_workload
from mooring.tables.schema import Column, Label, Schema
from mooring.typing import Matrix

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("sex", "category", categories=("f", "m")),
        Column("children", "integer", 0, 4),
        Column("stage", "category", categories=("I", "II", "III"), missing="fill"),
        Column("income", "number", 1, 1e5),
        Column("seen", "date", 0, 900, day="2020-01-01"),
        Column("country", "category", categories=("here",)),
    ),
    Label("ill", "classes", ("no", "yes")),
)
WORKLOAD = make_workload(SCHEMA, log_scaled=frozenset({"income"}))


def draw_rows(n: int = 3000, seed: int = 0) -> tuple[Matrix, Matrix]:
    """Encoded rows of correlated columns, with stages missing in a third of them, and labels."""
    rng = np.random.default_rng(seed)
    age, sex, children = rng.uniform(-1, 1, n), rng.integers(0, 2, n), rng.integers(0, 5, n)
    stage = np.digitize(age + 0.3 * sex + rng.normal(0, 0.5, n), [-0.3, 0.6])
    stages = np.eye(3)[stage] * (rng.random((n, 1)) < 2 / 3)
    income, seen = np.clip(age / 2 + rng.normal(0, 0.2, n), -1, 1), rng.uniform(-1, 1, n)
    rows = np.column_stack([age, np.eye(2)[sex], children / 2 - 1, stages, income, seen, np.ones(n)])
    return rows, (age + rng.normal(0, 0.5, n) > 0).astype(np.float64)


def features_of(schema: Schema, rows: Matrix) -> Matrix:
    """φ of rows that are encoded with all columns of the study."""
    starts = np.cumsum([0, *(column.width for column in SCHEMA.columns)])
    kept = [
        np.arange(start, start + column.width)
        for column, start in zip(SCHEMA.columns, starts, strict=False)
        if column in schema.columns
    ]
    return LevelFeatures(WORKLOAD, schema).apply(rows[:, np.concatenate(kept)])


@pytest.mark.parametrize("outcome", ["", "sex", "children", "age"])
def test_without_noise_the_sums_of_any_outcome_are_those_of_the_rows(outcome: str) -> None:
    rows, labels = draw_rows()
    schema = select_schema(WORKLOAD, SCHEMA, outcome)
    sums, phi = extract_sums(sum_exactly(WORKLOAD, rows, labels), schema), features_of(schema, rows)
    y = {"": 2 * labels - 1, "sex": rows[:, 2] - rows[:, 1], "children": rows[:, 3], "age": rows[:, 0]}[outcome]
    features = LevelFeatures(WORKLOAD, schema)
    assert not features.is_dense
    assert not features.unit_length
    assert outcome not in {column.name for column in schema.columns}
    assert (schema.label.column, sums.n_classes) == (outcome or "ill", 2 if outcome in ("", "sex") else 0)
    np.testing.assert_allclose(sums.outcomes[:, 0], phi.T @ y, atol=1e-6)
    exact = phi.T @ phi
    assert np.abs(sums.products - exact).max() < 0.02 * np.diag(exact).max()  # blocks of hats are approximate
    assert sums.products[-1] == pytest.approx(exact[-1])


def test_rows_without_the_outcome_do_not_bend_its_model() -> None:
    rows, labels = draw_rows()
    schema = select_schema(WORKLOAD, SCHEMA, "stage")
    sums, phi = extract_sums(sum_exactly(WORKLOAD, rows, labels), schema), features_of(schema, rows)
    known = rows[:, 4:7].sum(axis=1) > 0
    assert sums.n_rows == pytest.approx(known.sum())
    shares = rows[known, 4:7].mean(axis=0)
    np.testing.assert_allclose(sums.class_shares, shares, atol=1e-6)
    _, crossed, _, _ = centre_sums(sums, shrink=False)
    deviations = rows[known, 4:7] - shares
    np.testing.assert_allclose(crossed, (phi[known, :-1] - phi[:, :-1].mean(axis=0)).T @ deviations, atol=1e-6)
    truth = rows[known, 4:7].argmax(axis=1)
    assert (fit_discriminant(sums).predict(phi[known]) == truth).mean() > 0.6


@pytest.mark.parametrize("curves", [-5.0, 0.0, 37.0, 1e6])
def test_products_of_hats_follow_from_counts_and_the_sum_of_curves_within_what_rows_can_have(curves: float) -> None:
    """Σ hhᵀ = diag(c) − Σ q_a (e_a − e_{a+1})(e_a − e_{a+1})ᵀ, where q_a is in proportion to c_a c_{a+1}/(c_a + c_{a+1}).

    A row adds t(1 − t) to the sum of all q_a, which is between 0 and ¼.
    """
    rows, labels = draw_rows(200)
    rows[:, 0] = np.where(rows[:, 0] > 0, 1.0, -1 + (rows[:, 0] + 1) / 3)  # nobody is at the nodes between
    total = sum_exactly(WORKLOAD, rows, labels)
    (index, place), *_ = WORKLOAD.bubbles.items()
    height = WORKLOAD.integer_bubbles[index] * WORKLOAD.constant_integer / WORKLOAD.resolution**2
    total.matrix[0, place] = total.matrix[place, 0] = 4 * curves * height
    hats = np.maximum(0, 1 - np.abs(3.5 * (rows[:, :1] + 1) - np.arange(8)))
    counts, expected = hats.sum(axis=0), np.diag(hats.sum(axis=0))
    assert (counts[4:7] == 0).all()
    parts = np.array([a * b / (a + b) if a + b else 0.0 for a, b in pairwise(counts)])
    for a, part in enumerate(parts / parts.sum() * np.clip(curves, 0, 200 / 4)):
        step = np.eye(8)[a] - np.eye(8)[a + 1]
        expected = expected - part * np.outer(step, step)
    np.testing.assert_allclose(_estimate_products(total, index, WORKLOAD.columns[index]), expected, atol=1e-6)


def test_an_outcome_that_is_missing_in_all_rows_counts_as_known_in_one() -> None:
    rows, labels = draw_rows(50)
    rows[:, 4:7] = 0.0
    schema = select_schema(WORKLOAD, SCHEMA, "stage")
    assert extract_sums(sum_exactly(WORKLOAD, rows, labels), schema).n_rows == pytest.approx(1.0)
    nobody = replace(sum_exactly(WORKLOAD, rows[:0], labels[:0]), noise_variance=4.0)
    assert extract_sums(nobody, schema).noise_scales[0] == pytest.approx(2.0)


def test_a_number_is_predicted_like_least_squares_predict_it() -> None:
    rows, labels = draw_rows()
    schema = select_schema(WORKLOAD, SCHEMA, "age")
    sums, phi = extract_sums(sum_exactly(WORKLOAD, rows, labels), schema), features_of(schema, rows)
    predicted = phi @ np.linalg.lstsq(phi, rows[:, 0], rcond=None)[0]
    computed = fit_least_squares(sums).scores(phi)[:, 0]
    assert np.abs(computed - predicted).mean() < 0.03


@pytest.mark.parametrize("outcome", ["income", "seen", "country", "height", "days", "died", "days × died"])
def test_what_no_model_can_predict_is_refused(outcome: str) -> None:
    survival = Survival("days", "died", "yes", (0.0, 10.0, 20.0))
    columns = (Column("days", "number", 0, 100), Column("died", "category", categories=("no", "yes")))
    schema = Schema((*SCHEMA.columns, *columns), SCHEMA.label)
    workload = make_workload(schema, log_scaled=frozenset({"income"}), survival=survival)
    assert not {"days", "died"} & select_schema(workload, schema).names  # nobody knows them where a model is used
    with pytest.raises(InputError) as caught:
        select_schema(workload, schema, outcome)
    assert caught.value.what == ("column" if outcome == "height" else "outcome")


def test_a_study_without_a_label_predicts_the_column_that_is_named() -> None:
    schema = Schema(SCHEMA.columns)
    with pytest.raises(InputError) as caught:
        select_schema(make_workload(schema), schema)
    assert caught.value.what == "outcome"
    assert select_schema(make_workload(schema), schema, "sex").label.classes == ("f", "m")


def test_products_of_features_of_one_column_are_not_shrunk_as_they_follow_from_counts() -> None:
    rows, labels = draw_rows()
    schema = select_schema(WORKLOAD, SCHEMA)
    total = sum_exactly(WORKLOAD, rows, labels).with_noise(np.random.default_rng(0), 100.0)
    sums = extract_sums(total, schema)
    plain, shrunk = (centre_sums(sums, shrink=shrink)[0] for shrink in (False, True))
    assert sums.columns is not None
    within = sums.columns[:, None] == sums.columns
    np.testing.assert_array_equal(shrunk[within], plain[within])
    assert (np.abs(shrunk[~within]) < np.abs(plain[~within])).all()


def test_an_outcome_that_is_easy_to_predict_has_a_smaller_ridge_than_one_that_is_not() -> None:
    rows, labels = draw_rows()
    noise, ridges = np.random.default_rng(1), []
    for outcome in (labels, noise.permutation(labels)):
        total = sum_exactly(WORKLOAD, rows, outcome).with_noise(np.random.default_rng(0), 4.0)
        sums = extract_sums(total, select_schema(WORKLOAD, SCHEMA))
        centred, crossed, *_ = centre_sums(sums, shrink=True)
        ridges.append(find_ridge(sums, centred, crossed))
        least = np.sqrt(sums.noise_scales[0] ** 2 * len(sums.products) / 2)
        assert find_ridge(replace(sums, columns=None), centred, crossed) > least  # whatever the outcome
    assert ridges[0] < least < ridges[1]


def test_one_column_predicts_another_whatever_the_noise() -> None:
    rows, labels = draw_rows()
    schema = Schema((SCHEMA.columns[0],), SCHEMA.label)
    workload = make_workload(schema)
    total = sum_exactly(workload, rows[:, :1], labels).with_noise(np.random.default_rng(0), 4.0)
    for fit in (fit_discriminant, fit_least_squares):
        model = fit(extract_sums(total, select_schema(workload, schema)))
        assert (model.predict(LevelFeatures(workload, schema).apply(rows[:, :1])) == labels).mean() > 0.75
