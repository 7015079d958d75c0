"""From a participant's table to rows of numbers, by what the study says and nothing else.

Every participant encodes alike without seeing the others' rows: a number's declared range becomes −1 … 1, a category
becomes a column of zeros and ones a word. What does not fit is refused by row and column, and no message quotes a value.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError, RefusedError, StorageError
from mooring.mechanisms.projection import Projection, gaussian_projection, no_projection
from mooring.protocol.messages.study import Study
from mooring.tables.column_encoder import MISSING_WORDS, Offence, encode_column, encode_numbers
from mooring.tables.schema import Column
from mooring.tables.streaming import TableFile, open_table, table_batches
from mooring.typing import Progress

Labels = Literal["require", "allow", "ignore"]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Some rows of a table, encoded.

    Attributes
    ----------
    rows : array of shape (n, m)
        In the order of `Study.feature_names`; numbers between −1 and 1, and zeros and ones. Laid out column by column.
    labels : array of shape (n,) or None
        Positions among the classes, or numbers as they are.
    values : array of shape (n, n_columns) or (n, n_columns + 1)
        One number a declared column, and last the label if it was read: for fingerprints of records. It depends on
        the record alone: numbers are as they are, a category is a number made of its word, and what is missing is
        `MISSING_VALUE`; no range, no rule and no order of categories enters.
    first_row : int
        Number of the first of them in the file, from 1, the header not counted.
    """

    rows: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64] | npt.NDArray[np.float64] | None
    values: npt.NDArray[np.float64]
    first_row: int


def encoded_batches(
    study: Study,
    path: str | Path,
    *,
    labels: Labels = "require",
    ignore: Sequence[str] = (),
    rows_at_once: int = 65_536,
    progress: Progress | None = None,
) -> Iterator[EncodedRows]:
    r"""Encode a table batch after batch, in bounded memory.

    Parameters
    ----------
    study : Study
    path : path
        Text with separators or Parquet: see `mooring.tables.streaming`.
    labels : {"require", "allow", "ignore"}
        Whether the label's column must be there; with "ignore" it is not read even if it is.
    ignore : sequence of str
        Columns of the file that the study does not declare, and that are left out.
    rows_at_once : int
        At most; batches of wide tables are shorter.
    progress : callable, optional
        Is called with bytes read and bytes in all.

    Raises
    ------
    InputError
        For the first row of the file that does not fit the study, with its number and column and never its value.

    Examples
    --------
    >>> import tempfile
    >>> from mooring.tables.schema import Column, Label
    >>> study = Study("heart", "0" * 32, (Column("age", "number", 0, 100),), Label("ill", "classes", ("no", "yes")),
    ...               method="aa-i-gdp-data-noise", n_components=1, n_anchor_rows=4, data_noise_scale=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "patients.csv"
    ...     _ = path.write_text("ill,age\nno,50\nyes,75\n")
    ...     encoded = read_encoded(study, path)
    >>> encoded.rows.tolist(), encoded.labels.tolist()
    ([[0.0], [0.5]], [0, 1])
    """
    table = open_table(path)
    label = _label_column(study, table, labels)
    _check_names(study, table, ignore)
    columns = (*study.columns, *([label] if label is not None else []))
    missing = frozenset((*MISSING_WORDS, *(word.strip() for word in study.missing_words)))
    batches = table_batches(
        table,
        numbers=[column.name for column in columns if column.kind != "category"],
        words=[column.name for column in columns if column.kind == "category"],
        missing_words=sorted(missing),
        rows_at_once=rows_at_once,
        progress=progress,
    )
    first_row = 1
    for batch in batches:
        n_rows = sum(part.num_rows for part in batch)
        yield _encoded(study, columns, label, batch, n_rows, missing, first_row)
        first_row += n_rows
    if first_row == 1:
        raise InputError(
            "data file", expected="a table with rows", got="a header and no rows", cure="Write the rows beneath it."
        )


def read_encoded(
    study: Study, path: str | Path, *, labels: Labels = "require", ignore: Sequence[str] = ()
) -> EncodedRows:
    """Encode a whole table; see `encoded_batches`."""
    parts = list(encoded_batches(study, path, labels=labels, ignore=ignore))
    found: list[Any] = [part.labels for part in parts if part.labels is not None]
    return EncodedRows(
        rows=np.concatenate([part.rows for part in parts]),
        labels=np.concatenate(found) if found else None,
        values=np.concatenate([part.values for part in parts]),
        first_row=1,
    )


def _encoded(
    study: Study,
    columns: Sequence[Column],
    label: Column | None,
    batch: Sequence[Any],
    n: int,
    missing: frozenset[str],
    first_row: int,
) -> EncodedRows:
    rows = np.empty((n, study.n_features), order="F")
    values = np.empty((n, len(columns)), order="F")
    offences: list[tuple[int, int, Offence]] = []
    labels: Any = None
    at = 0
    done = len(study.columns) if encode_numbers(study.columns, batch, missing, rows, values) else 0
    for k, column in enumerate(columns):
        if k < done:
            continue
        width = len(column.feature_names)
        own = np.empty((n, width), order="F") if column is label else rows[:, at : at + width]
        at += width
        offence = encode_column(column, [part.column(column.name) for part in batch], missing, own, values[:, k])
        if offence is not None:
            offences.append((offence.row, k, offence))
        elif column is label:
            labels = own.argmax(axis=1).astype(np.int64) if column.kind == "category" else values[:, k].copy()
    if offences:  # the first in the file, not in the order of the columns
        row, k, offence = min(offences, key=lambda found: found[:2])
        raise offence.error(first_row + row, columns[k], is_label=columns[k] is label)
    return EncodedRows(rows, labels, values, first_row)


def _label_column(study: Study, table: TableFile, labels: Labels) -> Column | None:
    """The label as a column; None if it is not to be read."""
    if labels not in ("require", "allow", "ignore"):
        raise InputError("labels", expected="require, allow or ignore", got=repr(labels), cure="Choose one of them.")
    label = study.label
    if label.kind == "none" or labels == "ignore" or (labels == "allow" and label.column not in table.names):
        return None
    if label.column not in table.names:
        raise _absent(study, f"label column {label.column!r}", label.column, table)
    if label.kind == "classes":
        return Column(label.column, "category", categories=label.classes)
    return Column(label.column, "number", label.low, label.high)


def _check_names(study: Study, table: TableFile, ignore: Sequence[str]) -> None:
    declared = {column.name for column in study.columns}
    for column in study.columns:
        if column.name not in table.names:
            raise _absent(study, f"column {column.name!r}", column.name, table)
    known = declared | {study.label.column} | set(ignore)
    for name in table.names:
        if name not in known:  # all that is declared is there, so the first line is a header and may be quoted
            raise InputError(
                "data file",
                expected="made of the study's columns",
                got=f"the column {name!r}, which the study does not know",
                cure=f"Declare it in the study, or leave it out with --ignore {shlex.quote(name)}.",
            )


def _absent(study: Study, what: str, name: str, table: TableFile) -> InputError:
    """The refusal of a table without a column; a first line with no name of the study's may be a record: not quoted."""
    declared = {column.name for column in study.columns} | {study.label.column}
    near = get_close_matches(name, table.names, n=3) if declared & set(table.names) else []
    hint = f", but has {', '.join(map(repr, near))}" if near else ""
    return InputError(
        "data file",
        expected=f"a table with {what}, which the study declares",
        got=f"one that does not name it in its header{hint}",
        cure="Name the columns in the first line of the file as the study does.",
    )


def study_projection(study: Study) -> Projection:
    """The study's public projection: none, Gaussian by its nonce, or the file beside the study, checked by its digest.

    Raises
    ------
    StorageError
        If there is no such file.
    RefusedError
        If it is not the one that the study names, or holds no orthonormal matrix.
    """
    m, h = study.n_features, study.n_components
    if study.projection == "none":
        return no_projection(m)
    if study.projection == "gaussian":
        seed = int.from_bytes(hashlib.sha256(b"mooring projection" + study.nonce.encode()).digest())
        return gaussian_projection(m, h, rng=np.random.default_rng(seed))
    cure = f"Put {projection_file_name(study)}, which came with the study, beside it."
    if study.folder is None:
        raise StorageError("the public projection", reason="the study was not read from a folder", cure=cure)
    most = 8 * m * h + 4096
    try:
        with (study.folder / projection_file_name(study)).open("rb") as file:
            content = file.read(most + 1)
    except OSError:
        raise StorageError("the public projection", reason="its file cannot be read", cure=cure) from None
    if len(content) > most or hashlib.sha256(content).hexdigest() != study.projection_digest:
        raise RefusedError("the public projection", reason="its file is not the one that the study names", cure=cure)
    F = _matrix_in(content)
    if F is None or F.shape != (m, h) or not np.isfinite(F).all() or np.abs(F.T @ F - np.eye(h)).max() > 1e-8:
        raise RefusedError(
            "the public projection",
            reason=f"its file holds no matrix of {m} by {h} with orthonormal columns",
            cure="Make it with 'mooring study project'.",
        )
    return Projection(F, F.T.copy(), "public-svd")


def _matrix_in(content: bytes) -> npt.NDArray[np.float64] | None:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(content)
    except (SafetensorError, ValueError, TypeError, KeyError):
        return None
    matrix = arrays.get("matrix")
    return matrix if list(arrays) == ["matrix"] and matrix is not None and matrix.dtype == np.float64 else None


def projection_file_name(study: Study) -> str:
    """Name of the file beside the study that holds its public projection."""
    return f"{study.name}.projection.safetensors"
