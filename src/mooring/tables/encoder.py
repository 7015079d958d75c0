"""Encodes the rows of a table as rows of numbers, as a schema declares.

Every participant of a study encodes its rows in the same form without seeing the rows of other participants: the declared
range of a number becomes −1 … 1, and each category of a categorical column becomes a feature of zeros and ones. The error
for a cell that does not fit names its row and column. No message quotes a cell, unless the cell is in a short public list of
numbers, days and words, such as 99 and 'true' (see `mooring.tables.problems`). Audits use an inferred schema, by which
numbers are standardised.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.errors import InputError
from mooring.serialization import Record, count_noun, render_html
from mooring.tables.cells import (
    MISSING_VALUE,
    as_texts,
    cell_value,
    cell_values,
    describe_type,
    distinct_words,
    is_number,
    is_readable,
)
from mooring.tables.column_encoder import coded_width, encode_column, encode_plain, spread_categories
from mooring.tables.files import OpenTable, no_rows, open_table
from mooring.tables.problems import InvalidCells, Problem, ProblemKind, ProblemLog
from mooring.tables.reader import original_name, table_batches
from mooring.tables.schema import Column, Schema
from mooring.typing import Matrix, Progress, TableSource

LabelUse = Literal["require", "allow", "ignore"]
UnfitUse = Literal["refuse", "adapt", "leave out"]
_OTHER = "other"
_ROWS_AT_ONCE = 65_536
_MOST_HINTS = 20  # each name is compared with all others, which would take minutes for a wide table


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Some rows of a table, encoded."""

    rows: npt.NDArray[np.float64]
    """Shape (n, n_features), in the order of `Schema.feature_names`. In coded rows (see `encoded_batches`), a categorical
    column has one entry per row instead of a feature per category: the index of the category, or −1 for a missing cell that
    nothing fills."""
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None
    """Shape (n,): indices of the classes, or numbers in the units of the table. None if no label was read."""
    values: npt.NDArray[np.float64]
    """Shape (n, n_columns), or (n, n_columns + 1) with the label last if it was read: one number per cell, for fingerprints
    of records. Each number depends on its cell alone (`cell_value`), not on anything that a study declares."""
    first_row: int
    """Row number of the first row of the batch, before rows are left out. Rows are counted from 1, without the header and
    without lines that have a wrong number of fields."""
    persons: npt.NDArray[np.float64] | None = None
    """Shape (n,): equal numbers for rows of the same person, and `MISSING_VALUE` for rows without a person. None unless a
    column that names persons was requested."""
    ids: dict[str, list[str]] = field(default_factory=dict)
    """By the name of an id column, the texts of its cells; empty unless ids were requested."""
    labelled: npt.NDArray[np.bool_] | None = None
    """Shape (n,): whether each row has a readable label. Where a row has none, its entry in `labels` means nothing. None if
    all rows have a readable label, or if no label was read."""


@dataclass(eq=False)
class RowsLeftOut:
    """Rows of a table that a reader left out, because they cannot be used.

    All fields are complete when the whole table has been read. Until then, `ids` covers the batches read so far.
    """

    numbers: list[int] = field(default_factory=list)
    """Numbers of these rows, and of lines with a wrong number of fields, in rising order, counted from 1 without the
    header."""
    n_rows: int = 0
    """Number of all rows of the table, including lines with a wrong number of fields."""
    problems: tuple[Problem, ...] = ()
    """What does not fit, in these rows and in cells that were adapted."""
    ids: dict[int, dict[str, str]] = field(default_factory=dict)
    """The ids of these rows, by row number and then by column. Lines with a wrong number of fields have no ids."""


def encoded_batches(
    schema: Schema,
    data: TableSource,
    *,
    labels: LabelUse = "require",
    ignore: Sequence[str] = (),
    person: str = "",
    with_ids: bool = False,
    unfit: UnfitUse = "refuse",
    left_out: RowsLeftOut | None = None,
    coded: bool = False,
    rows_at_once: int = _ROWS_AT_ONCE,
    progress: Progress | None = None,
) -> Iterator[EncodedRows]:
    r"""Encode a table batch after batch, in bounded memory.

    Parameters
    ----------
    schema : Schema
        How to encode the columns.
    data : path or data frame
        Text with separators, Parquet, or a data frame: see `mooring.tables.open_table`.
    labels : {"require", "allow", "ignore"}
        Whether the table must ("require") or may ("allow") have the label's column. With "ignore", the label is not read.
    ignore : sequence of str
        Columns of the table to leave out, because the schema does not have them.
    person : str
        A further column of the table, which names persons; empty for none.
    with_ids : bool
        Whether to read the schema's ids that the table has.
    unfit : {"refuse", "adapt", "leave out"}
        What becomes of a cell that does not fit. "refuse" raises an error for the first such cell. "leave out" leaves the
        cell's row out. "adapt" keeps the row: features that are numbers are clipped to their range, unknown words become
        the category "other" if it is declared, and everything else is filled as a missing value. Both "leave out" and
        "adapt" also leave out lines with a wrong number of fields, rows without a person if persons are read, and rows
        without a readable label if `labels` is "require". Neither of the two raises an error if no row remains. What
        becomes of a row depends on that row alone.
    left_out : RowsLeftOut, optional
        Collects the rows that are left out, and everything that does not fit; unused if `unfit` is "refuse".
    coded : bool
        Whether to return coded rows, in which a categorical column is one number, the index of the category, instead of a
        feature per category.
    rows_at_once : int
        Largest number of rows in a batch; batches of wide tables are shorter.
    progress : callable, optional
        Called with the amount that has been read and the total amount.

    Raises
    ------
    InputError
        For a table that cannot be read, or whose header does not fit. If `unfit` is "refuse", also for a table without
        rows, and for the first row that does not fit the schema, with the number of the row and the column.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mooring.tables import Label
    >>> schema = Schema((Column("age", "number", 0, 100),), Label("ill", "classes", ("no", "yes")))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "patients.csv"
    ...     _ = path.write_text("ill,age\nno,50\nyes,75\n")
    ...     (encoded,) = encoded_batches(schema, path)
    >>> encoded.rows.tolist(), encoded.labels.tolist()
    ([[0.0], [0.5]], [0, 1])
    """
    reading = _open(schema, data, labels, ignore, person, with_ids=with_ids)
    for problem in reading.problems:
        raise problem.error()
    log = ProblemLog(reading.columns, reading.label)
    form = _keep if coded else partial(_spread, reading.schema)
    if unfit != "refuse":
        scanned = _scan_leniently(reading, log, rows_at_once, progress, unfit, left_out, keep=labels == "allow")
        yield from map(form, scanned)
        return
    try:
        for encoded in _scan(reading, log, rows_at_once, progress):
            if encoded is not None and not log:
                yield form(encoded)
    except InputError:
        if not log:
            raise
    if log:
        raise log.first_error() from None


@dataclass(frozen=True)
class TableFit(Record):
    """Whether a table fits a schema, and every reason why it does not."""

    n_rows: int
    """Number of rows that were read, without lines that have a wrong number of fields."""
    problems: tuple[Problem, ...]
    class_counts: dict[str, int]
    """Number of rows per class, among the rows that could be read; empty if there are problems or no classes."""
    stopped: str = ""
    """Why the rest of the table could not be read; empty if all of it was."""

    @property
    def fits(self) -> bool:
        """Whether there is no problem."""
        return not self.problems and not self.stopped

    @property
    def has_columns(self) -> bool:
        """Whether the table could be read and has exactly the declared columns, whether or not its cells fit."""
        whole = (ProblemKind.ABSENT_COLUMN, ProblemKind.UNKNOWN_COLUMN, ProblemKind.UNREADABLE)
        is_read = not self.stopped or self.stopped == str(no_rows())
        return is_read and not any(problem.kind in whole for problem in self.problems)

    def _repr_html_(self) -> str:
        fits, n = count_noun(self.n_rows, "row fits", "rows fit"), len(self.problems)
        refusal = f"The table does not fit. Reasons: {n}." if n else "The table could not be read to its end."
        verdict = f"{fits}." if self.fits else refusal
        rows = [
            (problem.column, problem.expected, problem.got, problem.where, problem.suggestion)
            for problem in self.problems
        ]
        headings = ("column", "expected", "got", "where", "what to do")
        return render_html(verdict, self.stopped, tables=[[headings, *rows]] if rows else [])


def check_fit(
    schema: Schema,
    data: TableSource,
    *,
    labels: LabelUse = "require",
    ignore: Sequence[str] = (),
    person: str = "",
    each: Callable[[EncodedRows], object] | None = None,
    progress: Progress | None = None,
) -> TableFit:
    """Read a whole table in bounded memory, and collect everything that does not fit instead of refusing it.

    `each` is called with every batch in which everything fits.
    """
    reading = _open(schema, data, labels, ignore, person)
    log = ProblemLog(reading.columns, reading.label)
    counts = np.zeros(len(schema.label.classes), dtype=np.int64)
    stopped = ""
    try:
        for encoded in _scan(reading, log, _ROWS_AT_ONCE, progress):
            if encoded is not None and each is not None:
                each(_spread(reading.schema, encoded))
            if encoded is not None and encoded.labels is not None and counts.size:
                counts += np.bincount(encoded.labels, minlength=counts.size)
    except InputError as problem:
        stopped = str(problem)
    problems = (*reading.problems, *log.problems)
    by_class = {} if problems else dict(zip(schema.label.classes, counts.tolist(), strict=True))
    return TableFit(log.n_rows, problems, by_class, stopped)


@dataclass(frozen=True, eq=False)
class _Reading:
    """The parts of a table to read, and what is wrong with its header."""

    schema: Schema
    table: OpenTable
    label: Column | None
    person: str
    ids: tuple[str, ...]
    problems: tuple[Problem, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Columns to read: those of the schema and, if they are read, the label and the column that names persons."""
        person = [Column(self.person, "category", categories=("",), inferred=True)] if self.person else []
        return (*self.schema.columns, *([self.label] if self.label is not None else []), *person)


def _open(
    schema: Schema, data: TableSource, use: LabelUse, ignore: Sequence[str], person: str, *, with_ids: bool = False
) -> _Reading:
    """Read the header of a table. Columns that are absent, unknown or of an unreadable type are problems, and not read."""
    table = open_table(data)
    label, wanted = _label_column(schema, table, use), [column.name for column in schema.columns]
    what = {name: f"column {name!r}" for name in wanted}
    if label is not None:
        what = {label.name: f"label column {label.name!r}"} | what
    if person:
        what[person] = f"column {person!r}, which names persons"
    present = frozenset(table.names)
    problems = _absent(schema, table, {name: words for name, words in what.items() if name not in present})
    # If a declared column is present, the first line is taken for a header, whose names may appear in messages.
    known = schema.names.union(ignore, [person], schema.ids)
    unknown = [name for name in table.names if name not in known] if schema.names & present else []
    problems += [_unknown(name) for name in unknown]
    ids = [name for name in schema.ids if with_ids and name in present and name not in ignore]
    read = [*(name for name in what if name in present), *ids] if table.schema is not None else []
    types = {name: table.schema.field(name).type for name in read}
    dates = {*ids, *(column.name for column in schema.columns if column.is_date)}
    unreadable = {name: kind for name, kind in types.items() if not is_readable(kind, as_date=name in dates)}
    problems += [_unreadable(name, kind) for name, kind in unreadable.items()]
    usable = present - unreadable.keys()
    return _Reading(
        replace(schema, columns=tuple(column for column in schema.columns if column.name in usable)),
        table,
        label if label is not None and label.name in usable else None,
        person if person in usable else "",
        tuple(ids),
        tuple(problems),
    )


def _scan(
    reading: _Reading, log: ProblemLog, rows_at_once: int, progress: Progress | None
) -> Iterator[EncodedRows | None]:
    """Yield encoded batches. For a batch with cells that do not fit, yield None, and add the reasons to the log."""
    if not reading.columns:
        return
    for batch in _read(reading, log, rows_at_once, progress):
        encoded, invalid = _encode_batch(reading, batch, log.n_rows + 1)
        log.add(encoded.rows.shape[0], invalid)
        yield None if invalid else encoded
    if log.n_rows == 0 and not log:
        raise no_rows()


def _scan_leniently(
    reading: _Reading,
    log: ProblemLog,
    rows_at_once: int,
    progress: Progress | None,
    unfit: UnfitUse,
    left_out: RowsLeftOut | None,
    *,
    keep: bool,
) -> Iterator[EncodedRows]:
    """Yield encoded batches without the rows that cannot be used; `keep` says whether rows without a label can be used."""
    strict, is_adapted = reading, unfit == "adapt"
    if is_adapted:
        columns = tuple(
            replace(
                column,
                outside="refuse" if column.kind == "category" else "clip",
                missing="fill" if column.missing == "refuse" else column.missing,
            )
            for column in reading.schema.columns
        )
        label = reading.label
        if label is not None and label.kind != "category":
            label = replace(label, outside="clip")
        reading = replace(reading, schema=replace(reading.schema, columns=columns), label=label)
    log.ragged.most = math.inf
    for batch in _read(reading, log, rows_at_once, progress):
        n_before = log.n_rows
        encoded, invalid = _encode_batch(reading, batch, n_before + 1)
        unfitting = invalid if left_out is None or not is_adapted else _encode_batch(strict, batch, n_before + 1)[1]
        log.add(batch.num_rows, () if left_out is None else unfitting)
        usable = np.ones(batch.num_rows, dtype=np.bool_)
        if invalid or (encoded.persons is not None and (encoded.persons == MISSING_VALUE).any()):
            usable, adapted = _adapt(reading, batch, encoded, invalid, fill=is_adapted, keep=keep)
            if adapted is not None:
                yield adapted
        else:
            yield encoded
        if left_out is not None:
            places = np.flatnonzero(~usable)
            numbers = log.ragged.number_of(n_before + places).tolist()
            left_out.numbers += numbers
            for number, place in zip(numbers, places.tolist(), strict=True):
                left_out.ids[number] = {name: texts[place] for name, texts in encoded.ids.items()}
    if left_out is not None:
        left_out.numbers = sorted({*left_out.numbers, *log.ragged.numbers})
        left_out.n_rows, left_out.problems = log.n_rows + len(log.ragged.numbers), log.problems


def _adapt(
    reading: _Reading,
    batch: Any,
    encoded: EncodedRows,
    invalid: Sequence[tuple[int, InvalidCells]],
    *,
    fill: bool,
    keep: bool,
) -> tuple[npt.NDArray[np.bool_], EncodedRows | None]:
    """Return a mask of the rows of a batch that can be used, and these rows encoded, or None if no row can be used.

    With `fill`, an invalid cell becomes the category "other" if its column declares it, and is filled as a missing value if
    not. Without `fill`, the row of an invalid cell cannot be used. Rows without a label can be used only if `keep` is true,
    and rows without a person can never be used. All rows that can be used are encoded once more. If some of these rows lack
    a label, labels are read from the other rows alone.
    """
    n, columns = batch.num_rows, reading.schema.columns
    usable = np.ones(n, dtype=np.bool_) if encoded.persons is None else encoded.persons != MISSING_VALUE
    unfit = {place: np.zeros(n, dtype=np.bool_) for place, _ in invalid}
    for place, cells in invalid:
        unfit[place][cells.rows] = True
    labelled = None
    for place, mask in unfit.items():
        if place == len(columns) and reading.label is not None and keep:
            labelled = ~mask
        elif place >= len(columns) or not fill:
            usable &= ~mask
        else:
            at = batch.column_names.index(columns[place].name)
            filled = batch.column(at).take(pa.array(np.arange(n), mask=mask))  # cells that do not fit become missing
            batch = batch.set_column(at, columns[place].name, filled)
    if not usable.any():
        return usable, None
    again, _ = _encode_batch(
        reading if labelled is None else replace(reading, label=None), batch.filter(pa.array(usable)), encoded.first_row
    )
    starts = np.cumsum([0, *map(coded_width, columns)])
    for place, mask in unfit.items():
        if fill and place < len(columns) and _OTHER in (words := columns[place].categories):
            again.rows[mask[usable], starts[place]] = words.index(_OTHER)
    again = replace(again, values=encoded.values[usable])
    if labelled is not None and (usable & labelled).any():
        known, _ = _encode_batch(reading, batch.filter(pa.array(usable & labelled)), encoded.first_row)
        assert known.labels is not None
        labels: Any = np.zeros(len(again.rows), known.labels.dtype)
        labels[labelled[usable]] = known.labels
        again = replace(again, labels=labels, labelled=labelled[usable])
    return usable, again


def _read(reading: _Reading, log: ProblemLog, rows_at_once: int, progress: Progress | None) -> Iterator[Any]:
    """Return an iterator over batches of the columns to encode and of the ids."""
    return table_batches(
        reading.table,
        list(dict.fromkeys([*(column.name for column in reading.columns), *reading.ids])),
        numbers=[column.name for column in reading.columns if _comes_as_numbers(reading.schema, column)],
        with_originals=True,
        rows_at_once=rows_at_once,
        ragged=log.ragged,
        progress=progress,
    )


def _encode_batch(reading: _Reading, batch: Any, first_row: int) -> tuple[EncodedRows, list[tuple[int, InvalidCells]]]:
    """Return the encoded rows with persons and ids, and the invalid cells with the index of their column."""
    encoded, invalid = _encode(reading.schema, batch, reading.label, first_row)
    if reading.person:
        persons, broken = _read_persons(batch.column(reading.person))
        invalid += [(len(reading.columns) - 1, cells) for cells in broken]
        encoded = replace(encoded, persons=persons)
    if reading.ids:
        encoded = replace(encoded, ids={name: as_texts(batch.column(name)) for name in reading.ids})
    return encoded, invalid


def _comes_as_numbers(schema: Schema, column: Column) -> bool:
    """Whether the parser may convert a column to numbers.

    It may not if a declared word for a missing value is not a number, because the fingerprint needs the word itself.
    """
    words = (*schema.missing_words, *column.missing_words)
    return column.kind in ("number", "integer") and all(is_number(word.strip()) for word in words)


def _spread(schema: Schema, encoded: EncodedRows) -> EncodedRows:
    """Return coded rows with a feature per category of each categorical column."""
    return replace(encoded, rows=spread_categories(schema, encoded.rows))


def _keep(encoded: EncodedRows) -> EncodedRows:
    return encoded


def read_encoded(
    schema: Schema,
    data: TableSource,
    *,
    labels: LabelUse = "require",
    ignore: Sequence[str] = (),
    person: str = "",
    unfit: UnfitUse = "refuse",
) -> EncodedRows:
    """Return a whole table encoded; arguments are as for `encoded_batches`. A table of which no row remains is refused."""
    batches = list(encoded_batches(schema, data, labels=labels, ignore=ignore, person=person, unfit=unfit))
    if not batches:
        raise no_rows()
    return join_rows(batches)


def join_rows(parts: Sequence[EncodedRows]) -> EncodedRows:
    """Join batches into one, without `ids` and `labelled`. Either every batch must have labels, or none may have them."""
    labels: list[Any] = [part.labels for part in parts if part.labels is not None]
    persons = [part.persons for part in parts if part.persons is not None]
    return EncodedRows(
        rows=np.concatenate([part.rows for part in parts]),
        labels=np.concatenate(labels) if labels else None,
        values=np.concatenate([part.values for part in parts]),
        first_row=parts[0].first_row,
        persons=np.concatenate(persons) if persons else None,
    )


def encode_table(schema: Schema, table: Any) -> Matrix:
    """Encode a pyarrow table that has the columns of the schema; the label is not read."""
    rows, log = np.empty((table.num_rows, schema.n_features)), ProblemLog(schema.columns)
    for start in range(0, table.num_rows, _ROWS_AT_ONCE):
        encoded, invalid = _encode(schema, table.slice(start, _ROWS_AT_ONCE), None, start + 1)
        rows[start : start + len(encoded.rows)] = spread_categories(schema, encoded.rows)
        log.add(len(encoded.rows), invalid)
    if log:
        raise log.first_error()
    return rows


def _encode(
    schema: Schema, table: Any, label: Column | None, first_row: int
) -> tuple[EncodedRows, list[tuple[int, InvalidCells]]]:
    """Return the coded rows, which are unusable if a cell is invalid, and the invalid cells with their column's index."""
    columns = (*schema.columns, *([label] if label is not None else []))
    n = table.num_rows
    rows = np.empty((n, sum(map(coded_width, schema.columns))), order="F")
    values = np.empty((n, len(columns)), order="F")
    invalid: list[tuple[int, InvalidCells]] = []
    labels: Any = None
    cells = dict(zip(table.column_names, table.columns, strict=True))
    at, done = 0, encode_plain(schema, cells, rows, values)
    for k, column in enumerate(columns):
        width = coded_width(column)
        coded = np.empty((n, width), order="F") if column is label else rows[:, at : at + width]
        at += width
        if k in done:
            continue
        missing_words = schema.missing_words_of(column)
        unfit = encode_column(column, cells[column.name], missing_words, coded, values[:, k])
        invalid += [(k, reason) for reason in unfit]
        if column is label and not unfit:
            labels = coded[:, 0].astype(np.int64) if column.kind == "category" else values[:, k].copy()
        if (original := cells.get(original_name(column.name))) is not None:
            words = distinct_words(original)
            values[:, k] = words.spread(cell_values(words.text), MISSING_VALUE)
    return EncodedRows(rows, labels, values, first_row), invalid


def _read_persons(cells: Any) -> tuple[npt.NDArray[np.float64], list[InvalidCells]]:
    """Return equal numbers for equal names of persons, `MISSING_VALUE` for no name, and the cells that are not UTF-8."""
    words = distinct_words(pc.cast(cells, pa.string()) if pa.types.is_decimal(cells.type) else cells)
    numbers = cell_values(words.text)
    rounded = np.flatnonzero(
        (np.abs(numbers) >= 2**53) & (numbers != MISSING_VALUE)
    )  # otherwise two persons would count as one
    names = words.text.take(pa.array(rounded)).to_pylist()
    numbers[rounded] = [cell_value(f"number {name.strip()}") for name in names]
    broken = [InvalidCells(ProblemKind.ENCODING, words.not_utf8)] if words.not_utf8.size else []
    return words.spread(numbers, MISSING_VALUE), broken


def _label_column(schema: Schema, table: OpenTable, use: LabelUse) -> Column | None:
    """Return the label as a column; None if it is not read."""
    if use not in ("require", "allow", "ignore"):
        raise InputError("labels", expected="require, allow or ignore", got=repr(use), cure="Choose one of them.")
    label = schema.label
    if label.kind == "none" or use == "ignore" or (use == "allow" and label.column not in table.names):
        return None
    if label.kind == "classes":
        return Column(label.column, "category", categories=label.classes)
    return Column(label.column, "number", label.low, label.high)


def _absent(schema: Schema, table: OpenTable, what: dict[str, str]) -> list[Problem]:
    """List absent columns as problems. A first line without any name of the schema may be a record, and is not quoted."""
    declared, problems = schema.names if what else frozenset(), list[Problem]()
    sources = {} if table.mapping is None else table.mapping.sources
    others = {other.casefold(): other for other in table.names if other not in declared}
    is_header = not declared.isdisjoint(table.names)
    for name, words in what.items():
        near = get_close_matches(name.casefold(), others, n=3) if is_header and len(problems) < _MOST_HINTS else []
        hint = f", but with {', '.join(repr(others[other]) for other in near)}" if near else ""
        cure = (
            f"Rename {others[near[0]]!r} to {name!r}, if they mean the same."
            if near
            else "Name columns as the study does."
        )
        source = sources.get(name, "")
        mapped = f"{source!r}, from which the mapping reads it" if source else repr(name)
        expected, got = f"a table with {words}, as the study declares", f"a header without {mapped}{hint}"
        problems.append(Problem(ProblemKind.ABSENT_COLUMN, name, expected, got, cure))
    return problems


def _unknown(name: str) -> Problem:
    got = f"the column {name!r}, which the study does not know"
    cure = (
        f"Leave it out (--ignore {shlex.quote(name)}; 'Columns to leave out' on the desk), or declare it in the study."
    )
    return Problem(ProblemKind.UNKNOWN_COLUMN, name, "made of the study's columns", got, cure)


def _unreadable(name: str, kind: Any) -> Problem:
    got = f"values of type {describe_type(kind)}"
    expected, cure = "made of numbers or words", "Write the column as numbers or words."
    return Problem(ProblemKind.UNREADABLE, name, expected, got, cure)
