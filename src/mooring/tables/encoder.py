"""Rows of a table as rows of numbers, by its schema.

Every participant of a study encodes alike without seeing the others' rows: a number's declared range becomes −1 … 1, a
category becomes a column of zeros and ones a word. What does not fit is refused by row and column, and no message quotes
a value. For an audit the same is done by an inferred schema, whose numbers are standardised instead.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.column_encoder import (
    MISSING_VALUE,
    InvalidValue,
    as_text,
    cell_value,
    encode_column,
    encode_numbers,
    is_number,
    read_cells,
    require_readable,
)
from mooring.tables.files import TableFile, no_rows, open_table
from mooring.tables.reader import table_batches
from mooring.tables.schema import MISSING_WORDS, Column, Schema
from mooring.typing import Matrix, Progress

LabelUse = Literal["require", "allow", "ignore"]
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Some rows of a table, encoded.

    Attributes
    ----------
    rows : array of shape (n, m)
        In the order of `Schema.feature_names`. Laid out column by column.
    labels : array of shape (n,) or None
        Positions among the classes, or numbers as they are.
    values : array of shape (n, n_columns) or (n, n_columns + 1)
        One number a column of the table, and last the label if it was read: for fingerprints of records. It depends on
        the cell alone (`cell_value`): no kind, range, category, missing word or rule that a study declares enters.
    first_row : int
        Number of the first of them in the file, from 1, the header not counted.
    persons : array of shape (n,) or None
        Equal numbers for rows of one person, where a column that names persons was asked for.
    """

    rows: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None
    values: npt.NDArray[np.float64]
    first_row: int
    persons: npt.NDArray[np.float64] | None = None


def encoded_batches(
    schema: Schema,
    path: str | Path,
    *,
    labels: LabelUse = "require",
    ignore: Sequence[str] = (),
    person: str = "",
    rows_at_once: int = _ROWS_AT_ONCE,
    progress: Progress | None = None,
) -> Iterator[EncodedRows]:
    r"""Encode a table batch after batch, in bounded memory.

    Parameters
    ----------
    schema : Schema
    path : path
        Text with separators or Parquet: see `mooring.tables.reader`.
    labels : {"require", "allow", "ignore"}
        Whether the label's column must be there; with "ignore" it is not read even if it is.
    ignore : sequence of str
        Columns of the file that the schema does not have, and that are left out.
    person : str
        A further column of the file, which names persons; empty for none.
    rows_at_once : int
        At most; batches of wide tables are shorter.
    progress : callable, optional
        Is called with bytes read and bytes in all.

    Raises
    ------
    InputError
        For the first row of the file that does not fit the schema, with its number and column and never its value.

    Examples
    --------
    >>> import tempfile
    >>> from mooring.tables import Label
    >>> schema = Schema((Column("age", "number", 0, 100),), Label("ill", "classes", ("no", "yes")))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "patients.csv"
    ...     _ = path.write_text("ill,age\nno,50\nyes,75\n")
    ...     encoded = read_encoded(schema, path)
    >>> encoded.rows.tolist(), encoded.labels.tolist()
    ([[0.0], [0.5]], [0, 1])
    """
    table = open_table(path)
    label = _label_column(schema, table, labels)
    _check_names(schema, table, [*ignore, *([person] if person else [])])
    if person and person not in table.names:
        raise _absent(schema, f"column {person!r}, which names persons", person, table)
    columns = (*schema.columns, *([label] if label is not None else []))
    for name in (
        [*(column.name for column in columns), *([person] if person else [])] if table.schema is not None else ()
    ):
        require_readable(name, table.schema.field(name).type)
    # Words that a study declares as missing must reach the fingerprint as they stand: columns with such come as words.
    as_words = any(not is_number(word.strip()) for word in schema.missing_words)
    batches = table_batches(
        table,
        numbers=[column.name for column in columns if column.kind != "category" and not as_words],
        words=[
            *(column.name for column in columns if column.kind == "category" or as_words),
            *([person] if person else []),
        ],
        missing_words=MISSING_WORDS,
        rows_at_once=rows_at_once,
        progress=progress,
    )
    first_row = 1
    for batch in batches:
        encoded = _encode(schema, batch, label, first_row)
        yield replace(encoded, persons=_read_persons(person, batch, first_row)) if person else encoded
        first_row += encoded.rows.shape[0]
    if first_row == 1:
        raise no_rows()


def read_encoded(
    schema: Schema, path: str | Path, *, labels: LabelUse = "require", ignore: Sequence[str] = ()
) -> EncodedRows:
    """Encode a whole table; the parameters are those of `encoded_batches`."""
    parts = list(encoded_batches(schema, path, labels=labels, ignore=ignore))
    found: list[Any] = [part.labels for part in parts if part.labels is not None]
    return EncodedRows(
        rows=np.concatenate([part.rows for part in parts]),
        labels=np.concatenate(found) if found else None,
        values=np.concatenate([part.values for part in parts]),
        first_row=1,
    )


def encode_table(schema: Schema, table: Any) -> Matrix:
    """Encode a pyarrow table that has the columns of the schema; labels are left alone."""
    rows, start = np.empty((table.num_rows, schema.n_features)), 0
    for batch in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        rows[start : start + batch.num_rows] = _encode(schema, [batch], None, start + 1).rows
        start += batch.num_rows
    return rows


def _encode(schema: Schema, batch: Sequence[Any], label: Column | None, first_row: int) -> EncodedRows:
    columns = (*schema.columns, *([label] if label is not None else []))
    missing, n = schema.all_missing_words, sum(part.num_rows for part in batch)
    rows = np.empty((n, schema.n_features), order="F")
    values = np.empty((n, len(columns)), order="F")
    offences: list[tuple[int, int, InvalidValue]] = []
    labels: Any = None
    at = 0
    done = len(schema.columns) if encode_numbers(schema.columns, batch, missing, rows, values) else 0
    for k, column in enumerate(columns[done:], start=done):
        own = np.empty((n, column.width), order="F") if column is label else rows[:, at : at + column.width]
        at += column.width
        offence = encode_column(column, [part.column(column.name) for part in batch], missing, own, values[:, k])
        if offence is not None:
            offences.append((offence.row, k, offence))
        elif column is label:
            labels = own.argmax(axis=1).astype(np.int64) if column.kind == "category" else values[:, k].copy()
    if offences:  # the first in the file, not in the order of the columns
        row, k, offence = min(offences, key=lambda found: found[:2])
        raise offence.error(first_row + row, columns[k], is_label=columns[k] is label)
    return EncodedRows(rows, labels, values, first_row)


def _read_persons(person: str, batch: Sequence[Any], first_row: int) -> npt.NDArray[np.float64]:
    found = np.empty(sum(part.num_rows for part in batch))
    offence = read_cells(person, [part.column(person) for part in batch], found)
    if offence is not None:
        raise offence.error(first_row + offence.row, Column(person, "category", categories=("",)), is_label=False)
    start = 0
    for cells in (part.column(person) for part in batch):
        own = found[start : start + len(cells)]
        rounded = np.flatnonzero((np.abs(own) >= 2**53) & (own != MISSING_VALUE))  # two persons would be one
        words = (as_text(cell) for cell in cells.take(rounded).to_pylist())
        own[rounded] = [cell_value(f"number {(word or '').strip()}") for word in words]
        start += len(cells)
    return found


def _label_column(schema: Schema, table: TableFile, use: LabelUse) -> Column | None:
    """The label as a column; None if it is not to be read."""
    if use not in ("require", "allow", "ignore"):
        raise InputError("labels", expected="require, allow or ignore", got=repr(use), cure="Choose one of them.")
    label = schema.label
    if label.kind == "none" or use == "ignore" or (use == "allow" and label.column not in table.names):
        return None
    if label.column not in table.names:
        raise _absent(schema, f"label column {label.column!r}", label.column, table)
    if label.kind == "classes":
        return Column(label.column, "category", categories=label.classes)
    return Column(label.column, "number", label.low, label.high)


def _check_names(schema: Schema, table: TableFile, ignore: Sequence[str]) -> None:
    named, known = frozenset(table.names), schema.names.union(ignore)
    for column in schema.columns:
        if column.name not in named:
            raise _absent(schema, f"column {column.name!r}", column.name, table)
    for name in table.names:
        if name not in known:
            # All that is declared is there, so the first line is a header and may be quoted.
            raise InputError(
                "data file",
                expected="made of the study's columns",
                got=f"the column {name!r}, which the study does not know",
                cure=f"Declare it in the study, or leave it out with --ignore {shlex.quote(name)}.",
            )


def _absent(schema: Schema, what: str, name: str, table: TableFile) -> InputError:
    """The error for a table without a column; a first line with no name of the schema may be a record: not quoted."""
    near = get_close_matches(name, table.names, n=3) if schema.names & set(table.names) else []
    hint = f", but has {', '.join(map(repr, near))}" if near else ""
    return InputError(
        "data file",
        expected=f"a table with {what}, which the study declares",
        got=f"one that does not name it in its header{hint}",
        cure="Name the columns in the first line of the file as the study does.",
    )
