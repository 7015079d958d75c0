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
            "--list",
            exists=True,
            help="The closing list that 'mooring align' wrote. Without it, your share in each bundle is only tested.",
        ),
    ] = None,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None,
        typer.Option(help="File for your answer.", show_default="YOUR-NAME.share, or YOUR-NAME.receipt"),
    ] = None,
) -> int:
    """Take the step 'combine'.

    This command is for the combiners that a study of secure sums names. Without --list, it tests your share in each bundle
    and writes a receipt for the analyst. With --list, it writes your share of the total of the listed bundles. Running it
    again with the same list writes the same bytes.

    Exit code 3 means that the step is done, but your share in somebody's bundle failed verification.

    Example: mooring combine --bundles inbox --study study.toml --vault st-mary/vault

    Afterwards: mooring combine --bundles inbox --list closing.list --study study.toml --vault st-mary/vault
    """
    options = {"bundles": bundles, "closing_list": closing_list, "output": output}
    outcome = execution.take_step("combine", execution.make_place(study, vault), **options)
    return console.show_outcome(outcome)
