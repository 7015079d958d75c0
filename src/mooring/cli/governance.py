"""`mooring governance`: draft the documents that a data-protection officer asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, AuditPath, Output, StudyPath, command, read_study
from mooring.cli.report import find_records
from mooring.errors import InputError


@command
def governance(
    console: Output,
    folder: Annotated[
        Path | None,
        typer.Argument(
            help="Your vault, or the analyst's work folder, with the records of what was measured.",
            show_default="only the study's file",
        ),
    ] = None,
    study: StudyPath = DEFAULT_STUDY,
    audit: AuditPath = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for the drafts; it is created if needed.")
    ] = Path("governance"),
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing drafts.")] = False,
) -> None:
    """Write a page to sign, and draft an impact assessment (DPIA), an annex to an agreement, and answers to the Five Safes.

    sign.html states what a data-protection officer decides on: organisations, columns, what leaves,
    what is promised and what is not. The drafts are Markdown files to edit. All are filled in from the study's file and
    your records; what mooring cannot know is a line to fill in, or marked TO FILL IN. They contain no row and no secret.
    The annex comes from the study's file alone, and is the same for all parties.

    Example: mooring governance vault --study study.toml --output governance
    """
    from mooring.atomic_io import make_folder, write_atomically
    from mooring.report.governance import render_drafts
    from mooring.report.records import StudyRecords, collect_records, read_audit
    from mooring.report.signing_page import SIGNING_PAGE, render_signing_page
    from mooring.report.summary import summarise

    agreed = read_study(study)
    records = StudyRecords()
    if folder is not None:
        records = collect_records(find_records(folder, agreed), agreed, examples=False)
    audited = None if audit is None else read_audit(audit, examples=False)
    report = summarise(agreed, records, audited)
    drafts = {SIGNING_PAGE: render_signing_page(report), **render_drafts(report)}
    there = [name for name in drafts if (output / name).exists()]
    if there and not force:
        cure = "Name another folder, or give --force, which discards what was filled in there."
        raise InputError("output", expected="a folder without these drafts", got=f"one with {there[0]}", cure=cure)
    make_folder(output, what="the drafts")
    for name, text in drafts.items():
        write_atomically(output / name, text.encode(), mode=0o600, what="the drafts")
    written = [str(output / name) for name in drafts]
    console.show(
        {"drafts": written, "fingerprint": agreed.fingerprint},
        f"Wrote {escape(', '.join(written))}. "
        f"Print and sign {SIGNING_PAGE}. Complete the drafts where they say TO FILL IN, and check them.",
    )
