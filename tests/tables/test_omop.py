"""What the text of a cohort's query says of its columns, and what a query over OMOP tables may do."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.errors import InputError, RefusedError, StorageError
from mooring.tables.omop.database import OmopDatabase, open_database
from mooring.tables.omop.query import SelectedColumn, describe_columns
from mooring.tables.omop.vocabulary import read_ranges
from tests.omop import write_omop

duckdb = pytest.importorskip("duckdb")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_omop(tmp_path_factory.mktemp("omop") / "hospital.duckdb")


@pytest.fixture(scope="module")
def database(file: Path) -> Iterator[OmopDatabase]:
    with open_database(file) as opened:
        yield opened


def describe(text: str, *names: str) -> tuple[SelectedColumn, ...]:
    with duckdb.connect() as connection:
        ((tree,),) = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchall()
    return describe_columns(json.loads(tree)["statements"][0]["node"], names)


PERSON = "SELECT {} AS code FROM person AS p"


@pytest.mark.parametrize(
    "text",
    [
        *map(
            PERSON.format,
            [
                "person_id",
                "p.person_id + 0",
                "md5(person_source_value)",
                "struct_extract(p, 'person_id')",
                "hash(p)",
                "rowid",
                "CASE WHEN year_of_birth > 1950 THEN person_id END",
                "(SELECT max(m.person_id) FROM measurement AS m WHERE m.person_id = p.person_id)",
                "list_transform([person_id], lambda x: x)[1]",
            ],
        ),
        "WITH a AS (SELECT person_id AS q FROM person), b AS (SELECT q AS r FROM a) SELECT r AS code FROM b",
        "SELECT 1 AS code UNION ALL SELECT person_id FROM person",
        "SELECT code FROM person AS p, LATERAL (SELECT p.person_id AS code)",
        "SELECT max(visit_occurrence_id) AS code FROM visit_occurrence",
        "SELECT code FROM (SELECT * FROM (SELECT person_id AS code FROM person))",
    ],
)
def test_a_column_made_of_an_identifier_is_recognised_under_any_name(database: OmopDatabase, text: str) -> None:
    (column,) = database.prepare(text).columns
    assert column.identifying


@pytest.mark.parametrize(
    "expression",
    [
        "count(DISTINCT person_id)",
        "person_id = 3",
        "EXISTS (SELECT 1 FROM visit_occurrence AS v WHERE v.person_id = p.person_id)",
    ],
)
def test_counts_and_comparisons_of_identifiers_name_nobody(database: OmopDatabase, expression: str) -> None:
    group = " GROUP BY ALL" if expression.startswith("count") else ""
    (column,) = database.prepare(PERSON.format(expression) + group).columns
    assert not column.identifying


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * RENAME (person_id AS c) FROM person",
        "SELECT COLUMNS('person_(id)') FROM person",
        "SELECT #1 AS c FROM person",
        "SELECT c FROM person AS p(c)",
        "SELECT c FROM (SELECT * FROM person) AS p(c)",
        "WITH p(c) AS (SELECT person_id FROM person) SELECT c FROM p",
        "SELECT c FROM person AS p, (VALUES (p.person_id)) AS t(c)",
        "SELECT c FROM person AS p, unnest([p.person_id]) AS t(c)",
        "SELECT c FROM query('SELECT person_id AS c FROM person')",
        "SELECT v AS c FROM (UNPIVOT person ON person_id INTO NAME k VALUE v)",
        "SELECT min AS c FROM (SUMMARIZE person)",
        "SELECT 2023 - year_of_birth FROM person",
        "SELECT 1 AS c, 2 AS d UNION SELECT * FROM (SELECT person_id, 2 FROM person)",
    ],
)
def test_forms_in_which_a_column_cannot_be_followed_are_refused(database: OmopDatabase, text: str) -> None:
    with pytest.raises(RefusedError) as caught:
        database.prepare(text)
    assert caught.value.what == "the cohort's query"


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO person SELECT * FROM person",
        "WITH t AS (INSERT INTO person SELECT * FROM person RETURNING *) SELECT year_of_birth FROM t",
        "CREATE TEMP TABLE t AS SELECT 1 AS a",
        "SELECT 1 AS a; SELECT 2 AS b",
        "-- nothing",
        "COPY person TO '{}'",
        "ATTACH '{}'",
        "SET enable_external_access = true",
        "SELECT content AS c FROM read_text('/etc/passwd')",
        "SELECT * FROM read_csv('/etc/passwd')",
        "PIVOT person ON gender_concept_id",
        "PRAGMA database_list",
        "INSTALL httpfs",
    ],
)
def test_a_query_that_writes_or_reaches_outside_is_refused(file: Path, text: str, tmp_path: Path) -> None:
    before, outside = file.read_bytes(), tmp_path / "outside"
    with open_database(file) as database, pytest.raises(RefusedError):
        list(database.prepare(text.format(outside)).read())
    assert file.read_bytes() == before
    assert not outside.exists()


def test_the_message_of_a_query_that_fails_on_a_row_quotes_no_cell(database: OmopDatabase) -> None:
    with pytest.raises(InputError) as caught:
        list(database.prepare("SELECT CAST(gender_source_value AS INTEGER) AS c FROM person").read())
    assert not re.search(r"'[MF]'", str(caught.value))
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


WORDS = (
    "SELECT FROM person WHERE AS ( ) , ; * # 1 'x' \" p person_id year_of_birth UNION ALL WITH a INSERT INTO COPY TO ATTACH "
    "SET GROUP BY -- /* $1 @c :: INTEGER CASE WHEN THEN END [ ] VALUES LIMIT NULL = ORDER"
)
SQL = st.lists(st.sampled_from(WORDS.split()), max_size=14).map(" ".join)


@given(st.one_of(SQL, st.text(max_size=60), SQL.map("SELECT year_of_birth AS a FROM person {}".format)))
def test_any_text_is_a_select_that_names_its_columns_or_an_error_of_ours(database: OmopDatabase, text: str) -> None:
    try:
        rows = database.prepare(text)
    except (InputError, RefusedError):
        return
    assert [column.name for column in rows.columns] == rows.schema.names
    assert len(set(map(str.lower, rows.schema.names))) == len(rows.schema.names)


@given(
    st.lists(st.sampled_from(["a", "b", "value", "person", "code"]), min_size=1, max_size=4),
    st.sampled_from(["{}", "{} + 1", "max({})", "coalesce({}, 0)", "CAST({} AS VARCHAR)"]),
    st.booleans(),
)
def test_an_identifier_is_followed_through_any_chain_of_names(names: list[str], form: str, is_nested: bool) -> None:
    chain = ["person_id", *(f"{name}_{k}" for k, name in enumerate(names))]
    if is_nested:
        text = "person"
        for old, new in pairwise(chain):
            text = f"(SELECT {form.format(old)} AS {new} FROM {text})"
        text = f"SELECT * FROM {text}"
    else:
        tables = ["person", *(f"t{k}" for k in range(len(names)))]
        selects = [
            f"SELECT {form.format(f'x.{old}')} AS {new} FROM {table} AS x"
            for (old, new), table in zip(pairwise(chain), tables, strict=False)
        ]
        steps = [f"{table} AS ({select})" for table, select in zip(tables[1:], selects, strict=True)]
        text = f"WITH {', '.join(steps)} SELECT {chain[-1]} FROM {tables[-1]}"
    (column,) = describe(text, chain[-1])
    assert "person_id" in column.identifying


def test_concepts_are_those_that_the_value_itself_is_chosen_by() -> None:
    joined = (
        "SELECT s.value AS systolic, d.value AS diastolic "
        "FROM (SELECT person_id, value_as_number AS value FROM measurement WHERE measurement_concept_id = 3004249) AS s "
        "JOIN (SELECT person_id, value_as_number AS value FROM measurement "
        "WHERE measurement_concept_id IN (3012888, 3034703)) AS d USING (person_id)"
    )
    systolic, diastolic = describe(joined, "systolic", "diastolic")
    assert (systolic.concepts, diastolic.concepts) == ({3004249}, {3012888, 3034703})
    filtered = (
        "SELECT max(value_as_number) FILTER (WHERE measurement_concept_id = 1 AND unit_concept_id = 8876) AS one, "
        "avg(CASE WHEN measurement_concept_id = 2 THEN value_as_number END) AS two, stddev(value_as_number) AS three "
        "FROM measurement WHERE measurement_concept_id IN (1, 2)"
    )
    description, two, three = describe(filtered, "one", "two", "three")
    assert (description.concepts, description.units, two.concepts, three.concepts) == ({1}, {8876}, {2}, {1, 2})
    assert (description.keeps_values, two.keeps_values, three.keeps_values) == (True, True, False)
    (aliased,) = describe(
        "SELECT a.value_as_number AS x FROM measurement AS a JOIN measurement AS b USING (person_id) WHERE "
        "a.measurement_concept_id = 1 AND b.measurement_concept_id = 2",
        "x",
    )
    assert aliased.concepts == {1}
    (descendants,) = describe(
        "SELECT value_as_number AS x FROM measurement WHERE measurement_concept_id IN "
        "(SELECT descendant_concept_id FROM concept_ancestor WHERE ancestor_concept_id = 7)",
        "x",
    )
    assert descendants.concepts == {7}


def test_words_are_known_where_the_query_gives_them_and_unknown_where_rows_do() -> None:
    given_by_query, mixed = describe(
        "SELECT CASE gender_concept_id WHEN 8507 THEN 'm' ELSE 'f' END AS sex, "
        "coalesce(gender_source_value, 'unknown') AS source FROM person",
        "sex",
        "source",
    )
    assert (given_by_query.words, mixed.words) == (("m", "f"), None)


def test_ranges_are_in_order_and_each_code_is_there_once() -> None:
    ranges = read_ranges()
    assert len({each.loinc for each in ranges}) == len(ranges) > 30
    assert all(each.low < each.high and re.fullmatch(r"[0-9]+-[0-9]", each.loinc) for each in ranges)

    def check_digit(number: str) -> int:  # of LOINC, by Luhn's algorithm
        digits = [int(letter) for letter in number[::-1]]
        doubled = [sum(divmod(2 * digit, 10)) if k % 2 == 0 else digit for k, digit in enumerate(digits)]
        return -sum(doubled) % 10

    assert [each.loinc for each in ranges if check_digit(each.loinc[:-2]) != int(each.loinc[-1])] == []


def test_a_file_that_is_no_omop_database_is_an_error_that_says_so(tmp_path: Path) -> None:
    text, other, broken = tmp_path / "a.duckdb", tmp_path / "b.duckdb", tmp_path / "c.duckdb"
    text.write_text("person_id\n" * 9)
    with duckdb.connect(str(other)) as connection:
        connection.execute("CREATE TABLE person (a INTEGER)")
    broken.write_bytes(other.read_bytes()[:5000])
    for path, kind in ((text, InputError), (other, InputError), (broken, StorageError), (tmp_path / "d", StorageError)):
        with pytest.raises(kind) as caught, open_database(path):
            pass
        assert caught.value.what == "the OMOP file"


def test_tables_in_a_schema_with_any_name_are_found_without_it(tmp_path: Path) -> None:
    file = write_omop(tmp_path / "s.duckdb", n_persons=8, schema="cdm \"v5's")
    with open_database(file) as database:
        rows = database.prepare("SELECT year_of_birth, gender_concept_id FROM person")
        assert sum(batch.num_rows for batch in rows.read()) == 8
        assert database.look_up(rows.columns[1]).words == ("8507", "8532")


@pytest.mark.parametrize("inside", ["1", "year_of_birth", "person_id"])
def test_a_query_nested_too_deeply_is_an_error_of_ours(database: OmopDatabase, inside: str) -> None:
    with pytest.raises((InputError, RefusedError)):
        database.prepare(f"SELECT {'-(' * 990}{inside}{')' * 990} AS a FROM person")
