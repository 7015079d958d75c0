"""`mooring study header` and `mooring study merge`: from each site's table to one draft."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from mooring.cli.execution import DEFAULT_STUDY, IN_PART, Force, Output, TablePath, command
from mooring.protocol.step import require_absent

OutputPath = Annotated[Path | None, typer.Option("--output", "-o", help="Where the header goes.")]


@command
def header(
    console: Output,
    data: TablePath,
    site: Annotated[str, typer.Option(help="Your name in the merged draft.")],
    category: Annotated[
        list[str] | None, typer.Option(help="A column whose numbers are codes of categories; again for more.")
    ] = None,
    output: OutputPath = None,
) -> None:
    """Take the step 'header'.

    The description is made from rows, so read it before you send it. No end of a range, category or missing word in it
    comes from fewer than five rows, and no count of rows is in it.

    Example: mooring study header patients.csv --site north --category stage
    """
    from mooring.atomic_io import write_atomically
    from mooring.protocol.designer.header import infer_header

    found, notes = infer_header(data, site=site, categorical=category or ())
    path = output or Path(f"{site}.header.toml")
    write_atomically(path, found.render().encode(), what="the header")
    console.show(
        {"header": str(path), "columns": len(found.columns), "notes": list(notes)},
        f"Wrote [bold]{escape(str(path))}[/bold], made from rows: read it before you send it.",
        *(f"  • {escape(note)}" for note in notes),
    )


@command
def merge(
    console: Output,
    headers: Annotated[list[Path], typer.Argument(help="What 'mooring study header' wrote at each site.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the draft goes.")] = DEFAULT_STUDY,
    name: Annotated[str, typer.Option(help="Name of the study.")] = "study",
    label: Annotated[str | None, typer.Option(help="The column to predict.")] = None,
    drop: Annotated[list[str] | None, typer.Option(help="A column to leave out; again for more.")] = None,
    force: Force = False,
) -> int | None:
    """Take the step 'merge'.

    Exit code 3 says that there is something to settle. Method and noise are those of 'mooring study init', to be edited.

    Example: mooring study merge north.header.toml south.header.toml --label ill --name ward
    """
    from mooring.atomic_io import write_atomically
    from mooring.protocol.designer.draft import count_open_entries
    from mooring.protocol.designer.header import draft_merged, merge_headers, read_header

    require_absent(output, force=force)
    found = merge_headers([read_header(path) for path in headers])
    merged = tuple(one for one in found if one.name not in (drop or ()))
    text = draft_merged(merged, name=name, label=label)
    write_atomically(output, text.encode(), what="the draft")
    unsettled = [one for one in merged if one.conflicts]
    left = count_open_entries(text)
    console.show(
        {"study": str(output), "open_entries": left, "columns": [vars(one) for one in merged]},
        f"Wrote [bold]{escape(str(output))}[/bold]: {len(merged) - len(unsettled)} agree, {len(unsettled)} do not; "
        f"{left} open entries. Ranges were widened from rows: correct them to what can be.",
    )
    if unsettled and console.format == "text":
        table = Table(box=box.SIMPLE, show_lines=True)
        for heading in ("Column", *merged[0].sites, "To settle"):
            table.add_column(escape(heading), overflow="fold")
        for one in unsettled:
            table.add_row(*map(escape, (one.name, *one.sites.values(), "; ".join(one.conflicts))))
        console.print(table)
    return IN_PART if unsettled else None
