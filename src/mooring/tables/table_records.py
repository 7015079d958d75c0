"""Reading of tables and of images as records; the schema of a table is inferred."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mooring.errors import InputError, StorageError
from mooring.tables.cells import is_number
from mooring.tables.encoder import encode_table
from mooring.tables.files import CHECK_PLACE, OpenTable, is_table_file, open_table, require_different
from mooring.tables.images.reader import holds_images, read_images
from mooring.tables.inference import RowKeys, choose_encoding, infer_column, read_keys
from mooring.tables.reader import read_columns
from mooring.tables.records import Records
from mooring.tables.schema import MISSING_WORDS, Schema, require_column
from mooring.typing import TableSource


def read_records(
    data: TableSource,
    *,
    label: str | None = None,
    group_by: str | None = None,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
    size: int | tuple[int, int] | None = None,
    image_column: str | None = None,
) -> Records:
    r"""Read images, or a table whose schema is inferred from its cells, as rows of numbers.

    Parameters
    ----------
    data : path or data frame
        Images are read from a folder, an .npz archive, an IDX file, or a Parquet file with a column of bytes whose name
        starts with "image". A table is read from a text file with separators (.csv, .tsv, .data, .txt, each also with
        .gz), from any other Parquet file (.parquet, .pq), or from a data frame. The separator may be a comma, a semicolon
        or a tab. A first line that contains a number and resembles the rows beneath it is a row, and the columns are then
        named "column 1", "column 2", ... Columns of text in Parquet or a data frame are categories, even if all their words
        are numbers. The index of a data frame is ignored.
    label : str, optional
        The column to predict, of a table or of a Parquet file with images. Words, booleans and whole numbers (in a table,
        at most 20 different ones) are classes; other numbers are numbers to predict. Rows without a label are dropped.
    group_by : str, optional
        The column that says which participant, or which person, a row belongs to. It is not a feature. Rows without a
        value there are dropped.
    ignore : sequence of str
        Columns to leave out. For tables only, like the next two parameters.
    categorical : sequence of str
        Columns whose numbers are names of categories.
    missing : sequence of str
        Words that stand for a missing value, such as "-9", besides "?", "NA", "NaN", "null" and empty cells.
    size, image_column
        For images only: see `read_images`.

    Returns
    -------
    Records
        Its `notes` say which columns were left out and why, and how many rows were dropped.

    Notes
    -----
    Numbers are standardised to mean 0 and standard deviation 1 over the given table. In a real study, no participant
    knows the pooled mean, and ranges are declared beforehand instead. A missing number becomes the median; where more than
    1 % are missing, a further feature of zeros and ones marks them. Each category becomes a feature of zeros and ones and,
    if cells are missing, so does the category "missing". Columns are left out if they are empty or constant, have more than
    50 categories, or hold dates, times or other types.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "patients.csv"
    ...     _ = path.write_text("age,smoker,ill\n40,yes,no\n50,no,yes\n60,no,no\n")
    ...     records = read_records(path, label="ill")
    >>> records.feature_names, records.label_names
    (('age', 'smoker=no', 'smoker=yes'), ('no', 'yes'))
    >>> records.rows.round(2).tolist()
    [[-1.22, 0.0, 1.0], [0.0, 1.0, 0.0], [1.22, 1.0, 0.0]]
    """
    for_tables = {"ignore": tuple(ignore), "categorical": tuple(categorical), "missing": tuple(missing)}
    path = Path(data) if isinstance(data, str | Path) else None
    if path is not None and not path.exists():
        raise StorageError("the data file", reason="it is not there", cure=CHECK_PLACE)
    if path is not None and (image_column is not None or holds_images(path)):
        _require_left_out(for_tables, "images")
        return read_images(path, label=label, group_by=group_by, size=size, image_column=image_column)
    if path is not None and not is_table_file(path):
        raise InputError(
            "data file",
            expected="a table (.csv, .csv.gz, .parquet) or images (a folder, .npz, IDX, .parquet)",
            got=f"a file that ends in {path.suffix!r}",
            cure="Save it in one of these forms.",
        )
    _require_left_out({"size": size, "image_column": image_column}, "a table")
    file = open_table(data, agreed=False)
    table, notes = _read_named(file, missing)
    is_text = file.schema is None
    records = infer_table(table, label=label, group_by=group_by, **for_tables, is_text=is_text).records()
    return replace(records, notes=(*notes, *records.notes))


@dataclass(frozen=True, eq=False)
class InferredTable:
    """A table in memory with its inferred schema."""

    schema: Schema
    columns: Any
    """The values of the columns, a pyarrow table with the rows that have a label and a group."""
    keys: RowKeys
    """Labels and groups."""
    left_out: tuple[str, ...]
    """For each column that is left out, a note that says why."""

    def records(self) -> Records:
        """Return the encoded rows."""
        keys = self.keys
        return Records(
            rows=encode_table(self.schema, self.columns),
            labels=keys.labels,
            columns=self.schema.columns,
            feature_names=self.schema.feature_names,
            label_names=keys.label_names,
            groups=keys.groups,
            group_names=keys.group_names,
            notes=(*keys.notes, *self.left_out),
        )


def infer_table(
    table: Any,
    *,
    label: str | None = None,
    group_by: str | None = None,
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    missing: Sequence[str] = (),
    is_text: bool = False,
) -> InferredTable:
    """Infer the schema of a table that `read_columns` returned.

    `is_text` says whether the table comes from a text file, in which numbers are words. The other parameters are as for
    `read_records`.
    """
    _check_columns(table.column_names, label, group_by, ignore, categorical)
    inferred = {
        name: infer_column(name, table.column(name), missing=missing, is_text=is_text, as_category=name in categorical)
        for name in table.column_names
        if name not in ignore
    }
    keys = read_keys(
        None if label is None else inferred.pop(label),
        None if group_by is None else inferred.pop(group_by),
        keep=np.ones(table.num_rows, dtype=np.bool_),
    )
    kept = {name: column.keep(keys.keep) for name, column in inferred.items()}
    encodings = [choose_encoding(column) for column in kept.values()]
    schema = Schema(tuple(encoding for encoding, _ in encodings if encoding is not None))
    left_out = tuple(note for _, note in encodings if note)
    if not schema.columns:
        expected, got = "a table with a column that can be used", "; ".join(left_out) or "no column besides the label"
        raise InputError("data file", expected=expected, got=got, cure="Add columns that vary.")
    columns = pa.table({column.name: kept[column.name].values for column in schema.columns})
    return InferredTable(schema, columns, keys, left_out)


def _read_named(file: OpenTable, missing: Sequence[str]) -> tuple[Any, tuple[str, ...]]:
    """Return the whole table, with names for columns without one, and notes for its owner."""
    notes = tuple[str, ...]()
    if file.schema is None and file.unmapped is None:
        first_line, places = file.names, tuple(f"column {k + 1}" for k in range(len(file.names)))
        table = read_columns(replace(file, names=places))
        if _first_line_is_a_row(first_line, table, missing):
            first_row = pa.table({place: [word] for place, word in zip(places, first_line, strict=True)})
            table = pa.concat_tables([first_row, table])
            notes = ("the first line holds numbers and is read as a row; columns are named by position",)
        else:
            table = table.rename_columns([name or place for name, place in zip(first_line, places, strict=True)])
    else:
        table = read_columns(file)
    require_different(table.column_names)
    if table.num_columns < 2:
        expected, cure = "a table with two columns or more", "Separate columns of text by commas, semicolons or tabs."
        raise InputError("data file", expected=expected, got=f"{table.num_columns} column", cure=cure)
    return table, notes


def _first_line_is_a_row(names: Sequence[str], table: Any, missing: Sequence[str]) -> bool:
    """Whether the names look like cells: some are numbers, and no word is above a column of numbers."""
    words = [k for k, name in enumerate(names) if not is_number(name) and name not in MISSING_WORDS]
    return any(map(is_number, names)) and not any(_holds_numbers(table.column(k), missing) for k in words)


def _holds_numbers(values: Any, missing: Sequence[str]) -> bool:
    return infer_column("", values, missing=missing, is_text=True).kind in ("number", "integer")


def _check_columns(
    names: Sequence[str], label: str | None, group_by: str | None, ignore: Sequence[str], categorical: Sequence[str]
) -> None:
    for what, wanted in (("ignore", ignore), ("categorical", categorical)):
        for name in wanted:
            require_column(what, name, names)
    for what, key in (("label", label), ("group_by", group_by)):
        if key is not None:
            require_column(what, key, names)
            if key in ignore:
                problem = f"The column {key!r} is both {what} and in ignore."
                raise InputError(what, problem=problem, cure="Remove it from ignore.")
    if label is not None and label == group_by:
        problem = f"The column {label!r} is both label and group_by."
        raise InputError("group_by", problem=problem, cure="Choose a different column for one of them.")


def _require_left_out(options: dict[str, Any], source: str) -> None:
    """Refuse options that do not apply to the source."""
    for name, value in options.items():
        if value not in (None, ()):
            raise InputError(name, expected=f"left out for {source}", got=repr(value), cure=f"Leave {name} out.")
