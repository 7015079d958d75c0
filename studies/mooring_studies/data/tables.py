"""The tables of the studies beyond images: four hospitals' heart-disease files, and the Adult census.

Neither is part of mooring. Both are in the UCI Machine Learning Repository, as 'Heart Disease' (the four processed files)
and as 'Adult'; the files, as they are or with .gz, go into heart_disease/ and adult/ in the data folder.

Rows stay in the units of the files, with gaps: they are put on one scale only when they are dealt, so that test rows have no
part in it (`mooring_studies.tabular.scaling`). Which columns and categories there are is told from all rows; in a
real study it is declared beforehand.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables import MISSING_WORDS, Records, read_table
from mooring.typing import Matrix
from mooring_studies.data.downloads import cut_short, data_folder, missing
from mooring_studies.data.table_values import GAP, KNOWN_VALUES, checked_rows, values_checksum

HOSPITALS: Mapping[str, int] = {"cleveland": 303, "hungarian": 294, "switzerland": 123, "va": 200}
"""Each hospital's file and how many rows it has; in this order they are the participants."""

CENSUS_FILES: Mapping[str, int] = {"adult.data": 32_561, "adult.test": 16_281}

_ALSO_MISSING = ("-9",)
_HEART_COLUMNS = tuple(f"X{k}" for k in range(1, 15))
_HEART_CATEGORIES = ("X3", "X7", "X11", "X13")
_NEVER_ZERO = ("X4", "X5")  # blood pressure and cholesterol: where a hospital wrote 0, nobody had measured
_CENSUS_COLUMNS = (
    "age",
    "work",
    "weight",
    "education",
    "years of education",
    "marriage",
    "occupation",
    "relationship",
    "race",
    "sex",
    "gain",
    "loss",
    "hours",
    "country",
    "income",
)
_CENSUS_UNUSED = ("weight", "education")  # a sampling weight; the years of education in words
_CENSUS_NUMBERS = ("age", "weight", "years of education", "gain", "loss", "hours")
_INCOMES = ("<=50K", ">50K")


@dataclass(frozen=True, eq=False)
class TableRows:
    """A study's rows and where they came from.

    Attributes
    ----------
    records : Records
        Numbers in the units of the file, 0 where they are missing.
    missing : array of bool, of shape (n_rows, n_features)
    checksums : mapping of str to str
        SHA-256 of each file's content, unpacked.
    how : tuple of str
        What was done to the rows that a reader of results should know.
    unlike : tuple of str
        Which files are not those that our numbers were made from, in words.
    """

    records: Records
    missing: npt.NDArray[np.bool_] = field(repr=False)
    checksums: Mapping[str, str]
    how: tuple[str, ...]
    unlike: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """All that a reader of results should know; what is unlike our own comes first."""
        return (*self.unlike, *self.how)

    def values(self, indices: npt.NDArray[np.int64]) -> Matrix:
        """Some rows, with NaN for what is missing."""
        return np.where(self.missing[indices], np.nan, self.records.rows[indices])


def load_hospitals(data_dir: Path | None) -> TableRows:
    """Read the four hospitals' heart-disease files; the group of a row is its hospital, the label whether X14 > 0."""
    rows, checksums, unlike = list[list[str]](), dict[str, str](), list[str]()
    for hospital, expected in HOSPITALS.items():
        file = _read(data_dir, "heart_disease", f"processed.{hospital}.data")
        found = [fields for fields in file.lines if fields[0].upper() != "X1"]
        _require_rows(file, found, expected, width=len(_HEART_COLUMNS))
        found = checked_rows(
            file.path,
            file.data_set,
            found,
            _HEART_COLUMNS,
            numbers=_HEART_COLUMNS,
            label="X14",
            also_missing=_ALSO_MISSING,
        )
        rows += [[*_heart_values(fields), hospital] for fields in found]
        checksums[file.name] = file.checksum
        unlike += _unlike(file, found)
    records, missing_values = _as_records(
        (*_HEART_COLUMNS, "hospital"), rows, label="X14", group_by="hospital", categorical=_HEART_CATEGORIES
    )
    notes = ("a blood pressure or cholesterol of 0 is read as missing",)
    return TableRows(records, missing_values, checksums, (*_STANDARDISED, *notes), tuple(unlike))


def load_census(data_dir: Path | None) -> TableRows:
    """Read both files of the Adult census as one table; the label is whether income is above 50,000."""
    rows, checksums, unlike = list[list[str]](), dict[str, str](), list[str]()
    for name, expected in CENSUS_FILES.items():
        file = _read(data_dir, "adult", name)
        found = [fields for fields in file.lines if not fields[0].startswith("|")]
        _require_rows(file, found, expected, width=len(_CENSUS_COLUMNS))
        found = [[*fields[:-1], fields[-1].rstrip(".")] for fields in found]
        found = checked_rows(
            file.path, file.data_set, found, _CENSUS_COLUMNS, numbers=_CENSUS_NUMBERS, label="income", classes=_INCOMES
        )
        rows += found
        checksums[file.name] = file.checksum
        unlike += _unlike(file, found)
    records, missing_values = _as_records(_CENSUS_COLUMNS, rows, label="income", drop=_CENSUS_UNUSED)
    notes = ("the sampling weight and the education in words (a copy of its years) are left out",)
    return TableRows(records, missing_values, checksums, (*_STANDARDISED, *notes), tuple(unlike))


SOURCES: Mapping[str, Callable[[Path | None], TableRows]] = {"hospitals": load_hospitals, "census": load_census}
"""The tables by name."""

_STANDARDISED = (
    "numbers are standardised, and missing ones filled with the median, over everybody's training rows (and public ones) "
    "together; in a real study declared ranges take their place",
    "which columns and categories there are is told from all rows, as a form declared beforehand would tell it",
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
    """A file's lines that are not empty, as fields, and the checksum of its content."""

    path: Path
    name: str
    data_set: str
    lines: list[list[str]]
    checksum: str


def _read(data_dir: Path | None, data_set: str, name: str) -> _File:
    root = data_folder(data_dir)
    places = [root / "tabular" / data_set, root / data_set, root]
    candidates = [place / (name + suffix) for place in places for suffix in ("", ".gz")]
    path = next((path for path in candidates if path.is_file()), None)
    if path is None:
        raise missing(
            f"{data_set}/{name}", looked_in=f"{places[1] / name}, and no such file with .gz or in {places[2]}"
        )
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = content.decode("utf-8")
    except (EOFError, zlib.error, OSError, UnicodeDecodeError):
        raise cut_short(path, data_set, reason="it cannot be read") from None
    return _File(path, name, data_set, list(_fields(text)), hashlib.sha256(content).hexdigest())


def _fields(text: str) -> Iterator[list[str]]:
    for line in csv.reader(text.splitlines(), skipinitialspace=True):
        fields = [field.strip() for field in line]
        if any(fields):
            yield fields


def _require_rows(file: _File, rows: Sequence[Sequence[str]], expected: int, *, width: int) -> None:
    """Refuse half a file: studies of other rows cannot be compared."""
    odd = next((fields for fields in rows if len(fields) != width), None)
    if odd is not None:
        raise cut_short(file.path, file.data_set, reason=f"a line has {len(odd)} fields in place of {width}")
    if len(rows) != expected:
        raise cut_short(file.path, file.data_set, reason=f"it has {len(rows):,} rows in place of {expected:,}")


def _unlike(file: _File, rows: Sequence[Sequence[str]]) -> list[str]:
    found = values_checksum(rows)
    if found == KNOWN_VALUES[file.name]:
        return []
    return [f"{file.name} has other values than the file that mooring's own numbers were made from: {file.checksum}"]


def _heart_values(fields: Sequence[str]) -> list[str]:
    values = dict(zip(_HEART_COLUMNS, fields, strict=True))
    for column in _NEVER_ZERO:
        if values[column] != GAP and float(values[column]) == 0:
            values[column] = GAP
    if values["X14"] != GAP:
        values["X14"] = "ill" if float(values["X14"]) > 0 else "well"
    return list(values.values())


def _as_records(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    label: str,
    group_by: str | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> tuple[Records, npt.NDArray[np.bool_]]:
    """Read the rows as the one table that they are, so that columns mean the same for every participant.

    The reader standardises over all rows; its numbers are replaced by those of the file.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "together.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(rows)
        records = read_table(
            path, label=label, group_by=group_by, drop=drop, categorical=categorical, missing=_ALSO_MISSING
        )
    if records.n_rows != len(rows):
        raise InputError(
            "the rows",
            expected="each with a label",
            got=f"{len(rows) - records.n_rows} without",
            cure="Fetch them again.",
        )
    values = records.rows.copy()
    for k, (name, kind) in enumerate(zip(records.feature_names, records.feature_kinds, strict=True)):
        if kind != "category":
            place = columns.index(name)
            values[:, k] = [_number(fields[place]) for fields in rows]
    gaps = np.isnan(values)
    return replace(records, rows=np.where(gaps, 0.0, values), centres=None, scales=None), gaps


def _number(word: str) -> float:
    """A number as the file has it; NaN where it stands for a missing one."""
    number = np.nan if word in MISSING_WORDS else float(word)
    return np.nan if number in [float(one) for one in _ALSO_MISSING] else number
