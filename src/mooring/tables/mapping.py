"""How a site's own table is read as the table of a study: other names, words, decimal marks, dates and missing values.

A mapping is a small TOML file that a site keeps for its own table. It holds words of the table, so it stays at the site. A
`MappedTable` stands for a table with its mapping wherever a table is read.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from mooring.atomic_io import read_bounded
from mooring.errors import InputError, RefusedError
from mooring.serialization import Record, count_noun, read_entries
from mooring.tables.cells import distinct_words, is_number, missing_numbers
from mooring.tables.schema import MISSING_WORDS, Schema, find_repeated, require_column
from mooring.tables.text_encodings import ENCODINGS

SEPARATORS = (",", ";", "\t", "|")
_MOST_BYTES = 2**20
_LONGEST_FORMAT = 40
_SOME_DAY = date(1931, 1, 30)
_DECIMAL_COMMA = re.compile(r"[+-]?([0-9]{1,3}([. '][0-9]{3})+|[0-9]*)(,[0-9]+)?([eE][+-]?[0-9]+)?")
_THOUSANDS = str.maketrans({".": None, " ": None, "'": None, ",": "."})
_CURE = "Correct the mapping."


@dataclass(frozen=True)
class ColumnMapping(Record):
    """How one column of a study is read from a site's table. A rule that is left out is that of the table."""

    source: str = ""
    """Name of the column in the table; empty if the study uses the same name."""
    decimal: str = ""
    """Decimal mark of the column's numbers: a point or a comma."""
    date_format: str = ""
    """Form of the column's dates, such as "%d.%m.%Y"."""
    missing_words: tuple[str, ...] = ()
    """Words that stand for a missing value in this column, besides those of the whole table."""
    words: dict[str, str] = field(default_factory=dict)
    """For words of the table, the study's words."""
    other: str = ""
    """The study's word for every word that is not among `words`, not a category and not missing; empty if such words
    stay as they are."""


@dataclass(frozen=True)
class TableMapping(Record):
    """How a site's table is read as the table of a study."""

    encoding: str = ""
    """Encoding of a text file, such as "windows-1252"; empty for UTF-8."""
    separator: str = ""
    """Separator of a text file; empty for the one that the first line suggests."""
    decimal: str = "."
    date_format: str = ""
    missing_words: tuple[str, ...] = ()
    """Words that stand for a missing value in every column of this table."""
    ignore: tuple[str, ...] = ()
    """Columns of the table to leave out."""
    columns: dict[str, ColumnMapping] = field(default_factory=dict)
    """The rules for single columns, by the name of the column in the study."""

    def __post_init__(self) -> None:
        _require_one_of("encoding of the mapping", self.encoding, ("", *ENCODINGS))
        _require_one_of("separator of the mapping", self.separator, ("", *SEPARATORS))
        _require_one_of("decimal of the mapping", self.decimal, (".", ","))
        _require_date_format("the mapping", self.date_format)
        for name, rule in self.columns.items():
            _require_one_of(f"decimal of column {name!r}", rule.decimal, ("", ".", ","))
            _require_date_format(f"column {name!r}", rule.date_format)
        twice = find_repeated([*self.sources.values(), *self.ignore])
        if twice is not None:
            problem = f"The mapping uses the column {twice!r} of the table more than once."
            raise InputError("mapping", problem=problem, cure="Name each column once, as a source or under ignore.")

    def fit_to(self, schema: Schema, *further: str) -> TableMapping:
        """Return the mapping, checked against a schema, with the schema's categories exempt from `other`.

        `further` are names of columns that are read beside those of the schema, such as the one that names persons. A column
        or a word that the schema does not declare is refused.
        """
        categories = {column.name: column.categories for column in schema.columns if column.kind == "category"}
        if schema.label.kind == "classes":
            categories[schema.label.column] = schema.label.classes
        columns, known = dict(self.columns), frozenset((*schema.names, *schema.ids, *filter(None, further)))
        for name, rule in self.columns.items():
            if name not in known:
                require_column(
                    f"column {name!r} of the mapping", name, [*schema.names, *schema.ids, *filter(None, further)]
                )
            unknown = {*rule.words.values(), *filter(None, [rule.other])}.difference(categories.get(name, ()))
            if unknown and name in categories:
                expected = f"words that the study declares ({', '.join(categories[name][:10])})"
                raise InputError(
                    f"words of column {name!r}", expected=expected, got=repr(min(unknown)[:40]), cure=_CURE
                )
            if unknown:
                problem = f"The mapping translates words of the column {name!r}, which is not a category."
                cure = "Remove this column's entries 'words' and 'other' from the mapping."
                raise InputError(f"words of column {name!r}", problem=problem, cure=cure)
            if rule.other:
                columns[name] = replace(rule, words={word: word for word in categories[name]} | rule.words)
        return replace(self, columns=columns)

    @property
    def sources(self) -> dict[str, str]:
        """The table's names of the columns that the study names differently, by their names in the study."""
        return {name: rule.source for name, rule in self.columns.items() if rule.source and rule.source != name}

    def rename(self, names: Sequence[str]) -> dict[str, str]:
        """Map the table's names of columns to the study's names, without the columns to leave out.

        A table may lack a column that the mapping renames, such as the column of labels that are not known yet.
        """
        sources, ignored = self.sources, frozenset(self.ignore)
        kept = [name for name in names if name not in ignored]
        present, renamed = frozenset(kept), frozenset(sources.values())
        for name, source in sources.items():
            if source in present and name in present and name not in renamed:
                problem = f"The mapping reads the column {name!r} from {source!r}, but the table has both."
                raise InputError(
                    "mapping", problem=problem, cure=f"Add {name!r} to ignore, or do not rename {source!r}."
                )
        new_names = {source: name for name, source in sources.items()}
        return {name: new_names.get(name, name) for name in kept}

    def describe(self) -> list[tuple[str, str, str]]:
        """Return, for each column with rules of its own, its name in the study, its name in the table, and the rules."""
        lines = []
        for name, rule in self.columns.items():
            rules = [f"decimal mark {rule.decimal!r}"] if rule.decimal else []
            rules += [f"dates as {rule.date_format}"] if rule.date_format else []
            rules += [f"missing: {', '.join(rule.missing_words)}"] if rule.missing_words else []
            rules += [f"{count_noun(len(rule.words), 'word')} translated"] if rule.words else []
            rules += [f"other words become {rule.other!r}"] if rule.other else []
            lines.append((name, rule.source or name, "; ".join(rules)))
        return lines

    def changes(self, name: str) -> bool:
        """Whether the mapping may change cells of the column that the study calls `name`."""
        rule = self.columns.get(name, ColumnMapping())
        rules = (self.missing_words, rule.missing_words, rule.words, rule.other, rule.date_format, self.date_format)
        return any(rules) or (rule.decimal or self.decimal) == ","

    def convert(self, name: str, cells: Any, *, translate: bool = True) -> Any:
        """Return the cells of a column, a pyarrow column, as the study writes them.

        Cells that no rule fits only lose spaces at their ends, and cells that are not UTF-8 stay as they are, for the
        encoder to judge. The result for a cell does not depend on other rows. If `translate` is false, numbers and dates are
        rewritten, but words stay as the table has them. Fingerprints of records are computed from these untranslated cells,
        so that a row is recognised in another study that declares different words.
        """
        distinct = distinct_words(cells)
        convert_word = self._word_converter(name) if translate else self._form_converter(name)
        converted = [convert_word(word) for word in distinct.text.to_pylist()]
        words = pa.array(converted, pa.string())
        if distinct.not_utf8.size:
            found, broken = distinct.values.to_pylist(), {*distinct.places[distinct.not_utf8].tolist()}
            as_bytes = [None if word is None else word.encode() for word in converted]
            words = pa.array([found[k] if k in broken else word for k, word in enumerate(as_bytes)], pa.binary())
        places = pa.array(distinct.places.astype(np.int32), mask=distinct.places == len(words))
        return pa.DictionaryArray.from_arrays(places, words)

    def _form_converter(self, name: str) -> Callable[[str | None], str]:
        """Return a function that writes numbers and dates of the table as the study does, and keeps other words."""
        rule = self.columns.get(name, ColumnMapping())
        has_comma = (rule.decimal or self.decimal) == ","
        date_format = rule.date_format or self.date_format

        def rewrite(word: str | None) -> str:
            word = "" if word is None else word.strip()
            if has_comma and _DECIMAL_COMMA.fullmatch(word):
                word = word.translate(_THOUSANDS)
            return _rewrite_date(word, date_format) if date_format else word

        return rewrite

    def _word_converter(self, name: str) -> Callable[[str | None], str | None]:
        """Return a function from a word of the table to the study's; None stands for a missing value."""
        rule, rewrite = self.columns.get(name, ColumnMapping()), self._form_converter(name)
        missing = frozenset(word.strip() for word in (*self.missing_words, *rule.missing_words))
        numbers = frozenset(missing_numbers(missing))
        known = {word.strip(): new for word, new in rule.words.items()}

        def convert_word(word: str | None) -> str | None:
            word = "" if word is None else word.strip()
            if word in known:
                return known[word]
            if word in MISSING_WORDS:
                return None
            rewritten = rewrite(word)
            if {word, rewritten} & missing or (is_number(rewritten) and float(rewritten) in numbers):
                return None
            return rule.other or rewritten

        return convert_word


@dataclass(frozen=True, eq=False)
class MappedTable:
    """A site's own table, read by its mapping. It can be passed wherever a path or a data frame can."""

    data: Any
    """A path or a data frame."""
    mapping: TableMapping


def read_mapping(path: Path) -> TableMapping:
    """Read a site's mapping from its TOML file."""
    what = "the mapping"
    try:
        plain = tomllib.loads(read_bounded(path, _MOST_BYTES, what=what).decode())
    except RefusedError as problem:
        raise InputError(what, expected="a small file", got=problem.reason, cure=_CURE) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError):
        raise InputError(what, expected="TOML in UTF-8", got="a file that cannot be read as such", cure=_CURE) from None
    return read_entries(TableMapping, plain, what=what, cure=_CURE)


def declare_mapping(
    known: TableMapping,
    *,
    rename: Collection[str] = (),
    words: Collection[str] = (),
    other: Collection[str] = (),
    missing_words: Collection[str] = (),
    ignore: Collection[str] = (),
    marks: Mapping[str, str] | None = None,
) -> TableMapping:
    """Return a mapping in which a person's options replace or extend earlier rules on the same columns and words.

    `rename` holds STUDY=TABLE names, `words` COLUMN:WORD=CATEGORY, `other` COLUMN=CATEGORY, `missing_words` WORD or
    COLUMN=WORD, and `ignore` names of columns of the table. `marks` are the encoding, separator, decimal mark and form of
    dates of the whole table; an earlier mark is kept if the new one is absent or empty.
    """
    columns = {
        name: replace(rule, source="") if rule.source in ignore else rule for name, rule in known.columns.items()
    }

    def change(name: str, **fields: Any) -> None:
        columns[name] = replace(columns.get(name, ColumnMapping()), **fields)

    for entry in rename:
        name, source = _split_pair("--rename", entry, "gender=sex")
        change(name, source=source)
    for entry in words:
        place, category = _split_pair("--word", entry, "gender:F=female")
        name, mark, word = place.partition(":")
        if not mark:
            raise InputError(
                "--word", expected="COLUMN:WORD=CATEGORY", got=repr(entry), cure="For example gender:F=female."
            )
        change(name, words=columns.get(name, ColumnMapping()).words | {word: category})
    for entry in other:
        name, category = _split_pair("--other", entry, "race=other")
        change(name, other=category)
    everywhere = list(known.missing_words)
    for entry in missing_words:
        name, mark, word = entry.rpartition("=")
        if mark:
            change(name, missing_words=tuple(dict.fromkeys((*columns.get(name, ColumnMapping()).missing_words, word))))
        else:
            everywhere.append(entry)
    declared = {key: value for key, value in (marks or {}).items() if value}
    used = {rule.source for rule in columns.values()}
    if conflicting := used.intersection(ignore):
        problem = f"--rename reads the table's column {min(conflicting)!r}, which --ignore leaves out."
        raise InputError("--ignore", problem=problem, cure="Remove one of the two options.")
    left_out = tuple(name for name in dict.fromkeys((*known.ignore, *ignore)) if name not in used)
    return replace(known, columns=columns, missing_words=tuple(dict.fromkeys(everywhere)), ignore=left_out, **declared)


def _split_pair(option: str, entry: str, example: str) -> tuple[str, str]:
    name, mark, value = entry.rpartition("=")
    if not (mark and name and value):
        raise InputError(option, expected="a pair with '='", got=repr(entry), cure=f"For example {example}.")
    return name, value


def is_decimal_comma(word: str) -> bool:
    """Whether a word is a number with a decimal comma, with or without marks for thousands."""
    return "," in word and _DECIMAL_COMMA.fullmatch(word) is not None


def _require_one_of(what: str, mark: str, choices: Sequence[str]) -> None:
    if mark not in choices:
        expected = "one of " + " ".join(map(repr, filter(None, choices)))
        raise InputError(what, expected=expected, got=repr(mark[:10]), cure=_CURE)


def _require_date_format(where: str, text: str) -> None:
    """Refuse a form of dates in which a day that is written cannot be read back."""
    if not text:
        return
    try:
        fine = len(text) <= _LONGEST_FORMAT and read_date(_SOME_DAY.strftime(text), text) == _SOME_DAY
    except ValueError:  # strftime does not know a field
        fine = False
    if not fine:
        expected = 'a form with day, month and year of four digits, such as "%d.%m.%Y"'
        raise InputError(f"date_format of {where}", expected=expected, got=repr(text[:_LONGEST_FORMAT]), cure=_CURE)


def read_date(word: str, date_format: str) -> date | None:
    """Return the day that a word states in a form of dates; None if the word does not have this form."""
    try:
        return datetime.strptime(word, date_format).date()
    except (ValueError, re.error):
        return None


def _rewrite_date(word: str, date_format: str) -> str:
    day = read_date(word, date_format)
    return word if day is None else day.isoformat()
