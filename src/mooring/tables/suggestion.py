"""Suggestions for a site's mapping: which columns of its table are those of the study, and how its cells are written.

A suggestion comes from names and from cells, which are read into memory. It is written into the site's own file, for a
person to read; nothing of it leaves the site.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mooring.tables.cells import distinct_words, is_number
from mooring.tables.files import explain_read_errors, is_parquet, open_table, open_text, require_file
from mooring.tables.mapping import ColumnMapping, TableMapping, is_decimal_comma, read_date
from mooring.tables.problems import SENTINELS
from mooring.tables.reader import read_columns
from mooring.tables.schema import MISSING_WORDS, Column, Schema, count_days
from mooring.tables.text_encodings import recognise_encoding
from mooring.typing import TableSource

DATE_FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d")
"""Forms of dates that are recognised besides YEAR-MONTH-DAY; other forms must be declared in the mapping."""
_TRUTHS = ({"yes", "y", "true", "t", "1", "ja", "j", "oui", "si", "sí"}, {"no", "n", "false", "f", "0", "nein", "non"})
_SEXES = (
    {"female", "f", "woman", "w", "weiblich", "frau", "féminin", "femme", "femenino", "mujer", "femmina", "vrouw", "v"},
    {"male", "m", "man", "männlich", "maennlich", "mann", "masculin", "homme", "masculino", "hombre", "maschio"},
)
_ISO_DATES, _OTHER = "%Y-%m-%d", "other"
_MOST_WORDS = 200
_MOST_PAIRS, _LONGEST_COMPARED = 2_500, 100
_ALIKE, _ALIKE_ENOUGH = 0.75, 0.5
_MOSTLY = 0.9
_FEWEST_NUMBERS, _LEAST_SPREAD = 5, 0.2


@dataclass(frozen=True)
class SuggestedMapping:
    """A suggested mapping, and what a person should check in it."""

    mapping: TableMapping
    pairs: dict[str, str]
    """For columns of the study whose names the table lacks, by these names, the table's columns that are suggested."""
    absent: tuple[str, ...]
    """Columns of the study, except ids, that the table lacks and for which none of its columns is suggested."""
    unknown_words: dict[str, tuple[str, ...]]
    """By the name of a column of the study, the table's words that are no category, number or day of this column, including
    words that the mapping's `other` replaces. Columns without such words are left out. The words are shown at the site
    only."""


def suggest_mapping(
    schema: Schema, data: TableSource, known: TableMapping, *, further: Sequence[str] = ()
) -> SuggestedMapping:
    """Complete a mapping for a table; what `known` already declares is kept.

    Parameters
    ----------
    schema : Schema
        The study's columns and label.
    data : path or data frame
        The site's table.
    known : TableMapping
        What a person has declared.
    further : sequence of str
        Columns that are read beside those of the schema, such as the one that names persons.
    """
    known = known if known.encoding else replace(known, encoding=_recognise_encoding(data))
    opened = open_table(data, separator=known.separator, encoding=known.encoding)
    table, ignored = read_columns(opened), frozenset(known.ignore)
    counts = {name: _count_words(table.column(name)) for name in table.column_names if name not in ignored}
    wanted = {column.name: column for column in _list_columns(schema)}
    names = [*wanted, *schema.ids, *filter(None, further)]
    declared = known.sources
    taken = {*declared.values(), *(name for name in names if name not in declared)}
    free = [name for name in counts if name not in taken]
    absent = [name for name in names if name not in declared and name not in counts]
    pairs = _pair(absent, free, wanted, counts)
    columns, sources = dict(known.columns), {**declared, **pairs}
    for name, source in pairs.items():
        columns[name] = replace(columns.get(name, ColumnMapping()), source=source)
    unknown_words = {}
    for name, column in wanted.items():
        source = sources.get(name, name)
        if source in counts:
            rule = _complete(column, columns.get(name, ColumnMapping()), known, counts[source])
            if rule != ColumnMapping():
                columns[name] = rule
            if left := _list_unknown(column, schema, rule, known, counts[source]):
                unknown_words[name] = left
                if (
                    _OTHER in column.categories and name != schema.label.column
                ):  # a person may say otherwise in the mapping
                    columns[name] = replace(rule, other=_OTHER)
    paired = frozenset(pairs.values())
    ignore = (*known.ignore, *(name for name in free if name not in paired))
    left = tuple(name for name in absent if name not in pairs and name not in schema.ids)
    return SuggestedMapping(replace(known, ignore=ignore, columns=columns), pairs, left, unknown_words)


def recognise_forms(data: TableSource) -> TableMapping:
    """Return the encoding, decimal marks and forms of dates that the cells of a table suggest."""
    columns: dict[str, ColumnMapping] = {}
    encoding = _recognise_encoding(data)
    table = read_columns(open_table(data, encoding=encoding))
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if not (pa.types.is_string(cells.type) or pa.types.is_large_string(cells.type)):
            continue
        words = list(_count_words(cells))
        n_numbers = sum(_read_number(word) is not None for word in words)
        forms = [form for form in DATE_FORMATS if words and all(read_date(word, form) is not None for word in words)]
        if any(map(is_decimal_comma, words)) and n_numbers >= _MOSTLY * len(words):
            columns[name] = ColumnMapping(decimal=",")
        elif len(forms) == 1 and not is_number(words[0]):
            columns[name] = ColumnMapping(date_format=forms[0])
    return TableMapping(encoding=encoding, columns=columns)


def _recognise_encoding(data: TableSource) -> str:
    """Return the encoding of a text file; empty for UTF-8, even with stray bytes, and for tables that are not text."""
    if not isinstance(data, str | Path) or is_parquet(Path(data)):
        return ""
    require_file(Path(data))
    with explain_read_errors(), open_text(Path(data)) as file:
        return recognise_encoding(file)


def _list_columns(schema: Schema) -> list[Column]:
    """Return the columns of a schema and then, as a further column, its label, if there is one."""
    label = schema.label
    if label.kind == "classes":
        return [*schema.columns, Column(label.column, "category", categories=label.classes)]
    return [
        *schema.columns,
        *([Column(label.column, "number", label.low, label.high)] if label.kind == "number" else []),
    ]


def _count_words(cells: Any) -> dict[str, int]:
    """Return the distinct words of a column that are not missing, with the number of rows of each."""
    distinct = distinct_words(cells)
    rows = np.bincount(distinct.places, minlength=len(distinct.text) + 1)
    texts = (None if text is None else text.strip() for text in distinct.text.to_pylist())
    counts: dict[str, int] = {}
    for text, count in zip(texts, rows.tolist(), strict=False):
        if text is not None and text not in MISSING_WORDS:
            counts[text] = counts.get(text, 0) + count
    return counts


def _pair(
    absent: Sequence[str], free: Sequence[str], wanted: Mapping[str, Column], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """Pair columns of the study that the table lacks with columns of the table, by likeness of names or by content.

    If there are many columns, two are compared only if their names differ at most in letter case and in characters that are
    neither letters nor digits.
    """
    letters = {name: _letters(name) for name in (*absent, *free)}
    of_letters: dict[str, list[str]] = {}
    for source in free:
        of_letters.setdefault(letters[source], []).append(source)
    many = len(absent) * len(free) > _MOST_PAIRS
    only_ones = {} if many else _pair_only(absent, free, wanted, counts)
    matchers = {name: WordMatcher(wanted[name].categories) for name in absent if name in wanted}
    scores = []
    for name in absent:
        column = wanted.get(name)
        for source in of_letters.get(letters[name], ()) if many else free:
            likeness = SequenceMatcher(None, letters[name], letters[source]).ratio()
            same_words = column is not None and matchers[name].knows_several(list(counts[source])[:_MOST_WORDS])
            if likeness < _ALIKE and not same_words and only_ones.get(name) != source:
                continue
            fit = 1.0 if column is None else _measure_fit(column, matchers[name], counts[source])
            if fit >= _ALIKE_ENOUGH:
                scores.append((likeness + fit, name, source))
    rivals = Counter((score, side) for score, *sides in scores for side in enumerate(sides))
    pairs: dict[str, str] = {}
    taken = set[str]()
    for score, name, source in sorted(scores, reverse=True):
        ambiguous = rivals[score, (0, name)] > 1 or rivals[score, (1, source)] > 1
        if name not in pairs and source not in taken and not ambiguous:
            pairs[name] = source
            taken.add(source)
    return pairs


def _pair_only(
    absent: Sequence[str], free: Sequence[str], wanted: Mapping[str, Column], counts: Mapping[str, Mapping[str, int]]
) -> dict[str, str]:
    """Pair the only absent column of days with the only free column that may hold its days, and likewise for numbers."""
    pairs: dict[str, str] = {}
    for holds, names in (
        (_holds_days, [name for name in absent if name in wanted and wanted[name].is_date]),
        (_holds_numbers, [name for name in absent if name in wanted and wanted[name].kind in ("number", "integer")]),
    ):
        if len(names) == 1:
            column = wanted[names[0]]
            sources = [
                source for source in free if counts[source] and holds(column, list(counts[source])[:_MOST_WORDS])
            ]
            pairs |= {names[0]: sources[0]} if len(sources) == 1 else {}
    return pairs


def _holds_numbers(column: Column, words: Sequence[str]) -> bool:
    """Return whether most words are numbers in the range of a column, and span a fifth of the range or more.

    Most means at least 90 % of the words, and at least five.
    """
    read = [number for word in words if (number := _read_number(word)) is not None]
    inside = [number for number in read if column.low <= number <= column.high]
    if len(inside) < max(_FEWEST_NUMBERS, _MOSTLY * len(words)):
        return False
    return max(inside) - min(inside) >= _LEAST_SPREAD * (column.high - column.low)


def _holds_days(column: Column, words: Sequence[str]) -> bool:
    """Return whether all words are days in the range of a column, in the same form."""
    for form in (_ISO_DATES, *DATE_FORMATS):
        days = [read_date(word, form) for word in words]
        numbers = (column.number_of(count_days(day.isoformat())) for day in days if day is not None)
        if None not in days and all(column.low <= number <= column.high for number in numbers):
            return True
    return False


def _letters(name: str) -> str:
    return "".join(re.findall(r"[^\W_]+", name.casefold()))[:_LONGEST_COMPARED]


def _measure_fit(column: Column, matcher: WordMatcher, counts: Mapping[str, int]) -> float:
    """Return the share of rows whose word fits a column; 0 without rows.

    A word fits if it stands for a category of the column, if it is a number in the range of the column or, for a column of
    dates, if it starts like a date.
    """
    n_rows = sum(counts.values())
    if column.kind == "category":
        fitting = (count for word, count in counts.items() if matcher.match(word))
    elif column.is_date:
        fitting = (
            count for word, count in counts.items() if re.match(r"^[0-9]{1,4}[-/.]?[0-9]{1,2}[-/.]?[0-9]{2}", word)
        )
    else:
        inside = ((_read_number(word), count) for word, count in counts.items())
        fitting = (count for number, count in inside if number is not None and column.low <= number <= column.high)
    return sum(fitting) / n_rows if n_rows else 0.0


def _read_number(word: str) -> float | None:
    """Return the number that a word states, with or without a decimal point or comma; None if it is not a number."""
    if not is_number(word):
        word = word.replace(",", ".") if is_decimal_comma(word) else ""
    return float(word) if is_number(word) else None


class WordMatcher:
    """Finds the category that a word of a table stands for.

    Examples
    --------
    >>> WordMatcher(("female", "male")).match("F"), WordMatcher(("no", "yes")).match("Ja")
    ('female', 'yes')
    >>> WordMatcher(("father", "friend")).match("f")
    ''
    """

    def __init__(self, categories: Sequence[str]) -> None:
        self._categories = frozenset(categories)
        self._folded = {category.casefold(): category for category in categories}
        self._sorted = sorted(self._folded)
        self._is_exact = len(self._folded) < len(categories)

    def match(self, word: str) -> str:
        """Return the category that a word stands for; empty if there is none, or if it is not clear which."""
        letters = word.casefold()
        if self._is_exact or not letters:
            return word if word in self._categories else ""
        if letters in self._folded:
            return self._folded[letters]
        for truths in _TRUTHS if len(self._folded) == 2 else ():
            same = [category for fold, category in self._folded.items() if fold in truths]
            if letters in truths and len(same) == 1:
                return same[0]
        if not letters.isalpha():
            return ""
        at = bisect_left(self._sorted, letters)
        near = self._sorted[at : at + 2]  # words that begin with the same letters are neighbours
        beginning = [fold for fold in near if fold.startswith(letters)]
        if not beginning:
            beginning = next((sorted(sex & set(self._folded)) for sex in _SEXES if letters in sex), [])
        return self._folded[beginning[0]] if len(beginning) == 1 else ""

    def knows_several(self, words: Iterable[str]) -> bool:
        """Return whether words stand for two or more of the categories."""
        return len({self.match(word) for word in words} - {""}) > 1


def _complete(column: Column, rule: ColumnMapping, known: TableMapping, counts: Mapping[str, int]) -> ColumnMapping:
    """Return a column's rule with what its cells suggest: words, a form of dates, or a decimal mark and missing codes."""
    missing = {*known.missing_words, *rule.missing_words, *column.missing_words}
    words = [word for word in counts if word not in missing]
    if column.kind == "category":
        if len(words) > _MOST_WORDS:
            return rule
        matcher, known_words = WordMatcher(column.categories), frozenset(column.categories)
        matches = {word: matcher.match(word) for word in words if word not in known_words}
        return replace(rule, words={word: match for word, match in matches.items() if match} | rule.words)
    if column.is_date:
        if rule.date_format or known.date_format or not words:
            return rule
        fitting = [form for form in DATE_FORMATS if all(read_date(word, form) is not None for word in words)]
        return replace(rule, date_format=fitting[0]) if len(fitting) == 1 else rule
    if (
        not rule.decimal
        and known.decimal == "."
        and any(is_decimal_comma(word) for word in words if not is_number(word))
    ):
        rule = replace(rule, decimal=",")
    codes = tuple(sorted(word for word in words if _is_missing_code(column, word)))
    return replace(rule, missing_words=(*rule.missing_words, *codes))


def _is_missing_code(column: Column, word: str) -> bool:
    """Return whether a word is a number that often stands for a missing value, and cannot be a value of the column."""
    number = float(word) if is_number(word) else None
    return number in SENTINELS and not column.low <= number <= column.high


def _list_unknown(
    column: Column, schema: Schema, rule: ColumnMapping, known: TableMapping, counts: Mapping[str, int]
) -> tuple[str, ...]:
    """Return the words that are no category, number or day of a column; the mapping's `other` may replace them."""
    usual = {*column.categories, *rule.words, *rule.missing_words, *known.missing_words}
    left = sorted(word for word in counts if word not in usual.union(schema.missing_words_of(column)))
    if column.is_date:
        form = rule.date_format or known.date_format or _ISO_DATES
        return tuple(word for word in left if read_date(word, form) is None and read_date(word, _ISO_DATES) is None)
    return tuple(word for word in left if column.kind == "category" or _read_number(word) is None)


def render_mapping(suggested: SuggestedMapping) -> str:
    """Return the text of a mapping's file, with comments for the person who completes it."""
    mapping = suggested.mapping
    lines = [
        "# How mooring reads this site's table. It holds words of the table, so it stays here and is sent to nobody.",
        "# The keys encoding, separator, decimal, date_format, missing_words and ignore apply to the whole table. The keys",
        "# source, decimal, date_format, missing_words and other apply to one column. They are under [columns.NAME], where",
        "# NAME is the column's name in the study. [columns.NAME.words] has the study's words for words of the table.",
    ]
    lines += [f"{key} = {_quote(value)}" for key, value in _list_entries(mapping, TableMapping()) if key != "columns"]
    for name, rule in mapping.columns.items():
        entries = [f"{key} = {_quote(value)}" for key, value in _list_entries(rule, ColumnMapping()) if key != "words"]
        if name in suggested.pairs:
            mark = "  # suggested: does this column mean the same?"
            entries = [f"{entry}{mark}" if entry.startswith("source =") else entry for entry in entries]
        lines += ["", f"[columns.{_quote(name)}]", *entries]
        if rule.words:
            lines += [f"[columns.{_quote(name)}.words]", *(f"{_quote(a)} = {_quote(b)}" for a, b in rule.words.items())]
    return "\n".join(lines) + "\n"


def _list_entries(rule: Any, usual: Any) -> Iterable[tuple[str, Any]]:
    """Return the fields of a rule that differ from those of `usual`."""
    return ((key, value) for key, value in vars(rule).items() if value != getattr(usual, key))


def _quote(value: Any) -> str:
    """Return a value as TOML, in which a string of JSON is also valid."""
    if isinstance(value, tuple):
        return "[" + ", ".join(map(_quote, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
