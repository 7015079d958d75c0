"""`mooring deliver`: each participant's map and the model, signed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from mooring.cli import execution
from mooring.cli.align import DEFAULT_FOLDER, WorkFolder

if TYPE_CHECKING:
    from mooring.protocol.analyst.delivery import Delivery


def deliver(
    output: Annotated[
        str, typer.Option("--output", "-o", help="Gets a folder for each participant; a folder, or a URL: s3://…")
    ],
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    folder: WorkFolder = DEFAULT_FOLDER,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    allow_rows: Annotated[
        bool, typer.Option("--allow-rows", help="Deliver even a model that holds participants' rows, such as an svm's.")
    ] = False,
    format: execution.Format = "text",
) -> None:
    """Write each participant's result: the map that brings its rows into the common space, and the model as ONNX.

    Example: mooring deliver --study study.toml --folder analysis --vault analyst-vault --output results
    """
    with execution.run_command(format) as console:
        from mooring.protocol.analyst.delivery import deliver as deliver_results
        from mooring.protocol.messages.study import Study
        from mooring.protocol.storage.vault import Vault
        from mooring.protocol.transport.addresses import redact_address

        opened = Study.read(study)
        key = Vault.open(vault, passphrase=execution.ask_passphrase(vault)).signing_key
        command = execution.quote_command()
        with execution.show_progress("Delivering") as tell:
            found = deliver_results(opened, folder, output, key, allow_rows=allow_rows, command=command, progress=tell)
        execution.print_result(
            format, console, found.as_dict(), lambda console: _say(console, found, redact_address(output))
        )


def _say(console: Console, found: Delivery, output: str) -> None:
    content = "its map and the model" if found.model_digest else "its map; there is no model, since none was trained"
    console.print(f"[bold]Delivered[/bold] to {len(found.delivered)} participants: {', '.join(found.delivered)}.")
    if "://" in output:
        console.print(
            f"What is under {escape(output.rstrip('/'))}/<its name>: {content}. Let each read its own, and no other.",
            soft_wrap=True,
        )
        return
    console.print(
        f"Send each the folder {escape(output.rstrip('/'))}/<its name>: {content}. Give nobody another one's.",
        soft_wrap=True,
    )
