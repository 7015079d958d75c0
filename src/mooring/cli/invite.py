"""`mooring invite`: presigned addresses, one a participant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from mooring.cli.execution import DEFAULT_STUDY, Output, StudyPath, command, read_study


@command
def invite(
    console: Output,
    bundles: Annotated[str, typer.Option("--bundles", "-b", help="Where bundles are to lie: s3://BUCKET/FOLDER.")],
    study: StudyPath = DEFAULT_STUDY,
    expires: Annotated[str, typer.Option(help="How long the addresses are good: 30m, 12h, 7d; at most 7d.")] = "7d",
    participant: Annotated[
        list[str] | None, typer.Option(help="Make one for this participant alone; may be given again.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Folder that gets a file NAME.address each, instead of printing them."),
    ] = None,
) -> None:
    """Make an address for each participant, to which it can upload its bundle without credentials.

    Each is good for one file, NAME.bundle, for writing only, and until it expires. It is a secret: send each participant its
    own, in confidence. 'mooring align --bundles' reads from the same place.

    Example: mooring invite --study study.toml --bundles s3://ward/inbox --expires 7d --output invitations
    """
    from mooring.protocol.transport.presigned_upload import invite as make_addresses
    from mooring.protocol.transport.presigned_upload import parse_period, write_invitations

    seconds = parse_period(expires)
    found = make_addresses(read_study(study), bundles, expires=seconds, only=participant or ())
    result: dict[str, Any] = {"expires_in_seconds": seconds}
    if output is None:
        result["invitations"] = [one.as_dict() for one in found]
    else:
        paths = write_invitations(found, output)
        result["invitations"] = [{"name": name, "file": str(path)} for name, path in paths.items()]

    console.show(
        result,
        *(f"{entry['name']}	{escape(entry.get('address') or entry['file'])}" for entry in result["invitations"]),
        f"Good for {expires}, for one file each. Send each participant its own, in confidence; it runs "
        "'mooring send NAME.bundle --to @FILE', with the address in that file.",
    )
