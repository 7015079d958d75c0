"""Everything that does not fit a schema, collected in one pass: kinds, counts, first rows, and never a cell."""

import json
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.tables import Column, Label, Schema, encoded_batches
from mooring.tables.encoder import check_fit, read_encoded

AGE = Column("age", "number", 0, 100)
SEX = Column("sex", "category", categories=("female", "male"))
SEEN = Column("seen", "date", 0, 3653, day="2020-01-01")
BORN = Column("born", "age", 0, 120, day="2026-01-01", missing="fill", missing_words=("unborn",))
COLUMNS = (AGE, Column("n", "integer", 1, 9, missing="fill"), SEX, SEEN, BORN)
SCHEMA = Schema(COLUMNS, Label("ill", "classes", ("no", "yes")), ids=("id",))
GOOD = {"age": "50", "n": "1", "sex": "male", "seen": "2021-02-03", "born": "1950-01-31", "ill": "yes"}
CELLS = {
    "age": {
        "2,5": "decimal-comma", "1.234,5": "decimal-comma", "1950-01-31": "date", "31.1.50": "date",
        "72 kg": "number-with-unit", "<0.1": "number-with-unit", "none": "not-a-number", "inf": "infinite", "-9": "sentinel",
        "999": "sentinel", "-99": "sentinel", "301": "far-outside", "120": "outside", "?": "missing",
    },
    "n": {"1.5": "not-whole", "0": "sentinel", "20": "far-outside", "10": "outside", "x": "not-a-number",
          "TRUE": "truth-value"},
    "sex": {"-9": "sentinel", "99": "sentinel", "MALE": "letter-case", "2": "code",
             "mael": "unknown-category", "NA": "missing"},
    "seen": {"1900-01-01": "sentinel", "2019-12-31": "outside", "3.2.2021": "date-form", "2021-02-29": "date-form",
             "44230": "not-a-date", "soon": "not-a-date", "": "missing", "1930-01-01 08:00": "far-outside"},
    "born": {"2026-01-02": "outside", "none": "not-a-date"},
    "ill": {"Yes": "letter-case", "True": "truth-value", "false": "truth-value",
            "perhaps": "unknown-category", "": "missing"},
}  # fmt: skip
CASES = [(column, cell, kind) for column, cells in CELLS.items() for cell, kind in cells.items()]
FIT = [
    ("seen", "2021-02-03T10:15:00Z"), ("seen", " 2029-12-31 "), ("born", "unborn"), ("born", "?"), ("age", "7"), ("n", "9"),
    ("n", "NA"), ("sex", " female "), ("ill", "no"),
]  # fmt: skip


def write(path: Path, rows: list[dict[str, str]]) -> Path:
    names = list(GOOD)
    if path.suffix == ".parquet":
        pa.parquet.write_table(pa.table({name: [row[name] for row in rows] for name in names}), path)
    else:
        lines = [";".join(names), *(";".join(row[name] for name in names) for row in rows)]
        path.write_text("\n".join(lines) + "\n")
    return path


@given(
    cells=st.lists(st.sampled_from([*CASES, *((*case, "") for case in FIT)]), min_size=1, max_size=30),
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
    rows_by_problem: dict[tuple[str, str], list[int]] = {}
    counts: dict[tuple[str, str], int] = {}
    for problem in fit.problems:  # sentinels come one by one
        key = problem.column, problem.kind.value
        rows_by_problem[key] = sorted([*rows_by_problem.get(key, []), *problem.first_rows])
        counts[key] = counts.get(key, 0) + problem.n_cells
    assert counts == {key: len(rows) for key, rows in expected.items()}
    assert all(set(rows) <= set(expected[key]) and rows[0] == expected[key][0] for key, rows in rows_by_problem.items())
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
    text = json.dumps(check_fit(SCHEMA, write(tmp_path / "t.csv", [GOOD | {"age": cell} for cell in cells])).as_dict())
    assert not any(part in text for part in ("8642", "1357"))
    assert 'missing_words = [\\"-9\\"]' in text


def test_lines_of_another_length_are_passed_over_and_rows_keep_their_numbers(tmp_path: Path) -> None:
    lines = [f"50{' ' * 200},1,male,yes"] * 6_000  # two blocks of the parser
    for at, line in ((0, "2,5,1,male,yes"), (1, "x,1,male,yes"), (3_000, "1,2"), (5_500, "x,1,male,yes"), (5_999, "1")):
        lines[at] = line
    schema = replace(SCHEMA, columns=COLUMNS[:3])
    (tmp_path / "t.csv").write_text("age,n,sex,ill\n" + "\n".join(lines) + "\n")
    ragged, age = check_fit(schema, tmp_path / "t.csv").problems
    assert (ragged.kind, ragged.n_cells, ragged.first_rows) == ("line-length", 3, (1, 3_001, 6_000))
    assert (age.kind, age.first_rows) == ("not-a-number", (2, 5_501))
    (tmp_path / "t.csv").write_text("age,n,sex,ill\n" + "1,2\n" * 12_000)
    assert "not read further" in check_fit(schema, tmp_path / "t.csv").problems[0].suggestion


def test_columns_that_are_absent_unknown_or_unreadable_are_named_with_the_nearest_and_the_others_are_read(
    tmp_path: Path,
) -> None:
    path, schema = tmp_path / "t.parquet", replace(SCHEMA, columns=COLUMNS[:3])
    columns: dict[str, Any] = {"Age": ["1"], "n": [np.array([1])], "sex": ["x"], "ill": ["yes"], "extra": ["1"]}
    pa.parquet.write_table(pa.table(columns), path)
    problems = check_fit(schema, path).problems
    assert [(problem.kind.value, problem.column) for problem in problems] == [
        ("absent-column", "age"), ("unknown-column", "Age"), ("unknown-column", "extra"), ("unreadable", "n"),
        ("unknown-category", "sex"),
    ]  # fmt: skip
    assert "'Age' to 'age'" in problems[0].suggestion
    (tmp_path / "t.csv").write_text("8642,1357\n1,2\n")  # a first line that may be a record
    assert "8642" not in json.dumps(check_fit(schema, tmp_path / "t.csv").as_dict())


def test_dates_of_text_and_parquet_are_the_same_numbers_and_the_same_records(tmp_path: Path) -> None:
    days = [date(2020, 1, 1), date(2024, 2, 29), None, date(2030, 1, 1)]
    schema = Schema((replace(SEEN, missing="indicate"), replace(BORN, low=-9, name="born")))
    (tmp_path / "t.csv").write_text("seen,born\n" + "".join(f"{day or 'NA'},{day or 'unborn'}\n" for day in days))
    encoded = read_encoded(schema, tmp_path / "t.csv")
    np.testing.assert_allclose(encoded.rows[:, 0], [-1, 1520 / 1826.5 - 1, 0, 1], atol=1e-12)
    assert encoded.rows[:, 1].tolist() == [0, 0, 1, 0]
    np.testing.assert_allclose(
        encoded.rows[:, 2] * 64.5 + 55.5, [2192 / 365.2425, 672 / 365.2425, 55.5, -1461 / 365.2425]
    )
    moments = [day and datetime(day.year, day.month, day.day) for day in days]
    for kind, values in ((pa.date32(), days), (pa.timestamp("us"), moments), (pa.timestamp("ns", "UTC"), moments)):
        pa.parquet.write_table(
            pa.table({name: pa.array(values, kind) for name in ("seen", "born")}), tmp_path / "t.parquet"
        )
        other = read_encoded(schema, tmp_path / "t.parquet")
        assert np.array_equal(other.rows, encoded.rows)
        assert np.array_equal(other.values[:, 0], encoded.values[:, 0])


def test_a_missing_word_of_a_column_counts_there_only_and_leaves_the_record_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,b\n0,0\nnone,5\n")
    a, b = (Column(name, "number", -9, 9, missing="indicate") for name in "ab")
    encoded = read_encoded(Schema((replace(a, missing_words=("0", "none")), b)), tmp_path / "t.csv")
    assert encoded.rows[:, [1, 3]].tolist() == [[1, 0], [1, 0]]
    assert encoded.values[0].tolist() == [0, 0]
    words = Schema((Column("a", "category", categories=("0", "none")), b))
    assert np.array_equal(read_encoded(words, tmp_path / "t.csv").values, encoded.values)


def test_ids_are_read_where_they_are_asked_for_and_are_no_features(tmp_path: Path) -> None:
    schema = Schema((AGE,), ids=("id", "other"))
    (tmp_path / "t.csv").write_bytes(b"id,age\n007,1\nm\xe4,2\n,3\n")
    pa.parquet.write_table(pa.table({"id": [7.0, None], "age": [1.0, 2.0]}), tmp_path / "t.parquet")
    for name, ids in (("t.csv", ["007", "m\ufffd", ""]), ("t.parquet", ["7", ""])):
        (block,) = encoded_batches(schema, tmp_path / name, with_ids=True)
        assert block.ids == {"id": ids}
        assert block.rows.shape == block.values.shape == (len(ids), 1)
        assert read_encoded(schema, tmp_path / name).ids == {}


def test_free_text_and_bytes_that_are_no_text_are_told_apart(tmp_path: Path) -> None:
    schema = replace(SCHEMA, columns=COLUMNS[:3])
    rows = "".join(f"50,1,word {k},yes\n" for k in range(100))
    (tmp_path / "t.csv").write_bytes(b"age,n,sex,ill\n50,1,m\xe4le,yes\n" + rows.encode())
    problems = check_fit(schema, tmp_path / "t.csv").problems
    assert {problem.kind.value: problem.n_cells for problem in problems} == {"encoding": 1, "free-text": 100}
