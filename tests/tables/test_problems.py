"""Everything that does not fit a schema, collected in one pass: kinds, counts, first rows, and never a cell."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.tables import Column, Label, Schema, check_fit, read_encoded

AGE = Column("age", "number", 0, 100)
SEX = Column("sex", "category", categories=("female", "male"))
SCHEMA = Schema((AGE, Column("n", "integer", 1, 9, missing="fill"), SEX), Label("ill", "classes", ("no", "yes")))
GOOD = {"age": "50", "n": "1", "sex": "male", "ill": "yes"}
CELLS = {
    "age": {
        "2,5": "decimal-comma", "1.234,5": "decimal-comma", "1950-01-31": "date", "31.1.50": "date",
        "72 kg": "number-with-unit", "<0.1": "number-with-unit", "none": "not-a-number", "inf": "infinite", "-9": "sentinel",
        "999": "sentinel", "-99": "sentinel", "301": "far-outside", "120": "outside", "?": "missing",
    },
    "n": {"1.5": "not-whole", "0": "sentinel", "20": "far-outside", "10": "outside", "x": "not-a-number"},
    "sex": {"MALE": "letter-case", "2": "code", "mael": "unknown-category", "NA": "missing"},
    "ill": {"Yes": "letter-case", "perhaps": "unknown-category", "": "missing"},
}  # fmt: skip
CASES = [(column, cell, kind) for column, cells in CELLS.items() for cell, kind in cells.items()]
FIT = [("age", "7"), ("n", "9"), ("n", "NA"), ("sex", " female "), ("ill", "no")]


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    names = list(GOOD)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table({name: [row[name] for row in rows] for name in names}), path)
    else:
        lines = [";".join(names), *(";".join(row[name] for name in names) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@given(
    cells=st.lists(st.sampled_from([*CASES, *((*one, "") for one in FIT)]), min_size=1, max_size=30),
    suffix=st.sampled_from([".csv", ".parquet"]),
)
def test_every_cell_is_counted_once_and_the_first_refusal_is_the_first_problem(
    tmp_path_factory: pytest.TempPathFactory, cells: list[tuple[str, str, str]], suffix: str
) -> None:
    path = write(tmp_path_factory.getbasetemp() / f"fit{suffix}", [GOOD | {column: cell} for column, cell, _ in cells])
    expected: dict[tuple[str, str], list[int]] = {}
    for row, (column, _, kind) in enumerate(cells, start=1):
        if kind:
            expected.setdefault((column, kind), []).append(row)
    fit = check_fit(SCHEMA, path)
    found: dict[tuple[str, str], list[int]] = {}
    counts: dict[tuple[str, str], int] = {}
    for one in fit.problems:  # sentinels come one by one
        key = one.column, one.kind.value
        found[key] = sorted([*found.get(key, []), *one.first_rows])
        counts[key] = counts.get(key, 0) + one.n_cells
    assert counts == {key: len(rows) for key, rows in expected.items()}
    assert all(set(rows) <= set(expected[key]) and rows[0] == expected[key][0] for key, rows in found.items())
    assert (fit.n_rows, fit.fits) == (len(cells), not expected)
    if not expected:
        assert sum(fit.class_counts.values()) == len(cells)
        return
    with pytest.raises(InputError) as caught:
        read_encoded(SCHEMA, path)
    row, column = min((rows[0], column) for (column, _), rows in expected.items())
    assert caught.value.what == f"row {row}, column {column!r}"
    n_cells = sum(map(len, expected.values()))
    assert (f" {n_cells} cells of " in caught.value.cure) == (n_cells > 1)


def test_no_cell_is_quoted_and_a_sentinel_of_the_public_list_is_named(tmp_path: Path) -> None:
    cells = ["8642.1357", "8642,1357", "86/42/1357", "8642.1357 kg", "-9", "-9", "999"]
    said = json.dumps(check_fit(SCHEMA, write(tmp_path / "t.csv", [GOOD | {"age": cell} for cell in cells])).as_dict())
    assert not any(part in said for part in ("8642", "1357"))
    assert '\\"-9\\" in missing_words' in said


def test_lines_of_another_length_are_passed_over_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    lines = ["50,1,male,yes"] * 50_000
    for at, line in (
        (0, "2,5,1,male,yes"),
        (1, "x,1,male,yes"),
        (30_000, "1,2"),
        (40_000, "x,1,male,yes"),
        (49_999, "1"),
    ):
        lines[at] = line
    (tmp_path / "t.csv").write_text("age,n,sex,ill\n" + "\n".join(lines) + "\n")
    ragged, age = check_fit(SCHEMA, tmp_path / "t.csv").problems
    assert (ragged.kind, ragged.n_cells, ragged.first_rows) == ("line-length", 3, (1, 30_001, 50_000))
    assert (age.kind, age.first_rows) == ("not-a-number", (2, 40_001))
    (tmp_path / "t.csv").write_text("age,n,sex,ill\n" + "1,2\n" * 50_000)
    assert "not read further" in check_fit(SCHEMA, tmp_path / "t.csv").problems[0].suggestion


def test_columns_that_are_absent_unknown_or_unreadable_are_named_with_the_nearest_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.parquet"
    columns: dict[str, Any] = {"Age": ["1"], "n": [np.array([1])], "sex": ["x"], "ill": ["yes"], "extra": ["1"]}
    pa.parquet.write_table(pa.table(columns), path)
    problems = check_fit(SCHEMA, path).problems
    assert [(one.kind.value, one.column) for one in problems] == [
        ("absent-column", "age"), ("unknown-column", "Age"), ("unknown-column", "extra"), ("unreadable", "n"),
        ("unknown-category", "sex"),
    ]  # fmt: skip
    assert "'Age' to 'age'" in problems[0].suggestion
    (tmp_path / "t.csv").write_text("8642,1357\n1,2\n")  # a first line that may be a record
    assert "8642" not in json.dumps(check_fit(SCHEMA, tmp_path / "t.csv").as_dict())


def test_free_text_and_bytes_that_are_no_text_are_told_apart(tmp_path: Path) -> None:
    rows = "".join(f"50,1,word {k},yes\n" for k in range(100))
    (tmp_path / "t.csv").write_bytes(b"age,n,sex,ill\n50,1,m\xe4le,yes\n" + rows.encode())
    problems = check_fit(SCHEMA, tmp_path / "t.csv").problems
    assert {one.kind.value: one.n_cells for one in problems} == {"encoding": 1, "free-text": 100}
