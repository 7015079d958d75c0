"""The most exposed value, column and row: found where they are, and not by chance."""

import numpy as np
import pytest
from scipy.stats import binom

from mooring.metrics import Interval
from mooring.metrics.exposure import (
    Carriers,
    find_exposed_column,
    find_exposed_rows,
    find_exposed_value,
    find_read_columns,
    order_by_exposure,
)

N = 600


def table(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = np.column_stack([rng.standard_normal((N, 3)), np.zeros(N), rng.integers(0, 3, N)])
    rows[[5, 100, 599], 3] = 1.0
    return rows


def named(column: int, value: float) -> str:
    return f"{column} = {value:g}"


@pytest.mark.parametrize("shrunk", [1.0, 0.01])
def test_carriers_of_a_rare_value_are_found_by_rank(shrunk: float) -> None:
    rows = table()
    noisy = shrunk * (rows + 0.2 * np.random.default_rng(1).standard_normal(rows.shape) + [0, 0, 0, 0, 9])
    exposed = find_exposed_value(
        Carriers.of(rows), [("a", np.zeros_like(rows)), ("b", noisy)], guessed=[np.zeros_like(rows)], name_of=named
    )
    assert exposed is not None
    attack, figure = exposed
    assert (attack, figure.name, figure.value, figure.n) == ("b", "carriers of 3 = 1", 1.0, 3)
    assert figure.chance == figure.control == pytest.approx(3 / N)


@pytest.mark.parametrize("n_attacks", [1, 12])
def test_rows_that_say_nothing_expose_nobody_however_many_attacks(n_attacks: int) -> None:
    """At most 5 % each by chance: of 60 runs, more than 8 with a probability of 0.003."""
    values = found_rows = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = np.column_stack([rng.standard_normal((150, 2)), rng.random((150, 4)) < 0.2]).astype(float)
        rebuilt = {str(k): rng.standard_normal(rows.shape) for k in range(n_attacks)}
        guess = np.broadcast_to(rows.mean(axis=0), rows.shape)
        asked = Carriers.of(rows)
        values += find_exposed_value(asked, rebuilt.items(), guessed=[guess], name_of=named) is not None
        few = {name: rebuilt_rows[:, :2] for name, rebuilt_rows in rebuilt.items()}
        row = find_exposed_rows(rows[:, :2], few, guessed=guess[:, :2], rng=rng).get("exposed_row")
        assert row is not None
        found_rows += row[1].value < (row[1].chance or 0.0)
    assert (values <= 8, found_rows <= 8) == (True, True), (values, found_rows)


def test_a_guess_by_class_and_noise_expose_no_row() -> None:
    """Shuffled within a class: rows about its mean are nearer to their own class's rows than to all."""
    seen = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        guess = 9.0 * np.repeat(np.arange(10.0), 10)[:, None] * [1.0, 0.0]
        truth, rebuilt = (guess + rng.standard_normal(guess.shape) for _ in range(2))
        exposed_of_name = find_exposed_rows(truth, {"a": rebuilt}, guessed=guess, rng=rng).get("exposed_row")
        assert exposed_of_name is not None
        seen += exposed_of_name[1].value < (exposed_of_name[1].chance or 0.0)
    assert seen <= 8


def test_attacks_that_agree_do_not_hide_the_one_carrier_that_they_find() -> None:
    rows = np.column_stack([table()[:, :3], np.arange(N) == 7]).astype(float)
    rng = np.random.default_rng(3)
    alike = [(str(k), rows + 0.05 * rng.standard_normal(rows.shape)) for k in range(30)]
    exposed = find_exposed_value(Carriers.of(rows), alike, guessed=[0 * rows], name_of=named)
    assert exposed is not None
    assert (exposed[1].value, exposed[1].n) == (1.0, 1)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_values_found_alike_the_rarer_is_named_whichever_attack_comes_first(order: tuple[int, int]) -> None:
    rows = np.column_stack([np.arange(N) < 12, np.arange(N) >= N - 4]).astype(float)
    tries = [("many", rows * [1, 0]), ("few", rows * [0, 1])]
    chosen = [tries[k] for k in order]
    exposed = find_exposed_value(Carriers.of(rows), chosen, guessed=[rows @ [[-1, 0], [0, -1]]], name_of=named)
    assert exposed is not None
    assert (exposed[0], exposed[1].name, exposed[1].value) == ("few", "carriers of 1 = 1", 1.0)


def test_carriers_counts_ties_in_part_and_asks_for_no_common_value() -> None:
    asked = Carriers.of(np.array([[0.0], [0.0], [0.0], [1.0]]))
    assert asked.values.tolist() == [1.0]
    assert asked.count_found(*asked.rank(np.zeros((4, 1)))).tolist() == [0.25]
    assert Carriers.of(np.random.default_rng(0).standard_normal((50, 2))).counts.size == 0


def test_carriers_of_a_value_between_others_are_the_rows_nearest_to_it() -> None:
    rows = np.array([0.0, 0, 0, 1, 1, 2, 2, 2])[:, None]
    asked = Carriers.of(rows)
    middle = asked.values.tolist().index(1.0)
    above, tied = asked.rank(np.array([9.0, -5, 0.2, 0.8, 1.1, 1.9, 3, 4])[:, None])
    assert np.flatnonzero((above | tied)[:, middle]).tolist() == [3, 4]
    assert (asked.counts.tolist(), asked.values.tolist()) == ([2, 3, 3], [1, 2, 0])  # of equals the largest first
    assert asked.sides[asked.values.argsort()].tolist() == [-1, 0, 1]
    assert Carriers.of(np.arange(6.0)[:, None] % 3).values.tolist() == [2, 0, 1]


def test_the_value_named_is_the_one_of_which_most_is_found_beyond_the_guess() -> None:
    """One that half of the rows carry, all of them found; and one of ten carriers, of which nine are found."""
    truth = np.column_stack([np.arange(100) % 2, np.arange(100) < 10]).astype(float)
    rebuilt = truth.copy()
    rebuilt[[9, 10], 1] = [0.0, 1.0]
    exposed = find_exposed_value(Carriers.of(truth), [("a", rebuilt)], guessed=[0 * truth], name_of=named)
    assert exposed is not None
    assert exposed[1].name == "carriers of 0 = 1"


@pytest.mark.parametrize(("n_values", "asked"), [(2, 1), (20, 20), (21, 0)])
def test_a_column_is_asked_about_if_it_has_few_values(n_values: int, asked: int) -> None:
    rows = np.r_[np.zeros(int(n_values == 2)), np.arange(n_values)][:, None]
    assert Carriers.of(rows).counts.size == asked


def test_of_many_rare_values_the_rarest_500_are_asked_for() -> None:
    rows = np.random.default_rng(0).permuted(np.repeat(np.eye(20), [1, *[3] * 19], axis=0), axis=0)
    many = Carriers.of(np.tile(rows, 30))
    assert many.counts.tolist() == [1] * 30 + [3] * 470


def test_the_column_and_the_row_that_are_rebuilt_best_are_named() -> None:
    rows, rng = table(), np.random.default_rng(2)
    rows[7, :3] = 40.0
    noisy = rows + np.array([1.0, 0.1, 1.0, 1.0, 1.0]) * rng.standard_normal(rows.shape)
    guess = np.broadcast_to(rows.mean(axis=0), rows.shape)
    column = find_exposed_column(rows, [("a", noisy)], guessed=[guess], names=str)
    assert column is not None
    assert column[1].name == "column 1"
    assert column[1].value == pytest.approx(0.1 / rows[:, 1].std(), rel=0.1)
    assert column[1].control == pytest.approx(1.0)
    row = find_exposed_rows(rows, {"a": noisy}, guessed=guess, rng=rng).get("exposed_row")
    assert row is not None
    assert row[1].value < 0.05 < 0.1 < row[1].chance


def test_what_a_guess_has_exactly_is_not_exposed_and_the_unit_does_not_matter() -> None:
    rows, rng = table()[:50, :3], np.random.default_rng(2)
    noisy, guess = rows + 0.3 * rng.standard_normal(rows.shape), np.broadcast_to(rows.mean(axis=0), rows.shape).copy()
    guess[:, 0], noisy[4] = rows[:, 0], rows[4]
    column = find_exposed_column(rows, [("a", noisy)], guessed=[guess], names=str)
    assert column is not None
    assert column[1].name != "column 0"
    guess[4:6] = rows[4:6]
    order = order_by_exposure(rows, noisy, guess).tolist()
    error, size = (np.linalg.norm(rebuilt - rows, axis=1)[np.arange(50)] for rebuilt in (noisy, guess))
    assert order == [*sorted(set(range(50)) - {4, 5}, key=lambda k: error[k] / size[k]), 4, 5]
    assert order_by_exposure(*(2.0**-40 * part for part in (rows, noisy, guess))).tolist() == order
    assert order_by_exposure(rows, noisy, rows).tolist() == list(range(50))  # all are guessed exactly
    assert order_by_exposure(rows, noisy, None).tolist() == sorted(range(50), key=lambda k: error[k])
    exposeds = [
        find_exposed_rows(unit * rows, {"a": unit * noisy}, guessed=unit * guess, rng=np.random.default_rng(0))
        for unit in (1.0, 2.0**-40)
    ]
    assert exposeds[0]["exposed_row"][1].n == 48
    assert [value[1].as_dict() for value in exposeds[0].values()] == [
        value[1].as_dict() for value in exposeds[1].values()
    ]


def test_errors_by_row_say_how_many_are_well_rebuilt() -> None:
    """40 of 200 rows have a tenth of the error of guessing, and the others have three times that error."""
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((200, 400)) + 1.0
    guess = np.broadcast_to(truth.mean(axis=0), truth.shape)
    scale = np.where(np.arange(200) < 40, 0.1, 3.0)[:, None]
    rebuilt = {"weak": truth + 9.0, "strong": truth + scale * rng.standard_normal(truth.shape)}
    exposed = find_exposed_rows(truth, rebuilt, guessed=guess, rng=rng)
    assert {attack for attack, _ in exposed.values()} == {"strong"}
    values = {name: figure.value for name, (_, figure) in exposed.items()}
    assert values["exposed_share"] == 0.2
    expected = {"exposed_percent": 0.1, "exposed_tenth": 0.1, "exposed_half": 3.0}
    assert {name: values[name] for name in expected} == pytest.approx(expected, rel=0.1)
    figure = exposed["exposed_tenth"][1]
    assert figure.value in figure.interval
    assert (figure.control, exposed["exposed_share"][1].control) == (1.0, 0.0)
    assert figure.chance > 1
    edge = {"a": np.array([[3.0, 0], [2.9, 0]])}  # an error of 0.3 is not below it
    far = np.full((2, 2), [10.0, 0])
    assert find_exposed_rows(0 * far, edge, guessed=far, rng=rng)["exposed_share"][1].value == 0.5


@pytest.mark.parametrize(("n", "ranks"), [(9, [4, 1, 7]), (10, [0, 0, 3, 4, 1, 8]), (100, [9, 4, 16, 49, 39, 60])])
def test_a_share_of_rows_is_an_order_statistic_within_its_binomial_interval(n: int, ranks: list[int]) -> None:
    truth = np.zeros((n, 1))
    exposed = find_exposed_rows(truth, {"a": np.arange(n)[:, None]}, guessed=truth + 1, rng=np.random.default_rng(0))
    figures = [exposed[name][1] for name in ("exposed_tenth", "exposed_half") if name in exposed]
    assert [value for figure in figures for value in (figure.value, figure.interval.low, figure.interval.high)] == ranks


def test_values_are_read_by_column_against_the_best_guess() -> None:
    """Three categories in columns of their own, a number of four values, one that is always guessed, one of many values."""
    rng = np.random.default_rng(0)
    kinds, number, rare = rng.integers(0, 3, 500), rng.integers(0, 4, 500), rng.random(500) < 0.01
    truth = np.column_stack([np.eye(3)[kinds], number, rare, rng.standard_normal(500)])
    names = ["kind=a", "kind=b", "kind=c", "number", "rare", "many"]
    noisy = truth + np.array([0.1, 0.1, 0.1, 1.0, 5.0, 0.0]) * rng.standard_normal(truth.shape)
    guess = np.broadcast_to(truth.mean(axis=0), truth.shape)
    given = {"guessed": [guess], "names": names.__getitem__}
    columns_read = find_read_columns(truth, [("a", noisy), ("b", noisy[::-1])], **given)
    attack, figure = columns_read["read_column"]
    assert (attack, figure.name, figure.value) == ("a", "column kind", 1.0)
    assert figure.control == pytest.approx(1 / 3, abs=0.06)
    attack, figure = columns_read["column_accuracy"]
    rounded = 0.5 * 0.3829 + 0.5 * 0.6915  # inner and outer values of four, one standard deviation apart
    assert (attack, figure.value) == ("a", pytest.approx((1 + rounded + 0.46) / 3, abs=0.05))
    assert figure.chance == figure.control == pytest.approx((1 / 3 + 1 / 4 + 0.99) / 3, abs=0.03)
    assert "read_column" not in find_read_columns(truth, [("a", guess)], **given)
    assert find_read_columns(truth[:, 5:], [("a", noisy[:, 5:])], guessed=[guess[:, 5:]], names=str) == {}


def test_the_column_named_is_the_one_of_which_most_is_read_beyond_the_guess() -> None:
    """One of which 90 % is guessed and 96 % read, so 6 of 10 others; and one of which 50 % is guessed and 75 % read."""
    truth = np.column_stack([np.arange(100) < 10, np.arange(100) % 2]).astype(float)
    wrong = np.column_stack([np.arange(100) < 4, np.arange(100) < 25])
    columns_read = find_read_columns(truth, [("a", np.where(wrong, 1 - truth, truth))], guessed=[], names=str)
    assert columns_read["read_column"][1].name == "column 0"
    with_group = np.column_stack([truth, np.zeros(100), np.ones(100)])  # one category of two, in every row
    columns_read = find_read_columns(
        with_group, [("a", with_group)], guessed=[], names=["0", "1", "k=a", "k=b"].__getitem__
    )
    assert columns_read["column_accuracy"][1].chance == pytest.approx((0.9 + 0.5 + 1) / 3)


@pytest.mark.parametrize(("n_rows", "n_columns", "n_asked"), [(9901, 6, 100), (100_000, 2, 20)])
def test_of_many_rows_so_many_values_are_sought_as_a_million_cells_hold_but_at_least_twenty(
    n_rows: int, n_columns: int, n_asked: int
) -> None:
    codes = np.arange(n_rows) % 20
    assert Carriers.of(np.tile(codes[:, None], n_columns).astype(float)).counts.size == n_asked


@pytest.mark.parametrize(("n_rows", "is_found"), [(20, False), (21, True)])
def test_one_carrier_is_found_if_chance_would_find_it_less_often_than_in_one_of_twenty_tables(
    n_rows: int, is_found: bool
) -> None:
    rows = (np.arange(n_rows) == 3)[:, None].astype(float)
    exposed = find_exposed_value(Carriers.of(rows), [("a", rows)], guessed=[0 * rows], name_of=named)
    assert (exposed is not None) == is_found


def test_chance_is_the_best_of_twenty_orders_of_the_rows() -> None:
    rng, rows = np.random.default_rng(0), table()[:50, :3]
    find_exposed_rows(rows, {"a": rows + 1, "b": rows - 2}, guessed=0 * rows, rng=rng)
    assert rng.random() == np.random.default_rng(0).random(20 * 50 + 1)[-1]


def test_guesses_are_exact_up_to_a_billionth_of_the_farthest_one() -> None:
    truth = np.array([[1.0], [1.2e-9], [0.8e-9]])
    exposed = find_exposed_rows(truth, {"a": 3 * truth}, guessed=0 * truth, rng=np.random.default_rng(0))
    assert exposed["exposed_row"][1].n == 2
    rebuilt = truth * [[4.0], [2.0], [1.0]]  # the third row is rebuilt exactly, and was guessed so, too
    assert order_by_exposure(truth, rebuilt, 0 * truth).tolist() == [1, 0, 2]


@pytest.mark.parametrize(("more", "attack"), [(4e-10, "a"), (6e-10, "b")])
def test_of_attacks_that_are_equal_to_nine_digits_the_first_is_named(more: float, attack: str) -> None:
    truth, guess = np.zeros((2, 1)), np.ones((2, 1))
    rebuilt = {"a": np.full((2, 1), 0.5 + more), "b": np.full((2, 1), 0.5)}
    exposed = find_exposed_rows(truth, rebuilt, guessed=guess, rng=np.random.default_rng(0))
    assert exposed["exposed_row"][0] == attack


@pytest.mark.parametrize("n", [99, 100, 200, 1000])
def test_one_row_in_a_hundred_is_told_where_there_are_a_hundred(n: int) -> None:
    """Errors are 0, 1, 2, …, so that the figure is the number of rows of the 1 %, less one; its interval is binomial."""
    truth = np.zeros((n, 1))
    exposed = find_exposed_rows(
        truth, {"a": np.arange(float(n))[:, None]}, guessed=truth + 1, rng=np.random.default_rng(0)
    )
    if n < 100:
        assert "exposed_percent" not in exposed
    else:
        figure = exposed["exposed_percent"][1]
        low, high = binom.interval(0.95, n, 0.01)
        assert (figure.value, figure.interval) == (n // 100 - 1, Interval(max(low - 1, 0), high))
