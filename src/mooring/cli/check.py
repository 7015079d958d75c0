"""`mooring check`: look before anything leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import (
    DEFAULT_STUDY,
    DEFAULT_VAULT,
    AnchorPath,
    Format,
    IgnoreColumns,
    StudyPath,
    TablePath,
    VaultPath,
    count_progress,
    find_anchor,
    open_participant,
    quote_command,
    run_command,
)


def check(
    data: TablePath,
    study: StudyPath = DEFAULT_STUDY,
    vault: VaultPath = DEFAULT_VAULT,
    anchor: AnchorPath = None,
    output: Annotated[
        Path | None,
        typer.Option(help="Where the page goes; it shows rows of yours.", show_default="beside the vault's records"),
    ] = None,
    ignore: IgnoreColumns = None,
    seed: Annotated[int, typer.Option(min=0, help="Another seed, another self-attack.")] = 0,
    format: Format = "text",
) -> None:
    """Look before anything leaves: does the table fit, is it easy to break, and what would a colluder recover.

    Part of your own rows plays the colluder and attacks the rest, at the study's noise, with every attack that mooring
    knows. What is found is kept in the vault, with a page for you; nothing leaves. In a study of secure sums the attackers
    are after membership: with the study's noise, and without any.

    Example: mooring check patients.csv --study study.toml --vault st-mary/vault
    """
    with run_command(format) as console:
        from mooring.atomic_io import require_writable, write_atomically
        from mooring.report import render_check

        if output is not None:
            require_writable(output, what="the page", inputs=(data, study, anchor))
        participant = open_participant(study, vault)
        agreed = participant.study
        if anchor is not None:
            participant.open_anchor(find_anchor(anchor, agreed.name))
        with count_progress() as moved:
            found = participant.check(data, ignore=ignore or (), seed=seed, progress=moved)
        record = {"command": quote_command(), **found.as_dict()}
        participant.vault.write(agreed.folder_name, "check.json", json.dumps(record).encode())
        page = output or participant.vault.study_folder(agreed.folder_name) / "check.html"
        write_atomically(page, render_check(agreed, record).encode(), mode=0o600, what="the page")

        console.show(
            {**found.as_dict(), "page": str(page)},
            f"{found.n_rows} rows fit the study {agreed.name!r}, fingerprint {agreed.fingerprint}.",
            *(f"  • {escape(words)}" for words in (*found.hazards, *found.warnings)),
            f"[bold]{escape(found.verdict)}[/bold]",
            f"Open [bold]{escape(str(page))}[/bold] to see rows beside what was rebuilt; keep it to yourself."
            if agreed.sums is None
            else f"Open [bold]{escape(str(page))}[/bold] for the guarantee, and what attackers would get.",
        )
