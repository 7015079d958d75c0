"""`mooring study header` and `mooring study merge`: make one draft from the tables of all sites."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, IN_PART, Force, Output, TablePath, command, make_table


@command
def header(
    console: Output,
    data: TablePath,
    site: Annotated[str, typer.Option(help="Your site's name in the merged draft.")],
    category: Annotated[
        list[str] | None, typer.Option(help="Column whose numbers are codes of categories; repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File for the header.", show_default="SITE.header.toml")
    ] = None,
) -> None:
    """Take the step 'header'.

    The description is made from rows, so read it before you send it. Every end of a range, category and missing word in it
    comes from at least five rows, and it holds no count of rows.

    Example: mooring study header patients.csv --site north --category stage
    """
    from mooring.atomic_io import write_atomically
    from mooring.protocol.designer.header import infer_header

    described, notes = infer_header(data, site=site, categorical=category or ())
    path = output or Path(f"{site}.header.toml")
    write_atomically(path, described.render().encode(), what="the header")
    console.show(
        {"header": str(path), "columns": len(described.columns), "notes": list(notes)},
        f"Wrote [bold]{escape(str(path))}[/bold]. It is made from rows: read it before you send it.",
        *(f"  • {escape(note)}" for note in notes),
    )


@command
def merge(
    console: Output,
    headers: Annotated[list[Path], typer.Argument(help="Files that 'mooring study header' wrote, one per site.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the draft.")] = DEFAULT_STUDY,
    name: Annotated[str, typer.Option(help="Name of the study.")] = "study",
    label: Annotated[str | None, typer.Option(help="Column to predict.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; repeatable.")] = None,
    force: Force = False,
) -> int | None:
    """Take the step 'merge'.

    The draft has the default method and noise of 'mooring study init'; edit them as needed. Exit code 3 means that sites
    disagree about a column.

    Example: mooring study merge north.header.toml south.header.toml --label ill --name ward
    """
    from mooring.atomic_io import require_absent, write_atomically
    from mooring.protocol.designer.draft import count_open_entries
    from mooring.protocol.designer.header import draft_merged, merge_headers, read_header

    require_absent(output, force=force)
    columns = merge_headers([read_header(path) for path in headers])
    merged = tuple(column for column in columns if column.name not in (drop or ()))
    text = draft_merged(merged, name=name, label=label)
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
        rows += [(column.name, *column.sites.values(), "; ".join(column.conflicts)) for column in unsettled]
        console.say(make_table([list(map(escape, row)) for row in rows], title="", n_left=len(rows[0])))
    return IN_PART if unsettled else None
