"""`mooring share`: one signed bundle, once."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

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
    output: Annotated[Path | None, typer.Option(help="Where the bundle goes.", show_default="YOUR-NAME.bundle")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            help="Send it there as well, as 'mooring send' does: a folder, a URL, a presigned address, or @FILE with one.",
        ),
    ] = None,
    allow_http: AllowHttp = False,
    ignore: execution.IgnoreColumns = None,
    labels: execution.LabelConsent = False,
    override: Annotated[
        str,
        typer.Option(
            "--override",
            metavar="'NAME: REASON'",
            help="Share rows that the check does not show to keep to the study's limits; your report says who and why.",
        ),
    ] = "",
) -> None:
    """Write the one bundle that you upload: rows and anchor under your secret map, labels, and nothing else.

    Rows are shuffled. The same rows give the same bytes again, whenever you run this; other rows in the same study, or the
    same rows in another one, are refused, since fresh noise on the same rows could be averaged away. Where the study states
    limits on uploads, so are rows that 'mooring check' has not seen, or not shown to keep to them.

    In a study of secure sums the bundle holds noisy sums over your rows, sealed in shares to the combiners: the analyst can
    open nothing of it. The same rows in another such study spend more of your epsilon, which is counted.

    Example: mooring share patients.csv --study study.toml --vault st-mary/vault --anchor heart.anchor --labels

    Secure sums: mooring share patients.csv --study study.toml --vault st-mary/vault
    """
    from mooring.protocol.exchange import exchange_of
    from mooring.protocol.transport.addresses import read_address
    from mooring.protocol.transport.transfer import require_address

    address = None if to is None else read_address(to)
    if address is not None:
        require_address(address, allow_http=allow_http)
    participant = execution.open_participant(study, vault)
    agreed = participant.study
    path = output or Path(f"{participant.member.name}.bundle")
    exchange = exchange_of(agreed)
    dealt = execution.find_anchor(anchor, agreed.name) if exchange.uses_anchor else None
    consent: dict[str, Any] = {"labels": labels, "override": override, "ignore": ignore or ()}
    consent["command"] = execution.quote_command()
    with execution.show_progress("Reading the table") as moved:
        shared = participant.share(data, output=path, anchor=dealt, **consent, progress=moved)

    sent = None if address is None else _send(path, address, shared.bundle_digest, allow_http=allow_http)

    again = " again, the same bytes as before" if shared.reissued else ""
    what, to_whom = exchange.describe_share(agreed, shared)
    to_whom = f" {to_whom}" if sent is None else ""
    told = participant.recall_check()
    result = {**shared.as_dict(), "bundle": str(path), "fingerprint": agreed.fingerprint, "checked": told}
    del result["rows_digest"]  # stays in the vault
    console.show(
        result if sent is None else {**result, "sent": sent.as_dict()},
        f"Wrote [bold]{escape(str(path))}[/bold]{again}: {what}.{to_whom}",
        *([] if sent is None else [describe_sent(path, sent)]),
        f"[bold]{escape(told)}[/bold]",
        f"Its SHA-256 is {shared.bundle_digest}.",
        f"It is for the study with the fingerprint {agreed.fingerprint}.",
    )


def _send(path: Path, address: str, digest: str, *, allow_http: bool) -> SendResult:
    """Send the bundle that was written; if that fails, it is still there, and the error says how to go on."""
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
