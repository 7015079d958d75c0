"""`mooring study header` and `mooring study merge`: make one draft from the tables of all sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, IN_PART, Force, Output, TablePath, command, make_table
from mooring.cli.options import SumOptions
from mooring.errors import InputError

_MOST_SHOWN = 100


@command
def header(
    console: Output,
    data: TablePath,
    site: Annotated[str, typer.Option(help="Your site's name in the merged draft.")],
    category: Annotated[
        list[str] | None, typer.Option(help="Column whose numbers are codes of categories; repeatable.")
    ] = None,
    person: Annotated[
        str, typer.Option(help="Column that names persons; by default one such as patient_id or mrn.")
    ] = "",
    row_per_person: Annotated[
        bool, typer.Option("--row-per-person", help="Every row belongs to a different person.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Write the header without asking.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the header.", show_default="SITE.header.toml")
    ] = None,
) -> None:
    """Take the step 'header'.

    The description is made from rows, so it is shown before it is written. A range runs from the fifth lowest person to the
    fifth highest, widened; each category and each missing word occurs for at least five persons. The description holds no
    count of rows, and no words that look like names, mail addresses or identifiers.

    Example: mooring study header patients.csv --site north --person patient --category stage
    """
    from mooring.atomic_io import write_atomically
    from mooring.protocol.designer.header import HEADER_SUFFIX, infer_header

    described, notes = infer_header(
        data, site=site, categorical=category or (), person=person, row_per_person=row_per_person
    )
    path, text = output or Path(f"{site}{HEADER_SUFFIX}"), described.render()
    if not yes:
        _show_before_writing(text, path)
    write_atomically(path, text.encode(), what="the header")
    console.show(
        {"header": str(path), "columns": len(described.columns), "notes": list(notes)},
        f"Wrote [bold]{escape(str(path))}[/bold]. It is made from rows: read it before you send it.",
        *(f"  • {escape(note)}" for note in notes),
    )


def _show_before_writing(text: str, path: Path) -> None:
    """Show a header, and raise an error unless a person agrees to write it; without a terminal, nobody can agree."""
    typer.echo(text, err=True)
    try:
        agrees = typer.confirm(f"Write this to {path}?", err=True)
    except typer.Abort:
        agrees = False
    if not agrees:
        cure = "Once you have read what is shown above, run the command again and agree, or pass --yes."
        raise InputError("header", problem="Nothing was written, because nobody agreed.", cure=cure)


@command
def merge(
    console: Output,
    headers: Annotated[list[Path], typer.Argument(help="Files that 'mooring study header' wrote, one per site.")],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the draft.")] = DEFAULT_STUDY,
    name: Annotated[str, typer.Option(help="Name of the study.")] = "study",
    label: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Column to leave out; repeatable.")] = None,
    mechanism: Annotated[
        str, typer.Option(help="rotation, secure-sum, or a mechanism that another package defines.")
    ] = "rotation",
    sums: SumOptions,
    force: Force = False,
) -> int | None:
    """Take the step 'merge'.

    The draft has the usual method and noise of its mechanism; edit them as needed. Exit code 3 means that sites disagree
    about a column.

    Example: mooring study merge north.header.toml south.header.toml --label ill --name ward

    Example: mooring study merge north.header.toml south.header.toml --label ill --mechanism secure-sum --epsilon 1
    """
    from mooring.atomic_io import require_absent, write_atomically
    from mooring.protocol.designer.draft import count_open_entries
    from mooring.protocol.designer.header import read_header
    from mooring.protocol.designer.merge import draft_merged, merge_headers

    require_absent(output, force=force)
    columns = merge_headers([read_header(path) for path in headers])
    merged = tuple(column for column in columns if column.name not in (ignore or ()))
    text = draft_merged(merged, name=name, label=label, mechanism={"name": mechanism, **sums.entries()})
    write_atomically(output, text.encode(), what="the draft")
    unsettled = [column for column in merged if column.conflicts]
    left = count_open_entries(text)
    console.show(
        {"study": str(output), "open_entries": left, "columns": [vars(column) for column in merged]},
        f"Wrote [bold]{escape(str(output))}[/bold]: {len(merged) - len(unsettled)} columns agree, {len(unsettled)} do not; "
        f"{left} open entries. Ranges were widened from rows: correct them to the possible values.",
    )
    if unsettled:
        rows = [("Column", *merged[0].sites, "To settle")]
        rows += [
            (column.name, *column.sites.values(), "; ".join(column.conflicts)) for column in unsettled[:_MOST_SHOWN]
        ]
        console.say(make_table([list(map(escape, row)) for row in rows], title="", n_left=len(rows[0])))
        if len(unsettled) > _MOST_SHOWN:
            console.say(f"{len(unsettled) - _MOST_SHOWN} more are to be settled; --format json lists all of them.")
    return IN_PART if unsettled else None
