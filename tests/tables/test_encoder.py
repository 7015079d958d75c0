"""A participant's table as rows of numbers: the same from files and data frames, in any batches, refused without a value."""

import gzip
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError, MooringError, StorageError
from mooring.tables.cells import MISSING_VALUE, as_plain, cell_value, is_number
from mooring.tables.column_encoder import decode_cells
from mooring.tables.encoder import EncodedRows, encode_table, encoded_batches, read_encoded
from mooring.tables.inference import fit_scale
from mooring.tables.problems import ProblemKind
from mooring.tables.schema import Column, Label, Schema

CANARY = "8642.1357"
AGE = Column("age", "number", 0, 100)
VISITS = Column("visits", "integer", -10, 10, missing="indicate", outside="clip")
SEX = Column("sex", "category", categories=("female", "male"), missing="fill")
GRADE = Column("grade", "category", categories=("1", "2", "true"), missing="indicate")


def schema_of(*columns: Column, label: Label | None = None) -> Schema:
    return Schema(columns, label or Label())


SCHEMA = Schema((AGE, VISITS, SEX, GRADE), Label("ill", "classes", ("no", "yes")), ("-9",))
HEADER = "age,visits,sex,grade,ill\n"


@pytest.mark.parametrize(
    ("column", "cells", "words"),
    [
        (AGE, [[0.181], [-3.0], [1.0]], ["59", "0", "100"]),
        (replace(AGE, high=1), [[0.181]], ["0.59"]),
        (VISITS, [[0.62, 0.1], [0.6, 0.9]], ["6", "missing"]),
        (SEX, [[0.2, 0.9], [0.7, 0.6], [0.0, 0.1]], ["male", "female", "missing"]),
        (GRADE, [[0.2, 0.9, 0.1, 0.4], [0.0, 0.6, 0.1, 0.7]], ["2", "missing"]),
        (Column("seen", "date", 0, 10, day="2026-01-01"), [[0.2]], ["2026-01-07"]),
        (Column("born", "age", 0, 100, day="2026-01-01"), [[0.184]], ["59"]),
        (Column("sum", "number", inferred=True, centre=10.0, spread=4.0), [[2.26]], ["19.04"]),
        (Column("kept", "category", missing="indicate", inferred=True), [[0.1], [0.8]], ["there", "missing"]),
    ],
)
def test_cells_are_decoded_to_the_nearest_value_that_a_column_can_have(
    column: Column, cells: list[list[float]], words: list[str]
) -> None:
    assert decode_cells(column, np.array(cells)) == words


@pytest.fixture
def table(tmp_path: Path) -> Callable:
    def write(content: str | bytes, name: str = "data.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refusal(call: Callable, kind: type[MooringError] = InputError) -> Any:
    """The error of a call, which hides no other error: that might quote a value."""
    with pytest.raises(kind) as caught:
        call()
    error = caught.value
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    return error


def test_numbers_scale_categories_open_and_missing_follows_the_rule(table: Callable) -> None:
    encoded = read_encoded(SCHEMA, table(HEADER + "0,-10,female,1,no\n75, 99 , male ,?,yes\n50,NA,,True,no\n"))
    assert encoded.rows.tolist() == [
        [-1, -1, 0, 1, 0, 1, 0, 0, 0],
        [0.5, 1, 0, 0, 1, 0, 0, 0, 1],
        [0, 0, 1, 0, 0, 0, 0, 1, 0],
    ]
    assert encoded.labels.tolist() == [0, 1, 0]
    assert encoded.labels.dtype == np.int64
    assert encoded.values[1].tolist() == [75, 99, cell_value("male"), MISSING_VALUE, cell_value("yes")]
    assert encoded.values[2, 1] == encoded.values[2, 2] == MISSING_VALUE


def test_order_of_columns_separator_spaces_quotes_and_compression_do_not_matter(table: Callable) -> None:
    plain = read_encoded(SCHEMA, table(HEADER + "10,1,male,2,yes\n20,-9,female,1.0,no\n"))
    others = [
        table("ill;grade;sex;visits;age\nyes;2;male;1;10\nno;1;female;-9.0;20\n", "other.csv"),
        table('"ill"\t"grade"\tsex\tvisits\tage\r\n"yes"\t2\tmale \t1\t 10\r\nno\t1\t"female"\t -9\t2e1\r\n', "b.tsv"),
        table(gzip.compress(b"\xef\xbb\xbf" + HEADER.encode() + b"10,1,male,2,yes\n\n20,-9,female,1,no"), "c.csv.gz"),
    ]
    for path in others:
        encoded = read_encoded(SCHEMA, path)
        assert np.array_equal(encoded.rows, plain.rows)
        assert np.array_equal(encoded.values, plain.values)


VALUES = st.fixed_dictionaries(
    {
        "age": st.floats(0, 100),
        "visits": st.none() | st.integers(-20, 20) | st.just(-9),
        "sex": st.none() | st.sampled_from(["female", "male"]),
        "grade": st.none() | st.sampled_from(["1", "2", "true"]),
        "ill": st.sampled_from(["no", "yes"]),
    }
)


def same(encoded: EncodedRows, other: EncodedRows) -> bool:
    return all(
        getattr(encoded, name).tobytes("C") == getattr(other, name).tobytes("C")
        for name in ("rows", "labels", "values")
    )


@given(records=st.lists(VALUES, min_size=1, max_size=30), size=st.integers(1, 31), at=st.sampled_from(["", " ", "?"]))
def test_text_parquet_data_frames_and_any_batches_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], size: int, at: str
) -> None:
    folder = tmp_path_factory.mktemp("t")
    names = HEADER.strip().split(",")
    lines = [",".join(at if record[name] is None else str(record[name]) for name in names) for record in records]
    (folder / "t.csv").write_text(HEADER + "\n".join(lines) + "\n")
    types = {"age": pa.float64(), "visits": pa.int32(), "sex": pa.dictionary(pa.int8(), pa.string())}
    schema = pa.schema([(name, types.get(name, pa.string())) for name in names])
    pa.parquet.write_table(pa.Table.from_pylist(records, schema=schema), folder / "t.parquet")
    whole = read_encoded(SCHEMA, folder / "t.csv")
    frames = (
        pd.DataFrame(records),
        pd.read_parquet(folder / "t.parquet"),
        pl.DataFrame(records, infer_schema_length=None),
    )
    for source in (folder / "t.csv", folder / "t.parquet", *frames):
        assert same(whole, read_encoded(SCHEMA, source))
        parts = list(encoded_batches(SCHEMA, source, rows_at_once=size))
        assert [part.first_row for part in parts] == list(range(1, len(records) + 1, size))
        joined = [np.concatenate([getattr(part, what) for part in parts]) for what in ("rows", "labels", "values")]
        assert same(whole, EncodedRows(joined[0], joined[1], joined[2], 1))


@pytest.mark.parametrize(
    "kind", [pa.int64(), pa.float32(), pa.float64(), pa.uint8(), pa.decimal128(25, 2), pa.string()]
)
def test_numbers_of_parquet_match_categories_written_as_numbers(tmp_path: Path, kind: Any) -> None:
    values = pa.array(["1", "2", None]) if kind == pa.string() else pa.array([1, 2, None], pa.int64()).cast(kind)
    pa.parquet.write_table(pa.table({"grade": values}), tmp_path / "t.parquet")
    assert read_encoded(schema_of(GRADE), tmp_path / "t.parquet").rows.argmax(axis=1).tolist() == [0, 1, 3]


def test_decimals_are_the_numbers_that_their_text_says() -> None:
    """A direct cast of a decimal is off by a rounding in one number of three, and the ledger would not know the rows."""
    words = pa.array([f"{k / 10:.1f}" for k in range(1, 1001)])
    assert as_plain(words.cast(pa.decimal128(12, 1))).equals(words.cast(pa.float64()))


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 0.05, 1.0, 300.0, 4e4, 3e6, 1e9])
@pytest.mark.parametrize("decimals", [0, 3, 5, 30])
def test_floats_of_32_bits_are_the_numbers_that_their_text_says(scale: float, decimals: int) -> None:
    """The numbers have few digits or all; some are halves, whose last digit the text decides, or no numbers at all."""
    rng = np.random.default_rng(0)
    some = np.concatenate([rng.normal(size=3000).round(decimals), rng.integers(2**24, size=3000) / 2.0**20])
    numbers = pa.array(np.append(some * scale, [0.0, -0.0, np.nan]).astype(np.float32), mask=np.arange(6003) == 7)
    read, text = (
        numbers_read.to_numpy(zero_copy_only=False)
        for numbers_read in (as_plain(numbers), numbers.cast(pa.string()).cast("f8"))
    )
    assert np.array_equal(read, text, equal_nan=True)
    assert as_plain(numbers).null_count == 1


def test_truths_match_their_words_and_a_declared_category_goes_before_a_usual_missing_word(tmp_path: Path) -> None:
    pa.parquet.write_table(pa.table({"t": [True, False, None], "n": ["NA", "b", ""]}), tmp_path / "t.parquet")
    truth = Column("t", "category", categories=("False", "True"), missing="fill")
    named = Column("n", "category", categories=("NA", "b"), missing="fill")
    rows = read_encoded(schema_of(truth, named), tmp_path / "t.parquet").rows
    assert rows.tolist() == [[0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 0]]


def test_values_do_not_depend_on_ranges_rules_or_the_order_of_categories(table: Callable) -> None:
    path = table("age,sex\n10,male\n20,female\n")
    other = schema_of(
        replace(AGE, low=-5, outside="clip"), Column("sex", "category", categories=("x", "male", "female"))
    )
    assert np.array_equal(read_encoded(schema_of(AGE, SEX), path).values, read_encoded(other, path).values)


def test_negative_zero_is_zero(table: Callable) -> None:
    encoded = read_encoded(schema_of(VISITS), table("visits\n-0.0\n0\n"))
    assert encoded.values[0].tobytes() == encoded.values[1].tobytes()
    assert encoded.rows[0].tobytes() == encoded.rows[1].tobytes()


BAD = {
    "age": [
        (CANARY, ProblemKind.FAR_OUTSIDE),
        ("x" + CANARY, ProblemKind.NOT_A_NUMBER),
        ("inf", ProblemKind.INFINITE),
        ("", ProblemKind.MISSING),
    ],
    "visits": [
        ("0." + CANARY.replace(".", ""), ProblemKind.NOT_WHOLE),
        ("-Infinity", ProblemKind.INFINITE),
        (CANARY + "y", ProblemKind.NUMBER_WITH_UNIT),
    ],
    "sex": [
        (CANARY, ProblemKind.CODE),
        ("MALE", ProblemKind.LETTER_CASE),
        ("x" + CANARY, ProblemKind.UNKNOWN_CATEGORY),
    ],
    "grade": [("3", ProblemKind.UNKNOWN_CATEGORY)],
    "ill": [(CANARY, ProblemKind.CODE), ("?", ProblemKind.MISSING)],
}


@pytest.mark.parametrize(("column", "value", "kind"), [(c, v, kind) for c, cases in BAD.items() for v, kind in cases])
@pytest.mark.parametrize("later", ["", "x" + CANARY])
@pytest.mark.parametrize("form", ["t.csv", "t.parquet", "frame"])
def test_what_does_not_fit_is_named_by_row_and_column_and_never_by_value(
    tmp_path: Path, column: str, value: str, kind: ProblemKind, later: str, form: str
) -> None:
    names = HEADER.strip().split(",")
    good = ["50", "1", "male", "1", "yes"]
    bad = [value if name == column else fine for name, fine in zip(names, good, strict=True)]
    rows = [*[good] * 6, bad, good, [later or "50", *good[1:]]]
    source: Any = tmp_path / form
    if form == "t.csv":
        source.write_text(HEADER + "\n".join(map(",".join, rows)) + "\n")
    elif form == "t.parquet":
        pa.parquet.write_table(pa.table({name: [row[k] for row in rows] for k, name in enumerate(names)}), source)
    else:  # of several types, as a spreadsheet gives it
        source = pd.DataFrame(
            [[float(cell) if is_number(cell) else cell for cell in row] for row in rows], columns=names
        )
    for size in (1, 4, 100):
        error = refusal(lambda source=source, size=size: list(encoded_batches(SCHEMA, source, rows_at_once=size)))
        assert error.what == f"row 7, column {column!r}"
        assert error.got == kind.got
        assert CANARY not in str(error)
        assert CANARY.replace(".", "") not in str(error)


def test_the_first_offending_row_of_the_file_is_named_whatever_its_column(table: Callable) -> None:
    path = table(HEADER + "1,1,male,1,no\n1,1,male,1,maybe\n900,1,male,1,no\n1,1\n")
    assert refusal(lambda: read_encoded(SCHEMA, path)).what == "row 2, column 'ill'"
    path = table(HEADER + "1,1,male,1,no\n1,1\n900,1,male,1,no\n")
    error = refusal(lambda: read_encoded(SCHEMA, path))
    assert (error.what, error.got) == ("row 2", "2 columns")
    assert "5 columns" in error.expected


def test_a_late_bad_row_of_a_large_file_is_named_by_its_own_number(table: Callable) -> None:
    good = ["50,1,male,1,no"] * 200_000
    good[180_000] = "50,1,male,1,no,6"
    assert refusal(lambda: read_encoded(SCHEMA, table(HEADER + "\n".join(good)))).what == "row 180001"
    good[180_000] = f"{CANARY}?,1,male,1,no"
    good[190_000] = "50,1"
    error = refusal(lambda: read_encoded(SCHEMA, table(HEADER + "\n".join(good))))
    assert error.what == "row 180001, column 'age'"
    assert CANARY not in str(error)
    good[180_000], good[190_000] = "50, NA\t,male,1,no", "50,1,male,1,no"  # no parser's number, but a missing word
    assert read_encoded(SCHEMA, table(HEADER + "\n".join(good))).rows[180_000, 2] == 1.0


def test_columns_must_be_those_of_the_schema(table: Callable) -> None:
    error = refusal(lambda: read_encoded(schema_of(AGE), table("age,weight\n1,2\n")))
    assert "'weight'" in error.got
    assert "--ignore weight" in error.cure
    assert read_encoded(schema_of(AGE), table("age,weight\n1,2\n"), ignore=["weight"]).rows.shape == (1, 1)
    for schema, content, expected, got in (
        (schema_of(AGE, SEX), "agee,sex\n1,male\n", "column 'age'", "'agee'"),
        (schema_of(AGE), "age,b,age\n1,2,3\n", "different names", "columns 1 and 3"),
        (SCHEMA, "age,visits,sex,grade\n1,1,male,1\n", "label column 'ill'", ""),
    ):
        error = refusal(lambda schema=schema, content=content: read_encoded(schema, table(content)))
        assert error.what == "data file"
        assert expected in error.expected
        assert got in error.got
    schema = schema_of(AGE, Column("secret words", "category", categories=("a",)))
    error = refusal(lambda: read_encoded(schema, table("agE,secret word\n4,5\n")))  # a first record is not quoted
    assert "secret word" not in str(error).replace("secret words", "")
    assert "agE" not in str(error)


def test_labels_may_be_required_allowed_or_ignored(table: Callable) -> None:
    schema = schema_of(AGE, label=Label("cost", "number", (), 0, 10))
    bare, full = table("age\n1\n", "a.csv"), table("age,cost\n1,2.5\n", "b.csv")
    assert read_encoded(schema, bare, labels="allow").labels is None
    assert read_encoded(schema, bare, labels="ignore").values.shape == (1, 1)
    assert read_encoded(schema, full, labels="ignore").labels is None
    encoded = read_encoded(schema, full, labels="allow")
    assert encoded.labels.tolist() == [2.5]
    assert encoded.values.tolist() == [[1, 2.5]]
    assert refusal(lambda: read_encoded(schema, table("age,cost\n1,11\n"))).what == "row 1, column 'cost'"


PACKED = gzip.compress(b"age\n" + b"".join(b"%d.5\n" % (k % 99) for k in range(99_000)))


@pytest.mark.parametrize(
    ("name", "content", "got"),
    [
        ("a0.csv", b"", "an empty file"),
        ("a1.csv", b"age\n", "no rows"),
        ("a2.csv", b"age", "no rows"),
        ("a3.csv", b"a\0g\0e\n", "not text"),
        ("a4.csv", b"\xff\xfeage\n", "not text in UTF-8"),
        ("a5.csv.gz", b"no gzip", "damaged"),
        ("a6.parquet", b"no parquet", "damaged"),
        ("a7.xls", b"age\n1\n", "'.xls'"),
        ("a8.csv.gz", PACKED[: len(PACKED) // 2], "damaged"),
        ("a9.csv.gz", PACKED[:-8] + bytes(8), "damaged"),
    ],
)
def test_files_that_are_no_tables_are_refused(name: str, content: bytes, got: str, table: Callable) -> None:
    error = refusal(lambda: read_encoded(schema_of(AGE), table(content, name)))
    assert error.what == "data file"
    assert got in error.got
    assert name.split(".")[0] not in str(error).replace("data file", "")


def test_damaged_parquet_other_types_other_text_and_no_file_are_refused(table: Callable, tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pa.parquet.write_table(pa.table({"age": np.arange(9000) / 90}), path)
    content = bytearray(path.read_bytes())
    content[100:20_000] = bytes(19_900)
    path.write_bytes(bytes(content))
    assert "damaged" in refusal(lambda: read_encoded(schema_of(AGE), path)).got
    pa.parquet.write_table(pa.table({"age": pa.array([0], pa.timestamp("s"))}), path)
    assert refusal(lambda: read_encoded(schema_of(AGE), path)).what == "column 'age'"
    assert "UTF-8" in refusal(lambda: read_encoded(schema_of(SEX), table(b"sex\nmale\nm\xe4le\n"))).got
    assert "not there" in refusal(lambda: read_encoded(schema_of(AGE), tmp_path / "no.csv"), StorageError).reason
    assert "folder" in refusal(lambda: read_encoded(schema_of(AGE), tmp_path), StorageError).reason


def test_a_large_table_streams_in_bounded_memory_and_tells_how_far_it_is(table: Callable) -> None:
    path = table("age\n" + "12.5\n" * 400_000)
    collected: list[tuple[float, float]] = []
    tracemalloc.start()
    n = sum(
        len(batch.rows)
        for batch in encoded_batches(schema_of(AGE), path, rows_at_once=1000, progress=lambda *at: collected.append(at))
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert n == 400_000
    assert peak < 2**20
    shares = [done / total for done, total in collected]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert len(shares) > 1


@pytest.mark.parametrize("edge", [None, -2.0, 3.0, -0.0, np.nan, 3.5])
@pytest.mark.parametrize("missing", ["refuse", "fill"])
def test_plain_numbers_all_at_once_are_the_same_as_column_by_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edge: float | None, missing: Any
) -> None:
    """The quick way for tables of plain numbers gives the same bytes and the same refusals."""
    schema = schema_of(
        Column("a", "number", -2.0, 3.0, missing=missing), Column("b", "number", -1.0, 7.0), label=Label()
    )
    numbers = np.random.default_rng(0).uniform(-1, 3, size=(50, 2))
    if edge is not None:
        numbers[17, 0] = edge
    pa.parquet.write_table(pa.table({"a": numbers[:, 0], "b": numbers[:, 1]}), tmp_path / "rows.parquet")

    def outcome() -> tuple[bytes, bytes] | str:
        try:
            encoded = read_encoded(schema, tmp_path / "rows.parquet")
        except InputError as problem:
            return str(problem)
        return encoded.rows.tobytes(), encoded.values.tobytes()

    quick = outcome()
    monkeypatch.setattr("mooring.tables.encoder.encode_plain", lambda *_: set())
    assert outcome() == quick
    assert isinstance(quick, str) == (edge == 3.5 or (edge is not None and np.isnan(edge) and missing == "refuse"))


def test_an_inferred_column_is_scaled_and_filled_as_it_says_and_refuses_nothing() -> None:
    number = Column("a", "number", -np.inf, np.inf, (), "indicate", inferred=True, centre=2.0, spread=4.0, fill=10.0)
    word = Column("b", "category", categories=("missing", "x"), missing="fill", inferred=True, fill="missing")
    table = pa.table({"a": [6.0, None, -98.0], "b": ["x", None, "y"]})
    assert encode_table(schema_of(number, word), table).tolist() == [[1, 0, 0, 1], [2, 1, 1, 0], [-25, 0, 0, 0]]
    unseen = pa.table({"b": [f"word {k}" for k in range(60)]})
    assert not encode_table(schema_of(word), unseen).any()


def test_columns_without_spread_or_without_values_do_not_break_a_fitted_scale() -> None:
    columns = tuple(Column(name, "number", -np.inf, np.inf, missing="fill", inferred=True) for name in "abc")
    rows = {"a": [0.1, 0.1, 0.1, None], "b": pa.nulls(4, pa.float64()), "c": [4.0, None, 8.0, 9.0]}
    fitted = fit_scale(Schema(columns), pa.table(rows))
    others = pa.table({"a": [2.1, None], "b": [50.0, None], "c": [None, 29 / 4]})
    expected = [[2.0, 0.0, 0.75 / np.sqrt(3.6875)], [0.0, 0.0, 0.0]]
    np.testing.assert_allclose(encode_table(fitted, others), expected, atol=1e-12)


CELLS = st.one_of(
    st.sampled_from(
        ["1", "1.0", " 1", "-0", "0.0", "Yes", "yes ", "NO", "?", "NA", "", "inf", "1e400", "unknown", "7"]
    ),
    st.integers(-99, 99).map(str),
    st.floats(-99, 99, allow_nan=False).map(repr),
)


@given(cells=st.lists(CELLS, min_size=1, max_size=12), missing=st.lists(st.sampled_from(["7", "unknown", "yes"])))
def test_the_values_of_cells_do_not_depend_on_what_a_study_declares(
    cells: list[str], missing: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As a category of every word there is, and as a number where all are: the same values, those of `cell_value`."""
    path = tmp_path_factory.getbasetemp() / "cells.csv"
    path.write_text("x,y\n" + "".join(f"{cell},0\n" for cell in cells))
    words = tuple(dict.fromkeys(cell.strip() for cell in cells if cell.strip())) or ("a",)
    columns = [Column("x", "category", categories=words, missing="fill")]
    if all(is_number(cell.strip()) and math.isfinite(float(cell)) for cell in cells):
        columns += [
            Column("x", "number", -100, 100, missing="fill"),
            Column("x", "number", 0, 1, outside="clip", missing="fill"),
        ]
    for column in columns:
        schema = Schema((column, Column("y", "integer", 0, 1)), missing_words=tuple(missing))
        values_read = read_encoded(schema, path).values[:, 0]
        assert values_read.tolist() == [cell_value(cell) for cell in cells]


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e400", "-nan", "nan(1)", " 1.50 ", "1e0"])
def test_a_row_is_read_alike_whatever_rows_are_beside_it(cell: str, table: Callable) -> None:
    """Beside a cell that is no number, the slower pass reads a text file; which rows of a person count stays the same."""
    schema = Schema((Column("x", "number", 0, 1, missing="indicate"), Column("y", "integer", 0, 1)))
    (alone,) = encoded_batches(schema, table(f"x,y\n{cell},0\n"), unfit="adapt")
    for beside in ("high,0", "1,0,0", "\xe9,0"):
        (both,) = encoded_batches(schema, table(f"x,y\n{cell},0\n{beside}\n"), unfit="adapt")
        assert both.rows[0].tolist() == alone.rows[0].tolist()
        assert both.values[0].tolist() == alone.values[0].tolist()


def test_names_of_a_wide_table_are_gathered_once_and_not_once_a_column(
    table: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    gathered: list[int] = []
    monkeypatch.setattr(
        Schema, "names", property(lambda self: gathered.append(1) or frozenset(column.name for column in self.columns))
    )
    names = [f"x{k}" for k in range(50)]
    wide = schema_of(*(Column(name, "number", 0, 1) for name in names))
    read_encoded(wide, table(",".join(names) + "\n" + ",".join("1" * 50) + "\n"))
    assert len(gathered) < 5
