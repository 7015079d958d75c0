"""Turns the UCI heart-disease files into one table of rows and one of later rows for each hospital.

    python prepare.py FOLDER-WITH-THE-DATA OUTPUT-FOLDER

Columns get names, coded values get words, and the label says whether a coronary artery is narrowed by more than half. Three
quarters of a hospital's rows go to rows.csv, to be shared; every fourth of each class goes to new-rows.csv, to be scored
later. All of it happens at the hospital: nothing here looks at two hospitals at once.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

HOSPITALS = {"cleveland": "cleveland", "hungarian": "hungary", "switzerland": "switzerland", "va": "long-beach"}
NO_YES = {0.0: "no", 1.0: "yes"}
# As heart-disease.names explains them: the column, and what its codes mean (None: a number).
COLUMNS: tuple[tuple[str, dict[float, str] | None], ...] = (
    ("age", None),
    ("sex", {0.0: "female", 1.0: "male"}),
    ("chest_pain", {1.0: "typical", 2.0: "atypical", 3.0: "other", 4.0: "none"}),
    ("blood_pressure", None),
    ("cholesterol", None),
    ("high_sugar", NO_YES),
    ("resting_ecg", {0.0: "normal", 1.0: "st-t", 2.0: "hypertrophy"}),
    ("highest_rate", None),
    ("exercise_angina", NO_YES),
    ("st_depression", None),
    ("st_slope", {1.0: "up", 2.0: "flat", 3.0: "down"}),
    ("vessels", None),
    ("thallium", {3.0: "normal", 6.0: "fixed", 7.0: "reversible"}),
)
LABEL = "disease"
MISSING = ("?", "-9", "-9.0", "")
NEVER_ZERO = ("blood_pressure", "cholesterol")  # where a hospital wrote 0, nobody had measured


def main() -> None:
    """Read every hospital's file and write its two tables."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    for file, hospital in HOSPITALS.items():
        path = source / f"processed.{file}.data"
        if not path.is_file():
            sys.exit(f"prepare.py: {path.name} is not in the folder given.")
        records = sorted(read(path), key=lambda record: record[-1])
        later = [k % 4 == 3 for k in range(len(records))]
        write(
            output / hospital / "rows.csv", [row for row, is_later in zip(records, later, strict=True) if not is_later]
        )
        write(
            output / hospital / "new-rows.csv", [row for row, is_later in zip(records, later, strict=True) if is_later]
        )


def read(path: Path) -> Iterator[list[str]]:
    """The rows of one hospital's file, in words; a first line of column names (X1, X2, ...) is passed over."""
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.reader(file):
            fields = [field.strip() for field in line]
            if not any(fields) or fields[0].upper() == "X1":
                continue
            if len(fields) != len(COLUMNS) + 1:
                sys.exit(f"prepare.py: {path.name} has a line of {len(fields)} fields in place of {len(COLUMNS) + 1}.")
            values = [in_words(field, *column) for field, column in zip(fields, COLUMNS, strict=False)]
            yield [*values, "yes" if float(fields[-1]) > 0 else "no"]


def in_words(field: str, name: str, codes: dict[float, str] | None) -> str:
    """One value: a number as it is, a code as its word, and ? for what is missing."""
    if field in MISSING or (name in NEVER_ZERO and float(field) == 0):
        return "?"
    return field if codes is None else codes.get(float(field), "?")  # a code that the names do not explain is none


def write(path: Path, records: list[list[str]]) -> None:
    """A table with a header."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*(name for name, _ in COLUMNS), LABEL])
        writer.writerows(records)


if __name__ == "__main__":
    main()
