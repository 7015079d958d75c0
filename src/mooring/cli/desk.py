"""`mooring desk`: the steps of a study on a page in the browser."""

from __future__ import annotations

import webbrowser
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from mooring.cli.execution import end_on_sigterm, run_command
from mooring.errors import MissingExtraError


def desk(
    folder: Annotated[
        Path, typer.Argument(help="Your folder, with your tables, your vault and the files that others sent you.")
    ] = Path("."),
    place: Annotated[
        str,
        typer.Option(
            help="Where members exchange files: a folder that all can reach, or its URL (s3://ward/study). The desk then "
            "takes all steps that need no person.",
            envvar="MOORING_PLACE",
            show_default="the one chosen before",
        ),
    ] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page in the browser.")
    ] = True,
) -> None:
    """Take the steps of a participant or an analyst on a page in your browser, instead of with commands.

    With a place, the desk does what 'mooring run' does, and asks you on the page what only a person can answer. Without a
    place, it uploads nothing. The page is served on 127.0.0.1, to the browser that opens the printed address; each address
    works once. The desk reads and writes only at the place and in the folder, which it creates if needed; files that you add
    on the page pass through the system's temporary folder. Stop the desk with Ctrl-C. It needs mooring's extra 'desk'.

    Example: mooring desk st-mary

    Through a place: mooring desk st-mary --place /mnt/ward
    """
    with run_command("text") as console, end_on_sigterm():
        if any(find_spec(name) is None for name in ("starlette", "uvicorn", "python_multipart")):
            raise MissingExtraError(needed_for="The desk", package="starlette", extra="desk")
        from mooring.desk.app import serve_desk
        from mooring.protocol.transport.addresses import is_url

        announced: list[str] = []

        def announce(address: str) -> None:
            prompt = "Opened. For another browser" if announced else "Open"
            console.print(f"{prompt}: {address}", markup=False, highlight=False, soft_wrap=True)
            if browser and not announced:
                webbrowser.open(address)
            announced.append(address)

        address = str(Path(place).expanduser().resolve()) if place and not is_url(place) else place
        serve_desk(folder, port=port, place=address, announce=announce)
