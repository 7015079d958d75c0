"""Infers what each column of a table holds, from the cells of the column.

This is the only inference of column kinds. Audits choose an encoding by it (`choose_encoding`), `mooring study header`
describes columns by it, and drafts of a study take the likely kind of each column from it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.errors import InputError
from mooring.serialization import count_noun
from mooring.tables.cells import (
    as_plain,
    as_text,
    describe_type,
    encode_distinct,
    holds_words,
    is_number,
    is_readable,
    is_whole,
    missing_numbers,
    read_days,
    word_places,
)
from mooring.tables.problems import DATE_LIKE, NUMBER_LIKE, SENTINELS
from mooring.tables.schema import MISSING_WORDS, Column, Schema
from mooring.typing import Indices, Labels, Vector

ValueKind = Literal["number", "integer", "category", "time", "other", "empty"]
LikelyKind = Literal["number", "date", "category", "id", "text", ""]
MAX_CATEGORIES = 50
"""A column with more distinct words than this is not a category."""
MAX_INTEGER_CLASSES = 20
"""A label with more distinct whole numbers than this is a number, not a class."""
INDICATOR_SHARE = 0.01
"""If a larger share of a column's numbers is missing, a further feature marks the missing numbers."""
FEWEST_ROWS = 5
"""A range, frequent word or missing word is inferred from at least this many rows."""
_MANY_NUMBERS = 10  # with more distinct numbers than this, a sentinel far from all others stands for a missing value
_NO_SPREAD = 1e-12  # relative to the mean: the deviation that rounding may leave in a constant column
_IDENTIFIER = r"^[^\s:]*[0-9][^\s:]*$"
_MOMENT, _ZONED_MOMENT = pa.timestamp("ns"), pa.timestamp("ns", "UTC")


@dataclass(frozen=True, eq=False)
class InferredColumn:
    """What one column of a table holds. Properties are computed when they are first used."""

    name: str
    values: Any = field(repr=False)
    """The cells as a pyarrow array, null where missing: float64 for numbers, a dictionary of words in rising order for
    categories and for dates or times written as text, and the type as stored for everything else."""
    unusable: str = ""
    """Why the column cannot be used, such as because it holds dates; empty for numbers and categories."""

    @cached_property
    def kind(self) -> ValueKind:
        """The kind of all cells. "time" stands for dates and times, "other" for types that are not read."""
        if self.unusable:
            is_text = pa.types.is_dictionary(self.values.type)
            return "time" if is_text or kind_of_type(self.values.type) == "time" else "other"
        if self.n_missing == len(self.values):
            return "empty"
        if pa.types.is_dictionary(self.values.type):
            return "category"
        return "integer" if is_whole(self.numbers) else "number"

    @cached_property
    def likely_kind(self) -> LikelyKind:
        """The kind that most of the distinct words look like; empty for a column without values or of an unreadable type.

        Numbers with a decimal comma, a unit or a limit of detection count as numbers. If more than ten words, and more than
        half of the cells, are distinct, words that are neither numbers nor dates are identifiers ("id") if most contain a
        digit, no space and no colon, and free text ("text") otherwise. If fewer are distinct, such words are categories.
        """
        if self.kind in ("empty", "other"):
            return ""
        if not pa.types.is_dictionary(self.values.type):
            return "date" if self.kind == "time" else "number"
        words = list(self.word_counts)
        many = len(words) > max(10, (len(self.values) - self.n_missing) / 2)
        patterns: dict[LikelyKind, str] = {"number": NUMBER_LIKE, "date": DATE_LIKE}
        for kind, pattern in (patterns | {"id": _IDENTIFIER} if many else patterns).items():
            if 2 * sum(re.search(pattern, word) is not None for word in words) > len(words):
                return kind
        return "text" if many else "category"

    @cached_property
    def n_missing(self) -> int:
        """How many cells are missing."""
        return int(self.values.null_count)

    @cached_property
    def numbers(self) -> Vector:
        """The numbers that are not missing, in row order; for a category of words that are numbers, in word order."""
        if pa.types.is_dictionary(self.values.type):
            words = np.array(list(self.word_counts), dtype=np.str_)
            return np.repeat(words.astype(np.float64), list(self.word_counts.values()))
        return np.asarray(self.values.drop_null().to_numpy(zero_copy_only=False))

    @cached_property
    def word_counts(self) -> dict[str, int]:
        """The distinct words of a category, in rising order, with the number of rows of each."""
        n_words = len(self.values.dictionary)
        counts = np.bincount(word_places(self.values), minlength=n_words)[:n_words].tolist()
        pairs = zip(self.values.dictionary.to_pylist(), counts, strict=True)
        return dict(sorted((word, count) for word, count in pairs if count))

    @cached_property
    def missing_words(self) -> tuple[str, ...]:
        """Sentinels (see `SENTINELS`) that probably stand for a missing value.

        Such a sentinel is frequent, and it is either far from nearly all other numbers, or negative where hardly any other
        number is negative. Zero is never among them, because many tables have many zeros.
        """
        if self.kind == "category" and not all(map(is_number, self.word_counts)):
            return ()
        usual = self.numbers[~np.isin(self.numbers, SENTINELS)]
        others_negative = np.count_nonzero(usual < 0) >= FEWEST_ROWS
        many = np.unique(usual).size > _MANY_NUMBERS
        low, high = find_ends(usual) if many else (0.0, 0.0)
        missing_words = []
        for sentinel in filter(None, SENTINELS):
            is_far = many and max(low - sentinel, sentinel - high) > 0.25 * (high - low)
            is_frequent = np.count_nonzero(self.numbers == sentinel) >= FEWEST_ROWS
            if is_frequent and (is_far or (sentinel < 0 and not others_negative)):
                missing_words.append(f"{sentinel:g}")
        return tuple(missing_words)

    @cached_property
    def present_numbers(self) -> Vector:
        """The numbers, without those that probably stand for a missing value."""
        return self.numbers[~np.isin(self.numbers, [float(word) for word in self.missing_words])]

    @cached_property
    def frequent_words(self) -> tuple[str, ...]:
        """Words of a category in at least `FEWEST_ROWS` rows, without words that probably stand for a missing value."""
        frequent = (word for word, count in self.word_counts.items() if count >= FEWEST_ROWS)
        return tuple(word for word in frequent if word not in self.missing_words)

    @cached_property
    def days(self) -> Vector:
        """Cells of text or days as days since 1970-01-01, NaN where missing or no day; empty if the type is unreadable."""
        if not is_readable(self.values.type, as_date=True):
            return np.zeros(0)
        words = encode_distinct(as_plain(self.values))
        return np.append(read_days(words.dictionary), np.nan).take(word_places(words))

    def keep(self, rows: npt.NDArray[np.bool_]) -> InferredColumn:
        """Return the column with these rows only; an unusable column is returned as it is."""
        return self if self.unusable else replace(self, values=self.values.filter(pa.array(rows)))


def infer_column(
    name: str, cells: Any, *, missing: Collection[str] = (), is_text: bool = False, as_category: bool = False
) -> InferredColumn:
    """Return a pyarrow column as numbers, as words, or with the reason why it is neither.

    `missing` are words that stand for a missing value, besides the usual ones. With `is_text`, the column comes from a file
    of plain text, and holds numbers, dates or truth values if all its words can be read as such. With `as_category`, numbers
    are names of categories.
    """
    if pa.types.is_dictionary(cells.type):
        as_category = as_category or not is_text
        if not holds_words(cells.type.value_type):
            cells = cells.cast(cells.type.value_type)
    elif pa.types.is_boolean(cells.type):
        cells = cells.cast(pa.string())
    elif (
        is_text and (numbers := _cast(cells, pa.float64())) is not None
    ):  # quicker than distinct words, if none is missing
        cells = numbers
    if pa.types.is_dictionary(cells.type) or holds_words(cells.type):
        coded = encode_distinct(cells)
        words = pc.utf8_trim_whitespace(coded.dictionary.cast(pa.string()))
        absent = pc.is_in(words, value_set=pa.array([*MISSING_WORDS, *missing], pa.string()))
        words = pc.if_else(absent, pa.scalar(None, pa.string()), words)
        numbers = _cast(words, pa.float64()) if is_text else None
        if numbers is None:
            return _infer_words(name, words, coded.indices, is_text=is_text)
        cells = numbers.take(coded.indices)
    kind = kind_of_type(cells.type)
    if kind == "empty":
        return InferredColumn(name, pa.nulls(len(cells), pa.float64()))
    if kind in ("number", "integer"):
        numbers = np.array(cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        absent = ~np.isfinite(numbers) | np.isin(numbers, missing_numbers(frozenset(missing)))
        values = pa.array(numbers, mask=absent)
        return InferredColumn(name, _number_names(values) if as_category else values)
    reason = "it holds dates or times" if kind == "time" else f"it holds values of type {describe_type(cells.type)}"
    return InferredColumn(name, cells, reason)


def kind_of_type(stored: Any) -> ValueKind:
    """Return the kind of a column by its type in Parquet or a data frame."""
    if pa.types.is_null(stored):
        return "empty"
    if pa.types.is_dictionary(stored) or pa.types.is_boolean(stored) or holds_words(stored):
        return "category"
    if pa.types.is_integer(stored):
        return "integer"
    if pa.types.is_floating(stored) or pa.types.is_decimal(stored):
        return "number"
    return "time" if pa.types.is_temporal(stored) else "other"


def find_ends(numbers: Vector) -> tuple[float, float]:
    """Return the fifth lowest and the fifth highest number, so that no end comes from fewer than `FEWEST_ROWS` rows."""
    ordered = np.partition(numbers, (FEWEST_ROWS - 1, numbers.size - FEWEST_ROWS))
    return float(ordered[FEWEST_ROWS - 1]), float(ordered[numbers.size - FEWEST_ROWS])


def widen_range(low: float, high: float, *, n_steps: int) -> tuple[float, float]:
    """Round both ends outward to a multiple of the largest power of ten up to `high - low`, and move them `n_steps` further.

    A lower end that is not negative is only rounded if the further move would bring it to zero or below: zero often stands
    for a missing value, and should then lie outside the range.

    Examples
    --------
    >>> widen_range(29, 77, n_steps=0), widen_range(126, 564, n_steps=1), widen_range(0.02, 0.42, n_steps=1)
    ((20.0, 80.0), (100.0, 700.0), (0.0, 0.6))
    """
    exponent = math.floor(math.log10(high - low))
    step, parts = (10.0**exponent, 1.0) if exponent >= 0 else (1.0, 10.0**-exponent)
    first, last = math.floor(low * parts / step), math.ceil(high * parts / step) + n_steps
    first -= n_steps if first < 0 or first > n_steps else 0
    return first * step / parts, last * step / parts


def choose_encoding(column: InferredColumn) -> tuple[Column | None, str]:
    """Return the encoding of a column in an audit, and a note that says what is left out and why.

    The encoding is None if the whole column is left out. The note is empty if nothing is left out. Numbers are standardised,
    and missing ones become the median. If more than 1 % of the numbers are missing, a further feature marks them; a constant
    column of numbers keeps this feature alone. Each word of a category becomes a feature and, if cells are missing, so does
    the word "missing".
    """
    name, values = column.name, column.values
    if column.unusable:
        return None, _left_out(name, column.unusable)
    if column.kind == "empty":
        return None, _left_out(name, "it is empty")
    if column.kind == "category":
        return _encode_words(column)
    indicate = column.n_missing > INDICATOR_SHARE * len(values)
    median, centre, spread = _standard_scale(values)
    if spread == 0.0:
        only_missing = Column(name, "category", missing="indicate", inferred=True) if indicate else None
        return only_missing, _left_out(name, "it is constant")
    encoding = Column(
        name,
        "integer" if column.kind == "integer" else "number",
        -np.inf,
        np.inf,
        missing="indicate" if indicate else "fill",
        inferred=True,
        centre=centre,
        spread=spread,
        fill=median,
    )
    return encoding, ""


def fit_scale(schema: Schema, columns: Any) -> Schema:
    """Return an inferred schema whose numbers are standardised and filled by the rows of `columns`.

    `schema` and `columns` are those of an `InferredTable`. A constant column is only centred. A column without any value in
    these rows becomes 0 for all rows, because nothing is known about its scale.
    """
    fitted = []
    for column in schema.columns:
        if column.kind != "category":
            values = columns.column(column.name).combine_chunks()
            fill, centre, spread = (0.0, 0.0, np.inf) if values.null_count == len(values) else _standard_scale(values)
            column = replace(column, fill=fill, centre=centre, spread=spread or 1.0)
        fitted.append(column)
    return replace(schema, columns=tuple(fitted))


def _standard_scale(values: Any) -> tuple[float, float, float]:
    """Return the median, and the mean and standard deviation once gaps are filled with the median.

    A standard deviation that may come from rounding alone is 0.
    """
    numbers = values.to_numpy(zero_copy_only=False)
    median = float(np.median(numbers[~np.isnan(numbers)]))
    filled = np.where(np.isnan(numbers), median, numbers)
    # Dividing by a power of two changes no digit and keeps the squares of huge numbers finite.
    unit = 2.0 ** (np.frexp(np.abs(filled).max())[1] - 1)
    centre, spread = float(np.mean(filled / unit)) * unit, float(np.std(filled / unit)) * unit
    return median, centre, 0.0 if spread <= _NO_SPREAD * abs(centre) else spread


def _encode_words(column: InferredColumn) -> tuple[Column | None, str]:
    words = set(column.word_counts)
    if len(words) > MAX_CATEGORIES:
        return None, _left_out(column.name, f"it has more than {MAX_CATEGORIES} categories")
    fill = "missing" if column.n_missing else None
    categories = tuple(sorted(words | ({fill} if fill else set())))
    if len(categories) == 1:
        return None, _left_out(column.name, "it is constant")
    return Column(column.name, "category", categories=categories, missing="fill", inferred=True, fill=fill), ""


def _left_out(name: str, reason: str) -> str:
    return f"column {name!r} is left out: {reason}"


@dataclass(frozen=True, eq=False)
class RowKeys:
    """The labels and groups of the rows that have them."""

    keep: npt.NDArray[np.bool_]
    """A mask of the rows to use: those that the caller keeps and that have a label and a group, if these are read."""
    labels: Labels | None
    label_names: tuple[str, ...]
    groups: Indices | None
    group_names: tuple[str, ...]
    notes: tuple[str, ...]


def read_keys(
    label: InferredColumn | None,
    group: InferredColumn | None,
    *,
    keep: npt.NDArray[np.bool_],
    max_integer_classes: float = MAX_INTEGER_CLASSES,
) -> RowKeys:
    """Read labels and groups, and drop the rows without them, as well as the rows that `keep` leaves out.

    Labels that are words are classes, and so are whole numbers with at most `max_integer_classes` distinct values; all other
    labels are numbers to predict. Groups are always classes.
    """
    notes = []
    for what, noun, column in (("label", "label", label), ("group_by", "group", group)):
        if column is None:
            continue
        if column.unusable:
            got = f"a column that cannot be used: {column.unusable}"
            raise InputError(what, expected="a column of numbers or words", got=got, cure="Choose another column.")
        absent = column.values.is_null().to_numpy(zero_copy_only=False)
        if (keep & absent).any():
            notes.append(describe_dropped(np.count_nonzero(keep & absent), f"a {noun}"))
        keep = keep & ~absent
        if not keep.any():
            raise InputError(
                what,
                expected="a column with values",
                got="a column that is empty in every row that remains",
                cure="Choose another column.",
            )
    labels, label_names = (None, ()) if label is None else _labels(label.keep(keep), max_integer_classes)
    groups, group_names = (None, ()) if group is None else _classes(group.keep(keep).values)
    return RowKeys(keep, labels, label_names, groups, group_names, tuple(notes))


def describe_dropped(n: Any, what: str) -> str:
    """Return a note that `n` rows are dropped because they lack `what`."""
    return count_noun(int(n), f"row without {what} is dropped", f"rows without {what} are dropped")


def plain_values(column: InferredColumn) -> npt.NDArray[Any]:
    """Return a column's numbers (NaN where missing; integers if all are whole), or its words (empty where missing)."""
    if pa.types.is_dictionary(column.values.type):
        return np.array(column.values.dictionary_decode().fill_null("").to_pylist(), dtype=np.str_)
    numbers = np.asarray(column.values.to_numpy(zero_copy_only=False))
    return numbers.astype(np.int64) if is_whole(numbers) else numbers


def _labels(column: InferredColumn, max_integer_classes: float) -> tuple[Labels, tuple[str, ...]]:
    if column.kind != "category":
        distinct = np.unique(column.numbers)
        if distinct.size > max_integer_classes or not is_whole(distinct):
            return column.numbers, ()
    return _classes(column.values)


def _classes(values: Any) -> tuple[Indices, tuple[str, ...]]:
    """Number the distinct values 0, 1, ..., in rising order; return the number of each row, and the values as names."""
    values = values if pa.types.is_dictionary(values.type) else _number_names(values)
    present, codes = np.unique(values.indices.to_numpy(zero_copy_only=False), return_inverse=True)
    return codes.astype(np.int64), tuple(values.dictionary.take(pa.array(present)).to_pylist())


def _infer_words(name: str, words: Any, indices: Any, *, is_text: bool) -> InferredColumn:
    """Return the column whose cells are the words at these indices."""
    if is_text:
        times = pc.binary_join_element_wise("1970-01-01", words, " ")
        if any(_cast(*pair) is not None for pair in ((words, _MOMENT), (words, _ZONED_MOMENT), (times, _MOMENT))):
            return InferredColumn(name, _dictionary(words, indices), "it holds dates or times")
        truths = _cast(words, pa.bool_())
        words = words if truths is None else truths.cast(pa.string())
    return InferredColumn(name, _dictionary(words, indices))


def _dictionary(words: Any, indices: Any) -> Any:
    """Return an array of the words at these indices, with a sorted dictionary; words may be null or repeated."""
    coded = words.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    place = pc.sort_indices(order)
    return pa.DictionaryArray.from_arrays(
        place.take(coded.indices).take(indices).cast(pa.int32()), coded.dictionary.take(order)
    )


def _number_names(values: Any) -> Any:
    """Return numbers as categories, in rising order; whole numbers have no decimal point."""
    numbers = values.to_numpy(zero_copy_only=False)
    distinct, codes = np.unique(numbers[~np.isnan(numbers)], return_inverse=True)
    indices = np.zeros(numbers.size, dtype=np.int32)
    indices[~np.isnan(numbers)] = codes
    names = pa.array([as_text(number) for number in distinct.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=np.isnan(numbers)), names)


def _cast(values: Any, kind: Any) -> Any:
    try:
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None
