"""`mooring collect`: look at the bundles that came."""

from __future__ import annotations

from typing import Annotated

import typer

from mooring.cli import execution


@execution.command
def collect(
    console: execution.Output,
    bundles: Annotated[
        str, typer.Option("--bundles", "-b", help="A folder of *.bundle files, or a URL: s3://…, https://…")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
) -> int | None:
    """Take the step 'collect'.

    'mooring align' does the same first. The work folder remembers whose bundle was accepted.

    Exit code 3 means: done, but something was set aside.

    Example: mooring collect --study study.toml --bundles inbox --folder analysis
    """
    outcome = execution.take_step("collect", execution.make_place(study, folder=folder), bundles=bundles)
    console.show_outcome(outcome)
    return execution.STANDINGS[outcome.standing]
