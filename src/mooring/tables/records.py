"""Rows of numbers with labels, groups and the meaning of their columns, as every reader of this package returns them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mooring.errors import InputError
from mooring.tables.schema import Column, Schema
from mooring.typing import Indices, Labels, Matrix

LabelKind = Literal["classes", "number", "none"]


@dataclass(frozen=True, eq=False)
class Records:
    """Rows of numbers, their labels, and what the columns mean.

    Attributes
    ----------
    rows : array of shape (n_rows, n_features)
        Finite numbers, in float64.
    labels : array of shape (n_rows,), optional
        Integers are classes, floats are numbers to predict.
    feature_names : tuple of str
        One name per feature; "feature 1", "feature 2", ... by default.
    label_names : tuple of str
        Names of the classes 0, 1, ...; empty when the classes have no names.
    image_shape : tuple of int, optional
        Height and width, and the number of channels if there are several, where a row is an image.
    groups : array of shape (n_rows,), optional
        The participant, or the person, that a row belongs to.
    group_names : tuple of str
        Names of the groups 0, 1, ...
    attributes : mapping of str to array of shape (n_rows,)
        Further information on each row, which is not a feature.
    notes : tuple of str
        What the owner of the file should know about the reading, such as columns left out and rows dropped. Notes contain
        names and counts only.
    columns : tuple of Column
        The columns of the table, in the order of the features; empty for images and arrays.

    Examples
    --------
    >>> records = Records(rows=[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]], labels=[0, 1, 1], label_names=("no", "yes"))
    >>> records.n_rows, records.n_features, records.label_kind
    (3, 2, 'classes')
    >>> records.take([2, 0]).rows[:, 0].tolist()
    [4.0, 0.0]
    """

    rows: Matrix
    labels: Labels | None = None
    feature_names: tuple[str, ...] = ()
    label_names: tuple[str, ...] = ()
    image_shape: tuple[int, ...] | None = None
    groups: Indices | None = None
    group_names: tuple[str, ...] = ()
    attributes: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()

    def __post_init__(self) -> None:
        rows = as_rows("rows", self.rows)
        n_rows, width = rows.shape
        settled: dict[str, Any] = {"rows": rows}
        settled["feature_names"] = tuple(self.feature_names) or tuple(f"feature {k + 1}" for k in range(width))
        settled["labels"] = None if self.labels is None else as_labels("labels", self.labels, n_rows=n_rows)
        settled["groups"] = None if self.groups is None else _as_codes("groups", self.groups, n_rows)
        settled["attributes"] = {name: np.asarray(values) for name, values in self.attributes.items()}
        for name in ("label_names", "group_names", "notes"):
            settled[name] = tuple(getattr(self, name))
        for name, value in settled.items():
            object.__setattr__(self, name, value)
        self._check_columns(width)
        self._check_codes("labels", self.labels if self.label_kind == "classes" else None, self.label_names)
        self._check_codes("groups", self.groups, self.group_names)
        for name, values in self.attributes.items():
            _require_length(f"attribute {name!r}", values, n_rows)

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return int(self.rows.shape[0])

    @property
    def n_features(self) -> int:
        """Number of features."""
        return int(self.rows.shape[1])

    @property
    def feature_kinds(self) -> tuple[str, ...]:
        """One per feature: "number", "integer" (only whole numbers in the file) or "category" (zeros and ones)."""
        return tuple(kind for column in self.columns for kind in column.feature_kinds) or ("number",) * self.n_features

    @property
    def feature_scales(self) -> tuple[tuple[float, float], ...]:
        """Centre and scale of each feature: value * scale + centre is in the units of the file. Empty without columns."""
        return Schema(self.columns).feature_scales

    @property
    def label_kind(self) -> LabelKind:
        """The kind of the labels: "classes", "number", or "none"."""
        return label_kind_of(self.labels)

    def take(self, indices: npt.ArrayLike) -> Records:
        """Return these rows only, in this order; `indices` are row numbers, or a mask with one entry per row."""
        chosen = np.asarray(indices)
        if chosen.dtype == np.bool_ and chosen.shape == (self.n_rows,):
            chosen = np.flatnonzero(chosen)
        fits = chosen.ndim == 1 and chosen.dtype.kind in "iu" and chosen.size > 0
        if not fits or chosen.min() < 0 or chosen.max() >= self.n_rows:
            raise InputError(
                "indices",
                expected=f"a list of row numbers from 0 to {self.n_rows - 1}, at least one",
                got=f"shape {chosen.shape} of {chosen.dtype}" if not fits else "a number out of range",
                cure="Count the rows from zero.",
            )
        return replace(
            self,
            rows=self.rows[chosen],
            labels=None if self.labels is None else self.labels[chosen],
            groups=None if self.groups is None else self.groups[chosen],
            attributes={name: values[chosen] for name, values in self.attributes.items()},
        )

    def _check_columns(self, width: int) -> None:
        if len(self.feature_names) != width:
            expected, got = f"one name for each of the {width} features", f"{len(self.feature_names)} names"
            raise InputError("feature_names", expected=expected, got=got, cure="Give one name per feature, in order.")
        if self.image_shape is not None and (len(self.image_shape) not in (2, 3) or np.prod(self.image_shape) != width):
            raise InputError(
                "image_shape",
                expected=f"(height, width) or (height, width, channels) with a product of {width}",
                got=str(tuple(self.image_shape)),
                cure="A row has one column per pixel and channel.",
            )

    @staticmethod
    def _check_codes(what: str, codes: Labels | None, names: tuple[str, ...]) -> None:
        if codes is not None and names and (codes.min() < 0 or codes.max() >= len(names)):
            raise InputError(
                what,
                expected=f"numbers from 0 to {len(names) - 1}, one for each of the {len(names)} names",
                got="a number out of range",
                cure="Name every number, or none.",
            )


def hold_out(records: Records, column: str) -> tuple[Records, npt.NDArray[Any], Literal["category", "number"]]:
    """Return the records without a column, the values of that column, and whether they are categories or numbers.

    The column is a column of the file, or an attribute of images, which is a category and stays in the records. Categories
    have the values 0, 1, ...; numbers with at most five distinct values are categories. If a feature marks the column's
    missing cells, that feature stays.

    Examples
    --------
    >>> rows = np.array([[0.5, 1.0, 0.0], [0.1, 0.0, 1.0]])
    >>> records = Records(rows=rows, feature_names=("age", "smoker=no", "smoker=yes"))
    >>> rest, values, kind = hold_out(records, "smoker")
    >>> rest.feature_names, values.tolist(), kind
    (('age',), [0, 1], 'category')
    """
    if column in records.attributes:
        values = np.asarray(records.attributes[column])
        _, codes = np.unique(values, return_inverse=True)
        return records, codes, "category"
    features = [k for k, name in enumerate(records.feature_names) if name == column or name.startswith(f"{column}=")]
    if not features:
        expected, got = f"one of the {len(records.feature_names)} columns of the table", repr(column)
        cure = "Check the spelling; a column that was left out cannot be inferred."
        raise InputError("attribute", expected=expected, got=got, cure=cure)
    if len(features) == records.n_features:
        problem = f"The column {column!r} cannot be held out, because it is the only one."
        raise InputError("attribute", problem=problem, cure="Share more columns.")
    rest = np.setdiff1d(np.arange(records.n_features), features)
    left = replace(
        records,
        rows=records.rows[:, rest],
        feature_names=tuple(records.feature_names[k] for k in rest),
        columns=_without(records.columns, column),
    )
    values = records.rows[:, features]
    if len(features) > 1:
        return left, values.argmax(axis=1), "category"
    if np.unique(values).size <= 5:
        return left, np.unique(values, return_inverse=True)[1].ravel(), "category"
    return left, values[:, 0], "number"


def _without(columns: tuple[Column, ...], name: str) -> tuple[Column, ...]:
    """Return the columns without the one of this name. If a feature marks its missing cells, that feature stays."""
    left = (
        replace(column, kind="category", categories=(), inferred=True) if column.name == name else column
        for column in columns
    )
    return tuple(column for column in left if column.width)


def label_kind_of(labels: Labels | None) -> LabelKind:
    """Return the kind of these labels: integers are classes, floats are numbers."""
    if labels is None:
        return "none"
    return "number" if labels.dtype == np.float64 else "classes"


def as_rows(what: str, rows: npt.ArrayLike, *, may_be_empty: bool = False) -> Matrix:
    """Return rows as a finite float64 matrix, or raise an `InputError`, in which `what` names the argument.

    The matrix must have at least one column and, unless `may_be_empty` is true, at least one row.
    """
    try:
        matrix = np.asarray(rows, dtype=np.float64)
    except (TypeError, ValueError):
        got = "values that are not numbers, or rows of different lengths"
        cure = "Encode words as numbers, and give all rows the same length."
        raise InputError(what, expected="a matrix of numbers", got=got, cure=cure) from None
    if matrix.ndim == 2 and may_be_empty and not len(matrix) and matrix.shape[1]:
        return matrix
    if matrix.ndim != 2 or 0 in matrix.shape:
        expected, cure = "a matrix with at least one row and one column", "Pass one row per record; flatten images."
        raise InputError(what, expected=expected, got=f"shape {matrix.shape}", cure=cure)
    if not (np.isfinite(matrix.min()) and np.isfinite(matrix.max())):  # min and max carry NaN, and need no copy
        raise InputError(what, expected="finite", got="NaN or Inf", cure="Fill or drop missing values first.")
    return matrix


def as_labels(what: str, labels: npt.ArrayLike, *, n_rows: int) -> Labels:
    """Return labels as int64 classes or float64 numbers, or raise an `InputError`, in which `what` names the argument.

    Integers and booleans are classes, floats are numbers to predict. There must be one label per row.
    """
    values = np.asarray(labels)
    _require_length(what, values, n_rows)
    if values.dtype.kind in "biu":
        return values.astype(np.int64)
    if values.dtype.kind != "f":
        expected, got = "whole numbers for classes, or floats for numbers to predict", f"an array of {values.dtype}"
        raise InputError(what, expected=expected, got=got, cure="Code the classes as 0, 1, ... first.")
    if not np.isfinite(values).all():
        raise InputError(what, expected="finite", got="NaN or Inf", cure="Drop rows without a finite label first.")
    return values.astype(np.float64)


def _as_codes(what: str, codes: npt.ArrayLike, n_rows: int) -> Indices:
    values = np.asarray(codes)
    _require_length(what, values, n_rows)
    if values.dtype.kind not in "iu":
        got = f"an array of {values.dtype}"
        raise InputError(what, expected="whole numbers", got=got, cure="Code the groups as 0, 1, ... first.")
    return values.astype(np.int64)


def _require_length(what: str, values: npt.NDArray[Any], n_rows: int) -> None:
    if values.shape != (n_rows,):
        expected = f"one entry for each of the {n_rows} rows"
        raise InputError(what, expected=expected, got=f"shape {values.shape}", cure="Check its length.")
