"""Where values lie among the levels of their column, what times to an event become, and what no rows can have."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

from mooring.errors import InputError
from mooring.mechanisms.sums.general.layout import PairwiseAccumulator, PairwiseLayout
from mooring.mechanisms.sums.general.levels import (
    label_levels,
    make_levels,
    quantise_places,
    round_at_random,
    write_weights,
)
from mooring.mechanisms.sums.general.survival import Survival
from mooring.mechanisms.sums.general.total import PairwiseTotal, check_total, sum_exactly
from mooring.mechanisms.sums.general.workload import Workload, make_workload
from mooring.tables.schema import Column, Label, Schema
from mooring.typing import Matrix, Vector
from tests.raising import numbers_in, raising

NUMBERS = {
    "few": (Column("few", "integer", -2, 3), False),
    "eight": (Column("eight", "integer", 1, 8), False),
    "nine": (Column("nine", "integer", 1, 9, missing="indicate"), False),
    "age": (Column("age", "integer", 18, 90), False),
    "weight": (Column("weight", "number", 30, 150, missing="indicate"), False),
    "income": (Column("income", "number", 0, 1e5), True),
    "marker": (Column("marker", "number", 0.5, 400, missing="indicate"), True),
    "visits": (Column("visits", "integer", 1, 1000), True),
}


def draw_values(column: Column, n: int = 300) -> Vector:
    """Values over the range and its ends; NaN for some where they may be missing."""
    rng = np.random.default_rng(0)
    values = np.concatenate([[column.low, column.high], rng.uniform(column.low, column.high, n)])
    values = np.rint(values) if column.kind == "integer" else values
    if column.missing == "indicate":
        values[5::7] = np.nan
    return np.asarray(values)


def encode(column: Column, values: Vector) -> Matrix:
    gone = np.isnan(values)
    entry = np.where(gone, 0.0, (values - column.centre) / column.spread)
    return np.column_stack([entry, gone]) if column.missing == "indicate" else entry[:, None]


def place(column: Column, values: Vector, *, is_log: bool) -> Vector:
    """Places among the nodes: one for each value of whole numbers with up to eight, and eight for all others."""
    low, high = column.low, column.high
    if column.kind == "integer" and high - low <= 7:
        return np.asarray(values - low)
    if not is_log:
        return np.asarray(7 * (values - low) / (high - low))
    if low > 0:
        return np.asarray(7 * np.log(values / low) / np.log(high / low))
    return np.asarray(7 * np.log1p(9999 * (values - low) / (high - low)) / np.log(1e4))


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_has_weights_on_the_nodes_beside_it(name: str) -> None:
    column, is_log = NUMBERS[name]
    values, levels = draw_values(column), make_levels(column, is_log=is_log)
    n_nodes = round(column.high - column.low) + 1 if column.kind == "integer" and column.high - column.low <= 7 else 8
    assert len(levels.nodes) == n_nodes
    assert levels.is_exact == (name in ("few", "eight"))
    places = place(column, values, is_log=is_log)
    expected = np.nan_to_num(np.maximum(0, 1 - np.abs(places[:, None] - np.arange(n_nodes))))
    if levels.has_missing:
        expected = np.column_stack([expected, np.isnan(values)])
    weights = np.zeros_like(expected)
    t = write_weights(levels, 0, encode(column, values), None, weights)
    np.testing.assert_allclose(weights, expected, atol=1e-9)
    known = ~np.isnan(values)
    off = np.abs(places - np.rint(places))[known]
    np.testing.assert_allclose(np.minimum(t, 1 - t)[known], off, atol=1e-9)
    assert (t[~known] == 0).all()
    np.testing.assert_allclose(
        [levels.from_scale(node) for node in levels.nodes][:: n_nodes - 1], [column.low, column.high]
    )
    assert [float(word) for word in levels.names[: n_nodes : n_nodes - 1]] == pytest.approx(
        [column.low, column.high], rel=1e-4
    )
    np.testing.assert_allclose(levels.from_scale(levels.to_scale(values[known])), values[known], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize("name", NUMBERS)
def test_a_place_is_rounded_to_units_at_random_and_without_bias(name: str) -> None:
    column, is_log = NUMBERS[name]
    values, levels = draw_values(column), make_levels(column, is_log=is_log)
    exact = place(column, values, is_log=is_log) * levels.unit
    coded, rng = encode(column, values), np.random.default_rng(1)
    drawn = np.array([quantise_places(levels, 0, coded, None, rng)[0] for _ in range(400)])
    known = ~np.isnan(values)
    assert (np.abs(drawn - exact)[:, known] < 1).all()
    assert np.abs(drawn.mean(axis=0) - exact)[known].max() < 5 * 0.5 / math.sqrt(400)
    assert (drawn[:, ~known] == (levels.n_levels - 1) * levels.unit).all()
    if column.kind == "integer" and not is_log:
        assert (drawn == drawn[0]).all()  # every whole number lies on a multiple of the unit


def test_a_number_within_a_millionth_of_a_whole_one_is_taken_for_it() -> None:
    """Whatever is drawn: with the least draw a number is rounded down, and with the largest it is rounded up."""
    values = np.array([3 - 1.1e-6, 3 - 0.9e-6, 3.0, 3 + 0.9e-6, 3 + 1.1e-6, -2 - 0.9e-6, -2 + 1.1e-6])
    for draw, expected in ((0.0, [2, 3, 3, 3, 3, -2, -2]), (1 - 1e-12, [3, 3, 3, 3, 4, -2, -1])):
        rng: Any = SimpleNamespace(random=lambda n, draw=draw: np.full(n, draw))
        assert round_at_random(values, rng).tolist() == expected


@pytest.mark.parametrize(
    ("length", "unit"), [(7, 1), (8, 8), (14, 2), (70, 10), (509, 509), (511, 73), (512, 512), (513, 512), (3591, 512)]
)
def test_the_unit_of_whole_numbers_is_the_least_of_which_all_places_are_multiples(length: int, unit: int) -> None:
    assert make_levels(Column("x", "integer", 5, 5 + length), is_log=False).unit == unit
    assert make_levels(Column("x", "number", 5, 5 + length), is_log=False).unit == 512
    if length > 7:
        assert make_levels(Column("x", "integer", 5, 5 + length), is_log=True).unit == 512


@pytest.mark.parametrize("label", [Label("y", "classes", ("a", "b", "c")), Label("y", "number", low=-10, high=60)])
def test_a_label_is_one_more_column(label: Label) -> None:
    levels = label_levels(label)
    labels = np.array([2.0, 0.0, 1.0]) if label.kind == "classes" else np.array([-10.0, 0.0, 57.5])
    expected = np.eye(3)[[2, 0, 1]] if label.kind == "classes" else np.zeros((3, 8))
    places = np.array([2.0, 0.0, 1.0])
    if label.kind == "number":
        expected[[0, 1, 2, 2], [0, 1, 6, 7]] = [1, 1, 0.25, 0.75]
        places = np.array([0.0, 512.0, 6.75 * 512])
    rows, weights = np.zeros((3, 0)), np.zeros_like(expected)
    write_weights(levels, -1, rows, labels, weights)
    np.testing.assert_allclose(weights, expected, atol=1e-12)
    assert quantise_places(levels, -1, rows, labels, np.random.default_rng(0))[0].tolist() == places.tolist()
    weights[:] = 0
    t = write_weights(levels, -1, rows, None, weights)
    assert not t.any()
    assert not weights.any()
    absent, t = quantise_places(levels, -1, rows, None, np.random.default_rng(0))
    assert absent.tolist() == [-levels.unit] * 3
    assert not t.any()


def test_a_category_has_a_level_for_missing_values_only_where_there_may_be_some() -> None:
    words = ("missing", "(missing)", "low")
    for options, names in (
        ({}, words),
        ({"missing": "indicate"}, (*words, "((missing))")),
        ({"missing": "fill"}, (*words, "((missing))")),
        ({"missing": "fill", "fill": "low"}, words),
    ):
        levels = make_levels(Column("x", "category", categories=words, **options), is_log=False)  # type: ignore[arg-type]
        assert levels.names == names
        assert levels.has_missing == (len(names) == 4)
        rows = np.eye(3)[[2, 0]]
        if levels.has_missing:
            rows = np.vstack([rows, np.zeros((1, 3))])
        weights = np.zeros((len(rows), levels.n_levels))
        write_weights(levels, 0, rows, None, weights)
        np.testing.assert_array_equal(weights, np.eye(levels.n_levels)[[2, 0, 3][: len(rows)]])
        codes = np.array([[2.0], [0.0], [-1.0]])[: len(rows)]
        places, _ = quantise_places(levels, 0, codes, None, np.random.default_rng(0))
        assert places.tolist() == [2, 0, 3][: len(rows)]


@pytest.mark.parametrize(("low", "high", "fine"), [(0.2, 1.4, False), (0.2, 2.0, True), (-1.0, 0.9, True)])
def test_a_range_has_two_whole_numbers_or_more(low: float, high: float, fine: bool) -> None:
    column = Column("x", "integer", low, high)
    if not fine:
        with raising(InputError, "columns"):
            make_levels(column, is_log=False)
        return
    levels = make_levels(column, is_log=False)
    assert (levels.low, levels.high, levels.n_levels) == (math.ceil(low), math.floor(high), 2)


TIMES: dict[str, Any] = {
    "time": (Column("days", "number", 0, 100), Column("days", "number", 0, 100, missing="indicate")),
    "event": (
        Column("died", "category", categories=("no", "yes")),
        Column("died", "category", categories=("no", "yes"), missing="indicate"),
    ),
}


@pytest.mark.parametrize("time_missing", [False, True])
@pytest.mark.parametrize("event_missing", [False, True])
def test_times_and_events_are_intervals_and_what_is_not_known_is_missing_where_it_may_be(
    time_missing: bool, event_missing: bool
) -> None:
    """In encoded rows and in coded ones: each row is summed as the level that it has."""
    schema = Schema(
        (TIMES["event"][event_missing], Column("sex", "category", categories=("f", "m")), TIMES["time"][time_missing])
    )
    workload = make_workload(schema, survival=Survival("days", "died", "yes", (5.0, 20.0, 98.0)))
    days = np.array([0.0, 5.0, 20.0, 20.5, 100.0, 99.0, 50.0, 50.0])
    events, gone = np.array([1, 0, 1, 0, 1, 0, -1, 1]), np.arange(8) == 7  # −1: the event is not known
    words = np.vstack([np.eye(2), np.zeros(2)])[events]
    parts = [
        words,
        *([events[:, None] < 0] if event_missing else []),
        np.eye(2)[np.arange(8) % 2],
        days[:, None] / 50 - 1,
    ]
    rows = np.hstack([*parts, *([gone[:, None]] if time_missing else [])]).astype(float)
    can_be_missing = time_missing or event_missing
    levels = [0, 1, 0, 3, 4, 4, 5, 5 if time_missing else 2]  # two are beyond the last edge
    expected = np.eye(6)[levels][:, : 5 + can_be_missing]
    np.testing.assert_array_equal(workload.weigh(rows)[0][:, 2:], expected)
    sums = PairwiseAccumulator(PairwiseLayout(workload), np.random.default_rng(0))
    sums.add(rows)
    total = sums.layout.unpack(sums.vector, 0.0)
    np.testing.assert_allclose(total.matrix, sum_exactly(workload, rows).matrix, atol=1e-6)


@pytest.mark.parametrize(
    ("edges", "fine"),
    [
        ((0.0, 100.0), True),
        ((0.0, 10.0, 20.0), True),
        ((0.0,), False),
        ((0.0, 100.5), False),
        ((-0.5, 100.0), False),
        ((0.5, 1.5), True),
        ((0.0, 10.0, 10.0), False),
        ((0.0, 10.0, 9.0), False),
        ((0.0, math.nan), False),
        ((0.0, math.inf), False),
    ],
)
def test_edges_of_intervals_increase_from_zero_to_the_end_of_the_range(edges: tuple[float, ...], fine: bool) -> None:
    schema = Schema((TIMES["time"][0], TIMES["event"][1]))
    if fine:
        workload = make_workload(schema, survival=Survival("days", "died", "yes", edges))
        assert workload.columns[-1].n_levels == 2 * len(edges)
        return
    with raising(InputError, "survival") as caught:
        make_workload(schema, survival=Survival("days", "died", "yes", edges))
    assert edges[-1] != 100.5 or {100.5, 100.0} <= numbers_in(caught.value.problem)


@pytest.mark.parametrize(
    ("time", "event", "logs"), [("days", "days", ()), ("days", "died", ("days",)), ("days", "n", ())]
)
def test_a_time_is_a_number_of_its_own_and_an_event_has_two_words(time: str, event: str, logs: tuple[str, ...]) -> None:
    schema = Schema((TIMES["time"][0], TIMES["event"][0], Column("n", "integer", 0, 2)))
    with raising(InputError, "survival"):
        make_workload(schema, log_scaled=frozenset(logs), survival=Survival(time, event, "yes", (0.0, 10.0)))
    whole = Schema((TIMES["time"][0], Column("n", "integer", 0, 1)))
    assert make_workload(whole, survival=Survival("days", "n", "1", (0.0, 10.0))).survival is not None


CHECKED = Schema(
    (Column("x", "number", 0, 10), Column("sex", "category", categories=("f", "m")), Column("n", "integer", 0, 2))
)


def draw_checked(variance: float) -> PairwiseTotal:
    rng, n = np.random.default_rng(0), 200
    rows = [rng.uniform(-1, 1, (n, 1)), np.eye(2)[rng.integers(0, 2, n)], rng.integers(-1, 2, (n, 1))]
    return replace(sum_exactly(make_workload(CHECKED), np.hstack(rows)), noise_variance=variance)


@pytest.mark.parametrize("variance", [0.0, 4.0])
def test_a_total_has_no_more_rows_than_all_may_add_and_no_fewer_than_none_but_for_the_noise(variance: float) -> None:
    total = draw_checked(variance)
    workload = total.workload
    slack = 6 * math.sqrt(total.covariance([workload.product(workload.constant, workload.constant)])[0, 0])
    assert not check_total(total)
    assert not check_total(total, 200.0 - slack + 1e-6)
    assert len(check_total(total, 200.0 - slack - 1e-6)) == 1
    least = 1e-6 + slack
    for n, fine in ((-0.99 * least, True), (-1.01 * least, False)):
        problems = check_total(replace(total, matrix=n / 200 * total.matrix))
        assert ("its number of rows is below zero" not in problems) == fine


def move_count(total: PairwiseTotal, vector: Vector, by: float) -> PairwiseTotal:
    """The total with another number of rows at a level, and as many rows in all."""
    workload, matrix, part = total.workload, total.matrix.copy(), vector.copy()
    part[0] = 0
    moved = by * part / (part @ part) * workload.constant_integer / workload.resolution
    matrix[0] += moved
    matrix[:, 0] += moved
    return replace(total, matrix=matrix)


@pytest.mark.parametrize("variance", [0.0, 0.5])
@pytest.mark.parametrize(("column", "level"), [("sex", "m"), ("n", "1"), ("x", "0")])
def test_a_level_has_between_no_rows_and_all_but_for_the_noise(column: str, level: str, variance: float) -> None:
    total = draw_checked(variance)
    workload = total.workload
    function, inverse = workload.indicator(column, level), workload.resolution / workload.constant_integer
    count = total.estimate(workload.product(function, workload.constant))
    slack = 6 * math.sqrt(variance) * inverse

    def is_fine(by: float) -> float:
        problems = check_total(move_count(total, function.vector, by))
        return float(not [problem for problem in problems if f"level {level!r} of {column!r}" in problem]) - 0.5

    own = slack * float(np.linalg.norm(function.vector))
    least, most = -own - 200e-6, 200 + own + slack * inverse + 1
    assert brentq(is_fine, 0, 2 * (least - count), xtol=1e-9) == pytest.approx(least - count, abs=1e-6)
    assert brentq(is_fine, 0, 2 * (most - count), xtol=1e-9) == pytest.approx(most - count, rel=1e-6)


@pytest.mark.parametrize(("by", "is_fine"), [(-0.9e-6, True), (-1.1e-6, False)])
def test_of_no_rows_a_level_may_have_a_millionth_of_a_row_less_than_none(by: float, is_fine: bool) -> None:
    total = draw_checked(0.0)
    moved = move_count(replace(total, matrix=0 * total.matrix), total.workload.indicator("sex", "m").vector, by)
    assert (not check_total(moved)) == is_fine


@pytest.mark.parametrize("variance", [0.0, 0.5])
def test_columns_are_correlated_no_more_strongly_than_is_possible(variance: float) -> None:
    total = draw_checked(variance)
    workload, sigma = total.workload, math.sqrt(variance)
    slack = 6 * sigma * (workload.resolution / workload.constant_integer) ** 2
    for first, second in ((0, 1), (1, 2), (0, 2)):
        j, k = workload.starts[first], workload.starts[second]
        largest = math.sqrt(workload.integer_shares[first] * workload.integer_shares[second]) / workload.resolution**2
        bound = largest * (200 + slack) + 6 * sigma + 1
        for value, fine in ((bound - 1e-6, True), (-bound + 1e-6, True), (bound + 1e-6, False), (-bound - 1e-6, False)):
            matrix = total.matrix.copy()
            matrix[j, k] = matrix[k, j] = value
            problems = check_total(replace(total, matrix=matrix))
            assert (not [problem for problem in problems if "correlated" in problem]) == fine


def of_categories(*n_levels: int) -> Workload:
    return make_workload(
        Schema(
            tuple(
                Column(f"x{k}", "category", categories=tuple(f"c{i}" for i in range(n))) for k, n in enumerate(n_levels)
            )
        )
    )


def test_up_to_two_to_the_23_sums_can_be_shared() -> None:
    """The rows, the levels of each column but one, and products of two of them."""
    assert PairwiseLayout(of_categories(3, 4, 2)).size == 1 + (2 + 3 + 1) + (2 * 3 + 2 * 1 + 3 * 1)
    assert 2**23 - 4_000 < PairwiseLayout(of_categories(*[1000] * 4, 600)).size <= 2**23
    with raising(InputError, "columns"):
        PairwiseLayout(of_categories(*[1000] * 4, 601))


def test_a_total_may_have_two_to_the_25_rows_and_a_mean_moves_it_by_a_rounding_more() -> None:
    workload = make_workload(CHECKED)
    layout = PairwiseLayout(workload, adds_means=True)
    assert layout.most_rows == pytest.approx(2**25, rel=1e-2)
    exact = math.sqrt(workload.integer_sensitivity_squared) + math.sqrt(2 * layout.size)
    assert exact**2 <= layout.sensitivity_squared <= (exact + 2) ** 2
    assert replace(layout, adds_means=False).sensitivity_squared == workload.integer_sensitivity_squared
