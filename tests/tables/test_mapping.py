"""A site's site_table table is read by its mapping as the study's table would be."""

from __future__ import annotations

import gzip
import io
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.tables import (
    Column,
    ColumnMapping,
    Label,
    MappedTable,
    Schema,
    TableMapping,
    encoded_batches,
    read_mapping,
)
from mooring.tables.encoder import check_fit, read_encoded
from mooring.tables.mapping import declare_mapping
from mooring.tables.problems import ProblemKind
from mooring.tables.suggestion import render_mapping, suggest_mapping
from mooring.tables.table_records import read_records
from mooring.tables.text_encodings import ENCODINGS, Recoded, decode_text, recognise_encoding

SCHEMA = Schema(
    (
        Column("age", "number", 0, 100),
        Column("gender", "category", categories=("female", "male", "other"), missing="fill"),
        Column("seen", "date", 0, 10_000, day="2000-01-01", missing="fill"),
    ),
    Label("ill", "classes", ("no", "yes")),
)
PLAIN = "age,gender,seen,ill\n50.5,female,2020-01-31,no\n70.25,male,,yes\n75,,2021-02-05,no\n1,other,2021-12-31,yes\n"
OWN = "alter|sex|seen|ill|note\n50,5|F|31.01.2020|no|x\n70,25|M|-9|yes|x\n75|?|05.02.2021|no|\n1|X|31.12.2021|yes|\n"
MAPPING = TableMapping(
    separator="|",
    decimal=",",
    missing_words=("-9",),
    ignore=("note",),
    columns={
        "age": ColumnMapping(source="alter"),
        "gender": ColumnMapping(source="sex", words={"F": "female", "M": "male"}, other="other"),
        "seen": ColumnMapping(date_format="%d.%m.%Y"),
    },
)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    path = tmp_path / "plain.csv"
    path.write_text(PLAIN, encoding="utf-8")
    return path


@pytest.fixture
def site_table(tmp_path: Path) -> Path:
    path = tmp_path / "own.csv"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["text", "parquet", "frame"])
def test_a_mapped_table_is_encoded_as_the_table_that_the_study_declares(
    plain: Path, site_table: Path, tmp_path: Path, form: str
) -> None:
    frame = pd.read_csv(site_table, sep="|")
    frame.to_parquet(tmp_path / "own.parquet")
    source = {"text": site_table, "parquet": tmp_path / "own.parquet", "frame": frame}[form]
    expected = read_encoded(SCHEMA, plain)
    mapped = read_encoded(SCHEMA, MappedTable(source, MAPPING.fit_to(SCHEMA)))
    np.testing.assert_array_equal(mapped.rows, expected.rows)
    np.testing.assert_array_equal(mapped.labels, expected.labels)
    age, _, seen, _ = range(4)
    np.testing.assert_array_equal(mapped.values[:, age], expected.values[:, age])  # a number is itself however written
    np.testing.assert_array_equal(mapped.values[[0, 2, 3], seen], expected.values[[0, 2, 3], seen])


def test_cells_that_no_rule_fits_are_refused_by_row_and_column(site_table: Path) -> None:
    site_table.write_text(OWN.replace("31.01.2020", "31.02.2020").replace("1|X", "1,5,5|X"), encoding="utf-8")
    problems = check_fit(SCHEMA, MappedTable(site_table, MAPPING.fit_to(SCHEMA))).problems
    assert {(problem.kind, problem.column, problem.first_rows) for problem in problems} == {
        (ProblemKind.DATE_FORM, "seen", (1,)),  # no day of the calendar, and never the third of March
        (ProblemKind.NOT_A_NUMBER, "age", (4,)),
    }


def test_declared_words_stay_as_they_are_beside_other(site_table: Path) -> None:
    site_table.write_text("age,gender,seen,ill\n5,male,,no\n5,M,,no\n5,unheard of,,no\n5,,,no\n", encoding="utf-8")
    mapping = TableMapping(columns={"gender": ColumnMapping(words={"M": "male"}, other="other")}).fit_to(SCHEMA)
    (encoded,) = encoded_batches(SCHEMA, MappedTable(site_table, mapping))
    assert encoded.rows[:, 1:4].tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]


def test_text_that_is_not_utf8_is_reported_as_it_is_without_a_mapping(site_table: Path) -> None:
    site_table.write_bytes(OWN.replace("|M|", "|\xe9|").encode("latin-1"))
    problems = check_fit(SCHEMA, MappedTable(site_table, MAPPING.fit_to(SCHEMA))).problems
    assert ProblemKind.ENCODING in {problem.kind for problem in problems if problem.column == "gender"}


@pytest.mark.parametrize(
    "row", ["5|\xe9|01.02.2020|no|", "\xe9|F|01.02.2020|no|", "5|F|\xe9|no|", "5|F||\xe9|", "5|\x81", "5|F"]
)
@pytest.mark.parametrize("encoding", ["", "windows-1252"])
def test_one_row_that_cannot_be_read_changes_how_no_other_row_is_read(
    row: str, encoding: str, site_table: Path
) -> None:
    """A guarantee for one row would not hold if a single cell kept the words of all others from being translated."""
    table = MappedTable(site_table, replace(MAPPING, encoding=encoding).fit_to(SCHEMA))
    (alone,) = encoded_batches(SCHEMA, table, unfit="adapt", coded=True)
    site_table.write_bytes(f"{OWN}{row}\n".encode("latin-1"))
    (beside,) = encoded_batches(SCHEMA, table, unfit="adapt", coded=True)
    for part in ("rows", "labels", "values"):
        np.testing.assert_array_equal(getattr(beside, part)[:4], getattr(alone, part), part)


def test_a_spreadsheets_encoding_is_suggested_and_read_whatever_the_separator_and_compression(tmp_path: Path) -> None:
    text = "alter|geschlecht|größe\n50,5|männlich|„5“ €\n70,25|weiblich|\n"
    path = tmp_path / "own.csv.gz"
    path.write_bytes(gzip.compress(text.encode("windows-1252")))
    schema = Schema(
        (Column("age", "number", 0, 100), Column("größe", "category", categories=("„5“ €", "b"), missing="fill")),
    )
    columns = {"age": ColumnMapping(source="alter")}
    suggested = suggest_mapping(schema, path, TableMapping(separator="|", columns=columns))
    assert suggested.mapping.encoding == "windows-1252"
    assert suggested.mapping.ignore == ("geschlecht",)
    mapped = MappedTable(path, suggested.mapping.fit_to(schema))
    assert check_fit(schema, mapped).fits
    assert read_encoded(schema, mapped).rows[:, 1].tolist() == [1.0, 0.0]
    assert recognise_encoding(io.BytesIO(text.encode("windows-1252"))) == "windows-1252"
    for content in (b"a,b\n1,2\n", text.encode(), text.encode() + b"\xe9"):  # in the last, some of it is UTF-8
        assert recognise_encoding(io.BytesIO(content)) == ""


def test_records_of_a_mapped_text_file_are_read_in_either_encoding(site_table: Path) -> None:
    more, read = OWN + "5|F||no|", []
    for content in (OWN.encode(), f"{more}Mü".encode("latin-1"), f"{more}Mü\n{more[len(OWN) :]}".encode() + b"\xfc"):
        site_table.write_bytes(content)
        read.append(read_records(MappedTable(site_table, replace(MAPPING, ignore=())), label="ill"))
    assert [records.n_rows for records in read] == [4, 5, 6]


@given(st.binary(min_size=0, max_size=400), st.sampled_from(ENCODINGS[1:]), st.integers(1, 64))
def test_every_byte_of_other_encodings_is_one_character_whatever_is_beside_it(
    data: bytes, encoding: str, n_bytes: int
) -> None:
    text = decode_text(data, encoding)
    assert len(text) == len(data)
    assert text == "".join(decode_text(bytes([byte]), encoding) for byte in data)
    stream, read = Recoded(io.BytesIO(data), encoding), b""
    while part := stream.read(n_bytes):
        read += part
    assert read.decode() == text


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("encoding = 'utf-7'", "encoding of the mapping"),
        ("decimal = ';'", "decimal of the mapping"),
        ("separator = 'x'", "separator of the mapping"),
        ("date_format = '%d.%m.%y'", "date_format of the mapping"),
        ("date_format = '%q'", "date_format of the mapping"),
        ("[columns.age]\nsource = 'a'\n[columns.seen]\nsource = 'a'", "mapping"),
        ("[columns.age]\nfrom = 'a'", "columns.age.from"),
        ("ignore = 3", "ignore"),
        ("[columns]\nage = 3", "columns.age"),
        ("x = [", "the mapping"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, what: str) -> None:
    path = tmp_path / "mapping.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as refused:
        read_mapping(path)
    assert refused.value.what == what


@pytest.mark.parametrize(
    "rules",
    [
        {"agee": ColumnMapping(source="alter")},
        {"gender": ColumnMapping(words={"F": "woman"})},
        {"gender": ColumnMapping(other="unknown")},
        {"age": ColumnMapping(words={"old": "90"})},
    ],
)
def test_columns_and_words_that_the_study_does_not_declare_are_refused(rules: dict[str, ColumnMapping]) -> None:
    with pytest.raises(InputError):
        TableMapping(columns=rules).fit_to(SCHEMA)


def test_a_table_without_a_renamed_column_or_with_both_is_refused(site_table: Path) -> None:
    mapped = MappedTable(site_table, MAPPING.fit_to(SCHEMA))
    site_table.write_text("sex|seen|ill|note\nF|31.01.2020|no|-\n", encoding="utf-8")
    (absent,) = check_fit(SCHEMA, mapped).problems
    assert (absent.kind, absent.column) == (ProblemKind.ABSENT_COLUMN, "age")
    site_table.write_text("alter|age|sex|seen|ill|note\n", encoding="utf-8")
    with pytest.raises(InputError):
        check_fit(SCHEMA, mapped)


def test_a_table_may_lack_the_renamed_column_of_labels_where_they_are_not_needed(site_table: Path) -> None:
    columns = MAPPING.columns | {"ill": ColumnMapping(source="outcome")}
    mapped = MappedTable(site_table, replace(MAPPING, columns=columns).fit_to(SCHEMA))
    site_table.write_text("alter|sex|seen|note\n50|F|31.01.2020|-\n", encoding="utf-8")
    (encoded,) = encoded_batches(SCHEMA, mapped, labels="allow")
    assert encoded.labels is None
    assert [problem.column for problem in check_fit(SCHEMA, mapped).problems] == ["ill"]


def test_names_words_decimal_commas_and_dates_are_suggested(site_table: Path, plain: Path, tmp_path: Path) -> None:
    site_table.write_text(OWN.replace("|X|", "|D|").replace("alter", "Age").replace("|no|", "|Nein|"), encoding="utf-8")
    suggested = suggest_mapping(SCHEMA, site_table, TableMapping(separator="|", missing_words=("-9",)))
    assert suggested.pairs == {"age": "Age", "gender": "sex"}
    assert suggested.unknown_words == {"gender": ("D",)}
    assert suggested.absent == ()
    rules = suggested.mapping.columns
    assert rules["gender"].words == {"F": "female", "M": "male"}
    assert rules["ill"].words == {"Nein": "no"}
    assert rules["seen"].date_format == "%d.%m.%Y"
    assert rules["age"].decimal == ","
    assert suggested.mapping.ignore == ("note",)
    path = tmp_path / "mapping.toml"
    path.write_text(render_mapping(suggested), encoding="utf-8")
    assert read_mapping(path) == suggested.mapping
    complete = declare_mapping(read_mapping(path), other=["gender=other"])
    mapped = read_encoded(SCHEMA, MappedTable(site_table, complete.fit_to(SCHEMA)))
    np.testing.assert_array_equal(mapped.rows, read_encoded(SCHEMA, plain).rows)


@pytest.mark.parametrize(
    ("columns", "paired"),
    [
        ({"alter": [*range(20, 60)]}, {"age": "alter"}),
        ({"alter": [*range(20, 60)], "weight": [*range(40, 80)]}, {}),  # nobody can tell which
        ({"alter": [*range(20, 60)], "number": [*range(1000, 1040)]}, {"age": "alter"}),
        ({"score": [k % 5 for k in range(40)]}, {}),  # takes up too little of the range
    ],
)
def test_the_only_column_of_numbers_is_suggested_and_other_words_become_other(
    columns: dict[str, list[int]], paired: dict[str, str]
) -> None:
    words = ["female", "diverse", "male", "unknown"] * 10
    frame = pd.DataFrame({**columns, "gender": words, "seen": "2020-01-31", "ill": ["no", "maybe"] * 20})
    suggested = suggest_mapping(SCHEMA, frame, TableMapping())
    assert suggested.pairs == paired
    rules = suggested.mapping.columns
    assert rules["gender"].other == "other"
    assert "ill" not in rules  # a label that nobody knows is no class


def test_codes_for_missing_values_words_for_sexes_and_the_only_column_of_days_are_suggested() -> None:
    frame = pd.DataFrame(
        {
            "age": ["50,5", "-9", "999", "0", "unknown"],
            "geschlecht": ["w", "m", "weiblich", "m", "x"],
            "visit": ["2020-01-31", "2021-02-05", "2020-02-01", "2020-01-31", ""],
            "day_of_invoice": ["1920-01-31"] * 5,
            "ill": ["0", "1", "0", "1", "1"],
        }
    )
    suggested = suggest_mapping(SCHEMA, frame, TableMapping())
    assert suggested.pairs == {"gender": "geschlecht", "seen": "visit"}
    assert suggested.mapping.columns["age"] == ColumnMapping(decimal=",", missing_words=("-9", "999"))
    assert suggested.mapping.columns["gender"].words == {"w": "female", "m": "male", "weiblich": "female"}
    assert suggested.mapping.ignore == ("day_of_invoice",)
    assert suggested.unknown_words == {"age": ("unknown",), "gender": ("x",)}
    either = frame.assign(day_of_invoice=frame["visit"])
    assert "seen" not in suggest_mapping(SCHEMA, either, TableMapping()).pairs


def test_a_form_of_dates_that_is_not_clear_is_not_suggested(site_table: Path) -> None:
    site_table.write_text("age,gender,seen,ill\n5,male,03/04/2020,no\n5,male,05/06/2021,no\n", encoding="utf-8")
    assert "seen" not in suggest_mapping(SCHEMA, site_table, TableMapping()).mapping.columns


def test_a_column_is_suggested_once_and_only_where_it_is_clear(site_table: Path) -> None:
    site_table.write_text("age,sex1,sex2,seen,ill\n5,F,M,,no\n5,M,F,,no\n", encoding="utf-8")
    suggested = suggest_mapping(SCHEMA, site_table, TableMapping())
    assert suggested.pairs == {}
    assert suggested.absent == ("gender",)


@given(words=st.dictionaries(st.text(min_size=1, max_size=5), st.sampled_from(["female", "male"]), max_size=4))
def test_every_mapping_that_is_written_is_read_back(
    words: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    mapping = TableMapping(columns={"gender": ColumnMapping(words=words, missing_words=tuple(words))})
    suggested = suggest_mapping(SCHEMA, pd.DataFrame({"gender": ["female"]}), mapping)
    path = tmp_path_factory.mktemp("mapping") / "mapping.toml"
    path.write_bytes(render_mapping(suggested).encode())
    assert read_mapping(path) == suggested.mapping


def test_wide_tables_are_matched_and_mapped_in_seconds() -> None:
    """Comparing each of 300 columns with each of 300 others took more than ten minutes."""
    names = [f"measured_{k}_value" for k in range(1000)]
    columns = tuple(Column(name, "category", categories=("no", "yes")) for name in names)
    schema = Schema(columns, Label("ill", "classes", ("no", "yes")))
    other_table = pa.table({f"a {name}": ["yes", "no"] for name in names} | {"ill": ["yes", "no"]})
    began = time.process_time()
    loud = other_table.rename_columns(
        [name.removeprefix("a ").upper() for name in names[:9]] + other_table.column_names[9:]
    )
    assert suggest_mapping(schema, loud, TableMapping()).pairs == {name: name.upper() for name in names[:9]}
    mapping = TableMapping(columns={name: ColumnMapping(source=f"a {name}") for name in names}).fit_to(schema)
    assert read_encoded(schema, MappedTable(other_table, mapping)).rows.shape == (2, 2000)
    assert time.process_time() - began < 10


def test_a_column_that_is_left_out_now_is_no_longer_read_as_another(site_table: Path) -> None:
    earlier = TableMapping(separator="|", columns={"age": ColumnMapping(source="alter", decimal=",")})
    declared = declare_mapping(earlier, ignore=["alter"])
    assert declared.ignore == ("alter",)
    assert declared.columns["age"] == ColumnMapping(decimal=",")
    assert "age" in suggest_mapping(SCHEMA, site_table, declared).absent
    with pytest.raises(InputError) as raised:
        declare_mapping(earlier, rename=["age=alter"], ignore=["alter"])
    assert raised.value.what == "--ignore"
