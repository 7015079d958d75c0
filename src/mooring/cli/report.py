"""`mooring report`: what a role knows of a study, as one page to read, print and sign."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, Force, Output, command, read_study, require_absent
from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study


@command
def report(
    console: Output,
    folder: Annotated[
        Path, typer.Argument(help="The analyst's work folder, or a participant's vault (or its folder of the study).")
    ] = Path("."),
    study: Annotated[
        Path | None,
        typer.Option(
            "--study",
            "-s",
            help="The study's file.",
            envvar="MOORING_STUDY",
            show_default="study.toml, here or in FOLDER",
            rich_help_panel="Study",
        ),
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(help="An audit.json or plan.json, to show what attacks recover from rows like these.")
    ] = None,
    examples: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples",
            help="Show a few original rows beside rebuilt ones, if a record has them; the page is then as confidential as "
            "the data.",
        ),
    ] = True,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    force: Force = False,
) -> None:
    """Turn what you have into one page to read, print and sign: who took part, what joining gives, what it gives away.

    Any role can run it at any time: what is not known yet says which command would tell.

    Example: mooring report analysis --study study.toml --audit audit-report/audit.json

    Example: mooring report vault --study study.toml --output report.html
    """
    from mooring.atomic_io import write_atomically
    from mooring.report import collect_records, read_audit, render_report, summarise

    require_absent(output, force=force)
    known = _study(study, folder)
    records = collect_records(find_records(folder, known), examples=examples)
    found = None if audit is None else read_audit(audit, examples=examples)
    if not records and found is None:
        expected, got = "one with records of a study", "one without any"
        cure = "Give the folder that the analyst's commands write to, your vault, or an audit with --audit."
        raise InputError("folder", expected=expected, got=got, cure=cure)
    summary = summarise(known, records, found)
    # readable by its owner only: it may hold rows
    write_atomically(output, render_report(summary).encode(), mode=0o600, what="the page")
    console.show(summary | {"page": str(output)}, *_describe_report(summary, output))


def _study(path: Path | None, folder: Path) -> Study | None:
    """The study that was named; else one that lies at the usual places; else none."""
    usual = (one for one in (folder / DEFAULT_STUDY, DEFAULT_STUDY) if one.is_file())
    found = path or next(usual, None)
    return None if found is None else read_study(found)


def find_records(folder: Path, study: Study | None) -> Path:
    """Return where records lie: the folder itself or, of a vault, its folder of the study."""
    studies = folder / "studies"
    if not studies.is_dir():
        return folder
    if study is not None and (studies / study.folder_name).is_dir():
        return studies / study.folder_name
    inside = [one for one in sorted(studies.iterdir()) if one.is_dir()]
    if study is None and len(inside) == 1:
        return inside[0]
    expected, got = "a vault that holds this study", f"one with {len(inside)} {'other ' * (study is not None)}studies"
    raise InputError("folder", expected=expected, got=got, cure="Name the study's file with --study.")


def _describe_report(summary: dict[str, Any], output: Path) -> Iterator[str]:
    study, said = summary["study"], summary["verdict"]["sentences"]
    known = f"Study {study['name']}, fingerprint {study['fingerprint']}" if study else None
    yield escape(f"{known or 'The study is not known: give --study'}; seen by: {summary['role']}.")
    yield f"[bold]{escape(summary['decision']['words'])}[/bold]"
    yield escape(said["joining"][0])
    for words in said["leakage"][:2]:  # whether a row can be told to be in, and what is rebuilt
        yield f"[bold red]{escape(words)}[/bold red]"
    if said["attention"]:
        yield f"[yellow]{escape(' '.join(said['attention']))}[/yellow]"
    yield escape(f"Open {output} in a browser{'; print it to sign it' if study else ''}.")
