"""`mooring send`: a bundle or an anchor file to a folder, a store or a presigned address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from mooring.cli.execution import Output, command, show_progress

if TYPE_CHECKING:
    from mooring.protocol.transport.transfer import SendResult

AllowHttp = Annotated[
    bool,
    typer.Option(
        "--allow-http", help="Send a bundle even to http:// or ftp://, where others on the way could read it."
    ),
]


@command
def send(
    console: Output,
    file: Annotated[Path, typer.Argument(help="What 'mooring share' or 'mooring deal' wrote.", show_default=False)],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="A folder, a URL (s3://bucket/inbox), a presigned address (https://…, in single quotes), or @FILE with "
            "one of these in it.",
        ),
    ],
    allow_http: AllowHttp = False,
) -> None:
    """Take the step 'send'.

    What breaks off is sent again from its first byte, the same bytes. A presigned address, as 'mooring invite' makes it,
    needs no credentials here. Nothing but bundles and anchor files is sent: a table or a vault given by mistake is refused.

    Example: mooring send st-mary.bundle --to @st-mary.address
    """
    from mooring.protocol.transport.addresses import read_address
    from mooring.protocol.transport.transfer import send_file

    address = read_address(to)
    with show_progress("sending") as moved:
        sent = send_file(file, address, allow_http=allow_http, progress=moved)

    console.show(
        {"file": str(file), **sent.as_dict()}, escape(describe_sent(file, sent)), f"Its SHA-256 is {sent.digest}."
    )


def describe_sent(file: Path, sent: SendResult) -> str:
    """What was sent, as a line of text."""
    if sent.there_before:
        return f"{file} is at {sent.to} already, the same bytes: nothing was sent."
    tries = f", in {sent.tries} tries" if sent.tries > 1 else ""
    held = "The other side reports the same size or checksum." if sent.confirmed else "The other side took it."
    return f"Sent {file} ({sent.bytes:,} bytes) to {sent.to}{tries}. {held}"
