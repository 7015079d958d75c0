"""A cohort from OMOP tables: a site's table for a study, and a draft of the study that says nothing about rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from mooring.atomic_io import open_atomically, require_absent, require_writable, write_atomically
from mooring.errors import InputError, RefusedError
from mooring.protocol.designer.draft import (
    DeclaredColumns,
    Draft,
    DraftSettings,
    draft_study,
    read_draft,
    recognise_columns,
)
from mooring.protocol.messages.study_file import read_plain
from mooring.tables.cells import holds_words
from mooring.tables.files import PARQUET_SUFFIXES, open_table
from mooring.tables.omop.database import CohortRows, list_identifying, open_database, read_query
from mooring.tables.omop.query import QUERY, is_identifying
from mooring.tables.omop.vocabulary import KnownColumn
from mooring.tables.schema import listed, require_column
from mooring.typing import Progress

SUFFIXES = (*PARQUET_SUFFIXES, ".csv")
_LEFT_OPEN = "Nothing public is known of its values: fill in the possible ones, according to what the column means."


@dataclass(frozen=True)
class CohortDraft:
    """What a draft declares besides what the query and the vocabulary say."""

    name: str = "study"
    label: str | None = None
    settings: DraftSettings = field(default_factory=DraftSettings)


@dataclass(frozen=True)
class Cohort:
    """A cohort that was written as a table."""

    n_rows: int
    columns: tuple[str, ...]
    draft: Draft | None
    """The draft that was written beside it; None if the study existed."""
    known: Mapping[str, KnownColumn]
    """What is publicly known of each column except the column of persons; empty if no draft was written."""
    not_in_study: tuple[str, ...] = ()
    """Columns that the study does not have."""


def write_cohort(
    omop: Path,
    query: Path,
    output: Path,
    *,
    study: Path,
    drafted: CohortDraft | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Cohort:
    """Run a cohort's query on OMOP tables and write its rows; draft the study if its file does not exist.

    Parameters
    ----------
    omop : Path
        A DuckDB file. It is opened for reading only.
    query : Path
        A file with one SELECT.
    output : Path
        The table to write: .parquet or .csv.
    study : Path
        The study's file. If it exists, the cohort must have its columns, and `drafted` must be None.
    force : bool
        Whether an existing table may be overwritten. A study is never overwritten.
    """
    if output.suffix.lower() not in SUFFIXES:
        got = f"a file that ends in {output.suffix!r}"
        raise InputError(
            "--output", expected=f"a file that ends in {' or '.join(SUFFIXES)}", got=got, cure="Rename it."
        )
    require_absent(output, force=force)
    for path in (output, study):
        require_writable(path, what="the cohort", inputs=(omop, query))
    agreed = read_plain(study) if study.exists() else None
    if agreed is not None and drafted is not None:
        problem = f"{study.name} exists, so options of a draft would change nothing."
        raise InputError(
            "--study", problem=problem, cure="Leave these options out, or name a file that does not exist."
        )
    drafted = drafted or CohortDraft()
    entries = drafted.settings.entries if agreed is None else agreed.get("mechanism", {})
    person = str(entries.get("person", "")) if isinstance(entries, Mapping) else ""
    with open_database(omop) as database:
        rows = database.prepare(read_query(query))
        _require_no_persons(rows, person)
        draft, known, further = None, {}, []
        if agreed is None:
            known = {column.name: database.look_up(column) for column in rows.columns if column.name != person}
            draft = read_draft(_draft(rows, known, drafted))
        else:
            further = _compare(rows, agreed, person)
        batches = rows.read(progress)
        first = next(batches, None)
        if first is None:
            cure = "Check its conditions: concepts, dates and joins."
            raise InputError(QUERY, problem="It selects no row of this database.", cure=cure)
        with open_atomically(output, mode=0o600, what="the cohort") as file:
            n_rows = _write(chain([first], batches), rows.schema, file, is_text=output.suffix.lower() == ".csv")
    if draft is not None:
        write_atomically(study, draft.text.encode(), what="the draft")
    return Cohort(n_rows, tuple(rows.schema.names), draft, known, tuple(further))


def _require_no_persons(rows: CohortRows, person: str) -> None:
    """Refuse columns, other than `person`, that name persons, by their own names or those of the columns they come from."""
    names = rows.schema.names
    if person:
        require_column("the column of persons", person, names)
    table = open_table(rows.schema.empty_table())
    days = {column.name for column in rows.schema if pa.types.is_date(column.type)}
    kinds = recognise_columns(table, DeclaredColumns(), days)
    naming = [
        name
        for name in names
        if is_identifying(name) or (kinds.get(name) in ("id", "text") and not name.lower().endswith("_concept_id"))
    ]
    reasons: dict[str, frozenset[str]] = dict.fromkeys(naming, frozenset())
    reasons |= list_identifying(rows.columns, person)
    reasons.pop(person, None)
    for name, sources in reasons.items():
        made = (
            f"is made of {listed(sorted(sources))}, which name" if sources - {name} else "is named like one that names"
        )
        cure = (
            "Leave it out, or give it another name if it names nobody. A study of persons who have several rows has one "
            "such column, which is never uploaded: --person, with --mechanism secure-sum."
        )
        raise RefusedError(QUERY, reason=f"its column {name!r} {made} persons or single records", cure=cure)


def _draft(rows: CohortRows, known: Mapping[str, KnownColumn], drafted: CohortDraft) -> str:
    """Return the text of a draft, made from names and types of columns and from what is public about them."""
    label = drafted.label
    is_truth = {column.name for column in rows.schema if pa.types.is_boolean(column.type)}
    numbers = {column.name for column in rows.schema if not holds_words(column.type)} - is_truth
    ranges = {name: column.range for name, column in known.items() if column.range and name in numbers}
    words = {name: column.words for name, column in known.items() if column.words is not None and name != label}
    of_label = known.get(label or "", KnownColumn())
    missing = {name: column.missing_words for name, column in known.items() if column.missing_words}
    declared = DeclaredColumns(
        ranges={name: ends for name, ends in ranges.items() if name != label},
        categories=words,
        classes=of_label.words or (),
        label_range=ranges.get(label or ""),
        missing_words={name: list(spellings) for name, spellings in missing.items() if name != label},
    )
    remarks = {name: column.remark or _LEFT_OPEN for name, column in known.items()}
    remarks = {name: text for name, text in remarks.items() if name not in is_truth or known[name].remark}
    settings = replace(drafted.settings, remarks=remarks)
    return draft_study(rows.schema.empty_table(), name=drafted.name, label=label, known=declared, settings=settings)


def _compare(rows: CohortRows, agreed: Mapping[str, Any], person: str) -> list[str]:
    """Return the cohort's columns that the study does not have; refuse a cohort that lacks one of the study's columns."""
    needed = [*_names_in(agreed), *([person] if person else [])]
    missing = [name for name in needed if name not in rows.schema.names]
    if missing:
        problem = f"It does not select {listed(missing)}, which the study has."
        raise InputError(QUERY, problem=problem, cure="Select these columns, or name another --study.")
    return [name for name in rows.schema.names if name not in needed]


def _names_in(agreed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the columns and the label of a study or of a draft, whose entries may still be open."""
    columns = agreed.get("columns", ())
    for column in columns if isinstance(columns, list) else ():
        if isinstance(column, Mapping):
            names = column.get("names", [column.get("name")])
            yield from (name for name in names if isinstance(name, str))
    label = agreed.get("label")
    if isinstance(label, Mapping) and isinstance(label.get("column"), str):
        yield label["column"]


def _write(batches: Iterable[Any], schema: Any, file: BinaryIO, *, is_text: bool) -> int:
    """Write record batches as CSV or Parquet, and return the number of rows."""
    make = pyarrow.csv.CSVWriter if is_text else pyarrow.parquet.ParquetWriter
    n_rows = 0
    with make(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            n_rows += batch.num_rows
    return n_rows
