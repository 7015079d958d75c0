"""Which rows of the general total are read off because they alone have a level, and how candidates are scored by them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mooring.attacks import DoesNotApply, LabelledFeatures
from mooring.attacks.sums.level_of_one import _is_one_row, _read_rows, level_of_one
from mooring.mechanisms.sums.general.levels import Levels
from mooring.typing import Matrix

RNG = np.random.default_rng(0)
AGE = Levels("age", "number", ("0", "10", "20", "30"), nodes=(0.0, 10.0, 20.0, 30.0), high=30.0)
WITH_MISSING = Levels("age", "number", ("0", "15", "30", "missing"), (0.0, 15.0, 30.0), high=30.0, has_missing=True)
WARD, SITE = Levels("ward", "category", ("a", "b", "c")), Levels("site", "category", ("d", "e"))
COLUMNS = (AGE, WARD, SITE)


def row(nodes: Sequence[float], ward: int, site: int) -> Matrix:
    """The weights of a row on four nodes, and on the words of two columns."""
    return np.concatenate([nodes, np.eye(3)[ward], np.eye(2)[site]])


MANY = np.array([row(nodes, w, s) for nodes in ([1, 0, 0, 0], [0.5, 0.5, 0, 0]) for w in (0, 1) for s in (0, 1)])


def total_of(*rows: Matrix, asked: Matrix = MANY) -> Any:
    """A view of the exact total of some rows beside `MANY`, which have every level but the last two nodes and ward c."""
    weights = np.vstack([MANY, *rows])
    blocks = [slice(0, 4), slice(4, 7), slice(7, 9)]
    cells = weights.T @ weights
    for block in blocks:
        cells[block, block] = 0.0
    return SimpleNamespace(
        require_exact=lambda: None,
        layout=SimpleNamespace(workload=SimpleNamespace(columns=COLUMNS, n_levels=9)),
        list_blocks=lambda: blocks,
        counts=weights.sum(axis=0),
        cells=cells,
        candidates=LabelledFeatures(np.hstack([asked, np.ones((len(asked), 1))]), np.zeros((len(asked), 0))),
    )


@pytest.mark.parametrize(
    ("nodes", "alone"),
    [([0, 1, 0, 0], []), ([0, 0.6, 0.4, 0], [2]), ([0, 0, 0.02, 0.98], [2, 3]), ([0, 0, 1, 0], []), ([0, 0, 0, 1], [])],
)
def test_the_only_row_with_a_word_or_a_node_is_read_off(nodes: list[float], alone: list[int]) -> None:
    """Its word tells all of the row; a node that has a part of its weight alone tells this part and the words."""
    lone = row(nodes, 2, 1)
    rows, known = _read_rows(total_of(lone))
    whole = known.all(axis=1)
    np.testing.assert_allclose(rows[whole], [lone], atol=1e-12)
    assert sorted(int(np.flatnonzero(part[:4])[0]) for part in known[~whole]) == alone
    assert (known[~whole].sum(axis=1) == 6).all()
    np.testing.assert_allclose(rows[~whole] * known[~whole], lone * known[~whole], atol=1e-12)


@pytest.mark.parametrize(
    ("first", "second", "n_read", "is_known"),
    [
        (0.01, 0.0, 0, None),  # so small a weight is read too inexactly
        (0.011, 0.0, 1, False),
        (1 - 1.1e-6, 0.0, 1, False),
        (1 - 0.9e-6, 0.0, 1, True),
        (0.5, 0.5 + 0.9e-6, 1, True),  # two rows that are equal in all other columns look like one
        (0.5, 0.5 + 1.1e-6, 0, None),
        (0.5, 0.6, 0, None),
    ],
)
def test_the_weight_on_a_node_is_that_of_one_row(
    first: float, second: float, n_read: int, is_known: bool | None
) -> None:
    two = [row([0, 1 - weight, weight, 0], 1, 1) for weight in (first, second)]
    rows, known = _read_rows(total_of(*two))
    assert rows.shape == known.shape == (n_read, 9)
    assert [bool(part.all()) for part in known] == [is_known] * n_read


def test_a_node_of_two_rows_that_differ_in_a_word_discloses_neither() -> None:
    view = total_of(row([0, 0.5, 0.5, 0], 0, 1), row([0, 0.5, 0.5, 0], 1, 1))
    assert len(_read_rows(view)[0]) == 0
    with pytest.raises(DoesNotApply):
        level_of_one(view, rng=RNG)


def test_a_row_that_two_levels_disclose_is_read_once_without_the_rounding_of_sums() -> None:
    view = total_of(lone := row([0, 0, 0, 1], 2, 1))
    view.cells[6, 3] += 2e-5
    view.cells[3, [4, 5]] += 5e-7
    rows, known = _read_rows(view)
    assert rows.shape == (1, 9)
    assert known.all()
    assert (rows[0] == 0).tolist() == (lone == 0).tolist()


@pytest.mark.parametrize(
    ("levels", "weights", "is_one"),
    [
        (WARD, [0, 1, 0], True),
        (WARD, [0, 0, 0], True),  # a word that the study does not declare
        (WARD, [0.5, 0.5, 0], False),
        (WARD, [0, 1.1, 0], False),
        (WARD, [-0.9e-6, 1, 0], True),
        (WARD, [-1.1e-6, 1, 0], False),
        (WARD, [1.1e-6, 1, 0], False),
        (AGE, [0, 1, 0, 0], True),
        (AGE, [0.3, 0.7, 0, 0], True),
        (AGE, [0, 0, 0.3, 0.7], True),
        (AGE, [0.3, 0, 0.7, 0], False),
        (AGE, [0, 0.3, 0.3, 0.4], False),
        (AGE, [0, 0.3, 0.6, 0], False),
        (AGE, [0, 0.5, 0.50009, 0], True),
        (AGE, [0, 0.5, 0.50011, 0], False),
        (AGE, [0, 0.5, 0.49989, 0], False),
        (WITH_MISSING, [0, 0.3, 0.7, 0], True),
        (WITH_MISSING, [0, 0, 0, 1], True),
        (WITH_MISSING, [0, 0, 0.3, 0.7], False),  # a missing value is no neighbour of the last node
    ],
)
def test_weights_of_one_row_are_on_one_level_or_two_neighbouring_nodes(
    levels: Levels, weights: list[float], is_one: bool
) -> None:
    assert _is_one_row(levels, np.array(weights, dtype=float)) == is_one


@pytest.mark.parametrize("ward", [1, 2])
def test_candidates_are_scored_by_their_distance_in_what_is_known_of_the_nearest_row(ward: int) -> None:
    """With a word of its own all levels of the row are known; without, of the first column only one node is."""
    lone = row([0, 0, 0.4, 0.6] if ward == 2 else [0, 0.6, 0.4, 0], ward, 1)
    asked = np.vstack([lone, row([0, 0, 1, 0], ward, 1), row([0.25, 0.35, 0.4, 0], 0, 1), MANY])
    scores = level_of_one(total_of(lone, asked=asked), rng=RNG).scores
    masks = [np.arange(9) == 2, np.arange(9) == 3, np.arange(9) < 4][: 1 if ward == 1 else 3]
    squares = (asked - lone) ** 2
    expected = [squares[:, mask].sum(axis=1) + squares[:, 4:].sum(axis=1) for mask in masks]
    np.testing.assert_allclose(scores, -np.min(expected, axis=0), atol=1e-12)
