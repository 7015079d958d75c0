"""What one column of a table holds, and the features it becomes.

A column is read as numbers (NaN where missing), as categories (code −1 where missing), or it is of no use.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.tables.records import Labels
from mooring.typing import Indices, Matrix

MISSING_WORDS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null")
MAX_CATEGORIES = 50
MAX_INTEGER_CLASSES = 20
INDICATOR_SHARE = 0.01


@dataclass(frozen=True, eq=False)
class Column:
    """The cleaned values of one column.

    Attributes
    ----------
    numbers : array of shape (n_rows,), optional
        NaN where missing.
    codes : array of shape (n_rows,), optional
        Positions in `categories`, −1 where missing.
    categories : tuple of str
    trouble : str
        Why the column is of no use; empty if it is.
    """

    numbers: Matrix | None = None
    codes: Indices | None = None
    categories: tuple[str, ...] = ()
    trouble: str = ""

    @property
    def missing(self) -> npt.NDArray[np.bool_]:
        """Which rows have no value here."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        return np.zeros(0, dtype=np.bool_) if self.codes is None else self.codes < 0

    @property
    def values(self) -> npt.NDArray[Any]:
        """The numbers (NaN where missing; integers if whole and complete), or the words (empty where missing)."""
        if self.numbers is not None:
            return self.numbers.astype(np.int64) if _all_whole(self.numbers) else self.numbers
        assert self.codes is not None
        return np.array([*self.categories, ""], dtype=np.str_)[self.codes]


@dataclass(frozen=True, eq=False)
class Features:
    """The columns of the matrix that one column of the table becomes, none at all if it was left out."""

    columns: tuple[Matrix, ...] = ()
    names: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    centres: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()


def clean(values: Any, *, missing: Collection[str], words_may_be_numbers: bool, as_category: bool) -> Column:
    """Read a pyarrow column.

    Parameters
    ----------
    values : pyarrow.ChunkedArray
    missing : collection of str
        Words that stand for a missing value, besides the usual ones.
    words_may_be_numbers : bool
        Whether text that reads as numbers throughout is meant as numbers, as in a file of plain text.
    as_category : bool
        Whether numbers are names of categories.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        values, kind, as_category = values.cast(kind.value_type), kind.value_type, True
    if pa.types.is_boolean(kind):
        values, kind, words_may_be_numbers = values.cast(pa.string()), pa.string(), False
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        words = pc.utf8_trim_whitespace(values.cast(pa.large_string()))
        absent = pc.is_in(words, value_set=pa.array([*MISSING_WORDS, *missing], pa.large_string()))
        words = pc.if_else(absent, pa.scalar(None, pa.large_string()), words)
        if as_category or not words_may_be_numbers:
            return _categories(words)
        try:
            values = words.cast(pa.float64())
        except pa.ArrowInvalid:
            return _categories(words)
        kind = values.type
    if pa.types.is_null(kind):
        return Column(numbers=np.full(len(values), np.nan))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = np.array(values.cast(pa.float64(), safe=False).to_numpy(), dtype=np.float64)
        numbers[~np.isfinite(numbers) | np.isin(numbers, _as_numbers(missing))] = np.nan
        return _number_categories(numbers) if as_category else Column(numbers=numbers)
    if pa.types.is_temporal(kind):
        return Column(trouble="it holds dates or times")
    return Column(trouble=f"it holds values of type {kind.id if pa.types.is_nested(kind) else kind}")


def features_of(name: str, column: Column, keep: npt.NDArray[np.bool_]) -> Features:
    """Turn the kept rows of a column into features: numbers are standardised, categories become zeros and ones."""
    if column.trouble:
        return _left_out(name, column.trouble)
    if column.numbers is not None:
        return _number_features(name, column.numbers[keep])
    assert column.codes is not None
    return _category_features(name, column.codes[keep], column.categories)


def classes_of(column: Column, keep: npt.NDArray[np.bool_]) -> tuple[Indices, tuple[str, ...]]:
    """Number the different values of the kept rows 0, 1, ..., in order, and name them."""
    if column.numbers is not None:
        column = _number_categories(column.numbers)
    assert column.codes is not None
    present, codes = np.unique(column.codes[keep], return_inverse=True)
    return codes.astype(np.int64), tuple(column.categories[k] for k in present)


def labels_of(
    column: Column, keep: npt.NDArray[np.bool_], *, max_integer_classes: int | None = MAX_INTEGER_CLASSES
) -> tuple[Labels, tuple[str, ...]]:
    """Read a column as labels: words and few whole numbers are classes, other numbers are numbers."""
    if column.numbers is not None:
        distinct = np.unique(column.numbers[keep])
        few = max_integer_classes is None or distinct.size <= max_integer_classes
        if not (few and _all_whole(distinct)):
            return column.numbers[keep], ()
    return classes_of(column, keep)


def _number_features(name: str, values: Matrix) -> Features:
    absent = np.isnan(values)
    present = values[~absent]
    if present.size == 0:
        return _left_out(name, "it is empty")
    filled = np.where(absent, np.median(present), values)
    indicator = Features()
    if absent.mean() > INDICATOR_SHARE:
        indicator = Features((absent.astype(np.float64),), (f"{name} is missing",), ("category",), (0.0,), (1.0,))
    largest = float(np.abs(filled).max()) or 1.0  # so that the squares of huge numbers stay finite
    centre = float(np.mean(filled / largest))
    spread = float(np.std(filled / largest))
    if filled.min() == filled.max() or spread <= 1e-12 * abs(centre):
        return _joined(indicator, _left_out(name, "it is constant"))
    standard = (filled / largest - centre) / spread
    kind = "integer" if _all_whole(present) else "number"
    return _joined(Features((standard,), (name,), (kind,), (centre * largest,), (spread * largest,)), indicator)


def _category_features(name: str, codes: Indices, categories: tuple[str, ...]) -> Features:
    present = np.unique(codes)
    names = {int(k): "missing" if k < 0 else categories[k] for k in present}
    if np.count_nonzero(present >= 0) == 0:
        return _left_out(name, "it is empty")
    different = sorted(set(names.values()))
    if len(different) == 1:
        return _left_out(name, "it is constant")
    if np.count_nonzero(present >= 0) > MAX_CATEGORIES:
        return _left_out(name, f"it has more than {MAX_CATEGORIES} categories")
    columns = tuple(
        np.isin(codes, [code for code, word in names.items() if word == wanted]).astype(np.float64)
        for wanted in different
    )
    width = len(different)
    return Features(
        columns, tuple(f"{name}={word}" for word in different), ("category",) * width, (0.0,) * width, (1.0,) * width
    )


def _joined(*parts: Features) -> Features:
    return Features(
        columns=tuple(x for part in parts for x in part.columns),
        names=tuple(x for part in parts for x in part.names),
        kinds=tuple(x for part in parts for x in part.kinds),
        centres=tuple(x for part in parts for x in part.centres),
        scales=tuple(x for part in parts for x in part.scales),
        notes=tuple(x for part in parts for x in part.notes),
    )


def _left_out(name: str, reason: str) -> Features:
    return Features(notes=(f"column {name!r} is left out: {reason}",))


def _categories(words: Any) -> Column:
    coded = words.combine_chunks().dictionary_encode()
    names = np.array(coded.dictionary.to_pylist(), dtype=object)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    order = np.argsort(names)
    place = np.full(names.size + 1, -1)  # the last entry is where code −1 looks
    place[order] = np.arange(names.size)
    return Column(codes=place[codes].astype(np.int64), categories=tuple(names[order]))


def _number_categories(numbers: Matrix) -> Column:
    distinct, codes = np.unique(numbers, return_inverse=True)
    present = distinct[~np.isnan(distinct)]
    codes = np.where(np.isnan(numbers), -1, codes)
    names = tuple(str(int(x)) if x.is_integer() else repr(x) for x in present.tolist())
    return Column(codes=codes.astype(np.int64), categories=names)


def _all_whole(values: Matrix) -> bool:
    return bool((values == np.rint(values)).all())


def _as_numbers(words: Collection[str]) -> list[float]:
    numbers = []
    for word in words:
        try:
            numbers.append(float(word))
        except ValueError:
            continue
    return numbers
