"""The tables of the studies beyond images: heart disease in four hospitals, the Adult census, diabetes, credit default.

None is part of mooring. All are in the UCI Machine Learning Repository; the files, as they are or with .gz, go into
heart_disease/ (the four processed files), adult/, diabetes130/ and credit_default/ in the data folder.

Which columns and categories there are is inferred from all rows; in a real study it is declared beforehand. Numbers are
standardised only once rows are partitioned (`standardise`), so that test rows have no part in it.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring import InputError
from mooring.tables import (
    MISSING_WORDS,
    Column,
    OpenTable,
    Partition,
    Records,
    Schema,
    encode_table,
    fit_scale,
    infer_table,
    read_columns,
)
from mooring.typing import Matrix
from mooring_studies.data.downloads import changed, cut_short, data_folder, find_packed, missing

HOSPITALS: Mapping[str, int] = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
"""Each hospital's file and how many rows it has; in this order they are the participants."""

CENSUS_FILES: Mapping[str, int] = {"adult.data": 32_561, "adult.test": 16_281}

CREDIT_ROWS, DIABETES_ROWS = 30_000, 101_766

_ALSO_MISSING = ("-9",)
GAP = "?"
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_HEART_COLUMNS = tuple(f"X{k}" for k in range(1, 15))
_HEART_CATEGORIES = ("X3", "X7", "X11", "X13")
_NEVER_ZERO = ("X4", "X5")  # blood pressure and cholesterol: where a hospital wrote 0, nobody had measured
_CENSUS_COLUMNS = (
    *("age", "work", "weight", "education", "years of education", "marriage", "occupation", "relationship"),
    *("race", "sex", "gain", "loss", "hours", "country", "income"),
)
_CENSUS_UNUSED = ("weight", "education")  # a sampling weight; the years of education in words
_CENSUS_NUMBERS = ("age", "weight", "years of education", "gain", "loss", "hours")
_INCOMES = ("<=50K", ">50K")
_CREDIT_CATEGORIES = ("SEX", "EDUCATION", "MARRIAGE")
_DEFAULT = "default.payment.next.month"
_CREDIT_COLUMNS = (
    "LIMIT_BAL",
    *_CREDIT_CATEGORIES,
    "AGE",
    *(f"PAY_{k}" for k in (0, 2, 3, 4, 5, 6)),
    *(f"{what}_AMT{k}" for what in ("BILL", "PAY") for k in range(1, 7)),
    _DEFAULT,
)
_DIABETES_NUMBERS = (
    "age",
    "time_in_hospital",
    *(f"num_{what}" for what in ("lab_procedures", "procedures", "medications")),
    *(f"number_{what}" for what in ("outpatient", "emergency", "inpatient", "diagnoses")),
)
_DIABETES_CATEGORIES = (
    "race",
    "gender",
    "medical_specialty",
    "payer_code",
    *("diag_1", "diag_2", "diag_3", "max_glu_serum", "A1Cresult"),
    *("metformin", "glimepiride", "glipizide", "glyburide", "pioglitazone", "rosiglitazone", "insulin"),
    *("change", "diabetesMed", "admission_type_id", "discharge_disposition_id", "admission_source_id"),
)
_SPECIALTIES = (
    *("InternalMedicine", "Emergency/Trauma", "Family/GeneralPractice", "Cardiology"),
    *("Surgery-General", "Nephrology", "Orthopedics"),
)
_ICD_CHAPTERS = (  # of ICD-9, as Strack et al. (2014) group them: first and last whole codes
    *(("diabetes", 250, 250), ("neoplasms", 140, 239), ("circulatory", 390, 459), ("circulatory", 785, 785)),
    *(("respiratory", 460, 519), ("respiratory", 786, 786), ("digestive", 520, 579), ("digestive", 787, 787)),
    *(("genitourinary", 580, 629), ("genitourinary", 788, 788), ("musculoskeletal", 710, 739), ("injury", 800, 999)),
)


KNOWN_VALUES: Mapping[str, str] = {
    "processed.cleveland.data": "bb4252811d4b51ddeba725b47e1c476e77ba21ea1b9e4d06f022166fb9e2e555",
    "processed.hungarian.data": "1779eccd017b4c03c5c9df161b99cc7e059940dd38168ea202209a49b7072d04",
    "processed.switzerland.data": "9e2a578a46363f412741c11cf97b54aa5675cfdab7b5b19c6f7452414f4ca1bf",
    "processed.va.data": "eb477d882bad73cbe605f8aef4350d8128cde20b3c931f1d5a5d2e0635a4f50b",
    "adult.data": "58fad3194d6cafb0cc477374e56e562b815766f0e82123837c75fc910dd38d62",
    "adult.test": "646cf5ae75a8c9a12cc8e74b23a99613b736fa1e9c641ea93fd944c85d09a3dc",
    "UCI_Credit_Card.csv": "24b26b5434132e6486a76b14a6633f0c8a259a05cc89c5b280f9f76391bfea91",
    "diabetic_data.csv": "76e40154ddaa6dbc5c293fefa678922d69811ef23b97b4e7791d8efd7997d103",
}
"""SHA-256 of the values of the files that our numbers were made from, however they are written: `values_checksum`."""


@dataclass(frozen=True, eq=False)
class TableRows:
    """A study's rows and where they came from."""

    records: Records
    """Numbers standardised over all rows."""
    schema: Schema = field(repr=False)
    columns: Any = field(repr=False)
    """The same rows in the units of the file, with nulls for what is missing."""
    checksums: Mapping[str, str]
    """SHA-256 of each file's content, unpacked."""
    how: tuple[str, ...]
    """What was done to the rows that a reader of results should know."""
    unlike: tuple[str, ...] = ()
    """Which files are not those that our numbers were made from, in words."""

    @property
    def notes(self) -> tuple[str, ...]:
        """All that a reader of results should know; what is unlike our own comes first."""
        return (*self.unlike, *self.how)


def standardise(parts: Partition, tables: TableRows) -> tuple[Partition, tuple[Column, ...]]:
    """The same partition of `tables.records`, with numbers standardised by its training and public rows; the columns."""
    known = np.concatenate([*parts.train_indices, parts.public_indices])
    schema = fit_scale(tables.schema, tables.columns.take(known))

    def rows(indices: npt.NDArray[np.int64]) -> Matrix:
        return encode_table(schema, tables.columns.take(indices))

    encoded = replace(
        parts,
        train=tuple(rows(indices) for indices in parts.train_indices),
        test=tuple(rows(indices) for indices in parts.test_indices),
        public=None if parts.public is None else rows(parts.public_indices),
    )
    return encoded, schema.columns


def load_hospitals(data_dir: Path | None) -> TableRows:
    """Read the four hospitals' heart-disease files; the group of a row is its hospital, the label whether X14 > 0."""
    files = []
    for hospital, n_rows in HOSPITALS.items():
        file = _read(data_dir, "heart_disease", f"processed.{hospital}.data", _HEART_COLUMNS, n_rows)
        files.append(_check(file, numbers=_HEART_COLUMNS, label="X14"))
    table = pa.concat_tables([file.table for file in files])
    for name in _NEVER_ZERO:
        values = table.column(name)
        unmeasured = pc.equal(values, 0.0)
        table = table.set_column(
            table.column_names.index(name), name, pc.if_else(unmeasured, pa.scalar(None, pa.float64()), values)
        )
    ill = pc.if_else(pc.greater(table.column("X14"), 0.0), "ill", "well")
    table = table.set_column(table.column_names.index("X14"), "X14", ill)
    names = np.repeat(list(HOSPITALS), [file.table.num_rows for file in files])
    table = table.append_column("hospital", pa.array(names.tolist()))
    note = "a blood pressure or cholesterol of 0 is read as missing"
    return _as_rows(files, note, table, label="X14", group_by="hospital", categorical=_HEART_CATEGORIES)


def load_census(data_dir: Path | None) -> TableRows:
    """Read both files of the Adult census as one table; the label is whether income is above 50,000."""
    files = []
    for name, n_rows in CENSUS_FILES.items():
        file = _read(data_dir, "adult", name, _CENSUS_COLUMNS, n_rows)
        income = pc.utf8_rtrim(file.table.column("income").cast(pa.string()), characters=" .")
        table = file.table.set_column(file.table.column_names.index("income"), "income", income)
        files.append(_check(replace(file, table=table), numbers=_CENSUS_NUMBERS, label="income", classes=_INCOMES))
    note = "the sampling weight and the education in words (a copy of its years) are left out"
    table = pa.concat_tables([file.table for file in files]).unify_dictionaries()
    return _as_rows(files, note, table, label="income", ignore=_CENSUS_UNUSED, is_text=True)


def load_credit(data_dir: Path | None) -> TableRows:
    """Read credit card clients in Taiwan; the label is whether the next payment is in default."""
    file = _read(data_dir, "credit_default", "UCI_Credit_Card.csv", _CREDIT_COLUMNS, CREDIT_ROWS)
    file = _check(file, numbers=_CREDIT_COLUMNS, label=_DEFAULT)
    missed = pc.if_else(pc.greater(file.table.column(_DEFAULT), 0.0), "default", "paid")
    table = file.table.set_column(file.table.column_names.index(_DEFAULT), _DEFAULT, missed)
    return _as_rows(
        [file], "amounts of exactly -9 are read as missing", table, label=_DEFAULT, categorical=_CREDIT_CATEGORIES
    )


def load_diabetes(data_dir: Path | None, *, early: bool) -> TableRows:
    """Read encounters of diabetes in 130 hospitals; the group of a row is its patient."""
    file = _read(data_dir, "diabetes130", "diabetic_data.csv", (), DIABETES_ROWS)
    used = ("patient_nbr", *_DIABETES_NUMBERS, *_DIABETES_CATEGORIES, "readmitted")
    if absent := [name for name in used if name not in file.table.column_names]:
        raise changed(file.path, file.data_set, reason=f"it has no column {absent[0]!r}")
    table, recoded = file.table.select(used), {"age": _first_year, "medical_specialty": _common_specialty}
    for name, recode in (recoded | {f"diag_{k}": _icd_chapter for k in (1, 2, 3)}).items():
        words = table.column(name).cast(pa.string()).combine_chunks().dictionary_encode()
        values = pa.array([recode(word) for word in words.dictionary.to_pylist()]).take(words.indices)
        table = table.set_column(table.column_names.index(name), name, values)
    file = replace(file, table=table)
    file = _check(file, numbers=("patient_nbr", *_DIABETES_NUMBERS), label="readmitted", classes=("NO", "<30", ">30"))
    positive = ["<30"] if early else ["<30", ">30"]
    again = pc.is_in(file.table.column("readmitted").cast(pa.string()), pa.array(positive))
    table = file.table.set_column(len(used) - 1, "readmitted", pc.if_else(again, "yes", "no"))
    note = "diagnoses are grouped by chapters of ICD-9, rare specialties together; patients have several rows"
    options = {"label": "readmitted", "group_by": "patient_nbr", "categorical": _DIABETES_CATEGORIES}
    return _as_rows([file], note, table, **options)


def _first_year(age: str) -> str:
    """Return the first year of an age group such as [60-70)."""
    return age.strip("[)").partition("-")[0]


def _common_specialty(word: str) -> str:
    return word if word in (GAP, *_SPECIALTIES) else "other"


def _icd_chapter(code: str) -> str:
    if code == GAP or not _NUMBER.fullmatch(code):
        return GAP if code == GAP else "other"
    return next((name for name, low, high in _ICD_CHAPTERS if low <= int(float(code)) <= high), "other")


SOURCES: Mapping[str, Callable[[Path | None], TableRows]] = {
    "hospitals": load_hospitals,
    "census": load_census,
    "credit": load_credit,
    "diabetes": partial(load_diabetes, early=False),
    "diabetes within 30 days": partial(load_diabetes, early=True),
}
"""The tables by name."""

_STANDARDISED = (
    "numbers are standardised, and missing ones filled with the median, over everybody's training rows (and public ones) "
    "together; in a real study declared ranges take their place",
    "columns and categories are taken from all rows, as a form declared beforehand would state them",
)


def load_tables(source: str, data_dir: Path | None) -> TableRows:
    """Read the tables called `source`."""
    if source not in SOURCES:
        raise InputError(
            "source of [options]", expected=f"one of {', '.join(SOURCES)}", got=repr(source), cure="Correct it."
        )
    return SOURCES[source](data_dir)


@dataclass(frozen=True, eq=False)
class _File:
    """A file's columns as words or numbers, with nulls for missing numbers, and the checksum of its content."""

    path: Path
    name: str
    data_set: str
    table: Any
    checksum: str


def _read(data_dir: Path | None, data_set: str, name: str, columns: tuple[str, ...], n_rows: int) -> _File:
    """Read a file of known columns, or of those that its first line names; half a file is refused."""
    root = data_folder(data_dir)
    path = find_packed(root, data_set, name)
    if path is None:
        looked_in = f"{root / data_set / name}, and no such file with .gz or in {root}"
        raise missing(f"{data_set}/{name}", looked_in=looked_in)
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, zlib.error, OSError):
        raise cut_short(path, data_set, reason="it cannot be read") from None
    heading = content.partition(b"\n")[0].decode(errors="replace").strip().split(",")
    columns = columns or tuple(heading)
    has_heading = heading[0].upper() == columns[0].upper() or content.startswith(b"|")
    file = OpenTable(path, columns, ",", n_skipped=int(has_heading))
    try:
        table = read_columns(file)
    except InputError as error:
        raise cut_short(path, data_set, reason=f"{error.what} is not {error.expected}: {error.got}") from None
    if table.num_rows != n_rows:
        raise cut_short(path, data_set, reason=f"it has {table.num_rows:,} rows in place of {n_rows:,}")
    return _File(path, name, data_set, table, hashlib.sha256(content).hexdigest())


def _check(file: _File, *, numbers: Sequence[str], label: str, classes: Sequence[str] = ()) -> _File:
    """The file with numbers as numbers; refuse a value that cannot be, by its row and column."""
    contents, checked = [], {}
    for k, name in enumerate(file.table.column_names):
        words = _trimmed(file.table.column(name))
        if name in numbers:
            trouble, wrong = "no number", _rows_with(words, lambda word: not _NUMBER.fullmatch(word))
        elif name == label:
            trouble, wrong = f"none of {', '.join(classes)}", _rows_with(words, lambda word: word not in classes)
        else:
            trouble, wrong = "nothing", _rows_with(words, lambda word: word in MISSING_WORDS)
        if wrong.any():
            contents.append((int(wrong.argmax()), k, f"{trouble} in column {name!r}"))
        elif name in numbers:
            words = words.dictionary.cast(pa.float64()).take(words.indices)
        checked[name] = words
    if contents:
        row, _, trouble = min(contents)
        reason = f"row {row + 1} has {trouble}; '?' is what stands for a missing value"
        raise changed(file.path, file.data_set, reason=reason)
    return replace(file, table=pa.table(checked))


def _trimmed(column: Any) -> Any:
    """A column as a dictionary of words, null where they stand for a missing value."""
    words = pc.utf8_trim_whitespace(column.cast(pa.string()).combine_chunks())
    absent = pc.is_in(words, pa.array([GAP, *_ALSO_MISSING]))
    return pc.if_else(absent, pa.scalar(None, pa.string()), words).dictionary_encode()


def _rows_with(words: Any, is_wrong: Callable[[str], Any]) -> npt.NDArray[np.bool_]:
    wrong = np.array([*(bool(is_wrong(word)) for word in words.dictionary.to_pylist()), False])
    return np.asarray(wrong[words.indices.fill_null(len(wrong) - 1).to_numpy()])


def _as_rows(files: Sequence[_File], note: str, table: Any, **options: Any) -> TableRows:
    """One table of all files, so that columns mean the same for every participant."""
    inferred = infer_table(table, missing=_ALSO_MISSING, **options)
    n_without = int(np.count_nonzero(~inferred.keys.keep))
    if n_without:
        raise InputError("the rows", expected="each with a label", got=f"{n_without} without", cure="Fetch them again.")
    other = "{0.name} has other values than the file that mooring's own numbers were made from: {0.checksum}"
    return TableRows(
        inferred.records(),
        inferred.schema,
        inferred.columns,
        {file.name: file.checksum for file in files},
        (*_STANDARDISED, note),
        tuple(other.format(file) for file in files if _checksum(file.table) != KNOWN_VALUES[file.name]),
    )


def _checksum(table: Any) -> str:
    columns = [[GAP if word is None else str(word) for word in column.to_pylist()] for column in table.columns]
    return values_checksum(zip(*columns, strict=True))


def values_checksum(rows: Iterable[Sequence[str]]) -> str:
    """SHA-256 of values, not of how they are written: 63 is 63.0, and a line of headings counts for nothing.

    Examples
    --------
    >>> values_checksum([["63", "?"]]) == values_checksum([["63.0", "?"]]) != values_checksum([["64", "?"]])
    True
    """
    sha = hashlib.sha256()
    for fields in rows:
        words = [repr(float(word)) if _NUMBER.fullmatch(word) else word for word in fields]
        sha.update((",".join(words) + "\n").encode())
    return sha.hexdigest()
