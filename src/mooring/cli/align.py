"""`mooring align`: take the bundles that hold up, and bring them into one space."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.options import EngineOptions, engine_option
from mooring.errors import InputError
from mooring.serialization import count_noun

if TYPE_CHECKING:
    from mooring.protocol.analyst.alignment import Aligned, AlignMode
    from mooring.protocol.analyst.intake import Intake
    from mooring.protocol.analyst.sum_total import Closing
    from mooring.protocol.messages.study import Study

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
    if late and again:
        raise InputError("--late and --again", expected="one of them", got="both", cure="Leave one out.")
    mode: AlignMode = "late" if late else "again" if again else "first"
    opened = execution.read_study(study)
    opened.require_roster()
    command = execution.quote_command()
    if opened.sums is not None:
        return _close(opened, bundles, folder, vault, confirmations, console)
    with engine.connect(rows_at_once=rows_at_once, reduce_over_workers=reduce_over_workers) as chosen:
        with execution.show_progress("Checking bundles") as tell:
            intake = chosen.collect(opened, bundles, folder, command=command, progress=tell)
        console.say(*_describe_intake(intake))
        with execution.show_progress("Aligning, and writing the collaboration matrix") as tell:
            aligned = chosen.align(
                opened, intake.row_bundles, folder, mode=mode, certify=certify, command=command, progress=tell
            )
    result = {"intake": intake.as_dict(), "alignment": aligned.as_dict(), "set_aside": list(aligned.set_aside)}
    console.show(result, *_describe_alignment(aligned, folder, late=late))
    return execution.IN_PART if intake.set_aside or aligned.set_aside else None


def _close(
    study: Study, bundles: str, folder: Path, vault: Path, confirmations: Path | None, console: execution.Output
) -> int | None:
    """Close the list of a study of secure sums."""
    from mooring.protocol.analyst.intake import collect
    from mooring.protocol.analyst.sum_total import close_list

    key, command = execution.open_vault(vault).signing_key, execution.quote_command()
    with execution.show_progress("Checking bundles") as tell:
        intake = collect(study, bundles, folder, command=command, progress=tell)
    console.say(*_describe_intake(intake))
    closing = close_list(study, intake.sum_bundles, folder, key, confirmations=confirmations, command=command)
    result = {"intake": intake.as_dict(), "closing": closing.as_dict()}
    console.show(result, *_describe_closing(closing, study, folder))
    return execution.IN_PART if intake.set_aside or closing.left_out or closing.doubted else None


def _describe_closing(closing: Closing, study: Study, folder: Path) -> Iterator[str]:
    from mooring.protocol.messages.sums.answers import LIST_FILE

    for name, reason in closing.left_out.items():
        yield f"[yellow]Left out[/yellow] {name}: {reason}."
    for name in closing.doubted:
        yield f"[yellow]Not heard[/yellow] {name}: as a combiner it contradicts the others about many bundles."
    told = f"confirmed by {', '.join(closing.confirmed_by)}" if closing.confirmed_by else "not confirmed by combiners"
    yield f"[bold]Closed[/bold] with {count_noun(len(closing.participants), 'contribution')}, {told}."
    yield (
        f"Send {escape(str(folder / LIST_FILE))} and all bundles to the combiners "
        f"({', '.join(study.sum_scheme.combiners)}), who run: mooring combine --list. "
        f"{study.sum_scheme.threshold.threshold} of them open the total. Then: mooring train --shares"
    )


def _describe_intake(intake: Intake) -> Iterator[str]:
    rows = f" with {sum(one.n_rows for one in intake.row_bundles):,} rows" if intake.row_bundles else ""
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


def _describe_alignment(aligned: Aligned, folder: Path, *, late: bool) -> Iterator[str]:
    record: dict[str, Any] = aligned.as_dict()
    entries = record["participants"]
    for name in aligned.set_aside:
        yield (
            f"[yellow]Set aside[/yellow] {name}: its anchor representation does not fit the others' any better than random "
            "numbers would. Ask whether it used the study's anchor."
        )
    if late:
        told = f"Admitted {', '.join(aligned.newcomers)}" if aligned.newcomers else "Nobody new was admitted"
        yield f"{told}; everybody else keeps its map, byte for byte."
    worst = min(entries, key=lambda entry: entry["fit"])
    yield (
        f"[bold]Aligned[/bold] {count_noun(len(entries), 'participant')}, {sum(entry['rows'] for entry in entries):,} rows. "
        f"The lowest correlation with the others' anchor is {worst['fit']:.2f} ({worst['name']}); "
        f"1 is perfect, and noise lowers it for everybody alike."
    )
    if record["anchor_noise_scale"]:
        v, transition = record["anchor_noise_scale"], record["transition_scale"]
        side = "below" if v < transition else "[bold]above[/bold]"
        yield (
            f"The anchor noise, {v:g}, is {side} {transition:.3g}, near which the best alignment gets hard to find. "
            f"{record['termination']}"
        )
    if record["certificate"] is not None:
        yield record["certificate"]["words"]
    if record["note"]:
        yield f"[yellow]Note:[/yellow] {record['note']}"
    yield f"The collaboration matrix is in {escape(str(folder / record['table']))}. Next: mooring train"
