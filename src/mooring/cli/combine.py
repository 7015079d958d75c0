"""`mooring combine`: a combiner's part in a study of secure sums."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from mooring.cli import execution
from mooring.errors import InputError

watch_option = partial(typer.Option, rich_help_panel="A combiner that waits")


@execution.command
def combine(
    console: execution.Output,
    bundles: execution.BundleFolder,
    closing_list: Annotated[
        str | None,
        typer.Option(
            "--list",
            help="The closing list that 'mooring align' wrote. Without it, your share in each bundle is only tested. With "
            "--watch, name the folder, or its URL, in which the list will be.",
            show_default="with --watch, where bundles are",
        ),
    ] = None,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    output: Annotated[
        Path | None,
        typer.Option(help="File for your answer.", show_default="YOUR-NAME.share, or YOUR-NAME.receipt"),
    ] = None,
    watch: Annotated[
        bool,
        watch_option("--watch", help="Wait: test bundles as they arrive, send receipts, and answer the closing list."),
    ] = False,
    to: Annotated[
        str | None,
        watch_option(
            help="Where receipts and your share are sent: a folder, or its URL.", show_default="where bundles are"
        ),
    ] = None,
    every: Annotated[
        float | None, watch_option(min=1.0, help="Seconds between two checks for new files.", show_default="60")
    ] = None,
) -> int:
    """Take the step 'combine'.

    This command is for the combiners that a study of secure sums names. Without --list, it tests your share in each bundle
    and writes a receipt for the analyst. With --list, it writes your share of the total of the listed bundles. Running it
    again with the same list writes the same bytes.

    Exit code 3 means that the step is done, but your share in somebody's bundle failed verification.

    Example: mooring combine --bundles inbox --study study.toml --vault st-mary/vault

    Afterwards: mooring combine --bundles inbox --list closing.list --study study.toml --vault st-mary/vault

    Unattended: mooring combine --watch --bundles s3://ward/inbox --study study.toml --vault st-mary/vault
    """
    workspace = execution.make_workspace(study, vault)
    misplaced: dict[str, object] = {"--output": output} if watch else {"--to": to, "--every": every}
    if names := [name for name, value in misplaced.items() if value is not None]:
        problem = f"{names[0]} has no meaning {'with' if watch else 'without'} --watch."
        raise InputError(names[0], problem=problem, cure="Leave it out.")
    if watch:
        from mooring.protocol.sums.steps import watch as wait_and_combine

        def tell(sentence: str) -> None:
            console.say(escape(sentence))

        with execution.end_on_sigterm():
            outcome = wait_and_combine(workspace, bundles=bundles, lists=closing_list, to=to, seconds=every, tell=tell)
        return console.show_outcome(outcome)
    if closing_list is None:
        return console.show_outcome(execution.take_step("confirm", workspace, bundles=bundles, output=output))
    path = Path(closing_list)
    return console.show_outcome(
        execution.take_step("combine", workspace, bundles=bundles, closing_list=path, output=output)
    )
