"""Data frames of pandas and polars in place of files: the same numbers and fingerprints, and errors with a cure."""

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from mooring.errors import InputError
from mooring.protocol.crypto.keys import Secret
from mooring.protocol.designer.draft import draft_study
from mooring.protocol.storage.fingerprints import Fingerprinter
from mooring.tables import Column, Label, Schema, encoded_batches, read_records
from mooring.tables.encoder import check_fit, read_encoded
from tests.raising import raising

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("visits", "integer", 0, 10, missing="indicate"),
        Column("sex", "category", categories=("female", "male"), missing="fill"),
        Column("smoker", "category", categories=("false", "true"), missing="fill"),
        Column("born", "age", 0, 120, day="2026-01-01", missing="fill"),
        Column("seen", "date", 0, 4000, day="2020-01-01"),
    ),
    Label("ill", "classes", ("0", "1")),
    ids=("patient",),
)
DAYS = [dt.date(1950, 2, 3), None, dt.date(1999, 12, 31)]
TIMES = [dt.datetime(2024, 1, 2, 10, 30), dt.datetime(2024, 1, 2), dt.datetime(2025, 5, 6, 7, 8, 9)]
CELLS: dict[str, list[Any]] = {
    "patient": [7, 2**60 + 1, 9],
    "age": [50.5, 0.1, 99.0],
    "visits": [3, None, 0],
    "sex": ["male", "female", None],
    "smoker": [True, None, False],
    "born": DAYS,
    "seen": TIMES,
    "ill": [0, 1, 1],
}
TEXT = """\
patient,age,visits,sex,smoker,born,seen,ill
7,50.5,3,male,True,1950-02-03,2024-01-02 10:30:00,0
1152921504606846977,0.1,,female,,,2024-01-02,1
9,99.0,0.0,,False,1999-12-31,2025-05-06 07:08:09,1
"""


def forms(folder: Path) -> dict[str, Any]:
    (folder / "t.csv").write_text(TEXT)
    pa.parquet.write_table(pa.table(CELLS), folder / "t.parquet")
    frame = pd.DataFrame(CELLS)
    frame.astype({"age": "float32"}).to_parquet(folder / "single.parquet")
    return {
        "csv": folder / "t.csv",
        "parquet": str(folder / "t.parquet"),
        "pandas": frame,  # whole numbers with a gap as floats, truths with a gap as objects
        "parquet, float32": folder / "single.parquet",
        "pandas, float32": frame.astype({"age": "float32", "visits": "Float32"}),
        "pandas, float16": frame.astype({"age": "float16", "visits": "float16"}),
        "pandas, indexed": frame.set_index(pd.Index([3, 3, 1], name="age")),
        "pandas, nullable": frame.convert_dtypes(),
        "pandas, Arrow": pa.table(CELLS).to_pandas(types_mapper=pd.ArrowDtype),
        "pandas, categorical": frame.astype({"sex": "category", "ill": "category", "visits": "category"}),
        "pandas, objects": frame.astype(object),
        "pandas, several types": frame.astype(object).assign(
            age=["50.5", np.float32(0.1), Decimal(99)], visits=[3, " ", "0"], smoker=[np.True_, " ", False]
        ),
        "polars": pl.DataFrame(CELLS),
        "polars, categorical": pl.DataFrame(CELLS).with_columns(pl.col("sex").cast(pl.Categorical)),
        "Arrow": pa.table(CELLS),
    }


def test_the_same_cells_have_the_same_numbers_fingerprints_and_ids_in_every_form(tmp_path: Path) -> None:
    def read(source: Any) -> tuple[bytes, ...]:
        (block,) = encoded_batches(SCHEMA, source, with_ids=True)
        prints = Fingerprinter(Secret(bytes(32)), [*SCHEMA.names]).add(block.values)
        return block.rows.tobytes(), block.labels.tobytes(), prints.tobytes(), str(block.ids).encode()

    given = forms(tmp_path)
    for name, source in given.items():
        assert read(source) == read(given["csv"]), name
        assert check_fit(SCHEMA, source).class_counts == {"0": 1, "1": 2}, name
    numbers = Schema(SCHEMA.columns[:1], Label("", "none"))  # read all at once
    assert read_encoded(numbers, given["pandas, float32"][["age"]]).values.tolist() == [[50.5], [0.1], [99.0]]


BERLIN, UTC, ZONELESS = (pd.Timestamp("2024-01-02 23:30", tz=zone) for zone in ("Europe/Berlin", "UTC", None))
ODD_TIMES: dict[str, Any] = {
    "a zone": pd.Series([BERLIN, None, BERLIN.normalize()]),
    "UTC": pd.Series([UTC, None, UTC.normalize()]),
    "several zones": pd.Series([UTC.to_pydatetime(), BERLIN.to_pydatetime(), None], dtype=object),
    "none, then one": pd.Series([ZONELESS, BERLIN, pd.NaT], dtype=object),
    "one, then none": pd.Series([BERLIN, ZONELESS], dtype=object),
    "a day, then a time": pd.Series([ZONELESS.date(), ZONELESS], dtype=object),
}


@pytest.mark.parametrize("times", ODD_TIMES.values(), ids=ODD_TIMES)
def test_times_are_those_of_the_same_csv(times: "pd.Series[Any]", tmp_path: Path) -> None:
    schema = Schema((Column("seen", "date", 0, 4000, day="2020-01-01", missing="fill"),), Label("", "none"))
    sources: list[Any] = [times.to_frame("seen"), tmp_path / "t.csv"]
    sources[0].to_csv(sources[1], index=False)
    if times.dtype != object:
        sources += [tmp_path / "t.parquet", pl.from_pandas(sources[0])]
        sources[0].to_parquet(sources[2])
    encodeds = [read_encoded(schema, source) for source in sources]
    assert len({(encoded.rows.tobytes(), encoded.values.tobytes()) for encoded in encodeds}) == 1


def test_an_audit_takes_a_data_frame_for_what_the_same_parquet_is(tmp_path: Path) -> None:
    cells = {"a": [1.5, None, 2.5, 3.5], "b": ["x", "y", None, "x"], "c": [True, False, True, None], "y": [0, 1, 1, 0]}
    pa.parquet.write_table(pa.table(cells), tmp_path / "t.parquet")
    from_file = read_records(tmp_path / "t.parquet", label="y")
    for frame in (
        pd.DataFrame(cells),
        pl.DataFrame(cells),
        pl.DataFrame(cells).with_columns(pl.col("b").cast(pl.Enum("xy"))),
    ):
        records = read_records(frame, label="y")
        assert np.array_equal(records.rows, from_file.rows)
        assert (records.feature_names, records.label_names) == (from_file.feature_names, from_file.label_names)
    odd = pd.DataFrame(cells).assign(d=1j, e=pd.period_range("2020", periods=4, freq="Y"))
    assert [note.partition(":")[0] for note in read_records(odd, label="y").notes] == [
        "column 'd' is left out",
        "column 'e' is left out",
    ]
    with raising(InputError, "size", got="8"):
        read_records(odd, size=8)


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": [50, 60], "ill": ["no", "yes"]} | columns)


BAD: dict[str, tuple[Any, str, str, str]] = {
    "a word": (frame(age=[50, "x"]), "row 2, column 'age'", "text", ""),
    "truths": (frame(age=[True, False]), "row 1, column 'age'", "true or false", ""),
    "dates": (frame(age=TIMES[:2]), "column 'age'", "timestamp", ""),
    "complex numbers": (frame(age=[1j, 2]), "column 'age'", "complex128", ""),
    "objects": (frame(age=[object(), "x"]), "column 'age'", "object", ""),
    "Python objects": (pl.DataFrame({"age": [{1}], "ill": ["no"]}), "column 'age'", "fixed_size_binary", ""),
    "no text": (frame(age=["\ud800", 1]), "column 'age'", "object", ""),
    "a huge number": (frame(age=[10**30, 1]), "row 1, column 'age'", "outside", ""),
    "no rows": (frame().head(0), "data file", "no rows", ""),
    "a column that is absent": (frame().drop(columns="age"), "data file", "without 'age'", ""),
    "a column too many": (frame(weight=1), "data file", "'weight'", "--ignore weight"),
    "one name twice": (
        frame(x=[1, 2]).set_axis(["age", "ill", "age"], axis=1),
        "data file",
        "columns 1 and 3",
        "Rename",
    ),
    "one name twice in Arrow": (pa.table([[1], [2]], names=["age", "age"]), "data file", "columns 1 and 2", "Rename"),
    "levels": (frame().set_axis([("age", "now"), ("ill", "now")], axis=1), "data", "several levels", "join"),
    "numbers as names": (frame().set_axis([0, 1], axis=1), "data", "not text", "map(str)"),
    "a lazy frame": (pl.LazyFrame({"age": [50], "ill": ["no"]}), "data", "lazy frame", "collect()"),
    "a series": (pd.Series([50, 60]), "data", "Series", "pandas or polars"),
    "an array": (np.zeros((2, 2)), "data", "ndarray", "pandas or polars"),
}


@pytest.mark.parametrize(("data", "what", "got", "cure"), BAD.values(), ids=BAD)
def test_bad_data_frames_are_refused_with_a_cure(data: Any, what: str, got: str, cure: str) -> None:
    schema = Schema((Column("age", "number", 0, 100),), Label("ill", "classes", ("no", "yes")))
    with raising(InputError, what, got=got, cure=cure):
        read_encoded(schema, data)


def test_what_is_left_out_may_be_of_any_type_and_a_draft_knows_the_types() -> None:
    schema = Schema((Column("age", "number", 0, 100),), Label("ill", "classes", ("no", "yes")))
    odd = frame(note=[{}, object()], seen=TIMES[:2], comment=["a", "b"])
    assert read_encoded(schema, odd, ignore=["note", "seen", "comment"]).rows.tolist() == [[0.0], [0.2]]
    problems = {problem.column: problem.kind.name for problem in check_fit(schema, odd.assign(age="x")).problems}
    assert problems.keys() == {"age", "note", "seen", "comment"}
    for drafted in (draft_study(odd, ignore=["note"]), draft_study(pl.from_pandas(odd.drop(columns="note")))):
        assert 'kind = "date"' in drafted
        assert "comment" not in drafted  # free text, by its name


def test_a_notebook_is_shown_what_does_not_fit_with_text_escaped() -> None:
    schema = Schema((Column("age", "number", 0, 100),), Label("ill", "classes", ("no", "yes")))
    shown = check_fit(schema, frame(**{"<script>": 1}, age=[50, "x"]))._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "1 cell, row 2" in shown
