"""`mooring share`: write your one signed bundle."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mooring.cli import execution
from mooring.cli.send import AllowHttp, describe_sent
from mooring.errors import InputError, RefusedError, StorageError

if TYPE_CHECKING:
    from mooring.protocol.transport.transfer import SendResult


@execution.command
def share(
    console: execution.Output,
    data: execution.TablePath,
    study: execution.StudyPath = execution.DEFAULT_STUDY,
    vault: execution.VaultPath = execution.DEFAULT_VAULT,
    anchor: execution.AnchorPath = None,
    output: Annotated[Path | None, typer.Option(help="File for the bundle.", show_default="YOUR-NAME.bundle")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Also send the bundle there, as 'mooring send' does: a folder, a URL, a presigned address, or @FILE.",
        ),
    ] = None,
    allow_http: AllowHttp = False,
    ignore: execution.IgnoreColumns = None,
    mapping: execution.MappingPath = None,
    labels: execution.LabelConsent = False,
    override: Annotated[
        str,
        typer.Option(
            "--override",
            metavar="'NAME: REASON'",
            help="Share rows that were not shown to keep to the study's limits; your report states the name and reason.",
        ),
    ] = "",
) -> None:
    """Take the step 'share'.

    In a study of rotation, the bundle holds your rows and the anchor under your secret map. The rows are in random order,
    with their labels if the study has a label, and nothing else of your table is in the bundle. A second upload is refused,
    both of different rows in the same study and of the same rows in a different study, because an attacker could average
    fresh noise away. If the study limits what attacks may recover, rows are also refused unless 'mooring check' has shown
    that they keep to the limits, or --override is given.

    In a study of secure sums, the bundle holds sums over your rows, with the study's noise, encrypted as shares to the
    combiners, so that the analyst can open none of it. The epsilon of all such studies of your vault adds up, whatever rows
    each had.

    Example: mooring share patients.csv --study study.toml --vault st-mary/vault --anchor heart.anchor --labels

    Secure sums: mooring share patients.csv --study study.toml --vault st-mary/vault
    """
    from mooring.protocol.registry import exchange_of
    from mooring.protocol.transport.addresses import read_address
    from mooring.protocol.transport.transfer import require_address

    address = None if to is None else read_address(to)
    workspace = execution.make_workspace(study, vault, mapping=mapping)
    if address is not None:
        require_address(address, allow_http=allow_http or exchange_of(workspace.study).seals_bundles)
    outcome = execution.take_step(
        "share",
        workspace,
        data=data,
        anchor=anchor,
        labels=labels,
        override=override,
        ignore=ignore,
        output=output,
    )
    if address is not None:
        path = Path(outcome.record["bundle"])
        sent = _send(path, address, outcome.result.bundle_digest, allow_http=allow_http)
        lines = (*outcome.lines, describe_sent(path, sent))
        outcome = replace(outcome, record={**outcome.record, "sent": sent.as_dict()}, lines=lines)
    console.show_outcome(outcome)


def _send(path: Path, address: str, digest: str, *, allow_http: bool) -> SendResult:
    """Send the bundle that was written; if that fails, the file is kept, and the error says how to send it."""
    from mooring.protocol.transport.transfer import send_file

    later = f"The bundle is written; to send it later: mooring send {shlex.quote(str(path))} --to …"
    try:
        with execution.show_progress("sending") as moved:
            return send_file(path, address, allow_http=allow_http, digest=digest, progress=moved)
    except (StorageError, RefusedError) as problem:
        raise type(problem)(problem.what, reason=problem.reason, cure=f"{problem.cure} {later}") from None
    except InputError as problem:
        raise InputError(
            problem.what,
            problem=problem.problem,
            expected=problem.expected,
            got=problem.got,
            cure=f"{problem.cure} {later}",
        ) from None
