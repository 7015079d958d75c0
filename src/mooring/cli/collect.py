"""`mooring collect`: verify the bundles that arrived."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution


@execution.command
def collect(
    console: execution.Output,
    bundles: Annotated[
        str, typer.Option("--bundles", "-b", help="A folder of *.bundle files, or its URL: s3://…, https://…")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
) -> int | None:
    """Take the step 'collect'.

    'mooring align' also begins with this step. The work folder records whose bundle was accepted.

    Exit code 3 means that the step is done, but a bundle was set aside.

    Example: mooring collect --study study.toml --bundles inbox --folder analysis
    """
    outcome = execution.take_step("collect", execution.make_place(study, folder=folder), bundles=bundles)
    console.show_outcome(outcome)
    return execution.STANDINGS[outcome.standing]
