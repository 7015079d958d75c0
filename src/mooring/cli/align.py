"""`mooring align`: check the bundles that came, and make what is trained on from them."""

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
    bundles: Annotated[
        str, typer.Option("--bundles", "-b", help="A folder of *.bundle files, or a URL: s3://…, https://…")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: execution.WorkFolder = execution.DEFAULT_FOLDER,
    late: Annotated[
        bool, typer.Option("--late", help="Admit newcomers only; whoever is aligned already keeps its map.")
    ] = False,
    again: Annotated[
        bool,
        typer.Option(
            "--again",
            help="Align everybody anew although results were delivered; train and deliver to everybody afterwards.",
        ),
    ] = False,
    certify: Annotated[
        bool, typer.Option("--certify/--no-certify", help="Try to prove that no better alignment exists.")
    ] = True,
    rows_at_once: Annotated[
        int | None, engine_option("--rows-at-once", help="Rows that a worker holds at a time.")
    ] = None,
    reduce_over_workers: Annotated[
        bool | None,
        engine_option(
            "--reduce-over-workers/--no-reduce-over-workers",
            help="Leave anchor representations with the workers.",
            show_default="above 2 GB of them",
        ),
    ] = None,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    confirmations: Annotated[
        Path | None, typer.Option(help="Folder of the combiners' *.confirmation files.", rich_help_panel="Secure sums")
    ] = None,
) -> int | None:
    """Take the step 'align'.

    Every bundle is checked first, and set aside if it does not pass. Once results are delivered, newcomers are admitted
    with --late: another alignment of everybody would not fit what was delivered, and needs --again.

    Exit code 3 means: done, but something was set aside.

    Example: mooring align --study study.toml --bundles inbox --folder analysis

    Secure sums: mooring align --bundles inbox --confirmations inbox --vault analyst-vault

    With Dask: mooring align --bundles inbox --engine dask --scheduler tcp://10.0.0.5:8786
    """
    if late and again:
        raise InputError("--late and --again", expected="one of them", got="both", cure="Leave one out.")
    mode = "late" if late else "again" if again else "first"
    place = execution.make_place(study, vault, folder)
    options = {"bundles": bundles, "mode": mode, "certify": certify, "confirmations": confirmations}
    with engine.connect(rows_at_once=rows_at_once, reduce_over_workers=reduce_over_workers) as place.engine:
        try:
            outcome = execution.take_step("align", place, **options)
        except InputError as problem:  # too few bundles may be left because others were set aside
            intake = execution.take_step("collect", place, bundles=bundles)
            console.say(*(escape(f"Set aside {entry.file}: {entry.reason}.") for entry in intake.result.set_aside))
            raise console.fail(problem, execution.BAD_INPUT, intake=intake.record) from None
    console.show_outcome(outcome)
    return execution.STANDINGS[outcome.standing]
