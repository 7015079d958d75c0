import datetime
import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from mooring import InputError
from mooring.errors import StorageError
from mooring.tables import Records, open_table, read_records
from tests.raising import raising

Refused = Callable[..., None]
Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def save(content: str | bytes, name: str = "table.csv") -> Path:
        path = tmp_path / name
        raw = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
        return path

    return save


@pytest.fixture
def write_parquet(tmp_path: Path) -> Callable[[dict[str, object]], Path]:
    def save(columns: dict[str, object]) -> Path:
        pa.parquet.write_table(pa.table(columns), tmp_path / "table.parquet")
        return tmp_path / "table.parquet"

    return save


def column(records: Records, name: str) -> np.ndarray:
    return records.rows[:, records.feature_names.index(name)]


def lines(*rows: object) -> str:
    return "\n".join(str(row) for row in rows) + "\n"


def test_numbers_even_huge_ones_are_standardised_and_can_be_had_back(write: Write) -> None:
    values = np.array([[1.5, 10], [2.5, 20], [9.0, 60]])
    records = read_records(write(lines("a,b", "1.5,10", "2.5,20", "9.0,60")))
    assert records.feature_names == ("a", "b")
    assert records.feature_kinds == ("number", "integer")
    assert np.allclose(records.rows.mean(axis=0), 0.0, atol=1e-15)
    assert np.allclose(records.rows.std(axis=0), 1.0)
    centres, scales = np.array(records.feature_scales).T
    assert np.allclose(records.rows * scales + centres, values)
    huge = read_records(write(lines("a,b", "1e308,1", "-1e308,2", "1e308,3")))
    assert np.allclose(column(huge, "a").std(), 1.0)


def test_words_and_booleans_become_zeros_and_ones_without_dropping_any(write: Write) -> None:
    records = read_records(write(lines("colour,ill", "red,true", "green,false", "red,true")))
    assert records.feature_names == ("colour=green", "colour=red", "ill=false", "ill=true")
    assert records.feature_kinds == ("category",) * 4
    assert records.rows.tolist() == [[0, 1, 0, 1], [1, 0, 1, 0], [0, 1, 0, 1]]


@pytest.mark.parametrize(
    ("content", "options", "names"),
    [
        (lines("ward,age", "10,1", "9,2", "10,3"), {"categorical": ["ward"]}, ("ward=10", "ward=9", "age")),
        (
            lines("age, job", "39, ?", "50, cook", "38, cook"),
            {},
            ("age", "job=cook", "job=missing"),
        ),  # spaces do not count
        (lines("a,b,c", "1,2,3", "2,3,5"), {"ignore": ["b"]}, ("a", "c")),
        (lines("größe,ort", "1,Köln", "2,Bonn").encode("latin-1"), {}, ("größe", "ort=Bonn", "ort=Köln")),
    ],
)
def test_features_are_named_after_columns_and_words(
    content: str | bytes, options: dict[str, list[str]], names: tuple[str, ...], write: Write
) -> None:
    records = read_records(write(content), **options)
    assert records.feature_names == names
    if "job=missing" in names:
        assert column(records, "job=missing").tolist() == [1, 0, 0]


@pytest.mark.parametrize("hole", ["?", "NA", "", "NaN", " ?", "inf"])
def test_missing_numbers_become_the_median_and_a_column_says_which(hole: str, write: Write) -> None:
    records = read_records(write(lines("a,b", "1,1", f"{hole},2", "2,3", "9,4")))
    assert records.feature_names == ("a", "a: missing", "b")
    centre, scale = records.feature_scales[0]
    assert np.allclose(column(records, "a") * scale + centre, [1, 2, 2, 9])
    assert column(records, "a: missing").tolist() == [0, 1, 0, 0]
    assert records.feature_kinds == ("integer", "category", "integer")


def test_one_missing_number_in_a_hundred_needs_no_column_of_its_own(write: Write) -> None:
    for n_rows, names in ((100, ("a", "b")), (99, ("a", "a: missing", "b"))):
        rows = [f"{k if k else '?'},{k * k}" for k in range(n_rows)]
        assert read_records(write(lines("a,b", *rows))).feature_names == names


def test_other_marks_of_missing_values_can_be_named(write: Write) -> None:
    records = read_records(write(lines("a,b", "1,x", "-9.0,none", "2,y", "9,y")), missing=["-9", "none"])
    assert column(records, "a: missing").tolist() == [0, 1, 0, 0]
    assert column(records, "b=missing").tolist() == [0, 1, 0, 0]


def test_columns_of_no_use_are_left_out_and_named(write: Write) -> None:
    header = "same,word,day,empty,many,good"
    rows = [f"1,yes,2020-01-{k % 28 + 1:02d},,name{k},{k}" for k in range(51)]
    records = read_records(write(lines(header, *rows)))
    assert records.feature_names == ("good",)
    for name, reason in [
        ("same", "constant"),
        ("word", "constant"),
        ("day", "dates or times"),
        ("empty", "empty"),
        ("many", "more than 50 categories"),
    ]:
        assert any(repr(name) in note and reason in note for note in records.notes)
    assert not any("name1" in note for note in records.notes)
    rows = [f"name{k},{k}" for k in range(50)]  # fifty categories are not too many
    assert read_records(write(lines("many,good", *rows))).n_features == 51


@pytest.mark.parametrize(
    ("values", "kind", "names"),
    [
        (["no", "yes", "no"], "classes", ("no", "yes")),
        (["3", "1", "3"], "classes", ("1", "3")),
        (["3.0", "1.0", "3.0"], "classes", ("1", "3")),
        (["true", "false", "true"], "classes", ("false", "true")),
        (["1.5", "0.25", "1.5"], "number", ()),
        (["no", "no", "no"], "classes", ("no",)),
    ],
)
def test_labels_are_classes_or_numbers(values: list[str], kind: str, names: tuple[str, ...], write: Write) -> None:
    records = read_records(write(lines("a,y", *(f"{k},{y}" for k, y in enumerate(values)))), label="y")
    assert (records.label_kind, records.label_names) == (kind, names)
    assert records.feature_names == ("a",)
    if kind == "classes":
        assert records.labels[0] == records.labels[2]
    else:
        assert records.labels.tolist() == [float(y) for y in values]


@pytest.mark.parametrize(("n_values", "kind"), [(20, "classes"), (21, "number")])
def test_more_than_twenty_whole_numbers_are_a_number(n_values: int, kind: str, write: Write) -> None:
    path = write(lines("a,y", *(f"{k},{k}" for k in range(n_values))))
    assert read_records(path, label="y").label_kind == kind
    assert read_records(path, label="y", categorical=["y"]).label_kind == "classes"


def test_rows_without_a_label_are_dropped_before_anything_is_computed(write: Write) -> None:
    records = read_records(write(lines("a,c,y", "1,u,p", "1000,v,?", "3,w,q")), label="y")
    assert np.allclose(records.rows, [[-1, 1, 0], [1, 0, 1]])
    assert records.feature_names == ("a", "c=u", "c=w")
    assert records.notes == ("1 row without a label is dropped",)


def test_the_column_of_groups_is_no_feature(write: Write) -> None:
    records = read_records(write(lines("a,place", "1,west", "2,east", "3,west", "4,")), group_by="place")
    assert records.feature_names == ("a",)
    assert records.group_names == ("east", "west")
    assert records.groups.tolist() == [1, 0, 1]
    assert records.notes == ("1 row without a group is dropped",)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.CSV", "t.data", "t.data.gz", "t.txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_text_files_under_many_names_are_read_alike(name: str, separator: str, write: Write) -> None:
    path = write(lines("a,b", "1,2", "2,3").replace(",", separator), name)
    assert np.allclose(read_records(path).rows, [[-1, -1], [1, 1]])


def test_a_first_line_of_values_is_a_row(write: Write) -> None:
    records = read_records(write(lines("39, cook, 5", "50, maid, ?", "38, cook, 7")), label="column 2")
    assert records.n_rows == 3
    assert records.feature_names[0] == "column 1"
    assert "first line" in records.notes[0]


@pytest.mark.parametrize("header", ["id,2019,2020", ",a,b"])
def test_a_first_line_of_names_is_none(header: str, write: Write) -> None:
    assert read_records(write(lines(header, "1,2,3", "2,3,5"))).n_rows == 2


def test_parquet_columns_keep_their_types(write_parquet: Callable[..., Path]) -> None:
    path = write_parquet(
        {
            "number": [1.0, float("nan"), 3.0],
            "code": ["01", "02", "01"],
            "kind": pa.array(["7", "8", "7"]).dictionary_encode(),
            "flag": [True, None, False],
            "day": [datetime.date(2020, 1, k) for k in (1, 2, 3)],
            "list": [[1], [2], [3]],
            "big": [2**62, 5, 2**60],
        }
    )
    records = read_records(path)
    assert records.feature_names == (
        *("number", "number: missing", "code=01", "code=02", "kind=7", "kind=8"),
        *("flag=false", "flag=missing", "flag=true", "big"),
    )
    assert len(records.notes) == 2
    assert read_records(path).feature_names == records.feature_names


def test_a_missing_file_is_refused(tmp_path: Path, refused: Refused) -> None:
    for name in ("no.csv", ""):
        with raising(StorageError, "the data file"):
            open_table(tmp_path / name)
    with raising(StorageError, "the data file", reason="not there"):  # as where a study's table is missing
        read_records(tmp_path / "no.csv")


@pytest.mark.parametrize(
    ("content", "name", "got"),
    [
        ("", "t.csv", "empty"),
        ("a,b\n1,2\n", "t.xls", "ends in"),
        (b"\x89PNG\0\0", "t.csv", "not text"),
        ("a,b\n1,2\n", "t.parquet", "damaged"),
        (gzip.compress(b"a,b\n" + 9 * b"1,2\n", mtime=0)[:-12], "t.csv.GZ", "damaged"),
        (b"not compressed at all", "t.csv.GZ", "damaged"),
    ],
)
def test_what_is_no_table_is_refused(content: str, name: str, got: str, write: Write, refused: Refused) -> None:
    refused(lambda: read_records(write(content, name)), "data file", "a table", got)


@pytest.mark.parametrize(
    ("content", "expected", "got"),
    [
        ("a,b\n", "with rows", "no rows"),
        ("a\n1\n2\n", "two columns or more", "1 column"),
        ("a,b\n1,x\n1,x\n", "a column that can be used", "'a' is left out: it is constant; column 'b'"),
        ("a,b,a\n1,2,3\n", "different names", "columns 1 and 3"),
    ],
)
def test_tables_without_use_are_refused(content: str, expected: str, got: str, write: Write, refused: Refused) -> None:
    refused(lambda: read_records(write(content)), "data file", expected, got)


def test_ragged_rows_are_refused_without_quoting_them(write: Write) -> None:
    with pytest.raises(InputError) as caught:
        read_records(write(lines("name,age", "alice,41", "secret,42,43")))
    assert "secret" not in str(caught.value)
    assert (caught.value.what, caught.value.got) == ("row 2", "3 columns")
    assert caught.value.__context__ is None


def test_a_wrong_name_is_answered_with_the_nearest(write: Write) -> None:
    path = write(lines("Outcome,age,weight", "1,2,3", "2,3,5"))
    for what, keywords in (("label", {"label": "outcom"}), ("group_by", {"group_by": "outcom"})):
        with pytest.raises(InputError) as caught:
            read_records(path, **keywords)
        assert caught.value.what == what
        assert "'Outcome'" in caught.value.cure
        assert "weight" not in caught.value.cure
    with pytest.raises(InputError) as caught:
        read_records(path, ignore=["zzz"])
    assert "'weight'" in caught.value.cure


def test_labels_that_cannot_serve_are_refused(write: Write, refused: Refused) -> None:
    path = write(lines("a,day,none,place", "1,2020-01-01,,x", "2,2020-01-02,,y"))
    refused(lambda: read_records(path, label="day"), "label", "numbers or words", "dates")
    refused(lambda: read_records(path, label="none"), "label", "with values", "empty in every row")
    for what, options in (("group_by", {"group_by": "a"}), ("label", {"ignore": ["a"]})):
        with raising(InputError, what):
            read_records(path, label="a", **options)


def test_options_for_images_are_refused_for_a_table(write: Write, refused: Refused) -> None:
    path = write(lines("a,b", "1,2", "2,3"))
    refused(lambda: read_records(path, size=8), "size", "left out for a table", "8")
    refused(lambda: read_records(write("", "t.xls")), "data file", "a table", "'.xls'")
