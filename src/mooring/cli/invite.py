"""`mooring invite`: make a presigned address for each participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, Output, StudyPath, command, read_study


@command
def invite(
    console: Output,
    bundles: Annotated[str, typer.Option("--bundles", "-b", help="Where bundles are uploaded to: s3://BUCKET/FOLDER.")],
    study: StudyPath = DEFAULT_STUDY,
    expires: Annotated[
        str, typer.Option(help="How long the addresses are valid, such as 30m, 12h or 7d; at most 7d.")
    ] = "7d",
    participant: Annotated[
        list[str] | None, typer.Option(help="Make an address only for this participant; repeatable.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for one file NAME.address per participant, instead of printing the addresses.",
        ),
    ] = None,
) -> None:
    """Make an address for each participant, to which it can upload its bundle without credentials.

    Each address allows one file, NAME.bundle, to be written until the address expires. It is a secret: send each participant
    its own in confidence. Give the same folder to 'mooring align --bundles' afterwards.

    Example: mooring invite --study study.toml --bundles s3://ward/inbox --expires 7d --output invitations
    """
    from mooring.protocol.transport.presigned_upload import invite as make_addresses
    from mooring.protocol.transport.presigned_upload import parse_period, write_invitations

    seconds = parse_period(expires)
    invitations = make_addresses(read_study(study), bundles, expires=seconds, only=participant or ())
    result: dict[str, Any] = {"expires_in_seconds": seconds}
    if output is None:
        result["invitations"] = [invitation.as_dict() for invitation in invitations]
    else:
        paths = write_invitations(invitations, output)
        result["invitations"] = [{"name": name, "file": str(path)} for name, path in paths.items()]

    console.show(
        result,
        *(f"{entry['name']}	{escape(entry.get('address') or entry['file'])}" for entry in result["invitations"]),
        f"Each address is valid for {expires} and one file. Send each participant its own in confidence; it runs "
        "'mooring send NAME.bundle --to @FILE', with the address in that file.",
    )
