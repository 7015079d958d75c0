"""`mooring align`: verify the bundles that arrived, and prepare the rows or sums that a model is trained on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.options import EngineOptions, engine_option
from mooring.errors import InputError


@execution.command
def align(
    console: execution.Output,
    engine: EngineOptions,
    bundles: execution.BundleFolder,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
    late: Annotated[
        bool, typer.Option("--late", help="Only add new participants; those already aligned keep their maps.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Align everybody again although results were delivered. Then run train and deliver again.",
        ),
    ] = False,
    certify: Annotated[
        bool, typer.Option("--certify/--no-certify", help="Try to prove that no better alignment exists.")
    ] = True,
    rows_at_once: Annotated[
        int | None, engine_option("--rows-at-once", help="Largest number of rows that a worker holds in memory.")
    ] = None,
    reduce_over_workers: Annotated[
        bool | None,
        engine_option(
            "--reduce-over-workers/--no-reduce-over-workers",
            help="Keep anchor representations on the workers.",
            show_default="if they exceed 2 GB",
        ),
    ] = None,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    receipts: Annotated[
        str | None,
        typer.Option(help="Folder of the combiners' *.receipt files, or its URL.", rich_help_panel="Secure sums"),
    ] = None,
) -> int:
    """Take the step 'align'.

    Every bundle is verified first, and set aside if it fails. Once results have been delivered, add new participants with
    --late. Aligning everybody again would invalidate the delivered maps and models; it needs --again.

    Exit code 3 means that the step is done, but a bundle was set aside or left out, or a combiner's receipts were ignored.

    Example: mooring align --study study.toml --bundles inbox --folder analysis

    Secure sums: mooring align --bundles inbox --receipts inbox --vault analyst-vault

    With Dask: mooring align --bundles inbox --engine dask --scheduler tcp://10.0.0.5:8786
    """
    from mooring.protocol.analyst.intake import INTAKE_FILE, IntakeRecord
    from mooring.serialization import read_record

    if late and again:
        raise InputError("--late and --again", expected="one of them", got="both", cure="Leave one out.")
    mode = "late" if late else "again" if again else "first"
    workspace = execution.make_workspace(study, vault, folder)
    options = {"bundles": bundles, "mode": mode, "certify": certify, "receipts": receipts}
    with engine.connect(rows_at_once=rows_at_once, reduce_over_workers=reduce_over_workers) as workspace.engine:
        known = _find_version(folder / INTAKE_FILE)
        try:
            outcome = execution.take_step("align", workspace, **options)
        except InputError as problem:
            if _find_version(folder / INTAKE_FILE) == known:
                raise
            # Bundles were looked at: too few may be left because others were set aside.
            intake = read_record(
                IntakeRecord, folder / INTAKE_FILE, what="the record of bundles", cure="Run this again."
            )
            console.say(*(escape(f"Set aside {entry.file}: {entry.reason}.") for entry in intake.set_aside))
            raise console.fail(problem, execution.BAD_INPUT, intake=intake.as_dict()) from None
    return console.show_outcome(outcome)


def _find_version(path: Path) -> int | None:
    """Return when a file was last written; None if the file does not exist."""
    return path.stat().st_mtime_ns if path.is_file() else None
