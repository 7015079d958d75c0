"""`mooring cohort`: from OMOP tables to a site's table, and a draft that says nothing of rows."""

import re
from pathlib import Path

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from mooring.protocol.designer.draft import read_draft
from mooring.protocol.messages.study import Study
from mooring.tables.encoder import read_encoded
from tests import commands
from tests.omop import write_omop

duckdb = pytest.importorskip("duckdb")

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "omop" / "cohort.sql"
SUMS = ("--mechanism", "secure-sum")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    write_omop(tmp_path / "hospital.duckdb")
    (tmp_path / "cohort.sql").write_text(EXAMPLE.read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def cohort(place: Path, *words: object, query: str | None = None, **more: object) -> object:
    if query is not None:
        (place / "cohort.sql").write_text(query, encoding="utf-8")
    return commands.run("cohort", "--omop", "hospital.duckdb", "cohort.sql", *words, place=place, **more)


def test_the_example_of_the_documentation_makes_a_table_that_its_study_reads(place: Path) -> None:
    page = (ROOT / "docs" / "omop.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^    mooring (cohort --omop \S+ cohort\.sql --label .*)$", page, re.MULTILINE)
    printed = commands.run(*command.split(), place=place).output
    shown = re.search(r"```text\n(.*?)```", page, re.S)
    assert shown is not None
    assert shown[1].split() == printed.split()
    study = Study.read(place / "study.toml")
    assert {column.name: column.described for column in study.columns} == {
        "age": "0 to 120",
        "sex": "one of male, female",
        "visit": "one of Inpatient Visit, Outpatient Visit",
        "systolic": "0 to 375",
        "creatinine": "0.1 to 60",
    }
    encoded = read_encoded(study.schema, place / "cohort.parquet", labels="require")
    assert encoded.rows.shape == (60, study.n_features)
    assert encoded.labels is not None
    assert 5 < np.sum(encoded.labels) < 55


def test_a_draft_does_not_depend_on_rows(place: Path) -> None:
    cohort(place, "--label", "hypertension", *SUMS)
    first = (place / "study.toml").read_text(encoding="utf-8")
    (place / "study.toml").unlink()
    (place / "hospital.duckdb").unlink()
    write_omop(place / "hospital.duckdb", n_persons=9, seed=1)
    cohort(place, "--label", "hypertension", "--force", *SUMS)
    second = (place / "study.toml").read_text(encoding="utf-8")
    nonce = re.compile(r"nonce = .*")
    assert nonce.sub("", first) == nonce.sub("", second)


@pytest.mark.posix
def test_other_sites_write_the_columns_of_the_study_as_csv_and_change_nothing_of_it(place: Path) -> None:
    cohort(place, "--label", "hypertension", *SUMS)
    agreed = (place / "study.toml").read_bytes()
    cohort(place, "-o", "mine.csv")
    table = pyarrow.csv.read_csv(place / "mine.csv")
    assert table.num_rows == pyarrow.parquet.read_table(place / "cohort.parquet").num_rows == 60
    assert (place / "mine.csv").stat().st_mode & 0o077 == 0
    cohort(place, "-o", "mine.csv", code=2, what="output")
    cohort(place, "-o", "other.csv", "--label", "hypertension", code=2, what="--study")
    cohort(place, "-o", "other.csv", query="SELECT year_of_birth AS age FROM person", code=2, what="the cohort's query")
    assert (place / "study.toml").read_bytes() == agreed
    assert not (place / "other.csv").exists()


def test_persons_are_named_by_the_column_of_persons_alone(place: Path) -> None:
    query = "SELECT person_id, {} year_of_birth FROM person"
    words = ("--person", "person_id", "--question", "tables", *SUMS)
    cohort(place, query=query.format(""), code=4, what="the cohort's query")
    cohort(place, *words, query=query.format("person_source_value AS ward,"), code=4, what="the cohort's query")
    cohort(place, *words, query=query.format("gender_source_value AS patient_name,"), code=4, what="the cohort's query")
    assert sorted(path.name for path in place.iterdir()) == ["cohort.sql", "hospital.duckdb"]
    cohort(place, *words, query=query.format(""))
    study = Study.read(place / "study.toml")
    assert [column.name for column in study.columns] == ["year_of_birth"]
    assert pyarrow.parquet.read_table(place / "cohort.parquet").column_names == ["person_id", "year_of_birth"]
    cohort(place, "-o", "again.parquet", query=query.format(""))
    cohort(place, *words, "-s", "other.toml", query="SELECT year_of_birth FROM person", code=2)


def test_what_nobody_knows_is_left_open_and_the_draft_says_why(place: Path) -> None:
    query = (
        "SELECT count(*) AS visits, max(visit_start_date) AS last_seen, max(m.value_as_number) AS leukocytes, "
        "max(c.value_as_number) AS creatinine, gender_source_value AS source, race_concept_id AS race FROM person "
        "JOIN visit_occurrence USING (person_id) "
        "LEFT JOIN measurement AS m ON m.person_id = person.person_id AND m.measurement_concept_id = 3010813 "
        "LEFT JOIN measurement AS c ON c.person_id = person.person_id AND c.measurement_concept_id = 3016723 "
        "AND c.unit_concept_id = 8749 GROUP BY source, race"
    )
    cohort(place, query=query)
    text = (place / "study.toml").read_text(encoding="utf-8")
    columns = {column["name"]: column for column in read_draft(text).plain["columns"]}
    assert [column.get("range", column.get("categories")) for column in columns.values()] == [[]] * 6
    assert (columns["race"]["missing_words"], columns["source"]["kind"]) == (["0"], "category")
    for name in (
        "leukocytes: Leukocytes [#/volume] in Blood; no plausible range",
        "is in mg/dL, but another range, or the query, has another unit",
    ):
        assert name in text
    assert read_draft(text).n_open == 6


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("SELECT year_of_birth FROM person WHERE year_of_birth > 3000", 2),
        ("SELECT 2023 - year_of_birth AS age, 1 AS AGE FROM person", 2),
        ("SELECT CAST(gender_source_value AS INTEGER) AS sex FROM person", 2),
        ("SELECT [year_of_birth] AS years FROM person", 2),
        ("DELETE FROM person", 4),
        ("SELECT year_of_birth FROM read_parquet('x.parquet')", 4),
    ],
)
def test_a_query_that_cannot_be_used_leaves_no_file(place: Path, query: str, code: int) -> None:
    cohort(place, query=query, code=code)
    assert sorted(path.name for path in place.iterdir()) == ["cohort.sql", "hospital.duckdb"]


def test_a_query_that_fails_after_many_rows_leaves_no_file(place: Path) -> None:
    query = (
        "SELECT CASE WHEN a.person_id * b.person_id * c.person_id = 60 * 60 * 60 "
        "THEN CAST('x' || a.year_of_birth AS INTEGER) ELSE a.year_of_birth END AS year "
        "FROM person AS a, person AS b, person AS c"
    )
    cohort(place, query=query, code=2, what="the cohort's query")
    assert sorted(path.name for path in place.iterdir()) == ["cohort.sql", "hospital.duckdb"]


def test_numbers_of_every_kind_and_days_are_written(place: Path) -> None:
    query = (
        "SELECT sum(year_of_birth) AS whole, CAST(avg(year_of_birth) AS DECIMAL(10, 3)) AS decimal, "
        "max(birth_datetime) AS day, bool_or(year_of_birth > 1950) AS truth FROM person GROUP BY gender_concept_id"
    )
    cohort(place, query=query)
    types = dict(
        zip(
            ["whole", "decimal", "day", "truth"],
            pyarrow.parquet.read_schema(place / "cohort.parquet").types,
            strict=True,
        )
    )
    assert {name: str(kind) for name, kind in types.items()} == {
        "whole": "int64", "decimal": "double", "day": "date32[day]", "truth": "bool"
    }  # fmt: skip


def test_a_database_that_is_being_written_is_an_error(place: Path) -> None:
    with duckdb.connect(str(place / "hospital.duckdb")):
        cohort(place, code=5, what="the OMOP file")
