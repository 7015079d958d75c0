"""Suggests how to read a participant's table that differs from what the study declares, and words the suggestion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from mooring.errors import InputError
from mooring.protocol.registry import exchange_of
from mooring.protocol.workspace import Workspace
from mooring.serialization import Rows, count_noun
from mooring.tables.mapping import TableMapping, read_mapping
from mooring.tables.schema import Schema
from mooring.tables.suggestion import SuggestedMapping, suggest_mapping

_MOST_WORDS = 12
_OTHER = "other"


@dataclass(frozen=True)
class Reading:
    """A suggested reading of a table, in words."""

    rules: Rows
    """How each column that differs from the study's is read, headings first."""
    left_out: tuple[str, ...]
    """Columns of the table that the study does not have."""
    encoding: str
    """Encoding of the file, if it is not UTF-8."""
    notes: tuple[str, ...]
    """Sentences on what is not recognised."""


def suggest_reading(
    workspace: Workspace, data: Path, declare: Callable[[TableMapping], TableMapping] = lambda known: known
) -> SuggestedMapping:
    """Return the mapping of a folder, completed for a table; `declare` adds what a person says to the mapping's file."""
    study, path = workspace.study, workspace.mapping_file
    known = declare(read_mapping(path) if path.exists() else TableMapping())
    return suggest_mapping(study.schema, data, known, further=[exchange_of(study).person_column(study)])


def propose_reading(workspace: Workspace, data: Path, *, ignore: tuple[str, ...] = ()) -> Reading | None:
    """Return how a table could be read; None if the folder has a mapping, or the table is read as it is or not at all.

    Words of the table are quoted only if they are recognised as categories of the study.
    """
    if workspace.mapping_file.exists():
        return None
    given = TableMapping(ignore=ignore)
    try:
        suggested = suggest_reading(workspace, data, lambda known: replace(known, ignore=ignore))
    except InputError:  # it cannot be read as a table; the step that checks whether it fits says why
        return None
    if suggested.mapping == given:
        return None
    schema = workspace.study.schema
    rules = [("column of the study", "read from", "how"), *_list_rules(suggested.mapping)]
    notes = [f"Nothing in the table looks like {name!r}." for name in suggested.absent]
    notes += [describe_unknown(schema, name, n) for name, n in count_unread(suggested).items()]
    return Reading(tuple(rules), suggested.mapping.ignore, suggested.mapping.encoding, tuple(notes))


def count_unread(suggested: SuggestedMapping) -> dict[str, int]:
    """Return how many words of each column the study does not know. Columns with a category for all others are left out."""
    columns = suggested.mapping.columns
    return {
        name: len(words)
        for name, words in suggested.unknown_words.items()
        if not (name in columns and columns[name].other)
    }


def _list_rules(mapping: TableMapping) -> list[tuple[str, str, str]]:
    """Return the rules of columns as `TableMapping.describe` does, but with the translated words, not their number."""
    rules = []
    for name, source, described in mapping.describe():
        words = mapping.columns[name].words.items()
        shown = ", ".join(f"{word} is {category}" for word, category in list(words)[:_MOST_WORDS])
        shown += ", …" if len(words) > _MOST_WORDS else ""
        rules.append((name, source, described.replace(f"{count_noun(len(words), 'word')} translated", shown)))
    return rules


def describe_unknown(schema: Schema, name: str, n_words: int, *, is_shown: bool = False) -> str:
    """Return a sentence on words of a column that the study does not know, and what to do about them."""
    categories = {column.name: column.categories for column in schema.columns} | {
        schema.label.column: schema.label.classes
    }
    shown = "" if is_shown else " 'mooring match' with --show-values shows them on your screen;"
    if declared := categories.get(name):
        cure = f"--word '{name}:WORD={declared[0]}' translates one of them"
        cure += f", and --other '{name}={_OTHER}' all of them" if _OTHER in declared else ""
        return f"Column {name!r} has {count_noun(n_words, 'word')} that the study does not declare.{shown} {cure}."
    cure = f"--missing-word '{name}=WORD' says that a word stands for a missing value"
    return f"Column {name!r} has {count_noun(n_words, 'word')} that cannot be read.{shown} {cure}."
