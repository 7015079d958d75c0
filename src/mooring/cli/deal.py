"""`mooring deal`: the anchor, sealed to every participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution


@execution.command
def deal(
    console: execution.Output,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None, typer.Option(help="Where the sealed anchor goes.", show_default="STUDY.anchor")
    ] = None,
) -> None:
    """Make the secret anchor, sealed to every participant's key and signed by you. One participant does this, once.

    Anybody may carry the file, the analyst included: only participants can open it. Dealing again gives the same file.

    Example: mooring deal --study study.toml --vault st-mary/vault --output heart.anchor
    """
    from mooring.atomic_io import require_writable

    participant = execution.open_participant(study, vault)
    path = output or Path(f"{participant.study.name}.anchor")
    require_writable(path, what="the anchor", inputs=(study,))
    written = participant.take("deal", output=path)
    console.show(written.as_dict(), *map(escape, written.lines))
