"""`mooring align`: take the bundles that hold up, and bring them into one space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.options import EngineOptions, engine_option
from mooring.errors import InputError
from mooring.serialization import count_noun

if TYPE_CHECKING:
    from mooring.protocol.analyst.intake import Intake
    from mooring.protocol.exchange import AlignMode

WorkFolder = Annotated[Path, typer.Option("--folder", help="Your work folder: what you collect and compute is here.")]
DEFAULT_FOLDER = Path("analysis")


@execution.command
def align(
    console: execution.Output,
    engine: EngineOptions,
    bundles: Annotated[
        str, typer.Option("--bundles", "-b", help="A folder of *.bundle files, or a URL: s3://…, https://…")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
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
    """Check every bundle, set aside what does not hold up, and bring the others into one space.

    Once results are delivered, newcomers are admitted with --late: another alignment of everybody would not fit what was
    delivered, and needs --again.

    In a study of secure sums nothing is aligned: the list of bundles is closed and signed, for the combiners.

    Exit code 3 means: done, but something was set aside.

    Example: mooring align --study study.toml --bundles inbox --folder analysis

    Secure sums: mooring align --bundles inbox --confirmations inbox --vault analyst-vault

    With Dask: mooring align --bundles inbox --engine dask --scheduler tcp://10.0.0.5:8786
    """
    from mooring.protocol.exchange import GatherOptions, exchange_of

    if late and again:
        raise InputError("--late and --again", expected="one of them", got="both", cure="Leave one out.")
    mode: AlignMode = "late" if late else "again" if again else "first"
    opened = execution.read_study(study)
    opened.require_roster()
    command = execution.quote_command()
    key = execution.open_vault(vault).signing_key if exchange_of(opened).gathers_signed else None
    with engine.connect(rows_at_once=rows_at_once, reduce_over_workers=reduce_over_workers) as chosen:
        with execution.show_progress("Checking bundles") as tell:
            intake = chosen.collect(opened, bundles, folder, command=command, progress=tell)
        console.say(*_describe_intake(intake))
        with execution.show_progress("Gathering contributions") as tell:
            options = GatherOptions(mode, certify, confirmations, key, command, tell)
            gathered = chosen.gather(opened, intake.bundles, folder, options)
    result = {"intake": intake.as_dict(), exchange_of(opened).gather_record: gathered.as_dict()}
    table = execution.make_table(gathered.list_contributions(), title="Contributions", n_left=1)
    console.show(result, table, *map(escape, gathered.describe()), "Next: mooring train")
    return None if gathered.is_whole and not intake.set_aside else execution.IN_PART


def _describe_intake(intake: Intake) -> Iterator[str]:
    counts = [bundle.n_rows for bundle in intake.bundles if bundle.n_rows is not None]
    rows = f" with {sum(counts):,} rows" if counts else ""
    names = ", ".join(bundle.member.name for bundle in intake.bundles) or "nobody"
    yield f"[bold]Accepted[/bold] {count_noun(len(intake.bundles), 'bundle')}{rows}: {names}."
    for entry in intake.set_aside:
        yield f"[yellow]Set aside[/yellow] {escape(entry.file)}: {escape(entry.reason)}."
    waiting = [name for name in intake.missing if name not in intake.gone]
    if waiting:
        without = " The study goes on without; 'align --late' adds." if intake.bundles else ""
        yield f"Nothing that counts yet from: {', '.join(waiting)}.{without}"
    if intake.gone:
        yield f"Accepted before, but the file is not there any more: {', '.join(intake.gone)}."
