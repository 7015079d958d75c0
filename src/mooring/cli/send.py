"""`mooring send`: send a file of the study, such as a bundle, to a folder, an object store or a presigned address."""

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
        "--allow-http", help="Allow http:// and ftp:// addresses, although others on the network could read the bundle."
    ),
]


@command
def send(
    console: Output,
    file: Annotated[
        Path, typer.Argument(help="File that 'mooring share', 'deal', 'combine' or 'align' wrote.", show_default=False)
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            help="A folder, a URL (s3://bucket/inbox), a presigned address (https://…, in single quotes), or @FILE to read "
            "one of these from a file.",
        ),
    ],
    allow_http: AllowHttp = False,
) -> None:
    """Take the step 'send'.

    A transfer that breaks off is repeated from the start with the same bytes. A presigned address, which 'mooring invite'
    makes, needs no credentials here. Only signed files are sent: a table or a vault given by mistake is refused.

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
    """Return a line of text that says what was sent."""
    if sent.there_before:
        return f"{file} is already at {sent.to} with the same bytes; nothing was sent."
    tries = f", in {sent.tries} tries" if sent.tries > 1 else ""
    held = "The receiver reports the same size or checksum." if sent.confirmed else "The receiver accepted it."
    return f"Sent {file} ({sent.bytes:,} bytes) to {sent.to}{tries}. {held}"
