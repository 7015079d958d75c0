"""`mooring deal`: the anchor, sealed to every participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import (
    DEFAULT_STUDY,
    DEFAULT_VAULT,
    Format,
    StudyPath,
    VaultPath,
    ask_passphrase,
    print_result,
    run_command,
)


def deal(
    study: StudyPath = DEFAULT_STUDY,
    vault: VaultPath = DEFAULT_VAULT,
    output: Annotated[
        Path | None, typer.Option(help="Where the sealed anchor goes.", show_default="STUDY.anchor")
    ] = None,
    format: Format = "text",
) -> None:
    """Make the secret anchor, sealed to every participant's key and signed by you. One participant does this, once.

    Anybody may carry the file, the analyst included: only participants can open it. Dealing again gives the same file.

    Example: mooring deal --study study.toml --vault st-mary/vault --output heart.anchor
    """
    with run_command(format) as console:
        from mooring.atomic_io import require_writable
        from mooring.protocol.messages.study import Study
        from mooring.protocol.participant.role import Participant
        from mooring.protocol.storage.vault import Vault

        agreed = Study.read(study)
        path = output or Path(f"{agreed.name}.anchor")
        require_writable(path, what="the anchor", inputs=(study,))
        digest = Participant(agreed, Vault.open(vault, passphrase=ask_passphrase(vault))).deal(path)
        result = {"anchor": str(path), "digest": digest, "participants": len(agreed.participants)}
        print_result(
            format,
            console,
            result,
            lambda console: console.print(
                f"Wrote [bold]{escape(str(path))}[/bold], sealed to {len(agreed.participants)} participants. "
                "Send it to each of them.",
                soft_wrap=True,
            ),
        )
