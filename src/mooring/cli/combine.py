"""`mooring combine`: a combiner's part in a study of secure sums."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mooring.cli import execution


@execution.command
def combine(
    console: execution.Output,
    bundles: execution.BundleFolder,
    closing_list: Annotated[
        Path | None,
        typer.Option(
            "--list", help="The closing list that 'mooring align' wrote. Without it, the bundles are only confirmed."
        ),
    ] = None,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None,
        typer.Option(help="File for your answer.", show_default="YOUR-NAME.share, or YOUR-NAME.confirmation"),
    ] = None,
) -> int:
    """Take the step 'confirm' or 'combine'.

    This command is for the combiners that a study of secure sums names. Without --list, it confirms the bundles; with
    --list, it combines them. Running it again with the same list writes the same bytes.

    Exit code 3 means that the step is done, but your share in somebody's bundle failed verification.

    Example: mooring combine --bundles inbox --study study.toml --vault st-mary/vault

    Afterwards: mooring combine --bundles inbox --list closing.list --study study.toml --vault st-mary/vault
    """
    name = "confirm" if closing_list is None else "combine"
    options = {"bundles": bundles, "closing_list": closing_list, "output": output}
    outcome = execution.take_step(name, execution.make_place(study, vault), **options)
    return console.show_outcome(outcome)
