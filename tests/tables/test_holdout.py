from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mooring.errors import InputError
from mooring.tables import Column, Records, read_records
from mooring.tables.records import hold_out
from tests.raising import raising

Refused = Callable[..., None]


@pytest.fixture
def records() -> Records:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 3, 30)
    rows = np.column_stack([rng.standard_normal(30), np.eye(3)[words], rng.standard_normal(30), np.arange(30) % 2])
    return Records(
        rows=rows,
        labels=np.arange(30) % 2,
        feature_names=("age", "town=a", "town=b", "town=c", "town size", "smoker"),
        columns=(
            Column("age", "number", -9, 9),
            Column("town", "category", categories=("a", "b", "c")),
            Column("town size", "number", 2, 6),
            Column("smoker", "integer", 0, 1),
        ),
        attributes={"sex": np.array(["f", "m", "f"] * 10)},
    )


def test_a_column_of_words_goes_with_all_its_features(records: Records) -> None:
    rest, values, kind = hold_out(records, "town")
    assert rest.feature_names == ("age", "town size", "smoker")
    assert rest.feature_kinds == ("number", "number", "integer")
    assert kind == "category"
    assert values.tolist() == records.rows[:, 1:4].argmax(axis=1).tolist()
    np.testing.assert_array_equal(rest.rows, records.rows[:, [0, 4, 5]])
    assert rest.feature_scales == ((0.0, 9.0), (4.0, 2.0), (0.5, 0.5))
    assert rest.labels.tolist() == (np.arange(30) % 2).tolist()


def test_numbers_numbers_of_few_values_and_what_the_file_tells_besides(records: Records) -> None:
    before = records.rows.copy()
    for name, kind, values, n_features in (
        ("age", "number", before[:, 0], 5),
        ("smoker", "category", np.arange(30) % 2, 5),
        ("sex", "category", [0, 1, 0] * 10, 6),
    ):
        rest, held_out, found_kind = hold_out(records, name)
        assert (found_kind, rest.n_features) == (kind, n_features)
        np.testing.assert_array_equal(held_out, values)
    assert rest is records
    np.testing.assert_array_equal(records.rows, before)
    assert records.n_features == 6


def test_unknown_and_only_columns_are_refused(records: Records, refused: Refused) -> None:
    refused(lambda: hold_out(records, "weight"), "attribute", "6 columns", "'weight'")
    refused(lambda: hold_out(records, "tow"), "attribute", "6 columns", "'tow'")
    only = Records(rows=np.eye(3), feature_names=("town=a", "town=b", "town=c"))
    with raising(InputError, "attribute"):
        hold_out(only, "town")


def test_a_column_as_it_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    ages = [40 + k if k % 5 else "" for k in range(30)]
    path.write_text("age,smoker,ill\n" + "".join(f"{ages[k]},{'yes' if k % 3 else 'no'},{k % 2}\n" for k in range(30)))
    records = read_records(path, label="ill")
    rest, values, kind = hold_out(records, "smoker")
    assert rest.feature_names == ("age", "age: missing")
    for left in (records, rest, hold_out(records, "age")[0]):  # of the age stays whether it is missing
        assert tuple(name for column in left.columns for name in column.feature_names) == left.feature_names
    assert kind == "category"
    assert values.tolist() == [int(k % 3 > 0) for k in range(30)]
