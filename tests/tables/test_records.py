from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mooring.tables import Records

Refused = Callable[..., None]


def test_names_and_kinds_are_filled_in() -> None:
    records = Records(rows=np.zeros((2, 3), dtype=np.float32))
    assert records.rows.dtype == np.float64
    assert records.feature_names == ("feature 1", "feature 2", "feature 3")
    assert records.feature_kinds == ("number",) * 3
    assert records.label_kind == "none"


@pytest.mark.parametrize(("labels", "kind"), [([0, 1], "classes"), ([True, False], "classes"), ([0.5, 1.0], "number")])
def test_whole_numbers_are_classes_and_floats_are_numbers(labels: list[Any], kind: str) -> None:
    assert Records(rows=np.zeros((2, 1)), labels=np.array(labels)).label_kind == kind


def test_take_keeps_everything_of_a_row_together() -> None:
    numbers = np.arange(6)
    records = Records(
        rows=numbers[:, None].astype(float),
        labels=numbers % 2,
        label_names=("even", "odd"),
        groups=numbers,
        attributes={"place": numbers.astype(str)},
        notes=("a note",),
    )
    for choice in (np.array([4, 1]), numbers == 3):
        taken = records.take(choice)
        expected = taken.rows[:, 0].astype(int)
        assert np.array_equal(taken.labels, expected % 2)
        assert np.array_equal(taken.groups, expected)
        assert np.array_equal(taken.attributes["place"], expected.astype(str))
        assert taken.label_names == ("even", "odd")
        assert taken.notes == ("a note",)
    assert records.take([4, 1]).rows[:, 0].tolist() == [4.0, 1.0]


@pytest.mark.parametrize("indices", [[], [6], [-1], [0.5], [[0]], [True]])
def test_row_numbers_that_are_none_are_refused(indices: list[Any], refused: Refused) -> None:
    records = Records(rows=np.zeros((6, 1)))
    refused(lambda: records.take(indices), "indices", "row numbers from 0 to 5", "")


@pytest.mark.parametrize(
    ("change", "what", "expected", "got"),
    [
        ({"rows": np.zeros(3)}, "rows", "a matrix", "shape (3,)"),
        ({"rows": np.zeros((0, 3))}, "rows", "at least one row", "shape (0, 3)"),
        ({"rows": np.full((4, 2), np.nan)}, "rows", "finite", "NaN or Inf"),
        ({"rows": np.array([[0.0, np.inf]] * 4)}, "rows", "finite", "NaN or Inf"),
        ({"rows": [["secret"]]}, "rows", "a matrix of numbers", "not numbers"),
        ({"labels": [0, 1]}, "labels", "each of the 4 rows", "shape (2,)"),
        ({"labels": ["a"] * 4}, "labels", "whole numbers", "<U1"),
        ({"labels": [0.0, 1.0, 2.0, np.nan]}, "labels", "finite", "NaN or Inf"),
        ({"labels": [0, 1, 2, 0], "label_names": ("a", "b")}, "labels", "from 0 to 1", "out of range"),
        ({"groups": [0, 1]}, "groups", "each of the 4 rows", "shape (2,)"),
        ({"groups": [0.5] * 4}, "groups", "whole numbers", "float64"),
        ({"groups": [0, 1, 2, -1], "group_names": ("a", "b", "c")}, "groups", "from 0 to 2", "out of range"),
        ({"feature_names": ("a",)}, "feature_names", "each of the 2 features", "1 names"),
        ({"image_shape": (2, 2)}, "image_shape", "a product of 2", "(2, 2)"),
        ({"attributes": {"age": np.zeros(3)}}, "attribute 'age'", "each of the 4 rows", "shape (3,)"),
    ],
)
def test_parts_that_do_not_fit_are_refused(
    change: dict[str, Any], what: str, expected: str, got: str, refused: Refused
) -> None:
    refused(lambda: Records(**{"rows": np.zeros((4, 2)), **change}), what, expected, got)
