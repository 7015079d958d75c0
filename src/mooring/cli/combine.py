"""`mooring combine`: a combiner's part in a study of secure sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.serialization import count_noun


@execution.command
def combine(
    console: execution.Output,
    bundles: Annotated[
        str, typer.Option("--bundles", "-b", help="A folder of everybody's *.bundle files, or a URL: s3://…, https://…")
    ],
    closing_list: Annotated[
        Path | None,
        typer.Option("--list", help="The closing list that 'mooring align' wrote; none to confirm bundles."),
    ] = None,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None,
        typer.Option(help="Where your answer goes.", show_default="YOUR-NAME.share, or YOUR-NAME.confirmation"),
    ] = None,
) -> None:
    """Add up your shares of everybody's sums, in a study of secure sums; for the combiners that the study names.

    Without --list, before the study is closed: confirm that each bundle's shares fit, so that a bad one can be left out.
    With --list: your share of the total. One list is answered, once; the same list gives the same bytes again. Your
    combining key is destroyed then.

    Example: mooring combine --bundles inbox --study study.toml --vault st-mary/vault

    Afterwards: mooring combine --bundles inbox --list closing.list --study study.toml --vault st-mary/vault
    """
    participant = execution.open_participant(study, vault)
    name = participant.member.name
    if closing_list is None:
        path = output or Path(f"{name}.confirmation")
        found = participant.confirm(bundles, output=path)
        what = f"about {count_noun(found.bundles, 'bundle')}"
        lines = [f"[yellow]Your box in the bundle of {one} does not hold up.[/yellow]" for one in found.unopened]
    else:
        path = output or Path(f"{name}.share")
        with execution.show_progress("opening, adding up") as moved:
            found = participant.combine(bundles, closing_list, output=path, progress=moved)
        what = f"your share of the total of {found.bundles} contributions"
        lines = ["Your combining key of this study is destroyed; remove copies of the vault that still hold it."]
    wrote = f"Wrote [bold]{escape(str(path))}[/bold], {what}. Send it to the analyst."
    console.show({**found.as_dict(), "output": str(path)}, wrote, *lines)
