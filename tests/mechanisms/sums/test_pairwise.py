"""The general total in integers: no row or person exceeds the sensitivity, and rounding adds no bias."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.mechanisms.sums.general.layout import PairwiseAccumulator, PairwiseLayout, require_places
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import sum_exactly
from mooring.mechanisms.sums.general.workload import SmallIntegers, Workload, make_workload
from mooring.mechanisms.sums.guarantee import SumPrivacy, calibrate_products
from mooring.mechanisms.sums.sums import Integers
from mooring.tables.schema import Column, Label, Schema
from mooring.typing import Matrix

COLUMNS = (
    Column("age", "integer", 18, 90),
    Column("weight", "number", 30, 150, missing="indicate"),
    Column("income", "number", 0, 1e5),
    Column("children", "integer", 0, 4),
    Column("sex", "category", categories=("f", "m")),
    Column("stage", "category", categories=("I", "II", "III"), missing="fill"),
)
CLASSES = Label("ill", "classes", ("no", "yes"))
NUMBER = Label("cost", "number", low=0, high=1000)


@st.composite
def workloads(draw: st.DrawFn) -> tuple[Workload, Schema]:
    """A workload of some columns in some order, with or without a label, logarithms and survival."""
    columns = tuple(draw(st.lists(st.sampled_from(COLUMNS), min_size=1, unique_by=lambda column: column.name)))
    label = draw(st.sampled_from([Label(), CLASSES, NUMBER]))
    names = {column.name for column in columns}
    logs = frozenset({"income"}) & names if draw(st.booleans()) else frozenset[str]()
    survival = None
    if draw(st.booleans()) and {"age", "sex"} <= names and len(names) > 2:
        survival = Survival("age", "sex", "f", (0.0, 30.0, 60.0))
    schema = Schema(columns, label)
    return make_workload(schema, log_scaled=logs, survival=survival), schema


def encode(schema: Schema, values: list[float]) -> tuple[Matrix, Matrix | None]:
    """One encoded row, with each column at a place from 0 to 1 in its range or its categories; above 1 it is missing."""
    parts: list[float] = []
    for column, place in zip(schema.columns, values, strict=False):
        if column.kind == "category":
            chosen = int(place * len(column.categories))
            parts += [float(k == chosen) for k in range(len(column.categories))]
        else:
            number = column.low + min(place, 1.0) * (column.high - column.low)
            number = round(number) if column.kind == "integer" else number
            parts += [0.0 if place > 1 and column.missing == "indicate" else (number - column.centre) / column.spread]
            parts += [float(place > 1)] if column.missing == "indicate" else []
    label, place = schema.label, min(values[-1], 0.999)
    if label.kind == "none":
        return np.array([parts]), None
    return np.array([parts]), np.array([float(int(2 * place)) if label.kind == "classes" else 1000 * place])


def square_norm(layout: PairwiseLayout, vector: Integers) -> int:
    """The squared norm of S in exact integers, where off-diagonal entries count twice."""
    return 2 * sum(int(number) ** 2 for number in vector) - int(vector[0]) ** 2


PLACES = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.2]) | st.floats(0, 1.2), min_size=7, max_size=7)


@settings(max_examples=60, deadline=None)
@given(workloads(), PLACES, st.integers(0, 2**32))
def test_no_row_exceeds_the_sensitivity(made: tuple[Workload, Schema], places: list[float], seed: int) -> None:
    workload, schema = made
    layout = PairwiseLayout(workload)
    sums = PairwiseAccumulator(layout, np.random.default_rng(seed))
    sums.add(*encode(schema, places))
    assert 0 < square_norm(layout, sums.vector) <= workload.integer_sensitivity_squared
    assert int(np.abs(sums.vector).max()) * layout.most_rows < 2**60


@settings(max_examples=20, deadline=None)
@given(workloads(), st.lists(PLACES, min_size=1, max_size=5), st.integers(0, 2**32))
def test_no_person_whose_mean_is_added_exceeds_the_sensitivity(
    made: tuple[Workload, Schema], person: list[list[float]], seed: int
) -> None:
    workload, schema = made
    layout, rng = PairwiseLayout(workload, adds_means=True), np.random.default_rng(seed)
    others, everybody = (PairwiseAccumulator(layout, np.random.default_rng(seed)) for _ in range(2))
    known = [encode(schema, rng.random(7).tolist()) for _ in range(4)]
    for rows, labels in known:
        for sums in (others, everybody):
            sums.add(rows, labels, np.array([3]))
    for places in person:
        everybody.add(*encode(schema, places), np.array([len(person)]))
    assert square_norm(layout, everybody.vector - others.vector) <= layout.sensitivity_squared
    assert layout.sensitivity_squared < 1.001 * workload.integer_sensitivity_squared


def test_the_sensitivity_is_almost_attained() -> None:
    schema = Schema(COLUMNS[:3], CLASSES)
    layout = PairwiseLayout(make_workload(schema))
    sums = PairwiseAccumulator(layout, np.random.default_rng(0))
    sums.add(*encode(schema, [0.0, 1.0, 1.0, 0.0]))
    assert square_norm(layout, sums.vector) > 0.99 * layout.sensitivity_squared


def test_whole_numbers_and_categories_are_summed_exactly() -> None:
    schema = Schema((COLUMNS[0], *COLUMNS[3:5]), CLASSES)
    workload, rng = make_workload(schema), np.random.default_rng(3)
    parts = [encode(schema, rng.random(4).tolist()) for _ in range(200)]
    rows, labels = (
        np.vstack([row for row, _ in parts]),
        np.concatenate([label for _, label in parts if label is not None]),
    )
    layout = PairwiseLayout(workload)
    sums = PairwiseAccumulator(layout, rng)
    sums.add(rows, labels)
    total, exact = layout.unpack(sums.vector, 0.0), sum_exactly(workload, rows, labels)
    age = workload.number("age")
    for other in (age, workload.indicator("sex", "f"), workload.indicator("ill", "yes"), workload.constant):
        matrix = workload.product(age, other)
        # a bubble is rounded at random, and squares of a number depend on it
        slack = 1e-9 if other is not age else 1e-4
        assert total.estimate(matrix) == pytest.approx(exact.estimate(matrix), rel=slack)


def test_rounding_adds_no_bias_that_grows_with_the_rows() -> None:
    """A column of one repeated value, between two multiples of the unit, is the worst case of rounding."""
    schema = Schema((COLUMNS[1], Column("income", "number", 0, 1e5), COLUMNS[4]))
    workload, n = make_workload(schema), 40_000
    rows = np.tile(encode(schema, [0.123456, 0.654321, 0.0])[0], (n, 1))
    layout = PairwiseLayout(workload)
    sums = PairwiseAccumulator(layout, np.random.default_rng(5))
    sums.add(rows)
    total = layout.unpack(sums.vector, 0.0)
    weight, income = workload.number("weight"), workload.number("income")
    truth = {"weight": 30 + 120 * 0.123456, "income": 65_432.1}
    for first, second in ((weight, income), (weight, workload.constant), (weight, weight), (income, income)):
        expected = truth[first.column] * truth.get(second.column, 1.0)
        # random rounding to 1/512 of a step: a relative deviation of about √n/512 steps, which has no bias
        deviation = total.estimate(workload.product(first, second)) / n / expected - 1
        assert abs(deviation) < 5 / (512 * 7 * math.sqrt(n)) / 0.1


def test_equal_rows_are_rounded_by_draws_of_their_own_in_every_block() -> None:
    """Blocks that repeated their draws would round equal rows alike, and the rounding would grow with the rows."""
    schema = Schema((COLUMNS[1], Column("income", "number", 0, 1e5)))
    rows = np.tile(encode(schema, [0.123456, 0.654321])[0], (50, 1))
    sums, vectors = (
        PairwiseAccumulator(PairwiseLayout(make_workload(schema)), np.random.default_rng(5)),
        list[Integers](),
    )
    for _ in range(3):
        sums.add(rows)
        vectors.append(sums.vector)
    first, second, third = np.diff(np.stack([0 * vectors[0], *vectors]), axis=0)
    assert (first != second).any()
    assert (second != third).any()


def test_places_from_which_the_sensitivity_does_not_follow_are_refused() -> None:
    workload = make_workload(Schema((*COLUMNS[:2], COLUMNS[4])))
    rows = workload.code(encode(Schema((*COLUMNS[:2], COLUMNS[4])), [0.3, 0.4, 0.0])[0])
    places, bubbles = workload.quantise(rows, None, np.random.default_rng(0))
    require_places(workload, places, bubbles)
    lengths = [(levels.n_levels - 1) * levels.unit for levels in workload.columns]
    for column, (length, unit) in enumerate(zip(lengths, workload.units, strict=True)):
        for place in (-int(unit), 0, length):
            require_places(workload, replace_place(places, column, place), bubbles)
        for place in (-2 * int(unit), length + 1, *((-1,) if unit > 1 else ())):
            with pytest.raises(InputError):
                require_places(workload, replace_place(places, column, place), bubbles)
    for wrong in (bubbles + 10**6, bubbles - 10**6):
        with pytest.raises(InputError):
            require_places(workload, places, wrong)


@pytest.mark.parametrize("code", [-2.0, 2.0])
def test_coded_rows_that_lie_on_no_level_are_not_added(code: float) -> None:
    layout = PairwiseLayout(make_workload(Schema(COLUMNS[3:5])))
    sums = PairwiseAccumulator(layout, np.random.default_rng(0))
    with pytest.raises(InputError):
        sums.add_coded(np.array([[0.5, 1.0], [0.5, code]]), None, None)
    assert sums.n_rows == 0
    assert not sums.vector.any()


@pytest.mark.parametrize("persons", [1, 3])
@pytest.mark.parametrize("adds_means", [False, True])
def test_the_noise_is_m_sensitivities_over_the_honest_contributions(persons: int, adds_means: bool) -> None:
    layout = PairwiseLayout(make_workload(Schema(COLUMNS[:4])), adds_means)
    noise = calibrate_products(layout, SumPrivacy(1.0, 1e-5, quorum=7, n_colluders=3, rows_per_person=persons))
    multiplier = math.sqrt(4 * noise.on_products / layout.sensitivity_squared) / persons
    assert multiplier == pytest.approx(3.7306, abs=5e-5)  # at (1, 10⁻⁵), in standard deviations a sensitivity
    more = math.isqrt(layout.sensitivity_squared) - math.isqrt(replace(layout, adds_means=False).sensitivity_squared)
    assert more >= (math.sqrt(2 * layout.size) if adds_means else 0)  # rounding of the division


def replace_place(places: SmallIntegers, column: int, place: int) -> SmallIntegers:
    changed = places.copy()
    changed[column] = place
    return changed


@settings(max_examples=40, deadline=None)
@given(workloads(), st.data())
def test_weights_of_every_place_are_not_negative_and_sum_to_the_unit(
    made: tuple[Workload, Schema], data: st.DataObject
) -> None:
    workload, every = made[0], np.arange(made[0].n_levels)
    drawn = [data.draw(st.integers(0, (levels.n_levels - 1) * levels.unit)) for levels in workload.columns]
    for places in (drawn, [-levels.unit for levels in workload.columns]):
        weights = workload.spread(np.array([places], dtype=workload.units.dtype).T, every)[:, 0]
        sums = np.bincount(workload.columns_of_levels, weights=weights)
        assert weights.min() >= 0
        assert sums.tolist() == (workload.units.tolist() if places is drawn else [0.0] * len(sums))


def test_the_total_is_that_of_each_row_alone_and_the_same_as_ever() -> None:
    """Blocks leave out what follows from the rest; the sums must not. The digest is of the sums before they did so."""
    schema = Schema(COLUMNS[:6], CLASSES)
    layout = PairwiseLayout(make_workload(schema))
    workload, rng = layout.workload, np.random.default_rng(11)
    parts = [encode(schema, rng.uniform(0, 1.1, 7).tolist()) for _ in range(1500)]
    rows, labels = (
        np.vstack([row for row, _ in parts]),
        np.concatenate([np.zeros(0) if k is None else k for _, k in parts]),
    )
    sums, alone = (
        PairwiseAccumulator(layout, np.random.default_rng(3)),
        PairwiseAccumulator(layout, np.random.default_rng(3)),
    )
    sums.add(rows, labels)
    whole, bubbles = workload.quantise(workload.code(rows), labels, np.random.default_rng(3).spawn(1)[0])
    products = np.zeros((workload.n_levels + 1,) * 2, dtype=np.int64)
    for row in whole.T:
        place, levels = (
            row[workload.columns_of_levels],
            np.concatenate([np.arange(k.n_levels) for k in workload.columns]),
        )
        units = workload.units[workload.columns_of_levels].astype(np.int64)
        weights = np.concatenate([[1], np.maximum(0, units - np.abs(place - levels * units))])
        products += np.outer(weights, weights)
    alone._products, alone._bubbles = products, bubbles.sum(axis=0)
    np.testing.assert_array_equal(sums.vector, alone.vector)
    assert hashlib.sha256(sums.vector.astype("<i8").tobytes()).hexdigest()[:16] == "f71765cd411182da"


def test_a_mean_is_summed_in_whole_numbers_row_by_row() -> None:
    """In Python's integers: a row of a person with k has the weight ⌊2²⁰/k⌋; sums are divided by 2²⁰ and rounded down."""
    schema = Schema((*COLUMNS[:3], COLUMNS[4]))
    layout = PairwiseLayout(make_workload(schema), adds_means=True)
    workload, rng = layout.workload, np.random.default_rng(2)
    rows, counts = np.vstack([encode(schema, rng.random(5).tolist())[0] for _ in range(20)]), rng.integers(2, 9, 20)
    sums = PairwiseAccumulator(layout, np.random.default_rng(3))
    sums.add(rows, None, counts)
    places, bubbles = workload.quantise(workload.code(rows), None, np.random.default_rng(3).spawn(1)[0])
    features, bubbles_in_all = np.zeros((workload.size, workload.size), dtype=object), np.zeros(3, dtype=object)
    for row, curves, count in zip(places.T.tolist(), bubbles.tolist(), counts.tolist(), strict=True):
        phi = [workload.constant_integer]
        for place, levels, contrasts in zip(row, workload.columns, workload.integer_contrasts, strict=True):
            weights = [max(0, levels.unit - abs(place - k * levels.unit)) for k in range(levels.n_levels)]
            phi += [sum(map(int.__mul__, line, weights)) for line in contrasts.tolist()]
        whole = np.array([*phi, *[0] * len(curves)], dtype=object)
        features += 2**20 // count * np.outer(whole, whole)
        bubbles_in_all += 2**20 // count * workload.constant_integer * np.array(curves, dtype=object)
    features[0, workload.n_features :] = bubbles_in_all
    assert sums.vector.tolist() == (features // 2**20)[layout.entries].tolist()


def test_numbers_of_rows_of_persons_are_given_if_means_are_added() -> None:
    schema = Schema(COLUMNS[:2])
    row, _ = encode(schema, [0.3, 0.4])
    for adds_means, counts in ((False, np.array([1])), (True, None), (True, np.array([0]))):
        sums = PairwiseAccumulator(PairwiseLayout(make_workload(schema), adds_means), np.random.default_rng(0))
        with pytest.raises(InputError):
            sums.add(row, None, counts)
