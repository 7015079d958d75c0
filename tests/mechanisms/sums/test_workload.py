"""The general total: what is read off it equals the sums over rows, and its noise has the stated covariance."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.mechanisms.sums.answers.readings import read_products
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import Functional, Workload, make_workload
from mooring.tables.schema import Column, Label, Schema
from mooring.typing import Matrix, Vector

SCHEMA = Schema(
    (
        Column("age", "integer", 18, 90),
        Column("weight", "number", 30, 150, missing="indicate"),
        Column("income", "number", 0, 1e5),
        Column("marker", "number", 0.5, 400),
        Column("children", "integer", 0, 4),
        Column("sex", "category", categories=("f", "m")),
        Column("stage", "category", categories=("I", "II", "III"), missing="indicate"),
    ),
    Label("ill", "classes", ("no", "yes")),
)
LOGS = frozenset({"income", "marker"})
N = 400


def draw_rows(rng: np.random.Generator) -> tuple[Matrix, dict[str, Vector]]:
    """Encoded rows of `SCHEMA`, and the values of the functions of its columns."""
    age, children = rng.integers(18, 91, N), rng.integers(0, 5, N)
    x, gone = rng.uniform(-1, 1, (N, 3)), rng.random(N) < 0.2
    sex, stage = rng.integers(0, 2, N), rng.integers(0, 4, N)
    rows = np.column_stack(
        [
            (age - 54) / 36,
            np.where(gone, 0, x[:, 0]),
            gone,
            x[:, 1:],
            (children - 2) / 2,
            *(sex == k for k in range(2)),
            *(stage == k for k in range(4)),
        ]
    )
    labels = rng.integers(0, 2, N)
    values = {
        "age": age,
        "weight": np.where(gone, 0, 90 + 60 * x[:, 0]),
        "income": np.log1p(9999 * (x[:, 1] + 1) / 2),
        "marker": np.log(0.5 + 399.5 * (x[:, 2] + 1) / 2),
        "children": children,
        "sex=m": sex == 1,
        "stage=II": stage == 1,
        "stage=missing": stage == 3,
        "ill=yes": labels == 1,
        "weight present": ~gone,
    }
    return np.column_stack([rows, labels]), {
        name: np.asarray(value, dtype=np.float64) for name, value in values.items()
    }


def make_functional(workload: Workload, name: str) -> Functional:
    if name.endswith(" present"):
        return workload.present(name.removesuffix(" present"))
    column, _, level = name.partition("=")
    return workload.indicator(column, level) if level else workload.number(column)


def test_sums_of_products_of_any_two_columns_equal_those_over_rows() -> None:
    rows, values = draw_rows(np.random.default_rng(1))
    workload = make_workload(SCHEMA, log_scaled=LOGS)
    total = sum_exactly(workload, rows[:, :-1], rows[:, -1])
    functionals = {name: make_functional(workload, name) for name in values}
    assert total.n_rows == pytest.approx(N, rel=1e-12)
    for first, second in combinations_with_replacement(values, 2):
        matrix = workload.product(functionals[first], functionals[second])
        assert total.estimate(matrix) == pytest.approx(values[first] @ values[second], rel=1e-9, abs=1e-9), (
            first,
            second,
        )
    for name, functional in functionals.items():
        assert total.estimate(workload.product(functional, workload.constant)) == pytest.approx(
            values[name].sum(), rel=1e-9
        )


def test_products_use_shared_entries_only() -> None:
    workload = make_workload(SCHEMA, log_scaled=LOGS)
    _, values = draw_rows(np.random.default_rng(1))
    functionals = [make_functional(workload, name) for name in values]
    for first, second in combinations_with_replacement(functionals, 2):
        assert not workload.product(first, second)[~workload.shared].any()


def test_pairs_of_vectors_are_read_as_their_matrices_are() -> None:
    rows, values = draw_rows(np.random.default_rng(1))
    workload = make_workload(SCHEMA, log_scaled=LOGS)
    total = sum_exactly(workload, rows[:, :-1], rows[:, -1]).with_noise(np.random.default_rng(3), 2.0)
    functionals = [make_functional(workload, name) for name in values]
    pairs = list(combinations_with_replacement(functionals, 2))
    matrices = [workload.product(*pair) for pair in pairs]
    left, right = (np.array(side) for side in zip(*(workload.factors(*pair) for pair in pairs), strict=True))
    read, noise = total.read(left, right)
    np.testing.assert_allclose(read, total.estimates(matrices), rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(noise, total.covariance(matrices), rtol=1e-9, atol=1e-9)


def test_noise_on_what_is_read_off_has_the_stated_covariance() -> None:
    rng, workload = np.random.default_rng(2), make_workload(Schema(SCHEMA.columns[3:6], SCHEMA.label))
    rows, _ = draw_rows(rng)
    total = sum_exactly(workload, rows[:, 4:8], rows[:, -1])
    matrices = [
        workload.product(workload.number("marker"), workload.number("marker")),
        workload.product(workload.number("marker"), workload.indicator("sex", "f")),
        workload.product(workload.constant, workload.constant),
    ]
    noisy = [total.with_noise(rng, 2.5) for _ in range(4000)]
    measured = np.cov(np.array([draw.estimates(matrices) for draw in noisy]).T)
    claimed = noisy[0].covariance(matrices)
    scales = np.sqrt(np.diag(claimed))
    np.testing.assert_allclose(measured / np.outer(scales, scales), claimed / np.outer(scales, scales), atol=0.08)


def test_the_sums_of_some_columns_are_read_with_the_same_noise() -> None:
    rows, _ = draw_rows(np.random.default_rng(0))
    labels = np.random.default_rng(1).integers(2, size=N)
    total = replace(sum_exactly(make_workload(SCHEMA, log_scaled=LOGS), rows, labels), noise_variance=2.0)
    selected = total.select({"weight", "stage", "ill"})
    assert [levels.name for levels in selected.workload.columns] == ["weight", "stage", "ill"]
    readings = []
    for each in (total, selected):
        workload = each.workload
        functions = [workload.number("weight"), workload.indicator("stage", "II"), workload.indicator("ill", "yes")]
        pairs = combinations_with_replacement([workload.constant, *functions], 2)
        readings.append(read_products(each, list(pairs)))
    np.testing.assert_allclose(readings[0].values, readings[1].values, rtol=1e-12)
    np.testing.assert_allclose(readings[0].noise, readings[1].noise, rtol=1e-12)


def test_survival_is_one_column_of_intervals_and_events() -> None:
    schema = Schema(
        (
            Column("time", "number", 0, 100),
            Column("event", "category", categories=("no", "dead"), missing="indicate"),
            Column("arm", "category", categories=("a", "b")),
        )
    )
    workload = make_workload(schema, survival=Survival("time", "event", "dead", (0.0, 10.0, 50.0)))
    times = np.array([0.0, 10.0, 10.5, 50.0, 80.0, 20.0])
    events = np.array([[0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    arms = np.array([[1, 0], [0, 1], [1, 0], [1, 0], [1, 0], [1, 0]])
    total = sum_exactly(workload, np.column_stack([times / 50 - 1, events, arms]))
    name, arm_a = "time × event", workload.indicator("arm", "a")
    assert [levels.name for levels in workload.columns] == ["arm", name]
    counts = [
        total.estimate(workload.product(workload.indicator(name, level), arm_a)) for level in workload.columns[-1].names
    ]
    np.testing.assert_allclose(
        counts, [1, 0, 1, 1, 1, 1], atol=1e-9
    )  # (0–10], (10–50], by event first; beyond; missing


@pytest.mark.parametrize(
    "survival",
    [
        Survival("day", "sex", "f", (0.0, 50.0)),
        Survival("sex", "ill", "yes", (0.0, 50.0)),
        Survival("age", "stage", "I", (0.0, 50.0)),
        Survival("age", "ill", "dead", (0.0, 50.0)),
        Survival("age", "ill", "yes", (50.0, 0.0)),
        Survival("age", "ill", "yes", (0.0, 150.0)),
    ],
    ids=["unknown column", "time is a category", "three values", "unknown word", "decreasing edges", "edge beyond"],
)
def test_survival_that_cannot_be_made_is_refused(survival: Survival) -> None:
    with pytest.raises(InputError) as caught:
        make_workload(SCHEMA, survival=survival)
    assert caught.value.what == "survival"


def test_unknown_columns_and_levels_are_refused() -> None:
    workload = make_workload(SCHEMA)
    for ask, what in (
        (lambda: workload.number("height"), "column"),
        (lambda: workload.number("sex"), "column"),
        (lambda: workload.indicator("sex", "x"), "level"),
        (lambda: workload.functional("sex", [1.0]), "values"),
    ):
        with pytest.raises(InputError) as caught:
            ask()
        assert caught.value.what == what
