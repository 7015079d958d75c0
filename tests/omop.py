"""A small synthetic OMOP database in DuckDB, for tests and for the example of docs/omop.md: python -m tests.omop FILE.

Everything is invented; concept numbers and LOINC codes are those of the public vocabularies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

CONCEPTS = [
    (8507, "MALE", "Gender", "Gender", "M"),
    (8532, "FEMALE", "Gender", "Gender", "F"),
    (9201, "Inpatient Visit", "Visit", "Visit", "IP"),
    (9202, "Outpatient Visit", "Visit", "Visit", "OP"),
    (3004249, "Systolic blood pressure", "Measurement", "LOINC", "8480-6"),
    (3016723, "Creatinine [Mass/volume] in Serum or Plasma", "Measurement", "LOINC", "2160-0"),
    (3010813, "Leukocytes [#/volume] in Blood", "Measurement", "LOINC", "26464-8"),
    (8876, "millimeter mercury column", "Unit", "UCUM", "mm[Hg]"),
    (8840, "milligram per deciliter", "Unit", "UCUM", "mg/dL"),
    (8749, "micromole per liter", "Unit", "UCUM", "umol/L"),
    (316866, "Hypertensive disorder", "Condition", "SNOMED", "38341003"),
]
"""Number, name, domain, vocabulary and code."""
TABLES = """
CREATE TABLE {schema}concept (concept_id INTEGER, concept_name VARCHAR, domain_id VARCHAR, vocabulary_id VARCHAR,
    concept_code VARCHAR, standard_concept VARCHAR, invalid_reason VARCHAR);
CREATE TABLE {schema}person (person_id INTEGER, gender_concept_id INTEGER, year_of_birth INTEGER, birth_datetime TIMESTAMP,
    race_concept_id INTEGER, person_source_value VARCHAR, gender_source_value VARCHAR);
CREATE TABLE {schema}observation_period (observation_period_id INTEGER, person_id INTEGER,
    observation_period_start_date DATE, observation_period_end_date DATE);
CREATE TABLE {schema}visit_occurrence (visit_occurrence_id INTEGER, person_id INTEGER, visit_concept_id INTEGER,
    visit_start_date DATE, visit_end_date DATE);
CREATE TABLE {schema}condition_occurrence (condition_occurrence_id INTEGER, person_id INTEGER, condition_concept_id INTEGER,
    condition_start_date DATE, visit_occurrence_id INTEGER);
CREATE TABLE {schema}measurement (measurement_id INTEGER, person_id INTEGER, measurement_concept_id INTEGER,
    measurement_date DATE, value_as_number DOUBLE, value_as_concept_id INTEGER, unit_concept_id INTEGER,
    visit_occurrence_id INTEGER, measurement_source_value VARCHAR);
"""


def write_omop(path: Path, *, n_persons: int = 60, seed: int = 7, schema: str = "") -> Path:
    """Write the database; `schema` is the name of the one that the tables are in."""
    import duckdb

    rng = np.random.default_rng(seed)
    rows: dict[str, list[Sequence[Any]]] = {
        "concept": [(*concept, "S", None) for concept in CONCEPTS],
        "person": [],
        "observation_period": [],
        "visit_occurrence": [],
        "condition_occurrence": [],
        "measurement": [],
    }
    for person in range(1, n_persons + 1):
        year, is_ill = int(rng.integers(1935, 2000)), bool(rng.random() < 0.4)
        gender = 8507 if rng.random() < 0.5 else 8532
        rows["person"].append((person, gender, year, f"{year}-06-01", 0, f"MRN-{person:05}", "MF"[gender == 8532]))
        rows["observation_period"].append((person, person, "2020-01-01", "2024-12-31"))
        rows["visit_occurrence"].append((person, person, 9201 if is_ill else 9202, "2023-03-01", "2023-03-04"))
        if is_ill:
            rows["condition_occurrence"].append((person, person, 316866, "2023-03-01", person))
        for concept, value, unit in (
            (3004249, rng.normal(150 if is_ill else 122, 11), 8876),
            (3016723, rng.normal(1.0, 0.15), 8840),
        ):
            number = len(rows["measurement"]) + 1
            rows["measurement"].append(
                (number, person, concept, "2023-03-01", round(value, 2), None, unit, person, None)
            )
    quoted = '"' + schema.replace('"', '""') + '"'
    prefix = f"{quoted}." if schema else ""
    with duckdb.connect(str(path)) as connection:
        if schema:
            connection.execute(f"CREATE SCHEMA {quoted}")
        connection.execute(TABLES.format(schema=prefix))
        for table, entries in rows.items():
            marks = ", ".join("?" * len(entries[0]))
            connection.executemany(f"INSERT INTO {prefix}{table} VALUES ({marks})", entries)
    return path


if __name__ == "__main__":
    write_omop(Path(sys.argv[1]))
