"""`mooring combine`: a combiner's part in a study of secure sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution


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
    step, files = ("confirm", {}) if closing_list is None else ("combine", {"list": closing_list})
    path = output or Path(f"{name}.{'confirmation' if closing_list is None else 'share'}")
    with execution.show_progress("Opening shares") as moved:
        written = participant.take(step, output=path, progress=moved, bundles=bundles, **files)
    console.show(written.as_dict(), *map(escape, written.lines))
