"""`mooring report`: write what a role knows about a study as one page to read, print and sign."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli.execution import (
    DEFAULT_FOLDER,
    DEFAULT_STUDY,
    DEFAULT_VAULT,
    AuditPath,
    Force,
    Output,
    command,
    make_workspace,
    read_study,
    take_step,
)
from mooring.errors import InputError

if TYPE_CHECKING:
    from mooring.protocol.messages.study import Study


@command
def report(
    console: Output,
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="The analyst's work folder, a participant's vault, or the study's folder in that vault.",
            show_default="analysis, or else vault",
        ),
    ] = None,
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
    audit: AuditPath = None,
    examples: Annotated[
        bool,
        typer.Option(
            "--examples/--no-examples",
            help="Show a few original rows beside rebuilt ones, if a record has them. Such a page is as confidential as the "
            "data.",
        ),
    ] = True,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path("report.html"),
    force: Force = False,
) -> None:
    """Take the step 'report'.

    Any role can run this command at any time. Where something is not known yet, the page names the command that finds it
    out.

    Example: mooring report analysis --study study.toml --audit audit-report/audit.json

    Example: mooring report vault --study study.toml --output report.html
    """
    usual = (path for path in (DEFAULT_FOLDER, DEFAULT_VAULT) if path.is_dir())
    source = folder or next(usual, Path())
    file = study or next((path for path in (source / DEFAULT_STUDY, DEFAULT_STUDY) if path.is_file()), DEFAULT_STUDY)
    known = read_study(file) if study is not None or file.is_file() else None
    options = {"folder": find_records(source, known), "audit": audit, "examples": examples, "force": force}
    console.show_outcome(take_step("report", make_workspace(file), output=output, **options))


def find_records(folder: Path, study: Study | None) -> Path:
    """Return the folder of the records: the folder itself or, in a vault, the folder of the study."""
    studies = folder / "studies"
    if not studies.is_dir():
        return folder
    if study is not None and (studies / study.folder_name).is_dir():
        return studies / study.folder_name
    inside = [path for path in sorted(studies.iterdir()) if path.is_dir()]
    if study is None and len(inside) == 1:
        return inside[0]
    expected, got = (
        "a vault that holds this study",
        f"a vault with {len(inside)} {'other ' * (study is not None)}studies",
    )
    raise InputError("folder", expected=expected, got=got, cure="Name the study's file with --study.")
