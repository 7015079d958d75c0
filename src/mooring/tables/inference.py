"""The schema of a table inferred from its rows, for an audit: nothing of a study's participant passes through here.

`clean_values` reads a column as numbers or as words; `infer_column` says what a clean column becomes when it is encoded.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from mooring.errors import InputError
from mooring.serialization import count_noun
from mooring.tables.cells import as_text, describe_type, holds_words, is_whole, missing_numbers
from mooring.tables.records import Labels
from mooring.tables.schema import MISSING_WORDS, Column, Schema
from mooring.typing import Indices

MAX_CATEGORIES = 50
MAX_INTEGER_CLASSES = 20
INDICATOR_SHARE = 0.01
_NO_SPREAD = 1e-12  # of the mean: what rounding leaves of a constant column
_MOMENT, _ZONED_MOMENT = pa.timestamp("ns"), pa.timestamp("ns", "UTC")
Values = Any
"""A clean column, a pyarrow array: float64, or a dictionary of words in rising order; null where missing."""


def clean_values(
    values: Any, *, missing: Collection[str] = (), is_text: bool = False, as_category: bool = False
) -> Values | str:
    """Read a pyarrow column as numbers or words.

    Parameters
    ----------
    missing : collection of str
        Words that stand for a missing value, besides the usual ones.
    is_text : bool
        Whether the column comes from a file of plain text: words that read as numbers throughout are meant as numbers,
        and so are dates and truths.
    as_category : bool
        Whether numbers are names of categories.

    Returns
    -------
    A clean column, or why it cannot be used.
    """
    if pa.types.is_dictionary(values.type):
        as_category = as_category or not is_text
        if not holds_words(values.type.value_type):
            values = values.cast(values.type.value_type)
    elif pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if pa.types.is_dictionary(values.type) or holds_words(values.type):
        coded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
        coded = coded.unify_dictionaries().combine_chunks()
        coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
        words = pc.utf8_trim_whitespace(coded.dictionary.cast(pa.string()))
        absent = pc.is_in(words, value_set=pa.array([*MISSING_WORDS, *missing], pa.string()))
        words = pc.if_else(absent, pa.scalar(None, pa.string()), words)
        numbers = _cast(words, pa.float64()) if is_text else None
        if numbers is None:
            return _words_or_moments(words, coded.indices) if is_text else _dictionary(words, coded.indices)
        values = numbers.take(coded.indices)
    kind = values.type
    if pa.types.is_null(kind):
        return pa.nulls(len(values), pa.float64())
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
        absent = ~np.isfinite(numbers) | np.isin(numbers, missing_numbers(frozenset(missing)))
        clean = pa.array(numbers, mask=absent)
        return _number_names(clean) if as_category else clean
    if pa.types.is_temporal(kind):
        return "it holds dates or times"
    return f"it holds values of type {describe_type(kind)}"


def infer_column(name: str, values: Values | str) -> tuple[Column | None, str]:
    """What a clean column is encoded as, None if it is left out; and why, or of which part of it, in words.

    Numbers are standardised, missing ones filled with the median, and where more than 1 % are missing a further column
    tells. Words become a category each, "missing" being one of them.
    """
    if isinstance(values, str):
        return _left_out(name, values)
    if values.null_count == len(values):
        return _left_out(name, "it is empty")
    if pa.types.is_dictionary(values.type):
        return _infer_category(name, values)
    indicate = values.null_count > INDICATOR_SHARE * len(values)
    median, centre, spread = _standard_scale(values)
    if spread == 0.0:
        only_missing = Column(name, "category", missing="indicate", inferred=True) if indicate else None
        return only_missing, _left_out(name, "it is constant")[1]
    column = Column(
        name,
        "integer" if is_whole(values.drop_null().to_numpy(zero_copy_only=False)) else "number",
        -np.inf,
        np.inf,
        missing="indicate" if indicate else "fill",
        inferred=True,
        centre=centre,
        spread=spread,
        fill=median,
    )
    return column, ""


def fit_scale(schema: Schema, columns: Any) -> Schema:
    """The same inferred schema with its numbers standardised, and filled, by these rows of clean columns.

    A column that is constant is centred only, and one that is missing throughout becomes 0 for all rows: nothing is known of
    its scale.
    """
    fitted = []
    for column in schema.columns:
        if column.kind != "category":
            values = columns.column(column.name).combine_chunks()
            fill, centre, spread = (0.0, 0.0, np.inf) if values.null_count == len(values) else _standard_scale(values)
            column = replace(column, fill=fill, centre=centre, spread=spread or 1.0)
        fitted.append(column)
    return replace(schema, columns=tuple(fitted))


def _standard_scale(values: Values) -> tuple[float, float, float]:
    """Median, and mean and standard deviation once it fills the gaps; 0 for a deviation that is rounding alone."""
    numbers = values.to_numpy(zero_copy_only=False)
    median = float(np.median(numbers[~np.isnan(numbers)]))
    filled = np.where(np.isnan(numbers), median, numbers)
    # By a power of two, which changes no digit, so that the squares of huge numbers stay finite.
    unit = 2.0 ** (np.frexp(np.abs(filled).max())[1] - 1)
    centre, spread = float(np.mean(filled / unit)) * unit, float(np.std(filled / unit)) * unit
    return median, centre, 0.0 if spread <= _NO_SPREAD * abs(centre) else spread


@dataclass(frozen=True, eq=False)
class RowKeys:
    """The labels and groups of the rows that have them, and which rows those are."""

    keep: npt.NDArray[np.bool_]
    labels: Labels | None
    label_names: tuple[str, ...]
    groups: Indices | None
    group_names: tuple[str, ...]
    notes: tuple[str, ...]


def row_keys(
    label: Values | str | None,
    group: Values | str | None,
    *,
    keep: npt.NDArray[np.bool_],
    max_integer_classes: float = MAX_INTEGER_CLASSES,
) -> RowKeys:
    """Read labels and groups, and drop the rows without them.

    Parameters
    ----------
    label, group : clean columns, or why they cannot be used
        Words and few whole numbers are classes, other numbers are numbers. Groups are always classes.
    keep : array of bool
        Rows to read.
    max_integer_classes : float
        How many different whole numbers are few.
    """
    notes = []
    for what, said, values in (("label", "label", label), ("group_by", "group", group)):
        if isinstance(values, str):
            got = f"one that cannot be used: {values}"
            raise InputError(what, expected="a column of numbers or words", got=got, cure="Choose another column.")
        if values is None:
            continue
        absent = values.is_null().to_numpy(zero_copy_only=False)
        if (keep & absent).any():
            notes.append(describe_dropped(np.count_nonzero(keep & absent), f"a {said}"))
        keep = keep & ~absent
        if not keep.any():
            raise InputError(
                what, expected="a column with values", got="none in any row", cure="Choose another column."
            )
    assert not isinstance(label, str)
    assert not isinstance(group, str)
    labels, label_names = (None, ()) if label is None else _labels(label.filter(pa.array(keep)), max_integer_classes)
    groups, group_names = (None, ()) if group is None else _classes(group.filter(pa.array(keep)))
    return RowKeys(keep, labels, label_names, groups, group_names, tuple(notes))


def describe_dropped(n: Any, what: str) -> str:
    """A note on rows that lack what is needed of each."""
    return count_noun(int(n), f"row without {what} is dropped", f"rows without {what} are dropped")


def plain_values(values: Values) -> npt.NDArray[Any]:
    """The numbers (NaN where missing; integers if whole and complete), or the words (empty where missing)."""
    if pa.types.is_dictionary(values.type):
        return np.array(values.dictionary_decode().fill_null("").to_pylist(), dtype=np.str_)
    numbers = np.asarray(values.to_numpy(zero_copy_only=False))
    return numbers.astype(np.int64) if is_whole(numbers) else numbers


def require_column(what: str, name: str, names: Collection[str]) -> None:
    """Refuse a column name that is not there, and say which come near.

    Parameters
    ----------
    what : str
        Its name in the error.
    name : str
        The name asked for.
    names : collection of str
        Those that there are.
    """
    if name in names:
        return
    folded = {other.casefold(): other for other in names}
    near = [folded[found] for found in get_close_matches(str(name).casefold(), folded, n=3, cutoff=0.5)]
    cure = f"Nearest to it: {listed(near)}." if near else f"There are {listed(list(names))}."
    raise InputError(what, expected="the name of a column", got=f"{name!r}, which is none", cure=cure)


def listed(names: list[str]) -> str:
    """The first ten names, quoted, and how many more there are."""
    shown = ", ".join(map(repr, names[:10]))
    return shown if len(names) <= 10 else f"{shown} and {len(names) - 10} more"


def _infer_category(name: str, values: Values) -> tuple[Column | None, str]:
    words = set(values.dictionary.take(pc.unique(values.indices).drop_null()).drop_null().to_pylist())
    if len(words) > MAX_CATEGORIES:
        return _left_out(name, f"it has more than {MAX_CATEGORIES} categories")
    fill = "missing" if values.null_count else None
    categories = tuple(sorted(words | ({fill} if fill else set())))
    if len(categories) == 1:
        return _left_out(name, "it is constant")
    return Column(name, "category", categories=categories, missing="fill", inferred=True, fill=fill), ""


def _left_out(name: str, reason: str) -> tuple[None, str]:
    return None, f"column {name!r} is left out: {reason}"


def _labels(values: Values, max_integer_classes: float) -> tuple[Labels, tuple[str, ...]]:
    if not pa.types.is_dictionary(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        distinct = np.unique(numbers)
        if distinct.size > max_integer_classes or not is_whole(distinct):
            return numbers, ()
    return _classes(values)


def _classes(values: Values) -> tuple[Indices, tuple[str, ...]]:
    """Number the different values 0, 1, ..., in rising order, and name them."""
    values = values if pa.types.is_dictionary(values.type) else _number_names(values)
    present, codes = np.unique(values.indices.to_numpy(zero_copy_only=False), return_inverse=True)
    return codes.astype(np.int64), tuple(values.dictionary.take(pa.array(present)).to_pylist())


def _words_or_moments(words: Any, indices: Any) -> Values | str:
    """Words of a text file, of which not all are numbers."""
    times = pc.binary_join_element_wise("1970-01-01", words, " ")
    if any(_cast(*of) is not None for of in ((words, _MOMENT), (words, _ZONED_MOMENT), (times, _MOMENT))):
        return "it holds dates or times"
    truths = _cast(words, pa.bool_())
    return _dictionary(words if truths is None else truths.cast(pa.string()), indices)


def _dictionary(words: Any, indices: Any) -> Values:
    """The words at these indices, each once and in rising order; some of the words may be null, or the same."""
    coded = words.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    place = pc.sort_indices(order)
    return pa.DictionaryArray.from_arrays(
        place.take(coded.indices).take(indices).cast(pa.int32()), coded.dictionary.take(order)
    )


def _number_names(values: Values) -> Values:
    """Numbers as categories, in rising order: whole ones without a decimal point."""
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
