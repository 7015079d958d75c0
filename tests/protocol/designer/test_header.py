"""Headers of tables, and several of them merged to one draft."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError
from mooring.protocol.designer.draft import DeclaredColumns, count_open_entries, recognise_columns
from mooring.protocol.designer.header import MOST_COLUMNS, Header, _find_first, infer_header, read_header
from mooring.protocol.designer.merge import draft_merged, merge_headers
from mooring.protocol.designer.personal_text import find_personal
from mooring.protocol.messages.study import Study
from mooring.protocol.messages.study_file import parse_study
from mooring.tables import Column
from mooring.tables.files import open_table
from mooring.tables.inference import FEWEST_ROWS, MAX_CATEGORIES
from tests import commands
from tests.raising import numbers_in, raising
from tests.record import check_record

AGE = Column("age", "integer", 20, 90)
DAYS = [f"2020-01-{k:02}" for k in range(1, 32)]
SEX = Column("sex", "category", categories=("f", "m"))


@given(
    numbers=st.lists(st.floats(-1e9, 1e9), min_size=2 * FEWEST_ROWS, max_size=40),
    ends=st.lists(st.floats(-1e12, 1e12), min_size=8, max_size=8),
)
def test_a_range_does_not_change_with_the_four_lowest_and_highest_rows(
    numbers: list[float], ends: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "header.csv"
    ordered = np.sort(numbers)
    others = np.concatenate([ordered[4] - np.abs(ends[:4]), ordered[4:-4], ordered[-5] + np.abs(ends[4:])])
    texts = set()
    for rows in (ordered, np.random.default_rng(0).permutation(others)):
        path.write_text("x,y\n" + "".join(f"{float(row)!r},{k % 2}\n" for k, row in enumerate(rows)))
        header, _ = infer_header(path, site="a", row_per_person=True)
        texts.add(header.described["x"].removeprefix("integer").removeprefix("number"))
        if header.columns[0].name == "x" and not header.columns[0].missing_words:
            assert header.columns[0].low <= ordered[4] < ordered[-5] <= header.columns[0].high
    assert len(texts) == 1 or any("missing" in text for text in texts)


def test_a_header_tells_kinds_and_rounded_ranges_and_no_rare_word(tmp_path: Path) -> None:
    lines = ["patient_id,age,chol,stage,sex,seen,born,note,code"]
    for k in range(40):
        sex, seen = "FfMm"[k % 4], f"20{10 + k % 9}-05-0{1 + k % 9}"
        chol = 0 if k < 6 else 150 + 7 * k
        stage, sex = k % 3 if k > 6 else -9, "x" if k == 3 else sex
        lines.append(f"p{k},{30 + k},{chol},{stage},{sex},{seen},{k % 28 + 1}.5.1950,text {k},{k % 2}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    header, notes = infer_header(tmp_path / "t.csv", site="north", categorical=["stage"])
    assert {name: header.described[name] for name in lines[0].split(",")} == {
        "patient_id": "id",
        "age": "integer, 20 to 80",
        "chol": "integer, 0 to 500",  # a zero is no missing value because many are zero
        "stage": "category, one of 0, 1, 2 (missing: -9)",
        "sex": "category, one of F, M, f, m",
        "seen": "date, 2010-01-01 to 2017-12-31",
        "born": "date, 1950-01-01 to 1950-12-31",
        "note": "not described",
        "code": "integer, 0 to 1",
    }
    assert [column.missing for column in header.columns] == ["refuse"] * 2 + ["fill"] + ["refuse"] * 4
    assert len(notes) == 7
    (tmp_path / "north.header.toml").write_text(header.render())
    assert read_header(tmp_path / "north.header.toml") == header
    for content in (lines[:9], ["7,8", *["1,2"] * 20]):  # too few rows; a first line that may be a record
        (tmp_path / "t.csv").write_text("\n".join(content) + "\n")
        with raising(InputError, "data file"):
            infer_header(tmp_path / "t.csv", site="north")


@pytest.mark.parametrize(
    ("rows", "described", "missing"),
    [
        ([*range(21, 62), *[""] * 4], "integer, 10 to 70", "refuse"),
        ([*range(21, 62), *[""] * 5], "integer, 10 to 70", "fill"),
        ([*range(21, 62), *[99] * 4], "integer, 10 to 80", "refuse"),
        (
            [*range(13, 54), *[9] * 5],
            "integer, 0 to 60",
            "refuse",
        ),  # 8 below the fifth lowest, 17; a quarter of 17 … 49
        ([*range(14, 55), *[9] * 5], "integer, 10 to 60 (missing: 9)", "fill"),
        ([*range(55, 96), *[99] * 5], "integer, 40 to 110", "refuse"),
        ([k / 1000 for k in range(21, 62)], "number, 0.01 to 0.07", "refuse"),
        ([*range(54, 95), *[99] * 5], "integer, 40 to 100 (missing: 99)", "fill"),
        ([*range(-53, -12), *[-9] * 5], "integer, -60 to 10", "refuse"),
        ([*range(-54, -13), *[-9] * 5], "integer, -60 to 0 (missing: -9)", "fill"),
        ([*range(-95, -54), *[-99] * 5], "integer, -110 to -40", "refuse"),
        ([*range(-6, 35), *[-9] * 5], "integer, -20 to 40", "refuse"),  # five others are negative
        ([*range(-5, 36), *[-9] * 5], "integer, -20 to 50 (missing: -9)", "fill"),
        ([*range(20, 30), *[99] * 5] * 4, "integer, 10 to 110", "refuse"),
        ([*range(20, 31), *[99] * 5] * 4, "integer, 20 to 30 (missing: 99)", "fill"),
        ([*DAYS[:9], "2020-02-01T10:30:15", *[""] * 4], "date, 2020-01-01 to 2020-12-31", "refuse"),
        ([*DAYS[:10], *[""] * 5], "date, 2020-01-01 to 2020-12-31", "fill"),
        ([*DAYS[:9], *[""] * 5], "not described", ""),
        ([*range(21, 31)] * 5, "integer, 21 to 30", "refuse"),  # ten whole numbers may be codes: all that there are
        ([*range(21, 32)] * 5, "integer, 10 to 50", "refuse"),
        ([7] * 45, "not described", ""),
    ],
)
def test_a_number_that_five_rows_have_far_from_all_others_stands_for_a_missing_value(
    rows: list, described: str, missing: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("x,y\n" + "".join(f"{row},{k % 2}\n" for k, row in enumerate(rows)))
    header, _ = infer_header(tmp_path / "t.csv", site="a", row_per_person=True)
    rules = [column.missing for column in header.columns if column.name == "x"]
    assert (header.described["x"], rules) == (described, [missing] * bool(missing))


@pytest.mark.parametrize(
    ("first", "other", "conflict", "plain"),
    [
        (AGE, Column("age", "integer", 10, 70), "", {"kind": "integer", "range": [10, 90]}),
        (AGE, Column("age", "number", 10, 70), "", {"kind": "number", "range": [10, 90]}),
        (AGE, Column("age", "number", 0, 7000), "unit", {"kind": "number", "range": []}),
        (AGE, Column("age", "number", 100, 150), "unit", {"kind": "number", "range": []}),
        (AGE, Column("age", "number", 90, 150), "", {"range": [20, 150]}),
        (AGE, Column("age", "number", 0, 700), "unit", {"range": []}),  # ten times as wide
        (AGE, Column("age", "number", 0, 699), "", {"range": [0, 699]}),
        (AGE, Column("age", "integer", 0, 90, missing_words=("50",), missing="fill"), "50 may be", {"missing": "fill"}),
        (AGE, Column("age", "category", categories=("old",)), "several kinds", {"range": []}),
        (SEX, Column("sex", "category", categories=("f",)), "", {"categories": ["f", "m"]}),
        (SEX, Column("sex", "category", categories=("f", "x")), "different words", {"categories": ["f", "m", "x"]}),
        (SEX, Column("sex", "category", categories=("F", "M")), "letter case", {"categories": []}),
        (
            Column("seen", "date", 0, 30, day="2020-01-01"),
            Column("seen", "date", 0, 30, day="2019-01-01"),
            "",
            {"kind": "date", "range": ["2019-01-01", "2020-01-31"]},
        ),
    ],
)  # fmt: skip
def test_what_sites_agree_on_is_declared_and_the_rest_is_named(
    first: Column, other: Column, conflict: str, plain: dict
) -> None:
    y = Column("y", "category", categories=("no", "yes"))
    merged = merge_headers([Header("a", (first, y)), Header("b", (other, y))])
    assert (conflict in "; ".join(merged[0].conflicts), bool(merged[0].conflicts)) == (True, bool(conflict))
    assert plain.items() <= merged[0].plain.items()
    assert "missing_words" not in merged[0].plain
    text = draft_merged(merged, name="s", label="y")
    assert parse_study(draft_merged(merged, name="s", label=None))["label"]["kind"] == "none"
    with raising(InputError, "--label"):
        draft_merged(merged, name="s", label="z")
    is_open = [] in plain.values()
    assert count_open_entries(text) == is_open
    if not is_open:
        assert Study.from_dict(parse_study(text)).label.classes == ("no", "yes")


def test_columns_that_a_site_lacks_or_does_not_describe_are_told_with_the_nearest_name(tmp_path: Path) -> None:
    y = Column("y", "category", categories=("no", "yes"))
    first = Header("a", (AGE, SEX, y), ("id",))
    two = Header("b", (Column("Age", "integer", 20, 90), y), ("id",), ("sex", "note"))
    merged = {column.name: column for column in merge_headers([first, two])}
    assert merged["age"].conflicts == ("not at b, which has 'Age'",)
    assert merged["sex"].conflicts == ("not described at b",)
    assert merged["note"].plain is None
    assert merged["id"].conflicts == ()
    for header in (first, two):
        (tmp_path / f"{header.site}.header.toml").write_text(header.render())
    words = ["study", "merge", *sorted(tmp_path.glob("*.toml")), "--output", tmp_path / "s.toml", "--label", "y"]
    record = commands.record_of(*words, code=3)
    assert {column["name"]: column["sites"]["b"] for column in record["columns"]}["sex"] == "not described"
    assert Study.read(tmp_path / "s.toml").ids == ("id",)
    output = commands.run(*words, "--force", code=3).output
    assert "not described at b" in commands.flat(output)
    with raising(InputError, "headers"):
        merge_headers([first, first])


@pytest.mark.parametrize(
    ("kept", "pairs"),
    [
        ((), {("sex", "b"): "geschlecht", ("geschlecht", "a"): "sex", ("bmi", "b"): "kmi", ("kmi", "a"): "bmi"}),
        ((Column("gender", "category", categories=("F", "M")),), {("bmi", "b"): "kmi", ("kmi", "a"): "bmi"}),
        ((Column("ldl", "number", 11, 59),), {("sex", "b"): "geschlecht", ("geschlecht", "a"): "sex"}),
    ],
)
def test_columns_are_paired_by_content_where_one_alone_holds_the_same(
    kept: tuple[Column, ...], pairs: dict[tuple[str, str], str]
) -> None:
    """Where two columns of a site hold the same as a third, none is suggested: either may be meant."""
    first = Header(
        "a", (AGE, Column("sex", "category", categories=("female", "male")), Column("bmi", "number", 10, 60))
    )
    words = Column("geschlecht", "category", categories=("m", "w"))
    other = Header("b", (AGE, words, Column("kmi", "number", 12, 60), Column("day", "number", 0, 3), *kept))
    paired = {
        (column.name, site): alike
        for column in merge_headers([first, other])
        for conflict in column.conflicts
        for site in "ab"
        for alike in ("geschlecht", "sex", "kmi", "bmi", "gender", "ldl", "day")
        if f"not at {site}" in conflict and repr(alike) in conflict
    }
    assert paired == pairs


def test_columns_that_hold_neither_numbers_nor_words_nor_days_are_not_described(tmp_path: Path) -> None:
    days = pa.array([*range(18_000, 18_015), *[None] * 5], pa.date32())
    columns = {
        "day": days,
        "span": pa.array(range(20), pa.duration("s")),
        "list": [[1]] * 20,
        "truth": [True, False] * 10,
    }
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    header, _ = infer_header(tmp_path / "t.parquet", site="a", row_per_person=True)
    assert header.undescribed == ("span", "list")
    assert header.described["day"] == "date, 2019-01-01 to 2019-12-31"
    assert header.described["truth"] == "category, one of false, true"


@pytest.mark.parametrize("n_words", [MAX_CATEGORIES, MAX_CATEGORIES + 1])
def test_a_column_of_many_words_is_described_up_to_the_most_categories(n_words: int, tmp_path: Path) -> None:
    words = pa.array(
        [f"{chr(97 + k // 26)}{chr(97 + k % 26)}" for k in range(n_words)] * FEWEST_ROWS
    ).dictionary_encode()
    pa.parquet.write_table(pa.table({"word": words, "n": np.arange(len(words)) % 7}), tmp_path / "t.parquet")
    header, _ = infer_header(tmp_path / "t.parquet", site="a", row_per_person=True)
    assert header.undescribed == (() if n_words == MAX_CATEGORIES else ("word",))


@pytest.mark.parametrize(("n_persons", "is_described"), [(2 * FEWEST_ROWS - 1, False), (2 * FEWEST_ROWS, True)])
def test_a_table_of_fewer_than_twice_the_fewest_persons_is_not_described(
    n_persons: int, is_described: bool, tmp_path: Path
) -> None:
    write_register(tmp_path / "t.csv", n_persons, 3)
    if is_described:
        assert infer_header(tmp_path / "t.csv", site="a", person="patient")[0].site == "a"
    else:
        with raising(InputError, "data file") as caught:
            infer_header(tmp_path / "t.csv", site="a", person="patient")
        assert numbers_in(caught.value.problem) == {n_persons, 2 * FEWEST_ROWS}


def test_a_type_in_parquet_tells_more_than_a_name(tmp_path: Path) -> None:
    kinds = {"day": pa.date32(), "time": pa.timestamp("s"), "word": pa.string(), "number": pa.int64()}
    names = ("x", "date_of_birth", "admission_date", "notes", "patient_id")
    columns = {f"{name}_{kind}": pa.array([], stored) for name in names for kind, stored in kinds.items()}
    pa.parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    recognised = recognise_columns(open_table(tmp_path / "t.parquet"), DeclaredColumns())
    check_record(Path(__file__).parent / "record.json", "recognised", recognised)


FIRST, LAST = ("Anna", "Boris", "Chen", "Dalia", "Émile"), ("Schmidt", "O'Neil", "van Dyk", "Öztürk")


def write_register(path: Path, n_persons: int, n_visits: int) -> list[list[str]]:
    """A register in which each person has several visits, with what names it in columns whose titles do not tell."""
    persons = []
    for k in range(n_persons):
        first, last = FIRST[k % 5], LAST[k // 5 % 4]
        town = "NORTH" if k < n_persons // 2 else "SOUTH" if k < n_persons - 3 else "RARE"
        persons.append(
            [f"{k:04}", f"{first} {last}", f"{first.lower()}.{k}@example.org", f"K{k:03}-7", last, town, str(20 + k)]
        )
    rows = [",".join(person) for person in persons for _ in range(n_visits)]
    path.write_text("\n".join(["patient,contact,reach,card,ward,town,age", *rows]) + "\n", encoding="utf-8")
    return persons


def test_a_header_counts_persons_and_not_their_visits(tmp_path: Path) -> None:
    persons = write_register(tmp_path / "t.csv", 40, 6)
    header, _ = infer_header(tmp_path / "t.csv", site="north")
    assert header.ids == ("patient",)
    assert {name: header.described[name] for name in ("contact", "reach", "card", "town")} == {
        "contact": "not described",
        "reach": "not described",
        "card": "not described",
        "town": "category, one of NORTH, SOUTH",
    }
    assert header.described["age"] == "integer, 10 to 70"
    text = header.render()
    assert not [cell for person in persons for cell in person[:4] if cell in text]
    assert infer_header(tmp_path / "t.csv", site="north", person="patient")[0] == header
    # the five lowest ages are of five persons, and six visits of one are one person's
    write_register(tmp_path / "t.csv", 9, 6)
    with raising(InputError, "data file"):
        infer_header(tmp_path / "t.csv", site="north")


def test_several_extreme_values_of_one_person_count_as_one(tmp_path: Path) -> None:
    """The ends are those of the fifth lowest and the fifth highest person, not of the fifth rows."""
    visits = [("north-0", low) for low in range(-300, -294)] + [("north-1", high) for high in range(300, 306)]
    visits += [(f"south-{k}", 40 + k) for k in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["patient_id,x", *(f"{who},{x}" for who, x in visits)]) + "\n")
    header, _ = infer_header(tmp_path / "t.csv", site="north")
    (column,) = header.columns
    assert 0 < column.low <= 44
    assert 75 <= column.high < 150


def test_a_value_counts_once_a_person_and_so_does_a_missing_one() -> None:
    column: Any = SimpleNamespace(values=pa.chunked_array([["a", "a", "a", "b", "b", "b", "b", None, None]]))
    first = _find_first(column, np.array([0, 1, 2, 0, 1, 2, 2, 0, 0]))
    assert first.tolist() == [True] * 6 + [False, True, False]


def test_words_that_look_like_persons_are_left_out_even_where_rows_are_said_to_be_persons(tmp_path: Path) -> None:
    persons = write_register(tmp_path / "t.csv", 40, 6)
    header, _ = infer_header(tmp_path / "t.csv", site="north", row_per_person=True)
    assert header.undescribed == ("contact", "reach", "card")
    assert not [cell for person in persons for cell in person[1:4] if cell in header.render()]
    named, _ = infer_header(tmp_path / "t.csv", site="north", row_per_person=True, categorical=["reach"])
    assert "reach" in named.undescribed


def test_a_table_that_does_not_say_who_persons_are_is_refused(tmp_path: Path) -> None:
    write_register(tmp_path / "t.csv", 40, 6)
    text = (tmp_path / "t.csv").read_text("utf-8")
    (tmp_path / "t.csv").write_text(text.replace("patient,", "visit_id,", 1), "utf-8")
    with raising(InputError, "--person"):
        infer_header(tmp_path / "t.csv", site="north")
    header, _ = infer_header(tmp_path / "t.csv", site="north", person="visit_id")
    assert header.described["town"] == "category, one of NORTH, SOUTH"
    with raising(InputError, "--person"):
        infer_header(tmp_path / "t.csv", site="north", person="nobody")


@pytest.mark.parametrize(
    ("words", "is_personal"),
    [
        (["a@b.org", "none", "other"], True),
        (["Anna Schmidt", "Peter O'Neil", "unknown"], True),
        (["Schmidt, Anna", "de la Cruz, Maria"], True),
        (["Dr. Ash", "Prof. Elm"], True),
        (["p0012", "p0013"], True),
        (["943 476 5919", "943 476 5870"], True),
        (["K012-7", "K013-7"], True),
        (["grade 1", "grade 2", "T2"], False),
        (["ward 123", "ward 456"], False),  # beside a space, four digits make an identifier
        (["ward 1234", "ward 5678"], True),
        (["1234", "5678"], True),
        (["123", "456"], False),
        (["a123", "never"], True),  # half of the words
        (["a123", "never", "often"], False),
        (["Anna Schmidt 2", "Peter Neil 3"], False),
        (["Asian", "Black", "White"], False),
        (["Never-married", "Married-civ-spouse"], False),
        (["HS-grad", "Some-college", "11th"], False),
        (["übel ölig", "ödem äußerlich"], False),
        (["Özil Ömer", "Åse Øverland"], True),
        (["18-64", "65+"], False),
        (["no", "yes"], False),
        ([], False),
    ],
)
def test_personal_text_is_recognised_by_its_form(words: list[str], is_personal: bool) -> None:
    assert bool(find_personal(words)) is is_personal


def test_a_header_is_shown_before_it_is_written(tmp_path: Path) -> None:
    write_register(tmp_path / "t.csv", 40, 6)
    words = ("study", "header", "t.csv", "--site", "north")
    refused = commands.run(*words, place=tmp_path, code=2)
    assert 'categories = ["NORTH", "SOUTH"]' in refused.stderr
    assert not (tmp_path / "north.header.toml").exists()
    commands.run(*words, "--yes", place=tmp_path)
    assert (tmp_path / "north.header.toml").exists()


@pytest.mark.parametrize("n_columns", [1_000, MOST_COLUMNS])
def test_headers_without_a_common_column_are_merged_at_once(n_columns: int, tmp_path: Path) -> None:
    """All names share their letters but two, so that comparing them pair by pair takes minutes."""
    for site in "ab":
        columns = tuple(Column(f"{'xyz' * 12}{site}{k}", "number", 0, 1) for k in range(n_columns))
        (tmp_path / f"{site}.toml").write_text(Header(site, columns).render())
    headers = [read_header(tmp_path / f"{site}.toml") for site in "ab"]
    begin = time.process_time()
    merged = merge_headers(headers)
    assert time.process_time() - begin < 4  # within a second, on a machine that has nothing else to do
    assert len(merged) == 2 * n_columns
    with raising(InputError, "header"):
        Header("c", tuple(Column(f"x{k}", "number", 0, 1) for k in range(MOST_COLUMNS + 1)))


def test_many_missing_words_are_merged_at_once() -> None:
    words = tuple(f"{k}" for k in range(20_000))
    column, other = Column("x", "number", 0, 1e6, missing_words=words, missing="fill"), Column("x", "number", 0, 1e6)
    begin = time.process_time()
    (merged,) = merge_headers([Header("a", (column,)), Header("b", (other,))])
    assert time.process_time() - begin < 4
    assert len(merged.conflicts) == len(words)


@pytest.mark.parametrize(("name", "near"), [("sys_bp", "BP-Sys"), ("Cholesterol", "colesterol"), ("age", "weight")])
def test_the_nearest_name_is_said(name: str, near: str) -> None:
    y = Column("y", "category", categories=("no", "yes"))
    second = Column(near, "number", 40, 200) if near == "weight" else Column(near, "number", 0, 1)
    headers = [Header("a", (Column(name, "number", 0, 1), y)), Header("b", (second, y))]
    expected = "not at b" if near == "weight" else f"not at b, which has {near!r}"
    assert merge_headers(headers)[0].conflicts == (expected,)


def test_the_command_writes_a_header_that_is_made_from_rows(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("age,ill\n" + "".join(f"{20 + k},{'yes' if k % 2 else 'no'}\n" for k in range(40)))
    record = commands.record_of(
        "study", "header", "t.csv", "--site", "north", "--row-per-person", "--yes", place=tmp_path
    )
    assert read_header(tmp_path / record["header"]).described["age"] == "integer, 10 to 70"


def test_decimal_commas_and_forms_of_dates_are_read_as_numbers_and_days(tmp_path: Path) -> None:
    lines = [f"{k},5;{1 + k % 28:02d}.03.{2000 + k % 20}" for k in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["weight;seen", *lines]) + "\n")
    header, notes = infer_header(tmp_path / "t.csv", site="a", row_per_person=True)
    assert [(column.name, column.kind) for column in header.columns] == [("weight", "number"), ("seen", "date")]
    assert header.by_name["weight"].high >= 50
    assert any("%d.%m.%Y" in note for note in notes)
