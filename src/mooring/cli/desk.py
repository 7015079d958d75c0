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
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one.")] = 0,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Whether to open the page in the browser.")
    ] = True,
) -> None:
    """Take the steps of a participant or an analyst on a page in your browser, instead of with commands.

    The page is served on 127.0.0.1, to the browser that opens the printed address; each address works once. The desk uploads
    nothing. It reads and writes only in the folder, which it creates if needed; files that you add on the page pass through
    the system's temporary folder. Stop it with Ctrl-C. It needs mooring's extra 'desk'.

    Example: mooring desk st-mary
    """
    with run_command("text") as console, end_on_sigterm():
        if any(find_spec(name) is None for name in ("starlette", "uvicorn", "python_multipart")):
            raise MissingExtraError(needed_for="The desk", package="starlette", extra="desk")
        from mooring.desk.app import serve_desk

        announced: list[str] = []

        def announce(address: str) -> None:
            prompt = "Opened. For another browser" if announced else "Open"
            console.print(f"{prompt}: {address}", markup=False, highlight=False, soft_wrap=True)
            if browser and not announced:
                webbrowser.open(address)
            announced.append(address)

        serve_desk(folder, port=port, announce=announce)
