"""The most exposed value, column and row: found where they are, and not by luck."""

import numpy as np
import pytest

from mooring.metrics import Carriers, find_exposed_column, find_exposed_row, find_exposed_value

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
    found = find_exposed_value(
        Carriers.of(rows), [("a", np.zeros_like(rows)), ("b", noisy)], guessed=[np.zeros_like(rows)], name_of=named
    )
    assert found is not None
    attack, figure = found
    assert (attack, figure.name, figure.value, figure.n) == ("b", "carriers of 3 = 1", 1.0, 3)
    assert figure.chance == figure.control == pytest.approx(3 / N)


def test_rows_that_say_nothing_expose_nobody() -> None:
    rows, seen = table(), 0
    for seed in range(40):
        noise = np.random.default_rng(seed).standard_normal(rows.shape)
        seen += find_exposed_value(Carriers.of(rows), [("a", noise)], guessed=[0 * rows], name_of=named) is not None
    assert seen <= 6  # 2 expected at most; P(more than 6) < 0.01


def test_carriers_counts_ties_in_part_and_asks_for_no_common_value() -> None:
    asked = Carriers.of(np.array([[0.0], [0.0], [0.0], [1.0]]))
    assert asked.values.tolist() == [1.0]
    assert asked.found(np.zeros((4, 1))).tolist() == [0.25]
    assert Carriers.of(np.random.default_rng(0).standard_normal((50, 2))).counts.size == 0


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
    row = find_exposed_row(rows, {"a": noisy}, guessed=guess, rng=rng)
    assert row is not None
    assert row[1].value < 0.05 < 0.1 < row[1].chance
