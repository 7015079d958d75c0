"""`mooring cohort`: make a site's table from OMOP tables, and draft the study."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, Force, Output, command, show_progress
from mooring.cli.options import SumOptions


@command
def cohort(
    console: Output,
    query: Annotated[Path, typer.Argument(help="A file with one SELECT over OMOP tables.", show_default=False)],
    *,
    omop: Annotated[Path, typer.Option(help="DuckDB file with OMOP tables, opened for reading only.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File for your rows: .parquet or .csv. Keep it to yourself.")
    ] = Path("cohort.parquet"),
    study: Annotated[
        Path,
        typer.Option(
            "--study",
            "-s",
            help="The study's file. If it exists, the cohort must have the study's columns; otherwise it is drafted.",
        ),
    ] = DEFAULT_STUDY,
    name: Annotated[str | None, typer.Option(help="Name of the drafted study.", show_default="study")] = None,
    label: Annotated[str | None, typer.Option(help="Column to predict, for the draft.")] = None,
    missing: Annotated[
        Literal["refuse", "fill", "indicate"] | None,
        typer.Option(help="What the drafted study does with a missing value.", show_default="refuse"),
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="rotation, secure-sum, or a mechanism that another package defines; for the draft.",
            show_default="rotation",
        ),
    ] = None,
    sums: SumOptions,
    force: Force = False,
) -> None:
    """Run a cohort's query over OMOP tables in DuckDB, and write its rows as your table of the study.

    If the study's file is not there, it is drafted: kinds of columns follow from the query, ranges and categories from the
    vocabulary and from a table of plausible values by LOINC code, and nothing from rows. Whatever these leave unknown stays
    open, for a person to fill in. The query is one SELECT; it can read nothing outside the database. A column that names
    persons is refused, except the one that --person or the study names. This command needs mooring's extra 'omop'.

    Example: mooring cohort --omop hospital.duckdb cohort.sql --label readmitted --mechanism secure-sum --person person_id

    The other sites, with the study's file beside them: mooring cohort --omop hospital.duckdb cohort.sql --study study.toml
    """
    from mooring.protocol.designer.cohort import CohortDraft, write_cohort
    from mooring.protocol.designer.draft import DraftSettings

    entries = sums.entries()
    drafted = None
    if entries or any(option is not None for option in (name, label, missing, mechanism)) or not study.exists():
        settings = DraftSettings(mechanism={"name": mechanism or "rotation", **entries}, missing=missing or "refuse")
        drafted = CohortDraft(name or "study", label, settings)
    with show_progress("Running the query") as moved:
        written = write_cohort(omop, query, output, study=study, drafted=drafted, force=force, progress=moved)
    draft = written.draft
    lines = [f"Wrote [bold]{escape(str(output))}[/bold]: {written.n_rows} rows of {len(written.columns)} columns."]
    if draft is not None:
        lines.append(f"Wrote [bold]{escape(str(study))}[/bold], a draft that holds no value of any row.")
        lines += [
            f"  • {escape(f'{column}: {known.remark}')}" for column, known in written.known.items() if known.remark
        ]
        lines.append(
            f"Open entries: {draft.n_open}. Fill in the lines marked TODO according to what the columns mean."
            if draft.n_open
            else "Read the ranges: where you know narrower ranges, use them, as they need less noise. Next: 'mooring join'."
        )
    if written.not_in_study:
        lines.append(f"Not in the study: {escape(', '.join(written.not_in_study))}. Leave them out with --ignore.")
    console.show(
        {
            "output": str(output),
            "rows": written.n_rows,
            "columns": list(written.columns),
            "not_in_study": list(written.not_in_study),
            "study": None if draft is None else str(study),
            "open_entries": None if draft is None else draft.n_open,
            "known": {column: vars(known) for column, known in written.known.items()},
        },
        *lines,
    )
