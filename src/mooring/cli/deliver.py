"""`mooring deliver`: write each participant's map and the model, signed by the analyst."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mooring.cli import execution


@execution.command
def deliver(
    console: execution.Output,
    output: Annotated[
        str,
        typer.Option(
            "--output", "-o", help="Folder or URL (s3://…) in which each participant gets a folder of its own."
        ),
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    override: Annotated[
        str,
        typer.Option(
            "--override",
            metavar="'NAME: REASON'",
            help="Deliver a model that exceeds the study's limit. The name and reason are signed and shown to everybody.",
        ),
    ] = "",
) -> None:
    """Take the step 'deliver'.

    Example: mooring deliver --study study.toml --folder analysis --vault analyst-vault --output results
    """
    workspace = execution.make_workspace(study, vault, folder)
    target = output if "://" in output else Path(output)
    outcome = execution.take_step("deliver", workspace, output=target, override=override)
    console.show_outcome(outcome)
