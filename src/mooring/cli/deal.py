"""`mooring deal`: make the anchor, and encrypt it to every participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mooring.cli import execution


@execution.command
def deal(
    console: execution.Output,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None, typer.Option(help="File for the sealed anchor.", show_default="STUDY.anchor")
    ] = None,
) -> None:
    """Take the step 'deal'.

    Anybody may pass the file on, the analyst included, because only participants can open it.

    Example: mooring deal --study study.toml --vault st-mary/vault --output heart.anchor
    """
    console.show_outcome(execution.take_step("deal", execution.make_workspace(study, vault), output=output))
