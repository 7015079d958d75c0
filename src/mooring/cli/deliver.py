"""`mooring deliver`: each participant's map and the model, signed."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.align import DEFAULT_FOLDER, WorkFolder
from mooring.serialization import count_noun

_UNMEASURED = "What the model gives away of its rows was not measured: the study states no limit on the model."


@execution.command
def deliver(
    console: execution.Output,
    output: Annotated[
        str, typer.Option("--output", "-o", help="Gets a folder for each participant; a folder, or a URL: s3://…")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    override: Annotated[
        str,
        typer.Option(
            "--override",
            metavar="'NAME: REASON'",
            help="Deliver a model above the study's limit; who decides it and why is signed and shown to everybody.",
        ),
    ] = "",
) -> None:
    """Write each participant's result, signed: the map that brings its rows into the common space, and the model.

    Example: mooring deliver --study study.toml --folder analysis --vault analyst-vault --output results
    """
    from mooring.protocol.analyst.delivery import deliver as deliver_results
    from mooring.protocol.transport.addresses import redact_address

    agreed, key = execution.read_study(study), execution.open_vault(vault).signing_key
    command = execution.quote_command()
    with execution.show_progress("Delivering") as moved:
        found = deliver_results(agreed, folder, output, key, override=override, command=command, progress=moved)
    content = "its map and the model" if found.model_digest else "its map; there is no model, since none was trained"
    content = content if agreed.sums is None else "the model"
    place = f"{escape(redact_address(output).rstrip('/'))}/<its name>"
    console.show(
        found.as_dict(),
        f"[bold]Delivered[/bold] to {count_noun(len(found.delivered), 'participant')}: {', '.join(found.delivered)}.",
        f"What is under {place}: {content}. Let each read its own, and no other."
        if "://" in output
        else f"Send each the folder {place}: {content}. Give nobody another one's.",
        *([] if agreed.model_limit or agreed.sums or not found.model_digest else [_UNMEASURED]),
    )
